//! The table of commands.

use std::sync::LazyLock;

use super::call::Call;
use super::command::MoreKeys;
use super::command::{Command, NO_KEYS, Run, Subcommand};
use super::flow::{Flow, Refusal};
#[cfg(feature = "scripts")]
use super::scripts;
use super::{
    absent, access, all_keys, bit_fields, bit_operations, bits, channels, cluster, config,
    connection, databases, dump, element_draw, element_scan, expiry, geo, geo_search, hashes,
    hyperloglogs, introspection, keys, lcs, list_takes, lists, lost_keys, memory_nodes, monitor,
    object, random_key, renames, replicas, saves, server, set_algebra, sets, slowlog, sorted_draw,
    sorted_ranges, sorted_scan, sorted_sets, sorted_several, sorted_takes, sorts, stream_groups,
    stream_reads, streams, strings, subcommand, transactions,
};
use crate::cores::shared::CommandNames;

/// A command with its keys at some places.
const fn command(
    name: &'static str,
    arity: i64,
    keys: (i64, i64, i64),
    flags: &'static str,
    run: Run,
) -> Command {
    Command {
        name,
        arity,
        keys,
        more_keys: more_keys(keys, flags),
        is_of_one_key: matches!((keys, more_keys(keys, flags)), (ONE, MoreKeys::None)),
        flags,
        is_before_authentication: false,
        needs_memory: begins_with(flags, SLOW_WRITE),
        writes: begins_with(flags, "write"),
        reads: begins_with(flags, "readonly"),
        subcommands: &[],
        run,
    }
}

/// Where a command has keys that its arguments count: those that wait have their time before their
/// number, those that store a result the key of that, and scripts their text.
const fn more_keys((first, ..): (i64, i64, i64), flags: &str) -> MoreKeys {
    if !contains(flags, "movablekeys") {
        MoreKeys::None
    } else if contains(flags, "no_mandatory_keys") {
        MoreKeys::OfScript(2)
    } else if first > 0 || contains(flags, "blocking") {
        MoreKeys::Counted(2)
    } else {
        MoreKeys::Counted(1)
    }
}

/// True if a text has a part.
const fn contains(text: &str, part: &str) -> bool {
    let mut rest = text;
    while rest.len() >= part.len() && !rest.is_empty() {
        if begins_with(rest, part) {
            return true;
        }
        rest = rest.split_at(1).1;
    }
    false
}

/// True if a text begins so.
const fn begins_with(text: &str, beginning: &str) -> bool {
    let (text, beginning) = (text.as_bytes(), beginning.as_bytes());
    if text.len() < beginning.len() {
        return false;
    }
    let mut place = 0;
    while place < beginning.len() {
        if text[place] != beginning[place] {
            return false;
        }
        place += 1;
    }
    true
}

/// A command that clients may run before they authenticate.
const fn open(name: &'static str, arity: i64, flags: &'static str, run: Run) -> Command {
    Command {
        is_before_authentication: true,
        ..command(name, arity, NONE, flags, run)
    }
}

/// A command whose second word names what it does.
const fn container(
    name: &'static str,
    flags: &'static str,
    subcommands: &'static [Subcommand],
) -> Command {
    Command {
        subcommands,
        more_keys: MoreKeys::OfSecondWord,
        ..command(name, -2, NONE, flags, run_subcommand)
    }
}

