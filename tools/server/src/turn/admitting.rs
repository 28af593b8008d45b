//! How a core admits connections that have proved nothing, and evicts them: their places, memory
//! and invariants stand in `conn/unauthenticated.rs`.

use std::sync::atomic::Ordering;

use farcore_rdma::LogLimit;
use rustix::net::{RecvFlags, recv};

use crate::conn::connection::Connection;
use crate::conn::unauthenticated::Stay;
use crate::memory::Account;
use crate::serving::Serving;
use crate::steps;

/// Connections that are closed in a turn because they are late.
const ENDED_A_TURN: usize = 256;
/// Connections that one eviction may spare.
const SPARED_MAX: usize = 64;

/// Any peer that can connect causes these lines.
static EVICTIONS: LogLimit = LogLimit::new();
static LATE: LogLimit = LogLimit::new();

impl Connection {
    /// True if nothing more may be received or run: it has not authenticated, and a reply is not
    /// sent, or it waits after a wrong password.
    pub(crate) fn is_restrained(&self) -> bool {
        !self.is_authenticated && (self.waiting_bytes() > 0 || self.guesses.waits())
    }

    /// True if it has proved what it must.
    fn has_proved(&self) -> bool {
        self.is_authenticated && self.tls.as_ref().is_none_or(|tls| tls.is_established())
    }
}

impl Serving {
    /// Makes room for a connection that was accepted, above the limit on clients or within it.
    /// False if there is none: it is refused.
    pub(crate) fn make_room(&mut self, is_unauthenticated: bool, is_above_limit: bool) -> bool {
        if is_unauthenticated && self.unauthenticated.is_full() {
            return self.evict_for_place();
        }
        let connected = self.shared.connected.load(Ordering::Relaxed);
        !is_above_limit || connected <= self.shared.options.clients_max || self.evict_for_place()
    }

    /// Counts a connection among the unauthenticated ones.
    pub(crate) fn enter_unauthenticated(&mut self, number: usize, connection: &mut Connection) {
        let stay = self
            .unauthenticated
            .enter(connection.peer, number, connection.connected);
        connection.stay = Some(Box::new(stay));
    }

    /// Notes how many bytes an unauthenticated connection takes.
    #[cold]
    pub(crate) fn account_unauthenticated(&mut self, stay: &mut Stay, bytes: usize) {
        self.unauthenticated.note_bytes(stay, bytes);
    }

    /// Counts a connection among the clients, once it has proved what it must.
    pub(crate) fn note_proof(&mut self, connection: &mut Connection) {
        if connection.has_proved() && self.end_stay(connection) {
            let account = Account::new(&self.memory);
            let (mut before, held) = (0, connection.settled_bytes);
            account.settle(&mut before, held);
            connection.account.settle(&mut connection.settled_bytes, 0);
            (connection.account, connection.settled_bytes) = (account, held);
        }
    }

    /// Counts a connection no more among the unauthenticated ones. False if it was none.
    pub(crate) fn end_stay(&mut self, connection: &mut Connection) -> bool {
        let Some(stay) = connection.stay.take() else {
            return false;
        };
        self.unauthenticated.leave(&stay);
        self.shared.no_longer_unauthenticated(self.place);
        true
    }

    /// Evicts the connection that makes room for another. False if there is none.
    fn evict_for_place(&mut self) -> bool {
        for _ in 0..SPARED_MAX {
            let Some(number) = self.unauthenticated.next_for_place() else {
                return false;
            };
            if !self.spare(number) {
                self.evict_unauthenticated(number, "another needs its place");
                return true;
            }
        }
        let next = self.unauthenticated.next_for_place();
        next.map(|number| self.evict_unauthenticated(number, "another needs its place"))
            .is_some()
    }

    /// Spares a connection if its bytes have arrived and it was not spared
    /// before.
    fn spare(&mut self, number: usize) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return false;
        };
        let Some(stay) = connection.stay.as_mut().filter(|stay| !stay.is_spared) else {
            return false;
        };
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        if !matches!(recv(&connection.socket, &mut [0; 1][..], flags), Ok((_, 1))) {
            return false;
        }
        stay.is_spared = true;
        self.unauthenticated.renew(stay);
        true
    }

    fn evict_unauthenticated(&mut self, number: usize, reason: &str) {
        if let Some(Some(connection)) = self.connections.get(number)
            && let Some(left_out) = EVICTIONS.note()
        {
            tracing::info!(
                peer = %connection.peer,
                reason,
                left_out,
                "an unauthenticated connection is evicted"
            );
        }
        self.counters().evicted_unauthenticated.add(1);
        self.close(number);
    }

    /// Evicts unauthenticated connections until the others take no more than their share.
    pub(crate) fn keep_unauthenticated_to_memory(&mut self) {
        while self.unauthenticated.is_exceeded() {
            let Some(number) = self.unauthenticated.next_for_memory() else {
                return;
            };
            self.evict_unauthenticated(number, "all of them take more than their share of memory");
        }
    }

    /// Closes those that have proved nothing in time, some a turn. True if more are left.
    pub(crate) fn end_late_unauthenticated(&mut self) -> bool {
        let limit = self.shared.options.authentication_limit;
        for _ in 0..ENDED_A_TURN {
            let Some(number) = self.unauthenticated.late(limit) else {
                return false;
            };
            steps::count(1);
            if let Some(Some(connection)) = self.connections.get(number)
                && let Some(left_out) = LATE.note()
            {
                tracing::info!(
                    peer = %connection.peer,
                    left_out,
                    "a connection has not authenticated in time"
                );
            }
            self.counters().late_unauthenticated.add(1);
            self.close(number);
        }
        true
    }
}
