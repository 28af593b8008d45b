//! The metadata of a network card: tokens of queue pairs, regions and their like, the tiers of
//! memory that hold them, and a simulator of both.
//!
//! A card that serves thousands of queue pairs keeps their state in a small memory of its own. When
//! the state no longer fits, every message waits for some of it. The modules, from the bottom up:
//!
//! - [`handle`], [`token`]: names of objects, and what a card knows of them.
//! - [`directory`]: where each token lies. [`card_table`]: the card's own memory. [`miss_queue`]:
//!   what waits for a batch. These three are for any number of threads and are model-checked
//!   under loom.
//! - [`cxl`]: pages of packed tokens.
//! - [`policy`]: which entry leaves a full tier. [`replay`] counts exactly what one is worth.
//! - [`workload`], [`trace`]: which tokens messages use, drawn or recorded.
//! - [`simulator`]: all of it in virtual time.
//!
//! No module reads a clock or touches a device. Of Farcore this crate uses `farcore-tuning` alone,
//! for histograms and confidence intervals.

mod atomics;
pub mod card_table;
pub mod cxl;
pub mod directory;
pub mod handle;
pub mod miss_queue;
pub mod permission;
pub mod place;
pub mod policy;
pub mod random;
pub mod record;
pub mod replay;
pub mod settings;
pub mod simulator;
pub mod token;
pub mod trace;
pub mod workload;

pub use self::handle::{Handle, Kind, OBJECTS_MAX};
