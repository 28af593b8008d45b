//! From a query to one SQL statement.
//!
//! ```text
//! SELECT l.c0, l.c1, r.c0, <derived>      or: <group>, <aggregates>
//! FROM d_1 AS l CROSS JOIN d_2 AS r ON l.c0 = r.c3
//! WHERE <filters> GROUP BY <group>
//! ORDER BY <order>, <the rest of the group, or rowids> LIMIT ? OFFSET ?
//! ```
//!
//! - I1: derived columns are put in where they are used, so that the size of the statement is known
//!   before SQLite reads it.
//! - I2: an error names the field of the query that it is about.

use std::collections::HashMap;

use rusqlite::types::Value as Bind;
use serde_json::Value;

use super::aggregate::{self, Figure};
use super::expression::{self, Scope};
use super::term::{Bound, Kind, Term};
use super::{
    AGGREGATES_MAX, AggregateFunction, Comparison, DERIVED_MAX, FILTERS_MAX, Filter, GROUP_MAX,
    JoinKind, Query,
};
use crate::data::cell::{Column, ColumnType};
use crate::data::import::{Class, classify};
use crate::data::names::ColumnNames;
use crate::data::table;
use crate::error::{ApiError, ApiResult};

/// Most values of a statement: SQLite's own limit.
const BOUND_MAX: usize = 32_000;

/// A dataset of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::data) struct Source {
    /// Its number.
    pub(in crate::data) id: i64,
    /// Its columns.
    pub(in crate::data) columns: Vec<Column>,
}

/// How many rows are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::data) enum Window {
    /// A page to show. One row more is computed, which says whether there are more.
    Page {
        /// Rows if the query has no limit.
        default: u64,
        /// Rows at most, whatever the query's limit.
        most: u64,
    },
    /// All.
    All,
}

/// A compiled query.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::data) struct Plan {
    /// The statement.
    pub(super) sql: String,
    /// Its values.
    pub(super) values: Vec<Bind>,
    /// The columns of the result.
    pub(in crate::data) columns: Vec<Column>,
    /// The datasets.
    pub(super) tables: Vec<i64>,
    /// The rows of a page.
    pub(in crate::data) page: Option<u64>,
}

/// The columns that a query can name, in order.
#[derive(Debug, Default)]
struct Columns {
    names: ColumnNames,
    places: HashMap<String, usize>,
    all: Vec<(Column, Term)>,
}

impl Columns {
    fn add(&mut self, name: String, kind: ColumnType, term: Term) {
        self.places.insert(name.clone(), self.all.len());
        self.all.push((Column::new(name, kind), term));
    }

    fn get(&self, name: &str) -> Option<&(Column, Term)> {
        self.places.get(name).map(|&place| &self.all[place])
    }

    fn find(&self, name: &str, field: impl FnOnce() -> String) -> ApiResult<&(Column, Term)> {
        self.get(name).ok_or_else(|| {
            ApiError::invalid(
                field(),
                format!("there is no column `{name}`: choose one of the dataset or a derived one"),
            )
        })
    }
}

/// Refuses a list that is too long.
fn at_most(count: usize, most: usize, field: &str) -> ApiResult<()> {
    if count <= most {
        return Ok(());
    }
    Err(ApiError::invalid(
        field,
        format!("the query has {count} in `{field}`, and at most {most} are computed: remove some"),
    ))
}

fn sources(left: &Source, right: Option<&Source>) -> Columns {
    let mut columns = Columns::default();
    let both = [("l", "", Some(left)), ("r", "joined.", right)];
    for (table, prefix, source) in both {
        let Some(source) = source else {
            continue;
        };
        for (place, column) in source.columns.iter().enumerate() {
            let name = columns.names.unique(format!("{prefix}{}", column.name));
            let term = Term::leaf(format!("{table}.c{place}"), Kind::Of(column.kind));
            columns.add(name, column.kind, term);
        }
    }
    columns
}

fn derive(query: &Query, columns: &mut Columns, bound: &mut Bound) -> ApiResult<()> {
    at_most(query.derive.len(), DERIVED_MAX, "derive")?;
    for (place, derived) in query.derive.iter().enumerate() {
        let wrong =
            |part: &str, what: String| ApiError::invalid(format!("derive[{place}].{part}"), what);
        let name = columns.names.choose(&derived.name);
        let name = name.map_err(|what| wrong("name", what))?;
        let find = |name: &str| columns.get(name).map(|(_, term)| term.clone());
        let mut scope = Scope {
            column: &find,
            bound,
        };
        let term = expression::compile(&derived.expression, &mut scope);
        let term = term.map_err(|what| wrong("expression", what))?;
        let (kind, sql) = match term.kind {
            Kind::Of(ColumnType::Number) => {
                (ColumnType::Number, format!("farcore_finite({})", term.sql))
            }
            Kind::Of(kind) => (kind, term.sql.clone()),
            Kind::Condition => (ColumnType::Integer, term.sql.clone()),
            Kind::Null => (ColumnType::Text, term.sql.clone()),
        };
        let made = Term::of(sql, Kind::Of(kind), &[&term]);
        let made =
            made.ok_or_else(|| wrong("expression", "the expression is too long".to_owned()))?;
        columns.add(name, kind, made);
    }
    Ok(())
}

