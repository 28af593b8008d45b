//! Scored maps: what clients call, what is answered, and how they should be. Members are numbers,
//! as elements of maps are, and scores are whole.

use std::collections::BTreeMap;

use farcore::{
    TreeCondition, TreeOp, TreeScore, TreeScoreBound, TreeScoreOnly, TreeScoreRange, TreeScoreRule,
    TreeScores, TreeValues,
};

use crate::call::{Found, nth_element, pushed};

/// What is read of or done to a scored map alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScoredCall {
    /// Changes members from the first on, see [`ScoredCall::changes`].
    Score {
        first: u64,
        count: u64,
        removes: u64,
        score: i64,
        replaces: bool,
    },
    /// Changes one member, by a rule.
    ScoreOne {
        member: u64,
        score: i64,
        condition: TreeCondition,
        only: TreeScoreOnly,
        adds: bool,
    },
    ScoreOf {
        first: u64,
        count: u64,
    },
    Value(u64),
    Rank(u64, bool),
    Count(i64, i64),
    Range {
        from: i64,
        to: i64,
        reverse: bool,
        skip: u64,
        limit: u32,
    },
    Scan(u32),
    Remove(i64, i64),
}

/// What was found in a scored map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ScoredFound {
    /// How many were added, changed and removed, how many changes were made, how many members there
    /// are, and what became of the last one; then its score.
    Made([u64; 6], i64),
    Scores(Vec<Option<i64>>),
    /// A score and the number of a value.
    Value(i64, u64),
    /// A rank and a score.
    Rank(u64, i64),
    /// Whether there is more, and place, member and score of each member.
    Placed(bool, Vec<(u64, u64, i64)>),
}

/// A change of one member: its new score, or none if it is removed, and the number of its value.
type Change = (u64, Option<i64>, u64);

/// What is added to a score to make it a part of a key.
const BIAS: i64 = 1 << 30;

/// What stands for the key of an element that is by score: it is in the order of scores, then of
/// members.
pub(crate) fn scored_key(score: i64, member: u64) -> u64 {
    (score + BIAS).unsigned_abs() << 32 | member
}

/// Scores are whole, and small.
#[expect(clippy::cast_possible_truncation, reason = "it is whole")]
pub(crate) fn whole(score: f64) -> i64 {
    score as i64
}

/// The score that an element's key begins with.
pub(crate) fn score_of_order(order: u64) -> i64 {
    let sign = 1 << 63;
    whole(f64::from_bits(match order & sign {
        0 => !order,
        _ => order ^ sign,
    }))
}

impl ScoredCall {
    /// What it makes of members: the score grows from one to the next, and one in `removes` is
    /// removed.
    pub(crate) fn changes(self, number: u64) -> Vec<Change> {
        match self {
            Self::Score {
                first,
                count,
                removes,
                score,
                ..
            } => {
                let values = pushed(number, count).zip(0..);
                let change = |(value, place): (u64, u64)| {
                    let is_removed = removes > 0 && (place + 1).is_multiple_of(removes);
                    let score = score + i64::try_from(place).unwrap_or(0);
                    let score = (!is_removed).then_some(score);
                    (nth_element(first, place), score, value)
                };
                values.map(change).collect()
            }
            Self::ScoreOne { member, score, .. } => pushed(number, 1)
                .map(|value| (member, Some(score), value))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The members that it names.
    pub(crate) fn members(self) -> Vec<u64> {
        match self {
            Self::ScoreOf { first, count } => {
                (0..count).map(|place| nth_element(first, place)).collect()
            }
            Self::Value(member) | Self::Rank(member, _) => vec![member],
            _ => self.changes(0).iter().map(|change| change.0).collect(),
        }
    }

    fn rule(self) -> TreeScoreRule {
        match self {
            Self::ScoreOne {
                condition,
                only,
                adds,
                ..
            } => TreeScoreRule {
                condition,
                only,
                adds,
            },
            _ => TreeScoreRule::default(),
        }
    }

    /// The operation, with the members that it names and what it makes of them.
    pub(crate) fn op<'a>(
        self,
        members: &'a [&'a [u8]],
        changes: &'a [TreeScore<'a>],
    ) -> TreeOp<'a> {
        let member = members.first().copied().unwrap_or(&[]);
        match self {
            Self::Score { .. } | Self::ScoreOne { .. } => TreeOp::Score {
                changes: TreeScores::Slices(changes),
                rule: self.rule(),
                replaces: matches!(self, Self::Score { replaces: true, .. }),
            },
            Self::ScoreOf { .. } => TreeOp::ScoreOf {
                members: TreeValues::Slices(members),
            },
            Self::Value(_) => TreeOp::ScoredValue { member },
            Self::Rank(_, reverse) => TreeOp::ScoreRank { member, reverse },
            Self::Count(from, to) => TreeOp::ScoreCount {
                range: range_of(from, to),
            },
            Self::Range {
                from,
                to,
                reverse,
                skip,
                limit,
            } => TreeOp::ScoreRange {
                range: range_of(from, to),
                reverse,
                skip,
                limit,
            },
            Self::Scan(limit) => TreeOp::ScoreScan { from: 0, limit },
            Self::Remove(from, to) => TreeOp::ScoreRemove {
                range: range_of(from, to),
            },
        }
    }

    /// True if it has changed its collection, by what it found.
    pub(crate) fn is_change(self, found: &Found) -> bool {
        match (self, found) {
            (Self::Score { .. }, Found::Scored(ScoredFound::Made(counts, _))) => {
                let is_set = |change: &Change| change.1.is_some();
                counts[2] > 0 || self.changes(0).iter().any(is_set)
            }
            (Self::ScoreOne { .. }, Found::Scored(ScoredFound::Made(counts, _))) => counts[5] == 1,
            (Self::Remove(..), Found::Removed(count, _)) => *count > 0,
            _ => false,
        }
    }
}

