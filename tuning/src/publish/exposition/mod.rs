//! Encodes an engine's figures as OpenMetrics text, for Prometheus.
//!
//! Owns the choice of families, labels and histogram buckets; reads a [`Report`] only.
//!
//! - I1: every figure of a core, of a memory node, of the data directory, of replication and of a
//!   cluster is in the text. A figure that no group names is a family of its own.
//! - I2: a counter is published as counted, never as a difference of two: they are not read at one
//!   instant, and a difference that decreases looks like a restart.

mod cluster;
mod data;
mod family;
mod replication;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use self::family::{CORE_GROUPS, NODE_GROUPS, Source, counter, families, gauge};
use crate::measure::HardwareSnapshot;
use crate::measure::HistogramSnapshot;
use crate::measure::HotKey;
use crate::measure::{NodeSnapshot, ShardSnapshot};
use crate::publish::http::Exposed;
use crate::publish::report::{CoreReport, Report, Reporter};

/// Hot keys published per core. Each is a series of its own.
const HOT_KEYS: usize = 8;
/// Upper bounds of the latency buckets, in nanoseconds.
const LATENCY_NS: [u64; 22] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
];
/// Upper bounds of the batch size buckets.
const BATCHES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Encodes one histogram of a family, with buckets up to each of `ends`. Values are divided by
/// `scale` to convert them to the published unit.
fn histogram(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    counts: &HistogramSnapshot,
    ends: &[u64],
    scale: f64,
) -> fmt::Result {
    only_histogram(family.encode_family(&labels)?, counts, ends, scale)
}

/// Encodes the only histogram of a family, as [`histogram`].
fn only_histogram(
    mut encoder: MetricEncoder<'_>,
    counts: &HistogramSnapshot,
    ends: &[u64],
    scale: f64,
) -> fmt::Result {
    let mut buckets = Vec::with_capacity(ends.len() + 1);
    let mut below = 0;
    for &end in ends {
        let to = counts.count_to(end);
        buckets.push((end as f64 / scale, to - below));
        below = to;
    }
    let count = counts.count();
    buckets.push((f64::INFINITY, count - below));
    let none: Option<&HashMap<usize, Exemplar<NoLabelSet, f64>>> = None;
    let sum = counts.sum() as f64 / scale;
    encoder.encode_histogram(sum, count, &buckets, none)
}

/// The hottest keys. Keys with the same first 32 bytes share a series.
fn hottest(keys: &[HotKey]) -> Vec<(&str, f64)> {
    let mut hottest: Vec<(&str, f64)> = Vec::new();
    for hot in keys.iter().take(HOT_KEYS) {
        match hottest.iter_mut().find(|(key, _)| *key == hot.key) {
            Some((_, share)) => *share += hot.share,
            None => hottest.push((&hot.key, hot.share)),
        }
    }
    hottest
}

fn events(counted: &HardwareSnapshot) -> [(&'static str, Option<u64>); 7] {
    [
        ("cycles", counted.cycles),
        ("instructions", counted.instructions),
        ("branch_misses", counted.branch_misses),
        ("cache_misses", counted.cache_misses),
        ("page_faults", counted.page_faults),
        ("context_switches", counted.context_switches),
        ("migrations", counted.migrations),
    ]
}

fn encode_cores(encoder: &mut DescriptorEncoder<'_>, cores: &[CoreReport]) -> fmt::Result {
    let sources: Vec<Source> = cores
        .iter()
        .map(|core| Source {
            label: ("core", core.core.to_string()),
            values: core.counters.values().to_vec(),
        })
        .collect();
    for family in families(ShardSnapshot::METRICS, CORE_GROUPS, "") {
        family.encode(encoder, &sources)?;
    }
    let names: Vec<&str> = sources.iter().map(|one| one.label.1.as_str()).collect();

    let help = "Time that requests waited for far memory, by the core of the shard.";
    let name = "far_wait_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (core, name) in cores.iter().zip(&names) {
        histogram(&mut family, &[("core", name)], &core.far, &LATENCY_NS, 1e9)?;
    }
    let help = "Requests per batch that a core's shard served.";
    let name = "batch_requests";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (core, name) in cores.iter().zip(&names) {
        histogram(&mut family, &[("core", name)], &core.batches, &BATCHES, 1.0)?;
    }

    if cores.iter().any(|core| !core.hot_keys.is_empty()) {
        let help = "Share of a core's requests for one key, by the first 32 bytes of the key.";
        let name = "hot_key_share_ratio";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (core, name) in cores.iter().zip(&names) {
            for (key, share) in hottest(&core.hot_keys) {
                let labels = [("core", *name), ("key", key)];
                family.encode_family(&labels)?.encode_gauge(&share)?;
            }
        }
    }
    let counted = cores.iter().flat_map(|core| events(&core.hardware));
    if counted.map(|(_, count)| count).any(|count| count.is_some()) {
        let help = "Processor events of a core's thread.";
        let name = "hardware_events";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (core, name) in cores.iter().zip(&names) {
            for (event, count) in events(&core.hardware) {
                let Some(count) = count else { continue };
                let labels = [("core", *name), ("event", event)];
                counter(family.encode_family(&labels)?, count, false)?;
            }
        }
    }
    Ok(())
}

