//! Users of a whole server: their passwords and rights, on all cores, and the file of users.
//! Replies to random rules and commands are those of Redis 7.0.15, where that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use farcore_server::{Options, Server};

use self::support::redis::Redis;
use self::support::words::{WordClient, expect};
use self::support::{Client, Random, Reply, Served, on_servers};

const RULES: &[&str] = &[
    "on",
    "off",
    "nopass",
    "resetpass",
    "reset",
    "clearselectors",
    "allkeys",
    "resetkeys",
    "allchannels",
    "resetchannels",
    "allcommands",
    "nocommands",
    "sanitize-payload",
    "skip-sanitize-payload",
    ">p1",
    ">p2",
    "<p1",
    "#34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6",
    "!34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6",
    "#zz",
    "~a*",
    "~b",
    "%R~a*",
    "%W~x?",
    "%RW~*",
    "%rw~b*",
    "%RR~b",
    "%~b",
    "%R",
    "~",
    "&c*",
    "&c1",
    "&*",
    "+get",
    "-get",
    "+set",
    "+mget",
    "+copy",
    "+@read",
    "-@read",
    "+@write",
    "+@keyspace",
    "-@dangerous",
    "+@pubsub",
    "+@all",
    "-@all",
    "+@none",
    "+none",
    "+config|get",
    "-config|set",
    "+config",
    "+config|none",
    "+config|get|x",
    "+select|0",
    "+select|",
    "+client|id",
    "+eval",
    "+@scripting",
    "(+get ~a*)",
    "(+@read %R~b)",
    "(+mset",
    "~x*)",
    "()",
    "(junk)",
    ")",
    "junk",
];

const COMMANDS: &[&str] = &[
    "get a1",
    "get b",
    "set a1 1",
    "set xy 1",
    "set a1 v get",
    "mget a1 b",
    "mset a1 1 b 2",
    "del a1 b",
    "exists zz",
    "copy a1 b",
    "copy b a1",
    "rename a1 b",
    "publish c1 m",
    "publish d m",
    "spublish c1 m",
    "config get maxclients",
    "config none",
    "client id",
    "client none",
    "select 0",
    "select 1",
    "select",
    "ping",
    "smove a1 b x",
    "sinterstore xy a1 b",
    "zunionstore b 2 a1 xy",
    "zunionstore b 9 a1 xy",
    "eval text 1 a1",
    "eval text 1 zz",
    "lmpop 2 a1 b left",
    "xread streams a1 0",
    "touch b",
    "ttl a1",
    "flushdb",
    "keys *",
    "none",
    "get",
    "auth x",
    "subscribe c1 d",
    "psubscribe c*",
    "psubscribe c1",
    "sunsubscribe d",
];

struct Drawn(Random);

impl Drawn {
    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.0.below(all.len())]
    }

    fn words(&mut self) -> Vec<&'static str> {
        let user = self.of(&["u1", "u2", "u3"]);
        match self.0.below(8) {
            0..3 => {
                let mut words = vec!["acl", "setuser", user];
                words.extend((0..self.0.below(5)).map(|_| self.of(RULES)));
                words
            }
            3 => vec!["acl", "getuser", user],
            4 if self.0.below(4) == 0 => vec!["acl", "deluser", user, "none"],
            4 => vec!["auth", user, self.of(&["p1", "p2", "passwd4"])],
            _ => {
                let mut words = vec!["acl", "dryrun", user];
                words.extend(self.of(COMMANDS).split(' '));
                words
            }
        }
    }
}

/// A reply without the rules of commands, which name what the server has.
fn without_commands(reply: &Reply) -> Vec<String> {
    let pairs: Vec<Reply> = match reply {
        Reply::Map(pairs) => pairs
            .iter()
            .flat_map(|(key, value)| [key.clone(), value.clone()])
            .collect(),
        Reply::Array(flat) => flat.clone(),
        other => return vec![other.to_string()],
    };
    let mut shown = Vec::new();
    let mut is_command = false;
    for part in &pairs {
        if !is_command {
            shown.extend(without_commands(part));
        }
        is_command = part.text() == "commands";
    }
    shown
}

