//! The kinds of collections: hashes, sets, lists, sorted sets and streams.
//!
//! The engine keeps a collection as a tree, whose tag says of which kind it is.

use farcore::{Operation, TreeGuard, TreeOp};

/// The type of a key that holds plain bytes, as `TYPE` says it.
pub(crate) const PLAIN: &str = "string";

/// The kind of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Hash = 1,
    Set = 2,
    List = 3,
    SortedSet = 4,
    Stream = 5,
}

impl Kind {
    /// All kinds.
    const ALL: [Self; 5] = [
        Self::Hash,
        Self::Set,
        Self::List,
        Self::SortedSet,
        Self::Stream,
    ];

    /// The tag of its trees.
    pub(crate) const fn tag(self) -> u8 {
        self as u8
    }

    /// The kind of a tree with a tag.
    pub(crate) fn of_tag(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }

    /// The name of the type of a key that holds a tree with a tag.
    pub(crate) fn name_of_tag(tag: u8) -> &'static str {
        Self::of_tag(tag).map_or("unknown", Self::name)
    }

    /// An operation on the tree of a key, which is of this kind.
    pub(crate) fn operation<'a>(self, key: &'a [u8], op: TreeOp<'a>) -> Operation<'a> {
        let guard = TreeGuard {
            tag: self.tag(),
            version: None,
        };
        Operation::Tree { key, op, guard }
    }

    /// As `TYPE` says it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Set => "set",
            Self::List => "list",
            Self::SortedSet => "zset",
            Self::Stream => "stream",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_of_one_kind() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_tag(kind.tag()), Some(kind));
            assert_eq!(Kind::name_of_tag(kind.tag()), kind.name());
        }
        assert_eq!(Kind::of_tag(0), None);
        assert_eq!(Kind::name_of_tag(77), "unknown");
    }
}
