//! Values that are too long for a record, in every command of strings: what is stored, read and
//! changed, at every length, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::long_values::{LONG, RECORD_BYTES, ask, expect_value, kind, set, shown, value};
use self::support::{Reply, Served};

/// Lengths around those where a value no longer fits a record, with an expiry and without.
fn lengths() -> Vec<usize> {
    let near = [33, 32, 31, 25, 24, 23, 9, 8, 7, 1, 0];
    let mut lengths: Vec<_> = near.iter().map(|less| RECORD_BYTES - less).collect();
    lengths.extend([RECORD_BYTES + 1, RECORD_BYTES + 2, 200_001, LONG]);
    lengths
}

#[test]
fn values_of_every_length_are_stored_by_every_command() {
    let served = Served::roomy(2);
    let mut client = served.client();
    for bytes in lengths() {
        let stored = value(bytes, 1);
        let k: &[u8] = b"k";
        let forms: &[(&[&[u8]], &str)] = &[
            (&[b"SET", k, &stored], "+OK"),
            (&[b"SET", k, &stored, b"EX", b"1000"], "+OK"),
            (&[b"SET", k, &stored, b"NX", b"PX", b"1000000"], "null"),
            (&[b"SET", k, &stored, b"XX", b"KEEPTTL"], "+OK"),
            (&[b"SETEX", k, b"1000", &stored], "+OK"),
            (&[b"PSETEX", k, b"1000000", &stored], "+OK"),
            (&[b"SETNX", k, &stored], ":0"),
            (&[b"MSET", b"a", b"1", k, &stored], "+OK"),
            (&[b"MSET", k, &stored, b"b", b"2"], "+OK"),
        ];
        for (form, reply) in forms {
            assert_eq!(shown(&mut client, form), *reply, "{bytes} {:?}", form.len());
            if *reply == "+OK" {
                expect_value(&mut client, "k", &stored);
            }
        }
        assert_eq!(client.say("MGET a b"), "[\"1\", \"2\"]");
        let length = format!(":{bytes}");
        assert_eq!(client.say("DEL k"), ":1");
        assert_eq!(shown(&mut client, &[b"APPEND", k, &stored]), length);
        expect_value(&mut client, "k", &stored);
        assert_eq!(client.say("DEL k"), ":1");
        assert_eq!(shown(&mut client, &[b"SETRANGE", k, b"0", &stored]), length);
        expect_value(&mut client, "k", &stored);
        let other = value(bytes, 2);
        let before = ask(&mut client, &[b"GETSET", k, &other]);
        assert!(before == Reply::Bulk(stored), "{bytes}: {}", kind(&before));
        let before = ask(&mut client, &[b"SET", k, b"short", b"GET"]);
        assert!(before == Reply::Bulk(other), "{bytes}: {}", kind(&before));
        assert_eq!(client.say("STRLEN k"), ":5");
    }
    assert_eq!(served.figures().evicted_clients, 0);
}

#[test]
fn bytes_of_a_value_are_no_error() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let text = b"-FORGED\r\n".repeat(LONG / 9);
    for stored in [&vec![b'-'; LONG], &text] {
        set(&mut client, "k", stored);
        expect_value(&mut client, "k", stored);
        let all = ask(&mut client, &[b"MGET", b"k", b"k"]);
        assert!(
            all.elements()
                .iter()
                .all(|one| *one == Reply::Bulk(stored.clone()))
        );
        let taken = client.ask(&["GETDEL", "k"]);
        assert!(taken == Reply::Bulk(stored.clone()), "{}", kind(&taken));
    }
    assert!(
        !client
            .ask(&["INFO", "errorstats"])
            .text()
            .contains("errorstat_")
    );
    // What a command of several steps replies is counted still.
    client.say("HSET h f v");
    assert!(client.say("SETBIT h 1 1").starts_with("-WRONGTYPE"));
    let counted = client.ask(&["INFO", "errorstats"]).text();
    assert!(counted.contains("errorstat_WRONGTYPE:count=1"), "{counted}");
}

