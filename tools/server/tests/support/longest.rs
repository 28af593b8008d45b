//! Every command at its longest: the requests, and what is there before them.
//!
//! `bounded_turns.rs` counts what a turn of a core does for each; `cargo xtask redis longest`
//! measures how long another client waits meanwhile. Both read this one list, and fail if the
//! server has a command that is not in it.

#![allow(dead_code, reason = "each program uses a part of it")]

use farcore_rdb::{Crc64, Packer, payload, write};

/// Keys, fields or elements that one command names.
pub(crate) const MANY: usize = 50_000;
/// Keys that a client may wait for.
pub(crate) const WAITED: usize = 16_384;
/// Bytes of a record, about.
pub(crate) const RECORD_BYTES: usize = 1 << 20;
/// Bytes of the longest element of a collection, about.
const ELEMENT_BYTES: usize = RECORD_BYTES - (4 << 10);

/// A script that calls a command many times.
const LOOP: &str = "for _ = 1, 20000 do redis.call('hget', KEYS[1], 'f0000001') end";
/// The digest of a script that counts its keys.
const SHA_OF_COUNT: &str = "cb35aa5ca859d59b3e50fa6f9efbe7e14b5215dd";

/// Entries of a stream, which are added one by one.
const STREAM_ENTRIES: usize = 3000;

/// Bytes of a value that is packed: a client may hold twice as much.
const PACKED_BYTES: usize = 4 << 20;

/// Bytes of each of two values whose table of `LCS` is the largest.
const LCS_BYTES: usize = 2000;

/// A command as a client sends it.
pub(crate) type Request = Vec<Vec<u8>>;

/// A command's first words, and what follows them.
pub(crate) fn command<T: Into<Vec<u8>>>(words: &str, rest: impl IntoIterator<Item = T>) -> Request {
    let words = words.split(' ').map(|word| word.as_bytes().to_vec());
    words.chain(rest.into_iter().map(Into::into)).collect()
}

/// A command of words alone.
pub(crate) fn words(words: &str) -> Request {
    command(words, [""; 0])
}

/// A script of one key.
fn script(name: &str, text: &str, key: &str) -> Request {
    command(name, [text, "1", key])
}

/// A script, or its digest, of many keys.
fn counted_script(name: &str, text: &str) -> Request {
    let keys = names('m', MANY);
    command(
        name,
        [text.to_owned(), MANY.to_string()].into_iter().chain(keys),
    )
}

/// Names of eight bytes.
pub(crate) fn names(first: char, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{first}{number:07}"))
}

/// Names of eight bytes, each with a value behind it.
pub(crate) fn pairs(first: char, count: usize) -> impl Iterator<Item = String> {
    names(first, count).flat_map(|name| [name, "value".to_owned()])
}

/// Keys or steps of a command that does not take them in slices, about the most.
const REPEATED: usize = 1_500;

/// Steps of `BITFIELD` all over a value.
fn field_steps(writes: bool) -> impl Iterator<Item = String> {
    (0..REPEATED).flat_map(move |number| {
        let offset = format!("#{}", number * 70);
        let step = ["GET".to_owned(), "u63".to_owned(), offset.clone()];
        let write = ["SET", "i64", &offset, "-7"].map(str::to_owned);
        step.into_iter()
            .chain(write.into_iter().take(if writes { 4 } else { 0 }))
    })
}

/// Places with names.
fn coordinates(count: usize) -> impl Iterator<Item = String> {
    names('p', count).enumerate().flat_map(|(number, name)| {
        let longitude = (number * 7 % 360).to_string();
        let latitude = (number * 3 % 160).to_string();
        let shifted = |text: String, by: i32| (text.parse::<i32>().unwrap_or(0) - by).to_string();
        [shifted(longitude, 180), shifted(latitude, 80), name]
    })
}

/// A pattern of the most bytes that is tried at many places of names of many `a`.
fn hostile_pattern() -> Vec<u8> {
    let mut pattern = b"*aaaaaaa".repeat(127);
    pattern.extend_from_slice(b"*b*");
    pattern
}

/// A payload of `DUMP`, of a type and a value.
fn payload(value: &[u8]) -> Vec<u8> {
    let mut crc = Crc64::default();
    crc.add(value);
    [value, &payload::footer(crc)[..]].concat()
}

