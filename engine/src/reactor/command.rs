//! What other threads ask of a shard as a whole, and the door they ask at.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::shard::Shortfall;
use crate::transport::wakeup::Wakeup;

/// Work that other threads ask of a shard as a whole: a request counter and one of those done.
#[derive(Debug, Default)]
pub(crate) struct Command {
    asked: AtomicU64,
    done: AtomicU64,
    /// What kept the latest one from being done in full: 0, or a [`Shortfall`].
    shortfall: AtomicU8,
}

impl Command {
    /// Asks; answers the ticket to wait for.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }
    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) >= ticket
    }
    /// What kept it from being done in full; asked after [`Command::is_done`].
    pub(crate) fn shortfall(&self) -> Option<Shortfall> {
        match self.shortfall.load(Ordering::Acquire) {
            0 => None,
            code if code == Shortfall::FarFull as u8 => Some(Shortfall::FarFull),
            _ => Some(Shortfall::Unavailable),
        }
    }
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }
    pub(crate) fn finish(&self, ticket: u64, outcome: Result<(), Shortfall>) {
        let code = outcome.err().map_or(0, |shortfall| shortfall as u8);
        self.shortfall.store(code, Ordering::Release);
        self.done.store(ticket, Ordering::Release);
    }
}

/// What a core shares with the threads around it.
#[derive(Debug, Default)]
pub(crate) struct CommandPort {
    pub(crate) wakeup: Wakeup,
    pub(crate) compact: Command,
    pub(crate) flush: Command,
    pub(crate) forget: Command,
    /// Lost keys that the shard has forgotten so far.
    keys_forgotten: AtomicU64,
}

impl CommandPort {
    /// Lost keys that the shard has forgotten so far.
    pub(crate) fn keys_forgotten(&self) -> u64 {
        // ORDERING: read after `is_done` has seen the order done, whose Acquire shows it.
        self.keys_forgotten.load(Ordering::Relaxed)
    }

    pub(crate) fn set_keys_forgotten(&self, keys: u64) {
        // ORDERING: shown by the Release of `finish`.
        self.keys_forgotten.store(keys, Ordering::Relaxed);
    }
}
