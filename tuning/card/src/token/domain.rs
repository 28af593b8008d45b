//! The token of a protection domain.

use super::{Token, TokenError, low, with_header};
use crate::handle::{Handle, Kind};

/// What a card knows of a protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainToken {
    /// The domain.
    pub handle: Handle,
    /// Its number at the device.
    pub number: u32,
}

impl DomainToken {
    pub(super) fn pack(&self) -> Result<Token, TokenError> {
        let first = with_header(self.handle, Kind::Domain, self.number)?;
        Ok(Token([first, 0]))
    }

    pub(super) fn unpack(token: Token) -> Result<Self, TokenError> {
        let [first, second] = token.words();
        if second != 0 {
            return Err(TokenError::Meaning {
                field: "the second word of a domain",
                value: second,
            });
        }
        Ok(Self {
            handle: token.handle(),
            number: low(first),
        })
    }
}