/// The payload of a set of many members.
fn set_payload() -> Vec<u8> {
    let (mut value, mut packer) = (vec![write::types::SET], Packer::default());
    write::length(&mut value, 3 * MANY as u64);
    for name in names('m', 3 * MANY) {
        write::string(&mut value, name.as_bytes(), &mut packer);
    }
    payload(&value)
}

/// The payload of a string that is unpacked to the longest value that is stored.
fn packed_payload() -> Vec<u8> {
    let (mut packed, mut bytes) = (vec![0, b'a'], 1);
    while bytes + 264 <= PACKED_BYTES {
        packed.extend([0xe0, 0xff, 0]);
        bytes += 264;
    }
    let mut value = vec![write::types::STRING, 0xc3];
    write::length(&mut value, packed.len() as u64);
    write::length(&mut value, bytes as u64);
    value.extend(packed);
    payload(&value)
}

pub(crate) fn bytes(count: usize) -> Vec<u8> {
    vec![b'a'; count]
}

/// What is there before each command: the longest records, of few and of many elements, each with
/// its key. That of the keys `m0000000` and so on is `m`.
pub(crate) fn stored() -> Vec<(&'static str, Request)> {
    let value = || bytes(RECORD_BYTES - 100);
    let mut all = vec![
        ("string", command("SET string", [value()])),
        ("long", command("SET long", [bytes(4 << 20)])),
        ("number", command("SET number", ["1"])),
        ("lcs1", command("SET lcs1", [bytes(LCS_BYTES)])),
        ("lcs2", command("SET lcs2", [bytes(LCS_BYTES)])),
        (
            "longfield",
            command("HSET longfield", [bytes(ELEMENT_BYTES), b"1".to_vec()]),
        ),
        (
            "longmember",
            command("SADD longmember", [bytes(ELEMENT_BYTES)]),
        ),
        (
            "longelement",
            command("RPUSH longelement", [bytes(ELEMENT_BYTES)]),
        ),
    ];
    let scored = |names: &mut dyn Iterator<Item = String>| -> Vec<String> {
        let scored = names.enumerate();
        let scored = scored.flat_map(|(number, name)| [(number / 2).to_string(), name]);
        scored.collect()
    };
    all.push((
        "longscored",
        command("ZADD longscored", [b"1".to_vec(), bytes(ELEMENT_BYTES)]),
    ));
    for key in ["sorted", "ranked"] {
        let members = scored(&mut names('m', MANY));
        all.push((key, command(&format!("ZADD {key}"), members)));
    }
    for number in 1..=STREAM_ENTRIES {
        let id = format!("XADD stream {number}-1");
        all.push(("stream", command(&id, names('f', 20))));
    }
    all.push((
        "longstream",
        command("XADD longstream 1-1 f", [bytes(ELEMENT_BYTES)]),
    ));
    all.push(("stream", words("XGROUP CREATE stream group 0")));
    all.push((
        "stream",
        words("XREADGROUP GROUP group one COUNT 1000 STREAMS stream >"),
    ));
    for start in (0..3 * MANY).step_by(MANY) {
        let some = || names('m', 3 * MANY).skip(start).take(MANY);
        if start < MANY {
            all.push(("hash", command("HSET hash", pairs('f', MANY))));
        }
        for key in ["set", "other"] {
            if start < 2 * MANY {
                all.push((key, command(&format!("SADD {key}"), some())));
            }
        }
        for key in ["list", "source"] {
            let elements = some().map(|_| "x");
            all.push((key, command(&format!("RPUSH {key}"), elements)));
        }
        let named = some().flat_map(|name| [name, "v".to_owned()]);
        all.push(("m", command("MSET", named)));
    }
    all
}

