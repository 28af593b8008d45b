//! Flights: the requests that wait for the fabric.
//!
//! A *flight* is one READ and all requests for the same hash that came after the first, in order.
//! So operations on one key keep their order, and concurrent gets of one far record share one READ.
//! This file owns the flights and parked requests of a shard and decides which lane may start one;
//! it posts nothing.
//!
//! Flights are shared evenly: a lane may have `flights / active lanes` requests parked, 64 at most.
//! A lane with nothing parked that is refused for a shortage starves: until it gets one, no other
//! lane gets that resource.
//!
//! - I1: a hash has at most one flight, and every parked request is in exactly one.
//! - I2: a flight pins the page of `address` from the moment its READ is posted until the flight
//!   ends or moves on.
//! - I3: nothing allocates after construction, except for findings of false tag matches and damage.
//! - I4: `active` counts the lanes that have requests parked or were refused at their last visit.
//! - I5: every parked request has room for its answer reserved at its lane. So it is answered, and
//!   its flight ends, as soon as far memory answers, whether its client polls or not. The
//!   exception: a value that turned out longer because a record of another key was read first, or
//!   because another lane's transaction has stored it meanwhile. Its flight holds neither buffer
//!   nor pin until the lane has room.

#![allow(unsafe_code)] // refers to messages that were copied in

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU32;

use farcore_rdma::Landing;

use crate::constants::LANE_NUMBERS;
use crate::error::Error;
use crate::log::Address;
use crate::message::hash::IndexHash;
use crate::message::request::{ReplyTo, Request, RequestShape};
use crate::shard::far::read_ahead::ChunkId;
use crate::shard::far::{Avoided, NodeId};

const NONE: u32 = u32::MAX;

/// A hasher that passes index hashes through: they are uniform already.
#[derive(Debug, Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A parked request. Its parts lie in a landing buffer until it is answered.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) lane: ReplyTo,
    pub(crate) token: u64,
    pub(crate) shape: RequestShape,
    pub(crate) message: Landing,
    /// Room is reserved at its lane for an answer with a value of this many bytes.
    reserved: u32,
    /// Bytes of the value, if it turned out longer than the reserved room.
    needs: Option<NonZeroU32>,
    next: u32,
}

impl Parked {
    /// A request whose parts were copied to `message`.
    pub(crate) fn new(
        lane: ReplyTo,
        request: &Request<'_>,
        message: Landing,
        reserved: usize,
    ) -> Self {
        Self {
            lane: lane.waiting(),
            token: request.token,
            shape: request.shape(),
            message,
            reserved: short(reserved),
            needs: None,
            next: NONE,
        }
    }

    /// Bytes of the value for which room is reserved.
    #[inline]
    pub(crate) fn reserved(&self) -> usize {
        self.reserved as usize
    }

    /// Bytes of the value, if it turned out longer than the reserved room.
    #[inline]
    pub(crate) fn needs(&self) -> Option<usize> {
        self.needs.map(|bytes| bytes.get() as usize)
    }

    /// Notes the room reserved now, and the bytes of a value that needs more.
    pub(crate) fn note_reserved(&mut self, bytes: usize, needs: Option<usize>) {
        self.reserved = short(bytes);
        self.needs = needs.and_then(|bytes| NonZeroU32::new(short(bytes)));
    }
}

/// A value's bytes in 32 bits; no value is longer.
fn short(bytes: usize) -> u32 {
    debug_assert!(u32::try_from(bytes).is_ok());
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What a flight waits for.
#[derive(Debug, Default)]
pub(crate) enum FlightState {
    /// Not in use.
    #[default]
    Free,
    /// The READ is not posted: it has no buffer, or its queue pair was full.
    Unposted,
    /// The READ is on its way into this buffer.
    Posted(Landing),
    /// It waits for a stream's chunk.
    OnChunk(ChunkId),
    /// The bytes have arrived; requests are being answered.
    Landed(Landing),
    /// It holds no bytes: its first request is to be tried, or retried.
    Retry,
    /// The READ failed: every request gets this error.
    Failed(Error),
}

/// What READs have shown about the far records that a request may mean, other than its key's
/// record.
#[derive(Debug, Default)]
pub(crate) struct ReadFindings {
    /// Addresses of records of other keys.
    pub(crate) cleared: Vec<Address>,
    /// Addresses whose bytes twice were not what was written.
    pub(crate) damaged: Vec<Address>,
    /// A cleared record took over a slot that also stands for lost records.
    pub(crate) hides_lost: bool,
}

/// What a request could not be parked for. The next free one can be kept for a starving lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    /// Its lane has its share, or no flight or parking place is free.
    Parking = 0,
    /// No buffer is free for a copy of 8 KiB at most.
    ShortMessage = 1,
    /// No buffer is free for a longer copy.
    LongMessage = 2,
}

