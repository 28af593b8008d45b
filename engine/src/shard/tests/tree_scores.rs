//! The part of the model of trees that is about scored maps.

use std::collections::BTreeMap;

use super::Owned;
use crate::error::Error;
use crate::tree::{
    TreeKind, TreeOp, TreeScore, TreeScoreBound, TreeScoreRange, TreeScoreRule, TreeScores,
    TreeValues, found_values, page_has_more, placed_elements,
};

/// Bytes of a member's elements beside the member, twice, and its value.
const BESIDE_MEMBER: usize = 3 * size_of::<u64>();
/// Elements of a page, at most.
const LIMIT: u32 = 50;
/// How many of the scores that are drawn differ.
const SCORES: i32 = 40;

/// A change of a member: its new score, or none if it is removed, and its value.
pub(super) type Change = (Vec<u8>, Option<f64>, Vec<u8>);

/// A request that is for scored maps alone, which owns its parts.
#[derive(Clone, Debug)]
pub(super) enum ScoredCall {
    /// Whether scores are added to those before.
    Score(Vec<Change>, bool),
    ScoreOf(Vec<Vec<u8>>),
    ScoredValue(Vec<u8>),
    Rank(Vec<u8>, bool),
    Count(f64, f64),
    Range((f64, f64), bool),
    Scan,
    Remove(f64, f64),
}

/// Draws a call; `member` and `content` make names and values of random numbers.
pub(super) fn scored_call(
    mut below: impl FnMut(u64) -> u64,
    member: impl Fn(u64) -> Vec<u8>,
    content: impl Fn(u64) -> Vec<u8>,
) -> ScoredCall {
    let score = |below: &mut dyn FnMut(u64) -> u64| {
        let number = i32::try_from(below(SCORES as u64)).unwrap_or(0);
        f64::from(number - SCORES / 2) / 4.0
    };
    match below(24) {
        0..12 => {
            let adds = below(4) == 0;
            let changes = (0..=below(5)).map(|_| {
                let name = member(below(300));
                let new = (below(4) > 0).then(|| score(&mut below));
                (name, new, content(below(1 << 20)))
            });
            ScoredCall::Score(changes.collect(), adds)
        }
        12 | 13 => ScoredCall::ScoreOf((0..=below(5)).map(|_| member(below(300))).collect()),
        14 => ScoredCall::ScoredValue(member(below(300))),
        15 | 16 => ScoredCall::Rank(member(below(300)), below(2) == 0),
        17 => ScoredCall::Count(score(&mut below), score(&mut below)),
        18..21 => {
            let ends = (score(&mut below), score(&mut below));
            ScoredCall::Range(ends, below(2) == 0)
        }
        21 | 22 => ScoredCall::Scan,
        _ => {
            let from = score(&mut below);
            ScoredCall::Remove(from, from + 0.5)
        }
    }
}

/// The parts of a call that its operation borrows.
#[derive(Default)]
pub(super) struct Parts<'a> {
    changes: Vec<TreeScore<'a>>,
    members: Vec<&'a [u8]>,
}

impl ScoredCall {
    pub(super) fn parts(&self) -> Parts<'_> {
        let mut parts = Parts::default();
        match self {
            Self::Score(changes, _) => {
                let changes = changes.iter().map(|(member, score, value)| TreeScore {
                    member,
                    score: *score,
                    value,
                });
                parts.changes.extend(changes);
            }
            Self::ScoreOf(members) => parts.members.extend(members.iter().map(Vec::as_slice)),
            _ => {}
        }
        parts
    }

    pub(super) fn op<'a>(&'a self, parts: &'a Parts<'a>) -> TreeOp<'a> {
        match self {
            Self::Score(_, adds) => TreeOp::Score {
                changes: TreeScores::Slices(&parts.changes),
                rule: TreeScoreRule {
                    adds: *adds,
                    ..TreeScoreRule::default()
                },
                replaces: false,
            },
            Self::ScoreOf(_) => TreeOp::ScoreOf {
                members: TreeValues::Slices(&parts.members),
            },
            Self::ScoredValue(member) => TreeOp::ScoredValue { member },
            Self::Rank(member, reverse) => TreeOp::ScoreRank {
                member,
                reverse: *reverse,
            },
            Self::Count(from, to) => TreeOp::ScoreCount {
                range: range_of(*from, *to),
            },
            Self::Range((from, to), reverse) => TreeOp::ScoreRange {
                range: range_of(*from, *to),
                reverse: *reverse,
                skip: 0,
                limit: LIMIT,
            },
            Self::Scan => TreeOp::ScoreScan {
                from: 0,
                limit: LIMIT,
            },
            Self::Remove(from, to) => TreeOp::ScoreRemove {
                range: range_of(*from, *to),
            },
        }
    }
}

/// From one score to before another.
fn range_of<'a>(from: f64, to: f64) -> TreeScoreRange<'a> {
    TreeScoreRange::Scores {
        from: TreeScoreBound::Included(from),
        to: TreeScoreBound::Excluded(to),
    }
}

/// The first bytes of the key of an element that is by score.
pub(super) fn order_of(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let order = match score < 0.0 {
        true => !bits,
        false => bits | 1 << 63,
    };
    order.to_be_bytes()
}

/// Members with score and value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scores(BTreeMap<Vec<u8>, (f64, Vec<u8>)>);

impl Eq for Scores {}

