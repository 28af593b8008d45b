//! Room in local and far memory: when a shard becomes quiet, what `flush` and `compact` wait for,
//! and when far memory is full.

use super::nodes::get;
use super::{Outages, Owned, Random, Reactor, Setting};
use crate::error::Error;
use crate::message::operation::Operation;
use crate::shard::local::page_table::PageKind;

fn put(reactor: &mut Reactor, key: u64, bytes: usize) -> Owned {
    reactor.call(Operation::Put {
        key: &key.to_le_bytes(),
        value: &vec![key as u8; bytes],
    })
}

fn delete(reactor: &mut Reactor, key: u64) {
    let key = key.to_le_bytes();
    assert_eq!(
        reactor.call(Operation::Delete { key: &key }),
        Owned::Deleted
    );
}

/// Enough frames that more than the minimum are kept free.
fn many_frames() -> Setting {
    Setting {
        local_bytes: 12 << 20,
        far_bytes: 2 << 20,
        ..Setting::default()
    }
}

#[test]
fn a_shard_without_possible_work_is_quiet_however_many_frames_are_free() {
    for outages in [None, Some(Outages::Mute), Some(Outages::Cut)] {
        let mut reactor = Reactor::new(&many_frames());
        let (mut key, mut free, mut seen) = (0, usize::MAX, Vec::new());
        loop {
            if key == 5_000
                && let Some(outages) = outages
            {
                reactor.lose(0, outages);
            }
            match put(&mut reactor, key, 200) {
                Owned::Stored(_) => key += 1,
                Owned::Failed(Error::FarFull { .. }) if outages.is_none() => break,
                Owned::Failed(Error::Unavailable { .. }) if outages.is_some() => break,
                other => panic!("{other:?}"),
            }
            if reactor.shard.local.arena.free_count() == free {
                continue;
            }
            let mut rounds = 0;
            while !reactor.shard.is_quiet() {
                reactor.advance();
                rounds += 1;
                assert!(
                    rounds < 50_000,
                    "{outages:?}: never quiet, {free} frames free"
                );
            }
            free = reactor.shard.local.arena.free_count();
            seen.push(free);
        }
        // More than the reserve and less than the free target, among others.
        assert!(reactor.shard.local.arena.page_frames() / 64 > 1);
        assert!(
            seen.contains(&3) && seen.contains(&4),
            "{outages:?}: {seen:?}"
        );
        while !reactor.shard.is_quiet() {
            reactor.advance();
        }
        assert_eq!(
            reactor.shard.local.arena.free_count(),
            reactor.shard.local.arena.reserve()
        );
    }
}

#[test]
fn a_flush_ends_beside_a_writer_and_holds_what_was_stored_before() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 64 << 20,
        ..Setting::default()
    });
    let before = 4_000;
    for key in 0..before {
        assert!(matches!(put(&mut reactor, key, 200), Owned::Stored(_)));
    }
    reactor.shard.start_flush();
    let mut key = before;
    while reactor.shard.flush_done().is_none() {
        // As much as is flushed meanwhile.
        for _ in 0..60 {
            reactor.offer(
                1,
                Operation::Put {
                    key: &key.to_le_bytes(),
                    value: &[7; 200],
                },
            );
            key += 1;
        }
        reactor.advance();
        assert!(key < 2_000_000, "the flush does not end");
    }
    assert_eq!(reactor.shard.flush_done(), Some(Ok(())));
    let shard = &reactor.shard;
    assert!(!shard.local.sealed.is_empty(), "the writer was ahead");
    for key in 0..before {
        let hash = reactor.hash(&key.to_le_bytes());
        let mut places = shard.index.candidates(hash).map(|(_, slot)| slot.address());
        let is_far = places.any(|address| {
            let number = address.page(shard.shape);
            let page = shard.local.pages.get(number);
            page.kind() == PageKind::Cache || shard.far.pages.holds(number)
        });
        assert!(is_far, "key {key} is only local");
    }
}

