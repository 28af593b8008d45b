//! Events of keys (`notify-keyspace-events`), as subscribers see them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::{HashMap, HashSet};

use self::support::{Served, WordClient, wait_until};

/// A client that has subscribed to everything.
struct Watcher {
    client: WordClient,
    ends: usize,
}

impl Watcher {
    fn of(server: &Served) -> Self {
        let mut client = server.word_client();
        assert_eq!(client.call("PSUBSCRIBE *"), "[\"psubscribe\", \"*\", 1]");
        Self { client, ends: 0 }
    }

    /// The next event: its channel without `__` and the database, and what it says.
    fn next(&mut self) -> String {
        let reply = self.client.reply();
        let words: Vec<_> = reply.split('"').skip(1).step_by(2).collect();
        let [_, _, channel, payload] = words[..] else {
            panic!("no message: {reply}");
        };
        let channel = channel.trim_start_matches("__").replacen("@0__", "", 1);
        format!("{channel} {payload}")
    }

    /// The events of what a client has done until now.
    fn seen(&mut self, client: &mut WordClient) -> Vec<String> {
        self.ends += 1;
        let end = format!("end {}", self.ends);
        client.call(&format!("PUBLISH {end}"));
        std::iter::from_fn(|| Some(self.next()).filter(|event| *event != end)).collect()
    }
}

/// A client that has selected classes of events.
fn selecting(server: &Served, classes: &str) -> WordClient {
    let mut client = server.word_client();
    select(&mut client, classes);
    client
}

fn select(client: &mut WordClient, classes: &str) {
    client.send(&[
        b"CONFIG",
        b"SET",
        b"notify-keyspace-events",
        classes.as_bytes(),
    ]);
    assert_eq!(client.reply(), "OK", "{classes}");
}

/// Runs commands, and compares their events by name.
#[track_caller]
fn check(watcher: &mut Watcher, client: &mut WordClient, commands: &[&str], expected: &str) {
    for command in commands {
        let reply = client.call(command);
        assert!(!reply.contains("(error)"), "{command}: {reply}");
    }
    let seen = watcher.seen(client);
    let names: Vec<_> = seen
        .iter()
        .map(|event| event.trim_start_matches("keyevent:"))
        .collect();
    assert_eq!(names.join(", "), expected, "{commands:?}");
}

#[test]
fn nothing_is_sent_until_it_is_selected() {
    let server = Served::roomy(2);
    let (mut watcher, mut client) = (Watcher::of(&server), server.word_client());
    let commands = ["SET k v", "GET none", "DEL k", "HSET h f v", "SET k v PX 1"];
    check(&mut watcher, &mut client, &commands, "");
    // Without channels, and for other classes only.
    for classes in ["A", "K", "E", "KElszt", ""] {
        select(&mut client, classes);
        check(&mut watcher, &mut client, &commands, "");
    }
    select(&mut client, "E$");
    check(&mut watcher, &mut client, &commands, "set k, set k");
}

#[test]
fn the_setting_is_shown_as_redis_shows_it() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    let get = "CONFIG GET notify-keyspace-events";
    let shown = |text: &str| format!("[\"notify-keyspace-events\", \"{text}\"]");
    assert_eq!(client.call(get), shown(""));
    for (classes, text) in [
        ("gKE", "gKE"),
        ("$lshzxeKE", "$lshzxeKE"),
        ("KA", "AK"),
        ("EA", "AE"),
        ("Emn", "nEm"),
        ("", ""),
    ] {
        select(&mut client, classes);
        assert_eq!(client.call(get), shown(text));
    }
    select(&mut client, "KEA");
    let refused = client.call("CONFIG SET notify-keyspace-events KEq");
    assert_eq!(
        refused,
        "(error) ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
    );
    assert_eq!(client.call(get), shown("AKE"));
}

#[test]
fn an_event_is_sent_to_the_channels_that_are_selected() {
    let server = Served::roomy(1);
    let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "KEA"));
    client.call("SET k v");
    let both = ["keyspace:k set", "keyevent:set k"];
    assert_eq!(watcher.seen(&mut client), both);
    select(&mut client, "AK");
    client.call("SET k v");
    assert_eq!(watcher.seen(&mut client), both[..1]);
    select(&mut client, "AE");
    client.send(&[b"SET", b"", b"of the empty key"]);
    assert_eq!(client.reply(), "OK");
    assert_eq!(watcher.seen(&mut client), ["keyevent:set "]);
}

