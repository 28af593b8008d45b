//! Runs compiled queries within limits.
//!
//! - I1: a query has a connection of its own that cannot write, and an authorizer that knows the
//!   tables of its datasets and our functions.
//! - I2: a query ends when its time is over or its client has gone: SQLite asks every
//!   [`OPERATIONS_BETWEEN_CHECKS`] operations.
//! - I3: few queries run at a time; others wait for their turn, then are refused.
//! - I4: a text of a result is no longer than one of a dataset. Texts are joined within that limit,
//!   so that a row with many of them fits the memory before it is looked at.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Row, params_from_iter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::aggregate::{self, TooManyValues};
use super::compile::Plan;
use super::function::{self, TextTooLong};
use crate::data::cell::{Cell, Column, ColumnType, RowSink};
use crate::data::limits::{DataLimits, unprocessable};
use crate::data::stop::{Stop, stopped};
use crate::data::table;
use crate::error::{ApiError, ApiResult};

/// Queries whose answers are shown, at a time.
const SHOWN: usize = 2;
/// Queries whose results are saved or exported, at a time.
const SAVED: usize = 1;
/// Steps of SQLite's machine between two looks at the clock: some microseconds.
const OPERATIONS_BETWEEN_CHECKS: i32 = 1_000;
/// Longest row that SQLite sorts.
const VALUE_BYTES_MAX: i32 = 32 << 20;
/// SQLite's cache of pages, in KiB.
const CACHE_KIB: i64 = 16 << 10;
/// Functions of SQLite that terms call.
const PLAIN: [&str; 2] = ["coalesce", "nullif"];

/// How long a query may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::data) enum Time {
    /// Its answer is shown.
    Show,
    /// Its result is saved or exported.
    Save,
}

/// Runs queries on a database of datasets.
#[derive(Debug)]
pub(in crate::data) struct Runner {
    path: PathBuf,
    limits: DataLimits,
    shown: Arc<Semaphore>,
    saved: Arc<Semaphore>,
}

/// What a query may do: read the tables of its datasets, and call our functions.
fn authorize(action: AuthAction<'_>, tables: &[String]) -> Authorization {
    let is_allowed = match action {
        AuthAction::Select => true,
        AuthAction::Read { table_name, .. } => tables.iter().any(|table| table == table_name),
        AuthAction::Function { function_name } => {
            function::is_ours(function_name)
                || aggregate::is_ours(function_name)
                || PLAIN.contains(&function_name)
        }
        _ => false,
    };
    if is_allowed {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

/// A connection that can read the tables of a query.
fn connect(path: &Path, tables: &[i64], limits: &DataLimits) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    function::register(&connection, limits.cell_bytes)?;
    aggregate::register(&connection, limits.percentile_values)?;
    let tables: Vec<String> = tables.iter().map(|&id| table::name(id)).collect();
    connection.authorizer(Some(move |context: AuthContext<'_>| {
        authorize(context.action, &tables)
    }))?;
    Ok(connection)
}

/// The cell of a result.
fn cell<'a>(row: &'a Row<'_>, place: usize, column: &Column) -> ApiResult<Cell<'a>> {
    let value = row.get_ref(place)?;
    Ok(match (value, column.kind) {
        (ValueRef::Null, _) => Cell::Null,
        (ValueRef::Integer(value), ColumnType::Integer) => Cell::Integer(value),
        (ValueRef::Integer(value), ColumnType::Number) => Cell::Number(value as f64),
        (ValueRef::Real(value), ColumnType::Number) => Cell::number(value),
        (ValueRef::Text(bytes), ColumnType::Text) => {
            Cell::Text(std::str::from_utf8(bytes).map_err(ApiError::internal)?)
        }
        (value, kind) => {
            let found = value.data_type();
            return Err(ApiError::internal(format!(
                "the result's column {place} is {found} instead of {kind:?}"
            )));
        }
    })
}

impl Runner {
    /// Runs queries on the database at a path.
    pub(in crate::data) fn new(path: PathBuf, limits: DataLimits) -> Self {
        Self {
            path,
            limits,
            shown: Arc::new(Semaphore::new(SHOWN)),
            saved: Arc::new(Semaphore::new(SAVED)),
        }
    }

    /// Waits for a turn, at most as long as a query may take.
    ///
    /// # Errors
    /// None comes in time.
    pub(in crate::data) async fn turn(&self, time: Time) -> ApiResult<OwnedSemaphorePermit> {
        let (turns, count) = match time {
            Time::Show => (&self.shown, SHOWN),
            Time::Save => (&self.saved, SAVED),
        };
        match timeout(self.time(time), Arc::clone(turns).acquire_owned()).await {
            Ok(turn) => turn.map_err(ApiError::internal),
            Err(_) => Err(ApiError::busy(format!(
                "{count} such queries are running, the most at a time: try again when one has ended"
            ))),
        }
    }

