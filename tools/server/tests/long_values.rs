//! Values that are too long for a record, in every command of strings: they are stored, read and
//! changed as short ones are, by many clients at once, and without much memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use farcore_server::CoreFigures;

use self::support::client::request;
use self::support::{Client, Reply, Served, wait_until};

/// Bytes of the longest value in a record, with the pages of these tests.
const RECORD_BYTES: usize = 64 << 10;
const LONG: usize = 3 << 20;

/// A value that no part of another place or seed is equal to.
fn value(bytes: usize, seed: u8) -> Vec<u8> {
    let word = |place: u32| place.wrapping_mul(0x9e37_79b9) ^ u32::from(seed) << 8;
    (0..u32::try_from(bytes.div_ceil(4)).unwrap())
        .flat_map(|place| word(place).to_le_bytes())
        .take(bytes)
        .collect()
}

fn ask(client: &mut Client, arguments: &[&[u8]]) -> Reply {
    client.ask(arguments)
}

fn shown(client: &mut Client, arguments: &[&[u8]]) -> String {
    client.ask(arguments).to_string()
}

fn set(client: &mut Client, key: &str, value: &[u8]) {
    assert_eq!(shown(client, &[b"SET", key.as_bytes(), value]), "+OK");
}

/// The value of a key is these bytes, without printing them if it is not.
fn expect(client: &mut Client, key: &str, value: &[u8]) {
    let read = ask(client, &[b"GET", key.as_bytes()]);
    assert!(
        read == Reply::Bulk(value.to_vec()),
        "{key}: {}",
        kind(&read)
    );
}

/// What a reply is, in a few bytes.
fn kind(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => format!("{} bytes", bytes.len()),
        Reply::Array(all) => all.iter().map(kind).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn figures(served: &Served) -> CoreFigures {
    served.server().reporter().figures().total()
}

/// Lengths around those where a value no longer fits a record, with an expiry and without.
fn lengths() -> Vec<usize> {
    let near = [33, 32, 31, 25, 24, 23, 9, 8, 7, 1, 0];
    let mut lengths: Vec<_> = near.iter().map(|less| RECORD_BYTES - less).collect();
    lengths.extend([RECORD_BYTES + 1, RECORD_BYTES + 2, 200_001, LONG]);
    lengths
}

#[test]
fn values_of_every_length_are_stored_by_every_command() {
    let served = Served::roomy(2);
    let mut client = served.client();
    for bytes in lengths() {
        let stored = value(bytes, 1);
        let k: &[u8] = b"k";
        let forms: &[(&[&[u8]], &str)] = &[
            (&[b"SET", k, &stored], "+OK"),
            (&[b"SET", k, &stored, b"EX", b"1000"], "+OK"),
            (&[b"SET", k, &stored, b"NX", b"PX", b"1000000"], "null"),
            (&[b"SET", k, &stored, b"XX", b"KEEPTTL"], "+OK"),
            (&[b"SETEX", k, b"1000", &stored], "+OK"),
            (&[b"PSETEX", k, b"1000000", &stored], "+OK"),
            (&[b"SETNX", k, &stored], ":0"),
            (&[b"MSET", b"a", b"1", k, &stored], "+OK"),
            (&[b"MSET", k, &stored, b"b", b"2"], "+OK"),
        ];
        for (form, reply) in forms {
            assert_eq!(shown(&mut client, form), *reply, "{bytes} {:?}", form.len());
            if *reply == "+OK" {
                expect(&mut client, "k", &stored);
            }
        }
        assert_eq!(client.say("MGET a b"), "[\"1\", \"2\"]");
        let length = format!(":{bytes}");
        assert_eq!(client.say("DEL k"), ":1");
        assert_eq!(shown(&mut client, &[b"APPEND", k, &stored]), length);
        expect(&mut client, "k", &stored);
        assert_eq!(client.say("DEL k"), ":1");
        assert_eq!(shown(&mut client, &[b"SETRANGE", k, b"0", &stored]), length);
        expect(&mut client, "k", &stored);
        let other = value(bytes, 2);
        let before = ask(&mut client, &[b"GETSET", k, &other]);
        assert!(before == Reply::Bulk(stored), "{bytes}: {}", kind(&before));
        let before = ask(&mut client, &[b"SET", k, b"short", b"GET"]);
        assert!(before == Reply::Bulk(other), "{bytes}: {}", kind(&before));
        assert_eq!(client.say("STRLEN k"), ":5");
    }
    assert_eq!(figures(&served).evicted_clients, 0);
}

#[test]
fn bytes_of_a_value_are_no_error() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let text = b"-FORGED\r\n".repeat(LONG / 9);
    for stored in [&vec![b'-'; LONG], &text] {
        set(&mut client, "k", stored);
        expect(&mut client, "k", stored);
        let all = ask(&mut client, &[b"MGET", b"k", b"k"]);
        assert!(
            all.elements()
                .iter()
                .all(|one| *one == Reply::Bulk(stored.clone()))
        );
        let taken = client.ask(&["GETDEL", "k"]);
        assert!(taken == Reply::Bulk(stored.clone()), "{}", kind(&taken));
    }
    assert!(
        !client
            .ask(&["INFO", "errorstats"])
            .text()
            .contains("errorstat_")
    );
    // What a command of several steps replies is counted still.
    client.say("HSET h f v");
    assert!(client.say("SETBIT h 1 1").starts_with("-WRONGTYPE"));
    let counted = client.ask(&["INFO", "errorstats"]).text();
    assert!(counted.contains("errorstat_WRONGTYPE:count=1"), "{counted}");
}

