//! `SINTER`, `SUNION`, `SDIFF`, their `STORE` forms and `SINTERCARD`: sets made of several.
//!
//! All sets are read at the versions that they had at first, page by page, and what is made of them
//! is gathered in memory that the client is charged for. If another client changes one of them
//! meanwhile, the command begins anew. An intersection or a difference reads one set, and looks its
//! members up in the others. A result is stored in steps, under the sections of the target and the
//! sets: the first one replaces what the target held.
//!
//! - I1: a result that is stored is made of the sets as they are when it is.
//! - I2: a result is stored whole, or its target is removed.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use farcore::constants::KEY_BYTES_MAX;
use farcore::{
    Answer, Core, Error, Operation, TreeGuard, TreeLength, TreeOp, TreeValues, TreeView,
};

use super::arguments::{is_option, number};
use super::trees::{Step, ask, finish, gather, read_all, send, size_of_page, undo, update_all};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::element::{Entry, entry_of};
use crate::types::kind::Kind;

type Result = std::result::Result<Flow, Refusal>;

/// Members that are looked up in another set at once.
const LOOKED_UP_AT_ONCE: usize = 64;
/// Bytes that a member of a result takes beside its own.
const BESIDE_MEMBER: usize = 2 * (size_of::<Vec<u8>>() + 16) + 32;

/// How a set is made of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algebra {
    Intersection,
    Union,
    Difference,
}

/// Members as trees have them, in their order.
type Members = Vec<(Vec<u8>, Vec<u8>)>;

/// Sets that are read.
struct Sets<'s> {
    keys: &'s [Vec<u8>],
    lengths: Vec<TreeLength>,
    /// The first is subtracted from itself too.
    is_first_again: bool,
}

