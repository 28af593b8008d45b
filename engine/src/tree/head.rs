//! The head of a collection: the value of the record that a key's slot leads to.
//!
//! ```text
//! rooted: | kind:8 | tag:8 | tree:64 |             its nodes are records of their own
//! inline: | kind, bit 7 set:8 | tag:8 | leaf |     it has one leaf, which lies here
//! ```
//!
//! No bytes panic: a head may come from far memory.

use crate::collection::TreeKind;

/// The bit that says that the elements lie in the head.
const INLINE: u8 = 1 << 7;
/// Bytes before the leaf of an inline head.
pub(crate) const INLINE_HEAD_BYTES: usize = 2;
/// Bytes of a rooted head.
pub(crate) const TREE_HEAD_BYTES: usize = INLINE_HEAD_BYTES + 8;

/// A head, as its record's value has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TreeHead<'a> {
    /// It names a tree of the shard's table.
    Rooted(u64),
    /// It holds the only leaf.
    Inline {
        kind: TreeKind,
        /// What the application says of the collection.
        tag: u8,
        leaf: &'a [u8],
    },
}

impl<'a> TreeHead<'a> {
    /// The head in a value; `None` if none can be there.
    pub(crate) fn parse(value: &'a [u8]) -> Option<Self> {
        let (&[first, tag], rest) = value.split_first_chunk::<INLINE_HEAD_BYTES>()?;
        let kind = TreeKind::of(first & !INLINE)?;
        if first & INLINE == 0 {
            let id = rest.first_chunk()?;
            return (rest.len() == id.len()).then(|| Self::Rooted(u64::from_le_bytes(*id)));
        }
        let leaf = rest;
        Some(Self::Inline { kind, tag, leaf })
    }

    /// The value of a head that names a tree.
    pub(crate) fn rooted(kind: TreeKind, tag: u8, tree: u64) -> [u8; TREE_HEAD_BYTES] {
        let mut value = [0; TREE_HEAD_BYTES];
        (value[0], value[1]) = (kind as u8, tag);
        value[INLINE_HEAD_BYTES..].copy_from_slice(&tree.to_le_bytes());
        value
    }

    /// What comes before the leaf of an inline head.
    pub(crate) fn inline_start(kind: TreeKind, tag: u8) -> [u8; INLINE_HEAD_BYTES] {
        [kind as u8 | INLINE, tag]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_head_or_none() {
        farcore_fuzz::Target::new("tree head")
            .seed(TreeHead::rooted(TreeKind::Map, 3, 77))
            .seed(TreeHead::rooted(TreeKind::List, 0, u64::MAX))
            .seed(TreeHead::rooted(TreeKind::Scored, 4, 7))
            .seed([&TreeHead::inline_start(TreeKind::List, 9)[..], b"leaf"].concat())
            .run(|value| match TreeHead::parse(value) {
                None => {}
                Some(TreeHead::Rooted(id)) => {
                    let kind = TreeKind::of(value[0]).expect("it was parsed");
                    assert_eq!(TreeHead::rooted(kind, value[1], id), value);
                }
                Some(TreeHead::Inline { kind, tag, leaf }) => {
                    let again = [&TreeHead::inline_start(kind, tag)[..], leaf].concat();
                    assert_eq!(again, value);
                }
            });
    }
}
