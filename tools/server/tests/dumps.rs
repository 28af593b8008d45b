//! `DUMP` and `RESTORE` of a whole server: values move to Redis 7.0.15 and back, where that is
//! installed, and damaged payloads change nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use farcore_rdb::{Crc64, payload};

use self::support::redis::Redis;
use self::support::{Client, Random, Reply, Served, on_servers, wait_until};

const BUSY: &str = "BUSYKEY Target key name already exists.";
const DAMAGED: &str = "ERR DUMP payload version or checksum are wrong";
const BAD: &str = "ERR Bad data format";

fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) => bytes,
        other => panic!("not a string: {other}"),
    }
}

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    bytes(client.ask(&["dump", key]))
}

fn restore(client: &mut Client, key: &str, payload: &[u8]) -> String {
    let words = [&b"restore"[..], key.as_bytes(), b"0", payload, b"replace"];
    client.ask(&words).text()
}

/// A payload of a type, a value and a footer.
fn footed(value: &[u8]) -> Vec<u8> {
    let mut crc = Crc64::default();
    crc.add(value);
    [value, &payload::footer(crc)[..]].concat()
}

/// All that a key holds, in one text.
fn shown(client: &mut Client, key: &str) -> String {
    let kind = client.ask(&["type", key]).text();
    let mut say = |words: &str| client.say(&words.replace("KEY", key));
    let sorted = |text: String| {
        let mut parts: Vec<_> = text
            .split(", ")
            .map(|part| part.replace(['[', ']'], ""))
            .collect();
        parts.sort();
        parts.join(" ")
    };
    let value = match &kind[..] {
        "string" => say("get KEY"),
        "list" => say("lrange KEY 0 -1"),
        "zset" => say("zrange KEY 0 -1 withscores"),
        "set" => sorted(say("smembers KEY")),
        "hash" => {
            let reply = client.ask(&["hgetall", key]);
            let pairs = reply.elements().chunks(2);
            let mut pairs: Vec<_> = pairs
                .map(|pair| format!("{} {}", pair[0], pair[1]))
                .collect();
            pairs.sort();
            pairs.join(", ")
        }
        "stream" => {
            let entries = say("xrange KEY - +");
            let all = say("xinfo stream KEY full count 0");
            // How Redis stores it is left out.
            let at = all.find("\"last-generated-id\"").unwrap();
            format!("{entries} {}", &all[at..])
        }
        other => other.to_owned(),
    };
    format!("{kind} {value}")
}

/// Draws values.
struct Values(Random);

impl Values {
    fn is_one_of(&mut self, count: usize) -> bool {
        self.0.below(count) == 0
    }

    fn text(&mut self) -> Vec<u8> {
        const NUMBERS: [i64; 14] = [
            0,
            -1,
            127,
            128,
            -4096,
            4096,
            32_767,
            -32_769,
            8_388_608,
            2_147_483_647,
            2_147_483_648,
            -9,
            i64::MAX,
            i64::MIN,
        ];
        match self.0.below(5) {
            0 => NUMBERS[self.0.below(NUMBERS.len())]
                .to_string()
                .into_bytes(),
            1 => (0..self.0.below(30))
                .map(|_| u8::try_from(self.0.below(256)).unwrap())
                .collect(),
            2 => format!("{}:", self.0.below(50))
                .repeat(1 + self.0.below(40))
                .into_bytes(),
            3 => (0..self.0.below(300))
                .map(|_| if self.0.below(2) == 0 { b'a' } else { b'b' })
                .collect(),
            _ => {
                let lengths = [63, 64, 100, 4095, 4096, 17_000];
                let length = lengths[self.0.below(lengths.len())];
                let mut text = self.0.below(1000).to_string().into_bytes();
                text.resize(length, b'x');
                text
            }
        }
    }

