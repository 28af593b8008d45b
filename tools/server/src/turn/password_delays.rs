//! How clients wait that give wrong passwords: the rules and their bounds stand in
//! `conn/guesses.rs`.

use std::time::{Duration, Instant};

use farcore_rdma::{LogLimit, Network};

use crate::conn::connection::Connection;
use crate::conn::guesses::delay_after;
use crate::serving::Serving;

/// Any peer that can connect causes these lines.
static WRONG: LogLimit = LogLimit::new();

impl Serving {
    /// True if a password of a connection is not looked at yet: its command runs again later.
    pub(crate) fn delays_password(&mut self, number: usize, connection: &mut Connection) -> bool {
        if connection.is_authenticated || std::mem::take(&mut connection.guesses.has_waited) {
            return false;
        }
        let network = Network::of(connection.peer.ip());
        let delay = self.shared.failing.delay(network, Instant::now());
        if delay.is_zero() {
            return false;
        }
        self.delay(number, connection, delay);
        true
    }

    /// Notes a wrong password of a connection, which waits.
    pub(crate) fn note_wrong_password(&mut self, number: usize, connection: &mut Connection) {
        self.counters().failed_authentications.add(1);
        if let Some(left_out) = WRONG.note() {
            tracing::warn!(peer = %connection.peer, left_out, "a client gave a wrong password");
        }
        // One that knows the password has nothing to guess.
        if connection.is_authenticated {
            return;
        }
        let (network, now) = (Network::of(connection.peer.ip()), Instant::now());
        self.shared.failing.note(network, now);
        connection.guesses.failures = connection.guesses.failures.saturating_add(1);
        let own = delay_after(connection.guesses.failures);
        let delay = own.max(self.shared.failing.delay(network, now));
        self.delay(number, connection, delay);
    }

    fn delay(&mut self, number: usize, connection: &mut Connection, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).max(1);
        let until_ms = self.now_ms.saturating_add(delay_ms);
        self.forget_delay(number, connection);
        connection.guesses.until_ms = Some(until_ms);
        self.delays.0.insert((until_ms, number));
        self.counters().delayed_authentications.add(1);
    }

    /// Forgets that a connection waits.
    pub(crate) fn forget_delay(&mut self, number: usize, connection: &mut Connection) {
        if let Some(until_ms) = connection.guesses.until_ms.take() {
            self.delays.0.remove(&(until_ms, number));
        }
    }

    /// Has connections go on that have waited long enough.
    pub(crate) fn end_delays(&mut self) {
        while let Some(&(until_ms, number)) = self.delays.0.first()
            && until_ms <= self.now_ms
        {
            self.delays.0.pop_first();
            let connection = self.connections.get_mut(number).and_then(Option::take);
            if let Some(mut connection) = connection {
                connection.guesses.until_ms = None;
                connection.guesses.has_waited = true;
                self.list(number, &mut connection);
                self.connections[number] = Some(connection);
            }
        }
    }
}
