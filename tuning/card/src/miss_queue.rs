//! The queue of misses: keys that wait for a batch. Bounded, for any number of producers and
//! consumers, without locks.
//!
//! Each cell has a sequence that says whose turn it is (Vyukov, "Bounded MPMC queue", 2010): `at`
//! for the producer of the position `at`, `at + 1` for its consumer, and `at + capacity` for the
//! producer one round later.
//!
//! - I1: every key that was pushed is popped once, and keys of one producer come in its order.

use super::atomics::{AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Cell {
    sequence: AtomicU64,
    key: AtomicU64,
}

/// A bounded queue of keys.
#[derive(Debug)]
pub struct MissQueue {
    cells: Box<[Cell]>,
    mask: u64,
    head: AtomicU64,
    tail: AtomicU64,
}

impl MissQueue {
    /// A queue for at least this many keys, rounded up to a power of two of at least 2.
    #[must_use]
    pub fn new(keys: u32) -> Self {
        let capacity = u64::from(keys).next_power_of_two().max(2);
        let cell = |at| Cell {
            sequence: AtomicU64::new(at),
            key: AtomicU64::new(0),
        };
        Self {
            cells: (0..capacity).map(cell).collect(),
            mask: capacity - 1,
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
        }
    }

    fn cell(&self, at: u64) -> &Cell {
        #[expect(clippy::cast_possible_truncation, reason = "masked by the capacity")]
        let place = (at & self.mask) as usize;
        &self.cells[place]
    }

    /// Adds a key; false if the queue is full.
    pub fn push(&self, key: u32) -> bool {
        // ORDERING: a guess; the cell's sequence decides.
        let mut at = self.tail.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(at);
            // ORDERING: with the consumer's release of the cell.
            let sequence = cell.sequence.load(Ordering::Acquire);
            if sequence == at {
                // ORDERING: the position alone; the cell's sequence publishes the key.
                let claimed = self.tail.compare_exchange_weak(
                    at,
                    at + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match claimed {
                    Ok(_) => {
                        // ORDERING: published by the sequence.
                        cell.key.store(u64::from(key), Ordering::Relaxed);
                        // ORDERING: with the consumer's acquire load.
                        cell.sequence.store(at + 1, Ordering::Release);
                        return true;
                    }
                    Err(now) => at = now,
                }
            } else if sequence < at {
                return false;
            } else {
                at = self.tail.load(Ordering::Relaxed);
            }
        }
    }

    /// Takes the oldest key.
    pub fn pop(&self) -> Option<u32> {
        // ORDERING: a guess; the cell's sequence decides.
        let mut at = self.head.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(at);
            // ORDERING: with the producer's release of the cell.
            let sequence = cell.sequence.load(Ordering::Acquire);
            if sequence == at + 1 {
                // ORDERING: the position alone; the acquire load above saw the key.
                let claimed = self.head.compare_exchange_weak(
                    at,
                    at + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match claimed {
                    Ok(_) => {
                        let key = cell.key.load(Ordering::Relaxed);
                        // ORDERING: with the acquire load of the producer one round later.
                        cell.sequence.store(at + self.mask + 1, Ordering::Release);
                        return u32::try_from(key).ok();
                    }
                    Err(now) => at = now,
                }
            } else if sequence < at + 1 {
                return None;
            } else {
                at = self.head.load(Ordering::Relaxed);
            }
        }
    }

    /// The number of keys; exact only while no thread pushes or pops.
    #[must_use]
    pub fn len(&self) -> u64 {
        // ORDERING: an estimate.
        let tail = self.tail.load(Ordering::Relaxed);
        tail.saturating_sub(self.head.load(Ordering::Relaxed))
    }

    /// True if there is no key; exact only while no thread pushes or pops.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_bounded_deque(steps in proptest::collection::vec(any::<Option<u32>>(), 1..200)) {
            let (queue, mut model) = (MissQueue::new(7), VecDeque::new());
            for step in steps {
                match step {
                    Some(key) => {
                        let room = model.len() < 8;
                        prop_assert_eq!(queue.push(key), room);
                        if room {
                            model.push_back(key);
                        }
                    }
                    None => prop_assert_eq!(queue.pop(), model.pop_front()),
                }
                prop_assert_eq!(queue.len(), model.len() as u64);
            }
        }
    }

    #[test]
    fn threads_lose_and_double_nothing() {
        let queue = MissQueue::new(64);
        let each = 20_000_u32;
        let mut seen = std::thread::scope(|scope| {
            for thread in 0..2 {
                let queue = &queue;
                scope.spawn(move || {
                    for key in 0..each {
                        while !queue.push(thread * each + key) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let consume = || {
                let mut seen = Vec::new();
                while seen.len() < each as usize {
                    match queue.pop() {
                        Some(key) => seen.push(key),
                        None => std::thread::yield_now(),
                    }
                }
                seen
            };
            let other = scope.spawn(consume);
            let mut seen = consume();
            seen.extend(other.join().unwrap());
            seen
        });
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..2 * each));
    }
}

#[cfg(all(test, farcore_loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn two_producers_and_a_consumer_lose_nothing() {
        loom::model(|| {
            let queue = Arc::new(MissQueue::new(2));
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.push(1))
            };
            let mut pushed = vec![];
            if queue.push(2) {
                pushed.push(2);
            }
            let mut popped: Vec<u32> = queue.pop().into_iter().collect();
            if other.join().unwrap() {
                pushed.push(1);
            }
            popped.extend(std::iter::from_fn(|| queue.pop()));
            popped.sort_unstable();
            pushed.sort_unstable();
            assert_eq!(popped, pushed);
        });
    }

    #[test]
    fn a_full_queue_is_reused() {
        loom::model(|| {
            let queue = Arc::new(MissQueue::new(2));
            assert!(queue.push(0) && queue.push(1));
            let consumer = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.pop())
            };
            let pushed = queue.push(2);
            assert_eq!(consumer.join().unwrap(), Some(0));
            assert_eq!(queue.pop(), Some(1));
            assert_eq!(queue.pop(), pushed.then_some(2));
        });
    }
}