/// From one score to before another.
fn range_of<'a>(from: i64, to: i64) -> TreeScoreRange<'a> {
    let bound = |score: i64| f64::from(i32::try_from(score).unwrap_or(0));
    TreeScoreRange::Scores {
        from: TreeScoreBound::Included(bound(from)),
        to: TreeScoreBound::Excluded(bound(to)),
    }
}

/// A scored map as it should be: of each member the score and the number of the value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Scores(BTreeMap<u64, (i64, u64)>);

impl Scores {
    /// One of these elements, as [`Scores::elements`] lists them.
    pub(crate) fn of(elements: &[(u64, u64)]) -> Self {
        let member = |&(key, value): &(u64, u64)| {
            let score = i64::try_from(key >> 32).unwrap_or(0) - BIAS;
            (key & u64::from(u32::MAX), (score, value))
        };
        Self(elements.iter().map(member).collect())
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// For each member, in the order of scores, what stands for its key, and its value's number.
    pub(crate) fn elements(&self) -> Vec<(u64, u64)> {
        let all = self.0.iter();
        let mut all: Vec<_> = all
            .map(|(&member, &(score, value))| (scored_key(score, member), value))
            .collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn remove_at(&mut self, rank: usize) {
        if let Some((key, _)) = self.elements().get(rank) {
            self.0.remove(&(key & u64::from(u32::MAX)));
        }
    }

    /// Elements from one score to before another.
    fn range(&self, from: i64, to: i64) -> Vec<(u64, u64)> {
        let mut elements = self.elements();
        let (from, to) = (scored_key(from, 0), scored_key(to, 0));
        elements.retain(|&(key, _)| key >= from && key < to);
        elements
    }

    /// Makes one change; returns what became of the member, and its score.
    fn make(
        &mut self,
        (member, score, value): Change,
        rule: TreeScoreRule,
        counts: &mut [u64; 6],
    ) -> (u64, i64) {
        let before = self.0.get(&member).map(|known| known.0);
        let Some(score) = score else {
            counts[2] += u64::from(self.0.remove(&member).is_some());
            return (0, 0);
        };
        let score = if rule.adds {
            before.unwrap_or(0) + score
        } else {
            score
        };
        let is_met = match rule.condition {
            TreeCondition::Always => true,
            TreeCondition::IfAbsent => before.is_none(),
            TreeCondition::IfPresent => before.is_some(),
        };
        let is_taken = before.is_none_or(|before| match rule.only {
            TreeScoreOnly::Any => true,
            TreeScoreOnly::Greater => score > before,
            TreeScoreOnly::Less => score < before,
        });
        if !is_met || !is_taken {
            return (0, 0);
        }
        self.0.insert(member, (score, value));
        match before {
            None => counts[0] += 1,
            Some(before) => counts[1] += u64::from(before != score),
        }
        (1, score)
    }

    /// Makes a change, and compares what was answered. True if it was so.
    pub(crate) fn change(&mut self, number: u64, call: ScoredCall, found: &Found) -> bool {
        match (call, found) {
            (
                ScoredCall::Score { .. } | ScoredCall::ScoreOne { .. },
                Found::Scored(ScoredFound::Made(seen, score)),
            ) => {
                let (mut counts, mut last) = ([0; 6], (0, 0));
                let changes = call.changes(number);
                for change in &changes {
                    last = self.make(*change, call.rule(), &mut counts);
                }
                (counts[3], counts[4]) = (changes.len() as u64, self.len());
                counts[5] = last.0;
                counts == *seen && last.1 == *score
            }
            (ScoredCall::Remove(from, to), Found::Removed(count, more)) => {
                let wanted = self.range(from, to);
                for (key, _) in wanted.iter().take(usize::try_from(*count).unwrap_or(0)) {
                    self.0.remove(&(key & u64::from(u32::MAX)));
                }
                let wanted = wanted.len() as u64;
                *count <= wanted && *more == (*count < wanted)
            }
            _ => false,
        }
    }

    /// True if this is what a call reads, which changes nothing; `is_page` compares elements with a
    /// page.
    pub(crate) fn holds(
        &self,
        call: ScoredCall,
        found: &Found,
        is_page: impl Fn(Vec<(u64, u64)>, bool, u32) -> bool,
    ) -> bool {
        let score_of = |member: u64| self.0.get(&member).map(|known| known.0);
        match (call, found) {
            (
                ScoredCall::Score { .. } | ScoredCall::ScoreOne { .. } | ScoredCall::Remove(..),
                found,
            ) => {
                let mut after = self.clone();
                after.change(0, call, found) && after == *self
            }
            (ScoredCall::ScoreOf { .. }, Found::Scored(ScoredFound::Scores(scores))) => {
                let mut members = call.members().into_iter();
                let fits = |score: &Option<i64>| members.next().map(score_of) == Some(*score);
                !scores.is_empty() && scores.iter().all(fits)
            }
            (ScoredCall::Value(member), Found::Scored(ScoredFound::Value(score, value))) => {
                self.0.get(&member) == Some(&(*score, *value))
            }
            (ScoredCall::Rank(member, reverse), Found::Scored(ScoredFound::Rank(rank, score))) => {
                let key = scored_key(*score, member);
                let before = self.elements().iter().filter(|one| one.0 < key).count() as u64;
                let expected = match reverse {
                    true => self.len().saturating_sub(1 + before),
                    false => before,
                };
                score_of(member) == Some(*score) && *rank == expected
            }
            (ScoredCall::Count(from, to), Found::Number(count)) => {
                *count == self.range(from, to).len() as u64
            }
            (
                ScoredCall::Range {
                    from,
                    to,
                    reverse,
                    skip,
                    limit,
                },
                Found::Page(..),
            ) => {
                let mut wanted = self.range(from, to);
                if reverse {
                    wanted.reverse();
                }
                let skip = usize::try_from(skip).unwrap_or(usize::MAX);
                is_page(wanted.into_iter().skip(skip).collect(), false, limit)
            }
            (ScoredCall::Scan(limit), Found::Scored(ScoredFound::Placed(more, members))) => {
                let is_all = members.len() as u64 == self.len();
                members.is_sorted_by_key(|one| one.0)
                    && (members.iter()).all(|one| score_of(one.1) == Some(one.2))
                    && members.len() as u64 <= u64::from(limit)
                    && (limit == 0 || is_all != *more && (is_all || !members.is_empty()))
            }
            _ => false,
        }
    }

    /// True if a call finds nothing here.
    pub(crate) fn lacks(&self, call: ScoredCall) -> bool {
        match call {
            ScoredCall::Value(member) | ScoredCall::Rank(member, _) => {
                !self.0.contains_key(&member)
            }
            _ => false,
        }
    }
}
