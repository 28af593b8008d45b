//! Balance: where the shares of a shard's nodes lie far apart, pages move from fuller nodes to
//! emptier ones, for example to one that was added.
//!
//! The copier moves them, a page at a time and at its pace, as it moves pages off a node that
//! leaves. It does so only when no page lacks a copy and none is to be mended.
//!
//! ```text
//! shares 20 points apart or more -> a pass over all pages, and another one, ...
//! shares 5 points apart or less, or a pass that moves none -> rest
//! ```

use farcore_rdma::Endpoint;

use super::balancer::{LOOK_NS, REST_NS};
use super::copier::Task;
use super::copy::ROOM_KEPT;
use crate::shard::Shard;
use crate::shard::far::Shares;
use crate::shard::local::page_table::{PageKind, PageState};

/// Pages begin to move when shares lie so far apart, in percentage points: what a node that was
/// added is behind by, and more than evenly placed pages ever are.
const BEGIN_PERCENT: usize = 20;
/// Pages stop to move when shares lie no further apart, in percentage points.
const STOP_PERCENT: usize = 5;
const _: () = assert!(STOP_PERCENT < BEGIN_PERCENT);
/// Pages looked at in one slice.
const PAGES_A_SLICE: usize = 32;

impl<E: Endpoint> Shard<E> {
    /// True if pages are to move to emptier nodes now.
    #[inline]
    pub(super) fn is_unbalanced(&mut self) -> bool {
        let is_time = self.now_ns >= self.copier.balancer.looks_ns;
        is_time && (self.copier.balancer.is_on || self.look_at_balance())
    }

    #[cold]
    fn look_at_balance(&mut self) -> bool {
        let shares = self.far.pages.shares(self.now_ns);
        let spread = self.far.pages.spread_percent(&shares, ROOM_KEPT);
        let balancer = &mut self.copier.balancer;
        balancer.is_due = false;
        balancer.pause(self.now_ns);
        if spread >= BEGIN_PERCENT {
            tracing::debug!(shard = self.id, spread, "pages move to emptier nodes");
            (balancer.is_on, balancer.cursor, balancer.moved) = (true, 0, 0);
            balancer.looks_ns = self.now_ns;
        }
        balancer.is_on
    }

    /// The next page that moves to an emptier node, and has its target. `None` also if more pages
    /// are to be looked at.
    pub(super) fn next_unbalanced(&mut self) -> Option<Task> {
        let is_free = self.may_balance() && !self.copier.is_passing;
        if !is_free || !self.is_unbalanced() {
            return None;
        }
        self.copier.balancer.is_due = false;
        if self.compactor.is_stuck() {
            self.copier.balancer.pause(self.now_ns);
            return None;
        }
        let shares = self.far.pages.shares(self.now_ns);
        if self.far.pages.spread_percent(&shares, ROOM_KEPT) <= STOP_PERCENT {
            self.end_balance(LOOK_NS);
            return None;
        }
        let count = u32::try_from(self.local.pages.len()).unwrap_or(u32::MAX);
        for _ in 0..PAGES_A_SLICE {
            if self.copier.balancer.cursor >= count {
                self.copier.balancer.cursor = 0;
                if std::mem::take(&mut self.copier.balancer.moved) == 0 {
                    let rest_ns = self.copier.balancer.rest_longer();
                    self.end_balance(rest_ns);
                    return None;
                }
                self.copier.balancer.rest_ns = REST_NS;
            }
            let page = self.copier.balancer.cursor;
            self.copier.balancer.cursor += 1;
            if let Some(task) = self.balancing(page, &shares) {
                self.copier.balancer.moved += 1;
                self.copier.balancer.is_moving = true;
                return Some(task);
            }
        }
        self.background_due = true;
        None
    }

    fn end_balance(&mut self, rest_ns: u64) {
        self.copier.balancer.is_on = false;
        self.copier.balancer.looks_ns = self.now_ns + rest_ns;
    }

    /// A page could not be moved: it is tried again soon, or later if a node fails.
    pub(super) fn rest_from_balance(&mut self) {
        match self.far.pages.all_answer() {
            true => self.copier.balancer.pause(self.now_ns),
            false => self.end_balance(REST_NS),
        }
    }

    /// The task that moves a page, if one of its copies would lie better elsewhere.
    fn balancing(&mut self, page: u32, shares: &Shares) -> Option<Task> {
        let entry = self.local.pages.get(page);
        let is_far = entry.kind() == PageKind::Log
            && matches!(entry.state(), PageState::Clean | PageState::Far);
        if !is_far || self.is_lost(page) || self.far.pages.lacking(page, self.now_ns) > 0 {
            return None;
        }
        let far = &self.far.pages;
        let best = far.best_move(page, shares, STOP_PERCENT, ROOM_KEPT)?;
        if !self.far.claim_target_on(best.to, self.now_ns) {
            return None;
        }
        let mut task = self.whole_page(page);
        (task.source, task.replaces) = (Some(best.from), Some(best.from));
        Some(task)
    }
}
