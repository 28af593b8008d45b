//! Streams of a whole server: their entries, groups and consumers, and clients that wait. Replies
//! to random commands are those of Redis 7.0.15, where that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;

use self::support::redis::Redis;
use self::support::words::{WRONG_TYPE, expect};
use self::support::{Client, Random, Served, on_servers, wait_until};

#[test]
fn entries_are_added_read_and_removed() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("xadd s 1-1 a 1", "\"1-1\""),
                ("xadd s 1-* b 2 c 3", "\"1-2\""),
                ("xadd s 5 d 4", "\"5-0\""),
                (
                    "xadd s 5-0 e 5",
                    "(error) ERR The ID specified in XADD is equal or smaller than the target stream top item",
                ),
                (
                    "xadd s 0-0 e 5",
                    "(error) ERR The ID specified in XADD must be greater than 0-0",
                ),
                (
                    "xadd s 6-0 e",
                    "(error) ERR wrong number of arguments for 'xadd' command",
                ),
                ("xadd none nomkstream 1-1 a 1", "nil"),
                ("xlen s", "3"),
                ("xlen none", "0"),
                (
                    "xrange s - +",
                    "[[\"1-1\", [\"a\", \"1\"]], [\"1-2\", [\"b\", \"2\", \"c\", \"3\"]], [\"5-0\", [\"d\", \"4\"]]]",
                ),
                (
                    "xrange s (1-1 4",
                    "[[\"1-2\", [\"b\", \"2\", \"c\", \"3\"]]]",
                ),
                ("xrevrange s + - count 1", "[[\"5-0\", [\"d\", \"4\"]]]"),
                (
                    "xread count 1 streams s none 1-1 0",
                    "[[\"s\", [[\"1-2\", [\"b\", \"2\", \"c\", \"3\"]]]]]",
                ),
                ("xread streams s 5-0", "nil"),
                ("xdel s 5-0 5-0 9-9", "1"),
                // The last ID stays.
                (
                    "xadd s 4-0 e 5",
                    "(error) ERR The ID specified in XADD is equal or smaller than the target stream top item",
                ),
                ("xadd s maxlen = 2 6-0 e 5", "\"6-0\""),
                ("xlen s", "2"),
                ("xtrim s minid 6", "1"),
                ("xtrim s maxlen 0", "1"),
                ("type s", "stream"),
                ("object encoding s", "\"stream\""),
                ("xlen s", "0"),
                ("exists s", "1"),
                ("xsetid s 9-0 entriesadded 7", "OK"),
                ("set plain x", "OK"),
                ("xadd plain * a 1", WRONG_TYPE),
                ("xrange plain - +", WRONG_TYPE),
                ("sadd s x", WRONG_TYPE),
            ],
        );
    });
}

#[test]
fn each_entry_goes_to_one_consumer_until_it_is_acknowledged() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                (
                    "xgroup create s g $",
                    "(error) ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
                ),
                ("xgroup create s g $ mkstream", "OK"),
                (
                    "xgroup create s g $",
                    "(error) BUSYGROUP Consumer Group name already exists",
                ),
                ("xreadgroup group g a streams s >", "nil"),
                ("xadd s 1-0 n 1", "\"1-0\""),
                ("xadd s 2-0 n 2", "\"2-0\""),
                ("xadd s 3-0 n 3", "\"3-0\""),
                (
                    "xreadgroup group g a count 2 streams s >",
                    "[[\"s\", [[\"1-0\", [\"n\", \"1\"]], [\"2-0\", [\"n\", \"2\"]]]]]",
                ),
                (
                    "xreadgroup group g b streams s >",
                    "[[\"s\", [[\"3-0\", [\"n\", \"3\"]]]]]",
                ),
                (
                    "xreadgroup group g a streams s 1-0",
                    "[[\"s\", [[\"2-0\", [\"n\", \"2\"]]]]]",
                ),
                (
                    "xpending s g",
                    "[3, \"1-0\", \"3-0\", [[\"a\", \"2\"], [\"b\", \"1\"]]]",
                ),
                ("xack s g 1-0 1-0 9-9", "1"),
                (
                    "xack s g x",
                    "(error) ERR Invalid stream ID specified as stream command argument",
                ),
                ("xack s none 1-0", "0"),
                ("xclaim s g b 0 2-0 1-0 justid", "[\"2-0\"]"),
                ("xpending s g", "[2, \"2-0\", \"3-0\", [[\"b\", \"2\"]]]"),
                ("xdel s 3-0", "1"),
                (
                    "xautoclaim s g a 0 0",
                    "[\"0-0\", [[\"2-0\", [\"n\", \"2\"]]], [\"3-0\"]]",
                ),
                ("xgroup delconsumer s g a", "1"),
                ("xgroup createconsumer s g c", "1"),
                ("xpending s g", "[0, nil, nil, nil]"),
                (
                    "xreadgroup group none a streams s >",
                    "(error) NOGROUP No such key 's' or consumer group 'none' in XREADGROUP with GROUP option",
                ),
                ("xgroup destroy s g", "1"),
                ("xgroup destroy s g", "0"),
                (
                    "xpending s g",
                    "(error) NOGROUP No such key 's' or consumer group 'g'",
                ),
            ],
        );
    });
}

