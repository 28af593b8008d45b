//! Hashes of a whole server: their commands, their types beside strings, and clients that change
//! one hash at once.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use self::support::words::{WRONG_TYPE, expect, members};
use self::support::{Client, Random, Reply, Served, WordClient, on_servers};

/// The fields with their values that a reply shows, in the order of their names.
fn pairs(reply: &str) -> String {
    let inside = reply.trim_matches(['[', ']', '{', '}']);
    let all: Vec<_> = inside.split(", ").collect();
    let mut pairs: Vec<_> = all.chunks(2).map(|pair| pair.join(" ")).collect();
    pairs.sort_unstable();
    pairs.join(", ").replace('"', "")
}

/// Each of these commands replies these fields with their values, in any order.
#[track_caller]
fn expect_pairs(client: &mut WordClient, calls: &[(&str, &str)]) {
    for (words, expected) in calls {
        assert_eq!(pairs(&client.call(words)), *expected, "{words}");
    }
}

#[test]
fn fields_are_set_read_and_removed() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("hset h a 1 b 2 a 3", "2"),
                ("hset h a 4 c 5", "1"),
                ("hget h a", "\"4\""),
                ("hget h x", "nil"),
                ("hget none a", "nil"),
                ("hmget h b x c", "[\"2\", nil, \"5\"]"),
                ("hmget none b x", "[nil, nil]"),
                (
                    "hmget h a b c a b c d a",
                    "[\"4\", \"2\", \"5\", \"4\", \"2\", \"5\", nil, \"4\"]",
                ),
                ("hgetall none", "[]"),
                ("hlen h", "3"),
            ],
        );
        expect_pairs(&mut client, &[("hgetall h", "a 4, b 2, c 5")]);
        let set = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let names: BTreeSet<_> = set(&["a", "b", "c"]);
        assert_eq!(members(&client.call("hkeys h")), names);
        let values: BTreeSet<_> = set(&["4", "2", "5"]);
        assert_eq!(members(&client.call("hvals h")), values);
        expect(
            &mut client,
            &[
                ("hlen none", "0"),
                ("hexists h a", "1"),
                ("hexists h x", "0"),
                ("hexists none x", "0"),
                ("hmset h long 12345", "OK"),
                ("hstrlen h long", "5"),
                ("hstrlen h x", "0"),
                ("hsetnx h a 9", "0"),
                ("hsetnx h n 9", "1"),
                ("hget h a", "\"4\""),
                ("hdel h a x a", "1"),
                ("hdel h x", "0"),
                ("hdel none x", "0"),
                ("hdel h b c long n", "4"),
                ("exists h", "0"),
                ("type h", "none"),
                ("hlen h", "0"),
            ],
        );
        client.call("hello 3");
        client.call("hset h a 1");
        expect(
            &mut client,
            &[("hgetall h", "{\"a\", \"1\"}"), ("hgetall none", "{}")],
        );
    });
}

#[test]
fn random_in_fields_are_incremented() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("hincrby h n 5", "5"),
                ("hincrby h n -8", "-3"),
                ("hset h max 9223372036854775807 text abc float 1.5", "3"),
                (
                    "hincrby h max 1",
                    "(error) ERR increment or decrement would overflow",
                ),
                (
                    "hincrby h text 1",
                    "(error) ERR hash value is not an integer",
                ),
                (
                    "hincrby h n x",
                    "(error) ERR value is not an integer or out of range",
                ),
                ("hincrbyfloat h float 0.25", "\"1.75\""),
                ("hincrbyfloat h float -1.75", "\"0\""),
                ("hincrbyfloat h new -2", "\"-2\""),
                (
                    "hincrbyfloat h text 1",
                    "(error) ERR hash value is not a float",
                ),
                (
                    "hincrbyfloat h n x",
                    "(error) ERR value is not a valid float",
                ),
                (
                    "hincrbyfloat h n inf",
                    "(error) ERR value is NaN or Infinity",
                ),
                ("hget h max", "\"9223372036854775807\""),
                ("hget h text", "\"abc\""),
            ],
        );
    });
}

