//! Servers that follow each other: how they are compared, and what changes them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::{Client, PATIENCE, Random, Reply};

/// Databases that are compared.
const DATABASES: usize = 4;
/// Keys of each kind and database.
const KEYS: usize = 40;

/// The value of a line of `INFO replication`.
pub(crate) fn figure(client: &mut Client, name: &str) -> String {
    let text = client.ask(&["INFO", "replication"]);
    let text = text.text();
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(&format!("{name}:")[..]));
    line.unwrap_or_default().to_owned()
}

/// Waits until `INFO replication` of a server is as it should be.
#[track_caller]
pub(crate) fn wait_for(
    client: &mut Client,
    what: &str,
    mut holds: impl FnMut(&mut Client) -> bool,
) {
    let start = Instant::now();
    while !holds(client) {
        if start.elapsed() > PATIENCE {
            let shown = client.ask(&["INFO", "replication"]).text();
            panic!("it never came to this: {what}\n{shown}");
        }
        thread::yield_now();
    }
}

/// The reply to words, without its kind.
pub(crate) fn said(client: &mut Client, words: &str) -> String {
    let words: Vec<_> = words.split(' ').collect();
    let text = client.ask(&words).text();
    text.trim_start_matches(':').to_owned()
}

pub(crate) fn follow(client: &mut Client, source: SocketAddr) {
    let port = source.port().to_string();
    assert_eq!(client.ask(&["REPLICAOF", "127.0.0.1", &port]).text(), "OK");
}

pub(crate) fn wait_for_link(client: &mut Client) {
    wait_for(client, "the link is up", |client| {
        figure(client, "master_link_status") == "up"
    });
}

/// Waits until all that the source has sent is applied.
pub(crate) fn wait_for_all(client: &mut Client, source: &mut Client) {
    wait_for(client, "all is applied", |client| {
        figure(client, "slave_repl_offset") == figure(source, "master_repl_offset")
    });
}

fn sorted(reply: &Reply, step: usize) -> Vec<String> {
    let shown: Vec<_> = reply.elements().iter().map(ToString::to_string).collect();
    let mut shown: Vec<_> = shown.chunks(step).map(|part| part.join(" ")).collect();
    shown.sort();
    shown
}

/// What a key holds, and when it expires.
fn value(client: &mut Client, key: &str) -> Vec<String> {
    let kind = client.ask(&["TYPE", key]);
    let expiry = client.ask(&["PEXPIRETIME", key]);
    let mut all = vec![kind.text(), expiry.to_string()];
    match &kind.text()[..] {
        "string" => all.push(client.ask(&["GET", key]).to_string()),
        "list" => all.push(client.ask(&["LRANGE", key, "0", "-1"]).to_string()),
        "set" => all.extend(sorted(&client.ask(&["SMEMBERS", key]), 1)),
        "hash" => all.extend(sorted(&client.ask(&["HGETALL", key]), 2)),
        "zset" => {
            let words = ["ZRANGE", key, "0", "-1", "WITHSCORES"];
            let reply = client.ask(&words);
            // Servers print one score by more or by fewer digits.
            all.extend(reply.elements().chunks(2).map(|pair| {
                let score: f64 = pair[1].text().parse().expect("a score");
                format!("{} {score:?}", pair[0])
            }));
        }
        "stream" => {
            all.push(client.ask(&["XRANGE", key, "-", "+"]).to_string());
            if let Reply::Array(groups) = client.ask(&["XINFO", "GROUPS", key]) {
                // How many entries were read, Redis does not send with what was read.
                let parts = groups.iter().map(|one| one.elements()[..8].iter());
                all.extend(parts.flatten().map(ToString::to_string));
            }
            let pending = client.ask(&["XPENDING", key, "g", "-", "+", "1000"]);
            if let Reply::Array(pending) = pending {
                // How long ago is another time for each client.
                let parts = pending.iter().map(Reply::elements);
                all.extend(parts.map(|one| format!("{} {} {}", one[0], one[1], one[3])));
            }
        }
        _ => {}
    }
    all
}

/// Compares all keys.
#[track_caller]
pub(crate) fn assert_equal(here: &mut Client, there: &mut Client) -> usize {
    let mut count = 0;
    for database in 0..DATABASES {
        let number = database.to_string();
        let mut keys = [&mut *here, &mut *there].map(|client| {
            client.ask(&["SELECT", &number]);
            let pages = client.scan("SCAN", "COUNT 1000");
            let mut keys: Vec<_> = pages.into_iter().flatten().collect();
            keys.sort();
            keys.dedup();
            // A key that expires meanwhile is gone here or there a moment earlier.
            keys.retain(|key| !key.starts_with("brief"));
            keys
        });
        assert_eq!(keys[0], keys[1], "keys of database {database}");
        for key in keys[0].drain(..) {
            assert_eq!(value(here, &key), value(there, &key), "{database} {key}");
            count += 1;
        }
    }
    count
}

