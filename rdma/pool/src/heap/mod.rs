//! The memory that the pool has claimed, cut into pieces.
//!
//! A node lends extents. An extent is divided into pages of 4 KiB; runs of pages are given out
//! whole, or as slabs, which are divided into pieces of one length.
//!
//! ```text
//! node     extent | extent | extent ...      claimed by the node's task, returned when empty
//! extent   page page page page ...           a bit for each; runs are given out first fit
//! slab     piece piece piece ...             a run of pages; a bit for each piece
//! ```
//!
//! - I1: a byte belongs to one piece, or run, or to none: each bit is set by the taker and cleared
//!   by the giver, and giving back what is not taken is refused.
//! - I2: what an ended session has given out is never given back to a later one: a node's part is
//!   replaced with the session, and each home carries the session's number.
//! - I3: a node keeps at most one empty extent, and a slab that is empty only if it is the last of
//!   its length.
//!
//! Local memory: a bit for each piece, and for each page.

mod bits;
mod extent;
mod lengths;
mod part;
mod slab;

use farcore_rdma::RemoteSlice;

pub(crate) use self::lengths::ALIGN_MAX;
pub(crate) use self::part::Part;

/// Claimed extents that lie one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The number of the first, by which the run is returned.
    pub(crate) first: u32,
    /// The first byte.
    pub(crate) slice: RemoteSlice,
    /// The length in bytes.
    pub(crate) bytes: u64,
}

/// How something is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// A piece of a slab.
    Piece {
        /// The slab.
        slab: u32,
        /// The piece's number in it.
        piece: u32,
    },
    /// Pages of an extent.
    Pages {
        /// The extent's number in the part.
        extent: u32,
        /// The first page.
        first: u32,
        /// The number of pages.
        count: u32,
    },
    /// A whole run of extents.
    Run {
        /// The number of its first extent.
        first: u32,
    },
}

#[cfg(test)]
mod tests;
