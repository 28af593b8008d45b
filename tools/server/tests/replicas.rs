//! A server that follows another one: a Redis under load whose links are cut, and sources that lie.
//! What needs a Redis is left out where none is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use self::support::followers::{
    assert_equal, draw, figure, follow, said, wait_for, wait_for_all, wait_for_link, write_until,
};
use self::support::redis::Redis;
use self::support::{Client, Random, Served};

/// Local memory of [`Served::vast`].
const LOCAL_BYTES: usize = 32 << 20;
/// Keys of a server whose data are ten times as long, and bytes of most of their values.
const LONG_KEYS: usize = 22_000;
const LONG_BYTES: usize = 15 << 10;

#[test]
fn a_server_follows_redis_through_cut_links_and_is_equal_to_it() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let served = Served::roomy(2);
    let (mut here, mut there) = (served.client(), Client::connect(redis.address));
    said(&mut there, "CONFIG SET repl-diskless-sync-delay 0");
    // What was here goes.
    said(&mut here, "SET own data");
    let mut random = Random::new();
    for number in 0..5000 {
        let command = draw(&mut random, number);
        there.ask(&command);
    }
    said(&mut there, "CONFIG SET repl-backlog-size 64mb");
    said(&mut there, "SELECT 0");
    there.ask(&["SET", "long", &"x".repeat(3 << 20)]);
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (is_over, address) = (Arc::clone(&is_over), redis.address);
        thread::spawn(move || write_until(address, &is_over, random, draw))
    };
    follow(&mut here, redis.address);
    wait_for_link(&mut here);
    assert_eq!(said(&mut here, "GET own"), "null");
    for round in 0..6u32 {
        let before = figure(&mut here, "replica_partial_syncs");
        let killed = match round % 2 {
            0 => said(&mut there, "CLIENT KILL TYPE replica"),
            _ => said(&mut here, "CLIENT KILL TYPE master"),
        };
        assert_eq!(killed, "1", "round {round}");
        wait_for(&mut here, "the stream goes on", |here| {
            figure(here, "replica_partial_syncs") != before
        });
        wait_for_link(&mut here);
    }
    // The other way of a full synchronisation: a file of a known length.
    said(&mut there, "CONFIG SET repl-diskless-sync no");
    said(&mut here, "REPLICAOF NO ONE");
    said(&mut here, "FLUSHALL");
    follow(&mut here, redis.address);
    wait_for_link(&mut here);
    assert_eq!(figure(&mut here, "replica_full_syncs"), "2");
    is_over.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    wait_for_all(&mut here, &mut there);
    assert_eq!(figure(&mut here, "replica_failed_commands"), "0");
    assert!(assert_equal(&mut here, &mut there) > 100);

    // Clients read, and do not write.
    let refused = "READONLY You can't write against a read only replica.";
    for words in ["SET a b", "DEL long", "EVAL redis.call('SET','a','b') 0"] {
        let reply = said(&mut here, words);
        assert!(reply.contains(refused), "{words}: {reply}");
    }
    assert!(said(&mut here, "CLIENT LIST TYPE master").contains("flags=M"));
    let role = here.ask(&["ROLE"]);
    assert_eq!(role.elements()[0].text(), "slave");
    assert_eq!(role.elements()[3].text(), "connected");
    said(&mut here, "CONFIG SET replica-read-only no");
    assert_eq!(said(&mut here, "SET a b"), "OK");
    said(&mut here, "CONFIG SET replica-read-only yes");

    // It goes on alone, under a new identity.
    let (id, offset) = (
        figure(&mut here, "master_replid"),
        figure(&mut here, "slave_repl_offset"),
    );
    assert_eq!(id, figure(&mut there, "master_replid"));
    assert_eq!(said(&mut here, "REPLICAOF NO ONE"), "OK");
    assert_eq!(figure(&mut here, "role"), "master");
    assert_eq!(figure(&mut here, "master_replid2"), id);
    let next = offset.parse::<u64>().unwrap() + 1;
    assert_eq!(figure(&mut here, "second_repl_offset"), next.to_string());
    said(&mut here, "SELECT 0");
    said(&mut there, "SELECT 0");
    said(&mut there, "SET late there");
    assert_eq!(said(&mut here, "SET late here"), "OK");
    assert_eq!(said(&mut here, "GET late"), "here");
    assert_eq!(said(&mut here, "STRLEN long"), (3 << 20).to_string());
}

