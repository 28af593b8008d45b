//! One memory node: the model under delay, faults, encryption and shortage; batches and hints; and
//! faults that the model must detect.

use std::collections::HashMap;

use farcore_rdma::{FaultPlan, LinkModel};

use super::{ENCRYPTIONS, Owned, Random, Reactor, Setting, ShardTuning, run, seeds, value};
use crate::cipher::EncryptionMode;
use crate::constants::{BATCH_MAX, CACHE_PERCENT_MAX};
use crate::index::{Position, Slot};
use crate::log::record::LocalRecord;
use crate::message::operation::Operation;
use crate::shard::look_ahead::LookAheadState;
use crate::shard::step::{Hint, HintOutcome};

#[test]
fn model_at_zero_latency() {
    for seed in seeds() {
        let reactor = run(seed, &Setting::default(), 40_000, 6_000, false);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.pages_evicted > 0, "nothing was evicted: {seen:?}");
        assert!(seen.far_reads > 0 && seen.cache_copies > 0, "{seen:?}");
        assert!(seen.compaction_pages > 0, "{seen:?}");
    }
}

#[test]
fn all_invariants_hold_after_every_step() {
    let settings = [
        (None, false, false),
        (Some(EncryptionMode::Authenticated), false, true),
        (Some(EncryptionMode::SecrecyOnly), true, false),
    ];
    for (seed, (encryption, evicts, losses)) in seeds().into_iter().cycle().zip(settings) {
        let setting = Setting {
            encryption,
            evicts,
            losses,
            nodes: 2,
            lanes: 3,
            local_bytes: 2 << 20,
            far_bytes: 4 << 20,
            keys_expected: 500,
            clears: true,
            check_steps: 1,
            ..Setting::default()
        };
        let reactor = run(seed, &setting, 8_000, 3_000, losses);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.far_reads > 0, "{seen:?}");
    }
}

#[test]
fn model_with_cache_and_read_ahead_at_their_limits() {
    for seed in seeds() {
        let low = ShardTuning {
            cache_percent: 0,
            read_ahead_chunks: 0,
            ..Setting::default().tuning
        };
        let high = ShardTuning {
            cache_percent: CACHE_PERCENT_MAX,
            read_ahead_chunks: 1,
            ..Setting::default().tuning
        };
        let with = |tuning| Setting {
            tuning,
            ..Setting::default()
        };
        let reactor = run(seed, &with(low), 40_000, 6_000, false);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.far_reads > 0 && seen.pages_evicted > 0, "{seen:?}");
        assert_eq!(seen.cache_copies, 0, "{seen:?}");
        let reactor = run(seed, &with(high), 40_000, 6_000, false);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.cache_copies > 0, "{seen:?}");
    }
}

#[test]
fn model_with_clears() {
    for seed in seeds() {
        for (encryption, nodes, losses) in [
            (None, 1, false),
            (Some(EncryptionMode::Authenticated), 1, false),
            (None, 3, true),
        ] {
            let setting = Setting {
                encryption,
                nodes,
                losses,
                far_bytes: nodes * (16 << 20),
                local_bytes: 2 << 20,
                clears: true,
                ..Setting::default()
            };
            let reactor = run(seed, &setting, 40_000, 6_000, false);
            let seen = reactor.shard.metrics.counters.snapshot();
            assert!(seen.clears > 0 && seen.far_reads > 0, "{seen:?}");
        }
    }
}

#[test]
fn a_batch_is_no_longer_than_its_setting() {
    for batch in [1, 7, BATCH_MAX] {
        let mut reactor = Reactor::new(&Setting {
            tuning: ShardTuning {
                batch,
                ..Setting::default().tuning
            },
            ..Setting::default()
        });
        let names: Vec<[u8; 8]> = (0..200u64).map(u64::to_le_bytes).collect();
        for (token, key) in (0u64..).zip(&names) {
            reactor.push(token, Operation::Put { key, value: b"v" });
        }
        let served = reactor.serve_pushed();
        let batches = reactor.shard.metrics.batches.snapshot();
        assert_eq!(served, 200);
        assert_eq!(batches.count(), 200usize.div_ceil(batch) as u64);
        let sizes = (batches.quantile(0.0), batches.quantile(1.0));
        assert_eq!(sizes.1, batch as u64, "{sizes:?}");
    }
}

