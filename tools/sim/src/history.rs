//! What clients have called and what was answered, and whether that is linearizable.
//!
//! A shard draws a version for each change, also for a delete, which the simulation exposes. So the
//! changes of a key have a known order, and the check is a sort: each answer must agree with the
//! state between two changes, and with what had ended before its call began.
//!
//! - I1: a request is answered once.
//! - I2: a request that was answered by an error has changed nothing; where the engine has closed,
//!   it may have.

use std::collections::BTreeMap;

/// What a client calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Get,
    /// Stores the value of the call's own number.
    Put,
    Delete,
    Swap(u64),
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// A version, and the number of the call that stored the value.
    Value(u64, u64),
    Absent,
    Stored(u64),
    /// The version that the delete drew.
    Deleted(u64),
    Mismatch(u64),
    /// The name of an error.
    Failed(String),
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) client: usize,
    pub(crate) key: u64,
    pub(crate) call: Call,
    pub(crate) begun: u64,
    pub(crate) ended: Option<(u64, Answered)>,
}

/// All calls of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    entries: Vec<Entry>,
    /// Calls that were not answered.
    open: usize,
}

/// A change that took effect: its version, its call, and whether the key is there after it.
#[derive(Clone, Copy, Debug)]
struct Changed {
    version: u64,
    /// The number of the call that stored a value; `None` for a delete.
    value: Option<u64>,
    begun: u64,
    ended: u64,
}

impl History {
    /// Begins a call; its number.
    pub(crate) fn begin(&mut self, client: usize, key: u64, call: Call, step: u64) -> u64 {
        let number = self.entries.len() as u64;
        self.open += 1;
        self.entries.push(Entry {
            number,
            client,
            key,
            call,
            begun: step,
            ended: None,
        });
        number
    }

    /// Forgets the latest call: it was refused.
    pub(crate) fn refuse(&mut self) {
        self.entries.pop();
        self.open -= 1;
    }

    /// Ends a call.
    ///
    /// # Errors
    /// It has no such call, or has ended before.
    pub(crate) fn end(&mut self, number: u64, answered: Answered, step: u64) -> Result<(), String> {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let entry = self.entries.get_mut(place).ok_or_else(|| {
            format!("an answer to call {number}, which nobody made: {answered:?}")
        })?;
        if let Some(before) = &entry.ended {
            return Err(format!(
                "call {number} was answered twice: {before:?}, then {answered:?}"
            ));
        }
        entry.ended = Some((step, answered));
        self.open -= 1;
        Ok(())
    }

    /// A client has stopped: what becomes of its open calls is not known.
    pub(crate) fn abandon(&mut self, client: usize, step: u64) {
        let open = self.entries.iter_mut().filter(|one| one.ended.is_none());
        for entry in open.filter(|one| one.client == client) {
            entry.ended = Some((step, Answered::Failed("Closed".to_owned())));
            self.open -= 1;
        }
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
        let latest = self
            .entries
            .iter()
            .rev()
            .take(400)
            .find_map(|entry| match &entry.ended {
                Some((_, Answered::Stored(version) | Answered::Value(version, _)))
                    if entry.key == key =>
                {
                    Some(*version)
                }
                _ => None,
            });
        latest.unwrap_or(0)
    }

