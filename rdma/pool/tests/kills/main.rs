//! Many processes allocate, share and free memory of several nodes, and are killed at random; so
//! are nodes.
//!
//! The test starts itself again for each process. Each value that a process holds bears its mark,
//! and must still bear it when it is read again. Processes pass values on by a queue: each that was
//! pushed and answered is popped once, unless its pusher or popper was killed with it. In the end
//! all memory must be free within a lease.
//!
//! `FARCORE_KILLS_SECONDS` sets how long it runs, `FARCORE_KILLS_LISTEN` where the nodes listen:
//! `rdma+tcp://127.0.0.1:0` for RDMA.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use farcore_pool::structures::RemoteQueue;
use farcore_pool::{Exported, PoolError, PoolOptions, RemotePool, RemoteSlice};
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
use farcore_rdma::{FabricAddress, Lock};

const NODES: usize = 3;
const CLIENTS: usize = 8;
const EXTENT: u64 = 64 << 10;
const EXTENTS: u64 = 128;
const LEASE: Duration = Duration::from_secs(1);
/// Time limit for what must end.
const LIMIT: Duration = Duration::from_secs(60);
const SECONDS: &str = "FARCORE_KILLS_SECONDS";
const LISTEN: &str = "FARCORE_KILLS_LISTEN";
/// What a client finds in its environment.
const CLIENT: &str = "FARCORE_KILLS_CLIENT";
const ADDRESSES: &str = "FARCORE_KILLS_ADDRESSES";
const QUEUE: &str = "FARCORE_KILLS_QUEUE";

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn seconds() -> u64 {
    let seconds = std::env::var(SECONDS).ok();
    seconds.map_or(5, |text| text.parse().expect("a number of seconds"))
}

fn listen() -> FabricAddress {
    let listen = std::env::var(LISTEN).unwrap_or_else(|_| "tcp://127.0.0.1:0".to_owned());
    listen.parse().expect("an address")
}

fn node(address: SocketAddr) -> NodeHandle {
    let memory = MemoryOptions {
        region_bytes: 32 * EXTENT,
        extent_bytes: EXTENT,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(EXTENTS * EXTENT)
    };
    let options = NodeOptions {
        scheme: listen().scheme(),
        lease: LEASE,
        keep: Duration::ZERO,
        mend_pace: Duration::from_millis(200),
        ..NodeOptions::new(address, memory)
    };
    MemoryNode::start(options).expect("a node")
}

fn name(address: SocketAddr) -> String {
    format!("{}://{address}", listen().scheme().as_str())
}

fn options() -> PoolOptions {
    PoolOptions {
        timeout: Duration::from_secs(10),
        nodes_wait: Duration::from_secs(20),
        connections: 2,
        ..PoolOptions::default()
    }
}

/// Whether memory is lost with its node's session: then nothing is expected of it.
fn is_lost(error: &PoolError) -> bool {
    matches!(
        error,
        PoolError::Renewed { .. }
            | PoolError::Down { .. }
            | PoolError::UnknownOutcome { .. }
            | PoolError::Exhausted { .. }
    )
}

/// A client: works until it is killed, or its input ends.
#[test]
fn client() {
    let Ok(number) = std::env::var(CLIENT) else {
        return;
    };
    let number: u64 = number.parse().expect("a number");
    let addresses = std::env::var(ADDRESSES).expect("it is set with the other");
    let pool = RemotePool::connect(addresses.split(','), options()).expect("nodes that answer");
    let queue: Exported<u64> = std::env::var(QUEUE)
        .expect("it is set")
        .parse()
        .expect("one");
    let queue = RemoteQueue::<u64>::open(&pool, &queue).wait();
    let ends = thread::spawn(|| {
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
    });
    let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut held: HashMap<u64, RemoteSlice<u64>> = HashMap::new();
    let mut next = number << 32;
    while !ends.is_finished() {
        next += 1;
        match random.below(6) {
            0 | 1 if held.len() < 40 => allocate(&pool, &mut held, next, &mut random),
            2 | 3 => check(&mut held, random.below(64)),
            4 => {
                if let Ok(queue) = &queue {
                    pass_on(queue, next, &mut random);
                }
            }
            _ => share(&pool, &held),
        }
    }
    for mark in held.keys().copied().collect::<Vec<_>>() {
        check(&mut held, mark);
    }
    println!("done");
}

