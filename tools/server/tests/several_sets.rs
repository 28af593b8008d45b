//! Commands of several sets: what they make of them, store and move, whatever other clients change
//! at once.

mod support;

use std::collections::BTreeSet;
use std::thread;

use self::support::words::{expect_sorted, members};
use self::support::{Served, on_servers};

#[test]
fn sets_are_made_of_several() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect_sorted(
            &mut client,
            &[
                ("sadd a 1 2 3 4", "4"),
                ("sadd b 3 4 5", "3"),
                ("sadd c 4 5 6", "3"),
                ("sinter a b c", "[\"4\"]"),
                ("sinter a", "[\"1\", \"2\", \"3\", \"4\"]"),
                ("sinter a none c", "[]"),
                (
                    "sunion a b none c",
                    "[\"1\", \"2\", \"3\", \"4\", \"5\", \"6\"]",
                ),
                ("sdiff a b", "[\"1\", \"2\"]"),
                ("sdiff a none b c", "[\"1\", \"2\"]"),
                ("sdiff a a", "[]"),
                ("sdiff a b none a a", "[]"),
                ("sdiff a b b b", "[\"1\", \"2\"]"),
                ("sinter a b a b a", "[\"3\", \"4\"]"),
                ("sintercard 4 a b a b", "2"),
                ("sdiff none a", "[]"),
                ("sintercard 2 a b", "2"),
                ("sintercard 2 a b limit 1", "1"),
                ("sintercard 2 a b limit 0", "2"),
                ("sintercard 2 a none", "0"),
                (
                    "sintercard 0 a",
                    "(error) ERR numkeys should be greater than 0",
                ),
                (
                    "sintercard x a",
                    "(error) ERR numkeys should be greater than 0",
                ),
                (
                    "sintercard 2 a",
                    "(error) ERR Number of keys can't be greater than number of args",
                ),
                ("sintercard 1 a b", "(error) ERR syntax error"),
                ("sintercard 1 a limit", "(error) ERR syntax error"),
                (
                    "sintercard 1 a limit -1",
                    "(error) ERR LIMIT can't be negative",
                ),
                ("sinterstore to a b", "2"),
                ("smembers to", "[\"3\", \"4\"]"),
                ("sunionstore to to c", "4"),
                ("sdiffstore to to b", "1"),
                ("smembers to", "[\"6\"]"),
                ("sinterstore to to a", "0"),
                ("exists to", "0"),
                ("sunionstore to none", "0"),
                ("sdiffstore a a a b", "0"),
                ("exists a", "0"),
                ("command getkeys sintercard 2 a b limit 1", "[\"a\", \"b\"]"),
                (
                    "command getkeys sintercard 3 a b",
                    "(error) ERR Invalid arguments specified for command",
                ),
            ],
        );
    });
}

#[test]
fn a_set_is_made_of_more_keys_than_a_transaction_has() {
    on_servers(|server| {
        let mut client = server.word_client();
        let names: Vec<_> = (0..200).map(|number| format!("k{number}")).collect();
        for name in &names {
            client.call(&format!("sadd {name} all {name}"));
        }
        let all = names.join(" ");
        assert_eq!(client.call(&format!("sinterstore to {all}")), "1");
        assert_eq!(client.call(&format!("sunionstore to {all}")), "201");
        assert_eq!(client.call("scard to"), "201");
    });
}

#[test]
fn a_key_that_is_too_long_is_absent() {
    on_servers(|server| {
        let mut client = server.word_client();
        let long = "k".repeat(1025);
        let refused = "(error) ERR the key has 1025 bytes, and a key has at most 1024: use a shorter \
                       one, for example a hash of it";
        expect_sorted(
            &mut client,
            &[
                ("sadd a 1 2", "2"),
                (&format!("sinter a {long}"), "[]"),
                (&format!("sinter {long}"), "[]"),
                (&format!("sunion {long} a"), "[\"1\", \"2\"]"),
                (&format!("sdiff a {long}"), "[\"1\", \"2\"]"),
                (&format!("sdiff {long} a"), "[]"),
                (&format!("sintercard 2 {long} a"), "0"),
                (&format!("sunionstore to {long} a"), "2"),
                (&format!("sinterstore to a {long}"), "0"),
                ("exists to", "0"),
                (&format!("sdiffstore {long} a"), refused),
                (&format!("sunionstore {long} {long} a"), refused),
            ],
        );
    });
}

