//! Reads the figures of a server, from any thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcore_tuning::{ClusterReport, ReplicationReport};

use crate::cluster::CurrentMap;
use crate::cores::port::CorePort;
use crate::cores::shared::Shared;
use crate::figures::counters::CoreCounters;
use crate::figures::native_counters::NativeFigures;
use crate::figures::server_figures::{Baseline, CallFigures, CoreFigures, ServerFigures};

impl CoreFigures {
    fn of(counters: &CoreCounters, port: &CorePort) -> Self {
        Self {
            connections: port.connections.load(Ordering::Relaxed) as u64,
            unauthenticated: port.unauthenticated.load(Ordering::Relaxed) as u64,
            connection_bytes: counters.connection_bytes.get(),
            commands: counters.commands.get(),
            failed_commands: counters.failed_commands.get(),
            received_bytes: counters.received_bytes.get(),
            sent_bytes: counters.sent_bytes.get(),
            receives: counters.receives.get(),
            sends: counters.sends.get(),
            sleeps: counters.sleeps.get(),
            evicted_clients: counters.evicted_clients.get(),
            refused_held: counters.refused_held.get(),
            stalled_uploads: counters.stalled_uploads.get(),
            slow_subscribers: counters.slow_subscribers.get(),
            unsent_events: counters.unsent_events.get(),
            protocol_errors: counters.protocol_errors.get(),
            failed_handshakes: counters.failed_handshakes.get(),
            evicted_unauthenticated: counters.evicted_unauthenticated.get(),
            late_unauthenticated: counters.late_unauthenticated.get(),
            failed_authentications: counters.failed_authentications.get(),
            delayed_authentications: counters.delayed_authentications.get(),
            pauses: counters.pauses.get(),
            longest_turn_steps: counters.longest_turn_steps.get(),
            native: NativeFigures::of(&counters.native),
        }
    }
}

impl ServerFigures {
    pub(crate) fn of(shared: &Shared) -> Self {
        let cores = shared.counters.iter().zip(&shared.cores);
        Self {
            accepted: shared.accepted.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            idle_closed: shared.idle_closed.load(Ordering::Relaxed),
            cores: cores
                .map(|(counters, port)| CoreFigures::of(counters, port))
                .collect(),
            calls: (shared.command_names.iter().enumerate())
                .map(|(place, &command)| {
                    let mut figures = CallFigures {
                        command,
                        ..CallFigures::default()
                    };
                    for core in &shared.counters {
                        if let Some(counters) = core.calls.get(place) {
                            figures.calls += counters.calls.get();
                            figures.rejected += counters.rejected.get();
                            figures.failed += counters.failed.get();
                        }
                    }
                    figures
                })
                .collect(),
        }
    }
}

impl Shared {
    /// The figures now.
    pub(crate) fn figures(&self) -> Baseline {
        let engine = self.reporter.stats().total;
        Baseline {
            server: ServerFigures::of(self),
            gets: engine.gets,
            gets_absent: engine.gets_absent,
            expired: engine.expired,
            evicted: engine.evicted,
        }
    }
}

/// Reads a server's figures, from any thread.
#[derive(Clone, Debug)]
pub struct ServerReporter(pub(crate) Arc<Shared>);

impl ServerReporter {
    /// True if the data are to be saved before the engine is closed: a client has said so, or there
    /// are rules that have them saved, and there were changes since the last snapshot.
    #[must_use]
    pub fn needs_save(&self) -> bool {
        let shared = &self.0;
        shared.saving.needs_save(shared.asked_to_save())
    }

    /// True while the data directory is loaded, and most commands are refused.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.0.saving.refusals.is_loading()
    }

    /// What is known of the cluster that the server is a part of, if it is one.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterReport> {
        self.0.cluster.as_ref().map(CurrentMap::report)
    }

    /// What is known of replicas, and of the server that this one follows.
    #[must_use]
    pub fn replication(&self) -> ReplicationReport {
        self.0.replication.report()
    }

    /// The figures now.
    #[must_use]
    pub fn figures(&self) -> ServerFigures {
        ServerFigures::of(&self.0)
    }
}
