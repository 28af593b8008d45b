//! The limits that clients meet, and the figures that tell of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::{Client, Served, wait_until};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

/// Commands that must be refused while memory is short, and such that must not.
fn expect_writes(client: &mut Client, are_refused: bool) {
    for (command, reply) in [
        ("SET k v", "+OK"),
        ("APPEND other v", ":1"),
        ("HSET hash field value", ":1"),
        ("SETBIT bits 1 1", ":0"),
    ] {
        let reply = if are_refused { OOM } else { reply };
        assert_eq!(client.say(command), reply, "{command}");
    }
    client.say("DEL other hash bits");
    assert!(!client.say("GET k").starts_with('-'));
}

#[test]
fn a_lower_memory_limit_refuses_what_needs_memory_and_nothing_else() {
    let served = Served::start(2);
    let (mut client, mut other) = (served.client(), served.client());
    let cap = client.ask(&["CONFIG", "GET", "maxmemory"]).elements()[1].text();
    expect_writes(&mut client, false);
    assert_eq!(other.say("CONFIG SET maxmemory 1"), "+OK");
    expect_writes(&mut client, true);
    let set = client.ask(&["CONFIG", "GET", "maxmemory"]).elements()[1].text();
    assert_eq!(set, "1");
    // A transaction is refused as a whole, if it was begun before too.
    assert_eq!(other.say("CONFIG SET maxmemory 0"), "+OK");
    client.say("MULTI");
    assert_eq!(client.say("SET k w"), "+QUEUED");
    assert_eq!(other.say("CONFIG SET maxmemory 1kb"), "+OK");
    let refused = client.say("EXEC");
    assert!(
        refused.starts_with("-EXECABORT Transaction discarded because of: OOM"),
        "{refused}"
    );
    client.say("MULTI");
    assert_eq!(client.say("SET k w"), OOM);
    assert!(client.say("EXEC").starts_with("-EXECABORT"));
    client.say("MULTI");
    client.say("GET k");
    assert_eq!(client.say("EXEC"), "[\"v\"]");
    assert_eq!(other.say("CONFIG SET maxmemory 0"), "+OK");
    expect_writes(&mut client, false);
    let again = client.ask(&["CONFIG", "GET", "maxmemory"]).elements()[1].text();
    assert_eq!(again, cap);
}

#[test]
fn a_memory_limit_that_cannot_hold_is_refused() {
    let served = Served::start(1);
    let mut client = served.client();
    for value in ["bla", "-1", "1.5gb", "100gb"] {
        let refused = client.say(&format!("CONFIG SET maxmemory {value}"));
        assert!(refused.starts_with("-ERR CONFIG SET failed"), "{refused}");
    }
    // One of several settings is wrong: none is set.
    let refused = client.say("CONFIG SET slowlog-max-len 7 maxmemory bla");
    assert!(refused.starts_with("-ERR CONFIG SET failed"), "{refused}");
    let length = client.ask(&["CONFIG", "GET", "slowlog-max-len"]).elements()[1].text();
    assert_eq!(length, "128");
    let cache = Served::with(1, |options| options.evicts = true);
    let refused = cache.client().say("CONFIG SET maxmemory 1mb");
    assert!(refused.starts_with("-ERR CONFIG SET failed"), "{refused}");
}

#[test]
fn requests_beyond_a_limit_are_counted() {
    let served = Served::start(1);
    for bytes in [
        &b"*1048577\r\n"[..],
        b"*1\r\n$99999999999\r\n",
        b"*1\r\n:1\r\n",
    ] {
        let mut client = served.client();
        client.write(bytes);
        assert!(client.read().unwrap().is_error());
        assert_eq!(client.read(), None);
    }
    assert_eq!(served.figures().protocol_errors, 3);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let value = "x".repeat(100_000);
    client.ask(&["SET", "k", &value]);
    let gets = support::client::request(&["GET", "k"]).repeat(20_000);
    let sender = client.stream.get_ref().try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        // It ends when the client does.
        let _ = std::io::Write::write_all(&mut &sender, &gets);
    });
    wait_until("it is paused", || served.figures().pauses > 0);
    assert_eq!(served.client().say("PING"), "+PONG");
    client
        .stream
        .get_ref()
        .shutdown(std::net::Shutdown::Both)
        .unwrap();
    writer.join().unwrap();
}

