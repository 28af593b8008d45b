//! A shard's far memory: its endpoint, its far pages, and the READs and WRITEs of them.
//!
//! [`FarStore`] owns far I/O: no other part of the shard posts or polls. It returns completions as
//! values with the tag of their work request, and the shard dispatches them. [`FarPages`] knows
//! where a page lies and whether its nodes answer. Of a page with several copies, a READ goes to
//! one that its node is known to hold, of these to the one with the fewest requests under way.
//!
//! - I1: a tag names the queue pair, so a failure is attributed without knowing what it was posted
//!   for.

mod balance;
pub(in crate::shard) mod buffers;
mod copies;
mod extents;
mod health;
mod io;
pub(in crate::shard) mod opened;
mod opening;
pub(in crate::shard) mod pages;
mod placement;
pub(in crate::shard) mod read_ahead;
mod tag;

use std::cmp::Reverse;
use std::sync::Arc;

use farcore_rdma::{
    Completion, Endpoint, Landing, LocalSlice, PostError, QueuePairState, RemoteSlice, Status,
    Work, WorkRequest,
};

pub(in crate::shard) use self::balance::Shares;
use self::buffers::Buffers;
use self::copies::need;
pub(crate) use self::copies::{COPIES_MAX, CopyPlan};
use self::extents::{AddError, Extent, Queue};
pub(crate) use self::extents::{Extents, NODES_MAX, NodeId, QUEUES_PER_NODE};
#[cfg(test)]
pub(in crate::shard) use self::health::{GONE_NS, RETRY_NS};
use self::pages::FarPages;
pub(in crate::shard) use self::tag::{Purpose, WorkTag};
use crate::cipher::PageCipher;
use crate::observe::metrics::CoreMetrics;

/// Completions polled at once.
const COMPLETIONS: usize = 64;

/// The nodes whose copies of a page were tried in vain, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::shard) struct Avoided(u64);

const _: () = assert!(NODES_MAX <= u64::BITS as usize);

impl Avoided {
    pub(in crate::shard) const NONE: Self = Self(0);

    pub(in crate::shard) fn all_but(node: NodeId) -> Self {
        Self(!(1 << node.position()))
    }

    /// The nodes, from the first on.
    pub(in crate::shard) fn nodes(self) -> impl Iterator<Item = NodeId> {
        (0..NODES_MAX)
            .map(NodeId::new)
            .filter(move |&node| self.has(node))
    }

    /// Avoids all that the other does not.
    pub(in crate::shard) fn add_rest(&mut self, other: Self) {
        self.0 |= !other.0;
    }

    /// Another node may join at the position of this one.
    pub(in crate::shard) fn forget(&mut self, node: NodeId) {
        self.0 &= !(1 << node.position());
    }

    pub(in crate::shard) fn has(self, node: NodeId) -> bool {
        self.0 & 1 << node.position() != 0
    }

    pub(in crate::shard) fn add(&mut self, node: NodeId) {
        self.0 |= 1 << node.position();
    }
}

/// The outcome of posting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum Posted {
    Yes,
    /// The queue is full; retry later.
    Full,
    /// The queue pair is down and cannot be renewed now.
    Down,
}

/// A shard's end of far memory.
#[derive(Debug)]
pub(in crate::shard) struct FarStore<E> {
    pub(in crate::shard) endpoint: E,
    /// Queue pairs that were posted to since their last doorbell.
    unrung: u128,
    /// Work requests posted and not completed.
    pub(in crate::shard) under_way: usize,
    pub(in crate::shard) pages: FarPages,
    pub(in crate::shard) cipher: Option<PageCipher>,
    pub(in crate::shard) buffers: Buffers,
    /// The landing buffer of the probe in flight.
    probing: Option<Landing>,
    metrics: Arc<CoreMetrics>,
}

