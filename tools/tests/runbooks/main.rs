//! The runbooks of `docs/replication.md`, step by step as they stand there, while clients write
//! through all of it: no write that was acknowledged is lost. The one that moves from a Redis is
//! left out where no Redis 7.0.15 is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/peers.rs"]
mod peers;
#[path = "../support/mod.rs"]
mod support;
mod writers;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use self::peers::followers::{assert_equal, draw, figure, said, wait_for, wait_for_link};
use self::peers::redis::Redis;
use self::peers::{Client, Random, wait_until};
use self::support::{Serve, farcore, output_of};
use self::writers::{Reader, Writers};

const PASSWORD: &str = "correct-horse-battery";
/// Changes of all kinds before the first step.
const CHANGES: usize = 4000;
/// Keys before the first step, so that a load takes a while.
const LONG_KEYS: usize = 2000;
/// Bytes of a value that is stored while it comes.
const LONG_BYTES: usize = 3 << 20;
/// Milliseconds of a pause: more than the runbooks have, because both servers are compared amid it,
/// on a machine that may be busy.
const PAUSE: &str = "600000";
/// Writes of each client between steps.
const WRITES: usize = 100;
/// Seed of the changes before the first step.
const SEED: u64 = 20;

/// Ends a server in order, as an operator does.
fn end(mut server: Serve) {
    server.process.signal("TERM");
    assert_eq!(server.process.end().code(), Some(0));
}

/// Stores what a server may have.
fn fill(client: &mut Client) {
    let mut random = Random::of(SEED);
    for number in 0..CHANGES {
        let words = draw(&mut random, number);
        // A key that expires meanwhile is gone on one side a moment earlier.
        if words[0] != "EXPIRE" {
            client.ask(&words);
        }
    }
    assert_eq!(said(client, "SELECT 0"), "OK");
    for number in 0..LONG_KEYS {
        client.ask(&["SET", &format!("long{number}"), &"x".repeat(500)]);
    }
}

/// The value of a line of a section of `INFO`.
fn number(client: &mut Client, section: &str, name: &str) -> u64 {
    let text = client.ask(&["INFO", section]).text();
    let start = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&start[..]));
    line.unwrap().trim().parse().unwrap()
}

fn offset(client: &mut Client, name: &str) -> u64 {
    number(client, "replication", name)
}

/// Waits until `slave_repl_offset` is what `master_repl_offset` of the source was.
fn wait_for_offset(replica: &mut Client, source: &mut Client) {
    let written = offset(source, "master_repl_offset");
    wait_for(replica, "the offset follows", |replica| {
        offset(replica, "slave_repl_offset") >= written
    });
}

/// Waits until both offsets are equal.
fn wait_for_equal_offsets(replica: &mut Client, source: &mut Client) {
    wait_for(replica, "both offsets are equal", |replica| {
        figure(replica, "slave_repl_offset") == figure(source, "master_repl_offset")
    });
}

fn connect(server: &Serve) -> Client {
    Client::connect(server.address)
}

/// A folder for the data of a server.
fn data() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data").to_str().unwrap().to_owned();
    (folder, path)
}

/// Step 1 of the move: what the source holds fits, and its dump is read through.
fn size_up(source: &mut Client, address: SocketAddr, folder: &Path) {
    let used = number(source, "memory", "used_memory");
    let room: u64 = 64 << 20;
    assert!(used + used / 3 < room, "{used} bytes and a third to spare");
    let dump = folder.join("dump.rdb");
    let mut command = Command::new("redis-cli");
    command
        .env("REDISCLI_AUTH", PASSWORD)
        .args(["-p", &address.port().to_string(), "--rdb"])
        .arg(&dump);
    let output = output_of(&mut command);
    assert!(output.status.success(), "{output:?}");
    let output = output_of(farcore().args(["rdb", "check"]).arg(&dump));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("the checksum is right"), "{text}");
}

