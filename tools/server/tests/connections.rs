//! Connections: how they begin, what they may do, and how they end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use self::support::client::request;
use self::support::redis::Redis;
use self::support::{Client, Reply, Served, wait_until};

/// A line of `INFO`.
fn figure(client: &mut Client, name: &str) -> String {
    let text = client.ask(&["INFO", "everything"]).text();
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}

#[test]
fn a_malformed_request_ends_its_connection_after_the_error() {
    let served = Served::start(2);
    for (sent, error) in [
        (
            "*1\r\n+PING\r\n",
            "ERR Protocol error: expected '$', got '+'",
        ),
        ("*x\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*1\r\n$x\r\n", "ERR Protocol error: invalid bulk length"),
        (
            "SET \"a\r\n",
            "ERR Protocol error: unbalanced quotes in request",
        ),
    ] {
        let mut client = served.client();
        client.write(format!("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n{sent}").as_bytes());
        assert_eq!(client.read(), Some(Reply::Null), "{sent}");
        assert_eq!(client.read(), Some(Reply::Error(error.to_owned())));
        assert_eq!(client.read(), None, "{sent}");
    }
    assert_eq!(served.client().say("PING"), "+PONG");
}

#[test]
fn a_password_is_required_before_anything_else() {
    let served = Served::with(2, |options| {
        options.password = Some("secret".to_owned().into());
    });
    let mut client = served.client();
    for refused in ["GET k", "PING", "CLIENT ID", "INFO", "SHUTDOWN"] {
        let reply = client.say(refused);
        assert_eq!(reply, "-NOAUTH Authentication required.", "{refused}");
    }
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for words in [
        "AUTH wrong",
        "AUTH secre",
        "AUTH secrets",
        "AUTH other secret",
    ] {
        assert_eq!(client.say(words), wrong, "{words}");
    }
    assert!(
        client
            .say("HELLO 3")
            .starts_with("-NOAUTH HELLO must be called")
    );
    assert_eq!(client.say("HELLO 3 AUTH default wrong"), wrong);
    assert_eq!(client.say("GET k"), "-NOAUTH Authentication required.");
    assert_eq!(client.say("AUTH secret"), "+OK");
    assert_eq!(client.say("GET k"), "null");
    assert_eq!(client.say("RESET"), "+RESET");
    assert_eq!(client.say("GET k"), "-NOAUTH Authentication required.");
    let mut other = served.client();
    let hello = other.say("HELLO 3 AUTH default secret SETNAME me");
    assert!(hello.contains("\"proto\": :3"), "{hello}");
    assert_eq!(other.say("CLIENT GETNAME"), "\"me\"");
    assert_eq!(other.say("GET k"), "_");
    assert!(!served.server().is_asked_to_stop());
}

#[test]
fn clients_beyond_the_limit_read_why() {
    let served = Served::with(2, |options| options.clients_max = 3);
    let mut clients: Vec<_> = (0..3).map(|_| served.client()).collect();
    for client in &mut clients {
        assert_eq!(client.say("PING"), "+PONG");
    }
    let mut refused = served.client();
    let text = "ERR max number of clients reached".to_owned();
    assert_eq!(refused.read(), Some(Reply::Error(text)));
    assert_eq!(refused.read(), None);
    drop(clients.pop());
    let mut last = None;
    wait_until("a place is free", || {
        let mut client = served.client();
        let is_served = client.try_write(b"PING\r\n").is_ok()
            && client.read().is_some_and(|reply| !reply.is_error());
        last = Some(client);
        is_served
    });
    assert_eq!(figure(&mut clients[0], "connected_clients"), "3");
    let figures = served.server().reporter().figures();
    assert!(figures.refused >= 1, "{figures:?}");
    assert_eq!(figures.total().connections, 3);
}

