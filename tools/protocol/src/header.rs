//! The header of a message.
//!
//! ```text
//!  0 kind:8 (bit 7: answer) | 1 flags:8 | 2 key bytes:16 | 4 value bytes:32 | 8 version:64
//! 16 request id:32 | 20 status:8 | 21 options:8 | 22 credits:16 | 24 done:16 | 26 slot:16
//! 28 memory key:32 | 32 offset:64 | 40 argument:64
//! ```
//!
//! Little-endian. Key and value follow, in a message or in a transfer slot. Options of a request:
//! condition in bits 0 to 3, expiry in bits 4 to 7. `done` is the number of a lend slot that the
//! client returns, plus 1.

use crate::fields::{u16_at, u32_at, u64_at};
use crate::limits::{HEADER_BYTES, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::status::Status;

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// There are fewer bytes than the message says.
    #[error("a message of {0} bytes ends before its end")]
    Short(usize),
    /// There are more.
    #[error("a message of {0} bytes goes on after its end")]
    Long(usize),
    /// The kind is unknown.
    #[error("unknown kind of message {0}")]
    Kind(u8),
    /// The status is unknown.
    #[error("unknown status {0}")]
    Status(i8),
    /// A bit of the flags is unknown.
    #[error("unknown flags {0:#x}")]
    Flags(u8),
    /// The options are unknown.
    #[error("unknown options {0:#x}")]
    Options(u8),
    /// The key is longer than any.
    #[error("a key of {0} bytes: the limit is {KEY_BYTES_MAX}")]
    Key(usize),
    /// The value is longer than any.
    #[error("a value of {0} bytes: the limit is {VALUE_BYTES_MAX}")]
    Value(u64),
    /// A field of a body is out of range.
    #[error("{field} is {value}: out of range")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A text is no UTF-8.
    #[error("a text is no UTF-8")]
    Text,
}

macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $kind:ident = $code:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $kind = $code,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// The one with a code; `None` if there is none.
            #[must_use]
            pub fn of(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The kind of a message.
    Kind {
        /// The client's first message.
        Hello = 1,
        /// The server's proof.
        Challenge = 2,
        /// The client's proof.
        Prove = 3,
        /// The server's limits; requests may follow.
        Welcome = 4,
        /// The server refuses the client and says why.
        Refused = 5,
        /// Returns credits.
        Noop = 8,
        /// Returns lend slots.
        Done = 9,
        /// Read a value, or a part of it.
        Get = 16,
        /// Store a value.
        Put = 17,
        /// Remove a key.
        Delete = 18,
        /// Store a value if the key has a version.
        CompareAndSwap = 19,
        /// Add to a counter.
        Increment = 20,
        /// Set when a key expires.
        Expire = 21,
        /// Read a key's version, length and expiry.
        Inspect = 22,
        /// Several operations in one message.
        Batch = 23,
        /// List keys.
        Scan = 24,
        /// Read the server's figures.
        Statistics = 25,
        /// Nothing; measures the round trip.
        Ping = 26,
        /// Request longer upload slots.
        Grow = 27,
        /// Make keys absent whose records are lost.
        ForgetLost = 28,
    }
}

codes! {
    /// What a key must be for a put or a delete to happen.
    ConditionKind {
        /// Anything.
        Always = 0,
        /// The key is absent.
        Absent = 1,
        /// The key exists.
        Present = 2,
        /// The key has the version of the header; 0 means that it is absent.
        Version = 3,
    }
}

codes! {
    /// What the argument of a put says about the key's expiry.
    ExpiryKind {
        /// It does not expire.
        Never = 0,
        /// It expires when it would have before.
        Keep = 1,
        /// It expires at a time, in milliseconds since 1970.
        At = 2,
        /// It expires after a time from now, in milliseconds.
        In = 3,
    }
}

codes! {
    /// What a key's expiry must be for another to be set.
    ExpiryConditionKind {
        /// Anything.
        Always = 0,
        /// The key does not expire.
        Unset = 1,
        /// The key expires.
        Set = 2,
        /// The new expiry is later.
        Later = 3,
        /// The new expiry is earlier.
        Earlier = 4,
    }
}

/// The flags of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(u8);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// More of the value follows in further requests with this id.
    pub const MORE: Self = Self(1);
    /// The value lies in a lend slot: READ it, and return the slot.
    pub const LENT: Self = Self(2);
    /// The request names a landing buffer of the client's.
    pub const LANDING: Self = Self(4);
    /// The scan's entries have values.
    pub const VALUES: Self = Self(8);
    /// The key holds a collection.
    pub const COLLECTION: Self = Self(16);
    const ALL: u8 = 31;

    /// Both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all flags of another are set.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of the request, or of that which is answered.
    pub kind: Kind,
    /// It is an answer.
    pub is_answer: bool,
    /// The flags.
    pub flags: Flags,
    /// Bytes of the key.
    pub key_bytes: u16,
    /// Bytes of the value that this message has or lends; in a get, the most bytes wanted.
    pub value_bytes: u32,
    /// The key's version: the expected one, or the current one.
    pub version: u64,
    /// Chosen by the client, and repeated by the answer.
    pub id: u32,
    /// How it ended.
    pub status: Status,
    /// Condition and expiry of a request.
    pub options: u8,
    /// Messages more that the receiver may send.
    pub credits: u16,
    /// A lend slot that the client returns, plus 1; 0 for none.
    pub done: u16,
    /// The transfer slot, or the landing buffer.
    pub slot: u16,
    /// The key of remote memory.
    pub memory_key: u32,
    /// An offset: in remote memory, or, in a get, in the value.
    pub offset: u64,
    /// The addend, the expiry, the landing buffer, the whole value's length: see the kind.
    pub argument: u64,
}

