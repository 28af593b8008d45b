//! `farcore pool` from the command line, at test size: rows and counts, not times.

mod support;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use self::support::{Node, TOKEN, TokenFile};

fn pool(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcore"));
    command.arg("pool").args(arguments);
    command.stdin(Stdio::null()).env_remove("RUST_LOG");
    command.output().expect("the command of this package")
}

/// Runs a command that succeeds; returns what it printed.
fn said(arguments: &[&str]) -> String {
    let output = pool(arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    let said = String::from_utf8(output.stdout).expect("plain text");
    assert!(!said.contains(TOKEN));
    said
}

fn start(token: &TokenFile) -> Node {
    let arguments = [
        "--listen",
        "tcp://127.0.0.1:0",
        "--memory",
        "16MiB",
        "--extent",
        "64KiB",
        "--token-file",
        token.path(),
        "--no-huge-pages",
    ];
    Node::start(&[], &arguments)
}

/// Each step of the demonstration that has an outcome.
const STEPS: [(&str, &str); 9] = [
    ("fetch_add(1)", "was 41"),
    ("read(&pool)", "p at (1.5, -2)"),
    ("past the end", "OutOfBounds"),
    ("after the owner freed it", "Freed"),
    ("in another pool", "the same memory"),
    ("RemoteCounter", "10"),
    ("RemoteLock", "fencing token 0"),
    ("RemoteQueue", "Some(7)"),
    ("one READ", "Some(42)"),
];

fn check_demo(said: &str) {
    for (step, outcome) in STEPS {
        let line = said.lines().find(|line| line.contains(step));
        let line = line.unwrap_or_else(|| panic!("no line for {step}: {said}"));
        assert!(line.contains(outcome) && line.ends_with(" us"), "{line}");
    }
}

#[test]
fn a_pool_without_nodes_is_shown_and_measured() {
    let text = said(&["demo"]);
    assert!(text.starts_with("two memory nodes of this process: tcp://"));
    check_demo(&text);
    let text = said(&["bench", "--seconds", "0.01", "--threads", "2"]);
    assert!(
        text.starts_with("memory of this process: 0.01 s a row"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2 + 8 + 2, "{text}");
}

#[test]
fn memory_nodes_are_listed_shown_and_measured() {
    let token = TokenFile::new("pool");
    let (one, other) = (start(&token), start(&token));
    let first = format!("a=tcp://{}", one.address);
    let second = format!("tcp://{}", other.address);
    let nodes = [&first[..], &second, "tcp://127.0.0.1:1"].join(",");
    let file = tempfile::NamedTempFile::new().expect("there is room");
    let json = file.path().to_str().expect("a plain path");
    let known = ["--nodes", &nodes, "--token-file", token.path()];
    let text = said(&[&["status", "--json", json, "--wait", "60"], &known[..]].concat());
    assert_eq!(text.lines().count(), 4, "{text}");
    let report: Value = serde_json::from_reader(file.reopen().expect("it is there")).expect("JSON");
    let seen = &report["nodes"];
    assert_eq!(
        (&seen[0]["zone"], &seen[1]["zone"]),
        (&"a".into(), &Value::Null)
    );
    for node in [&seen[0], &seen[1]] {
        assert_eq!(node["is_up"], true);
        let bytes = (
            &node["lent_bytes"],
            &node["free_bytes"],
            &node["extent_bytes"],
        );
        let lent = Value::from(16 << 20);
        assert_eq!(bytes, (&lent, &lent, &Value::from(64 << 10)));
    }
    assert_eq!(seen[2]["is_up"], false);
    assert!(text.contains("Connection refused"), "{text}");

    let both = [&first[..], &second].join(",");
    let known = ["--nodes", &both, "--token-file", token.path()];
    check_demo(&said(&[&["demo"], &known[..]].concat()));
    let short = [
        "bench",
        "--json",
        json,
        "--seconds",
        "0.02",
        "--threads",
        "2",
    ];
    let text = said(&[&short, &known[..]].concat());
    assert_eq!(text.lines().count(), 2 + 8 + 6, "{text}");
    let report: Value = serde_json::from_reader(file.reopen().expect("it is there")).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["count"].as_u64() > Some(0)));
    let many: Vec<_> = rows[8..]
        .iter()
        .map(|row| row["connections"].as_u64())
        .collect();
    assert_eq!(many, [Some(1), Some(1), Some(2), Some(2), Some(4), Some(4)]);

    let wrong = TokenFile::new("pool-wrong");
    std::fs::write(wrong.path(), "another token, long enough").expect("it can be written");
    let refused = pool(&["status", "--nodes", &both, "--token-file", wrong.path()]);
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        complaint.contains("--nodes") && complaint.contains("wrong token"),
        "{complaint}"
    );
}
