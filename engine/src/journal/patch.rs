//! What a step changes of a tree: nodes as bytes, and touches of nodes.
//!
//! ```text
//! tree step: | 0:8 | patch | ..
//!            | 1:8 | root:32 | height:8 | elements:64 | bytes:64 | patch | ..
//!            | 2:8 | from:32 | patch | ..       a later page of a base: nodes from this one on
//! patch:     | 1:8 | node:32 | bytes:32 | the node |
//!            | 2:8 | node:32 |                                        the node is gone
//!            | 3:8 | leaf:32 | entry:32 | touch:8 | branches:8 | branch.. | key:32 | value:32 | key | value |
//! branch:    | node:32 | entry:32 |           whose count of elements below changes
//! ```
//!
//! No bytes panic.

use crate::tree::{NodeNumber, TreeRoot, TreeTouch};

/// No number of a node.
pub(crate) const NO_NODE: NodeNumber = NodeNumber::MAX;

/// A branch on the way to a leaf that is touched, and its entry for the child there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PatchBranch {
    pub(crate) node: NodeNumber,
    pub(crate) entry: usize,
}

/// What changes of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodePatch<'a> {
    /// It has these bytes.
    Is { node: NodeNumber, bytes: &'a [u8] },
    /// It is gone.
    Gone { node: NodeNumber },
    /// One element of a leaf.
    Touch {
        /// [`NO_NODE`] if only branches change.
        leaf: NodeNumber,
        entry: usize,
        touch: TreeTouch,
        /// See [`NodePatch::branches`].
        branches: &'a [u8],
        key: &'a [u8],
        value: &'a [u8],
    },
}

const IS: u8 = 1;
const GONE: u8 = 2;
const TOUCH: u8 = 3;
const BRANCH_BYTES: usize = 8;

fn touch_code(touch: TreeTouch) -> u8 {
    match touch {
        TreeTouch::Insert => 0,
        TreeTouch::Replace => 1,
        TreeTouch::Remove => 2,
    }
}

fn touch_of(code: u8) -> Option<TreeTouch> {
    [TreeTouch::Insert, TreeTouch::Replace, TreeTouch::Remove]
        .into_iter()
        .find(|&touch| touch_code(touch) == code)
}

fn put_word(into: &mut Vec<u8>, word: usize) {
    into.extend(u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes());
}

/// How a tree step begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StepHead {
    /// The root is as it was.
    Nodes,
    /// The root that the step leaves.
    Root(TreeRoot),
    /// It is a later page of a base, and has the nodes from this number on.
    Page(NodeNumber),
}

impl StepHead {
    /// The root, if the step has it.
    pub(crate) fn root(self) -> Option<TreeRoot> {
        match self {
            Self::Root(root) => Some(root),
            Self::Nodes | Self::Page(_) => None,
        }
    }
}

/// Writes the start of a tree step.
pub(crate) fn put_step_head(into: &mut Vec<u8>, head: StepHead) {
    let root = match head {
        StepHead::Nodes => return into.push(0),
        StepHead::Root(root) => root,
        StepHead::Page(from) => {
            into.push(2);
            return into.extend(from.to_le_bytes());
        }
    };
    into.push(1);
    into.extend(root.node.to_le_bytes());
    into.push(root.height);
    into.extend(root.count.to_le_bytes());
    into.extend(root.bytes.to_le_bytes());
}

/// Writes patches.
pub(crate) struct PutPatch<'v>(pub(crate) &'v mut Vec<u8>);

impl PutPatch<'_> {
    /// A patch as it is.
    pub(crate) fn patch(&mut self, patch: NodePatch<'_>) {
        match patch {
            NodePatch::Is { node, bytes } => self.is(node, bytes),
            NodePatch::Gone { node } => self.gone(node),
            NodePatch::Touch {
                leaf,
                entry,
                touch,
                branches,
                key,
                value,
            } => {
                let branches: Vec<_> = NodePatch::branches(branches).collect();
                self.touch((leaf, entry, touch), branches.into_iter(), (key, value));
            }
        }
    }

    /// A node has these bytes.
    pub(crate) fn is(&mut self, node: NodeNumber, bytes: &[u8]) {
        self.0.push(IS);
        self.0.extend(node.to_le_bytes());
        put_word(self.0, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// A node is gone.
    pub(crate) fn gone(&mut self, node: NodeNumber) {
        self.0.push(GONE);
        self.0.extend(node.to_le_bytes());
    }

    /// Only the counts of branches above a leaf change.
    pub(crate) fn counts(
        &mut self,
        touch: TreeTouch,
        branches: impl ExactSizeIterator<Item = PatchBranch>,
    ) {
        self.touch((NO_NODE, 0, touch), branches, (&[], &[]));
    }

    /// An element of a leaf changes, and the counts of branches above it.
    pub(crate) fn touch(
        &mut self,
        (leaf, entry, touch): (NodeNumber, usize, TreeTouch),
        branches: impl ExactSizeIterator<Item = PatchBranch>,
        (key, value): (&[u8], &[u8]),
    ) {
        self.0.push(TOUCH);
        self.0.extend(leaf.to_le_bytes());
        put_word(self.0, entry);
        self.0.push(touch_code(touch));
        self.0.push(u8::try_from(branches.len()).unwrap_or(u8::MAX));
        for branch in branches {
            self.0.extend(branch.node.to_le_bytes());
            put_word(self.0, branch.entry);
        }
        // A removal needs neither.
        let (key, value): (&[u8], &[u8]) = match touch {
            TreeTouch::Insert => (key, value),
            TreeTouch::Replace => (&[], value),
            TreeTouch::Remove => (&[], &[]),
        };
        put_word(self.0, key.len());
        put_word(self.0, value.len());
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
    }
}

/// The patches of a tree step, one after the other; `None` is one that is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patches<'a> {
    rest: &'a [u8],
}

