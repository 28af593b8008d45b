//! Counters of one batch, kept in a local value and published once a batch.
//!
//! Publishing costs as much as counting one request in the shared counters, which other threads
//! read.

use farcore_tuning::{Counter, ShardCounters};

use crate::message::operation::OperationKind;

/// The counter of operations of a kind that failed.
pub(super) fn failed(counters: &ShardCounters, kind: OperationKind) -> &Counter {
    match kind {
        OperationKind::Get
        | OperationKind::Inspect
        | OperationKind::GetRange
        | OperationKind::LongOpen
        | OperationKind::LongRead
        | OperationKind::TreeRead
        | OperationKind::TreeHead => &counters.gets_failed,
        OperationKind::Change
        | OperationKind::Tree
        | OperationKind::LongBegin
        | OperationKind::LongWrite
        | OperationKind::LongCommit
        | OperationKind::LongAbort
        | OperationKind::Restore
        | OperationKind::Repair
        | OperationKind::RepairNodes
        | OperationKind::TreePatch => &counters.changes_failed,
        OperationKind::Put => &counters.puts_failed,
        OperationKind::Delete => &counters.deletes_failed,
        OperationKind::CompareAndSwap => &counters.swaps_failed,
        OperationKind::List
        | OperationKind::ReadAt
        | OperationKind::ReadHeadAt
        | OperationKind::Count
        | OperationKind::Clear
        | OperationKind::ForgetLost
        | OperationKind::SectionEnter
        | OperationKind::SectionLeave
        | OperationKind::TreeDump => &counters.lists_failed,
        OperationKind::Transaction => &counters.transactions_failed,
    }
}

/// Outcomes of requests since the last publish.
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
    /// Adds the counts to the shard's counters.
    #[inline]
    pub(super) fn publish(self, counters: &ShardCounters) {
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