/// Keys with the same home bucket, more than it has slots, so that the next bucket matters.
fn sharing_a_bucket(reactor: &Reactor) -> impl Iterator<Item = u64> {
    (0..).filter(|key: &u64| {
        let hash = reactor.hasher.hash(&key.to_le_bytes()).index.0;
        // The first segment, whatever their number; one bucket of it.
        hash >> 32 < 1 << 26 && hash >> 18 & 0xF == 0 && hash & 0xFF == 9
    })
}

#[test]
fn requests_of_one_batch_see_those_before_them() {
    // One request, fewer than are looked ahead, one more than those, the usual number, and the
    // most.
    let batches = [1, 7, 13, 64, BATCH_MAX];
    for (seed, batch) in seeds()
        .into_iter()
        .flat_map(|seed| batches.map(|batch| (seed, batch)))
    {
        let mut reactor = Reactor::new(&Setting {
            tuning: ShardTuning {
                batch,
                ..Setting::default().tuning
            },
            ..Setting::default()
        });
        let mut random = Random(seed);
        let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
        // Pages come and go within a batch if values are long.
        let longest = if seed % 2 == 0 { 90 } else { 20_000 };
        let names: Vec<u64> = if seed % 4 < 2 {
            (0..12).collect()
        } else {
            sharing_a_bucket(&reactor).take(12).collect()
        };
        for _ in 0..500 {
            let count = 1 + random.below(BATCH_MAX as u64);
            // Few keys, so that one is put, found, removed and put again within a batch.
            let requests: Vec<_> = (0..count)
                .map(|token| {
                    let name = names[random.below(12) as usize].to_le_bytes();
                    (
                        token,
                        random.below(3),
                        name,
                        vec![token as u8; 1 + random.below(longest) as usize],
                    )
                })
                .collect();
            let mut expected = Vec::new();
            for (token, kind, key, value) in &requests {
                let number = u64::from_le_bytes(*key);
                let (operation, answer) = match kind {
                    0 => (Operation::Get { key }, model.get(&number).cloned()),
                    1 => (
                        Operation::Delete { key },
                        model.remove(&number).map(|_| vec![]),
                    ),
                    _ => {
                        model.insert(number, value.clone());
                        (Operation::Put { key, value }, Some(vec![]))
                    }
                };
                reactor.push(*token, operation);
                expected.push((*token, answer));
            }
            assert_eq!(reactor.serve_pushed(), requests.len());
            let answers = reactor
                .inbox
                .answers
                .borrow_mut()
                .drain(..)
                .map(|(token, answer)| {
                    let answer = match answer {
                        Owned::Value(_, value) => Some(value),
                        Owned::Absent => None,
                        Owned::Stored(_) | Owned::Deleted => Some(vec![]),
                        other => panic!("seed {seed}: {other:?}"),
                    };
                    (token, answer)
                })
                .collect::<Vec<_>>();
            assert_eq!(answers, expected, "seed {seed}, batches of {batch}");
        }
    }
}

#[test]
fn a_hint_does_not_outlive_its_page() {
    let mut reactor = Reactor::new(&Setting::default());
    let key = 7u64.to_le_bytes();
    assert!(reactor.offer(
        0,
        Operation::Put {
            key: &key,
            value: b"v"
        }
    ));
    reactor.push(1, Operation::Get { key: &key });
    reactor.producer.publish();
    reactor.consumer.refresh();
    let request = &reactor.consumer.waiting(1)[0];
    let shard = &mut reactor.shard;
    shard.seen = LookAheadState::default();
    shard.seen.moves = shard.local.pages.moves();
    let hint = shard.look_ahead::<false>(request, &mut 0);
    assert!(matches!(
        shard.hinted(request, &hint),
        HintOutcome::Local(_)
    ));
    let Hint::Slot(_, slot, _) = hint else {
        panic!("{hint:?}");
    };
    // The slot stays as it is but leads to no local record.
    shard.local.evict_page(slot.address().page(shard.shape));
    assert!(matches!(shard.hinted(request, &hint), HintOutcome::Unknown));
}

