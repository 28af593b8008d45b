//! What clients ask of shards and what shards answer: the layer below transport and shard.

pub(crate) mod hash;
pub(crate) mod operation;
pub(crate) mod outcome;
pub(crate) mod request;
