//! Sets of a whole server: their commands, and their type beside strings and hashes. Commands of
//! several sets are in `several_sets.rs`.

mod support;

use std::collections::BTreeSet;

use self::support::words::{WRONG_TYPE, expect, members};
use self::support::{Random, Reply, Served, on_servers};

#[test]
fn members_are_added_found_and_removed() {
    on_servers(|server| {
        let mut client = server.word_client();
        let long = "a-member-that-is-longer-than-a-reply-carries";
        expect(
            &mut client,
            &[
                ("sadd s b a c b", "3"),
                ("sadd s a d", "1"),
                ("sadd s a d", "0"),
                (&format!("sadd s {long}"), "1"),
                ("scard s", "5"),
                ("scard none", "0"),
                ("sismember s a", "1"),
                ("sismember s x", "0"),
                ("sismember none a", "0"),
                (&format!("sismember s {long}"), "1"),
                (&format!("sismember s {long}-no"), "0"),
                (&format!("smismember s a x {long} a"), "[1, 0, 1, 1]"),
                ("smismember none a b", "[0, 0]"),
                ("srem s x", "0"),
                ("srem none x", "0"),
                (&format!("srem s d {long} d x"), "2"),
                ("scard s", "3"),
                ("smembers none", "[]"),
                ("srem s a b c", "3"),
                ("exists s", "0"),
                ("type s", "none"),
                (
                    "sadd s",
                    "(error) ERR wrong number of arguments for 'sadd' command",
                ),
            ],
        );
    });
}

#[test]
fn members_that_are_there_already_change_nothing() {
    on_servers(|server| {
        let (mut watcher, mut client) = (server.word_client(), server.word_client());
        for members in [3, 3000] {
            let names: Vec<_> = (0..members).map(|number| format!("m{number}")).collect();
            let all = format!("sadd s{members} {}", names.join(" "));
            assert_eq!(client.call(&all), members.to_string());
            watcher.call(&format!("watch s{members}"));
            assert_eq!(client.call(&format!("sadd s{members} m1 m2")), "0");
            assert_eq!(client.call(&all), "0");
            assert_eq!(watcher.call_all(&["multi", "ping", "exec"])[2], "[PONG]");
            watcher.call(&format!("watch s{members}"));
            assert_eq!(client.call(&format!("sadd s{members} m1 new")), "1");
            assert_eq!(watcher.call_all(&["multi", "ping", "exec"])[2], "nil");
        }
    });
}

#[test]
fn members_are_a_set_in_resp3_and_what_is_drawn_is_an_array() {
    let served = Served::start(1);
    let mut client = served.client();
    client.say("SADD s a");
    let calls = [
        ("SMEMBERS s", "[\"a\"]", '~'),
        ("SMEMBERS none", "[]", '~'),
        ("SINTER s s", "[\"a\"]", '~'),
        ("SINTER none s", "[]", '~'),
        ("SUNION s none", "[\"a\"]", '~'),
        ("SDIFF s none", "[\"a\"]", '~'),
        ("SPOP none 2", "[]", '~'),
        ("SPOP s 0", "[]", '~'),
        ("SMISMEMBER s a b", "[:1, :0]", '*'),
        ("SRANDMEMBER s 5", "[\"a\"]", '*'),
        ("SSCAN s 0", "[\"0\", [\"a\"]]", '*'),
    ];
    for protocol in [2, 3] {
        client.say(&format!("HELLO {protocol}"));
        for (words, elements, kind) in calls {
            let sign = if protocol == 3 && kind == '~' {
                "~"
            } else {
                ""
            };
            assert_eq!(client.say(words), format!("{sign}{elements}"), "{words}");
        }
    }
    assert_eq!(client.say("SPOP s 2"), "~[\"a\"]");
    assert_eq!(client.say("SPOP s"), client.say("GET none"));
}

/// Commands of sets, for a key that is none.
const OF_SETS: &[&str] = &[
    "sadd KEY a",
    "srem KEY a",
    "sismember KEY a",
    "sismember KEY a-member-that-is-longer-than-a-reply-carries",
    "smismember KEY a b",
    "smembers KEY",
    "scard KEY",
    "spop KEY",
    "spop KEY 2",
    "srandmember KEY",
    "srandmember KEY 2",
    "sscan KEY 0",
    "smove KEY s a",
    "smove s KEY a",
    "smove s KEY x",
    "smove KEY KEY a",
    "sinter s KEY",
    "sinter none KEY",
    "sintercard 2 s KEY",
    "sunion s KEY",
    "sdiff KEY s",
    "sdiff s KEY",
    "sinterstore s s KEY",
    "sunionstore s KEY",
    "sdiffstore s s KEY",
];

