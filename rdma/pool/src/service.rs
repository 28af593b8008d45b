//! The pool's thread: it opens the sessions and connections, keeps them, and claims extents.
//!
//! ```text
//! allocate, free --commands--> a task for each node --> claims by compare-and-swap
//!                              every 20 ms: a lost connection or session? connect again
//! ```
//!
//! - I1: a queue pair of a lane is renewed by this thread alone, for the session that its
//!   connection was made for. So no request of an earlier session reaches memory of a later one.
//! - I2: a claim is held by its node's task until it is returned; one whose caller has gone is
//!   returned at once.

mod embedded;
mod remote;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender, unbounded};
use farcore_rdma::control::SessionError;
use farcore_rdma::{
    ConnectOptions, EmbeddedNode, FabricAddress, FabricOptions, Heartbeats, Initiator,
    InitiatorOptions, LinkModel, Lock, ManagerError, NodeAddress, NodeConnections, Region,
    RegionOptions, SharedEndpoint, Siblings,
};
use futures_lite::future::or;

use self::embedded::{EXTENT_BYTES, EmbeddedSource};
use self::remote::RemoteSource;
use self::turn::TICK;
use crate::caller::Caller;
use crate::command::Command;
use crate::error::{PoolError, Result};
use crate::lane::Lane;
use crate::node::Node;
use crate::options::PoolOptions;
use crate::shared::Shared;

/// How often the start looks whether the sessions are open.
const OPEN_TICK: Duration = Duration::from_millis(2);

/// Where a pool's memory lies.
#[derive(Debug)]
pub(crate) enum Nodes {
    /// On memory nodes.
    Remote(Vec<NodeAddress>, Heartbeats),
    /// In this process, with its length in bytes.
    Embedded(u64),
}

/// What the pool's thread needs.
pub(crate) struct Setup {
    pub(crate) nodes: Nodes,
    pub(crate) options: PoolOptions,
    pub(crate) keepers: Vec<Arc<Caller>>,
}

/// Opens the pool and hands it to `begun`, then serves until it is closed.
pub(crate) async fn run(setup: Setup, begun: Sender<Result<Arc<Shared>>>) {
    let opened = match setup.nodes {
        Nodes::Remote(addresses, heartbeats) => {
            remote(addresses, heartbeats, setup.options, setup.keepers).await
        }
        Nodes::Embedded(bytes) => embedded(bytes, setup.options, setup.keepers),
    };
    match opened {
        Ok((shared, sources, heartbeats)) => {
            let _ = begun.send(Ok(Arc::clone(&shared))).await;
            drop(begun);
            serve(shared, sources).await;
            drop(heartbeats);
        }
        Err(error) => {
            let _ = begun.send(Err(error)).await;
        }
    }
}

type Opened = (
    Arc<Shared>,
    Vec<(Source, Receiver<Command>)>,
    Option<Heartbeats>,
);

/// Runs a task for each node until its commands are closed.
async fn serve(shared: Arc<Shared>, sources: Vec<(Source, Receiver<Command>)>) {
    let ticking = Arc::clone(&shared);
    let tick = async move {
        loop {
            farcore_rdma::pause(TICK).await;
            ticking.settle();
            ticking.ticks.tick();
        }
    };
    let tasks = sources
        .into_iter()
        .enumerate()
        .map(|(node, (source, commands))| {
            let shared = Arc::clone(&shared);
            farcore_rdma::spawn_task(async move {
                match source {
                    Source::Remote(source) => source.keep(node, &shared, &commands).await,
                    Source::Embedded(source) => source.keep(&shared, &commands).await,
                }
            })
        });
    let tasks: Vec<_> = tasks.collect();
    let all = async {
        for task in tasks {
            task.await;
        }
    };
    or(all, tick).await;
    // What waits for an answer or a node finds the pool closed.
    shared.ticks.tick();
}

fn lanes(
    endpoints: Vec<SharedEndpoint>,
    keepers: Vec<Arc<Caller>>,
    options: &PoolOptions,
) -> Result<Box<[Lane]>> {
    let scratch = InitiatorOptions {
        longest_bytes: options.transfer_bytes,
        lock: Lock::Try,
        is_driven: true,
        ..InitiatorOptions::default()
    };
    let lane = |(endpoint, keeper)| {
        let initiator = Initiator::new(endpoint, scratch);
        let initiator = initiator.map_err(|error| PoolError::Connect(error.to_string()))?;
        Ok(Lane::new(initiator, keeper, options.spin))
    };
    endpoints.into_iter().zip(keepers).map(lane).collect()
}

