//! Sorted sets of a whole server: their commands, and their type beside others. Replies to random
//! commands are those of Redis 7.0.15, where that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::redis::Redis;
use self::support::words::{WRONG_TYPE, expect};
use self::support::{Client, Random, Served, on_servers, wait_until};

#[test]
fn members_get_scores_and_are_found_by_them() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("zadd z 1 a 2 b 3 c", "3"),
                ("zadd z 1 a 5 b 4 d", "1"),
                ("zadd z ch 1 a 6 b 7 e", "2"),
                ("zadd z nx 9 a", "0"),
                ("zadd z xx 9 none", "0"),
                ("zadd z gt ch 0 a", "0"),
                ("zadd z lt ch 0 a", "1"),
                ("zadd z incr 2 a", "\"2\""),
                ("zadd z nx incr 2 a", "nil"),
                ("zadd none xx 1 a", "0"),
                ("exists none", "0"),
                ("zincrby z 0.1 a", "\"2.1000000000000001\""),
                ("zincrby z inf i", "\"inf\""),
                (
                    "zincrby z -inf i",
                    "(error) ERR resulting score is not a number (NaN)",
                ),
                ("zscore z i", "\"inf\""),
                ("zscore z none", "nil"),
                ("zmscore z a none b", "[\"2.1000000000000001\", nil, \"6\"]"),
                ("zcard z", "6"),
                ("zrank z a", "0"),
                ("zrevrank z a", "5"),
                ("zrank z none", "nil"),
                ("zcount z (2.1000000000000001 6", "3"),
                (
                    "zrange z 0 -1",
                    "[\"a\", \"c\", \"d\", \"b\", \"e\", \"i\"]",
                ),
                (
                    "zrange z 0 1 rev withscores",
                    "[\"i\", \"inf\", \"e\", \"7\"]",
                ),
                ("zrangebyscore z 3 6 limit 1 1", "[\"d\"]"),
                ("zrem z a none i", "2"),
                ("type z", "zset"),
                ("object encoding z", "\"listpack\""),
                ("zpopmin z", "[\"c\", \"3\"]"),
                ("zpopmax z 2", "[\"e\", \"7\", \"b\", \"6\"]"),
                ("zrem z d", "1"),
                ("exists z", "0"),
                ("set s x", "OK"),
                ("zadd s 1 a", WRONG_TYPE),
                ("zrange s 0 -1", WRONG_TYPE),
            ],
        );
    });
}

#[test]
fn a_set_of_many_members_is_read_copied_scanned_and_emptied() {
    for cores in [1, 2] {
        let served = Served::roomy(cores);
        let mut client = served.word_client();
        let count = 20_000;
        for start in (0..count).step_by(1000) {
            let mut words = vec!["zadd".to_owned(), "z".to_owned()];
            for number in start..start + 1000 {
                words.push((number % 777).to_string());
                words.push(format!("member:{number}"));
            }
            let words: Vec<_> = words.iter().map(String::as_bytes).collect();
            client.send(&words);
            assert_eq!(client.reply(), "1000");
        }
        expect(
            &mut client,
            &[("zcard z", "20000"), ("object encoding z", "\"skiplist\"")],
        );
        let all = client.call("zrange z 0 -1 withscores");
        assert_eq!(all.split(", ").count(), 2 * count);
        expect(&mut client, &[("copy z y", "1"), ("rename y {z}x", "OK")]);
        assert_eq!(client.call("zrange {z}x 0 -1 withscores"), all);
        expect(
            &mut client,
            &[
                ("zrangestore y z 10 -11", "19980"),
                ("zcard y", "19980"),
                ("zunionstore u 2 z y weights 1 2", "20000"),
                ("zinterstore i 2 z y", "19980"),
                ("zdiffstore d 2 z y", "20"),
                ("zremrangebyscore u -inf 200", "1742"),
                ("zremrangebyrank u 0 -101", "18158"),
                ("zcard u", "100"),
            ],
        );
        let mut scanner = served.client();
        let pages = scanner.scan("zscan z", "count 300");
        let mut found: Vec<_> = pages.iter().flatten().step_by(2).cloned().collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count);
        assert!(pages.len() > 50);
        let popped = client.call("zpopmax i 100000");
        assert_eq!(popped.split(", ").count(), 2 * 19_980);
        expect(&mut client, &[("exists i", "0"), ("del z", "1")]);
    }
}

