//! Clients that stop in the middle of a command or of its reply: what they hold is counted, and
//! their core sleeps.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::client::request;
use self::support::{Client, Random, Reply, Served, WordClient, wait_until};

/// Times that a core with nothing to do but to wait sleeps soon.
const SLEEPS: u64 = 10;

fn sleeps(served: &Served) -> u64 {
    served.server().reporter().figures().total().sleeps
}

fn expect_sleep(served: &Served) {
    // A command that goes on without its client ends before the second one.
    for _ in 0..2 {
        let before = sleeps(served);
        wait_until("the core sleeps", || sleeps(served) >= before + SLEEPS);
    }
}

#[test]
fn a_core_sleeps_while_a_client_stops_amid_a_long_value() {
    let served = Served::roomy(1);
    let mut random = Random::of(1);
    let value: Vec<u8> = std::iter::repeat_with(|| random.next().to_le_bytes())
        .take(1 << 20)
        .flatten()
        .collect();
    let mut client = served.client();
    let upload = request(&[&b"SET"[..], b"k", &value]);
    let (sent, rest) = upload.split_at(upload.len() / 2);
    client.write(sent);
    expect_sleep(&served);
    let mut other = served.client();
    assert_eq!(other.say("PING"), "+PONG");
    expect_sleep(&served);
    client.write(rest);
    assert_eq!(client.read().unwrap().to_string(), "+OK");
    // More than the sockets hold.
    let gets = request(&["GET", "k"]).repeat(4);
    client.write(&gets);
    expect_sleep(&served);
    assert_eq!(other.say("PING"), "+PONG");
    for _ in 0..4 {
        assert!(client.read() == Some(Reply::Bulk(value.clone())));
    }
}

/// Stores a set, with a member for each number.
fn fill(client: &mut Client, key: &str, members: std::ops::Range<usize>) {
    let count = members.len();
    let members = members.map(|member| format!("m{member}"));
    let words: Vec<_> = ["SADD".to_owned(), key.to_owned()]
        .into_iter()
        .chain(members)
        .collect();
    assert_eq!(client.ask(&words).to_string(), format!(":{count}"));
}

/// Bytes that a client holds, but for its reply as far as it is made.
fn held(client: &mut WordClient, id: &str) -> usize {
    let line = client.call(&format!("client list id {id}"));
    let figure = |name: &str| {
        let found = line.split(&format!(" {name}=")).nth(1).unwrap();
        found.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    figure("tot-mem") - figure("omem")
}

/// Members of a set, whose names have three bytes or more.
const MEMBERS: usize = 5_000;
/// A reply that is longer than what sockets hold.
const DRAW: &str = "srandmember s0 -4000000";
/// What that reply is made of: the record, and each member's place in it.
const DRAW_BYTES: usize = MEMBERS * (3 + 2 * size_of::<&[u8]>());

#[test]
fn what_a_reply_is_made_of_counts_until_it_is_read() {
    const SETS: usize = 6;
    let served = Served::roomy(1);
    let mut filler = served.client();
    for set in 0..SETS {
        let first = 10 + set * MEMBERS;
        fill(&mut filler, &format!("s{set}"), first..first + MEMBERS);
    }
    let mut watcher = served.word_client();
    let union_bytes = SETS * MEMBERS * (3 + size_of::<&[u8]>());
    for (command, times, bytes) in [
        ("sunion s0 s1 s2 s3 s4 s5", 80, union_bytes),
        (DRAW, 1, DRAW_BYTES),
    ] {
        let mut client = served.word_client();
        let id = client.call("client id");
        for _ in 0..times {
            client.send_words(command);
        }
        wait_until("it counts", || held(&mut watcher, &id) >= bytes);
        drop(client);
        wait_until("it is freed", || {
            watcher.call(&format!("client list id {id}")) == "\"\""
        });
    }
}

#[test]
fn messages_that_wait_for_the_end_of_a_reply_count() {
    const MESSAGES: usize = 500;
    let served = Served::roomy(1);
    fill(&mut served.client(), "s0", 10..10 + MEMBERS);
    let (mut client, mut watcher) = (served.word_client(), served.word_client());
    let id = client.call("client id");
    client.call("hello 3");
    client.call("subscribe news");
    client.send_words(DRAW);
    wait_until("it is within the reply", || {
        held(&mut watcher, &id) >= DRAW_BYTES
    });
    let before = held(&mut watcher, &id);
    // Longer ones are shared, and counted for all clients together.
    let message = vec![b'm'; 400];
    for _ in 0..MESSAGES {
        watcher.send(&[b"publish", b"news", &message]);
        assert_eq!(watcher.reply(), "1");
    }
    let after = held(&mut watcher, &id);
    assert!(
        after >= before + MESSAGES * message.len(),
        "{before} {after}"
    );
}