#[test]
fn strings_and_hashes_are_told_apart() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(&mut client, &[("hset h a 1", "1"), ("set s 1", "OK")]);
        for words in [
            "get h",
            "getset h x",
            "getdel h",
            "getex h",
            "getex h ex 100",
            "getrange h 0 1",
            "strlen h",
            "append h x",
            "setrange h 0 x",
            "incr h",
            "incrbyfloat h 1",
            "set h x get",
            "set h x ifeq y",
            "hget s a",
            "hget s a-field-that-is-longer-than-a-reply-carries",
            "hmget s a b",
            "hgetall s",
            "hkeys s",
            "hvals s",
            "hlen s",
            "hexists s a",
            "hstrlen s a",
            "hset s a 1",
            "hsetnx s a 1",
            "hdel s a",
            "hincrby s a 1",
            "hincrbyfloat s a 1",
            "hscan s 0",
            "hrandfield s",
        ] {
            assert_eq!(client.call(words), WRONG_TYPE, "{words}");
        }
        expect(
            &mut client,
            &[
                ("hgetall h", "[\"a\", \"1\"]"),
                ("get s", "\"1\""),
                ("mget h s none", "[nil, \"1\", nil]"),
                ("type h", "hash"),
                ("type s", "string"),
                ("exists h s", "2"),
                ("setnx h x", "0"),
                ("scan 0 count 1000 type hash", "[\"0\", [\"h\"]]"),
                ("scan 0 count 1000 type string", "[\"0\", [\"s\"]]"),
                ("scan 0 count 1000 type list", "[\"0\", []]"),
                ("set h x", "OK"),
                ("hlen h", WRONG_TYPE),
                ("type h", "string"),
                ("del h", "1"),
                ("hset h a 1", "1"),
                ("del h", "1"),
            ],
        );
    });
}

#[test]
fn a_hash_keeps_its_expiry_and_is_renamed_and_copied() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("hset h a 1", "1"),
                ("expireat h 99999999999", "1"),
                ("hset h b 2", "1"),
                ("hdel h a", "1"),
                ("expiretime h", "99999999999"),
                ("persist h", "1"),
                ("ttl h", "-1"),
                ("hget h b", "\"2\""),
                ("expireat h 99999999999", "1"),
                ("copy h other", "1"),
                ("hgetall other", "[\"b\", \"2\"]"),
                ("rename h renamed", "OK"),
                ("exists h", "0"),
                ("hgetall renamed", "[\"b\", \"2\"]"),
                ("type renamed", "hash"),
                ("expiretime renamed", "99999999999"),
                ("pexpire renamed 0", "1"),
                ("hlen renamed", "0"),
                ("hset renamed c 3", "1"),
                ("ttl renamed", "-1"),
            ],
        );
    });
}

#[test]
fn any_bytes_are_fields_and_values() {
    on_servers(|server| {
        let mut client = server.word_client();
        let names: [&[u8]; 5] = [
            b"",
            b"\r\n\0\xff",
            b"exactly 21 bytes long",
            b"exactly 22 bytes long.",
            &[b'f'; 300],
        ];
        for (place, name) in names.iter().enumerate() {
            let value = [&[0xFE; 200][..], &[u8::try_from(place).unwrap_or(0)]].concat();
            client.send(&[b"HSET", b"", name, &value]);
            assert_eq!(client.reply(), "1");
            client.send(&[b"HGET", b"", name]);
            assert_eq!(client.reply(), format!("\"{}\"", value.escape_ascii()));
            client.send(&[b"HSTRLEN", b"", name]);
            assert_eq!(client.reply(), "201");
            client.send(&[b"HEXISTS", b"", name]);
            assert_eq!(client.reply(), "1");
        }
        client.send(&[b"HLEN", b""]);
        assert_eq!(client.reply(), "5");
    });
}

#[test]
fn reads_are_pipelined_in_order_between_changes() {
    on_servers(|server| {
        let mut client = server.word_client();
        let commands: Vec<_> = (0..200)
            .flat_map(|number| {
                [
                    format!("hset k{} f{number} {number}", number % 3),
                    format!("hget k{} f{number}", number % 3),
                    format!("set s{number} {number}"),
                    format!("hget k{} field-of-more-than-21-bytes", number % 3),
                    format!("hmget k{} f{number} x", number % 3),
                    format!("get s{number}"),
                ]
            })
            .collect();
        let commands: Vec<_> = commands.iter().map(String::as_str).collect();
        let replies = client.call_all(&commands);
        for (number, replies) in replies.chunks_exact(6).enumerate() {
            let value = format!("\"{number}\"");
            let fields = format!("[{value}, nil]");
            assert_eq!(replies, ["1", &value, "OK", "nil", &fields, &value]);
        }
    });
}

