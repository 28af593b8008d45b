//! Whether what was answered about collections agrees with a model of them.
//!
//! Every change of a collection draws a version, and the deletion of its key too, so the order of
//! all changes is known. They are done again on a model in that order. Each answer of a change must
//! be the model's, and each answer of a read that of the model at a moment when the read may have
//! been served.
//!
//! Even collections are maps, odd ones lists.

use std::collections::{BTreeMap, VecDeque};

use farcore::TreeCondition;

use crate::call::{Answered, Call, Found, TreeCall, pushed};
use crate::history::{Entry, Rules};

/// A collection as it should be: the numbers of its values.
#[derive(Clone, Debug)]
enum Model {
    Map(BTreeMap<u64, u64>),
    List(VecDeque<u64>),
}

/// A call with its answer.
#[derive(Clone, Copy, Debug)]
struct Item<'a> {
    entry: &'a Entry,
    /// `None` for the deletion of the key.
    call: Option<TreeCall>,
    answered: &'a Answered,
    ended: u64,
    /// The version that it drew, if it is a change.
    drew: Option<u64>,
}

/// Checks every collection.
pub(crate) fn check(entries: &[Entry], rules: Rules) -> Result<(), String> {
    let mut trees: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        if let Call::Tree { tree, .. } | Call::DeleteTree { tree } = entry.call {
            trees.entry(tree).or_default().push(entry);
        }
    }
    for (tree, entries) in trees {
        // What was evicted is gone without a version.
        if !rules.vanishes {
            check_tree(tree, &entries).map_err(|error| format!("collection {tree}: {error}"))?;
        }
    }
    Ok(())
}

/// The item of a call that was answered; `None` where nothing is known of it.
fn item(entry: &Entry) -> Option<Item<'_>> {
    let (ended, answered) = entry.ended.as_ref()?;
    let call = match entry.call {
        Call::Tree { call, .. } => Some(call),
        _ => None,
    };
    let drew = match (call, answered) {
        (_, Answered::Failed(_)) => return None,
        (None, Answered::Deleted(version)) => Some(*version),
        (Some(call), Answered::Tree(version, found)) if is_change(call, found) => Some(*version),
        _ => None,
    };
    Some(Item {
        entry,
        call,
        answered,
        ended: ended.step,
        drew,
    })
}

