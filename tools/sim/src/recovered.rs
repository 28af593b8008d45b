//! Whether what an engine brings back from its data directory is what it promised.
//!
//! The versions of a shard order all of its changes, and its log has them in that order. So what is
//! recovered of a shard must be what it held after one of its versions. For each key, what was
//! found says after which versions that can have been: intervals of versions. All keys of a shard
//! must have a version in common, which must not lie inside of a transaction, nor before what was
//! promised. Where several shards are to be recovered as of one moment, no change that is left out
//! may have ended before one began that is there.
//!
//! - I1: what is not known of a call that was under way makes intervals wider, never narrower.

use std::collections::{BTreeMap, BTreeSet};

use farcore::TreeKind;

use crate::call::{Answered, Call, Part, PartWrite, TreeCall, call_of};
use crate::collections::{self, Held, Model, TreeAfter};
use crate::history::{Entry, Moment, Rules};
use crate::keys::{self, Changed, KeyFacts, Kind};

/// A bit of a value's number, which calls do not have.
const LONG: u64 = 1 << 63;

/// Versions, from one to before another.
type Interval = (u64, u64);

/// What was found after a crash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// By key, its version and the number of its value.
    pub(crate) keys: BTreeMap<u64, (u64, u64)>,
    /// Collections, and the values that are in their keys.
    pub(crate) trees: BTreeMap<u64, Model>,
}

/// What must be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// What was answered before this step.
    pub(crate) since: u64,
    /// All shards are as they were at one moment.
    pub(crate) is_one_moment: bool,
    /// Keys may become absent by themselves.
    pub(crate) vanishes: bool,
    /// The disk has damaged what it held: what is there may be older than what was there before.
    pub(crate) is_damaged: bool,
    /// What the engine's time is at most, when it is read.
    pub(crate) ceiling_ms: u64,
}

/// What the next history begins with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    pub(crate) entries: Vec<Entry>,
    pub(crate) trees: BTreeMap<u64, Model>,
    /// Keys and collections of which it is not known when they expire.
    pub(crate) unclear_keys: Vec<u64>,
    pub(crate) unclear_trees: Vec<u64>,
    /// Calls without an answer that have happened.
    pub(crate) happened: u64,
    /// Changes that were answered, and are not there.
    pub(crate) left_out: u64,
}

/// What is known of one shard.
#[derive(Clone, Debug)]
struct ShardCut {
    common: Vec<Interval>,
    /// What narrowed it last.
    last: String,
    /// Version, beginning and end of each change.
    changes: Vec<(u64, u64, u64)>,
}

fn meet(one: &[Interval], other: &[Interval]) -> Vec<Interval> {
    let mut both = Vec::new();
    for &(from, until) in one {
        for &(start, end) in other {
            let (from, until) = (from.max(start), until.min(end));
            if from < until {
                both.push((from, until));
            }
        }
    }
    both
}

impl ShardCut {
    fn new() -> Self {
        Self {
            common: vec![(0, u64::MAX)],
            last: String::new(),
            changes: Vec::new(),
        }
    }

    fn narrow(&mut self, to: &[Interval], of: impl Fn() -> String) -> Result<(), String> {
        let both = meet(&self.common, to);
        if both.is_empty() {
            return Err(format!(
                "{}: it must be as after a version in {to:?}, and its shard as after one in {:?}, \
                 as {} says",
                of(),
                self.common,
                self.last
            ));
        }
        if both != self.common {
            (self.common, self.last) = (both, of());
        }
        Ok(())
    }
}

/// The history that a crash has ended, as far as it is judged.
pub(crate) struct Life<'a> {
    pub(crate) entries: &'a [Entry],
    /// The names of the keys, and of collections.
    pub(crate) names: &'a [String],
    pub(crate) name_of_tree: fn(u64) -> String,
    /// What collections were before.
    pub(crate) trees: &'a BTreeMap<u64, Model>,
    pub(crate) shard_of: &'a dyn Fn(&str) -> u16,
}

