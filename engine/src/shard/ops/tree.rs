//! Operations on trees: each is one step of the shard, from its head to the last node written.
//!
//! ```text
//! head of the key -> run on copies -> a node is far: request it, blocked
//!                                  -> a node cannot be read: failed
//!                 -> answer has room -> frames for all records -> write all -> answer
//! ```
//!
//! As a transaction, an operation is never parked. While it lacks a record it is blocked: it stays
//! the first request of its lane and is tried again each turn.
//!
//! - I1: nothing changes before all nodes are known, and the answer and all records have room. Then
//!   nothing can fail.
//! - I2: what a request holds of far nodes is a fact of its lane, and ends with it.

#![allow(unsafe_code)] // makes requests of keys, and changes nodes in place

use std::ptr::NonNull;

use farcore_rdma::Endpoint;

use crate::constants::{EXPIRY_BYTES, TREE_PUSH_MAX, UNIT_BYTES, VALUE_BYTES_MAX};
use crate::error::Error;
use crate::journal::TreeEffect;
use crate::log::record::{self, LocalRecord, RecordHeader, RecordView};
use crate::log::{Address, SizeClass};
use crate::message::operation::{OperationKind, RequestParts, Version};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, Origin, ReplyTo, Request, RequestFlags, RequestShape};
use crate::shard::local::open_pages::TailKind;
use crate::shard::local::trees::{NODE_KEY_BYTES, NodeName, NodePlace, Tree, TreePlace};
use crate::shard::ops::tree_buffers::TreeBuffers;
use crate::shard::ops::tree_findings::{FoundHead, HeadKind};
use crate::shard::ops::tree_head::{SLACK_SHARE, TreeChange};
use crate::shard::pending::facts::Fact;
use crate::shard::pending::park::Source;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::{Evidence, Found, Step};
use crate::shard::{FRAMES_FOR_REMOVALS, FRAMES_RESERVED, Shard};
use crate::tree::{
    Edited, Halt, NodeNumber, Nodes, PathStep, TREE_HEAD_BYTES, TREE_KEY_BYTES_MAX, TouchedLeaf,
    TreeAnswer, TreeEdit, TreeGuard, TreeKind, TreeLimits, TreeNode, TreeNodeEdit, TreeOp,
    TreeRoot, TreeScratch, TreeShape, TreeTouch, TreeWork, Unread, copy_living,
};

/// Bytes of a page of elements.
const PAGE_BYTES: usize = 16 << 10;
/// Leaves that a step reads, at most.
const LEAVES_MAX: usize = 8;
/// Nodes that a step changes, at most, where an operation may be done in part.
const EDITS_MAX: usize = 48;
/// A leaf that fills from an end of its tree has a whole record if it is no larger a share of it.
const WHOLE_SHARE: usize = 8;
/// Nodes of dying trees that a slice frees. It takes some microseconds.
const NODES_A_SLICE: usize = 64;

/// The nodes of a tree, as far as they can be read now.
pub(super) struct ShardNodes<'s, E: Endpoint> {
    shard: &'s Shard<E>,
    lane: ReplyTo,
    request: &'s Request<'s>,
    /// `None` before the tree has nodes of its own.
    tree: Option<(TreePlace, &'s Tree)>,
    /// The only leaf, if it lies in the head.
    inline: Option<&'s [u8]>,
}

/// The number of the leaf that lies in its head.
const INLINE_LEAF: NodeNumber = 0;

impl<E: Endpoint> Nodes for ShardNodes<'_, E> {
    fn read(&self, number: NodeNumber) -> Result<&[u8], Unread> {
        let shard = self.shard;
        if let Some(leaf) = self.inline.filter(|_| number == INLINE_LEAF) {
            return Ok(leaf);
        }
        let (_, tree) = self.tree.ok_or(Unread::Failed)?;
        let address = tree.node_at(number).ok_or(Unread::Failed)?.address();
        if let Some(record) = shard.local.record_at(address) {
            return Ok(record.value());
        }
        match shard.facts.node(self.lane, self.request, number) {
            Fact::Node {
                address: read,
                sequence,
                bytes,
            } if *read == address && shard.holds_at(address, *sequence) => Ok(bytes),
            // One that the node has left since says nothing of where it is now.
            Fact::Failed { at, .. }
                if at.is_none_or(|(failed, sequence)| {
                    failed == address && shard.holds_at(address, sequence)
                }) =>
            {
                Err(Unread::Failed)
            }
            _ => Err(Unread::Far),
        }
    }

    fn fresh(&self, before: Option<NodeNumber>) -> NodeNumber {
        match self.tree {
            Some((tree, _)) => self.shard.trees.fresh(tree, before),
            None => match before {
                Some(before) => before.saturating_add(1),
                // The inline leaf is the first node if the collection gets nodes of its own.
                None => NodeNumber::from(self.inline.is_some()),
            },
        }
    }

    fn is_crowded(&self) -> bool {
        self.shard.facts.are_many(self.lane, self.request)
    }
}

