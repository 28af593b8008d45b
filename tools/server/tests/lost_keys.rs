//! Keys whose values a restarted memory node has lost: what they reply, how they are deleted and
//! forgotten.

use std::time::Instant;

use farcore::{Config, Engine, LostKeys};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
use farcore_server::Options;

mod support;

use support::{PATIENCE, Served, WordClient};

/// Keys; their records are about twice the local memory.
const KEYS: u32 = 24_000;

fn node(port: u16) -> NodeHandle {
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(48 << 20)
    };
    let options = NodeOptions::new(([127, 0, 0, 1], port).into(), memory);
    MemoryNode::start(options).expect("a node")
}

fn served(node: &NodeHandle, lost_keys: LostKeys) -> Served {
    let address = format!("tcp://{}", node.address());
    let engine = Engine::open(Config {
        cores: vec![0],
        local_bytes: 12 << 20,
        far_bytes: 32 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 20_000,
        nodes: vec![address.parse().expect("an address")],
        far_silence_ns: 2_000_000_000,
        prefault: false,
        lock: Lock::Off,
        lost_keys,
        ..Config::default()
    });
    let keep = |_: &mut Options| {};
    Served::on(engine.expect("an engine"), keep)
}

fn key(number: u32) -> String {
    format!("key:{number}")
}

fn fill(client: &mut WordClient) {
    let value = "v".repeat(800);
    for first in (0..KEYS).step_by(100) {
        let pairs = (first..first + 100).map(|number| format!(" {} {value}", key(number)));
        let command = format!("MSET{}", pairs.collect::<String>());
        assert_eq!(client.call(&command), "OK");
    }
}

/// A figure of `INFO stats`.
fn figure(client: &mut WordClient, name: &str) -> u64 {
    let text = client.call("INFO stats");
    let after = text.split(&format!("{name}:")).nth(1).expect("the line");
    let digits = after.chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().expect("a number")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// Restarts a node.
fn restarted(node: NodeHandle) -> NodeHandle {
    let port = node.address().port();
    node.stop();
    self::node(port)
}

/// The keys that reply the error of lost values.
fn lost(client: &mut WordClient) -> Vec<String> {
    let mut is_lost = |key: &String| {
        let said = client.call(&format!("GET {key}"));
        let is_error = said.starts_with("(error)");
        let is_right = said.contains("UNAVAILABLE the key's value is lost")
            && said.contains("FARCORE FORGET-LOST")
            && !said.contains("Engine::");
        assert!(!is_error || is_right, "{said}");
        is_error
    };
    (0..KEYS).map(key).filter(|key| is_lost(key)).collect()
}

#[test]
fn lost_keys_are_deleted_counted_and_forgotten() {
    let node = node(0);
    let served = served(&node, LostKeys::Keep);
    let mut client = served.word_client();
    fill(&mut client);
    assert_eq!(client.call("FARCORE FORGET-LOST"), "0");
    let node = restarted(node);
    wait_until("the loss is known", || figure(&mut client, "lost_keys") > 0);
    let lost = lost(&mut client);
    assert!(lost.len() > 4_000, "{}", lost.len());
    let known = figure(&mut client, "lost_keys");
    let number = lost.len() as u64;
    assert!(known.abs_diff(number) < 100, "{known} of {number}");
    for (command, key) in [("DEL", &lost[0]), ("UNLINK", &lost[1])] {
        let delete = format!("{command} {key}");
        assert_eq!(client.call(&delete), "1", "{delete}");
        assert_eq!(client.call(&format!("GET {key}")), "nil", "{delete}");
        assert_eq!(client.call(&delete), "0", "{delete}");
    }
    let several = format!("UNLINK {} {} never:stored", lost[2], lost[3]);
    assert_eq!(client.call(&several), "2");
    client.call("CONFIG SET notify-keyspace-events KEA");
    assert_eq!(client.call(&format!("DEL {}", lost[4])), "1", "with events");
    client.call("MULTI");
    client.call(&format!("DEL {}", lost[5]));
    assert_eq!(client.call("EXEC"), "[1]");
    let left = known - 6;
    wait_until("they are counted", || {
        figure(&mut client, "lost_keys") == left
    });
    assert_eq!(client.call("FARCORE FORGET-LOST"), left.to_string());
    wait_until("none is lost", || figure(&mut client, "lost_keys") == 0);
    for key in lost.iter().step_by(97) {
        assert_eq!(client.call(&format!("GET {key}")), "nil", "{key}");
    }
    drop(served);
    node.stop();
}

#[test]
fn a_server_that_forgets_at_once_replies_as_a_cache() {
    let node = node(0);
    let served = served(&node, LostKeys::Forget);
    let mut client = served.word_client();
    fill(&mut client);
    let all = KEYS.to_string();
    assert_eq!(client.call("DBSIZE"), all);
    let node = restarted(node);
    wait_until("the loss is known", || client.call("DBSIZE") != all);
    assert_eq!(lost(&mut client), Vec::<String>::new());
    drop(served);
    node.stop();
}
