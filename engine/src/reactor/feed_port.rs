//! What a core passes on to the reader of a feed, and how the reader starts and ends that.
//!
//! ```text
//! shard: notes --whole turns--> chunk -> reader
//! ```
//!
//! - F1: what a change has noted is counted before the change is answered to another core, and at
//!   the end of the turn that has made it. Who has taken as many bytes has it.
//! - F2: chunks that wait have about [`WAITING_MAX`] bytes at most. Beyond that the notes stay at
//!   the shard, and once these are many it accepts no changes until the reader has taken some.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crossbeam_queue::{ArrayQueue, SegQueue};

/// Bytes of chunks that wait.
const WAITING_MAX: usize = 4 << 20;
/// Buffers that come back, and their bytes.
const SPARES: usize = 4;
const SPARE_BYTES: usize = 256 << 10;

/// The port of a core's feed.
#[derive(Debug)]
pub(crate) struct FeedPort {
    /// A new number for each start and each end: feeds that are wanted have odd ones.
    wanted: AtomicU64,
    /// The one that the core has seen.
    seen: AtomicU64,
    /// Bytes that were noted since the feed began.
    noted: AtomicU64,
    chunks: SegQueue<Vec<u8>>,
    waiting: AtomicUsize,
    spares: ArrayQueue<Vec<u8>>,
    /// The core has notes for which there was no room.
    is_behind: AtomicBool,
    /// The reader wants to be woken.
    is_awaited: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Default for FeedPort {
    fn default() -> Self {
        Self {
            wanted: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            chunks: SegQueue::new(),
            waiting: AtomicUsize::new(0),
            spares: ArrayQueue::new(SPARES),
            is_behind: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            waker: Mutex::default(),
        }
    }
}

impl FeedPort {
    /// Starts or ends the feed, under a number that is odd or even. The core must be woken.
    pub(crate) fn want(&self, number: u64, waker: Option<Waker>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
        self.wanted.store(number, Ordering::Release);
    }

    /// True once the core has started or ended the feed of a number.
    pub(crate) fn has_seen(&self, number: u64) -> bool {
        self.seen.load(Ordering::Acquire) == number
    }

    /// Bytes that were noted since the feed began.
    pub(crate) fn noted(&self) -> u64 {
        self.noted.load(Ordering::Acquire)
    }

    /// Counts bytes that were noted since the feed began.
    pub(super) fn count(&self, noted: u64) {
        self.noted.store(noted, Ordering::Release);
    }

    /// The number that the core has not seen yet.
    #[inline]
    pub(super) fn news(&self) -> Option<u64> {
        // ORDERING: the core looks again in its next turn, and is woken after a change.
        let wanted = self.wanted.load(Ordering::Relaxed);
        (wanted != self.seen.load(Ordering::Relaxed)).then_some(wanted)
    }

    /// Notes that the core has seen a number; nothing of the feed before is left.
    pub(super) fn note_seen(&self, number: u64) {
        while self.chunks.pop().is_some() {}
        // ORDERING: relaxed; the number's release makes them visible.
        self.waiting.store(0, Ordering::Relaxed);
        self.is_behind.store(false, Ordering::Relaxed);
        self.noted.store(0, Ordering::Relaxed);
        self.seen.store(number, Ordering::Release);
    }

    /// True if there is room for another chunk. Else the reader wakes the core once there is.
    pub(super) fn has_room(&self) -> bool {
        if self.waiting.load(Ordering::Relaxed) < WAITING_MAX {
            return true;
        }
        // ORDERING: SeqCst, as the reader's: one of both sees the other's store.
        self.is_behind.store(true, Ordering::SeqCst);
        self.waiting.load(Ordering::SeqCst) < WAITING_MAX
    }

    /// An empty buffer.
    pub(super) fn spare(&self) -> Vec<u8> {
        self.spares.pop().unwrap_or_default()
    }

    /// Passes a chunk on.
    pub(super) fn pass(&self, chunk: Vec<u8>) {
        self.waiting.fetch_add(chunk.len(), Ordering::SeqCst);
        self.chunks.push(chunk);
        if self.is_awaited.swap(false, Ordering::SeqCst) {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            waker.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Takes the next chunk, and says whether the core must be woken.
    pub(crate) fn take(&self) -> Option<(Vec<u8>, bool)> {
        let chunk = self.chunks.pop()?;
        self.waiting.fetch_sub(chunk.len(), Ordering::SeqCst);
        Some((chunk, self.is_behind.swap(false, Ordering::SeqCst)))
    }

    /// Gives the buffer of a chunk back.
    pub(crate) fn give_back(&self, mut chunk: Vec<u8>) {
        chunk.clear();
        if chunk.capacity() <= SPARE_BYTES {
            let _ = self.spares.push(chunk);
        }
    }

    /// Has the reader woken by the next chunk. False if one is there.
    pub(crate) fn await_chunk(&self) -> bool {
        // ORDERING: SeqCst, as the core's: either this sees the chunk, or the core sees this.
        self.is_awaited.store(true, Ordering::SeqCst);
        self.waiting.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_a_bound_and_wake_who_waits() {
        let port = FeedPort::default();
        port.want(1, Some(Waker::noop().clone()));
        assert_eq!(port.news(), Some(1));
        port.note_seen(1);
        assert!(port.has_seen(1) && port.news().is_none());
        port.count(WAITING_MAX as u64);
        assert_eq!(port.noted(), WAITING_MAX as u64);
        assert!(port.await_chunk() && port.has_room());
        port.pass(vec![1; WAITING_MAX]);
        assert!(!port.await_chunk() && !port.has_room());
        let (chunk, is_behind) = port.take().expect("it was passed on");
        assert!(is_behind && port.has_room() && port.take().is_none());
        port.give_back(chunk);
        assert!(port.spare().capacity() <= SPARE_BYTES);
        port.pass(vec![2]);
        port.want(2, None);
        port.note_seen(2);
        assert!(
            port.take().is_none() && port.noted() == 0,
            "what was before is gone"
        );
    }
}
