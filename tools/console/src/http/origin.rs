//! Which sites may send requests, and what browsers may do with answers.
//!
//! - I1: a request names this console in its header Host, once, so that no site can point its own
//!   name at this address (DNS rebinding).
//! - I2: a request that may change something comes from a page of this console, as far as the
//!   browser says where it comes from.
//! - I3: every answer, errors included, has the headers of [`harden`].
//!
//! Source: RFC 9110, 7.2; W3C, Fetch Metadata Request Headers; CSP level 3.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::connection::Peer;
use crate::error::ApiError;
use crate::options::Options;
use crate::state::AppState;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Adds the headers that every answer has.
pub(super) async fn harden(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    let is_interface = request.uri().path().starts_with("/api/");
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_interface {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if state.options.is_behind_tls {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    response
}

/// Whether an authority, a host with or without a port, names this console.
fn is_ours(authority: &str, reached: Option<IpAddr>, options: &Options) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else {
        return false;
    };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = bare.unwrap_or(host).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.is_loopback() || Some(address) == reached)
        || options
            .hosts
            .iter()
            .any(|name| host.eq_ignore_ascii_case(name))
}

/// The one value of a header; `None` if it is absent, double or no text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let one = values.next()?.to_str().ok();
    one.filter(|_| values.next().is_none())
}

fn check_host(request: &Request, state: &AppState) -> Result<(), ApiError> {
    let peer = request.extensions().get::<Peer>();
    let reached = peer.map(|peer| peer.reached);
    let is_ours = |name: &str| is_ours(name, reached, &state.options);
    let target = request.uri().authority().map(Authority::as_str);
    let host = only(request.headers(), &header::HOST);
    if host.is_some_and(is_ours) && target.is_none_or(is_ours) {
        return Ok(());
    }
    let message = "this console does not answer to that host name: use its address, localhost, or start it with --host NAME";
    let status = StatusCode::MISDIRECTED_REQUEST;
    Err(ApiError::new(status, "wrong_host", message))
}

fn check_origin(request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_same_site = site.is_none_or(|site| site == b"same-origin" || site == b"none");
    let host = only(headers, &header::HOST).unwrap_or_default();
    let is_same_origin = !headers.contains_key(header::ORIGIN)
        || only(headers, &header::ORIGIN)
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host));
    if is_same_site && is_same_origin {
        return Ok(());
    }
    let message = "the request comes from a page of another site: use the console's own pages";
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "wrong_origin",
        message,
    ))
}

/// Passes requests for this console and, if they may change something, from its own pages.
pub(super) async fn check(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let checked = check_host(&request, &state).and_then(|()| match is_safe {
        true => Ok(()),
        false => check_origin(&request),
    });
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_console_are_its_own() {
        let reached = Some("192.0.2.7".parse().unwrap());
        let mut options = Options::new("0.0.0.0:8420".parse().unwrap(), "/nowhere".into());
        options.hosts.push("console.example.org".to_owned());
        for host in [
            "localhost:1",
            "127.0.0.1",
            "[::1]:8420",
            "192.0.2.7:8420",
            "Console.Example.org",
        ] {
            assert!(is_ours(host, reached, &options), "{host}");
        }
        for host in [
            "",
            "evil.example.org",
            "localhost.evil.org",
            "user@localhost",
            "192.0.2.8",
            "console.example.org.evil.org",
            "localhost:1:2",
            "0.0.0.0",
        ] {
            assert!(!is_ours(host, reached, &options), "{host}");
        }
    }
}
