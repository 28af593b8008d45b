//! `cache`: the miss ratio of Farcore as a cache, over made traces, and how fast puts are while
//! records are evicted.
//!
//! One client requests the keys of a trace in order; a miss is followed by a put, as an application
//! would fill its cache. Every value is verified: a get answers the value that was put last, or
//! that the key is absent. `bench/miss_ratios.py` gives the miss ratios of other policies at the
//! same number of records.

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Args;
use comfy_table::{Table, presets};
use farcore::{Answer, Config, Core, Engine, Operation, Refused, WhenFull};

use crate::cli::parse_size;
use crate::ending::Ending;
use crate::machine::Machine;
use crate::trace::made::{Made, Shape};

/// Requests in flight.
const WINDOW: usize = 64;
/// Bytes of a record beside its value: header and key.
const RECORD_EXTRA_BYTES: u64 = 24;

/// Flags of `cache`.
#[derive(Clone, Debug, Args)]
pub struct CacheArgs {
    /// The traces
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = ["zipf-0.8", "zipf-1.0", "scan"])]
    pub traces: Vec<Shape>,
    /// Keys of the Zipf part
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub keys: u64,
    /// Requests of each trace
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub requests: u64,
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub value_bytes: u32,
    /// Local memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "12MiB")]
    pub local: u64,
    /// Far memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16MiB")]
    pub far: u64,
    /// The seed of the traces
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also write each trace into this folder, as NAME.oracleGeneral
    #[arg(long, value_name = "FOLDER")]
    pub write: Option<PathBuf>,
    /// Instead of traces, put keys that were never put, with far memory that holds all of them and
    /// with this far memory, in turn, so many times; report both rates and their ratio
    #[arg(long, value_name = "N", conflicts_with_all = ["traces", "write"])]
    pub put_rounds: Option<u32>,
}

/// What a run found.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    gets: u64,
    misses: u64,
    /// The most keys that were there at once, after the first eviction.
    records: u64,
    evicted: u64,
    moved: u64,
    seconds: f64,
}

/// Runs the command.
///
/// # Errors
/// The engine does not open, a request fails, or a value is wrong.
pub fn command(machine: &Machine, args: &CacheArgs) -> anyhow::Result<Ending> {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    match args.put_rounds {
        Some(rounds) => put_rates(machine, args, rounds, &mut table)?,
        None => miss_ratios(machine, args, &mut table)?,
    }
    println!("{table}");
    Ok(Ending::sound())
}

fn miss_ratios(machine: &Machine, args: &CacheArgs, table: &mut Table) -> anyhow::Result<()> {
    table.set_header([
        "trace",
        "records held",
        "miss ratio",
        "moved a miss",
        "Mops/s",
    ]);
    for &shape in &args.traces {
        let made = Made {
            shape,
            keys: args.keys,
            requests: args.requests,
            seed: args.seed,
        };
        if let Some(folder) = &args.write {
            let path = folder.join(format!("{}.oracleGeneral", shape.name()));
            let file = File::create(&path).with_context(|| path.display().to_string())?;
            made.write(args.value_bytes, BufWriter::new(file))?;
        }
        let outcome = replay(machine, args, made)?;
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        table.add_row([
            shape.name().to_owned(),
            outcome.records.to_string(),
            format!("{:.4}", share(outcome.misses, outcome.gets)),
            format!("{:.2}", share(outcome.moved, outcome.misses)),
            format!("{:.2}", outcome.gets as f64 / outcome.seconds / 1e6),
        ]);
    }
    Ok(())
}

fn open(machine: &Machine, args: &CacheArgs, far_bytes: u64) -> anyhow::Result<Engine> {
    let core = machine.cores.first().copied().unwrap_or_default();
    let record_bytes = u64::from(args.value_bytes) + RECORD_EXTRA_BYTES;
    Ok(Engine::open(Config {
        cores: vec![core],
        local_bytes: args.local,
        far_bytes,
        when_full: WhenFull::Evict,
        keys_expected: (args.local + args.far) / record_bytes,
        seed: Some(args.seed),
        ..Config::default()
    })?)
}

