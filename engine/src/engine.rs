//! The engine: opens the shards on their cores, hands out handles, runs jobs and closes.

mod nodes;

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use crossbeam_queue::{ArrayQueue, SegQueue};
use farcore_rdma::{
    EmbeddedNode, Heartbeats, Region, RegionOptions, TouchProgress, Toucher, can_touch_in_use,
};
use farcore_tuning::{Clock, Root, Sampler, entropy_u64, numa_node};

use crate::cipher::{PageCipher, Salt, random_salt};
use crate::client::core::Core;
use crate::client::feed::Feed;
use crate::client::handle::Handle;
use crate::client::jobs::spawn_on_core;
use crate::client::lanes::{HandleLanes, Shared};
use crate::client::pool::{Client, LanePool};
use crate::config::{Config, LostKeys, Sizes, WhenFull};
use crate::constants::KEY_BYTES_MAX;
use crate::durable::{
    Durability, Durable, DurableOptions, DurableStats, LoadProgress, RepairSummary, SnapshotSummary,
};
use crate::error::{Error, Result};
use crate::executor::{self, Termination};
use crate::far_memory::{FarPlan, Membership};
use crate::lifecycle::Lifecycle;
use crate::limits::{self, EXECUTOR_DESCRIPTORS, MemoryNeed, NODE_DESCRIPTORS};
use crate::message::hash::Hasher128;
use crate::observe::metrics::{CoreMetrics, EngineMetrics, EngineReporter, LocalMemory, Stats};
use crate::reactor::{
    self, Command, CommandPort, CoreShared, Reactor, ReactorOptions, Task, Watchdog, is_core_of,
    serve_current_core,
};
use crate::shard::{Shard, ShardOptions, Shortfall};
use crate::storage::Directory;
#[cfg(feature = "simulation")]
use crate::storage::{Medium, simulated::SimulatedMedium};
use crate::transport::lane::{ClientWaker, LaneClient, LaneServer, lane, lanes};
#[cfg(feature = "simulation")]
use farcore_rdma::FabricAddress;
#[cfg(feature = "simulation")]
use std::collections::HashMap;

/// How often a blocking wait for the whole engine looks again.
const WAIT: Duration = Duration::from_micros(200);

pub use self::nodes::{MemoryNodes, NodeRemoval};

/// A key-value store over the cores of this machine and far memory.
///
/// Share it by reference or in an [`Arc`]; each thread takes its own [`Handle`]. Dropping it closes
/// it.
///
/// ```
/// use farcore::{Config, Engine};
///
/// let config = Config {
///     local_bytes: 64 << 20,
///     far_bytes: 64 << 20,
///     keys_expected: 10_000,
///     ..Config::default()
/// };
/// let engine = Engine::open(config)?;
/// let mut handle = engine.handle()?;
/// handle.put(b"key", b"value").wait()?;
/// let value = handle.get(b"key").wait()?.expect("just stored");
/// assert_eq!(&*value, b"value");
/// # Ok::<(), farcore::Error>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    /// The lanes of clients, once there are some.
    pool: Mutex<Option<Arc<LanePool>>>,
    metrics: Arc<EngineMetrics>,
    nodes: Vec<Arc<EmbeddedNode>>,
    /// Memory nodes of other processes.
    membership: Option<Arc<Membership>>,
    /// By core.
    cores: Vec<Arc<Termination>>,
    /// Keeps the sessions at memory nodes, where there are any.
    heartbeats: Option<Arc<Heartbeats>>,
    /// Touches memory while the engine serves.
    toucher: Mutex<Option<Toucher>>,
    /// Keeps the data directory, if there is one that is loaded.
    durability: Durability,
    /// A data directory that is not loaded yet.
    unloaded: Mutex<Option<(Directory, DurableOptions)>>,
}

fn map(options: &RegionOptions) -> Result<Arc<Region>> {
    map_on(options, None)
}

fn map_on(options: &RegionOptions, numa_node: Option<u32>) -> Result<Arc<Region>> {
    let region = Region::map_on(options, numa_node);
    Ok(Arc::new(region.map_err(|error| Error::Memory {
        reason: error.to_string(),
    })?))
}

fn random() -> Result<u64> {
    entropy_u64().map_err(|error| Error::Memory {
        reason: format!("no random bytes: {error}"),
    })
}

/// What is drawn and computed once for an opening.
struct OpenPlan {
    seed: u64,
    epoch: u32,
    salt: Salt,
    sizes: Sizes,
    far: FarPlan,
}

impl OpenPlan {
    fn draw(config: &Config, sizes: Sizes, far: FarPlan) -> Result<Self> {
        Ok(Self {
            seed: config.seed.map_or_else(random, Ok)?,
            epoch: u32::try_from(random()? >> 32).unwrap_or(0),
            salt: random_salt()?,
            sizes,
            far,
        })
    }
}

