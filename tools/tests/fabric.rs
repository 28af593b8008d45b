//! `farcore fabric` from the command line, at test size: rows and counts, not times. Memory nodes
//! must have all of their memory free afterwards.

mod support;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::Receiver;

use serde_json::Value;

use self::support::{Node, PATIENCE, Process, TOKEN, TokenFile, terminal, text_of};

fn fabric(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcore"));
    command.arg("fabric").args(arguments);
    command.stdin(Stdio::null()).env_remove("RUST_LOG");
    command.output().expect("the command of this package")
}

/// A file that is removed with its owner.
struct Json(PathBuf);

impl Json {
    fn new(name: &str) -> Self {
        let name = format!("fabric-{name}-{}.json", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path of plain characters")
    }

    fn read(&self) -> Value {
        let text = std::fs::read_to_string(&self.0).expect("a file of JSON");
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Drop for Json {
    fn drop(&mut self) {
        // The file may never have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a measurement; returns its table and its JSON.
fn measured(name: &str, arguments: &[&str]) -> (String, Value) {
    let json = Json::new(name);
    let output = fabric(&[arguments, &["--json", json.path()]].concat());
    let said = String::from_utf8(output.stdout).expect("plain text");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    assert_eq!(complaint, "", "nothing went wrong");
    (said, json.read())
}

fn refused(arguments: &[&str]) -> String {
    let output = fabric(arguments);
    let text = String::from_utf8(output.stderr).expect("plain text");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// Operation and bytes of each row.
fn shapes(report: &Value) -> Vec<(String, u64)> {
    let rows = report["rows"].as_array().expect("rows");
    let shape = |row: &Value| {
        let operation = row["operation"].as_str().expect("an operation");
        (operation.to_owned(), row["bytes"].as_u64().expect("a size"))
    };
    rows.iter().map(shape).collect()
}

fn counts(report: &Value) -> Vec<u64> {
    let rows = report["rows"].as_array().expect("rows");
    let count = |row: &Value| row["count"].as_u64().expect("a count");
    rows.iter().map(count).collect()
}

fn start(token: &TokenFile, more: &[&str]) -> Node {
    let arguments = [
        "--listen",
        "tcp://127.0.0.1:0",
        "--memory",
        "8MiB",
        "--extent",
        "64KiB",
        "--token-file",
        token.path(),
        "--no-huge-pages",
    ];
    Node::start(&[], &[&arguments[..], more].concat())
}

fn check_ping(report: &Value, nodes: &[&str]) {
    let one = [
        ("read", 8),
        ("read", 1500),
        ("read", 4096),
        ("write", 8),
        ("write", 1500),
        ("write", 4096),
        ("cas", 8),
    ];
    let wanted = one.repeat(nodes.len());
    let wanted = wanted
        .into_iter()
        .map(|(operation, bytes)| (operation.to_owned(), bytes));
    assert_eq!(shapes(report), wanted.collect::<Vec<_>>());
    assert!(counts(report).iter().all(|&count| count == 37));
    let rows = report["rows"].as_array().expect("rows");
    for (row, node) in rows.iter().zip(nodes.iter().flat_map(|&node| [node; 7])) {
        assert_eq!(row["node"], node);
        let steps = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"];
        let steps = steps.map(|name| row[name].as_u64().expect("nanoseconds"));
        assert!(steps.is_sorted() && steps[0] > 0, "{row}");
    }
    assert_eq!(report["queue_pairs"], nodes.len());
    assert_eq!(report["fabric"].as_array().map(Vec::len), Some(nodes.len()));
}

fn check_bandwidth(report: &Value, queue_pairs: u64) {
    let wanted = [
        ("read", 64),
        ("read", 65536),
        ("write", 64),
        ("write", 65536),
    ];
    let mut wanted = wanted
        .map(|(operation, bytes)| (operation.to_owned(), bytes))
        .to_vec();
    let (swap, no_rate) = (("cas".to_owned(), 8), Value::Null);
    let shapes = shapes(report);
    if shapes.contains(&swap) {
        wanted = vec![swap];
        assert_eq!(report["rows"][0]["bytes_per_second"], no_rate);
    } else {
        let rows = report["rows"].as_array().expect("rows");
        let rate = |row: &Value, name: &str| row[name].as_f64().expect("a rate");
        for row in rows {
            assert!(rate(row, "operations_per_second") > 0.0);
            assert!(rate(row, "bytes_per_second") > 0.0);
        }
    }
    assert_eq!(shapes, wanted);
    assert_eq!(report["queue_pairs"], queue_pairs);
    assert_eq!((&report["depth"], &report["batch"]), (&8.into(), &3.into()));
}

const PING: &[&str] = &["ping", "--bytes", "8,1500,4KiB", "--count", "37"];
/// The count is not a multiple of the batch.
const BANDWIDTH: &[&str] = &[
    "bandwidth",
    "--depth",
    "8",
    "--batch",
    "3",
    "--count",
    "100",
];
const SIZES: &[&str] = &["--bytes", "64,64KiB"];
const SWAP: &[&str] = &["--operation", "cas"];

#[test]
fn memory_of_this_process_is_measured() {
    let (said, report) = measured("ping", PING);
    check_ping(&report, &["embedded"]);
    assert_eq!(said.lines().count(), 2 + 7, "{said}");
    assert!(said.starts_with("embedded: 1 queue pair,"), "{said}");
    assert!(said.contains("p99.9") && said.contains("1500 B"), "{said}");
    let flags = ["--fabric", "embedded"];
    let (said, report) = measured("bandwidth", &[BANDWIDTH, SIZES, &flags].concat());
    check_bandwidth(&report, 1);
    assert_eq!(counts(&report), [100; 4]);
    assert_eq!(said.lines().count(), 2 + 4, "{said}");
    assert!(said.contains("8 requests in flight"), "{said}");
    assert!(said.contains("3 a doorbell"), "{said}");
    let (_, report) = measured("swap", &[BANDWIDTH, SWAP].concat());
    check_bandwidth(&report, 1);
    let timed = ["bandwidth", "--seconds", "0.01", "--depth", "8"];
    let (said, report) = measured("timed", &timed);
    assert_eq!(shapes(&report).len(), 12, "{said}");
    assert_eq!((&report["depth"], &report["batch"]), (&8.into(), &8.into()));
}

fn free_extents(http: SocketAddr) -> String {
    let mut stream = TcpStream::connect(http).expect("a memory node's figures");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("figures");
    let line = text
        .lines()
        .find(|line| line.starts_with("farcore_memnode_extents{state=\"free\"}"));
    line.expect("free extents").to_owned()
}

#[test]
fn memory_nodes_are_measured_and_all_memory_is_freed() {
    let token = TokenFile::new("fabric");
    // A port that was free a moment ago.
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = probe.local_addr().unwrap();
    drop(probe);
    let one = start(&token, &["--http", &http.to_string()]);
    let other = start(&token, &[]);
    let free = free_extents(http);
    let addresses = [one.address, other.address].map(|address| format!("tcp://{address}"));
    let both = addresses.join(",");
    let known = ["--fabric", &both, "--token-file", token.path()];
    let (said, report) = measured("tcp-ping", &[PING, &known].concat());
    check_ping(&report, &[&addresses[0], &addresses[1]]);
    assert_eq!(said.lines().count(), 2 + 14, "{said}");
    assert!(!said.contains(TOKEN) && !report.to_string().contains(TOKEN));
    let (_, report) = measured("tcp-bandwidth", &[BANDWIDTH, SIZES, &known].concat());
    check_bandwidth(&report, 2);
    assert_eq!(counts(&report), [100; 4]);
    let (_, report) = measured("tcp-swap", &[BANDWIDTH, SWAP, &known].concat());
    check_bandwidth(&report, 2);
    assert_eq!(counts(&report), [100]);
    // Two queue pairs to one node, and more than it has in one piece.
    let twice = [&addresses[0][..]; 2].join(",");
    let more = ["--fabric", &twice, "--token-file", token.path()];
    let (_, report) = measured("twice", &[BANDWIDTH, SIZES, &more].concat());
    check_bandwidth(&report, 2);
    let long = ["ping", "--bytes", "16MiB", "--count", "1"];
    let text = refused(&[&long, &known[..]].concat());
    for part in ["has no 16 MiB in one piece", "--bytes", &addresses[0]] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(free_extents(http), free);
}

/// What the kernel says it has run on a processor, in hundredths of a second.
fn busy(process: &Process) -> u64 {
    let stat = format!("/proc/{}/stat", process.0.id());
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
    let ticks = fields.split(' ').skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[test]
fn a_signal_frees_far_memory_and_keeps_the_figures() {
    let token = TokenFile::new("fabric-signal");
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = probe.local_addr().unwrap();
    drop(probe);
    let node = start(&token, &["--http", &http.to_string()]);
    let free = free_extents(http);
    let address = format!("tcp://{}", node.address);
    for words in [
        "ping --operation read --count 1000000000000",
        "bandwidth --operation read --depth 4 --seconds 3600",
    ] {
        let json = Json::new("signal");
        let mut command = Command::new("env");
        command
            .args(["--default-signal", env!("CARGO_BIN_EXE_farcore"), "fabric"])
            .args(words.split(' '))
            .args(["--bytes", "64", "--fabric"])
            .args([&address, "--token-file", token.path(), "--json"])
            .arg(json.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut process = Process(command.spawn().unwrap());
        // Its warm-up is over.
        while busy(&process) < 200 {
            assert!(process.is_alive(), "{words}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_ne!(free_extents(http), free, "{words}");
        process.signal("INT");
        assert_eq!(process.end().code(), Some(130), "{words}");
        assert_eq!(free_extents(http), free, "{words}");
        let report = json.read();
        assert_eq!(report["origin"]["partial"], true, "{words}: {report}");
        assert!(
            report["rows"][0]["count"].as_u64() > Some(0),
            "{words}: {report}"
        );
    }
}

/// A measurement of two nodes whose progress can be followed.
struct Followed {
    process: Process,
    progress: Receiver<String>,
    json: Json,
}

impl Followed {
    fn start(name: &str, words: &str, nodes: [&Node; 2], token: &TokenFile) -> Self {
        let json = Json::new(name);
        let nodes = nodes.map(|node| format!("tcp://{}", node.address));
        let (master, line) = terminal();
        let mut command = Command::new("env");
        command
            .args(["--default-signal", env!("CARGO_BIN_EXE_farcore"), "fabric"])
            .args(words.split(' '))
            .args(["--fabric", &nodes.join(","), "--token-file", token.path()])
            .args(["--json", json.path()])
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(OwnedFd::from(line));
        Self {
            process: Process(command.spawn().expect("the command of this package")),
            progress: text_of(master),
            json,
        }
    }

    /// Waits until the progress shows something.
    fn wait(&self, wanted: &str) {
        let mut seen = String::new();
        while !seen.contains(wanted) {
            let text = self.progress.recv_timeout(PATIENCE);
            seen.push_str(&text.unwrap_or_else(|error| panic!("{error}: {seen:?}")));
        }
    }

    /// Its exit code, standard output, standard error from here, and JSON.
    fn end(mut self) -> (Option<i32>, String, String, Value) {
        let mut said = String::new();
        let out = self.process.0.stdout.as_mut().expect("a pipe");
        out.read_to_string(&mut said).expect("plain text");
        let code = self.process.end().code();
        // The reader ends with the terminal.
        let complaint = self.progress.iter().collect();
        (code, said, complaint, self.json.read())
    }
}

#[test]
fn a_lost_node_leaves_the_rows_before_it() {
    let token = TokenFile::new("fabric-lost");
    for (words, shown) in [
        // Nodes are measured one after the other.
        ("ping --operation read --bytes 8 --count 50000", "read 8 B"),
        // Both at once in each row.
        ("bandwidth --depth 4 --count 20000", "write "),
    ] {
        let (kept, lost) = (start(&token, &[]), start(&token, &[]));
        let measured = Followed::start("lost", words, [&kept, &lost], &token);
        measured.wait(shown);
        lost.process.signal("KILL");
        let (code, said, complaint, report) = measured.end();
        assert_eq!(code, Some(1), "{words}: {complaint}");
        let reason = format!("--fabric tcp://{}: ", lost.address);
        let last = complaint.trim_end().rsplit('\n').next().unwrap();
        assert!(last.contains(": partial: "), "{words}: {complaint}");
        let failure = report["origin"]["failure"].as_str().unwrap();
        assert!(last.ends_with(failure), "{words}: {failure}: {complaint}");
        assert!(
            failure.starts_with(&reason) || failure.contains("is lost"),
            "{words}: {failure}"
        );
        assert_eq!(report["origin"]["partial"], true, "{words}");
        let rows = report["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{words}: {report}");
        assert_eq!(said.lines().count(), 2 + rows.len(), "{words}: {said}");
        if words.starts_with("ping") {
            assert_eq!(rows.len(), 1, "{report}");
            assert_eq!(rows[0]["node"], format!("tcp://{}", kept.address));
        }
    }
}

#[test]
fn a_signal_while_a_node_fails_keeps_its_exit_code_and_the_rows() {
    let token = TokenFile::new("fabric-both");
    let (kept, hung) = (start(&token, &[]), start(&token, &[]));
    let words = "ping --operation read --bytes 8 --count 50000";
    let measured = Followed::start("both", words, [&kept, &hung], &token);
    measured.wait("read 8 B");
    // It is silent when its own row begins, and the row fails after a time limit.
    hung.process.signal("STOP");
    measured.wait("1/2");
    measured.process.signal("INT");
    let (code, said, complaint, report) = measured.end();
    hung.process.signal("CONT");
    assert_eq!(code, Some(130), "{complaint}");
    assert!(complaint.contains("partial: --fabric"), "{complaint}");
    assert!(report["origin"]["failure"].is_string(), "{report}");
    assert_eq!(report["rows"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(said.lines().count(), 2 + 1, "{said}");
}

#[test]
fn refusals_of_a_node_are_reported() {
    let token = TokenFile::new("fabric-refusals");
    let node = start(&token, &[]);
    let address = format!("tcp://{}", node.address);
    let text = refused(&["ping", "--fabric", &address]);
    assert!(text.contains("requires a token"), "{text}");
    let wrong = Json::new("wrong-token");
    std::fs::write(&wrong.0, "another token of the tests").unwrap();
    // Others must not read it, or the command warns.
    std::fs::set_permissions(&wrong.0, Permissions::from_mode(0o600)).unwrap();
    let text = refused(&[
        "bandwidth",
        "--fabric",
        &address,
        "--token-file",
        wrong.path(),
    ]);
    assert!(text.contains("rejected the token: --token-file"), "{text}");
    // No process listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", gone.local_addr().unwrap());
    drop(gone);
    let text = refused(&["ping", "--fabric", &address]);
    assert!(
        text.contains(&address) && text.contains("farcore memnode"),
        "{text}"
    );
}

#[test]
fn errors_are_one_line_with_limit_and_value() {
    for (arguments, parts) in [
        (
            &["ping", "--bytes", "12x"][..],
            &["--bytes `12x`", "4KiB"][..],
        ),
        (&["ping", "--bytes", "0"], &["--bytes 0", "1 to 16 MiB"]),
        (
            &["bandwidth", "--bytes", "8,17MiB"],
            &["--bytes 17MiB", "1 to 16 MiB"],
        ),
        (
            &["ping", "--operation", "cas", "--bytes", "64,128"],
            &["--bytes 64,128", "words of 8 bytes"],
        ),
        (&["ping", "--count", "0"], &["--count is 0"]),
        (&["bandwidth", "--count", "0"], &["--count is 0"]),
        (
            &["bandwidth", "--seconds", "0"],
            &["--seconds is 0", "3600"],
        ),
        (&["bandwidth", "--seconds", "nan"], &["--seconds is NaN"]),
        (
            &["bandwidth", "--depth", "0"],
            &["--depth is 0", "1 to 4096"],
        ),
        (
            &["bandwidth", "--batch", "65"],
            &["--batch is 65", "--depth, which is 64"],
        ),
        (&["bandwidth", "--batch", "0"], &["--batch is 0"]),
        (
            &["bandwidth", "--depth", "4096", "--bytes", "1MiB"],
            &["--depth 4096", "is 4 GiB", "at most 1 GiB"],
        ),
        (
            &["ping", "--fabric", "127.0.0.1:1"],
            &["no scheme", "tcp://host:port"],
        ),
        (
            &["ping", "--fabric", "udp://h"],
            &["not a known scheme", "rdma+tcp"],
        ),
        (
            &["ping", "--fabric", "embedded,tcp://h"],
            &["embedded,tcp://h", "cannot be combined"],
        ),
        #[cfg(not(feature = "verbs"))]
        (
            &["bandwidth", "--fabric", "tcp://a,rdma+tcp://localhost"],
            &["no verbs", "--features verbs", "tcp://localhost:7400"],
        ),
    ] {
        let text = refused(arguments);
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn errors_of_files_and_devices_are_one_line() {
    for (arguments, parts) in [
        (
            &["ping", "--port", "1"][..],
            &["--port has no effect", "omit it"][..],
        ),
        (
            &[
                "ping",
                "--fabric",
                "tcp://127.0.0.1:1",
                "--token-file",
                "/nonexistent/token",
            ],
            &["--token-file /nonexistent/token: No such file"],
        ),
        (
            &["ping", "--json", "/nonexistent/file"],
            &["--json /nonexistent/file"],
        ),
    ] {
        let text = refused(arguments);
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn devices_are_listed() {
    let json = Json::new("devices");
    // The file holds a longer list of an earlier run.
    std::fs::write(&json.0, " ".repeat(1 << 20)).unwrap();
    let output = fabric(&["devices", "--json", json.path()]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stdout).unwrap();
    let devices = json.read()["devices"].as_array().cloned().unwrap();
    let here = farcore_rdma::rdma_devices();
    assert_eq!(devices.len(), here.len());
    if here.is_empty() {
        assert!(said.contains("no RDMA device"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
    for (device, facts) in devices.iter().zip(&here) {
        assert_eq!(device["name"], facts.name);
        assert!(said.contains(&facts.name), "{said}");
    }
}
