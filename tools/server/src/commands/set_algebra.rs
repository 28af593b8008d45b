//! `SINTER`, `SUNION`, `SDIFF`, their `STORE` forms and `SINTERCARD`: sets made of several.
//!
//! All sets are read at once, a request each, and a key that is named twice is read once. Members
//! are compared in slices, so that the core's other clients are served meanwhile. A result
//! is stored by one transaction of the engine with the versions that were read, so it is one step
//! for other clients, if all keys lie in one shard. Else it is stored whatever other clients have
//! changed meanwhile, except that a target that is also a source must be as it was read.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use farcore::constants::{KEY_BYTES_MAX, TRANSACTION_KEYS_MAX};
use farcore::{Condition, Core, Error, Expiry, Transaction, TransactionOutcome};

use super::arguments::{is_option, number};
use super::structured::{self, Done, Effect, Failure, Record, write_count};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::kind::Kind;
use crate::types::set::value::{SetValue, of_sorted};
use crate::words::stored_key;

type Result = std::result::Result<Flow, Refusal>;

/// Bytes of all sets that a command reads, at most.
const BYTES_MAX: usize = 4 << 20;
/// Members that are written before the client must have taken some.
const MEMBERS_AT_ONCE: usize = 64;

/// How a set is made of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algebra {
    Intersection,
    Union,
    Difference,
}

impl Algebra {
    /// Members that are gathered at once, at most: a union is made beside the lists that it is made
    /// of.
    fn members_max(self, sets: &[Option<SetValue<'_>>]) -> usize {
        let lengths = sets.iter().map(|set| set.map_or(0, |set| set.len()));
        match self {
            Self::Intersection => lengths.min().unwrap_or(0),
            Self::Union => lengths.sum::<usize>() * 2,
            Self::Difference => sets.first().copied().flatten().map_or(0, |set| set.len()),
        }
    }

    /// The members, sorted, of which no more than `limit` are needed. A key without a set counts as
    /// an empty one. It pauses where a turn may end.
    async fn of<'a>(
        self,
        sets: &[Option<SetValue<'a>>],
        limit: usize,
        pause: &mut impl AsyncFnMut(),
    ) -> Vec<&'a [u8]> {
        match self {
            Self::Intersection => {
                let Some(sets) = sets.iter().copied().collect::<Option<Vec<_>>>() else {
                    return Vec::new();
                };
                intersection(&sets, limit, pause).await
            }
            Self::Union => union(sets, pause).await,
            Self::Difference => {
                let Some((Some(first), others)) = sets.split_first() else {
                    return Vec::new();
                };
                let members = members(*first, pause).await;
                let mut is_left = vec![true; members.len()];
                for other in others.iter().flatten() {
                    strike(&members, &mut is_left, *other, pause).await;
                }
                let left = members.iter().zip(is_left).filter(|(_, is_left)| *is_left);
                left.map(|(member, _)| *member).collect()
            }
        }
    }
}

/// Pauses after some of a walk over a set's members.
async fn walked(place: usize, pause: &mut impl AsyncFnMut()) {
    if place.is_multiple_of(steps::PIECE) {
        steps::count(steps::PIECE);
        pause().await;
    }
}

/// The members of a set.
async fn members<'a>(set: SetValue<'a>, pause: &mut impl AsyncFnMut()) -> Vec<&'a [u8]> {
    steps::count(1);
    let mut members = Vec::with_capacity(set.len());
    for member in set.iter() {
        walked(members.len() + 1, pause).await;
        members.push(member);
    }
    members
}

/// The members that all sets have, up to a limit.
async fn intersection<'a>(
    sets: &[SetValue<'a>],
    limit: usize,
    pause: &mut impl AsyncFnMut(),
) -> Vec<&'a [u8]> {
    let by_size = sets.iter().enumerate().min_by_key(|(_, set)| set.len());
    let Some((smallest, set)) = by_size else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for member in set.iter() {
        if found.len() == limit {
            break;
        }
        let mut is_in_all = true;
        for (place, other) in sets.iter().enumerate() {
            if place == smallest {
                continue;
            }
            steps::count(1);
            if steps::is_slice_over() {
                pause().await;
            }
            is_in_all = other.contains(member);
            if !is_in_all {
                break;
            }
        }
        if is_in_all {
            found.push(member);
        }
    }
    found
}

/// The members that any set has: two sorted lists become one, until one is left.
async fn union<'a>(sets: &[Option<SetValue<'a>>], pause: &mut impl AsyncFnMut()) -> Vec<&'a [u8]> {
    let mut lists = VecDeque::new();
    for set in sets.iter().flatten() {
        lists.push_back(members(*set, pause).await);
    }
    while let Some(list) = lists.pop_front() {
        let Some(other) = lists.pop_front() else {
            return list;
        };
        lists.push_back(merged(&list, &other, pause).await);
    }
    Vec::new()
}