fn embedded(bytes: u64, options: PoolOptions, keepers: Vec<Arc<Caller>>) -> Result<Opened> {
    let extents = bytes.div_ceil(EXTENT_BYTES).max(1);
    let bytes = extents.checked_mul(EXTENT_BYTES);
    let bytes = bytes.filter(|&bytes| i64::try_from(bytes).is_ok());
    let bytes = bytes.ok_or(PoolError::TooLong {
        count: extents,
        bytes: EXTENT_BYTES,
    })?;
    let region = Region::map(&RegionOptions {
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        huge_pages: false,
        lock: Lock::Off,
        prefault: false,
    });
    let region = region.map_err(|error| PoolError::Connect(error.to_string()))?;
    let memory = Arc::new(EmbeddedNode::new(Arc::new(region), LinkModel::default()));
    let endpoint =
        |_: &Arc<Caller>| SharedEndpoint::embedded(std::slice::from_ref(&memory), options.depth);
    let endpoints = keepers.iter().map(endpoint).collect();
    let lanes = lanes(endpoints, keepers, &options)?;
    let node = Node::new(None);
    let session = node.begin(EXTENT_BYTES, bytes);
    for lane in &lanes {
        lane.initiator().renew_for(0, session);
    }
    let (send, receive) = unbounded();
    let source = EmbeddedSource::new(session, memory, extents);
    let shared = Shared::new(options, Box::new([node]), lanes, Box::new([send]));
    let sources = vec![(Source::Embedded(source), receive)];
    Ok((Arc::new(shared), sources, None))
}

async fn remote(
    nodes: Vec<NodeAddress>,
    heartbeats: Heartbeats,
    options: PoolOptions,
    keepers: Vec<Arc<Caller>>,
) -> Result<Opened> {
    let addresses: Vec<_> = nodes.iter().map(|node| node.address.clone()).collect();
    let connections = open_sessions(&addresses, &heartbeats, &options).await?;
    let fabric = FabricOptions {
        queues: addresses.len(),
        depth: options.depth,
        limit_ns: u64::try_from(options.silence.as_nanos()).unwrap_or(u64::MAX),
        verbs: options.verbs.clone(),
    };
    let mut endpoints = Vec::new();
    for _ in &keepers {
        let endpoint = SharedEndpoint::open(&addresses, &fabric).await;
        endpoints.push(endpoint.map_err(|error| PoolError::Connect(error.to_string()))?);
    }
    let (mut sources, mut senders, mut away) = (Vec::new(), Vec::new(), Vec::new());
    for (node, (mut connections, reason)) in connections.into_iter().enumerate() {
        for endpoint in &endpoints {
            if let Some(slot) = endpoint.connection_slot(node) {
                connections.keep(slot);
            }
        }
        let (send, receive) = unbounded();
        senders.push(send);
        away.push(reason);
        sources.push((RemoteSource::new(connections, &fabric), receive));
    }
    let lanes = lanes(endpoints, keepers, &options)?;
    let nodes = nodes
        .into_iter()
        .map(|node| Node::new(Some(node)))
        .collect();
    let shared = Arc::new(Shared::new(options, nodes, lanes, senders.into()));
    for (node, reason) in shared.nodes.iter().zip(away) {
        if reason.is_some() {
            node.set_down(reason);
        }
    }
    for (node, (source, _)) in sources.iter_mut().enumerate() {
        source.join(node, &shared).await?;
    }
    let sources = sources
        .into_iter()
        .map(|(source, receive)| (Source::Remote(Box::new(source)), receive))
        .collect();
    Ok((shared, sources, Some(heartbeats)))
}

/// Opens a session at each node, and waits until enough are open.
async fn open_sessions(
    addresses: &[FabricAddress],
    heartbeats: &Heartbeats,
    options: &PoolOptions,
) -> Result<Vec<(NodeConnections, Option<String>)>> {
    let connect = ConnectOptions {
        token: options.token.clone(),
        client: options.client.clone(),
        ..ConnectOptions::default()
    };
    let siblings = Siblings::default();
    let begin = |address: &FabricAddress| {
        NodeConnections::begin(address.clone(), connect.clone(), heartbeats, &siblings)
    };
    let mut all: Vec<_> = addresses.iter().map(begin).collect();
    let mut reasons: Vec<Option<String>> = vec![None; all.len()];
    let least = options.nodes_min.unwrap_or(all.len());
    let since = Instant::now();
    loop {
        let mut open = 0;
        let mut tried = true;
        for (one, reason) in all.iter_mut().zip(&mut reasons) {
            if one.is_open() {
                open += 1;
                continue;
            }
            if let Some(error) = one.take_error() {
                if error.is_final() {
                    return Err(final_error(&error));
                }
                *reason = Some(error.to_string());
            }
            tried &= reason.is_some();
        }
        let is_late = since.elapsed() >= options.nodes_wait;
        if open == all.len() || open >= least && (tried || is_late) {
            return Ok(all.into_iter().zip(reasons).collect());
        }
        if tried && is_late {
            let reasons: Vec<_> = reasons.into_iter().flatten().collect();
            return Err(PoolError::Connect(format!(
                "{open} of {} answered within {:?} and {least} must (`nodes_min`, `nodes_wait`): {}",
                all.len(),
                options.nodes_wait,
                reasons.join("; ")
            )));
        }
        farcore_rdma::pause(OPEN_TICK).await;
    }
}

/// Why a node cannot be used until one side is changed.
fn final_error(error: &ManagerError) -> PoolError {
    let is_of_token = matches!(
        error,
        ManagerError::Session {
            source: SessionError::WrongToken
                | SessionError::NodeNotProved
                | SessionError::NoTokenAtNode
                | SessionError::TokenMissing,
            ..
        }
    );
    if is_of_token {
        return PoolError::Token(error.to_string());
    }
    PoolError::Connect(error.to_string())
}

/// Where a node's extents come from.
enum Source {
    Remote(Box<RemoteSource>),
    Embedded(EmbeddedSource),
}
