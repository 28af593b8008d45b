//! Which reply an answer of the engine belongs to.
//!
//! ```text
//! bit 63           44 43      32 31       0
//! | connection:20    | part:12  | number:32 |
//! ```

/// Bits of a part.
const PART_BITS: u32 = 12;
/// Parts of a reply, at most.
pub(crate) const PARTS_MAX: usize = 1 << PART_BITS;
/// Connections of a core, at most.
pub(crate) const CONNECTIONS_MAX: usize = 1 << (32 - PART_BITS);

/// A connection, the number of a reply of it, and the part of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    #[inline]
    pub(crate) fn new(connection: usize, number: u32, part: usize) -> Self {
        debug_assert!(connection < CONNECTIONS_MAX && part < PARTS_MAX);
        let high = (connection as u64) << PART_BITS | part as u64;
        Self(high << 32 | u64::from(number))
    }

    #[inline]
    pub(crate) fn connection(self) -> usize {
        usize::try_from(self.0 >> (32 + PART_BITS)).unwrap_or(usize::MAX)
    }

    #[inline]
    pub(crate) fn part(self) -> usize {
        usize::try_from(self.0 >> 32).unwrap_or(usize::MAX) & (PARTS_MAX - 1)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(crate) fn number(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_they_were_written() {
        for connection in [0, 1, CONNECTIONS_MAX - 1] {
            for part in [0, 1, PARTS_MAX - 1] {
                for number in [0, 1, u32::MAX] {
                    let token = Token::new(connection, number, part);
                    let read = (token.connection(), token.number(), token.part());
                    assert_eq!(read, (connection, number, part));
                }
            }
        }
    }
}
