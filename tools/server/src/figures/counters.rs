//! Figures of a core's connections, written by the core and read by any.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::figures::native_counters::NativeCounters;

/// Commands that are counted one by one, at most.
pub(crate) const COMMANDS_MAX: usize = NO_COMMAND as usize;

/// The place in the table of no command.
pub(crate) const NO_COMMAND: u8 = u8::MAX;

/// A figure that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Figure(AtomicU64);

impl Figure {
    /// Adds to it. Only its core calls this.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        // A load and a store instead of an atomic addition: there is one writer.
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it. Only its core calls this.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often a command was called.
#[derive(Debug, Default)]
pub(crate) struct CallCounters {
    /// Times that it ran.
    pub(crate) calls: Figure,
    /// Times that it did not run: wrong number of arguments, or a client without a password.
    pub(crate) rejected: Figure,
    /// Times that it ran and replied an error.
    pub(crate) failed: Figure,
}

/// Figures of one core.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CoreCounters {
    /// Commands that were replied to, or are under way. Those that do not exist count too.
    pub(crate) commands: Figure,
    /// Errors that were replied.
    pub(crate) failed_commands: Figure,
    /// Bytes that clients sent.
    pub(crate) received_bytes: Figure,
    /// Bytes that were sent to clients.
    pub(crate) sent_bytes: Figure,
    /// System calls that received bytes.
    pub(crate) receives: Figure,
    /// System calls that sent bytes.
    pub(crate) sends: Figure,
    /// Times that the core had nothing to do and slept.
    pub(crate) sleeps: Figure,
    /// Clients that were disconnected because all took too much memory.
    pub(crate) evicted_clients: Figure,
    /// Encrypted connections that were closed while they waited for memory.
    pub(crate) refused_held: Figure,
    /// Uploads of long values that ended because they had stalled while others waited.
    pub(crate) stalled_uploads: Figure,
    /// Subscribers that were disconnected because they did not read.
    pub(crate) slow_subscribers: Figure,
    /// Expired and evicted keys without an event: too many at once, or removed unread.
    pub(crate) unsent_events: Figure,
    /// Connections that were closed because their bytes were no requests, or beyond a limit.
    pub(crate) protocol_errors: Figure,
    /// Encrypted connections that failed, or whose handshake took too long.
    pub(crate) failed_handshakes: Figure,
    /// Unauthenticated connections that made room for others, or took too much memory together.
    pub(crate) evicted_unauthenticated: Figure,
    /// Connections that did not authenticate in time.
    pub(crate) late_unauthenticated: Figure,
    /// Wrong passwords.
    pub(crate) failed_authentications: Figure,
    /// Times that a connection waited because of wrong passwords.
    pub(crate) delayed_authentications: Figure,
    /// Times that a connection was not read from any more until its replies are made and read.
    pub(crate) pauses: Figure,
    /// Steps of the longest turn (`steps`), since they were reset.
    pub(crate) longest_turn_steps: Figure,
    /// Scripts that the core owns, bytes of those that it knows, and of interpreters without one.
    pub(crate) cached_scripts: Figure,
    pub(crate) script_bytes: Figure,
    pub(crate) interpreter_bytes: Figure,
    /// Bytes of connections and their buffers.
    pub(crate) connection_bytes: Figure,
    /// Those of native connections.
    pub(crate) native: NativeCounters,
    /// Calls by command, in the order of the table.
    pub(crate) calls: Box<[CallCounters]>,
}

impl CoreCounters {
    /// Counts an error that was replied to the command of a place in the table.
    #[cold]
    pub(crate) fn note_failed(&self, command: u8) {
        self.failed_commands.add(1);
        if let Some(calls) = self.calls.get(usize::from(command)) {
            calls.failed.add(1);
        }
    }
}

impl Default for CoreCounters {
    fn default() -> Self {
        Self {
            commands: Figure::default(),
            failed_commands: Figure::default(),
            received_bytes: Figure::default(),
            sent_bytes: Figure::default(),
            receives: Figure::default(),
            sends: Figure::default(),
            sleeps: Figure::default(),
            evicted_clients: Figure::default(),
            refused_held: Figure::default(),
            stalled_uploads: Figure::default(),
            slow_subscribers: Figure::default(),
            unsent_events: Figure::default(),
            protocol_errors: Figure::default(),
            failed_handshakes: Figure::default(),
            evicted_unauthenticated: Figure::default(),
            late_unauthenticated: Figure::default(),
            failed_authentications: Figure::default(),
            delayed_authentications: Figure::default(),
            pauses: Figure::default(),
            longest_turn_steps: Figure::default(),
            cached_scripts: Figure::default(),
            script_bytes: Figure::default(),
            interpreter_bytes: Figure::default(),
            connection_bytes: Figure::default(),
            native: NativeCounters::default(),
            calls: (0..COMMANDS_MAX).map(|_| CallCounters::default()).collect(),
        }
    }
}
