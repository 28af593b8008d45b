//! A shard that evicts: puts never fail for lack of memory, what is evicted is absent and stays so,
//! and what goes first.

use farcore_rdma::{FaultPlan, LinkModel};

use super::{ENCRYPTIONS, Owned, Random, Reactor, Setting, run, seeds, value};
use crate::journal::{Entry, EntryKind};
use crate::message::change::{Change, Condition};
use crate::message::expiry::Expiry;
use crate::message::operation::Operation;
use crate::message::transaction::Transaction;
use crate::shard::room::compactor::Fate;
use crate::shard::tests::Outages;

fn cache() -> Setting {
    Setting {
        evicts: true,
        far_bytes: 1 << 20,
        ..Setting::default()
    }
}

fn put(reactor: &mut Reactor, key: u64, bytes: usize) {
    let answer = reactor.call(Operation::Put {
        key: &key.to_le_bytes(),
        value: &vec![key as u8; bytes],
    });
    assert!(matches!(answer, Owned::Stored(_)), "{answer:?}");
}

/// True if the key is there, with the value of [`put`].
fn get(reactor: &mut Reactor, key: u64, bytes: usize) -> bool {
    match reactor.call(Operation::Get {
        key: &key.to_le_bytes(),
    }) {
        Owned::Value(_, value) => {
            assert_eq!(value, vec![key as u8; bytes]);
            true
        }
        Owned::Absent => false,
        answer => panic!("{answer:?}"),
    }
}

fn seen(reactor: &Reactor) -> farcore_tuning::ShardSnapshot {
    reactor.shard.metrics.counters.snapshot()
}

#[test]
fn model_of_a_cache() {
    let slow = LinkModel {
        latency_ns: 3_000,
        jitter_ns: 9_000,
        ..LinkModel::default()
    };
    for seed in seeds() {
        for encryption in ENCRYPTIONS {
            let setting = Setting {
                encryption,
                short: true,
                ..cache()
            };
            let reactor = run(seed, &setting, 40_000, 12_000, false);
            assert!(seen(&reactor).evicted > 1_000, "{:?}", seen(&reactor));
            assert!(seen(&reactor).eviction_pages > 0, "{:?}", seen(&reactor));
            let far = Setting {
                link: slow.clone(),
                lanes: 3,
                short: false,
                ..setting
            };
            run(seed, &far, 30_000, 12_000, false);
        }
    }
}

#[test]
fn model_of_a_cache_with_little_far_memory() {
    for seed in seeds() {
        for far_bytes in [64 << 10, 128 << 10, 2 << 20] {
            let setting = Setting {
                far_bytes,
                short: true,
                ..cache()
            };
            let reactor = run(seed, &setting, 40_000, 24_000, false);
            assert!(seen(&reactor).evicted > 0, "{:?}", seen(&reactor));
        }
    }
}

#[test]
fn model_of_a_cache_with_failing_requests() {
    for (seed, sticky) in seeds()
        .into_iter()
        .flat_map(|seed| [(seed, false), (seed, true)])
    {
        let faults = FaultPlan {
            seed: 11,
            failed_completions_per_million: 10_000,
            sticky,
            ..FaultPlan::default()
        };
        let link = LinkModel {
            latency_ns: 2_000,
            faults,
            ..LinkModel::default()
        };
        let reactor = run(seed, &Setting { link, ..cache() }, 30_000, 12_000, true);
        assert!(seen(&reactor).evicted > 0, "{:?}", seen(&reactor));
    }
}

#[test]
fn model_of_a_cache_whose_nodes_are_lost_or_damage_records() {
    let nodes = Setting {
        nodes: 2,
        ..cache()
    };
    for seed in seeds() {
        let losses = Setting {
            losses: true,
            far_bytes: 256 << 10,
            ..nodes.clone()
        };
        let reactor = run(seed, &losses, 40_000, 30_000, false);
        assert!(seen(&reactor).evicted > 0, "{:?}", seen(&reactor));
        for outages in [Outages::Mute, Outages::Cut] {
            let outages = Setting {
                outages: Some(outages),
                ..nodes.clone()
            };
            run(seed, &outages, 40_000, 30_000, false);
        }
        let damage = Setting {
            damage: true,
            ..nodes.clone()
        };
        run(seed, &damage, 40_000, 30_000, false);
    }
}

#[test]
fn puts_never_fail_however_many_there_are() {
    for far_bytes in [64 << 10, 1 << 20, 4 << 20] {
        let mut reactor = Reactor::new(&Setting {
            far_bytes,
            ..cache()
        });
        let mut random = Random(3);
        for key in 0..60_000 {
            put(&mut reactor, key, random.below(500) as usize);
        }
        reactor.check();
        let seen = seen(&reactor);
        assert_eq!(seen.puts_failed, 0);
        assert!(
            seen.evicted > 10_000 && seen.evicted_bytes > 1 << 20,
            "{seen:?}"
        );
        // Keys that are neither there nor evicted do not exist.
        assert_eq!(reactor.shard.index.len() as u64 + seen.evicted, 60_000);
    }
}

