//! The end of connections that are silent or late: some a turn, and a message for the rest.

use std::sync::atomic::Ordering;

use crate::cores::message::Message;
use crate::serving::Serving;
use crate::steps;

/// Connections that a core looks at in a turn.
const CONNECTIONS_A_TURN: usize = 1024;

impl Serving {
    /// Closes late connections; some a turn.
    pub(super) fn end_late(&mut self) {
        if self.end_late_unauthenticated() {
            let port = &self.shared.cores[self.place];
            port.send(Message::EndLate);
        }
    }

    /// Closes silent connections, from a number on; some a turn.
    pub(super) fn end_silent(&mut self, start: usize) {
        if self.shared.options.idle_timeout.is_none() && self.shared.tls.is_none() {
            return;
        }
        let timeout = self.shared.options.idle_timeout;
        let timeout_ms = timeout.and_then(|timeout| u64::try_from(timeout.as_millis()).ok());
        let end = self.connections.len().min(start + CONNECTIONS_A_TURN);
        steps::count(end.saturating_sub(start));
        if end < self.connections.len() {
            let port = &self.shared.cores[self.place];
            port.send(Message::EndSilent { start: end });
        }
        for number in start..end {
            let Some(connection) = &self.connections[number] else {
                continue;
            };
            let silent_ms = self.now_ms.saturating_sub(connection.heard_ms);
            if connection.is_late_with_handshake() {
                self.counters().failed_handshakes.add(1);
                self.close(number);
            } else if timeout_ms.is_some_and(|limit| silent_ms > limit)
                && connection.is_idle()
                && !connection.is_inner()
                && !connection.is_handed_over
            {
                self.shared.idle_closed.fetch_add(1, Ordering::Relaxed);
                self.close(number);
            }
        }
    }
}
