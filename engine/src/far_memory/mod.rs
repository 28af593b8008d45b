//! A core's far memory: its endpoint, its share of the nodes' extents, and whoever keeps its
//! connections.
//!
//! ```text
//! plan (any thread) -> open (on the core): sessions, connections, extents -> shard
//!      |                                \-> a keeper a node: reconnects, claims, tells the shard what changed
//!      \-> heartbeats: a thread that keeps the sessions of all cores, whatever the cores do
//! ```
//!
//! - I1: a session is one core's: cores share nothing, and each holds extents of its own.
//! - I2: the shard hears that a session is over before a connection of the next one can be used.
//! - I3: what a session holds is the shard's, but for what is being claimed: what the shard cannot
//!   use goes back. What it lacks after a loss is asked for until it has it again.
//! - I4: a node that did not answer when the engine opened has a share of the places, which is
//!   claimed when it joins.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcore_rdma::{
    Change, Claims, ConnectOptions, EmbeddedEndpoint, EmbeddedNode, FabricAddress, FabricEndpoint,
    FabricOptions, Heartbeats, Initiator, InitiatorOptions, ManagerError, NodeConnections,
    PoolNode, RemoteSlice, Siblings,
};
use farcore_tuning::Clock;
use glommio::sync::Semaphore;
use glommio::timer::Timer;

use crate::config::Sizes;
use crate::error::{Error, Result};
use crate::reactor::Reactor;
use crate::reactor::command::CommandPort;
use crate::shard::{Extents, NodeId, QUEUES_PER_NODE};

/// Requests that one queue pair holds.
pub(crate) const QUEUE_DEPTH: usize = 256;
/// How often connections are looked after.
const TICK: Duration = Duration::from_millis(20);
/// How often an engine that opens looks whether its sessions have.
const OPEN_TICK: Duration = Duration::from_millis(2);
/// How often it says which it waits for.
const TELL_NS: u64 = 1_000_000_000;
/// Ticks between two tries to claim what is missing: each costs a connection.
const CLAIM_TICKS: u32 = 50;
/// Extents claimed at once, at most: a word of the bitmap.
const RUN_MAX: u32 = 64;

/// Where far memory is.
#[derive(Clone, Debug)]
pub(crate) enum FarPlan {
    /// In this process.
    Embedded(Vec<Arc<EmbeddedNode>>),
    /// On memory nodes.
    Remote {
        nodes: Vec<FabricAddress>,
        options: Box<ConnectOptions>,
        fabric: FabricOptions,
        heartbeats: Arc<Heartbeats>,
        waiting: Arc<Waiting>,
    },
}

/// How long an engine that opens waits for nodes that do not answer, and for how many.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) nodes_min: usize,
    pub(crate) limit_ns: u64,
    /// When it is to be said again who is missing: the engine's cores take turns.
    pub(crate) told_next_ns: AtomicU64,
    pub(crate) clock: Clock,
}

/// What a shard is built with, and who keeps it connected.
#[derive(Debug)]
pub(crate) struct FarSide {
    pub(crate) endpoint: FabricEndpoint,
    pub(crate) extents: Extents,
    pub(crate) keepers: Vec<Keeper>,
}

impl FarPlan {
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
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

    /// The thread that keeps the sessions, where there are any.
    pub(crate) fn heartbeats(&self) -> Option<Arc<Heartbeats>> {
        match self {
            Self::Embedded(_) => None,
            Self::Remote { heartbeats, .. } => Some(Arc::clone(heartbeats)),
        }
    }