/// A command that reads its first key, and names that of its result behind a word.
const fn with_result(
    (name, arity): (&'static str, i64),
    more_keys: MoreKeys,
    flags: &'static str,
    run: Run,
) -> Command {
    Command {
        more_keys,
        is_of_one_key: false,
        ..command(name, arity, ONE, flags, run)
    }
}

/// A command whose keys are streams, behind a word.
const fn of_streams(name: &'static str, arity: i64, flags: &'static str, run: Run) -> Command {
    Command {
        more_keys: MoreKeys::Streams,
        ..command(name, arity, NONE, flags, run)
    }
}

/// Runs the subcommand that the second word names.
fn run_subcommand(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    let command = find(call.argument(0)).ok_or("ERR unknown command")?;
    subcommand::run(call, command)
}

/// Runs the subcommand of `CLUSTER` or `CLUSTERX` that the second word names.
fn run_cluster(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    let command = find(call.argument(0)).ok_or("ERR unknown command")?;
    cluster::run(call, command)
}

impl Command {
    /// Its place in the table.
    #[inline]
    pub(crate) fn place(&self) -> usize {
        let bytes = std::ptr::from_ref(self)
            .addr()
            .wrapping_sub(COMMANDS.as_ptr().addr());
        bytes / size_of::<Self>()
    }
}

/// One key, the first argument.
const ONE: (i64, i64, i64) = (1, 1, 1);
/// All arguments are keys.
const ALL: (i64, i64, i64) = (1, -1, 1);
/// Every second argument is a key.
const PAIRS: (i64, i64, i64) = (1, -1, 2);
/// The first two arguments are keys.
const TWO: (i64, i64, i64) = (1, 2, 1);
/// All arguments but the first one are keys.
const BUT_FIRST: (i64, i64, i64) = (2, -1, 1);
/// All arguments but the last one are keys.
const BUT_LAST: (i64, i64, i64) = (1, -2, 1);
/// One key, the second argument.
const SECOND: (i64, i64, i64) = (2, 2, 1);
const NONE: (i64, i64, i64) = NO_KEYS;

const READ: &str = "readonly fast";
const WRITE: &str = "write denyoom fast";
const SLOW_WRITE: &str = "write denyoom";
const CHANGE: &str = "write fast";
const SLOW_READ: &str = "readonly";
const BLOCKING: &str = "write noscript blocking";
const BLOCKING_FAST: &str = "write noscript blocking fast";
const BLOCKING_MOVE: &str = "write denyoom noscript blocking";
/// The first argument, or the second, says how many keys follow it.
const SEVERAL: &str = "write movablekeys";
const BLOCKING_SEVERAL: &str = "write blocking movablekeys";
/// The keys follow a word, and as many IDs follow them.
const STREAMS_READ: &str = "readonly blocking movablekeys";
const STREAMS_WRITE: &str = "write blocking movablekeys";
/// The first argument says how many keys follow.
const COUNTED_READ: &str = "readonly movablekeys";
/// The first argument is a key, and the second says how many follow.
const STORED_SEVERAL: &str = "write denyoom movablekeys";
/// Its patterns name keys.
const NAMED_READ: &str = "readonly movablekeys";
/// It only reads, but keeps with the value what it has found.
const REPLICATED_READ: &str = "readonly may_replicate";
const ADMIN_WRITE: &str = "write denyoom admin";
const ADMIN: &str = "admin loading stale";
const MANAGE: &str = "admin noscript loading stale";
const FOLLOW: &str = "admin noscript loading stale";
const REPLICATE: &str = "admin noscript loading stale allow_busy";
const SYNCHRONIZE: &str = "admin noscript no_async_loading no_multi";
const INFO: &str = "loading stale fast";
const SUBSCRIBE: &str = "pubsub noscript loading stale";
const PUBLISH: &str = "pubsub loading stale fast";
#[cfg(feature = "scripts")]
const EVALUATE: &str = "noscript stale skip_monitor no_mandatory_keys movablekeys";
#[cfg(feature = "scripts")]
const EVALUATE_READ: &str = "readonly noscript stale skip_monitor no_mandatory_keys movablekeys";
const TRANSACTION: &str = "noscript loading stale fast";

/// All commands, by name.
pub(crate) static COMMANDS: &[Command] = &[
    container("acl", ADMIN, access::ACL),
    command("append", 3, ONE, WRITE, strings::append),
    command("asking", 1, NONE, "fast", cluster::asking),
    open(
        "auth",
        -2,
        "noscript loading stale fast no_auth",
        connection::auth,
    ),
    command("bgrewriteaof", 1, NONE, "admin", saves::bgrewriteaof),
    command("bgsave", -1, NONE, "admin", saves::bgsave),
    command("bitcount", -2, ONE, SLOW_READ, bits::bitcount),
    command("bitfield", -2, ONE, SLOW_WRITE, bit_fields::bitfield),
    command("bitfield_ro", -2, ONE, READ, bit_fields::bitfield_ro),
    command("bitop", -4, BUT_FIRST, SLOW_WRITE, bit_operations::bitop),
    command("bitpos", -3, ONE, SLOW_READ, bits::bitpos),
    command("blmove", 6, TWO, BLOCKING_MOVE, list_takes::blmove),
    command("blmpop", -5, NONE, BLOCKING_SEVERAL, list_takes::blmpop),
    command("blpop", -3, BUT_LAST, BLOCKING, list_takes::blpop),
    command("brpop", -3, BUT_LAST, BLOCKING, list_takes::brpop),
    command("brpoplpush", 4, TWO, BLOCKING_MOVE, list_takes::brpoplpush),
    command("bzmpop", -5, NONE, BLOCKING_SEVERAL, sorted_takes::bzmpop),
    command(
        "bzpopmax",
        -3,
        BUT_LAST,
        BLOCKING_FAST,
        sorted_takes::bzpopmax,
    ),
    command(
        "bzpopmin",
        -3,
        BUT_LAST,
        BLOCKING_FAST,
        sorted_takes::bzpopmin,
    ),
    container("client", INFO, connection::CLIENT),
    Command {
        subcommands: cluster::CLUSTER,
        ..command("cluster", -2, NONE, ADMIN, run_cluster)
    },
    Command {
        subcommands: cluster::CLUSTERX,
        ..command("clusterx", -2, NONE, MANAGE, run_cluster)
    },
    Command {
        subcommands: introspection::COMMAND,
        ..command("command", -1, NONE, INFO, introspection::command)
    },
    container("config", ADMIN, config::CONFIG),
    command("copy", -3, TWO, SLOW_WRITE, renames::copy),
    command("dbsize", 1, NONE, READ, databases::dbsize),
    command("debug", -2, NONE, ADMIN, absent::debug),
    command("decr", 2, ONE, WRITE, strings::decr),
    command("decrby", 3, ONE, WRITE, strings::decrby),
    command("del", -2, ALL, "write", keys::del),
    command("delifeq", 3, ONE, CHANGE, strings::delifeq),
    command("discard", 1, NONE, TRANSACTION, transactions::discard),
    command("dump", 2, ONE, SLOW_READ, dump::dump),
    command("echo", 2, NONE, INFO, connection::echo),
    #[cfg(feature = "scripts")]
    command("eval", -3, NONE, EVALUATE, scripts::eval),
    #[cfg(feature = "scripts")]
    command("eval_ro", -3, NONE, EVALUATE_READ, scripts::eval_ro),
    #[cfg(feature = "scripts")]
    command("evalsha", -3, NONE, EVALUATE, scripts::evalsha),
    #[cfg(feature = "scripts")]
    command("evalsha_ro", -3, NONE, EVALUATE_READ, scripts::evalsha_ro),
    command(
        "exec",
        1,
        NONE,
        "noscript loading stale",
        transactions::exec,
    ),
    command("exists", -2, ALL, READ, keys::exists),
    command("expire", -3, ONE, CHANGE, expiry::expire),
    command("expireat", -3, ONE, CHANGE, expiry::expireat),
    command("expiretime", 2, ONE, READ, expiry::expiretime),
    container("farcore", "write admin", lost_keys::FARCORE),
    command("flushall", -1, NONE, "write", databases::flushall),
    command("flushdb", -1, NONE, "write", databases::flushdb),
    container("function", "noscript", absent::FUNCTION),
    command("geoadd", -5, ONE, SLOW_WRITE, geo::geoadd),
    command("geodist", -4, ONE, SLOW_READ, geo::geodist),
    command("geohash", -2, ONE, SLOW_READ, geo::geohash),
    command("geopos", -2, ONE, SLOW_READ, geo::geopos),
    with_result(
        ("georadius", -6),
        MoreKeys::OfResult(6),
        STORED_SEVERAL,
        geo_search::georadius,
    ),
    command("georadius_ro", -6, ONE, SLOW_READ, geo_search::georadius_ro),
    with_result(
        ("georadiusbymember", -5),
        MoreKeys::OfResult(5),
        STORED_SEVERAL,
        geo_search::georadiusbymember,
    ),
    command(
        "georadiusbymember_ro",
        -5,
        ONE,
        SLOW_READ,
        geo_search::georadiusbymember_ro,
    ),
    command("geosearch", -7, ONE, SLOW_READ, geo_search::geosearch),
    command(
        "geosearchstore",
        -8,
        TWO,
        SLOW_WRITE,
        geo_search::geosearchstore,
    ),
    command("get", 2, ONE, READ, strings::get),
    command("getbit", 3, ONE, READ, bits::getbit),
    command("getdel", 2, ONE, CHANGE, strings::getdel),
    command("getex", -2, ONE, CHANGE, strings::getex),
    command("getrange", 4, ONE, SLOW_READ, strings::getrange),
    command("getset", 3, ONE, WRITE, strings::getset),
    command("hdel", -3, ONE, CHANGE, hashes::hdel),
    open(
        "hello",
        -1,
        "noscript loading stale fast no_auth",
        connection::hello,
    ),
    command("hexists", 3, ONE, READ, hashes::hexists),
    command("hget", 3, ONE, READ, hashes::hget),
    command("hgetall", 2, ONE, SLOW_READ, hashes::hgetall),
    command("hincrby", 4, ONE, WRITE, hashes::hincrby),
    command("hincrbyfloat", 4, ONE, WRITE, hashes::hincrbyfloat),
    command("hkeys", 2, ONE, SLOW_READ, hashes::hkeys),
    command("hlen", 2, ONE, READ, hashes::hlen),
    command("hmget", -3, ONE, READ, hashes::hmget),
    command("hmset", -4, ONE, WRITE, hashes::hmset),
    command("hrandfield", -2, ONE, SLOW_READ, element_draw::hrandfield),
    command("hscan", -3, ONE, SLOW_READ, element_scan::hscan),
    command("hset", -4, ONE, WRITE, hashes::hset),
    command("hsetnx", 4, ONE, WRITE, hashes::hsetnx),
    command("hstrlen", 3, ONE, READ, hashes::hstrlen),
    command("hvals", 2, ONE, SLOW_READ, hashes::hvals),
    command("incr", 2, ONE, WRITE, strings::incr),
    command("incrby", 3, ONE, WRITE, strings::incrby),
    command("incrbyfloat", 3, ONE, WRITE, strings::incrbyfloat),
    command("info", -1, NONE, INFO, server::info),
    command("keys", 2, NONE, SLOW_READ, all_keys::keys),
    command("lastsave", 1, NONE, INFO, saves::lastsave),
    container("latency", ADMIN, slowlog::LATENCY),
    command("lcs", -3, TWO, SLOW_READ, lcs::lcs),
    command("lindex", 3, ONE, SLOW_READ, lists::lindex),
    command("linsert", 5, ONE, SLOW_WRITE, lists::linsert),
    command("llen", 2, ONE, READ, lists::llen),
    command("lmove", 5, TWO, SLOW_WRITE, list_takes::lmove),
    command("lmpop", -4, NONE, SEVERAL, list_takes::lmpop),
    command("lolwut", -1, NONE, "readonly fast", absent::lolwut),
    command("lpop", -2, ONE, CHANGE, lists::lpop),
    command("lpos", -3, ONE, SLOW_READ, lists::lpos),
    command("lpush", -3, ONE, WRITE, lists::lpush),
    command("lpushx", -3, ONE, WRITE, lists::lpushx),
    command("lrange", 4, ONE, SLOW_READ, lists::lrange),
    command("lrem", 4, ONE, "write", lists::lrem),
    command("lset", 4, ONE, SLOW_WRITE, lists::lset),
    command("ltrim", 4, ONE, "write", lists::ltrim),
    container("memnodes", MANAGE, memory_nodes::MEMNODES),
    container("memory", "readonly", object::MEMORY),
    command("mget", -2, ALL, READ, strings::mget),
    container("module", ADMIN, absent::MODULE),
    command("monitor", 1, NONE, ADMIN, monitor::monitor),
    command("move", 3, ONE, CHANGE, databases::move_to),
    command("mset", -3, PAIRS, SLOW_WRITE, strings::mset),
    command("msetnx", -3, PAIRS, SLOW_WRITE, strings::msetnx),
    command("multi", 1, NONE, TRANSACTION, transactions::multi),
    container("object", SLOW_READ, object::OBJECT),
    command("persist", 2, ONE, CHANGE, expiry::persist),
    command("pexpire", -3, ONE, CHANGE, expiry::pexpire),
    command("pexpireat", -3, ONE, CHANGE, expiry::pexpireat),
    command("pexpiretime", 2, ONE, READ, expiry::pexpiretime),
    command("pfadd", -2, ONE, WRITE, hyperloglogs::pfadd),
    command("pfcount", -2, ALL, REPLICATED_READ, hyperloglogs::pfcount),
    command("pfdebug", 3, SECOND, ADMIN_WRITE, hyperloglogs::pfdebug),
    command("pfmerge", -2, ALL, SLOW_WRITE, hyperloglogs::pfmerge),
    command("pfselftest", 1, NONE, "admin", hyperloglogs::pfselftest),
    command("ping", -1, NONE, "fast", connection::ping),
    command("psetex", 4, ONE, SLOW_WRITE, strings::psetex),
    command("psubscribe", -2, NONE, SUBSCRIBE, channels::psubscribe),
    command("psync", -3, NONE, SYNCHRONIZE, replicas::psync),
    command("pttl", 2, ONE, READ, expiry::pttl),
    command("publish", 3, NONE, PUBLISH, channels::publish),
    command("pubsub", -2, NONE, SUBSCRIBE, channels::pubsub),
    command("punsubscribe", -1, NONE, SUBSCRIBE, channels::punsubscribe),
    open("quit", -1, INFO, connection::quit),
    command("randomkey", 1, NONE, SLOW_READ, random_key::randomkey),
    command("readonly", 1, NONE, INFO, cluster::readonly),
    command("readwrite", 1, NONE, INFO, cluster::readwrite),
    command("rename", 3, TWO, "write", renames::rename),
    command("renamenx", 3, TWO, CHANGE, renames::renamenx),
    command("replconf", -1, NONE, REPLICATE, replicas::replconf),
    command("replicaof", 3, NONE, FOLLOW, replicas::replicaof),
    open(
        "reset",
        1,
        "noscript loading stale fast no_auth",
        connection::reset,
    ),
    command("restore", -4, ONE, SLOW_WRITE, dump::restore),
    command("role", 1, NONE, INFO, server::role),
    command("rpop", -2, ONE, CHANGE, lists::rpop),
    command("rpoplpush", 3, TWO, SLOW_WRITE, list_takes::rpoplpush),
    command("rpush", -3, ONE, WRITE, lists::rpush),
    command("rpushx", -3, ONE, WRITE, lists::rpushx),
    command("sadd", -3, ONE, WRITE, sets::sadd),
    command("save", 1, NONE, "admin noscript", saves::save),
    command("scan", -2, NONE, SLOW_READ, keys::scan),
    command("scard", 2, ONE, READ, sets::scard),
    #[cfg(feature = "scripts")]
    container("script", "noscript", scripts::SCRIPT),
    command("sdiff", -2, ALL, SLOW_READ, set_algebra::sdiff),
    command("sdiffstore", -3, ALL, SLOW_WRITE, set_algebra::sdiffstore),
    command("select", 2, NONE, INFO, databases::select),
    command("set", -3, ONE, SLOW_WRITE, strings::set),
    command("setbit", 4, ONE, SLOW_WRITE, bits::setbit),
    command("setex", 4, ONE, SLOW_WRITE, strings::setex),
    command("setnx", 3, ONE, WRITE, strings::setnx),
    command("setrange", 4, ONE, SLOW_WRITE, strings::setrange),
    command("shutdown", -1, NONE, ADMIN, saves::shutdown),
    command("sinter", -2, ALL, SLOW_READ, set_algebra::sinter),
    command(
        "sintercard",
        -3,
        NONE,
        COUNTED_READ,
        set_algebra::sintercard,
    ),
    command("sinterstore", -3, ALL, SLOW_WRITE, set_algebra::sinterstore),
    command("sismember", 3, ONE, READ, sets::sismember),
    command("slaveof", 3, NONE, FOLLOW, replicas::replicaof),
    container("slowlog", ADMIN, slowlog::SLOWLOG),
    command("smembers", 2, ONE, SLOW_READ, sets::smembers),
    command("smismember", -3, ONE, READ, sets::smismember),
    command("smove", 4, TWO, CHANGE, sets::smove),
    with_result(
        ("sort", -2),
        MoreKeys::OfSort,
        STORED_SEVERAL,
        sorts::sort_and_store,
    ),
    with_result(
        ("sort_ro", -2),
        MoreKeys::OfSort,
        NAMED_READ,
        sorts::sort_ro,
    ),
    command("spop", -2, ONE, CHANGE, sets::spop),
    command("spublish", 3, NONE, PUBLISH, channels::spublish),
    command("srandmember", -2, ONE, SLOW_READ, element_draw::srandmember),
    command("srem", -3, ONE, CHANGE, sets::srem),
    command("sscan", -3, ONE, SLOW_READ, element_scan::sscan),
    command("ssubscribe", -2, NONE, SUBSCRIBE, channels::ssubscribe),
    command("strlen", 2, ONE, READ, strings::strlen),
    command("subscribe", -2, NONE, SUBSCRIBE, channels::subscribe),
    command("substr", 4, ONE, SLOW_READ, strings::getrange),
    command("sunion", -2, ALL, SLOW_READ, set_algebra::sunion),
    command("sunionstore", -3, ALL, SLOW_WRITE, set_algebra::sunionstore),
    command("sunsubscribe", -1, NONE, SUBSCRIBE, channels::sunsubscribe),
    command("swapdb", 3, NONE, CHANGE, databases::swapdb),
    command("sync", 1, NONE, SYNCHRONIZE, replicas::sync),
    command("time", 1, NONE, INFO, server::time),
    command("touch", -2, ALL, READ, keys::exists),
    command("ttl", 2, ONE, READ, expiry::ttl),
    command("type", 2, ONE, READ, keys::type_of),
    command("unlink", -2, ALL, CHANGE, keys::del),
    command("unsubscribe", -1, NONE, SUBSCRIBE, channels::unsubscribe),
    command("unwatch", 1, NONE, TRANSACTION, transactions::unwatch),
    command("wait", 3, NONE, "noscript", replicas::wait),
    command("watch", -2, ALL, TRANSACTION, transactions::watch),
    command("xack", -4, ONE, CHANGE, stream_groups::xack),
    command("xadd", -5, ONE, WRITE, streams::xadd),
    command("xautoclaim", -6, ONE, CHANGE, stream_groups::xautoclaim),
    command("xclaim", -6, ONE, CHANGE, stream_groups::xclaim),
    command("xdel", -3, ONE, CHANGE, streams::xdel),
    container("xgroup", SLOW_WRITE, stream_groups::XGROUP),
    container("xinfo", SLOW_READ, stream_groups::XINFO),
    command("xlen", 2, ONE, READ, streams::xlen),
    command("xpending", -3, ONE, SLOW_READ, stream_groups::xpending),
    command("xrange", -4, ONE, SLOW_READ, streams::xrange),
    of_streams("xread", -4, STREAMS_READ, stream_reads::xread),
    of_streams("xreadgroup", -7, STREAMS_WRITE, stream_reads::xreadgroup),
    command("xrevrange", -4, ONE, SLOW_READ, streams::xrevrange),
    command("xsetid", -3, ONE, WRITE, streams::xsetid),
    command("xtrim", -4, ONE, "write", streams::xtrim),
    command("zadd", -4, ONE, WRITE, sorted_sets::zadd),
    command("zcard", 2, ONE, READ, sorted_sets::zcard),
    command("zcount", 4, ONE, READ, sorted_sets::zcount),
    command("zdiff", -3, NONE, COUNTED_READ, sorted_several::zdiff),
    command(
        "zdiffstore",
        -4,
        ONE,
        STORED_SEVERAL,
        sorted_several::zdiffstore,
    ),
    command("zincrby", 4, ONE, WRITE, sorted_sets::zincrby),
    command("zinter", -3, NONE, COUNTED_READ, sorted_several::zinter),
    command(
        "zintercard",
        -3,
        NONE,
        COUNTED_READ,
        sorted_several::zintercard,
    ),
    command(
        "zinterstore",
        -4,
        ONE,
        STORED_SEVERAL,
        sorted_several::zinterstore,
    ),
    command("zlexcount", 4, ONE, READ, sorted_sets::zlexcount),
    command("zmpop", -4, NONE, SEVERAL, sorted_takes::zmpop),
    command("zmscore", -3, ONE, READ, sorted_sets::zmscore),
    command("zpopmax", -2, ONE, CHANGE, sorted_takes::zpopmax),
    command("zpopmin", -2, ONE, CHANGE, sorted_takes::zpopmin),
    command("zrandmember", -2, ONE, SLOW_READ, sorted_draw::zrandmember),
    command("zrange", -4, ONE, SLOW_READ, sorted_ranges::zrange),
    command(
        "zrangebylex",
        -4,
        ONE,
        SLOW_READ,
        sorted_ranges::zrangebylex,
    ),
    command(
        "zrangebyscore",
        -4,
        ONE,
        SLOW_READ,
        sorted_ranges::zrangebyscore,
    ),
    command(
        "zrangestore",
        -5,
        TWO,
        SLOW_WRITE,
        sorted_ranges::zrangestore,
    ),
    command("zrank", -3, ONE, READ, sorted_sets::zrank),
    command("zrem", -3, ONE, CHANGE, sorted_sets::zrem),
    command(
        "zremrangebylex",
        4,
        ONE,
        "write",
        sorted_ranges::zremrangebylex,
    ),
    command(
        "zremrangebyrank",
        4,
        ONE,
        "write",
        sorted_ranges::zremrangebyrank,
    ),
    command(
        "zremrangebyscore",
        4,
        ONE,
        "write",
        sorted_ranges::zremrangebyscore,
    ),
    command("zrevrange", -4, ONE, SLOW_READ, sorted_ranges::zrevrange),
    command(
        "zrevrangebylex",
        -4,
        ONE,
        SLOW_READ,
        sorted_ranges::zrevrangebylex,
    ),
    command(
        "zrevrangebyscore",
        -4,
        ONE,
        SLOW_READ,
        sorted_ranges::zrevrangebyscore,
    ),
    command("zrevrank", -3, ONE, READ, sorted_sets::zrevrank),
    command("zscan", -3, ONE, SLOW_READ, sorted_scan::zscan),
    command("zscore", 3, ONE, READ, sorted_sets::zscore),
    command("zunion", -3, NONE, COUNTED_READ, sorted_several::zunion),
    command(
        "zunionstore",
        -4,
        ONE,
        STORED_SEVERAL,
        sorted_several::zunionstore,
    ),
];

/// The bit of each byte that distinguishes small letters from large ones.
const SMALL_LETTERS: u64 = 0x2020_2020_2020_2020;
/// Letters of the longest name.
const NAME_BYTES_MAX: usize = 2 * size_of::<u128>();
/// Places of the table of names: most commands lie at the first one that is looked at.
const NAME_PLACES: usize = 1024;

const _: () = assert!(COMMANDS.len() * 2 < NAME_PLACES && NAME_PLACES.is_power_of_two());

/// Commands by name: each lies at the place of its name, or at the next that was free.
static BY_NAME: LazyLock<[Option<&'static Command>; NAME_PLACES]> = LazyLock::new(|| {
    let mut table = [None; NAME_PLACES];
    for command in COMMANDS {
        let mut place = name_place(command.name.as_bytes()).unwrap_or(0);
        while table[place].is_some() {
            place = (place + 1) % NAME_PLACES;
        }
        table[place] = Some(command);
    }
    table
});

