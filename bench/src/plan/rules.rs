//! The contest as its rules have it: 16 workers with 12 M keys each, values of 30 GB in all, 8 GiB
//! of local and 32 GiB of far memory, 64 M hot requests. A scale is that or a part of it.
//!
//! - I1: memory and hot requests of a scale are those of the rules by the ratio of its keys, but
//!   memory is never less than engines open with.

use std::fmt;
use std::str::FromStr;

/// The name of the whole contest.
const OFFICIAL: &str = "official";
const WORKERS: u64 = 16;
const KEYS_PER_WORKER: u64 = 12_000_000;
const KEYS: u64 = WORKERS * KEYS_PER_WORKER;
const LOCAL_BYTES: u64 = 8 << 30;
const FAR_BYTES: u64 = 32 << 30;
const HOT_OPS: u64 = 64_000_000;

/// Most workers of a scale.
const WORKERS_MAX: u64 = 64;
/// Least memory of a worker, for scales with few keys.
const LOCAL_BYTES_MIN: u64 = 16 << 20;
const FAR_BYTES_MIN: u64 = 32 << 20;

/// Longest time limit, in nanoseconds: a day.
pub const TIME_LIMIT_NS_MAX: u64 = 86_400_000_000_000;

/// How much of the contest is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Threads with keys of their own.
    pub workers: u64,
    /// Keys of each.
    pub keys_per_worker: u64,
}

impl Scale {
    /// A number of workers as the rules have them.
    #[must_use]
    pub const fn of(workers: u64) -> Self {
        Self {
            workers,
            keys_per_worker: KEYS_PER_WORKER,
        }
    }

    /// Keys of all workers.
    #[must_use]
    pub const fn keys(self) -> u64 {
        self.workers.saturating_mul(self.keys_per_worker)
    }

    /// Local memory.
    #[must_use]
    pub fn local_bytes(self) -> u64 {
        self.part_of(LOCAL_BYTES)
            .max(LOCAL_BYTES_MIN * self.workers)
    }

    /// Far memory.
    #[must_use]
    pub fn far_bytes(self) -> u64 {
        self.part_of(FAR_BYTES).max(FAR_BYTES_MIN * self.workers)
    }

    /// Requests of the hot mix, all workers together.
    #[must_use]
    pub fn hot_ops(self) -> u64 {
        self.part_of(HOT_OPS).max(1)
    }

    /// The part of an amount of the rules that these keys have.
    fn part_of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.keys()) / u128::from(KEYS);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OFFICIAL {
            return Ok(Self::of(WORKERS));
        }
        match text.parse() {
            Ok(workers @ 1..=WORKERS_MAX) => Ok(Self::of(workers)),
            _ => Err(format!(
                "`{text}` is no scale: write `{OFFICIAL}`, or a number of workers from 1 to \
                 {WORKERS_MAX}"
            )),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self == Self::of(WORKERS) {
            true => formatter.write_str(OFFICIAL),
            false => write!(formatter, "{}", self.workers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_official_or_a_number_of_workers() {
        let official: Scale = "official".parse().unwrap();
        assert_eq!((official.workers, official.keys()), (16, 192_000_000));
        assert_eq!(
            (official.local_bytes(), official.far_bytes()),
            (8 << 30, 32 << 30)
        );
        assert_eq!(official.hot_ops(), 64_000_000);
        assert_eq!("16".parse(), Ok(official));
        assert_eq!(official.to_string(), "official");
        for wrong in [
            "",
            "0",
            "65",
            "-1",
            "2.5",
            "offical",
            "18446744073709551616",
        ] {
            let refused = wrong.parse::<Scale>().unwrap_err();
            assert!(
                refused.contains(&format!("`{wrong}` is no scale")),
                "{refused}"
            );
        }
    }

    #[test]
    fn memory_and_hot_requests_follow_the_ratio_of_the_keys() {
        let two = Scale::of(2);
        assert_eq!((two.local_bytes(), two.far_bytes()), (1 << 30, 4 << 30));
        assert_eq!((two.keys(), two.hot_ops()), (24_000_000, 8_000_000));
        let tiny = Scale {
            keys_per_worker: 300,
            ..two
        };
        assert_eq!((tiny.keys(), tiny.hot_ops()), (600, 200));
        assert_eq!((tiny.local_bytes(), tiny.far_bytes()), (32 << 20, 64 << 20));
    }
}
