//! How evenly pages lie on a shard's nodes, and which copy of a page would lie better elsewhere.
//!
//! The share of a node is what pages hold of what it lends.
//!
//! - B1: a move leaves the node that it is from with no smaller share than the node that it is to.
//!   So no page moves back, and moves end.
//! - B2: a move puts no second copy on a node, and leaves a page's copies in as many zones.

use super::extents::{Extent, NODES_MAX, NodeId, WHOLE};
use super::pages::FarPages;

/// The share of each node that stays and may answer, by position.
#[derive(Debug)]
pub(in crate::shard) struct Shares([Option<usize>; NODES_MAX]);

/// A copy of a page that is to lie on another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) struct Move {
    pub(in crate::shard) from: NodeId,
    pub(in crate::shard) to: NodeId,
}

impl FarPages {
    /// The shares of the nodes. A node that failed when it joined, before its queue pairs were
    /// connected, is tried again. Cost: a few steps a node.
    pub(in crate::shard) fn shares(&self, now_ns: u64) -> Shares {
        let mut shares = Shares([None; NODES_MAX]);
        let may_answer = |queue| self.health.may_try(queue, now_ns);
        for node in self.extents.nodes() {
            let is_gone = self.is_gone(node, now_ns);
            if !is_gone && may_answer(node.reads()) && may_answer(node.writes()) {
                shares.0[node.position()] = self.extents.share_on(node);
            }
        }
        shares
    }

    /// How far the shares of the fullest node, and of the emptiest that has more free extents than
    /// are kept, lie apart, in percent. Cost: a few steps a node.
    pub(in crate::shard) fn spread_percent(&self, shares: &Shares, kept: usize) -> usize {
        let (mut least, mut most) = (usize::MAX, 0);
        for node in self.extents.nodes() {
            let Some(share) = shares.0[node.position()] else {
                continue;
            };
            most = most.max(share);
            if self.extents.free_on(node) > kept {
                least = least.min(share);
            }
        }
        most.saturating_sub(least) * 100 / WHOLE
    }

    /// The best move of a copy of a page between nodes whose shares lie further apart than that, to
    /// one with more free extents than are kept. Cost: a comparison for each copy and node.
    pub(in crate::shard) fn best_move(
        &self,
        page: u32,
        shares: &Shares,
        apart_percent: usize,
        kept: usize,
    ) -> Option<Move> {
        let (mut best, mut widest) = (None, apart_percent * WHOLE / 100);
        for copy in self.copies(page) {
            let from = copy.node();
            let Some(share) = shares.0[from.position()] else {
                continue;
            };
            for to in self.extents.nodes() {
                let other = shares.0[to.position()];
                let apart = other.map_or(0, |other| share.saturating_sub(other));
                if apart > widest
                    && self.extents.free_on(to) > kept
                    && self.may_move(page, copy, to)
                {
                    (best, widest) = (Some(Move { from, to }), apart);
                }
            }
        }
        best
    }

    /// B1 and B2 hold of a move.
    fn may_move(&self, page: u32, copy: Extent, to: NodeId) -> bool {
        let from = copy.node();
        let extents = &self.extents;
        let (held, others) = (extents.held_on(from), extents.held_on(to));
        let stays_fuller =
            held.saturating_sub(1) * extents.count_on(to) >= (others + 1) * extents.count_on(from);
        let beside = || self.copies(page).filter(|other| other.node() != from);
        let is_beside = |node: NodeId| {
            let zone = extents.zone(node);
            beside().any(|other| extents.zone(other.node()) == zone)
        };
        stays_fuller
            && beside().all(|other| other.node() != to)
            && (!is_beside(to) || is_beside(from))
    }
}
