//! The plan: where far memory is, and how much each core has on each node. Made on any thread,
//! opened on each core.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use farcore_rdma::{
    ConnectOptions, EmbeddedEndpoint, EmbeddedNode, FabricAddress, FabricEndpoint, FabricOptions,
    Heartbeats, RemoteSlice, Siblings,
};
use farcore_tuning::Clock;

use super::connect::{CoreParts, NodesWait, open_sessions, remote};
use super::membership::Membership;
use super::steward::Steward;
use crate::config::{Config, Sizes};
use crate::constants::QUEUE_DEPTH;
use crate::error::Result;
use crate::limits;
use crate::observe::node_names::NodeNames;
use crate::shard::{Extents, NodeId, QUEUES_PER_NODE};

/// The shortest time limit of a connection attempt.
const CONNECT_MIN: Duration = Duration::from_secs(2);

/// Where far memory is.
#[derive(Clone, Debug)]
pub(crate) struct FarPlan {
    places: Places,
    /// The zone of each node; none where each is one of its own.
    zones: Vec<usize>,
    /// What nodes are called.
    names: Arc<NodeNames>,
    /// Which nodes there are, of other processes.
    membership: Option<Arc<Membership>>,
}

#[derive(Clone, Debug)]
enum Places {
    /// In this process.
    Embedded(Vec<Arc<EmbeddedNode>>),
    /// On memory nodes.
    Remote {
        nodes: Vec<FabricAddress>,
        options: Box<ConnectOptions>,
        fabric: FabricOptions,
        heartbeats: Arc<Heartbeats>,
        waiting: Arc<NodesWait>,
    },
}

/// What a shard is built with, and what has its nodes come and go.
#[derive(Debug)]
pub(crate) struct FarMemory {
    pub(crate) endpoint: FabricEndpoint,
    pub(crate) extents: Extents,
    pub(crate) steward: Option<Steward>,
}

impl FarPlan {
    /// Plans where far memory is opened. Starts the thread that keeps the sessions alive.
    ///
    /// # Errors
    /// For example [`Error::Threads`], if that thread cannot be started.
    pub(crate) fn new(config: &Config, embedded: &[Arc<EmbeddedNode>]) -> Result<Self> {
        let places = Places::new(config, embedded)?;
        let first = places.names();
        let positions = config.positions(first.len());
        let names = Arc::new(NodeNames::new(first.into_iter(), positions));
        let is_remote = matches!(places, Places::Remote { .. });
        let membership = || Arc::new(Membership::new(config, Arc::clone(&names)));
        Ok(Self {
            membership: is_remote.then(membership),
            places,
            zones: config.zone_numbers().collect(),
            names,
        })
    }

    /// What nodes are called, those too that come later.
    pub(crate) fn names(&self) -> Arc<NodeNames> {
        Arc::clone(&self.names)
    }

    /// Which nodes there are, if they are of other processes.
    pub(crate) fn membership(&self) -> Option<Arc<Membership>> {
        self.membership.clone()
    }

    /// The thread that keeps the sessions alive, if there are any.
    pub(crate) fn heartbeats(&self) -> Option<Arc<Heartbeats>> {
        match &self.places {
            Places::Embedded(_) => None,
            Places::Remote { heartbeats, .. } => Some(Arc::clone(heartbeats)),
        }
    }

