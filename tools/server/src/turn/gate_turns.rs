//! A core's part of the gate for writes (`gate`): it closes, acknowledges, opens, and looks after
//! the connection that holds it.
//!
//! While it closes, connections begin no request at all until none is under way: so it need not be
//! known which of these write. Then reads go on. Tasks that write have a pass.
//!
//! - I1: from one closing to the next, every connection that was held is served once, and every
//!   task that waits for a pass is polled once.
//! - I2: the holder's replay waits for nothing that the closed gate holds: its commands and tasks
//!   pass.
//! - I3: a client that does not read its replies opens the gate: without more ado if nothing is
//!   left to write, else its connection is closed, so that it reads of no success.

use std::time::{Duration, Instant};

use farcore::Core;

use crate::commands::Command;
use crate::conn::connection::Connection;
use crate::exec::gate::Acknowledgement;
use crate::native::Native;
use crate::serving::Serving;
use crate::tasks::gate_hold::GateHold;
use crate::tasks::output::OUTPUT_BYTES_MAX;

/// How long the holder's client may leave its replies unread while others wait.
const UNREAD_MAX: Duration = Duration::from_millis(200);

impl Serving {
    /// Has the gate be closed; what is dropped then says so.
    pub(crate) fn close_gate(&mut self, closing: Acknowledgement) {
        self.gate.closing = Some(closing);
        self.gate.is_active = true;
    }

    /// Opens the gate.
    pub(crate) fn open_gate(&mut self) {
        self.gate.closing = None;
        if !self.passes.is_shut() {
            return;
        }
        self.gate.begun = None;
        self.passes.open();
        self.gate.must_serve = true;
        self.list_held();
        for number in std::mem::take(&mut self.gate.held_tasks) {
            self.note_output(number);
        }
    }

    /// True if a command must wait for the gate.
    #[cold]
    pub(crate) fn must_hold(&mut self, connection: &Connection, command: &Command) -> bool {
        let is_exec = command.name == "exec";
        let may_write = is_exec || command.writes && !connection.is_queueing();
        self.gate.holds = !connection.holds_gate() && (may_write || self.passes.drains());
        self.gate.holds
    }

    /// Has a connection go on later: once the gate opens, if that held its command, or next turn.
    pub(crate) fn go_on_later(&mut self, number: usize, connection: &mut Connection) {
        if !std::mem::take(&mut self.gate.holds) {
            self.list(number, connection);
        } else if !connection.is_at_gate {
            connection.is_at_gate = true;
            self.gate.held.push(number);
        }
    }

    /// Lists the connections that are held.
    fn list_held(&mut self) {
        for number in std::mem::take(&mut self.gate.held) {
            if let Some(Some(mut connection)) = self.connections.get_mut(number).map(Option::take) {
                connection.is_at_gate = false;
                self.list(number, &mut connection);
                self.connections[number] = Some(connection);
            }
        }
        if let Some(native) = &mut self.native {
            native.list_held();
        }
    }

    /// Notes that a connection's `EXEC` holds the gate.
    pub(crate) fn note_holder(&mut self, number: usize) {
        self.gate.holder = Some(number);
        self.gate.unread_since = None;
        self.gate.is_active = true;
    }

    /// Does what is due at the end of a turn. Cost while no gate is closed: a branch.
    #[inline]
    pub(crate) fn gate_turn(&mut self, core: &Core) {
        if self.gate.is_active {
            self.active_gate_turn(core);
        }
    }

    #[cold]
    fn active_gate_turn(&mut self, core: &Core) {
        if self.gate.closing.is_some() && !self.gate.must_serve && !self.passes.is_shut() {
            self.passes.shut();
            self.gate.begun = self.gate.closing.take();
        }
        let native = self.native.as_ref();
        let is_drained = core.in_flight() == 0 && native.is_none_or(Native::is_drained);
        if self.passes.drains() && is_drained {
            self.passes.end_drain();
            self.list_held();
        }
        if self.passes.is_shut() && !self.passes.drains() && !self.passes.is_any_out() {
            self.gate.begun = None;
        }
        self.gate.must_serve = false;
        self.look_after_holder();
        self.gate.is_active =
            self.passes.is_shut() || self.gate.closing.is_some() || self.gate.holder.is_some();
    }

    /// Has the replay of the connection that holds the gate go on, or opens the gate.
    fn look_after_holder(&mut self) {
        let Some(number) = self.gate.holder else {
            return;
        };
        let connection = self.connections.get(number).and_then(Option::as_ref);
        let Some(connection) = connection.filter(|connection| connection.holds_gate()) else {
            self.gate.holder = None;
            return;
        };
        let is_ahead = !connection.is_blocked && connection.is_ahead();
        let is_unread = connection.outstanding == 0
            && if connection.is_blocked {
                connection.waiting_bytes() >= OUTPUT_BYTES_MAX
            } else {
                is_ahead && self.is_crowded()
            };
        let since = self.gate.unread_since.filter(|_| is_unread);
        let since = since.or_else(|| is_unread.then(Instant::now));
        self.gate.unread_since = since;
        let has_written = connection.outstanding == 0
            && connection.has_replayed_writes()
            && !self.tasks.has_pass(number);
        let transaction = connection.transaction.as_ref();
        let hold = transaction.and_then(|transaction| transaction.hold.as_ref());
        let is_overdue = hold.is_some_and(GateHold::is_overdue);
        let is_deaf = since.is_some_and(|since| since.elapsed() > UNREAD_MAX);
        if has_written && (is_unread || is_overdue) {
            return self.give_gate_up(number);
        }
        if is_overdue || is_deaf {
            if let Some(hold) = hold {
                hold.note_overrun(if is_deaf {
                    "its client does not read the replies"
                } else {
                    "its commands have taken too long"
                });
            }
            return self.close(number);
        }
        // Its output may have more than its share.
        if is_ahead
            && connection.outstanding == 0
            && let Some(Some(mut connection)) = self.connections.get_mut(number).map(Option::take)
        {
            self.list(number, &mut connection);
            self.connections[number] = Some(connection);
        }
    }

    /// Opens the gate that a connection holds, which goes on.
    fn give_gate_up(&mut self, number: usize) {
        let connection = self.connections.get_mut(number).and_then(Option::as_mut);
        if let Some(transaction) = connection.and_then(|one| one.transaction.as_mut()) {
            transaction.hold = None;
        }
        self.gate.holder = None;
    }
}

#[cfg(test)]
mod tests;