/// Commands, and the events of all classes but missed and new keys.
const EVENTS: &[(&str, &str)] = &[
    ("SET k v", "set k"),
    ("SET k v EX 100", "set k, expire k"),
    ("SET k w KEEPTTL", "set k"),
    ("SET k v NX", ""),
    ("SET k v XX GET", "set k"),
    ("SET k v NX GET", ""),
    ("SET k w IFEQ none", ""),
    ("SET k w IFEQ v PX 100000", "set k, expire k"),
    ("SET k v EXAT 1", "set k, expire k, expired k"),
    ("EXISTS k", ""),
    ("SETNX k 10", "set k"),
    ("SETNX k 11", ""),
    ("SETEX k 100 v", "set k, expire k"),
    ("PSETEX k 100000 10", "set k, expire k"),
    ("GETSET k 10", "set k"),
    ("MSET {m}a 1 {m}b 2 {m}c 3", "set {m}a, set {m}b, set {m}c"),
    ("MSETNX {m}a 1 {m}d 2", ""),
    ("MSETNX {t}d 1 {t}e 2", "set {t}d, set {t}e"),
    ("APPEND k 0", "append k"),
    ("SETRANGE k 1 1", "setrange k"),
    ("SETRANGE none 1 1", "setrange none"),
    ("INCR k", "incrby k"),
    ("DECRBY k 5", "incrby k"),
    ("INCRBYFLOAT k 0.5", "incrbyfloat k"),
    ("SETBIT bits 7 1", "setbit bits"),
    ("SETBIT bits 7 1", ""),
    ("SETBIT bits 6 0", ""),
    ("SETBIT bits 8 0", "setbit bits"),
    ("SETBIT bits 7 0", "setbit bits"),
    ("BITFIELD bits SET u8 0 3", "setbit bits"),
    ("BITFIELD bits SET u8 0 3", ""),
    ("BITFIELD bits GET u8 0", ""),
    ("BITOP NOT bits2 bits", "set bits2"),
    ("BITOP OR bits2 absent", "del bits2"),
    ("PFADD hll a", "pfadd hll"),
    ("PFADD hll a", ""),
    ("PFCOUNT hll", ""),
    ("PFMERGE hll2 hll", "pfadd hll2"),
    ("GEOADD geo 1 1 m", "zadd geo"),
    ("GEOADD geo 1 1 m", ""),
    (
        "GEOSEARCHSTORE geo2 geo FROMLONLAT 1 1 BYRADIUS 1 km",
        "geosearchstore geo2",
    ),
    ("GEORADIUS geo 1 1 1 km STORE geo2", "georadiusstore geo2"),
    ("GEORADIUS geo 9 9 1 km STORE geo2", "del geo2"),
    ("SORT geo ALPHA STORE sorted", "sortstore sorted"),
    ("SORT absent STORE sorted", "del sorted"),
    ("EXPIRE k 100", "expire k"),
    ("EXPIRE k 50 GT", ""),
    ("PEXPIRE k 100000", "expire k"),
    ("PERSIST k", "persist k"),
    ("PERSIST k", ""),
    ("EXPIRE absent 10", ""),
    ("EXPIREAT k 1", "del k"),
    ("SET k v", "set k"),
    ("GETEX k", ""),
    ("GETEX k PERSIST", ""),
    ("GETEX k EX 100", "expire k"),
    ("GETEX k PERSIST", "persist k"),
    ("GETEX absent PERSIST", ""),
    ("GETEX k PXAT 1", "del k"),
    ("GETDEL k", ""),
    ("GETDEL {m}a", "del {m}a"),
    ("DEL {m}b {m}none {m}c", "del {m}b, del {m}c"),
    ("UNLINK bits", "del bits"),
    ("SET a 1", "set a"),
    ("DELIFEQ a 2", ""),
    ("DELIFEQ a 1", "del a"),
    ("SET a 1", "set a"),
    ("RENAME a b", "rename_from a, rename_to b"),
    ("RENAME b b", ""),
    ("RENAMENX b {t}e", ""),
    ("RENAMENX b c", "rename_from b, rename_to c"),
    ("COPY c d", "copy_to d"),
    ("COPY c d", ""),
    ("COPY c d REPLACE", "copy_to d"),
    ("COPY absent e", ""),
    ("HSET h f 1 g 2", "hset h"),
    ("HSETNX h f 2", ""),
    ("HSETNX h i 2", "hset h"),
    ("HMSET h f 1", "hset h"),
    ("HINCRBY h f 2", "hincrby h"),
    ("HINCRBYFLOAT h f 0.5", "hincrbyfloat h"),
    ("HDEL h x", ""),
    ("HDEL h f i", "hdel h"),
    ("HDEL h g", "hdel h, del h"),
    ("FLUSHALL", ""),
];

