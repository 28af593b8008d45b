//! `EXEC` of watched keys that cannot be carried out at once, so that it holds sections: two at a
//! time, and such whose clients leave or are killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::{Served, WordClient, wait_until};

/// Transactions of two clients at once.
const ROUNDS: usize = 50;
/// Reads of a transaction whose replies no socket holds.
const READS: usize = 400;

/// Watches a key, and queues what cannot be planned.
fn begin(client: &mut WordClient, writes: &str) {
    for (command, reply) in [
        ("WATCH k", "OK"),
        ("MULTI", "OK"),
        ("DBSIZE", "QUEUED"),
        (writes, "QUEUED"),
    ] {
        assert_eq!(client.call(command), reply, "{command}");
    }
}

#[test]
fn one_of_two_transactions_that_watch_a_key_succeeds() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let mut clients = [(); 2].map(|()| server.word_client());
        for round in 1..=ROUNDS {
            for client in &mut clients {
                begin(client, "INCR k");
            }
            for client in &mut clients {
                client.send_words("EXEC");
            }
            let mut replies = clients.each_mut().map(WordClient::reply);
            replies.sort();
            let keys = usize::from(round > 1);
            assert_eq!(replies, [format!("[{keys}, {round}]"), "nil".to_owned()]);
        }
        assert_eq!(server.section_figures().sections_lost, 0);
    }
}

/// Has a client begin a transaction whose last command is a write, and read nothing.
fn begin_unread(server: &Served) -> (WordClient, String) {
    let mut client = server.word_client();
    let number = client.call("CLIENT ID");
    begin(&mut client, "PING");
    for _ in 0..READS {
        assert_eq!(client.call("GET long"), "QUEUED");
    }
    assert_eq!(client.call("SET k lost"), "QUEUED");
    let before = server.figures().commands;
    client.send_words("EXEC");
    wait_until("some commands run", || {
        server.figures().commands > before + 3
    });
    (client, number)
}

#[test]
fn others_go_on_once_a_client_that_holds_sections_ends() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let mut other = server.word_client();
        let value = vec![b'v'; 100_000];
        other.send(&[b"SET", b"long", &value]);
        assert_eq!(other.reply(), "OK");
        assert_eq!(other.call("SET k first"), "OK");
        for is_killed in [true, false] {
            let (client, number) = begin_unread(&server);
            let mut leaving = Some(client);
            if is_killed {
                // It may be closed already: it does not read.
                other.call(&format!("CLIENT KILL ID {number}"));
            } else {
                leaving = None;
            }
            assert_eq!(other.call("SET second 1"), "OK");
            begin(&mut other, "SET third 1");
            assert_eq!(other.call("EXEC").matches("OK").count(), 1);
            wait_until("it is gone", || server.figures().connections == 1);
            // What has begun runs to its end.
            assert_eq!(other.call("GET k"), "\"lost\"");
            assert_eq!(other.call("SET k first"), "OK");
            drop(leaving);
        }
    }
}

#[test]
fn a_client_that_ends_itself_in_a_transaction_leaves_all_of_it_done() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let mut other = server.word_client();
        for _ in 0..3 {
            let mut client = server.word_client();
            let number = client.call("CLIENT ID");
            client.call("MULTI");
            for command in [
                "RPUSH list a",
                &format!("CLIENT KILL ID {number} SKIPME no"),
                "LMOVE list moved LEFT RIGHT",
                "SET last 1",
                "PUBLISH channel text",
            ] {
                assert_eq!(client.call(command), "QUEUED", "{command}");
            }
            client.send_words("EXEC");
            wait_until("it is gone", || server.figures().connections == 1);
            let done = other.call_all(&["EXISTS list", "LLEN moved", "GET last"]);
            assert_eq!(done, ["0", "1", "\"1\""]);
            assert_eq!(other.call("FLUSHALL"), "OK");
        }
        assert_eq!(server.section_figures().sections_lost, 0);
    }
}