impl<'s, E: Endpoint> ShardNodes<'s, E> {
    /// The nodes of a tree, as a request of a lane can read them.
    pub(super) fn of_tree(
        shard: &'s Shard<E>,
        lane: ReplyTo,
        request: &'s Request<'s>,
        tree: (TreePlace, &'s Tree),
    ) -> Self {
        Self {
            shard,
            lane,
            request,
            tree: Some(tree),
            inline: None,
        }
    }

    /// Runs an operation on copies: to be done in place, if the nodes on the way allow it, else
    /// with edits. Returns its answer, the root that it leaves and whether it changes the tree.
    fn run(
        &self,
        op: &TreeOp<'_>,
        (shape, limits): (TreeShape, TreeLimits),
        (root, head): (TreeRoot, Option<Address>),
        buffers: &mut TreeBuffers,
    ) -> (Result<TreeAnswer, Halt>, TreeRoot, bool) {
        let way = self.tree;
        let way = way.and_then(|(tree, _)| self.shard.way_ahead(self.request, tree));
        let work = TreeWork::new(self, shape, root, &mut buffers.work).along(way);
        let mut work = work.touching();
        let programs = self.shard.tuning.tree_programs;
        let ran = work.run_with(programs, op, limits, &mut buffers.answer);
        let done = (ran, work.root, work.has_changed());
        let is_one = ran != Err(Halt::Several);
        if is_one
            && (buffers.work.touches().is_empty()
                || self.find_touched(head, &buffers.work, &mut buffers.records))
        {
            return done;
        }
        let mut work = TreeWork::new(self, shape, root, &mut buffers.work).along(way);
        let ran = work.run_with(programs, op, limits, &mut buffers.answer);
        (ran, work.root, work.has_changed())
    }

    /// Finds the records of each leaf that is touched and of the branches on the way to it, the
    /// leaf's first; false if one of them cannot be changed in place.
    fn find_touched(
        &self,
        head: Option<Address>,
        work: &TreeScratch,
        records: &mut Vec<LocalRecord>,
    ) -> bool {
        records.clear();
        let local = &self.shard.local;
        let mut find = |address: Address| {
            let framed = local.framed_of(address);
            if framed.is_mutable() {
                records.push(local.record(framed));
            }
            framed.is_mutable()
        };
        if self.inline.is_some() {
            return head.is_some_and(find);
        }
        let Some((_, tree)) = self.tree else {
            return false;
        };
        work.touches().iter().all(|touched| {
            let branches = counted_on(work, touched).iter().map(|step| step.node);
            let mut all = [touched.leaf].into_iter().chain(branches);
            all.all(|number| {
                let place = tree.node_at(number);
                place.is_some_and(|place| find(place.address()))
            })
        })
    }
}

/// The branches in which a touch changes a count: none for a replacement.
pub(super) fn counted_on<'w>(work: &'w TreeScratch, touched: &TouchedLeaf) -> &'w [PathStep] {
    match touched.touch {
        TreeTouch::Replace => &[],
        TreeTouch::Insert | TreeTouch::Remove => work.way(touched),
    }
}

/// Bytes of a node's record, so that its record ends with a unit.
fn stored_bytes(needed: usize) -> usize {
    let record = UNIT_BYTES + NODE_KEY_BYTES + needed;
    record.next_multiple_of(UNIT_BYTES) - UNIT_BYTES - NODE_KEY_BYTES
}

/// Why an operation is not for a collection of this kind, tag and version, if it is not.
fn refused_by(
    guard: TreeGuard,
    op: &TreeOp<'_>,
    (kind, tag): (Option<TreeKind>, Option<u8>),
    current: Version,
) -> Option<Error> {
    if let Some(kind) = kind
        && op.kind().is_some_and(|wanted| wanted != kind)
    {
        return Some(Error::CollectionKind { kind });
    }
    if let Some(tag) = tag.filter(|&tag| tag != guard.tag && *op != TreeOp::Len) {
        return Some(Error::CollectionTag { tag });
    }
    let is_other = guard.version.is_some_and(|expected| expected != current);
    is_other.then_some(Error::CollectionVersion { current })
}

/// What an operation answers, of a collection of this version.
fn answer_of(answer: TreeAnswer, version: Version, value: &[u8]) -> Answer<'_> {
    match answer {
        TreeAnswer::Value => Answer::Value { version, value },
        TreeAnswer::Absent => Answer::Absent,
        TreeAnswer::Refused => Answer::Mismatch { current: version },
    }
}

impl<E: Endpoint> Shard<E> {
    /// True if an address is far, and its page has had no other contents since.
    pub(super) fn holds_at(&self, address: Address, sequence: u64) -> bool {
        let page = self.local.page(address.page(self.shape));
        self.framed_of(address).is_far() && page.sequence == sequence
    }

