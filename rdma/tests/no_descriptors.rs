//! A memory node that is out of descriptors: connections that have proved nothing make room. A
//! process of its own, because the limit is the process's.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const ADDRESS: &str = "FARCORE_NODE_ADDRESS";
const SILENT: usize = 64;
/// Descriptors that the node may still open.
const FREE: usize = 10;

/// The client's process: silent connections, and then one that requests something.
#[test]
fn role_client() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let connect = || TcpStream::connect(&address).unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let crowd: Vec<_> = (0..SILENT).map(|_| connect()).collect();
    let mut client = connect();
    // A connect request for a control connection.
    let mut request = [0; 56];
    request[..11].copy_from_slice(b"FARCORE\x01\x01\x00\x01");
    client.write_all(&request).unwrap();
    client.read_exact(&mut [0; 24]).unwrap();
    println!("served");
    drop(crowd);
}

#[test]
fn silent_connections_make_room_for_a_descriptor() {
    if std::env::var(ADDRESS).is_ok() {
        return;
    }
    let memory = MemoryOptions {
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(1 << 20)
    };
    let node = MemoryNode::start(NodeOptions {
        // Only eviction ends a connection.
        handshake_limit: Duration::from_secs(1 << 20),
        ..NodeOptions::new(([127, 0, 0, 1], 0).into(), memory)
    })
    .unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role_client", "--nocapture"])
        .env(ADDRESS, node.address().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_str()?.parse::<u64>().ok()
    };
    let open: HashSet<u64> = open.filter_map(number).collect();
    // The limit is on the number of a new descriptor.
    let free = (0..).filter(|number| !open.contains(number));
    let limit = free.take(FREE).last().unwrap() + 1;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(limit),
            maximum: getrlimit(Resource::Nofile).maximum,
        },
    )
    .unwrap();
    orders.write_all(b"!").unwrap();
    // To their end: the child could not write the rest.
    let lines: Vec<_> = lines.map_while(Result::ok).collect();
    let served = lines.iter().any(|line| line.ends_with("served"));
    assert!(served && child.wait().unwrap().success(), "{lines:?}");
    let evicted = node
        .metrics()
        .refusals()
        .find(|&(why, _)| why == "evicted")
        .unwrap();
    assert!(evicted.1 >= (SILENT - FREE) as u64, "{evicted:?}");
    node.stop();
}
