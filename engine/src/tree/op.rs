//! Operations on one tree, and their codec.
//!
//! ```text
//! request:   | tag:8 | guarded:8 | [version:64] | operation |
//! operation: | code:8 | flags:8 | fields |     number: 64 bits · bytes: | length:32 | bytes |
//! page:      | more:8 | element | ..           element: | key bytes:32 | value bytes:32 | key | value |
//! ```

use super::scored_keys::{ORDER_BYTES, member_key};
use crate::collection::TreeKind;

/// Of which collections an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeGuard {
    /// What the application says of the collection: the operation that makes it says which tag it
    /// has, and operations with another one are refused. [`TreeOp::Len`] alone is of any tag.
    pub tag: u8,
    /// The version that the collection must have, `0` if it must be absent; any without one.
    pub version: Option<u64>,
}

/// What becomes of a key of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeChange<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its new value; `None` removes it.
    pub value: Option<&'a [u8]>,
}

/// Changes of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeChanges<'a> {
    /// As a caller has them.
    Slices(&'a [TreeChange<'a>]),
    /// As a request carries them.
    Encoded(&'a [u8]),
}

/// One end of a range of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeBound<'a> {
    /// There is none.
    Unbounded,
    /// The key belongs to the range.
    Included(&'a [u8]),
    /// The key does not belong to the range.
    Excluded(&'a [u8]),
}

/// Which elements an insertion may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeCondition {
    /// Any.
    Always,
    /// Only one that is not there.
    IfAbsent,
    /// Only one that is there.
    IfPresent,
}

/// Values for the end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeValues<'a> {
    /// As a caller has them.
    Slices(&'a [&'a [u8]]),
    /// As a request carries them: length in 32 bits, and bytes, of each.
    Encoded(&'a [u8]),
}

/// What becomes of a member of a scored map.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeScore<'a> {
    /// The member. It has 1016 bytes at most.
    pub member: &'a [u8],
    /// Its new score; `None` removes it.
    pub score: Option<f64>,
    /// Its new value, of any meaning.
    pub value: &'a [u8],
}

/// Changes of a scored map.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TreeScores<'a> {
    /// As a caller has them.
    Slices(&'a [TreeScore<'a>]),
    /// As a request carries them.
    Encoded(&'a [u8]),
}

/// Which new scores of members that are there are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TreeScoreOnly {
    /// Any.
    #[default]
    Any,
    /// Only one that is greater than the score before.
    Greater,
    /// Only one that is less than the score before.
    Less,
}

/// Which members get new scores, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeScoreRule {
    /// Whether the member must be there.
    pub condition: TreeCondition,
    /// Of members that are there, which new scores are taken.
    pub only: TreeScoreOnly,
    /// The score is added to the one before. Where the sum is not a number, the member stays as it
    /// was.
    pub adds: bool,
}

impl Default for TreeScoreRule {
    fn default() -> Self {
        Self {
            condition: TreeCondition::Always,
            only: TreeScoreOnly::Any,
            adds: false,
        }
    }
}

/// One end of a range of scores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TreeScoreBound {
    /// Members of this score belong to the range.
    Included(f64),
    /// Members of this score do not belong to the range.
    Excluded(f64),
}

/// A range of members of a scored map.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TreeScoreRange<'a> {
    /// From one rank to another, which is the last. Negative ranks count from the end, and -1 is
    /// the last member.
    Ranks {
        /// The first rank.
        first: i64,
        /// The last rank.
        last: i64,
    },
    /// From one score to another.
    Scores {
        /// The lower end.
        from: TreeScoreBound,
        /// The upper end.
        to: TreeScoreBound,
    },
    /// From one member to another, in a map whose members all have one score.
    Members {
        /// The lower end.
        from: TreeBound<'a>,
        /// The upper end.
        to: TreeBound<'a>,
    },
}

/// What a program may do with a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeProgramMode {
    /// It reads. What it changes is dropped.
    Reads,
    /// It changes what it likes.
    Writes,
    /// It removes elements and stores nothing that is longer, so it also runs while memory is full.
    Removes,
}

impl TreeProgramMode {
    /// The one that a number stands for.
    pub(super) fn of(number: u8) -> Option<Self> {
        let all = [Self::Reads, Self::Writes, Self::Removes];
        all.into_iter().find(|mode| *mode as u8 == number)
    }
}

