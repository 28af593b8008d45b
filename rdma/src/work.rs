//! Work requests and completions, in the terms of the verbs specification.
//!
//! Plain data, shared by all backends. A work request names registered memory by key and offset,
//! never by pointer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The caller's mark on a work request, returned in its completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WorkId(pub u64);

/// The key of a local registered region (an lkey). A type of its own, so that it cannot be confused
/// with a [`RemoteKey`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LocalKey(pub u32);

/// The key of a remote registered region (an rkey).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RemoteKey(pub u32);

/// A piece of a local registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalSlice {
    /// The region.
    pub key: LocalKey,
    /// Offset of the first byte from the region's start.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// A place in a remote registered region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteSlice {
    /// The region.
    pub key: RemoteKey,
    /// Offset of the first byte from the region's start.
    pub offset: u64,
}

/// The operation. Atomics work on 8 bytes, aligned to 8, and leave the old value in `local`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Far memory to local memory.
    Read {
        /// The destination.
        local: LocalSlice,
        /// The source.
        remote: RemoteSlice,
    },
    /// Local memory to far memory.
    Write {
        /// The source.
        local: LocalSlice,
        /// The destination.
        remote: RemoteSlice,
    },
    /// A WRITE that also consumes a receive of the peer and delivers a word to it.
    WriteImmediate {
        /// The source.
        local: LocalSlice,
        /// The destination.
        remote: RemoteSlice,
        /// The word.
        immediate: u32,
    },
    /// Stores `desired` if the far word equals `expected`.
    CompareAndSwap {
        /// The destination of the old value.
        local: LocalSlice,
        /// The far word.
        remote: RemoteSlice,
        /// The expected value.
        expected: u64,
        /// The value to store.
        desired: u64,
    },
    /// Adds to the far word.
    FetchAdd {
        /// The destination of the old value.
        local: LocalSlice,
        /// The far word.
        remote: RemoteSlice,
        /// The addend; the sum wraps.
        addend: u64,
    },
    /// A message to the peer.
    Send {
        /// The message.
        local: LocalSlice,
    },
    /// A buffer for a message of the peer.
    Receive {
        /// The buffer.
        local: LocalSlice,
    },
}

impl Work {
    /// The local buffer.
    #[must_use]
    pub fn local(&self) -> LocalSlice {
        match *self {
            Self::Read { local, .. }
            | Self::Write { local, .. }
            | Self::WriteImmediate { local, .. }
            | Self::CompareAndSwap { local, .. }
            | Self::FetchAdd { local, .. }
            | Self::Send { local }
            | Self::Receive { local } => local,
        }
    }

    /// The far place of a one-sided request.
    #[must_use]
    pub fn remote(&self) -> Option<RemoteSlice> {
        match *self {
            Self::Read { remote, .. }
            | Self::Write { remote, .. }
            | Self::WriteImmediate { remote, .. }
            | Self::CompareAndSwap { remote, .. }
            | Self::FetchAdd { remote, .. } => Some(remote),
            Self::Send { .. } | Self::Receive { .. } => None,
        }
    }
}

/// One entry of a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkRequest {
    /// Returned in the completion.
    pub id: WorkId,
    /// The operation.
    pub work: Work,
    /// Whether success produces a completion; failure always does.
    pub signalled: bool,
}

/// The outcome of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Success.
    Success,
    /// The local buffer is too short for the message.
    LocalLength,
    /// The local buffer is not registered.
    LocalProtection,
    /// The queue pair could not perform the request: an internal inconsistency.
    LocalQueuePair,
    /// The local end-to-end context could not perform the request.
    LocalEndToEndContext,
    /// The local buffer does not permit the access of an incoming message.
    LocalAccess,
    /// A memory window could not be bound.
    MemoryWindowBind,
    /// The remote side's answer was invalid.
    BadResponse,
    /// The remote side found the request invalid, for example a message longer than its receive.
    RemoteInvalidRequest,
    /// The remote side does not permit the access: wrong rkey or out of bounds.
    RemoteAccess,
    /// The remote side could not perform it, for example an unaligned atomic.
    RemoteOperation,
    /// The remote side did not answer.
    RetryExceeded,
    /// The remote side had no receive posted for too long.
    ReceiverNotReady,
    /// A reliable datagram domain does not match, on the local side.
    LocalDomain,
    /// A reliable datagram domain does not match, on the remote side.
    RemoteInvalidDomain,
    /// The remote side aborted the request.
    RemoteAborted,
    /// The end-to-end context is unknown, or in a wrong state.
    InvalidEndToEndContext,
    /// The device has failed.
    Fatal,
    /// The remote side did not respond in time.
    ResponseTimeout,
    /// An error without a status of its own.
    General,
    /// The queue pair was in error before the request was started.
    Flushed,
    /// A status unknown to this version.
    Unknown(u32),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("success"),
            Self::LocalLength => f.write_str("local length error"),
            Self::LocalProtection => f.write_str("local protection error"),
            Self::LocalQueuePair => f.write_str("local queue pair operation error"),
            Self::LocalEndToEndContext => f.write_str("local end-to-end context operation error"),
            Self::LocalAccess => f.write_str("local access error"),
            Self::MemoryWindowBind => f.write_str("memory window bind error"),
            Self::BadResponse => f.write_str("bad response"),
            Self::RemoteInvalidRequest => f.write_str("remote invalid request error"),
            Self::RemoteAccess => f.write_str("remote access error"),
            Self::RemoteOperation => f.write_str("remote operation error"),
            Self::RetryExceeded => f.write_str("retries exceeded: the remote side does not answer"),
            Self::ReceiverNotReady => {
                f.write_str("retries exceeded: the remote side has no receive posted")
            }
            Self::LocalDomain => f.write_str("local reliable datagram domain violation"),
            Self::RemoteInvalidDomain => f.write_str("remote invalid reliable datagram request"),
            Self::RemoteAborted => f.write_str("remote aborted"),
            Self::InvalidEndToEndContext => {
                f.write_str("invalid end-to-end context number or state")
            }
            Self::Fatal => f.write_str("fatal device error"),
            Self::ResponseTimeout => f.write_str("response timeout"),
            Self::General => f.write_str("general error"),
            Self::Flushed => f.write_str("flushed: the queue pair is in error"),
            Self::Unknown(status) => write!(f, "unknown status {status}"),
        }
    }
}

/// One entry of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The request's mark.
    pub id: WorkId,
    /// The outcome.
    pub status: Status,
    /// Bytes transferred; 0 if it failed.
    pub bytes: u32,
    /// The immediate word of a WRITE, at the receiver.
    pub immediate: Option<u32>,
}

impl Completion {
    /// A placeholder, to fill an array to poll into.
    pub const NONE: Self = Self {
        id: WorkId(0),
        status: Status::Unknown(0),
        bytes: 0,
        immediate: None,
    };
}