#[test]
fn a_long_stream_is_shared_trimmed_copied_and_emptied() {
    const ENTRIES: u64 = 30_000;
    let server = Served::start(1);
    let mut client = server.client();
    for number in 1..=ENTRIES {
        let id = format!("{number}-0");
        let value = number.to_string();
        client.send(&["xadd", "s", &id, "field", &value, "other", "0123456789"]);
        if number % 500 == 0 {
            for _ in 0..500 {
                client.read().unwrap();
            }
        }
    }
    let mut client = server.word_client();
    assert_eq!(client.call("xlen s"), ENTRIES.to_string());
    assert_eq!(client.call("xgroup create s g 0"), "OK");
    let mut seen = BTreeSet::new();
    for turn in 0.. {
        let consumer = ["a", "b", "c"][turn % 3];
        let read = client.call(&format!(
            "xreadgroup group g {consumer} count 700 streams s >"
        ));
        if read == "nil" {
            break;
        }
        let ids = read.split('"').filter(|part| part.ends_with("-0"));
        for id in ids {
            assert!(seen.insert(id.to_owned()), "{id} came twice");
        }
    }
    assert_eq!(seen.len() as u64, ENTRIES);
    let pending = client.call("xpending s g");
    assert!(
        pending.starts_with(&format!("[{ENTRIES}, \"1-0\", \"{ENTRIES}-0\"")),
        "{pending}"
    );
    assert_eq!(client.call("copy s t"), "1");
    assert_eq!(client.call("xtrim s maxlen 10"), (ENTRIES - 10).to_string());
    assert_eq!(client.call("xlen s"), "10");
    assert_eq!(client.call("xlen t"), ENTRIES.to_string());
    assert_eq!(client.call("xgroup destroy t g"), "1");
    // What the group had is gone: entries and the header are left.
    assert_eq!(client.call("xtrim t maxlen 0"), ENTRIES.to_string());
    let again = client.call("xreadgroup group g a count 2 streams s 0");
    assert!(again.contains("[\"1-0\", nil]"), "{again}");
    assert_eq!(client.call("del s t"), "2");
}

#[test]
fn a_client_waits_for_an_entry() {
    let server = Served::start(1);
    let (mut reader, mut worker) = (server.word_client(), server.word_client());
    let mut writer = server.word_client();
    writer.call("xgroup create s g $ mkstream");
    reader.send_words("xread block 0 streams s $");
    worker.send_words("xreadgroup group g w block 0 streams s >");
    wait_until("clients wait", || {
        writer.call("info clients").contains("blocked_clients:2")
    });
    assert_eq!(writer.call("xadd s 7-7 a 1"), "\"7-7\"");
    for client in [&mut reader, &mut worker] {
        let read = client.reply();
        assert_eq!(read, "[[\"s\", [[\"7-7\", [\"a\", \"1\"]]]]]");
    }
    worker.send_words("xreadgroup group g w block 0 streams s >");
    wait_until("clients wait", || {
        writer.call("info clients").contains("blocked_clients:1")
    });
    assert_eq!(writer.call("xgroup destroy s g"), "1");
    let ended = worker.reply();
    assert!(ended.contains("NOGROUP"), "{ended}");
    assert_eq!(writer.call("xread block 10 streams s $"), "nil");
}

