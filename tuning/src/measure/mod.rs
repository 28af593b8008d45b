//! Measures a running engine and reads the machine's limits.
//!
//! Owns the clock, the per-core counters, the latency histograms, the hot-key sketch and the
//! processor events. Reads `/proc` and `/sys` through [`Root`] only, and draws
//! the kernel's random bytes.
//!
//! - I1: a counter, gauge or histogram has one writer and any number of readers.

mod cgroup;
mod clock;
mod counters;
mod cpu_list;
mod entropy;
mod hardware;
mod histogram;
mod hot_keys;
mod memory;
mod processors;
mod root;
mod sampler;
mod size;
mod thread;

pub use self::cgroup::{
    AvailableMemory, MemoryEnd, available_memory, available_resident_memory, cores_limit,
    kibibytes, memory_limit,
};
pub use self::clock::{Clock, system_ms, system_ns};
pub use self::counters::{
    Counter, Gauge, Metric, MetricKind, NodeCounters, NodeSnapshot, ShardCounters, ShardSnapshot,
    saturating_sum,
};
pub use self::cpu_list::CpuList;
pub use self::entropy::{entropy, entropy_u32, entropy_u64};
pub use self::hardware::{HardwareCounters, HardwareSnapshot};
pub use self::histogram::{Histogram, HistogramSnapshot};
pub use self::hot_keys::{HotKey, HotKeys, HotKeysReader};
pub use self::memory::resident_bytes;
pub use self::processors::{Processors, numa_node};
pub use self::root::Root;
pub use self::sampler::Sampler;
pub use self::size::Size;
pub use self::thread::{ThreadSnapshot, ThreadState};
