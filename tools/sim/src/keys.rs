//! Whether what was answered about keys is linearizable.
//!
//! A shard draws a version for each change, also for a delete, which the simulation exposes. So the
//! changes of a key have a known order, and the check is a sort: each answer must agree with the
//! state between two changes, with what had ended before its call began, and with the earlier calls
//! of its client.
//!
//! A transaction counts as a call on each of its keys. Its writes draw versions that follow each
//! other, and what it expects must hold at one moment. A scan counts as a read of every key: of one
//! that it does not list as a read that found the key absent.
//!
//! - I1: a request that was answered by an error has changed nothing; where the engine has closed,
//!   it may have.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::call::{Answered, Call, Listed, Part, PartWrite, call_of, stored_by};
use crate::history::{Entry, Moment, Rules, Twins};

/// What a call is to one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Look,
    /// Stores a value, which expires at a time.
    Store(Option<u64>),
    /// Removes a key that is there.
    Delete,
    /// Has a key be absent afterwards.
    Clear,
    /// Sets when a value expires.
    Keep(Option<u64>),
}

/// What was answered about one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    /// A version, and the number of its value where that was read.
    Is(u64, Option<u64>),
    Absent,
    /// A scan did not list it, but another key of its slot: the key is absent, or its record was
    /// lost and the other one has taken its slot over.
    Passed,
    /// It drew a version.
    Changed(u64),
    /// Nothing is known of it.
    Unknown,
    Nothing,
}

/// A call as far as it concerns one key.
#[derive(Clone, Copy, Debug)]
struct Item<'a> {
    entry: &'a Entry,
    kind: Kind,
    /// The version that the key must have had.
    expected: Option<u64>,
    /// The version that it must not have had.
    unlike: Option<u64>,
    ended: Moment,
    seen: Seen,
}

/// A change that took effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    pub(crate) version: u64,
    /// The number of the value that the key has after it; `None` if it is absent.
    pub(crate) value: Option<u64>,
    pub(crate) expires_ms: Option<u64>,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

/// What a history says of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyFacts {
    /// The changes that were answered, by version.
    pub(crate) changes: Vec<Changed>,
    /// The calls that may have changed it, and what they are to it.
    pub(crate) unknown: Vec<(u64, Kind)>,
    /// The versions that were read, with the step in which each was answered first.
    pub(crate) read: BTreeMap<u64, u64>,
}

/// What a history says of each key that it names.
pub(crate) fn facts(
    entries: &[Entry],
    names: &[String],
    rules: Rules<'_>,
) -> Result<BTreeMap<u64, KeyFacts>, String> {
    let mut items: Items<'_> = BTreeMap::new();
    let keys: Keys<'_> = names.iter().map(String::as_str).zip(0..).collect();
    for entry in entries {
        spread(entry, &keys, rules, &mut items)?;
    }
    let facts = items.into_iter().map(|(key, items)| {
        let mut facts = KeyFacts {
            changes: changes_of(&items),
            ..KeyFacts::default()
        };
        for item in items {
            match item.seen {
                Seen::Unknown => facts.unknown.push((item.entry.number, item.kind)),
                Seen::Is(version, _) => {
                    let first = facts.read.entry(version).or_insert(u64::MAX);
                    *first = item.ended.step.min(*first);
                }
                _ => {}
            }
        }
        (key, facts)
    });
    Ok(facts.collect())
}

/// One key's items, in the order in which they began.
type Items<'a> = BTreeMap<u64, Vec<Item<'a>>>;

/// Keys by their names.
type Keys<'a> = HashMap<&'a str, usize>;

/// Checks every key.
pub(crate) fn check(entries: &[Entry], names: &[String], rules: Rules<'_>) -> Result<(), String> {
    let mut items: Items<'_> = BTreeMap::new();
    let keys: Keys<'_> = names.iter().map(String::as_str).zip(0..).collect();
    for entry in entries {
        spread(entry, &keys, rules, &mut items)?;
    }
    let mut changes = BTreeMap::new();
    for (&key, items) in &items {
        let may_be_mistaken = rules.mistaken(&names[place(key)]).is_some();
        let known = check_key(items, (rules.vanishes, may_be_mistaken))
            .map_err(|error| format!("key {key} ({}): {error}", names[place(key)]))?;
        changes.insert(key, known);
    }
    if let Some(twins) = rules.mistakes {
        check_mistakes(&items, &changes, names, twins)?;
    }
    let transactions: Vec<_> = entries.iter().filter_map(Transacted::of).collect();
    transactions
        .iter()
        .try_for_each(|one| check_moment(one, &transactions, &items, &changes))
}

