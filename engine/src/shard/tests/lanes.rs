//! Several clients of one shard: a client that does not read its answers delays no other, and
//! clients that flood the shard leave each other their share.

use farcore_rdma::LinkModel;

use super::{ANSWER_BYTES, ENCRYPTIONS, LANES, Owned, Random, Reactor, Setting, run, seeds};
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;
use crate::shard::FLIGHTS;
use crate::shard::far::buffers::is_long;
use crate::shard::pending::flight::FlightState;

/// Far memory that takes several rounds to answer.
fn far_away() -> LinkModel {
    LinkModel {
        latency_ns: 7_000,
        ..LinkModel::default()
    }
}

/// A shard whose `keys` records of this length are far, except for the last ones.
fn filled(setting: &Setting, keys: u64, value_bytes: usize) -> Reactor {
    let mut reactor = Reactor::new(setting);
    for key in 0..keys {
        let value = vec![key as u8; value_bytes];
        let key = key.to_le_bytes();
        let stored = reactor.call(Operation::Put {
            key: &key,
            value: &value,
        });
        assert!(matches!(stored, Owned::Stored(_)), "{stored:?}");
    }
    reactor
}

/// Gets of far keys on lanes whose clients do not read the answers, until no more are accepted.
fn fall_asleep(
    reactor: &mut Reactor,
    lanes: std::ops::Range<u8>,
    lane_bytes: usize,
    keys: u64,
) -> u64 {
    reactor.inbox.lane_bytes.set(lane_bytes);
    let mut random = Random(9);
    let mut accepted = 0;
    for lane in lanes {
        reactor
            .inbox
            .asleep
            .set(reactor.inbox.asleep.get() | 1 << lane);
        let mut refused = 0;
        while refused < 2_000 {
            let key = random.below(keys).to_le_bytes();
            if reactor.offer_on(ReplyTo::new(lane), 0, Operation::Get { key: &key }) {
                accepted += 1;
                refused = 0;
            } else {
                refused += 1;
                reactor.advance();
            }
        }
    }
    accepted
}

#[test]
fn clients_that_do_not_poll_delay_no_other() {
    // Short records, and records that take a buffer of the large area each.
    for (value_bytes, keys, lane_bytes) in [
        (200, 30_000, 64 << 10),
        (12_000, 1_500, 64 << 10),
        (30_000, 600, 40_000),
    ] {
        for encryption in ENCRYPTIONS {
            let setting = Setting {
                encryption,
                link: far_away(),
                far_bytes: 48 << 20,
                ..Setting::default()
            };
            let mut reactor = filled(&setting, keys, value_bytes);
            let accepted = fall_asleep(&mut reactor, 2..7, lane_bytes, keys);
            assert!(accepted > 0);
            assert!(
                reactor.shard.is_quiet(),
                "all accepted requests are answered"
            );
            assert_eq!(reactor.shard.far.buffers.in_use_bytes(), 0);
            // Gets of far records, and puts of far and of new keys, which also need background
            // work.
            for round in 0..3 * keys {
                let key = round * 7919 % keys;
                let answer = reactor.call(Operation::Get {
                    key: &key.to_le_bytes(),
                });
                assert!(
                    matches!(answer, Owned::Value(_, bytes) if bytes == vec![key as u8; value_bytes])
                );
                if round % 3 == 0 {
                    let stored = reactor.call(Operation::Put {
                        key: &key.to_le_bytes(),
                        value: &vec![key as u8; value_bytes],
                    });
                    assert!(matches!(stored, Owned::Stored(_)), "{stored:?}");
                }
            }
            let seen = reactor.shard.metrics.counters.snapshot();
            assert!(
                seen.answers_without_room > 0 && seen.compaction_pages > 0,
                "{seen:?}"
            );
        }
    }
}

#[test]
fn writes_of_clients_that_do_not_poll_delay_no_other() {
    let keys = 20_000;
    let setting = Setting {
        link: far_away(),
        far_bytes: 48 << 20,
        ..Setting::default()
    };
    let mut reactor = filled(&setting, keys, 200);
    reactor.inbox.lane_bytes.set(100 * ANSWER_BYTES);
    reactor.inbox.asleep.set(0b1111_1100);
    let long = vec![3; 20_000];
    for round in 0..40_000u64 {
        let key = (round * 7919 % (keys / 2)).to_le_bytes();
        let operation = match round % 3 {
            0 => Operation::Delete { key: &key },
            1 => Operation::Put {
                key: &key,
                value: b"new",
            },
            _ => Operation::Put {
                key: &key,
                value: &long,
            },
        };
        reactor.offer_on(ReplyTo::new(2 + (round % 6) as u8), 0, operation);
        if round % 8 == 0 {
            reactor.advance();
        }
    }
    for key in keys / 2..keys {
        let answer = reactor.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
        assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    }
}