#[test]
fn increments_of_several_clients_add_up() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 250;
    on_servers(|server| {
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let mut client = server.word_client();
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        client.call("hincrby h sum 1");
                        client.call(&format!("hset h own{number} {round}"));
                        client.call(&format!("hset h{number} gone 1"));
                        assert_eq!(client.call(&format!("hdel h{number} gone")), "1");
                    }
                });
            }
        });
        let mut client = server.word_client();
        let sum = CLIENTS * ROUNDS;
        assert_eq!(client.call("hget h sum"), format!("\"{sum}\""));
        assert_eq!(client.call("hlen h"), (CLIENTS + 1).to_string());
        assert_eq!(client.call("dbsize"), "1");
    });
}

#[test]
fn hashes_in_transactions_are_carried_out() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("watch h", "OK"),
                ("multi", "OK"),
                ("hset h a 1", "QUEUED"),
                ("hincrby h a 2", "QUEUED"),
                ("hget h a", "QUEUED"),
                ("get h", "QUEUED"),
                ("exec", &format!("[1, 3, \"3\", {WRONG_TYPE}]")),
                ("watch h", "OK"),
                ("hset h b 1", "1"),
                ("multi", "OK"),
                ("hdel h a", "QUEUED"),
                ("exec", "nil"),
                ("hlen h", "2"),
            ],
        );
    });
}

/// A hash that Redis would not keep as a list comes page by page, and each field once.
#[test]
fn a_long_hash_is_scanned_in_pages() {
    const FIELDS: usize = 1000;
    let served = Served::start(1);
    let mut client = served.client();
    for field in 0..FIELDS {
        client.say(&format!("HSET h f{field} {field}"));
    }
    let pages = client.scan("HSCAN h", "COUNT 100 NOVALUES");
    assert_eq!(pages.len(), 10);
    let listed: BTreeSet<_> = pages.into_iter().flatten().collect();
    assert_eq!(listed.len(), FIELDS);
    // A pattern is of what a page has; the pages are the same.
    let page = client.ask(&["HSCAN", "h", "0", "COUNT", "1000", "MATCH", "f99?"]);
    assert_eq!(page.elements()[0].text(), "0");
    assert_eq!(page.elements()[1].elements().len(), 2 * 10);
}

#[test]
fn scans_and_draws_return_fields() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("hset h a1 1 b2 2 a3 3", "3"),
                ("hscan h 0 novalues match b*", "[\"0\", [\"b2\"]]"),
                ("hscan none 0", "[\"0\", []]"),
                ("hscan h x", "(error) ERR invalid cursor"),
                ("hscan h 0 count 0", "(error) ERR syntax error"),
                ("hscan h 0 match", "(error) ERR syntax error"),
                ("hrandfield none", "nil"),
                ("hrandfield none 3", "[]"),
                ("hrandfield none -3", "[]"),
                ("hrandfield h 0", "[]"),
                ("hrandfield h 1 values", "(error) ERR syntax error"),
                (
                    "hrandfield h -9223372036854775808",
                    "(error) ERR value is out of range, value must between \
                     -9223372036854775807 and 9223372036854775807",
                ),
                (
                    "hrandfield h -9223372036854770000 withvalues",
                    "(error) ERR value is out of range",
                ),
                ("hset one f v", "1"),
                ("hrandfield one", "\"f\""),
                ("hrandfield one 5", "[\"f\"]"),
                ("hrandfield one -3", "[\"f\", \"f\", \"f\"]"),
                (
                    "hrandfield one -2 withvalues",
                    "[\"f\", \"v\", \"f\", \"v\"]",
                ),
            ],
        );
        for (words, expected) in [
            ("hscan h 0", "a1 1, a3 3, b2 2"),
            ("hscan h 0 match a* count 1", "a1 1, a3 3"),
        ] {
            let reply = client.call(words);
            let listed = reply.strip_prefix("[\"0\", ").expect("it is whole");
            assert_eq!(pairs(listed), expected, "{words}");
        }
        for _ in 0..20 {
            let reply = client.call("hrandfield h 2");
            let drawn: Vec<_> = reply.trim_matches(['[', ']']).split(", ").collect();
            assert!(drawn.len() == 2 && drawn[0] != drawn[1], "{reply}");
            let known = ["\"a1\"", "\"b2\"", "\"a3\""];
            assert!(drawn.iter().all(|field| known.contains(field)), "{reply}");
        }
        let many = client.call("hrandfield h -5000");
        assert_eq!(many.split(", ").count(), 5000);
        client.call("hello 3");
        assert_eq!(
            client.call("hrandfield one -2 withvalues"),
            "[[\"f\", \"v\"], [\"f\", \"v\"]]"
        );
    });
}