impl<'a> Patches<'a> {
    /// How a step begins, and its patches; `None` if the bytes are no step.
    pub(crate) fn parse(step: &'a [u8]) -> Option<(StepHead, Self)> {
        let mut patches = Self { rest: step };
        let head = match patches.byte()? {
            0 => StepHead::Nodes,
            1 => StepHead::Root(TreeRoot {
                node: patches.short()?,
                height: patches.byte()?,
                count: patches.word()?,
                bytes: patches.word()?,
            }),
            2 => StepHead::Page(patches.short()?),
            _ => return None,
        };
        Some((head, patches))
    }

    /// The bytes that were not read as patches yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn short(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn patch(&mut self) -> Option<NodePatch<'a>> {
        Some(match self.byte()? {
            IS => {
                let (node, bytes) = (self.short()?, self.short()?);
                let bytes = self.take(bytes as usize)?;
                NodePatch::Is { node, bytes }
            }
            GONE => NodePatch::Gone {
                node: self.short()?,
            },
            TOUCH => {
                let (leaf, entry) = (self.short()?, self.short()? as usize);
                let touch = touch_of(self.byte()?)?;
                let branches = usize::from(self.byte()?);
                let branches = self.take(branches * BRANCH_BYTES)?;
                let (key, value) = (self.short()?, self.short()?);
                NodePatch::Touch {
                    leaf,
                    entry,
                    touch,
                    branches,
                    key: self.take(key as usize)?,
                    value: self.take(value as usize)?,
                }
            }
            _ => return None,
        })
    }
}

impl<'a> Iterator for Patches<'a> {
    type Item = Option<NodePatch<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let patch = self.patch();
        if patch.is_none() {
            self.rest = &[];
        }
        Some(patch)
    }
}

impl NodePatch<'_> {
    /// The branches of a touch, from the root down.
    pub(crate) fn branches(encoded: &[u8]) -> impl Iterator<Item = PatchBranch> {
        encoded.chunks_exact(BRANCH_BYTES).map(|branch| {
            let word = |at: usize| {
                let bytes = branch[at..].first_chunk();
                bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
            };
            PatchBranch {
                node: word(0),
                entry: word(4) as usize,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_patches_or_none() {
        let mut step = Vec::new();
        let root = TreeRoot {
            node: 3,
            height: 2,
            count: 9,
            bytes: 90,
        };
        put_step_head(&mut step, StepHead::Root(root));
        let mut put = PutPatch(&mut step);
        put.is(4, b"a node");
        put.gone(5);
        let branch = PatchBranch { node: 3, entry: 1 };
        let branches = [branch].into_iter();
        put.touch((6, 2, TreeTouch::Insert), branches, (b"key", b"value"));
        put.touch((6, 2, TreeTouch::Remove), [].into_iter(), (&[], &[]));
        let mut page = Vec::new();
        put_step_head(&mut page, StepHead::Page(7));
        farcore_fuzz::Target::new("tree patches")
            .seed(&step)
            .seed(&page)
            .seed([0])
            .run(|bytes| {
                let Some((head, patches)) = Patches::parse(bytes) else {
                    return;
                };
                let mut again = Vec::new();
                put_step_head(&mut again, head);
                for patch in patches {
                    let Some(patch) = patch else { return };
                    // What a touch does not need is left out.
                    if let NodePatch::Touch {
                        touch, key, value, ..
                    } = patch
                        && (touch != TreeTouch::Insert && !key.is_empty()
                            || touch == TreeTouch::Remove && !value.is_empty())
                    {
                        return;
                    }
                    PutPatch(&mut again).patch(patch);
                }
                assert_eq!(again, bytes);
            });
    }
}
