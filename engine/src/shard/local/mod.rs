//! A shard's local memory: its frames, the pages in them, and the tails that records are appended
//! to.

pub(in crate::shard) mod append;
pub(in crate::shard) mod arena;
pub(in crate::shard) mod open_pages;
pub(in crate::shard) mod page_table;
pub(in crate::shard) mod read_cache;
pub(in crate::shard) mod victims;
