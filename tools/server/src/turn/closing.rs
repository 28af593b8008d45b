//! How a connection ends: its socket is shut, it leaves all lists, and its number becomes free.
//!
//! - I1: a connection's number is reused only when no answer and no command of several steps is
//!   under way for it, and no subscription is left.
//! - I2: many subscriptions end in slices, one a turn.
//! - I3: a transaction whose commands have begun to run runs to its end, without its replies.

use crate::serving::Serving;

impl Serving {
    /// Closes a connection. Its number is free once nothing is under way for it.
    pub(crate) fn close(&mut self, number: usize) {
        let Some(Some(mut connection)) = self.connections.get_mut(number).map(Option::take) else {
            return;
        };
        if !self.shared.is_stopping() && connection.must_finish_transaction() {
            connection.is_gone = false;
            if !connection.is_orphan {
                self.sockets.remove(&connection.socket);
                connection.orphan();
            }
            self.list(number, &mut connection);
            self.connections[number] = Some(connection);
            return;
        }
        self.end_monitor(&mut connection);
        connection.is_gone = true;
        if !connection.is_removed {
            connection.is_removed = true;
            connection.end_session();
            if !connection.is_orphan {
                self.sockets.remove(&connection.socket);
            }
            let _ = connection.socket.shutdown(std::net::Shutdown::Both);
            self.shared.gone(self.place);
            if let Some(stream) = &connection.stream {
                stream.cut();
            }
            self.end_transaction(number, &mut connection);
            self.scripts.running.retain(|running| *running != number);
            connection.drop_buffers();
            self.end_stay(&mut connection);
            self.forget_pause(&mut connection);
            self.end_tracking(number, &mut connection);
            self.tracking.targets.remove(&connection.id);
            self.forget_delay(number, &mut connection);
        }
        self.forget_subscriptions(number, &mut connection);
        self.account(&mut connection);
        self.forget_wait(number, &mut connection);
        self.connections[number] = Some(connection);
        self.free_if_done(number);
    }

    fn free_if_done(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        let has_left = connection.subscribed.is_none();
        if connection.outstanding == 0 && !connection.is_blocked && has_left {
            self.connections[number] = None;
            self.free.push(number);
        } else if !connection.is_dirty {
            // It is looked at again at the end of the turn.
            connection.is_dirty = true;
            self.dirty.push(number);
        }
    }
}