#[test]
fn the_cache_takes_at_most_its_share() {
    let copies = |cache_percent| {
        let mut reactor = Reactor::new(&Setting {
            tuning: ShardTuning {
                cache_percent,
                ..Setting::default().tuning
            },
            far_bytes: 32 << 20,
            ..Setting::default()
        });
        for key in 0..40_000u64 {
            reactor.call(Operation::Put {
                key: &key.to_le_bytes(),
                value: &[7; 200],
            });
        }
        // Hot records do not fit the share, and puts keep local memory short.
        for round in 0..40_000u64 {
            let key = (round * 7919 % 6_000).to_le_bytes();
            let answer = reactor.call(Operation::Get { key: &key });
            assert!(matches!(answer, Owned::Value(..)));
            if round % 4 == 0 {
                let key = (30_000 + round % 5_000).to_le_bytes();
                reactor.call(Operation::Put {
                    key: &key,
                    value: &[7; 200],
                });
            }
        }
        (
            reactor.shard.cache.frames(),
            reactor.shard.local.arena.page_frames(),
        )
    };
    for percent in [0, 10, 40, 75] {
        let (cache, all) = copies(percent);
        // Beyond its share, the cache has the pages that were sealed since room was last made.
        let most = all * usize::from(percent) / 100 + usize::from(percent > 0) * 2;
        assert!(cache <= most, "{percent} %: {cache} of {all}");
        assert!(
            percent < 40 || cache * 8 > all,
            "{percent} %: {cache} of {all}"
        );
    }
}

#[test]
fn model_with_delay_and_reordering() {
    let link = LinkModel {
        latency_ns: 3_000,
        jitter_ns: 9_000,
        ..LinkModel::default()
    };
    for seed in seeds() {
        let setting = Setting {
            link: link.clone(),
            ..Setting::default()
        };
        let reactor = run(seed, &setting, 40_000, 6_000, false);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.reads_shared > 0 || seen.far_reads > 0, "{seen:?}");
    }
}

#[test]
fn model_with_encryption() {
    let link = LinkModel {
        latency_ns: 3_000,
        jitter_ns: 9_000,
        ..LinkModel::default()
    };
    let failing = |sticky| LinkModel {
        latency_ns: 2_000,
        faults: FaultPlan {
            seed: 11,
            failed_completions_per_million: 10_000,
            sticky,
            ..FaultPlan::default()
        },
        ..LinkModel::default()
    };
    let modes = |seed| ENCRYPTIONS[1..].iter().map(move |&mode| (seed, mode));
    for (seed, encryption) in seeds().into_iter().flat_map(modes) {
        let setting = Setting {
            encryption,
            ..Setting::default()
        };
        let with = |link: &LinkModel| Setting {
            link: link.clone(),
            ..setting.clone()
        };
        let reactor = run(seed, &setting, 40_000, 6_000, false);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.far_reads > 0 && seen.cache_copies > 0, "{seen:?}");
        assert!(seen.compaction_pages > 0, "{seen:?}");
        run(seed, &with(&link), 30_000, 6_000, false);
        run(seed, &with(&failing(false)), 30_000, 6_000, true);
        run(seed, &with(&failing(true)), 30_000, 6_000, true);
        let small = Setting {
            far_bytes: 1 << 20,
            ..setting.clone()
        };
        run(seed, &small, 40_000, 12_000, false);
        let short = Setting {
            short: true,
            ..setting
        };
        run(seed, &short, 30_000, 6_000, false);
    }
}

#[test]
fn model_with_failing_requests() {
    let faults = FaultPlan {
        seed: 11,
        failed_completions_per_million: 20_000,
        ..FaultPlan::default()
    };
    for seed in seeds() {
        let link = LinkModel {
            latency_ns: 2_000,
            faults: faults.clone(),
            ..LinkModel::default()
        };
        let reactor = run(
            seed,
            &Setting {
                link,
                ..Setting::default()
            },
            30_000,
            6_000,
            true,
        );
        assert!(reactor.shard.metrics.counters.snapshot().fabric_errors > 0);
    }
}

#[test]
fn model_with_sticky_faults() {
    let faults = FaultPlan {
        seed: 5,
        failed_completions_per_million: 10_000,
        sticky: true,
        ..FaultPlan::default()
    };
    for seed in seeds() {
        let link = LinkModel {
            latency_ns: 2_000,
            faults: faults.clone(),
            ..LinkModel::default()
        };
        run(
            seed,
            &Setting {
                link,
                ..Setting::default()
            },
            30_000,
            6_000,
            true,
        );
    }
}