#[test]
fn a_set_of_a_hundred_thousand_members_is_ordered() {
    on_servers(|server| {
        let mut client = server.word_client();
        let count = 100_000_usize;
        for start in (0..count).step_by(5000) {
            let mut words = vec!["zadd".to_owned(), "z".to_owned()];
            for number in start..start + 5000 {
                words.push((number * 7919 % count).to_string());
                words.push(format!("m{number}"));
            }
            let words: Vec<_> = words.iter().map(String::as_bytes).collect();
            client.send(&words);
            assert_eq!(client.reply(), "5000");
        }
        let member = |score: usize| {
            let number = (0..count).find(|number| number * 7919 % count == score);
            format!("m{}", number.unwrap())
        };
        for score in [0, 1, 49_999, 77_777, 99_999] {
            let name = member(score);
            expect(
                &mut client,
                &[
                    (&format!("zrank z {name}"), &score.to_string()),
                    (
                        &format!("zrange z {score} {score}"),
                        &format!("[\"{name}\"]"),
                    ),
                    (
                        &format!("zrangebyscore z -inf inf limit {score} 1"),
                        &format!("[\"{name}\"]"),
                    ),
                    (
                        &format!("zcount z ({score} +inf"),
                        &(count - 1 - score).to_string(),
                    ),
                ],
            );
        }
        let mut scanner = server.client();
        let pages = scanner.scan("zscan z", "count 1000");
        let mut found: Vec<_> = pages.iter().flatten().step_by(2).cloned().collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count);
        expect(
            &mut client,
            &[
                ("zremrangebyscore z 10 (99990", "99980"),
                ("zremrangebyrank z 0 9", "10"),
                ("zcard z", "10"),
                ("zremrangebyscore z -inf inf", "10"),
                ("exists z", "0"),
            ],
        );
    });
}

#[test]
fn changes_of_sorted_sets_send_events() {
    let served = Served::start(1);
    let mut client = served.word_client();
    let mut listener = served.word_client();
    let set = "config set notify-keyspace-events KEA";
    assert_eq!(client.call(&format!("{set}nm")), "OK");
    assert_eq!(
        listener.call("psubscribe __keyspace@0__:*"),
        ">[\"psubscribe\", \"__keyspace@0__:*\", 1]".trim_start_matches('>')
    );
    for (command, events) in [
        ("zadd z 1 a 2 b 3 c", &["z new", "z zadd"][..]),
        ("zadd z 1 a", &[]),
        ("zadd z 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h 9 i", &["z zadd"]),
        ("zincrby z 1 a", &["z zincr"]),
        ("zrem z none", &[]),
        ("zrem z h", &["z zrem"]),
        ("zpopmin z", &["z zpopmin"]),
        ("zpopmax z 2", &["z zpopmax"]),
        ("zscore none a", &["none keymiss"]),
        ("zrangestore y z 0 1", &["y new", "y zrangestore"]),
        ("zunionstore y 2 z y", &["y zunionstore"]),
        ("zinterstore y 2 z none", &["y del"]),
        ("zremrangebyrank z 0 0", &["z zremrangebyrank"]),
        (
            "zremrangebyscore z -inf inf",
            &["z zremrangebyscore", "z del"],
        ),
        ("bzpopmin none 0.001", &[]),
        ("zadd z 1 a", &["z new", "z zadd"]),
        ("bzpopmin z 0", &["z zpopmin", "z del"]),
        ("set end x", &["end new", "end set"]),
    ] {
        client.call(command);
        for event in events {
            let (key, name) = event.split_once(' ').unwrap();
            let expected = format!(
                "[\"pmessage\", \"__keyspace@0__:*\", \"__keyspace@0__:{key}\", \"{name}\"]"
            );
            assert_eq!(listener.reply(), expected, "{command}");
        }
    }
}

