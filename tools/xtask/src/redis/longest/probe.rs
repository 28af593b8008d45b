//! The client beside the loads: short calls at a pace, each of which is timed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::connection::Connection;
use super::requests::{Request, bytes, command, words};
use crate::redis::memory::cores::{hurry, pin};
use crate::redis::server::Server;

/// Between the beginnings of two calls.
const PACE: Duration = Duration::from_millis(1);
/// Bytes of the value that it reads.
const VALUE_BYTES: usize = 100;

/// What the probe and the sender share.
#[derive(Debug, Default)]
struct Shared {
    /// Odd while what is sent is measured.
    phase: AtomicU64,
    /// Calls that have ended.
    ended: AtomicU64,
    latencies_us: Mutex<Vec<u32>>,
    /// Why it has ended, if it had to.
    fault: Mutex<Option<String>>,
    is_over: AtomicBool,
}

impl Shared {
    fn latencies_us(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        let latencies = self.latencies_us.lock();
        latencies.unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, connection: &mut Connection) -> Result<()> {
        connection.call(&command("SET probe", [bytes(VALUE_BYTES)]))?;
        let calls: [Request; 2] = [words("PING"), words("GET probe")];
        for call in calls.iter().cycle() {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let before = self.phase.load(Ordering::SeqCst);
            let start = Instant::now();
            connection.call(call)?;
            let took = start.elapsed();
            let overlaps = before % 2 == 1 || self.phase.load(Ordering::SeqCst) != before;
            if overlaps {
                let took_us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
                self.latencies_us().push(took_us);
            }
            self.ended.fetch_add(1, Ordering::SeqCst);
            thread::sleep(PACE.saturating_sub(took));
        }
        Ok(())
    }
}

/// A client in a thread of its own.
#[derive(Debug)]
pub(super) struct Probe {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

impl Probe {
    /// Starts it on a core, where it runs before others.
    pub(super) fn start(server: &Server, core: usize) -> Result<Self> {
        let mut connection = Connection::open(server)?;
        let shared = Arc::new(Shared::default());
        let probing = Arc::clone(&shared);
        let thread = thread::Builder::new().name("probe".to_owned());
        let thread = thread.spawn(move || {
            hurry();
            pin(core)?;
            let ended = probing.run(&mut connection);
            if let Err(error) = &ended {
                let mut fault = probing.fault.lock().unwrap_or_else(PoisonError::into_inner);
                *fault = Some(format!("{error:#}"));
            }
            ended
        });
        Ok(Self {
            shared,
            thread: thread.context("cannot start a thread")?,
        })
    }

    /// What is sent from now on is measured.
    pub(super) fn begin(&self) {
        self.shared.phase.fetch_or(1, Ordering::SeqCst);
    }

    /// What is sent from now on is not.
    pub(super) fn pause(&self) {
        let phase = self.shared.phase.load(Ordering::SeqCst);
        if phase % 2 == 1 {
            self.shared.phase.store(phase + 1, Ordering::SeqCst);
        }
    }

    /// Calls that have overlapped with what was measured.
    pub(super) fn calls(&self) -> usize {
        self.shared.latencies_us().len()
    }

    /// Takes their latencies in microseconds, those of calls among them that have not ended yet.
    pub(super) fn take(&self) -> Result<Vec<u32>> {
        self.pause();
        let ended = self.shared.ended.load(Ordering::SeqCst);
        while self.shared.ended.load(Ordering::SeqCst) == ended {
            if self.thread.is_finished() {
                let fault = self
                    .shared
                    .fault
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let why = fault.as_deref().unwrap_or("it panicked");
                bail!("the client beside the load has ended: {why}");
            }
            thread::sleep(PACE);
        }
        Ok(std::mem::take(&mut *self.shared.latencies_us()))
    }

    /// Ends it.
    ///
    /// # Errors
    /// It was disconnected, or got an error.
    pub(super) fn end(self) -> Result<()> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        let ended = ended.ok().context("the client beside the load panicked")?;
        ended.context("the client beside the load")
    }
}