/// The lanes that end on a core, by lane, and those that begin there, by shard.
struct CoreLanes {
    servers: Vec<Option<LaneServer>>,
    neighbours: Vec<Option<(LaneClient, Arc<CoreShared>)>>,
}

/// The local memory of cores that were started, and where each reports that it serves.
type Started = (Vec<Arc<Region>>, mpsc::Receiver<Result<()>>);

/// Refuses an engine that the system would refuse later.
fn check_limits(config: &Config, sizes: &Sizes) -> Result<()> {
    let executors = executor::missing(&config.cores) + usize::from(!config.nodes.is_empty());
    let nodes = match config.nodes.is_empty() {
        true => 0,
        false => config.positions(config.nodes.len()),
    };
    let connections = config.cores.len() * nodes;
    limits::check(executors * EXECUTOR_DESCRIPTORS + connections * NODE_DESCRIPTORS)?;
    let embedded = embedded_count(config) as u64;
    let need = MemoryNeed {
        local_bytes: config.local_bytes,
        far_bytes: u64::from(config.prefault) * embedded * sizes.node_bytes,
    };
    limits::check_memory(need, &Root::new("/"))
}

fn durable_options(
    config: &Config,
    plan: &OpenPlan,
    progress: Arc<LoadProgress>,
) -> DurableOptions {
    DurableOptions {
        log: config.log,
        key: config.encryption.clone(),
        seed: plan.seed,
        hash_tags: config.hash_tags,
        snapshots_kept: config.snapshots_kept,
        progress,
    }
}

fn embedded_count(config: &Config) -> usize {
    if config.nodes.is_empty() {
        config.embedded_nodes
    } else {
        0
    }
}

/// Memory is touched once the engine is open.
fn touches_later(config: &Config) -> bool {
    config.prefault && config.prefault_later && can_touch_in_use()
}

fn region_options(config: &Config, bytes: u64, lock: farcore_rdma::Lock) -> Result<RegionOptions> {
    let bytes = usize::try_from(bytes).map_err(|_| Error::Memory {
        reason: format!("{bytes} bytes do not fit"),
    })?;
    Ok(RegionOptions {
        bytes,
        huge_pages: config.huge_pages,
        lock,
        prefault: config.prefault && !touches_later(config),
    })
}

/// The regions of embedded memory nodes.
fn embedded_regions(config: &Config, sizes: &Sizes) -> Result<Vec<Arc<Region>>> {
    let region = |_| {
        let options = region_options(config, sizes.node_bytes, farcore_rdma::Lock::Off)?;
        map(&options)
    };
    (0..embedded_count(config)).map(region).collect()
}

impl Engine {
    /// Maps the memory, starts a pinned executor on each core and waits until all serve.
    ///
    /// Call it from a thread that is not pinned: a pinned one can only start threads on its own
    /// core.
    ///
    /// # Errors
    /// Whatever keeps the engine from working, with the limit and the value: [`Error::Config`],
    /// [`Error::LocalMemory`], [`Error::Core`], [`Error::IoUring`], [`Error::SystemCall`],
    /// [`Error::Memory`], [`Error::Threads`], [`Error::Descriptors`]. What did start has ended by
    /// then.
    pub fn open(config: Config) -> Result<Self> {
        let engine = Self::open_unloaded(config)?;
        engine.load()?;
        Ok(engine)
    }

