//! The metrics of a running engine, and how they are read.
//!
//! [`CoreMetrics`] belongs to one core, which alone writes it. [`EngineMetrics`] gathers those of
//! all cores and handles for snapshots and reports.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use farcore_rdma::{EmbeddedNode, TouchProgress};
use farcore_tuning::{
    Clock, CoreReport, DataReport, HardwareCounters, HardwareSnapshot, Histogram,
    HistogramSnapshot, HotKeysReader, NodeCounters, NodeReport, NodeSnapshot, Report, Reporter,
    ShardCounters, ShardSnapshot, resident_bytes,
};

use super::node_names::NodeNames;
use super::removals::Removals;
use crate::lifecycle::Lifecycle;

/// How long a measurement of resident far memory is reused for reports, in nanoseconds.
const RESIDENT_LATELY_NS: u64 = 5_000_000_000;
/// Hot keys of a core in a report.
const HOT_KEYS: usize = 16;

/// Metrics that one core writes and any thread may read.
#[derive(Debug)]
pub(crate) struct CoreMetrics {
    pub(crate) counters: ShardCounters,
    /// Counters by memory node.
    pub(crate) nodes: Box<[NodeCounters]>,
    /// Requests in each batch.
    pub(crate) batches: Histogram,
    /// Latency of requests to the core's own shard, in nanoseconds.
    pub(crate) local: Histogram,
    /// Latency of requests to other shards, in nanoseconds.
    pub(crate) cross: Histogram,
    /// Time from the start of a flight to the answer of its last request, in nanoseconds.
    pub(crate) far: Histogram,
    /// Keys that its shard has removed by itself.
    pub(crate) removals: Removals,
    hot_keys: OnceLock<HotKeysReader>,
    hardware: OnceLock<HardwareCounters>,
    /// The number of the core's thread.
    thread: OnceLock<i32>,
}

impl CoreMetrics {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            counters: ShardCounters::default(),
            nodes: (0..nodes).map(|_| NodeCounters::default()).collect(),
            batches: Histogram::default(),
            local: Histogram::default(),
            cross: Histogram::default(),
            far: Histogram::default(),
            removals: Removals::default(),
            hot_keys: OnceLock::new(),
            hardware: OnceLock::new(),
            thread: OnceLock::new(),
        }
    }

    /// Sets where the core's hot keys are read; only the first call counts.
    pub(crate) fn watch_hot_keys(&self, reader: HotKeysReader) {
        let _ = self.hot_keys.set(reader);
    }

    /// Starts to count processor events of the calling thread, which is the core's; only the first
    /// call counts.
    pub(crate) fn count_events_here(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let _ = self.thread.set(thread);
        let _ = self.hardware.set(HardwareCounters::open_here());
    }

    /// The number of the core's thread, once it has one.
    pub(crate) fn thread(&self) -> Option<i32> {
        self.thread.get().copied()
    }

    /// Processor events of the core's thread.
    pub(crate) fn hardware(&self) -> HardwareSnapshot {
        let counters = self.hardware.get();
        counters.map_or_else(HardwareSnapshot::default, HardwareCounters::snapshot)
    }
}

/// Metrics of a running engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The counters of each shard.
    pub shards: Vec<ShardSnapshot>,
    /// Their sum.
    pub total: ShardSnapshot,
    /// How long requests waited for far memory, in nanoseconds, accurate to a few turns of a shard.
    /// Requests that shared a READ count once.
    pub far_latency: HistogramSnapshot,
    /// The cap on local memory, in bytes.
    pub local_cap_bytes: u64,
    /// Far memory in use, in bytes of whole extents.
    pub far_used_bytes: u64,
    /// Far memory in all, in bytes.
    pub far_total_bytes: u64,
    /// Bytes of embedded far memory that are present in this process.
    pub far_resident_bytes: u64,
    /// Time to open the engine, including touching memory, in nanoseconds.
    pub startup_ns: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// True if all local memory is locked.
    pub locked: bool,
    /// Bytes of local memory that lay in huge pages when the engine had opened, or when all of it
    /// was touched after that.
    pub huge_bytes: u64,
    /// Bytes that were touched since the engine opened, of [`Stats::to_touch_bytes`].
    pub touched_bytes: u64,
    /// Bytes to be touched in slices: 0 unless
    /// [`Config::prefault_later`](crate::Config::prefault_later) is set.
    pub to_touch_bytes: u64,
}

/// What the system has made of the local memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LocalMemory {
    /// All of it is locked.
    pub(crate) is_locked: bool,
    /// Bytes in huge pages.
    pub(crate) huge_bytes: u64,
}

/// Where the figures of a data directory come from.
pub(crate) trait DurableSource: fmt::Debug + Send + Sync {
    /// The figures at this moment.
    fn report(&self) -> DataReport;
}

/// Everything that an engine's metrics are read from.
#[derive(Debug)]
pub(crate) struct EngineMetrics {
    pub(crate) clock: Clock,
    pub(crate) opened_ns: u64,
    /// Set once all cores serve.
    pub(crate) startup_ns: OnceLock<u64>,
    pub(crate) local_cap_bytes: u64,
    pub(crate) page_bytes: u32,
    pub(crate) local_memory: OnceLock<LocalMemory>,
    /// How far memory is touched in slices.
    pub(crate) touching: TouchProgress,
    pub(crate) node_names: Arc<NodeNames>,
    /// Weak: a reader of metrics keeps no far memory alive.
    pub(crate) embedded: Vec<Weak<EmbeddedNode>>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// Time and result of the last measurement of resident far memory.
    pub(crate) counted: Mutex<Option<(u64, u64)>>,
    /// The processor of each core.
    pub(crate) processors: Vec<usize>,
    pub(crate) cores: Vec<Arc<CoreMetrics>>,
    /// Latency of each handle's requests, in nanoseconds.
    pub(crate) handles: Vec<Arc<Histogram>>,
    /// The data directory, if there is one.
    pub(crate) durable: OnceLock<Box<dyn DurableSource>>,
}

