//! Requests that wait: posting READs, taking completions, and going on where each flight stopped.

use farcore_rdma::{
    Completion, Endpoint, Landing, LocalSlice, PostError, Status, Work, WorkRequest,
};

use super::flight::{FlightState, ParkedKind};
use super::pages::PageState;
use super::request::{Answers, LaneId, Request};
use super::serve::{Confirmed, Evidence, Hint, Step};
use super::stream::{ChunkId, ChunkState, Located};
use super::tail::HEADER_UNITS;
use super::{COMPLETIONS, Errand, READS, Shard};
use crate::constants::{UNIT, UNIT_BYTES};
use crate::error::Error;
use crate::log::record::{RecordHeader, RecordView, units_for};
use crate::log::{Address, SizeClass};
use crate::operation::{Answer, Operation};

/// A message longer than this takes a large landing block.
const LONG_MESSAGE_BYTES: u32 = 8 << 10;
/// Large landing blocks that messages may hold at once.
const LONG_MESSAGES_MAX: usize = 1;

/// Where the bytes that a flight waits for come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// A READ of its own, of a record of this class.
    Read(SizeClass),
    /// A chunk that is on its way.
    Chunk(ChunkId),
}

/// What came of posting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    Yes,
    /// The queue is full: try again later.
    Full,
    /// The queue pair is down and could not be renewed.
    Down,
}

impl<E: Endpoint> Shard<E> {
    /// The bytes of a landing buffer or chunk.
    ///
    /// # Safety
    /// The range lies in the arena's landing space, its READ has completed, and it is neither freed nor posted
    /// again while the slice lives.
    #[allow(clippy::needless_lifetimes)]
    pub(super) unsafe fn landed<'a>(&self, offset: u64, bytes: u32) -> &'a [u8] {
        // SAFETY: by this function's contract.
        unsafe {
            let start = self.arena.landing_pointer(offset);
            std::slice::from_raw_parts(start, bytes as usize)
        }
    }

    /// As [`Shard::landed`], to be written.
    ///
    /// # Safety
    /// As [`Shard::landed`], and nothing else refers to the range.
    #[allow(clippy::needless_lifetimes)]
    pub(super) unsafe fn landed_mut<'a>(&mut self, offset: u64, bytes: u32) -> &'a mut [u8] {
        // SAFETY: by this function's contract.
        unsafe {
            let start = self.arena.landing_pointer(offset);
            std::slice::from_raw_parts_mut(start, bytes as usize)
        }
    }

    /// Posts to a queue pair; one that is down is renewed once.
    pub(super) fn post(&mut self, queue: usize, request: WorkRequest) -> Posted {
        let mut request = request;
        for _ in 0..2 {
            match self.endpoint.post(queue, request) {
                Ok(()) => return Posted::Yes,
                Err(PostError::Full(_)) => return Posted::Full,
                Err(PostError::Down(back)) => {
                    if self.endpoint.outstanding_on(queue) > 0 {
                        // What is under way is flushed first; then the queue pair can be renewed.
                        return Posted::Full;
                    }
                    self.endpoint.renew(queue);
                    request = back;
                }
                Err(PostError::Invalid { reason, .. }) => {
                    debug_assert!(false, "an invalid work request: {reason}");
                    return Posted::Down;
                }
            }
        }
        Posted::Down
    }

    /// Posts a READ of a far page into the landing space.
    pub(super) fn post_read(
        &mut self,
        errand: Errand,
        page: u32,
        unit: u32,
        offset: u64,
        bytes: u32,
    ) -> Posted {
        let Some(extent) = self.pages.get(page).extent else {
            return Posted::Down;
        };
        let remote = self
            .extents
            .remote(extent, u64::from(unit) * UNIT_BYTES as u64);
        let local: LocalSlice = self.arena.landing_slice(offset, bytes);
        let work = Work::Read { local, remote };
        let posted = self.post(
            READS,
            WorkRequest {
                id: errand.id(),
                work,
                signalled: true,
            },
        );
        if posted == Posted::Yes {
            self.counters.far_reads.add(1);
            self.counters.far_read_bytes.add(u64::from(bytes));
        }
        posted
    }

