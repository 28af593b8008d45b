//! How many commands of a core wait for sections at once. Each has client numbers of the core, of
//! which there are some thousands, and a place in the queue of each shard that it waits for.

use std::cell::Cell;
use std::rc::Rc;

use farcore::Core;

/// Commands of a core that enter sections at once, at most: half of the clients of a lane that a
/// shard has wait.
const ENTRIES_MAX: usize = 256;

/// How many commands enter sections.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    count: Cell<usize>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entry(Rc<Entries>);

impl Entries {
    /// Waits until a command may enter.
    pub(crate) async fn enter(self: &Rc<Self>, core: &Core) -> Entry {
        while self.count.get() >= ENTRIES_MAX {
            core.yield_now().await;
        }
        self.count.set(self.count.get() + 1);
        Entry(Rc::clone(self))
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
    fn no_more_commands_enter_than_may() {
        on_first_core(1, |bench| async move {
            let entries = Rc::<Entries>::default();
            let mut taken = Vec::new();
            for _ in 0..ENTRIES_MAX {
                taken.push(entries.enter(&bench.core).await);
            }
            let mut next = pin!(entries.enter(&bench.core));
            assert!(poll_once(next.as_mut()).await.is_none());
            taken.pop();
            assert!(poll_once(next.as_mut()).await.is_some());
        });
    }
}
