//! `farcore nodes`: memory nodes of a server that join, are listed, drained and gone.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use farcore::{Config, Engine, FabricAddress, NodeState};
use farcore_rdma::Lock;

use self::support::{Node, PATIENCE, Serve, farcore, output_of};

fn node() -> Node {
    let flags = [
        "--listen",
        "tcp://127.0.0.1:0",
        "--memory",
        "64MiB",
        "--no-huge-pages",
    ];
    Node::start(&[], &flags)
}

/// What a command says, which must succeed.
fn said(arguments: &[&str], server: &Serve) -> String {
    let address = server.address.to_string();
    let mut command = farcore();
    command
        .arg("nodes")
        .args(arguments)
        .args(["--server", &address]);
    let output = output_of(&mut command);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_node_joins_and_another_one_is_drained() {
    let (first, second) = (node(), node());
    let [old, new] = [&first, &second].map(|node| format!("tcp://{}", node.address));
    let flags = ["--cores", "0", "--fabric", &old, "--nodes-max", "2"];
    let server = Serve::start(&flags);
    assert_eq!(server.line("SET k v"), "+OK");
    assert!(said(&["list"], &server).contains(&old));
    said(&["add", &format!("rack={new}")], &server);
    let wait = |what: &str, holds: &dyn Fn(&str) -> bool| {
        let start = Instant::now();
        while !holds(&said(&["list"], &server)) {
            assert!(start.elapsed() < PATIENCE, "it never comes to this: {what}");
            thread::yield_now();
        }
    };
    let serves = |list: &str| {
        let mut lines = list.lines();
        lines.any(|line| line.contains(&new) && line.contains("serving"))
    };
    wait("the new node serves", &serves);
    said(&["drain", &old], &server);
    wait("the old node is gone", &|list| !list.contains(&old));
    assert_eq!(server.line("GET k"), "$1");
}

/// Keys; their values are more than local memory, and fit each node.
const KEYS: usize = 45_000;
const VALUE_BYTES: usize = 1_200;
/// Commands sent before their replies are read.
const BATCH: usize = 500;

fn value(key: usize, round: usize) -> Vec<u8> {
    let mut value = vec![b'a' + u8::try_from((key + round) % 26).expect("a letter"); VALUE_BYTES];
    let name = format!("{key} {round} ");
    value[..name.len()].copy_from_slice(name.as_bytes());
    value
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn set(stream: &mut BufReader<TcpStream>, keys: &[usize], round: usize) {
    for some in keys.chunks(BATCH) {
        let sets = some.iter().map(|&key| {
            let name = format!("key:{key}");
            command(&[b"SET", name.as_bytes(), &value(key, round)])
        });
        let bytes: Vec<u8> = sets.flatten().collect();
        stream.get_mut().write_all(&bytes).expect("a server");
        for key in some {
            let mut line = String::new();
            stream.read_line(&mut line).expect("a reply");
            assert_eq!(line, "+OK\r\n", "SET {key}");
        }
    }
}

/// Reads keys, each of which must have the value of a round.
fn check(stream: &mut BufReader<TcpStream>, keys: &[usize], round: usize) {
    for some in keys.chunks(BATCH) {
        let gets = some
            .iter()
            .map(|key| command(&[b"GET", format!("key:{key}").as_bytes()]));
        let bytes: Vec<u8> = gets.flatten().collect();
        stream.get_mut().write_all(&bytes).expect("a server");
        for &key in some {
            let mut line = String::new();
            stream.read_line(&mut line).expect("a reply");
            assert_eq!(line, format!("${VALUE_BYTES}\r\n"), "GET {key}");
            let mut found = vec![0; VALUE_BYTES + 2];
            stream.read_exact(&mut found).expect("a value");
            assert!(
                found[..VALUE_BYTES] == value(key, round),
                "another value of {key}"
            );
        }
    }
}

/// A node that its clients hear of soon.
fn prompt_node() -> Node {
    let flags = [
        "--listen",
        "tcp://127.0.0.1:0",
        "--memory",
        "96MiB",
        "--no-huge-pages",
        "--lease",
        "4s",
    ];
    Node::start(&[], &flags)
}

/// One of the nodes of a server leaves by itself, while clients read and write.
fn one_leaves(count: usize, flags: &[&str]) {
    let mut nodes: Vec<_> = (0..count).map(|_| prompt_node()).collect();
    let names: Vec<_> = nodes
        .iter()
        .map(|node| format!("tcp://{}", node.address))
        .collect();
    let fabric = names.iter().flat_map(|name| ["--fabric", name]);
    let fabric: Vec<_> = fabric.chain(["--cores", "0,1"]).collect();
    let far = format!("{}MiB", 80 * count);
    let server = Serve::start_with(&[], ["40MiB", &far], &[&fabric[..], flags].concat());
    let still: Vec<_> = (0..KEYS / 2).collect();
    let moving: Vec<_> = (KEYS / 2..KEYS).collect();
    let mut stream = server.connect();
    set(&mut stream, &still, 0);
    set(&mut stream, &moving, 0);
    let ends = AtomicBool::new(false);
    let mut other = server.connect();
    let (rounds, status) = thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let mut round = 0;
            // ORDERING: relaxed; the flag guards nothing.
            while !ends.load(Ordering::Relaxed) {
                check(&mut other, &moving, round);
                round += 1;
                set(&mut other, &moving, round);
            }
            round
        });
        nodes[0].process.signal("USR1");
        let status = nodes[0].process.end();
        ends.store(true, Ordering::Relaxed);
        (changing.join().expect("no error of the client"), status)
    });
    assert_eq!(status.code(), Some(0));
    check(&mut stream, &still, 0);
    check(&mut stream, &moving, rounds);
    let list = said(&["list"], &server);
    assert!(!list.contains(&names[0]), "{list}");
    for name in &names[1..] {
        let mut lines = list.lines();
        assert!(
            lines.any(|line| line.contains(name) && line.contains("serving")),
            "{list}"
        );
    }
}