/// An operation on the collection of one key.
///
/// Ranks count from 0, in the order of the keys of a map, or of a list. Reads that may be long
/// answer a page: as much as one answer holds, and whether there is more.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum TreeOp<'a> {
    /// How many elements there are, and their bytes.
    Len,
    /// Elements of a range of ranks, `end` not included.
    RangeByRank {
        /// The first rank.
        start: u64,
        /// The rank behind the last.
        end: u64,
        /// From the last to the first.
        reverse: bool,
        /// The most elements.
        limit: u32,
    },
    /// Removes elements at an end and answers them.
    Pop {
        /// At the last element.
        last: bool,
        /// The most elements.
        limit: u32,
    },
    /// Removes elements of a range of ranks, `end` not included: all, or as many as one step can.
    RemoveByRank {
        /// The first rank.
        start: u64,
        /// The rank behind the last.
        end: u64,
    },
    /// The value of a key.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Stores the value of a key, and answers the one before.
    Insert {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Whether it must be there.
        condition: TreeCondition,
    },
    /// Removes a key, and answers its value.
    Remove {
        /// The key.
        key: &'a [u8],
    },
    /// Stores the value of a key, or removes it, if it has the value that is expected.
    CompareAndSet {
        /// The key.
        key: &'a [u8],
        /// The value that it must have; `None` if it must be absent.
        expected: Option<&'a [u8]>,
        /// Its new value; `None` removes it.
        value: Option<&'a [u8]>,
    },
    /// How many elements have a lesser key, if this one is there.
    Rank {
        /// The key.
        key: &'a [u8],
    },
    /// How many keys are in a range.
    Count {
        /// The lower end.
        from: TreeBound<'a>,
        /// The upper end.
        to: TreeBound<'a>,
    },
    /// Elements of a range of keys.
    Range {
        /// The lower end.
        from: TreeBound<'a>,
        /// The upper end.
        to: TreeBound<'a>,
        /// From the upper end to the lower.
        reverse: bool,
        /// The most elements.
        limit: u32,
    },
    /// Adds values at an end of a list, one after the other.
    Push {
        /// Before the first element.
        front: bool,
        /// Only if there is a list.
        exists: bool,
        /// The key becomes a list of these values alone, whatever it was.
        replaces: bool,
        /// The values.
        values: TreeValues<'a>,
    },
    /// Adds a value to a list, so that it has this rank.
    InsertAt {
        /// The rank.
        rank: u64,
        /// The value.
        value: &'a [u8],
    },
    /// Gives the element of a rank another value.
    SetAt {
        /// The rank; a negative one counts from the end, -1 is the last.
        rank: i64,
        /// The value.
        value: &'a [u8],
    },
    /// Stores and removes several keys, in their order: all, or as many as one step can, and
    /// [`TREE_CHANGES_WHOLE`](crate::constants::TREE_CHANGES_WHOLE) at least.
    Update {
        /// The changes.
        changes: TreeChanges<'a>,
        /// The key becomes a collection of these elements alone, whatever it was.
        replaces: bool,
    },
    /// The values of several keys: of all, or of as many as one answer holds.
    GetMany {
        /// The keys.
        keys: TreeValues<'a>,
    },
    /// Removes the element of a rank and answers it.
    TakeAt {
        /// The rank; a negative one counts from the end, -1 is the last.
        rank: i64,
    },
    /// Moves the element at one end of a list to the other end, and answers it.
    Rotate {
        /// The last element becomes the first, not the first the last.
        last: bool,
    },
    /// Answers an element, each with the same chance.
    Draw {
        /// A random number, which decides which one.
        random: u64,
        /// Removes it.
        removes: bool,
    },
    /// Elements from one rank to another, which is the last. Negative ranks count from the end, and
    /// -1 is the last element.
    Slice {
        /// The first rank.
        first: i64,
        /// The last rank.
        last: i64,
        /// The most elements.
        limit: u32,
    },
    /// Removes what lies outside of a slice, from the ends inward: all, or as much as one step can.
    Trim {
        /// The first rank that stays.
        first: i64,
        /// The last rank that stays.
        last: i64,
    },
    /// Runs a program on a map.
    Run {
        /// Its place among [`Config::tree_programs`](crate::Config::tree_programs); the answer to
        /// one that is not there is a mismatch.
        program: u8,
        /// What it may do.
        mode: TreeProgramMode,
        /// What it works with.
        input: &'a [u8],
    },
    /// Gives members scores, and removes members, in their order: all, or as many as one step can,
    /// and [`TREE_CHANGES_WHOLE`](crate::constants::TREE_CHANGES_WHOLE) at least.
    Score {
        /// The changes.
        changes: TreeScores<'a>,
        /// Which of them are made, and how.
        rule: TreeScoreRule,
        /// The key becomes a scored map of these members alone, whatever it was.
        replaces: bool,
    },
    /// The scores of several members: of all, or of as many as one answer holds.
    ScoreOf {
        /// The members.
        members: TreeValues<'a>,
    },
    /// The score of a member, and its value.
    ScoredValue {
        /// The member.
        member: &'a [u8],
    },
    /// How many members are before one, in the order of scores, and its score.
    ScoreRank {
        /// The member.
        member: &'a [u8],
        /// How many are behind it.
        reverse: bool,
    },
    /// How many members are in a range.
    ScoreCount {
        /// The range.
        range: TreeScoreRange<'a>,
    },
    /// Members of a range, with scores and values.
    ScoreRange {
        /// The range.
        range: TreeScoreRange<'a>,
        /// From the upper end to the lower.
        reverse: bool,
        /// Members that are left out, from where it begins.
        skip: u64,
        /// The most members.
        limit: u32,
    },
    /// Members from a place on, in the order of places, with their scores. A member's place never
    /// changes, so who scans from 0 on meets each member that stays once.
    ScoreScan {
        /// The place.
        from: u64,
        /// The most members.
        limit: u32,
    },
    /// Removes members of a range: all, or as many as one step can.
    ScoreRemove {
        /// The range.
        range: TreeScoreRange<'a>,
    },
}

impl TreeScoreBound {
    /// The score, and whether the range begins or ends beside it.
    pub(super) fn score(self) -> (f64, bool) {
        match self {
            Self::Included(score) => (score, false),
            Self::Excluded(score) => (score, true),
        }
    }
}

