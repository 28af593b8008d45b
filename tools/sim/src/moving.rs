//! Nodes that come and go while the engine serves: they are added, drained, kept after all, and
//! removed.

use farcore::{Error, NodeState, NodeStatus, SimulatedEngine};

use crate::faults::{ADDED, DRAINED, FORCED, KEPT, REMOVED};
use crate::plan::Moving;
use crate::world::{World, node_address, node_at};

/// Refusals that a caller must expect. Anything else is a fault.
fn expected(outcome: Result<(), Error>) -> Result<bool, String> {
    match outcome {
        Ok(()) => Ok(true),
        Err(
            Error::NodesMax { .. }
            | Error::NodeNeeded { .. }
            | Error::Closed
            | Error::Config { field: "nodes", .. },
        ) => Ok(false),
        Err(error) => Err(format!("a node is refused: {error}")),
    }
}

impl World {
    /// A node is added, drained, kept or removed, if one is to be now.
    pub(crate) fn move_nodes(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        let Some(moving) = self.plan.moving else {
            return Ok(());
        };
        if !self.is_faulty || !self.random.one_in(moving.often) {
            return Ok(());
        }
        let node = self.random.place(self.nodes.len());
        let address = node_address(node);
        let nodes = engine.engine().nodes();
        let status = nodes.iter().find(|status| status.address == address);
        let Some((kind, outcome)) = self.move_node(engine, moving, node, status) else {
            return Ok(());
        };
        let is_done = expected(outcome)?;
        if is_done {
            self.coverage.fault(kind);
        }
        let detail = (node as u64) << 1 | u64::from(is_done);
        self.note(40, detail, || format!("{kind}: {node}, done: {is_done}"));
        Ok(())
    }

    /// Notes which nodes the engine has a session at with each core.
    pub(crate) fn note_members(&mut self, engine: &SimulatedEngine) {
        self.members.fill(false);
        for status in engine.engine().nodes() {
            self.members[node_at(&status.address)] = status.state == NodeState::Serving;
        }
    }

    /// All nodes are well: those that leave have left, if the others have plenty of room.
    pub(crate) fn end_moves(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        if self.plan.moving.is_none() || self.plan.evicts {
            return Ok(());
        }
        let slack = self.plan.cores as u64 * (1 << 20);
        let copies = self.plan.copies.0;
        self.let_time_flow(true);
        let ended = self.until("nodes are not left", |_| {
            let nodes = engine.engine().nodes();
            let (leaving, staying): (Vec<_>, Vec<_>) = nodes
                .into_iter()
                .partition(|node| matches!(node.state, NodeState::Draining | NodeState::Removing));
            let held: u64 = leaving
                .iter()
                .map(|node| node.total_bytes - node.free_bytes)
                .sum();
            // Each has room for all of it.
            let has_room = |node: &NodeStatus| node.free_bytes >= 2 * held + slack;
            let roomy = staying.iter().filter(|node| has_room(node)).count();
            Ok(leaving.is_empty() || roomy < copies)
        });
        self.let_time_flow(false);
        ended.map_err(|error| {
            let total = engine.engine().stats().total;
            let (copied, copying) = (total.pages_copied, total.copying);
            let nodes = engine.engine().nodes();
            format!("{error}: {copied} pages copied, {copying} cores copy, {nodes:?}")
        })
    }

    /// What happens to a node, and the outcome; `None` if nothing does.
    fn move_node(
        &mut self,
        engine: &SimulatedEngine,
        moving: Moving,
        node: usize,
        status: Option<&NodeStatus>,
    ) -> Option<(&'static str, Result<(), Error>)> {
        let (address, nodes) = (node_address(node), engine.engine().memory_nodes());
        let zone = self.random.of(&[None, Some("a"), Some("b")]);
        match status.map(|status| status.state) {
            None => Some((ADDED, nodes.add(&address, zone))),
            Some(NodeState::Draining) if self.random.one_in(4) => {
                Some((KEPT, nodes.add(&address, zone)))
            }
            Some(NodeState::Draining | NodeState::Removing) => None,
            Some(_) if moving.forces && self.random.one_in(8) => {
                let begun = nodes.begin_removal(&address, true);
                Some((FORCED, begun.map(drop)))
            }
            // Two losses at once are more than copies are for.
            Some(_) if !self.plan.spares && self.random.one_in(4) => {
                let begun = nodes.begin_removal(&address, false);
                Some((REMOVED, begun.map(drop)))
            }
            Some(_) => Some((DRAINED, nodes.drain(&address))),
        }
    }
}
