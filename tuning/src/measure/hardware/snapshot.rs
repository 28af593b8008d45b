//! What was counted of one thread, or of several.

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
    /// Nanoseconds on a processor.
    pub on_processor_ns: Option<u64>,
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Times that another thread got the core.
    pub context_switches: Option<u64>,
    /// Times that the thread was moved to another core.
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

    /// What was counted since an earlier snapshot. Scaled counts can step back a little; that is
    /// taken for none.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }
}

impl Add for HardwareSnapshot {
    type Output = Self;

    /// The events of two threads; those that one of them does not count are not known of both.
    fn add(self, other: Self) -> Self {
        self.with(&other, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_does_not_count_is_not_known_of_both() {
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
