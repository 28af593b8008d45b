//! Operations on their way from callers to the client's thread.

use std::fmt;
use std::time::Instant;

use farcore_protocol::{Header, Kind};

use crate::error::Result;

/// What the server answered.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) header: Header,
    pub(crate) value: Vec<u8>,
}

/// Ends an operation; may give further ones.
pub(crate) type Done = Box<dyn FnOnce(Result<Reply>, &mut Vec<Command>) + Send>;

/// An operation.
pub(crate) struct Command {
    /// Kind, options, version, argument and flags of the request.
    pub(crate) header: Header,
    pub(crate) key: Vec<u8>,
    /// The value to store, or the request's body.
    pub(crate) value: Vec<u8>,
    /// The value that was read, as far as it has come.
    pub(crate) found: Vec<u8>,
    /// Bytes of the whole value that is read.
    pub(crate) total: u64,
    pub(crate) deadline: Instant,
    /// It is not sent before: the server was busy.
    pub(crate) not_before: Option<Instant>,
    /// Doing it twice is the same as once: it changes nothing.
    pub(crate) is_repeatable: bool,
    pub(crate) done: Done,
}

impl Command {
    /// Ends it.
    pub(crate) fn end(self, outcome: Result<Reply>, more: &mut Vec<Command>) {
        (self.done)(outcome, more);
    }

    /// As it is named in errors.
    pub(crate) fn name(&self) -> &'static str {
        name(self.header.kind)
    }
}

/// Whether requests of a kind change nothing. A batch may change something.
pub(crate) fn is_repeatable(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Get | Kind::Inspect | Kind::Scan | Kind::Statistics | Kind::Ping | Kind::Grow
    )
}

/// The name of an operation in errors.
pub(crate) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Get => "get",
        Kind::Put => "put",
        Kind::Delete => "delete",
        Kind::CompareAndSwap => "compare and swap",
        Kind::Increment => "increment",
        Kind::Expire => "expire",
        Kind::Inspect => "inspect",
        Kind::Batch => "batch",
        Kind::Scan => "scan",
        Kind::Statistics => "statistics",
        Kind::Ping => "ping",
        Kind::ForgetLost => "forget lost",
        _ => "request",
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
