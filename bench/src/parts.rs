//! The parts of the contest that its rules time, in seconds: writing and reading, deleting, the hot
//! mix.

use crate::phase::Phase;
use crate::plan::Plan;
use crate::report::RunReport;

/// A part with the phases that it consists of.
const PARTS: [(&str, &[Phase]); 3] = [
    (
        "write and read",
        &[
            Phase::Write,
            Phase::Verify,
            Phase::Rewrite,
            Phase::Verify2,
            Phase::Update,
            Phase::Verify3,
        ],
    ),
    (
        "delete",
        &[
            Phase::Delete,
            Phase::Absent,
            Phase::Reinsert,
            Phase::Verify4,
        ],
    ),
    ("hot", &[Phase::Hot]),
];

/// The seconds of each part that a run has begun, in words; `None` for plans that are not by the
/// rules.
#[must_use]
pub fn describe(plan: &Plan, run: &RunReport) -> Option<String> {
    if !plan.by_rules {
        return None;
    }
    let parts: Vec<String> = PARTS
        .iter()
        .filter_map(|(name, phases)| {
            let of_part = |name: &str| phases.iter().any(|phase| phase.name() == name);
            let measured = run.phases.iter().filter(|phase| of_part(&phase.name));
            let seconds: Vec<f64> = measured.map(|phase| phase.seconds).collect();
            (!seconds.is_empty()).then(|| format!("{name} {:.2}", seconds.iter().sum::<f64>()))
        })
        .collect();
    let is_partial = if run.partial { ", partial" } else { "" };
    Some(format!(
        "{}, seconds: {}, in all {:.2}{is_partial}",
        run.engine,
        parts.join(", "),
        run.total_seconds
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::CONTEST;
    use crate::plan::Scenario;
    use crate::plan::tests::plan_of;
    use crate::report::PhaseReport;
    use crate::skew::Skew;

    fn plan(by_rules: bool) -> Plan {
        Plan {
            by_rules,
            ..plan_of(Scenario::Contest {
                hot_ops: 1,
                skew: Skew::default(),
            })
        }
    }

    #[test]
    fn every_phase_of_the_contest_is_in_one_part() {
        for phase in CONTEST {
            let parts = PARTS.iter().filter(|(_, phases)| phases.contains(&phase));
            assert_eq!(parts.count(), 1, "{}", phase.name());
        }
    }

    #[test]
    fn seconds_of_phases_add_up() {
        let phases = CONTEST.map(|phase| PhaseReport {
            name: phase.name().to_owned(),
            seconds: 1.5,
            ..PhaseReport::default()
        });
        let mut run = RunReport {
            engine: "farcore".into(),
            phases: phases.to_vec(),
            total_seconds: 16.5,
            ..RunReport::default()
        };
        assert_eq!(describe(&plan(false), &run), None);
        assert_eq!(
            describe(&plan(true), &run).unwrap(),
            "farcore, seconds: write and read 9.00, delete 6.00, hot 1.50, in all 16.50"
        );
        run.phases.truncate(7);
        run.partial = true;
        let partial = describe(&plan(true), &run).unwrap();
        assert!(partial.contains("delete 1.50, in all") && partial.ends_with("partial"));
        assert!(!partial.contains("hot"), "{partial}");
    }
}