#[test]
fn a_flush_does_not_wait_for_compaction() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 48 << 20,
        ..Setting::default()
    });
    let keys = 100_000;
    for key in 0..keys {
        assert!(matches!(put(&mut reactor, key, 200), Owned::Stored(_)));
    }
    // Deletes three fifths of every page, as far as they are accepted without a round in between:
    // many pages are worth compacting now.
    for key in (0..keys).filter(|key| key % 5 > 1) {
        reactor.offer(
            1,
            Operation::Delete {
                key: &key.to_le_bytes(),
            },
        );
    }
    let before = reactor.shard.metrics.counters.snapshot().compaction_pages;
    reactor.shard.start_flush();
    while reactor.shard.flush_done().is_none() {
        reactor.advance();
    }
    let compacted = reactor.shard.metrics.counters.snapshot().compaction_pages - before;
    assert_eq!(reactor.shard.flush_done(), Some(Ok(())));
    assert!(compacted < 4, "{compacted} pages were compacted first");
    // They are compacted afterwards.
    while !reactor.shard.is_quiet() {
        reactor.advance();
    }
    let compacted = reactor.shard.metrics.counters.snapshot().compaction_pages - before;
    assert!(compacted > 10, "{compacted}");
}

#[test]
fn a_compaction_ends_beside_a_writer() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 24 << 20,
        ..Setting::default()
    });
    let keys = 40_000;
    for key in 0..keys {
        assert!(matches!(put(&mut reactor, key, 200), Owned::Stored(_)));
    }
    // A fifth of each page is dead: worth compacting only when a caller requests it.
    for key in (0..keys).step_by(5) {
        delete(&mut reactor, key);
    }
    while !reactor.shard.is_quiet() {
        reactor.advance();
    }
    let used = reactor.shard.far.pages.used_bytes();
    reactor.shard.start_compaction();
    let mut random = Random(4);
    let mut rounds = 0;
    while reactor.shard.compaction_done().is_none() {
        // New writes leave dead records all the time.
        for _ in 0..4 {
            let key = random.below(keys / 4) * 4 + 1;
            let key = key.to_le_bytes();
            reactor.offer(
                1,
                Operation::Put {
                    key: &key,
                    value: &[7; 200],
                },
            );
        }
        reactor.advance();
        rounds += 1;
        assert!(rounds < 100_000, "the compaction does not end");
    }
    assert_eq!(reactor.shard.compaction_done(), Some(Ok(())));
    assert!(reactor.shard.far.pages.used_bytes() < used);
}

#[test]
fn far_memory_has_room_again_once_enough_was_deleted() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 4 << 20,
        ..Setting::default()
    });
    let mut key = 0;
    while let Owned::Stored(_) = put(&mut reactor, key, 200) {
        key += 1;
    }
    for round in 0..20u64 {
        let refused = put(&mut reactor, key, 200);
        assert!(
            matches!(refused, Owned::Failed(Error::FarFull { .. })),
            "{refused:?}"
        );
        // Deletes a twentieth of each page, another one each round.
        for dead in (round..key).step_by(20) {
            delete(&mut reactor, dead);
        }
        // The very next put finds room, without a round in between, and nearly as many puts succeed
        // as records died.
        let before = key;
        while let Owned::Stored(_) = put(&mut reactor, key, 200) {
            key += 1;
        }
        let (stored, died) = (key - before, before / 20);
        assert!(
            stored * 10 > died * 7,
            "round {round}: {stored} stored for {died} deleted"
        );
    }
}

#[test]
fn far_memory_is_filled_before_puts_are_refused() {
    for value_bytes in [60, 200, 700, 3_000] {
        let setting = Setting {
            far_bytes: 24 << 20,
            local_bytes: 8 << 20,
            ..Setting::default()
        };
        let mut reactor = Reactor::new(&setting);
        let mut random = Random(value_bytes as u64);
        let mut alive: Vec<u64> = Vec::new();
        let (mut next, mut least) = (0, f64::MAX);
        for _ in 0..6 {
            loop {
                match put(&mut reactor, next, value_bytes) {
                    Owned::Stored(_) => alive.push(next),
                    Owned::Failed(Error::FarFull { .. }) => break,
                    other => panic!("{other:?}"),
                }
                next += 1;
            }
            // Bytes of a record, with its directory entry.
            let record = (value_bytes + 8).next_multiple_of(16) + 16 + 12;
            let full = alive.len() * record;
            let far = setting.far_bytes as f64;
            let share =
                full as f64 / (far + reactor.shard.local.arena.page_frames() as f64 * 65536.0);
            least = share.min(least);
            // Deletes a third, at random.
            for _ in 0..alive.len() / 3 {
                let place = random.below(alive.len() as u64) as usize;
                let key = alive.swap_remove(place);
                delete(&mut reactor, key);
            }
        }
        assert!(least >= 0.92, "{value_bytes}: {least}");
    }
}

