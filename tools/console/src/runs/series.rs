//! The figures of a simulation's points: their names, units and values.

use farcore_card::simulator::Point;
use serde::Serialize;

/// A column of a series.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SeriesColumn {
    /// The name, which is stable.
    pub(crate) name: &'static str,
    /// What it counts: `ns`, `share` (0 to 1), or a plural.
    pub(crate) unit: &'static str,
    #[serde(skip)]
    figure: fn(&Point) -> f64,
}

const fn column(name: &'static str, unit: &'static str, figure: fn(&Point) -> f64) -> SeriesColumn {
    SeriesColumn { name, unit, figure }
}

fn share(part: u64, point: &Point) -> f64 {
    part as f64 / point.served.total().max(1) as f64
}

/// The columns, in order.
pub(crate) const SERIES_COLUMNS: [SeriesColumn; 24] = [
    column("at_ns", "ns", |one| one.at_ns as f64),
    column("messages", "messages", |one| one.messages as f64),
    column("messages_s", "messages/s", |one| one.messages_s),
    column("hit_ratio", "share", |one| one.served.hit_ratio()),
    column("card_share", "share", |one| share(one.served.card, one)),
    column("staging_share", "share", |one| {
        share(one.served.staging, one)
    }),
    column("cxl_share", "share", |one| share(one.served.cxl, one)),
    column("host_share", "share", |one| share(one.served.host, one)),
    column("migrating_share", "share", |one| {
        share(one.served.migrating, one)
    }),
    column("p50_ns", "ns", |one| one.p50_ns as f64),
    column("p99_ns", "ns", |one| one.p99_ns as f64),
    column("p999_ns", "ns", |one| one.p999_ns as f64),
    column("migrations", "moves", |one| one.migrations as f64),
    column("cxl_load", "share", |one| one.cxl_load),
    column("host_load", "share", |one| one.host_load),
    column("card_tokens", "tokens", |one| one.card_tokens as f64),
    column("staging_tokens", "tokens", |one| one.staging_tokens as f64),
    column("cxl_tokens", "tokens", |one| one.cxl_tokens as f64),
    column("cxl_pages", "pages", |one| one.cxl_pages as f64),
    column("waiting", "messages", |one| one.waiting as f64),
    column("to_cxl", "uses", |one| f64::from(one.to_cxl)),
    column("to_card", "uses", |one| f64::from(one.to_card)),
    column("migration_p50_ns", "ns", |one| one.migration_p50_ns as f64),
    column("migration_p99_ns", "ns", |one| one.migration_p99_ns as f64),
];

/// The figures of a point, by column. All are finite.
pub(crate) type Figures = Vec<f64>;

/// The figures of a point.
pub(super) fn figures(point: &Point) -> Figures {
    let finite = |figure: f64| if figure.is_finite() { figure } else { 0.0 };
    let figures = SERIES_COLUMNS.iter().map(|column| (column.figure)(point));
    figures.map(finite).collect()
}

/// A series: columns, and a row a point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    /// The columns.
    pub(crate) columns: &'static [SeriesColumn],
    /// The points, by time.
    pub(crate) rows: Vec<Figures>,
}

impl Series {
    /// A series of points.
    pub(super) fn of(rows: Vec<Figures>) -> Self {
        Self {
            columns: &SERIES_COLUMNS,
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_name_of_its_own_and_a_finite_figure() {
        let mut names: Vec<_> = SERIES_COLUMNS.iter().map(|column| column.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SERIES_COLUMNS.len());
        let odd = Point {
            messages_s: f64::INFINITY,
            ..Point::default()
        };
        assert!(figures(&odd).iter().all(|figure| figure.is_finite()));
    }
}