    /// Turns what was read from a page into plaintext.
    pub(super) fn decrypt(&mut self, page: u32, unit: u32, offset: u64, bytes: u32) {
        if let Some(cipher) = &self.cipher {
            let sequence = self.pages.get(page).sequence;
            // SAFETY: the READ into this range has completed and its owner is the caller.
            let data = unsafe {
                let start = self.arena.landing_pointer(offset);
                std::slice::from_raw_parts_mut(start, bytes as usize)
            };
            cipher.apply(sequence, unit, data);
        }
    }

    /// Queues a request behind the flight for its hash; false if there is no room.
    pub(super) fn park_behind(&mut self, flight: u32, lane: LaneId, request: &Request<'_>) -> bool {
        if !self.flights.has_parking(lane) {
            return false;
        }
        let Some(message) = self.copy_message(&request.operation) else {
            return false;
        };
        if matches!(request.operation, Operation::Get { .. }) {
            self.counters.reads_shared.add(1);
        }
        self.park(flight, lane, request, message)
    }

    fn park(&mut self, flight: u32, lane: LaneId, request: &Request<'_>, message: Landing) -> bool {
        let operation = &request.operation;
        let key_bytes = u32::try_from(operation.key().len()).unwrap_or(u32::MAX);
        let value_bytes = u32::try_from(operation.value().len()).unwrap_or(u32::MAX);
        let kind = ParkedKind::of(operation);
        let parked = self.flights.park(
            flight,
            lane,
            request.token,
            kind,
            message,
            key_bytes,
            value_bytes,
        );
        match parked {
            Ok(()) => true,
            Err(message) => {
                self.free_message(message, key_bytes + value_bytes);
                false
            }
        }
    }

    fn free_message(&mut self, message: Landing, bytes: u32) {
        self.long_messages -= usize::from(bytes > LONG_MESSAGE_BYTES);
        self.landing.free(message);
    }

    fn copy_message(&mut self, operation: &Operation<'_>) -> Option<Landing> {
        let (key, value) = (operation.key(), operation.value());
        let bytes = u32::try_from(key.len() + value.len()).ok()?;
        // Long messages share the few large blocks with READs of long records, which must not run out of them.
        let long = bytes > LONG_MESSAGE_BYTES;
        if long && self.long_messages >= LONG_MESSAGES_MAX {
            return None;
        }
        let landing = self.landing.allocate(bytes)?;
        self.long_messages += usize::from(long);
        // SAFETY: the buffer was just allocated, so nothing else refers to it, and it has room for both.
        let target = unsafe { self.landed_mut(landing.offset(), bytes) };
        target[..key.len()].copy_from_slice(key);
        target[key.len()..].copy_from_slice(value);
        Some(landing)
    }

    /// Parks a request in a flight of its own; false, and nothing changed, if there is no room.
    pub(super) fn launch(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        address: Address,
        from: Source,
    ) -> bool {
        if !self.flights.has_room(lane) {
            return false;
        }
        if matches!(from, Source::Read(_)) && self.endpoint.room(READS) == 0 {
            return false;
        }
        let Some(message) = self.copy_message(&request.operation) else {
            return false;
        };
        let Some(flight) = self.flights.start(request.hash, self.now_ns) else {
            debug_assert!(false, "a flight was promised");
            return false;
        };
        if !self.park(flight, lane, request, message) {
            self.flights.end(flight);
            return false;
        }
        match from {
            Source::Chunk(chunk) => self.await_chunk(flight, address, chunk),
            Source::Read(class) => self.fetch(flight, address, class, false),
        }
        true
    }

    fn await_chunk(&mut self, flight: u32, address: Address, chunk: ChunkId) {
        self.streams.get_mut(chunk).waiters += 1;
        let entry = self.flights.get(flight);
        entry.address = address;
        entry.state = FlightState::OnChunk(chunk);
    }

    fn try_later(&mut self, flight: u32) {
        self.again.push_back(flight);
    }

    /// Plans the READ that a flight's first request needs, and posts it if it can.
    fn fetch(&mut self, flight: u32, address: Address, class: SizeClass, whole: bool) {
        let (kind, key_bytes) = match self.flights.first(flight) {
            Some(first) => (first.kind, first.key_bytes as usize),
            None => return,
        };
        // A record too long for a class is always verified: its header says how many bytes die with it.
        let whole = whole
            || class.units().is_none()
            || matches!(kind, ParkedKind::Get | ParkedKind::Swap(_));
        let head_units = units_for(key_bytes, 0);
        let entry = self.flights.get(flight);
        // A record too long for a class says its length in its header, which an earlier READ has brought.
        let known = class
            .units()
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
        entry.address = address;
        let (page, unit) = (address.page(self.shape), address.unit(self.shape));
        let units = units
            .min(self.pages.get(page).units.saturating_sub(unit))
            .max(1);
        let entry = self.flights.get(flight);
        entry.bytes = units * UNIT;
        entry.state = FlightState::Unposted;
        if entry.pinned != Some(page) {
            let before = entry.pinned.replace(page);
            self.pin(page);
            if let Some(before) = before {
                self.unpin(before);
            }
        }
        self.post_flight(flight);
    }