/// Commands of strings and hashes, for the key of a set.
const OF_OTHERS: &[&str] = &[
    "get s",
    "getrange s 0 1",
    "strlen s",
    "append s x",
    "incr s",
    "setrange s 0 x",
    "set s x get",
    "hget s a",
    "hget s a-field-that-is-longer-than-a-reply-carries",
    "hmget s a b",
    "hgetall s",
    "hlen s",
    "hset s a 1",
    "hdel s a",
    "hincrby s a 1",
    "hscan s 0",
    "hrandfield s",
    "hrandfield s 2",
];

#[test]
fn strings_hashes_and_sets_are_told_apart() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[("hset h a 1", "1"), ("set k 1", "OK"), ("sadd s a", "1")],
        );
        for command in OF_SETS {
            for key in ["h", "k"] {
                let words = command.replace("KEY", key);
                assert_eq!(client.call(&words), WRONG_TYPE, "{words}");
            }
        }
        for words in OF_OTHERS {
            assert_eq!(client.call(words), WRONG_TYPE, "{words}");
        }
        expect(
            &mut client,
            &[
                ("smembers s", "[\"a\"]"),
                ("mget s k h none", "[nil, \"1\", nil, nil]"),
                ("type s", "set"),
                ("type h", "hash"),
                ("type k", "string"),
                ("type none", "none"),
                ("scan 0 count 1000 type set", "[\"0\", [\"s\"]]"),
                ("scan 0 count 1000 type hash", "[\"0\", [\"h\"]]"),
                ("scan 0 count 1000 type string", "[\"0\", [\"k\"]]"),
                ("scan 0 count 1000 type list", "[\"0\", []]"),
                ("smove none k a", "0"),
                ("sunionstore k s", "1"),
                ("type k", "set"),
                ("set s x", "OK"),
                ("scard s", WRONG_TYPE),
                ("del s", "1"),
            ],
        );
    });
}

#[test]
fn a_set_keeps_its_expiry_and_is_renamed_and_copied() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("sadd s a b", "2"),
                ("expireat s 99999999999", "1"),
                ("sadd s c", "1"),
                ("srem s a", "1"),
                ("expiretime s", "99999999999"),
                ("sadd other x", "1"),
                ("smove s other b", "1"),
                ("expiretime s", "99999999999"),
                ("ttl other", "-1"),
                ("copy s copied", "1"),
                ("expiretime copied", "99999999999"),
                ("rename copied renamed", "OK"),
                ("smembers renamed", "[\"c\"]"),
                ("type renamed", "set"),
                ("sunionstore renamed s other", "3"),
                ("ttl renamed", "-1"),
                ("object encoding renamed", "\"listpack\""),
                ("pexpire renamed 0", "1"),
                ("scard renamed", "0"),
            ],
        );
        assert_ne!(client.call("memory usage s"), "nil");
    });
}

#[test]
fn the_encoding_follows_the_settings() {
    let server = Served::start(1);
    let mut client = server.word_client();
    expect(
        &mut client,
        &[
            ("sadd s 1 -5 300", "3"),
            ("object encoding s", "\"intset\""),
            ("config set set-max-intset-entries 2", "OK"),
            ("object encoding s", "\"listpack\""),
            ("config set set-max-listpack-entries 2", "OK"),
            ("object encoding s", "\"hashtable\""),
            (
                "config set set-max-listpack-entries 3 set-max-listpack-value 2",
                "OK",
            ),
            ("object encoding s", "\"hashtable\""),
            ("config set set-max-listpack-value 3", "OK"),
            ("object encoding s", "\"listpack\""),
            ("sadd s x", "1"),
            ("object encoding s", "\"hashtable\""),
            (
                "config get set-max-*",
                "[\"set-max-intset-entries\", \"2\", \"set-max-listpack-entries\", \"3\", \"set-max-listpack-value\", \"3\"]",
            ),
        ],
    );
    let refused = client.call("config set set-max-intset-entries x");
    assert!(refused.contains("CONFIG SET failed"), "{refused}");
}

