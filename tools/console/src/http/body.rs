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
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use tokio::time::{Sleep, sleep, timeout};

use crate::error::{ApiError, ApiResult};
use crate::state::AppState;

/// Longest JSON body, in bytes.
pub(crate) const JSON_BYTES_MAX: usize = 64 << 10;
/// Digits of a number that surely fits 63 bits. No thing has a longer one.
const NUMBER_DIGITS: usize = 18;

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
        if text.len() > NUMBER_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ApiError::absent("thing of this number"));
        }
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

/// Longest value of a parameter that an error repeats, in characters.
const SHOWN_MAX: usize = 40;

/// The name in a parser's sentence such as ``missing field `name` ``.
fn quoted<'a>(sentence: &'a str, before: &str) -> Option<&'a str> {
    let (_, after) = sentence.split_once(before)?;
    after.split('`').nth(1)
}

/// What is wrong with the parameters `query`, of which a parser says `sentence`: its names of
/// types and its counting of letters are not for people.
fn wrong_parameter(query: &str, sentence: &str) -> ApiError {
    if let Some(name) = quoted(sentence, "missing field") {
        let message = format!("the parameter `{name}` is missing: add it");
        return ApiError::malformed(message).of_field(name);
    }
    if let Some(name) = quoted(sentence, "unknown field") {
        let message = format!("the parameter `{name}` is not known here: leave it out");
        return ApiError::malformed(message).of_field(name);
    }
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let named = pairs.into_iter().find(|(name, _)| {
        let place = format!(": {name}: ");
        !name.is_empty() && sentence.contains(&place)
    });
    let Some((name, value)) = named else {
        return ApiError::malformed("the parameters after the `?` cannot be read: leave them out");
    };
    let value = percent_decode_str(value).decode_utf8_lossy();
    let shown: String = value.chars().take(SHOWN_MAX).collect();
    let message = format!("`{name}` cannot be `{shown}`: change it or leave it out");
    ApiError::malformed(message).of_field(name)
}

/// The parameters after the `?` of a path.
#[derive(Debug)]
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Parameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> ApiResult<Self> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let text = parts.uri.query().unwrap_or_default();
        let wrong = |error: QueryRejection| wrong_parameter(text, &error.body_text());
        query.map(|Query(value)| Self(value)).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        One,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Known {
        #[serde(rename = "name")]
        _name: String,
        #[serde(rename = "run")]
        _run: Option<i64>,
        #[serde(rename = "word")]
        _word: Option<Word>,
    }

    #[test]
    fn errors_of_parameters_say_the_name_and_no_type() {
        for (query, message) in [
            (
                "name=a&run=abc",
                "`run` cannot be `abc`: change it or leave it out",
            ),
            (
                "name=a&run=",
                "`run` cannot be ``: change it or leave it out",
            ),
            (
                "name=a&run=%C3%A9%3A",
                "`run` cannot be `é:`: change it or leave it out",
            ),
            (
                "run=1&name=a&word=two",
                "`word` cannot be `two`: change it or leave it out",
            ),
            ("run=1", "the parameter `name` is missing: add it"),
            (
                "name=a&path=b",
                "the parameter `path` is not known here: leave it out",
            ),
        ] {
            let uri: Uri = format!("/?{query}").parse().unwrap();
            let error = Query::<Known>::try_from_uri(&uri).unwrap_err();
            assert_eq!(
                wrong_parameter(query, &error.body_text()).message(),
                message,
                "{error}"
            );
        }
    }
}
