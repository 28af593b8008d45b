//! The server's figures at one moment; `figures/reading.rs` reads them.

use crate::figures::native_counters::NativeFigures;

/// Figures of one core's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreFigures {
    /// Connections that the core serves, and those on their way to it.
    pub connections: u64,
    /// Those of them that have not authenticated, if they must.
    pub unauthenticated: u64,
    /// Bytes of its connections with their buffers, at most a second ago.
    pub connection_bytes: u64,
    /// Commands.
    pub commands: u64,
    /// Errors that were replied.
    pub failed_commands: u64,
    /// Bytes that clients sent.
    pub received_bytes: u64,
    /// Bytes that were sent to clients.
    pub sent_bytes: u64,
    /// System calls that received bytes.
    pub receives: u64,
    /// System calls that sent bytes.
    pub sends: u64,
    /// Times that the core had nothing to do and slept.
    pub sleeps: u64,
    /// Clients that were disconnected because all took too much memory.
    pub evicted_clients: u64,
    /// Encrypted connections closed before their handshake: they waited for memory in vain, their
    /// clients left, or the server stopped.
    pub refused_held: u64,
    /// Uploads of long values that ended because they had stalled while others waited.
    pub stalled_uploads: u64,
    /// Subscribers that were disconnected because they did not read.
    pub slow_subscribers: u64,
    /// Events of keys that were not sent: too many at once, or of keys that were removed unread.
    pub unsent_events: u64,
    /// Connections that were closed because their bytes were no requests, or beyond a limit.
    pub protocol_errors: u64,
    /// Encrypted connections that failed, or whose handshake took too long.
    pub failed_handshakes: u64,
    /// Unauthenticated connections that made room for others, or took too much memory together.
    pub evicted_unauthenticated: u64,
    /// Connections that did not authenticate in time.
    pub late_unauthenticated: u64,
    /// Wrong passwords.
    pub failed_authentications: u64,
    /// Times that a connection waited because of wrong passwords.
    pub delayed_authentications: u64,
    /// Times that a connection was not read from any more until its replies are made and read.
    pub pauses: u64,
    /// Work of the longest turn of its loop, in steps: keys, elements, patterns, bytes. `CONFIG
    /// RESETSTAT` resets it.
    pub longest_turn_steps: u64,
    /// Those of native connections.
    pub native: NativeFigures,
}

impl CoreFigures {
    fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.connection_bytes += other.connection_bytes;
        self.commands += other.commands;
        self.failed_commands += other.failed_commands;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.receives += other.receives;
        self.sends += other.sends;
        self.sleeps += other.sleeps;
        self.evicted_clients += other.evicted_clients;
        self.refused_held += other.refused_held;
        self.stalled_uploads += other.stalled_uploads;
        self.slow_subscribers += other.slow_subscribers;
        self.unsent_events += other.unsent_events;
        self.protocol_errors += other.protocol_errors;
        self.failed_handshakes += other.failed_handshakes;
        self.unauthenticated += other.unauthenticated;
        self.evicted_unauthenticated += other.evicted_unauthenticated;
        self.late_unauthenticated += other.late_unauthenticated;
        self.failed_authentications += other.failed_authentications;
        self.delayed_authentications += other.delayed_authentications;
        self.pauses += other.pauses;
        self.longest_turn_steps = self.longest_turn_steps.max(other.longest_turn_steps);
        self.native.add(&other.native);
    }
}

/// How often a command was called, on all cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallFigures {
    /// The command's name.
    pub command: &'static str,
    /// Times that it ran.
    pub calls: u64,
    /// Times that it did not run: wrong number of arguments, or a client without a password.
    pub rejected: u64,
    /// Times that it ran and refused its arguments.
    pub failed: u64,
}

/// The server's figures. All but numbers of connections and their bytes only grow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerFigures {
    /// Connections that were accepted by the system.
    pub accepted: u64,
    /// Connections that were refused because there were too many.
    pub refused: u64,
    /// Connections that were closed because their clients were silent.
    pub idle_closed: u64,
    /// By core.
    pub cores: Vec<CoreFigures>,
    /// By command.
    pub calls: Vec<CallFigures>,
}

impl ServerFigures {
    /// The sum over all cores.
    #[must_use]
    pub fn total(&self) -> CoreFigures {
        let mut total = CoreFigures::default();
        for core in &self.cores {
            total.add(core);
        }
        total
    }
}

/// Figures at one moment: the server's, and those of the engine that clients see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    pub(crate) server: ServerFigures,
    pub(crate) gets: u64,
    pub(crate) gets_absent: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}
