//! Keys of all kinds: they are listed once, expire, and keep their values; one that is too long is
//! absent and cannot be stored.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use self::support::long_values::{shown, value};
use self::support::{Client, Served, wait_until};

const KEYS: usize = 3_000;

/// All keys that `SCAN` returns, with how often it does.
fn scanned(client: &mut Client, options: &str) -> HashMap<String, usize> {
    let mut seen = HashMap::new();
    for key in client.scan("SCAN", options).concat() {
        *seen.entry(key).or_default() += 1;
    }
    seen
}

/// Draws reach all keys of many about equally often: in each sixteenth of the keys, in the order of
/// a scan, there are between a half and the double of its share. One that is off by chance would
/// be more than ten standard deviations away.
#[test]
fn random_keys_come_from_everywhere() {
    const DRAWS: usize = 8_000;
    const PARTS: usize = 16;
    let served = Served::start(2);
    let mut client = served.client();
    assert_eq!(client.say("RANDOMKEY"), "null");
    client.say("SET one 1");
    assert_eq!(client.say("RANDOMKEY"), "\"one\"");
    client.say("DEL one");
    for number in 0..4 * KEYS {
        client.send(&["SET", &format!("key:{number}"), "value"]);
    }
    for _ in 0..4 * KEYS {
        client.read().unwrap();
    }
    let mut order = HashMap::new();
    for key in client.scan("SCAN", "COUNT 1000").concat() {
        order.insert(key, order.len());
    }
    let mut drawn = [0; PARTS];
    for _ in 0..DRAWS {
        let key = client.ask(&["RANDOMKEY"]).text();
        drawn[order[&key] * PARTS / order.len()] += 1;
    }
    let share = DRAWS / PARTS;
    let is_even = drawn
        .iter()
        .all(|part| (share / 2..=2 * share).contains(part));
    assert!(is_even, "{drawn:?}");
    client.say("FLUSHALL");
    assert_eq!(client.say("RANDOMKEY"), "null");
}

