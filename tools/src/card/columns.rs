//! The figures of an outcome and of a point of its series, by name: what tables and files show.

use farcore_card::simulator::{Outcome, Point, Verdict};

/// A named figure.
pub(super) type Column<T> = (&'static str, fn(&T) -> f64);

/// The figures that a sweep estimates.
pub(super) const OUTCOME: [Column<Outcome>; 9] = [
    ("messages_s", |one| one.messages_s),
    ("hit_ratio", |one| one.hit_ratio),
    ("p50_ns", |one| one.p50_ns as f64),
    ("p99_ns", |one| one.p99_ns as f64),
    ("p999_ns", |one| one.p999_ns as f64),
    ("cxl_load", |one| one.cxl_load),
    ("host_load", |one| one.host_load),
    ("migrations", |one| one.statistics.migration.total() as f64),
    ("steady", |one| {
        f64::from(u8::from(one.verdict == Verdict::Steady))
    }),
];

/// The figures of a point.
pub(super) const POINT: [Column<Point>; 22] = [
    ("at_ns", |one| one.at_ns as f64),
    ("messages", |one| one.messages as f64),
    ("messages_s", |one| one.messages_s),
    ("hit_ratio", |one| one.served.hit_ratio()),
    ("served_card", |one| one.served.card as f64),
    ("served_staging", |one| one.served.staging as f64),
    ("served_cxl", |one| one.served.cxl as f64),
    ("served_host", |one| one.served.host as f64),
    ("p50_ns", |one| one.p50_ns as f64),
    ("p99_ns", |one| one.p99_ns as f64),
    ("p999_ns", |one| one.p999_ns as f64),
    ("migrations", |one| one.migrations as f64),
    ("migration_p50_ns", |one| one.migration_p50_ns as f64),
    ("migration_p99_ns", |one| one.migration_p99_ns as f64),
    ("cxl_load", |one| one.cxl_load),
    ("host_load", |one| one.host_load),
    ("card_tokens", |one| one.card_tokens as f64),
    ("staging_tokens", |one| one.staging_tokens as f64),
    ("cxl_tokens", |one| one.cxl_tokens as f64),
    ("waiting", |one| one.waiting as f64),
    ("to_cxl", |one| f64::from(one.to_cxl)),
    ("to_card", |one| f64::from(one.to_card)),
];

/// A table of text and figures for a file: names and values by column.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sheet {
    /// Columns of text, first.
    pub(super) texts: Vec<(String, Vec<String>)>,
    /// Columns of figures.
    pub(super) figures: Vec<(String, Vec<f64>)>,
}

impl Sheet {
    /// The series of an outcome.
    pub(super) fn of_series(series: &[Point]) -> Self {
        let column = |&(name, figure): &Column<Point>| {
            (name.to_owned(), series.iter().map(figure).collect())
        };
        Self {
            texts: Vec::new(),
            figures: POINT.iter().map(column).collect(),
        }
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        let texts = self.texts.first().map(|(_, values)| values.len());
        let figures = self.figures.first().map(|(_, values)| values.len());
        texts.or(figures).unwrap_or(0)
    }
}
