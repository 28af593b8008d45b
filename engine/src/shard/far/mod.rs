//! A shard's far memory: its endpoint, its far pages, and the READs and WRITEs of them.
//!
//! [`FarStore`] owns far I/O: no other part of the shard posts or polls. It returns completions as
//! values with the tag of their work request, and the shard dispatches them. [`FarPages`] knows
//! where a page lies and whether its node answers.
//!
//! - I1: a tag names the queue pair, so a failure is attributed without knowing what it was posted
//!   for.

pub(in crate::shard) mod buffers;
mod extents;
mod health;
mod io;
pub(in crate::shard) mod opened;
mod opening;
pub(in crate::shard) mod pages;
mod placement;
pub(in crate::shard) mod read_ahead;
mod tag;

use std::sync::Arc;

use farcore_rdma::{
    Completion, Endpoint, Landing, LocalSlice, PostError, QueuePairState, RemoteSlice, Status,
    Work, WorkRequest,
};

use self::buffers::Buffers;
use self::extents::{AddError, Extent, Queue};
pub(crate) use self::extents::{Extents, NODES_MAX, NodeId, QUEUES_PER_NODE};
#[cfg(test)]
pub(in crate::shard) use self::health::RETRY_NS;
use self::pages::FarPages;
pub(in crate::shard) use self::tag::{Purpose, WorkTag};
use crate::cipher::PageCipher;
use crate::observe::metrics::CoreMetrics;

/// Completions polled at once.
const COMPLETIONS: usize = 64;

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
    pub(in crate::shard) fn has_read_room(&self, page: u32) -> bool {
        let node = self.pages.node_of(page);
        node.is_none_or(|node| self.endpoint.room(node.reads().index()) > 0)
    }

    /// Posts a READ of a page, from byte `start` on, into `local`. Its completion carries
    /// `purpose`. [`Posted::Down`] also if the page is not far, or its node took it back.
    #[inline]
    pub(in crate::shard) fn read(
        &mut self,
        page: u32,
        start: u64,
        local: LocalSlice,
        purpose: Purpose,
        now_ns: u64,
    ) -> Posted {
        let Some(extent) = self.pages.extent(page) else {
            return Posted::Down;
        };
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

    /// Posts a WRITE of `local` to a page, from byte `start` on. Its completion carries `purpose`.
    /// [`Posted::Down`] also if the page holds no extent, or its node took it back.
    pub(in crate::shard) fn write(
        &mut self,
        page: u32,
        start: u64,
        local: LocalSlice,
        purpose: Purpose,
        now_ns: u64,
    ) -> Posted {
        let Some(extent) = self.pages.extent(page) else {
            return Posted::Down;
        };
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
            return self.pages.health.succeeded(queue);
        }
        self.metrics.counters.fabric_errors.add(1);
        self.pages
            .health
            .failed(queue, status == Status::Flushed, now_ns);
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
                self.pages.health.is_down(queue, now_ns);
                Posted::Down
            }
        }
    }

    /// Gives a page an extent of the node that answers and has the most free ones; false if there
    /// is none. A node that failed lately is last; one that fails again and again is skipped until
    /// its retry time.
    pub(in crate::shard) fn claim(&mut self, page: u32, now_ns: u64) -> bool {
        let mut best = None;
        for node in self.pages.extents.nodes() {
            let (free, queue) = (self.pages.extents.free_on(node), node.writes());
            let rank = (self.pages.health.is_rested(queue, now_ns), free);
            if free > 0
                && best.is_none_or(|(known, _)| known < rank)
                && self.pages.health.may_try(queue, now_ns)
                && self.is_up(queue, now_ns)
            {
                best = Some((rank, node));
            }
        }
        let Some((_, node)) = best else {
            return false;
        };
        let claimed = self.pages.claim(page, node);
        self.publish_bytes();
        claimed
    }

    /// Releases the extent of a page, if it holds one; no work request names it any more.
    pub(in crate::shard) fn release(&mut self, page: u32) {
        if self.pages.release(page) {
            self.publish_bytes();
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

    /// Notes that a node took back all its extents; returns the pages that hold one of them, which
    /// must be released.
    pub(in crate::shard) fn lose_node(&mut self, node: NodeId) -> Vec<u32> {
        let pages = self.pages.lose_node(node);
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
                self.pages.health.is_down(queue, now_ns);
                false
            }
        }
    }
}
