//! A link in virtual time: a latency, a bandwidth and a limit on transfers in flight.
//!
//! - I1: transfers start in the order in which they were scheduled, and each gets the whole
//!   bandwidth; so they end in this order, too.

use std::collections::VecDeque;

use super::settings::LinkSettings;
use super::time::{Ps, from_ns};

#[derive(Debug)]
pub(super) struct Link {
    latency: Ps,
    bytes_s: f64,
    transfers_max: usize,
    /// When the last scheduled transfer leaves the wire.
    free_at: Ps,
    /// When transfers in flight end.
    ends: VecDeque<Ps>,
    busy: Ps,
    bytes: u64,
}

impl Link {
    pub(super) fn new(settings: &LinkSettings) -> Self {
        Self {
            latency: from_ns(settings.latency_ns),
            bytes_s: settings.bytes_s,
            transfers_max: settings.transfers_max as usize,
            free_at: 0,
            ends: VecDeque::new(),
            busy: 0,
            bytes: 0,
        }
    }

    /// Starts a transfer as soon as the link can; returns when its last byte is there.
    pub(super) fn transfer(&mut self, at: Ps, bytes: u64) -> Ps {
        let mut start = at.max(self.free_at);
        while self.ends.front().is_some_and(|&end| end <= start) {
            self.ends.pop_front();
        }
        if self.ends.len() >= self.transfers_max
            && let Some(end) = self.ends.pop_front()
        {
            start = end;
        }
        let wire = from_ns(bytes as f64 / self.bytes_s * 1e9);
        self.free_at = start + wire;
        let end = start + wire + self.latency;
        self.busy += wire.max((end - start) / self.transfers_max as u64);
        self.bytes += bytes;
        self.ends.push_back(end);
        end
    }

    /// How long a transfer would wait for its start.
    pub(super) fn backlog(&mut self, at: Ps) -> Ps {
        while self.ends.front().is_some_and(|&end| end <= at) {
            self.ends.pop_front();
        }
        let wire = self.free_at.saturating_sub(at);
        let Some(over) = self.ends.len().checked_sub(self.transfers_max) else {
            return wire;
        };
        wire.max(self.ends[over].saturating_sub(at))
    }

    /// How much of the link was used, so far, as time of the whole link: of its wire or of its
    /// transfers in flight, whichever is scarcer.
    pub(super) fn busy(&self) -> Ps {
        self.busy
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(transfers_max: u32) -> Link {
        Link::new(&LinkSettings {
            latency_ns: 100.0,
            bytes_s: 1e9,
            transfers_max,
        })
    }

    #[test]
    fn a_transfer_takes_its_bytes_and_the_latency() {
        let mut link = link(8);
        assert_eq!(link.transfer(0, 10), 110_000);
        // The wire is busy for 10 ns; latencies overlap.
        assert_eq!(link.backlog(4_000), 6_000);
        assert_eq!(link.transfer(4_000, 20), 130_000);
        // The wire for the second; an eighth of 110 ns for the first.
        assert_eq!((link.busy(), link.bytes()), (33_750, 30));
        assert_eq!(link.backlog(200_000), 0);
    }

    #[test]
    fn no_more_than_the_limit_are_in_flight() {
        let mut link = link(2);
        assert_eq!(link.transfer(0, 1), 101_000);
        assert_eq!(link.transfer(0, 1), 102_000);
        assert_eq!(link.backlog(5_000), 96_000);
        assert_eq!(link.transfer(5_000, 1), 202_000);
        assert_eq!(link.transfer(5_000, 1), 203_000);
    }
}