    /// As [`Engine::open`], but the data directory, which is locked by then, is not loaded:
    /// [`Engine::load`] does it. Until that has returned nothing may be stored or removed, and what
    /// is read may be missing.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_unloaded(config: Config) -> Result<Self> {
        let clock = Clock::new();
        let opened_ns = clock.now_ns();
        let sizes = config.sizes()?;
        check_limits(&config, &sizes)?;
        let directory = config
            .data_dir
            .as_deref()
            .map(Directory::open)
            .transpose()?;
        let regions = embedded_regions(&config, &sizes)?;
        let nodes: Vec<_> = regions
            .iter()
            .map(|region| {
                let link = config.link.clone();
                Arc::new(EmbeddedNode::new(Arc::clone(region), link))
            })
            .collect();
        let far = FarPlan::new(&config, &nodes)?;
        let plan = OpenPlan::draw(&config, sizes, far)?;
        // Made before the first thread is: dropped on an error, it closes the cores that did start.
        let (mut engine, lanes) = Self::prepare(&config, &plan, nodes, clock.clone(), opened_ns);
        let (arenas, outcome) = engine.start_cores(&config, &plan, lanes)?;
        for _ in &engine.cores {
            outcome.recv().unwrap_or(Err(Error::Closed))?;
        }
        let memory = LocalMemory {
            is_locked: arenas.iter().all(|arena| arena.is_locked()),
            huge_bytes: arenas.iter().map(|arena| arena.huge_bytes()).sum(),
        };
        if touches_later(&config) {
            engine.start_touching(arenas, regions)?;
        }
        if let Some(directory) = directory {
            let progress = Arc::clone(&engine.durability.progress);
            let options = durable_options(&config, &plan, progress);
            engine.unloaded = Mutex::new(Some((directory, options)));
            let _ = (engine.metrics.durable).set(Box::new(engine.durability()));
        }
        let _ = engine.metrics.local_memory.set(memory);
        let processors = limits::processors();
        if let Some(advice) = processors.advice(&config.cores) {
            tracing::info!(advice, "other cores would serve better");
        }
        tracing::info!(
            cores = ?config.cores,
            machine = %processors,
            local_bytes = config.local_bytes,
            far_bytes = config.far_bytes,
            page_bytes = sizes.page_bytes,
            locked = memory.is_locked,
            huge_bytes = memory.huge_bytes,
            "the engine is open"
        );
        Ok(engine)
    }

    /// Loads the data directory of an engine that was opened without. Blocks, so not to be called
    /// from a job.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or what it holds has no room: the engine is of no use
    /// then.
    pub fn load(&self) -> Result<()> {
        let unloaded = || self.unloaded.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = unloaded().take();
        if let Some((directory, options)) = taken {
            let durable = Durable::open(&self.shared, directory, options)?;
            let _ = self.durability.keeper.set(durable);
        }
        let metrics = &self.metrics;
        let startup_ns = metrics.clock.now_ns() - metrics.opened_ns;
        let _ = metrics.startup_ns.set(startup_ns);
        Ok(())
    }

    /// What others may do with the data directory.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability.clone()
    }

    /// All changes from a moment on, for a reader that passes them on.
    #[must_use]
    pub fn feed(&self) -> Feed {
        Feed::new(&self.shared.cores_shared)
    }

    /// An engine whose cores have not started, and the lanes that end on each.
    fn prepare(
        config: &Config,
        plan: &OpenPlan,
        nodes: Vec<Arc<EmbeddedNode>>,
        clock: Clock,
        opened_ns: u64,
    ) -> (Self, Vec<CoreLanes>) {
        let lifecycle = Arc::new(Lifecycle::default());
        #[cfg(not(feature = "simulation"))]
        let processor = |core: usize| core;
        // Which processor the thread of a world runs on must not change what happens in it.
        #[cfg(feature = "simulation")]
        let processor = |core: usize| {
            let is_inside = farcore_rdma::simulation::is_inside();
            if is_inside { usize::MAX } else { core }
        };
        let core_shared =
            |&core: &usize| Arc::new(CoreShared::new(Arc::clone(&lifecycle), processor(core)));
        let cores_shared: Vec<_> = config.cores.iter().map(core_shared).collect();
        let (lanes, handles) = wire(config, &plan.sizes, &cores_shared);
        let node_names = plan.far.names();
        let core = |_: &usize| Arc::new(CoreMetrics::new(node_names.positions()));
        let metrics = Arc::new(EngineMetrics {
            clock: clock.clone(),
            opened_ns,
            startup_ns: OnceLock::new(),
            local_cap_bytes: config.local_bytes,
            page_bytes: plan.sizes.page_bytes,
            local_memory: OnceLock::new(),
            touching: TouchProgress::default(),
            cores: config.cores.iter().map(core).collect(),
            embedded: nodes.iter().map(Arc::downgrade).collect(),
            node_names,
            lifecycle: Arc::clone(&lifecycle),
            counted: Mutex::default(),
            processors: config.cores.clone(),
            handles: handles
                .iter()
                .map(|handle| Arc::clone(&handle.latency))
                .collect(),
            durable: OnceLock::new(),
        });
        let shared = Arc::new(Shared {
            cores_shared,
            hasher: Hasher128::new(plan.seed).with_hash_tags(config.hash_tags),
            sizes: plan.sizes,
            lifecycle,
            free_handles: ArrayQueue::new(config.handles_max.max(1)),
            leaving: SegQueue::new(),
            handles_max: config.handles_max,
            section_ns: config.section_ns,
            clock,
        });
        for handle in handles {
            let _ = shared.free_handles.push(handle);
        }
        let engine = Self {
            shared,
            pool: Mutex::default(),
            metrics,
            nodes,
            membership: plan.far.membership(),
            cores: Vec::new(),
            heartbeats: plan.far.heartbeats(),
            toucher: Mutex::default(),
            durability: Durability::default(),
            unloaded: Mutex::default(),
        };
        (engine, lanes)
    }

    /// Starts every core. Returns their local memory, and where each core reports that it serves.
    fn start_cores(
        &mut self,
        config: &Config,
        plan: &OpenPlan,
        lanes: Vec<CoreLanes>,
    ) -> Result<Started> {
        let mut arenas = Vec::new();
        let (ready, outcome) = mpsc::channel();
        for (place, lanes) in lanes.into_iter().enumerate().rev() {
            let shard = u16::try_from(place).unwrap_or(u16::MAX);
            let options = region_options(config, plan.sizes.arena_bytes, config.lock)?;
            let numa_node = numa_node(&Root::new("/"), config.cores[place]);
            let arena = map_on(&options, numa_node)?;
            arenas.push(Arc::clone(&arena));
            self.start_core(config, plan, shard, lanes, arena, ready.clone())?;
        }
        // A wait ends with the last core that could still report.
        Ok((arenas, outcome))
    }

    /// Begins to touch memory in slices: local memory first.
    fn start_touching(&self, arenas: Vec<Arc<Region>>, far: Vec<Arc<Region>>) -> Result<()> {
        let progress = self.metrics.touching.clone();
        let toucher = Toucher::start(arenas, far, progress);
        let toucher = toucher.map_err(|error| limits::no_thread(&error.to_string()))?;
        *self.toucher.lock().unwrap_or_else(PoisonError::into_inner) = Some(toucher);
        Ok(())
    }

    fn start_core(
        &mut self,
        config: &Config,
        plan: &OpenPlan,
        shard: u16,
        lanes: CoreLanes,
        arena: Arc<Region>,
        ready: mpsc::Sender<Result<()>>,
    ) -> Result<()> {
        let place = usize::from(shard);
        let shards = u16::try_from(config.cores.len()).unwrap_or(u16::MAX);
        let metrics = Arc::clone(&self.metrics.cores[place]);
        let core_shared = Arc::clone(&self.shared.cores_shared[place]);
        let command_port = Arc::clone(&core_shared.command_port);
        let OpenPlan {
            salt, epoch, sizes, ..
        } = *plan;
        let cipher = config.encryption.as_ref();
        let mode = config.encryption_mode;
        let cipher = cipher.map(|key| PageCipher::new(key, mode, &salt, epoch, shard));
        let (far, tuning) = (plan.far.clone(), config.tuning());
        let evicts = config.when_full == WhenFull::Evict;
        let section_ns = config.section_ns;
        let forgets_lost = config.lost_keys == LostKeys::Forget;
        let keys_expected = config.keys_expected / u64::from(shards);
        let hasher = self.shared.hasher;
        let loads = config.data_dir.is_some();
        let build = async move || {
            metrics.count_events_here();
            let far = far.open(&sizes, shard, shards).await?;
            let shard_of = Shard::new(ShardOptions {
                shard,
                local_bytes: sizes.arena_bytes,
                page_bytes: sizes.page_bytes,
                keys_expected,
                cipher,
                epoch,
                endpoint: far.endpoint,
                arena,
                extents: far.extents,
                metrics: Arc::clone(&metrics),
                tuning,
                evicts,
                forgets_lost,
                key_hasher: hasher.into(),
                loads,
            })?;
            let time = Clock::new();
            let reactor = Reactor::new(ReactorOptions {
                shard: shard_of,
                own: shard,
                shards,
                hasher,
                command_port,
                servers: lanes.servers,
                lanes: lanes.neighbours,
                metrics,
                sampler: Sampler::new(time.clone()),
                section_ns,
                time,
            });
            Ok((reactor, far.steward))
        };
        let opened = move |outcome| {
            let _ = ready.send(outcome);
        };
        let core = config.cores[place];
        let watchdog = Watchdog::new(core, &self.metrics.cores[place]);
        let termination =
            reactor::start(core, core_shared, watchdog, config.spin_ns, build, opened)?;
        self.cores.push(termination);
        Ok(())
    }

    /// A handle for the calling thread. It may move to another thread, not be shared.
    ///
    /// # Errors
    /// [`Error::Handles`] when all are in use, [`Error::Closed`] after [`Engine::close`].
    pub fn handle(&self) -> Result<Handle> {
        if self.shared.lifecycle.is_closing() {
            return Err(Error::Closed);
        }
        let lanes = self.shared.take_lanes().ok_or(Error::Handles {
            limit: self.shared.handles_max,
        })?;
        Ok(Handle::new(Arc::clone(&self.shared), lanes))
    }

    /// A client for any number of threads and tasks. All clients of an engine share the lanes of a
    /// few handles: at least one, at most as many as the process has processors, and at most one
    /// less than [`Config::handles_max`], so that one of several is left for [`Engine::handle`]. A
    /// thread takes one at its first call, if one is free. More threads share them, and wait for
    /// each other for as long as a call takes to send its request.
    ///
    /// # Errors
    /// [`Error::Handles`] if all handles are taken; [`Error::Closed`].
    pub fn client(&self) -> Result<Client> {
        if self.shared.lifecycle.is_closing() {
            return Err(Error::Closed);
        }
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*pool {
            return Ok(Client::new(Arc::clone(pool)));
        }
        // More threads than run at once share stations at no loss.
        let threads = limits::processors_of_process().max(self.cores.len());
        let stations = threads.min(self.shared.handles_max.saturating_sub(1));
        let new = Arc::new(LanePool::new(&self.shared, stations)?);
        *pool = Some(Arc::clone(&new));
        Ok(Client::new(new))
    }

    /// True while every core serves: from opening to closing, but for as long as one of them is
    /// seen to serve nothing for a second although it was woken and had a processor (the figure
    /// `stalled`, and a line in the log that says what its thread did). That is what a job does
    /// that blocks its core without polling. Cost: two loads a core, which are no core's own work.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let serves = |(core_shared, core): (&Arc<CoreShared>, &Arc<CoreMetrics>)| {
            !core_shared.closed.load(Ordering::Acquire) && core.counters.stalled.get() == 0
        };
        let mut cores = self.shared.cores_shared.iter().zip(&self.metrics.cores);
        !self.shared.lifecycle.is_closing() && cores.all(serves)
    }

    /// Shards, which is cores.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shared.cores_shared.len()
    }

    /// The shard that holds a key: the position of its core in [`Config::cores`], where a job of
    /// [`Engine::run_on_core`] reaches it by a plain call. Cost: a hash of the key.
    #[must_use]
    pub fn shard_of(&self, key: &[u8]) -> usize {
        self.shared.shard_of(key)
    }

    /// True if one shard holds all of these keys, so that one [`Transaction`](crate::Transaction)
    /// can name them. Keys with one hash tag lie together where [`Config::hash_tags`] is set. Cost:
    /// a hash of each key.
    ///
    /// ```
    /// use farcore::{Config, Engine};
    ///
    /// # let sizes = Config { local_bytes: 64 << 20, far_bytes: 64 << 20, keys_expected: 10_000, ..Config::default() };
    /// let engine = Engine::open(Config { hash_tags: true, ..sizes })?;
    /// assert!(engine.same_shard(["{user:7}:name", "{user:7}:mail", "{user:7}"]));
    /// # Ok::<(), farcore::Error>(())
    /// ```
    #[must_use]
    pub fn same_shard<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> bool {
        let mut shards = keys.into_iter().map(|key| self.shard_of(key.as_ref()));
        let first = shards.next();
        shards.all(|shard| Some(shard) == first)
    }

    /// The longest value, in bytes.
    #[must_use]
    pub fn value_bytes_max(&self) -> usize {
        self.shared.sizes.value_bytes_max
    }

    /// Runs a job on a core, by its position in [`Config::cores`]. There it reaches its own shard
    /// by a plain call.
    ///
    /// It never waits, so a job may start any number of jobs, on its own core as well. All of them
    /// run. Up to 4095 jobs of a core can have requests; another one's first request waits until
    /// one of these has ended. A panic of the job, of its future or of what that drops is its
    /// result. A result that is dropped unread and panics as it is dropped is logged.
    ///
    /// A job that runs long should `yield_now` now and then. While it runs, its core runs no other
    /// job and serves no request of other cores or handles.
    ///
    /// # Errors
    /// [`Error::Position`] if there is no such position, [`Error::Closed`] after [`Engine::close`].
    pub fn run_on_core<T, F>(
        &self,
        position: usize,
        job: impl FnOnce(Core) -> F + Send + 'static,
    ) -> Result<Task<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        spawn_on_core(&self.shared, position, job)
    }

    /// Writes a snapshot of what is stored into the data directory, while the engine serves, and
    /// waits for its end; one that is under way is finished first. With a log, a snapshot makes it
    /// shorter. Not to be called from a job.
    ///
    /// Cost: every record is read once, and written in order. Each core rests as long as it works
    /// for it. Changes are logged meanwhile, whatever [`Config::log`] says.
    ///
    /// # Errors
    /// [`Error::NoDataDirectory`] without [`Config::data_dir`]; [`Error::BaseIncomplete`] and those
    /// of a read if a record cannot be read; [`Error::Storage`] if the disk fails or is full. The
    /// snapshot before stays, and what was written of this one is removed.
    pub fn snapshot(&self) -> Result<SnapshotSummary> {
        self.durability.snapshot()
    }

    /// Restores from the data directory what memory nodes have lost, while the engine serves, and
    /// waits for its end. An engine with a log does so by itself soon after a loss; this begins at
    /// once. Not to be called from a job.
    ///
    /// A key stays unavailable until it has its newest state again; one that is written or deleted
    /// meanwhile keeps what that left. Afterwards nothing is unavailable: what no file has was not
    /// stored any more.
    ///
    /// Cost: all files since the last snapshot are read, the log twice. Cores rest as long as they
    /// work for it, up to 10 ms each time.
    ///
    /// # Errors
    /// [`Error::NoDataDirectory`] without [`Config::data_dir`]; [`Error::RepairNeedsLog`] with
    /// [`LogPolicy::Off`](crate::LogPolicy::Off); [`Error::RepairInterrupted`] if more is lost
    /// meanwhile; [`Error::Storage`] if a file cannot be read or is damaged; [`Error::FarFull`] if
    /// the memory that is left has no room. What was restored until then stays, and an engine tries
    /// the rest again by itself.
    pub fn repair(&self) -> Result<RepairSummary> {
        self.durability.repair()
    }

    /// What there is to say of the data directory; `None` without one.
    #[must_use]
    pub fn durable_stats(&self) -> Option<DurableStats> {
        self.durability.stats()
    }

    /// Figures of all shards. Reading them stops no core.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.metrics.stats()
    }

    /// Reads the figures of every core in full: for a statistics socket, Prometheus or a test.
    #[must_use]
    pub fn reporter(&self) -> EngineReporter {
        EngineReporter(Arc::clone(&self.metrics))
    }

    /// The embedded memory nodes, for tests that lose or damage them; none where [`Config::nodes`]
    /// names others.
    #[must_use]
    pub fn embedded_nodes(&self) -> &[Arc<EmbeddedNode>] {
        &self.nodes
    }

    /// Compacts far memory until no page is worth it. Blocks; requests go on. A job that calls it
    /// keeps the other jobs of its core waiting.
    ///
    /// # Errors
    /// [`Error::Closed`] if the engine closes meanwhile; [`Error::FarFull`] or
    /// [`Error::Unavailable`] if it could not be done in full because far memory as a whole gives
    /// no way. A page on one lost node is no error.
    pub fn compact(&self) -> Result<()> {
        self.order(|command_port| &command_port.compact)
    }

    /// Copies everything that is only local to far memory. Blocks; requests go on. A job that calls
    /// it keeps the other jobs of its core waiting.
    ///
    /// # Errors
    /// [`Error::Closed`] if the engine closes meanwhile; [`Error::FarFull`] or
    /// [`Error::Unavailable`] if far memory as a whole could not take it. One lost node is no error
    /// while another has room.
    pub fn flush(&self) -> Result<()> {
        self.order(|command_port| &command_port.flush)
    }

    /// Has every key whose record was lost count as absent from now on, and answers how many there
    /// may be of them. Until then such a key answers [`Error::Unavailable`], unless it is written
    /// or deleted; so may, rarely, a key that was never stored, for of a lost record only some bits
    /// of its key's hash are known. What is lost after this call is not forgotten by it.
    ///
    /// Blocks until the index has given the room back, so not to be called from a job, which has
    /// [`Core::forget_lost`](crate::Core::forget_lost); requests go on. Cost: the index is read
    /// once, in slices between requests; nothing, if nothing was lost.
    ///
    /// # Errors
    /// [`Error::Closed`] if the engine closes meanwhile.
    pub fn forget_lost(&self) -> Result<u64> {
        let cores_shared = || self.shared.cores_shared.iter();
        let forgotten = || -> u64 {
            cores_shared()
                .map(|core_shared| core_shared.command_port.keys_forgotten())
                .sum()
        };
        let before = forgotten();
        self.order(|command_port| &command_port.forget)?;
        Ok(forgotten() - before)
    }

    fn order(&self, which: impl Fn(&CommandPort) -> &Command) -> Result<()> {
        if self.shared.lifecycle.is_closing() {
            return Err(Error::Closed);
        }
        let tickets: Vec<_> = self
            .shared
            .cores_shared
            .iter()
            .map(|core_shared| {
                let ticket = which(&core_shared.command_port).request();
                // The wake alone is not enough for a shard that is just falling asleep: mark a lane
                // as well.
                core_shared.command_port.wakeup.ring(0);
                ticket
            })
            .collect();
        let mut failed = None;
        for (core_shared, ticket) in self.shared.cores_shared.iter().zip(tickets) {
            while !which(&core_shared.command_port).is_done(ticket) {
                if core_shared.closed.load(Ordering::Acquire) {
                    return Err(Error::Closed);
                }
                if !serve_current_core() {
                    std::thread::sleep(WAIT);
                }
            }
            failed = failed.or(which(&core_shared.command_port).shortfall());
        }
        match failed {
            None => Ok(()),
            Some(Shortfall::FarFull) => {
                let stats = self.stats();
                Err(Error::FarFull {
                    shard: None,
                    used: stats.far_used_bytes,
                    limit: stats.far_total_bytes,
                })
            }
            Some(Shortfall::Unavailable) => Err(Error::Unavailable {
                node: self.metrics.node_names.joined().into(),
                reason: "no node takes what a shard has to give".into(),
            }),
        }
    }

    /// Answers everything that is under way, waits for running jobs, and stops the cores. May be
    /// called again.
    ///
    /// Called from a job of this engine, or where a job drops the engine, it only starts that and
    /// returns: the cores stop when the last job has ended, this one included, and its result
    /// arrives as ever.
    ///
    /// The cores' threads stay, asleep, for the next engine that this process opens on the same
    /// cores.
    pub fn close(&self) {
        if let Some(durable) = self.durability.keeper.get()
            && !is_core_of(&self.shared.lifecycle)
        {
            durable.stop();
            // It must end before the cores do, in steps of the world: closed again then.
            #[cfg(feature = "simulation")]
            if farcore_rdma::simulation::is_inside() && !durable.has_ended() {
                return;
            }
        }
        self.shared.lifecycle.close();
        for core_shared in &self.shared.cores_shared {
            core_shared.command_port.wakeup.ring(0);
        }
        // Ends within a slice.
        drop(
            self.toucher
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        if is_core_of(&self.shared.lifecycle) {
            return;
        }
        // Its one thread must not wait here: closed again once all tasks have ended.
        #[cfg(feature = "simulation")]
        if farcore_rdma::simulation::is_inside() && !self.cores.iter().all(|core| core.has_come()) {
            return;
        }
        for core in &self.cores {
            while !core.has_come() && serve_current_core() {}
            core.wait();
        }
        if let Some(durable) = self.durability.keeper.get() {
            durable.release();
        }
        // Only now: the cores have given back what their sessions held.
        if let Some(heartbeats) = &self.heartbeats {
            heartbeats.stop();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

/// An engine in a simulated world: its cores are tasks that the simulation polls.
#[cfg(feature = "simulation")]
#[derive(Debug)]
pub struct SimulatedEngine {
    engine: Engine,
    outcome: mpsc::Receiver<Result<()>>,
    opened: usize,
    mapped_bytes: u64,
    /// Where the outcome of loading the data directory will be, once it was begun.
    loaded: Option<mpsc::Receiver<Result<()>>>,
}

#[cfg(feature = "simulation")]
impl SimulatedEngine {
    /// Begins to open an engine whose far memory lies on simulated memory nodes.
    ///
    /// # Errors
    /// The errors of [`Config::validate`].
    pub fn begin(config: &Config) -> Result<Self> {
        Self::begin_on(config, None)
    }

    /// As [`SimulatedEngine::begin`], with a data directory on a simulated disk if
    /// [`Config::data_dir`] names one.
    ///
    /// # Errors
    /// The errors of [`Config::validate`].
    pub fn begin_on(config: &Config, medium: Option<Arc<dyn SimulatedMedium>>) -> Result<Self> {
        reactor::simulated::begin();
        let clock = Clock::new();
        let opened_ns = clock.now_ns();
        let sizes = config.sizes()?;
        let plan = OpenPlan::draw(config, sizes, FarPlan::new(config, &[])?)?;
        let (mut engine, lanes) = Engine::prepare(config, &plan, Vec::new(), clock, opened_ns);
        let (_, outcome) = engine.start_cores(config, &plan, lanes)?;
        if let (Some(path), Some(medium)) = (&config.data_dir, medium) {
            let directory = Directory::simulated(path, Medium::Simulated(medium));
            let progress = Arc::clone(&engine.durability.progress);
            let options = durable_options(config, &plan, progress);
            engine.unloaded = Mutex::new(Some((directory, options)));
        }
        Ok(Self {
            engine,
            outcome,
            opened: 0,
            mapped_bytes: sizes.arena_bytes * config.cores.len() as u64,
            loaded: None,
        })
    }

    /// True once all cores serve, and the data directory is loaded if there is one.
    ///
    /// # Errors
    /// What kept a core from opening, or what is wrong with the directory.
    pub fn is_open(&mut self) -> Result<bool> {
        while let Ok(outcome) = self.outcome.try_recv() {
            outcome?;
            self.opened += 1;
        }
        if self.opened < self.engine.cores.len() {
            return Ok(false);
        }
        let unloaded = self.engine.unloaded.lock();
        let unloaded = unloaded.unwrap_or_else(PoisonError::into_inner).take();
        if let Some((directory, options)) = unloaded {
            let (durable, loaded) = Durable::begin(&self.engine.shared, directory, options);
            let _ = self.engine.durability.keeper.set(durable);
            self.loaded = Some(loaded);
        }
        match &self.loaded {
            None => Ok(true),
            Some(loaded) => match loaded.try_recv() {
                Ok(outcome) => {
                    self.loaded = None;
                    outcome.map(|()| true)
                }
                Err(_) => Ok(false),
            },
        }
    }

    /// Has a snapshot written. Where its outcome will be.
    ///
    /// # Errors
    /// Those of [`Engine::snapshot`] that come at once.
    pub fn begin_snapshot(&self) -> Result<mpsc::Receiver<Result<SnapshotSummary>>> {
        let keeper = self.engine.durability.keeper.get();
        keeper.ok_or(Error::NoDataDirectory)?.begin_snapshot()
    }

    /// The engine. Nothing that blocks may be called on it.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Checks the invariants of every shard.
    ///
    /// # Panics
    /// One does not hold.
    pub fn check(&self) {
        for reactor in reactor::simulated::reactors() {
            reactor.borrow().check();
        }
    }

    /// How far the journals of all cores are, to be read by people.
    #[must_use]
    pub fn journals(&self) -> Vec<String> {
        let reactors = reactor::simulated::reactors();
        let states = reactors
            .iter()
            .map(|reactor| reactor.borrow().journal_state());
        states.collect()
    }

    /// Every extent that a shard counts as its own: the core, the node's address, the place.
    #[must_use]
    pub fn owned_places(&self) -> Vec<(usize, FabricAddress, farcore_rdma::RemoteSlice)> {
        let nodes = self.engine.membership.iter().flat_map(|one| one.nodes());
        let nodes: HashMap<_, _> = nodes.map(|(at, node)| (at, node.address)).collect();
        let mut all = Vec::new();
        for (core, reactor) in reactor::simulated::reactors().iter().enumerate() {
            let places = reactor.borrow_mut().shard().owned_places();
            let named = |(position, place)| (core, nodes[&position].clone(), place);
            all.extend(places.into_iter().map(named));
        }
        all
    }

    /// Bytes of local memory that are mapped: the arenas of all shards. The rest is allocated.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes
    }

    /// The time for keys that expire, of each shard.
    #[must_use]
    pub fn unix_ms(&self) -> Vec<u64> {
        let reactors = reactor::simulated::reactors();
        let times = reactors.iter().map(|reactor| {
            let mut reactor = reactor.borrow_mut();
            reactor.shard().unix_ms()
        });
        times.collect()
    }

    /// Collections with nodes of their own, dying ones too, and their nodes.
    #[must_use]
    pub fn census_of_trees(&self) -> (usize, usize) {
        let reactors = reactor::simulated::reactors();
        let all = reactors.iter().map(|reactor| {
            let mut reactor = reactor.borrow_mut();
            reactor.shard().census_of_trees()
        });
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Has nodes of collections divided beyond so few entries.
    pub fn limit_tree_nodes(&self, entries_max: usize) {
        for reactor in reactor::simulated::reactors() {
            reactor.borrow_mut().shard().limit_tree_nodes(entries_max);
        }
    }

    /// Gives the tables of each shard less room than memory allows: keys, bytes of the table of
    /// collections, and pieces of long values.
    pub fn limit_tables(&self, keys: usize, tree_bytes: u64, pieces: usize) {
        for reactor in reactor::simulated::reactors() {
            let mut reactor = reactor.borrow_mut();
            reactor.shard().limit_tables(keys, tree_bytes, pieces);
        }
    }

    /// The shard of a key, and the half of its hash that the index uses.
    #[must_use]
    pub fn place_of(&self, key: &[u8]) -> (u16, u64) {
        let hasher = self.engine.shared.hasher;
        let hash = hasher.hash(key);
        let shards = u16::try_from(self.engine.cores.len()).unwrap_or(u16::MAX);
        (hasher.shard(key, hash, shards), hash.index.0)
    }

    /// The machine has lost its power: no client waits for a core any more. It is left next.
    pub fn crash(&self) {
        self.engine.shared.lifecycle.close();
        for core_shared in &self.engine.shared.cores_shared {
            core_shared.closed.store(true, Ordering::Release);
        }
    }

    /// Has the engine close; [`SimulatedEngine::is_closed`] once it has.
    pub fn close(&self) {
        self.engine.close();
    }

    /// True once all cores have ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // The cores stop when the keeper has.
        if !self.engine.shared.lifecycle.is_closing() {
            self.engine.close();
        }
        self.engine.cores.iter().all(|core| core.has_come())
    }
}

fn empty<T>(count: usize) -> Vec<Option<T>> {
    (0..count).map(|_| None).collect()
}

/// Makes every lane: between each two cores, and from each handle to each core.
fn wire(
    config: &Config,
    sizes: &Sizes,
    cores_shared: &[Arc<CoreShared>],
) -> (Vec<CoreLanes>, Vec<HandleLanes>) {
    let cores = cores_shared.len();
    // As the budget counts them: the longest value with its key, and what a size class adds.
    let oversize = sizes.value_bytes_max + 2 * KEY_BYTES_MAX;
    let core = |_| CoreLanes {
        servers: empty(cores),
        neighbours: empty(cores),
    };
    let mut ends: Vec<_> = (0..cores).map(core).collect();
    for second in 0..cores {
        for first in 0..second {
            let [there, back] = lanes(sizes.lane_bytes, oversize);
            for (from, to, (client, server)) in [(first, second, there), (second, first, back)] {
                ends[to].servers[from] = Some(server);
                let core_shared = Arc::clone(&cores_shared[to]);
                ends[from].neighbours[to] = Some((client, core_shared));
            }
        }
    }
    let mut handles = Vec::new();
    for handle in 0..config.handles_max {
        let client_waker = Arc::new(ClientWaker::default());
        let number = u8::try_from(cores + handle).unwrap_or(u8::MAX);
        let mut lanes = Vec::new();
        for end in &mut ends {
            let client_waker = Some(Arc::clone(&client_waker));
            let (client, server) = lane(config.handle_lane_bytes, oversize, client_waker);
            lanes.push(client);
            end.servers.push(Some(server));
        }
        handles.push(HandleLanes {
            lanes,
            client_waker,
            number,
            latency: Arc::default(),
        });
    }
    (ends, handles)
}