/// The longest commands of each name; `None` of a name that is not known here. Of some that is a
/// sequence: see [`sequences`].
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(crate) fn longest(name: &str) -> Option<Vec<Request>> {
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
            command(
                "ACL SETUSER long",
                (0..250).map(|place| format!("~{place:0200}")),
            ),
            of("GETUSER long"),
            of("DRYRUN long GET x"),
            of("LOG"),
        ],
        "append" => vec![
            with("string", bytes(10)),
            with("new", record()),
            with("long", record()),
        ],
        "auth" => vec![with("default", record()), of("x")],
        "bgrewriteaof" | "bgsave" | "asking" | "save" | "lastsave" | "lolwut" | "readonly"
        | "readwrite" | "role" | "time" | "dbsize" | "randomkey" | "ping" | "unwatch"
        | "discard" => {
            vec![words(&upper)]
        }
        "bitcount" => vec![of("string"), of("long"), of("long 0 -1 BIT")],
        "bitpos" => vec![
            of("string 1"),
            of("string 0"),
            of("long 0"),
            of("long 0 5 -1 BIT"),
        ],
        "bitop" => vec![
            of("NOT combined string"),
            of("AND combined string long"),
            of("XOR combined long long string"),
            command("BITOP OR combined", (0..REPEATED).map(|_| "string")),
        ],
        "bitfield" => vec![
            of("string SET u8 #100 200 GET i64 3"),
            of("long INCRBY i32 30000000 1"),
            command("BITFIELD string", field_steps(true)),
            command("BITFIELD long", field_steps(false)),
        ],
        "bitfield_ro" => vec![
            of("string GET u8 #100"),
            command("BITFIELD_RO long", field_steps(false)),
        ],
        "pfadd" => vec![
            of("estimate a"),
            command("PFADD estimate", names('p', 5_000)),
            command("PFADD another", names('q', 300)),
            with("estimate", record()),
        ],
        "pfcount" => vec![
            of("estimate"),
            command("PFCOUNT", (0..REPEATED).map(|_| "estimate")),
            command("PFCOUNT", names('n', REPEATED)),
            of("string"),
        ],
        "pfmerge" => vec![
            of("merged another"),
            of("merged estimate"),
            command("PFMERGE merged", (0..REPEATED).map(|_| "estimate")),
        ],
        "pfdebug" => vec![
            of("DECODE another"),
            of("GETREG estimate"),
            of("ENCODING merged"),
        ],
        "pfselftest" => vec![of("").into_iter().take(1).collect()],
        "sort" => vec![
            of("list ALPHA"),
            of("set ALPHA"),
            of("set BY m* ALPHA DESC"),
            of("set BY nosort GET m* GET #"),
            of("sorted ALPHA LIMIT 100 20000"),
            of("list BY nosort"),
            of("list ALPHA STORE made"),
            of("set BY nosort GET m* STORE made"),
            of("longelement ALPHA"),
            command(
                "SORT other ALPHA LIMIT 0 1000",
                (0..100).flat_map(|_| ["GET", "m*"]),
            ),
        ],
        "sort_ro" => vec![of("set ALPHA"), of("sorted BY nosort DESC")],
        "geoadd" => vec![
            of("places 1 2 here"),
            command("GEOADD places", coordinates(2_000)),
        ],
        "geodist" => vec![
            of("places p0000001 p0000002"),
            of("sorted m0000001 m0000002 km"),
        ],
        "geohash" | "geopos" => vec![
            of("places p0000001"),
            command(&format!("{upper} places"), names('p', 5_000)),
        ],
        "georadius" | "georadius_ro" => vec![
            of("places 0 0 30000 km WITHDIST WITHCOORD WITHHASH ASC"),
            of("sorted 0 0 30000 km"),
            of("places 0 0 1 km"),
        ],
        "georadiusbymember" | "georadiusbymember_ro" => vec![
            of("places p0000001 30000 km"),
            of("sorted m0000001 30000 km"),
        ],
        "geosearch" => vec![
            of("places FROMLONLAT 0 0 BYBOX 30000 30000 km ASC"),
            of("sorted FROMMEMBER m0000001 BYRADIUS 30000 km COUNT 10"),
        ],
        "geosearchstore" => vec![
            of("made places FROMLONLAT 0 0 BYRADIUS 30000 km STOREDIST"),
            of("made sorted FROMLONLAT 0 0 BYRADIUS 30000 km"),
        ],
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
            command(&upper, names('n', WAITED).chain(["0.01".to_owned()])),
            command(&upper, names('n', MANY).chain(["0.01".to_owned()])),
            command(
                &upper,
                names('n', WAITED - 1).chain(["source".to_owned(), "0".to_owned()]),
            ),
        ],
        "lmpop" | "blmpop" => {
            let first = if name == "lmpop" { "" } else { "0.01 " };
            let several = |end: &str| {
                let mut several = counted(first);
                several.extend(end.split(' ').map(|word| word.as_bytes().to_vec()));
                several
            };
            let few = command(&format!("{upper} {first}{WAITED}"), names('n', WAITED));
            let few = few.into_iter().chain([b"LEFT".to_vec()]).collect();
            vec![
                several("LEFT COUNT 50000"),
                few,
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
        "cluster" => vec![
            of("INFO"),
            of("SLOTS"),
            of("NODES"),
            of("COUNTKEYSINSLOT 0"),
            of("GETKEYSINSLOT 0 100"),
        ],
        "clusterx" => vec![
            of("CANCEL"),
            of("FORGET 0"),
            of("HANDOVER 0 x 1 1"),
            of("IMPORT 0 x"),
            of("IMPORTS"),
            of("KEEP x 1"),
            of("MAP"),
            of("SETNODES x 1"),
            of("VERSION"),
        ],
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
        "dump" => [
            "string",
            "long",
            "hash",
            "set",
            "list",
            "sorted",
            "stream",
            "longstream",
        ]
        .map(of)
        .into(),
        "restore" => {
            let restored = |payload| {
                let rest = [payload, b"REPLACE".to_vec()];
                command("RESTORE restored 0", rest)
            };
            vec![
                restored(set_payload()),
                restored(packed_payload()),
                restored(record()),
                restored([record(), vec![0; 10]].concat()),
            ]
        }
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
        "eval" | "eval_ro" => vec![
            counted_script(&upper, "return #KEYS"),
            script(&upper, "return redis.call('hgetall', KEYS[1])", "hash"),
            script(&upper, "return redis.call('get', KEYS[1])", "string"),
            script(&upper, LOOP, "hash"),
            command(&upper, [bytes(RECORD_BYTES), b"0".to_vec()]),
        ],
        "evalsha" | "evalsha_ro" => vec![counted_script(&upper, SHA_OF_COUNT)],
        "script" => vec![
            with("LOAD", [b"--".to_vec(), bytes((256 << 10) - 2)].concat()),
            with(
                "LOAD",
                format!("return {{{}}}", "1,".repeat(100_000)).into_bytes(),
            ),
            with("LOAD", record()),
            command("SCRIPT EXISTS", names('d', 1024)),
            of("KILL"),
            of("FLUSH"),
        ],
        "echo" => vec![
            with("", record())
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect(),
        ],
        // In sequences of commands.
        "multi" | "exec" | "shutdown" | "quit" | "reset" => Vec::new(),
        "expire" | "pexpire" => vec![of("number 100000"), of("set 100000 NX")],
        "expireat" | "pexpireat" => vec![of("number 99999999999"), of("set 99999999999 GT")],
        // In sequences too: nothing is there after them.
        "flushall" | "flushdb" | "move" => Vec::new(),
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
            command(&format!("{upper} longvalue f"), [bytes(ELEMENT_BYTES)]),
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
        "memnodes" => vec![of("LIST")],
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
        "select" => vec![of("1"), of("0")],
        "swapdb" => vec![of("2 3")],
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
        "replconf" => vec![command(
            "REPLCONF",
            names('n', 2 * MANY).flat_map(|_| ["capa".to_owned(), "x".to_owned()]),
        )],
        // It is a replica then, which no reply follows; another one is refused.
        "psync" => vec![of("? x")],
        "sync" => vec![of("x")],
        // The first ends what the server may follow; no source is named.
        "replicaof" | "slaveof" => vec![of("NO ONE")],
        "watch" => vec![keys(2 * MANY), keys(2 * MANY)],
        name if name.starts_with('z') || name.starts_with("bz") => return of_sorted(name),
        name if name.starts_with('x') => return of_stream(name),
        _ => return None,
    })
}