#[test]
fn commands_make_the_events_of_redis() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "EA"));
        for (command, events) in EVENTS {
            check(&mut watcher, &mut client, &[command], events);
        }
    }
}

#[test]
fn new_keys_come_first() {
    let events = [
        ("SET k v", "new k, set k"),
        ("SET k w", "set k"),
        ("SET k v EX 9", "set k, expire k"),
        ("SET i 1 EX 9", "new i, set i, expire i"),
        ("INCR j", "new j, incrby j"),
        ("INCR j", "incrby j"),
        ("INCRBYFLOAT f 1", "new f, incrbyfloat f"),
        ("APPEND a x", "new a, append a"),
        ("SETRANGE r 2 x", "new r, setrange r"),
        ("SETBIT b 2 1", "new b, setbit b"),
        ("SETNX n 1", "new n, set n"),
        ("GETSET o 1", "new o, set o"),
        ("SET p 1 EXAT 1", "new p, set p, expire p, expired p"),
        ("MSET k 1 l 2", "set k, new l, set l"),
        (
            "MSETNX {x}1 1 {x}2 2",
            "new {x}1, set {x}1, new {x}2, set {x}2",
        ),
        ("SET q 1 NX GET", "new q, set q"),
        ("COPY k c", "new c, copy_to c"),
        // As Redis, which removes the target first.
        ("COPY k c REPLACE", "new c, copy_to c"),
        ("RENAME k c", "new c, rename_from k, rename_to c"),
        ("RENAME c d", "new d, rename_from c, rename_to d"),
        ("HSET h f v", "new h, hset h"),
        ("HSET h g v", "hset h"),
        // It is no string, and is replaced.
        ("SET h v", "set h"),
    ];
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "EAn"));
        for (command, expected) in events {
            check(&mut watcher, &mut client, &[command], expected);
        }
        for (command, expected) in [
            ("APPEND", &["keyevent:new z", "keyevent:append z"][..]),
            ("APPEND", &["keyevent:append z"]),
            ("SETRANGE", &[]),
        ] {
            let offset: &[&[u8]] = if command == "SETRANGE" { &[b"0"] } else { &[] };
            let words = [&[command.as_bytes(), b"z"], offset, &[b""]].concat();
            client.send(&words);
            assert_eq!(client.reply(), "0", "{command}");
            assert_eq!(watcher.seen(&mut client), expected, "{command}");
        }
        assert_eq!(client.call("EXISTS z"), "1");
        select(&mut client, "En");
        check(&mut watcher, &mut client, &["SET k v", "SET k w"], "new k");
        // What fails is replied as ever, and makes no event.
        client.call("HSET hash f v");
        assert!(client.call("INCR hash").starts_with("(error) WRONGTYPE"));
        assert!(client.call("INCR k").starts_with("(error) ERR value"));
        assert_eq!(watcher.seen(&mut client), ["keyevent:new hash"]);
    }
}

#[test]
fn reads_of_absent_keys_are_missed() {
    let server = Served::roomy(2);
    let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "Em"));
    let reads = [
        "GET a",
        "STRLEN a",
        "GETRANGE a 0 1",
        "GETBIT a 1",
        "EXISTS a",
        "TYPE a",
        "TTL a",
        "TOUCH a",
        "GETEX a EX 5",
        "GETEX a PERSIST",
        "GETDEL a",
        "HGET a f",
        "HGETALL a",
        "HMGET a f g",
        "HSCAN a 0",
        "HRANDFIELD a",
        "COPY a b",
        "BITCOUNT a",
    ];
    for read in reads {
        check(&mut watcher, &mut client, &[read], "keymiss a");
    }
    check(
        &mut watcher,
        &mut client,
        &["MGET {k}a {k}b"],
        "keymiss {k}a, keymiss {k}b",
    );
    check(
        &mut watcher,
        &mut client,
        &["LCS a b"],
        "keymiss a, keymiss b",
    );
    check(&mut watcher, &mut client, &["GETSET a 1"], "keymiss a");
    check(&mut watcher, &mut client, &["SET b 1 NX GET"], "keymiss b");
    let others = [
        "GET a",
        "DEL none",
        "OBJECT REFCOUNT none",
        "MEMORY USAGE none",
        "SET none 1",
        "INCR i",
    ];
    check(&mut watcher, &mut client, &others, "");
}

