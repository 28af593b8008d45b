//! `ZUNION`, `ZINTER`, `ZDIFF`, their `STORE` forms and `ZINTERCARD`: sorted sets made of several
//! sorted sets and sets, whose members have the score 1.
//!
//! All are read at the versions that they had at first, page by page, and what is made of them is
//! gathered in memory that the client is charged for. If another client changes one of them
//! meanwhile, the command begins anew. An intersection or a difference reads one of them, and looks
//! its members up in the others. A result is stored in steps, under the sections of the target and
//! of what it is made of.
//!
//! - I1: a result that is stored is made of the sets as they are when it is.
//! - I2: a result is stored whole, or its target is removed.

use std::collections::HashMap;

use farcore::{Core, Error, Operation, TreeGuard, TreeLength, TreeOp, TreeValues, TreeView};

use super::sorted_trees::{members, read_members, store_all};
use super::sorting::sort;
use super::trees::{ReadPages, Step, ask, entries, gather, read_all};
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::types::element::ElementKeys;
use crate::types::kind::Kind;
use crate::types::sorted::member::stored_member;
use crate::types::sorted::reply::Scored;

/// Members that are looked up in another set at once.
const LOOKED_UP_AT_ONCE: usize = 64;
/// Bytes that a member of a result takes beside its own: where it is kept, where it is allocated,
/// and twice while it is sorted.
const BESIDE_MEMBER: usize = size_of::<Member>() + 16 + 2 * size_of::<Ordered<'_>>();
/// Bytes that a member takes in the table of those that a union has found: the table is as large as
/// all members need, up to its next power of two, and no more than 7 of 8 places are taken.
const IN_TABLE: usize = 2 * (size_of::<Member>() + 1) * 8 / 7;

/// A member of a result, with its score.
type Member = (Vec<u8>, f64);

/// How a sorted set is made of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algebra {
    Intersection,
    Union,
    Difference,
}

/// How the scores of a member in several sets become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aggregate {
    Sum,
    Least,
    Greatest,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => number(one + other),
            Self::Least => {
                if other < one {
                    other
                } else {
                    one
                }
            }
            Self::Greatest => {
                if other > one {
                    other
                } else {
                    one
                }
            }
        }
    }
}

/// As Redis, for which the sum of two opposite infinities is 0.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What is made of which keys.
#[derive(Debug)]
pub(super) struct Making {
    pub(super) algebra: Algebra,
    /// As they are stored, in the order of the command.
    pub(super) keys: Vec<Vec<u8>>,
    /// Of each key.
    pub(super) weights: Vec<f64>,
    pub(super) aggregate: Aggregate,
    /// No more members are needed.
    pub(super) limit: usize,
    /// Where the result is stored, if it is.
    pub(super) target: Option<Vec<u8>>,
    /// Why the options are refused. As in Redis, keys of other kinds are refused before.
    pub(super) refusal: Option<String>,
}

/// What was made.
pub(super) struct Made {
    found: Vec<Member>,
    _held: Charge,
    /// What the sets were.
    lengths: Vec<TreeLength>,
}

impl Made {
    /// How many members it has.
    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// The members in the order of scores, and of members where scores are equal.
    pub(super) async fn ordered(&self, core: &Core) -> Vec<Ordered<'_>> {
        let all = (self.found.iter()).map(|(member, score)| Ordered(member, *score));
        sort(gather(all, core).await, core).await
    }
}

/// A member with its score, in the order of scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered<'a>(&'a [u8], f64);

impl<'a> Ordered<'a> {
    pub(super) fn scored(self) -> Scored<'a> {
        (self.0, self.1)
    }
}

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The two zeros are equal.
        let scores = (self.1 + 0.0).total_cmp(&(other.1 + 0.0));
        scores.then_with(|| self.0.cmp(other.0))
    }
}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered<'_> {}

/// The kind of what a key holds, which is a set or a sorted set.
fn kind_of(length: &TreeLength) -> Kind {
    if length.tag == Kind::Set.tag() {
        Kind::Set
    } else {
        Kind::SortedSet
    }
}

/// Members of a set or a sorted set, with their scores.
fn scored(pages: &ReadPages, kind: Kind) -> Box<dyn Iterator<Item = Scored<'_>> + '_> {
    match kind {
        Kind::Set => Box::new(entries(&pages.0).map(|(member, _)| (member, 1.0))),
        _ => Box::new(members(&pages.0)),
    }
}