/// True if a call that found this has changed its collection.
fn is_change(call: TreeCall, found: &Found) -> bool {
    match (call, found) {
        (TreeCall::Push(_, count), _) => count > 0,
        (TreeCall::Pop(..), Found::Page(_, elements)) => !elements.is_empty(),
        (TreeCall::RemoveRanks(..), Found::Removed(count, _)) => *count > 0,
        _ => matches!(
            call,
            TreeCall::Insert(..) | TreeCall::Remove(_) | TreeCall::InsertAt(_) | TreeCall::SetAt(_)
        ),
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "one pass over the states of a collection"
)]
fn check_tree(tree: u64, entries: &[&Entry]) -> Result<(), String> {
    // What may come after a change of which it is not known whether it was made is not checked.
    let unknown = entries.iter().filter(|entry| entry.is_unknown());
    let end = unknown
        .map(|entry| entry.begun.step)
        .min()
        .unwrap_or(u64::MAX);
    let items: Vec<_> = entries.iter().filter_map(|entry| item(entry)).collect();
    let mut changes: Vec<_> = items.iter().filter(|item| item.drew.is_some()).collect();
    changes.sort_by_key(|item| item.drew);
    let mut latest_begun = 0;
    for pair in changes.windows(2) {
        if pair[0].drew == pair[1].drew {
            return Err(format!("two changes drew one version: {pair:?}"));
        }
    }
    for change in &changes {
        if change.ended < latest_begun {
            return Err(format!(
                "{change:?} ended before a change of a lower version began"
            ));
        }
        latest_begun = latest_begun.max(change.entry.begun.step);
    }
    // By end, the number of changes that come before what begins then.
    let mut by_end: Vec<_> = (1..)
        .zip(&changes)
        .map(|(count, one)| (one.ended, count))
        .collect();
    by_end.sort_unstable();
    let mut most = 0;
    for (_, count) in &mut by_end {
        most = most.max(*count);
        *count = most;
    }
    let before = |step: u64| -> usize {
        let place = by_end.partition_point(|&(ended, _)| ended < step);
        place.checked_sub(1).map_or(0, |last| by_end[last].1)
    };
    let sure = changes
        .iter()
        .take_while(|change| change.ended < end)
        .count();
    // For each number of changes the reads that may have come then.
    let mut reads: Vec<Vec<usize>> = vec![Vec::new(); changes.len() + 1];
    let mut agrees = vec![false; items.len()];
    let mut known: BTreeMap<usize, usize> = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        let own = known.entry(item.entry.client).or_default();
        if let Some(drew) = item.drew {
            let count = changes.partition_point(|one| one.drew <= Some(drew));
            if item.entry.is_ordered && count <= *own {
                return Err(format!(
                    "{item:?} came before an earlier call of its client"
                ));
            }
            *own = count;
            continue;
        }
        let mut from = before(item.entry.begun.step);
        if item.entry.is_ordered {
            from = from.max(*own);
        }
        let could = |one: &&Item<'_>| one.entry.begun.step <= item.ended;
        let until = from + changes[from..].iter().take_while(|one| could(one)).count();
        agrees[place] = until > sure || item.ended >= end;
        for reads in &mut reads[from..=until] {
            reads.push(place);
        }
    }
    let mut model = match tree % 2 {
        0 => Model::Map(BTreeMap::new()),
        _ => Model::List(VecDeque::new()),
    };
    for (count, places) in reads.iter().enumerate().take(sure + 1) {
        if let Some(change) = count.checked_sub(1).map(|place| changes[place]) {
            model
                .change(change)
                .map_err(|why| format!("{change:?}: {why}"))?;
        }
        let version = count.checked_sub(1).and_then(|place| changes[place].drew);
        for &place in places {
            agrees[place] |= model.agrees(&items[place], version.unwrap_or(0));
        }
    }
    for (item, agrees) in items.iter().zip(agrees) {
        if item.drew.is_none() && !agrees {
            return Err(format!(
                "{item:?}: it agrees with no state between those that it may have seen"
            ));
        }
    }
    Ok(())
}

impl Model {
    fn len(&self) -> u64 {
        match self {
            Self::Map(map) => map.len() as u64,
            Self::List(list) => list.len() as u64,
        }
    }

    fn at(&self, rank: u64) -> Option<(u64, u64)> {
        let rank = usize::try_from(rank).ok()?;
        match self {
            Self::Map(map) => map.iter().nth(rank).map(|(&key, &value)| (key, value)),
            Self::List(list) => list.get(rank).map(|&value| (0, value)),
        }
    }

    fn remove_at(&mut self, rank: u64) {
        let Ok(place) = usize::try_from(rank) else {
            return;
        };
        match self {
            Self::Map(map) => {
                let key = map.keys().nth(place).copied();
                key.map(|key| map.remove(&key));
            }
            Self::List(list) => drop(list.remove(place)),
        }
    }

