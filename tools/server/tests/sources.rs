//! A server that others follow: a Redis and another server of its kind, under load, whose links are
//! cut. What needs a Redis is left out where none is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use self::support::followers::{
    assert_equal, draw, draw_more, figure, follow, said, wait_for, wait_for_link, write_until,
};
use self::support::redis::Redis;
use self::support::{Client, Random, Served};

fn either(random: &mut Random, number: usize) -> Vec<String> {
    match random.below(2) {
        0 => draw(random, number),
        _ => draw_more(random, number),
    }
}

/// Waits until the follower has all that its source has written.
fn wait_for_all(follower: &mut Client, source: &mut Client) {
    assert_eq!(said(source, "WAIT 1 60000"), "1");
    wait_for(follower, "all is applied", |follower| {
        figure(follower, "slave_repl_offset") == figure(source, "master_repl_offset")
    });
}

#[test]
fn a_redis_follows_a_server_through_cut_links_and_is_equal_to_it() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let served = Served::roomy(2);
    let (mut source, mut replica) = (served.client(), Client::connect(redis.address));
    let mut random = Random::new();
    for number in 0..5000 {
        let command = either(&mut random, number);
        source.ask(&command);
    }
    said(&mut source, "SELECT 0");
    source.ask(&["SET", "long", &"x".repeat(3 << 20)]);
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let (is_over, address) = (Arc::clone(&is_over), served.address);
            let random = Random::of(random.next());
            thread::spawn(move || write_until(address, &is_over, random, either))
        })
        .collect();
    follow(&mut replica, served.address);
    wait_for_link(&mut replica);
    for round in 0..6u32 {
        let before = figure(&mut source, "served_partial_syncs");
        wait_for(&mut replica, "a link is cut", |replica| {
            let killed = match round % 2 {
                0 => said(&mut source, "CLIENT KILL TYPE replica"),
                _ => said(replica, "CLIENT KILL TYPE master"),
            };
            killed != "0"
        });
        wait_for(&mut source, "the stream goes on", |source| {
            figure(source, "served_partial_syncs") != before
                || figure(source, "served_full_syncs") != "1"
        });
        wait_for_link(&mut replica);
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().unwrap();
    }
    // All may have been removed a moment ago.
    for number in 0..1000 {
        source.ask(&draw(&mut random, number));
    }
    wait_for_all(&mut replica, &mut source);
    assert!(assert_equal(&mut replica, &mut source) > 100);
}

/// True if a replica has the stream up to an offset.
fn is_at(replica: &mut Client, offset: &str) -> bool {
    let at = figure(replica, "slave_repl_offset");
    at.parse::<u64>()
        .is_ok_and(|at| at >= offset.parse().unwrap())
}

/// Fills a server.
fn fill(client: &mut Client, random: &mut Random, commands: usize) {
    for number in 0..commands {
        let command = match number < commands / 2 {
            true => either(random, number),
            false => draw(random, number),
        };
        client.ask(&command);
    }
    client.ask(&["SELECT", "0"]);
}

#[test]
fn replicas_go_on_with_one_of_them_that_is_promoted_and_load_from_a_replica() {
    let servers: Vec<_> = (0..3).map(|_| Served::roomy(2)).collect();
    let mut clients: Vec<_> = servers.iter().map(Served::client).collect();
    let redis = Redis::start();
    let [first, second, third] = &mut clients[..] else {
        unreachable!("there are three")
    };
    let mut random = Random::new();
    fill(first, &mut random, 2000);
    for client in [&mut *second, &mut *third] {
        follow(client, servers[0].address);
        wait_for_link(client);
    }
    // One that follows a replica gets all data from it.
    let mut fourth = redis.as_ref().map(|redis| Client::connect(redis.address));
    if let Some(fourth) = &mut fourth {
        follow(fourth, servers[1].address);
        wait_for_link(fourth);
        assert_eq!(figure(second, "served_full_syncs"), "1");
    }
    fill(first, &mut random, 2000);
    assert_eq!(said(first, "WAIT 2 60000"), "2");
    assert_eq!(figure(first, "connected_slaves"), "2");
    let offset = figure(first, "master_repl_offset");
    let id = figure(first, "master_replid");
    for client in [Some(&mut *second), Some(&mut *third), fourth.as_mut()] {
        let Some(client) = client else { continue };
        wait_for(client, "all is applied", |client| is_at(client, &offset));
        assert_eq!(figure(client, "master_replid"), id);
        assert!(assert_equal(client, first) > 100);
    }
    // The second leads from now on.
    assert_eq!(said(second, "SELECT 0"), "OK");
    assert_eq!(said(second, "REPLICAOF NO ONE"), "OK");
    assert_eq!(figure(second, "master_replid2"), id);
    assert_ne!(figure(second, "master_replid"), id);
    follow(third, servers[1].address);
    wait_for_link(third);
    if let Some(fourth) = &mut fourth {
        wait_for_link(fourth);
    }
    fill(second, &mut random, 2000);
    let count = if fourth.is_some() { "2" } else { "1" };
    assert_eq!(said(second, &format!("WAIT {count} 60000")), count);
    let full = if fourth.is_some() { "1" } else { "0" };
    assert_eq!(
        figure(second, "served_full_syncs"),
        full,
        "the stream went on"
    );
    assert_ne!(figure(second, "served_partial_syncs"), "0");
    let offset = figure(second, "master_repl_offset");
    for client in [Some(third), fourth.as_mut()] {
        let Some(client) = client else { continue };
        wait_for(client, "all is applied", |client| is_at(client, &offset));
        assert!(assert_equal(client, second) > 100);
    }
}

