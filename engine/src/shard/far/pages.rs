//! The far pages of a shard: the extents that hold a page's copies, the nodes that they lie on, and
//! whether those nodes answer.
//!
//! Only `far` knows extents and the health of nodes. The rest of the shard names a page, and learns
//! what can be done with it: what holds of a page with several copies is what holds of the best of
//! them.
//!
//! ```text
//! held:    page 0 | page 1 | ...             the first copy of each
//! others:  page 0: 1 or 2  | page 1 | ...    the other copies; nothing where pages have one
//! ```
//!
//! - I1: an extent is free, or held by one page.
//! - I2: a page holds an extent from the start of its flush until it is freed or the flush is
//!   undone. A page that holds any has a first one.
//! - I3: no node has two copies of a page.
//! - I4: once a page is flushed, each of its copies was written in full under its sequence number.
//! - I5: an extent that a page has left is held until no READ names it.

use std::sync::Arc;

use farcore_rdma::RemoteSlice;

use super::copies::{Copies, CopyPlan, pages_of};
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
    /// By page number, the first copy.
    held: Vec<Option<Extent>>,
    /// By page number, the other copies.
    others: Vec<Option<Extent>>,
    plan: CopyPlan,
    /// Some page may have fewer copies than planned.
    pub(in crate::shard) has_short: bool,
    /// The extent that a page is being copied to, none of its copies yet.
    pub(super) target: Option<Extent>,
    /// The extent that the page copied last has left, for the target that is its copy now.
    pub(super) left: Option<Extent>,
}

impl FarPages {
    /// No page of this many holds an extent.
    pub(in crate::shard) fn new(extents: Extents, pages: usize, plan: CopyPlan) -> Self {
        let health = Health::new(extents.positions());
        Self {
            extents,
            health,
            held: vec![None; pages],
            others: vec![None; pages * (plan.most() - 1)],
            plan,
            has_short: false,
            target: None,
            left: None,
        }
    }

    /// Bytes of the tables for these numbers of pages and extents.
    pub(in crate::shard) fn bytes_for(pages: usize, extents: u64, plan: CopyPlan) -> u64 {
        (pages * plan.most() * size_of::<Option<Extent>>()) as u64 + Extents::bytes_for(extents)
    }

    /// Copies that each page should have.
    #[inline]
    pub(in crate::shard) fn plan(&self) -> CopyPlan {
        self.plan
    }

    // What a page's far copies are like.

    /// The first copy of a page.
    #[inline]
    pub(super) fn extent(&self, page: u32) -> Option<Extent> {
        self.held[page as usize]
    }

