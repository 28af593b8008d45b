//! Requests that wait for the fabric.
//!
//! A *flight* is one READ and the requests that wait for it, in order: all that came for a hash after the first
//! one. So operations on one key keep their order, and concurrent gets of one far record share one READ.
//!
//! - I1: at most one flight exists for a hash, and every parked request is in exactly one.
//! - I2: a flight pins the page of `address` from the moment its READ is posted until the flight ends or moves on.
//! - I3: nothing here allocates after construction, but for `cleared` after a false tag match.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use farcore_rdma::Landing;

use super::request::{LaneId, Request, Shape};
use super::stream::ChunkId;
use crate::error::Error;
use crate::log::Address;
use crate::routing::IndexHash;

const NONE: u32 = u32::MAX;
/// Lanes that a shard can have.
const LANES: usize = 256;

/// Passes an index hash through: it is uniform already.
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

/// One parked request: its parts lie in a landing buffer until it is answered.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) lane: LaneId,
    pub(crate) token: u64,
    pub(crate) shape: Shape,
    pub(crate) message: Landing,
    next: u32,
}

impl Parked {
    /// A request whose parts were copied to `message`; its lane is told that it waits.
    pub(crate) fn new(lane: LaneId, request: &Request<'_>, message: Landing) -> Self {
        Self {
            lane: lane.waiting(),
            token: request.token,
            shape: request.shape(),
            message,
            next: NONE,
        }
    }
}

/// What a flight waits for.
#[derive(Debug, Default)]
pub(crate) enum FlightState {
    /// Not in use.
    #[default]
    Free,
    /// The READ could not be posted yet.
    Unposted,
    /// The READ is on its way into this buffer.
    Posted(Landing),
    /// A stream's chunk is on its way.
    OnChunk(ChunkId),
    /// The bytes are here; requests are being answered.
    Landed(Landing),
    /// No bytes are held: the first request is to be tried (again).
    Retry,
    /// The READ failed: every request is to be told.
    Failed(Error),
}

/// One READ and those who wait for it.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) hash: IndexHash,
    pub(crate) address: Address,
    /// Bytes of the READ.
    pub(crate) bytes: u32,
    pub(crate) state: FlightState,
    /// The record's length in units as its header said it, where no size class does.
    pub(crate) exact: u32,
    /// True once the whole record, not just header and key, was asked for.
    pub(crate) whole: bool,
    /// The whole record is here and was found to be what was written.
    pub(crate) verified: bool,
    /// Far addresses that do not hold the first request's key.
    pub(crate) cleared: Vec<Address>,
    pub(crate) pinned: Option<u32>,
    /// When it was started, on the shard's clock.
    pub(crate) started_ns: u64,
    head: u32,
    tail: u32,
}

/// All flights and parked requests of a shard.
#[derive(Debug)]
pub(crate) struct Flights {
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    parked: Vec<Option<Parked>>,
    free_parked: Vec<u32>,
    /// Parked requests of each lane.
    of_lane: Vec<u32>,
    /// What a lane may have parked, so that one whose client does not look leaves room for the others.
    lane_max: u32,
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
            cleared: Vec::new(),
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
            of_lane: vec![0; LANES],
            lane_max: (flights / 4).max(1),
            by_hash: HashMap::with_capacity_and_hasher(
                flights as usize * 2,
                BuildHasherDefault::default(),
            ),
        }
    }

    /// The flight that requests for a hash must queue behind.
    #[inline]
    pub(crate) fn of_hash(&self, hash: IndexHash) -> Option<u32> {
        if self.by_hash.is_empty() {
            return None;
        }
        self.by_hash.get(&hash.0).copied()
    }

    /// Flights under way.
    pub(crate) fn count(&self) -> usize {
        self.flights.len() - self.free_flights.len()
    }

    /// Parked requests.
    pub(crate) fn parked_count(&self) -> usize {
        self.parked.len() - self.free_parked.len()
    }

    /// True if one more request can be parked in a flight of its own.
    pub(crate) fn has_room(&self, lane: LaneId) -> bool {
        !self.free_flights.is_empty() && self.has_parking(lane)
    }

    /// True if one more request can queue behind a flight.
    pub(crate) fn has_parking(&self, lane: LaneId) -> bool {
        !self.free_parked.is_empty() && self.of_lane[lane.number()] < self.lane_max
    }

    /// The flight.
    pub(crate) fn get(&mut self, flight: u32) -> &mut Flight {
        &mut self.flights[flight as usize]
    }

    /// Starts a flight for a hash; [`Flights::has_room`] was asked before.
    pub(crate) fn start(&mut self, hash: IndexHash, now_ns: u64) -> Option<u32> {
        let id = self.free_flights.pop()?;
        let flight = &mut self.flights[id as usize];
        flight.hash = hash;
        flight.started_ns = now_ns;
        flight.state = FlightState::Retry;
        flight.whole = false;
        flight.verified = false;
        flight.bytes = 0;
        flight.exact = 0;
        flight.address = Address::NONE;
        flight.cleared.clear();
        flight.head = NONE;
        flight.tail = NONE;
        self.by_hash.insert(hash.0, id);
        Some(id)
    }

    /// Queues a request behind a flight; hands it back when there is no room.
    pub(crate) fn park(&mut self, flight: u32, parked: Parked) -> Result<(), Parked> {
        let Some(id) = self.free_parked.pop() else {
            return Err(parked);
        };
        self.of_lane[parked.lane.number()] += 1;
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
    pub(crate) fn first(&self, flight: u32) -> Option<&Parked> {
        let head = self.flights[flight as usize].head;
        if head == NONE {
            None
        } else {
            self.parked[head as usize].as_ref()
        }
    }

    /// Requests that wait in a flight.
    pub(crate) fn waiting(&self, flight: u32) -> usize {
        let (mut count, mut at) = (0, self.flights[flight as usize].head);
        while let Some(parked) = self.parked.get(at as usize).and_then(Option::as_ref) {
            count += 1;
            at = parked.next;
        }
        count
    }

    /// Puts the first request of a flight behind the others.
    pub(crate) fn rotate(&mut self, flight: u32) {
        let flight = &mut self.flights[flight as usize];
        flight.cleared.clear();
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

    /// Takes the first request out of a flight.
    pub(crate) fn pop(&mut self, flight: u32) -> Option<Parked> {
        let head = self.flights[flight as usize].head;
        if head == NONE {
            return None;
        }
        let parked = self.parked[head as usize].take()?;
        self.of_lane[parked.lane.number()] -= 1;
        let flight = &mut self.flights[flight as usize];
        flight.head = parked.next;
        if flight.head == NONE {
            flight.tail = NONE;
        }
        flight.cleared.clear();
        self.free_parked.push(head);
        Some(parked)
    }

    /// Ends a flight that nobody waits for any more.
    pub(crate) fn end(&mut self, id: u32) {
        let flight = &mut self.flights[id as usize];
        debug_assert!(flight.head == NONE && flight.pinned.is_none());
        flight.state = FlightState::Free;
        self.by_hash.remove(&flight.hash.0);
        self.free_flights.push(id);
    }

    /// Every flight that waits for a chunk.
    pub(crate) fn on_chunk(&self, chunk: ChunkId) -> Option<u32> {
        (0u32..)
            .zip(&self.flights)
            .find(|(_, flight)| matches!(flight.state, FlightState::OnChunk(id) if id == chunk))
            .map(|(id, _)| id)
    }
}
