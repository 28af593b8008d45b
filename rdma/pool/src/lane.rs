//! A lane: one connection to each node, and the threads that drive it.
//!
//! A thread that waits for its own request drives the lane: it polls the endpoint for all. So a
//! blocking call takes no turn through another thread. Others that wait on the same lane park. The
//! lane's own thread drives it while tasks wait that no thread blocks for.
//!
//! ```text
//! a thread waits --no driver--> it drives until its request ends --> passes the role to one parked
//!                --a driver---> it parks until its request ends, or until the role is passed to it
//! a task waits   --no driver--> the lane's thread drives until nothing is in flight, or one parks
//! ```
//!
//! - I1: at most one thread drives. The role changes under its lock only.
//! - I2: while a request is in flight that is waited for, a thread drives, or is being woken to:
//!   the role is given up after a look at what is in flight, under the lock, and a task looks at
//!   the role after it has posted.
//! - I3: a thread that returns leaves the list of those parked, so the role is passed to none that
//!   has gone.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use farcore_rdma::{Endpoint, Initiator, Readiness, SharedEndpoint};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::caller::Caller;

/// The longest sleep while requests are in flight: the endpoint notices a silent node when polled.
const SLEEP: Duration = Duration::from_millis(5);
/// The sleep between two polls of an endpoint that signals nothing.
const NAP: Duration = Duration::from_micros(50);

#[derive(Debug, Default)]
struct Role {
    driver: Option<Arc<Caller>>,
    parked: VecDeque<Arc<Caller>>,
}

thread_local! {
    /// The lane of the operation that the thread performs; 0 is none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Numbers the lanes of all pools of this process.
static NEXT_LANE: AtomicU64 = AtomicU64::new(1);

/// Makes a lane that of all requests which the thread makes meanwhile.
pub(crate) struct Current(u64);

impl Drop for Current {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|current| current.set(self.0));
    }
}

/// One connection to each node.
#[derive(Debug)]
pub(crate) struct Lane {
    number: u64,
    initiator: Initiator<SharedEndpoint>,
    role: Mutex<Role>,
    /// The lane's own thread.
    keeper: Arc<Caller>,
    is_closed: AtomicBool,
    spin: Duration,
}

fn is_driver(role: &Role, caller: &Arc<Caller>) -> bool {
    let driver = role.driver.as_ref();
    driver.is_some_and(|driver| Arc::ptr_eq(driver, caller))
}

impl Lane {
    pub(crate) fn new(
        initiator: Initiator<SharedEndpoint>,
        keeper: Arc<Caller>,
        spin: Duration,
    ) -> Self {
        Self {
            // ORDERING: relaxed; only the number's uniqueness matters.
            number: NEXT_LANE.fetch_add(1, Ordering::Relaxed),
            initiator,
            role: Mutex::default(),
            keeper,
            is_closed: AtomicBool::new(false),
            spin,
        }
    }

    pub(crate) fn initiator(&self) -> &Initiator<SharedEndpoint> {
        &self.initiator
    }

    /// Makes this lane that of all requests which the thread makes until the guard is dropped: an
    /// operation is driven on one lane.
    pub(crate) fn enter(&self) -> Current {
        Current(
            CURRENT
                .try_with(|current| current.replace(self.number))
                .unwrap_or(0),
        )
    }

    /// Whether it is the lane of the operation that the thread performs.
    pub(crate) fn is_current(&self) -> bool {
        CURRENT
            .try_with(Cell::get)
            .is_ok_and(|current| current == self.number)
    }

