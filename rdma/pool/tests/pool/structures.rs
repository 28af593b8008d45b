//! Structures that several sessions use over sockets.

use std::future::IntoFuture;
use std::thread;
use std::time::Duration;

use farcore_pool::structures::{
    Change, RemoteCounter, RemoteLock, RemoteMap, RemoteOnceTable, RemoteQueue, RemoteStack,
};
use farcore_pool::{Exported, PoolError, PoolOptions};

use crate::nodes::{connect, connect_with, isolated_node, node, until};

#[test]
fn structures_are_opened_by_other_sessions() {
    for node in [node(64), isolated_node(64)] {
        let (first, second) = (connect(&[&node]), connect(&[&node]));
        let counter = RemoteCounter::create(&first, 5).wait().unwrap();
        let exported = counter.export().wait().unwrap();
        let text: Exported<u64> = exported.to_string().parse().unwrap();
        let same = RemoteCounter::open(&second, &text).wait().unwrap();
        assert_eq!(same.add(2).wait().unwrap(), 5);
        assert_eq!(counter.get().wait().unwrap(), 7);
        let wrong = RemoteStack::<u32>::open(&second, &exported).wait();
        assert!(
            matches!(wrong, Err(PoolError::WrongType { .. })),
            "{wrong:?}"
        );

        let stack = RemoteStack::<[u64; 2]>::create(&first, 10).wait().unwrap();
        let exported = stack.export().wait().unwrap();
        let same: RemoteStack<[u64; 2]> = RemoteStack::open(&second, &exported).wait().unwrap();
        assert!(same.push(&[1_u64, 2]).wait().unwrap());
        assert_eq!(stack.pop().wait().unwrap(), Some([1, 2]));
        assert!(RemoteStack::<u8>::open(&second, &exported).wait().is_err());

        let queue = RemoteQueue::<u16>::create(&first, 10).wait().unwrap();
        let exported = queue.export().wait().unwrap();
        let same: RemoteQueue<u16> = RemoteQueue::open(&second, &exported).wait().unwrap();
        for value in 0..10_u16 {
            assert!(queue.push(&value).wait().unwrap());
        }
        assert!(!same.push(&10).wait().unwrap());
        for value in 0..10_u16 {
            assert_eq!(same.pop().wait().unwrap(), Some(value));
        }
        assert_eq!(queue.pop().wait().unwrap(), None);

        let table = RemoteOnceTable::<u8, bool>::create(&first, 10)
            .wait()
            .unwrap();
        let exported = table.export().wait().unwrap();
        let same: RemoteOnceTable<u8, bool> =
            RemoteOnceTable::open(&second, &exported).wait().unwrap();
        assert_eq!(same.set(&1_u8, &true).wait().unwrap(), None);
        assert_eq!(table.set(&1, &false).wait().unwrap(), Some(true));
        for key in 2..=10 {
            table.set(&key, &true).wait().unwrap();
        }
        let full = table.set(&11, &true).wait().unwrap_err();
        assert!(matches!(full, PoolError::Exhausted { .. }));
        assert_eq!(same.get(&10_u8).wait().unwrap(), Some(true));
        assert_eq!(same.get(&11).wait().unwrap(), None);
    }
}

#[test]
fn a_map_grows_under_all_that_use_it() {
    for node in [node(256), isolated_node(256)] {
        let (first, second) = (connect(&[&node]), connect(&[&node]));
        let map = RemoteMap::create(&first, 100).wait().unwrap();
        let exported = map.export().wait().unwrap();
        let same: RemoteMap<u64, u64> = RemoteMap::open(&second, &exported).wait().unwrap();
        assert_eq!(map.insert(&1_u64, &1_u64).wait().unwrap(), None);
        assert_eq!(same.get(&1).wait().unwrap(), Some(1));
        let entries = map.figures().entries;
        // The other session has it grow, and then the first: each learns of it.
        for key in 2..600 {
            same.insert(&key, &key).wait().unwrap();
        }
        assert!(same.figures().entries > entries);
        assert_eq!(map.figures().entries, entries);
        same.insert(&1, &9).wait().unwrap();
        assert_eq!(map.get(&1).wait().unwrap(), Some(9));
        for key in 600..1500 {
            map.update(&key, |old| Change::Set(old.unwrap_or(0) + key))
                .wait()
                .unwrap();
        }
        for key in 2..1500 {
            assert_eq!(same.get(&key).wait().unwrap(), Some(key));
        }
        assert_eq!(same.count().wait().unwrap(), 1499);
        assert_eq!(same.remove(&700).wait().unwrap(), Some(700));
        assert_eq!(map.get(&700).wait().unwrap(), None);
        // It outlives its creator, with the memory that either had it grow into.
        drop((map, first));
        for key in 2..700 {
            assert_eq!(same.get(&key).wait().unwrap(), Some(key));
        }
        drop((same, second));
        let third = connect(&[&node]);
        until(|| third.alloc::<u8>(256 << 16).wait().is_ok());
    }
}

