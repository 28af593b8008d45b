//! Replies are those of Redis: a table of requests and of what Redis 7.0.15 replied, in RESP2 and
//! RESP3. Where the server differs on purpose, the table says how and why.
//!
//! ```text
//! > request                 an inline command
//! redis reply               what Redis replied; `redis3` if it is another in RESP3
//! here reply                what the server replies, if it differs; `here3` in RESP3
//! varies                    only the kind of the reply, its first character, is kept and compared
//! why text                  why it differs or varies
//! ```
//!
//! To record the table anew, start a Redis of that version without persistence and name it:
//! `FARCORE_REDIS=127.0.0.1:7399 cargo test -p farcore-server --test redis -- --ignored`. What
//! differs and has no reason yet is added with an empty `why`, which the test refuses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use self::support::{Client, Reply, Served};

/// A request and its replies.
#[derive(Clone, Default, Debug)]
struct Entry {
    /// Lines before it: blank ones and comments.
    before: String,
    request: String,
    /// In RESP2 and RESP3.
    redis: [Option<String>; 2],
    here: [Option<String>; 2],
    varies: bool,
    why: String,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/replies.txt")
}

fn parse(text: &str) -> (Vec<Entry>, String) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut before = String::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            before += line;
            before.push('\n');
            continue;
        }
        if let Some(request) = line.strip_prefix("> ") {
            entries.push(Entry {
                before: std::mem::take(&mut before),
                request: request.to_owned(),
                ..Entry::default()
            });
            continue;
        }
        let entry = entries.last_mut().unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.to_owned();
        match word {
            "redis" => entry.redis = [Some(rest.clone()), Some(rest)],
            "redis3" => entry.redis[1] = Some(rest),
            "here" => entry.here = [Some(rest.clone()), Some(rest)],
            "here3" => entry.here[1] = Some(rest),
            "varies" => entry.varies = true,
            "why" => entry.why = rest,
            _ => panic!("not a line of the table: {line}"),
        }
    }
    (entries, before)
}

fn show(entries: &[Entry], after: &str) -> String {
    let mut text = String::new();
    for entry in entries {
        text += &entry.before;
        writeln!(text, "> {}", entry.request).unwrap();
        for (name, [two, three]) in [("redis", &entry.redis), ("here", &entry.here)] {
            if let Some(two) = two {
                writeln!(text, "{name} {two}").unwrap();
            }
            if let Some(three) = three.as_ref().filter(|three| Some(*three) != two.as_ref()) {
                writeln!(text, "{name}3 {three}").unwrap();
            }
        }
        if entry.varies {
            text += "varies\n";
        }
        if entry.here[0].is_some() || entry.varies {
            writeln!(text, "why {}", entry.why).unwrap();
        }
    }
    text + after
}

/// The replies to all requests in one protocol.
fn replies(address: SocketAddr, entries: &[Entry], protocol: usize) -> Vec<Reply> {
    let mut client = Client::connect(address);
    let hello = client.line(&format!("HELLO {protocol}")).unwrap();
    assert!(!hello.is_error(), "{hello}");
    assert_eq!(client.say("FLUSHALL"), "+OK");
    let reply = |entry: &Entry| {
        let reply = client.line(&entry.request);
        reply.unwrap_or_else(|| panic!("`{}` ended the connection", entry.request))
    };
    entries.iter().map(reply).collect()
}

/// What makes replies of one kind equal.
fn kind(shown: &str) -> &str {
    let end = shown
        .char_indices()
        .nth(1)
        .map_or(shown.len(), |(end, _)| end);
    &shown[..end]
}

#[test]
fn replies_are_those_of_redis() {
    let text = fs::read_to_string(path()).unwrap();
    let (mut entries, after) = parse(&text);
    assert!(entries.len() > 300, "the table was not read");
    let served = Served::start(2);
    let seen = [2, 3].map(|protocol| replies(served.address, &entries, protocol));
    let mut wrong = String::new();
    for (place, entry) in entries.iter_mut().enumerate() {
        for protocol in 0..2 {
            let redis = entry.redis[protocol].clone().unwrap_or_default();
            let expected = entry.here[protocol].clone().unwrap_or(redis);
            let seen = seen[protocol][place].to_string();
            let is_right = if entry.varies {
                kind(&seen) == kind(&expected)
            } else {
                seen == expected
            };
            if !is_right {
                let number = protocol + 2;
                writeln!(
                    wrong,
                    "> {}\n  RESP{number} expected {expected}",
                    entry.request
                )
                .unwrap();
                writeln!(wrong, "  RESP{number} seen     {seen}").unwrap();
            }
            entry.here[protocol] = (seen != entry.redis[protocol].clone().unwrap_or_default())
                .then_some(seen)
                .filter(|_| !entry.varies);
        }
        if (entry.varies || entry.here != [None, None]) && entry.why.is_empty() {
            writeln!(wrong, "> {}\n  lacks a `why`", entry.request).unwrap();
        }
    }
    if std::env::var_os("FARCORE_ACCEPT").is_some() {
        for entry in &mut entries {
            let redis = entry.redis.clone();
            if let [None, Some(_)] | [Some(_), None] = entry.here {
                let own = entry.here.clone();
                entry.here = [0, 1].map(|at| own[at].clone().or(redis[at].clone()));
            }
        }
        fs::write(path(), show(&entries, &after)).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
#[ignore = "needs a Redis, which FARCORE_REDIS names"]
fn record() {
    let address = std::env::var("FARCORE_REDIS").expect("FARCORE_REDIS names a Redis");
    let address = address.parse().unwrap();
    let (mut entries, after) = parse(&fs::read_to_string(path()).unwrap());
    let seen = [2, 3].map(|protocol| replies(address, &entries, protocol));
    for (place, entry) in entries.iter_mut().enumerate() {
        entry.redis = [0, 1].map(|protocol| {
            let shown = seen[protocol][place].to_string();
            Some(if entry.varies {
                kind(&shown).to_owned()
            } else {
                shown
            })
        });
    }
    fs::write(path(), show(&entries, &after)).unwrap();
}

#[test]
fn the_table_is_read_as_it_is_written() {
    let text =
        "# a\n> GET k\nredis null\nredis3 _\n\n> TIME\nredis [\"1\"]\nvaries\nwhy the time\n";
    let (entries, after) = parse(text);
    assert_eq!(entries.len(), 2);
    assert_eq!(show(&entries, &after), text);
}
