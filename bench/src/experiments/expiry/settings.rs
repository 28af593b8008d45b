//! The settings of `expiry`: how many keys expire, where they are, and how busy the engine is
//! meanwhile.

use std::fmt;

use farcore_command::range::RangeError;
use serde::{Deserialize, Serialize};

use crate::record::{KEY_BYTES, VALUE_BYTES_MAX, VALUE_GRAIN_BYTES};

/// Longest `--lead`, `--within` and `--after`, in milliseconds: an hour.
const TIME_MS_MAX: u64 = 3_600_000;
/// Bytes of a record beside key and value, and those of an expiry.
const HEADER_BYTES: u64 = 16;
const EXPIRY_BYTES: u64 = 8;
/// Records are multiples of this many bytes.
const UNIT_BYTES: u64 = 16;

/// Where the records are that expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// All records are local.
    Local,
    /// Local memory holds a quarter of the records.
    Far,
}

impl Place {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Far => "far",
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Where the records are.
    pub place: Place,
    /// Keys that expire, all threads together.
    pub expiring: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Requests meanwhile, in percent of the most that the engine serves.
    pub load_percent: u64,
    /// Time from the start of loading until the first key expires.
    pub lead_ms: u64,
    /// Time in which all of them expire.
    pub within_ms: u64,
    /// When memory is measured, from the last expiry on.
    pub after_ms: Vec<u64>,
}

impl Settings {
    /// Bytes of a record in the log.
    #[must_use]
    pub fn record_bytes(&self, expires: bool) -> u64 {
        let expiry = if expires { EXPIRY_BYTES } else { 0 };
        let bytes = HEADER_BYTES + KEY_BYTES as u64 + self.value_bytes as u64 + expiry;
        bytes.next_multiple_of(UNIT_BYTES)
    }

    /// The share of the log's bytes that expire, where `others` keys do not.
    #[must_use]
    pub fn expiring_share(&self, others: u64) -> f64 {
        let expiring = self.expiring as f64 * self.record_bytes(true) as f64;
        expiring / (expiring + others as f64 * self.record_bytes(false) as f64)
    }

    /// The end of the last measurement, from the last expiry on.
    #[must_use]
    pub fn after_ms_max(&self) -> u64 {
        self.after_ms.iter().copied().max().unwrap_or(0)
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn validate(&self) -> Result<(), RangeError> {
        if self.expiring == 0 {
            return Err(RangeError::new("--expiring", 0, "it must be at least 1"));
        }
        if !(VALUE_GRAIN_BYTES..=VALUE_BYTES_MAX).contains(&self.value_bytes)
            || !self.value_bytes.is_multiple_of(VALUE_GRAIN_BYTES)
        {
            let limit = format!(
                "it must be a multiple of {VALUE_GRAIN_BYTES} from {VALUE_GRAIN_BYTES} to {VALUE_BYTES_MAX}"
            );
            return Err(RangeError::new("--value-bytes", self.value_bytes, limit));
        }
        if !(1..=90).contains(&self.load_percent) {
            let limit = "it must be 1 to 90 percent";
            return Err(RangeError::new("--load", self.load_percent, limit));
        }
        let times = [("--lead", self.lead_ms), ("--within", self.within_ms)];
        let after = self.after_ms.iter().map(|&ms| ("--after", ms));
        for (flag, ms) in times.into_iter().chain(after) {
            if !(1..=TIME_MS_MAX).contains(&ms) {
                let limit = "it must be 1ms to 1h";
                return Err(RangeError::new(flag, format!("{ms}ms"), limit));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "expiry, {}: {} keys expire within {} ms at {} % load, values of {} bytes",
            self.place.name(),
            self.expiring,
            self.within_ms,
            self.load_percent,
            self.value_bytes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_an_expiry_is_a_unit_longer_at_most() {
        let settings = Settings {
            place: Place::Local,
            expiring: 300,
            value_bytes: 128,
            load_percent: 10,
            lead_ms: 1,
            within_ms: 1,
            after_ms: vec![1_000, 500],
        };
        assert_eq!(
            (settings.record_bytes(false), settings.record_bytes(true)),
            (160, 176)
        );
        let share = settings.expiring_share(330);
        assert!((share - 0.5).abs() < 1e-9, "{share}");
        assert_eq!(
            (settings.after_ms_max(), settings.validate()),
            (1_000, Ok(()))
        );
    }
}
