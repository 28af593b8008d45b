//! The far-memory pool: extents of many memory nodes, claimed and given back.
//!
//! A node lends its data regions cut into *extents* of one size, numbered through all its regions,
//! and one small region more that says who has which: the *table*. Who claims an extent writes its
//! id into the extent's owner word with one compare-and-swap; no CPU of the node takes part. The
//! node's own side of the table hands out chunks by request, takes back what a dead owner held, and
//! mends what a death in mid-claim left behind.
//!
//! - [`map`]: what a node says of itself, and where each word and extent lies.
//! - [`protocol`]: the steps of claim, free, take-back and mend, written once for both sides.
//! - [`table`]: the node's side.
//! - [`claims`]: the client's side by claims.
//! - [`chunk`]: the client's side by request.
//!
//! Who may touch what: owner words and bitmap words are changed by compare-and-swap only, on both
//! sides.

mod chunk;
mod claims;
#[cfg(test)]
mod crowd;
#[cfg(test)]
mod interleavings;
mod map;
mod protocol;
mod table;

#[cfg(test)]
pub(crate) use self::chunk::tests as chunk_tests;
pub use self::chunk::{CHUNK_BYTES, Chunk, ChunkSource, Chunks, ChunksError, Piece};
pub use self::claims::{Claim, Claims, ClaimsError, PoolNode};
pub use self::map::{ExtentRun, NodeMap, NodeMapError, OwnerId, RegionDescriptor};
pub(crate) use self::protocol::TakenBack;
#[cfg(feature = "verbs")]
pub(crate) use self::table::DeviceSwap;
pub use self::table::{Audit, NotOwned, Table, TableError};

// Words in far memory are little-endian, and the node's atomics work on them as they lie.
const _: () = assert!(cfg!(target_endian = "little"));
