//! Slots that move from one server to another with their keys, while clients use them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use farcore_server::slot_of;

use self::support::clusters::{Cluster, id_of};
use self::support::followers::{figure, wait_for};
use self::support::{Client, PATIENCE, Random};

/// Keys of each client.
const KEYS: usize = 60;
/// How often one command may be redirected.
const REDIRECTED_MAX: usize = 16;

/// A client of the cluster, which remembers who has owned each slot.
struct Follower {
    first: SocketAddr,
    owners: HashMap<u16, SocketAddr>,
    clients: HashMap<SocketAddr, Client>,
    redirected: usize,
}

impl Follower {
    fn new(first: SocketAddr) -> Self {
        Self {
            first,
            owners: HashMap::new(),
            clients: HashMap::new(),
            redirected: 0,
        }
    }

    /// Sends words about a key to its owner.
    fn ask(&mut self, key: &str, words: &[&str]) -> String {
        self.all(key, &[words]).pop().unwrap()
    }

    /// Sends commands about a key at once; all of them again if one is redirected, so they must be
    /// a transaction or one alone.
    fn all(&mut self, key: &str, commands: &[&[&str]]) -> Vec<String> {
        let slot = slot_of(key.as_bytes());
        for _ in 0..REDIRECTED_MAX {
            let address = *self.owners.get(&slot).unwrap_or(&self.first);
            let client = self.clients.entry(address);
            let client = client.or_insert_with(|| Client::connect(address));
            let replies: Vec<_> = commands
                .iter()
                .map(|words| client.ask(words).to_string())
                .collect();
            let moved = replies
                .iter()
                .find_map(|reply| reply.strip_prefix("-MOVED "));
            let Some(moved) = moved else {
                return replies;
            };
            let (_, address) = moved.split_once(' ').unwrap();
            self.owners.insert(slot, address.parse().unwrap());
            self.redirected += 1;
        }
        panic!("{key} is redirected without an end");
    }
}

/// Changes keys of its own until it is over, and checks that each has what was acknowledged.
fn work(from: SocketAddr, number: usize, is_over: &AtomicBool) -> (Follower, Vec<(String, usize)>) {
    let mut random = Random::of(number as u64);
    let mut follower = Follower::new(from);
    let mut keys: Vec<_> = (0..KEYS)
        .map(|key| (format!("{{{number}-{key}}}"), 0_usize))
        .collect();
    while !is_over.load(Ordering::Relaxed) {
        let place = random.below(KEYS);
        let (key, count) = &mut keys[place];
        let [counter, list, hash] = ["n", "l", "h"].map(|kind| format!("{key}{kind}"));
        let next = (*count + 1).to_string();
        let field = format!("f{count}");
        let replies = follower.all(
            key,
            &[
                &["MULTI"],
                &["INCR", &counter],
                &["RPUSH", &list, &next],
                &["HSET", &hash, &field, &next],
                &["EXEC"],
            ],
        );
        assert_eq!(replies[4], format!("[:{next}, :{next}, :1]"), "{replies:?}");
        *count += 1;
        assert_eq!(follower.ask(key, &["GET", &counter]), format!("\"{next}\""));
        assert_eq!(follower.ask(key, &["LLEN", &list]), format!(":{next}"));
    }
    (follower, keys)
}

/// The value of a line of `CLUSTERX IMPORTS`.
fn import_of(client: &mut Client, name: &str) -> String {
    let text = client.ask(&["CLUSTERX", "IMPORTS"]).text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")[..]));
    line.unwrap_or_default().to_owned()
}

fn wait_for_phase(client: &mut Client, phase: &str) {
    let begun = Instant::now();
    while import_of(client, "phase") != phase {
        let text = client.ask(&["CLUSTERX", "IMPORTS"]).text();
        assert!(
            begun.elapsed() < PATIENCE && !text.contains("error:"),
            "{text}"
        );
        thread::yield_now();
    }
}

/// Has a server bring slots from another one, and waits until they are its own.
fn bring(cluster: &Cluster, slots: &str, from: usize, to: usize) {
    let mut client = cluster.servers[to].client();
    let reply = client.ask(&["CLUSTERX", "IMPORT", slots, &id_of(from)]);
    assert_eq!(reply.to_string(), "+OK");
    wait_for_phase(&mut client, "done");
}

