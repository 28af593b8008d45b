//! Channels: `SUBSCRIBE`, `PUBLISH` and their kin, as clients see them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::thread;
use std::time::{Duration, Instant};

use self::support::{Served, WordClient, wait_until};

/// How long a reply is waited for, far beyond need.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// Waits until a reply is the expected one.
#[track_caller]
fn wait_for(client: &mut WordClient, command: &str, expected: &str) {
    let started = Instant::now();
    loop {
        let reply = client.call(command);
        if reply == expected {
            return;
        }
        let is_over = started.elapsed() > WAIT_LIMIT;
        assert!(!is_over, "{command} replies {reply}, not {expected}");
        thread::yield_now();
    }
}

#[test]
fn messages_reach_the_subscribers_of_all_cores() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        // They are served by the cores in turn.
        let mut subscribers: Vec<_> = (0..4).map(|_| server.word_client()).collect();
        let mut publishers = [server.word_client(), server.word_client()];
        assert_eq!(publishers[0].call("PUBLISH news hello"), "0");
        for (place, subscriber) in subscribers.iter_mut().enumerate() {
            assert_eq!(
                subscriber.call("SUBSCRIBE news"),
                "[\"subscribe\", \"news\", 1]"
            );
            for publisher in &mut publishers {
                let count = publisher.call("PUBLISH news hello");
                assert_eq!(count, (place + 1).to_string());
            }
            assert_eq!(publishers[1].call("PUBLISH other hello"), "0");
        }
        for (place, subscriber) in subscribers.iter_mut().enumerate() {
            for _ in 0..2 * (4 - place) {
                assert_eq!(subscriber.reply(), "[\"message\", \"news\", \"hello\"]");
            }
            let reply = subscriber.call("UNSUBSCRIBE news");
            assert_eq!(reply, "[\"unsubscribe\", \"news\", 0]");
            assert_eq!(subscriber.call("ECHO free"), "\"free\"");
        }
        assert_eq!(publishers[0].call("PUBLISH news hello"), "0");
    }
}

#[test]
fn messages_of_a_publisher_keep_their_order() {
    const MESSAGES: usize = 2_000;
    let server = Served::roomy(2);
    let mut subscribers = [server.word_client(), server.word_client()];
    for subscriber in &mut subscribers {
        subscriber.call("SUBSCRIBE order");
    }
    let mut publishers = [server.word_client(), server.word_client()];
    thread::scope(|scope| {
        for (place, publisher) in publishers.iter_mut().enumerate() {
            scope.spawn(move || {
                let commands: Vec<_> = (0..MESSAGES)
                    .map(|number| format!("PUBLISH order {place}:{number}"))
                    .collect();
                for some in commands.chunks(100) {
                    let some: Vec<_> = some.iter().map(|command| &command[..]).collect();
                    let counts = publisher.call_all(&some);
                    assert!(counts.iter().all(|count| count == "2"), "{counts:?}");
                }
            });
        }
        for subscriber in &mut subscribers {
            scope.spawn(move || {
                let mut next = [0, 0];
                for _ in 0..2 * MESSAGES {
                    let message = subscriber.reply();
                    let text = message.rsplit('"').nth(1).unwrap();
                    let (place, number) = text.split_once(':').unwrap();
                    let place: usize = place.parse().unwrap();
                    assert_eq!(number, next[place].to_string());
                    next[place] += 1;
                }
            });
        }
    });
}

#[test]
fn messages_with_thousands_of_receivers_are_counted_and_keep_their_order() {
    const PATTERNS: usize = 600;
    const MESSAGES: usize = 5;
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let mut subscribers: Vec<_> = (0..6).map(|_| server.word_client()).collect();
        for subscriber in &mut subscribers {
            // Each matches.
            let commands: Vec<_> = (0..PATTERNS)
                .map(|number| format!("PSUBSCRIBE [p{number}]:*"))
                .collect();
            let commands: Vec<_> = commands.iter().map(|command| &command[..]).collect();
            subscriber.call_all(&commands);
            subscriber.call("SUBSCRIBE p:order");
        }
        let expected = (subscribers.len() * (PATTERNS + 1)).to_string();
        let mut publishers = [server.word_client(), server.word_client()];
        let mut other = server.word_client();
        thread::scope(|scope| {
            for (place, publisher) in publishers.iter_mut().enumerate() {
                let expected = &expected;
                scope.spawn(move || {
                    for number in 0..MESSAGES {
                        let count = publisher.call(&format!("PUBLISH p:order {place}:{number}"));
                        assert_eq!(&count, expected);
                    }
                });
            }
            for _ in 0..100 {
                assert_eq!(other.call("PING"), "PONG");
            }
        });
        for subscriber in &mut subscribers {
            // For each pattern, and the channel, the messages of each publisher.
            let mut seen = std::collections::HashMap::<_, [Vec<String>; 2]>::new();
            for _ in 0..2 * MESSAGES * (PATTERNS + 1) {
                let reply = subscriber.reply();
                let words: Vec<_> = reply.trim_matches(['[', ']']).split(", ").collect();
                let text = words.last().unwrap().trim_matches('"');
                let (place, number) = text.split_once(':').unwrap();
                let of = seen.entry(words[1].to_owned()).or_default();
                of[place.parse::<usize>().unwrap()].push(number.to_owned());
            }
            let numbers: Vec<_> = (0..MESSAGES).map(|number| number.to_string()).collect();
            assert_eq!(seen.len(), PATTERNS + 1);
            assert!(seen.values().flatten().all(|of| *of == numbers));
        }
    }
}

