//! Changes nodes of a tree as a file says.
//!
//! - I1: a node gets exactly the bytes that it had when the file was written, so a touch that
//!   follows finds the room that it found then.
//! - I2: nothing changes before all nodes that are touched are known, and all records have room.

#![allow(unsafe_code)] // changes nodes in place

use farcore_rdma::Endpoint;

use crate::error::Error;
use crate::journal::{NO_NODE, NodePatch, PatchBranch, Patches, patched};
use crate::log::record;
use crate::message::operation::Version;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::local::open_pages::TailKind;
use crate::shard::local::trees::{NODE_KEY_BYTES, NodeName, NodePlace, Tree, TreePlace};
use crate::shard::ops::tree::ShardNodes;
use crate::shard::ops::tree_findings::FoundHead;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::Step;
use crate::tree::{
    Halt, NodeNumber, Nodes, TreeGuard, TreeNode, TreeNodeEdit, TreeOp, TreeRoot, TreeTouch, Unread,
};

/// What becomes of a node: its bytes, or none if it goes.
type Patched = (NodeNumber, Option<Vec<u8>>);

/// Nodes that a patch changes, once each.
#[derive(Default)]
struct PatchedNodes(Vec<Patched>);

impl PatchedNodes {
    fn set(&mut self, number: NodeNumber, bytes: Option<Vec<u8>>) {
        match self.0.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => *known = bytes,
            None => self.0.push((number, bytes)),
        }
    }

    /// The bytes of a node, to be changed.
    fn change<N: Nodes>(&mut self, nodes: &N, number: NodeNumber) -> Result<&mut [u8], Halt> {
        let damaged = Halt::Damaged(number);
        let place = match self.0.iter().position(|(known, _)| *known == number) {
            Some(place) => place,
            None => {
                let bytes = nodes.read(number).map_err(|unread| match unread {
                    Unread::Far => Halt::Far(number),
                    Unread::Failed => Halt::Failed(number),
                })?;
                self.0.push((number, Some(bytes.to_vec())));
                self.0.len() - 1
            }
        };
        let bytes = self.0[place].1.as_deref_mut().ok_or(damaged)?;
        TreeNode::parse(bytes).ok_or(damaged)?;
        Ok(bytes)
    }

    fn add<N: Nodes>(&mut self, nodes: &N, patch: NodePatch<'_>) -> Result<(), Halt> {
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

impl<E: Endpoint> Shard<E> {
    /// Changes nodes of a key's tree; a key without a tree is absent to it.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn tree_patch(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            self.facts.note_stalled(lane);
            return Step::NoRoom { value_bytes: 0 };
        }
        if self.facts.are_awaited(lane, request) {
            return Step::Blocked;
        }
        let step = match self.try_patch(lane, request, answers) {
            Ok(step) | Err(step) => step,
        };
        match step {
            Step::Done => self.facts.end(lane),
            Step::NoRoom { .. } => self.facts.note_stalled(lane),
            _ => self.facts.note_try(lane),
        }
        step
    }

    fn try_patch(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Result<Step, Step> {
        let parsed = patched(request.value());
        let parsed = parsed.and_then(|(version, step)| Some((version, Patches::parse(step)?)));
        let Some((version, (head, patches))) = parsed else {
            return Err(self.fail(lane, request, Error::Closed, answers));
        };
        let of = (TreeGuard::default(), &TreeOp::Len);
        let found = self.find_head(lane, request, of, answers)?;
        let tree = found.and_then(FoundHead::tree);
        let known = tree.and_then(|tree| Some((tree, self.trees.get(tree)?)));
        let Some((tree, known)) = known else {
            answers.answer(lane, request.token, Answer::Absent);
            return Ok(Step::Done);
        };
        let max = self.shape.page_bytes() / 2;
        let mut changed = PatchedNodes::default();
        let nodes = ShardNodes::of_tree(self, lane, request, (tree, known));
        let mut added = Ok(());
        for patch in patches {
            added = match patch {
                // A damaged file must not make a table of billions of nodes.
                Some(NodePatch::Is { node, bytes })
                    if bytes.len() > max || !self.trees.may_have(node) =>
                {
                    return Err(self.fail(lane, request, Error::Closed, answers));
                }
                Some(patch) => changed.add(&nodes, patch),
                None => return Err(self.fail(lane, request, Error::Closed, answers)),
            };
            if added.is_err() {
                break;
            }
        }
        if let Err(halt) = added {
            return Err(self.halt(lane, request, (found, halt), answers));
        }
        match self.write_patched((tree, version), head.root(), &changed.0) {
            Ok(()) => {
                answers.answer(lane, request.token, Answer::Stored { version });
                Ok(Step::Done)
            }
            Err(NoRoom::Wait) => {
                self.background_due = true;
                Err(Step::Blocked)
            }
            Err(NoRoom::Never(error)) => Err(self.fail(lane, request, error, answers)),
        }
    }

    /// True if a node can be changed where it lies.
    fn is_mutable_node(&self, known: &Tree, number: NodeNumber, bytes: &[u8]) -> bool {
        let address = known.node_at(number).map(NodePlace::address);
        address.is_some_and(|address| {
            self.framed_of(address).is_mutable()
                && self
                    .local
                    .record_at(address)
                    .is_some_and(|record| record.value().len() == bytes.len())
        })
    }

    /// Writes all nodes and the root, or changes nothing.
    fn write_patched(
        &mut self,
        (tree, version): (TreePlace, Version),
        root: Option<TreeRoot>,
        changed: &[Patched],
    ) -> Result<(), NoRoom> {
        let Some(known) = self.trees.get(tree) else {
            return Ok(());
        };
        let (mut units, mut fresh) = (Vec::with_capacity(changed.len()), 0);
        for (number, bytes) in changed {
            let Some(bytes) = bytes else { continue };
            fresh += usize::from(known.node_at(*number).is_none());
            if !self.is_mutable_node(known, *number, bytes) {
                units.push(record::units_for(NODE_KEY_BYTES, bytes.len()) + self.tag_units);
            }
        }
        if fresh > 0 && !self.trees.has_room(Ok(tree), fresh) {
            if self.trees.has_dying() {
                return Err(NoRoom::Wait);
            }
            return Err(NoRoom::Never(Error::Collections {
                shard: self.id,
                bytes: self.trees.bytes_max(),
            }));
        }
        self.reserve_each(&units)?;
        for &(number, ref bytes) in changed {
            let node = NodeName { tree, number };
            match bytes {
                Some(bytes) => self.write_patched_node(node, version, bytes),
                None => {
                    if let Some(place) = self.trees.remove_node(node) {
                        self.retire(place.address(), place.account_bytes());
                    }
                }
            }
        }
        if let Some(known) = self.trees.get_mut(tree) {
            known.root = root.unwrap_or(known.root);
            known.version = known.version.max(version);
        }
        self.version = self.version.max(version);
        Ok(())
    }

    fn write_patched_node(&mut self, node: NodeName, version: Version, bytes: &[u8]) {
        let known = self.trees.get(node.tree);
        let before = known.and_then(|known| known.node_at(node.number));
        let in_place = known.is_some_and(|known| self.is_mutable_node(known, node.number, bytes));
        if in_place
            && let Some(place) = before
            && let Some(record) = self.local.record_at(place.address())
        {
            // SAFETY: its page is mutable, and the bytes lie elsewhere.
            unsafe { record.value_mut(version) }.copy_from_slice(bytes);
            return;
        }
        self.trees.take_this_number(node);
        let key = self.trees.node_key(node);
        let units = record::units_for(NODE_KEY_BYTES, bytes.len()) + self.tag_units;
        let room = self.reserve(TailKind::Log, units);
        let room = room.expect("room for all records was made sure of");
        let address = room.address();
        room.write(version, self.record_flags, &key, bytes);
        self.commit_node(node, TailKind::Log, address, units);
        if let Some(place) = before {
            self.retire(place.address(), place.account_bytes());
        }
    }
}