/// The longest commands of streams.
fn of_stream(name: &str) -> Option<Vec<Request>> {
    let upper = name.to_uppercase();
    let of = |rest: &str| words(&format!("{upper} {rest}"));
    let ids = |rest: &str, count| {
        let all = (1..=count).map(|number| format!("{number}-1"));
        command(&format!("{upper} {rest}"), all)
    };
    let streams = |rest: &str, id: &str| {
        let ids = (0..WAITED).map(|_| id.to_owned());
        command(&format!("{upper} {rest}"), names('n', WAITED).chain(ids))
    };
    Some(match name {
        "xack" => vec![ids("stream group", MANY)],
        "xadd" => vec![
            of("stream * f v"),
            command("XADD grownstream *", names('f', MANY)),
            of("stream MAXLEN = 2000 * f v"),
        ],
        "xautoclaim" => vec![of("stream group two 0 0 COUNT 100000")],
        "xclaim" => vec![ids("stream group two 0", MANY)],
        "xdel" => vec![ids("stream", MANY)],
        "xgroup" => vec![
            of("CREATE stream other 0"),
            of("SETID stream other $"),
            of("CREATECONSUMER stream group many"),
            of("DELCONSUMER stream group one"),
            of("DESTROY stream other"),
        ],
        "xinfo" => vec![
            of("STREAM stream FULL COUNT 0"),
            of("STREAM longstream"),
            of("GROUPS stream"),
            of("CONSUMERS stream group"),
        ],
        "xlen" => vec![of("stream")],
        "xpending" => vec![of("stream group"), of("stream group - + 100000")],
        "xrange" => vec![of("stream - +"), of("longstream - +")],
        "xread" => vec![
            of("STREAMS stream longstream 0 0"),
            streams("BLOCK 1 STREAMS", "$"),
        ],
        "xreadgroup" => vec![
            of("GROUP group one STREAMS stream >"),
            of("GROUP group one STREAMS stream 0"),
            of("GROUP group one BLOCK 1 STREAMS stream >"),
            streams("GROUP group one STREAMS", ">"),
        ],
        "xrevrange" => vec![of("stream + -")],
        "xsetid" => vec![of("stream 9999999999999-1")],
        "xtrim" => vec![of("stream MINID ~ 100-1"), of("stream MAXLEN 10")],
        _ => return None,
    })
}

