//! The engine: opens the shards on their cores, hands out handles, runs jobs and closes.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use crossbeam_queue::{ArrayQueue, SegQueue};
use farcore_rdma::{EmbeddedNode, Heartbeats, Region, RegionOptions};
use farcore_tuning::{Clock, Root, Sampler};

use crate::cipher::{PageCipher, random_salt};
use crate::client::core::Core;
use crate::client::handle::Handle;
use crate::client::lanes::{HandleLanes, Shared};
use crate::config::{Config, Sizes};
use crate::constants::KEY_BYTES_MAX;
use crate::error::{Error, Result};
use crate::executor::{self, Termination};
use crate::far_memory::FarPlan;
use crate::lifecycle::Lifecycle;
use crate::limits::{self, EXECUTOR_DESCRIPTORS, MemoryNeed, NODE_DESCRIPTORS};
use crate::message::hash::Hasher128;
use crate::observe::metrics::{CoreMetrics, EngineMetrics, EngineReporter, Stats};
use crate::reactor::{
    self, Command, CommandPort, CoreShared, Job, Reactor, ReactorOptions, Task, Watchdog,
    is_core_of, serve_current_core,
};
use crate::shard::{Shard, ShardOptions, Shortfall};
use crate::transport::lane::{ClientWaker, LaneClient, LaneServer, lane, lanes};

/// How often a blocking wait for the whole engine looks again.
const WAIT: Duration = Duration::from_micros(200);

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
    metrics: Arc<EngineMetrics>,
    nodes: Vec<Arc<EmbeddedNode>>,
    /// By core.
    cores: Vec<Arc<Termination>>,
    /// Keeps the sessions at memory nodes, where there are any.
    heartbeats: Option<Arc<Heartbeats>>,
}

fn map(options: &RegionOptions) -> Result<Arc<Region>> {
    let region = Region::map(options);
    Ok(Arc::new(region.map_err(|error| Error::Memory {
        reason: error.to_string(),
    })?))
}

fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| Error::Memory {
        reason: format!("no random bytes: {error}"),
    })
}

