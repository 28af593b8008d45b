//! What a shard does between requests: flushing, compaction, and forgetting lost keys.

pub(in crate::shard) mod compaction;
pub(in crate::shard) mod flush;
pub(in crate::shard) mod forget;