/// Two sorted lists as one, with each member once.
async fn merged<'a>(
    list: &[&'a [u8]],
    other: &[&'a [u8]],
    pause: &mut impl AsyncFnMut(),
) -> Vec<&'a [u8]> {
    let mut merged = Vec::with_capacity(list.len() + other.len());
    let (mut list, mut other) = (
        list.iter().copied().peekable(),
        other.iter().copied().peekable(),
    );
    loop {
        walked(merged.len() + 1, pause).await;
        let next = match (list.peek(), other.peek()) {
            (Some(one), Some(two)) if one > two => other.next(),
            (Some(one), Some(two)) => {
                if one == two {
                    other.next();
                }
                list.next()
            }
            (Some(_), None) => list.next(),
            (None, _) => other.next(),
        };
        match next {
            Some(member) => merged.push(member),
            None => return merged,
        }
    }
}

/// Strikes out of sorted members those that another set has. Cost: a look at some members for each
/// of the other set's: many small sets cost little beside a long one.
async fn strike(
    members: &[&[u8]],
    is_left: &mut [bool],
    other: SetValue<'_>,
    pause: &mut impl AsyncFnMut(),
) {
    let mut start = 0;
    for (walk, member) in other.iter().enumerate() {
        walked(walk + 1, pause).await;
        let rest = &members[start..];
        // What comes next is mostly near: look ever farther, then between the last two places.
        let mut end = 1;
        while rest.get(end).is_some_and(|known| *known < member) {
            end *= 2;
        }
        let near = &rest[..rest.len().min(end)];
        let place = start + near.partition_point(|known| *known < member);
        match members.get(place) {
            None => return,
            Some(known) if *known == member => is_left[place] = false,
            Some(_) => {}
        }
        start = place;
    }
}

/// The keys that a command names, as they are stored.
#[derive(Debug)]
struct Sources {
    /// In the order of the command, each once.
    keys: Vec<Vec<u8>>,
    /// The first is named again, so it is subtracted from itself too.
    is_first_again: bool,
}

impl Sources {
    /// Those from one argument to another.
    fn of(call: &Call<'_>, places: Range<usize>) -> Self {
        let all = places.map(|place| stored_key(call.argument(place)));
        Self::named(all)
    }

    fn named<'a>(all: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut known, mut keys) = (HashSet::new(), Vec::<Vec<u8>>::new());
        let mut is_first_again = false;
        for key in all {
            steps::count(1);
            if known.insert(key) {
                keys.push(key.to_vec());
            } else {
                is_first_again |= keys.first().is_some_and(|first| first == key);
            }
        }
        Self {
            keys,
            is_first_again,
        }
    }

    /// Reads the records of all keys.
    async fn read(
        &self,
        core: &mut Core,
        output: &TaskOutput,
    ) -> std::result::Result<Vec<Record>, Failure> {
        let records = Record::read_all(core, &self.keys, BYTES_MAX).await?;
        steps::count(records.len() / 16);
        if let Some(longest) = records.iter().max_by_key(|record| record.held_bytes()) {
            longest.note(output);
        }
        Ok(records)
    }

    /// The sets that the records of all keys are. It pauses where a turn may end.
    async fn sets<'a>(
        &self,
        records: &'a [Record],
        pause: &mut impl AsyncFnMut(),
    ) -> std::result::Result<Vec<Option<SetValue<'a>>>, Failure> {
        let mut sets = Vec::with_capacity(records.len() + 1);
        for record in records {
            pause().await;
            sets.push(record.value()?);
        }
        if self.is_first_again {
            sets.extend_from_within(..1);
        }
        Ok(sets)
    }

    /// Leaves the events of keys that were read and not found.
    fn notify_missed(&self, output: &TaskOutput, records: &[Record]) {
        for (key, record) in self.keys.iter().zip(records) {
            record.notify_missed(output, key);
        }
    }
}

/// Writes members.
async fn write(members: &[&[u8]], core: &Core, (output, protocol): (&TaskOutput, Protocol)) {
    output.write(|bytes| Writer::new(bytes, protocol).set(members.len()));
    for some in members.chunks(MEMBERS_AT_ONCE) {
        output.room(core).await;
        steps::count(some.len());
        steps::end_slice(core).await;
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            for member in some {
                writer.bulk(member);
            }
        });
    }
}