impl Shortage {
    const COUNT: usize = 3;
}

/// One READ and the requests that wait for it.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) hash: IndexHash,
    pub(crate) address: Address,
    /// Bytes of the READ.
    pub(crate) bytes: u32,
    pub(crate) state: FlightState,
    /// The record's length in units from its header, if it has no size class.
    pub(crate) exact: u32,
    /// True once the whole record, not just header and key, is being read.
    pub(crate) whole: bool,
    /// True once the landed bytes are verified.
    pub(crate) verified: bool,
    /// The longest value that an answer to its get can have, in bytes, as far as known.
    pub(crate) answer_bytes: usize,
    /// The bytes read were not what was written; the READ is repeated once.
    pub(crate) reads_again: bool,
    /// The node that the last READ was from.
    pub(crate) read_from: NodeId,
    /// Nodes whose copies of the page failed or were damaged since all were to be tried.
    pub(crate) tried: Avoided,
    /// Nodes whose copies of the record were not what was written.
    pub(crate) damaged: Avoided,
    /// Findings: what READs have shown about other records.
    shown: Option<Box<ReadFindings>>,
    /// The parked request that the findings are for.
    shown_for: u32,
    pub(crate) pinned: Option<u32>,
    /// Start time on the shard's clock.
    pub(crate) started_ns: u64,
    head: u32,
    tail: u32,
}

impl Flight {
    /// The findings for the first request, to add to.
    pub(crate) fn shown_mut(&mut self) -> &mut ReadFindings {
        if std::mem::replace(&mut self.shown_for, self.head) != self.head {
            self.shown = None;
        }
        self.shown.get_or_insert_default()
    }

    /// Takes the findings if they are for the first request; findings for one request say nothing
    /// about another.
    #[inline]
    pub(crate) fn take_shown(&mut self) -> Option<Box<ReadFindings>> {
        self.shown.as_ref()?;
        self.shown.take().filter(|_| self.shown_for == self.head)
    }

    /// Puts back what [`Flight::take_shown`] returned.
    #[inline]
    pub(crate) fn put_shown(&mut self, shown: Option<Box<ReadFindings>>) {
        self.shown = shown;
    }
}

/// All flights and parked requests of a shard.
#[derive(Debug)]
pub(crate) struct Flights {
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    parked: Vec<Option<Parked>>,
    free_parked: Vec<u32>,
    /// Number of parked requests, by lane.
    of_lane: Vec<u32>,
    /// Lanes that were refused at their last visit, a bit each.
    refused: [u64; LANE_NUMBERS / 64],
    /// By shortage, the lane that starves: refused while it has nothing parked.
    starving: [Option<usize>; Shortage::COUNT],
    /// By lane, requests whose answer needs more room than reserved.
    needing: Vec<u32>,
    needing_count: u32,
    /// Lanes that have something parked or were refused.
    active: u32,
    /// Requests that one lane may have parked.
    share: u32,
    by_hash: HashMap<u64, u32, BuildHasherDefault<PassThrough>>,
}

