//! Scripts of a core that wait for the sections of the same shards. One of them enters, and those
//! behind it run under the same entry, one after the other. What a core's turn does for them stands
//! in `turn/script_turns.rs`.
//!
//! - I1: the scripts of an entry begin within [`ENTRY_FOR`] of it: others wait for these shards.
//! - I2: with far memory, a script begins under an entry that has looked at its keys.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use farcore::Core;

use crate::exec::transaction::Reach;

/// How long scripts begin under one entry.
const ENTRY_FOR: Duration = Duration::from_micros(500);
/// Queues of a core. Scripts of other shards enter alone.
const QUEUES_MAX: usize = 64;

/// Sections between two scripts.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) core: Core,
    pub(crate) since: Instant,
}

impl Entry {
    /// True if another script may begin under it.
    pub(crate) fn is_fresh(&self) -> bool {
        self.since.elapsed() < ENTRY_FOR
    }
}

/// Scripts that wait for the sections of the same shards.
#[derive(Debug)]
pub(crate) struct ScriptQueue {
    reach: Reach,
    /// Their connections, in the order in which they came.
    pub(crate) waiting: VecDeque<usize>,
    /// The first ones of these, at whose keys the entry has looked.
    pub(crate) near: usize,
    /// The connection whose script enters, or runs under the entry.
    pub(crate) holder: Option<usize>,
    /// The entry, while no script runs under it.
    pub(crate) free: Option<Entry>,
    /// The entry has been free for a turn in which clients could send more.
    pub(crate) has_rested: bool,
}

impl ScriptQueue {
    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// Removes the connection that is next.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        self.near = self.near.saturating_sub(1);
        self.waiting.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.holder.is_none() && self.free.is_none()
    }
}

/// The queues of a core.
#[derive(Debug, Default)]
pub(crate) struct ScriptQueues {
    queues: Vec<ScriptQueue>,
}

impl ScriptQueues {
    /// True if no script waits or runs under an entry. Cost: one load.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Has the script of a connection wait for sections, or enter them: true if it is to enter.
    pub(crate) fn admit(&mut self, reach: Reach, connection: usize) -> bool {
        if let Some(queue) = self.of(reach) {
            queue.waiting.push_back(connection);
            return false;
        }
        if self.queues.len() < QUEUES_MAX {
            self.queues.push(ScriptQueue {
                reach,
                waiting: VecDeque::new(),
                near: 0,
                holder: Some(connection),
                free: None,
                has_rested: false,
            });
        }
        true
    }

    /// Takes the entry of some shards for the script of a connection, which begins at once, if
    /// one is there under which another script may begin.
    pub(crate) fn take_free(&mut self, reach: Reach, connection: usize) -> Option<Entry> {
        let queue = self.of(reach)?;
        let is_free = queue.holder.is_none() && queue.free.as_ref().is_some_and(Entry::is_fresh);
        if !is_free {
            return None;
        }
        queue.holder = Some(connection);
        queue.free.take()
    }

    /// Keeps the sections of a script that has ended. They are left if no other is to follow.
    pub(crate) fn give_back(&mut self, reach: Reach, connection: usize, entry: Entry) {
        if let Some(queue) = self.of(reach)
            && queue.holder == Some(connection)
        {
            (queue.holder, queue.has_rested) = (None, false);
            queue.free = entry.is_fresh().then_some(entry);
        }
    }

    /// The queue at a place. Those before it are of use, and one that is not is removed.
    pub(crate) fn at(&mut self, place: usize) -> Option<&mut ScriptQueue> {
        while self.queues.get(place).is_some_and(ScriptQueue::is_empty) {
            self.queues.swap_remove(place);
        }
        self.queues.get_mut(place)
    }

    fn of(&mut self, reach: Reach) -> Option<&mut ScriptQueue> {
        self.queues.iter_mut().find(|queue| queue.reach == reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn a_script_begins_at_once_under_an_entry_that_is_free_and_fresh() {
        on_first_core(1, |bench| async move {
            let (mut queues, mut reach) = (ScriptQueues::default(), Reach::default());
            reach.add(0);
            assert!(queues.take_free(reach, 1).is_none() && queues.admit(reach, 1));
            assert!(queues.take_free(reach, 2).is_none(), "it is held");
            let entry = |age: Duration| Entry {
                core: bench.core.another(),
                since: Instant::now().checked_sub(age).expect("it runs for longer"),
            };
            queues.give_back(reach, 1, entry(Duration::ZERO));
            assert!(queues.take_free(Reach::default(), 2).is_none());
            let taken = queues.take_free(reach, 2).expect("it is free");
            assert!(queues.take_free(reach, 3).is_none(), "it is held again");
            queues.give_back(reach, 1, entry(Duration::ZERO));
            assert!(queues.take_free(reach, 3).is_none(), "of another script");
            queues.give_back(reach, 2, taken);
            assert!(queues.take_free(reach, 3).is_some());
            queues.give_back(reach, 3, entry(ENTRY_FOR));
            assert!(queues.take_free(reach, 4).is_none(), "others wait");
        });
    }

    #[test]
    fn one_script_enters_and_others_wait_behind_it() {
        let (mut queues, mut reach, mut other) =
            (ScriptQueues::default(), Reach::default(), Reach::default());
        reach.add(0);
        other.add(1);
        assert!(queues.is_empty());
        assert!(queues.admit(reach, 1) && !queues.admit(reach, 2) && !queues.admit(reach, 3));
        assert!(queues.admit(other, 4));
        let queue = queues.at(0).expect("one");
        assert_eq!((queue.holder, queue.waiting.len()), (Some(1), 2));
        queue.near = 1;
        assert_eq!((queue.pop(), queue.near), (Some(2), 0));
        assert_eq!((queue.pop(), queue.near), (Some(3), 0));
        queue.holder = None;
        assert_eq!(queues.at(0).expect("the other").reach(), other);
        queues.at(0).expect("it").holder = None;
        assert!(queues.at(0).is_none() && queues.is_empty());
        for shard in 0..100 {
            let mut reach = Reach::default();
            reach.add(shard);
            assert!(queues.admit(reach, shard));
        }
        assert_eq!(queues.queues.len(), QUEUES_MAX);
    }
}