fn reply(call: &mut Call<'_>, algebra: Algebra) -> Flow {
    let sources = Sources::of(call, 1..call.count());
    call.task(move |mut core, output, protocol| async move {
        let held = structured::hold_records((&mut core, &output), &sources.keys).await;
        let mut held = match held {
            Ok(held) => held,
            Err(shortage) => {
                output.refuse(protocol, &shortage);
                return core;
            }
        };
        let records = sources.read(&mut core, &output).await;
        let sets = match &records {
            Ok(records) => {
                sources.notify_missed(&output, records);
                let pause = &mut async || steps::end_slice(&core).await;
                sources.sets(records, pause).await
            }
            Err(failure) => Err(failure.clone()),
        };
        match sets {
            Ok(sets) => {
                let places = algebra.members_max(&sets) * size_of::<&[u8]>();
                if let Err(shortage) = held.grow_to(held.bytes() + places) {
                    output.refuse(protocol, &shortage);
                    return core;
                }
                let pause = &mut async || steps::end_slice(&core).await;
                let members = algebra.of(&sets, usize::MAX, pause).await;
                write(&members, &core, (&output, protocol)).await;
            }
            Err(failure) => structured::fail(&output, protocol, Kind::Set, &failure),
        }
        core
    })
}

pub(super) fn sinter(call: &mut Call<'_>) -> Result {
    Ok(reply(call, Algebra::Intersection))
}

pub(super) fn sunion(call: &mut Call<'_>) -> Result {
    Ok(reply(call, Algebra::Union))
}

pub(super) fn sdiff(call: &mut Call<'_>) -> Result {
    Ok(reply(call, Algebra::Difference))
}

/// How many members the intersection of some sets has, up to a limit.
async fn count_common(
    core: &mut Core,
    sources: &Sources,
    (limit, output): (usize, &TaskOutput),
) -> std::result::Result<usize, Failure> {
    let _memory = output.take_record_memory(core, sources.keys.len()).await;
    let records = sources.read(core, output).await?;
    sources.notify_missed(output, &records);
    let pause = &mut async || steps::end_slice(core).await;
    let sets = sources.sets(&records, pause).await?;
    let common = Algebra::Intersection.of(&sets, limit, pause).await;
    Ok(common.len())
}

pub(super) fn sintercard(call: &mut Call<'_>) -> Result {
    let refusal = "ERR numkeys should be greater than 0";
    let count = number(call.argument(1), 1, refusal)?;
    if count > call.count() - 2 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let (mut limit, mut place) = (usize::MAX, 2 + count);
    while place < call.count() {
        if !is_option(call.argument(place), "limit") || place + 1 == call.count() {
            return Err(SYNTAX.into());
        }
        // As Redis, 0 is none.
        limit = match number(call.argument(place + 1), 0, "ERR LIMIT can't be negative")? {
            0 => usize::MAX,
            wanted => wanted,
        };
        place += 2;
    }
    let sources = Sources::of(call, 2..2 + count);
    Ok(call.task(move |mut core, output, protocol| async move {
        let count = count_common(&mut core, &sources, (limit, &output)).await;
        structured::finish(&output, protocol, (Kind::Set, count), write_count);
        core
    }))
}

/// Makes a set of several and stores it under a key, which is removed if the set is empty. Returns
/// how many members it has, and what has become of the key. Whether it was absent before is looked
/// at if that makes an event, or if it is removed.
async fn make(
    core: &mut Core,
    (target, sources): (&[u8], &Sources),
    algebra: Algebra,
    output: &TaskOutput,
) -> std::result::Result<(usize, Done), Failure> {
    let _memory = output
        .take_record_memory(core, sources.keys.len() + 1)
        .await;
    loop {
        let records = sources.read(core, output).await?;
        let pause = &mut async || steps::end_slice(core).await;
        let sets = sources.sets(&records, pause).await?;
        let members = algebra.of(&sets, usize::MAX, pause).await;
        steps::count(members.len() / 16);
        let (made, count) = of_sorted(members.into_iter());
        let effect = made.map_or(Effect::Delete, Effect::Store);
        let mut transaction = Transaction::new();
        let read = sources.keys.iter().zip(&records);
        // One that is too long stays absent.
        let read = read.filter(|(key, _)| key.len() <= KEY_BYTES_MAX);
        for (key, record) in read.take(TRANSACTION_KEYS_MAX + 1) {
            transaction = transaction.expect(key, record.version);
        }
        // A target that is a source must be as it was read, or members that others have added
        // since would be lost.
        let place = sources.keys.iter().position(|key| key == target);
        let mut before = place.map(|place| records[place].version);
        if before.is_none() && (matches!(effect, Effect::Delete) || output.sends(EventClasses::NEW))
        {
            let version = core.inspect(target).await?.map_or(0, |known| known.version);
            transaction = transaction.expect(target, version);
            before = Some(version);
        }
        transaction = match &effect {
            Effect::Store(record) => {
                output.note_record(record.len());
                transaction.put_structured(target, record, Expiry::Never)
            }
            _ => transaction.delete(target),
        };
        let is_done = match core.transaction(&transaction).await {
            Ok(TransactionOutcome::Committed { .. }) => true,
            Ok(TransactionOutcome::Conflict { .. }) => false,
            Err(
                Error::KeysApart { .. }
                | Error::TransactionKeys { .. }
                | Error::TransactionTooLong { .. },
            ) => {
                let condition = before.map_or(Condition::Always, Condition::Version);
                let options = (condition, Expiry::Never);
                structured::put((&mut *core, output), target, options, &effect).await?
            }
            Err(error) => return Err(error.into()),
        };
        if is_done {
            sources.notify_missed(output, &records);
            let is_new = before == Some(0);
            let done = match effect {
                Effect::Store(_) => Done::Stored { is_new },
                _ if is_new => Done::Nothing,
                _ => Done::Deleted,
            };
            return Ok((count, done));
        }
    }
}