/// The figures of the engine as a whole.
fn encode_gauges(report: &Report, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value, timed) in [
        (
            "uptime_seconds",
            "Time since the engine was opened.",
            report.uptime_ns,
            true,
        ),
        (
            "startup_seconds",
            "Time that opening the engine took.",
            report.startup_ns,
            true,
        ),
        (
            "local_cap_bytes",
            "The cap on local memory.",
            report.local_cap_bytes,
            false,
        ),
        (
            "local_resident_bytes",
            "Resident memory of the process, less embedded far memory.",
            report.local_resident_bytes,
            false,
        ),
        (
            "page_bytes",
            "Length of a page.",
            report.page_bytes.into(),
            false,
        ),
        (
            "memory_locked",
            "Whether all local memory is locked.",
            report.locked.into(),
            false,
        ),
        (
            "local_huge_bytes",
            "Local memory that lay in huge pages when the engine had opened.",
            report.huge_bytes,
            false,
        ),
        (
            "touched_bytes",
            "Memory that was touched since the engine opened.",
            report.touched_bytes,
            false,
        ),
        (
            "to_touch_bytes",
            "Memory that is touched in slices while the engine serves.",
            report.to_touch_bytes,
            false,
        ),
    ] {
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge(family, value, timed)?;
    }
    Ok(())
}

fn encode(report: &Report, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "The engine's version and process.";
    let mut info = encoder.encode_descriptor("engine", help, None, MetricType::Info)?;
    let process = report.process.to_string();
    info.encode_info(&[("version", report.version.as_str()), ("process", &process)])?;
    encode_gauges(report, encoder)?;
    if let Some(data) = &report.data {
        data::encode(encoder, data)?;
    }
    if let Some(replication) = &report.replication {
        replication::encode(encoder, replication)?;
    }
    if let Some(cluster) = &report.cluster {
        cluster::encode(encoder, cluster)?;
    }
    encode_cores(encoder, &report.cores)?;

    let help = "Latency of requests, sampled: of a core to its own shard (local) or to another one (cross), without those \
                that waited for far memory; of other threads (handle), with those.";
    let kind = MetricType::Histogram;
    let mut family = encoder.encode_descriptor("request_seconds", help, None, kind)?;
    for core in &report.cores {
        let name = core.core.to_string();
        for (way, counts) in [("local", &core.local), ("cross", &core.cross)] {
            let labels = [("core", name.as_str()), ("way", way)];
            histogram(&mut family, &labels, counts, &LATENCY_NS, 1e9)?;
        }
    }
    let labels = [("way", "handle")];
    histogram(&mut family, &labels, &report.handles, &LATENCY_NS, 1e9)?;

    let nodes: Vec<Source> = report
        .nodes
        .iter()
        .map(|node| Source {
            label: ("node", node.name.clone()),
            values: node.counters.values().to_vec(),
        })
        .collect();
    for family in families(NodeSnapshot::METRICS, NODE_GROUPS, "node_") {
        family.encode(encoder, &nodes)?;
    }
    Ok(())
}

/// The figures of a [`Reporter`], for an [`HttpServer`](crate::HttpServer).
///
/// Healthy while the engine serves. A lost memory node shows in the figures but is no reason to
/// restart an engine, which would lose its data.
pub struct Exposition(Arc<dyn Reporter>);

impl fmt::Debug for Exposition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Exposition")
    }
}

impl Exposition {
    /// Exposes a reporter's figures.
    #[must_use]
    pub fn new(reporter: Arc<dyn Reporter>) -> Self {
        Self(reporter)
    }
}

impl Exposed for Exposition {
    fn prefix(&self) -> &'static str {
        "farcore"
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        encode(&self.0.report(), encoder)
    }

    fn is_healthy(&self) -> bool {
        self.0.is_serving()
    }
}
