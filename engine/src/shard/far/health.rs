//! The health of memory nodes: which queue pairs of a shard fail, and when background work retries
//! them.
//!
//! Requests always try, so their client learns the outcome at once. Flush and compaction, for which
//! no client waits, leave a queue pair alone for a while after a failure, and count a node as
//! silent that fails again and again. A node that is silent for long is gone: of several copies,
//! those there count as missing, and it is given no other ones.
//!
//! - I1: a bit of `troubled` is set exactly while its queue pair has failed since it last
//!   succeeded.
//! - I2: a bit of `doubtful` is set exactly while the last known outcome at its node, on either
//!   queue pair, is a failure.

use super::extents::{NODES_MAX, NodeId, QUEUES_PER_NODE, Queue};

/// Failures in a row after which a queue pair counts as silent.
const FAILURES_MAX: u32 = 8;
/// How long a node does not answer before its copies count as missing, in nanoseconds.
pub(in crate::shard) const GONE_NS: u64 = 10_000_000_000;
/// How long background work leaves a queue pair alone after a failure, in nanoseconds.
pub(in crate::shard) const RETRY_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    /// Failures in a row.
    failures: u32,
    retry_ns: u64,
    /// When the first of them was.
    since_ns: u64,
}

/// The health of a shard's queue pairs.
#[derive(Debug)]
pub(in crate::shard) struct Health {
    queues: Vec<Trouble>,
    troubled: u128,
    /// A bit for each node.
    doubtful: u64,
}

const _: () = assert!(NODES_MAX <= u64::BITS as usize);

impl Health {
    /// No failure so far.
    pub(in crate::shard) fn new(nodes: usize) -> Self {
        Self {
            queues: vec![Trouble::default(); nodes * QUEUES_PER_NODE],
            troubled: 0,
            doubtful: 0,
        }
    }

    /// True while no queue pair is troubled: successes then need not be noted.
    #[inline]
    pub(in crate::shard) fn is_good(&self) -> bool {
        self.troubled == 0
    }

    /// Notes that a work request succeeded.
    pub(in crate::shard) fn succeeded(&mut self, queue: Queue) {
        self.queues[queue.index()] = Trouble::default();
        self.troubled &= !queue.bit();
        self.doubtful &= !(1 << queue.node().position());
    }

    /// Notes that a work request failed. Requests flushed behind it are not counted.
    pub(in crate::shard) fn failed(&mut self, queue: Queue, flushed: bool, now_ns: u64) {
        let trouble = &mut self.queues[queue.index()];
        if trouble.failures == 0 {
            trouble.since_ns = now_ns;
        }
        if !flushed || trouble.failures == 0 {
            trouble.failures = trouble.failures.saturating_add(1);
        }
        trouble.retry_ns = now_ns + RETRY_NS;
        self.troubled |= queue.bit();
        self.doubtful |= 1 << queue.node().position();
    }

    /// Notes that a queue pair is down and cannot be renewed now.
    pub(in crate::shard) fn is_down(&mut self, queue: Queue, now_ns: u64) {
        let trouble = &mut self.queues[queue.index()];
        if trouble.failures == 0 {
            trouble.since_ns = now_ns;
        }
        trouble.failures = trouble.failures.max(FAILURES_MAX);
        trouble.retry_ns = now_ns + RETRY_NS;
        self.troubled |= queue.bit();
        self.doubtful |= 1 << queue.node().position();
    }

    /// True while it is unknown whether a node still holds its extents.
    pub(in crate::shard) fn is_doubtful(&self, node: NodeId) -> bool {
        self.doubtful & 1 << node.position() != 0
    }

    /// When a node is gone, or will be if it goes on as it does; `None` while it answers.
    pub(in crate::shard) fn gone_at_ns(&self, node: NodeId) -> Option<u64> {
        let queues = [node.reads(), node.writes()].into_iter();
        let silent = queues.filter(|&queue| self.is_silent(queue));
        let since_ns = silent.map(|queue| self.queues[queue.index()].since_ns);
        since_ns.min().map(|since_ns| since_ns + GONE_NS)
    }

    /// True once a node has not answered for long.
    pub(in crate::shard) fn is_gone(&self, node: NodeId, now_ns: u64) -> bool {
        self.gone_at_ns(node)
            .is_some_and(|gone_ns| now_ns > gone_ns)
    }

    /// Forgets what is known of a position's node: another one may join there.
    pub(in crate::shard) fn forget(&mut self, node: NodeId) {
        for queue in [node.reads(), node.writes()] {
            self.succeeded(queue);
        }
    }

    /// A node answers again: its failures so far are counted no more.
    pub(in crate::shard) fn answers(&mut self, node: NodeId) {
        for queue in [node.reads(), node.writes()] {
            self.queues[queue.index()].failures = 0;
        }
    }

    /// Has all queue pairs tried as if they had failed a little less often: nodes are back.
    pub(in crate::shard) fn forgive(&mut self) {
        for trouble in &mut self.queues {
            trouble.failures = trouble.failures.min(FAILURES_MAX - 1);
        }
    }

    /// True while a queue pair fails again and again.
    pub(in crate::shard) fn is_silent(&self, queue: Queue) -> bool {
        self.queues[queue.index()].failures >= FAILURES_MAX
    }

    /// True if a queue pair has not failed lately.
    pub(in crate::shard) fn is_rested(&self, queue: Queue, now_ns: u64) -> bool {
        self.troubled & queue.bit() == 0 || now_ns >= self.queues[queue.index()].retry_ns
    }

    /// True if background work may use a queue pair now.
    pub(in crate::shard) fn may_try(&self, queue: Queue, now_ns: u64) -> bool {
        !self.is_silent(queue) || self.is_rested(queue, now_ns)
    }

    /// Lets background work retry everything at once, because a caller requested it.
    pub(in crate::shard) fn try_again(&mut self, queue: impl Fn(NodeId) -> Queue) {
        for node in (0..self.queues.len() / QUEUES_PER_NODE).map(NodeId::new) {
            self.queues[queue(node).index()].retry_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_is_silent_until_it_succeeds() {
        let mut health = Health::new(2);
        let (bad, good) = (NodeId::new(0).writes(), NodeId::new(1).reads());
        for failure in 0..FAILURES_MAX {
            assert!(!health.is_silent(bad) && health.may_try(bad, 5));
            health.failed(bad, false, 5);
            // Requests flushed behind it do not count.
            health.failed(bad, true, 5);
            assert!(!health.is_rested(bad, 5), "{failure}");
        }
        assert!(health.is_silent(bad) && !health.may_try(bad, 5 + RETRY_NS - 1));
        assert!(health.may_try(bad, 5 + RETRY_NS));
        assert!(health.may_try(good, 5) && !health.is_silent(good));
        health.try_again(NodeId::writes);
        assert!(health.may_try(bad, 5) && health.is_silent(bad));
        assert!(!health.is_good());
        assert!(health.is_doubtful(bad.node()) && !health.is_doubtful(good.node()));
        // A success on either queue pair shows that the node answers.
        health.succeeded(bad.node().reads());
        assert!(!health.is_doubtful(bad.node()) && health.is_silent(bad));
        health.succeeded(bad);
        assert!(health.is_good() && !health.is_silent(bad));
        health.is_down(good, 5);
        assert!(health.is_silent(good) && !health.may_try(good, 6));
    }
}
