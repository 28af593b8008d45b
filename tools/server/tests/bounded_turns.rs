//! No command holds a core: the longest turn of a core's loop stays below one limit, in steps that
//! the server counts, whatever a client sends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;

use farcore_server::TURN_STEPS_MAX;

use self::support::client::request;
use self::support::{Client, Reply, Served, wait_until};

/// Keys, fields or elements that one command names.
const MANY: usize = 50_000;
/// Bytes of a record, about.
const RECORD_BYTES: usize = 1 << 20;

/// A command as a client sends it.
type Request = Vec<Vec<u8>>;

/// A command's first words, and what follows them.
fn command<T: Into<Vec<u8>>>(words: &str, rest: impl IntoIterator<Item = T>) -> Request {
    let words = words.split(' ').map(|word| word.as_bytes().to_vec());
    words.chain(rest.into_iter().map(Into::into)).collect()
}

/// A command of words alone.
fn words(words: &str) -> Request {
    command(words, [""; 0])
}

/// So many names of eight bytes.
fn names(first: char, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{first}{number:07}"))
}

/// The same, each with a value behind it.
fn pairs(first: char, count: usize) -> impl Iterator<Item = String> {
    names(first, count).flat_map(|name| [name, "value".to_owned()])
}

/// A pattern of the most bytes that is tried at many places of names of many `a`.
fn hostile_pattern() -> Vec<u8> {
    let mut pattern = b"*aaaaaaa".repeat(127);
    pattern.extend_from_slice(b"*b*");
    pattern
}

fn bytes(count: usize) -> Vec<u8> {
    vec![b'a'; count]
}

/// What is there before each command: the longest records, of few and of many elements.
fn stored() -> Vec<Request> {
    let value = bytes(RECORD_BYTES - 100);
    let mut all = vec![
        command("SET string", [value.clone()]),
        command("SET long", [bytes(4 << 20)]),
        command("SET number", ["1"]),
        command("HSET longfield", [value.clone(), b"1".to_vec()]),
        command("SADD longmember", [value.clone()]),
        command("RPUSH longelement", [value]),
    ];
    for start in (0..3 * MANY).step_by(MANY) {
        let some = || names('m', 3 * MANY).skip(start).take(MANY);
        if start < MANY {
            all.push(command("HSET hash", pairs('f', MANY)));
        }
        for key in ["set", "other"] {
            if start < 2 * MANY {
                all.push(command(&format!("SADD {key}"), some()));
            }
        }
        all.push(command("RPUSH list", some().map(|_| "x")));
        all.push(command("RPUSH source", some().map(|_| "x")));
        all.push(command(
            "MSET",
            some().flat_map(|name| [name, "v".to_owned()]),
        ));
    }
    all
}

