//! Counters of every kind that clients read, watch and write with `EXEC`, with plain writers beside
//! them: what is there in the end is what was replied to have happened.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Barrier;
use std::thread;

use self::support::{Served, WordClient, wait_until};

/// A counter: what a client does with it.
#[derive(Clone, Copy, Debug)]
struct Counter {
    name: &'static str,
    /// Makes it.
    begin: &'static [&'static str],
    watched: &'static str,
    /// Its value is the number of this reply.
    read: &'static str,
    /// Commands of a transaction; `#` is the next value, also as `%` with
    /// eight digits; `@` is what no other command has.
    writes: &'static [&'static str],
    /// What adds one without a transaction.
    plain: &'static str,
    /// Replies that must be its value in the end.
    checks: &'static [&'static str],
}

const STRING: Counter = Counter {
    name: "string",
    begin: &["SET {a}n 0"],
    watched: "{a}n",
    read: "GET {a}n",
    writes: &["SET {a}n #"],
    plain: "INCR {a}n",
    checks: &["GET {a}n"],
};

/// `DBSIZE` cannot be planned.
const REPLAYED_STRING: Counter = Counter {
    name: "string that is replayed",
    writes: &["DBSIZE", "SET {a}n #"],
    ..STRING
};

const LONG_STRING: Counter = Counter {
    name: "long string",
    begin: &["SETRANGE long 300000 end", "SETRANGE long 0 00000000"],
    watched: "long",
    read: "GETRANGE long 0 7",
    writes: &["SETRANGE long 0 %"],
    plain: "",
    checks: &["GETRANGE long 0 7"],
};

const HASH: Counter = Counter {
    name: "hash",
    begin: &["HSET h n 0"],
    watched: "h",
    read: "HGET h n",
    writes: &["HSET h n #"],
    plain: "HINCRBY h n 1",
    checks: &["HGET h n"],
};

const LIST: Counter = Counter {
    name: "list",
    begin: &[],
    watched: "l",
    read: "LLEN l",
    writes: &["RPUSH l #"],
    plain: "LPUSH l @",
    checks: &["LLEN l"],
};

const SET: Counter = Counter {
    name: "set",
    begin: &[],
    watched: "s",
    read: "SCARD s",
    writes: &["SADD s #"],
    plain: "SADD s @",
    checks: &["SCARD s"],
};

const APART: Counter = Counter {
    name: "two keys of two shards",
    begin: &["MSET one 0 two 0 three 0 four 0"],
    watched: "one two three four",
    read: "GET three",
    writes: &["SET one #", "SET two #", "SET three #", "SET four #"],
    plain: "",
    checks: &["GET one", "GET two", "GET three", "GET four"],
};

const TOGETHER: Counter = Counter {
    name: "two keys of one shard",
    begin: &["MSET {b}one 0 {b}two 0"],
    watched: "{b}one {b}two",
    read: "GET {b}two",
    writes: &["SET {b}one #", "SET {b}two #"],
    plain: "",
    checks: &["GET {b}one", "GET {b}two"],
};

const MIXED: Counter = Counter {
    name: "keys of all kinds",
    begin: &["HSET mixed:h n 0", "SET mixed:n 0"],
    watched: "mixed:h mixed:s mixed:l mixed:n",
    read: "HGET mixed:h n",
    writes: &[
        "SADD mixed:s #",
        "RPUSH mixed:l #",
        "SET mixed:n #",
        "HSET mixed:h n #",
    ],
    plain: "",
    checks: &[
        "HGET mixed:h n",
        "SCARD mixed:s",
        "LLEN mixed:l",
        "GET mixed:n",
    ],
};

const ALL: [Counter; 9] = [
    STRING,
    REPLAYED_STRING,
    LONG_STRING,
    HASH,
    LIST,
    SET,
    APART,
    TOGETHER,
    MIXED,
];

fn number(reply: &str) -> u64 {
    let text = reply.trim_matches('"');
    text.parse().unwrap_or_else(|_| panic!("a number: {reply}"))
}

/// Adds one to a counter, some times.
fn count(client: &mut WordClient, counter: &Counter, times: u64) {
    let mut done = 0;
    while done < times {
        assert_eq!(client.call(&format!("WATCH {}", counter.watched)), "OK");
        let next = number(&client.call(counter.read)) + 1;
        assert_eq!(client.call("MULTI"), "OK");
        for write in counter.writes {
            let write = write.replace('#', &next.to_string());
            let write = write.replace('%', &format!("{next:08}"));
            assert_eq!(client.call(&write), "QUEUED");
        }
        let reply = client.call("EXEC");
        assert!(!reply.contains("error"), "{}: {reply}", counter.name);
        done += u64::from(reply != "nil");
    }
}

/// Clients add to a counter at once, each some times: no addition is lost.
fn check(server: &Served, counter: &Counter, clients: u64, times: u64) {
    let mut first = server.word_client();
    first.call("FLUSHALL");
    for command in counter.begin {
        assert!(!first.call(command).contains("error"), "{command}");
    }
    let writers = if counter.plain.is_empty() { 0 } else { 2 };
    let together = Barrier::new(usize::try_from(clients + writers).unwrap());
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = server.word_client();
                together.wait();
                count(&mut client, counter, times);
            });
        }
        for writer in 0..writers {
            let together = &together;
            scope.spawn(move || {
                let mut client = server.word_client();
                together.wait();
                for turn in 0..times {
                    let own = format!("{writer}-{turn}");
                    let reply = client.call(&counter.plain.replace('@', &own));
                    assert!(!reply.contains("error"), "{reply}");
                }
            });
        }
    });
    for check in counter.checks {
        let found = number(&first.call(check));
        let name = counter.name;
        assert_eq!(
            found,
            (clients + writers) * times,
            "{name}, {clients} clients: {check}"
        );
    }
}

#[test]
fn no_update_that_exec_has_confirmed_is_lost() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        for counter in &ALL {
            for (clients, times) in [(2, 60), (16, 5)] {
                check(&server, counter, clients, times);
            }
        }
    }
}

#[test]
fn none_of_many_clients_loses_one() {
    let server = Served::roomy(2);
    for counter in [&HASH, &SET, &APART] {
        check(&server, counter, 64, 2);
    }
}

#[test]
fn clients_that_wait_or_stall_hold_no_transaction_up() {
    let mut server = Served::roomy(2);
    let [mut stalled, mut gone, mut other] = [(); 3].map(|()| server.client());
    // An upload that stops, one that ends, and a wait.
    for client in [&mut stalled, &mut gone] {
        client.write(b"*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n$2000000\r\nbegin");
    }
    let mut waiting = server.word_client();
    waiting.send_words("BLPOP queue 0");
    wait_until("a client waits", || {
        other.say("INFO clients").contains("blocked_clients:1")
    });
    drop(gone);
    check_without_flush(&server, &HASH);
    check_without_flush(&server, &MIXED);
    assert_eq!(other.say("RPUSH queue one"), ":1");
    assert_eq!(waiting.reply(), "[\"queue\", \"one\"]");
    assert!(server.section_figures().sections > 0);
    assert_eq!(server.section_figures().sections_lost, 0);
    server.stop();
}

/// Counts with one client.
fn check_without_flush(server: &Served, counter: &Counter) {
    let mut client = server.word_client();
    for command in counter.begin {
        client.call(command);
    }
    count(&mut client, counter, 20);
    for check in counter.checks {
        assert_eq!(number(&client.call(check)), 20, "{check}");
    }
}