fn allocate(
    pool: &RemotePool,
    held: &mut HashMap<u64, RemoteSlice<u64>>,
    mark: u64,
    random: &mut Random,
) {
    // From 8 bytes to two extents.
    let length = 1 << random.below(15);
    let marks = vec![mark; usize::try_from(length).expect("small")];
    match pool.alloc_from(&marks).wait() {
        Ok(slice) => {
            held.insert(mark, slice);
        }
        Err(error) => assert!(is_lost(&error), "{error}"),
    }
}

/// Reads a value that is held, and drops it.
fn check(held: &mut HashMap<u64, RemoteSlice<u64>>, which: u64) {
    let Some(&mark) = held.keys().min_by_key(|mark| mark.wrapping_mul(which | 1)) else {
        return;
    };
    let Some(slice) = held.remove(&mark) else {
        return;
    };
    match slice.to_vec().wait() {
        Ok(words) => {
            let wrong = words.iter().find(|&&word| word != mark);
            assert_eq!(wrong, None, "memory of {mark:x} was another's too");
        }
        Err(error) => assert!(is_lost(&error), "{error}"),
    }
}

/// Pushes a value, or pops one, and says so.
fn pass_on(queue: &RemoteQueue<u64>, value: u64, random: &mut Random) {
    if random.below(2) == 0 {
        println!("pushing {value}");
        match queue.push(&value).wait() {
            Ok(true) => println!("pushed {value}"),
            Ok(false) => println!("full {value}"),
            Err(error) => assert!(is_lost(&error), "{error}"),
        }
    } else {
        println!("popping");
        match queue.pop().wait() {
            Ok(Some(value)) => println!("popped {value}"),
            Ok(None) => println!("empty"),
            Err(error) => assert!(is_lost(&error), "{error}"),
        }
    }
}

/// Exports a value and imports it again, as another would.
fn share(pool: &RemotePool, held: &HashMap<u64, RemoteSlice<u64>>) {
    let Some((&mark, slice)) = held.iter().next() else {
        return;
    };
    let found = slice.export(false).wait().and_then(|exported| {
        let same = pool.import(&exported).wait()?;
        same.read(0).wait()
    });
    match found {
        Ok(found) => assert_eq!(found, mark),
        Err(error) => {
            let is_gone = matches!(error, PoolError::Gone { .. } | PoolError::OtherNode { .. });
            assert!(is_gone || is_lost(&error), "{error}");
        }
    }
}

/// A running client, and its lines.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
}

/// What a client said: its number and a line, or its end.
type News = (u64, Option<String>);

fn start(number: u64, addresses: &str, queue: &str, news: &Sender<News>) -> Running {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "client", "--nocapture"])
        .env(CLIENT, number.to_string())
        .env(ADDRESSES, addresses)
        .env(QUEUE, queue)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let news = news.clone();
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = news.send((number, Some(line)));
        }
        let _ = news.send((number, None));
    });
    Running {
        input: child.stdin.take(),
        child,
    }
}

/// What became of the values.
#[derive(Default)]
struct Tally {
    pushed: HashMap<u64, bool>,
    popped: HashMap<u64, u32>,
    /// Clients that had begun to pop and said no outcome.
    lost_pops: u64,
    popping: HashMap<u64, bool>,
    done: u64,
}

impl Tally {
    fn note(&mut self, (client, line): News) {
        let Some(line) = line else {
            if self.popping.remove(&client) == Some(true) {
                self.lost_pops += 1;
            }
            return;
        };
        let (what, value) = line.split_once(' ').unwrap_or((&line, ""));
        let value = value.parse().unwrap_or(0);
        match what {
            "pushing" => {
                self.pushed.insert(value, false);
            }
            "pushed" => {
                self.pushed.insert(value, true);
            }
            "full" => {
                self.pushed.remove(&value);
            }
            "popping" => {
                self.popping.insert(client, true);
            }
            "popped" => {
                self.popping.insert(client, false);
                *self.popped.entry(value).or_default() += 1;
            }
            "empty" => {
                self.popping.insert(client, false);
            }
            "done" => self.done += 1,
            _ => {}
        }
    }

