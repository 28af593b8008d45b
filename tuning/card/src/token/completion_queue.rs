//! The token of a completion queue.

use super::{Token, TokenError, low, sixteen, with_header, within};
use crate::handle::{Handle, Kind};

const NUMBER_BITS: u32 = 24;

/// What a card knows of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionQueueToken {
    /// The queue.
    pub handle: Handle,
    /// Its number at the device, 24 bits.
    pub number: u32,
    /// The completions that it holds.
    pub entries: u32,
    /// The completion vector: which interrupt it raises.
    pub vector: u16,
    /// Flags of the device.
    pub flags: u8,
}

impl CompletionQueueToken {
    pub(super) fn pack(&self) -> Result<Token, TokenError> {
        within(
            "the completion queue's number",
            u64::from(self.number),
            NUMBER_BITS,
        )?;
        let rest = u32::from(self.flags) << NUMBER_BITS | self.number;
        let first = with_header(self.handle, Kind::CompletionQueue, rest)?;
        let second = u64::from(self.vector) << 32 | u64::from(self.entries);
        Ok(Token([first, second]))
    }

    pub(super) fn unpack(token: Token) -> Result<Self, TokenError> {
        let [first, second] = token.words();
        if sixteen(second, 48) != 0 {
            return Err(TokenError::Meaning {
                field: "the reserved half-word of a completion queue",
                value: second >> 48,
            });
        }
        Ok(Self {
            handle: token.handle(),
            number: low(first) & ((1 << NUMBER_BITS) - 1),
            entries: low(second),
            vector: sixteen(second, 32),
            flags: low(first).to_be_bytes()[0],
        })
    }
}
