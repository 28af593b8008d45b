//! Keeps nodes from becoming too large or too small, along the way to a leaf that has changed.
//!
//! A node that overflows is divided by bytes; at either end of the tree all but the new element
//! stay together, so that a queue and ascending keys leave full nodes. A node that becomes small is
//! merged with a neighbour below the same branch if the two fit well into one and the neighbour can
//! be read now. An empty node goes. So a change needs no node but those from the root to its leaf.
//!
//! Merging alone, without moving elements between neighbours, is enough for operations in the
//! logarithm of the length; what it leaves is that a small node may stay beside a large one.
//! Source: T. Johnson and D. Shasha, "The performance of current B-tree algorithms", 1993.

use super::node::{Child, NodeNumber, StoredValue, TreeNode, TreeNodeEdit, copy_living};
use super::path::PathStep;
use super::work::{Edge, HEIGHT_MAX, Halt, Nodes, TreeRoot, TreeWork};
use crate::collection::TreeKind;

impl<N: Nodes> TreeWork<'_, N> {
    /// Divides, merges or removes nodes along the way to a leaf that has changed.
    pub(super) fn rebalance(
        &mut self,
        path: &[PathStep],
        leaf: NodeNumber,
        edge: Edge,
    ) -> Result<(), Halt> {
        let (mut node, mut level) = (leaf, path.len());
        loop {
            let is_leaf = level == path.len();
            let above = level.checked_sub(1).map(|above| path[above]);
            let view = self.node(node, is_leaf)?;
            if self.shape.is_over(view) {
                self.divide(node, is_leaf, above, edge)?;
            } else if view.len() == 0 {
                self.remove_node(node, false);
                let Some(above) = above else {
                    self.root = TreeRoot::default();
                    return Ok(());
                };
                if !self.change(above.node, false)?.remove_child(above.entry) {
                    return Err(Halt::Damaged(above.node));
                }
            } else {
                let is_under = self.shape.is_under(view);
                let Some(above) = above.filter(|_| is_under) else {
                    break;
                };
                if !self.merge(above, is_leaf)? {
                    break;
                }
            }
            let Some(above) = above else {
                break;
            };
            (node, level) = (above.node, level - 1);
        }
        self.lower()
    }

    /// Where a node is divided.
    fn middle(view: TreeNode<'_>, edge: Edge) -> usize {
        match edge {
            Edge::Last => return view.len() - 1,
            Edge::First => return 1,
            Edge::Neither => {}
        }
        let whole = view.used();
        let mut sum = 0;
        for entry in 0..view.len() {
            let bytes = if view.is_leaf() {
                let value = match view.value(entry) {
                    Some(StoredValue::Inline(value)) => value.len(),
                    _ => 8,
                };
                6 + view.key(entry).map_or(0, <[u8]>::len) + value
            } else {
                // Of a list 4 less, the same for each child.
                18 + view.separator(entry).map_or(0, <[u8]>::len)
            };
            // The entry that crosses the middle goes where it makes the halves more equal.
            if 2 * sum + bytes >= whole {
                return entry.clamp(1, view.len() - 1);
            }
            sum += bytes;
        }
        view.len() / 2
    }

    /// Divides a node. The new one is behind it.
    fn divide(
        &mut self,
        node: NodeNumber,
        is_leaf: bool,
        above: Option<PathStep>,
        edge: Edge,
    ) -> Result<(), Halt> {
        let damaged = Halt::Damaged(node);
        let kind = self.shape.kind;
        // It has grown, so there is a copy.
        let place = self.edit_of(node).ok_or(damaged)?;
        let mut left = self.scratch.buffer(self.shape.buffer_bytes());
        let mut right = self.scratch.buffer(self.shape.buffer_bytes());
        let view = self.node(node, is_leaf)?;
        let (len, at) = (view.len(), Self::middle(view, edge));
        let separator = match kind {
            TreeKind::List => Vec::new(),
            TreeKind::Map | TreeKind::Scored if is_leaf => {
                let keys = view.key(at - 1).zip(view.key(at));
                let (before, after) = keys.ok_or(damaged)?;
                separator_of(before, after).to_vec()
            }
            TreeKind::Map | TreeKind::Scored => view.separator(at).ok_or(damaged)?.to_vec(),
        };
        let counts = [
            append_all(&mut left, kind, view, 0..at),
            append_all(&mut right, kind, view, at..len),
        ];
        let [Some(left_count), Some(right_count)] = counts else {
            return Err(damaged);
        };
        let whole = std::mem::replace(&mut self.scratch.edits[place].bytes, left);
        self.scratch.spare.push(whole);
        let behind = Child {
            node: self.add(false, right),
            count: right_count,
        };
        if is_leaf {
            self.fill(node, edge == Edge::First);
            self.fill(behind.node, edge == Edge::Last);
        }
        let before = Child {
            node,
            count: left_count,
        };
        let Some(above) = above else {
            return self.raise(before, behind, &separator);
        };
        let mut branch = self.change(above.node, false)?;
        let linked = branch.set_count(above.entry, left_count)
            && branch.insert_child(above.entry + 1, behind, &separator);
        linked.then_some(()).ok_or(Halt::Damaged(above.node))
    }

    /// Makes a new root of two nodes.
    fn raise(&mut self, first: Child, second: Child, separator: &[u8]) -> Result<(), Halt> {
        let mut bytes = self.scratch.buffer(self.shape.buffer_bytes());
        let mut branch = TreeNodeEdit::empty(&mut bytes, self.shape.kind, false);
        let linked =
            branch.insert_child(0, first, &[]) && branch.insert_child(1, second, separator);
        let node = self.add(false, bytes);
        self.root.node = node;
        self.root.height += 1;
        let is_possible = linked && usize::from(self.root.height) <= HEIGHT_MAX;
        is_possible.then_some(()).ok_or(Halt::Damaged(node))
    }

    /// Merges the child that was taken with a neighbour; false if none fits and can be read now.
    fn merge(&mut self, above: PathStep, is_leaf: bool) -> Result<bool, Halt> {
        let lefts = [above.entry.checked_sub(1), Some(above.entry)];
        for left in lefts.into_iter().flatten() {
            let branch = self.node(above.node, false)?;
            if left + 1 >= branch.len() {
                continue;
            }
            let damaged = Halt::Damaged(above.node);
            let children = branch.child(left).zip(branch.child(left + 1));
            let (first, second) = children.ok_or(damaged)?;
            let separator = branch.separator(left + 1).ok_or(damaged)?.to_vec();
            let (Ok(one), Ok(other)) = (
                self.node(first.node, is_leaf),
                self.node(second.node, is_leaf),
            ) else {
                continue;
            };
            if !self.shape.fit_together(one, other, separator.len()) {
                continue;
            }
            self.join(first.node, second.node, is_leaf, &separator)?;
            let mut branch = self.change(above.node, false)?;
            let sum = first.count.checked_add(second.count).ok_or(damaged)?;
            let linked = branch.set_count(left, sum) && branch.remove_child(left + 1);
            return linked.then_some(true).ok_or(damaged);
        }
        Ok(false)
    }

    /// Moves all entries of a node behind those of the one before it.
    fn join(
        &mut self,
        first: NodeNumber,
        second: NodeNumber,
        is_leaf: bool,
        separator: &[u8],
    ) -> Result<(), Halt> {
        let mut bytes = self.scratch.buffer(self.shape.buffer_bytes());
        let view = self.node(second, is_leaf)?;
        if !view.adds_up() {
            return Err(Halt::Damaged(second));
        }
        copy_living(view, &mut bytes).ok_or(Halt::Damaged(second))?;
        let second_view = TreeNode::parse(&bytes).ok_or(Halt::Damaged(second))?;
        let len = second_view.len();
        let mut joined = self.change(first, is_leaf)?;
        if joined.append(second_view, 0..len, separator) != Some(len) {
            return Err(Halt::Damaged(second));
        }
        self.scratch.spare.push(bytes);
        self.remove_node(second, false);
        Ok(())
    }

    /// Removes roots that have a single child.
    fn lower(&mut self) -> Result<(), Halt> {
        while self.root.height > 1 {
            let view = self.node(self.root.node, false)?;
            if view.len() != 1 {
                break;
            }
            let child = view.child(0).ok_or(Halt::Damaged(self.root.node))?;
            self.remove_node(self.root.node, false);
            self.root.node = child.node;
            self.root.height -= 1;
        }
        Ok(())
    }
}

/// A short key that is greater than one and at most another.
fn separator_of<'a>(before: &[u8], after: &'a [u8]) -> &'a [u8] {
    let common = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    &after[..(common + 1).min(after.len())]
}

/// Makes a node of a part of another one; returns how many elements are below it.
fn append_all(
    into: &mut [u8],
    kind: TreeKind,
    from: TreeNode<'_>,
    entries: std::ops::Range<usize>,
) -> Option<u64> {
    let mut node = TreeNodeEdit::empty(into, kind, from.is_leaf());
    let all = entries.len();
    (node.append(from, entries, &[])? == all).then(|| node.view().count())?
}
