//! Processes that are killed under load: a server whose far memory is its own, a server beside a
//! memory node, and the node. What clients read is compared with what they were answered, for what
//! is promised: nothing survives a process; an acknowledged value is read as long as the server
//! lives, or its key is answered as lost; no client reads a value that was never written; errors
//! have a type; the server starts again, serves again, and heals when its node returns empty.
//!
//! `cargo xtask crash --kills 200` kills more often than the test. Clients that are killed are in
//! `tools/client/tests/killed.rs`, commands that are signalled in `killed.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod keys;
mod load;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use self::load::{Line, Random, Reply, World};
use self::support::{Node, PATIENCE, Process, Serve};

/// Kills of the test, unless `FARCORE_KILLS` says how many.
const KILLS: u64 = 6;
const CLIENTS: u64 = 4;
/// Answers between two kills, at most.
const ANSWERS_MAX: u64 = 3_000;

/// The server's cores.
const CORES: &str = "0,1";
/// Keys that are stored in a row before a server counts as healed.
const PROBES: u64 = 100;
/// Kills from which on a node must have held something at some of them.
const MANY: u64 = 20;

/// What is killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Victim {
    /// A server that is the host of all its memory.
    Host,
    /// A server whose far memory is on a node.
    Server,
    Node,
}

struct Scene {
    node: Option<Node>,
    /// The address of the node, in all its lives.
    place: String,
    server: Serve,
    world: Arc<World>,
    is_remote: bool,
    /// The server's latest life.
    life: u64,
}

fn start_node(place: &str) -> Node {
    let arguments = ["--listen", place, "--memory", "160MiB", "--extent", "1MiB"];
    let times = ["--lease", "1s", "--keep", "0s", "--no-huge-pages"];
    Node::start(&[], &[&arguments[..], &times].concat())
}

fn start_server(node: Option<&str>) -> Serve {
    let fabric = node.map_or_else(Vec::new, |node| vec!["--fabric", node]);
    Serve::start(&[&["--cores", CORES], &fabric[..]].concat())
}

fn kill(process: &mut Process) {
    process.signal("KILL");
    assert_eq!(process.end().signal(), Some(9), "it had ended before");
}

impl Scene {
    fn new(is_remote: bool) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = format!("tcp://{}", free.local_addr().unwrap());
        drop(free);
        let node = is_remote.then(|| start_node(&place));
        let server = start_server(is_remote.then_some(&place));
        let world = Arc::new(World {
            life: AtomicU64::new(1),
            address: Mutex::new(server.address),
            age: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            outcomes: Mutex::new(BTreeMap::new()),
        });
        Self {
            node,
            place,
            server,
            world,
            is_remote,
            life: 1,
        }
    }

    fn kill_server(&mut self) {
        kill(&mut self.server.process);
        self.world.life.store(0, SeqCst);
        self.world.filled.store(0, SeqCst);
        self.server = start_server(self.is_remote.then_some(&self.place));
        *self.world.address.lock().unwrap() = self.server.address;
        self.life += 1;
        self.world.life.store(self.life, SeqCst);
    }

    /// Kills the node and starts it again, which makes it empty; waits until the server has healed.
    fn kill_node(&mut self, forgets: bool) {
        self.world.age.fetch_add(1, SeqCst);
        kill(&mut self.node.as_mut().unwrap().process);
        self.node = Some(start_node(&self.place));
        self.wait_until_healed();
        let age = self.world.age.fetch_add(1, SeqCst) + 1;
        if forgets {
            self.world.forgotten.store(age, SeqCst);
            let mut line = Line::open(self.server.address).unwrap();
            let reply = line.call(&[b"FARCORE", b"FORGET-LOST"]).unwrap();
            assert!(matches!(reply, Reply::Line(_)), "{reply:?}");
            self.world.count("times that lost keys were forgotten");
        }
    }

    /// The server has healed when each of its cores has a session at the new node and it stores
    /// again.
    fn wait_until_healed(&mut self) {
        for _ in CORES.split(',') {
            self.node.as_mut().unwrap().log.wait("session opened");
        }
        let mut line = Line::open(self.server.address).unwrap();
        let start = Instant::now();
        let value = vec![b'v'; 16 << 10];
        let mut stored = 0;
        while stored < PROBES {
            assert!(start.elapsed() < PATIENCE, "the server does not heal");
            let name = format!("healed-{stored}");
            let reply = line.call(&[b"SET", name.as_bytes(), &value]).unwrap();
            stored = if matches!(reply, Reply::Line(_)) {
                stored + 1
            } else {
                0
            };
        }
        for number in 0..PROBES {
            let name = format!("healed-{number}");
            let reply = line.call(&[b"DEL", name.as_bytes()]).unwrap();
            assert!(matches!(reply, Reply::Line(_)), "{reply:?}");
        }
    }
}

