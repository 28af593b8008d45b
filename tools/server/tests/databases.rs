//! The databases of a whole server: keys of one are not those of another, whatever command they are
//! given to. Replies to random commands are those of Redis 7.0.15, where that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::redis::Redis;
use self::support::words::expect;
use self::support::{Client, Random, Reply, Served, on_servers, wait_until};

/// Keys of one command that are looked at in several pieces.
const MANY: usize = 50_000;

#[test]
fn each_database_has_keys_of_its_own() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("set k zero", "OK"),
                ("select 3", "OK"),
                ("get k", "nil"),
                ("dbsize", "0"),
                ("keys *", "[]"),
                ("randomkey", "nil"),
                ("mset k three other 3", "OK"),
                ("dbsize", "2"),
                ("del k", "1"),
                ("randomkey", "\"other\""),
                ("set k three", "OK"),
                ("select 15", "OK"),
                ("rpush list a", "1"),
                ("blmove list k left right 1", "\"a\""),
                ("blpop list k 1", "[\"k\", \"a\"]"),
                ("select 16", "(error) ERR DB index is out of range"),
                (
                    "select x",
                    "(error) ERR value is not an integer or out of range",
                ),
                ("select 0", "OK"),
                ("get k", "\"zero\""),
                (
                    "move k 0",
                    "(error) ERR source and destination objects are the same",
                ),
                ("move k 3", "0"),
                ("move k 4", "1"),
                ("copy k k db 3", "0"),
                ("exists k", "0"),
                ("swapdb 0 3", "OK"),
                ("get k", "\"three\""),
                ("copy k moved db 4 replace", "1"),
                ("dbsize", "2"),
                ("flushdb", "OK"),
                ("dbsize", "0"),
                ("select 4", "OK"),
                ("mget k moved", "[\"zero\", \"three\"]"),
                ("reset", "RESET"),
                ("dbsize", "0"),
            ],
        );
        let mut info = client.call("info keyspace");
        assert!(
            info.contains("db4:keys=2,") && !info.contains("db0:"),
            "{info}"
        );
        assert_eq!(client.call("flushall"), "OK");
        assert_eq!(client.call("select 4"), "OK");
        assert_eq!(client.call("dbsize"), "0");
        info = client.call("client info");
        assert!(info.contains(" db=4 "), "{info}");
    });
}

/// A reply without the sign of its kind.
fn shown(reply: &Reply) -> String {
    reply.to_string().trim_start_matches(['+', ':']).to_owned()
}

#[test]
fn commands_of_very_many_keys_are_of_one_database() {
    on_servers(|server| {
        let mut client = server.client();
        let names: Vec<_> = (0..MANY).map(|number| format!("k{number}")).collect();
        let with_names = |name: &str| -> Vec<String> {
            [name]
                .into_iter()
                .map(str::to_owned)
                .chain(names.clone())
                .collect()
        };
        let pairs = names.iter().flat_map(|name| [name.clone(), "v".to_owned()]);
        let mset: Vec<_> = std::iter::once("mset".to_owned()).chain(pairs).collect();
        let many = MANY.to_string();
        // One of its keys is stored under another name in the first database too.
        for (database, first) in [("2", "k0"), ("0", "")] {
            let mut mset = mset.clone();
            mset[1] = first.to_owned();
            for (words, reply) in [
                (vec!["select".to_owned(), database.to_owned()], "OK"),
                (mset, "OK"),
                (vec!["dbsize".to_owned()], &many),
                (vec!["select".to_owned(), "1".to_owned()], "OK"),
                (with_names("exists"), "0"),
                (with_names("del"), "0"),
                (vec!["select".to_owned(), database.to_owned()], "OK"),
                (
                    with_names("touch"),
                    &(MANY - usize::from(first.is_empty())).to_string(),
                ),
                (
                    with_names("unlink"),
                    &(MANY - usize::from(first.is_empty())).to_string(),
                ),
                (vec!["flushdb".to_owned()], "OK"),
            ] {
                assert_eq!(
                    shown(&client.ask(&words)),
                    reply,
                    "{} in {database}",
                    words[0]
                );
            }
        }
    });
}

