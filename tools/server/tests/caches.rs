//! Clients that cache keys (`CLIENT TRACKING`), on all cores: what they cache is what is stored,
//! once all pushes have come.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;

use self::support::words::{WordClient, expect};
use self::support::{Client, Random, Reply, Served, on_servers, wait_until};

fn caching(server: &Served, options: &str) -> WordClient {
    let mut client = server.word_client();
    client.call("hello 3");
    assert_eq!(client.call(&format!("client tracking on {options}")), "OK");
    client
}

#[test]
fn a_key_that_was_read_is_pushed_once_when_it_changes() {
    on_servers(|server| {
        let mut other = server.word_client();
        other.call("set k 1");
        let mut client = caching(server, "");
        expect(&mut client, &[("get k", "\"1\"")]);
        for words in ["set k 2", "set k 3", "set other 1"] {
            other.call(words);
        }
        assert_eq!(client.reply(), ">[\"invalidate\", [\"k\"]]");
        expect(&mut client, &[("get k", "\"3\"")]);
        // Its own change comes behind the reply.
        expect(&mut client, &[("del k", "1")]);
        assert_eq!(client.reply(), ">[\"invalidate\", [\"k\"]]");
        for (read, change) in [
            ("hgetall h", "hset h f 1"),
            ("lrange l 0 -1", "rpush l 1"),
            ("mget x y", "mset y 1"),
            ("zrange z 0 -1", "zadd z 1 m"),
            ("xrange s - +", "xadd s 1-1 f v"),
            ("ttl t", "setex t 100 v"),
        ] {
            client.call(read);
            other.call(change);
            let push = client.reply();
            assert!(push.starts_with(">[\"invalidate\""), "{change}: {push}");
        }
        client.call("get x");
        other.call("flushall");
        assert_eq!(client.reply(), ">[\"invalidate\", nil]");
    });
}

#[test]
fn modes_say_which_keys_are_pushed() {
    on_servers(|server| {
        let mut other = server.word_client();
        let mut opts_in = caching(server, "optin");
        opts_in.call("get k");
        opts_in.call("client caching yes");
        opts_in.call("get k2");
        let mut opts_out = caching(server, "optout");
        opts_out.call("client caching no");
        opts_out.call("get k");
        opts_out.call("get k2");
        let mut own = caching(server, "noloop");
        expect(
            &mut own,
            &[("get k", "nil"), ("set k 1", "OK"), ("get k2", "nil")],
        );
        let mut prefixes = caching(server, "bcast prefix k prefix x");
        for words in ["set k 1", "set y 1", "set k2 1"] {
            other.call(words);
        }
        for client in [&mut opts_in, &mut opts_out, &mut own] {
            assert_eq!(client.reply(), ">[\"invalidate\", [\"k2\"]]");
        }
        assert_eq!(prefixes.reply(), ">[\"invalidate\", [\"k\"]]");
        assert_eq!(prefixes.reply(), ">[\"invalidate\", [\"k2\"]]");
    });
}

#[test]
fn a_redirection_to_no_client_changes_nothing() {
    const NONE: &str = "(error) ERR The client ID you want redirect to does not exist";
    on_servers(|server| {
        let mut other = server.word_client();
        let mut client = caching(server, "bcast prefix a noloop");
        expect(
            &mut client,
            &[
                ("client tracking on redirect 999999 bcast prefix b", NONE),
                (
                    "client trackinginfo",
                    "{\"flags\", [\"on\", \"bcast\", \"noloop\"], \"redirect\", 0, \"prefixes\", [\"a\"]}",
                ),
            ],
        );
        for words in ["set b 1", "set a 1"] {
            other.call(words);
        }
        assert_eq!(client.reply(), ">[\"invalidate\", [\"a\"]]");
        // What was read before is pushed.
        let mut client = caching(server, "");
        client.call("get k");
        expect(&mut client, &[("client tracking on redirect 999999", NONE)]);
        other.call("set k 1");
        assert_eq!(client.reply(), ">[\"invalidate\", [\"k\"]]");
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                ("client tracking on redirect 999999 optin", NONE),
                ("client getredir", "-1"),
                (
                    "client caching yes",
                    "(error) ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
                ),
            ],
        );
    });
}

#[test]
fn a_key_that_a_long_command_reads_is_noted_once() {
    on_servers(|server| {
        let mut client = caching(server, "");
        let keys = (0..30_000).map(|number| format!("k{}", number % 15_000));
        let words: Vec<_> = std::iter::once("mget".to_owned()).chain(keys).collect();
        let words: Vec<_> = words.iter().map(String::as_bytes).collect();
        client.send(&words);
        client.reply();
        let mut other = server.word_client();
        let information = other.call("info stats");
        for figure in ["tracking_total_keys:15000", "tracking_total_items:15000"] {
            assert!(information.contains(figure), "{information}");
        }
        other.call("set k7 1");
        assert_eq!(client.reply(), ">[\"invalidate\", [\"k7\"]]");
        assert_eq!(client.call("ping"), "PONG");
    });
}

