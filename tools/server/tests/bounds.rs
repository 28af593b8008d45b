//! Bounds of what a client can make the server hold: the table in `docs/internals/server.md` names
//! a test of each.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use self::support::{Served, WordClient};

/// Where the tests lie that the table names.
const PLACES: [&str; 4] = ["src", "tests", "../client/tests", "../../engine"];
const TABLE: &str = "| what | bound | above it | test |";

/// The files of Rust in a folder and those in it.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn bounds_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("../../docs/internals/server.md")).unwrap();
    let (_, table) = document.split_once(TABLE).expect("the table");
    let rows: Vec<_> = (table.lines().skip(2))
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() > 20, "{}", rows.len());
    let mut files = Vec::new();
    for place in PLACES {
        sources(&root.join(place), &mut files);
    }
    let code: String = files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, _, _, _, tests, _] = cells[..] else {
            panic!("four columns: {row}");
        };
        let tests: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            assert!(
                code.contains(&format!("#[test]\n    fn {test}()"))
                    || code.contains(&format!("#[test]\nfn {test}()")),
                "{test} is no test: {row}"
            );
        }
    }
}

/// What a client holds, as another sees it.
fn held(served: &Served, name: &str) -> usize {
    let list = served.word_client().call("CLIENT LIST");
    let is_it = |line: &&str| line.contains(&format!("name={name} "));
    let line = list.split("\\n").find(is_it).expect("it is listed");
    let (_, rest) = line.split_once("tot-mem=").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn watched_keys_are_refused_beyond_the_memory_of_one_client() {
    const LIMIT: usize = 1 << 20;
    let served = Served::with(1, |options| options.client_bytes = LIMIT);
    let mut client = served.word_client();
    client.call("CLIENT SETNAME watches");
    let mut watched = 0;
    let refused = loop {
        // What is received is granted too, so few come at once.
        let keys: Vec<_> = (watched..watched + 40)
            .map(|key| format!("{key:0200}"))
            .collect();
        let reply = client.call(&format!("WATCH {}", keys.join(" ")));
        if reply != "OK" {
            break reply;
        }
        watched += keys.len();
        assert!(held(&served, "watches") >= watched * 200, "they count");
        assert!(watched * 200 < LIMIT, "there is a bound");
    };
    assert!(refused.contains("bytes of client memory"), "{refused}");
    assert!(watched > 1000, "{watched}");
    assert_eq!(client.call("UNWATCH"), "OK");
    assert!(held(&served, "watches") < 100 << 10);
}

#[test]
fn names_of_clients_are_short() {
    let served = Served::start(1);
    let mut client = served.word_client();
    for command in [
        "CLIENT SETNAME",
        "CLIENT SETINFO lib-name",
        "CLIENT SETINFO lib-ver",
    ] {
        let name = "n".repeat(1 << 10);
        assert_eq!(client.call(&format!("{command} {name}")), "OK", "{command}");
        let refused = client.call(&format!("{command} {name}n"));
        assert!(refused.contains("at most 1024 bytes"), "{refused}");
    }
    let hello = format!("HELLO 3 SETNAME {}", "n".repeat((1 << 10) + 1));
    assert!(client.call(&hello).contains("at most 1024 bytes"));
}

/// Has a client send what makes a reply of many MiB, and read its begin: it holds at most `most`
/// bytes then.
fn expect_held(
    served: &Served,
    mut client: WordClient,
    ask: impl FnOnce(&mut WordClient),
    most: usize,
) {
    ask(&mut client);
    // The reply has begun: without a bound all of it is made by now.
    client.0.stream.read_exact(&mut [0; 3000]).unwrap();
    let held = held(served, "reads");
    assert!(held <= most, "{held} bytes");
    drop(client);
    assert_eq!(served.client().say("PING"), "+PONG");
}

#[test]
fn many_keys_of_one_command_are_read_in_groups() {
    const KEYS: usize = 20_000;
    let served = Served::roomy(1);
    let mut client = served.word_client();
    client.call("CLIENT SETNAME reads");
    client.call(&format!("SET k {}", "v".repeat(2000)));
    let get = |client: &mut WordClient| {
        let keys = std::iter::once(&b"MGET"[..]).chain(std::iter::repeat_n(&b"k"[..], KEYS));
        client.send(&keys.collect::<Vec<_>>());
    };
    // Each argument is copied, with its place.
    expect_held(&served, client, get, KEYS * 100 + (1 << 20));
}

#[test]
fn a_long_reply_of_a_transaction_is_not_made_at_once() {
    const COMMANDS: usize = 10_000;
    const MEMORY: usize = 8 << 20;
    let served = Served::with(1, |options| options.client_bytes = MEMORY);
    let mut client = served.word_client();
    client.call("CLIENT SETNAME reads");
    client.call(&format!("SET k {}", "v".repeat(2000)));
    client.call("MULTI");
    for _ in 0..COMMANDS {
        assert_eq!(client.call("GET k"), "QUEUED");
    }
    let exec = |client: &mut WordClient| client.send_words("EXEC");
    // It is made ahead of the client while half of the memory for clients is free.
    expect_held(&served, client, exec, MEMORY / 2 + (1 << 20));
}

#[test]
fn what_a_command_gathers_is_granted_first() {
    let served = Served::with(1, |options| options.client_bytes = 1 << 20);
    let mut client = served.word_client();
    for key in ["{a}1", "{a}2"] {
        let text: String = (0..1500)
            .map(|place| if place % 7 < 3 { 'x' } else { 'y' })
            .collect();
        assert_eq!(client.call(&format!("SET {key} {text}")), "OK");
    }
    let refused = client.call("LCS {a}1 {a}2");
    assert!(refused.contains("bytes of client memory"), "{refused}");
    // Less is granted.
    client.call("SETRANGE {a}3 0 xyxyxy");
    assert_eq!(client.call("LCS {a}3 {a}3 LEN"), "6");
}

#[test]
fn what_a_list_replies_is_granted_first() {
    let served = Served::with(1, |options| options.client_bytes = 1 << 20);
    let mut client = served.word_client();
    let element = "e".repeat(1_000);
    let elements = vec![&element[..]; 50].join(" ");
    for _ in 0..60 {
        client.call(&format!("RPUSH l {elements}"));
    }
    let refused = client.call("LRANGE l 0 -1");
    assert!(refused.contains("bytes of client memory"), "{refused}");
    assert_eq!(client.call("LRANGE l 0 0"), format!("[\"{element}\"]"));
    assert_eq!(client.call("LPOS l none COUNT 0"), "[]");
    // As many as there is memory for are taken, and the others stay.
    let taken = client.call("LPOP l 3000");
    let taken = taken.split(", ").count();
    assert!((16..3_000).contains(&taken), "{taken}");
    assert_eq!(client.call("LLEN l"), (3_000 - taken).to_string());
}

/// Commands that take any number of keys, whatever their names take together.
const OF_MANY_KEYS: [&str; 8] = [
    "DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "MSET", "SUNION", "WATCH",
];

#[test]
fn a_command_of_keys_beyond_the_memory_of_a_client_leaves_its_connection() {
    const LIMIT: usize = 4 << 20;
    const KEYS: usize = 12_000;
    let served = Served::with(2, |options| options.client_bytes = LIMIT);
    for command in OF_MANY_KEYS {
        let mut client = served.client();
        let mut arguments = vec![command.to_owned()];
        // 6 MiB of names: more than all cores have.
        arguments.extend((0..KEYS).map(|key| format!("{key:0500}")));
        client.send(&arguments);
        let reply = client.read().expect("the connection stays");
        let text = format!("{reply:?}");
        assert!(
            !text.contains("ERR") || text.contains("client memory"),
            "{command}: {text}"
        );
        assert_eq!(client.say("PING"), "+PONG", "{command}");
    }
    assert_eq!(served.figures().evicted_clients, 0);
}

#[test]
fn one_core_has_the_memory_that_others_leave() {
    const LIMIT: usize = 4 << 20;
    let served = Served::with(4, |options| options.client_bytes = LIMIT);
    let mut client = served.client();
    // Half of all memory with what the command copies, twice the share of a core.
    let mut arguments = vec!["MGET".to_owned()];
    arguments.extend((0..1_000).map(|key| format!("{key:01000}")));
    client.send(&arguments);
    let reply = format!("{:?}", client.read().expect("the connection stays"));
    assert!(!reply.contains("ERR"), "{reply}");
    let info = served.word_client().call("INFO memory");
    for field in [
        "client_memory:",
        "client_memory_free:",
        "client_memory_of_one:",
    ] {
        assert!(info.contains(field), "{field}: {info}");
    }
}
