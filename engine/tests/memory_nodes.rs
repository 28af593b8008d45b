//! The engine over memory nodes that it reaches over TCP.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farcore::{Answer, Config, EncryptionKey, EncryptionMode, Engine, Error, FabricAddress, Token};
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::{Exposed, TcpEndpoint, connect_control, connect_queue};
use farcore_rdma::{Initiator, InitiatorOptions, Lock, RemoteSlice};

const PAGE_BYTES: u32 = 64 << 10;
/// The time limit for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn options(port: u16) -> NodeOptions {
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(48 << 20)
    };
    NodeOptions::new(([127, 0, 0, 1], port).into(), memory)
}

fn node() -> NodeHandle {
    MemoryNode::start(options(0)).expect("a node")
}

fn address(node: &NodeHandle) -> FabricAddress {
    format!("tcp://{}", node.address())
        .parse()
        .expect("an address")
}

fn config(nodes: &[&NodeHandle]) -> Config {
    Config {
        cores: vec![0, 1],
        local_bytes: 24 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(PAGE_BYTES),
        keys_expected: 20_000,
        nodes: nodes.iter().map(|node| address(node)).collect(),
        // Long enough for a node that shares two busy cores with other processes.
        far_silence_ns: 2_000_000_000,
        prefault: false,
        lock: Lock::Off,
        handles_max: 2,
        ..Config::default()
    }
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

fn write(engine: &Engine, version: u32) {
    write_some(engine, version, KEYS);
}

fn write_some(engine: &Engine, version: u32, keys: u32) {
    let mut handle = engine.handle().expect("a handle");
    for number in 0..keys {
        handle
            .put(&key(number), &value(number, version))
            .wait()
            .expect("a node that answers");
    }
}

/// Keys; their records are about twice the local memory.
const KEYS: u32 = 50_000;

/// Reads every key. Returns how many had this version's value and how many were unavailable; any
/// other answer fails the test.
fn read(engine: &Engine, version: u32) -> (u32, u32) {
    read_some(engine, version, KEYS)
}

fn read_some(engine: &Engine, version: u32, keys: u32) -> (u32, u32) {
    let mut handle = engine.handle().expect("a handle");
    let (mut right, mut unavailable) = (0, 0);
    for number in 0..keys {
        match handle.get(&key(number)).wait() {
            Ok(Some(found)) => {
                assert!(
                    *found == value(number, version),
                    "a wrong value for {number}"
                );
                right += 1;
            }
            Ok(None) => panic!("{number} is gone"),
            Err(Error::Unavailable { .. }) => unavailable += 1,
            Err(error) => panic!("{number}: {error}"),
        }
    }
    (right, unavailable)
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::yield_now();
    }
}

#[test]
fn values_come_back_from_two_nodes() {
    values_come_back_from(&[node(), node()]);
}

#[test]
fn values_come_back_from_nodes_that_isolate_sessions() {
    let isolated = || {
        let options = NodeOptions {
            isolate: true,
            ..options(0)
        };
        MemoryNode::start(options).expect("a node")
    };
    values_come_back_from(&[isolated(), isolated()]);
}

fn values_come_back_from([first, second]: &[NodeHandle; 2]) {
    let engine = Engine::open(config(&[first, second])).unwrap();
    write(&engine, 1);
    engine.flush().unwrap();
    assert_eq!(read(&engine, 1), (KEYS, 0));
    write(&engine, 2);
    engine.compact().unwrap();
    assert_eq!(read(&engine, 2), (KEYS, 0));
    for node in [first, second] {
        let seen = node.metrics().statistics();
        assert!(seen.reads > 0 && seen.writes > 0, "{seen:?}");
        // One session for each core.
        assert_eq!(seen.sessions, 2);
        assert!(seen.extents_free < seen.extents);
    }
    engine.close();
    // The memory of a closed engine is free at once.
    for node in [first, second] {
        let seen = node.metrics().statistics();
        assert_eq!(
            (seen.sessions, seen.extents_free),
            (0, seen.extents),
            "{seen:?}"
        );
    }
}

