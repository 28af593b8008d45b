//! The routes of searches, and a search as a file.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use farcore_card::simulator::{Arrival, FitObject, FitPolicy, FitSettings, SimulationSettings};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::search::{Search, set_state};
use crate::access::Session;
use crate::error::{ApiError, ApiResult};
use crate::events::{Event, Level};
use crate::http::{Body, Id, Parameters};
use crate::runs::run::RunState;
use crate::runs::{ExportFormat, checked};
use crate::state::AppState;

/// Searches that lists show.
const LISTED: i64 = 50;
/// Searches that may wait.
const QUEUED_MAX: i64 = 100;
/// Most messages of a simulation, however long it takes to be steady.
const MESSAGES_MAX: u64 = 64_000_000;

/// The searches, newest first.
#[derive(Debug, Serialize)]
pub(super) struct List {
    fits: Vec<Search>,
}

/// `GET /api/fits`
pub(super) async fn list(State(state): State<AppState>) -> ApiResult<Json<List>> {
    let known = state.searcher.known();
    let read = |console: &Connection| Search::newest(console, LISTED);
    let mut fits = state.console.read(read).await?;
    if let Some(known) = known {
        fits.iter_mut().try_for_each(|one| known.freshen(one))?;
    }
    Ok(Json(List { fits }))
}

/// The body of a new search. What is absent has its default.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    /// The settings of a simulation.
    settings: Value,
    object: Option<FitObject>,
    policies: Option<Vec<FitPolicy>>,
    kept: Option<f64>,
    repeats: Option<u32>,
    messages_max: Option<u64>,
}

fn check_length(field: &'static str, messages: u64) -> ApiResult<()> {
    if messages <= MESSAGES_MAX {
        return Ok(());
    }
    let message = format!("{messages} does not work: write 1 to {MESSAGES_MAX}");
    Err(ApiError::invalid(field, message))
}

/// `POST /api/fits`
pub(super) async fn add(
    State(state): State<AppState>,
    session: Session,
    Body(mut new): Body<New>,
) -> ApiResult<(StatusCode, Json<Search>)> {
    let defaults = FitSettings::default();
    if let Some(settings) = new.settings.as_object_mut() {
        let messages = defaults.base.messages.into();
        settings.entry("messages").or_insert(messages);
    }
    let base = checked(&state.checks, new.settings, false).await?;
    if !matches!(base.arrival, Arrival::Closed { .. }) {
        let message = "a search finds the rate: choose messages in flight";
        return Err(ApiError::invalid("settings.arrival.name", message));
    }
    check_length("settings.messages", base.messages)?;
    let longest = FitSettings::messages_max_of(base.messages).min(MESSAGES_MAX);
    let messages_max = new.messages_max.unwrap_or(longest);
    check_length("messages_max", messages_max)?;
    let settings = FitSettings {
        base,
        object: new.object.unwrap_or(defaults.object),
        policies: new.policies.unwrap_or(defaults.policies),
        kept: new.kept.unwrap_or(defaults.kept),
        repeats: new.repeats.unwrap_or(defaults.repeats),
        messages_max,
    };
    settings.validate().map_err(|error| {
        let message = error.to_string();
        let field = message.split(' ').next().unwrap_or_default();
        ApiError::invalid(field.replace('-', "_"), message)
    })?;
    let add = move |console: &Connection| {
        let text = "SELECT count(*) FROM fits WHERE state = 'queued'";
        let queued: i64 = console.query_row(text, [], |row| row.get(0))?;
        if queued >= QUEUED_MAX {
            let message = format!("{QUEUED_MAX} searches wait already: cancel some, or wait");
            return Err(ApiError::conflict("queue_full", message));
        }
        let by = &session.account.name;
        let search = Search::insert(console, by, &settings)?;
        let message = format!("search {} for what fits was queued", search.id);
        Event::of_server(Level::Info, message)
            .by(by)
            .write(console)?;
        Ok(search)
    };
    let search = state.console.write(add).await?;
    state.searcher.notify();
    Ok((StatusCode::CREATED, Json(search)))
}

async fn found(state: &AppState, id: i64) -> ApiResult<Search> {
    let known = state.searcher.known();
    let read = move |console: &Connection| Search::find(console, id);
    let mut search = state.console.read(read).await?;
    if let Some(known) = known {
        known.freshen(&mut search)?;
    }
    Ok(search)
}

/// `GET /api/fits/{id}`
pub(super) async fn show(State(state): State<AppState>, Id(id): Id) -> ApiResult<Json<Search>> {
    Ok(Json(found(&state, id).await?))
}

