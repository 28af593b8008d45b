//! Results as JSON say where they come from: command, version, commit and date, and what was
//! measured also the machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use self::support::Serve;

/// The JSON that a command prints.
fn printed(line: &str, folder: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_farcore"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn check(line: &str, json: &Value, is_measured: bool) {
    let origin = &json["origin"];
    let command: Vec<&str> = origin["command"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(command.ends_with(&words), "{line}: {command:?}");
    assert_eq!(origin["version"], env!("CARGO_PKG_VERSION"), "{line}");
    assert!(origin["commit"].is_string(), "{line}: {origin}");
    let date = origin["date"].as_str().unwrap_or_default();
    assert!(
        date.starts_with("20") && date.ends_with('Z'),
        "{line}: {date}"
    );
    assert_eq!(origin["partial"], false, "{line}: {origin}");
    let machine = &json["machine"];
    assert_eq!(
        machine["kernel"].is_string(),
        is_measured,
        "{line}: {machine}"
    );
}

#[test]
fn results_name_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "card run --messages 1000 --warmup 0 --json",
        "card run --messages 1000 --one-tier --json",
        "card sweep --vary queue-pairs=1,2 --messages 1000 --warmup 0 --repeats 2 --json",
        "card fit --policies lru --messages 1000 --messages-max 1000 --warmup 0 --repeats 1 --json",
    ] {
        let json = printed(line, folder.path());
        check(line, &json, false);
        assert!(json["settings"].is_object(), "{line}: {json}");
    }
    for (line, is_measured) in [
        ("fabric ping --count 5 --bytes 8 --json file", true),
        ("fabric bandwidth --count 5 --bytes 64 --json file", true),
        ("fabric devices --json file", false),
    ] {
        printed(line, folder.path());
        let text = fs::read(folder.path().join("file")).unwrap();
        check(line, &serde_json::from_slice(&text).unwrap(), is_measured);
    }
}

#[test]
fn a_simulation_can_be_repeated_from_its_result() {
    let folder = tempfile::tempdir().unwrap();
    let line = "card run --messages 1000 --warmup 0 --queue-pairs 7 --json";
    let first = printed(line, folder.path());
    fs::write(folder.path().join("first.json"), first.to_string()).unwrap();
    let mut again = printed("card run --settings first.json --json", folder.path());
    assert_ne!(first["origin"], again["origin"]);
    again["origin"] = first["origin"].clone();
    assert_eq!(first, again);
}

#[test]
fn figures_of_a_server_and_of_an_engine_name_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("engine.sock");
    let socket = socket.to_str().unwrap();
    let server = Serve::start(&[
        "--native",
        "tcp://127.0.0.1:0",
        "--cores",
        "0",
        "--stats-socket",
        socket,
    ]);
    let address = server.native.as_deref().unwrap();
    let line = format!("cli --server {address} bench --operations 10 --keys 2 --json");
    let json = printed(&line, folder.path());
    check(&line, &json, true);
    assert!(json["seed"].is_u64() && json["keys"] == 2, "{json}");
    let line = format!("top {socket} --once --json --interval 100ms");
    let json = printed(&line, folder.path());
    check(&line, &json, false);
    assert!(json["total"].is_object(), "{json}");
}
