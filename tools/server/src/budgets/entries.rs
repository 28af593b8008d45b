//! How many commands of a core wait for sections at once. Each has client numbers of the core, of
//! which there are some thousands, a place in the queue of each shard that it waits for, and a poll
//! a turn. All others rest, in their order, and cost nothing (`tasks/running.rs`).
//!
//! - I1: a command rests only while others enter, each of which wakes one when it has.

use std::cell::Cell;
use std::rc::Rc;

use farcore::Core;

/// Commands of a core that enter sections at once, at most: one more than a shard serves.
const ENTRIES_MAX: usize = 2;

/// How many commands enter sections, and how many rest.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    count: Cell<usize>,
    resting: Cell<usize>,
}

/// One that enters, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entry(Rc<Entries>);

impl Entries {
    /// Waits until a command may enter; it rests while `rests` is set.
    pub(crate) async fn enter(self: &Rc<Self>, core: &Core, rests: &Cell<bool>) -> Entry {
        if self.resting.get() > 0 || self.count.get() >= ENTRIES_MAX {
            self.resting.set(self.resting.get() + 1);
            rests.set(true);
            // Who wakes it has counted it.
            while rests.get() {
                core.yield_now().await;
            }
        } else {
            self.count.set(self.count.get() + 1);
        }
        Entry(Rc::clone(self))
    }

    /// True if the command that rests longest may enter: it is counted as one that does.
    pub(crate) fn wakes(&self) -> bool {
        let wakes = self.resting.get() > 0 && self.count.get() < ENTRIES_MAX;
        if wakes {
            self.resting.set(self.resting.get() - 1);
            self.count.set(self.count.get() + 1);
        }
        wakes
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::poll_once;

    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn no_more_commands_enter_than_may_and_in_their_order() {
        on_first_core(1, |bench| async move {
            let entries = Rc::<Entries>::default();
            let rests = [(); 3].map(|()| Cell::new(false));
            let mut taken = Vec::new();
            for _ in 0..ENTRIES_MAX {
                taken.push(entries.enter(&bench.core, &rests[0]).await);
            }
            assert!(!rests[0].get() && !entries.wakes());
            let mut first = pin!(entries.enter(&bench.core, &rests[1]));
            assert!(poll_once(first.as_mut()).await.is_none() && rests[1].get());
            taken.pop();
            // One that comes now does not overtake it.
            let mut second = pin!(entries.enter(&bench.core, &rests[2]));
            assert!(poll_once(second.as_mut()).await.is_none() && rests[2].get());
            assert!(entries.wakes() && !entries.wakes());
            rests[1].set(false);
            taken.extend(poll_once(first.as_mut()).await);
            assert_eq!(taken.len(), ENTRIES_MAX);
            taken.clear();
            assert!(entries.wakes() && !entries.wakes());
        });
    }
}
