//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`, as clients see them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use self::support::{Random, Served, WordClient, on_servers, wait_until};

const ABORTED: &str = "(error) EXECABORT Transaction discarded because of previous errors.";

#[test]
fn exec_runs_queued_commands_in_order_and_shows_their_errors() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    let replies = client.call_all(&["MULTI", "SET a 1", "INCR a", "LPUSH", "GET a"]);
    assert_eq!(replies[..3], ["OK", "QUEUED", "QUEUED"]);
    assert_eq!(client.call("DISCARD"), "OK");
    let commands = [
        "MULTI",
        "SET a 5",
        "INCR a",
        "SET b text",
        "INCR b",
        "GETRANGE b 1 2",
        "SET a 1 EX nonsense",
        "MGET a b c",
        "DEL a c",
        "PING",
        "EXEC",
    ];
    let replies = client.call_all(&commands);
    assert!(replies[1..10].iter().all(|reply| reply == "QUEUED"));
    let expected = "[OK, 6, OK, (error) ERR value is not an integer or out of range, \"ex\", \
                    (error) ERR value is not an integer or out of range, [\"6\", \"text\", nil], \
                    1, PONG]";
    assert_eq!(replies[10], expected);
    assert_eq!(client.call("MGET a b"), "[nil, \"text\"]");
}

#[test]
fn nothing_runs_before_exec_and_discard_forgets_it() {
    let server = Served::roomy(2);
    let (mut client, mut other) = (server.word_client(), server.word_client());
    client.call_all(&["MULTI", "SET a 1"]);
    assert_eq!(other.call("GET a"), "nil");
    assert!(
        other
            .call("CLIENT LIST")
            .contains("flags=x db=0 sub=0 psub=0 ssub=0 multi=1 ")
    );
    assert_eq!(client.call("DISCARD"), "OK");
    assert_eq!(client.call("GET a"), "nil");
    assert_eq!(client.call("EXEC"), "(error) ERR EXEC without MULTI");
    assert_eq!(client.call("DISCARD"), "(error) ERR DISCARD without MULTI");
    assert_eq!(client.call_all(&["MULTI", "EXEC"]), ["OK", "[]"]);
}

#[test]
fn a_command_that_is_refused_aborts_the_transaction() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    for wrong in ["GET", "NOSUCH a", "SHUTDOWN"] {
        client.call_all(&["MULTI", "SET a 1"]);
        let refused = client.call(wrong);
        assert!(refused.starts_with("(error) ERR"), "{refused}");
        assert_eq!(client.call("SET b 1"), "QUEUED");
        assert_eq!(client.call("EXEC"), ABORTED);
        assert_eq!(client.call("MGET a b"), "[nil, nil]");
    }
    client.call("MULTI");
    let replies = client.call_all(&["EXEC now", "EXEC"]);
    let expected = "(error) EXECABORT Transaction discarded because of: wrong number of arguments \
                    for 'exec' command";
    assert_eq!(replies, [expected, "(error) ERR EXEC without MULTI"]);
}

#[test]
fn multi_and_watch_inside_multi_are_refused_but_abort_nothing() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    let replies = client.call_all(&["MULTI", "MULTI", "WATCH a", "SET a 1", "EXEC"]);
    let expected = [
        "OK",
        "(error) ERR MULTI calls can not be nested",
        "(error) ERR WATCH inside MULTI is not allowed",
        "QUEUED",
        "[OK]",
    ];
    assert_eq!(replies, expected);
}

/// What a client does to a watched key, and whether that has `EXEC` do nothing.
const TOUCHES: [(&str, bool); 11] = [
    ("SET {w}key other", true),
    // To store an equal value makes another version, too.
    ("SET {w}key 1", true),
    ("INCR {w}key", true),
    ("DEL {w}key", true),
    ("EXPIRE {w}key 100", true),
    ("PEXPIREAT {w}key 1", true),
    ("FLUSHALL", true),
    ("SET {w}absent 1", true),
    ("GET {w}key", false),
    ("DEL {w}absent", false),
    ("SETNX {w}key 5", false),
];

