//! Long values among clients: those that race take each value once and whole, and those that stall
//! or leave in the middle neither change nor keep what others see.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use self::support::client::request;
use self::support::long_values::{RECORD_BYTES, kind, set, shown, value};
use self::support::{Reply, Served, wait_until};

/// Each value has one byte all over, so parts of two would be seen.
fn is_uniform(reply: &Reply) -> bool {
    match reply {
        Reply::Bulk(bytes) => bytes.iter().all(|byte| *byte == bytes[0]),
        Reply::Null => true,
        other => panic!("{}", kind(other)),
    }
}

#[test]
fn a_value_is_taken_once_and_whole_by_clients_that_race() {
    const ROUNDS: usize = 25;
    let served = Served::roomy(2);
    let is_done = AtomicBool::new(false);
    let is_done = &is_done;
    let taken: usize = thread::scope(|scope| {
        let takers: Vec<_> = ["GETDEL k", "GETDEL k", "GETSET k n", "GET k"]
            .into_iter()
            .map(|command| {
                let mut client = served.client();
                scope.spawn(move || {
                    let words: Vec<_> = command.split(' ').collect();
                    let mut long = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        client.send(&words);
                        let reply = client.read();
                        let reply = reply.unwrap_or_else(|| panic!("{command}: closed"));
                        assert!(is_uniform(&reply), "{command}");
                        let is_long = matches!(&reply, Reply::Bulk(bytes) if bytes.len() > 1);
                        long += usize::from(is_long && command != "GET k");
                    }
                    long
                })
            })
            .collect();
        let mut writer = served.client();
        for round in 0..ROUNDS {
            let bytes = vec![b'a' + u8::try_from(round).unwrap(); 100_000 + 10_000 * round];
            // Only what was taken is replaced, so each value is taken once at most.
            while shown(&mut writer, &[b"SET", b"k", &bytes, b"NX"]) != "+OK" {
                writer.say("DELIFEQ k n");
            }
        }
        is_done.store(true, Ordering::Relaxed);
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    let left = usize::from(served.client().say("STRLEN k").len() > 3);
    assert_eq!(taken + left, ROUNDS);
}

#[test]
fn appends_of_many_clients_are_all_there() {
    const CLIENTS: usize = 4;
    const APPENDS: usize = 12;
    let served = Served::roomy(2);
    let base = value(RECORD_BYTES - 100, 1);
    let mut client = served.client();
    set(&mut client, "k", &base);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = served.client();
            scope.spawn(move || {
                for turn in 0..APPENDS {
                    let token = format!("<{number:02}:{turn:02}>");
                    assert!(!client.ask(&["APPEND", "k", &token]).is_error());
                }
            });
        }
    });
    let Reply::Bulk(all) = client.ask(&["GET", "k"]) else {
        panic!("it is there");
    };
    assert!(all.starts_with(&base));
    let mut tokens: Vec<_> = all[base.len()..].chunks(7).map(<[u8]>::to_vec).collect();
    for number in 0..CLIENTS {
        let prefix = format!("<{number:02}:");
        let own = tokens
            .iter()
            .filter(|token| token.starts_with(prefix.as_bytes()));
        assert!(own.is_sorted(), "those of one client are in order");
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), CLIENTS * APPENDS);
}

#[test]
fn a_client_that_stops_reading_gets_the_value_of_its_moment() {
    let served = Served::start(1);
    let mut client = served.client();
    let stored = value(8 << 20, 1);
    for (command, after) in [
        ("GETDEL k", ""),
        ("GETSET k n", "n"),
        ("GET k", ""),
        ("MGET k", ""),
    ] {
        set(&mut client, "k", &stored);
        let mut slow = served.client();
        let words: Vec<_> = command.split(' ').collect();
        slow.send(&words);
        // Its reply has begun, so the change has happened. That of `MGET` opens the value behind
        // the head of the array.
        let head = if command.starts_with("MGET") { 4 } else { 0 };
        let mut first = [0; 8];
        wait_until("the value is opened", || {
            slow.peek(&mut first).unwrap() > head
        });
        if command.starts_with("GETDEL") || command.starts_with("GETSET") {
            let held = if after.is_empty() {
                "null".into()
            } else {
                format!("\"{after}\"")
            };
            assert_eq!(client.say("GET k"), held, "{command}");
        }
        for number in 0..200 {
            set(&mut client, &format!("other:{number}"), &value(50_000, 9));
        }
        set(&mut client, "k", &value(300_000, 3));
        client.say("DEL k");
        let mut reply = slow.read().unwrap();
        if let Reply::Array(mut all) = reply {
            reply = all.remove(0);
        }
        assert!(
            reply == Reply::Bulk(stored.clone()),
            "{command}: {}",
            kind(&reply)
        );
        assert_eq!(slow.say("PING"), "+PONG");
    }
    assert_eq!(served.figures().evicted_clients, 0);
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing() {
    // More than can be written or kept at once.
    const CLIENTS: usize = 100;
    let served = Served::roomy(1);
    let mut client = served.client();
    let stored = value(2 << 20, 1);
    let set_request = request(&[b"SET".as_slice(), b"new", &stored, b"EX", b"100"]);
    for number in 0..CLIENTS {
        set(&mut client, "k", &stored);
        let mut leaving = served.client();
        leaving.send(&["GETDEL", "k"]);
        let mut first = [0; 1];
        leaving.peek(&mut first).unwrap();
        drop(leaving);
        // Within a value, or between it and the options.
        let cut = [1_000_000, set_request.len() - 12][number % 2];
        let mut leaving = served.client();
        leaving.write(&set_request[..cut]);
        drop(leaving);
    }
    wait_until("all are gone", || served.figures().connections == 1);
    assert_eq!(client.say("EXISTS k new"), ":0");
    set(&mut client, "k", &stored);
    assert_eq!(
        shown(&mut client, &[b"SET", b"new", &stored, b"EX", b"9"]),
        "+OK"
    );
    let taken = client.ask(&["GETDEL", "k"]);
    assert!(taken == Reply::Bulk(stored), "{}", kind(&taken));
}