/// Gives the map of one server to all.
fn share_map(cluster: &Cluster, of: usize) {
    let map = cluster.servers[of]
        .client()
        .ask(&["CLUSTERX", "MAP"])
        .text();
    let (version, nodes) = map.split_once('\n').unwrap();
    let version = version.strip_prefix("version ").unwrap();
    for server in &cluster.servers {
        let reply = server
            .client()
            .ask(&["CLUSTERX", "SETNODES", nodes, version]);
        assert_eq!(reply.to_string(), "+OK");
    }
}

/// Has clients work while slots move, and compares what each key has with what was acknowledged.
fn work_while(cluster: &Cluster, moves: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let redirected = AtomicUsize::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let (from, is_over) = (cluster.address(number % 3), &is_over);
                scope.spawn(move || work(from, number, is_over))
            })
            .collect();
        let over = Over(&is_over);
        moves();
        drop(over);
        for client in clients {
            let (mut follower, keys) = client.join().unwrap();
            redirected.fetch_add(follower.redirected, Ordering::Relaxed);
            for (key, count) in keys.iter().filter(|(_, count)| *count > 0) {
                let all: Vec<_> = (1..=*count).map(|one| format!("\"{one}\"")).collect();
                let list = follower.ask(key, &["LRANGE", &format!("{key}l"), "0", "-1"]);
                assert_eq!(list, format!("[{}]", all.join(", ")));
                let fields = follower.ask(key, &["HLEN", &format!("{key}h")]);
                assert_eq!(fields, format!(":{count}"));
            }
        }
    });
    assert!(redirected.load(Ordering::Relaxed) > 0);
    wait_until_alone(cluster);
}

/// Ends clients also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until each key is at one server alone.
fn wait_until_alone(cluster: &Cluster) {
    let begun = Instant::now();
    let mut left = usize::MAX;
    while left > 0 {
        left = 0;
        for (number, server) in cluster.servers.iter().enumerate() {
            let mut client = server.client();
            let text = client.ask(&["KEYS", "*"]).to_string();
            let keys = text.trim_matches(['[', ']']).split(", ");
            let keys = keys.map(|key| key.trim_matches('"'));
            for key in keys.filter(|key| !key.is_empty()) {
                let reply = client.ask(&["TYPE", key]).to_string();
                left += usize::from(reply.starts_with("-MOVED"));
                assert!(begun.elapsed() < PATIENCE, "{number} has {key} still");
            }
        }
    }
}

#[test]
fn slots_move_under_load_and_nothing_is_lost_or_doubled() {
    for cores in [1, 2] {
        let cluster = Cluster::apart(3, cores).with_thirds();
        work_while(&cluster, || {
            // Half of all slots, some of them twice.
            for (slots, from, to) in [
                ("0-5460", 0, 2),
                ("5461-8191", 1, 2),
                ("100-3000,4000", 2, 0),
                ("100-200", 0, 1),
            ] {
                bring(&cluster, slots, from, to);
                share_map(&cluster, to);
            }
        });
    }
}

/// Ends connections of a server between servers: those that bring slots, and those that wait for
/// them to be given away.
fn cut_links(client: &mut Client, is_over: &AtomicBool) -> usize {
    let mut cut = 0;
    // Also answers to what it asks then are cut, but not for ever.
    while !is_over.load(Ordering::Relaxed) && cut < 3 {
        let list = client.ask(&["CLIENT", "LIST"]).text();
        let asking = list.lines().filter(|line| line.contains("cmd=clusterx"));
        let ids = asking.filter_map(|line| line.split(' ').next()?.strip_prefix("id="));
        for id in ids {
            cut += usize::from(client.ask(&["CLIENT", "KILL", "ID", id]).to_string() == ":1");
        }
    }
    cut
}

#[test]
fn a_move_whose_links_are_cut_ends_with_one_owner() {
    let cluster = Cluster::apart(3, 2).with_thirds();
    let mut cut = 0;
    work_while(&cluster, || {
        for round in 0..4 {
            let (from, to) = if round % 2 == 0 { (0, 2) } else { (2, 0) };
            let mut source = cluster.servers[from].client();
            let mut target = cluster.servers[to].client();
            let is_over = AtomicBool::new(false);
            cut += thread::scope(|scope| {
                let cutter = scope.spawn(|| cut_links(&mut source, &is_over));
                let over = Over(&is_over);
                let import = ["CLUSTERX", "IMPORT", "0-5460", &id_of(from)];
                assert_eq!(target.ask(&import).to_string(), "+OK");
                let begun = Instant::now();
                let mut is_cut = false;
                loop {
                    let phase = import_of(&mut target, "phase");
                    if phase == "done" {
                        break;
                    }
                    if phase == "failed" {
                        // Its owner has kept the slots.
                        assert_eq!(target.ask(&import).to_string(), "+OK");
                    } else if phase == "following" && !is_cut {
                        is_cut = true;
                        let kill = ["CLIENT", "KILL", "TYPE", "replica"];
                        cluster.servers[from].client().ask(&kill);
                    }
                    let error = import_of(&mut target, "error");
                    assert!(begun.elapsed() < PATIENCE, "{phase}: {error}");
                    thread::yield_now();
                }
                drop(over);
                cutter.join().unwrap()
            });
            share_map(&cluster, to);
        }
    });
    assert!(cut > 0, "no answer was cut");
}

