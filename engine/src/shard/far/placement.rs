//! Far memory as a shard sees it: where a page's extent lies, which node takes the next one, and
//! what to say of a node that does not answer.

use std::sync::Arc;

use farcore_rdma::{Endpoint, QueuePairState, RemoteSlice, Status};

use crate::error::Error;
use crate::shard::far::extents::{Extent, NodeId, NotAdded, Queue};
use crate::shard::local::page_table::{PageKind, PageState};
use crate::shard::{Shard, WorkTag};

/// What a request is told whose page will not come back.
pub(in crate::shard) const LOST: &str = "the lease ended, the node was started anew or it returned something else, and what lay there is lost";

impl<E: Endpoint> Shard<E> {
    /// Adds a page-sized piece of a node's memory.
    ///
    /// # Errors
    /// [`NotAdded`] says which limit is in the way.
    pub(crate) fn add_extent(&mut self, node: NodeId, piece: RemoteSlice) -> Result<(), NotAdded> {
        let added = self.extents.add(node, piece);
        self.exhausted &= added.is_err();
        self.publish_far_bytes();
        added
    }

    /// How many more extents can be added.
    pub(crate) fn extents_room(&self) -> usize {
        self.extents.room()
    }

    /// Far memory changed: what was given up is tried again.
    pub(crate) fn node_is_back(&mut self) {
        self.health.try_again(NodeId::writes);
        self.health.try_again(NodeId::reads);
        self.exhausted = false;
    }

    /// A node has taken back everything that it lent. Pages that are local as well are to be
    /// flushed again; the others' records are unavailable until they are written again. Cost: the
    /// whole index is read, once for such a loss.
    pub(crate) fn lose_node(&mut self, node: NodeId) {
        self.extents.lose_free(node);
        let pages = self.pages.iter();
        let theirs = pages.filter(|(_, page)| page.extent.is_some_and(|e| e.node() == node));
        let numbers: Vec<u32> = theirs.map(|(number, _)| number).collect();
        let mut gone = vec![false; self.pages.len()];
        let mut unavailable = 0;
        for &number in &numbers {
            let page = self.pages.get_mut(number);
            let Some(extent) = page.extent else {
                continue;
            };
            self.extents.lose(extent);
            match page.state() {
                PageState::Clean => {
                    self.victims.withdraw(&mut self.pages, number);
                    let page = self.pages.get_mut(number);
                    page.extent = None;
                    self.seals += 1;
                    page.sealed_at = self.seals;
                    self.pages.set_state(number, PageState::Sealed);
                    self.extents.release(extent);
                    self.sealed.push_back(number);
                }
                PageState::Far => {
                    unavailable += page.live_bytes;
                    // Not to be listed as a victim any more.
                    page.damaged = true;
                    gone[number as usize] = true;
                }
                // A flush fails at its next piece or completion, and is done again elsewhere.
                _ => {}
            }
        }
        let pages = &self.pages;
        self.clean
            .retain(|&number| pages.get(number).state() == PageState::Clean);
        let slots = self.send_to_lost_page(&gone);
        self.lost.note_slots(slots);
        for number in numbers.into_iter().filter(|&number| gone[number as usize]) {
            let live_bytes = std::mem::take(&mut self.pages.get_mut(number).live_bytes);
            self.victims.live_bytes = self.victims.live_bytes.saturating_sub(live_bytes);
            // One that is pinned is freed by whoever unpins it last.
            self.free_if_dead(number);
        }
        self.exhausted = false;
        self.publish_far_bytes();
        let name = Arc::clone(self.extents.name(node));
        tracing::error!(
            shard = self.id,
            node = &*name,
            bytes = unavailable,
            keys = slots,
            "a memory node has lost what it held: those records are unavailable"
        );
        self.lost.note_node(&name);
    }

    /// Points every slot that leads to pages which are gone to the lost page, and every cached
    /// copy's home; answers how many slots. A record that has a copy is not lost.
    pub(in crate::shard) fn send_to_lost_page(&mut self, gone: &[bool]) -> u64 {
        let shape = self.shape;
        let place = self.lost_place(0);
        let (mut copies, mut slots) = (Vec::new(), 0);
        let pages = &self.pages;
        self.index.redirect(|slot| {
            let page = slot.address().page(shape);
            if pages.get(page).kind() == PageKind::Cache {
                copies.push(slot.address());
            }
            gone[page as usize].then(|| {
                slots += 1;
                place
            })
        });
        for copy in copies {
            if gone[self.home_of(copy).page(shape) as usize] {
                self.set_home(copy, place.1);
            }
        }
        slots
    }

    /// True if a page's node has taken its extent back, or it stands for lost records.
    #[inline]
    pub(in crate::shard) fn is_lost(&self, page: u32) -> bool {
        if self.pages.is_lost_page(page) {
            return true;
        }
        if !self.extents.has_lost() {
            return false;
        }
        let extent = self.pages.get(page).extent;
        extent.is_some_and(|extent| self.extents.is_lost(extent))
    }

    /// The node of a page's extent.
    #[inline]
    pub(in crate::shard) fn node_of(&self, page: u32) -> Option<NodeId> {
        self.pages.get(page).extent.map(Extent::node)
    }

