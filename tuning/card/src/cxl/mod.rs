//! L2: memory behind CXL, in pages of packed tokens, 16 of which are a cluster of 64 KiB.
//!
//! Keys that are neighbours share a page, because they are used together: a page is of one group of
//! [`page::SLOTS`] keys. [`page`] packs tokens, `pages` gives groups pages and takes them back.

pub mod page;
mod pages;

pub use self::page::Page;
pub use self::pages::{CxlPages, CxlPlace};

/// Pages of a cluster, which one prefetch reads at most.
pub const CLUSTER_PAGES: u32 = 16;
const _: () = assert!(CLUSTER_PAGES as usize * page::BYTES == 64 << 10);