    fn store(&mut self, client: &mut Client, key: &str) {
        client.ask(&["del", key]);
        let counts = [1, 2, 20, 130, 520];
        let count = counts[self.0.below(counts.len())];
        let key = key.as_bytes();
        match self.0.below(6) {
            0 => {
                let times = [1, 1, 300][self.0.below(3)];
                let value = self.text().repeat(times);
                let reply = client.ask(&[b"set", key, &value]);
                assert!(!reply.is_error(), "{reply}");
            }
            1 => {
                for _ in 0..count {
                    let reply = client.ask(&[b"rpush", key, &self.text()]);
                    assert!(!reply.is_error(), "{reply}");
                }
            }
            2 => {
                let is_of_integers = self.is_one_of(2);
                let all: Vec<_> = (0..count)
                    .map(|_| match is_of_integers {
                        true => self.0.below(1 << 17).to_string().into_bytes(),
                        false => self.text(),
                    })
                    .collect();
                let words = [b"sadd".to_vec(), key.to_vec()].into_iter().chain(all);
                let reply = client.ask(&words.collect::<Vec<_>>());
                assert!(!reply.is_error(), "{reply}");
            }
            3 => {
                let mut words = vec![b"hset".to_vec(), key.to_vec()];
                for number in 0..count {
                    words.push(format!("field{number}").into_bytes());
                    words.push(if self.is_one_of(3) {
                        self.text()
                    } else {
                        b"v".to_vec()
                    });
                }
                let reply = client.ask(&words);
                assert!(!reply.is_error(), "{reply}");
            }
            4 => {
                let scores = ["0", "-1.5", "inf", "-inf", "1e17", "0.1", "7", "123456789"];
                let mut words = vec![b"zadd".to_vec(), key.to_vec()];
                for number in 0..count {
                    words.push(scores[self.0.below(scores.len())].as_bytes().to_vec());
                    words.push(format!("member{number}").into_bytes());
                }
                client.ask(&words);
            }
            _ => self.store_stream(client, std::str::from_utf8(key).unwrap(), count),
        }
    }

    fn store_stream(&mut self, client: &mut Client, key: &str, count: usize) {
        client.say(&format!("xgroup create {key} early 0 mkstream"));
        for number in 1..=count {
            let id = format!("{}-{}", number / 3 + 1, number);
            let mut words = vec![b"xadd".to_vec(), key.into(), id.into_bytes()];
            for field in 0..1 + self.0.below(3) {
                words.push(format!("field{field}").into_bytes());
                words.push(self.text());
            }
            client.ask(&words);
            if self.is_one_of(5) {
                let gone = self.0.below(number) + 1;
                client.say(&format!("xdel {key} {}-{gone}", gone / 3 + 1));
            }
        }
        for group in 0..self.0.below(3) {
            client.say(&format!("xgroup create {key} g{group} 0"));
            for consumer in ["one", "two", "three"] {
                let most = 1 + self.0.below(60);
                client.say(&format!(
                    "xreadgroup group g{group} {consumer} count {most} streams {key} >"
                ));
            }
            for number in 1..=count {
                let id = format!("{}-{number}", number / 3 + 1);
                match self.0.below(8) {
                    0 | 1 => client.say(&format!("xack {key} g{group} {id}")),
                    2 => client.say(&format!("xclaim {key} g{group} four 0 {id}")),
                    _ => String::new(),
                };
            }
            client.say(&format!("xgroup createconsumer {key} g{group} idle"));
        }
        if self.is_one_of(4) {
            client.say(&format!("xtrim {key} maxlen 0"));
        }
        if self.is_one_of(3) {
            client.say(&format!(
                "xsetid {key} 999999-1 entriesadded 5000 maxdeletedid 3-1"
            ));
        }
    }
}

