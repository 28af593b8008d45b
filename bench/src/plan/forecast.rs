//! Whether the records of a contest by the rules fit in local and far memory, by arithmetic.
//!
//! ```text
//! record in the log: | header 16 | key 16 | value | tag 16, if authenticated |, directory entry 12
//! index: 10 B a key      room: 96 % of local and far memory
//! ```
//!
//! The phase that stores most decides: the values of every phase have the same mean at most. A
//! record lies in far memory or in local memory that is not written back yet, so both count.

use super::{Encryption, Plan};
use crate::record::{KEY_BYTES, VALUE_BYTES_MEAN_BOUNDED};

/// What the engine keeps of each record beside key and value, in bytes.
const HEADER_BYTES: u64 = 16;
const DIRECTORY_ENTRY_BYTES: u64 = 12;
const TAG_BYTES: u64 = 16;
/// A slot of the index, at the share of slots that are in use.
const INDEX_BYTES: u64 = 10;
/// The rest is what the engine needs to move records, and what it keeps beside them.
const USABLE_PERCENT: u64 = 96;

/// What a contest needs, and what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Records in the log.
    pub record_bytes: u64,
    /// The index.
    pub index_bytes: u64,
    /// What memory has room for.
    pub room_bytes: u64,
}

impl Forecast {
    /// The forecast of a plan by the rules; `None` for others, and for engines that do not divide
    /// their data between local and far memory.
    #[must_use]
    pub fn of(plan: &Plan) -> Option<Self> {
        if !plan.by_rules || !plan.engine.is_ours() {
            return None;
        }
        let tag = match plan.encrypt {
            Encryption::Authenticated => TAG_BYTES,
            Encryption::Off | Encryption::SecrecyOnly => 0,
        };
        let beside = KEY_BYTES as u64 + HEADER_BYTES + DIRECTORY_ENTRY_BYTES + tag;
        let keys = plan.keys_max();
        let memory = plan.local_bytes.saturating_add(plan.far_bytes);
        Some(Self {
            record_bytes: keys.saturating_mul(VALUE_BYTES_MEAN_BOUNDED + beside),
            index_bytes: keys.saturating_mul(INDEX_BYTES),
            room_bytes: memory / 100 * USABLE_PERCENT,
        })
    }

    /// All bytes that the contest needs.
    #[must_use]
    pub const fn needed_bytes(&self) -> u64 {
        self.record_bytes.saturating_add(self.index_bytes)
    }

    /// How many more bytes of room it needs than there are.
    #[must_use]
    pub const fn missing_bytes(&self) -> u64 {
        self.needed_bytes().saturating_sub(self.room_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;
    use crate::plan::{EngineName, Scale, Scenario};
    use crate::skew::Skew;

    fn plan(scale: Scale, encrypt: Encryption) -> Plan {
        Plan {
            keys_per_core: scale.keys_per_worker,
            workers: usize::try_from(scale.workers).ok(),
            local_bytes: scale.local_bytes(),
            far_bytes: scale.far_bytes(),
            by_rules: true,
            encrypt,
            ..plan_of(Scenario::Contest {
                hot_ops: 1,
                skew: Skew::default(),
            })
        }
    }

    #[test]
    fn the_rules_memory_holds_the_contest_unless_records_carry_tags() {
        for scale in [Scale::of(1), Scale::of(2), Scale::of(16)] {
            let keys = scale.keys();
            let forecast = Forecast::of(&plan(scale, Encryption::SecrecyOnly)).unwrap();
            assert_eq!(forecast.record_bytes, keys * (156 + 16 + 16 + 12));
            assert_eq!(forecast.index_bytes, keys * 10);
            assert_eq!(forecast.missing_bytes(), 0);
            let tagged = Forecast::of(&plan(scale, Encryption::Authenticated)).unwrap();
            assert_eq!(tagged.needed_bytes(), forecast.needed_bytes() + keys * 16);
            assert_eq!(
                tagged.missing_bytes(),
                tagged.needed_bytes() - forecast.room_bytes
            );
            assert!(tagged.missing_bytes() > 0);
        }
    }

    #[test]
    fn what_is_missing_is_enough_and_no_byte_less_is() {
        let plan = plan(Scale::of(2), Encryption::Authenticated);
        let missing = Forecast::of(&plan).unwrap().missing_bytes();
        // Room is 96 % of the memory that is added, in steps of 96 bytes.
        let with = |room: u64| {
            let far_bytes = plan.far_bytes + room * 100 / USABLE_PERCENT;
            let plan = Plan {
                far_bytes,
                ..plan.clone()
            };
            Forecast::of(&plan).unwrap().missing_bytes()
        };
        assert_eq!(with(missing + 96), 0);
        assert!(with(missing - 96) > 0);
    }

    #[test]
    fn other_plans_and_engines_have_no_forecast() {
        let plan = plan(Scale::of(2), Encryption::Off);
        let without = Plan {
            by_rules: false,
            ..plan.clone()
        };
        assert_eq!(Forecast::of(&without), None);
        assert_eq!(Forecast::of(&plan.for_engine(EngineName::LockedLru)), None);
    }
}
