//! The figures of `operations`, in the form that `--json` writes, and their table.

use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use super::settings::Part;
use crate::failures;
use crate::series::{Faults, Measured, SeriesReport, faults_of};

/// Everything that the command measured: a run a part.
pub type OperationsReport = SeriesReport<Run>;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was measured.
    pub part: Part,
    /// The figures.
    pub rows: Vec<Row>,
    /// What went wrong.
    #[serde(flatten)]
    pub faults: Faults,
}

impl Run {
    /// A run without figures.
    #[must_use]
    pub fn of(part: Part) -> Self {
        Self {
            part,
            rows: Vec::new(),
            faults: Faults::default(),
        }
    }
}

impl Measured for Run {
    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn is_empty(&self) -> bool {
        self.faults.partial && self.rows.is_empty()
    }
}

/// One figure: the median over the rounds of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// How fast it was.
    pub figure: f64,
    /// The figure's unit.
    pub unit: String,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// The median of its ratios to that, each of one round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The least ratio that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_min: Option<f64>,
    /// The least figure that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure_min: Option<f64>,
}

impl Row {
    /// Whether what is wanted was reached; `None` if nothing is.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let ratio = self
            .ratio_min
            .map(|least| self.ratio.unwrap_or(0.0) >= least);
        let figure = self.figure_min.map(|least| self.figure >= least);
        ratio.or(figure)
    }
}

/// The median of some figures; `None` without any, as of a round that a signal cut short.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// The table of all runs.
#[must_use]
pub fn render(runs: &[Run]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["operation", "speed", "", "ratio", "beside", "wanted"]);
    let rows = runs
        .iter()
        .flat_map(|run| run.rows.iter().map(move |row| (run, row)));
    for (run, row) in rows {
        let partial = run.faults.mark();
        let wanted = match (row.ratio_min, row.figure_min) {
            (Some(least), _) => format!("ratio {least}"),
            (None, Some(least)) => format!("{least} {}", row.unit),
            (None, None) => String::new(),
        };
        let missed = if row.is_met() == Some(false) {
            " (missed)"
        } else {
            ""
        };
        table.add_row([
            format!("{}{partial}", row.name),
            format!("{:.2}", row.figure),
            row.unit.clone(),
            row.ratio
                .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            row.beside.clone().unwrap_or_default(),
            format!("{wanted}{missed}"),
        ]);
    }
    for column in [1, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let (wrong, errors) = faults_of(runs);
    let faults = failures::faults(wrong, &errors);
    format!("{table}\n{faults}; figures and ratios are medians of the rounds of a run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_marked() {
        let row = |figure, ratio| Row {
            name: "increment".into(),
            figure,
            unit: "Mops/s".into(),
            beside: Some("put".into()),
            ratio: Some(ratio),
            ratio_min: Some(0.9),
            figure_min: None,
        };
        let run = |rows| Run {
            rows,
            ..Run::of(Part::Requests)
        };
        assert!(!render(&[run(vec![row(9.0, 0.9)])]).contains("missed"));
        assert!(render(&[run(vec![row(9.0, 0.899)])]).contains("ratio 0.9 (missed)"));
        let scan = Row {
            figure: 9.0,
            figure_min: Some(10.0),
            ..Row::default()
        };
        assert_eq!(scan.is_met(), Some(false));
        assert_eq!(Row::default().is_met(), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
        let mut cut = run(vec![row(9.0, 0.9)]);
        cut.faults.partial = true;
        cut.faults.errors = [("FarFull".into(), 2)].into();
        let text = render(&[cut]);
        assert!(text.contains("increment (partial)"), "{text}");
        let faults = "\nwrong values: 0, errors: 2 (2 FarFull); ";
        assert!(text.contains(faults), "{text}");
    }
}
