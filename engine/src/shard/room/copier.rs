//! The copy of a page that is being made again: which page, how far, and at which pace.

use std::collections::VecDeque;

use farcore_rdma::Landing;
use farcore_tuning::HistogramSnapshot;

use super::balancer::Balancer;
use crate::shard::far::{Avoided, NodeId};

/// Pieces of a page in flight at once.
pub(super) const PIECES_MAX: usize = 4;
/// Damaged pieces that wait to be mended, at most. One that finds no place is found again when it
/// is read again.
const MENDS_MAX: usize = 64;
/// How long pages are left alone that no node has room for, in nanoseconds; twice as long after
/// each pass in which none was copied, up to the longest rest: a pass looks at all pages.
pub(super) const REST_NS: u64 = 100_000_000;
const REST_NS_MAX: u64 = 5_000_000_000;
/// How long far READs are looked at for the pace, in nanoseconds.
const WINDOW_NS: u64 = 100_000_000;
/// After this time without copying, far READs are as usual again, in nanoseconds.
const NEW_NS: u64 = 1_000_000_000;
/// The longest pause after a burst, in nanoseconds: one that took long because a node did not
/// answer says nothing about links.
const PAUSE_NS_MAX: u64 = 1_000_000_000;
/// Far READs from which a percentile is taken, at least.
const READS_MIN: u64 = 100;

/// What is copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) page: u32,
    /// The sequence number of its last flush: of another one, the bytes are others.
    pub(super) sequence: u64,
    /// The copy that is mended; `None` if a copy is added.
    pub(super) mends: Option<NodeId>,
    /// The node whose copy the added one replaces, to lie on an emptier node.
    pub(super) replaces: Option<NodeId>,
    /// The copy that was seen to be good, of one that is mended.
    pub(super) source: Option<NodeId>,
    /// Bytes of the page.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A task that has begun.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) task: Task,
    /// The first byte that was not read.
    pub(super) next: usize,
    /// Copies that it is not read from.
    pub(super) avoided: Avoided,
    pub(super) failed: bool,
}

/// How far a piece is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Reading,
    /// Read, and not posted.
    Read,
    Writing,
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) landing: Landing,
    pub(super) start: usize,
    pub(super) bytes: u32,
    pub(super) stage: Stage,
}

/// A page that has left an extent, which READs that were posted before may still name.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) page: u32,
    /// The buffer of a READ that completes after them, once it is posted.
    pub(super) landing: Option<Landing>,
}

/// Makes copies again, a page at a time.
#[derive(Debug)]
pub(in crate::shard) struct Copier {
    pub(super) job: Option<Job>,
    pub(super) pieces: [Option<Piece>; PIECES_MAX],
    pub(super) mends: VecDeque<Task>,
    /// The page that was copied last, until the extent that it has left is free.
    pub(super) left: Option<Left>,
    /// The next page to look at.
    pub(super) cursor: u32,
    /// Pages since the pass over all began that lack a copy no node has room for.
    pub(super) passed_over: u32,
    /// A pass over all pages has begun.
    pub(super) is_passing: bool,
    /// Nothing is to be copied before this time, because no node has room.
    pub(super) rests_until_ns: u64,
    /// The next rest after a pass that left pages as they are.
    rest_ns: u64,
    /// When the last pass over all pages began.
    pub(super) pass_began_ns: u64,
    /// A node does not answer: after this time, the copies there count as missing.
    pub(in crate::shard) looks_for_gone_ns: Option<u64>,
    pub(super) pace: Pace,
    pub(in crate::shard) balancer: Balancer,
}

impl Copier {
    /// Copies for a share of the time, in percent.
    pub(in crate::shard) fn new(percent: u8) -> Self {
        Self {
            job: None,
            pieces: [const { None }; PIECES_MAX],
            mends: VecDeque::new(),
            left: None,
            cursor: 0,
            passed_over: 0,
            is_passing: false,
            rests_until_ns: 0,
            rest_ns: REST_NS,
            pass_began_ns: 0,
            looks_for_gone_ns: None,
            pace: Pace::new(percent),
            balancer: Balancer::new(),
        }
    }