#[test]
fn values_move_to_redis_and_back_as_they_are() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let rounds = std::env::var("FARCORE_COMMANDS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut values = Values(Random::new());
    for cores in [1, 2] {
        let served = Served::roomy(cores);
        let mut here = served.client();
        let mut there = Client::connect(redis.address);
        for _ in 0..rounds {
            for is_from_here in [true, false] {
                let (from, to) = match is_from_here {
                    true => (&mut here, &mut there),
                    false => (&mut there, &mut here),
                };
                values.store(from, "from");
                let payload = dump(from, "from");
                assert_eq!(restore(to, "to", &payload), "OK");
                let (before, after) = (shown(from, "from"), shown(to, "to"));
                assert_eq!(before, after, "from here: {is_from_here}");
                assert_eq!(to.say("pttl to"), ":-1");
                // And back again.
                let payload = dump(to, "to");
                assert_eq!(restore(from, "again", &payload), "OK");
                assert_eq!(shown(from, "again"), before, "from here: {is_from_here}");
            }
        }
    }
}

/// A key of each kind.
fn store_all(client: &mut Client) -> [&'static str; 8] {
    for words in [
        "set text hello",
        "set number 12345",
        "rpush list a 2 ccc",
        "sadd integers 1 2 70000",
        "sadd set a b 3",
        "hset hash f 1 g two",
        "zadd sorted 1 a 2.5 b",
        "xadd stream 1-1 a 1 b 2",
        "xadd stream 2-1 a 3 b 4",
        "xgroup create stream group 0",
        "xreadgroup group group consumer streams stream >",
    ] {
        assert!(!client.ask(&words.split(' ').collect::<Vec<_>>()).is_error());
    }
    [
        "text", "number", "list", "integers", "set", "hash", "sorted", "stream",
    ]
}

#[test]
fn damaged_payloads_change_nothing() {
    on_servers(|server| {
        let mut client = server.client();
        let keys = store_all(&mut client);
        client.say("rpush target it stays");
        let before = shown(&mut client, "target");
        let (mut refused, mut stored) = (0, 0);
        for key in keys {
            let payload = dump(&mut client, key);
            for place in 0..payload.len() {
                let mut damaged = payload.clone();
                damaged[place] ^= 1 << (place % 8);
                assert_eq!(restore(&mut client, "target", &damaged), DAMAGED);
            }
            assert_eq!(shown(&mut client, "target"), before);
            let value = &payload[..payload.len() - payload::FOOTER_BYTES];
            let cut = (0..value.len()).map(|length| value[..length].to_vec());
            let flipped = (0..value.len()).flat_map(|place| {
                [1, 4, 0x40, 0x80, 0xff].map(|flip| {
                    let mut damaged = value.to_vec();
                    damaged[place] ^= flip;
                    damaged
                })
            });
            for damaged in cut.chain(flipped).chain([[value, b"x"].concat()]) {
                let reply = restore(&mut client, "target", &footed(&damaged));
                if reply == "OK" {
                    stored += 1;
                    assert_ne!(shown(&mut client, "target"), "none none");
                    client.say("del target");
                    client.say("rpush target it stays");
                } else {
                    refused += 1;
                    assert!(reply == BAD || reply == DAMAGED, "{reply}");
                    assert_eq!(shown(&mut client, "target"), before);
                }
            }
        }
        assert!(
            refused > 300 && stored > 30,
            "{refused} refused, {stored} stored"
        );
    });
}

#[test]
fn elements_that_occur_twice_are_refused() {
    on_servers(|server| {
        let mut client = server.client();
        for value in [
            &b"\x02\x02\x01a\x01a"[..],
            b"\x04\x02\x01a\x01b\x01a\x01c",
            b"\x05\x02\x01a\0\0\0\0\0\0\0\0\x01a\0\0\0\0\0\0\xf0\x3f",
            b"\x02\0",
            b"\x12\0",
            // Declared lengths of which nothing is there.
            b"\x02\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x01a",
            b"\0\xc3\x01\x81\0\0\0\x7f\xff\xff\xff\xff\x01",
            b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f",
            b"\x07\x01",
        ] {
            assert_eq!(restore(&mut client, "key", &footed(value)), BAD);
        }
        assert_eq!(client.say("exists key"), ":0");
    });
}

