//! `MONITOR`: how clients see the commands of all others.
//!
//! A core writes a line for each command that it runs while any client of the server watches, and
//! sends a turn's lines to the cores with such clients. So the lines of one core are in order,
//! those of several may interleave by a turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::conn::connection::Connection;
use crate::cores::message::Message;
use crate::events::monitors::write_line;
use crate::serving::Serving;

/// Output of a client that watches, from which it is disconnected: it does not read fast enough.
const OUTPUT_BYTES_MAX: usize = 8 << 20;

impl Serving {
    /// True if a client watches.
    #[inline]
    pub(crate) fn is_monitored(&self) -> bool {
        self.shared.monitors.load(Ordering::Relaxed) > 0
    }

    /// Shows a command to the clients that watch.
    #[cold]
    pub(crate) fn show<'a>(
        &mut self,
        connection: &Connection,
        arguments: impl Iterator<Item = &'a [u8]>,
    ) {
        let at_us = farcore_tuning::system_ns() / 1000;
        let client = (connection.database, connection.peer);
        write_line(&mut self.monitors.lines, at_us, client, arguments);
    }

    /// Has a connection watch.
    pub(crate) fn begin_monitor(&mut self, number: usize, connection: &mut Connection) {
        if !connection.is_monitor {
            connection.is_monitor = true;
            self.monitors.connections.push(number);
            self.shared.cores[self.place]
                .monitors
                .fetch_add(1, Ordering::Relaxed);
            self.shared.monitors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has a connection no longer watch.
    pub(crate) fn end_monitor(&self, connection: &mut Connection) {
        if connection.is_monitor {
            connection.is_monitor = false;
            self.shared.cores[self.place]
                .monitors
                .fetch_sub(1, Ordering::Relaxed);
            self.shared.monitors.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sends the lines of this turn to the cores whose clients watch.
    pub(crate) fn send_lines(&mut self) {
        if self.monitors.lines.is_empty() {
            return;
        }
        let lines: Arc<[u8]> = std::mem::take(&mut self.monitors.lines).into();
        let shared = Arc::clone(&self.shared);
        for core in &shared.cores {
            if core.monitors.load(Ordering::Relaxed) > 0 {
                let lines = Arc::clone(&lines);
                core.send(Message::ShowCommands(lines));
            }
        }
    }

    pub(super) fn take_lines(&mut self, lines: &[u8]) {
        let mut connections = std::mem::take(&mut self.monitors.connections);
        connections.retain(|&number| {
            let Some(Some(connection)) = self.connections.get_mut(number) else {
                return false;
            };
            if !connection.is_monitor || connection.is_gone {
                return false;
            }
            let is_exceeded = self.memory.server().is_exceeded();
            let gives_way = connection.has_unread() && is_exceeded;
            if gives_way || connection.waiting_bytes() > OUTPUT_BYTES_MAX {
                self.close(number);
                return false;
            }
            connection.reply(|writer| writer.raw(lines));
            connection.settle();
            self.note_output(number);
            true
        });
        self.monitors.connections = connections;
    }
}