/// Checks that each delete that says that its key was there comes after some key of its slot was
/// stored: a lost record stands for every key of the slot's bits, also after its own key was stored
/// anew and deleted. Versions are of a shard, so they order the changes of both.
fn check_mistakes(
    items: &Items<'_>,
    changes: &BTreeMap<u64, Vec<Changed>>,
    names: &[String],
    twins: &Twins,
) -> Result<(), String> {
    let was_stored = |key: u64, version: u64| {
        let changes = changes.get(&key).into_iter().flatten();
        let mut stored = changes.filter(|change| change.value.is_some());
        let mut items = items.get(&key).into_iter().flatten();
        items.any(|item| item.seen == Seen::Unknown)
            || stored.any(|change| change.version < version)
    };
    for (&key, items) in items {
        let Some(slot) = twins.get(&names[place(key)]) else {
            continue;
        };
        let same_slot = |other: &u64| twins.get(&names[place(*other)]) == Some(slot);
        for item in items {
            let (Kind::Delete, Seen::Changed(version)) = (item.kind, item.seen) else {
                continue;
            };
            let mut keys = (0..names.len() as u64).filter(same_slot);
            if !keys.any(|one| was_stored(one, version)) {
                return Err(format!(
                    "call {} deleted key {key} ({}) with version {version}, but no key of its \
                     slot was stored before",
                    item.entry.number,
                    names[place(key)]
                ));
            }
        }
    }
    Ok(())
}

/// A transaction that happened.
struct Transacted<'a> {
    entry: &'a Entry,
    parts: &'a [Part],
    /// The versions before its first write and of its last, if it has written.
    writes: Option<(u64, u64)>,
}

impl<'a> Transacted<'a> {
    fn of(entry: &'a Entry) -> Option<Self> {
        let (Call::Transaction(parts), Some((_, Answered::Stored(last)))) =
            (&entry.call, &entry.ended)
        else {
            return None;
        };
        let writes = parts.iter().filter(|part| part.write != PartWrite::Nothing);
        let count = writes.count() as u64;
        Some(Self {
            entry,
            parts,
            writes: (count > 0).then(|| (last - count, *last)),
        })
    }

    fn shares_a_key(&self, other: &Self) -> bool {
        let is_there = |part: &Part| other.parts.iter().any(|one| one.key == part.key);
        self.parts.iter().any(is_there)
    }
}

fn place(key: u64) -> usize {
    usize::try_from(key).unwrap_or(usize::MAX)
}

/// Adds what a call is to each key.
#[expect(clippy::too_many_lines, reason = "one arm per call")]
fn spread<'a>(
    entry: &'a Entry,
    keys: &Keys<'_>,
    rules: Rules<'_>,
    items: &mut Items<'a>,
) -> Result<(), String> {
    let unknown = entry.is_unknown();
    let (ended, answered) = match &entry.ended {
        Some((ended, answered)) => (*ended, Some(answered)),
        None => (Moment::default(), None),
    };
    let item = Item {
        entry,
        kind: Kind::Look,
        expected: None,
        unlike: None,
        ended,
        seen: if unknown {
            Seen::Unknown
        } else {
            Seen::Nothing
        },
    };
    let simple = match answered {
        _ if unknown => Seen::Unknown,
        Some(Answered::Value(version, value)) => Seen::Is(*version, Some(*value)),
        Some(Answered::Absent | Answered::Mismatch(0)) => Seen::Absent,
        Some(Answered::Mismatch(version)) => Seen::Is(*version, None),
        Some(Answered::Stored(version) | Answered::Deleted(version)) => Seen::Changed(*version),
        _ => Seen::Nothing,
    };
    let mut add = |key: u64, item: Item<'a>| items.entry(key).or_default().push(item);
    let (key, kind) = match &entry.call {
        Call::Get { key, .. } => (*key, Kind::Look),
        Call::Delete { key } => (*key, Kind::Delete),
        Call::Swap { key, expected } => {
            let is_stored = matches!(simple, Seen::Changed(_));
            let item = Item {
                kind: Kind::Store(None),
                expected: is_stored.then_some(*expected),
                unlike: Some(*expected),
                seen: simple,
                ..item
            };
            add(*key, item);
            return Ok(());
        }
        // One whose time is past deletes.
        Call::Put { key, .. } | Call::SetExpiry { key, .. }
            if matches!(answered, Some(Answered::Deleted(_))) =>
        {
            (*key, Kind::Delete)
        }
        Call::Put { key, .. } if matches!(answered, Some(Answered::Absent)) => (*key, Kind::Look),
        Call::Put {
            key, expires_ms, ..
        } => (*key, Kind::Store(*expires_ms)),
        Call::SetExpiry { key, expires_ms } => (*key, Kind::Keep(*expires_ms)),
        Call::Transaction(parts) => {
            for (key, item) in of_transaction(parts, item, answered, unknown)? {
                add(key, item);
            }
            return Ok(());
        }
        Call::Scan { .. } => {
            if let Some(Answered::Scanned(listed, unreadable)) = answered {
                for (key, item) in of_scan((listed, *unreadable), keys, rules, item)? {
                    add(key, item);
                }
            }
            return Ok(());
        }
        Call::Tree { .. }
        | Call::DeleteTree { .. }
        | Call::GetTree { .. }
        | Call::PutTree { .. }
        | Call::ExpireTree { .. } => return Ok(()),
    };
    add(
        key,
        Item {
            kind,
            seen: simple,
            ..item
        },
    );
    Ok(())
}