    fn role(&self) -> MutexGuard<'_, Role> {
        self.role.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a future on the calling thread. Cost: no turn of another thread, unless one drives.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let _current = self.enter();
        let caller = Caller::of_this_thread();
        let waker = Waker::from(Arc::clone(caller.get()));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let waiting = Waiting {
            lane: self,
            caller: caller.get(),
        };
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            waiting.until_woken();
        }
    }

    /// Sees to it that a thread drives the lane, after a task has posted a request that no thread
    /// blocks for. Cost: a lock; a system call if the lane's thread sleeps.
    pub(crate) fn ensure_driven(&self) {
        let driver = self.role().driver.clone();
        match driver {
            // It may sleep for another queue pair.
            Some(driver) => driver.nudge(),
            None => self.keeper.wake_now(),
        }
    }

    /// Drives the lane while no blocking thread does; returns when the lane is closed. Called by
    /// the lane's own thread.
    pub(crate) fn keep(&self) {
        let keeper = &self.keeper;
        let waiting = Waiting {
            lane: self,
            caller: keeper,
        };
        while !self.is_closed.load(Ordering::SeqCst) {
            let leads = {
                let mut role = self.role();
                let wanted = role.driver.is_none() && self.outstanding() > 0;
                if wanted {
                    role.driver = Some(Arc::clone(keeper));
                }
                wanted
            };
            if leads {
                self.drive(keeper, |outstanding| {
                    // A wake that is older than the role must not keep it from its sleep.
                    keeper.take_woken();
                    outstanding == 0 || !self.role().parked.is_empty()
                });
                waiting.leave();
            } else {
                keeper.sleep(&[], None);
            }
            keeper.take_woken();
        }
    }

    /// Ends [`Lane::keep`].
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.keeper.wake_now();
    }

    fn outstanding(&self) -> usize {
        self.initiator
            .with_endpoint(|endpoint| endpoint.outstanding())
    }

    /// Polls until `is_over`, which is given the requests in flight.
    fn drive(&self, caller: &Caller, is_over: impl Fn(usize) -> bool) {
        let mut wakers = Vec::new();
        let mut waits = Vec::new();
        let mut idle_since: Option<Instant> = None;
        loop {
            let driven = self.initiator.drive(&mut wakers);
            if is_over(driven.outstanding) {
                return;
            }
            if driven.completed > 0 {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() < self.spin {
                std::hint::spin_loop();
                continue;
            }
            self.sleep(caller, &mut waits);
        }
    }

    /// Waits for the fabric, or for the caller's waker.
    fn sleep(&self, caller: &Caller, waits: &mut Vec<Readiness>) {
        waits.clear();
        let is_quiet = self.initiator.with_endpoint(|endpoint| {
            for queue in 0..endpoint.queues() {
                if endpoint.outstanding_on(queue) == 0 {
                    continue;
                }
                match endpoint.readiness(queue) {
                    Some(readiness) => waits.push(readiness),
                    None => return false,
                }
            }
            true
        });
        let limit = if is_quiet { SLEEP } else { NAP };
        caller.sleep(waits, Some(limit));
    }
}

/// A thread that waits on a lane.
struct Waiting<'a> {
    lane: &'a Lane,
    caller: &'a Arc<Caller>,
}

impl Waiting<'_> {
    /// Drives the lane, or parks, until the caller is woken.
    fn until_woken(&self) {
        while !self.caller.take_woken() {
            if self.may_drive() {
                let caller = self.caller;
                self.lane.drive(caller, |_| caller.is_woken());
            } else {
                self.caller.park();
            }
        }
    }

    /// Takes the role if it is free. Else the caller is listed as parked.
    fn may_drive(&self) -> bool {
        let mut role = self.lane.role();
        if is_driver(&role, self.caller) {
            return true;
        }
        // A call inside another one: the outer one keeps the role, and this one drives.
        if role.driver.as_ref().is_some_and(|driver| driver.is_here()) {
            return true;
        }
        if role.driver.is_none() {
            role.parked.retain(|one| !Arc::ptr_eq(one, self.caller));
            role.driver = Some(Arc::clone(self.caller));
            return true;
        }
        if !role.parked.iter().any(|one| Arc::ptr_eq(one, self.caller)) {
            role.parked.push_back(Arc::clone(self.caller));
            let driver = role.driver.clone();
            drop(role);
            // It may sleep for another queue pair; the lane's thread passes the role on.
            if let Some(driver) = driver {
                driver.nudge();
            }
        }
        false
    }

    /// Gives up the role, and passes it on.
    fn leave(&self) {
        let mut role = self.lane.role();
        role.parked.retain(|one| !Arc::ptr_eq(one, self.caller));
        if !is_driver(&role, self.caller) {
            return;
        }
        let next = role.parked.pop_front();
        role.driver.clone_from(&next);
        match next {
            Some(next) => next.unpark(),
            None if self.lane.outstanding() > 0 => self.lane.keeper.wake_now(),
            None => {}
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Waits for descriptors.
pub(crate) fn wait_for(waits: &[Readiness], event: BorrowedFd<'_>, limit: Option<Duration>) {
    let mut polled = vec![PollFd::from_borrowed_fd(event, PollFlags::IN)];
    for wait in waits {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, wait.writes);
        polled.push(PollFd::from_borrowed_fd(borrowed(wait), flags));
    }
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let _ = poll(&mut polled, limit.as_ref());
}

#[allow(unsafe_code)] // waits on a descriptor that another thread may close
fn borrowed(wait: &Readiness) -> BorrowedFd<'_> {
    // SAFETY: nothing is read from it or written to it. If another thread closes it meanwhile, or
    // its number becomes another's, the wait ends too early or with its limit, which is harmless.
    unsafe { BorrowedFd::borrow_raw(wait.descriptor) }
}
