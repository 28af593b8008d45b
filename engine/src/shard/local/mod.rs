//! A shard's local memory: its frames, the pages in them, and the tails that records are appended
//! to.

pub(in crate::shard) mod append;
pub(in crate::shard) mod arena;
pub(in crate::shard) mod log;
pub(in crate::shard) mod open_pages;
pub(in crate::shard) mod page_table;
pub(in crate::shard) mod read_cache;
pub(in crate::shard) mod victims;

pub(in crate::shard) use self::log::{ExtentLost, LocalLog, account_bytes};