/// What a transaction is to its keys.
fn of_transaction<'a>(
    parts: &[Part],
    item: Item<'a>,
    answered: Option<&Answered>,
    unknown: bool,
) -> Result<Vec<(u64, Item<'a>)>, String> {
    let kind = |part: &Part| match part.write {
        PartWrite::Nothing => Kind::Look,
        PartWrite::Put => Kind::Store(None),
        PartWrite::Delete => Kind::Clear,
    };
    let with = |part: &Part, kind, expected, seen| {
        let item = Item {
            kind,
            expected,
            seen,
            ..item
        };
        (part.key, item)
    };
    match answered {
        _ if unknown => {
            let items = parts.iter();
            Ok(items
                .map(|part| with(part, kind(part), None, Seen::Unknown))
                .collect())
        }
        Some(Answered::Stored(last)) => {
            let writes = |part: &&Part| part.write != PartWrite::Nothing;
            let count = parts.iter().filter(writes).count() as u64;
            if *last < count {
                return Err(format!("{:?} drew too few versions", item.entry));
            }
            let mut version = last - count;
            let items = parts.iter().map(|part| {
                if part.write != PartWrite::Nothing {
                    version += 1;
                    return with(part, kind(part), part.expected, Seen::Changed(version));
                }
                let seen = match part.expected {
                    Some(0) => Seen::Absent,
                    Some(expected) => Seen::Is(expected, None),
                    None => Seen::Nothing,
                };
                with(part, Kind::Look, None, seen)
            });
            Ok(items.collect())
        }
        Some(Answered::Conflict(place, current)) => {
            let part = parts.get(*place).ok_or("a conflict of no key")?;
            let seen = match current {
                0 => Seen::Absent,
                _ => Seen::Is(*current, None),
            };
            let mut conflict = with(part, Kind::Look, None, seen);
            conflict.1.unlike = part.expected;
            Ok(vec![conflict])
        }
        _ => Ok(Vec::new()),
    }
}

/// What a scan is to every key. A key may share its slot with another one that has taken it over
/// since the key was lost: then the other is listed and the key is passed by.
fn of_scan<'a>(
    (listed, unreadable): (&[Listed], u64),
    keys: &Keys<'_>,
    rules: Rules<'_>,
    item: Item<'a>,
) -> Result<Vec<(u64, Item<'a>)>, String> {
    let listed_slots = listed.iter().filter_map(|(name, ..)| rules.mistaken(name));
    let taken: BTreeSet<_> = listed_slots.collect();
    let mut passed = BTreeSet::new();
    for (name, &key) in keys.iter().filter(|_| !taken.is_empty()) {
        if rules
            .mistaken(name)
            .is_some_and(|slot| taken.contains(&slot))
        {
            passed.insert(key);
        }
    }
    let mut seen = vec![None; keys.len()];
    let mut others = BTreeSet::new();
    for (name, version, value) in listed {
        let is_first = match keys.get(name.as_str()) {
            Some(&key) => seen[key].replace((*version, *value)).is_none(),
            // A collection.
            None => others.insert(name),
        };
        if !is_first {
            return Err(format!("{:?} listed {name} twice", item.entry.call));
        }
    }
    let mut items = Vec::new();
    for (key, seen) in seen.into_iter().enumerate() {
        let seen = match seen {
            Some((version, value)) => Seen::Is(version, value),
            None if unreadable != 0 => continue,
            None if passed.contains(&key) => Seen::Passed,
            None => Seen::Absent,
        };
        items.push((key as u64, Item { seen, ..item }));
    }
    Ok(items)
}