impl Flights {
    /// Room for `flights` READs and `parked` requests.
    pub(crate) fn new(flights: u32, parked: u32) -> Self {
        let empty = || Flight {
            hash: IndexHash(0),
            address: Address::NONE,
            bytes: 0,
            exact: 0,
            state: FlightState::Free,
            whole: false,
            verified: false,
            answer_bytes: 0,
            shown: None,
            shown_for: NONE,
            reads_again: false,
            read_from: NodeId::new(0),
            tried: Avoided::NONE,
            damaged: Avoided::NONE,
            pinned: None,
            started_ns: 0,
            head: NONE,
            tail: NONE,
        };
        Self {
            flights: (0..flights).map(|_| empty()).collect(),
            free_flights: (0..flights).rev().collect(),
            parked: (0..parked).map(|_| None).collect(),
            free_parked: (0..parked).rev().collect(),
            of_lane: vec![0; LANE_NUMBERS],
            refused: [0; LANE_NUMBERS / 64],
            starving: [None; Shortage::COUNT],
            needing: vec![0; LANE_NUMBERS],
            needing_count: 0,
            active: 0,
            share: Self::share_of(flights, 0),
            by_hash: HashMap::with_capacity_and_hasher(
                flights as usize * 2,
                BuildHasherDefault::default(),
            ),
        }
    }

    /// The flight of a hash, behind which its requests must queue.
    #[inline]
    pub(crate) fn of_hash(&self, hash: IndexHash) -> Option<u32> {
        if self.by_hash.is_empty() {
            return None;
        }
        self.by_hash.get(&hash.0).copied()
    }

    /// True if a request of the lane waits in the flight of a hash.
    pub(crate) fn hold_of_lane(&self, hash: IndexHash, lane: ReplyTo) -> bool {
        if self.of_lane[lane.number()] == 0 {
            return false;
        }
        let Some(flight) = self.of_hash(hash) else {
            return false;
        };
        let mut at = self.flights[flight as usize].head;
        while let Some(parked) = self.parked.get(at as usize).and_then(Option::as_ref) {
            if parked.lane.number() == lane.number() {
                return true;
            }
            at = parked.next;
        }
        false
    }

    /// True if a request of the lane is parked.
    pub(crate) fn has_parked(&self, lane: ReplyTo) -> bool {
        self.of_lane[lane.number()] > 0
    }

    /// Flights in progress.
    pub(crate) fn count(&self) -> usize {
        self.flights.len() - self.free_flights.len()
    }

    /// Parked requests.
    pub(crate) fn parked_count(&self) -> usize {
        self.parked.len() - self.free_parked.len()
    }

    /// Requests that each of `lanes` lanes may have parked.
    fn share_of(flights: u32, lanes: u32) -> u32 {
        (flights / lanes.max(1)).clamp(1, (flights / 4).max(1))
    }

    fn count_active(&mut self, before: bool, after: bool) {
        if before == after {
            return;
        }
        self.active = if after {
            self.active + 1
        } else {
            self.active - 1
        };
        let flights = u32::try_from(self.flights.len()).unwrap_or(u32::MAX);
        self.share = Self::share_of(flights, self.active);
    }

    fn is_refused(&self, lane: usize) -> bool {
        self.refused[lane / 64] >> (lane % 64) & 1 != 0
    }

    fn is_active(&self, lane: usize) -> bool {
        self.of_lane[lane] > 0 || self.is_refused(lane)
    }

    /// Notes that a lane with nothing parked has parked a request.
    fn first_parked(&mut self, lane: usize) {
        self.count_active(self.is_refused(lane), true);
        self.feed(lane);
    }

    /// Ends a lane's starving.
    fn feed(&mut self, lane: usize) {
        for starving in &mut self.starving {
            if *starving == Some(lane) {
                *starving = None;
            }
        }
    }

    /// True if no other lane starves for this resource. Requests under a section do not wait for
    /// others: these are not served meanwhile.
    #[inline]
    pub(crate) fn may_take(&self, scarce: Shortage, lane: ReplyTo) -> bool {
        let is_free = |starving| {
            starving == lane.number()
                || lane.is_under_section()
                || farcore_tuning::mutated!("starving-ignored")
        };
        self.starving[scarce as usize].is_none_or(is_free)
    }

    /// True if a request of the lane waits for more room than was reserved for its answer. Until it
    /// gets it, the lane is not served, or newer answers would take that room.
    #[inline]
    pub(crate) fn needs_room(&self, lane: ReplyTo) -> bool {
        self.needing_count > 0 && self.needing[lane.number()] > 0
    }

    /// Notes whether the first request of a flight needs more room than reserved.
    pub(crate) fn count_needing(&mut self, lane: ReplyTo, before: bool, after: bool) {
        let (more, less) = (u32::from(after), u32::from(before));
        let count = &mut self.needing[lane.number()];
        *count = *count + more - less;
        self.needing_count = self.needing_count + more - less;
    }