impl Engine {
    /// Maps the memory, starts a pinned executor on each core and waits until all serve.
    ///
    /// Call it from a thread that is not pinned: a pinned one can only start threads on its own
    /// core.
    ///
    /// # Errors
    /// Whatever keeps the engine from working, with the limit and the value: [`Error::Config`],
    /// [`Error::Core`], [`Error::IoUring`], [`Error::Memory`], [`Error::Threads`],
    /// [`Error::Descriptors`]. What did start has ended by then.
    pub fn open(config: Config) -> Result<Self> {
        let clock = Clock::new();
        let opened_ns = clock.now_ns();
        let sizes = config.sizes()?;
        limits::check(
            (executor::missing(&config.cores) + usize::from(!config.nodes.is_empty()))
                * EXECUTOR_DESCRIPTORS
                + config.cores.len() * config.nodes.len() * NODE_DESCRIPTORS,
        )?;
        let embedded = if config.nodes.is_empty() {
            config.embedded_nodes
        } else {
            0
        };
        let need = MemoryNeed {
            local_bytes: config.local_bytes,
            far_bytes: u64::from(config.prefault) * embedded as u64 * sizes.node_bytes,
        };
        limits::check_memory(need, &Root::new("/"))?;
        let shards = u16::try_from(config.cores.len()).unwrap_or(u16::MAX);
        let options = |bytes: u64, lock| -> Result<RegionOptions> {
            let bytes = usize::try_from(bytes).map_err(|_| Error::Memory {
                reason: format!("{bytes} bytes do not fit"),
            })?;
            let (huge_pages, prefault) = (config.huge_pages, config.prefault);
            Ok(RegionOptions {
                bytes,
                huge_pages,
                lock,
                prefault,
            })
        };
        let node = |_| {
            let far = map(&options(sizes.node_bytes, farcore_rdma::Lock::Off)?)?;
            Ok(Arc::new(EmbeddedNode::new(far, config.link.clone())))
        };
        let nodes: Vec<_> = (0..embedded).map(node).collect::<Result<_>>()?;
        let far = FarPlan::new(&config, &nodes)?;
        let node_names = far.names();
        let seed = config.seed.map_or_else(random, Ok)?;
        let hasher = Hasher128::new(seed);
        let epoch = u32::try_from(random()? >> 32).unwrap_or(0);
        let salt = random_salt()?;
        let lifecycle = Arc::new(Lifecycle::default());
        let core_shared = |_| Arc::new(CoreShared::new(Arc::clone(&lifecycle)));
        let cores_shared: Vec<_> = config.cores.iter().map(core_shared).collect();
        let (mut servers, mut neighbours, handles) = wire(&config, &sizes, &cores_shared);
        let shared = Arc::new(Shared {
            cores_shared,
            hasher,
            sizes,
            lifecycle,
            free_handles: ArrayQueue::new(config.handles_max.max(1)),
            leaving: SegQueue::new(),
            handles_max: config.handles_max,
            clock: clock.clone(),
        });
        let core = |_| Arc::new(CoreMetrics::new(node_names.len()));
        let metrics = Arc::new(EngineMetrics {
            clock: clock.clone(),
            opened_ns,
            startup_ns: OnceLock::new(),
            local_cap_bytes: config.local_bytes,
            page_bytes: sizes.page_bytes,
            locked: OnceLock::new(),
            cores: (0..shards).map(core).collect(),
            node_names,
            embedded: nodes.iter().map(Arc::downgrade).collect(),
            lifecycle: Arc::clone(&shared.lifecycle),
            counted: Mutex::default(),
            processors: config.cores.clone(),
            handles: handles
                .iter()
                .map(|handle| Arc::clone(&handle.latency))
                .collect(),
        });
        for handle in handles {
            let _ = shared.free_handles.push(handle);
        }
        // Made before the first thread is: dropped on an error, it closes the cores that did start.
        let mut engine = Self {
            shared,
            metrics,
            nodes,
            cores: Vec::new(),
            heartbeats: far.heartbeats(),
        };
        let mut locked = true;
        let (ready, outcome) = mpsc::channel();
        for shard in (0..shards).rev() {
            let arena = map(&options(sizes.arena_bytes, config.lock)?)?;
            locked &= arena.is_locked();
            let place = usize::from(shard);
            let metrics = Arc::clone(&engine.metrics.cores[place]);
            let core_shared = Arc::clone(&engine.shared.cores_shared[place]);
            let command_port = Arc::clone(&core_shared.command_port);
            let (servers, neighbours) = (
                servers.pop().unwrap_or_default(),
                neighbours.pop().unwrap_or_default(),
            );
            let cipher = config.encryption.as_ref();
            let mode = config.encryption_mode;
            let cipher = cipher.map(|key| PageCipher::new(key, mode, &salt, epoch, shard));
            let (far, tuning) = (far.clone(), config.tuning());
            let keys_expected = config.keys_expected / u64::from(shards);
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
                    key_hasher: hasher.into(),
                })?;
                let time = Clock::new();
                let reactor = Reactor::new(ReactorOptions {
                    shard: shard_of,
                    own: shard,
                    shards,
                    hasher,
                    command_port,
                    servers,
                    lanes: neighbours,
                    metrics,
                    sampler: Sampler::new(time.clone()),
                    time,
                });
                Ok((reactor, far.keepers))
            };
            let ready = ready.clone();
            let heard = move |made| {
                let _ = ready.send(made);
            };
            let core = config.cores[place];
            let watchdog = Watchdog::new(core, &engine.metrics.cores[place]);
            let ended = reactor::start(core, core_shared, watchdog, config.spin_ns, build, heard)?;
            engine.cores.push(ended);
        }
        // What waits for news of a core ends with the last core that could have any.
        drop(ready);
        for _ in 0..shards {
            outcome.recv().unwrap_or(Err(Error::Closed))?;
        }
        let _ = engine.metrics.startup_ns.set(clock.now_ns() - opened_ns);
        let _ = engine.metrics.locked.set(locked);
        tracing::info!(
            cores = ?config.cores,
            local_bytes = config.local_bytes,
            far_bytes = config.far_bytes,
            page_bytes = sizes.page_bytes,
            locked,
            "the engine is open"
        );
        Ok(engine)
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

    /// True while every core serves: from opening to closing, but for as long as one of them is
    /// seen to serve nothing for a second although it was woken (the figure `stalled`, and a line
    /// in the log). That is what a job does that blocks its core without polling. Cost: two loads a
    /// core, which are no core's own work.
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
        let shards = u16::try_from(self.shards()).unwrap_or(u16::MAX);
        usize::from(self.shared.hasher.hash(key).shard(shards))
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
    /// result. Where nobody waits for a result, its panic when it is dropped is logged.
    ///
    /// A job that runs long should `yield_now` now and then, so that other jobs of the core get on,
    /// and what others ask of its shard is answered: while a job runs, nobody else serves that.
    ///
    /// # Errors
    /// [`Error::Core`] if there is no such position, [`Error::Closed`] after [`Engine::close`].
    pub fn run_on_core<T, F>(
        &self,
        position: usize,
        job: impl FnOnce(Core) -> F + Send + 'static,
    ) -> Result<Task<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let Some(core_shared) = self.shared.cores_shared.get(position) else {
            return Err(Error::Core {
                core: position,
                available: (0..self.shards()).collect(),
            });
        };
        let ticket = self.shared.lifecycle.begin_job().ok_or(Error::Closed)?;
        let value_bytes_max = self.shared.sizes.value_bytes_max;
        let client = move |reactor, ticket| Core::new(reactor, value_bytes_max, ticket);
        let (job, task) = Job::new(ticket, client, job);
        core_shared.jobs.push(job);
        core_shared.command_port.wakeup.wake_service();
        Ok(task)
    }

    /// Figures of all shards. Reading them stops nobody.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.metrics.stats()
    }

    /// Reads the figures of every core in full, for whoever shows them: a statistics socket,
    /// Prometheus, a test.
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
    /// Blocks until the index has given the room back, so not to be called from a job; requests go
    /// on. Cost: the index is read once, in slices between requests; nothing, if nothing was lost.
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
                let ticket = which(&core_shared.command_port).ask();
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
                    used: stats.far_used_bytes,
                    limit: stats.far_total_bytes,
                })
            }
            Some(Shortfall::Unavailable) => Err(Error::Unavailable {
                node: self.metrics.node_names.join(", ").into(),
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
        self.shared.lifecycle.close();
        for core_shared in &self.shared.cores_shared {
            core_shared.command_port.wakeup.ring(0);
        }
        if is_core_of(&self.shared.lifecycle) {
            return;
        }
        for core in &self.cores {
            while !core.has_come() && serve_current_core() {}
            core.wait();
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

type Servers = Vec<Option<LaneServer>>;
type Neighbours = Vec<Option<(LaneClient, Arc<CommandPort>)>>;

/// So many places that nobody has yet.
fn nobody<T>(count: usize) -> Vec<Option<T>> {
    (0..count).map(|_| None).collect()
}

/// Makes every lane: between each two cores, and from each handle to each core.
fn wire(
    config: &Config,
    sizes: &Sizes,
    cores_shared: &[Arc<CoreShared>],
) -> (Vec<Servers>, Vec<Neighbours>, Vec<HandleLanes>) {
    let cores = cores_shared.len();
    // As the budget counts them: the longest value with its key, and what a size class adds.
    let oversize = sizes.value_bytes_max + 2 * KEY_BYTES_MAX;
    let mut servers: Vec<Servers> = (0..cores).map(|_| nobody(cores)).collect();
    let mut neighbours: Vec<Neighbours> = (0..cores).map(|_| nobody(cores)).collect();
    for second in 0..cores {
        for first in 0..second {
            let [there, back] = lanes(sizes.lane_bytes, oversize);
            for (from, to, (client, server)) in [(first, second, there), (second, first, back)] {
                servers[to][from] = Some(server);
                let command_port = Arc::clone(&cores_shared[to].command_port);
                neighbours[from][to] = Some((client, command_port));
            }
        }
    }
    let mut handles = Vec::new();
    for handle in 0..config.handles_max {
        let client_waker = Arc::new(ClientWaker::default());
        let number = u8::try_from(cores + handle).unwrap_or(u8::MAX);
        let mut lanes = Vec::new();
        for row in &mut servers {
            let client_waker = Some(Arc::clone(&client_waker));
            let (client, server) = lane(config.handle_lane_bytes, oversize, client_waker);
            lanes.push(client);
            row.push(Some(server));
        }
        handles.push(HandleLanes {
            lanes,
            client_waker,
            number,
            latency: Arc::default(),
        });
    }
    (servers, neighbours, handles)
}