#[test]
fn a_password_is_needed_where_the_source_says_so() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let served = Served::start(1);
    let (mut here, mut there) = (served.client(), Client::connect(redis.address));
    said(&mut there, "CONFIG SET repl-diskless-sync-delay 0");
    said(&mut there, "SET a b");
    said(&mut there, "CONFIG SET requirepass secret");
    follow(&mut here, redis.address);
    wait_for(&mut here, "the source refuses", |here| {
        figure(here, "master_link_error").contains("set masterauth")
    });
    assert_eq!(said(&mut here, "CONFIG SET masterauth secret"), "OK");
    wait_for_link(&mut here);
    assert_eq!(said(&mut here, "GET a"), "b");
    // Without its source it says so, if it is to.
    said(&mut here, "CONFIG SET replica-serve-stale-data no");
    assert_eq!(said(&mut here, "GET a"), "b");
    drop(redis);
    wait_for(&mut here, "the link is down", |here| {
        figure(here, "master_link_status") == "down"
    });
    assert!(said(&mut here, "GET a").starts_with("MASTERDOWN"));
    said(&mut here, "CONFIG SET replica-serve-stale-data yes");
    assert_eq!(said(&mut here, "GET a"), "b");
}

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// A source that sends these bytes after the handshake, again and again if it is endless.
fn hostile(bytes: Vec<u8>, is_endless: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut stream: TcpStream = stream;
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
                let reply = match line.trim_end() {
                    "PING" => &b"+PONG\r\n"[..],
                    "REPLCONF" => b"+OK\r\n",
                    "PSYNC" => break,
                    _ => b"",
                };
                let _ = stream.write_all(reply);
                line.clear();
            }
            loop {
                if stream.write_all(&bytes).is_err() || !is_endless {
                    break;
                }
            }
            // It is closed midway, once what was sent has arrived.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = lines.read_to_end(&mut Vec::new());
        }
    });
    address
}

