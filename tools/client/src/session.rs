//! One connection to the server, from its handshake to its end.
//!
//! ```text
//! commands -> small (messages), large (upload slots) -> posted -> flights -> answers -> outcomes
//!                                                       lent values: READ, then DONE
//! ```
//!
//! - I1: a message leaves only with a credit, and a large request only with an upload slot.
//! - I2: whatever the server sends is checked: a violation ends the connection, not the client.

mod answers;
mod handshake;
mod issue;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use farcore_protocol::handshake::Welcome;
use farcore_protocol::{CreditError, Credits, Kind, Status, WireError};
use farcore_rdma::{
    Completion, PeerEndpoint, PostError, Status as WorkStatus, Work, WorkId, WorkRequest,
};

use crate::buffers::{MemoryError, Messages, Pool};
use crate::command::{Command, Reply, name};
use crate::error::Error;
use crate::figures::Counters;
use crate::flights::{Flight, Flights};

/// Completions that are polled at once.
const COMPLETIONS: usize = 64;

/// How long acknowledgements wait for a message that takes them along, in nanoseconds.
const ACKNOWLEDGE_NS: u64 = 500_000;
/// The pause before a request that found the server busy is sent again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("{0}")]
    Memory(#[from] MemoryError),
    #[error("the connection was lost: {0}")]
    Lost(WorkStatus),
    #[error("the connection was lost")]
    Down,
    #[error("the server violates the protocol: {0}")]
    Wire(#[from] WireError),
    #[error("the server violates the protocol: {0}")]
    Credits(#[from] CreditError),
    #[error("the server violates the protocol: {0}")]
    Violation(&'static str),
}

/// What a completed work request was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Receive(u16),
    Send(u16),
    /// An upload was written; its buffer is free with the answer.
    Upload,
    /// A lent value was read into a buffer.
    Read(u16),
}

impl Purpose {
    fn id(self) -> WorkId {
        let (kind, number) = match self {
            Self::Receive(number) => (0, number),
            Self::Send(number) => (1, number),
            Self::Upload => (2, 0),
            Self::Read(number) => (3, number),
        };
        WorkId(kind << 16 | u64::from(number))
    }

    fn of(id: WorkId) -> Self {
        let number = u16::try_from(id.0 & 0xFFFF).unwrap_or(0);
        match id.0 >> 16 {
            0 => Self::Receive(number),
            1 => Self::Send(number),
            2 => Self::Upload,
            _ => Self::Read(number),
        }
    }
}

/// Commands that wait to be sent, in order.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Those that fit a message.
    pub(crate) small: VecDeque<Command>,
    /// Those that need an upload slot.
    pub(crate) large: VecDeque<Command>,
    /// Those that found the server busy.
    paused: Vec<Command>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty() && self.paused.is_empty()
    }

    pub(crate) fn push(&mut self, command: Command) {
        if command.not_before.is_some() {
            self.paused.push(command);
        } else {
            self.small.push_back(command);
        }
    }

    /// Sends those again that have paused.
    fn resume(&mut self) {
        if self.paused.is_empty() {
            return;
        }
        let now = Instant::now();
        let over = |command: &mut Command| command.not_before.is_none_or(|at| at <= now);
        for mut command in self.paused.extract_if(.., over) {
            command.not_before = None;
            self.small.push_back(command);
        }
    }

    /// Ends all: the client is closed.
    pub(crate) fn end_all(&mut self) {
        let waiting = self.small.drain(..).chain(self.large.drain(..));
        for command in waiting.chain(self.paused.drain(..)) {
            command.end(Err(Error::Closed), &mut Vec::new());
        }
    }

    /// Ends those that have waited too long.
    pub(crate) fn expire(&mut self, now: Instant, limit: Duration) {
        let mut late = Vec::new();
        let is_late = |command: &mut Command| command.deadline <= now;
        for queue in [&mut self.small, &mut self.large] {
            if queue.iter().any(|command| command.deadline <= now) {
                let (ended, open): (Vec<Command>, Vec<Command>) = std::mem::take(queue)
                    .into_iter()
                    .partition(|command| command.deadline <= now);
                late.extend(ended);
                *queue = open.into();
            }
        }
        late.extend(self.paused.extract_if(.., is_late));
        for command in late {
            let error = Error::TimedOut {
                operation: command.name(),
                limit,
                may_be_done: false,
            };
            command.end(Err(error), &mut Vec::new());
        }
    }
}

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Session {
    endpoint: PeerEndpoint,
    messages: Messages,
    credits: Credits,
    welcome: Welcome,
    uploads: Pool,
    reads: Pool,
    landings: Pool,
    flights: Flights,
    /// Lent values that wait for a buffer to be read into.
    waiting_reads: VecDeque<u32>,
    /// The request whose value is read into a buffer.
    reading: Vec<Option<u32>>,
    /// The server's slots that are to be returned.
    done: Vec<u16>,
    /// A request for longer slots is under way; they were refused.
    is_growing: bool,
    may_not_grow: bool,
    /// More slots were requested once.
    has_added: bool,
    /// Values that are sent in parts, by the ids of their requests.
    in_parts: Vec<u32>,
    /// A received message, and a value that was read.
    message: Vec<u8>,
    value: Vec<u8>,
    /// Something was posted that is not a receive.
    is_touched: bool,
    /// When acknowledgements must leave that wait for a message.
    acknowledge_ns: Option<u64>,
    /// Further commands that outcomes gave.
    more: Vec<Command>,
    limit: Duration,
}