#[test]
fn keys_above_a_limit_that_falls_become_invalid_one_by_one() {
    const KEYS: usize = 5000;
    on_servers(|server| {
        let mut client = caching(server, "");
        let keys = (0..KEYS).map(|number| format!("k{number}"));
        let words: Vec<_> = std::iter::once("mget".to_owned()).chain(keys).collect();
        let words: Vec<_> = words.iter().map(String::as_bytes).collect();
        client.send(&words);
        client.reply();
        let mut other = server.word_client();
        other.call("config set tracking-table-max-keys 10");
        let mut pushed = std::collections::HashSet::new();
        while pushed.len() < KEYS - 10 {
            let push = client.reply();
            assert!(push.starts_with(">[\"invalidate\", [\"k"), "{push}");
            assert!(pushed.insert(push.clone()), "{push} comes twice");
        }
        assert!(
            other
                .call("info stats")
                .contains("tracking_total_keys:10\\r")
        );
        assert_eq!(client.call("ping"), "PONG");
    });
}

#[test]
fn pushes_are_redirected_until_the_other_client_is_gone() {
    on_servers(|server| {
        for _ in 0..4 {
            let mut target = server.word_client();
            let id = target.call("client id");
            target.call("subscribe __redis__:invalidate");
            let mut client = server.word_client();
            expect(
                &mut client,
                &[
                    (
                        "client tracking on redirect 999999",
                        "(error) ERR The client ID you want redirect to does not exist",
                    ),
                    ("client getredir", "-1"),
                ],
            );
            client.call("hello 3");
            assert_eq!(
                client.call(&format!("client tracking on redirect {id}")),
                "OK"
            );
            assert_eq!(client.call("client getredir"), id);
            client.call("get k");
            let mut other = server.word_client();
            other.call("set k 1");
            assert_eq!(
                target.reply(),
                "[\"message\", \"__redis__:invalidate\", [\"k\"]]"
            );
            client.call("get k");
            drop(target);
            wait_until("it is gone", || {
                !other.call("client list").contains(&format!("id={id} "))
            });
            other.call("set k 2");
            assert_eq!(
                client.reply(),
                format!(">[\"tracking-redir-broken\", {id}]")
            );
            assert!(
                client
                    .call("client trackinginfo")
                    .contains("broken_redirect")
            );
        }
    });
}

#[test]
fn a_table_keeps_its_limit_and_expired_keys_are_pushed() {
    on_servers(|server| {
        let mut client = caching(server, "");
        for key in 0..20 {
            client.call(&format!("get k{key}"));
        }
        let mut other = server.word_client();
        assert!(
            other
                .call("info stats")
                .contains("tracking_total_keys:20\\r\\n")
        );
        other.call("config set tracking-table-max-keys 5");
        for _ in 0..15 {
            assert!(client.reply().starts_with(">[\"invalidate\", [\"k"));
        }
        other.call("set expires 1 px 20");
        client.call("get expires");
        loop {
            let push = client.reply();
            if push == ">[\"invalidate\", [\"expires\"]]" {
                break;
            }
        }
    });
}

/// A client that caches what it has read until a push says that it has changed.
struct Cache {
    client: Client,
    cached: HashMap<String, Reply>,
}

impl Cache {
    fn take_push(&mut self, push: &[Reply]) {
        match &push[1] {
            Reply::Array(keys) => {
                for key in keys {
                    self.cached.remove(&key.text());
                }
            }
            _ => self.cached.clear(),
        }
    }

    fn ask(&mut self, words: &[&str]) -> Reply {
        self.client.send(words);
        loop {
            match self.client.read().unwrap() {
                Reply::Push(push) => self.take_push(&push),
                reply => return reply,
            }
        }
    }
}

#[test]
fn what_is_cached_is_what_is_stored_once_all_pushes_have_come() {
    on_servers(|server| {
        let mut random = Random::new();
        let mut caches: Vec<_> = (0..4)
            .map(|_| Cache {
                client: server.client(),
                cached: HashMap::new(),
            })
            .collect();
        for cache in &mut caches {
            cache.ask(&["hello", "3"]);
            cache.ask(&["client", "tracking", "on"]);
        }
        let mut writers: Vec<_> = (0..3).map(|_| server.client()).collect();
        for round in 0..30 {
            for writer in &mut writers {
                let mut requests = Vec::new();
                for number in 0..20 {
                    let key = format!("k{}", random.below(12));
                    let value = format!("{round}-{number}");
                    requests.push(match random.below(4) {
                        0 => vec!["del".to_owned(), key],
                        1 => vec!["append".to_owned(), key, value],
                        _ => vec!["set".to_owned(), key, value],
                    });
                }
                for request in &requests {
                    writer.send(request);
                }
            }
            for cache in &mut caches {
                for _ in 0..10 {
                    let key = format!("k{}", random.below(12));
                    let value = cache.ask(&["get", &key]);
                    cache.cached.insert(key, value);
                }
            }
            for writer in &mut writers {
                for _ in 0..20 {
                    writer.read().unwrap();
                }
            }
        }
        let mut owner = server.client();
        owner.ask(&["hello", "3"]);
        for cache in &mut caches {
            // A push of a later change comes behind those of the earlier ones of each core.
            wait_until("all pushes have come", || {
                cache.ask(&["ping"]);
                cache
                    .cached
                    .iter()
                    .all(|(key, value)| owner.ask(&["get", key]).to_string() == value.to_string())
            });
        }
    });
}