#[test]
fn random_rules_are_those_of_redis() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let commands = std::env::var("FARCORE_COMMANDS").ok();
    let commands = commands.and_then(|text| text.parse().ok()).unwrap_or(4_000);
    let mut drawn = Drawn(Random::new());
    for (cores, protocol) in [(1, "2"), (2, "3")] {
        let served = Served::roomy(cores);
        let (mut here, mut there) = (served.client(), Client::connect(redis.address));
        let mut differing = Vec::new();
        for words in [
            &["hello", protocol][..],
            &["acl", "deluser", "u1", "u2", "u3"],
        ] {
            here.ask(words);
            there.ask(words);
        }
        for _ in 0..commands {
            let words = drawn.words();
            let (ours, theirs) = if words[0] == "auth" {
                // Each waits for another time after a wrong password.
                let guess = |address| Client::connect(address).ask(&words);
                (guess(served.address), guess(redis.address))
            } else {
                (here.ask(&words), there.ask(&words))
            };
            if without_commands(&ours) != without_commands(&theirs) {
                differing.push(format!("{words:?}\n  here  {ours}\n  redis {theirs}"));
            }
        }
        let count = differing.len();
        differing.truncate(20);
        assert!(count == 0, "{count} differ:\n{}", differing.join("\n"));
    }
}

#[test]
fn categories_of_commands_are_those_of_redis() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let served = Served::start(1);
    let (mut here, mut there) = (served.client(), Client::connect(redis.address));
    let mut compared = 0;
    for ours in here.ask(&["command"]).elements() {
        let name = ours.elements()[0].text();
        let theirs = there.ask(&["command", "info", &name]);
        let theirs = &theirs.elements()[0];
        if matches!(theirs, Reply::NullArray | Reply::Null) {
            continue;
        }
        let of = |command: &Reply| command.elements()[6].to_string();
        assert_eq!(of(ours), of(theirs), "{name}");
        for word in ours.elements()[9].elements() {
            let full = word.elements()[0].text();
            let words = theirs.elements()[9].elements();
            let Some(theirs) = words.iter().find(|one| one.elements()[0].text() == full) else {
                continue;
            };
            assert_eq!(of(word), of(theirs), "{full}");
            compared += 1;
        }
        compared += 1;
    }
    assert!(compared > 200, "{compared}");
}

fn user(served: &Served, name: &str, password: &str) -> WordClient {
    let mut client = served.word_client();
    assert_eq!(client.call(&format!("auth {name} {password}")), "OK");
    client
}

#[test]
fn a_change_of_rights_is_seen_by_all_cores_at_once() {
    on_servers(|server| {
        let mut owner = server.word_client();
        expect(
            &mut owner,
            &[("acl setuser app on >p +get +acl|whoami ~a*", "OK")],
        );
        let mut clients: Vec<_> = (0..6).map(|_| user(server, "app", "p")).collect();
        for round in 0..20 {
            let (rule, reply) = match round % 2 {
                0 => (
                    "-get",
                    "(error) NOPERM this user has no permissions to run the 'get' command",
                ),
                _ => ("+get", "nil"),
            };
            assert_eq!(owner.call(&format!("acl setuser app {rule}")), "OK");
            for client in &mut clients {
                assert_eq!(client.call("get a1"), reply, "round {round}");
            }
        }
        expect(
            &mut clients[0],
            &[
                ("acl whoami", "\"app\""),
                (
                    "get b",
                    "(error) NOPERM this user has no permissions to access one of the keys used as arguments",
                ),
            ],
        );
    });
}

#[test]
fn clients_of_a_removed_user_are_disconnected() {
    on_servers(|server| {
        let mut owner = server.word_client();
        expect(
            &mut owner,
            &[(
                "acl setuser app on >p allcommands allkeys allchannels",
                "OK",
            )],
        );
        let mut idle = user(server, "app", "p");
        let mut waits = user(server, "app", "p");
        waits.send_words("blpop none 0");
        let mut subscriber = user(server, "app", "p");
        subscriber.call("subscribe c");
        let mut itself = user(server, "app", "p");
        assert_eq!(itself.call("acl deluser app"), "1");
        for client in [&mut idle, &mut waits, &mut subscriber, &mut itself] {
            assert!(client.is_closed());
        }
        // One of the same name is another one.
        expect(&mut owner, &[("acl setuser app on >p +ping", "OK")]);
        assert_eq!(user(server, "app", "p").call("ping"), "PONG");
    });
}

