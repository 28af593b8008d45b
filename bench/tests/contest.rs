//! The contest and YCSB at test size on every engine, and planted faults that must be caught.
//!
//! Runs take turns, because all of them pin threads to the same cores. The engine with faults is a
//! map behind a lock.

#![expect(
    clippy::unwrap_used,
    clippy::semicolon_if_nothing_returned,
    reason = "a test fails by panicking"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcore::{Answer, Change, Error, Operation};
use farcore_bench::engines::start_pinned;
use farcore_bench::plan::{Encryption, EngineName, Plan, Scenario, Workload};
use farcore_bench::run::{Outcome, run, run_store};
use farcore_bench::skew::Skew;
use farcore_bench::store::{Running, Session, Store, Usage};
use farcore_bench::trace::{TraceOptions, choose};
use farcore_bench::worker::Worker;
use farcore_command::machine::Machine;

const KEYS: u64 = 2_000;

fn plan(engine: EngineName, scenario: Scenario) -> Plan {
    let cores: Vec<usize> = Machine::here().cores.into_iter().take(2).collect();
    Plan {
        engine,
        keys_per_core: KEYS / cores.len() as u64,
        cores,
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        far_nodes: 2,
        window: 16,
        seed: 11,
        ..Plan::new(scenario)
    }
}

fn contest(engine: EngineName) -> Plan {
    plan(
        engine,
        Scenario::Contest {
            hot_ops: 3_001,
            skew: Skew::default(),
        },
    )
}

fn check(outcome: &Outcome) {
    assert_eq!(
        (outcome.report.wrong_values, &outcome.complaint),
        (0, &None)
    );
}

const PHASES: [&str; 11] = [
    "write", "verify", "rewrite", "verify2", "update", "verify3", "delete", "absent", "reinsert",
    "verify4", "hot",
];

/// The faults of a store.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    FlippedBit,
    LostKey,
    StaleValue,
    ForgottenDelete,
    /// A put fails and changes nothing.
    FailedPut,
    /// A put fails and leaves half of its value.
    TornPut,
    Mute,
    /// A flipped bit, and a panic in a later phase.
    FlippedBitThenPanic,
    /// In the first phase one worker has a wrong answer, and the other one panics once the first
    /// has sent all its requests.
    WrongThenPanic,
}

static FAULT: Mutex<Fault> = Mutex::new(Fault::None);
/// One run at a time, because all of them pin their threads to the same cores.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Inner {
    map: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    puts: AtomicU64,
    gets: AtomicU64,
}

/// A map behind a lock, with one planted fault.
struct Oracle(Arc<Inner>, Fault);

struct OracleSession(Arc<Inner>, Fault, usize);

impl Store for Oracle {
    fn open(_plan: &Plan) -> anyhow::Result<Self> {
        Ok(Self(Arc::default(), *FAULT.lock().unwrap()))
    }

    fn start(&self, position: usize, core: usize, worker: Worker) -> anyhow::Result<Running> {
        start_pinned(
            core,
            worker,
            OracleSession(self.0.clone(), self.1, position),
        )
    }

    fn usage(&self) -> Usage {
        Usage {
            keys: self.0.map.lock().unwrap().len() as u64,
            ..Usage::default()
        }
    }

    fn far_resident_bytes(&self) -> u64 {
        0
    }
}