/// The longest commands of each name; `None` of a name that is not known here.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn longest(name: &str) -> Option<Vec<Request>> {
    let upper = name.to_uppercase();
    let of = |rest: &str| words(&format!("{upper} {rest}"));
    let record = || bytes(RECORD_BYTES - 100);
    let with = |rest: &str, value: Vec<u8>| command(&format!("{upper} {rest}"), [value]);
    let keys = |count| command(&upper, names('m', count));
    let counted = |rest: &str| {
        let head = format!("{upper} {rest}{MANY}");
        let names = names('n', MANY);
        command(&head, names)
    };
    Some(match name {
        "acl" => vec![
            of("WHOAMI"),
            of("CAT"),
            of("LIST"),
            command("ACL CAT", names('c', 1)),
        ],
        "append" => vec![
            with("string", bytes(10)),
            with("new", record()),
            with("long", record()),
        ],
        "auth" => vec![with("default", record()), of("x")],
        "bgrewriteaof" | "bgsave" | "save" | "lastsave" | "lolwut" | "readonly" | "readwrite"
        | "role" | "time" | "dbsize" | "randomkey" | "ping" | "unwatch" | "discard" => {
            vec![words(&upper)]
        }
        "bitcount" => vec![of("string"), of("long"), of("long 0 -1 BIT")],
        "getbit" => vec![of("string 100"), of("long 30000000")],
        "setbit" => vec![of("string 1 1"), of("long 1 1")],
        "blmove" => vec![
            of("source target LEFT RIGHT 0.01"),
            of("none target LEFT RIGHT 0.01"),
        ],
        "brpoplpush" => vec![of("source target 0.01"), of("none target 0.01")],
        "lmove" => vec![
            of("source target LEFT RIGHT"),
            of("source source LEFT RIGHT"),
        ],
        "rpoplpush" => vec![of("source target"), of("source source")],
        "blpop" | "brpop" => vec![
            command(&upper, names('n', MANY).chain(["0.01".to_owned()])),
            command(
                &upper,
                names('n', MANY).chain(["source".to_owned(), "0".to_owned()]),
            ),
        ],
        "lmpop" | "blmpop" => {
            let first = if name == "lmpop" { "" } else { "0.01 " };
            let several = |end: &str| {
                let mut several = counted(first);
                several.extend(end.split(' ').map(|word| word.as_bytes().to_vec()));
                several
            };
            vec![
                several("LEFT COUNT 50000"),
                of(&format!("{first}1 source RIGHT COUNT 20000")),
            ]
        }
        "client" => vec![
            of("LIST"),
            of("INFO"),
            command("CLIENT LIST ID", (1..10_000).map(|id| id.to_string())),
            of("KILL TYPE pubsub"),
            of("KILL ADDR 1.1.1.1:1"),
            of("UNBLOCK 100000"),
            with("SETNAME", record()),
            of("NO-EVICT on"),
            of("GETNAME"),
        ],
        "farcore" => vec![of("FORGET-LOST")],
        "cluster" => vec![of("INFO"), of("SLOTS")],
        "command" => vec![
            words("COMMAND"),
            of("DOCS"),
            of("LIST"),
            of("COUNT"),
            command("COMMAND LIST FILTERBY PATTERN", [hostile_pattern()]),
            command("COMMAND INFO", (0..MANY).map(|_| "client")),
            command("COMMAND DOCS", (0..MANY).map(|_| "client")),
            command("COMMAND GETKEYS", keys_of("del")),
            command("COMMAND GETKEYSANDFLAGS", keys_of("del")),
        ],
        "config" => vec![
            of("GET *"),
            command("CONFIG GET", (0..MANY).map(|_| "*")),
            command("CONFIG GET", [hostile_pattern()]),
            command("CONFIG SET", pairs('c', MANY)),
            of("REWRITE"),
        ],
        "copy" => vec![
            of("set copied"),
            of("long copied REPLACE"),
            of("string copied REPLACE"),
        ],
        "rename" => vec![of("copied renamed"), of("long copied"), of("copied long")],
        "renamenx" => vec![of("renamed copied"), of("set other")],
        "debug" => vec![of("SLEEP 0"), of("OBJECT set")],
        "decr" | "incr" | "getdel" | "persist" | "ttl" | "pttl" | "expiretime" | "pexpiretime"
        | "type" => vec![of("number"), of("set"), of("absent")],
        "decrby" | "incrby" => vec![of("number 5")],
        "incrbyfloat" => vec![of("number 1.5")],
        "get" | "strlen" => vec![of("string"), of("long"), of("set")],
        "getex" => vec![of("string"), of("long PERSIST")],
        "getrange" | "substr" => vec![of("string 0 -1"), of("long 0 -1"), of("long 5 3000000")],
        "getset" => vec![with("string", record()), with("swapped", bytes(4 << 20))],
        "delifeq" => vec![
            with("string", bytes(RECORD_BYTES / 2)),
            with("long", record()),
        ],
        "del" | "unlink" | "exists" | "touch" => vec![
            keys(2 * MANY),
            command(&upper, (0..MANY).map(|_| bytes(1025))),
        ],
        "mget" => vec![
            keys(2 * MANY),
            command(&upper, (0..MANY).map(|_| bytes(1025))),
            command(&upper, (0..300).map(|_| "string")),
        ],
        "mset" | "msetnx" => vec![
            command(&upper, pairs('s', 2 * MANY)),
            command(
                &upper,
                pairs('s', 100).chain(["long2".to_owned(), "x".repeat(3 << 20)]),
            ),
        ],
        "echo" => vec![
            with("", record())
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect(),
        ],
        // Below, with those of a connection's end.
        "multi" | "exec" | "shutdown" | "quit" | "reset" => Vec::new(),
        "expire" | "pexpire" => vec![of("number 100000"), of("set 100000 NX")],
        "expireat" | "pexpireat" => vec![of("number 99999999999"), of("set 99999999999 GT")],
        // At the end.
        "flushall" | "flushdb" => Vec::new(),
        "function" => vec![of("LIST"), of("FLUSH")],
        "hdel" => vec![
            command("HDEL hash", names('g', MANY)),
            with("longfield", record()),
        ],
        "hello" => vec![of("3"), of("2"), with("3 SETNAME", record())],
        "hexists" | "hget" | "hstrlen" => {
            vec![
                of("hash f0049999"),
                of("longfield a"),
                with("longfield", record()),
            ]
        }
        "hgetall" | "hkeys" | "hvals" | "hlen" => vec![of("hash"), of("longfield")],
        "hincrby" | "hincrbyfloat" => vec![of("hash number 1"), of("longfield number 1")],
        "hmget" => vec![
            command("HMGET hash", names('f', 2 * MANY)),
            command("HMGET longfield", names('f', 2 * MANY)),
        ],
        "hset" | "hmset" => vec![
            command(&format!("{upper} hash"), pairs('f', MANY)),
            of("hash one more"),
            of("longfield one more"),
            command(&format!("{upper} large"), pairs('f', 2 * MANY)),
        ],
        "hsetnx" => vec![of("hash two more"), of("longfield two more")],
        "hrandfield" => vec![
            of("hash"),
            of("hash 100000 WITHVALUES"),
            of("hash -100000"),
            of("longfield 1"),
        ],
        "srandmember" => vec![
            of("set"),
            of("set 1000000"),
            of("set -100000"),
            of("longmember 1"),
        ],
        "hscan" | "sscan" => {
            let (many, one) = match name {
                "hscan" => ("hash", "longfield"),
                _ => ("set", "longmember"),
            };
            vec![
                of(&format!("{many} 0")),
                of(&format!("{many} 0 COUNT 1000000")),
                with(&format!("{many} 0 COUNT 1000000 MATCH"), hostile_pattern()),
                with(&format!("{one} 0 MATCH"), hostile_pattern()),
                with(&format!("{one} 0 MATCH"), bytes(2 << 10)),
            ]
        }
        "keys" => vec![with("", hostile_pattern()), of("*")]
            .into_iter()
            .map(|one| one.into_iter().filter(|word| !word.is_empty()).collect())
            .collect(),
        "scan" => vec![
            of("0 COUNT 1000000"),
            with("0 COUNT 1000000 MATCH", hostile_pattern()),
            with("0 MATCH", bytes(2 << 10)),
        ],
        "info" => vec![of("everything"), command("INFO", names('s', MANY))],
        "latency" => vec![of("LATEST"), command("LATENCY RESET", names('e', MANY))],
        "lcs" => vec![
            of("string string"),
            of("lcs1 lcs2"),
            of("lcs1 lcs2 IDX WITHMATCHLEN"),
        ],
        "lindex" => vec![of("list 75000"), of("longelement 0")],
        "linsert" => vec![of("list BEFORE none y"), of("list AFTER x y")],
        "llen" => vec![of("list")],
        "lpop" | "rpop" => vec![of("list 1"), of("source 10000"), of("longelement2 1")],
        "lpos" => vec![
            of("list x COUNT 0"),
            of("list y"),
            with("longelement", record()),
        ],
        "lpush" | "rpush" | "lpushx" | "rpushx" => vec![
            of("list y"),
            of("longelement y"),
            command(&format!("{upper} pushed"), (0..2 * MANY).map(|_| "x")),
        ],
        "lrange" => vec![of("list 0 -1"), of("longelement 0 -1")],
        "lrem" => vec![of("list 0 none"), of("list -1 x")],
        "lset" => vec![of("list 75000 z")],
        "ltrim" => vec![of("list 1 -2"), of("list 0 -1")],
        "memory" => vec![of("USAGE set"), of("USAGE hash SAMPLES 0"), of("DOCTOR")],
        "module" => vec![of("LIST")],
        "monitor" => vec![words("MONITOR")],
        "object" => vec![of("ENCODING set"), of("ENCODING hash"), of("ENCODING list")],
        "psetex" | "setex" => vec![with("expiring 100000", record())],
        "set" => vec![
            with("string", record()),
            with("long", bytes(5 << 20)),
            command("SET option x", (0..MANY).map(|_| "GET")),
        ],
        "setnx" => vec![with("string", record())],
        "setrange" => vec![with("string 10", bytes(10)), with("long 10", record())],
        "psubscribe" | "ssubscribe" | "subscribe" => vec![keys(MANY)],
        "punsubscribe" | "sunsubscribe" | "unsubscribe" => vec![keys(MANY)],
        "publish" | "spublish" => vec![with("channel", record()), {
            command(&upper, [bytes(8 << 10), bytes(1)])
        }],
        "pubsub" => vec![
            of("CHANNELS"),
            with("CHANNELS", hostile_pattern()),
            with("SHARDCHANNELS", hostile_pattern()),
            of("NUMPAT"),
            command("PUBSUB NUMSUB", names('m', 2 * MANY)),
            command("PUBSUB SHARDNUMSUB", names('m', 2 * MANY)),
        ],
        "sadd" => vec![
            of("set m"),
            command("SADD large", names('l', 2 * MANY)),
            command("SADD set", names('m', 2 * MANY)),
        ],
        "scard" => vec![of("set")],
        "sdiff" | "sinter" | "sunion" => vec![
            of("set other"),
            of("set other set2 longmember"),
            command(&format!("{upper} set"), names('n', MANY)),
        ],
        "sdiffstore" | "sinterstore" | "sunionstore" => vec![
            of("made set other"),
            of("made set longmember"),
            command(&format!("{upper} made set"), names('n', MANY)),
        ],
        "select" => vec![of("0")],
        "sintercard" => vec![of("2 set other"), counted("")],
        "sismember" => vec![of("set m0000001"), with("longmember", record())],
        "slowlog" => vec![of("GET -1"), of("LEN"), of("GET 10"), of("RESET")],
        "smembers" => vec![of("set"), of("longmember")],
        "smismember" => vec![command("SMISMEMBER set", names('m', 2 * MANY))],
        "smove" => vec![of("set target2 m0000001"), of("longmember set none")],
        "spop" => vec![of("other"), of("other 20000"), of("longmember2 1")],
        "srem" => vec![
            of("other m0000007"),
            command("SREM other", names('z', 2 * MANY)),
        ],
        "wait" => vec![of("0 0")],
        "watch" => vec![keys(2 * MANY), keys(2 * MANY)],
        _ => return None,
    })
}