impl Header {
    /// A header of which all else is zero.
    #[must_use]
    pub fn new(kind: Kind, id: u32) -> Self {
        Self {
            kind,
            is_answer: false,
            flags: Flags::NONE,
            key_bytes: 0,
            value_bytes: 0,
            version: 0,
            id,
            status: Status::Ok,
            options: 0,
            credits: 0,
            done: 0,
            slot: 0,
            memory_key: 0,
            offset: 0,
            argument: 0,
        }
    }

    /// The header of the answer to this one, without a value.
    #[must_use]
    pub fn answer(&self, status: Status) -> Self {
        Self {
            is_answer: true,
            status,
            ..Self::new(self.kind, self.id)
        }
    }

    /// The argument of a get that names a landing buffer: its offset in the client's memory, and
    /// its length in bytes.
    #[must_use]
    pub fn landing(offset: u32, bytes: u32) -> u64 {
        u64::from(bytes) << 32 | u64::from(offset)
    }

    /// Where the landing buffer begins.
    #[must_use]
    pub fn landing_offset(&self) -> u64 {
        self.argument & u64::from(u32::MAX)
    }

    /// Bytes of the landing buffer, for header and value.
    #[must_use]
    pub fn landing_bytes(&self) -> usize {
        usize::try_from(self.argument >> 32).unwrap_or(0)
    }

    /// Options of a put, a delete or a compare-and-swap.
    #[must_use]
    pub fn put_options(condition: ConditionKind, expiry: ExpiryKind) -> u8 {
        condition as u8 | (expiry as u8) << 4
    }

    /// The condition of a put or a delete.
    ///
    /// # Errors
    /// [`WireError::Options`].
    pub fn condition(&self) -> Result<ConditionKind, WireError> {
        ConditionKind::of(self.options & 15).ok_or(WireError::Options(self.options))
    }

    /// The condition of an expiry.
    ///
    /// # Errors
    /// [`WireError::Options`].
    pub fn expiry_condition(&self) -> Result<ExpiryConditionKind, WireError> {
        ExpiryConditionKind::of(self.options & 15).ok_or(WireError::Options(self.options))
    }

    /// What the argument says about the expiry.
    ///
    /// # Errors
    /// [`WireError::Options`].
    pub fn expiry(&self) -> Result<ExpiryKind, WireError> {
        ExpiryKind::of(self.options >> 4).ok_or(WireError::Options(self.options))
    }

    /// Encodes it.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8 | u8::from(self.is_answer) << 7;
        bytes[1] = self.flags.0;
        bytes[2..4].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.id.to_le_bytes());
        bytes[20] = self.status.code().to_le_bytes()[0];
        bytes[21] = self.options;
        bytes[22..24].copy_from_slice(&self.credits.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.done.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.slot.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.memory_key.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.offset.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.argument.to_le_bytes());
        bytes
    }

    /// Decodes the header at the start of a message, which may be longer.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(message: &[u8]) -> Result<Self, WireError> {
        let Some(bytes) = message.first_chunk::<HEADER_BYTES>() else {
            return Err(WireError::Short(message.len()));
        };
        let kind = Kind::of(bytes[0] & 0x7F).ok_or(WireError::Kind(bytes[0]))?;
        if bytes[1] & !Flags::ALL != 0 {
            return Err(WireError::Flags(bytes[1]));
        }
        let status = i8::from_le_bytes([bytes[20]]);
        let key_bytes = u16_at(bytes, 2);
        if usize::from(key_bytes) > KEY_BYTES_MAX {
            return Err(WireError::Key(key_bytes.into()));
        }
        let value_bytes = u32_at(bytes, 4);
        if u64::from(value_bytes) > VALUE_BYTES_MAX {
            return Err(WireError::Value(value_bytes.into()));
        }
        Ok(Self {
            kind,
            is_answer: bytes[0] >> 7 == 1,
            flags: Flags(bytes[1]),
            key_bytes,
            value_bytes,
            version: u64_at(bytes, 8),
            id: u32_at(bytes, 16),
            status: Status::of(status).ok_or(WireError::Status(status))?,
            options: bytes[21],
            credits: u16_at(bytes, 22),
            done: u16_at(bytes, 24),
            slot: u16_at(bytes, 26),
            memory_key: u32_at(bytes, 28),
            offset: u64_at(bytes, 32),
            argument: u64_at(bytes, 40),
        })
    }

    /// Key and value of a message that has both, all of it.
    ///
    /// # Errors
    /// [`WireError::Short`], [`WireError::Long`].
    pub fn body<'a>(&self, message: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), WireError> {
        let key_end = HEADER_BYTES + usize::from(self.key_bytes);
        let end = key_end + self.value_bytes as usize;
        match (message.get(HEADER_BYTES..key_end), message.get(key_end..)) {
            (Some(key), Some(value)) if message.len() == end => Ok((key, value)),
            _ if message.len() > end => Err(WireError::Long(message.len())),
            _ => Err(WireError::Short(message.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_all_of_the_message() {
        let header = Header {
            key_bytes: 2,
            value_bytes: 3,
            ..Header::new(Kind::Put, 1)
        };
        let mut message = header.encode().to_vec();
        message.extend(b"abcde");
        assert_eq!(header.body(&message), Ok((&b"ab"[..], &b"cde"[..])));
        assert_eq!(header.body(&message[..52]), Err(WireError::Short(52)));
        assert_eq!(header.body(&message[..49]), Err(WireError::Short(49)));
        message.push(0);
        assert_eq!(header.body(&message), Err(WireError::Long(54)));
    }
}
