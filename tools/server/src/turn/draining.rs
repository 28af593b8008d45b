//! How a core notices that all has ended that had begun before slots were held for another server,
//! or clients were paused.
//!
//! - I1: a command that is admitted after its core has begun to drain is not waited for, and is
//!   admitted only once nothing of its connection is.
//! - I2: a client that waits for keys of slots that are held waits no more, and reads who owns them
//!   next.

use crate::cluster::slot_of;
use crate::commands;
use crate::conn::connection::Connection;
use crate::cores::answers::Answers;
use crate::cores::drain::{Drain, DrainOf};
use crate::cores::message::Message;
use crate::databases::shown_key;
use crate::serving::Serving;
use crate::steps;
use crate::waits::key_queues::WaitEnd;

/// Commands in steps that change no keys, and may take long.
const HARMLESS: &[&str] = &["clusterx", "wait"];

/// True if a command of this name may be one of those that wait while clients may not write.
fn may_write(name: &str) -> bool {
    let command = commands::find(name.as_bytes());
    let is_replicated = commands::REPLICATED.contains(&name);
    is_replicated || command.is_some_and(|command| command.writes)
}

impl Serving {
    /// Answers once all has ended that has begun by now. Commands are admitted by the view and the
    /// pause of now from here on, as a core looks at both for each.
    pub(super) fn begin_drain(&mut self, of: DrainOf, answer: Answers<()>) {
        self.drains.push(Drain {
            of,
            next: 0,
            open: Vec::new(),
            answer,
        });
    }

    /// True if a connection waits for keys of slots that are not held.
    fn waits_elsewhere(&mut self, number: usize) -> bool {
        let Some((slot, false)) = self.awaited_slot(number) else {
            return false;
        };
        let view = self.cluster_view();
        !view.is_some_and(|view| view.holds(slot))
    }

    /// True if a connection waits for keys, and does not look at them: it changes none until
    /// another client has.
    fn waits_for_keys(&self, number: usize) -> bool {
        let connection = self.connections.get(number).and_then(Option::as_ref);
        let parked = connection.and_then(|connection| connection.parked.as_ref());
        parked.is_some_and(|parked| !parked.is_looking)
    }

    /// The slot of the keys that a connection waits for, and whether it looks at them.
    fn awaited_slot(&self, number: usize) -> Option<(u16, bool)> {
        let connection = self.connections.get(number)?.as_ref()?;
        let parked = connection.parked.as_ref()?;
        let key = parked.look.wanted.keys().first()?;
        Some((slot_of(shown_key(key)), parked.is_looking))
    }

    /// Goes on to drain. Cost while there is nothing to: a branch.
    #[inline]
    pub(super) fn drain_turn(&mut self) {
        if !self.drains.is_empty() {
            for drain in std::mem::take(&mut self.drains) {
                self.go_on_draining(drain);
            }
        }
    }

    #[cold]
    fn go_on_draining(&mut self, mut drain: Drain) {
        let is_of_slots = drain.of == DrainOf::Slots;
        let is_over = match drain.of {
            DrainOf::Slots => self.cluster_view().is_none_or(|view| view.held.is_none()),
            DrainOf::Writes => !self.shared.pause.is_on(),
        };
        if is_over {
            return;
        }
        let view = self.shared.cluster.as_ref().map(|cluster| cluster.now().1);
        let holds = |slot| view.as_ref().is_none_or(|view| view.holds(slot));
        // One command alone is carried out in steps: that which wants the slots or the pause, which
        // waits for this, or one that is about none of them.
        let is_passed_over = |one: &Connection| {
            let is_alone = one.is_blocked && one.outstanding == 0 && one.pending.is_empty();
            let is_elsewhere = one.in_cluster.last_slot.is_some_and(|slot| !holds(slot));
            let is_elsewhere = is_of_slots && is_elsewhere;
            let is_harmless = match drain.of {
                DrainOf::Slots => HARMLESS.contains(&one.last_command),
                DrainOf::Writes => !may_write(one.last_command),
            };
            let is_one = is_alone && !one.is_executing() && one.script.is_none();
            is_one && (is_elsewhere || is_harmless)
        };
        let numbers = self.next_clients(drain.next);
        drain.next = numbers.end;
        for number in numbers.clone() {
            let is_waiting = match drain.of {
                DrainOf::Slots => self.waits_elsewhere(number),
                DrainOf::Writes => self.waits_for_keys(number),
            };
            if is_waiting {
                continue;
            }
            let connection = self.connections[number].as_mut();
            let connection =
                connection.filter(|one| !one.is_inner() && one.has_begun() && !is_passed_over(one));
            if let Some(connection) = connection {
                connection.in_cluster.is_draining = true;
                drain.open.push((number, connection.id));
            }
        }
        steps::count(drain.open.len());
        drain.open.retain(|(number, id)| {
            let connection = self.connections.get(*number).and_then(Option::as_ref);
            let connection = connection.filter(|connection| connection.id == *id);
            connection.is_some_and(|one| one.in_cluster.is_draining && one.has_begun())
        });
        match numbers.is_empty() && drain.open.is_empty() {
            true => drain.answer.put(()),
            false => self.drains.push(drain),
        }
    }

    /// Ends the waits for keys that are not served here, or are not for long, from a number of a
    /// connection on; some a turn.
    pub(super) fn end_moved_waits(&mut self, start: usize) {
        let numbers = self.next_clients(start);
        if !numbers.is_empty() {
            let start = numbers.end;
            self.shared.cores[self.place].send(Message::EndMovedWaits { start });
        }
        for number in numbers {
            let Some((slot, _)) = self.awaited_slot(number) else {
                continue;
            };
            let next = self.cluster_view().and_then(|view| view.next_owner(slot));
            if next.is_some() {
                self.end_wait_of(number, WaitEnd::Moved(slot));
            }
        }
    }

    /// What a client reads that waits for keys of a slot which has another owner.
    pub(super) fn moved_text(&mut self, slot: u16) -> String {
        let next = self.cluster_view().and_then(|view| view.next_owner(slot));
        match next {
            Some(member) => format!("MOVED {slot} {}:{}", member.host, member.port),
            // It has come back meanwhile.
            None => "TRYAGAIN the slot has changed its owner meanwhile".to_owned(),
        }
    }
}
