//! The routes of runs that answer at once.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::form;
use super::listing::Which;
use super::run::{self, Run, RunProgress, RunState};
use super::series::Series;
use crate::access::Session;
use crate::error::{ApiError, ApiResult};
use crate::events::{Event, Level};
use crate::http::{Body, Id, Parameters, page_limit};
use crate::state::AppState;
use crate::store::Folder;

/// Longest name, in characters.
const NAME_MAX: usize = 100;
/// Runs that may wait.
const QUEUED_MAX: i64 = 1_000;
/// Runs of a page, and most of them.
const PAGE: i64 = 50;
const PAGE_MAX: i64 = 200;

/// A page of runs.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    runs: Vec<Run>,
    /// Where the next page begins: `before` in the order of numbers, else `offset`. Null on the
    /// last.
    next: Option<i64>,
}

/// `GET /api/runs`
pub(super) async fn list(
    State(state): State<AppState>,
    Parameters(which): Parameters<Which>,
) -> ApiResult<Json<Page>> {
    let limit = page_limit(which.limit, PAGE, PAGE_MAX)?;
    if which.offset < 0 {
        let message = format!("offset is {}: write 0 or more", which.offset);
        return Err(ApiError::invalid("offset", message));
    }
    let (is_by_number, offset) = (which.is_by_number(), which.offset);
    let read = move |console: &Connection| which.runs(console, limit + 1);
    let mut runs = state.console.read(read).await?;
    let has_more = runs.len() as u64 > limit.unsigned_abs();
    if has_more {
        runs.pop();
    }
    for run in &mut runs {
        freshen(&state, run);
    }
    let next = match is_by_number {
        true => runs.last().map(|run| run.id),
        false => Some(offset.saturating_add(limit)),
    };
    let next = next.filter(|_| has_more);
    Ok(Json(Page { runs, next }))
}

/// Puts the progress of this moment into a run that is under way.
fn freshen(state: &AppState, run: &mut Run) {
    if let Some(watched) = state.runner.watched(run.id) {
        let position = *watched.position().borrow();
        run.progress = RunProgress {
            started: position.started,
            total: position.total,
        };
    }
}

/// The body of a new run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    name: String,
    settings: Value,
    trace: Option<i64>,
}

/// Checks the name of a run.
fn check_name(name: &str) -> ApiResult<String> {
    let name = name.trim();
    let count = name.chars().count();
    if count == 0 || count > NAME_MAX {
        let message = format!("the name has {count} characters: write 1 to {NAME_MAX}");
        return Err(ApiError::invalid("name", message));
    }
    if name.contains(char::is_control) {
        let message =
            "the name has characters that cannot be seen: write letters, digits and signs";
        return Err(ApiError::invalid("name", message));
    }
    Ok(name.to_owned())
}

fn check_trace(console: &Connection, folder: &Folder, trace: i64) -> ApiResult<()> {
    let text = "SELECT format FROM datasets WHERE id = ?1";
    let found = console.query_row(text, [trace], |row| row.get::<_, String>(0));
    match found.optional()?.as_deref() {
        Some("trace") if folder.trace(trace).is_file() => Ok(()),
        Some("trace") => {
            let message = format!("the text of dataset {trace} is missing: import it again");
            Err(ApiError::invalid("trace", message))
        }
        Some(other) => {
            let message =
                format!("dataset {trace} has the format {other}: choose one of format trace");
            Err(ApiError::invalid("trace", message))
        }
        None => Err(ApiError::invalid(
            "trace",
            format!("there is no dataset {trace}"),
        )),
    }
}