    /// Notes that a lane's request could not be parked, and the shortage.
    #[cold]
    pub(crate) fn refuse(&mut self, lane: ReplyTo, scarce: Option<Shortage>) {
        let lane = lane.number();
        let before = self.is_active(lane);
        self.refused[lane / 64] |= 1 << (lane % 64);
        self.count_active(before, true);
        if self.of_lane[lane] == 0
            && let Some(scarce) = scarce
        {
            self.starving[scarce as usize].get_or_insert(lane);
        }
    }

    /// Begins a visit of a lane, which clears its refusal.
    #[inline]
    pub(crate) fn visit(&mut self, lane: ReplyTo) {
        if self.refused[lane.number() / 64] != 0 {
            self.forget_refusal(lane.number());
        }
    }

    #[cold]
    fn forget_refusal(&mut self, lane: usize) {
        let before = self.is_active(lane);
        self.refused[lane / 64] &= !(1 << (lane % 64));
        self.count_active(before, self.of_lane[lane] > 0);
        self.feed(lane);
    }

    /// True if a request can be parked in a new flight.
    #[inline]
    pub(crate) fn has_room(&self, lane: ReplyTo) -> bool {
        !self.free_flights.is_empty() && self.has_parking(lane)
    }

    /// True if a request can be queued behind an existing flight.
    #[inline]
    pub(crate) fn has_parking(&self, lane: ReplyTo) -> bool {
        !self.free_parked.is_empty()
            && self.of_lane[lane.number()] < self.share
            && self.may_take(Shortage::Parking, lane)
    }

    /// The flight.
    #[inline]
    pub(crate) fn get(&mut self, flight: u32) -> &mut Flight {
        &mut self.flights[flight as usize]
    }

    /// Starts a flight for a hash; the caller has checked [`Flights::has_room`].
    #[inline]
    pub(crate) fn start(&mut self, hash: IndexHash, now_ns: u64) -> Option<u32> {
        let id = self.free_flights.pop()?;
        let flight = &mut self.flights[id as usize];
        flight.hash = hash;
        flight.started_ns = now_ns;
        flight.state = FlightState::Retry;
        flight.whole = false;
        flight.verified = false;
        flight.reads_again = false;
        (flight.tried, flight.damaged) = (Avoided::NONE, Avoided::NONE);
        flight.answer_bytes = 0;
        flight.bytes = 0;
        flight.exact = 0;
        flight.address = Address::NONE;
        flight.shown = None;
        flight.head = NONE;
        flight.tail = NONE;
        self.by_hash.insert(hash.0, id);
        Some(id)
    }

    /// Queues a request behind a flight; returns it if there is no room.
    #[inline]
    pub(crate) fn park(&mut self, flight: u32, parked: Parked) -> Result<(), Parked> {
        let Some(id) = self.free_parked.pop() else {
            return Err(parked);
        };
        let lane = parked.lane.number();
        let before = self.of_lane[lane];
        self.of_lane[lane] = before + 1;
        if before == 0 {
            self.first_parked(lane);
        }
        self.parked[id as usize] = Some(parked);
        let tail = self.flights[flight as usize].tail;
        if tail == NONE {
            self.flights[flight as usize].head = id;
        } else if let Some(last) = self.parked[tail as usize].as_mut() {
            last.next = id;
        }
        self.flights[flight as usize].tail = id;
        Ok(())
    }

    /// The first request of a flight.
    #[inline]
    pub(crate) fn first(&self, flight: u32) -> Option<&Parked> {
        let head = self.flights[flight as usize].head;
        if head == NONE {
            None
        } else {
            self.parked[head as usize].as_ref()
        }
    }

    /// The first request of a flight, mutable.
    pub(crate) fn first_mut(&mut self, flight: u32) -> Option<&mut Parked> {
        let head = self.flights[flight as usize].head;
        self.parked.get_mut(head as usize)?.as_mut()
    }

