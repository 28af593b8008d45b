//! The check of a request's Host header, against DNS rebinding.
//!
//! A browser sends the name that a page used. A page of another site can point its own name at
//! 127.0.0.1 and read what listens there, unless the name is refused. Names of this machine and
//! loopback addresses cannot be pointed elsewhere.
//!
//! Source: RFC 9110, sections 7.2 and 15.5.20.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The body of the refusal.
const MISDIRECTED: &str = "this address answers requests for localhost, 127.0.0.1 or [::1] only: use one of these in the URL\n";

/// Whether an authority, a host with or without a port, names this machine by loopback.
fn is_local(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else {
        return false;
    };
    // A user before the host is no part of a Host header.
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || (address.parse::<IpAddr>()).is_ok_and(|address| address.is_loopback())
}

/// Passes a request for this machine on, and answers others with 421.
pub(super) async fn only_local(request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let one = hosts.next().and_then(|host| host.to_str().ok());
    let is_one = hosts.next().is_none();
    // The target of a request may name a host too, which then counts.
    let target = request.uri().authority().map(Authority::as_str);
    if is_one && one.is_some_and(is_local) && target.is_none_or(is_local) {
        next.run(request).await
    } else {
        (StatusCode::MISDIRECTED_REQUEST, MISDIRECTED).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in [
            "localhost",
            "LocalHost:9400",
            "127.0.0.1",
            "127.0.0.1:9400",
            "127.3.2.1:1",
            "[::1]",
            "[::1]:9400",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            ":9400",
            "x",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "example.org:9400",
            "10.0.0.1",
            "[fe80::1]:9400",
            "user@localhost",
            "localhost:9400:1",
            "2130706433",
            "0.0.0.0",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
