//! Per-core counters: one writer, readable from anywhere at any time.
//!
//! ORDERING: every access is relaxed. A counter publishes nothing but itself.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A count of events. Only one thread may add to it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds, without a read-modify-write: the caller is the only writer.
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

    /// Replaces the count by one that is kept elsewhere.
    #[inline]
    pub fn set(&self, count: u64) {
        if !crate::COUNTED {
            return;
        }
        self.0.store(count, Ordering::Relaxed);
    }
}

/// A state that goes up and down. Only one thread may set it.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the state.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Raises the state.
    #[inline]
    pub(crate) fn raise(&self, by: u64) {
        self.set(self.get().wrapping_add(by));
    }

    /// The state.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What kind of figure a counter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A counter, described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name, as the field is called.
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
            /// Reads every counter. The values are each right, but not of one instant.
            #[must_use]
            pub fn snapshot(&self) -> $snapshot {
                $snapshot { $($name: self.$name.get(),)* }
            }
        }

        impl Add for $snapshot {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)* }
            }
        }

        impl $snapshot {
            /// What the figures are, in the order of [`Self::values`].
            pub const METRICS: &[Metric] = &[$(Metric {
                name: stringify!($name),
                help: concat!($($help),+).trim_ascii(),
                kind: MetricKind::$kind,
            },)*];

            /// Every figure's value.
            #[must_use]
            pub fn values(&self) -> [u64; Self::METRICS.len()] {
                [$(self.$name,)*]
            }

            /// Every figure with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                Self::METRICS.iter().zip(self.values()).map(|(figure, value)| (figure.name, value))
            }

            /// What was counted since an earlier snapshot; states stay what they are.
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
    /// Gets that found no such key.
    gets_absent: Counter,
    /// Puts stored.
    puts: Counter,
    /// Puts and swaps that changed a record where it was.
    puts_in_place: Counter,
    /// Deletes answered.
    deletes: Counter,
    /// Deletes that found no such key.
    deletes_absent: Counter,
    /// Compare-and-swaps answered.
    swaps: Counter,
    /// Compare-and-swaps that met another version.
    swaps_mismatched: Counter,
    /// Gets answered with an error.
    gets_failed: Counter,
    /// Puts answered with an error.
    puts_failed: Counter,
    /// Deletes answered with an error.
    deletes_failed: Counter,
    /// Compare-and-swaps answered with an error.
    swaps_failed: Counter,
    /// Buckets of the index that were looked at to find records.
    index_probes: Counter,
    /// Candidates whose key was another one.
    tag_false_matches: Counter,
    /// Steps of growth of the index.
    index_growth_steps: Counter,
    /// Gets answered from the log's frames.
    local_hits: Counter,
    /// Gets answered from the read cache.
    cache_hits: Counter,
    /// Gets answered from far memory.
    far_hits: Counter,
    /// Far records that read-ahead had brought.
    stream_hits: Counter,
    /// Requests that queued behind another one's READ.
    reads_shared: Counter,
    /// READs posted.
    far_reads: Counter,
    /// Bytes that READs moved.
    far_read_bytes: Counter,
    /// Bytes of those that requests asked for.
    far_wanted_bytes: Counter,
    /// WRITEs posted.
    far_writes: Counter,
    /// Bytes that WRITEs moved.
    far_write_bytes: Counter,
    /// Completions with an error.
    fabric_errors: Counter,
    /// Completions taken.
    completions: Counter,
    /// Polls of the fabric that found nothing.
    empty_polls: Counter,
    /// Times that work requests were shown to the fabric.
    doorbells: Counter,
    /// Requests of this core to its own shard.
    requests_own: Counter,
    /// Requests of this core to other shards.
    requests_sent: Counter,
    /// Requests that came over lanes.
    requests_received: Counter,
    /// Requests that waited in lanes each time that one was looked at.
    lane_requests_waiting: Counter,
    /// Times that a lane with requests was looked at.
    lane_looks: Counter,
    /// Times that a request had to be offered again.
    back_pressure: Counter,
    /// Requests for far records that waited because their lane had its share of far accesses or
    /// buffers were short.
    far_refused: Counter,
    /// Requests that waited because their client had left no room for the answer at its lane.
    answers_without_room: Counter,
    /// Pages closed for appends.
    pages_sealed: Counter,
    /// Pages copied to far memory.
    pages_flushed: Counter,
    /// Frames freed by eviction.
    pages_evicted: Counter,
    /// Pages to be written to another node, because theirs was silent and they were the last good
    /// copy.
    pages_relocated: Counter,
    /// Records copied into the read cache.
    cache_copies: Counter,
    /// Copies kept when their page was evicted.
    cache_second_chances: Counter,
    /// Pages compacted.
    compaction_pages: Counter,
    /// Records that compaction moved.
    compaction_records_moved: Counter,
    /// Bytes that compaction moved.
    compaction_bytes_moved: Counter,
    /// Far records given up because twice they were not what was written.
    records_damaged: Counter,
    /// Times that the core went to sleep.
    parks: Counter,
    /// Times that it was woken.
    wakes: Counter,
    /// Turns of the core's loop.
    turns: Counter,
    /// Nanoseconds with work done, within some turns.
    busy_ns: Counter,
    /// Nanoseconds awake without work, within some turns.
    spinning_ns: Counter,
    /// Nanoseconds asleep.
    parked_ns: Counter,
    /// Keys stored, those whose record was lost included.
    keys: Gauge,
    /// Keys whose record was lost and that were not written, deleted or forgotten since.
    lost_keys: Gauge,
    /// Bytes of the index.
    index_bytes: Gauge,
    /// Frames that hold nothing.
    frames_free: Gauge,
    /// Frames of pages that take appends.
    frames_open: Gauge,
    /// Frames of pages that wait for their copy in far memory.
    frames_sealed: Gauge,
    /// Frames of pages that are in far memory too.
    frames_clean: Gauge,
    /// Frames of the read cache.
    frames_cache: Gauge,
    /// Frames of the index.
    frames_index: Gauge,
    /// Frames in all.
    frames_total: Gauge,
    /// Requests waiting for the fabric.
    pending: Gauge,
    /// Pages with an extent.
    far_pages: Gauge,
    /// Bytes alive in them.
    far_live_bytes: Gauge,
    /// Bytes dead in them.
    far_dead_bytes: Gauge,
    /// Far memory in use, in bytes of whole extents.
    far_used_bytes: Gauge,
    /// Far memory in all, in bytes of whole extents.
    far_total_bytes: Gauge,
    /// Landing space in use.
    landing_in_use_bytes: Gauge,
    /// Times that the core served nothing for a second although it was woken: a job blocks it, or
    /// the machine holds it up.
    stalls: Counter,
    /// Whether it is so now: 0 or 1.
    stalled: Gauge,
}

