//! The figures of groups: sum, mean, percentiles, standard deviation.
//!
//! - I1: a sum of integers is exact; one of numbers loses no more than its result's last digits
//!   (Neumaier). The standard deviation is computed in one pass (Welford).
//! - I2: percentiles hold the values of the groups that are open at a time, within a budget.
//!
//! Source: A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen",
//! 1974; B. P. Welford, "Note on a method for calculating corrected sums of squares", 1962.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};

use super::AggregateFunction;
use crate::data::cell::ColumnType;

/// Names in SQL of the figures, beside SQLite's `count`, `min` and `max`.
const NAMES: [&str; 6] = [
    "farcore_sum",
    "farcore_total",
    "farcore_mean",
    "farcore_p50",
    "farcore_p99",
    "farcore_stddev",
];

/// A figure in SQL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Figure {
    /// The call.
    pub(super) sql: String,
    /// The type of the result.
    pub(super) kind: ColumnType,
}

/// The figure of a column's values, or of rows; `None` if the column has the wrong type.
pub(super) fn figure(
    function: AggregateFunction,
    of: Option<(ColumnType, &str)>,
) -> Option<Figure> {
    let Some((kind, column)) = of else {
        return Some(Figure {
            sql: "count(*)".to_owned(),
            kind: ColumnType::Integer,
        });
    };
    let (name, result) = match (function, kind) {
        (AggregateFunction::Count, _) => ("count", ColumnType::Integer),
        (AggregateFunction::Minimum, kind) => ("min", kind),
        (AggregateFunction::Maximum, kind) => ("max", kind),
        (_, ColumnType::Text) => return None,
        (AggregateFunction::Sum, ColumnType::Integer) => (NAMES[0], ColumnType::Integer),
        (AggregateFunction::Sum, _) => (NAMES[1], ColumnType::Number),
        (AggregateFunction::Mean, _) => (NAMES[2], ColumnType::Number),
        (AggregateFunction::P50, _) => (NAMES[3], ColumnType::Number),
        (AggregateFunction::P99, _) => (NAMES[4], ColumnType::Number),
        (AggregateFunction::Stddev, _) => (NAMES[5], ColumnType::Number),
    };
    Some(Figure {
        sql: format!("{name}({column})"),
        kind: result,
    })
}

/// Whether SQL may call this function.
pub(super) fn is_ours(name: &str) -> bool {
    NAMES.contains(&name) || ["count", "min", "max"].contains(&name)
}

/// The values of a percentile do not fit the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooManyValues;

impl fmt::Display for TooManyValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("percentiles of too many values")
    }
}

impl std::error::Error for TooManyValues {}

