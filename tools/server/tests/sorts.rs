//! `SORT` of a whole server. Replies to random commands are those of Redis 7.0.15, where that is
//! installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::compared::{arguments, compare, pick};
use self::support::long_values::{shown, value};
use self::support::words::{WRONG_TYPE, expect};
use self::support::{Random, Reply, Served, on_servers, wait_until};

#[test]
fn elements_are_sorted_by_themselves_or_by_what_they_name() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("rpush l 3 1 2", "3"),
                ("sort l", "[\"1\", \"2\", \"3\"]"),
                ("sort l desc limit 0 2", "[\"3\", \"2\"]"),
                ("sort l limit 2 -1", "[\"3\"]"),
                ("sort l limit 5 1", "[]"),
                ("sort none", "[]"),
                ("mset w1 30 w2 20 w3 10 v1 one v3 three", "OK"),
                ("sort l by w*", "[\"3\", \"2\", \"1\"]"),
                (
                    "sort l by w* get # get v* get h*->f",
                    "[\"3\", \"three\", nil, \"2\", nil, nil, \"1\", \"one\", nil]",
                ),
                ("hset h2 f two", "1"),
                (
                    "sort l by nosort get h*->f get constant",
                    "[nil, nil, nil, nil, \"two\", nil]",
                ),
                ("sort l by v* alpha", "[\"2\", \"1\", \"3\"]"),
                (
                    "sort l by v*",
                    "(error) ERR One or more scores can't be converted into double",
                ),
                ("sort l get v* store r", "3"),
                ("lrange r 0 -1", "[\"one\", \"\", \"three\"]"),
                ("sort none store r", "0"),
                ("exists r", "0"),
                ("sadd s c a b", "3"),
                ("sort s by nosort store r", "3"),
                ("lrange r 0 -1", "[\"a\", \"b\", \"c\"]"),
                ("zadd z 1 c 2 a 3 b", "3"),
                ("sort z by nosort desc", "[\"b\", \"a\", \"c\"]"),
                ("sort z by nosort limit 1 1", "[\"a\"]"),
                ("sort_ro z alpha desc", "[\"c\", \"b\", \"a\"]"),
                ("sort_ro z store r", "(error) ERR syntax error"),
                ("sort l limit 1", "(error) ERR syntax error"),
                ("set text x", "OK"),
                ("sort text", WRONG_TYPE),
                ("sort h2", WRONG_TYPE),
                ("sort l store text", "3"),
                ("lrange text 0 -1", "[\"1\", \"2\", \"3\"]"),
            ],
        );
    });
}

#[test]
fn transactions_and_scripts_sort_by_keys_of_all_cores() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("rpush l 3 1 2", "3"),
                ("sadd s c a b", "3"),
                ("mset w1 30 w2 20 w3 10", "OK"),
                ("multi", "OK"),
                ("sort l by w* get #", "QUEUED"),
                ("pfadd h a", "QUEUED"),
                ("pfcount h", "QUEUED"),
                ("geoadd g 1 1 a", "QUEUED"),
                ("geosearchstore near g frommember a byradius 1 m", "QUEUED"),
                ("bitpos w1 1", "QUEUED"),
                ("bitop or both w1 w2", "QUEUED"),
                ("bitfield both incrby u8 0 1", "QUEUED"),
                ("sort l by w* get w* store r", "QUEUED"),
                ("exec", "[[\"3\", \"2\", \"1\"], 1, 1, 1, 1, 2, 2, [52], 3]"),
                ("lrange r 0 -1", "[\"10\", \"20\", \"30\"]"),
                (
                    "eval return(redis.call('sort',KEYS[1],'by','w*')) 1 l",
                    "[\"3\", \"2\", \"1\"]",
                ),
                (
                    "eval return(redis.call('sort',KEYS[1],'by','nosort')) 1 s",
                    "[\"a\", \"b\", \"c\"]",
                ),
                (
                    "eval return(redis.call('georadius',KEYS[1],1,1,1,'km','store',KEYS[2])) 2 g t",
                    "1",
                ),
                (
                    "command getkeys sort l store a by store store r",
                    "[\"l\", \"r\"]",
                ),
            ],
        );
    });
}

#[test]
fn a_long_list_is_sorted_with_long_values() {
    const ELEMENTS: usize = 20_000;
    let served = Served::vast(2);
    let mut client = served.client();
    for start in (0..ELEMENTS).step_by(1_000) {
        let mut words = vec!["rpush".to_owned(), "list".to_owned()];
        words.extend((start..start + 1_000).map(|number| (number * 7_919 % ELEMENTS).to_string()));
        client.ask(&words);
    }
    let sorted = client.ask(&["sort", "list"]);
    let numbers: Vec<_> = sorted.elements().iter().map(Reply::text).collect();
    assert_eq!(numbers.len(), ELEMENTS);
    assert!((0..ELEMENTS).all(|number| numbers[number] == number.to_string()));
    let stored = client.ask(&[
        "sort", "list", "desc", "limit", "5", "15000", "store", "result",
    ]);
    assert_eq!(stored.to_string(), ":15000");
    assert_eq!(
        client.say("lindex result 0"),
        format!("\"{}\"", ELEMENTS - 6)
    );
    assert_eq!(client.say("llen result"), ":15000");
    let long = value(300_000, 1);
    assert_eq!(shown(&mut client, &[b"SET", b"v1", &long]), "+OK");
    client.say("set v0 short");
    let got = client.ask(&["sort", "list", "limit", "0", "3", "get", "v*"]);
    let got = got.elements();
    assert_eq!(got[0].to_string(), "\"short\"");
    assert!(got[1] == Reply::Bulk(long));
    assert_eq!(got[2].to_string(), "null");
}