#[test]
fn values_of_every_length_are_read_and_moved_by_every_command() {
    let served = Served::roomy(2);
    let mut client = served.client();
    for bytes in lengths() {
        let stored = value(bytes, 3);
        let length = format!(":{bytes}");
        set(&mut client, "k", &stored);
        assert_eq!(client.say("STRLEN k"), length);
        let end = ask(&mut client, &[b"GETRANGE", b"k", b"-9", b"-3"]);
        assert!(end == Reply::Bulk(stored[bytes - 9..bytes - 2].to_vec()));
        let middle = ask(&mut client, &[b"SUBSTR", b"k", b"1000", b"40000"]);
        assert!(middle == Reply::Bulk(stored[1000..=40_000].to_vec()));
        let ones: u32 = stored.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(client.say("BITCOUNT k"), format!(":{ones}"));
        let ones: u32 = stored[7..=60_000]
            .iter()
            .map(|byte| byte.count_ones())
            .sum();
        assert_eq!(client.say("BITCOUNT k 7 60000"), format!(":{ones}"));
        let last = u32::from(stored[bytes - 1] & 1);
        assert_eq!(
            client.say(&format!("GETBIT k {}", bytes * 8 - 1)),
            format!(":{last}")
        );
        assert_eq!(client.say(&format!("GETBIT k {}", bytes * 8)), ":0");
        for options in [&["EX", "1000"][..], &["PERSIST"], &[]] {
            let mut getex = vec!["GETEX", "k"];
            getex.extend(options);
            assert!(
                client.ask(&getex) == Reply::Bulk(stored.clone()),
                "{bytes} {options:?}"
            );
            let expires = client.say("TTL k") != ":-1";
            assert_eq!(expires, options.first() == Some(&"EX"), "{options:?}");
        }
        client.say("EXPIRE k 1000");
        assert_eq!(client.say("COPY k l"), ":1");
        assert_eq!(client.say("COPY k l"), ":0");
        assert_eq!(client.say("COPY k l REPLACE"), ":1");
        assert_eq!(client.say("RENAME l m"), "+OK");
        assert_eq!(client.say("RENAMENX k m"), ":0");
        assert_eq!(client.say("RENAME m m"), "+OK");
        assert_ne!(client.say("TTL m"), ":-1");
        assert_eq!(client.say("EXISTS k l m"), ":2");
        expect(&mut client, "m", &stored);
        let taken = ask(&mut client, &[b"GETDEL", b"m"]);
        assert!(
            taken == Reply::Bulk(stored.clone()),
            "{bytes}: {}",
            kind(&taken)
        );
        assert_eq!(client.say("GETDEL m"), "null");
        let taken = client.ask(&["GETEX", "k", "EXAT", "1"]);
        assert!(taken == Reply::Bulk(stored), "{bytes}: {}", kind(&taken));
        assert_eq!(client.say("EXISTS k l m"), ":0");
    }
}