#[test]
fn a_message_arrives_once_a_channel_and_once_a_pattern() {
    let server = Served::roomy(2);
    let (mut subscriber, mut publisher) = (server.word_client(), server.word_client());
    let replies = [
        subscriber.call("PSUBSCRIBE n*"),
        subscriber.call("PSUBSCRIBE n[a-e]ws"),
        subscriber.call("SUBSCRIBE news"),
        // It has it already.
        subscriber.call("SUBSCRIBE news"),
    ];
    let expected = [
        "[\"psubscribe\", \"n*\", 1]",
        "[\"psubscribe\", \"n[a-e]ws\", 2]",
        "[\"subscribe\", \"news\", 3]",
        "[\"subscribe\", \"news\", 3]",
    ];
    assert_eq!(replies, expected);
    assert_eq!(publisher.call("PUBLISH news text"), "3");
    assert_eq!(publisher.call("PUBLISH nows text"), "1");
    assert_eq!(publisher.call("PUBLISH views text"), "0");
    let messages: Vec<_> = (0..4).map(|_| subscriber.reply()).collect();
    let expected = [
        "[\"message\", \"news\", \"text\"]",
        "[\"pmessage\", \"n*\", \"news\", \"text\"]",
        "[\"pmessage\", \"n[a-e]ws\", \"news\", \"text\"]",
        "[\"pmessage\", \"n*\", \"nows\", \"text\"]",
    ];
    assert_eq!(messages, expected);
    assert_eq!(
        subscriber.call("PUNSUBSCRIBE n*"),
        "[\"punsubscribe\", \"n*\", 2]"
    );
    assert_eq!(publisher.call("PUBLISH nows text"), "0");
}

#[test]
fn a_client_can_end_all_subscriptions_of_a_kind() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    for command in ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"] {
        let expected = format!("[\"{}\", nil, 0]", command.to_lowercase());
        assert_eq!(client.call(command), expected);
    }
    client.send_words("SUBSCRIBE b a");
    client.send_words("PSUBSCRIBE p");
    for _ in 0..3 {
        client.reply();
    }
    client.send_words("UNSUBSCRIBE");
    let both = [client.reply(), client.reply()];
    let expected = ["[\"unsubscribe\", \"a\", 2]", "[\"unsubscribe\", \"b\", 1]"];
    assert_eq!(both, expected);
    assert_eq!(
        client.call("UNSUBSCRIBE never"),
        "[\"unsubscribe\", \"never\", 1]"
    );
    assert_eq!(client.call("UNSUBSCRIBE"), "[\"unsubscribe\", nil, 1]");
    assert_eq!(client.call("PUNSUBSCRIBE"), "[\"punsubscribe\", \"p\", 0]");
}

#[test]
fn a_subscriber_in_resp2_runs_commands_of_channels_only() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    assert_eq!(client.call("PING"), "PONG");
    client.call("SUBSCRIBE a");
    let expected = "(error) ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / \
                    QUIT / RESET are allowed in this context";
    assert_eq!(client.call("GET k"), expected);
    assert_eq!(client.call("PING"), "[\"pong\", \"\"]");
    assert_eq!(client.call("PING text"), "[\"pong\", \"text\"]");
    assert_eq!(client.call("RESET"), "RESET");
    assert_eq!(client.call("PING"), "PONG");
    assert_eq!(server.word_client().call("PUBLISH a text"), "0");
    client.call("SUBSCRIBE a");
    assert_eq!(client.call("QUIT"), "OK");
    assert!(client.is_closed());
}

