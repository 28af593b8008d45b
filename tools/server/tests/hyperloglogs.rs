//! Estimates of how many elements were added, of a whole server. Replies to random commands, and
//! the bytes that are stored, are those of Redis 7.0.15, where that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::compared::{arguments, compare, pick};
use self::support::words::{WRONG_TYPE, expect};
use self::support::{Random, Served, on_servers};

const NO_HEADER: &str = "(error) WRONGTYPE Key is not a valid HyperLogLog string value.";
const DAMAGED: &str = "(error) INVALIDOBJ Corrupted HLL object detected";

#[test]
fn elements_are_counted_and_merged() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("pfcount none", "0"),
                ("pfadd e", "1"),
                ("pfadd e", "0"),
                ("pfcount e", "0"),
                ("pfadd a 1 2 3 4 5", "1"),
                ("pfadd a 1 2", "0"),
                ("pfcount a", "5"),
                ("pfadd b 4 5 6 7", "1"),
                ("pfcount a b none", "7"),
                ("expire t 100", "0"),
                ("pfmerge t a b none", "OK"),
                ("pfcount t", "7"),
                ("expire t 100", "1"),
                ("pfadd t 8", "1"),
                ("ttl t", "100"),
                ("pfdebug encoding t", "sparse"),
                ("pfdebug todense t", "1"),
                ("pfdebug todense t", "0"),
                ("pfcount t", "8"),
                ("strlen t", "12304"),
                ("pfmerge a t", "OK"),
                ("pfdebug encoding a", "dense"),
                ("pfselftest", "OK"),
                ("set s x", "OK"),
                ("pfadd s x", NO_HEADER),
                ("pfcount s a", NO_HEADER),
                ("pfmerge s a", NO_HEADER),
                ("sadd set x", "1"),
                ("pfadd set x", WRONG_TYPE),
                ("pfcount set", WRONG_TYPE),
                ("append b hello", "35"),
                ("pfcount b", DAMAGED),
                ("pfmerge t b", DAMAGED),
                ("setrange b 100000 x", "100001"),
                ("pfcount b", DAMAGED),
                ("setrange b 0 X", "100001"),
                ("pfcount b", NO_HEADER),
            ],
        );
    });
}

#[test]
fn elements_of_many_clients_are_all_counted() {
    let served = Served::roomy(2);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let served = &served;
            scope.spawn(move || {
                let mut client_ = served.word_client();
                for number in 0..150 {
                    client_.call(&format!("pfadd many {client}:{number}"));
                }
            });
        }
    });
    let mut client = served.word_client();
    client.call("pfadd one 0");
    for number in 0..600 {
        client.call(&format!("pfadd one {}:{}", number / 150, number % 150));
    }
    client.call("pfadd many 0");
    assert_eq!(
        client.call("pfdebug getreg many"),
        client.call("pfdebug getreg one")
    );
    assert_eq!(client.call("pfcount many"), client.call("pfcount one"));
}

const KEYS: &[&str] = &["h1", "h2", "h3", "h4", "text", "set", "none"];

fn draw(random: &mut Random, number: usize) -> Vec<Vec<u8>> {
    let key = pick(random, KEYS);
    if number % 300 == 299 {
        return arguments(&format!("del {}", pick(random, &KEYS[..4])));
    }
    if number % 100 == 98 {
        // It may be damaged by that, or not.
        let at = random.below(60).to_string();
        let byte = u8::try_from(random.below(256)).unwrap();
        let key = pick(random, &KEYS[3..5]);
        let words = [&b"setrange"[..], key.as_bytes(), at.as_bytes(), &[byte]];
        return words.map(<[u8]>::to_vec).to_vec();
    }
    let keys = |random: &mut Random, count: usize| {
        let keys: Vec<_> = (0..count)
            .map(|_| {
                let any = random.below(6) == 0;
                pick(random, if any { KEYS } else { &KEYS[..3] })
            })
            .collect();
        keys.join(" ")
    };
    let line = match random.below(12) {
        0 => {
            let count = 1 + random.below(3);
            format!("pfcount {}", keys(random, count))
        }
        1 => format!("pfcount {key}"),
        2 => {
            let count = 1 + random.below(4);
            format!("pfmerge {}", keys(random, count))
        }
        3 | 4 => format!("get {}", pick(random, &KEYS[..5])),
        5 => match random.below(8) {
            0 => format!("pfdebug todense {key}"),
            1 | 2 => format!("pfdebug decode {key}"),
            3 => format!("pfdebug getreg {key}"),
            4 => format!("pfdebug bad {key}"),
            _ => format!("pfdebug encoding {key}"),
        },
        _ => {
            let mut line = format!("pfadd {key}");
            let range = [10, 1_000, 1_000_000][random.below(3)];
            let most = [3, 10, 60][random.below(3)];
            for _ in 0..random.below(most) {
                line += &format!(" {}", random.below(range));
            }
            line
        }
    };
    arguments(&line)
}

#[test]
fn replies_to_random_commands_are_those_of_redis() {
    compare(&["set text words", "sadd set x"], draw);
}
