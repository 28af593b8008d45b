//! Passes a shard's notes for a feed on, turn by turn.

use farcore_rdma::Endpoint;

use super::feed_port::FeedPort;
use crate::shard::Shard;

/// What a core knows of its feed.
#[derive(Debug, Default)]
pub(super) struct Feeding {
    is_on: bool,
}

impl Feeding {
    /// True if there is something to look at each turn.
    #[inline]
    pub(super) fn is_active(&self, port: &FeedPort) -> bool {
        self.is_on || port.news().is_some()
    }

    /// Starts or ends it, as the reader wants, and passes on what was noted.
    pub(super) fn run<E: Endpoint>(&mut self, port: &FeedPort, shard: &mut Shard<E>) {
        if let Some(number) = port.news() {
            self.is_on = number % 2 == 1;
            shard.set_feed(self.is_on);
            port.note_seen(number);
        }
        let Some(fed) = shard.fed() else {
            return shard.stop_for_feed(false);
        };
        port.count(fed.appended());
        if !fed.waiting().is_empty() && port.has_room() {
            port.pass(fed.take_waiting(port.spare()));
        }
        let is_full = fed.is_full();
        shard.stop_for_feed(is_full);
    }
}