    /// Notes a task that mends a copy.
    pub(super) fn note_mend(&mut self, task: Task) {
        let place = |task: &Task| (task.page, task.start, task.mends);
        let is_known = |known: &Task| place(known) == place(&task);
        if self.mends.len() < MENDS_MAX && !self.mends.iter().any(is_known) {
            self.mends.push_back(task);
        }
    }

    /// A node may have room now, or other pages lack copies.
    pub(in crate::shard) fn rest_no_more(&mut self) {
        (self.rests_until_ns, self.rest_ns) = (0, REST_NS);
    }

    /// A pass over all pages may begin, if some may lack copies.
    pub(super) fn may_pass(&self, has_short: bool, now_ns: u64) -> bool {
        let is_gone = self
            .looks_for_gone_ns
            .is_some_and(|gone_ns| now_ns > gone_ns);
        has_short && now_ns >= self.rests_until_ns || is_gone
    }

    /// A page was given a copy: nodes have room.
    pub(super) fn note_copied(&mut self) {
        self.rest_ns = REST_NS;
    }

    /// A pass has left pages as they are, since no node had room for them.
    pub(super) fn rest(&mut self, now_ns: u64) {
        self.rests_until_ns = now_ns + self.rest_ns;
        self.rest_ns = (self.rest_ns * 2).min(REST_NS_MAX);
    }

    /// Another node joins at the position of one that has left: its copies need no mending.
    pub(in crate::shard) fn forget_node(&mut self, node: NodeId) {
        let is_of = |task: &Task| task.mends == Some(node) || task.source == Some(node);
        self.mends.retain(|task| !is_of(task));
    }

    /// A copy is to be mended.
    pub(super) fn has_mends(&self) -> bool {
        !self.mends.is_empty()
    }

    /// No page is being copied, moved or looked for, and no copy is to be mended.
    pub(in crate::shard) fn is_idle(&self) -> bool {
        let has_job = self.job.is_some() || self.left.is_some();
        !has_job && self.mends.is_empty() && !self.is_passing
    }

    /// The page that is being copied, or that has just been.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn page(&self) -> Option<u32> {
        let job = self.job.as_ref().map(|job| job.task.page);
        job.or(self.left.as_ref().map(|left| left.page))
    }

    /// Bytes of the buffers that hold pieces.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn landing_bytes(&self) -> u64 {
        let pieces = self.pieces.iter().flatten().map(|piece| &piece.landing);
        let left = self.left.as_ref().and_then(|left| left.landing.as_ref());
        let landings = pieces.chain(left);
        landings.map(|landing| u64::from(landing.bytes())).sum()
    }
}

/// How much of the time is spent copying: after each burst of pieces comes a pause that is as many
/// times as long. So a burst that takes longer, because links are busy, makes the pause longer.
#[derive(Debug)]
pub(super) struct Pace {
    percent_max: u64,
    percent: u64,
    burst_ns: Option<u64>,
    pub(super) resumes_ns: u64,
    /// The 99th percentile of far READs before copying began.
    usual_ns: u64,
    seen: Box<HistogramSnapshot>,
    window_ends_ns: u64,
    used_ns: Option<u64>,
}

impl Pace {
    fn new(percent: u8) -> Self {
        let percent = u64::from(percent).clamp(1, 100);
        Self {
            percent_max: percent,
            percent,
            burst_ns: None,
            resumes_ns: 0,
            usual_ns: 0,
            seen: Box::default(),
            window_ends_ns: 0,
            used_ns: None,
        }
    }

    /// Something is copied or looked for. It begins anew if that is long ago.
    pub(super) fn note_use(&mut self, now_ns: u64, reads: impl FnOnce() -> HistogramSnapshot) {
        let used_ns = self.used_ns.replace(now_ns);
        if used_ns.is_none_or(|used_ns| now_ns > used_ns + NEW_NS) {
            self.begin(reads(), now_ns);
        }
    }

