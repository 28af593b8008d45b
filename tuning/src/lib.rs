//! What measures: the clock, per-core counters and latency histograms of Farcore.
//!
//! Counters and histograms have one writer, the core that owns them, and any number of readers: a write is a plain
//! load and store, so counting costs about as much as a local variable and readers stop nobody. This crate knows no
//! storage and no network type.

mod clock;
mod confidence;
mod counters;
mod hardware;
mod histogram;
mod hot_keys;
mod memory;
mod profile;
mod report;
mod sampler;

pub use clock::Clock;
pub use confidence::{PAIRS_MAX, RatioEstimate};
pub use counters::{
    Counter, Figure, FigureKind, Gauge, NodeCounters, NodeSnapshot, ShardCounters, ShardSnapshot,
};
pub use hardware::HardwareSnapshot;
pub use histogram::{Histogram, HistogramSnapshot};
pub use hot_keys::{HotKey, HotKeys, HotKeysReader};
pub use memory::resident_bytes;
pub use profile::{Profile, ProfileError};
pub use report::{CoreReport, NodeReport, Report, Reporter};
pub use sampler::Sampler;
