//! Every operation over sockets, from one client to a server of two cores.

mod support;

use farcore_client::{
    CasOutcome, Condition, Error, Expiry, ExpiryCondition, PutOptions, PutOutcome, ScanOptions,
    Status, Transfer,
};

use crate::support::{Served, options, pattern};

#[test]
fn values_of_every_length_are_stored_and_read_back() {
    let served = Served::start(2);
    for transfer in [Transfer::Read, Transfer::Landing] {
        let client = served.client_with(|options| options.transfer = transfer);
        for bytes in [
            0,
            1,
            63,
            4095,
            4096,
            4097,
            60_000,
            65_535,
            65_536,
            65_537,
            131_000,
            262_000,
            300_000,
            1 << 20,
            (1 << 20) + 1,
            3 << 20,
        ] {
            let key = format!("key-{bytes}");
            let value = pattern(bytes, bytes as u64);
            let version = client.put(key.as_bytes(), &value).wait().expect("stored");
            let found = client.get(key.as_bytes()).wait().expect("read");
            let found = found.expect("it is there");
            assert_eq!(found.version, version, "{bytes} bytes");
            assert!(found.bytes == value, "{bytes} bytes differ by {transfer:?}");
        }
        let figures = client.figures();
        assert!(figures.uploads > 10, "{figures:?}");
        assert_eq!(
            figures.landings > 0,
            transfer == Transfer::Landing,
            "{figures:?}"
        );
        assert!(figures.reads > 0, "{figures:?}");
    }
    drop(served);
}

#[test]
fn the_shorter_threshold_of_both_sides_decides() {
    let served = Served::with(1, |options| options.small_bytes = 48 << 10);
    let value = pattern(40_000, 1);
    for (small_bytes, uploads) in [(48 << 10, 0), (4096, 1), (512, 1)] {
        let client = served.client_with(|options| options.small_bytes = small_bytes);
        client.put(b"key", &value).wait().expect("stored");
        let found = client.get(b"key").wait().expect("read");
        assert!(found.is_some_and(|found| found.bytes == value));
        let figures = client.figures();
        let transfers = (figures.uploads, figures.reads);
        assert_eq!(transfers, (uploads, uploads), "{figures:?}");
    }
}

#[test]
fn conditions_and_versions_are_kept() {
    let served = Served::start(2);
    let client = served.client();
    assert_eq!(client.get(b"k").wait(), Ok(None));
    let put = |condition| {
        let options = PutOptions {
            condition,
            ..PutOptions::default()
        };
        client
            .put_with(b"k", b"value", options)
            .wait()
            .expect("an outcome")
    };
    assert_eq!(put(Condition::Present), PutOutcome::Unmet(0));
    let PutOutcome::Stored(first) = put(Condition::Absent) else {
        panic!("it was absent");
    };
    assert_eq!(put(Condition::Absent), PutOutcome::Unmet(first));
    assert_eq!(put(Condition::Version(first + 1)), PutOutcome::Unmet(first));
    let PutOutcome::Stored(second) = put(Condition::Version(first)) else {
        panic!("it has that version");
    };
    let swapped = client.compare_and_swap(b"k", b"other", first).wait();
    assert_eq!(swapped, Ok(CasOutcome::Mismatch(second)));
    let swapped = client.compare_and_swap(b"k", b"other", second).wait();
    let Ok(CasOutcome::Stored(third)) = swapped else {
        panic!("{swapped:?}");
    };
    assert_eq!(
        client.delete_if(b"k", second).wait(),
        Ok(PutOutcome::Unmet(third))
    );
    assert_eq!(
        client.delete_if(b"k", third).wait(),
        Ok(PutOutcome::Stored(0))
    );
    assert_eq!(client.delete(b"k").wait(), Ok(false));
    // Longer values travel in upload slots, and are swapped and deleted as well.
    let long = pattern(10_000, 1);
    let Ok(CasOutcome::Stored(version)) = client.compare_and_swap(b"l", &long, 0).wait() else {
        panic!("it was absent");
    };
    let swapped = client.compare_and_swap(b"l", &long, 0).wait();
    assert_eq!(swapped, Ok(CasOutcome::Mismatch(version)));
    assert_eq!(client.delete(b"l").wait(), Ok(true));
}

#[test]
fn counters_and_expiry_work() {
    let served = Served::start(2);
    let client = served.client();
    assert_eq!(client.increment(b"n", 5).wait(), Ok(5));
    assert_eq!(client.increment(b"n", -7).wait(), Ok(-2));
    client.put(b"text", b"abc").wait().expect("stored");
    let error = client.increment(b"text", 1).wait().expect_err("no number");
    assert!(
        matches!(&error, Error::Server { status: Status::WrongKind, reason, .. } if reason.contains("decimal")),
        "{error}"
    );
    assert_eq!(client.time_to_live(b"n").wait(), Ok(Some(None)));
    assert_eq!(client.time_to_live(b"absent").wait(), Ok(None));
    let at = 4_000_000_000_000;
    assert_eq!(client.expire(b"n", Expiry::At(at)).wait(), Ok(true));
    assert_eq!(client.time_to_live(b"n").wait(), Ok(Some(Some(at))));
    let earlier = client
        .expire_if(b"n", Expiry::At(at + 1), ExpiryCondition::Earlier)
        .wait();
    assert_eq!(earlier, Ok(false));
    assert_eq!(client.expire(b"n", Expiry::Never).wait(), Ok(true));
    assert_eq!(client.time_to_live(b"n").wait(), Ok(Some(None)));
    let options = PutOptions {
        expiry: Expiry::In(0),
        ..PutOptions::default()
    };
    assert_eq!(
        client.put_with(b"n", b"gone", options).wait(),
        Ok(PutOutcome::Stored(0))
    );
    assert_eq!(client.exists(b"n").wait(), Ok(false));
    assert_eq!(client.expire(b"n", Expiry::Never).wait(), Ok(false));
    let found = client
        .inspect(b"text")
        .wait()
        .expect("an answer")
        .expect("it is there");
    assert_eq!(
        (found.length, found.expiry_ms, found.collection),
        (3, None, false)
    );
}

