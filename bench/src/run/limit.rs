//! The time limit of a run: it begins with the first phase, so opening the engine does not count.
//!
//! I1: a run that is past its limit ends its phase once the requests in flight are answered, and
//!     begins no other one.

use std::time::Duration;

use farcore_tuning::Clock;

use crate::phase::Phase;
use crate::plan::Plan;

/// The limit of one run.
#[derive(Debug)]
pub(super) struct Limit<'a> {
    clock: &'a Clock,
    limit_ns: Option<u64>,
    end_ns: Option<u64>,
}

impl<'a> Limit<'a> {
    /// The limit of a plan, which has not begun.
    pub(super) fn of(plan: &Plan, clock: &'a Clock) -> Self {
        Self {
            clock,
            limit_ns: plan.time_limit_ns,
            end_ns: None,
        }
    }

    /// A phase begins; the first one starts the time.
    pub(super) fn begin(&mut self) {
        let end_ns = || Some(self.clock.now_ns().saturating_add(self.limit_ns?));
        self.end_ns = self.end_ns.or_else(end_ns);
    }

    /// Whether the time has passed.
    pub(super) fn is_over(&self) -> bool {
        self.end_ns
            .is_some_and(|end_ns| self.clock.now_ns() >= end_ns)
    }

    /// A wait of this length, or of a millisecond at least until the time has passed.
    pub(super) fn within(&self, wait: Duration) -> Duration {
        let left = |end_ns: u64| Duration::from_nanos(end_ns.saturating_sub(self.clock.now_ns()));
        match self.end_ns {
            Some(end_ns) if !self.is_over() => wait.min(left(end_ns)).max(Duration::from_millis(1)),
            _ => wait,
        }
    }

    /// What a run that ended in a phase has not done.
    pub(super) fn unfinished(&self, plan: &Plan, phase: Phase, done: u64, steps: u64) -> String {
        let limit = Duration::from_nanos(self.limit_ns.unwrap_or(0));
        let limit = humantime::format_duration(limit);
        let later = plan.phases().iter().skip_while(|&&other| other != phase);
        let later: Vec<&str> = later.skip(1).map(|phase| phase.name()).collect();
        let mut unfinished = Vec::new();
        if done < steps {
            unfinished.push(format!("{} ({done} of {steps} requests)", phase.name()));
        }
        if !later.is_empty() {
            unfinished.push(format!("{} (not begun)", later.join(", ")));
        }
        format!(
            "the time limit of {limit} has passed; unfinished: {}",
            unfinished.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Scenario;
    use crate::plan::tests::plan_of;
    use crate::skew::Skew;

    fn plan(time_limit_ns: Option<u64>) -> Plan {
        Plan {
            time_limit_ns,
            ..plan_of(Scenario::Contest {
                hot_ops: 1,
                skew: Skew::default(),
            })
        }
    }

    #[test]
    fn the_time_starts_with_the_first_phase_only() {
        let clock = Clock::new();
        let plan = plan(Some(1));
        let mut limit = Limit::of(&plan, &clock);
        assert!(!limit.is_over());
        limit.begin();
        let end_ns = limit.end_ns;
        limit.begin();
        assert_eq!(limit.end_ns, end_ns);
        while clock.now_ns() <= end_ns.unwrap() {}
        assert!(limit.is_over());
    }

    #[test]
    fn without_a_limit_no_time_passes() {
        let clock = Clock::new();
        let plan = plan(None);
        let mut limit = Limit::of(&plan, &clock);
        limit.begin();
        let wait = Duration::from_secs(3);
        assert!(!limit.is_over() && limit.within(wait) == wait);
    }

    #[test]
    fn what_is_unfinished_is_named() {
        let clock = Clock::new();
        let plan = plan(Some(540_000_000_000));
        let limit = Limit::of(&plan, &clock);
        assert_eq!(
            limit.unfinished(&plan, Phase::Reinsert, 7, 10),
            "the time limit of 9m has passed; unfinished: reinsert (7 of 10 requests); \
             verify4, hot (not begun)"
        );
        assert_eq!(
            limit.unfinished(&plan, Phase::Verify4, 10, 10),
            "the time limit of 9m has passed; unfinished: hot (not begun)"
        );
        assert_eq!(
            limit.unfinished(&plan, Phase::Hot, 0, 10),
            "the time limit of 9m has passed; unfinished: hot (0 of 10 requests)"
        );
    }
}