/// `POST /api/fits/{id}/cancel`
pub(super) async fn cancel(
    State(state): State<AppState>,
    Id(id): Id,
    session: Session,
) -> ApiResult<StatusCode> {
    let order = move |console: &Connection| {
        let search = Search::find(console, id)?;
        if search.state.has_ended() {
            let message = format!("search {id} is {} already", search.state.name());
            return Err(ApiError::conflict("ended", message));
        }
        if search.state == RunState::Queued {
            set_state(console, id, RunState::Cancelled)?;
        }
        let by = &session.account.name;
        let message = format!("{by} cancelled search {id}");
        Event::of_server(Level::Info, message).by(by).write(console)
    };
    state.console.write(order).await?;
    state.searcher.cancel(id);
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /api/fits/{id}`
pub(super) async fn remove(
    State(state): State<AppState>,
    Id(id): Id,
    session: Session,
) -> ApiResult<StatusCode> {
    let remove = move |console: &Connection| {
        let search = Search::find(console, id)?;
        if !search.state.has_ended() {
            let message = format!("search {id} is {}: cancel it first", search.state.name());
            return Err(ApiError::conflict("not_ended", message));
        }
        console.execute("DELETE FROM fits WHERE id = ?1", [id])?;
        let by = &session.account.name;
        Event::audit(Level::Info, by, format!("deleted search {id}")).write(console)
    };
    state.console.write(remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A point of a curve.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    policy: FitPolicy,
    count: u32,
}

fn list_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The messages that a point of a curve needed.
fn messages_of(search: &Search, which: &Which) -> Option<u64> {
    let curves = list_of(search.curves.as_ref()?).iter();
    let mut curves = curves.filter(|curve| curve["policy"] == which.policy.name());
    let mut points = list_of(&curves.next()?["points"]).iter();
    points.find(|point| point["count"] == which.count)?["messages"].as_u64()
}

/// `GET /api/fits/{id}/settings`: those of a run of one point.
pub(super) async fn settings(
    State(state): State<AppState>,
    Id(id): Id,
    Parameters(which): Parameters<Which>,
) -> ApiResult<Json<SimulationSettings>> {
    let search = found(&state, id).await?;
    let mut settings = search.settings.settings(which.policy, which.count, 0);
    settings.points = SimulationSettings::default().points;
    // As many messages as made the figures steady.
    settings.messages = messages_of(&search, &which).unwrap_or(settings.messages);
    settings
        .validate()
        .map_err(|error| ApiError::invalid("count", error.to_string()))?;
    Ok(Json(settings))
}

/// The parameters of an export.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    format: ExportFormat,
}

/// A line a point.
fn csv(search: &Search) -> ApiResult<Vec<u8>> {
    const FIGURES: [&str; 9] = [
        "hit_ratio",
        "p99_ns",
        "cxl_share",
        "host_share",
        "cxl_load",
        "host_load",
        "card_full",
        "cxl_full",
        "is_steady",
    ];
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = [
        "policy",
        "count",
        "messages_s",
        "messages_s_low",
        "messages_s_high",
    ];
    writer
        .write_record(head.into_iter().chain(FIGURES))
        .map_err(ApiError::internal)?;
    for curve in list_of(search.curves.as_ref().unwrap_or(&Value::Null)) {
        for point in list_of(&curve["points"]) {
            let rate = &point["messages_s"];
            let mut cells = vec![curve["policy"].as_str().unwrap_or_default().to_owned()];
            let figures = [&point["count"], &rate["mean"], &rate["low"], &rate["high"]];
            cells.extend(figures.map(Value::to_string));
            cells.extend(FIGURES.iter().map(|name| point[name].to_string()));
            writer.write_record(&cells).map_err(ApiError::internal)?;
        }
    }
    writer.into_inner().map_err(ApiError::internal)
}

/// `GET /api/fits/{id}/export`
pub(super) async fn export(
    State(state): State<AppState>,
    Id(id): Id,
    Parameters(wanted): Parameters<Wanted>,
) -> ApiResult<impl IntoResponse> {
    let search = found(&state, id).await?;
    let bytes = match wanted.format {
        ExportFormat::Csv => csv(&search)?,
        ExportFormat::Json => serde_json::to_vec_pretty(&json!(search))?,
        ExportFormat::Parquet => {
            let message = "a search has no columns for Parquet: write csv or json";
            return Err(ApiError::invalid("format", message));
        }
    };
    let (end, kind) = wanted.format.names();
    let place = format!("attachment; filename=\"fit-{id}.{end}\"");
    let place = HeaderValue::try_from(place).map_err(ApiError::internal)?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_DISPOSITION, place),
    ];
    Ok((headers, bytes))
}
