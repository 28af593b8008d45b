//! The command `farcore-bench`: the files that it writes, its exit status, its errors about bad
//! flags, and the metrics of a running engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use clap::CommandFactory;

use farcore::statistics::{ReadError, read_report};
use farcore_bench::cli::Cli;

use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
use farcore_rdma::{Lock, Token};
use serde_json::Value;

fn bench(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .output()
        .unwrap()
}

#[test]
fn a_run_writes_table_json_and_plots() {
    let folder = std::env::temp_dir().join(format!("farcore-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let json = folder.join("figures.json");
    let line = format!(
        "contest --keys-per-core 500 --hot-ops 400 --local 32MiB --far 32MiB --runs 2 --engines \
         locked-lru,dashmap --json {} --plot {}",
        json.display(),
        folder.display()
    );
    let output = bench(&line);
    let (said, logged) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{logged}");
    assert!(
        said.contains("500 keys a core") && said.contains("wrong values"),
        "{said}"
    );
    assert!(
        logged.contains("phase starts") && logged.contains("phase ends"),
        "{logged}"
    );
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["runs"][1]["engine"], "dashmap");
    assert_eq!(report["runs"][0]["phases"].as_array().unwrap().len(), 11);
    assert_eq!(report["runs"][0]["wrong_values"], 0);
    assert!(report["machine"]["cores"].is_array());
    for plot in ["throughput.svg", "latency.svg"] {
        assert!(
            fs::read_to_string(folder.join(plot))
                .unwrap()
                .contains("verify4")
        );
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_running_engine_publishes_its_metrics() {
    let path = std::env::temp_dir().join(format!("farcore-watch-{}.sock", std::process::id()));
    let line = format!(
        "contest --keys-per-core 20000 --hot-ops 20000 --local 32MiB --far 64MiB --engines farcore --stats-socket {} \
         --http 127.0.0.1:0",
        path.display()
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .env_remove("RUST_LOG")
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // Both are open before the first phase, and the run outlasts one report.
    let address = loop {
        let line = lines.next().expect("the run logs its address").unwrap();
        if let Some((_, address)) = line.split_once("127.0.0.1:") {
            break format!("127.0.0.1:{}", address.trim());
        }
    };
    let report = read_report(&path).unwrap();
    assert!(!report.cores.is_empty() && report.local_cap_bytes == 32 << 20);
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("\nfarcore_operations_total{core=\""),
        "{text}"
    );
    for line in lines {
        line.unwrap();
    }
    assert!(child.wait().unwrap().success());
    assert!(matches!(read_report(&path), Err(ReadError::Absent { .. })));
}

#[test]
fn bad_flags_end_with_a_message_and_a_failure() {
    for (line, message) in [
        ("contest --cores 4095", "core 4095, which does not exist"),
        ("contest --keys-per-core 0", "must be at least 1"),
        ("contest --window 0", "--window is 0"),
        ("contest --local 4096", "need at least"),
        (
            "contest --engines farcore --local 1TiB",
            "(--local 1 TiB, --far ",
        ),
        (
            "contest --engines dashmap --keys-per-core 2000000000",
            "dashmap needs about ",
        ),
        ("ycsb --workload a --value-bytes 17", "multiple of 16"),
        ("ycsb --workload g", "possible values"),
        ("trace /nowhere/at/all", "the trace /nowhere/at/all"),
        ("trace /dev/null", "holds nothing that can be replayed"),
        ("trace /dev/null --limit 0", "--limit"),
        ("trace /dev/null --format json", "possible values"),
        ("trace /dev/null --value-bytes-max 2MiB", "it must be 1 to"),
        (
            "contest --engines dashmap --record x",
            "--record has no effect with --engines dashmap: it is for farcore",
        ),
    ] {
        let output = bench(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(message),
            "{line}: {said}"
        );
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn a_recorded_run_is_replayed_as_a_trace() {
    let folder = std::env::temp_dir().join(format!("farcore-bench-trace-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (trace, json) = (folder.join("run.csv"), folder.join("figures.json"));
    let sizes = "--local 32MiB --far 32MiB";
    let output = bench(&format!(
        "ycsb --workload f --records 600 --operations 900 --engines farcore,dashmap --record {} {sizes}",
        trace.display()
    ));
    let logged = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{logged}");
    assert!(logged.contains("trace recorded"), "{logged}");
    let lines = fs::read_to_string(&trace).unwrap().lines().count();

    let output = bench(&format!(
        "trace {} {sizes} --engines farcore,locked-lru,dashmap,sharded --limit 1000 --json {} --plot {}",
        trace.display(),
        json.display(),
        folder.display()
    ));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    for words in [
        "1000 entries as ",
        "read up to --limit",
        "gets that hit",
        "replay",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    for run in report["runs"].as_array().unwrap() {
        assert_eq!(
            (
                run["wrong_values"].as_u64(),
                run["phases"][0]["ops"].as_u64()
            ),
            (Some(0), Some(1000))
        );
        assert_eq!(run["trace"]["stop"], "limit");
    }
    let hash = said
        .lines()
        .find_map(|line| line.strip_prefix("result hash: "))
        .unwrap();
    assert_eq!(hash.len(), 16, "the engines differ: {hash}");
    // 600 records, 900 transactions, and a write for each read-modify-write.
    assert!((1501..=2400).contains(&lines), "{lines}");
    assert!(
        fs::read_to_string(folder.join("latency.svg"))
            .unwrap()
            .contains("replay")
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn values_are_cut_to_the_limit_of_the_engine() {
    let file = std::env::temp_dir().join(format!("farcore-bench-long-{}", std::process::id()));
    fs::write(&file, "0,a,1,900000,1,get,0\n0,a,1,0,1,get,0\n").unwrap();
    let trace = format!(
        "trace {} --engines farcore --local 16MiB --far 32MiB",
        file.display()
    );
    let output = bench(&trace);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("cut 1 value to "), "{said}");
    let output = bench(&format!("{trace} --value-bytes-max 900000"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("lower --value-bytes-max"),
        "{said}"
    );
    fs::remove_file(file).unwrap();
}

#[test]
fn a_trace_is_read_from_standard_input() {
    let lines = "0,a,1,5,1,get,0\n0,b,1,6,1,set,0\n0,a,1,5,1,get,0\n";
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(lines.as_bytes()).unwrap();
    drop(writer);
    let output = Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args([
            "trace",
            "-",
            "--engines",
            "dashmap,sharded",
            "--cores",
            "0",
            "--runs",
            "2",
        ])
        .stdin(reader)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let logged = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{logged}");
    assert!(
        said.contains("trace standard input (csv), 3 entries as 4 requests"),
        "{said}"
    );
    let nothing = Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(["trace", "-"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(
        said.contains("the trace standard input holds nothing"),
        "{said}"
    );
}

#[test]
fn a_cache_misses_less_often_than_it_hits_and_writes_its_traces() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let output = bench(&format!(
        "cache --keys 60000 --requests 200000 --local 6MiB --far 2MiB --write {} --json {}",
        folder.path().display(),
        json.display()
    ));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let miss_ratio = |name: &str| -> f64 {
        let start = format!("| {name} ");
        let line = said.lines().find(|line| line.starts_with(&start)).unwrap();
        line.split('|').nth(3).unwrap().trim().parse().unwrap()
    };
    assert!(miss_ratio("zipf-1.0") < 0.4, "{said}");
    assert!(miss_ratio("zipf-0.8") < 0.7, "{said}");
    for name in ["zipf-0.8", "zipf-1.0", "scan"] {
        let path = folder.path().join(format!("{name}.oracleGeneral"));
        assert_eq!(fs::metadata(path).unwrap().len(), 200_000 * 24);
    }
    assert!(said.contains("\nwrong values: 0, errors: 0\n"), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["plans"][2]["scenario"]["cache"]["requests"], 200_000);
    assert_eq!(
        report["plans"][2]["scenario"]["cache"]["part"]["trace"],
        "scan"
    );
    assert_eq!(
        (&report["runs"][1]["wrong_values"], &report["partial"]),
        (&0.into(), &false.into())
    );
    assert!(report["runs"][1]["errors"].as_object().unwrap().is_empty());
    for fact in ["command", "version", "commit", "date", "machine"] {
        assert!(!report[fact].is_null(), "{fact}");
    }
    let output = bench("cache --put-rounds 1 --requests 40000 --local 6MiB --far 2MiB");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("ratio"), "{said}");
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let command = Cli::command();
    let commands = command.get_subcommands().filter(|one| !one.is_hide_set());
    let commands: Vec<&str> = commands.map(clap::Command::get_name).collect();
    assert!(commands.contains(&"embed") && commands.contains(&"cache"));
    for shell in ["bash", "zsh", "fish"] {
        let output = bench(&format!("completions {shell}"));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        for name in &commands {
            assert!(said.contains(name), "{shell}: {name}");
        }
    }
    let folder = std::env::temp_dir().join(format!("farcore-bench-man-{}", std::process::id()));
    let output = bench(&format!("man --out {}", folder.display()));
    assert!(output.status.success());
    let pages = commands.iter().map(|name| format!("farcore-bench-{name}"));
    for name in pages.chain(["farcore-bench".to_owned()]) {
        let page = fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(
            page.contains(".SH SYNOPSIS") || page.contains(".SH DESCRIPTION"),
            "{page}"
        );
    }
    assert!(!folder.join("farcore-bench-run-one.1").exists());
    fs::remove_dir_all(folder).unwrap();
    let output = bench("man --out /dev/null/pages");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--out /dev/null/pages: "), "{said}");
}

#[test]
fn a_command_waits_for_its_memory_node() {
    // The port is free again for the node.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let line = format!(
        "contest --engines farcore --cores 0 --keys-per-core 100 --local 16MiB --far 16MiB --fabric \
         tcp://{address} --wait-for-nodes"
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .env_remove("RUST_LOG")
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let waits = lines.by_ref().map(Result::unwrap).find(|line| {
        line.contains("waiting for memory nodes") && line.contains(&address.to_string())
    });
    assert!(waits.is_some(), "the log names the node");
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(64 << 20)
    };
    let node = MemoryNode::start(NodeOptions::new(address, memory)).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    drop(node);
}

/// A memory node of this process.
fn node(token: Option<&[u8]>) -> NodeHandle {
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(64 << 20)
    };
    let options = NodeOptions {
        token: token.map(|bytes| Token::new(bytes).unwrap()),
        ..NodeOptions::new("127.0.0.1:0".parse().unwrap(), memory)
    };
    MemoryNode::start(options).unwrap()
}

/// A run against a memory node that cannot be used; returns its last line.
fn refused(address: &str, flags: &str) -> String {
    let output = bench(&format!(
        "contest --engines farcore --cores 0 --keys-per-core 100 --local 16MiB --far 16MiB --fabric \
         tcp://{address} --wait-for-nodes=1s {flags}"
    ));
    let logged = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{logged}");
    let last = logged.lines().last().unwrap();
    assert_eq!(last.matches(address).count(), 1, "{last}");
    last.to_owned()
}

#[test]
fn a_memory_node_that_cannot_be_used_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "another token than the node's").unwrap();
    let with_token = format!("--token-file {}", file.display());
    let open = node(None);
    let closed = node(Some(b"the token of the node"));
    let (open, closed) = (open.address().to_string(), closed.address().to_string());
    for (address, flags, words) in [
        (
            &closed,
            &with_token[..],
            "rejected the token: --token-file differs from the node's",
        ),
        (
            &closed,
            "",
            "requires a token: give --token-file the node's file",
        ),
        (
            &open,
            &with_token,
            "has no token: leave --token-file out, or start the node with it",
        ),
    ] {
        let last = refused(address, flags);
        assert!(
            last.ends_with(&format!("tcp://{address} {words}")),
            "{last}"
        );
    }
}

#[test]
fn a_peer_that_is_no_memory_node_sent_an_invalid_answer() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for mut peer in listener.incoming().flatten() {
            // The client closes the connection when it has seen enough.
            let _ = peer.write_all(&[b'x'; 4096]);
            let _ = peer.read(&mut [0; 4096]);
        }
    });
    let last = refused(&address, "");
    let words =
        "sent an invalid answer, and the connection is closed: --fabric names no memory node";
    assert!(last.contains(&format!("tcp://{address} {words}")), "{last}");
}

/// The node dies while requests need it: they end with errors of their kind, and no value is wrong.
#[test]
fn a_memory_node_that_vanishes_is_an_error_and_no_wrong_value() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let node = node(None);
    let line = format!(
        "ycsb --workload a --zipf 0 --engines farcore --cores 0 --records 30000 --operations 500000 \
         --local 8MiB --far 60MiB --fabric tcp://{} --json {}",
        node.address(),
        json.display()
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("RUST_LOG")
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let starts = |line: &String| line.contains("phase starts") && line.contains("transactions");
    lines
        .by_ref()
        .map(Result::unwrap)
        .find(starts)
        .expect("the last phase starts");
    drop(node);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{rest:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("- Unavailable"), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["runs"][0]["wrong_values"], 0, "{rest:?}");
    assert!(report["runs"][0]["errors"]["Unavailable"].as_u64().unwrap() > 0);
    assert!(rest.last().unwrap().ends_with(" Unavailable"), "{rest:?}");
}