#[test]
fn conditions_hold_for_long_values() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let (one, two) = (value(200_000, 1), value(200_000, 2));
    let k: &[u8] = b"k";
    assert_eq!(shown(&mut client, &[b"SET", k, &one, b"XX"]), "null");
    assert_eq!(
        shown(&mut client, &[b"SET", k, &one, b"NX", b"GET"]),
        "null"
    );
    expect(&mut client, "k", &one);
    let kept = ask(&mut client, &[b"SET", k, &two, b"NX", b"GET"]);
    assert!(kept == Reply::Bulk(one.clone()));
    assert_eq!(
        shown(&mut client, &[b"SET", k, b"n", b"IFEQ", &two]),
        "null"
    );
    expect(&mut client, "k", &one);
    assert_eq!(shown(&mut client, &[b"SET", k, &two, b"IFEQ", &one]), "+OK");
    let swapped = ask(&mut client, &[b"SET", k, b"n", b"IFEQ", &two, b"GET"]);
    assert!(swapped == Reply::Bulk(two.clone()));
    assert_eq!(client.say("GET k"), "\"n\"");
    set(&mut client, "k", &two);
    assert_eq!(client.say("SET k n IFEQ x"), "null");
    assert_eq!(client.say("DELIFEQ k x"), ":0");
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &one]), ":0");
    set(&mut client, "k", &two);
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &one]), ":0");
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &two]), ":1");
    // Of values that are about as long as a record, all bytes are compared.
    let near = value(RECORD_BYTES - 20, 5);
    let mut other = near.clone();
    *other.last_mut().unwrap() ^= 1;
    set(&mut client, "k", b"");
    assert_eq!(
        shown(&mut client, &[b"APPEND", k, &near]),
        format!(":{}", near.len())
    );
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &other]), ":0");
    assert_eq!(
        shown(&mut client, &[b"SET", k, b"n", b"IFEQ", &other]),
        "null"
    );
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &near]), ":1");
    // A hash is no string.
    client.say("HSET h f v");
    assert!(shown(&mut client, &[b"GETSET", b"h", &one]).starts_with("-WRONGTYPE"));
    assert!(shown(&mut client, &[b"APPEND", b"h", &one]).starts_with("-WRONGTYPE"));
    assert_eq!(client.say("HGET h f"), "\"v\"");
    set(&mut client, "k", &one);
    for command in ["INCR k", "DECRBY k 2"] {
        let refused = client.say(command);
        assert_eq!(refused, "-ERR value is not an integer or out of range");
    }
    assert_eq!(
        client.say("INCRBYFLOAT k 1"),
        "-ERR value is not a valid float"
    );
}

#[test]
fn parts_of_long_values_are_replaced_and_added() {
    let served = Served::roomy(2);
    let mut client = served.client();
    let mut model = value(50_000, 1);
    set(&mut client, "k", &model);
    client.say("EXPIRE k 1000");
    let steps = [
        (60_000, 10),
        (0, 5),
        (300_000, 70_000),
        (131_071, 3),
        (400_000, 200_000),
    ];
    for (step, (offset, bytes)) in steps.into_iter().enumerate() {
        let part = value(bytes, 10 + u8::try_from(step).unwrap());
        model.resize(model.len().max(offset + bytes), 0);
        model[offset..offset + bytes].copy_from_slice(&part);
        let at = offset.to_string();
        let length = shown(&mut client, &[b"SETRANGE", b"k", at.as_bytes(), &part]);
        assert_eq!(length, format!(":{}", model.len()));
        expect(&mut client, "k", &model);
        let tail = value(20_000 * (step + 1), 20);
        model.extend_from_slice(&tail);
        let length = shown(&mut client, &[b"APPEND", b"k", &tail]);
        assert_eq!(length, format!(":{}", model.len()));
    }
    expect(&mut client, "k", &model);
    let bit = model.len() * 8 + 9;
    assert_eq!(client.say(&format!("SETBIT k {bit} 1")), ":0");
    assert_eq!(client.say(&format!("SETBIT k {bit} 1")), ":1");
    model.extend_from_slice(&[0, 0x40]);
    let was = u8::from(model[70_000] & 0x80 != 0);
    assert_eq!(
        client.say(&format!("SETBIT k {} 0", 70_000 * 8)),
        format!(":{was}")
    );
    model[70_000] &= 0x7f;
    expect(&mut client, "k", &model);
    assert_ne!(client.say("TTL k"), ":-1", "it keeps its expiry");
    assert_eq!(
        shown(&mut client, &[b"APPEND", b"k", b""]),
        format!(":{}", model.len())
    );
    assert_eq!(
        shown(&mut client, &[b"SETRANGE", b"k", b"9", b""]),
        format!(":{}", model.len())
    );
    // Nothing of a value that would be too long is stored.
    for command in [
        "SETRANGE k 67108864 x",
        "SETRANGE none 67108864 x",
        "SETBIT k 536870912 1",
    ] {
        let refused = client.say(command);
        assert!(
            refused.starts_with("-ERR string exceeds maximum allowed size"),
            "{refused}"
        );
    }
    expect(&mut client, "k", &model);
    assert_eq!(client.say("EXISTS none"), ":0");
}

