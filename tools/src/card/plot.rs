//! Plots as SVG: the course of a simulation, hit ratios of policies, the figures of a sweep.

use anyhow::{Result, anyhow};
use farcore_card::simulator::{FitCurve, FitPoint, Outcome, Point};
use farcore_command::colours::COLOURS;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::number::real;
use super::sweep::Row;

const WIDTH: u32 = 1000;
const PANEL_HEIGHT: u32 = 300;
/// Of these, the title and the names of the lines.
const HEAD_HEIGHT: u32 = 30;
const FONT: &str = "sans-serif";
/// Values of an axis from which on it is logarithmic.
const DECADES: f64 = 20.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A line: its name and its points, with the ends of their intervals.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
    intervals: Vec<(f64, f64, f64)>,
}

/// A panel of lines over one axis.
struct Panel<'a> {
    title: String,
    x: &'a str,
    lines: Vec<Line>,
    /// Names of the values on the axis, if they are no numbers.
    names: Vec<String>,
}

impl Line {
    fn of(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            intervals: Vec::new(),
        }
    }
}

/// The course of a simulation.
///
/// # Errors
/// The drawing library's error.
pub(super) fn course(outcome: &Outcome) -> Result<String> {
    let line = |name: &str, of: fn(&Point) -> f64| {
        let points = outcome.series.iter();
        Line::of(
            name,
            points
                .map(|one| (one.at_ns as f64 / 1e6, of(one)))
                .collect(),
        )
    };
    let panel = |title: &str, lines| Panel {
        title: title.to_owned(),
        x: "ms",
        lines,
        names: Vec::new(),
    };
    svg(&[
        panel(
            "Where tokens were found, % of accesses",
            vec![
                line("card", |one| share(one.served.card, one)),
                line("staging area", |one| share(one.served.staging, one)),
                line("CXL", |one| share(one.served.cxl, one)),
                line("host", |one| share(one.served.host, one)),
            ],
        ),
        panel(
            "Latency of messages, ns",
            vec![
                line("p50", |one| one.p50_ns as f64),
                line("p99", |one| one.p99_ns as f64),
                line("p99.9", |one| one.p999_ns as f64),
            ],
        ),
        panel(
            "Load of the links, %",
            vec![
                line("CXL", |one| one.cxl_load * 100.0),
                line("host", |one| one.host_load * 100.0),
            ],
        ),
        panel(
            "Tokens in each tier",
            vec![
                line("card", |one| one.card_tokens as f64),
                line("staging area", |one| one.staging_tokens as f64),
                line("CXL", |one| one.cxl_tokens as f64),
            ],
        ),
        panel(
            "Messages, M/s",
            vec![line("messages", |one| one.messages_s / 1e6)],
        ),
        panel(
            "Duration of moves over a link, ns",
            vec![
                line("p50", |one| one.migration_p50_ns as f64),
                line("p99", |one| one.migration_p99_ns as f64),
            ],
        ),
        panel(
            "Thresholds, uses in a window",
            vec![
                line("to CXL", |one| f64::from(one.to_cxl)),
                line("to the card", |one| f64::from(one.to_card)),
            ],
        ),
    ])
}

fn share(part: u64, point: &Point) -> f64 {
    part as f64 * 100.0 / point.served.total().max(1) as f64
}

/// The hit ratios of policies over a replay.
///
/// # Errors
/// The drawing library's error.
pub(super) fn hit_ratios(policies: &[(&str, &[f64])]) -> Result<String> {
    let line = |&(name, series): &(&str, &[f64])| {
        let points = (1..).zip(series);
        let point = |(at, ratio): (u32, &f64)| (f64::from(at), ratio * 100.0);
        Line::of(name, points.map(point).collect())
    };
    svg(&[Panel {
        title: "Hit ratio, %".to_owned(),
        x: "% of the accesses",
        lines: policies.iter().map(line).collect(),
        names: Vec::new(),
    }])
}

