//! The limit on open files of a memory node and of a server: raised, named at start, and never in
//! the way of a client.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use farcore::{Config, Engine};
use farcore_rdma::Lock;

use self::support::{Node, Serve};

const MEMNODE: [&str; 5] = [
    "--listen",
    "tcp://127.0.0.1:0",
    "--memory",
    "64MiB",
    "--no-huge-pages",
];

/// A node that a shell starts after a `ulimit` of its own.
fn start(limit: &str) -> Node {
    let shell = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    Node::start(&["sh", "-c", &shell], &MEMNODE)
}

#[test]
fn the_soft_limit_is_raised_and_named() {
    let mut node = start("-S -n 200");
    let line = node.log.wait("descriptor limit");
    let limit = line
        .rsplit(' ')
        .next()
        .and_then(|limit| limit.parse::<u64>().ok());
    assert!(limit.is_some_and(|limit| limit > 200), "{line}");
    assert!(line.contains("up to ") && line.contains(" cores"), "{line}");
}

#[test]
fn silent_connections_do_not_use_up_the_descriptors() {
    let mut node = start("-n 320");
    let line = node.log.wait("descriptor limit");
    assert!(line.ends_with("descriptor limit 320"), "{line}");
    // More than the node may open.
    let silent: Vec<TcpStream> = (0..400)
        .map(|_| TcpStream::connect(node.address).unwrap())
        .collect();
    let engine = Engine::open(Config {
        cores: vec![0],
        local_bytes: 12 << 20,
        far_bytes: 32 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 1_000,
        nodes: vec![format!("tcp://{}", node.address).parse().unwrap()],
        prefault: false,
        lock: Lock::Off,
        handles_max: 1,
        ..Config::default()
    });
    engine.expect("a free descriptor").close();
    drop(silent);
    assert!(node.process.is_alive());
}

/// A command that may open 100 descriptors says how many it needs.
fn check_too_low(command: &str, arguments: &[&str]) {
    let shell = "ulimit -n 100; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", shell, env!("CARGO_BIN_EXE_farcore"), command])
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["open files is 100", "needs at least", "ulimit -n"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_limit_that_is_too_low_is_an_error() {
    check_too_low("memnode", &MEMNODE);
    let sizes = ["--local", "32MiB", "--far", "32MiB"];
    check_too_low("serve", &[&["--resp", "127.0.0.1:0"][..], &sizes].concat());
}

#[test]
fn a_server_lowers_its_clients_to_the_limit_and_refuses_the_others() {
    let shell = "ulimit -n 200; exec \"$0\" \"$@\"";
    // A port that was free a moment ago.
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = probe.local_addr().unwrap();
    drop(probe);
    let arguments = ["--cores", "0", "--http", &http.to_string()];
    let mut server = Serve::start_after(&["sh", "-c", shell], &arguments);
    let line = server.log.wait("--max-clients is lowered to ");
    assert!(line.contains("limit on open files is 200"), "{line}");
    let (_, rest) = line.split_once("lowered to ").unwrap();
    let most: usize = rest.split(':').next().unwrap().parse().unwrap();
    let connect = || {
        let mut stream = BufReader::new(TcpStream::connect(server.address).unwrap());
        // A server that has refused the client may have closed the connection.
        let _ = stream.get_mut().write_all(b"PING\r\n");
        let mut reply = String::new();
        stream.read_line(&mut reply).unwrap();
        (stream, reply)
    };
    let mut clients = Vec::new();
    for place in 0..most + 20 {
        let (client, reply) = connect();
        let expected = match place < most {
            true => "+PONG\r\n",
            false => "-ERR max number of clients reached\r\n",
        };
        assert_eq!(reply, expected, "client {place} of {most}");
        clients.push(client);
    }
    // There is a descriptor left for the metrics.
    let mut metrics = TcpStream::connect(http).unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    metrics.write_all(request.as_bytes()).unwrap();
    let mut status = String::new();
    BufReader::new(metrics).read_line(&mut status).unwrap();
    assert!(status.contains(" 200 "), "{status}");
}
