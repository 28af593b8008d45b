//! What the thread that accepts does about once a second: rates, the limit of local memory, the
//! map of the cluster, and messages that end silent and late connections (`turn/upkeep.rs`).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cores::message::Message;
use crate::cores::shared::Shared;
use crate::figures::server_figures::{CoreFigures, ServerFigures};

/// Time from one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);

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
                core.send(Message::EndOverdueNative);
            }
        }
        shared.saving.look();
        shared.keep_limit();
        shared.look_at_map();
        shared.note_far_memory();
        let options = &shared.options;
        let is_watched = options.idle_timeout.is_some() || options.has_unauthenticated();
        if !is_watched && shared.tls.is_none() {
            return;
        }
        for core in &shared.cores {
            if core.connections.load(Ordering::Relaxed) > 0 {
                core.send(Message::EndLate);
                core.send(Message::EndSilent { start: 0 });
            }
        }
    }
}