#[test]
fn the_index_leaves_the_log_the_frames_that_it_needs() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 64 << 20,
        ..Setting::default()
    });
    let mut key = 0;
    let refused = loop {
        match put(&mut reactor, key, 8) {
            Owned::Stored(_) => key += 1,
            other => break other,
        }
    };
    assert!(
        matches!(refused, Owned::Failed(Error::IndexFull { .. })),
        "{refused:?} at {key} keys"
    );
    assert!(reactor.shard.local.arena.page_frames() >= crate::constants::FRAMES_MIN);
    // Existing keys can be rewritten.
    for key in (0..key).step_by(17) {
        let stored = put(&mut reactor, key, 40);
        assert!(matches!(stored, Owned::Stored(_)), "{stored:?}");
    }
}

/// Keys whose record is in no far page.
fn only_local(reactor: &Reactor, keys: &[u64]) -> Vec<u64> {
    let shard = &reactor.shard;
    let is_far = |key: &u64| {
        let hash = reactor.hash(&key.to_le_bytes());
        shard.index.candidates(hash).any(|(_, slot)| {
            let number = slot.address().page(shard.shape);
            let page = shard.local.pages.get(number);
            page.kind() == PageKind::Cache || shard.far.pages.holds(number)
        })
    };
    keys.iter().copied().filter(|key| !is_far(key)).collect()
}

#[test]
fn a_flush_covers_what_compaction_moves_meanwhile() {
    let mut found = 0;
    for compacts in [false, true] {
        let mut reactor = Reactor::new(&Setting {
            far_bytes: 24 << 20,
            ..Setting::default()
        });
        let keys = 40_000u64;
        for key in 0..keys {
            reactor.call(Operation::Put {
                key: &key.to_le_bytes(),
                value: &[1; 200],
            });
        }
        let mut random = Random(4);
        let mut alive = Vec::new();
        for key in 0..keys {
            if random.below(10) < 5 {
                reactor.call(Operation::Delete {
                    key: &key.to_le_bytes(),
                });
            } else {
                alive.push(key);
            }
        }
        if compacts {
            reactor.shard.start_compaction();
        }
        reactor.shard.start_flush();
        while reactor.shard.flush_done().is_none() {
            reactor.advance();
        }
        assert_eq!(reactor.shard.flush_done(), Some(Ok(())));
        let after = only_local(&reactor, &alive);
        let count = after.len();
        found = found.max(count);
    }
    // The round in which it ended ran one more slice of compaction, which moves far records.
    assert!(found <= 64, "{found} records are only local");
}

#[test]
fn a_trim_gives_back_what_holds_little() {
    let mut reactor = Reactor::new(&Setting::default());
    let keys = 900;
    for key in 0..keys {
        put(&mut reactor, key, 500);
    }
    let taken = |reactor: &Reactor| {
        let arena = &reactor.shard.local.arena;
        arena.page_frames() - arena.free_count()
    };
    let full = taken(&reactor);
    let trim = |reactor: &mut Reactor, keep_bytes| {
        reactor.shard.start_trim(keep_bytes);
        for _ in 0..100_000 {
            if !reactor.shard.is_trimming() {
                return;
            }
            reactor.advance();
        }
        panic!("the trim does not end");
    };
    // Full pages stay, whatever the limit.
    trim(&mut reactor, Some(0));
    assert!(taken(&reactor) >= full, "{} of {full}", taken(&reactor));
    // Values that shrink leave dead bytes, as deletes do.
    for key in (0..keys).filter(|key| key % 10 > 0) {
        if key % 2 == 0 {
            delete(&mut reactor, key);
        } else {
            put(&mut reactor, key, 8);
        }
    }
    assert!(taken(&reactor) + 1 >= full, "{} of {full}", taken(&reactor));
    trim(&mut reactor, None);
    assert!(taken(&reactor) <= full / 2, "{} of {full}", taken(&reactor));
    for key in 0..keys {
        let length = match key {
            key if key % 10 == 0 => 500,
            key if key % 2 == 0 => {
                assert_eq!(get(&mut reactor, key), Owned::Absent);
                continue;
            }
            _ => 8,
        };
        let answer = get(&mut reactor, key);
        let is_right = matches!(&answer, Owned::Value(_, value) if value.len() == length);
        assert!(is_right, "{key}: {answer:?}");
    }
    reactor.check();
}
