//! Access flags: what requests may do with a region or through a queue pair.

use std::fmt;
use std::ops::BitOr;

use serde::{Deserialize, Serialize};

/// A set of flags. The values are those of `enum ibv_access_flags`; its bit 20, relaxed ordering,
/// is bit 15 here, so that all fit into 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Access(u16);

impl Access {
    /// The card may write for a request of this host.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Another host may write.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Another host may read.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Another host may do atomic operations.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Requests need not be ordered on the bus.
    pub const RELAXED_ORDERING: Self = Self(1 << 15);

    /// The flags with these bits.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// True if all of `other` are in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({:#06x})", self.0)
    }
}