#[test]
fn exec_does_nothing_if_a_watched_key_was_changed() {
    let server = Served::roomy(2);
    let (mut client, mut other) = (server.word_client(), server.word_client());
    // The last commands are replayed one after the other.
    for queued in ["SET {w}out 1", "SET elsewhere 1", "DBSIZE", "KEYS *"] {
        for (touch, is_conflict) in TOUCHES {
            for is_own in [false, true] {
                client.call_all(&["FLUSHALL", "SET {w}key 1", "WATCH {w}key {w}absent"]);
                let toucher = if is_own { &mut client } else { &mut other };
                toucher.call(touch);
                client.call_all(&["MULTI", queued]);
                let reply = client.call("EXEC");
                assert_eq!(reply == "nil", is_conflict, "{touch}, {queued}: {reply}");
                // A conflict is over with its EXEC.
                let again = client.call_all(&["MULTI", "PING", "EXEC"]);
                assert_eq!(again[2], "[PONG]");
            }
        }
    }
}

#[test]
fn a_change_while_commands_are_queued_counts() {
    let server = Served::roomy(2);
    let (mut client, mut other) = (server.word_client(), server.word_client());
    for queued in ["INCR {w}key", "DBSIZE"] {
        client.call_all(&["WATCH {w}key", "MULTI", queued]);
        other.call("SET {w}key 7");
        assert_eq!(client.call("EXEC"), "nil");
        assert_eq!(client.call("GET {w}key"), "\"7\"");
    }
}

#[test]
fn unwatch_discard_exec_and_reset_forget_watched_keys() {
    let server = Served::roomy(2);
    let (mut client, mut other) = (server.word_client(), server.word_client());
    for forget in [
        &["UNWATCH"][..],
        &["MULTI", "DISCARD"],
        &["MULTI", "EXEC"],
        &["MULTI", "GET", "EXEC"],
        &["RESET"],
    ] {
        client.call_all(&["SET k 1", "WATCH k"]);
        client.call_all(forget);
        other.call("SET k 2");
        assert_eq!(client.call_all(&["MULTI", "GET k", "EXEC"])[2], "[\"2\"]");
    }
    // Inside a transaction it comes too late.
    client.call_all(&["WATCH k", "MULTI", "UNWATCH", "PING"]);
    other.call("SET k 3");
    assert_eq!(client.call("EXEC"), "nil");
}

#[test]
fn the_first_version_of_a_key_that_is_watched_twice_counts() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    let replies = client.call_all(&["WATCH k", "SET k 1", "WATCH k j", "MULTI", "PING", "EXEC"]);
    assert_eq!(replies[5], "nil");
}

#[test]
fn a_watched_key_that_expires_is_a_conflict_and_one_that_had_is_none() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    let until_expired = |client: &mut WordClient| {
        wait_until("it has expired", || client.call("EXISTS k") == "0");
    };
    // The second one is replayed.
    for queued in ["GET k", "DBSIZE"] {
        wait_until("it lives when it is watched", || {
            client.call("UNWATCH");
            client.call_all(&["SET k 1 PX 50", "WATCH k", "EXISTS k"])[2] == "1"
        });
        until_expired(&mut client);
        assert_eq!(client.call_all(&["MULTI", queued, "EXEC"])[2], "nil");
        client.call("SET k 1 PX 1");
        until_expired(&mut client);
        let replies = client.call_all(&["WATCH k", "MULTI", queued, "EXEC"]);
        assert_ne!(replies[3], "nil", "{queued}");
    }
    let replies = client.call_all(&["SET k 1 EX 1000", "WATCH k", "PEXPIREAT k 1"]);
    assert_eq!(replies[1], "OK");
    assert_eq!(client.call_all(&["MULTI", "PING", "EXEC"])[2], "nil");
    let replies = client.call_all(&["WATCH k", "DEL k", "MULTI", "PING", "EXEC"]);
    assert_eq!(replies[4], "[PONG]");
}