#[test]
fn long_values_stand_among_others_in_a_reply() {
    let served = Served::roomy(2);
    let (one, two) = (value(LONG, 1), value(100_000, 2));
    for protocol in ["2", "3"] {
        let mut client = served.client();
        client.ask(&["HELLO", protocol]);
        client.say("DEL h");
        set(&mut client, "one", &one);
        set(&mut client, "two", &two);
        client.say("HSET h f v");
        client.say("SET s short");
        client.send(&["MGET", "one", "none", "s", "two", "h", "one"]);
        client.send(&["GET", "s"]);
        let null = if protocol == "2" {
            Reply::Null
        } else {
            Reply::Null3
        };
        let (one, two) = (Reply::Bulk(one.clone()), Reply::Bulk(two.clone()));
        let short = Reply::Bulk(b"short".to_vec());
        let all = [
            one.clone(),
            null.clone(),
            short.clone(),
            two,
            null.clone(),
            one,
        ];
        let reply = client.read().unwrap();
        assert!(reply == Reply::Array(all.to_vec()), "{}", kind(&reply));
        assert_eq!(client.read().unwrap(), short);
        assert_eq!(client.ask(&["GETDEL", "none"]), null);
        client.say("DEL h");
    }
}

#[test]
fn a_long_value_arrives_in_any_pieces_with_what_follows_it() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let (one, two) = (value(300_000, 1), value(90_000, 2));
    let near = value(60_000, 3);
    let commands: [(Vec<&[u8]>, &str); 7] = [
        (vec![b"SET", b"k", &one, b"EX", b"100"], "+OK"),
        (
            vec![b"SET", b"k", &two, b"EX", b"0"],
            "-ERR invalid expire time in 'set' command",
        ),
        (vec![b"SET", b"k", &two, b"NX", b"XX"], "-ERR syntax error"),
        (
            vec![
                b"MSET", b"a", &two, b"b", b"x", b"c", &one, b"d", &near, b"e", &two,
            ],
            "+OK",
        ),
        (
            vec![b"MSET", b"a", &two, b"b"],
            "-ERR wrong number of arguments for 'mset' command",
        ),
        (vec![b"STRLEN", b"k"], ":300000"),
        (vec![b"PING"], "+PONG"),
    ];
    let all: Vec<u8> = commands
        .iter()
        .flat_map(|(command, _)| request(command))
        .collect();
    for piece in [1_usize << 20, 65_536, 7_919, 101] {
        let (head, rest) = all.split_at(if piece < 1000 { all.len() - 5_000 } else { 0 });
        client.write(head);
        for part in rest.chunks(piece) {
            client.write(part);
        }
        for (command, reply) in &commands {
            let name = String::from_utf8_lossy(command[0]);
            assert_eq!(
                client.read().unwrap().to_string(),
                *reply,
                "{name} by {piece}"
            );
        }
        for (key, held) in [("a", &two), ("c", &one), ("d", &near), ("e", &two)] {
            expect(&mut client, key, held);
        }
        assert_eq!(client.say("GET b"), "\"x\"");
        assert_eq!(client.say("DEL a b c d e k"), ":6");
    }
    // Keys are never long, wherever they stand.
    let refused = shown(&mut client, &[b"MSET", b"a", &two, &one, b"x", b"c", b"3"]);
    assert!(
        refused.starts_with("-ERR the key has 300000 bytes"),
        "{refused}"
    );
    expect(&mut client, "a", &two);
    assert_eq!(client.say("GET c"), "\"3\"");
}

#[test]
fn transactions_carry_commands_of_long_values_out() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let (one, two) = (value(LONG, 1), value(100_000, 2));
    set(&mut client, "taken", &two);
    client.say("MULTI");
    let commands: [&[&[u8]]; 7] = [
        &[b"SET", b"k", &one, b"EX", b"100"],
        &[b"APPEND", b"k", b"tail"],
        &[b"MSET", b"a", &two, b"b", b"x"],
        &[b"GETDEL", b"taken"],
        &[b"MGET", b"a", b"b", b"taken"],
        &[b"GETSET", b"a", b"short"],
        &[b"STRLEN", b"k"],
    ];
    for command in commands {
        assert_eq!(shown(&mut client, command), "+QUEUED");
    }
    let replies = client.ask(&["EXEC"]);
    let ok = Reply::Simple("OK".into());
    let length = Reply::Integer(LONG as i64 + 4);
    let two = Reply::Bulk(two);
    let many = vec![two.clone(), Reply::Bulk(b"x".to_vec()), Reply::Null];
    let all = vec![
        ok.clone(),
        length.clone(),
        ok,
        two.clone(),
        Reply::Array(many),
        two,
        length,
    ];
    assert!(replies == Reply::Array(all), "{}", kind(&replies));
    assert_eq!(client.say("PING"), "+PONG");
}

