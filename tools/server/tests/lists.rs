//! Lists of a whole server: their commands, their type beside others, and clients that change one
//! list at once.

mod support;

use std::collections::VecDeque;
use std::thread;

use self::support::words::{WRONG_TYPE, expect};
use self::support::{Random, on_servers};

#[test]
fn elements_are_added_and_taken_at_both_ends() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("rpushx l x", "0"),
                ("lpushx l x", "0"),
                ("exists l", "0"),
                ("lpush l b a", "2"),
                ("rpush l c d", "4"),
                ("lpushx l 1 2", "6"),
                ("rpushx l e", "7"),
                (
                    "lrange l 0 -1",
                    "[\"2\", \"1\", \"a\", \"b\", \"c\", \"d\", \"e\"]",
                ),
                ("llen l", "7"),
                ("lpop l", "\"2\""),
                ("rpop l", "\"e\""),
                ("lpop l 2", "[\"1\", \"a\"]"),
                ("rpop l 2", "[\"d\", \"c\"]"),
                ("lpop l 0", "[]"),
                ("rpop l 100", "[\"b\"]"),
                ("exists l", "0"),
                ("llen l", "0"),
                ("lpop l", "nil"),
                ("rpop l 0", "nil"),
                ("rpop l 1", "nil"),
                (
                    "lpop l -1",
                    "(error) ERR value is out of range, must be positive",
                ),
                (
                    "rpop l x",
                    "(error) ERR value is out of range, must be positive",
                ),
                (
                    "lpop l 1 2",
                    "(error) ERR wrong number of arguments for 'lpop' command",
                ),
            ],
        );
    });
}

#[test]
fn elements_are_read_replaced_and_removed() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("lindex l 0", "nil"),
                ("lrange l 0 -1", "[]"),
                ("lset l 0 x", "(error) ERR no such key"),
                ("linsert l before a x", "0"),
                ("lrem l 0 a", "0"),
                ("ltrim l 0 1", "OK"),
                ("rpush l a b c b a", "5"),
                ("lindex l 0", "\"a\""),
                ("lindex l -2", "\"b\""),
                ("lindex l 5", "nil"),
                ("lindex l -9223372036854775808", "nil"),
                ("lrange l -3 -2", "[\"c\", \"b\"]"),
                ("lrange l 3 100", "[\"b\", \"a\"]"),
                ("lrange l 4 3", "[]"),
                ("lrange l -100 0", "[\"a\"]"),
                ("lset l -1 z", "OK"),
                ("lset l 5 x", "(error) ERR index out of range"),
                ("lset l -6 x", "(error) ERR index out of range"),
                ("linsert l after b n", "6"),
                ("linsert l before a m", "7"),
                ("linsert l before none x", "-1"),
                ("linsert l beside a x", "(error) ERR syntax error"),
                (
                    "lrange l 0 -1",
                    "[\"m\", \"a\", \"b\", \"n\", \"c\", \"b\", \"z\"]",
                ),
                ("lrem l -1 b", "1"),
                ("lrem l 5 b", "1"),
                ("lrem l 0 b", "0"),
                ("lrange l 0 -1", "[\"m\", \"a\", \"n\", \"c\", \"z\"]"),
                ("ltrim l 1 -2", "OK"),
                ("lrange l 0 -1", "[\"a\", \"n\", \"c\"]"),
                ("ltrim l 2 1", "OK"),
                ("exists l", "0"),
                ("rpush l a a", "2"),
                ("lrem l 0 a", "2"),
                ("exists l", "0"),
            ],
        );
    });
}

#[test]
fn places_of_elements_are_found() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("rpush l a b c 1 2 3 c c", "8"),
                ("lpos l c", "2"),
                ("lpos l c rank 2", "6"),
                ("lpos l c rank -1", "7"),
                ("lpos l x", "nil"),
                ("lpos none c", "nil"),
                ("lpos none c count 0", "[]"),
                ("lpos l c count 0", "[2, 6, 7]"),
                ("lpos l c count 2 rank -1", "[7, 6]"),
                ("lpos l c count 0 maxlen 7 rank 2", "[6]"),
                ("lpos l c maxlen 2", "nil"),
                ("lpos l c count -1", "(error) ERR COUNT can't be negative"),
                ("lpos l c maxlen -1", "(error) ERR MAXLEN can't be negative"),
                ("lpos l c rank", "(error) ERR syntax error"),
                (
                    "lpos l c rank x",
                    "(error) ERR value is not an integer or out of range",
                ),
            ],
        );
        let zero = client.call("lpos l c rank 0");
        assert!(zero.starts_with("(error) ERR RANK can't be zero"), "{zero}");
    });
}

