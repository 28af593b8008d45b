//! The tables of datasets in `data.db`, and how one is filled.
//!
//! `d_<id>` has the columns `c0` to `cN`, in the order of the dataset. `datasets` numbers them, so
//! that no number is used twice.
//!
//! - I1: SQL names tables and columns by number. No name or value of a file becomes part of it.
//! - I2: a table that is not in the catalogue is being filled, or is dropped: when its
//!   [`TableWriter`] fails or is dropped, or by the next start.
//! - I3: a writer holds the database for one batch at a time, never while it waits for a client, a
//!   file or the next row: a batch is collected in memory, then written.

use axum::http::StatusCode;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, Transaction, TransactionBehavior, params_from_iter};

use super::cell::{Cell, Column, RowSink};
use super::limits::{DataLimits, ROWS_BETWEEN_CHECKS, broken};
use super::stop::Stop;
use crate::error::{ApiError, ApiResult};

/// Rows of a transaction.
const BATCH_ROWS: usize = 10_000;
/// Bytes of a transaction's rows in memory, roughly.
const BATCH_BYTES: usize = 8 << 20;

/// A value of a batch.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kept {
    Null,
    Integer(i64),
    Number(f64),
    /// A text ends here; it begins where the one before it ends.
    Text(usize),
}

/// Rows that are not written yet.
#[derive(Debug, Default)]
struct Batch {
    rows: usize,
    /// Of all rows, one after the other.
    values: Vec<Kept>,
    /// All texts, one after the other.
    texts: String,
}

impl Batch {
    fn add(&mut self, row: &[Cell<'_>]) {
        self.rows += 1;
        for cell in row {
            self.values.push(match *cell {
                Cell::Null => Kept::Null,
                Cell::Integer(value) => Kept::Integer(value),
                Cell::Number(value) => Kept::Number(value),
                Cell::Text(text) => {
                    self.texts.push_str(text);
                    Kept::Text(self.texts.len())
                }
            });
        }
    }

    fn is_full(&self) -> bool {
        let bytes = self.values.len() * size_of::<Kept>() + self.texts.len();
        self.rows >= BATCH_ROWS || bytes >= BATCH_BYTES
    }

    /// The values, in order.
    fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut start = 0;
        self.values.iter().map(move |kept| match *kept {
            Kept::Null => Cell::Null,
            Kept::Integer(value) => Cell::Integer(value),
            Kept::Number(value) => Cell::Number(value),
            Kept::Text(end) => Cell::Text(&self.texts[std::mem::replace(&mut start, end)..end]),
        })
    }

    fn clear(&mut self) {
        self.rows = 0;
        self.values.clear();
        self.texts.clear();
    }
}

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
    batch: Batch,
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
            batch: Batch::default(),
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
        Ok(())
    }

    /// Writes the batch in a transaction of its own.
    fn flush(&mut self) -> ApiResult<()> {
        if self.batch.rows == 0 {
            return Ok(());
        }
        let immediate = TransactionBehavior::Immediate;
        let transaction =
            Transaction::new_unchecked(&self.connection, immediate).map_err(failed)?;
        let mut insert = transaction.prepare_cached(&self.insert).map_err(failed)?;
        let mut cells = self.batch.cells();
        for _ in 0..self.batch.rows {
            let row = cells.by_ref().take(self.columns.len());
            insert.execute(params_from_iter(row)).map_err(failed)?;
        }
        drop((insert, cells));
        transaction.commit().map_err(failed)?;
        self.batch.clear();
        Ok(())
    }

    /// Ends the table. It stays once it is in the catalogue: [`keep`](Self::keep).
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn finish(&mut self) -> ApiResult<Written> {
        self.flush()?;
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
        if row.len() != self.columns.len() {
            let (count, columns) = (row.len(), self.columns.len());
            return Err(ApiError::internal(format!(
                "a row has {count} cells, and its table {columns} columns"
            )));
        }
        self.batch.add(row);
        if self.batch.is_full() {
            self.flush()?;
        }
        Ok(())
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if let Err(error) = drop_table(&self.connection, self.id) {
            // The next start drops it.
            tracing::warn!(%error, dataset = self.id, "a partial dataset was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::data::cell::ColumnType;

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        connection
    }

    #[test]
    fn a_writer_holds_no_lock_between_rows() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data.db");
        let beside = open(&path);
        let made = "CREATE TABLE datasets (id INTEGER PRIMARY KEY AUTOINCREMENT) STRICT";
        beside.execute_batch(made).unwrap();
        let columns = [
            Column::new("n", ColumnType::Integer),
            Column::new("x", ColumnType::Number),
            Column::new("t", ColumnType::Text),
            Column::new("u", ColumnType::Text),
        ];
        let limits = DataLimits::default();
        let writer = TableWriter::create(open(&path), &columns, limits, Stop::default());
        let mut writer = writer.unwrap();
        let text = "日".repeat(500);
        // More than a batch of bytes, then more than a batch of rows.
        for n in 0..20_000 {
            let long = if n < 8_000 { &text } else { "" };
            let null = if n % 3 == 0 {
                Cell::Null
            } else {
                Cell::Text("b")
            };
            let row = [Cell::Integer(n), Cell::Number(0.5), Cell::Text(long), null];
            writer.row(&row).unwrap();
            if n % 1_000 == 0 {
                beside.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
            }
            assert!(writer.batch.texts.len() < BATCH_BYTES && writer.batch.rows < BATCH_ROWS);
        }
        let written = writer.finish().unwrap();
        assert_eq!((written.id, written.rows), (1, 20_000));
        let wrong = "SELECT count(*) FROM d_1 WHERE c1 <> 0.5 OR c0 <> rowid - 1 \
            OR c2 <> CASE WHEN c0 < 8000 THEN ?1 ELSE '' END \
            OR c3 IS NOT CASE WHEN c0 % 3 = 0 THEN NULL ELSE 'b' END";
        let count = beside.query_row(wrong, [&text], |row| row.get::<_, i64>(0));
        assert_eq!(count.unwrap(), 0);
        let all = beside.query_row("SELECT count(*) FROM d_1", [], |row| row.get::<_, i64>(0));
        assert_eq!(all.unwrap(), 20_000);
        drop(writer);
        assert_eq!(super::all(&beside).unwrap(), [] as [i64; 0]);
    }
}
