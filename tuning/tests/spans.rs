//! Spans reach the collector that the environment names.
//!
//! Each test runs itself again as a child process with an environment of its own, and plays the
//! collector.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

use farcore_tuning::{LogFormat, log_to_stderr};

const CHILD: &str = "FARCORE_TEST_SPANS_MADE_HERE";
const SPANS: usize = 3;

/// In a child process: makes spans, ends as a command does and returns true.
fn is_child() -> bool {
    if env::var_os(CHILD).is_none() {
        return false;
    }
    let log = log_to_stderr(LogFormat::Text, "warn");
    for round in 0..SPANS {
        let _span = tracing::info_span!("a phase of the test", round).entered();
        tracing::info!("within");
    }
    drop(log);
    true
}

/// Runs a test again in a child process, with only these OpenTelemetry variables.
fn child(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().expect("a test has a file"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "");
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("OTEL_") || text == "RUST_LOG" {
            command.env_remove(&name);
        }
    }
    let output = command
        .envs(variables.iter().copied())
        .output()
        .expect("a test can run again");
    assert!(output.status.success(), "{output:?}");
    output
}

fn warnings(output: &Output) -> usize {
    let text = String::from_utf8_lossy(&output.stderr);
    text.matches("spans are lost").count()
}

/// Accepts one request and answers it. Returns its first line and its body.
fn collect(collector: &TcpListener) -> (String, Vec<u8>) {
    let (stream, _) = collector.accept().expect("a span comes");
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).expect("a request");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let answer =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    reader.get_mut().write_all(answer).expect("it listens");
    (first, body)
}

fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn the_last_spans_of_a_process_reach_the_collector() {
    if is_child() {
        return;
    }
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap();
    let collected = thread::spawn(move || collect(&collector));
    let output = child(
        "the_last_spans_of_a_process_reach_the_collector",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}")),
            ("OTEL_SERVICE_NAME", "a service of the test"),
        ],
    );
    assert_eq!(warnings(&output), 0, "{output:?}");
    // If no request came, an empty one ends the wait.
    drop(TcpStream::connect(address));
    let (first, body) = collected.join().unwrap();
    assert_eq!(first, "POST /v1/traces HTTP/1.1\r\n");
    assert!(contains(&body, "a phase of the test"));
    assert!(contains(&body, "a service of the test"));
}

#[test]
fn an_unreachable_collector_costs_one_warning() {
    if is_child() {
        return;
    }
    // No process listens on a port that was just released.
    let away = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap();
    let output = child(
        "an_unreachable_collector_costs_one_warning",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{away}")),
            // Each span is a batch of its own, and fails.
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
        ],
    );
    assert_eq!(warnings(&output), 1, "{output:?}");
}

#[test]
fn a_collector_that_never_answers_costs_one_warning() {
    if is_child() {
        return;
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    // The sender gives up first, then the end of the process.
    for milliseconds in ["50", "60000"] {
        let output = child(
            "a_collector_that_never_answers_costs_one_warning",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", milliseconds),
            ],
        );
        assert_eq!(warnings(&output), 1, "{output:?}");
    }
}

#[test]
fn no_endpoint_means_no_export_and_an_invalid_one_is_reported() {
    if is_child() {
        return;
    }
    let test = "no_endpoint_means_no_export_and_an_invalid_one_is_reported";
    // Spans sent in spite of it would miss a collector at the standard port.
    let output = child(test, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let output = child(test, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[")]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("cannot send spans") && text.contains("OTEL_EXPORTER_OTLP_ENDPOINT"),
        "{text}"
    );
}