/// Each value has one byte all over, so parts of two would be seen.
fn is_uniform(reply: &Reply) -> bool {
    match reply {
        Reply::Bulk(bytes) => bytes.iter().all(|byte| *byte == bytes[0]),
        Reply::Null => true,
        other => panic!("{}", kind(other)),
    }
}

/// What a server replies to commands that are sent at once; `MORE` stands for 1000 bytes.
fn pipelined(client: &mut Client, commands: &str) -> Vec<String> {
    let commands: Vec<_> = commands.split(" | ").collect();
    let more = "m".repeat(1000);
    let bytes: Vec<u8> = (commands.iter())
        .flat_map(|command| {
            let words = command.split(' ');
            let words = words.map(|word| if word == "MORE" { &more } else { word });
            request(&words.collect::<Vec<_>>())
        })
        .collect();
    client.stream.get_ref().write_all(&bytes).unwrap();
    let replies = commands.iter().map(|_| client.read().unwrap());
    replies.map(|reply| short(&reply)).collect()
}

/// A reply with what is long in it told by its length and its ends.
fn short(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) if bytes.len() > 20 => {
            let (first, last) = (bytes[0] as char, bytes[bytes.len() - 1] as char);
            format!("{first}..{last} {}", bytes.len())
        }
        Reply::Array(all) => {
            let all: Vec<_> = all.iter().map(short).collect();
            format!("[{}]", all.join(", "))
        }
        reply => reply.to_string(),
    }
}

/// Pipelines that begin with a long value, with what they reply.
const OF_LONG: [(&str, &[&str]); 9] = [
    (
        "GETDEL k | SET k new | GET k",
        &["l..l 3145728", "+OK", "\"new\""],
    ),
    (
        "SET k x GET | DEL k | GET k",
        &["l..l 3145728", ":1", "null"],
    ),
    (
        "APPEND k x | SET k new | GET k",
        &[":3145729", "+OK", "\"new\""],
    ),
    (
        "GET k | SET k new | GET k",
        &["l..l 3145728", "+OK", "\"new\""],
    ),
    (
        "GETRANGE k 0 3 | DEL k | EXISTS k",
        &["\"llll\"", ":1", ":0"],
    ),
    (
        "MGET k k | MSET k new | MGET k",
        &["[l..l 3145728, l..l 3145728]", "+OK", "[\"new\"]"],
    ),
    ("GETBIT k 1 | DEL k | GET k", &[":1", ":1", "null"]),
    (
        "GETEX k EX 100 | SET k new | TTL k",
        &["l..l 3145728", "+OK", ":-1"],
    ),
    (
        "MULTI | GETDEL k | SET k new | GET k | EXEC",
        &[
            "+OK",
            "+QUEUED",
            "+QUEUED",
            "+QUEUED",
            "[l..l 3145728, +OK, \"new\"]",
        ],
    ),
];
/// The same with a value that becomes long.
const OF_GROWING: [(&str, &[&str]); 3] = [
    (
        "APPEND k MORE | SET k new | GET k",
        &[":66436", "+OK", "\"new\""],
    ),
    (
        "APPEND k MORE | APPEND k y | GET k",
        &[":66436", ":66437", "n..y 66437"],
    ),
    ("APPEND k MORE | GET k", &[":66436", "n..m 66436"]),
];

#[test]
fn commands_of_one_client_are_carried_out_in_order() {
    let nearly = vec![b'n'; RECORD_BYTES - 100];
    for cores in [1, 2] {
        let served = Served::vast(cores);
        let mut client = served.client();
        let growing = OF_GROWING.iter().map(|case| (&nearly, case));
        let long = vec![b'l'; LONG];
        let long = OF_LONG.iter().map(|case| (&long, case));
        // Values that grow come first: while there is no long value, fewer keys are noted.
        for (value, (commands, expected)) in growing.chain(long) {
            set(&mut client, "k", value);
            assert_eq!(
                &pipelined(&mut client, commands),
                expected,
                "{cores}: {commands}"
            );
        }
    }
}

#[test]
fn a_name_without_end_is_unknown() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let name = vec![b'x'; 3 * RECORD_BYTES];
    assert!(client.ask(&[&name[..]]).is_error());
    assert!(client.ask(&[&name[..], b"k"]).is_error());
    assert_eq!(client.say("PING"), "+PONG");
}