    /// Calls that were not answered.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.ended.is_none())
    }

    /// Checks every key. `vanishes`: keys may become absent by themselves.
    ///
    /// # Errors
    /// What contradicts what.
    pub(crate) fn check(&self, vanishes: bool) -> Result<(), String> {
        let mut by_key: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            by_key.entry(entry.key).or_default().push(entry);
        }
        by_key
            .values()
            .try_for_each(|entries| check_key(entries, vanishes))
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind of answer")]
fn check_key(entries: &[&Entry], vanishes: bool) -> Result<(), String> {
    let mut changes = Vec::new();
    for entry in entries {
        let Some((ended, answered)) = &entry.ended else {
            continue;
        };
        let (version, value) = match answered {
            Answered::Stored(version) => (*version, Some(entry.number)),
            Answered::Deleted(version) => (*version, None),
            _ => continue,
        };
        changes.push(Changed {
            version,
            value,
            begun: entry.begun,
            ended: *ended,
        });
    }
    changes.sort_by_key(|change| change.version);
    if let Some(pair) = changes
        .windows(2)
        .find(|pair| pair[0].version == pair[1].version)
    {
        return Err(format!("two changes drew one version: {pair:?}"));
    }
    // Of each prefix of the changes, the latest beginning: no later one may have ended before it.
    let mut latest_begun = 0;
    for change in &changes {
        if change.ended < latest_begun {
            return Err(format!(
                "{change:?} ended before a change of a lower version began, at {latest_begun}"
            ));
        }
        latest_begun = latest_begun.max(change.begun);
    }
    // The highest version of all changes that had ended by a step.
    let mut by_end: Vec<_> = changes.iter().map(|one| (one.ended, one.version)).collect();
    by_end.sort_unstable();
    let mut highest = 0;
    for (_, version) in &mut by_end {
        highest = highest.max(*version);
        *version = highest;
    }
    let of_version = |version: u64| {
        let place = changes.binary_search_by_key(&version, |change| change.version);
        place.ok().map(|place| &changes[place])
    };
    // Some changes may have been made without an answer: what they stored may be seen.
    let may_be_unknown = |number: u64| {
        entries.iter().any(|entry| {
            let stores = matches!(entry.call, Call::Put | Call::Swap(_));
            entry.number == number && stores && is_unknown(entry)
        })
    };
    let changes_begun = entries.iter().filter(|entry| is_unknown(entry));
    let unknown_from = changes_begun.map(|entry| entry.begun).min();
    for entry in entries {
        let Some((ended, answered)) = &entry.ended else {
            continue;
        };
        let any_unknown = unknown_from.is_some_and(|begun| begun < *ended);
        // Changes that had ended before this call began come before it.
        let before = by_end.partition_point(|&(ended, _)| ended < entry.begun);
        let past = before.checked_sub(1).map_or(0, |last| by_end[last].1);
        let next_after = |version: u64| {
            let place = changes.partition_point(|change| change.version <= version);
            changes.get(place)
        };
        let wrong = |why: &str| {
            Err(format!(
                "call {} of client {} on key {}, {:?} in steps {} to {ended}, was answered \
                 {answered:?}: {why}; changes before: up to version {past}; changes: {:?}",
                entry.number,
                entry.client,
                entry.key,
                entry.call,
                entry.begun,
                near(&changes, past)
            ))
        };
        match answered {
            Answered::Value(version, number) => {
                match of_version(*version) {
                    Some(change) if change.value != Some(*number) => {
                        return wrong("this version holds another value");
                    }
                    Some(change) if change.begun > *ended => {
                        return wrong("it was stored after this call");
                    }
                    None if !may_be_unknown(*number) => {
                        return wrong("no call has stored this version");
                    }
                    _ => {}
                }
                // It must have been the key's state at some time during the call.
                if next_after(*version).is_some_and(|next| next.version <= past) {
                    return wrong("a later change had ended before");
                }
            }
            Answered::Mismatch(current) if *current > 0 => {
                if of_version(*current).is_none_or(|change| change.value.is_none()) && !any_unknown
                {
                    return wrong("no call has stored this version");
                }
                if next_after(*current).is_some_and(|next| next.version <= past) {
                    return wrong("a later change had ended before");
                }
                if entry.call == Call::Swap(*current) {
                    return wrong("it is the expected version");
                }
            }
            Answered::Absent | Answered::Mismatch(_) => {
                // The key is absent from the start, or from a delete, to the next change.
                let mut begins = changes.iter().filter(|change| change.value.is_none());
                let fits =
                    |version: u64| next_after(version).is_none_or(|next| next.version > past);
                let deleted = begins.any(|change| change.begun < *ended && fits(change.version));
                if !deleted && !fits(0) && !vanishes && !any_unknown {
                    return wrong("the key was there");
                }
            }
            Answered::Stored(version) | Answered::Deleted(version) => {
                if *version <= past {
                    return wrong("its version is not above");
                }
                let place = changes.partition_point(|change| change.version < *version);
                let before = place.checked_sub(1).map(|place| &changes[place]);
                let state = before.map_or(0, |change| {
                    if change.value.is_some() {
                        change.version
                    } else {
                        0
                    }
                });
                let is_wrong = match entry.call {
                    Call::Swap(0) => state != 0 && !vanishes,
                    Call::Swap(expected) => state != expected,
                    Call::Delete => state == 0,
                    _ => false,
                };
                if is_wrong && !any_unknown {
                    return wrong("the key was in another state");
                }
            }
            Answered::Failed(_) => {}
        }
    }
    Ok(())
}