#[test]
fn odd_arguments_of_scans_and_draws_are_refused_as_redis_does() {
    let served = Served::roomy(1);
    let mut client = served.word_client();
    let range = "(error) ERR value is out of range, value must between -9223372036854775807 and \
                 9223372036854775807";
    let syntax = "(error) ERR syntax error";
    expect(
        &mut client,
        &[
            ("sadd s a", "1"),
            ("hset h f v", "1"),
            ("rpush l a", "1"),
            ("set text a", "OK"),
            ("srandmember s -9223372036854775808", range),
            ("srandmember none -9223372036854775808", range),
            ("hrandfield h -9223372036854775808", range),
            ("hrandfield h -9223372036854775808 withvalues", range),
            (
                "hrandfield h -9223372036854775807 withvalues",
                "(error) ERR value is out of range",
            ),
            ("sscan none 0 count -1", "[\"0\", []]"),
            ("hscan none 0 count 0", "[\"0\", []]"),
            ("sscan none 0 odd", "[\"0\", []]"),
            ("sscan none x count 1", "(error) ERR invalid cursor"),
            ("sscan s 0 count -1", syntax),
            ("hscan h 0 count 0", syntax),
            ("sscan text 0 count 0", WRONG_TYPE),
            ("sscan h 0 count 0", WRONG_TYPE),
            (
                "lmpop 1 l left count 0",
                "(error) ERR count should be greater than 0",
            ),
        ],
    );
}

#[test]
fn any_bytes_are_members() {
    on_servers(|server| {
        let mut client = server.word_client();
        let names: [&[u8]; 6] = [
            b"",
            b"\r\n\0\xff",
            b"exactly 21 bytes long",
            b"exactly 22 bytes long.",
            &[b'm'; 127],
            &[b'm'; 300],
        ];
        for name in names {
            client.send(&[b"SISMEMBER", b"", name]);
            assert_eq!(client.reply(), "0");
            client.send(&[b"SADD", b"", name]);
            assert_eq!(client.reply(), "1");
            client.send(&[b"SISMEMBER", b"", name]);
            assert_eq!(client.reply(), "1");
            client.send(&[b"SMOVE", b"", b"other", name]);
            assert_eq!(client.reply(), "1");
            client.send(&[b"SMOVE", b"other", b"", name]);
            assert_eq!(client.reply(), "1");
        }
        client.send(&[b"SCARD", b""]);
        assert_eq!(client.reply(), "6");
    });
}

#[test]
fn members_are_drawn_and_popped() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("sadd one a", "1"),
                ("srandmember one", "\"a\""),
                ("srandmember one 5", "[\"a\"]"),
                ("srandmember one -3", "[\"a\", \"a\", \"a\"]"),
                ("srandmember one 0", "[]"),
                ("srandmember none", "nil"),
                ("srandmember none 2", "[]"),
                ("srandmember one 1 2", "(error) ERR syntax error"),
                (
                    "srandmember one x",
                    "(error) ERR value is not an integer or out of range",
                ),
                (
                    "srandmember one -9223372036854775808",
                    "(error) ERR value is out of range, value must between \
                     -9223372036854775807 and 9223372036854775807",
                ),
                ("spop one 0", "[]"),
                ("spop one 1 2", "(error) ERR syntax error"),
                (
                    "spop one -1",
                    "(error) ERR value is out of range, must be positive",
                ),
                ("spop one", "\"a\""),
                ("spop one", "nil"),
                ("spop one 3", "[]"),
                ("exists one", "0"),
            ],
        );
        let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        client.call(&format!("sadd s {}", names.join(" ")));
        assert_eq!(members(&client.call("srandmember s 60")).len(), 60);
        let mut popped = members(&client.call("spop s 40"));
        assert_eq!(popped.len(), 40);
        for _ in 0..10 {
            popped.extend(members(&client.call("spop s")));
        }
        assert_eq!(client.call("scard s"), "50");
        popped.extend(members(&client.call("spop s 99")));
        assert_eq!(popped, names.into_iter().collect());
        assert_eq!(client.call("exists s"), "0");
    });
}

#[test]
fn sets_in_transactions_are_carried_out() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("watch s", "OK"),
                ("multi", "OK"),
                ("sadd s a b", "QUEUED"),
                ("smove s t a", "QUEUED"),
                ("sismember s a", "QUEUED"),
                ("smismember s a b", "QUEUED"),
                ("sunionstore u s t", "QUEUED"),
                ("scard u", "QUEUED"),
                ("spop s", "QUEUED"),
                ("srandmember t", "QUEUED"),
                ("sinter s u", "QUEUED"),
                ("sintercard 1 u", "QUEUED"),
                ("sscan t 0", "QUEUED"),
                ("type t", "QUEUED"),
                ("get t", "QUEUED"),
                (
                    "exec",
                    &format!(
                        "[2, 1, 0, [0, 1], 2, 2, \"b\", \"a\", [], 2, [\"0\", [\"a\"]], set, {WRONG_TYPE}]"
                    ),
                ),
                ("watch t", "OK"),
                ("sadd t b", "1"),
                ("multi", "OK"),
                ("srem t b", "QUEUED"),
                ("exec", "nil"),
                ("scard t", "2"),
                ("multi", "OK"),
                ("set k 1", "QUEUED"),
                ("type k", "QUEUED"),
                ("type none", "QUEUED"),
                ("exec", "[OK, string, none]"),
            ],
        );
    });
}

