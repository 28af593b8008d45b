//! A report: the figures of one engine at one moment, serialized as JSON for other processes.
//!
//! A reader ignores unknown fields, and fields that a writer lacks are zero, so neighbouring
//! versions understand each other. [`Report::FORMAT`] changes when that no longer holds.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::measure::HardwareSnapshot;
use crate::measure::HistogramSnapshot;
use crate::measure::HotKey;
use crate::measure::{NodeSnapshot, ShardSnapshot};
use crate::publish::cluster_report::ClusterReport;
use crate::publish::data_report::DataReport;
use crate::publish::replication_report::ReplicationReport;

/// A source of reports. Called on readers' threads, never on a serving core.
pub trait Reporter: Send + Sync {
    /// The current figures. Blocks no other thread.
    fn report(&self) -> Report;

    /// False once the source no longer serves, or is about to end.
    fn is_serving(&self) -> bool {
        true
    }
}

/// The figures of one engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// [`Report::FORMAT`] of the writer.
    pub format: u32,
    /// The engine's version.
    pub version: String,
    /// The process's id.
    pub process: u32,
    /// Nanoseconds on the process's monotonic clock.
    pub now_ns: u64,
    /// Nanoseconds since the engine was opened.
    pub uptime_ns: u64,
    /// How long opening took, in nanoseconds.
    pub startup_ns: u64,
    /// The cap on local memory, in bytes.
    pub local_cap_bytes: u64,
    /// The process's resident memory, less embedded far memory, in bytes.
    pub local_resident_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Whether all local memory is locked.
    pub locked: bool,
    /// Bytes of local memory that lay in huge pages when the engine had opened, or its memory was
    /// touched.
    pub huge_bytes: u64,
    /// Bytes that were touched since the engine opened.
    pub touched_bytes: u64,
    /// Bytes that are touched in slices while the engine serves.
    pub to_touch_bytes: u64,
    /// One for each core, at most [`Report::PARTS_MAX`].
    #[serde(deserialize_with = "bounded")]
    pub cores: Vec<CoreReport>,
    /// Latencies of handles' requests, from sending to taking the answer, far accesses included; in
    /// nanoseconds, sampled.
    pub handles: HistogramSnapshot,
    /// One for each memory node, at most [`Report::PARTS_MAX`].
    #[serde(deserialize_with = "bounded")]
    pub nodes: Vec<NodeReport>,
    /// The data directory; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<DataReport>,
    /// Replication; absent without a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication: Option<ReplicationReport>,
    /// The cluster; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReport>,
    /// Why some processor events are not counted; empty if all are.
    pub hardware_missing: String,
}

impl Report {
    /// The format that this version writes.
    pub const FORMAT: u32 = 1;
    /// The most cores, and the most memory nodes, that a reader accepts: a few bytes of JSON expand
    /// to kilobytes.
    pub const PARTS_MAX: usize = 1024;

    /// The counters of all cores together.
    #[must_use]
    pub fn total(&self) -> ShardSnapshot {
        let cores = self.cores.iter();
        cores.fold(ShardSnapshot::default(), |sum, core| sum + core.counters)
    }
}

impl Report {
    /// The figures since an earlier report of the same engine. Gauges keep their value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut report = self.clone();
        for (core, before) in report.cores.iter_mut().zip(&earlier.cores) {
            core.counters = core.counters.since(&before.counters);
            core.local = core.local.since(&before.local);
            core.cross = core.cross.since(&before.cross);
            core.batches = core.batches.since(&before.batches);
            core.far = core.far.since(&before.far);
            core.hardware = core.hardware.since(&before.hardware);
            core.clients = core.clients.since(&before.clients);
            core.native_clients = core.native_clients.since(&before.native_clients);
        }
        report.handles = report.handles.since(&earlier.handles);
        for (node, before) in report.nodes.iter_mut().zip(&earlier.nodes) {
            node.counters = node.counters.since(&before.counters);
        }
        if let (Some(data), Some(before)) = (&mut report.data, &earlier.data) {
            *data = data.since(before);
        }
        if let (Some(now), Some(before)) = (&mut report.replication, &earlier.replication) {
            *now = now.since(before);
        }
        report
    }
}

