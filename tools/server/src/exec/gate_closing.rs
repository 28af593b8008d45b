//! Where a core is in closing the gate for writes, and what goes on when it opens. What it does
//! each turn stands in `turn/gate_turns.rs`.

use std::time::Instant;

use crate::exec::gate::Acknowledgement;

/// Where a core is in closing the gate, and what goes on when it opens.
#[derive(Debug, Default)]
pub(crate) struct GateClosing {
    /// Something is to be looked at each turn.
    pub(crate) is_active: bool,
    /// The next closing, until it begins.
    pub(crate) closing: Option<Acknowledgement>,
    /// The one that has begun, until it is complete.
    pub(crate) begun: Option<Acknowledgement>,
    /// The gate was opened and no turn has passed since.
    pub(crate) must_serve: bool,
    /// The command that was run last is held.
    pub(crate) holds: bool,
    /// Connections that are held.
    pub(crate) held: Vec<usize>,
    /// Connections with a task of a long value that is due and writes.
    pub(crate) held_tasks: Vec<usize>,
    /// The connection that holds the gate, and since when its client has not read.
    pub(crate) holder: Option<usize>,
    pub(crate) unread_since: Option<Instant>,
}

impl GateClosing {
    /// True if the core may sleep until a message comes.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_active || self.closing.is_none() && self.begun.is_none() && self.holder.is_none()
    }

    /// True if a connection goes on once the gate opens.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty() || !self.held_tasks.is_empty()
    }

    /// Has a task go on when the gate opens.
    pub(crate) fn hold_task(&mut self, number: usize) {
        self.held_tasks.push(number);
    }
}