#[test]
fn a_replica_sees_all_of_a_transaction_over_several_shards_or_nothing() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let served = Served::roomy(2);
    let (mut source, mut replica) = (served.client(), Client::connect(redis.address));
    let keys = [0, 1].map(|shard| {
        let mut names = (0..).map(|number| format!("key{number}"));
        names.find(|name| served.shard_of(name.as_bytes()) == shard)
    });
    let keys = keys.map(Option::unwrap);
    follow(&mut replica, served.address);
    wait_for_link(&mut replica);
    let writer = thread::spawn({
        let keys = keys.clone();
        move || {
            for number in 0..3000 {
                let number = number.to_string();
                said(&mut source, "MULTI");
                for key in &keys {
                    source.ask(&["SET", key, &number]);
                }
                assert_eq!(source.ask(&["EXEC"]).elements().len(), 2);
            }
            source
        }
    });
    let (mut last, mut seen) = (String::new(), 0);
    while last != "2999" {
        let both = replica.ask(&["MGET", &keys[0], &keys[1]]);
        let [one, other] = [0, 1].map(|place| both.elements()[place].text());
        assert_eq!(one, other, "after {last}");
        seen += usize::from(one != last);
        last = one;
    }
    println!("{seen} moments were seen");
    let mut source = writer.join().unwrap();
    // A removal of all keys is one moment, too.
    for number in 0..50 {
        said(&mut source, "FLUSHALL");
        for key in &keys {
            source.ask(&["SET", key, &number.to_string()]);
        }
    }
    wait_for_all(&mut replica, &mut source);
    assert_eq!(assert_equal(&mut replica, &mut source), 2);
    assert_eq!(figure(&mut source, "served_full_syncs"), "1");
    // A Redis that follows keeps what has expired until its source removes it.
    said(&mut source, "SELECT 0");
    said(&mut replica, "SELECT 0");
    said(&mut source, "HSET brief a 1");
    said(&mut source, "PEXPIRE brief 1");
    wait_for(&mut replica, "what has expired goes", |replica| {
        said(&mut source, "WAIT 1 0") == "1" && said(replica, "DBSIZE") == "2"
    });
}