#[test]
fn a_client_that_waits_for_a_key_is_told_where_it_moves() {
    let cluster = Cluster::apart(3, 2).with_thirds();
    let mut waiting = cluster.servers[0].client();
    // Slot 3300, and one that stays.
    let mut staying = cluster.servers[0].client();
    waiting.send(&["BLPOP", "b", "0"]);
    staying.send(&["BLPOP", "k2", "0"]);
    let begun = Instant::now();
    let mut client = cluster.servers[0].client();
    while !client
        .ask(&["INFO", "clients"])
        .text()
        .contains("blocked_clients:2")
    {
        assert!(begun.elapsed() < PATIENCE);
    }
    bring(&cluster, "3300", 0, 2);
    let moved = format!("-MOVED 3300 {}", cluster.address(2));
    assert_eq!(waiting.read().unwrap().to_string(), moved);
    assert_eq!(client.say("RPUSH b x"), moved);
    assert_eq!(client.say("RPUSH k2 y"), ":1");
    assert_eq!(staying.read().unwrap().to_string(), "[\"k2\", \"y\"]");
    // The map of a program ends waits, too.
    let mut other = cluster.servers[2].client();
    other.send(&["BLPOP", "b", "0"]);
    let mut client = cluster.servers[2].client();
    while !client
        .ask(&["INFO", "clients"])
        .text()
        .contains("blocked_clients:1")
    {
        assert!(begun.elapsed() < PATIENCE);
    }
    let nodes = cluster.nodes(&[
        "master - 0-5460",
        "master - 5461-10922",
        "master - 10923-16383",
    ]);
    assert_eq!(
        client
            .ask(&["CLUSTERX", "SETNODES", &nodes, "9"])
            .to_string(),
        "+OK"
    );
    let moved = format!("-MOVED 3300 {}", cluster.address(0));
    assert_eq!(other.read().unwrap().to_string(), moved);
}

#[test]
fn what_cannot_be_moved_is_refused_and_stays() {
    let cluster = Cluster::apart(3, 2).with_thirds();
    let mut to = cluster.servers[2].client();
    let (first, own) = (id_of(0), id_of(2));
    let unknown = "f".repeat(40);
    for (words, refusal) in [
        (
            &["IMPORT", "16384", &first][..],
            "-ERR Invalid slots: '16384' must be a slot",
        ),
        (
            &["IMPORT", "", &first],
            "-ERR Invalid slots: there must be a slot",
        ),
        (&["IMPORT", "0", "x"], "-ERR Invalid cluster node id"),
        (&["IMPORT", "0", &unknown], "-ERR the ID is not in the map"),
        (&["IMPORT", "6000", &first], "-ERR slot 6000 is not of"),
        (
            &["IMPORT", "11000", &own],
            "-ERR the slots are this server's already",
        ),
        (
            &["HANDOVER", "11000", &first, "7", "1"],
            "-ERR the map here has version 1, not 7",
        ),
        (
            &["HANDOVER", "0", &first, "1", "1"],
            "-ERR slot 0 is not this server's",
        ),
        (
            &["HANDOVER", "11000", &own, "1", "1"],
            "-ERR the ID is not another server's",
        ),
        (&["FORGET", "0-5000,11000"], "-ERR a slot is this server's"),
        (&["CANCEL"], "-ERR no slots are brought here"),
        // None has brought them.
        (
            &["HANDOVER", "11000-12000", &first, "1", "5"],
            "-ERR the slots are not given away",
        ),
    ] {
        let reply = to.ask(&[&["CLUSTERX"], words].concat()).to_string();
        assert!(reply.starts_with(refusal), "{words:?}: {reply}");
    }
    assert_eq!(to.say("SET a 1"), "+OK");
    // A question that was taken back is not carried out when it comes late.
    let map = to.ask(&["CLUSTERX", "KEEP", &first, "10"]).text();
    assert!(map.starts_with("version 1\n"), "{map}");
    let late = to
        .ask(&["CLUSTERX", "HANDOVER", "11000", &first, "1", "10"])
        .to_string();
    assert_eq!(late, "-ERR the question was taken back");
    assert_eq!(to.say("GET a"), "\"1\"");
}

