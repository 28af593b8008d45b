//! Requests that wait: parking them, and going on where each flight stopped.

use std::ptr::NonNull;

use farcore_rdma::{Endpoint, Landing};

use super::Shard;
use super::find::{Confirmed, Evidence, Hint};
use super::flight::{FlightState, Parked};
use super::request::{Answers, LaneId, Request};
use super::serve::Step;
use super::stream::ChunkId;
use crate::constants::UNIT_BYTES;
use crate::error::Error;
use crate::log::record::{RecordHeader, RecordView};
use crate::log::{Address, SizeClass};
use crate::operation::{Answer, Kind};
use crate::routing::IndexHash;

/// A message longer than this takes a large landing block.
const LONG_MESSAGE_BYTES: usize = 8 << 10;
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

impl<E: Endpoint> Shard<E> {
    /// Queues a request behind the flight for its hash; false if there is no room.
    pub(super) fn park_behind(&mut self, flight: u32, lane: LaneId, request: &Request<'_>) -> bool {
        if !self.flights.has_parking(lane) {
            return false;
        }
        let Some(message) = self.copy_message(request) else {
            return false;
        };
        if request.kind() == Kind::Get {
            self.figures.counters.reads_shared.add(1);
        }
        self.park(flight, lane, request, message)
    }

    fn park(&mut self, flight: u32, lane: LaneId, request: &Request<'_>, message: Landing) -> bool {
        match self
            .flights
            .park(flight, Parked::new(lane, request, message))
        {
            Ok(()) => true,
            Err(parked) => {
                self.free_message(parked);
                false
            }
        }
    }

    fn free_message(&mut self, parked: Parked) {
        self.long_messages -= usize::from(parked.shape.bytes() > LONG_MESSAGE_BYTES);
        self.landing.free(parked.message);
    }

    fn copy_message(&mut self, request: &Request<'_>) -> Option<Landing> {
        let parts = request.parts();
        let bytes = u32::try_from(parts.len()).ok()?;
        // Long messages share the few large blocks with READs of long records, which must not run out of them.
        let long = parts.len() > LONG_MESSAGE_BYTES;
        if long && self.long_messages >= LONG_MESSAGES_MAX {
            return None;
        }
        let landing = self.landing.allocate(bytes)?;
        self.long_messages += usize::from(long);
        // SAFETY: the buffer was just allocated, so nothing else refers to it, and it has room for all.
        let target = unsafe { self.landed_mut(landing.offset(), bytes) };
        target.copy_from_slice(parts);
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
        let page = address.page(self.shape);
        if matches!(from, Source::Read(_)) && !self.has_read_room(page) {
            return false;
        }
        let Some(message) = self.copy_message(request) else {
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
            Source::Read(class) => {
                if request.kind() == Kind::Get {
                    self.cache.expect(address);
                }
                self.fetch(flight, address, class, false);
            }
        }
        true
    }

    fn await_chunk(&mut self, flight: u32, address: Address, chunk: ChunkId) {
        self.streams.get_mut(chunk).waiters += 1;
        let entry = self.flights.get(flight);
        entry.address = address;
        entry.state = FlightState::OnChunk(chunk);
    }

