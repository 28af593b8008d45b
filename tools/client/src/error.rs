//! Why an operation has no outcome.

use std::io;
use std::time::Duration;

use farcore_protocol::Status;
use farcore_rdma::FabricAddress;

/// Why an operation has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key is empty or too long.
    #[error("the key has {bytes} bytes: a key has 1 to {max} bytes")]
    KeyLength {
        /// Its bytes.
        bytes: usize,
        /// Bytes of the longest.
        max: usize,
    },
    /// A value is too long.
    #[error("the value has {bytes} bytes: the limit is {max} bytes; split it")]
    ValueTooLong {
        /// Its bytes.
        bytes: u64,
        /// Bytes of the longest.
        max: u64,
    },
    /// Too many operations wait to be sent.
    #[error("{limit} operations wait to be sent: wait for some, or raise `queue`")]
    QueueFull {
        /// How many may wait.
        limit: usize,
    },
    /// The server did not answer in time. A change may have been made.
    #[error("{operation}: no answer within {} ms; {}", limit.as_millis(), after(*may_be_done))]
    TimedOut {
        /// The operation.
        operation: &'static str,
        /// The time limit.
        limit: Duration,
        /// It was sent, and changes something.
        may_be_done: bool,
    },
    /// The connection ended after the operation was sent, and before its answer came: it may have
    /// been done, or not.
    #[error(
        "{operation}: the connection ended before the answer came, so it may have been done: {reason}; read the key to see"
    )]
    UnknownOutcome {
        /// The operation.
        operation: &'static str,
        /// Why the connection ended.
        reason: String,
    },
    /// The server cannot be reached.
    #[error("{address}: {reason}")]
    Unreachable {
        /// The server.
        address: FabricAddress,
        /// Why.
        reason: String,
    },
    /// The server refused the connection.
    #[error("{address}: the server refused the connection: {reason}")]
    Refused {
        /// The server.
        address: FabricAddress,
        /// Its reason.
        reason: String,
    },
    /// The server has another token than the client.
    #[error("{address}: the server does not have this client's token: check both token files")]
    Token {
        /// The server.
        address: FabricAddress,
    },
    /// The server could not do it. Nothing has changed.
    #[error("{operation}: {reason}")]
    Server {
        /// The operation.
        operation: &'static str,
        /// The answer's status.
        status: Status,
        /// What the server says.
        reason: String,
    },
    /// An option is out of range.
    #[error("{option} is {value}: must be {range}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// The range.
        range: &'static str,
    },
    /// The client's thread cannot start.
    #[error("the client cannot start: {0}")]
    Start(String),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

fn after(may_be_done: bool) -> &'static str {
    if may_be_done {
        "it may have been done: read the key to see"
    } else {
        "nothing has changed: try again, or raise `timeout`"
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Start(error.to_string())
    }
}

/// What operations return.
pub type Result<T> = std::result::Result<T, Error>;
