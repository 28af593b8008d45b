//! Commands: work for a whole shard (compact, flush, forget lost), and the port where other threads
//! leave them.
//!
//! A command is a pair of counters: requests made and requests done. Any thread requests; only the
//! core finishes. The port also holds the shard's wakeup.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::feed_port::FeedPort;
use super::journal_port::JournalPort;
use crate::shard::Shortfall;
use crate::transport::wakeup::Wakeup;

/// A command to a whole shard: a counter of requests and a counter of those done.
#[derive(Debug, Default)]
pub(crate) struct Command {
    requested: AtomicU64,
    done: AtomicU64,
    /// Why the latest one was not done in full: 0, or a [`Shortfall`].
    shortfall: AtomicU8,
}

impl Command {
    /// Requests the command; returns the ticket to wait for.
    pub(crate) fn request(&self) -> u64 {
        self.requested.fetch_add(1, Ordering::AcqRel) + 1
    }
    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) >= ticket
    }
    /// Why it was not done in full; valid after [`Command::is_done`] returned true.
    pub(crate) fn shortfall(&self) -> Option<Shortfall> {
        match self.shortfall.load(Ordering::Acquire) {
            0 => None,
            code if code == Shortfall::FarFull as u8 => Some(Shortfall::FarFull),
            _ => Some(Shortfall::Unavailable),
        }
    }
    pub(crate) fn requested(&self) -> u64 {
        self.requested.load(Ordering::Acquire)
    }
    pub(crate) fn finish(&self, ticket: u64, outcome: Result<(), Shortfall>) {
        let code = outcome.err().map_or(0, |shortfall| shortfall as u8);
        self.shortfall.store(code, Ordering::Release);
        self.done.store(ticket, Ordering::Release);
    }
}

/// Where other threads leave commands for a core, and its wakeup.
#[derive(Debug, Default)]
pub(crate) struct CommandPort {
    pub(crate) wakeup: Wakeup,
    pub(crate) compact: Command,
    pub(crate) flush: Command,
    pub(crate) forget: Command,
    pub(crate) journal: Arc<JournalPort>,
    pub(crate) feed: FeedPort,
    /// Lost keys that the shard has forgotten so far.
    keys_forgotten: AtomicU64,
}

impl CommandPort {
    /// Lost keys that the shard has forgotten so far.
    pub(crate) fn keys_forgotten(&self) -> u64 {
        // ORDERING: read after `is_done` returned true, whose Acquire makes it visible.
        self.keys_forgotten.load(Ordering::Relaxed)
    }

    pub(crate) fn set_keys_forgotten(&self, keys: u64) {
        // ORDERING: made visible by the Release of `finish`.
        self.keys_forgotten.store(keys, Ordering::Relaxed);
    }
}
