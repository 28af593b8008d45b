use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn options() -> TraceOptions {
    TraceOptions {
        value_bytes_max: 1000,
        ..TraceOptions::new("trace".as_ref(), 64 << 20)
    }
}

fn load(
    options: &TraceOptions,
    threads: u64,
    entries: &[(&str, Verb, u64)],
) -> (Summary, Vec<Arc<Script>>) {
    let mut loader = Loader::new(options, threads, 5, Format::Csv);
    for &(key, verb, value_bytes) in entries {
        let entry = Entry {
            key: key.as_bytes(),
            verb,
            value_bytes,
            expiry: Expiry::Never,
        };
        if !loader.push(&entry) {
            break;
        }
    }
    loader.finish()
}

fn kinds(script: &Script) -> Vec<(Kind, u32, u32)> {
    let steps = (0..script.len()).map(|place| script.step(place));
    steps
        .map(|step| (step.kind, step.version, step.bytes))
        .collect()
}

#[test]
fn each_request_carries_its_outcome() {
    let entries = [
        ("a", Verb::Get, 10),
        ("a", Verb::Get, 99),
        ("a", Verb::Extend, 5),
        ("a", Verb::Modify, 8),
        ("a", Verb::Delete, 0),
        ("a", Verb::Delete, 0),
        ("a", Verb::Extend, 5),
        ("a", Verb::Modify, 5),
        ("a", Verb::Get, 0),
        ("a", Verb::Set, 0),
        ("a", Verb::Get, 7),
        ("a", Verb::Set, 1_000_000_000_000),
        ("a", Verb::Extend, u64::MAX),
    ];
    let (summary, scripts) = load(&options(), 1, &entries);
    let expected = [
        (Kind::Miss, 0, 0),
        (Kind::Put, 1, 10),
        (Kind::Hit, 1, 10),
        (Kind::Hit, 1, 10),
        (Kind::Put, 2, 15),
        (Kind::Hit, 2, 15),
        (Kind::Put, 3, 15),
        (Kind::Delete, 0, 0),
        (Kind::DeleteAbsent, 0, 0),
        (Kind::Miss, 0, 0),
        (Kind::Miss, 0, 0),
        (Kind::Miss, 0, 0),
        (Kind::Put, 4, 0),
        (Kind::Hit, 4, 0),
        (Kind::Put, 5, 1000),
        (Kind::Hit, 5, 1000),
        (Kind::Put, 6, 1000),
    ];
    assert_eq!(kinds(&scripts[0]), expected);
    assert_eq!(
        (summary.entries, summary.requests(), summary.keys),
        (13, 17, 1)
    );
    assert_eq!((summary.hits, summary.misses, summary.fills), (5, 4, 1));
    assert_eq!(
        (summary.puts, summary.deletes, summary.deletes_found),
        (6, 2, 1)
    );
    assert_eq!((summary.values_cut, summary.value_bytes_longest), (2, 1000));
    assert_eq!(summary.read_bytes, 10 + 10 + 15 + 1000);
    assert_eq!(summary.written_bytes, 10 + 15 + 15 + 2000);
    assert_eq!(summary.live_bytes_peak, 1001);
}

#[test]
fn times_to_live_reach_the_script_only_if_they_are_applied() {
    let entries = [
        (Verb::Get, 10, Expiry::In(8_000)),
        (Verb::Touch, 0, Expiry::In(1)),
        (Verb::GetAndTouch, 0, Expiry::Never),
        (Verb::Modify, 0, Expiry::Never),
        (Verb::Set, 10, Expiry::Keep),
        (Verb::Set, 10, Expiry::In(u64::MAX)),
        (Verb::Delete, 0, Expiry::Never),
        (Verb::Touch, 0, Expiry::In(1)),
    ];
    let load = |lifetimes_per_mille| {
        let options = TraceOptions {
            lifetimes_per_mille,
            ..options()
        };
        let mut loader = Loader::new(&options, 1, 5, Format::Csv);
        for (verb, value_bytes, expiry) in entries {
            let key = b"a";
            loader.push(&Entry {
                key,
                verb,
                value_bytes,
                expiry,
            });
        }
        let (summary, scripts) = loader.finish();
        let steps = (0..scripts[0].len()).map(|place| scripts[0].step(place));
        let steps: Vec<_> = steps.map(|step| (step.kind, step.expiry)).collect();
        (steps, summary.expiring)
    };
    let longest = Expiry::In(u64::from(u32::MAX - 1));
    let (steps, expiring) = load(Some(500));
    assert_eq!(expiring, 3);
    assert_eq!(
        steps,
        [
            (Kind::Miss, Expiry::Never),
            (Kind::Put, Expiry::In(4_000)),
            (Kind::Touch, Expiry::In(1)),
            (Kind::GetAndTouch, Expiry::Never),
            (Kind::Hit, Expiry::Never),
            (Kind::Put, Expiry::Keep),
            (Kind::Put, Expiry::Keep),
            (Kind::Put, longest),
            (Kind::Delete, Expiry::Never),
            (Kind::Miss, Expiry::Never),
        ]
    );
    let (steps, expiring) = load(None);
    assert_eq!(expiring, 3);
    assert!(steps.iter().all(|&(_, expiry)| expiry == Expiry::Never));
    assert_eq!((steps[2].0, steps[3].0), (Kind::Hit, Kind::Hit));
}