#[test]
fn a_result_wakes_a_client_and_sends_events() {
    let server = Served::start(1);
    let (mut client, mut waiting) = (server.word_client(), server.word_client());
    let mut watcher = server.word_client();
    client.call("config set notify-keyspace-events KEgl");
    watcher.call("psubscribe __keyspace@0__:r");
    client.call("rpush l 2 1");
    assert_eq!(client.call("sort l store r"), "2");
    assert!(watcher.reply().ends_with("\"sortstore\"]"));
    assert_eq!(client.call("sort none store r"), "0");
    assert!(watcher.reply().ends_with("\"del\"]"));
    waiting.send_words("blpop r 0");
    wait_until("a client waits", || {
        client.call("info clients").contains("blocked_clients:1")
    });
    assert_eq!(client.call("sort l store r"), "2");
    assert_eq!(waiting.reply(), "[\"r\", \"1\"]");
}

const KEYS: &[&str] = &["l1", "l2", "s1", "z1", "z2", "r1", "text", "none"];
const PATTERNS: &[&str] = &[
    "w*", "w*", "t*", "h*->n", "h*->t", "h*->", "*", "w*->n", "#", "nosort", "l1",
];

/// Elements are drawn so that no two are equal by what decides, where that is not the end of it.
fn draw(random: &mut Random, number: usize) -> Vec<Vec<u8>> {
    if number < 60 {
        let of = number % 20;
        let line = match number / 20 {
            0 => format!("set w{of} {}", (of * 7) % 20),
            1 => format!("hset h{of} n {} t text{}", (of * 3) % 20, (of * 11) % 20),
            _ => format!("set t{of} word{}", (of * 13) % 20),
        };
        return arguments(&line);
    }
    if random.below(2) == 0 {
        change(random)
    } else {
        sort(random)
    }
}

/// Changes what is sorted, or looks at a result.
fn change(random: &mut Random) -> Vec<Vec<u8>> {
    let element = random.below(20);
    let line = match random.below(6) {
        0 => {
            let odd = random.below(30) == 0;
            let text = if odd { "x" } else { "" };
            format!("rpush {} {element}{text}", pick(random, &KEYS[..2]))
        }
        1 => format!("lpop {}", pick(random, &KEYS[..2])),
        2 => format!("sadd s1 {element}"),
        3 => {
            let (key, score) = (pick(random, &KEYS[3..5]), random.below(1000));
            format!("zadd {key} {score} {element}")
        }
        4 => {
            let removals = ["srem s1", "zrem z1", "zrem z2", "lrem l1 1"];
            format!("{} {element}", pick(random, &removals))
        }
        _ => {
            let others = ["lrange r1 0 -1", "type r1", "del r1", "lrange l1 0 -1"];
            pick(random, &others).to_owned()
        }
    };
    arguments(&line)
}

/// A command that sorts.
fn sort(random: &mut Random) -> Vec<Vec<u8>> {
    let key = pick(random, KEYS);
    let name = if random.below(5) == 0 {
        "sort_ro"
    } else {
        "sort"
    };
    let mut line = format!("{name} {key}");
    let mut by = "";
    if random.below(2) == 0 {
        by = pick(random, PATTERNS);
        // A set has no order of its own.
        if key == "s1" && !by.contains('*') {
            by = "w*";
        }
        line += &format!(" by {by}");
    }
    // Keys that are absent, and fields, are equal: their order is that of the collection.
    let is_alpha = random.below(2) == 0;
    let has_ties = matches!(by, "h*->" | "*" | "w*->n") && is_alpha;
    if has_ties && !key.starts_with('l') {
        return arguments("ping");
    }
    if is_alpha {
        line += " alpha";
    }
    if random.below(3) == 0 {
        line += pick(random, &[" desc", " asc", " DESC"]);
    }
    if random.below(3) == 0 && !(is_alpha && by.contains('*')) {
        let ends = ["0", "1", "3", "10", "-1", "-5", "100", "x"];
        let numbers = if random.below(10) == 0 {
            &ends[..]
        } else {
            &ends[..7]
        };
        let (start, count) = (pick(random, numbers), pick(random, numbers));
        line += &format!(" limit {start} {count}");
    }
    for _ in 0..random.below(4) / 2 {
        line += &format!(" get {}", pick(random, PATTERNS));
    }
    if random.below(4) == 0 {
        line += &format!(" store {}", pick(random, &["r1", "r1", "l2"]));
    }
    if random.below(30) == 0 {
        line += pick(random, &[" by", " get", " limit 1", " bad", " store"]);
    }
    arguments(&line)
}

#[test]
fn replies_to_random_commands_are_those_of_redis() {
    compare(&["set text words"], draw);
}
