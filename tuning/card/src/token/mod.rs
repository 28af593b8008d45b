//! Tokens: what a card must know of an object, packed into at most 16 bytes.
//!
//! A token is two words. Word 0 starts with the [header](super::Handle), which is the object's
//! handle. Bit 0 is the least significant.
//!
//! ```text
//!                     63              32 31      24 23                0
//! domain          0   [ header ]          [ number:32                 ]
//!                 1   0
//! region          0   [ header ]          [ lkey:32                   ]
//!                 1   [ access:16 ] [ page bits:8 ] [ pages:40        ]
//! completion      0   [ header ]          [ flags:8 ] [ number:24     ]
//! queue           1   0:16 [ vector:16 ]  [ entries:32                ]
//! queue pair      0   [ header ]          [ type:4 ][ state:4 ][ number:24 ]
//!                 1   [ access:16 ] [ domain:16 ] [ send:16 ] [ receive:16 ]
//! ```
//!
//! `domain`, `send` and `receive` are indexes of handles. Keys and permissions are strict: a
//! change of a token's words reaches the host at once. What changes with every message, such as
//! packet numbers, is not in the token but in the [hot word](super::card_table) beside it.
//!
//! - I1: words that [`Token::unpack`] accepts are packed to the same words again. Reserved bits
//!   are zero.

mod access;
mod completion_queue;
mod domain;
mod queue_pair;
mod region;

use std::fmt;

use thiserror::Error;

pub use self::access::Access;
pub use self::completion_queue::CompletionQueueToken;
pub use self::domain::DomainToken;
pub use self::queue_pair::{QueuePairState, QueuePairToken, Transport};
pub use self::region::RegionToken;
use super::handle::{Handle, Kind};

/// A packed token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Token([u64; 2]);

const _: () = assert!(size_of::<Token>() == 16);

/// The fields of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fields {
    /// Of a protection domain.
    Domain(DomainToken),
    /// Of a memory region.
    Region(RegionToken),
    /// Of a completion queue.
    CompletionQueue(CompletionQueueToken),
    /// Of a queue pair.
    QueuePair(QueuePairToken),
}

/// Words that are no token, or fields that do not fit into one.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TokenError {
    /// The header names no kind, or another kind than the fields.
    #[error("the header {handle:?} is not of this kind of token")]
    Kind {
        /// The header.
        handle: Handle,
    },
    /// A field exceeds its bits.
    #[error("{field} is {value} and at most {max} fits")]
    Range {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest that fits.
        max: u64,
    },
    /// A field has a value without a meaning, or a reserved bit is set.
    #[error("{field} has no meaning as {value}")]
    Meaning {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl Token {
    /// A token of these words, which may be invalid.
    #[must_use]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// The words.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        self.0
    }

    /// The header.
    #[must_use]
    pub const fn handle(self) -> Handle {
        Handle::from_bits(high(self.0[0]))
    }

    /// The fields.
    ///
    /// # Errors
    /// The words are no token.
    pub fn unpack(self) -> Result<Fields, TokenError> {
        let handle = self.handle();
        let fields = match handle.kind() {
            Some(Kind::Domain) => Fields::Domain(DomainToken::unpack(self)?),
            Some(Kind::Region) => Fields::Region(RegionToken::unpack(self)),
            Some(Kind::CompletionQueue) => {
                Fields::CompletionQueue(CompletionQueueToken::unpack(self)?)
            }
            Some(Kind::QueuePair) => Fields::QueuePair(QueuePairToken::unpack(self)?),
            None => return Err(TokenError::Kind { handle }),
        };
        Ok(fields)
    }
}

