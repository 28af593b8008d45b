//! The part of a report about replication: those that follow a server, and its link to the one
//! that it follows.
//!
//! As the report, it grows by fields, and what comes from another process is never trusted.

use serde::{Deserialize, Serialize};

/// What a server says of replication.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicationReport {
    /// The end of its stream: bytes since that began. Its replicas count by the same offsets.
    pub offset_bytes: u64,
    /// Bytes of the stream that are kept for replicas whose link breaks.
    pub backlog_bytes: u64,
    /// What is known of its replicas.
    pub replicas: ReplicasReport,
    /// The link to the server that it follows; absent if it follows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkReport>,
}

/// The replicas of a server. Counts are since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicasReport {
    /// Those that are connected.
    pub connected: u64,
    /// Those of them that have all data and get the stream.
    pub online: u64,
    /// Bytes of the stream that the slowest of these has not acknowledged.
    pub behind_bytes: u64,
    /// How long ago the one of them that has been silent longest was heard, in nanoseconds; 0
    /// without any.
    pub silent_ns: u64,
    /// Times that one got all data.
    pub full_syncs: u64,
    /// Times that one went on where it was.
    pub partial_syncs: u64,
    /// Times that one wanted to go on where it was, and could not.
    pub refused_partial_syncs: u64,
    /// Those that were too far behind, or silent, and were disconnected.
    pub dropped: u64,
}

/// The link of a replica to its source. Counts are since the server was started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkReport {
    /// The stream is applied as it comes.
    pub is_up: bool,
    /// All data are being loaded.
    pub is_syncing: bool,
    /// Bytes of the stream that were received and are not applied.
    pub behind_bytes: u64,
    /// How long ago the source was heard, in nanoseconds; 0 if it was not heard yet.
    pub silent_ns: u64,
    /// How long the link has not been up, in nanoseconds; 0 while it is.
    pub down_ns: u64,
    /// Bytes of the source's data that were received; it stays when loading has ended.
    pub loaded_bytes: u64,
    /// All bytes of these data; 0 if that is not known.
    pub total_bytes: u64,
    /// Times that all data were loaded.
    pub full_syncs: u64,
    /// Times that the link went on where it was.
    pub partial_syncs: u64,
    /// Commands of the source that failed here, so that the data differ.
    pub failed_commands: u64,
    /// Why the link was down last; empty if it has been up since.
    pub error: String,
}

impl ReplicationReport {
    /// The figures since an earlier report of the same server. What is no count keeps its value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut report = self.clone();
        let (now, then) = (&mut report.replicas, &earlier.replicas);
        now.full_syncs = now.full_syncs.saturating_sub(then.full_syncs);
        now.partial_syncs = now.partial_syncs.saturating_sub(then.partial_syncs);
        now.refused_partial_syncs =
            (now.refused_partial_syncs).saturating_sub(then.refused_partial_syncs);
        now.dropped = now.dropped.saturating_sub(then.dropped);
        if let (Some(now), Some(then)) = (&mut report.link, &earlier.link) {
            now.full_syncs = now.full_syncs.saturating_sub(then.full_syncs);
            now.partial_syncs = now.partial_syncs.saturating_sub(then.partial_syncs);
            now.failed_commands = now.failed_commands.saturating_sub(then.failed_commands);
        }
        report
    }
}
