//! `cargo xtask architecture`: writes docs/architecture.svg, the README's picture of clients,
//! cores and memory nodes.
//!
//! The picture is text of this file, so a change of it is seen in a review. A test compares the
//! published file with what the task writes.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

const FILE: &str = "docs/architecture.svg";
const SIZE: (u32, u32) = (1000, 400);
const BACKGROUND: &str = "#ffffff";
const TEXT: &str = "#1f2430";
const FAINT: &str = "#5b6472";

/// Fill and border of a box.
#[derive(Debug, Clone, Copy)]
struct Paint(&'static str, &'static str);

const PLAIN: Paint = Paint("#f4f5f7", "#aeb6c2");
const CORE: Paint = Paint("#e3eefb", "#0072b2");
const PART: Paint = Paint("#ffffff", "#0072b2");
const FAR: Paint = Paint("#fdf0d9", "#d08a00");

/// A place and a size, in pixels.
#[derive(Debug, Clone, Copy)]
struct Area {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

const fn area(x: u32, y: u32, width: u32, height: u32) -> Area {
    Area {
        x,
        y,
        width,
        height,
    }
}

/// The elements drawn so far.
#[derive(Debug, Default)]
struct Picture(String);

impl Picture {
    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{element}");
    }

    fn text(&mut self, (x, y): (u32, u32), size: u32, colour: &str, text: &str) {
        self.element(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    /// A box with its name in the first line and what it holds in the next ones.
    fn boxed(&mut self, area: Area, paint: Paint, lines: &[&str]) {
        let Area {
            x,
            y,
            width,
            height,
        } = area;
        let Paint(fill, border) = paint;
        self.element(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" \
             fill=\"{fill}\" stroke=\"{border}\"/>"
        ));
        for (line, text) in (0..).zip(lines) {
            let (size, colour) = if line == 0 { (15, TEXT) } else { (13, FAINT) };
            self.text((x + 12, y + 22 + 19 * line), size, colour, text);
        }
    }

    fn arrow(&mut self, (x1, y1): (u32, u32), (x2, y2): (u32, u32)) {
        self.element(format_args!(
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{FAINT}\" \
             stroke-width=\"1.5\" marker-start=\"url(#back)\" marker-end=\"url(#forth)\"/>"
        ));
    }
}

/// The picture as SVG.
fn svg() -> String {
    let mut picture = Picture::default();
    let (width, height) = SIZE;
    picture.element(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\">\n\
         <title>Clients, the cores of one host, and memory nodes on others</title>\n\
         <defs>\n\
         <marker id=\"forth\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" \
         orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"{FAINT}\"/></marker>\n\
         <marker id=\"back\" markerWidth=\"8\" markerHeight=\"8\" refX=\"1\" refY=\"4\" \
         orient=\"auto\"><path d=\"M8,0 L0,4 L8,8 z\" fill=\"{FAINT}\"/></marker>\n\
         </defs>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>"
    ));
    let clients: [&[&str]; 3] = [
        &["Redis clients", "any library, redis-cli"],
        &["Native clients", "over TCP or RDMA"],
        &["Your Rust program", "the engine inside it"],
    ];
    for (place, lines) in (0..).zip(clients) {
        let y = 78 + 96 * place;
        picture.boxed(area(20, y, 180, 62), PLAIN, lines);
        picture.arrow((206, y + 31), (286, y + 31));
    }
    picture.text((20, 52), 15, TEXT, "Clients");
    picture.boxed(
        area(290, 28, 350, 344),
        PLAIN,
        &["One host, one process", "a key's hash chooses its core"],
    );
    for (core, y) in [(0, 84), (1, 228)] {
        let name = format!("Core {core}: its share of the keys");
        picture.boxed(area(306, y, 318, 128), CORE, &[&name]);
        let parts: [&[&str]; 3] = [
            &["Index", "from a key", "to its", "record"],
            &["Log", "recent", "records,", "in pages"],
            &["Cache", "copies of", "hot far", "records"],
        ];
        for (place, lines) in (0..).zip(parts) {
            picture.boxed(area(318 + 100 * place, y + 34, 94, 84), PART, lines);
        }
        picture.arrow((644, y + 64), (766, y + 64));
    }
    picture.text((656, 140), 13, FAINT, "READ a record");
    picture.text((656, 166), 13, FAINT, "WRITE pages");
    picture.text((656, 284), 13, FAINT, "over TCP");
    picture.text((656, 310), 13, FAINT, "or RDMA");
    picture.text((770, 52), 15, TEXT, "Far memory");
    picture.text((770, 71), 13, FAINT, "every core uses every node");
    for (host, y) in [("on another host", 84), ("on a third host", 228)] {
        let lines = [
            "Memory node",
            host,
            "lends its memory;",
            "holds the other records",
        ];
        picture.boxed(area(770, y, 210, 128), FAR, &lines);
    }
    picture.0.push_str("</svg>\n");
    picture.0
}

/// Writes the picture.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn perform() -> Result<()> {
    fs::write(FILE, svg()).with_context(|| format!("{FILE} cannot be written"))
}

#[cfg(test)]
mod tests {
    use super::svg;

    #[test]
    fn the_published_picture_is_the_one_that_the_task_writes() {
        let published = include_str!("../../../docs/architecture.svg");
        assert!(published == svg(), "run cargo xtask architecture");
    }
}