/// A command that changes something, or not.
pub(crate) fn draw(random: &mut Random, number: usize) -> Vec<String> {
    let (key, other) = (random.below(KEYS), random.below(KEYS));
    let (low, score) = (random.below(20), random.below(1000));
    let text = match random.below(42) {
        0 => format!("SELECT {}", random.below(DATABASES)),
        1 => format!("SET s{key} {}", "x".repeat(random.below(300))),
        2 => format!("SET s{key} {number} PX {}", 1_000_000 + score),
        3 => format!("SET brief{key} {number} PX {}", 1 + low),
        4 => format!("APPEND s{key} {number}"),
        5 => format!("INCRBY n{key} {score}"),
        6 => format!("INCRBYFLOAT n{key} 0.5"),
        7 => format!("GETEX s{key} PERSIST"),
        8 => format!("EXPIRE s{key} {}", 10_000 + score),
        9 => format!("DEL s{key} l{other}"),
        10 => format!("RENAME s{key} s{other}"),
        11 => format!("COPY s{key} s{other} REPLACE"),
        12 => format!("SETRANGE s{key} {score} abc"),
        13 => format!("SETBIT s{key} {score} 1"),
        14 | 15 => format!("RPUSH l{key} {number} {score} {low}"),
        16 => format!("LPUSH l{key} {number}"),
        17 => format!("LPOP l{key} {low}"),
        18 => format!("LTRIM l{key} 0 200"),
        19 => format!("LMOVE l{key} l{other} LEFT RIGHT"),
        20 => format!("LINSERT l{key} BEFORE {low} {number}"),
        21 | 22 => format!("SADD set{key} {low} {score} a{number}"),
        23 => format!("SPOP set{key} {low}"),
        24 => format!("SMOVE set{key} set{other} {low}"),
        25 => format!("SINTERSTORE set{key} set{other} set{low}"),
        26 | 27 => format!("HSET h{key} f{low} {number} f{score} {score}"),
        28 => format!("HINCRBYFLOAT h{key} f{low} 1.25"),
        29 => format!("HDEL h{key} f{low}"),
        30 => format!("PEXPIRE h{key} {}", 1_000_000 + score),
        31 | 32 => format!("ZADD z{key} {score} m{low} {low} m{score}"),
        33 => format!("ZINCRBY z{key} 0.1 m{low}"),
        34 => format!("ZPOPMIN z{key} {low}"),
        35 => format!("ZUNIONSTORE z{key} 2 z{other} z{low}"),
        36 => format!("XADD x{key} MAXLEN ~ 100 * a {number}"),
        37 => format!("XGROUP CREATE x{key} g 0 MKSTREAM"),
        38 => format!("XREADGROUP GROUP g c{low} COUNT 2 STREAMS x{key} >"),
        39 => format!("PFADD p{key} {number} {score}"),
        40 => format!("UNLINK set{key}"),
        _ => format!("EVAL return(redis.call('INCR',KEYS[1])) 1 n{key}"),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Writes until it is to end; some commands stand in transactions.
pub(crate) fn write_until(
    source: SocketAddr,
    is_over: &AtomicBool,
    mut random: Random,
    draw: impl Fn(&mut Random, usize) -> Vec<String>,
) {
    let mut client = Client::connect(source);
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let is_many = random.below(10) == 0;
        let count = if is_many { 2 + random.below(4) } else { 1 };
        let mut commands: Vec<_> = (0..count).map(|_| draw(&mut random, number)).collect();
        if is_many {
            commands.insert(0, vec!["MULTI".to_owned()]);
            commands.push(vec!["EXEC".to_owned()]);
        }
        for command in commands {
            client.ask(&command);
        }
    }
}

/// A command that changes something, or not, of more kinds than [`draw`] has.
#[expect(clippy::too_many_lines, reason = "one arm per command")]
pub(crate) fn draw_more(random: &mut Random, number: usize) -> Vec<String> {
    let (key, other) = (random.below(KEYS), random.below(KEYS));
    let (low, score, id) = (random.below(20), random.below(1000), random.below(100) + 1);
    let long = "m".repeat(901 + random.below(3));
    if random.below(400) == 0 {
        let words = [
            "FLUSHALL",
            "FLUSHDB",
            "SWAPDB 0 2",
            "SWAPDB 1 3",
            "SWAPDB 0 1",
        ];
        let words = words[random.below(words.len())];
        return words.split(' ').map(str::to_owned).collect();
    }
    let text = match random.below(64) {
        0 => format!("LSET l{key} {low} {number}"),
        1 => format!("LSET l{key} -1 {number}"),
        2 => format!("LREM l{key} {} {low}", random.below(5) as i64 - 2),
        3 => format!("LINSERT l{key} AFTER {low} {number}"),
        4 => format!("RPOPLPUSH l{key} l{key}"),
        5 => format!("LMOVE l{key} l{key} LEFT RIGHT"),
        6 => format!("LMOVE l{key} l{other} RIGHT LEFT"),
        7 => format!("RPOP l{key} {low}"),
        8 => format!("LPUSHX l{key} {low} {number}"),
        9 => format!("LTRIM l{key} {low} -2"),
        10 => format!("LMPOP 2 l{key} l{other} RIGHT COUNT {}", low + 1),
        11 => format!("SORT l{key} ALPHA STORE l{other}"),
        12 => format!("HSETNX h{key} f{low} {number}"),
        13 => format!("HINCRBY h{key} n{low} {score}"),
        14 => format!("HSET h{key} {long} {number}"),
        15 => format!("HDEL h{key} {long} f{low} none"),
        16 => format!("HSET h{key} v {}", "v".repeat(1500)),
        17 => format!("HDEL h{key} v"),
        18 => format!("SADD set{key} {long} {low}"),
        19 => format!("SREM set{key} {long} {low} none"),
        20 => format!("SPOP set{key}"),
        21 => format!("SUNIONSTORE set{key} set{other} set{low}"),
        22 => format!("SDIFFSTORE set{key} set{other} set{low}"),
        23 => format!("ZADD z{key} GT CH {score} m{low}"),
        24 => format!("ZADD z{key} LT {score} m{low} {low} m{score}"),
        25 => format!("ZADD z{key} NX {score}.25 m{low} 1e300 big -inf least"),
        26 => format!("ZADD z{key} XX INCR -3.7 m{low}"),
        27 => format!("ZADD z{key} {score} {long}"),
        28 => format!("ZREM z{key} {long} m{low} none"),
        29 => format!("ZREMRANGEBYSCORE z{key} {low} ({score}"),
        30 => format!("ZREMRANGEBYRANK z{key} {low} -{low}"),
        31 => format!("ZPOPMAX z{key} {low}"),
        32 => format!("ZMPOP 2 z{key} z{other} MIN COUNT {}", low + 1),
        33 => format!("ZINTERSTORE z{key} 2 z{other} z{low} WEIGHTS 2 3"),
        34 => format!("ZRANGESTORE z{key} z{other} 0 {low}"),
        35 => format!("GEOADD g{key} {low}.5 4{} place{low}", random.below(10)),
        36 => format!(
            "XADD x{key} NOMKSTREAM * a {number} b {}",
            "b".repeat(low * 20)
        ),
        37 => format!("XADD x{key} {number}-{low} a 1"),
        38 => format!("XADD y{key} {id}-{number} a 1"),
        39 => format!("XDEL y{key} {id}-{low} {number}-0"),
        40 => format!("XTRIM x{key} MAXLEN {low}"),
        41 => format!("XTRIM x{key} MINID {number}"),
        42 => format!("XGROUP CREATE x{key} g $ MKSTREAM"),
        43 => format!("XGROUP SETID x{key} g {low} ENTRIESREAD {low}"),
        44 => format!("XGROUP CREATECONSUMER x{key} g c{low}"),
        45 => format!("XGROUP DELCONSUMER x{key} g c{low}"),
        46 => format!("XGROUP DESTROY x{key} g"),
        47 => format!("XREADGROUP GROUP g c{low} COUNT 3 STREAMS x{key} >"),
        48 => format!("XREADGROUP GROUP g c{low} NOACK COUNT 1 STREAMS x{key} >"),
        49 => format!("XREADGROUP GROUP g c{low} COUNT 2 STREAMS x{key} 0"),
        50 => format!("XAUTOCLAIM x{key} g c{low} 0 0 COUNT 3"),
        51 => format!("XSETID y{key} 1000000-{number} ENTRIESADDED 2000000 MAXDELETEDID 5-0"),
        52 => format!("MSET s{key} {number} s{other} {score} n{low} 7"),
        53 => format!("MSETNX s{key} {number} q{other} {score}"),
        54 => format!("BITFIELD s{key} SET u8 {score} {low}"),
        55 => format!("BITOP XOR s{key} s{other} s{low}"),
        56 => format!("PFMERGE p{key} p{other} p{low}"),
        57 => format!("MOVE s{key} {}", random.below(DATABASES)),
        58 => format!("COPY z{key} z{other} REPLACE"),
        59 => format!("RENAME l{key} l{other}"),
        60 => format!(
            "COPY x{key} x{other} DB {} REPLACE",
            random.below(DATABASES)
        ),
        61 => format!("GETDEL s{key}"),
        62 => format!("PEXPIRE brief{key} {}", 1 + low),
        _ => format!("HSET brief{key} a {number}"),
    };
    text.split(' ').map(str::to_owned).collect()
}