#[test]
fn a_node_that_was_started_anew_has_lost_its_pages_and_serves_again() {
    let (first, second) = (node(), node());
    let port = second.address().port();
    let engine = Engine::open(config(&[&first, &second])).unwrap();
    write(&engine, 1);
    engine.flush().unwrap();
    second.stop();
    let (right, unavailable) = read(&engine, 1);
    assert!(
        right > KEYS / 4 && unavailable > KEYS / 10,
        "{right} {unavailable}"
    );
    // New keys go to the other node, except a few that share the slot bits of a record that cannot
    // be read now.
    let mut handle = engine.handle().unwrap();
    let mut stored = Vec::new();
    for number in KEYS..KEYS + 10_000 {
        match handle.put(&key(number), &value(number, 1)).wait() {
            Ok(_) => stored.push(number),
            Err(Error::Unavailable { .. }) => {}
            Err(error) => panic!("{number}: {error}"),
        }
    }
    assert!(stored.len() > 9_900, "{}", stored.len());
    engine.flush().unwrap();
    let second = MemoryNode::start(options(port)).unwrap();
    wait_until("new sessions", || {
        second.metrics().statistics().sessions == 2
    });
    wait_until("new extents", || {
        let seen = second.metrics().statistics();
        seen.extents_free < seen.extents
    });
    // The records there are lost and reported as such; all others are unchanged.
    let (right_now, unavailable) = read(&engine, 1);
    assert!(
        right_now > KEYS / 4 && unavailable > 0,
        "{right_now} {unavailable}"
    );
    // Until the engine forgets the lost keys.
    let forgotten = engine.forget_lost().unwrap();
    assert!(forgotten >= u64::from(unavailable), "{forgotten}");
    assert_eq!(engine.stats().total.lost_keys, 0);
    assert_eq!(engine.forget_lost().unwrap(), 0);
    let mut absent = 0;
    for number in 0..KEYS {
        match handle.get(&key(number)).wait().unwrap() {
            Some(found) => assert!(*found == value(number, 1)),
            None => absent += 1,
        }
    }
    assert_eq!(absent, unavailable);
    for number in stored {
        let found = handle.get(&key(number)).wait().unwrap().unwrap();
        assert!(*found == value(number, 1));
    }
    // It takes pages again.
    wait_until("writes to the new node", || {
        for number in 2 * KEYS..2 * KEYS + 5_000 {
            let put = handle.put(&key(number), &value(number, 1)).wait();
            assert!(
                matches!(put, Ok(_) | Err(Error::Unavailable { .. })),
                "{put:?}"
            );
        }
        engine.flush().unwrap();
        second.metrics().statistics().writes > 0
    });
    // Lost keys can be written again.
    write(&engine, 2);
    engine.flush().unwrap();
    assert_eq!(read(&engine, 2), (KEYS, 0));
    engine.close();
    drop(first);
}

/// Another client, which takes all of a node's memory; `None` if others were faster.
async fn take_all(node: &NodeHandle) -> Option<NodeSession> {
    let channel = connect_control(node.address(), PATIENCE).await.unwrap();
    let mut session = NodeSession::open(channel, "another", None).await.unwrap();
    let all = session.statistics().await.unwrap();
    for _ in 0..all.extents {
        if session.allocate_chunk(all.extent_bytes).await.is_err() {
            session.bye().await.unwrap();
            return None;
        }
    }
    Some(session)
}

