//! One connection of the `tcp` backend, without its socket: sends requests and receives answers,
//! and serves the peer's requests.
//!
//! Owns the queues and the buffers; the owner of the socket moves the bytes.
//!
//! ```text
//! post -> posted -> ring -> in flight + output      answers  -> completions
//!                                    peer's requests -> exposed regions, receives -> output (answers), completions
//! ```
//!
//! - I1: every posted request completes once: by its answer, or when the connection fails.
//! - I2: nothing is performed for a peer after one of its requests was refused.
//! - I3: a local buffer is written only while its request is in flight.
//! - I4: the peer's bytes are untrusted: anything that deviates from `wire` is an error, never a
//!   panic.

#![allow(unsafe_code)] // payload is copied directly to and from registered memory

mod peer;

use std::collections::VecDeque;
use std::ptr;

use self::peer::Answered;
use super::completions::{Completions, Side};
use super::exposed::Exposed;
use super::input::Input;
use super::output::{COPY_BYTES_MAX, Output};
use super::wire::{HEADER_BYTES, Header, Opcode, TRANSFER_BYTES_MAX, WireError, status_of};
use crate::fabric::PostError;
use crate::work::{Completion, Status, Work, WorkRequest};

pub(super) use self::peer::Retry;
pub use self::peer::Served;

/// The shortest remaining payload that is received in place.
const DIRECT_BYTES: usize = 8 << 10;
/// Memory of waiting output, in bytes, above which the peer's requests wait.
pub(super) const HELD_BYTES_MAX: usize = 128 << 10;
/// Waiting output, in bytes and wherever it lies, above which the peer's requests wait: the answers
/// of long READs take no memory here, but the thread's time.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Requests that an equal peer may have in flight, in depths of this side's queue pair.
const PEER_DEPTHS: usize = 8;
/// The depth that a shallower queue pair of this side counts as, for the requests that an equal
/// peer may have in flight.
const PEER_DEPTH_MIN: usize = 128;
/// Memory of an answer that waits, in bytes, at most.
const ANSWER_BYTES_MAX: usize = HEADER_BYTES + COPY_BYTES_MAX + 2 * size_of::<Answered>();
/// Output of which only a part has left and that keeps its memory, in bytes, at most.
const SENT_BYTES_MAX: usize = 128 << 10;

/// Capacity that an idle connection keeps for READs.
const SPARE_ANSWERS: usize = 256;

/// What becomes of a peer's request if waiting output takes more than this many bytes of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unread {
    /// It waits.
    Waits(usize),
    /// The connection ends.
    Ends(usize),
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    request: WorkRequest,
    near: *mut u8,
    /// The position of its last byte in the stream of all output.
    end: u64,
}

/// The action when a payload is complete.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Acknowledge a WRITE.
    Written,
    /// Acknowledge a WRITE, and deliver a word to the oldest receive.
    WrittenImmediate(u32),
    /// Complete the oldest receive.
    Received,
    /// Complete the oldest request.
    Read,
}

#[derive(Clone, Copy, Debug)]
struct Payload {
    target: *mut u8,
    left: usize,
    header: Header,
    then: Then,
}

// SAFETY: the pointers lead into regions that the endpoint and `Exposed` keep alive, which any
// thread may access; one thread at a time uses the connection.
unsafe impl Send for InFlight {}
// SAFETY: as for `InFlight`.
unsafe impl Send for Payload {}

#[derive(Debug)]
pub(super) struct Connection {
    depth: usize,
    posted: VecDeque<InFlight>,
    in_flight: VecDeque<InFlight>,
    /// The sequence number of the oldest request in flight.
    oldest: u32,
    /// The sequence number of the next request sent.
    next: u32,
    receives: VecDeque<InFlight>,
    exposed: Exposed,
    input: Input,
    payload: Option<Payload>,
    /// The sequence number that the peer's next request must have.
    expected: u32,
    /// The peer's newest request that is performed and not yet acknowledged.
    unacknowledged: Option<u32>,
    /// The READs whose answers have not left, in order.
    answered: VecDeque<Answered>,
    /// Whether the next request of the peer must be retried.
    retry: Option<Retry>,
    /// Whether the next request of the peer waits until output has left.
    is_held: bool,
    refused: bool,
    /// Whether the peer refused a request of this side.
    denied: bool,
    pub(super) output: Output,
    completions: Completions,
    served: Served,
}