#[test]
fn writes_wait_for_replicas_and_are_refused_without_them() {
    let (served, other) = (Served::start(2), Served::start(1));
    let (mut source, mut replica) = (served.client(), other.client());
    assert_eq!(said(&mut source, "WAIT 0 0"), "0");
    assert_eq!(said(&mut source, "WAIT 1 1"), "0");
    assert_eq!(
        said(&mut source, "CONFIG SET min-replicas-to-write 1"),
        "OK"
    );
    let refused = "NOREPLICAS Not enough good replicas to write.";
    assert!(said(&mut source, "SET a b").contains(refused));
    assert!(said(&mut source, "EVAL return(redis.call('SET','a','b')) 0").contains(refused));
    assert_eq!(said(&mut source, "GET a"), "null");
    follow(&mut replica, served.address);
    wait_for_link(&mut replica);
    wait_for(&mut source, "it is followed", |source| {
        said(source, "SET a b") == "OK"
    });
    assert_eq!(said(&mut source, "WAIT 1 0"), "1");
    assert_eq!(said(&mut replica, "GET a"), "b");
    assert_eq!(figure(&mut source, "min_slaves_good_slaves"), "1");
    let list = said(&mut source, "CLIENT LIST TYPE replica");
    assert!(
        list.contains("flags=S") && list.contains("cmd=psync"),
        "{list}"
    );
    assert!(!said(&mut source, "CLIENT LIST TYPE normal").contains("psync"));
    let role = source.ask(&["ROLE"]);
    assert_eq!(role.elements()[0].text(), "master");
    let of_replica = role.elements()[2].elements()[0].elements()[1].text();
    assert_eq!(of_replica, other.address.port().to_string());
    let refused = "WAIT cannot be used with replica instances";
    assert!(said(&mut replica, "WAIT 1 0").contains(refused));
    assert_eq!(said(&mut source, "MULTI"), "OK");
    said(&mut source, "SET a c");
    said(&mut source, "WAIT 1 0");
    assert_eq!(source.ask(&["EXEC"]).elements().len(), 2);
    assert_eq!(said(&mut replica, "REPLICAOF NO ONE"), "OK");
    wait_for(&mut source, "it is not followed", |source| {
        said(source, "SET a b").contains("NOREPLICAS")
    });
    assert_eq!(said(&mut source, "CONFIG SET min-slaves-to-write 0"), "OK");
    assert_eq!(said(&mut source, "SET a b"), "OK");
    for wrong in [
        "x 1 1 1",
        "replica 1 1",
        "replica a 1 1",
        "normal 1mb 1mb 1",
    ] {
        let reply = source.ask(&["CONFIG", "SET", "client-output-buffer-limit", wrong]);
        assert!(
            reply.text().contains("CONFIG SET failed"),
            "{wrong}: {reply}"
        );
    }
}

/// Begins to follow a server by hand, and reads nothing.
fn follow_by_hand(source: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(source).unwrap();
    socket.write_all(b"PSYNC ? -1\r\n").unwrap();
    socket
}

#[test]
fn a_replica_that_reads_nothing_is_dropped_at_a_limit_or_has_writers_wait() {
    let served = Served::roomy(2);
    let mut source = served.client();
    let limit = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "replica 8mb 8mb 60",
    ];
    assert_eq!(source.ask(&limit).text(), "OK");
    assert_eq!(said(&mut source, "CONFIG SET repl-backlog-size 1mb"), "OK");
    let value = "x".repeat(2 << 10);
    let _silent = follow_by_hand(served.address);
    wait_for(&mut source, "it is served", |source| {
        figure(source, "connected_slaves") == "1"
    });
    wait_for(&mut source, "it is dropped", |source| {
        for _ in 0..100 {
            assert_eq!(source.ask(&["SET", "a", &value]).text(), "OK");
        }
        figure(source, "dropped_replicas") == "1"
    });
    wait_for(&mut source, "what it needed goes", |source| {
        let kept: u64 = figure(source, "repl_backlog_histlen").parse().unwrap();
        kept <= (1 << 20) + (64 << 10)
    });
    // A replica that sends what is none is dropped, too.
    let mut wrong = follow_by_hand(served.address);
    wait_for(&mut source, "it is served", |source| {
        figure(source, "connected_slaves") == "1"
    });
    wrong.write_all(b"*99999999\r\n").unwrap();
    wrong.read_to_end(&mut Vec::new()).unwrap();
    // Where writers wait, it has all once it reads.
    assert_eq!(said(&mut source, "CONFIG SET slow-replicas wait"), "OK");
    let silent = follow_by_hand(served.address);
    wait_for(&mut source, "it is served", |source| {
        figure(source, "connected_slaves") == "1"
    });
    let before = figure(&mut source, "dropped_replicas");
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (is_over, address) = (Arc::clone(&is_over), served.address);
        thread::spawn(move || {
            let mut client = Client::connect(address);
            for _ in 0..20_000 {
                assert_eq!(client.ask(&["SET", "e", &value]).text(), "OK");
            }
            is_over.store(true, Ordering::Relaxed);
        })
    };
    wait_for(&mut source, "it is far behind", |source| {
        figure(source, "repl_backlog_histlen")
            .parse::<u64>()
            .unwrap()
            >= 8 << 20
    });
    assert!(!is_over.load(Ordering::Relaxed));
    let reader = thread::spawn(move || {
        let mut silent = silent;
        let mut buffer = vec![0; 1 << 20];
        let mut read = 0;
        while read < 40_000_000 {
            read += silent.read(&mut buffer).unwrap();
        }
        silent
    });
    writer.join().unwrap();
    drop(reader.join().unwrap());
    assert_eq!(figure(&mut source, "dropped_replicas"), before);
}