impl Sets<'_> {
    /// What is made of them, of which no more than `limit` members are needed.
    async fn make(
        &self,
        (core, output): Step<'_>,
        algebra: Algebra,
        limit: usize,
    ) -> std::result::Result<(Members, Charge), TaskFailure> {
        match algebra {
            Algebra::Union => self.union((core, output)).await,
            Algebra::Intersection => {
                let all = 0..self.keys.len();
                let Some(least) = all
                    .clone()
                    .min_by_key(|&place| self.lengths[place].elements)
                else {
                    return Ok((Vec::new(), output.hold(0)));
                };
                let mut others: Vec<_> = all.filter(|&place| place != least).collect();
                others.sort_by_key(|&place| self.lengths[place].elements);
                self.filtered((core, output), (least, &others), (true, limit))
                    .await
            }
            Algebra::Difference => {
                let mut others: Vec<_> = (1..self.keys.len()).collect();
                others.retain(|&place| self.lengths[place].version > 0);
                if self.is_first_again {
                    return Ok((Vec::new(), output.hold(0)));
                }
                self.filtered((core, output), (0, &others), (false, limit))
                    .await
            }
        }
    }

    /// The members that any set has.
    async fn union(
        &self,
        (core, output): Step<'_>,
    ) -> std::result::Result<(Members, Charge), TaskFailure> {
        let (mut all, mut bytes) = (BTreeMap::new(), 0);
        let mut held = output.hold(0);
        for (key, length) in self.keys.iter().zip(&self.lengths) {
            let (pages, _read) = read_all((&mut *core, output), (Kind::Set, key), length).await?;
            for page in &pages {
                for (key, value) in page.iter() {
                    if !all.contains_key(key) {
                        bytes += key.len() + value.len() + BESIDE_MEMBER;
                        all.insert(key.to_vec(), value.to_vec());
                    }
                }
                if bytes > held.bytes() {
                    held.grow_to(bytes + bytes / 4)?;
                }
                output.end_read(core, size_of_page(page)).await?;
            }
        }
        Ok((gather(all.into_iter(), core).await, held))
    }

    /// The members of one set that all others have, or none of them.
    async fn filtered(
        &self,
        (core, output): Step<'_>,
        (first, others): (usize, &[usize]),
        (is_in_others, limit): (bool, usize),
    ) -> std::result::Result<(Members, Charge), TaskFailure> {
        let (key, length) = (&self.keys[first], &self.lengths[first]);
        let (pages, mut held) = read_all((&mut *core, output), (Kind::Set, key), length).await?;
        let read = held.bytes();
        let (mut found, mut bytes) = (Members::new(), 0);
        for page in &pages {
            let all: Vec<_> = page.iter().collect();
            for some in all.chunks(LOOKED_UP_AT_ONCE) {
                let mut left: Vec<_> = some.to_vec();
                for &other in others {
                    if left.is_empty() {
                        break;
                    }
                    let keys: Vec<_> = left.iter().map(|(key, _)| *key).collect();
                    let has = self.look_up((&mut *core, output), other, &keys).await?;
                    let mut has = has.into_iter();
                    left.retain(|_| has.next() == Some(is_in_others));
                }
                for (key, value) in left.into_iter().take(limit - found.len()) {
                    bytes += key.len() + value.len() + BESIDE_MEMBER;
                    found.push((key.to_vec(), value.to_vec()));
                }
                if bytes > held.bytes() - read {
                    held.grow_to(read + bytes + bytes / 4)?;
                }
                if found.len() == limit {
                    return Ok((found, held));
                }
            }
            output.end_read(core, size_of_page(page)).await?;
        }
        Ok((found, held))
    }

    /// Whether another set has members.
    async fn look_up(
        &self,
        (core, output): Step<'_>,
        other: usize,
        keys: &[&[u8]],
    ) -> std::result::Result<Vec<bool>, TaskFailure> {
        let (key, length) = (&self.keys[other], &self.lengths[other]);
        let mut has = Vec::with_capacity(keys.len());
        if length.version == 0 {
            has.resize(keys.len(), false);
            return Ok(has);
        }
        let guard = TreeGuard {
            tag: Kind::Set.tag(),
            version: Some(length.version),
        };
        while has.len() < keys.len() {
            let keys = TreeValues::Slices(&keys[has.len()..]);
            let op = TreeOp::GetMany { keys };
            let operation = Operation::Tree { key, op, guard };
            let bytes = ask(core, operation, |answer| {
                let values = TreeView::of(answer).values();
                has.extend(values.map(|value| value.is_some()));
                answer.value().len()
            });
            let bytes = bytes.await?;
            output.end_read(core, (keys.iter().count(), bytes)).await?;
        }
        Ok(has)
    }
}

/// The keys that a command names, as they are stored.
#[derive(Debug)]
struct Sources {
    /// In the order of the command, each once.
    keys: Vec<Vec<u8>>,
    /// The first is named again, so it is subtracted from itself too.
    is_first_again: bool,
    /// Where the result is stored, if it is.
    target: Option<Vec<u8>>,
}

/// What was made of sets.
struct Made {
    members: Members,
    _held: Charge,
    /// What the sets were.
    lengths: Vec<TreeLength>,
}

impl Sources {
    /// Those from one argument to another.
    fn of(call: &Call<'_>, places: Range<usize>) -> Self {
        let all = places.map(|place| call.argument(place));
        Self::named(all)
    }