/// A command of many keys as the arguments of another one.
fn keys_of(name: &str) -> Vec<String> {
    let keys = names('k', MANY);
    [name.to_owned()].into_iter().chain(keys).collect()
}

/// A server, a client that resets its figures, and what was found.
struct Bench {
    served: Served,
    control: Client,
    longest: Vec<(u64, String)>,
}

impl Bench {
    fn new() -> Self {
        Self::on(Served::of_long_records(1))
    }

    fn on(served: Served) -> Self {
        let control = served.client();
        Self {
            served,
            control,
            longest: Vec::new(),
        }
    }

    fn reset(&mut self) {
        assert_eq!(self.control.say("CONFIG RESETSTAT"), "+OK");
    }

    /// Notes the longest turn since the reset. What a turn has sent comes before its count.
    fn note(&mut self, what: &str) {
        let mut other = self.served.client();
        for _ in 0..3 {
            assert_eq!(other.say("PING"), "+PONG");
        }
        let steps = self.served.figures().longest_turn_steps;
        self.longest.push((steps, what.to_owned()));
    }

    /// Sends a command and reads its reply.
    /// Runs a command; returns its error, if it replies one.
    fn run(&mut self, client: &mut Client, one: &Request) -> Option<String> {
        self.reset();
        client.write(&request(one));
        let mut replies = 1;
        let word = String::from_utf8_lossy(&one[0]).to_lowercase();
        if word.ends_with("subscribe") {
            replies = one.len() - 1;
        }
        let mut reply = Reply::Null;
        for _ in 0..replies {
            reply = client.read().expect("a reply");
        }
        let shown = one.iter().take(5).map(|word| {
            let word = String::from_utf8_lossy(word);
            word.chars().take(16).collect::<String>()
        });
        let shown = shown.collect::<Vec<_>>().join(" ");
        let error = match reply {
            Reply::Error(text) => Some(text.chars().take(70).collect::<String>()),
            _ => None,
        };
        let reply = error.as_deref().unwrap_or_default();
        self.note(&format!("{shown} ({} arguments) {reply}", one.len()));
        error
    }

