//! What `farcore top` and Prometheus show of the data directory of `farcore serve --data`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use self::support::{PATIENCE, Serve, farcore, output_of};

/// A server over a data directory, and where it is watched.
struct Watched {
    server: Serve,
    socket: PathBuf,
    http: SocketAddr,
}

impl Watched {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        // A port that was free a moment ago.
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let http: SocketAddr = probe.local_addr().unwrap();
        drop(probe);
        let (socket, data) = (folder.join("socket"), folder.join("data"));
        let watched = [
            "--data",
            data.to_str().unwrap(),
            "--stats-socket",
            socket.to_str().unwrap(),
            "--http",
            &http.to_string(),
        ];
        let server = Serve::start(&[&watched, arguments].concat());
        Self {
            server,
            socket,
            http,
        }
    }

    /// The part of `farcore top --json` about the data directory.
    fn data(&self) -> Value {
        let mut command = farcore();
        command.args(["top", self.socket.to_str().unwrap(), "--once", "--json"]);
        let output = output_of(command.args(["--interval", "100ms"]));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let mut all: Value = serde_json::from_slice(&output.stdout).unwrap();
        all["data"].take()
    }

    /// That part once it is as wanted.
    fn data_when(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let data = self.data();
            if is_wanted(&data) {
                return data;
            }
            assert!(began.elapsed() < PATIENCE, "{data:#}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The text at `/metrics`, without the head of HTTP.
    fn metrics(&self) -> String {
        let text = self.get("/metrics");
        text[text.find("# HELP").unwrap()..].to_owned()
    }

    fn set(&self, keys: std::ops::Range<u32>) {
        for key in keys {
            let value = "x".repeat(1000);
            assert_eq!(self.server.line(&format!("SET key:{key} {value}")), "+OK");
        }
    }

    fn end(mut self) {
        self.server.process.signal("TERM");
        assert_eq!(self.server.process.end().code(), Some(0));
    }
}

/// The value of a series without labels, if there is one.
fn value(metrics: &str, name: &str) -> Option<f64> {
    let start = format!("farcore_data_{name} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&start))?;
    Some(line.parse().unwrap())
}

fn number(data: &Value, name: &str) -> u64 {
    let found = data[name].as_u64();
    found.unwrap_or_else(|| panic!("no {name} in {data:#}"))
}

#[test]
fn top_and_prometheus_show_what_is_logged_synced_and_saved() {
    let folder = TempDir::new().unwrap();
    let watched = Watched::start(folder.path(), &["--cores", "0"]);
    let before = watched.data();
    assert_eq!(before["is_logging"], true, "{before:#}");
    assert_eq!(before["is_failing"], false);
    assert_eq!(before["is_loading"], false);
    assert!(before["last_snapshot_age_seconds"].is_null());
    assert!(!watched.metrics().contains("snapshot_last_timestamp"));
    watched.set(0..50);
    let data = watched.data_when(|data| {
        number(data, "log_bytes") >= number(&before, "log_bytes") + 50 * 1000
            && number(data, "unsynced_bytes") == 0
            && number(data, "syncs") > number(&before, "syncs")
    });
    assert!(number(&data, "durable_bytes") > 50 * 1000, "{data:#}");
    assert!(number(&data, "last_sync_ns") > 0, "{data:#}");
    // The text has the same, as a line of its own.
    let mut command = farcore();
    command.args(["top", watched.socket.to_str().unwrap(), "--once"]);
    let output = output_of(command.args(["--interval", "100ms"]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(" data log "), "{text}");
    assert!(text.contains("no snapshot"), "{text}");

    assert_eq!(watched.server.line("SAVE"), "+OK");
    let data = watched.data();
    assert_eq!(number(&data, "snapshots"), 1, "{data:#}");
    assert_eq!(number(&data, "failed_snapshots"), 0);
    // Records of the server's own are keys of the engine, too.
    assert!(number(&data, "last_snapshot_keys") >= 50, "{data:#}");
    assert!(number(&data, "last_snapshot_bytes") > 50 * 1000);
    let metrics = watched.metrics();
    assert_eq!(value(&metrics, "snapshots_total"), Some(1.0));
    assert_eq!(value(&metrics, "log_failing"), Some(0.0));
    let at = data["last_snapshot_unix_seconds"].as_f64();
    assert_eq!(value(&metrics, "snapshot_last_timestamp_seconds"), at);
    assert!(value(&metrics, "log_bytes_total").unwrap() > 50_000.0);
    assert!(value(&metrics, "log_sync_seconds_count").unwrap() > 0.0);
    watched.end();
}

#[test]
fn a_server_that_starts_again_shows_what_it_has_loaded_and_the_snapshot_before() {
    let folder = TempDir::new().unwrap();
    let watched = Watched::start(folder.path(), &[]);
    watched.set(0..20);
    assert_eq!(watched.server.line("SAVE"), "+OK");
    let saved = watched.data();
    watched.set(20..30);
    watched.end();
    let mut watched = Watched::start(folder.path(), &[]);
    let data = watched.data();
    assert!(number(&data, "loaded_entries") >= 30, "{data:#}");
    assert_eq!(number(&data, "torn_bytes"), 0);
    assert_eq!(number(&data, "snapshots"), 0, "it has made none");
    for name in ["last_snapshot_keys", "last_snapshot_bytes"] {
        assert_eq!(data[name], saved[name], "{data:#}");
    }
    let (read, all) = (
        number(&data, "loaded_bytes"),
        number(&data, "to_load_bytes"),
    );
    assert!(read > 0 && read <= all, "{data:#}");
    let metrics = watched.metrics();
    assert_eq!(value(&metrics, "loading"), Some(0.0));
    assert!(value(&metrics, "load_seconds").unwrap() > 0.0);
    assert!(watched.get("/healthz").starts_with("HTTP/1.1 200"));
    // It could be watched while it loaded.
    watched.server.log.wait("metrics over HTTP");
    watched.server.log.wait("the data directory is loaded");
}

#[test]
fn the_text_for_prometheus_is_well_formed() {
    let folder = TempDir::new().unwrap();
    let watched = Watched::start(folder.path(), &[]);
    assert_eq!(watched.server.line("SAVE"), "+OK");
    let metrics = watched.metrics();
    let (mut typed, mut helped, mut series) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for line in metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next().unwrap(), words.next()) {
            ("#", Some("TYPE")) => assert!(typed.insert(words.next().unwrap()), "{line}"),
            ("#", Some("HELP")) => assert!(helped.insert(words.next().unwrap()), "{line}"),
            ("#", Some("EOF" | "UNIT")) => {}
            _ => {
                let (name, value) = line.rsplit_once(' ').unwrap();
                value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
                assert!(series.insert(name), "{line} occurs twice");
                let name = &name[..name.find('{').unwrap_or(name.len())];
                let suffixes = ["", "_total", "_info", "_bucket", "_sum", "_count"];
                let mut families = suffixes
                    .iter()
                    .filter_map(|suffix| name.strip_suffix(suffix));
                assert!(families.any(|family| typed.contains(family)), "{line}");
            }
        }
    }
    assert_eq!(typed, helped);
    let data = typed
        .iter()
        .filter(|name| name.starts_with("farcore_data_"));
    assert!(data.count() >= 20, "{typed:?}");
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn a_server_without_a_data_directory_shows_none() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("socket");
    let socket = socket.to_str().unwrap();
    let _server = Serve::start(&["--stats-socket", socket]);
    let mut command = farcore();
    command.args(["top", socket, "--once", "--json", "--interval", "100ms"]);
    let all: Value = serde_json::from_slice(&output_of(&mut command).stdout).unwrap();
    assert!(all["data"].is_null() && all["total"].is_object(), "{all:#}");
}