impl Life<'_> {
    /// Compares what was found with what was promised.
    ///
    /// # Errors
    /// What contradicts what.
    pub(crate) fn judge(&self, found: &Found, promise: Promise) -> Result<Base, String> {
        let rules = Rules {
            vanishes: promise.vanishes,
            mistakes: None,
        };
        let facts = keys::facts(self.entries, self.names, rules)?;
        let mut shards: BTreeMap<u16, ShardCut> = BTreeMap::new();
        let mut base = Base::default();
        let calls: BTreeMap<u64, &Entry> =
            self.entries.iter().map(|one| (one.number, one)).collect();
        for (key, name) in (0..).zip(self.names) {
            let none = KeyFacts::default();
            let facts = facts.get(&key).unwrap_or(&none);
            let of = || format!("key {key} ({name})");
            let seen = found.keys.get(&key).copied();
            let intervals = intervals_of(facts, seen, promise, &calls)
                .map_err(|error| format!("{}: {error}; found {seen:?}, known {facts:?}", of()))?;
            let shard = shards
                .entry((self.shard_of)(name))
                .or_insert_with(ShardCut::new);
            shard.narrow(&intervals, || {
                format!(
                    "{}, of which {seen:?} was found, and {facts:?} is known",
                    of()
                )
            })?;
            let changes = facts.changes.iter();
            shard
                .changes
                .extend(changes.map(|one| (one.version, one.begun, one.ended)));
            // What was read was there.
            let read = facts.read.iter();
            shard
                .changes
                .extend(read.map(|(&version, &ended)| (version, 0, ended)));
            let is_known = facts
                .changes
                .iter()
                .any(|one| Some(one.version) == seen.map(|seen| seen.0));
            if promise.is_damaged && seen.is_some() && !is_known {
                base.unclear_keys.push(key);
            }
            if let Some(seen) = seen {
                base.add_key(key, seen, facts, &calls);
            }
        }
        self.judge_trees(found, (promise, rules), &mut shards, &mut base)?;
        if !promise.is_damaged {
            self.judge_transactions((found, &facts), promise, &mut shards)?;
        }
        for shard in shards.values_mut() {
            let promised = shard.changes.iter().filter(|one| one.2 < promise.since);
            if let Some(&last) = promised.max() {
                shard.narrow(&[(last.0, u64::MAX)], || {
                    format!("{last:?} (version, begun, ended) was promised")
                })?;
            }
        }
        for (number, shard) in &shards {
            let latest = shard.common.last().map_or(0, |last| last.1 - 1);
            let left_out = shard.changes.iter().filter(|one| one.0 > latest);
            base.left_out += left_out.count() as u64;
            let _ = number;
        }
        if promise.is_one_moment {
            check_moment(&shards)?;
        }
        Ok(base)
    }

    fn judge_trees(
        &self,
        found: &Found,
        (promise, rules): (Promise, Rules<'_>),
        shards: &mut BTreeMap<u16, ShardCut>,
        base: &mut Base,
    ) -> Result<(), String> {
        let by_tree = collections::by_tree(self.entries);
        let none = Vec::new();
        let known = by_tree.keys().chain(self.trees.keys());
        let known: BTreeSet<u64> = known.chain(found.trees.keys()).copied().collect();
        for tree in known {
            let entries = by_tree.get(&tree).unwrap_or(&none);
            let afters = collections::afters(entries, self.trees.get(&tree), rules)?;
            let unknown: Vec<_> = entries.iter().filter(|one| one.is_unknown()).collect();
            let seen = found.trees.get(&tree);
            let of = |what: &str| {
                let near = afters.len().saturating_sub(3);
                format!(
                    "collection {tree}: {what}; found {seen:?}, unanswered {unknown:?}, its last \
                     changes {:?}",
                    &afters[near..]
                )
            };
            let (intervals, is_clear) =
                tree_intervals(&afters, seen, &unknown, promise).map_err(|error| of(&error))?;
            let name = (self.name_of_tree)(tree);
            let shard = shards
                .entry((self.shard_of)(&name))
                .or_insert_with(ShardCut::new);
            shard.narrow(&intervals, || of("what was found"))?;
            let changes = afters.iter().filter(|one| one.version > 0);
            shard
                .changes
                .extend(changes.map(|one| (one.version, one.begun, one.ended)));
            let Some(seen) = seen else { continue };
            let mut model = seen.clone();
            let after = afters.iter().find(|one| one.version == seen.version);
            let same = after.and_then(|after| after.models.iter().find(|one| one.is_like(seen)));
            if let Some(same) = same {
                model.expires_ms = same.expires_ms;
            }
            if !is_clear || after.is_none() {
                base.unclear_trees.push(tree);
            }
            base.happened += u64::from(after.is_none());
            base.trees.insert(tree, model);
        }
        Ok(())
    }

    /// No version inside of a transaction is one after which a shard is recovered; and of one that
    /// was not answered all keys have what it wrote, or none.
    fn judge_transactions(
        &self,
        (found, facts): (&Found, &BTreeMap<u64, KeyFacts>),
        promise: Promise,
        shards: &mut BTreeMap<u16, ShardCut>,
    ) -> Result<(), String> {
        for entry in self.entries {
            let Call::Transaction(parts) = &entry.call else {
                continue;
            };
            let writes: Vec<&Part> = parts
                .iter()
                .filter(|part| part.write != PartWrite::Nothing)
                .collect();
            let count = writes.len() as u64;
            if count < 2 {
                continue;
            }
            let first = match &entry.ended {
                Some((_, Answered::Stored(last))) => last + 1 - count,
                _ if entry.is_unknown() => {
                    let written = writes.iter().zip(0..).find_map(|(part, place)| {
                        let (version, value) = found.keys.get(&part.key)?;
                        let is_its = *value == entry.number && part.write == PartWrite::Put;
                        is_its.then_some(version - place)
                    });
                    let Some(first) = written else { continue };
                    self.check_whole((entry, &writes, first), (found, facts), promise)?;
                    first
                }
                _ => continue,
            };
            let name = &self.names[usize::try_from(writes[0].key).unwrap_or(0)];
            let shard = shards
                .entry((self.shard_of)(name))
                .or_insert_with(ShardCut::new);
            let outside = [(0, first), (first + count - 1, u64::MAX)];
            shard.narrow(&outside, || format!("the transaction {entry:?}"))?;
        }
        Ok(())
    }

    fn check_whole(
        &self,
        (entry, writes, first): (&Entry, &[&Part], u64),
        (found, facts): (&Found, &BTreeMap<u64, KeyFacts>),
        promise: Promise,
    ) -> Result<(), String> {
        for (part, version) in writes.iter().zip(first..) {
            let is_so = match (found.keys.get(&part.key), part.write) {
                (Some((seen, _)), PartWrite::Put) => *seen >= version,
                (Some((seen, _)), _) => *seen > version,
                (None, PartWrite::Put) => {
                    // It was deleted since, or has expired; or another call that was not answered
                    // may have deleted it.
                    let facts = facts.get(&part.key);
                    let mut changes = facts.into_iter().flat_map(|facts| &facts.changes);
                    let is_over =
                        |at_ms: Option<u64>| at_ms.is_some_and(|at_ms| at_ms <= promise.ceiling_ms);
                    let is_gone = changes.any(|one| {
                        one.version > version && (one.value.is_none() || is_over(one.expires_ms))
                    });
                    let others = self.entries.iter().filter(|one| one.is_unknown());
                    let mut others = others.filter(|one| one.number != entry.number);
                    promise.vanishes || is_gone || others.any(|one| names_key(&one.call, part.key))
                }
                (None, _) => true,
            };
            if !is_so {
                return Err(format!(
                    "{entry:?} is there in part: key {} should have version {version}, found {:?}",
                    part.key,
                    found.keys.get(&part.key)
                ));
            }
        }
        Ok(())
    }
}