/// Pairs of keys: of one list, of two in one shard, and of any two.
const PAIRS: [(&str, &str); 3] = [("a{x}", "a{x}"), ("a{x}", "b{x}"), ("a", "b")];

#[test]
fn an_element_is_moved_between_any_two_lists() {
    on_servers(|server| {
        let mut client = server.word_client();
        for other in ["b", "c", "d", "e", "f", "g"] {
            client.call("rpush a 1 2 3");
            assert_eq!(client.call(&format!("lmove a {other} left right")), "\"1\"");
            assert_eq!(client.call(&format!("rpoplpush a {other}")), "\"3\"");
            assert_eq!(
                client.call(&format!("lmove a {other} right right")),
                "\"2\""
            );
            assert_eq!(client.call("exists a"), "0");
            assert_eq!(client.call(&format!("lmove a {other} right right")), "nil");
            let moved = client.call(&format!("lrange {other} 0 -1"));
            assert_eq!(moved, "[\"3\", \"1\", \"2\"]");
        }
        expect(
            &mut client,
            &[
                ("rpush l 1 2 3", "3"),
                ("lmove l l left right", "\"1\""),
                ("rpoplpush l l", "\"1\""),
                ("lmove l l left left", "\"1\""),
                ("lrange l 0 -1", "[\"1\", \"2\", \"3\"]"),
                ("rpush one 1", "1"),
                ("rpoplpush one one", "\"1\""),
                ("lrange one 0 -1", "[\"1\"]"),
                ("lmove l l up down", "(error) ERR syntax error"),
                ("set s 1", "OK"),
                ("lmove s l left left", WRONG_TYPE),
                ("lmove l s left left", WRONG_TYPE),
                ("rpoplpush none s", "nil"),
                ("lrange l 0 -1", "[\"1\", \"2\", \"3\"]"),
            ],
        );
    });
}

#[test]
fn elements_are_taken_from_the_first_list_that_has_some() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("lmpop 2 a b left", "nil"),
                ("rpush b 1 2 3 4", "4"),
                ("lmpop 2 a b left", "[\"b\", [\"1\"]]"),
                ("lmpop 2 a b right count 2", "[\"b\", [\"4\", \"3\"]]"),
                ("lmpop 2 b a right count 9", "[\"b\", [\"2\"]]"),
                ("exists b", "0"),
                (
                    "lmpop 0 a left",
                    "(error) ERR numkeys should be greater than 0",
                ),
                (
                    "lmpop x a left",
                    "(error) ERR numkeys should be greater than 0",
                ),
                ("lmpop 3 a b left", "(error) ERR syntax error"),
                ("lmpop 1 a up", "(error) ERR syntax error"),
                (
                    "lmpop 1 a left count 0",
                    "(error) ERR count should be greater than 0",
                ),
                ("lmpop 1 a left count", "(error) ERR syntax error"),
                ("set s 1", "OK"),
                ("lmpop 2 s a left", WRONG_TYPE),
            ],
        );
    });
}

