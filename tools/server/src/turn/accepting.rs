//! How a core begins to serve a connection that was accepted.

use crate::conn::connection::Connection;
use crate::cores::held_arrivals::Held;
use crate::cores::message::Arrival;
use crate::memory::Account;
use crate::serving::Serving;

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
    /// that have waited for long.
    pub(super) fn accept_held(&mut self, is_stopping: bool) {
        while let Some(next) = self.arrivals.next(&self.shared, self.now_ms, is_stopping) {
            match next {
                Held::Accepted(arrival) => self.accept(arrival),
                // Its socket is closed.
                Held::Refused(arrival) => {
                    let options = &self.shared.options;
                    self.accepted_none(options.is_unauthenticated(arrival.is_encrypted));
                    self.counters().evicted_clients.add(1);
                }
            }
        }
    }

    /// Serves a connection, if there is room.
    pub(crate) fn accept(&mut self, arrival: Arrival) {
        let Arrival {
            stream,
            peer,
            is_encrypted,
            is_above_limit,
        } = arrival;
        let is_unauthenticated = self.shared.options.is_unauthenticated(is_encrypted);
        let session = if self.make_room(is_unauthenticated, is_above_limit) {
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
        let is_authenticated = !self.shared.options.needs_password();
        let account = Account::new(if is_unauthenticated {
            &self.unauthenticated_memory
        } else {
            &self.memory
        });
        let mut connection = Connection::new(stream, peer, (id, account), is_authenticated);
        connection.tls = tls;
        connection.heard_ms = self.now_ms;
        if is_unauthenticated {
            self.enter_unauthenticated(number, &mut connection);
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