/// A set that Redis would not keep compactly comes page by page, and each member once.
#[test]
fn a_long_set_is_scanned_in_pages() {
    const MEMBERS: usize = 1000;
    let served = Served::start(1);
    let mut client = served.client();
    for member in 0..MEMBERS {
        client.say(&format!("SADD s m{member}"));
    }
    let pages = client.scan("SSCAN s", "COUNT 100");
    assert_eq!(pages.len(), 10);
    let listed: BTreeSet<_> = pages.into_iter().flatten().collect();
    assert_eq!(listed.len(), MEMBERS);
    let page = client.ask(&["SSCAN", "s", "0", "COUNT", "1000", "MATCH", "m99?"]);
    assert_eq!(page.elements()[0].text(), "0");
    assert_eq!(page.elements()[1].elements().len(), 10);
    let refused = client.say("SSCAN s 0 NOVALUES");
    assert!(refused.contains("syntax error"), "{refused}");
}

#[test]
fn a_member_that_is_too_large_is_refused_and_the_set_stays() {
    let served = Served::start(1);
    let mut client = served.word_client();
    client.call("sadd s a");
    let long = vec![b'x'; 64_000];
    for words in [
        &[&b"SADD"[..], b"s", &long][..],
        &[b"SADD", b"s", b"b", &long],
        &[b"SMOVE", b"s", b"other", &long],
    ] {
        client.send(words);
        let refused = client.reply();
        assert!(
            refused.starts_with("(error) ERR the element is too large"),
            "{refused}"
        );
    }
    client.send(&[b"SREM", b"s", &long]);
    assert_eq!(client.reply(), "0");
    client.send(&[b"SISMEMBER", b"s", &long]);
    assert_eq!(client.reply(), "0");
    assert_eq!(client.call("scard s"), "1");
}

/// A member that is stored behind its key, also with events of keys that are missed, for which it
/// is looked up otherwise.
#[test]
fn a_long_member_is_found() {
    let served = Served::of_long_records(1);
    let (mut client, mut other) = (served.client(), served.client());
    let long = |letter: char| letter.to_string().repeat(200_000);
    for events in ["", "Km"] {
        client.ask(&["CONFIG", "SET", "notify-keyspace-events", events]);
        assert_eq!(
            client.ask(&["SADD", "s", &long('a'), "b"]).to_string(),
            ":2"
        );
        let calls: [(&[&str], &str); 5] = [
            (&["SISMEMBER", "s", &long('a')], ":1"),
            (&["SISMEMBER", "s", &long('c')], ":0"),
            (&["SISMEMBER", "none", &long('a')], ":0"),
            (
                &["SMISMEMBER", "s", &long('a'), "b", &long('c')],
                "[:1, :1, :0]",
            ),
            (&["SMOVE", "s", "s", &long('a')], ":1"),
        ];
        // Tasks of the other client take the answers of this one, which are too long to be kept.
        for _ in 0..20 {
            other.send(&["SRANDMEMBER", "s", "-2"]);
            calls.iter().for_each(|(words, _)| client.send(words));
        }
        for _ in 0..20 {
            for (words, expected) in &calls {
                let found = client.read().expect("a reply");
                assert_eq!(found.to_string(), *expected, "{}", words[0]);
            }
            assert_eq!(other.read().expect("a reply").elements().len(), 2);
        }
        assert_eq!(
            client.ask(&["HSET", "h", "f", &long('v')]).to_string(),
            ":1"
        );
        assert_eq!(client.ask(&["HSTRLEN", "h", "f"]).to_string(), ":200000");
        assert_eq!(client.ask(&["HEXISTS", "h", "f"]).to_string(), ":1");
        assert_eq!(client.ask(&["HGET", "h", "f"]).text(), long('v'));
        assert_eq!(client.ask(&["DEL", "s", "h"]).to_string(), ":2");
    }
}