static GET: LazyLock<Option<&'static Command>> = LazyLock::new(|| find_by_place(b"get"));
static SET: LazyLock<Option<&'static Command>> = LazyLock::new(|| find_by_place(b"set"));

/// Where the search for a name begins, the same for letters of any size; `None` if it is longer
/// than all names.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "takes the upper bits")]
fn name_place(name: &[u8]) -> Option<usize> {
    let mut letters = [0; NAME_BYTES_MAX];
    letters.get_mut(..name.len())?.copy_from_slice(name);
    let (words, _) = letters.as_chunks();
    let words = words
        .iter()
        .map(|word| u64::from_le_bytes(*word) | SMALL_LETTERS);
    let folded = words.fold(name.len() as u64, |folded, word| folded ^ word);
    let product = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Some((product >> (u64::BITS - NAME_PLACES.trailing_zeros())) as usize)
}

fn find_by_place(name: &[u8]) -> Option<&'static Command> {
    let mut place = name_place(name)?;
    let table = &*BY_NAME;
    while let Some(command) = table[place] {
        if command.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(command);
        }
        place = (place + 1) % NAME_PLACES;
    }
    None
}

/// What a source may send though it is no change of keys.
const STREAMED: &[&str] = &[
    "eval", "evalsha", "exec", "multi", "pfcount", "publish", "script", "select", "spublish",
];