/// The value of a filter as one of the column's type.
fn operand(filter: &Filter, kind: ColumnType, field: impl Fn() -> String) -> ApiResult<Bind> {
    let value = &filter.value;
    let found = match (kind, value) {
        (ColumnType::Text, Value::String(text)) => Some(Bind::Text(text.clone())),
        (ColumnType::Text, _) => None,
        (_, Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(value), _) => Some(Bind::Integer(value)),
            (None, value) => value.map(Bind::Real),
        },
        // Forms send texts.
        (_, Value::String(text)) => match classify(text) {
            Class::Integer(value) => Some(Bind::Integer(value)),
            Class::Number(value) => Some(Bind::Real(value)),
            _ => None,
        },
        _ => None,
    };
    found.ok_or_else(|| {
        ApiError::invalid(
            field(),
            format!(
                "the column `{}` is {}: compare it with one",
                filter.column,
                kind.words()
            ),
        )
    })
}

fn condition(
    filter: &Filter,
    place: usize,
    columns: &Columns,
    bound: &mut Bound,
) -> ApiResult<String> {
    let field = |part: &'static str| move || format!("filter[{place}].{part}");
    let (column, term) = columns.find(&filter.column, field("column"))?;
    let sign = match filter.operator {
        Comparison::IsNull => return Ok(format!("({} IS NULL)", term.sql)),
        Comparison::NotNull => return Ok(format!("({} IS NOT NULL)", term.sql)),
        Comparison::Contains if column.kind != ColumnType::Text => {
            return Err(ApiError::invalid(
                format!("filter[{place}].operator"),
                format!(
                    "`contains` is for texts, and the column `{}` is {}",
                    column.name,
                    column.kind.words()
                ),
            ));
        }
        Comparison::Contains => "contains",
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    };
    let value = bound.add(operand(filter, column.kind, field("value"))?);
    Ok(match filter.operator {
        Comparison::Contains => format!("farcore_contains({}, {value})", term.sql),
        _ => format!("({} {sign} {value})", term.sql),
    })
}

/// The part after FROM.
fn from(query: &Query, left: &Source, right: Option<&Source>) -> ApiResult<String> {
    let table = table::name(left.id);
    let (Some(join), Some(right)) = (&query.join, right) else {
        return Ok(format!("{table} AS l"));
    };
    let find = |source: &Source, name: &str, field: &str| {
        let place = source.columns.iter().position(|column| column.name == name);
        place.ok_or_else(|| {
            ApiError::invalid(
                field,
                format!("there is no column `{name}` in that dataset: choose another"),
            )
        })
    };
    let one = find(left, &join.left, "join.left")?;
    let other = find(right, &join.right, "join.right")?;
    let kinds = [left.columns[one].kind, right.columns[other].kind];
    if (kinds[0] == ColumnType::Text) != (kinds[1] == ColumnType::Text) {
        return Err(ApiError::invalid(
            "join",
            format!(
                "`{}` is {} and `{}` is {}: join columns of one type",
                join.left,
                kinds[0].words(),
                join.right,
                kinds[1].words()
            ),
        ));
    }
    // CROSS fixes the order of the loops, and with it that of the rows.
    let kind = match join.kind {
        JoinKind::Inner => "CROSS JOIN",
        JoinKind::Left => "LEFT JOIN",
    };
    let other_table = table::name(right.id);
    Ok(format!(
        "{table} AS l {kind} {other_table} AS r ON l.c{one} = r.c{other}"
    ))
}

/// What is selected.
#[derive(Debug, Default)]
struct Selection {
    names: ColumnNames,
    columns: Vec<Column>,
    terms: Vec<String>,
    /// How many of the columns are the group; `None` without groups and aggregates.
    grouped: Option<usize>,
}