#[test]
fn a_value_is_taken_once_and_whole_by_clients_that_race() {
    const ROUNDS: usize = 25;
    let served = Served::roomy(2);
    let is_done = AtomicBool::new(false);
    let is_done = &is_done;
    let taken: usize = thread::scope(|scope| {
        let takers: Vec<_> = ["GETDEL k", "GETDEL k", "GETSET k n", "GET k"]
            .into_iter()
            .map(|command| {
                let mut client = served.client();
                scope.spawn(move || {
                    let words: Vec<_> = command.split(' ').collect();
                    let mut long = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        client.send(&words);
                        let reply = client.read();
                        let reply = reply.unwrap_or_else(|| panic!("{command}: closed"));
                        assert!(is_uniform(&reply), "{command}");
                        let is_long = matches!(&reply, Reply::Bulk(bytes) if bytes.len() > 1);
                        long += usize::from(is_long && command != "GET k");
                    }
                    long
                })
            })
            .collect();
        let mut writer = served.client();
        for round in 0..ROUNDS {
            let bytes = vec![b'a' + u8::try_from(round).unwrap(); 100_000 + 10_000 * round];
            // Only what was taken is replaced, so each value is taken once at most.
            while shown(&mut writer, &[b"SET", b"k", &bytes, b"NX"]) != "+OK" {
                writer.say("DELIFEQ k n");
            }
        }
        is_done.store(true, Ordering::Relaxed);
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    let left = usize::from(served.client().say("STRLEN k").len() > 3);
    assert_eq!(taken + left, ROUNDS);
}

#[test]
fn appends_of_many_clients_are_all_there() {
    const CLIENTS: usize = 4;
    const APPENDS: usize = 12;
    let served = Served::roomy(2);
    let base = value(RECORD_BYTES - 100, 1);
    let mut client = served.client();
    set(&mut client, "k", &base);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = served.client();
            scope.spawn(move || {
                for turn in 0..APPENDS {
                    let token = format!("<{number:02}:{turn:02}>");
                    assert!(!client.ask(&["APPEND", "k", &token]).is_error());
                }
            });
        }
    });
    let Reply::Bulk(all) = client.ask(&["GET", "k"]) else {
        panic!("it is there");
    };
    assert!(all.starts_with(&base));
    let mut tokens: Vec<_> = all[base.len()..].chunks(7).map(<[u8]>::to_vec).collect();
    for number in 0..CLIENTS {
        let prefix = format!("<{number:02}:");
        let own = tokens
            .iter()
            .filter(|token| token.starts_with(prefix.as_bytes()));
        assert!(own.is_sorted(), "those of one client are in order");
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), CLIENTS * APPENDS);
}

