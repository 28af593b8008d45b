//! How clients wait while they are paused (`CLIENT PAUSE`): a connection whose next command waits
//! runs nothing, and goes on when the pause has ended. The rules stand in `conn/pause.rs`.

use std::sync::atomic::Ordering;

use crate::conn::connection::Connection;
use crate::serving::Serving;

impl Serving {
    /// Has a connection wait for the end of the pause.
    pub(crate) fn pause(&mut self, number: usize, connection: &mut Connection) {
        if !connection.is_paused {
            connection.is_paused = true;
            self.paused.push(number);
            // ORDERING: relaxed, also below; it is a figure.
            let waiting = &self.shared.pause.waiting;
            waiting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a connection does not wait any more.
    pub(crate) fn forget_pause(&self, connection: &mut Connection) {
        if std::mem::take(&mut connection.is_paused) {
            let waiting = &self.shared.pause.waiting;
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Has connections go on once the pause has ended. Cost while none waits: a branch.
    #[inline]
    pub(super) fn pause_turn(&mut self) {
        if !self.paused.is_empty() {
            self.end_pause();
        }
    }

    #[cold]
    fn end_pause(&mut self) {
        self.shared.pause.end_if_over(self.now_ms);
        if self.shared.pause.is_on() {
            return;
        }
        for number in std::mem::take(&mut self.paused) {
            let connection = self.connections.get_mut(number).and_then(Option::take);
            if let Some(mut connection) = connection {
                if connection.is_paused {
                    self.forget_pause(&mut connection);
                    self.list(number, &mut connection);
                }
                self.connections[number] = Some(connection);
            }
        }
    }

    /// When connections go on that wait for the end of the pause, in milliseconds since 1970.
    pub(super) fn pause_end_ms(&self) -> Option<u64> {
        let end_ms = self.shared.pause.end_ms();
        end_ms.filter(|_| !self.paused.is_empty())
    }
}
