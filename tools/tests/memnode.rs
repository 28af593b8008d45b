//! `farcore memnode` from the command line: errors, metrics, signals.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};

use farcore_rdma::Token;
use farcore_rdma::control::SessionError;
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::connect_control;

use self::support::{Node, PATIENCE, TOKEN, TokenFile, farcore, output_of};

fn memnode(arguments: &[&str]) -> Command {
    let mut command = farcore();
    command
        .arg("memnode")
        .args(arguments)
        .env_remove("RUST_LOG");
    command
}

fn refused(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = output_of(&mut memnode(arguments));
    let text = String::from_utf8(stderr).expect("a running memory node");
    assert_eq!(status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a running memory node");
    let limited = stream.set_read_timeout(Some(PATIENCE));
    limited.expect("a socket");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .expect("a running memory node");
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .expect("a running memory node");
    text
}

/// A port that was free a moment ago.
fn free_address() -> SocketAddr {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a running memory node");
    probe.local_addr().expect("a running memory node")
}

// Over 70 lines: a table of cases.
#[test]
#[expect(clippy::too_many_lines, reason = "one list of wrong commands")]
fn errors_are_one_line_with_limit_and_value() {
    for (arguments, parts) in [
        (&["--memory", "12x"][..], &["--memory `12x`", "32GiB"][..]),
        (
            &["--memory", "1MiB", "--region", "long"],
            &["--region `long`"],
        ),
        (
            &["--memory", "1MiB", "--extent", "3"],
            &["--extent 3: must be a power of two"],
        ),
        (
            &["--memory", "1EiB", "--region", "1GiB", "--extent", "1GiB"],
            &["--memory 1EiB has", "at most 2,048"],
        ),
        (
            &["--memory", "1TiB"],
            &["--memory 1TiB: only ", "B is available ", "lend less"],
        ),
        (
            &["--memory", "3GiB", "--region", "2GiB"],
            &["--region 2GiB: must be under 2GiB"],
        ),
        (
            &["--memory", "1MiB", "--lease", "soon"],
            &["--lease `soon`", "30s"],
        ),
        (
            &["--memory", "1MiB", "--lease", "20ms"],
            &["--lease 20ms", "1s to 24h"],
        ),
        (
            &["--memory", "1MiB", "--keep", "31days"],
            &["--keep 31days", "0s to 30days"],
        ),
        (
            &["--memory", "1MiB", "--threads", "0"],
            &["--threads 0", "1 to 1024"],
        ),
        (&["--memory", "1MiB", "--http", "here"], &["--http `here`"]),
        (
            &["--memory", "1MiB", "--port", "1"],
            &["--port has no effect with --listen tcp://"],
        ),
        (
            &["--memory", "1MiB", "--device", "mlx5_0"],
            &["--device has no effect", "rdma://"],
        ),
        (
            &["--memory", "1MiB", "--gid-index", "1"],
            &["--gid-index has no effect"],
        ),
        (
            &["--memory", "1MiB", "--listen", "127.0.0.1:1"],
            &["no scheme", "tcp://host:port"],
        ),
        (
            &["--memory", "1MiB", "--listen", "rdma://localhost"],
            if cfg!(feature = "verbs") {
                &["cannot listen on", ":7400"]
            } else {
                &["tcp only", "tcp://localhost:7400"]
            },
        ),
        (
            &["--memory", "1MiB", "--listen", "tcp://0.0.0.0:0"],
            &["--token-file", "--insecure"],
        ),
        (
            &["--memory", "1MiB", "--http", "0.0.0.0:0"],
            &["--http 0.0.0.0:0", "--insecure"],
        ),
        (
            &["--memory", "1MiB", "--token-file", "/nonexistent/token"],
            &["/nonexistent/token"],
        ),
        (
            &["--memory", "1MiB", "--token-file", "/dev/null"],
            &["0 bytes", "must be 16"],
        ),
        (
            &[
                "--memory",
                "1MiB",
                "--listen",
                "tcp://192.0.2.1:0",
                "--insecure",
            ],
            &["192.0.2.1", "an address of this machine"],
        ),
    ] {
        let text = refused(arguments);
        assert_eq!(text.matches("os error").count().max(1), 1, "{text}");
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn an_address_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listen = format!("tcp://{address}");
    let text = refused(&["--memory", "1MiB", "--listen", &listen]);
    assert!(
        text.contains(&address) && text.contains("another port"),
        "{text}"
    );
    let text = refused(&[
        "--memory",
        "1MiB",
        "--listen",
        "tcp://127.0.0.1:0",
        "--http",
        &address,
    ]);
    assert!(text.contains(&address) && text.contains("--http"), "{text}");
}

#[test]
fn it_serves_exposes_its_metrics_and_stops() {
    for name in ["TERM", "INT"] {
        let http = free_address();
        let http_flag = http.to_string();
        let listen = ["--listen", "tcp://127.0.0.1:0", "--http", &http_flag];
        let mut node = Node::start(&[], &[&["--memory", "3MiB"], &listen[..]].concat());
        let address = node.address;
        assert!(address.port() != 0 && TcpStream::connect(address).is_ok());
        assert!(get(http, "/healthz").ends_with("ok\n"));
        let figures = get(http, "/metrics");
        for line in [
            "farcore_memnode_data_bytes 3145728",
            "farcore_memnode_extents{state=\"free\"} 3",
            "farcore_memnode_requests_total{kind=\"read\"} 0",
            "farcore_memnode_refusals_total{reason=\"token\"} 0",
            "farcore_memnode_extents_reclaimed_total 0",
            "farcore_memnode_sessions_kept 0",
            "farcore_memnode_extents_kept 0",
            "farcore_memnode_extents_stuck 0",
        ] {
            assert!(figures.lines().any(|one| one == line), "{line}\n{figures}");
        }
        node.process.signal(name);
        assert_eq!(node.process.end().code(), Some(0), "after SIG{name}");
        let lines = node.out.rest();
        assert_eq!(lines.len(), 1, "nothing but the ready line: {lines:?}");
        assert!(TcpStream::connect(address).is_err());
    }
}

fn token() -> Token {
    Token::new(TOKEN.as_bytes()).expect("a token")
}

async fn open(address: SocketAddr) -> Result<NodeSession, SessionError> {
    let channel = connect_control(address, PATIENCE).await.expect("a node");
    NodeSession::open(channel, "client", Some(&token())).await
}

/// A node with a token and figures at an address.
fn node_with_figures(token: &TokenFile, http: SocketAddr) -> Node {
    let (path, http) = (token.path(), http.to_string());
    let listen = ["--listen", "tcp://127.0.0.1:0", "--http", &http];
    let flags = ["--memory", "3MiB", "--token-file", path, "--lease", "30s"];
    Node::start(&[], &[&listen[..], &flags[..]].concat())
}

#[test]
fn a_node_that_leaves_ends_once_nothing_is_left_there() {
    let (file, http) = (TokenFile::new("leaves"), free_address());
    let mut node = node_with_figures(&file, http);
    let has_line = |wanted: &str| get(http, "/metrics").lines().any(|line| line == wanted);
    farcore_rdma::run_local(async {
        let mut client = open(node.address).await.expect("the right token");
        let chunk = client.allocate_chunk(1).await.expect("free memory");
        client.heartbeat().await.expect("a node");
        assert!(!client.is_leaving() && has_line("farcore_memnode_leaving 0"));
        node.process.signal("USR1");
        let line = node.log.wait("leaving: the node ends when");
        assert!(
            line.contains("sessions=1") && line.contains("extents=1"),
            "{line}"
        );
        // Another one changes nothing.
        node.process.signal("USR1");
        let refused = open(node.address).await.expect_err("it leaves");
        assert!(
            refused.to_string().contains("the memory node is leaving"),
            "{refused}"
        );
        assert!(
            get(http, "/healthz").contains(" 200 ") && get(http, "/healthz").ends_with("leaving\n")
        );
        assert!(has_line("farcore_memnode_leaving 1"));
        client.heartbeat().await.expect("a node that still serves");
        assert!(client.is_leaving());
        // It says how far it is.
        node.log.wait(" leaving ");
        assert!(node.process.is_alive(), "a client holds an extent");
        client
            .free_chunk(chunk)
            .await
            .expect("a node that still serves");
    })
    .expect("an executor");
    node.log.wait("left: no session holds an extent");
    assert_eq!(node.process.end().code(), Some(0));
}

#[test]
fn a_node_that_leaves_is_stopped_at_once_by_a_signal() {
    for name in ["TERM", "INT"] {
        let (file, http) = (TokenFile::new("stopped"), free_address());
        let mut node = node_with_figures(&file, http);
        farcore_rdma::run_local(async {
            let mut client = open(node.address).await.expect("the right token");
            client.allocate_chunk(1).await.expect("free memory");
            node.process.signal("USR1");
            node.log.wait("leaving: the node ends when");
            node.process.signal(name);
            assert_eq!(node.process.end().code(), Some(0), "after SIG{name}");
        })
        .expect("an executor");
    }
}

/// What a node that starts says on stderr, until it is stopped.
fn said(arguments: &[&str]) -> String {
    let mut node = Node::start(&[], arguments);
    node.process.signal("TERM");
    node.process.end();
    node.log.rest().join("\n")
}

#[test]
fn what_lets_others_in_is_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "sixteen bytes at least").expect("a file");
    let path = file.to_str().expect("plain characters");
    let node = ["--listen", "tcp://127.0.0.1:0", "--memory", "1MiB"];
    let with_token = [&node[..], &["--token-file", path]].concat();
    let exposed = format!("the token file {path}: mode 0644 lets other users read it");
    let open = "no token: any process of this machine can read and write all of the memory";
    for (mode, arguments, is_exposed, is_open) in [
        (0o644, &with_token[..], true, false),
        (0o600, &with_token[..], false, false),
        (0o600, &node[..], false, true),
    ] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, mode).expect("a mode");
        let text = said(arguments);
        assert_eq!(text.contains(&exposed), is_exposed, "{text}");
        assert_eq!(text.contains(open), is_open, "{text}");
    }
}