#[test]
fn long_values_belong_to_their_database() {
    let server = Served::roomy(2);
    let mut client = server.client();
    let long = "v".repeat(3 << 20);
    assert_eq!(shown(&client.ask(&["select", "5"])), "OK");
    assert_eq!(shown(&client.ask(&["set", "alone", &long])), "OK");
    let all = ["mset", "a", &long, "b", "short", "c", &long, "d", "short"];
    assert_eq!(shown(&client.ask(&all)), "OK");
    assert_eq!(
        shown(&client.ask(&["append", "c", "tail"])),
        (long.len() + 4).to_string()
    );
    assert_eq!(shown(&client.ask(&["dbsize"])), "5");
    for (key, length) in [("alone", long.len()), ("a", long.len()), ("b", 5), ("d", 5)] {
        assert_eq!(
            shown(&client.ask(&["strlen", key])),
            length.to_string(),
            "{key}"
        );
    }
    assert_eq!(shown(&client.ask(&["move", "c", "0"])), "1");
    assert_eq!(shown(&client.ask(&["select", "0"])), "OK");
    assert_eq!(shown(&client.ask(&["dbsize"])), "1");
    assert_eq!(
        shown(&client.ask(&["strlen", "c"])),
        (long.len() + 4).to_string()
    );
}

#[test]
fn transactions_scripts_and_watches_follow_their_database() {
    on_servers(|server| {
        let (mut client, mut other) = (server.word_client(), server.word_client());
        for (command, reply) in [
            ("multi", "OK"),
            ("set k zero", "QUEUED"),
            ("select 1", "QUEUED"),
            ("rpush k one", "QUEUED"),
            ("select 2", "QUEUED"),
            ("sadd k two", "QUEUED"),
            ("exec", "[OK, OK, 1, OK, 1]"),
            ("type k", "set"),
            ("select 1", "OK"),
            ("type k", "list"),
            ("select 0", "OK"),
            ("type k", "string"),
            // A watched key that was there is in a database that is swapped.
            ("watch k", "OK"),
            ("swapdb 0 1", "OK"),
            ("multi", "OK"),
            ("ping", "QUEUED"),
            ("exec", "nil"),
            // One that was absent is present in the other.
            ("del absent", "0"),
            ("watch absent", "OK"),
        ] {
            assert_eq!(client.call(command), reply, "{command}");
        }
        for command in ["select 5", "set absent x", "swapdb 0 5"] {
            assert_eq!(other.call(command).replace("OK", ""), "", "{command}");
        }
        assert_eq!(client.call_all(&["multi", "ping", "exec"])[2], "nil");
        // And one that is absent in both has not changed.
        assert_eq!(
            client.call_all(&["watch none", "swapdb 5 6", "swapdb 0 5"]),
            ["OK"; 3]
        );
        assert_eq!(client.call_all(&["multi", "ping", "exec"])[2], "[PONG]");
        if !cfg!(feature = "scripts") {
            return;
        }
        let script = "redis.call('select', 9) redis.call('set', KEYS[1], ARGV[1]) return KEYS[1]";
        let sent: [&[u8]; 5] = [b"eval", script.as_bytes(), b"1", b"key", b"nine"];
        client.send(&sent);
        assert_eq!(client.reply(), "\"key\"");
        assert_eq!(client.call("exists key"), "0");
        assert_eq!(
            client.call_all(&["select 9", "get key"]),
            ["OK", "\"nine\""]
        );
    });
}

#[test]
fn keys_move_between_databases_in_transactions_and_scripts_over_all_cores() {
    let server = Served::roomy(2);
    let mut client = server.word_client();
    for number in 0..40 {
        let key = format!("key{number}");
        client.call(&format!("set {key} v"));
        for (command, reply) in [
            ("multi".to_owned(), "OK"),
            (format!("copy {key} {key} db 4"), "QUEUED"),
            (format!("move {key} 3"), "QUEUED"),
            ("exec".to_owned(), "[1, 1]"),
        ] {
            assert_eq!(client.call(&command), reply, "{command}");
        }
        if cfg!(feature = "scripts") {
            client.call("select 3");
            let script = "return redis.call('move', KEYS[1], 5)";
            let sent: [&[u8]; 4] = [b"eval", script.as_bytes(), b"1", key.as_bytes()];
            client.send(&sent);
            assert_eq!(client.reply(), "1", "{key}");
            // A script in a transaction may use keys that it does not name.
            let script = "return redis.call('exists', ARGV[1])";
            client.call("multi");
            let sent: [&[u8]; 4] = [b"eval", script.as_bytes(), b"0", key.as_bytes()];
            client.send(&sent);
            assert_eq!(client.reply(), "QUEUED");
            assert_eq!(client.call("exec"), "[0]", "{key}");
            client.call("select 0");
        }
    }
}