/// Starts a `STORE` form, which is the event `name`.
fn store(call: &mut Call<'_>, algebra: Algebra, name: &'static str) -> Flow {
    let target = call.key().to_vec();
    let sources = Sources::of(call, 2..call.count());
    call.task(move |mut core, output, protocol| async move {
        let made = make(&mut core, (&target, &sources), algebra, &output).await;
        let made = made.map(|(count, done)| {
            if done == Done::Deleted {
                output.notify(EventClasses::GENERIC, "del", &target);
            } else {
                done.notify(&output, (Kind::Set, name), &target);
            }
            count
        });
        structured::finish(&output, protocol, (Kind::Set, made), write_count);
        core
    })
}

pub(super) fn sinterstore(call: &mut Call<'_>) -> Result {
    Ok(store(call, Algebra::Intersection, "sinterstore"))
}

pub(super) fn sunionstore(call: &mut Call<'_>) -> Result {
    Ok(store(call, Algebra::Union, "sunionstore"))
}

pub(super) fn sdiffstore(call: &mut Call<'_>) -> Result {
    Ok(store(call, Algebra::Difference, "sdiffstore"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_lite::future::block_on;
    use proptest::prelude::*;

    use super::*;
    use crate::types::kind::Structured;
    use crate::types::set::value::with_members;

    proptest! {
        #[test]
        fn sets_are_made_of_several_as_sorted_sets_are(
            all in prop::collection::vec(prop::collection::btree_set(0_u8..60, 0..50), 1..9),
            limit in 0_usize..70,
        ) {
            let records: Vec<_> = all.iter().map(|members| {
                let members: Vec<_> = members.iter().map(|member| [*member]).collect();
                with_members(None, members.iter().map(|member| &member[..])).0
            }).collect();
            let sets: Vec<_> = records.iter().map(|record| {
                record.as_deref().map(|record| SetValue::of(record).expect("a set"))
            }).collect();
            let union = all.iter().flatten().copied().collect::<BTreeSet<_>>();
            let common = all[0].iter().copied();
            let common = common.filter(|member| all.iter().all(|set| set.contains(member)));
            let first = all[0].iter().copied();
            let left = first.filter(|member| !all[1..].iter().any(|set| set.contains(member)));
            for (algebra, expected) in [
                (Algebra::Union, union.into_iter().collect::<Vec<_>>()),
                (Algebra::Intersection, common.collect()),
                (Algebra::Difference, left.collect()),
            ] {
                let of = |limit| block_on(algebra.of(&sets, limit, &mut async || {}));
                let made = of(usize::MAX);
                let members: Vec<_> = made.iter().map(|member| member[0]).collect();
                prop_assert_eq!(&members, &expected, "{:?}", algebra);
                let (record, count) = of_sorted(made.into_iter());
                prop_assert_eq!(count, expected.len());
                prop_assert_eq!(record.is_some(), count > 0);
                if algebra == Algebra::Intersection {
                    prop_assert_eq!(of(limit).len(), limit.min(expected.len()));
                }
            }
        }
    }

    #[test]
    fn a_key_that_is_named_again_is_read_once() {
        let keys = |names: &[&str]| {
            let sources = Sources::named(names.iter().map(|name| name.as_bytes()));
            let records: Vec<_> = sources.keys.iter().map(|_| Record::default()).collect();
            let sets = block_on(sources.sets(&records, &mut async || {}));
            let sets = sets.expect("no keys").len();
            let keys = sources.keys.into_iter().map(String::from_utf8);
            let keys = keys.collect::<std::result::Result<Vec<_>, _>>();
            (keys.expect("text").join(" "), sets)
        };
        assert_eq!(keys(&["b", "a", "a", "c", "a"]), ("b a c".into(), 3));
        assert_eq!(keys(&["b", "a", "b", "b"]), ("b a".into(), 3));
        assert_eq!(keys(&["b", "b"]), ("b".into(), 2));
    }
}
