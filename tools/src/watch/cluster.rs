//! What a server says of its cluster, as `farcore top` shows it.

use farcore::statistics::ClusterReport;
use serde::Serialize;

/// By which map a server goes, and what it serves by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ClusterState {
    /// 0 until there is a map.
    pub(crate) map_version: u64,
    pub(crate) servers: u64,
    /// Slots that are the server's, and those whose commands wait for their owner.
    pub(crate) slots: u64,
    pub(crate) held_slots: u64,
    /// Its slots are served.
    pub(crate) is_serving: bool,
}

impl ClusterState {
    pub(super) fn of(report: &ClusterReport) -> Self {
        Self {
            map_version: report.map_version,
            servers: report.servers,
            slots: report.slots,
            held_slots: report.held_slots,
            is_serving: report.is_serving,
        }
    }
}