impl EngineMetrics {
    /// Bytes of embedded far memory that are resident. Cost: a check of every page of it.
    fn far_resident_bytes(&self) -> u64 {
        let nodes = self.embedded.iter().filter_map(Weak::upgrade);
        nodes.map(|node| node.resident_bytes()).sum()
    }

    /// Bytes of embedded far memory that are resident; a recent measurement is reused.
    fn far_resident_bytes_lately(&self) -> u64 {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = self.clock.now_ns();
        match *counted {
            Some((then_ns, bytes)) if now_ns.saturating_sub(then_ns) < RESIDENT_LATELY_NS => bytes,
            _ => {
                let bytes = self.far_resident_bytes();
                *counted = Some((now_ns, bytes));
                bytes
            }
        }
    }

    /// The counters of a position's node, over all cores.
    pub(crate) fn node(&self, position: usize) -> NodeSnapshot {
        let cores = self.cores.iter();
        let seen = cores.filter_map(|core| core.nodes.get(position));
        seen.fold(NodeSnapshot::default(), |sum, one| sum + one.snapshot())
    }

    fn startup_ns(&self) -> u64 {
        self.startup_ns.get().copied().unwrap_or(0)
    }

    fn local_memory(&self) -> LocalMemory {
        let mut memory = self.local_memory.get().copied().unwrap_or_default();
        memory.huge_bytes = memory.huge_bytes.max(self.touching.huge_bytes());
        memory
    }

    pub(crate) fn stats(&self) -> Stats {
        let cores = self.cores.iter();
        let shards: Vec<_> = cores.map(|core| core.counters.snapshot()).collect();
        let total = shards
            .iter()
            .fold(ShardSnapshot::default(), |sum, &shard| sum + shard);
        let mut far_latency = HistogramSnapshot::default();
        for core in &self.cores {
            far_latency.merge(&core.far.snapshot());
        }
        Stats {
            far_latency,
            shards,
            total,
            local_cap_bytes: self.local_cap_bytes,
            far_used_bytes: total.far_used_bytes,
            far_total_bytes: total.far_total_bytes,
            far_resident_bytes: self.far_resident_bytes(),
            startup_ns: self.startup_ns(),
            page_bytes: self.page_bytes,
            locked: self.local_memory().is_locked,
            huge_bytes: self.local_memory().huge_bytes,
            touched_bytes: self.touching.touched_bytes(),
            to_touch_bytes: self.touching.total_bytes(),
        }
    }
}

/// Reads an engine's metrics from any thread. It may outlive the engine.
#[derive(Clone, Debug)]
pub struct EngineReporter(pub(crate) Arc<EngineMetrics>);

impl EngineReporter {
    /// Figures of all shards, as [`Engine::stats`](crate::Engine::stats).
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }
}

impl Reporter for EngineReporter {
    fn is_serving(&self) -> bool {
        !self.0.lifecycle.is_closing()
    }

    fn report(&self) -> Report {
        let metrics = &*self.0;
        let now_ns = metrics.clock.now_ns();
        let core = |(metrics, &processor): (&Arc<CoreMetrics>, &usize)| CoreReport {
            core: processor,
            counters: metrics.counters.snapshot(),
            local: metrics.local.snapshot(),
            cross: metrics.cross.snapshot(),
            batches: metrics.batches.snapshot(),
            far: metrics.far.snapshot(),
            hot_keys: metrics
                .hot_keys
                .get()
                .map_or_else(Vec::new, |keys| keys.top(HOT_KEYS)),
            hardware: metrics.hardware(),
            ..CoreReport::default()
        };
        let node = |(position, name): (usize, Arc<str>)| NodeReport {
            name: name.to_string(),
            counters: metrics.node(position),
        };
        let mut handles = HistogramSnapshot::default();
        for handle in &metrics.handles {
            handles.merge(&handle.snapshot());
        }
        Report {
            format: Report::FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            now_ns,
            uptime_ns: now_ns.saturating_sub(metrics.opened_ns),
            startup_ns: metrics.startup_ns(),
            local_cap_bytes: metrics.local_cap_bytes,
            local_resident_bytes: resident_bytes()
                .saturating_sub(metrics.far_resident_bytes_lately()),
            page_bytes: metrics.page_bytes,
            locked: metrics.local_memory().is_locked,
            huge_bytes: metrics.local_memory().huge_bytes,
            touched_bytes: metrics.touching.touched_bytes(),
            to_touch_bytes: metrics.touching.total_bytes(),
            cores: metrics
                .cores
                .iter()
                .zip(&metrics.processors)
                .map(core)
                .collect(),
            handles,
            nodes: metrics.node_names.list().into_iter().map(node).collect(),
            data: metrics.durable.get().map(|durable| durable.report()),
            replication: None,
            cluster: None,
            hardware_missing: metrics
                .cores
                .iter()
                .filter_map(|core| core.hardware.get())
                .map(HardwareCounters::missing)
                .find(|missing| !missing.is_empty())
                .unwrap_or_default()
                .to_owned(),
        }
    }
}