    fn check(&self, left: &[u64]) {
        for (value, count) in &self.popped {
            assert_eq!(*count, 1, "{value} was popped {count} times");
            assert!(self.pushed.contains_key(value), "{value} was never pushed");
        }
        let is_missing = |value: &&u64| !self.popped.contains_key(value) && !left.contains(value);
        let answered = self.pushed.iter().filter(|(_, answered)| **answered);
        let missing = answered.map(|(value, _)| value).filter(is_missing).count() as u64;
        assert!(
            missing <= self.lost_pops,
            "{missing} values are lost, and {} pops had no answer",
            self.lost_pops
        );
    }
}

fn until(what: impl Fn() -> bool, name: &str) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < LIMIT, "{name}: not within {LIMIT:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Has all clients end, each with a last look at what it holds.
fn end_all(clients: &mut [Running]) {
    for client in &mut *clients {
        if let Some(mut input) = client.input.take() {
            let _ = input.write_all(b"end\n");
        }
    }
    for client in clients {
        let status = client.child.wait().expect("a child");
        assert!(status.success(), "a client found something wrong");
    }
    // The last lines are read.
    thread::sleep(Duration::from_millis(200));
}

#[test]
fn no_memory_is_owned_twice_or_lost() {
    if std::env::var(CLIENT).is_ok() {
        return;
    }
    let host = listen().host().parse().expect("a number");
    let mut nodes: Vec<_> = (0..NODES).map(|_| node(SocketAddr::new(host, 0))).collect();
    let addresses: Vec<_> = nodes.iter().map(NodeHandle::address).collect();
    let names: Vec<_> = addresses.iter().map(|&address| name(address)).collect();
    let names = names.join(",");
    // The queue lies on the first node, which is not killed.
    let pool = RemotePool::connect(names.split(','), options()).expect("nodes that answer");
    let on_first = pool.at(farcore_pool::Placement::Node(0));
    let queue = RemoteQueue::<u64>::create(&on_first, 2000)
        .wait()
        .expect("room");
    let exported = queue.export().wait().expect("a pointer").to_string();
    let (send, news): (Sender<News>, Receiver<News>) = channel();
    let mut random = Random(std::process::id().into());
    let mut number = 0;
    let mut begin = || {
        number += 1;
        start(number, &names, &exported, &send)
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| begin()).collect();
    let mut tally = Tally::default();
    let end = Instant::now() + Duration::from_secs(seconds());
    let (mut kills, mut restarts) = (0, 0);
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(20 + random.below(200)));
        let victim = usize::try_from(random.below(CLIENTS as u64)).expect("small");
        let status = clients[victim].child.try_wait().expect("a child");
        assert_eq!(status, None, "a client ended by itself");
        clients[victim].child.kill().expect("it runs");
        clients[victim].child.wait().expect("it was killed");
        clients[victim] = begin();
        kills += 1;
        if random.below(8) == 0 {
            let which = 1 + usize::try_from(random.below(NODES as u64 - 1)).expect("small");
            let stopped = nodes.remove(which);
            stopped.stop();
            nodes.insert(which, node(addresses[which]));
            restarts += 1;
        }
        news.try_iter().for_each(|one| tally.note(one));
    }
    end_all(&mut clients);
    news.try_iter().for_each(|one| tally.note(one));
    assert_eq!(tally.done, CLIENTS as u64);
    let mut left = Vec::new();
    while let Some(value) = queue.pop().wait().expect("the first node was not killed") {
        left.push(value);
    }
    left.iter()
        .for_each(|value| *tally.popped.entry(*value).or_default() += 1);
    tally.check(&left);
    println!(
        "{kills} kills, {restarts} restarts of nodes, {} values passed on, {} pops without an answer",
        tally.popped.len(),
        tally.lost_pops
    );
    assert!(kills > 0 && !tally.popped.is_empty());
    drop((queue, on_first, pool));
    for node in &nodes {
        let free = || node.metrics().statistics().extents_free;
        until(|| free() == EXTENTS, "all memory is free");
        assert_eq!(node.metrics().statistics().sessions, 0);
    }
}