#[test]
fn lists_are_told_apart_from_other_types() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("rpush l a b", "2"),
                ("set s 1", "OK"),
                ("hset h f v", "1"),
                ("type l", "list"),
                ("scan 0 type list count 1000", "[\"0\", [\"l\"]]"),
                ("mget l s", "[nil, \"1\"]"),
            ],
        );
        for words in [
            "get l",
            "append l x",
            "incr l",
            "strlen l",
            "setrange l 0 x",
            "setbit l 0 1",
            "hget l f",
            "hset l f v",
            "hgetall l",
        ] {
            assert_eq!(client.call(words), WRONG_TYPE, "{words}");
        }
        for key in ["s", "h"] {
            for words in [
                "lpush KEY x",
                "rpushx KEY x",
                "lpop KEY",
                "rpop KEY 2",
                "llen KEY",
                "lindex KEY 0",
                "lrange KEY 0 -1",
                "lpos KEY x",
                "lset KEY 0 x",
                "linsert KEY before a b",
                "lrem KEY 0 a",
                "ltrim KEY 0 1",
                "blpop none KEY 0",
                "blmove KEY l left right 0",
            ] {
                let words = words.replace("KEY", key);
                assert_eq!(client.call(&words), WRONG_TYPE, "{words}");
            }
        }
        expect(
            &mut client,
            &[
                ("copy l l2", "1"),
                ("rename l2 l3", "OK"),
                ("lrange l3 0 -1", "[\"a\", \"b\"]"),
                ("set l3 text", "OK"),
                ("type l3", "string"),
                ("del l", "1"),
            ],
        );
    });
}

#[test]
fn a_change_keeps_the_expiry() {
    on_servers(|server| {
        let mut client = server.word_client();
        client.call("rpush l a b c");
        assert_eq!(client.call("expire l 1000"), "1");
        for words in [
            "lpush l x",
            "lpop l",
            "lset l 0 y",
            "ltrim l 0 1",
            "lmove l l left right",
        ] {
            client.call(words);
            let left: u64 = client.call("ttl l").parse().expect("seconds");
            assert!((900..=1000).contains(&left), "{words}: {left}");
        }
    });
}

#[test]
fn a_list_has_any_length_and_an_element_a_limit() {
    on_servers(|server| {
        let mut client = server.word_client();
        let element = vec![b'v'; 20_000];
        // More than a record may have.
        for elements in 1..=200 {
            client.send(&[b"RPUSH", b"l", &element]);
            assert_eq!(client.reply(), elements.to_string());
        }
        assert_eq!(client.call("llen l"), "200");
        client.send(&[b"LPOS", b"l", &element, b"RANK", b"-1"]);
        assert_eq!(client.reply(), "199");
        let last = client.call("rpoplpush l other");
        assert_eq!(last.len(), element.len() + 2);
        let long = vec![b'v'; 65_000];
        for words in [
            &[&b"RPUSH"[..], b"l", &long][..],
            &[b"LPUSHX", b"l", b"a", &long],
            &[b"LSET", b"l", b"0", &long],
            &[b"LINSERT", b"l", b"BEFORE", &element, &long],
        ] {
            client.send(words);
            let refused = client.reply();
            let prefix = "(error) ERR an element of a list has at most ";
            assert!(refused.starts_with(prefix), "{refused}");
        }
        assert_eq!(client.call("llen l"), "199");
    });
}

/// What is left to do after the answer to a command is done before the commands behind it.
#[test]
fn commands_of_long_lists_in_a_pipeline_see_those_before_them() {
    const ELEMENTS: usize = 20_000;
    on_servers(|server| {
        let mut client = server.word_client();
        let elements: Vec<_> = (0..ELEMENTS).map(|one| format!("{one:0>20}")).collect();
        let whole = format!("rpush l {}", elements.join(" "));
        let shown = |elements: &[String]| {
            let elements: Vec<_> = elements.iter().map(|one| format!("\"{one}\"")).collect();
            format!("[{}]", elements.join(", "))
        };
        for _ in 0..5 {
            let replies = client.call_all(&[
                &whole,
                "lrange l 0 -1",
                "lpop l",
                "lrange l 1 -1",
                "ltrim l 100 -101",
                "llen l",
                "lindex l 0",
                "rpop l 15000",
                "llen l",
                "lset l 5000 x",
                "rpush l y",
                "del l",
            ]);
            assert_eq!(replies[0], ELEMENTS.to_string());
            assert_eq!(replies[1], shown(&elements));
            assert_eq!(replies[3], shown(&elements[2..]));
            assert_eq!((&replies[4][..], &replies[5][..]), ("OK", "19799"));
            assert_eq!(replies[6], format!("\"{}\"", elements[101]));
            let mut popped = elements[4900..19900].to_vec();
            popped.reverse();
            assert_eq!(replies[7], shown(&popped));
            assert_eq!(replies[8], "4799");
            assert_eq!(replies[9], "(error) ERR index out of range");
            assert_eq!((&replies[10][..], &replies[11][..]), ("4800", "1"));
        }
    });
}