#[test]
fn a_node_that_leaves_by_itself_is_drained_before_it_ends() {
    one_leaves(2, &[]);
}

#[test]
fn a_node_with_copies_that_leaves_by_itself_is_drained_before_it_ends() {
    one_leaves(3, &["--replicas", "2"]);
}

fn address(node: &Node) -> FabricAddress {
    format!("tcp://{}", node.address)
        .parse()
        .expect("an address")
}

fn state(engine: &Engine, address: &FabricAddress) -> Option<NodeState> {
    let mut nodes = engine.nodes().into_iter();
    let found = nodes.find(|node| node.address == *address);
    found.map(|node| node.state)
}

/// What a core waits for of a node that hangs, longer than all else of the test takes.
const SILENCE_NS: u64 = 40_000_000_000;

#[test]
fn a_node_that_hangs_holds_up_no_other() {
    let node = || {
        let flags = ["--memory", "64MiB", "--no-huge-pages", "--lease", "10m"];
        Node::start(
            &[],
            &[&["--listen", "tcp://127.0.0.1:0"], &flags[..]].concat(),
        )
    };
    let (hangs, first, second, third) = (node(), node(), node(), node());
    let [hung, old, stays, new] = [&hangs, &first, &second, &third].map(address);
    let engine = Engine::open(Config {
        cores: vec![0, 1],
        local_bytes: 24 << 20,
        far_bytes: 48 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 20_000,
        // Orders for the one that hangs come first.
        nodes: vec![hung.clone(), old.clone(), stays],
        nodes_max: Some(4),
        far_silence_ns: SILENCE_NS,
        prefault: false,
        lock: Lock::Off,
        ..Config::default()
    })
    .expect("nodes that listen");
    let wait_until = |what: &str, done: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < PATIENCE, "it never comes to this: {what}");
            thread::yield_now();
        }
    };
    hangs.process.signal("STOP");
    engine.remove_node(&hung, true).expect("others stay");
    // Each core has begun to end its session there.
    wait_until("nothing is left", &|| {
        let mut nodes = engine.nodes().into_iter();
        nodes.any(|node| node.address == hung && node.pages_left == Some(0))
    });
    engine.add_node(&new, None).expect("a free position");
    wait_until("the new node serves", &|| {
        state(&engine, &new) == Some(NodeState::Serving)
    });
    engine.drain_node(&old).expect("others stay");
    wait_until("the old node is gone", &|| state(&engine, &old).is_none());
    assert_eq!(
        state(&engine, &hung),
        Some(NodeState::Removing),
        "it has ended before: the test shows nothing"
    );
    hangs.process.signal("CONT");
    wait_until("the node that hung is gone", &|| {
        state(&engine, &hung).is_none()
    });
    engine.close();
}