/// Commands of another client between `WATCH` of the absent key `{w}k` and `EXEC`, which leave it
/// absent.
const STORED_AND_REMOVED: &[&[&str]] = &[
    &["SET {w}k 1", "DEL {w}k"],
    &["SET {w}k 1", "SET {w}k 2", "UNLINK {w}k"],
    &["SET {w}k 1 EX 100", "GETDEL {w}k"],
    &["SET {w}k 1", "DELIFEQ {w}k 1"],
    &["SET {w}k 1 EXAT 1"],
    &["SETEX {w}k 100 1", "PEXPIREAT {w}k 1"],
    &["INCR {w}k", "GETEX {w}k PXAT 1"],
    &["APPEND {w}k v", "DEL {w}k"],
    &["MSET {w}k v {w}j v", "DEL {w}k {w}j"],
    &["MSETNX {w}k v {w}l v", "DEL {w}k {w}l"],
    &["SET {w}k 1", "RENAME {w}k {w}other"],
    &["SET {w}a 1", "RENAME {w}a {w}k", "DEL {w}k"],
    &["SET {w}a 1", "COPY {w}a {w}k", "DEL {w}k"],
    &["HSET {w}k f v", "HDEL {w}k f"],
    &["SADD {w}k a", "SREM {w}k a"],
    &["SADD {w}k a", "SPOP {w}k"],
    &["SADD {w}k a", "SMOVE {w}k {w}s a"],
    &[
        "SADD {w}b a",
        "SUNIONSTORE {w}k {w}b",
        "SDIFFSTORE {w}k {w}b {w}b",
    ],
    &["RPUSH {w}k a", "LPOP {w}k"],
    &["RPUSH {w}k a", "LMOVE {w}k {w}m LEFT LEFT"],
    &["RPUSH {w}k a b", "LTRIM {w}k 5 9"],
    &["SET {w}k 1", "FLUSHALL"],
    &["MULTI", "SET {w}k 1", "DEL {w}k", "EXEC"],
    &["MULTI", "SET {w}k 1 EXAT 1", "EXEC"],
    &["MULTI", "SET {w}k 1", "DBSIZE", "DEL {w}k", "EXEC"],
    &["MULTI", "HSET {w}k f v", "DEL {w}k", "EXEC"],
];

/// What is queued: nothing of the key, all at once; a write of it; what must be replayed.
const QUEUED: &[&str] = &[
    "PING",
    "SET {w}k own",
    "INCR {w}n",
    "HSET {w}k f v",
    "DBSIZE",
];

#[test]
fn a_watched_absent_key_that_is_stored_and_removed_again_is_a_conflict() {
    on_servers(|server| {
        let (mut client, mut other) = (server.word_client(), server.word_client());
        for commands in STORED_AND_REMOVED {
            for queued in QUEUED {
                client.call_all(&["DEL {w}k", "WATCH {w}k"]);
                for reply in other.call_all(commands) {
                    assert!(!reply.contains("(error)"), "{commands:?}: {reply}");
                }
                assert_eq!(other.call("EXISTS {w}k"), "0", "{commands:?}");
                let replies = client.call_all(&["MULTI", queued, "EXEC"]);
                assert_eq!(replies[2], "nil", "{commands:?}, then {queued}");
            }
        }
        // By the client itself, and of a long value.
        client.call_all(&["WATCH {w}k", "SET {w}k 1", "DEL {w}k"]);
        assert_eq!(client.call_all(&["MULTI", "PING", "EXEC"])[2], "nil");
        client.call("WATCH {w}k");
        other.send(&[b"SET", b"{w}k", &vec![b'v'; 1 << 20]]);
        assert_eq!(other.reply(), "OK");
        other.call("DEL {w}k");
        assert_eq!(client.call_all(&["MULTI", "PING", "EXEC"])[2], "nil");
    });
}