    /// Tries an operation on the tree of a key.
    #[inline(never)]
    pub(in crate::shard) fn tree(
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
        self.look_ahead_in_trees(request);
        let mut buffers = self.tree_buffers.take().unwrap_or_default();
        let step = match self.try_tree(lane, request, &mut buffers, answers) {
            Ok(step) | Err(step) => step,
        };
        buffers.work.clear();
        if farcore_tuning::mutated!("buffers-not-kept") {
            Box::leak(buffers);
        } else {
            self.tree_buffers = Some(buffers);
        }
        match step {
            Step::Done => self.facts.end(lane),
            Step::NoRoom { .. } => self.facts.note_stalled(lane),
            _ => self.facts.note_try(lane),
        }
        step
    }

    fn try_tree(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        buffers: &mut TreeBuffers,
        answers: &mut impl AnswerSink,
    ) -> Result<Step, Step> {
        let Some((guard, op)) = TreeOp::decode(request.value()) else {
            debug_assert!(false, "a client encoded it");
            return Err(self.fail(lane, request, Error::Closed, answers));
        };
        if let Err(error) = self.check_lengths(&op) {
            return Err(self.fail(lane, request, error, answers));
        }
        let found = self.find_head(lane, request, (guard, &op), answers)?;
        // What replaces the key's collection looks at no element of it.
        let known = found.filter(|_| !op.replaces());
        let held = self.held_by(lane, request, known);
        let kind = held.map(|held| held.kind).or(op.kind());
        let before = held.map_or(TreeRoot::default(), |held| held.root);
        let version = found.map_or(0, |found| found.version);
        let is_unread = held.is_none();
        let refusal = match known.filter(|_| is_unread) {
            Some(found) => Some(self.no_collection(found)),
            None => refused_by(guard, &op, (kind, held.map(|held| held.tag)), version),
        };
        if let Some(error) = refusal {
            return Err(self.fail(lane, request, error, answers));
        }
        let tag = held.map_or(guard.tag, |held| held.tag);
        let (shape, limits) = self.bounds(kind, known);
        let tree = known.and_then(FoundHead::tree);
        let nodes = ShardNodes {
            shard: self,
            lane,
            request,
            tree: tree.and_then(|tree| Some((tree, self.trees.get(tree)?))),
            inline: held.and_then(|held| held.leaf),
        };
        let head = known.map(|found| found.head);
        buffers.work.notes.is_on = self.feeds();
        let (ran, root, has_changed) = nodes.run(&op, (shape, limits), (before, head), buffers);
        let answer = match ran {
            Ok(answer) => answer,
            Err(halt) => return Err(self.halt(lane, request, (known, halt), answers)),
        };
        if op == TreeOp::Len {
            buffers.answer.extend([shape.kind as u8, tag]);
        }
        let value_bytes = buffers.answer.len();
        if !answers.has_room(lane, value_bytes) {
            return Err(Step::NoRoom { value_bytes });
        }
        let change = TreeChange {
            found,
            goes_on: known.is_some(),
            kind: shape.kind,
            tag,
            root,
            is_removal: op.is_removal(),
        };
        let changes = has_changed && op.is_change();
        let made = match changes || op.replaces() && found.is_some() {
            true => self.make_noted(lane, request, (&op, &change, before), buffers),
            false => Ok(version),
        };
        let version = match made {
            Ok(version) => version,
            Err(refusal) => return Err(self.refuse_tree(lane, request, refusal, answers)),
        };
        self.count_operation(&op);
        let answer = answer_of(answer, version, &buffers.answer);
        answers.answer(lane, request.token, answer);
        Ok(Step::Done)
    }