#[test]
fn a_call_inside_another_one_ends() {
    let node = node(64);
    let pool = connect(&[&node]);
    let map = RemoteMap::create(&pool, 10).wait().unwrap();
    let other = pool.alloc_box(5_u64).wait().unwrap();
    let add = |old: Option<u64>| {
        let more = other.read().wait().unwrap();
        Change::Set(old.unwrap_or(0) + more)
    };
    assert_eq!(map.update(&1_u64, add).wait().unwrap(), None);
    assert_eq!(map.update(&1, add).wait().unwrap(), Some(5));
    assert_eq!(map.get(&1).wait().unwrap(), Some(10));
}

#[test]
fn a_task_that_moves_between_threads_is_driven() {
    let node = node(64);
    let options = PoolOptions {
        connections: 4,
        ..PoolOptions::default()
    };
    let pool = connect_with(&[&node], options);
    let map = RemoteMap::create(&pool, 10).wait().unwrap();
    let mut insert = std::pin::pin!(map.insert(&1_u64, &2_u64).into_future());
    let mut is_done = false;
    while !is_done {
        // Each poll on a thread of its own, as a runtime that steals tasks may have it.
        let poll = || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            insert.as_mut().poll(&mut context).is_ready()
        };
        is_done = thread::scope(|scope| scope.spawn(poll).join().unwrap());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(map.get(&1).wait().unwrap(), Some(2));
}

#[test]
fn one_read_finds_nearly_all_keys() {
    let node = node(256);
    let pool = connect(&[&node]);
    let map = RemoteMap::create(&pool, 20_000).wait().unwrap();
    let entries = map.figures().entries;
    let keys = entries * 4 / 5;
    thread::scope(|scope| {
        for part in 0..4 {
            let map = &map;
            scope.spawn(move || {
                for key in (part..keys).step_by(4) {
                    map.insert(&key, &!key).wait().unwrap();
                }
            });
        }
    });
    assert_eq!(map.figures().entries, entries, "it did not grow");
    for key in 0..keys {
        assert_eq!(map.get(&key).wait().unwrap(), Some(!key));
    }
    let figures = map.figures();
    assert_eq!(figures.lookups, keys);
    let more = figures.reads - figures.lookups;
    assert!(more * 100 < keys, "{more} further reads for {keys} keys");
    assert_eq!(map.get(&keys).wait().unwrap(), None);
}

#[test]
fn a_lock_serves_in_order_and_passes_over_the_dead() {
    let node = node(16);
    let (first, second) = (connect(&[&node]), connect(&[&node]));
    // Long enough for a busy machine: a holder that does not come to its turn loses its lock.
    let long = Duration::from_secs(60);
    let lock = RemoteLock::create(&first, long).wait().unwrap();
    let exported = lock.export().wait().unwrap();
    let same = RemoteLock::open(&second, &exported).wait().unwrap();
    assert_eq!(same.lease(), long);
    // Two words that only the holder of the lock changes, one after the other.
    let words = first.alloc_from(&[0_u64, 0]).wait().unwrap();
    let exported = words.export(true).wait().unwrap();
    let theirs = second.import(&exported).wait().unwrap();
    thread::scope(|scope| {
        for (lock, words) in [
            (&lock, &words),
            (&same, &theirs),
            (&lock, &words),
            (&same, &theirs),
        ] {
            scope.spawn(move || {
                for _ in 0..25 {
                    let held = lock.lock().wait().unwrap();
                    let seen = words.to_vec().wait().unwrap();
                    assert_eq!(seen[0], seen[1]);
                    words.write(0, &(seen[0] + 1)).wait().unwrap();
                    held.renew().wait().unwrap();
                    words.write(1, &(seen[0] + 1)).wait().unwrap();
                    held.unlock().wait().unwrap();
                }
            });
        }
    });
    assert_eq!(words.to_vec().wait().unwrap(), [100, 100]);
    let held = lock.lock().wait().unwrap();
    assert!(same.try_lock().wait().unwrap().is_none());
    held.unlock().wait().unwrap();
    // The holder does not renew: its lock passes on, with a higher token.
    let short = Duration::from_millis(300);
    let lock = RemoteLock::create(&first, short).wait().unwrap();
    let exported = lock.export().wait().unwrap();
    let same = RemoteLock::open(&second, &exported).wait().unwrap();
    let held = lock.lock().wait().unwrap();
    let next = same.lock().wait().unwrap();
    assert!(next.token() > held.token());
    assert!(matches!(held.renew().wait(), Err(PoolError::Gone { .. })));
    assert!(matches!(held.unlock().wait(), Err(PoolError::Gone { .. })));
    // A guard that is dropped unlocks.
    drop(next);
    drop(lock.lock().wait().unwrap());
    until(|| same.try_lock().wait().unwrap().is_some());
    for lease in [Duration::ZERO, Duration::from_hours(25)] {
        assert!(RemoteLock::create(&first, lease).wait().is_err());
    }
}