    /// Opens one core's far memory. Called on the core, in its executor.
    ///
    /// # Errors
    /// [`Error::Unavailable`] names the node that cannot be used, and why. [`Error::Config`]: the
    /// nodes have less free memory than requested, or one was named twice.
    pub(crate) async fn open(&self, sizes: &Sizes, shard: u16, shards: u16) -> Result<FarMemory> {
        let names = self.places.names();
        let mut extents = Extents::new(names, sizes.page_bytes, sizes.extents_max);
        extents.reserve_positions(self.names.positions());
        extents.set_zones(self.zones.iter().copied());
        match (&self.places, &self.membership) {
            (
                Places::Remote {
                    nodes,
                    options,
                    fabric,
                    heartbeats,
                    waiting,
                },
                Some(membership),
            ) => {
                let mut options = options.clone();
                options.client = format!("{}, shard {shard}", options.client);
                let siblings = Siblings::default();
                let sessions = open_sessions(nodes, &options, heartbeats, (waiting, &siblings));
                let connections = sessions.await?;
                let of_core = CoreParts {
                    core: usize::from(shard),
                    shards,
                    sizes: *sizes,
                    connecting: *options,
                    fabric: fabric.clone(),
                    heartbeats: Arc::clone(heartbeats),
                    membership: Arc::clone(membership),
                    siblings,
                };
                remote(nodes, connections, extents, of_core, waiting).await
            }
            (Places::Embedded(nodes), _) => Ok(embedded(nodes, extents, sizes, shard, shards)),
            (Places::Remote { .. }, None) => unreachable!("nodes of others have a membership"),
        }
    }
}

impl Places {
    /// The names of the nodes that an engine opens with.
    fn names(&self) -> Vec<Arc<str>> {
        match self {
            Self::Embedded(nodes) => (0..nodes.len())
                .map(|position| format!("embedded-{position}").into())
                .collect(),
            Self::Remote { nodes, .. } => nodes
                .iter()
                .map(|address| address.to_string().into())
                .collect(),
        }
    }

    fn new(config: &Config, embedded: &[Arc<EmbeddedNode>]) -> Result<Self> {
        if config.nodes.is_empty() {
            return Ok(Self::Embedded(embedded.to_vec()));
        }
        let heartbeats = limits::while_allowed(Heartbeats::start)?;
        let heartbeats = heartbeats.map_err(|error| limits::no_thread(&error.to_string()))?;
        Ok(Self::Remote {
            nodes: config.nodes.clone(),
            options: Box::new(ConnectOptions {
                token: config.token.clone(),
                client: format!("engine, process {}", std::process::id()),
                limit: Duration::from_nanos(config.far_silence_ns).max(CONNECT_MIN),
                ..ConnectOptions::default()
            }),
            fabric: FabricOptions {
                queues: config.positions(config.nodes.len()) * QUEUES_PER_NODE,
                depth: QUEUE_DEPTH,
                limit_ns: config.far_silence_ns,
                verbs: config.verbs.clone(),
            },
            heartbeats: Arc::new(heartbeats),
            waiting: Arc::new(NodesWait {
                nodes_min: config.nodes_min.unwrap_or(config.nodes.len()),
                limit_ns: config.nodes_wait_ns,
                report_next_ns: AtomicU64::new(0),
                free_bytes: AtomicU64::new(0),
                clock: Clock::new(),
            }),
        })
    }
}

fn embedded(
    nodes: &[Arc<EmbeddedNode>],
    mut extents: Extents,
    sizes: &Sizes,
    shard: u16,
    shards: u16,
) -> FarMemory {
    let endpoint = EmbeddedEndpoint::new(nodes, QUEUES_PER_NODE, QUEUE_DEPTH, u64::from(shard));
    let page_bytes = u64::from(sizes.page_bytes);
    for (position, node) in nodes.iter().enumerate() {
        // Each node starts with another shard, so that the remainder is spread evenly too.
        let first = (usize::from(shard) + position) % usize::from(shards);
        for place in (first as u64..node.bytes() / page_bytes).step_by(usize::from(shards)) {
            let piece = RemoteSlice {
                key: node.remote_key(),
                offset: place * page_bytes,
            };
            let added = extents.add(NodeId::new(position), piece);
            debug_assert_eq!(added, Ok(()), "the sizes foresee every extent");
        }
    }
    FarMemory {
        endpoint: FabricEndpoint::Embedded(endpoint),
        extents,
        steward: None,
    }
}
