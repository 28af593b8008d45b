//! Room in a shard's memory: how short frames are, and the work between requests that frees them:
//! flush, compaction, eviction, forgetting lost keys and removing expired ones. Also copies of
//! pages that nodes have lost, and pages that move to emptier nodes.
//!
//! Each runs in bounded slices, between requests, with landing buffers of its own; copying shares
//! those of compaction. Where it has state, a file of its own holds that (`flusher`, `copier`,
//! `balancer`, `compactor`, `evictor`, `lost`, `expiring`, `pressure`): the shard is made of these,
//! and the work is done on the shard.

pub(in crate::shard) mod balance;
pub(in crate::shard) mod balancer;
pub(in crate::shard) mod compaction;
pub(in crate::shard) mod compactor;
pub(in crate::shard) mod copier;
pub(in crate::shard) mod copy;
pub(in crate::shard) mod evict;
pub(in crate::shard) mod evictor;
pub(in crate::shard) mod expire;
pub(in crate::shard) mod expiring;
pub(in crate::shard) mod flush;
pub(in crate::shard) mod flusher;
pub(in crate::shard) mod forget;
pub(in crate::shard) mod lost;
mod make_room;
mod pick;
pub(in crate::shard) mod pressure;
pub(in crate::shard) mod repair;
pub(in crate::shard) mod sketch;
pub(in crate::shard) mod trim;