#[test]
fn an_empty_node_of_a_list_is_none() {
    // Two nodes, the first of which has no elements; and one such.
    let (empty, node) = (
        b"\x02\x07\x07\0\0\0\0\0\xff",
        b"\x02\x0a\x0a\0\0\0\x01\0\x81a\x02\xff",
    );
    let list = [&b"\x12\x03"[..], empty, node, empty].concat();
    let check = |client: &mut Client| {
        assert_eq!(restore(client, "list", &footed(&list)), "OK");
        assert_eq!(client.say("lrange list 0 -1"), "[\"a\"]");
        let none = [&b"\x12\x01"[..], empty].concat();
        assert_eq!(restore(client, "none", &footed(&none)), BAD);
    };
    on_servers(|server| check(&mut server.client()));
    if let Some(redis) = Redis::start() {
        check(&mut Client::connect(redis.address));
    }
}

#[test]
fn an_entry_of_very_many_fields_is_refused_before_they_are_walked() {
    on_servers(|server| {
        let mut client = server.client();
        client.say("set key before");
        // It says that it has a million fields, of which none is there.
        let mut node = vec![0; 6];
        node.extend(b"\x01\x01\0\x01\x01\x01\x81a\x02\0\x01");
        node.extend(b"\0\x01\0\x01\0\x01\xf2\x40\x42\x0f\x04");
        // Bytes that nothing reads, for a count that may be.
        node.resize(1_000_100, 0);
        node.push(0xff);
        let bytes = u32::try_from(node.len()).unwrap();
        node[..4].copy_from_slice(&bytes.to_le_bytes());
        node[4..6].copy_from_slice(&[0xff, 0xff]);
        let mut value = b"\x13\x01\x10".to_vec();
        value.extend([0; 15]);
        value.extend(b"\x01\x80");
        value.extend(bytes.to_be_bytes());
        value.extend(&node);
        let refused = restore(&mut client, "key", &footed(&value));
        assert!(refused.contains("the element is too large"), "{refused}");
        assert_eq!(client.say("get key"), "\"before\"");
    });
}

#[test]
fn options_are_those_of_redis() {
    on_servers(|server| {
        let mut client = server.client();
        client.say("set text hello");
        let payload = dump(&mut client, "text");
        let mut ask = |key: &str, time: &str, options: &[&str]| {
            let words = [b"restore", key.as_bytes(), time.as_bytes(), &payload];
            let options = options.iter().map(|option| option.as_bytes());
            client
                .ask(&words.into_iter().chain(options).collect::<Vec<_>>())
                .text()
        };
        assert_eq!(ask("text", "0", &[]), BUSY);
        assert_eq!(ask("text", "x", &[]), BUSY);
        assert_eq!(
            ask("new", "x", &[]),
            "ERR value is not an integer or out of range"
        );
        assert_eq!(ask("new", "-1", &[]), "ERR Invalid TTL value, must be >= 0");
        assert_eq!(ask("new", "0", &["other"]), "ERR syntax error");
        assert_eq!(ask("new", "0", &["idletime"]), "ERR syntax error");
        assert_eq!(
            ask("new", "0", &["idletime", "1", "freq", "1"]),
            "ERR syntax error"
        );
        assert_eq!(
            ask("new", "0", &["idletime", "-1"]),
            "ERR Invalid IDLETIME value, must be >= 0"
        );
        assert_eq!(
            ask("new", "0", &["freq", "256"]),
            "ERR Invalid FREQ value, must be >= 0 and <= 255"
        );
        assert_eq!(ask("new", "100000", &["idletime", "7"]), "OK");
        assert_eq!(ask("text", "1", &["absttl", "REPLACE"]), "OK");
        assert_eq!(client.say("exists text"), ":0", "it has expired");
        // The sum with the time of day is more than clocks count.
        client.say("set key before");
        let most = i64::MAX.to_string();
        let mut ask = |key: &str, options: &[&str]| {
            let words = [b"restore", key.as_bytes(), most.as_bytes(), &payload];
            let options = options.iter().map(|option| option.as_bytes());
            client
                .ask(&words.into_iter().chain(options).collect::<Vec<_>>())
                .text()
        };
        assert_eq!(ask("key", &["replace"]), "OK");
        assert_eq!(ask("other", &[]), "OK");
        assert_eq!(ask("late", &["absttl"]), "OK");
        assert_eq!(client.say("exists key other"), ":0", "it has expired");
        assert_eq!(client.say("get late"), "\"hello\"");
        assert_eq!(client.say("get new"), "\"hello\"");
        let Reply::Integer(left) = client.ask(&["pttl", "new"]) else {
            panic!("it expires");
        };
        assert!((90_000..=100_000).contains(&left));
        assert_eq!(client.say("dump none"), "null");
    });
}

