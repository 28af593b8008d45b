//! Engines that were closed and are opened again.

use farcore::{Engine, LogPolicy};

use crate::work::{Random, steps};
use crate::{config, contents};

/// Works, closes and opens again, with other numbers of cores, with and without snapshots.
fn reopen(seed: u64, snapshots: bool, log: LogPolicy) {
    let dir = tempfile::tempdir().expect("there is room");
    let mut random = Random(seed);
    let mut before = contents::Contents::new();
    for round in 0..4 {
        let cores = 1 + usize::from(round % 2 == 1);
        let engine = Engine::open(config(dir.path(), cores, log)).expect("it opens");
        let found = contents::of(&engine);
        assert_eq!(found.len(), before.len(), "round {round}, seed {seed}");
        for (key, held) in &before {
            let name = String::from_utf8_lossy(key);
            assert_eq!(
                found.get(key),
                Some(held),
                "{name}, round {round}, seed {seed}"
            );
        }
        let mut handle = engine.handle().expect("a handle is free");
        steps(&mut handle, &mut random, 1500);
        if snapshots {
            let done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                let snapshot = scope.spawn(|| {
                    let made = engine.snapshot();
                    done.store(true, std::sync::atomic::Ordering::Release);
                    made
                });
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    steps(&mut handle, &mut random, 20);
                    if random.below(100) == 0 {
                        handle.clear().expect("it can be cleared");
                    }
                }
                let made = snapshot.join().expect("it does not panic");
                let made = made.expect("a snapshot is made");
                assert!(made.bytes > 0);
            });
        }
        if log != LogPolicy::Off {
            steps(&mut handle, &mut random, 1500);
            if round == 2 {
                handle.clear().expect("it can be cleared");
                steps(&mut handle, &mut random, 300);
            }
        }
        drop(handle);
        if log == LogPolicy::Off {
            engine.snapshot().expect("a snapshot is made");
        }
        before = contents::of(&engine);
        engine.close();
    }
}

#[test]
fn a_log_alone_brings_everything_back() {
    reopen(1, false, LogPolicy::EverySecond);
}

#[test]
fn a_log_of_which_all_answers_wait_brings_everything_back() {
    reopen(2, false, LogPolicy::Always);
}

#[test]
fn snapshots_amid_the_work_and_logs_bring_everything_back() {
    for seed in 3..9 {
        reopen(seed, true, LogPolicy::EverySecond);
    }
}

#[test]
fn a_snapshot_alone_brings_everything_back() {
    reopen(6, true, LogPolicy::Off);
}
