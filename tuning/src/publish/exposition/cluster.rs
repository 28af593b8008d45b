//! The families of a cluster. A server that is a part of none has no series of them.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Figure, gauges};
use crate::publish::cluster_report::ClusterReport;

/// Encodes what a server says of its cluster.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, cluster: &ClusterReport) -> fmt::Result {
    let figures: [Figure; 5] = [
        (
            "cluster_map_version",
            "Version of the map that the server goes by; 0 until there is one.",
            cluster.map_version,
            false,
        ),
        (
            "cluster_servers",
            "Servers of the map.",
            cluster.servers,
            false,
        ),
        (
            "cluster_slots",
            "Slots that are this server's.",
            cluster.slots,
            false,
        ),
        (
            "cluster_held_slots",
            "Slots whose commands wait, since they change their owner.",
            cluster.held_slots,
            false,
        ),
        (
            "cluster_serving",
            "Whether its slots are served: it is in the map, and has its lease if that lies in etcd.",
            cluster.is_serving.into(),
            false,
        ),
    ];
    gauges(encoder, &figures)
}