#[test]
fn a_transaction_dumps_and_restores() {
    on_servers(|server| {
        let mut client = server.client();
        client.say("rpush list a b");
        let payload = dump(&mut client, "list");
        client.say("multi");
        client.say("rpush list c");
        client.ask(&[&b"restore"[..], b"list", b"0", &payload, b"replace"]);
        client.say("lrange list 0 -1");
        client.say("dump list");
        let replies = client.ask(&["exec"]);
        assert_eq!(replies.elements()[2].to_string(), "[\"a\", \"b\"]");
        assert_eq!(replies.elements()[3], Reply::Bulk(payload));
    });
}

#[test]
fn a_restored_list_wakes_a_client_that_waits() {
    on_servers(|server| {
        let (mut client, mut waits) = (server.client(), server.client());
        client.say("rpush list a");
        let payload = dump(&mut client, "list");
        waits.send(&["blpop", "queue", "0"]);
        wait_until("it waits", || {
            client.say("client list").contains("flags=b")
                || client.say("info clients").contains("blocked_clients:1")
        });
        assert_eq!(restore(&mut client, "queue", &payload), "OK");
        let reply = waits.read().unwrap();
        assert_eq!(reply.to_string(), "[\"queue\", \"a\"]");
        assert_eq!(client.say("exists queue"), ":0");
    });
}

#[test]
fn large_values_are_moved_too() {
    const COUNT: usize = 60_000;
    let served = Served::vast(1);
    let mut client = served.client();
    let long = b"0123456789abcdef".repeat(160_000);
    client.ask(&[b"set", &b"text"[..], &long]);
    for (command, key) in [
        ("rpush", "list"),
        ("sadd", "set"),
        ("hset", "hash"),
        ("zadd", "sorted"),
    ] {
        let numbers: Vec<_> = (0..COUNT).collect();
        for some in numbers.chunks(5_000) {
            let mut words = vec![command.to_owned(), key.to_owned()];
            for number in some {
                if command == "zadd" {
                    words.push((number / 2).to_string());
                }
                words.push(format!("element{number}"));
                if command == "hset" {
                    words.push(number.to_string());
                }
            }
            assert!(!client.ask(&words).is_error());
        }
    }
    // A long element behind small ones.
    let element = vec![b'x'; 40_000];
    for (command, key) in [("rpush", "mixed"), ("hset", "mixedhash")] {
        for number in 0..300 {
            let text = number.to_string();
            let value = match number % 100 {
                99 => &element[..],
                _ => text.as_bytes(),
            };
            let words = [command.as_bytes(), key.as_bytes(), text.as_bytes(), value];
            assert!(!client.ask(&words).is_error());
        }
        let payload = dump(&mut client, key);
        assert_eq!(restore(&mut client, "copy", &payload), "OK", "{key}");
        assert_eq!(shown(&mut client, "copy"), shown(&mut client, key));
    }
    for key in ["text", "list", "set", "hash", "sorted"] {
        let payload = dump(&mut client, key);
        assert_eq!(restore(&mut client, "copy", &payload), "OK", "{key}");
        let count = COUNT.to_string();
        match key {
            "text" => assert!(bytes(client.ask(&["get", "copy"])) == long),
            "list" => {
                assert_eq!(
                    client.ask(&["llen", "copy"]).to_string(),
                    format!(":{count}")
                );
                assert_eq!(client.say("lindex copy 31234"), "\"element31234\"");
            }
            "set" => {
                assert_eq!(client.say("sintercard 2 set copy"), format!(":{count}"));
            }
            "hash" => {
                assert_eq!(client.say("hlen copy"), format!(":{count}"));
                assert_eq!(client.say("hget copy element777"), "\"777\"");
            }
            _ => {
                assert_eq!(client.say("zcard copy"), format!(":{count}"));
                assert_eq!(client.say("zrank copy element59999"), ":59999");
            }
        }
    }
}

