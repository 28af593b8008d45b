//! Per-core counters and gauges: one writer, readable from any thread at any time.
//!
//! [`ShardCounters`] and [`NodeCounters`] list every figure with its help text, which OpenMetrics
//! publishes. A snapshot copies the figures; snapshots add up and subtract.
//!
//! - I1: a figure has one writer, which needs no read-modify-write.
//!
//! ORDERING: every access is relaxed. A counter publishes nothing but its own value.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A count of events. Only one thread may write it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count with a plain load and store: the caller is the only writer.
    #[inline]
    pub fn add(&self, count: u64) {
        if !crate::COUNTED {
            return;
        }
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }

    /// The count so far.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the count with one that is kept elsewhere.
    #[inline]
    pub fn set(&self, count: u64) {
        if !crate::COUNTED {
            return;
        }
        self.0.store(count, Ordering::Relaxed);
    }
}

/// A value that goes up and down. Only one thread may write it.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to the value.
    #[inline]
    pub(crate) fn raise(&self, by: u64) {
        self.set(self.get().wrapping_add(by));
    }

    /// The current value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether a figure is a counter or a gauge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// The description of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// The name, equal to the field's.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: MetricKind,
}

macro_rules! counters {
    (
        $(#[$counters_doc:meta])* counters $counters:ident,
        $(#[$snapshot_doc:meta])* snapshot $snapshot:ident,
        $($(#[doc = $help:literal])+ $name:ident: $kind:ident,)*
    ) => {
        $(#[$counters_doc])*
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct $counters {
            $($(#[doc = $help])+ pub $name: $kind,)*
        }

        $(#[$snapshot_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $snapshot {
            $($(#[doc = $help])+ pub $name: u64,)*
        }

        impl $counters {
            /// Reads every counter. Each value is right; together they are not of one instant.
            #[must_use]
            pub fn snapshot(&self) -> $snapshot {
                $snapshot { $($name: self.$name.get(),)* }
            }

            /// Sets every counter to 0: what is counted is another thing from now on.
            pub fn reset(&self) {
                $(self.$name.set(0);)*
            }
        }

        impl Add for $snapshot {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)* }
            }
        }

        impl $snapshot {
            /// The descriptions of the figures, in the order of [`Self::values`].
            pub const METRICS: &[Metric] = &[$(Metric {
                name: stringify!($name),
                help: concat!($($help),+).trim_ascii(),
                kind: MetricKind::$kind,
            },)*];

            /// The values of all figures.
            #[must_use]
            pub fn values(&self) -> [u64; Self::METRICS.len()] {
                [$(self.$name,)*]
            }

            /// The figures with their names.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                Self::METRICS.iter().zip(self.values()).map(|(figure, value)| (figure.name, value))
            }

            /// The counts since an earlier snapshot. Gauges keep their value.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: match MetricKind::$kind {
                    MetricKind::Counter => self.$name.wrapping_sub(earlier.$name),
                    MetricKind::Gauge => self.$name,
                },)* }
            }
        }
    };
}

counters! {
    /// The counters of one shard, on cache lines of their own.
    counters ShardCounters,
    /// The counters of one shard, or the sum of several, at one moment.
    snapshot ShardSnapshot,
    /// Gets answered.
    gets: Counter,
    /// Gets that found no key.
    gets_absent: Counter,
    /// Puts stored.
    puts: Counter,
    /// Puts and swaps that updated a record in place.
    puts_in_place: Counter,
    /// Deletes answered.
    deletes: Counter,
    /// Deletes that found no key.
    deletes_absent: Counter,
    /// Compare-and-swaps answered.
    swaps: Counter,
    /// Compare-and-swaps that found another version.
    swaps_mismatched: Counter,
    /// Changes answered: conditional puts and deletes, counters, appends, ranges.
    changes: Counter,
    /// Changes whose condition did not hold.
    changes_mismatched: Counter,
    /// Changes answered with an error.
    changes_failed: Counter,
    /// Transactions answered, committed or not.
    transactions: Counter,
    /// Transactions that found another version than expected.
    transactions_conflicted: Counter,
    /// Transactions answered with an error.
    transactions_failed: Counter,
    /// Inspections answered: version and length without the value.
    inspections: Counter,
    /// Records removed because they had expired.
    expired: Counter,
    /// Parts of the index listed for scans.
    lists: Counter,
    /// Records listed, or named to be read for a scan.
    keys_listed: Counter,
    /// Lists, and reads for scans, answered with an error.
    lists_failed: Counter,
    /// Pieces of long values written.
    long_pieces_written: Counter,
    /// Pieces of long values read.
    long_pieces_read: Counter,
    /// Times that all keys were removed at once.
    clears: Counter,
    /// Records evicted to make room, where the engine is a cache.
    evicted: Counter,
    /// Bytes of evicted records, as they lay in pages.
    evicted_bytes: Counter,
    /// Gets, inspections and range reads answered with an error.
    gets_failed: Counter,
    /// Puts answered with an error.
    puts_failed: Counter,
    /// Deletes answered with an error.
    deletes_failed: Counter,
    /// Compare-and-swaps answered with an error.
    swaps_failed: Counter,
    /// Index buckets probed.
    index_probes: Counter,
    /// Candidate records with another key.
    tag_false_matches: Counter,
    /// Growth steps of the index.
    index_growth_steps: Counter,
    /// Gets answered from the log's frames.
    local_hits: Counter,
    /// Gets answered from the read cache.
    cache_hits: Counter,
    /// Gets answered from far memory.
    far_hits: Counter,
    /// Far records that read-ahead had fetched.
    stream_hits: Counter,
    /// Requests that waited for another request's READ.
    reads_shared: Counter,
    /// READs posted.
    far_reads: Counter,
    /// Bytes transferred by READs.
    far_read_bytes: Counter,
    /// Bytes of READs that requests needed.
    far_wanted_bytes: Counter,
    /// WRITEs posted.
    far_writes: Counter,
    /// Bytes transferred by WRITEs.
    far_write_bytes: Counter,
    /// Completions with an error.
    fabric_errors: Counter,
    /// Completions polled.
    completions: Counter,
    /// Fabric polls that found nothing.
    empty_polls: Counter,
    /// Doorbells: times that posted work requests were passed to the fabric.
    doorbells: Counter,
    /// Requests of this core to its own shard.
    requests_own: Counter,
    /// Requests of this core to other shards.
    requests_sent: Counter,
    /// Requests received over lanes.
    requests_received: Counter,
    /// Of these, requests that their callers served themselves, having borrowed the shard.
    requests_lent: Counter,
    /// Times that the core had to wait for a caller to return its shard.
    loans_awaited: Counter,
    /// Requests found waiting in lanes, summed over all polls of a lane with requests.
    lane_requests_waiting: Counter,
    /// Polls of a lane that found requests.
    lane_looks: Counter,
    /// Times that a request had to be retried for lack of room.
    back_pressure: Counter,
    /// Requests for far records that waited because their lane had used its share of far accesses,
    /// or because landing buffers were short.
    far_refused: Counter,
    /// Requests that waited because their client's lane had no room for the answer.
    answers_without_room: Counter,
    /// Sections of the shard that clients have got.
    sections: Counter,
    /// Sections that were taken from their holder, which had them for too long.
    sections_lost: Counter,
    /// Clients that did not get the section: requests that had begun before did not end in time, or
    /// the engine was closing.
    sections_refused: Counter,
    /// Time for which sections were held, in nanoseconds.
    section_ns: Counter,
    /// Clients that wait for the section.
    sections_waiting: Gauge,
    /// Pages sealed.
    pages_sealed: Counter,
    /// Pages written to far memory.
    pages_flushed: Counter,
    /// Frames freed by eviction.
    pages_evicted: Counter,
    /// Pages rewritten to another node because their node was silent and they were the last good
    /// copy.
    pages_relocated: Counter,
    /// Copies of pages that were made again, because a node had lost or not taken one.
    pages_copied: Counter,
    /// Pages that were moved from a node to an emptier one.
    pages_balanced: Counter,
    /// Damaged pieces of copies that were written again from another copy.
    copies_mended: Counter,
    /// Times that a memory node has taken back what it lent, because it was started again or the
    /// session at it has ended.
    nodes_lost: Counter,
    /// Far READs that were repeated at another copy, because one failed or was damaged.
    far_reads_elsewhere: Counter,
    /// Records copied into the read cache.
    cache_copies: Counter,
    /// Copies kept when their cache page was evicted.
    cache_second_chances: Counter,
    /// Pages compacted.
    compaction_pages: Counter,
    /// Pages whose records were evicted, but for those that stay because they were read.
    eviction_pages: Counter,
    /// Records that compaction moved.
    compaction_records_moved: Counter,
    /// Bytes that compaction moved.
    compaction_bytes_moved: Counter,
    /// Far records given up after two READs returned damaged data.
    records_damaged: Counter,
    /// Times that the core went to sleep.
    parks: Counter,
    /// Times that the core was woken.
    wakes: Counter,
    /// Turns of the core's loop.
    turns: Counter,
    /// Nanoseconds awake, in intervals between clock readings with work.
    busy_ns: Counter,
    /// Nanoseconds awake, in intervals between clock readings without work.
    spinning_ns: Counter,
    /// Nanoseconds asleep.
    parked_ns: Counter,
    /// Nanoseconds that callers served themselves, while the core slept or had nothing to do.
    lent_ns: Counter,
    /// Keys stored, lost keys included.
    keys: Gauge,
    /// Values that are stored in pieces.
    long_values: Gauge,
    /// 1 while pages lack copies or may lack some, else 0.
    copying: Gauge,
    /// Keys whose record was lost and that have not been written, deleted or forgotten since.
    lost_keys: Gauge,
    /// Bytes of the index.
    index_bytes: Gauge,
    /// Free frames.
    frames_free: Gauge,
    /// Frames of open pages.
    frames_open: Gauge,
    /// Frames of sealed pages that wait to be flushed.
    frames_sealed: Gauge,
    /// Frames of clean pages, which are in far memory too.
    frames_clean: Gauge,
    /// Frames of the read cache.
    frames_cache: Gauge,
    /// Frames of the index.
    frames_index: Gauge,
    /// All frames.
    frames_total: Gauge,
    /// Requests that wait for the fabric.
    pending: Gauge,
    /// Pages with an extent.
    far_pages: Gauge,
    /// Live bytes of pages with an extent.
    far_live_bytes: Gauge,
    /// Dead bytes of pages with an extent.
    far_dead_bytes: Gauge,
    /// Far memory in use, in bytes of whole extents.
    far_used_bytes: Gauge,
    /// Far memory claimed, in bytes of whole extents.
    far_total_bytes: Gauge,
    /// Bytes of landing buffers in use.
    landing_in_use_bytes: Gauge,
    /// Times that the core served nothing for a second although it was woken and had a processor: a
    /// job blocks it, or the kernel does.
    stalls: Counter,
    /// Whether the core is stalled now: 0 or 1.
    stalled: Gauge,
}

/// The sum of counters; it stays at the greatest number, because reports are untrusted.
#[must_use]
pub fn saturating_sum(counts: &[u64]) -> u64 {
    counts
        .iter()
        .fold(0, |sum, &count| sum.saturating_add(count))
}

impl ShardSnapshot {
    /// Operations answered, of every kind; those that failed are not in it.
    #[must_use]
    pub fn answered(&self) -> u64 {
        saturating_sum(&[
            self.gets,
            self.puts,
            self.deletes,
            self.swaps,
            self.changes,
            self.inspections,
            self.transactions,
        ])
    }

    /// Operations answered with an error.
    #[must_use]
    pub fn failed(&self) -> u64 {
        saturating_sum(&[
            self.gets_failed,
            self.puts_failed,
            self.deletes_failed,
            self.swaps_failed,
            self.changes_failed,
            self.transactions_failed,
        ])
    }
}

counters! {
    /// One core's counters of one memory node.
    counters NodeCounters,
    /// The counters of one memory node, of one core or summed over several.
    snapshot NodeSnapshot,
    /// READs posted.
    reads: Counter,
    /// Bytes requested by READs.
    read_bytes: Counter,
    /// WRITEs posted.
    writes: Counter,
    /// Bytes sent by WRITEs.
    write_bytes: Counter,
    /// Work requests that failed.
    errors: Counter,
    /// Far memory claimed at the node, in bytes.
    total_bytes: Gauge,
    /// Far memory in use at the node, in bytes.
    used_bytes: Gauge,
    /// Queue pairs to the node that do not answer.
    silent_queues: Gauge,
    /// Pages that have yet to leave the node, which is to go.
    leaving_pages: Gauge,
}

#[cfg(all(test, not(farcore_uncounted)))]
mod tests {
    use super::*;

    #[test]
    fn snapshots_add_up() {
        let counters = ShardCounters::default();
        counters.gets.add(3);
        counters.keys.set(7);
        let both = counters.snapshot() + counters.snapshot();
        assert_eq!((both.gets, both.keys), (6, 14));
        assert!(both.named().any(|figure| figure == ("gets", 6)));
        assert_eq!(align_of::<ShardCounters>(), 128);
    }

    #[test]
    fn every_figure_has_a_help_text_and_a_unique_name() {
        let keys = ShardSnapshot::METRICS.iter().find(|one| one.name == "keys");
        let keys = keys.expect("there is such a figure");
        let help = "Keys stored, lost keys included.";
        assert_eq!((keys.help, keys.kind), (help, MetricKind::Gauge));
        let mut names: Vec<_> = ShardSnapshot::METRICS.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ShardSnapshot::METRICS.len());
    }

    #[test]
    fn a_difference_keeps_gauges() {
        let counters = ShardCounters::default();
        counters.gets.add(5);
        counters.keys.set(9);
        let before = counters.snapshot();
        counters.gets.add(2);
        let between = counters.snapshot().since(&before);
        assert_eq!((between.gets, between.keys), (2, 9));
    }
}
