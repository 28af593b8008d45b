//! The threads that run sessions' tasks, each with an executor that outlives the engines it serves.
//!
//! Owns the list of idle threads. A thread is kept after its engine was closed because a
//! dropped executor leaks memory and a descriptor; see [`executor::build`].
//!
//! - I1: an idle thread has one entry in [`IDLE`] and accepts work only after that entry was
//!   removed.
//! - I2: a panic on the thread aborts the process: no lease would be renewed any more.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, mpsc};
use std::{io, thread};

use async_channel::Receiver;
use futures_lite::future::or;

use super::locked;
use super::task::{NewSession, run_all};
use crate::executor;
use crate::wake_timer::WakeTimer;

/// Entries of each of the executor's rings.
const RING_DEPTH: usize = 64;

/// The idle threads of this process, and of the processes that it was forked from.
pub(super) static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

pub(super) struct Idle {
    process: u32,
    inbox: mpsc::Sender<Assignment>,
}

/// One engine's sessions, which a thread keeps until they are stopped.
pub(super) struct Assignment {
    pub(super) new_sessions: Receiver<NewSession>,
    pub(super) stopped: Receiver<Infallible>,
    pub(super) wake_timer: WakeTimer,
    /// Dropped when all tasks have ended.
    pub(super) ended: mpsc::Sender<Infallible>,
}

/// Passes an assignment to an idle thread, or to a new one if there is none.
pub(super) fn assign(mut assignment: Assignment) -> io::Result<()> {
    let process = std::process::id();
    loop {
        let idle = {
            let mut idle = locked(&IDLE);
            // A forked child has none of its parent's threads.
            idle.retain(|one| one.process == process);
            idle.pop()
        };
        let Some(idle) = idle else {
            break;
        };
        match idle.inbox.send(assignment) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(back)) => assignment = back,
        }
    }
    let (ready, is_ready) = mpsc::channel();
    thread::Builder::new()
        .name("farcore-leases".to_owned())
        .spawn(move || serve(assignment, &ready))?;
    is_ready
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("its executor panicked")))
}

/// The thread: creates the executor, then keeps one engine's sessions after the other.
fn serve(first: Assignment, ready: &mpsc::Sender<io::Result<()>>) {
    // The executor's constructor panics if it cannot start its helper thread.
    let made = catch_unwind(AssertUnwindSafe(|| {
        executor::build("farcore-leases", Some(RING_DEPTH))
    }));
    let executor = match made {
        Ok(Ok(executor)) => executor,
        Ok(Err(error)) => return drop(ready.send(Err(error))),
        Err(_) => {
            let what = "cannot start the executor's helper thread";
            return drop(ready.send(Err(io::Error::other(what))));
        }
    };
    let _abort = AbortOnPanic;
    let _ = ready.send(Ok(()));
    let mut next = Some(first);
    while let Some(Assignment {
        new_sessions,
        stopped,
        wake_timer,
        ended,
    }) = next.take()
    {
        executor.run(or(run_all(new_sessions, stopped), wake_timer.beat()));
        drop(wake_timer);
        let (inbox, assignments) = mpsc::channel();
        let process = std::process::id();
        locked(&IDLE).push(Idle { process, inbox });
        // Only now, so that a caller that waits for the end and starts again finds this thread.
        drop(ended);
        next = assignments.recv().ok();
    }
}

/// Held while the executor runs.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the heartbeat thread panicked: aborting");
            std::process::abort();
        }
    }
}
