//! Processor events for each request of a phase, and their table. A figure that the machine does
//! not count is absent.

use comfy_table::{CellAlignment, Table, presets};
use farcore_tuning::HardwareSnapshot;
use serde::{Deserialize, Serialize};

use crate::report::RunReport;

/// Events for each request, all threads together; `None` if the machine does not count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventsPerOp {
    /// Processor cycles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_op: Option<f64>,
    /// Instructions retired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_op: Option<f64>,
    /// Mispredicted branches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch_misses_per_op: Option<f64>,
    /// Misses of the last-level cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_misses_per_op: Option<f64>,
}

impl EventsPerOp {
    /// The events of a phase of `ops` requests, for each request.
    #[must_use]
    pub fn of(events: &HardwareSnapshot, ops: u64) -> Self {
        let each = |count: Option<u64>| (ops > 0).then_some(count? as f64 / ops as f64);
        Self {
            cycles_per_op: each(events.cycles),
            instructions_per_op: each(events.instructions),
            branch_misses_per_op: each(events.branch_misses),
            cache_misses_per_op: each(events.cache_misses),
        }
    }

    /// The median of each figure, over the runs that have it.
    #[must_use]
    pub fn median<'a>(runs: impl Iterator<Item = &'a Self>) -> Self {
        let runs: Vec<&Self> = runs.collect();
        let number = |of: &dyn Fn(&Self) -> Option<f64>| {
            let mut values: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        Self {
            cycles_per_op: number(&|run| run.cycles_per_op),
            instructions_per_op: number(&|run| run.instructions_per_op),
            branch_misses_per_op: number(&|run| run.branch_misses_per_op),
            cache_misses_per_op: number(&|run| run.cache_misses_per_op),
        }
    }

    fn all(&self) -> [Option<f64>; 4] {
        [
            self.cycles_per_op,
            self.instructions_per_op,
            self.branch_misses_per_op,
            self.cache_misses_per_op,
        ]
    }
}

/// A row for each phase, four columns for each engine; `None` if nothing was counted.
#[must_use]
pub(crate) fn table(runs: &[RunReport]) -> Option<String> {
    let phases = || runs.iter().flat_map(|run| &run.phases);
    if phases().all(|phase| phase.events == EventsPerOp::default()) {
        return None;
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let mut header = vec!["a request".to_owned()];
    for run in runs {
        let names = ["cycles", "instr.", "br. misses", "LLC misses"];
        header.extend(names.map(|name| format!("{}\n{name}", run.engine)));
    }
    table.set_header(header);
    for (at, phase) in runs.first()?.phases.iter().enumerate() {
        let mut row = vec![phase.name.clone()];
        for run in runs {
            let events = run.phases.get(at).map(|phase| phase.events);
            let figure = |figure: Option<f64>| match figure {
                Some(figure) if figure >= 100.0 => format!("{figure:.0}"),
                Some(figure) => format!("{figure:.2}"),
                None => "-".to_owned(),
            };
            row.extend(events.unwrap_or_default().all().map(figure));
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    Some(table.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PhaseReport;

    fn run(cycles: Option<u64>) -> RunReport {
        let counted = HardwareSnapshot {
            cycles,
            cache_misses: cycles.map(|_| 5),
            ..HardwareSnapshot::default()
        };
        RunReport {
            engine: "one".into(),
            phases: vec![PhaseReport {
                name: "hot".into(),
                events: EventsPerOp::of(&counted, 10),
                ..PhaseReport::default()
            }],
            ..RunReport::default()
        }
    }

    #[test]
    fn counted_events_are_shown_and_others_are_left_out() {
        let text = table(&[run(Some(12_340))]).unwrap();
        assert!(
            text.contains("1234") && text.contains("0.50") && text.contains('-'),
            "{text}"
        );
        let json = serde_json::to_value(&run(Some(12_340)).phases[0]).unwrap();
        assert_eq!(json["cycles_per_op"], 1234.0);
        assert!(json.get("instructions_per_op").is_none(), "{json}");
        let back: PhaseReport = serde_json::from_value(json).unwrap();
        assert_eq!(back, run(Some(12_340)).phases[0]);
        assert_eq!(table(&[run(None)]), None);
        assert_eq!(
            EventsPerOp::of(
                &HardwareSnapshot {
                    cycles: Some(1),
                    ..Default::default()
                },
                0
            ),
            EventsPerOp::default()
        );
    }

    #[test]
    fn medians_are_of_the_runs_that_count() {
        let runs = [run(Some(30)), run(None), run(Some(10)), run(Some(20))];
        let median = EventsPerOp::median(runs.iter().map(|run| &run.phases[0].events));
        assert_eq!(
            (median.cycles_per_op, median.instructions_per_op),
            (Some(2.0), None)
        );
    }
}
