//! Requests that wait: parking them, and going on where each flight stopped.

#![allow(unsafe_code)] // refers to messages and records in landing buffers

use std::ptr::NonNull;

use farcore_rdma::{Endpoint, Landing};

use crate::constants::UNIT_BYTES;
use crate::error::Error;
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::message::operation::OperationKind;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::batch_counters::failed;
use crate::shard::far::Avoided;
use crate::shard::far::buffers::SMALL_BYTES_MAX;
use crate::shard::far::read_ahead::ChunkId;
use crate::shard::pending::flight::{FlightState, Flights, Parked, Shortage};
use crate::shard::step::{Evidence, Hint, Step};

/// Where the bytes that a flight waits for come from.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) enum Source {
    /// A READ of its own.
    Read,
    /// A chunk that is on its way.
    Chunk(ChunkId),
}

/// One pass over the requests of a flight, each of which is tried once.
struct Pass {
    /// Lanes whose answer found no room, a bit each.
    blocked: [u64; 4],
    /// Requests that were not tried yet.
    left: usize,
    /// Requests that were put behind the others.
    stayed: usize,
    /// One of them needs the bytes that have landed.
    needs_landing: bool,
}

impl Pass {
    #[inline]
    fn new(waiting: usize) -> Self {
        Self {
            blocked: [0; 4],
            left: waiting,
            stayed: 0,
            needs_landing: false,
        }
    }

    #[inline]
    fn is_blocked(&self, lane: ReplyTo) -> bool {
        self.blocked[lane.number() / 64] >> (lane.number() % 64) & 1 != 0
    }

    /// Puts the first request of the flight behind the others.
    fn put_behind(&mut self, flights: &mut Flights, flight: u32) {
        flights.rotate(flight);
        self.left -= 1;
        self.stayed += 1;
    }

    /// Puts the first request of the flight behind the others, and with it those of its lane that
    /// come later: they keep their order.
    fn block(&mut self, flights: &mut Flights, flight: u32, lane: ReplyTo) {
        self.blocked[lane.number() / 64] |= 1 << (lane.number() % 64);
        self.put_behind(flights, flight);
    }

    /// Ends the pass early: requests that were put behind come first again.
    #[inline]
    fn finish(&self, flights: &mut Flights, flight: u32) {
        if self.stayed > 0 {
            for _ in 0..self.left {
                flights.rotate(flight);
            }
        }
    }
}

