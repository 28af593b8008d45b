//! Answers nodes of a tree as they lie, for a base.
//!
//! - I1: all nodes of one answer, and its root, are of one moment, whose version it has.
//! - I2: an answer has a bounded number of nodes, and far ones of which a bounded number is read at
//!   once.

use farcore_rdma::Endpoint;

use crate::constants::UNIT_BYTES;
use crate::journal::{Dumped, NO_NODE, PutPatch, StepHead, dump_from, put_step_head};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::local::trees::{NodeName, NodePlace};
use crate::shard::ops::tree::ShardNodes;
use crate::shard::step::Step;
use crate::tree::{Halt, Nodes, TreeGuard, TreeOp, Unread};

/// Bytes of an answer from which on it takes no further node.
const ANSWER_BYTES: usize = 32 << 10;
/// Nodes of an answer, at most.
const NODES_MAX: usize = 16;

impl<E: Endpoint> Shard<E> {
    /// Answers nodes of a key's tree.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn tree_dump(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if self.facts.are_awaited(lane, request) {
            return Step::Blocked;
        }
        let mut buffers = self.tree_buffers.take().unwrap_or_default();
        let step = match self.try_dump(lane, request, &mut buffers.answer, answers) {
            Ok(step) | Err(step) => step,
        };
        self.tree_buffers = Some(buffers);
        match step {
            Step::Done => self.facts.end(lane),
            Step::NoRoom { .. } => self.facts.note_stalled(lane),
            _ => self.facts.note_try(lane),
        }
        step
    }

    fn try_dump(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answer: &mut Vec<u8>,
        answers: &mut impl AnswerSink,
    ) -> Result<Step, Step> {
        let of = (TreeGuard::default(), &TreeOp::Len);
        let found = self.find_head(lane, request, of, answers)?;
        let rooted = found.and_then(|found| Some((found, found.tree()?)));
        let known = rooted.and_then(|(found, tree)| Some((found, tree, self.trees.get(tree)?)));
        let Some((found, tree, known)) = known else {
            if !answers.has_room(lane, 0) {
                return Err(Step::NoRoom { value_bytes: 0 });
            }
            answers.answer(lane, request.token, Answer::Absent);
            return Ok(Step::Done);
        };
        if known.is_torn() && !known.is_whole() {
            // A base without some of its nodes would take the place of files that have them.
            return Err(self.fail(lane, request, self.lost_error(None), answers));
        }
        let nodes = ShardNodes::of_tree(self, lane, request, (tree, known));
        let mut wanted = Vec::with_capacity(NODES_MAX);
        let (mut from, mut bytes, mut next) = (dump_from(request.value()), 0, NO_NODE);
        while let Some(number) = self.trees.node_from(tree, from) {
            let units = known.node_at(number).map_or(0, NodePlace::units);
            bytes += units as usize * UNIT_BYTES;
            if !wanted.is_empty() && (bytes > ANSWER_BYTES || wanted.len() == NODES_MAX) {
                next = number;
                break;
            }
            wanted.push(number);
            from = number + 1;
        }
        answer.clear();
        let dumped = Dumped {
            tree: self.trees.id(tree),
            next,
            kind: known.kind as u8,
            tag: known.tag,
            expiry_ms: found.expiry_ms,
            step: &[],
        };
        dumped.put_head(answer);
        let head = match dump_from(request.value()) {
            0 => StepHead::Root(known.root),
            from => StepHead::Page(from),
        };
        put_step_head(answer, head);
        let version = known.version;
        let mut far = Vec::new();
        for &number in &wanted {
            match nodes.read(number) {
                Ok(bytes) => PutPatch(answer).is(number, bytes),
                Err(Unread::Far) => far.push(number),
                Err(Unread::Failed) => {
                    let halt = (Some(found), Halt::Failed(number));
                    return Err(self.halt(lane, request, halt, answers));
                }
            }
        }
        if !far.is_empty() {
            for number in far {
                self.await_node(lane, request, NodeName { tree, number }, answers);
            }
            return Err(Step::Blocked);
        }
        let value_bytes = answer.len();
        if !answers.has_room(lane, value_bytes) {
            return Err(Step::NoRoom { value_bytes });
        }
        let answer = Answer::Value {
            version,
            value: answer,
        };
        answers.answer(lane, request.token, answer);
        Ok(Step::Done)
    }
}