/// A reader sees one moment of a list that others change all the time.
#[test]
fn a_long_read_is_of_one_moment() {
    const ROUNDS: usize = 30;
    on_servers(|server| {
        let mut client = server.word_client();
        let element = "e".repeat(50);
        let elements = vec![&element[..]; 1_000].join(" ");
        for _ in 0..5 {
            client.call(&format!("rpush l {elements}"));
        }
        client.call("rpush l 0");
        client.call("lpush l 0");
        let done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let mut writer = server.word_client();
            let done = &done;
            scope.spawn(move || {
                // The head is never behind the tail, and not by more than one.
                for round in 1.. {
                    writer.call(&format!("lset l 0 {round}"));
                    writer.call(&format!("lset l -1 {round}"));
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..ROUNDS {
                let all = client.call("lrange l 0 -1");
                let all: Vec<_> = all.trim_matches(['[', ']']).split(", ").collect();
                assert_eq!(all.len(), 5_002);
                let number = |text: &str| -> u64 {
                    let text = text.trim_matches('"');
                    text.parse().expect("a number")
                };
                let (head, tail) = (number(all[0]), number(all[5_001]));
                assert!(head == tail || head == tail + 1, "{head} {tail}");
                // Not found, whatever others write.
                assert_eq!(client.call("lpos l none"), "nil");
                assert_eq!(client.call("linsert l before none x"), "-1");
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

#[test]
fn lists_in_transactions_are_carried_out() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("watch l", "OK"),
                ("multi", "OK"),
                ("rpush l a b c", "QUEUED"),
                ("lpop l", "QUEUED"),
                ("lrange l 0 -1", "QUEUED"),
                ("lmove l m left right", "QUEUED"),
                ("blpop m 0", "QUEUED"),
                ("blpop m none 0", "QUEUED"),
                ("blmove m l left right 0", "QUEUED"),
                ("get l", "QUEUED"),
                (
                    "exec",
                    &format!(
                        "[3, \"a\", [\"b\", \"c\"], \"b\", [\"m\", \"b\"], nil, nil, {WRONG_TYPE}]"
                    ),
                ),
                ("watch l", "OK"),
                ("rpush l x", "2"),
                ("multi", "OK"),
                ("lpop l", "QUEUED"),
                ("exec", "nil"),
                ("llen l", "2"),
            ],
        );
    });
}

#[test]
fn replies_of_a_pipeline_are_in_order() {
    on_servers(|server| {
        let mut client = server.word_client();
        let commands: Vec<_> = (0..200)
            .flat_map(|number| {
                [
                    format!("rpush k{} {number}", number % 3),
                    format!("set s{number} {number}"),
                    format!("lpop k{}", number % 3),
                    format!("lpos k{} a-long-element-that-is-not-there", number % 3),
                    format!("get s{number}"),
                ]
            })
            .collect();
        let commands: Vec<_> = commands.iter().map(String::as_str).collect();
        let replies = client.call_all(&commands);
        for (number, replies) in replies.chunks_exact(5).enumerate() {
            let value = format!("\"{number}\"");
            assert_eq!(replies, ["1", "OK", &value, "nil", &value]);
        }
    });
}

/// Each element that was added is taken once, and moved ones are neither lost nor doubled.
#[test]
fn elements_of_several_clients_are_taken_once() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 150;
    on_servers(|server| {
        for (from, to) in PAIRS {
            let taken: Vec<String> = thread::scope(|scope| {
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|number| {
                        let mut client = server.word_client();
                        scope.spawn(move || {
                            let mut taken = Vec::new();
                            for round in 0..ROUNDS {
                                client.call(&format!("rpush {from} {number}-{round}"));
                                client.call(&format!("lmove {from} {to} left right"));
                                if round % 2 == 1 {
                                    taken.push(client.call(&format!("lpop {to}")));
                                }
                            }
                            taken
                        })
                    })
                    .collect();
                (clients.into_iter())
                    .flat_map(|client| client.join().expect("it ends"))
                    .filter(|element| element != "nil")
                    .collect()
            });
            let mut client = server.word_client();
            let mut all = taken;
            for key in [from, to] {
                let left = client.call(&format!("lpop {key} 100000"));
                let left = left.trim_matches(['[', ']']).split(", ");
                all.extend(left.filter(|one| *one != "nil").map(str::to_owned));
            }
            all.sort();
            let mut pushed: Vec<_> = (0..CLIENTS)
                .flat_map(|number| (0..ROUNDS).map(move |round| format!("\"{number}-{round}\"")))
                .collect();
            pushed.sort();
            assert_eq!(all, pushed, "{from} to {to}");
        }
    });
}