/// `POST /api/runs`
pub(super) async fn add(
    State(state): State<AppState>,
    session: Session,
    Body(new): Body<New>,
) -> ApiResult<(StatusCode, Json<Run>)> {
    let name = check_name(&new.name)?;
    let has_trace = new.trace.is_some();
    let settings = form::checked(&state.checks, new.settings, has_trace).await?;
    let trace = new.trace;
    let folder = Arc::clone(&state.folder);
    let add = move |console: &Connection| {
        if let Some(trace) = trace {
            check_trace(console, &folder, trace)?;
        }
        let text = "SELECT count(*) FROM runs WHERE state = 'queued'";
        let queued: i64 = console.query_row(text, [], |row| row.get(0))?;
        if queued >= QUEUED_MAX {
            let message = format!("{QUEUED_MAX} runs wait already: cancel some, or wait");
            return Err(ApiError::conflict("queue_full", message));
        }
        let by = &session.account.name;
        let run = Run::insert(console, &name, by, &settings, trace)?;
        let message = format!("run {} was queued: {name}", run.id);
        Event::of_run(Level::Info, run.id, message)
            .by(by)
            .write(console)?;
        Ok(run)
    };
    let run = state.console.write(add).await?;
    state.runner.notify();
    Ok((StatusCode::CREATED, Json(run)))
}

/// `GET /api/runs/{id}`
pub(super) async fn show(State(state): State<AppState>, Id(id): Id) -> ApiResult<Json<Value>> {
    let read = move |console: &Connection| {
        let run = Run::find(console, id)?;
        Ok((run, run::details(console, id)?))
    };
    let (mut run, (settings, outcome)) = state.console.read(read).await?;
    freshen(&state, &mut run);
    // All settings follow.
    run.brief = None;
    let mut value = serde_json::to_value(run)?;
    value["settings"] = settings;
    value["outcome"] = outcome.unwrap_or(Value::Null);
    Ok(Json(value))
}

/// `GET /api/runs/{id}/series`
pub(super) async fn series(State(state): State<AppState>, Id(id): Id) -> ApiResult<Json<Series>> {
    // Points that are not stored yet are in memory while the run is under way.
    if let Some(watched) = state.runner.watched(id) {
        return Ok(Json(Series::of(watched.points_from(0))));
    }
    let read = move |console: &Connection| run::series_of(console, id);
    let (_, series) = state.console.read(read).await?;
    Ok(Json(series))
}

/// `POST /api/runs/{id}/cancel`
pub(super) async fn cancel(
    State(state): State<AppState>,
    Id(id): Id,
    session: Session,
) -> ApiResult<StatusCode> {
    let order = move |console: &Connection| {
        let run = Run::find(console, id)?;
        if run.state.has_ended() {
            let message = format!("run {id} is {} already", run.state.name());
            return Err(ApiError::conflict("ended", message));
        }
        if run.state == RunState::Queued {
            console.execute(
                "UPDATE runs SET state = 'cancelled', ended_ms = ?2 WHERE id = ?1",
                params![id, crate::clock::now_ms()],
            )?;
        }
        let by = &session.account.name;
        let message = format!("{by} cancelled run {id}");
        Event::of_run(Level::Info, id, message)
            .by(by)
            .write(console)
    };
    state.console.write(order).await?;
    // A run that is under way ends at its next report of progress.
    if let Some(watched) = state.runner.watched(id) {
        watched.cancel();
    }
    state.runner.notify();
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /api/runs/{id}`
pub(super) async fn remove(
    State(state): State<AppState>,
    Id(id): Id,
    session: Session,
) -> ApiResult<StatusCode> {
    let remove = move |console: &Connection| {
        let run = Run::find(console, id)?;
        if !run.state.has_ended() {
            let message = format!("run {id} is {}: cancel it first", run.state.name());
            return Err(ApiError::conflict("not_ended", message));
        }
        console.execute("DELETE FROM runs WHERE id = ?1", [id])?;
        let by = &session.account.name;
        let message = format!("deleted run {id}: {}", run.name);
        Event::audit(Level::Info, by, message)
            .about_run(id)
            .write(console)
    };
    state.console.write(remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A run as JSON with its settings, outcome and series, for export.
///
/// # Errors
/// There is no such run.
pub(super) fn whole(console: &Connection, id: i64) -> ApiResult<Value> {
    let mut run = Run::find(console, id)?;
    run.brief = None;
    let (settings, outcome) = run::details(console, id)?;
    let (_, series) = run::series_of(console, id)?;
    let mut value = serde_json::to_value(run)?;
    value["settings"] = settings;
    value["outcome"] = outcome.unwrap_or(Value::Null);
    value["series"] = json!(series);
    Ok(value)
}
