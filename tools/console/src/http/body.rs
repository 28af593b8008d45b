//! Bodies and queries of requests: their limits, and values from them.
//!
//! - I1: a body whose next piece does not come in time fails, uploads included.
//! - I2: a JSON body has at most [`JSON_BYTES_MAX`] bytes, comes as `application/json` within
//!   [`Limits::json_body`](crate::options::Limits::json_body), and has no unknown field where its
//!   type denies them. Values nest at most 128 deep, by the limit of `serde_json`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Frame, SizeHint};
use serde::de::DeserializeOwned;
use tokio::time::{Sleep, sleep, timeout};

use crate::error::{ApiError, ApiResult};
use crate::state::AppState;

/// Longest JSON body, in bytes.
pub(crate) const JSON_BYTES_MAX: usize = 64 << 10;

/// A body that fails when its next piece takes too long. Only the time counts during which the
/// handler waits for it.
struct Patient {
    body: axum::body::Body,
    pause: Duration,
    late: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for Patient {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.late = None;
            return Poll::Ready(frame);
        }
        let pause = self.pause;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(pause)));
        match late.as_mut().poll(context) {
            Poll::Ready(()) => {
                let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
                Poll::Ready(Some(Err(axum::Error::new(error))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.body)
    }
}

/// Gives the bodies of requests their patience.
pub(super) async fn be_patient(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    let pause = state.options.limits.body_pause;
    let request = request.map(|body| {
        axum::body::Body::new(Patient {
            body,
            pause,
            late: None,
        })
    });
    next.run(request).await
}

/// The value of a JSON body.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

async fn read(body: axum::body::Body) -> ApiResult<Bytes> {
    let collected = Limited::new(body, JSON_BYTES_MAX).collect().await;
    let collected = collected.map_err(|error| match error.is::<LengthLimitError>() {
        true => ApiError::too_large(format!(
            "the body is longer than {JSON_BYTES_MAX} bytes: send less"
        )),
        false => ApiError::malformed("the body did not arrive as a whole: send it again"),
    })?;
    Ok(collected.to_bytes())
}

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> ApiResult<Self> {
        if !is_json(request.headers()) {
            let message = "the body must be JSON, with the header Content-Type: application/json";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(ApiError::new(status, "wrong_content_type", message));
        }
        let bytes = timeout(state.options.limits.json_body, read(request.into_body())).await;
        let bytes = bytes.map_err(|_| {
            let message = "the body took too long to arrive: send it again";
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
        })??;
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            ApiError::malformed(format!("the body is not what this path takes: {error}"))
        })?;
        Ok(Self(value))
    }
}

/// The number that a path names a thing by, in its last or only parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id(pub(crate) i64);

impl FromRequestParts<AppState> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> ApiResult<Self> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|error| ApiError::malformed(error.body_text()))?;
        let id = text.parse().ok().filter(|&id| id > 0);
        id.map(Self).ok_or_else(|| {
            ApiError::malformed("the path needs the number of a thing, such as /api/runs/12")
        })
    }
}

/// The number of things on a page, from a parameter `limit`.
///
/// # Errors
/// It is below 1 or above `max`.
pub(crate) fn page_limit(limit: Option<i64>, default: i64, max: i64) -> ApiResult<i64> {
    let limit = limit.unwrap_or(default);
    if (1..=max).contains(&limit) {
        return Ok(limit);
    }
    let message = format!("limit is {limit}: write 1 to {max}");
    Err(ApiError::invalid("limit", message))
}

/// The parameters after the `?` of a path.
#[derive(Debug)]
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Parameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> ApiResult<Self> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let wrong = |error: QueryRejection| ApiError::malformed(error.body_text());
        query.map(|Query(value)| Self(value)).map_err(wrong)
    }
}
