//! The keeper of an engine's data directory: it loads it, begins generations, has bases written,
//! and removes what is not needed any more.
//!
//! It owns the directory and a thread, or a task of a simulated world. Cores own the files of their
//! journals.
//!
//! - I1: the manifest names a base only after all of its files are durable, and the logs as far as
//!   the base has seen.
//! - I2: files that the manifest needs are removed only after a later manifest is durable.

mod loading;
mod repairs;
mod snapshots;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_lite::future::or;

use super::figures::{DurableStats, RepairSummary, SnapshotSummary};
use super::load::{LoadProgress, ShardLoad};
use super::log_ends::{Ends, KEEPS_ALL_AT, Until};
use super::log_sequence::{ENDS, Follows, LogSequence, RUN};
use super::repair::Source;
use super::waits::{Instant, receive, sleep};
use farcore_tuning::{HistogramSnapshot, system_ms};

use crate::cipher::{EncryptionKey, random_salt};
use crate::client::core::Core;
use crate::client::jobs::spawn_on_core;
use crate::client::lanes::Shared;
use crate::config::LogPolicy;
use crate::error::{Error, Result};
use crate::reactor::{
    CoreShared, JournalCommand, JournalFile, JournalPort, JournalSync, MarkSection, block_on,
    yield_now,
};
use crate::storage::{BaseFile, Directory, FREE_BYTES, FileKind, FileWriter, Manifest, SuperBlock};

/// How often the keeper looks whether a generation is due.
const LOOK: Duration = Duration::from_millis(50);
/// How often a mark is made.
const MARK: Duration = Duration::from_millis(900);
/// How often it looks whether what it waits for has come.
const WAIT: Duration = Duration::from_millis(2);
/// Requests that a file's ring has under way.
const DEPTH: u16 = 8;
/// Buffers of a file.
const BUFFERS: usize = 4;
/// That rest is doubled this many times at most.
const FAILURES_MAX: u32 = 6;
/// How long after a failure it is tried where changes are refused until it is there.
const REST_AFTER_LOSS: Duration = Duration::from_secs(2);
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
            ends: RefCell::default(),
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
    /// Where the logs of the generation end that is loaded.
    ends: RefCell<Ends>,
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
        let ends = self.sequence.noted_ends(self.manifest.base);
        let mut files = Vec::new();
        for (shard, path) in (0..).zip(paths) {
            let mut super_block = self.super_block(FileKind::Log, generation, shard)?;
            super_block.free[Follows::AT].copy_from_slice(&follows.code());
            super_block.free[RUN].copy_from_slice(&self.run);
            super_block.free[ENDS].copy_from_slice(&ends);
            super_block.free[KEEPS_ALL_AT] = u8::from(self.options.log == LogPolicy::Always);
            files.push(self.file_at(&path, &super_block)?);
        }
        // What follows goes on where this ends, as long as it is logged.
        let last = (self.options.log != LogPolicy::Off).then_some(generation);
        self.sequence.go_on(last);
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
}
