//! A lock-free, thread-per-core key-value storage engine for machines whose memory is mostly elsewhere.
//!
//! Each pinned core owns a shard: an index, a log of pages, a read cache and its end of the fabric. A small local memory
//! holds the index, what is recent and what is hot; the rest lies in far memory, encrypted if asked, and comes back one
//! record at a time. Cores talk over single-producer queues and rings; there are no locks on the data path.
//!
//! A request flows one way: handle, router, lane, shard (index, log, cache), fabric; its answer comes back over
//! the lane's ring. Start with [`Engine`].

mod bytes;
mod cipher;
mod config;
pub mod constants;
mod core;
mod engine;
mod error;
mod executors;
mod exits;
mod fence;
mod figures;
mod gcm;
mod handle;
mod house;
mod index;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod kept;
mod lane;
mod limits;
mod log;
mod nodes;
mod operation;
mod order;
mod queue;
mod recorder;
mod ring;
mod routing;
mod runtime;
mod shard;
pub mod statistics;
mod sync;
mod watchdog;

pub use farcore_rdma::{FabricAddress, FaultPlan, LinkModel, Lock, Token, VerbsOptions};
pub use farcore_tuning::{
    CoreReport, HardwareSnapshot, HistogramSnapshot, NodeReport, Profile, ProfileError, Report,
    Reporter, ShardSnapshot,
};

pub use self::cipher::{EncryptionKey, EncryptionMode};
pub use self::config::Config;
pub use self::core::Core;
pub use self::engine::{Engine, Task};
pub use self::error::{Error, Result};
pub use self::figures::{EngineReporter, Stats};
pub use self::handle::{Call, Handle, Refused, Swap, Value};
pub use self::operation::{Answer, Operation, Version};
pub use self::recorder::{Recorder, Recording};

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
