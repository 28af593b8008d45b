//! The families of a data directory.
//!
//! What has not happened yet has no series: a snapshot of 1970 would be too old for any alert.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{counters, gauges};
use super::only_histogram;
use crate::publish::data_report::{
    DataReport, LoadingReport, LogReport, RepairsReport, SnapshotsReport,
};

/// Upper bounds of the buckets of syncs, in nanoseconds: from a cache of the disk to a disk that
/// hangs.
const SYNC_NS: [u64; 16] = [
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
    2_500_000_000,
    10_000_000_000,
];

/// A time of the clock, as seconds since 1970; none if it is 0.
fn timestamp(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    unix_ms: u64,
) -> fmt::Result {
    if unix_ms == 0 {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    family.encode_gauge(&(unix_ms as f64 / 1e3))
}

fn encode_loading(encoder: &mut DescriptorEncoder<'_>, loading: &LoadingReport) -> fmt::Result {
    gauges(
        encoder,
        &[
            (
                "data_loading",
                "Whether the data directory is being loaded.",
                loading.is_under_way.into(),
                false,
            ),
            (
                "data_loaded_entries",
                "Entries that were loaded from the data directory.",
                loading.entries,
                false,
            ),
            (
                "data_loaded_bytes",
                "Bytes of the data directory's files that were read to load it.",
                loading.bytes,
                false,
            ),
            (
                "data_to_load_bytes",
                "Bytes of the data directory's files that are being read to load it, or were.",
                loading.total_bytes,
                false,
            ),
            (
                "data_load_seconds",
                "Time that loading the data directory took; 0 while it is loaded.",
                loading.took_ns,
                true,
            ),
            (
                "data_log_torn_bytes",
                "Bytes at the ends of logs that were not whole and were left out when they were loaded.",
                loading.torn_bytes,
                false,
            ),
        ],
    )
}

/// The last snapshot, if there is one.
fn encode_last(encoder: &mut DescriptorEncoder<'_>, snapshots: &SnapshotsReport) -> fmt::Result {
    if snapshots.last_unix_ms == 0 {
        return Ok(());
    }
    let of = "data_snapshot_last_timestamp_seconds";
    let help = "When the last snapshot was completed, in seconds since 1970.";
    timestamp(encoder, (of, help), snapshots.last_unix_ms)?;
    gauges(
        encoder,
        &[
            (
                "data_snapshot_last_duration_seconds",
                "Time that the last snapshot took; 0 if an earlier process made it.",
                snapshots.last_took_ns,
                true,
            ),
            (
                "data_snapshot_last_bytes",
                "Bytes of the files of the last snapshot.",
                snapshots.last_bytes,
                false,
            ),
            (
                "data_snapshot_last_keys",
                "Keys of the last snapshot.",
                snapshots.last_keys,
                false,
            ),
        ],
    )
}

fn encode_snapshots(
    encoder: &mut DescriptorEncoder<'_>,
    snapshots: &SnapshotsReport,
) -> fmt::Result {
    let has_failed = !snapshots.error.is_empty();
    gauges(
        encoder,
        &[
            (
                "data_snapshot_in_progress",
                "Whether a snapshot is being written.",
                snapshots.is_under_way.into(),
                false,
            ),
            (
                "data_snapshot_failing",
                "Whether the last snapshot that was tried failed.",
                has_failed.into(),
                false,
            ),
        ],
    )?;
    counters(
        encoder,
        &[
            (
                "data_snapshots",
                "Snapshots that were completed.",
                snapshots.completed,
                false,
            ),
            (
                "data_snapshot_failures",
                "Snapshots that failed.",
                snapshots.failed,
                false,
            ),
            (
                "data_log_rewrites",
                "Snapshots that were completed because the log was long.",
                snapshots.rewrites,
                false,
            ),
        ],
    )?;
    let of = "data_snapshot_failed_timestamp_seconds";
    let help = "When a snapshot failed last, in seconds since 1970.";
    timestamp(encoder, (of, help), snapshots.failed_unix_ms)?;
    encode_last(encoder, snapshots)
}

fn encode_log(encoder: &mut DescriptorEncoder<'_>, log: &LogReport) -> fmt::Result {
    gauges(
        encoder,
        &[
            (
                "data_log_enabled",
                "Whether changes are logged.",
                log.is_on.into(),
                false,
            ),
            (
                "data_log_failing",
                "Whether the log cannot be written, so that changes are refused.",
                log.is_failing.into(),
                false,
            ),
            (
                "data_log_unsynced_bytes",
                "Bytes that are logged and not durable yet.",
                log.unsynced_bytes,
                false,
            ),
            (
                "data_log_unsynced_seconds",
                "How long the oldest change that is not durable has waited; 0 if all are durable.",
                log.unsynced_ns,
                true,
            ),
            (
                "data_log_last_sync_seconds",
                "Time that the last sync of the log took: of each core, the longest.",
                log.last_sync_ns,
                true,
            ),
        ],
    )?;
    counters(
        encoder,
        &[
            (
                "data_log_bytes",
                "Bytes that were logged.",
                log.bytes,
                false,
            ),
            (
                "data_log_durable_bytes",
                "Bytes of the log that were made durable.",
                log.durable_bytes,
                false,
            ),
        ],
    )?;
    let help = "Time of syncs of the log, from their beginning until what they cover was durable.";
    let kind = MetricType::Histogram;
    let family = encoder.encode_descriptor("data_log_sync_seconds", help, None, kind)?;
    only_histogram(family, &log.syncs, &SYNC_NS, 1e9)
}

fn encode_repairs(encoder: &mut DescriptorEncoder<'_>, repairs: &RepairsReport) -> fmt::Result {
    gauges(
        encoder,
        &[(
            "data_repair_running",
            "Whether what a memory node has lost is being restored.",
            repairs.is_under_way.into(),
            false,
        )],
    )?;
    counters(
        encoder,
        &[
            (
                "data_repair_completed",
                "Repairs that restored all that was lost.",
                repairs.completed,
                false,
            ),
            (
                "data_repair_failed",
                "Repairs that did not restore all that was lost.",
                repairs.failed,
                false,
            ),
            (
                "data_repair_keys",
                "Keys that completed repairs have restored.",
                repairs.keys,
                false,
            ),
        ],
    )
}

/// Encodes what an engine says of its data directory.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, data: &DataReport) -> fmt::Result {
    encode_loading(encoder, &data.loading)?;
    encode_snapshots(encoder, &data.snapshots)?;
    encode_log(encoder, &data.log)?;
    encode_repairs(encoder, &data.repairs)
}
