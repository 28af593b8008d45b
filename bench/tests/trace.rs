//! Replays of traces on the engines, and traces of the engine's recorder read back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use farcore::{
    CasOutcome, Config, Engine, Expiry, ExpiryCondition, Operation, PutOptions, Recorder, Recording,
};
use farcore_bench::plan::{EngineName, Plan, Scenario};
use farcore_bench::run::run;
use farcore_bench::trace::entry::Verb;
use farcore_bench::trace::source::Source;
use farcore_bench::trace::{Format, TraceOptions, choose, keys_per_core};
use farcore_command::machine::Machine;

const SEED: u64 = 4;
const LONG_SPACE: &str = "a:namespace:of:several:parts";

/// A file that is removed with the test.
struct Scrap(PathBuf);

impl Scrap {
    fn new(name: &str, contents: &[u8]) -> Self {
        let name = format!("farcore-trace-{}-{name}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, contents).unwrap();
        Self(file)
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn plan(engine: EngineName, file: &Path, threads: usize) -> Plan {
    plan_with(engine, file, threads, None)
}

/// A plan that applies this many thousandths of each time to live, or no times to live.
fn plan_with(
    engine: EngineName,
    file: &Path,
    threads: usize,
    lifetimes_per_mille: Option<u64>,
) -> Plan {
    let options = TraceOptions {
        value_bytes_max: 30_000,
        lifetimes_per_mille,
        ..TraceOptions::new(file, 64 << 20)
    };
    let choice = choose(options, threads as u64, SEED).unwrap();
    Plan {
        engine,
        keys_per_core: keys_per_core(&choice.summary, threads as u64),
        cores: Machine::here().cores.into_iter().take(threads).collect(),
        local_bytes: (threads as u64) << 22,
        window: 16,
        seed: SEED,
        ..Plan::new(Scenario::Trace(Box::new(choice)))
    }
}

fn draws() -> impl FnMut(u64) -> u64 {
    let mut state = 88_172_645_463_325_252_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

/// A trace of all operations with more data than local memory and some bad lines.
fn lines() -> Vec<u8> {
    let operations = [
        "get", "get", "get", "get", "gets", "set", "add", "replace", "cas", "append", "prepend",
        "delete", "incr", "decr",
    ];
    let mut draw = draws();
    let mut text = b"timestamp,key,key size,value size,client id,operation,TTL\r\n".to_vec();
    for second in 0..12_000 {
        let near = draw(1_500);
        let number = draw(near + 1);
        let key = format!(
            "ns:{}:{}",
            if draw(2) == 0 { "" } else { LONG_SPACE },
            number
        );
        // A few long values, so that pages are evicted.
        let bytes = if draw(8) == 0 {
            6_000 + draw(9_000)
        } else {
            draw(700)
        };
        let operation = operations[usize::try_from(draw(14)).unwrap()];
        writeln!(text, "{second},{key},{},{bytes},7,{operation},0", key.len()).unwrap();
        if second % 1000 == 0 {
            text.extend(b"what,is,this\n");
        }
    }
    text
}

fn records() -> Vec<u8> {
    let mut draw = draws();
    let mut bytes = Vec::new();
    for time in 0..8_000_u32 {
        let near = draw(2_000);
        let object = draw(near + 1);
        bytes.extend(time.to_le_bytes());
        bytes.extend(object.to_le_bytes());
        bytes.extend(u32::try_from(100 + object * 3).unwrap().to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
    }
    bytes
}

#[test]
fn all_engines_give_the_same_answers_to_a_trace() {
    let forms = [
        ("lines.csv", lines(), Format::Csv),
        (
            "lines.zst",
            zstd::encode_all(&lines()[..], 3).unwrap(),
            Format::Csv,
        ),
        ("records.bin", records(), Format::OracleGeneral),
    ];
    let mut digests = Vec::new();
    for (name, contents, format) in forms {
        let file = Scrap::new(name, &contents);
        let engines = [
            (EngineName::Farcore, 2),
            (EngineName::Farcore, 1),
            (EngineName::LockedLru, 2),
            (EngineName::Dashmap, 2),
            (EngineName::Sharded, 1),
        ];
        let mut own = Vec::new();
        for (engine, threads) in engines {
            let threads = threads.min(Machine::here().cores.len());
            let outcome = run(plan(engine, &file.0, threads)).unwrap();
            let report = &outcome.report;
            assert_eq!((report.wrong_values, &outcome.complaint), (0, &None));
            let trace = report.trace.as_ref().unwrap();
            assert_eq!(trace.format, format);
            assert_eq!(report.phases[0].ops, trace.requests());
            assert!(trace.hits > 1000 && trace.misses > 100, "{trace:?}");
            if engine == EngineName::Farcore && format == Format::Csv {
                assert!(report.far_reads > 0, "all of it was local");
                assert_eq!(
                    trace.notes(false)[..2],
                    [
                        "skipped 1 line: a header (first: line 1)",
                        "skipped 12 lines: fewer than 7 fields (first: line 3)"
                    ]
                );
            }
            own.push(outcome.digest);
        }
        assert!(
            own.windows(2).all(|pair| pair[0] == pair[1]),
            "{name}: {own:x?}"
        );
        digests.push(own[0]);
    }
    assert_eq!(digests[0], digests[1], "compression changes nothing");
    assert_ne!(digests[0], digests[2]);
}

#[test]
fn a_file_that_changes_between_plan_and_run_is_an_error() {
    let file = Scrap::new("changing", b"0,a,1,5,1,get,0\n");
    let plan = plan(EngineName::Dashmap, &file.0, 1);
    fs::write(&file.0, b"0,a,1,6,1,get,0\n").unwrap();
    let error = run(plan).unwrap_err().to_string();
    assert!(
        error.contains("changed while it was being replayed"),
        "{error}"
    );
}

#[test]
fn a_trace_without_requests_is_an_error() {
    for (contents, said) in [
        (&b""[..], "holds nothing that can be replayed, read as csv"),
        (
            b"a,b\nc,d\n",
            "it is a table of 2 columns with commas between that begins with `a,b`",
        ),
        (&[0; 10], "it is of no kind known here"),
        (
            b"\n\n",
            "skipped 2 lines: fewer than 7 fields (first: line 1)",
        ),
    ] {
        let file = Scrap::new("nothing", contents);
        let error = choose(TraceOptions::new(&file.0, 1 << 20), 2, SEED).unwrap_err();
        assert!(format!("{error:#}").contains(said), "{error:#}");
    }
}

/// A request: key, verb, bytes of the value.
type Request = (Vec<u8>, Verb, u64);

/// A workload with keys of all lengths and any bytes.
fn workload(client: u8) -> Vec<Request> {
    let mut draw = draws();
    let mut requests = Vec::new();
    for turn in 0..3_000_u64 {
        let length = 1 + if draw(4) == 0 { draw(1024) } else { draw(40) };
        let mut key: Vec<u8> = (0..length).map(|_| draw(256).to_le_bytes()[0]).collect();
        if turn.is_multiple_of(3) {
            key = format!("plain%{turn},").into_bytes();
        }
        key[0] = client;
        let verb = [Verb::Get, Verb::Set, Verb::Delete][usize::try_from(draw(3)).unwrap()];
        let bytes = if verb == Verb::Set { draw(2_000) } else { 0 };
        requests.push((key, verb, bytes));
    }
    requests
}

fn operation<'a>((key, verb, bytes): &'a Request, value: &'a [u8]) -> Operation<'a> {
    match verb {
        Verb::Get => Operation::Get { key },
        Verb::Delete => Operation::Delete { key },
        _ => Operation::Put {
            key,
            value: &value[..usize::try_from(*bytes).unwrap()],
        },
    }
}

/// Runs a workload as a job on the core, and ends the recording.
fn record_job(engine: &Engine, recorder: Recorder, value: Vec<u8>) -> Recording {
    let recorder = std::sync::Arc::new(recorder);
    let task = engine.run_on_core(0, {
        let recorder = recorder.clone();
        move |mut core| async move {
            core.record(&recorder);
            drop(recorder);
            for request in &workload(b'j') {
                while core.submit(operation(request, &value), 0).is_err() {
                    core.poll(|_, _| {});
                }
            }
            while core.in_flight() > 0 {
                core.poll(|_, _| {});
            }
            core.get(b"j, the last").await.unwrap();
        }
    });
    task.unwrap().join().unwrap();
    std::sync::Arc::into_inner(recorder)
        .unwrap()
        .finish()
        .unwrap()
}

#[test]
fn recorded_requests_are_read_back_exactly() {
    let file = Scrap::new("recorded.csv", b"");
    let engine = Engine::open(Config {
        cores: Machine::here().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        keys_expected: 10_000,
        ..Config::default()
    })
    .unwrap();
    let recorder = Recorder::start(fs::File::create(&file.0).unwrap()).unwrap();
    let value = vec![7; 2_000];

    let mut handle = engine.handle().unwrap();
    let (by_many, by_call) = (workload(b'm'), &workload(b'c')[..50]);
    handle.put(b"before", b"unrecorded").wait().unwrap();
    handle.record(&recorder);
    handle
        .many(
            by_many.iter().map(|request| operation(request, &value)),
            |_, _| {},
        )
        .unwrap();
    for (key, verb, bytes) in by_call {
        match verb {
            Verb::Get => drop(handle.get(key).wait().unwrap()),
            Verb::Delete => drop(handle.delete(key).wait().unwrap()),
            _ => drop(
                handle
                    .put(key, &value[..usize::try_from(*bytes).unwrap()])
                    .wait()
                    .unwrap(),
            ),
        }
    }
    let swap = handle.compare_and_swap(b"c,as", 0, b"four").wait();
    assert!(matches!(swap, Ok(CasOutcome::Stored(_))), "{swap:?}");

    let recording = record_job(&engine, recorder, value);
    assert_eq!((recording.recorded, recording.dropped), (6_052, 0));

    let mut expected = by_many;
    expected.extend_from_slice(by_call);
    expected.push((b"c,as".to_vec(), Verb::Set, 4));
    expected.extend(workload(b'j'));
    expected.push((b"j, the last".to_vec(), Verb::Get, 0));
    let mut source = Source::open(&file.0, None).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = source.read().unwrap() {
        let entry = entry.unwrap();
        found.push((entry.key.to_vec(), entry.verb, entry.value_bytes));
    }
    assert_eq!(source.format(), Format::Csv);
    assert!(found == expected, "the file differs from the requests");
    // It can be replayed.
    let outcome = run(plan(EngineName::Sharded, &file.0, 1)).unwrap();
    assert_eq!(outcome.report.wrong_values, 0);
}

#[test]
fn a_recorded_replay_has_the_same_result_again() {
    let file = Scrap::new("first.csv", &lines());
    let again = Scrap::new("again.csv", b"");
    let first = Plan {
        record: Some(again.0.clone()),
        ..plan(EngineName::Farcore, &file.0, 1)
    };
    let requests = first.trace().unwrap().requests();
    let outcome = run(first).unwrap();
    let second = plan(EngineName::Dashmap, &again.0, 1);
    let trace = second.trace().unwrap();
    assert_eq!((trace.entries, trace.requests()), (requests, requests));
    assert_eq!(trace.skipped.len(), 0);
    assert_eq!(run(second).unwrap().digest, outcome.digest);
}

/// Sessions that are written, used and read again after many other requests, as the recorder writes
/// them.
fn sessions() -> Vec<u8> {
    let file = Scrap::new("sessions.csv", b"");
    let engine = Engine::open(Config {
        cores: Machine::here().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        keys_expected: 10_000,
        ..Config::default()
    })
    .unwrap();
    let recorder = Recorder::start(fs::File::create(&file.0).unwrap()).unwrap();
    let mut handle = engine.handle().unwrap();
    handle.record(&recorder);
    let in_an_hour = PutOptions {
        expiry: Expiry::In(3_600_000),
        ..PutOptions::default()
    };
    let keys: Vec<String> = (0..100).map(|number| format!("session:{number}")).collect();
    for (number, key) in keys.iter().enumerate() {
        let key = key.as_bytes();
        let _ = handle.put_with(key, b"user", in_an_hour).wait().unwrap();
        match number % 4 {
            0 => drop(handle.get_and_expire(key, in_an_hour.expiry).wait()),
            1 => drop(
                handle
                    .expire(key, in_an_hour.expiry, ExpiryCondition::Always)
                    .wait(),
            ),
            2 => drop(handle.append(key, b" 7").wait()),
            _ => assert!(handle.persist(key).wait().unwrap()),
        }
    }
    for _ in 0..20_000 {
        handle.get(b"another").wait().unwrap();
    }
    for key in &keys {
        assert!(handle.get(key.as_bytes()).wait().unwrap().is_some());
    }
    assert_eq!(recorder.finish().unwrap().dropped, 0);
    fs::read(&file.0).unwrap()
}

#[test]
fn recorded_times_to_live_are_replayed_and_expired_gets_counted() {
    let file = Scrap::new("expiring.csv", &sessions());
    let replay = |per_mille| {
        let plan = plan_with(EngineName::Farcore, &file.0, 1, per_mille);
        let outcome = run(plan).unwrap();
        let report = outcome.report;
        assert_eq!((report.wrong_values, outcome.complaint), (0, None));
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        assert_eq!(report.trace.unwrap().expiring, 150);
        (report.phases[0].expired_hits, report.keys_expired)
    };
    assert_eq!(replay(None), (0, 0));
    assert_eq!(replay(Some(1_000)), (0, 0));
    // An hour becomes a millisecond at least, and 20 000 requests take longer.
    let mut text = String::from_utf8(sessions()).unwrap();
    text = text.replace(",3600\n", ",0.001\n");
    fs::write(&file.0, text).unwrap();
    let (hits, removed) = replay(Some(1_000));
    assert!(hits >= 50, "{hits}");
    assert!(removed > 0);
}