impl Session {
    fn post(
        &mut self,
        purpose: Purpose,
        work: Work,
        counters: &Counters,
    ) -> Result<(), SessionError> {
        if !matches!(purpose, Purpose::Receive(_)) {
            counters.work_requests.add(1);
            self.is_touched = true;
        }
        let request = WorkRequest {
            id: purpose.id(),
            work,
            signalled: true,
        };
        self.endpoint.post(request).map_err(|error| match error {
            PostError::Invalid { reason, .. } => SessionError::Violation(reason),
            PostError::Full(_) | PostError::Down(_) => SessionError::Down,
        })
    }

    fn post_receive(&mut self, number: u16, counters: &Counters) -> Result<(), SessionError> {
        let local = self.messages.receive(number);
        self.post(Purpose::Receive(number), Work::Receive { local }, counters)
    }

    /// Sends what waits as far as it may, and takes what has come. True if anything happened.
    pub(crate) fn turn(
        &mut self,
        backlog: &mut Backlog,
        now_ns: u64,
        counters: &Counters,
    ) -> Result<bool, SessionError> {
        let mut is_busy = self.poll(now_ns, counters)?;
        for command in self.more.drain(..) {
            backlog.push(command);
        }
        is_busy |= self.issue_all(backlog, counters)?;
        self.return_slots(counters)?;
        self.return_credits(counters)?;
        self.flush(now_ns);
        Ok(is_busy)
    }

    /// Sends what was posted. Acknowledgements alone wait a little for a message that takes them
    /// along.
    fn flush(&mut self, now_ns: u64) {
        if std::mem::take(&mut self.is_touched) {
            self.endpoint.ring(now_ns);
            self.endpoint.flush();
            self.acknowledge_ns = None;
        } else if self.endpoint.has_output() {
            let due = *self.acknowledge_ns.get_or_insert(now_ns + ACKNOWLEDGE_NS);
            if now_ns >= due {
                self.endpoint.flush();
                self.acknowledge_ns = None;
            }
        }
    }