#[test]
fn a_watched_absent_key_that_is_stored_and_expires_is_a_conflict() {
    on_servers(|server| {
        let (mut client, mut other) = (server.word_client(), server.word_client());
        for queued in QUEUED {
            for is_met in [false, true] {
                client.call_all(&["DEL {w}k", "WATCH {w}k"]);
                assert_eq!(other.call("SET {w}k 1 PX 10"), "OK");
                if is_met {
                    wait_until("it has expired", || other.call("EXISTS {w}k") == "0");
                } else {
                    // The time of the whole server, as nothing requests the key.
                    let now = |client: &mut WordClient| {
                        let time = client.call("TIME");
                        let parts = time.split('"').skip(1).step_by(2);
                        let parts: Vec<u64> = parts.map(|part| part.parse().unwrap()).collect();
                        parts[0] * 1000 + parts[1] / 1000
                    };
                    let until = now(&mut other) + 12;
                    wait_until("its time has come", || now(&mut other) > until);
                }
                let replies = client.call_all(&["MULTI", queued, "EXEC"]);
                assert_eq!(replies[2], "nil", "{queued}");
            }
        }
    });
}

#[test]
fn what_does_not_store_a_watched_absent_key_is_no_conflict() {
    on_servers(|server| {
        let (mut client, mut other) = (server.word_client(), server.word_client());
        for between in [
            "DEL {w}k",
            "GET {w}k",
            "EXISTS {w}k",
            "SET {w}k 1 XX",
            "GETDEL {w}k",
            "EXPIRE {w}k 10",
            "PERSIST {w}k",
            "HDEL {w}k f",
            "SREM {w}k a",
            "LPOP {w}k",
            "LPUSHX {w}k a",
            "SET {w}other 1",
            "DEL {w}older",
            "FLUSHALL",
        ] {
            for queued in QUEUED {
                client.call_all(&["DEL {w}k {w}n", "SET {w}older 1", "WATCH {w}k"]);
                other.call(between);
                let replies = client.call_all(&["MULTI", queued, "EXEC"]);
                assert_ne!(replies[2], "nil", "{between}, then {queued}");
            }
        }
        // Of an expired key too, which was absent when it was watched.
        other.call("SET {w}k 1 PX 1");
        wait_until("it has expired", || other.call("EXISTS {w}k") == "0");
        client.call("WATCH {w}k");
        other.call("DEL {w}k");
        assert_ne!(client.call_all(&["MULTI", "PING", "EXEC"])[2], "nil");
    });
}

/// More than one step compares.
#[test]
fn thousands_of_other_keys_that_come_and_go_are_no_conflict() {
    const OTHERS: usize = 2000;
    on_servers(|server| {
        let (mut client, mut other) = (server.word_client(), server.word_client());
        for round in 0..5 {
            assert_eq!(client.call("WATCH absent"), "OK");
            for key in 0..OTHERS {
                other.send_words(&format!("SET {round}.{key} v"));
                other.send_words(&format!("DEL {round}.{key}"));
            }
            for _ in 0..OTHERS {
                assert_eq!((other.reply(), other.reply()), ("OK".into(), "1".into()));
            }
            assert_eq!(client.call("MULTI"), "OK");
            assert_eq!(client.call("SET k v"), "QUEUED");
            assert_ne!(client.call("EXEC"), "nil", "round {round}");
        }
    });
}

#[test]
fn many_absent_keys_are_watched() {
    on_servers(|server| {
        let (mut client, mut other) = (server.word_client(), server.word_client());
        let watch: Vec<_> = (0..300).map(|number| format!(" key{number}")).collect();
        let watch = format!("WATCH{}", watch.concat());
        for queued in ["PING", "SET key7 1"] {
            assert_eq!(client.call(&watch), "OK");
            assert_ne!(client.call_all(&["MULTI", queued, "EXEC"])[2], "nil");
            client.call("DEL key7");
            assert_eq!(client.call(&watch), "OK");
            other.call_all(&["SET key250 1", "DEL key250"]);
            assert_eq!(client.call_all(&["MULTI", queued, "EXEC"])[2], "nil");
        }
    });
}

