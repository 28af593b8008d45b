//! What is known of each dataset: lines of `datasets` in the console's database.
//!
//! - I1: a dataset exists once its line does. Its table, and the text of a trace, are made before
//!   and removed after it; [`recover`] removes what a process that was killed left between.

use std::collections::BTreeSet;
use std::fs;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;

use super::cell::Column;
use super::limits::{DataLimits, size, unprocessable};
use super::table::{self, Written};
use crate::clock::now_ms;
use crate::error::{ApiError, ApiResult};
use crate::store::Folder;

/// A dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Dataset {
    /// Its number.
    pub(crate) id: i64,
    /// Its name.
    pub(crate) name: String,
    /// Where it came from: `csv`, `json`, `parquet`, `trace`, `query` or `run`.
    pub(crate) format: String,
    /// The number of rows.
    pub(crate) rows: i64,
    /// The columns, in order.
    pub(crate) columns: Vec<Column>,
    /// The bytes of its values.
    pub(crate) bytes: i64,
    /// When it was made.
    pub(crate) created_ms: i64,
    /// Who made it.
    pub(crate) by: String,
}

/// The columns of `datasets`, as [`dataset`] reads them.
const SELECT: &str =
    "SELECT id, name, format, row_count, columns, bytes, created_ms, by_name FROM datasets";

fn dataset(row: &Row<'_>) -> rusqlite::Result<Dataset> {
    let columns: String = row.get(4)?;
    let columns = serde_json::from_str(&columns).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, Box::new(error))
    })?;
    Ok(Dataset {
        id: row.get(0)?,
        name: row.get(1)?,
        format: row.get(2)?,
        rows: row.get(3)?,
        columns,
        bytes: row.get(5)?,
        created_ms: row.get(6)?,
        by: row.get(7)?,
    })
}

/// All datasets, the newest first.
///
/// # Errors
/// Those of SQLite.
pub(super) fn list(console: &Connection) -> ApiResult<Vec<Dataset>> {
    let mut statement = console.prepare_cached(&format!("{SELECT} ORDER BY id DESC"))?;
    let found = statement.query_map([], dataset)?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// A dataset.
///
/// # Errors
/// There is none of this number.
pub(super) fn get(console: &Connection, id: i64) -> ApiResult<Dataset> {
    let found = console
        .query_row(&format!("{SELECT} WHERE id = ?1"), [id], dataset)
        .optional()?;
    found.ok_or_else(|| ApiError::absent(format!("dataset {id}")))
}

/// Refuses a further dataset if there are too many, or if all are too large.
///
/// # Errors
/// There is no room.
pub(super) fn check_room(console: &Connection, limits: &DataLimits, more: u64) -> ApiResult<()> {
    let (count, bytes): (i64, i64) = console.query_row(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM datasets",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    // Sums of sizes are never negative.
    let (count, bytes) = (count.unsigned_abs(), bytes.unsigned_abs());
    if count >= limits.datasets {
        return Err(unprocessable(
            "too_many_datasets",
            format!("there are {count} datasets, the most that are kept: delete some"),
        ));
    }
    if bytes.saturating_add(more) > limits.total_bytes {
        let limit = size(limits.total_bytes);
        return Err(unprocessable(
            "datasets_too_large",
            format!("with this one, all datasets have more than {limit}: delete some"),
        ));
    }
    Ok(())
}

/// Adds a dataset whose table is complete.
///
/// # Errors
/// There is no room, or those of SQLite.
pub(super) fn add(
    console: &Connection,
    limits: &DataLimits,
    written: Written,
    about: About<'_>,
) -> ApiResult<Dataset> {
    check_room(console, limits, written.bytes)?;
    let made = Dataset {
        id: written.id,
        name: about.name.to_owned(),
        format: about.format.to_owned(),
        // Limits keep both far below 2^63.
        rows: i64::try_from(written.rows).unwrap_or(i64::MAX),
        columns: about.columns.to_vec(),
        bytes: i64::try_from(written.bytes).unwrap_or(i64::MAX),
        created_ms: now_ms(),
        by: about.by.to_owned(),
    };
    let columns = serde_json::to_string(&made.columns)?;
    console.execute(
        "INSERT INTO datasets (id, name, format, row_count, columns, bytes, created_ms, by_name)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            made.id,
            made.name,
            made.format,
            made.rows,
            columns,
            made.bytes,
            made.created_ms,
            made.by
        ],
    )?;
    Ok(made)
}

/// What a new dataset is.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Where it came from.
    pub(super) format: &'a str,
    /// Its columns.
    pub(super) columns: &'a [Column],
    /// Who makes it.
    pub(super) by: &'a str,
}

/// Removes the line of a dataset; returns what it was.
///
/// # Errors
/// There is none of this number.
pub(super) fn remove(console: &Connection, id: i64) -> ApiResult<Dataset> {
    let found = get(console, id)?;
    console.execute("DELETE FROM datasets WHERE id = ?1", [id])?;
    Ok(found)
}

/// Removes tables and texts without a line, and lines without a table.
///
/// # Errors
/// Those of SQLite.
pub(super) fn recover(console: &Connection, data: &Connection, folder: &Folder) -> ApiResult<()> {
    let known: BTreeSet<i64> = list(console)?.iter().map(|dataset| dataset.id).collect();
    let tables: BTreeSet<i64> = table::all(data)?.into_iter().collect();
    for &id in tables.difference(&known) {
        tracing::info!(dataset = id, "a partial dataset is removed");
        table::drop_table(data, id)?;
    }
    for &id in known.difference(&tables) {
        tracing::warn!(dataset = id, "a dataset has no table and is removed");
        console.execute("DELETE FROM datasets WHERE id = ?1", [id])?;
    }
    let texts = folder.trace(0);
    let Some(texts) = texts.parent().and_then(|folder| fs::read_dir(folder).ok()) else {
        return Ok(());
    };
    for text in texts.flatten() {
        let id = text.file_name().to_str().and_then(|name| name.parse().ok());
        let is_kept = id.is_some_and(|id: i64| known.contains(&id) && tables.contains(&id));
        if !is_kept && let Err(error) = fs::remove_file(text.path()) {
            tracing::warn!(%error, path = %text.path().display(), "a trace was not removed");
        }
    }
    Ok(())
}