fn completion(request: &WorkRequest, status: Status, bytes: u32) -> Completion {
    Completion {
        id: request.id,
        status,
        bytes,
        immediate: None,
    }
}

impl Connection {
    /// A connection with room for `depth` requests and as many receives. With a depth of 0,
    /// messages are refused rather than kept waiting for a receive.
    pub(super) fn new(depth: usize, exposed: Exposed) -> Self {
        Self {
            depth,
            posted: VecDeque::with_capacity(depth),
            in_flight: VecDeque::with_capacity(depth),
            oldest: 0,
            next: 0,
            receives: VecDeque::with_capacity(depth),
            exposed,
            input: Input::new(),
            payload: None,
            expected: 0,
            unacknowledged: None,
            answered: VecDeque::new(),
            retry: None,
            is_held: false,
            refused: false,
            denied: false,
            output: Output::default(),
            completions: Completions::with_capacity(2 * depth),
            served: Served::default(),
        }
    }

    /// True if the peer may access memory of this side.
    pub(super) fn is_exposed(&self) -> bool {
        !self.exposed.is_empty()
    }

    /// Lets the peer access these regions from now on; they include those of before.
    pub(super) fn expose(&mut self, exposed: Exposed) {
        self.exposed = exposed;
    }

    /// Memory that a connection takes, in bytes: input, headers of output, and queues. Payload is
    /// sent from its place, except short pieces, of which few are in flight.
    pub(super) const fn bytes_for(depth: usize) -> usize {
        let entry = 3 * size_of::<InFlight>() + 2 * Completions::ENTRY_BYTES;
        Input::BYTES + COPY_BYTES_MAX + depth * (entry + HEADER_BYTES)
    }

    /// Posted requests of the send queue whose completion, if they produce one, has not been taken.
    pub(super) fn outstanding(&self) -> usize {
        self.posted.len() + self.in_flight.len() + self.completions.sent()
    }

    pub(super) fn room(&self) -> usize {
        self.depth - self.outstanding()
    }

    /// Whether the peer owes an answer.
    pub(super) fn awaits_answers(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether this side waits for anything from the peer.
    pub(super) fn awaits(&self) -> bool {
        !self.in_flight.is_empty() || !self.receives.is_empty()
    }

    pub(super) fn take_completion(&mut self) -> Option<Completion> {
        self.completions.pop()
    }

    pub(super) fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Memory that waiting output takes, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.output.held_bytes() + self.answered.len() * size_of::<Answered>()
    }

    /// Frees memory that a connection without waiting output does not need.
    pub(super) fn shrink(&mut self) {
        self.output.shrink();
        if self.answered.is_empty() && self.answered.capacity() > SPARE_ANSWERS {
            self.answered = VecDeque::new();
        }
    }

    /// Whether a request of the peer waits until output has left: call [`Connection::process`]
    /// again then.
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether a request of the peer must be retried, by [`Connection::process`].
    pub(super) fn retry(&self) -> Option<Retry> {
        self.retry
    }

    /// Queues a request; `near` is its local buffer, checked against its region.
    pub(super) fn post(&mut self, request: WorkRequest, near: *mut u8) -> Result<(), PostError> {
        let local = request.work.local();
        let invalid = |reason| Err(PostError::Invalid { request, reason });
        if matches!(
            request.work,
            Work::CompareAndSwap { .. } | Work::FetchAdd { .. }
        ) && local.bytes != 8
        {
            return invalid("an atomic needs a local buffer of 8 bytes");
        }
        if local.bytes > TRANSFER_BYTES_MAX {
            return invalid("a transfer is limited to 16 MiB");
        }
        let receive = matches!(request.work, Work::Receive { .. });
        let full = if receive {
            self.receives.len() == self.depth
        } else {
            self.room() == 0
        };
        if full {
            return Err(PostError::Full(request));
        }
        let entry = InFlight {
            request,
            near,
            end: 0,
        };
        if receive {
            self.receives.push_back(entry);
        } else {
            self.posted.push_back(entry);
        }
        Ok(())
    }

