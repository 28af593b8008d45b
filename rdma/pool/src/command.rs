//! What the pool's tasks are asked to do with a node.

use async_channel::Sender;
use farcore_rdma::control::{Call, Grant};
use farcore_rdma::{ExtentRun, RemoteSlice};

use crate::allocation::Lingering;
use crate::heap::Run;

/// To a node's task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Claim extents that lie one behind the other; answers `None` if the node has none.
    Claim {
        count: u32,
        answer: Sender<Option<Granted>>,
    },
    /// Return a claimed run.
    Free { session: u64, first: u32 },
    /// Share another session's extents; answers why the node refuses.
    Share {
        grant: Grant,
        answer: Sender<std::result::Result<(), String>>,
    },
    /// Lower a reference word, and then give up shares.
    Unshare {
        session: u64,
        word: Option<RemoteSlice>,
        runs: Vec<ExtentRun>,
    },
    /// Swap a word, if it is still `expected`.
    Swap {
        session: u64,
        word: RemoteSlice,
        expected: u64,
        desired: u64,
    },
    /// Gives a claimed run to those that use an anchor; answers whether the node did.
    Attach {
        first: u32,
        anchor: u32,
        answer: Sender<bool>,
    },
    /// Whether a session of the node is over, given by the lower half of its number. If so, none of
    /// its requests is performed any more.
    IsOver { session: u32, answer: Sender<bool> },
    /// Call a procedure of the node's host.
    Call {
        call: Call,
        /// The session of the target.
        session: Option<u64>,
        answer: Sender<std::result::Result<Vec<u8>, CallError>>,
    },
    /// Free exported memory after its last owner.
    Linger(Lingering),
}

/// Why a call of a procedure has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The procedure failed, or the node refuses the call.
    Failed(String),
    /// It takes longer than its limit, and runs on.
    Late(String),
    /// The session of the target is over.
    Renewed,
    /// The connection broke: it ran or not.
    Unknown,
}

/// A claimed run, and the session in which it was claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) session: u64,
    pub(crate) run: Run,
}