#[test]
fn misses_that_cannot_be_filled_are_reported() {
    let entries = [
        ("a", Verb::Get, 0),
        ("b", Verb::Set, 5),
        ("b", Verb::Delete, 0),
        ("b", Verb::Get, 0),
    ];
    let (summary, _) = load(&options(), 1, &entries);
    assert_eq!(
        (summary.misses, summary.fills, summary.unfillable),
        (2, 0, 1)
    );
    let notes = summary.notes(false).join("\n");
    assert!(notes.starts_with("1 get of keys"), "{notes}");
}

#[test]
fn misses_are_not_filled_with_on_miss_ignore() {
    let options = TraceOptions {
        on_miss: OnMiss::Ignore,
        ..options()
    };
    let (summary, scripts) = load(&options, 1, &[("a", Verb::Get, 10), ("a", Verb::Get, 10)]);
    assert_eq!(kinds(&scripts[0]), [(Kind::Miss, 0, 0); 2]);
    assert_eq!((summary.misses, summary.fills), (2, 0));
}

#[test]
fn limits_end_the_reading_and_are_reported() {
    let keys: Vec<String> = (0..20_000).map(|number| format!("key:{number}")).collect();
    let entries: Vec<_> = keys.iter().map(|key| (&**key, Verb::Set, 10)).collect();
    let limited = TraceOptions {
        limit: Some(7),
        ..options()
    };
    let (summary, _) = load(&limited, 2, &entries);
    assert_eq!((summary.entries, summary.stop), (7, Some(Stop::Limit)));
    assert_eq!(summary.notes(false), ["read up to --limit"]);
    let exactly = TraceOptions {
        limit: Some(20_000),
        ..options()
    };
    assert_eq!(load(&exactly, 2, &entries).0.stop, None);
    let small = TraceOptions {
        memory_bytes_max: 256 << 10,
        ..options()
    };
    let (summary, _) = load(&small, 2, &entries);
    assert_eq!(summary.stop, Some(Stop::Memory));
    assert!(
        (256 << 10..512 << 10).contains(&summary.memory_bytes),
        "{summary:?}"
    );
    assert!(summary.entries > 1000 && summary.notes(false)[0].contains("--trace-memory"));
}

proptest! {
    #[test]
    fn scripts_keep_the_order_on_each_key_for_any_number_of_threads(
    requests in proptest::collection::vec((0_u8..20, 0_u8..7, 0_u64..50), 0..300),
        threads in 1_u64..5,
        applied in any::<bool>(),
    ) {
        let options = TraceOptions {
            lifetimes_per_mille: applied.then_some(1_000),
            ..options()
        };
        let verbs = [
            Verb::Get,
            Verb::Set,
            Verb::Extend,
            Verb::Modify,
            Verb::Delete,
            Verb::Touch,
            Verb::GetAndTouch,
        ];
        let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
        let entries: Vec<_> = requests
            .iter()
            .map(|&(key, verb, bytes)| (&*keys[usize::from(key)], verbs[usize::from(verb)], bytes))
            .collect();
        let by_key = |scripts: &[Arc<Script>]| {
            let mut found: HashMap<Vec<u8>, Vec<(Kind, u32, u32)>> = HashMap::new();
            for (thread, script) in scripts.iter().enumerate() {
                let mut own = HashMap::new();
                for place in 0..script.len() {
                    let step = script.step(place);
                    own.entry(step.key.to_vec())
                        .or_insert_with(Vec::new)
                        .push((step.kind, step.version, step.bytes));
                }
                for (key, steps) in own {
                    assert!(found.insert(key, steps).is_none(), "thread {thread} shares a key");
                }
            }
            found
        };
        let (one, alone) = load(&options, 1, &entries);
        let (many, shared) = load(&options, threads, &entries);
        prop_assert_eq!(by_key(&alone), by_key(&shared));
        prop_assert_eq!((one.hits, one.live_bytes_peak, one.keys), (many.hits, many.live_bytes_peak, many.keys));
        // An independent oracle: the same requests on a map have the same outcomes.
        let mut map = HashMap::new();
        for place in 0..alone[0].len() {
            let step = alone[0].step(place);
            let found = map.get(step.key).copied();
            match step.kind {
                Kind::Hit | Kind::GetAndTouch => prop_assert_eq!(found, Some((step.version, step.bytes))),
                Kind::Touch => prop_assert_eq!(found.map(|held| held.0), Some(step.version)),
                Kind::Miss | Kind::DeleteAbsent => prop_assert_eq!(found, None),
                Kind::Delete => prop_assert!(map.remove(step.key).is_some()),
                Kind::Put => {
                    map.insert(step.key, (step.version, step.bytes));
                }
            }
        }
    }
}