    pub(super) fn try_later(&mut self, flight: u32) {
        self.again.push_back(flight);
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

    /// Answers the requests of a flight, as far as what is known allows: those of one lane in order. A lane whose client
    /// makes no room does not hold up the others.
    ///
    /// Whoever cannot go on is put behind the rest; a pass that touches each once leaves them in their order.
    pub(super) fn drain(&mut self, flight: u32, answers: &mut impl Answers) {
        let mut blocked = [0u64; 4];
        let (mut left, mut stayed) = (self.flights.waiting(flight), 0);
        loop {
            let Some(first) = self.flights.first(flight) else {
                return self.end_flight(flight);
            };
            if left == 0 {
                return self.try_later(flight);
            }
            let (lane, token) = (first.lane, first.token);
            let (word, bit) = (lane.number() / 64, 1 << (lane.number() % 64));
            if blocked[word] & bit != 0 {
                self.flights.rotate(flight);
                (left, stayed) = (left - 1, stayed + 1);
                continue;
            }
            let (offset, shape) = (first.message.offset(), first.shape);
            let hash = self.flights.get(flight).hash;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it fitted when it was copied"
            )]
            // SAFETY: the message was copied in by `copy_message` and is freed only when the request is popped.
            let request = unsafe {
                let message = self.landed(offset, shape.bytes() as u32);
                Request::at(
                    NonNull::from(message).cast(),
                    shape,
                    hash,
                    token,
                    lane.origin(),
                )
            };
            let step = self.step(flight, lane, &request, answers);
            match step {
                Step::Done => {
                    left -= 1;
                    if let Some(parked) = self.flights.pop(flight) {
                        self.free_message(parked);
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
        request: &Request<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        let (hash, key) = (request.hash, request.key());
        let authenticates = self.authenticates();
        let entry = self.flights.get(flight);
        let (address, bytes, whole, verified) =
            (entry.address, entry.bytes, entry.whole, entry.verified);
        let mut confirmed = None;
        match &entry.state {
            FlightState::Failed(error) => {
                let error = error.clone();
                if !self.is_beside(hash, key) {
                    return self.fail(lane, request, error, answers);
                }
            }
            FlightState::Landed(landing) => {
                let offset = landing.offset();
                // SAFETY: the READ has completed and the buffer is freed only by `release_landing`.
                let read = unsafe { self.landed(offset, bytes) };
                let header = RecordHeader::decode_from(read);
                let view = RecordView::parse(read).filter(|_| whole);
                match (header, view) {
                    (_, Some(view)) if verified || !authenticates && view.verify() => {
                        if view.key() == key {
                            let record = view.bytes();
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
                        // A record too long for a class is always verified: its header says how many bytes die with it.
                        let long = slot.is_some_and(|position| {
                            self.index.slot(position).class().units().is_none()
                        });
                        if !long
                            && !authenticates
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
                        if self.index.find_address(hash, address).is_some()
                            && !self.is_beside(hash, key)
                        {
                            let sequence = self.pages.get(address.page(self.shape)).sequence;
                            let unit = address.unit(self.shape);
                            let error = Error::Damaged {
                                shard: self.id,
                                sequence,
                                unit,
                            };
                            return self.fail(lane, request, error, answers);
                        }
                    }
                }
            }
            _ => {}
        }
        let cleared = std::mem::take(&mut self.flights.get(flight).cleared);
        let evidence = Evidence {
            confirmed,
            cleared: &cleared,
        };
        let step = self.execute(lane, request, &Hint::None, &evidence, answers);
        self.flights.get(flight).cleared = cleared;
        step
    }

    /// True if what could not be read is another's: the key's own record is in a frame.
    #[cold]
    fn is_beside(&mut self, hash: IndexHash, key: &[u8]) -> bool {
        let is_local = self.is_local(hash, key);
        if is_local {
            self.namesakes.note(hash);
        }
        is_local
    }

    fn clear(&mut self, flight: u32, address: Address) {
        self.figures.counters.tag_false_matches.add(1);
        let entry = self.flights.get(flight);
        self.namesakes.note(entry.hash);
        let cleared = &mut entry.cleared;
        if !cleared.contains(&address) {
            cleared.push(address);
        }
    }

    fn fail(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        error: Error,
        answers: &mut impl Answers,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::Blocked;
        }
        let counters = &self.figures.counters;
        let failed = match request.kind() {
            Kind::Get => &counters.gets_failed,
            Kind::Put => &counters.puts_failed,
            Kind::Delete => &counters.deletes_failed,
            Kind::Swap => &counters.swaps_failed,
        };
        failed.add(1);
        answers.answer(lane, request.token, Answer::Failed(&error));
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
        self.figures.far.record(took_ns);
        let pinned = self.flights.get(flight).pinned.take();
        if let Some(page) = pinned {
            self.unpin(page);
        }
        self.flights.end(flight);
    }
}
