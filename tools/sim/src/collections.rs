//! Whether what was answered about collections agrees with a model of them.
//!
//! Every change of a collection draws a version, and the deletion of its key too, so the order of
//! all changes is known. They are done again on a model in that order. Each answer of a change must
//! be the model's, and each answer of a read that of the model at a moment when the read may have
//! been served.
//!
//! A collection that expires, or that may be evicted, ends without a version. So there are several
//! models: those that agree with all answers so far.
//!
//! Each key is used as a collection of one kind, see [`kind_of`], with a few calls of the others.

use std::collections::{BTreeMap, VecDeque};

use farcore::{TreeCondition, TreeGuard, TreeKind};

use crate::call::{Answered, Call, Found, Refusal, TreeCall, nth_element, pushed, updated};
use crate::history::{Entry, Moment, Rules};
use crate::scored::{ScoredCall, Scores};

/// Models that differ, at most: with more, nothing more is checked.
const MODELS_MAX: usize = 32;

/// The kind that the key of a collection is used as.
pub(crate) fn kind_of(tree: u64) -> TreeKind {
    match tree % 3 {
        0 => TreeKind::Map,
        1 => TreeKind::List,
        _ => TreeKind::Scored,
    }
}

/// What the key of a collection holds: the numbers of its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    Absent,
    /// A value that is no collection.
    Plain,
    Map(BTreeMap<u64, u64>),
    List(VecDeque<u64>),
    Scored(Scores),
}

impl Held {
    /// A collection without elements.
    fn empty(kind: TreeKind) -> Self {
        match kind {
            TreeKind::List => Self::List(VecDeque::new()),
            TreeKind::Scored => Self::Scored(Scores::default()),
            _ => Self::Map(BTreeMap::new()),
        }
    }

    fn kind(&self) -> Option<TreeKind> {
        match self {
            Self::Absent | Self::Plain => None,
            Self::Map(_) => Some(TreeKind::Map),
            Self::List(_) => Some(TreeKind::List),
            Self::Scored(_) => Some(TreeKind::Scored),
        }
    }
}

/// A collection as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Model {
    pub(crate) held: Held,
    pub(crate) tag: u8,
    /// Of its latest change; 0 if it is absent.
    pub(crate) version: u64,
    pub(crate) expires_ms: Option<u64>,
}

/// A call with its answer.
#[derive(Clone, Copy, Debug)]
struct Item<'a> {
    entry: &'a Entry,
    answered: &'a Answered,
    ended: Moment,
    /// The version that it drew, if it is a change.
    drew: Option<u64>,
}

/// The calls on each collection.
pub(crate) fn by_tree(entries: &[Entry]) -> BTreeMap<u64, Vec<&Entry>> {
    let mut trees: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        if let Call::Tree { tree, .. }
        | Call::DeleteTree { tree }
        | Call::GetTree { tree }
        | Call::PutTree { tree }
        | Call::ExpireTree { tree, .. } = entry.call
        {
            trees.entry(tree).or_default().push(entry);
        }
    }
    trees
}

/// Checks every collection. `before`: what some of them were before.
pub(crate) fn check(
    entries: &[Entry],
    before: &BTreeMap<u64, Model>,
    rules: Rules<'_>,
) -> Result<(), String> {
    for (tree, entries) in by_tree(entries) {
        check_tree(&entries, before.get(&tree), rules)
            .map_err(|error| format!("collection {tree}: {error}"))?;
    }
    Ok(())
}

/// A collection after one of its changes.
#[derive(Clone, Debug)]
pub(crate) struct TreeAfter {
    pub(crate) version: u64,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// What it may be then; nothing where that is not known.
    pub(crate) models: Vec<Model>,
}

/// What a collection was after each change that was answered; first of all as it was before.
pub(crate) fn afters(
    entries: &[&Entry],
    before: Option<&Model>,
    rules: Rules<'_>,
) -> Result<Vec<TreeAfter>, String> {
    let items: Vec<_> = entries.iter().filter_map(|entry| item(entry)).collect();
    let first = before.unwrap_or(&Model::ABSENT);
    let mut afters = vec![TreeAfter {
        version: first.version,
        begun: 0,
        ended: 0,
        models: vec![first.clone()],
    }];
    for change in changes_of(&items)? {
        let models = &afters[afters.len() - 1].models;
        // A change of which no answer tells may have come before.
        let mut models = after(models, change, rules).unwrap_or_default();
        if models.len() > MODELS_MAX {
            models.clear();
        }
        afters.push(TreeAfter {
            version: change.drew.unwrap_or(0),
            begun: change.entry.begun.step,
            ended: change.ended.step,
            models,
        });
    }
    Ok(afters)
}

/// The item of a call that was answered; `None` where nothing is known of it.
fn item(entry: &Entry) -> Option<Item<'_>> {
    let (ended, answered) = entry.ended.as_ref()?;
    let drew = match (&entry.call, answered) {
        (_, Answered::Failed(_)) => return None,
        (Call::Tree { call, .. }, Answered::Tree(version, found)) if is_change(*call, found) => {
            Some(*version)
        }
        (Call::Tree { .. }, _) => None,
        (_, Answered::Deleted(version) | Answered::Stored(version)) => Some(*version),
        _ => None,
    };
    Some(Item {
        entry,
        answered,
        ended: *ended,
        drew,
    })
}

