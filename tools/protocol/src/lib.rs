//! The native protocol of Farcore's server: its wire format and its accounting, without I/O.
//!
//! Both sides of a connection use it. [`Header`] begins every message, [`handshake`] is what both
//! say first, [`batch`] and [`scan`] are bodies of several entries, [`Credits`] counts messages so
//! that none arrives where no receive is posted. `docs/protocol.md` describes all of it.
//!
//! - I1: no bytes of a peer cause a panic: what is no message is an error.
//! - I2: decoding copies: bounds come from what was checked, never from the peer's memory again.

pub mod batch;
mod credits;
mod fields;
pub mod handshake;
mod header;
mod limits;
pub mod scan;
mod status;

pub use self::credits::{CreditError, Credits};
pub use self::header::{
    ConditionKind, ExpiryConditionKind, ExpiryKind, Flags, Header, Kind, WireError,
};
pub use self::limits::{
    CREDITS_MAX, CREDITS_MIN, HEADER_BYTES, KEY_BYTES_MAX, NAME_BYTES_MAX, PROTOCOL_VERSION,
    SMALL_BYTES, SMALL_BYTES_MAX, SMALL_BYTES_MIN, TRANSFER_SLOT_BYTES, TRANSFER_SLOT_BYTES_MAX,
    VALUE_BYTES_MAX, message_bytes,
};
pub use self::status::Status;