#[test]
fn transactions_send_the_events_of_their_commands() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "EAmn"));
        // At once.
        let at_once = [
            "MULTI",
            "SET {k}a 1",
            "INCR {k}a",
            "SET {k}b 1 PX 50000",
            "GETEX {k}b PERSIST",
            "GETEX {k}b PERSIST",
            "GET {k}c",
            "DEL {k}a {k}c",
            "SET {k}a 2",
            "EXEC",
        ];
        let expected = "new {k}a, set {k}a, incrby {k}a, new {k}b, set {k}b, expire {k}b, \
                        persist {k}b, keymiss {k}c, del {k}a, new {k}a, set {k}a";
        check(&mut watcher, &mut client, &at_once, expected);
        // One after the other.
        let replayed = [
            "MULTI",
            "HSET {k}h f 1",
            "SET {k}a 3",
            "HDEL {k}h f",
            "MSET {k}a 4 {k}n 5",
            "EXEC",
        ];
        let expected = "new {k}h, hset {k}h, set {k}a, hdel {k}h, del {k}h, set {k}a, new {k}n, \
                        set {k}n";
        check(&mut watcher, &mut client, &replayed, expected);
        // Nothing has happened.
        for command in ["WATCH {k}a", "MULTI", "SET {k}a 5"] {
            client.call(command);
        }
        let mut other = server.word_client();
        check(&mut watcher, &mut other, &["SET {k}a 6"], "set {k}a");
        assert_eq!(client.call("EXEC"), "nil");
        check(
            &mut watcher,
            &mut client,
            &["MULTI", "SET {k}a 5", "DISCARD"],
            "",
        );
    }
}

#[test]
fn subscribers_of_all_cores_receive_the_events_of_all_cores() {
    let server = Served::roomy(2);
    let mut watchers: Vec<_> = (0..4).map(|_| Watcher::of(&server)).collect();
    let mut clients: Vec<_> = (0..4).map(|_| selecting(&server, "EA")).collect();
    for round in 0..50 {
        for (place, client) in clients.iter_mut().enumerate() {
            let commands: Vec<_> = (0..20).map(|key| format!("SET k{round}.{key} v")).collect();
            let commands: Vec<_> = commands.iter().map(String::as_str).collect();
            assert!(client.call_all(&commands).iter().all(|reply| reply == "OK"));
            let expected: Vec<_> = (0..20)
                .map(|key| format!("keyevent:set k{round}.{key}"))
                .collect();
            client.call(&format!("PUBLISH end {round}.{place}"));
            for watcher in &mut watchers {
                // Keys of two shards are changed in any order.
                let mut seen: Vec<_> = expected.iter().map(|_| watcher.next()).collect();
                seen.sort_by_key(|event| (event.len(), event.clone()));
                assert_eq!(seen, expected);
                assert_eq!(watcher.next(), format!("end {round}.{place}"));
            }
        }
    }
}

#[test]
fn values_in_pieces_make_events() {
    let server = Served::roomy(1);
    let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "EAn"));
    let value = vec![b'v'; 300_000];
    for expected in [
        &["keyevent:new k", "keyevent:set k"][..],
        &["keyevent:set k"],
    ] {
        client.send(&[b"SET", b"k", &value]);
        assert_eq!(client.reply(), "OK");
        assert_eq!(watcher.seen(&mut client), expected);
    }
    client.send(&[b"SETEX", b"k", b"100", &value]);
    assert_eq!(client.reply(), "OK");
    check(
        &mut watcher,
        &mut client,
        &["DEL k"],
        "set k, expire k, del k",
    );
}

/// Waits until a key is absent.
fn wait_until_absent(client: &mut WordClient, key: &str) {
    let exists = format!("EXISTS {key}");
    wait_until("the key expires", || client.call(&exists) == "0");
}

#[test]
fn keys_expire_by_themselves_and_when_they_are_read() {
    let server = Served::roomy(2);
    let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "Ex"));
    for key in ["a", "b", "c", "d"] {
        assert_eq!(client.call(&format!("PSETEX {key} 1 v")), "OK");
        assert_eq!(watcher.next(), format!("keyevent:expired {key}"));
        assert_eq!(client.call(&format!("PSETEX {key} 1 v")), "OK");
        wait_until_absent(&mut client, key);
        assert_eq!(client.call(&format!("GET {key}")), "nil");
        assert_eq!(watcher.next(), format!("keyevent:expired {key}"));
    }
    // Each once.
    check(&mut watcher, &mut client, &["MGET a b c d"], "");
}

/// The time of the server, in milliseconds since 1970.
fn time_ms(client: &mut WordClient) -> u64 {
    let time = client.call("TIME");
    let parts = time.split('"').skip(1).step_by(2);
    let parts: Vec<u64> = parts.map(|part| part.parse().unwrap()).collect();
    parts[0] * 1000 + parts[1] / 1000
}