    /// Makes a change, and compares what was answered.
    #[expect(clippy::too_many_lines, reason = "one arm per call")]
    fn change(&mut self, item: &Item<'_>) -> Result<(), String> {
        let number = item.entry.number;
        let before = self.len();
        let found = match (item.call, item.answered) {
            (Some(call), Answered::Tree(_, found)) => (call, found),
            _ => {
                match self {
                    Self::Map(map) => map.clear(),
                    Self::List(list) => list.clear(),
                }
                return if before == 0 {
                    Err("there was nothing to delete".into())
                } else {
                    Ok(())
                };
            }
        };
        let expect = |holds: bool, why: String| if holds { Ok(()) } else { Err(why) };
        match (found, &mut *self) {
            ((TreeCall::Insert(element, condition), Found::Before(seen)), Self::Map(map)) => {
                let known = map.insert(element, number);
                let fits = match condition {
                    TreeCondition::Always => true,
                    TreeCondition::IfAbsent => known.is_none(),
                    TreeCondition::IfPresent => known.is_some(),
                };
                expect(known == *seen && fits, format!("it held {known:?}"))
            }
            ((TreeCall::Remove(element), Found::Value(seen)), Self::Map(map)) => {
                let known = map.remove(&element);
                expect(known == Some(*seen), format!("it held {known:?}"))
            }
            ((TreeCall::Push(front, count), Found::Number(len)), Self::List(list)) => {
                for value in pushed(number, count) {
                    if front {
                        list.push_front(value);
                    } else {
                        list.push_back(value);
                    }
                }
                expect(self.len() == *len, format!("{before} elements were there"))
            }
            ((TreeCall::InsertAt(rank), Found::Number(len)), Self::List(list)) => {
                let place = usize::try_from(rank).unwrap_or(usize::MAX);
                expect(rank <= before, format!("there were {before} elements"))?;
                list.insert(place, number);
                expect(self.len() == *len, format!("{before} elements were there"))
            }
            ((TreeCall::SetAt(rank), Found::Value(seen)), Self::List(list)) => {
                let place = usize::try_from(rank).unwrap_or(usize::MAX);
                let known = list
                    .get_mut(place)
                    .map(|value| std::mem::replace(value, number));
                expect(known == Some(*seen), format!("it held {known:?}"))
            }
            ((TreeCall::Pop(last, limit), Found::Page(more, elements)), _) => {
                expect(
                    elements.len() as u64 <= u64::from(limit),
                    "it took too many".into(),
                )?;
                for element in elements {
                    let rank = if last {
                        self.len().saturating_sub(1)
                    } else {
                        0
                    };
                    let known = self.at(rank);
                    expect(known == Some(*element), format!("{known:?} was there"))?;
                    self.remove_at(rank);
                }
                expect(
                    *more == (self.len() > 0),
                    format!("{} are left", self.len()),
                )
            }
            ((TreeCall::RemoveRanks(start, end), Found::Removed(count, more)), _) => {
                let wanted = end.min(before).saturating_sub(start);
                expect(*count <= wanted, format!("{before} elements were there"))?;
                for _ in 0..*count {
                    self.remove_at(start);
                }
                expect(
                    *more == (*count < wanted),
                    format!("{before} elements were there"),
                )
            }
            _ => Err("it cannot have changed anything".into()),
        }
    }

    /// True if what a read was answered is so in this state, whose latest change drew a version.
    fn agrees(&self, item: &Item<'_>, version: u64) -> bool {
        let (call, answered) = match (item.call, item.answered) {
            (None, Answered::Absent) => return self.len() == 0,
            (None, _) => return false,
            (Some(call), answered) => (call, answered),
        };
        match (call, answered) {
            (
                TreeCall::Get(key) | TreeCall::Remove(key) | TreeCall::Rank(key),
                Answered::Absent,
            ) => {
                matches!(self, Self::Map(map) if !map.contains_key(&key))
            }
            (TreeCall::InsertAt(rank), Answered::Absent) => rank > self.len(),
            (TreeCall::SetAt(rank), Answered::Absent) => rank >= self.len(),
            (TreeCall::Insert(key, condition), Answered::Mismatch(_)) => match self {
                Self::Map(map) => map.contains_key(&key) == (condition == TreeCondition::IfAbsent),
                Self::List(_) => false,
            },
            (call, Answered::Tree(seen, found)) => {
                // One that is empty has no version.
                let is_then = if self.len() == 0 {
                    *seen == 0 || *seen == version
                } else {
                    *seen == version
                };
                is_then && self.holds(call, found)
            }
            _ => false,
        }
    }

