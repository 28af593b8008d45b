//! The keeper of an engine's data directory: it loads it, begins generations, has bases written,
//! and removes what is not needed any more.
//!
//! It owns the directory and a thread, or a task of a simulated world. Cores own the files of their
//! journals.
//!
//! - I1: the manifest names a base only after all of its files are durable, and the logs as far as
//!   the base has seen.
//! - I2: files that the manifest needs are removed only after a later manifest is durable.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_lite::future::or;

use super::base::{BaseSummary, BaseWriter};
use super::load::{LoadProgress, Loader, ShardLoad, Until, common_end};
use super::log_sequence::{Follows, KEEPS_ALL_AT, LogSequence, RUN, check_name};
use super::repair::{Repairer, Source};
use super::repair_batch::{self, RepairRequest};
use super::waits::{Instant, receive, sleep};
use farcore_tuning::{HistogramSnapshot, entropy_u64, system_ms};

use crate::cipher::{EncryptionKey, random_salt};
use crate::client::core::Core;
use crate::client::jobs::spawn_on_core;
use crate::client::lanes::Shared;
use crate::config::LogPolicy;
use crate::error::{Error, Result, StorageError};
use crate::message::operation::Version;
use crate::reactor::{
    CoreShared, JournalCommand, JournalFile, JournalPort, JournalSync, MarkSection, Task, block_on,
    yield_now,
};
use crate::storage::{
    BaseFile, Directory, FREE_BYTES, FileKind, FileWriter, Manifest, Stored, SuperBlock,
};

/// How often the keeper looks whether a generation is due.
const LOOK: Duration = Duration::from_millis(50);
/// How often a mark is made.
const MARK: Duration = Duration::from_millis(900);
/// How often it looks whether what it waits for has come.
const WAIT: Duration = Duration::from_millis(2);
/// Bytes of logs below which no new base is due.
const LOG_BYTES_MIN: u64 = 64 << 20;
/// Requests that a file's ring has under way.
const DEPTH: u16 = 8;
/// Buffers of a file.
const BUFFERS: usize = 4;
/// How long after a failure the next base is tried by itself.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// That rest is doubled this many times at most.
const FAILURES_MAX: u32 = 6;
/// How long after a failure it is tried where changes are refused until it is there.
const REST_AFTER_LOSS: Duration = Duration::from_secs(2);
/// How long a repair rests between requests, at most.
const REPAIR_REST_MAX: Duration = Duration::from_millis(10);
/// How long a snapshot waits for what it needs.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// How long what is under way waits for a disk that fails.
const FAILING_MAX: Duration = Duration::from_secs(10);
/// How often cores are to come to rest together before they go on one by one.
const TRIES: usize = 3;
/// The group of a keeper's tasks in a simulated world: behind those of cores.
#[cfg(feature = "simulation")]
const KEEPER_GROUP: u32 = 31;

/// The settings of a keeper.
#[derive(Debug)]
pub(crate) struct DurableOptions {
    pub(crate) log: LogPolicy,
    pub(crate) key: Option<EncryptionKey>,
    pub(crate) seed: u64,
    pub(crate) hash_tags: bool,
    /// Snapshots that stay, with the logs since the first of them.
    pub(crate) snapshots_kept: usize,
    /// Where loading tells how far it is.
    pub(crate) progress: Arc<LoadProgress>,
}

/// What a snapshot has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotSummary {
    /// Its number: those of one directory only rise.
    pub generation: u64,
    /// Keys in it.
    pub keys: u64,
    /// Bytes of its files, of the logs since it was begun not.
    pub bytes: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// What a repair has restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RepairSummary {
    /// Keys that were lost, in whole or in part, and are there again.
    pub keys: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// What an engine with a data directory says of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DurableStats {
    /// Entries that were loaded from files when the engine was opened.
    pub loaded_entries: u64,
    /// How long that took, in milliseconds.
    pub load_ms: u64,
    /// Bytes at the ends of logs that were not whole and were left out then.
    pub torn_bytes: u64,
    /// A snapshot is being written.
    pub is_saving: bool,
    /// The last snapshot, if one was completed since the engine was opened.
    pub last: Option<SnapshotSummary>,
    /// When the last snapshot was completed, in milliseconds since 1970, by this or an earlier
    /// engine; 0 if there is none.
    pub last_unix_ms: u64,
    /// Why the last snapshot that was tried was not completed.
    pub last_error: Option<String>,
    /// Changes are logged.
    pub is_logging: bool,
    /// Bytes that were appended to logs since the engine was opened, and how many of them are
    /// durable.
    pub log_bytes: u64,
    /// Those that are durable.
    pub synced_bytes: u64,
    /// The logs cannot be written, and changes are refused.
    pub is_failing: bool,
    /// What a memory node has lost is being restored.
    pub is_repairing: bool,
    /// Repairs that restored all that was lost, since the engine was opened.
    pub repairs: u64,
    /// Repairs that did not, since then.
    pub failed_repairs: u64,
    /// Keys that repairs have restored since then.
    pub repaired_keys: u64,
    /// Why the last repair that was tried did not restore all.
    pub last_repair_error: Option<String>,
    /// Bytes of the files of the last snapshot, by this or an earlier engine.
    pub last_bytes: u64,
    /// Keys in it.
    pub last_keys: u64,
    /// Snapshots that were completed since the engine was opened.
    pub snapshots: u64,
    /// Those of them that the engine made by itself, because the logs were long.
    pub rewrites: u64,
    /// Snapshots that failed since the engine was opened.
    pub failed_snapshots: u64,
    /// When one failed last, in milliseconds since 1970; 0 if none has.
    pub failed_unix_ms: u64,
    /// Bytes that were appended to logs and are not durable.
    pub unsynced_bytes: u64,
    /// How long the oldest change that is not durable has waited, in nanoseconds; 0 if all are.
    pub unsynced_ns: u64,
    /// How long the last sync of each core's log took, from its beginning until what it covers was
    /// durable, in nanoseconds: the longest of them.
    pub last_sync_ns: u64,
}