#[test]
fn commands_that_have_no_atomic_form_are_replayed() {
    let server = Served::roomy(2);
    let mut client = server.word_client();
    let mut commands = vec!["MULTI".to_owned(), "FLUSHALL".to_owned()];
    // They lie in several shards.
    commands.extend((0..40).map(|number| format!("SET key{number} {number}")));
    commands.extend(
        [
            "DBSIZE",
            "RENAME key1 key0",
            "GET key0",
            "RENAME key1 x",
            "EXEC",
        ]
        .map(String::from),
    );
    let commands: Vec<_> = commands.iter().map(|command| &command[..]).collect();
    let replies = client.call_all(&commands);
    let mut expected = vec!["OK"; 41];
    expected.extend(["40", "OK", "\"1\"", "(error) ERR no such key"]);
    assert_eq!(
        replies.last().unwrap(),
        &format!("[{}]", expected.join(", "))
    );
    // What was sent after it ran after it.
    let replies = client.call_all(&[
        "MULTI", "SET a 1", "KEYS a", "EXEC", "GET a", "SET a 2", "GET a",
    ]);
    assert_eq!(replies[3..], ["[OK, [\"a\"]]", "\"1\"", "OK", "\"2\""]);
}

#[test]
fn a_long_reply_of_replayed_commands_arrives_whole() {
    let server = Served::roomy(2);
    let mut client = server.word_client();
    let value = vec![b'v'; 100_000];
    client.send(&[b"SET", b"k", &value]);
    assert_eq!(client.reply(), "OK");
    client.send_words("MULTI");
    for _ in 0..100 {
        client.send_words("GET k");
    }
    client.send_words("DBSIZE");
    client.send_words("EXEC");
    client.send_words("PING");
    for _ in 0..102 {
        client.reply();
    }
    let reply = client.reply();
    let one = format!("\"{}\"", "v".repeat(100_000));
    let expected = format!("[{}, 1]", vec![one; 100].join(", "));
    assert!(reply == expected, "{} bytes", reply.len());
    assert_eq!(client.reply(), "PONG");
}

#[test]
fn long_values_are_stored_and_read_inside_a_transaction() {
    let server = Served::roomy(2);
    let (mut client, mut other) = (server.word_client(), server.word_client());
    let value = vec![b'v'; 3 << 20];
    client.call("MULTI");
    client.send(&[b"SET", b"k", &value]);
    client.send_words("STRLEN k");
    client.send_words("SET short 1");
    client.send_words("GET k");
    for _ in 0..4 {
        assert_eq!(client.reply(), "QUEUED");
    }
    assert_eq!(other.call("EXISTS k"), "0");
    let shown = format!("\"{}\"", "v".repeat(3 << 20));
    let reply = client.call("EXEC");
    assert!(
        reply == format!("[OK, 3145728, OK, {shown}]"),
        "{} bytes",
        reply.len()
    );
    assert_eq!(client.call("GET short"), "\"1\"");
    // A key that is watched is compared before.
    client.call("WATCH k");
    client.send(&[b"SET", b"other", &value]);
    assert_eq!(client.reply(), "OK");
    client.call_all(&["MULTI", "GET k"]);
    other.call("APPEND short x");
    assert!(client.call("EXEC") == format!("[{shown}]"));
    client.call_all(&["WATCH k", "MULTI", "GET k"]);
    other.call("SET k 2");
    assert_eq!(client.call("EXEC"), "nil");
}

#[test]
fn long_values_that_come_faster_than_they_are_stored_arrive_whole() {
    let server = Served::roomy(2);
    let mut client = server.word_client();
    let value = vec![b'v'; 8 << 20];
    for _ in 0..8 {
        client.send(&[b"SET", b"k", &value]);
        assert_eq!(client.reply(), "OK");
        assert_eq!(client.call("STRLEN k"), value.len().to_string());
    }
}

#[test]
fn null_is_of_the_protocol() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    client.call("HELLO 3");
    for queued in ["GET k", "DBSIZE"] {
        client.call_all(&["WATCH k", "SET k 1", "MULTI", queued]);
        client.send_words("EXEC");
        assert_eq!(client.reply(), "nil");
    }
    assert_eq!(client.call_all(&["MULTI", "GET none", "EXEC"])[2], "[nil]");
}

