//! The settings of `operations`: which part is measured, and its sizes.

use std::fmt;

use farcore_command::range::RangeError;
use farcore_command::words::size;
use serde::{Deserialize, Serialize};

use crate::record::{VALUE_BYTES_MAX, VALUE_GRAIN_BYTES};

/// Longest value of `put_long`.
pub const LONG_BYTES_MAX: u64 = 64 << 20;
/// Plain values beside long ones, in bytes.
pub const PLAIN_BYTES: u64 = 1 << 20;
/// Bytes of a part that `get_range` reads.
pub const RANGE_BYTES: usize = 16;

/// What is measured in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Requests on one key, each kind beside a put or a get.
    Requests,
    /// A scan of all local keys without values.
    Scan,
    /// An export of a log in far memory, beside the link.
    Export,
    /// Long values, beside plain ones of 1 MiB.
    Long,
    /// Maps and lists in one key each, long ones beside short ones; on one core.
    Collections,
    /// Reads of others while 16 clients add to two counters of two shards under sections.
    Sections,
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What is measured.
    pub part: Part,
    /// Bytes of each value, for requests, scan and export.
    pub value_bytes: usize,
    /// Bytes a second of the link to far memory, for the export.
    pub link_bytes_per_second: u64,
    /// Bytes of each long value.
    pub long_bytes: u64,
}

impl Settings {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn validate(&self) -> Result<(), RangeError> {
        if !(VALUE_GRAIN_BYTES..=VALUE_BYTES_MAX).contains(&self.value_bytes)
            || !self.value_bytes.is_multiple_of(VALUE_GRAIN_BYTES)
        {
            let limit = format!(
                "it must be a multiple of {VALUE_GRAIN_BYTES} from {VALUE_GRAIN_BYTES} to {VALUE_BYTES_MAX}"
            );
            return Err(RangeError::new("--value-bytes", self.value_bytes, limit));
        }
        if self.link_bytes_per_second < 1_000_000 {
            let limit = "it must be at least 1MB a second";
            let value = size(self.link_bytes_per_second);
            return Err(RangeError::new("--link", value, limit));
        }
        if !(PLAIN_BYTES..=LONG_BYTES_MAX).contains(&self.long_bytes) {
            let limit = format!(
                "it must be {} to {}",
                size(PLAIN_BYTES),
                size(LONG_BYTES_MAX)
            );
            let value = size(self.long_bytes);
            return Err(RangeError::new("--long-value", value, limit));
        }
        Ok(())
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.value_bytes;
        match self.part {
            Part::Requests => write!(formatter, "operations, requests: values of {bytes} bytes"),
            Part::Scan => write!(formatter, "operations, scan: values of {bytes} bytes"),
            Part::Export => write!(
                formatter,
                "operations, export: values of {bytes} bytes over a link of {} Gb/s",
                self.link_bytes_per_second as f64 * 8.0 / 1e9
            ),
            Part::Long => write!(
                formatter,
                "operations, long values: {} each",
                size(self.long_bytes)
            ),
            Part::Collections => write!(formatter, "operations, collections: values of 16 bytes"),
            Part::Sections => write!(formatter, "operations, sections: values of 8 bytes"),
        }
    }
}