impl DurableStats {
    /// Notes what the last snapshot has written, by its manifest.
    fn note_last(&mut self, manifest: &Manifest) {
        self.last_bytes = manifest.files.iter().map(|file| file.bytes).sum();
        self.last_keys = manifest.keys;
    }
}

/// What is known of files from one generation to the next, by the shard that they were of.
type ShardLoads = HashMap<u16, ShardLoad>;

enum Order {
    Snapshot(mpsc::Sender<Result<SnapshotSummary>>),
    Repair(mpsc::Sender<Result<RepairSummary>>),
    Stop,
}

/// What the keeper's thread shares with callers.
#[derive(Debug, Default)]
struct State {
    stats: Mutex<DurableStats>,
    is_stopping: AtomicBool,
    /// Jobs on cores look at it, to end early.
    progress: Arc<LoadProgress>,
    base_bytes: AtomicU64,
    /// Bases of the snapshot under way that are written, or have failed.
    bases: AtomicUsize,
    /// The keeper's task has ended.
    #[cfg(feature = "simulation")]
    has_ended: AtomicBool,
}

impl State {
    fn stats(&self) -> std::sync::MutexGuard<'_, DurableStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keeper, as the engine has it.
#[derive(Debug)]
pub(crate) struct Durable {
    shared: Arc<Shared>,
    /// Locked until all cores have ended: until then their logs grow.
    directory: Mutex<Option<Arc<Directory>>>,
    state: Arc<State>,
    orders: Mutex<mpsc::Sender<Order>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Durable {
    /// Loads a directory into shards that have just been started, and keeps it from then on.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        directory: Directory,
        options: DurableOptions,
    ) -> Result<Self> {
        let (durable, mut keeper, received) = Self::new(shared, directory, options);
        block_on(keeper.load())?;
        let thread = thread::Builder::new()
            .name("farcore-keeper".into())
            .spawn(move || block_on(keeper.run(&received)))
            .map_err(|error| crate::limits::no_thread(&error.to_string()))?;
        let mut of = durable
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *of = Some(thread);
        drop(of);
        Ok(durable)
    }

    /// Begins to load a directory in a simulated world, and keeps it from then on. Where the
    /// outcome of loading will be.
    #[cfg(feature = "simulation")]
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        directory: Directory,
        options: DurableOptions,
    ) -> (Self, mpsc::Receiver<Result<()>>) {
        let (durable, mut keeper, received) = Self::new(shared, directory, options);
        let (loaded, outcome) = mpsc::channel();
        let before = farcore_rdma::simulation::set_group(KEEPER_GROUP);
        let task = farcore_rdma::simulation::spawn(async move {
            let state = Arc::clone(&keeper.state);
            let is_loaded = keeper.load().await;
            let keeps = is_loaded.is_ok();
            let _ = loaded.send(is_loaded);
            if keeps {
                keeper.run(&received).await;
            }
            state.has_ended.store(true, Ordering::Release);
        });
        farcore_rdma::simulation::set_group(before);
        task.detach();
        (durable, outcome)
    }

    /// A keeper that is to load the directory and to run, and what it is given orders by.
    fn new(
        shared: &Arc<Shared>,
        directory: Directory,
        options: DurableOptions,
    ) -> (Self, Keeper, mpsc::Receiver<Order>) {
        let state = Arc::new(State {
            progress: Arc::clone(&options.progress),
            ..State::default()
        });
        let directory = Arc::new(directory);
        let locked = Arc::clone(&directory);
        let keeper = Keeper {
            shared: Arc::clone(shared),
            directory,
            options,
            state: Arc::clone(&state),
            generation: 0,
            base_at: 0,
            failed_at: None,
            failures: 0,
            old_log_bytes: 0,
            run: [0; 8],
            manifest: Manifest::default(),
            sequence: LogSequence::default(),
            marked: Marked {
                count: Cell::new(0),
                appended: Cell::new(0),
                due: Cell::new(Instant::now()),
            },
            unfinished: RefCell::default(),
            logs: Vec::new(),
            repairs: Repairs::default(),
        };
        let (orders, received) = mpsc::channel();
        let durable = Self {
            shared: Arc::clone(shared),
            directory: Mutex::new(Some(locked)),
            state,
            orders: Mutex::new(orders),
            thread: Mutex::new(None),
        };
        (durable, keeper, received)
    }

    /// Writes a snapshot, and waits for its end.
    pub(crate) fn snapshot(&self) -> Result<SnapshotSummary> {
        Self::answer(self.begin_snapshot()?)
    }

