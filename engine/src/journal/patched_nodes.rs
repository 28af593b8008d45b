//! Nodes as patches leave them.

use super::patch::{NO_NODE, NodePatch, PatchBranch};
use crate::tree::{Halt, NodeNumber, Nodes, TreeNode, TreeNodeEdit, TreeTouch, Unread};

/// What becomes of a node: its bytes, or none if it goes.
pub(crate) type PatchedNode = (NodeNumber, Option<Vec<u8>>);

/// Nodes that a patch changes, once each.
#[derive(Debug, Default)]
pub(crate) struct PatchedNodes {
    pub(crate) nodes: Vec<PatchedNode>,
}

impl PatchedNodes {
    fn set(&mut self, number: NodeNumber, bytes: Option<Vec<u8>>) {
        match self.nodes.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => *known = bytes,
            None => self.nodes.push((number, bytes)),
        }
    }

    /// The bytes of a node, to be changed.
    fn change<N: Nodes>(&mut self, nodes: &N, number: NodeNumber) -> Result<&mut [u8], Halt> {
        let damaged = Halt::Damaged(number);
        let place = match self.nodes.iter().position(|(known, _)| *known == number) {
            Some(place) => place,
            None => {
                let bytes = nodes.read(number).map_err(|unread| match unread {
                    Unread::Far => Halt::Far(number),
                    Unread::Failed => Halt::Failed(number),
                })?;
                self.nodes.push((number, Some(bytes.to_vec())));
                self.nodes.len() - 1
            }
        };
        let bytes = self.nodes[place].1.as_deref_mut().ok_or(damaged)?;
        TreeNode::parse(bytes).ok_or(damaged)?;
        Ok(bytes)
    }

    /// Adds what a patch changes of nodes that `nodes` reads.
    ///
    /// # Errors
    /// A node that it touches is not there, or is not the one that was touched.
    pub(crate) fn add<N: Nodes>(&mut self, nodes: &N, patch: NodePatch<'_>) -> Result<(), Halt> {
        match patch {
            NodePatch::Is { node, bytes } => self.set(node, Some(bytes.to_vec())),
            NodePatch::Gone { node } => self.set(node, None),
            NodePatch::Touch {
                leaf,
                entry,
                touch,
                branches,
                key,
                value,
            } => {
                if leaf != NO_NODE {
                    let mut edit = TreeNodeEdit::of(self.change(nodes, leaf)?);
                    if !touch.apply(entry, &mut edit, (key, value)) {
                        return Err(Halt::Damaged(leaf));
                    }
                }
                for branch in NodePatch::branches(branches) {
                    self.count(nodes, branch, touch)?;
                }
            }
        }
        Ok(())
    }

    /// Changes the count of elements below a child.
    fn count<N: Nodes>(
        &mut self,
        nodes: &N,
        branch: PatchBranch,
        touch: TreeTouch,
    ) -> Result<(), Halt> {
        let PatchBranch { node, entry } = branch;
        let mut edit = TreeNodeEdit::of(self.change(nodes, node)?);
        let view = edit.view();
        let child = (entry < view.len()).then(|| view.child(entry)).flatten();
        let count = child.and_then(|child| touch.counted(child.count));
        let is_done = count.is_some_and(|count| edit.set_count(entry, count));
        is_done.then_some(()).ok_or(Halt::Damaged(node))
    }
}
