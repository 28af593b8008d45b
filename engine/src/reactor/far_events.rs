//! What keepers send a core, and its effect on the core's shard.

use farcore_rdma::Endpoint;

use crate::far_memory::{FarChange, FarEventQueue};
use crate::shard::Shard;

/// The events of a core's keepers; none where there are no memory nodes.
#[derive(Debug, Default)]
pub(super) struct FarEvents(Option<FarEventQueue>);

impl FarEvents {
    /// Receives the events of keepers from now on.
    pub(super) fn receive(&mut self, events: FarEventQueue) {
        self.0 = Some(events);
    }

    /// True if keepers have sent an event that was not processed.
    pub(super) fn has_event(&mut self) -> bool {
        self.0.as_mut().is_some_and(FarEventQueue::has_event)
    }

    /// Processes the events that keepers have sent. True if there was one.
    pub(super) fn process<E: Endpoint>(&mut self, shard: &mut Shard<E>) -> bool {
        let mut any = false;
        while let Some(event) = self.0.as_mut().and_then(FarEventQueue::pop) {
            any = true;
            let count = match event.change {
                FarChange::Room => shard.extents_room(),
                FarChange::Claimed { node, pieces } => {
                    let added = |&piece: &_| shard.add_extent(node, piece).is_ok();
                    pieces.iter().copied().take_while(added).count()
                }
                FarChange::Lost(node) => {
                    #[cfg(feature = "simulation")]
                    farcore_tuning::simulated::reached("a node's extents lost");
                    shard.lose_node(node);
                    0
                }
                FarChange::Joins { node, name, zone } => {
                    shard.join_node(node, name, zone);
                    0
                }
                FarChange::Leaves { node, leaves } => {
                    shard.drain_node(node, leaves);
                    0
                }
                FarChange::CountLeft(node) => shard.left_on(node),
                FarChange::CountAlone(node) => shard.pages_alone_on(node),
                FarChange::Vacated(node) => {
                    #[cfg(feature = "simulation")]
                    farcore_tuning::simulated::reached("a node left by a core");
                    shard.vacate_node(node);
                    0
                }
                FarChange::Down(node) => {
                    shard.node_is_down(node);
                    0
                }
                FarChange::Back(node) => {
                    shard.node_answers(node);
                    0
                }
            };
            // A keeper that has stopped needs no reply.
            let _ = event.reply.send(count);
        }
        any
    }
}
