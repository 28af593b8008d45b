//! Two hosts: a memory node and an engine in separate network namespaces, and a link that is cut
//! and restored.
//!
//! ```text
//! this process: creates the namespaces, cuts and restores the link, sends lines to the engine
//!   namespace `node`: farcore memnode, 10.77.0.1
//!     | veth
//!   namespace `engine`: this test again, as `engine_side`
//! ```
//!
//! Namespaces need root and iproute2; without them the tests print the reason and pass.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use farcore::{Config, Engine, Error, Handle, Token};
use farcore_rdma::Lock;

use self::support::{Lines, Node, PATIENCE, Process, TOKEN, TokenFile};

/// Environment variable with the node's address for the engine's process.
const ROLE: &str = "FARCORE_TEST_NODE";
/// Prefix of the engine's answers.
const MARK: &str = "engine: ";
/// Keys; their records exceed local memory by far.
const KEYS: u32 = 40_000;
/// Keys that are written after old ones may be lost.
const FRESH: u32 = 12_000;
/// Time after which a silent node is lost.
const SILENCE: Duration = Duration::from_millis(500);
/// Requests that must fail while the link is cut.
const FAILURES: u64 = 50;

fn ip(arguments: &[&str]) -> std::io::Result<std::process::Output> {
    Command::new("ip").args(arguments).output()
}

fn must(arguments: &[&str]) {
    let output = ip(arguments).expect("iproute2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "ip {}: {said}",
        arguments.join(" ")
    );
}

/// Why namespaces are impossible here; `None` if they are possible.
fn missing() -> Option<&'static str> {
    let root = std::fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    if !root {
        return Some("needs root");
    }
    ip(&["-V"]).is_err().then_some("needs iproute2 (`ip`)")
}

/// Two namespaces and the link between them.
struct Hosts {
    node: String,
    engine: String,
}

impl Hosts {
    fn new(name: &str) -> Self {
        let process = std::process::id();
        let hosts = Self {
            node: format!("farcore-{process}-{name}-node"),
            engine: format!("farcore-{process}-{name}-engine"),
        };
        let (node, engine) = (&*hosts.node, &*hosts.engine);
        must(&["netns", "add", node]);
        must(&["netns", "add", engine]);
        must(&[
            "link", "add", "near", "netns", node, "type", "veth", "peer", "name", "far", "netns",
            engine,
        ]);
        must(&["-n", node, "address", "add", "10.77.0.1/24", "dev", "near"]);
        must(&["-n", engine, "address", "add", "10.77.0.2/24", "dev", "far"]);
        must(&["-n", engine, "link", "set", "lo", "up"]);
        must(&["-n", engine, "link", "set", "far", "up"]);
        must(&["-n", node, "link", "set", "near", "up"]);
        hosts
    }

    fn link(&self, state: &str) {
        must(&["-n", &self.node, "link", "set", "near", state]);
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in [&self.node, &self.engine] {
            // A namespace that was never created cannot be removed.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// The engine's process.
struct EngineSide {
    process: Process,
    input: ChildStdin,
    answers: Lines,
}

impl EngineSide {
    fn start(hosts: &Hosts, node: &Node) -> Self {
        let here = std::env::current_exe().expect("this test");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &hosts.engine]).arg(here);
        command.args(["--exact", "engine_side", "--ignored", "--nocapture"]);
        command.env(ROLE, format!("tcp://{}", node.address));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = Process(child.expect("this test again"));
        let input = process.0.stdin.take().expect("a pipe");
        let answers = Lines::of(process.0.stdout.take().expect("a pipe"));
        Self {
            process,
            input,
            answers,
        }
    }

    fn send(&mut self, order: &str) {
        writeln!(self.input, "{order}").expect("an engine that listens");
    }

    fn wait(&mut self, answer: &str) -> String {
        self.answers.wait(&format!("{MARK}{answer}"))
    }

    fn end(mut self) {
        self.send("end");
        self.wait("closed");
        assert!(self.process.end().success());
    }
}

fn node(hosts: &Hosts, token: &TokenFile, lease: &str) -> Node {
    let before = ["ip", "netns", "exec", &hosts.node];
    Node::start(
        &before,
        &[
            "--listen",
            "tcp://10.77.0.1:7400",
            "--memory",
            "128MiB",
            "--token-file",
            token.path(),
            "--lease",
            lease,
            "--keep",
            "0s",
            "--no-huge-pages",
        ],
    )
}

fn stop(mut node: Node) -> Vec<String> {
    node.process.signal("TERM");
    assert_eq!(node.process.end().code(), Some(0));
    node.log.rest()
}

#[test]
fn a_link_that_is_cut_and_restored_loses_nothing() {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return;
    }
    let hosts = Hosts::new("short");
    let token = TokenFile::new("short");
    // The cuts last a second or two.
    let node = node(&hosts, &token, "20s");
    let mut engine = EngineSide::start(&hosts, &node);
    engine.wait("filled");
    for _ in 0..4 {
        engine.send("work");
        engine.wait("worked");
        engine.send("cut");
        engine.wait("working");
        hosts.link("down");
        eprintln!("{}", engine.wait("unavailable"));
        hosts.link("up");
        engine.send("restored");
        eprintln!("{}", engine.wait("right"));
    }
    engine.end();
    let log = stop(node);
    let of = |what: &str| log.iter().filter(|line| line.contains(what)).count();
    assert_eq!(of("longer than its lease"), 0, "{}", log.join("\n"));
    assert_eq!(of("a session has ended"), 2, "{}", log.join("\n"));
}

