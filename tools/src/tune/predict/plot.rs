//! The plot of a prediction, as SVG: throughput above, utilisation of the stations below, both by
//! the number of cores. Stations with little use are left out.

use anyhow::{Result, anyhow};
use farcore_command::colours::COLOURS;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::forecast::{CORES, Step};
use super::show::{Answer, SHOWN_MIN};

const SIZE: (u32, u32) = (1000, 760);
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A line: its name, its colour, its points.
type Line<'a> = (&'a str, RGBColor, Vec<(f64, f64)>);

/// Draws the plot.
///
/// # Errors
/// The drawing library's error.
pub(super) fn svg(answer: &Answer) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, answer).map_err(|error| anyhow!("the plot cannot be drawn: {error}"))?;
    Ok(svg)
}

fn draw(svg: &mut String, answer: &Answer) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(SIZE.1 / 2);
    throughput(&upper, answer)?;
    busy(&lower, &answer.steps)?;
    root.present()?;
    Ok(())
}

fn points(steps: &[Step], of: impl Fn(&Step) -> f64) -> Vec<(f64, f64)> {
    let point = |step: &Step| (f64::from(step.cores), of(step));
    steps.iter().map(point).collect()
}

fn throughput(area: &Area<'_>, answer: &Answer) -> Drawn {
    let steps = &answer.steps;
    let Some((first, last)) = steps.first().zip(steps.last()) else {
        return Ok(());
    };
    let predicted = points(steps, |step| step.requests_s / 1e6);
    let ideal = points(steps, |step| f64::from(step.cores) * first.requests_s / 1e6);
    let most = ideal.iter().fold(0.0_f64, |most, point| most.max(point.1));
    let limit = answer.limit.requests_s / 1e6;
    let mut lines: Vec<Line<'_>> = vec![
        ("linear scaling of one core", COLOURS[6], ideal),
        ("predicted", COLOURS[0], predicted),
    ];
    let name = format!("limit: {}", answer.limit.station);
    // The limit of the cores is no horizontal line: it grows with their number.
    if limit <= most && answer.limit.station != CORES {
        let ends = [1.0, f64::from(last.cores)];
        let line = ends.map(|cores| (cores, limit)).to_vec();
        lines.push((&name, COLOURS[5], line));
    }
    let title = format!(
        "Predicted throughput: {} memory nodes, {} Gb/s",
        answer.machine.nodes,
        answer.machine.link_bits_s / 1e9
    );
    chart(area, &title, "Mops/s", last.cores, 0.0..most * 1.08, &lines)
}

fn busy(area: &Area<'_>, steps: &[Step]) -> Drawn {
    let Some((first, last)) = steps.first().zip(steps.last()) else {
        return Ok(());
    };
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (place, load) in first.loads.iter().enumerate() {
        let line = points(steps, |step| step.loads[place].utilisation * 100.0);
        if line.iter().any(|point| point.1 >= SHOWN_MIN * 100.0) {
            let colour = COLOURS[lines.len() % COLOURS.len()];
            lines.push((load.station, colour, line));
        }
    }
    chart(
        area,
        "Utilisation of each station",
        "%",
        last.cores,
        0.0..108.0,
        &lines,
    )
}

/// Draws lines over cores on a logarithmic axis.
fn chart(
    area: &Area<'_>,
    title: &str,
    unit: &str,
    cores: u32,
    range: std::ops::Range<f64>,
    lines: &[Line<'_>],
) -> Drawn {
    // One core needs an axis of positive length.
    let most = f64::from(cores.max(2));
    panel(
        area,
        title,
        unit,
        (1.0..most).log_scale().base(2.0),
        range,
        lines,
    )
}

fn panel<X>(
    area: &Area<'_>,
    title: &str,
    unit: &str,
    cores: X,
    range: std::ops::Range<f64>,
    lines: &[Line<'_>],
) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(12)
        .margin_right(24)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(cores, range)?;
    chart
        .configure_mesh()
        .x_desc("cores")
        .y_desc(unit)
        .x_label_formatter(&|cores| format!("{cores:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style((FONT, 14))
        .light_line_style(RGBColor(245, 245, 245))
        .bold_line_style(RGBColor(220, 220, 220))
        .draw()?;
    for (name, colour, line) in lines {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style).point_size(3))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::forecast::example;
    use super::super::machine::Machine;
    use super::*;

    fn answer(machine: Machine) -> Answer {
        let calibration = example();
        Answer {
            origin: farcore_command::origin::Origin::default(),
            calibrated_on: None,
            seed: None,
            adapter: None,
            adapter_messages_s: machine.messages_s,
            machine,
            calibration,
            checks: Vec::new(),
            limit: calibration.limit(&machine),
            steps: calibration.steps(&machine),
        }
    }

    #[test]
    fn the_plot_names_stations_and_limits() {
        for cores in [1, 2, 64] {
            let machine: Machine = format!("cores={cores},link=25Gb").parse().unwrap();
            let text = svg(&answer(machine)).unwrap();
            assert!(
                text.contains("predicted") && text.contains("host link, in"),
                "{cores}"
            );
            assert_eq!(text.contains("limit: host link, in"), cores == 64);
        }
    }
}
