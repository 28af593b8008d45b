//! Work requests and completions, in the terms of the verbs specification.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The caller's mark on a work request, handed back in its completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WorkId(pub u64);

/// Names a local registered region (an lkey). Not to be mixed up with a [`RemoteKey`]: the types
/// forbid it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LocalKey(pub u32);

/// Names a remote registered region (an rkey).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RemoteKey(pub u32);

/// A piece of a local registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalSlice {
    /// The region.
    pub key: LocalKey,
    /// First byte, from the region's start.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// A place in a remote registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteSlice {
    /// The region.
    pub key: RemoteKey,
    /// First byte, from the region's start.
    pub offset: u64,
}

/// What is to be done. Atomics work on 8 bytes, aligned to 8, and leave the old value in `local`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Far memory to local memory.
    Read {
        /// Where to.
        local: LocalSlice,
        /// Where from.
        remote: RemoteSlice,
    },
    /// Local memory to far memory.
    Write {
        /// Where from.
        local: LocalSlice,
        /// Where to.
        remote: RemoteSlice,
    },
    /// A write that also takes a receive of the peer and hands it a word.
    WriteImmediate {
        /// Where from.
        local: LocalSlice,
        /// Where to.
        remote: RemoteSlice,
        /// The word.
        immediate: u32,
    },
    /// Stores `desired` if the far word is `expected`.
    CompareAndSwap {
        /// Where the old value goes.
        local: LocalSlice,
        /// The far word.
        remote: RemoteSlice,
        /// What it must be.
        expected: u64,
        /// What it becomes.
        desired: u64,
    },
    /// Adds to the far word.
    FetchAdd {
        /// Where the old value goes.
        local: LocalSlice,
        /// The far word.
        remote: RemoteSlice,
        /// What is added, wrapping.
        addend: u64,
    },
    /// A message to the peer.
    Send {
        /// The message.
        local: LocalSlice,
    },
    /// Room for a message of the peer.
    Receive {
        /// The room.
        local: LocalSlice,
    },
}

impl Work {
    /// The local side.
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

    /// The far side of a one-sided request.
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
    /// Handed back in the completion.
    pub id: WorkId,
    /// What is to be done.
    pub work: Work,
    /// Whether success makes a completion; failure always does.
    pub signalled: bool,
}

/// How a work request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done.
    Success,
    /// The local buffer is too short for the message.
    LocalLength,
    /// The local buffer is not registered.
    LocalProtection,
    /// The queue pair could not perform the request: an internal inconsistency.
    LocalQueuePair,
    /// The local end-to-end context could not perform the request.
    LocalEndToEndContext,
    /// The local buffer does not allow what an incoming message asks.
    LocalAccess,
    /// A memory window could not be bound.
    MemoryWindowBind,
    /// The far side's answer made no sense.
    BadResponse,
    /// The far side found the request itself invalid: a message too long for its receive, for one.
    RemoteInvalidRequest,
    /// The far side does not allow the access: wrong rkey or out of bounds.
    RemoteAccess,
    /// The far side could not do it: an atomic that is not aligned, for one.
    RemoteOperation,
    /// The far side did not answer.
    RetryExceeded,
    /// The far side had no receive posted for too long.
    ReceiverNotReady,
    /// A reliable datagram domain does not match, on this side.
    LocalDomain,
    /// The same, on the far side.
    RemoteInvalidDomain,
    /// The far side gave the request up.
    RemoteAborted,
    /// The end-to-end context is unknown, or in a wrong state.
    InvalidEndToEndContext,
    /// The device cannot go on.
    Fatal,
    /// The far side did not respond in time.
    ResponseTimeout,
    /// Something that has no status of its own.
    General,
    /// The queue pair was in error before the request was begun.
    Flushed,
    /// A status that this version does not know.
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
            Self::RetryExceeded => f.write_str("retries exceeded: the memory node does not answer"),
            Self::ReceiverNotReady => {
                f.write_str("retries exceeded: the far side has no receive posted")
            }
            Self::LocalDomain => f.write_str("local reliable datagram domain violation"),
            Self::RemoteInvalidDomain => f.write_str("remote invalid reliable datagram request"),
            Self::RemoteAborted => f.write_str("remote aborted"),
            Self::InvalidEndToEndContext => f.write_str("invalid end-to-end context, or its state"),
            Self::Fatal => f.write_str("fatal error of the device"),
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
    /// How it ended.
    pub status: Status,
    /// Bytes moved; 0 if it failed.
    pub bytes: u32,
    /// The word of a write with immediate, at the receiver.
    pub immediate: Option<u32>,
}

impl Completion {
    /// A placeholder, to fill an array that is to be polled into.
    pub const NONE: Self = Self {
        id: WorkId(0),
        status: Status::Unknown(0),
        bytes: 0,
        immediate: None,
    };
}
