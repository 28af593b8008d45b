//! A memory node, and an engine's core, whose stderr is a pipe that is full and never read serve
//! on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Instant;

use farcore::{Config, Engine};
use farcore_rdma::Lock;

use self::support::{PATIENCE, Process, farcore};

/// Bad connections between two looks at the metrics.
const BAD: usize = 500;
/// Garbage instead of a connect request.
const GARBAGE: [u8; 56] = [0xa5; 56];

/// A connection that sends garbage, until the node has closed it; then one that is cut short, which
/// the node may keep for a while.
fn knock(address: SocketAddr) {
    let connect = || {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut stream = connect();
    // The node may close before it has read all.
    let _ = stream.write_all(&GARBAGE);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("the node does not serve: {error}")
        }
        _ => {}
    }
    let _ = connect().write_all(&GARBAGE[..9]);
}

/// The value of a metric.
fn metric(http: SocketAddr, name: &str) -> u64 {
    let mut stream = TcpStream::connect(http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("{name}: {text}"))
}

#[test]
fn a_stderr_that_is_never_read_locks_no_client_out() {
    // A port that was free a moment ago.
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = probe.local_addr().unwrap();
    drop(probe);
    let child = farcore()
        .args([
            "memnode",
            "--listen",
            "tcp://127.0.0.1:0",
            "--memory",
            "64MiB",
            "--no-huge-pages",
        ])
        .args(["--http", &http.to_string()])
        // All that there is to log, so that the pipe is full whatever is summed up.
        .env("RUST_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut node = Process(child.unwrap());
    let mut ready = String::new();
    let out = node.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut ready).unwrap();
    let address = ready
        .strip_prefix("ready: tcp://")
        .and_then(|rest| rest.split(' ').next());
    let address: SocketAddr = address.unwrap().parse().unwrap();
    // Until the pipe is full, and the log's queue behind it. Refusals may be summed up in the log;
    // what becomes of a connection that is cut short has a line of its own.
    let start = Instant::now();
    while metric(http, "farcore_memnode_log_lines_dropped_total") == 0 {
        assert!(start.elapsed() < PATIENCE, "the pipe is not full");
        for _ in 0..BAD {
            knock(address);
        }
    }
    let engine = Engine::open(Config {
        cores: vec![0],
        local_bytes: 12 << 20,
        far_bytes: 32 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 1_000,
        nodes: vec![format!("tcp://{address}").parse().unwrap()],
        prefault: false,
        lock: Lock::Off,
        handles_max: 1,
        ..Config::default()
    })
    .expect("a node that serves");
    let mut handle = engine.handle().unwrap();
    handle.put(b"key", b"value").wait().unwrap();
    engine.flush().unwrap();
    assert_eq!(
        handle.get(b"key").wait().unwrap().as_deref(),
        Some(&b"value"[..])
    );
    drop(handle);
    engine.close();
    node.signal("TERM");
    assert_eq!(node.end().code(), Some(0));
}

/// Lines that fill a pipe of 64 KiB and the log's queue of 4,096 lines behind it.
const LINES: usize = 6_000;

#[test]
fn a_stderr_that_is_never_read_stops_no_core_of_an_engine() {
    let child = farcore()
        .args(["serve", "--resp", "127.0.0.1:0", "--no-huge-pages"])
        .args(["--native", "tcp://127.0.0.1:0"])
        .args(["--local", "32MiB", "--far", "32MiB"])
        // The engine's core logs a line for each native connection that begins wrongly.
        .env("RUST_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut server = Process(child.unwrap());
    let out = BufReader::new(server.0.stdout.take().unwrap());
    let (mut native, mut redis): (Option<SocketAddr>, Option<SocketAddr>) = (None, None);
    for line in out.lines().map(Result::unwrap) {
        let address = |prefix: &str| line.strip_prefix(prefix)?.parse().ok();
        native = native.or_else(|| address("native: tcp://"));
        redis = redis.or_else(|| address("ready: redis://"));
        if redis.is_some() {
            break;
        }
    }
    for _ in 0..LINES {
        let mut stream = TcpStream::connect(native.unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may close before it has read all.
        let _ = stream.write_all(&GARBAGE);
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the core does not serve: {error}")
            }
            _ => {}
        }
    }
    let mut client = TcpStream::connect(redis.unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"SET key value\r\nGET key\r\n").unwrap();
    let mut replies = [0; 16];
    client.read_exact(&mut replies).unwrap();
    assert_eq!(&replies, b"+OK\r\n$5\r\nvalue\r\n");
    server.signal("TERM");
    assert_eq!(server.end().code(), Some(0));
}