/// Deserializes a list of at most [`Report::PARTS_MAX`] parts.
fn bounded<'a, T: Deserialize<'a>, D: Deserializer<'a>>(source: D) -> Result<Vec<T>, D::Error> {
    struct Parts<T>(PhantomData<T>);

    impl<'a, T: Deserialize<'a>> Visitor<'a> for Parts<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "a list of at most {}", Report::PARTS_MAX)
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut source: A) -> Result<Vec<T>, A::Error> {
            let mut parts = Vec::new();
            while let Some(part) = source.next_element()? {
                if parts.len() == Report::PARTS_MAX {
                    return Err(A::Error::invalid_length(parts.len() + 1, &self));
                }
                parts.push(part);
            }
            Ok(parts)
        }
    }
    source.deserialize_seq(Parts(PhantomData))
}

/// The figures of one core. Latencies are in nanoseconds and sampled.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreReport {
    /// The processor that the core's thread is pinned to.
    pub core: usize,
    /// The shard's counters.
    pub counters: ShardSnapshot,
    /// Requests of this core to its own shard that were not parked for far memory; waits for room
    /// are included.
    pub local: HistogramSnapshot,
    /// Requests of this core to other shards that were not parked for far memory; waits for room
    /// are included.
    pub cross: HistogramSnapshot,
    /// Requests per batch that the shard served.
    pub batches: HistogramSnapshot,
    /// Waits of the shard for far memory, of any client; all of them, not a sample.
    pub far: HistogramSnapshot,
    /// Processor events of the core's thread.
    pub hardware: HardwareSnapshot,
    /// The most requested keys, hottest first.
    pub hot_keys: Vec<HotKey>,
    /// Clients of the Redis protocol of a server on this core; zeros if there is none.
    pub clients: ClientsReport,
    /// Clients of the native protocol of a server on this core; zeros if there is none.
    pub native_clients: ClientsReport,
}

/// The clients that a server serves on one core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientsReport {
    /// Open connections; a gauge.
    pub connections: u64,
    /// Memory of connections and their buffers, in bytes; a gauge.
    pub connection_bytes: u64,
    /// Commands or requests, those that failed among them.
    pub commands: u64,
    /// Commands or requests that were answered by an error.
    pub failed_commands: u64,
}

impl ClientsReport {
    /// The figures since an earlier report. Gauges keep their value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(earlier.commands),
            failed_commands: self.failed_commands.saturating_sub(earlier.failed_commands),
            ..*self
        }
    }
}

impl std::ops::Add for ClientsReport {
    type Output = Self;

    /// The sum of two cores' figures; it saturates, because they may come from any process.
    fn add(self, other: Self) -> Self {
        Self {
            connections: self.connections.saturating_add(other.connections),
            connection_bytes: self.connection_bytes.saturating_add(other.connection_bytes),
            commands: self.commands.saturating_add(other.commands),
            failed_commands: self.failed_commands.saturating_add(other.failed_commands),
        }
    }
}