#[test]
fn lanes_that_flood_leave_each_other_their_share() {
    // More lanes than could all have the share of a single one. The lane with one request is the
    // last, then the first.
    for victim in [0, 7u8] {
        let keys = 30_000;
        let setting = Setting {
            link: far_away(),
            far_bytes: 48 << 20,
            ..Setting::default()
        };
        let mut reactor = filled(&setting, keys, 200);
        let mut random = Random(5);
        let mut answered = [0u64; LANES];
        let (mut waits, mut longest, mut is_waiting) = (0, 0, false);
        for round in 0..6_000u64 {
            // As a core serves its lanes: each round begins with another lane.
            for place in 0..LANES as u64 {
                let lane = ((round + place) % LANES as u64) as u8;
                let id = ReplyTo::new(lane);
                if lane == victim {
                    if !is_waiting {
                        let key = random.below(keys).to_le_bytes();
                        is_waiting =
                            reactor.offer_on(id, u64::from(lane), Operation::Get { key: &key });
                    }
                    continue;
                }
                for _ in 0..64 {
                    let key = random.below(keys).to_le_bytes();
                    if !reactor.offer_on(id, u64::from(lane), Operation::Get { key: &key }) {
                        break;
                    }
                }
            }
            reactor.advance();
            let answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
            let mut came = false;
            for (lane, answer) in answers {
                assert!(matches!(answer, Owned::Value(..)));
                answered[lane as usize] += 1;
                came |= lane == u64::from(victim);
            }
            waits = if came { 0 } else { waits + 1 };
            is_waiting &= !came;
            longest = longest.max(waits);
        }
        // A READ takes ten rounds; at most one other must end first.
        assert!(
            longest <= 40,
            "lane {victim} waited for {longest} rounds: {answered:?}"
        );
        let flooding = answered
            .iter()
            .enumerate()
            .filter(|&(lane, _)| lane != usize::from(victim));
        let counts: Vec<u64> = flooding.map(|(_, &count)| count).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(least * 3 > *most * 2, "{answered:?}");
    }
}

/// Flights that wait for a long buffer, in order, and those whose long READ is in flight.
fn long_flights(reactor: &mut Reactor) -> (Vec<u32>, usize) {
    let shard = &mut reactor.shard;
    let waiting = shard.unbuffered[1].iter().copied().collect();
    let posted = (0..FLIGHTS).filter(|&id| {
        let flight = shard.flights.get(id);
        is_long(flight.bytes) && matches!(flight.state, FlightState::Posted(_))
    });
    (waiting, posted.count())
}

#[test]
fn long_records_are_read_several_at_a_time_and_none_starves() {
    let keys = 1_200;
    let link = LinkModel {
        jitter_ns: 9_000,
        ..far_away()
    };
    let setting = Setting {
        link,
        far_bytes: 64 << 20,
        ..Setting::default()
    };
    // Two lengths, so that flights that end seldom free two adjacent runs.
    let mut reactor = Reactor::new(&setting);
    let put = |reactor: &mut Reactor, key: u64| {
        let value = vec![
            1;
            if key.is_multiple_of(2) {
                12_000
            } else {
                19_000
            }
        ];
        let stored = reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &value,
        });
        assert!(matches!(stored, Owned::Stored(_)), "{stored:?}");
    };
    (0..keys).for_each(|key| put(&mut reactor, key));
    let longest = vec![7; 31_000];
    reactor.call(Operation::Put {
        key: b"longest",
        value: &longest,
    });
    (keys..2 * keys).for_each(|key| put(&mut reactor, key));
    let (mut random, mut most, mut waits, mut rounds) = (Random(2), 0, false, 0);
    let mut answered = 0;
    while answered < 60 {
        for lane in 2..7 {
            let (waiting, posted) = long_flights(&mut reactor);
            let key = random.below(keys / 2).to_le_bytes();
            reactor.offer_on(ReplyTo::new(lane), 1, Operation::Get { key: &key });
            let passed = long_flights(&mut reactor).1 > posted;
            assert!(waiting.is_empty() || !passed, "a newer flight overtook it");
        }
        if !waits {
            waits = reactor.offer_on(ReplyTo::new(1), 2, Operation::Get { key: b"longest" });
            rounds = 0;
        }
        let before = long_flights(&mut reactor).0;
        reactor.advance();
        let after = long_flights(&mut reactor).0;
        let posted = before
            .iter()
            .filter(|flight| !after.contains(flight))
            .count();
        assert!(
            after.starts_with(&before[posted..]),
            "{before:?}, then {after:?}"
        );
        most = most.max(reactor.shard.far.under_way);
        rounds += 1;
        assert!(rounds < 2_000, "the longest record starves");
        for (token, answer) in reactor.inbox.answers.borrow_mut().drain(..) {
            assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
            if token == 2 {
                (waits, answered) = (false, answered + 1);
            }
        }
    }
    assert!(most > 3, "{most} READs under way at once");
}