    /// Whether acknowledgements wait to be sent.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.acknowledge_ns.is_some()
    }

    fn poll(&mut self, now_ns: u64, counters: &Counters) -> Result<bool, SessionError> {
        let mut completions = [Completion::NONE; COMPLETIONS];
        let mut is_busy = false;
        loop {
            let count = self.endpoint.poll(now_ns, &mut completions);
            for completion in &completions[..count] {
                self.complete(completion, counters)?;
            }
            is_busy |= count > 0;
            if count < COMPLETIONS {
                break;
            }
        }
        if self.endpoint.is_up() {
            Ok(is_busy)
        } else {
            Err(SessionError::Down)
        }
    }

    fn complete(
        &mut self,
        completion: &Completion,
        counters: &Counters,
    ) -> Result<(), SessionError> {
        if completion.status != WorkStatus::Success {
            return Err(SessionError::Lost(completion.status));
        }
        match Purpose::of(completion.id) {
            Purpose::Receive(number) => {
                let bytes = completion.bytes as usize;
                self.receive(number, bytes, completion.immediate, counters)
            }
            Purpose::Send(number) => {
                self.messages.free_send(number);
                Ok(())
            }
            Purpose::Upload => Ok(()),
            Purpose::Read(buffer) => self.was_read(buffer, counters),
        }
    }

    /// What to wait for beside the commands: readable descriptors, the first also writable.
    pub(crate) fn descriptors(&self) -> ([Option<BorrowedFd<'_>>; 2], bool) {
        // Acknowledgements that wait do not wait for the socket.
        let writes = self.endpoint.has_output() && !self.owes_acknowledgement();
        (self.endpoint.descriptors(), writes)
    }

    /// Has a device signal the next completion. False if something came meanwhile.
    pub(crate) fn arm(&mut self, now_ns: u64, counters: &Counters) -> Result<bool, SessionError> {
        if !self.endpoint.is_device() {
            return Ok(true);
        }
        self.endpoint.arm();
        Ok(!self.poll(now_ns, counters)?)
    }

    /// Takes a device's signals.
    pub(crate) fn acknowledge(&mut self) {
        self.endpoint.acknowledge();
    }

    /// Whether a caller waits for an answer.
    pub(crate) fn has_callers(&self) -> bool {
        self.flights.len() > 0 && self.flights.iter().any(|flight| flight.command.is_some())
    }

    /// Ends requests that were not answered in time. What they use stays with the server until it
    /// answers.
    pub(crate) fn expire(&mut self, now: Instant) {
        for flight in self.flights.iter_mut() {
            let is_late = |command: &mut Command| command.deadline <= now;
            if let Some(mut command) = flight.command.take_if(is_late) {
                if flight.sent.is_some() {
                    flight.orphan = std::mem::take(&mut command.value);
                }
                let error = Error::TimedOut {
                    operation: command.name(),
                    limit: self.limit,
                    may_be_done: !command.is_repeatable,
                };
                command.end(Err(error), &mut self.more);
            }
        }
    }

    /// Ends the connection: requests that change nothing wait for the next one.
    pub(crate) fn end(mut self, reason: &str, backlog: &mut Backlog) {
        for flight in self.flights.drain() {
            let Some(mut command) = flight.command else {
                continue;
            };
            if command.is_repeatable {
                command.found.clear();
                command.header.offset = 0;
                command.header.version = 0;
                backlog.push(command);
            } else {
                let error = Error::UnknownOutcome {
                    operation: command.name(),
                    reason: reason.to_owned(),
                };
                command.end(Err(error), &mut self.more);
            }
        }
        for command in self.more.drain(..) {
            backlog.push(command);
        }
    }

    /// Bytes of the longest message that the server receives.
    fn message_bytes(&self) -> usize {
        let server = usize::try_from(self.welcome.message_bytes).unwrap_or(usize::MAX);
        server.min(self.messages.bytes())
    }

    /// Ends a request with its answer.
    fn finish(&mut self, id: u32, mut reply: Reply) {
        let Some(flight) = self.flights.remove(id) else {
            return;
        };
        self.release(&flight);
        let Some(mut command) = flight.command else {
            return;
        };
        if reply.header.status == Status::Busy {
            // Nothing was done: it is tried again until its time is up.
            command.found.clear();
            command.not_before = Some(Instant::now() + BUSY_PAUSE);
            return self.more.push(command);
        }
        if reply.header.status.code() < Status::VersionMismatch.code() {
            let error = Error::Server {
                operation: name(flight.kind),
                status: reply.header.status,
                reason: String::from_utf8_lossy(&reply.value).into_owned(),
            };
            return command.end(Err(error), &mut self.more);
        }
        if flight.kind == Kind::Get {
            reply.value = std::mem::take(&mut command.found);
        }
        command.end(Ok(reply), &mut self.more);
    }

    fn release(&mut self, flight: &Flight) {
        for &upload in &flight.uploads {
            self.uploads.free(upload);
        }
        if let Some(landing) = flight.landing {
            self.landings.free(landing);
        }
    }
}
