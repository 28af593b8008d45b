//! `farcore fabric bandwidth`: requests and bytes a second, with many requests in flight.
//!
//! A row for each operation and size, over all queue pairs together, after a warm-up. A row lasts
//! for a time or a number of requests.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use farcore_command::outputs::{OutputFile, print};
use farcore_command::stop;
use farcore_rdma::run_local;
use serde::Serialize;

use super::probe::{self, Probe, Streamed, Until};
use super::request::{Operation, Selection, Shape, longest_bytes};
use super::target::{Target, TargetArguments};
use crate::measurement::{Circumstances, Progress, count, ending, length};
use crate::text::table;

const SIZES: [u32; 6] = [64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
const OPERATIONS: [Operation; 2] = [Operation::Read, Operation::Write];
const BATCH: usize = 16;
const SECONDS: f64 = 2.0;
const SECONDS_MAX: f64 = 3600.0;
/// The warm-up of a row takes a tenth of the row, but no longer than these.
const WARM_UP_PART: u64 = 10;
const WARM_UP_NS_MAX: u64 = 1_000_000_000;
const WARM_UP_COUNT_MAX: u64 = 1_000_000;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Lengths of transfers [default: 64,256,1KiB,4KiB,64KiB,1MiB].
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    bytes: Vec<String>,
    /// Requests in flight on each queue pair.
    #[arg(long, default_value_t = 64, value_name = "N")]
    depth: usize,
    /// Requests posted for each doorbell [default: 16, or --depth if that is less].
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Length of each row, in seconds [default: 2].
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Requests of each row, in place of --seconds.
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    count: Option<u64>,
    /// Operations to measure [default: read,write].
    #[arg(long, value_delimiter = ',', value_name = "OPERATION")]
    operation: Vec<Operation>,
    /// Also write the figures to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    operation: Operation,
    bytes: u32,
    count: u64,
    elapsed_ns: u64,
    operations_per_second: f64,
    /// None for compare-and-swap, which moves a word.
    bytes_per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    measured: &'static str,
    #[serde(flatten)]
    circumstances: Circumstances,
    fabric: Vec<String>,
    queue_pairs: usize,
    depth: usize,
    batch: usize,
    rows: Vec<Row>,
}

/// The flags, checked.
#[derive(Debug)]
struct Plan {
    target: Target,
    shapes: Vec<Shape>,
    depth: usize,
    batch: usize,
    until: Until,
}

impl Arguments {
    fn until(&self) -> Result<Until> {
        if let Some(count) = self.count {
            ensure!(count > 0, "--count is 0: must be 1 or more");
            return Ok(Until::Count(count));
        }
        let seconds = self.seconds.unwrap_or(SECONDS);
        ensure!(
            seconds > 0.0 && seconds <= SECONDS_MAX,
            "--seconds is {seconds}: must be more than 0, and at most {SECONDS_MAX}"
        );
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an hour at most"
        )]
        let ns = (seconds * 1e9) as u64;
        Ok(Until::Nanoseconds(ns))
    }

    fn plan(&self) -> Result<Plan> {
        let target = self.target.target()?;
        let selection = Selection {
            operations: &self.operation,
            sizes: &self.bytes,
            operations_default: &OPERATIONS,
            sizes_default: &SIZES,
        };
        let shapes = selection.shapes()?;
        let depth = self.depth;
        probe::check(target.queues(), depth, longest_bytes(&shapes))?;
        let batch = self.batch.unwrap_or(BATCH.min(depth));
        ensure!(
            (1..=depth).contains(&batch),
            "--batch is {batch}: must be 1 to --depth, which is {depth}"
        );
        Ok(Plan {
            target,
            shapes,
            depth,
            batch,
            until: self.until()?,
        })
    }
}

fn row(shape: Shape, streamed: Streamed) -> Row {
    let Streamed { count, elapsed_ns } = streamed;
    let seconds = elapsed_ns.max(1) as f64 / 1e9;
    let operations_per_second = count as f64 / seconds;
    let moves = shape.operation != Operation::Cas;
    Row {
        operation: shape.operation,
        bytes: shape.bytes,
        count,
        elapsed_ns,
        operations_per_second,
        bytes_per_second: moves.then_some(operations_per_second * f64::from(shape.bytes)),
    }
}

/// Measures row after row, until a signal or an error.
fn measure(probe: &mut Probe, plan: &Plan, rows: &mut Vec<Row>) -> Result<()> {
    let warm_up = match plan.until {
        Until::Count(count) => Until::Count(count.div_ceil(WARM_UP_PART).min(WARM_UP_COUNT_MAX)),
        Until::Nanoseconds(ns) => Until::Nanoseconds((ns / WARM_UP_PART).min(WARM_UP_NS_MAX)),
    };
    let progress = Progress::new(plan.shapes.len());
    for &shape in &plan.shapes {
        progress.begin(format_args!("{} {}", shape.operation, length(shape.bytes)));
        probe.stream(shape, plan.batch, warm_up)?;
        if stop::is_requested() {
            break;
        }
        // One that a signal ends early has the figures until then.
        rows.push(row(shape, probe.stream(shape, plan.batch, plan.until)?));
        progress.end();
    }
    Ok(())
}

async fn open_and_measure(plan: &Plan, rows: &mut Vec<Row>) -> Result<()> {
    let longest_bytes = longest_bytes(&plan.shapes);
    let opened = Probe::open(&plan.target, plan.depth, longest_bytes).await?;
    let Some(mut probe) = opened else {
        return Ok(());
    };
    let measured = measure(&mut probe, plan, rows);
    probe.close().await;
    measured
}

fn render(rows: &[Row]) -> String {
    let columns = ["operation", "bytes", "operations/s", "MiB/s", "count"];
    let rows = rows.iter().map(|row| {
        let mebibytes = row.bytes_per_second.map(|bytes| bytes / f64::from(1 << 20));
        vec![
            row.operation.to_string(),
            length(row.bytes),
            format!("{:.0}", row.operations_per_second),
            mebibytes.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
            row.count.to_string(),
        ]
    });
    table(&columns, 1, rows.collect())
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let plan = arguments.plan()?;
    let json = OutputFile::open_if("--json", arguments.json.as_deref())?;
    let mut report = Report {
        measured: "bandwidth",
        circumstances: Circumstances::begin()?,
        fabric: plan.target.names(),
        queue_pairs: plan.target.queues(),
        depth: plan.depth,
        batch: plan.batch,
        rows: Vec::new(),
    };
    let failed = run_local(open_and_measure(&plan, &mut report.rows))?.err();
    let row = match plan.until {
        Until::Count(count) => format!("{count} requests"),
        Until::Nanoseconds(ns) => format!("{} s", ns as f64 / 1e9),
    };
    let rows = report.rows.len();
    let circumstances = &mut report.circumstances;
    if !circumstances.end("fabric bandwidth", rows, failed.as_ref()) {
        return ending(failed, rows);
    }
    if let Some(json) = json {
        json.write_json(&report)?;
    }
    print(format_args!(
        "{}: {}, each with {} requests in flight (depth) and {} a doorbell (batch), {row} a row after a warm-up of a tenth of it, at most 1 s or 1,000,000 requests",
        report.fabric.join(", "),
        count(report.queue_pairs, "queue pair"),
        report.depth,
        report.batch,
    ))?;
    print(render(&report.rows))?;
    ending(failed, rows)
}