/// The names of all commands, in the order of the table, of those whose only key is their first
/// argument, and of those that a source may send: what waits or manages the server is none.
pub(crate) fn command_names() -> CommandNames {
    // The other key of this one is in another database.
    let is_single = |command: &&Command| command.is_of_one_key && command.name != "move";
    let is_streamed = |command: &&Command| {
        let changes = command.writes && !command.has_flag("blocking") && !command.has_flag("admin");
        changes || STREAMED.contains(&command.name)
    };
    let name = |command: &Command| command.name;
    CommandNames {
        all: COMMANDS.iter().map(name).collect(),
        of_one_key: COMMANDS.iter().filter(is_single).map(name).collect(),
        streamed: COMMANDS.iter().filter(is_streamed).map(name).collect(),
    }
}

/// The command of a name, in letters of any size.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    // The two that matter most are found without a search.
    if let &[first, b'e' | b'E', b't' | b'T'] = name {
        match first {
            b'g' | b'G' => return *GET,
            b's' | b'S' => return *SET,
            _ => {}
        }
    }
    find_by_place(name)
}

#[cfg(test)]
mod tests {
    use super::super::command::{COPIED_IN_ONE, IN_SLICES, OF_LONG_VALUES};
    use super::*;
    use crate::figures::counters;

    #[test]
    fn commands_are_sorted_and_found_at_their_place() {
        assert!(COMMANDS.len() <= counters::COMMANDS_MAX);
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        for (place, command) in COMMANDS.iter().enumerate() {
            let found = find(command.name.to_uppercase().as_bytes());
            assert_eq!(found.map(Command::place), Some(place), "{}", command.name);
        }
        assert!(find(b"nothing").is_none());
    }

    #[test]
    fn commands_in_slices_are_in_the_table() {
        for name in IN_SLICES {
            let command = find(name.as_bytes()).expect(name);
            assert!(command.takes_many_arguments() && command.takes_long_arguments());
        }
        for name in COPIED_IN_ONE {
            let command = find(name.as_bytes()).expect(name);
            assert!(command.takes_many_arguments() && !command.takes_long_arguments());
        }
        for name in OF_LONG_VALUES {
            let command = find(name.as_bytes()).expect(name);
            assert!(!command.takes_many_arguments() && command.takes_long_arguments());
        }
        assert!(!find(b"hset").expect("hset").takes_many_arguments());
    }

    #[test]
    fn keys_are_where_the_table_says() {
        for command in COMMANDS {
            let least = usize::try_from(command.arity.unsigned_abs()).expect("few");
            let keys = command.keys_in(least, |_| b"");
            // Where they are counted, no number names none.
            let are_counted = matches!(
                command.more_keys,
                MoreKeys::Counted(_) | MoreKeys::OfScript(_)
            );
            let has_first = command.has_keys() && !are_counted;
            assert_eq!(has_first, !keys.is_empty(), "{}", command.name);
        }
    }
}
