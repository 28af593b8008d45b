//! What a shard does between requests: flush, compaction and forgetting lost keys.
//!
//! Each runs in bounded slices, between requests, with landing buffers of its own.

pub(in crate::shard) mod compaction;
pub(in crate::shard) mod flush;
pub(in crate::shard) mod forget;
