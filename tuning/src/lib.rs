//! What measures: the clock, per-core counters and latency histograms of Farcore.
//!
//! Counters and histograms have one writer, the core that owns them, and any number of readers: a write is a plain
//! load and store, so counting costs about as much as a local variable and readers stop nobody. [`StatisticsSocket`] tells
//! them to other processes, and [`read_report`] is the other end; with the feature `http` they are told to Prometheus as
//! well. This crate knows no type of the storage and none of the fabric.

mod attach;
pub mod cgroup;
mod clock;
mod confidence;
mod counters;
#[cfg(feature = "http")]
mod exposition;
mod hardware;
mod histogram;
mod hot_keys;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "log")]
mod log;
mod memory;
mod profile;
mod queueing;
mod report;
mod root;
mod sampler;
mod socket;
#[cfg(feature = "otel")]
mod spans;

pub use attach::{ReadError, default_socket, find_sockets, read_report, sockets_folder};
pub use clock::Clock;
pub use confidence::{PAIRS_MAX, RatioEstimate};
pub use counters::{
    Counter, Figure, FigureKind, Gauge, NodeCounters, NodeSnapshot, ShardCounters, ShardSnapshot,
};
#[cfg(feature = "http")]
pub use exposition::Exposition;
pub use hardware::{HardwareCounters, HardwareSnapshot};
pub use histogram::{Histogram, HistogramSnapshot};
pub use hot_keys::{HotKey, HotKeys, HotKeysReader};
#[cfg(feature = "http")]
pub use http::{Exposed, HttpLimits, HttpServer, is_loopback, openmetrics};
#[cfg(feature = "log")]
pub use log::{LogFormat, LogGuard, log_format, log_to_stderr};
pub use memory::resident_bytes;
pub use profile::{Profile, ProfileError};
pub use queueing::{Bounds, Load, Network, Solution, Station, UnitCosts, Workload, WorkloadError};
pub use report::{CoreReport, NodeReport, Report, Reporter};
pub use root::Root;
pub use sampler::Sampler;
pub use socket::StatisticsSocket;

/// False in a build with `--cfg farcore_uncounted`, which counts and samples nothing: only to measure what that costs.
pub const COUNTED: bool = !cfg!(farcore_uncounted);