#[test]
fn a_client_that_stops_reading_gets_the_value_of_its_moment() {
    let served = Served::start(1);
    let mut client = served.client();
    let stored = value(8 << 20, 1);
    for (command, after) in [
        ("GETDEL k", ""),
        ("GETSET k n", "n"),
        ("GET k", ""),
        ("MGET k", ""),
    ] {
        set(&mut client, "k", &stored);
        let mut slow = served.client();
        let words: Vec<_> = command.split(' ').collect();
        slow.send(&words);
        // Its reply has begun, so the change has happened.
        let mut first = [0; 1];
        slow.stream.get_ref().peek(&mut first).unwrap();
        if command.starts_with("GETDEL") || command.starts_with("GETSET") {
            let held = if after.is_empty() {
                "null".into()
            } else {
                format!("\"{after}\"")
            };
            assert_eq!(client.say("GET k"), held, "{command}");
        }
        if command.starts_with("MGET") {
            // The value is opened after the head of the array.
            thread::sleep(std::time::Duration::from_millis(100));
        }
        for number in 0..200 {
            set(&mut client, &format!("other:{number}"), &value(50_000, 9));
        }
        set(&mut client, "k", &value(300_000, 3));
        client.say("DEL k");
        let mut reply = slow.read().unwrap();
        if let Reply::Array(mut all) = reply {
            reply = all.remove(0);
        }
        assert!(
            reply == Reply::Bulk(stored.clone()),
            "{command}: {}",
            kind(&reply)
        );
        assert_eq!(slow.say("PING"), "+PONG");
    }
    assert_eq!(figures(&served).evicted_clients, 0);
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing() {
    // More than can be written or kept at once.
    const CLIENTS: usize = 100;
    let served = Served::roomy(1);
    let mut client = served.client();
    let stored = value(2 << 20, 1);
    let set_request = request(&[b"SET".as_slice(), b"new", &stored, b"EX", b"100"]);
    for number in 0..CLIENTS {
        set(&mut client, "k", &stored);
        let mut leaving = served.client();
        leaving.send(&["GETDEL", "k"]);
        let mut first = [0; 1];
        leaving.stream.get_ref().peek(&mut first).unwrap();
        drop(leaving);
        // Within a value, or between it and the options.
        let cut = [1_000_000, set_request.len() - 12][number % 2];
        let mut leaving = served.client();
        leaving.write(&set_request[..cut]);
        drop(leaving);
    }
    wait_until("all are gone", || figures(&served).connections == 1);
    assert_eq!(client.say("EXISTS k new"), ":0");
    set(&mut client, "k", &stored);
    assert_eq!(
        shown(&mut client, &[b"SET", b"new", &stored, b"EX", b"9"]),
        "+OK"
    );
    let taken = client.ask(&["GETDEL", "k"]);
    assert!(taken == Reply::Bulk(stored), "{}", kind(&taken));
}

#[test]
fn copies_by_many_clients_wait_for_memory() {
    const CLIENTS: usize = 24;
    let served = Served::with(1, |options| options.client_bytes = 3 << 20);
    let mut client = served.client();
    let stored = value(1 << 20, 1);
    set(&mut client, "k", &stored);
    let mut others: Vec<_> = (0..CLIENTS).map(|_| served.client()).collect();
    for (number, other) in others.iter_mut().enumerate() {
        other.send(&["COPY", "k", &format!("copy:{number}")]);
    }
    for other in &mut others {
        assert_eq!(
            other.read().map(|reply| reply.to_string()).as_deref(),
            Some(":1")
        );
    }
    expect(&mut client, "copy:7", &stored);
    assert_eq!(figures(&served).evicted_clients, 0);
}

#[test]
fn the_longest_values_pass_through_little_memory() {
    const MOST: usize = 64 << 20;
    let served = Served::vast(1);
    let mut client = served.client();
    let mut stored = value(MOST, 1);
    assert_eq!(
        shown(&mut client, &[b"SET", b"k", &stored, b"EX", b"1000"]),
        "+OK"
    );
    let refused = client.say("APPEND k x");
    assert!(
        refused.starts_with("-ERR string exceeds maximum allowed size"),
        "{refused}"
    );
    assert_eq!(
        client.say(&format!("SETRANGE k {} ab", MOST - 2)),
        format!(":{MOST}")
    );
    stored[MOST - 2..].copy_from_slice(b"ab");
    assert_eq!(client.say("COPY k l"), ":1");
    let replies = client.ask(&["MGET", "k", "l"]);
    assert!(
        replies
            .elements()
            .iter()
            .all(|reply| *reply == Reply::Bulk(stored.clone()))
    );
    drop(replies);
    let taken = client.ask(&["GETDEL", "k"]);
    assert!(taken == Reply::Bulk(stored.clone()), "{}", kind(&taken));
    let other = value(MOST, 2);
    let before = ask(&mut client, &[b"GETSET", b"l", &other]);
    assert!(before == Reply::Bulk(stored), "{}", kind(&before));
    expect(&mut client, "l", &other);
    // One byte more is refused before it is sent.
    client.write(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", MOST + 1).as_bytes());
    assert!(client.read().unwrap().is_error());
    let seen = figures(&served);
    assert_eq!(seen.evicted_clients, 0);
}

#[test]
fn options_are_judged_before_the_time_of_one() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let long = value(LONG, 1);
    for stored in [&b"v"[..], &long] {
        for (options, text) in [
            ("EX 0 BOGUS", "-ERR syntax error"),
            ("PX x NX XX", "-ERR syntax error"),
            ("EX 0 KEEPTTL", "-ERR syntax error"),
            ("EX 0 NX", "-ERR invalid expire time in 'set' command"),
            ("EX x GET", "-ERR value is not an integer or out of range"),
        ] {
            let mut words = vec![b"SET", &b"k"[..], stored];
            words.extend(options.split(' ').map(str::as_bytes));
            assert_eq!(shown(&mut client, &words), text, "{options}");
        }
    }
    assert_eq!(client.say("EXISTS k"), ":0");
}

#[test]
fn what_cannot_be_long_is_refused_with_its_limit() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let stored = value(LONG, 1);
    let commands: [&[&[u8]]; 3] = [
        &[b"MSETNX", b"a", b"1", b"k", &stored],
        &[b"HSET", b"k", b"f", &stored],
        &[b"HSETNX", b"k", b"f", &stored],
    ];
    for command in commands {
        let refused = shown(&mut client, command);
        let name = String::from_utf8_lossy(command[0]).to_lowercase();
        let text = format!(
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len): the argument has {LONG} bytes, and those of '{name}' have at most {}; store long values with SET, MSET or APPEND",
            RECORD_BYTES - 32
        );
        assert_eq!(refused, text);
    }
    set(&mut client, "k", &stored);
    let refused = client.say("LCS k k");
    assert!(
        refused.starts_with("-ERR the value has 3145728 bytes, too many"),
        "{refused}"
    );
    assert_eq!(client.say("OBJECT ENCODING k"), "\"raw\"");
    assert!(client.say("HGET k f").starts_with("-WRONGTYPE"));
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

