//! What clients have called and what was answered.
//!
//! - I1: a request is answered once.

use std::collections::BTreeMap;

use crate::call::{Answered, Call, Found, TreeCall};
use crate::collections::{self, Model};
use crate::keys;

/// What is known of time while a call was under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) step: u64,
    /// The time of the world.
    pub(crate) ns: u64,
    /// What the engine's time for keys that expire is at least, in milliseconds.
    pub(crate) floor_ms: u64,
    /// And at most.
    pub(crate) ceiling_ms: u64,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) client: usize,
    /// Calls of this client on one key keep their order.
    pub(crate) is_ordered: bool,
    pub(crate) call: Call,
    pub(crate) begun: Moment,
    pub(crate) ended: Option<(Moment, Answered)>,
}

impl Entry {
    /// True if it may have changed something although no answer says so: it has none, its client or
    /// the engine has ended, or it is the delete of a key whose record was lost.
    pub(crate) fn is_unknown(&self) -> bool {
        match (&self.call, &self.ended) {
            (Call::Get { .. } | Call::GetTree { .. } | Call::Scan { .. }, _) => false,
            (_, None)
            | (Call::Delete { .. } | Call::DeleteTree { .. }, Some((_, Answered::Failed(_)))) => {
                true
            }
            (_, Some((_, Answered::Failed(error)))) => error == "Closed",
            _ => false,
        }
    }
}

/// By the name of a key that shares its slot with another one, the shard and the bits of that slot.
pub(crate) type Twins = BTreeMap<String, (u16, u64)>;

/// What the check of a history may rely on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules<'a> {
    /// Keys may become absent by themselves.
    pub(crate) vanishes: bool,
    /// Keys that may be taken for others whose records were lost or damaged: deleted without being
    /// there, or left uncounted by a scan that lists the other.
    pub(crate) mistakes: Option<&'a Twins>,
}

impl Rules<'_> {
    /// The slot of a key that may be taken for another one.
    pub(crate) fn mistaken(&self, name: &str) -> Option<(u16, u64)> {
        self.mistakes?.get(name).copied()
    }
}

/// All calls of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The number of the first call.
    first: u64,
    /// What was there before: calls of earlier histories by which keys have what they have.
    base: Vec<Entry>,
    /// And collections.
    trees: BTreeMap<u64, Model>,
    entries: Vec<Entry>,
    /// Calls that were not answered.
    open: usize,
}