    /// Moves posted requests to the output. Returns their number.
    pub(super) fn ring(&mut self) -> usize {
        let count = self.posted.len();
        while let Some(mut entry) = self.posted.pop_front() {
            let sequence = self.next;
            self.next = self.next.wrapping_add(1);
            let local = entry.request.work.local();
            let (opcode, first, second) = match entry.request.work {
                Work::Read { .. } => (Opcode::Read, 0, 0),
                Work::Write { .. } => (Opcode::Write, 0, 0),
                Work::WriteImmediate { immediate, .. } => {
                    (Opcode::WriteImmediate, u64::from(immediate), 0)
                }
                Work::CompareAndSwap {
                    expected, desired, ..
                } => (Opcode::CompareAndSwap, expected, desired),
                Work::FetchAdd { addend, .. } => (Opcode::FetchAdd, addend, 0),
                Work::Send { .. } | Work::Receive { .. } => (Opcode::Send, 0, 0),
            };
            let mut header = Header {
                bytes: local.bytes,
                first,
                second,
                ..Header::new(opcode, sequence)
            };
            if let Some(remote) = entry.request.work.remote() {
                (header.key, header.offset) = (remote.key, remote.offset);
            }
            self.output.put(&header.encode());
            if opcode.has_payload() {
                // SAFETY: the range was checked against its region, which the endpoint keeps until
                // the connection is gone, and the poster leaves it alone until the completion.
                unsafe { self.output.put_memory(entry.near, local.bytes as usize) };
            }
            entry.end = self.output.put_bytes();
            self.in_flight.push_back(entry);
        }
        count
    }

    /// The destination of the next received bytes, and whether it is a payload's final place.
    pub(super) fn spare(&mut self) -> (*mut u8, usize, bool) {
        if let Some(payload) = &self.payload
            && self.input.is_empty()
            && payload.left >= DIRECT_BYTES
        {
            return (payload.target, payload.left, true);
        }
        let spare = self.input.spare();
        (spare.as_mut_ptr(), spare.len(), false)
    }

    /// The destination of the next received bytes as a slice of the buffer, for callers that read
    /// through one.
    pub(super) fn spare_buffer(&mut self) -> &mut [u8] {
        self.input.spare()
    }