#[test]
fn a_source_that_lies_ends_its_link_with_a_clear_error_and_leaves_nothing() {
    let served = Served::start(1);
    let mut here = served.client();
    let head = format!("+FULLRESYNC {ID} 0\r\n");
    let of = |rest: &[u8]| [head.as_bytes(), rest].concat();
    let stored = b"REDIS0010\x00\x01a\x01b";
    let whole = [&stored[..], &[0xff, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let sent = |stream: &[u8]| {
        let length = format!("${}\r\n", whole.len());
        of(&[length.as_bytes(), &whole, stream].concat())
    };
    let mark = "e".repeat(40);
    let marked = |rest: &[u8]| of(&[format!("$EOF:{mark}\r\n").as_bytes(), rest].concat());
    for (bytes, why) in [
        (b"hello\r\n".to_vec(), "does not speak the protocol"),
        (
            b"+FULLRESYNC abc 0\r\n".to_vec(),
            "does not speak the protocol",
        ),
        (b"-ERR no\r\n".to_vec(), "the source refuses PSYNC: ERR no"),
        (vec![b'x'; 1 << 16], "a line of the source has"),
        (of(b"hello\r\n"), "announces no data"),
        (of(b"$5\r\nhello"), "the bytes end too early"),
        (of(b"$9\r\nnot a file"), "it is not an RDB file"),
        (of(b"$100\r\nREDIS0010"), "has closed the connection"),
        (marked(&stored[..]), "has closed the connection"),
        (
            marked(&[&whole[..], &[b'x'; 40]].concat()),
            "do not end with their mark",
        ),
        (
            of(&[&b"$100\r\n"[..], &whole, &[0; 100]].concat()),
            "have 100 bytes by their length",
        ),
        // A string of 64 GiB by its length, and one that unpacks to as much.
        (
            marked(b"REDIS0010\x00\x01a\x81\x00\x00\x00\x10\x00\x00\x00\x00"),
            "has closed the connection",
        ),
        (
            marked(b"REDIS0010\x00\x01a\xc3\x44\x00\x81\x00\x00\x00\x10\x00\x00\x00\x00"),
            "a packed string is not well formed",
        ),
        (marked(b"REDIS0010\xfe\x40\x63"), "in database 99"),
        (sent(b"hello\r\n"), "is no command"),
        (
            sent(b"*1\r\n$8\r\nshutdown\r\n"),
            "this server does not have",
        ),
        (sent(b"*1\r\n$99999999999\r\n"), "invalid bulk length"),
        (sent(b"*99999999999\r\n"), "invalid multibulk length"),
        (
            sent(b"*2\r\n$6\r\nSELECT\r\n$2\r\n77\r\n"),
            "there are 16 databases",
        ),
    ] {
        let address = hostile(bytes, false);
        follow(&mut here, address);
        wait_for(&mut here, why, |here| {
            figure(here, "master_link_error").contains(why)
        });
        assert_eq!(said(&mut here, "REPLICAOF NO ONE"), "OK", "{why}");
        // What was whole stays, and of what was not nothing does.
        let keys = if why.contains("command")
            || why.contains("does not have")
            || why.contains("length")
            || why.contains("16")
        {
            said(&mut here, "DBSIZE")
        } else {
            assert_eq!(said(&mut here, "DBSIZE"), "0", "{why}");
            "0".to_owned()
        };
        assert!(keys == "0" || keys == "1", "{why}");
        said(&mut here, "FLUSHALL");
    }
}

#[test]
fn a_source_that_never_ends_is_held_to_a_limit() {
    let served = Served::start(1);
    let mut here = served.client();
    // A string of 1 GiB, of which as much comes as is taken.
    let begin = format!("+FULLRESYNC {ID} 0\r\n$EOF:{}\r\n", "e".repeat(40));
    let string = b"REDIS0010\x00\x01a\x80\x40\x00\x00\x00";
    let bytes = [begin.as_bytes(), string, &vec![b'x'; 1 << 20]].concat();
    follow(&mut here, hostile(bytes, true));
    wait_for(&mut here, "it is too long", |here| {
        figure(here, "master_link_error").contains("at most 67108864 are held")
    });
    assert!(
        said(&mut here, "GET a").starts_with("LOADING"),
        "it is incomplete"
    );
    assert_eq!(said(&mut here, "REPLICAOF NO ONE"), "OK");
    assert_eq!(said(&mut here, "DBSIZE"), "0");
}

/// Writes a long string of a number, or a collection.
fn write_long(client: &mut Client, number: usize, round: usize) {
    let value = format!("{number}-{round}-").repeat(LONG_BYTES / 4);
    let value = &value[..LONG_BYTES];
    let key = format!("long{number}");
    let reply = match number % 250 {
        0 => client.ask(&[
            "HSET",
            &key,
            "round",
            &round.to_string(),
            "value",
            &value[..512],
        ]),
        1 => client.ask(&["RPUSH", &key, &value[..512], &value[512..1024]]),
        _ => client.ask(&["SET", &key, value]),
    };
    assert!(!reply.is_error(), "{key}: {reply}");
}

#[test]
fn a_replica_loads_and_follows_ten_times_as_much_as_its_local_memory_holds() {
    let (source, replica) = (Served::vast(2), Served::vast(1));
    let (mut there, mut here) = (source.client(), replica.client());
    for number in 0..LONG_KEYS {
        write_long(&mut there, number, 0);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (is_over, mut client) = (Arc::clone(&is_over), source.client());
        let mut random = Random::new();
        move || {
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                round += 1;
                write_long(&mut client, random.below(LONG_KEYS + LONG_KEYS / 16), round);
            }
            round
        }
    });
    follow(&mut here, source.address);
    wait_for_link(&mut here);
    // It goes on to write what the replica follows.
    let offset = figure(&mut here, "slave_repl_offset");
    let offset: u64 = offset.parse().unwrap();
    wait_for(&mut here, "it follows", |here| {
        let now = figure(here, "slave_repl_offset");
        now.parse::<u64>().unwrap() > offset + (LOCAL_BYTES as u64) / 4
    });
    is_over.store(true, Ordering::Relaxed);
    let rounds = writer.join().unwrap();
    wait_for_all(&mut here, &mut there);
    assert_eq!(figure(&mut here, "replica_full_syncs"), "1");
    assert_eq!(figure(&mut here, "replica_failed_commands"), "0");
    let compared = assert_equal(&mut here, &mut there);
    assert!(compared >= LONG_KEYS, "{compared} keys, {rounds} rounds");
    // Nearly all of it lies in far memory, here and there.
    const { assert!(LONG_KEYS * LONG_BYTES >= 10 * LOCAL_BYTES) };
    for served in [&source, &replica] {
        let far = served.section_figures().far_live_bytes;
        assert!(far > 8 * LOCAL_BYTES as u64, "{far} bytes in far memory");
    }
}