    /// Takes the room that requests of a lane behind the first of a flight have reserved, who wait
    /// for it from now on: `give_back` is called with the bytes of each.
    #[cold]
    pub(crate) fn take_reserved(
        &mut self,
        flight: u32,
        lane: ReplyTo,
        mut give_back: impl FnMut(usize),
    ) {
        let head = self.flights[flight as usize].head;
        let first = self.parked.get(head as usize).and_then(Option::as_ref);
        let mut next = first.map_or(NONE, |first| first.next);
        while let Some(parked) = self.parked.get_mut(next as usize).and_then(Option::as_mut) {
            next = parked.next;
            let (reserved, needs) = (parked.reserved(), parked.needs());
            if parked.lane.number() == lane.number() && needs.is_none() && reserved > 0 {
                parked.note_reserved(0, Some(reserved));
                self.needing[lane.number()] += 1;
                self.needing_count += 1;
                give_back(reserved);
            }
        }
    }

    /// Number of requests in a flight.
    #[inline]
    pub(crate) fn waiting(&self, flight: u32) -> usize {
        let Flight { head, tail, .. } = self.flights[flight as usize];
        if head == tail {
            return usize::from(head != NONE);
        }
        let (mut count, mut at) = (0, head);
        while let Some(parked) = self.parked.get(at as usize).and_then(Option::as_ref) {
            count += 1;
            at = parked.next;
        }
        count
    }

    /// Moves the first request of a flight behind the others.
    pub(crate) fn rotate(&mut self, flight: u32) {
        let flight = &mut self.flights[flight as usize];
        let (first, last) = (flight.head, flight.tail);
        if first == last {
            return;
        }
        if let Some(parked) = self.parked[first as usize].as_mut() {
            flight.head = std::mem::replace(&mut parked.next, NONE);
        }
        if let Some(parked) = self.parked[last as usize].as_mut() {
            parked.next = first;
        }
        flight.tail = first;
    }

    /// Removes the first request of a flight.
    #[inline]
    pub(crate) fn pop(&mut self, flight: u32) -> Option<Parked> {
        let head = self.flights[flight as usize].head;
        if head == NONE {
            return None;
        }
        let parked = self.parked[head as usize].take()?;
        debug_assert!(
            parked.needs.is_none(),
            "a request was answered without the room that it needs"
        );
        let lane = parked.lane.number();
        self.of_lane[lane] -= 1;
        if self.of_lane[lane] == 0 {
            self.count_active(true, self.is_refused(lane));
        }
        let flight = &mut self.flights[flight as usize];
        flight.head = parked.next;
        if flight.head == NONE {
            flight.tail = NONE;
        }
        flight.shown = None;
        self.free_parked.push(head);
        Some(parked)
    }

    /// Ends a flight that holds no request any more.
    #[inline]
    pub(crate) fn end(&mut self, id: u32) {
        let flight = &mut self.flights[id as usize];
        debug_assert!(flight.head == NONE && flight.pinned.is_none());
        flight.state = FlightState::Free;
        self.by_hash.remove(&flight.hash.0);
        self.free_flights.push(id);
    }

    /// Another node joins at the position of one that has left: no copy there was tried.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        for flight in &mut self.flights {
            flight.tried.forget(node);
            flight.damaged.forget(node);
        }
    }

    /// A flight that waits for a chunk.
    pub(crate) fn on_chunk(&self, chunk: ChunkId) -> Option<u32> {
        (0u32..)
            .zip(&self.flights)
            .find(|(_, flight)| matches!(flight.state, FlightState::OnChunk(id) if id == chunk))
            .map(|(id, _)| id)
    }
}

