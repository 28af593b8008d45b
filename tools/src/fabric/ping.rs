//! `farcore fabric ping`: the latency of one request at a time.
//!
//! A row for each node, operation and size: percentiles of a histogram after a warm-up. Depth and
//! batch are 1.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use farcore_command::outputs::{OutputFile, print};
use farcore_command::stop;
use farcore_rdma::run_local;
use farcore_tuning::Histogram;
use serde::Serialize;

use super::probe::{self, Probe};
use super::request::{Operation, Selection, Shape, longest_bytes};
use super::target::{Target, TargetArguments};
use crate::measurement::{Circumstances, Progress, count, ending, length};
use crate::text::table;

const SIZES: [u32; 5] = [8, 64, 256, 1 << 10, 4 << 10];
const OPERATIONS: [Operation; 3] = [Operation::Read, Operation::Write, Operation::Cas];
/// Most uncounted requests before a row; there are as many as counted ones up to this.
const WARM_UP_MAX: u64 = 1_000;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Lengths of transfers [default: 8,64,256,1KiB,4KiB].
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    bytes: Vec<String>,
    /// Requests of each row.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    count: u64,
    /// Operations to measure [default: all three; compare-and-swap takes 8 bytes].
    #[arg(long, value_delimiter = ',', value_name = "OPERATION")]
    operation: Vec<Operation>,
    /// Also write the figures to a file, as JSON with latencies in nanoseconds.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    node: String,
    operation: Operation,
    bytes: u32,
    count: u64,
    min_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
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
    warm_up_count: u64,
    rows: Vec<Row>,
}

/// The figures of some requests; `None` if a signal came before the first.
fn row(probe: &mut Probe, queue: usize, shape: Shape, count: u64) -> Result<Option<Row>> {
    for _ in 0..count.min(WARM_UP_MAX) {
        probe.ping(queue, shape)?;
    }
    let histogram = Histogram::default();
    let mut min_ns = u64::MAX;
    for _ in 0..count {
        if stop::is_requested() {
            break;
        }
        let took_ns = probe.ping(queue, shape)?;
        histogram.record(took_ns);
        min_ns = min_ns.min(took_ns);
    }
    let seen = histogram.snapshot();
    Ok((seen.count() > 0).then(|| Row {
        node: String::new(),
        operation: shape.operation,
        bytes: shape.bytes,
        count: seen.count(),
        min_ns,
        p50_ns: seen.percentile(50.0),
        p90_ns: seen.percentile(90.0),
        p99_ns: seen.percentile(99.0),
        p999_ns: seen.percentile(99.9),
        max_ns: seen.max(),
    }))
}

/// Measures row after row, until a signal or an error.
fn measure(
    probe: &mut Probe,
    names: &[String],
    shapes: &[Shape],
    count: u64,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let progress = Progress::new(names.len() * shapes.len());
    for (queue, name) in names.iter().enumerate() {
        for &shape in shapes {
            progress.begin(format_args!("{} {}", shape.operation, length(shape.bytes)));
            let Some(measured) = row(probe, queue, shape, count)? else {
                return Ok(());
            };
            rows.push(Row {
                node: name.clone(),
                ..measured
            });
            progress.end();
        }
    }
    Ok(())
}

async fn open_and_measure(
    target: &Target,
    shapes: &[Shape],
    count: u64,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let Some(mut probe) = Probe::open(target, 1, longest_bytes(shapes)).await? else {
        return Ok(());
    };
    let measured = measure(&mut probe, &target.names(), shapes, count, rows);
    probe.close().await;
    measured
}

fn render(rows: &[Row]) -> String {
    let columns = [
        "node",
        "operation",
        "bytes",
        "min",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "count",
    ];
    let rows = rows.iter().map(|row| {
        let Row {
            node,
            operation,
            bytes,
            count,
            ..
        } = row;
        let mut cells = vec![node.clone(), operation.to_string(), length(*bytes)];
        let Row {
            min_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            p999_ns,
            max_ns,
            ..
        } = row;
        for ns in [min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns] {
            cells.push(format!("{:.2}", *ns as f64 / 1e3));
        }
        cells.push(count.to_string());
        cells
    });
    table(&columns, 2, rows.collect())
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let target = arguments.target.target()?;
    let selection = Selection {
        operations: &arguments.operation,
        sizes: &arguments.bytes,
        operations_default: &OPERATIONS,
        sizes_default: &SIZES,
    };
    let shapes = selection.shapes()?;
    ensure!(arguments.count > 0, "--count is 0: must be 1 or more");
    probe::check(target.queues(), 1, longest_bytes(&shapes))?;
    let json = OutputFile::open_if("--json", arguments.json.as_deref())?;
    let warm_up_count = arguments.count.min(WARM_UP_MAX);
    let mut report = Report {
        measured: "ping",
        circumstances: Circumstances::begin()?,
        fabric: target.names(),
        queue_pairs: target.queues(),
        depth: 1,
        batch: 1,
        warm_up_count,
        rows: Vec::new(),
    };
    let measured = open_and_measure(&target, &shapes, arguments.count, &mut report.rows);
    let failed = run_local(measured)?.err();
    let rows = report.rows.len();
    let circumstances = &mut report.circumstances;
    if !circumstances.end("fabric ping", rows, failed.as_ref()) {
        return ending(failed, rows);
    }
    if let Some(json) = json {
        json.write_json(&report)?;
    }
    print(format_args!(
        "{}: {}, one request at a time (depth 1, batch 1) after a warm-up of {warm_up_count} a row; microseconds from the post to the polled completion",
        report.fabric.join(", "),
        count(report.queue_pairs, "queue pair"),
    ))?;
    print(render(&report.rows))?;
    ending(failed, rows)
}
