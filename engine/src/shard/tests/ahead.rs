//! Read-ahead over a slow link: how many READs and bytes a walk takes, and how long it waits.

use farcore_rdma::LinkModel;
use farcore_tuning::ShardSnapshot;

use super::{Owned, Random, Reactor, Setting, ShardTuning, seeds};
use crate::constants::READ_AHEAD_CHUNKS_MAX;
use crate::message::operation::Operation;

/// A round trip a thousand times as long as a local request.
const LATENCY_NS: u64 = 300_000;
/// Requests that a walk has in flight.
const WINDOW: usize = 64;
const KEYS: u64 = 40_000;
/// Bytes of a record: 16 of header, 8 of key, 200 of value.
const RECORD_BYTES: u64 = 224;

/// The cost of a walk.
#[derive(Debug)]
struct Cost {
    records: u64,
    reads: u64,
    bytes: u64,
    round_trips: u64,
}

/// A shard whose first half of keys is far, in the order of the keys.
fn reactor(latency_ns: u64) -> Reactor {
    reactor_ahead(latency_ns, READ_AHEAD_CHUNKS_MAX)
}

/// A shard whose first half of keys is far, and that reads at most this many chunks ahead.
fn reactor_ahead(latency_ns: u64, read_ahead_chunks: u32) -> Reactor {
    let mut reactor = Reactor::new(&Setting {
        tuning: ShardTuning {
            read_ahead_chunks,
            ..Setting::default().tuning
        },
        far_bytes: 32 << 20,
        link: LinkModel {
            latency_ns,
            ..LinkModel::default()
        },
        ..Setting::default()
    });
    for key in 0..KEYS {
        let stored = reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[7; 200],
        });
        assert!(matches!(stored, Owned::Stored(_)));
    }
    reactor
}

/// Reads keys in this order, with as many in flight as the window allows.
fn walk(reactor: &mut Reactor, keys: impl Iterator<Item = u64>) -> Cost {
    let seen = |reactor: &Reactor| -> ShardSnapshot { reactor.shard.metrics.counters.snapshot() };
    let (before, start_ns) = (seen(reactor), reactor.now_ns);
    let (mut keys, mut waiting, mut records) = (keys.peekable(), 0, 0);
    while waiting > 0 || keys.peek().is_some() {
        while waiting < WINDOW
            && let Some(key) = keys.peek()
        {
            let key = key.to_le_bytes();
            if !reactor.offer(records, Operation::Get { key: &key }) {
                break;
            }
            (waiting, records) = (waiting + 1, records + 1);
            keys.next();
        }
        reactor.advance();
        for (_, answer) in reactor.inbox.answers.borrow_mut().drain(..) {
            assert!(matches!(answer, Owned::Value(_, bytes) if bytes == [7; 200]));
            waiting -= 1;
        }
    }
    let after = seen(reactor);
    Cost {
        records,
        reads: after.far_reads - before.far_reads,
        bytes: after.far_read_bytes - before.far_read_bytes,
        round_trips: (reactor.now_ns - start_ns) / LATENCY_NS,
    }
}

#[test]
fn a_walk_over_a_long_link_reads_ahead_as_far_as_it_moves_in_a_round_trip() {
    let mut reactor = reactor(LATENCY_NS);
    let cost = walk(&mut reactor, 0..KEYS / 2);
    // A chunk of this small shard holds 32 records.
    assert!(cost.reads * 24 <= cost.records, "{cost:?}");
    assert!(
        cost.bytes * 10 <= cost.records * RECORD_BYTES * 12,
        "{cost:?}"
    );
    // The window alone would take 312 round trips.
    assert!(cost.round_trips <= 80, "{cost:?}");
}

#[test]
fn a_walk_reads_no_farther_ahead_than_its_setting() {
    let costs = [0, 1, 3, READ_AHEAD_CHUNKS_MAX].map(|chunks| {
        let mut reactor = reactor_ahead(LATENCY_NS, chunks);
        walk(&mut reactor, 0..KEYS / 2)
    });
    assert!(costs[0].reads >= costs[0].records, "{:?}", costs[0]);
    for pair in costs.windows(2) {
        assert!(pair[1].round_trips < pair[0].round_trips, "{costs:?}");
    }
    // One chunk of 8 KiB, which holds 36 records, is in flight while the one before is used.
    let least = KEYS / 2 / 36 / 2;
    assert!(costs[1].round_trips > least, "{costs:?}");
}

