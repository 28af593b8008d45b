//! Nodes that are started, stopped and started again at the same address.

use std::net::SocketAddr;
use std::time::Duration;

use farcore_pool::{PoolOptions, RemotePool};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};

pub(crate) const EXTENT: u64 = 64 << 10;

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
    NodeOptions {
        lease: Duration::from_secs(1),
        keep: Duration::ZERO,
        ..NodeOptions::new(address, memory)
    }
}

pub(crate) fn node(extents: u64) -> NodeHandle {
    node_at(([127, 0, 0, 1], 0).into(), extents)
}

pub(crate) fn name(node: &NodeHandle) -> String {
    format!("tcp://{}", node.address())
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