impl Making {
    /// All keys of the command.
    pub(super) fn all(&self) -> Vec<&[u8]> {
        let keys = self.keys.iter().chain(&self.target);
        keys.map(|key| &key[..]).collect()
    }

    /// How long what all keys hold is.
    async fn lengths(&self, core: &mut Core) -> Result<Vec<TreeLength>, TaskFailure> {
        let mut lengths = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            steps::count(1);
            steps::end_slice(core).await;
            let length = match core.tree(key).len().await {
                Err(Error::KeyTooLong { .. }) => TreeLength::default(),
                length => length?,
            };
            let is_one = [Kind::Set, Kind::SortedSet]
                .map(Kind::tag)
                .contains(&length.tag);
            if length.version > 0 && !is_one {
                return Err(Error::CollectionTag { tag: length.tag }.into());
            }
            lengths.push(length);
        }
        match &self.refusal {
            Some(text) => Err(text.as_str().into()),
            None => Ok(lengths),
        }
    }

    /// What is made of all keys, in one attempt or in several.
    pub(super) async fn make(&self, (core, output): Step<'_>) -> Result<Made, TaskFailure> {
        let mut attempts = Attempts::default();
        loop {
            let lengths = self.lengths(core).await?;
            let mut held = output.hold(0);
            let step = (&mut *core, output);
            let found = match self.algebra {
                Algebra::Union => self.union(step, &lengths, &mut held).await,
                _ => self.filtered(step, &lengths, &mut held).await,
            };
            match found {
                Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                    attempts.again(core, output, &self.all()).await;
                }
                Err(failure) => return Err(failure),
                Ok(found) => {
                    for (key, length) in self.keys.iter().zip(&lengths) {
                        if length.version == 0 && self.target.is_none() {
                            output.notify(EventClasses::MISSED, "keymiss", key);
                        }
                    }
                    return Ok(Made {
                        found,
                        _held: held,
                        lengths,
                    });
                }
            }
        }
    }

    /// The places of the keys in the order of how many members they have; as Redis, which sums in
    /// this order.
    fn by_length(&self, lengths: &[TreeLength]) -> Vec<usize> {
        let mut places: Vec<_> = (0..self.keys.len()).collect();
        places.sort_by_key(|&place| lengths[place].elements);
        places
    }

    /// Reads all members of the key at a place.
    async fn read(
        &self,
        step: Step<'_>,
        place: usize,
        length: &TreeLength,
    ) -> Result<ReadPages, TaskFailure> {
        let key = &self.keys[place];
        match kind_of(length) {
            Kind::Set => read_all(step, (Kind::Set, key), length).await,
            _ => read_members(step, key, length).await,
        }
    }

    /// The members that any set has.
    async fn union(
        &self,
        (core, output): Step<'_>,
        lengths: &[TreeLength],
        held: &mut Charge,
    ) -> Result<Vec<Member>, TaskFailure> {
        let most: u64 = lengths.iter().map(|length| length.elements).sum();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let in_table = most.saturating_mul(IN_TABLE);
        held.grow_to(in_table)?;
        // A table that grew would move all members at once.
        let mut found = HashMap::<Vec<u8>, f64>::with_capacity(most);
        let mut bytes = in_table;
        for place in self.by_length(lengths) {
            let step = (&mut *core, output);
            let pages = self.read(step, place, &lengths[place]).await?;
            let mut seen = 0;
            for (member, score) in scored(&pages, kind_of(&lengths[place])) {
                let score = number(self.weights[place] * score);
                if let Some(known) = found.get_mut(member) {
                    *known = self.aggregate.of(*known, score);
                } else {
                    bytes += member.len() + BESIDE_MEMBER;
                    found.insert(member.to_vec(), score);
                }
                seen += 1;
                if seen % LOOKED_UP_AT_ONCE == 0 {
                    hold(held, bytes)?;
                    output.end_read(core, (LOOKED_UP_AT_ONCE, 0)).await?;
                }
            }
        }
        hold(held, bytes)?;
        Ok(gather(found.into_iter(), core).await)
    }

    /// The members of one set that all others have, or none of them.
    async fn filtered(
        &self,
        (core, output): Step<'_>,
        lengths: &[TreeLength],
        held: &mut Charge,
    ) -> Result<Vec<Member>, TaskFailure> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let is_in_others = self.algebra == Algebra::Intersection;
        let places = match is_in_others {
            true => self.by_length(lengths),
            false => (0..self.keys.len()).collect(),
        };
        let Some((&first, others)) = places.split_first() else {
            return Ok(found);
        };
        let is_nothing = |length: &TreeLength| length.version == 0;
        if is_nothing(&lengths[first]) {
            return Ok(found);
        }
        let pages = self
            .read((&mut *core, output), first, &lengths[first])
            .await?;
        let weight = if is_in_others {
            self.weights[first]
        } else {
            1.0
        };
        let mut all = scored(&pages, kind_of(&lengths[first])).peekable();
        while all.peek().is_some() && found.len() < self.limit {
            let some = all.by_ref().take(LOOKED_UP_AT_ONCE);
            let mut left: Vec<_> = some
                .map(|(member, score)| (member, number(weight * score)))
                .collect();
            for &other in others {
                if left.is_empty() {
                    break;
                }
                let step = (&mut *core, output);
                let scores = self.look_up(step, (other, &lengths[other]), &left).await?;
                let mut scores = scores.into_iter();
                left.retain_mut(|(_, score)| {
                    let other_score = scores.next().flatten();
                    if let Some(other_score) = other_score.filter(|_| is_in_others) {
                        let other_score = number(self.weights[other] * other_score);
                        *score = self.aggregate.of(*score, other_score);
                    }
                    other_score.is_some() == is_in_others
                });
            }
            for (member, score) in left.into_iter().take(self.limit - found.len()) {
                bytes += member.len() + BESIDE_MEMBER;
                found.push((member.to_vec(), score));
            }
            hold(held, bytes)?;
            output.end_read(core, (LOOKED_UP_AT_ONCE, 0)).await?;
        }
        Ok(found)
    }

    /// The scores of members in another set, none of those that it does not have.
    async fn look_up(
        &self,
        (core, output): Step<'_>,
        (place, length): (usize, &TreeLength),
        members: &[Scored<'_>],
    ) -> Result<Vec<Option<f64>>, TaskFailure> {
        let mut scores = Vec::with_capacity(members.len());
        if length.version == 0 {
            scores.resize(members.len(), None);
            return Ok(scores);
        }
        let guard = TreeGuard {
            tag: length.tag,
            version: Some(length.version),
        };
        let mut elements = ElementKeys::default();
        let mut stored = Vec::new();
        let is_set = kind_of(length) == Kind::Set;
        for (member, _) in members {
            if is_set {
                elements.add(member, None);
            } else {
                stored.push(stored_member(member));
            }
        }
        let keys: Vec<&[u8]> = match is_set {
            true => (0..members.len())
                .map(|place| elements.key(place))
                .collect(),
            false => stored.iter().map(|member| &member[..]).collect(),
        };
        while scores.len() < keys.len() {
            let left = TreeValues::Slices(&keys[scores.len()..]);
            let op = match is_set {
                true => TreeOp::GetMany { keys: left },
                false => TreeOp::ScoreOf { members: left },
            };
            let key = &self.keys[place];
            let before = scores.len();
            let asked = ask(core, Operation::Tree { key, op, guard }, |answer| {
                let view = TreeView::of(answer);
                if is_set {
                    scores.extend(view.values().map(|value| value.map(|_| 1.0)));
                } else {
                    scores.extend(view.score_values());
                }
            });
            asked.await?;
            if scores.len() == before {
                return Err(Error::CollectionVersion { current: 0 }.into());
            }
            output.end_read(core, (scores.len() - before, 0)).await?;
        }
        Ok(scores)
    }

    /// Stores what is made under the target, which is removed if that has no members. Returns how
    /// many members it has.
    pub(super) async fn store(
        &self,
        (core, output): Step<'_>,
        name: &'static str,
    ) -> Result<usize, TaskFailure> {
        let target = self.target.as_deref().unwrap_or_default();
        let mut made = self.make((&mut *core, output)).await?;
        if !core.is_under_section() {
            output.enter(core, &self.all()).await?;
            let versions = |lengths: &[TreeLength]| -> Vec<_> {
                lengths.iter().map(|length| length.version).collect()
            };
            if versions(&self.lengths(core).await?) != versions(&made.lengths) {
                made = self.make((&mut *core, output)).await?;
            }
        }
        let all = made.ordered(core).await;
        let all = all.into_iter().map(Ordered::scored);
        store_all((&mut *core, output), target, all, name).await?;
        Ok(made.len())
    }
}

/// Charges what a result takes.
fn hold(held: &mut Charge, bytes: usize) -> Result<(), TaskFailure> {
    if bytes > held.bytes() {
        held.grow_to(bytes + bytes / 4)?;
    }
    Ok(())
}
