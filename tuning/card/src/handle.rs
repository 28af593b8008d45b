//! Handles: the 32-bit names of RDMA objects outside of the card. A handle is also the header of
//! the object's [token](super::token).
//!
//! ```text
//! 31    24 23       16 15           0
//! [ kind ] [ version ] [   index    ]      the all-zero word names nothing
//! ```
//!
//! - I1: a handle names one object for ever: the version of an index counts up when its object is
//!   removed, and an index whose versions are exhausted is not reused. Tables that issue handles
//!   keep this; the word alone cannot.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Kind {
    /// A protection domain.
    Domain = 1,
    /// A memory region.
    Region = 2,
    /// A completion queue.
    CompletionQueue = 3,
    /// A queue pair.
    QueuePair = 4,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::Domain,
        Self::Region,
        Self::CompletionQueue,
        Self::QueuePair,
    ];

    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Domain),
            2 => Some(Self::Region),
            3 => Some(Self::CompletionQueue),
            4 => Some(Self::QueuePair),
            _ => None,
        }
    }
}

const INDEX_BITS: u32 = 16;
const VERSION_BITS: u32 = 8;
const KIND_SHIFT: u32 = INDEX_BITS + VERSION_BITS;
const _: () = assert!(KIND_SHIFT + 8 == u32::BITS);
/// Limit on the objects of one kind.
pub const OBJECTS_MAX: usize = 1 << INDEX_BITS;

/// The name of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Handle(u32);

const _: () = assert!(size_of::<Handle>() == 4);

impl Handle {
    /// The largest version of an index.
    pub const VERSION_MAX: u8 = u8::MAX;

    /// The handle of the object of a kind at an index.
    #[must_use]
    pub const fn new(kind: Kind, version: u8, index: u16) -> Self {
        Self((kind as u32) << KIND_SHIFT | (version as u32) << INDEX_BITS | index as u32)
    }

    /// The handle with these bits, which may be of no object.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The handle's bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The object's kind; `None` if the bits are no handle.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        Kind::from_number(self.0.to_be_bytes()[0])
    }

    /// How many objects have had the index before.
    #[must_use]
    pub const fn version(self) -> u8 {
        self.0.to_be_bytes()[1]
    }

    /// The place in the table of its kind.
    #[must_use]
    pub const fn index(self) -> u16 {
        let [_, _, high, low] = self.0.to_be_bytes();
        u16::from_be_bytes([high, low])
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Some(kind) => write!(f, "{kind:?}#{}v{}", self.index(), self.version()),
            None => write!(f, "Handle({:#x})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_layout_is_kind_version_index() {
        let handle = Handle::new(Kind::QueuePair, 0xab, 0x1234);
        assert_eq!(handle.bits(), 0x04ab_1234);
        assert_eq!(format!("{handle:?}"), "QueuePair#4660v171");
        assert_eq!(Handle::default().kind(), None);
    }

    proptest! {
        #[test]
        fn parts_come_back(kind in 0..4_usize, version in any::<u8>(), index in any::<u16>()) {
            let kind = Kind::ALL[kind];
            let handle = Handle::new(kind, version, index);
            prop_assert_eq!((handle.kind(), handle.version(), handle.index()), (Some(kind), version, index));
            prop_assert_eq!(Handle::from_bits(handle.bits()), handle);
        }

        #[test]
        fn arbitrary_bits_are_harmless(bits in any::<u32>()) {
            let handle = Handle::from_bits(bits);
            let again = handle.kind().map(|kind| Handle::new(kind, handle.version(), handle.index()));
            prop_assert!(again.is_none_or(|again| again == handle));
            let shown = format!("{handle:?}");
            prop_assert!(!shown.is_empty());
        }
    }
}