    fn post_flight(&mut self, flight: u32) {
        let entry = self.flights.get(flight);
        let (address, bytes) = (entry.address, entry.bytes);
        let Some(landing) = self.landing.allocate(bytes) else {
            return self.try_later(flight);
        };
        let (page, unit) = (address.page(self.shape), address.unit(self.shape));
        match self.post_read(Errand::Flight(flight), page, unit, landing.offset(), bytes) {
            Posted::Yes => self.flights.get(flight).state = FlightState::Posted(landing),
            Posted::Full => {
                self.landing.free(landing);
                self.try_later(flight);
            }
            Posted::Down => {
                self.landing.free(landing);
                let status = "the queue pair is down".to_owned();
                self.flights.get(flight).state = FlightState::Failed(Error::Fabric { status });
                self.try_later(flight);
            }
        }
    }

    /// Goes on with flights that could not go on before.
    pub(super) fn try_again(&mut self, answers: &mut impl Answers) -> bool {
        let mut moved = false;
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

    /// Takes completions and goes on with whoever waited for them.
    pub(super) fn poll_fabric(&mut self, answers: &mut impl Answers) -> bool {
        let mut completions = [const { Completion::NONE }; COMPLETIONS];
        let count = self.endpoint.poll(self.now_ns, &mut completions);
        if count == 0 {
            self.counters.empty_polls.add(1);
            return false;
        }
        self.counters.completions.add(count as u64);
        for completion in &completions[..count] {
            if completion.status != Status::Success {
                self.counters.fabric_errors.add(1);
            }
            match Errand::of(completion.id) {
                Errand::Flight(flight) => self.flight_landed(flight, completion.status, answers),
                Errand::Chunk(chunk) => self.chunk_landed(chunk, completion.status, answers),
                Errand::Flush(slot) => self.flush_written(slot, completion.status),
                Errand::Compaction(slot) => self.compaction_landed(slot, completion.status),
            }
        }
        true
    }

    fn flight_landed(&mut self, flight: u32, status: Status, answers: &mut impl Answers) {
        let entry = self.flights.get(flight);
        let FlightState::Posted(landing) = std::mem::take(&mut entry.state) else {
            debug_assert!(
                false,
                "a completion for a flight that has no READ under way"
            );
            return;
        };
        let (address, bytes) = (entry.address, entry.bytes);
        if status == Status::Success {
            entry.state = FlightState::Landed(landing);
            let (page, unit) = (address.page(self.shape), address.unit(self.shape));
            let offset = match &self.flights.get(flight).state {
                FlightState::Landed(landing) => landing.offset(),
                _ => return,
            };
            self.decrypt(page, unit, offset, bytes);
        } else {
            entry.state = FlightState::Failed(Error::Fabric {
                status: status.to_string(),
            });
            self.landing.free(landing);
        }
        self.drain(flight, answers);
    }

    fn chunk_landed(&mut self, id: ChunkId, status: Status, answers: &mut impl Answers) {
        let chunk = *self.streams.get_mut(id);
        let ready = status == Status::Success;
        if ready {
            let bytes = (chunk.end - chunk.start) * UNIT;
            self.decrypt(chunk.page, chunk.start, chunk.offset, bytes);
        }
        self.streams.get_mut(id).state = if ready {
            ChunkState::Ready
        } else {
            ChunkState::Empty
        };
        while let Some(flight) = self.flights.on_chunk(id) {
            self.flights.get(flight).state = FlightState::Retry;
            let chunk = self.streams.get_mut(id);
            chunk.waiters = chunk.waiters.saturating_sub(1);
            self.drain(flight, answers);
        }
        self.unpin(chunk.page);
    }

    /// Answers the requests of a flight, as far as what is known allows: those of one lane in order. A lane whose client
    /// makes no room does not hold up the others.
    ///
    /// Whoever cannot go on is put behind the rest; a pass that touches each once leaves them in their order.
    fn drain(&mut self, flight: u32, answers: &mut impl Answers) {
        let mut blocked = [0u64; 4];
        let (mut left, mut stayed) = (self.flights.waiting(flight), 0);
        loop {
            let Some(first) = self.flights.first(flight) else {
                return self.end_flight(flight);
            };
            if left == 0 {
                return self.try_later(flight);
            }
            let (lane, token, kind) = (first.lane, first.token, first.kind);
            let (word, bit) = (lane.number() / 64, 1 << (lane.number() % 64));
            if blocked[word] & bit != 0 {
                self.flights.rotate(flight);
                (left, stayed) = (left - 1, stayed + 1);
                continue;
            }
            let (offset, key_bytes, value_bytes) =
                (first.message.offset(), first.key_bytes, first.value_bytes);
            // SAFETY: the message was copied in by `copy_message` and is freed only when the request is popped.
            let message = unsafe { self.landed(offset, key_bytes + value_bytes) };
            let (key, value) = message.split_at(key_bytes as usize);
            let operation = match kind {
                ParkedKind::Get => Operation::Get { key },
                ParkedKind::Put => Operation::Put { key, value },
                ParkedKind::Delete => Operation::Delete { key },
                ParkedKind::Swap(expected) => Operation::CompareAndSwap {
                    key,
                    expected,
                    value,
                },
            };
            let step = self.step(flight, lane, token, &operation, answers);
            match step {
                Step::Done => {
                    left -= 1;
                    if let Some(parked) = self.flights.pop(flight) {
                        self.free_message(parked.message, parked.key_bytes + parked.value_bytes);
                    }
                }
                Step::Blocked => {
                    blocked[word] |= bit;
                    self.flights.rotate(flight);
                    (left, stayed) = (left - 1, stayed + 1);
                }
                Step::Fetch { address, class } => {
                    self.finish_pass(flight, left, stayed);
                    let again = self.flights.get(flight).address == address;
                    let was_landed = self.release_landing(flight);
                    return self.fetch(flight, address, class, again && was_landed);
                }
                Step::Await { address, chunk } => {
                    self.finish_pass(flight, left, stayed);
                    self.release_landing(flight);
                    return self.await_chunk(flight, address, chunk);
                }
            }
        }
    }

    fn finish_pass(&mut self, flight: u32, left: usize, stayed: usize) {
        if stayed > 0 {
            for _ in 0..left {
                self.flights.rotate(flight);
            }
        }
    }

    /// One try of a flight's first request.
    fn step(
        &mut self,
        flight: u32,
        lane: LaneId,
        token: u64,
        operation: &Operation<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        let hash = self.flights.get(flight).hash;
        let entry = self.flights.get(flight);
        let (address, bytes, whole) = (entry.address, entry.bytes, entry.whole);
        let mut confirmed = None;
        match &entry.state {
            FlightState::Failed(error) => {
                let error = error.clone();
                return self.fail(lane, token, error, answers);
            }
            FlightState::Landed(landing) => {
                let offset = landing.offset();
                // SAFETY: the READ has completed and the buffer is freed only by `release_landing`.
                let read = unsafe { self.landed(offset, bytes) };
                let header = RecordHeader::decode_from(read);
                let view = RecordView::parse(read).filter(|_| whole);
                let key = operation.key();
                match (header, view) {
                    (_, Some(view)) if view.verify() => {
                        if view.key() == key {
                            let record = &read[..view.units() as usize * UNIT_BYTES];
                            let header = view.header();
                            confirmed = Some(Confirmed {
                                address,
                                header,
                                record: Some(record),
                                wanted_bytes: record.len(),
                                streamed: false,
                            });
                        } else {
                            self.clear(flight, address);
                        }
                    }
                    (Some(header), _) if !whole => {
                        self.flights.get(flight).exact = header.units();
                        let end = UNIT_BYTES + key.len();
                        let slot = self.index.find_address(hash, address);
                        let long = slot.is_some_and(|position| {
                            self.index.slot(position).class().units().is_none()
                        });
                        if !long
                            && read.get(UNIT_BYTES..end) == Some(key)
                            && header.key_bytes() as usize == key.len()
                        {
                            confirmed = Some(Confirmed {
                                address,
                                header,
                                record: None,
                                wanted_bytes: end,
                                streamed: false,
                            });
                        } else if let Some(position) = slot {
                            // A mismatch counts only when the checksum says so too.
                            let class = self.index.slot(position).class();
                            return Step::Fetch { address, class };
                        }
                    }
                    _ => {
                        if self.index.find_address(hash, address).is_some() {
                            let sequence = self.pages.get(address.page(self.shape)).sequence;
                            let unit = address.unit(self.shape);
                            let error = Error::Damaged {
                                shard: self.id,
                                sequence,
                                unit,
                            };
                            return self.fail(lane, token, error, answers);
                        }
                    }
                }
            }
            _ => {}
        }
        let cleared = std::mem::take(&mut self.flights.get(flight).cleared);
        let evidence = Evidence {
            hint: Hint::None,
            confirmed,
            cleared: &cleared,
        };
        let step = self.execute(lane, token, hash, operation, evidence, answers);
        self.flights.get(flight).cleared = cleared;
        step
    }

    fn clear(&mut self, flight: u32, address: Address) {
        self.counters.tag_false_matches.add(1);
        let cleared = &mut self.flights.get(flight).cleared;
        if !cleared.contains(&address) {
            cleared.push(address);
        }
    }

    fn fail(&mut self, lane: LaneId, token: u64, error: Error, answers: &mut impl Answers) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::Blocked;
        }
        self.counters.failures.add(1);
        answers.answer(lane, token, Answer::Failed(error));
        Step::Done
    }

    /// Frees what a flight holds of the landing space; true if it had landed.
    fn release_landing(&mut self, flight: u32) -> bool {
        match std::mem::replace(&mut self.flights.get(flight).state, FlightState::Retry) {
            FlightState::Landed(landing) => {
                self.landing.free(landing);
                true
            }
            _ => false,
        }
    }

    fn end_flight(&mut self, flight: u32) {
        self.release_landing(flight);
        let took_ns = self.now_ns - self.flights.get(flight).started_ns;
        self.far_latency.record(took_ns);
        let pinned = self.flights.get(flight).pinned.take();
        if let Some(page) = pinned {
            self.unpin(page);
        }
        self.flights.end(flight);
    }

    /// Looks for a far record in the chunks that were read ahead.
    pub(super) fn locate(&self, page: u32, unit: u32, units: u32) -> Located {
        if self.read_ahead {
            self.streams.locate(page, unit, units)
        } else {
            Located::Miss
        }
    }

    /// Notes an access that a chunk served, and reads the chunk after it when it was the first.
    pub(super) fn stream_served(&mut self, id: ChunkId, page: u32, unit: u32, units: u32) {
        if !self.streams.served(id, page, unit, units) {
            return;
        }
        let stream = id.stream as usize;
        let Some((page, end, chunk_units)) = self.streams.next_chunk(stream) else {
            return;
        };
        let entry = self.pages.get(page);
        let overlap = units.max(64);
        let (page, start) = if end < entry.units {
            (page, end.saturating_sub(overlap).max(HEADER_UNITS))
        } else {
            match entry.successor {
                Some(next) => (next, HEADER_UNITS),
                None => return,
            }
        };
        self.read_chunk(stream, page, start, chunk_units);
    }

    /// Notes an access that no chunk holds; when it makes a walk, starts reading ahead from it.
    pub(super) fn stream_missed(&mut self, page: u32, unit: u32, units: u32) -> Option<ChunkId> {
        if !self.read_ahead {
            return None;
        }
        let stream = self.streams.missed(page, unit, units)?;
        let chunk_units = self.streams.first_units(stream);
        if units > chunk_units {
            return None;
        }
        self.read_chunk(stream, page, unit, chunk_units)
    }

    fn read_chunk(&mut self, stream: usize, page: u32, start: u32, units: u32) -> Option<ChunkId> {
        let entry = self.pages.get(page);
        if entry.state != PageState::Far || self.endpoint.room(READS) == 0 {
            return None;
        }
        let end = (start + units).min(entry.units);
        if end <= start {
            return None;
        }
        let id = self.streams.begin(stream, page, start, end)?;
        let offset = self.streams.get_mut(id).offset;
        let bytes = (end - start) * UNIT;
        if self.post_read(Errand::Chunk(id), page, start, offset, bytes) != Posted::Yes {
            self.streams.get_mut(id).state = ChunkState::Empty;
            self.streams.drop_stream(stream);
            return None;
        }
        self.pin(page);
        Some(id)
    }
}
