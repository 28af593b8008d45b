//! Commands of bits of a whole server. Replies to random commands are those of Redis 7.0.15, where
//! that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::compared::{arguments, compare, pick};
use self::support::long_values::{shown, value};
use self::support::words::{WRONG_TYPE, expect};
use self::support::{Random, Served, on_servers};

#[test]
fn fields_and_bits_are_read_changed_and_combined() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("set k \u{1}a", "OK"),
                ("bitpos k 1", "7"),
                ("bitpos k 0 1 1", "8"),
                ("bitpos none 1", "-1"),
                ("bitpos none 0 x", "0"),
                ("bitcount none x y", "0"),
                ("bitpos k 2", "(error) ERR The bit argument must be 1 or 0."),
                ("bitfield f set u8 0 200 incrby u8 0 100", "[0, 44]"),
                ("bitfield f overflow fail incrby u8 0 250", "[nil]"),
                (
                    "bitfield f overflow sat incrby u8 0 250 get i8 0",
                    "[255, -1]",
                ),
                ("bitfield_ro f get u4 #1 get u8 100", "[15, 0]"),
                (
                    "bitfield_ro f set u4 0 1",
                    "(error) ERR BITFIELD_RO only supports the GET subcommand",
                ),
                // As Redis, the value is as long as what could have been written.
                ("bitfield g overflow fail set u4 9 100", "[nil]"),
                ("strlen g", "2"),
                ("bitfield none get u8 0", "[0]"),
                ("exists none", "0"),
                ("set a abc", "OK"),
                ("set b a", "OK"),
                ("bitop and t a b none", "3"),
                ("get t", "\"\\x00\\x00\\x00\""),
                ("bitop or t a b", "3"),
                ("get t", "\"abc\""),
                ("bitop xor t a b", "3"),
                ("get t", "\"\\x00bc\""),
                ("bitop not t a", "3"),
                ("get t", "\"\\x9e\\x9d\\x9c\""),
                ("bitop or t none", "0"),
                ("exists t", "0"),
                ("sadd s x", "1"),
                ("bitop or t a s", WRONG_TYPE),
                ("bitfield s get u8 0", WRONG_TYPE),
                ("bitpos s 1", WRONG_TYPE),
                ("bitpos s 1 x", WRONG_TYPE),
                ("bitop or s a", "3"),
            ],
        );
    });
}

#[test]
fn long_values_are_changed_and_combined() {
    let served = Served::vast(2);
    let mut client = served.client();
    let (one, other) = (value(300_000, 1), value(500_000, 2));
    for (key, value) in [(&b"one"[..], &one), (b"other", &other)] {
        assert_eq!(shown(&mut client, &[b"SET", key, value]), "+OK");
    }
    assert_eq!(client.say("BITOP XOR made one other"), ":500000");
    let mut expected = other.clone();
    expected
        .iter_mut()
        .zip(&one)
        .for_each(|(byte, one)| *byte ^= one);
    support::long_values::expect_value(&mut client, "made", &expected);
    let at = 250_000 * 8 + 3;
    let before = u64::from_be_bytes(expected[250_000..250_008].try_into().unwrap());
    let field = (before << 3) >> 32;
    assert_eq!(
        client.say(&format!(
            "BITFIELD made GET u32 {at} SET u32 {at} 7 GET u32 {at}"
        )),
        format!("[:{field}, :{field}, :7]")
    );
    let after = (before & !(0xffff_ffff << 29)) | (7 << 29);
    expected[250_000..250_008].copy_from_slice(&after.to_be_bytes());
    support::long_values::expect_value(&mut client, "made", &expected);
    assert_eq!(client.say("SETRANGE zeros 400000 x"), ":400001");
    assert_eq!(client.say("BITPOS zeros 1"), ":3200001");
    assert_eq!(client.say("BITPOS zeros 1 0 399999"), ":-1");
    assert_eq!(client.say("BITOP NOT ones zeros"), ":400001");
    assert_eq!(client.say("BITPOS ones 0"), ":3200001");
}

#[test]
fn changes_by_many_clients_are_all_made() {
    const CLIENTS: usize = 4;
    const CHANGES: usize = 200;
    let served = Served::roomy(2);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let served = &served;
            scope.spawn(move || {
                let mut client = served.word_client();
                for _ in 0..CHANGES {
                    client.call("bitfield counters incrby u32 #0 1 incrby i16 #9 -1");
                }
            });
        }
    });
    let mut client = served.word_client();
    let all = CLIENTS * CHANGES;
    assert_eq!(
        client.call("bitfield_ro counters get u32 0 get i16 #9"),
        format!("[{all}, -{all}]")
    );
}

