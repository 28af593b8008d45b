//! The mark that a device returns in a completion: the queue pair, its queue and the request.
//!
//! Packs all three into the 64 bits of a work id.

/// Which of a queue pair's two queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Send,
    Receive,
}

/// The mark of a request at the device: `side:1 | queue:15 | number:48`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark(u64);

const NUMBER_BITS: u32 = 48;
pub(super) const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Limit on the queue pairs of an endpoint.
pub(super) const QUEUES_MAX: usize = 1 << 15;

impl Mark {
    pub(super) fn new(side: Side, queue: usize, number: u64) -> Self {
        let side = u64::from(side == Side::Receive);
        Self(side << 63 | (queue as u64) << NUMBER_BITS | number & NUMBER_MASK)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn side(self) -> Side {
        if self.0 >> 63 == 1 {
            Side::Receive
        } else {
            Side::Send
        }
    }

    pub(super) fn queue(self) -> usize {
        ((self.0 >> NUMBER_BITS) & (QUEUES_MAX as u64 - 1)) as usize
    }

    pub(super) fn number(self) -> u64 {
        self.0 & NUMBER_MASK
    }
}