impl OracleSession {
    /// The first worker's first answer is wrong; the other one panics after the first one's last.
    fn answer_wrong_then_panic(&self, token: u64, sink: &mut impl FnMut(u64, Answer<'_>)) {
        if self.2 == 0 {
            let is_first = self.0.puts.fetch_add(1, Ordering::Relaxed) == 0;
            let stored = Answer::Stored { version: 0 };
            return sink(token, if is_first { Answer::Absent } else { stored });
        }
        while self.0.puts.load(Ordering::Relaxed) < KEYS / 2 {
            std::thread::yield_now();
        }
        panic!("a planted panic");
    }
}

impl Session for OracleSession {
    fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) {
        if self.1 == Fault::WrongThenPanic {
            return self.answer_wrong_then_panic(token, sink);
        }
        let mut map = self.0.map.lock().unwrap();
        // Far into the first verify, so that exactly one answer is affected.
        let now = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed) == KEYS * 3 / 4;
        let fault = self.1;
        let flips = matches!(fault, Fault::FlippedBit | Fault::FlippedBitThenPanic);
        match operation {
            Operation::Get { key } => match map.get(key) {
                Some(value) if flips && now(&self.0.gets) => {
                    let mut value = value.clone();
                    let last = value.len() - 1;
                    value[last] ^= 1;
                    sink(
                        token,
                        Answer::Value {
                            version: 0,
                            value: &value,
                        },
                    );
                }
                Some(_) if fault == Fault::LostKey && now(&self.0.gets) => {
                    sink(token, Answer::Absent)
                }
                Some(value) => sink(token, Answer::Value { version: 0, value }),
                None => sink(token, Answer::Absent),
            },
            Operation::Put { key, value }
            | Operation::Change {
                key,
                change: Change::Put { value, .. },
            } => {
                let fails = matches!(fault, Fault::FailedPut | Fault::TornPut);
                let now = (fails || fault == Fault::StaleValue)
                    && self.0.puts.fetch_add(1, Ordering::Relaxed) == KEYS * 3 / 2;
                if !now {
                    map.insert(key.to_vec(), value.to_vec());
                } else if fault == Fault::TornPut {
                    let held = map.get_mut(key).unwrap();
                    let half = value.len().min(held.len()) / 2;
                    held[..half].copy_from_slice(&value[..half]);
                }
                let stored = Answer::Stored { version: 0 };
                let error = Error::Closed;
                sink(
                    token,
                    if now && fails {
                        Answer::Failed(&error)
                    } else {
                        stored
                    },
                );
            }
            Operation::Delete { key } => {
                if fault == Fault::FlippedBitThenPanic {
                    // The map stays usable.
                    drop(map);
                    panic!("a planted panic");
                }
                if fault == Fault::ForgottenDelete && now(&self.0.puts) || map.remove(key).is_some()
                {
                    sink(token, Answer::Deleted);
                } else {
                    sink(token, Answer::Absent);
                }
            }
            _ => sink(token, Answer::Absent),
        }
    }

    fn poll(&mut self, _sink: &mut impl FnMut(u64, Answer<'_>)) {}

    fn in_flight(&self) -> usize {
        0
    }

    async fn rest(&mut self) {
        assert!(self.1 != Fault::Mute, "a planted panic");
        std::thread::yield_now();
    }
}

fn with_fault(fault: Fault) -> anyhow::Result<Outcome> {
    *FAULT.lock().unwrap() = fault;
    run_store::<Oracle>(contest(EngineName::Sharded))
}

#[test]
fn every_planted_fault_is_caught() {
    let _turn = turn();
    let sound = with_fault(Fault::None).unwrap();
    check(&sound);
    let faults = [
        (Fault::FlippedBit, "phase verify: "),
        (Fault::LostKey, "with Absent"),
        (Fault::StaleValue, "phase verify2: "),
        (Fault::ForgottenDelete, "phase absent: "),
    ];
    for (fault, complaint) in faults {
        let outcome = with_fault(fault).unwrap();
        assert!(outcome.report.wrong_values >= 1, "{complaint}");
        let said = outcome.complaint.unwrap();
        assert!(said.contains(complaint), "{said}");
        assert_ne!(outcome.digest, sound.digest, "{complaint}");
    }
}

#[test]
fn a_key_whose_write_failed_may_hold_an_old_value_but_no_torn_one() {
    let _turn = turn();
    let unknown = with_fault(Fault::FailedPut).unwrap().report;
    assert_eq!(unknown.errors["Closed"], 1);
    assert_eq!(unknown.wrong_values, 0);
    assert!(unknown.unverified_values > 0);
    let torn = with_fault(Fault::TornPut).unwrap();
    assert_eq!(torn.report.errors["Closed"], 1);
    assert!(torn.report.wrong_values > 0);
    let said = torn.complaint.unwrap();
    assert!(said.contains("phase verify2: "), "{said}");
}

#[test]
fn a_fault_in_a_replay_is_caught_and_named() {
    let _turn = turn();
    let file = std::env::temp_dir().join(format!("farcore-faulty-{}", std::process::id()));
    let lines: String = (0..KEYS * 4)
        .map(|turn| format!("0,key:{},1,{},1,get,0\n", turn % KEYS, 20 + turn % 50))
        .collect();
    std::fs::write(&file, lines).unwrap();
    let choice = choose(
        TraceOptions::new(&file, 64 << 20),
        contest(EngineName::Sharded).threads(),
        11,
    );
    let plan = plan(
        EngineName::Sharded,
        Scenario::Trace(Box::new(choice.unwrap())),
    );
    let mut digests = Vec::new();
    for (fault, wrong) in [
        (Fault::None, 0),
        (Fault::FlippedBit, 1),
        (Fault::LostKey, 1),
        (Fault::StaleValue, 0),
    ] {
        *FAULT.lock().unwrap() = fault;
        let outcome = run_store::<Oracle>(plan.clone()).unwrap();
        assert_eq!(outcome.report.wrong_values, wrong);
        let complaint = outcome.complaint.unwrap_or_default();
        assert_eq!(
            complaint.contains("of key \"key:"),
            wrong > 0,
            "{complaint}"
        );
        digests.push(outcome.digest);
    }
    assert_eq!(digests[0], digests[3]);
    assert!(digests[0] != digests[1] && digests[0] != digests[2]);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_worker_that_panics_ends_the_run_with_an_error() {
    let _turn = turn();
    let error = with_fault(Fault::Mute).unwrap_err().to_string();
    assert!(error.contains("panicked"), "{error}");
}

#[test]
fn a_worker_that_is_lost_hides_neither_figures_nor_wrong_values() {
    let _turn = turn();
    let outcome = with_fault(Fault::FlippedBitThenPanic).unwrap();
    let report = &outcome.report;
    assert!(report.partial && outcome.lost.unwrap().contains("panicked"));
    assert_eq!(report.wrong_values, 1);
    assert_eq!(report.phases.len(), 6);
}

#[test]
fn a_worker_that_is_lost_hides_no_wrong_values_of_another_one() {
    let _turn = turn();
    if Machine::here().cores.len() < 2 {
        return;
    }
    let outcome = with_fault(Fault::WrongThenPanic).unwrap();
    let report = &outcome.report;
    assert!(report.partial && report.phases.is_empty());
    assert!(outcome.lost.unwrap().contains("panicked"));
    assert_eq!(report.wrong_values, 1);
    let said = outcome.complaint.unwrap();
    assert!(said.starts_with("phase write: "), "{said}");
}

#[test]
fn every_engine_runs_every_phase_with_the_same_result() {
    let _turn = turn();
    let oracle = with_fault(Fault::None).unwrap();
    let engines = [
        EngineName::Farcore,
        EngineName::LockedLru,
        EngineName::Dashmap,
        EngineName::Sharded,
    ];
    for engine in engines {
        let outcome = run(contest(engine)).unwrap();
        check(&outcome);
        let report = &outcome.report;
        let names: Vec<&str> = report
            .phases
            .iter()
            .map(|phase| phase.name.as_str())
            .collect();
        assert_eq!(names, PHASES);
        assert_eq!(report.phases[0].ops, KEYS);
        assert_eq!(report.phases[10].ops, 3_001);
        for phase in &report.phases {
            assert!(phase.seconds > 0.0 && phase.mops > 0.0, "{phase:?}");
            assert!(
                phase.p50_ns <= phase.p99_ns && phase.p99_ns <= phase.p999_ns,
                "{phase:?}"
            );
            assert!(phase.cpu_seconds >= 0.0, "{phase:?}");
        }
        assert!(report.phases.iter().any(|phase| phase.cpu_seconds > 0.0));
        // Only farcore samples hot keys.
        assert_eq!(
            !report.hot_keys.is_empty(),
            engine == EngineName::Farcore,
            "{:?}",
            report.hot_keys
        );
        for hot in &report.hot_keys {
            assert!(hot.share > 0.0 && hot.share <= 1.0 && !hot.key.is_empty());
        }
        assert_eq!(outcome.digest, oracle.digest, "{}", engine.name());
        println!("{}: result hash {:016x}", engine.name(), outcome.digest);
    }
}

#[test]
fn keys_of_one_shard_are_served_by_that_shard_only() {
    let _turn = turn();
    for engine in [EngineName::Farcore, EngineName::Dashmap] {
        let outcome = run(plan(
            engine,
            Scenario::Contest {
                hot_ops: 4_000,
                skew: Skew {
                    zipf: 1.2,
                    one_shard: true,
                },
            },
        ))
        .unwrap();
        check(&outcome);
        if let Some(mixed) = outcome.mixed {
            let served = |core: usize| {
                let counters = &mixed.cores[core].counters;
                counters.requests_own + counters.requests_received
            };
            assert_eq!(served(0), 4_000);
            assert!((1..mixed.cores.len()).all(|core| served(core) == 0));
        }
    }
}

#[test]
fn evicted_and_fetched_pages_lose_nothing() {
    let _turn = turn();
    for (encrypt, far_latency_ns) in [(Encryption::Off, 0), (Encryption::SecrecyOnly, 500)] {
        let plan = Plan {
            local_bytes: 4 << 20,
            far_bytes: 64 << 20,
            keys_per_core: 10_000,
            encrypt,
            far_latency_ns,
            ..contest(EngineName::LockedLru)
        };
        let outcome = run(plan).unwrap();
        check(&outcome);
        let report = outcome.report;
        assert!(report.far_reads > 0 && report.far_writes > 0 && report.index_bytes_per_key > 0.0);
        assert!(
            report.compaction["rebuilds"].as_u64() >= Some(1),
            "{:?}",
            report.compaction
        );
    }
}

#[test]
fn full_far_memory_is_an_error_and_no_wrong_value() {
    let _turn = turn();
    let plan = Plan {
        local_bytes: 2 << 20,
        far_bytes: 1 << 20,
        keys_per_core: 20_000,
        ..contest(EngineName::LockedLru)
    };
    let outcome = run(plan).unwrap();
    let report = &outcome.report;
    // Later phases find keys absent that could not be written: that is no wrong value either.
    assert_eq!((report.wrong_values, &outcome.complaint), (0, &None));
    assert!(report.errors["FarFull"] > 0 && report.unverified_values > 0);
    let failure = outcome.failure.unwrap();
    assert!(failure.contains("far memory is full"), "{failure}");
    let write = &report.phases[0];
    assert!(write.errors["FarFull"] > 0);
    let answered = write.ops - write.errors["FarFull"];
    assert_eq!(write.mops, answered as f64 / write.seconds / 1e6);
}

#[test]
fn every_ycsb_workload_runs_on_every_kind_of_engine() {
    let _turn = turn();
    let workloads = [
        Workload::A,
        Workload::B,
        Workload::C,
        Workload::D,
        Workload::F,
    ];
    for workload in workloads {
        for engine in [
            EngineName::Farcore,
            EngineName::LockedLru,
            EngineName::Sharded,
        ] {
            let scenario = Scenario::Ycsb {
                workload,
                operations: 4_001,
                value_bytes: 512,
                skew: Skew::default(),
                ttl_ms: None,
            };
            let outcome = run(plan(engine, scenario)).unwrap();
            check(&outcome);
            let ops: Vec<(&str, u64)> = outcome
                .report
                .phases
                .iter()
                .map(|phase| (phase.name.as_str(), phase.ops))
                .collect();
            assert_eq!(ops, [("load", KEYS), ("transactions", 4_001)]);
        }
    }
}

fn ycsb(workload: Workload, ttl_ms: Option<u64>) -> Plan {
    let scenario = Scenario::Ycsb {
        workload,
        operations: 4_001,
        value_bytes: 512,
        skew: Skew::default(),
        ttl_ms,
    };
    plan(EngineName::Farcore, scenario)
}

#[test]
fn workload_e_scans_records_in_index_order_and_inserts_others() {
    let _turn = turn();
    let outcome = run(ycsb(Workload::E, None)).unwrap();
    check(&outcome);
    let report = outcome.report;
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let phase = &report.phases[1];
    assert_eq!(phase.ops, 4_001);
    // 50 records a scan on average; fewer at the end of the index.
    let scanned = phase.records_scanned;
    assert!((100_000..210_000).contains(&scanned), "{scanned}");
}

#[test]
fn gets_of_expired_keys_are_counted_and_are_not_wrong() {
    let _turn = turn();
    for workload in [Workload::A, Workload::C, Workload::D, Workload::F] {
        let hour = run(ycsb(workload, Some(3_600_000))).unwrap();
        check(&hour);
        assert_eq!(hour.report.phases[1].expired_hits, 0);
        let outcome = run(ycsb(workload, Some(1))).unwrap();
        check(&outcome);
        let report = outcome.report;
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        // Thousands of transactions take longer than a millisecond.
        assert!(report.phases[1].expired_hits > 0, "{workload:?}");
        assert!(report.keys_expired > 0, "{workload:?}");
    }
}

#[test]
fn a_key_that_is_lost_before_its_time_is_wrong() {
    let _turn = turn();
    *FAULT.lock().unwrap() = Fault::LostKey;
    let plan = Plan {
        engine: EngineName::Sharded,
        ..ycsb(Workload::C, Some(3_600_000))
    };
    let outcome = run_store::<Oracle>(plan).unwrap();
    assert_eq!(outcome.report.wrong_values, 1);
    assert_eq!(outcome.report.phases[1].expired_hits, 0);
}