#[test]
fn clients_that_leave_before_their_answers_leave_nothing() {
    const CLIENTS: usize = 300;
    let served = Served::start(2);
    let mut client = served.client();
    client.say("SET k v");
    client.say("PING");
    // A reply is counted after it is sent; once this one is, the connection of SET is accounted.
    wait_until("both replies are counted", || {
        served.figures().sent_bytes >= "+OK\r\n+PONG\r\n".len() as u64
    });
    let before = served.figures();
    for number in 0..CLIENTS {
        let leaving = served.client();
        // Keys of both shards, so that some answers come from another core.
        let gets: Vec<u8> = (0..200)
            .flat_map(|key| support::client::request(&["GET", &format!("{number}:{key}")]))
            .collect();
        std::io::Write::write_all(&mut leaving.stream.get_ref(), &gets).unwrap();
    }
    // Connections are accepted in order, so all of them were before this one.
    assert_eq!(served.client().say("PING"), "+PONG");
    wait_until("all are gone", || {
        served.figures().connections == before.connections
    });
    client.say("PING");
    wait_until("they take no memory", || {
        served.figures().connection_bytes <= before.connection_bytes
    });
}

#[test]
fn commands_of_long_records_of_many_clients_all_end() {
    const CLIENTS: usize = 40;
    const ROUNDS: usize = 10;
    let served = Served::roomy(2);
    let mut client = served.client();
    // A move to another shard has two steps, each of which takes memory.
    let elsewhere = |to: &String| served.shard_of(to.as_bytes()) != served.shard_of(b"from");
    let to = (0..)
        .map(|place| format!("to{place}"))
        .find(elsewhere)
        .unwrap();
    // Of some 40 KiB each, so that not all of them have room at once.
    let text = "x".repeat(40);
    for element in 0..900 {
        let name = format!("{text}{element}");
        for command in ["RPUSH from", "SADD one", "SADD two", "HSET hash"] {
            let value = if command == "HSET hash" { " 0" } else { "" };
            assert!(
                !client
                    .say(&format!("{command} {name}{value}"))
                    .starts_with('-')
            );
        }
    }
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (mut client, to) = (served.client(), &to);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let moved = client.say(&format!("LMOVE from {to} LEFT RIGHT"));
                    assert!(!moved.starts_with('-') && moved.len() > 2, "{moved}");
                    let kept = client.say(&format!("SUNIONSTORE kept{} one two", number % 3));
                    assert_eq!(kept, ":900");
                    assert_eq!(client.say("SINTERCARD 2 one two"), ":900");
                    let field = format!("HINCRBY hash {} 1", "x".repeat(40) + "0");
                    assert!(client.say(&field).starts_with(':'));
                    let pushed = client.say(&format!("LPUSH from {number}.{round}"));
                    assert!(pushed.starts_with(':'));
                    let popped = client.say("BRPOP from 0");
                    assert!(popped.contains("from"), "{popped}");
                }
            });
        }
    });
    let steps = CLIENTS * ROUNDS;
    assert_eq!(client.say(&format!("LLEN {to}")), format!(":{steps}"));
    assert_eq!(client.say("LLEN from"), format!(":{}", 900 - steps));
    let sum = client.say(&format!("HGET hash {text}0"));
    assert!(sum.contains(&steps.to_string()), "{sum}");
}