#[test]
fn values_of_every_length_are_read_and_moved_by_every_command() {
    let served = Served::roomy(2);
    let mut client = served.client();
    for bytes in lengths() {
        let stored = value(bytes, 3);
        let length = format!(":{bytes}");
        set(&mut client, "k", &stored);
        assert_eq!(client.say("STRLEN k"), length);
        let end = ask(&mut client, &[b"GETRANGE", b"k", b"-9", b"-3"]);
        assert!(end == Reply::Bulk(stored[bytes - 9..bytes - 2].to_vec()));
        let middle = ask(&mut client, &[b"SUBSTR", b"k", b"1000", b"40000"]);
        assert!(middle == Reply::Bulk(stored[1000..=40_000].to_vec()));
        let ones: u32 = stored.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(client.say("BITCOUNT k"), format!(":{ones}"));
        let ones: u32 = stored[7..=60_000]
            .iter()
            .map(|byte| byte.count_ones())
            .sum();
        assert_eq!(client.say("BITCOUNT k 7 60000"), format!(":{ones}"));
        let last = u32::from(stored[bytes - 1] & 1);
        assert_eq!(
            client.say(&format!("GETBIT k {}", bytes * 8 - 1)),
            format!(":{last}")
        );
        assert_eq!(client.say(&format!("GETBIT k {}", bytes * 8)), ":0");
        for options in [&["EX", "1000"][..], &["PERSIST"], &[]] {
            let mut getex = vec!["GETEX", "k"];
            getex.extend(options);
            assert!(
                client.ask(&getex) == Reply::Bulk(stored.clone()),
                "{bytes} {options:?}"
            );
            let expires = client.say("TTL k") != ":-1";
            assert_eq!(expires, options.first() == Some(&"EX"), "{options:?}");
        }
        client.say("EXPIRE k 1000");
        assert_eq!(client.say("COPY k l"), ":1");
        assert_eq!(client.say("COPY k l"), ":0");
        assert_eq!(client.say("COPY k l REPLACE"), ":1");
        assert_eq!(client.say("RENAME l m"), "+OK");
        assert_eq!(client.say("RENAMENX k m"), ":0");
        assert_eq!(client.say("RENAME m m"), "+OK");
        assert_ne!(client.say("TTL m"), ":-1");
        assert_eq!(client.say("EXISTS k l m"), ":2");
        expect_value(&mut client, "m", &stored);
        let taken = ask(&mut client, &[b"GETDEL", b"m"]);
        assert!(
            taken == Reply::Bulk(stored.clone()),
            "{bytes}: {}",
            kind(&taken)
        );
        assert_eq!(client.say("GETDEL m"), "null");
        let taken = client.ask(&["GETEX", "k", "EXAT", "1"]);
        assert!(taken == Reply::Bulk(stored), "{bytes}: {}", kind(&taken));
        assert_eq!(client.say("EXISTS k l m"), ":0");
    }
}

#[test]
fn conditions_hold_for_long_values() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let (one, two) = (value(200_000, 1), value(200_000, 2));
    let k: &[u8] = b"k";
    assert_eq!(shown(&mut client, &[b"SET", k, &one, b"XX"]), "null");
    assert_eq!(
        shown(&mut client, &[b"SET", k, &one, b"NX", b"GET"]),
        "null"
    );
    expect_value(&mut client, "k", &one);
    let kept = ask(&mut client, &[b"SET", k, &two, b"NX", b"GET"]);
    assert!(kept == Reply::Bulk(one.clone()));
    assert_eq!(
        shown(&mut client, &[b"SET", k, b"n", b"IFEQ", &two]),
        "null"
    );
    expect_value(&mut client, "k", &one);
    assert_eq!(shown(&mut client, &[b"SET", k, &two, b"IFEQ", &one]), "+OK");
    let swapped = ask(&mut client, &[b"SET", k, b"n", b"IFEQ", &two, b"GET"]);
    assert!(swapped == Reply::Bulk(two.clone()));
    assert_eq!(client.say("GET k"), "\"n\"");
    set(&mut client, "k", &two);
    assert_eq!(client.say("SET k n IFEQ x"), "null");
    assert_eq!(client.say("DELIFEQ k x"), ":0");
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &one]), ":0");
    set(&mut client, "k", &two);
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &one]), ":0");
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &two]), ":1");
    // Of values that are about as long as a record, all bytes are compared.
    let near = value(RECORD_BYTES - 20, 5);
    let mut other = near.clone();
    *other.last_mut().unwrap() ^= 1;
    set(&mut client, "k", b"");
    assert_eq!(
        shown(&mut client, &[b"APPEND", k, &near]),
        format!(":{}", near.len())
    );
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &other]), ":0");
    assert_eq!(
        shown(&mut client, &[b"SET", k, b"n", b"IFEQ", &other]),
        "null"
    );
    assert_eq!(shown(&mut client, &[b"DELIFEQ", k, &near]), ":1");
    // A hash is no string.
    client.say("HSET h f v");
    assert!(shown(&mut client, &[b"GETSET", b"h", &one]).starts_with("-WRONGTYPE"));
    assert!(shown(&mut client, &[b"APPEND", b"h", &one]).starts_with("-WRONGTYPE"));
    assert_eq!(client.say("HGET h f"), "\"v\"");
    set(&mut client, "k", &one);
    for command in ["INCR k", "DECRBY k 2"] {
        let refused = client.say(command);
        assert_eq!(refused, "-ERR value is not an integer or out of range");
    }
    assert_eq!(
        client.say("INCRBYFLOAT k 1"),
        "-ERR value is not a valid float"
    );
}

