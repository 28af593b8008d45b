//! Where a token lies: its tier, and its place there.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A tier of memory, from the fastest to the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Tier {
    /// L1: SRAM of the card.
    Card = 1,
    /// L2: memory behind CXL, in pages of packed tokens.
    Cxl = 2,
    /// L3: the host's memory, where every token has its home.
    Host = 3,
}

/// A tier and a place in it; what the number means is the tier's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The tier.
    pub tier: Tier,
    /// The number in it.
    pub number: u32,
}

impl Place {
    /// In the host's memory, by the index of the token.
    #[must_use]
    pub const fn host(number: u32) -> Self {
        Self {
            tier: Tier::Host,
            number,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{:#x}", self.tier, self.number)
    }
}
