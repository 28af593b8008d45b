//! A search in the database.

use farcore_card::simulator::{Fit, FitSettings};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::Value;

use crate::clock::now_ms;
use crate::error::{ApiError, ApiResult};
use crate::runs::run::RunState;

/// How far a search is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct SearchProgress {
    /// Simulations that were run.
    pub(super) done: u64,
    /// About how many there will be.
    pub(super) total: u64,
}

/// A search.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Search {
    pub(super) id: i64,
    pub(super) state: RunState,
    pub(super) by: String,
    pub(super) created_ms: i64,
    pub(super) started_ms: Option<i64>,
    pub(super) ended_ms: Option<i64>,
    pub(super) progress: SearchProgress,
    pub(super) settings: FitSettings,
    /// The curves as far as they are known.
    pub(super) curves: Option<Value>,
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Search {
    const COLUMNS: &str = "id, state, by_name, created_ms, started_ms, ended_ms, done, total,
        settings, curves";

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (settings, curves): (String, Option<String>) = (row.get(8)?, row.get(9)?);
        Ok(Self {
            id: row.get(0)?,
            state: row.get(1)?,
            by: row.get(2)?,
            created_ms: row.get(3)?,
            started_ms: row.get(4)?,
            ended_ms: row.get(5)?,
            progress: SearchProgress {
                done: row.get::<_, i64>(6)?.unsigned_abs(),
                total: row.get::<_, i64>(7)?.unsigned_abs(),
            },
            // Another version may have had other settings.
            settings: serde_json::from_str(&settings).unwrap_or_default(),
            curves: curves.and_then(|text| serde_json::from_str(&text).ok()),
        })
    }

    /// The search of a number.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn find(console: &Connection, id: i64) -> ApiResult<Self> {
        let text = format!("SELECT {} FROM fits WHERE id = ?1", Self::COLUMNS);
        let found = console.query_row(&text, [id], Self::of).optional()?;
        found.ok_or_else(|| ApiError::absent(format_args!("search {id}")))
    }

    /// The newest searches.
    ///
    /// # Errors
    /// The database fails.
    pub(super) fn newest(console: &Connection, limit: i64) -> ApiResult<Vec<Self>> {
        let text = format!(
            "SELECT {} FROM fits ORDER BY id DESC LIMIT ?1",
            Self::COLUMNS
        );
        let mut statement = console.prepare_cached(&text)?;
        let searches = statement.query_map([limit], Self::of)?;
        Ok(searches.collect::<Result<_, _>>()?)
    }

    /// The oldest search that waits.
    ///
    /// # Errors
    /// The database fails.
    pub(super) fn oldest_queued(console: &Connection) -> ApiResult<Option<Self>> {
        let text = format!(
            "SELECT {} FROM fits WHERE state = 'queued' ORDER BY id LIMIT 1",
            Self::COLUMNS
        );
        Ok(console.query_row(&text, [], Self::of).optional()?)
    }

    /// Adds a search to the queue.
    ///
    /// # Errors
    /// The database fails.
    pub(super) fn insert(
        console: &Connection,
        by: &str,
        settings: &FitSettings,
    ) -> ApiResult<Self> {
        console.execute(
            "INSERT INTO fits (state, by_name, settings, created_ms) VALUES (?1, ?2, ?3, ?4)",
            params![
                RunState::Queued,
                by,
                serde_json::to_string(settings)?,
                now_ms()
            ],
        )?;
        Self::find(console, console.last_insert_rowid())
    }
}

/// Stores how far a search is, and its state.
///
/// # Errors
/// The database fails.
pub(super) fn store(console: &Connection, id: i64, state: RunState, fit: &Fit) -> ApiResult<()> {
    let (done, total) = fit.progress();
    let ended_ms = state.has_ended().then(now_ms);
    console.execute(
        "UPDATE fits SET state = ?2, done = ?3, total = ?4, curves = ?5, ended_ms = ?6
        WHERE id = ?1",
        params![
            id,
            state,
            count(done),
            count(total),
            serde_json::to_string(&fit.curves())?,
            ended_ms
        ],
    )?;
    Ok(())
}

/// Changes the state of a search that has not begun, or has no figures.
///
/// # Errors
/// The database fails.
pub(super) fn set_state(console: &Connection, id: i64, state: RunState) -> ApiResult<()> {
    let column = match state {
        RunState::Running => "started_ms",
        _ => "ended_ms",
    };
    let text = format!("UPDATE fits SET state = ?2, {column} = ?3 WHERE id = ?1");
    console.execute(&text, params![id, state, now_ms()])?;
    Ok(())
}