#[test]
fn without_eviction_far_memory_fills_up() {
    let mut reactor = Reactor::new(&Setting {
        evicts: false,
        ..cache()
    });
    let failed = (0..60_000u64).any(|key| {
        let answer = reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[7; 200],
        });
        matches!(answer, Owned::Failed(crate::error::Error::FarFull { .. }))
    });
    assert!(failed);
    assert_eq!(
        (seen(&reactor).evicted, seen(&reactor).eviction_pages),
        (0, 0)
    );
}

#[test]
fn records_that_are_read_stay_longer_than_those_that_are_not() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 4 << 20,
        ..cache()
    });
    // One in ten is read again and again.
    for key in 0..60_000u64 {
        put(&mut reactor, key, 200);
        let read = key / 10 * 10 % 3_000;
        if key >= 3_000 {
            get(&mut reactor, read, 200);
        }
    }
    let found = |reactor: &mut Reactor, keys: &[u64]| {
        keys.iter().filter(|&&key| get(reactor, key, 200)).count()
    };
    let read: Vec<u64> = (0..3_000).filter(|key| key % 10 == 0).collect();
    let unread: Vec<u64> = (0..3_000).filter(|key| key % 10 != 0).collect();
    // But for a few whose hash shares its entry with another.
    assert!(found(&mut reactor, &read) > 290);
    assert_eq!(found(&mut reactor, &unread), 0);
}

#[test]
fn expired_records_go_before_live_ones() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 4 << 20,
        ..cache()
    });
    reactor.shard.note_unix_ms(1_000);
    // Live records first, so that by age alone they would go first.
    for key in 0..6_000u64 {
        put(&mut reactor, key, 200);
    }
    for key in 100_000..109_000u64 {
        let change = Change::Put {
            value: &[1; 200],
            expiry: Expiry::At(2_000),
            condition: Condition::Always,
            previous: false,
        };
        let key = key.to_le_bytes();
        let answer = reactor.call(Operation::Change { key: &key, change });
        assert!(matches!(answer, Owned::Stored(_)), "{answer:?}");
    }
    let before = seen(&reactor);
    assert_eq!(before.evicted, 0, "all of them fit");
    // All of these have expired now.
    reactor.shard.note_unix_ms(3_000);
    reactor.now_ns += 2_000_000_000;
    for _ in 0..20_000 {
        reactor.advance();
    }
    for key in 200_000..206_000u64 {
        put(&mut reactor, key, 200);
    }
    let after = seen(&reactor);
    assert!(after.expired > 8_000, "{after:?}");
    assert_eq!(after.evicted, 0, "live records went: {after:?}");
    assert!((0..6_000).all(|key| get(&mut reactor, key, 200)));
}

#[test]
fn an_index_without_memory_evicts() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 64 << 20,
        keys_expected: 100,
        ..cache()
    });
    // More keys than the index can hold in all of local memory.
    for key in 0..300_000u64 {
        put(&mut reactor, key, 1);
    }
    reactor.check();
    let seen = seen(&reactor);
    assert_eq!(seen.puts_failed, 0);
    assert!(seen.evicted > 10_000, "{seen:?}");
    assert_eq!(reactor.shard.index.len() as u64 + seen.evicted, 300_000);
    let there = (299_000..300_000u64).filter(|&key| get(&mut reactor, key, 1));
    assert!(there.count() > 900);
}

#[test]
fn local_memory_is_a_cache_while_no_node_answers() {
    for outages in [Outages::Mute, Outages::Cut] {
        let mut reactor = Reactor::new(&cache());
        reactor.lose(0, outages);
        for key in 0..30_000 {
            put(&mut reactor, key, 300);
        }
        assert_eq!(seen(&reactor).puts_failed, 0);
        assert!(seen(&reactor).evicted > 10_000, "{:?}", seen(&reactor));
        assert!((29_900..30_000).all(|key| get(&mut reactor, key, 300)));
        reactor.restore(0);
        // Background work leaves the node alone for a while.
        for _ in 0..3_000 {
            reactor.advance();
        }
        for key in 30_000..60_000 {
            put(&mut reactor, key, 300);
        }
        assert!(seen(&reactor).pages_flushed > 10, "{:?}", seen(&reactor));
    }
}

#[test]
fn a_flush_of_a_full_cache_ends() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 256 << 10,
        ..cache()
    });
    for key in 0..20_000 {
        put(&mut reactor, key, 300);
    }
    reactor.shard.start_flush();
    for _ in 0..200_000 {
        if reactor.shard.flush_done().is_some() {
            break;
        }
        reactor.advance();
    }
    assert_eq!(reactor.shard.flush_done(), Some(Ok(())));
    assert!(reactor.shard.local.sealed.is_empty());
    reactor.check();
}