#[test]
fn bits_are_changed_by_many_clients_in_one_step_each() {
    const CLIENTS: usize = 8;
    const BITS: usize = 64;
    let served = Served::start(2);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = served.client();
            scope.spawn(move || {
                for at in 0..BITS {
                    let place = at * CLIENTS + number;
                    assert_eq!(client.say(&format!("SETBIT bits {place} 1")), ":0");
                }
            });
        }
    });
    let mut client = served.client();
    assert_eq!(client.say("BITCOUNT bits"), format!(":{}", CLIENTS * BITS));
    assert_eq!(client.say("STRLEN bits"), ":64");
    client.say("SETBIT bits 0 0");
    assert_eq!(client.say("BITCOUNT bits 0 0"), ":7");
    assert_eq!(client.say("GETBIT bits 0"), ":0");
    // A length that this server cannot store is refused before it is made.
    assert!(
        client
            .say("SETBIT bits 4294967295 1")
            .starts_with("-ERR string exceeds")
    );
}

/// A command's words with `count` more behind them.
fn with_many(words: &str, count: usize) -> Vec<String> {
    let names = (0..count).map(|number| number.to_string());
    words.split(' ').map(str::to_owned).chain(names).collect()
}

#[test]
fn many_arguments_are_refused_by_their_limit_and_number() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let refusal = |client: &mut Client, words: &[String]| client.ask(words).to_string();
    for (words, more, text) in [
        (
            "HSET hash",
            131_072,
            "'hset' takes at most 131072 arguments, these are 131074",
        ),
        (
            "WATCH",
            131_072,
            "'watch' takes at most 131072 arguments, these are 131073",
        ),
        (
            "CLIENT LIST ID",
            16_385,
            "client IDs: at most 16384 at once, these are 16385",
        ),
        (
            "CONFIG GET",
            129,
            "patterns of CONFIG GET: at most 128 at once, these are 129",
        ),
        (
            "COMMAND INFO",
            257,
            "names of commands: at most 255 at once, these are 257",
        ),
        (
            "INFO",
            65,
            "sections of INFO: at most 64 at once, these are 65",
        ),
    ] {
        let reply = refusal(&mut client, &with_many(words, more));
        assert_eq!(reply, format!("-ERR {text}"));
    }
}

#[test]
fn long_patterns_and_arguments_are_refused() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let refusal = |client: &mut Client, words: &[String]| client.ask(words).to_string();
    let pattern = "a".repeat(1025);
    for words in [
        "KEYS",
        "SCAN 0 MATCH",
        "PUBSUB CHANNELS",
        "PUBSUB SHARDCHANNELS",
        "PSUBSCRIBE",
        "CONFIG GET",
        "COMMAND LIST FILTERBY PATTERN",
    ] {
        let mut words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        words.push(pattern.clone());
        let reply = refusal(&mut client, &words);
        assert_eq!(
            reply,
            "-ERR a pattern has at most 1024 bytes, this one has 1025"
        );
    }
    assert_eq!(client.say("HSET hash field value"), ":1");
    for words in ["HSCAN hash 0 MATCH", "SSCAN hash 0 MATCH"] {
        let mut words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        words.push(pattern.clone());
        let reply = refusal(&mut client, &words);
        let is_named = reply.ends_with("a pattern has at most 1024 bytes, this one has 1025");
        assert!(is_named || reply.contains("WRONGTYPE"), "{reply}");
    }
    let long = "a".repeat(8 << 20);
    let reply = refusal(&mut client, &["ECHO".to_owned(), long.clone()]);
    let text = "'echo' takes at most 8388608 bytes of arguments, these have ";
    assert!(reply.starts_with(&format!("-ERR {text}")), "{reply}");
    // What goes on in slices, or is passed on, has no such limit.
    assert_eq!(
        refusal(&mut client, &["SET".to_owned(), "k".to_owned(), long]),
        "+OK"
    );
    assert_eq!(client.ask(&with_many("DEL", 70_000)).to_string(), ":0");
    assert_eq!(client.say("DEL k hash"), ":2");
}