impl Scores {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all elements.
    pub(super) fn bytes(&self) -> usize {
        let all = self.0.iter();
        all.map(|(member, (_, value))| 2 * member.len() + value.len() + BESIDE_MEMBER)
            .sum()
    }

    /// Key and value of each element that is by score.
    pub(super) fn elements(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let all = self.0.iter();
        let mut all: Vec<_> = all
            .map(|(member, (score, value))| {
                ([&order_of(*score)[..], member].concat(), value.clone())
            })
            .collect();
        all.sort();
        all
    }

    pub(super) fn remove_at(&mut self, rank: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let element = self.elements().into_iter().nth(rank)?;
        self.0.remove(&element.0[8..])?;
        Some(element)
    }

    fn within(&self, from: f64, to: f64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut elements = self.elements();
        elements.retain(|(key, _)| key[..8] >= order_of(from)[..] && key[..8] < order_of(to)[..]);
        elements
    }

    /// True if a call was answered as it must be; then the change is made.
    pub(super) fn follows(
        &mut self,
        call: &ScoredCall,
        answer: &Owned,
        is_page: impl Fn(&[(Vec<u8>, Vec<u8>)], usize, &[u8]) -> bool,
    ) -> bool {
        let found = match (call, answer) {
            (ScoredCall::ScoredValue(member) | ScoredCall::Rank(member, _), Owned::Absent) => {
                return !self.0.contains_key(member);
            }
            (_, Owned::Value(_, found)) => found,
            _ => return false,
        };
        match call {
            ScoredCall::Score(changes, adds) => self.make(changes, *adds, found),
            ScoredCall::ScoreOf(members) => {
                let found: Vec<_> = found_values(found).collect();
                let fits = |(member, found): (&Vec<u8>, &Option<&[u8]>)| {
                    let score = self.0.get(member).map(|(score, _)| score.to_le_bytes());
                    *found == score.as_ref().map(|score| &score[..])
                };
                !found.is_empty()
                    && found.len() <= members.len()
                    && members.iter().zip(&found).all(fits)
            }
            ScoredCall::ScoredValue(member) => {
                let known = self.0.get(member);
                known.is_some_and(|(score, value)| {
                    *found == [&score.to_le_bytes()[..], value].concat()
                })
            }
            ScoredCall::Rank(member, reverse) => {
                let Some((score, _)) = self.0.get(member) else {
                    return false;
                };
                let all = self.elements();
                let rank = all.iter().position(|(key, _)| key[8..] == **member);
                let rank =
                    rank.map_or(0, |rank| if *reverse { all.len() - 1 - rank } else { rank });
                *found == [(rank as u64).to_le_bytes(), score.to_le_bytes()].concat()
            }
            ScoredCall::Count(from, to) => {
                *found == (self.within(*from, *to).len() as u64).to_le_bytes()
            }
            ScoredCall::Range((from, to), reverse) => {
                let mut wanted = self.within(*from, *to);
                if *reverse {
                    wanted.reverse();
                }
                is_page(&wanted, LIMIT as usize, found)
            }
            ScoredCall::Scan => {
                let page: Vec<_> = placed_elements(found).collect();
                let is_known = |&(member, _, score): &(&[u8], u64, f64)| {
                    self.0.get(member).is_some_and(|(known, _)| *known == score)
                };
                let is_all = page.len() == self.0.len();
                page.iter().all(is_known)
                    && page.is_sorted_by_key(|&(_, place, _)| place)
                    && page.len() <= LIMIT as usize
                    && is_all != page_has_more(found)
                    && (is_all || !page.is_empty())
            }
            ScoredCall::Remove(from, to) => self.remove(*from, *to, found),
        }
    }

    fn make(&mut self, changes: &[Change], adds: bool, found: &[u8]) -> bool {
        let (mut counts, mut last) = ([0u64; 3], (0u64, 0f64));
        for (member, score, value) in changes {
            let before = self.0.get(member).map(|(score, _)| *score);
            let Some(score) = score else {
                counts[2] += u64::from(self.0.remove(member).is_some());
                last = (0, 0.0);
                continue;
            };
            let score = match before {
                Some(before) if adds => before + score,
                _ => *score,
            };
            self.0.insert(member.clone(), (score, value.clone()));
            match before {
                None => counts[0] += 1,
                Some(before) => counts[1] += u64::from(before != score),
            }
            last = (1, score);
        }
        let [added, changed, removed] = counts;
        let (done, members) = (changes.len() as u64, self.0.len() as u64);
        let numbers = [added, changed, removed, done, members, last.0];
        let bytes = numbers.map(u64::to_le_bytes).concat();
        *found == [&bytes[..], &last.1.to_le_bytes()].concat()
    }

    fn remove(&mut self, from: f64, to: f64, found: &[u8]) -> bool {
        let wanted = self.within(from, to);
        let Some(removed) = found.first_chunk().map(|count| u64::from_le_bytes(*count)) else {
            return false;
        };
        for (key, _) in wanted.iter().take(removed as usize) {
            self.0.remove(&key[8..]);
        }
        let (removed, wanted) = (removed as usize, wanted.len());
        let is_some = removed > 0 || wanted == 0;
        is_some && removed <= wanted && found[8..] == [u8::from(removed < wanted)]
    }
}

/// True if an answer says that a key holds a collection of this kind.
pub(super) fn is_kind(answer: &Owned, kind: TreeKind) -> bool {
    matches!(answer, Owned::Failed(error) if *error == Error::CollectionKind { kind })
}
