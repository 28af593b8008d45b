//! A shard's far memory: where pages lie on which node, and the READs and WRITEs to them.

pub(in crate::shard) mod buffers;
pub(in crate::shard) mod extents;
pub(in crate::shard) mod health;
pub(in crate::shard) mod io;
pub(in crate::shard) mod opened;
pub(in crate::shard) mod placement;
pub(in crate::shard) mod read_ahead;