/// Waits until a time is past, without meeting a key.
fn wait_until_past(client: &mut WordClient, at_ms: u64) {
    wait_until("the time has come", || time_ms(client) > at_ms + 1);
}

/// What makes a key that expires, and what meets it then, with the events of that.
const MEETINGS: &[(&str, &[&str], &str)] = &[
    ("SET k v", &["SET k w"], "set k"),
    ("SET k v", &["SET k w KEEPTTL"], "set k"),
    ("SET k v", &["SET k w PX 100000"], "set k, expire k"),
    ("SET k v", &["SET k w NX"], "set k"),
    ("SET k v", &["SET k w XX"], ""),
    ("SET k v", &["SET k w GET"], "set k"),
    ("SET k v", &["SETNX k w"], "set k"),
    ("SET k v", &["SETEX k 100 w"], "set k, expire k"),
    ("SET k v", &["MSET k w"], "set k"),
    ("SET k v", &["MSET k w k2 w"], "set k, set k2"),
    ("SET k v", &["MSETNX k w"], "set k"),
    ("SET k 5", &["INCR k"], "incrby k"),
    ("SET k 5", &["INCRBYFLOAT k 2"], "incrbyfloat k"),
    ("SET k v", &["APPEND k w"], "append k"),
    ("SET k v", &["SETRANGE k 1 w"], "setrange k"),
    ("SET k v", &["SETBIT k 1 1"], "setbit k"),
    ("SET k v", &["GETSET k w"], "set k"),
    ("SET k v", &["HSET k f v"], "hset k"),
    ("SET k v", &["RPUSH k a"], "rpush k"),
    ("SET k v", &["SADD k a"], "sadd k"),
    (
        "SET k v",
        &["RENAME other k"],
        "rename_from other, rename_to k",
    ),
    ("SET k v", &["COPY other k"], "copy_to k"),
    ("SET k v", &["COPY other k REPLACE"], "copy_to k"),
    ("SET k v", &["SUNIONSTORE k members"], "sunionstore k"),
    ("SET k v", &["SDIFFSTORE k none"], ""),
    ("SET k v", &["SMOVE members k a"], "srem members, sadd k"),
    (
        "SET k v",
        &["LMOVE elements k LEFT LEFT"],
        "lpush k, lpop elements",
    ),
    ("SET k v", &["MULTI", "SET k w", "EXEC"], "set k"),
    ("SET k v", &["MULTI", "DEL k", "EXEC"], ""),
    ("SET k v", &["MULTI", "DBSIZE", "SET k w", "EXEC"], "set k"),
    ("SET k v", &["GET k"], ""),
    ("SET k v", &["MGET k"], ""),
    ("SET k v", &["GETDEL k"], ""),
    ("SET k v", &["GETEX k PERSIST"], ""),
    ("SET k v", &["GETRANGE k 0 1"], ""),
    ("SET k v", &["EXISTS k"], ""),
    ("SET k v", &["TYPE k"], ""),
    ("SET k v", &["TTL k"], ""),
    ("SET k v", &["PERSIST k"], ""),
    ("SET k v", &["EXPIRE k 100"], ""),
    ("SET k v", &["DEL k"], ""),
    ("SET k v", &["UNLINK k"], ""),
    ("HSET k f v", &["HSET k g v"], "hset k"),
    ("HSET k f v", &["HINCRBY k n 1"], "hincrby k"),
    ("HSET k f v", &["HDEL k f"], ""),
    ("HSET k f v", &["HGETALL k"], ""),
    ("HSET k f v", &["SET k w"], "set k"),
    ("SADD k a", &["SADD k b"], "sadd k"),
    ("SADD k a", &["SREM k a"], ""),
    ("SADD k a", &["SPOP k"], ""),
    ("SADD k a", &["SMEMBERS k"], ""),
    ("SADD k a", &["SUNIONSTORE k members"], "sunionstore k"),
    ("RPUSH k a", &["RPUSH k b"], "rpush k"),
    ("RPUSH k a", &["LPOP k"], ""),
    ("RPUSH k a", &["LRANGE k 0 -1"], ""),
    ("RPUSH k a", &["SET k w"], "set k"),
];

