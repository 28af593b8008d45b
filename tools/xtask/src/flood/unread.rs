//! `flood unread`: the node's memory before, during and after READs whose answers are not read.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::{Exposed, TcpEndpoint, connect_control, connect_queue};
use farcore_rdma::{
    Endpoint, LocalSlice, Lock, Region, RegionOptions, Work, WorkId, WorkRequest, run_local,
};

use super::node::Node;
use super::places::{Places, pin};

/// Limit of a connection.
const LIMIT: Duration = Duration::from_secs(5);
/// Waits after the connections have gone, in seconds.
const WAITS: [u64; 3] = [1, 5, 15];
/// The node's memory at the end, in parts of that before, at most.
const GROWTH_MAX: f64 = 1.1;

#[derive(Debug, Args)]
pub(crate) struct Unread {
    /// A `farcore` binary; without it, one is built.
    #[arg(long)]
    node: Option<PathBuf>,
    /// Connections.
    #[arg(long, default_value_t = 3000)]
    connections: usize,
    /// READs of each connection.
    #[arg(long, default_value_t = 512)]
    reads: usize,
    /// Bytes of a READ.
    #[arg(long, default_value_t = 1024)]
    bytes: u32,
}

pub(super) fn run(flood: &Unread) -> Result<()> {
    let places = Places::here()?;
    let node = Node::start(flood.node.as_deref(), places.node, "64MiB")?;
    pin(places.attacker)?;
    println!(
        "node on core {}, attacker on core {}: {} connections, {} READs of {} bytes each",
        places.node, places.attacker, flood.connections, flood.reads, flood.bytes
    );
    let before = node.resident_bytes()?;
    println!("before    {:>8.1} MiB", mib(before));
    let most = run_local(request_and_wait(&node, flood))??;
    println!("most      {:>8.1} MiB", mib(most));
    let mut growth = f64::MAX;
    for seconds in WAITS {
        thread::sleep(Duration::from_secs(seconds));
        let now = node.resident_bytes()?;
        growth = now as f64 / before as f64;
        println!("after     {:>8.1} MiB, {growth:.3} of before", mib(now));
    }
    ensure!(
        growth <= GROWTH_MAX,
        "the node keeps {growth:.3} of the memory of before, at most {GROWTH_MAX} is right"
    );
    Ok(())
}

/// Requests on all connections, reads nothing, and closes them after a while; returns the most
/// memory seen, in bytes.
async fn request_and_wait(node: &Node, flood: &Unread) -> Result<u64> {
    let mut most = 0;
    let channel = connect_control(node.address, LIMIT).await?;
    let mut session = NodeSession::open(channel, "unread", None).await?;
    let chunk = session.allocate_chunk(1 << 20).await?;
    let remote = session.map().slice(chunk.first(), 0).context("no extent")?;
    let region = Arc::new(Region::map(&RegionOptions {
        bytes: (flood.bytes as usize).next_multiple_of(4096),
        huge_pages: false,
        lock: Lock::Off,
        prefault: true,
    })?);
    let mut endpoints = Vec::with_capacity(flood.connections);
    for slot in 0..flood.connections {
        let request = session.memory_request(u32::try_from(slot)?);
        let connected = connect_queue(node.address, &request, LIMIT).await?;
        let mut endpoint = TcpEndpoint::new(1, flood.reads, u64::MAX, Exposed::default());
        let key = endpoint.register(Arc::clone(&region))?;
        endpoint.connection_slot(0).offer(connected);
        endpoint.renew(0);
        let local = LocalSlice {
            key,
            offset: 0,
            bytes: flood.bytes,
        };
        for id in 0..flood.reads {
            let request = WorkRequest {
                id: WorkId(id as u64),
                work: Work::Read { local, remote },
                signalled: true,
            };
            endpoint.post(0, request).ok().context("no room")?;
        }
        endpoint.ring_doorbell(0, 0);
        endpoints.push(endpoint);
        most = most.max(node.resident_bytes()?);
    }
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(100));
        most = most.max(node.resident_bytes()?);
    }
    Ok(most)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
