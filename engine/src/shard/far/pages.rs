//! The far pages of a shard: the extent that holds a page's far copy, the node that it lies on, and
//! whether that node answers.
//!
//! Only `far` knows extents and the health of nodes. The rest of the shard names a page, and learns
//! what can be done with it.
//!
//! - I1: an extent is free, or held by one page.
//! - I2: a page holds an extent from the start of its flush until it is freed or the flush is
//!   undone.

use std::sync::Arc;

use farcore_rdma::RemoteSlice;

use super::extents::{AddError, Extent, Extents, NodeId, Queue};
use super::health::Health;
use crate::error::Error;
use crate::observe::metrics::CoreMetrics;

/// Why a put finds no room while nodes are silent.
pub(in crate::shard) const NO_ROOM: &str = "local memory is full, and no other node has room";

/// How READs from a node fare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum Readiness {
    Answers,
    /// It fails again and again, and may be tried now.
    MayAnswer,
    /// It fails again and again, and is left alone for a while.
    Rests,
}

/// Which extent each page holds, and how the nodes of the extents fare.
#[derive(Debug)]
pub(in crate::shard) struct FarPages {
    pub(super) extents: Extents,
    pub(super) health: Health,
    /// By page number.
    held: Vec<Option<Extent>>,
}

impl FarPages {
    /// No page of this many holds an extent.
    pub(in crate::shard) fn new(extents: Extents, pages: usize) -> Self {
        let health = Health::new(extents.nodes().count());
        Self {
            extents,
            health,
            held: vec![None; pages],
        }
    }

    /// Bytes of the tables for these numbers of pages and extents.
    pub(in crate::shard) fn bytes_for(pages: usize, extents: u64) -> u64 {
        (pages * size_of::<Option<Extent>>()) as u64 + Extents::bytes_for(extents)
    }

    // What a page's far copy is like.

    #[inline]
    pub(super) fn extent(&self, page: u32) -> Option<Extent> {
        self.held[page as usize]
    }

    /// The node of a page's far copy.
    #[inline]
    pub(in crate::shard) fn node_of(&self, page: u32) -> Option<NodeId> {
        self.extent(page).map(Extent::node)
    }

    /// What a node is called.
    pub(super) fn name(&self, node: NodeId) -> &Arc<str> {
        self.extents.name(node)
    }

    /// What the node of a page's far copy is called.
    pub(in crate::shard) fn node_name(&self, page: u32) -> Option<Arc<str>> {
        let node = self.node_of(page)?;
        Some(Arc::clone(self.name(node)))
    }

    /// True if a page's node took its extent back.
    #[inline]
    pub(in crate::shard) fn is_lost(&self, page: u32) -> bool {
        self.extents.has_lost()
            && self
                .extent(page)
                .is_some_and(|extent| self.extents.is_lost(extent))
    }

    /// True if a page's far copy may be gone, because the last outcome at its node was a failure.
    #[inline]
    pub(in crate::shard) fn is_doubtful(&self, page: u32) -> bool {
        !self.health.is_good()
            && self
                .node_of(page)
                .is_some_and(|node| self.health.is_doubtful(node))
    }

    /// True if READs from a page's node, or WRITEs to it, fail again and again.
    pub(in crate::shard) fn is_at_silent_node(&self, page: u32) -> bool {
        self.node_of(page).is_some_and(|node| {
            self.health.is_silent(node.reads()) || self.health.is_silent(node.writes())
        })
    }

    /// The node of a page if READs from it fail again and again.
    pub(in crate::shard) fn unreadable_node(&self, page: u32) -> Option<NodeId> {
        let node = self.node_of(page)?;
        self.health.is_silent(node.reads()).then_some(node)
    }

    /// The node of a page if background work must not read from it now.
    pub(in crate::shard) fn resting_node(&self, page: u32, now_ns: u64) -> Option<NodeId> {
        let node = self.node_of(page)?;
        (!self.health.may_try(node.reads(), now_ns)).then_some(node)
    }

    /// True if a READ may find out now whether a page's node answers.
    pub(in crate::shard) fn may_probe(&self, page: u32, now_ns: u64) -> bool {
        self.node_of(page).is_some_and(|node| {
            let queue = node.reads();
            self.health.is_rested(queue, now_ns) && self.health.may_try(queue, now_ns)
        })
    }