/// On two cores the shard of half of the keys is another core's than that of the client.
#[test]
fn a_key_expires_before_what_meets_it() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "EA"));
        for (place, (make, meet, expected)) in MEETINGS.iter().enumerate() {
            // In any shard, all of a command's in one.
            let named = |words: &str| {
                let words = words.split(' ').map(|word| match word {
                    "k" | "k2" | "other" | "none" | "members" | "elements" => {
                        format!("{{{place}}}{word}")
                    }
                    word => word.to_owned(),
                });
                words.collect::<Vec<_>>().join(" ")
            };
            let mut at_ms = 0;
            wait_until("it lives when it gets its expiry", || {
                for before in [
                    "SET other w",
                    "SADD members a b",
                    "RPUSH elements a b",
                    "DEL k",
                    make,
                ] {
                    client.call(&named(before));
                }
                at_ms = time_ms(&mut client) + 30;
                client.call(&named(&format!("PEXPIREAT k {at_ms}")));
                let expires = format!("keyevent:{}", named("expire k"));
                watcher.seen(&mut client).contains(&expires)
            });
            wait_until_past(&mut client, at_ms);
            for command in *meet {
                let reply = client.call(&named(command));
                assert!(!reply.contains("(error)"), "{command}: {reply}");
            }
            let events = expected.split(", ").filter(|event| !event.is_empty());
            let expected: Vec<_> = std::iter::once("expired k")
                .chain(events)
                .map(named)
                .collect();
            // The core of the key's shard sends what a command without events of its own has met.
            let mut seen = Vec::new();
            wait_until("its events come", || {
                seen.extend(watcher.seen(&mut client));
                seen.len() >= expected.len()
            });
            let names = seen
                .iter()
                .map(|event| event.trim_start_matches("keyevent:"));
            let names: Vec<_> = names.collect();
            assert_eq!(names, expected, "{make}, {meet:?} on {cores} cores");
        }
    }
}

/// Clients of all cores write keys of all shards anew that have expired, many at once.
#[test]
fn keys_of_all_shards_expire_before_they_are_written_anew() {
    const KEYS: usize = 400;
    let server = Served::roomy(2);
    let mut watchers: Vec<_> = (0..2).map(|_| Watcher::of(&server)).collect();
    let mut clients: Vec<_> = (0..2).map(|_| selecting(&server, "EA")).collect();
    for command in ["SET", "APPEND", "INCR", "MSET"] {
        let at_ms = time_ms(&mut clients[0]) + 300;
        let value = if command == "INCR" { "" } else { " v" };
        for key in 0..KEYS {
            clients[key % 2].send_words(&format!("SET {command}{key} 1 PXAT {at_ms}"));
        }
        (0..KEYS).for_each(|key| assert_eq!(clients[key % 2].reply(), "OK"));
        wait_until_past(&mut clients[0], at_ms);
        for key in 0..KEYS {
            clients[(key + 1) % 2].send_words(&format!("{command} {command}{key}{value}"));
        }
        (0..KEYS).for_each(|key| drop(clients[(key + 1) % 2].reply()));
        for watcher in &mut watchers {
            let seen = watcher.seen(&mut clients[0]);
            for key in 0..KEYS {
                let mine: Vec<_> = seen
                    .iter()
                    .filter_map(|event| {
                        let (name, of) = event.split_once(' ').unwrap();
                        (of == format!("{command}{key}")).then_some(name)
                    })
                    .collect();
                let expired = mine.iter().position(|name| *name == "keyevent:expired");
                let is_right = expired == Some(mine.len() - 2);
                assert!(is_right, "{command}{key}: {mine:?}");
            }
        }
    }
}

/// Clients of all cores store keys that expire at once, which others meet.
#[test]
fn a_key_is_set_before_it_expires() {
    const KEYS: usize = 200;
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 20;
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let mut watcher = Watcher::of(&server);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| selecting(&server, "EA")).collect();
        for round in 0..ROUNDS {
            let name = |place: usize, key: usize| format!("{round}.{}.{key}", place % CLIENTS);
            for key in 0..KEYS {
                for (place, client) in clients.iter_mut().enumerate() {
                    client.send_words(&format!("SET {} v PX 1", name(place, key)));
                    client.send_words(&format!("GET {}", name(place + 1, key)));
                }
            }
            for client in &mut clients {
                for _ in 0..KEYS {
                    assert_eq!(client.reply(), "OK");
                    client.reply();
                }
            }
        }
        let mut seen = Vec::new();
        wait_until("all have expired", || {
            seen.extend(watcher.seen(&mut clients[0]));
            seen.len() >= ROUNDS * CLIENTS * KEYS * 3
        });
        let mut by_key = HashMap::<_, Vec<_>>::new();
        for event in &seen {
            let (name, key) = event.split_once(' ').unwrap();
            by_key.entry(key).or_default().push(name);
        }
        assert_eq!(by_key.len(), ROUNDS * CLIENTS * KEYS);
        for (key, events) in by_key {
            let expected = ["keyevent:set", "keyevent:expire", "keyevent:expired"];
            assert_eq!(events, expected, "{key} on {cores} cores");
        }
    }
}

