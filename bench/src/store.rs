//! What every engine looks like to the driver.
//!
//! A [`Store`] is opened once and starts one worker a core; a worker talks to its own [`Session`].
//! Everything is generic and compiled for each engine: no boxing and no allocation per request on
//! the driver's side.

use std::future::Future;

use farcore::{Answer, HardwareSnapshot, HistogramSnapshot, Operation, Report};
use serde_json::{Map, Value};

use crate::plan::Plan;
use crate::worker::Worker;

/// One thread's way into a store.
pub trait Session {
    /// Hands in a request. Answers to this request or to earlier ones may come through `sink`, now
    /// or later.
    fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    );

    /// Delivers answers that are there; serves others where the engine asks its callers to.
    fn poll(&mut self, sink: &mut impl FnMut(u64, Answer<'_>));

    /// Processor events of the calling thread, where the engine counts them.
    fn hardware(&self) -> Option<HardwareSnapshot> {
        None
    }

    /// Requests without an answer.
    fn in_flight(&self) -> usize;

    /// Lets others run on this core.
    fn rest(&mut self) -> impl Future<Output = ()>;
}

/// What an engine counts, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Reads of far memory.
    pub far_reads: u64,
    /// Bytes they moved.
    pub far_read_bytes: u64,
    /// Bytes of them that were asked for, where the engine knows.
    pub far_wanted_bytes: u64,
    /// Writes to far memory.
    pub far_writes: u64,
    /// Bytes they moved.
    pub far_write_bytes: u64,
    /// Bytes of far memory that are taken.
    pub far_used_bytes: u64,
    /// Bytes of live records in far memory, where the engine knows.
    pub far_live_bytes: u64,
    /// How long requests waited for far memory, in nanoseconds, where the engine knows.
    pub far_latency: HistogramSnapshot,
    /// Keys stored.
    pub keys: u64,
    /// Bytes of the index, where the engine knows.
    pub index_bytes: u64,
    /// The cap on local memory; 0 if the engine has none.
    pub local_cap_bytes: u64,
    /// What the engine tells about compaction.
    pub compaction: Map<String, Value>,
}

/// A worker that has been started.
pub struct Running(Box<dyn FnOnce() -> anyhow::Result<()>>);

impl std::fmt::Debug for Running {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Running")
    }
}

impl Running {
    /// Wraps what waits for the worker's end.
    #[must_use]
    pub fn new(join: impl FnOnce() -> anyhow::Result<()> + 'static) -> Self {
        Self(Box::new(join))
    }

    /// Waits for the worker's end.
    ///
    /// # Errors
    /// The worker panicked or its core was lost.
    pub fn join(self) -> anyhow::Result<()> {
        (self.0)()
    }
}

/// An engine under test.
pub trait Store: Sized + Send + Sync + 'static {
    /// Opens an engine for a plan.
    ///
    /// # Errors
    /// What the engine says.
    fn open(plan: &Plan) -> anyhow::Result<Self>;

    /// Starts a worker on the plan's core at `position`. Must be called from an unpinned thread: a
    /// thread started by a pinned one sees that one core only.
    ///
    /// # Errors
    /// The thread cannot be started.
    fn start(&self, position: usize, core: usize, worker: Worker) -> anyhow::Result<Running>;

    /// The position of the core whose shard holds a key, where the engine has shards.
    fn shard_of(&self, _key: &[u8]) -> Option<usize> {
        None
    }

    /// What the engine counts. Slow paths only.
    fn usage(&self) -> Usage;

    /// All that the engine reports, where it does. Slow paths only.
    fn report(&self) -> Option<Report> {
        None
    }

    /// Resident bytes of far memory that lives in this process; called every few milliseconds.
    fn far_resident_bytes(&self) -> u64;

    /// Closes the engine.
    ///
    /// # Errors
    /// What the engine says.
    fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}