#[test]
fn an_element_that_is_too_large_is_refused_and_the_hash_stays() {
    on_servers(|server| {
        let mut client = server.word_client();
        client.call("hset h small 1");
        let value = vec![b'v'; 64_000];
        for words in [
            &[&b"HSET"[..], b"h", b"long", &value][..],
            &[b"HSET", b"h", b"other", b"1", b"long", &value],
            &[b"HSETNX", b"h", b"long", &value],
            &[b"HSET", b"h", &value, b"1"],
        ] {
            client.send(words);
            let refused = client.reply();
            let prefix = "(error) ERR the element is too large: it takes ";
            assert!(refused.starts_with(prefix), "{refused}");
        }
        client.send(&[b"HDEL", b"h", &value]);
        assert_eq!(client.reply(), "0");
        client.send(&[b"HGET", b"h", &value]);
        assert_eq!(client.reply(), "nil");
        expect(&mut client, &[("hlen h", "1"), ("hset h small 2", "0")]);
    });
}

#[test]
fn wrong_random_of_arguments_are_refused() {
    on_servers(|server| {
        let mut client = server.word_client();
        for (words, name) in [
            ("hset h a", "hset"),
            ("hset h a 1 b", "hset"),
            ("hmset h a 1 b", "hmset"),
            ("hget h", "hget"),
            ("hdel h", "hdel"),
        ] {
            let expected = format!("(error) ERR wrong number of arguments for '{name}' command");
            assert_eq!(client.call(words), expected, "{words}");
        }
        assert_eq!(client.call("exists h"), "0");
    });
}

#[test]
fn encodings_are_named_as_redis_would_choose() {
    on_servers(|server| {
        let mut client = server.word_client();
        let pairs: Vec<_> = (0..513).map(|field| format!("f{field} v")).collect();
        client.call(&format!("hset large {}", pairs.join(" ")));
        client.call(&format!("hset small {}", pairs[..512].join(" ")));
        client.call(&format!("hset long f {}", "v".repeat(65)));
        client.call("set number 12");
        client.call(&format!("set raw {}", "v".repeat(65)));
        expect(
            &mut client,
            &[
                ("object encoding large", "\"hashtable\""),
                ("object encoding small", "\"listpack\""),
                ("object encoding long", "\"hashtable\""),
                ("object encoding number", "\"int\""),
                ("object encoding raw", "\"raw\""),
                ("object encoding none", "nil"),
                ("config set hash-max-listpack-entries 513", "OK"),
                (
                    "config get hash-max-ziplist-entries",
                    "[\"hash-max-ziplist-entries\", \"513\"]",
                ),
                ("object encoding large", "\"listpack\""),
                ("config set hash-max-ziplist-value 65", "OK"),
                ("object encoding long", "\"listpack\""),
            ],
        );
    });
}

/// A hash with what a map says of it, after random changes.
#[test]
fn a_hash_is_a_map() {
    on_servers(|server| {
        let mut client = server.word_client();
        let mut random = Random::new();
        let mut model: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..1_500 {
            let field = format!("f{}", random.below(30));
            let held = model.get(&field);
            match random.below(5) {
                0 => {
                    let removed = client.call(&format!("hdel h {field}"));
                    assert_eq!(removed, u64::from(held.is_some()).to_string());
                    model.remove(&field);
                }
                1 => {
                    let held = held.map_or("nil".to_owned(), |value| format!("\"{value}\""));
                    assert_eq!(client.call(&format!("hget h {field}")), held);
                }
                _ => {
                    let bytes = random.below(40);
                    let value = "v".repeat(bytes + 1);
                    let added = client.call(&format!("hset h {field} {value}"));
                    assert_eq!(added, u64::from(held.is_none()).to_string());
                    model.insert(field, value);
                }
            }
        }
        let all: Vec<_> = model
            .iter()
            .map(|(field, value)| format!("{field} {value}"))
            .collect();
        let expected = if all.is_empty() {
            String::new()
        } else {
            all.join(", ")
        };
        assert_eq!(pairs(&client.call("hgetall h")), expected);
    });
}