#[test]
fn memory_that_was_not_free_after_a_loss_is_claimed_later() {
    // The memory lent by this node alone holds all keys.
    let keys = 30_000;
    let mut first = node();
    let port = first.address().port();
    let engine = Engine::open(Config {
        far_bytes: 40 << 20,
        ..config(&[&first])
    })
    .unwrap();
    write_some(&engine, 1, keys);
    engine.flush().unwrap();
    let held = |node: &NodeHandle| {
        let seen = node.metrics().statistics();
        seen.extents - seen.extents_free
    };
    let before = held(&first);
    let done = farcore_rdma::run_local(async {
        // A restarted node with no memory left for the engine.
        let other = loop {
            first.stop();
            first = MemoryNode::start(options(port)).unwrap();
            if let Some(other) = take_all(&first).await {
                break other;
            }
        };
        wait_until("new sessions", || {
            first.metrics().statistics().sessions == 3
        });
        let (right, unavailable) = read_some(&engine, 1, keys);
        assert!(right > 0 && unavailable > 0, "{right} {unavailable}");
        // Its lease may have ended already.
        let _ = other.bye().await;
        // As much as before and no more: what the engine cannot use is returned.
        wait_until("what is free now", || held(&first) == before);
        first
    });
    let first = done.unwrap();
    // The node has lent it; the shards learn of it a moment later.
    wait_until("room in far memory", || {
        let mut handle = engine.handle().unwrap();
        // Several pages for each shard.
        (0..2_000).all(|number| {
            let put = handle.put(&key(number), &value(number, 2)).wait();
            assert!(matches!(
                put,
                Ok(_) | Err(Error::Unavailable { .. } | Error::FarFull { .. })
            ));
            put.is_ok()
        })
    });
    write_some(&engine, 2, keys);
    engine.flush().unwrap();
    assert_eq!(read_some(&engine, 2, keys), (keys, 0));
    assert_eq!(held(&first), before);
    engine.close();
    assert_eq!(held(&first), 0);
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let node = node();
    let refused = |config: Config| {
        Engine::open(config)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let twice = Config {
        nodes: vec![address(&node), address(&node)],
        ..config(&[])
    };
    let message = refused(twice);
    assert!(
        message.contains("`nodes`") && message.contains("once"),
        "{message}"
    );
    // The same node under another name.
    let port = node.address().port();
    let twins = Config {
        nodes: vec![
            address(&node),
            format!("tcp://localhost:{port}").parse().unwrap(),
        ],
        ..config(&[])
    };
    let message = refused(twins);
    assert!(message.contains("same memory node"), "{message}");
    let too_much = Config {
        far_bytes: 1 << 30,
        local_bytes: 64 << 20,
        ..config(&[&node])
    };
    let message = refused(too_much);
    assert!(
        message.contains("far_bytes") && message.contains("free"),
        "{message}"
    );
    let with_token = Config {
        token: Some(Token::new(b"a token of some other node").unwrap()),
        far_bytes: 32 << 20,
        ..config(&[&node])
    };
    let message = refused(with_token);
    assert!(message.contains("token"), "{message}");
    // No node listens there.
    let gone = address(&node);
    node.stop();
    let message = refused(Config {
        nodes: vec![gone.clone()],
        nodes_wait_ns: 0,
        ..config(&[])
    });
    assert!(
        message.contains(&gone.to_string()) && message.contains("refused"),
        "{message}"
    );
}

#[test]
fn an_engine_opens_without_a_node_that_joins_later() {
    let (first, second) = (node(), node());
    let addresses = vec![address(&first), address(&second)];
    let port = second.address().port();
    second.stop();
    let far_bytes = 40 << 20;
    let engine = Engine::open(Config {
        nodes: addresses,
        nodes_min: Some(1),
        far_bytes,
        ..config(&[])
    })
    .unwrap();
    let held = |node: &NodeHandle| {
        let seen = node.metrics().statistics();
        (seen.extents - seen.extents_free) * seen.extent_bytes
    };
    // Half of it is the other node's share.
    assert_eq!(held(&first), far_bytes / 2);
    let keys = 10_000;
    write_some(&engine, 1, keys);
    engine.flush().unwrap();
    assert_eq!(read_some(&engine, 1, keys), (keys, 0));
    let second = MemoryNode::start(options(port)).unwrap();
    wait_until("its share", || held(&second) == far_bytes / 2);
    wait_until("writes to the node that joined", || {
        write_some(&engine, 2, keys);
        engine.flush().unwrap();
        second.metrics().statistics().writes > 0
    });
    write_some(&engine, 3, 30_000);
    engine.flush().unwrap();
    assert_eq!(read_some(&engine, 3, 30_000), (30_000, 0));
    let seen = second.metrics().statistics();
    assert!(seen.reads > 0, "{seen:?}");
    engine.close();
    assert_eq!((held(&first), held(&second)), (0, 0));
}

#[test]
fn the_share_of_a_missing_node_is_not_claimed_from_the_others() {
    let (first, second) = (node(), node());
    let addresses = vec![address(&first), address(&second)];
    second.stop();
    // A core's half of it is no multiple of an extent.
    let far_bytes = 41 << 20;
    let engine = Engine::open(Config {
        nodes: addresses,
        nodes_min: Some(1),
        far_bytes,
        ..config(&[])
    })
    .unwrap();
    let seen = first.metrics().statistics();
    let extents = seen.extents - seen.extents_free;
    let share = (far_bytes / 4).div_ceil(seen.extent_bytes);
    assert!((far_bytes / 4) % seen.extent_bytes > 0, "{seen:?}");
    assert_eq!(extents, 2 * share, "both cores hold their share: {seen:?}");
    engine.close();
}

#[test]
fn pages_that_a_joining_node_cannot_lend_come_from_the_others() {
    let first = node();
    // Less than its share will be.
    let mut small = options(0);
    small.memory.memory_bytes = 4 << 20;
    small.memory.region_bytes = 4 << 20;
    let second = MemoryNode::start(small.clone()).unwrap();
    let addresses = vec![address(&first), address(&second)];
    small.listen = second.address();
    second.stop();
    let far_bytes = 40 << 20;
    let engine = Engine::open(Config {
        nodes: addresses,
        nodes_min: Some(1),
        far_bytes,
        ..config(&[])
    })
    .unwrap();
    let second = MemoryNode::start(small).unwrap();
    let held = || {
        let held = [&first, &second].map(|node| {
            let seen = node.metrics().statistics();
            (seen.extents - seen.extents_free) * seen.extent_bytes
        });
        held[0] + held[1]
    };
    wait_until("all far memory", || held() == far_bytes);
    engine.close();
    assert_eq!(held(), 0);
}

#[test]
fn an_engine_waits_for_as_many_nodes_as_must_answer() {
    let (first, second) = (node(), node());
    let addresses = vec![address(&first), address(&second)];
    let (gone, port) = (address(&second), second.address().port());
    second.stop();
    let both = Config {
        nodes: addresses,
        nodes_min: Some(2),
        nodes_wait_ns: 0,
        far_bytes: 40 << 20,
        ..config(&[])
    };
    match Engine::open(both.clone()) {
        Err(Error::Unavailable { node, reason }) => {
            assert_eq!(*node, *gone.to_string());
            assert!(
                reason.contains("1 of 2") && reason.contains("refused"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    wait_until("the end of the sessions", || {
        first.metrics().statistics().sessions == 0
    });
    let opening = std::thread::spawn(move || {
        let patient = u64::try_from(PATIENCE.as_nanos()).unwrap();
        Engine::open(Config {
            nodes_wait_ns: patient,
            ..both
        })
    });
    wait_until("sessions with the node that is there", || {
        first.metrics().statistics().sessions == 2
    });
    assert!(!opening.is_finished());
    let second = MemoryNode::start(options(port)).unwrap();
    let engine = opening.join().unwrap().unwrap();
    assert_eq!(second.metrics().statistics().sessions, 2);
    engine.close();
}

#[test]
fn a_token_is_required_and_checked() {
    let token = Token::new(b"a token of the right length").unwrap();
    let node = MemoryNode::start(NodeOptions {
        token: Some(token.clone()),
        ..options(0)
    })
    .unwrap();
    let open = |token| {
        Engine::open(Config {
            token,
            far_bytes: 32 << 20,
            ..config(&[&node])
        })
    };
    for (token, says) in [
        (None, "requires a token"),
        (
            Some(Token::new(b"a token of another sort").unwrap()),
            "wrong token",
        ),
    ] {
        let message = open(token)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(message.contains(says), "{message}");
    }
    let engine = Arc::new(open(Some(token)).unwrap());
    let mut handle = engine.handle().unwrap();
    handle.put(b"k", b"v").wait().unwrap();
    assert_eq!(&**handle.get(b"k").wait().unwrap().as_ref().unwrap(), b"v");
}

/// Runs an engine in a process of its own, which can be stopped: the test starts itself again.
/// Commands go to its standard input; its replies come on standard output behind a mark.
mod child {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    pub(super) const NODE: &str = "FARCORE_ENGINE_NODE";
    const MARK: &str = "reply: ";

    pub(super) fn say(reply: &str) {
        println!("\n{MARK}{reply}");
    }

    pub(super) struct EngineProcess {
        child: Child,
        orders: ChildStdin,
        reply: BufReader<ChildStdout>,
    }

    impl EngineProcess {
        pub(super) fn start(node: &str) -> Self {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["role_engine", "--exact", "--nocapture"])
                .env(NODE, node)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            Self {
                orders: child.stdin.take().unwrap(),
                reply: BufReader::new(child.stdout.take().unwrap()),
                child,
            }
        }

        pub(super) fn tell(&mut self, order: &str) {
            writeln!(self.orders, "{order}").unwrap();
        }

        pub(super) fn hear(&mut self) -> String {
            loop {
                let mut line = String::new();
                let bytes = self.reply.read_line(&mut line).unwrap();
                assert!(bytes > 0, "the engine's process has ended");
                if let Some(reply) = line.trim_end().strip_prefix(MARK) {
                    return reply.to_owned();
                }
            }
        }

        pub(super) fn signal(&self, name: &str) {
            let process = self.child.id().to_string();
            let sent = Command::new("kill").args(["-s", name, &process]).status();
            assert!(sent.unwrap().success());
        }
    }

    impl Drop for EngineProcess {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Keys of the tests below; their records are more than the local memory.
const FEW_KEYS: u32 = 30_000;

#[test]
fn role_engine() {
    let Ok(node) = std::env::var(child::NODE) else {
        return;
    };
    let engine = Engine::open(Config {
        nodes: vec![node.parse().unwrap()],
        far_bytes: 40 << 20,
        ..config(&[])
    })
    .unwrap();
    write_some(&engine, 1, FEW_KEYS);
    engine.flush().unwrap();
    child::say("filled");
    for order in std::io::stdin().lines() {
        match order.unwrap().as_str() {
            "read" => {
                // Its queue pairs may be down for a moment.
                wait_until("all values", || {
                    read_some(&engine, 1, FEW_KEYS) == (FEW_KEYS, 0)
                });
                child::say("right");
            }
            "lose" => {
                let (right, unavailable) = read_some(&engine, 1, FEW_KEYS);
                assert!(right > 0 && unavailable > 0, "{right} {unavailable}");
                child::say("lost");
            }
            order => panic!("{order}"),
        }
    }
}

fn leasing(lease: Duration, keep: Duration) -> NodeHandle {
    let options = NodeOptions {
        lease,
        keep,
        ..options(0)
    };
    MemoryNode::start(options).expect("a node")
}

#[test]
fn a_core_that_is_held_for_longer_than_the_lease_loses_nothing() {
    let lease = Duration::from_secs(3);
    let node = leasing(lease, Duration::ZERO);
    let engine = Engine::open(Config {
        far_bytes: 40 << 20,
        ..config(&[&node])
    })
    .unwrap();
    write_some(&engine, 1, FEW_KEYS);
    engine.flush().unwrap();
    let (begun, release) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let job = |position| {
        let (begun, release) = (Arc::clone(&begun), Arc::clone(&release));
        let job = engine.run_on_core(position, move |_| async move {
            begun.fetch_add(1, Ordering::Relaxed);
            while !release.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        job.unwrap()
    };
    let jobs = [job(0), job(1)];
    wait_until("both jobs", || begun.load(Ordering::Relaxed) == 2);
    let uptime = || Duration::from_nanos(node.metrics().statistics().uptime_ns);
    let until = uptime() + 2 * lease;
    wait_until("two leases of the node's time", || uptime() > until);
    release.store(true, Ordering::Relaxed);
    for job in jobs {
        job.join().unwrap();
    }
    let seen = node.metrics().statistics();
    assert_eq!((seen.sessions_expired, seen.sessions_opened), (0, 2));
    assert_eq!(read_some(&engine, 1, FEW_KEYS), (FEW_KEYS, 0));
    engine.close();
}

#[test]
fn a_process_that_was_stopped_for_longer_than_the_lease_finds_its_data() {
    let node = leasing(Duration::from_secs(1), Duration::from_secs(3600));
    let mut engine = child::EngineProcess::start(&address(&node).to_string());
    assert_eq!(engine.hear(), "filled");
    let before = node.metrics().statistics();
    engine.signal("STOP");
    // One for each core.
    wait_until("the end of both leases", || {
        node.metrics().statistics().extents_kept == before.extents - before.extents_free
    });
    // None of its queue pairs can write any more.
    wait_until("the end of its queue pairs", || {
        node.metrics().statistics().memory_connections == 0
    });
    assert_eq!(node.metrics().statistics().sessions_kept, 2);
    engine.signal("CONT");
    engine.tell("read");
    assert_eq!(engine.hear(), "right");
    let seen = node.metrics().statistics();
    assert_eq!((seen.sessions_expired, seen.sessions_opened), (0, 2));
    assert!(seen.sessions_revived >= 2, "{seen:?}");
    // Its process ends: its pages are not kept.
    drop(engine);
    wait_until("all extents", || {
        let seen = node.metrics().statistics();
        (seen.sessions, seen.extents_free) == (0, seen.extents)
    });
}

#[test]
fn a_process_that_was_stopped_beyond_the_grace_reports_what_it_lost() {
    let node = leasing(Duration::from_secs(2), Duration::from_secs(1));
    let mut engine = child::EngineProcess::start(&address(&node).to_string());
    assert_eq!(engine.hear(), "filled");
    engine.signal("STOP");
    wait_until("the end of both sessions", || {
        let seen = node.metrics().statistics();
        (seen.sessions, seen.extents_free) == (0, seen.extents)
    });
    engine.signal("CONT");
    wait_until("new sessions", || node.metrics().statistics().sessions == 2);
    engine.tell("lose");
    assert_eq!(engine.hear(), "lost");
}

/// What the attack changes: values that were stored one after another under rising keys.
const BALANCE_BYTES: usize = 200;

fn balance(number: u32, coins: u32) -> Vec<u8> {
    let text = format!("account {number:08}: {coins:08} coins ");
    text.repeat(8).into_bytes()[..BALANCE_BYTES].to_vec()
}

/// Another client of the node, which knows its token and none of the engine's keys. It reads every
/// page of the node's memory. Where it guesses which record is there, it turns the ciphertext into
/// that of another value and its checksum.
async fn rewrite_balances(node: &NodeHandle) -> u32 {
    let channel = connect_control(node.address(), PATIENCE).await.unwrap();
    let session = NodeSession::open(channel, "another", None).await.unwrap();
    let endpoint = TcpEndpoint::new(1, 64, 60_000_000_000, Exposed::default());
    let joined = connect_queue(node.address(), &session.memory_request(0), PATIENCE).await;
    endpoint.connection_slot(0).offer(joined.unwrap());
    let options = InitiatorOptions {
        lock: Lock::Off,
        ..InitiatorOptions::default()
    };
    let initiator = Initiator::new(endpoint, options).unwrap();
    initiator.renew(0);
    let mut pages = Vec::new();
    for region in &session.map().regions {
        for offset in (0..region.bytes).step_by(PAGE_BYTES as usize) {
            let place = RemoteSlice {
                key: region.key,
                offset,
            };
            let mut page = vec![0; PAGE_BYTES as usize];
            initiator.read(0, place, &mut page).await.unwrap();
            let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
            let (magic, sequence) = (word(0), word(16));
            let (units, records) = (word(12) as usize, word(24) as usize);
            if magic == 0x4643_5047 {
                pages.push((sequence, place, units, records, page));
            }
        }
    }
    pages.sort_by_key(|page| page.0);
    let mut number = 0;
    for (_, place, units, records, mut page) in pages {
        let bytes = (units - 4) * 16 / records;
        for record in page[64..units * 16].chunks_exact_mut(bytes) {
            let body = |coins| [&key(number)[..], &balance(number, coins)].concat();
            let (old, new) = (body(100), body(99_999_999));
            let check = |body: &[u8]| {
                let hash = xxhash_rust::xxh3::xxh3_64(body);
                (hash ^ hash >> 32).to_le_bytes()
            };
            let flip = |bytes: &mut [u8], old: &[u8], new: &[u8]| {
                for (byte, (old, new)) in bytes.iter_mut().zip(old.iter().zip(new)) {
                    *byte ^= old ^ new;
                }
            };
            flip(&mut record[12..16], &check(&old)[..4], &check(&new)[..4]);
            flip(&mut record[16..], &old, &new);
            number += 1;
        }
        initiator.write(0, place, &page).await.unwrap();
    }
    session.bye().await.unwrap();
    number
}

#[test]
fn records_that_another_client_rewrote_are_damaged() {
    for mode in [EncryptionMode::Authenticated, EncryptionMode::SecrecyOnly] {
        let node = node();
        let engine = Engine::open(Config {
            cores: vec![0],
            local_bytes: 8 << 20,
            far_bytes: 32 << 20,
            encryption: Some(EncryptionKey::random().unwrap()),
            encryption_mode: mode,
            ..config(&[&node])
        })
        .unwrap();
        let mut handle = engine.handle().unwrap();
        let pairs: Vec<_> = (0..KEYS).map(|n| (key(n), balance(n, 100))).collect();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .collect();
        handle
            .put_many(&pairs, |_, answer| {
                assert!(matches!(answer, Answer::Stored { .. }));
            })
            .unwrap();
        engine.flush().unwrap();
        let rewritten = farcore_rdma::run_local(rewrite_balances(&node)).unwrap();
        assert!(rewritten >= KEYS, "{rewritten}");
        let (mut believed, mut damaged) = (0, 0);
        for number in (0..KEYS).step_by(25) {
            match handle.get(&key(number)).wait() {
                Ok(Some(read)) if *read == balance(number, 99_999_999) => believed += 1,
                Ok(Some(read)) => assert_eq!(*read, balance(number, 100)),
                Ok(None) => panic!("{number} is gone"),
                Err(Error::Damaged { .. }) => damaged += 1,
                Err(error) => panic!("{number}: {error}"),
            }
        }
        match mode {
            // A put that waits for far memory is written after later ones. Up to there the records
            // are not the guessed ones.
            EncryptionMode::SecrecyOnly => assert!(believed > 300, "{believed} {damaged}"),
            _ => assert!(believed == 0 && damaged > 300, "{believed} {damaged}"),
        }
        engine.close();
    }
}