#[test]
fn changes_of_streams_send_events() {
    let server = Served::start(1);
    let (mut client, mut watcher) = (server.word_client(), server.word_client());
    client.call("config set notify-keyspace-events KEtn");
    watcher.call("subscribe __keyspace@0__:s");
    for command in [
        "xadd s 1-1 a 1",
        "xadd s maxlen = 1 2-2 a 1",
        "xgroup create s g 0",
        "xreadgroup group g w streams s >",
        "xdel s 2-2",
        "xsetid s 9-9",
        "xgroup destroy s g",
    ] {
        client.call(command);
    }
    for event in [
        "new",
        "xadd",
        "xadd",
        "xtrim",
        "xgroup-create",
        "xgroup-createconsumer",
        "xdel",
        "xsetid",
        "xgroup-destroy",
    ] {
        let message = watcher.reply();
        assert!(
            message.ends_with(&format!("\"{event}\"]")),
            "{event}: {message}"
        );
    }
}

const KEYS: &[&str] = &["s1", "s2", "s3", "s3", "str", "none"];
const GROUPS: &[&str] = &["g1", "g2", "g3"];
const CONSUMERS: &[&str] = &["alice", "bob", "carol"];
const ODD_IDS: &[&str] = &[
    "0",
    "0-0",
    "-1",
    "x",
    "",
    "5-*",
    "-",
    "+",
    "18446744073709551615",
    "18446744073709551615-18446744073709551615",
    "$",
    ">",
];
const COUNTS: &[&str] = &["0", "1", "2", "5", "9", "-1", "x"];

/// Draws random commands. IDs grow with the commands, so that entries are added.
struct Commands {
    random: Random,
    last: u64,
}

impl Commands {
    fn pick(&mut self, from: &[&str]) -> String {
        from[self.random.below(from.len())].to_owned()
    }

    fn number(&mut self, below: usize) -> String {
        self.random.below(below).to_string()
    }

    /// True once in this many times.
    fn is_one_of(&mut self, times: usize) -> bool {
        self.random.below(times) == 0
    }

    fn id(&mut self) -> String {
        if self.is_one_of(8) {
            return self.pick(ODD_IDS);
        }
        format!("{}-{}", self.number(40), self.number(4))
    }

    fn end(&mut self) -> String {
        let id = self.id();
        match self.random.below(5) {
            0 => "-".to_owned(),
            1 => "+".to_owned(),
            2 => format!("({id}"),
            _ => id,
        }
    }

    fn new_id(&mut self) -> String {
        if self.is_one_of(8) {
            let id = self.id();
            return if id == "*" { "7-7".to_owned() } else { id };
        }
        self.last += self.random.below(2) as u64;
        let number = if self.is_one_of(6) {
            "*".to_owned()
        } else {
            self.number(10)
        };
        format!("{}-{number}", self.last)
    }

    fn trim(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        let is_length = self.is_one_of(2);
        words.push(if is_length { "maxlen" } else { "minid" }.to_owned());
        // Where entries of a node were deleted, Redis trims it roughly in another way.
        let signs: &[&str] = if is_length {
            &["", "=", "~"]
        } else {
            &["", "="]
        };
        let sign = self.pick(signs);
        if !sign.is_empty() {
            words.push(sign);
        }
        words.push(match is_length {
            true => self.pick(&["0", "3", "10", "30", "-1", "x", "1000"]),
            false => self.id(),
        });
        if self.is_one_of(5) {
            let limit = self.pick(COUNTS);
            words.extend(["limit".to_owned(), limit]);
        }
        words
    }

    fn ids(&mut self, most: usize) -> Vec<String> {
        (0..=self.random.below(most)).map(|_| self.id()).collect()
    }

    fn counted(&mut self, words: &mut Vec<String>) {
        if self.is_one_of(2) {
            let count = self.pick(COUNTS);
            words.extend(["count".to_owned(), count]);
        }
    }