counters! {
    /// What one core counts of one memory node.
    counters NodeCounters,
    /// What one core, or several, counted of one memory node.
    snapshot NodeSnapshot,
    /// READs posted.
    reads: Counter,
    /// Bytes that they ask for.
    read_bytes: Counter,
    /// WRITEs posted.
    writes: Counter,
    /// Bytes that they carry.
    write_bytes: Counter,
    /// Work requests that failed.
    errors: Counter,
    /// Far memory claimed there, in bytes.
    total_bytes: Gauge,
    /// Of those, in use.
    used_bytes: Gauge,
    /// Queue pairs that lead there and do not answer.
    silent_queues: Gauge,
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
    fn every_figure_says_what_it_is() {
        let keys = ShardSnapshot::METRICS.iter().find(|one| one.name == "keys");
        let keys = keys.expect("there is such a figure");
        let help = "Keys stored, those whose record was lost included.";
        assert_eq!((keys.help, keys.kind), (help, MetricKind::Gauge));
        let mut names: Vec<_> = ShardSnapshot::METRICS.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ShardSnapshot::METRICS.len());
    }

    #[test]
    fn a_difference_leaves_states_alone() {
        let counters = ShardCounters::default();
        counters.gets.add(5);
        counters.keys.set(9);
        let before = counters.snapshot();
        counters.gets.add(2);
        let between = counters.snapshot().since(&before);
        assert_eq!((between.gets, between.keys), (2, 9));
    }
}