#[test]
fn a_cut_longer_than_the_lease_loses_only_far_records_of_that_node() {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return;
    }
    let hosts = Hosts::new("long");
    let token = TokenFile::new("long");
    let mut node = node(&hosts, &token, "3s");
    let mut engine = EngineSide::start(&hosts, &node);
    engine.wait("filled");
    engine.send("work");
    engine.wait("worked");
    engine.send("cut");
    engine.wait("working");
    hosts.link("down");
    engine.wait("unavailable");
    for _ in 0..2 {
        let line = node.log.wait("longer than its lease");
        let extents = line
            .split("extents=")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        assert!(extents.is_some_and(|extents| extents > 0), "{line}");
    }
    hosts.link("up");
    for _ in 0..2 {
        node.log.wait("session opened");
    }
    engine.send("restored late");
    eprintln!("{}", engine.wait("went on"));
    engine.end();
    let log = stop(node);
    let opened = log.iter().filter(|line| line.contains("session opened"));
    assert_eq!(opened.count(), 4, "{}", log.join("\n"));
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number).to_le_bytes()
}

fn value(number: u32, version: u32) -> Vec<u8> {
    let byte = (number ^ version).to_le_bytes()[0];
    let mut value = vec![byte; 700 + number as usize % 300];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value[4..8].copy_from_slice(&version.to_le_bytes());
    value
}

/// The oracle: the versions that each key may have. A refused put may have taken effect or not.
struct Model {
    may_be: Vec<Vec<u32>>,
    version: u32,
    random: u64,
    unavailable: u64,
    longest: Duration,
}

impl Model {
    fn new() -> Self {
        Self {
            may_be: vec![Vec::new(); (KEYS + FRESH) as usize],
            version: 0,
            random: 0x9E37_79B9_7F4A_7C15,
            unavailable: 0,
            longest: Duration::ZERO,
        }
    }

    fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let bytes = self.random.to_le_bytes();
        u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
    }

    /// The result if there was an answer; `None` if the key was unavailable.
    fn settle<T>(&mut self, start: Instant, result: farcore::Result<T>) -> Option<T> {
        let took = start.elapsed();
        self.longest = self.longest.max(took);
        match result {
            Ok(answer) => Some(answer),
            Err(Error::Unavailable { .. }) => {
                self.unavailable += 1;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn put(&mut self, handle: &mut Handle, number: u32) -> bool {
        self.version += 1;
        let version = self.version;
        let start = Instant::now();
        let result = handle.put(&key(number), &value(number, version)).wait();
        let done = self.settle(start, result).is_some();
        let may_be = &mut self.may_be[number as usize];
        if done {
            may_be.clear();
        }
        may_be.push(version);
        done
    }

    fn get(&mut self, handle: &mut Handle, number: u32) -> bool {
        let start = Instant::now();
        let result = handle.get(&key(number)).wait();
        let result = result.map(|found| found.map(|value| value.to_vec()));
        let Some(found) = self.settle(start, result) else {
            return false;
        };
        let found = found.unwrap_or_else(|| panic!("{number} is gone"));
        let may_be = &mut self.may_be[number as usize];
        let version = may_be
            .iter()
            .copied()
            .find(|&version| value(number, version) == found);
        let version = version.unwrap_or_else(|| {
            let head = &found[..8.min(found.len())];
            panic!("a wrong value for {number}: {head:02x?}, one of {may_be:?} is right")
        });
        *may_be = vec![version];
        true
    }

    /// Random gets and puts.
    fn mix(&mut self, handle: &mut Handle, count: u32) {
        for _ in 0..count {
            let number = self.random() % KEYS;
            if self.random().is_multiple_of(4) {
                self.put(handle, number);
            } else {
                self.get(handle, number);
            }
        }
    }

    /// Reads all keys until one cannot be read.
    fn all_right(&mut self, handle: &mut Handle) -> bool {
        (0..KEYS).all(|number| self.get(handle, number))
    }

    fn unreadable(&mut self, handle: &mut Handle) -> BTreeSet<u32> {
        (0..KEYS)
            .filter(|&number| !self.get(handle, number))
            .collect()
    }
}

fn answer(what: &str) {
    println!("\n{MARK}{what}");
}

fn order(orders: &Receiver<String>) -> String {
    let order = orders.recv_timeout(PATIENCE);
    order.expect("the other process went silent")
}

/// Reads the old keys and writes new ones after a cut that outlasted the lease.
fn go_on(engine: &Engine, model: &mut Model, handle: &mut Handle) -> String {
    let start = Instant::now();
    let fresh = KEYS..KEYS + FRESH;
    // A few keys collide in the index with lost ones and cannot be written.
    loop {
        let stored = fresh.clone().filter(|&one| model.put(handle, one)).count();
        if stored > fresh.len() * 95 / 100 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{stored} new keys stored");
    }
    // Until the core knows that its session has ended, it may still evict pages with a far copy.
    // What is unreadable after that is lost and stays lost.
    let lost = loop {
        let (once, again) = (model.unreadable(handle), model.unreadable(handle));
        if once == again {
            break once;
        }
        assert!(start.elapsed() < PATIENCE, "the lost ones change");
    };
    // The other keys stay readable, also when their pages are flushed to new extents: local memory
    // is too small for them and the new keys.
    for number in fresh.clone() {
        model.put(handle, number);
    }
    engine.flush().expect("a node that answers");
    let now = model.unreadable(handle);
    let changed: Vec<_> = now.symmetric_difference(&lost).collect();
    assert!(
        changed.is_empty(),
        "{} of {} changed: {changed:?}",
        changed.len(),
        lost.len()
    );
    let right = KEYS as usize - lost.len();
    assert!(lost.len() > KEYS as usize / 10 && right > 0, "{lost:?}");
    let kept: Vec<_> = fresh
        .filter(|&one| model.may_be[one as usize].len() == 1)
        .collect();
    for &number in &kept {
        assert!(model.get(handle, number), "{number} was written again");
    }
    format!("{} lost, {right} right, {} new", lost.len(), kept.len())
}

/// The engine, in its namespace. Over 70 lines: its set-up, and one arm for each order.
#[test]
#[ignore = "a part of the other tests"]
#[expect(clippy::too_many_lines, reason = "the acts of one process, in order")]
fn engine_side() {
    let Ok(node) = std::env::var(ROLE) else {
        return;
    };
    let config = Config {
        cores: vec![0, 1],
        local_bytes: 24 << 20,
        far_bytes: 96 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: u64::from(KEYS),
        nodes: vec![node.parse().unwrap()],
        token: Some(Token::new(TOKEN.as_bytes()).unwrap()),
        far_silence_ns: u64::try_from(SILENCE.as_nanos()).unwrap(),
        prefault: false,
        lock: Lock::Off,
        handles_max: 2,
        ..Config::default()
    };
    let (sender, orders) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let engine = Engine::open(config).unwrap();
    let mut handle = engine.handle().unwrap();
    let mut model = Model::new();
    for number in 0..KEYS {
        assert!(model.put(&mut handle, number));
    }
    engine.flush().unwrap();
    answer("filled");
    loop {
        match &*order(&orders) {
            "work" => {
                model.unavailable = 0;
                model.mix(&mut handle, 5_000);
                assert_eq!(model.unavailable, 0, "the link is whole");
                answer("worked");
            }
            "cut" => {
                model.longest = Duration::ZERO;
                answer("working");
                while model.unavailable < FAILURES {
                    model.mix(&mut handle, 10);
                }
                // Much longer than the silence, because this machine may be busy.
                assert!(model.longest < 20 * SILENCE, "{:?}", model.longest);
                answer(&format!(
                    "unavailable: {} times, the longest answer after {:?}",
                    model.unavailable, model.longest
                ));
                let order = loop {
                    model.mix(&mut handle, 10);
                    if let Ok(order) = orders.try_recv() {
                        break order;
                    }
                };
                if order == "restored late" {
                    let outcome = go_on(&engine, &mut model, &mut handle);
                    engine.flush().unwrap();
                    answer(&format!("went on: {outcome}"));
                    continue;
                }
                assert_eq!(order, "restored");
                let start = Instant::now();
                while !model.all_right(&mut handle) {
                    assert!(start.elapsed() < PATIENCE, "the node does not return");
                    model.mix(&mut handle, 100);
                }
                engine.flush().unwrap();
                answer(&format!("right again after {:?}", start.elapsed()));
            }
            "end" => break,
            other => panic!("an unknown order: {other}"),
        }
    }
    drop(handle);
    engine.close();
    answer("closed");
}