    /// Opens one core's far memory. To be called on the core, in its executor.
    ///
    /// # Errors
    /// [`Error::Unavailable`] names the node that cannot be used, and why; [`Error::Config`] says
    /// that the nodes have less free memory than is asked for, or that one was named twice.
    pub(crate) async fn open(&self, sizes: &Sizes, shard: u16, shards: u16) -> Result<FarSide> {
        let extents = Extents::new(self.names(), sizes.page_bytes, sizes.extents_max);
        match self {
            Self::Embedded(nodes) => Ok(embedded(nodes, extents, sizes, shard, shards)),
            Self::Remote {
                nodes,
                options,
                fabric,
                heartbeats,
                waiting,
            } => {
                let mut options = options.clone();
                options.client = format!("{}, shard {shard}", options.client);
                let connections = open_sessions(nodes, &options, heartbeats, waiting).await?;
                remote(nodes, connections, fabric, heartbeats, extents, sizes).await
            }
        }
    }
}

fn embedded(
    nodes: &[Arc<EmbeddedNode>],
    mut extents: Extents,
    sizes: &Sizes,
    shard: u16,
    shards: u16,
) -> FarSide {
    let endpoint = EmbeddedEndpoint::new(nodes, QUEUES_PER_NODE, QUEUE_DEPTH, u64::from(shard));
    let page_bytes = u64::from(sizes.page_bytes);
    for (position, node) in nodes.iter().enumerate() {
        // Every node begins with another shard, so that those left over are spread as well.
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
    FarSide {
        endpoint: FabricEndpoint::Embedded(endpoint),
        extents,
        keepers: Vec::new(),
    }
}

fn unavailable(node: &FabricAddress, reason: impl ToString) -> Error {
    Error::Unavailable {
        node: node.to_string().into(),
        reason: reason.to_string().into(),
    }
}

/// One node under two names would be lost twice when it is lost once.
fn refused(node: &FabricAddress, error: &ManagerError) -> Error {
    match error {
        ManagerError::Twin { address, other } => Error::Config {
            field: "nodes",
            value: address.to_string(),
            limit: format!("it is the same memory node as {other}: name each once"),
        },
        error => unavailable(node, error),
    }
}

/// Sessions with as many nodes as must answer. Each has been tried once, or the time is over; those
/// that did not answer are tried on.
async fn open_sessions(
    nodes: &[FabricAddress],
    options: &ConnectOptions,
    heartbeats: &Heartbeats,
    waiting: &Waiting,
) -> Result<Vec<NodeConnections>> {
    let siblings = Siblings::default();
    let begin = |node: &FabricAddress| {
        NodeConnections::begin(node.clone(), options.clone(), heartbeats, &siblings)
    };
    let mut connections: Vec<_> = nodes.iter().map(begin).collect();
    let mut reasons: Vec<Option<String>> = vec![None; nodes.len()];
    let end_ns = waiting.clock.now_ns().saturating_add(waiting.limit_ns);
    loop {
        let mut missing = Vec::new();
        for (position, node) in connections.iter_mut().enumerate() {
            if node.is_open() {
                continue;
            }
            if let Some(error) = node.take_error() {
                if error.is_final() {
                    return Err(refused(&nodes[position], &error));
                }
                reasons[position] = Some(error.to_string());
            }
            missing.push(position);
        }
        let open = nodes.len() - missing.len();
        let tried = missing.iter().all(|&node| reasons[node].is_some());
        let now_ns = waiting.clock.now_ns();
        let enough = open >= waiting.nodes_min;
        if missing.is_empty() || enough && (tried || now_ns >= end_ns) {
            return Ok(connections);
        }
        if tried && now_ns >= end_ns {
            return Err(waiting.over(nodes, &missing, &reasons));
        }
        waiting.tell(nodes, &missing, now_ns);
        Timer::new(OPEN_TICK).await;
    }
}

fn named(nodes: &[FabricAddress], which: &[usize]) -> String {
    let names: Vec<_> = which.iter().map(|&node| nodes[node].to_string()).collect();
    names.join(", ")
}

impl Waiting {
    fn over(
        &self,
        nodes: &[FabricAddress],
        missing: &[usize],
        reasons: &[Option<String>],
    ) -> Error {
        let reasons: Vec<&str> = missing
            .iter()
            .filter_map(|&node| reasons[node].as_deref())
            .collect();
        Error::Unavailable {
            node: named(nodes, missing).into(),
            reason: format!(
                "{} of {} memory nodes answered within {:?} and {} must (`nodes_min`, `nodes_wait_ns`): {}",
                nodes.len() - missing.len(),
                nodes.len(),
                Duration::from_nanos(self.limit_ns),
                self.nodes_min,
                reasons.join("; ")
            )
            .into(),
        }
    }

    /// Says who is missing, once a second.
    fn tell(&self, nodes: &[FabricAddress], missing: &[usize], now_ns: u64) {
        let next_ns = self.told_next_ns.load(Ordering::Relaxed);
        if now_ns < next_ns {
            return;
        }
        let then_ns = now_ns + TELL_NS;
        let ours = self.told_next_ns.compare_exchange(
            next_ns,
            then_ns,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        // The first time nobody has waited yet.
        if ours.is_ok() && next_ns > 0 {
            let missing = named(nodes, missing);
            tracing::info!(
                missing,
                nodes_min = self.nodes_min,
                "waiting for memory nodes"
            );
        }
    }
}

async fn remote(
    nodes: &[FabricAddress],
    mut connections: Vec<NodeConnections>,
    fabric: &FabricOptions,
    heartbeats: &Arc<Heartbeats>,
    mut extents: Extents,
    sizes: &Sizes,
) -> Result<FarSide> {
    let endpoint = open_endpoint(nodes, &mut connections, fabric).await?;
    for (position, node) in connections.iter_mut().enumerate() {
        for queue in [
            NodeId::new(position).reads(),
            NodeId::new(position).writes(),
        ] {
            node.keep(
                endpoint
                    .connection_slot(queue.index())
                    .expect("it was opened for nodes"),
            );
        }
    }
    let mut places: Vec<usize> = vec![0; nodes.len()];
    let mut pools = Vec::with_capacity(nodes.len());
    for node in &mut connections {
        let pool = match node.is_open() {
            true => Some(Pool::open(node, fabric).await),
            false => None,
        };
        let pool = pool.transpose();
        pools.push(pool.map_err(|error| unavailable(node.address(), error))?);
    }
    let is_missing: Vec<bool> = pools.iter().map(Option::is_none).collect();
    let missing = is_missing.iter().filter(|&&one| one).count();
    // Those that come later find their share unclaimed.
    let reserved = sizes.extents_max * missing / nodes.len();
    let mut wanted = sizes.extents_max - reserved;
    let mut spent = is_missing.clone();
    while wanted > 0 {
        let with_most = (0..pools.len())
            .filter(|&node| !spent[node])
            .max_by_key(|&node| pools[node].as_ref().map_or(0, Pool::free_bytes));
        let Some((position, pool)) = with_most.and_then(|node| Some((node, pools[node].as_ref()?)))
        else {
            break;
        };
        let share = wanted.div_ceil(4 * pools.len());
        let add = |piece| extents.add(NodeId::new(position), piece).is_ok();
        let added = pool.claim(share, sizes.page_bytes, add).await;
        let added = added.map_err(|error| unavailable(&nodes[position], error))?;
        spent[position] = added.is_none_or(|added| added == 0);
        wanted -= added.unwrap_or(0);
        places[position] += added.unwrap_or(0);
    }
    let got: usize = places.iter().sum();
    if wanted > 0 && (missing == 0 || got == 0) {
        let page = u64::from(sizes.page_bytes);
        return Err(Error::Config {
            field: "far_bytes",
            value: format!("{} bytes for each core", sizes.extents_max as u64 * page),
            limit: format!(
                "the memory nodes have {} bytes free for this core, without what they keep for silent clients: lower it, free memory on the nodes or add one",
                got as u64 * page
            ),
        });
    }
    for (node, _) in connections.iter_mut().zip(&is_missing).filter(|one| !one.1) {
        let connected = node.connect().await;
        connected.map_err(|error| unavailable(node.address(), error))?;
    }
    let spare = Rc::new(Cell::new(wanted));
    let (mut left, mut left_nodes) = (reserved, missing);
    let mut keepers = Vec::with_capacity(nodes.len());
    for (position, connections) in connections.into_iter().enumerate() {
        let mut keeper = Keeper {
            node: NodeId::new(position),
            connections,
            places: places[position],
            missing: 0,
            spare: Rc::clone(&spare),
            is_up: true,
            page_bytes: sizes.page_bytes,
            fabric: fabric.clone(),
            _heartbeats: Arc::clone(heartbeats),
        };
        if is_missing[position] {
            let share = left.div_ceil(left_nodes);
            (left, left_nodes) = (left - share, left_nodes - 1);
            (keeper.places, keeper.missing, keeper.is_up) = (share, share, false);
            let node = keeper.connections.address();
            tracing::warn!(%node, pages = share, "a memory node does not answer: it may join later");
        }
        keepers.push(keeper);
    }
    Ok(FarSide {
        endpoint,
        extents,
        keepers,
    })
}

/// An endpoint to all nodes. Where it takes a route to find the device, that of a node that
/// answers.
async fn open_endpoint(
    nodes: &[FabricAddress],
    connections: &mut [NodeConnections],
    fabric: &FabricOptions,
) -> Result<FabricEndpoint> {
    let answers = connections.iter_mut().position(NodeConnections::is_open);
    let mut ordered = nodes.to_vec();
    ordered.swap(0, answers.unwrap_or(0));
    let endpoint = FabricEndpoint::open(&ordered, fabric).await;
    endpoint.map_err(|error| unavailable(&ordered[0], error))
}

/// A node's extents, claimed over a queue pair of their own.
struct Pool {
    claims: Claims<FabricEndpoint>,
    extent_bytes: u64,
}

impl Pool {
    async fn open(
        node: &mut NodeConnections,
        fabric: &FabricOptions,
    ) -> std::result::Result<Self, String> {
        let fabric = FabricOptions {
            queues: 1,
            ..fabric.clone()
        };
        let opened = FabricEndpoint::open(std::slice::from_ref(node.address()), &fabric).await;
        let endpoint = opened.map_err(|error| error.to_string())?;
        if let Some(connection_slot) = endpoint.connection_slot(0) {
            let joined = node.join(QUEUES_PER_NODE, &connection_slot).await;
            joined.map_err(|error| error.to_string())?;
        }
        let options = InitiatorOptions {
            lock: farcore_rdma::Lock::Off,
            ..InitiatorOptions::default()
        };
        let initiator = Initiator::new(endpoint, options).map_err(|error| error.to_string())?;
        initiator.renew(0);
        let session = node.session().ok_or("no session is open")?;
        let seed = session.owner().get();
        let map = session.map().clone();
        let extent_bytes = map.extent_bytes;
        let place = PoolNode {
            queue: 0,
            owner: session.owner(),
            map,
        };
        let claims = Claims::new(Rc::new(initiator), vec![place], seed);
        let claims = claims.map_err(|error| error.to_string())?;
        claims.refresh().await.map_err(|error| error.to_string())?;
        Ok(Self {
            claims,
            extent_bytes,
        })
    }

    fn free_bytes(&self) -> u64 {
        self.claims.free_count() * self.extent_bytes
    }

    /// Claims extents for about so many pages, and at least one, hands the pages to `add`, until it
    /// says no, and gives back what was not taken. Answers how many pages were; `None` if the node
    /// has none left.
    async fn claim(
        &self,
        pages: usize,
        page_bytes: u32,
        mut add: impl FnMut(RemoteSlice) -> bool,
    ) -> std::result::Result<Option<usize>, String> {
        let page = u64::from(page_bytes);
        let least = page.div_ceil(self.extent_bytes);
        let Ok(least) = u32::try_from(least) else {
            return Ok(None);
        };
        let wanted = (pages as u64)
            .saturating_mul(page)
            .div_ceil(self.extent_bytes);
        let wanted = u32::try_from(wanted).unwrap_or(RUN_MAX).clamp(1, RUN_MAX);
        // No more than is wanted: what is claimed and not used is nobody's gain.
        let mut run = (1 << wanted.ilog2()).max(least);
        while run >= least && run > 0 && run <= RUN_MAX {
            let claim = self.claims.claim(run).await;
            match claim.map_err(|error| error.to_string())? {
                Some(mut claim) => {
                    let start = claim.slice();
                    let piece = |place: u64| RemoteSlice {
                        key: start.key,
                        offset: start.offset + place * page,
                    };
                    let pieces = (0..claim.bytes() / page).map(piece);
                    let added = pieces.take_while(|&piece| add(piece)).count();
                    let used = (added as u64 * page).div_ceil(self.extent_bytes);
                    let rest = match u32::try_from(used) {
                        Ok(0) => Some(claim),
                        Ok(used) => claim.split_off(used),
                        Err(_) => None,
                    };
                    if let Some(rest) = rest {
                        let freed = self.claims.free(rest).await;
                        freed.map_err(|error| error.to_string())?;
                    }
                    return Ok(Some(added));
                }
                None => run /= 2,
            }
        }
        Ok(None)
    }
}

/// Looks after one core's connections to one node.
#[derive(Debug)]
pub(crate) struct Keeper {
    node: NodeId,
    connections: NodeConnections,
    /// Pages that the shard wants there.
    places: usize,
    /// How many of them it does not have, since a session was lost or because the node has not
    /// joined yet.
    missing: usize,
    /// Pages that nodes of this core could not give, so that any other may.
    spare: Rc<Cell<usize>>,
    is_up: bool,
    page_bytes: u32,
    fabric: FabricOptions,
    /// The engine may be gone before its cores have closed.
    _heartbeats: Arc<Heartbeats>,
}

impl Keeper {
    /// Keeps the connections until `stop` is signalled, and then gives back all that the session
    /// held.
    pub(crate) async fn keep(
        mut self,
        reactor: Rc<RefCell<Reactor>>,
        command_port: Arc<CommandPort>,
        stop: Rc<Semaphore>,
    ) {
        let stopped = async {
            // It is never signalled, only closed.
            let _ = stop.acquire(1).await;
        };
        let keeping = async {
            let mut ticks = 0;
            loop {
                if let Some(change) = self.connections.tend().await {
                    self.tell(change, &reactor).await;
                    // The shard may be asleep, and wait for just this.
                    command_port.wakeup.ring(0);
                    ticks = 0;
                }
                ticks += 1;
                let wanted = self.missing > 0 || self.spare.get() > 0;
                if ticks >= CLAIM_TICKS && self.is_up && wanted {
                    ticks = 0;
                    if self.claim_more(&reactor).await {
                        command_port.wakeup.ring(0);
                    }
                }
                Timer::new(TICK).await;
            }
        };
        futures_lite::future::or(stopped, keeping).await;
        drop(reactor);
        self.connections.close().await;
    }

    async fn tell(&mut self, change: Change, reactor: &Rc<RefCell<Reactor>>) {
        let node = self.connections.address().clone();
        self.is_up = !matches!(change, Change::Down(_));
        match change {
            Change::Down(error) => tracing::warn!(%node, %error, "a memory node does not answer"),
            Change::Up => {
                tracing::info!(%node, "a memory node answers again");
                reactor.borrow_mut().shard().node_is_back();
            }
            Change::Opened => {
                let claimed = self.claim_missing(reactor).await;
                let (places, missing) = (self.places, self.missing);
                let reason = claimed.err().unwrap_or_default();
                tracing::info!(%node, places, missing, reason, "a memory node has joined");
                // What it cannot give may come from the others.
                self.hand_over(missing);
                reactor.borrow_mut().shard().node_is_back();
            }
            Change::Renewed => {
                reactor.borrow_mut().shard().lose_node(self.node);
                self.missing = self.places;
                let claimed = self.claim_missing(reactor).await;
                let (missing, reason) = (self.missing, claimed.err().unwrap_or_default());
                if missing > 0 {
                    tracing::warn!(%node, missing, reason, "a memory node gave fewer pages than before, so far");
                }
                reactor.borrow_mut().shard().node_is_back();
            }
        }
    }

    /// Tries again to claim what is missing; true if some of it came.
    async fn claim_more(&mut self, reactor: &Rc<RefCell<Reactor>>) -> bool {
        let spare = self.spare.take();
        self.missing += spare;
        self.places += spare;
        let before = self.missing;
        let claimed = self.claim_missing(reactor).await;
        let missing = self.missing;
        self.hand_over(spare.min(missing));
        let node = self.connections.address();
        match claimed {
            Err(reason) => tracing::debug!(%node, missing, reason, "pages are still missing"),
            Ok(()) if missing == 0 => tracing::info!(%node, "a memory node gave what was missing"),
            Ok(()) => {}
        }
        if missing < before {
            reactor.borrow_mut().shard().node_is_back();
        }
        missing < before
    }

    /// Leaves pages that it does not have to whichever node has room for them.
    fn hand_over(&mut self, pages: usize) {
        self.missing -= pages;
        self.places -= pages;
        self.spare.set(self.spare.get() + pages);
    }

    /// Claims what is missing and has room: places of lost pages may still be taken by their
    /// records.
    async fn claim_missing(
        &mut self,
        reactor: &Rc<RefCell<Reactor>>,
    ) -> std::result::Result<(), String> {
        if self.claimable(reactor) == 0 {
            return Ok(());
        }
        let pool = Pool::open(&mut self.connections, &self.fabric).await?;
        let claimed = self.claim_from(&pool, reactor).await;
        if claimed.is_err() {
            // What is in doubt is known to this pool alone. If it cannot be freed now, the
            // session's end frees it.
            let _ = pool.claims.settle().await;
        }
        claimed
    }

    /// Pages that can be claimed now: what is missing, as far as the shard has room for it. Whole
    /// extents unless it is all, for what is left over of one is nobody's.
    fn claimable(&mut self, reactor: &Rc<RefCell<Reactor>>) -> usize {
        let room = reactor.borrow_mut().shard().extents_room();
        if room >= self.missing {
            return self.missing;
        }
        let Some(session) = self.connections.session() else {
            return 0;
        };
        let extent_bytes = session.map().extent_bytes;
        let pages = usize::try_from(extent_bytes / u64::from(self.page_bytes));
        room - room % pages.unwrap_or(usize::MAX).max(1)
    }

    async fn claim_from(
        &mut self,
        pool: &Pool,
        reactor: &Rc<RefCell<Reactor>>,
    ) -> std::result::Result<(), String> {
        let node = self.node;
        loop {
            let wanted = self.claimable(reactor);
            if wanted == 0 {
                return Ok(());
            }
            let missing = &mut self.missing;
            let add = |piece| {
                let added =
                    *missing > 0 && reactor.borrow_mut().shard().add_extent(node, piece).is_ok();
                // At once: the rest of the call may fail.
                *missing -= usize::from(added);
                added
            };
            match pool.claim(wanted, self.page_bytes, add).await? {
                Some(1..) => {}
                // Another node's pages took its room, for one.
                Some(0) => return Err("the shard had no place for what it gave".to_owned()),
                None => return Err("it has no free memory".to_owned()),
            }
        }
    }
}