/// A server whose clients may hold little.
fn sparing() -> Served {
    Served::with(1, |options| options.client_bytes = 2 << 20)
}

#[test]
fn what_a_dump_gathers_is_granted_first() {
    let served = sparing();
    let mut client = served.client();
    let mut random = Random::new();
    for some in 0..100 {
        let mut words = vec!["sadd".to_owned(), "set".to_owned()];
        // They cannot be packed.
        words.extend((0..200).map(|_| {
            let parts = [(); 7].map(|()| format!("{:x}", random.next()));
            parts.concat()
        }));
        assert_eq!(client.ask(&words).to_string(), ":200", "{some}");
    }
    let refused = client.ask(&["dump", "set"]).text();
    assert!(refused.contains("bytes of client memory"), "{refused}");
    assert_eq!(client.say("scard set"), ":20000");
}

#[test]
fn what_a_payload_becomes_is_granted_first() {
    let served = sparing();
    let mut client = served.client();
    client.say("set key before");
    // A string of 8 MiB, packed.
    let (mut packed, mut length) = (vec![0, b'a'], 1u32);
    for _ in 0..32_000 {
        packed.extend([0xe0, 0xff, 0]);
        length += 264;
    }
    let head = [0, 0xc3, 0x80];
    let packed_length = u32::try_from(packed.len()).unwrap().to_be_bytes();
    let length = length.to_be_bytes();
    let value = [&head[..], &packed_length, &[0x80], &length, &packed].concat();
    let refused = restore(&mut client, "key", &footed(&value));
    assert!(refused.contains("bytes of client memory"), "{refused}");
    // Members of a set, each of which is noted to find those that occur twice.
    let mut value = vec![2, 0x80];
    value.extend(100_000u32.to_be_bytes());
    for number in 0..100_000 {
        value.push(5);
        value.extend(format!("{number:05}").into_bytes());
    }
    let refused = restore(&mut client, "key", &footed(&value));
    assert!(refused.contains("bytes of client memory"), "{refused}");
    assert_eq!(client.say("get key"), "\"before\"");
}

#[test]
fn a_long_payload_is_restored_without_options_behind_it() {
    let server = Served::roomy(1);
    let mut client = server.client();
    let long = "v".repeat(2 << 20);
    client.ask(&["set", "long", &long]);
    let Reply::Bulk(payload) = client.ask(&["dump", "long"]) else {
        panic!("a payload");
    };
    // It is as long as the value only if that cannot be packed.
    let random: Vec<u8> = (0_u32..2 << 20)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect();
    client.ask(&[&b"set"[..], b"random", &random]);
    let Reply::Bulk(unpacked) = client.ask(&["dump", "random"]) else {
        panic!("a payload");
    };
    assert!(unpacked.len() > random.len() / 2);
    for (key, payload) in [(&b"a"[..], payload), (b"b", unpacked)] {
        let restored = client.ask(&[&b"restore"[..], key, b"0", &payload]);
        assert_eq!(restored.to_string(), "+OK");
    }
    assert_eq!(client.ask(&["strlen", "b"]).to_string(), ":2097152");
}
