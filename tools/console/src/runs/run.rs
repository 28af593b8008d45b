//! A run in the database.

use farcore_card::simulator::{Outcome, SimulationSettings};
use farcore_tuning::HistogramSnapshot;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::series::{Figures, Series};
use crate::clock::now_ms;
use crate::error::{ApiError, ApiResult};

/// The state of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    /// It waits for a thread.
    Queued,
    /// A thread simulates.
    Running,
    /// It came to its end.
    Done,
    /// A user ended it.
    Cancelled,
    /// It could not go on.
    Failed,
    /// The console stopped or died before its end.
    Interrupted,
}

impl RunState {
    const ALL: [Self; 6] = [
        Self::Queued,
        Self::Running,
        Self::Done,
        Self::Cancelled,
        Self::Failed,
        Self::Interrupted,
    ];

    /// The name in answers and in the database.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }

    /// Whether it never changes again.
    pub(crate) const fn has_ended(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

impl ToSql for RunState {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.name().into())
    }
}

impl FromSql for RunState {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        let state = Self::ALL.into_iter().find(|state| state.name() == name);
        state.ok_or(FromSqlError::InvalidType)
    }
}

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct RunProgress {
    /// Messages that were started.
    pub(super) started: u64,
    /// Messages that will be.
    pub(super) total: u64,
}

/// A run, as lists show it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) state: RunState,
    pub(super) by: String,
    pub(super) trace: Option<i64>,
    pub(super) created_ms: i64,
    pub(super) started_ms: Option<i64>,
    pub(super) ended_ms: Option<i64>,
    pub(super) progress: RunProgress,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// The settings by which people know a run again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) brief: Option<Value>,
}

/// JSON text of a column that this program has written.
fn parsed(text: Option<String>) -> Option<Value> {
    text.and_then(|text| serde_json::from_str(&text).ok())
}

fn absent(id: i64) -> ApiError {
    ApiError::absent(format_args!("run {id}"))
}

impl Run {
    /// What [`Run::of`] reads.
    pub(super) const COLUMNS: &str = "id, name, state, by_name, trace, created_ms, started_ms,
        ended_ms, started, total, summary, error,
        CASE WHEN json_valid(settings) THEN json_object(
            'queue_pairs', settings ->> '$.workload.population.queue_pairs',
            'pattern', settings ->> '$.workload.pattern.name',
            'policy', settings ->> '$.card.policy',
            'card_entries', settings ->> '$.card.card_entries',
            'cxl_pages', settings ->> '$.card.cxl_pages'
        ) END";

    /// A run of a row of [`Run::COLUMNS`].
    ///
    /// # Errors
    /// Another version has written it.
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            name: row.get(1)?,
            state: row.get(2)?,
            by: row.get(3)?,
            trace: row.get(4)?,
            created_ms: row.get(5)?,
            started_ms: row.get(6)?,
            ended_ms: row.get(7)?,
            progress: RunProgress {
                started: row.get::<_, i64>(8)?.unsigned_abs(),
                total: row.get::<_, i64>(9)?.unsigned_abs(),
            },
            summary: parsed(row.get(10)?),
            error: row.get(11)?,
            brief: parsed(row.get(12)?),
        })
    }

    /// The run of a number.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn find(console: &Connection, id: i64) -> ApiResult<Self> {
        let text = format!("SELECT {} FROM runs WHERE id = ?1", Self::COLUMNS);
        let mut statement = console.prepare_cached(&text)?;
        statement
            .query_row([id], Self::of)
            .optional()?
            .ok_or_else(|| absent(id))
    }

    /// Adds a run to the queue.
    ///
    /// # Errors
    /// The database fails.
    pub(super) fn insert(
        console: &Connection,
        name: &str,
        by: &str,
        settings: &SimulationSettings,
        trace: Option<i64>,
    ) -> ApiResult<Self> {
        let total = i64::try_from(settings.messages.saturating_add(settings.warmup));
        console.execute(
            "INSERT INTO runs (name, state, by_name, settings, trace, created_ms, total)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                name,
                RunState::Queued,
                by,
                serde_json::to_string(settings)?,
                trace,
                now_ms(),
                total.unwrap_or(i64::MAX),
            ],
        )?;
        Self::find(console, console.last_insert_rowid())
    }
}