/// The ranks of a slice of a list of this length, the end not included.
pub(super) fn slice_of(first: i64, last: i64, count: u64) -> std::ops::Range<u64> {
    let from_start = |rank: i64| match u64::try_from(rank) {
        Ok(rank) => Some(rank),
        Err(_) => count.checked_sub(rank.unsigned_abs()),
    };
    let start = from_start(first).unwrap_or(0).min(count);
    let end = from_start(last).map_or(0, |last| last.saturating_add(1).min(count));
    start..end.max(start)
}

/// Reads the fields of an operation.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn short(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.short()?).ok()?;
        self.take(length)
    }

    fn optional(&mut self) -> Option<Option<&'a [u8]>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.bytes()?)),
            _ => None,
        }
    }

    #[expect(clippy::cast_possible_wrap, reason = "it was written so")]
    fn signed(&mut self) -> Option<i64> {
        self.number().map(|number| number as i64)
    }

    fn change(&mut self) -> Option<TreeChange<'a>> {
        Some(TreeChange {
            value: self.optional()?,
            key: self.bytes()?,
        })
    }

    fn score(&mut self) -> Option<TreeScore<'a>> {
        Some(TreeScore {
            score: match self.byte()? {
                0 => None,
                1 => Some(f64::from_bits(self.number()?)),
                _ => return None,
            },
            member: self.bytes()?,
            value: self.bytes()?,
        })
    }

    fn score_bound(&mut self) -> Option<TreeScoreBound> {
        let is_excluded = self.byte()?;
        let score = f64::from_bits(self.number()?);
        match is_excluded {
            0 => Some(TreeScoreBound::Included(score)),
            1 => Some(TreeScoreBound::Excluded(score)),
            _ => None,
        }
    }

    fn score_range(&mut self) -> Option<TreeScoreRange<'a>> {
        Some(match self.byte()? {
            0 => TreeScoreRange::Ranks {
                first: self.signed()?,
                last: self.signed()?,
            },
            1 => TreeScoreRange::Scores {
                from: self.score_bound()?,
                to: self.score_bound()?,
            },
            2 => TreeScoreRange::Members {
                from: self.bound()?,
                to: self.bound()?,
            },
            _ => return None,
        })
    }

    fn bound(&mut self) -> Option<TreeBound<'a>> {
        match self.byte()? {
            0 => Some(TreeBound::Unbounded),
            1 => Some(TreeBound::Included(self.bytes()?)),
            2 => Some(TreeBound::Excluded(self.bytes()?)),
            _ => None,
        }
    }
}

impl TreeBound<'_> {
    /// True if a key is not beyond the upper end of a range.
    pub(super) fn is_above(self, key: &[u8]) -> bool {
        match self {
            Self::Unbounded => true,
            Self::Included(end) => key <= end,
            Self::Excluded(end) => key < end,
        }
    }

    /// True if a key is not beyond the lower end of a range.
    pub(super) fn is_below(self, key: &[u8]) -> bool {
        match self {
            Self::Unbounded => true,
            Self::Included(end) => key >= end,
            Self::Excluded(end) => key > end,
        }
    }
}

