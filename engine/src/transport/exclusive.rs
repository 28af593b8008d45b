//! Exclusive use without waiting: one thread at a time has it, and one that finds it in use
//! notifies the holder.
//!
//! ```text
//! free --enter--> held --leave--> free
//!                  |  ^
//!     enter (fails)v  | leave (fails: look again)
//!                 held, notified
//! ```
//!
//! - I1: at most one thread is between a successful `enter` and its successful `leave`.
//! - I2: what a thread published before it notified the holder is seen by the holder before that
//!   leaves.

use crate::transport::atomics::{AtomicU32, Ordering};

/// A thread has it.
const HELD: u32 = 1;
/// Another thread has notified the holder since the holder looked.
const NOTIFIED: u32 = 2;

/// The state of exclusive use. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Exclusive(AtomicU32);

impl Exclusive {
    /// Enters; false if another thread has it.
    #[inline]
    pub(crate) fn try_enter(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `leave`.
        let entered = self
            .0
            .compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed);
        entered.is_ok()
    }

    /// Enters. If another thread has it, notifies that thread and returns false: it looks once more
    /// before it leaves.
    pub(crate) fn enter_or_notify(&self) -> bool {
        // ORDERING: relaxed; the exchange decides.
        let mut before = self.0.load(Ordering::Relaxed);
        loop {
            // Never notifies itself: to clear that would clear another thread's notice as well.
            let enters = before & HELD == 0;
            let after = if enters { HELD } else { before | NOTIFIED };
            // ORDERING: Release publishes what the notice is about, also where the flag is set
            // already; Acquire as in `try_enter`.
            let exchanged =
                self.0
                    .compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed);
            match exchanged {
                Ok(_) => return enters,
                Err(seen) => before = seen,
            }
        }
    }

    /// Leaves. False if another thread has notified this one, which then still has it, and looks at
    /// what was published before it leaves.
    #[inline]
    pub(crate) fn leave(&self) -> bool {
        // ORDERING: Release as above; Acquire pairs with the Release of a thread that notified.
        let left = self
            .0
            .compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed);
        if left.is_err() {
            self.0.fetch_and(!NOTIFIED, Ordering::Acquire);
        }
        left.is_ok()
    }
}

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_is_notified_by_others() {
        let exclusive = Exclusive::default();
        assert!(exclusive.try_enter());
        assert!(!exclusive.try_enter());
        assert!(!exclusive.enter_or_notify());
        assert!(!exclusive.leave(), "it was notified");
        assert!(exclusive.leave());
        assert!(exclusive.enter_or_notify());
        assert!(exclusive.leave(), "it does not notify itself");
    }
}

#[cfg(all(test, farcore_loom))]
#[allow(unsafe_code, reason = "cells whose uses the model checker watches")]
mod model {
    use super::*;
    use crate::transport::atomics::{Arc, AtomicUsize};

    /// A notice that is given while another thread enters reaches that thread's first leave.
    #[test]
    fn no_notice_is_lost() {
        loom::model(|| {
            let exclusive = Arc::new(Exclusive::default());
            let visit = |exclusive: &Exclusive| {
                if !exclusive.enter_or_notify() {
                    return None;
                }
                let left_at_once = exclusive.leave();
                while !left_at_once && !exclusive.leave() {}
                Some(left_at_once)
            };
            let other = Arc::clone(&exclusive);
            let thread = loom::thread::spawn(move || visit(&other));
            let here = visit(&exclusive);
            let visits = [here, thread.join().unwrap()];
            if visits.contains(&None) {
                assert!(visits.contains(&Some(false)), "{visits:?}");
            }
        });
    }

    /// Two threads each publish one thing and enter or notify. Each thing is taken.
    #[test]
    fn what_is_published_before_a_notice_is_seen() {
        loom::model(|| {
            let shared = Arc::new((
                Exclusive::default(),
                AtomicUsize::new(0),
                loom::cell::UnsafeCell::new(0_usize),
            ));
            let visit = |shared: &(Exclusive, AtomicUsize, loom::cell::UnsafeCell<usize>)| {
                shared.1.fetch_add(1, Ordering::Relaxed);
                if !shared.0.enter_or_notify() {
                    return;
                }
                loop {
                    let published = shared.1.load(Ordering::Relaxed);
                    shared.2.with_mut(|seen| {
                        // SAFETY: the checker reports a second user.
                        unsafe { *seen = published };
                    });
                    if shared.0.leave() {
                        return;
                    }
                }
            };
            let other = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || visit(&other));
            visit(&shared);
            thread.join().unwrap();
            shared.2.with(|seen| {
                // SAFETY: both threads have ended.
                assert_eq!(unsafe { *seen }, 2, "what was published is seen");
            });
        });
    }
}