/// Fields with their values.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The field of a number; some are too long for a key of an element.
fn field_of(number: usize) -> Vec<u8> {
    let mut field = format!("field-{number}").into_bytes();
    if number.is_multiple_of(37) {
        field.resize(880 + number % 50, b'.');
    }
    field
}

/// Strings of a reply.
fn strings(reply: &Reply) -> Vec<Vec<u8>> {
    let string = |one: &Reply| match one {
        Reply::Bulk(bytes) => bytes.clone(),
        other => panic!("no string: {other}"),
    };
    reply.elements().iter().map(string).collect()
}

/// Fields with their values of a flat reply, which has each field once.
fn map(reply: &Reply) -> Model {
    let flat = strings(reply);
    let map: Model = flat
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect();
    assert_eq!(2 * map.len(), flat.len());
    map
}

#[track_caller]
fn check(client: &mut Client, key: &str, model: &Model, random: &mut Random) {
    assert_eq!(
        client.say(&format!("HLEN {key}")),
        format!(":{}", model.len())
    );
    assert_eq!(&map(&client.ask(&["HGETALL", key])), model);
    let names: BTreeSet<_> = strings(&client.ask(&["HKEYS", key])).into_iter().collect();
    assert!(names.iter().eq(model.keys()));
    assert_eq!(strings(&client.ask(&["HVALS", key])).len(), model.len());
    let (mut cursor, mut listed) = ("0".to_owned(), Model::new());
    let count = (random.below(700) + 1).to_string();
    let mut pages = 0;
    loop {
        let page = client.ask(&["HSCAN", key, &cursor, "COUNT", &count]);
        for (field, value) in map(&page.elements()[1]) {
            assert_eq!(listed.insert(field, value), None);
        }
        pages += 1;
        cursor = page.elements()[0].text();
        if cursor == "0" {
            break;
        }
        assert!(pages <= model.len());
    }
    assert_eq!(&listed, model);
    for wanted in [1, 7, 600, 50_000] {
        let drawn = strings(&client.ask(&["HRANDFIELD", key, &wanted.to_string()]));
        let drawn: BTreeSet<_> = drawn.into_iter().collect();
        assert_eq!(drawn.len(), wanted.min(model.len()));
        assert!(drawn.iter().all(|field| model.contains_key(field)));
        if !model.is_empty() && wanted < 1000 {
            let count = format!("-{wanted}");
            let drawn = client.ask(&["HRANDFIELD", key, &count, "WITHVALUES"]);
            let drawn = strings(&drawn);
            assert_eq!(drawn.len(), 2 * wanted);
            for pair in drawn.chunks(2) {
                assert_eq!(model.get(&pair[0]), Some(&pair[1]));
            }
        }
    }
}