    /// Takes an extent of the node that answers and has the most free ones. One that failed lately
    /// comes after the others, one that fails again and again not before its time.
    pub(in crate::shard) fn claim_extent(&mut self) -> Option<Extent> {
        let mut best = None;
        for node in self.extents.nodes() {
            let (free, queue) = (self.extents.free_on(node), node.writes());
            let rank = (self.health.is_rested(queue, self.now_ns), free);
            if free > 0
                && best.is_none_or(|(known, _)| known < rank)
                && self.health.may_try(queue, self.now_ns)
                && self.is_up(queue)
            {
                best = Some((rank, node));
            }
        }
        let (_, node) = best?;
        let extent = self.extents.claim(node);
        self.publish_far_bytes();
        extent
    }

    /// Gives back an extent that no work request names any more.
    pub(in crate::shard) fn release_extent(&mut self, extent: Extent) {
        self.extents.release(extent);
        self.publish_far_bytes();
    }

    pub(in crate::shard) fn publish_far_bytes(&self) {
        self.metrics
            .counters
            .far_used_bytes
            .set(self.extents.used_bytes());
        self.metrics
            .counters
            .far_total_bytes
            .set(self.extents.total_bytes());
    }

    /// True if a queue pair takes requests now; one that was drained, or never connected, is
    /// renewed first.
    fn is_up(&mut self, queue: Queue) -> bool {
        let state = self.endpoint.state(queue.index());
        // One in error that holds nothing more is not polled any more, and would never be drained
        // otherwise.
        if state != QueuePairState::ReadyToSend && self.endpoint.outstanding_on(queue.index()) == 0
        {
            self.endpoint.renew(queue.index());
        }
        match self.endpoint.state(queue.index()) {
            QueuePairState::ReadyToSend => true,
            // What it holds has not all come back yet.
            QueuePairState::Error => false,
            _ => {
                self.health.is_down(queue, self.now_ns);
                false
            }
        }
    }

    /// True while no node takes anything: none that has a free extent does, or, if none has, none
    /// can be read.
    pub(in crate::shard) fn far_is_silent(&self) -> bool {
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

    /// True while nothing can be read from any node.
    pub(in crate::shard) fn far_is_unreadable(&self) -> bool {
        let mut nodes = self.extents.nodes();
        !self.health.is_good() && nodes.all(|node| self.health.is_silent(node.reads()))
    }

    /// Free extents of the nodes that take something, in percent of theirs.
    pub(in crate::shard) fn free_percent(&self) -> usize {
        let taking = |node: &NodeId| !self.health.is_silent(node.writes());
        let (mut free, mut count) = (0, 0);
        for node in self.extents.nodes().filter(taking) {
            free += self.extents.free_on(node);
            count += self.extents.count_on(node);
        }
        free * 100 / count.max(1)
    }

    /// Notes how a node did. Called for every failure, and for every success while anything is
    /// troubled.
    #[cold]
    pub(in crate::shard) fn note_health(&mut self, tag: WorkTag, status: Status) {
        let queue = match tag {
            WorkTag::Flight(flight) => {
                let page = self.flights.get(flight).address.page(self.shape);
                self.node_of(page).map(NodeId::reads)
            }
            WorkTag::Chunk(chunk) => {
                let page = self.read_ahead.get_mut(chunk).page;
                self.node_of(page).map(NodeId::reads)
            }
            WorkTag::Compaction(_) => {
                let page = self.compactor.victim_page();
                page.and_then(|page| self.node_of(page)).map(NodeId::reads)
            }
            WorkTag::Probe(node) => Some(node.reads()),
            WorkTag::Flush(_) => {
                let page = self.flusher.page();
                page.and_then(|page| self.node_of(page)).map(NodeId::writes)
            }
        };
        match (queue, status) {
            (Some(queue), Status::Success) => self.health.succeeded(queue),
            (Some(queue), _) => {
                let flushed = status == Status::Flushed;
                self.health.failed(queue, flushed, self.now_ns);
                if let Some(seen) = self.metrics.nodes.get(queue.node().position()) {
                    seen.errors.add(1);
                }
            }
            (None, _) => debug_assert!(false, "{tag:?} completed on no node"),
        }
    }

    /// What a request is told whose READ of a page ended like this.
    pub(in crate::shard) fn read_error(&self, page: u32, status: Status) -> Error {
        let reason = match status {
            Status::RetryExceeded => "a request was not answered in time",
            Status::Flushed => "the connection broke under a request",
            status => {
                return Error::Fabric {
                    status: status.to_string(),
                };
            }
        };
        self.unavailable(page, reason)
    }

    /// What a request is told whose page cannot be read now.
    pub(in crate::shard) fn unavailable(&self, page: u32, reason: &'static str) -> Error {
        if self.pages.is_lost_page(page) {
            return self.lost_error(None);
        }
        match self.node_of(page) {
            Some(node) => Error::Unavailable {
                node: Arc::clone(self.extents.name(node)),
                reason: reason.into(),
            },
            None => Error::Fabric {
                status: reason.to_owned(),
            },
        }
    }

    /// What a put is told when local memory is full and no node takes anything.
    pub(in crate::shard) fn all_unavailable(&self) -> Error {
        let silent = |node: &NodeId| {
            self.health.is_silent(node.writes()) || self.health.is_silent(node.reads())
        };
        let silent = self.extents.nodes().filter(silent);
        let names: Vec<&str> = silent.map(|node| &**self.extents.name(node)).collect();
        Error::Unavailable {
            node: names.join(", ").into(),
            reason: "local memory is full, and no other node has room".into(),
        }
    }
}
