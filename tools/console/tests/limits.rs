//! Limits of connections, heads, bodies and streams, and the end of the console.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcore_console::{LiveFigures, LiveKind, LiveSource};
use serde_json::json;

use self::support::{connect, is_late, read_reply, start};

const SHORT: Duration = Duration::from_millis(50);

/// Waits for the console to close a connection, and returns what it sent before.
fn end_of(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // The kernel decides between an end and a reset.
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert!(!is_late(&error), "the connection does not end");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn slow_heads_and_silent_connections_end() {
    let harness = start(|options| options.limits.head = SHORT);
    end_of(connect(harness.address()));
    let mut half = connect(harness.address());
    half.write_all(b"GET /health HTTP/1.1\r\nHo").unwrap();
    let text = end_of(half);
    assert!(!text.starts_with("HTTP/1.1 200"), "{text}");
    // A connection that was used and then is silent ends too.
    let mut kept = connect(harness.address());
    let request = format!(
        "GET /health HTTP/1.1\r\nHost: {}\r\n\r\n",
        harness.address()
    );
    kept.write_all(request.as_bytes()).unwrap();
    assert!(end_of(kept).starts_with("HTTP/1.1 200"));
    assert_eq!(harness.stranger().get("/health").status, 200);
}

#[test]
fn slow_bodies_end() {
    let harness = start(|options| options.limits.body_pause = SHORT);
    let admin = harness.admin();
    let mut stream = connect(harness.address());
    let more = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    let head = admin.head("POST", "/api/runs", more);
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_reply(stream).unwrap().status, 400);
    let harness = start(|options| options.limits.json_body = SHORT);
    let admin = harness.admin();
    let mut stream = connect(harness.address());
    stream
        .write_all(admin.head("POST", "/api/runs", more).as_bytes())
        .unwrap();
    assert_eq!(read_reply(stream).unwrap().code(), "too_slow");
}

#[test]
fn silent_connections_lock_no_client_out() {
    let harness = start(|options| options.limits.connections_max = 4);
    let mut crowd = Vec::new();
    for _ in 0..6 {
        crowd.extend((0..3).map(|_| connect(harness.address())));
        assert_eq!(harness.stranger().get("/health").status, 200);
    }
    // All but the last few were closed.
    crowd.truncate(crowd.len() - 4);
    for stream in crowd {
        assert_eq!(end_of(stream), "");
    }
}

#[test]
fn connections_that_are_in_use_are_kept() {
    let harness = start(|options| options.limits.connections_max = 2);
    let admin = harness.admin();
    let run = admin.start_run("endless", 1_000_000_000_000);
    let mut one = admin.follow(run, 0);
    let mut other = admin.follow(run, 0);
    assert!(one.next().is_some() && other.next().is_some());
    // There is no room, and a further connection ends rather than these.
    assert_eq!(end_of(connect(harness.address())), "");
    assert!(one.nth(3).is_some() && other.nth(3).is_some());
    drop(one);
    // A stream whose client has gone makes room.
    loop {
        let mut stream = connect(harness.address());
        let _ = stream.write_all(admin.head("GET", "/health", "\r\n").as_bytes());
        if end_of(stream).starts_with("HTTP/1.1 200") {
            break;
        }
    }
}

#[test]
fn a_client_that_does_not_read_holds_no_place() {
    let harness = start(|options| {
        options.limits.connections_max = 1;
        options.limits.stalled = Duration::ZERO;
    });
    let admin = harness.admin();
    let run = admin.start_run("endless", 1_000_000_000_000);
    let mut stream = connect(harness.address());
    let head = admin.head("GET", &format!("/api/runs/{run}/events"), "\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(harness.stranger().get("/health").status, 200);
    assert!(!end_of(stream).contains("interrupted"));
}

#[test]
fn long_and_many_headers_are_refused() {
    let harness = start(|_| ());
    let stranger = harness.stranger();
    let long = format!("X-Long: {}\r\n", "x".repeat(64 << 10));
    let many: String = (0..200)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    for more in [long, many] {
        let mut stream = connect(harness.address());
        let _ = stream.write_all(format!("{}\r\n", stranger.head("GET", "/", &more)).as_bytes());
        let text = end_of(stream);
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 431"),
            "{text}"
        );
    }
    let mut stream = connect(harness.address());
    stream
        .write_all(b"\x16\x03\x01\x02\x00nonsense\r\n\r\n")
        .unwrap();
    let text = end_of(stream);
    assert!(
        text.is_empty() || text.starts_with("HTTP/1.1 400"),
        "{text}"
    );
}

#[test]
fn there_is_a_bound_on_streams() {
    let harness = start(|options| options.limits.streams_max = 1);
    let admin = harness.admin();
    let run = admin.start_run("endless", 1_000_000_000_000);
    let mut stream = admin.follow(run, 0);
    assert!(stream.next().is_some());
    let refused = admin.get(&format!("/api/runs/{run}/events"));
    assert_eq!((refused.status, refused.code().as_str()), (503, "busy"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(admin.get("/api/live/events").status, 503);
}

#[test]
fn a_stop_ends_streams_and_refuses_connections() {
    let harness = start(|_| ());
    let admin = harness.admin();
    let run = admin.start_run("endless", 1_000_000_000_000);
    let mut stream = admin.follow(run, 0);
    assert!(stream.next().is_some());
    let address = harness.address();
    harness.console.stop();
    assert!(
        stream
            .last()
            .is_none_or(|event| event.data["state"] != "done")
    );
    assert!(TcpStream::connect(address).is_err());
}

#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl LiveSource for Counting {
    fn figures(&self) -> Vec<LiveFigures> {
        let count = self.0.fetch_add(1, Ordering::SeqCst);
        vec![LiveFigures {
            name: "<engine>".to_owned(),
            kind: LiveKind::Server,
            rates: json!({ "count": count }),
            error: None,
        }]
    }
}

#[test]
fn live_figures_are_shown_once_and_followed() {
    let source = Arc::new(Counting::default());
    let harness = start(|options| options.live = source.clone());
    let admin = harness.admin();
    assert_eq!(source.0.load(Ordering::SeqCst), 0);
    let shown = admin.get("/api/live");
    assert_eq!(shown.header("content-type"), Some("application/json"));
    let wanted =
        json!({ "sources": [{ "name": "<engine>", "kind": "server", "rates": { "count": 0 } }] });
    assert_eq!(shown.json(), wanted);
    let mut stream = connect(harness.address());
    stream
        .write_all(admin.head("GET", "/api/live/events", "\r\n").as_bytes())
        .unwrap();
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while text.matches("event: live").count() < 2 {
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(
        text.contains("text/event-stream") && text.contains("<engine>"),
        "{text}"
    );
}
