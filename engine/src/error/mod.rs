//! Every error a caller can meet, each with the limit and the value that met it.

mod storage;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use farcore_tuning::Size;

use crate::collection::TreeKind;
use crate::constants::{LONG_VALUE_BYTES_MAX, TRANSACTION_KEYS_MAX, VALUE_BYTES_MAX};

pub use self::storage::StorageError;

/// The reason of [`Error::Unavailable`] where the record will not come back.
pub(crate) const LOST: &str = "it was restarted, was away for longer than lease and keep, or returned a damaged record, so the record is lost for good; write or delete the key, or call `Engine::forget_lost`";

/// What went wrong: a caller's mistake, an exhausted resource or an operational fault.
///
/// An operation that fails leaves what is stored as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key must have at least one byte.
    #[error("the key is empty: a key has 1 to {max} bytes")]
    KeyEmpty {
        /// Longest key, in bytes.
        max: usize,
    },
    /// The key is longer than the format allows.
    #[error("the key has {bytes} bytes: a key has 1 to {max} bytes")]
    KeyTooLong {
        /// Length given, in bytes.
        bytes: usize,
        /// Longest key, in bytes.
        max: usize,
    },
    /// The value is longer than half a page, or than any engine takes.
    #[error("the value has {bytes} bytes: the limit is {max} bytes{}", longer_values(*max))]
    ValueTooLong {
        /// Length given, in bytes.
        bytes: usize,
        /// Longest value, in bytes.
        max: usize,
    },
    /// A field of the configuration is out of range.
    #[error("`{field}` is {value}: {limit}")]
    Config {
        /// The field's name.
        field: &'static str,
        /// The value given.
        value: String,
        /// What it must be, and the remedy.
        limit: String,
    },
    /// The kernel refuses io_uring.
    #[error(
        "io_uring is not available ({reason}): Farcore needs Linux 5.8 or newer, the sysctl kernel.io_uring_disabled at 0, and a container profile that allows io_uring_setup, io_uring_register and io_uring_enter"
    )]
    IoUring {
        /// The system call, and what the kernel said.
        reason: String,
    },
    /// The system refuses a system call that an engine cannot do without.
    #[error("the system refuses {call} ({reason}): allow it in the container's seccomp profile")]
    SystemCall {
        /// The name of the call.
        call: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// No thread can be started.
    #[error(
        "no thread can be started ({reason}): each core needs two; raise `ulimit -u`, or `pids.max` of the control group"
    )]
    Threads {
        /// What the system said.
        reason: String,
    },
    /// No file descriptor is left.
    #[error(
        "no file descriptor is left ({reason}): {needed} more are needed at once and RLIMIT_NOFILE is {limit}; raise it with `ulimit -n`"
    )]
    Descriptors {
        /// What the system said.
        reason: String,
        /// The limit of this process.
        limit: u64,
        /// Descriptors that were about to be opened.
        needed: usize,
    },
    /// Memory could not be mapped or locked.
    #[error("memory: {reason}")]
    Memory {
        /// Which limit was met, with the value and the remedy.
        reason: String,
    },
    /// A core of the configuration does not exist, or this process may not use it.
    #[error(
        "`cores` names core {core}: this process may use {available:?}; name some of these, or widen its affinity or cpuset"
    )]
    Core {
        /// The core that was named.
        core: usize,
        /// The cores that this process may use.
        available: Vec<usize>,
    },
    /// [`Engine::run_on_core`](crate::Engine::run_on_core) takes a position in
    /// [`Config::cores`](crate::Config::cores), not the number of a core.
    #[error("there is no position {position} in `cores`: positions are 0 to {last}")]
    Position {
        /// The position that was given.
        position: usize,
        /// The last position.
        last: usize,
    },
    /// Every lane is taken.
    #[error("all {limit} handles are in use: drop one or raise `handles_max`")]
    Handles {
        /// How many handles there can be.
        limit: usize,
    },
    /// No position is left for another memory node.
    #[error(
        "all {limit} positions for memory nodes are taken: drain a node, wait for one that leaves to be listed no more, or raise `nodes_max` (`serve --nodes-max`)"
    )]
    NodesMax {
        /// Positions for memory nodes.
        limit: usize,
    },
    /// The engine has no memory node of this address.
    #[error("{node} is no memory node of this engine: `Engine::nodes` lists those that are")]
    NodeUnknown {
        /// The address.
        node: Arc<str>,
    },
    /// A memory node cannot go.
    #[error("memory node {node} cannot go: {reason}")]
    NodeNeeded {
        /// Its address.
        node: Arc<str>,
        /// Why, and the remedy.
        reason: Arc<str>,
    },
    /// Far memory holds no free extent, and compaction cannot free one.
    #[error(
        "{} is full: {} of {} in use; delete keys or raise `far_bytes`",
        far_memory_of(*shard),
        Size(*used),
        Size(*limit)
    )]
    FarFull {
        /// The shard whose share is full; `None` if the request was to the whole engine.
        shard: Option<u16>,
        /// Bytes in use, of that share or of all.
        used: u64,
        /// Bytes that there are, of the same.
        limit: u64,
    },
    /// The local memory is too little for the rest of the configuration.
    #[error(
        "`local_bytes` is {:#}: at least {:#} is needed for {cores} {}, {keys_expected} keys and {} of far memory: raise it, or lower `keys_expected`, `far_bytes`, `page_bytes`, `handles_max`, `handle_lane_bytes` or `lane_bytes`",
        Size(*local_bytes),
        Size(*least),
        if *cores == 1 { "core" } else { "cores" },
        Size(*far_bytes)
    )]
    LocalMemory {
        /// The local memory given, in bytes.
        local_bytes: u64,
        /// The least that will do, in bytes.
        least: u64,
        /// Cores of the configuration.
        cores: usize,
        /// Its keys.
        keys_expected: u64,
        /// Its far memory, in bytes.
        far_bytes: u64,
    },
    /// The index cannot grow any further within the local memory, or holds more keys of one hash
    /// than it can distinguish.
    #[error(
        "the index of shard {shard} has no place for the key and is at {keys} keys: raise `local_bytes` or `keys_expected`; if keys collide, open the engine with a random `seed`"
    )]
    IndexFull {
        /// The shard.
        shard: u16,
        /// Keys it holds.
        keys: u64,
    },
    /// The key holds a long value, which this operation does not read or change.
    #[error(
        "the value has {bytes} bytes and is stored in pieces: read it with `get_long` or `get_long_range`, or replace it"
    )]
    LongValue {
        /// Length of the value, in bytes.
        bytes: u64,
        /// The key.
        key: Arc<[u8]>,
    },
    /// The key holds a collection, and the operation reads or changes values.
    #[error("the key holds a collection, not a value: use `tree`, or replace it with a put")]
    Collection,
    /// The key holds a value, and the operation is on collections.
    #[error("the key holds a value, not a collection: read it with `get`, or delete it first")]
    NoCollection,
    /// The operation is for collections of another kind.
    #[error("the collection is a {}: use the calls of that kind", kind.name())]
    CollectionKind {
        /// What the key holds.
        kind: TreeKind,
    },
    /// The collection has another tag than the operation.
    #[error("the collection has the tag {tag}: use that one, or another key")]
    CollectionTag {
        /// The collection's tag.
        tag: u8,
    },
    /// The collection has another version than the operation expects.
    #[error("the collection has version {current}: it has changed; read it again")]
    CollectionVersion {
        /// The version; `0` if it is absent.
        current: u64,
    },
    /// A push adds more elements than one step may.
    #[error("{elements} elements are pushed at once: at most {max}; push them in several calls")]
    TooManyElements {
        /// Elements given.
        elements: usize,
        /// The most.
        max: usize,
    },
    /// The table of a shard has no room for another node of a collection.
    #[error(
        "shard {shard} has no room for more collections: its table has {}; delete some or raise `local_bytes`",
        Size(*bytes)
    )]
    Collections {
        /// The shard.
        shard: u16,
        /// Bytes that the table may take.
        bytes: u64,
    },
    /// The pieces of a long value have another length than was said.
    #[error("the value was said to have {said} bytes and has {given}: nothing was stored")]
    LongValueLength {
        /// Bytes that were said.
        said: u64,
        /// Bytes that were given; at least, if they are more.
        given: u64,
    },
    /// A long value is longer than any can be, or than one shard's share of the memory holds.
    #[error(
        "the value has {bytes} bytes: the limit is {max} bytes{}",
        longer_long_values(*max)
    )]
    LongValueTooLong {
        /// Length given, in bytes.
        bytes: u64,
        /// Longest value, in bytes.
        max: u64,
    },
    /// There is no room for the table entries of a long value, or too many are being written.
    #[error(
        "shard {shard} can write {writing} long values at once and hold {pieces} pieces, and {unfinished} are being written: wait for others, delete some or raise `local_bytes`"
    )]
    LongValues {
        /// The shard.
        shard: u16,
        /// Long values that can be written at once.
        writing: usize,
        /// Pieces that a shard can hold.
        pieces: usize,
        /// Long values that are being written: there may be room when they have ended.
        unfinished: usize,
    },
    /// A long value that was being written or read ended meanwhile: it was replaced or removed, or
    /// the client that wrote or kept it paused for more than a minute.
    #[error("the long value was replaced, removed or abandoned meanwhile: try again")]
    LongValueGone,
    /// A shard cannot keep another long value for a reader.
    #[error("{max} long values of the shard are kept for readers: try again when some have ended")]
    LongValuesKept {
        /// Values that can be kept at once.
        max: usize,
    },
    /// The answer has not come within the caller's limit. The operation may still be carried out.
    #[error("no answer within {} ms: the operation may still be carried out", limit.as_millis())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// A section names no key, or too many.
    #[error("a section names {keys} keys: 1 to {max}")]
    SectionKeys {
        /// Keys that were named.
        keys: usize,
        /// The most that one can name.
        max: usize,
    },
    /// The keys of a section lie in too many shards.
    #[error("the keys of a section lie in {shards} shards: at most {max}")]
    SectionShards {
        /// Shards of the keys.
        shards: usize,
        /// The most that one can take.
        max: usize,
    },
    /// A client that holds a section began another one.
    #[error("this client holds a section already: name all keys when it begins")]
    SectionInside,
    /// A request under a section is of a shard whose section is not held. It was not sent.
    #[error("shard {shard} is not of this section: name a key of it when the section begins")]
    SectionOutside {
        /// The shard of the request.
        shard: u16,
    },
    /// A section was held longer than it is lent, or it has ended. What was done under it before
    /// remains; others may have seen parts of it, and changed them since. This request was not
    /// carried out.
    #[error(
        "the section of shard {shard} was lost: it is lent for {} ms; what was done before remains",
        limit.as_millis()
    )]
    SectionLost {
        /// The shard.
        shard: u16,
        /// How long a section is lent.
        limit: Duration,
    },
    /// The section of a client has ended: it has outlived the call that gave it. The request was
    /// not sent.
    #[error("the section of this client has ended: use the client outside of it")]
    SectionEnded,
    /// A shard gives no section at the moment: requests that had begun before, as those to a memory
    /// node that is silent, have not ended within the time for which a section is lent, or too many
    /// clients wait: 4096 at a shard, or at the lane of one handle one for each 128 bytes of its
    /// answers. Nothing was done.
    #[error("shard {shard} gives no section at the moment, and {waiting} clients wait: try again")]
    SectionRefused {
        /// The shard.
        shard: u16,
        /// Clients that waited for it.
        waiting: usize,
    },
    /// A cursor of another engine.
    #[error(
        "the cursor is not of this engine, which has {shards} shards: begin the scan again with `Cursor::START`"
    )]
    Cursor {
        /// Shards of this engine.
        shards: u16,
    },
    /// What lies on a memory node cannot be reached, or the node cannot be used at all. It can be
    /// read again when the node is back, unless the reason says that it is lost: then until the key
    /// is written, or deleted, or [`Engine::forget_lost`](crate::Engine::forget_lost) is called.
    #[error("memory node {node} is unavailable: {reason}")]
    Unavailable {
        /// The node, or the nodes, by name.
        node: Arc<str>,
        /// How that was noticed.
        reason: Cow<'static, str>,
    },
    /// A request on the fabric failed.
    #[error("the fabric failed a request: {status}")]
    Fabric {
        /// The completion's status.
        status: String,
    },
    /// A far record does not match its checksum or its key.
    #[error(
        "a far record of shard {shard} is damaged (page sequence {sequence}, unit {unit}): write or delete the key"
    )]
    Damaged {
        /// The shard.
        shard: u16,
        /// Sequence number of its page.
        sequence: u64,
        /// Unit within the page.
        unit: u32,
    },
    /// The encryption key cannot be used; the key itself is never repeated.
    #[error("encryption key: {reason}")]
    Key {
        /// What is wrong with it.
        reason: String,
    },
    /// The journal cannot be written, because the disk is full or fails: no change is made. It is
    /// tried again several times a second.
    #[error(
        "the log cannot be written, so nothing is changed: make room on its disk, or repair it"
    )]
    JournalFailed,
    /// The engine has no data directory.
    #[error("the engine has no data directory, so it keeps no snapshot: set `data_dir`")]
    NoDataDirectory,
    /// A snapshot was not made, because what it waits for did not come: a long value that is
    /// written for minutes, or shards that do not come to rest together.
    #[error(
        "no snapshot is made: a long value is being written, or the shards do not come to rest; \
         try again"
    )]
    SnapshotStalled,
    /// What was lost was not restored from the data directory, because more was lost meanwhile.
    #[error("the repair was ended, because more was lost while it ran: it is begun again")]
    RepairInterrupted,
    /// What was lost cannot be restored, because not every change is logged.
    #[error(
        "what is lost cannot be restored, because the data directory has no log of all changes: set \
         `log`, or forget what is lost"
    )]
    RepairNeedsLog,
    /// A snapshot was not made, because some records cannot be read.
    #[error(
        "no snapshot is made: {unreadable} records of shard {shard} are lost or damaged, and would \
         be missing; forget them first, or bring their memory node back"
    )]
    BaseIncomplete {
        /// The shard.
        shard: u16,
        /// The records.
        unreadable: u64,
    },
    /// A job that was run on a core panicked.
    #[error("the job panicked: {reason}")]
    JobPanicked {
        /// What the panic said.
        reason: String,
    },
    /// A counter's value, or the sum, is no number of the counter's type. Nothing has changed.
    #[error("{reason}: a counter's value is a number in decimal; put one first")]
    NotANumber {
        /// What it is not.
        reason: &'static str,
    },
    /// A counter would leave the range of 64-bit integers. Nothing has changed.
    #[error(
        "{current} + {by} is beyond a 64-bit counter ({} to {})",
        i64::MIN,
        i64::MAX
    )]
    CounterOverflow {
        /// The counter's value.
        current: i64,
        /// What was to be added.
        by: i64,
    },
    /// A transaction names no key.
    #[error("the transaction is empty: it names 1 to {TRANSACTION_KEYS_MAX} keys")]
    TransactionEmpty,
    /// A transaction names more keys than one may.
    #[error("the transaction names {keys} keys: it names 1 to {max}; split it")]
    TransactionKeys {
        /// Keys that it names.
        keys: usize,
        /// The most.
        max: usize,
    },
    /// The keys and values of a transaction, and 24 bytes for each key, are longer than a value may
    /// be.
    #[error(
        "the transaction has {bytes} bytes: the limit is {max} bytes, as for a value; split it, or raise `local_bytes` or `page_bytes`"
    )]
    TransactionTooLong {
        /// Its bytes.
        bytes: usize,
        /// The most.
        max: usize,
    },
    /// A transaction names a key twice: with two writes, or with two expected versions.
    #[error(
        "key {place} of the transaction has two writes or two expected versions: name one of each"
    )]
    KeyTwice {
        /// The key's place in the transaction, from 0.
        place: usize,
    },
    /// The keys of a transaction lie in more than one shard.
    #[error(
        "keys {first} and {other} of the transaction lie in different shards: set `hash_tags`, and give its keys a common tag, as in `{{tag}}:name`"
    )]
    KeysApart {
        /// The place of a key in the transaction, from 0.
        first: usize,
        /// The place of the first key that lies in another shard.
        other: usize,
    },
    /// The files of the data directory cannot be written or read.
    #[error(transparent)]
    Storage(Arc<StorageError>),
    /// The engine has been closed.
    #[error("the engine is closed")]
    Closed,
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::Storage(Arc::new(error))
    }
}

impl Error {
    /// True if the key's record is lost for good, so that no wait brings it back: the key must be
    /// written, deleted or forgotten ([`Engine::forget_lost`](crate::Engine::forget_lost)).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Unavailable { reason, .. } if reason == LOST)
    }
}

fn far_memory_of(shard: Option<u16>) -> String {
    shard.map_or_else(
        || "far memory".to_owned(),
        |shard| format!("the far memory of shard {shard}"),
    )
}

/// Why a value may not be longer, and the remedy.
fn longer_values(max: usize) -> &'static str {
    if max < VALUE_BYTES_MAX {
        " (half a page); raise `local_bytes` or `page_bytes`"
    } else {
        " in any engine; split the value"
    }
}

/// Why a long value may not be longer, and the remedy.
fn longer_long_values(max: u64) -> &'static str {
    if max < LONG_VALUE_BYTES_MAX {
        ", what the memory of its shard holds; raise `far_bytes`"
    } else {
        " in any engine; split the value"
    }
}

/// What the calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;
