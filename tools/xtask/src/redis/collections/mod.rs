//! `cargo xtask redis collections`: paired runs on one hash, one set, one list and one sorted set
//! of many elements, against Farcore and Debian's Redis, each in a process of its own on core 0,
//! the client on core 1.
//!
//! In each round a server is started, filled, measured and ended. The client is `redis-benchmark`,
//! which is often the slower side: the server's processor time for each request is measured beside
//! the rate. What an element takes is the growth of `used_memory` while its collection is filled;
//! of Farcore that is whole pages of local memory, with what is dead in them.
//!
//! With `--removed` another client reads a short key meanwhile, one request at a time, first beside
//! a collection that stays and then while one is deleted, overwritten and expires.

mod fill;
mod removal;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::fill::{COLLECTIONS, fill};
use super::place::Place;
use super::process::Process;
use super::speed::figures::{Figures, Sample, median};
use super::speed::{CLIENT_CORE, Contender, Foreign, order, rate, write_json};
use crate::lab::output_of;

#[derive(Debug, Args)]
pub(crate) struct Collections {
    /// The command of Farcore's server; `{port}` in it becomes a free port.
    #[arg(long, value_name = "COMMAND")]
    server_cmd: String,
    /// Elements of each collection.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    elements: u32,
    /// Rounds; each gives a pair for every comparison.
    #[arg(long, default_value_t = 5)]
    pairs: u32,
    /// Requests in flight for each connection.
    #[arg(long, default_value_t = 32)]
    pipeline: u32,
    /// Requests of a measurement; those of the middle of a list are a tenth.
    #[arg(long, default_value_t = 1_000_000)]
    requests: u32,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    connections: u32,
    /// The commands to measure; all by default.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    only: Vec<String>,
    /// Measure how long others wait while a collection of this many elements is removed, instead.
    #[arg(long, value_name = "ELEMENTS")]
    removed: Option<u32>,
    /// Also write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A command under load.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    /// Its words; `{middle}` is the rank in the middle, and `{tenth}` the ninth behind it.
    words: &'static str,
    /// Numbers are drawn from as many as there are elements; else from a thousand times as many,
    /// so that nearly all are new.
    is_known: bool,
    /// The share of the requests that are made.
    share: u32,
}

impl Load {
    /// The collection that it is for.
    fn key(&self) -> Option<&str> {
        self.words.split(' ').nth(1)
    }
}

const fn load(name: &'static str, words: &'static str) -> Load {
    Load {
        name,
        words,
        is_known: true,
        share: 1,
    }
}

/// What is measured, in this order. Taking off a list follows what adds to it, and what adds new
/// elements comes last.
const LOADS: [Load; 16] = [
    Load {
        share: 10,
        ..load("lindex", "LINDEX list {middle}")
    },
    load("rpush", "RPUSH list value:__rand_int__"),
    load("lpop", "LPOP list"),
    load("hset", "HSET hash field:__rand_int__ value:__rand_int__"),
    load("hget", "HGET hash field:__rand_int__"),
    load("sadd", "SADD set member:__rand_int__"),
    load("sismember", "SISMEMBER set member:__rand_int__"),
    load("zscore", "ZSCORE zset member:__rand_int__"),
    load("zrank", "ZRANK zset member:__rand_int__"),
    load("zrange", "ZRANGE zset {middle} {tenth}"),
    load(
        "zrangebyscore",
        "ZRANGEBYSCORE zset __rand_int__ +inf LIMIT 0 10",
    ),
    load("zincrby", "ZINCRBY zset 1 member:__rand_int__"),
    load("zadd", "ZADD zset __rand_int__ member:__rand_int__"),
    Load {
        is_known: false,
        ..load(
            "hset-new",
            "HSET hash field:__rand_int__ value:__rand_int__",
        )
    },
    Load {
        is_known: false,
        ..load("sadd-new", "SADD set member:__rand_int__")
    },
    Load {
        is_known: false,
        ..load("zadd-new", "ZADD zset __rand_int__ member:__rand_int__")
    },
];

/// What an element takes, in one round.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    server: &'static str,
    collection: &'static str,
    an_element: f64,
}

