//! Many clients at once: histories of their operations are linearizable, and no increment is lost.
//!
//! The tests are small. For long runs: `FARCORE_HISTORIES=1000` says how many seeds are tried, and
//! `FARCORE_SECONDS=10` how long clients count, e.g.
//! `FARCORE_HISTORIES=1000 FARCORE_SECONDS=10 cargo test -p farcore-server --test histories`.
//! `FARCORE_SEED` repeats one history's choices; how threads meet is the system's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::support::history::{Event, Operation, is_linearizable};
use self::support::{Client, Random, Reply, Served};

/// Clients of a history.
const CLIENTS: usize = 4;
/// Keys of a history; with two cores they lie in different shards.
const KEYS: usize = 3;
/// Operations of each client.
const OPERATIONS: usize = 60;
/// Requests that a client sends at once, at most.
const BATCH_MAX: usize = 5;
/// Histories that the test tries.
const HISTORIES: u64 = 30;
/// Clients that count.
const COUNTERS: usize = 16;
/// Operations of each of them in the test.
const COUNTS: u64 = 100;

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is not a number")),
    )
}

/// What a client is about to do: the operation as if it succeeds.
fn draw(random: &mut Random, known: Option<u64>, new: u64) -> Operation {
    match (random.below(10), known) {
        (0..4, _) => Operation::Get(None),
        (4..6, Some(_)) => Operation::Swap {
            expected: known,
            new,
            done: true,
        },
        (9, _) => Operation::Delete(true),
        _ => Operation::Set(new),
    }
}

fn send(client: &mut Client, key: &str, operation: Operation) {
    match operation {
        Operation::Get(_) => client.send(&["GET", key]),
        Operation::Set(new) => client.send(&["SET", key, &new.to_string()]),
        Operation::Delete(_) => client.send(&["DEL", key]),
        Operation::Swap { expected, new, .. } => {
            let expected = expected.expect("a value").to_string();
            let new = new.to_string();
            client.send(&["SET", key, &new, "IFEQ", &expected]);
        }
    }
}

/// The operation with what its reply says.
fn replied(operation: Operation, reply: &Reply) -> Operation {
    match (operation, reply) {
        (Operation::Get(_), Reply::Null) => Operation::Get(None),
        (Operation::Get(_), Reply::Bulk(_)) => Operation::Get(Some(reply.text().parse().unwrap())),
        (Operation::Set(_), Reply::Simple(_)) => operation,
        (Operation::Delete(_), Reply::Integer(count)) => Operation::Delete(*count == 1),
        (Operation::Swap { expected, new, .. }, Reply::Simple(_) | Reply::Null) => {
            Operation::Swap {
                expected,
                new,
                done: *reply != Reply::Null,
            }
        }
        _ => panic!("{operation:?} is answered by {reply}"),
    }
}

/// The value that a client knows of after an operation.
fn known_after(operation: Operation, before: Option<u64>) -> Option<u64> {
    match operation {
        Operation::Get(read) => read.or(before),
        Operation::Set(new)
        | Operation::Swap {
            new, done: true, ..
        } => Some(new),
        Operation::Delete(_) | Operation::Swap { .. } => before,
    }
}

/// What one client does and sees, by key.
fn act(served: &Served, seed: u64, number: usize, clock: &AtomicU64) -> Vec<(usize, Event)> {
    let mut random = Random::of(seed.wrapping_mul(1 << 8).wrapping_add(number as u64));
    let mut client = served.client();
    let mut known = [None; KEYS];
    let mut events = Vec::new();
    // No value is written twice.
    let mut next = (number as u64 + 1) << 32;
    while events.len() < OPERATIONS {
        let batch: Vec<_> = (0..=random.below(BATCH_MAX))
            .map(|_| {
                let key = random.below(KEYS);
                next += 1;
                (key, draw(&mut random, known[key], next))
            })
            .collect();
        let mut called = Vec::new();
        for &(key, operation) in &batch {
            called.push(clock.fetch_add(1, Ordering::SeqCst));
            send(&mut client, &format!("history:{seed}:{key}"), operation);
        }
        for ((key, operation), called) in batch.into_iter().zip(called) {
            let reply = client.read().unwrap();
            let ended = clock.fetch_add(1, Ordering::SeqCst);
            let operation = replied(operation, &reply);
            known[key] = known_after(operation, known[key]);
            let event = Event {
                client: number,
                called,
                ended,
                operation,
            };
            events.push((key, event));
        }
    }
    events
}

/// The histories of all keys of a seed.
fn histories(served: &Served, seed: u64) -> Vec<Vec<Event>> {
    let clock = AtomicU64::new(0);
    let start = Barrier::new(CLIENTS);
    let all: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (clock, start) = (&clock, &start);
                scope.spawn(move || {
                    start.wait();
                    act(served, seed, number, clock)
                })
            })
            .collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect()
    });
    (0..KEYS)
        .map(|key| {
            let own = all.iter().filter(|(place, _)| *place == key);
            own.map(|&(_, event)| event).collect()
        })
        .collect()
}

#[test]
fn histories_are_linearizable() {
    let served = Served::start(2);
    let seeds = setting("FARCORE_HISTORIES").unwrap_or(HISTORIES);
    let first = setting("FARCORE_SEED").unwrap_or(0);
    let (mut operations, mut swaps) = (0, 0);
    for seed in first..first + seeds {
        for history in histories(&served, seed) {
            operations += history.len();
            swaps += history
                .iter()
                .filter(|event| matches!(event.operation, Operation::Swap { done: true, .. }))
                .count();
            assert!(
                is_linearizable(&history),
                "FARCORE_SEED={seed} FARCORE_HISTORIES=1: no order explains {history:#?}"
            );
        }
    }
    println!("{seeds} seeds, {operations} operations, {swaps} of them successful IFEQ");
    assert!(swaps > 0, "no comparison succeeded, so none was proved");
}