/// The changes of a key, by version.
fn changes_of(items: &[Item<'_>]) -> Vec<Changed> {
    let mut changes = Vec::new();
    for item in items {
        let Seen::Changed(version) = item.seen else {
            continue;
        };
        let stored = stored_by(item.entry.number, &item.entry.call);
        let (value, expires_ms) = match item.kind {
            Kind::Store(expires_ms) => (Some(stored), expires_ms),
            Kind::Keep(expires_ms) => (Some(u64::MAX), expires_ms),
            Kind::Look | Kind::Delete | Kind::Clear => (None, None),
        };
        changes.push(Changed {
            version,
            value,
            expires_ms,
            begun: item.entry.begun.step,
            ended: item.ended.step,
        });
    }
    changes.sort_by_key(|change| change.version);
    // What sets an expiry leaves the value, unless a change of which no answer tells came between.
    let unknown = items.iter().filter(|item| item.seen == Seen::Unknown);
    let first_unknown = unknown.map(|item| item.entry.begun.step).min();
    for place in 1..changes.len() {
        let is_sure = first_unknown.is_none_or(|begun| changes[place].ended < begun);
        if changes[place].value == Some(u64::MAX) && is_sure {
            changes[place].value = changes[place - 1].value.or(Some(u64::MAX));
        }
    }
    changes
}

fn check_order(changes: &[Changed]) -> Result<(), String> {
    let mut pairs = changes.windows(2);
    if let Some(pair) = pairs.find(|pair| pair[0].version == pair[1].version) {
        return Err(format!("two changes drew one version: {pair:?}"));
    }
    // Of each prefix of the changes, the latest beginning: no later one may have ended before it.
    let mut latest_begun = 0;
    for change in changes {
        if change.ended < latest_begun {
            return Err(format!(
                "{change:?} ended before a change of a lower version began, at {latest_begun}"
            ));
        }
        latest_begun = latest_begun.max(change.begun);
    }
    Ok(())
}

/// By version, the step in which the last call that read it began.
fn last_reads(items: &[Item<'_>]) -> BTreeMap<u64, u64> {
    let mut last_reads = BTreeMap::new();
    for item in items {
        if let Seen::Is(version, _) = item.seen {
            let last = last_reads.entry(version).or_default();
            *last = item.entry.begun.step.max(*last);
        }
    }
    last_reads
}

/// Checks one key, which may vanish, or be mistaken for another one; its changes.
fn check_key(
    items: &[Item<'_>],
    (vanishes, may_be_mistaken): (bool, bool),
) -> Result<Vec<Changed>, String> {
    let changes = changes_of(items);
    check_order(&changes)?;
    // The highest version of all changes that had ended by a step.
    let mut by_end: Vec<_> = changes.iter().map(|one| (one.ended, one.version)).collect();
    by_end.sort_unstable();
    let mut highest = 0;
    for (_, version) in &mut by_end {
        highest = highest.max(*version);
        *version = highest;
    }
    let is_unknown = |item: &&Item<'_>| item.seen == Seen::Unknown;
    let unknown: BTreeSet<_> = items
        .iter()
        .filter(is_unknown)
        .map(|item| item.entry.number)
        .collect();
    let first_unknown = items
        .iter()
        .filter(is_unknown)
        .map(|item| item.entry.begun.step)
        .min();
    // Versions whose time was seen to be over, from which step on.
    let mut over: BTreeMap<u64, u64> = BTreeMap::new();
    let last_reads = last_reads(items);
    // By client, the highest version that it knows of.
    let mut known: BTreeMap<usize, u64> = BTreeMap::new();
    for item in items {
        let before = by_end.partition_point(|&(ended, _)| ended < item.entry.begun.step);
        let ended_before = before.checked_sub(1).map_or(0, |last| by_end[last].1);
        let own = known.entry(item.entry.client).or_default();
        let past = match item.entry.is_ordered {
            true => ended_before.max(*own),
            false => ended_before,
        };
        let any_unknown = first_unknown.is_some_and(|begun| begun < item.ended.step);
        let context = Context {
            changes: &changes,
            past,
            any_unknown,
            unknown: &unknown,
            over: &over,
            last_reads: &last_reads,
            vanishes,
            may_be_mistaken,
        };
        if let Some(why) = context.wrong(item) {
            return Err(format!(
                "call {} of client {}, {:?} in steps {} to {}, was answered {:?}: {why}; changes \
                 before: up to version {past}; changes: {:?}",
                item.entry.number,
                item.entry.client,
                item.entry.call,
                item.entry.begun.step,
                item.ended.step,
                item.seen,
                context.near(past)
            ));
        }
        if let Seen::Is(version, _) | Seen::Changed(version) = item.seen {
            *own = (*own).max(version);
        }
        if let Some(version) = context.is_over(item) {
            let since = over.entry(version).or_insert(u64::MAX);
            *since = (*since).min(item.ended.step);
        }
    }
    Ok(changes)
}

/// What an answer about a key is compared with.
struct Context<'a> {
    changes: &'a [Changed],
    /// The version of the latest change that came before the call.
    past: u64,
    /// Some changes may have been made without an answer.
    any_unknown: bool,
    /// The calls that may have made them.
    unknown: &'a BTreeSet<u64>,
    /// Versions whose time was seen to be over, from which step on.
    over: &'a BTreeMap<u64, u64>,
    /// By version, the step in which the last call that read it began.
    last_reads: &'a BTreeMap<u64, u64>,
    vanishes: bool,
    may_be_mistaken: bool,
}

impl Context<'_> {
    fn next_after(&self, version: u64) -> Option<&Changed> {
        let place = self
            .changes
            .partition_point(|change| change.version <= version);
        self.changes.get(place)
    }

    fn of_version(&self, version: u64) -> Option<&Changed> {
        let place = self
            .changes
            .binary_search_by_key(&version, |change| change.version);
        place.ok().map(|place| &self.changes[place])
    }

    /// The changes around a version.
    fn near(&self, version: u64) -> &[Changed] {
        let place = self
            .changes
            .partition_point(|change| change.version < version);
        let from = place.saturating_sub(3);
        &self.changes[from..self.changes.len().min(place + 4)]
    }

    /// True if the state after a change may have been that of the key when the call was served.
    fn fits(&self, version: u64) -> bool {
        self.next_after(version)
            .is_none_or(|next| next.version > self.past)
    }

    /// True if the key may have been absent when the call was served.
    fn may_be_absent(&self, item: &Item<'_>) -> bool {
        if self.vanishes || self.any_unknown || self.fits(0) {
            return true;
        }
        let ends = |change: &Changed| {
            let is_over = |at_ms| at_ms <= item.ended.ceiling_ms;
            change.value.is_none() || change.expires_ms.is_some_and(is_over)
        };
        self.fitting(item).any(ends)
    }

    /// The changes after which the call may have been served: the latest of the past, and all that
    /// follow.
    fn fitting(&self, item: &Item<'_>) -> impl Iterator<Item = &Changed> {
        let past = self
            .changes
            .partition_point(|change| change.version <= self.past);
        let ended = item.ended.step;
        let fitting = self.changes[past.saturating_sub(1)..].iter();
        fitting.filter(move |change| change.begun < ended)
    }

    /// True if a scan may have passed the key by: it was absent, or a record that no later call
    /// reads was lost.
    fn may_be_passed(&self, item: &Item<'_>) -> bool {
        let is_read_later = |change: &Changed| {
            let last_read = self.last_reads.get(&change.version);
            last_read.is_some_and(|&begun| begun > item.ended.step)
        };
        self.may_be_absent(item) || self.fitting(item).any(|change| !is_read_later(change))
    }

    /// The version whose time must have been over for the key to be found absent.
    fn is_over(&self, item: &Item<'_>) -> Option<u64> {
        if item.seen != Seen::Absent || self.vanishes || self.any_unknown {
            return None;
        }
        let last = self.of_version(self.past)?;
        let is_alone = self
            .next_after(self.past)
            .is_none_or(|next| next.begun > item.ended.step);
        (is_alone && last.expires_ms.is_some()).then_some(last.version)
    }

    /// Why an answer about a version is wrong.
    fn wrong_version(&self, item: &Item<'_>, version: u64, value: Option<u64>) -> Option<String> {
        match (self.of_version(version), value) {
            (Some(change), _) if change.value.is_none() => {
                return Some("it is the version of a delete".into());
            }
            (Some(change), Some(value))
                if change.value != Some(value) && change.value != Some(u64::MAX) =>
            {
                return Some("this version holds another value".into());
            }
            (Some(change), _) if change.begun > item.ended.step => {
                return Some("it was stored after this call".into());
            }
            (Some(change), _)
                if change
                    .expires_ms
                    .is_some_and(|at_ms| at_ms < item.entry.begun.floor_ms) =>
            {
                return Some("it had expired".into());
            }
            (Some(_), _)
                if self
                    .over
                    .get(&version)
                    .is_some_and(|&since| since < item.entry.begun.step) =>
            {
                return Some("it had expired before".into());
            }
            (None, Some(value)) if !self.unknown.contains(&call_of(value)) && !self.any_unknown => {
                return Some("no call has stored this version".into());
            }
            (None, None) if !self.any_unknown => {
                return Some("no call has stored this version".into());
            }
            _ => {}
        }
        if !self.fits(version) {
            return Some("a later change had ended before".into());
        }
        (item.unlike == Some(version)).then(|| "it is the expected version".into())
    }

    /// Why an answer is wrong; `None` if it is not.
    fn wrong(&self, item: &Item<'_>) -> Option<String> {
        match item.seen {
            Seen::Is(version, value) => self.wrong_version(item, version, value),
            Seen::Absent if item.unlike == Some(0) => Some("it is the expected version".into()),
            Seen::Absent => (!self.may_be_absent(item)).then(|| "the key was there".into()),
            Seen::Passed => (!self.may_be_passed(item)).then(|| "it is read later".into()),
            Seen::Changed(version) => {
                if version <= self.past {
                    return Some("its version is not above".into());
                }
                let place = self
                    .changes
                    .partition_point(|change| change.version < version);
                let before = place.checked_sub(1).map(|place| &self.changes[place]);
                let state = before.filter(|change| change.value.is_some());
                let is_over = |at_ms| at_ms <= item.ended.ceiling_ms;
                let may_have_gone = self.vanishes
                    || state.is_some_and(|state| state.expires_ms.is_some_and(is_over));
                let version_before = state.map_or(0, |state| state.version);
                let is_wrong = match (item.kind, item.expected) {
                    (_, Some(0)) => version_before != 0 && !may_have_gone,
                    (_, Some(expected)) => version_before != expected,
                    (Kind::Delete, None) => version_before == 0 && !self.may_be_mistaken,
                    (Kind::Keep(_), None) => version_before == 0,
                    _ => false,
                };
                (is_wrong && !self.any_unknown)
                    .then(|| format!("the key was in another state: {before:?}"))
            }
            Seen::Unknown | Seen::Nothing => None,
        }
    }
}

/// Checks that what a transaction expects held at one moment, which lies inside of no other one.
fn check_moment(
    one: &Transacted<'_>,
    all: &[Transacted<'_>],
    items: &Items<'_>,
    changes: &BTreeMap<u64, Vec<Changed>>,
) -> Result<(), String> {
    // Just before its first write.
    let (mut from, mut until) = one
        .writes
        .map_or((0, u64::MAX), |(before, _)| (before, before));
    for part in one.parts {
        let is_known = |item: &Item<'_>| item.seen != Seen::Unknown;
        let (Some(expected @ 1..), Some(changes)) = (part.expected, changes.get(&part.key)) else {
            continue;
        };
        if !items[&part.key].iter().all(is_known) {
            continue;
        }
        let place = changes.partition_point(|change| change.version <= expected);
        from = from.max(expected);
        if let Some(next) = changes.get(place) {
            until = until.min(next.version - 1);
        }
    }
    let others = all.iter().filter(|other| other.shares_a_key(one));
    let mut inside: Vec<_> = others.filter_map(|other| other.writes).collect();
    inside.sort_unstable();
    for (before, last) in inside {
        // Between two of its writes is no moment.
        if before < from && from < last {
            from = last;
        }
    }
    if from > until {
        return Err(format!(
            "{:?}: what it expects held at no moment: from version {from}, until {until}",
            one.entry
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{History, Twins};

    fn at(step: u64) -> Moment {
        Moment {
            step,
            floor_ms: step,
            ceiling_ms: step,
            ..Moment::default()
        }
    }

    const GET: Call = Call::Get {
        key: 1,
        is_long: false,
    };
    const PUT: Call = Call::Put {
        key: 1,
        is_long: false,
        expires_ms: None,
    };
    const DELETE: Call = Call::Delete { key: 1 };

    fn swap(expected: u64) -> Call {
        Call::Swap { key: 1, expected }
    }

    fn both(expected: [Option<u64>; 2], write: PartWrite) -> Call {
        let part = |key: u64| Part {
            key,
            expected: expected[place(key) - 1],
            write,
        };
        Call::Transaction(vec![part(1), part(2)])
    }

    fn other(call: &Call) -> Call {
        match call {
            Call::Put { .. } => Call::Put {
                key: 2,
                is_long: false,
                expires_ms: None,
            },
            _ => Call::Get {
                key: 2,
                is_long: false,
            },
        }
    }

    fn history(calls: &[(Call, u64, u64, Answered)]) -> Result<(), String> {
        history_by(calls, None)
    }

    fn history_by(
        calls: &[(Call, u64, u64, Answered)],
        mistakes: Option<&Twins>,
    ) -> Result<(), String> {
        let mut history = History::default();
        for (client, (call, begun, ended, answered)) in calls.iter().enumerate() {
            let number = history.begin((client, true), call.clone(), at(*begun));
            history.end(number, answered.clone(), at(*ended))?;
        }
        let names = ["zero", "one", "two"].map(str::to_owned);
        let rules = Rules {
            mistakes,
            ..Rules::default()
        };
        history.check(&names, rules)
    }

    #[test]
    fn what_agrees_with_an_order_passes() {
        let calls = [
            (GET, 0, 1, Answered::Absent),
            (PUT, 2, 9, Answered::Stored(4)),
            // At the same time: before it or after it.
            (GET, 3, 4, Answered::Value(4, 1)),
            (DELETE, 10, 11, Answered::Deleted(7)),
            (GET, 12, 13, Answered::Absent),
            (swap(4), 14, 15, Answered::Mismatch(0)),
            (swap(0), 16, 17, Answered::Stored(8)),
            (GET, 18, 19, Answered::Failed("Unavailable".into())),
            (
                both([Some(8), Some(0)], PartWrite::Put),
                20,
                21,
                Answered::Stored(10),
            ),
            (
                both([Some(9), Some(10)], PartWrite::Nothing),
                22,
                23,
                Answered::Stored(0),
            ),
            (
                both([Some(9), Some(9)], PartWrite::Put),
                24,
                25,
                Answered::Conflict(1, 10),
            ),
            (
                Call::Scan { entries: 5 },
                26,
                27,
                Answered::Scanned(
                    vec![("one".into(), 9, Some(8)), ("two".into(), 10, None)],
                    0,
                ),
            ),
        ];
        assert_eq!(history(&calls), Ok(()));
    }

    #[test]
    fn stale_lost_and_invented_answers_are_found() {
        let put = (PUT, 0, 1, Answered::Stored(4));
        let later = (PUT, 2, 3, Answered::Stored(6));
        let get = |answered| (GET, 4, 5, answered);
        for wrong in [
            vec![put.clone(), later.clone(), get(Answered::Value(4, 0))],
            vec![put.clone(), get(Answered::Absent)],
            vec![put.clone(), get(Answered::Value(5, 0))],
            vec![put.clone(), later.clone(), get(Answered::Value(6, 0))],
            vec![put.clone(), (PUT, 2, 3, Answered::Stored(4))],
            vec![put.clone(), (PUT, 2, 3, Answered::Stored(3))],
            vec![
                put.clone(),
                later.clone(),
                (swap(4), 4, 5, Answered::Stored(9)),
            ],
            vec![
                put.clone(),
                (DELETE, 2, 3, Answered::Deleted(5)),
                (DELETE, 4, 5, Answered::Deleted(6)),
            ],
            vec![
                put.clone(),
                (DELETE, 2, 3, Answered::Deleted(5)),
                get(Answered::Value(4, 0)),
            ],
            vec![
                put.clone(),
                (
                    Call::Scan { entries: 5 },
                    4,
                    5,
                    Answered::Scanned(vec![], 0),
                ),
            ],
            vec![
                put,
                later,
                (
                    Call::Scan { entries: 5 },
                    4,
                    5,
                    Answered::Scanned(vec![("one".into(), 4, None)], 0),
                ),
            ],
        ] {
            assert!(history(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_key_may_be_mistaken_for_one_of_its_slot_alone() {
        let deleted = vec![
            (PUT, 0, 1, Answered::Stored(4)),
            (DELETE, 2, 3, Answered::Deleted(5)),
            (DELETE, 4, 5, Answered::Deleted(6)),
        ];
        let listed = |names: &[(&str, u64)]| {
            let listed = names
                .iter()
                .map(|&(name, version)| (name.into(), version, None));
            let scanned = Answered::Scanned(listed.collect(), 0);
            (Call::Scan { entries: 5 }, 4, 5, scanned)
        };
        let passed = vec![
            (PUT, 0, 1, Answered::Stored(4)),
            (other(&PUT), 2, 3, Answered::Stored(5)),
            listed(&[("two", 5)]),
        ];
        let neither = vec![(PUT, 0, 1, Answered::Stored(4)), listed(&[])];
        let two = (other(&PUT), 0, 1, Answered::Stored(3));
        let deleted: Vec<_> = std::iter::once(two).chain(deleted).collect();
        // No key of the slot was stored.
        let alone = deleted[2..].to_vec();
        // What was passed by is read afterwards: so it was not lost.
        let mut kept = passed.clone();
        kept.push((GET, 6, 7, Answered::Value(4, 0)));
        let twins = |names: &[&str]| -> Twins {
            names
                .iter()
                .map(|&name| (name.to_owned(), (0, 7)))
                .collect()
        };
        let both = twins(&["one", "two"]);
        for calls in [&deleted, &passed] {
            assert_eq!(history_by(calls, Some(&both)), Ok(()));
            assert!(history_by(calls, Some(&twins(&["zero", "two"]))).is_err());
            assert!(history_by(calls, None).is_err());
        }
        for wrong in [&neither, &alone, &kept] {
            assert!(history_by(wrong, Some(&both)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_value_lasts_until_its_time_and_no_longer() {
        let put = Call::Put {
            key: 1,
            is_long: false,
            expires_ms: Some(10),
        };
        let put = (put, 0, 1, Answered::Stored(4));
        let get = |step: u64, answered| (GET, step, step + 1, answered);
        assert_eq!(
            history(&[put.clone(), get(8, Answered::Value(4, 0))]),
            Ok(())
        );
        assert_eq!(history(&[put.clone(), get(9, Answered::Absent)]), Ok(()));
        assert!(history(&[put.clone(), get(8, Answered::Absent)]).is_err());
        assert!(history(&[put, get(11, Answered::Value(4, 0))]).is_err());
    }

    #[test]
    fn half_a_transaction_is_found() {
        let put = (PUT, 0, 1, Answered::Stored(1));
        let two = (other(&PUT), 0, 1, Answered::Stored(2));
        let change = (
            both([None, None], PartWrite::Put),
            2,
            9,
            Answered::Stored(4),
        );
        // Key 1 is as after the transaction, key 2 as before it.
        let mixed = both([Some(3), Some(2)], PartWrite::Nothing);
        let seen = (mixed, 3, 8, Answered::Stored(0));
        assert_eq!(history(&[put.clone(), two.clone(), change.clone()]), Ok(()));
        assert!(history(&[put, two, change, seen]).is_err());
    }

    #[test]
    fn a_client_that_reads_what_was_before_its_own_change_is_found() {
        let mut history = History::default();
        let calls = [
            (PUT, 0, 1, Answered::Stored(4)),
            // The put ends late, but comes first.
            (PUT, 2, 9, Answered::Stored(5)),
            (GET, 3, 8, Answered::Value(4, 0)),
        ];
        for (call, begun, ended, answered) in calls {
            let number = history.begin((0, true), call, at(begun));
            history.end(number, answered, at(ended)).unwrap();
        }
        let names = ["zero", "one", "two"].map(str::to_owned);
        assert!(history.check(&names, Rules::default()).is_err());
    }
}