/// The longest commands of sorted sets.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn of_sorted(name: &str) -> Option<Vec<Request>> {
    let upper = name.to_uppercase();
    let of = |rest: &str| words(&format!("{upper} {rest}"));
    let with = |rest: &str, rest_of: Vec<String>| command(&format!("{upper} {rest}"), rest_of);
    let many = |letter| names(letter, MANY).collect::<Vec<_>>();
    Some(match name {
        "bzmpop" => vec![of("0.001 2 ranked absent MIN COUNT 20000"), {
            let keys = names('n', WAITED).chain(["MIN".to_owned()]);
            with(&format!("0.001 {WAITED}"), keys.collect())
        }],
        "bzpopmax" | "bzpopmin" => vec![of("ranked 0.001"), {
            let keys = names('n', WAITED).chain(["0.001".to_owned()]);
            with("longscored", keys.collect())
        }],
        "zadd" => vec![
            of("sorted 1 one"),
            with(
                "grown",
                names('z', MANY)
                    .flat_map(|name| ["1".to_owned(), name])
                    .collect(),
            ),
        ],
        "zcard" => vec![of("sorted"), of("longscored")],
        "zcount" => vec![of("sorted 10 20000")],
        "zdiff" | "zinter" | "zunion" => vec![
            of("2 sorted ranked WITHSCORES"),
            of("2 sorted set"),
            with(&MANY.to_string(), many('n')),
        ],
        "zdiffstore" | "zinterstore" | "zunionstore" => vec![
            of("made 2 sorted ranked"),
            of("made 2 longscored set"),
            with(&format!("made {MANY}"), many('n')),
        ],
        "zincrby" => vec![of("sorted 5 m0000001")],
        "zintercard" => vec![of("2 sorted set"), with(&MANY.to_string(), many('n'))],
        "zlexcount" => vec![of("sorted - +")],
        "zmpop" => vec![
            of("2 absent ranked MAX COUNT 1000"),
            command(
                &format!("ZMPOP {MANY}"),
                names('n', MANY).chain(["MIN".to_owned()]),
            ),
        ],
        "zmscore" => vec![with("sorted", many('m'))],
        "zpopmax" | "zpopmin" => vec![of("ranked"), of("ranked 5000")],
        "zrandmember" => vec![
            of("sorted"),
            of("sorted 100000 WITHSCORES"),
            of("sorted -100000"),
        ],
        "zrange" => vec![
            of("sorted 0 -1"),
            of("sorted 0 -1 WITHSCORES"),
            of("longscored 0 -1"),
        ],
        "zrangebylex" => vec![of("sorted - +")],
        "zrangebyscore" => vec![of("sorted -inf +inf"), of("sorted 5 inf LIMIT 20000 10")],
        "zrangestore" => vec![of("made2 sorted 0 -1")],
        "zrank" | "zrevrank" | "zscore" => vec![of("sorted m0000001")],
        "zrem" => vec![of("ranked m0000007"), with("ranked", many('k'))],
        "zremrangebylex" => vec![of("ranked - (m0000100")],
        "zremrangebyrank" => vec![of("ranked 0 5000")],
        "zremrangebyscore" => vec![of("ranked -inf 3000")],
        "zrevrange" => vec![of("sorted 0 -1 WITHSCORES")],
        "zrevrangebylex" => vec![of("sorted + -")],
        "zrevrangebyscore" => vec![of("sorted +inf -inf WITHSCORES")],
        "zscan" => vec![
            of("sorted 0 COUNT 8192"),
            command("ZSCAN sorted 0 COUNT 8192 MATCH", [hostile_pattern()]),
            of("longscored 0"),
        ],
        _ => return None,
    })
}

