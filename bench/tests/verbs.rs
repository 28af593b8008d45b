//! The contest over an RDMA device, with the memory node in another process. Needs a device, such
//! as the lab's.

#![cfg(feature = "verbs")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use farcore::FabricAddress;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeOptions};
use farcore_rdma::{Lock, rdma_devices};
use serde_json::Value;

const ROLE: &str = "FARCORE_BENCH_NODE";

/// The process of the memory node.
#[test]
fn role_node() {
    let Ok(listen) = std::env::var(ROLE) else {
        return;
    };
    let listen: FabricAddress = listen.parse().unwrap();
    let memory = MemoryOptions {
        region_bytes: 64 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(128 << 20)
    };
    let host = listen.host().parse().unwrap();
    let options = NodeOptions {
        scheme: listen.scheme(),
        ..NodeOptions::new(SocketAddr::new(host, listen.port()), memory)
    };
    let node = MemoryNode::start(options).unwrap();
    println!("\n@node {}", node.address());
    loop {
        std::thread::park();
    }
}

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(scheme: &str) -> (Node, String) {
    let devices = rdma_devices();
    let gids = devices
        .iter()
        .flat_map(|one| &one.ports)
        .flat_map(|port| &port.gids);
    let host = gids.filter_map(|gid| gid.address().to_ipv4_mapped()).next();
    let host = host.expect("an RDMA device with an IPv4 address: run this in the lab");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role_node", "--nocapture", "--test-threads", "1"])
        .env(ROLE, format!("{scheme}://{host}:0"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let node = Node(child);
    let mut lines = said.lines().map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("@node ").map(str::to_owned));
    let address = address.expect("the node starts");
    (node, format!("{scheme}://{address}"))
}

/// Runs a contest with a quarter of its data local, and checks its figures.
fn contest(scheme: &str, sizes: &str) {
    let (_node, address) = start(scheme);
    let json = std::env::temp_dir().join(format!("farcore-{scheme}-{}.json", std::process::id()));
    let line = format!(
        "contest {sizes} --far 100MiB --engines farcore --fabric {address} --json {}",
        json.display()
    );
    let output = Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let (said, logged) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}{logged}");
    println!("{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(&json).unwrap();
    let run = &report["runs"][0];
    assert_eq!(run["engine"], "farcore");
    assert_eq!(run["phases"].as_array().unwrap().len(), 11);
    assert_eq!(run["wrong_values"], 0);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn every_value_of_a_contest_is_right_by_cm() {
    contest("rdma", "--cores 0,1 --keys-per-core 112000 --local 16MiB");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn every_value_of_a_contest_is_right_by_exchange() {
    contest("rdma+tcp", "--cores 0 --keys-per-core 112000 --local 8MiB");
}