/// True if a call that found this has changed its collection.
fn is_change(call: TreeCall, found: &Found) -> bool {
    match (call, found) {
        (TreeCall::Push { count, .. }, _) => count > 0,
        (TreeCall::Pop(..) | TreeCall::TakeAt(_), Found::Page(_, elements)) => !elements.is_empty(),
        (TreeCall::Draw(_, removes), _) => removes,
        // The only element is at both ends.
        (TreeCall::Rotate(_), Found::Page(has_others, _)) => *has_others,
        (TreeCall::RemoveRanks(..), Found::Removed(count, _)) => *count > 0,
        (TreeCall::Trim(..), Found::Trimmed { removed, .. }) => *removed > 0,
        (
            TreeCall::Update {
                first,
                count,
                removes,
                ..
            },
            Found::Updated([_, removed, done, _]),
        ) => {
            let mut changes = updated(0, (first, count.min(*done), removes));
            *removed > 0 || changes.any(|change| change.1.is_some())
        }
        (TreeCall::CompareAndSet(_, expected, sets), _) => expected.is_some() || sets,
        (TreeCall::Scored(call), found) => call.is_change(found),
        _ => matches!(
            call,
            TreeCall::Insert(..) | TreeCall::Remove(_) | TreeCall::InsertAt(_) | TreeCall::SetAt(_)
        ),
    }
}

/// The changes of a collection in their order.
fn changes_of<'i, 'a>(items: &'i [Item<'a>]) -> Result<Vec<&'i Item<'a>>, String> {
    let mut changes: Vec<_> = items.iter().filter(|item| item.drew.is_some()).collect();
    changes.sort_by_key(|item| item.drew);
    for pair in changes.windows(2) {
        if pair[0].drew == pair[1].drew {
            return Err(format!("two changes drew one version: {pair:?}"));
        }
    }
    let mut latest_begun = 0;
    for change in &changes {
        if change.ended.step < latest_begun {
            return Err(format!(
                "{change:?} ended before a change of a lower version began"
            ));
        }
        latest_begun = latest_begun.max(change.entry.begun.step);
    }
    Ok(changes)
}

