//! The server's part of a data directory: snapshots that clients and rules want, and what is
//! refused while it is loaded or cannot be written.
//!
//! ```text
//! SAVE, BGSAVE, BGREWRITEAOF, rules of --save -> a thread -> the engine's snapshot
//! the engine loads -> every command but a few: LOADING
//! a snapshot of the rules has failed -> commands that write: MISCONF
//! ```
//!
//! The engine has one kind of file for what Redis has two: a snapshot is a dump of all keys, and
//! what the log goes on from. So `BGREWRITEAOF` makes one as `BGSAVE` does.
//!
//! - I1: a core never waits for a snapshot; a thread of its own does.
//! - I2: one is under way at a time that a client or a rule wanted. The engine makes others by
//!   itself.

mod refusals;
pub(crate) mod save_points;
mod saving;

pub(crate) use self::refusals::{LOADING, READ_ONLY, Refusals, STALE, UNFOLLOWED, UNSAVED};
pub use self::save_points::{SavePoint, parse_save_points, save_points_text};
pub(crate) use self::saving::{Kind, LastSave, Saving};