    fn holds(&self, call: TreeCall, found: &Found) -> bool {
        match (call, found, self) {
            (TreeCall::Len, Found::Number(len), _) => *len == self.len(),
            (TreeCall::Get(key), Found::Value(value), Self::Map(map)) => {
                map.get(&key) == Some(value)
            }
            (TreeCall::Rank(key), Found::Number(rank), Self::Map(map)) => {
                map.contains_key(&key) && *rank == map.range(..key).count() as u64
            }
            (TreeCall::Count(from, to), Found::Number(count), Self::Map(map)) => {
                *count == map.range(from..to.max(from)).count() as u64
            }
            (
                TreeCall::Range(from, to, reverse, limit),
                Found::Page(more, elements),
                Self::Map(map),
            ) => {
                let range = map
                    .range(from..to.max(from))
                    .map(|(&key, &value)| (key, value));
                let all: Vec<_> = if reverse {
                    range.rev().collect()
                } else {
                    range.collect()
                };
                is_page(&all, limit, *more, elements)
            }
            (TreeCall::Ranks(start, end, reverse, limit), Found::Page(more, elements), _) => {
                let ranks = start..end.min(self.len()).max(start);
                let mut all: Vec<_> = ranks.filter_map(|rank| self.at(rank)).collect();
                if reverse {
                    all.reverse();
                }
                is_page(&all, limit, *more, elements)
            }
            (TreeCall::Pop(_, limit), Found::Page(more, elements), _) => {
                elements.is_empty() && (self.len() == 0 || limit == 0) && *more == (self.len() > 0)
            }
            (TreeCall::RemoveRanks(start, end), Found::Removed(0, false), _) => {
                end.min(self.len()) <= start
            }
            (TreeCall::Push(_, 0), Found::Number(len), _) => *len == self.len(),
            _ => false,
        }
    }
}

/// True if a page may be the first of some elements.
fn is_page(all: &[(u64, u64)], limit: u32, more: bool, elements: &[(u64, u64)]) -> bool {
    let is_short = elements.len() as u64 <= u64::from(limit);
    is_short
        && all.starts_with(elements)
        && (more || limit == 0 || elements.len() == all.len())
        && (!more || limit > 0 && elements.len() < all.len())
        && (!elements.is_empty() || all.is_empty() || limit == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{History, Moment};

    fn history(calls: &[(TreeCall, u64, u64, Answered)]) -> Result<(), String> {
        let mut history = History::default();
        for (call, begun, ended, answered) in calls {
            let at = |step| Moment {
                step,
                ..Moment::default()
            };
            let call = Call::Tree {
                tree: 0,
                call: *call,
            };
            let number = history.begin((0, true), call, at(*begun));
            history.end(number, answered.clone(), at(*ended))?;
        }
        history.check(&[], Rules::default())
    }

    #[test]
    fn what_a_map_never_held_is_found() {
        let insert = |key, version, before| {
            let call = TreeCall::Insert(key, TreeCondition::Always);
            (
                call,
                version,
                version,
                Answered::Tree(version, Found::Before(before)),
            )
        };
        let read = |call, version, found| (call, 9, 9, Answered::Tree(version, found));
        let all = TreeCall::Ranks(0, 9, false, 9);
        let calls = [
            insert(5, 1, None),
            insert(3, 2, None),
            insert(5, 3, Some(0)),
        ];
        let page = |elements: &[(u64, u64)]| Found::Page(false, elements.to_vec());
        let with = |last| history(&[calls[0].clone(), calls[1].clone(), calls[2].clone(), last]);
        assert_eq!(with(read(all, 3, page(&[(3, 1), (5, 2)]))), Ok(()));
        assert_eq!(with(read(TreeCall::Rank(5), 3, Found::Number(1))), Ok(()));
        assert!(with(read(all, 3, page(&[(3, 1), (5, 0)]))).is_err());
        assert!(with(read(all, 3, page(&[(3, 1)]))).is_err());
        assert!(with(read(all, 2, page(&[(3, 1), (5, 0)]))).is_err());
        assert!(with(read(TreeCall::Len, 3, Found::Number(3))).is_err());
        assert!(with(insert(3, 4, None)).is_err());
    }
}
