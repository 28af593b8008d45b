//! A replica: its connection, what it is sent, and what it says.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcore_tuning::mutated;
use rustix::event::PollFlags;

use super::super::unsent::Unsent;
use super::backlog::Backlog;
use super::port::{NewReplica, ONLINE, ReplicaLine};
use super::window::Fills;
use crate::resp::{Arguments, Limits, Progress, parse};

/// Bytes that a replica may have sent without a whole command.
const INPUT_BYTES_MAX: usize = 16 << 10;
/// Bytes that are received at once, and that are read of a file.
const RECEIVE_BYTES: usize = 4 << 10;
const FILE_BYTES: usize = 128 << 10;
/// Bytes that one round sends from the backlog.
const ROUND_BYTES: u64 = 1 << 20;

/// How far a replica is.
#[derive(Debug)]
pub(super) enum Phase {
    /// It waits for data that are not begun yet.
    Waiting,
    /// It gets data as they are read.
    Loading,
    /// It gets data that were gathered: what is left of them.
    Gathered(File, u64),
    /// It has all data, and has not said so.
    Loaded,
    /// It gets the stream.
    Online,
}

/// Why a replica is served no more.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplicaError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it has closed the connection")]
    Closed,
    #[error("it has said nothing for {} s; raise repl-timeout if it needs longer", .0.as_secs())]
    Silent(Duration),
    #[error(
        "it is {behind} bytes of the stream behind, the most is {most}; raise the limit for replicas of client-output-buffer-limit"
    )]
    Behind { behind: u64, most: u64 },
    #[error("it does not speak the protocol of replication")]
    Malformed,
    #[error("it has all that it wanted")]
    Done,
    #[error("all data were read for it in vain: {0}")]
    NoData(String),
    #[error("the server follows another one now")]
    Relayed,
    #[error("it is to learn the identity of the stream")]
    Renamed,
}

/// A replica.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) new: NewReplica,
    pub(super) phase: Phase,
    /// The next byte of the stream that it is sent.
    pub(super) position: u64,
    /// What is replaced in its stream, until it has said that it is behind that.
    pub(super) fills: Option<Arc<Fills>>,
    /// Bytes that were not sent yet, before those of the stream.
    pub(super) unsent: Unsent,
    /// How far it has said that it is, and when it was heard last.
    pub(super) acknowledged: u64,
    pub(super) heard: Instant,
    /// When it last took bytes, or had none to take.
    took: Instant,
    input: Vec<u8>,
    arguments: Arguments,
}

impl Replica {
    pub(super) fn new(new: NewReplica, now: Instant) -> Self {
        Self {
            new,
            phase: Phase::Waiting,
            position: 0,
            fills: None,
            unsent: Unsent::default(),
            acknowledged: 0,
            heard: now,
            took: now,
            input: Vec::new(),
            arguments: Arguments::default(),
        }
    }