#[test]
fn a_queue_that_is_too_long_aborts_the_transaction() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    let value = vec![b'x'; 15 << 20];
    client.call("MULTI");
    for _ in 0..4 {
        client.send(&[b"SET", b"k", &value]);
        assert_eq!(client.reply(), "QUEUED");
    }
    client.send(&[b"SET", b"k", &value]);
    let refused = client.reply();
    assert!(refused.starts_with("(error) ERR the commands"), "{refused}");
    assert_eq!(client.call("PING"), "QUEUED");
    assert_eq!(client.call("EXEC"), ABORTED);
    assert_eq!(client.call("EXISTS k"), "0");
}

#[test]
fn a_client_that_leaves_has_its_queue_forgotten() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    client.call_all(&["MULTI", "SET k 1"]);
    drop(client);
    wait_until("it is gone", || server.figures().connections == 0);
    // The connection's number is used again.
    let mut other = server.word_client();
    assert_eq!(other.call("GET k"), "nil");
    assert_eq!(other.call("EXEC"), "(error) ERR EXEC without MULTI");
}

/// Runs something in threads with a client each.
fn with_clients(server: &Served, count: usize, work: impl Fn(WordClient, usize) + Sync) {
    thread::scope(|scope| {
        for place in 0..count {
            let (client, work) = (server.word_client(), &work);
            scope.spawn(move || work(client, place));
        }
    });
}

const CLIENTS: usize = 4;
const ROUNDS: usize = 250;
/// Rounds with many commands, and how many these are: more than a core takes at once.
const ROUNDS_OF_MANY: usize = 50;
const BETWEEN: usize = 1_500;

#[test]
fn counters_that_are_watched_add_up() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        with_clients(&server, CLIENTS, |mut client, _| {
            let mut done = 0;
            while done < ROUNDS {
                let seen = client.call_all(&["WATCH n", "GET n"]).remove(1);
                let seen: u64 = seen.trim_matches('"').parse().unwrap_or(0);
                let set = format!("SET n {}", seen + 1);
                let reply = client.call_all(&["MULTI", &set, "EXEC"]).remove(2);
                assert!(matches!(&reply[..], "[OK]" | "nil"), "{reply}");
                done += usize::from(reply == "[OK]");
            }
        });
        let expected = format!("\"{}\"", CLIENTS * ROUNDS);
        assert_eq!(server.word_client().call("GET n"), expected);
    }
}

#[test]
fn commands_of_one_shard_are_carried_out_at_once() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                let (mut client, is_over) = (server.word_client(), &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let replies = client.call_all(&["MULTI", "MGET {t}a {t}b", "EXEC"]);
                        let (a, b) = replies[2]
                            .trim_matches(['[', ']'])
                            .split_once(", ")
                            .unwrap();
                        assert_eq!(a, b);
                        // Two commands see b no older than a.
                        let replies = client.call_all(&["GET {t}a", "GET {t}b"]);
                        let number = |place: usize| -> u64 {
                            replies[place].trim_matches('"').parse().unwrap_or(0)
                        };
                        assert!(number(0) <= number(1), "{replies:?}");
                    }
                });
            }
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let mut client = server.word_client();
                    // Replayed, they would take several turns of a core.
                    let mut commands = vec!["INCR {t}between"; BETWEEN + 4];
                    commands[..2].copy_from_slice(&["MULTI", "INCR {t}a"]);
                    commands[BETWEEN + 2..].copy_from_slice(&["INCR {t}b", "EXEC"]);
                    scope.spawn(move || {
                        for _ in 0..ROUNDS_OF_MANY {
                            client.call_all(&commands);
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = writers
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok));
        });
        let expected = format!("\"{}\"", 2 * ROUNDS_OF_MANY);
        let both = server.word_client().call("MGET {t}a {t}b");
        assert_eq!(both, format!("[{expected}, {expected}]"));
    }
}

