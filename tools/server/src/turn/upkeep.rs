//! What is done about once a second: rates, and the end of silent and late connections.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::figures::server_figures::{CoreFigures, ServerFigures};
use crate::shared::Shared;
use crate::turn::core_port::Message;
use crate::turn::serving::Serving;
use crate::turn::steps;

/// Time from one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// Connections that a core looks at in a turn.
const CONNECTIONS_A_TURN: usize = 1024;

/// Looks after a server; of the thread that accepts.
#[derive(Debug)]
pub(crate) struct Upkeep {
    last: Instant,
    figures: CoreFigures,
}

impl Upkeep {
    pub(crate) fn new() -> Self {
        Self {
            last: Instant::now(),
            figures: CoreFigures::default(),
        }
    }

    /// Does what is due.
    pub(crate) fn look(&mut self, shared: &Shared) {
        let passed = self.last.elapsed();
        if passed < INTERVAL {
            return;
        }
        self.last += passed;
        let now = ServerFigures::of(shared).total();
        let rate = |now: u64, before: u64| {
            let per_second = u128::from(now - before) * 1000 / passed.as_millis().max(1);
            u64::try_from(per_second).unwrap_or(u64::MAX)
        };
        let before = &self.figures;
        let rates = &shared.rates;
        for (shown, rate) in [
            (&rates.commands, rate(now.commands, before.commands)),
            (
                &rates.received,
                rate(now.received_bytes, before.received_bytes),
            ),
            (&rates.sent, rate(now.sent_bytes, before.sent_bytes)),
        ] {
            shown.set(rate);
        }
        self.figures = now;
        for core in &shared.cores {
            if core.native_connections.load(Ordering::Relaxed) > 0 {
                core.send(Message::Run(Box::new(Serving::look_after_native)));
            }
        }
        shared.keep_limit();
        let options = &shared.options;
        let is_watched = options.idle_timeout.is_some() || options.has_unauthenticated();
        if !is_watched && shared.tls.is_none() {
            return;
        }
        for core in &shared.cores {
            if core.connections.load(Ordering::Relaxed) > 0 {
                core.send(Message::Run(Box::new(Serving::look_after)));
            }
        }
    }
}

impl Serving {
    /// Ends native connections that are overdue.
    fn look_after_native(&mut self) {
        if let Some(native) = &mut self.native {
            native.look_after();
        }
    }

    /// Closes silent connections, and late ones.
    fn look_after(&mut self) {
        self.end_late();
        self.look_after_some(0);
    }

    /// Closes late connections; some a turn.
    fn end_late(&mut self) {
        if self.end_late_unauthenticated() {
            let port = &self.shared.cores[self.place];
            port.send(Message::Run(Box::new(Self::end_late)));
        }
    }

    /// Closes silent connections, from a number on; some a turn.
    fn look_after_some(&mut self, start: usize) {
        if self.shared.options.idle_timeout.is_none() && self.shared.tls.is_none() {
            return;
        }
        let timeout = self.shared.options.idle_timeout;
        let timeout_ms = timeout.and_then(|timeout| u64::try_from(timeout.as_millis()).ok());
        let end = self.connections.len().min(start + CONNECTIONS_A_TURN);
        steps::count(end.saturating_sub(start));
        if end < self.connections.len() {
            let port = &self.shared.cores[self.place];
            port.send(Message::Run(Box::new(move |serving| {
                serving.look_after_some(end);
            })));
        }
        for number in start..end {
            let Some(connection) = &self.connections[number] else {
                continue;
            };
            let silent_ms = self.now_ms.saturating_sub(connection.heard_ms);
            if connection.is_late_with_handshake() {
                self.counters().failed_handshakes.add(1);
                self.close(number);
            } else if timeout_ms.is_some_and(|limit| silent_ms > limit) && connection.is_idle() {
                self.shared.idle_closed.fetch_add(1, Ordering::Relaxed);
                self.close(number);
            }
        }
    }
}
