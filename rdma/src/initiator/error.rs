//! What goes wrong with an initiator.

use crate::fabric::{QueuePairState, RegisterError};
use crate::region::RegionError;
use crate::work::Status;

/// Why a call failed. Of a batch, other parts may have been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InitiatorError {
    /// There is no such queue pair.
    #[error("no queue pair {queue}: there are {queues}")]
    NoQueue {
        /// The index asked for.
        queue: usize,
        /// How many there are.
        queues: usize,
    },
    /// One transfer is too long.
    #[error("a transfer of {bytes} bytes: at most {limit}; split it, or raise `longest_bytes`")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest.
        limit: u32,
    },
    /// The queue pair takes no requests.
    #[error("queue pair {queue} takes no requests ({state:?}); renew it once it is drained")]
    Down {
        /// Which one.
        queue: usize,
        /// Its state.
        state: QueuePairState,
    },
    /// The request was not done, or not known to be.
    #[error("a request on queue pair {queue} failed: {status}")]
    Failed {
        /// Which queue pair.
        queue: usize,
        /// How it ended.
        status: Status,
    },
    /// The endpoint refuses such a request.
    #[error("queue pair {queue} refuses the request: {reason}")]
    Refused {
        /// Which queue pair.
        queue: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

/// An initiator has no memory to work with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScratchError {
    /// It cannot be had.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The endpoint cannot use it.
    #[error(transparent)]
    Register(#[from] RegisterError),
}