    /// True if its data, with what it has acknowledged, are of one place in the stream.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Online)
            && (self.fills.is_none() || mutated!("counted-though-loading"))
    }

    /// What is waited for at its socket.
    pub(super) fn interest(&self, end: u64) -> (BorrowedFd<'_>, PollFlags) {
        let has_more = match &self.phase {
            Phase::Online => self.position < end,
            Phase::Gathered(_, left) => *left > 0,
            _ => false,
        };
        let sends = has_more || !self.unsent.is_empty();
        self.new.wire.interest(true, sends)
    }

    /// As `INFO` says it.
    pub(super) fn line(&self, end: u64) -> ReplicaLine {
        let said = &self.new.said;
        let host = said.host.clone();
        ReplicaLine {
            host: host.unwrap_or_else(|| self.new.peer.ip().to_canonical().to_string()),
            port: said.port,
            state: match self.phase {
                Phase::Waiting => "wait_bgsave",
                Phase::Online if self.is_whole() => ONLINE,
                _ => "send_bulk",
            },
            offset: self.acknowledged,
            heard: self.heard,
            behind: match self.phase {
                Phase::Online => end.saturating_sub(self.acknowledged),
                _ => 0,
            },
        }
    }

    /// Receives what it says.
    pub(super) fn receive(&mut self, now: Instant) -> Result<(), ReplicaError> {
        let mut buffer = [0; RECEIVE_BYTES];
        loop {
            match self.new.wire.read(&mut buffer) {
                Ok(0) => return Err(ReplicaError::Closed),
                Ok(bytes) => {
                    self.heard = now;
                    self.input.extend_from_slice(&buffer[..bytes]);
                    self.take_input()?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_input(&mut self) -> Result<(), ReplicaError> {
        let mut taken = 0;
        loop {
            // Empty lines show that it is there.
            let empty = self.input[taken..].iter();
            taken += empty.take_while(|byte| b"\r\n".contains(byte)).count();
            if taken == self.input.len() {
                break;
            }
            let input = &self.input[taken..];
            let parsed = parse(input, &Limits::UNAUTHENTICATED, &mut self.arguments);
            match parsed {
                Ok(Progress::Complete { consumed }) => {
                    self.take_command(taken)?;
                    taken += consumed;
                    self.arguments = Arguments::default();
                }
                Ok(Progress::Incomplete { .. }) if input.len() <= INPUT_BYTES_MAX => break,
                _ => return Err(ReplicaError::Malformed),
            }
        }
        self.input.drain(..taken);
        Ok(())
    }

    fn take_command(&mut self, from: usize) -> Result<(), ReplicaError> {
        let input = &self.input[from..];
        let word = |place: usize| match place < self.arguments.len() {
            true => self.arguments.get(place, input),
            false => &[],
        };
        if !word(0).eq_ignore_ascii_case(b"replconf") || !word(1).eq_ignore_ascii_case(b"ack") {
            return Ok(());
        }
        let offset = std::str::from_utf8(word(2)).ok();
        let offset = offset.and_then(|text| text.parse::<u64>().ok());
        let offset = offset.ok_or(ReplicaError::Malformed)?;
        self.acknowledged = self.acknowledged.max(offset);
        // What it was sent and has not got, it will want again.
        if matches!(self.phase, Phase::Loaded) {
            self.phase = Phase::Online;
        }
        if (self.fills.as_ref()).is_some_and(|fills| fills.end <= self.acknowledged) {
            self.fills = None;
            if self.new.said.takes_names && self.new.said.import.is_none() {
                return Err(ReplicaError::Renamed);
            }
        }
        Ok(())
    }

    /// Sends what its socket takes now. True if it took something.
    pub(super) fn send(&mut self, backlog: &Backlog, now: Instant) -> Result<bool, ReplicaError> {
        let end = self.position.saturating_add(ROUND_BYTES);
        let mut is_busy = false;
        loop {
            // What is sealed goes first, and is not lost where nothing follows it.
            if !self.new.wire.send_sealed()? {
                return Ok(is_busy);
            }
            if self.unsent.is_empty() && !self.fill_unsent(backlog, end)? {
                self.took = now;
                return Ok(is_busy);
            }
            if !self.unsent.send(&mut self.new.wire)? {
                return Ok(is_busy);
            }
            self.took = now;
            is_busy = true;
            if !self.unsent.is_empty() {
                return Ok(is_busy);
            }
        }
    }

    /// Takes more to be sent; false if there is nothing, or it is enough for one round.
    fn fill_unsent(&mut self, backlog: &Backlog, end: u64) -> Result<bool, ReplicaError> {
        match &mut self.phase {
            Phase::Gathered(file, left) => {
                let bytes = usize::try_from(*left).unwrap_or(FILE_BYTES).min(FILE_BYTES);
                let unsent = self.unsent.end();
                unsent.resize(bytes, 0);
                file.read_exact(unsent)?;
                *left -= bytes as u64;
                if *left == 0 {
                    // What follows is known to be the stream.
                    self.phase = Phase::Online;
                }
                Ok(bytes > 0)
            }
            Phase::Online if self.new.said.wants_data_only => Err(ReplicaError::Done),
            Phase::Online if self.position < end => {
                let bytes = backlog.bytes_from(self.position);
                if bytes.is_empty() {
                    return match self.position == backlog.end() {
                        true => Ok(false),
                        false => Err(ReplicaError::Behind {
                            behind: backlog.end() - self.position,
                            most: backlog.end() - backlog.start(),
                        }),
                    };
                }
                match self
                    .fills
                    .as_ref()
                    .filter(|fills| fills.end > self.position)
                {
                    Some(fills) => fills.replace(self.position, bytes, self.unsent.end()),
                    None => self.unsent.end().extend_from_slice(bytes),
                }
                self.position += bytes.len() as u64;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// # Errors
    /// It is silent, or takes nothing.
    pub(super) fn check(&self, limit: Duration, now: Instant) -> Result<(), ReplicaError> {
        let since = |then| now.saturating_duration_since(then);
        let silent = match self.phase {
            // It says nothing while it loads, but takes what it is sent.
            Phase::Waiting | Phase::Loading | Phase::Gathered(..) => since(self.took),
            // It may have said nothing until it had all.
            Phase::Loaded => since(self.heard).min(since(self.took)),
            Phase::Online => since(self.heard),
        };
        match silent > limit {
            true => Err(ReplicaError::Silent(silent)),
            false => Ok(()),
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // The core that has its connection learns of it.
        self.new.wire.close();
    }
}
