//! Far memory as a shard sees it: nodes that join and leave, adding extents, losing nodes, and the
//! errors of pages that cannot be read.

use std::sync::Arc;

use farcore_rdma::{Endpoint, RemoteSlice, Status};

use crate::error::Error;
use crate::log::Address;
use crate::shard::Shard;
use crate::shard::far::NodeId;
use crate::shard::far::extents::AddError;
use crate::shard::local::FarPageLost;
use crate::shard::local::page_table::{Page, PageKind};

impl<E: Endpoint> Shard<E> {
    /// Adds a page-sized piece of a node's memory.
    ///
    /// # Errors
    /// [`AddError`] says which limit was reached.
    pub(crate) fn add_extent(&mut self, node: NodeId, piece: RemoteSlice) -> Result<(), AddError> {
        let added = self.far.add(node, piece);
        if added.is_ok() {
            self.pressure.relieve();
            self.copier.rest_no_more();
            self.copier.balancer.look_soon();
        }
        added
    }

    /// A node joins at a position that has none.
    pub(crate) fn join_node(&mut self, node: NodeId, name: Arc<str>, zone: usize) {
        self.far.join(node, name, zone);
        // What was noted of the position's last node says nothing about this one.
        self.flights.forget_node(node);
        self.copier.forget_node(node);
        self.compactor.forget_node(node);
    }

    /// A node leaves: it is given no page any more, and those there are copied to other nodes as
    /// these have room. Or it stays after all.
    pub(crate) fn drain_node(&mut self, node: NodeId, leaves: bool) {
        self.far.set_leaving(node, leaves);
        self.node_is_back();
        self.background_due = true;
    }

    /// What keeps a node from leaving: extents that pages hold, and requests under way.
    pub(crate) fn left_on(&self, node: NodeId) -> usize {
        self.far.left_on(node)
    }

    /// Pages with records of which the only good copy is on this node. Those that are also local
    /// count: they may be evicted before the node goes. Cost: one pass over the page table.
    pub(crate) fn pages_alone_on(&self, node: NodeId) -> usize {
        let is_alone = |&(number, page): &(u32, &Page)| {
            let has_records = page.kind() == PageKind::Log && page.live_bytes > 0;
            has_records && self.far.pages.is_alone_on(number, node)
        };
        self.local.pages.iter().filter(is_alone).count()
    }

    /// A node of which nothing is left has gone: another one may join at its position.
    pub(crate) fn vacate_node(&mut self, node: NodeId) {
        let victims = &mut self.local.victims;
        victims.list_again(&mut self.local.pages, node, usize::MAX);
        self.far.vacate(node);
        self.pressure.relieve();
        self.publish_gauges();
    }

    /// How many more extents can be added.
    pub(crate) fn extents_room(&self) -> usize {
        self.far.pages.room()
    }

    /// The session of a node is down: it may be gone.
    pub(crate) fn node_is_down(&mut self, node: NodeId) {
        self.far.session_is_down(node, self.now_ns);
        self.copier.rest_no_more();
    }

    /// The session of a node is up, or the node lends more: retries what was given up.
    pub(crate) fn node_answers(&mut self, node: NodeId) {
        self.far.pages.answers(node);
        self.node_is_back();
    }

    /// Far memory has changed: retries what was given up.
    pub(in crate::shard) fn node_is_back(&mut self) {
        self.far.pages.retry_writes();
        self.far.pages.retry_reads();
        self.far.pages.forgive();
        self.copier.rest_no_more();
        // Where it matters, a pass begins that finds the nodes that are not back.
        self.copier.looks_for_gone_ns = None;
        self.copier.balancer.look_soon();
        self.pressure.relieve();
        self.publish_gauges();
    }

    /// Handles a node that took back everything it lent. Pages with a copy elsewhere are copied
    /// again; pages that are also local are flushed again; records of the others are unavailable
    /// until they are written again. Cost: one pass over the whole index.
    pub(crate) fn lose_node(&mut self, node: NodeId) {
        let extents = &self.far.pages.extents;
        if extents.lent_by(node) + extents.held_on(node) == 0 {
            // It never lent any memory.
            return;
        }
        self.lose_pages_on(node);
        // After all else: where the loss is counted, its keys are, too.
        self.metrics.counters.nodes_lost.add(1);
    }

    fn lose_pages_on(&mut self, node: NodeId) {
        let name = Arc::clone(self.far.pages.name(node));
        self.copier.rest_no_more();
        let numbers = self.far.lose_node(node, self.flusher.page());
        let mut gone = vec![false; self.local.pages.len()];
        let mut unavailable = 0;
        for &number in &numbers {
            match self.local.lose_far_copy(number) {
                FarPageLost::Local => self.far.release(number),
                FarPageLost::Far(live_bytes) => {
                    unavailable += live_bytes;
                    gone[number as usize] = true;
                }
                // It fails at its next piece or completion, and is flushed again elsewhere.
                FarPageLost::Flushing => {}
            }
        }
        self.local.drop_unclean();
        let is_ordered = self.far.pages.extents.is_leaving(node);
        if (self.far.pages.plan().most() > 1 || is_ordered) && !gone.contains(&true) {
            tracing::warn!(
                shard = self.id,
                node = &*name,
                "a memory node has lost what it held, of which there are copies"
            );
            self.pressure.relieve();
            return self.publish_gauges();
        }
        let slots = self.send_to_lost_page(&gone);
        self.lose_long_values(&gone);
        let shape = self.shape;
        let is_gone = |address: Address| gone[address.page(shape) as usize];
        if !farcore_tuning::mutated!("lost-node-kept") {
            self.trees.lose_where(is_gone);
        }
        self.lost.note_slots(slots);
        for number in numbers.into_iter().filter(|&number| gone[number as usize]) {
            self.local.lose_records(number);
            // A pinned page is freed when it is unpinned.
            self.free_if_dead(number);
        }
        self.pressure.relieve();
        tracing::error!(
            shard = self.id,
            node = &*name,
            bytes = unavailable,
            keys = slots,
            "a memory node has lost what it held: those records are unavailable"
        );
        self.lost.note_node(&name);
        self.note_loss();
        self.forget_at_once();
        self.publish_gauges();
    }

    /// Points every slot and every cached copy's home that leads to a page in `gone` to the lost
    /// page. Returns how many slots. A record with a cached copy is not lost.
    pub(in crate::shard) fn send_to_lost_page(&mut self, gone: &[bool]) -> u64 {
        let shape = self.shape;
        let place = self.lost_place(0);
        let (mut copies, mut slots) = (Vec::new(), 0);
        let pages = &self.local.pages;
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
            if gone[self.local.home_of(copy).page(shape) as usize] {
                self.local.set_home(copy, place.1);
            }
        }
        slots
    }

    /// True if a page's node took its extent back, or the page stands for lost records.
    #[inline]
    pub(in crate::shard) fn is_lost(&self, page: u32) -> bool {
        self.local.pages.is_lost_page(page) || self.far.pages.is_lost(page)
    }

    /// The error of a request whose READ of a page ended with this status.
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

    /// The error of a request whose page cannot be read now.
    pub(in crate::shard) fn unavailable(&self, page: u32, reason: &'static str) -> Error {
        if self.local.pages.is_lost_page(page) {
            return self.lost_error(None);
        }
        match self.far.pages.node_name(page) {
            Some(node) => Error::Unavailable {
                node,
                reason: reason.into(),
            },
            None => Error::Fabric {
                status: reason.to_owned(),
            },
        }
    }
}
