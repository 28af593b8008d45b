//! What a server says of replication, as `farcore top` shows it.

use farcore::statistics::{LinkReport, ReplicationReport};
use serde::Serialize;

/// The link of a server to the one that it follows. Counts are since the server was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LinkRates {
    pub(crate) is_up: bool,
    /// All data are being loaded.
    pub(crate) is_syncing: bool,
    /// Bytes of the stream that were received and are not applied.
    pub(crate) behind_bytes: u64,
    /// How long ago the source was heard; absent if it was not heard yet.
    pub(crate) silent_seconds: Option<f64>,
    /// How long the link has not been up; absent while it is.
    pub(crate) down_seconds: Option<f64>,
    /// Bytes of the source's data that the load that runs or the last one has received, and all of
    /// them; the latter is absent if that is not known.
    pub(crate) loaded_bytes: u64,
    pub(crate) to_load_bytes: Option<u64>,
    pub(crate) full_syncs: u64,
    pub(crate) partial_syncs: u64,
    pub(crate) failed_commands: u64,
    /// Why the link was down last; absent if it has been up since.
    pub(crate) error: Option<String>,
}

/// The replicas of a server, and its own link. Counts are since the server was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ReplicationRates {
    /// The end of the stream, and how much of it is kept.
    pub(crate) offset_bytes: u64,
    pub(crate) backlog_bytes: u64,
    /// Replicas that are connected, and those of them that get the stream.
    pub(crate) replicas: u64,
    pub(crate) replicas_online: u64,
    /// Bytes of the stream that the slowest replica has not acknowledged.
    pub(crate) replicas_behind_bytes: u64,
    /// How long ago the replica was heard that has been silent longest; absent without any.
    pub(crate) replicas_silent_seconds: Option<f64>,
    pub(crate) full_syncs: u64,
    pub(crate) partial_syncs: u64,
    pub(crate) refused_partial_syncs: u64,
    pub(crate) dropped_replicas: u64,
    /// Absent if the server follows none.
    pub(crate) link: Option<LinkRates>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl LinkRates {
    fn of(link: &LinkReport) -> Self {
        Self {
            is_up: link.is_up,
            is_syncing: link.is_syncing,
            behind_bytes: link.behind_bytes,
            silent_seconds: (link.silent_ns > 0).then(|| seconds(link.silent_ns)),
            down_seconds: (!link.is_up).then(|| seconds(link.down_ns)),
            loaded_bytes: link.loaded_bytes,
            to_load_bytes: (link.total_bytes > 0).then_some(link.total_bytes),
            full_syncs: link.full_syncs,
            partial_syncs: link.partial_syncs,
            failed_commands: link.failed_commands,
            error: Some(&link.error).filter(|text| !text.is_empty()).cloned(),
        }
    }
}

impl ReplicationRates {
    pub(super) fn of(report: &ReplicationReport) -> Self {
        let replicas = &report.replicas;
        Self {
            offset_bytes: report.offset_bytes,
            backlog_bytes: report.backlog_bytes,
            replicas: replicas.connected,
            replicas_online: replicas.online,
            replicas_behind_bytes: replicas.behind_bytes,
            replicas_silent_seconds: (replicas.online > 0).then(|| seconds(replicas.silent_ns)),
            full_syncs: replicas.full_syncs,
            partial_syncs: replicas.partial_syncs,
            refused_partial_syncs: replicas.refused_partial_syncs,
            dropped_replicas: replicas.dropped,
            link: report.link.as_ref().map(LinkRates::of),
        }
    }

    /// True if the server is followed, was so, or follows another one.
    pub(crate) fn is_in_use(&self) -> bool {
        self.replicas > 0 || self.full_syncs > 0 || self.partial_syncs > 0 || self.link.is_some()
    }
}
