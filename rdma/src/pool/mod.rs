//! The far-memory pool: extents of many memory nodes, claimed and freed by clients.
//!
//! A node lends its data regions, divided into *extents* of one size and numbered through all its
//! regions, and one small extra region, the *table*, which records each extent's owner. A client
//! claims an extent by writing its id into the extent's owner word with one compare-and-swap; no
//! CPU of the node takes part. The node's own side of the table grants chunks on request, reclaims
//! the extents of dead owners, and mends the bits that a death in the middle of a claim left wrong.
//!
//! - [`map`]: a node's description of itself, and where each word and extent lies.
//! - [`protocol`]: the steps of claim, free, take-back and mend, shared by both sides.
//! - [`table`]: the node's side.
//! - [`claims`]: the client's side.
//!
//! Access: both sides change owner words and bitmap words by compare-and-swap only.

mod claims;
#[cfg(test)]
mod crowd;
#[cfg(test)]
mod interleavings;
mod map;
mod protocol;
mod table;

pub use self::claims::{Claim, Claims, ClaimsError, PoolNode};
pub use self::map::{ExtentRun, NodeMap, NodeMapError, OwnerId, RegionDescriptor};
pub(crate) use self::protocol::TakenBack;
#[cfg(feature = "verbs")]
pub(crate) use self::table::DeviceSwap;
pub use self::table::{Audit, NotOwned, Table, TableError};

// Words in far memory are little-endian, and the node's atomics operate on them in place.
const _: () = assert!(cfg!(target_endian = "little"));