#[test]
fn keys_of_all_shards_expire_for_subscribers_of_all_cores() {
    let server = Served::roomy(2);
    let mut watchers: Vec<_> = (0..4).map(|_| Watcher::of(&server)).collect();
    let mut client = selecting(&server, "Ex");
    let keys: Vec<_> = (0..50).map(|key| format!("k{key:02}")).collect();
    let shards: HashSet<_> = keys
        .iter()
        .map(|key| server.shard_of(key.as_bytes()))
        .collect();
    assert_eq!(shards.len(), server.shards());
    for key in &keys {
        client.call(&format!("PSETEX {key} 5 v"));
    }
    for watcher in &mut watchers {
        let mut seen: Vec<_> = keys.iter().map(|_| watcher.next()).collect();
        seen.sort();
        let expected: Vec<_> = keys
            .iter()
            .map(|key| format!("keyevent:expired {key}"))
            .collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn evicted_keys_are_told_and_absent() {
    let server = Served::cache();
    let (mut watcher, mut client) = (Watcher::of(&server), selecting(&server, "Ee"));
    let value = vec![b'v'; 4_000];
    for round in 0..200 {
        for key in 0..100 {
            client.send(&[b"SET", format!("{round}.{key}").as_bytes(), &value]);
        }
        for _ in 0..100 {
            assert_eq!(client.reply(), "OK");
        }
    }
    let seen = watcher.seen(&mut client);
    assert!(seen.len() > 1_000, "{}", seen.len());
    for event in &seen {
        let key = event.strip_prefix("keyevent:evicted ").expect("evicted");
        assert_eq!(client.call(&format!("EXISTS {key}")), "0");
    }
}

#[test]
fn sets_make_the_events_of_redis() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let mut watcher = Watcher::of(&server);
        let mut client = selecting(&server, "EA");
        for (command, expected) in [
            ("SADD s a b c", "sadd s"),
            ("SADD s a", ""),
            ("SREM s x", ""),
            ("SREM s a", "srem s"),
            ("SMOVE s t b", "srem s, sadd t"),
            ("SMOVE s t x", ""),
            ("SMOVE t t b", ""),
            ("SADD t c", "sadd t"),
            ("SMOVE s t c", "srem s, del s"),
            ("SINTERSTORE u t t", "sinterstore u"),
            ("SUNIONSTORE u t s", "sunionstore u"),
            ("SDIFFSTORE u t s", "sdiffstore u"),
            ("SDIFFSTORE u t t", "del u"),
            ("SDIFFSTORE u t t", ""),
            ("SPOP t", "spop t"),
            ("SPOP t 0", ""),
            ("SPOP t 9", "spop t, del t"),
            ("SPOP t 9", ""),
            ("SMEMBERS t", ""),
        ] {
            check(&mut watcher, &mut client, &[command], expected);
        }
        select(&mut client, "EAnm");
        for (command, expected) in [
            ("SADD s a", "new s, sadd s"),
            ("SADD s b", "sadd s"),
            ("SMOVE s t a", "srem s, new t, sadd t"),
            ("SUNIONSTORE u s t", "new u, sunionstore u"),
            ("SUNIONSTORE u s t", "sunionstore u"),
            ("SUNIONSTORE u s none", "keymiss none, sunionstore u"),
            ("SINTER s none", "keymiss none"),
            ("SINTERCARD 1 none", "keymiss none"),
            ("SISMEMBER none a", "keymiss none"),
            ("SMISMEMBER none a b", "keymiss none"),
            ("SMEMBERS none", "keymiss none"),
            ("SCARD none", "keymiss none"),
            ("SRANDMEMBER none", "keymiss none"),
            ("SSCAN none 0", "keymiss none"),
            ("TYPE none", "keymiss none"),
            ("TYPE s", ""),
        ] {
            check(&mut watcher, &mut client, &[command], expected);
        }
    }
}