    /// Fails if a turn was too long.
    fn judge(&mut self) {
        self.longest.sort_unstable();
        let shown = self.longest.iter().rev().take(25);
        let shown: Vec<_> = shown
            .map(|(steps, what)| format!("{steps}: {what}"))
            .collect();
        println!("{}", shown.join("\n"));
        let (steps, what) = self.longest.last().expect("some ran");
        assert!(*steps > 1000, "nothing was counted");
        assert!(
            *steps <= TURN_STEPS_MAX,
            "{steps} of {TURN_STEPS_MAX} steps: {what}"
        );
    }
}

#[test]
fn every_command_at_its_longest_keeps_to_the_limit() {
    let mut bench = Bench::new();
    let mut client = bench.served.client();
    for one in stored() {
        assert_eq!(bench.run(&mut client, &one), None, "it is stored");
    }
    let known: BTreeSet<_> = client
        .ask(&["COMMAND", "LIST"])
        .elements()
        .iter()
        .map(Reply::text)
        .collect();
    assert!(known.len() > 100);
    for name in &known {
        let requests = longest(name);
        let requests = requests.unwrap_or_else(|| panic!("{name} has no longest form here"));
        let mut client = bench.served.client();
        for one in &requests {
            bench.run(&mut client, one);
        }
    }
    for last in ["FLUSHDB", "FLUSHALL"] {
        bench.run(&mut client, &words(last));
    }
    bench.judge();
}

