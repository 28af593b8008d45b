//! The answer to a request that fails: a status, a stable code for programs and pages, and a
//! sentence for people with the limit, the value and the remedy.
//!
//! - I1: what went wrong inside goes to the log of the process, never into an answer.

use std::fmt::Display;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A request that fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    field: Option<String>,
    retry_after: Option<Duration>,
}

/// The outcome of a handler or of work in a database.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error with a status of its own. `code` is snake_case and never changes.
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            field: None,
            retry_after: None,
        }
    }

    /// 400: the request cannot be read.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", message)
    }

    /// 422: a field has a value that does not work. `field` is its path, e.g. `settings.messages`.
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: Some(field.into()),
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
        }
    }

    /// 404: there is no such thing.
    pub(crate) fn absent(what: impl Display) -> Self {
        let message = format!("there is no {what}: it may have been deleted");
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// 409: the state of the thing forbids this.
    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 413: longer than a limit.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// 503: too much at once.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message);
        error.after(Duration::from_secs(1))
    }

    /// 500: something inside failed, which the log of the process tells.
    pub(crate) fn internal(error: impl Display) -> Self {
        tracing::error!(%error, "a request failed");
        let message = "something failed inside the console: its log on stderr says what";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// Adds the field that the error is about.
    pub(crate) fn of_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Adds when another try may succeed.
    pub(crate) fn after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// The code.
    #[cfg(test)]
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// The sentence.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl From<rusqlite::Error> for ApiError {
    fn from(error: rusqlite::Error) -> Self {
        Self::internal(error)
    }
}

impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(field) = self.field {
            error["field"] = field.into();
        }
        let mut response = (self.status, Json(json!({ "error": error }))).into_response();
        if let Some(time) = self.retry_after {
            // Rounded up, so that a client that waits this time is not too early.
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            let value = HeaderValue::from(seconds.max(1));
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        response
    }
}
