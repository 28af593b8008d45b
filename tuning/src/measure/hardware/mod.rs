//! Events that the processor and the kernel count of one thread, through `perf_event_open`.
//!
//! Owns the descriptors. The counted thread opens them and pays nothing more; any thread reads
//! them. Where an event is not to be had, the others count on, and [`HardwareCounters::missing`]
//! says why and what to do.
//!
//! I1: the processor's events are one group where they fit together, so that their ratios are of
//! the same time. I2: a count is scaled to the whole time where the kernel had counters take turns,
//! and is `None` where it never ran.
//!
//! Source: perf_event_open(2).

mod counters;
mod refusal;
mod snapshot;

pub use counters::HardwareCounters;
pub use snapshot::HardwareSnapshot;
