//! Completions that were not taken yet, in order, of both queues of a connection.

use std::collections::VecDeque;

use crate::work::Completion;

/// The queue that a completed request was on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Send,
    Receive,
}

/// The completions of a connection.
#[derive(Debug)]
pub(super) struct Completions {
    waiting: VecDeque<(Side, Completion)>,
    /// The number of receives among them.
    received: usize,
}

impl Completions {
    /// Memory of one, in bytes.
    pub(super) const ENTRY_BYTES: usize = size_of::<(Side, Completion)>();

    pub(super) fn with_capacity(count: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(count),
            received: 0,
        }
    }

    pub(super) fn push(&mut self, side: Side, completion: Completion) {
        self.received += usize::from(side == Side::Receive);
        self.waiting.push_back((side, completion));
    }

    pub(super) fn pop(&mut self) -> Option<Completion> {
        let (side, completion) = self.waiting.pop_front()?;
        self.received -= usize::from(side == Side::Receive);
        Some(completion)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many are of the send queue.
    pub(super) fn sent(&self) -> usize {
        self.waiting.len() - self.received
    }
}
