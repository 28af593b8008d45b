//! Keeps sessions at memory nodes alive, however long the cores compute.
//!
//! Owns the control connections of all cores of an engine, on the executor of a separate thread, so
//! that a core that computes for longer than a lease does not delay a heartbeat. A core reaches its
//! session through a [`KeptSession`]: it reads the session's status and sends commands.
//!
//! ```text
//! core:   KeptSession --- commands, end ---------> | task: NodeSession, heartbeats, resume, reopen | --> memory node
//!                     <-- SessionStatus (lock) --- |
//! thread: one task for each core and node
//! ```
//!
//! - I1: one task owns a control connection, so its requests run one at a time.
//! - I2: a task ends when its handle is dropped or closed, or when the thread is stopped. It then
//!   ends its session if it can.
//! - I3: an idle thread has one entry in [`thread::IDLE`], and accepts work only after that entry
//!   was removed.
//! - I4: a session at a node that another handle of the same [`Siblings`] already uses is ended at
//!   once and never published.
//!
//! Cost: one thread and one executor per open engine; a lock that is held for a few steps, every
//! twenty milliseconds per core and node.

mod kept;
mod siblings;
mod task;
#[cfg(test)]
mod tests;
mod thread;

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use async_channel::Sender;

pub(crate) use self::kept::KeptSession;
pub use self::siblings::Siblings;

use self::kept::SessionStatus;
use self::task::NewSession;
use self::thread::Assignment;
use crate::address::FabricAddress;
use crate::session::ConnectOptions;
use crate::wake_timer::WakeTimer;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sessions of one engine, kept alive by a thread. Dropping this ends them.
#[derive(Debug)]
pub struct Heartbeats {
    new_sessions: Sender<NewSession>,
    /// Carries nothing: closing it stops every task.
    stop: Sender<Infallible>,
    /// Carries nothing: its other end is dropped when the last task has ended.
    ended: Mutex<Option<mpsc::Receiver<Infallible>>>,
}

impl Heartbeats {
    /// Starts a thread, or takes an idle one. Call it from a thread that is not pinned: a new
    /// thread inherits the caller's affinity.
    ///
    /// # Errors
    /// The thread or its executor cannot be started.
    pub fn start() -> io::Result<Self> {
        let (new_sessions, received) = async_channel::unbounded();
        let (stop, stopped) = async_channel::bounded(1);
        #[cfg(feature = "simulation")]
        if crate::simulation::is_inside() {
            crate::executor::spawn_detached(task::run_all(received, stopped));
            return Ok(Self {
                new_sessions,
                stop,
                ended: Mutex::default(),
            });
        }
        let (ended, is_ended) = mpsc::channel();
        thread::assign(Assignment {
            new_sessions: received,
            stopped,
            wake_timer: WakeTimer::new()?,
            ended,
        })?;
        Ok(Self {
            new_sessions,
            stop,
            ended: Mutex::new(Some(is_ended)),
        })
    }

    /// Ends all remaining sessions and waits until they have ended. May be called again. The thread
    /// stays, asleep, for the next [`Heartbeats::start`].
    pub fn stop(&self) {
        self.new_sessions.close();
        self.stop.close();
        if let Some(ended) = locked(&self.ended).take() {
            let _ = ended.recv();
        }
    }

    /// Begins to open a session, and keeps it once it is open. A node that does not answer is
    /// retried until the handle is dropped.
    pub(crate) fn keep(
        &self,
        address: FabricAddress,
        options: ConnectOptions,
        siblings: Siblings,
    ) -> KeptSession {
        let (commands, received) = async_channel::unbounded();
        let (end, ends) = async_channel::bounded(1);
        let status = Arc::new(Mutex::new(SessionStatus::default()));
        let new_session = NewSession {
            address,
            options,
            siblings,
            status: Arc::clone(&status),
            commands: received,
            ends,
        };
        // Fails once the thread was stopped. The handle then finds its channels closed.
        let _ = self.new_sessions.try_send(new_session);
        KeptSession::new(status, commands, end)
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.stop();
    }
}