/// A command of many keys as the arguments of another one.
fn keys_of(name: &str) -> Vec<String> {
    let keys = names('k', MANY);
    [name.to_owned()].into_iter().chain(keys).collect()
}

/// Several commands that one client sends, with a description.
pub(crate) type Sequence = (&'static str, Vec<Request>);

/// Commands between `MULTI` and `EXEC`.
fn transaction(queued: impl IntoIterator<Item = Request>) -> Vec<Request> {
    let first = std::iter::once(words("MULTI"));
    first.chain(queued).chain([words("EXEC")]).collect()
}

/// Transactions of many commands, of long ones, and with many watched keys.
pub(crate) fn transactions() -> Vec<Sequence> {
    let many = |one: &str| transaction((0..20_000).map(|_| words(one)));
    let watched = |all: Vec<Request>| {
        let watch = command("WATCH", names('m', MANY));
        std::iter::once(watch).chain(all).collect()
    };
    vec![
        ("many commands without keys", many("PING")),
        ("many commands of a key", many("GET m0000001")),
        ("many that are replayed", many("HGET absent field")),
        (
            "long commands",
            transaction([
                command("EXISTS", names('m', MANY)),
                command("MSET", pairs('m', MANY)),
                command("MGET", names('m', MANY)),
                command("DEL", names('m', MANY)),
            ]),
        ),
        (
            "one key very often",
            transaction([command("EXISTS", (0..MANY).map(|_| "m0000001"))]),
        ),
        (
            "watched keys",
            watched(transaction([words("SET number 1")])),
        ),
        (
            "watched keys and many commands",
            watched(many("HGET absent field")),
        ),
    ]
}

/// Commands of many keys in a database where no key is stored as it is sent.
fn in_another_database() -> Vec<Request> {
    let many = |name| command(name, names('d', MANY));
    vec![
        words("SELECT 5"),
        command("MSET", pairs('d', MANY)),
        many("MGET"),
        many("EXISTS"),
        many("WATCH"),
        words("UNWATCH"),
        words("DBSIZE"),
        words("RANDOMKEY"),
        many("DEL"),
        command("MSET", pairs('d', MANY)),
        words("FLUSHDB"),
        words("SELECT 0"),
    ]
}

/// What is longest of a command that is not sent alone; empty of any other, and of `SHUTDOWN`,
/// which no client outlives.
pub(crate) fn sequences(name: &str) -> Vec<Sequence> {
    let ends = |word: &str| vec![command("PSUBSCRIBE", names('p', MANY)), words(word)];
    match name {
        "multi" | "exec" => transactions(),
        "quit" => vec![("a client of many patterns ends", ends("QUIT"))],
        "reset" => vec![("a client of many patterns ends them", ends("RESET"))],
        "flushall" => vec![("all keys", vec![words("FLUSHALL")])],
        "flushdb" => vec![("all keys", vec![words("FLUSHDB")])],
        "move" => vec![(
            "a long value and a large set",
            [
                "COPY long moved",
                "MOVE moved 1",
                "COPY set large",
                "MOVE large 1",
            ]
            .map(words)
            .to_vec(),
        )],
        "select" => vec![("many keys of another database", in_another_database())],
        _ => Vec::new(),
    }
}

/// Replies to a command.
pub(crate) fn replies(one: &Request) -> usize {
    let word = one[0].to_ascii_lowercase();
    match word.ends_with(b"subscribe") {
        true => (one.len() - 1).max(1),
        false => 1,
    }
}
