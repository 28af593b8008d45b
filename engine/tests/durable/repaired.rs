//! What a memory node has lost comes back from the data directory, while the engine serves.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use farcore::statistics::RepairsReport;
use farcore::{Config, Engine, Error, Handle, LogPolicy, Reporter};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};

use crate::contents;
use crate::figures::block_next;
use crate::work::{Random, steps};

/// The time limit for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Keys of long values that fill the memory, and many of short ones.
const LONG: Fillers = Fillers {
    keys: 2_000,
    bytes: 12_000,
};
const SHORT: Fillers = Fillers {
    keys: 24_000,
    bytes: 800,
};

/// Keys that fill the memory.
#[derive(Clone, Copy)]
struct Fillers {
    keys: u32,
    bytes: usize,
}

fn node(port: u16) -> NodeHandle {
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(64 << 20)
    };
    let options = NodeOptions::new(([127, 0, 0, 1], port).into(), memory);
    MemoryNode::start(options).expect("a node")
}

fn config(dir: &Path, nodes: &[&NodeHandle], cores: usize, log: LogPolicy) -> Config {
    let address = |node: &&NodeHandle| format!("tcp://{}", node.address());
    let addresses = nodes.iter().map(address);
    Config {
        far_bytes: 96 << 20,
        nodes: addresses
            .map(|node| node.parse().expect("an address"))
            .collect(),
        // Long enough for a node that shares two busy cores with other processes.
        far_silence_ns: 2_000_000_000,
        lock: Lock::Off,
        local_bytes: 12 * cores as u64 * (1 << 20),
        ..crate::config(dir, cores, log)
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Fillers {
    fn one(self, number: u32) -> (String, Vec<u8>) {
        let byte = number.to_le_bytes()[0];
        let bytes = self.bytes + number as usize % 300;
        (format!("filler{number}"), vec![byte; bytes])
    }

    fn put(self, handle: &mut Handle) {
        for number in 0..self.keys {
            let (key, value) = self.one(number);
            let put = handle.put(key.as_bytes(), &value).wait();
            put.expect("there is room");
        }
    }
}

/// A node ends, and one without its memory takes its place.
fn lose(engine: &Engine, node_of: &mut Option<NodeHandle>) {
    let before = repairs(engine);
    let old = node_of.take().expect("a node runs");
    let port = old.address().port();
    old.stop();
    *node_of = Some(node(port));
    wait_until("the loss", || {
        engine.stats().total.lost_keys > 0 || repairs(engine) > before
    });
}

/// Repairs that were completed.
fn repairs(engine: &Engine) -> u64 {
    engine.durable_stats().map_or(0, |stats| stats.repairs)
}

/// All that is lost is back, and cores have learned of this number of losses: each core has a
/// session of its own with a node.
fn is_repaired(engine: &Engine, losses: usize) -> bool {
    let stats = engine.durable_stats().expect("it has a directory");
    let total = engine.stats().total;
    total.nodes_lost >= losses as u64 && !stats.is_repairing && total.lost_keys == 0
}

fn assert_same(engine: &Engine, before: &contents::Contents, when: &str) {
    let after = contents::of(engine);
    for (key, held) in before {
        let name = String::from_utf8_lossy(key);
        assert!(after.get(key) == Some(held), "{name} {when}");
    }
    assert_eq!(after.len(), before.len(), "{when}");
}

/// Works, loses a node, and compares what is there with what was.
fn lose_and_repair(seed: u64, cores: usize, log: LogPolicy, snapshots: u32) {
    let dir = tempfile::tempdir().expect("there is room");
    let mut two = [Some(node(0)), Some(node(0))];
    let nodes = [
        two[0].as_ref().expect("it runs"),
        two[1].as_ref().expect("it runs"),
    ];
    let config = config(dir.path(), &nodes, cores, log);
    let engine = Engine::open(config.clone()).expect("it opens");
    let mut random = Random(seed);
    let mut handle = engine.handle().expect("a handle is free");
    // Where each answer waits for the disk, less is done.
    let count = if log == LogPolicy::Always { 300 } else { 3000 };
    steps(&mut handle, &mut random, count);
    LONG.put(&mut handle);
    for _ in 0..snapshots {
        engine.snapshot().expect("a snapshot is made");
        steps(&mut handle, &mut random, count);
        LONG.put(&mut handle);
    }
    engine.flush().expect("far memory has room");
    let before = contents::of(&engine);
    for (losses, place) in [(1, 1), (2, 0)] {
        let done = repairs(&engine);
        lose(&engine, &mut two[place]);
        let when = format!("after the loss of node {place}, seed {seed}");
        let repaired = engine.repair();
        // The engine may have begun by itself, amid the loss.
        wait_until("the repair", || {
            is_repaired(&engine, losses * cores) && repairs(&engine) > done
        });
        let stats = engine.durable_stats().expect("it has a directory");
        assert!(stats.repaired_keys > 100, "{when}: {repaired:?}, {stats:?}");
        let report = engine.reporter().report().data.expect("there is one");
        let shown = report.repairs;
        assert!(!shown.is_under_way && shown.error.is_empty(), "{shown:?}");
        assert_eq!(shown.completed, stats.repairs, "{when}");
        assert_eq!(shown.failed, stats.failed_repairs, "{when}");
        assert_eq!(shown.keys, stats.repaired_keys, "{when}");
        assert_same(&engine, &before, &when);
        engine.flush().expect("far memory has room");
    }
    // Nothing stands in the way of a snapshot, and of changes.
    engine.snapshot().expect("a snapshot is made");
    assert_same(&engine, &before, "after a snapshot");
    steps(&mut handle, &mut random, count);
    let before = contents::of(&engine);
    drop(handle);
    engine.close();
    let engine = Engine::open(config).expect("it opens");
    assert_same(&engine, &before, "after a restart");
}

#[test]
fn what_a_node_has_lost_comes_back_from_a_log_alone() {
    let seed: u64 = std::env::var("SEED").map_or(1, |s| s.parse().unwrap());
    lose_and_repair(seed, 2, LogPolicy::EverySecond, (seed % 3) as u32);
}

#[test]
fn what_a_node_has_lost_comes_back_from_a_snapshot_and_the_log_since() {
    lose_and_repair(2, 1, LogPolicy::EverySecond, 2);
    lose_and_repair(3, 2, LogPolicy::Always, 1);
}

#[test]
fn without_a_log_of_all_changes_nothing_is_repaired() {
    let dir = tempfile::tempdir().expect("there is room");
    let engine = Engine::open(crate::config(dir.path(), 1, LogPolicy::Off)).expect("it opens");
    assert!(matches!(engine.repair(), Err(Error::RepairNeedsLog)));
    let without = Config {
        data_dir: None,
        ..crate::config(dir.path(), 1, LogPolicy::Off)
    };
    engine.close();
    let engine = Engine::open(without).expect("it opens");
    assert!(matches!(engine.repair(), Err(Error::NoDataDirectory)));
}

#[test]
fn a_repair_that_fails_is_counted_and_named_until_one_is_completed() {
    let dir = tempfile::tempdir().expect("there is room");
    let (first, mut second) = (node(0), Some(node(0)));
    let nodes = [&first, second.as_ref().expect("it runs")];
    let config = config(dir.path(), &nodes, 1, LogPolicy::EverySecond);
    let engine = Engine::open(config).expect("it opens");
    let mut handle = engine.handle().expect("a handle is free");
    SHORT.put(&mut handle);
    engine.flush().expect("far memory has room");
    let shown = || {
        let data = engine.reporter().report().data;
        data.expect("it has a directory").repairs
    };
    assert_eq!(shown(), RepairsReport::default());
    let blocked = block_next(dir.path());
    lose(&engine, &mut second);
    // The engine may have tried by itself.
    let _ = engine.repair();
    wait_until("the failure", || shown().failed > 0);
    let failed = shown();
    assert_eq!((failed.completed, failed.keys), (0, 0), "{failed:?}");
    assert!(!failed.error.is_empty(), "{failed:?}");
    std::fs::remove_dir(blocked).expect("it is there");
    wait_until("the repair", || {
        shown().completed > 0 || engine.repair().is_ok_and(|repaired| repaired.keys > 0)
    });
    let repaired = shown();
    assert!(repaired.keys > 100 && repaired.error.is_empty());
    assert!(repaired.failed >= failed.failed, "{repaired:?}");
}

#[test]
fn what_clients_write_and_delete_while_it_is_repaired_stays() {
    let dir = tempfile::tempdir().expect("there is room");
    let (first, mut second) = (node(0), Some(node(0)));
    let nodes = [&first, second.as_ref().expect("it runs")];
    let config = config(dir.path(), &nodes, 2, LogPolicy::EverySecond);
    let engine = Engine::open(config).expect("it opens");
    let mut handle = engine.handle().expect("a handle is free");
    SHORT.put(&mut handle);
    engine.snapshot().expect("a snapshot is made");
    engine.flush().expect("far memory has room");
    lose(&engine, &mut second);
    let (mut random, mut changed) = (Random(7), HashMap::new());
    let mut lost = 0;
    wait_until("the repair", || {
        for _ in 0..50 {
            let number = u32::try_from(random.below(u64::from(SHORT.keys))).expect("it is less");
            let (key, value) = SHORT.one(number);
            // A node that is not connected yet cannot be asked whether a key is another one's.
            match random.below(3) {
                0 => match handle.put(key.as_bytes(), b"new").wait() {
                    Ok(_) => drop(changed.insert(key, Some(b"new".to_vec()))),
                    Err(Error::Unavailable { .. }) => lost += 1,
                    Err(error) => panic!("{key}: {error}"),
                },
                1 => match handle.delete(key.as_bytes()).wait() {
                    Ok(_) => drop(changed.insert(key, None)),
                    Err(Error::Unavailable { .. }) => lost += 1,
                    Err(error) => panic!("{key}: {error}"),
                },
                _ => {
                    let expected = changed.get(&key).cloned().unwrap_or(Some(value));
                    match handle.get(key.as_bytes()).wait() {
                        Ok(found) => assert_eq!(found.as_deref(), expected.as_deref(), "{key}"),
                        Err(Error::Unavailable { .. }) => lost += 1,
                        Err(error) => panic!("{key}: {error}"),
                    }
                }
            }
        }
        is_repaired(&engine, 2) && repairs(&engine) > 0
    });
    assert!(
        changed.len() > 100,
        "{} changed, {lost} were lost",
        changed.len()
    );
    for number in 0..SHORT.keys {
        let (key, value) = SHORT.one(number);
        let expected = changed.get(&key).cloned().unwrap_or(Some(value));
        let found = handle.get(key.as_bytes()).wait().expect("nothing is lost");
        assert_eq!(found.as_deref(), expected.as_deref(), "{key}");
    }
}