fn number(context: &Context<'_>) -> Option<f64> {
    match context.get_raw(0) {
        ValueRef::Integer(value) => Some(value as f64),
        ValueRef::Real(value) => Some(value),
        _ => None,
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// A sum of numbers with what rounding took from it.
#[derive(Clone, Copy, Default, Debug)]
struct Total {
    sum: f64,
    rest: f64,
    count: u64,
}

impl Total {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        self.rest += if self.sum.abs() >= value.abs() {
            (self.sum - sum) + value
        } else {
            (value - sum) + self.sum
        };
        self.sum = sum;
        self.count += 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct SumOfIntegers;

impl Aggregate<(i128, bool), Option<i64>> for SumOfIntegers {
    fn init(&self, _: &mut Context<'_>) -> Result<(i128, bool)> {
        Ok((0, false))
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut (i128, bool)) -> Result<()> {
        if let ValueRef::Integer(value) = context.get_raw(0) {
            // There are fewer than 2^64 rows.
            *sum = (sum.0 + i128::from(value), true);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<(i128, bool)>) -> Result<Option<i64>> {
        let sum = sum.filter(|sum| sum.1);
        Ok(sum.and_then(|sum| i64::try_from(sum.0).ok()))
    }
}

/// The sum of numbers, or their mean.
#[derive(Clone, Copy, Debug)]
struct TotalOrMean {
    is_mean: bool,
}

impl Aggregate<Total, Option<f64>> for TotalOrMean {
    fn init(&self, _: &mut Context<'_>) -> Result<Total> {
        Ok(Total::default())
    }

    fn step(&self, context: &mut Context<'_>, total: &mut Total) -> Result<()> {
        if let Some(value) = number(context) {
            total.add(value);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, total: Option<Total>) -> Result<Option<f64>> {
        let total = total.filter(|total| total.count > 0);
        Ok(total.and_then(|total| {
            let sum = total.sum + total.rest;
            finite(if self.is_mean {
                sum / total.count as f64
            } else {
                sum
            })
        }))
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Spread {
    count: u64,
    mean: f64,
    squares: f64,
}

#[derive(Clone, Copy, Debug)]
struct Deviation;

impl Aggregate<Spread, Option<f64>> for Deviation {
    fn init(&self, _: &mut Context<'_>) -> Result<Spread> {
        Ok(Spread::default())
    }

    fn step(&self, context: &mut Context<'_>, spread: &mut Spread) -> Result<()> {
        if let Some(value) = number(context) {
            spread.count += 1;
            let before = value - spread.mean;
            spread.mean += before / spread.count as f64;
            spread.squares += before * (value - spread.mean);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, spread: Option<Spread>) -> Result<Option<f64>> {
        let spread = spread.filter(|spread| spread.count > 1);
        Ok(spread.and_then(|spread| {
            let variance = spread.squares / (spread.count - 1) as f64;
            finite(variance.max(0.0).sqrt())
        }))
    }
}

#[derive(Clone, Debug)]
struct Percentile {
    /// In percent.
    rank: u32,
    held: Arc<AtomicUsize>,
    held_max: usize,
}

/// The value below which a share of the values lies, between two values in proportion.
fn percentile(values: &mut [f64], rank: u32) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let position = last as u128 * u128::from(rank);
    let below = usize::try_from(position / 100).ok()?;
    let share = (position % 100) as f64 / 100.0;
    let (_, &mut low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let high = above.iter().copied().min_by(f64::total_cmp);
    let high = high.filter(|_| share > 0.0).unwrap_or(low);
    finite(low * (1.0 - share) + high * share)
}

impl Aggregate<Vec<f64>, Option<f64>> for Percentile {
    fn init(&self, _: &mut Context<'_>) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }

    fn step(&self, context: &mut Context<'_>, values: &mut Vec<f64>) -> Result<()> {
        if let Some(value) = number(context) {
            if self.held.fetch_add(1, Ordering::SeqCst) >= self.held_max {
                return Err(Error::UserFunctionError(Box::new(TooManyValues)));
            }
            values.push(value);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, values: Option<Vec<f64>>) -> Result<Option<f64>> {
        let mut values = values.unwrap_or_default();
        self.held.fetch_sub(values.len(), Ordering::SeqCst);
        Ok(percentile(&mut values, self.rank))
    }
}

/// Gives a connection the figures; its percentiles hold at most `held_max` values at a time.
///
/// # Errors
/// Those of SQLite.
pub(super) fn register(connection: &Connection, held_max: usize) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    let held = Arc::new(AtomicUsize::new(0));
    let percentile = |rank| Percentile {
        rank,
        held: Arc::clone(&held),
        held_max,
    };
    let [sum, total, mean, p50, p99, stddev] = NAMES;
    connection.create_aggregate_function(sum, 1, flags, SumOfIntegers)?;
    connection.create_aggregate_function(total, 1, flags, TotalOrMean { is_mean: false })?;
    connection.create_aggregate_function(mean, 1, flags, TotalOrMean { is_mean: true })?;
    connection.create_aggregate_function(p50, 1, flags, percentile(50))?;
    connection.create_aggregate_function(p99, 1, flags, percentile(99))?;
    connection.create_aggregate_function(stddev, 1, flags, Deviation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(call: &str, values: &[&str]) -> Option<f64> {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection, 100).unwrap();
        let rows = values.iter().map(|value| format!("SELECT {value} AS x"));
        let rows = rows.collect::<Vec<_>>().join(" UNION ALL ");
        let sql = format!("SELECT CAST({call}(x) AS REAL) FROM ({rows})");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn figures_are_exact() {
        let values = ["4", "NULL", "1", "2", "3"];
        for (call, value) in [
            ("farcore_sum", 10.0),
            ("farcore_total", 10.0),
            ("farcore_mean", 2.5),
            ("farcore_p50", 2.5),
            ("farcore_p99", 3.97),
            ("farcore_stddev", (5.0_f64 / 3.0).sqrt()),
        ] {
            let found = figure(call, &values).unwrap();
            assert!((found - value).abs() < 1e-12, "{call}: {found}");
            assert_eq!(figure(call, &["NULL"]), None, "{call}");
        }
        assert_eq!(
            figure("farcore_total", &["1e100", "1.0", "-1e100"]),
            Some(1.0)
        );
        assert_eq!(figure("farcore_stddev", &["7"]), None);
        assert_eq!(figure("farcore_p99", &["7"]), Some(7.0));
        let large = "9223372036854775807";
        assert_eq!(figure("farcore_sum", &[large, large]), None);
        assert_eq!(
            figure("farcore_sum", &[large, large, &format!("-{large}")]),
            Some(i64::MAX as f64)
        );
    }

    #[test]
    fn percentiles_keep_their_budget() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection, 100).unwrap();
        let numbers = |count| {
            format!(
                "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {count}) "
            )
        };
        let grouped = format!(
            "{} SELECT sum(m) FROM (SELECT farcore_p50(x) AS m FROM n GROUP BY x / 50)",
            numbers(1_000)
        );
        connection.query_row(&grouped, [], |_| Ok(())).unwrap();
        let whole = format!("{} SELECT farcore_p50(x) FROM n", numbers(101));
        let error = connection.query_row(&whole, [], |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("too many values"), "{error}");
    }
}
