//! The routes of datasets and queries.

use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::{Value, json};

use super::catalog::Dataset;
use super::export::ExportFormat;
use super::import::{CsvOptions, Delimiter, Format, Header};
use super::query::Query;
use super::send::Sent;
use super::service::ImportRequest;
use crate::access::Session;
use crate::error::{ApiError, ApiResult};
use crate::http::{Body, Id, Parameters};
use crate::runs::run::series_of;
use crate::state::AppState;

/// What a file's name in a header may not hold as it is: RFC 8187.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// `GET /api/datasets`
pub(super) async fn list(State(state): State<AppState>) -> ApiResult<Json<Value>> {
    let datasets = state.datasets.list().await?;
    Ok(Json(json!({ "datasets": datasets })))
}

/// `GET /api/datasets/{id}`
pub(super) async fn show(State(state): State<AppState>, Id(id): Id) -> ApiResult<Json<Dataset>> {
    state.datasets.get(id).await.map(Json)
}

/// `DELETE /api/datasets/{id}`
pub(super) async fn remove(
    State(state): State<AppState>,
    session: Session,
    Id(id): Id,
) -> ApiResult<StatusCode> {
    state.datasets.remove(id, session.account.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The parameters of an import.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportParameters {
    name: String,
    #[serde(default)]
    format: Format,
    #[serde(default)]
    header: Header,
    #[serde(default)]
    delimiter: Delimiter,
}

/// `POST /api/datasets?name=&format=&header=&delimiter=`: the bytes of a file.
pub(super) async fn import(
    State(state): State<AppState>,
    session: Session,
    Parameters(parameters): Parameters<ImportParameters>,
    body: Bytes,
) -> ApiResult<(StatusCode, Json<Dataset>)> {
    let request = ImportRequest {
        name: parameters.name,
        format: parameters.format,
        csv: CsvOptions {
            header: parameters.header,
            delimiter: parameters.delimiter,
        },
    };
    let by = session.account.name;
    let dataset = state.datasets.import(request, by, body).await?;
    Ok((StatusCode::CREATED, Json(dataset)))
}

/// The parameters of a preview.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PreviewParameters {
    limit: Option<u64>,
    #[serde(default)]
    offset: u64,
}

fn json_text(text: Vec<u8>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// `GET /api/datasets/{id}/preview?limit=&offset=`: rows as they are.
pub(super) async fn preview(
    State(state): State<AppState>,
    Id(id): Id,
    Parameters(parameters): Parameters<PreviewParameters>,
) -> ApiResult<Response> {
    let query = Query {
        limit: parameters.limit,
        offset: parameters.offset,
        ..Query::of(id)
    };
    state.datasets.answer(query).await.map(json_text)
}

/// `POST /api/query`
pub(super) async fn answer(
    State(state): State<AppState>,
    Body(query): Body<Query>,
) -> ApiResult<Response> {
    state.datasets.answer(query).await.map(json_text)
}

/// What is saved.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SaveRequest {
    name: String,
    query: Query,
}

/// `POST /api/query/save`
pub(super) async fn save(
    State(state): State<AppState>,
    session: Session,
    Body(request): Body<SaveRequest>,
) -> ApiResult<(StatusCode, Json<Dataset>)> {
    let by = session.account.name;
    let saved = state
        .datasets
        .save(&request.name, request.query, by)
        .await?;
    Ok((StatusCode::CREATED, Json(saved)))
}

/// How a run's series is named.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeriesRequest {
    name: String,
}

/// `POST /api/runs/{id}/dataset`: the points of a run so far.
pub(super) async fn save_series(
    State(state): State<AppState>,
    session: Session,
    Id(id): Id,
    Body(request): Body<SeriesRequest>,
) -> ApiResult<(StatusCode, Json<Dataset>)> {
    let read = move |console: &Connection| series_of(console, id);
    let (_, series) = state.console.read(read).await?;
    let columns = series.columns.iter().map(|column| column.name.to_owned());
    let saved = state.datasets.save_figures(
        &request.name,
        session.account.name,
        columns.collect(),
        series.rows,
    );
    Ok((StatusCode::CREATED, Json(saved.await?)))
}

/// The parameters of an export.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportParameters {
    format: ExportFormat,
}

/// The header that names a file: plain letters for old programs, and the whole name (RFC 6266).
fn disposition(name: &str, format: ExportFormat) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    let end = format.extension();
    let whole = utf8_percent_encode(name, NAME);
    format!("attachment; filename=\"{plain}.{end}\"; filename*=UTF-8''{whole}.{end}")
}

/// `POST /api/query/export?format=`
pub(super) async fn export(
    State(state): State<AppState>,
    Parameters(ExportParameters { format }): Parameters<ExportParameters>,
    Body(query): Body<Query>,
) -> ApiResult<Response> {
    let exported = state.datasets.export(query, format).await?;
    let name = disposition(&exported.name, format);
    let name = HeaderValue::try_from(name).map_err(ApiError::internal)?;
    let Sent { body, length } = state.datasets.send(exported).await?;
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(format.media_type()),
        ),
        (header::CONTENT_DISPOSITION, name),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
    ];
    Ok((headers, body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_cannot_leave_their_header() {
        let made = disposition("a\"; x=../日\r\nSet-Cookie: y", ExportFormat::Csv);
        assert!(HeaderValue::try_from(&made).is_ok(), "{made}");
        assert!(
            made.starts_with("attachment; filename=\"a___x_____"),
            "{made}"
        );
        assert!(
            !made.contains('\n') && made.matches('"').count() == 2,
            "{made}"
        );
        assert!(made.ends_with("%3A%20y.csv"), "{made}");
    }
}
