//! The command `farcore-bench`: the files that it writes, its exit status, its errors about bad
//! flags, and the metrics of a running engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use farcore::statistics::{ReadError, read_report};

use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeOptions};
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
    let output = bench(&format!(
        "cache --keys 60000 --requests 200000 --local 6MiB --far 2MiB --write {}",
        folder.path().display()
    ));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let miss_ratio = |name: &str| -> f64 {
        let line = said.lines().find(|line| line.contains(name)).unwrap();
        line.split('|').nth(3).unwrap().trim().parse().unwrap()
    };
    assert!(miss_ratio("zipf-1.0") < 0.4, "{said}");
    assert!(miss_ratio("zipf-0.8") < 0.7, "{said}");
    for name in ["zipf-0.8", "zipf-1.0", "scan"] {
        let path = folder.path().join(format!("{name}.oracleGeneral"));
        assert_eq!(fs::metadata(path).unwrap().len(), 200_000 * 24);
    }
    let output = bench("cache --put-rounds 1 --requests 40000 --local 6MiB --far 2MiB");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("ratio"), "{said}");
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = bench(&format!("completions {shell}"));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("fairness"),
            "{said}"
        );
    }
    let folder = std::env::temp_dir().join(format!("farcore-bench-man-{}", std::process::id()));
    let output = bench(&format!("man --out {}", folder.display()));
    assert!(output.status.success());
    for name in [
        "farcore-bench",
        "farcore-bench-contest",
        "farcore-bench-ycsb",
        "farcore-bench-trace",
        "farcore-bench-fairness",
        "farcore-bench-cache",
    ] {
        let page = fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(
            page.contains(".SH SYNOPSIS") || page.contains(".SH DESCRIPTION"),
            "{page}"
        );
    }
    assert!(!folder.join("farcore-bench-run-one.1").exists());
    fs::remove_dir_all(folder).unwrap();
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
