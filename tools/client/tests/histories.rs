//! Several native connections at once: histories of their operations are linearizable.
//!
//! Each client pipelines gets, puts, deletes and compare-and-swaps of few keys, with values that
//! travel in messages, in slots and by landing. A version names the write that made it, so a swap
//! that fails also says which value was current.
//!
//! The test is small. For many seeds:
//! `FARCORE_HISTORIES=1000 cargo test -p farcore-client --test histories`. `FARCORE_SEED` repeats
//! one history's choices; how threads meet is the system's.

#[path = "../../server/tests/support/history.rs"]
mod history;
mod support;

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use farcore_client::{CasOutcome, Client, Pending, Transfer, Value, Version};

use crate::history::{Event, Operation, is_linearizable};
use crate::support::{Random, Served, pattern};

/// Connections of a history.
const CLIENTS: usize = 4;
/// Keys of a history; with two cores they lie in different shards.
const KEYS: usize = 3;
/// Operations of each client.
const OPERATIONS: usize = 60;
/// Operations that a client submits at once, at most.
const BATCH_MAX: usize = 5;
/// Histories that the test tries.
const HISTORIES: u64 = 40;
/// Lengths of values: in a message, in a slot, and in a longer slot.
const LENGTHS: [usize; 3] = [8, 5_000, 70_000];

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is not a number")))
}

/// The bytes of a value that a number names.
fn bytes_of(number: u64) -> Vec<u8> {
    let place = usize::try_from(number % LENGTHS.len() as u64).expect("small");
    let mut bytes = pattern(LENGTHS[place], number);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of a value, which must be whole.
fn number_of(value: &Value) -> u64 {
    let number = value
        .bytes
        .first_chunk()
        .map(|all| u64::from_le_bytes(*all));
    let number = number.expect("eight bytes or more");
    assert!(value.bytes == bytes_of(number), "value {number} is torn");
    number
}

/// A value and the version that names it.
type Known = (u64, Version);

/// An operation that was submitted.
enum Sent {
    Get(Pending<Option<Value>>),
    Put(u64, Pending<Version>),
    Delete(Pending<bool>),
    /// The value that is expected, if one is.
    Swap(Option<u64>, u64, Pending<CasOutcome>),
}

/// How an operation ended. A swap that failed names the version that was current.
#[derive(Clone, Copy)]
enum Seen {
    Done(Operation),
    Refused(Version),
}

fn submit(
    client: &Client,
    random: &mut Random,
    key: &[u8],
    known: Option<Known>,
    new: u64,
) -> Sent {
    match (random.below(10), known) {
        (0..4, _) => Sent::Get(client.get(key)),
        // Of a version that may be old, or of an absent key.
        (4..7, Some((value, version))) if random.below(4) > 0 => {
            let swap = client.compare_and_swap(key, &bytes_of(new), version);
            Sent::Swap(Some(value), new, swap)
        }
        (4..7, _) => Sent::Swap(None, new, client.compare_and_swap(key, &bytes_of(new), 0)),
        (9, _) => Sent::Delete(client.delete(key)),
        _ => Sent::Put(new, client.put(key, &bytes_of(new))),
    }
}

/// Waits for an operation; returns the value that is known after it, too.
fn ended(sent: Sent) -> (Seen, Option<Known>) {
    match sent {
        Sent::Get(pending) => {
            let value = pending.wait().expect("read");
            let known = value.map(|value| (number_of(&value), value.version));
            let read = Operation::Get(known.map(|one| one.0));
            (Seen::Done(read), known)
        }
        Sent::Put(new, pending) => {
            let version = pending.wait().expect("stored");
            (Seen::Done(Operation::Set(new)), Some((new, version)))
        }
        Sent::Delete(pending) => {
            let existed = pending.wait().expect("removed");
            (Seen::Done(Operation::Delete(existed)), None)
        }
        Sent::Swap(expected, new, pending) => match pending.wait().expect("an outcome") {
            CasOutcome::Stored(version) => {
                let done = true;
                let swap = Operation::Swap {
                    expected,
                    new,
                    done,
                };
                (Seen::Done(swap), Some((new, version)))
            }
            CasOutcome::Mismatch(version) => (Seen::Refused(version), None),
        },
    }
}

/// An operation on a key, with the value that it has stored.
struct Step {
    key: usize,
    seen: Seen,
    stored: Option<Known>,
    event: Event,
}

/// What one client does and sees.
fn act(client: &Client, seed: u64, number: usize, clock: &AtomicU64) -> Vec<Step> {
    let mut random = Random::of(seed.wrapping_mul(1 << 8).wrapping_add(number as u64));
    let mut known = [None; KEYS];
    let mut steps = Vec::new();
    // No value is written twice.
    let mut next = (number as u64 + 1) << 32;
    while steps.len() < OPERATIONS {
        let batch: Vec<_> = (0..=random.below(BATCH_MAX))
            .map(|_| {
                let key = random.below(KEYS);
                next += 1;
                let called = clock.fetch_add(1, Ordering::SeqCst);
                let name = format!("history:{seed}:{key}");
                let sent = submit(client, &mut random, name.as_bytes(), known[key], next);
                (key, called, sent)
            })
            .collect();
        for (place, (key, called, sent)) in batch.into_iter().enumerate() {
            let is_read = matches!(sent, Sent::Get(_));
            let (seen, found) = ended(sent);
            known[key] = found.or(known[key]);
            steps.push(Step {
                key,
                seen,
                stored: found.filter(|_| !is_read),
                event: Event {
                    // Operations that are under way at once have no order: a get may overtake a put
                    // whose value waits for a slot.
                    client: number * (BATCH_MAX + 1) + place,
                    called,
                    ended: clock.fetch_add(1, Ordering::SeqCst),
                    operation: Operation::Get(None),
                },
            });
        }
    }
    steps
}

/// The history of a key. A version is of one value.
fn history(steps: &[Step], key: usize) -> Vec<Event> {
    let of_key = || steps.iter().filter(|step| step.key == key);
    let mut values = HashMap::from([(0, None)]);
    for (value, version) in of_key().filter_map(|step| step.stored) {
        let other = values.insert(version, Some(value));
        assert_eq!(other, None, "version {version} names two values");
    }
    of_key()
        .map(|step| Event {
            operation: match step.seen {
                Seen::Done(operation) => operation,
                // It saw what was current, as a get does.
                Seen::Refused(version) => {
                    let value = values.get(&version);
                    Operation::Get(*value.expect("a version of a value that was stored"))
                }
            },
            ..step.event
        })
        .collect()
}

/// What all clients do and see.
fn all_steps(clients: &[Client], seed: u64) -> Vec<Step> {
    let clock = AtomicU64::new(0);
    let start = Barrier::new(clients.len());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients.len())
            .map(|number| {
                let (clock, start) = (&clock, &start);
                scope.spawn(move || {
                    start.wait();
                    act(&clients[number], seed, number, clock)
                })
            })
            .collect();
        let ended = threads.into_iter();
        ended
            .flat_map(|one| one.join().expect("no panic"))
            .collect()
    })
}

