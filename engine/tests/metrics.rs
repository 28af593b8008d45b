//! The metrics agree exactly with the requests and answers of clients.

#![expect(clippy::cast_possible_truncation, reason = "test data wraps")]

use std::collections::HashMap;
use std::thread;

use farcore::{
    Answer, Config, Core, Engine, Error, FaultPlan, LinkModel, Operation, Refused, Report,
    Reporter, ShardSnapshot, Transaction, Version,
};

/// Keys of each client.
const KEYS: u64 = 20_000;
const STEPS: u64 = 60_000;
const WINDOW: usize = 32;
/// A key that every fourth get of a client requests.
const HOT: u64 = 7;

/// The outcomes of requests, as their client saw them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Counts {
    gets: u64,
    gets_absent: u64,
    puts: u64,
    deletes: u64,
    deletes_absent: u64,
    swaps: u64,
    swaps_mismatched: u64,
    transactions: u64,
    transactions_conflicted: u64,
    transactions_failed: u64,
    gets_failed: u64,
    puts_failed: u64,
    deletes_failed: u64,
    swaps_failed: u64,
}

impl Counts {
    fn of(seen: &ShardSnapshot) -> Self {
        Self {
            gets: seen.gets,
            gets_absent: seen.gets_absent,
            puts: seen.puts,
            deletes: seen.deletes,
            deletes_absent: seen.deletes_absent,
            swaps: seen.swaps,
            swaps_mismatched: seen.swaps_mismatched,
            transactions: seen.transactions,
            transactions_conflicted: seen.transactions_conflicted,
            transactions_failed: seen.transactions_failed,
            gets_failed: seen.gets_failed,
            puts_failed: seen.puts_failed,
            deletes_failed: seen.deletes_failed,
            swaps_failed: seen.swaps_failed,
        }
    }

    fn requests(&self) -> u64 {
        let failed = self.gets_failed + self.puts_failed + self.deletes_failed + self.swaps_failed;
        let failed = failed + self.transactions_failed;
        self.gets + self.puts + self.deletes + self.swaps + self.transactions + failed
    }

