//! Why an operation on remote memory failed.
//!
//! Each error names the limit, the value and what to do. A program reacts by the variant: a pointer
//! that is worthless, a node that may come back, or an operation whose outcome is unknown.

use std::time::Duration;

use crate::plain::PlainError;

/// The outcome of an operation on remote memory.
pub type Result<T> = std::result::Result<T, PoolError>;

/// Why an operation on remote memory failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The access leaves its allocation.
    #[error("{bytes} bytes at {offset} exceed an allocation of {limit} bytes")]
    OutOfBounds {
        /// The offset from the allocation's start.
        offset: i128,
        /// The length of the access.
        bytes: u64,
        /// The allocation's length.
        limit: u64,
    },
    /// The place is not aligned for the access.
    #[error("byte {offset} of the allocation is not aligned to {align}")]
    Unaligned {
        /// The offset from the allocation's start.
        offset: u64,
        /// The required alignment.
        align: u64,
    },
    /// The allocation was freed.
    #[error("the allocation was freed: keep its owner for as long as pointers to it are used")]
    Freed,
    /// The pointer belongs to another pool.
    #[error(
        "the pointer belongs to pool {other}, this is pool {this}: export it, and import it here"
    )]
    Foreign {
        /// The pointer's pool.
        other: u64,
        /// This pool.
        this: u64,
    },
    /// The session in which the memory was allocated has ended, and with it the memory.
    #[error(
        "{node}: its session was renewed, and what was allocated there before is lost: allocate again, or keep two copies"
    )]
    Renewed {
        /// The node.
        node: String,
    },
    /// The node does not answer. What it holds may be intact.
    #[error("{node}: no answer within {limit:?} ({reason}): try again later, or keep two copies")]
    Down {
        /// The node.
        node: String,
        /// The time limit, [`PoolOptions::timeout`](crate::PoolOptions::timeout).
        limit: Duration,
        /// What is known of it.
        reason: String,
    },
    /// Each node that may be used and answers leaves. What is allocated there stays until it is
    /// freed.
    #[error("{node}: the memory node is leaving: name another one, or allow more nodes")]
    Leaving {
        /// One of them.
        node: String,
    },
    /// The connection broke after an atomic operation was sent: it was performed or not.
    #[error(
        "{node}: the connection broke in an atomic operation, which was performed or not: read the word"
    )]
    UnknownOutcome {
        /// The node.
        node: String,
    },
    /// The node refused the access: it protects the memory, or the pointer was made up.
    #[error("{node} refused the access: {reason}")]
    Refused {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
    },
    /// No node that may be used has so much free memory.
    #[error(
        "no remote memory for {bytes} bytes: the nodes that may be used have {free_bytes} bytes free: free some, or add a node"
    )]
    Exhausted {
        /// The requested bytes.
        bytes: u64,
        /// The bytes that were free when last seen.
        free_bytes: u64,
    },
    /// No node matches the placement.
    #[error("no memory node for {placement}: the pool has {nodes}")]
    NoNode {
        /// The placement.
        placement: String,
        /// The pool's nodes.
        nodes: String,
    },
    /// The alignment exceeds what the pool gives.
    #[error("an alignment of {align} bytes: remote memory is aligned to {limit} at most")]
    Alignment {
        /// The requested alignment.
        align: u64,
        /// The limit.
        limit: u64,
    },
    /// More bytes than can be addressed.
    #[error("{count} values of {bytes} bytes exceed 2^63 bytes")]
    TooLong {
        /// The number of values.
        count: u64,
        /// The length of one.
        bytes: u64,
    },
    /// The numbers of places and values differ.
    #[error("{places} places and {values} values: the numbers must be equal")]
    Lengths {
        /// The number of places.
        places: usize,
        /// The number of values.
        values: usize,
    },
    /// The bytes in far memory are no value of the type.
    #[error(transparent)]
    Plain(#[from] PlainError),
    /// A setting is out of range.
    #[error("{option} is {value}: must be {range}")]
    Option {
        /// The setting.
        option: &'static str,
        /// The value given.
        value: String,
        /// The valid range.
        range: &'static str,
    },
    /// A node cannot be used.
    #[error("cannot use the memory nodes: {0}")]
    Connect(String),
    /// A node and this program have different tokens.
    #[error("cannot use the memory nodes: {0}")]
    Token(String),
    /// The system has no thread or descriptor left for the pool.
    #[error("cannot start a thread: {0}")]
    Start(String),
    /// The memory was imported to be read only.
    #[error("the memory was exported to be read only: have it exported with the right to write")]
    ReadOnly,
    /// Memory of this process cannot be exported.
    #[error("memory of this process cannot be exported: connect to memory nodes")]
    Embedded,
    /// What is imported has another type.
    #[error(
        "the exported memory holds {found}, this program expects {expected}: use the type that was exported"
    )]
    WrongType {
        /// The expected type.
        expected: String,
        /// The exported one.
        found: String,
    },
    /// The pool has no session at the node that holds the exported memory.
    #[error(
        "the exported memory lies on a node with incarnation {incarnation:08x}, which this pool is not connected to, or which was restarted: name all nodes of the exporter"
    )]
    OtherNode {
        /// The node's incarnation.
        incarnation: u32,
    },
    /// The exported memory was freed, taken by another, or its owner's session has ended.
    #[error("the exported memory cannot be imported: {reason}")]
    Gone {
        /// What has happened.
        reason: String,
    },
    /// The text is no exported pointer.
    #[error("this is no exported pointer: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// A procedure of a node's host failed, or the node refused the call.
    #[error("{node}: the procedure `{procedure}` failed: {reason}")]
    Procedure {
        /// The node.
        node: String,
        /// The procedure.
        procedure: String,
        /// Why.
        reason: String,
    },
    /// The memory lies on another node than the one that this program hosts.
    #[error(
        "the memory lies on {node}, not on the node given: allocate it there with `Placement::Node`"
    )]
    NotLocal {
        /// The node that holds it.
        node: String,
    },
    /// The pool was closed.
    #[error("the pool was closed")]
    Closed,
}
