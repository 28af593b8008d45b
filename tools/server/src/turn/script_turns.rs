//! What a core's turn does for scripts that wait for sections (`exec/script_queues.rs`): one script
//! after the other runs under the entry of the first one while that is fresh; then the next one
//! enters.

use std::rc::Rc;
use std::sync::Arc;

use farcore::Core;
use farcore::constants::SECTION_KEYS_MAX;

use crate::commands;
use crate::conn::connection::Connection;
use crate::exec::script_queues::Entry;
use crate::exec::transaction::{Phase, Queue, Reach, ReplaySlot};
use crate::limits::LARGE_BYTES;
use crate::serving::Serving;
use crate::steps;

/// What a queue does next.
enum Turn {
    /// A script runs under the entry.
    Run(usize),
    /// A script enters.
    Enter(usize, Reach),
    /// Nothing now.
    Wait,
}

impl Serving {
    /// Has waiting scripts run. True if one did. Cost while none waits: a branch.
    #[inline]
    pub(crate) fn script_queues_turn(&mut self, core: &mut Core) -> bool {
        !self.script_queues.is_empty() && self.queues_go_on(core)
    }

    fn queues_go_on(&mut self, core: &mut Core) -> bool {
        let (mut place, mut is_busy) = (0, false);
        while self.script_queues.at(place).is_some() {
            loop {
                match self.next_turn(place) {
                    Turn::Run(number) => self.run_under(core, number, place),
                    Turn::Enter(number, reach) => {
                        self.enter(core, number, (place, reach));
                        break;
                    }
                    Turn::Wait => break,
                }
                is_busy = true;
            }
            place += 1;
        }
        is_busy
    }

    /// What the queue at a place does next.
    fn next_turn(&mut self, place: usize) -> Turn {
        let (connections, is_far) = (&self.connections, self.shared.is_far_memory_used());
        let phase_of = |number: usize| {
            let connection = connections.get(number).and_then(Option::as_ref);
            let connection = connection.filter(|connection| !connection.is_gone);
            connection.and_then(|one| Some(&one.transaction.as_ref()?.phase))
        };
        let Some(queue) = self.script_queues.at(place) else {
            return Turn::Wait;
        };
        let is_held = |number| {
            let phase = phase_of(number);
            matches!(phase, Some(Phase::Committing(..) | Phase::Replaying(..)))
        };
        queue.holder = queue.holder.filter(|number| is_held(*number));
        if queue.holder.is_some() {
            return Turn::Wait;
        }
        while let Some(number) = queue.waiting.front() {
            if matches!(phase_of(*number), Some(Phase::Waiting(..))) {
                break;
            }
            // It is gone.
            queue.pop();
        }
        let Some(&number) = queue.waiting.front() else {
            // What its clients have sent after their scripts comes in the next turn.
            let has_rested = std::mem::replace(&mut queue.has_rested, true);
            queue.free = queue
                .free
                .take()
                .filter(|one| !has_rested && one.is_fresh());
            return Turn::Wait;
        };
        let is_near = !is_far || queue.near > 0;
        queue.free = queue.free.take().filter(|one| is_near && one.is_fresh());
        if queue.free.is_some() && steps::is_slice_over() {
            return Turn::Wait;
        }
        queue.pop();
        queue.holder = Some(number);
        match queue.free {
            Some(_) => Turn::Run(number),
            None => Turn::Enter(number, queue.reach()),
        }
    }

    /// Runs the script of a connection under the entry of the queue at a place, and what its client
    /// has sent after it.
    fn run_under(&mut self, core: &mut Core, number: usize, place: usize) {
        let queue = self.script_queues.at(place);
        let Some(entry) = queue.and_then(|queue| queue.free.take()) else {
            return;
        };
        let Some(mut connection) = self.take(number) else {
            return;
        };
        let Some((queue, _)) = connection.take_waiting() else {
            return self.put_back(number, connection);
        };
        let Entry {
            core: mut under,
            since,
        } = entry;
        if self.shared.has_large_values() {
            under.limit_kept_values(LARGE_BYTES);
        }
        self.sections
            .hold(number, Some(under), Some((queue.reach, since)));
        connection.replay(queue);
        self.put_back(number, connection);
        self.run_transaction(core, number);
        self.serve_input(core, number);
    }

    /// Runs the script that a connection has begun under an entry, which goes back if it ends now.
    pub(crate) fn run_at_once(&mut self, number: usize, connection: &mut Connection, entry: Entry) {
        let Entry {
            core: mut under,
            since,
        } = entry;
        let reach = connection.replayed;
        if self.shared.has_large_values() {
            under.limit_kept_values(LARGE_BYTES);
        }
        let has_ended = self.script_goes_on(&mut under, (number, true), connection);
        if has_ended && under.in_flight() == 0 && under.is_under_section() {
            let entry = Entry { core: under, since };
            self.script_queues.give_back(reach, number, entry);
        } else {
            // Else a task has the client.
            let under = under.is_under_section().then_some(under);
            self.sections.hold(number, under, Some((reach, since)));
        }
        if has_ended {
            self.end_transaction(number, connection);
            connection.send_deferred();
        }
    }

    /// Has the script of a connection enter sections, for itself and for those behind it.
    fn enter(&mut self, core: &Core, number: usize, (place, reach): (usize, Reach)) {
        let Some(mut connection) = self.take(number) else {
            return;
        };
        if let Some((queue, mut near)) = connection.take_waiting() {
            if let Some(waiting) = self.script_queues.at(place) {
                waiting.near = 0;
                for number in &waiting.waiting {
                    let other = self.connections.get(*number).and_then(Option::as_ref);
                    let keys = other.and_then(|other| other.waiting_keys()).unwrap_or(&[]);
                    if near.len() + keys.len() > SECTION_KEYS_MAX {
                        break;
                    }
                    steps::count(1 + keys.len());
                    near.extend_from_slice(keys);
                    waiting.near += 1;
                }
                near.sort_unstable();
                near.dedup();
            }
            let slot = ReplaySlot::default();
            if let Some(transaction) = &mut connection.transaction {
                transaction.phase = Phase::Committing(queue, Rc::clone(&slot));
            }
            connection.is_blocked = true;
            let output = self.task_output(&connection);
            let client = self.tasks.client(core);
            let entering = commands::enter_for_script(
                (client, output.clone(), connection.protocol),
                (reach, near),
                Arc::clone(&self.shared),
                slot,
            );
            self.tasks.start(number, output, Box::pin(entering));
        }
        self.put_back(number, connection);
    }
}

impl Connection {
    /// Has the script of the connection wait no longer: its queue, and the keys that it names.
    fn take_waiting(&mut self) -> Option<(Queue, Vec<Vec<u8>>)> {
        let transaction = self.transaction.as_mut()?;
        match std::mem::take(&mut transaction.phase) {
            Phase::Waiting(queue, near) => Some((queue, near)),
            phase => {
                transaction.phase = phase;
                None
            }
        }
    }

    /// The keys of a script that waits.
    fn waiting_keys(&self) -> Option<&[Vec<u8>]> {
        match &self.transaction.as_ref()?.phase {
            Phase::Waiting(_, near) => Some(near),
            _ => None,
        }
    }
}
