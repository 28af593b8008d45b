//! A drawn view as plain text and as an SVG picture. Both are made from the cells of the buffer, so
//! they show what the terminal would.

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Size of a cell, in pixels.
const CELL: (u32, u32) = (9, 18);
/// Margin around the cells, in pixels.
const MARGIN: u32 = 10;
const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d8dee9";

/// The view's lines without colours and trailing blanks.
pub(super) fn text(view: &Buffer) -> String {
    let mut text = String::new();
    for y in view.area.rows() {
        let line: String = y
            .columns()
            .filter_map(|place| view.cell((place.x, place.y)))
            .map(Cell::symbol)
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn color(color: Color, otherwise: &'static str) -> &'static str {
    match color {
        Color::Black => BACKGROUND,
        Color::Gray => "#aeb6c2",
        Color::Red => "#e06c75",
        Color::Green => "#8fc379",
        Color::Yellow => "#e5c07b",
        Color::Magenta => "#c678dd",
        Color::Cyan => "#56b6c2",
        _ => otherwise,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The height of a sparkline's block in eighths. Blocks are drawn, because fonts differ.
fn eighths(symbol: &str) -> Option<u32> {
    const BARS: &str = "\u{2581}\u{2582}\u{2583}\u{2584}\u{2585}\u{2586}\u{2587}\u{2588}";
    let (place, _) = BARS
        .chars()
        .zip(1..)
        .map(|(bar, height)| (height, bar))
        .find(|(_, bar)| symbol.starts_with(*bar))?;
    Some(place)
}

/// The view as an SVG picture.
pub(super) fn svg(view: &Buffer) -> String {
    let (width, height) = (u32::from(view.area.width), u32::from(view.area.height));
    let (whole_width, whole_height) = (width * CELL.0 + 2 * MARGIN, height * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole_width} {whole_height}\" width=\"{whole_width}\" \
         height=\"{whole_height}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"15\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    for place in view.area.positions() {
        let Some(cell) = view.cell(place) else {
            continue;
        };
        let reversed = cell.modifier.contains(Modifier::REVERSED);
        let (mut fore, mut back) = (color(cell.fg, FOREGROUND), color(cell.bg, BACKGROUND));
        if reversed {
            (fore, back) = (back, fore);
        }
        let (x, y) = (
            MARGIN + u32::from(place.x) * CELL.0,
            MARGIN + u32::from(place.y) * CELL.1,
        );
        // Writing to a string does not fail.
        if back != BACKGROUND {
            let (w, h) = CELL;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{back}\"/>"
            );
        }
        let symbol = cell.symbol();
        if let Some(eighths) = eighths(symbol) {
            let (w, h) = (CELL.0, CELL.1 * eighths / 8);
            let top = y + CELL.1 - h;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{top}\" width=\"{w}\" height=\"{h}\" fill=\"{fore}\"/>"
            );
        } else if !symbol.trim().is_empty() {
            let bold = if cell.modifier.contains(Modifier::BOLD) {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let dim = if cell.modifier.contains(Modifier::DIM) {
                " opacity=\"0.65\""
            } else {
                ""
            };
            let (base, symbol) = (y + CELL.1 - 4, escaped(symbol));
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{base}\" fill=\"{fore}\"{bold}{dim}>{symbol}</text>"
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