/// Half of them have their values land, the others read them from the server's slots.
fn clients(served: &Served) -> Vec<Client> {
    let ways = [Transfer::Landing, Transfer::Read];
    (0..CLIENTS)
        .map(|number| {
            served.client_with(|options| {
                options.transfer = ways[number % 2];
                options.landing_bytes = 128 << 10;
            })
        })
        .collect()
}

#[test]
fn histories_are_linearizable() {
    let served = Served::start(2);
    let seeds = setting("FARCORE_HISTORIES").unwrap_or(HISTORIES);
    let first = setting("FARCORE_SEED").unwrap_or(0);
    let clients = clients(&served);
    let (mut operations, mut swaps, mut refused) = (0, 0, 0);
    for seed in first..first + seeds {
        let steps = all_steps(&clients, seed);
        for step in &steps {
            match step.seen {
                Seen::Done(Operation::Swap { .. }) => swaps += 1,
                Seen::Refused(version) if version > 0 => refused += 1,
                _ => {}
            }
        }
        operations += steps.len();
        for key in 0..KEYS {
            let history = history(&steps, key);
            assert!(
                is_linearizable(&history),
                "FARCORE_SEED={seed} FARCORE_HISTORIES=1: no order explains {history:#?}"
            );
            let name = format!("history:{seed}:{key}");
            clients[0].delete(name.as_bytes()).wait().expect("removed");
        }
    }
    println!("{seeds} seeds, {operations} operations, {swaps} swaps done, {refused} refused");
    assert!(swaps > 0 && refused > 0, "both outcomes of a swap occur");
}

/// A fault in the real thing: a comparison and its write as two requests, so that two clients
/// replace one value.
#[test]
fn the_checker_finds_a_comparison_that_is_not_one_step() {
    let served = Served::start(2);
    let clients = [served.client(), served.client()];
    let clock = AtomicU64::new(0);
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let mut events = Vec::new();
    let mut note = |client, called, operation| {
        events.push(Event {
            client,
            called,
            ended: tick(),
            operation,
        });
    };
    let called = tick();
    clients[0]
        .put(b"split", &bytes_of(1))
        .wait()
        .expect("stored");
    note(0, called, Operation::Set(1));
    let called = [tick(), tick()];
    for client in &clients {
        let read = client.get(b"split").wait().expect("read");
        assert_eq!(read.map(|value| number_of(&value)), Some(1));
    }
    for (place, client) in clients.iter().enumerate() {
        let new = 2 + place as u64;
        client.put(b"split", &bytes_of(new)).wait().expect("stored");
        let (expected, done) = (Some(1), true);
        note(
            place,
            called[place],
            Operation::Swap {
                expected,
                new,
                done,
            },
        );
    }
    assert!(!is_linearizable(&events));
}
