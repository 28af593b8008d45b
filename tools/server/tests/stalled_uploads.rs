//! Clients that begin to send long values and stop: others store theirs, and no connection is
//! closed for it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::thread;

use self::support::client::request;
use self::support::long_values::{expect_value, shown, value};
use self::support::{Client, Served, wait_until};

/// Bytes of a value.
const BYTES: usize = 200_000;
/// Long values that a shard takes at once.
const PLACES: usize = 64;

/// Stores a value as clients do: one that is refused tries again.
fn store(client: &mut Client, key: &str, stored: &[u8]) {
    loop {
        let reply = shown(client, &[b"SET", key.as_bytes(), stored]);
        if reply == "+OK" {
            return;
        }
        let may_try_again = reply.contains("try again") || reply.contains("send it again");
        assert!(may_try_again, "{reply}");
    }
}

/// Clients that have sent the first bytes of a SET and stop, each with the bytes not sent.
fn stalled(served: &Served, count: usize, sent: usize) -> Vec<(Client, Vec<u8>)> {
    let upload = |number: usize| {
        let key = format!("stalled:{number}");
        let request = request(&[b"SET", key.as_bytes(), &value(BYTES, 7)]);
        let mut client = served.client();
        client.write(&request[..sent]);
        (client, request[sent..].to_vec())
    };
    (0..count).map(upload).collect()
}

/// What stalled goes on: it is stored, or refused with an error, and the connection is in step.
fn go_on(uploads: Vec<(Client, Vec<u8>)>) {
    for (mut client, rest) in uploads {
        client.write(&rest);
        let reply = client.read().expect("it is not closed").to_string();
        let is_known = ["+OK", "send it again", "try again"];
        assert!(is_known.iter().any(|text| reply.contains(text)), "{reply}");
        assert_eq!(client.say("PING"), "+PONG");
    }
}

/// Others store values beside stalled uploads.
fn store_beside(served: &Served) {
    let stored = value(BYTES, 1);
    thread::scope(|scope| {
        for number in 0..4 {
            let (mut client, stored) = (served.client(), &stored);
            scope.spawn(move || {
                for turn in 0..3 {
                    let key = format!("{number}:{turn}");
                    store(&mut client, &key, stored);
                    expect_value(&mut client, &key, stored);
                }
            });
        }
    });
}

#[test]
fn values_are_stored_beside_clients_that_stop_after_a_few_bytes() {
    for cores in [1, 2] {
        let served = Served::roomy(cores);
        let uploads = stalled(&served, 200, 100);
        store_beside(&served);
        assert_eq!(served.figures().evicted_clients, 0);
        go_on(uploads);
        assert_eq!(served.figures().evicted_clients, 0);
    }
}

#[test]
fn values_are_stored_beside_clients_that_hold_the_memory_for_uploads() {
    let served = Served::with(1, |options| options.client_bytes = 2 << 20);
    let uploads = stalled(&served, 60, 40_000);
    store_beside(&served);
    let figures = served.figures();
    assert!(figures.stalled_uploads > 0);
    assert_eq!(figures.evicted_clients, 0);
    go_on(uploads);
}

#[test]
fn a_value_that_comes_slowly_is_stored_while_none_waits() {
    let served = Served::roomy(1);
    // The others need some places.
    let mut uploads = stalled(&served, PLACES - 4, 100);
    let now = || served.figures().sleeps;
    // The core's clock goes on while it sleeps.
    let before = now();
    wait_until("more than a second has passed", || now() > before + 100);
    store_beside(&served);
    for (client, rest) in &mut uploads {
        client.write(rest);
        assert_eq!(client.read().unwrap().to_string(), "+OK");
    }
    assert_eq!(served.figures().stalled_uploads, 0);
}

#[test]
fn each_command_of_a_long_value_ends_with_an_error_and_its_connection_goes_on() {
    let served = Served::roomy(1);
    let mut own = served.client();
    for key in ["append", "setrange", "getset"] {
        assert_eq!(own.say(&format!("SET {key} before")), "+OK");
    }
    let long = value(BYTES, 3);
    let commands: [&[&[u8]]; 8] = [
        &[b"SET", b"set", &long],
        &[b"SET", b"options", &long, b"EX", b"100"],
        &[b"SETNX", b"setnx", &long],
        &[b"PSETEX", b"psetex", b"1000000", &long],
        &[b"GETSET", b"getset", &long],
        &[b"APPEND", b"append", &long],
        &[b"SETRANGE", b"setrange", b"3", &long],
        &[b"MSET", b"first", &long, b"second", &long, b"third", b"3"],
    ];
    let mut uploads: Vec<(Client, Vec<u8>)> = Vec::new();
    for place in 0..PLACES {
        let command = commands[place % commands.len()];
        let request = request(command);
        // Some stop in the value, some behind it, in the arguments that follow.
        let sent = match place / commands.len() {
            0 if command.last().unwrap().len() < 10 => request.len() - 10,
            0 => request.len() - 30,
            some => some * 10_000,
        };
        let mut client = served.client();
        client.write(&request[..sent]);
        uploads.push((client, request[sent..].to_vec()));
    }
    // Each of these waits for a place that one of those gives up, which have stalled for longer.
    let mut others = stalled(&served, 2 * PLACES, 100);
    wait_until("all have given up", || {
        if served.figures().stalled_uploads >= PLACES as u64 {
            return true;
        }
        // Newcomers go on to want places, and those before them go, so that files last.
        others.extend(stalled(&served, 1, 100));
        if others.len() > 8 * PLACES {
            others.drain(..PLACES);
        }
        false
    });
    for (mut client, rest) in uploads {
        client.write(&rest);
        let reply = client.read().expect("it is not closed").to_string();
        assert!(reply.contains("send it again"), "{reply}");
        assert_eq!(client.say("PING"), "+PONG");
    }
    for key in ["append", "setrange", "getset"] {
        assert_eq!(own.say(&format!("GET {key}")), "\"before\"");
    }
    for key in ["set", "options", "setnx", "psetex", "third"] {
        assert_eq!(own.say(&format!("EXISTS {key}")), ":0", "{key}");
    }
    assert_eq!(served.figures().evicted_clients, 0);
}