    /// All copies of a page.
    #[inline]
    pub(super) fn copies(&self, page: u32) -> Copies<'_> {
        let rest = self.plan.most() - 1;
        let start = page as usize * rest;
        Copies::new(self.extent(page), &self.others[start..start + rest])
    }

    /// The copy of a page at a place among them, from 0 on.
    pub(super) fn copy(&self, page: u32, place: usize) -> Option<Extent> {
        match place {
            0 => self.extent(page),
            _ => self.others[page as usize * (self.plan.most() - 1) + place - 1],
        }
    }

    /// Copies that a page has.
    pub(in crate::shard) fn copy_count(&self, page: u32) -> usize {
        self.copies(page).count()
    }

    /// True if a node took back the extent of a copy, or there is no such copy.
    pub(in crate::shard) fn is_copy_lost(&self, page: u32, place: usize) -> bool {
        let copy = self.copy(page, place);
        copy.is_none_or(|copy| self.extents.is_lost(copy))
    }

    fn copy_mut(&mut self, page: u32, place: usize) -> &mut Option<Extent> {
        match place {
            0 => &mut self.held[page as usize],
            _ => &mut self.others[page as usize * (self.plan.most() - 1) + place - 1],
        }
    }

    /// True if `each` holds of all copies of a page, of which there is one at least.
    #[inline]
    fn all_copies(&self, page: u32, each: impl Fn(Extent) -> bool) -> bool {
        self.extent(page).is_some() && self.copies(page).all(each)
    }

    /// The node of a page's first copy.
    #[inline]
    pub(in crate::shard) fn node_of(&self, page: u32) -> Option<NodeId> {
        self.extent(page).map(Extent::node)
    }

    /// What a node is called.
    pub(super) fn name(&self, node: NodeId) -> &Arc<str> {
        self.extents.name(node)
    }

    /// What each node of a page's copies is called.
    pub(in crate::shard) fn node_names(&self, page: u32) -> Vec<Arc<str>> {
        let copies = self.copies(page);
        copies
            .map(|copy| Arc::clone(self.name(copy.node())))
            .collect()
    }

    /// What the nodes of a page's copies are called.
    pub(in crate::shard) fn node_name(&self, page: u32) -> Option<Arc<str>> {
        let first = self.name(self.node_of(page)?);
        let mut others = self.copies(page).skip(1).peekable();
        if others.peek().is_none() {
            return Some(Arc::clone(first));
        }
        let mut names = first.to_string();
        for other in others {
            names.push_str(", ");
            names.push_str(self.name(other.node()));
        }
        Some(names.into())
    }

    /// True if the nodes of a page took all of its extents back.
    #[inline]
    pub(in crate::shard) fn is_lost(&self, page: u32) -> bool {
        self.extents.has_lost() && self.all_copies(page, |copy| self.extents.is_lost(copy))
    }

    /// True if all far copies of a page may be gone, because the last outcome at each of their
    /// nodes was a failure.
    #[inline]
    pub(in crate::shard) fn is_doubtful(&self, page: u32) -> bool {
        !self.health.is_good() && self.all_copies(page, |copy| self.health.is_doubtful(copy.node()))
    }

    /// True if READs from all nodes of a page, or WRITEs to them, fail again and again.
    pub(in crate::shard) fn is_at_silent_node(&self, page: u32) -> bool {
        self.all_copies(page, |copy| {
            let node = copy.node();
            self.health.is_silent(node.reads()) || self.health.is_silent(node.writes())
        })
    }

    /// A node of a page if READs from all of them fail again and again.
    pub(in crate::shard) fn unreadable_node(&self, page: u32) -> Option<NodeId> {
        let is_silent = |copy: Extent| self.health.is_silent(copy.node().reads());
        let node = self.node_of(page);
        node.filter(|_| self.all_copies(page, is_silent))
    }

    /// A node of a page if background work must not read from any of them now.
    pub(in crate::shard) fn resting_node(&self, page: u32, now_ns: u64) -> Option<NodeId> {
        let rests = |copy: Extent| !self.health.may_try(copy.node().reads(), now_ns);
        let node = self.node_of(page);
        node.filter(|_| self.all_copies(page, rests))
    }

    /// True if a READ may find out now whether a page's nodes answer.
    pub(in crate::shard) fn may_probe(&self, page: u32, now_ns: u64) -> bool {
        self.copies(page).any(|copy| {
            let queue = copy.node().reads();
            self.health.is_rested(queue, now_ns) && self.health.may_try(queue, now_ns)
        })
    }

    /// True if a node that has no copy of a page has room for it and may be tried now.
    pub(in crate::shard) fn has_room_beside(&self, page: u32, now_ns: u64) -> bool {
        self.extents.nodes().any(|node| {
            self.copies(page).all(|copy| copy.node() != node) && self.takes_now(node, now_ns)
        })
    }

    /// True if a node has a free extent and has not failed lately.
    pub(super) fn takes_now(&self, node: NodeId, now_ns: u64) -> bool {
        let queue = node.writes();
        self.extents.free_on(node) > 0
            && !self.is_gone(node, now_ns)
            && self.health.is_rested(queue, now_ns)
            && self.health.may_try(queue, now_ns)
    }

    /// When the next node that does not answer is gone, with the copies there, of those that were
    /// not gone at a time.
    pub(in crate::shard) fn next_gone_ns(&self, since_ns: u64) -> Option<u64> {
        if self.plan.most() == 1 {
            return None;
        }
        let holds =
            |&node: &NodeId| !self.extents.is_leaving(node) && self.extents.held_on(node) > 0;
        let gone = self
            .extents
            .nodes()
            .filter(holds)
            .filter_map(|node| self.health.gone_at_ns(node));
        gone.filter(|&gone_ns| gone_ns >= since_ns).min()
    }

    /// Looks for pages that lack copies, because a node may take them now, or has stopped to
    /// answer.
    pub(in crate::shard) fn look_for_short(&mut self) {
        self.has_short |= self.plan.most() > 1 || self.extents.is_any_leaving();
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

    /// Nodes that lend extents and accept pages, full or not.
    pub(super) fn taking_count(&self) -> usize {
        let takes = |&node: &NodeId| self.extents.count_on(node) > 0 && self.takes(node);
        self.extents.nodes().filter(takes).count()
    }

    /// True while too few nodes accept pages for the least number of copies. Of one copy: no node
    /// with a free extent does, or, if no node has one, none can be read.
    pub(in crate::shard) fn is_silent(&self) -> bool {
        if self.plan.least() > 1 && self.taking_count() < self.plan.least() {
            return true;
        }
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

    /// True if there is room for a page at nodes whose last outcome was no failure.
    pub(in crate::shard) fn is_sure_of_room(&self) -> bool {
        let sure = |node: &NodeId| !self.health.is_doubtful(*node);
        self.pages_on(sure, |node| self.extents.free_on(node)) > 0
    }

    /// The error of a put when local memory is full and no node accepts pages.
    pub(in crate::shard) fn all_unavailable(&self) -> Error {
        let silent = |&node: &NodeId| {
            let gives_none = self.extents.count_on(node) == 0 && !self.extents.is_leaving(node);
            gives_none
                || self.health.is_silent(node.writes())
                || self.health.is_silent(node.reads())
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

    /// How many pages fit what `extents` says of the nodes that `is_one` of those counted, with as
    /// many copies as there are such nodes, up to the plan.
    fn pages_on(
        &self,
        is_one: impl Fn(&NodeId) -> bool,
        extents: impl Fn(NodeId) -> usize,
    ) -> usize {
        if self.plan.most() == 1 {
            return self.extents.nodes().filter(is_one).map(extents).sum();
        }
        let lends = |node: &NodeId| self.extents.count_on(*node) > 0;
        let nodes = || self.extents.nodes().filter(lends).filter(&is_one);
        match self.plan.at(nodes().count()) {
            Some(copies) => pages_of(nodes().map(extents), copies),
            None => 0,
        }
    }

    /// True if WRITEs to a node do not fail again and again; of several copies, nor READs.
    fn takes(&self, node: NodeId) -> bool {
        let is_readable = self.plan.most() == 1 || !self.health.is_silent(node.reads());
        is_readable && !self.health.is_silent(node.writes())
    }

    /// True if copies on a node count as missing.
    pub(super) fn is_gone(&self, node: NodeId, now_ns: u64) -> bool {
        self.plan.most() > 1 && self.health.is_gone(node, now_ns)
    }

    /// Pages that can be added to far memory.
    pub(in crate::shard) fn free_count(&self) -> usize {
        if self.plan.most() == 1 {
            return self.extents.free_count();
        }
        self.pages_on(|_| true, |node| self.extents.free_on(node))
    }

    /// Pages that can be added to the nodes that accept them.
    pub(in crate::shard) fn takable_count(&self) -> usize {
        if self.health.is_good() {
            return self.free_count();
        }
        self.pages_on(|&node| self.takes(node), |node| self.extents.free_on(node))
    }

    /// [`FarPages::takable_count`] in percent of the pages that fit the nodes that accept them.
    pub(in crate::shard) fn free_percent(&self) -> usize {
        let takes = |&node: &NodeId| self.takes(node);
        let free = self.pages_on(takes, |node| self.extents.free_on(node));
        let count = self.pages_on(takes, |node| self.extents.count_on(node));
        free * 100 / count.max(1)
    }

    /// Pages that fit all nodes together.
    pub(in crate::shard) fn count(&self) -> usize {
        self.pages_on(|_| true, |node| self.extents.count_on(node))
    }

    /// Pages that far memory can have, at most.
    pub(in crate::shard) fn count_max(&self) -> usize {
        self.extents.count_max() / self.plan.most()
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
        debug_assert!(self.copies(page).all(|copy| copy.node() != node));
        let claimed = self.extents.claim(node);
        claimed.is_some_and(|extent| self.add_copy(page, extent))
    }

    /// Adds a copy to those of a page; false, and the extent is free again, if it has all.
    pub(super) fn add_copy(&mut self, page: u32, extent: Extent) -> bool {
        for place in 0..self.plan.most() {
            let copy = self.copy_mut(page, place);
            if copy.is_none() {
                *copy = Some(extent);
                return true;
            }
        }
        self.extents.release(extent);
        false
    }

    /// Releases the extents of a page, which no work request names any more; false if it holds
    /// none.
    pub(super) fn release(&mut self, page: u32) -> bool {
        let mut any = false;
        for place in 0..self.plan.most() {
            if let Some(extent) = self.copy_mut(page, place).take() {
                self.extents.release(extent);
                any = true;
            }
        }
        any
    }

    /// Releases the copies of a page that `is_spoilt` says, which no work request names any more.
    /// True if there were any.
    pub(super) fn release_where(
        &mut self,
        page: u32,
        is_spoilt: impl Fn(usize, Extent) -> bool,
    ) -> bool {
        let (mut kept, mut any) = (0, false);
        for place in 0..self.plan.most() {
            let Some(extent) = self.copy_mut(page, place).take() else {
                continue;
            };
            if is_spoilt(place, extent) {
                self.extents.release(extent);
                any = true;
            } else {
                // The first place is taken while any is.
                *self.copy_mut(page, kept) = Some(extent);
                kept += 1;
            }
        }
        self.has_short |= any;
        any
    }

    /// Notes that a node took back all its extents. A page that has another copy, and is not being
    /// flushed, has lost one of them. Returns the pages that hold an extent of the node, and no
    /// other, or that are being flushed; they hold it until it is released.
    pub(super) fn lose_node(&mut self, node: NodeId, flushing: Option<u32>) -> Vec<u32> {
        self.extents.lose_free(node);
        for beside in [self.target, self.left].into_iter().flatten() {
            if beside.node() == node {
                self.extents.lose(beside);
            }
        }
        let mut pages = Vec::new();
        for page in (0u32..).take(self.held.len()) {
            let here = self.copies(page).find(|copy| copy.node() == node);
            let Some(extent) = here else {
                continue;
            };
            self.extents.lose(extent);
            if self.is_lost(page) || flushing == Some(page) {
                pages.push(page);
            } else {
                self.release_where(page, |_, copy| copy == extent);
            }
        }
        pages
    }

    /// Copies that a page lacks, whether there are nodes for them or not. Those on nodes that leave
    /// do not count, nor, of several, those on nodes that are gone.
    pub(in crate::shard) fn lacking(&self, page: u32, now_ns: u64) -> usize {
        let is_there = |copy: &Extent| {
            let node = copy.node();
            !self.is_gone(node, now_ns) && !self.extents.is_leaving(node)
        };
        let there = self.copies(page).filter(is_there).count();
        self.plan.most().saturating_sub(there)
    }

    /// The node that a page's next copy is read from, if it is to replace the one there: a node
    /// that leaves, and answers.
    pub(in crate::shard) fn leaves(&self, page: u32) -> Option<NodeId> {
        let mut nodes = self.copies(page).map(Extent::node);
        nodes.find(|&node| self.extents.is_leaving(node) && !self.health.is_doubtful(node))
    }

    /// Makes the target a copy of a page. It replaces the one on the node that is named, else one
    /// on a node that leaves. That is held as the extent that was left until
    /// [`FarPages::release_left`].
    pub(super) fn place_target(
        &mut self,
        (page, replaces): (u32, Option<NodeId>),
        target: Extent,
        now_ns: u64,
    ) {
        debug_assert!(self.left.is_none(), "pages I5: one is left at a time");
        let is_replaced = |copy: &Extent| match replaces {
            Some(node) => copy.node() == node,
            None => self.extents.is_leaving(copy.node()),
        };
        for place in 0..self.plan.most() {
            if self.copy(page, place).filter(is_replaced).is_some() {
                self.left = self.copy_mut(page, place).replace(target);
                return;
            }
        }
        self.give_up_gone(page, now_ns);
        self.add_copy(page, target);
    }

    /// The queue pair of READs of the extent that was left.
    pub(in crate::shard) fn left_queue(&self) -> Option<Queue> {
        self.left.map(|left| left.node().reads())
    }

    /// Releases the extent that was left.
    pub(super) fn release_left(&mut self) {
        if let Some(left) = self.left.take() {
            self.extents.release(left);
        }
    }

    /// True while pages hold extents of nodes that leave.
    pub(in crate::shard) fn is_any_left(&self) -> bool {
        let mut nodes = self.extents.nodes();
        self.extents.is_any_leaving()
            && nodes.any(|node| self.extents.is_leaving(node) && self.extents.held_on(node) > 0)
    }

    /// True if a page has a copy on a node, and none on another one that stays and answers.
    pub(in crate::shard) fn is_alone_on(&self, page: u32, node: NodeId) -> bool {
        let is_here = |copy: Extent| copy.node() == node && !self.extents.is_lost(copy);
        let is_elsewhere = |copy: Extent| {
            let other = copy.node();
            let stays = other != node && !self.extents.is_leaving(other);
            stays && !self.extents.is_lost(copy) && !self.health.is_doubtful(other)
        };
        self.copies(page).any(is_here) && !self.copies(page).any(is_elsewhere)
    }

    // Nodes that come and go.

    /// A node joins at a position that has none.
    pub(super) fn join(&mut self, node: NodeId, name: Arc<str>, zone: usize) {
        self.health.forget(node);
        self.extents.join(node, name, zone);
    }

    /// A node leaves, and pages are to leave it; or it stays after all.
    pub(super) fn set_leaving(&mut self, node: NodeId, leaves: bool) {
        self.extents.set_leaving(node, leaves);
        self.has_short |= leaves || self.plan.most() > 1;
    }

    /// Extents of a node that pages hold.
    pub(super) fn held_on(&self, node: NodeId) -> usize {
        self.extents.held_on(node)
    }

    /// A node of which pages hold nothing has left.
    pub(super) fn vacate(&mut self, node: NodeId) {
        self.extents.vacate(node);
        self.health.forget(node);
    }

    /// Gives up the copies of a page on nodes that are gone: it is about to get another one.
    pub(super) fn give_up_gone(&mut self, page: u32, now_ns: u64) {
        let health = &self.health;
        let gone = |copy: &Extent| health.is_gone(copy.node(), now_ns);
        let nodes: u64 = (self.copies(page).filter(gone))
            .fold(0, |nodes, copy| nodes | 1 << copy.node().position());
        self.release_where(page, |_, copy| nodes & 1 << copy.node().position() != 0);
    }

    /// Copies that a page must have to leave local memory are there.
    pub(in crate::shard) fn has_least(&self, page: u32) -> bool {
        self.plan.least() == 1 || self.copies(page).count() >= self.plan.least()
    }

    /// Pages that can be added now: to all nodes, or, of several copies, to those that accept them.
    pub(in crate::shard) fn room_count(&self) -> usize {
        if self.plan.most() == 1 {
            return self.extents.free_count();
        }
        self.takable_count()
    }

    /// A node answers again.
    pub(super) fn answers(&mut self, node: NodeId) {
        self.health.answers(node);
    }

    /// Nodes are back: where pages are copied, all are tried. One that was seen before its queue
    /// pairs were connected may be the only one that has room for pages that leave another.
    pub(in crate::shard) fn forgive(&mut self) {
        if self.plan.most() > 1 || self.extents.is_any_leaving() {
            self.health.forgive();
            self.has_short = true;
        }
    }

    /// Publishes what each node holds, and how many of its queue pairs fail.
    pub(in crate::shard) fn publish_nodes(&self, metrics: &CoreMetrics, page_bytes: u64) {
        for (position, seen) in metrics.nodes.iter().enumerate() {
            let node = NodeId::new(position);
            let (count, held) = (self.extents.lent_by(node), self.extents.held_on(node));
            let bytes = |extents: usize| extents as u64 * page_bytes;
            seen.total_bytes.set(bytes(count));
            seen.used_bytes.set(bytes(held.min(count)));
            let queues = [node.reads(), node.writes()];
            let is_silent = |&&queue: &&Queue| self.health.is_silent(queue);
            let silent = queues.iter().filter(is_silent).count();
            seen.silent_queues.set(silent as u64);
            let leaving = if self.extents.is_leaving(node) {
                held
            } else {
                0
            };
            seen.leaving_pages.set(leaving as u64);
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
        let beside = [&self.target, &self.left];
        let all = self.held.iter().chain(&self.others).chain(beside);
        self.extents.check(all.copied().flatten());
        for page in (0u32..).take(self.held.len()) {
            let mut nodes: Vec<usize> = self.copies(page).map(|c| c.node().position()).collect();
            assert!(
                nodes.is_empty() || self.holds(page),
                "pages I2: page {page} has no first copy"
            );
            nodes.sort_unstable();
            let count = nodes.len();
            nodes.dedup();
            assert_eq!(
                nodes.len(),
                count,
                "pages I3: page {page} is twice on a node"
            );
        }
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
        let beside = [&self.target, &self.left];
        let all = self.held.iter().chain(&self.others).chain(beside);
        let held = all.flatten().filter_map(|&extent| {
            let place = self.extents.remote(extent, 0)?;
            Some((extent.node().position(), place))
        });
        free.chain(held).collect()
    }

    /// The node and the offset in its memory of a byte of each copy of a page that its node has
    /// not taken back.
    pub(in crate::shard) fn places(
        &self,
        page: u32,
        start: u64,
    ) -> impl Iterator<Item = (NodeId, u64)> {
        self.copies(page).filter_map(move |copy| {
            let remote = self.extents.remote(copy, start)?;
            Some((copy.node(), remote.offset))
        })
    }

    /// The node of the target, and of the extent that was left, and its offset there, unless the
    /// node took it back.
    pub(in crate::shard) fn places_beside(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let beside = [self.target, self.left].into_iter().flatten();
        beside.filter_map(|extent| {
            let remote = self.extents.remote(extent, 0)?;
            Some((extent.node(), remote.offset))
        })
    }

    /// Has the second copy of a page name the node of the first: a fault that tests inject.
    #[cfg(test)]
    pub(in crate::shard) fn join_copies(&mut self, page: u32) {
        let node = self.node_of(page);
        let copy = self.copy_mut(page, 1);
        *copy = copy.and_then(|copy| node.map(|node| copy.misplaced(node)));
    }

    /// Has a page name the same place on another node: a fault that tests inject.
    #[cfg(test)]
    pub(in crate::shard) fn misplace(&mut self, page: u32, node: NodeId) {
        let held = &mut self.held[page as usize];
        *held = held.map(|extent| extent.misplaced(node));
    }
}