#[test]
fn many_keys_travel_together() {
    let served = Served::start(2);
    let client = served.client();
    let keys: Vec<Vec<u8>> = (0..500)
        .map(|place| format!("key-{place}").into_bytes())
        .collect();
    let values: Vec<Vec<u8>> = (0..500)
        .map(|place| {
            pattern(
                if place % 50 == 0 { 6000 } else { place % 300 },
                place as u64,
            )
        })
        .collect();
    let pairs: Vec<(&[u8], &[u8])> = keys
        .iter()
        .map(Vec::as_slice)
        .zip(values.iter().map(Vec::as_slice))
        .collect();
    let stored = client.put_many(&pairs).wait().expect("outcomes");
    assert!(
        stored
            .iter()
            .all(|one| matches!(one, Ok(version) if *version > 0))
    );
    let mut wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    wanted.push(b"absent");
    wanted.push(b"");
    let found = client.get_many(&wanted).wait().expect("outcomes");
    for (place, value) in values.iter().enumerate() {
        let found = found[place]
            .as_ref()
            .expect("read")
            .as_ref()
            .expect("it is there");
        assert!(
            found.bytes == *value && Ok(found.version) == stored[place],
            "key {place}"
        );
    }
    assert_eq!(found[500], Ok(None));
    assert!(matches!(found[501], Err(Error::KeyLength { bytes: 0, .. })));
    assert!(client.figures().messages < 200, "{:?}", client.figures());
    assert_eq!(client.get_many(&[]).wait(), Ok(Vec::new()));
    let messages = client.figures().messages;
    let deleted = client.delete_many(&wanted).wait().expect("outcomes");
    assert_eq!(deleted.len(), 502);
    assert!(deleted[..500].iter().all(|one| *one == Ok(true)));
    assert_eq!(deleted[500], Ok(false));
    assert!(matches!(
        deleted[501],
        Err(Error::KeyLength { bytes: 0, .. })
    ));
    assert!(client.figures().messages - messages < 30);
    let found = client.get_many(&wanted[..500]).wait().expect("outcomes");
    assert!(found.iter().all(|one| *one == Ok(None)));
}

#[test]
fn a_scan_lists_every_key_once() {
    let served = Served::start(2);
    let client = served.client();
    for place in 0..700usize {
        let key = format!("key-{place}");
        let value = pattern(place * 7 % 9000, place as u64);
        client.put(key.as_bytes(), &value).wait().expect("stored");
    }
    for values in [false, true] {
        let options = ScanOptions {
            values,
            entries: 100,
        };
        let (mut cursor, mut seen) = (None, Vec::new());
        loop {
            let page = client.scan(cursor, options).wait().expect("a page");
            assert_eq!(page.unreadable, 0);
            for entry in page.entries {
                let place: usize = String::from_utf8_lossy(&entry.key)[4..]
                    .parse()
                    .expect("a number");
                assert_eq!(entry.metadata.length, (place * 7 % 9000) as u64);
                if let Some(value) = entry.value {
                    assert!(values && value == pattern(place * 7 % 9000, place as u64));
                }
                seen.push(place);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..700).collect::<Vec<_>>());
    }
}

#[test]
fn figures_and_round_trips_are_answered() {
    let served = Served::start(1);
    let client = served.client();
    client.ping().wait().expect("an answer");
    let figures = client.statistics().wait().expect("figures");
    let of = |name: &str| figures.iter().find(|one| one.0 == name).map(|one| one.1);
    assert_eq!(of("native_connections"), Some(1));
    assert!(of("native_requests") >= Some(2));
    let figures = served.figures();
    assert_eq!(
        (figures.connections, figures.violations, figures.failed),
        (1, 0, 0)
    );
}

#[test]
fn mistakes_are_named_with_their_limits() {
    let served = Served::start(1);
    let client = served.client();
    let error = client.get(&[7; 1025]).wait().expect_err("too long");
    assert_eq!(
        error.to_string(),
        "the key has 1025 bytes: a key has 1 to 1024 bytes"
    );
    let error = client
        .put(b"k", &vec![0; (64 << 20) + 1])
        .wait()
        .expect_err("too long");
    assert!(error.to_string().contains("67108865"), "{error}");
    let mut wrong = options(Transfer::Read);
    wrong.credits = 1;
    let error = farcore_client::Client::connect(&served.address, wrong).expect_err("too few");
    assert_eq!(error.to_string(), "credits is 1: must be 4 to 1024");
    let nowhere = "tcp://127.0.0.1:1".parse().expect("an address");
    let error = farcore_client::Client::connect(&nowhere, options(Transfer::Read));
    assert!(matches!(error, Err(Error::Unreachable { .. })), "{error:?}");
}
