//! What a peer may send.

use super::error::ProtocolError;

/// Arguments of a command, by default.
const ARGUMENTS_MAX: usize = 1 << 20;
/// Bytes of an argument, by default.
const BULK_BYTES_MAX: usize = 512 << 20;
/// Bytes of a line.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Arguments of a command before the peer is authenticated.
const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;
/// Bytes of an argument before the peer is authenticated.
const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 << 10;
/// A line of a count with any 64-bit number fits.
const LINE_BYTES_MIN: usize = 32;

/// What a peer may send in one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Arguments of a command.
    pub arguments_max: usize,
    /// Bytes of an argument.
    pub bulk_bytes_max: usize,
    /// Bytes of a line, its end left out: of an inline command, a count or a length. At least 32.
    pub inline_bytes_max: usize,
    /// A last argument of more bytes is left to the caller, who can stream it.
    pub large_bytes: usize,
    /// So is every argument of more bytes, whatever comes after it.
    pub announces_all: bool,
    /// Whether the peer has proved who it is. Only the texts of errors depend on it.
    pub is_authenticated: bool,
}

impl Limits {
    /// The limits of a peer that must authenticate first.
    pub const UNAUTHENTICATED: Self = Self {
        arguments_max: UNAUTHENTICATED_ARGUMENTS_MAX,
        bulk_bytes_max: UNAUTHENTICATED_BULK_BYTES_MAX,
        inline_bytes_max: INLINE_BYTES_MAX,
        large_bytes: usize::MAX,
        announces_all: false,
        is_authenticated: false,
    };

    /// The longest line.
    pub(super) fn line_bytes_max(&self) -> usize {
        self.inline_bytes_max.max(LINE_BYTES_MIN)
    }

    /// Accepts a count of arguments.
    pub(super) fn accept_count(&self, count: usize) -> Result<(), ProtocolError> {
        if count <= self.arguments_max {
            Ok(())
        } else if self.is_authenticated || count > ARGUMENTS_MAX {
            Err(ProtocolError::ArrayLength)
        } else {
            Err(ProtocolError::ArrayLengthUnauthenticated)
        }
    }

    /// Accepts the length of an argument.
    pub(super) fn accept_bulk(&self, bytes: usize) -> Result<(), ProtocolError> {
        if bytes <= self.bulk_bytes_max {
            Ok(())
        } else if self.is_authenticated || bytes > BULK_BYTES_MAX {
            Err(ProtocolError::BulkLength)
        } else {
            Err(ProtocolError::BulkLengthUnauthenticated)
        }
    }
}

impl Default for Limits {
    /// The limits of an authenticated peer: those of Redis, and a million arguments.
    fn default() -> Self {
        Self {
            arguments_max: ARGUMENTS_MAX,
            bulk_bytes_max: BULK_BYTES_MAX,
            inline_bytes_max: INLINE_BYTES_MAX,
            large_bytes: usize::MAX,
            announces_all: false,
            is_authenticated: true,
        }
    }
}