#[test]
fn two_walks_at_once_share_the_buffers() {
    let mut reactor = reactor(LATENCY_NS);
    let both = (0..KEYS / 4).flat_map(|key| [key, key + KEYS / 4]);
    let cost = walk(&mut reactor, both);
    assert!(cost.reads * 24 <= cost.records, "{cost:?}");
    assert!(
        cost.bytes * 10 <= cost.records * RECORD_BYTES * 13,
        "{cost:?}"
    );
}

#[test]
fn threads_that_share_the_keys_of_a_walk_share_its_chunks() {
    let mut reactor = reactor(LATENCY_NS);
    // Each reads every other key; one lags two hundred keys behind.
    let lag = 200;
    let shared = (0..KEYS / 4).flat_map(|step| [step * 2, (step * 2 + 1).saturating_sub(lag)]);
    let cost = walk(&mut reactor, shared);
    assert!(cost.reads * 12 <= cost.records, "{cost:?}");
}

#[test]
fn a_sparse_walk_reads_single_records() {
    for latency_ns in [0, LATENCY_NS] {
        let mut reactor = reactor(latency_ns);
        let cost = walk(&mut reactor, (0..KEYS / 2).step_by(10));
        assert!(
            cost.bytes * 2 <= cost.records * RECORD_BYTES * 3,
            "{cost:?}"
        );
    }
}

#[test]
fn a_walk_that_becomes_sparse_stops_reading_ahead() {
    let mut reactor = reactor(LATENCY_NS);
    let keys = (0..4_000).chain((4_000..KEYS / 2).step_by(10));
    let cost = walk(&mut reactor, keys);
    assert!(
        cost.bytes * 2 <= cost.records * RECORD_BYTES * 3,
        "{cost:?}"
    );
}

#[test]
fn what_is_read_ahead_of_a_walk_that_ends_is_bounded() {
    let mut reactor = reactor(LATENCY_NS);
    for start in 0..8 {
        let start = start * 2_000;
        let cost = walk(&mut reactor, start..start + 200);
        // Chunks of 8 KiB: those that hold the records, and twelve more.
        let bound = cost.records * RECORD_BYTES * 12 / 10 + (12 << 13);
        assert!(cost.bytes <= bound, "{cost:?}");
    }
}

#[test]
fn walks_end_when_the_clock_jumps() {
    for seed in seeds() {
        let mut random = Random(seed);
        let mut reactor = reactor(LATENCY_NS);
        for round in 0..12u64 {
            let (start, step) = (random.below(KEYS / 2), 1 + random.below(3));
            let other = random.below(KEYS / 2);
            let delete = round % 4 == 3;
            let (mut offered, mut waiting) = (0u64, 0);
            while waiting > 0 || offered < 4_000 {
                for _ in 0..random.below(40) {
                    let from = if offered % 2 == 0 { start } else { other };
                    let key = ((from + offered / 2 * step) % KEYS).to_le_bytes();
                    let operation = match (delete, random.below(8)) {
                        (true, _) => Operation::Delete { key: &key },
                        (_, 0) => Operation::Put {
                            key: &key,
                            value: &[7; 200],
                        },
                        _ => Operation::Get { key: &key },
                    };
                    if offered == 4_000 || waiting == WINDOW || !reactor.offer(offered, operation) {
                        break;
                    }
                    (offered, waiting) = (offered + 1, waiting + 1);
                }
                // A thread that lost its core finds many completions at once.
                if random.below(50) == 0 {
                    reactor.now_ns += random.below(20 * LATENCY_NS);
                }
                reactor.advance();
                waiting -= reactor.inbox.answers.borrow_mut().drain(..).count();
                let stuck = reactor.now_ns > 60_000_000_000;
                assert!(!stuck, "seed {seed}: {:?}", reactor.shard.flights.count());
            }
            reactor.check();
        }
    }
}