    /// All keys of the command.
    fn all(&self) -> Vec<&[u8]> {
        let keys = self.keys.iter().chain(&self.target);
        keys.map(|key| &key[..]).collect()
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
            target: None,
        }
    }

    /// How long the sets of all keys are. A key that is too long cannot exist.
    async fn lengths(&self, core: &mut Core) -> std::result::Result<Vec<TreeLength>, TaskFailure> {
        let mut lengths = vec![TreeLength::default(); self.keys.len()];
        let possible: Vec<_> = (0..self.keys.len())
            .filter(|&place| self.keys[place].len() <= KEY_BYTES_MAX)
            .collect();
        let operations = possible.iter().map(|&place| {
            steps::count(1);
            Kind::Set.operation(&self.keys[place], TreeOp::Len)
        });
        let mut failed = None;
        core.many(operations, |place, answer| match answer {
            Answer::Failed(error) => failed = Some(error.clone()),
            answer => {
                let length = TreeView::of(&answer).length();
                if length.version > 0 && length.tag != Kind::Set.tag() {
                    failed = Some(Error::CollectionTag { tag: length.tag });
                }
                lengths[possible[place]] = length;
            }
        })
        .await?;
        steps::end_slice(core).await;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(lengths),
        }
    }

    /// What is made of the sets of all keys, in one attempt or in several.
    async fn make(
        &self,
        (core, output): Step<'_>,
        algebra: Algebra,
        limit: usize,
    ) -> std::result::Result<Made, TaskFailure> {
        let mut attempts = Attempts::default();
        loop {
            let lengths = self.lengths(core).await?;
            let sets = Sets {
                keys: &self.keys,
                lengths,
                is_first_again: self.is_first_again,
            };
            match sets.make((&mut *core, output), algebra, limit).await {
                Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                    attempts.again(core, output, &self.all()).await;
                }
                Err(failure) => return Err(failure),
                Ok((members, held)) => {
                    for (key, length) in self.keys.iter().zip(&sets.lengths) {
                        if length.version == 0 {
                            output.notify(EventClasses::MISSED, "keymiss", key);
                        }
                    }
                    return Ok(Made {
                        members,
                        _held: held,
                        lengths: sets.lengths,
                    });
                }
            }
        }
    }
}

/// The members of a result.
fn members(made: &Members) -> impl Iterator<Item = Entry<'_>> {
    let stored = made.iter().map(|(key, value)| (&key[..], &value[..]));
    stored.filter_map(entry_of)
}

/// Writes members.
async fn write(made: &Members, core: &Core, (output, protocol): (&TaskOutput, Protocol)) {
    output.write(|bytes| Writer::new(bytes, protocol).set(made.len()));
    send(members(made), core, (output, protocol), |writer, member| {
        writer.bulk(member.0);
    })
    .await;
}

fn reply(call: &mut Call<'_>, algebra: Algebra) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let sources = Sources::of(call, 1..call.count());
    call.task(move |mut core, output, protocol| async move {
        let made = sources
            .make((&mut core, &output), algebra, usize::MAX)
            .await;
        output.leave(&mut core);
        match made {
            Ok(made) => write(&made.members, &core, (&output, protocol)).await,
            Err(failure) => failure.write(&output, protocol),
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
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let sources = Sources::of(call, 2..2 + count);
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let made = sources.make(step, Algebra::Intersection, limit).await;
        finish(&output, protocol, made, |writer, made| {
            writer.count(made.members.len());
        });
        core
    }))
}

/// Makes a set of several and stores it under the target, which is removed if the set is empty.
/// Returns how many members it has.
async fn store_made(
    (core, output): Step<'_>,
    sources: &Sources,
    algebra: Algebra,
    name: &'static str,
) -> std::result::Result<usize, TaskFailure> {
    let target = sources.target.as_deref().unwrap_or_default();
    let mut made = sources
        .make((&mut *core, output), algebra, usize::MAX)
        .await?;
    if !core.is_under_section() {
        output.enter(core, &sources.all()).await?;
        let lengths = sources.lengths(core).await?;
        let versions = |lengths: &[TreeLength]| -> Vec<_> {
            lengths.iter().map(|length| length.version).collect()
        };
        if versions(&lengths) != versions(&made.lengths) {
            let step = (&mut *core, output);
            made = sources.make(step, algebra, usize::MAX).await?;
        }
    }
    let was_absent = core.inspect(target).await?.is_none();
    let entries = members(&made.members).map(|(member, _)| (member, Some(&[][..])));
    let step = (&mut *core, output);
    let (updated, failure) = update_all(step, (Kind::Set, target), entries, true).await;
    if let Some(failure) = failure {
        if updated.done > 0 {
            undo(core, target, updated.version).await?;
        }
        return Err(failure);
    }
    if updated.elements > 0 {
        if was_absent {
            output.notify(EventClasses::NEW, "new", target);
        }
        output.notify(EventClasses::SET, name, target);
    } else if !was_absent {
        output.notify(EventClasses::GENERIC, "del", target);
    }
    Ok(made.members.len())
}