#[test]
fn changes_of_bits_send_events() {
    let server = Served::start(1);
    let (mut client, mut watcher) = (server.word_client(), server.word_client());
    client.call("config set notify-keyspace-events KEA");
    watcher.call("psubscribe __keyspace@0__:*");
    for (command, events) in [
        ("bitfield k set u8 0 1", &["setbit"][..]),
        ("bitfield k get u8 0", &[]),
        ("bitop or t k", &["set"]),
        ("bitop or t none", &["del"]),
    ] {
        client.call(command);
        for event in events {
            let message = watcher.reply();
            assert!(message.ends_with(&format!("\"{event}\"]")), "{message}");
        }
    }
}

const KEYS: &[&str] = &["k1", "k2", "k3", "k3", "number", "set", "none"];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "7",
    "8",
    "-1",
    "-2",
    "-9",
    "100",
    "255",
    "-128",
    "x",
    "",
    "1.5",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
];
const TYPES: &[&str] = &[
    "u1", "u8", "u8", "i8", "i8", "u4", "i5", "u16", "i32", "u63", "i64", "i64", "u64", "i65",
    "u0", "x8", "u", "i1", "u7", "i13",
];
const OFFSETS: &[&str] = &[
    "0",
    "1",
    "3",
    "8",
    "15",
    "16",
    "77",
    "#0",
    "#1",
    "#3",
    "#7",
    "-1",
    "#-1",
    "x",
    "#",
    "200",
    "#9223372036854775807",
    "4294967296",
];

fn fields(random: &mut Random) -> String {
    let mut line = format!(
        "{} {}",
        pick(random, &["bitfield", "bitfield", "bitfield", "bitfield_ro"]),
        pick(random, KEYS)
    );
    let is_sane = random.below(4) > 0;
    for _ in 0..random.below(5) {
        let (of, offset) = if is_sane {
            (pick(random, &TYPES[..12]), pick(random, &OFFSETS[..11]))
        } else {
            (pick(random, TYPES), pick(random, OFFSETS))
        };
        let number = if is_sane {
            random
                .next()
                .cast_signed()
                .wrapping_shr(u32::try_from(random.below(64)).unwrap())
                .to_string()
        } else {
            pick(random, NUMBERS).to_owned()
        };
        line += &match random.below(if line.starts_with("bitfield_ro") {
            2
        } else {
            6
        }) {
            0 | 1 => format!(" get {of} {offset}"),
            2 | 3 => format!(" set {of} {offset} {number}"),
            4 => format!(
                " overflow {}",
                pick(
                    random,
                    &["wrap", "sat", "FAIL", if is_sane { "Sat" } else { "bad" }]
                )
            ),
            _ => format!(" incrby {of} {offset} {number}"),
        };
    }
    if !is_sane && random.below(4) == 0 {
        line += pick(random, &[" get", " set u8 0", " overflow", " bad u8 0"]);
    }
    line
}

fn others(random: &mut Random) -> String {
    let (key, bit) = (
        pick(random, KEYS),
        pick(random, &["0", "1", "0", "1", "2", "x"]),
    );
    let mut ends = String::new();
    for _ in 0..random.below(3) {
        let odd = random.below(5) == 0;
        let numbers = if odd { NUMBERS } else { &NUMBERS[..9] };
        ends += " ";
        ends += pick(random, numbers);
    }
    let unit = pick(random, &["", "", " bit", " byte", " BIT", " bad"]);
    match random.below(8) {
        0 | 1 => format!("bitpos {key} {bit}{ends}{unit}"),
        2 | 3 => format!("bitcount {key}{ends}{unit}"),
        4 => format!("setbit {key} {} {bit}", random.below(300)),
        5 => format!("getbit {key} {}", random.below(300)),
        6 => format!("get {key}"),
        _ => {
            let mut line = format!(
                "bitop {} {key}",
                pick(random, &["and", "or", "XOR", "not", "bad"])
            );
            for _ in 0..=random.below(3) {
                line += " ";
                line += pick(random, KEYS);
            }
            line
        }
    }
}

#[test]
fn replies_to_random_commands_are_those_of_redis() {
    compare(&["set number 1234", "sadd set x"], |random, number| {
        if number % 40 == 39 {
            let key = pick(random, &["k1", "k2", "k3"]);
            if random.below(3) == 0 {
                return arguments(&format!("del {key}"));
            }
            let bytes = (0..random.below(40)).map(|_| match random.below(3) {
                0 => 0xff,
                1 => 0,
                _ => u8::try_from(random.below(256)).unwrap(),
            });
            let bytes = bytes.collect();
            return vec![b"set".to_vec(), key.as_bytes().to_vec(), bytes];
        }
        if number % 100 == 50 {
            // `BITOP` may have stored a string there.
            return arguments("del set");
        }
        if number % 100 == 51 {
            return arguments("sadd set x");
        }
        let line = match random.below(2) {
            0 => fields(random),
            _ => others(random),
        };
        arguments(&line)
    });
}
