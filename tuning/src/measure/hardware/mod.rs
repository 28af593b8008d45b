//! Processor and kernel events of one thread, through `perf_event_open`.
//!
//! Owns the descriptors. The counted thread opens them and pays nothing more; any thread reads
//! them. If an event is refused, the others still count, and [`HardwareCounters::missing`] gives
//! the reason and the remedy.
//!
//! - I1: the processor's events form one group if they fit together, so that their ratios are of
//!   the same time.
//! - I2: a count is scaled to the whole time if the kernel multiplexed the counters, and is `None`
//!   if the counter never ran.
//!
//! Source: perf_event_open(2).

mod counters;
mod refusal;
mod snapshot;

pub use counters::HardwareCounters;
pub use snapshot::HardwareSnapshot;