fn write_count(writer: &mut Writer<'_>, count: usize) {
    writer.count(count);
}

/// Starts a `STORE` form, which is the event `name`.
fn store(call: &mut Call<'_>, algebra: Algebra, name: &'static str) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let target = Some(call.key().to_vec());
    let sources = Sources {
        target,
        ..Sources::of(call, 2..call.count())
    };
    call.task(move |mut core, output, protocol| async move {
        let made = store_made((&mut core, &output), &sources, algebra, name).await;
        finish(&output, protocol, made, write_count);
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

    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn a_key_that_is_named_again_is_read_once() {
        let keys = |names: &[&str]| {
            let sources = Sources::named(names.iter().map(|name| name.as_bytes()));
            let keys = sources.keys.into_iter().map(String::from_utf8);
            let keys = keys.collect::<std::result::Result<Vec<_>, _>>();
            (keys.expect("text").join(" "), sources.is_first_again)
        };
        assert_eq!(keys(&["b", "a", "a", "c", "a"]), ("b a c".into(), false));
        assert_eq!(keys(&["b", "a", "b", "b"]), ("b a".into(), true));
        assert_eq!(keys(&["b", "b"]), ("b".into(), true));
    }

    #[test]
    fn sets_are_made_of_several_as_sorted_sets_are() {
        on_first_core(2, |bench| async move {
            let output = bench.output();
            let mut core = bench.core;
            let mut numbers = crate::random::Numbers::new();
            for _ in 0..40 {
                let all: Vec<BTreeSet<u8>> = (0..numbers.below(6) + 1)
                    .map(|_| {
                        let count = numbers.below(200);
                        (0..count)
                            .map(|_| u8::try_from(numbers.below(80)).expect("small"))
                            .collect()
                    })
                    .collect();
                let names: Vec<_> = (0..all.len()).map(|place| format!("set{place}")).collect();
                for (set, name) in all.iter().zip(&names) {
                    let key = name.as_bytes();
                    let bytes: Vec<_> = set.iter().map(|member| [*member]).collect();
                    let members = bytes.iter().map(|member| (&member[..], Some(&[][..])));
                    let step = (&mut core, &output);
                    let (updated, failure) =
                        update_all(step, (Kind::Set, key), members, true).await;
                    assert!(failure.is_none(), "{failure:?}");
                    assert_eq!(updated.elements, set.len() as u64);
                }
                let sources = Sources::named(names.iter().map(String::as_bytes));
                let union = all.iter().flatten().copied().collect::<BTreeSet<_>>();
                let common = all[0].iter().copied();
                let common = common.filter(|member| all.iter().all(|set| set.contains(member)));
                let first = all[0].iter().copied();
                let left = first.filter(|member| !all[1..].iter().any(|set| set.contains(member)));
                for (algebra, expected) in [
                    (Algebra::Union, union.clone()),
                    (Algebra::Intersection, common.collect()),
                    (Algebra::Difference, left.collect()),
                ] {
                    let made = sources
                        .make((&mut core, &output), algebra, usize::MAX)
                        .await;
                    let made = made.expect("sets").members;
                    let made: Vec<_> = members(&made).map(|(member, _)| member[0]).collect();
                    assert_eq!(made.len(), expected.len());
                    assert_eq!(
                        made.into_iter().collect::<BTreeSet<_>>(),
                        expected,
                        "{algebra:?}"
                    );
                    if algebra == Algebra::Intersection {
                        let limit = numbers.below(70) + 1;
                        let made = sources.make((&mut core, &output), algebra, limit).await;
                        let made = made.expect("sets").members;
                        assert_eq!(made.len(), limit.min(expected.len()));
                    }
                }
            }
        });
    }
}