#[test]
fn subscribers_that_lose_a_channel_are_disconnected() {
    on_servers(|server| {
        let mut owner = server.word_client();
        expect(
            &mut owner,
            &[("acl setuser app on >p allcommands &a* &b", "OK")],
        );
        let mut kept = user(server, "app", "p");
        kept.call("subscribe b");
        let mut lost = user(server, "app", "p");
        lost.call("subscribe a1");
        expect(&mut owner, &[("acl setuser app resetchannels &b", "OK")]);
        assert!(lost.is_closed());
        expect(&mut owner, &[("publish b m", "1")]);
        assert_eq!(kept.reply(), "[\"message\", \"b\", \"m\"]");
    });
}

#[test]
fn commands_of_transactions_and_scripts_are_checked() {
    on_servers(|server| {
        let mut owner = server.word_client();
        expect(
            &mut owner,
            &[(
                "acl setuser app on >p ~a* +set +get +multi +exec +eval",
                "OK",
            )],
        );
        let mut client = user(server, "app", "p");
        expect(
            &mut client,
            &[
                ("multi", "OK"),
                ("set a1 1", "QUEUED"),
                ("get a1", "QUEUED"),
            ],
        );
        expect(&mut owner, &[("acl setuser app -get", "OK")]);
        assert_eq!(
            client.call("exec"),
            "[OK, (error) NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: no permission to execute the command or subcommand]"
        );
        client.send(&[
            b"eval",
            b"return redis.pcall('get', KEYS[1]).err",
            b"1",
            b"a1",
        ]);
        assert_eq!(
            client.reply(),
            "\"ERR The user executing the script can\\'t run this command or subcommand\""
        );
        client.send(&[b"eval", b"return redis.pcall('set', 'b', '1').err", b"0"]);
        assert_eq!(
            client.reply(),
            "\"ERR The user executing the script can\\'t access at least one of the keys mentioned in the command arguments\""
        );
        let log = owner.call("acl log");
        assert!(log.contains("\"context\", \"lua\"") && log.contains("\"context\", \"multi\""));
    });
}

#[test]
fn passwords_are_not_noted_with_slow_commands() {
    on_servers(|server| {
        let mut owner = server.word_client();
        for words in [
            "config set slowlog-log-slower-than 0",
            "config set repl-timeout 9 masterauth secret0",
            "acl setuser app on >secret1",
            "auth app secret1",
            "acl setuser app >secret2",
            "hello 2 auth app secret2",
        ] {
            owner.call(words);
        }
        let mut other = server.word_client();
        other.call("acl list");
        let noted = other.call("slowlog get -1");
        assert!(
            noted.contains("(redacted)") && !noted.contains("secret"),
            "{noted}"
        );
    });
}

#[test]
fn users_are_loaded_from_a_file_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.acl");
    fs::write(
        &file,
        "user default on nopass ~* &* +@all\n\nuser app on >p ~a* +get\n",
    )
    .unwrap();
    for cores in [1, 2] {
        let served = Served::with(cores, |options| options.acl_file = Some(file.clone()));
        let mut owner = served.word_client();
        assert_eq!(user(&served, "app", "p").call("get a1"), "nil");
        expect(
            &mut owner,
            &[
                ("acl setuser later on >q ~* +set", "OK"),
                ("acl save", "OK"),
                ("acl deluser app later", "2"),
                ("acl load", "OK"),
            ],
        );
        let mut app = user(&served, "app", "p");
        assert_eq!(user(&served, "later", "q").call("set a1 1"), "OK");
        expect(&mut owner, &[("acl load", "OK")]);
        assert!(app.is_closed());
        let saved = fs::read_to_string(&file).unwrap();
        assert!(
            !saved.contains(">p") && saved.lines().count() == 3,
            "{saved}"
        );
        fs::write(&file, "user app on >p +nonsense\n").unwrap();
        let error = owner.call("acl load");
        assert!(
            error.contains(":1: Error in applying operation '+nonsense'"),
            "{error}"
        );
        assert_eq!(owner.call("acl users"), "[\"app\", \"default\", \"later\"]");
        fs::write(&file, saved).unwrap();
    }
    let mut options = Options::new(([127, 0, 0, 1], 0).into());
    options.acl_file = Some(file.clone());
    assert!(Server::check_users(&options).unwrap());
    for (text, what) in [
        ("user\n", ":1 should start with user keyword"),
        ("\nuser a (+get\n", ":2: Unmatched parenthesis"),
        (
            "user a on\nuser a off\n",
            "Duplicate user 'a' found on line 2",
        ),
        (
            "user a >secret +@none #secret\n",
            ":1: Error in applying operation '+@none'",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let error = Server::check_users(&options).unwrap_err().to_string();
        assert!(error.contains(what) && !error.contains("secret"), "{error}");
        assert!(error.contains("--acl-file"), "{error}");
    }
}

