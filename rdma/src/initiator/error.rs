//! Errors of an initiator.
//!
//! Each names the queue pair, the limit or the state that is in the way.

use crate::fabric::{QueuePairState, RegisterError};
use crate::region::RegionError;
use crate::work::Status;

/// Why a call failed. Other requests of its batch may have been performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InitiatorError {
    /// There is no such queue pair.
    #[error("no queue pair {queue}: there are {queues}")]
    NoQueue {
        /// The index given.
        queue: usize,
        /// The number of queue pairs.
        queues: usize,
    },
    /// A transfer is too long.
    #[error(
        "a transfer of {bytes} bytes exceeds the limit of {limit}: split it or raise `longest_bytes`"
    )]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest transfer, in bytes.
        limit: u32,
    },
    /// The queue pair belongs to another session than the call: what the call names is lost.
    #[error("queue pair {queue} belongs to another session: the memory of the old one is lost")]
    OtherSession {
        /// The queue pair.
        queue: usize,
    },
    /// The queue pair accepts no requests.
    #[error("queue pair {queue} accepts no requests ({state:?}): renew it once it is drained")]
    Down {
        /// The queue pair.
        queue: usize,
        /// Its state.
        state: QueuePairState,
    },
    /// The request failed, or its outcome is unknown.
    #[error("a request on queue pair {queue} failed: {status}")]
    Failed {
        /// The queue pair.
        queue: usize,
        /// The completion's status.
        status: Status,
    },
    /// The endpoint refuses the request.
    #[error("queue pair {queue} refuses the request: {reason}")]
    Refused {
        /// The queue pair.
        queue: usize,
        /// The reason.
        reason: &'static str,
    },
}

/// Why an initiator has no scratch memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScratchError {
    /// It cannot be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The endpoint cannot register it.
    #[error(transparent)]
    Register(#[from] RegisterError),
}