#[test]
fn a_copy_of_an_evicted_record_goes_with_it() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 4 << 20,
        ..cache()
    });
    for key in 0..12_000 {
        put(&mut reactor, key, 200);
    }
    // Twice soon, so that they are copied.
    for place in 0..1_200 {
        get(&mut reactor, 2_000 + place * 163 % 400, 200);
    }
    assert!(seen(&reactor).cache_copies > 100, "{:?}", seen(&reactor));
    while reactor.shard.compactor.victim_page().is_some()
        || reactor.shard.evict_oldest_far(Fate::Goes)
    {
        reactor.advance();
    }
    reactor.check();
    assert!((2_000..2_400).all(|key| !get(&mut reactor, key, 200)));
    let copies = reactor.shard.cache.frames();
    assert!(copies == 0, "{copies} pages of copies are left");
}

#[test]
fn a_random_value_is_never_an_old_one() {
    let mut reactor = Reactor::new(&cache());
    let mut random = Random(7);
    let mut latest = vec![Vec::new(); 8_000];
    for _ in 0..80_000 {
        let key = random.below(8_000);
        let name = key.to_le_bytes();
        if random.below(2) == 0 {
            let bytes = random.below(600) as usize;
            latest[key as usize] = value(&mut random, bytes);
            let value = &latest[key as usize];
            let answer = reactor.call(Operation::Put { key: &name, value });
            assert!(matches!(answer, Owned::Stored(_)), "{answer:?}");
        } else if let Owned::Value(_, found) = reactor.call(Operation::Get { key: &name }) {
            assert_eq!(found, latest[key as usize]);
        }
    }
    assert!(seen(&reactor).evicted > 1_000);
}

/// What makes room in the index goes unread where it is far, so it is not known whose key is
/// absent.
#[test]
fn a_key_that_was_evicted_unread_does_not_count_as_absent_all_along() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 64 << 20,
        ..cache()
    });
    reactor.shard.absences.begin();
    for key in 0..30_000 {
        put(&mut reactor, key, 300);
    }
    let slot_of = |reactor: &Reactor, key: u64| {
        let hash = reactor.hash(&key.to_le_bytes());
        let slot = reactor.shard.index.candidates(hash).next();
        slot.filter(|(_, slot)| reactor.shard.framed_of(slot.address()).is_far())
    };
    let far = (0..30_000).find(|&key| slot_of(&reactor, key).is_some());
    let key = far.unwrap();
    let hash = reactor.hash(&key.to_le_bytes());
    let slot = slot_of(&reactor, key).unwrap();
    // Another key, whose slot would have its place near.
    let mut others = (0..30_000).filter(|&other| other != key);
    let near = others.find_map(|other: u64| {
        let near = reactor.hash(&other.to_le_bytes());
        let mut slots = reactor.shard.index.near(near, 2);
        slots.any(|(_, found)| found == slot.1).then_some(near)
    });
    put(&mut reactor, 1 << 40, 300);
    let since = reactor.shard.version - 1;
    assert!(reactor.shard.absences.hold(hash, since));
    reactor.shard.evict_near(near.unwrap(), slot);
    assert!(!get(&mut reactor, key, 300));
    assert!(!reactor.shard.absences.hold(hash, since));
}

/// A base may have what was evicted: what a client has removed since must not come back from it.
#[test]
fn removals_of_what_may_have_been_evicted_are_in_the_journal() {
    let absent = b"absent";
    let delete = Change::Delete {
        condition: Condition::Always,
        previous: true,
    };
    let past = Change::Put {
        value: b"value",
        expiry: Expiry::At(1),
        condition: Condition::Always,
        previous: false,
    };
    let change = |change| Operation::Change {
        key: absent,
        change,
    };
    let transaction = Transaction::new().delete(absent).put(b"other", b"value");
    let transaction = Operation::Transaction {
        transaction: &transaction,
    };
    let removals = [
        Operation::Delete { key: absent },
        change(delete),
        change(past),
        transaction,
    ];
    for evicts in [false, true] {
        for removal in &removals {
            let mut reactor = Reactor::new(&Setting { evicts, ..cache() });
            reactor.shard.note_unix_ms(1_000);
            reactor.shard.start_journal(false);
            let answer = reactor.call(*removal);
            assert!(!matches!(answer, Owned::Failed(_)), "{answer:?}");
            let version = reactor.shard.version();
            let journal = reactor.shard.journal().expect("it was started");
            let mut waiting = journal.waiting();
            let mut deleted = 0;
            while let Ok(Some((entry, length))) = Entry::parse(waiting) {
                let is_its = entry.key == absent && entry.kind == EntryKind::Delete;
                deleted += u64::from(is_its);
                assert!(!is_its || entry.version > 0 && entry.version <= version);
                waiting = &waiting[length..];
            }
            assert_eq!(deleted, u64::from(evicts), "{removal:?}");
        }
    }
}
