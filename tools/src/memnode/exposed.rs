//! The memory node's metrics in OpenMetrics, as `farcore_memnode_*`. Every scrape reads the current
//! counters; nothing is cached.

use std::fmt;

use farcore_rdma::control::NodeStatistics;
use farcore_rdma::node::NodeMetrics;
use farcore_tuning::{Exposed, log_lines_dropped};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Exposes the counters of a node.
#[derive(Debug)]
pub(crate) struct ExposedNode(pub(crate) NodeMetrics);

impl Exposed for ExposedNode {
    fn prefix(&self) -> &'static str {
        "farcore_memnode"
    }

    fn is_healthy(&self) -> bool {
        self.0.is_serving()
    }

    fn is_leaving(&self) -> bool {
        self.0.is_leaving()
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.0.statistics();
        encode_gauges(encoder, &now, &self.0)?;
        encode_counters(encoder, &now)?;
        let refusals: Vec<_> = self.0.refusals().collect();
        let help = "Connections and control requests refused";
        encode_counter_family(encoder, "refusals", help, "reason", &refusals)
    }
}

fn encode_gauges(
    encoder: &mut DescriptorEncoder<'_>,
    now: &NodeStatistics,
    metrics: &NodeMetrics,
) -> fmt::Result {
    let mut gauge = |name: &str, help: &str, value: u64| {
        let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
        metric.encode(family)
    };
    gauge("data_bytes", "Memory that is lent", now.data_bytes)?;
    gauge("extent_bytes", "Length of an extent", now.extent_bytes)?;
    gauge("sessions", "Open sessions", now.sessions)?;
    gauge(
        "sessions_kept",
        "Sessions kept after their lease",
        now.sessions_kept,
    )?;
    gauge("extents_kept", "Extents of kept sessions", now.extents_kept)?;
    gauge(
        "extents_stuck",
        "Extents of ended sessions that the device has not freed yet",
        now.extents_stuck,
    )?;
    gauge(
        "held_bytes",
        "Memory of answers that clients have not read",
        metrics.held_bytes(),
    )?;
    gauge(
        "leaving",
        "Whether the node leaves: 1 or 0",
        u64::from(metrics.is_leaving()),
    )?;
    #[allow(clippy::cast_precision_loss, reason = "microseconds do for centuries")]
    let uptime = ConstGauge::new((now.uptime_ns / 1_000) as f64 / 1e6);
    let help = "Time since the start";
    let family = encoder.encode_descriptor("uptime_seconds", help, None, uptime.metric_type())?;
    uptime.encode(family)?;

    let mut gauges = |name: &str, help: &str, label: &str, values: &[(&str, u64)]| {
        let kind = ConstGauge::new(0i64).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for &(which, value) in values {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(family.encode_family(&[(label, which)])?)?;
        }
        Ok::<(), fmt::Error>(())
    };
    let owned = now.extents.saturating_sub(now.extents_free);
    let extents = [("free", now.extents_free), ("owned", owned)];
    gauges("extents", "Extents by state", "state", &extents)?;
    let connections = [
        ("control", now.control_connections),
        ("memory", now.memory_connections),
    ];
    gauges("connections", "Open connections", "kind", &connections)
}

fn encode_counters(encoder: &mut DescriptorEncoder<'_>, now: &NodeStatistics) -> fmt::Result {
    for (name, help, value) in [
        ("sessions_opened", "Sessions opened", now.sessions_opened),
        (
            "sessions_expired",
            "Sessions whose lease ended",
            now.sessions_expired,
        ),
        (
            "sessions_revived",
            "Kept sessions resumed by their clients",
            now.sessions_revived,
        ),
        (
            "requests_refused",
            "One-sided requests refused",
            now.requests_refused,
        ),
        ("chunks_allocated", "Chunks allocated", now.chunks_allocated),
        (
            "chunks_freed",
            "Chunks freed by their owners",
            now.chunks_freed,
        ),
        (
            "extents_reclaimed",
            "Extents reclaimed from ended sessions",
            now.extents_reclaimed,
        ),
        (
            "take_backs_failed",
            "Times that the device failed to free extents",
            now.take_backs_failed,
        ),
        (
            "log_lines_dropped",
            "Lines of the log that stderr did not take in time",
            log_lines_dropped(),
        ),
    ] {
        let metric = ConstCounter::new(value);
        let family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
        metric.encode(family)?;
    }
    let requests = [
        ("read", now.reads),
        ("write", now.writes),
        ("atomic", now.atomics),
    ];
    let help = "One-sided requests performed";
    encode_counter_family(encoder, "requests", help, "kind", &requests)?;
    let bytes = [("read", now.read_bytes), ("write", now.write_bytes)];
    let help = "Bytes transferred";
    encode_counter_family(encoder, "transferred_bytes", help, "kind", &bytes)
}

/// A counter for each value of a label.
fn encode_counter_family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, u64)],
) -> fmt::Result {
    let kind = ConstCounter::new(0u64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for &(which, value) in values {
        let metric = ConstCounter::new(value);
        metric.encode(family.encode_family(&[(label, which)])?)?;
    }
    Ok(())
}
