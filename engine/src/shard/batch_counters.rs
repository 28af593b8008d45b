//! A tally: what requests came to, counted where nobody else looks, and told once a batch. Telling
//! costs as much as one request's counting by itself would.

use farcore_tuning::ShardCounters;

/// What requests came to since it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchCounters {
    pub(super) gets: u64,
    pub(super) gets_absent: u64,
    pub(super) local_hits: u64,
    pub(super) cache_hits: u64,
    pub(super) puts: u64,
    pub(super) puts_in_place: u64,
    pub(super) deletes: u64,
    pub(super) deletes_absent: u64,
}

impl BatchCounters {
    /// Adds it to the shard's counters.
    #[inline]
    pub(super) fn publish_batch_counters(self, counters: &ShardCounters) {
        counters.gets.add(self.gets);
        counters.gets_absent.add(self.gets_absent);
        counters.local_hits.add(self.local_hits);
        counters.cache_hits.add(self.cache_hits);
        counters.puts.add(self.puts);
        counters.puts_in_place.add(self.puts_in_place);
        counters.deletes.add(self.deletes);
        counters.deletes_absent.add(self.deletes_absent);
    }
}