/// Has the first server of a map be one that replies the same to all, or nothing.
fn with_liar(cluster: &Cluster, reply: &'static [u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let map = cluster.servers[2].client().ask(&["CLUSTERX", "MAP"]).text();
    let (version, nodes) = map.split_once('\n').unwrap();
    let version: u64 = version.strip_prefix("version ").unwrap().parse().unwrap();
    let before = nodes.lines().next().unwrap().split(' ').nth(2).unwrap();
    let nodes = nodes.replacen(before, &port.to_string(), 1);
    let next = (version + 1).to_string();
    let words = ["CLUSTERX", "SETNODES", &nodes, &next];
    let pushed = cluster.servers[2].client().ask(&words);
    assert_eq!(pushed.to_string(), "+OK");
    // It ends with the test.
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(reply);
            kept.push(stream);
        }
    });
}

#[test]
fn a_source_that_is_silent_or_lies_is_named_and_changes_nothing() {
    let cluster = Cluster::apart(3, 2).with_thirds();
    let mut to = cluster.servers[2].client();
    assert_eq!(to.say("SET a 1"), "+OK");
    let import = ["CLUSTERX", "IMPORT", "866", &id_of(0)];
    let wait_for_end = |client: &mut Client| {
        let begun = Instant::now();
        while import_of(client, "phase") != "failed" {
            assert!(begun.elapsed() < PATIENCE);
            thread::yield_now();
        }
        import_of(client, "error")
    };
    for (reply, error) in [
        (&b"-ERR no\r\n"[..], "the source refuses PING: ERR no"),
        (b"+PONG\r\n$5\r\nhello\r\n", ""),
        (b"+PONG\r\n$99999999999\r\n", ""),
        (b"+PONG\r\n$20\r\nversion 18446744073709551615\n\r\n", ""),
        (b"+PONG\r\n+OK\r\n", "OK"),
    ] {
        with_liar(&cluster, reply);
        assert_eq!(to.ask(&import).to_string(), "+OK");
        let said = wait_for_end(&mut to);
        assert!(said.contains(error) && !said.is_empty(), "{said}");
    }
    // While one is asked that says nothing, all keys are not removed, and others are not brought.
    with_liar(&cluster, b"");
    assert_eq!(to.ask(&import).to_string(), "+OK");
    for words in [&["FLUSHALL"][..], &["FLUSHDB"]] {
        let reply = to.ask(words).to_string();
        assert!(reply.starts_with("-ERR slots are brought"), "{reply}");
    }
    let reply = to.ask(&import).to_string();
    assert!(reply.starts_with("-ERR other slots are brought"), "{reply}");
    assert_eq!(to.ask(&["CLUSTERX", "CANCEL"]).to_string(), "+OK");
    assert_eq!(wait_for_end(&mut to), "it was stopped");
    assert_eq!(to.say("GET a"), "\"1\"");
    assert_eq!(to.say("FLUSHALL"), "+OK");
}

#[test]
fn scripts_wait_while_slots_change_their_owner() {
    let cluster = Cluster::apart(3, 2).with_thirds();
    let third = id_of(2);
    let mut queued = cluster.servers[0].client();
    queued.say("MULTI");
    // Slot of b: 3300, which is not held; but a script may name any key.
    queued.ask(&["EVAL", "return redis.call('SET', 'b', '1')", "0"]);
    let mut client = cluster.servers[0].client();
    let mut asking = cluster.servers[0].client();
    // None brings slots, so these are held in vain, for as long as that takes.
    asking.send(&["CLUSTERX", "HANDOVER", "0-99", &third, "1", "1"]);
    let begun = Instant::now();
    while !client
        .ask(&["CLIENT", "LIST"])
        .text()
        .contains("cmd=clusterx")
    {
        assert!(begun.elapsed() < PATIENCE);
    }
    queued.send(&["EXEC"]);
    let mut script = cluster.servers[0].client();
    script.send(&["EVAL", "return 1", "0"]);
    let mut flush = cluster.servers[0].client();
    flush.send(&["FLUSHALL"]);
    while !client
        .ask(&["INFO", "clients"])
        .text()
        .contains("blocked_clients:3")
    {
        assert!(begun.elapsed() < PATIENCE);
    }
    // One of a slot that is not held goes on.
    assert_eq!(client.say("SET b 2"), "+OK");
    let reply = asking.read().unwrap().to_string();
    assert!(
        reply.starts_with("-ERR the slots are not given away"),
        "{reply}"
    );
    assert_eq!(queued.read().unwrap().to_string(), "[+OK]");
    assert_eq!(script.read().unwrap().to_string(), ":1");
    assert_eq!(flush.read().unwrap().to_string(), "+OK");
}