#[test]
fn parts_of_long_values_are_replaced_and_added() {
    let served = Served::roomy(2);
    let mut client = served.client();
    let mut model = value(50_000, 1);
    set(&mut client, "k", &model);
    client.say("EXPIRE k 1000");
    let steps = [
        (60_000, 10),
        (0, 5),
        (300_000, 70_000),
        (131_071, 3),
        (400_000, 200_000),
    ];
    for (step, (offset, bytes)) in steps.into_iter().enumerate() {
        let part = value(bytes, 10 + u8::try_from(step).unwrap());
        model.resize(model.len().max(offset + bytes), 0);
        model[offset..offset + bytes].copy_from_slice(&part);
        let at = offset.to_string();
        let length = shown(&mut client, &[b"SETRANGE", b"k", at.as_bytes(), &part]);
        assert_eq!(length, format!(":{}", model.len()));
        expect_value(&mut client, "k", &model);
        let tail = value(20_000 * (step + 1), 20);
        model.extend_from_slice(&tail);
        let length = shown(&mut client, &[b"APPEND", b"k", &tail]);
        assert_eq!(length, format!(":{}", model.len()));
    }
    expect_value(&mut client, "k", &model);
    let bit = model.len() * 8 + 9;
    assert_eq!(client.say(&format!("SETBIT k {bit} 1")), ":0");
    assert_eq!(client.say(&format!("SETBIT k {bit} 1")), ":1");
    model.extend_from_slice(&[0, 0x40]);
    let was = u8::from(model[70_000] & 0x80 != 0);
    assert_eq!(
        client.say(&format!("SETBIT k {} 0", 70_000 * 8)),
        format!(":{was}")
    );
    model[70_000] &= 0x7f;
    expect_value(&mut client, "k", &model);
    assert_ne!(client.say("TTL k"), ":-1", "it keeps its expiry");
    assert_eq!(
        shown(&mut client, &[b"APPEND", b"k", b""]),
        format!(":{}", model.len())
    );
    assert_eq!(
        shown(&mut client, &[b"SETRANGE", b"k", b"9", b""]),
        format!(":{}", model.len())
    );
    // Nothing of a value that would be too long is stored.
    for command in [
        "SETRANGE k 67108864 x",
        "SETRANGE none 67108864 x",
        "SETBIT k 536870912 1",
    ] {
        let refused = client.say(command);
        assert!(
            refused.starts_with("-ERR string exceeds maximum allowed size"),
            "{refused}"
        );
    }
    expect_value(&mut client, "k", &model);
    assert_eq!(client.say("EXISTS none"), ":0");
}

#[test]
fn options_are_judged_before_the_time_of_one() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let long = value(LONG, 1);
    for stored in [&b"v"[..], &long] {
        for (options, text) in [
            ("EX 0 BOGUS", "-ERR syntax error"),
            ("PX x NX XX", "-ERR syntax error"),
            ("EX 0 KEEPTTL", "-ERR syntax error"),
            ("EX 0 NX", "-ERR invalid expire time in 'set' command"),
            ("EX x GET", "-ERR value is not an integer or out of range"),
        ] {
            let mut words = vec![b"SET", &b"k"[..], stored];
            words.extend(options.split(' ').map(str::as_bytes));
            assert_eq!(shown(&mut client, &words), text, "{options}");
        }
    }
    assert_eq!(client.say("EXISTS k"), ":0");
}

#[test]
fn what_cannot_be_long_is_refused_with_its_limit() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let stored = value(LONG, 1);
    let commands: [&[&[u8]]; 3] = [
        &[b"MSETNX", b"a", b"1", b"k", &stored],
        &[b"HSET", b"k", b"f", &stored],
        &[b"HSETNX", b"k", b"f", &stored],
    ];
    for command in commands {
        let refused = shown(&mut client, command);
        let name = String::from_utf8_lossy(command[0]).to_lowercase();
        let text = format!(
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len): the argument has {LONG} bytes, and those of '{name}' have at most {}; store long values with SET, MSET or APPEND",
            RECORD_BYTES - 32
        );
        assert_eq!(refused, text);
    }
    set(&mut client, "k", &stored);
    let refused = client.say("LCS k k");
    assert!(
        refused.starts_with("-ERR the value has 3145728 bytes, too many"),
        "{refused}"
    );
    assert_eq!(client.say("OBJECT ENCODING k"), "\"raw\"");
    assert!(client.say("HGET k f").starts_with("-WRONGTYPE"));
}
