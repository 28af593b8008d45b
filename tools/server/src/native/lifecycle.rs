//! How the native connections of a core begin and end, and what their numbers name.
//!
//! - I1: a connection's number is used again only when nothing is under way for it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farcore_rdma::{LogLimit, Network, PeerArrival, PeerEndpoint};

use super::connection::{NativeConnection, State};
use super::handshakes::Stage;
use super::turn::Native;
use crate::conn::sockets::Sockets;
use crate::memory::Account;
use crate::options::CONNECTIONS_MAX;

/// Sockets of native connections have numbers from here on, and lines of devices from there.
pub(super) const SOCKETS: u64 = 1 << 40;
const LINES: u64 = 1 << 41;

/// Any peer that can connect causes these lines.
static LATE: LogLimit = LogLimit::new();

/// What a connection's number names.
#[derive(Debug)]
pub(super) enum Entry {
    /// Nothing, or a connection that is being worked on.
    Free,
    Open(Box<NativeConnection>),
    /// A connection that has ended, with this many answers under way.
    Closing(usize),
}

impl Entry {
    pub(super) fn open(&mut self) -> Option<&mut NativeConnection> {
        match self {
            Self::Open(connection) => Some(connection),
            _ => None,
        }
    }
}

impl Native {
    /// Takes a connection that a listener accepted.
    pub(crate) fn accept(&mut self, arrival: PeerArrival) {
        let task = self.accepting.next();
        let seat = self.seat_of_task(Network::of(arrival.peer().ip()), task);
        let core = (Arc::clone(&self.shared), self.place);
        let options = &self.shared.options.native;
        let (peer, limit) = (options.peer(), options.timeout);
        self.accepting
            .start((task, seat), arrival, peer, limit, core);
    }

    pub(super) fn take_accepted(&mut self, sockets: &Sockets) -> bool {
        if !self.accepting.has_any() {
            return false;
        }
        for (seat, endpoint) in self.accepting.take() {
            let begun = endpoint.and_then(|endpoint| self.begin(endpoint, sockets));
            let Some(number) = begun else {
                self.end_handshake(&seat);
                self.shared.native_gone(self.place);
                continue;
            };
            let seat = self.go_further(&seat, number, Stage::Begun);
            if let Some(connection) = self.connection(number) {
                connection.seat = Some(seat);
            }
            self.note(number);
        }
        true
    }

    fn begin(&mut self, endpoint: PeerEndpoint, sockets: &Sockets) -> Option<usize> {
        let options = &self.shared.options.native;
        let limit_ms = u64::try_from(options.timeout.as_millis()).unwrap_or(u64::MAX);
        let is_device = endpoint.is_device();
        let deadline_ms = self.now_ms.saturating_add(limit_ms);
        let account = Account::new(&self.memory);
        let connection = NativeConnection::new(endpoint, account, options.credits, deadline_ms)?;
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.connections.len() < CONNECTIONS_MAX => {
                self.connections.push(Entry::Free);
                self.connections.len() - 1
            }
            None => return None,
        };
        let descriptors = connection.endpoint.descriptors();
        for (descriptor, base) in descriptors.into_iter().zip([SOCKETS, LINES + SOCKETS]) {
            let added =
                descriptor.map(|one: BorrowedFd<'_>| sockets.add(one, base + number as u64));
            if added.is_some_and(|added| added.is_err()) {
                self.free.push(number);
                return None;
            }
        }
        self.connections[number] = Entry::Open(Box::new(connection));
        if is_device {
            self.devices.push(number);
        }
        self.count += 1;
        self.counters().accepted.add(1);
        self.counters().connections.change(1);
        Some(number)
    }

    pub(super) fn connection(&mut self, number: usize) -> Option<&mut NativeConnection> {
        self.connections.get_mut(number)?.open()
    }

    pub(super) fn take(&mut self, number: usize) -> Option<Box<NativeConnection>> {
        let entry = self.connections.get_mut(number)?;
        match std::mem::replace(entry, Entry::Free) {
            Entry::Open(connection) => Some(connection),
            other => {
                *entry = other;
                None
            }
        }
    }

    /// Ends a connection. Its number is free once nothing is under way for it.
    pub(super) fn close(&mut self, number: usize, mut connection: Box<NativeConnection>) {
        if let Some(seat) = connection.seat.take() {
            self.end_handshake(&seat);
        }
        let counters = &self.shared.counters[self.place].native;
        connection.long_puts.cut();
        counters.connections.change(-1);
        let slots = i64::try_from(connection.counted_slots).unwrap_or(0);
        counters.slots_in_use.change(-slots);
        if connection.state == State::Open {
            let credits = i64::from(self.shared.options.native.credits);
            counters.credits.change(-credits);
            self.shared.native_closed();
        }
        self.devices.retain(|other| *other != number);
        self.shared.native_gone(self.place);
        self.count -= 1;
        if connection.outstanding > 0 {
            self.connections[number] = Entry::Closing(connection.outstanding);
        } else {
            self.connections[number] = Entry::Free;
            self.free.push(number);
        }
        // The endpoint goes first: after that nothing accesses the slots.
        drop(connection);
        counters.slot_bytes.set(self.memory.held() as u64);
    }

    /// Ends connections whose handshake takes too long, those whose peer acknowledges nothing, and
    /// long values of which nothing more comes. About once a second.
    pub(crate) fn look_after(&mut self) {
        let limit = self.shared.options.native.timeout;
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        for number in 0..self.connections.len() {
            let Some(connection) = self.connections.get_mut(number).and_then(Entry::open) else {
                continue;
            };
            let is_shaking = connection.state != State::Open && !connection.is_gone;
            if is_shaking && self.now_ms > connection.deadline_ms {
                connection.is_gone = true;
                self.shared.counters[self.place]
                    .native
                    .late_handshakes
                    .add(1);
                if let Some(left_out) = LATE.note() {
                    tracing::info!(peer = %connection.peer, left_out, "a native client does not prove its token in time");
                }
            }
            connection.long_puts.cut_silent(self.now_ms, limit_ms);
            list(&mut self.listed, number, connection);
            self.note(number);
        }
    }

    /// Ends all connections.
    pub(crate) fn end(&mut self) {
        for number in 0..self.connections.len() {
            if let Some(connection) = self.take(number) {
                self.close(number, connection);
            }
        }
    }
}

/// Has a connection go on this turn.
pub(super) fn list(listed: &mut Vec<usize>, number: usize, connection: &mut NativeConnection) {
    if !connection.is_listed {
        connection.is_listed = true;
        listed.push(number);
    }
}

/// The connection of an answer, which is under way no more; `None` if it has ended.
pub(super) fn answered<'a>(
    connections: &'a mut [Entry],
    free: &mut Vec<usize>,
    number: usize,
) -> Option<&'a mut NativeConnection> {
    let entry = connections.get_mut(number)?;
    if let Entry::Closing(outstanding) = entry {
        *outstanding -= 1;
        if *outstanding == 0 {
            *entry = Entry::Free;
            free.push(number);
        }
        return None;
    }
    let connection = entry.open();
    debug_assert!(
        connection.is_some(),
        "its number is kept while answers are under way"
    );
    let connection = connection?;
    connection.outstanding -= 1;
    Some(connection)
}