/// The figures of a sweep over its first setting, a line for each combination of the others.
///
/// # Errors
/// The drawing library's error.
pub(super) fn sweep(names: &[String], rows: &[Row]) -> Result<String> {
    let Some(x) = names.first() else {
        return svg(&[]);
    };
    let mut values: Vec<String> = Vec::new();
    for row in rows {
        if !values.contains(&row.values[0]) {
            values.push(row.values[0].clone());
        }
    }
    let numbers: Option<Vec<f64>> = values.iter().map(|value| real(value).ok()).collect();
    let place = |value: &String| {
        let at = values.iter().position(|other| other == value).unwrap_or(0);
        numbers.as_ref().map_or(at as f64, |numbers| numbers[at])
    };
    let figures = [
        ("Messages, M/s", "messages_s", 1e6),
        ("Accesses that do not leave the card, %", "hit_ratio", 0.01),
        ("Latency p99, ns", "p99_ns", 1.0),
        ("Latency p99.9, ns", "p999_ns", 1.0),
    ];
    let panels = figures.map(|(title, figure, unit)| {
        let mut lines: Vec<Line> = Vec::new();
        for row in rows {
            let Some(estimate) = row.figures.get(figure) else {
                continue;
            };
            let name = row.values[1..].join(", ");
            let at = lines.iter().position(|line| line.name == name);
            let at = at.unwrap_or_else(|| {
                lines.push(Line::of(name, Vec::new()));
                lines.len() - 1
            });
            let x = place(&row.values[0]);
            lines[at].points.push((x, estimate.mean / unit));
            let ends = (x, estimate.low / unit, estimate.high / unit);
            lines[at].intervals.push(ends);
        }
        Panel {
            title: title.to_owned(),
            x,
            lines,
            names: if numbers.is_some() {
                Vec::new()
            } else {
                values.clone()
            },
        }
    });
    svg(&panels)
}

/// The curves of what fits, over the number of objects.
///
/// # Errors
/// The drawing library's error.
pub(super) fn fit(things: &str, curves: &[FitCurve]) -> Result<String> {
    let panel = |title: &str, figure: fn(&FitPoint) -> [f64; 3]| {
        let line = |curve: &FitCurve| {
            let x = |point: &FitPoint| f64::from(point.count);
            let of = |point: &FitPoint| (x(point), figure(point)[0]);
            let ends = |point: &FitPoint| (x(point), figure(point)[1], figure(point)[2]);
            Line {
                name: curve.policy.to_string(),
                points: curve.points.iter().map(of).collect(),
                intervals: curve.points.iter().map(ends).collect(),
            }
        };
        Panel {
            title: title.to_owned(),
            x: things,
            lines: curves.iter().map(line).collect(),
            names: Vec::new(),
        }
    };
    svg(&[
        panel("Messages, M/s", |one| {
            let rate = one.messages_s;
            [rate.mean, rate.low, rate.high].map(|figure| figure / 1e6)
        }),
        panel("Accesses that do not leave the card, %", |one| {
            [one.hit_ratio * 100.0; 3]
        }),
        panel("Load of the link to the host, %", |one| {
            [one.host_load * 100.0; 3]
        }),
    ])
}