#[test]
fn a_value_longer_than_its_reserved_room_frees_its_buffer() {
    let mut checked = 0;
    for (first, second) in [(200, 30_000), (30_000, 200)] {
        let mut reactor = Reactor::new(&Setting {
            link: far_away(),
            far_bytes: 32 << 20,
            ..Setting::default()
        });
        // Two keys of one hash: only reading the records shows whose they are.
        reactor
            .collisions
            .borrow_mut()
            .insert(b"other".to_vec(), b"one".to_vec());
        for (key, bytes) in [(b"one".as_slice(), first), (b"other", second)] {
            let value = vec![key.len() as u8; bytes];
            reactor.call(Operation::Put { key, value: &value });
        }
        for key in 0..20_000u64 {
            reactor.call(Operation::Put {
                key: &key.to_le_bytes(),
                value: &[9; 400],
            });
        }
        let lane = ReplyTo::new(4);
        for (key, bytes) in [(b"one".as_slice(), first), (b"other", second)] {
            // Room for the short value beside the other lanes' answers, and not for the long one.
            reactor.inbox.lane_bytes.set(40_000);
            reactor.inbox.taken.borrow_mut()[lane.number()] = 30_000;
            let taken = reactor.offer_on(lane, 3, Operation::Get { key });
            for _ in 0..400 {
                reactor.advance();
            }
            let early = reactor.inbox.answers.borrow_mut().pop();
            if taken && bytes == 30_000 {
                assert_eq!(early, None, "there was no room");
                assert_eq!(reactor.shard.far.buffers.reads.in_use_bytes(), 0);
                checked += 1;
            }
            let answer = early.or_else(|| {
                reactor.inbox.taken.borrow_mut()[lane.number()] = 0;
                while !taken && !reactor.offer_on(lane, 3, Operation::Get { key }) {
                    reactor.advance();
                }
                for _ in 0..400 {
                    reactor.advance();
                }
                reactor.inbox.answers.borrow_mut().pop()
            });
            let (_, answer) = answer.expect("there is room now");
            let expected = vec![key.len() as u8; bytes];
            assert!(matches!(answer, Owned::Value(_, value) if value == expected));
        }
        assert_eq!(reactor.shard.flights.count(), 0);
    }
    assert!(checked > 0, "the short record was never read first");
}

/// Gets answered beside three clients that put values of this length over far keys, and the puts of
/// those.
fn getters_beside_putters(value_bytes: usize) -> (u64, u64) {
    let keys = 80_000u64;
    let mut setting = Setting {
        far_bytes: 96 << 20,
        link: LinkModel {
            jitter_ns: 9_000,
            ..far_away()
        },
        ..Setting::default()
    };
    // Makes each get a READ of its own.
    (
        setting.tuning.read_ahead_chunks,
        setting.tuning.cache_percent,
    ) = (0, 0);
    let mut reactor = Reactor::new(&setting);
    for key in 0..keys {
        reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[1; 200],
        });
    }
    let value = vec![2; value_bytes];
    let mut random = Random(5);
    let (mut got, mut stored) = (0, 0);
    let mut waits = [false; 8];
    let mut next = 0u64;
    for round in 0..4_000u64 {
        for place in 0..8u64 {
            let lane = ((round + place) % 8) as u8;
            let id = ReplyTo::new(lane);
            match lane {
                1 => {
                    for _ in 0..64 {
                        let key = (keys / 4 + random.below(keys / 4)).to_le_bytes();
                        if !reactor.offer_on(id, 1, Operation::Get { key: &key }) {
                            break;
                        }
                    }
                }
                2..=4 if !waits[lane as usize] => {
                    let key = (next % (keys / 4)).to_le_bytes();
                    next += 1;
                    waits[lane as usize] = reactor.offer_on(
                        id,
                        u64::from(lane),
                        Operation::Put {
                            key: &key,
                            value: &value,
                        },
                    );
                }
                _ => {}
            }
        }
        reactor.advance();
        for (token, answer) in reactor.inbox.answers.borrow_mut().drain(..) {
            if token == 1 {
                got += 1;
            } else {
                assert!(matches!(answer, Owned::Stored(_)), "{answer:?}");
                waits[token as usize] = false;
                stored += 1;
            }
        }
    }
    (got, stored)
}

#[test]
fn long_puts_of_far_keys_do_not_starve_gets() {
    let (gets, _) = getters_beside_putters(100);
    for value_bytes in [7_900, 9_000, 20_000] {
        let (beside, puts) = getters_beside_putters(value_bytes);
        assert!(
            beside * 10 > gets * 9 && puts > 0,
            "{value_bytes}: {beside} of {gets}, {puts} puts"
        );
    }
}

#[test]
fn model_with_several_lanes_of_which_one_sleeps() {
    for seed in seeds() {
        // Few frames, and enough frames that more than the minimum are kept free.
        for (local_bytes, keys) in [(3 << 20, 6_000), (5 << 20, 14_000)] {
            let setting = Setting {
                local_bytes,
                far_bytes: 48 << 20,
                link: far_away(),
                encryption: ENCRYPTIONS[seed as usize % ENCRYPTIONS.len()],
                lanes: 4,
                sleeper: true,
                ..Setting::default()
            };
            let reactor = run(seed, &setting, 60_000, keys, false);
            let seen = reactor.shard.metrics.counters.snapshot();
            assert!(
                seen.far_reads > 0 && seen.answers_without_room > 0,
                "{seen:?}"
            );
        }
    }
}