#[cfg(any(test, feature = "simulation"))]
impl Flights {
    /// The flights in progress.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        let flights = self.flights.iter();
        flights.filter(|flight| !matches!(flight.state, FlightState::Free))
    }

    /// Bytes of the copies of parked requests.
    pub(crate) fn message_bytes(&self) -> u64 {
        let parked = self.parked.iter().flatten();
        parked.map(|parked| u64::from(parked.message.bytes())).sum()
    }

    /// Checks which flight each parked request is in, and the counts by lane.
    pub(crate) fn check(&self) {
        let mut known = vec![false; self.parked.len()];
        let (mut of_lane, mut needing) = (vec![0; LANE_NUMBERS], vec![0; LANE_NUMBERS]);
        for flight in self.iter() {
            let hash = flight.hash;
            let own = self.of_hash(hash).map(|id| &self.flights[id as usize]);
            let is_own = own.is_some_and(|own| std::ptr::eq(own, flight));
            assert!(is_own, "flight I1: {hash:?} has two flights");
            let (mut last, mut at) = (NONE, flight.head);
            while at != NONE {
                let before = std::mem::replace(&mut known[at as usize], true);
                assert!(!before, "flight I1: request {at} is in two flights");
                let parked = self.parked[at as usize].as_ref();
                let parked = parked.expect("flight I1: a flight has a free place");
                of_lane[parked.lane.number()] += 1;
                needing[parked.lane.number()] += u32::from(parked.needs.is_some());
                (last, at) = (at, parked.next);
            }
            assert_eq!(last, flight.tail, "flight I1: the end of {hash:?}");
        }
        let count = self.iter().count();
        assert_eq!(self.by_hash.len(), count, "flight I1: flights");
        assert_eq!(self.count(), count, "flight I1: free flights");
        for (parked, known) in self.parked.iter().zip(known) {
            let is_parked = parked.is_some();
            assert_eq!(is_parked, known, "flight I1: a request has no flight");
        }
        assert_eq!(of_lane, self.of_lane, "flight I4: requests, by lane");
        let active = (0..LANE_NUMBERS).filter(|&lane| self.is_active(lane));
        let active = active.count();
        assert_eq!(active, self.active as usize, "flight I4: active lanes");
        assert_eq!(needing, self.needing, "flight I5: answers that need room");
    }
}

#[cfg(test)]
impl Flights {
    /// Bytes reserved for values of answers to requests of a lane, one entry a request.
    pub(crate) fn reserved_of(&self, lane: usize) -> impl Iterator<Item = usize> {
        let parked = self.parked.iter().flatten();
        let of_lane = parked.filter(move |parked| parked.lane.number() == lane);
        of_lane.map(Parked::reserved)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use farcore_rdma::{LandingOptions, LandingPool};

    use super::*;
    use crate::breach::assert_breaks;
    use crate::constants::SECTION_LANE;
    use crate::message::operation::{Operation, RequestParts};
    use crate::message::request::Origin;

    const FLIGHTS: u32 = 16;

    struct Waiting {
        flights: Flights,
        pool: LandingPool,
        started: u64,
    }

    impl Waiting {
        fn new() -> Self {
            Self {
                flights: Flights::new(FLIGHTS, 4 * FLIGHTS),
                pool: LandingPool::new(LandingOptions {
                    base: 0,
                    bytes: 1 << 20,
                    large_bytes: 0,
                }),
                started: 0,
            }
        }

        /// Visits a lane that needs one more flight; its number, or `None` if it is refused.
        fn visit(&mut self, lane: u8) -> Option<u32> {
            let lane = ReplyTo::new(lane);
            self.flights.visit(lane);
            if !self.flights.has_room(lane) {
                self.flights.refuse(lane, Some(Shortage::Parking));
                return None;
            }
            self.started += 1;
            let hash = IndexHash(self.started);
            let mut place = [0u8; 8];
            let mut scratch = Vec::new();
            let parts = RequestParts::of(&Operation::Get { key: b"key" }, &mut scratch);
            // SAFETY: the key has room there, and the request is not used after this.
            let request = unsafe {
                let place = NonNull::from(&mut place).cast();
                Request::copied(place, hash, 0, Origin::default(), &parts)
            };
            let message = self.pool.allocate(8).unwrap();
            let flight = self.flights.start(hash, 0).unwrap();
            let parked = Parked::new(lane, &request, message, 0);
            self.flights.park(flight, parked).unwrap();
            Some(flight)
        }

        fn end(&mut self, flight: u32) {
            let parked = self.flights.pop(flight).unwrap();
            self.pool.free(parked.message);
            self.flights.end(flight);
        }

        /// Visits a lane until it is refused.
        fn flood(&mut self, lane: u8) -> Vec<u32> {
            std::iter::from_fn(|| self.visit(lane)).collect()
        }
    }

    #[test]
    fn a_planted_breach_of_flights_is_found() {
        type Breach = fn(&mut Flights);
        let breaches: [(&str, Breach); 6] = [
            ("flight I1", |flights| flights.by_hash.clear()),
            ("flight I1", |flights| flights.parked[0] = None),
            ("flight I1", |flights| {
                flights.flights[1].head = flights.flights[0].head;
            }),
            ("flight I1", |flights| flights.flights[0].tail = NONE),
            ("flight I4", |flights| flights.active += 1),
            ("flight I5", |flights| flights.needing[3] = 1),
        ];
        for (invariant, plant) in breaches {
            let mut waiting = Waiting::new();
            for lane in 1..4 {
                waiting.flood(lane);
            }
            waiting.flights.check();
            plant(&mut waiting.flights);
            assert_breaks(invariant, || waiting.flights.check());
        }
    }

    #[test]
    fn flights_are_shared_evenly_among_the_active_lanes() {
        let mut waiting = Waiting::new();
        // A single active lane may have a quarter.
        let alone = waiting.flood(1);
        assert_eq!(alone.len(), FLIGHTS as usize / 4);
        let mut held = vec![alone];
        for lane in 2..9 {
            held.push(waiting.flood(lane));
        }
        // Eight lanes are active: as flights end, each comes to have two.
        for _ in 0..10 {
            for (lane, flights) in (1..).zip(&mut held) {
                if flights.len() > 2 {
                    waiting.end(flights.pop().unwrap());
                }
                flights.extend(waiting.flood(lane));
            }
        }
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [2; 8]);
        // Lanes that become inactive make room for the others.
        for flight in held.drain(2..).flatten() {
            waiting.end(flight);
        }
        for lane in 3..9 {
            waiting.flights.visit(ReplyTo::new(lane));
        }
        assert_eq!(waiting.flood(1).len(), FLIGHTS as usize / 4 - 2);
        assert_eq!(waiting.flights.active, 2);
    }