    fn entries(&mut self) -> Vec<String> {
        let key = self.pick(KEYS);
        match self.random.below(9) {
            0 => [vec!["xtrim".to_owned(), key], self.trim()].concat(),
            1 => {
                let name = self.pick(&["xrange", "xrevrange"]);
                let mut words = vec![name, key, self.end(), self.end()];
                self.counted(&mut words);
                words
            }
            2 => [vec!["xdel".to_owned(), key], self.ids(12)].concat(),
            3 => {
                let mut words = vec!["xread".to_owned()];
                self.counted(&mut words);
                words.push("streams".to_owned());
                let count = 1 + self.random.below(3);
                words.extend((0..count).map(|_| self.pick(KEYS)));
                words.extend((0..count).map(|_| self.id()));
                words
            }
            _ => {
                let mut words = vec!["xadd".to_owned(), key];
                if self.is_one_of(10) {
                    words.push("nomkstream".to_owned());
                }
                if self.is_one_of(3) {
                    words.extend(self.trim());
                }
                words.push(self.new_id());
                let fields = 1 + self.random.below(6);
                words.extend((0..fields).map(|_| self.number(50)));
                words
            }
        }
    }

    fn groups(&mut self) -> Vec<String> {
        let (key, group) = (self.pick(KEYS), self.pick(GROUPS));
        let consumer = self.pick(CONSUMERS);
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let mut words: Vec<String> = match self.random.below(16) {
            0 => words(&["xgroup", "create", &key, &group, "0", "mkstream"]),
            1 => words(&["xgroup", "create", &key, &group, &self.id()]),
            2 => words(&["xgroup", "setid", &key, &group, &self.id()]),
            3 => words(&["xgroup", "destroy", &key, &group]),
            4 => words(&["xgroup", "createconsumer", &key, &group, &consumer]),
            5 => words(&["xgroup", "delconsumer", &key, &group, &consumer]),
            6 => words(&["xack", &key, &group]),
            7 => words(&["xpending", &key, &group]),
            8 => words(&["xclaim", &key, &group, &consumer, "0"]),
            9 => words(&["xautoclaim", &key, &group, &consumer, "0", &self.end()]),
            10 => words(&["xinfo", "groups", &key]),
            11 => words(&["xlen", &key]),
            _ => words(&["xreadgroup", "group", &group, &consumer]),
        };
        match words[0].as_str() {
            "xack" => words.extend(self.ids(12)),
            "xclaim" => {
                words.extend(self.ids(10));
                let option = self.pick(&["force", "justid", "bad", "idle", "lastid"]);
                if self.is_one_of(2) {
                    words.push(option);
                }
            }
            "xautoclaim" => self.counted(&mut words),
            "xreadgroup" => {
                self.counted(&mut words);
                words.push("streams".to_owned());
                words.push(key);
                let id = self.id();
                words.push(if self.is_one_of(3) {
                    id
                } else {
                    ">".to_owned()
                });
            }
            _ => {}
        }
        words
    }
}

#[test]
fn replies_to_random_commands_are_those_of_redis() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let commands = std::env::var("FARCORE_COMMANDS").ok();
    let commands = commands.and_then(|text| text.parse().ok()).unwrap_or(6_000);
    let random = Random::new();
    let mut drawn = Commands { random, last: 1 };
    for (cores, protocol) in [(1, "2"), (2, "3")] {
        let served = Served::roomy(cores);
        let mut here = served.client();
        let mut there = Client::connect(redis.address);
        for words in [
            &["flushall"][..],
            &["hello", protocol],
            &["set", "str", "x"],
        ] {
            here.ask(words);
            there.ask(words);
        }
        let mut differing = Vec::new();
        for number in 0..commands {
            if number % 500 == 499 {
                drawn.last = 1;
                here.ask(&["del", "s1", "s2", "s3"]);
                there.ask(&["del", "s1", "s2", "s3"]);
            }
            let words = match drawn.is_one_of(2) {
                true => drawn.entries(),
                false => drawn.groups(),
            };
            let (ours, theirs) = (here.ask(&words), there.ask(&words));
            if ours.to_string() != theirs.to_string() {
                differing.push(format!("{words:?}\n  here  {ours}\n  redis {theirs}"));
            }
        }
        let count = differing.len();
        differing.truncate(20);
        assert!(count == 0, "{count} differ:\n{}", differing.join("\n"));
    }
}