#[test]
fn a_subscriber_in_resp3_runs_any_command() {
    let server = Served::roomy(2);
    let mut client = server.word_client();
    client.call("HELLO 3");
    assert_eq!(client.call("SUBSCRIBE a"), ">[\"subscribe\", \"a\", 1]");
    assert_eq!(client.call("SET k 1"), "OK");
    assert_eq!(client.call("PING"), "PONG");
    // Its own message comes behind the reply.
    assert_eq!(client.call("PUBLISH a text"), "1");
    assert_eq!(client.reply(), ">[\"message\", \"a\", \"text\"]");
    // It comes to each subscriber, also on another core.
    let mut other = server.word_client();
    other.call("SUBSCRIBE a");
    assert_eq!(client.call("PUBLISH a text"), "2");
    assert_eq!(client.reply(), ">[\"message\", \"a\", \"text\"]");
    assert_eq!(other.reply(), "[\"message\", \"a\", \"text\"]");
}

#[test]
fn messages_come_whatever_the_reply_mode_is() {
    let server = Served::roomy(1);
    let (mut client, mut publisher) = (server.word_client(), server.word_client());
    client.call("HELLO 3");
    client.send_words("CLIENT REPLY OFF");
    client.send_words("SUBSCRIBE a");
    assert_eq!(client.reply(), ">[\"subscribe\", \"a\", 1]");
    client.send_words("GET k");
    assert_eq!(publisher.call("PUBLISH a text"), "1");
    assert_eq!(client.reply(), ">[\"message\", \"a\", \"text\"]");
}

#[test]
fn messages_do_not_come_between_the_replies_of_exec() {
    let server = Served::roomy(2);
    let mut client = server.word_client();
    client.call("HELLO 3");
    client.call("SUBSCRIBE a");
    // With a subscriber on another core, a command of several steps publishes.
    for subscribers in [1, 2] {
        let mut other = server.word_client();
        if subscribers == 2 {
            other.call("SUBSCRIBE a");
        }
        let commands = [
            "MULTI",
            "PING one",
            "PUBLISH a text",
            "KEYS *",
            "PING two",
            "EXEC",
        ];
        let replies = client.call_all(&commands);
        let expected = format!("[\"one\", {subscribers}, [], \"two\"]");
        assert_eq!(replies[5], expected);
        assert_eq!(client.reply(), ">[\"message\", \"a\", \"text\"]");
    }
    let commands = ["MULTI", "PING one", "UNSUBSCRIBE a", "EXEC"];
    let replies = client.call_all(&commands);
    assert_eq!(replies[3], "[\"one\", >[\"unsubscribe\", \"a\", 0]]");
}

#[test]
fn pubsub_counts_over_all_cores() {
    let server = Served::roomy(2);
    let mut clients = [
        server.word_client(),
        server.word_client(),
        server.word_client(),
    ];
    let mut asker = server.word_client();
    assert_eq!(asker.call("PUBSUB CHANNELS"), "[]");
    assert_eq!(asker.call("PUBSUB NUMSUB"), "[]");
    for client in &mut clients {
        client.call("SUBSCRIBE both");
        client.call("PSUBSCRIBE p*");
        client.call("SSUBSCRIBE sharded");
    }
    clients[1].call("SUBSCRIBE one");
    clients[2].call("PSUBSCRIBE q*");
    assert_eq!(asker.call("PUBSUB CHANNELS"), "[\"both\", \"one\"]");
    assert_eq!(asker.call("PUBSUB CHANNELS o*"), "[\"one\"]");
    assert_eq!(
        asker.call("PUBSUB NUMSUB one none both"),
        "[\"one\", 1, \"none\", 0, \"both\", 3]"
    );
    assert_eq!(asker.call("PUBSUB NUMPAT"), "2");
    assert_eq!(asker.call("PUBSUB SHARDCHANNELS"), "[\"sharded\"]");
    assert_eq!(
        asker.call("PUBSUB SHARDNUMSUB sharded both"),
        "[\"sharded\", 3, \"both\", 0]"
    );
    let list = clients[1].call("RESET") + &asker.call("CLIENT LIST");
    assert_eq!(
        list.matches("flags=P db=0 sub=1 psub=").count(),
        2,
        "{list}"
    );
    assert!(asker.call("PUBSUB HELP").contains("NUMSUB"));
    assert!(asker.call("PUBSUB NOSUCH").starts_with("(error) ERR"));
    assert!(asker.call("PUBSUB NUMPAT 1").starts_with("(error) ERR"));
}