    fn merge(mut self, other: &Self) -> Self {
        for (mine, theirs) in [
            (&mut self.gets, other.gets),
            (&mut self.gets_absent, other.gets_absent),
            (&mut self.puts, other.puts),
            (&mut self.deletes, other.deletes),
            (&mut self.deletes_absent, other.deletes_absent),
            (&mut self.swaps, other.swaps),
            (&mut self.swaps_mismatched, other.swaps_mismatched),
            (&mut self.transactions, other.transactions),
            (
                &mut self.transactions_conflicted,
                other.transactions_conflicted,
            ),
            (&mut self.transactions_failed, other.transactions_failed),
            (&mut self.gets_failed, other.gets_failed),
            (&mut self.puts_failed, other.puts_failed),
            (&mut self.deletes_failed, other.deletes_failed),
            (&mut self.swaps_failed, other.swaps_failed),
        ] {
            *mine += theirs;
        }
        self
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Get,
    Put,
    Delete,
    CompareAndSwap,
    Transaction,
}

/// A client and the outcomes it has seen.
struct Client {
    number: u8,
    state: u64,
    sent: u64,
    kinds: HashMap<u64, (Kind, u64)>,
    /// Stored keys with their versions.
    stored: HashMap<u64, Version>,
    counts: Counts,
}

impl Client {
    fn new(number: u8) -> Self {
        Self {
            number,
            state: u64::from(number) + 1,
            sent: 0,
            kinds: HashMap::new(),
            stored: HashMap::new(),
            counts: Counts::default(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.state >> 33) % below
    }

    /// Makes the next request; `submit` sends it and polls if needed.
    fn step(&mut self, mut submit: impl FnMut(&mut Self, Operation<'_>, u64)) {
        let (dice, mut key) = (self.random(10), self.random(KEYS));
        let kind = match dice {
            0..4 => Kind::Get,
            4..8 => Kind::Put,
            8 => Kind::Delete,
            _ if self.random(2) == 0 => Kind::Transaction,
            _ => Kind::CompareAndSwap,
        };
        if matches!(kind, Kind::Get) && self.random(4) == 0 {
            key = HOT;
        }
        let name = [&[self.number], &key.to_be_bytes()[..]].concat();
        let value = vec![key as u8; 40 + self.random(1_000) as usize];
        let expected = match self.random(2) {
            0 => self.stored.get(&key).copied().unwrap_or(0),
            _ => 0,
        };
        let (key_bytes, value_bytes) = (&name[..], &value[..]);
        let transaction = Transaction::new();
        let transaction = transaction
            .expect(key_bytes, expected)
            .put(key_bytes, value_bytes);
        let transaction = &transaction;
        let operation = match kind {
            Kind::Get => Operation::Get { key: key_bytes },
            Kind::Put => Operation::Put {
                key: key_bytes,
                value: value_bytes,
            },
            Kind::Delete => Operation::Delete { key: key_bytes },
            Kind::CompareAndSwap => Operation::CompareAndSwap {
                key: key_bytes,
                expected,
                value: value_bytes,
            },
            Kind::Transaction => Operation::Transaction { transaction },
        };
        let token = self.sent;
        self.sent += 1;
        self.kinds.insert(token, (kind, key));
        submit(self, operation, token);
    }

    fn answered(&mut self, token: u64, answer: &Answer<'_>) {
        let (kind, key) = self.kinds.remove(&token).expect("it was sent once");
        let counts = &mut self.counts;
        match (kind, answer) {
            (Kind::Get, Answer::Failed(_)) => counts.gets_failed += 1,
            (Kind::Put, Answer::Failed(_)) => counts.puts_failed += 1,
            (Kind::Delete, Answer::Failed(_)) => counts.deletes_failed += 1,
            (Kind::CompareAndSwap, Answer::Failed(_)) => counts.swaps_failed += 1,
            (Kind::Transaction, Answer::Failed(_)) => counts.transactions_failed += 1,
            (Kind::Transaction, Answer::Stored { version }) => {
                counts.transactions += 1;
                self.stored.insert(key, *version);
            }
            (Kind::Transaction, Answer::Conflict(_)) => {
                counts.transactions += 1;
                counts.transactions_conflicted += 1;
            }
            (Kind::Get, answer) => {
                counts.gets += 1;
                counts.gets_absent += u64::from(*answer == Answer::Absent);
            }
            (Kind::Put, Answer::Stored { version }) => {
                counts.puts += 1;
                self.stored.insert(key, *version);
            }
            (Kind::Delete, answer) => {
                counts.deletes += 1;
                counts.deletes_absent += u64::from(*answer == Answer::Absent);
                self.stored.remove(&key);
            }
            (Kind::CompareAndSwap, Answer::Stored { version }) => {
                counts.swaps += 1;
                self.stored.insert(key, *version);
            }
            (Kind::CompareAndSwap, Answer::Mismatch { .. }) => {
                counts.swaps += 1;
                counts.swaps_mismatched += 1;
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

async fn on_core(mut core: Core) -> Client {
    fn poll(core: &mut Core, client: &mut Client) {
        core.poll(|token, answer| client.answered(token, &answer));
    }
    let mut client = Client::new(0);
    for _ in 0..STEPS {
        client.step(|client, operation, token| {
            while let Err(refused) = core.submit(operation, token) {
                assert_eq!(refused, Refused::Full);
                poll(&mut core, client);
            }
        });
        while core.in_flight() >= WINDOW {
            poll(&mut core, &mut client);
            core.yield_now().await;
        }
    }
    while core.in_flight() > 0 {
        poll(&mut core, &mut client);
        core.yield_now().await;
    }
    client
}

fn on_thread(engine: &Engine, number: u8) -> Client {
    let mut handle = engine.handle().expect("there are enough");
    let mut client = Client::new(number);
    for _ in 0..STEPS {
        client.step(|client, operation, token| {
            while let Err(refused) = handle.submit(operation, token) {
                assert_eq!(refused, Refused::Full);
                handle.poll(|token, answer| client.answered(token, &answer));
            }
        });
        while handle.in_flight() >= WINDOW {
            handle.poll(|token, answer| client.answered(token, &answer));
            thread::yield_now();
        }
    }
    while handle.in_flight() > 0 {
        handle.poll(|token, answer| client.answered(token, &answer));
        thread::yield_now();
    }
    client
}

/// Runs two threads and a job; returns what they saw and what the engine reports.
fn work(faults: FaultPlan) -> (Vec<Client>, Report) {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(2).collect(),
        local_bytes: 16 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 1_000,
        embedded_nodes: 2,
        prefault: false,
        huge_pages: false,
        handle_lane_bytes: 16 << 10,
        lane_bytes: Some(16 << 10),
        read_ahead_chunks: 0,
        link: LinkModel {
            faults,
            ..LinkModel::default()
        },
        ..Config::default()
    })
    .expect("an engine");
    let reporter = engine.reporter();
    let job = engine.run_on_core(0, on_core).expect("a core");
    let mut clients: Vec<Client> = thread::scope(|scope| {
        let threads: Vec<_> = (1..3)
            .map(|number| {
                let engine = &engine;
                scope.spawn(move || on_thread(engine, number))
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Client>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    });
    clients.push(job.join().expect("no panic"));
    match engine.flush() {
        Ok(()) | Err(Error::Unavailable { .. }) => {}
        Err(other) => panic!("{other}"),
    }
    engine.close();
    (clients, reporter.report())
}

fn agree(clients: &[Client], report: &Report) -> Counts {
    let total = report.total();
    let expected = clients
        .iter()
        .fold(Counts::default(), |sum, client| sum.merge(&client.counts));
    assert_eq!(Counts::of(&total), expected);
    assert_eq!(expected.requests(), STEPS * clients.len() as u64);

    // Each get that found its key found it in one place.
    let found = total.local_hits + total.cache_hits + total.far_hits;
    assert_eq!(found, total.gets - total.gets_absent);
    // Each request came one way, and requests between cores arrived.
    let on_core = STEPS;
    assert_eq!(total.requests_own + total.requests_sent, on_core);
    let requests = expected.requests();
    assert_eq!(total.requests_own + total.requests_received, requests);
    // All work requests have completed, and the nodes' counts add up.
    assert_eq!(total.completions, total.far_reads + total.far_writes);
    let nodes = report.nodes.iter().map(|node| node.counters);
    let nodes = nodes.fold((0, 0, 0, 0, 0), |sum, node| {
        (
            sum.0 + node.reads,
            sum.1 + node.read_bytes,
            sum.2 + node.writes,
            sum.3 + node.write_bytes,
            sum.4 + node.errors,
        )
    });
    let all = (
        total.far_reads,
        total.far_read_bytes,
        total.far_writes,
        total.far_write_bytes,
        total.fabric_errors,
    );
    assert_eq!(nodes, all);
    assert!(total.far_reads > 1_000 && report.nodes.len() == 2);
    expected
}

#[test]
fn metrics_are_what_clients_saw() {
    let (clients, report) = work(FaultPlan::default());
    let expected = agree(&clients, &report);
    let failed = expected.gets_failed
        + expected.puts_failed
        + expected.deletes_failed
        + expected.swaps_failed;
    assert_eq!(failed, 0);
    let stored: usize = clients.iter().map(|client| client.stored.len()).sum();
    assert_eq!(report.total().keys, stored as u64);

    // Each request is counted in one batch, even if it found no room at first.
    let core_batches = |core: &farcore::CoreReport| core.batches.sum();
    let batched: u64 = report.cores.iter().map(core_batches).sum();
    assert_eq!(batched, expected.requests());

    // One in 251 of each client's requests is timed; those that wait for far memory count
    // separately.
    let handles = report.handles.count();
    assert!((150..=2 * STEPS / 251 + 2).contains(&handles), "{handles}");
    let core = &report.cores[0];
    assert!(core.local.count() + core.cross.count() <= STEPS / 251 + 1);
    assert!(core.local.count() > 10 && core.cross.count() > 10 || report.cores.len() == 1);

    // The hot keys are the three that were requested all the time.
    let top: Vec<_> = report
        .cores
        .iter()
        .flat_map(|core| &core.hot_keys)
        .collect();
    for number in 0..3u8 {
        let name = format!("\\x{number:02x}{}\\x07", "\\x00".repeat(7));
        let hot = top.iter().find(|hot| hot.key == name && hot.error < 0.05);
        let hot = hot.unwrap_or_else(|| panic!("{name} is not in {top:?}"));
        assert!(hot.share > 0.01 && hot.key_bytes == 9, "{hot:?}");
    }
}

#[test]
fn failures_are_counted_by_what_failed() {
    let (clients, report) = work(FaultPlan {
        failed_completions_per_million: 20_000,
        ..FaultPlan::default()
    });
    let expected = agree(&clients, &report);
    assert!(
        expected.gets_failed > 0 && expected.puts_failed > 0,
        "{expected:?}"
    );
    assert!(report.total().fabric_errors > 0);
}

#[test]
fn the_times_of_a_core_add_up() {
    let (_, report) = work(FaultPlan::default());
    for core in &report.cores {
        let seen = core.counters;
        let all_ns = seen.busy_ns + seen.spinning_ns + seen.parked_ns;
        assert!(seen.busy_ns > 0 && seen.spinning_ns > 0 && seen.turns > 0);
        assert!(
            all_ns <= report.uptime_ns,
            "{all_ns} of {}",
            report.uptime_ns
        );
    }
}

#[test]
fn events_are_counted_on_every_core_or_have_a_reason() {
    let (_, report) = work(FaultPlan::default());
    for core in &report.cores {
        let named = report.hardware_missing.contains("page faults");
        // Only the core's thread mapped its shard's memory.
        assert_eq!(core.hardware.page_faults.is_none(), named, "{report:?}");
        assert!(named || core.hardware.page_faults > Some(0), "{core:?}");
        let named = report.hardware_missing.contains("cycles");
        assert_eq!(core.hardware.cycles.is_none(), named, "{report:?}");
    }
}

/// A value so long that ten thousand of them do not fit local memory.
const LONG: [u8; 2_000] = [7; 2_000];

/// An engine of one core, in which records are read twice.
fn alone() -> Engine {
    Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 8 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 1_000,
        prefault: false,
        huge_pages: false,
        cache_percent: 0,
        read_ahead_chunks: 0,
        ..Config::default()
    })
    .expect("an engine")
}

async fn get(core: &mut Core, keys: std::ops::Range<u32>) {
    for key in keys {
        let found = core.get(&key.to_be_bytes()).await.expect("answered");
        assert_eq!(*found.expect("stored"), LONG);
    }
}

#[test]
fn requests_that_waited_for_far_memory_count_in_no_local_latency() {
    let engine = alone();
    let job = engine.run_on_core(0, |mut core: Core| async move {
        for key in 0..10_000u32 {
            core.put(&key.to_be_bytes(), &LONG).await.expect("room");
        }
    });
    job.expect("a core").join().expect("no panic");
    let reporter = engine.reporter();
    let seen = |report: &Report| {
        let core = &report.cores[0];
        (core.local.count(), core.far.count(), core.counters.far_hits)
    };
    let wrote = seen(&reporter.report());
    // A single core sends no crossings, and timed its own requests.
    assert!(wrote.0 >= 10_000 / 251 && reporter.report().cores[0].cross.count() == 0);

    let job = engine.run_on_core(
        0,
        |mut core: Core| async move { get(&mut core, 0..1_000).await },
    );
    job.expect("a core").join().expect("no panic");
    let read = seen(&reporter.report());
    assert_eq!((read.1 - wrote.1, read.2 - wrote.2), (1_000, 1_000));
    assert_eq!(read.0, wrote.0);

    let job = engine.run_on_core(0, |mut core: Core| async move {
        get(&mut core, 9_900..10_000).await;
        get(&mut core, 9_900..10_000).await;
        get(&mut core, 9_900..10_000).await;
    });
    job.expect("a core").join().expect("no panic");
    let last = seen(&reporter.report());
    assert!(last.0 > read.0 && last.1 == read.1);
}

#[test]
fn a_reader_of_metrics_keeps_no_far_memory_and_sees_the_end() {
    let engine = alone();
    let reporter = engine.reporter();
    let far = std::sync::Arc::downgrade(&engine.embedded_nodes()[0]);
    assert!(reporter.is_serving() && far.strong_count() > 0);
    engine.close();
    assert!(!reporter.is_serving());
    drop(engine);
    assert_eq!(far.strong_count(), 0);
    assert_eq!(reporter.report().cores.len(), 1);
}