fn names_key(call: &Call, key: u64) -> bool {
    match call {
        Call::Delete { key: of } | Call::Put { key: of, .. } | Call::SetExpiry { key: of, .. } => {
            *of == key
        }
        Call::Transaction(parts) => parts.iter().any(|part| part.key == key),
        _ => false,
    }
}

/// The shards are as they were at one moment: no change that is left out of one had ended before
/// another began that is there.
fn check_moment(shards: &BTreeMap<u16, ShardCut>) -> Result<(), String> {
    let (mut latest, mut earliest) = ((0, 0, 0, 0), (u64::MAX, 0, 0, 0));
    for (&number, shard) in shards {
        let from = shard.common.first().map_or(0, |first| first.0);
        let until = shard.common.last().map_or(u64::MAX, |last| last.1);
        for &(version, begun, ended) in &shard.changes {
            if version <= from {
                latest = latest.max((begun, number, version, ended));
            } else if version >= until {
                earliest = earliest.min((ended, number, version, begun));
            }
        }
    }
    if earliest.0 < latest.0 {
        return Err(format!(
            "the shards are of no moment: {earliest:?} (ended, shard, version, begun) is left out \
             and {latest:?} (begun, shard, version, ended) is there"
        ));
    }
    Ok(())
}

/// From a change to before the next one.
fn until_next(changes: &[Changed], version: u64) -> Interval {
    let next = changes.iter().find(|change| change.version > version);
    (version, next.map_or(u64::MAX, |next| next.version))
}

