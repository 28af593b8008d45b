//! How a core begins to serve a connection that was accepted.

use std::rc::Rc;
use std::sync::Arc;

use crate::conn::connection::Connection;
use crate::cores::held_arrivals::Held;
use crate::cores::message::{Arrival, ArrivalKind};
use crate::memory::{Account, CoreMemory};
use crate::serving::Serving;
use crate::steps;
use crate::users::of_core::CoreUser;

/// Connections that have waited and are served or refused in a turn, at most.
const HELD_A_TURN: usize = 64;

impl Serving {
    /// Serves a new connection, now or once there is memory for it.
    pub(super) fn meet(&mut self, arrival: Arrival) {
        if self.arrivals.must_wait(&self.shared, &arrival) {
            self.arrivals.hold(arrival, self.now_ms);
        } else {
            self.accept(arrival);
        }
    }

    /// Serves connections that have waited, as far as there is memory for them, and refuses those
    /// that have waited for long. True if it has served or refused some.
    pub(super) fn accept_held(&mut self, is_stopping: bool) -> bool {
        for count in 0..HELD_A_TURN {
            let Some(next) = self.arrivals.next(&self.shared, self.now_ms, is_stopping) else {
                return count > 0;
            };
            steps::count(1);
            match next {
                Held::Accepted(arrival) => self.accept(arrival),
                // Its socket is closed.
                Held::Refused(arrival) => {
                    self.accepted_none(arrival.is_unauthenticated);
                    self.counters().refused_held.add(1);
                }
            }
        }
        true
    }

    /// Serves a connection, if there is room.
    pub(crate) fn accept(&mut self, arrival: Arrival) {
        let Arrival {
            stream,
            peer,
            is_encrypted,
            is_unauthenticated,
            is_above_limit,
            kind,
        } = arrival;
        let is_inner = kind != ArrivalKind::Client;
        let session = if is_inner || self.make_room(is_unauthenticated, is_above_limit) {
            self.session(is_encrypted)
        } else {
            self.shared.refuse(stream, is_encrypted);
            return self.accepted_none(is_unauthenticated);
        };
        let Ok(tls) = session else {
            return self.accepted_none(is_unauthenticated);
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if self.sockets.add(&stream, number as u64).is_err() {
            self.free.push(number);
            return self.accepted_none(is_unauthenticated);
        }
        let id = self.shared.next_client();
        let (user, is_authenticated) = match is_inner {
            true => (CoreUser::of_source(&self.shared.users), true),
            false => (Rc::clone(self.users.default()), self.users.are_open()),
        };
        let account = match (is_inner, is_unauthenticated) {
            // These are few, and clients can take nothing from them.
            (true, _) => &CoreMemory::new(Arc::clone(&self.shared.source_memory)),
            (_, true) => &self.unauthenticated_memory,
            _ => &self.memory,
        };
        let account = Account::new(account);
        let mut connection = Connection::new(stream, peer, (id, account), (user, is_authenticated));
        connection.tls = tls;
        connection.kind = kind;
        connection.heard_ms = self.now_ms;
        if is_unauthenticated {
            self.enter_unauthenticated(number, &mut connection);
            // The default user may have lost its password since it was accepted.
            self.note_proof(&mut connection);
        }
        self.account(&mut connection);
        self.connections[number] = Some(Box::new(connection));
    }

    /// Notes that a connection that was on its way here is not served.
    fn accepted_none(&self, is_unauthenticated: bool) {
        if is_unauthenticated {
            self.shared.no_longer_unauthenticated(self.place);
        }
        self.shared.gone(self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::by_hand::{Bench, on_first_core};

    /// An encrypted connection that has a place, and its client.
    fn arrival(bench: &Bench, listener: &TcpListener) -> (Arrival, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (stream, peer) = listener.accept().expect("a connection");
        bench.shared.connected.fetch_add(1, Ordering::Relaxed);
        let port = &bench.shared.cores[0];
        port.connections.fetch_add(1, Ordering::Relaxed);
        let arrival = Arrival {
            stream,
            peer,
            is_encrypted: true,
            is_unauthenticated: false,
            is_above_limit: false,
            kind: ArrivalKind::Client,
        };
        (arrival, client)
    }

    #[test]
    fn one_that_waits_in_vain_gives_its_place_back() {
        on_first_core(1, |bench| async move {
            let mut serving = bench.serving(0);
            let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
            let connected = || bench.shared.connected.load(Ordering::Relaxed);
            bench
                .shared
                .client_memory
                .take(bench.shared.client_memory.limit());
            serving.now_ms = 1;
            let (first, client) = arrival(&bench, &listener);
            let (second, _stays) = arrival(&bench, &listener);
            serving.meet(first);
            serving.meet(second);
            assert!(!serving.accept_held(false));
            assert_eq!(connected(), 2);
            // The first client leaves.
            drop(client);
            while !serving.accept_held(false) {}
            assert_eq!(connected(), 1);
            serving.now_ms += 9_999;
            assert!(!serving.accept_held(false));
            serving.now_ms += 1;
            assert!(serving.accept_held(false));
            assert_eq!((connected(), serving.counters().refused_held.get()), (0, 2));
            // Nor does one wait for a server that stops.
            let (third, _stays) = arrival(&bench, &listener);
            serving.meet(third);
            assert!(serving.accept_held(true));
            assert_eq!(connected(), 0);
        });
    }
}