    /// Changes a collection that had this root, and notes that.
    fn make_noted(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (op, change, before): (&TreeOp<'_>, &TreeChange, TreeRoot),
        buffers: &mut TreeBuffers,
    ) -> Result<Version, NoRoom> {
        self.begin_tree_step();
        let made = self.make_change(lane, request, (op, change), buffers);
        let effect = TreeEffect {
            kind: change.kind,
            tag: change.tag,
            begins: !change.goes_on,
            before: change.kind.elements(before.count),
            after: change.kind.elements(change.root.count),
            op: *op,
            answer: &buffers.answer,
            removed: &buffers.work.notes.removed,
        };
        let version = made.as_ref().ok().copied();
        self.end_tree_step(request, version, effect, &buffers.work.notes);
        made
    }

    fn count_operation(&self, op: &TreeOp<'_>) {
        let counters = &self.metrics.counters;
        let counter = match op.is_change() {
            true => &counters.changes,
            false => &counters.inspections,
        };
        counter.add(1);
    }

    /// Why an operation cannot be on the record that was found: it is no collection that can be
    /// read.
    fn no_collection(&self, found: FoundHead) -> Error {
        match found.kind {
            HeadKind::Plain => Error::NoCollection,
            _ => self.lost_error(Some(found.head)),
        }
    }

    /// Changes a collection: in place, if the operation was noted so, else by edits. Returns its
    /// version.
    fn make_change(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (op, change): (&TreeOp<'_>, &TreeChange),
        buffers: &mut TreeBuffers,
    ) -> Result<Version, NoRoom> {
        let known = change.found.filter(|_| change.goes_on);
        if let Some(found) = known.filter(|_| !buffers.work.touches().is_empty()) {
            let version = match found.kind {
                HeadKind::Rooted(tree) => self.touch_tree(tree, op, change.root, buffers),
                _ => self.touch_inline(found, (&buffers.work, op)),
            };
            if self.journals.is_some() {
                match found.kind {
                    HeadKind::Rooted(tree) => {
                        self.note_touched((request.key(), tree), op, buffers);
                    }
                    _ => self.note_inline(request.key(), found),
                }
            }
            return Ok(version);
        }
        self.write_tree(lane, request, change, buffers)
    }

    /// How large the nodes of a tree become, and how much one step does.
    fn bounds(&self, kind: Option<TreeKind>, found: Option<FoundHead>) -> (TreeShape, TreeLimits) {
        let (node_bytes, entries_max) = self.trees.shape();
        let is_rooted = found.and_then(FoundHead::tree).is_some();
        let shape = TreeShape {
            kind: kind.unwrap_or(TreeKind::Map),
            node_bytes,
            entries_max,
            shrinks_at: if is_rooted { self.shrinks_at() } else { 0 },
        };
        // Where frames are short, as few nodes are changed as can be.
        let nodes_a_frame = self.shape.page_bytes() / (2 * node_bytes);
        let limits = TreeLimits {
            page_bytes: PAGE_BYTES.min(self.shape.page_bytes() / 4),
            leaves: LEAVES_MAX,
            edits: EDITS_MAX.min(1 + self.local.openable() * nodes_a_frame),
            elements: TREE_PUSH_MAX as u64,
            value_bytes: self.element_bytes_max(),
        };
        (shape, limits)
    }

    /// What follows where there is no room for what an operation changes.
    #[cold]
    fn refuse_tree(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        refusal: NoRoom,
        answers: &mut impl AnswerSink,
    ) -> Step {
        match refusal {
            NoRoom::Wait => {
                self.background_due = true;
                Step::Blocked
            }
            NoRoom::Never(error) => self.fail(lane, request, error, answers),
        }
    }

    /// Bytes of an element's value, at most: with its key it fits an answer, and alone a record.
    fn element_bytes_max(&self) -> usize {
        VALUE_BYTES_MAX.min(self.shape.page_bytes() / 2) - TREE_KEY_BYTES_MAX - 64
    }

    /// Checks the keys and values of an operation against their limits.
    fn check_lengths(&self, op: &TreeOp<'_>) -> Result<(), Error> {
        let (key_bytes, value_bytes) = op.lengths();
        if key_bytes > TREE_KEY_BYTES_MAX {
            let max = TREE_KEY_BYTES_MAX;
            return Err(Error::KeyTooLong {
                bytes: key_bytes,
                max,
            });
        }
        let max = self.element_bytes_max();
        if value_bytes > max {
            let bytes = value_bytes;
            return Err(Error::ValueTooLong { bytes, max });
        }
        let values = op.pushed();
        if values > TREE_PUSH_MAX {
            return Err(Error::TooManyElements {
                elements: values,
                max: TREE_PUSH_MAX,
            });
        }
        Ok(())
    }

    /// What follows from a halt: a far node is requested, another one fails the request.
    pub(super) fn halt(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (found, halt): (Option<FoundHead>, Halt),
        answers: &mut impl AnswerSink,
    ) -> Step {
        if let Halt::TooLong(bytes) = halt {
            let max = self.element_bytes_max();
            return self.fail(lane, request, Error::ValueTooLong { bytes, max }, answers);
        }
        let Some(tree) = found.and_then(FoundHead::tree) else {
            // Only the inline leaf was read.
            let head = found.map(|found| found.head);
            return self.fail(lane, request, self.lost_error(head), answers);
        };
        let error = match halt {
            Halt::Far(number) => {
                self.await_node(lane, request, NodeName { tree, number }, answers);
                return Step::Blocked;
            }
            Halt::Failed(number) => match self.facts.node(lane, request, number) {
                Fact::Failed { error, .. } => {
                    let error = (**error).clone();
                    if matches!(error, Error::Damaged { .. }) && self.lost.is_forgotten_at_once() {
                        self.give_up_node(NodeName { tree, number });
                    }
                    error
                }
                _ => self.lost_error(None),
            },
            // What makes several changes has been tried again by edits.
            Halt::TooLong(_) | Halt::Several => self.lost_error(None),
            Halt::Damaged(number) => {
                let place = self.trees.place_of(NodeName { tree, number });
                self.lost_error(place.map(NodePlace::address))
            }
        };
        self.fail(lane, request, error, answers)
    }

    /// Has a far node read, unless that is under way.
    pub(super) fn await_node(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        node: NodeName,
        answers: &mut impl AnswerSink,
    ) {
        let Some(place) = self.trees.place_of(node).filter(|_| !self.is_lent) else {
            return;
        };
        let known = self.facts.node(lane, request, node.number);
        if matches!(known, Fact::Requested { .. }) {
            return;
        }
        let key = self.trees.node_key(node);
        let hash = self.key_hasher.hash(&key);
        let bytes = place.units() as usize * UNIT_BYTES;
        let wanted = (node.number, bytes);
        let Some(token) = self.facts.request_node(lane, request, wanted) else {
            return;
        };
        let parts = RequestParts {
            kind: OperationKind::TreeRead,
            key: &key,
            value: &[],
            expected: 0,
        };
        let origin = Origin::new(0, RequestFlags::FACT);
        // SAFETY: it has no part but its key, which lies here until the request is parked or
        // refused.
        let read = unsafe {
            let start = NonNull::from(&key).cast();
            Request::at(start, RequestShape::of(&parts), hash, token, origin)
        };
        #[expect(clippy::cast_possible_truncation, reason = "the number of a lane")]
        let lane = ReplyTo::new(lane.number() as u8).of(origin);
        let parked = match self.flights.of_hash(hash) {
            Some(flight) => self.park_behind(flight, lane, &read, answers),
            None => {
                let record = (place.address(), place.class());
                self.launch(lane, &read, record, Source::Read, answers)
            }
        };
        if !parked {
            self.facts.learn(lane, token, Fact::Unknown);
        }
    }

    /// Learns the contents of a node, or says what must be read first.
    #[inline(never)]
    pub(in crate::shard) fn read_tree_node(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        evidence: &Evidence<'_>,
    ) -> Step {
        let node = self.trees.node_of(request.key());
        let place = node.and_then(|node| Some((node, self.trees.place_of(node)?)));
        let Some((node, place)) = place else {
            // It is gone, or lost: the operation finds that out itself.
            self.facts.learn(lane, request.token, Fact::Unknown);
            return Step::Done;
        };
        let address = place.address();
        let fact = if evidence.damaged.contains(&address) {
            return self.fail_fact(lane, request, self.lost_error(Some(address)));
        } else if self.framed_of(address).is_far() {
            let far = evidence.confirmed.filter(|far| far.address == address);
            let Some(far) = far else {
                let class = place.class();
                return Step::Fetch { address, class };
            };
            let Some(view) = far.record.and_then(RecordView::parse) else {
                return Step::Blocked;
            };
            self.note_served(&far);
            let sequence = self.local.page(address.page(self.shape)).sequence;
            let bytes = view.value().into();
            self.bring_near(node, &view);
            Fact::Node {
                address,
                sequence,
                bytes,
            }
        } else {
            Fact::Unknown
        };
        self.facts.learn(lane, request.token, fact);
        Step::Done
    }

    /// Gives up a node that twice was not what was written.
    #[cold]
    pub(in crate::shard) fn give_up_node(&mut self, node: NodeName) {
        let Some(place) = self.trees.place_of(node) else {
            return;
        };
        self.metrics.counters.records_damaged.add(1);
        self.trees.lose_node(node);
        self.note_loss();
        self.background_due |= self.trees.has_torn();
        self.retire(place.address(), place.account_bytes());
    }

    /// Learns that what a fact is about cannot be read. Of a node, that is so where it lies now.
    #[cold]
    pub(in crate::shard) fn fail_fact(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        error: Error,
    ) -> Step {
        let is_of_node = request.kind() == OperationKind::TreeRead;
        let node = is_of_node.then(|| self.trees.node_of(request.key()));
        let place = node.flatten().and_then(|node| self.trees.place_of(node));
        let at = place.map(|place| {
            let page = self.local.page(place.address().page(self.shape));
            (place.address(), page.sequence)
        });
        let error = Box::new(error);
        self.facts
            .learn(lane, request.token, Fact::Failed { error, at });
        Step::Done
    }

    /// Moves a branch that was read from far memory to the log's tail, if there is room and more is
    /// left: every operation on its tree may need it.
    fn bring_near(&mut self, node: NodeName, read: &RecordView<'_>) {
        let is_branch = TreeNode::parse(read.value()).is_some_and(|node| !node.is_leaf());
        let Some(place) = self.trees.place_of(node).filter(|_| is_branch) else {
            return;
        };
        let units = read.units();
        if units != place.units() {
            return;
        }
        if self.local.pages_for(TailKind::Log, &[units]) >= self.local.openable() {
            return;
        }
        let Ok(room) = self.reserve(TailKind::Log, units) else {
            return;
        };
        let address = room.address();
        room.copy(read.bytes());
        self.commit_node(node, TailKind::Log, address, units);
        self.retire(place.address(), place.account_bytes());
    }

    /// Counts the record of a node that was written at a tail.
    pub(super) fn commit_node(
        &mut self,
        node: NodeName,
        tail: TailKind,
        address: Address,
        units: u32,
    ) {
        let class = SizeClass::for_units(units);
        self.local
            .commit(tail, node.as_hash(), address, class, units);
        self.trees.set_place(node, address, units);
    }

    /// True if the node of a key lies at an address.
    #[cold]
    pub(in crate::shard) fn is_node_at(&self, key: &[u8], address: Address) -> bool {
        let node = self.trees.node_of(key);
        node.is_some_and(|node| self.trees.lies_at(node, address))
    }

    /// Units of the record of the node of a key.
    pub(in crate::shard) fn node_units(&self, key: &[u8]) -> Option<u32> {
        let place = self.trees.place_of(self.trees.node_of(key)?)?;
        Some(place.units())
    }

    /// The bytes of a node's value in its record, and whether they lie in the record already.
    fn target_of(&self, node: Option<NodeName>, edit: &TreeEdit) -> (usize, bool) {
        let needed = if edit.is_value {
            edit.bytes.len()
        } else {
            TreeNode::parse(&edit.bytes).map_or(edit.bytes.len(), TreeNode::used)
        };
        if edit.what == Edited::Changed
            && let Some(place) = node.and_then(|node| self.trees.place_of(node))
            && self.framed_of(place.address()).is_mutable()
            && let Some(record) = self.local.record_at(place.address())
            && record.header().value_bytes() as usize >= needed
        {
            return (record.header().value_bytes() as usize, true);
        }
        if edit.is_value {
            return (stored_bytes(needed), false);
        }
        let whole = match node {
            Some(node) if edit.is_filling => self.whole_leaf(node.tree),
            _ => 0,
        };
        (
            stored_bytes(whole.max(needed + needed / SLACK_SHARE)),
            false,
        )
    }

    /// Bytes of a leaf that will be filled, so that it is written once; 0 in a tree of which a leaf
    /// is a large part.
    fn whole_leaf(&self, tree: TreePlace) -> usize {
        let (node_bytes, _) = self.trees.shape();
        let tree_bytes = self.trees.get(tree).map_or(0, |tree| tree.root.bytes);
        match tree_bytes >= (WHOLE_SHARE * node_bytes) as u64 {
            true => node_bytes,
            false => 0,
        }
    }

    /// Changes elements in place, and the counts above them. Returns the version of the tree.
    fn touch_tree(
        &mut self,
        tree: TreePlace,
        op: &TreeOp<'_>,
        root: TreeRoot,
        buffers: &TreeBuffers,
    ) -> Version {
        self.version += 1;
        let version = self.version;
        let work = &buffers.work;
        let mut records = buffers.records.iter();
        for touched in work.touches() {
            let is_done = records.next().is_some_and(|leaf| {
                // SAFETY: its page is mutable, nodes do not expire, what is stored lies in the
                // request or in buffers, and no record has moved since this one was found.
                let mut leaf = TreeNodeEdit::of(unsafe { leaf.value_mut(version) });
                touched.apply(&mut leaf, work.element(touched, op))
            });
            assert!(is_done, "the leaf has room");
            for (step, branch) in counted_on(work, touched).iter().zip(records.by_ref()) {
                // SAFETY: as for the leaf.
                let mut branch = TreeNodeEdit::of(unsafe { branch.value_mut(version) });
                let child = branch.view().child(step.entry);
                let count = child.and_then(|child| touched.touch.counted(child.count));
                let is_done = count.is_some_and(|count| branch.set_count(step.entry, count));
                debug_assert!(is_done, "the child was there");
            }
        }
        if let Some(tree) = self.trees.get_mut(tree) {
            (tree.root, tree.version) = (root, version);
        }
        version
    }

    /// Makes room for what an operation changes and writes it all, or changes nothing. Returns the
    /// version of the collection.
    fn write_tree(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        change: &TreeChange,
        buffers: &mut TreeBuffers,
    ) -> Result<Version, NoRoom> {
        if change.root.height == 0 {
            // Its nodes follow in slices.
            self.remove_head(lane, request);
            return Ok(self.version);
        }
        let rooted = change.found.filter(|_| change.goes_on);
        let rooted = rooted.and_then(FoundHead::tree);
        if let Some(leaf) = self.fits_head(change, &buffers.work) {
            let written = self.write_inline(lane, request, change, (leaf, buffers));
            // A tree that could be in its head stays one while there is no room for that.
            if written.is_ok() || rooted.is_none() {
                return written;
            }
        }
        let inline = change.goes_on && rooted.is_none();
        let added = |edit: &&TreeEdit| matches!(edit.what, Edited::Added | Edited::Passing);
        let adds = buffers.work.edits().iter().filter(added).count() + usize::from(inline);
        let known = rooted.ok_or(self.kept_key(request));
        if adds > 0 && !self.trees.has_room(known, adds) {
            if self.trees.has_dying() {
                return Err(NoRoom::Wait);
            }
            return Err(NoRoom::Never(Error::Collections {
                shard: self.id,
                bytes: self.trees.bytes_max(),
            }));
        }
        let tail = self.reserve_nodes(rooted, change.is_removal, buffers)?;
        let tree = match rooted {
            Some(tree) => tree,
            None => self.begin_tree(lane, request, change, buffers)?,
        };
        if rooted.is_some() {
            self.version += 1;
        }
        let version = self.version;
        self.write_nodes(tree, inline, (tail, version), buffers);
        if let Some(written) = self.trees.get_mut(tree) {
            (written.root, written.version) = (change.root, version);
        }
        self.note_written(request.key(), tree, buffers);
        Ok(version)
    }

    /// Makes sure that all records of changed nodes can be appended, and returns to which tail.
    fn reserve_nodes(
        &mut self,
        tree: Option<TreePlace>,
        is_removal: bool,
        buffers: &mut TreeBuffers,
    ) -> Result<TailKind, NoRoom> {
        buffers.units.clear();
        for edit in buffers.work.edits() {
            if !matches!(edit.what, Edited::Added | Edited::Changed) {
                continue;
            }
            let number = edit.node;
            let node = tree.map(|tree| NodeName { tree, number });
            let (bytes, in_place) = self.target_of(node, edit);
            if !in_place {
                let units = record::units_for(NODE_KEY_BYTES, bytes) + self.tag_units;
                buffers.units.push(units);
            }
        }
        if !is_removal {
            self.reserve_each(&buffers.units)?;
            return Ok(TailKind::Log);
        }
        self.reserve_removal(&buffers.units)
    }

    /// Makes sure that records of these units can be appended one after the other.
    pub(super) fn reserve_each(&mut self, units: &[u32]) -> Result<(), NoRoom> {
        let pages = self.local.pages_for(TailKind::Log, units);
        if pages <= self.local.openable() {
            return Ok(());
        }
        self.pressure.want(pages);
        Err(self.no_frames(pages))
    }

    /// The key of a request, as its tree keeps it: where trees are evicted.
    pub(super) fn kept_key<'r>(&self, request: &'r Request<'_>) -> &'r [u8] {
        match self.evictor.is_on() {
            true => request.key(),
            false => &[],
        }
    }

    /// Makes sure, before the first collection is stored, that removals can have a frame beside
    /// what it takes.
    pub(super) fn reserve_for_removals(&mut self, units: &[u32]) -> Result<(), NoRoom> {
        if !self.trees.is_empty() || self.has_inline {
            return Ok(());
        }
        let needed = self.local.pages_for(TailKind::Log, units) + FRAMES_FOR_REMOVALS;
        if self.local.openable() >= needed {
            return Ok(());
        }
        self.pressure.want(needed);
        Err(self.no_frames(needed))
    }

    /// Stores the head of a new tree, and makes sure of room for its nodes beside it.
    fn begin_tree(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        change: &TreeChange,
        buffers: &mut TreeBuffers,
    ) -> Result<TreePlace, NoRoom> {
        if change.found.is_some() {
            // Nothing changes unless there is room for the head and all nodes.
            let units = self.head_units(request.key(), TREE_HEAD_BYTES);
            buffers.units.insert(0, units);
            self.reserve_each(&buffers.units)?;
        }
        self.reserve_for_removals(&buffers.units)?;
        let kept_key = self.kept_key(request);
        let tree = self.trees.begin(change.kind, change.tag, kept_key);
        self.note_heads();
        let expiry_ms = change.expiry_ms();
        let mut value = [0; TREE_HEAD_BYTES + EXPIRY_BYTES];
        value[..TREE_HEAD_BYTES].copy_from_slice(&self.trees.head_value(tree));
        let expiry_bytes = expiry_ms.map_or(0, |at_ms| {
            value[TREE_HEAD_BYTES..].copy_from_slice(&at_ms.to_le_bytes());
            EXPIRY_BYTES
        });
        let value = &value[..TREE_HEAD_BYTES + expiry_bytes];
        let stored = self.store_head(lane, request, value, expiry_ms);
        let stored = stored.and_then(|head| {
            // For a new key the index may have taken a frame for the slot.
            if change.may_need_slot()
                && let Err(refusal) = self.reserve_each(&buffers.units)
            {
                self.remove_head(lane, request);
                return Err(refusal);
            }
            self.trees.adopt(tree, request.hash, head);
            Ok(tree)
        });
        if stored.is_err() {
            self.trees.abandon(tree);
            self.note_heads();
        }
        stored
    }

    /// Writes all nodes that an operation has changed. There is room.
    fn write_nodes(
        &mut self,
        tree: TreePlace,
        was_inline: bool,
        (tail, version): (TailKind, Version),
        buffers: &mut TreeBuffers,
    ) {
        let TreeBuffers { work, stored, .. } = buffers;
        if was_inline {
            let number = self.trees.take_number(tree);
            assert_eq!(number, INLINE_LEAF, "it is the first node of a new tree");
        }
        // The numbers are those that were foretold while the operation ran.
        for edit in work.edits() {
            if matches!(edit.what, Edited::Added | Edited::Passing) {
                let number = self.trees.take_number(tree);
                assert_eq!(number, edit.node, "fresh numbers are taken in their order");
            }
        }
        for edit in work.edits() {
            let number = edit.node;
            let node = NodeName { tree, number };
            match edit.what {
                Edited::Added | Edited::Changed => {
                    self.write_node(node, edit, (tail, version), stored);
                }
                Edited::Passing => self.trees.give_number(node),
                Edited::Removed if farcore_tuning::mutated!("removed-node-kept") => {}
                Edited::Removed => {
                    if let Some(place) = self.trees.remove_node(node) {
                        self.retire(place.address(), place.account_bytes());
                    }
                }
            }
        }
        let stays = |edit: &TreeEdit| edit.node == INLINE_LEAF && edit.what == Edited::Changed;
        if was_inline && !work.edits().iter().any(stays) {
            let number = INLINE_LEAF;
            self.trees.give_number(NodeName { tree, number });
        }
    }

    /// Writes a node in place, or appends its record.
    fn write_node(
        &mut self,
        node: NodeName,
        edit: &TreeEdit,
        (tail, version): (TailKind, Version),
        stored: &mut Vec<u8>,
    ) {
        let (bytes, in_place) = self.target_of(Some(node), edit);
        let fill = |target: &mut [u8]| match edit.is_value {
            true => {
                let (value, rest) = target.split_at_mut(edit.bytes.len());
                value.copy_from_slice(&edit.bytes);
                rest.fill(0);
            }
            false => {
                let copied =
                    TreeNode::parse(&edit.bytes).and_then(|view| copy_living(view, target));
                assert!(copied.is_some(), "the target is as long as the node needs");
            }
        };
        let before = self.trees.place_of(node);
        if in_place
            && let Some(place) = before
            && let Some(record) = self.local.record_at(place.address())
        {
            // SAFETY: its page is mutable, nodes do not expire, and the edit is a copy.
            fill(unsafe { record.value_mut(version) });
            return;
        }
        stored.clear();
        stored.resize(bytes, 0);
        fill(stored);
        let key = self.trees.node_key(node);
        let units = record::units_for(NODE_KEY_BYTES, bytes) + self.tag_units;
        let room = self.reserve(tail, units);
        let room = room.expect("room for all records was made sure of");
        let address = room.address();
        room.write(version, self.record_flags, &key, stored);
        self.commit_node(node, tail, address, units);
        if let Some(place) = before {
            self.retire(place.address(), place.account_bytes());
        }
    }

    /// Frees some nodes of dying trees. True if there are more.
    #[inline]
    pub(in crate::shard) fn free_trees_slice(&mut self) -> bool {
        let is_kept = farcore_tuning::mutated!("dying-tree-kept");
        self.trees.has_dying() && !is_kept && self.free_trees_now()
    }

    #[cold]
    fn free_trees_now(&mut self) -> bool {
        for _ in 0..NODES_A_SLICE {
            match self.trees.next_dying() {
                Some(Some(place)) => self.retire(place.address(), place.account_bytes()),
                Some(None) => {}
                None => break,
            }
        }
        self.note_heads();
        self.trees.has_dying()
    }

    /// Frees a node of a dying tree that compaction has met.
    pub(in crate::shard) fn free_dying_node(&mut self, node: NodeName) {
        if let Some(place) = self.trees.remove_node(node) {
            self.retire(place.address(), place.account_bytes());
        }
    }

    /// Notes whether more may end with a record, and keeps a frame for removals from trees.
    pub(in crate::shard) fn note_heads(&mut self) {
        let has_trees = !self.trees.is_empty();
        self.has_heads = self.long.has_any() || has_trees;
        let has_any = has_trees || self.has_inline;
        let for_removals = if has_any { FRAMES_FOR_REMOVALS } else { 0 };
        let reserve = FRAMES_RESERVED + for_removals;
        self.local.arena.set_reserve(reserve);
    }

    /// The version of a key by its record: that of its tree, if the record is the head of one.
    #[inline]
    pub(in crate::shard) fn version_of(&self, header: RecordHeader, address: Address) -> Version {
        if header.is_tree() {
            self.tree_version(header, address)
        } else {
            header.version()
        }
    }

    /// The version of what was found; 0 if that is nothing.
    pub(in crate::shard) fn found_version(&self, found: &Found<'_>) -> Version {
        match found {
            Found::Local(local) => self.version_of(local.record.header(), local.slot.address()),
            Found::Confirmed { slot, far, .. } => self.version_of(far.header, slot.address()),
            Found::Absent | Found::Unknown { .. } | Found::Lost { .. } => 0,
        }
    }

    #[cold]
    fn tree_version(&self, header: RecordHeader, address: Address) -> Version {
        let tree = self.trees.at_head(address);
        let tree = tree.and_then(|tree| self.trees.get(tree));
        tree.map_or(header.version(), |tree| tree.version)
    }
}
