//! One run of the part `requests`: the phases are those of a contest with one engine, and the rows
//! are medians over the rounds.

use anyhow::bail;

use super::report::{Row, Run, median};
use super::settings::Part;
use super::{collections, long, sections, sweeps};
use crate::phase::{SINGLES, Single};
use crate::plan::{Plan, Scenario};
use crate::report::PhaseReport;
use crate::run::{self, Outcome};
use crate::series::Faults;

/// Least speed of a conditional put and of an increment, as a share of a put's.
const CHANGE_RATIO_MIN: f64 = 0.9;

/// Runs a plan in this process.
///
/// # Errors
/// The engine could not be opened, or the run ended before anything was measured. A run that ended
/// later has the reason.
pub fn run(plan: &Plan) -> anyhow::Result<Run> {
    let Scenario::Operations(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    match settings.part {
        Part::Requests => requests(plan),
        Part::Scan => sweeps::scan(plan),
        Part::Export => sweeps::export(plan, settings),
        Part::Long => long::run(plan, settings),
        Part::Collections => collections::run(plan),
        Part::Sections => sections::run(plan),
    }
}

fn requests(plan: &Plan) -> anyhow::Result<Run> {
    let outcome = run::run(plan.clone())?;
    Ok(requests_of(outcome))
}

/// The run of an outcome, which may have been lost on the way.
fn requests_of(outcome: Outcome) -> Run {
    let report = outcome.report;
    Run {
        rows: SINGLES
            .iter()
            .filter_map(|&single| row(single, &report.phases))
            .collect(),
        faults: Faults {
            wrong_values: report.wrong_values,
            complaint: outcome.complaint.or(outcome.failure),
            errors: report.errors,
            partial: report.partial,
            lost: outcome.lost,
        },
        ..Run::of(Part::Requests)
    }
}

/// The row of one kind of request; `None` if a signal came before it was measured. The first round,
/// which writes the keys, does not count.
fn row(single: Single, phases: &[PhaseReport]) -> Option<Row> {
    let of = |single: Single| -> Vec<f64> {
        let phases = phases.iter().filter(|phase| phase.name == single.name());
        phases.map(|phase| phase.mops).skip(1).collect()
    };
    let own = of(single);
    let base = single.base().map(|base| (base, of(base)));
    let ratio = base.as_ref().and_then(|(_, base)| {
        let ratios = own.iter().zip(base).map(|(own, base)| own / base);
        median(ratios.collect())
    });
    let is_bound = matches!(single, Single::PutIf | Single::Increment);
    Some(Row {
        name: single.name().to_owned(),
        figure: median(own)?,
        unit: "Mops/s".to_owned(),
        beside: base.map(|(base, _)| base.name().to_owned()),
        ratio,
        ratio_min: is_bound.then_some(CHANGE_RATIO_MIN),
        figure_min: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::RunReport;
    use crate::series::Measured;

    #[test]
    fn a_lost_worker_hides_neither_figures_nor_wrong_values() {
        let phase = |mops| PhaseReport {
            name: Single::Put.name().into(),
            mops,
            ..PhaseReport::default()
        };
        let report = RunReport {
            phases: vec![phase(1.0), phase(2.0)],
            wrong_values: 3,
            errors: [("FarFull".to_owned(), 4)].into(),
            partial: true,
            ..RunReport::default()
        };
        let run = requests_of(Outcome {
            report,
            digest: 0,
            complaint: Some("one".into()),
            failure: None,
            lost: Some("a worker panicked".into()),
            unwritten: None,
            mixed: None,
        });
        assert!(run.faults.partial && !run.is_empty());
        assert_eq!((run.rows.len(), run.rows[0].figure), (1, 2.0));
        let faults = run.faults;
        assert_eq!((faults.wrong_values, faults.errors["FarFull"]), (3, 4));
        assert_eq!(faults.lost.as_deref(), Some("a worker panicked"));
        assert_eq!(faults.complaint.as_deref(), Some("one"));
    }

    #[test]
    fn ratios_are_those_of_one_round() {
        let phase = |single: Single, mops| PhaseReport {
            name: single.name().into(),
            mops,
            ..PhaseReport::default()
        };
        let phases = [
            phase(Single::Put, 1.0),
            phase(Single::PutIf, 100.0),
            phase(Single::Put, 10.0),
            phase(Single::PutIf, 9.0),
            phase(Single::Put, 5.0),
            phase(Single::PutIf, 4.0),
            phase(Single::Put, 20.0),
            phase(Single::PutIf, 19.0),
        ];
        let row = row(Single::PutIf, &phases).unwrap();
        assert_eq!((row.figure, row.ratio), (9.0, Some(0.9)));
        assert_eq!(row.is_met(), Some(true));
        // The first round alone.
        assert!(super::row(Single::PutIf, &phases[..2]).is_none());
    }
}