/// The figures of one memory node, summed over all cores.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// The node's address.
    pub name: String,
    /// The node's counters.
    pub counters: NodeSnapshot,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_a_report_or_refused() {
        let some = r#"{"format":1,"cores":[{"counters":{"gets":7},"hardware":{"cycles":9},"clients":{"commands":2}}],"nodes":[{"counters":{"reads":4}}],"data":{"loading":{"bytes":3},"snapshots":{"error":"x"},"log":{"bytes":7,"syncs":{"sum":9,"max":9,"buckets":[[9,1]]}},"repairs":{"is_under_way":true,"completed":1,"failed":2,"keys":3,"error":"y"}},"replication":{"offset_bytes":5,"replicas":{"connected":1},"link":{"is_up":true,"error":"z"}},"cluster":{"map_version":3,"is_serving":true}}"#;
        farcore_fuzz::Target::new("report")
            .seed(some)
            .seed(serde_json::to_vec(&Report::default()).unwrap())
            .words(&[
                "null",
                "[]",
                "{}",
                "-1",
                "1e99",
                "18446744073709551616",
                "\"cores\":",
                "\"data\":",
                "\"syncs\":",
                "\"repairs\":",
                "\"replication\":",
                "\"link\":",
                "\"cluster\":",
            ])
            .longest(2000)
            .rounds(1000)
            // A core has a few KiB of counters, and its shortest text two bytes.
            .memory(1 << 20, 16 << 10)
            .run(|text| {
                let Ok(report) = serde_json::from_slice::<Report>(text) else {
                    return;
                };
                let written = serde_json::to_string(&report).unwrap();
                let again: Report = serde_json::from_str(&written).unwrap();
                assert_eq!(serde_json::to_string(&again).unwrap(), written);
            });
    }

    #[test]
    fn a_difference_holds_the_figures_in_between() {
        let text = r#"{"cores":[{"counters":{"gets":7,"keys":5},"hardware":{"cycles":9},"clients":{"commands":2},"native_clients":{"commands":3}}],"nodes":[{"counters":{"reads":4}}],"data":{"log":{"bytes":7,"unsynced_bytes":5},"snapshots":{"completed":1},"repairs":{"keys":5,"failed":1}},"replication":{"offset_bytes":9,"replicas":{"connected":2,"full_syncs":3,"dropped":4},"link":{"partial_syncs":2}}}"#;
        let earlier: Report = serde_json::from_str(text).unwrap();
        let mut later = earlier.clone();
        later.cores[0].counters.gets = 10;
        later.cores[0].hardware.cycles = Some(12);
        later.nodes[0].counters.reads = 5;
        (
            later.cores[0].clients.commands,
            later.cores[0].clients.connections,
        ) = (6, 3);
        let data = later.data.as_mut().unwrap();
        (data.log.bytes, data.log.unsynced_bytes) = (17, 2);
        // A count that has fallen: the text may come from any process.
        data.snapshots.completed = 0;
        (data.repairs.keys, data.repairs.failed) = (9, 0);
        let replication = later.replication.as_mut().unwrap();
        replication.offset_bytes = 12;
        (
            replication.replicas.full_syncs,
            replication.replicas.dropped,
        ) = (5, 1);
        replication.link.as_mut().unwrap().partial_syncs = 5;
        let between = later.since(&earlier);
        assert_eq!((between.total().gets, between.total().keys), (3, 5));
        assert_eq!(between.cores[0].hardware.cycles, Some(3));
        assert_eq!(between.nodes[0].counters.reads, 1);
        let clients = between.cores[0].clients;
        assert_eq!((clients.commands, clients.connections), (4, 3));
        let data = between.data.unwrap();
        assert_eq!((data.log.bytes, data.log.unsynced_bytes), (10, 2));
        assert_eq!(data.snapshots.completed, 0);
        assert_eq!((data.repairs.keys, data.repairs.failed), (4, 0));
        let replication = between.replication.unwrap();
        let replicas = replication.replicas;
        assert_eq!((replication.offset_bytes, replicas.connected), (12, 2));
        assert_eq!((replicas.full_syncs, replicas.dropped), (2, 0));
        assert_eq!(replication.link.unwrap().partial_syncs, 3);
    }

    #[test]
    fn a_report_without_a_data_directory_or_a_server_has_no_such_part() {
        let text = serde_json::to_string(&Report::default()).unwrap();
        for part in ["\"data\"", "\"replication\"", "\"link\""] {
            assert!(!text.contains(part), "{text}");
        }
        // Engines of earlier versions have none either, and later ones may say more of it.
        for (text, bytes) in [
            (r#"{"format":1}"#, None),
            (r#"{"format":1,"data":null}"#, None),
            (r#"{"format":1,"data":{}}"#, Some(0)),
            (
                r#"{"format":1,"data":{"log":{"bytes":7},"repaired":3}}"#,
                Some(7),
            ),
        ] {
            let report: Report = serde_json::from_str(text).unwrap();
            assert_eq!(report.data.map(|data| data.log.bytes), bytes, "{text}");
        }
    }

    #[test]
    fn reports_of_other_versions_are_understood() {
        let text = r#"{"format":1,"cores":[{"core":3,"counters":{"gets":7,"new":1},"odd":[]}]}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!((report.cores[0].core, report.total().gets), (3, 7));
        let again = serde_json::to_string(&report).unwrap();
        let again: Report = serde_json::from_str(&again).unwrap();
        assert_eq!(again.total(), report.total());
    }
}
