//! The plot of `embed`: for each caller the rate and the p99 over the number of callers, a line for
//! each engine. All axes are logarithmic.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use farcore_command::colours::COLOURS;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::{EmbedReport, Row};
use super::settings::{Caller, Subject};
use crate::plot::unwritten;
use crate::table::nanoseconds;

const PANEL_WIDTH: u32 = 620;
const PANEL_HEIGHT: u32 = 340;
const FONT: &str = "sans-serif";
const FILE: &str = "embed.svg";
/// Width of the legend, as a share of that of the lines.
const LEGEND_SHARE: f64 = 0.45;

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What a panel shows.
struct Figure {
    name: &'static str,
    of: fn(&Row) -> f64,
    label: fn(f64) -> String,
}

const FIGURES: [Figure; 2] = [
    Figure {
        name: "Mops/s",
        of: |row| row.mops.median,
        label: plain,
    },
    Figure {
        name: "p99",
        of: |row| row.p99_ns.median,
        label: time,
    },
];

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

/// Writes the plot into a folder; returns the file.
///
/// # Errors
/// The file could not be written.
pub(super) fn write(folder: &Path, report: &EmbedReport) -> anyhow::Result<PathBuf> {
    let file = folder.join(FILE);
    draw(&file, report).map_err(|error| anyhow!("{}", unwritten(&file, &*error)))?;
    Ok(file)
}

fn draw(file: &Path, report: &EmbedReport) -> Drawn {
    let mut callers: Vec<Caller> = report.crowds().iter().map(|crowd| crowd.caller).collect();
    callers.dedup();
    let height = PANEL_HEIGHT * u32::try_from(callers.len().max(1))?;
    let root = SVGBackend::new(file, (PANEL_WIDTH * 2, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let areas = root.split_evenly((callers.len().max(1), FIGURES.len()));
    let panels = callers
        .iter()
        .flat_map(|&caller| FIGURES.iter().map(move |figure| (caller, figure)));
    for (area, (caller, figure)) in areas.iter().zip(panels) {
        panel(area, report, caller, figure)?;
    }
    root.present()?;
    Ok(())
}

/// The points of an engine.
fn points(
    report: &EmbedReport,
    engine: Subject,
    caller: Caller,
    figure: &Figure,
) -> Vec<(f64, f64)> {
    let crowds = report.crowds();
    let rows = crowds
        .iter()
        .filter(|crowd| crowd.caller == caller)
        .filter_map(|crowd| report.row(engine, caller, crowd.count));
    let mut points: Vec<(f64, f64)> = rows
        .map(|row| (row.count as f64, (figure.of)(row)))
        .filter(|point| point.1 > 0.0)
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn panel(area: &Area<'_>, report: &EmbedReport, caller: Caller, figure: &Figure) -> Drawn {
    let lines: Vec<(Subject, Vec<(f64, f64)>)> = report
        .engines()
        .into_iter()
        .map(|engine| (engine, points(report, engine, caller, figure)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let all = || lines.iter().flat_map(|(_, points)| points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let least = all().map(of).fold(f64::MAX, f64::min);
        let most = all().map(of).fold(0.0, f64::max);
        (least * 0.7)..(most * 1.4)
    };
    if lines.is_empty() {
        return Ok(());
    }
    let unit = match caller {
        Caller::Tasks => "tasks",
        _ => "threads",
    };
    let title = format!("{}, {}", caller.name(), figure.name);
    let (counts, up) = (range(|point| point.0), range(|point| point.1));
    // The legend stands beside the lines.
    let room = (counts.end / counts.start).powf(LEGEND_SHARE);
    let across = counts.start..counts.end * room;
    let mut chart = ChartBuilder::on(area)
        .caption(&title, (FONT, 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(74)
        .build_cartesian_2d(across.log_scale(), up.log_scale())?;
    chart
        .configure_mesh()
        .x_desc(unit)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| (figure.label)(*y))
        .label_style((FONT, 13))
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    for ((engine, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        chart
            .draw_series(
                LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3),
            )?
            .label(engine.name())
            .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 12))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_plot_names_callers_and_engines() {
        let report = report(&[
            (Subject::Farcore, Caller::Handle, &[1_000_000]),
            (Subject::Dashmap, Caller::Direct, &[2_000_000]),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let file = write(folder.path(), &report).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        for word in [
            "handle, Mops/s",
            "handle, p99",
            "farcore",
            "dashmap",
            "threads",
        ] {
            assert!(text.contains(word), "{word} is missing");
        }
        let error = write(Path::new("/nonexistent"), &report).unwrap_err();
        assert!(error.to_string().contains("embed.svg"), "{error}");
    }
}
