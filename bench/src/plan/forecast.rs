//! Whether the records of a contest by the rules fit in local and far memory, by arithmetic.
//!
//! ```text
//! record in the log: | header 16 | key 16 | value | tag 16, if authenticated |, directory entry 12
//! index: 10 B a key      room: 96 % of local and far memory
//! ```
//!
//! The phase that stores most decides: the values of every phase have the same mean at most. A
//! record lies in far memory or in local memory that is not written back yet, so both count.

use super::engine::Encryption;
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
    /// The forecast for a number of keys in an amount of local and far memory together.
    #[must_use]
    pub fn new(keys: u64, encrypt: Encryption, memory_bytes: u64) -> Self {
        let tag = match encrypt {
            Encryption::Authenticated => TAG_BYTES,
            Encryption::Off | Encryption::SecrecyOnly => 0,
        };
        let beside = KEY_BYTES as u64 + HEADER_BYTES + DIRECTORY_ENTRY_BYTES + tag;
        Self {
            record_bytes: keys.saturating_mul(VALUE_BYTES_MEAN_BOUNDED + beside),
            index_bytes: keys.saturating_mul(INDEX_BYTES),
            room_bytes: memory_bytes / 100 * USABLE_PERCENT,
        }
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

    /// Keys of one worker and its part of the memory.
    const KEYS: u64 = 12_000_000;
    const MEMORY_BYTES: u64 = (40 << 30) / 16;

    #[test]
    fn the_rules_memory_holds_the_contest_unless_records_carry_tags() {
        for workers in [1, 2, 16] {
            let (keys, memory) = (KEYS * workers, MEMORY_BYTES * workers);
            let forecast = Forecast::new(keys, Encryption::SecrecyOnly, memory);
            assert_eq!(forecast.record_bytes, keys * (156 + 16 + 16 + 12));
            assert_eq!(forecast.index_bytes, keys * 10);
            assert_eq!(forecast.missing_bytes(), 0);
            assert_eq!(Forecast::new(keys, Encryption::Off, memory), forecast);
            let tagged = Forecast::new(keys, Encryption::Authenticated, memory);
            assert_eq!(tagged.needed_bytes(), forecast.needed_bytes() + keys * 16);
            let missing = tagged.needed_bytes() - forecast.room_bytes;
            assert!(missing > 0 && tagged.missing_bytes() == missing);
        }
    }

    #[test]
    fn what_is_missing_is_enough_and_no_less_is() {
        let of = |memory| Forecast::new(KEYS, Encryption::Authenticated, memory).missing_bytes();
        let missing = of(MEMORY_BYTES);
        // Room is 96 % of the memory that is added, in steps of 96 bytes.
        let with = |room: u64| of(MEMORY_BYTES + room * 100 / USABLE_PERCENT);
        assert_eq!(with(missing + 96), 0);
        assert!(with(missing - 96) > 0);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let forecast = Forecast::new(u64::MAX, Encryption::Authenticated, u64::MAX);
        assert_eq!(forecast.needed_bytes(), u64::MAX);
        assert!(forecast.missing_bytes() > 0);
    }
}