/// Sets of one page and of many, with short and long members, after random changes.
#[test]
fn a_set_of_any_size_is_a_set() {
    let member_of = |number: usize| {
        let mut member = format!("member-{number}");
        if number.is_multiple_of(41) {
            member += &".".repeat(870 + number % 60);
        }
        member
    };
    for (cores, most) in [(1, 1), (1, 200), (2, 20_000)] {
        let served = Served::roomy(cores);
        let mut client = served.client();
        let (mut random, mut model) = (Random::new(), BTreeSet::new());
        while model.len() < most {
            let many = random.below(if most > 200 { 1200 } else { 12 }) + 1;
            let start = random.below(most + most / 4);
            let some: Vec<_> = (start..start + many).map(member_of).collect();
            let removes = random.below(5) == 0;
            let changed = some.iter().filter(|member| match removes {
                true => model.remove(*member),
                false => model.insert((*member).clone()),
            });
            let changed = format!(":{}", changed.count());
            let command = if removes { "SREM" } else { "SADD" };
            let words = [&[command.to_owned(), "s".to_owned()][..], &some].concat();
            assert_eq!(client.ask(&words).to_string(), changed);
            let some: Vec<_> = (0..random.below(70) + 1)
                .map(|_| member_of(random.below(2 * most)))
                .collect();
            let words = [&["SMISMEMBER".to_owned(), "s".to_owned()][..], &some].concat();
            let found = client.ask(&words);
            for (member, found) in some.iter().zip(found.elements()) {
                assert_eq!(
                    found.to_string(),
                    format!(":{}", i32::from(model.contains(member)))
                );
            }
        }
        let set = |reply: &Reply| {
            let all: Vec<_> = reply.elements().iter().map(Reply::text).collect();
            let set: BTreeSet<_> = all.iter().cloned().collect();
            assert_eq!(set.len(), all.len());
            set
        };
        assert_eq!(set(&client.ask(&["SMEMBERS", "s"])), model);
        assert_eq!(client.say("SCARD s"), format!(":{}", model.len()));
        let listed = client.scan("SSCAN s", "COUNT 300").into_iter().flatten();
        let listed: Vec<_> = listed.collect();
        assert_eq!(listed.len(), model.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), model);
        assert_eq!(client.say("COPY s copied"), ":1");
        assert_eq!(client.say("RENAME copied renamed"), "+OK");
        assert_eq!(set(&client.ask(&["SMEMBERS", "renamed"])), model);
        assert_eq!(
            client.say("SUNIONSTORE stored renamed none"),
            format!(":{}", model.len())
        );
        assert_eq!(set(&client.ask(&["SMEMBERS", "stored"])), model);
        for count in [1, 30, 5_000, 50_000] {
            let drawn = set(&client.ask(&["SRANDMEMBER", "s", &count.to_string()]));
            assert_eq!(drawn.len(), count.min(model.len()));
            assert!(drawn.is_subset(&model));
            let popped = set(&client.ask(&["SPOP", "s", &count.to_string()]));
            assert_eq!(popped.len(), count.min(model.len()));
            assert!(popped.is_subset(&model));
            model.retain(|member| !popped.contains(member));
            assert_eq!(client.say("SCARD s"), format!(":{}", model.len()));
        }
        assert_eq!(client.say("EXISTS s"), ":0");
    }
}

/// Sets do under random commands what sorted sets do.
#[test]
fn random_commands_are_those_of_sorted_sets() {
    const ROUNDS: usize = 600;
    let mut server = Served::roomy(2);
    let mut client = server.word_client();
    let mut random = Random::new();
    let mut model: [BTreeSet<String>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let (key, other) = (random.below(3), random.below(3));
        let member = random.below(20).to_string();
        let (words, expected) = match random.below(6) {
            0 | 1 => {
                let added = model[key].insert(member.clone());
                (
                    format!("sadd k{key} {member}"),
                    i32::from(added).to_string(),
                )
            }
            2 => {
                let removed = model[key].remove(&member);
                (
                    format!("srem k{key} {member}"),
                    i32::from(removed).to_string(),
                )
            }
            3 => {
                let moved = model[key].remove(&member);
                if moved {
                    model[other].insert(member.clone());
                }
                let words = format!("smove k{key} k{other} {member}");
                (words, i32::from(moved).to_string())
            }
            4 => {
                let union = model[key].union(&model[other]).cloned().collect();
                model[0] = union;
                (
                    format!("sunionstore k0 k{key} k{other}"),
                    model[0].len().to_string(),
                )
            }
            _ => {
                let left = model[key].difference(&model[other]).cloned().collect();
                model[1] = left;
                (
                    format!("sdiffstore k1 k{key} k{other}"),
                    model[1].len().to_string(),
                )
            }
        };
        assert_eq!(client.call(&words), expected, "{words}");
        for (key, expected) in model.iter().enumerate() {
            assert_eq!(
                members(&client.call(&format!("smembers k{key}"))),
                *expected
            );
        }
    }
    server.stop();
}
