//! Bytes of a plan's data, and of the memory that its run takes.

use super::{EngineName, Plan, Scenario};
use crate::record::{KEY_BYTES, VALUE_BYTES_MEAN, VALUE_BYTES_MEAN_BOUNDED};
use crate::skew::stream_bytes;

const RECORD_HEADER_BYTES: u64 = 16;
/// Bytes of an expiry beside its value.
const EXPIRY_BYTES: u64 = 8;
/// Bytes that a map in plain memory takes for each key besides key and value: two allocations, two
/// fat pointers, slack.
const MAP_OVERHEAD_BYTES: u64 = 96;
/// Local memory of `farcore-all-local`: a multiple of the data, because records that were written
/// again or deleted take room until they are compacted; an index entry a key; and lanes and spare
/// pages of each core.
const ALL_LOCAL_DATA_FACTOR: u64 = 3;
const ALL_LOCAL_KEY_BYTES: u64 = 48;
const ALL_LOCAL_CORE_BYTES: u64 = 32 << 20;
/// Memory for the driver itself.
const SPARE_BYTES: u64 = 256 << 20;

impl Plan {
    /// Local memory with which farcore writes nothing to far memory.
    #[must_use]
    pub fn all_local_bytes(&self) -> u64 {
        let data = self.data_bytes().saturating_mul(ALL_LOCAL_DATA_FACTOR);
        let indexes = self.keys_max().saturating_mul(ALL_LOCAL_KEY_BYTES);
        let cores = ALL_LOCAL_CORE_BYTES.saturating_mul(self.threads());
        data.saturating_add(indexes).saturating_add(cores)
    }

    /// Bytes of all records as first written, headers included. For a trace, the peak of stored
    /// bytes.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let value_bytes = match &self.scenario {
            Scenario::Contest { .. } if self.by_rules => VALUE_BYTES_MEAN_BOUNDED,
            Scenario::Contest { .. } => VALUE_BYTES_MEAN,
            Scenario::Ycsb { value_bytes, .. } => *value_bytes as u64,
            Scenario::Trace(choice) => {
                let headers = self.keys_max().saturating_mul(RECORD_HEADER_BYTES);
                return choice.summary.live_bytes_peak.saturating_add(headers);
            }
            Scenario::Fairness(settings) => return settings.data_bytes(self.keys()),
            Scenario::Expiry(settings) => {
                (settings.value_bytes as u64).saturating_add(EXPIRY_BYTES)
            }
            Scenario::Operations(settings) => settings.value_bytes as u64,
            Scenario::Embed(settings) => settings.value_bytes as u64,
            Scenario::Cache(settings) => settings.value_bytes,
        };
        self.keys_max()
            .saturating_mul(value_bytes.saturating_add(KEY_BYTES as u64 + RECORD_HEADER_BYTES))
    }

    /// An estimate of the memory that the run takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let bytes = match self.engine {
            // Memory on other nodes is not this process's.
            EngineName::Farcore if !self.fabric.is_empty() => self.local_bytes,
            EngineName::Farcore | EngineName::FarcoreEmbedded | EngineName::FarcoreAllLocal => {
                let beside = match &self.scenario {
                    Scenario::Cache(settings) => settings.far_bytes_beside(),
                    _ => 0,
                };
                self.local_bytes.saturating_add(self.far_bytes.max(beside))
            }
            EngineName::LockedLru => {
                let map = self.data_bytes() + self.keys_max().saturating_mul(MAP_OVERHEAD_BYTES);
                self.local_bytes
                    .min(map)
                    .saturating_mul(2)
                    .saturating_add(self.data_bytes())
            }
            _ => self
                .data_bytes()
                .saturating_add(self.keys_max().saturating_mul(MAP_OVERHEAD_BYTES)),
        };
        let scripts = self.trace().map_or(0, |trace| trace.memory_bytes);
        let streams = self.key_draws().map_or(0, |draws| stream_bytes(&draws));
        let driver = streams
            .saturating_mul(self.threads())
            .saturating_add(SPARE_BYTES);
        bytes.saturating_add(scripts).saturating_add(driver)
    }
}