#[test]
fn sharded_channels_are_apart_from_the_others() {
    let server = Served::roomy(2);
    let (mut client, mut publisher) = (server.word_client(), server.word_client());
    let replies = [
        client.call("SUBSCRIBE a"),
        client.call("SSUBSCRIBE a"),
        client.call("SSUBSCRIBE b"),
    ];
    let expected = [
        "[\"subscribe\", \"a\", 1]",
        "[\"ssubscribe\", \"a\", 1]",
        "[\"ssubscribe\", \"b\", 2]",
    ];
    assert_eq!(replies, expected);
    assert_eq!(publisher.call("SPUBLISH a sharded"), "1");
    assert_eq!(publisher.call("PUBLISH a plain"), "1");
    assert_eq!(client.reply(), "[\"smessage\", \"a\", \"sharded\"]");
    assert_eq!(client.reply(), "[\"message\", \"a\", \"plain\"]");
    client.call("UNSUBSCRIBE a");
    assert!(client.call("GET k").contains("allowed in this context"));
    assert_eq!(
        client.call("SUNSUBSCRIBE a"),
        "[\"sunsubscribe\", \"a\", 1]"
    );
    assert_eq!(publisher.call("SPUBLISH a sharded"), "0");
}

#[test]
fn a_client_that_leaves_or_resets_is_no_subscriber() {
    let server = Served::roomy(2);
    let (mut first, mut second) = (server.word_client(), server.word_client());
    let mut asker = server.word_client();
    for client in [&mut first, &mut second] {
        client.call("SUBSCRIBE a");
        client.call("PSUBSCRIBE a*");
        client.call("SSUBSCRIBE a");
    }
    assert_eq!(asker.call("PUBLISH a text"), "4");
    drop(first);
    wait_for(&mut asker, "PUBSUB NUMSUB a", "[\"a\", 1]");
    assert_eq!(asker.call("PUBLISH a text"), "2");
    for _ in 0..4 {
        second.reply();
    }
    assert_eq!(second.call("RESET"), "RESET");
    assert_eq!(asker.call("PUBLISH a text"), "0");
    assert_eq!(asker.call("PUBSUB NUMPAT"), "0");
    assert_eq!(asker.call("SPUBLISH a text"), "0");
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let (mut slow, mut publisher) = (server.word_client(), server.word_client());
        let mut reader = server.word_client();
        slow.call("SUBSCRIBE a");
        reader.call("SUBSCRIBE a");
        let payload = vec![b'x'; 256 << 10];
        let mut sent = 0;
        loop {
            publisher.send(&[b"PUBLISH", b"a", &payload]);
            let count = publisher.reply();
            assert!(reader.reply().ends_with("x\"]"));
            sent += 1;
            if count == "1" {
                break;
            }
            // What waits for it, and what the system holds.
            assert!(sent < 1000, "{sent} messages wait for {count} subscribers");
        }
        assert!(sent > 32, "{sent} messages are below the limit");
        assert!(slow.is_closed());
        let expected = "client_output_buffer_limit_disconnections:1";
        assert!(publisher.call("INFO stats").contains(expected));
    }
}

#[test]
fn a_server_stops_while_clients_publish() {
    let mut server = Served::roomy(2);
    let mut subscribers = [server.word_client(), server.word_client()];
    for subscriber in &mut subscribers {
        subscriber.call("SUBSCRIBE a");
    }
    let mut publishers = [server.word_client(), server.word_client()];
    for publisher in &mut publishers {
        for _ in 0..100 {
            publisher.send_words("PUBLISH a text");
        }
        publisher.reply();
    }
    server.stop();
    for client in subscribers.iter_mut().chain(&mut publishers) {
        assert!(client.is_closed());
    }
}

/// A client that waits for a key has no reply under way, so its messages come at once.
#[test]
fn messages_reach_a_client_that_waits_for_a_key() {
    for cores in [1, 2] {
        let mut server = Served::roomy(cores);
        let (mut waits, mut client) = (server.word_client(), server.word_client());
        waits.call("HELLO 3");
        waits.call("SUBSCRIBE news");
        waits.send_words("BLPOP q 0");
        wait_until("it waits", || {
            client.call("INFO clients").contains("blocked_clients:1\\r")
        });
        for text in ["one", "two"] {
            assert_eq!(client.call(&format!("PUBLISH news {text}")), "1");
            let message = waits.reply();
            assert!(message.contains("\"message\""), "{message}");
            assert!(message.contains(text), "{message}");
        }
        assert_eq!(client.call("RPUSH q a"), "1");
        assert_eq!(waits.reply(), "[\"q\", \"a\"]");
        server.stop();
    }
}

