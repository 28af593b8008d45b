//! What a simulation counts, path by path.

use serde::{Deserialize, Serialize};

use farcore_tuning::HistogramSnapshot;

/// Defines a struct of counters.
macro_rules! counts {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $field:ident,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$inner])* pub $field: u64,)*
        }
    };
}

counts! {
    /// Where accesses to tokens found them.
    Served {
        /// In the card's table.
        card,
        /// In the staging area.
        staging,
        /// Behind CXL.
        cxl,
        /// At the host.
        host,
        /// On the way from one tier to another, so that they waited.
        migrating,
    }
}

impl Served {
    /// All accesses.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.card + self.staging + self.cxl + self.host + self.migrating
    }

    /// The counts since an earlier moment.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            card: self.card - before.card,
            staging: self.staging - before.staging,
            cxl: self.cxl - before.cxl,
            host: self.host - before.host,
            migrating: self.migrating - before.migrating,
        }
    }

    /// The share of accesses that did not leave the card; 0 without accesses.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        (self.card + self.staging) as f64 / self.total().max(1) as f64
    }
}

counts! {
    /// The hot inline path: a token in the card's table.
    HotCounts {
        /// Reads.
        reads,
        /// Updates of relaxed fields.
        updates,
        /// Changes of strict fields, which went to the host at once.
        strict,
        /// Updates that found other fields than they had seen.
        conflicts,
        /// Updates that gave up after all retries and went through the host.
        exhausted,
        /// Messages without permission.
        denied,
    }
}

counts! {
    /// The staging area.
    StagingCounts {
        /// Tokens put in.
        installed,
        /// Tokens that left for others.
        evicted,
        /// Of these, tokens whose relaxed fields were written back.
        written_back,
        /// Prefetched tokens that were used.
        prefetches_used,
    }
}

counts! {
    /// The prefetched batch path: a token behind CXL.
    BatchCounts {
        /// Misses that were queued.
        queued,
        /// Misses of a token that was on its way.
        joined,
        /// Misses that found the queue full and were fetched alone.
        queue_full,
        /// Batches.
        batches,
        /// Batches that waited for a busy link.
        deferred,
        /// Transfers: one for each page of a batch.
        transfers,
        /// Tokens that were fetched for a miss.
        fetched,
        /// Tokens that were prefetched.
        prefetched,
        /// Prefetches that were dropped because the link was busy.
        prefetches_dropped,
    }
}

counts! {
    /// The on-demand path: a token at the host.
    ExpandCounts {
        /// Requests for which a message waited.
        urgent,
        /// Misses of a token that was on its way.
        joined,
        /// Transfers that nothing waited for.
        background,
        /// Background transfers that were dropped because too many waited.
        background_dropped,
        /// Requests that were refused before a byte moved.
        denied,
    }
}

counts! {
    /// Moves between tiers.
    MigrationCounts {
        /// To the card's table.
        to_card,
        /// From the card to the CXL tier.
        card_to_cxl,
        /// From the card to the host.
        card_to_host,
        /// Of these, at once, because another token needed the slot.
        forced,
        /// From the host to the CXL tier.
        host_to_cxl,
        /// From the CXL tier to the host.
        cxl_to_host,
        /// Given up.
        abandoned,
        /// Accesses that waited for a migration.
        waited,
        /// Accesses that went on with the old copy.
        passed,
        /// Migrations that had to copy changes again.
        reconciled,
    }
}

impl MigrationCounts {
    /// All moves.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.to_card + self.card_to_cxl + self.card_to_host + self.host_to_cxl + self.cxl_to_host
    }
}

/// Everything that a simulation counts.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Statistics {
    /// Messages that ended.
    pub messages: u64,
    /// Where their tokens were found.
    pub served: Served,
    /// New connections.
    pub replaced: u64,
    /// The hot inline path.
    pub hot: HotCounts,
    /// The staging area.
    pub staging: StagingCounts,
    /// The prefetched batch path.
    pub batch: BatchCounts,
    /// The on-demand path.
    pub expand: ExpandCounts,
    /// Moves between tiers.
    pub migration: MigrationCounts,
    /// Nanoseconds from the start of a message to its end.
    pub latency: HistogramSnapshot,
    /// Nanoseconds that misses waited for the CXL tier.
    pub batch_latency: HistogramSnapshot,
    /// Nanoseconds that misses waited for the host.
    pub expand_latency: HistogramSnapshot,
    /// Nanoseconds that moves over a link took.
    #[serde(default)]
    pub migration_latency: HistogramSnapshot,
    /// Bytes over the CXL link.
    pub cxl_bytes: u64,
    /// Bytes over the link to the host.
    pub host_bytes: u64,
}

/// One interval of a simulation.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The end of the interval, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// Messages that ended.
    pub messages: u64,
    /// Messages a second.
    pub messages_s: f64,
    /// Where their tokens were found.
    pub served: Served,
    /// The median latency of its messages, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// Moves between tiers.
    pub migrations: u64,
    /// The median duration of moves over a link that ended, in nanoseconds.
    #[serde(default)]
    pub migration_p50_ns: u64,
    /// The 99th percentile.
    #[serde(default)]
    pub migration_p99_ns: u64,
    /// How much of the CXL link was used, 0 to 1.
    pub cxl_load: f64,
    /// How much of the link to the host was used, 0 to 1.
    pub host_load: f64,
    /// Tokens in the card's table at the end.
    pub card_tokens: u64,
    /// Tokens in the staging area at the end.
    pub staging_tokens: u64,
    /// Tokens behind CXL at the end.
    pub cxl_tokens: u64,
    /// Pages behind CXL at the end.
    pub cxl_pages: u64,
    /// Messages that waited at the end.
    pub waiting: u64,
    /// Uses that brought a token to the CXL tier.
    pub to_cxl: u32,
    /// Uses that brought a token to the card.
    pub to_card: u32,
}
