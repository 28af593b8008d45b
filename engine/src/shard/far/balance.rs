//! How evenly pages lie on a shard's nodes, and which copy of a page would lie better elsewhere.
//!
//! The share of a node is what pages hold of what it lends.
//!
//! - B1: a move leaves the node that it is from with no smaller share than the node that it is to.
//!   So no page moves back, and moves end.
//! - B2: a move puts no second copy on a node, and leaves a page's copies in as many zones.

use super::extents::{Extent, NodeId};
use super::pages::FarPages;

/// What a share is counted in: hundredths of a percent.
const WHOLE: usize = 10_000;

/// A copy of a page that is to lie on another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) struct Move {
    pub(in crate::shard) from: NodeId,
    pub(in crate::shard) to: NodeId,
}

impl FarPages {
    /// The share of a node that stays and may answer, in hundredths of a percent. One that failed
    /// when it joined, before its queue pairs were connected, is tried again.
    fn share_of(&self, node: NodeId, now_ns: u64) -> Option<usize> {
        let count = self.extents.count_on(node);
        let may_answer = |queue| self.health.may_try(queue, now_ns);
        let is_well = may_answer(node.reads()) && may_answer(node.writes());
        (is_well && count > 0).then(|| self.extents.held_on(node) * WHOLE / count)
    }

    /// How far the shares of the fullest node, and of the emptiest that has more free extents than
    /// are kept, lie apart, in percent. Cost: a few steps a node.
    pub(in crate::shard) fn spread_percent(&self, kept: usize, now_ns: u64) -> usize {
        let (mut least, mut most) = (usize::MAX, 0);
        for node in self.extents.nodes() {
            let Some(share) = self.share_of(node, now_ns) else {
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
    /// one with more free extents than are kept. Cost: a few steps for each copy and node.
    pub(in crate::shard) fn best_move(
        &self,
        page: u32,
        apart_percent: usize,
        kept: usize,
        now_ns: u64,
    ) -> Option<Move> {
        let mut best = None;
        for copy in self.copies(page) {
            let Some(share) = self.share_of(copy.node(), now_ns) else {
                continue;
            };
            for to in self.extents.nodes() {
                let apart = self
                    .share_of(to, now_ns)
                    .map_or(0, |other| share.saturating_sub(other));
                if apart > apart_percent * WHOLE / 100
                    && best.is_none_or(|(known, _)| known < apart)
                    && self.extents.free_on(to) > kept
                    && self.may_move(page, copy, to)
                {
                    let from = copy.node();
                    best = Some((apart, Move { from, to }));
                }
            }
        }
        best.map(|(_, one)| one)
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