/// Sends commands at once and reads their replies, but for those that reply nothing.
fn send_all(client: &mut Client, all: &[Request], replies: usize) -> Reply {
    let bytes: Vec<_> = all.iter().flat_map(|one| request(one)).collect();
    client.write(&bytes);
    let replies = (0..replies).map(|_| client.read().expect("a reply"));
    replies.last().expect("there are some")
}

#[test]
fn transactions_keep_to_the_limit() {
    let mut bench = Bench::on(Served::roomy(1));
    let mut client = bench.served.client();
    let stored = send_all(&mut client, &[command("MSET", pairs('k', MANY))], 1);
    assert_eq!(stored.to_string(), "+OK");
    let keys = || names('k', MANY);
    let many = |one: &str| -> Vec<Request> {
        let ones = (0..20_000).map(|_| words(one));
        [words("MULTI")]
            .into_iter()
            .chain(ones)
            .chain([words("EXEC")])
            .collect()
    };
    let of = |queued: Vec<Request>| -> Vec<Request> {
        [words("MULTI")]
            .into_iter()
            .chain(queued)
            .chain([words("EXEC")])
            .collect()
    };
    for (what, watched, all) in [
        ("many commands without keys", false, many("PING")),
        ("many commands of a key", false, many("GET k0000001")),
        ("many that are replayed", false, many("HGET absent field")),
        (
            "long commands",
            false,
            of(vec![
                command("EXISTS", keys()),
                command("MSET", pairs('k', MANY)),
                command("MGET", keys()),
                command("DEL", keys()),
            ]),
        ),
        (
            "one key very often",
            false,
            of(vec![command("EXISTS", (0..MANY).map(|_| "k"))]),
        ),
        ("watched keys", true, of(vec![words("SET k v")])),
        (
            "watched keys and many commands",
            true,
            many("HGET absent field"),
        ),
    ] {
        bench.reset();
        if watched {
            let reply = send_all(&mut client, &[command("WATCH", keys())], 1);
            assert_eq!(reply.to_string(), "+OK");
        }
        let reply = send_all(&mut client, &all, all.len());
        assert_eq!(reply.elements().len(), all.len() - 2, "{what}");
        bench.note(what);
    }
    bench.reset();
    let mut silent = many("PING");
    silent.insert(0, words("CLIENT REPLY OFF"));
    silent.push(words("CLIENT REPLY ON"));
    let reply = send_all(&mut client, &silent, 1);
    assert_eq!(reply.to_string(), "+OK");
    bench.note("many commands without replies");
    bench.judge();
}

#[test]
fn puts_with_events_keep_to_the_limit() {
    let mut bench = Bench::on(Served::roomy(1));
    let mut client = bench.served.client();
    let set = "CONFIG SET notify-keyspace-events KEAn";
    assert_eq!(bench.control.say(set), "+OK");
    for what in ["new keys", "keys that are there"] {
        bench.reset();
        let stored = client.ask(&command("MSET", pairs('k', MANY)));
        assert_eq!(stored.to_string(), "+OK");
        bench.note(what);
    }
    let value = bytes(50_000);
    let ten = (0..200).flat_map(|key| [format!("k{key}").into_bytes(), value.clone()]);
    let refused = client.ask(&command("MSET", ten)).to_string();
    let text = "-ERR while events are sent, the arguments of several puts take at most 8388608";
    assert!(refused.starts_with(text), "{refused}");
    bench.judge();
}

