//! Memory nodes that are killed one after the other, while an engine with two copies of each page
//! is under load: no call fails, no key is lost, and no value is wrong.
//!
//! `FARCORE_NODE_KILLS` sets how many are killed.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use farcore::{Config, Engine, Handle};
use farcore_rdma::{FabricAddress, Lock};

use self::support::{Node, PATIENCE};

const KILLS: &str = "FARCORE_NODE_KILLS";
const NODES: usize = 3;
const CORES: usize = 2;
/// Keys of each client; all records together are four times local memory.
const KEYS: u32 = 20_000;
const CLIENTS: u32 = 2;
const VALUE_BYTES: usize = 2_000;
const LOCAL_BYTES: u64 = 20 << 20;
/// Calls that the clients make before a node is killed, and before it comes back.
const CALLS: u64 = 2_000;
/// Two nodes have room for both copies of everything.
const NODE_MEMORY: &str = "192MiB";

fn kills() -> usize {
    let kills = std::env::var(KILLS).ok();
    kills.map_or(3, |text| text.parse().expect("a number of kills"))
}

/// Starts a node that keeps its sessions for longer than the test takes.
fn node(port: u16) -> Node {
    let listen = format!("tcp://127.0.0.1:{port}");
    let flags = [
        "--listen",
        &listen,
        "--memory",
        NODE_MEMORY,
        "--no-huge-pages",
        "--extent",
        "64KiB",
    ];
    Node::start(&[], &flags)
}

fn key(client: u32, place: u32) -> [u8; 8] {
    (u64::from(client) << 32 | u64::from(place)).to_le_bytes()
}

/// The value that a client has written in a round: no other place or round has it.
fn value(client: u32, place: u32, round: u32) -> Vec<u8> {
    let words = [client, place, round].map(u32::to_le_bytes).concat();
    words.iter().copied().cycle().take(VALUE_BYTES).collect()
}

/// What clients and test share.
#[derive(Debug, Default)]
struct Load {
    ends: AtomicBool,
    /// Calls after all keys were written.
    calls: AtomicU64,
}

/// One client: writes its keys, then reads each and writes it again until it is to end.
// ORDERING: relaxed; flag and count guard nothing.
fn run(mut handle: Handle, client: u32, load: &Load) {
    let mut rounds = vec![0; KEYS as usize];
    let mut state = u64::from(client) + 1;
    for place in 0..KEYS {
        let (name, first) = (key(client, place), value(client, place, 0));
        let put = handle.put(&name, &first).wait();
        put.expect("an engine with room");
    }
    while !load.ends.load(Ordering::Relaxed) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let place = u32::try_from((state >> 33) % u64::from(KEYS)).expect("below the keys");
        let round = &mut rounds[place as usize];
        let name = key(client, place);
        let found = handle.get(&name).wait().expect("a copy that can be read");
        let found = found.expect("a key that was written");
        assert!(*found == value(client, place, *round), "{client} {place}");
        if state & 1 << 20 == 0 {
            *round += 1;
            let next = value(client, place, *round);
            let put = handle.put(&name, &next).wait();
            put.expect("an engine with room");
        }
        load.calls.fetch_add(1, Ordering::Relaxed);
    }
    for (place, &round) in (0..KEYS).zip(&rounds) {
        let found = handle.get(&key(client, place)).wait().expect("a copy");
        let found = found.expect("a key that was written");
        assert!(*found == value(client, place, round), "{client} {place}");
    }
}

/// Waits until something holds, while no client fails.
#[track_caller]
fn wait_until(clients: &[thread::JoinHandle<()>], engine: &Engine, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        let has_failed = clients.iter().any(thread::JoinHandle::is_finished);
        assert!(!has_failed, "a client has failed");
        let total = engine.stats().total;
        assert!(start.elapsed() < PATIENCE, "it never holds: {total:?}");
        thread::yield_now();
    }
}

#[test]
fn nodes_are_killed_in_turn_and_nothing_is_lost() {
    let mut nodes: Vec<_> = (0..NODES).map(|_| node(0)).collect();
    let address = |node: &Node| -> FabricAddress {
        let address = format!("tcp://{}", node.address);
        address.parse().expect("an address")
    };
    let engine = Engine::open(Config {
        cores: (0..CORES).collect(),
        local_bytes: LOCAL_BYTES,
        far_bytes: 480 << 20,
        nodes: nodes.iter().map(address).collect(),
        keys_expected: u64::from(KEYS * CLIENTS),
        replicas: 2,
        copy_percent: 100,
        huge_pages: false,
        lock: Lock::Off,
        ..Config::default()
    });
    let engine = engine.expect("an engine");
    let load = Arc::new(Load::default());
    let begin = |client| {
        let (handle, load) = (engine.handle().expect("a handle"), Arc::clone(&load));
        thread::spawn(move || run(handle, client, &load))
    };
    let clients: Vec<_> = (0..CLIENTS).map(begin).collect();
    // ORDERING: relaxed; as at the clients.
    let calls = || load.calls.load(Ordering::Relaxed);
    let are_back = |kills: usize| {
        let total = engine.stats().total;
        total.nodes_lost >= (kills * CORES) as u64 && total.copying == 0
    };
    for kill in 0..kills() {
        let before = calls();
        wait_until(&clients, &engine, || {
            calls() >= before + CALLS && are_back(kill)
        });
        let killed = &mut nodes[kill % NODES];
        let port = killed.address.port();
        killed.process.0.kill().expect("a process");
        killed.process.0.wait().expect("a process");
        let before = calls();
        wait_until(&clients, &engine, || calls() >= before + CALLS);
        *killed = node(port);
    }
    wait_until(&clients, &engine, || are_back(kills()));
    load.ends.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no wrong value");
    }
    let total = engine.stats().total;
    assert_eq!((total.lost_keys, total.records_damaged), (0, 0));
    assert!(total.pages_copied > 0, "{total:?}");
    engine.close();
}
