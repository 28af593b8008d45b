//! Who sends a request, and whether they may.
//!
//! [`resolve`] looks the session of the cookie up once a request; [`check`] runs before each
//! handler and compares the session with the access that its route needs.

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::access::{Access, Cookie, Session};
use crate::error::ApiError;
use crate::state::AppState;

/// The header with the CSRF token.
const CSRF_HEADER: &str = "x-csrf-token";

/// Puts the session of the cookie, if there is a live one, into the request.
pub(super) async fn resolve(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_interface = request.uri().path().starts_with("/api/");
    let token = Cookie::Session.token(request.headers(), state.options.is_behind_tls);
    if is_interface && let Some(token) = token {
        match Session::find(&state, token).await {
            Ok(Some(session)) => {
                request.extensions_mut().insert(session);
            }
            Ok(None) => {}
            Err(error) => return error.into_response(),
        }
    }
    next.run(request).await
}

fn allow(access: Access, request: &Request) -> Result<(), ApiError> {
    let Some(role) = access.role() else {
        return Ok(());
    };
    let session = request.extensions().get::<Session>().ok_or_else(|| {
        let message = "this needs a session, and there is none or it has ended: sign in";
        ApiError::new(StatusCode::UNAUTHORIZED, "not_signed_in", message)
    })?;
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let sent = request.headers().get(CSRF_HEADER);
    let sent = sent.map_or(&[][..], |value| value.as_bytes());
    if !is_safe && !bool::from(sent.ct_eq(session.csrf().as_bytes())) {
        let message = "the header X-CSRF-Token is not that of the session: load the page again";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "wrong_csrf", message));
    }
    if session.account.role < role {
        let message = format!(
            "this needs the role {}, and {} has the role {}",
            role.name(),
            session.account.name,
            session.account.role.name()
        );
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    Ok(())
}

/// Passes a request that its route allows.
pub(super) async fn check(access: Access, request: Request, next: Next) -> Response {
    match allow(access, &request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}