/// Hashes of one page and of many, with short and long fields, after random changes.
#[test]
fn a_hash_of_any_size_is_a_map() {
    for (cores, most) in [(1, 300), (2, 4_000), (1, 20_000)] {
        let served = Served::roomy(cores);
        let mut client = served.client();
        let (mut random, mut model) = (Random::new(), Model::new());
        while model.len() < most {
            let many = random.below(if most > 300 { 900 } else { 30 }) + 1;
            let start = random.below(most + most / 4);
            let numbers = start..start + many;
            let fields: Vec<_> = numbers.map(field_of).collect();
            if random.below(5) == 0 {
                let mut words = vec![b"HDEL".to_vec(), b"h".to_vec()];
                words.extend(fields.iter().cloned());
                let gone = fields.iter().filter(|field| model.remove(*field).is_some());
                let gone = i64::try_from(gone.count()).expect("few");
                assert_eq!(client.ask(&words), Reply::Integer(gone));
            } else {
                let mut words = vec![b"HSET".to_vec(), b"h".to_vec()];
                let mut added = 0;
                for field in fields {
                    let value = vec![b'v'; random.below(90)];
                    words.extend([field.clone(), value.clone()]);
                    added += i64::from(model.insert(field, value).is_none());
                }
                assert_eq!(client.ask(&words), Reply::Integer(added));
            }
            let fields: Vec<_> = (0..random.below(80) + 1)
                .map(|_| field_of(random.below(2 * most)))
                .collect();
            let words = [&[b"HMGET".to_vec(), b"h".to_vec()][..], &fields].concat();
            let found = client.ask(&words);
            for (field, found) in fields.iter().zip(found.elements()) {
                let expected = model.get(field).cloned().map_or(Reply::Null, Reply::Bulk);
                assert_eq!(*found, expected);
            }
        }
        check(&mut client, "h", &model, &mut random);
        // With hash tags both names lie in one shard, and without mostly not.
        for name in ["{h}other", "another", "third"] {
            assert_eq!(client.say("EXPIREAT h 99999999999"), ":1");
            assert_eq!(client.say(&format!("SET {name} x")), "+OK");
            assert_eq!(client.say(&format!("COPY h {name}")), ":0");
            assert_eq!(client.say(&format!("COPY h {name} REPLACE")), ":1");
            assert_eq!(client.say(&format!("EXPIRETIME {name}")), ":99999999999");
            check(&mut client, name, &model, &mut random);
            assert_eq!(client.say("PERSIST h"), ":1");
            assert_eq!(client.say(&format!("RENAMENX h {name}")), ":0");
            assert_eq!(client.say(&format!("RENAME h {name}")), "+OK");
            assert_eq!(client.say("EXISTS h"), ":0");
            assert_eq!(client.say(&format!("TTL {name}")), ":-1");
            check(&mut client, name, &model, &mut random);
            assert_eq!(client.say(&format!("RENAMENX {name} h")), ":1");
            assert_eq!(client.say(&format!("EXISTS {name}")), ":0");
        }
        assert_eq!(client.say("TYPE h"), "+hash");
        assert_eq!(client.say("OBJECT ENCODING h"), "\"hashtable\"");
        let used = client.ask(&["MEMORY", "USAGE", "h"]);
        let bytes: usize = model
            .iter()
            .map(|(field, value)| field.len() + value.len())
            .sum();
        assert!(matches!(used, Reply::Integer(used) if used > i64::try_from(bytes).expect("few")));
        let names: Vec<_> = model.keys().cloned().collect();
        for some in names.chunks(500) {
            let words = [&[b"HDEL".to_vec(), b"h".to_vec()][..], some].concat();
            let gone = i64::try_from(some.len()).expect("few");
            assert_eq!(client.ask(&words), Reply::Integer(gone));
        }
        assert_eq!(client.say("EXISTS h"), ":0");
        assert_eq!(client.say("DBSIZE"), ":0");
    }
}

/// Replies are of one moment, though other clients change the hash all the time: its fields have
/// one sum.
#[test]
fn a_long_reply_is_of_one_moment() {
    const FIELDS: usize = 3_000;
    let served = Served::roomy(2);
    let mut client = served.client();
    for some in (0..FIELDS).collect::<Vec<_>>().chunks(500) {
        let pairs: Vec<_> = some.iter().map(|field| format!("f{field} 0")).collect();
        client.say(&format!("HSET h {}", pairs.join(" ")));
    }
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut client = served.client();
            for _ in 0..20 {
                let all = map(&client.ask(&["HGETALL", "h"]));
                assert_eq!(all.len(), FIELDS);
                let sum: i64 = all
                    .values()
                    .map(|value| {
                        String::from_utf8_lossy(value)
                            .parse::<i64>()
                            .expect("a number")
                    })
                    .sum();
                // Each change of two fields is one step.
                assert_eq!(sum, 0);
            }
        });
        let mut round = 0;
        while !reader.is_finished() {
            round += 1;
            let (one, other) = (round % FIELDS, (round * 7 + 1) % FIELDS);
            if one != other {
                client.say(&format!("HSET h f{one} {round} f{other} -{round}"));
                client.say(&format!("HSET h f{one} 0 f{other} 0"));
            }
        }
    });
}
