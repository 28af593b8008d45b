//! What becomes of a command: it is replied to, must go on later, or is refused.

use farcore::Error;

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Flow {
    /// It is replied to, or will be.
    Done,
    /// It must be run again later.
    Later,
}

/// Why a command is refused, as the client reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub(crate) String);

impl Refusal {
    /// True if it sends its client elsewhere, or says that its keys are served nowhere.
    pub(super) fn is_redirection(&self) -> bool {
        ["MOVED ", "CROSSSLOT ", "CLUSTERDOWN "]
            .iter()
            .any(|code| self.0.starts_with(code))
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// A syntax error, as Redis says it.
pub(crate) const SYNTAX: &str = "ERR syntax error";
/// What a read of a key came to. A key that is too long cannot exist.
pub(crate) fn read_of<T>(read: farcore::Result<Option<T>>) -> farcore::Result<Option<T>> {
    match read {
        Err(Error::KeyTooLong { .. }) => Ok(None),
        read => read,
    }
}

/// Bytes of a request that an error repeats; as Redis.
pub(super) const REPEATED_BYTES_MAX: usize = 128;

/// An argument as an error repeats it: cut, and not beyond a zero.
pub(super) fn repeated(argument: &[u8], bytes_max: usize) -> String {
    let end = argument.iter().position(|byte| *byte == 0);
    let end = end.unwrap_or(argument.len()).min(bytes_max);
    String::from_utf8_lossy(&argument[..end]).into_owned()
}