/// The versions after which a key may have been as it was found.
fn intervals_of(
    facts: &KeyFacts,
    seen: Option<(u64, u64)>,
    promise: Promise,
    calls: &BTreeMap<u64, &Entry>,
) -> Result<Vec<Interval>, String> {
    let changes = &facts.changes;
    let Some((version, value)) = seen else {
        let is_over = |at_ms: Option<u64>| at_ms.is_some_and(|at_ms| at_ms <= promise.ceiling_ms);
        let may_remove = |kind: Kind| match kind {
            Kind::Delete | Kind::Clear => true,
            Kind::Store(at_ms) | Kind::Keep(at_ms) => is_over(at_ms),
            Kind::Look => false,
        };
        if promise.is_damaged
            || promise.vanishes
            || facts.unknown.iter().any(|&(_, kind)| may_remove(kind))
        {
            return Ok(vec![(0, u64::MAX)]);
        }
        let first = changes.first().map_or(u64::MAX, |first| first.version);
        let mut intervals = vec![(0, first)];
        for change in changes {
            if change.value.is_none() || is_over(change.expires_ms) {
                intervals.push(until_next(changes, change.version));
            }
        }
        return Ok(intervals);
    };
    let known = changes.iter().find(|change| change.version == version);
    match known.map(|change| change.value) {
        Some(None) => return Err("it is the version of a delete".into()),
        Some(Some(known)) if known != value && known != u64::MAX => {
            return Err(format!("this version has the value {known:x}"));
        }
        Some(_) => {}
        None => {
            let number = call_of(value & !LONG);
            let is_its = |&(call, kind): &(u64, Kind)| {
                call == number && matches!(kind, Kind::Store(_)) || matches!(kind, Kind::Keep(_))
            };
            if promise.is_damaged {
                return Ok(vec![(0, u64::MAX)]);
            }
            if !facts.unknown.iter().any(is_its) {
                return Err(format!(
                    "no call under way has stored it: {:?}",
                    calls.get(&number)
                ));
            }
        }
    }
    Ok(vec![until_next(changes, version)])
}

impl Base {
    /// Adds a key by the call that its value is of.
    fn add_key(
        &mut self,
        key: u64,
        (version, value): (u64, u64),
        facts: &KeyFacts,
        calls: &BTreeMap<u64, &Entry>,
    ) {
        let number = value & !LONG;
        let known = facts.changes.iter().find(|one| one.version == version);
        let expires_ms = match known {
            Some(change) => change.expires_ms,
            None => {
                self.happened += 1;
                let keeps = facts.unknown.iter().filter_map(|one| match one.1 {
                    Kind::Keep(expires_ms) => Some(expires_ms),
                    _ => None,
                });
                let keeps: Vec<_> = keeps.collect();
                if !keeps.is_empty() {
                    self.unclear_keys.push(key);
                }
                let stored_ms = match calls.get(&call_of(number)).map(|entry| &entry.call) {
                    Some(Call::Put { expires_ms, .. }) => *expires_ms,
                    _ => None,
                };
                // The latest that it may be: what was read of the key is judged by it.
                let may_be = keeps.into_iter().chain([stored_ms]);
                may_be
                    .collect::<Option<Vec<_>>>()
                    .and_then(|all| all.into_iter().max())
            }
        };
        self.entries.push(Entry {
            number,
            client: usize::MAX,
            is_ordered: false,
            call: Call::Put {
                key,
                is_long: value & LONG != 0,
                expires_ms,
            },
            begun: Moment::default(),
            ended: Some((Moment::default(), Answered::Stored(version))),
        });
    }
}

