//! Opening one core's sessions, connections and extents at memory nodes.

use std::cell::Cell;
use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcore_rdma::{
    ConnectOptions, Endpoint, FabricAddress, FabricEndpoint, FabricOptions, Heartbeats,
    ManagerError, NodeConnections, Siblings,
};
use farcore_tuning::{Clock, Size};

use super::keeper::{Keeper, KeeperOptions};
use super::membership::Membership;
use super::plan::FarMemory;
use super::pool::Pool;
use super::steward::{Slots, Steward};
use crate::config::Sizes;
use crate::error::{Error, Result};
use crate::executor::sleep;
use crate::shard::{Extents, NodeId, QUEUES_PER_NODE};

/// How often an engine that opens checks whether its sessions are open.
const OPEN_TICK: Duration = Duration::from_millis(2);
/// How often it logs the nodes that it waits for.
const REPORT_NS: u64 = 1_000_000_000;

/// How long an engine that opens waits for nodes that do not answer, and for how many.
#[derive(Debug)]
pub(crate) struct NodesWait {
    pub(crate) nodes_min: usize,
    pub(crate) limit_ns: u64,
    /// When it is to be said again who is missing: the engine's cores take turns.
    pub(crate) report_next_ns: AtomicU64,
    pub(crate) clock: Clock,
    /// What was free at all nodes, for all of the engine's cores: what the first one has seen.
    pub(crate) free_bytes: AtomicU64,
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
pub(super) async fn open_sessions(
    nodes: &[FabricAddress],
    options: &ConnectOptions,
    heartbeats: &Heartbeats,
    (waiting, siblings): (&NodesWait, &Siblings),
) -> Result<Vec<NodeConnections>> {
    let begin = |node: &FabricAddress| {
        NodeConnections::begin(node.clone(), options.clone(), heartbeats, siblings)
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
        waiting.report_missing(nodes, &missing, now_ns);
        sleep(OPEN_TICK).await;
    }
}

fn named(nodes: &[FabricAddress], which: &[usize]) -> String {
    let names: Vec<_> = which.iter().map(|&node| nodes[node].to_string()).collect();
    names.join(", ")
}

impl NodesWait {
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
    fn report_missing(&self, nodes: &[FabricAddress], missing: &[usize], now_ns: u64) {
        let next_ns = self.report_next_ns.load(Ordering::Relaxed);
        if now_ns < next_ns {
            return;
        }
        let then_ns = now_ns + REPORT_NS;
        let ours = self.report_next_ns.compare_exchange(
            next_ns,
            then_ns,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        // The first call only notes the time: no wait has been reported yet.
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

/// What nodes lend, and what of it an engine could have.
#[derive(Clone, Copy, Debug)]
struct Offer {
    nodes: usize,
    cores: u16,
    lent_bytes: u64,
    free_bytes: u64,
    /// The least that a core claims: a page, or an extent if that is longer.
    unit_bytes: u64,
    page_bytes: u64,
}

impl Offer {
    /// The most far memory that the engine can be opened with, in bytes of one core. All cores have
    /// equal shares, in whole units and as many pages of each node.
    fn share_bytes(&self) -> u64 {
        let cores = u64::from(self.cores);
        let units = self.free_bytes / self.unit_bytes / cores;
        let row = self.nodes as u64 * self.page_bytes;
        units * self.unit_bytes / row * row
    }

    /// Why a share of `wanted_bytes` is too much.
    fn refused(&self, wanted_bytes: u64) -> Error {
        let (share, cores) = (self.share_bytes(), u64::from(self.cores));
        let lent = Size::at_most(self.lent_bytes);
        let free = Size::at_most(self.free_bytes);
        let remedy = match (share, cores) {
            (0, _) => "add a node".to_owned(),
            (_, 1) => format!("lower it to {:#}, or add a node", Size(share)),
            _ => format!(
                "lower it to {:#}, {:#} for each of {cores} cores, or add a node",
                Size(share * cores),
                Size(share)
            ),
        };
        Error::Config {
            field: "far_bytes",
            value: format!("{} for each core", Size(wanted_bytes)),
            limit: format!(
                "the memory nodes lend {lent:#} in all, to all their clients, and {free:#} of it was free: {remedy}"
            ),
        }
    }
}

/// What a core's far memory on memory nodes is made of.
#[derive(Debug)]
pub(super) struct CoreParts {
    /// The position of the core.
    pub(super) core: usize,
    /// Cores of the engine.
    pub(super) shards: u16,
    pub(super) sizes: Sizes,
    pub(super) connecting: ConnectOptions,
    pub(super) fabric: FabricOptions,
    pub(super) heartbeats: Arc<Heartbeats>,
    pub(super) membership: Arc<Membership>,
    pub(super) siblings: Siblings,
}

/// The connection slots of each position.
fn slots(endpoint: &FabricEndpoint) -> Vec<Slots> {
    let positions = endpoint.queues() / QUEUES_PER_NODE;
    let slot = |queue: usize| {
        let slot = endpoint.connection_slot(queue);
        slot.expect("it was opened for nodes")
    };
    (0..positions)
        .map(NodeId::new)
        .map(|node| [node.reads(), node.writes()].map(|queue| slot(queue.index())))
        .collect()
}

pub(super) async fn remote(
    nodes: &[FabricAddress],
    mut connections: Vec<NodeConnections>,
    mut extents: Extents,
    of_core: CoreParts,
    waiting: &NodesWait,
) -> Result<FarMemory> {
    let (sizes, fabric) = (&of_core.sizes, &of_core.fabric);
    let endpoint = open_endpoint(nodes, &mut connections, fabric).await?;
    let slots = slots(&endpoint);
    for (node, slots) in connections.iter_mut().zip(&slots) {
        slots.iter().for_each(|slot| node.keep(slot.clone()));
    }
    let pools = open_pools(&mut connections, fabric).await?;
    let missing = pools.iter().filter(|pool| pool.is_none()).count();
    let answering = || pools.iter().flatten();
    let lent_bytes: u64 = answering().map(Pool::lent_bytes).sum();
    let free_bytes: u64 = answering().map(Pool::free_bytes).sum();
    // The core that opens first has seen what no core of this engine has claimed from. ORDERING: it
    // is a figure for a message, which orders nothing.
    let free_before = waiting.free_bytes.fetch_max(free_bytes, Ordering::Relaxed);
    // Nodes that join later find their share unclaimed.
    let reserved = sizes.extents_opened * missing / nodes.len();
    let wanted = sizes.extents_opened - reserved;
    let copies = of_core.membership.copies();
    let claiming = (wanted, copies, sizes.page_bytes);
    let claimed = claim(nodes, &pools, claiming, &mut extents).await?;
    let got: usize = claimed.iter().sum();
    if got < wanted && (missing == 0 || got == 0) {
        let page_bytes = u64::from(sizes.page_bytes);
        let extent_bytes = answering().map(Pool::extent_bytes).max().unwrap_or(0);
        let offer = Offer {
            nodes: nodes.len(),
            cores: of_core.shards,
            lent_bytes,
            free_bytes: free_bytes.max(free_before),
            unit_bytes: page_bytes.max(extent_bytes),
            page_bytes,
        };
        return Err(offer.refused(sizes.extents_opened as u64 * page_bytes));
    }
    for (node, _) in (connections.iter_mut().zip(&pools)).filter(|(_, pool)| pool.is_some()) {
        let connected = node.connect().await;
        connected.map_err(|error| unavailable(node.address(), error))?;
    }
    let answered: Vec<_> = pools.iter().map(Option::is_some).collect();
    let share = sizes.extents_opened / nodes.len();
    let options = KeeperOptions {
        core: of_core.core,
        membership: of_core.membership,
        spare: Rc::new(Cell::new(wanted - got)),
        page_bytes: sizes.page_bytes,
        fabric: of_core.fabric,
        heartbeats: of_core.heartbeats,
    };
    let keepers = keepers(connections, &options, (&claimed, &answered), reserved);
    Ok(FarMemory {
        endpoint,
        extents,
        steward: Some(Steward {
            options,
            connecting: of_core.connecting,
            siblings: of_core.siblings,
            keepers,
            slots,
            share,
        }),
    })
}

/// The keepers of the nodes that an engine opens with: of each, the pages that were claimed there,
/// and whether it answered. Those that did not have the reserved pages for when they join.
fn keepers(
    connections: Vec<NodeConnections>,
    options: &KeeperOptions,
    (claimed, answered): (&[usize], &[bool]),
    reserved: usize,
) -> Vec<Keeper> {
    let missing = answered.iter().filter(|&&answers| !answers).count();
    let (mut left, mut left_nodes) = (reserved, missing);
    let mut keepers = Vec::with_capacity(connections.len());
    for (position, connections) in connections.into_iter().enumerate() {
        let mut keeper = Keeper {
            node: NodeId::new(position),
            connections,
            options: options.clone(),
            places: claimed[position],
            missing: 0,
            is_up: true,
            leaves: Rc::default(),
            is_added: false,
        };
        if !answered[position] {
            let share = left.div_ceil(left_nodes);
            (left, left_nodes) = (left - share, left_nodes - 1);
            (keeper.places, keeper.missing, keeper.is_up) = (share, share, false);
            let node = keeper.connections.address();
            tracing::warn!(%node, pages = share, "a memory node does not answer: it may join later");
        }
        keepers.push(keeper);
    }
    keepers
}

/// Opens the pool of every node that answered; `None` for the others.
async fn open_pools(
    connections: &mut [NodeConnections],
    fabric: &FabricOptions,
) -> Result<Vec<Option<Pool>>> {
    let mut pools = Vec::with_capacity(connections.len());
    for node in connections {
        pools.push(if node.is_open() {
            let pool = Pool::open(node, fabric).await;
            Some(pool.map_err(|error| unavailable(node.address(), error))?)
        } else {
            None
        });
    }
    Ok(pools)
}

/// Claims `wanted` pages in pieces and adds them to the extents. Each piece is from the node with
/// the most free memory; where pages have several copies, from the one with the least claimed,
/// since what one node has more than the others is of no use. Returns the pages of each node: fewer
/// than wanted if the nodes have no more.
async fn claim(
    nodes: &[FabricAddress],
    pools: &[Option<Pool>],
    (mut wanted, copies, page_bytes): (usize, usize, u32),
    extents: &mut Extents,
) -> Result<Vec<usize>> {
    let mut claimed = vec![0; pools.len()];
    let mut spent: Vec<bool> = pools.iter().map(Option::is_none).collect();
    while wanted > 0 {
        let rank = |&node: &usize| {
            let claimed = if copies > 1 { claimed[node] } else { 0 };
            let free_bytes = pools[node].as_ref().map_or(0, Pool::free_bytes);
            (Reverse(claimed), free_bytes)
        };
        let best = (0..pools.len())
            .filter(|&node| !spent[node])
            .max_by_key(rank);
        let Some((position, pool)) = best.and_then(|node| Some((node, pools[node].as_ref()?)))
        else {
            break;
        };
        let share = wanted.div_ceil(4 * pools.len());
        let node = NodeId::new(position);
        // A piece holds whole extents, which may be more pages than are wanted.
        let add = async |pieces: Vec<_>| {
            let pieces = pieces.into_iter().take(wanted);
            pieces
                .map_while(|piece| extents.add(node, piece).ok())
                .count()
        };
        let added = pool.claim(share, page_bytes, add).await;
        let added = added.map_err(|error| unavailable(&nodes[position], error))?;
        spent[position] = added.is_none_or(|added| added == 0);
        wanted -= added.unwrap_or(0);
        claimed[position] += added.unwrap_or(0);
    }
    Ok(claimed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_a_value_that_can_be_claimed() {
        let offer = Offer {
            nodes: 1,
            cores: 2,
            lent_bytes: 512 << 20,
            free_bytes: 301 << 20,
            unit_bytes: 2 << 20,
            page_bytes: 128 << 10,
        };
        assert_eq!(offer.share_bytes(), 150 << 20);
        let Error::Config {
            field,
            value,
            limit,
        } = offer.refused(2 << 30)
        else {
            panic!("another error");
        };
        assert_eq!((field, &*value), ("far_bytes", "2 GiB for each core"));
        assert_eq!(
            limit,
            "the memory nodes lend 512 MiB in all, to all their clients, and 301 MiB of it was free: lower it to 300 MiB, 150 MiB for each of 2 cores, or add a node"
        );
        // As many pages of each node.
        let three = Offer { nodes: 3, ..offer };
        assert_eq!(three.share_bytes() % (3 * (128 << 10)), 0);
        let none = Offer {
            free_bytes: 0,
            ..offer
        };
        assert!(
            none.refused(1)
                .to_string()
                .ends_with("was free: add a node")
        );
    }
}
