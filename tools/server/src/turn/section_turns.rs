//! What a core's turn does for the sections that `EXEC`s hold: it takes their answers, and looks
//! after the connections that hold them.
//!
//! - I1: a client that does not read its replies, while there is no memory to make them ahead of
//!   it, keeps no one from these shards: its `EXEC` gives its sections up if nothing is left to
//!   write, else its connection is closed, and the rest runs without replies.

use std::time::Duration;

use farcore::Core;

use crate::conn::connection::share_of;
use crate::serving::Serving;
use crate::steps;
use crate::tasks::output::OUTPUT_BYTES_MAX;

/// How long a client may leave its replies unread while others wait for its sections.
const UNREAD_MAX: Duration = Duration::from_millis(200);

impl Serving {
    /// Has the transaction of a connection go on that has entered sections, while answers come at
    /// once: others wait for these. What the turn has no steps for goes on in the next one.
    pub(crate) fn run_transaction(&mut self, core: &mut Core, number: usize) {
        while !steps::is_slice_over() {
            let connection = self.connections.get(number).and_then(Option::as_ref);
            if !connection.is_some_and(|connection| connection.is_executing()) {
                return;
            }
            let Some(mut connection) = self.take(number) else {
                return;
            };
            self.execute(core, number, &mut connection);
            self.note_dirty(number, &mut connection);
            self.put_back(number, connection);
            if !self.sections.holds(number) || self.take_section_answers() == 0 {
                return;
            }
        }
    }

    /// Does what is due at the end of a turn. Cost while no `EXEC` holds sections: a branch.
    #[inline]
    pub(crate) fn sections_turn(&mut self) {
        if !self.sections.is_empty() {
            self.look_after_holders();
        }
    }

    #[cold]
    fn look_after_holders(&mut self) {
        for number in self.sections.connections() {
            self.look_after_holder(number);
        }
    }

    /// Has the `EXEC` of a connection that holds sections go on, or gives these up.
    fn look_after_holder(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get(number) else {
            return self.sections.end(number);
        };
        if connection.script.is_some() {
            // Its time is limited, and its client is sent nothing before it ends.
            return;
        }
        let is_ahead = !connection.is_blocked && connection.is_ahead();
        let is_idle = connection.outstanding == 0;
        let share_bytes = share_of(self.memory.server().free()).min(OUTPUT_BYTES_MAX);
        let is_full = connection.is_blocked && connection.waiting_bytes() >= share_bytes;
        let is_unread = is_idle && (is_full || is_ahead) && self.is_short();
        let has_written = connection.has_replayed_writes() && !connection.is_blocked;
        let since = self.sections.note_unread(number, is_unread);
        if is_unread && has_written {
            return self.sections.end(number);
        }
        if since.is_some_and(|since| since.elapsed() > UNREAD_MAX) {
            tracing::warn!("the client of a transaction is closed: it does not read the replies");
            return self.close(number);
        }
        // Its output may have more than its share.
        if is_ahead
            && is_idle
            && let Some(mut connection) = self.take(number)
        {
            self.list(number, &mut connection);
            self.put_back(number, connection);
        }
    }
}
