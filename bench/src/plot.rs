//! The plots: throughput by phase and latency percentiles by phase, as SVG. The axes are
//! logarithmic, because the engines are orders of magnitude apart.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use farcore_command::colours::COLOURS;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::report::{PhaseReport, RunReport};
use crate::table::nanoseconds;

const WIDTH: u32 = 1100;
const PANEL_HEIGHT: u32 = 420;
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Width of the legend beside the bars, in groups.
const LEGEND_GROUPS: f64 = 1.6;

type Coordinates = Cartesian2d<RangedCoordf64, LogCoord<f64>>;

type Percentile = (&'static str, fn(&PhaseReport) -> u64);

const PERCENTILES: [Percentile; 3] = [
    ("p50", |phase| phase.p50_ns),
    ("p99", |phase| phase.p99_ns),
    ("p99.9", |phase| phase.p999_ns),
];

/// A row of grouped bars.
struct Bars<'a> {
    title: &'a str,
    unit: &'a str,
    label: fn(f64) -> String,
}

/// Writes the plots into a folder, which is created; returns the files.
///
/// # Errors
/// The folder or a file could not be written.
pub fn write(folder: &Path, runs: &[RunReport]) -> anyhow::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    let (throughput, latency) = (folder.join("throughput.svg"), folder.join("latency.svg"));
    throughput_plot(&throughput, runs)
        .map_err(|error| anyhow!("{}", unwritten(&throughput, &*error)))?;
    latency_plot(&latency, runs).map_err(|error| anyhow!("{}", unwritten(&latency, &*error)))?;
    Ok(vec![throughput, latency])
}

/// Why a plot could not be written, without the words of the library about its layers.
pub(crate) fn unwritten(file: &Path, error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let why = text.trim_start_matches("backend error: ");
    let why = why.trim_start_matches("Drawing backend error: ");
    format!("{} cannot be written: {why}", file.display())
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn throughput_plot(file: &Path, runs: &[RunReport]) -> Drawn {
    let root = SVGBackend::new(file, (WIDTH, PANEL_HEIGHT + 40)).into_drawing_area();
    root.fill(&WHITE)?;
    let bars = Bars {
        title: "Throughput by phase",
        unit: "Mops/s",
        label: plain,
    };
    panel(&root, runs, &bars, |phase| phase.mops)?;
    root.present()?;
    Ok(())
}

fn latency_plot(file: &Path, runs: &[RunReport]) -> Drawn {
    let root = SVGBackend::new(file, (WIDTH, PANEL_HEIGHT * 3)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (name, of)) in root
        .split_evenly((PERCENTILES.len(), 1))
        .iter()
        .zip(PERCENTILES)
    {
        let title = format!("Latency by phase, {name}");
        let bars = Bars {
            title: &title,
            unit: "submit to answer",
            label: time,
        };
        panel(area, runs, &bars, |phase| of(phase) as f64)?;
    }
    root.present()?;
    Ok(())
}

/// Draws groups of bars: a group for each phase, a bar for each engine.
fn panel(
    area: &Area<'_>,
    runs: &[RunReport],
    bars: &Bars<'_>,
    value: impl Fn(&PhaseReport) -> f64,
) -> Drawn {
    let phases = runs.first().map_or(&[][..], |run| &run.phases);
    let values = || {
        runs.iter()
            .flat_map(|run| &run.phases)
            .map(&value)
            .filter(|&v| v > 0.0)
    };
    let (least, most) = (
        values().fold(f64::MAX, f64::min),
        values().fold(0.0, f64::max),
    );
    if phases.is_empty() || most <= 0.0 {
        return Ok(());
    }
    // Whole decades, so that the axis has marks at both ends.
    let floor = 10_f64.powf((least * 0.7).log10().floor());
    let top = 10_f64.powf((most * 1.3).log10().ceil());
    let groups = phases.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(bars.title, (FONT, 22))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..groups + LEGEND_GROUPS, (floor..top).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc(bars.unit)
        .y_label_formatter(&|v| (bars.label)(*v))
        .label_style((FONT, 14))
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    let width = 0.8 / runs.len() as f64;
    for ((nth, run), colour) in runs.iter().enumerate().zip(COLOURS.iter().cycle()) {
        let bar = |(group, phase): (usize, &PhaseReport)| {
            let left = group as f64 + 0.1 + nth as f64 * width;
            let corners = [
                (left, floor),
                (left + width * 0.92, value(phase).max(floor)),
            ];
            Rectangle::new(corners, colour.filled())
        };
        chart
            .draw_series(run.phases.iter().enumerate().map(bar))?
            .label(&run.engine)
            .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 14))
        .draw()?;
    name_phases(area, &chart, phases, floor)
}

/// Writes the names of the phases under the middle of their groups, not at the axis's marks.
fn name_phases(
    area: &Area<'_>,
    chart: &ChartContext<'_, SVGBackend<'_>, Coordinates>,
    phases: &[PhaseReport],
    floor: f64,
) -> Drawn {
    let style =
        TextStyle::from((FONT, 14).into_font()).pos(plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Center,
            plotters::style::text_anchor::VPos::Top,
        ));
    let origin = area.get_base_pixel();
    for (group, phase) in phases.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(group as f64 + 0.5, floor));
        area.draw_text(&phase.name, &style, (x - origin.0, y - origin.1 + 8))?;
    }
    Ok(())
}

fn plain(value: f64) -> String {
    format!("{value}")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive time"
)]
fn time(value: f64) -> String {
    nanoseconds(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_name_engines_and_phases() {
        let phase = |name: &str, mops| PhaseReport {
            name: name.into(),
            mops,
            p50_ns: 100,
            p99_ns: 2_000,
            p999_ns: 3_000_000,
            ..Default::default()
        };
        let run = |engine: &str, mops| RunReport {
            engine: engine.into(),
            phases: vec![phase("write", mops), phase("hot", mops * 2.0)],
            ..Default::default()
        };
        let folder = std::env::temp_dir().join(format!("farcore-plot-{}", std::process::id()));
        let files = write(&folder, &[run("one", 0.5), run("two", 20.0)]).unwrap();
        for file in &files {
            let text = fs::read_to_string(file).unwrap();
            for word in ["one", "two", "write", "hot"] {
                assert!(
                    text.contains(word),
                    "{word} is missing in {}",
                    file.display()
                );
            }
        }
        assert_eq!((files.len(), write(&folder, &[]).unwrap().len()), (2, 2));
        fs::remove_dir_all(folder).unwrap();
    }
}