/// A value that names its key and version, so that a wrong one is noticed.
fn fill(value: &mut [u8], key: u64) {
    for (place, bytes) in value.chunks_mut(8).enumerate() {
        let word = crate::record::mix(key ^ (place as u64) << 48).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Requests a trace of one client, a batch at a time: the gets of its keys, then the puts of those
/// that missed.
fn replay(machine: &Machine, args: &CacheArgs, made: Made) -> anyhow::Result<Outcome> {
    let engine = open(machine, args, args.far)?;
    let mut handle = engine.handle()?;
    let mut outcome = Outcome::default();
    let mut expected = vec![0; args.value_bytes as usize];
    let mut values = vec![vec![0; args.value_bytes as usize]; WINDOW];
    let mut keys = made.keys()?;
    let started = Instant::now();
    let mut wrong = 0;
    loop {
        let mut batch: Vec<u64> = keys.by_ref().take(WINDOW).collect();
        if batch.is_empty() {
            break;
        }
        outcome.gets += batch.len() as u64;
        let names: Vec<_> = batch.iter().map(|key| key.to_le_bytes()).collect();
        let gets = names.iter().map(|key| Operation::Get { key });
        let mut missed = vec![false; batch.len()];
        let mut failed = None;
        handle.many(gets, |place, answer| match answer {
            Answer::Value { value, .. } => {
                fill(&mut expected, batch[place]);
                wrong += u64::from(value != expected);
            }
            Answer::Absent => missed[place] = true,
            answer => failed = Some(format!("{answer:?}")),
        })?;
        ensure!(failed.is_none(), "a get failed: {failed:?}");
        let mut place = 0;
        batch.retain(|_| {
            place += 1;
            missed[place - 1]
        });
        batch.sort_unstable();
        // Requested one after the other, the second of a key would be a hit.
        batch.dedup();
        outcome.misses += batch.len() as u64;
        put_all(&mut handle, &batch, &mut values)?;
    }
    ensure!(wrong == 0, "{wrong} values were wrong");
    outcome.seconds = started.elapsed().as_secs_f64();
    let stats = engine.stats().total;
    outcome.records = stats.keys;
    outcome.evicted = stats.evicted;
    outcome.moved = stats.compaction_records_moved;
    Ok(outcome)
}

fn put_all(
    handle: &mut farcore::Handle,
    keys: &[u64],
    values: &mut [Vec<u8>],
) -> anyhow::Result<()> {
    let names: Vec<_> = keys.iter().map(|key| key.to_le_bytes()).collect();
    for (value, &key) in values.iter_mut().zip(keys) {
        fill(value, key);
    }
    let puts = names
        .iter()
        .zip(&*values)
        .map(|(key, value)| Operation::Put { key, value });
    let mut failed = None;
    handle.many(puts, |_, answer| {
        if !matches!(answer, Answer::Stored { .. }) {
            failed = Some(format!("{answer:?}"));
        }
    })?;
    ensure!(failed.is_none(), "a put failed: {failed:?}");
    Ok(())
}

/// Puts a second with and without eviction, in turn.
fn put_rates(
    machine: &Machine,
    args: &CacheArgs,
    rounds: u32,
    table: &mut Table,
) -> anyhow::Result<()> {
    table.set_header(["round", "Mputs/s, all fits", "Mputs/s, evicting", "ratio"]);
    let puts = puts_before(args) + args.requests;
    let all_bytes = puts * (u64::from(args.value_bytes) + 64) * 3 / 2;
    for round in 0..rounds {
        let mut rates = [0.0; 2];
        // In turn, and the other one first in every second round.
        for place in [round as usize % 2, (round as usize + 1) % 2] {
            let far = [all_bytes, args.far][place];
            rates[place] = put_rate(machine, args, far)?;
        }
        table.add_row([
            round.to_string(),
            format!("{:.3}", rates[0] / 1e6),
            format!("{:.3}", rates[1] / 1e6),
            format!("{:.3}", rates[1] / rates[0]),
        ]);
    }
    Ok(())
}

/// Puts after which far memory is full; the clock starts then.
fn puts_before(args: &CacheArgs) -> u64 {
    (args.local + args.far) / u64::from(args.value_bytes.max(1)) * 3 / 2
}

/// Puts a second of a job on the engine's core, which does all other work of the shard as well.
fn put_rate(machine: &Machine, args: &CacheArgs, far_bytes: u64) -> anyhow::Result<f64> {
    let engine = open(machine, args, far_bytes)?;
    let (before, requests) = (puts_before(args), args.requests);
    let value = vec![7; args.value_bytes as usize];
    let job = engine.run_on_core(0, async move |mut core| {
        put_range(&mut core, 0..before, &value)?;
        let started = Instant::now();
        put_range(&mut core, before..before + requests, &value)?;
        anyhow::Ok(started.elapsed().as_secs_f64())
    })?;
    let seconds = job.join()??;
    let evicted = engine.stats().total.evicted;
    ensure!(
        (evicted > 0) == (far_bytes == args.far),
        "{evicted} records were evicted"
    );
    Ok(requests as f64 / seconds)
}

/// Puts one value under each key, with a window in flight.
fn put_range(core: &mut Core, keys: Range<u64>, value: &[u8]) -> anyhow::Result<()> {
    let (mut next, mut left, mut failed) = (keys.start, keys.end - keys.start, 0);
    while left > 0 {
        while next < keys.end && core.in_flight() < WINDOW {
            let key = next.to_le_bytes();
            match core.submit(Operation::Put { key: &key, value }, next) {
                Ok(()) => next += 1,
                Err(Refused::Full) => break,
                Err(Refused::Error(error)) => return Err(error.into()),
            }
        }
        core.poll(|_, answer| {
            left -= 1;
            failed += u64::from(!matches!(answer, Answer::Stored { .. }));
        });
    }
    ensure!(failed == 0, "{failed} puts failed");
    Ok(())
}
