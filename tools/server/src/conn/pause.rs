//! The pause of all clients (`CLIENT PAUSE`): commands wait until it ends.
//!
//! - I1: a command that has begun, or that belongs to a transaction or script that has, goes on.
//!   Those that write are waited for (`turn/draining.rs`) before `CLIENT PAUSE` replies.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The pause of a server's clients.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    is_on: AtomicBool,
    /// Commands that do not write wait, too.
    is_of_all: AtomicBool,
    /// When it ends, in milliseconds since 1970.
    end_ms: AtomicU64,
    /// Clients that wait.
    pub(crate) waiting: AtomicUsize,
    /// Held while it is changed.
    changing: Mutex<()>,
}

impl Pause {
    /// True while clients are paused, or until a core has seen that the pause is over.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        // ORDERING: relaxed; a command that another client has sent after the reply to `CLIENT
        // PAUSE` is received after the store.
        self.is_on.load(Ordering::Relaxed)
    }

    /// When it ends, in milliseconds since 1970; `None` while there is none.
    pub(crate) fn end_ms(&self) -> Option<u64> {
        self.is_on().then(|| self.end_ms.load(Ordering::Relaxed))
    }

    /// True if a command waits now.
    pub(crate) fn holds(&self, writes: bool, now_ms: u64) -> bool {
        let is_held = writes || self.is_of_all.load(Ordering::Relaxed);
        self.is_on() && is_held && now_ms < self.end_ms.load(Ordering::Relaxed)
    }

    /// Begins a pause, or makes the present one longer and of more commands, as Redis. Returns
    /// when the present one was to end, and whether it was of all commands; `None` if there was
    /// none.
    pub(crate) fn begin(&self, end_ms: u64, is_of_all: bool, now_ms: u64) -> Option<(u64, bool)> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.end_ms().filter(|end_ms| now_ms < *end_ms);
        let present = present.map(|end_ms| (end_ms, self.is_of_all.load(Ordering::Relaxed)));
        if present.is_some() {
            self.end_ms.fetch_max(end_ms, Ordering::Relaxed);
            self.is_of_all.fetch_or(is_of_all, Ordering::Relaxed);
        } else {
            self.end_ms.store(end_ms, Ordering::Relaxed);
            self.is_of_all.store(is_of_all, Ordering::Relaxed);
        }
        self.is_on.store(true, Ordering::SeqCst);
        present
    }

    /// Has the pause be as it was before [`Pause::begin`].
    pub(crate) fn restore(&self, before: Option<(u64, bool)>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        match before {
            Some((end_ms, is_of_all)) => {
                self.end_ms.store(end_ms, Ordering::Relaxed);
                self.is_of_all.store(is_of_all, Ordering::Relaxed);
            }
            None => self.is_on.store(false, Ordering::SeqCst),
        }
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_on.store(false, Ordering::SeqCst);
    }

    /// Ends it if its time is over.
    pub(crate) fn end_if_over(&self, now_ms: u64) {
        if self.end_ms().is_some_and(|end_ms| end_ms <= now_ms) {
            let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            if self.end_ms().is_some_and(|end_ms| end_ms <= now_ms) {
                self.is_on.store(false, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_while_it_lasts_and_ends_in_time() {
        let pause = Pause::default();
        pause.begin(100, false, 0);
        assert!(pause.holds(true, 99) && !pause.holds(false, 99) && !pause.holds(true, 100));
        assert_eq!(pause.begin(50, true, 10), Some((100, false)));
        assert!(pause.holds(false, 99) && pause.end_ms() == Some(100));
        let before = pause.begin(900, true, 20);
        pause.restore(before);
        assert!(pause.holds(false, 99) && pause.end_ms() == Some(100));
        pause.end_if_over(99);
        assert!(pause.is_on());
        pause.end_if_over(100);
        assert!(!pause.is_on());
        let before = pause.begin(300, false, 200);
        assert!(!pause.holds(false, 250));
        pause.restore(before);
        assert!(!pause.is_on());
        pause.begin(500, true, 400);
        pause.end();
        assert!(!pause.holds(true, 450));
    }
}