#[test]
fn a_client_waits_for_a_member_beside_one_that_waits_for_an_element() {
    on_servers(|server| {
        let mut client = server.word_client();
        let [mut list, mut sorted, mut several] = [(); 3].map(|()| server.word_client());
        list.send_words("blpop key 0");
        wait_until("a client waits", || {
            client.call("info clients").contains("blocked_clients:1")
        });
        sorted.send_words("bzpopmin key 0");
        wait_until("a client waits", || {
            client.call("info clients").contains("blocked_clients:2")
        });
        several.send_words("bzmpop 0 2 none other max count 2");
        wait_until("a client waits", || {
            client.call("info clients").contains("blocked_clients:3")
        });
        assert_eq!(client.call("zadd key 2 b 1 a"), "2");
        assert_eq!(sorted.reply(), "[\"key\", \"a\", \"1\"]");
        assert_eq!(client.call("zrem key b"), "1");
        assert_eq!(client.call("rpush key x"), "1");
        assert_eq!(list.reply(), "[\"key\", \"x\"]");
        expect(
            &mut client,
            &[
                ("multi", "OK"),
                ("zadd other 1 a", "QUEUED"),
                ("zadd other 2 b 3 c", "QUEUED"),
                ("exec", "[1, 2]"),
            ],
        );
        assert_eq!(
            several.reply(),
            "[\"other\", [[\"c\", \"3\"], [\"b\", \"2\"]]]"
        );
        expect(
            &mut client,
            &[("bzpopmax none 0.01", "nil"), ("zcard other", "1")],
        );
    });
}

#[test]
fn long_members_are_whole() {
    on_servers(|server| {
        let mut client = server.client();
        let long: Vec<Vec<u8>> = [901, 932, 5000]
            .iter()
            .map(|&bytes| vec![b'm'; bytes])
            .collect();
        for (number, member) in long.iter().enumerate() {
            let score = number.to_string();
            client.ask(&[&b"zadd"[..], b"z", score.as_bytes(), member]);
        }
        let all = client.ask(&["zrange", "z", "0", "-1"]);
        for (number, member) in long.iter().enumerate() {
            assert_eq!(all.elements()[number].text().as_bytes(), member);
            let rank = client.ask(&[&b"zrank"[..], b"z", member]).to_string();
            assert_eq!(rank, format!(":{number}"));
        }
        assert_eq!(client.scan("zscan z", "")[0].len(), 6);
        let popped = client.ask(&["zpopmax", "z"]);
        assert_eq!(popped.elements()[0].text().as_bytes(), long[2]);
        assert_eq!(
            client.ask(&[&b"zrem"[..], b"z", &long[0]]).to_string(),
            ":1"
        );
    });
}

const SCORES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "2.5",
    "0.1",
    "1e20",
    "inf",
    "-inf",
    "+inf",
    "0x10",
    "nan",
    "x",
    "",
    "1e400",
    " 1",
    "3.0",
    "1e-5",
    "123456789012345678",
    "10",
    "7",
    "5",
];
const BOUNDS: &[&str] = &[
    "0", "1", "(1", "(2", "3", "-inf", "+inf", "(inf", "x", "2.5", "nan", "(", "10", "-inf",
    "+inf", "-1", "5",
];
const LEX: &[&str] = &[
    "-", "+", "[a", "(a", "[c", "(e", "[", "(", "x", "", "[bb", "(zz", "-", "+",
];
const RANKS: &[&str] = &[
    "0", "1", "-1", "2", "-2", "5", "-100", "100", "x", "1.5", "-1", "0",
];
const MEMBERS: &[&str] = &["a", "b", "c", "d", "e", "bb", "f", "", "10", "g"];
const KEYS: &[&str] = &["z1", "z2", "z3", "set", "none", "str", "z1", "z2", "z3"];