impl History {
    /// One whose calls are numbered from here on.
    pub(crate) fn from(first: u64) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }

    /// The number of the next call.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Says what was there before.
    pub(crate) fn set_base(&mut self, base: Vec<Entry>, trees: BTreeMap<u64, Model>) {
        (self.base, self.trees) = (base, trees);
    }

    /// True if keys were there before.
    pub(crate) fn has_base(&self) -> bool {
        !self.base.is_empty()
    }

    /// What collections were before.
    pub(crate) fn trees(&self) -> &BTreeMap<u64, Model> {
        &self.trees
    }

    /// All calls, those by which keys had what they had first.
    pub(crate) fn all(&self) -> Vec<Entry> {
        let all = self.base.iter().chain(&self.entries);
        all.cloned().collect()
    }

    fn place(&self, number: u64) -> usize {
        let place = number.checked_sub(self.first);
        usize::try_from(place.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
    }

    /// Begins a call; its number.
    pub(crate) fn begin(
        &mut self,
        (client, is_ordered): (usize, bool),
        call: Call,
        begun: Moment,
    ) -> u64 {
        let number = self.next();
        self.open += 1;
        self.entries.push(Entry {
            number,
            client,
            is_ordered,
            call,
            begun,
            ended: None,
        });
        number
    }

    /// Forgets the latest call: it was refused.
    pub(crate) fn refuse(&mut self) {
        self.entries.pop();
        self.open -= 1;
    }

    /// The call of a number.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn call(&self, number: u64) -> Result<&Call, String> {
        let entry = self.entries.get(self.place(number));
        let entry =
            entry.ok_or_else(|| format!("an answer to call {number}, which was not made"))?;
        Ok(&entry.call)
    }

    /// Ends a call.
    ///
    /// # Errors
    /// It has no such call, or has ended before.
    pub(crate) fn end(
        &mut self,
        number: u64,
        answered: Answered,
        ended: Moment,
    ) -> Result<(), String> {
        self.call(number)?;
        let place = self.place(number);
        let entry = &mut self.entries[place];
        if let Some(before) = &entry.ended {
            return Err(format!(
                "call {number} was answered twice: {before:?}, then {answered:?}"
            ));
        }
        entry.ended = Some((ended, answered));
        self.open -= 1;
        Ok(())
    }

    /// A client has stopped: what becomes of its open calls is not known.
    pub(crate) fn abandon(&mut self, client: usize, ended: Moment) {
        let open = self.entries.iter_mut().filter(|one| one.ended.is_none());
        for entry in open.filter(|one| one.client == client) {
            entry.ended = Some((ended, Answered::Failed("Closed".to_owned())));
            self.open -= 1;
        }
    }

    /// The engine is gone: what becomes of open calls is not known.
    pub(crate) fn abandon_all(&mut self, ended: Moment) {
        for entry in self.entries.iter_mut().filter(|one| one.ended.is_none()) {
            entry.ended = Some((ended, Answered::Failed("Closed".to_owned())));
        }
        self.open = 0;
    }

    /// True once every call was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.open == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The version that was answered last about a key; 0 if there is none.
    pub(crate) fn latest_version(&self, key: u64) -> u64 {
        let latest = self.entries.iter().rev().take(400).find_map(|entry| {
            let (Call::Get { key: of, .. }
            | Call::Put { key: of, .. }
            | Call::Swap { key: of, .. }) = &entry.call
            else {
                return None;
            };
            let (_, answered) = entry.ended.as_ref()?;
            match answered {
                Answered::Stored(version) | Answered::Value(version, _) if *of == key => {
                    Some(*version)
                }
                _ => None,
            }
        });
        latest.unwrap_or(0)
    }

    /// The version that was answered last about a collection; 0 if there is none.
    pub(crate) fn latest_tree_version(&self, tree: u64) -> u64 {
        let latest = self.entries.iter().rev().take(400).find_map(|entry| {
            match (&entry.call, entry.ended.as_ref()) {
                (Call::Tree { tree: of, .. }, Some((_, Answered::Tree(version, _)))) => {
                    (*of == tree).then_some(*version)
                }
                _ => None,
            }
        });
        latest.unwrap_or(0)
    }

    /// The number of the value that was last seen in, or stored in, an element of a map.
    pub(crate) fn latest_element(&self, tree: u64, element: u64) -> Option<u64> {
        self.entries.iter().rev().take(400).find_map(|entry| {
            let Call::Tree { tree: of, call, .. } = &entry.call else {
                return None;
            };
            let (_, answered) = entry.ended.as_ref().filter(|_| *of == tree)?;
            match (call, answered) {
                (TreeCall::Insert(of, _), Answered::Tree(..)) => {
                    (*of == element).then_some(entry.number)
                }
                (TreeCall::Get(of), Answered::Tree(_, Found::Value(value))) => {
                    (*of == element).then_some(*value)
                }
                _ => None,
            }
        })
    }

    /// Calls that were not answered.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.ended.is_none())
    }

    /// How long calls took that were answered by no error, in nanoseconds of the world.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter_map(|entry| {
            let (ended, answered) = entry.ended.as_ref()?;
            let is_error = matches!(answered, Answered::Failed(_));
            (!is_error).then(|| ended.ns.saturating_sub(entry.begun.ns))
        })
    }

    /// All calls from a number on.
    pub(crate) fn since(&self, number: usize) -> &[Entry] {
        &self.entries[number..]
    }

    /// Checks every key and every collection. `names`: those of the keys.
    ///
    /// # Errors
    /// What contradicts what.
    pub(crate) fn check(&self, names: &[String], rules: Rules<'_>) -> Result<(), String> {
        if self.base.is_empty() {
            keys::check(&self.entries, names, rules)?;
        } else {
            keys::check(&self.all(), names, rules)?;
        }
        collections::check(&self.entries, &self.trees, rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_answer_is_found() {
        let mut history = History::default();
        let call = Call::Get {
            key: 1,
            is_long: false,
        };
        let number = history.begin((0, true), call, Moment::default());
        let mut end = |number| history.end(number, Answered::Absent, Moment::default());
        assert_eq!(end(number), Ok(()));
        assert!(end(number).is_err());
        assert!(end(7).is_err());
    }
}
