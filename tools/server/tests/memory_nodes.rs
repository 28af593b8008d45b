//! Memory nodes that come and go while a server serves: `MEMNODES`.

use std::time::Instant;

use farcore::{Config, Engine};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
use farcore_server::Options;

mod support;

use support::{PATIENCE, Served, WordClient};

fn node() -> NodeHandle {
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(32 << 20)
    };
    let options = NodeOptions::new(([127, 0, 0, 1], 0).into(), memory);
    MemoryNode::start(options).expect("a node")
}

fn address(node: &NodeHandle) -> String {
    format!("tcp://{}", node.address())
}

fn served(nodes: &[&NodeHandle], nodes_max: Option<usize>) -> Served {
    let nodes = nodes.iter().map(|node| address(node));
    let engine = Engine::open(Config {
        cores: vec![0],
        local_bytes: 12 << 20,
        far_bytes: 16 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 20_000,
        nodes: nodes
            .map(|address| address.parse().expect("an address"))
            .collect(),
        nodes_max,
        prefault: false,
        lock: Lock::Off,
        ..Config::default()
    });
    let keep = |_: &mut Options| {};
    Served::on(engine.expect("an engine"), keep)
}

fn wait_for(client: &mut WordClient, what: &str, has_come: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let listed = client.call("MEMNODES LIST");
        if has_come(&listed) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {listed}");
    }
}

#[test]
fn nodes_are_listed_added_drained_and_removed() {
    let (first, second) = (node(), node());
    let served = served(&[&first], Some(2));
    let mut client = served.word_client();
    let (old, new) = (address(&first), address(&second));
    for number in 0..8_000 {
        let set = format!("SET key:{number} {}", "v".repeat(800));
        assert_eq!(client.call(&set), "OK");
    }
    let listed = client.call("MEMNODES LIST");
    assert!(
        listed.contains(&format!("address={old} zone= state=serving")),
        "{listed}"
    );
    assert_eq!(client.call(&format!("MEMNODES ADD rack={new}")), "OK");
    let serves = format!("address={new} zone=rack state=serving");
    wait_for(&mut client, "the node that was added", |listed| {
        listed.contains(&serves)
    });
    assert_eq!(client.call(&format!("MEMNODES DRAIN {old}")), "OK");
    wait_for(&mut client, "the end of the drained one", |listed| {
        !listed.contains(&old)
    });
    for number in 0..8_000 {
        let found = client.call(&format!("STRLEN key:{number}"));
        assert_eq!(found, "800", "{number}");
    }
    let needed = client.call(&format!("MEMNODES REMOVE {new} FORCE"));
    assert!(needed.contains("cannot go"), "{needed}");
}

#[test]
fn what_cannot_be_done_to_nodes_is_said() {
    let first = node();
    let of_one = served(&[&first], None);
    let mut client = of_one.word_client();
    let known = address(&first);
    for (command, says) in [
        (format!("MEMNODES ADD {known}"), "once"),
        ("MEMNODES ADD tcp://127.0.0.1:1".to_owned(), "--nodes-max"),
        ("MEMNODES ADD nonsense".to_owned(), "ERR"),
        (
            "MEMNODES DRAIN tcp://127.0.0.1:1".to_owned(),
            "MEMNODES LIST",
        ),
        (format!("MEMNODES DRAIN a={known}"), "zone"),
        (format!("MEMNODES DRAIN {known}"), "cannot go"),
        (format!("MEMNODES REMOVE {known} NOW"), "syntax"),
    ] {
        let said = client.call(&command);
        assert!(said.contains(says), "{command}: {said}");
    }
    let without = Served::start(1);
    let said = without.word_client().call("MEMNODES LIST");
    assert!(said.contains("no memory nodes"), "{said}");
}