/// The versions after which a collection may have been as it was found; and whether it is known all
/// of what it is.
fn tree_intervals(
    afters: &[TreeAfter],
    seen: Option<&Model>,
    unknown: &[&&Entry],
    promise: Promise,
) -> Result<(Vec<Interval>, bool), String> {
    let next_of = |version: u64| {
        let next = afters.iter().find(|after| after.version > version);
        next.map_or(u64::MAX, |next| next.version)
    };
    let Some(seen) = seen else {
        if promise.is_damaged || promise.vanishes || !unknown.is_empty() {
            return Ok((vec![(0, u64::MAX)], true));
        }
        let is_gone = |model: &Model| {
            let is_over = |at_ms| at_ms <= promise.ceiling_ms;
            model.held == Held::Absent || model.expires_ms.is_some_and(is_over)
        };
        let may_be_gone =
            |after: &&TreeAfter| after.models.is_empty() || after.models.iter().any(is_gone);
        let mut intervals: Vec<_> = afters
            .iter()
            .filter(may_be_gone)
            .map(|after| (after.version, next_of(after.version)))
            .collect();
        // A change that has made it empty has a version, but what it was before has none.
        if let Some(first) = intervals.first_mut().filter(|_| afters[0].version == 0) {
            first.0 = first
                .0
                .min(if may_be_gone(&&afters[0]) { 0 } else { first.0 });
        }
        return Ok((intervals, true));
    };
    if promise.is_damaged {
        return Ok((vec![(0, u64::MAX)], false));
    }
    let interval = vec![(seen.version, next_of(seen.version))];
    // The nearest change that is known, whose models unanswered calls may have changed since.
    let before = afters.iter().rev().find(|one| one.version <= seen.version);
    let Some(before) = before else {
        return Err("it is older than all that is known".into());
    };
    if before.version == seen.version && before.models.iter().any(|one| one.is_like(seen)) {
        let is_clear = before.models.len() == 1 || unknown.is_empty();
        return Ok((interval, is_clear));
    }
    if unknown.is_empty() && before.version != seen.version {
        return Err("no call has made this version".into());
    }
    if unknown.is_empty() && !before.models.is_empty() {
        return Err("it is not what this change has left".into());
    }
    if before.models.is_empty() {
        return Ok((interval, false));
    }
    // One that has happened before others shifts the ranks that they are about: what they removed
    // of a list may have been another element.
    let is_shifted = matches!(seen.held, Held::List(_)) && {
        let models = afters.iter().flat_map(|after| &after.models);
        let ever: BTreeSet<u64> = models.flat_map(Model::values).collect();
        let calls: BTreeSet<u64> = unknown.iter().map(|one| one.number).collect();
        let is_known = |value: &u64| ever.contains(value) || calls.contains(&call_of(*value));
        !unknown.is_empty() && seen.values().iter().all(is_known)
    };
    let explains = |model: &Model| explains(model, seen, unknown);
    match is_shifted || before.models.iter().any(explains) {
        true => Ok((interval, false)),
        false => Err("the calls without an answer do not make it".into()),
    }
}

/// True if calls without an answer may have made one of the other.
fn explains(model: &Model, seen: &Model, unknown: &[&&Entry]) -> bool {
    let calls: BTreeSet<u64> = unknown.iter().map(|one| one.number).collect();
    let known: BTreeSet<u64> = model.values().into_iter().collect();
    let now: BTreeSet<u64> = seen.values().into_iter().collect();
    let mut added = now.iter().filter(|value| !known.contains(value));
    let only_adds = unknown.iter().all(|one| {
        let Call::Tree { call, .. } = &one.call else {
            return false;
        };
        matches!(call, TreeCall::Push { .. } | TreeCall::InsertAt(_))
    });
    let keeps = !only_adds || known.iter().all(|value| now.contains(value));
    // What one call pushes is there as a whole.
    let is_whole = |one: &&&Entry| match &one.call {
        Call::Tree {
            call: TreeCall::Push { count, .. },
            ..
        } if only_adds => {
            let its = now.iter().filter(|&&value| call_of(value) == one.number);
            let its = its.count() as u64;
            its == 0 || its == *count
        }
        _ => true,
    };
    added.all(|&value| calls.contains(&call_of(value))) && keeps && unknown.iter().all(is_whole)
}

/// The kind of a collection by its number.
pub(crate) fn kind_of_number(kind: u8) -> TreeKind {
    let kinds = [TreeKind::Map, TreeKind::List, TreeKind::Scored];
    let known = kinds.into_iter().find(|one| *one as u8 == kind);
    known.unwrap_or_default()
}
