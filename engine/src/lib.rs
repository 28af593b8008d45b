//! A lock-free, thread-per-core key-value storage engine for machines whose memory is mostly
//! elsewhere.
//!
//! Each pinned core owns a shard: an index, a log of pages, a read cache and its end of the fabric.
//! A small local memory holds the index, what is recent and what is hot; the rest lies in far
//! memory, encrypted on request, and comes back one record at a time. Cores talk over
//! single-producer queues and rings; there are no locks on the data path.
//!
//! A request flows one way: handle, router, lane, shard (index, log, cache), fabric; its answer
//! comes back over the lane's ring. Start with [`Engine`].

#[cfg(test)]
mod breach;
mod bytes;
mod cipher;
mod client;
mod collection;
mod config;
pub mod constants;
#[cfg(feature = "disk")]
pub mod disk;
#[cfg(not(feature = "disk"))]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the feature `disk` shows it"
)]
mod disk;
mod durable;
mod engine;
mod error;
mod executor;
mod far_memory;
mod index;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod journal;
mod lifecycle;
mod limits;
mod log;
mod message;
mod observe;
mod reactor;
mod shard;
mod storage;
mod transport;
mod tree;

pub use farcore_rdma::{
    FabricAddress, FaultPlan, LinkModel, Lock, NodeAddress, Token, VerbsOptions,
};
pub use farcore_tuning::{
    CoreReport, HardwareSnapshot, HistogramSnapshot, NodeReport, Profile, ProfileError, Report,
    Reporter, ShardSnapshot, Size,
};

pub use self::cipher::{EncryptionKey, EncryptionMode};
pub use self::client::call::{
    Call, CasOutcome, DeleteOutcome, ExpiryOutcome, PutOutcome, TimeToLive, Value,
};
pub use self::client::core::Core;
pub use self::client::feed::Feed;
pub use self::client::handle::Handle;
pub use self::client::long::{LongDraft, LongPieces, PinKind, PinOutcome, PinnedValue};
pub use self::client::pool::{Answers, BatchCall, Client, ClientCall, OwnedValue};
pub use self::client::refused::Refused;
pub use self::client::scan::{
    Cursor, Entries, Entry, ExportOptions, ExportSummary, ScanOptions, ScanPage,
};
pub use self::client::transaction::TransactionOutcome;
pub use self::client::tree::{
    ClientTree, CoreTree, Tree, TreeFound, TreeLength, TreePage, TreeRan, TreeRemoved,
    TreeScoreMade, TreeScoreRank, TreeScored, TreeScoresFound, TreeStored, TreeTrimmed,
    TreeUpdated, TreeView,
};
pub use self::config::{Config, LogPolicy, LostKeys, WhenFull};
pub use self::durable::{
    DirectoryReport, Durability, DurableStats, FileReport, FileState, LoadFigures, RepairSummary,
    Salvage, SnapshotSummary,
};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::engine::SimulatedEngine;
pub use self::engine::{Engine, MemoryNodes, NodeRemoval};
pub use self::error::{Error, Result, StorageError};
pub use self::far_memory::{NodeState, NodeStatus};
pub use self::journal::{Fed, FedBody, TreeEffect};
pub use self::message::change::{Change, CollectionMetadata, Condition, Metadata, PutOptions};
pub use self::message::draft::Draft;
pub use self::message::expiry::{Expiry, ExpiryCondition};
pub use self::message::operation::{Operation, Version};
pub use self::message::outcome::{Answer, Conflict};
pub use self::message::transaction::{Absence, Transaction};
pub use self::observe::metrics::{EngineReporter, Stats};
pub use self::observe::recorder::{Recorder, Recording};
pub use self::observe::removals::{Removal, RemovedKeys};
pub use self::observe::statistics;
pub use self::reactor::Task;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::storage::simulated::{SimulatedLog, SimulatedMedium, read_simulated};
pub use self::tree::{
    TreeBound, TreeChange, TreeChanges, TreeCondition, TreeGuard, TreeKind, TreeMap, TreeOp,
    TreeOutcome, TreeProgram, TreeProgramMode, TreeProgramRun, TreeScore, TreeScoreBound,
    TreeScoreOnly, TreeScoreRange, TreeScoreRule, TreeScores, TreeStop, TreeValues,
};

/// The examples of the README and of the guides, compiled and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../../docs/far-memory.md")]
    struct FarMemory;
    #[doc = include_str!("../../docs/observe.md")]
    struct Observe;
    #[doc = include_str!("../../docs/traces.md")]
    struct Traces;
    #[doc = include_str!("../../docs/tune.md")]
    struct Tune;
}