impl<E: Endpoint> FarStore<E> {
    pub(in crate::shard) fn new(
        endpoint: E,
        pages: FarPages,
        cipher: Option<PageCipher>,
        buffers: Buffers,
        metrics: Arc<CoreMetrics>,
    ) -> Self {
        Self {
            endpoint,
            unrung: 0,
            under_way: 0,
            pages,
            cipher,
            buffers,
            probing: None,
            metrics,
        }
    }

    /// Bytes of the buffer of the probe in flight.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn probing_bytes(&self) -> u64 {
        let probing = self.probing.as_ref();
        probing.map_or(0, |landing| u64::from(landing.bytes()))
    }

    /// Rings the doorbell of every queue pair that was posted to.
    pub(in crate::shard) fn ring(&mut self, now_ns: u64) {
        let mut unrung = std::mem::take(&mut self.unrung);
        while unrung != 0 {
            let queue = unrung.trailing_zeros() as usize;
            unrung &= unrung - 1;
            self.metrics.counters.doorbells.add(1);
            self.endpoint.ring_doorbell(queue, now_ns);
        }
    }

    /// True if a READ of a page can be posted now, or would fail at once.
    #[inline]
    pub(in crate::shard) fn has_read_room(&self, page: u32, avoided: Avoided) -> bool {
        let source = self.source(page, avoided);
        source.is_none_or(|copy| self.endpoint.room(copy.node().reads().index()) > 0)
    }

    /// The copy of a page that is read next.
    #[inline]
    fn source(&self, page: u32, avoided: Avoided) -> Option<Extent> {
        if self.pages.plan().most() == 1 {
            return self.pages.extent(page);
        }
        self.best_source(page, avoided)
    }

    /// Of the copies that are not avoided, one whose node answers and has the fewest requests under
    /// way. If all are avoided, any of them.
    fn best_source(&self, page: u32, avoided: Avoided) -> Option<Extent> {
        let rank = |copy: &Extent| {
            let node = copy.node();
            (
                self.pages.extents.is_lost(*copy),
                avoided.has(node),
                self.pages.health.is_silent(node.reads()),
                self.pages.health.is_doubtful(node),
                self.endpoint.outstanding_on(node.reads().index()),
            )
        };
        self.pages.copies(page).min_by_key(rank)
    }

    /// What leaves one copy of a page to READs that belong together: avoids all but the best of
    /// those that were not tried.
    pub(in crate::shard) fn one_copy(&self, page: u32, tried: Avoided) -> Avoided {
        match self.source(page, tried) {
            Some(copy) if self.pages.plan().most() > 1 => Avoided::all_but(copy.node()),
            _ => Avoided::NONE,
        }
    }

    /// A node of a page that does not answer, of the copies that were not tried.
    #[cold]
    pub(in crate::shard) fn silent_untried(&self, page: u32, tried: Avoided) -> Option<NodeId> {
        let mut nodes = self.pages.copies(page).map(Extent::node);
        nodes.find(|&node| !tried.has(node) && self.pages.health.is_silent(node.reads()))
    }

    /// True if a page has a copy that is not avoided.
    #[cold]
    pub(in crate::shard) fn has_other_copy(&self, page: u32, avoided: Avoided) -> bool {
        let is_other = |&copy: &Extent| !avoided.has(copy.node());
        let mut others = self.pages.copies(page).filter(is_other);
        others.any(|copy| !self.pages.extents.is_lost(copy))
    }

    /// Posts a READ of a page, from byte `start` on, into `local`. Its completion carries
    /// `purpose`. [`Posted::Down`] also if the page is not far, or its nodes took it back.
    #[inline]
    pub(in crate::shard) fn read(
        &mut self,
        page: u32,
        start: u64,
        local: LocalSlice,
        (purpose, mut avoided): (Purpose, Avoided),
        now_ns: u64,
    ) -> Posted {
        loop {
            let Some(extent) = self.source(page, avoided) else {
                return Posted::Down;
            };
            let posted = self.read_at(extent, start, local, purpose, now_ns);
            if posted != Posted::Down || self.pages.plan().most() == 1 {
                return posted;
            }
            // Its connection is down: another copy may do.
            avoided.add(extent.node());
            if !self.has_other_copy(page, avoided) {
                return posted;
            }
        }
    }

    /// Posts a READ of one copy of a page.
    #[inline]
    pub(super) fn read_at(
        &mut self,
        extent: Extent,
        start: u64,
        local: LocalSlice,
        purpose: Purpose,
        now_ns: u64,
    ) -> Posted {
        let queue = extent.node().reads();
        let work = |remote| Work::Read { local, remote };
        let posted = self.post_at(extent, start, queue, purpose, work, now_ns);
        if posted == Posted::Yes {
            let bytes = u64::from(local.bytes);
            self.metrics.counters.far_reads.add(1);
            self.metrics.counters.far_read_bytes.add(bytes);
            if let Some(node) = self.metrics.nodes.get(extent.node().position()) {
                node.reads.add(1);
                node.read_bytes.add(bytes);
            }
        }
        posted
    }

    /// Posts a WRITE of `local` to the copy of a page at a place, from byte `start` on. Its
    /// completion carries `purpose`. [`Posted::Down`] also if the page has no such copy, or its
    /// node took it back.
    pub(in crate::shard) fn write(
        &mut self,
        (page, copy): (u32, usize),
        start: u64,
        local: LocalSlice,
        purpose: Purpose,
        now_ns: u64,
    ) -> Posted {
        match self.pages.copy(page, copy) {
            Some(extent) => self.write_at(extent, start, local, purpose, now_ns),
            None => Posted::Down,
        }
    }

    /// Posts a WRITE to an extent.
    pub(super) fn write_at(
        &mut self,
        extent: Extent,
        start: u64,
        local: LocalSlice,
        purpose: Purpose,
        now_ns: u64,
    ) -> Posted {
        let queue = extent.node().writes();
        let work = |remote| Work::Write { local, remote };
        let posted = self.post_at(extent, start, queue, purpose, work, now_ns);
        if posted == Posted::Yes {
            let bytes = u64::from(local.bytes);
            self.metrics.counters.far_writes.add(1);
            self.metrics.counters.far_write_bytes.add(bytes);
            if let Some(node) = self.metrics.nodes.get(extent.node().position()) {
                node.writes.add(1);
                node.write_bytes.add(bytes);
            }
        }
        posted
    }

    #[inline]
    fn post_at(
        &mut self,
        extent: Extent,
        start: u64,
        queue: Queue,
        purpose: Purpose,
        work: impl FnOnce(RemoteSlice) -> Work,
        now_ns: u64,
    ) -> Posted {
        let Some(remote) = self.pages.extents.remote(extent, start) else {
            return Posted::Down;
        };
        let request = WorkRequest {
            id: WorkTag { purpose, queue }.id(),
            work: work(remote),
            signalled: true,
        };
        self.post(queue, request, now_ns)
    }

    /// Polls completions and notes what they say about the health of nodes. Returns how many.
    pub(in crate::shard) fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        let count = self.endpoint.poll(now_ns, completions);
        if count == 0 {
            self.metrics.counters.empty_polls.add(1);
            return 0;
        }
        self.metrics.counters.completions.add(count as u64);
        self.under_way -= count;
        for completion in &completions[..count] {
            if completion.status != Status::Success || !self.pages.health.is_good() {
                self.note_health(WorkTag::of(completion.id).queue, completion.status, now_ns);
            }
        }
        count
    }

    /// Notes a node's health: every failure, and every success while any node is troubled.
    #[cold]
    fn note_health(&mut self, queue: Queue, status: Status, now_ns: u64) {
        if status == Status::Success {
            if self.pages.health.is_silent(queue) {
                self.pages.look_for_short();
            }
            return self.pages.health.succeeded(queue);
        }
        self.metrics.counters.fabric_errors.add(1);
        let was_silent = self.pages.health.is_silent(queue);
        self.pages
            .health
            .failed(queue, status == Status::Flushed, now_ns);
        if !was_silent && self.pages.health.is_silent(queue) {
            self.look_for_short();
        }
        if let Some(node) = self.metrics.nodes.get(queue.node().position()) {
            node.errors.add(1);
        }
    }

    /// Posts to a queue pair; one that is down is renewed first.
    #[inline]
    fn post(&mut self, queue: Queue, request: WorkRequest, now_ns: u64) -> Posted {
        let posted = match self.endpoint.post(queue.index(), request) {
            Ok(()) => Posted::Yes,
            Err(PostError::Full(_)) => Posted::Full,
            Err(PostError::Down(back)) => self.post_renewed(queue, back, now_ns),
            Err(PostError::Invalid { reason, .. }) => {
                debug_assert!(false, "an invalid work request: {reason}");
                Posted::Down
            }
        };
        if posted == Posted::Yes {
            self.unrung |= queue.bit();
            self.under_way += 1;
        }
        posted
    }

    #[cold]
    fn post_renewed(&mut self, queue: Queue, request: WorkRequest, now_ns: u64) -> Posted {
        if self.endpoint.outstanding_on(queue.index()) > 0 {
            // Posted requests return flushed at the next polls; then the queue pair can be renewed.
            return Posted::Full;
        }
        self.endpoint.renew(queue.index());
        match self.endpoint.post(queue.index(), request) {
            Ok(()) => Posted::Yes,
            Err(PostError::Full(_)) => Posted::Full,
            Err(_) => {
                self.note_down(queue, now_ns);
                Posted::Down
            }
        }
    }

    /// Notes that a queue pair is down and cannot be renewed now.
    #[cold]
    fn note_down(&mut self, queue: Queue, now_ns: u64) {
        let was_silent = self.pages.health.is_silent(queue);
        self.pages.health.is_down(queue, now_ns);
        if !was_silent {
            self.look_for_short();
        }
    }

    /// Notes that the session of a node is down, so that its queue pairs are too, although no
    /// request may have failed.
    pub(in crate::shard) fn session_is_down(&mut self, node: NodeId, now_ns: u64) {
        // It may have left meanwhile.
        if self.pages.extents.nodes().any(|known| known == node) {
            for queue in [node.reads(), node.writes()] {
                self.note_down(queue, now_ns);
            }
        }
    }

    /// Looks for pages that lack copies, if there are to be several.
    fn look_for_short(&mut self) {
        self.pages.look_for_short();
        if self.pages.has_short {
            self.metrics.counters.copying.set(1);
        }
    }

    /// Gives a page as many extents as it should have copies, on as many nodes; fewer where fewer
    /// nodes take any, down to the least. False, and it holds none, if there are not that many.
    pub(in crate::shard) fn claim(&mut self, page: u32, now_ns: u64) -> bool {
        let plan = self.pages.plan();
        let mut claimed = 0;
        while claimed < plan.most() {
            let Some(node) = self.best_target(page, now_ns) else {
                break;
            };
            if !self.pages.claim(page, node) {
                break;
            }
            claimed += 1;
        }
        let is_enough = claimed >= plan.least()
            && (claimed == plan.most() || self.pages.taking_count() <= claimed);
        if !is_enough {
            self.pages.release(page);
        }
        if is_enough && claimed < plan.most() {
            self.note_short();
        }
        self.publish_bytes();
        is_enough
    }

    /// The node for the next copy of a page: one that answers and has none, rather in another zone
    /// than its other copies. Then one without which fewer pages would fit, and then the one of
    /// which pages hold the smallest share, so that nodes of any size fill alike. A node that
    /// failed lately is last; one that fails again and again is skipped until its retry time.
    pub(super) fn best_target(&mut self, page: u32, now_ns: u64) -> Option<NodeId> {
        let (mut best, fits) = (None, self.pages.takable_count());
        for node in self.pages.extents.nodes() {
            if self.pages.copies(page).any(|copy| copy.node() == node) {
                continue;
            }
            let (free, queue) = (self.pages.extents.free_on(node), node.writes());
            let zone = self.pages.extents.zone(node);
            let is_there = |copy: Extent| {
                let extents = &self.pages.extents;
                !extents.is_leaving(copy.node()) && extents.zone(copy.node()) == zone
            };
            let is_new_zone = !self.pages.copies(page).any(is_there);
            let rank = (
                self.pages.health.is_rested(queue, now_ns),
                is_new_zone,
                need(free, fits),
                Reverse(self.pages.extents.share_on(node)),
                free,
            );
            if free > 0
                && best.is_none_or(|(known, _)| known < rank)
                && !self.pages.is_gone(node, now_ns)
                && self.pages.health.may_try(queue, now_ns)
                && self.is_up(queue, now_ns)
            {
                best = Some((rank, node));
            }
        }
        best.map(|(_, node)| node)
    }

    /// Releases the extents of a page, if it holds any; no work request names them any more.
    pub(in crate::shard) fn release(&mut self, page: u32) {
        if self.pages.release(page) {
            self.publish_bytes();
        }
    }

    /// Claims an extent to copy a page to: the target. False if no node without a copy takes one,
    /// and has more free ones than are kept.
    pub(in crate::shard) fn claim_target(&mut self, page: u32, kept: usize, now_ns: u64) -> bool {
        debug_assert!(self.pages.target.is_none(), "one page is copied at a time");
        let node = self.best_target(page, now_ns);
        let node = node.filter(|&node| self.pages.extents.free_on(node) > kept);
        self.pages.target = node.and_then(|node| self.pages.extents.claim(node));
        self.publish_bytes();
        self.pages.target.is_some()
    }

    /// Claims an extent of a node as the target; false if it takes none now, or could not be read:
    /// the page lies elsewhere, where it can.
    pub(in crate::shard) fn claim_target_on(&mut self, node: NodeId, now_ns: u64) -> bool {
        debug_assert!(self.pages.target.is_none(), "one page is copied at a time");
        let mut serves =
            |queue| self.pages.health.may_try(queue, now_ns) && self.is_up(queue, now_ns);
        if serves(node.writes()) && serves(node.reads()) {
            self.pages.target = self.pages.extents.claim(node);
            self.publish_bytes();
        }
        self.pages.target.is_some()
    }

    /// The target is a copy of a page from now on, for the copy on a node if it replaces that; or
    /// it is free again.
    pub(in crate::shard) fn settle_target(
        &mut self,
        (page, replaces): (u32, Option<NodeId>),
        is_copy: bool,
        now_ns: u64,
    ) {
        if let Some(target) = self.pages.target.take() {
            if is_copy && !self.pages.extents.is_lost(target) {
                self.pages.place_target((page, replaces), target, now_ns);
            } else {
                self.pages.extents.release(target);
            }
            self.publish_bytes();
        }
    }

    /// True once no READ of the extent that was left can be under way: none is to its node.
    pub(in crate::shard) fn is_left_alone(&self) -> bool {
        let queue = self.pages.left_queue();
        queue.is_none_or(|queue| self.endpoint.outstanding_on(queue.index()) == 0)
    }

    /// Posts a READ of the extent that was left. It completes after all that were posted before.
    pub(in crate::shard) fn read_left(
        &mut self,
        local: LocalSlice,
        purpose: Purpose,
        now_ns: u64,
    ) -> Posted {
        match self.pages.left {
            Some(left) => self.read_at(left, 0, local, purpose, now_ns),
            None => Posted::Down,
        }
    }

    /// Releases the extent that was left, which no READ names any more.
    pub(in crate::shard) fn release_left(&mut self) {
        self.pages.release_left();
        self.publish_bytes();
    }

    /// A node joins at a position that has none.
    pub(in crate::shard) fn join(&mut self, node: NodeId, name: Arc<str>, zone: usize) {
        self.pages.join(node, name, zone);
    }

    /// A node leaves, and pages are to leave it; or it stays after all.
    pub(in crate::shard) fn set_leaving(&mut self, node: NodeId, leaves: bool) {
        self.pages.set_leaving(node, leaves);
        self.metrics.counters.copying.set(1);
        self.publish_bytes();
    }

    /// What keeps a node from leaving: extents that pages hold, and requests under way.
    pub(in crate::shard) fn left_on(&self, node: NodeId) -> usize {
        let queues = [node.reads(), node.writes()];
        let under_way = queues.map(|queue| self.endpoint.outstanding_on(queue.index()));
        self.pages.held_on(node) + under_way.iter().sum::<usize>()
    }

    /// A node of which nothing is left leaves its position. What its queue pairs are connected to
    /// has failed, and is let go.
    pub(in crate::shard) fn vacate(&mut self, node: NodeId) {
        debug_assert_eq!(
            self.left_on(node),
            0,
            "a node is left by pages and requests"
        );
        for queue in [node.reads(), node.writes()] {
            self.endpoint.renew(queue.index());
        }
        self.pages.vacate(node);
        if let Some(counters) = self.metrics.nodes.get(node.position()) {
            counters.reset();
        }
        self.publish_bytes();
    }

    /// Posts a WRITE to the target, or, with a node, to the copy of a page there.
    pub(in crate::shard) fn write_copy(
        &mut self,
        (page, node): (u32, Option<NodeId>),
        start: u64,
        local: LocalSlice,
        purpose: Purpose,
        now_ns: u64,
    ) -> Posted {
        let target = match node {
            Some(node) => self.pages.copies(page).find(|copy| copy.node() == node),
            None => self.pages.target,
        };
        match target {
            Some(target) => self.write_at(target, start, local, purpose, now_ns),
            None => Posted::Down,
        }
    }

    /// Adds a page-sized piece of a node's memory.
    ///
    /// # Errors
    /// [`AddError`] says which limit was reached.
    pub(in crate::shard) fn add(
        &mut self,
        node: NodeId,
        piece: RemoteSlice,
    ) -> Result<(), AddError> {
        let added = self.pages.add(node, piece);
        self.publish_bytes();
        added
    }

    /// As [`FarPages::release_where`].
    pub(in crate::shard) fn release_copies(
        &mut self,
        page: u32,
        is_spoilt: impl Fn(usize) -> bool,
    ) {
        if self.pages.release_where(page, |place, _| is_spoilt(place)) {
            self.note_short();
        }
        self.publish_bytes();
    }

    /// Notes that a page has fewer copies than it should.
    fn note_short(&mut self) {
        self.pages.has_short = true;
        self.metrics.counters.copying.set(1);
    }

    /// Notes that a node took back all its extents; returns the pages that have no copy left, and
    /// the page that is being flushed, if it holds one of them. They must be released.
    pub(in crate::shard) fn lose_node(&mut self, node: NodeId, flushing: Option<u32>) -> Vec<u32> {
        let pages = self.pages.lose_node(node, flushing);
        self.publish_bytes();
        pages
    }

    pub(in crate::shard) fn publish_bytes(&self) {
        self.metrics
            .counters
            .far_used_bytes
            .set(self.pages.used_bytes());
        self.metrics
            .counters
            .far_total_bytes
            .set(self.pages.total_bytes());
    }

    /// True if a queue pair accepts requests now. One that was drained, or never connected, is
    /// renewed first.
    fn is_up(&mut self, queue: Queue, now_ns: u64) -> bool {
        let state = self.endpoint.state(queue.index());
        // A queue pair in error with nothing outstanding is not polled any more, and would never be
        // drained.
        if state != QueuePairState::ReadyToSend && self.endpoint.outstanding_on(queue.index()) == 0
        {
            self.endpoint.renew(queue.index());
        }
        match self.endpoint.state(queue.index()) {
            QueuePairState::ReadyToSend => true,
            // Not all of its requests have returned.
            QueuePairState::Error => false,
            _ => {
                self.note_down(queue, now_ns);
                false
            }
        }
    }
}