/// Sets of many pages, some in other shards, against sorted ones.
#[test]
fn large_sets_are_made_of_several() {
    const MEMBERS: usize = 20_000;
    let served = Served::roomy(2);
    let mut client = served.word_client();
    // Every second number, every third, and few.
    let sets: [BTreeSet<String>; 3] = [
        (0..MEMBERS)
            .step_by(2)
            .map(|number| number.to_string())
            .collect(),
        (0..MEMBERS)
            .step_by(3)
            .map(|number| number.to_string())
            .collect(),
        (0..MEMBERS)
            .step_by(1000)
            .map(|number| number.to_string())
            .collect(),
    ];
    for (place, set) in sets.iter().enumerate() {
        let all: Vec<_> = set.iter().map(String::as_str).collect();
        for some in all.chunks(2_000) {
            let added = client.call(&format!("sadd s{place} {}", some.join(" ")));
            assert_eq!(added, some.len().to_string());
        }
        let expected: BTreeSet<_> = set.clone();
        assert_eq!(
            members(&client.call(&format!("smembers s{place}"))),
            expected
        );
        assert_eq!(
            client.call(&format!("scard s{place}")),
            set.len().to_string()
        );
    }
    let [twos, threes, few] = &sets;
    let common: BTreeSet<_> = twos.intersection(threes).cloned().collect();
    let union: BTreeSet<_> = twos.union(threes).chain(few).cloned().collect();
    let left: BTreeSet<_> = twos.difference(threes).cloned().collect();
    let left: BTreeSet<_> = left.difference(few).cloned().collect();
    for (command, expected) in [
        ("inter", "s0 s1", &common),
        ("union", "s0 s1 s2", &union),
        ("diff", "s0 s1 s2", &left),
    ]
    .map(|(command, keys, expected)| ((command, keys), expected))
    {
        let (command, keys) = command;
        assert_eq!(
            &members(&client.call(&format!("s{command} {keys}"))),
            expected
        );
        let count = expected.len().to_string();
        assert_eq!(client.call("set to string"), "OK");
        assert_eq!(client.call(&format!("s{command}store to {keys}")), count);
        assert_eq!(&members(&client.call("smembers to")), expected);
        assert_eq!(
            client.call(&format!("s{command}store to to {keys}")),
            match command {
                "diff" => "0".to_owned(),
                _ => count,
            }
        );
    }
    let common = common.len();
    assert_eq!(client.call("sintercard 2 s0 s1"), common.to_string());
    assert_eq!(client.call("sintercard 2 s0 s1 limit 700"), "700");
}

#[test]
fn a_member_is_moved_once() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect_sorted(
            &mut client,
            &[
                ("sadd a 1 2", "2"),
                ("smove a b 1", "1"),
                ("smove a b 1", "0"),
                ("smove a b x", "0"),
                ("smove none b x", "0"),
                ("smove a a 2", "1"),
                ("smove a a x", "0"),
                ("smembers a", "[\"2\"]"),
                ("smembers b", "[\"1\"]"),
                ("sadd b 2", "1"),
                ("smove a b 2", "1"),
                ("exists a", "0"),
                ("smembers b", "[\"1\", \"2\"]"),
            ],
        );
        // Each of 200 members is moved by one of the clients that try it, and none is lost.
        let names: Vec<_> = (0..200).map(|number| number.to_string()).collect();
        client.call(&format!("sadd from {}", names.join(" ")));
        let moved: usize = thread::scope(|scope| {
            let movers: Vec<_> = (0..3)
                .map(|number| {
                    let (mut client, names) = (server.word_client(), &names);
                    scope.spawn(move || {
                        let words = names
                            .iter()
                            .map(|name| format!("smove from to{number} {name}"));
                        words.filter(|words| client.call(words) == "1").count()
                    })
                })
                .collect();
            movers
                .into_iter()
                .map(|mover| mover.join().expect("it ends"))
                .sum()
        });
        assert_eq!(moved, names.len());
        assert_eq!(client.call("exists from"), "0");
        let all = client.call("sunion to0 to1 to2");
        assert_eq!(members(&all), names.into_iter().collect());
    });
}

#[test]
fn a_member_that_is_added_stays_while_the_set_is_stored_over_itself() {
    const ROUNDS: usize = 150;
    let mut server = Served::roomy(2);
    let mut client = server.word_client();
    // Some of them lie in another shard than `d`.
    for source in 0..8 {
        client.call(&format!("sadd x{source} {source}"));
    }
    thread::scope(|scope| {
        for adder in 0..2 {
            let mut client = server.word_client();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    assert_eq!(client.call(&format!("sadd d {adder}.{round}")), "1");
                }
            });
        }
        for maker in 0..2 {
            let mut client = server.word_client();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let source = (maker + round) % 8;
                    let made = client.call(&format!("sunionstore d d x{source}"));
                    assert!(made.parse::<usize>().is_ok(), "{made}");
                }
            });
        }
    });
    assert_eq!(client.call("scard d"), (2 * ROUNDS + 8).to_string());
    server.stop();
}
