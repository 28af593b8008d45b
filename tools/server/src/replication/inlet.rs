//! The way of a source's commands to the data: a connection as a client's, whose other end a core
//! serves.
//!
//! Its other end is in the table of the core's connections, so `CLIENT LIST` shows it, and
//! `CLIENT KILL TYPE master` ends it.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use super::error::LinkError;
use super::inner;
use super::replies::Replies;
use super::source::write_command;
use super::unsent::Unsent;
use crate::cores::message::ArrivalKind;
use crate::cores::shared::Shared;

/// Bytes and commands that wait, from which no more is taken from the source.
const UNSENT_BYTES_MAX: usize = 256 << 10;
const UNDER_WAY_MAX: u64 = 4096;
/// Bytes of replies that are received at once.
const RECEIVE_BYTES: usize = 16 << 10;

/// Commands on their way to the data.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    unsent: Unsent,
    /// How many commands there were.
    commands: u64,
}

impl Outgoing {
    /// Adds a command.
    pub(super) fn add(&mut self, words: &[&[u8]]) {
        write_command(words, self.unsent.end());
        self.commands += 1;
    }

    /// Adds a command as a source has sent it.
    pub(super) fn add_raw(&mut self, bytes: &[u8]) {
        self.unsent.end().extend_from_slice(bytes);
        self.commands += 1;
    }

    /// How many commands there were.
    pub(super) fn commands(&self) -> u64 {
        self.commands
    }

    /// Bytes that wait.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.unsent.len()
    }

    #[cfg(test)]
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.unsent.end())
    }
}

/// The connection of a source's commands.
#[derive(Debug)]
pub(super) struct Inlet {
    socket: UnixStream,
    pub(super) out: Outgoing,
    replies: Replies,
    /// Commands that were replied to.
    answered: u64,
    /// Errors, and the numbers of their commands, from 1 on.
    failed: Vec<(u64, String)>,
}

impl Inlet {
    /// A new one.
    pub(super) fn open(shared: &Shared, peer: SocketAddr) -> io::Result<Self> {
        inner::connect(shared, ArrivalKind::Source, peer).map(Self::new)
    }

    /// That of a socket whose other end a core serves.
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            out: Outgoing::default(),
            replies: Replies::default(),
            answered: 0,
            failed: Vec::new(),
        }
    }

    /// Commands that were replied to.
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    /// True if all were.
    pub(super) fn is_idle(&self) -> bool {
        self.answered == self.out.commands
    }

    /// True if more must wait.
    pub(super) fn is_full(&self) -> bool {
        self.out.waiting_bytes() >= UNSENT_BYTES_MAX
            || self.out.commands - self.answered >= UNDER_WAY_MAX
    }

    /// Sends what the socket takes, and takes the replies that are there.
    pub(super) fn exchange(&mut self) -> Result<(), LinkError> {
        let sent = self.out.unsent.send(&mut self.socket);
        sent.map_err(|_| LinkError::Inlet)?;
        let mut buffer = [0; RECEIVE_BYTES];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(LinkError::Inlet),
                Ok(bytes) => {
                    let (answered, failed) = (&mut self.answered, &mut self.failed);
                    let taken = self.replies.take(&buffer[..bytes], |error| {
                        *answered += 1;
                        failed.extend(error.map(|error| (*answered, error)));
                    });
                    taken.map_err(|_| LinkError::Inlet)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(LinkError::Inlet),
            }
        }
    }

    /// Takes the errors that came.
    pub(super) fn take_failed(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.failed)
    }

    /// What is waited for at its socket.
    pub(super) fn interest(&self) -> (BorrowedFd<'_>, PollFlags) {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.out.waiting_bytes() > 0);
        (self.socket.as_fd(), flags)
    }
}
