//! The token of a memory region.

use super::{Access, Token, TokenError, low, sixteen, with_header, within};
use crate::handle::{Handle, Kind};

const PAGES_BITS: u32 = 40;

/// What a card knows of a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionToken {
    /// The region.
    pub handle: Handle,
    /// The key in requests.
    pub lkey: u32,
    /// What requests may do.
    pub access: Access,
    /// The length of a page as a power of two: 12 for 4 KiB.
    pub page_bits: u8,
    /// The number of pages, less than 2^40.
    pub pages: u64,
}

impl RegionToken {
    pub(super) fn pack(&self) -> Result<Token, TokenError> {
        let first = with_header(self.handle, Kind::Region, self.lkey)?;
        let pages = within("pages", self.pages, PAGES_BITS)?;
        let second = u64::from(self.access.bits()) << 48 | u64::from(self.page_bits) << 40 | pages;
        Ok(Token([first, second]))
    }

    pub(super) fn unpack(token: Token) -> Self {
        let [first, second] = token.words();
        Self {
            handle: token.handle(),
            lkey: low(first),
            access: Access::from_bits(sixteen(second, 48)),
            page_bits: second.to_be_bytes()[2],
            pages: second & ((1 << PAGES_BITS) - 1),
        }
    }
}
