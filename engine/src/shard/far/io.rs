//! Posts the READs of flights and probes, and dispatches completions by purpose.
//!
//! A flight whose READ finds no buffer or no room in the queue waits in order. Completions arrive
//! from the [`FarStore`](super::FarStore) with the tag of their work request, and go to flights,
//! chunks, flush or compaction.

#![allow(unsafe_code)] // turns landing buffers into slices

use farcore_rdma::{Completion, Endpoint, Status};

use super::tag::{Purpose, WorkTag};
use super::{Avoided, COMPLETIONS, NodeId, Posted};
use crate::constants::{UNIT, UNIT_BYTES};
use crate::error::LOST;
use crate::log::record::units_for;
use crate::log::{Address, SizeClass};
use crate::message::operation::OperationKind;
use crate::message::request::AnswerSink;
use crate::shard::Shard;
use crate::shard::far::buffers::is_long;
use crate::shard::pending::flight::FlightState;

impl<E: Endpoint> Shard<E> {
    /// The bytes of a landing buffer or chunk.
    ///
    /// # Safety
    /// The range lies in the arena's landing space, its READ has completed, and it is neither freed
    /// nor posted again while the slice lives.
    #[allow(clippy::needless_lifetimes)]
    pub(in crate::shard) unsafe fn landed<'a>(&self, offset: u64, bytes: u32) -> &'a [u8] {
        // SAFETY: by this function's contract.
        unsafe {
            let start = self.local.arena.landing_pointer(offset);
            std::slice::from_raw_parts(start, bytes as usize)
        }
    }

