//! Look-ahead into trees: finds the leaf that a later request of the batch will search, and
//! prefetches it, so that the misses of several leaves overlap.
//!
//! ```text
//! AHEAD requests before it is served: index -> head -> branches -> leaf: prefetch its places
//! NEAR requests before:               search the leaf's places -> prefetch the element
//! when it is served:                  takes the leaf and the way to it, unless nodes came or went
//! ```
//!
//! - A1: a finding is of one request of the batch that is being served. It ends with the batch, or
//!   when a node is added to a tree of the shard or removed: else the way from the root to the leaf
//!   of a key stays as it is.
//! - A2: what the first slot of a key's hash leads to is taken for the key's head. Who uses a
//!   finding compares the tree.

#![allow(unsafe_code)] // reads requests of the batch that is being served

use farcore_rdma::{Endpoint, prefetch};

use crate::constants::{LINE_BYTES, UNIT_BYTES};
use crate::index::FirstCandidate;
use crate::message::hash::IndexHash;
use crate::message::operation::OperationKind;
use crate::message::request::Request;
use crate::shard::Shard;
use crate::shard::local::trees::{NODE_KEY_BYTES, NodeName, TreePlace};
use crate::shard::ops::tree_findings::{FINDINGS, Finding};
use crate::tree::{TreeKind, TreeNode, TreeOp, TreePath};

/// Requests between the one that is served and the one whose leaf is prefetched. Source: measured;
/// an operation takes several times as long as a miss.
const AHEAD: usize = 6;
/// Requests between the one that is served and the one whose element is prefetched: its leaf has
/// arrived.
const NEAR: usize = 2;
/// Lines of a leaf that are prefetched, at most.
const LINES_MAX: usize = 16;
/// Bytes of a leaf's record before its places.
const BEFORE_PLACES: usize = UNIT_BYTES + NODE_KEY_BYTES + 8;
/// Bytes of a place of a map's leaf.
const PLACE_BYTES: usize = 6;

const _: () = assert!(NEAR < AHEAD && AHEAD < FINDINGS);

impl<E: Endpoint> Shard<E> {
    /// Forgets what was found for another batch.
    #[inline(always)]
    pub(in crate::shard) fn begin_trees_ahead(&mut self) {
        if let Some(ahead) = &mut self.trees_ahead
            && ahead.seen > 0
        {
            ahead.end();
        }
    }

    /// Looks at requests that come soon after one on a tree.
    #[inline]
    pub(super) fn look_ahead_in_trees(&mut self, request: &Request<'_>) {
        if !self.trees.is_empty() {
            self.look_at_coming(request);
        }
    }

    fn look_at_coming(&mut self, request: &Request<'_>) {
        let Some(batch) = self.seen.batch_of(request) else {
            return;
        };
        let mut ahead = self.trees_ahead.take().unwrap_or_default();
        let renumbered = self.trees.renumbered();
        if ahead.renumbered != renumbered {
            ahead.end();
            ahead.renumbered = renumbered;
        }
        let (place, len) = (batch.place, batch.len);
        let end = (place + AHEAD + 1).min(len);
        for coming in ahead.seen.max(place + 1)..end {
            let finding = &mut ahead.findings[coming % FINDINGS];
            finding.place = None;
            // SAFETY: it is within the batch, which stays while its request is served.
            let request = unsafe { &*batch.start.add(coming).cast::<Request<'_>>() };
            if request.kind() != OperationKind::Tree {
                continue;
            }
            if let Some(tree) =
                self.find_leaf(request, &mut ahead.last, (&mut ahead.key, &mut finding.way))
            {
                (finding.place, finding.tree) = (Some(coming), Some(tree));
            }
        }
        ahead.seen = end.max(ahead.seen).max(1);
        let near = place + NEAR;
        let finding = &ahead.findings[near % FINDINGS];
        if finding.place == Some(near) {
            // SAFETY: as above: the place of a finding is one of the batch.
            let request = unsafe { &*batch.start.add(near).cast::<Request<'_>>() };
            self.prefetch_element(request, finding, &mut ahead.key);
        }
        self.trees_ahead = Some(ahead);
    }

    /// Finds the leaf that a request will search, and prefetches it.
    fn find_leaf(
        &self,
        request: &Request<'_>,
        last: &mut Option<(IndexHash, TreePlace)>,
        (key, way): (&mut Vec<u8>, &mut TreePath),
    ) -> Option<TreePlace> {
        let (_, op) = TreeOp::decode(request.value())?;
        let key = op.sought(key)?;
        let place = match *last {
            Some((hash, place)) if hash == request.hash => place,
            _ => {
                let FirstCandidate::At(_, slot) = self.index.first(request.hash, &mut 0) else {
                    return None;
                };
                let place = self.trees.at_head(slot.address())?;
                *last = Some((request.hash, place));
                place
            }
        };
        let tree = self.trees.get(place)?;
        let count = way.find(tree.root, key, |number| {
            let place = tree.node_at(number)?;
            Some(self.local.record_at(place.address())?.value())
        })?;
        let framed = self.framed_of(tree.node_at(way.leaf())?.address());
        if framed.is_far() {
            return None;
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(1 << 16);
        let lines = (BEFORE_PLACES + count * PLACE_BYTES) / LINE_BYTES + 1;
        for line in 0..lines.min(LINES_MAX) {
            prefetch(framed.pointer().wrapping_add(line * LINE_BYTES));
        }
        Some(place)
    }

    /// Prefetches the element that a request will read.
    fn prefetch_element(
        &self,
        request: &Request<'_>,
        finding: &Finding,
        key: &mut Vec<u8>,
    ) -> Option<()> {
        let (_, op) = TreeOp::decode(request.value())?;
        let (tree, number) = (finding.tree?, finding.way.leaf());
        let place = self.trees.place_of(NodeName { tree, number })?;
        let leaf = self.local.record_at(place.address())?.value();
        let leaf = TreeNode::parse_as(leaf, TreeKind::Map, true)?;
        let element = leaf.likely(op.sought(key)?)?;
        prefetch(element.as_ptr().cast_mut());
        prefetch(element.as_ptr().wrapping_add(LINE_BYTES / 2).cast_mut());
        Some(())
    }

    /// The way to the leaf of a request's key, if it was found in this tree and holds still.
    #[inline]
    pub(super) fn way_ahead(&self, request: &Request<'_>, tree: TreePlace) -> Option<&TreePath> {
        let ahead = self.trees_ahead.as_ref()?;
        if ahead.seen == 0 || ahead.renumbered != self.trees.renumbered() {
            return None;
        }
        let place = self.seen.batch_of(request)?.place;
        let finding = &ahead.findings[place % FINDINGS];
        let holds = finding.place == Some(place) && finding.tree == Some(tree);
        holds.then_some(&finding.way)
    }
}