#[test]
fn model_with_far_memory_that_fills_up() {
    for seed in seeds() {
        let setting = Setting {
            far_bytes: 1 << 20,
            ..Setting::default()
        };
        run(seed, &setting, 40_000, 12_000, false);
    }
}

/// A local key's slot, its position and its record.
fn local(reactor: &Reactor, key: u64) -> Option<(Position, Slot, LocalRecord)> {
    let name = format!("key-{key:05}").repeat(1 + (key % 5) as usize);
    let hash = reactor.hasher.hash(name.as_bytes()).index;
    let shard = &reactor.shard;
    shard.index.candidates(hash).find_map(|(position, slot)| {
        let record = shard.local.record_at(slot.address())?;
        (record.key() == name.as_bytes()).then_some((position, slot, record))
    })
}

#[test]
#[should_panic(expected = "seed 1")]
fn the_model_detects_exchanged_slots() {
    let sabotage = |reactor: &mut Reactor| {
        let found: Vec<_> = (0..6_000).filter_map(|key| local(reactor, key)).collect();
        for pair in found.chunks_exact(2) {
            let (one, other) = (pair[0], pair[1]);
            let index = &mut reactor.shard.index;
            index.replace(one.0, other.1.class(), other.1.address());
            index.replace(other.0, one.1.class(), one.1.address());
        }
    };
    let setting = Setting {
        sabotage: Some(sabotage),
        ..Setting::default()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
#[should_panic(expected = "seed 1")]
fn the_model_detects_a_changed_value() {
    let sabotage = |reactor: &mut Reactor| {
        for (_, _, record) in (0..6_000).filter_map(|key| local(reactor, key)) {
            if !record.value().is_empty() {
                let first = record.value().as_ptr().cast_mut();
                // SAFETY: inside a whole record, which nothing refers to now.
                unsafe { *first ^= 1 };
            }
        }
    };
    let setting = Setting {
        sabotage: Some(sabotage),
        ..Setting::default()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
fn operations_on_one_key_keep_their_order() {
    for seed in seeds() {
        let link = LinkModel {
            latency_ns: 2_000,
            jitter_ns: 6_000,
            ..LinkModel::default()
        };
        let mut reactor = Reactor::new(&Setting {
            link,
            ..Setting::default()
        });
        let mut random = Random(seed);
        for key in 0..20_000u64 {
            let stored = reactor.call(Operation::Put {
                key: &key.to_le_bytes(),
                value: &[1; 400],
            });
            assert!(matches!(stored, Owned::Stored(_)));
        }
        // What each key holds once all earlier requests are done, which determines each answer.
        let mut model: HashMap<u64, Option<Vec<u8>>> = HashMap::new();
        let mut expected: HashMap<u64, Option<Vec<u8>>> = HashMap::new();
        for step in 0..30_000u64 {
            // A few keys at a time, which are far by then.
            let key = step / 100 * 61 % 20_000 + random.below(3);
            let name = key.to_le_bytes();
            let held = model.entry(key).or_insert_with(|| Some(vec![1; 400]));
            let before = held.clone();
            let put = value(&mut random, (step % 300) as usize);
            let operation = match random.below(4) {
                0 => Operation::Put {
                    key: &name,
                    value: &put,
                },
                1 if step % 3 == 0 => Operation::Delete { key: &name },
                _ => Operation::Get { key: &name },
            };
            match operation {
                Operation::Put { .. } => *held = Some(put.clone()),
                Operation::Delete { .. } => *held = None,
                _ => {
                    expected.insert(step, before);
                }
            }
            while !reactor.offer(step, operation) {
                reactor.advance();
            }
            if random.below(8) == 0 || step % 100 == 99 {
                reactor.advance();
            }
            for (token, answer) in reactor.inbox.answers.borrow_mut().drain(..) {
                match (expected.remove(&token), answer) {
                    (Some(Some(held)), Owned::Value(_, read)) => {
                        assert_eq!(held, read, "seed {seed} step {step} token {token}");
                    }
                    (Some(None), Owned::Absent)
                    | (None, Owned::Stored(_) | Owned::Deleted | Owned::Absent) => {}
                    (held, answer) => panic!("seed {seed} step {step}: {answer:?}, not {held:?}"),
                }
            }
        }
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.far_reads > 100 && seen.reads_shared > 100, "{seen:?}");
    }
}
