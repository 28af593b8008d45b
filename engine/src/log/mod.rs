//! The log's formats: addresses, size classes, records and pages.
//!
//! They are plain encodings over bytes, without state: the shard owns the memory. All words are
//! little endian. Bytes from far memory are parsed with every length checked. Only `page` and
//! `record` read frames through pointers.

mod address;
pub(crate) mod class;
pub(crate) mod page;
pub(crate) mod record;
pub(crate) mod sealing;

pub(crate) use address::{ADDRESS_BITS, Address, PageShape};
pub(crate) use class::SizeClass;
