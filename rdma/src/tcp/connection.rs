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

use std::collections::VecDeque;
use std::ptr;

use super::exposed::{Access, Attempt, Change, Exposed, RemoteRange};
use super::output::{COPY_BYTES_MAX, Output};
use super::wire::{
    HEADER_BYTES, Header, Opcode, TRANSFER_BYTES_MAX, WireError, status_code, status_of,
};
use crate::fabric::PostError;
use crate::work::{Completion, Status, Work, WorkRequest};

/// Bytes received from the socket at once.
const INPUT_BYTES: usize = 64 << 10;
/// The shortest remaining payload that is received in place.
const DIRECT_BYTES: usize = 8 << 10;
/// Memory of waiting output, in bytes, above which the peer's requests wait.
pub(super) const HELD_BYTES_MAX: usize = 128 << 10;

/// Capacity that an idle connection keeps for READs.
const SPARE_ANSWERS: usize = 256;

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
    /// The same, and deliver a word to the oldest receive.
    WrittenImmediate(u32),
    /// Complete the oldest receive.
    Received,
    /// Complete the oldest request.
    Read,
}

/// Why the peer's next request was not performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Retry {
    /// It waits for other requests: retry it after a pause.
    Later,
    /// A part of it is done: retry it after others had their turn.
    NextTurn,
}

/// A READ of the peer whose answer has not left.
#[derive(Clone, Copy, Debug)]
struct Answered {
    range: RemoteRange,
    /// The position of the answer's last byte in the stream of all output.
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Payload {
    target: *mut u8,
    left: usize,
    header: Header,
    then: Then,
}

/// What a connection has performed for its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// READs.
    pub reads: u64,
    /// Bytes of READs that have left.
    pub read_bytes: u64,
    /// WRITEs, with and without immediate.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Compare-and-swaps and additions.
    pub atomics: u64,
    /// Requests refused.
    pub refused: u64,
}

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
    input: Vec<u8>,
    /// The start of the part of `input` that is not yet decoded.
    start: usize,
    end: usize,
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
    completions: VecDeque<(Side, Completion)>,
    /// The number of receives among `completions`.
    received: usize,
    served: Served,
}

/// The queue that a completed request was on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Send,
    Receive,
}

fn completion(request: &WorkRequest, status: Status, bytes: u32) -> Completion {
    Completion {
        id: request.id,
        status,
        bytes,
        immediate: None,
    }
}