#[test]
fn clients_are_listed_and_killed() {
    let served = Served::start(2);
    let mut clients: Vec<_> = (0..4).map(|_| served.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.say(&format!("CLIENT SETNAME c{number}"));
    }
    let list = clients[0].ask(&["CLIENT", "LIST"]).text();
    for number in 0..4 {
        assert!(list.contains(&format!(" name=c{number} ")), "{list}");
    }
    let id = clients[1].ask(&["CLIENT", "ID"]).to_string();
    let words = format!("CLIENT KILL ID {}", id.trim_start_matches(':'));
    assert_eq!(clients[0].say(&words), ":1");
    assert_eq!(clients[1].read(), None);
    let words = format!("CLIENT KILL {}", clients[2].address());
    assert_eq!(clients[0].say(&words), "+OK");
    assert_eq!(clients[2].read(), None);
    assert_eq!(clients[0].say(&words), "-ERR No such client");
    assert_eq!(clients[0].say("CLIENT KILL TYPE normal SKIPME no"), ":2");
    assert_eq!(clients[0].read(), None);
    assert_eq!(clients[3].read(), None);
}

#[test]
fn a_silent_client_is_disconnected_and_another_is_not() {
    let served = Served::with(2, |options| {
        options.idle_timeout = Some(Duration::from_millis(1500));
    });
    let (mut silent, mut busy) = (served.client(), served.client());
    assert_eq!(silent.say("PING"), "+PONG");
    let (mut subscribed, mut blocked) = (served.client(), served.client());
    subscribed.say("SUBSCRIBE news");
    blocked.send(&["BLPOP", "list", "0"]);
    silent.stream.get_ref().set_nonblocking(true).unwrap();
    let mut byte = [0];
    wait_until("the silent one is disconnected", || {
        assert_eq!(busy.say("PING"), "+PONG");
        matches!(silent.peek(&mut byte), Ok(0))
    });
    assert_eq!(served.server().reporter().figures().idle_closed, 1);
    assert_eq!(busy.say("PUBLISH news text"), ":1");
    assert!(subscribed.read().is_some());
    assert_eq!(busy.say("RPUSH list one"), ":1");
    assert!(blocked.read().is_some());
}

#[test]
fn replies_can_be_off_and_skipped() {
    let served = Served::start(2);
    let mut client = served.client();
    client.send(&["CLIENT", "REPLY", "OFF"]);
    client.send(&["SET", "k", "1"]);
    client.send(&["GET", "k"]);
    assert_eq!(client.say("CLIENT REPLY ON"), "+OK");
    client.send(&["CLIENT", "REPLY", "SKIP"]);
    client.send(&["SET", "k", "2"]);
    assert_eq!(client.say("GET k"), "\"2\"");
}

#[test]
fn a_monitor_sees_the_commands_of_all_cores() {
    let served = Served::with(2, |options| options.monitors = true);
    let mut watching = served.client();
    assert_eq!(watching.say("MONITOR"), "+OK");
    let mut clients: Vec<_> = (0..4).map(|_| served.client()).collect();
    // A core sees a client that watches at its next command.
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask(&["SET", &format!("k{number}"), "a \"b\"\n"]);
        client.say("AUTH secret");
    }
    let mut lines: Vec<_> = (0..4).map(|_| watching.read().unwrap().text()).collect();
    lines.sort_by_key(|line| line.split(']').nth(1).unwrap().to_owned());
    for (number, line) in lines.iter().enumerate() {
        let end = format!(
            " [0 {}] \"SET\" \"k{number}\" \"a \\\"b\\\"\\n\"",
            clients[number].address()
        );
        assert!(line.ends_with(&end), "{line}");
    }
    assert_eq!(watching.say("RESET"), "+RESET");
    clients[0].say("SET k0 v");
    assert_eq!(watching.say("PING"), "+PONG");
    assert_eq!(figure(&mut clients[0], "monitoring_clients"), "0");
}

#[test]
fn a_monitor_is_refused_unless_it_is_allowed() {
    let served = Served::start(1);
    assert!(
        served
            .client()
            .say("MONITOR")
            .starts_with("-ERR MONITOR is not enabled")
    );
}

/// Commands that fail.
const FAILING: &[&str] = &[
    "incr text",
    "append list x",
    "rpush text x",
    "lset list 9 x",
    "lset absent 0 x",
    "getset list x",
    "getrange list 0 1",
    "mset a 1 b",
    "blpop text 1",
    "lrange text 0 1",
    "sunionstore to text",
    "zadd text 1 a",
    "zinterstore to 2 list text",
    "hincrby hash text 1",
    "xadd text * a 1",
    "xreadgroup group none one streams stream >",
    "restore text 0 bad",
    "rename absent other",
    "sort list by weight_* get",
    "bitop not to list",
    "setbit text -1 0",
    "pfadd text x",
    "client tracking on redirect 999999",
    "exec",
    "select 99",
];