#[test]
fn encodings_are_named_as_redis_would_choose() {
    on_servers(|server| {
        let mut client = server.word_client();
        client.call("rpush small a b c");
        for _ in 0..3 {
            client.call(&format!("rpush large {}", "v".repeat(4000)));
        }
        expect(
            &mut client,
            &[
                ("object encoding small", "\"listpack\""),
                ("object encoding large", "\"quicklist\""),
                (
                    "config get list-max-listpack-size",
                    "[\"list-max-listpack-size\", \"-2\"]",
                ),
                ("config set list-max-ziplist-size 2", "OK"),
                ("object encoding small", "\"quicklist\""),
                ("config set list-max-listpack-size -3", "OK"),
                ("object encoding large", "\"listpack\""),
            ],
        );
        let refused = client.call("config set list-max-listpack-size x");
        assert!(refused.contains("couldn't be parsed"), "{refused}");
        let refused = client.call("config set list-compress-depth -1");
        assert!(refused.contains("between 0 and 2147483647"), "{refused}");
    });
}

/// A list has what a deque says of it, after random changes.
#[test]
fn a_list_is_a_deque() {
    on_servers(|server| {
        let mut client = server.word_client();
        let mut random = Random::new();
        let mut model: VecDeque<String> = VecDeque::new();
        let shown = |one: Option<String>| one.map_or("nil".to_owned(), |one| format!("\"{one}\""));
        for round in 0..1_500 {
            let element = format!("{}{}", "v".repeat(random.below(150)), round % 7);
            match random.below(7) {
                0 => {
                    model.push_front(element.clone());
                    let length = client.call(&format!("lpush l {element}"));
                    assert_eq!(length, model.len().to_string());
                }
                1 | 2 => {
                    model.push_back(element.clone());
                    let length = client.call(&format!("rpush l {element}"));
                    assert_eq!(length, model.len().to_string());
                }
                3 => assert_eq!(client.call("lpop l"), shown(model.pop_front())),
                4 => assert_eq!(client.call("rpop l"), shown(model.pop_back())),
                5 => {
                    let place = random.below(20);
                    let held = shown(model.get(place).cloned());
                    assert_eq!(client.call(&format!("lindex l {place}")), held);
                }
                _ => {
                    let place = random.below(20);
                    let reply = client.call(&format!("lset l {place} {element}"));
                    match model.get_mut(place) {
                        Some(held) => {
                            *held = element;
                            assert_eq!(reply, "OK");
                        }
                        None => assert!(reply.starts_with("(error)"), "{reply}"),
                    }
                }
            }
        }
        let all: Vec<_> = model.iter().map(|one| format!("\"{one}\"")).collect();
        assert_eq!(
            client.call("lrange l 0 -1"),
            format!("[{}]", all.join(", "))
        );
    });
}

/// The elements from one index to another, as Redis counts.
fn places(length: usize, first: i64, last: i64) -> std::ops::Range<usize> {
    let length = i64::try_from(length).expect("few");
    let from_head = |index: i64| if index < 0 { index + length } else { index };
    let start = from_head(first).clamp(0, length);
    let end = (from_head(last) + 1).clamp(start, length);
    let place = |place: i64| usize::try_from(place).expect("within");
    place(start)..place(end)
}

fn shown<'a>(elements: impl Iterator<Item = &'a String>) -> String {
    let elements: Vec<_> = elements.map(|one| format!("\"{one}\"")).collect();
    format!("[{}]", elements.join(", "))
}