impl Fields {
    /// The packed token.
    ///
    /// # Errors
    /// A field does not fit, or the header is of another kind.
    pub fn pack(&self) -> Result<Token, TokenError> {
        match self {
            Self::Domain(token) => token.pack(),
            Self::Region(token) => token.pack(),
            Self::CompletionQueue(token) => token.pack(),
            Self::QueuePair(token) => token.pack(),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unpack() {
            Ok(fields) => fields.fmt(f),
            Err(_) => write!(f, "Token({:016x}, {:016x})", self.0[0], self.0[1]),
        }
    }
}

/// The upper half of a word.
const fn high(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The lower half of a word.
const fn low(word: u64) -> u32 {
    let [.., a, b, c, d] = word.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// 16 bits of a word from a bit on.
const fn sixteen(word: u64, from: u32) -> u16 {
    let [.., high, low] = (word >> from).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Puts a header above the lower half of word 0.
fn with_header(handle: Handle, kind: Kind, rest: u32) -> Result<u64, TokenError> {
    if handle.kind() == Some(kind) {
        Ok(u64::from(handle.bits()) << 32 | u64::from(rest))
    } else {
        Err(TokenError::Kind { handle })
    }
}

/// Checks that a field fits into its bits.
fn within(field: &'static str, value: u64, bits: u32) -> Result<u64, TokenError> {
    let max = (1 << bits) - 1;
    if value > max {
        return Err(TokenError::Range { field, value, max });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn handle(kind: Kind) -> Handle {
        Handle::new(kind, 7, 0x0102)
    }

    #[test]
    fn the_layout_is_the_drawing() {
        let domain = DomainToken {
            handle: handle(Kind::Domain),
            number: 0xdead_beef,
        };
        let region = RegionToken {
            handle: handle(Kind::Region),
            lkey: 0x1122_3344,
            access: Access::LOCAL_WRITE | Access::REMOTE_READ,
            page_bits: 21,
            pages: 0xff_0000_0001,
        };
        let queue = CompletionQueueToken {
            handle: handle(Kind::CompletionQueue),
            number: 0xab_cdef,
            entries: 4096,
            vector: 3,
            flags: 2,
        };
        let pair = QueuePairToken {
            handle: handle(Kind::QueuePair),
            number: 0x12_3456,
            transport: Transport::ReliableConnection,
            state: QueuePairState::ReadyToSend,
            domain: 1,
            send_queue: 2,
            receive_queue: 3,
            access: Access::REMOTE_WRITE,
        };
        let packed = [
            Fields::Domain(domain),
            Fields::Region(region),
            Fields::CompletionQueue(queue),
            Fields::QueuePair(pair),
        ]
        .map(|fields| fields.pack().unwrap().words());
        assert_eq!(packed[0], [0x0107_0102_dead_beef, 0]);
        assert_eq!(packed[1], [0x0207_0102_1122_3344, 0x0005_15ff_0000_0001]);
        assert_eq!(packed[2], [0x0307_0102_02ab_cdef, 0x0000_0003_0000_1000]);
        assert_eq!(packed[3], [0x0407_0102_2312_3456, 0x0002_0001_0002_0003]);
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        let token = RegionToken {
            handle: handle(Kind::Region),
            lkey: 0,
            access: Access::default(),
            page_bits: 12,
            pages: 1 << 40,
        };
        let error = token.pack().unwrap_err().to_string();
        assert_eq!(
            error,
            "pages is 1099511627776 and at most 1099511627775 fits"
        );
        let wrong = DomainToken {
            handle: handle(Kind::Region),
            number: 0,
        };
        assert!(matches!(wrong.pack(), Err(TokenError::Kind { .. })));
    }

    #[test]
    fn words_that_are_accepted_are_packed_alike() {
        farcore_fuzz::Target::new("card token")
            .seed([4, 7, 0, 0, 0x22, 0, 1, 0, 0, 6, 0, 0, 0, 0, 0, 0])
            .run(|bytes| {
                for words in bytes.as_chunks::<16>().0 {
                    let (first, second) = words.split_at(8);
                    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
                    let token = Token::from_words([word(first), word(second)]);
                    if let Ok(fields) = token.unpack() {
                        assert_eq!(fields.pack(), Ok(token));
                    }
                    assert!(!format!("{token:?}").is_empty());
                }
            });
    }

    proptest! {
        #[test]
        fn every_region_comes_back(lkey in any::<u32>(), access in any::<u16>(), page_bits in any::<u8>(), pages in 0..1_u64 << 40) {
            let token = RegionToken { handle: handle(Kind::Region), lkey, access: Access::from_bits(access), page_bits, pages };
            prop_assert_eq!(token.pack().unwrap().unpack(), Ok(Fields::Region(token)));
        }
    }
}
