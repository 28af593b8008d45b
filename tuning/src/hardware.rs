//! Processor events of one thread.

use serde::{Deserialize, Serialize};

/// Events since the counters were opened; `None` where the machine does not count them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HardwareSnapshot {
    /// Cycles of the processor.
    pub cycles: Option<u64>,
    /// Instructions retired.
    pub instructions: Option<u64>,
    /// Branches predicted wrongly.
    pub branch_misses: Option<u64>,
    /// Misses of the last-level cache.
    pub cache_misses: Option<u64>,
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Times that another thread got the core.
    pub context_switches: Option<u64>,
    /// Times that the thread was moved to another core.
    pub migrations: Option<u64>,
}