pub(super) fn perform(place: &Place, collections: &Collections) -> Result<()> {
    let redis = Foreign::Redis.contender(place)?;
    let contenders = [Contender::ours(&collections.server_cmd, "0"), redis];
    let known = LOADS.map(|load| load.name);
    let wrong = |name: &&String| !known.contains(&name.as_str());
    if let Some(name) = collections.only.iter().find(wrong) {
        bail!("--only {name}: the commands are {}", known.join(", "));
    }
    if let Some(elements) = collections.removed {
        return removal::perform(place, &contenders, (elements, collections.pairs));
    }
    let (mut figures, mut bytes) = (Figures::default(), Vec::new());
    for round in 0..collections.pairs {
        for at in order(round, contenders.len()) {
            let contender = &contenders[at];
            measure(
                place,
                collections,
                contender,
                round,
                (&mut figures, &mut bytes),
            )
            .with_context(|| format!("cannot measure {}", contender.name))?;
        }
        println!("round {} of {} measured", round + 1, collections.pairs);
    }
    let report = figures.report(contenders[0].name)?;
    print!("{report}");
    print_bytes(&bytes);
    if let Some(path) = &collections.json {
        write_json(path, &report)?;
    }
    Ok(())
}

/// Prints the median of the bytes that an element takes.
fn print_bytes(all: &[Bytes]) {
    println!("\nbytes an element, by the growth of used_memory");
    let is_filled = |name| all.iter().any(|bytes| bytes.collection == name);
    for (collection, _) in COLLECTIONS.into_iter().filter(|one| is_filled(one.0)) {
        let of = |server| {
            let of = |bytes: &&Bytes| bytes.server == server && bytes.collection == collection;
            median(all.iter().filter(of).map(|bytes| bytes.an_element))
        };
        let (ours, theirs) = (of("farcore"), of("redis"));
        let ratio = ours / theirs;
        println!("{collection:<6} farcore {ours:.1}, redis {theirs:.1}, ratio {ratio:.2}");
    }
}

/// Starts a server, fills it, measures each load, and ends it.
fn measure(
    place: &Place,
    collections: &Collections,
    contender: &Contender,
    round: u32,
    (figures, all_bytes): (&mut Figures, &mut Vec<Bytes>),
) -> Result<()> {
    let log = place.log(&format!("collections-{}", contender.name))?;
    let process = Process::start(&contender.command, Some(&contender.cores), &log)?;
    let elements = collections.elements;
    let only = &collections.only;
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let loads: Vec<_> = LOADS.iter().filter(|load| is_wanted(load.name)).collect();
    let is_used = |key: &str| loads.iter().any(|load| load.key() == Some(key));
    for (collection, an_element) in fill(process.server(), elements, is_used)? {
        all_bytes.push(Bytes {
            server: contender.name,
            collection,
            an_element,
        });
    }
    for load in loads {
        let before = process.processor_time()?;
        let rate = drive(collections, &process, load)?;
        let spent = process.processor_time()?.saturating_sub(before);
        let requests = collections.requests / load.share;
        figures.add(Sample {
            server: contender.name,
            test: load.name,
            pipeline: collections.pipeline,
            round,
            requests_per_second: rate,
            processor_ns_per_request: spent.as_nanos() as f64 / f64::from(requests),
        });
    }
    Ok(())
}

/// Runs `redis-benchmark` once; returns its rate.
fn drive(collections: &Collections, process: &Process, load: &Load) -> Result<f64> {
    let elements = u64::from(collections.elements);
    let numbers = if load.is_known {
        elements
    } else {
        elements * 1000
    };
    let middle = (elements / 2).to_string();
    let tenth = (elements / 2 + 9).to_string();
    let mut command = Command::new("taskset");
    command
        .args(["-c", &CLIENT_CORE.to_string()])
        .args(["redis-benchmark", "-h", "127.0.0.1"])
        .args(["-p", &process.port().to_string()])
        .args(["-P", &collections.pipeline.to_string()])
        .args(["-c", &collections.connections.to_string()])
        .args(["-n", &(collections.requests / load.share).to_string()])
        // It draws no greater numbers.
        .args(["-r", &numbers.min(999_999_999).to_string()])
        .arg("--csv")
        .args(
            load.words
                .split(' ')
                .map(|word| word.replace("{middle}", &middle).replace("{tenth}", &tenth)),
        );
    let output = output_of(&mut command)?;
    let output = String::from_utf8_lossy(&output);
    rate(&output).with_context(|| format!("redis-benchmark printed no rate: {output}"))
}
