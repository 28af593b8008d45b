//! `farcore nodes`: memory nodes of a server that join, are listed, drained and gone.

mod support;

use std::thread;
use std::time::Instant;

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
