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
#[derive(Debug, Default)]
pub(in crate::shard) struct Pressure {
    /// Local frames are short and nothing that background work can do frees one: puts that need one
    /// are refused.
    pub(super) exhausted: bool,
    /// Fewer frames are free than should be, and background work found nothing to do for it. Looked
    /// at again when something happens, and when the core wakes.
    pub(super) stalled: bool,
    /// Frames that a request needs at once, and lacks; 0 is none.
    pub(super) wanted: usize,
}

impl Pressure {
    /// Notes that something has happened that may make room.
    #[inline]
    pub(in crate::shard) fn relieve(&mut self) {
        self.exhausted = false;
    }

    /// Notes that a request needs this many frames at once; 0 ends that.
    #[inline]
    pub(in crate::shard) fn want(&mut self, frames: usize) {
        if frames > self.wanted {
            // What made room for fewer may not for these.
            (self.exhausted, self.stalled) = (false, false);
        }
        self.wanted = frames;
    }

    /// True while puts that need a frame are refused.
    pub(in crate::shard) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// True while background work knows of nothing to do about a lack of frames.
    pub(in crate::shard) fn stands(&self) -> bool {
        self.exhausted || self.stalled
    }
}