fn event(client: usize, (called, ended): (u64, u64), operation: Operation) -> Event {
    Event {
        client,
        called,
        ended,
        operation,
    }
}

#[test]
fn the_checker_accepts_what_has_an_order() {
    let overlapping = [
        event(0, (0, 9), Operation::Set(1)),
        event(1, (1, 2), Operation::Get(None)),
        event(1, (3, 4), Operation::Get(Some(1))),
        event(2, (5, 6), Operation::Delete(true)),
        event(1, (7, 8), Operation::Get(None)),
    ];
    assert!(is_linearizable(&overlapping));
    assert!(is_linearizable(&[]));
}

#[test]
fn the_checker_refuses_what_has_none() {
    let set = event(0, (0, 1), Operation::Set(1));
    let stale = [set, event(1, (2, 3), Operation::Get(None))];
    assert!(!is_linearizable(&stale), "a read of what was before");
    let back = [
        set,
        event(0, (2, 9), Operation::Set(2)),
        event(1, (3, 4), Operation::Get(Some(2))),
        event(1, (5, 6), Operation::Get(Some(1))),
    ];
    assert!(!is_linearizable(&back), "a value that comes back");
    let twice = [
        set,
        event(1, (2, 5), Operation::Delete(true)),
        event(2, (3, 4), Operation::Delete(true)),
    ];
    assert!(!is_linearizable(&twice), "one value is removed twice");
    let reordered = [
        event(0, (0, 5), Operation::Set(1)),
        event(0, (1, 6), Operation::Set(2)),
        event(1, (7, 8), Operation::Get(Some(1))),
    ];
    assert!(!is_linearizable(&reordered), "a pipeline out of order");
}

/// A fault in the real thing: a comparison and its write as two commands, so that two clients
/// replace one value.
#[test]
fn the_checker_finds_a_comparison_that_is_not_one_step() {
    let served = Served::start(2);
    let mut clients = [served.client(), served.client()];
    let clock = AtomicU64::new(0);
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let mut events = vec![event(0, (tick(), tick()), Operation::Set(1))];
    clients[0].say("SET split 1");
    let called = [tick(), tick()];
    let read = clients.each_mut().map(|client| client.say("GET split"));
    assert_eq!(read, ["\"1\"", "\"1\""]);
    for (place, client) in clients.iter_mut().enumerate() {
        let new = 2 + place as u64;
        assert_eq!(client.say(&format!("SET split {new}")), "+OK");
        let swap = Operation::Swap {
            expected: Some(1),
            new,
            done: true,
        };
        events.push(event(place, (called[place], tick()), swap));
    }
    assert!(!is_linearizable(&events));
}

/// Whether a client goes on counting: a number of times, or until some seconds have passed.
struct Until {
    start: Instant,
    time: Option<Duration>,
}

impl Until {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            time: setting("FARCORE_SECONDS").map(Duration::from_secs),
        }
    }

    fn goes_on(&self, tries: u64) -> bool {
        match self.time {
            Some(time) => self.start.elapsed() < time,
            None => tries < COUNTS,
        }
    }
}

/// Has all clients do something until it is over; returns how often it succeeded.
fn count_by(served: &Served, try_once: impl Fn(&mut Client) -> bool + Sync) -> u64 {
    let until = Until::new();
    let start = Barrier::new(COUNTERS);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..COUNTERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = served.client();
                    start.wait();
                    let (mut tries, mut successes) = (0, 0);
                    while until.goes_on(tries) {
                        tries += 1;
                        successes += u64::from(try_once(&mut client));
                    }
                    successes
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    })
}

/// What the key `counter` holds in the end.
fn counted(served: &Served) -> u64 {
    let mut client = served.client();
    client.ask(&["GET", "counter"]).text().parse().unwrap()
}

#[test]
fn increments_equal_successes() {
    let served = Served::start(2);
    let successes = count_by(&served, |client| {
        matches!(client.ask(&["INCR", "counter"]), Reply::Integer(_))
    });
    println!("INCR: {successes} successes");
    assert!(successes > 0);
    assert_eq!(counted(&served), successes);
}

#[test]
fn comparisons_equal_successes() {
    let served = Served::start(2);
    served.client().say("SET counter 0");
    let successes = count_by(&served, |client| {
        let current = client.ask(&["GET", "counter"]).text();
        let next = (current.parse::<u64>().unwrap() + 1).to_string();
        let reply = client.ask(&["SET", "counter", &next, "IFEQ", &current]);
        reply == Reply::Simple("OK".to_owned())
    });
    println!("SET IFEQ: {successes} successes");
    assert!(successes > 0);
    assert_eq!(counted(&served), successes);
}

/// `WATCH` with `EXEC` compares versions: the compare-and-swap of the engine.
#[test]
fn transactions_equal_successes() {
    let served = Served::start(2);
    served.client().say("SET counter 0");
    let successes = count_by(&served, |client| {
        client.ask(&["WATCH", "counter"]);
        let current = client.ask(&["GET", "counter"]).text();
        let next = (current.parse::<u64>().unwrap() + 1).to_string();
        client.ask(&["MULTI"]);
        client.ask(&["SET", "counter", &next]);
        matches!(client.ask(&["EXEC"]), Reply::Array(_))
    });
    println!("WATCH and EXEC: {successes} successes");
    assert!(successes > 0);
    assert_eq!(counted(&served), successes);
}