impl<'a> TreeChanges<'a> {
    /// Each change; those that were encoded end where they are none.
    pub fn iter(self) -> impl Iterator<Item = TreeChange<'a>> {
        let (slices, encoded) = match self {
            Self::Slices(changes) => (changes, &[][..]),
            Self::Encoded(bytes) => (&[][..], bytes),
        };
        let mut fields = Fields(encoded);
        let encoded = std::iter::from_fn(move || fields.change());
        slices.iter().copied().chain(encoded)
    }

    /// Calls `each` with each change until it has enough; `None` if they are not what was encoded.
    pub(super) fn for_each<E>(
        self,
        mut each: impl FnMut(TreeChange<'a>) -> Result<bool, E>,
    ) -> Option<Result<(), E>> {
        match self {
            Self::Slices(changes) => {
                for change in changes {
                    match each(*change) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
            Self::Encoded(bytes) => {
                let mut fields = Fields(bytes);
                while !fields.0.is_empty() {
                    let change = fields.change()?;
                    match each(change) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
        Some(Ok(()))
    }

    /// The only change, if there is one.
    pub(super) fn single(self) -> Option<TreeChange<'a>> {
        match self {
            Self::Slices(changes) => match changes {
                [change] => Some(*change),
                _ => None,
            },
            Self::Encoded(bytes) => {
                let mut fields = Fields(bytes);
                let change = fields.change()?;
                fields.0.is_empty().then_some(change)
            }
        }
    }

    /// True if no key is stored.
    fn only_remove(self) -> bool {
        let all = self.for_each(|change| match change.value {
            Some(_) => Err(()),
            None => Ok(true),
        });
        all == Some(Ok(()))
    }

    /// The longest key and the longest value; `None` if they are not what was encoded.
    fn lengths(self) -> Option<(usize, usize)> {
        let mut lengths = (0, 0);
        let all = self.for_each(|change| {
            lengths.0 = change.key.len().max(lengths.0);
            lengths.1 = change.value.map_or(0, <[u8]>::len).max(lengths.1);
            Ok::<_, ()>(true)
        });
        all.map(|_| lengths)
    }
}

impl<'a> TreeScores<'a> {
    /// Each change; those that were encoded end where they are none.
    pub fn iter(self) -> impl Iterator<Item = TreeScore<'a>> {
        let (slices, encoded) = match self {
            Self::Slices(changes) => (changes, &[][..]),
            Self::Encoded(bytes) => (&[][..], bytes),
        };
        let mut fields = Fields(encoded);
        let encoded = std::iter::from_fn(move || fields.score());
        slices.iter().copied().chain(encoded)
    }

    /// Calls `each` with each change until it has enough; `None` if they are not what was encoded.
    pub(super) fn for_each<E>(
        self,
        mut each: impl FnMut(TreeScore<'a>) -> Result<bool, E>,
    ) -> Option<Result<(), E>> {
        let (slices, encoded) = match self {
            Self::Slices(changes) => (changes, &[][..]),
            Self::Encoded(bytes) => (&[][..], bytes),
        };
        let mut fields = Fields(encoded);
        let mut slices = slices.iter();
        loop {
            let change = match slices.next() {
                Some(change) => *change,
                None if fields.0.is_empty() => return Some(Ok(())),
                None => fields.score()?,
            };
            match each(change) {
                Ok(true) => {}
                Ok(false) => return Some(Ok(())),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// True if no member gets a score.
    fn only_remove(self) -> bool {
        let all = self.for_each(|change| match change.score {
            Some(_) => Err(()),
            None => Ok(true),
        });
        all == Some(Ok(()))
    }

    /// The longest member and the longest value; `None` if they are not what was encoded.
    fn lengths(self) -> Option<(usize, usize)> {
        let mut lengths = (0, 0);
        let all = self.for_each(|change| {
            lengths.0 = change.member.len().max(lengths.0);
            lengths.1 = change.value.len().max(lengths.1);
            Ok::<_, ()>(true)
        });
        all.map(|_| lengths)
    }

    /// The only change, if there is one.
    pub(super) fn single(self) -> Option<TreeScore<'a>> {
        match self {
            Self::Slices([change]) => Some(*change),
            Self::Slices(_) => None,
            Self::Encoded(bytes) => {
                let mut fields = Fields(bytes);
                let change = fields.score()?;
                fields.0.is_empty().then_some(change)
            }
        }
    }

    fn encode(self, into: &mut Vec<u8>) {
        let changes = match self {
            Self::Slices(changes) => changes,
            Self::Encoded(bytes) => return into.extend_from_slice(bytes),
        };
        for change in changes {
            into.push(u8::from(change.score.is_some()));
            into.extend(
                change
                    .score
                    .iter()
                    .flat_map(|score| score.to_bits().to_le_bytes()),
            );
            put_bytes(into, change.member);
            put_bytes(into, change.value);
        }
    }
}

impl TreeScoreRule {
    fn encode(self) -> u8 {
        self.condition as u8 | (self.only as u8) << 2 | u8::from(self.adds) << 4
    }

    fn decode(flags: u8) -> Option<Self> {
        let condition = match flags & 3 {
            0 => TreeCondition::Always,
            1 => TreeCondition::IfAbsent,
            2 => TreeCondition::IfPresent,
            _ => return None,
        };
        let only = match flags >> 2 & 3 {
            0 => TreeScoreOnly::Any,
            1 => TreeScoreOnly::Greater,
            2 => TreeScoreOnly::Less,
            _ => return None,
        };
        (flags >> 5 == 0).then_some(Self {
            condition,
            only,
            adds: flags >> 4 != 0,
        })
    }
}

fn put_score_bound(into: &mut Vec<u8>, bound: TreeScoreBound) {
    let (score, is_excluded) = bound.score();
    into.push(u8::from(is_excluded));
    into.extend(score.to_bits().to_le_bytes());
}

fn put_score_range(into: &mut Vec<u8>, range: TreeScoreRange<'_>) {
    match range {
        TreeScoreRange::Ranks { first, last } => {
            into.push(0);
            into.extend(first.to_le_bytes());
            into.extend(last.to_le_bytes());
        }
        TreeScoreRange::Scores { from, to } => {
            into.push(1);
            put_score_bound(into, from);
            put_score_bound(into, to);
        }
        TreeScoreRange::Members { from, to } => {
            into.push(2);
            put_bound(into, from);
            put_bound(into, to);
        }
    }
}

fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    into.extend_from_slice(bytes);
}

fn put_optional(into: &mut Vec<u8>, bytes: Option<&[u8]>) {
    into.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        put_bytes(into, bytes);
    }
}

/// Writes a change of a map, as requests carry it.
pub(super) fn put_change(into: &mut Vec<u8>, change: TreeChange<'_>) {
    put_optional(into, change.value);
    put_bytes(into, change.key);
}

fn put_bound(into: &mut Vec<u8>, bound: TreeBound<'_>) {
    match bound {
        TreeBound::Unbounded => into.push(0),
        TreeBound::Included(key) => {
            into.push(1);
            put_bytes(into, key);
        }
        TreeBound::Excluded(key) => {
            into.push(2);
            put_bytes(into, key);
        }
    }
}

impl<'a> TreeValues<'a> {
    /// Each value; those that were encoded end where they are none.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let (slices, encoded) = match self {
            Self::Slices(values) => (values, &[][..]),
            Self::Encoded(bytes) => (&[][..], bytes),
        };
        let mut fields = Fields(encoded);
        let encoded = std::iter::from_fn(move || fields.bytes());
        slices.iter().copied().chain(encoded)
    }

    /// Calls `each` with each value; `None` if it does, or if the values are not what was encoded.
    pub(super) fn for_each<E>(
        self,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        match self {
            Self::Slices(values) => {
                for value in values {
                    if let Err(error) = each(value) {
                        return Some(Err(error));
                    }
                }
            }
            Self::Encoded(bytes) => {
                let mut fields = Fields(bytes);
                while !fields.0.is_empty() {
                    if let Err(error) = each(fields.bytes()?) {
                        return Some(Err(error));
                    }
                }
            }
        }
        Some(Ok(()))
    }

    fn encode(self, into: &mut Vec<u8>) {
        match self {
            TreeValues::Slices(values) => values.iter().for_each(|value| put_bytes(into, value)),
            TreeValues::Encoded(bytes) => into.extend_from_slice(bytes),
        }
    }

    /// How many there are; `None` if they are not what was encoded.
    fn count(self) -> Option<usize> {
        let mut count = 0;
        let all = self.for_each(|_| {
            count += 1;
            Ok::<_, ()>(())
        });
        all.map(|_| count)
    }

    /// True if there is one value.
    pub(super) fn is_single(self) -> bool {
        let mut count = 0;
        let all = self.for_each(|_| {
            count += 1;
            if count > 1 { Err(()) } else { Ok(()) }
        });
        all == Some(Ok(())) && count == 1
    }

    /// The first value.
    fn first(self) -> &'a [u8] {
        match self {
            Self::Slices(values) => values.first().copied().unwrap_or(&[]),
            Self::Encoded(bytes) => Fields(bytes).bytes().unwrap_or(&[]),
        }
    }

    /// The longest of the values, in bytes; `None` if they are not what was encoded.
    fn longest(self) -> Option<usize> {
        let mut longest = 0;
        let all = self.for_each(|value| {
            longest = longest.max(value.len());
            Ok::<_, ()>(())
        });
        all.map(|_| longest)
    }
}

impl<'a> TreeOp<'a> {
    /// The kind of tree that it is for; `None` if it is for any.
    pub(crate) fn kind(&self) -> Option<TreeKind> {
        match self {
            Self::Len
            | Self::RangeByRank { .. }
            | Self::Pop { .. }
            | Self::RemoveByRank { .. }
            | Self::TakeAt { .. }
            | Self::Draw { .. }
            | Self::Slice { .. }
            | Self::Trim { .. } => None,
            Self::Get { .. }
            | Self::Update { .. }
            | Self::GetMany { .. }
            | Self::Insert { .. }
            | Self::Remove { .. }
            | Self::CompareAndSet { .. }
            | Self::Rank { .. }
            | Self::Count { .. }
            | Self::Range { .. }
            | Self::Run { .. } => Some(TreeKind::Map),
            Self::Push { .. }
            | Self::InsertAt { .. }
            | Self::SetAt { .. }
            | Self::Rotate { .. } => Some(TreeKind::List),
            Self::Score { .. }
            | Self::ScoreOf { .. }
            | Self::ScoredValue { .. }
            | Self::ScoreRank { .. }
            | Self::ScoreCount { .. }
            | Self::ScoreRange { .. }
            | Self::ScoreScan { .. }
            | Self::ScoreRemove { .. } => Some(TreeKind::Scored),
        }
    }

    /// Key and value of the one element that it stores, as far as it has them.
    pub(crate) fn element(&self) -> (&'a [u8], &'a [u8]) {
        match *self {
            Self::Insert { key, value, .. } => (key, value),
            Self::CompareAndSet { key, value, .. } => (key, value.unwrap_or(&[])),
            Self::InsertAt { value, .. } | Self::SetAt { value, .. } => (&[], value),
            Self::Push { values, .. } => (&[], values.first()),
            Self::Update { changes, .. } => changes.single().map_or((&[], &[]), |change| {
                (change.key, change.value.unwrap_or(&[]))
            }),
            Self::Score { changes, .. } => (&[], changes.single().map_or(&[], |one| one.value)),
            _ => (&[], &[]),
        }
    }

    /// The key of the one element that it looks for, or looks for first, if it names one. A key
    /// that must be made is made in the buffer.
    pub(crate) fn sought<'b>(&self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        match *self {
            Self::Get { key } | Self::Remove { key } | Self::Rank { key } => Some(key),
            Self::Insert { key, .. } | Self::CompareAndSet { key, .. } => Some(key),
            Self::Update { changes, .. } => changes.single().map(|change| change.key),
            Self::Score { changes, .. } => {
                let change = changes.single()?;
                Some(member_key(change.member, buffer))
            }
            Self::ScoreOf { members } if members.is_single() => {
                Some(member_key(members.first(), buffer))
            }
            Self::ScoredValue { member } | Self::ScoreRank { member, .. } => {
                Some(member_key(member, buffer))
            }
            _ => None,
        }
    }

    /// True if it removes elements and adds none.
    pub(crate) fn is_removal(&self) -> bool {
        match self {
            Self::Pop { .. }
            | Self::RemoveByRank { .. }
            | Self::Remove { .. }
            | Self::CompareAndSet { value: None, .. }
            | Self::TakeAt { .. }
            | Self::Draw { removes: true, .. }
            | Self::Trim { .. }
            | Self::ScoreRemove { .. } => true,
            Self::Score {
                changes, replaces, ..
            } => !replaces && changes.only_remove(),
            Self::Run { mode, .. } => *mode == TreeProgramMode::Removes,
            Self::Update { changes, replaces } => !replaces && changes.only_remove(),
            _ => false,
        }
    }

    /// True if it may change the collection.
    #[must_use]
    pub fn is_change(&self) -> bool {
        match self {
            Self::Len
            | Self::RangeByRank { .. }
            | Self::Get { .. }
            | Self::Rank { .. }
            | Self::Count { .. }
            | Self::Range { .. }
            | Self::GetMany { .. }
            | Self::Draw { removes: false, .. }
            | Self::Slice { .. }
            | Self::ScoreOf { .. }
            | Self::ScoredValue { .. }
            | Self::ScoreRank { .. }
            | Self::ScoreCount { .. }
            | Self::ScoreRange { .. }
            | Self::ScoreScan { .. } => false,
            Self::Pop { .. }
            | Self::RemoveByRank { .. }
            | Self::Insert { .. }
            | Self::Remove { .. }
            | Self::CompareAndSet { .. }
            | Self::Push { .. }
            | Self::InsertAt { .. }
            | Self::SetAt { .. }
            | Self::Update { .. }
            | Self::TakeAt { .. }
            | Self::Rotate { .. }
            | Self::Draw { removes: true, .. }
            | Self::Trim { .. }
            | Self::Score { .. }
            | Self::ScoreRemove { .. } => true,
            Self::Run { mode, .. } => *mode != TreeProgramMode::Reads,
        }
    }

    /// True if the key becomes another collection, whatever it was.
    pub(crate) fn replaces(&self) -> bool {
        matches!(
            self,
            Self::Update { replaces: true, .. }
                | Self::Push { replaces: true, .. }
                | Self::Score { replaces: true, .. }
        )
    }

    /// Values that it pushes.
    pub(crate) fn pushed(&self) -> usize {
        match self {
            Self::Push { values, .. } => values.count().unwrap_or(0),
            _ => 0,
        }
    }

    /// The longest key of an element that it names, and the longest value that it carries, in
    /// bytes.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let bound = |bound: &TreeBound<'_>| match bound {
            TreeBound::Unbounded => 0,
            TreeBound::Included(key) | TreeBound::Excluded(key) => key.len(),
        };
        let in_range = |range: &TreeScoreRange<'_>| match range {
            TreeScoreRange::Members { from, to } => bound(from).max(bound(to)),
            TreeScoreRange::Ranks { .. } | TreeScoreRange::Scores { .. } => 0,
        };
        match self {
            Self::Len
            | Self::RangeByRank { .. }
            | Self::Pop { .. }
            | Self::RemoveByRank { .. }
            | Self::TakeAt { .. }
            | Self::Rotate { .. }
            | Self::Draw { .. }
            | Self::Slice { .. }
            | Self::Trim { .. }
            | Self::ScoreScan { .. } => (0, 0),
            Self::Score { changes, .. } => {
                let (member, value) = changes.lengths().unwrap_or((0, 0));
                (ORDER_BYTES + member, value)
            }
            Self::ScoreOf { members } => (ORDER_BYTES + members.longest().unwrap_or(0), 0),
            Self::ScoredValue { member } | Self::ScoreRank { member, .. } => {
                (ORDER_BYTES + member.len(), 0)
            }
            Self::ScoreCount { range }
            | Self::ScoreRemove { range }
            | Self::ScoreRange { range, .. } => (ORDER_BYTES + in_range(range), 0),
            Self::Run { input, .. } => (0, input.len()),
            Self::Update { changes, .. } => changes.lengths().unwrap_or((0, 0)),
            Self::GetMany { keys } => (keys.longest().unwrap_or(0), 0),
            Self::Get { key } | Self::Remove { key } | Self::Rank { key } => (key.len(), 0),
            Self::Insert { key, value, .. } => (key.len(), value.len()),
            Self::CompareAndSet { key, value, .. } => (key.len(), value.map_or(0, <[u8]>::len)),
            Self::Count { from, to } | Self::Range { from, to, .. } => {
                (bound(from).max(bound(to)), 0)
            }
            Self::Push { values, .. } => (0, values.longest().unwrap_or(0)),
            Self::InsertAt { value, .. } | Self::SetAt { value, .. } => (0, value.len()),
        }
    }

    /// Writes it behind what is there, with the collections that it is of, as requests carry it: to
    /// do it again later.
    #[expect(clippy::too_many_lines, reason = "one arm per operation")]
    pub fn encode(&self, guard: TreeGuard, into: &mut Vec<u8>) {
        into.extend([guard.tag, u8::from(guard.version.is_some())]);
        into.extend(
            guard
                .version
                .iter()
                .flat_map(|version| version.to_le_bytes()),
        );
        let head = |code: u8, flag: bool| [code, u8::from(flag)];
        match *self {
            Self::Len => into.extend(head(0, false)),
            Self::RangeByRank {
                start,
                end,
                reverse,
                limit,
            } => {
                into.extend(head(1, reverse));
                into.extend(start.to_le_bytes());
                into.extend(end.to_le_bytes());
                into.extend(limit.to_le_bytes());
            }
            Self::Pop { last, limit } => {
                into.extend(head(2, last));
                into.extend(limit.to_le_bytes());
            }
            Self::RemoveByRank { start, end } => {
                into.extend(head(3, false));
                into.extend(start.to_le_bytes());
                into.extend(end.to_le_bytes());
            }
            Self::Get { key } => {
                into.extend(head(4, false));
                put_bytes(into, key);
            }
            Self::Insert {
                key,
                value,
                condition,
            } => {
                into.extend([5, condition as u8]);
                put_bytes(into, key);
                put_bytes(into, value);
            }
            Self::Remove { key } => {
                into.extend(head(6, false));
                put_bytes(into, key);
            }
            Self::CompareAndSet {
                key,
                expected,
                value,
            } => {
                into.extend(head(7, false));
                put_bytes(into, key);
                put_optional(into, expected);
                put_optional(into, value);
            }
            Self::Rank { key } => {
                into.extend(head(8, false));
                put_bytes(into, key);
            }
            Self::Count { from, to } => {
                into.extend(head(9, false));
                put_bound(into, from);
                put_bound(into, to);
            }
            Self::Range {
                from,
                to,
                reverse,
                limit,
            } => {
                into.extend(head(10, reverse));
                put_bound(into, from);
                put_bound(into, to);
                into.extend(limit.to_le_bytes());
            }
            Self::Push {
                front,
                exists,
                replaces,
                values,
            } => {
                let flags = u8::from(front) | u8::from(exists) << 1 | u8::from(replaces) << 2;
                into.extend([11, flags]);
                values.encode(into);
            }
            Self::InsertAt { rank, value } => {
                into.extend(head(12, false));
                into.extend(rank.to_le_bytes());
                put_bytes(into, value);
            }
            Self::SetAt { rank, value } => {
                into.extend(head(13, false));
                into.extend(rank.to_le_bytes());
                put_bytes(into, value);
            }
            Self::Update { changes, replaces } => {
                into.extend(head(14, replaces));
                match changes {
                    TreeChanges::Slices(changes) => {
                        changes.iter().for_each(|change| put_change(into, *change));
                    }
                    TreeChanges::Encoded(bytes) => into.extend_from_slice(bytes),
                }
            }
            Self::GetMany { keys } => {
                into.extend(head(15, false));
                keys.encode(into);
            }
            Self::TakeAt { rank } => {
                into.extend(head(16, false));
                into.extend(rank.to_le_bytes());
            }
            Self::Draw { random, removes } => {
                into.extend(head(17, removes));
                into.extend(random.to_le_bytes());
            }
            Self::Slice { first, last, limit } => {
                into.extend(head(18, false));
                into.extend(first.to_le_bytes());
                into.extend(last.to_le_bytes());
                into.extend(limit.to_le_bytes());
            }
            Self::Trim { first, last } => {
                into.extend(head(19, false));
                into.extend(first.to_le_bytes());
                into.extend(last.to_le_bytes());
            }
            Self::Rotate { last } => into.extend(head(20, last)),
            Self::Score {
                changes,
                rule,
                replaces,
            } => {
                into.extend([21, rule.encode() | u8::from(replaces) << 5]);
                changes.encode(into);
            }
            Self::ScoreOf { members } => {
                into.extend(head(22, false));
                members.encode(into);
            }
            Self::ScoredValue { member } => {
                into.extend(head(23, false));
                put_bytes(into, member);
            }
            Self::ScoreRank { member, reverse } => {
                into.extend(head(24, reverse));
                put_bytes(into, member);
            }
            Self::ScoreCount { range } => {
                into.extend(head(25, false));
                put_score_range(into, range);
            }
            Self::ScoreRange {
                range,
                reverse,
                skip,
                limit,
            } => {
                into.extend(head(26, reverse));
                put_score_range(into, range);
                into.extend(skip.to_le_bytes());
                into.extend(limit.to_le_bytes());
            }
            Self::ScoreScan { from, limit } => {
                into.extend(head(27, false));
                into.extend(from.to_le_bytes());
                into.extend(limit.to_le_bytes());
            }
            Self::ScoreRemove { range } => {
                into.extend(head(28, false));
                put_score_range(into, range);
            }
            Self::Run {
                program,
                mode,
                input,
            } => {
                into.extend([29, mode as u8, program]);
                put_bytes(into, input);
            }
        }
    }

    /// The operation that was encoded; `None` if none was.
    #[expect(clippy::too_many_lines, reason = "one arm per operation")]
    #[must_use]
    pub fn decode(encoded: &'a [u8]) -> Option<(TreeGuard, Self)> {
        let mut fields = Fields(encoded);
        let guard = TreeGuard {
            tag: fields.byte()?,
            version: match fields.byte()? {
                0 => None,
                1 => Some(fields.number()?),
                _ => return None,
            },
        };
        let (code, flags) = (fields.byte()?, fields.byte()?);
        let flag = flags != 0;
        let op = match code {
            0 => Self::Len,
            1 => Self::RangeByRank {
                start: fields.number()?,
                end: fields.number()?,
                reverse: flag,
                limit: fields.short()?,
            },
            2 => Self::Pop {
                last: flag,
                limit: fields.short()?,
            },
            3 => Self::RemoveByRank {
                start: fields.number()?,
                end: fields.number()?,
            },
            4 => Self::Get {
                key: fields.bytes()?,
            },
            5 => Self::Insert {
                key: fields.bytes()?,
                value: fields.bytes()?,
                condition: match flags {
                    0 => TreeCondition::Always,
                    1 => TreeCondition::IfAbsent,
                    2 => TreeCondition::IfPresent,
                    _ => return None,
                },
            },
            6 => Self::Remove {
                key: fields.bytes()?,
            },
            7 => Self::CompareAndSet {
                key: fields.bytes()?,
                expected: fields.optional()?,
                value: fields.optional()?,
            },
            8 => Self::Rank {
                key: fields.bytes()?,
            },
            9 => Self::Count {
                from: fields.bound()?,
                to: fields.bound()?,
            },
            10 => Self::Range {
                from: fields.bound()?,
                to: fields.bound()?,
                reverse: flag,
                limit: fields.short()?,
            },
            11 => {
                let values = TreeValues::Encoded(std::mem::take(&mut fields.0));
                values.longest()?;
                Self::Push {
                    front: flags & 1 != 0,
                    exists: flags & 2 != 0,
                    replaces: flags & 4 != 0,
                    values,
                }
            }
            12 => Self::InsertAt {
                rank: fields.number()?,
                value: fields.bytes()?,
            },
            13 => Self::SetAt {
                rank: fields.signed()?,
                value: fields.bytes()?,
            },
            14 => {
                let changes = TreeChanges::Encoded(std::mem::take(&mut fields.0));
                changes.lengths()?;
                Self::Update {
                    changes,
                    replaces: flag,
                }
            }
            15 => {
                let keys = TreeValues::Encoded(std::mem::take(&mut fields.0));
                keys.longest()?;
                Self::GetMany { keys }
            }
            16 => Self::TakeAt {
                rank: fields.signed()?,
            },
            17 => Self::Draw {
                random: fields.number()?,
                removes: flag,
            },
            18 => Self::Slice {
                first: fields.signed()?,
                last: fields.signed()?,
                limit: fields.short()?,
            },
            19 => Self::Trim {
                first: fields.signed()?,
                last: fields.signed()?,
            },
            20 => Self::Rotate { last: flag },
            21 => {
                let changes = TreeScores::Encoded(std::mem::take(&mut fields.0));
                changes.lengths()?;
                let rule = TreeScoreRule::decode(flags & !(1 << 5))?;
                Self::Score {
                    changes,
                    rule,
                    replaces: flags >> 5 != 0,
                }
            }
            22 => {
                let members = TreeValues::Encoded(std::mem::take(&mut fields.0));
                members.longest()?;
                Self::ScoreOf { members }
            }
            23 => Self::ScoredValue {
                member: fields.bytes()?,
            },
            24 => Self::ScoreRank {
                member: fields.bytes()?,
                reverse: flag,
            },
            25 => Self::ScoreCount {
                range: fields.score_range()?,
            },
            26 => Self::ScoreRange {
                range: fields.score_range()?,
                reverse: flag,
                skip: fields.number()?,
                limit: fields.short()?,
            },
            27 => Self::ScoreScan {
                from: fields.number()?,
                limit: fields.short()?,
            },
            28 => Self::ScoreRemove {
                range: fields.score_range()?,
            },
            29 => Self::Run {
                mode: TreeProgramMode::of(flags)?,
                program: fields.byte()?,
                input: fields.bytes()?,
            },
            _ => return None,
        };
        fields.0.is_empty().then_some((guard, op))
    }
}

