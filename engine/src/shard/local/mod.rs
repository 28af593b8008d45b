//! A shard's local memory: the arena, the pages in its frames, and the tails that records are
//! appended to.
//!
//! [`LocalLog`] owns pages and changes their state; `access` reads and writes what lies in frames.
//! `append` makes room for records, `read_cache` holds copies of far records, `trees` knows where
//! nodes of trees lie, by numbers that `numbered` gives out, and `victims` lists far pages by live
//! share for compaction.

pub(in crate::shard) mod access;
pub(in crate::shard) mod append;
pub(in crate::shard) mod arena;
mod copies;
pub(in crate::shard) mod log;
pub(in crate::shard) mod long_values;
mod numbered;
pub(in crate::shard) mod open_pages;
pub(in crate::shard) mod page_table;
pub(in crate::shard) mod read_cache;
pub(in crate::shard) mod reserved;
pub(in crate::shard) mod trees;
pub(in crate::shard) mod victims;

pub(in crate::shard) use self::log::{FarPageLost, LocalLog, account_bytes};