    /// True if another node than a page's has room for it and may be tried now.
    pub(in crate::shard) fn has_room_beside(&self, page: u32, now_ns: u64) -> bool {
        let own = self.node_of(page);
        self.extents.nodes().any(|node| {
            let queue = node.writes();
            Some(node) != own
                && self.extents.free_on(node) > 0
                && self.health.is_rested(queue, now_ns)
                && self.health.may_try(queue, now_ns)
        })
    }

    // What all nodes are like.

    /// True while no request fails.
    #[inline]
    pub(in crate::shard) fn all_answer(&self) -> bool {
        self.health.is_good()
    }

    /// The nodes, and how READs from each fare.
    pub(in crate::shard) fn readiness(
        &self,
        now_ns: u64,
    ) -> impl Iterator<Item = (NodeId, Readiness)> {
        self.extents.nodes().map(move |node| {
            let queue = node.reads();
            let readiness = match (
                self.health.is_silent(queue),
                self.health.may_try(queue, now_ns),
            ) {
                (false, _) => Readiness::Answers,
                (true, true) => Readiness::MayAnswer,
                (true, false) => Readiness::Rests,
            };
            (node, readiness)
        })
    }

    /// True while no node accepts pages: no node with a free extent does, or, if no node has one,
    /// none can be read.
    pub(in crate::shard) fn is_silent(&self) -> bool {
        if self.health.is_good() {
            return false;
        }
        let full = self.extents.free_count() == 0;
        self.extents
            .nodes()
            .filter(|&node| full || self.extents.free_on(node) > 0)
            .all(|node| {
                self.health.is_silent(node.writes()) || full && self.health.is_silent(node.reads())
            })
    }

    /// True while no node can be read.
    pub(in crate::shard) fn is_unreadable(&self) -> bool {
        let mut nodes = self.extents.nodes();
        !self.health.is_good() && nodes.all(|node| self.health.is_silent(node.reads()))
    }

    /// True if a node has room for a page and its last outcome was no failure.
    pub(in crate::shard) fn is_sure_of_room(&self) -> bool {
        let sure = |node| !self.health.is_doubtful(node) && self.extents.free_on(node) > 0;
        self.extents.nodes().any(sure)
    }

    /// The error of a put when local memory is full and no node accepts pages.
    pub(in crate::shard) fn all_unavailable(&self) -> Error {
        let silent = |node: &NodeId| {
            self.health.is_silent(node.writes()) || self.health.is_silent(node.reads())
        };
        let silent = self.extents.nodes().filter(silent);
        let names: Vec<&str> = silent.map(|node| &**self.extents.name(node)).collect();
        Error::Unavailable {
            node: names.join(", ").into(),
            reason: NO_ROOM.into(),
        }
    }

    /// The error of a put when local and far memory are full.
    pub(in crate::shard) fn full(&self, shard: u16) -> Error {
        Error::FarFull {
            shard: Some(shard),
            used: self.used_bytes(),
            limit: self.total_bytes(),
        }
    }

    /// Lets background work write to every node at once, because a caller wants it.
    pub(in crate::shard) fn retry_writes(&mut self) {
        self.health.try_again(NodeId::writes);
    }

    /// Lets background work read from every node at once, because a caller wants it.
    pub(in crate::shard) fn retry_reads(&mut self) {
        self.health.try_again(NodeId::reads);
    }

    // How many pages fit.

    /// Pages that can be added to far memory.
    pub(in crate::shard) fn free_count(&self) -> usize {
        self.extents.free_count()
    }

    /// Pages that can be added to the nodes that accept them.
    pub(in crate::shard) fn takable_count(&self) -> usize {
        if self.health.is_good() {
            return self.extents.free_count();
        }
        let taking = |node: &NodeId| !self.health.is_silent(node.writes());
        let nodes = self.extents.nodes().filter(taking);
        nodes.map(|node| self.extents.free_on(node)).sum()
    }

    /// [`FarPages::takable_count`] in percent of the pages that fit the nodes that accept them.
    pub(in crate::shard) fn free_percent(&self) -> usize {
        let taking = |node: &NodeId| !self.health.is_silent(node.writes());
        let (mut free, mut count) = (0, 0);
        for node in self.extents.nodes().filter(taking) {
            free += self.extents.free_on(node);
            count += self.extents.count_on(node);
        }
        free * 100 / count.max(1)
    }

    /// Pages that far memory can have, at most.
    pub(in crate::shard) fn count_max(&self) -> usize {
        self.extents.count_max()
    }

    /// Bytes of the extents that pages hold.
    pub(in crate::shard) fn used_bytes(&self) -> u64 {
        self.extents.used_bytes()
    }

