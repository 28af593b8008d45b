//! Connections that wait for keys: how they are parked, woken, and end their wait.
//!
//! - I1: a connection that is parked or looks is blocked, so nothing of its input is run.
//! - I2: it is in the queues from its second look on until its command has ended.

use std::ops::Range;

use farcore::Core;

use crate::conn::connection::Connection;
use crate::cores::message::Message;
use crate::resp::Writer;
use crate::serving::Serving;
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::waits::key_queues::{Awaited, Served, WaitEnd, Waiter};
use crate::waits::parked::SourceErrors;

/// What a client reads if the server has begun to follow another one; as Redis.
const FOLLOWED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
/// What it reads if another one has ended its wait with an error; as Redis.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

impl Serving {
    /// Notes that a connection's look has ended. True if the connection goes on waiting.
    pub(crate) fn goes_on_waiting(&mut self, number: usize, connection: &mut Connection) -> bool {
        let Some(parked) = &mut connection.parked else {
            return false;
        };
        parked.is_looking = false;
        if connection.is_gone || !parked.look.is_vain.get() {
            self.end_wait(number, connection);
            return false;
        }
        parked.is_woken = false;
        parked.served.clear();
        // Databases were swapped while it looked.
        let database = self.shared.databases.of(connection.database);
        if parked.is_outside(database) {
            parked.move_to(database, &self.shared);
            parked.is_woken_again = parked.entered.is_some();
        }
        if parked.entered.is_none() {
            let waiter = Waiter {
                client: connection.id,
                core: self.place,
                number,
            };
            let wanted = &parked.look.wanted;
            let tickets = (self.shared.waiting).enter(wanted.awaited(), wanted.keys(), waiter);
            parked.entered = Some((waiter, tickets));
            if let Some(deadline_ms) = parked.deadline_ms {
                self.parking.deadlines.insert((deadline_ms, number));
            }
            self.parking.due.push(number);
            return true;
        }
        if parked.is_woken_again {
            self.parking.due.push(number);
            return true;
        }
        let Some(end) = parked.end else {
            return true;
        };
        let mut reply = Vec::new();
        let mut writer = Writer::new(&mut reply, connection.protocol);
        match end {
            WaitEnd::Timeout => writer.null_array(),
            WaitEnd::Error | WaitEnd::Followed | WaitEnd::Moved(_) => {
                let text = match end {
                    WaitEnd::Followed => FOLLOWED.to_owned(),
                    WaitEnd::Moved(slot) => self.moved_text(slot),
                    _ => UNBLOCKED.to_owned(),
                };
                writer.error(&text);
                self.note_failed_call(connection.command_place, &text);
            }
        }
        connection.emit_piece(&mut reply);
        self.end_wait(number, connection);
        false
    }

    /// Removes a connection from the queues, and wakes the next clients: those that wait for its
    /// keys, if it was woken itself, and for keys to which it has added elements.
    fn end_wait(&mut self, number: usize, connection: &mut Connection) {
        let Some(mut parked) = connection.parked.take() else {
            return;
        };
        // One that leaves before its command ends has not carried it out.
        if let Some(measured) = parked.measured.take().filter(|_| !connection.is_gone) {
            let took = parked.look.took.get();
            self.slow.note(&self.shared.slow, measured, took);
        }
        let awaited = parked.look.wanted.awaited();
        let keys = parked.look.wanted.keys();
        if let Some((_, tickets)) = &parked.entered {
            self.shared.waiting.leave(awaited, keys, tickets);
        }
        if let Some(deadline_ms) = parked.deadline_ms {
            self.parking.deadlines.remove(&(deadline_ms, number));
        }
        parked.served.append(&mut parked.served_again);
        // The others were woken with it, if they were for all.
        let was_woken = (parked.is_woken || parked.is_woken_again) && !awaited.is_for_all();
        for key in keys.iter().filter(|_| was_woken) {
            steps::count(1);
            self.shared.wake_waiter(awaited, key, &parked.served);
        }
        for (awaited, key) in parked.ready.take() {
            self.shared.wake_waiter(awaited, &key, &parked.served);
        }
    }

    /// Ends the wait of a connection that is closed, unless it looks: then the end of the look
    /// does.
    pub(crate) fn forget_wait(&mut self, number: usize, connection: &mut Connection) {
        if let Some(parked) = &connection.parked
            && !parked.is_looking
        {
            self.end_wait(number, connection);
            connection.is_blocked = false;
        }
    }