    /// As [`Shard::landed`], mutable.
    ///
    /// # Safety
    /// As [`Shard::landed`], and nothing else refers to the range.
    #[allow(clippy::needless_lifetimes)]
    pub(in crate::shard) unsafe fn landed_mut<'a>(
        &mut self,
        offset: u64,
        bytes: u32,
    ) -> &'a mut [u8] {
        // SAFETY: by this function's contract.
        unsafe {
            let start = self.local.arena.landing_pointer(offset);
            std::slice::from_raw_parts_mut(start, bytes as usize)
        }
    }

    /// Posts a READ of a far page, from a unit on, into the landing space.
    pub(in crate::shard) fn post_read(
        &mut self,
        purpose: Purpose,
        (page, unit): (u32, u32),
        offset: u64,
        bytes: u32,
        avoided: Avoided,
    ) -> Posted {
        let start = u64::from(unit) * UNIT_BYTES as u64;
        let local = self.local.arena.landing_slice(offset, bytes);
        self.far
            .read(page, start, local, (purpose, avoided), self.now_ns)
    }

    /// Plans the READ of a flight's first request, and posts it if possible.
    pub(in crate::shard) fn fetch(
        &mut self,
        flight: u32,
        address: Address,
        class: SizeClass,
        whole: bool,
    ) {
        let (kind, key_bytes) = match self.flights.first(flight) {
            Some(first) => (first.shape.kind(), first.shape.key_bytes()),
            None => return,
        };
        // Where records carry tags, a header and a key without the tag prove nothing.
        let whole = whole || kind.reads_whole_record() || self.authenticates();
        let head_units = units_for(key_bytes, 0);
        let (page, unit) = (address.page(self.shape), address.unit(self.shape));
        let units_left = self.local.pages.get(page).units.saturating_sub(unit);
        let piece_units = match kind {
            OperationKind::LongRead => self.piece_units_at(address),
            OperationKind::TreeRead => self.node_units_of(flight),
            _ => None,
        };
        let entry = self.flights.get(flight);
        // The length of a record too long for a class is in its header, which an earlier READ has
        // brought.
        let known = class
            .units()
            .or(piece_units)
            .or((entry.address == address && entry.bytes > 0).then_some(entry.exact));
        let units = match known {
            Some(units) if units > 0 && (whole || units <= head_units) => {
                entry.whole = true;
                units
            }
            _ => {
                entry.whole = false;
                head_units
            }
        };
        if entry.address != address {
            entry.reads_again = false;
            (entry.tried, entry.damaged) = (Avoided::NONE, Avoided::NONE);
        }
        entry.address = address;
        let bytes = units.min(units_left).max(1) * UNIT;
        entry.bytes = bytes;
        entry.state = FlightState::Unposted;
        entry.verified = false;
        if entry.pinned != Some(page) {
            let before = entry.pinned.replace(page);
            self.pin(page);
            if let Some(before) = before {
                self.unpin(before);
            }
        }
        self.post_in_order(flight, address, bytes);
    }

    /// Units of the record that the first request of a flight wants, which is for a tree's node.
    fn node_units_of(&mut self, flight: u32) -> Option<u32> {
        let first = self.flights.first(flight)?;
        let (offset, bytes) = (first.message.offset(), first.shape.key_bytes());
        // SAFETY: the message was copied in when the request was parked, and is freed when it is
        // answered. It has no part before its key.
        let key = unsafe { self.landed(offset, u32::try_from(bytes).ok()?) };
        self.node_units(key)
    }

    /// Posts the READ of a flight, after those that wait for a buffer of the same kind.
    pub(in crate::shard) fn post_flight(&mut self, flight: u32) {
        let entry = self.flights.get(flight);
        let (address, bytes) = (entry.address, entry.bytes);
        self.post_in_order(flight, address, bytes);
    }

    #[inline]
    fn post_in_order(&mut self, flight: u32, address: Address, bytes: u32) {
        let long = usize::from(is_long(bytes));
        if !self.unbuffered[long].is_empty() || !self.post_read_of(flight, address, bytes) {
            self.unbuffered[long].push_back(flight);
        }
    }

    /// Posts the READ of the flight whose turn it is; false if no buffer is free.
    pub(in crate::shard) fn post_buffered(&mut self, flight: u32) -> bool {
        let entry = self.flights.get(flight);
        let (address, bytes) = (entry.address, entry.bytes);
        self.post_read_of(flight, address, bytes)
    }

    #[inline]
    fn post_read_of(&mut self, flight: u32, address: Address, bytes: u32) -> bool {
        let Some(landing) = self.far.buffers.reads.allocate(bytes) else {
            return false;
        };
        let place = (address.page(self.shape), address.unit(self.shape));
        let (page, tried) = (place.0, self.flights.get(flight).tried);
        let purpose = Purpose::Flight(flight);
        match self.post_read(purpose, place, landing.offset(), bytes, tried) {
            Posted::Yes => self.flights.get(flight).state = FlightState::Posted(landing),
            Posted::Full => {
                self.far.buffers.reads.free(landing);
                self.try_later(flight);
            }
            Posted::Down => {
                self.far.buffers.reads.free(landing);
                let lost = self.is_lost(page);
                let error = self.unavailable(page, if lost { LOST } else { "it is not connected" });
                self.flights.get(flight).state = FlightState::Failed(error);
                self.try_later(flight);
            }
        }
        true
    }

    /// Reads the first unit of a page to find out whether its node answers: one READ at a time, and
    /// not before background work may try.
    #[cold]
    pub(in crate::shard) fn probe(&mut self, page: u32) {
        if !self.far.pages.may_probe(page, self.now_ns) || self.far.probing.is_some() {
            return;
        }
        let Some(landing) = self.far.buffers.compaction.allocate(UNIT) else {
            return;
        };
        let offset = landing.offset();
        let posted = self.post_read(Purpose::Probe, (page, 0), offset, UNIT, Avoided::NONE);
        if posted == Posted::Yes {
            self.far.probing = Some(landing);
        } else {
            self.far.buffers.compaction.free(landing);
        }
    }

    /// Handles the completion of a probe; the store has noted its status.
    fn probe_landed(&mut self, status: Status) {
        if let Some(landing) = self.far.probing.take() {
            self.far.buffers.compaction.free(landing);
        }
        if status == Status::Success {
            self.pressure.relieve();
            self.background_due = true;
        }
    }

    /// Polls completions and dispatches them by purpose.
    pub(in crate::shard) fn poll_fabric(&mut self, answers: &mut impl AnswerSink) -> bool {
        let mut completions = [const { Completion::NONE }; COMPLETIONS];
        let count = self.far.poll(self.now_ns, &mut completions);
        for completion in &completions[..count] {
            let status = completion.status;
            let WorkTag { purpose, queue } = WorkTag::of(completion.id);
            match purpose {
                Purpose::Flight(flight) => {
                    self.flight_landed(flight, queue.node(), status, answers);
                }
                Purpose::Chunk(chunk) => self.chunk_landed(chunk, status, answers),
                Purpose::Flush(slot, copy) => self.flush_written(slot, copy, status),
                Purpose::Copy(slot) => self.copy_step_done(slot, status),
                Purpose::Compaction(slot) => self.compaction_landed(slot, status),
                Purpose::Probe => self.probe_landed(status),
            }
        }
        count > 0
    }

    fn flight_landed(
        &mut self,
        flight: u32,
        node: NodeId,
        status: Status,
        answers: &mut impl AnswerSink,
    ) {
        let entry = self.flights.get(flight);
        let FlightState::Posted(landing) = std::mem::take(&mut entry.state) else {
            debug_assert!(
                false,
                "a completion for a flight that has no READ under way"
            );
            return;
        };
        let (address, bytes, whole) = (entry.address, entry.bytes, entry.whole);
        entry.read_from = node;
        if status == Status::Success {
            let offset = landing.offset();
            entry.state = FlightState::Landed(landing);
            if self.far.cipher.is_some() {
                let place = (address.page(self.shape), address.unit(self.shape));
                let verified = self.open_landed(place, offset, bytes, whole);
                self.flights.get(flight).verified = verified;
            }
        } else {
            self.far.buffers.reads.free(landing);
            if self.reads_other_copy(flight) {
                self.flights.get(flight).state = FlightState::Unposted;
                return self.post_in_order(flight, address, bytes);
            }
            let error = self.read_error(address.page(self.shape), status);
            self.flights.get(flight).state = FlightState::Failed(error);
        }
        self.drain(flight, answers);
    }

    /// What a flight's READ brought, or that it failed, makes another copy of the page worth
    /// reading. False if there is none that was not tried.
    #[cold]
    pub(in crate::shard) fn reads_other_copy(&mut self, flight: u32) -> bool {
        let entry = self.flights.get(flight);
        entry.tried.add(entry.read_from);
        let (page, tried) = (entry.address.page(self.shape), entry.tried);
        if !self.far.has_other_copy(page, tried) {
            return false;
        }
        self.metrics.counters.far_reads_elsewhere.add(1);
        true
    }
}