/// The length of an answered value that stands for none.
const NO_VALUE: u32 = u32::MAX;

/// Writes the value of a key to the answer to [`TreeOp::GetMany`].
pub(super) fn put_found(into: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => put_bytes(into, value),
        None => into.extend(NO_VALUE.to_le_bytes()),
    }
}

/// The values in the answer to [`TreeOp::GetMany`], of as many keys as it is about.
pub(crate) fn found_values(answer: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut fields = Fields(answer);
    std::iter::from_fn(move || match fields.short()? {
        NO_VALUE => Some(None),
        length => Some(Some(fields.take(usize::try_from(length).ok()?)?)),
    })
}

/// Bytes of a page before its elements.
pub(super) const PAGE_HEAD: usize = 1;
/// Bytes of an element in a page beside key and value.
pub(super) const PAGE_ELEMENT: usize = 8;

/// Adds an element to a page, which is begun if it is empty.
pub(super) fn put_element(page: &mut Vec<u8>, (key, value): (&[u8], &[u8])) {
    if page.is_empty() {
        page.push(0);
    }
    for part in [key, value] {
        page.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    page.extend_from_slice(key);
    page.extend_from_slice(value);
}

/// The elements of a page: key and value of each.
pub(crate) fn page_elements(page: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut fields = Fields(page.get(PAGE_HEAD..).unwrap_or(&[]));
    std::iter::from_fn(move || {
        let (key, value) = (fields.short()?, fields.short()?);
        let key = fields.take(usize::try_from(key).ok()?)?;
        Some((key, fields.take(usize::try_from(value).ok()?)?))
    })
}

/// True if there are more elements behind those of a page.
pub(crate) fn page_has_more(page: &[u8]) -> bool {
    page.first().is_some_and(|&more| more != 0)
}
