//! Changes nodes of a tree as a file says.
//!
//! A repair patches too, but only nodes that are lost.
//!
//! - I1: a node gets exactly the bytes that it had when the file was written, so a touch that
//!   follows finds the room that it found then.
//! - I2: nothing changes before all nodes that are touched are known, and all records have room.

#![allow(unsafe_code)] // changes nodes in place

use farcore_rdma::Endpoint;

use crate::error::Error;
use crate::journal::{NodePatch, PatchedNode, PatchedNodes, Patches, patched};
use crate::log::record;
use crate::message::operation::{OperationKind, Version};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::local::open_pages::TailKind;
use crate::shard::local::trees::{NODE_KEY_BYTES, NodeName, NodePlace, Tree, TreePlace};
use crate::shard::ops::tree::ShardNodes;
use crate::shard::ops::tree_findings::FoundHead;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::Step;
use crate::tree::{NodeNumber, TreeGuard, TreeOp, TreeRoot};

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
        let repairs = request.kind() == OperationKind::RepairNodes;
        if repairs && self.repair.is_none() {
            return Err(self.fail(lane, request, Error::RepairInterrupted, answers));
        }
        let of = (TreeGuard::default(), &TreeOp::Len);
        let found = self.find_head(lane, request, of, answers)?;
        let tree = found.and_then(FoundHead::tree);
        let known = tree.and_then(|tree| Some((tree, self.trees.get(tree)?)));
        let known = known.filter(|(_, known)| !repairs || known.is_torn());
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
        if repairs {
            let is_missing = |&(node, _): &PatchedNode| known.is_missing(node);
            changed.nodes.retain(is_missing);
        }
        match self.write_patched((tree, version), head.root(), &changed.nodes) {
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
        changed: &[PatchedNode],
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