/// A random command, as words.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn random_command(random: &mut Random) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut pick = |from: &[&str]| from[random.below(from.len())].to_owned();
    let kind = pick(&[
        "zadd",
        "zadd",
        "zadd",
        "zadd",
        "zincrby",
        "zcard",
        "zscore",
        "zmscore",
        "zrank",
        "zrevrank",
        "zcount",
        "zlexcount",
        "zrange",
        "zrange",
        "zrevrange",
        "zrangebyscore",
        "zrevrangebyscore",
        "zrangebylex",
        "zrevrangebylex",
        "zrangestore",
        "zrem",
        "zremrangebyrank",
        "zremrangebyscore",
        "zremrangebylex",
        "zpopmin",
        "zpopmax",
        "zmpop",
        "bzpopmin",
        "bzmpop",
        "zunion",
        "zinter",
        "zdiff",
        "zunionstore",
        "zinterstore",
        "zdiffstore",
        "zintercard",
        "zscan",
        "type",
        "object",
        "copy",
        "sadd",
        "zrandmember",
    ]);
    words.push(kind.clone());
    match &kind[..] {
        "zadd" => {
            words.push(pick(KEYS));
            while pick(&["y", "n", "n"]) == "y" {
                words.push(pick(&["nx", "xx", "gt", "lt", "ch", "incr", "CH"]));
            }
            for _ in 0..pick(&["1", "1", "2", "3", "12"]).parse().unwrap() {
                words.push(pick(SCORES));
                words.push(pick(MEMBERS));
            }
            if pick(&["y"; 1]) == pick(&["y", "n", "n", "n", "n", "n", "n", "n"]) {
                words.pop();
            }
        }
        "zincrby" => words.extend([pick(KEYS), pick(SCORES), pick(MEMBERS)]),
        "zcard" | "type" => words.push(pick(KEYS)),
        "object" => words.extend(["encoding".to_owned(), pick(KEYS)]),
        "copy" => words.extend([pick(KEYS), pick(KEYS), "replace".to_owned()]),
        "sadd" => words.extend(["set".to_owned(), pick(MEMBERS)]),
        "zscore" | "zrank" | "zrevrank" => words.extend([pick(KEYS), pick(MEMBERS)]),
        "zmscore" | "zrem" => {
            words.push(pick(KEYS));
            for _ in 0..pick(&["1", "2", "5", "12"]).parse().unwrap() {
                words.push(pick(MEMBERS));
            }
        }
        "zcount" | "zremrangebyscore" => words.extend([pick(KEYS), pick(BOUNDS), pick(BOUNDS)]),
        "zlexcount" | "zremrangebylex" => words.extend(["lex".to_owned(), pick(LEX), pick(LEX)]),
        "zremrangebyrank" => words.extend([pick(KEYS), pick(RANKS), pick(RANKS)]),
        "zrange" | "zrevrange" | "zrangebyscore" | "zrevrangebyscore" | "zrangestore"
        | "zrangebylex" | "zrevrangebylex" => {
            if kind == "zrangestore" {
                words.push(pick(&["z3", "z4", "str", "z1"]));
            }
            let by = match &kind[..] {
                "zrange" | "zrangestore" => pick(&["", "byscore", "bylex", ""]),
                "zrangebyscore" | "zrevrangebyscore" => "score".to_owned(),
                "zrangebylex" | "zrevrangebylex" => "lex".to_owned(),
                _ => String::new(),
            };
            let ends = match &by[..] {
                "byscore" | "score" => BOUNDS,
                "bylex" | "lex" => LEX,
                _ => RANKS,
            };
            // With several scores, a range of members is none.
            let key = if by.ends_with("lex") {
                "lex".to_owned()
            } else {
                pick(KEYS)
            };
            words.extend([key, pick(ends), pick(ends)]);
            if by.starts_with("by") {
                words.push(by);
            }
            while pick(&["y", "n"]) == "y" {
                let option = pick(&["rev", "withscores", "limit", "withscores"]);
                if option == "limit" {
                    words.extend([
                        option,
                        pick(&["0", "1", "-1", "x"]),
                        pick(&["1", "2", "-1", "0"]),
                    ]);
                } else {
                    words.push(option);
                }
            }
        }
        "zpopmin" | "zpopmax" => {
            words.push(pick(KEYS));
            if pick(&["y", "n"]) == "y" {
                words.push(pick(&["0", "1", "2", "3", "-1", "x", "20"]));
            }
        }
        "bzpopmin" => words.extend([pick(KEYS), pick(KEYS), "0.001".to_owned()]),
        "zmpop" | "bzmpop" => {
            if kind == "bzmpop" {
                words.push(pick(&["0.001", "x", "-1", "0.001"]));
            }
            words.extend([
                pick(&["2", "2", "2", "0", "x", "9"]),
                pick(KEYS),
                pick(KEYS),
            ]);
            words.push(pick(&["min", "max", "MIN", "left"]));
            if pick(&["y", "n"]) == "y" {
                words.extend(["count".to_owned(), pick(&["1", "2", "0", "x"])]);
            }
        }
        "zscan" => words.extend([pick(KEYS), pick(&["0", "0", "x"])]),
        "zrandmember" => words.extend(["absent".to_owned(), pick(&["1", "-1", "x", "0"])]),
        _ => {
            if kind.ends_with("store") {
                words.push(pick(&["z3", "z4", "str", "z1", "set"]));
            }
            words.extend([
                pick(&["2", "2", "2", "2", "0", "x", "3"]),
                pick(KEYS),
                pick(KEYS),
            ]);
            while pick(&["y", "n"]) == "y" {
                match &pick(&["weights", "aggregate", "withscores", "limit"])[..] {
                    "weights" => {
                        words.extend([
                            "weights".to_owned(),
                            pick(SCORES),
                            pick(&["2", "0.5", "x"]),
                        ]);
                    }
                    "aggregate" => {
                        let how = pick(&["sum", "min", "max", "x"]);
                        words.extend(["aggregate".to_owned(), how]);
                    }
                    "limit" => words.extend(["limit".to_owned(), pick(&["0", "1", "-1", "x"])]),
                    other => words.push(other.to_owned()),
                }
            }
        }
    }
    words
}

