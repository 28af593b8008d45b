//! How a connection ends: its socket is shut, it leaves all lists, and its number becomes free.
//!
//! - I1: a connection's number is reused only when no answer and no command of several steps is
//!   under way for it.

use crate::connection::Connection;
use crate::serving::Serving;

impl Serving {
    /// Closes a connection. Its number is free once nothing is under way for it.
    pub(crate) fn close(&mut self, number: usize) {
        let Some(Some(mut connection)) = self.connections.get_mut(number).map(Option::take) else {
            return;
        };
        self.end_monitor(&mut connection);
        connection.is_gone = true;
        if !connection.is_removed {
            connection.is_removed = true;
            connection.end_session();
            self.sockets.remove(&connection.socket);
            let _ = connection.socket.shutdown(std::net::Shutdown::Both);
            self.shared.gone(self.place);
            if let Some(stream) = &connection.stream {
                stream.cut();
            }
            self.end_transaction(&mut connection);
            connection.drop_buffers();
            self.account(&mut connection);
            self.end_stay(&mut connection);
            self.forget_delay(number, &mut connection);
        }
        self.forget_subscriptions(number, &mut connection);
        self.forget_wait(number, &mut connection);
        self.connections[number] = Some(connection);
        self.free_if_done(number);
    }

    /// Has connections end; returns how many.
    pub(crate) fn kill(&mut self, is_meant: impl Fn(&Connection) -> bool) -> usize {
        let mut count = 0;
        for number in 0..self.connections.len() {
            let meant = self.connections[number].as_ref();
            if meant.is_some_and(|one| !one.is_gone && is_meant(one)) {
                count += 1;
                self.close(number);
            }
        }
        count
    }

    fn free_if_done(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get(number) else {
            return;
        };
        if connection.outstanding == 0 && !connection.is_blocked {
            self.connections[number] = None;
            self.free.push(number);
        } else if !self.dirty.contains(&number) {
            self.dirty.push(number);
        }
    }
}
