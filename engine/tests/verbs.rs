//! The engine over a memory node in another process, reached over an RDMA device, and killed. Needs
//! a device; the lab has one.

#![cfg(feature = "verbs")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farcore::{Config, Engine, Error, FabricAddress};
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeOptions};
use farcore_rdma::{Lock, rdma_devices};

const ROLE: &str = "FARCORE_VERBS_NODE";
/// The time limit for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Keys; their records are about twice the local memory.
const KEYS: u32 = 8_000;

/// The process of the memory node, until it is killed.
#[test]
fn role_node() {
    let Ok(listen) = std::env::var(ROLE) else {
        return;
    };
    let listen: FabricAddress = listen.parse().unwrap();
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(64 << 20)
    };
    let host: IpAddr = listen.host().parse().unwrap();
    let options = NodeOptions {
        scheme: listen.scheme(),
        lease: Duration::from_secs(5),
        ..NodeOptions::new(SocketAddr::new(host, listen.port()), memory)
    };
    let node = MemoryNode::start(options).unwrap();
    println!("\n@node {}", node.address());
    loop {
        std::thread::park();
    }
}

struct Node(Child);

impl Node {
    fn start(listen: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role_node", "--nocapture", "--test-threads", "1"])
            .env(ROLE, listen)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let ready = said
            .lines()
            .map_while(Result::ok)
            .any(|line| line.starts_with("@node "));
        assert!(ready, "the node does not start");
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of an RDMA device, with a free port.
fn place() -> SocketAddr {
    let devices = rdma_devices();
    let gids = devices
        .iter()
        .flat_map(|one| &one.ports)
        .flat_map(|port| &port.gids);
    let host = gids.filter_map(|gid| gid.address().to_ipv4_mapped()).next();
    let host = host.expect("an RDMA device with an IPv4 address: run this in the lab");
    let port = TcpListener::bind((host, 0)).unwrap().local_addr().unwrap();
    SocketAddr::new(host.into(), port.port())
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number).to_le_bytes()
}

fn value(number: u32, version: u32) -> Vec<u8> {
    let byte = (number ^ version).to_le_bytes()[0];
    let mut value = vec![byte; 3_500 + number as usize % 300];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value[4..8].copy_from_slice(&version.to_le_bytes());
    value
}

fn killed(scheme: &str) {
    let listen = format!("{scheme}://{}", place());
    let mut node = Node::start(&listen);
    let config = Config {
        cores: vec![0, 1],
        local_bytes: 16 << 20,
        far_bytes: 48 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 20_000,
        nodes: vec![listen.parse().unwrap()],
        // Long enough for a node that shares two busy cores with other processes.
        far_silence_ns: 2_000_000_000,
        prefault: false,
        lock: Lock::Off,
        handles_max: 1,
        ..Config::default()
    };
    let engine = Engine::open(config).unwrap();
    let mut handle = engine.handle().unwrap();
    for number in 0..KEYS {
        handle.put(&key(number), &value(number, 0)).wait().unwrap();
    }
    engine.flush().unwrap();
    // Local memory holds only a part: many records are read from the node.
    for number in 0..KEYS {
        let got = handle.get(&key(number)).wait().unwrap();
        assert!(*got.unwrap() == value(number, 0), "{number}");
    }

    node.kill();
    let (mut right, mut unavailable) = (0, 0);
    for number in 0..KEYS {
        match handle.get(&key(number)).wait() {
            Ok(Some(got)) => {
                assert!(*got == value(number, 0), "{number}");
                right += 1;
            }
            Ok(None) => panic!("key {number} was lost without an error"),
            Err(Error::Unavailable { .. }) => unavailable += 1,
            Err(error) => panic!("{error}"),
        }
    }
    println!("killed: {right} right, {unavailable} unavailable");
    assert!(unavailable > 0 && right > 0);

    let _again = Node::start(&listen);
    let since = Instant::now();
    let mut number = 0;
    // All keys can be written again, and the new values are read.
    while number < KEYS {
        match handle.put(&key(number), &value(number, 1)).wait() {
            Ok(_) => number += 1,
            Err(Error::Unavailable { .. } | Error::FarFull { .. }) => {
                assert!(since.elapsed() < PATIENCE, "the node does not come back");
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
    for number in 0..KEYS {
        let got = handle.get(&key(number)).wait().unwrap();
        assert!(*got.unwrap() == value(number, 1), "{number}");
    }
    drop(handle);
    engine.close();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn a_node_that_is_killed_is_an_error_and_its_successor_serves_by_cm() {
    killed("rdma");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn a_node_that_is_killed_is_an_error_and_its_successor_serves_by_exchange() {
    killed("rdma+tcp");
}