/// Step 4 of the move.
fn wait_until_it_follows(here: &mut Client, source: &mut Client) {
    wait_for_link(here);
    wait_for_offset(here, source);
    wait_until("DBSIZE is equal", || {
        said(here, "DBSIZE") == said(source, "DBSIZE")
    });
    for key in ["long0", "long77", "long1999"] {
        assert_eq!(here.ask(&["GET", key]), source.ask(&["GET", key]));
    }
}

#[test]
fn a_redis_is_moved_into_farcore_without_a_stop() {
    let Some(redis) = Redis::start() else {
        eprintln!("not run: no Redis 7.0.15 is installed");
        return;
    };
    let mut source = Client::connect(redis.address);
    // Else it waits five seconds before each load.
    said(&mut source, "CONFIG SET repl-diskless-sync-delay 0");
    fill(&mut source);
    said(&mut source, &format!("CONFIG SET requirepass {PASSWORD}"));
    let writers = Writers::start(redis.address, Some(PASSWORD));
    writers.wait_for(WRITES);
    let (folder, data) = data();
    let password = folder.path().join("password");
    fs::write(&password, PASSWORD).unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();

    // 1 and 2.
    size_up(&mut source, redis.address, folder.path());
    for (name, value) in [
        ("repl-backlog-size", "256mb"),
        ("client-output-buffer-limit", "replica 1gb 512mb 120"),
    ] {
        let reply = source.ask(&["CONFIG", "SET", name, value]);
        assert_eq!(reply.text(), "OK", "{name}");
    }
    // 3 to 5, twice: at the first time something is wrong, and it is ended.
    let start = || {
        let address = redis.address.to_string();
        let password = password.to_str().unwrap();
        let flags = ["--data", &data, "--replica-of", &address];
        Serve::start(&[&flags[..], &["--replica-auth-file", password]].concat())
    };
    let first = start();
    wait_until_it_follows(&mut connect(&first), &mut source);
    end(first);
    wait_for(&mut source, "the replica is gone", |source| {
        figure(source, "connected_slaves") == "0"
    });
    let farcore = start();
    let mut here = connect(&farcore);
    wait_until_it_follows(&mut here, &mut source);
    writers.wait_for(WRITES);
    let reader = Reader::start(farcore.address);
    reader.wait_for(WRITES);
    // 6.
    assert_eq!(
        said(&mut source, &format!("CLIENT PAUSE {PAUSE} WRITE")),
        "OK"
    );
    wait_for_equal_offsets(&mut here, &mut source);
    assert_eq!(figure(&mut here, "replica_failed_commands"), "0");
    assert!(assert_equal(&mut here, &mut source) > LONG_KEYS);
    assert_eq!(said(&mut source, "SELECT 0"), "OK");
    let list = source.ask(&["LRANGE", "w0:list", "0", "-1"]);
    // 7.
    assert_eq!(said(&mut here, "REPLICAOF NO ONE"), "OK");
    writers.send_to(farcore.address);
    writers.wait_for(WRITES);
    reader.wait_for(WRITES);
    // What is written here the source does not get.
    assert_eq!(source.ask(&["LRANGE", "w0:list", "0", "-1"]), list);
    let written = writers.stop();
    reader.stop();
    assert_eq!(said(&mut here, "SELECT 0"), "OK");
    written.check(&mut here);
    end(farcore);
}

/// Has a client begin to send a long value, and waits until the server stores what has come.
fn begin_long_value(server: &Serve, other: &mut Client) -> Client {
    let mut client = connect(server);
    assert_eq!(said(&mut client, "CLIENT SETNAME amid"), "OK");
    let head = format!("*3\r\n$3\r\nSET\r\n$4\r\namid\r\n${LONG_BYTES}\r\n");
    client.write(head.as_bytes());
    client.write(&vec![b'x'; LONG_BYTES / 2]);
    wait_until("the value is stored", || {
        let list = said(other, "CLIENT LIST");
        let mut lines = list.lines();
        lines.any(|line| line.contains("name=amid ") && line.contains("cmd=set"))
    });
    client
}