#[test]
fn clients_that_wait_do_so_in_the_database_of_their_number_after_a_swap() {
    const WAITS: [(&str, &str, &str); 6] = [
        ("blpop none k 0", "rpush k a", "[\"k\", \"a\"]"),
        ("blmpop 0 1 k left", "rpush k a", "[\"k\", [\"a\"]]"),
        ("blmove k to left right 0", "rpush k a", "\"a\""),
        ("bzpopmin k 0", "zadd k 1 a", "[\"k\", \"a\", \"1\"]"),
        (
            "xread block 0 streams k 0",
            "xadd k 1-1 f v",
            "[[\"k\", [[\"1-1\", [\"f\", \"v\"]]]]]",
        ),
        (
            "xreadgroup group g c block 0 streams k >",
            "xadd k 1-1 f v",
            "[[\"k\", [[\"1-1\", [\"f\", \"v\"]]]]]",
        ),
    ];
    let check = |connect: &dyn Fn() -> Client| {
        for is_there_before in [true, false] {
            for (wait, add, reply) in WAITS {
                let (mut waiter, mut owner) = (connect(), connect());
                owner.say("flushall");
                for database in ["3", "2"] {
                    owner.say(&format!("select {database}"));
                    if wait.starts_with("xreadgroup") {
                        owner.say("xgroup create k g 0 mkstream");
                    }
                }
                waiter.say("select 2");
                waiter.send(&wait.split(' ').collect::<Vec<_>>());
                wait_until("it waits", || {
                    owner.say("info clients").contains("blocked_clients:1")
                });
                owner.say("select 3");
                if is_there_before {
                    owner.say(add);
                    assert_eq!(owner.say("swapdb 3 2"), "+OK");
                } else {
                    assert_eq!(owner.say("swapdb 2 3"), "+OK");
                    // The database that it waited in.
                    owner.say(add);
                    assert!(
                        owner.say("info clients").contains("blocked_clients:1"),
                        "{wait}"
                    );
                    owner.say("select 2");
                    owner.say(add);
                }
                assert_eq!(waiter.read().unwrap().to_string(), reply, "{wait}");
                if wait.starts_with("blmove") {
                    owner.say("select 2");
                    assert_eq!(owner.say("lrange to 0 -1"), "[\"a\"]");
                }
                wait_until("none waits", || {
                    owner.say("info clients").contains("blocked_clients:0")
                });
            }
        }
    };
    on_servers(|server| check(&|| server.client()));
    if let Some(redis) = Redis::start() {
        check(&|| Client::connect(redis.address));
    }
}

#[test]
fn no_transaction_sees_a_part_of_a_swap() {
    let server = Served::roomy(2);
    let mut client = server.word_client();
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut seen = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = server.word_client();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(other.call("swapdb 1 2"), "OK");
            }
        });
        client.call("select 1");
        for _ in 0..100 {
            client.call("multi");
            for command in [
                "del a b",
                "lpush a x",
                "sort a by nosort",
                "lpush b y",
                "exists a b",
            ] {
                client.call(command);
            }
            seen.insert(client.call("exec"));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let whole = |replies: &String| replies.ends_with("1, [\"x\"], 1, 2]");
    assert!(seen.iter().all(whole), "{seen:?}");
}

#[test]
fn events_and_waiting_clients_are_of_one_database() {
    let server = Served::start(2);
    let (mut client, mut watcher) = (server.word_client(), server.word_client());
    let mut waiter = server.word_client();
    client.call("config set notify-keyspace-events KEA");
    watcher.call("psubscribe __key*@7__:*");
    assert_eq!(waiter.call("select 7"), "OK");
    waiter.send_words("blpop list 0");
    wait_until("a client waits", || {
        client.call("info clients").contains("blocked_clients:1")
    });
    assert_eq!(
        client.call_all(&["rpush list zero", "set k v"]),
        ["1", "OK"]
    );
    assert_eq!(
        client.call_all(&["select 7", "rpush list seven"]),
        ["OK", "1"]
    );
    assert_eq!(waiter.reply(), "[\"list\", \"seven\"]");
    for channel in [
        "__keyspace@7__:list",
        "__keyevent@7__:rpush",
        "__keyspace@7__:list",
    ] {
        let message = watcher.reply();
        assert!(message.contains(channel), "{channel}: {message}");
    }
}