    /// Has a snapshot written. Where its outcome will be.
    pub(crate) fn begin_snapshot(&self) -> Result<mpsc::Receiver<Result<SnapshotSummary>>> {
        self.order(Order::Snapshot)
    }

    /// Restores what is lost, and waits for the end of it.
    pub(crate) fn repair(&self) -> Result<RepairSummary> {
        Self::answer(self.order(Order::Repair)?)
    }

    fn answer<T>(outcome: mpsc::Receiver<Result<T>>) -> Result<T> {
        outcome.recv().unwrap_or(Err(Error::Closed))
    }

    /// Gives an order. Where its outcome will be.
    fn order<T>(
        &self,
        order: impl FnOnce(mpsc::Sender<Result<T>>) -> Order,
    ) -> Result<mpsc::Receiver<Result<T>>> {
        let (reply, outcome) = mpsc::channel();
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.send(order(reply)).map_err(|_| Error::Closed)?;
        drop(orders);
        Ok(outcome)
    }

    pub(crate) fn stats(&self) -> DurableStats {
        let mut stats = self.state.stats().clone();
        let now_ns = self.shared.clock.now_ns();
        for core in &self.shared.cores_shared {
            let port = &core.command_port.journal;
            stats.log_bytes += port.appended();
            stats.synced_bytes += port.synced();
            stats.is_failing |= port.is_failing();
            let (unsynced_bytes, unsynced_ns) = port.unsynced(now_ns);
            stats.unsynced_bytes += unsynced_bytes;
            stats.unsynced_ns = stats.unsynced_ns.max(unsynced_ns);
            stats.last_sync_ns = stats.last_sync_ns.max(port.last_sync_ns());
        }
        stats
    }

    /// How long the syncs of all logs took, in nanoseconds.
    pub(crate) fn sync_times(&self) -> HistogramSnapshot {
        let mut all = HistogramSnapshot::default();
        for core in &self.shared.cores_shared {
            if let Some(times) = core.command_port.journal.sync_times() {
                all.merge(&times);
            }
        }
        all
    }

    /// All cores have ended: another process may have the directory.
    pub(crate) fn release(&self) {
        let mut directory = self
            .directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *directory = None;
    }

    /// Ends the keeper. A snapshot under way is given up.
    pub(crate) fn stop(&self) {
        self.state.is_stopping.store(true, Ordering::Release);
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = orders.send(Order::Stop);
        drop(orders);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }

    /// True once the keeper has ended, as a task of a simulated world.
    #[cfg(feature = "simulation")]
    pub(crate) fn has_ended(&self) -> bool {
        self.state.has_ended.load(Ordering::Acquire)
    }
}

/// Gives a command to each core; returns their tickets.
fn give(cores: &[Arc<CoreShared>], commands: impl IntoIterator<Item = JournalCommand>) -> Vec<u64> {
    let each = cores.iter().zip(commands).map(|(core, command)| {
        let ticket = core.command_port.journal.give(command);
        core.command_port.wakeup.ring(0);
        ticket
    });
    each.collect()
}

/// The keeper's own part.
struct Keeper {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    options: DurableOptions,
    state: Arc<State>,
    /// The last generation that was begun.
    generation: u64,
    /// Bytes of the journals when the last base was begun.
    base_at: u64,
    failed_at: Option<Instant>,
    /// Snapshots that have failed, one after the other.
    failures: u32,
    /// Bytes of logs of earlier processes that no base has.
    old_log_bytes: u64,
    /// This process, in its logs.
    run: [u8; 8],
    /// The manifest as it was written last.
    manifest: Manifest,
    sequence: LogSequence,
    marked: Marked,
    /// The shards whose logs of the generation that is loaded were not finished.
    unfinished: RefCell<BTreeSet<u16>>,
    /// The logs since the base, with their generations, in their order.
    logs: Vec<(u64, Source)>,
    repairs: Repairs,
}

/// What the keeper knows of losses.
#[derive(Debug, Default)]
struct Repairs {
    /// How often the shards had lost something when the last repair was begun.
    seen: u64,
    /// The last one failed, and so did as many before it, one after the other.
    failed: u32,
    /// When it ended.
    ended: Option<Instant>,
}

