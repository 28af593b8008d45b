//! What makes an engine durable: its shards' journals and bases in files, and loading them.
//!
//! ```text
//! shard -> journal -> core: file `log-<generation>-<shard>`
//! records, trees, long values -> base writer: file `base-<generation>-<shard>` -> manifest
//! open: manifest -> its base -> the logs since then, in the order of generations -> shards
//! ```
//!
//! A *generation* begins when all shards begin a new log. Then its base is written while the shards
//! serve; once that is complete and the logs are on disk as far as the base has seen, the manifest
//! names it, and generations before are removed.
//!
//! - D1: what the manifest and the logs of its generation and later ones hold is what the engine
//!   held when the last of them was synced.
//! - D2: a base has each key at some moment since its generation began, with the version of that
//!   moment. The log has all changes since then, so a reader applies those with a greater version.

mod base;
mod check;
mod durability;
mod figures;
mod keeper;
mod load;
mod log_ends;
mod log_sequence;
mod repair;
mod repair_batch;
mod salvage;
mod steps;
mod tree_versions;
mod waits;

pub use self::check::{DirectoryReport, FileReport, FileState};
pub use self::durability::{Durability, LoadFigures};
pub use self::figures::{DurableStats, RepairSummary, SnapshotSummary};
pub(crate) use self::keeper::{Durable, DurableOptions};
pub(crate) use self::load::LoadProgress;
pub use self::salvage::Salvage;
