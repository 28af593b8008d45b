//! Measurement: what measures a running engine, publishes the figures and models them.
//!
//! - `measure`: the clock, per-core counters, latency histograms, hot keys and processor events.
//!   A counter has one writer, the core that owns it, and any number of readers: a write is a plain
//!   load and store.
//! - `publish`: reports over a Unix socket ([`StatisticsSocket`], [`read_report`]), over HTTP as
//!   OpenMetrics, and the log.
//! - `model`: a queueing model, the statistics of paired runs, and profiles of settings.
//!
//! This crate depends on no type of the storage engine or the fabric.

mod measure;
mod model;
mod publish;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulated;

pub use self::measure::{
    AvailableMemory, Clock, Counter, CpuList, Gauge, HardwareCounters, HardwareSnapshot, Histogram,
    HistogramSnapshot, HotKey, HotKeys, HotKeysReader, MemoryEnd, Metric, MetricKind, NodeCounters,
    NodeSnapshot, Processors, Root, Sampler, ShardCounters, ShardSnapshot, Size, ThreadSnapshot,
    ThreadState, available_memory, available_resident_memory, cores_limit, entropy, entropy_u32,
    entropy_u64, kibibytes, memory_limit, numa_node, resident_bytes, saturating_sum, system_ms,
    system_ns,
};
pub use self::model::{
    Bounds, Load, MeanEstimate, Network, PAIRS_MAX, Profile, ProfileError, RatioEstimate, Solution,
    Station, UnitCosts, Workload, WorkloadError,
};
pub use self::publish::{
    ClientsReport, ClusterReport, CoreReport, DataReport, LinkReport, LoadingReport, LogReport,
    NodeReport, ReadError, RepairsReport, ReplicasReport, ReplicationReport, Report, Reporter,
    SnapshotsReport, StatisticsSocket, default_socket, find_sockets, read_report, sockets_folder,
};
#[cfg(feature = "http")]
pub use self::publish::{Exposed, Exposition, HttpLimits, HttpServer, is_loopback, openmetrics};
#[cfg(feature = "log")]
pub use self::publish::{LogFormat, LogGuard, log_format, log_lines_dropped, log_to_stderr};

/// False in a build with `--cfg farcore_uncounted`, which counts and samples nothing. Such a build
/// exists only to measure the cost of counting.
pub const COUNTED: bool = !cfg!(farcore_uncounted);

/// True if the planted fault of this name is switched on, for a simulation that must find it. A
/// constant in every build without the feature `mutations`.
#[cfg(not(feature = "mutations"))]
#[doc(hidden)]
#[macro_export]
macro_rules! mutated {
    ($name:literal) => {
        false
    };
}

/// True if the planted fault of this name is switched on, for a simulation that must find it.
#[cfg(feature = "mutations")]
#[doc(hidden)]
#[macro_export]
macro_rules! mutated {
    ($name:literal) => {
        $crate::simulated::is_planted($name)
    };
}