#[test]
fn clients_that_end_keep_to_the_limit() {
    let mut bench = Bench::on(Served::roomy(1));
    let subscribed = |served: &Served| {
        let mut client = served.client();
        client.send(&command("PSUBSCRIBE", names('p', MANY)));
        (0..MANY).for_each(|_| drop(client.read()));
        client
    };
    let listed = |client: &mut Client| {
        let line = client.ask(&["CLIENT", "LIST"]).text();
        line.lines().count()
    };
    for how in ["drop", "QUIT", "RESET", "KILL"] {
        let mut client = subscribed(&bench.served);
        bench.reset();
        match how {
            "drop" => drop(client),
            "KILL" => {
                let killed = bench.control.say("CLIENT KILL TYPE normal");
                assert_eq!(killed, ":1");
            }
            word => drop(client.say(word)),
        }
        let control = &mut bench.control;
        wait_until("no pattern is left", || {
            control.say("PUBSUB NUMPAT") == ":0"
        });
        bench.note(&format!("the end of a client of many patterns: {how}"));
    }
    let mut client = bench.served.client();
    client.send(&command("BLPOP", names('k', MANY).chain(["0".to_owned()])));
    let control = &mut bench.control;
    wait_until("it waits", || {
        control.say("INFO clients").contains("blocked_clients:1")
    });
    bench.reset();
    drop(client);
    let control = &mut bench.control;
    wait_until("it has left", || {
        control.say("INFO clients").contains("blocked_clients:0")
    });
    bench.note("the end of a client that waits for many keys");
    // Many clients, of which all wait for one key, in the order of their arrival.
    let mut clients: Vec<_> = (0..400).map(|_| bench.served.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| client.send(&words("BLPOP k0000001 0")));
    let control = &mut bench.control;
    wait_until("all wait", || {
        control.say("INFO clients").contains("blocked_clients:400")
    });
    bench.reset();
    assert_eq!(listed(&mut bench.control), 401);
    bench.note("a list of many clients");
    bench.reset();
    assert_eq!(bench.control.say("CLIENT KILL TYPE normal"), ":400");
    let control = &mut bench.control;
    wait_until("all have left", || {
        control.say("INFO clients").contains("blocked_clients:0")
    });
    bench.note("the end of many clients that wait for one key");
    bench.judge();
}

#[test]
fn the_fullest_slow_log_keeps_to_the_limit() {
    for cores in [1, 2] {
        let mut bench = Bench::on(Served::roomy(cores));
        let set = "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 100000";
        assert_eq!(bench.control.say(set), "+OK");
        let mut clients = [bench.served.client(), bench.served.client()];
        // Commands of several steps are all noted.
        let all: Vec<_> = (0..5_000).map(|_| words("TYPE absent")).collect();
        for client in &mut clients {
            assert_eq!(send_all(client, &all, all.len()).to_string(), "+none");
        }
        bench.reset();
        let shown = clients[0].ask(&["SLOWLOG", "GET", "-1"]);
        let ids = shown
            .elements()
            .iter()
            .map(|one| one.elements()[0].to_string());
        let ids: Vec<_> = ids.map(|id| id[1..].parse::<u64>().unwrap()).collect();
        assert!(ids.len() > 3000, "{}", ids.len());
        bench.note("the fullest slow log");
        assert!(ids.is_sorted_by(|one, next| one > next));
        let newest = clients[1].ask(&["SLOWLOG", "GET", "100"]);
        assert_eq!(newest.elements().len(), 100);
        bench.judge();
    }
}

#[test]
fn a_server_stops_beside_a_client_of_much() {
    let mut bench = Bench::on(Served::roomy(2));
    let mut client = bench.served.client();
    let stored = client.ask(&command("MSET", pairs('k', 2 * MANY)));
    assert_eq!(stored.to_string(), "+OK");
    let mut subscriber = bench.served.client();
    subscriber.send(&command("PSUBSCRIBE", names('p', MANY)));
    (0..MANY).for_each(|_| drop(subscriber.read()));
    let mut waiting = bench.served.client();
    waiting.send(&command("BLPOP", names('w', MANY).chain(["0".to_owned()])));
    bench.reset();
    client.write(&request(&command("DEL", names('k', 2 * MANY))));
    let reporter = bench.served.server().reporter();
    bench.served.stop();
    let steps = reporter.figures().total().longest_turn_steps;
    bench
        .longest
        .push((steps, "the end of a server".to_owned()));
    bench.judge();
}
