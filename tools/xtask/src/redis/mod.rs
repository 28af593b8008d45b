//! `cargo xtask redis`: proves a server of the Redis protocol by suites and clients that others
//! wrote. The server is any address: Farcore's, Debian's Redis, Valkey.
//!
//! ```text
//! place      folders and programs of what `setup` installs, all below target/redis
//! setup      the installation
//! server     the server's address, and whether it answers
//! selection  tools/xtask/redis/*.skip: tests that are left out, each with its reason
//! tcl        the units of Redis's own suite
//! python     the tests of redis-py
//! process    a server in a process of its own
//! ci         the suite of Redis against a server that is started for it
//! proxy      a proxy that records and cuts connections
//! clients    clients in five languages, and recordings of what they send first
//! programs   queues of jobs, rate limiters and caches do their work
//! memory     whether resident memory stays within what is printed, whatever clients do
//! longest    how long a client waits beside each command at its longest
//! kills      what servers have lost that were killed
//! failovers  what is lost when sources, replicas or links of a replicated set fail
//! valkey     a Valkey that follows is equal to its source
//! saving     what snapshots and logs cost beside a load
//! speed      paired runs of redis-benchmark against several servers
//! collections  paired runs on a hash, a set, a list and a sorted set of many elements
//! ```
//!
//! Drivers in other languages, and what is selected, stand in `tools/xtask/redis`.

mod ci;
mod clients;
mod collections;
mod failovers;
mod kills;
mod longest;
mod memory;
mod place;
mod process;
mod programs;
mod proxy;
mod python;
mod saving;
mod selection;
mod server;
mod setup;
mod speed;
mod tcl;
mod touched;
mod valkey;

use anyhow::Result;
use clap::Subcommand;

use self::place::Place;

#[derive(Debug, Subcommand)]
pub(crate) enum Redis {
    /// Install the suites, clients and servers below target/redis; does nothing if all are there.
    Setup,
    /// Start `farcore serve`, and run all units of Redis's own suite against it; installs what the
    /// suite needs.
    Ci(ci::Ci),
    /// Run units of Redis's own suite; fails if a test fails that tcl.skip does not name.
    Tcl(tcl::Tcl),
    /// Run the selected tests of redis-py in both versions of the protocol.
    Python(python::Python),
    /// Have foreign clients connect, write, read, send pipelines and reconnect.
    Clients(clients::Clients),
    /// Have queues of jobs, rate limiters and caches do their work; installs what they need, and
    /// starts `farcore serve` for each.
    Programs(programs::Programs),
    /// Record what foreign clients send when they connect.
    Record(clients::Record),
    /// Check that resident memory stays within what the server prints, whatever its clients do, and
    /// that a well-behaved client is served meanwhile; starts memory nodes and servers.
    Memory(memory::Memory),
    /// Measure how long a client waits beside every command at its longest, and beside many clients
    /// that send long ones; starts a server.
    Longest(longest::Longest),
    /// Kill a server with a data directory again and again while clients write, and count what it
    /// has lost of what it had acknowledged.
    Kills(kills::Kills),
    /// Have a source, its replicas and their links fail again and again while clients write and
    /// Sentinels promote, and count what is lost of what replicas had acknowledged.
    Failovers(failovers::Failovers),
    /// Have a Valkey 9 follow `farcore serve` while clients write and its link is cut, and compare
    /// both key by key; installs it, and starts both.
    Valkey(valkey::Valkey),
    /// Measure what snapshots and logs cost beside a full load, in Farcore and in Redis.
    Saving(saving::Saving),
    /// Compare the speed of servers by paired runs of redis-benchmark.
    Speed(speed::Speed),
    /// Compare the speed of servers with collections of many elements.
    Collections(collections::Collections),
}

pub(crate) fn perform(redis: Redis) -> Result<()> {
    let place = Place::open()?;
    match redis {
        Redis::Setup => setup::perform(&place),
        Redis::Ci(ci) => ci::perform(&place, &ci),
        Redis::Tcl(tcl) => tcl::perform(&place, &tcl),
        Redis::Python(python) => python::perform(&place, &python),
        Redis::Clients(clients) => clients::perform(&place, &clients),
        Redis::Programs(programs) => programs::perform(&place, &programs),
        Redis::Record(record) => clients::record(&place, &record),
        Redis::Memory(memory) => memory::perform(&place, &memory),
        Redis::Longest(longest) => longest::perform(&place, &longest),
        Redis::Kills(kills) => kills::perform(&place, &kills),
        Redis::Failovers(failovers) => failovers::perform(&place, &failovers),
        Redis::Valkey(valkey) => valkey::perform(&place, &valkey),
        Redis::Saving(saving) => saving::perform(&place, &saving),
        Redis::Speed(speed) => speed::perform(&place, &speed),
        Redis::Collections(collections) => collections::perform(&place, &collections),
    }
}