/// True if a call may have changed its key although no answer says so: it has none, the engine has
/// closed, or it is the delete of a key whose record was lost.
fn is_unknown(entry: &Entry) -> bool {
    match (&entry.call, &entry.ended) {
        (Call::Get, _) => false,
        (_, None) | (Call::Delete, Some((_, Answered::Failed(_)))) => true,
        (_, Some((_, Answered::Failed(error)))) => error == "Closed",
        _ => false,
    }
}

/// The changes around a version.
fn near(changes: &[Changed], version: u64) -> Vec<Changed> {
    let place = changes.partition_point(|change| change.version < version);
    let from = place.saturating_sub(3);
    changes[from..changes.len().min(place + 4)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(calls: &[(u64, Call, u64, u64, Answered)]) -> Result<(), String> {
        let mut history = History::default();
        for (key, call, begun, ended, answered) in calls {
            let number = history.begin(0, *key, *call, *begun);
            history.end(number, answered.clone(), *ended)?;
        }
        history.check(false)
    }

    #[test]
    fn what_agrees_with_an_order_passes() {
        let calls = [
            (1, Call::Get, 0, 1, Answered::Absent),
            (1, Call::Put, 2, 9, Answered::Stored(4)),
            // At the same time: before it or after it.
            (1, Call::Get, 3, 4, Answered::Value(4, 1)),
            (1, Call::Delete, 10, 11, Answered::Deleted(7)),
            (1, Call::Get, 12, 13, Answered::Absent),
            (1, Call::Swap(4), 14, 15, Answered::Mismatch(0)),
            (1, Call::Swap(0), 16, 17, Answered::Stored(8)),
            (1, Call::Get, 18, 19, Answered::Failed("Unavailable".into())),
        ];
        assert_eq!(history(&calls), Ok(()));
    }

    #[test]
    fn stale_lost_and_invented_answers_are_found() {
        let put = (1, Call::Put, 0, 1, Answered::Stored(4));
        let later = (1, Call::Put, 2, 3, Answered::Stored(6));
        let get = |answered| (1, Call::Get, 4, 5, answered);
        for wrong in [
            vec![put.clone(), later.clone(), get(Answered::Value(4, 0))],
            vec![put.clone(), get(Answered::Absent)],
            vec![put.clone(), get(Answered::Value(5, 0))],
            vec![put.clone(), later.clone(), get(Answered::Value(6, 0))],
            vec![put.clone(), (1, Call::Put, 2, 3, Answered::Stored(4))],
            vec![put.clone(), (1, Call::Put, 2, 3, Answered::Stored(3))],
            vec![
                put.clone(),
                later,
                (1, Call::Swap(4), 4, 5, Answered::Stored(9)),
            ],
            vec![
                put.clone(),
                (1, Call::Delete, 2, 3, Answered::Deleted(5)),
                (1, Call::Delete, 4, 5, Answered::Deleted(6)),
            ],
            vec![
                put,
                (1, Call::Delete, 2, 3, Answered::Deleted(5)),
                get(Answered::Value(4, 0)),
            ],
        ] {
            assert!(history(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_second_answer_is_found() {
        let mut history = History::default();
        let number = history.begin(0, 1, Call::Get, 0);
        assert_eq!(history.end(number, Answered::Absent, 1), Ok(()));
        assert!(history.end(number, Answered::Absent, 2).is_err());
        assert!(history.end(7, Answered::Absent, 2).is_err());
    }
}
