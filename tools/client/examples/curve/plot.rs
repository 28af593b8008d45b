//! The plot: for each fabric the median and the rate over the length, a line for each way. All axes
//! are logarithmic.

use std::error::Error;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::table::{Row, Way};

const PANEL_WIDTH: u32 = 620;
const PANEL_HEIGHT: u32 = 340;
const FONT: &str = "sans-serif";
/// Of ways, in their order: puts, gets, bare requests.
const COLOURS: [RGBColor; 8] = [
    RGBColor(86, 180, 233),
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
];

type Drawn = Result<(), Box<dyn Error>>;

/// What a panel shows.
struct Figure {
    name: &'static str,
    of: fn(&Row) -> f64,
}

const FIGURES: [Figure; 2] = [
    Figure {
        name: "one at a time, median in us",
        of: |row| row.median,
    },
    Figure {
        name: "16 at a time, MiB/s",
        of: Row::mebibytes,
    },
];

/// Draws the tables in some files.
pub(crate) fn write(output: &Path, tables: &[PathBuf]) -> Drawn {
    let mut rows: Vec<Row> = Vec::new();
    for file in tables {
        let text = std::fs::read_to_string(file)?;
        rows.extend(text.lines().filter_map(|line| line.parse().ok()));
    }
    let mut fabrics: Vec<&str> = Vec::new();
    for row in &rows {
        if !fabrics.contains(&row.fabric.as_str()) {
            fabrics.push(&row.fabric);
        }
    }
    if fabrics.is_empty() {
        return Err("the files have no rows".into());
    }
    let height = PANEL_HEIGHT * u32::try_from(fabrics.len())?;
    let root = SVGBackend::new(output, (PANEL_WIDTH * 2, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let areas = root.split_evenly((fabrics.len(), FIGURES.len()));
    let panels = fabrics
        .iter()
        .flat_map(|&fabric| FIGURES.iter().map(move |figure| (fabric, figure)));
    for (area, (fabric, figure)) in areas.iter().zip(panels) {
        panel(area, &rows, fabric, figure)?;
    }
    root.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    rows: &[Row],
    fabric: &str,
    figure: &Figure,
) -> Drawn {
    let points = |way: Way| {
        let same = rows
            .iter()
            .filter(move |row| row.fabric == fabric && row.way == way);
        #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
        let points = same.map(|row| (row.bytes as f64, (figure.of)(row)));
        points.collect::<Vec<(f64, f64)>>()
    };
    let all: Vec<(f64, f64)> = Way::ALL.into_iter().flat_map(points).collect();
    let range = |of: fn(&(f64, f64)) -> f64| {
        let least = all.iter().map(of).fold(f64::MAX, f64::min);
        let most = all.iter().map(of).fold(0.0, f64::max);
        (least * 0.7)..(most * 1.4)
    };
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{fabric}: {}", figure.name), (FONT, 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(74)
        .build_cartesian_2d(
            range(|point| point.0).log_scale(),
            range(|point| point.1).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y}"))
        .label_style((FONT, 13))
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    for (way, colour) in Way::ALL.into_iter().zip(&COLOURS) {
        let points = points(way);
        if points.is_empty() {
            continue;
        }
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(way.name())
            .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 12))
        .draw()?;
    Ok(())
}