#[test]
fn users_are_saved_by_several_clients_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.acl");
    fs::write(&file, "user default on nopass ~* &* +@all\n").unwrap();
    let served = Served::with(2, |options| options.acl_file = Some(file.clone()));
    let mut owner = served.word_client();
    for number in 0..200 {
        owner.call(&format!("acl setuser u{number} on >p ~a* +get"));
    }
    let mut clients: Vec<_> = (0..8).map(|_| served.word_client()).collect();
    for _ in 0..20 {
        for client in &mut clients {
            client.send_words("acl save");
        }
        for client in &mut clients {
            assert_eq!(client.reply(), "OK");
        }
    }
    let saved = fs::read_to_string(&file).unwrap();
    assert_eq!(saved.lines().count(), 201);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    expect(&mut owner, &[("acl load", "OK")]);
}

#[test]
fn rights_that_change_amid_a_long_command_refuse_it_and_spoil_no_other() {
    const KEYS: usize = 40_000;
    on_servers(|server| {
        let mut owner = server.word_client();
        let rules = "acl setuser app on >p resetkeys ~k* resetchannels -@all +mset +mget +select";
        expect(&mut owner, &[(rules, "OK")]);
        let mut client = user(server, "app", "p");
        expect(&mut client, &[("select 3", "OK")]);
        let (mut stored, mut refused) = (0, 0);
        for round in 0..40 {
            // Some of its keys may be looked at when the rights change.
            let mut words = vec![b"mset".to_vec()];
            for number in 0..KEYS {
                words.push(format!("k{number}:{round}").into_bytes());
                words.push(round.to_string().into_bytes());
            }
            let words: Vec<_> = words.iter().map(|word| &word[..]).collect();
            client.send(&words);
            if round % 2 == 0 {
                std::thread::sleep(std::time::Duration::from_micros(500 * (round % 16)));
                owner.call("acl setuser app resetkeys ~x*");
            }
            match &client.reply()[..] {
                "OK" => stored += 1,
                reply => {
                    assert!(reply.starts_with("(error) NOPERM"), "{reply}");
                    refused += 1;
                }
            }
            expect(&mut owner, &[(rules, "OK"), ("select 3", "OK")]);
            let before = round.checked_sub(1);
            for (number, is_there) in [(0, true), (17_000, true), (KEYS - 1, true), (KEYS, false)] {
                let value = owner.call(&format!("get k{number}:{round}"));
                let is_refused = value == "nil" && round % 2 == 0;
                let expected = if is_there {
                    format!("\"{round}\"")
                } else {
                    "nil".to_owned()
                };
                assert!(
                    is_refused || value == expected,
                    "{number} of {round}: {value}"
                );
                if let Some(before) = before {
                    let value = owner.call(&format!("get k{number}:{before}"));
                    assert!(
                        value == "nil" || value == format!("\"{before}\""),
                        "{value}"
                    );
                }
            }
            expect(&mut owner, &[("flushall", "OK")]);
        }
        assert!(
            stored >= 20 && stored + refused == 40,
            "{stored} and {refused}"
        );
    });
}

#[test]
fn a_default_user_that_gets_a_password_is_asked_for_it() {
    on_servers(|server| {
        let mut owner = server.word_client();
        expect(
            &mut owner,
            &[("acl setuser default >p", "OK"), ("ping", "PONG")],
        );
        let mut next = server.word_client();
        expect(
            &mut next,
            &[
                ("ping", "(error) NOAUTH Authentication required."),
                ("auth p", "OK"),
                ("ping", "PONG"),
            ],
        );
        let mut waits = server.word_client();
        expect(
            &mut waits,
            &[("ping", "(error) NOAUTH Authentication required.")],
        );
        expect(&mut owner, &[("acl setuser default nopass", "OK")]);
        expect(&mut waits, &[("ping", "PONG")]);
    });
}
