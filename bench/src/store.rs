//! The interface between the driver and an engine.
//!
//! A [`Store`] is opened once and starts one worker a core; a worker uses its own [`Session`]. All
//! of it is generic and compiled for each engine: the driver neither boxes nor allocates per
//! request.

use std::future::Future;

use farcore::{
    Answer, Cursor, HardwareSnapshot, HistogramSnapshot, Operation, Report, ScanOptions, ScanPage,
};
use serde_json::{Map, Value};

use crate::plan::Plan;
use crate::worker::Worker;

/// One thread's access to a store.
pub trait Session {
    /// Submits a request. `sink` may receive answers to this request or to earlier ones, now or in
    /// a later call.
    fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    );

    /// Reads a page of records in the order of the index.
    ///
    /// # Errors
    /// Those of the scan; engines without scans refuse every one.
    fn scan(
        &mut self,
        _cursor: Cursor,
        _options: ScanOptions,
    ) -> impl Future<Output = farcore::Result<ScanPage>> {
        std::future::ready(Err(unsupported("scan", "this engine has no scans")))
    }

    /// Delivers arrived answers. Some engines also serve other threads' requests here.
    fn poll(&mut self, sink: &mut impl FnMut(u64, Answer<'_>));

    /// Processor events of the calling thread, where the engine counts them.
    fn hardware(&self) -> Option<HardwareSnapshot> {
        None
    }

    /// Requests without an answer.
    fn in_flight(&self) -> usize;

    /// Yields this core to other tasks and threads.
    fn rest(&mut self) -> impl Future<Output = ()>;
}

/// An engine's counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Reads of far memory.
    pub far_reads: u64,
    /// Bytes read from far memory.
    pub far_read_bytes: u64,
    /// Bytes of them that belong to requested records, where the engine knows.
    pub far_wanted_bytes: u64,
    /// Writes to far memory.
    pub far_writes: u64,
    /// Bytes written to far memory.
    pub far_write_bytes: u64,
    /// Bytes of far memory in use.
    pub far_used_bytes: u64,
    /// Bytes of live records in far memory, where the engine knows.
    pub far_live_bytes: u64,
    /// How long requests waited for far memory, in nanoseconds, where the engine knows.
    pub far_latency: HistogramSnapshot,
    /// Records removed because they had expired.
    pub keys_expired: u64,
    /// Keys stored.
    pub keys: u64,
    /// Bytes of the index, where the engine knows.
    pub index_bytes: u64,
    /// The cap on local memory; 0 if the engine has none.
    pub local_cap_bytes: u64,
    /// The engine's figures of compaction.
    pub compaction: Map<String, Value>,
}

/// A running worker.
pub struct Running(Box<dyn FnOnce() -> anyhow::Result<()>>);

impl std::fmt::Debug for Running {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Running")
    }
}

impl Running {
    /// Wraps a call that waits for the worker's end.
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

/// An engine's answer to an operation that it does not have.
pub(crate) fn unsupported(operation: &str, why: &str) -> farcore::Error {
    farcore::Error::Config {
        field: "operation",
        value: operation.into(),
        limit: why.into(),
    }
}

/// An engine under test.
pub trait Store: Sized + Send + Sync + 'static {
    /// Opens an engine for a plan.
    ///
    /// # Errors
    /// The engine cannot be opened.
    fn open(plan: &Plan) -> anyhow::Result<Self>;

    /// Starts a worker on the plan's core at `position`. The calling thread must not be pinned: a
    /// thread inherits the cores of the one that starts it.
    ///
    /// # Errors
    /// The thread cannot be started.
    fn start(&self, position: usize, core: usize, worker: Worker) -> anyhow::Result<Running>;

    /// The position of the core whose shard holds a key, where the engine has shards.
    fn shard_of(&self, _key: &[u8]) -> Option<usize> {
        None
    }

    /// The engine's counters. For slow paths only.
    fn usage(&self) -> Usage;

    /// The engine's full report, if it has one. For slow paths only.
    fn report(&self) -> Option<Report> {
        None
    }

    /// Resident bytes of far memory in this process; called every few milliseconds.
    fn far_resident_bytes(&self) -> u64;

    /// Closes the engine.
    ///
    /// # Errors
    /// The engine cannot be closed cleanly.
    fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}