/// For each number of changes, the reads that may have come then. A read whose `agrees` is set
/// need not be checked.
fn reads_of(
    items: &[Item<'_>],
    changes: &[&Item<'_>],
    (sure, end): (usize, u64),
    agrees: &mut [bool],
) -> Result<Vec<Vec<usize>>, String> {
    // By end, the number of changes that come before what begins then.
    let mut by_end: Vec<_> = (1..)
        .zip(changes)
        .map(|(count, one)| (one.ended.step, count))
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
    let mut reads: Vec<Vec<usize>> = vec![Vec::new(); changes.len() + 1];
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
        let could = |one: &&&Item<'_>| one.entry.begun.step <= item.ended.step;
        let until = from + changes[from..].iter().take_while(could).count();
        agrees[place] = until > sure || item.ended.step >= end;
        for reads in &mut reads[from..=until] {
            reads.push(place);
        }
    }
    Ok(reads)
}

fn check_tree(entries: &[&Entry], before: Option<&Model>, rules: Rules<'_>) -> Result<(), String> {
    // What may come after a change of which it is not known whether it was made is not checked.
    let unknown = entries.iter().filter(|entry| entry.is_unknown());
    let end = unknown.map(|entry| entry.begun.step).min();
    let end = end.unwrap_or(u64::MAX);
    let items: Vec<_> = entries.iter().filter_map(|entry| item(entry)).collect();
    let changes = changes_of(&items)?;
    let is_sure = |change: &&&Item<'_>| change.ended.step < end;
    let sure = changes.iter().take_while(is_sure).count();
    let mut agrees = vec![false; items.len()];
    let reads = reads_of(&items, &changes, (sure, end), &mut agrees)?;
    let mut models = vec![before.unwrap_or(&Model::ABSENT).clone()];
    for (count, places) in reads.iter().enumerate().take(sure + 1) {
        if let Some(change) = count.checked_sub(1).map(|place| changes[place]) {
            models = after(&models, change, rules)?;
            if models.len() > MODELS_MAX {
                return Ok(());
            }
        }
        for &place in places {
            let item = &items[place];
            let mut states = models
                .iter()
                .flat_map(|model| model.states(item, rules.vanishes));
            agrees[place] = agrees[place] || states.any(|state| state.agrees(item));
        }
    }
    let is_wrong = |place: &usize| items[*place].drew.is_none() && !agrees[*place];
    match (0..items.len()).find(is_wrong) {
        None => Ok(()),
        Some(place) => {
            let item = &items[place];
            let at = reads.iter().position(|places| places.contains(&place));
            let at = at.unwrap_or(0);
            let near = &changes[at.saturating_sub(3)..changes.len().min(at + 2)];
            Err(format!(
                "{item:?}: it agrees with no state between those that it may have seen; changes \
                 around: {near:?}"
            ))
        }
    }
}

/// The models after a change that agree with its answer.
fn after(models: &[Model], change: &Item<'_>, rules: Rules<'_>) -> Result<Vec<Model>, String> {
    let mut next: Vec<Model> = Vec::new();
    let mut wrong = String::new();
    let states = models
        .iter()
        .flat_map(|model| model.states(change, rules.vanishes));
    for state in states {
        let mut state = state.clone();
        match state.change(change) {
            Ok(()) if next.contains(&state) => {}
            Ok(()) => next.push(state),
            Err(why) => wrong = why,
        }
    }
    if next.is_empty() {
        return Err(format!("{change:?}: {wrong}"));
    }
    Ok(next)
}

fn expect(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// The kind of collections that a call is for; `None` if it is for any.
fn wanted_kind(call: TreeCall) -> Option<TreeKind> {
    match call {
        TreeCall::Len
        | TreeCall::Ranks(..)
        | TreeCall::Pop(..)
        | TreeCall::RemoveRanks(..)
        | TreeCall::Slice(..)
        | TreeCall::Trim(..)
        | TreeCall::TakeAt(_)
        | TreeCall::Draw(..) => None,
        TreeCall::Get(_)
        | TreeCall::Rank(_)
        | TreeCall::Insert(..)
        | TreeCall::Remove(_)
        | TreeCall::Range(..)
        | TreeCall::Count(..)
        | TreeCall::Update { .. }
        | TreeCall::GetMany { .. }
        | TreeCall::CompareAndSet(..) => Some(TreeKind::Map),
        TreeCall::Push { .. }
        | TreeCall::InsertAt(_)
        | TreeCall::SetAt(_)
        | TreeCall::Rotate(_) => Some(TreeKind::List),
        TreeCall::Scored(_) => Some(TreeKind::Scored),
    }
}

fn replaces(call: TreeCall) -> bool {
    matches!(
        call,
        TreeCall::Update { replaces: true, .. }
            | TreeCall::Scored(ScoredCall::Score { replaces: true, .. })
    )
}

/// The ranks from one to another, which is the last; negative ones count from the end.
fn slice_of(first: i64, last: i64, len: u64) -> std::ops::Range<u64> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_start = |rank: i64| if rank < 0 { len + rank } else { rank };
    let (start, end) = (from_start(first).max(0), (from_start(last) + 1).min(len));
    let start = start.min(len);
    start.unsigned_abs()..end.max(start).unsigned_abs()
}

/// The rank of a random number.
fn drawn(random: u64, len: u64) -> Option<u64> {
    let rank = (u128::from(random) * u128::from(len)) >> u64::BITS;
    u64::try_from(rank).ok().filter(|_| len > 0)
}

impl Model {
    /// A collection of these elements, as a page lists them.
    pub(crate) fn of(kind: TreeKind, tag: u8, version: u64, elements: &[(u64, u64)]) -> Self {
        let held = match kind {
            TreeKind::List => Held::List(elements.iter().map(|element| element.1).collect()),
            TreeKind::Scored => Held::Scored(Scores::of(elements)),
            _ => Held::Map(elements.iter().copied().collect()),
        };
        Self {
            held,
            tag,
            version,
            expires_ms: None,
        }
    }

    /// True if it holds the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let is_like = self.held == other.held && self.version == other.version;
        is_like && (self.tag == other.tag || self.held == Held::Plain)
    }

    /// The numbers of the values in it.
    pub(crate) fn values(&self) -> Vec<u64> {
        let ranks = 0..self.len();
        ranks
            .filter_map(|rank| self.at(rank))
            .map(|(_, value)| value)
            .collect()
    }

    pub(crate) const ABSENT: Self = Self {
        held: Held::Absent,
        tag: 0,
        version: 0,
        expires_ms: None,
    };

    /// The states in which a call may have found it: as it is, or gone by itself.
    fn states<'a>(&'a self, item: &Item<'_>, vanishes: bool) -> impl Iterator<Item = &'a Self> {
        let (begun, ended) = (item.entry.begun, item.ended);
        let may_live = self.expires_ms.is_none_or(|at_ms| at_ms >= begun.floor_ms);
        let is_past = self
            .expires_ms
            .is_some_and(|at_ms| at_ms <= ended.ceiling_ms);
        let may_be_gone = (vanishes || is_past) && self.held != Held::Absent;
        let gone = may_be_gone.then_some(&Self::ABSENT);
        may_live.then_some(self).into_iter().chain(gone)
    }

    fn len(&self) -> u64 {
        match &self.held {
            Held::Absent | Held::Plain => 0,
            Held::Map(map) => map.len() as u64,
            Held::List(list) => list.len() as u64,
            Held::Scored(scores) => scores.len(),
        }
    }

    fn at(&self, rank: u64) -> Option<(u64, u64)> {
        let rank = usize::try_from(rank).ok()?;
        match &self.held {
            Held::Absent | Held::Plain => None,
            Held::Map(map) => map.iter().nth(rank).map(|(&key, &value)| (key, value)),
            Held::List(list) => list.get(rank).map(|&value| (0, value)),
            Held::Scored(scores) => scores.elements().get(rank).copied(),
        }
    }

    /// The rank that may count from the end, if an element has it.
    fn rank_of(&self, rank: i64) -> Option<u64> {
        let len = self.len();
        let rank = match u64::try_from(rank) {
            Ok(rank) => rank,
            Err(_) => len.checked_sub(rank.unsigned_abs())?,
        };
        (rank < len).then_some(rank)
    }

    fn remove_at(&mut self, rank: u64) {
        let Ok(place) = usize::try_from(rank) else {
            return;
        };
        match &mut self.held {
            Held::Absent | Held::Plain => {}
            Held::Map(map) => {
                let key = map.keys().nth(place).copied();
                key.map(|key| map.remove(&key));
            }
            Held::List(list) => drop(list.remove(place)),
            Held::Scored(scores) => scores.remove_at(place),
        }
    }

    /// Why it is not the collection that a call is for, if it is not.
    fn refusal(&self, call: TreeCall, guard: TreeGuard) -> Option<Refusal> {
        let kind = match self.held {
            _ if replaces(call) => None,
            Held::Plain => return Some(Refusal::NoCollection),
            _ => self.held.kind(),
        };
        if let Some(kind) = kind {
            if wanted_kind(call).is_some_and(|wanted| wanted != kind) {
                return Some(Refusal::Kind(kind));
            }
            if self.tag != guard.tag && call != TreeCall::Len {
                return Some(Refusal::Tag(self.tag));
            }
        }
        let is_other = guard.version.is_some_and(|wanted| wanted != self.version);
        is_other.then_some(Refusal::Version(self.version))
    }

    /// Makes a change, and compares what was answered.
    fn change(&mut self, item: &Item<'_>) -> Result<(), String> {
        let version = item.drew.unwrap_or(0);
        match (&item.entry.call, item.answered) {
            (Call::Tree { call, guard, .. }, Answered::Tree(_, found)) => {
                if let Some(refusal) = self.refusal(*call, *guard) {
                    return Err(format!("it should have been refused: {refusal:?}"));
                }
                if replaces(*call) || self.held == Held::Absent {
                    let held = Held::empty(wanted_kind(*call).unwrap_or_default());
                    (self.held, self.tag, self.expires_ms) = (held, guard.tag, None);
                }
                self.change_elements(item.entry.number, *call, found)?;
                self.version = version;
                if self.len() == 0 {
                    *self = Self::ABSENT;
                }
                Ok(())
            }
            (Call::PutTree { .. }, _) => {
                *self = Self {
                    held: Held::Plain,
                    version,
                    ..Self::ABSENT
                };
                Ok(())
            }
            _ if self.held == Held::Absent => Err("the key was absent".into()),
            (Call::ExpireTree { expires_ms, .. }, Answered::Stored(_)) => {
                (self.expires_ms, self.version) = (*expires_ms, version);
                Ok(())
            }
            _ => {
                *self = Self::ABSENT;
                Ok(())
            }
        }
    }

    fn change_elements(
        &mut self,
        number: u64,
        call: TreeCall,
        found: &Found,
    ) -> Result<(), String> {
        match (&mut self.held, call) {
            (Held::Scored(scores), TreeCall::Scored(call)) => {
                let is_so = scores.change(number, call, found);
                expect(is_so, || format!("it should hold {scores:?} now"))
            }
            (_, call) if wanted_kind(call).is_none() => self.change_any(call, found),
            (Held::Map(map), _) => change_map(map, number, call, found),
            (Held::List(list), _) => change_list(list, number, call, found),
            _ => Err("it holds another collection".into()),
        }
    }

    /// Takes the element of a rank away.
    fn take(&mut self, rank: u64, element: (u64, u64)) -> Result<(), String> {
        let known = self.at(rank);
        expect(known == Some(element), || format!("{known:?} was there"))?;
        self.remove_at(rank);
        Ok(())
    }

    /// Makes a change that is for collections of any kind.
    fn change_any(&mut self, call: TreeCall, found: &Found) -> Result<(), String> {
        let before = self.len();
        let left = |model: &Self| format!("{} are left", model.len());
        match (call, found) {
            (TreeCall::Pop(last, limit), Found::Page(more, elements)) => {
                let is_short = elements.len() as u64 <= u64::from(limit);
                expect(is_short, || "it took too many".into())?;
                for element in elements {
                    let end = self.len().saturating_sub(1);
                    self.take(if last { end } else { 0 }, *element)?;
                }
                expect(*more == (self.len() > 0), || left(self))
            }
            (TreeCall::TakeAt(rank), Found::Page(more, elements)) => {
                let rank = self.rank_of(rank).ok_or("there is none")?;
                self.take(rank, *elements.first().ok_or("nothing was taken")?)?;
                expect(*more == (self.len() > 0), || left(self))
            }
            (TreeCall::Draw(random, true), Found::Page(more, elements)) => {
                let rank = drawn(random, before).ok_or("there is none")?;
                self.take(rank, *elements.first().ok_or("nothing was taken")?)?;
                expect(*more == (self.len() > 0), || left(self))
            }
            (TreeCall::RemoveRanks(start, end), Found::Removed(count, more)) => {
                let wanted = end.min(before).saturating_sub(start);
                let were = || format!("{before} elements were there");
                expect(*count <= wanted, were)?;
                for _ in 0..*count {
                    self.remove_at(start);
                }
                expect(*more == (*count < wanted), were)
            }
            (
                TreeCall::Trim(first, last),
                &Found::Trimmed {
                    removed,
                    kept,
                    more,
                    left: after,
                },
            ) => {
                let stays = slice_of(first, last, before);
                let count = stays.end - stays.start;
                let were = || format!("{before} elements were there, {stays:?} stay");
                expect(removed <= before - count, were)?;
                // From the ends inward, behind the slice first.
                let behind = before - if count == 0 { 0 } else { stays.end };
                let behind = behind.min(removed);
                for _ in 0..behind {
                    self.remove_at(self.len() - 1);
                }
                for _ in behind..removed {
                    self.remove_at(0);
                }
                let start = stays.start - (removed - behind).min(stays.start);
                let named = if count == 0 {
                    (1, 1)
                } else {
                    (start, start + count)
                };
                let is_right = kept == named && after == self.len() && more == (after > count);
                expect(is_right, were)
            }
            _ => Err("it cannot have changed anything".into()),
        }
    }

    /// True if what a read was answered is so in this state.
    fn agrees(&self, item: &Item<'_>) -> bool {
        let (call, guard) = match (&item.entry.call, item.answered) {
            (Call::Tree { call, guard, .. }, _) => (*call, *guard),
            (Call::PutTree { .. }, _) => return false,
            (Call::GetTree { .. }, Answered::Value(version, _)) => {
                return self.held == Held::Plain && *version == self.version;
            }
            (Call::GetTree { .. }, Answered::Refused(refusal)) => {
                return *refusal == Refusal::Collection && self.len() > 0;
            }
            (_, answered) => return *answered == Answered::Absent && self.held == Held::Absent,
        };
        match (self.refusal(call, guard), item.answered) {
            (Some(refusal), Answered::Refused(seen)) => return refusal == *seen,
            (Some(_), _) | (_, Answered::Refused(_)) => return false,
            (None, _) => {}
        }
        let has = |key: &u64| match &self.held {
            Held::Map(map) => map.contains_key(key),
            _ => false,
        };
        match (call, item.answered) {
            (
                TreeCall::Get(key) | TreeCall::Remove(key) | TreeCall::Rank(key),
                Answered::Absent,
            ) => !has(&key),
            (TreeCall::InsertAt(rank), Answered::Absent) => rank > self.len(),
            (TreeCall::SetAt(rank) | TreeCall::TakeAt(rank), Answered::Absent) => {
                self.rank_of(rank).is_none()
            }
            (
                TreeCall::Push { exists: true, .. } | TreeCall::Rotate(_) | TreeCall::Draw(..),
                Answered::Absent,
            ) => self.len() == 0,
            (TreeCall::Insert(key, condition), Answered::Mismatch(current)) => {
                let is_wrong = has(&key) == (condition == TreeCondition::IfAbsent);
                is_wrong && *current == self.version
            }
            (TreeCall::CompareAndSet(key, expected, _), Answered::Mismatch(current)) => {
                self.value_of(key) != expected && *current == self.version
            }
            (TreeCall::Scored(call), Answered::Absent) => match &self.held {
                Held::Scored(scores) => scores.lacks(call),
                _ => Scores::default().lacks(call),
            },
            (call, Answered::Tree(seen, found)) => {
                *seen == self.version && self.holds(call, guard, found)
            }
            _ => false,
        }
    }

    fn value_of(&self, key: u64) -> Option<u64> {
        match &self.held {
            Held::Map(map) => map.get(&key).copied(),
            _ => None,
        }
    }

    /// Elements from one rank to before another.
    fn ranks(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let ranks = start..end.min(self.len()).max(start);
        ranks.filter_map(|rank| self.at(rank)).collect()
    }

    /// Elements from one key to before another.
    fn range(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        match &self.held {
            Held::Map(map) => {
                let range = map.range(from..to.max(from));
                range.map(|(&key, &value)| (key, value)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// True if this is what a call reads.
    fn holds(&self, call: TreeCall, guard: TreeGuard, found: &Found) -> bool {
        match (call, found) {
            _ if wanted_kind(call) == Some(TreeKind::Map) => self.holds_of_map(call, found),
            (TreeCall::Scored(call), _) => {
                let is_page = |elements, reverse, limit| match found {
                    Found::Page(more, seen) => is_page(elements, (reverse, limit), *more, seen),
                    _ => false,
                };
                match &self.held {
                    Held::Scored(scores) => scores.holds(call, found, is_page),
                    _ => Scores::default().holds(call, found, is_page),
                }
            }
            (TreeCall::Len, Found::Len(len, kind, tag)) => {
                let is_this = match self.held.kind() {
                    Some(held) => *kind == held as u8 && *tag == self.tag,
                    None => *tag == guard.tag,
                };
                *len == self.len() && is_this
            }
            (TreeCall::Ranks(start, end, reverse, limit), Found::Page(more, elements)) => {
                is_page(self.ranks(start, end), (reverse, limit), *more, elements)
            }
            (TreeCall::Slice(first, last, limit), Found::Page(more, elements)) => {
                let ranks = slice_of(first, last, self.len());
                is_page(
                    self.ranks(ranks.start, ranks.end),
                    (false, limit),
                    *more,
                    elements,
                )
            }
            (TreeCall::Draw(random, false), Found::Page(more, elements)) => {
                let element = drawn(random, self.len()).and_then(|rank| self.at(rank));
                element.is_some_and(|element| *elements == [element]) && *more == (self.len() > 1)
            }
            (TreeCall::Rotate(_), Found::Page(false, elements)) => {
                self.len() == 1 && self.at(0).is_some_and(|element| *elements == [element])
            }
            (TreeCall::Pop(_, limit), Found::Page(more, elements)) => {
                elements.is_empty() && (self.len() == 0 || limit == 0) && *more == (self.len() > 0)
            }
            (TreeCall::RemoveRanks(start, end), Found::Removed(0, false)) => {
                end.min(self.len()) <= start
            }
            (
                TreeCall::Trim(first, last),
                Found::Trimmed {
                    removed: 0,
                    more: false,
                    left,
                    ..
                },
            ) => *left == self.len() && slice_of(first, last, *left) == (0..*left),
            (TreeCall::Push { count: 0, .. }, Found::Number(len)) => *len == self.len(),
            _ => false,
        }
    }

    fn holds_of_map(&self, call: TreeCall, found: &Found) -> bool {
        match (call, found) {
            (TreeCall::Get(key), Found::Value(value)) => self.value_of(key) == Some(*value),
            (TreeCall::GetMany { first, count }, Found::Many(values)) => {
                let mut wanted = (0..count).map(|place| self.value_of(nth_element(first, place)));
                let is_some = count == 0 || !values.is_empty();
                is_some && values.iter().all(|value| wanted.next() == Some(*value))
            }
            (TreeCall::CompareAndSet(key, None, false), Found::Set) => self.value_of(key).is_none(),
            (
                TreeCall::Update {
                    first,
                    count,
                    removes,
                    ..
                },
                Found::Updated([0, 0, done, len]),
            ) => {
                let mut changes = updated(0, (first, count.min(*done), removes));
                *len == self.len()
                    && *done > 0
                    && changes.all(|(key, value)| value.or(self.value_of(key)).is_none())
            }
            (TreeCall::Rank(key), Found::Number(rank)) => {
                self.value_of(key).is_some() && *rank == self.range(0, key).len() as u64
            }
            (TreeCall::Count(from, to), Found::Number(count)) => {
                *count == self.range(from, to).len() as u64
            }
            (TreeCall::Range(from, to, reverse, limit), Found::Page(more, elements)) => {
                is_page(self.range(from, to), (reverse, limit), *more, elements)
            }
            _ => false,
        }
    }
}

/// Makes a change of a map, and compares what was answered.
fn change_map(
    map: &mut BTreeMap<u64, u64>,
    number: u64,
    call: TreeCall,
    found: &Found,
) -> Result<(), String> {
    match (call, found) {
        (TreeCall::Insert(element, condition), Found::Before(seen)) => {
            let known = map.insert(element, number);
            let fits = match condition {
                TreeCondition::Always => true,
                TreeCondition::IfAbsent => known.is_none(),
                TreeCondition::IfPresent => known.is_some(),
            };
            expect(known == *seen && fits, || format!("it held {known:?}"))
        }
        (TreeCall::Remove(element), Found::Value(seen)) => {
            let known = map.remove(&element);
            expect(known == Some(*seen), || format!("it held {known:?}"))
        }
        (TreeCall::CompareAndSet(element, expected, sets), Found::Set) => {
            let known = match sets {
                true => map.insert(element, number),
                false => map.remove(&element),
            };
            expect(known == expected, || format!("it held {known:?}"))
        }
        (
            TreeCall::Update {
                first,
                count,
                removes,
                ..
            },
            Found::Updated(seen),
        ) => {
            let done = seen[2].min(count);
            let (mut added, mut removed) = (0, 0);
            for (element, value) in updated(number, (first, done, removes)) {
                match value {
                    Some(value) => added += u64::from(map.insert(element, value).is_none()),
                    None => removed += u64::from(map.remove(&element).is_some()),
                }
            }
            let counts = [added, removed, done, map.len() as u64];
            expect(done > 0 && counts == *seen, || {
                format!("it made {counts:?}")
            })
        }
        _ => Err("it cannot have changed anything".into()),
    }
}

/// Makes a change of a list, and compares what was answered.
fn change_list(
    list: &mut VecDeque<u64>,
    number: u64,
    call: TreeCall,
    found: &Found,
) -> Result<(), String> {
    let before = list.len();
    let were = || format!("{before} elements were there");
    match (call, found) {
        (
            TreeCall::Push {
                front,
                count,
                exists,
            },
            Found::Number(len),
        ) => {
            expect(before > 0 || !exists, were)?;
            for value in pushed(number, count) {
                if front {
                    list.push_front(value);
                } else {
                    list.push_back(value);
                }
            }
            expect(list.len() as u64 == *len, were)
        }
        (TreeCall::InsertAt(rank), Found::Number(len)) => {
            let place = usize::try_from(rank).unwrap_or(usize::MAX);
            expect(place <= before, were)?;
            list.insert(place, number);
            expect(list.len() as u64 == *len, were)
        }
        (TreeCall::SetAt(rank), Found::Value(seen)) => {
            let back = usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX);
            let place = match rank < 0 {
                true => before.checked_sub(back),
                false => Some(back),
            };
            let element = place.and_then(|place| list.get_mut(place));
            let known = element.map(|value| std::mem::replace(value, number));
            expect(known == Some(*seen), || format!("it held {known:?}"))
        }
        (TreeCall::Rotate(last), Found::Page(true, elements)) => {
            expect(before > 1, were)?;
            let known = match last {
                true => list.pop_back(),
                false => list.pop_front(),
            };
            let value = known.unwrap_or(0);
            match last {
                true => list.push_front(value),
                false => list.push_back(value),
            }
            expect(*elements == [(0, value)], || format!("{value} was there"))
        }
        _ => Err("it cannot have changed anything".into()),
    }
}

/// True if a page may be the first of some elements, which are listed from the last one if it is
/// reversed.
fn is_page(
    mut all: Vec<(u64, u64)>,
    (reverse, limit): (bool, u32),
    more: bool,
    elements: &[(u64, u64)],
) -> bool {
    if reverse {
        all.reverse();
    }
    let is_short = elements.len() as u64 <= u64::from(limit);
    is_short
        && all.starts_with(elements)
        && (more || limit == 0 || elements.len() == all.len())
        && (!more || limit > 0 && elements.len() < all.len())
        && (!elements.is_empty() || all.is_empty() || limit == 0)
}

#[cfg(test)]
mod tests {
    use farcore::TreeScoreOnly;

    use super::*;
    use crate::history::History;
    use crate::scored::{ScoredFound, scored_key};

    fn moment(step: u64) -> Moment {
        Moment {
            step,
            floor_ms: step,
            ceiling_ms: step,
            ..Moment::default()
        }
    }

    fn history(calls: &[(Call, u64, Answered)]) -> Result<(), String> {
        let mut history = History::default();
        for (call, step, answered) in calls {
            let number = history.begin((0, true), call.clone(), moment(*step));
            history.end(number, answered.clone(), moment(*step))?;
        }
        history.check(&[], Rules::default())
    }

    fn tree(call: TreeCall) -> Call {
        let guard = TreeGuard::default();
        Call::Tree {
            tree: 0,
            call,
            guard,
        }
    }

    fn done(call: TreeCall, version: u64, found: Found) -> (Call, u64, Answered) {
        (tree(call), version, Answered::Tree(version, found))
    }

    fn read(call: TreeCall, version: u64, found: Found) -> (Call, u64, Answered) {
        (tree(call), 90, Answered::Tree(version, found))
    }

    fn insert(key: u64, version: u64, before: Option<u64>) -> (Call, u64, Answered) {
        let call = TreeCall::Insert(key, TreeCondition::Always);
        done(call, version, Found::Before(before))
    }

    #[test]
    fn what_a_map_never_held_is_found() {
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
        let len = |count| read(TreeCall::Len, 3, Found::Len(count, 0, 0));
        assert_eq!(with(len(2)), Ok(()));
        assert!(with(len(3)).is_err());
        assert!(with(insert(3, 4, None)).is_err());
        // A call of another kind is refused, for the right reason.
        let push = |refusal| {
            let push = TreeCall::Push {
                front: true,
                count: 1,
                exists: false,
            };
            (tree(push), 90, Answered::Refused(refusal))
        };
        assert_eq!(with(push(Refusal::Kind(TreeKind::Map))), Ok(()));
        assert!(with(push(Refusal::Kind(TreeKind::List))).is_err());
        assert!(with(push(Refusal::NoCollection)).is_err());
    }

    #[test]
    fn what_a_scored_map_never_held_is_found() {
        let score = |member, score| ScoredCall::ScoreOne {
            member,
            score,
            condition: TreeCondition::Always,
            only: TreeScoreOnly::Any,
            adds: false,
        };
        let made = |counts, score| Found::Scored(ScoredFound::Made(counts, score));
        let calls = [
            done(
                TreeCall::Scored(score(5, 9)),
                1,
                made([1, 0, 0, 1, 1, 1], 9),
            ),
            done(
                TreeCall::Scored(score(7, 2)),
                2,
                made([1, 0, 0, 1, 2, 1], 2),
            ),
            done(
                TreeCall::Scored(score(5, 1)),
                3,
                made([0, 1, 0, 1, 2, 1], 1),
            ),
        ];
        let with = |last| history(&[calls[0].clone(), calls[1].clone(), calls[2].clone(), last]);
        let rank = |rank, score| {
            let found = Found::Scored(ScoredFound::Rank(rank, score));
            with(read(TreeCall::Scored(ScoredCall::Rank(5, false)), 3, found))
        };
        assert_eq!(rank(0, 1), Ok(()));
        assert!(rank(1, 1).is_err());
        assert!(rank(0, 9).is_err());
        let all = |elements: &[(i64, u64, u64)]| {
            let keys = elements.iter();
            let keys = keys.map(|&(score, member, value)| (scored_key(score, member), value));
            let page = Found::Page(false, keys.collect());
            with(read(TreeCall::Ranks(0, 9, false, 9), 3, page))
        };
        assert_eq!(all(&[(1, 5, 2), (2, 7, 1)]), Ok(()));
        assert!(all(&[(2, 7, 1), (9, 5, 0)]).is_err());
        assert!(all(&[(1, 5, 0), (2, 7, 1)]).is_err());
        let again = TreeCall::Scored(score(7, 3));
        assert!(with(done(again, 4, made([1, 0, 0, 1, 3, 1], 3))).is_err());
    }

    #[test]
    fn calls_on_many_elements_agree_with_the_model_or_are_found() {
        // Elements 5, 12 and 19; the second one is removed.
        let update = TreeCall::Update {
            first: 5,
            count: 3,
            removes: 2,
            replaces: false,
        };
        let many = TreeCall::GetMany { first: 5, count: 3 };
        let value = |place: u64| pushed(0, 3).nth(usize::try_from(place).unwrap()).unwrap();
        let begun = done(update, 1, Found::Updated([2, 0, 3, 2]));
        let with = |last| history(&[begun.clone(), last]);
        let found = |values: &[Option<u64>]| read(many, 1, Found::Many(values.to_vec()));
        assert_eq!(with(found(&[Some(value(0)), None, Some(value(2))])), Ok(()));
        assert_eq!(with(found(&[Some(value(0))])), Ok(()));
        assert!(with(found(&[Some(value(0)), Some(value(1))])).is_err());
        assert!(with(done(update, 2, Found::Updated([2, 0, 3, 2]))).is_err());
        let take = |rank, element| {
            let page = Found::Page(true, vec![element]);
            with(done(TreeCall::TakeAt(rank), 2, page))
        };
        assert_eq!(take(-1, (19, value(2))), Ok(()));
        assert!(take(-1, (5, value(0))).is_err());
        let trim = |first, last, removed, kept, left| {
            let found = Found::Trimmed {
                removed,
                kept,
                more: false,
                left,
            };
            with(done(TreeCall::Trim(first, last), 2, found))
        };
        assert_eq!(trim(1, -1, 1, (0, 1), 1), Ok(()));
        assert_eq!(trim(5, 1, 2, (1, 1), 0), Ok(()));
        assert!(trim(1, -1, 1, (1, 2), 1).is_err());
        let swap = |expected, answered| {
            let call = TreeCall::CompareAndSet(5, expected, true);
            with((tree(call), 90, answered))
        };
        assert_eq!(swap(Some(value(0)), Answered::Tree(2, Found::Set)), Ok(()));
        assert!(swap(None, Answered::Tree(2, Found::Set)).is_err());
        assert_eq!(swap(None, Answered::Mismatch(1)), Ok(()));
        assert!(swap(Some(value(0)), Answered::Mismatch(1)).is_err());
    }

    #[test]
    fn a_collection_ends_at_its_time_and_with_what_replaces_it() {
        let expire = (
            Call::ExpireTree {
                tree: 0,
                expires_ms: Some(20),
            },
            2,
            Answered::Stored(2),
        );
        let begun = [insert(5, 1, None), expire];
        let with = |rest: &[(Call, u64, Answered)]| history(&[&begun[..], rest].concat());
        let get = |step, version| {
            let found = Found::Value(0);
            (tree(TreeCall::Get(5)), step, Answered::Tree(version, found))
        };
        let gone = |step| (tree(TreeCall::Get(5)), step, Answered::Absent);
        assert_eq!(with(&[get(19, 2), gone(21), insert(5, 30, None)]), Ok(()));
        assert!(with(&[gone(19)]).is_err());
        assert!(with(&[get(22, 2)]).is_err());
        assert!(with(&[insert(5, 30, Some(0))]).is_err());
        let put = (Call::PutTree { tree: 0 }, 3, Answered::Stored(3));
        let refused = (
            tree(TreeCall::Get(5)),
            40,
            Answered::Refused(Refusal::NoCollection),
        );
        assert_eq!(with(&[put.clone(), refused.clone()]), Ok(()));
        assert!(with(&[refused]).is_err());
        assert!(with(&[put, get(19, 3)]).is_err());
    }
}
