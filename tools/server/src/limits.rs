//! Limits that several parts of the server share.

/// A value or record of more bytes is large: its reply may have to be made as the client takes it.
/// Shorter ones bound what the answers under way of a core can become, a thousand at most.
pub(crate) const LARGE_BYTES: usize = 2 << 10;

/// Bytes that a record, or the request that stores it, may have beside the value: the options of a
/// put, and an expiry.
pub(crate) const BESIDE_BYTES: usize = 32;

/// How long a command waits for memory before it begins, in milliseconds.
pub(crate) const DEFERRED_MS: u64 = 4000;

/// How long an engine should lend sections, in nanoseconds, if a server runs on it
/// ([`Config::section_ns`](farcore::Config::section_ns)): a transaction of many long commands, and
/// a rename of a large collection, hold sections until they have ended. They hold up others of the
/// same shards for as long, at most.
pub const SECTION_NS: u64 = 5_000_000_000;

/// How long a client lets the server wait before it gives way to a command that needs memory, in
/// milliseconds.
pub(crate) const STALLED_MS: u64 = 1000;

/// Bytes of the longest empty buffer that is kept: such buffers are not counted.
pub(crate) const SPARE_BYTES_MAX: usize = 16 << 10;

/// Bytes received at once.
pub(crate) const RECEIVE_BYTES: usize = 64 << 10;

/// Arguments, and bytes of them, of a command that handles them all in one turn.
pub(crate) const ARGUMENTS_MAX: usize = 128 << 10;
pub(crate) const ARGUMENT_BYTES_MAX: usize = 8 << 20;
