//! The settings of `cache`: a made trace, or puts of ever new keys.

use std::fmt;

use farcore::constants::VALUE_BYTES_MAX;
use farcore_command::range::RangeError;
use serde::{Deserialize, Serialize};

use crate::record::KEYS_MAX;
use crate::trace::made::Shape;

/// Requests in flight.
pub const WINDOW: usize = 64;
/// Bytes of a record beside its value: header and key.
pub const RECORD_EXTRA_BYTES: u64 = 24;
/// Most requests: times of a written trace have 32 bits.
const REQUESTS_MAX: u64 = u32::MAX as u64;
/// Least bytes of a value: a shorter one could not be distinguished from that of another key.
const VALUE_BYTES_MIN: u64 = 8;

/// What is measured in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The miss ratio over a made trace.
    Trace(Shape),
    /// Puts of keys that were never put, with far memory that holds all of them and without.
    Puts {
        /// The round, counted from 0. Odd rounds begin with the far memory that is too small.
        round: u32,
        /// Far memory that holds all records.
        fitting_bytes: u64,
    },
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What is measured.
    pub part: Part,
    /// Keys of the Zipf part of a trace.
    pub keys: u64,
    /// Requests; for puts, those that are timed.
    pub requests: u64,
    /// Bytes of each value.
    pub value_bytes: u64,
}

impl Settings {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn validate(&self) -> Result<(), RangeError> {
        let most = VALUE_BYTES_MAX as u64;
        for (flag, value, least, most) in [
            ("--keys", self.keys, 1, KEYS_MAX),
            ("--requests", self.requests, 1, REQUESTS_MAX),
            ("--value-bytes", self.value_bytes, VALUE_BYTES_MIN, most),
        ] {
            if !(least..=most).contains(&value) {
                let limit = format!("it must be {least} to {most}");
                return Err(RangeError::new(flag, value, limit));
            }
        }
        Ok(())
    }

    /// Far memory that the run has beside the plan's, in turn with it.
    #[must_use]
    pub fn far_bytes_beside(&self) -> u64 {
        match self.part {
            Part::Trace(_) => 0,
            Part::Puts { fitting_bytes, .. } => fitting_bytes,
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, requests, bytes) = (self.keys, self.requests, self.value_bytes);
        match self.part {
            Part::Trace(shape) => write!(
                formatter,
                "cache, {}: {keys} keys, {requests} requests, values of {bytes} bytes",
                shape.name()
            ),
            Part::Puts { round, .. } => write!(
                formatter,
                "cache, round {round}: {requests} puts, values of {bytes} bytes"
            ),
        }
    }
}