fn selection(query: &Query, columns: &Columns) -> ApiResult<Selection> {
    let mut selected = Selection::default();
    if query.group.is_empty() && query.aggregates.is_empty() {
        for (column, term) in &columns.all {
            selected.columns.push(column.clone());
            selected.terms.push(term.sql.clone());
        }
        return Ok(selected);
    }
    at_most(query.group.len(), GROUP_MAX, "group")?;
    at_most(query.aggregates.len(), AGGREGATES_MAX, "aggregates")?;
    selected.grouped = Some(query.group.len());
    for (place, name) in query.group.iter().enumerate() {
        let (column, term) = columns.find(name, || format!("group[{place}]"))?;
        let twice = |what| ApiError::invalid(format!("group[{place}]"), what);
        selected.names.choose(&column.name).map_err(twice)?;
        selected.columns.push(column.clone());
        selected.terms.push(term.sql.clone());
    }
    for (place, wanted) in query.aggregates.iter().enumerate() {
        let field = |part: &str| format!("aggregates[{place}].{part}");
        let name = selected.names.choose(&wanted.name);
        let name = name.map_err(|what| ApiError::invalid(field("name"), what))?;
        let column = match &wanted.column {
            Some(name) => Some(columns.find(name, || field("column"))?),
            None if wanted.function == AggregateFunction::Count => None,
            None => {
                let what = "choose the column that the figure is of";
                return Err(ApiError::invalid(field("column"), what));
            }
        };
        let of = column.map(|(column, term)| (column.kind, term.sql.as_str()));
        let Figure { sql, kind } = aggregate::figure(wanted.function, of).ok_or_else(|| {
            let what =
                "the column is a text: choose a column of numbers, or count, minimum or maximum";
            ApiError::invalid(field("column"), what)
        })?;
        selected.columns.push(Column::new(name, kind));
        selected.terms.push(sql);
    }
    Ok(selected)
}

/// The order of the result, in which no two rows are equal.
fn order(query: &Query, selected: &Selection, has_join: bool) -> ApiResult<String> {
    at_most(query.order.len(), FILTERS_MAX, "order")?;
    let mut parts = Vec::new();
    let mut named = Vec::new();
    for (place, order) in query.order.iter().enumerate() {
        let found = selected
            .columns
            .iter()
            .position(|column| column.name == order.column);
        let found = found.ok_or_else(|| {
            ApiError::invalid(
                format!("order[{place}].column"),
                format!(
                    "the result has no column `{}`: order by one that it has",
                    order.column
                ),
            )
        })?;
        let direction = if order.descending { " DESC" } else { "" };
        parts.push(format!("{}{direction}", found + 1));
        named.push(found);
    }
    match selected.grouped {
        Some(count) => {
            let rest = (0..count).filter(|place| !named.contains(place));
            parts.extend(rest.map(|place| (place + 1).to_string()));
        }
        None => {
            parts.push("l.rowid".to_owned());
            if has_join {
                parts.push("r.rowid".to_owned());
            }
        }
    }
    if parts.is_empty() {
        return Ok(String::new());
    }
    Ok(format!(" ORDER BY {}", parts.join(", ")))
}

/// The rows of a page, and the limit in the statement.
fn limit(query: &Query, window: Window) -> ApiResult<(Option<u64>, i64)> {
    let signed = |rows: u64| i64::try_from(rows).unwrap_or(i64::MAX);
    match window {
        Window::All => Ok((None, query.limit.map_or(-1, signed))),
        Window::Page { default, most } => {
            let rows = query.limit.unwrap_or(default);
            if rows > most {
                return Err(ApiError::invalid(
                    "limit",
                    format!(
                        "the limit is {rows}, and at most {most} rows are shown at a time: use offset for the next ones"
                    ),
                ));
            }
            Ok((Some(rows), signed(rows + 1)))
        }
    }
}

/// Compiles a query over datasets.
///
/// # Errors
/// A field of the query does not fit the datasets.
pub(in crate::data) fn compile(
    query: &Query,
    left: &Source,
    right: Option<&Source>,
    window: Window,
) -> ApiResult<Plan> {
    let mut bound = Bound::default();
    let from = from(query, left, right)?;
    let mut columns = sources(left, right);
    derive(query, &mut columns, &mut bound)?;
    at_most(query.filter.len(), FILTERS_MAX, "filter")?;
    let filters = query.filter.iter().enumerate();
    let filters = filters.map(|(place, filter)| condition(filter, place, &columns, &mut bound));
    let filters: Vec<_> = filters.collect::<ApiResult<_>>()?;
    let selected = selection(query, &columns)?;
    let mut sql = format!("SELECT {} FROM {from}", selected.terms.join(", "));
    if !filters.is_empty() {
        sql += &format!(" WHERE {}", filters.join(" AND "));
    }
    if let Some(count @ 1..) = selected.grouped {
        let places = (1..=count).map(|place| place.to_string());
        sql += &format!(" GROUP BY {}", places.collect::<Vec<_>>().join(", "));
    }
    sql += &order(query, &selected, right.is_some())?;
    let (page, rows) = limit(query, window)?;
    let offset = i64::try_from(query.offset).unwrap_or(i64::MAX);
    let (rows, offset) = (bound.add(rows), bound.add(offset));
    sql += &format!(" LIMIT {rows} OFFSET {offset}");
    let values = bound.into_values();
    if values.len() > BOUND_MAX {
        let what = "the expressions have too many values: save an intermediate result as a dataset";
        return Err(ApiError::invalid("derive", what));
    }
    let mut tables = vec![left.id];
    tables.extend(right.map(|right| right.id));
    Ok(Plan {
        sql,
        values,
        columns: selected.columns,
        tables,
        page,
    })
}
