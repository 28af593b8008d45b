//! The part of a report about a cluster: by which map a server goes, and what it serves by it.
//!
//! As the report, it grows by fields, and what comes from another process is never trusted.

use serde::{Deserialize, Serialize};

/// What a server says of the cluster that it is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterReport {
    /// The version of the map; 0 until there is one.
    pub map_version: u64,
    /// Servers of the map.
    pub servers: u64,
    /// Slots that are this server's.
    pub slots: u64,
    /// Slots whose commands wait, since they change their owner right now.
    pub held_slots: u64,
    /// Its slots are served: it is in the map, and if that lies in etcd, it has a lease there.
    pub is_serving: bool,
}
