//! Nodes that are started, stopped and started again at the same address.
//!
//! `FARCORE_POOL_LISTEN` sets where they listen: `rdma+tcp://10.0.0.1:0` for RDMA. Nodes that
//! isolate their clients, and those of a given address of loopback, listen over TCP.
//!
//! The lab does not run these tests: where several threads have READs and atomics in flight,
//! Soft-RoCE stops to answer now and then, and the pool says that their outcome is unknown. That is
//! not explained yet.

use std::net::SocketAddr;
use std::time::Duration;

use farcore_pool::{PoolOptions, RemotePool};
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
use farcore_rdma::{FabricAddress, Lock, Scheme};

pub(crate) const EXTENT: u64 = 64 << 10;

fn listen() -> FabricAddress {
    let listen = std::env::var("FARCORE_POOL_LISTEN").ok();
    let listen = listen.unwrap_or_else(|| "tcp://127.0.0.1:0".to_owned());
    listen.parse().expect("an address")
}

fn scheme(address: SocketAddr) -> Scheme {
    match address.ip().is_loopback() {
        true => Scheme::Tcp,
        false => listen().scheme(),
    }
}

pub(crate) fn node_at(address: SocketAddr, extents: u64) -> NodeHandle {
    MemoryNode::start(options(address, extents)).expect("a node")
}

pub(crate) fn isolated_node(extents: u64) -> NodeHandle {
    let options = NodeOptions {
        isolate: true,
        ..options(([127, 0, 0, 1], 0).into(), extents)
    };
    MemoryNode::start(options).expect("a node")
}

pub(crate) fn options(address: SocketAddr, extents: u64) -> NodeOptions {
    let memory = MemoryOptions {
        region_bytes: (8 * EXTENT).min(extents * EXTENT),
        extent_bytes: EXTENT,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(extents * EXTENT)
    };
    // A guest with a device is slow: its programs must not lose their sessions.
    let lease = match scheme(address) {
        Scheme::Tcp => 1,
        _ => 5,
    };
    NodeOptions {
        scheme: scheme(address),
        lease: Duration::from_secs(lease),
        keep: Duration::ZERO,
        ..NodeOptions::new(address, memory)
    }
}

pub(crate) fn node(extents: u64) -> NodeHandle {
    let host = listen().host().parse().expect("an IP address");
    node_at(SocketAddr::new(host, 0), extents)
}

pub(crate) fn name(node: &NodeHandle) -> String {
    let address = node.address();
    format!("{}://{address}", scheme(address).as_str())
}

pub(crate) fn connect(nodes: &[&NodeHandle]) -> RemotePool {
    connect_with(nodes, PoolOptions::default())
}

pub(crate) fn connect_with(nodes: &[&NodeHandle], options: PoolOptions) -> RemotePool {
    let names = nodes.iter().map(|node| name(node));
    RemotePool::connect(names, options).expect("nodes that listen")
}

/// Waits for a condition that must become true, however long it takes.
pub(crate) fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