    #[test]
    fn a_lane_without_a_flight_gets_the_next_free_one() {
        let mut waiting = Waiting::new();
        // As many lanes as flights, each of which has one, and one lane more.
        for lane in 1..=16 {
            waiting.flights.refuse(ReplyTo::new(lane), None);
        }
        let held: Vec<_> = (1..=16).filter_map(|lane| waiting.visit(lane)).collect();
        assert_eq!(held.len(), FLIGHTS as usize);
        assert_eq!(waiting.visit(20), None);
        waiting.end(held[0]);
        // The lane whose flight has ended is visited first and needs another.
        assert_eq!(waiting.visit(1), None);
        assert!(waiting.visit(20).is_some());
        assert_eq!(waiting.flights.starving, [None; Shortage::COUNT]);
    }

    #[test]
    fn a_lane_that_starves_keeps_nothing_from_requests_under_a_section() {
        let mut waiting = Waiting::new();
        let mut held: Vec<_> = (1..5).flat_map(|lane| waiting.flood(lane)).collect();
        assert_eq!(waiting.visit(9), None);
        for flight in held.drain(..2) {
            waiting.end(flight);
        }
        assert!(
            (1..5).all(|lane| waiting.visit(lane).is_none()),
            "one starves"
        );
        let of_section = waiting.visit(SECTION_LANE);
        assert!(of_section.is_some());
        held.extend(of_section);
        // It still gets the next one after that.
        assert!((1..5).all(|lane| waiting.visit(lane).is_none()));
        assert!(waiting.visit(9).is_some());
        waiting.flights.check();
        for flight in held {
            waiting.end(flight);
        }
    }

    #[test]
    fn a_lane_that_needs_no_flight_any_more_delays_no_other() {
        let mut waiting = Waiting::new();
        let mut held: Vec<_> = (1..5).flat_map(|lane| waiting.flood(lane)).collect();
        assert_eq!(waiting.visit(9), None);
        // Its request was answered without a flight: it is visited, and no longer refused.
        waiting.flights.visit(ReplyTo::new(9));
        waiting.end(held.pop().unwrap());
        assert!((1..5).any(|lane| waiting.visit(lane).is_some()));
        for flight in held {
            waiting.end(flight);
        }
        assert_eq!(waiting.flights.starving, [None; Shortage::COUNT]);
    }
}