#[test]
fn a_scan_returns_every_key_once_while_others_are_written() {
    let served = Served::start(2);
    let mut client = served.client();
    for number in 0..KEYS {
        client.send(&["SET", &format!("stays:{number}"), "value"]);
    }
    for _ in 0..KEYS {
        assert_eq!(client.read().unwrap().to_string(), "+OK");
    }
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = served.client();
            let mut number = 0_u64;
            while !is_done.load(Ordering::Relaxed) {
                number += 1;
                writer.ask(&["SET", &format!("goes:{}", number % 500), "x"]);
                writer.ask(&["DEL", &format!("goes:{}", (number + 250) % 500)]);
            }
        });
        for options in ["", "COUNT 7", "COUNT 1000 MATCH stays:*", "TYPE string"] {
            let seen = scanned(&mut client, options);
            for number in 0..KEYS {
                let key = format!("stays:{number}");
                assert_eq!(seen.get(&key), Some(&1), "{key} with `{options}`");
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(scanned(&mut client, "MATCH stays:1?").len(), 10);
    assert!(scanned(&mut client, "TYPE zset").is_empty());
}

/// How a client keeps a cursor.
type Reader = fn(String) -> String;

/// Clients keep cursors as text (redis-cli), as doubles (JavaScript), as signed words (Java, Go) or
/// as numbers of any length (Python).
#[test]
fn clients_that_keep_cursors_as_numbers_see_every_key_and_element_once() {
    const MANY: usize = 20_000;
    const ELEMENTS: usize = 3_000;
    let readers: [(&str, Reader); 4] = [
        ("text", |cursor| cursor),
        ("doubles", |cursor| {
            cursor.parse::<f64>().unwrap().to_string()
        }),
        ("signed words", |cursor| {
            cursor.parse::<i64>().unwrap().to_string()
        }),
        ("any numbers", |cursor| {
            cursor.parse::<u128>().unwrap().to_string()
        }),
    ];
    let served = Served::start(2);
    let mut client = served.client();
    for number in 0..MANY {
        client.send(&["SET", &format!("key:{number}"), "v"]);
    }
    for _ in 0..MANY {
        assert_eq!(client.read().unwrap().to_string(), "+OK");
    }
    let names: Vec<_> = (0..ELEMENTS).map(|number| format!("x{number}")).collect();
    let members = names.iter().map(String::as_str);
    client.ask(
        &["SADD", "set"]
            .into_iter()
            .chain(members)
            .collect::<Vec<_>>(),
    );
    let fields = names.iter().flat_map(|name| [name.as_str(), "v"]);
    client.ask(
        &["HSET", "hash"]
            .into_iter()
            .chain(fields)
            .collect::<Vec<_>>(),
    );
    for (reader, keep) in readers {
        let mut seen = |command: &str, options: &str| {
            let mut listed = client.scan_keeping(command, options, keep).concat();
            listed.sort_unstable();
            let all = listed.len();
            listed.dedup();
            assert_eq!(listed.len(), all, "{command} with {reader}: listed twice");
            all
        };
        assert_eq!(seen("SCAN", ""), MANY + 2, "SCAN with {reader}");
        assert_eq!(
            seen("SSCAN set", "COUNT 7"),
            ELEMENTS,
            "SSCAN with {reader}"
        );
        let fields = seen("HSCAN hash", "COUNT 7 NOVALUES");
        assert_eq!(fields, ELEMENTS, "HSCAN with {reader}");
    }
}

#[test]
fn keys_that_expire_are_gone_for_every_command() {
    let served = Served::start(2);
    let mut client = served.client();
    client.say("SET stays v");
    client.say("SET goes v PX 20");
    client.say("SET shortened v EX 1000");
    client.say("PEXPIRE shortened 20");
    wait_until("both have expired", || {
        client.say("EXISTS goes shortened") == ":0"
    });
    assert_eq!(client.say("GET goes"), "null");
    assert_eq!(client.say("TTL goes"), ":-2");
    assert_eq!(client.say("TTL stays"), ":-1");
    assert_eq!(client.say("PERSIST goes"), ":0");
    assert_eq!(client.say("SET goes again"), "+OK");
    assert_eq!(client.say("GET goes"), "\"again\"");
    assert_eq!(client.ask(&["KEYS", "*"]).elements().len(), 2);
}

#[test]
fn an_expiry_is_kept_changed_and_removed() {
    let served = Served::start(1);
    let mut client = served.client();
    client.say("SET k v EXAT 4102444800");
    assert_eq!(client.say("EXPIRETIME k"), ":4102444800");
    client.say("APPEND k w");
    client.say("SETRANGE k 0 W");
    assert_eq!(client.say("PEXPIRETIME k"), ":4102444800000");
    client.say("RENAME k l");
    client.say("COPY l m");
    assert_eq!(client.say("EXPIRETIME l"), ":4102444800");
    assert_eq!(client.say("EXPIRETIME m"), ":4102444800");
    client.say("SET l x KEEPTTL");
    assert_eq!(client.say("EXPIRETIME l"), ":4102444800");
    client.say("SET l x");
    assert_eq!(client.say("EXPIRETIME l"), ":-1");
    assert_eq!(client.say("PERSIST m"), ":1");
    assert_eq!(client.say("EXPIRETIME m"), ":-1");
}

#[test]
fn all_keys_are_removed_at_once() {
    let served = Served::start(2);
    let mut client = served.client();
    for number in 0..500 {
        client.say(&format!("SET k{number} v"));
    }
    assert_eq!(client.say("DBSIZE"), ":500");
    let some = client.ask(&["RANDOMKEY"]).text();
    assert!(some.starts_with('k'), "{some}");
    assert_eq!(client.say("FLUSHALL"), "+OK");
    assert_eq!(client.say("DBSIZE"), ":0");
    assert_eq!(client.say("GET k1"), "null");
    assert_eq!(client.say("RANDOMKEY"), "null");
    assert!(scanned(&mut client, "").is_empty());
}

#[test]
fn any_bytes_are_keys_and_values() {
    let served = Served::start(2);
    let mut client = served.client();
    let bytes: Vec<u8> = (0..=255).collect();
    for key in [&b""[..], b"\0", b"\r\n", &bytes] {
        let value = [key, b"-\0\r\n-"].concat();
        assert_eq!(client.ask(&[&b"SET"[..], key, &value]).to_string(), "+OK");
        let read = client.ask(&[&b"GET"[..], key]);
        assert_eq!(read, support::Reply::Bulk(value));
    }
    let keys = client.ask(&["KEYS", "*"]);
    assert_eq!(keys.elements().len(), 4);
}

/// Commands that only read or remove, with what they reply for an absent key.
const MISSES: &[(&str, &str)] = &[
    ("GET K", "null"),
    ("MGET K s", "[null, \"v\"]"),
    ("EXISTS K", ":0"),
    ("EXISTS K s", ":1"),
    ("TTL K", ":-2"),
    ("TYPE K", "+none"),
    ("STRLEN K", ":0"),
    ("GETRANGE K 0 -1", "\"\""),
    ("GETBIT K 1", ":0"),
    ("BITCOUNT K", ":0"),
    ("BITPOS K 1", ":-1"),
    ("BITFIELD_RO K GET u8 0", "[:0]"),
    ("PFCOUNT K", ":0"),
    ("PFCOUNT K K", ":0"),
    ("SORT K", "[]"),
    ("GEODIST K a b", "null"),
    ("GEOHASH K a", "[null]"),
    ("GEOSEARCH K FROMLONLAT 1 1 BYRADIUS 1 m", "[]"),
    ("LCS K s", "\"\""),
    ("OBJECT ENCODING K", "null"),
    ("MEMORY USAGE K", "null"),
    ("DEL K", ":0"),
    ("UNLINK K s2", ":0"),
    ("GETDEL K", "null"),
    ("GETEX K EX 10", "null"),
    ("EXPIRE K 10", ":0"),
    ("PERSIST K", ":0"),
    ("DELIFEQ K x", ":0"),
    ("RENAME K s", "-ERR no such key"),
    ("COPY K s", ":0"),
    ("HGET K f", "null"),
    ("HMGET K f g", "[null, null]"),
    ("HGETALL K", "[]"),
    ("HLEN K", ":0"),
    ("HDEL K f", ":0"),
    ("HSCAN K 0", "[\"0\", []]"),
    ("HRANDFIELD K", "null"),
    ("WATCH K", "+OK"),
];

/// Commands that would store under a key.
const WRITES: &[&str] = &[
    "SET K v",
    "SET K v XX GET",
    "SETNX K v",
    "SETEX K 9 v",
    "MSET s v K v",
    "MSETNX K v",
    "GETSET K v",
    "APPEND K v",
    "SETRANGE K 1 v",
    "SETBIT K 1 1",
    "BITFIELD K SET u8 0 1",
    "BITOP OR K s",
    "PFADD K v",
    "GEOADD K 1 1 m",
    "INCR K",
    "INCRBYFLOAT K 1",
    "RENAME s K",
    "COPY s K",
    "HSET K f v",
    "HINCRBY K f 1",
];

#[test]
fn a_key_that_is_too_long_is_absent_and_cannot_be_stored() {
    let served = Served::start(2);
    let key = "k".repeat(1025);
    let mut client = served.client();
    client.say("SET s v");
    for &(command, reply) in MISSES {
        assert_eq!(
            client.say(&command.replace(" K", &format!(" {key}"))),
            reply,
            "{command}"
        );
    }
    client.say("UNWATCH");
    let text = "-ERR the key has 1025 bytes, and a key has at most 1024: use a shorter one, for example a hash of it";
    for command in WRITES {
        assert_eq!(
            client.say(&command.replace(" K", &format!(" {key}"))),
            text,
            "{command}"
        );
    }
    assert_eq!(client.say("GET s"), "\"v\"");
    client.say("MULTI");
    client.say(&format!("GET {key}"));
    client.say(&format!("SET {key} v"));
    client.say("SET s w");
    let replies = client.ask(&["EXEC"]);
    assert_eq!(replies.to_string(), format!("[null, {text}, +OK]"));
    let longest = "k".repeat(1024);
    assert_eq!(client.say(&format!("SET {longest} v")), "+OK");
    // A long value is not taken for such a key.
    let stored = value(200_000, 1);
    let refused = shown(&mut client, &[b"SET", key.as_bytes(), &stored]);
    assert_eq!(refused, text);
    let refused = shown(
        &mut client,
        &[b"SET", key.as_bytes(), &stored, b"EX", b"10"],
    );
    assert_eq!(refused, text);
    client.stream.get_mut().flush().unwrap();
    assert_eq!(client.say("DBSIZE"), ":2");
}