/// Removes what `LREM` does; returns how many.
fn remove(model: &mut VecDeque<String>, element: &str, count: i64) -> usize {
    let mut found: Vec<_> = (0..model.len())
        .filter(|&at| model[at] == element)
        .collect();
    if count < 0 {
        found.reverse();
    }
    if count != 0 {
        found.truncate(usize::try_from(count.unsigned_abs()).expect("few"));
    }
    found.sort_unstable();
    for &place in found.iter().rev() {
        model.remove(place);
    }
    found.len()
}

/// Every command, on lists of one element and of twenty thousand.
#[test]
#[expect(clippy::too_many_lines, reason = "one arm per command")]
fn a_list_of_any_length_is_a_deque() {
    const MOST: usize = 20_000;
    on_servers(|server| {
        let mut client = server.word_client();
        let mut random = Random::new();
        let (mut model, mut other): (VecDeque<String>, VecDeque<String>) = Default::default();
        for round in 0..900 {
            let length = model.len();
            let signed = i64::try_from(length).expect("few");
            let index = |random: &mut Random| {
                let index = i64::try_from(random.below(2 * length + 8)).expect("few");
                index - signed - 4
            };
            let element = format!("{}{}", "v".repeat(random.below(40)), random.below(30));
            match random.below(14) {
                0..4 if length < MOST => {
                    let count = [1, 2, 9, 200, 3_000][random.below(5)];
                    let some: Vec<_> = (0..count)
                        .map(|at| format!("{element}{}", at % 7))
                        .collect();
                    let front = random.below(2) == 0;
                    let name = if front { "lpush" } else { "rpush" };
                    let reply = client.call(&format!("{name} l {}", some.join(" ")));
                    for one in some {
                        if front {
                            model.push_front(one);
                        } else {
                            model.push_back(one);
                        }
                    }
                    assert_eq!(reply, model.len().to_string(), "{round}");
                }
                0..5 => {
                    let count = [0, 1, 5, 700, 9_000][random.below(5)];
                    let front = random.below(2) == 0;
                    let name = if front { "lpop" } else { "rpop" };
                    let reply = client.call(&format!("{name} l {count}"));
                    let taken: Vec<_> = (0..count.min(length))
                        .filter_map(|_| match front {
                            true => model.pop_front(),
                            false => model.pop_back(),
                        })
                        .collect();
                    let expected = match length {
                        0 => "nil".to_owned(),
                        _ => shown(taken.iter()),
                    };
                    assert_eq!(reply, expected, "{round}");
                }
                5 => {
                    let (first, last) = (index(&mut random), index(&mut random));
                    let reply = client.call(&format!("lrange l {first} {last}"));
                    let kept = places(length, first, last);
                    let expected = shown(model.range(kept));
                    assert_eq!(reply, expected, "{round}: {first} {last} of {length}");
                }
                6 if random.below(6) == 0 => {
                    let (first, last) = (index(&mut random), index(&mut random));
                    assert_eq!(client.call(&format!("ltrim l {first} {last}")), "OK");
                    model = model.range(places(length, first, last)).cloned().collect();
                }
                6 => {
                    assert_eq!(client.call("ltrim l 1 -2"), "OK");
                    model = model.range(places(length, 1, -2)).cloned().collect();
                }
                7 => {
                    let index = index(&mut random);
                    let place = places(length, index, index);
                    let is_there = (-signed..signed).contains(&index);
                    let held = match is_there {
                        true => format!("\"{}\"", model[place.start]),
                        false => "nil".to_owned(),
                    };
                    assert_eq!(client.call(&format!("lindex l {index}")), held, "{round}");
                    let reply = client.call(&format!("lset l {index} {element}"));
                    if is_there {
                        model[place.start] = element;
                        assert_eq!(reply, "OK");
                    } else {
                        assert!(reply.starts_with("(error) ERR "), "{reply}");
                    }
                }
                8 => {
                    let pivot = match random.below(4) {
                        0 => "none".to_owned(),
                        _ if length > 0 => model[random.below(length)].clone(),
                        _ => continue,
                    };
                    let place = model.iter().position(|one| *one == pivot);
                    let behind = random.below(2);
                    let word = ["before", "after"][behind];
                    let reply = client.call(&format!("linsert l {word} {pivot} {element}"));
                    let expected = match place {
                        Some(place) => {
                            model.insert(place + behind, element);
                            (length + 1).to_string()
                        }
                        None if length == 0 => "0".to_owned(),
                        None => "-1".to_owned(),
                    };
                    assert_eq!(reply, expected, "{round}");
                }
                9 if length > 0 => {
                    let element = model[random.below(length)].clone();
                    let count = [0, 1, -1, 3, -3, 50, -50][random.below(7)];
                    let removed = remove(&mut model, &element, count);
                    let reply = client.call(&format!("lrem l {count} {element}"));
                    assert_eq!(reply, removed.to_string(), "{round}");
                }
                10 if length > 0 => {
                    let element = model[random.below(length)].clone();
                    let rank = [1, -1, 2, -2][random.below(4)];
                    let found = (0..length).filter(|&at| model[at] == element);
                    let mut found: Vec<_> = found.map(|at| at.to_string()).collect();
                    if rank < 0 {
                        found.reverse();
                    }
                    let skipped = usize::from(i64::abs(rank) == 2);
                    let expected = format!("[{}]", found[skipped..].join(", "));
                    let reply = client.call(&format!("lpos l {element} rank {rank} count 0"));
                    assert_eq!(reply, expected, "{round}");
                }
                11 | 12 => {
                    let (from, to) = (random.below(2), random.below(2));
                    let sides = ["left", "right"];
                    let target = ["l", "m{l}", "n"][random.below(3)];
                    let words = format!("lmove l {target} {} {}", sides[from], sides[to]);
                    let reply = client.call(&words);
                    let moved = [VecDeque::pop_front, VecDeque::pop_back][from](&mut model);
                    let expected = moved.as_ref();
                    let expected = expected.map_or("nil".to_owned(), |one| format!("\"{one}\""));
                    assert_eq!(reply, expected, "{round}: {words}");
                    let into = if target == "l" {
                        &mut model
                    } else {
                        &mut other
                    };
                    if let Some(moved) = moved {
                        [VecDeque::push_front, VecDeque::push_back][to](into, moved);
                    }
                    if target != "l" {
                        let all = client.call(&format!("lrange {target} 0 -1"));
                        assert_eq!(all, shown(other.iter()), "{round}");
                        client.call(&format!("del {target}"));
                        other.clear();
                    }
                }
                _ => assert_eq!(client.call("llen l"), length.to_string(), "{round}"),
            }
        }
        assert_eq!(client.call("lrange l 0 -1"), shown(model.iter()));
        client.call("ltrim l 1 0");
        assert_eq!(client.call("exists l"), "0");
    });
}