#[test]
fn redis_cli_takes_all_data_as_a_file_that_redis_reads() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    drop(redis);
    let served = Served::roomy(2);
    let mut source = served.client();
    let mut random = Random::new();
    fill(&mut source, &mut random, 2000);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.rdb");
    let port = served.address.port().to_string();
    let taken = Command::new("redis-cli")
        .args(["-p", &port, "--rdb"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(taken.status.success(), "{taken:?}");
    let checked = Command::new("redis-check-rdb").arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(text.contains("RDB looks OK"), "{text}");
}

/// A Sentinel that watches a server, and ends when it is dropped.
struct Sentinel {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    fn watch(source: SocketAddr) -> Self {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor it 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds it 1000\n\
             sentinel failover-timeout it 10000\n",
            folder.path().display(),
            source.port()
        );
        std::fs::write(&file, text).unwrap();
        let process = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        while TcpStream::connect(address).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        Self {
            process,
            address,
            _folder: folder,
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn sentinel_promotes_a_replica_of_a_server_that_is_gone() {
    if Redis::start().is_none() {
        println!("no Redis 7.0.15 is installed");
        return;
    }
    // Each writes down whom it follows, as Sentinel has it do.
    let folder = tempfile::tempdir().unwrap();
    let file = |number: usize| folder.path().join(number.to_string());
    let server = |number| {
        std::fs::write(file(number), "").unwrap();
        Served::with(1, |options| {
            options.client_bytes = 256 << 20;
            options.settings_file = Some(file(number));
        })
    };
    let mut servers: Vec<_> = (0..3).map(server).collect();
    let mut clients: Vec<_> = servers.iter().map(Served::client).collect();
    let mut random = Random::new();
    fill(&mut clients[0], &mut random, 1000);
    for client in &mut clients[1..] {
        follow(client, servers[0].address);
        wait_for_link(client);
    }
    let sentinel = Sentinel::watch(servers[0].address);
    let mut watch = Client::connect(sentinel.address);
    wait_for(&mut watch, "it knows both replicas", |watch| {
        let text = watch.ask(&["INFO", "sentinel"]).text();
        text.contains("status=ok") && text.contains("slaves=2")
    });
    let mut source = clients.remove(0);
    fill(&mut source, &mut random, 500);
    assert_eq!(said(&mut source, "WAIT 2 60000"), "2");
    drop(source);
    drop(servers.remove(0));
    let ports: Vec<_> = servers
        .iter()
        .map(|one| one.address.port().to_string())
        .collect();
    wait_for(&mut watch, "another one leads", |watch| {
        thread::sleep(Duration::from_millis(20));
        let leads = watch.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "it"]);
        ports.contains(&leads.elements()[1].text())
    });
    let leads = watch.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "it"]);
    let leads = ports
        .iter()
        .position(|port| *port == leads.elements()[1].text());
    let leads = leads.unwrap();
    // Sentinel ends connections, so that clients ask it again: each look has one of its own.
    wait_for(&mut watch, "the other one follows", |_| {
        let mut replica = Client::connect(servers[1 - leads].address);
        let text = replica.try_ask(&["INFO", "replication"]);
        let text = text.map(|reply| reply.text()).unwrap_or_default();
        text.contains(&format!("master_port:{}", ports[leads]))
            && text.contains("master_link_status:up")
    });
    let follows = std::fs::read_to_string(file(2 - leads)).unwrap();
    let wanted = format!("\nreplicaof 127.0.0.1 {}\n", ports[leads]);
    assert!(follows.contains(&wanted), "{follows}");
    let follows = std::fs::read_to_string(file(1 + leads)).unwrap();
    assert!(!follows.contains("replicaof"), "{follows}");
    let (mut source, mut replica) = (servers[leads].client(), servers[1 - leads].client());
    assert_eq!(
        figure(&mut source, "served_full_syncs"),
        "0",
        "the stream went on"
    );
    fill(&mut source, &mut random, 500);
    wait_for_all(&mut replica, &mut source);
    assert!(assert_equal(&mut replica, &mut source) > 100);
}