/// The last mark.
struct Marked {
    /// Its number.
    count: Cell<u64>,
    /// How much was logged until then.
    appended: Cell<u64>,
    due: Cell<Instant>,
}

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Keeper {
    fn shards(&self) -> u16 {
        u16::try_from(self.shared.cores_shared.len()).unwrap_or(u16::MAX)
    }

    async fn run(mut self, orders: &mpsc::Receiver<Order>) {
        loop {
            match receive(orders, LOOK).await {
                Ok(Order::Snapshot(reply)) => {
                    let _ = reply.send(self.snapshot().await);
                }
                Ok(Order::Repair(reply)) => {
                    let _ = reply.send(self.repair().await);
                }
                Ok(Order::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            self.mark_if_due().await;
            if self.is_repair_due() {
                let _ = self.repair().await;
            }
            if self.is_base_due() && self.snapshot().await.is_ok() {
                self.state.stats().rewrites += 1;
            }
        }
    }

    fn appended(&self) -> u64 {
        let cores = self.shared.cores_shared.iter();
        cores.map(|core| core.command_port.journal.appended()).sum()
    }

    /// True if the logs have outgrown the base, or a log can only go on in another file.
    fn is_base_due(&self) -> bool {
        if self.options.log == LogPolicy::Off {
            return false;
        }
        let is_lost = self.ports().any(JournalPort::is_lost);
        let rest = match is_lost {
            true => REST_AFTER_LOSS,
            // Each try leaves logs behind, so tries become rare.
            false => REST_AFTER_FAILURE * (1 << self.failures.min(FAILURES_MAX)),
        };
        if self.failed_at.is_some_and(|at| at.elapsed() < rest) {
            return false;
        }
        let base_bytes = self.state.base_bytes.load(Ordering::Relaxed);
        let log_bytes = (self.old_log_bytes + self.appended()).saturating_sub(self.base_at);
        is_lost || log_bytes > base_bytes.max(LOG_BYTES_MIN)
    }

    /// Loads what the directory holds, and begins to log.
    async fn load(&mut self) -> Result<()> {
        let began = Instant::now();
        self.directory.remove_leftovers()?;
        let run = entropy_u64().map_err(|error| Error::Memory {
            reason: format!("no random bytes: {error}"),
        })?;
        self.run = run.to_le_bytes();
        let Stored { manifest, files } = self.directory.stored()?;
        let base = manifest.as_ref().map_or(0, |manifest| manifest.base);
        let (mut ceiling, mut loads) = (0, ShardLoads::new());
        if let Some(manifest) = manifest.as_ref().filter(|_| base > 0) {
            let shards = u16::try_from(manifest.files.len()).unwrap_or(u16::MAX);
            let shards: Vec<u16> = (0..shards).collect();
            let first = self.directory.path_of(FileKind::Base, base, 0);
            let first = self.directory.reader(&first, self.options.key.as_ref())?;
            self.sequence.begin(first.super_block());
            let of = (FileKind::Base, base, &shards[..]);
            let end = (Until::End, &mut ceiling);
            loads = self.load_generation(of, loads, Some(manifest), end).await?;
        }
        for (&generation, shards) in &files.logs {
            self.generation = self.generation.max(generation);
            let key = self.options.key.as_ref();
            let files = (&*self.directory, key);
            if generation < base || !self.sequence.goes_on(files, base, (generation, shards))? {
                continue;
            }
            let unbroken = self.sequence.unbroken(shards);
            let of = (FileKind::Log, generation, &unbroken[..]);
            let key = self.options.key.as_ref();
            let until = common_end(&self.directory, key, (generation, &unbroken))?;
            let end = (until, &mut ceiling);
            loads = self.load_generation(of, loads, None, end).await?;
            self.note_logs(generation, unbroken, (until, false));
            self.old_log_bytes += self.make_durable(generation, shards)?;
        }
        drop(loads);
        self.order_all(|| JournalCommand::EndLoading { ceiling })
            .await?;
        self.note_loaded(began, manifest.as_ref());
        match manifest {
            Some(manifest) => self.manifest = manifest,
            None => {
                self.manifest.engine = random_salt()?;
                self.write_manifest(self.manifest_of(0, Vec::new(), 0))?;
            }
        }
        if self.options.log != LogPolicy::Off {
            self.begin_generation().await?;
        }
        Ok(())
    }

    fn note_loaded(&self, began: Instant, manifest: Option<&Manifest>) {
        let mut stats = self.state.stats();
        stats.loaded_entries = self.state.progress.entries.load(Ordering::Relaxed);
        stats.load_ms = ms(began);
        stats.is_logging = self.options.log != LogPolicy::Off;
        if let Some(manifest) = manifest.filter(|manifest| manifest.base > 0) {
            stats.last_unix_ms = manifest.unix_ms;
            stats.note_last(manifest);
            let bytes = stats.last_bytes;
            self.state.base_bytes.store(bytes, Ordering::Relaxed);
        }
        if stats.loaded_entries > 0 {
            tracing::info!(
                entries = stats.loaded_entries,
                took_ms = stats.load_ms,
                torn_bytes = stats.torn_bytes,
                "the data directory is loaded"
            );
        }
    }

    /// Makes sure that what was loaded of logs is durable, because what follows builds on it.
    /// Returns how many bytes they have.
    fn make_durable(&mut self, generation: u64, shards: &[u16]) -> Result<u64> {
        let mut bytes = 0;
        for &shard in shards {
            let path = self.directory.path_of(FileKind::Log, generation, shard);
            if !farcore_tuning::mutated!("loaded-not-synced") {
                self.directory.sync_file(&path)?;
            }
            bytes += self.directory.length(&path)?;
        }
        let files = (&*self.directory, self.options.key.as_ref());
        let unfinished = self.unfinished.take();
        self.sequence.add(files, (generation, shards), &unfinished);
        Ok(bytes)
    }

    /// Loads the files of a generation, in parallel.
    async fn load_generation(
        &self,
        (kind, generation, shards): (FileKind, u64, &[u16]),
        mut loads: ShardLoads,
        manifest: Option<&Manifest>,
        (until, ceiling): (Until, &mut Version),
    ) -> Result<ShardLoads> {
        let mut tasks = Vec::new();
        for (place, &shard) in shards.iter().enumerate() {
            let path = self.directory.path_of(kind, generation, shard);
            let reader = match self.directory.reader(&path, self.options.key.as_ref()) {
                Ok(reader) => reader,
                // Killed before its first block was durable: it holds nothing.
                Err(StorageError::NotBegun { .. }) if kind == FileKind::Log => continue,
                Err(error) => return Err(error.into()),
            };
            check_name(&reader, (kind, generation, shard), &path)?;
            let load = loads.remove(&shard).unwrap_or_default();
            let progress = Arc::clone(&self.state.progress);
            let bytes = self.directory.length(&path).unwrap_or(0);
            progress.total_bytes.fetch_add(bytes, Ordering::Relaxed);
            let core = place % self.shared.cores_shared.len();
            let of = (load, path.clone());
            let job = move |core: Core| Loader::load(core, reader, of, (until, progress));
            tasks.push((shard, path, spawn_on_core(&self.shared, core, job)?));
        }
        let (mut left, mut failed) = (ShardLoads::new(), None);
        for (shard, path, task) in tasks {
            let loaded = match task.await.and_then(|loaded| loaded) {
                Ok(loaded) => loaded,
                Err(error) => {
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            let named = manifest.and_then(|manifest| manifest.files.get(usize::from(shard)));
            if named.is_some_and(|named| named.chain != loaded.chain) {
                let reason = "it is not the file that the manifest names";
                failed = Some(
                    StorageError::Corrupt {
                        path,
                        at: 0,
                        reason,
                    }
                    .into(),
                );
                continue;
            }
            *ceiling = (*ceiling).max(loaded.ceiling);
            if !loaded.is_finished {
                self.unfinished.borrow_mut().insert(shard);
            }
            if let Some((path, at, bytes)) = loaded.torn {
                tracing::warn!(
                    path = %path.display(),
                    at,
                    bytes,
                    "the end of a log was not whole and is left out"
                );
                self.state.stats().torn_bytes += bytes;
            }
            left.insert(shard, loaded.load);
        }
        failed.map_or(Ok(left), Err)
    }

    /// Gives each core a command, and waits until all have carried it out.
    async fn order_all(&self, command: impl Fn() -> JournalCommand) -> Result<()> {
        let tickets = give(
            &self.shared.cores_shared,
            self.shared.cores_shared.iter().map(|_| command()),
        );
        let cores = || self.shared.cores_shared.iter().zip(&tickets);
        self.wait(|| cores().all(|(core, &ticket)| core.command_port.journal.is_done(ticket)))
            .await
    }

    /// Gives each core a command at one moment: while none of them serves a client. Where they do
    /// not come to rest together, none gets it if `must`, else each carries it out when it comes to
    /// it. Returns whether it was one moment.
    async fn order_at_once(&self, commands: Vec<JournalCommand>, must: bool) -> Result<bool> {
        let (shared, state) = (Arc::clone(&self.shared), Arc::clone(&self.state));
        let is_alone = self.shards() == 1;
        // A core whose disk fails may not come to rest.
        let is_failing = self.ports().any(JournalPort::is_failing);
        let job = move |mut core: Core| async move {
            let count = shared.cores_shared.len();
            let began = Instant::now();
            let is_over = || {
                let mut cores = shared.cores_shared.iter();
                let is_failing = cores.any(|core| core.command_port.journal.is_failing());
                let is_stopping = state.is_stopping.load(Ordering::Acquire);
                let is_failing = is_failing && !farcore_tuning::mutated!("waits-for-held-answers");
                is_failing || is_stopping || began.elapsed() >= FAILING_MAX
            };
            // A core whose disk fails holds its answers until this has been done.
            let gives_up = async || {
                while !is_over() {
                    yield_now().await;
                }
                false
            };
            let mut is_entered = false;
            for _ in 0..TRIES {
                if is_alone || is_failing || is_entered {
                    break;
                }
                let enters = async { core.enter_sections(0..count, &[]).await.is_ok() };
                is_entered = or(enters, gives_up()).await;
            }
            if must && !is_alone && !is_entered {
                return false;
            }
            let section = MarkSection::new(core.section_client());
            let with_section = |mut command| {
                if let JournalCommand::Mark { by, .. } = &mut command {
                    *by = Some(section.clone());
                }
                command
            };
            let tickets = give(&shared.cores_shared, commands.into_iter().map(with_section));
            let began = Instant::now();
            let cores = || shared.cores_shared.iter().zip(&tickets);
            let is_done =
                || cores().all(|(core, &ticket)| core.command_port.journal.is_done(ticket));
            let is_stopping = || state.is_stopping.load(Ordering::Acquire);
            while !is_done() && began.elapsed() < FAILING_MAX && !is_stopping() {
                core.yield_now().await;
            }
            // A core that comes to it later is not at rest.
            section.end();
            let leaves = async { core.leave_sections().await.is_ok() };
            let is_left = !is_entered || or(leaves, gives_up()).await;
            (is_alone || is_entered) && is_left && is_done()
        };
        spawn_on_core(&self.shared, 0, job)?.await
    }

    fn ports(&self) -> impl Iterator<Item = &JournalPort> {
        let cores = self.shared.cores_shared.iter();
        cores.map(|core| &*core.command_port.journal)
    }

    /// Notes in all logs that the shards are at rest, if anything was logged since.
    async fn mark(&self) -> Result<()> {
        self.marked.due.set(Instant::now());
        if self.options.log != LogPolicy::EverySecond || self.shards() == 1 {
            return Ok(());
        }
        for _ in 0..TRIES {
            let number = self.marked.count.get() + 1;
            self.marked.count.set(number);
            let each = |_| JournalCommand::Mark { number, by: None };
            // One that was no moment is followed by another.
            let commands = (0..self.shards()).map(each).collect();
            if self.order_at_once(commands, true).await? {
                self.marked.appended.set(self.appended());
                return Ok(());
            }
        }
        Err(Error::SnapshotStalled)
    }

    /// Makes a mark if one is due.
    async fn mark_if_due(&self) {
        let is_due = self.marked.due.get().elapsed() >= MARK;
        if is_due && self.appended() != self.marked.appended.get() {
            // Without one, more of the logs is left out after a crash.
            if let Err(error) = self.mark().await
                && !self.is_stopping()
            {
                tracing::warn!(%error, "the logs were not marked");
            }
        }
    }

    /// Waits for something of the cores; not for ever, and not long while their disk fails.
    async fn wait(&self, is_done: impl Fn() -> bool) -> Result<()> {
        let (began, mut works) = (Instant::now(), Instant::now());
        while !is_done() {
            let mut cores = self.shared.cores_shared.iter();
            if cores.any(|core| core.closed.load(Ordering::Acquire)) || self.is_stopping() {
                return Err(Error::Closed);
            }
            if !self.ports().any(JournalPort::is_failing) {
                works = Instant::now();
            }
            if works.elapsed() > FAILING_MAX {
                return Err(Error::JournalFailed);
            }
            if began.elapsed() > WAIT_MAX {
                return Err(Error::SnapshotStalled);
            }
            sleep(WAIT).await;
            self.mark_if_due().await;
        }
        Ok(())
    }

    fn is_stopping(&self) -> bool {
        self.state.is_stopping.load(Ordering::Acquire)
    }

    fn super_block(&self, kind: FileKind, generation: u64, shard: u16) -> Result<SuperBlock> {
        Ok(SuperBlock {
            kind,
            generation,
            shard,
            shards: self.shards(),
            salt: random_salt()?,
            unix_ms: system_ms(),
            seed: self.options.seed,
            hash_tags: self.options.hash_tags,
            free: [0; FREE_BYTES],
        })
    }

    /// Replaces the manifest.
    fn write_manifest(&mut self, manifest: Manifest) -> Result<()> {
        self.directory.write_manifest(&manifest)?;
        self.manifest = manifest;
        Ok(())
    }

    fn manifest_of(&self, base: u64, files: Vec<BaseFile>, keys: u64) -> Manifest {
        Manifest {
            engine: self.manifest.engine,
            base,
            files,
            unix_ms: system_ms(),
            keys,
            log: self.generation,
        }
    }

    /// Begins a file that was made.
    fn file_at(&self, path: &Path, super_block: &SuperBlock) -> Result<JournalFile> {
        let disk = self.directory.disk(path, DEPTH)?;
        let key = self.options.key.as_ref();
        Ok(FileWriter::new(disk, super_block, key, BUFFERS))
    }

    /// Begins a generation: all shards go on in new logs.
    async fn begin_generation(&mut self) -> Result<()> {
        let generation = self.generation + 1;
        // A number whose files were made in part is not used again.
        self.generation = generation;
        let paths = self
            .directory
            .create(FileKind::Log, generation, 0..self.shards())?;
        // From now on they are missed if they are not there.
        let mut manifest = self.manifest.clone();
        manifest.log = generation;
        self.write_manifest(manifest)?;
        let follows = match (self.options.log, self.sequence.last) {
            (LogPolicy::Off, _) => Follows::Unknown,
            (_, None) => Follows::Nothing,
            (_, Some(before)) => Follows::Generation(before),
        };
        let mut files = Vec::new();
        for (shard, path) in (0..).zip(paths) {
            let mut super_block = self.super_block(FileKind::Log, generation, shard)?;
            super_block.free[Follows::AT].copy_from_slice(&follows.code());
            super_block.free[RUN].copy_from_slice(&self.run);
            super_block.free[KEEPS_ALL_AT] = u8::from(self.options.log == LogPolicy::Always);
            files.push(self.file_at(&path, &super_block)?);
        }
        // What follows goes on where this ends, as long as it is logged.
        self.sequence.last = (self.options.log != LogPolicy::Off).then_some(generation);
        self.note_logs(generation, 0..self.shards(), (Until::End, true));
        let sync = match self.options.log {
            LogPolicy::Always => JournalSync::Always,
            LogPolicy::EverySecond | LogPolicy::Off => JournalSync::EverySecond,
        };
        let commands = files.into_iter().map(|file| JournalCommand::Begin {
            generation,
            file: Box::new(file),
            sync,
        });
        let is_one_moment = self.order_at_once(commands.collect(), false).await?;
        if !is_one_moment {
            tracing::warn!(
                generation,
                "the logs of a generation did not begin at one moment"
            );
        }
        Ok(())
    }

    async fn snapshot(&mut self) -> Result<SnapshotSummary> {
        let began = Instant::now();
        self.state.stats().is_saving = true;
        self.base_at = self.appended();
        let outcome = self.write_generation(began).await;
        let mut stats = self.state.stats();
        stats.is_saving = false;
        match &outcome {
            Ok(summary) => {
                stats.last = Some(*summary);
                stats.last_unix_ms = system_ms();
                stats.last_error = None;
                stats.snapshots += 1;
                stats.note_last(&self.manifest);
                self.failed_at = None;
                self.failures = 0;
                self.old_log_bytes = 0;
                self.state
                    .base_bytes
                    .store(summary.bytes, Ordering::Relaxed);
                tracing::info!(
                    generation = summary.generation,
                    keys = summary.keys,
                    bytes = summary.bytes,
                    took_ms = summary.took_ms,
                    "a snapshot is complete"
                );
            }
            Err(error) => {
                if !self.is_stopping() {
                    tracing::error!(%error, "no snapshot was made");
                    stats.failed_snapshots += 1;
                    stats.failed_unix_ms = system_ms();
                }
                stats.last_error = Some(error.to_string());
                self.failed_at = Some(Instant::now());
                self.failures += 1;
            }
        }
        outcome
    }

    async fn write_generation(&mut self, began: Instant) -> Result<SnapshotSummary> {
        self.begin_generation().await?;
        let generation = self.generation;
        let written = match self.write_bases(generation).await {
            Ok(files) => self.settle_logs().await.map(|()| files),
            Err(error) => Err(error),
        };
        let written = match (written, self.options.log) {
            (Ok(files), LogPolicy::Off) => self.end_logs(generation).await.map(|()| files),
            (written, _) => written,
        };
        let files = match written {
            Ok(files) => files,
            Err(error) => {
                if self.options.log == LogPolicy::Off {
                    // Without its base the log is of no use.
                    self.order_all(|| JournalCommand::GiveUp).await?;
                }
                self.directory.remove_leftovers()?;
                return Err(error);
            }
        };
        let keys = files.iter().map(|(summary, _)| summary.keys).sum();
        let named = files.iter().map(|&(_, file)| file).collect();
        if farcore_tuning::mutated!("removed-before-manifest") {
            let _ = self.directory.remove_before(generation);
        }
        self.write_manifest(self.manifest_of(generation, named, keys))?;
        self.logs.retain(|&(of, _)| of >= generation);
        self.order_all(|| JournalCommand::Settled { generation })
            .await?;
        let kept = self.options.snapshots_kept;
        if let Err(error) = self.directory.keep(&self.manifest, kept) {
            tracing::warn!(%error, "files that are not needed were not removed");
        }
        Ok(SnapshotSummary {
            generation,
            keys,
            bytes: files.iter().map(|(summary, _)| summary.bytes).sum(),
            took_ms: ms(began),
        })
    }

    /// Notes that logs follow.
    fn note_logs(
        &mut self,
        generation: u64,
        shards: impl IntoIterator<Item = u16>,
        (until, is_ended): (Until, bool),
    ) {
        let directory = &self.directory;
        let source = |shard| Source {
            kind: FileKind::Log,
            path: directory.path_of(FileKind::Log, generation, shard),
            until,
            is_ended,
        };
        let sources = shards.into_iter().map(source);
        self.logs.extend(sources.map(|source| (generation, source)));
    }

    /// How often the shards have lost something.
    fn losses(&self) -> u64 {
        self.ports().map(JournalPort::losses).sum()
    }

    /// True if something was lost since the last repair was begun, or that one has failed.
    fn is_repair_due(&self) -> bool {
        let Repairs {
            seen,
            failed,
            ended,
        } = self.repairs;
        let rest = REST_AFTER_LOSS * (1 << failed.min(FAILURES_MAX));
        self.options.log != LogPolicy::Off
            && (failed > 0 || self.losses() > seen)
            && ended.is_none_or(|at| at.elapsed() >= rest)
    }

    /// Restores what is lost, from files.
    async fn repair(&mut self) -> Result<RepairSummary> {
        let began = Instant::now();
        if self.options.log == LogPolicy::Off {
            return Err(Error::RepairNeedsLog);
        }
        self.state.stats().is_repairing = true;
        let repaired = self.repair_from_files().await;
        self.repairs.ended = Some(Instant::now());
        let mut stats = self.state.stats();
        stats.is_repairing = false;
        let took_ms = ms(began);
        match &repaired {
            Ok(None) => {
                self.repairs.failed = 0;
                stats.last_repair_error = None;
            }
            Ok(Some(keys)) => {
                self.repairs.failed = 0;
                stats.repairs += 1;
                stats.repaired_keys += keys;
                stats.last_repair_error = None;
                tracing::info!(keys, took_ms, "what was lost is restored");
            }
            Err(error) => {
                self.repairs.failed += 1;
                stats.last_repair_error = Some(error.to_string());
                if !self.is_stopping() {
                    stats.failed_repairs += 1;
                    tracing::error!(%error, "not all that was lost is restored");
                }
            }
        }
        repaired.map(|keys| RepairSummary {
            keys: keys.unwrap_or_default(),
            took_ms,
        })
    }

    /// Restores what is lost; returns how many keys, or `None` if nothing is lost.
    async fn repair_from_files(&mut self) -> Result<Option<u64>> {
        if self.ports().any(|port| port.is_failing() || port.is_lost()) {
            // What a log lacks is not known.
            return Err(Error::JournalFailed);
        }
        self.repairs.seen = self.losses();
        self.order_all(|| JournalCommand::BeginRepair).await?;
        if self.ports().all(JournalPort::is_repaired) {
            self.order_all(|| JournalCommand::EndRepair { is_complete: false })
                .await?;
            return Ok(None);
        }
        let repaired = self.restore_lost().await;
        let is_complete = repaired.is_ok();
        self.order_all(|| JournalCommand::EndRepair { is_complete })
            .await?;
        let keys = repaired?;
        match self.ports().all(JournalPort::is_repaired) {
            true => Ok(Some(keys)),
            false => Err(Error::RepairInterrupted),
        }
    }

    /// Has what the files say of lost keys sent to their shards.
    async fn restore_lost(&mut self) -> Result<u64> {
        // A generation that was not begun is never finished.
        let last = self.sequence.last.unwrap_or_default();
        // What was logged until now is in files that are finished.
        self.begin_generation().await?;
        self.wait(|| self.ports().all(|port| port.is_finished(last)))
            .await?;
        let base = self.manifest.base;
        let bases = (0..).zip(&self.manifest.files).map(|(shard, _)| Source {
            kind: FileKind::Base,
            path: self.directory.path_of(FileKind::Base, base, shard),
            until: Until::End,
            is_ended: true,
        });
        let logs = self.logs.iter().filter(|&&(of, _)| of <= last);
        let sources: Vec<_> = bases
            .chain(logs.map(|(_, source)| source.clone()))
            .collect();
        let mut core = 0;
        let send = async |items: Vec<RepairRequest>| {
            core = (core + 1) % self.shared.cores_shared.len();
            self.send_items(core, items).await
        };
        let files = (&*self.directory, self.options.key.as_ref());
        Repairer::run(&sources, files, send).await
    }

    /// Sends requests of a repair from a core, and rests as long as that took.
    async fn send_items(&self, core: usize, items: Vec<RepairRequest>) -> Result<Vec<bool>> {
        let began = Instant::now();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let job = move |core: Core| async move {
            let answers = repair_batch::send(core.ungated(), items).await;
            done.store(true, Ordering::Release);
            answers
        };
        let task = spawn_on_core(&self.shared, core, job)?;
        self.wait(|| is_done.load(Ordering::Acquire)).await?;
        let answers = task.await.and_then(|answers| answers);
        sleep(began.elapsed().min(REPAIR_REST_MAX)).await;
        answers
    }

    /// Ends the logs of a generation, which are finished then.
    async fn end_logs(&self, generation: u64) -> Result<()> {
        let commands = (0..self.shards()).map(|_| JournalCommand::End).collect();
        self.order_at_once(commands, false).await?;
        self.wait(|| self.ports().all(|port| port.is_finished(generation)))
            .await
    }

    /// Has the base of each shard written.
    async fn write_bases(&self, generation: u64) -> Result<Vec<(BaseSummary, BaseFile)>> {
        let cores = || self.shared.cores_shared.iter();
        self.wait(|| !cores().any(|core| core.command_port.journal.has_old_drafts()))
            .await?;
        let mut tasks: Vec<Task<Result<(BaseSummary, JournalFile)>>> = Vec::new();
        self.state.bases.store(0, Ordering::Release);
        let paths = self
            .directory
            .create(FileKind::Base, generation, 0..self.shards())?;
        for ((place, core), path) in cores().enumerate().zip(paths) {
            let shard = u16::try_from(place).unwrap_or(u16::MAX);
            let mut super_block = self.super_block(FileKind::Base, generation, shard)?;
            let since = core.command_port.journal.since();
            super_block.free[..8].copy_from_slice(&since.to_le_bytes());
            super_block.free[RUN].copy_from_slice(&self.run);
            let file = (self.file_at(&path, &super_block)?, path);
            let state = Arc::clone(&self.state);
            let job = move |core: Core| async move {
                let is_stopping = {
                    let state = Arc::clone(&state);
                    move || state.is_stopping.load(Ordering::Acquire)
                };
                let written = BaseWriter::write(core, shard, file, is_stopping).await;
                state.bases.fetch_add(1, Ordering::AcqRel);
                written
            };
            tasks.push(spawn_on_core(&self.shared, place, job)?);
        }
        // A job that ends without having written its base is seen when it is joined.
        while self.state.bases.load(Ordering::Acquire) < tasks.len() && !self.is_stopping() {
            sleep(WAIT).await;
            self.mark_if_due().await;
        }
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.push(task.await.and_then(|done| done));
        }
        outcomes
            .into_iter()
            .map(|outcome| {
                let (summary, file) = outcome?;
                let named = BaseFile {
                    bytes: file.file_bytes(),
                    chain: file.chain(),
                };
                Ok((summary, named))
            })
            .collect()
    }

    /// Waits until all that was appended until now is durable, and loaded after a crash.
    async fn settle_logs(&self) -> Result<()> {
        self.mark().await?;
        let cores = || self.shared.cores_shared.iter();
        let appended: Vec<u64> = cores()
            .map(|core| core.command_port.journal.appended())
            .collect();
        self.wait(|| {
            cores()
                .zip(&appended)
                .all(|(core, &until)| core.command_port.journal.synced() >= until)
        })
        .await
    }
}