    /// Copying begins, after far READs as these.
    fn begin(&mut self, reads: HistogramSnapshot, now_ns: u64) {
        self.percent = self.percent_max;
        self.usual_ns = reads.percentile(99.0);
        *self.seen = reads;
        self.window_ends_ns = now_ns + WINDOW_NS;
    }

    /// A piece is posted.
    pub(super) fn posted(&mut self, now_ns: u64) {
        self.burst_ns.get_or_insert(now_ns);
    }

    /// All pieces of a burst have completed.
    pub(super) fn burst_done(&mut self, now_ns: u64) {
        if let Some(begun_ns) = self.burst_ns.take() {
            let took_ns = now_ns.saturating_sub(begun_ns);
            let pause_ns = took_ns * (100 - self.percent) / self.percent;
            self.resumes_ns = now_ns + pause_ns.min(PAUSE_NS_MAX);
        }
    }

    /// True if the far READs of a window are to be looked at.
    pub(super) fn is_window_over(&self, now_ns: u64) -> bool {
        now_ns >= self.window_ends_ns
    }

    /// Halves the share while far READs take more than twice as long as before copying began, and
    /// doubles it again when they do not.
    pub(super) fn look(&mut self, reads: HistogramSnapshot, now_ns: u64) {
        let window = reads.since(&self.seen);
        let is_slow = window.percentile(99.0) > 2 * self.usual_ns.max(1);
        let is_known = window.count() >= READS_MIN && self.seen.count() >= READS_MIN;
        self.percent = match is_slow && is_known {
            true => (self.percent / 2).max(1),
            false => (self.percent * 2).min(self.percent_max),
        };
        *self.seen = reads;
        self.window_ends_ns = now_ns + WINDOW_NS;
    }
}

#[cfg(test)]
mod tests {
    use farcore_tuning::Histogram;

    use super::*;

    #[test]
    fn a_pause_follows_each_burst_and_slow_reads_lengthen_it() {
        let reads = Histogram::default();
        reads.record_n(10_000, 1_000);
        let mut pace = Pace::new(20);
        pace.begin(reads.snapshot(), 0);
        let pause = |pace: &mut Pace, now_ns| {
            pace.posted(now_ns);
            pace.posted(now_ns + 10);
            pace.burst_done(now_ns + 1_000);
            pace.resumes_ns - now_ns - 1_000
        };
        assert_eq!(pause(&mut pace, 0), 4_000);
        assert!(!pace.is_window_over(WINDOW_NS - 1) && pace.is_window_over(WINDOW_NS));
        reads.record_n(50_000, 1_000);
        pace.look(reads.snapshot(), WINDOW_NS);
        assert_eq!(pause(&mut pace, WINDOW_NS), 9_000);
        for _ in 0..9 {
            reads.record_n(50_000, 1_000);
            pace.look(reads.snapshot(), WINDOW_NS);
        }
        assert_eq!(pause(&mut pace, 0), 99_000, "it never stops");
        for _ in 0..9 {
            reads.record_n(10_000, 1_000);
            pace.look(reads.snapshot(), WINDOW_NS);
        }
        assert_eq!(pause(&mut pace, 0), 4_000);
        pace.posted(0);
        pace.burst_done(20 * PAUSE_NS_MAX);
        assert_eq!(pace.resumes_ns, 21 * PAUSE_NS_MAX, "a node did not answer");
    }

    #[test]
    fn few_reads_say_nothing_of_the_pace() {
        let reads = Histogram::default();
        reads.record_n(10_000, 1_000);
        let mut pace = Pace::new(50);
        pace.begin(reads.snapshot(), 0);
        reads.record_n(1_000_000, READS_MIN - 1);
        pace.look(reads.snapshot(), WINDOW_NS);
        assert_eq!(pace.percent, 50);
    }
}
