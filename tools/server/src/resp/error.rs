//! Errors of the protocol, after which a connection cannot go on.

/// Why a request is malformed, in the words of Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The count of an array is no number, or beyond the limit.
    #[error("Protocol error: invalid multibulk length")]
    ArrayLength,
    /// The count of an array is beyond the limit of peers that are not authenticated.
    #[error("Protocol error: unauthenticated multibulk length")]
    ArrayLengthUnauthenticated,
    /// The line of an array's count does not end.
    #[error("Protocol error: too big mbulk count string")]
    ArrayLine,
    /// An argument is no bulk string.
    #[error("Protocol error: expected '$', got '{}'", char::from(*found))]
    BulkExpected {
        /// The byte in the place of the `$`.
        found: u8,
    },
    /// The length of a bulk string is no number, or beyond the limit.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// The length of a bulk string is beyond the limit of peers that are not authenticated.
    #[error("Protocol error: unauthenticated bulk length")]
    BulkLengthUnauthenticated,
    /// The line of a bulk string's length does not end.
    #[error("Protocol error: too big bulk count string")]
    BulkLine,
    /// An inline command does not end.
    #[error("Protocol error: too big inline request")]
    InlineLine,
    /// A quote of an inline command is not closed, or text follows where it closes.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}