/// The begin of an `MSET` of so many pairs, before a long value.
fn pairs_before_a_long_value(pairs: usize) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n$4\r\nMSET\r\n", 3 + 2 * pairs).into_bytes();
    for pair in 0..pairs {
        bytes.extend_from_slice(format!("$6\r\nk{pair:05}\r\n$1\r\nv\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("$1\r\nl\r\n${LONG}\r\n").as_bytes());
    bytes
}

#[test]
fn pairs_before_a_long_value_count_until_they_are_stored() {
    const PAIRS: usize = 30_000;
    let command = pairs_before_a_long_value(PAIRS);
    // Its input has room, and so have the places of its arguments, but not each in a buffer. Keys
    // of another core are not stored at once.
    let small = Served::with(2, |options| options.client_bytes = 6 << 20);
    let mut client = small.client();
    client.write(&command);
    assert_eq!(client.read(), None);
    assert_eq!(figures(&small).evicted_clients, 1);
    let roomy = Served::roomy(1);
    let (mut client, mut other) = (roomy.client(), roomy.client());
    client.write(&command);
    let last = format!("GET k{:05}", PAIRS - 1);
    wait_until("the pairs are stored", || other.say(&last) == "\"v\"");
    wait_until("their memory is free", || {
        figures(&roomy).connection_bytes < 1 << 20
    });
    client.write(&value(LONG, 1));
    client.write(b"\r\n");
    assert_eq!(client.read().unwrap().to_string(), "+OK");
    expect(&mut other, "l", &value(LONG, 1));
}

#[test]
fn places_of_arguments_of_an_incomplete_command_count() {
    const ARGUMENTS: usize = 200_000;
    const PLACE_BYTES: usize = 16;
    let served = Served::roomy(1);
    let mut client = served.client();
    let mut bytes = format!("*{}\r\n$4\r\nMSET\r\n", ARGUMENTS + 3).into_bytes();
    bytes.extend(b"$0\r\n\r\n".repeat(ARGUMENTS));
    client.write(&bytes);
    let least = bytes.len() + ARGUMENTS * PLACE_BYTES;
    wait_until("all are counted", || {
        figures(&served).connection_bytes >= least as u64
    });
}

#[test]
fn a_value_that_takes_the_last_place_is_replied_with_its_expiry() {
    const PLACES: usize = 64;
    let served = Served::vast(1);
    let mut client = served.client();
    let stored = value(16 << 20, 1);
    set(&mut client, "k", &stored);
    let mut others: Vec<_> = (1..PLACES).map(|_| served.client()).collect();
    for other in &mut others {
        other.send(&["GETEX", "k", "EX", "1000"]);
    }
    for other in &mut others {
        // It takes some of the value, and stops.
        assert!(!other.stream.fill_buf().unwrap().is_empty());
    }
    let read = client.ask(&["GETEX", "k", "EX", "5000"]);
    assert!(read == Reply::Bulk(stored), "{}", kind(&read));
    let left: u32 = client.say("TTL k")[1..].parse().unwrap();
    assert!(left > 1000, "{left}");
    // It takes the last place, and one more has none.
    let mut last = served.client();
    last.send(&["GETEX", "k", "EX", "6000"]);
    assert!(!last.stream.fill_buf().unwrap().is_empty());
    let refused = client.say("GETEX k EX 7000");
    assert!(refused.starts_with("-ERR 64 long values"), "{refused}");
    let left: u32 = client.say("TTL k")[1..].parse().unwrap();
    assert!((5001..=6000).contains(&left), "{left}");
}

#[test]
fn uploads_beyond_the_limit_of_a_shard_are_told_so() {
    const UPLOADS: usize = 64;
    let served = Served::roomy(1);
    let mut stalled: Vec<_> = (0..UPLOADS).map(|_| served.client()).collect();
    for (number, one) in stalled.iter_mut().enumerate() {
        let key = format!("{number:02}");
        one.write(format!("*3\r\n$3\r\nSET\r\n$2\r\n{key}\r\n$100000\r\n").as_bytes());
    }
    let mut client = served.client();
    let stored = value(200_000, 1);
    let mut reply = String::new();
    wait_until("all of them have begun", || {
        reply = shown(&mut client, &[b"SET", b"k", &stored]);
        reply != "+OK"
    });
    assert!(
        reply.starts_with("-ERR a shard takes 64 long values at once"),
        "{reply}"
    );
    drop(stalled);
    wait_until("they have ended", || {
        shown(&mut client, &[b"SET", b"k", &stored]) == "+OK"
    });
}