#[test]
fn replies_to_random_commands_are_those_of_redis() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let commands = std::env::var("FARCORE_COMMANDS").ok();
    let commands = commands.and_then(|text| text.parse().ok()).unwrap_or(6_000);
    let mut random = Random::new();
    for (cores, protocol) in [(1, "2"), (2, "3")] {
        let served = Served::roomy(cores);
        let mut here = served.client();
        let mut there = Client::connect(redis.address);
        let split = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for words in ["flushall", &format!("hello {protocol}")] {
            here.ask(&split(words));
            there.ask(&split(words));
        }
        let mut differing = Vec::new();
        for number in 0..commands {
            let words = match number % 50 {
                0 => split("zadd lex 0 a 0 b 0 c 0 d 0 bb 0 e"),
                1 => split("set str x"),
                2 => split("zadd z1 1 a 2 b 3 c 4 d 5 e"),
                _ => random_command(&mut random),
            };
            let (ours, theirs) = (here.ask(&words), there.ask(&words));
            // Sets are compact as in Redis 7.2.
            if words[0] == "object" && ours.to_string() == "\"listpack\"" {
                continue;
            }
            if ours.to_string() != theirs.to_string() {
                differing.push(format!("{words:?}\n  here  {ours}\n  redis {theirs}"));
            }
        }
        let count = differing.len();
        differing.truncate(20);
        assert!(count == 0, "{count} differ:\n{}", differing.join("\n"));
    }
}
