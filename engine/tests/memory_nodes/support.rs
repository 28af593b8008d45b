//! Shared by the tests of memory nodes: small nodes and engines, and keys whose values say which
//! version they are.

use std::time::{Duration, Instant};

use farcore::{Config, Engine, Error, FabricAddress};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};

pub(crate) const PAGE_BYTES: u32 = 64 << 10;
/// The time limit for anything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Keys; their records are about twice the local memory.
pub(crate) const KEYS: u32 = 50_000;

pub(crate) fn options(port: u16) -> NodeOptions {
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(48 << 20)
    };
    NodeOptions::new(([127, 0, 0, 1], port).into(), memory)
}

pub(crate) fn node() -> NodeHandle {
    MemoryNode::start(options(0)).expect("a node")
}

pub(crate) fn address(node: &NodeHandle) -> FabricAddress {
    format!("tcp://{}", node.address())
        .parse()
        .expect("an address")
}

pub(crate) fn config(nodes: &[&NodeHandle]) -> Config {
    Config {
        cores: vec![0, 1],
        local_bytes: 24 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(PAGE_BYTES),
        keys_expected: 20_000,
        nodes: nodes.iter().map(|node| address(node)).collect(),
        // Long enough for a node that shares two busy cores with other processes.
        far_silence_ns: 2_000_000_000,
        prefault: false,
        lock: Lock::Off,
        handles_max: 2,
        ..Config::default()
    }
}

pub(crate) fn key(number: u32) -> [u8; 8] {
    u64::from(number).to_le_bytes()
}

pub(crate) fn value(number: u32, version: u32) -> Vec<u8> {
    let byte = (number ^ version).to_le_bytes()[0];
    let mut value = vec![byte; 700 + number as usize % 300];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value[4..8].copy_from_slice(&version.to_le_bytes());
    value
}

pub(crate) fn write(engine: &Engine, version: u32) {
    write_some(engine, version, KEYS);
}

pub(crate) fn write_some(engine: &Engine, version: u32, keys: u32) {
    let mut handle = engine.handle().expect("a handle");
    for number in 0..keys {
        handle
            .put(&key(number), &value(number, version))
            .wait()
            .expect("a node that answers");
    }
}

/// Reads every key. Returns how many had this version's value and how many were unavailable; any
/// other answer fails the test.
pub(crate) fn read(engine: &Engine, version: u32) -> (u32, u32) {
    read_some(engine, version, KEYS)
}

pub(crate) fn read_some(engine: &Engine, version: u32, keys: u32) -> (u32, u32) {
    let mut handle = engine.handle().expect("a handle");
    let (mut right, mut unavailable) = (0, 0);
    for number in 0..keys {
        match handle.get(&key(number)).wait() {
            Ok(Some(found)) => {
                assert!(
                    *found == value(number, version),
                    "a wrong value for {number}"
                );
                right += 1;
            }
            Ok(None) => panic!("{number} is gone"),
            Err(Error::Unavailable { .. }) => unavailable += 1,
            Err(error) => panic!("{number}: {error}"),
        }
    }
    (right, unavailable)
}

pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::yield_now();
    }
}