/// Ends the others when a client fails, so that its failure is what the test reports.
struct EndsAll(Arc<World>);

impl Drop for EndsAll {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.ends.store(true, SeqCst);
        }
    }
}

/// Kills these in some order under load. Returns what clients were answered.
fn run(victims: &[Victim], kills: u64, seed: u64) -> BTreeMap<String, u64> {
    let mut random = Random(seed | 1);
    let mut scene = Scene::new(!victims.contains(&Victim::Host));
    let world = Arc::clone(&scene.world);
    let client = |number| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let _ends = EndsAll(Arc::clone(&world));
            load::run(&world, number, seed);
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    for _ in 0..kills {
        let victim = victims[usize::try_from(random.below(victims.len() as u64)).unwrap()];
        // Most kills come under full load, some while keys are first written.
        if random.below(4) > 0 {
            world.wait("the keys are not written", || {
                world.filled.load(SeqCst) >= CLIENTS
            });
        }
        let until = world.answers.load(SeqCst) + random.below(ANSWERS_MAX);
        world.wait("clients are not answered", || {
            world.filled.load(SeqCst) < CLIENTS || world.answers.load(SeqCst) >= until
        });
        if world.ends.load(SeqCst) {
            break;
        }
        match victim {
            Victim::Host | Victim::Server => scene.kill_server(),
            Victim::Node => scene.kill_node(random.below(2) == 0),
        }
        world.count(&format!("kills: {victim:?}"));
    }
    // Clients are served again after the last kill too.
    world.wait("clients are not served", || {
        world.filled.load(SeqCst) >= CLIENTS
    });
    world.ends.store(true, SeqCst);
    for client in clients {
        if let Err(failure) = client.join() {
            panic::resume_unwind(failure);
        }
    }
    assert!(scene.server.process.is_alive());
    std::mem::take(&mut *world.outcomes.lock().unwrap())
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Kills, and prints what was seen.
fn show(victims: &[Victim], kills: u64) -> BTreeMap<String, u64> {
    let seed = from_environment("FARCORE_SEED").unwrap_or(1);
    println!("FARCORE_SEED={seed}, {kills} kills of {victims:?}");
    let outcomes = run(victims, kills, seed);
    for (outcome, count) in &outcomes {
        println!("{count:>9} {outcome}");
    }
    assert!(outcomes["reads"] > 0 && outcomes["writes"] > 0);
    outcomes
}

fn kills() -> u64 {
    from_environment("FARCORE_KILLS").unwrap_or(KILLS)
}

#[test]
fn a_killed_host_starts_empty_and_serves() {
    show(&[Victim::Host], kills() / 3);
}

#[test]
fn a_killed_server_or_node_loses_nothing_silently() {
    let outcomes = show(&[Victim::Server, Victim::Node], kills() - kills() / 3);
    assert!(
        kills() < MANY || outcomes.contains_key("reads answered UNAVAILABLE"),
        "a killed node held nothing: {outcomes:?}"
    );
}
