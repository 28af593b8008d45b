//! How lanes tell a shard that they have news, and wake it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atomic_waker::AtomicWaker;

/// A bit for each lane with news, and whether the shard sleeps.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    dirty: [AtomicU64; 4],
    asleep: AtomicBool,
    pub(crate) waker: AtomicWaker,
}

impl Bell {
    /// A lane has news.
    #[inline]
    pub(crate) fn ring(&self, lane: u8) {
        // ORDERING: SeqCst on both words: either the shard sees the mark before it sleeps, or this sees it asleep.
        self.dirty[usize::from(lane) / 64].fetch_or(1 << (lane % 64), Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the shard if it sleeps.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Takes the marks of 64 lanes.
    #[inline]
    pub(crate) fn take(&self, word: usize) -> u64 {
        if self.dirty[word].load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.dirty[word].swap(0, Ordering::SeqCst)
    }

    /// Says that the shard is about to sleep, or is awake; true if a lane has news.
    pub(crate) fn set_asleep(&self, asleep: bool) -> bool {
        self.asleep.store(asleep, Ordering::SeqCst);
        self.dirty
            .iter()
            .any(|word| word.load(Ordering::SeqCst) != 0)
    }
}
