//! Event counts of one thread, or of several together, as published in reports.
//!
//! A snapshot is plain data: snapshots add up and subtract. An event that was not counted is
//! `None`, and so is every sum with it.

use std::ops::Add;

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
    /// Nanoseconds scheduled on a processor.
    pub on_processor_ns: Option<u64>,
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Context switches.
    pub context_switches: Option<u64>,
    /// Migrations to another core.
    pub migrations: Option<u64>,
}

impl HardwareSnapshot {
    fn with(&self, other: &Self, both: impl Fn(u64, u64) -> u64) -> Self {
        let join = |mine: Option<u64>, theirs: Option<u64>| Some(both(mine?, theirs?));
        Self {
            cycles: join(self.cycles, other.cycles),
            instructions: join(self.instructions, other.instructions),
            branch_misses: join(self.branch_misses, other.branch_misses),
            cache_misses: join(self.cache_misses, other.cache_misses),
            on_processor_ns: join(self.on_processor_ns, other.on_processor_ns),
            page_faults: join(self.page_faults, other.page_faults),
            context_switches: join(self.context_switches, other.context_switches),
            migrations: join(self.migrations, other.migrations),
        }
    }

    /// The events since an earlier snapshot. A scaled count can decrease a little; the difference
    /// is then 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }
}

impl Add for HardwareSnapshot {
    type Output = Self;

    /// The events of two threads; `None` for an event that one of them does not count.
    fn add(self, other: Self) -> Self {
        self.with(&other, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_with_an_uncounted_event_is_none() {
        let one = HardwareSnapshot {
            cycles: Some(5),
            page_faults: Some(2),
            ..HardwareSnapshot::default()
        };
        let other = HardwareSnapshot {
            page_faults: Some(3),
            ..HardwareSnapshot::default()
        };
        let both = one + other;
        assert_eq!((both.cycles, both.page_faults), (None, Some(5)));
        assert_eq!(both.since(&one).page_faults, Some(3));
        assert_eq!(one.since(&both).page_faults, Some(0));
    }
}