fn range_of(header: &Header) -> RemoteRange {
    RemoteRange {
        key: header.key,
        offset: header.offset,
        bytes: header.bytes,
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
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            payload: None,
            expected: 0,
            unacknowledged: None,
            answered: VecDeque::new(),
            retry: None,
            is_held: false,
            refused: false,
            denied: false,
            output: Output::default(),
            completions: VecDeque::with_capacity(2 * depth),
            received: 0,
            served: Served::default(),
        }
    }

    /// Lets the peer access these regions from now on; they include those of before.
    pub(super) fn expose(&mut self, exposed: Exposed) {
        self.exposed = exposed;
    }

    /// Memory that a connection takes, in bytes: input, headers of output, and queues. Payload is
    /// sent from its place, except short pieces, of which few are in flight.
    pub(super) const fn bytes_for(depth: usize) -> usize {
        let entry = 3 * size_of::<InFlight>() + 2 * size_of::<(Side, Completion)>();
        INPUT_BYTES + COPY_BYTES_MAX + depth * (entry + HEADER_BYTES)
    }

    /// Posted requests of the send queue whose completion, if they produce one, has not been taken.
    pub(super) fn outstanding(&self) -> usize {
        self.posted.len() + self.in_flight.len() + self.completions.len() - self.received
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
        let (side, completion) = self.completions.pop_front()?;
        self.received -= usize::from(side == Side::Receive);
        Some(completion)
    }

    pub(super) fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// What was performed for the peer since the last call. Ends the READs that have left.
    pub(super) fn take_served(&mut self) -> Served {
        let sent = self.output.sent_bytes();
        while let Some(&Answered { range, end }) = self.answered.front()
            && end <= sent
        {
            self.answered.pop_front();
            self.served.read_bytes += u64::from(range.bytes);
            self.exposed.end(range);
        }
        std::mem::take(&mut self.served)
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
            && self.start == self.end
            && payload.left >= DIRECT_BYTES
        {
            return (payload.target, payload.left, true);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.input.len() - self.end < HEADER_BYTES {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let spare = &mut self.input[self.end..];
        (spare.as_mut_ptr(), spare.len(), false)
    }

    /// The same as a slice of the buffer, for callers that read through one.
    pub(super) fn spare_buffer(&mut self) -> &mut [u8] {
        let (_, _, direct) = self.spare();
        if direct {
            (self.start, self.end) = (0, 0);
        }
        &mut self.input[self.end..]
    }

    /// Records bytes received into the buffer.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Records bytes received into a payload's final place.
    pub(super) fn filled_direct(&mut self, bytes: usize) {
        if let Some(payload) = &mut self.payload {
            payload.target = payload.target.wrapping_add(bytes);
            payload.left -= bytes;
        }
    }

    /// Decodes and performs everything received, however much output waits. Two equal peers that
    /// both waited for output to leave would wait for ever; what one requests is limited by the
    /// depth of its queue pair.
    ///
    /// # Errors
    /// [`WireError`]: the peer violates the protocol; fail the connection.
    pub(super) fn process(&mut self) -> Result<(), WireError> {
        self.process_within(usize::MAX)
    }

    /// The same for as long as waiting output takes at most `held_max` bytes.
    ///
    /// # Errors
    /// As [`Connection::process`].
    pub(super) fn process_within(&mut self, held_max: usize) -> Result<(), WireError> {
        (self.retry, self.is_held) = (None, false);
        loop {
            if let Some(payload) = &mut self.payload {
                let bytes = payload.left.min(self.end - self.start);
                let source = self.input[self.start..].as_ptr();
                // SAFETY: the target was checked against its region or is the buffer of a request
                // in flight, with `left` bytes to go; the source is part of the input.
                unsafe { ptr::copy_nonoverlapping(source, payload.target, bytes) };
                self.start += bytes;
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
            let Some(bytes) = self.input[self.start..self.end].first_chunk::<HEADER_BYTES>() else {
                break;
            };
            let header = Header::decode(bytes)?;
            if !self.begin(&header, held_max)? {
                break;
            }
            self.start += HEADER_BYTES;
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
    fn begin(&mut self, header: &Header, held_max: usize) -> Result<bool, WireError> {
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
            _ if self.held_bytes() > held_max => {
                self.is_held = true;
                return Ok(false);
            }
            _ => {}
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

    fn refuse(&mut self, sequence: u32, status: Status) {
        self.refused = true;
        self.served.refused += 1;
        self.unacknowledged = None;
        let refusal = Header {
            status: status_code(status),
            ..Header::new(Opcode::Refuse, sequence)
        };
        self.output.put(&refusal.encode());
    }

    /// Performs a request, or begins to; false if it must be retried.
    fn perform(&mut self, header: &Header) -> Result<bool, Status> {
        let bytes = header.bytes;
        let range = range_of(header);
        match header.opcode {
            Opcode::Read => {
                let start = self.exposed.begin(Access::Read, range)?;
                self.served.reads += 1;
                self.unacknowledged = None;
                let answer = Header {
                    bytes,
                    ..Header::new(Opcode::ReadAnswer, header.sequence)
                };
                self.output.put(&answer.encode());
                // SAFETY: inside its region, which `exposed` keeps as long as this connection.
                unsafe { self.output.put_memory(start, bytes as usize) };
                let end = self.output.put_bytes();
                self.answered.push_back(Answered { range, end });
            }
            Opcode::Write | Opcode::WriteImmediate => {
                if header.opcode == Opcode::WriteImmediate && self.receives.is_empty() {
                    return Err(Status::RemoteOperation);
                }
                let target = self.exposed.begin(Access::Write, range)?;
                self.served.writes += 1;
                self.served.write_bytes += u64::from(bytes);
                let then = if header.opcode == Opcode::Write {
                    Then::Written
                } else {
                    Then::WrittenImmediate(u32::try_from(header.first).unwrap_or(u32::MAX))
                };
                self.expect(header, target, then);
            }
            Opcode::CompareAndSwap | Opcode::FetchAdd => return self.perform_atomic(header),
            Opcode::Send => {
                let Some(receive) = self.receives.front() else {
                    return Err(Status::RemoteOperation);
                };
                if bytes > receive.request.work.local().bytes {
                    let failed = completion(&receive.request, Status::LocalLength, 0);
                    self.receives.pop_front();
                    self.complete(Side::Receive, failed);
                    return Err(Status::LocalLength);
                }
                let target = receive.near;
                self.expect(header, target, Then::Received);
            }
            Opcode::Acknowledge | Opcode::ReadAnswer | Opcode::AtomicAnswer | Opcode::Refuse => {}
        }
        Ok(true)
    }

    /// Performs an atomic; false if it must be retried.
    fn perform_atomic(&mut self, header: &Header) -> Result<bool, Status> {
        let change = if header.opcode == Opcode::FetchAdd {
            Change::Add(header.first)
        } else {
            Change::Swap {
                expected: header.first,
                desired: header.second,
            }
        };
        let old = match self.exposed.atomic(header.key, header.offset, change)? {
            Attempt::Done(old) => old,
            Attempt::Wait => {
                self.retry = Some(Retry::Later);
                return Ok(false);
            }
            Attempt::More => {
                self.retry = Some(Retry::NextTurn);
                return Ok(false);
            }
        };
        self.served.atomics += 1;
        self.unacknowledged = None;
        let answer = Header {
            first: old,
            ..Header::new(Opcode::AtomicAnswer, header.sequence)
        };
        self.output.put(&answer.encode());
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
            Then::Written => self.unacknowledged = Some(header.sequence),
            Then::WrittenImmediate(word) => {
                self.unacknowledged = Some(header.sequence);
                self.complete_receive(header.bytes, Some(word));
            }
            Then::Received => {
                self.unacknowledged = Some(header.sequence);
                self.complete_receive(header.bytes, None);
            }
        }
    }

    /// Ends the peer's WRITE of a payload, if it is one.
    fn end_write(&self, payload: &Payload) {
        if matches!(payload.then, Then::Written | Then::WrittenImmediate(_)) {
            self.exposed.end(range_of(&payload.header));
        }
    }

    fn complete_receive(&mut self, bytes: u32, immediate: Option<u32>) {
        if let Some(receive) = self.receives.pop_front() {
            let done = Completion {
                immediate,
                ..completion(&receive.request, Status::Success, bytes)
            };
            self.complete(Side::Receive, done);
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
            self.complete(Side::Send, completion(&entry.request, status, bytes));
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
            self.complete(Side::Send, completion(&entry.request, Status::Flushed, 0));
        }
        while let Some(entry) = self.receives.pop_front() {
            self.complete(
                Side::Receive,
                completion(&entry.request, Status::Flushed, 0),
            );
        }
    }

    fn complete(&mut self, side: Side, completion: Completion) {
        self.received += usize::from(side == Side::Receive);
        self.completions.push_back((side, completion));
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
