//! What `farcore top` and Prometheus show of the data directory of `farcore serve --data`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use self::support::watched::{Watched, value};
use self::support::{Serve, farcore, output_of};

/// A server over the data directory of a folder.
fn start(folder: &Path, arguments: &[&str]) -> Watched {
    let data = folder.join("data");
    let given = ["--data", data.to_str().unwrap()];
    Watched::start(folder, &[&given, arguments].concat())
}

/// The part of `farcore top --json` about the data directory.
fn data_of(watched: &Watched) -> Value {
    watched.figures()["data"].take()
}

/// That part once it is as wanted.
fn data_when(watched: &Watched, is_wanted: impl Fn(&Value) -> bool) -> Value {
    watched.figures_when("data", is_wanted)
}

fn set(watched: &Watched, keys: std::ops::Range<u32>) {
    for key in keys {
        let value = "x".repeat(1000);
        assert_eq!(
            watched.server.line(&format!("SET key:{key} {value}")),
            "+OK"
        );
    }
}

fn number(data: &Value, name: &str) -> u64 {
    let found = data[name].as_u64();
    found.unwrap_or_else(|| panic!("no {name} in {data:#}"))
}

#[test]
fn top_and_prometheus_show_what_is_logged_synced_and_saved() {
    let folder = TempDir::new().unwrap();
    let watched = start(folder.path(), &["--cores", "0"]);
    let before = data_of(&watched);
    assert_eq!(before["is_logging"], true, "{before:#}");
    assert_eq!(before["is_failing"], false);
    assert_eq!(before["is_loading"], false);
    assert!(before["last_snapshot_age_seconds"].is_null());
    assert!(!watched.metrics().contains("snapshot_last_timestamp"));
    set(&watched, 0..50);
    let data = data_when(&watched, |data| {
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
    let data = data_of(&watched);
    assert_eq!(number(&data, "snapshots"), 1, "{data:#}");
    assert_eq!(number(&data, "failed_snapshots"), 0);
    // Records of the server's own are keys of the engine, too.
    assert!(number(&data, "last_snapshot_keys") >= 50, "{data:#}");
    assert!(number(&data, "last_snapshot_bytes") > 50 * 1000);
    let metrics = watched.metrics();
    assert_eq!(value(&metrics, "data_snapshots_total"), Some(1.0));
    assert_eq!(value(&metrics, "data_log_failing"), Some(0.0));
    let at = data["last_snapshot_unix_seconds"].as_f64();
    assert_eq!(value(&metrics, "data_snapshot_last_timestamp_seconds"), at);
    assert!(value(&metrics, "data_log_bytes_total").unwrap() > 50_000.0);
    assert!(value(&metrics, "data_log_sync_seconds_count").unwrap() > 0.0);
    watched.end();
}

#[test]
fn a_server_that_starts_again_shows_what_it_has_loaded_and_the_snapshot_before() {
    let folder = TempDir::new().unwrap();
    let watched = start(folder.path(), &[]);
    set(&watched, 0..20);
    assert_eq!(watched.server.line("SAVE"), "+OK");
    let saved = data_of(&watched);
    set(&watched, 20..30);
    watched.end();
    let mut watched = start(folder.path(), &[]);
    let data = data_of(&watched);
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
    assert_eq!(value(&metrics, "data_loading"), Some(0.0));
    assert!(value(&metrics, "data_load_seconds").unwrap() > 0.0);
    assert!(watched.get("/healthz").starts_with("HTTP/1.1 200"));
    // It could be watched while it loaded.
    watched.server.log.wait("metrics over HTTP");
    watched.server.log.wait("the data directory is loaded");
}

#[test]
fn the_text_for_prometheus_is_well_formed() {
    let folder = TempDir::new().unwrap();
    let watched = start(folder.path(), &[]);
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
