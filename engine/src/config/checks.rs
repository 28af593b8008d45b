//! What a configuration is held to. Each error names the field, its value and the limit.

use farcore_rdma::Scheme;
use farcore_tuning::Size;

use super::Config;
use super::sizes::{Budget, fits_in_addresses};
use crate::constants::{
    BATCH_MAX, CACHE_PERCENT_MAX, INLINE_COLLECTION_BYTES_MAX, READ_AHEAD_CHUNKS_MAX,
    SECTION_NS_RANGE, SPIN_NS_MAX,
};
use crate::error::{Error, Result};
use crate::limits::{available_cores, check_available_cores};
use crate::log::PageShape;
use crate::shard::{COPIES_MAX, NODES_MAX};
use crate::transport::lane::LANES_MAX;

/// The longest wait for memory nodes that do not answer.
const NODES_WAIT_NS_MAX: u64 = 86_400_000_000_000;
/// Keys that an index can be sized for.
pub(super) const KEYS_EXPECTED_MAX: u64 = 1 << 40;

pub(super) fn wrong(field: &'static str, value: impl ToString, limit: impl Into<String>) -> Error {
    Error::Config {
        field,
        value: value.to_string(),
        limit: limit.into(),
    }
}

/// The error about a field whose value is a size.
pub(super) fn wrong_bytes(
    field: &'static str,
    bytes: impl Into<u64>,
    limit: impl Into<String>,
) -> Error {
    wrong(field, format_args!("{:#}", Size(bytes.into())), limit)
}

/// "1 core", "2 cores".
pub(super) fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

