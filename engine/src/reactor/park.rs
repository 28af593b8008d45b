//! Decides when a core's service takes a turn, naps, offers the core or parks: a state machine
//! without clock or executor.
//!
//! ```text
//! before a turn: another client has polled -> nap (that client serves the shard)
//! after a turn:  busy -> yield; idle -> yield, until the shard is quiet for `spin_ns` -> park
//! ```
//!
//! - I1: a core parks only if its shard is quiet and no work was done for `spin_ns`.
//! - I2: a closing core ends only after an idle turn that began when no job was left.

/// Idle turns after which the core is offered to other threads.
const IDLE_TURNS: u32 = 16;

/// What the service does before a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    /// A client has polled since the last turn: it serves the shard, and the service leaves it the
    /// core for a while.
    Nap,
    /// Takes a turn.
    Turn,
    /// A client took a turn, and the service did other work.
    Busy,
}

/// What the service does after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// Lets the other tasks of the core run.
    Yield,
    /// Offers the core to other threads, then yields: a thread that this shard waits for may need
    /// it.
    Offer,
    /// Parks until the core is woken.
    Park,
    /// The engine is closed.
    End,
}

/// What the service observed in a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnRecord {
    /// Turns of the core so far.
    pub(super) turns: u64,
    pub(super) busy: bool,
    /// The shard has nothing in progress.
    pub(super) quiet: bool,
    pub(super) now_ns: u64,
    pub(super) closing: bool,
    /// Before the turn, the engine was closing and no job was left.
    pub(super) over: bool,
}

/// The state between turns.
#[derive(Debug)]
pub(super) struct ParkPolicy {
    spin_ns: u64,
    idle_since_ns: Option<u64>,
    idle_turns: u32,
    turns: u64,
}

impl ParkPolicy {
    /// The policy of a core that spins for `spin_ns` before it parks.
    pub(super) fn new(spin_ns: u64) -> Self {
        Self {
            spin_ns,
            idle_since_ns: None,
            idle_turns: 0,
            turns: 0,
        }
    }

    /// Decides what to do first; `busy` if jobs were started.
    pub(super) fn before(&mut self, turns: u64, busy: bool, closing: bool) -> Before {
        if turns == self.turns {
            return Before::Turn;
        }
        self.turns = turns;
        if busy || closing {
            return Before::Busy;
        }
        // Task queues share the core evenly. If the service were always ready, the polling client
        // would wait as long as the service works.
        self.idle_since_ns = None;
        Before::Nap
    }

    /// Decides what to do next.
    pub(super) fn after(&mut self, seen: TurnRecord) -> After {
        self.turns = seen.turns;
        if seen.busy {
            self.idle_since_ns = None;
            self.idle_turns = 0;
            return After::Yield;
        }
        self.idle_turns += 1;
        let idle_ns = seen.now_ns - *self.idle_since_ns.get_or_insert(seen.now_ns);
        let rests = seen.quiet && idle_ns >= self.spin_ns;
        match (rests, seen.over, seen.closing) {
            (true, true, _) => After::End,
            (true, false, false) => After::Park,
            _ if self.idle_turns.is_multiple_of(IDLE_TURNS) => After::Offer,
            // Closing: other cores still run jobs, and no wakeup announces their end.
            _ => After::Yield,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: TurnRecord = TurnRecord {
        turns: 0,
        busy: false,
        quiet: true,
        now_ns: 0,
        closing: false,
        over: false,
    };

    /// An idle turn of the service itself.
    fn idle(policy: &mut ParkPolicy, turns: u64, now_ns: u64) -> After {
        assert_eq!(policy.before(turns - 1, false, false), Before::Turn);
        policy.after(TurnRecord {
            turns,
            now_ns,
            ..IDLE
        })
    }

    #[test]
    fn a_quiet_core_parks_after_it_has_spun() {
        let mut policy = ParkPolicy::new(100);
        assert_eq!(idle(&mut policy, 1, 1000), After::Yield);
        assert_eq!(idle(&mut policy, 2, 1099), After::Yield);
        assert_eq!(idle(&mut policy, 3, 1100), After::Park);
        // The turn after a wakeup: only work restarts the spin time.
        assert_eq!(idle(&mut policy, 4, 5000), After::Park);
    }

    #[test]
    fn work_restarts_the_idle_time() {
        let mut policy = ParkPolicy::new(100);
        assert_eq!(idle(&mut policy, 1, 0), After::Yield);
        let busy = TurnRecord {
            turns: 2,
            busy: true,
            now_ns: 90,
            ..IDLE
        };
        assert_eq!(policy.after(busy), After::Yield);
        assert_eq!(idle(&mut policy, 3, 150), After::Yield);
        assert_eq!(idle(&mut policy, 4, 249), After::Yield);
        assert_eq!(idle(&mut policy, 5, 250), After::Park);
    }

    #[test]
    fn a_shard_with_work_in_progress_never_parks_and_offers_the_core() {
        let mut policy = ParkPolicy::new(0);
        let mut offers = 0;
        for turn in 1..=64 {
            let seen = TurnRecord {
                turns: turn,
                quiet: false,
                now_ns: turn * 1_000_000,
                ..IDLE
            };
            match policy.after(seen) {
                After::Offer => offers += 1,
                after => assert_eq!(after, After::Yield),
            }
        }
        assert_eq!(offers, 4);
    }

    #[test]
    fn a_client_that_polls_is_left_the_core() {
        let mut policy = ParkPolicy::new(0);
        assert_eq!(policy.before(5, false, false), Before::Nap);
        assert_eq!(policy.before(5, false, false), Before::Turn);
        // No nap while jobs start or the engine closes.
        assert_eq!(policy.before(9, true, false), Before::Busy);
        assert_eq!(policy.before(12, false, true), Before::Busy);
    }

    #[test]
    fn a_closing_core_ends_once_no_job_is_left() {
        let mut policy = ParkPolicy::new(50);
        let closing = TurnRecord {
            closing: true,
            ..IDLE
        };
        assert_eq!(policy.after(closing), After::Yield);
        let later = TurnRecord {
            now_ns: 60,
            ..closing
        };
        assert_eq!(policy.after(later), After::Yield);
        assert_eq!(
            policy.after(TurnRecord {
                over: true,
                ..later
            }),
            After::End
        );
    }
}