/// The settings of a run and its outcome, if it has one, as JSON.
///
/// # Errors
/// There is no such run.
pub(super) fn details(console: &Connection, id: i64) -> ApiResult<(Value, Option<Value>)> {
    let text = "SELECT settings, outcome FROM runs WHERE id = ?1";
    let found = console.query_row(text, [id], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
    });
    let (settings, outcome) = found.optional()?.ok_or_else(|| absent(id))?;
    Ok((serde_json::from_str(&settings)?, parsed(outcome)))
}

/// The settings that a run was given.
///
/// # Errors
/// There is no such run, or another version has written it.
pub(super) fn settings(console: &Connection, id: i64) -> ApiResult<SimulationSettings> {
    let (settings, _) = details(console, id)?;
    Ok(serde_json::from_value(settings)?)
}

/// Stores points from a place on.
///
/// # Errors
/// The database fails.
pub(super) fn add_points(
    console: &Connection,
    id: i64,
    first: usize,
    points: &[Figures],
) -> ApiResult<()> {
    let text = "INSERT INTO run_points (run, place, figures) VALUES (?1, ?2, ?3)";
    let mut statement = console.prepare_cached(text)?;
    for (place, figures) in (first..).zip(points) {
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        statement.execute(params![id, place, serde_json::to_string(figures)?])?;
    }
    Ok(())
}

/// The stored points of a run from a place on.
///
/// # Errors
/// The database fails.
pub(super) fn points(console: &Connection, id: i64, first: usize) -> ApiResult<Vec<Figures>> {
    let text = "SELECT figures FROM run_points WHERE run = ?1 AND place >= ?2 ORDER BY place";
    let mut statement = console.prepare_cached(text)?;
    let first = i64::try_from(first).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![id, first])?;
    let mut points = Vec::new();
    while let Some(row) = rows.next()? {
        points.push(serde_json::from_str(
            row.get_ref(0)?.as_str().map_err(ApiError::internal)?,
        )?);
    }
    Ok(points)
}

/// The name and the stored series of a run.
///
/// # Errors
/// There is no such run.
pub(crate) fn series_of(console: &Connection, id: i64) -> ApiResult<(String, Series)> {
    let run = Run::find(console, id)?;
    Ok((run.name, Series::of(points(console, id, 0)?)))
}

/// A histogram for people: count, mean and quantiles, without its buckets.
fn latencies(of: &HistogramSnapshot) -> Value {
    json!({
        "count": of.count(),
        "mean_ns": of.mean(),
        "p50_ns": of.quantile(0.5),
        "p90_ns": of.quantile(0.9),
        "p99_ns": of.quantile(0.99),
        "p999_ns": of.quantile(0.999),
        "max_ns": of.max(),
    })
}

/// What an answer shows of an outcome: everything but settings and series, which have columns of
/// their own.
///
/// # Errors
/// None in practice.
pub(super) fn shown(outcome: &Outcome) -> ApiResult<Value> {
    let mut value = serde_json::to_value(outcome)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("settings");
        fields.remove("series");
    }
    let statistics = &outcome.statistics;
    value["statistics"]["latency"] = latencies(&statistics.latency);
    value["statistics"]["batch_latency"] = latencies(&statistics.batch_latency);
    value["statistics"]["expand_latency"] = latencies(&statistics.expand_latency);
    value["statistics"]["migration_latency"] = latencies(&statistics.migration_latency);
    Ok(value)
}

/// What lists and comparisons show of an outcome.
pub(super) fn summary(outcome: &Outcome) -> Value {
    json!({
        "messages_s": outcome.messages_s,
        "hit_ratio": outcome.hit_ratio,
        "p50_ns": outcome.p50_ns,
        "p99_ns": outcome.p99_ns,
        "p999_ns": outcome.p999_ns,
        "cxl_load": outcome.cxl_load,
        "host_load": outcome.host_load,
        "migrations": outcome.statistics.migration.total(),
        "verdict": outcome.verdict,
    })
}
