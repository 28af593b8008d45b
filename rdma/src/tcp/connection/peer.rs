//! What a connection performs for its peer.
//!
//! - I1: a region stays exposed from the beginning of an access to its end: a READ ends when its
//!   answer has left, a WRITE when its payload is complete.

#![allow(unsafe_code)] // payload is sent directly from registered memory

use super::{Connection, Payload, Side, Then, completion};
use crate::tcp::exposed::{Access, Attempt, Change, RemoteRange};
use crate::tcp::wire::{Header, Opcode, status_code};
use crate::work::Status;

/// Why the peer's next request was not performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tcp) enum Retry {
    /// It waits for other requests: retry it after a pause.
    Later,
    /// A part of it is done: retry it after others had their turn.
    NextTurn,
}

/// A READ of the peer whose answer has not left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) range: RemoteRange,
    /// The position of the answer's last byte in the stream of all output.
    pub(super) end: u64,
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
    /// Bytes of WRITEs that have arrived.
    pub write_bytes: u64,
    /// Compare-and-swaps and additions.
    pub atomics: u64,
    /// Requests refused.
    pub refused: u64,
}

fn range_of(header: &Header) -> RemoteRange {
    RemoteRange {
        key: header.key,
        offset: header.offset,
        bytes: header.bytes,
    }
}

impl Connection {
    /// What was performed for the peer since the last call. Ends the READs that have left.
    pub(in crate::tcp) fn take_served(&mut self) -> Served {
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

    pub(super) fn refuse(&mut self, sequence: u32, status: Status) {
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
    pub(super) fn perform(&mut self, header: &Header) -> Result<bool, Status> {
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
                    self.completions.push(Side::Receive, failed);
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

    /// Ends the peer's WRITE of a payload, if it is one.
    pub(super) fn end_write(&self, payload: &Payload) {
        if matches!(payload.then, Then::Written | Then::WrittenImmediate(_)) {
            self.exposed.end(range_of(&payload.header));
        }
    }
}
