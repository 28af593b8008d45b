//! A thread that waits: how it is woken, whether it is parked, or asleep on descriptors.
//!
//! - I1: a waker sets the flag before it looks whether the thread sleeps, and the thread announces
//!   its sleep before it looks at the flag. Both are sequentially consistent, so a wake is seen or
//!   signalled.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::Duration;

use farcore_rdma::Readiness;
use rustix::event::{EventfdFlags, eventfd};

use crate::lane::wait_for;

/// A thread that waits.
#[derive(Debug)]
pub(crate) struct Caller {
    thread: Thread,
    is_woken: AtomicBool,
    sleeps: AtomicBool,
    /// The process that has made it, and whether another one has used it since: a forked child,
    /// which shares the event with its parent, and would take its wakes.
    process: u32,
    is_inherited: AtomicBool,
    /// Ends a sleep. Without one, if no descriptor was left, sleeps end by their limit.
    event: Option<OwnedFd>,
}

thread_local! {
    /// The thread's caller, while no call uses it.
    static SPARE: Cell<Option<Arc<Caller>>> = const { Cell::new(None) };
}

/// A caller that returns to its thread.
pub(crate) struct Borrowed(Option<Arc<Caller>>);

impl Borrowed {
    pub(crate) fn get(&self) -> &Arc<Caller> {
        self.0.as_ref().expect("it is taken by the drop only")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let own = self
            .0
            .take()
            .filter(|caller| !caller.is_inherited.load(Ordering::Relaxed));
        let _ = SPARE.try_with(|spare| spare.set(own));
    }
}

/// The longest sleep of a caller without an event.
const BLIND: Duration = Duration::from_millis(1);

impl Caller {
    /// One for the calling thread.
    pub(crate) fn new() -> Arc<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Arc::new(Self {
            thread: std::thread::current(),
            is_woken: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            process: std::process::id(),
            is_inherited: AtomicBool::new(false),
            event: eventfd(0, flags).ok(),
        })
    }

    /// The calling thread's own. A call inside another one gets a new one.
    pub(crate) fn of_this_thread() -> Borrowed {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        Borrowed(Some(spare.unwrap_or_else(Self::new)))
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    pub(crate) fn take_woken(&self) -> bool {
        self.is_woken.swap(false, Ordering::SeqCst)
    }

    /// Waits until the thread is unparked.
    pub(crate) fn park(&self) {
        if !self.is_woken() {
            std::thread::park();
        }
    }

    pub(crate) fn unpark(&self) {
        self.thread.unpark();
    }

    /// Waits for descriptors, until the thread is woken.
    pub(crate) fn sleep(&self, waits: &[Readiness], limit: Option<Duration>) {
        if self.process != std::process::id() {
            self.is_inherited.store(true, Ordering::Relaxed);
        }
        let own = |_: &&OwnedFd| !self.is_inherited.load(Ordering::Relaxed);
        let Some(event) = self.event.as_ref().filter(own) else {
            std::thread::sleep(limit.map_or(BLIND, |limit| limit.min(BLIND)));
            return;
        };
        self.sleeps.store(true, Ordering::SeqCst);
        if !self.is_woken() {
            wait_for(waits, event.as_fd(), limit);
        }
        self.sleeps.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(event, &mut [0; 8]);
    }

    /// Whether the caller is of the calling thread.
    pub(crate) fn is_here(&self) -> bool {
        self.thread.id() == std::thread::current().id()
    }

    /// Has a sleeping thread look again at what it waits for.
    pub(crate) fn nudge(&self) {
        if self.sleeps.load(Ordering::SeqCst) {
            self.signal();
        }
    }

    fn signal(&self) {
        if let Some(event) = &self.event {
            #[expect(
                clippy::host_endian_bytes,
                reason = "the kernel reads a number of this host"
            )]
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// Wakes the thread, from its sleep or from being parked.
    pub(crate) fn wake_now(&self) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.nudge();
        self.thread.unpark();
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.wake_now();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_replaces_the_caller_of_its_parent() {
        let mut caller = Caller::new();
        Arc::get_mut(&mut caller).expect("it is alone").process = 0;
        SPARE.set(Some(Arc::clone(&caller)));
        let borrowed = Caller::of_this_thread();
        assert!(Arc::ptr_eq(borrowed.get(), &caller));
        borrowed.get().sleep(&[], Some(Duration::ZERO));
        drop(borrowed);
        let own = Caller::of_this_thread();
        assert!(!Arc::ptr_eq(own.get(), &caller));
        assert_eq!(own.get().process, std::process::id());
    }
}
