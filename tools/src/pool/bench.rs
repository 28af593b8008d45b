//! `farcore pool bench`: how fast the operations of a pool are.
//!
//! A row for each operation; then reads by several threads over several connections, which shows
//! how many a program needs. A row lasts for a time, after a warm-up of a tenth.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use farcore_command::outputs::{OutputFile, print};
use farcore_command::stop;
use farcore_pool::structures::RemoteMap;
use farcore_pool::{PoolOptions, RemotePool, RemoteSlice};
use farcore_tuning::Histogram;
use serde::Serialize;

use super::target::TargetArguments;
use crate::measurement::{Circumstances, Progress, ending};
use crate::text::table;

const SECONDS_MAX: f64 = 3600.0;
/// What a row does before it is measured takes a tenth of its time, and no longer than this.
const WARM_UP_SECONDS_MAX: f64 = 1.0;
const THREADS_MAX: usize = 64;
/// Memory of this process, where no node is named, in bytes.
const EMBEDDED_BYTES: u64 = 64 << 20;
/// Values that are read and written.
const VALUES: usize = 1 << 14;
/// Requests that are in flight together.
const AT_ONCE: usize = 32;
/// Reads of a call that has more of them than may be in flight together.
const OF_LONG_CALL: usize = 4096;
/// Keys of the map.
const KEYS: u64 = 10_000;
/// The connections to each node that are compared.
const CONNECTIONS: [usize; 3] = [1, 2, 4];

/// A value of 64 bytes.
type Value = [u8; 64];

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Length of each row, in seconds, more than 0 and at most 3600.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    seconds: f64,
    /// The most threads of the last rows, 1 to 64.
    #[arg(long, default_value_t = 4, value_name = "N")]
    threads: usize,
    /// Also write the figures to a file, as JSON with latencies in nanoseconds.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    operation: &'static str,
    threads: usize,
    connections: usize,
    count: u64,
    per_second: f64,
    p50_ns: u64,
    p99_ns: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    measured: &'static str,
    #[serde(flatten)]
    circumstances: Circumstances,
    nodes: Vec<String>,
    rows: Vec<Row>,
}

/// Calls an operation over and over, and notes how long each call takes. `each` is how many
/// operations a call counts for.
fn row(
    operation: &'static str,
    seconds: f64,
    each: u64,
    mut act: impl FnMut(u64) -> Result<()>,
) -> Result<Row> {
    let warm_up =
        Instant::now() + Duration::from_secs_f64((seconds / 10.0).min(WARM_UP_SECONDS_MAX));
    let mut number = 0;
    while Instant::now() < warm_up && !stop::is_requested() {
        act(number)?;
        number += 1;
    }
    let latencies = Histogram::default();
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(seconds);
    let mut now = begun;
    let mut count = 0;
    while now < end && !stop::is_requested() {
        act(number)?;
        number += 1;
        let next = Instant::now();
        latencies.record(u64::try_from((next - now).as_nanos()).unwrap_or(u64::MAX));
        now = next;
        count += each;
    }
    let seen = latencies.snapshot();
    Ok(Row {
        operation,
        threads: 1,
        connections: 1,
        count,
        per_second: count as f64 / begun.elapsed().as_secs_f64(),
        p50_ns: seen.percentile(50.0),
        p99_ns: seen.percentile(99.0),
    })
}

/// An index that jumps over all values.
fn index(number: u64) -> usize {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).unwrap_or(0) % VALUES
}

/// Measures the operations of one thread.
fn operations(
    pool: &RemotePool,
    seconds: f64,
    rows: &mut Vec<Row>,
    progress: &Progress,
) -> Result<()> {
    let values: RemoteSlice<Value> = pool.alloc(VALUES).wait()?;
    let word = pool.alloc_box(0_u64).wait()?;
    let map = RemoteMap::create(pool, usize::try_from(KEYS).unwrap_or(1)).wait()?;
    let value = [7; 64];
    let mut add = |measured: Result<Row>| -> Result<()> {
        rows.push(measured?);
        progress.end();
        Ok(())
    };
    let mut measure = |name, each, act: &mut dyn FnMut(u64) -> Result<()>| -> Result<()> {
        if stop::is_requested() {
            return Ok(());
        }
        progress.begin(name);
        add(row(name, seconds, each, act))
    };
    measure("allocate and free 64 B", 1, &mut |_| {
        drop(pool.alloc::<Value>(1).wait()?);
        Ok(())
    })?;
    measure("read 64 B", 1, &mut |number| {
        values.read(index(number)).wait()?;
        Ok(())
    })?;
    measure("write 64 B", 1, &mut |number| {
        Ok(values.write(index(number), &value).wait()?)
    })?;
    measure("fetch and add", 1, &mut |_| {
        word.fetch_add(1).wait()?;
        Ok(())
    })?;
    let mut indexes = [0; AT_ONCE];
    measure("read 64 B, 32 at once", AT_ONCE as u64, &mut |number| {
        for (step, index_of) in (0..).zip(&mut indexes) {
            *index_of = index(number * AT_ONCE as u64 + step);
        }
        values.read_many(&indexes).wait()?;
        Ok(())
    })?;
    let mut indexes = [0; OF_LONG_CALL];
    let name = "read 64 B, 32 in flight, 4096 a call";
    measure(name, OF_LONG_CALL as u64, &mut |number| {
        for (step, index_of) in (0..).zip(&mut indexes) {
            *index_of = index(number * OF_LONG_CALL as u64 + step);
        }
        values.read_many(&indexes).wait()?;
        Ok(())
    })?;
    measure("insert into a map", 1, &mut |number| {
        map.insert(&(number % KEYS), &number).wait()?;
        Ok(())
    })?;
    measure("look up in a map", 1, &mut |number| {
        map.get(&(number % KEYS)).wait()?;
        Ok(())
    })
}

