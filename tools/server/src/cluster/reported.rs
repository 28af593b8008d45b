//! What a server reports of its cluster.

use farcore_tuning::ClusterReport;

use super::current::CurrentMap;

impl CurrentMap {
    /// What is known of it now.
    pub(crate) fn report(&self) -> ClusterReport {
        let (_, view) = self.now();
        let slots = view.own.map_or(0, |own| view.map.slots_of(own).len());
        let held = view.held.as_ref().map_or(0, |held| held.slots.len());
        ClusterReport {
            map_version: view.map.version,
            servers: view.map.members.len() as u64,
            slots: slots as u64,
            held_slots: held as u64,
            is_serving: view.own.is_some() && self.is_fence_open(),
        }
    }
}
