//! Another core's shard, as a reactor sees it: the answers that come from it, and its core, which
//! may sleep.

use std::sync::Arc;

use super::core_shared::CoreShared;
use super::lent_reactor::LoanOutcome;
use crate::transport::lane::AnswerConsumer;

/// Requests of one publication that a core serves itself at a shard that sleeps. More are worth
/// waking its core for: both then work at the same time.
const SERVED_ASLEEP: usize = 24;

/// Another shard: the answers that come from it, and what its core shares.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) answers: AnswerConsumer,
    core_shared: Arc<CoreShared>,
}

impl Neighbour {
    pub(super) fn new(answers: AnswerConsumer, core_shared: Arc<CoreShared>) -> Self {
        Self {
            answers,
            core_shared,
        }
    }

    /// Has requests served that were published in the lane of core `own` to the shard, if that
    /// sleeps.
    #[inline]
    pub(super) fn note_sent(&self, own: u16, count: usize) {
        if self.core_shared.command_port.wakeup.is_asleep() {
            self.serve_asleep(own, count);
        }
    }

    /// Has requests served at a shard that sleeps. A few are served here; for more its core is
    /// woken.
    #[cold]
    #[inline(never)]
    fn serve_asleep(&self, own: u16, count: usize) {
        let wakeup = &self.core_shared.command_port.wakeup;
        let lane = u8::try_from(own).ok().filter(|_| count <= SERVED_ASLEEP);
        match lane.map(|lane| (lane, self.core_shared.serve_lent(lane))) {
            Some((_, LoanOutcome::All)) => {}
            // Background work is no news to a core that finds no request: the mark keeps it awake.
            Some((lane, LoanOutcome::Part)) => wakeup.ring(lane),
            _ => wakeup.rouse(),
        }
    }
}
