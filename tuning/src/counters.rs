//! Per-core counters: one writer, readable from anywhere at any time.
//!
//! ORDERING: every access is relaxed. A counter publishes nothing but itself.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count of events. Only one thread may add to it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds, without a read-modify-write: the caller is the only writer.
    #[inline]
    pub fn add(&self, count: u64) {
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

    /// The state.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $kind:ident,)*) => {
        /// The counters of one shard, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct ShardCounters {
            $($(#[$doc])* pub $name: $kind,)*
        }

        /// The counters of one shard, or the sum of several, at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ShardSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl ShardCounters {
            /// Reads every counter. The values are each right, but not of one instant.
            #[must_use]
            pub fn snapshot(&self) -> ShardSnapshot {
                ShardSnapshot { $($name: self.$name.get(),)* }
            }
        }

        impl Add for ShardSnapshot {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)* }
            }
        }

        impl ShardSnapshot {
            /// Every figure with its name.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
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
    /// Requests answered with an error.
    failures: Counter,
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
    /// Batches served.
    batches: Counter,
    /// Requests in them.
    batched_requests: Counter,
    /// Times that a request had to be offered again.
    back_pressure: Counter,
    /// Pages closed for appends.
    pages_sealed: Counter,
    /// Pages copied to far memory.
    pages_flushed: Counter,
    /// Frames freed by eviction.
    pages_evicted: Counter,
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
    /// Times that the core went to sleep.
    parks: Counter,
    /// Times that it was woken.
    wakes: Counter,
    /// Keys stored.
    keys: Gauge,
    /// Bytes of the index.
    index_bytes: Gauge,
    /// Frames that hold nothing.
    frames_free: Gauge,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_add_up() {
        let counters = ShardCounters::default();
        counters.gets.add(3);
        counters.keys.set(7);
        let both = counters.snapshot() + counters.snapshot();
        assert_eq!((both.gets, both.keys), (6, 14));
        assert!(both.named().contains(&("gets", 6)));
        assert_eq!(align_of::<ShardCounters>(), 128);
    }
}