#[test]
fn slots_are_given_away_only_when_all_has_ended_and_is_there() {
    const BYTES: usize = 2 << 20;
    for cores in [1, 2] {
        let cluster = Cluster::apart(3, cores).with_thirds();
        let third = id_of(2);
        let mut client = cluster.servers[0].client();
        assert_eq!(client.say("SET b 1"), "+OK");
        let mut ticket = 0;
        let mut hand_over = |client: &mut Client, slots: &str| {
            ticket += 1;
            let words = [
                "CLUSTERX",
                "HANDOVER",
                slots,
                &third,
                "1",
                &ticket.to_string(),
            ];
            client.ask(&words).to_string()
        };
        // One that brings the slot of b, and says how far it is without a look at what it gets.
        let mut importer = cluster.servers[0].client();
        let wanted = format!("{third} 3300");
        let reply = importer.ask(&["REPLCONF", "farcore-import", &wanted]);
        assert_eq!(reply.to_string(), "+OK");
        importer.send(&["PSYNC", "?", "-1"]);
        importer.send(&["REPLCONF", "ACK", "1"]);
        wait_for(&mut client, "all is read for it", |client| {
            figure(client, "served_full_syncs") == "1"
        });
        assert_eq!(client.say("SET b 2"), "+OK");
        let reply = hand_over(&mut client, "3300");
        assert!(reply.contains("has not got all changes"), "{reply}");
        assert_eq!(client.say("SET b 3"), "+OK");
        importer.send(&["REPLCONF", "ACK", "1000000000"]);
        // It brings no other slots.
        let reply = hand_over(&mut client, "3299-3300");
        assert!(reply.contains("has not got all changes"), "{reply}");
        // A command that has begun, on the way.
        let mut slow = cluster.servers[0].client();
        slow.write(format!("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n${BYTES}\r\n").as_bytes());
        slow.write(&vec![b'x'; BYTES / 2]);
        let begun = Instant::now();
        let blocks = |client: &mut Client| {
            let list = client.ask(&["CLIENT", "LIST"]).text();
            list.lines().any(|line| line.contains("cmd=set"))
        };
        while !blocks(&mut client) {
            assert!(begun.elapsed() < PATIENCE);
        }
        let reply = hand_over(&mut client, "3300");
        assert!(reply.contains("a command that has begun before"), "{reply}");
        slow.write(&vec![b'x'; BYTES / 2]);
        slow.write(b"\r\n");
        assert_eq!(slow.read().unwrap().to_string(), "+OK");
        let reply = hand_over(&mut client, "3300");
        assert!(reply.starts_with("\"version 2"), "{reply}");
        let moved = format!("-MOVED 3300 {}", cluster.address(2));
        assert_eq!(client.say("GET b"), moved);
    }
}

#[test]
fn what_has_come_of_a_source_that_goes_is_removed() {
    let mut cluster = Cluster::apart(3, 2).with_thirds();
    let mut to = cluster.servers[2].client();
    let first = id_of(0);
    // Slot of a: 15495, of foo: 12182, of hello: 866.
    assert_eq!(to.say("SET a 1"), "+OK");
    assert_eq!(to.say("SET foo 1"), "+OK");
    let mut from = cluster.servers[0].client();
    for number in 0..20_000 {
        from.ask(&["SET", &format!("{{hello}}{number}"), &"x".repeat(500)]);
    }
    assert_eq!(
        to.ask(&["CLUSTERX", "IMPORT", "866", &first]).to_string(),
        "+OK"
    );
    drop(from);
    let stopped = cluster.servers.remove(0);
    drop(stopped);
    let begun = Instant::now();
    while !["failed", "done"].contains(&&import_of(&mut to, "phase")[..]) {
        assert!(begun.elapsed() < PATIENCE);
        thread::yield_now();
    }
    if import_of(&mut to, "phase") == "failed" {
        assert!(!import_of(&mut to, "error").is_empty());
        assert_eq!(to.ask(&["DBSIZE"]).to_string(), ":2");
    }
    assert_eq!(to.say("GET a"), "\"1\"");
}