#[test]
fn a_call_that_replies_an_error_has_failed() {
    let failed = |client: &mut Client| {
        client.say("config resetstat");
        client.say("flushall");
        for words in [
            "set text hello",
            "rpush list a",
            "hset hash text hello",
            "xadd stream 1-1 a 1",
        ] {
            client.say(words);
        }
        for words in FAILING {
            client.say(words);
        }
        // Answers of the engine to a pipeline.
        for _ in 0..3 {
            client.send(&["hget", "hash", "text"]);
            client.send(&["hget", "list", "text"]);
        }
        for _ in 0..6 {
            client.read().unwrap();
        }
        let text = client.ask(&["info", "commandstats"]).text();
        let lines = text.lines().filter_map(|line| {
            let (command, figures) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = figures.split(',').next()?;
            let (_, failed) = figures.split_once(",rejected_calls=")?;
            // Redis counts words of containers apart.
            let is_word = ["client", "config", "info"].contains(&command) || command.contains('|');
            (!is_word).then(|| format!("{command} {calls} rejected={failed}"))
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        lines
    };
    let served = Served::start(1);
    let here = failed(&mut served.client());
    for line in [
        "hget calls=6 rejected=0,failed_calls=3",
        "incr calls=1 rejected=0,failed_calls=1",
        "blpop calls=1 rejected=0,failed_calls=1",
        "restore calls=1 rejected=0,failed_calls=1",
        "lset calls=2 rejected=0,failed_calls=2",
    ] {
        assert!(here.iter().any(|one| one == line), "{line}: {here:#?}");
    }
    if let Some(redis) = Redis::start() {
        assert_eq!(here, failed(&mut Client::connect(redis.address)));
    }
}

#[test]
fn figures_count_and_are_reset() {
    let served = Served::start(2);
    let (mut client, mut other) = (served.client(), served.client());
    client.say("SET k v");
    client.say("GET k");
    other.say("GET absent");
    other.say("GET");
    other.say("INCR k");
    assert_eq!(figure(&mut client, "keyspace_hits"), "1");
    assert_eq!(figure(&mut client, "keyspace_misses"), "1");
    let calls = "calls=2,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0";
    assert_eq!(figure(&mut client, "cmdstat_get"), calls);
    assert_eq!(figure(&mut client, "errorstat_ERR"), "count=2");
    assert_eq!(figure(&mut client, "total_error_replies"), "2");
    assert_eq!(figure(&mut client, "db0"), "keys=1,expires=0,avg_ttl=0");
    assert_eq!(client.say("CONFIG RESETSTAT"), "+OK");
    assert_eq!(figure(&mut client, "keyspace_hits"), "0");
    assert_eq!(figure(&mut client, "total_error_replies"), "0");
    let text = client.ask(&["INFO", "commandstats", "errorstats"]).text();
    assert!(
        !text.contains("cmdstat_get") && !text.contains("errorstat_"),
        "{text}"
    );
    // The figures themselves never decrease.
    let figures = served.server().reporter().figures();
    let gets = figures
        .calls
        .iter()
        .find(|one| one.command == "get")
        .unwrap();
    assert_eq!((gets.calls, gets.rejected), (2, 1));
    assert!(figures.total().received_bytes > 100 && figures.total().sends > 5);
}

#[test]
fn slow_commands_are_noted_on_every_core() {
    let served = Served::start(2);
    let mut clients: Vec<_> = (0..4).map(|_| served.client()).collect();
    clients[0].say("CONFIG SET slowlog-log-slower-than 0");
    clients[0].say("SLOWLOG RESET");
    clients[0].say("CLIENT SETNAME me");
    for client in &mut clients {
        client.ask(&["KEYS", "none*"]);
    }
    let noted = clients[0].ask(&["SLOWLOG", "GET", "-1"]);
    let keys = noted.elements().iter().filter(|one| {
        let words = one.elements()[3].elements();
        words.iter().map(Reply::text).eq(["KEYS", "none*"])
    });
    let keys: Vec<_> = keys.collect();
    assert_eq!(keys.len(), 4, "{noted}");
    let names: Vec<_> = keys.iter().map(|one| one.elements()[5].text()).collect();
    assert_eq!(names.iter().filter(|name| *name == "me").count(), 1);
    assert_eq!(clients[1].say("SLOWLOG RESET"), "+OK");
    clients[0].say("CONFIG SET slowlog-log-slower-than -1");
    clients[0].say("SLOWLOG RESET");
    clients[0].say("KEYS none*");
    assert_eq!(clients[0].say("SLOWLOG LEN"), ":0");
}

#[test]
fn a_command_that_waits_is_noted_when_it_ends() {
    let served = Served::start(2);
    let (mut client, mut waiting) = (served.client(), served.client());
    client.say("CONFIG SET slowlog-log-slower-than 0");
    let noted = |client: &mut Client| {
        let all = client.ask(&["SLOWLOG", "GET", "-1"]);
        let all = all.elements().iter();
        let mut all = all.filter(|one| one.elements()[3].elements()[0].text() == "BLPOP");
        all.next().is_some()
    };
    waiting.send(&["BLPOP", "list", "0"]);
    wait_until("it waits", || figure(&mut client, "blocked_clients") == "1");
    assert!(!noted(&mut client), "it has not ended");
    client.say("RPUSH list element");
    assert_eq!(waiting.read().unwrap().elements().len(), 2);
    assert!(noted(&mut client));
    // Its time may also end.
    client.say("SLOWLOG RESET");
    assert_eq!(waiting.say("BLPOP list 0.001"), "null array");
    assert!(noted(&mut client));
}

#[test]
fn a_reset_keeps_the_library_and_forgets_the_name() {
    let served = Served::start(1);
    let mut client = served.client();
    for words in [
        "CLIENT SETNAME me",
        "CLIENT SETINFO LIB-NAME lib",
        "CLIENT SETINFO LIB-VER 1.2",
    ] {
        assert_eq!(client.say(words), "+OK");
    }
    assert_eq!(client.say("RESET"), "+RESET");
    let line = client.ask(&["CLIENT", "INFO"]).text();
    assert!(line.contains(" name= "), "{line}");
    assert!(line.contains(" lib-name=lib lib-ver=1.2"), "{line}");
}

#[test]
fn a_setting_is_set_once_and_within_its_range() {
    let served = Served::start(1);
    let mut client = served.client();
    for (words, reason) in [
        ("slowlog-max-len 1 SLOWLOG-MAX-LEN 2", "duplicate parameter"),
        (
            "slowlog-max-len 100001",
            "argument must be between 0 and 100000 inclusive",
        ),
        (
            "slowlog-max-len -1",
            "argument must be between 0 and 100000 inclusive",
        ),
        (
            "slowlog-log-slower-than -2",
            "argument must be between -1 and 9223372036854775807 inclusive",
        ),
        (
            "list-max-listpack-size 2147483648",
            "argument must be between -2147483648 and 2147483647 inclusive",
        ),
        (
            "hash-max-listpack-entries -1",
            "argument must be between 0 and 9223372036854775807 inclusive",
        ),
        (
            "slowlog-max-len 9223372036854775808",
            "argument couldn't be parsed into an integer",
        ),
    ] {
        let name = words.split(' ').next().unwrap();
        let before = client.say(&format!("CONFIG GET {name}"));
        let reply = client.say(&format!("CONFIG SET {words}"));
        let expected =
            format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
        assert_eq!(reply, expected);
        assert_eq!(client.say(&format!("CONFIG GET {name}")), before);
    }
}

#[test]
fn a_draw_without_end_is_refused() {
    let served = Served::start(1);
    let mut client = served.client();
    client.say("HSET hash field value");
    client.say("SADD set member");
    for count in ["-4611686018427387905", "-9223372036854775807", "-16777217"] {
        for words in ["HRANDFIELD hash", "SRANDMEMBER set"] {
            let reply = client.say(&format!("{words} {count}"));
            assert!(reply.starts_with("-ERR value is out of range"), "{reply}");
        }
        let reply = client.say(&format!("HRANDFIELD hash {count} WITHVALUES"));
        assert!(reply.starts_with("-ERR value is out of range"), "{reply}");
    }
    // Each once is bounded by what there is.
    assert_eq!(
        client.say("SRANDMEMBER set 9223372036854775807"),
        "[\"member\"]"
    );
    assert_eq!(
        client
            .ask(&["SRANDMEMBER", "set", "-1000"])
            .elements()
            .len(),
        1000
    );
}

#[test]
fn a_crowd_that_connects_at_once_finds_room() {
    let served = Served::start(1);
    let address = served.address;
    // Of all of them none waits for another connection to be accepted.
    let streams: Vec<_> = (0..3000)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    wait_until("all are served", || {
        served.figures().connections == streams.len() as u64
    });
}

#[test]
fn what_was_received_is_answered_before_the_server_stops() {
    const READS: usize = 4;
    let mut served = Served::roomy(2);
    let (mut client, address) = (served.client(), served.address);
    let value = vec![b'v'; 8 << 20];
    assert_eq!(client.ask(&[&b"SET"[..], b"k", &value]).to_string(), "+OK");
    // More than the sockets hold, so the rest waits until this client reads.
    let reads = request(&["GET", "k"]).repeat(READS);
    let rest = [request(&["SET", "other", "v"]), request(&["DBSIZE"])].concat();
    let before = served.figures().received_bytes;
    let commands = [reads, rest].concat();
    client.write(&commands);
    wait_until("all are received", || {
        served.figures().received_bytes >= before + commands.len() as u64
    });
    thread::scope(|scope| {
        scope.spawn(|| served.stop());
        wait_until("it stops", || TcpStream::connect(address).is_err());
        for _ in 0..READS {
            assert!(client.read() == Some(Reply::Bulk(value.clone())));
        }
        assert_eq!(client.read(), Some(Reply::Simple("OK".to_owned())));
        assert_eq!(client.read(), Some(Reply::Integer(2)));
        assert_eq!(client.read(), None);
    });
}

#[test]
fn replies_that_are_made_are_sent_before_the_server_stops() {
    const BATCH: usize = 20;
    let mut served = Served::roomy(1);
    let mut client = served.client();
    let value = vec![b'v'; 4000];
    let reply = [b"$4000\r\n", &value[..], b"\r\n"].concat();
    assert_eq!(client.ask(&[&b"SET"[..], b"k", &value]).to_string(), "+OK");
    // Until the sockets hold no more, and the server has a little that waits.
    let before = served.figures();
    let (mut reads, mut is_held) = (0, false);
    while !is_held {
        client.write(&request(&["GET", "k"]).repeat(BATCH));
        reads += BATCH;
        let commands = before.commands + reads as u64;
        wait_until("they are run", || served.figures().commands == commands);
        let bytes = before.sent_bytes + (reads * reply.len()) as u64;
        is_held = (0..20).all(|_| {
            thread::sleep(Duration::from_millis(1));
            served.figures().sent_bytes < bytes
        });
    }
    thread::scope(|scope| {
        let stopped = scope.spawn(|| served.stop());
        for _ in 0..100 {
            // It has nothing to do but to wait for this client.
            assert!(!stopped.is_finished(), "it stops before all is sent");
            thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..reads {
            assert_eq!(client.read(), Some(Reply::Bulk(value.clone())));
        }
        assert_eq!(client.read(), None);
    });
}

#[test]
fn a_client_can_ask_for_the_end() {
    let served = Served::start(2);
    let mut client = served.client();
    client.send(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(client.read(), None);
    wait_until("the owner sees it", || served.server().is_asked_to_stop());
}

#[test]
fn a_client_that_leaves_amid_a_request_disturbs_no_other() {
    let served = Served::start(2);
    let mut stays = served.client();
    for number in 0..50 {
        let mut leaves = served.client();
        for key in 0..number {
            leaves.send(&["SET", &format!("k{key}"), "v"]);
        }
        leaves.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nhal");
        leaves.stream.get_mut().flush().unwrap();
        drop(leaves);
        assert_eq!(stays.say("PING"), "+PONG");
    }
    // Connections are accepted in order, so all of them were before this one.
    assert_eq!(served.client().say("PING"), "+PONG");
    wait_until("all have gone", || served.figures().connections == 1);
}
