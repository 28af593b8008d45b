//! What encrypted clients are sent is made as they take it, as it is for others: long values,
//! pipelines, replies of many keys and messages, whether they read, read slowly, or do not read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sealed.rs"]
mod sealed;
mod support;

use std::io::BufRead;
use std::thread;
use std::time::Duration;

use self::sealed::{BOTH, Files, Sealed};
use self::support::client::request;
use self::support::long_values::{expect_value, kind, set, value};
use self::support::{Client, Reply, Served, wait_until};

/// Bytes of the value that is fetched by many.
const LONG: usize = 5 << 20;
/// What an encrypted client that does not read may hold beside what another one holds for the same
/// replies: the session, and a piece of output that is sealed. Buffers differ by a half.
const BESIDE_BYTES: usize = 96 << 10;
/// Bytes of replies of which some wait at the server, whatever the system keeps.
const UNREAD_BYTES: usize = 14 << 20;

/// A figure of the client of a name in `CLIENT LIST`.
fn figure(control: &mut Client, name: &str, figure: &str) -> usize {
    let list = control.ask(&["CLIENT", "LIST"]).text();
    let named = format!("name={name} ");
    let line = list.lines().find(|line| line.contains(&named));
    let line = line.unwrap_or_else(|| panic!("{name} is disconnected"));
    let (_, rest) = line.split_once(&format!(" {figure}=")).unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// Fails if an encrypted client holds much more than another one: what is sealed is as long as what
/// it was made of for a moment.
fn expect_alike(what: &str, [plain, sealed]: [usize; 2]) {
    println!("{what}: {plain} bytes, encrypted {sealed}");
    let most = plain + plain / 2 + BESIDE_BYTES;
    assert!(sealed <= most, "{what}: {plain} bytes, encrypted {sealed}");
}

/// Waits until clients that do not read are sent no more.
fn wait_until_stuck(served: &Served, control: &mut Client, names: &[&str]) {
    for name in names {
        wait_until("replies wait", || figure(control, name, "obl") > 0);
    }
    let (mut sent, mut times) = (0, 0);
    wait_until("no more is sent", || {
        thread::sleep(Duration::from_millis(20));
        let before = std::mem::replace(&mut sent, served.figures().sent_bytes);
        times = if sent == before { times + 1 } else { 0 };
        times == 5
    });
}

#[test]
fn long_values_are_fetched_by_many_that_read_slowly() {
    const CLIENTS: usize = 4;
    const GETS: usize = 3;
    const STEP_BYTES: usize = 512 << 10;
    let files = Files::new();
    // As much memory as by default.
    let served = files.serve_on(1, farcore_server::CLIENT_BYTES, None);
    let mut control = served.client();
    let stored = value(LONG, 1);
    set(&mut control, "long", &stored);
    for version in BOTH {
        let config = files.client_config(&[version], false);
        let mut clients: Vec<_> = (0..CLIENTS)
            .map(|_| Sealed::connect(&served, &config))
            .collect();
        let get = request(&["GET", "long"]);
        for client in &mut clients {
            client.write(&get.repeat(GETS)).unwrap();
        }
        let reply = [format!("${LONG}\r\n").as_bytes(), &stored, b"\r\n"].concat();
        let replies = reply.repeat(GETS);
        // Each takes some in turn, so that all are in the middle of a value together.
        for expected in replies.chunks(STEP_BYTES) {
            for client in &mut clients {
                let mut at = 0;
                while at < expected.len() {
                    let some = client.0.fill_buf().unwrap();
                    let taken = some.len().min(expected.len() - at);
                    assert!(taken > 0, "the connection has ended");
                    assert!(some[..taken] == expected[at..at + taken], "other bytes");
                    client.0.consume(taken);
                    at += taken;
                }
            }
            let held = served.figures().connection_bytes;
            // A value that all read at once, and of each client what is sealed and not sent.
            assert!(held < CLIENTS as u64 * (448 << 10), "{held} bytes");
        }
    }
    assert_eq!(served.figures().evicted_clients, 0);
}

#[expect(clippy::too_many_lines, reason = "each kind of reply in turn")]
#[test]
fn unread_replies_take_no_more_of_encrypted_clients() {
    let files = Files::new();
    let served = files.serve_on(1, 64 << 20, None);
    let config = files.client_config(BOTH, false);
    let mut control = served.client();
    let (short, long) = (value(60_000, 1), value(LONG, 2));
    set(&mut control, "short", &short);
    set(&mut control, "long", &long);
    let name = "name".repeat(50);
    for number in 0..3_000 {
        set(&mut control, &format!("{name}{number:04}"), b"");
    }
    let fields = (0..600).flat_map(|field| [format!("field{field:04}"), "v".repeat(80)]);
    let words = ["HSET".to_owned(), "hash".to_owned()].into_iter();
    let added = control.ask(&words.chain(fields).collect::<Vec<_>>());
    assert_eq!(added.to_string(), ":600");
    let many = |key: &str, count: usize| {
        let words = std::iter::once("MGET").chain(std::iter::repeat_n(key, count));
        request(&words.collect::<Vec<_>>())
    };
    let queued = |count: usize| {
        let mut all = request(&["MULTI"]);
        all.extend(request(&["GET", "short"]).repeat(count));
        all.extend(request(&["EXEC"]));
        all
    };
    let shorts = UNREAD_BYTES / short.len();
    for (what, requests, replies) in [
        ("long values", request(&["GET", "long"]).repeat(3), 3),
        (
            "a part of one",
            request(&["GETRANGE", "long", "1", "-2"]).repeat(3),
            3,
        ),
        (
            "a pipeline",
            request(&["GET", "short"]).repeat(shorts),
            shorts,
        ),
        ("short values of one command", many("short", shorts), 1),
        ("long values of one command", many("long", 3), 1),
        (
            "a record",
            request(&["HGETALL", "hash"]).repeat(shorts),
            shorts,
        ),
        ("keys", request(&["KEYS", "name*"]).repeat(24), 24),
        ("a transaction", queued(shorts), shorts + 2),
    ] {
        let (mut plain, mut sealed) = (served.client(), Sealed::connect(&served, &config));
        assert_eq!(plain.say("CLIENT SETNAME plain"), "+OK");
        assert_eq!(
            sealed.ask(&["CLIENT", "SETNAME", "sealed"]).to_string(),
            "+OK"
        );
        plain.write(&requests);
        sealed.write(&requests).unwrap();
        wait_until_stuck(&served, &mut control, &["plain", "sealed"]);
        let held = ["plain", "sealed"].map(|name| figure(&mut control, name, "tot-mem"));
        expect_alike(what, held);
        for _ in 0..replies {
            let expected = plain.read().expect("a reply");
            let reply = Reply::read(&mut sealed.0).unwrap().expect("a reply");
            assert!(
                reply == expected,
                "{what}: {} and {}",
                kind(&reply),
                kind(&expected)
            );
        }
        assert_eq!(sealed.ask(&["PING"]).to_string(), "+PONG", "{what}");
    }
    expect_value(&mut control, "long", &long);
    assert_eq!(served.figures().evicted_clients, 0);
}

#[test]
fn unread_messages_take_no_more_of_encrypted_subscribers() {
    const MESSAGE: usize = 10_000;
    const WAITING: usize = 512 << 10;
    let files = Files::new();
    let served = files.serve(None);
    let (mut control, mut publisher) = (served.client(), served.client());
    let mut plain = served.client();
    let mut sealed = Sealed::connect(&served, &files.client_config(BOTH, false));
    assert_eq!(plain.say("CLIENT SETNAME plain"), "+OK");
    let named = sealed.ask(&["CLIENT", "SETNAME", "sealed"]);
    assert_eq!(named.to_string(), "+OK");
    plain.ask(&["SUBSCRIBE", "channel"]);
    sealed.ask(&["SUBSCRIBE", "channel"]);
    let mut published = 0_u32;
    loop {
        // Every other one is copied for each subscriber.
        let bytes = if published.is_multiple_of(2) {
            MESSAGE
        } else {
            400
        };
        let seed = u8::try_from(published % 256).unwrap();
        let reply = publisher.ask(&[&b"PUBLISH"[..], b"channel", &value(bytes, seed)]);
        assert_eq!(reply.to_string(), ":2");
        published += 1;
        let is_much = published.is_multiple_of(50)
            && (["plain", "sealed"].iter()).all(|name| figure(&mut control, name, "obl") > WAITING);
        if is_much {
            break;
        }
    }
    let held = ["plain", "sealed"].map(|name| figure(&mut control, name, "tot-mem"));
    expect_alike(&format!("{published} messages"), held);
    for number in 0..published {
        let expected = plain.read().expect("a message");
        let message = Reply::read(&mut sealed.0).unwrap().expect("a message");
        let got = (kind(&message), kind(&expected));
        assert!(message == expected, "message {number}: {got:?}");
    }
    assert_eq!(served.figures().slow_subscribers, 0);
}

#[test]
fn messages_are_sent_to_subscribers_many_at_once() {
    const MESSAGES: usize = 2_000;
    // So long that all subscribers read the same bytes, and no longer.
    const BYTES: usize = 600;
    let files = Files::new();
    let served = files.serve_on(1, 64 << 20, None);
    for is_encrypted in [false, true] {
        let mut publisher = served.client();
        let text = value(BYTES, 1);
        let publish = request(&[&b"PUBLISH"[..], b"channel", &text]);
        let mut read: Box<dyn FnMut() -> Reply> = if is_encrypted {
            let mut sealed = Sealed::connect(&served, &files.client_config(BOTH, false));
            sealed.ask(&["SUBSCRIBE", "channel"]);
            Box::new(move || Reply::read(&mut sealed.0).unwrap().unwrap())
        } else {
            let mut plain = served.client();
            plain.ask(&["SUBSCRIBE", "channel"]);
            Box::new(move || plain.read().unwrap())
        };
        let before = served.figures().sends;
        publisher.write(&publish.repeat(MESSAGES));
        for _ in 0..MESSAGES {
            assert!(read().elements()[2] == Reply::Bulk(text.clone()));
        }
        for _ in 0..MESSAGES {
            assert!(publisher.read().unwrap().to_string().starts_with(':'));
        }
        let sends = served.figures().sends - before;
        println!("encrypted: {is_encrypted}; {sends} sends");
        assert!(sends < MESSAGES as u64 / 4, "{sends} sends");
    }
}
