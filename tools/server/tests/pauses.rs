//! `CLIENT PAUSE` of a whole server: commands of all cores wait, in the order in which they came.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::words::{WordClient, expect};
use self::support::{Served, on_servers, wait_until};

/// Bytes of a value that is stored while it comes.
const LONG_BYTES: usize = 6 << 20;

fn waiting(client: &mut WordClient) -> String {
    let text = client.call("info clients");
    let line = text
        .split("\\r\\n")
        .find_map(|line| line.strip_prefix("blocked_clients:"));
    line.unwrap().to_owned()
}

fn wait_for(owner: &mut WordClient, count: usize) {
    wait_until("clients wait", || waiting(owner) == count.to_string());
}

#[test]
fn commands_that_write_wait_on_all_cores_and_others_do_not() {
    on_servers(|server| {
        let mut owner = server.word_client();
        expect(
            &mut owner,
            &[("set k 1", "OK"), ("client pause 100000 write", "OK")],
        );
        let mut clients: Vec<_> = (0..6).map(|_| server.word_client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.call("get k"), "\"1\"");
            client.send_words(&format!("set k{number} x"));
            client.send_words(&format!("get k{number}"));
        }
        wait_for(&mut owner, 6);
        assert_eq!(owner.call("exists k0 k1 k2 k3 k4 k5"), "0");
        expect(&mut owner, &[("client unpause", "OK")]);
        for client in &mut clients {
            assert_eq!(
                (client.reply(), client.reply()),
                ("OK".to_owned(), "\"x\"".to_owned())
            );
        }
        assert_eq!(waiting(&mut owner), "0");
    });
}

#[test]
fn all_commands_wait_until_the_time_is_over() {
    on_servers(|server| {
        let mut owner = server.word_client();
        let mut other = server.word_client();
        expect(
            &mut owner,
            &[
                (
                    "client pause x",
                    "(error) ERR timeout is not an integer or out of range",
                ),
                ("client pause -1", "(error) ERR timeout is negative"),
                (
                    "client pause 1 some",
                    "(error) ERR CLIENT PAUSE mode must be WRITE or ALL",
                ),
                ("client pause 100 all", "OK"),
            ],
        );
        // It ends by itself.
        assert_eq!(other.call("ping"), "PONG");
        assert_eq!(owner.call("ping"), "PONG");
    });
}

#[test]
fn transactions_and_scripts_wait_as_a_whole_and_end_what_they_have_begun() {
    on_servers(|server| {
        let (mut owner, mut other) = (server.word_client(), server.word_client());
        expect(
            &mut owner,
            &[
                ("multi", "OK"),
                ("set a 1", "QUEUED"),
                ("client pause 100000 write", "QUEUED"),
                ("set b 2", "QUEUED"),
                ("exec", "[OK, OK, OK]"),
                ("multi", "OK"),
                ("get a", "QUEUED"),
                ("exec", "[\"1\"]"),
            ],
        );
        other.send(&[b"eval", b"#!lua flags=no-writes\nreturn 7", b"0"]);
        assert_eq!(other.reply(), "7");
        other.send(&[b"eval", b"return 8", b"0"]);
        wait_for(&mut owner, 1);
        expect(&mut owner, &[("client unpause", "OK")]);
        assert_eq!(other.reply(), "8");
    });
}

#[test]
fn one_that_waits_can_be_disconnected() {
    let server = Served::start(2);
    let (mut owner, mut other) = (server.word_client(), server.word_client());
    let id = other.call("client id");
    expect(&mut owner, &[("client pause 100000 write", "OK")]);
    other.send_words("set k 1");
    wait_for(&mut owner, 1);
    assert_eq!(owner.call(&format!("client kill id {id}")), "1");
    wait_for(&mut owner, 0);
    assert!(other.is_closed());
    expect(&mut owner, &[("client unpause", "OK"), ("exists k", "0")]);
}

/// Has a client begin to send a long value, and waits until the server stores what has come.
fn begin_long_value(owner: &mut WordClient, client: &mut WordClient) {
    let head = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${LONG_BYTES}\r\n");
    client.0.write(head.as_bytes());
    client.0.write(&vec![b'x'; LONG_BYTES / 2]);
    wait_until("the value is stored", || {
        owner.call("client list").contains("cmd=set")
    });
}

#[test]
fn a_pause_has_begun_once_no_command_writes_any_more() {
    let server = Served::vast(2);
    let [mut owner, mut amid, mut late, mut waits, mut other] =
        [(); 5].map(|()| server.word_client());
    // It changes nothing until another client writes.
    waits.send_words("blpop list 0");
    wait_for(&mut other, 1);
    begin_long_value(&mut owner, &mut amid);
    owner.send_words("client pause 100000 write");
    late.send_words("set k 1");
    wait_for(&mut other, 2);
    owner.0.stream.get_ref().set_nonblocking(true).unwrap();
    let error = owner.0.peek(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    owner.0.stream.get_ref().set_nonblocking(false).unwrap();
    amid.0.write(&vec![b'y'; LONG_BYTES / 2]);
    amid.0.write(b"\r\n");
    assert_eq!(owner.reply(), "OK");
    expect(
        &mut owner,
        &[("strlen long", &LONG_BYTES.to_string()), ("exists k", "0")],
    );
    assert_eq!(amid.reply(), "OK");
    expect(&mut owner, &[("client unpause", "OK")]);
    assert_eq!(late.reply(), "OK");
    expect(&mut owner, &[("rpush list a", "1")]);
    assert_eq!(waits.reply(), "[\"list\", \"a\"]");
}

#[test]
fn there_is_no_pause_if_a_command_that_writes_does_not_end() {
    let server = Served::vast(2);
    let [mut owner, mut amid, mut late] = [(); 3].map(|()| server.word_client());
    begin_long_value(&mut owner, &mut amid);
    let reply = owner.call("client pause 100000 write");
    assert!(
        reply.contains("has begun before, and has not ended in 5 s"),
        "{reply}"
    );
    assert_eq!(late.call("set k 1"), "OK");
}