impl Config {
    pub(super) fn check_knobs(&self) -> Result<()> {
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return Err(wrong("batch", self.batch, format!("1 to {BATCH_MAX}")));
        }
        if !SECTION_NS_RANGE.contains(&self.section_ns) {
            return Err(wrong("section_ns", self.section_ns, "1 ms to 10 s"));
        }
        if self.cache_percent > CACHE_PERCENT_MAX {
            let limit = format!("0 to {CACHE_PERCENT_MAX}; the log needs the rest");
            return Err(wrong("cache_percent", self.cache_percent, limit));
        }
        if self.read_ahead_chunks > READ_AHEAD_CHUNKS_MAX {
            let limit = format!("0 to {READ_AHEAD_CHUNKS_MAX}");
            return Err(wrong("read_ahead_chunks", self.read_ahead_chunks, limit));
        }
        if self.inline_collection_bytes > INLINE_COLLECTION_BYTES_MAX {
            let limit = format!("at most {INLINE_COLLECTION_BYTES_MAX}");
            let bytes = self.inline_collection_bytes;
            return Err(wrong("inline_collection_bytes", bytes, limit));
        }
        if self.spin_ns > SPIN_NS_MAX {
            let limit = format!("at most {SPIN_NS_MAX}, a second");
            return Err(wrong("spin_ns", self.spin_ns, limit));
        }
        Ok(())
    }

    /// How many memory nodes there are, of either kind.
    pub(super) fn nodes_checked(&self) -> Result<usize> {
        let limit = || format!("1 to {NODES_MAX}");
        if self.nodes.is_empty() {
            if !(1..=NODES_MAX).contains(&self.embedded_nodes) {
                return Err(wrong("embedded_nodes", self.embedded_nodes, limit()));
            }
            if let Some(nodes_min) = self.nodes_min {
                let limit = "memory nodes of other processes: name `nodes`, or leave it out";
                return Err(wrong("nodes_min", nodes_min, limit));
            }
            if let Some(nodes_max) = self.nodes_max {
                let limit = "memory nodes of other processes: name `nodes`, or leave it out";
                return Err(wrong("nodes_max", nodes_max, limit));
            }
            return Ok(self.embedded_nodes);
        }
        if self.nodes.len() > NODES_MAX {
            return Err(wrong("nodes", self.nodes.len(), limit()));
        }
        let nodes_max = self.positions(self.nodes.len());
        if !(self.nodes.len()..=NODES_MAX).contains(&nodes_max) {
            let limit = format!(
                "{}, the number of `nodes`, to {NODES_MAX}",
                self.nodes.len()
            );
            return Err(wrong("nodes_max", nodes_max, limit));
        }
        let nodes_min = self.nodes_min.unwrap_or(self.nodes.len());
        if !(1..=self.nodes.len()).contains(&nodes_min) {
            let limit = format!("1 to {}, the number of `nodes`", self.nodes.len());
            return Err(wrong("nodes_min", nodes_min, limit));
        }
        if self.nodes_wait_ns > NODES_WAIT_NS_MAX {
            let limit = format!("at most {NODES_WAIT_NS_MAX}, a day");
            return Err(wrong("nodes_wait_ns", self.nodes_wait_ns, limit));
        }
        for (place, node) in self.nodes.iter().enumerate() {
            if self.nodes[..place].contains(node) {
                return Err(wrong("nodes", node, "name each memory node once"));
            }
            if node.scheme() != Scheme::Tcp && !cfg!(feature = "verbs") {
                let limit = "this build speaks `tcp://` only: build it with the feature `verbs`";
                return Err(wrong("nodes", node, limit));
            }
            if (node.scheme() == Scheme::Tcp) != (self.nodes[0].scheme() == Scheme::Tcp) {
                let limit = "reach all memory nodes by sockets, or all over RDMA devices";
                return Err(wrong("nodes", node, limit));
            }
        }
        if !(1_000_000..=600_000_000_000).contains(&self.far_silence_ns) {
            let limit = "1 ms to 10 minutes, in nanoseconds";
            return Err(wrong("far_silence_ns", self.far_silence_ns, limit));
        }
        self.verbs
            .validate()
            .map_err(|error| wrong("verbs", error.field, error.to_string()))?;
        Ok(self.nodes.len())
    }

    /// What is said of copies, with this many nodes.
    pub(super) fn check_copies(&self, nodes: u64) -> Result<()> {
        let limit = format!("1 to {COPIES_MAX}");
        if !(1..=COPIES_MAX).contains(&self.replicas) {
            return Err(wrong("replicas", self.replicas, limit));
        }
        if self.replicas as u64 > nodes {
            let limit = format!("at most {nodes}, one copy a node: name more `nodes`");
            return Err(wrong("replicas", self.replicas, limit));
        }
        if !(1..=self.replicas).contains(&self.replicas_min) {
            let limit = format!("1 to {}, as `replicas`", self.replicas);
            return Err(wrong("replicas_min", self.replicas_min, limit));
        }
        if let Some(nodes_min) = self.nodes_min.filter(|&least| least < self.replicas_min) {
            let limit = format!("at least {}, as `replicas_min`", self.replicas_min);
            return Err(wrong("nodes_min", nodes_min, limit));
        }
        if !self.zones.is_empty() && self.zones.len() as u64 != nodes {
            let limit = format!("{nodes}, one for each node, or none");
            return Err(wrong("zones", self.zones.len(), limit));
        }
        if !(1..=100).contains(&self.copy_percent) {
            return Err(wrong("copy_percent", self.copy_percent, "1 to 100"));
        }
        Ok(())
    }

    pub(super) fn check_cores(&self) -> Result<()> {
        check_available_cores()?;
        let available = available_cores();
        if let Some(&core) = self.cores.iter().find(|core| !available.contains(core)) {
            return Err(Error::Core { core, available });
        }
        if self.cores.is_empty() {
            return Err(wrong("cores", "empty", "name at least one core"));
        }
        let mut distinct = self.cores.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() != self.cores.len() {
            return Err(wrong(
                "cores",
                format!("{:?}", self.cores),
                "name each core once",
            ));
        }
        Ok(())
    }

    /// Handles, lanes and keys.
    pub(super) fn check_lanes(&self) -> Result<()> {
        let lanes_left = LANES_MAX.saturating_sub(self.cores.len());
        if self.handles_max > lanes_left {
            let limit = format!(
                "at most {lanes_left} with {}, for a shard has {LANES_MAX} lanes, one for each core and handle",
                counted(self.cores.len() as u64, "core")
            );
            return Err(wrong("handles_max", self.handles_max, limit));
        }
        let of_handles = Some(self.handle_lane_bytes);
        for (field, bytes) in [
            ("handle_lane_bytes", of_handles),
            ("lane_bytes", self.lane_bytes),
        ] {
            if let Some(bytes) = bytes
                && !(bytes.is_power_of_two() && (16 << 10..=16 << 20).contains(&bytes))
            {
                let limit = "a power of two from 16 KiB to 16 MiB";
                return Err(wrong_bytes(field, bytes as u64, limit));
            }
        }
        if self.keys_expected > KEYS_EXPECTED_MAX {
            let limit = format!("at most {KEYS_EXPECTED_MAX}");
            return Err(wrong("keys_expected", self.keys_expected, limit));
        }
        Ok(())
    }

    /// Local and far pages of a core have one range of numbers.
    pub(super) fn check_addresses(&self, budget: &Budget, page: u64, nodes: u64) -> Result<()> {
        let cores = self.cores.len() as u64;
        let of_cores = counted(cores, "core");
        let pages_max = PageShape::new(self.page_bytes_used()).pages_max();
        let local_pages = budget.share / page;
        if !fits_in_addresses(budget, page, pages_max) {
            let because = format!(
                "for {of_cores} with pages of {}: those of a core's local and far memory are {pages_max} together at most; raise `page_bytes`",
                Size(page)
            );
            // Half of the pages, if they have to be shared.
            let left = pages_max - budget.extents.min(pages_max / 2) - 2;
            if local_pages > left || local_pages > budget.extents {
                let most = left.saturating_mul(page).saturating_mul(cores);
                let limit = format!("at most {:#} {because}", Size::at_most(most));
                return Err(wrong_bytes("local_bytes", self.local_bytes, limit));
            }
            let most = Size::at_most(self.far_bytes_most(nodes));
            let limit = format!("at most {most:#} {because}");
            return Err(wrong_bytes("far_bytes", self.far_bytes, limit));
        }
        Ok(())
    }

    /// A core's share of local memory is enough, or what to change is named.
    pub(super) fn check_share(&self, budget: &Budget, nodes: u64) -> Result<()> {
        let cores = self.cores.len() as u64;
        let of_cores = counted(cores, "core");
        if budget.share < budget.share_min {
            if let Some(least) = self.local_bytes_min(nodes) {
                return Err(Error::LocalMemory {
                    local_bytes: self.local_bytes,
                    least,
                    cores: self.cores.len(),
                    keys_expected: self.keys_expected,
                    far_bytes: self.far_bytes,
                });
            }
            let because = "whatever the local memory, because its pages count too";
            let keys = self.most(self.keys_expected, nodes, |config, keys| {
                config.keys_expected = keys;
            });
            if keys > 0 {
                let limit = format!(
                    "at most {keys} for {of_cores} and {} of far memory, {because}",
                    Size(self.far_bytes)
                );
                return Err(wrong("keys_expected", self.keys_expected, limit));
            }
            let most = Size::at_most(self.far_bytes_most(nodes));
            let limit = format!("at most {most:#} for {of_cores}, {because}");
            return Err(wrong_bytes("far_bytes", self.far_bytes, limit));
        }
        Ok(())
    }
}
