//! Queries over one dataset or two joined ones.
//!
//! A [`Query`] is compiled to one SQL statement ([`compile`]), which a connection of its own runs
//! within limits ([`run`]).
//!
//! - I1: no byte of a request, of a dataset's name or of a column's name becomes part of SQL:
//!   columns are called by their places, values are bound, expressions are made anew from checked
//!   parts.
//! - I2: the result does not depend on how SQLite runs the statement: rows have a total order.
//! - I3: a statement reads the tables of the query's datasets and nothing else.

mod aggregate;
mod check;
mod compile;
mod expression;
mod function;
mod run;
mod term;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(super) use self::compile::{Plan, Source, Window, compile};
pub(super) use self::run::{Runner, Time};

/// Most derived columns.
const DERIVED_MAX: usize = 32;
/// Most filters, and most columns in the order.
const FILTERS_MAX: usize = 32;
/// Most columns of a group.
const GROUP_MAX: usize = 16;
/// Most aggregates.
const AGGREGATES_MAX: usize = 64;

/// A query.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    /// The dataset.
    pub(crate) source: i64,
    /// Another dataset whose columns are added, as `joined.NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) join: Option<Join>,
    /// Columns that are computed, each from those before it.
    #[serde(default)]
    pub(crate) derive: Vec<Derived>,
    /// Which rows are kept: those that pass all filters.
    #[serde(default)]
    pub(crate) filter: Vec<Filter>,
    /// Columns by whose values rows are grouped.
    #[serde(default)]
    pub(crate) group: Vec<String>,
    /// Figures of each group, or of all rows if there is no group.
    #[serde(default)]
    pub(crate) aggregates: Vec<Aggregate>,
    /// The order of the result; rows that are equal in it are in the order of the dataset.
    #[serde(default)]
    pub(crate) order: Vec<Order>,
    /// Most rows; shown queries have a default, saved ones have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    /// Rows of the result that are left out at its beginning.
    #[serde(default)]
    pub(crate) offset: u64,
}

impl Query {
    /// All rows of a dataset, as they are.
    pub(crate) fn of(source: i64) -> Self {
        Self {
            source,
            join: None,
            derive: Vec::new(),
            filter: Vec::new(),
            group: Vec::new(),
            aggregates: Vec::new(),
            order: Vec::new(),
            limit: None,
            offset: 0,
        }
    }
}

/// Another dataset beside the first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Join {
    /// The other dataset.
    pub(crate) dataset: i64,
    /// The column of the first that is compared.
    pub(crate) left: String,
    /// The column of the other that equals it.
    pub(crate) right: String,
    /// What happens to rows without a partner.
    pub(crate) kind: JoinKind,
}

/// What happens to rows of the first dataset without a partner in the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JoinKind {
    /// They are left out.
    Inner,
    /// They stay; the other's columns are missing.
    Left,
}

/// A column that is computed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Derived {
    /// Its name.
    pub(crate) name: String,
    /// How: see [`expression`].
    pub(crate) expression: String,
}

/// How a filter compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Comparison {
    /// Equal.
    #[serde(rename = "=")]
    Equal,
    /// Not equal.
    #[serde(rename = "!=")]
    NotEqual,
    /// Less.
    #[serde(rename = "<")]
    Less,
    /// Less or equal.
    #[serde(rename = "<=")]
    LessOrEqual,
    /// Greater.
    #[serde(rename = ">")]
    Greater,
    /// Greater or equal.
    #[serde(rename = ">=")]
    GreaterOrEqual,
    /// The text has the value in it, letter by letter.
    #[serde(rename = "contains")]
    Contains,
    /// It is missing.
    #[serde(rename = "is_null")]
    IsNull,
    /// It is not missing.
    #[serde(rename = "not_null")]
    NotNull,
}

/// A condition on a column. A missing value passes `is_null` alone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// The column.
    pub(crate) column: String,
    /// How it is compared.
    pub(crate) operator: Comparison,
    /// With what; not needed by `is_null` and `not_null`.
    #[serde(default)]
    pub(crate) value: Value,
}

/// A figure of a group's rows. Missing values do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AggregateFunction {
    /// Rows, or values of a column that are there.
    Count,
    /// The sum; missing if it does not fit the column's type.
    Sum,
    /// The mean.
    Mean,
    /// The smallest value.
    Minimum,
    /// The largest value.
    Maximum,
    /// The median, between two values their mean.
    P50,
    /// The 99th percentile, between two values in proportion.
    P99,
    /// The standard deviation of a sample; missing for a single value.
    Stddev,
}

/// An aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Aggregate {
    /// The figure.
    pub(crate) function: AggregateFunction,
    /// Of which column; `count` needs none.
    #[serde(default)]
    pub(crate) column: Option<String>,
    /// The name of the result's column.
    pub(crate) name: String,
}

/// A column of the order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// A column of the result.
    pub(crate) column: String,
    /// The largest first. Missing values count as smallest.
    #[serde(default)]
    pub(crate) descending: bool,
}