    /// Bytes of all extents.
    pub(in crate::shard) fn total_bytes(&self) -> u64 {
        self.extents.total_bytes()
    }

    /// How many more extents can be added.
    pub(in crate::shard) fn room(&self) -> usize {
        self.extents.room()
    }

    // Changes; [`FarStore`](super::FarStore) publishes their figures.

    pub(super) fn add(&mut self, node: NodeId, piece: RemoteSlice) -> Result<(), AddError> {
        self.extents.add(node, piece)
    }

    /// Gives a page the extent of a node that has been free the longest; false if it has none.
    pub(super) fn claim(&mut self, page: u32, node: NodeId) -> bool {
        let held = &mut self.held[page as usize];
        debug_assert!(held.is_none(), "page {page} holds an extent");
        *held = self.extents.claim(node);
        held.is_some()
    }

    /// Releases the extent of a page, which no work request names any more; false if it holds none.
    pub(super) fn release(&mut self, page: u32) -> bool {
        let held = self.held[page as usize].take();
        if let Some(extent) = held {
            self.extents.release(extent);
        }
        held.is_some()
    }

    /// Notes that a node took back all its extents; returns the pages that hold one of them. They
    /// hold it until it is released.
    pub(super) fn lose_node(&mut self, node: NodeId) -> Vec<u32> {
        self.extents.lose_free(node);
        let mut pages = Vec::new();
        for (page, held) in (0u32..).zip(&self.held) {
            if let Some(extent) = held.filter(|extent| extent.node() == node) {
                self.extents.lose(extent);
                pages.push(page);
            }
        }
        pages
    }

    /// Publishes what each node holds, and how many of its queue pairs fail.
    pub(in crate::shard) fn publish_nodes(&self, metrics: &CoreMetrics, page_bytes: u64) {
        for (node, seen) in self.extents.nodes().zip(&metrics.nodes) {
            let (count, free) = (self.extents.count_on(node), self.extents.free_on(node));
            let bytes = |extents: usize| extents as u64 * page_bytes;
            seen.total_bytes.set(bytes(count));
            seen.used_bytes.set(bytes(count.saturating_sub(free)));
            let queues = [node.reads(), node.writes()];
            let is_silent = |&&queue: &&Queue| self.health.is_silent(queue);
            let silent = queues.iter().filter(is_silent).count();
            seen.silent_queues.set(silent as u64);
        }
    }
}

#[cfg(any(test, feature = "simulation"))]
impl FarPages {
    pub(in crate::shard) fn extents(&self) -> &Extents {
        &self.extents
    }

    #[cfg(test)]
    pub(in crate::shard) fn extents_mut(&mut self) -> &mut Extents {
        &mut self.extents
    }

    /// Checks that each extent is free or held by one page.
    pub(in crate::shard) fn check(&self) {
        self.extents.check(self.held.iter().copied().flatten());
    }

    /// Has a page hold the extent of another: a fault that tests inject.
    #[cfg(test)]
    pub(in crate::shard) fn share(&mut self, page: u32, other: u32) {
        self.held[page as usize] = self.held[other as usize];
    }

    pub(in crate::shard) fn holds(&self, page: u32) -> bool {
        self.extent(page).is_some()
    }

    /// Every extent that the shard counts as its own, with its node's position.
    #[cfg(feature = "simulation")]
    pub(in crate::shard) fn owned_places(&self) -> Vec<(usize, RemoteSlice)> {
        let free = self.extents.nodes().flat_map(|node| {
            let places = self.extents.free_places(node);
            places.map(move |place| (node.position(), place))
        });
        let held = self.held.iter().flatten().filter_map(|&extent| {
            let place = self.extents.remote(extent, 0)?;
            Some((extent.node().position(), place))
        });
        free.chain(held).collect()
    }

    /// The node and the offset in its memory of a byte of a page, unless the node took it back.
    pub(in crate::shard) fn place(&self, page: u32, start: u64) -> Option<(NodeId, u64)> {
        let extent = self.extent(page)?;
        let remote = self.extents.remote(extent, start)?;
        Some((extent.node(), remote.offset))
    }

    /// Has a page name the same place on another node: a fault that tests inject.
    #[cfg(test)]
    pub(in crate::shard) fn misplace(&mut self, page: u32, node: NodeId) {
        let held = &mut self.held[page as usize];
        *held = held.map(|extent| extent.misplaced(node));
    }
}