    /// Has a client that waits for a key, which has a place among its keys, look at these again.
    pub(crate) fn wake(
        &mut self,
        (waiter, awaited): (Waiter, Awaited),
        (key, place): (&[u8], usize),
        mut served: Vec<Served>,
    ) {
        let connection = self.connections.get_mut(waiter.number);
        let parked = connection.and_then(|connection| connection.as_mut()?.parked.as_mut());
        let woken = parked.filter(|parked| {
            let is_there = (parked.entered.as_ref()).is_some_and(|(entered, _)| *entered == waiter);
            let keys = parked.look.wanted.keys();
            is_there
                && parked.look.wanted.awaited() == awaited
                && keys.get(place).is_some_and(|known| known == key)
        });
        let Some(parked) = woken else {
            // It has left the queue meanwhile.
            if awaited.is_for_all() {
                return;
            }
            return self.shared.wake_waiter(awaited, key, &served);
        };
        parked.is_woken_again = true;
        parked.woken_for.get_or_insert(place);
        parked.served_again.append(&mut served);
        if !parked.is_looking {
            self.parking.due.push(waiter.number);
        }
    }

    /// Has a connection that waits do so in the database that its number means now.
    pub(super) fn move_wait(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        let database = self.shared.databases.of(connection.database);
        let parked = connection.parked.as_mut();
        // The end of a look does it else.
        let outside = parked.filter(|one| !one.is_looking && one.is_outside(database));
        if let Some(parked) = outside {
            parked.move_to(database, &self.shared);
            self.parking.due.push(number);
        }
    }

    /// Ends the waits whose time is over, and starts the looks that are due.
    pub(crate) fn serve_waits(&mut self, core: &Core) {
        self.end_overdue_waits();
        for number in std::mem::take(&mut self.parking.due) {
            let Some(Some(connection)) = self.connections.get_mut(number) else {
                continue;
            };
            let protocol = connection.protocol;
            let Some(parked) = connection.parked.as_mut().filter(|one| !one.is_looking) else {
                continue;
            };
            parked.is_looking = true;
            parked.is_woken = std::mem::take(&mut parked.is_woken_again);
            parked.served = std::mem::take(&mut parked.served_again);
            // A command that has added to a key waits until it is looked at.
            parked.look.first = parked.woken_for.take().unwrap_or(0);
            let look = parked.look();
            let (mut core, output) = (
                self.tasks.client(core),
                TaskOutput::new(
                    &connection.account,
                    &self.events,
                    &self.turn_bytes,
                    &self.entries,
                )
                .for_write()
                .of_command(connection.command_place),
            );
            let written = output.clone();
            let future = async move {
                let reply = (&written, protocol);
                look.run(&mut core, reply, SourceErrors::Ignored).await;
                core
            };
            self.tasks.start(number, output, Box::pin(future));
        }
    }

    /// Ends the waits whose time is over.
    fn end_overdue_waits(&mut self) {
        while let Some(&(deadline_ms, number)) = self.parking.deadlines.first()
            && deadline_ms <= self.now_ms
        {
            self.parking.deadlines.pop_first();
            self.end_wait_of(number, WaitEnd::Timeout);
        }
    }

    /// Ends the wait of the client of an identity, if it waits here and its connection has one of
    /// these numbers.
    pub(crate) fn end_wait_of_client(
        &mut self,
        numbers: Range<usize>,
        client: u64,
        end: WaitEnd,
    ) -> bool {
        let is_meant = |connection: &Connection| {
            let parked = connection.parked.as_ref();
            connection.id == client && parked.is_some_and(|parked| parked.is_waiting())
        };
        let mut connections = self.connections[numbers.clone()].iter();
        let place = connections.position(|one| one.as_ref().is_some_and(|one| is_meant(one)));
        if let Some(place) = place {
            self.end_wait_of(numbers.start + place, end);
        }
        place.is_some()
    }

    /// Ends the waits of all clients from a number on; some a turn.
    pub(super) fn end_waits(&mut self, start: usize) {
        let numbers = self.next_clients(start);
        if !numbers.is_empty() {
            let start = numbers.end;
            self.shared.cores[self.place].send(Message::EndWaits { start });
        }
        for number in numbers {
            let parked = self.connections[number]
                .as_ref()
                .and_then(|one| one.parked.as_ref());
            if parked.is_some_and(|parked| parked.is_waiting()) {
                self.end_wait_of(number, WaitEnd::Followed);
            }
        }
    }

    pub(super) fn end_wait_of(&mut self, number: usize, end: WaitEnd) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        let Some(parked) = &mut connection.parked else {
            return;
        };
        parked.end.get_or_insert(end);
        // Else the end of the look ends it, unless the look has found something.
        if !parked.is_looking {
            self.unblock(number);
        }
    }
}
