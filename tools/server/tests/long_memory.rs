//! What long values may take of a server: the memory that they pass through, and the places of a
//! shard for those that are written or replied at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::thread;
use std::time::Duration;

use self::support::long_values::{LONG, ask, expect_value, kind, set, shown, value};
use self::support::{Reply, Served, wait_until};

#[test]
fn copies_by_many_clients_wait_for_memory() {
    const CLIENTS: usize = 24;
    let served = Served::with(1, |options| options.client_bytes = 3 << 20);
    let mut client = served.client();
    let stored = value(1 << 20, 1);
    set(&mut client, "k", &stored);
    let mut others: Vec<_> = (0..CLIENTS).map(|_| served.client()).collect();
    for (number, other) in others.iter_mut().enumerate() {
        other.send(&["COPY", "k", &format!("copy:{number}")]);
    }
    for other in &mut others {
        assert_eq!(
            other.read().map(|reply| reply.to_string()).as_deref(),
            Some(":1")
        );
    }
    expect_value(&mut client, "copy:7", &stored);
    assert_eq!(served.figures().evicted_clients, 0);
}

#[test]
fn the_longest_values_pass_through_little_memory() {
    const MOST: usize = 64 << 20;
    let served = Served::vast(1);
    let mut client = served.client();
    let mut stored = value(MOST, 1);
    assert_eq!(
        shown(&mut client, &[b"SET", b"k", &stored, b"EX", b"1000"]),
        "+OK"
    );
    let refused = client.say("APPEND k x");
    assert!(
        refused.starts_with("-ERR string exceeds maximum allowed size"),
        "{refused}"
    );
    assert_eq!(
        client.say(&format!("SETRANGE k {} ab", MOST - 2)),
        format!(":{MOST}")
    );
    stored[MOST - 2..].copy_from_slice(b"ab");
    assert_eq!(client.say("COPY k l"), ":1");
    let replies = client.ask(&["MGET", "k", "l"]);
    assert!(
        replies
            .elements()
            .iter()
            .all(|reply| *reply == Reply::Bulk(stored.clone()))
    );
    drop(replies);
    let taken = client.ask(&["GETDEL", "k"]);
    assert!(taken == Reply::Bulk(stored.clone()), "{}", kind(&taken));
    let other = value(MOST, 2);
    let before = ask(&mut client, &[b"GETSET", b"l", &other]);
    assert!(before == Reply::Bulk(stored), "{}", kind(&before));
    expect_value(&mut client, "l", &other);
    // One byte more is refused before it is sent.
    client.write(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", MOST + 1).as_bytes());
    assert!(client.read().unwrap().is_error());
    let seen = served.figures();
    assert_eq!(seen.evicted_clients, 0);
}

/// The begin of an `MSET` of some short pairs and one with a long value, up to that value.
fn pairs_before_a_long_value(pairs: usize) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n$4\r\nMSET\r\n", 3 + 2 * pairs).into_bytes();
    for pair in 0..pairs {
        bytes.extend_from_slice(format!("$6\r\nk{pair:05}\r\n$1\r\nv\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("$1\r\nl\r\n${LONG}\r\n").as_bytes());
    bytes
}

#[test]
fn pairs_before_a_long_value_count_until_they_are_stored() {
    const PAIRS: usize = 30_000;
    let command = pairs_before_a_long_value(PAIRS);
    // Its input has room, and so have the places of its arguments, but not each in a buffer. Keys
    // of another core are not stored at once.
    let small = Served::with(2, |options| options.client_bytes = 6 << 20);
    let mut client = small.client();
    client.write(&command);
    let refused = client.read().unwrap().to_string();
    assert!(refused.starts_with("-ERR the command needs"), "{refused}");
    assert_eq!(small.figures().evicted_clients, 0);
    let roomy = Served::roomy(1);
    let (mut client, mut other) = (roomy.client(), roomy.client());
    client.write(&command);
    let last = format!("GET k{:05}", PAIRS - 1);
    wait_until("the pairs are stored", || other.say(&last) == "\"v\"");
    wait_until("their memory is free", || {
        roomy.figures().connection_bytes < 1 << 20
    });
    client.write(&value(LONG, 1));
    client.write(b"\r\n");
    assert_eq!(client.read().unwrap().to_string(), "+OK");
    expect_value(&mut other, "l", &value(LONG, 1));
}

#[test]
fn places_of_arguments_of_an_incomplete_command_count() {
    const ARGUMENTS: usize = 200_000;
    const PLACE_BYTES: usize = 16;
    let served = Served::roomy(1);
    let mut client = served.client();
    let mut bytes = format!("*{}\r\n$4\r\nMSET\r\n", ARGUMENTS + 3).into_bytes();
    bytes.extend(b"$0\r\n\r\n".repeat(ARGUMENTS));
    client.write(&bytes);
    let least = bytes.len() + ARGUMENTS * PLACE_BYTES;
    wait_until("all are counted", || {
        served.figures().connection_bytes >= least as u64
    });
}

#[test]
fn a_value_that_takes_the_last_place_is_replied_with_its_expiry() {
    const PLACES: usize = 64;
    let served = Served::vast(1);
    let mut client = served.client();
    let stored = value(16 << 20, 1);
    set(&mut client, "k", &stored);
    let mut others: Vec<_> = (1..PLACES).map(|_| served.client()).collect();
    for other in &mut others {
        other.send(&["GETEX", "k", "EX", "1000"]);
    }
    for other in &mut others {
        // It takes some of the value, and stops.
        assert_eq!(other.peek(&mut [0]).unwrap(), 1);
    }
    let read = client.ask(&["GETEX", "k", "EX", "5000"]);
    assert!(read == Reply::Bulk(stored), "{}", kind(&read));
    let left: u32 = client.say("TTL k")[1..].parse().unwrap();
    assert!(left > 1000, "{left}");
    // It takes the last place, and one more has none.
    let mut last = served.client();
    last.send(&["GETEX", "k", "EX", "6000"]);
    assert_eq!(last.peek(&mut [0]).unwrap(), 1);
    let refused = client.say("GETEX k EX 7000");
    assert!(refused.starts_with("-ERR 64 long values"), "{refused}");
    let left: u32 = client.say("TTL k")[1..].parse().unwrap();
    assert!((5001..=6000).contains(&left), "{left}");
}

#[test]
fn uploads_beyond_the_limit_of_a_shard_are_told_so() {
    const UPLOADS: usize = 64;
    let served = Served::roomy(1);
    let begin = |number: usize| {
        let mut client = served.client();
        let key = format!("{number:04}");
        client.write(format!("*3\r\n$3\r\nSET\r\n$4\r\n{key}\r\n$2000000\r\n").as_bytes());
        client
    };
    let mut uploads: Vec<_> = (0..UPLOADS).map(begin).collect();
    let stored = value(200_000, 1);
    let reply = thread::scope(|scope| {
        let (mut client, stored) = (served.client(), &stored);
        let refused = scope.spawn(move || {
            loop {
                // Others have not begun yet, or one was too slow and gave its place up.
                let reply = shown(&mut client, &[b"SET", b"k", stored]);
                if reply != "+OK" {
                    return reply;
                }
            }
        });
        // They go on, so they keep their places.
        while !refused.is_finished() {
            for one in &mut uploads {
                one.write(&[0; 5000]);
            }
            if served.figures().stalled_uploads > 0 {
                uploads.push(begin(uploads.len()));
            }
            thread::sleep(Duration::from_millis(100));
        }
        refused.join().unwrap()
    });
    assert!(
        reply.starts_with("-ERR a shard takes 64 long values at once"),
        "{reply}"
    );
    drop(uploads);
    let mut client = served.client();
    wait_until("they have ended", || {
        shown(&mut client, &[b"SET", b"k", &stored]) == "+OK"
    });
}
