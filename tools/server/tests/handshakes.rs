//! What foreign clients send when they connect is answered as they expect: each recording of
//! `handshakes` is replayed, and the shape of each reply is compared with a table.
//!
//! The recordings are bytes of real clients (`cargo xtask redis record`), all of their connections
//! one after the other, so a recording is replayed on one connection. `handshakes/shapes.txt` has a
//! line a reply: the request's words, and the reply's shape. A shape names types, and texts that
//! clients look at; `FARCORE_ACCEPT=1` writes the table anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use farcore_server::resp::{Arguments, Limits, Progress, parse};

use self::support::{Reply, Served};

/// Elements of an array that a shape shows.
const SHOWN_MAX: usize = 8;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/handshakes")
}

/// The recordings, by the names of their clients.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder()).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let mut recordings: Vec<_> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "resp")
        })
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    recordings.sort();
    recordings
}

/// The requests of a recording: where each ends, and its words.
fn requests(bytes: &[u8]) -> Vec<(usize, Vec<String>)> {
    let mut requests = Vec::new();
    let (mut at, mut arguments) = (0, Arguments::new());
    while at < bytes.len() {
        arguments.clear();
        let input = &bytes[at..];
        let Ok(Progress::Complete { consumed }) = parse(input, &Limits::default(), &mut arguments)
        else {
            panic!("a recording holds whole requests");
        };
        at += consumed;
        let words = arguments.iter(input);
        let words: Vec<_> = words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        if !words.is_empty() {
            requests.push((at, words));
        }
    }
    requests
}

/// The shape of a reply: its types, and texts that do not vary from run to run.
fn shape(reply: &Reply) -> String {
    let many = |replies: &[Reply]| {
        let shown: Vec<_> = replies.iter().take(SHOWN_MAX).map(shape).collect();
        let more = if replies.len() > SHOWN_MAX {
            ", .."
        } else {
            ""
        };
        format!("{}{more}", shown.join(", "))
    };
    match reply {
        Reply::Simple(text) => format!("+{text}"),
        Reply::Error(text) => format!("-{text}"),
        Reply::Integer(_) => "integer".to_owned(),
        Reply::Bulk(_) => "bulk".to_owned(),
        Reply::Verbatim(_) => "verbatim".to_owned(),
        Reply::Null | Reply::NullArray | Reply::Null3 => "null".to_owned(),
        Reply::Double(_) => "double".to_owned(),
        Reply::Boolean(_) => "boolean".to_owned(),
        Reply::Array(replies) => format!("[{}]", many(replies)),
        Reply::Set(replies) => format!("~[{}]", many(replies)),
        Reply::Push(replies) => format!(">[{}]", many(replies)),
        Reply::Map(pairs) => {
            let pairs = pairs.iter().take(SHOWN_MAX);
            let shown: Vec<_> = pairs
                .map(|(key, value)| format!("{}: {}", key.text(), shape(value)))
                .collect();
            format!("{{{}}}", shown.join(", "))
        }
    }
}

#[test]
fn recorded_handshakes_are_answered_in_shape() {
    let served = Served::start(2);
    let mut seen = String::new();
    for (name, bytes) in recordings() {
        writeln!(seen, "# {name}").unwrap();
        let requests = requests(&bytes);
        assert!(!requests.is_empty(), "{name} sends nothing");
        let mut client = served.client();
        // As one pipeline: clients do not wait for each reply.
        client.write(&bytes);
        for (_, words) in requests {
            let reply = client.read();
            let reply = reply.unwrap_or_else(|| panic!("{name}: {words:?} ended the connection"));
            writeln!(seen, "{}\n    {}", words.join(" "), shape(&reply)).unwrap();
        }
        assert_eq!(client.say("ECHO alive"), "\"alive\"", "{name} lives on");
    }
    let path = folder().join("shapes.txt");
    if std::env::var_os("FARCORE_ACCEPT").is_some() {
        fs::write(&path, &seen).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    let differing = seen
        .lines()
        .zip(expected.lines())
        .find(|(seen, expected)| seen != expected);
    assert_eq!(
        differing, None,
        "the first line that differs: seen, expected"
    );
    assert_eq!(seen, expected);
}

/// What clients send on connecting beyond what is recorded, and tools that look at a server.
#[test]
fn tools_find_what_they_look_for() {
    let served = Served::start(1);
    let mut client = served.client();
    client.say("SET k v");
    let unknown = client.say("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip");
    assert!(unknown.starts_with("-ERR unknown subcommand"), "{unknown}");
    for (words, expected) in [
        ("MODULE LIST", "[]"),
        (
            "COMMAND INFO get",
            "[[bulk, integer, [+readonly, +fast], integer, integer, integer, [+@read, +@string, +@fast], [], ..]]",
        ),
        ("CLIENT LIST", "bulk"),
        ("SCAN 0 COUNT 10 TYPE string", "[bulk, [bulk]]"),
        ("MEMORY USAGE k SAMPLES 0", "integer"),
        (
            "ACL CAT",
            "[bulk, bulk, bulk, bulk, bulk, bulk, bulk, bulk, ..]",
        ),
        ("CONFIG GET save", "[bulk, bulk]"),
        ("CONFIG GET appendonly", "[bulk, bulk]"),
        ("CONFIG GET databases", "[bulk, bulk]"),
        ("INFO REPLICATION", "bulk"),
        (
            "COMMAND DOCS get",
            "[bulk, [bulk, bulk, bulk, bulk, bulk, bulk, bulk, integer, ..]]",
        ),
    ] {
        client.send(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(shape(&client.read().unwrap()), expected, "{words}");
    }
    let hello = client.ask(&["HELLO", "3"]);
    let Reply::Map(fields) = &hello else {
        panic!("not a map: {hello}");
    };
    let names: Vec<_> = fields.iter().map(|(name, _)| name.text()).collect();
    let expected = [
        "server", "version", "proto", "id", "mode", "role", "modules",
    ];
    assert_eq!(names, expected);
}
