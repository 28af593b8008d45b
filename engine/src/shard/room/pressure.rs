//! Pressure: whether frames are short, and whether background work can do something about it.
//!
//! A shard is *exhausted* when nothing that the engine can do makes room; puts then fail instead of
//! waiting. Whatever may make room relieves it, and the next slice decides anew.

use crate::error::Error;

/// Why a record cannot be stored now.
#[derive(Debug)]
pub(in crate::shard) enum NoRoom {
    /// Background work is making room; retry.
    Wait,
    /// The engine cannot make room.
    Never(Error),
}

/// Whether background work can make room.
#[derive(Debug)]
pub(in crate::shard) struct Pressure {
    /// Requests that lack this many frames or more at once are refused: nothing that background
    /// work can do frees as many. 1 refuses all that lack any.
    pub(super) refused_from: usize,
    /// Fewer frames are free than should be, and background work found nothing to do for it. Looked
    /// at again when something happens, and when the core wakes.
    pub(super) stalled: bool,
    /// The most frames that a request needs at once and lacks, until they are there or such
    /// requests are refused; 0 is none.
    pub(super) wanted: usize,
    pub(super) removals: Removals,
}

/// Whether there is room for removals from trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Removals {
    /// None lacks any.
    Served,
    /// One lacks it, and something was done for it this often.
    Wait(u8),
    /// Nothing makes room for one.
    Refused,
}

/// Times that pages are compacted for a removal, or frames were thought to be enough, at most.
const REMOVAL_PASSES: u8 = 4;

impl Default for Pressure {
    fn default() -> Self {
        Self {
            refused_from: usize::MAX,
            stalled: false,
            wanted: 0,
            removals: Removals::Served,
        }
    }
}

impl Pressure {
    /// Notes that something has happened that may make room.
    #[inline]
    pub(in crate::shard) fn relieve(&mut self) {
        self.refused_from = usize::MAX;
        if self.removals == Removals::Refused {
            self.removals = Removals::Served;
        }
    }

    /// Notes whether more is done for a removal that waits. It is refused after some times.
    pub(super) fn pass_removal(&mut self, goes_on: bool) {
        self.removals = match self.removals {
            Removals::Wait(passes) if goes_on && passes < REMOVAL_PASSES => {
                Removals::Wait(passes + 1)
            }
            Removals::Wait(_) => Removals::Refused,
            other => other,
        };
    }

    /// Notes that there is room for a removal that waits.
    pub(super) fn serve_removals(&mut self) {
        if matches!(self.removals, Removals::Wait(_)) {
            self.removals = Removals::Served;
        }
    }

    /// Notes that a request needs this many frames at once, and lacks them. What is known of fewer
    /// frames, or of more, holds on.
    pub(in crate::shard) fn want(&mut self, frames: usize) {
        if frames > self.wanted && frames < self.refused_from {
            self.wanted = frames;
            self.stalled = false;
        }
    }

    /// Refuses requests that lack as many frames as are wanted, of which some are there.
    pub(super) fn refuse(&mut self, openable: usize) {
        self.refused_from = openable + 1;
        self.wanted = 0;
    }

    /// True while puts that need a frame are refused.
    pub(in crate::shard) fn is_exhausted(&self) -> bool {
        self.refused_from <= 1
    }

    /// True while background work knows of nothing to do about a lack of frames.
    pub(in crate::shard) fn stands(&self) -> bool {
        self.is_exhausted() || self.stalled
    }
}
