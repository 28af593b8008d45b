//! Values that are too long for a lane's ring. They travel beside it, in the order of their
//! messages.
//!
//! - I1: the producer adds a value before it publishes the message that announces it, and the
//!   consumer pops it when it reads that message. So the queue holds the values of the messages in
//!   the ring, in their order.
//! - I2: the bytes held never exceed the limit, except for a single value.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;

/// The long values of one direction of a lane.
#[derive(Debug)]
pub(super) struct Oversize {
    values: SegQueue<Vec<u8>>,
    /// Bytes of the values in the queue.
    held: AtomicUsize,
    bytes_max: usize,
}

impl Oversize {
    /// An empty queue of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            values: SegQueue::new(),
            held: AtomicUsize::new(0),
            bytes_max,
        }
    }

    /// True if a value of this many bytes has room beside `reserved` bytes. For the producer.
    pub(super) fn has_room(&self, bytes: usize, reserved: usize) -> bool {
        // ORDERING: pairs with the Release in `take`; only the producer increases it.
        let taken = self.held.load(Ordering::Acquire) + reserved;
        taken == 0 || taken + bytes <= self.bytes_max
    }

    /// Adds a value. For the producer.
    pub(super) fn push(&self, value: Vec<u8>) {
        // ORDERING: publishing the ring's message, which comes later, makes the value visible; the
        // count is for the producer alone.
        self.held.fetch_add(value.len(), Ordering::Relaxed);
        self.values.push(value);
    }

    /// Pops the value of the message that the consumer is handling.
    pub(super) fn take(&self) -> Vec<u8> {
        let value = self.values.pop().unwrap_or_default();
        // ORDERING: pairs with the Acquire in `has_room`.
        self.held.fetch_sub(value.len(), Ordering::Release);
        value
    }
}

#[cfg(all(test, not(farcore_loom)))]
impl Oversize {
    /// Checks the bytes held.
    pub(super) fn check(&self) {
        let held = self.held.load(Ordering::Acquire);
        let is_within = held <= self.bytes_max || self.values.len() <= 1;
        assert!(is_within, "oversize I2: {held} of {}", self.bytes_max);
    }
}

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use super::*;
    use crate::breach::assert_breaks;

    #[test]
    fn the_limit_holds_except_for_a_single_value() {
        let oversize = Oversize::new(100);
        assert!(oversize.has_room(400, 0), "nothing else is there");
        assert!(oversize.has_room(60, 40) && !oversize.has_room(61, 40));
        oversize.push(vec![1; 60]);
        assert!(oversize.has_room(40, 0) && !oversize.has_room(41, 0));
        assert!(!oversize.has_room(40, 1));
        oversize.push(vec![2; 40]);
        oversize.check();
        assert!(!oversize.has_room(1, 0));
        assert_eq!(oversize.take(), [1; 60]);
        assert!(oversize.has_room(60, 0));
        assert_eq!(oversize.take(), [2; 40]);
        assert!(oversize.has_room(400, 0));
        oversize.push(vec![3; 400]);
        oversize.check();
        oversize.push(vec![4; 1]);
        assert_breaks("oversize I2", || oversize.check());
    }
}
