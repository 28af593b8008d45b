//! How clients wait while they are paused (`CLIENT PAUSE`), or while a slot changes its owner: a
//! connection whose next command waits runs nothing, and goes on when the pause has ended or the
//! view of the cluster is another one. The rules of pauses stand in `conn/pause.rs`.

use std::sync::atomic::Ordering;

use crate::cluster::CoreView;
use crate::conn::connection::Connection;
use crate::serving::Serving;

impl Serving {
    /// Has a connection wait for the end of the pause.
    pub(crate) fn pause(&mut self, number: usize, connection: &mut Connection) {
        if connection.paused.is_none() {
            let last = self.paused.last_key_value();
            let ticket = last.map_or(0, |(ticket, _)| ticket + 1);
            connection.paused = Some(ticket);
            self.paused.insert(ticket, number);
            // ORDERING: relaxed, also below; it is a figure.
            let waiting = &self.shared.pause.waiting;
            waiting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a connection does not wait any more.
    pub(crate) fn forget_pause(&mut self, connection: &mut Connection) {
        if let Some(ticket) = connection.paused.take() {
            self.paused.remove(&ticket);
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
        let is_on = self.shared.pause.is_on();
        let is_held = self.cluster_view().is_some_and(|view| view.held.is_some());
        let generation = self.cluster.as_ref().map_or(0, CoreView::generation);
        let before = std::mem::replace(&mut self.paused_in, (is_on, generation));
        if (is_on || is_held) && before == self.paused_in {
            return;
        }
        for number in std::mem::take(&mut self.paused).into_values() {
            let connection = self.connections.get_mut(number).and_then(Option::take);
            if let Some(mut connection) = connection {
                self.forget_pause(&mut connection);
                self.list(number, &mut connection);
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

#[cfg(test)]
mod tests {
    use crate::by_hand::on_first_core;

    #[test]
    fn no_number_is_kept_of_a_connection_that_has_closed() {
        on_first_core(1, |bench| async move {
            let mut serving = bench.serving(0);
            bench.shared.pause.begin(u64::MAX, true, 0);
            let clients: Vec<_> = (0..3).map(|_| bench.connect(&mut serving)).collect();
            for (_, number) in &clients {
                let mut connection = serving.take(*number).expect("it is there");
                serving.pause(*number, &mut connection);
                serving.put_back(*number, connection);
            }
            serving.close(clients[1].1);
            let numbers: Vec<_> = serving.paused.values().copied().collect();
            assert_eq!(numbers, [clients[0].1, clients[2].1]);
            serving.close(clients[0].1);
            serving.close(clients[2].1);
            assert!(serving.paused.is_empty() && serving.pause_end_ms().is_none());
        });
    }
}