    /// Records bytes received into the buffer.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.input.filled(bytes);
    }

    /// Records bytes received into a payload's final place.
    pub(super) fn filled_direct(&mut self, bytes: usize) {
        if let Some(payload) = &mut self.payload {
            payload.target = payload.target.wrapping_add(bytes);
            payload.left -= bytes;
        }
    }

    /// Decodes and performs everything received, although output waits: two equal peers that both
    /// waited for output to leave would wait for ever. What one requests is limited by the depth of
    /// its queue pair. A peer that requests many times more than this side could has read none of
    /// the answers.
    ///
    /// # Errors
    /// [`WireError`]: the peer violates the protocol; fail the connection.
    pub(super) fn process(&mut self) -> Result<(), WireError> {
        let requests = self.depth + PEER_DEPTHS * self.depth.max(PEER_DEPTH_MIN);
        self.process_with(Unread::Ends(SENT_BYTES_MAX + requests * ANSWER_BYTES_MAX))
    }

    /// Decodes and performs what was received, for as long as waiting output takes at most
    /// `held_max` bytes of memory, and is not too long for a turn of the thread.
    ///
    /// # Errors
    /// As [`Connection::process`].
    pub(super) fn process_within(&mut self, held_max: usize) -> Result<(), WireError> {
        self.process_with(Unread::Waits(held_max))
    }

    fn process_with(&mut self, unread: Unread) -> Result<(), WireError> {
        (self.retry, self.is_held) = (None, false);
        loop {
            if let Some(payload) = &mut self.payload {
                let waiting = self.input.waiting();
                let bytes = payload.left.min(waiting.len());
                // SAFETY: the target was checked against its region or is the buffer of a request
                // in flight, with `left` bytes to go; the source is part of the input.
                unsafe { ptr::copy_nonoverlapping(waiting.as_ptr(), payload.target, bytes) };
                self.input.consume(bytes);
                payload.target = payload.target.wrapping_add(bytes);
                payload.left -= bytes;
                if payload.left > 0 {
                    break;
                }
                let payload = *payload;
                self.payload = None;
                self.arrived(&payload);
                continue;
            }
            if self.is_refused() {
                break;
            }
            let Some(bytes) = self.input.waiting().first_chunk::<HEADER_BYTES>() else {
                break;
            };
            let header = Header::decode(bytes)?;
            if !self.begin(&header, unread)? {
                break;
            }
            self.input.consume(HEADER_BYTES);
        }
        if let Some(sequence) = self.unacknowledged.take() {
            self.output
                .put(&Header::new(Opcode::Acknowledge, sequence).encode());
        }
        Ok(())
    }

    /// True once a refusal by this side is sent, or the peer has refused: the connection must end.
    /// If the peer refused, nothing may be sent any more: the buffers of the refused requests
    /// belong to their posters again.
    pub(super) fn is_over(&self) -> bool {
        self.denied || self.refused && self.output.is_empty()
    }

    /// Processes a header; false if it must wait: for a receive, for output to leave, or to be
    /// retried.
    fn begin(&mut self, header: &Header, unread: Unread) -> Result<bool, WireError> {
        match header.opcode {
            Opcode::Acknowledge | Opcode::Refuse | Opcode::ReadAnswer | Opcode::AtomicAnswer => {
                self.answered(header)?;
                return Ok(true);
            }
            _ if header.sequence != self.expected => {
                return Err(WireError::Sequence(header.sequence));
            }
            Opcode::Send | Opcode::WriteImmediate if self.depth > 0 && self.receives.is_empty() => {
                return Ok(false);
            }
            _ => {}
        }
        match unread {
            Unread::Waits(held_max)
                if self.held_bytes() > held_max
                    || self.output.waiting_bytes() > WAITING_BYTES_MAX =>
            {
                self.is_held = true;
                return Ok(false);
            }
            Unread::Ends(held_max) if self.held_bytes() > held_max => {
                return Err(WireError::Unread(self.held_bytes()));
            }
            Unread::Waits(_) | Unread::Ends(_) => {}
        }
        let performed = self.perform(header);
        if performed == Ok(false) {
            return Ok(false);
        }
        self.expected = self.expected.wrapping_add(1);
        if let Err(status) = performed {
            self.refuse(header.sequence, status);
        }
        Ok(true)
    }

    fn expect(&mut self, header: &Header, target: *mut u8, then: Then) {
        self.payload = Some(Payload {
            target,
            left: header.bytes as usize,
            header: *header,
            then,
        });
    }

    /// A payload is complete.
    fn arrived(&mut self, payload: &Payload) {
        let header = &payload.header;
        self.end_write(payload);
        match payload.then {
            Then::Read => self.complete_oldest(Status::Success),
            Then::Written => self.written(header),
            Then::WrittenImmediate(word) => {
                self.written(header);
                self.complete_receive(header.bytes, Some(word));
            }
            Then::Received => {
                self.unacknowledged = Some(header.sequence);
                self.complete_receive(header.bytes, None);
            }
        }
    }

    fn written(&mut self, header: &Header) {
        self.served.write_bytes += u64::from(header.bytes);
        self.unacknowledged = Some(header.sequence);
    }

    fn complete_receive(&mut self, bytes: u32, immediate: Option<u32>) {
        if let Some(receive) = self.receives.pop_front() {
            let done = Completion {
                immediate,
                ..completion(&receive.request, Status::Success, bytes)
            };
            self.completions.push(Side::Receive, done);
        }
    }

    /// Processes an answer of the peer.
    fn answered(&mut self, header: &Header) -> Result<(), WireError> {
        let behind = header.sequence.wrapping_sub(self.oldest) as usize;
        if behind >= self.in_flight.len() {
            return Err(WireError::Sequence(header.sequence));
        }
        // All earlier requests succeeded and needed no answer of their own.
        for _ in 0..behind {
            self.acknowledge_oldest()?;
        }
        let Some(entry) = self.in_flight.front() else {
            return Err(WireError::Sequence(header.sequence));
        };
        let (work, near) = (entry.request.work, entry.near);
        match (header.opcode, work) {
            (Opcode::Refuse, _) => {
                self.complete_oldest(status_of(header.status));
                // The peer performs nothing more; the rest is flushed when this connection is
                // failed.
                self.denied = true;
            }
            (Opcode::Acknowledge, _) => self.acknowledge_oldest()?,
            (Opcode::ReadAnswer, Work::Read { local, .. }) if header.bytes == local.bytes => {
                self.expect(header, near, Then::Read);
            }
            (Opcode::AtomicAnswer, Work::CompareAndSwap { .. } | Work::FetchAdd { .. }) => {
                // SAFETY: the buffer of a request in flight, of 8 bytes as `post` checked.
                unsafe { near.cast::<u64>().write_unaligned(header.first) };
                self.complete_oldest(Status::Success);
            }
            (Opcode::ReadAnswer, _) => return Err(WireError::Length(header.bytes)),
            _ => return Err(WireError::Sequence(header.sequence)),
        }
        Ok(())
    }

    /// Completes the oldest request in flight, if an acknowledgement answers its kind.
    fn acknowledge_oldest(&mut self) -> Result<(), WireError> {
        let sent = self.output.sent_bytes();
        match self.in_flight.front() {
            // A request that was not fully sent cannot be done: its buffer must not be released.
            Some(entry)
                if entry.end <= sent
                    && matches!(
                        entry.request.work,
                        Work::Write { .. } | Work::WriteImmediate { .. } | Work::Send { .. }
                    ) =>
            {
                self.complete_oldest(Status::Success);
                Ok(())
            }
            _ => Err(WireError::Sequence(self.oldest)),
        }
    }

    fn complete_oldest(&mut self, status: Status) {
        let Some(entry) = self.in_flight.pop_front() else {
            return;
        };
        self.oldest = self.oldest.wrapping_add(1);
        let success = status == Status::Success;
        if !success || entry.request.signalled {
            let bytes = if success {
                entry.request.work.local().bytes
            } else {
                0
            };
            self.completions
                .push(Side::Send, completion(&entry.request, status, bytes));
        }
    }

    /// True once the peer or this side has refused a request: the connection must be failed.
    pub(super) fn is_refused(&self) -> bool {
        self.refused || self.denied
    }

    /// Fails the connection: the oldest request in flight completes with `status`, all others are
    /// flushed.
    pub(super) fn fail(&mut self, status: Status) {
        let mut status = status;
        if let Some(payload) = self.payload.take() {
            self.end_write(&payload);
        }
        while !self.in_flight.is_empty() {
            self.complete_oldest(status);
            status = Status::Flushed;
        }
        while let Some(entry) = self.posted.pop_front() {
            self.completions
                .push(Side::Send, completion(&entry.request, Status::Flushed, 0));
        }
        while let Some(entry) = self.receives.pop_front() {
            self.completions.push(
                Side::Receive,
                completion(&entry.request, Status::Flushed, 0),
            );
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(payload) = self.payload.take() {
            self.end_write(&payload);
        }
        for answered in self.answered.drain(..) {
            self.exposed.end(answered.range);
        }
    }
}