/// What `CLIENT LIST` says that the only client with a name takes.
fn shown_memory(client: &mut WordClient, name: &str) -> usize {
    let list = client.call("CLIENT LIST");
    let lines = list.split("\\n");
    let line = lines
        .clone()
        .find(|line| line.contains(&format!("name={name} ")));
    let (_, rest) = line.unwrap().split_once("tot-mem=").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn subscriptions_are_counted_and_limited() {
    for cores in [1, 2] {
        let server = Served::with(cores, |options| options.client_bytes = 16 << 20);
        let (mut subscriber, mut other) = (server.word_client(), server.word_client());
        subscriber.call("CLIENT SETNAME many");
        let before = shown_memory(&mut other, "many");
        let name = "n".repeat(1000);
        let mut count = 0;
        let refused = loop {
            let reply = subscriber.call(&format!("SUBSCRIBE {count}{name}"));
            if reply.starts_with("(error)") {
                break reply;
            }
            count += 1;
            if count == 1000 {
                let bytes = shown_memory(&mut other, "many") - before;
                assert!(bytes > count * 1100, "{bytes} of {count} are counted");
            }
            assert!(count < 4 << 10, "the limit is a quarter");
        };
        assert!(refused.contains("at most 3932160 bytes"), "{refused}");
        // It is still connected, and messages reach it.
        assert_eq!(other.call(&format!("PUBLISH 7{name} hello")), "1");
        assert!(subscriber.reply().ends_with("\"hello\"]"));
    }
}

#[test]
fn names_that_are_too_long_to_be_matched_are_refused() {
    let server = Served::roomy(1);
    let mut client = server.word_client();
    let (channel, pattern) = ("c".repeat(8193), "p".repeat(1025));
    for command in [
        format!("SUBSCRIBE {channel}"),
        format!("SSUBSCRIBE {channel}"),
        format!("PUBLISH {channel} text"),
        format!("SPUBLISH {channel} text"),
    ] {
        let reply = client.call(&command);
        assert!(
            reply.contains("at most 8192 bytes, this one has 8193"),
            "{reply}"
        );
    }
    let reply = client.call(&format!("PSUBSCRIBE {pattern}"));
    assert!(
        reply.contains("at most 1024 bytes, this one has 1025"),
        "{reply}"
    );
    assert_eq!(client.call("PUBSUB NUMPAT"), "0");
}

#[test]
fn a_client_with_very_many_patterns_leaves_none_behind() {
    for cores in [1, 2] {
        let server = Served::roomy(cores);
        let (mut client, mut other) = (server.word_client(), server.word_client());
        let patterns: Vec<_> = (0..50_000).map(|number| format!("p{number}*")).collect();
        client.send_words(&format!("PSUBSCRIBE {}", patterns.join(" ")));
        for place in 1..=patterns.len() {
            assert!(client.reply().ends_with(&format!(", {place}]")));
        }
        assert_eq!(other.call("PUBSUB NUMPAT"), "50000");
        drop(client);
        wait_for(&mut other, "PUBSUB NUMPAT", "0");
        let mut client = server.word_client();
        client.send_words(&format!("PSUBSCRIBE {}", patterns.join(" ")));
        for _ in &patterns {
            client.reply();
        }
        assert_eq!(client.call("RESET"), "RESET");
        assert_eq!(other.call("PUBSUB NUMPAT"), "0");
    }
}

#[test]
fn a_long_message_is_shared_by_those_that_do_not_read() {
    for cores in [1, 2] {
        let server = Served::with(cores, |options| options.client_bytes = 32 << 20);
        let mut subscribers: Vec<_> = (0..40).map(|_| server.word_client()).collect();
        for subscriber in &mut subscribers {
            subscriber.call("SUBSCRIBE news");
        }
        let mut publisher = server.word_client();
        let text = "t".repeat(1 << 20);
        let expected = format!("[\"message\", \"news\", \"{text}\"]");
        for round in 1..=4 {
            // Copies of it would take more than the memory for clients.
            assert_eq!(publisher.call(&format!("PUBLISH news {text}")), "40");
            assert_eq!(publisher.call(&format!("PUBLISH news {round}")), "40");
        }
        for subscriber in &mut subscribers {
            for round in 1..=4 {
                assert!(subscriber.reply() == expected, "the message is whole");
                let short = format!("[\"message\", \"news\", \"{round}\"]");
                assert_eq!(subscriber.reply(), short);
            }
        }
        let refused = publisher.call(&format!("PUBLISH news {}", "t".repeat(9 << 20)));
        assert!(refused.contains("at most 8388608 bytes"), "{refused}");
    }
}