/// Measures reads by several threads.
fn together(pool: &RemotePool, threads: usize, seconds: f64) -> Result<Row> {
    let values: RemoteSlice<Value> = pool.alloc(VALUES).wait()?;
    let latencies = Histogram::default();
    let (ends, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let readers: Vec<_> = (0..threads as u64)
            .map(|reader| {
                let (values, latencies, ends, count) = (&values, &latencies, &ends, &count);
                scope.spawn(move || -> Result<()> {
                    let mut number = reader << 32;
                    while !ends.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        values.read(index(number)).wait()?;
                        let took = begun.elapsed().as_nanos();
                        latencies.record(u64::try_from(took).unwrap_or(u64::MAX));
                        count.fetch_add(1, Ordering::Relaxed);
                        number += 1;
                    }
                    Ok(())
                })
            })
            .collect();
        let end = begun + Duration::from_secs_f64(seconds);
        while Instant::now() < end && !stop::is_requested() {
            thread::sleep(Duration::from_millis(5));
        }
        ends.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .try_for_each(|reader| reader.join().unwrap_or(Ok(())))
    })?;
    let count = count.into_inner();
    let seen = latencies.snapshot();
    Ok(Row {
        operation: "read 64 B",
        threads,
        connections: pool.options().connections,
        count,
        per_second: count as f64 / begun.elapsed().as_secs_f64(),
        p50_ns: seen.percentile(50.0),
        p99_ns: seen.percentile(99.0),
    })
}

fn render(rows: &[Row]) -> String {
    let columns = [
        "operation",
        "threads",
        "connections",
        "operations/s",
        "p50 us",
        "p99 us",
    ];
    let rows = rows.iter().map(|row| {
        vec![
            row.operation.to_owned(),
            row.threads.to_string(),
            row.connections.to_string(),
            format!("{:.0}", row.per_second),
            format!("{:.2}", row.p50_ns as f64 / 1e3),
            format!("{:.2}", row.p99_ns as f64 / 1e3),
        ]
    });
    table(&columns, 1, rows.collect())
}

fn measure(arguments: &Arguments, options: &PoolOptions, rows: &mut Vec<Row>) -> Result<()> {
    let seconds = arguments.seconds;
    let threads = (0..).map(|shift| 1 << shift);
    let threads: Vec<usize> = threads
        .take_while(|&many| many <= arguments.threads)
        .collect();
    let several = if arguments.target.is_remote() {
        &CONNECTIONS[..]
    } else {
        &CONNECTIONS[..1]
    };
    let progress = Progress::new(8 + threads.len() * several.len());
    let open = |connections| {
        if !arguments.target.is_remote() {
            return Ok(RemotePool::embedded(EMBEDDED_BYTES)?);
        }
        let options = PoolOptions {
            connections,
            depth: AT_ONCE,
            ..options.clone()
        };
        arguments.target.connect(options)
    };
    operations(&open(1)?, seconds, rows, &progress)?;
    for &connections in several {
        let pool = open(connections)?;
        for &many in &threads {
            if stop::is_requested() {
                return Ok(());
            }
            progress.begin(format_args!("{many} threads, {connections} connections"));
            rows.push(together(&pool, many, seconds)?);
            progress.end();
        }
    }
    Ok(())
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let options = arguments.target.options()?;
    let seconds = arguments.seconds;
    ensure!(
        seconds > 0.0 && seconds <= SECONDS_MAX,
        "--seconds is {seconds}: must be more than 0, and at most {SECONDS_MAX}"
    );
    ensure!(
        (1..=THREADS_MAX).contains(&arguments.threads),
        "--threads is {}: must be 1 to {THREADS_MAX}",
        arguments.threads
    );
    let json = OutputFile::open_if("--json", arguments.json.as_deref())?;
    let mut report = Report {
        measured: "pool",
        circumstances: Circumstances::begin()?,
        nodes: arguments.target.names().to_vec(),
        rows: Vec::new(),
    };
    let failed = measure(arguments, &options, &mut report.rows).err();
    let rows = report.rows.len();
    let circumstances = &mut report.circumstances;
    if !circumstances.end("pool bench", rows, failed.as_ref()) {
        return ending(failed, rows);
    }
    if let Some(json) = json {
        json.write_json(&report)?;
    }
    let where_from = match &report.nodes[..] {
        [] => "memory of this process".to_owned(),
        nodes => nodes.join(", "),
    };
    print(format_args!(
        "{where_from}: {seconds} s a row; latencies are those of a call, from its begin to its return"
    ))?;
    print(render(&report.rows))?;
    ending(failed, rows)
}