impl<E: Endpoint> Shard<E> {
    /// Queues a request behind the flight for its hash; false if there is no room.
    pub(in crate::shard) fn park_behind(
        &mut self,
        flight: u32,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> bool {
        if !self.flights.has_parking(lane) {
            return self.refuse(lane, Some(Shortage::Parking));
        }
        // What requests before it in the flight may store counts as well.
        let longest = self.flights.get(flight).answer_bytes;
        let answer_bytes = request.kind().answer_bytes(longest);
        let Some(message) = self.prepare(lane, request, answer_bytes, answers) else {
            return false;
        };
        if request.kind() == OperationKind::Get {
            self.metrics.counters.reads_shared.add(1);
        }
        let parked = Parked::new(lane, request, message, answer_bytes);
        self.park(flight, parked, request.value().len(), answers)
    }

    /// Sets room for its answer aside and copies a request; nothing if either has no room.
    #[inline]
    fn prepare(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answer_bytes: usize,
        answers: &mut impl AnswerSink,
    ) -> Option<Landing> {
        if !answers.reserve(lane, answer_bytes) {
            self.note_short(answer_bytes);
            return None;
        }
        let message = self.copy_message(lane, request);
        if message.is_none() {
            answers.unreserve(lane, answer_bytes);
            self.refuse(lane, Some(Self::message_of(request.parts())));
        }
        message
    }

    /// What the copy of a request takes.
    fn message_of(parts: &[u8]) -> Shortage {
        if parts.len() > SMALL_BYTES_MAX as usize {
            Shortage::LongMessage
        } else {
            Shortage::ShortMessage
        }
    }

    #[inline]
    fn park(
        &mut self,
        flight: u32,
        parked: Parked,
        value_bytes: usize,
        answers: &mut impl AnswerSink,
    ) -> bool {
        let entry = self.flights.get(flight);
        entry.answer_bytes = entry.answer_bytes.max(value_bytes);
        match self.flights.park(flight, parked) {
            Ok(()) => true,
            Err(parked) => {
                debug_assert!(false, "room was asked for before");
                answers.unreserve(parked.lane, parked.reserved());
                self.far.buffers.messages.free(parked.message);
                false
            }
        }
    }

    /// A request waits for what others of its shard hold; false, for its caller.
    fn refuse(&mut self, lane: ReplyTo, scarce: Option<Shortage>) -> bool {
        self.flights.refuse(lane, scarce);
        self.metrics.counters.far_refused.add(1);
        false
    }

    #[inline]
    fn copy_message(&mut self, lane: ReplyTo, request: &Request<'_>) -> Option<Landing> {
        let parts = request.parts();
        if !self.flights.may_take(Self::message_of(parts), lane) {
            return None;
        }
        let bytes = u32::try_from(parts.len()).ok()?;
        let landing = self.far.buffers.messages.allocate(bytes)?;
        // SAFETY: the buffer was just allocated, so nothing else refers to it, and it has room for
        // all.
        let target = unsafe { self.landed_mut(landing.offset(), bytes) };
        target.copy_from_slice(parts);
        Some(landing)
    }

    /// The most bytes that the value of a slot's far record can have.
    #[inline]
    fn value_bytes_max(&self, address: Address, class: SizeClass, key_bytes: usize) -> usize {
        let longest = || self.local.pages.get(address.page(self.shape)).longest_units;
        let units = class.units().unwrap_or_else(longest);
        (units as usize * UNIT_BYTES).saturating_sub(UNIT_BYTES + key_bytes)
    }

    /// Parks a request in a flight of its own; false, and nothing changed, if there is no room.
    pub(in crate::shard) fn launch(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (address, class): (Address, SizeClass),
        from: Source,
        answers: &mut impl AnswerSink,
    ) -> bool {
        if self.is_lent {
            return false;
        }
        if !self.flights.has_room(lane) {
            return self.refuse(lane, Some(Shortage::Parking));
        }
        if matches!(from, Source::Read) {
            let page = address.page(self.shape);
            if !self.far.has_read_room(page, Avoided::NONE) {
                return self.refuse(lane, None);
            }
        }
        let value_bytes = self.value_bytes_max(address, class, request.key().len());
        let answer_bytes = request.kind().answer_bytes(value_bytes);
        let Some(message) = self.prepare(lane, request, answer_bytes, answers) else {
            return false;
        };
        let Some(flight) = self.flights.start(request.hash, self.now_ns) else {
            debug_assert!(false, "a flight was promised");
            answers.unreserve(lane, answer_bytes);
            self.far.buffers.messages.free(message);
            return false;
        };
        let longest = value_bytes.max(request.value().len());
        let parked = Parked::new(lane, request, message, answer_bytes);
        if !self.park(flight, parked, longest, answers) {
            self.flights.end(flight);
            return false;
        }
        match from {
            Source::Chunk(chunk) => self.await_chunk(flight, address, chunk),
            Source::Read => {
                if request.kind() == OperationKind::Get {
                    self.cache.expect(address);
                }
                self.fetch(flight, address, class, false);
            }
        }
        true
    }

    fn await_chunk(&mut self, flight: u32, address: Address, chunk: ChunkId) {
        self.read_ahead.get_mut(chunk).waiters += 1;
        let entry = self.flights.get(flight);
        entry.address = address;
        entry.state = FlightState::OnChunk(chunk);
    }

    pub(in crate::shard) fn try_later(&mut self, flight: u32) {
        self.again.push_back(flight);
    }

    /// Goes on with flights that could not go on before. Those that wait for a buffer get one in
    /// their order: once there is none for the first of a length, the others wait as well, or a
    /// long one would never find enough of them free at once.
    pub(in crate::shard) fn try_again(&mut self, answers: &mut impl AnswerSink) -> bool {
        let mut moved = false;
        for long in 0..self.unbuffered.len() {
            while let Some(flight) = self.unbuffered[long].pop_front() {
                if !self.post_buffered(flight) {
                    self.unbuffered[long].push_front(flight);
                    break;
                }
                moved = true;
            }
        }
        for _ in 0..self.again.len() {
            let Some(flight) = self.again.pop_front() else {
                break;
            };
            let waiting = self.again.len();
            if matches!(self.flights.get(flight).state, FlightState::Unposted) {
                self.post_flight(flight);
            } else {
                self.drain(flight, answers);
            }
            moved |= self.again.len() == waiting;
        }
        moved
    }

    /// True if flights wait for their next step.
    pub(in crate::shard) fn has_waiting(&self) -> bool {
        !self.again.is_empty() || self.unbuffered.iter().any(|flights| !flights.is_empty())
    }

    /// Answers the requests of a flight, as far as what is known allows: those of one lane in
    /// order. A lane whose answer finds no room does not hold up the others.
    ///
    /// A request that cannot go on is put behind the rest; a pass that touches each once leaves
    /// them in their order.
    #[expect(
        clippy::too_many_lines,
        reason = "one pass over the requests of a flight"
    )]
    pub(in crate::shard) fn drain(&mut self, flight: u32, answers: &mut impl AnswerSink) {
        let mut pass = Pass::new(self.flights.waiting(flight));
        loop {
            let Some(first) = self.flights.first(flight) else {
                return self.end_flight(flight);
            };
            if pass.left == 0 {
                if !pass.needs_landing {
                    self.rest(flight);
                }
                return self.try_later(flight);
            }
            let (lane, token) = (first.lane, first.token);
            if pass.is_blocked(lane) {
                pass.put_behind(&mut self.flights, flight);
                continue;
            }
            let (offset, shape) = (first.message.offset(), first.shape);
            let mut reserved = first.reserved();
            if let Some(needed) = first.needs() {
                if !self.reserve_more(flight, lane, answers) {
                    pass.block(&mut self.flights, flight, lane);
                    continue;
                }
                reserved = needed;
            }
            // Its answer may take the room that was reserved for it.
            answers.unreserve(lane, reserved);
            let hash = self.flights.get(flight).hash;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it fitted when it was copied"
            )]
            // SAFETY: the message was copied in by `copy_message` and is freed only when the
            // request is popped.
            let request = unsafe {
                let message = self.landed(offset, shape.bytes() as u32);
                let place = NonNull::from(message).cast();
                Request::at(place, shape, hash, token, lane.origin())
            };
            match self.step(flight, lane, &request, answers) {
                Step::Done => {
                    pass.left -= 1;
                    if let Some(parked) = self.flights.pop(flight) {
                        self.far.buffers.messages.free(parked.message);
                    }
                }
                Step::Blocked => {
                    pass.needs_landing = true;
                    self.set_aside(flight, lane, None, answers);
                    pass.block(&mut self.flights, flight, lane);
                }
                Step::NoRoom { value_bytes } => {
                    self.set_aside(flight, lane, Some(value_bytes), answers);
                    pass.block(&mut self.flights, flight, lane);
                }
                Step::Fetch { address, class } => {
                    self.set_aside_for(flight, lane, (address, class), answers);
                    let again = self.flights.get(flight).address == address;
                    let was_landed = self.release_landing(flight);
                    // Before the others come first again: how much is read depends on the request.
                    self.fetch(flight, address, class, again && was_landed);
                    return pass.finish(&mut self.flights, flight);
                }
                Step::Await {
                    address,
                    class,
                    chunk,
                } => {
                    self.set_aside_for(flight, lane, (address, class), answers);
                    pass.finish(&mut self.flights, flight);
                    self.release_landing(flight);
                    return self.await_chunk(flight, address, chunk);
                }
            }
        }
    }

    /// Sets as much room aside for the first request of a flight as its value was seen to need;
    /// false if there is none yet.
    #[cold]
    fn reserve_more(&mut self, flight: u32, lane: ReplyTo, answers: &mut impl AnswerSink) -> bool {
        let Some(first) = self.flights.first_mut(flight) else {
            return false;
        };
        let (reserved, Some(needed)) = (first.reserved(), first.needs()) else {
            return true;
        };
        answers.unreserve(lane, reserved);
        if !answers.reserve(lane, needed) {
            let has_room = answers.reserve(lane, reserved);
            debug_assert!(has_room, "it was given back, and nothing has taken it");
            return false;
        }
        first.note_reserved(needed, None);
        self.flights.count_needing(lane, true, false);
        true
    }

    /// Sets room aside for the first request of a flight again, as much as it had. One that was
    /// seen to need more keeps no more than an answer without a value takes, and so do those of its
    /// lane that wait behind it: two that kept what they have could wait for each other's for ever.
    #[inline(never)]
    fn set_aside(
        &mut self,
        flight: u32,
        lane: ReplyTo,
        needs: Option<usize>,
        answers: &mut impl AnswerSink,
    ) {
        if let Some(first) = self.flights.first_mut(flight) {
            let reserved = if needs.is_some() { 0 } else { first.reserved() };
            let has_room = answers.reserve(lane, reserved);
            debug_assert!(has_room, "it was given back, and nothing has taken it");
            first.note_reserved(reserved, needs);
            self.flights.count_needing(lane, false, needs.is_some());
        }
        if needs.is_some() {
            self.flights.take_reserved(flight, lane, |reserved| {
                answers.unreserve(lane, reserved);
                let has_room = answers.reserve(lane, 0);
                debug_assert!(has_room, "it was given back, and nothing has taken it");
            });
        }
    }

    /// Sets room aside again for the first request of a flight that needs another record first,
    /// which may be longer.
    #[inline(never)]
    fn set_aside_for(
        &mut self,
        flight: u32,
        lane: ReplyTo,
        (address, class): (Address, SizeClass),
        answers: &mut impl AnswerSink,
    ) {
        self.set_aside(flight, lane, None, answers);
        let Some(shape) = self.flights.first(flight).map(|first| first.shape) else {
            return;
        };
        let longest = self.value_bytes_max(address, class, shape.key_bytes());
        let entry = self.flights.get(flight);
        entry.answer_bytes = entry.answer_bytes.max(longest);
        if let Some(first) = self.flights.first_mut(flight)
            && let longest = shape.kind().answer_bytes(longest)
            && longest > first.reserved()
        {
            let reserved = first.reserved();
            answers.unreserve(lane, reserved);
            // If there is no more room, the answer may still be short enough.
            let reserved = if answers.reserve(lane, longest) {
                longest
            } else {
                let has_room = answers.reserve(lane, reserved);
                debug_assert!(has_room, "it was given back, and nothing has taken it");
                reserved
            };
            first.note_reserved(reserved, None);
        }
    }

    /// A flight whose requests all wait for room at their lanes, maybe for long: its buffer is for
    /// others meanwhile, and its page can be compacted.
    #[cold]
    fn rest(&mut self, flight: u32) {
        self.release_landing(flight);
        let entry = self.flights.get(flight);
        // What was shown of an address holds while its page is pinned.
        entry.put_shown(None);
        if let Some(page) = entry.pinned.take() {
            self.unpin(page);
        }
    }

    /// One try of a flight's first request.
    fn step(
        &mut self,
        flight: u32,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let (hash, key) = (request.hash, request.key());
        let entry = self.flights.get(flight);
        let (address, bytes) = (entry.address, entry.bytes);
        let mut confirmed = None;
        match &entry.state {
            FlightState::Failed(error) => {
                let error = error.clone();
                // A record that lies elsewhere by now is looked for there.
                let fails = match request.kind() {
                    OperationKind::LongRead => self.is_piece_at(key, address),
                    OperationKind::TreeRead => self.is_node_at(key, address),
                    _ => {
                        let is_there = self.index.find_address(hash, address).is_some();
                        is_there && !self.is_beside(hash, key)
                    }
                };
                if fails {
                    return self.fail(lane, request, error, answers);
                }
            }
            FlightState::Landed(landing) => {
                let offset = landing.offset();
                // SAFETY: the READ has completed and the buffer is freed only by `release_landing`.
                let read = unsafe { self.landed(offset, bytes) };
                let judged = if request.kind() == OperationKind::LongRead {
                    self.judge_piece(flight, request, read)
                } else if request.kind() == OperationKind::TreeRead {
                    self.judge_node(flight, request, read)
                } else if request.kind().is_by_address() {
                    self.judge_at(flight, request, read)
                } else {
                    self.judge(flight, hash, key, read)
                };
                match judged {
                    Ok(found) => confirmed = found,
                    Err(class) => return Step::Fetch { address, class },
                }
            }
            _ => {}
        }
        let shown = self.flights.get(flight).take_shown();
        let mut evidence = Evidence {
            confirmed,
            ..Evidence::NONE
        };
        if let Some(shown) = &shown {
            evidence.cleared = &shown.cleared;
            evidence.damaged = &shown.damaged;
            evidence.hides_lost = shown.hides_lost;
        }
        let step = self.execute(lane, request, &Hint::None, &evidence, answers);
        if shown.is_some() {
            self.flights.get(flight).put_shown(shown);
        }
        step
    }

    /// True if what could not be read is another's: the key's own record is in a frame.
    #[cold]
    fn is_beside(&mut self, hash: IndexHash, key: &[u8]) -> bool {
        let is_local = self.is_local(hash, key);
        if is_local {
            self.collisions.note(hash);
        }
        is_local
    }

    /// Answers a request with an error.
    #[cold]
    pub(in crate::shard) fn fail(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        error: Error,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if lane.is_for_fact() {
            return self.fail_fact(lane, request, error);
        }
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        failed(&self.metrics.counters, request.kind()).add(1);
        answers.answer(lane, request.token, Answer::Failed(&error));
        Step::Done
    }

    /// Frees what a flight holds of the landing space; true if it had landed.
    fn release_landing(&mut self, flight: u32) -> bool {
        match std::mem::replace(&mut self.flights.get(flight).state, FlightState::Retry) {
            FlightState::Landed(landing) => {
                self.far.buffers.reads.free(landing);
                self.flights.get(flight).verified = false;
                true
            }
            // What failed fails for those who still wait.
            FlightState::Failed(error) => {
                self.flights.get(flight).state = FlightState::Failed(error);
                false
            }
            _ => false,
        }
    }

    fn end_flight(&mut self, flight: u32) {
        self.release_landing(flight);
        // Its start may have been read on another processor, whose clock is ahead.
        let started_ns = self.flights.get(flight).started_ns;
        let took_ns = self.now_ns.saturating_sub(started_ns);
        self.metrics.far.record(took_ns);
        let pinned = self.flights.get(flight).pinned.take();
        if let Some(page) = pinned {
            self.unpin(page);
        }
        self.flights.end(flight);
    }
}
