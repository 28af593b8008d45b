//! Look-ahead into trees: prefetches the leaf that a later request of the batch will search.
//!
//! The branches of a tree are few and mostly in the processor's caches; a leaf mostly is not. So
//! the way to the leaf is walked twice, and the misses of several leaves overlap.

use farcore_rdma::{Endpoint, prefetch};

use crate::constants::LINE_BYTES;
use crate::index::FirstCandidate;
use crate::message::operation::OperationKind;
use crate::message::request::Request;
use crate::shard::Shard;
use crate::shard::local::trees::NodeName;
use crate::tree::{TreeKind, TreeNode, TreeOp};

/// Requests between the one that is served and the one that is looked ahead. Source: measured; an
/// operation takes several times as long as a miss.
const AHEAD: usize = 4;
/// Lines of a leaf that are prefetched: its header and the places of about a hundred elements.
const LINES: usize = 10;

impl<E: Endpoint> Shard<E> {
    /// Prefetches the leaf of the operation on a tree that comes soon after a request, if there is
    /// one that names an element.
    #[inline]
    pub(super) fn look_ahead_in_trees(&self, request: &Request<'_>) {
        if self.trees.is_empty() {
            return;
        }
        let coming = self.seen.coming(request, AHEAD);
        if let Some(coming) = coming.filter(|coming| coming.kind() == OperationKind::Tree) {
            self.prefetch_leaf(coming);
        }
    }

    /// Prefetches the leaf that a request will search. What the key's first slot leads to is taken
    /// for its head: a wrong leaf costs no more than its lines.
    fn prefetch_leaf(&self, request: &Request<'_>) -> Option<()> {
        let (_, op) = TreeOp::decode(request.value())?;
        let key = op.sought()?;
        let FirstCandidate::At(_, slot) = self.index.first(request.hash, &mut 0) else {
            return None;
        };
        let tree = self.trees.at_head(slot.address())?;
        let root = self.trees.get(tree)?.root;
        let mut number = root.node;
        let record_of = |number| {
            let place = self.trees.place_of(NodeName { tree, number })?;
            self.local.record_at(place.address())
        };
        for _ in 1..root.height {
            let branch = record_of(number)?.value();
            let branch = TreeNode::parse_as(branch, TreeKind::Map, false)?;
            number = branch.child(branch.child_of(key)?)?.node;
        }
        let place = self.trees.place_of(NodeName { tree, number })?;
        let framed = self.framed_of(place.address());
        if !framed.is_far() {
            for line in 0..LINES {
                prefetch(framed.pointer().wrapping_add(line * LINE_BYTES));
            }
        }
        Some(())
    }
}
