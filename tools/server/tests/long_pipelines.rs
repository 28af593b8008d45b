//! Long values in what one client sends: in pieces, in pipelines and in transactions, each command
//! is carried out and replied in order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write;

use self::support::client::request;
use self::support::long_values::{LONG, RECORD_BYTES, expect_value, kind, set, shown, value};
use self::support::{Client, Reply, Served};

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
            expect_value(&mut client, key, held);
        }
        assert_eq!(client.say("GET b"), "\"x\"");
        assert_eq!(client.say("DEL a b c d e k"), ":6");
    }
    // Keys are never long, wherever they stand.
    let refused = shown(&mut client, &[b"MSET", b"a", &two, &one, b"x", b"c", b"3"]);
    assert!(refused.starts_with("-ERR the key has 30000"), "{refused}");
    expect_value(&mut client, "a", &two);
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

/// Pipelines that make a value long and change it, and their replies.
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