fn svg(panels: &[Panel<'_>]) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, panels).map_err(|error| anyhow!("the plot cannot be drawn: {error}"))?;
    Ok(svg)
}

fn draw(svg: &mut String, panels: &[Panel<'_>]) -> Drawn {
    let rows = panels.len().max(1);
    let height = PANEL_HEIGHT * u32::try_from(rows)?;
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, panel) in root.split_evenly((rows, 1)).iter().zip(panels) {
        draw_panel(area, panel)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(area: &Area<'_>, panel: &Panel<'_>) -> Drawn {
    let xs = panel
        .lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.0);
    let (low, high) = xs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    if low > high {
        return Ok(());
    }
    let is_log = low > 0.0 && high / low > DECADES && panel.names.is_empty() && panel.x != "ms";
    let high = if high > low { high } else { low + 1.0 };
    if is_log {
        axes(area, panel, (low..high).log_scale())
    } else {
        axes(area, panel, low..high)
    }
}

fn axes<X>(area: &Area<'_>, panel: &Panel<'_>, x: X) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let ys = panel
        .lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.1);
    let highs = panel
        .lines
        .iter()
        .flat_map(|line| &line.intervals)
        .map(|ends| ends.2);
    let most = ys.chain(highs).fold(0.0, f64::max);
    let (head, body) = area.split_vertically(HEAD_HEIGHT);
    legend(&head, panel)?;
    let mut chart = ChartBuilder::on(&body)
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(x, 0.0..(most * 1.08).max(1e-9))?;
    let name = |x: &f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place among a few names"
        )]
        let place = x.round().max(0.0) as usize;
        let is_place = (x - x.round()).abs() < 1e-9;
        match panel.names.get(place) {
            Some(name) if is_place => name.clone(),
            Some(_) | None if !panel.names.is_empty() => String::new(),
            _ => format!("{x}"),
        }
    };
    chart
        .configure_mesh()
        .x_desc(panel.x)
        .x_labels(8)
        .x_label_formatter(&name)
        .y_label_formatter(&|y| format!("{}", (y * 100.0).round() / 100.0))
        .label_style((FONT, 12))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for (at, line) in panel.lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let drawn = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2));
        chart.draw_series(drawn)?;
        let bars = line.intervals.iter().zip(&line.points);
        chart.draw_series(bars.map(|(&(x, low, high), &(_, mean))| {
            ErrorBar::new_vertical(x, low.max(0.0), mean, high, colour.filled(), 6)
        }))?;
    }
    Ok(())
}

/// The title and, in their colours, the names of the lines.
fn legend(area: &Area<'_>, panel: &Panel<'_>) -> Drawn {
    let title = TextStyle::from((FONT, 17).into_font()).color(&BLACK);
    area.draw_text(&panel.title, &title, (12, 8))?;
    let mut x = 12 + i32::try_from(panel.title.len())? * 9 + 20;
    if panel.lines.len() < 2 {
        return Ok(());
    }
    for (at, line) in panel.lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let style = TextStyle::from((FONT, 14).into_font()).color(&colour);
        area.draw_text(&format!("\u{25cf} {}", line.name), &style, (x, 10))?;
        x += i32::try_from(line.name.len())? * 8 + 34;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use farcore_tuning::MeanEstimate;

    use super::*;

    #[test]
    fn a_sweep_names_its_lines_and_panels() {
        let row = |values: [&str; 2], rate: f64| Row {
            values: values.map(str::to_owned).to_vec(),
            figures: BTreeMap::from([
                ("messages_s", MeanEstimate::of(&[rate, rate * 1.1]).unwrap()),
                ("p99_ns", MeanEstimate::of(&[100.0]).unwrap()),
            ]),
        };
        let rows = [
            row(["100", "lru"], 9e7),
            row(["100", "hybrid"], 9.5e7),
            row(["10000", "lru"], 2e7),
            row(["10000", "hybrid"], 3e7),
        ];
        let names = ["queue-pairs", "policy"].map(str::to_owned);
        let text = sweep(&names, &rows).unwrap();
        for words in [
            "Messages, M/s",
            "Latency p99, ns",
            "lru",
            "hybrid",
            "queue-pairs",
        ] {
            assert!(text.contains(words), "{words}");
        }
        // Words on the axis.
        let rows = [row(["wait", "lru"], 1e6), row(["optimistic", "lru"], 2e6)];
        let text = sweep(&names, &rows).unwrap();
        assert!(text.contains("optimistic"));
    }

    #[test]
    fn series_are_drawn() {
        let text = hit_ratios(&[("lru", &[0.1, 0.2]), ("belady", &[0.3, 0.4])]).unwrap();
        assert!(text.contains("belady"));
        assert!(hit_ratios(&[("lru", &[])]).is_ok());
    }
}
