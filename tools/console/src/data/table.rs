//! The tables of datasets in `data.db`, and how one is filled.
//!
//! `d_<id>` has the columns `c0` to `cN`, in the order of the dataset. `datasets` numbers them, so
//! that no number is used twice.
//!
//! - I1: SQL names tables and columns by number. No name or value of a file becomes part of it.
//! - I2: a table that is not in the catalogue is being filled, or is dropped: when its
//!   [`TableWriter`] fails or is dropped, or by the next start.
//! - I3: a writer holds the database for one batch at a time, never while it waits for a client.

use axum::http::StatusCode;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, Transaction, TransactionBehavior, params_from_iter};

use super::cell::{Cell, Column, RowSink};
use super::limits::{DataLimits, ROWS_BETWEEN_CHECKS, broken};
use super::stop::Stop;
use crate::error::{ApiError, ApiResult};

/// Rows of a transaction.
const BATCH_ROWS: u64 = 10_000;
/// Bytes of a transaction, roughly.
const BATCH_BYTES: u64 = 8 << 20;

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match *self {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Integer(value) => ToSqlOutput::Owned(Value::Integer(value)),
            Cell::Number(value) => ToSqlOutput::Owned(Value::Real(value)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

/// An error of the database: a full disk is named, anything else is internal.
pub(super) fn failed(error: rusqlite::Error) -> ApiError {
    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
        let message = "the disk of the console is full: delete datasets or runs, or make room";
        return ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", message);
    }
    ApiError::from(error)
}

/// The name of a dataset's table.
pub(super) fn name(dataset: i64) -> String {
    format!("d_{dataset}")
}

/// Drops the table of a dataset, if there is one.
///
/// # Errors
/// Those of SQLite.
pub(super) fn drop_table(connection: &Connection, dataset: i64) -> rusqlite::Result<()> {
    connection.execute_batch(&format!("DROP TABLE IF EXISTS {}", name(dataset)))?;
    connection.execute("DELETE FROM datasets WHERE id = ?1", [dataset])?;
    Ok(())
}

/// The datasets that have a table or a number.
///
/// # Errors
/// Those of SQLite.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let tables = "SELECT CAST(substr(name, 3) AS INTEGER) FROM sqlite_schema \
        WHERE type = 'table' AND name GLOB 'd_[0-9]*' UNION SELECT id FROM datasets";
    let mut statement = connection.prepare(tables)?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Written {
    /// The dataset's number.
    pub(super) id: i64,
    /// Its rows.
    pub(super) rows: u64,
    /// The bytes of its values.
    pub(super) bytes: u64,
}

/// Fills the table of a new dataset.
#[derive(Debug)]
pub(super) struct TableWriter {
    connection: Connection,
    id: i64,
    columns: Vec<Column>,
    insert: String,
    limits: DataLimits,
    stop: Stop,
    rows: u64,
    bytes: u64,
    /// Of the open transaction; no rows if there is none.
    batch_rows: u64,
    batch_bytes: u64,
    is_finished: bool,
}

impl TableWriter {
    /// Makes the table of a new dataset over a connection of its own.
    ///
    /// # Errors
    /// There are too many columns, or those of SQLite.
    pub(super) fn create(
        connection: Connection,
        columns: &[Column],
        limits: DataLimits,
        stop: Stop,
    ) -> ApiResult<Self> {
        if columns.is_empty() {
            return Err(broken("there are no columns: a dataset has at least 1"));
        }
        if columns.len() > limits.columns {
            return Err(limits.too_many_columns("the dataset", columns.len()));
        }
        // The lock comes first, so that a writer beside this one is waited for.
        let immediate = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&connection, immediate).map_err(failed)?;
        transaction
            .execute("INSERT INTO datasets DEFAULT VALUES", [])
            .map_err(failed)?;
        let id = transaction.last_insert_rowid();
        let table = name(id);
        let list = (0..).zip(columns);
        let definitions =
            list.map(|(at, column): (usize, _)| format!("c{at} {}", column.kind.sql()));
        let definitions = definitions.collect::<Vec<_>>().join(", ");
        transaction
            .execute_batch(&format!("CREATE TABLE {table} ({definitions}) STRICT"))
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
        let places = vec!["?"; columns.len()].join(", ");
        Ok(Self {
            connection,
            id,
            columns: columns.to_vec(),
            insert: format!("INSERT INTO {table} VALUES ({places})"),
            limits,
            stop,
            rows: 0,
            bytes: 0,
            batch_rows: 0,
            batch_bytes: 0,
            is_finished: false,
        })
    }

    fn check(&mut self, row: &[Cell<'_>]) -> ApiResult<()> {
        self.rows += 1;
        if self.rows > self.limits.rows {
            return Err(self.limits.too_many_rows());
        }
        if self.rows.is_multiple_of(ROWS_BETWEEN_CHECKS) {
            self.stop.check()?;
        }
        let before = self.bytes;
        for (cell, column) in row.iter().zip(&self.columns) {
            self.bytes += cell.bytes();
            let Cell::Text(text) = cell else {
                continue;
            };
            let place = || format!("row {}, column `{}`,", self.rows, column.name);
            if text.len() > self.limits.cell_bytes {
                return Err(self.limits.text_too_long(&place(), text.len()));
            }
            if text.as_bytes().contains(&0) {
                return Err(broken(format!(
                    "{} has a NUL: texts cannot have one, remove it",
                    place()
                )));
            }
        }
        if self.bytes > self.limits.dataset_bytes {
            return Err(self.limits.dataset_too_large());
        }
        self.batch_bytes += self.bytes - before;
        Ok(())
    }

    fn commit(&mut self) -> ApiResult<()> {
        if self.batch_rows > 0 {
            self.connection.execute_batch("COMMIT").map_err(failed)?;
        }
        self.batch_rows = 0;
        self.batch_bytes = 0;
        Ok(())
    }

    /// Ends the table. It stays once it is in the catalogue: [`keep`](Self::keep).
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn finish(&mut self) -> ApiResult<Written> {
        self.commit()?;
        self.stop.check()?;
        Ok(Written {
            id: self.id,
            rows: self.rows,
            bytes: self.bytes,
        })
    }

    /// The table is in the catalogue: it is not dropped any more.
    pub(super) fn keep(mut self) {
        self.is_finished = true;
    }
}

impl RowSink for TableWriter {
    fn row(&mut self, row: &[Cell<'_>]) -> ApiResult<()> {
        self.check(row)?;
        if self.batch_rows == 0 {
            self.connection
                .execute_batch("BEGIN IMMEDIATE")
                .map_err(failed)?;
        }
        self.batch_rows += 1;
        let mut insert = self
            .connection
            .prepare_cached(&self.insert)
            .map_err(failed)?;
        insert.execute(params_from_iter(row)).map_err(failed)?;
        drop(insert);
        if self.batch_rows >= BATCH_ROWS || self.batch_bytes >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(())
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if self.batch_rows > 0 {
            // An error of the transaction may have ended it already.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        if let Err(error) = drop_table(&self.connection, self.id) {
            // The next start drops it.
            tracing::warn!(%error, dataset = self.id, "a partial dataset was not removed");
        }
    }
}
