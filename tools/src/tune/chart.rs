//! The plot of a search, as SVG: a panel for each setting, with the ratio of each value and its

//! interval.

use std::error::Error;

use anyhow::{Result, anyhow};
use farcore_command::colours::COLOURS;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::search::Sweep;

const WIDTH: u32 = 1100;
const PANEL_HEIGHT: u32 = 280;
const COLUMNS: usize = 2;
const FONT: &str = "sans-serif";
const TRIED: RGBColor = COLOURS[0];
const PROOF: RGBColor = COLOURS[5];
const LINE: RGBColor = COLOURS[6];
/// Least range of the axis around 1.
const SPAN_MIN: f64 = 0.02;
/// An interval that reaches farther than this factor from its median is cut off, so that it does
/// not stretch the axis.
const CUT: f64 = 1.5;

type Drawn = std::result::Result<(), Box<dyn Error>>;

/// Draws all sweeps into one picture.
///
/// # Errors
/// The drawing library's error.
pub(super) fn svg(sweeps: &[Sweep]) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, sweeps).map_err(|error| anyhow!("the plot cannot be drawn: {error}"))?;
    Ok(svg)
}

fn draw(svg: &mut String, sweeps: &[Sweep]) -> Drawn {
    let rows = sweeps.len().div_ceil(COLUMNS).max(1);
    let height = PANEL_HEIGHT * u32::try_from(rows)? + 30;
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(30);
    legend(&head)?;
    for (area, sweep) in body.split_evenly((rows, COLUMNS)).iter().zip(sweeps) {
        panel(area, sweep)?;
    }
    root.present()?;
    Ok(())
}

fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
    let words = |text: &str, x: i32, colour: &RGBColor| {
        let style = TextStyle::from((FONT, 14).into_font()).color(colour);
        area.draw_text(text, &style, (x, 10))
    };
    words("rate relative to the best before", 20, &BLACK)?;
    words("\u{25cf} tried", 260, &TRIED)?;
    words("\u{25cf} best value, fresh pairs", 330, &PROOF)?;
    words("\u{25cb} value before", 530, &LINE)?;
    Ok(())
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, sweep: &Sweep) -> Drawn {
    let mut values: Vec<u32> = sweep.rows.iter().map(|row| row.value).collect();
    values.push(sweep.before);
    values.sort_unstable();
    let place = |value: u32| {
        let place = values.iter().position(|&other| other == value);
        place.unwrap_or(0) as f64
    };
    let proof = sweep.proof.iter().map(|(_, estimate)| estimate);
    let shown: Vec<_> = (sweep.rows.iter().map(|row| &row.estimate))
        .chain(proof)
        .collect();
    let low = shown.iter().map(|one| one.low.max(one.median / CUT));
    let high = shown.iter().map(|one| one.high.min(one.median * CUT));
    let (low, high) = (
        low.fold(1.0 - SPAN_MIN, f64::min),
        high.fold(1.0 + SPAN_MIN, f64::max),
    );
    let margin = (high - low) * 0.06;
    let (low, high) = (low - margin, high + margin);
    let show = |value| sweep.knob.show(value);
    let title = if sweep.after == sweep.before {
        format!("{} stays {}", sweep.knob.name(), show(sweep.before))
    } else {
        let (before, after) = (show(sweep.before), show(sweep.after));
        format!("{}: {before} to {after}", sweep.knob.name())
    };
    let right = values.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 18))
        .margin(10)
        .x_label_area_size(28)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5..right, low..high)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_labels(6)
        .y_label_formatter(&|ratio| format!("{ratio:.2}"))
        .label_style((FONT, 13))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    chart.draw_series(LineSeries::new([(-0.5, 1.0), (right, 1.0)], LINE))?;
    chart.draw_series([Circle::new(
        (place(sweep.before), 1.0),
        4,
        LINE.stroke_width(2),
    )])?;
    let bar = |at: f64, estimate: &farcore_tuning::RatioEstimate, colour: &RGBColor| {
        let (from, to) = (estimate.low.max(low), estimate.high.min(high));
        ErrorBar::new_vertical(at, from, estimate.median, to, colour.filled(), 9)
    };
    let tried = sweep.rows.iter();
    chart.draw_series(tried.map(|row| bar(place(row.value), &row.estimate, &TRIED)))?;
    let proof = sweep.proof.iter();
    chart.draw_series(proof.map(|(value, one)| bar(place(*value) + 0.12, one, &PROOF)))?;
    let style = TextStyle::from((FONT, 13).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
    let origin = area.get_base_pixel();
    for &value in &values {
        let (x, y) = chart.backend_coord(&(place(value), low));
        area.draw_text(&show(value), &style, (x - origin.0, y - origin.1 + 6))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use farcore_tuning::RatioEstimate;

    use super::*;
    use crate::tune::knob::Knob;
    use crate::tune::search::Row;

    #[test]
    fn a_plot_names_settings_and_values() {
        let estimate = |middle: f64| {
            let ratios = [0.9, 1.0, 1.1, 1.0, 1.05, 0.95].map(|factor| factor * middle);
            RatioEstimate::of(&ratios, 0.95).unwrap()
        };
        let row = |value, middle| Row {
            value,
            estimate: estimate(middle),
        };
        let sweep = |knob, before, after| Sweep {
            knob,
            default: before,
            before,
            rows: vec![row(0, 0.2), row(1 << 16, 1.2)],
            proof: Some((1 << 16, estimate(1.15))),
            after,
        };
        let sweeps = [
            sweep(Knob::PageBytes, 1 << 17, 1 << 16),
            sweep(Knob::SpinNs, 50_000, 50_000),
            sweep(Knob::Window, 64, 1 << 16),
        ];
        let text = svg(&sweeps).unwrap();
        for words in [
            "page_bytes: 128 KiB to 64 KiB",
            "spin_ns stays 50.0 us",
            "65536",
            "fresh pairs",
        ] {
            assert!(text.contains(words), "{words}");
        }
    }
}