    fn time(&self, time: Time) -> Duration {
        match time {
            Time::Show => self.limits.query_time,
            Time::Save => self.limits.save_time,
        }
    }

    fn error(&self, error: Error, plan: &Plan, time: Time, stop: &Stop) -> ApiError {
        let text = error.to_string();
        if let Error::UserFunctionError(inner) = &error
            && inner.is::<TooManyValues>()
        {
            return self.too_many_values();
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) if stop.is_set() => stopped(),
            Some(ErrorCode::OperationInterrupted) => unprocessable(
                "query_too_slow",
                format!(
                    "the query takes longer than {} s: filter more, or save an intermediate result as a dataset",
                    self.time(time).as_secs()
                ),
            ),
            Some(ErrorCode::TooBig) => self
                .limits
                .text_too_long("the result", self.limits.cell_bytes),
            _ if text.contains("no such table") => ApiError::absent(format!(
                "dataset {}",
                plan.tables
                    .iter()
                    .map(i64::to_string)
                    .collect::<Vec<_>>()
                    .join(" or ")
            )),
            _ if text.contains(&TooManyValues.to_string()) => self.too_many_values(),
            _ if text.contains(&TextTooLong.to_string()) => self
                .limits
                .text_too_long("the result", self.limits.cell_bytes + 1),
            _ => table::failed(error),
        }
    }

    /// Refuses texts that no cell of a dataset may have: a sink may keep a row as it is.
    fn check(&self, row: &[Cell<'_>]) -> ApiResult<()> {
        let lengths = row.iter().filter_map(|cell| match cell {
            Cell::Text(text) => Some(text.len()),
            _ => None,
        });
        match lengths.max() {
            Some(length) if length > self.limits.cell_bytes => {
                Err(self.limits.text_too_long("the result", length))
            }
            _ => Ok(()),
        }
    }

    fn too_many_values(&self) -> ApiError {
        unprocessable(
            "query_too_large",
            format!(
                "percentiles are of more than {} values at a time: filter or group more",
                self.limits.percentile_values
            ),
        )
    }

    /// Runs a query on this thread; gives its rows to a sink.
    ///
    /// # Errors
    /// It takes too long or too much, a dataset is gone, it shall stop, or the sink's.
    pub(in crate::data) fn run(
        &self,
        plan: &Plan,
        time: Time,
        stop: &Stop,
        sink: &mut dyn RowSink,
    ) -> ApiResult<()> {
        let failed = |error| self.error(error, plan, time, stop);
        let mut connection = connect(&self.path, &plan.tables, &self.limits).map_err(failed)?;
        let end = Instant::now() + self.time(time);
        let watched = stop.clone();
        let shall_stop = move || watched.is_set() || Instant::now() >= end;
        connection
            .progress_handler(OPERATIONS_BETWEEN_CHECKS, Some(shall_stop))
            .map_err(failed)?;
        let mut statement = connection.prepare(&plan.sql).map_err(failed)?;
        let mut rows = statement
            .query(params_from_iter(&plan.values))
            .map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let cells = plan.columns.iter().enumerate();
            let cells = cells.map(|(place, column)| cell(row, place, column));
            let cells: Vec<_> = cells.collect::<ApiResult<_>>()?;
            self.check(&cells)?;
            sink.row(&cells)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_querys_connection_reads_its_tables_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data.db");
        let writer = Connection::open(&path).unwrap();
        let tables = "CREATE TABLE d_1 (c0 INTEGER) STRICT; CREATE TABLE d_2 (c0 INTEGER) STRICT";
        writer.execute_batch(tables).unwrap();
        let connection = connect(&path, &[1], &DataLimits::default()).unwrap();
        connection
            .prepare("SELECT farcore_abs(c0), coalesce(c0, 1), count(*) FROM d_1")
            .unwrap();
        for refused in [
            "SELECT c0 FROM d_2",
            "SELECT name FROM sqlite_schema",
            "SELECT load_extension('x')",
            "SELECT randomblob(1000000000)",
            "SELECT * FROM pragma_table_info('d_1')",
            "INSERT INTO d_1 VALUES (1)",
            "DROP TABLE d_1",
            "CREATE TEMP TABLE t (x)",
            "ATTACH ':memory:' AS other",
            "PRAGMA query_only = 0",
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
            "BEGIN",
        ] {
            let prepared = connection.prepare(refused);
            let error = prepared.map(|mut one| one.raw_execute()).err();
            let text = error.map(|error| error.to_string());
            let is_refused = text
                .as_ref()
                .is_some_and(|text| text.contains("not authorized") || text.contains("prohibited"));
            assert!(is_refused, "{refused}: {text:?}");
        }
    }
}