/// A random command of one or a few of four keys.
fn random_command(random: &mut Random) -> String {
    let mut key = || format!("{{r}}k{}", random.below(4));
    let (key, other) = (key(), key());
    let number = random.below(40);
    match random.below(30) {
        0 => format!("SET {key} {number}"),
        1 => format!("SET {key} {number} NX"),
        2 => format!("SET {key} text XX GET"),
        3 => format!("SET {key} {number} EXAT 99999999999"),
        4 => format!("SET {key} {number} KEEPTTL"),
        5 => format!("GETSET {key} {number}"),
        6 => format!("GETDEL {key}"),
        7 => format!("GETEX {key} EXAT 88888888888"),
        8 => format!("GETEX {key} PERSIST"),
        9 => format!("SETEX {key} 0 {number}"),
        10 => format!("EXPIREAT {key} {} GT", 77_777_777_777_usize + number),
        11 => format!("EXPIREAT {key} 5"),
        12 => format!("PERSIST {key}"),
        13 => format!("EXPIRETIME {key}"),
        14 => format!("INCRBY {key} {number}"),
        15 => format!("DECR {key}"),
        16 => format!("INCRBYFLOAT {key} 0.5"),
        17 => format!("APPEND {key} {number}"),
        18 => format!("SETRANGE {key} {number} ab"),
        19 => format!("GETRANGE {key} -3 {number}"),
        20 => format!("GETRANGE {key} 1 {number}"),
        21 => format!("STRLEN {key}"),
        22 => format!("MSET {key} {number} {other} x"),
        23 => format!("MGET {key} {other}"),
        24 => format!("DEL {key} {other}"),
        25 => format!("EXISTS {key} {other}"),
        26 => format!("TYPE {key}"),
        27 => format!("SETNX {key} {number}"),
        28 => format!("EXPIRE {key} {number} NX XX"),
        _ => format!("GET {key}"),
    }
}

#[test]
fn commands_reply_the_same_inside_a_transaction() {
    let (plain, queued) = (Served::roomy(1), Served::roomy(2));
    let (mut plain, mut queued) = (plain.word_client(), queued.word_client());
    let mut random = Random::new();
    for _ in 0..400 {
        let count = 1 + random.below(12);
        let commands: Vec<_> = (0..count).map(|_| random_command(&mut random)).collect();
        let commands: Vec<_> = commands.iter().map(|command| &command[..]).collect();
        let expected = format!("[{}]", plain.call_all(&commands).join(", "));
        let in_multi = [&["MULTI"], &commands[..], &["EXEC"]].concat();
        let replies = queued.call_all(&in_multi);
        assert_eq!(replies.last(), Some(&expected), "{commands:#?}");
    }
}

#[test]
fn what_would_break_the_reply_of_exec_is_not_queued() {
    let served = Served::with(2, |options| options.monitors = true);
    for command in [
        "CLIENT REPLY OFF",
        "CLIENT REPLY SKIP",
        "CLIENT UNKNOWN",
        "OBJECT UNKNOWN k",
        "OBJECT ENCODING",
        "MEMORY UNKNOWN",
        "MONITOR",
        "SUBSCRIBE a b",
        "PSUBSCRIBE a b",
        "SSUBSCRIBE a b",
        "UNSUBSCRIBE",
        "PUNSUBSCRIBE",
        "SUNSUBSCRIBE",
    ] {
        let mut client = served.client();
        assert_eq!(client.say("MULTI"), "+OK");
        assert_eq!(client.say("SET k v"), "+QUEUED");
        let refused = client.say(command);
        assert!(refused.starts_with("-ERR"), "{command}: {refused}");
        let aborted = client.say("EXEC");
        assert!(aborted.starts_with("-EXECABORT"), "{command}: {aborted}");
        assert_eq!(client.say("EXISTS k"), ":0", "{command}");
    }
    let mut client = served.client();
    assert_eq!(client.say("MULTI"), "+OK");
    for command in [
        "COMMAND",
        "COMMAND COUNT",
        "OBJECT HELP",
        "SUBSCRIBE a",
        "PING",
    ] {
        assert_eq!(client.say(command), "+QUEUED", "{command}");
    }
    assert_eq!(client.ask(&["EXEC"]).elements().len(), 5);
}
