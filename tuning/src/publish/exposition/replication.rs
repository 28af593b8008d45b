//! The families of replication.
//!
//! A server that follows none has no series of a link: an alert on a link that is down needs none
//! there.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Figure, counters, gauges};
use crate::publish::replication_report::{LinkReport, ReplicasReport, ReplicationReport};

fn encode_replicas(encoder: &mut DescriptorEncoder<'_>, replicas: &ReplicasReport) -> fmt::Result {
    gauges(
        encoder,
        &[
            (
                "replication_replicas",
                "Replicas that are connected.",
                replicas.connected,
                false,
            ),
            (
                "replication_replicas_online",
                "Replicas that have all data and get the stream.",
                replicas.online,
                false,
            ),
            (
                "replication_replicas_behind_bytes",
                "Bytes of the stream that the slowest replica has not acknowledged.",
                replicas.behind_bytes,
                false,
            ),
            (
                "replication_replicas_silent_seconds",
                "Time since the replica was heard that has been silent longest; 0 without any.",
                replicas.silent_ns,
                true,
            ),
        ],
    )?;
    counters(
        encoder,
        &[
            (
                "replication_full_syncs",
                "Times that a replica got all data.",
                replicas.full_syncs,
                false,
            ),
            (
                "replication_partial_syncs",
                "Times that a replica went on where it was.",
                replicas.partial_syncs,
                false,
            ),
            (
                "replication_refused_partial_syncs",
                "Times that a replica wanted to go on where it was, and could not.",
                replicas.refused_partial_syncs,
                false,
            ),
            (
                "replication_dropped_replicas",
                "Replicas that were disconnected because they were too far behind, or silent.",
                replicas.dropped,
                false,
            ),
        ],
    )
}

/// How the link is, and what it has received and not applied.
fn encode_state(encoder: &mut DescriptorEncoder<'_>, link: &LinkReport) -> fmt::Result {
    let figures: [Figure; 7] = [
        (
            "replication_link_up",
            "Whether the stream of the source is applied as it comes.",
            link.is_up.into(),
            false,
        ),
        (
            "replication_link_syncing",
            "Whether all data of the source are being loaded.",
            link.is_syncing.into(),
            false,
        ),
        (
            "replication_link_behind_bytes",
            "Bytes of the source's stream that were received and are not applied.",
            link.behind_bytes,
            false,
        ),
        (
            "replication_link_silent_seconds",
            "Time since the source was heard; 0 if it was not heard yet.",
            link.silent_ns,
            true,
        ),
        (
            "replication_link_down_seconds",
            "Time that the link has not been up; 0 while it is.",
            link.down_ns,
            true,
        ),
        (
            "replication_link_loaded_bytes",
            "Bytes of the source's data that were received, by the load that runs or the last one.",
            link.loaded_bytes,
            false,
        ),
        (
            "replication_link_to_load_bytes",
            "All bytes of these data; 0 if that is not known.",
            link.total_bytes,
            false,
        ),
    ];
    gauges(encoder, &figures)
}

fn encode_link(encoder: &mut DescriptorEncoder<'_>, link: &LinkReport) -> fmt::Result {
    encode_state(encoder, link)?;
    counters(
        encoder,
        &[
            (
                "replication_link_full_syncs",
                "Times that all data of the source were loaded.",
                link.full_syncs,
                false,
            ),
            (
                "replication_link_partial_syncs",
                "Times that the link to the source went on where it was.",
                link.partial_syncs,
                false,
            ),
            (
                "replication_link_failed_commands",
                "Commands of the source that failed here, so that the data differ.",
                link.failed_commands,
                false,
            ),
        ],
    )
}

/// Encodes what a server says of replication.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    replication: &ReplicationReport,
) -> fmt::Result {
    gauges(
        encoder,
        &[
            (
                "replication_offset_bytes",
                "The end of the stream of changes; a replica's is lower by what it is behind.",
                replication.offset_bytes,
                false,
            ),
            (
                "replication_backlog_bytes",
                "Bytes of the stream that are kept for replicas whose link breaks.",
                replication.backlog_bytes,
                false,
            ),
        ],
    )?;
    encode_replicas(encoder, &replication.replicas)?;
    (replication.link.as_ref()).map_or(Ok(()), |link| encode_link(encoder, link))
}
