//! Memory nodes that come and go while the engine serves.

use std::sync::Arc;

use farcore_rdma::FabricAddress;

use super::{Engine, WAIT};
use crate::error::{Error, Result};
use crate::far_memory::{Membership, NodeStatus};
use crate::lifecycle::Lifecycle;
use crate::observe::metrics::EngineMetrics;
use crate::reactor::is_core_of;

/// What others may do with an engine's memory nodes. It may outlive the engine.
#[derive(Clone, Debug)]
pub struct MemoryNodes {
    /// None if far memory lies in this process.
    membership: Option<Arc<Membership>>,
    metrics: Arc<EngineMetrics>,
    lifecycle: Arc<Lifecycle>,
}

impl MemoryNodes {
    /// The memory nodes that there may be more of.
    fn membership(&self, address: &FabricAddress) -> Result<&Membership> {
        if self.lifecycle.is_closing() {
            return Err(Error::Closed);
        }
        self.membership.as_deref().ok_or_else(|| Error::Config {
            field: "nodes",
            value: address.to_string(),
            limit: "far memory lies in this process: open the engine with `nodes`".to_owned(),
        })
    }

    /// As [`Engine::add_node`].
    ///
    /// # Errors
    /// Those of [`Engine::add_node`].
    pub fn add(&self, address: &FabricAddress, zone: Option<&str>) -> Result<()> {
        self.membership(address)?.add(address, zone)
    }

    /// As [`Engine::drain_node`].
    ///
    /// # Errors
    /// Those of [`Engine::drain_node`].
    pub fn drain(&self, address: &FabricAddress) -> Result<()> {
        self.membership(address)?.drain(address)
    }

    /// As [`Engine::remove_node`].
    ///
    /// # Errors
    /// Those of [`Engine::remove_node`].
    pub fn remove(&self, address: &FabricAddress, is_forced: bool) -> Result<()> {
        if !is_forced && is_core_of(&self.lifecycle) {
            return Err(Error::Config {
                field: "nodes",
                value: address.to_string(),
                limit:
                    "a job cannot wait for its own core: call `begin_removal` and `removal` there"
                        .to_owned(),
            });
        }
        let removal = self.begin_removal(address, is_forced)?;
        loop {
            if let Some(outcome) = self.removal(removal) {
                return outcome;
            }
            std::thread::sleep(WAIT);
        }
    }

    /// As [`MemoryNodes::remove`], without the wait: [`MemoryNodes::removal`] has its outcome.
    ///
    /// # Errors
    /// Those of [`Engine::remove_node`], but for pages that lie there alone.
    pub fn begin_removal(&self, address: &FabricAddress, is_forced: bool) -> Result<NodeRemoval> {
        let membership = self.membership(address)?;
        membership
            .begin_removal(address, is_forced)
            .map(NodeRemoval)
    }

    /// The outcome of a removal; `None` until all cores have counted the pages that lie there
    /// alone.
    ///
    /// # Errors
    /// In the outcome: [`Error::NodeNeeded`] if there are any, [`Error::Closed`].
    #[must_use]
    pub fn removal(&self, removal: NodeRemoval) -> Option<Result<()>> {
        let outcome = self.membership.as_ref()?.removal(removal.0);
        outcome.or_else(|| self.lifecycle.is_closing().then_some(Err(Error::Closed)))
    }

    /// As [`Engine::nodes`].
    #[must_use]
    pub fn list(&self) -> Vec<NodeStatus> {
        let Some(membership) = &self.membership else {
            return Vec::new();
        };
        let with_bytes = |(position, mut node): (usize, NodeStatus)| {
            let counters = self.metrics.node(position);
            node.total_bytes = counters.total_bytes;
            node.free_bytes = counters.total_bytes.saturating_sub(counters.used_bytes);
            node
        };
        membership.nodes().into_iter().map(with_bytes).collect()
    }
}

/// A removal of a memory node that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeRemoval(u64);

impl Engine {
    /// What others may do with the memory nodes.
    #[must_use]
    pub fn memory_nodes(&self) -> MemoryNodes {
        MemoryNodes {
            membership: self.membership.clone(),
            metrics: Arc::clone(&self.metrics),
            lifecycle: Arc::clone(&self.shared.lifecycle),
        }
    }

    /// Adds a memory node, in a zone if it has one with others. Each core opens a session there and
    /// claims as much memory as each node had that the engine opened with, or what the node has.
    /// Pages are written there from then on; those that are elsewhere stay. A node that is being
    /// drained stays after all.
    ///
    /// Returns at once, whether the node answers or not: [`Engine::nodes`] says how far it is.
    /// Requests go on. Cost: a connection for each core, and two more while it claims.
    ///
    /// # Errors
    /// [`Error::NodesMax`] if all positions are taken
    /// ([`Config::nodes_max`](crate::Config::nodes_max)); [`Error::Config`] if the node is known,
    /// is reached over another fabric, or far memory lies in this process; [`Error::Closed`].
    pub fn add_node(&self, address: &FabricAddress, zone: Option<&str>) -> Result<()> {
        self.memory_nodes().add(address, zone)
    }

    /// Has the pages of a memory node copied to others, and ends the sessions there when nothing is
    /// left. Its position is free for another node then.
    ///
    /// Returns at once: [`Engine::nodes`] says how many pages are left, and does not list the node
    /// once it has gone. Requests go on. Pages move as others have room for them, at the pace of
    /// [`Config::copy_percent`](crate::Config::copy_percent): while none has, they stay. Cost: each
    /// page is read and written once.
    ///
    /// # Errors
    /// [`Error::NodeUnknown`]; [`Error::NodeNeeded`] if fewer nodes that answer would stay than a
    /// page has copies; [`Error::Config`] if far memory lies in this process; [`Error::Closed`].
    pub fn drain_node(&self, address: &FabricAddress) -> Result<()> {
        self.memory_nodes().drain(address)
    }

    /// Removes a memory node at once: what it holds is lost, as if it had ended, and its pages are
    /// made again from other copies. Unforced, it is refused if a page lies there alone.
    ///
    /// Blocks until all cores have counted such pages, also those that are local too: drain a node
    /// that answers. Forced, it returns at once. The node is listed by [`Engine::nodes`] until all
    /// cores have left it. Cost: a pass over each core's page table, and one over its index if
    /// records are lost.
    ///
    /// # Errors
    /// [`Error::NodeUnknown`]; [`Error::NodeNeeded`] if pages lie there alone, or if fewer nodes
    /// that answer would stay than a page has copies: forced, if none has joined that would;
    /// [`Error::Config`] if far memory lies in this process, or if a job calls it unforced;
    /// [`Error::Closed`].
    pub fn remove_node(&self, address: &FabricAddress, is_forced: bool) -> Result<()> {
        self.memory_nodes().remove(address, is_forced)
    }

    /// The memory nodes of other processes, those too that join or leave; none if far memory lies
    /// in this process. Bytes are as the cores published them last. Reading them stops no core.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.memory_nodes().list()
    }
}
