//! When the host may start further messages.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::arrival::Arrival;
use super::time::{self, Ps};

/// When the host may start further messages.
#[derive(Debug)]
pub(super) enum Window {
    /// When messages in flight end: those that ended in order, and others.
    Closed(VecDeque<Ps>, BinaryHeap<Reverse<Ps>>),
    /// Time between two messages.
    Open(Ps),
    /// The time of the first message, in nanoseconds: virtual time begins there.
    Recorded(u64),
}

impl Window {
    pub(super) fn new(arrival: &Arrival) -> Self {
        match *arrival {
            Arrival::Closed { window } => {
                Self::Closed((0..window).map(|_| 0).collect(), BinaryHeap::new())
            }
            Arrival::Open { messages_s } => Self::Open(time::from_ns(1e9 / messages_s)),
            Arrival::Recorded => Self::Recorded(0),
        }
    }

    /// When the next message may start; `None` while all are in flight.
    #[inline]
    pub(super) fn next(&self) -> Option<Ps> {
        let Self::Closed(ordered, others) = self else {
            return Some(0);
        };
        let other = others.peek().map(|&Reverse(at)| at);
        match (ordered.front(), other) {
            (Some(&one), Some(other)) => Some(one.min(other)),
            (one, other) => one.copied().or(other),
        }
    }

    pub(super) fn take(&mut self) {
        if let Self::Closed(ordered, others) = self {
            let other = others.peek().map(|&Reverse(at)| at);
            let first = ordered.front().copied();
            if first.is_some_and(|first| other.is_none_or(|other| first <= other)) {
                ordered.pop_front();
            } else {
                others.pop();
            }
        }
    }

    #[inline]
    pub(super) fn add(&mut self, end: Ps) {
        if let Self::Closed(ordered, others) = self {
            if ordered.back().is_none_or(|&last| last <= end) {
                ordered.push_back(end);
            } else {
                others.push(Reverse(end));
            }
        }
    }
}