const KEYS: &[&str] = &["a", "b", "c", "", "{t}x", "{t}y", "\u{1}q"];
const NUMBERS: &[&str] = &["0", "0", "1", "2", "15", "16", "-1", "x"];
/// Commands; `K` stands for a key, and `N` for the number of a database.
const COMMANDS: &[&str] = &[
    "select N",
    "select N",
    "select N",
    "set K 1",
    "get K",
    "del K K",
    "exists K K K",
    "mset K 1 K 2",
    "mget K K K",
    "append K z",
    "lpush K 1 2",
    "lmove K K left right",
    "blpop K K 0.01",
    "lmpop 2 K K left",
    "sadd K m n",
    "sunionstore K K K",
    "smove K K m",
    "sintercard 2 K K",
    "zadd K 1 m",
    "zunionstore K 2 K K",
    "bzpopmin K K 0.01",
    "hset K f v",
    "hget K f",
    "xadd K 1-1 f v",
    "xread count 2 streams K K 0 0",
    "xgroup create K g 0",
    "xreadgroup group g c streams K >",
    "rename K K",
    "renamenx K K",
    "copy K K",
    "copy K K db N",
    "copy K K db N replace",
    "move K N",
    "move K N",
    "swapdb N N",
    "dbsize",
    "dbsize",
    "type K",
    "expire K 1000",
    "persist K",
    "flushdb",
    "multi",
    "exec",
    "exec",
    "discard",
    "watch K K",
    "unwatch",
    "command getkeys xread streams a b 0 0",
    "command getkeys zunionstore a 1 b",
];

#[test]
fn replies_to_random_commands_are_those_of_redis() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let commands = std::env::var("FARCORE_COMMANDS").ok();
    let commands = commands.and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let mut random = Random::new();
    for cores in [1, 2] {
        let served = Served::roomy(cores);
        let mut here = [(); 2].map(|()| served.client());
        let mut there = [(); 2].map(|()| Client::connect(redis.address));
        there[0].ask(&["flushall"]);
        let (mut watches, mut loosens_queued) = ([false; 2], [false; 2]);
        for number in 0..commands {
            let client = random.below(2);
            let mut words: Vec<&str> = COMMANDS[random.below(COMMANDS.len())].split(' ').collect();
            for word in &mut words {
                match *word {
                    "K" => *word = KEYS[random.below(KEYS.len())],
                    "N" => *word = NUMBERS[random.below(NUMBERS.len())],
                    _ => {}
                }
            }
            let expected = there[client].ask(&words).to_string();
            let found = here[client].ask(&words).to_string();
            assert_eq!(
                found, expected,
                "command {number} of client {client}: {words:?}"
            );
            let is_queued = found == "+QUEUED";
            match words[0] {
                "watch" if !is_queued => watches[client] = true,
                "swapdb" | "xgroup" | "xreadgroup" if is_queued => loosens_queued[client] = true,
                "unwatch" if !is_queued => watches[client] = false,
                "discard" if found == "+OK" => {
                    (watches[client], loosens_queued[client]) = (false, false);
                }
                "exec" if !found.contains("without MULTI") => watches[client] = false,
                _ => {}
            }
            let loosens = match words[0] {
                "swapdb" | "xgroup" | "xreadgroup" => !is_queued,
                "exec" => std::mem::take(&mut loosens_queued[client]),
                _ => false,
            };
            if !loosens {
                continue;
            }
            // Of keys that were absent before a swap, and of streams whose groups change, `EXEC`
            // may be refused here and not there.
            for other in (0..2).filter(|&other| std::mem::take(&mut watches[other])) {
                loosens_queued[other] = false;
                for word in ["discard", "unwatch"] {
                    let expected = there[other].ask(&[word]).to_string();
                    assert_eq!(here[other].ask(&[word]).to_string(), expected);
                }
            }
        }
    }
}
