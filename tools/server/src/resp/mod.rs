//! RESP, the protocol of Redis: parses requests, writes replies of RESP2 and RESP3.
//!
//! It opens no socket and reads no clock: bytes in, arguments out; values in, bytes out.
//!
//! Invariants:
//!
//! 1. No input panics, and none makes the work of one call more than linear in its length.
//! 2. A command is the same however its bytes are split over calls.
//! 3. Neither a parse nor a reply allocates, once its vectors have grown.
//! 4. A reply is well-formed: no text of a caller can end its line.
//!
//! Source: the RESP specification, and `networking.c`, `sds.c` and `util.c` of Redis 7, whose error
//! texts and leniency are kept: the two bytes after a bulk string are skipped unread.

mod arguments;
mod double;
mod error;
mod inline;
mod limits;
mod parse;
mod score;
#[cfg(test)]
mod tests;
mod write;

pub use self::arguments::Arguments;
pub use self::error::ProtocolError;
pub use self::limits::Limits;
pub use self::parse::{Progress, parse, parse_rest};
pub use self::write::{Protocol, Writer};
