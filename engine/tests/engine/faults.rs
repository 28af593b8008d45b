//! Far memory that is lost, full or damaged: errors name the cause, and no other record is
//! affected.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashSet;

use farcore::{Answer, Config, Engine, Error, FaultPlan, LinkModel};

use crate::support::{answer_to, cores, every_encryption, key, tiny, value};

#[test]
fn full_far_memory_is_an_error_and_loses_nothing() {
    let engine = Engine::open(Config {
        far_bytes: 2 << 20,
        cores: cores(1),
        ..tiny()
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    let mut stored = Vec::new();
    let error = loop {
        let number = stored.len() as u64;
        match handle.put(&key(number), &value(number, 0)).wait() {
            Ok(_) => stored.push(number),
            Err(error) => break error,
        }
        assert!(number < 1_000_000);
    };
    assert!(
        matches!(error, Error::FarFull { limit, .. } if limit == 2 << 20),
        "{error}"
    );
    for number in &stored {
        let read = handle.get(&key(*number)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(*number, 0));
    }
    for number in stored.iter().take(stored.len() / 2) {
        assert!(handle.delete(&key(*number)).wait().unwrap());
    }
    for number in 0..500 {
        handle.put(&key(number), &value(number, 1)).wait().unwrap();
    }
}

#[test]
fn a_lost_node_is_an_error_and_comes_back() {
    let faults = FaultPlan {
        sticky: true,
        ..FaultPlan::default()
    };
    let link = LinkModel {
        faults,
        ..LinkModel::default()
    };
    let engine = Engine::open(Config { link, ..tiny() }).unwrap();
    let mut handle = engine.handle().unwrap();
    for number in 0..50_000 {
        handle.put(&key(number), &value(number, 0)).wait().unwrap();
    }
    engine.embedded_nodes()[0].lose();
    let errors = (0..2_000)
        .filter(|&n| handle.get(&key(n)).wait().is_err())
        .count();
    assert!(errors > 0, "the oldest keys are far");
    engine.embedded_nodes()[0].restore();
    for number in 0..50_000 {
        let read = handle.get(&key(number)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(number, 0), "{number}");
    }
}

#[test]
fn one_lost_node_of_two_keeps_its_own_keys_and_no_others() {
    let engine = Engine::open(Config {
        embedded_nodes: 2,
        ..tiny()
    })
    .unwrap();
    let total = engine.stats().far_total_bytes;
    assert_eq!(total, 64 << 20, "both shards' shares of both nodes");
    let mut handle = engine.handle().unwrap();
    let count = 50_000;
    for number in 0..count {
        handle.put(&key(number), &value(number, 0)).wait().unwrap();
    }
    let stats = engine.stats();
    let of_shards: u64 = stats.shards.iter().map(|shard| shard.far_used_bytes).sum();
    assert!(stats.far_used_bytes == of_shards && of_shards > 8 << 20);
    // Each key is on one of them, or local.
    let mut lost_on = [HashSet::new(), HashSet::new()];
    for (place, lost) in lost_on.iter_mut().enumerate() {
        engine.embedded_nodes()[place].lose();
        for number in (0..count).step_by(7) {
            match handle.get(&key(number)).wait() {
                Ok(read) => assert_eq!(&*read.unwrap(), value(number, 0), "{number}"),
                Err(Error::Unavailable { node, .. }) => {
                    assert_eq!(*node, *format!("embedded-{place}"));
                    lost.insert(number);
                }
                Err(error) => panic!("{number}: {error}"),
            }
        }
        // The other node takes all new pages.
        for number in count..count + 2_000 {
            match handle.put(&key(number), &value(number, 0)).wait() {
                // The key may share the slot bits of a lost one.
                Ok(_) | Err(Error::Unavailable { .. }) => {}
                Err(error) => panic!("{number}: {error}"),
            }
        }
        engine.flush().unwrap();
        engine.compact().unwrap();
        engine.embedded_nodes()[place].restore();
        for number in (0..count).step_by(7) {
            let read = handle.get(&key(number)).wait().unwrap().unwrap();
            assert_eq!(&*read, value(number, 0), "{number}");
        }
    }
    for lost in &lost_on {
        // How many, depends on what background work had flushed.
        assert!(lost.len() > 300 && lost.len() < 6_000, "{}", lost.len());
    }
}

#[test]
fn damaged_far_memory_is_detected() {
    let config = Config {
        cores: cores(1),
        ..tiny()
    };
    every_encryption(config)
        .into_iter()
        .for_each(damaged_is_noticed);
}

fn damaged_is_noticed(config: Config) {
    let engine = Engine::open(config).unwrap();
    let mut handle = engine.handle().unwrap();
    let count = 50_000;
    for number in 0..count {
        let (name, bytes) = (key(number), value(number, 0));
        handle
            .put_many(&[(&name, &bytes)], |_, answer| {
                assert!(matches!(answer, Answer::Stored { .. }));
            })
            .unwrap();
    }
    engine.flush().unwrap();
    for place in 0..2_000 {
        damage(&engine, place * 16_384 + 777);
    }
    let mut damaged = 0;
    for number in 0..count {
        match handle.get(&key(number)).wait() {
            Ok(Some(read)) => assert_eq!(&*read, value(number, 0), "{number}"),
            Ok(None) => panic!("{number} was lost without an error"),
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(damaged > 50, "{damaged}");
}

#[test]
fn puts_on_a_lost_node_end_in_an_error_and_lose_nothing() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let mut stored = 0;
    while stored < 30_000 {
        handle.put(&key(stored), &value(stored, 0)).wait().unwrap();
        stored += 1;
    }
    engine.embedded_nodes()[0].lose();
    // A key that shares the slot bits of a far one cannot be distinguished from it and fails alone.
    // Wait until every key fails.
    let mut in_a_row = 0;
    let mut there = stored;
    let mut holds: Vec<u64> = Vec::new();
    while in_a_row < 100 {
        match answer_to(handle.put(&key(there), &value(there, 0))) {
            Ok(_) => {
                holds.push(there);
                in_a_row = 0;
            }
            Err(Error::Unavailable { node, reason }) => {
                assert_eq!(&*node, "embedded-0", "{reason}");
                in_a_row += 1;
            }
            Err(error) => panic!("{error}"),
        }
        there += 1;
        assert!(there < 300_000, "local memory holds everything");
    }
    let error = engine.flush().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    engine.embedded_nodes()[0].restore();
    let mut tries = 0;
    while handle.put(&key(there), &value(there, 0)).wait().is_err() {
        std::thread::sleep(std::time::Duration::from_millis(1));
        tries += 1;
        assert!(tries < 10_000, "never came back");
    }
    for number in (0..stored).chain(holds).chain([there]) {
        let read = handle.get(&key(number)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(number, 0), "{number}");
    }
    engine.flush().unwrap();
    engine.embedded_nodes()[0].lose();
    let _ = handle.put(b"a", b"b").wait();
    engine.close();
}

#[test]
fn far_memory_that_two_shards_fill_is_an_error() {
    let engine = Engine::open(Config {
        far_bytes: 4 << 20,
        ..tiny()
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    let mut held = std::collections::HashMap::new();
    let (mut refused, mut round) = (0, 0);
    for number in 0..120_000u64 {
        let name = number % 60_000;
        round += u64::from(name == 0);
        match handle.put(&key(name), &value(name, round)).wait() {
            Ok(_) => {
                held.insert(name, round);
            }
            Err(Error::FarFull { limit, .. }) => {
                assert_eq!(limit, (4 << 20) / engine.shards() as u64);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 1_000, "{refused}");
    let error = engine.flush().unwrap_err();
    assert!(matches!(error, Error::FarFull { .. }), "{error}");
    let _ = engine.compact();
    for (&name, &round) in &held {
        let read = handle.get(&key(name)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(name, round), "{name}");
    }
    engine.close();
}

#[test]
fn damage_in_long_records_is_detected_by_every_operation() {
    let config = Config {
        local_bytes: 24 << 20,
        far_bytes: 128 << 20,
        page_bytes: Some(128 << 10),
        cores: cores(1),
        ..tiny()
    };
    every_encryption(config)
        .into_iter()
        .for_each(damage_in_long_records_is_noticed);
}

fn damage_in_long_records_is_noticed(config: Config) {
    let engine = Engine::open(config).unwrap();
    let mut handle = engine.handle().unwrap();
    let long = |number: u64| vec![number as u8; 20_000 + (number as usize * 37) % 9_000];
    let count = 2_000;
    for number in 0..count {
        handle.put(&key(number), &long(number)).wait().unwrap();
    }
    engine.flush().unwrap();
    for place in 0..8_000 {
        damage(&engine, place * 12_001 + 5);
    }
    let (mut damaged, mut fine) = ([0; 3], 0);
    for number in 0..count {
        let outcome = match number % 3 {
            0 => handle.get(&key(number)).wait().map(|read| {
                assert_eq!(&*read.unwrap(), long(number), "{number}");
            }),
            1 => handle
                .delete(&key(number))
                .wait()
                .map(|found| assert!(found)),
            _ => handle.put(&key(number), &long(number + 1)).wait().map(drop),
        };
        match outcome {
            Ok(()) => fine += 1,
            // Records that compaction found damaged first are lost.
            Err(Error::Damaged { .. } | Error::Unavailable { .. }) => {
                damaged[number as usize % 3] += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    // A put replaces a damaged record, and a delete removes it.
    let [gets, deletes, puts] = damaged;
    assert!(
        gets > 50 && deletes == 0 && puts == 0 && fine > 100,
        "{damaged:?} damaged, {fine} fine"
    );
    let seen = engine.stats().total;
    assert!(seen.records_damaged > 100, "{seen:?}");
    engine.close();
}

fn damage(engine: &Engine, offset: usize) {
    // SAFETY: no request is in flight: all calls have returned, and sealed pages are flushed.
    unsafe { engine.embedded_nodes()[0].damage(offset) };
}