#[test]
fn an_element_goes_to_one_client_though_its_list_is_renamed() {
    const ROUNDS: usize = 300;
    on_servers(|server| {
        for rename in ["renamenx", "rename"] {
            let taken: usize = thread::scope(|scope| {
                let mut taker = server.word_client();
                let mut renamer = server.word_client();
                let (started, starts) = std::sync::mpsc::sync_channel(0);
                let taker = scope.spawn(move || {
                    let mut taken = 0;
                    for round in starts {
                        let element = taker.call(&format!("lpop {rename}{round}"));
                        taken += usize::from(element != "nil");
                    }
                    taken
                });
                for round in 0..ROUNDS {
                    renamer.call(&format!("rpush {rename}{round} a b"));
                    started.send(round).unwrap();
                    renamer.call(&format!("{rename} {rename}{round} to{rename}{round}"));
                }
                drop(started);
                taker.join().unwrap()
            });
            let mut client = server.word_client();
            let mut left = 0;
            for round in 0..ROUNDS {
                for name in [format!("{rename}{round}"), format!("to{rename}{round}")] {
                    left += client
                        .call(&format!("llen {name}"))
                        .parse::<usize>()
                        .unwrap();
                    client.call(&format!("del {name}"));
                }
            }
            assert_eq!(taken + left, 2 * ROUNDS, "{rename}");
        }
    });
}