/// Steps 2 to 4 of a planned failover, while clients write.
fn fail_over(source: &Serve, standby: &Serve, writers: &Writers) {
    let (mut old, mut new) = (connect(source), connect(standby));
    let mut amid = begin_long_value(source, &mut old);
    // 2.
    old.send(&["CLIENT", "PAUSE", PAUSE, "WRITE"]);
    amid.write(&vec![b'y'; LONG_BYTES / 2]);
    amid.write(b"\r\n");
    assert_eq!(old.read().unwrap().text(), "OK");
    assert_eq!(amid.read().unwrap().text(), "OK");
    wait_for(&mut old, "the standby has all", |old| {
        said(old, "WAIT 1 10000") == "1"
    });
    assert!(assert_equal(&mut new, &mut old) > LONG_KEYS);
    // One that does not hear of it, and still writes at the old source.
    let mut late = connect(source);
    late.send(&["SET", "late", "1"]);
    wait_until("its command waits", || {
        number(&mut old, "clients", "blocked_clients") > 0
    });
    // 3.
    assert_eq!(said(&mut new, "REPLICAOF NO ONE"), "OK");
    writers.send_to(standby.address);
    // 4.
    let port = standby.address.port().to_string();
    let reply = old.ask(&["REPLICAOF", "127.0.0.1", &port]);
    assert_eq!(reply.text(), "OK");
    wait_for_link(&mut old);
    assert_eq!(said(&mut old, "CLIENT UNPAUSE"), "OK");
    let reply = late.read().unwrap();
    assert!(reply.text().starts_with("READONLY"), "{reply}");
    writers.wait_for(WRITES);
    wait_for_offset(&mut old, &mut new);
    assert_eq!(said(&mut old, "SELECT 0"), "OK");
    assert_eq!(said(&mut old, "EXISTS late"), "0");
}

/// Checks both servers once no client writes.
fn check(writers: Writers, source: &Serve, standby: &Serve) {
    let written = writers.stop();
    let [mut source, mut standby] = [source, standby].map(connect);
    wait_for_equal_offsets(&mut standby, &mut source);
    assert!(assert_equal(&mut standby, &mut source) > LONG_KEYS);
    for client in [&mut source, &mut standby] {
        assert_eq!(said(client, "SELECT 0"), "OK");
        written.check(client);
    }
}

/// Starts a server that follows another one, and waits until it does.
fn start_standby(data: &str, source: &Serve) -> Serve {
    let address = source.address.to_string();
    let standby = Serve::start(&["--data", data, "--replica-of", &address]);
    wait_for_link(&mut connect(&standby));
    standby
}

#[test]
fn a_standby_takes_over_as_planned_and_back() {
    let [(_one, first), (_two, second)] = [data(), data()];
    let source = Serve::start(&["--data", &first]);
    fill(&mut connect(&source));
    let writers = Writers::start(source.address, None);
    writers.wait_for(WRITES);
    // 1.
    let standby = start_standby(&second, &source);
    writers.wait_for(WRITES);
    // Back at once, too: the pause of the first time is over.
    fail_over(&source, &standby, &writers);
    fail_over(&standby, &source, &writers);
    fail_over(&source, &standby, &writers);
    check(writers, &standby, &source);
}

#[test]
fn both_servers_are_upgraded_one_after_the_other() {
    let [(_one, first), (_two, second)] = [data(), data()];
    let source = Serve::start(&["--data", &first]);
    fill(&mut connect(&source));
    let writers = Writers::start(source.address, None);
    let standby = start_standby(&second, &source);
    writers.wait_for(WRITES);
    // The standby first.
    end(standby);
    writers.wait_for(WRITES);
    let standby = start_standby(&second, &source);
    fail_over(&source, &standby, &writers);
    // Then the other one.
    end(source);
    writers.wait_for(WRITES);
    let source = start_standby(&first, &standby);
    check(writers, &standby, &source);
}