/// Commands on lists, and the events that Redis 7.0 sends of them.
const LIST_EVENTS: &[(&str, &str)] = &[
    ("RPUSH l a b c", "rpush l"),
    ("LPUSH l z", "lpush l"),
    ("RPUSHX l d", "rpush l"),
    ("LPUSHX l y", "lpush l"),
    ("RPUSHX none x", ""),
    ("LPUSHX none x", ""),
    ("LLEN l", ""),
    ("LRANGE l 0 -1", ""),
    ("LINDEX l 0", ""),
    ("LPOS l a", ""),
    ("LSET l 0 x", "lset l"),
    ("LSET l 0 x", "lset l"),
    ("LINSERT l BEFORE a w", "linsert l"),
    ("LINSERT l AFTER none w", ""),
    ("LINSERT none AFTER a w", ""),
    ("LREM l 0 none", ""),
    ("LREM l 0 w", "lrem l"),
    ("LREM none 0 w", ""),
    ("LTRIM l 0 -1", "ltrim l"),
    ("LTRIM l 0 3", "ltrim l"),
    ("LTRIM none 0 1", ""),
    ("LPOP l 0", ""),
    ("RPOP l 0", ""),
    ("LPOP l", "lpop l"),
    ("RPOP l", "rpop l"),
    ("LPOP l 1", "lpop l"),
    ("LPOP none", ""),
    ("RPOP l 9", "rpop l, del l"),
    ("RPUSH l a b", "rpush l"),
    ("LTRIM l 5 9", "ltrim l, del l"),
    ("RPUSH l a b b", "rpush l"),
    ("LREM l 0 a", "lrem l"),
    ("LREM l 0 b", "lrem l, del l"),
    ("RPUSH l a b c d e f g h", "rpush l"),
    ("LMOVE l m LEFT RIGHT", "rpush m, lpop l"),
    ("LMOVE l m RIGHT LEFT", "lpush m, rpop l"),
    ("RPOPLPUSH l m", "lpush m, rpop l"),
    ("LMOVE l l LEFT RIGHT", "rpush l, lpop l"),
    ("LMOVE l l RIGHT LEFT", "lpush l, rpop l"),
    ("LMOVE none m LEFT LEFT", ""),
    ("LMPOP 2 none l LEFT", "lpop l"),
    ("LMPOP 2 l none RIGHT COUNT 2", "rpop l"),
    ("LMPOP 1 none LEFT", ""),
    ("BLPOP none l 0", "lpop l"),
    ("BRPOP l 0", "rpop l, del l"),
    ("LMPOP 1 m LEFT COUNT 9", "lpop m, del m"),
    ("RPUSH l a b c d e", "rpush l"),
    ("BLMOVE l m LEFT LEFT 0", "lpush m, lpop l"),
    ("BRPOPLPUSH l m 0", "lpush m, rpop l"),
    ("BLMPOP 0 1 l LEFT", "lpop l"),
    ("BLMPOP 0 1 l RIGHT COUNT 5", "rpop l, del l"),
    ("RPUSH o a", "rpush o"),
    ("LMOVE o o LEFT RIGHT", "rpush o, lpop o"),
    ("LMOVE o p LEFT RIGHT", "rpush p, lpop o, del o"),
    ("BLMOVE p q LEFT RIGHT 0", "rpush q, lpop p, del p"),
    ("LPOP q", "lpop q, del q"),
    ("RPUSH q a", "rpush q"),
    ("BRPOP q 0", "rpop q, del q"),
];

/// Commands on lists, and the events that Redis 7.0 sends of them, those of new and missed keys
/// included.
const LIST_EVENTS_OF_KEYS: &[(&str, &str)] = &[
    ("RPUSH l a", "new l, rpush l"),
    ("RPUSH l b", "rpush l"),
    ("LPUSH k a", "new k, lpush k"),
    ("LPUSHX k a", "lpush k"),
    ("LMOVE l m LEFT RIGHT", "new m, rpush m, lpop l"),
    ("LMOVE l m LEFT RIGHT", "rpush m, lpop l, del l"),
    ("LMOVE m m LEFT RIGHT", "rpush m, lpop m"),
    ("RPOPLPUSH m n", "new n, lpush n, rpop m"),
    ("LLEN none", "keymiss none"),
    ("LRANGE none 0 1", "keymiss none"),
    ("LINDEX none 0", "keymiss none"),
    ("LPOS none a", "keymiss none"),
    ("LPOP none", ""),
    ("RPOP none 1", ""),
    ("LPUSHX none a", ""),
    ("RPUSHX none a", ""),
    ("LINSERT none BEFORE a b", ""),
    ("LREM none 0 a", ""),
    ("LTRIM none 0 1", ""),
    ("LMOVE none m LEFT LEFT", ""),
    ("RPOPLPUSH none m", ""),
    ("LMPOP 2 none nil LEFT", ""),
    ("BLPOP none m 0", "lpop m, del m"),
];

#[test]
fn lists_make_the_events_of_redis() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let mut watcher = Watcher::of(&server);
        for (classes, events) in [("EA", LIST_EVENTS), ("EAnm", LIST_EVENTS_OF_KEYS)] {
            let mut client = selecting(&server, classes);
            client.call("FLUSHALL");
            for (command, expected) in events {
                check(&mut watcher, &mut client, &[command], expected);
            }
        }
    }
}
