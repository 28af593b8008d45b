//! The figures of `cache`, in the form that `--json` writes, and their table.

use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

use super::settings::Part;
use crate::failures;
use crate::series::{Faults, Measured, SeriesReport, faults_of};

/// Everything that the command measured: a run a trace, or a round of puts.
pub type CacheReport = SeriesReport<Run>;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was measured.
    pub part: Part,
    /// The figures of a trace; left out for puts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// The figures of puts; left out for a trace, and where the run ended before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub puts: Option<Puts>,
    /// What went wrong.
    #[serde(flatten)]
    pub faults: Faults,
}

/// A trace of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// Gets that were answered.
    pub gets: u64,
    /// Those that found their key absent.
    pub misses: u64,
    /// Keys that were there at the end.
    pub records: u64,
    /// Records that were evicted.
    pub evicted: u64,
    /// Records that compaction moved.
    pub moved: u64,
    /// The length of the replay.
    pub seconds: f64,
}

/// Puts a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Puts {
    /// With far memory that holds all records.
    pub fitting_per_second: f64,
    /// With the plan's far memory, from which records are evicted.
    pub evicting_per_second: f64,
}

impl Run {
    /// A run without figures.
    #[must_use]
    pub fn of(part: Part) -> Self {
        Self {
            part,
            replay: None,
            puts: None,
            faults: Faults::default(),
        }
    }
}

impl Measured for Run {
    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn is_empty(&self) -> bool {
        let is_replayed = self.replay.is_some_and(|replay| replay.gets > 0);
        self.faults.partial && !is_replayed && self.puts.is_none()
    }
}

/// The table: a row a trace or a round; and a line of faults.
#[must_use]
pub fn render(runs: &[Run]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let is_puts = |run: &Run| matches!(run.part, Part::Puts { .. });
    if runs.iter().any(is_puts) {
        table.set_header(["round", "Mputs/s, all fits", "Mputs/s, evicting", "ratio"]);
    } else {
        let header = [
            "trace",
            "records held",
            "miss ratio",
            "moved a miss",
            "Mops/s",
        ];
        table.set_header(header);
    }
    for run in runs.iter().filter(|run| !run.is_empty()) {
        table.add_row(cells(run));
    }
    let (wrong, errors) = faults_of(runs);
    let faults = failures::faults(wrong, &errors);
    format!("{table}\n{faults}")
}

fn cells(run: &Run) -> Vec<String> {
    let partial = run.faults.mark();
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    let mut cells = match run.part {
        Part::Trace(shape) => vec![format!("{}{partial}", shape.name())],
        Part::Puts { round, .. } => vec![format!("{round}{partial}")],
    };
    if let Some(replay) = run.replay {
        let seconds = replay.seconds.max(f64::MIN_POSITIVE);
        cells.extend([
            replay.records.to_string(),
            format!("{:.4}", share(replay.misses, replay.gets)),
            format!("{:.2}", share(replay.moved, replay.misses)),
            format!("{:.2}", replay.gets as f64 / seconds / 1e6),
        ]);
    }
    if let Some(puts) = run.puts {
        let (fitting, evicting) = (puts.fitting_per_second, puts.evicting_per_second);
        cells.extend([
            format!("{:.3}", fitting / 1e6),
            format!("{:.3}", evicting / 1e6),
            format!("{:.3}", evicting / fitting),
        ]);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::ErrorCounts;
    use crate::trace::made::Shape;

    #[test]
    fn the_table_has_every_run_with_figures_and_all_faults() {
        let replay = Replay {
            gets: 1000,
            misses: 250,
            seconds: 0.001,
            ..Replay::default()
        };
        let mut run = Run {
            replay: Some(replay),
            ..Run::of(Part::Trace(Shape::Scan))
        };
        run.faults.errors = ErrorCounts::from([("FarFull".into(), 2)]);
        let mut cut = run.clone();
        (cut.faults.partial, cut.faults.wrong_values) = (true, 1);
        let mut nothing = Run::of(Part::Trace(Shape::Zipf08));
        nothing.faults.partial = true;
        let text = render(&[run, cut, nothing]);
        assert!(
            text.contains("| scan ") && text.contains("0.2500"),
            "{text}"
        );
        assert!(text.contains("| scan (partial) "), "{text}");
        assert!(!text.contains("zipf-0.8"), "{text}");
        let last = text.lines().last().unwrap();
        assert_eq!(last, "wrong values: 1, errors: 4 (4 FarFull)");
    }

    #[test]
    fn puts_are_compared_within_their_round() {
        let part = Part::Puts {
            round: 3,
            fitting_bytes: 1,
        };
        let run = Run {
            puts: Some(Puts {
                fitting_per_second: 2e6,
                evicting_per_second: 1e6,
            }),
            ..Run::of(part)
        };
        let mut cut = Run::of(part);
        cut.faults.partial = true;
        let text = render(&[run, cut]);
        assert!(text.contains("0.500"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
