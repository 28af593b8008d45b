//! A record: what moves between tiers for a token.

use super::card_table::HotFields;
use super::token::Token;

/// A token and its relaxed fields.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Record {
    /// The token.
    pub token: Token,
    /// The relaxed fields.
    pub fields: HotFields,
}

impl Record {
    /// The length in a transfer to or from the card's own memory.
    pub const BYTES: u64 = 24;
}
