//! Scored maps: members with a score each, found by either.
//!
//! ```text
//! by member: | 0:13 | place:51 | member |       value: | order:64 |
//! by score:  | order:64 | member |              value: | value |
//! ```
//!
//! A scored map is one map with two elements a member. Its first half is in the order of the
//! members' places, which are hash values; so a scan of it meets each member once, whatever is added
//! meanwhile. Its second half is in the order of scores, and of members where scores are equal. The
//! *order* of a score is a number that compares as the score does; that of the least score is greater
//! than any place.
//!
//! - S1: a member has one element in each half, and both have one order.
//! - S2: an operation reads the leaves of all elements that it changes for a member before it
//!   changes one of them. So it may end between two members, where an operation can be done in part.

use xxhash_rust::xxh3::xxh3_64;

use super::node::TreeKind;
use super::op::{
    TreeBound, TreeCondition, TreeScore, TreeScoreOnly, TreeScoreRange, TreeScoreRule, TreeScores,
    TreeValues, page_elements, put_found, slice_of,
};
use super::read::{Element, Start, Walk, Walked};
use super::run::{Page, TreeAnswer, TreeLimits};
use super::work::{Halt, Nodes, Sought, TreeWork};
use crate::constants::TREE_CHANGES_WHOLE;

/// Bytes before a member in the keys of its elements.
pub(crate) const ORDER_BYTES: usize = 8;
/// Bits of a member's place.
const PLACE_BITS: u32 = 51;
const SIGN: u64 = 1 << 63;

/// A number that compares as a score does. The two zeros are equal.
fn order_of(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The score of an order.
fn score_of(order: u64) -> f64 {
    f64::from_bits(if order & SIGN == 0 {
        !order
    } else {
        order ^ SIGN
    })
}

/// Where a member stands in the order of scans: never 0, which begins one.
pub(super) fn place_of(member: &[u8]) -> u64 {
    (xxh3_64(member) >> (u64::BITS - PLACE_BITS)).max(1)
}

fn write_key(order: u64, member: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&order.to_be_bytes());
    into.extend_from_slice(member);
}

fn order_in(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|order| u64::from_be_bytes(*order))
}

/// Member and score of an element that is by score, from its key.
pub(crate) fn scored_member(key: &[u8]) -> Option<(&[u8], f64)> {
    let (order, member) = key.split_first_chunk()?;
    Some((member, score_of(u64::from_be_bytes(*order))))
}

/// Member, place and score of an element that is by member.
pub(crate) fn placed_member<'a>(key: &'a [u8], value: &[u8]) -> Option<(&'a [u8], u64, f64)> {
    let (place, member) = key.split_first_chunk()?;
    let place = u64::from_be_bytes(*place);
    Some((member, place, score_of(order_in(value)?)))
}

/// Buffers for the keys of a member's elements.
#[derive(Debug, Default)]
pub(super) struct ScoredKeys {
    by_member: Vec<u8>,
    by_score: Vec<u8>,
    /// By the score that it will have.
    next: Vec<u8>,
}

/// What a change of a member's score has come to.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Scored {
    /// The rule did not hold.
    Unmet,
    /// The sum would not be a number.
    NoNumber,
    Added(f64),
    Changed(f64),
    Same(f64),
    Removed,
    /// There was none to remove.
    Absent,
}

impl<N: Nodes> TreeWork<'_, N> {
    /// Elements, or members of a scored map.
    pub(super) fn members(&self) -> u64 {
        match self.shape.kind {
            TreeKind::Scored => self.root.count / 2,
            TreeKind::Map | TreeKind::List => self.root.count,
        }
    }

    /// The rank of the first element that ranks count from: elements by member are before those by
    /// score.
    pub(super) fn first_rank(&self) -> u64 {
        self.root.count - self.members()
    }

    /// Runs a part of an operation with the buffers for keys.
    fn with_keys<T>(
        &mut self,
        run: impl FnOnce(&mut Self, &mut ScoredKeys) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        let mut keys = std::mem::take(&mut self.scratch.scored);
        let result = run(self, &mut keys);
        self.scratch.scored = keys;
        result
    }

    /// The order that a member has, by the key of its element.
    fn order_at(&mut self, by_member: &[u8]) -> Result<Option<u64>, Halt> {
        self.with_path(|work, path| {
            let Some(place) = work.find_key(path, Sought::Key(by_member))? else {
                return Ok(None);
            };
            let (_, value) = work.element_of(&place, place.entry)?;
            let order = order_in(work.value_bytes(value)?);
            order.map(Some).ok_or(Halt::Damaged(place.leaf))
        })
    }

    /// Has the leaf of a key read, so that a change of it does not stop there.
    fn read_leaf_of(&mut self, key: &[u8]) -> Result<(), Halt> {
        if self.root.height == 0 {
            return Ok(());
        }
        self.with_path(|work, path| work.find(path, Sought::Key(key)).map(|_| ()))
    }

    /// True if the element of a key has this value.
    fn has_value(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Halt> {
        self.with_path(|work, path| {
            let Some(place) = work.find_key(path, Sought::Key(key))? else {
                return Ok(false);
            };
            let (_, stored) = work.element_of(&place, place.entry)?;
            Ok(stored.len() == value.len() && work.value_bytes(stored)? == value)
        })
    }

    /// Removes one of a member's elements, which S1 says is there.
    fn remove_half(&mut self, key: &[u8]) -> Result<(), Halt> {
        if self.remove_key(key)? {
            Ok(())
        } else {
            Err(Halt::Damaged(self.root.node))
        }
    }

    /// Changes the score of one member. `begun` is set once something has changed.
    fn put_score(
        &mut self,
        change: TreeScore<'_>,
        rule: TreeScoreRule,
        keys: &mut ScoredKeys,
        begun: &mut bool,
    ) -> Result<Scored, Halt> {
        let TreeScore {
            member,
            score,
            value,
        } = change;
        write_key(place_of(member), member, &mut keys.by_member);
        let before = self.order_at(&keys.by_member)?;
        if let Some(order) = before {
            write_key(order, member, &mut keys.by_score);
            self.read_leaf_of(&keys.by_score)?;
        }
        let Some(score) = score else {
            if before.is_none() {
                return Ok(Scored::Absent);
            }
            *begun = true;
            self.remove_half(&keys.by_score)?;
            self.remove_half(&keys.by_member)?;
            return Ok(Scored::Removed);
        };
        let is_unmet = match rule.condition {
            TreeCondition::Always => false,
            TreeCondition::IfAbsent => before.is_some(),
            TreeCondition::IfPresent => before.is_none(),
        };
        if is_unmet {
            return Ok(Scored::Unmet);
        }
        let score = match before {
            Some(order) if rule.adds => score_of(order) + score,
            _ => score,
        };
        if score.is_nan() {
            return Ok(Scored::NoNumber);
        }
        let order = order_of(score);
        let is_unmet = before.is_some_and(|before| match rule.only {
            TreeScoreOnly::Any => false,
            TreeScoreOnly::Greater => order <= before,
            TreeScoreOnly::Less => order >= before,
        });
        if is_unmet {
            return Ok(Scored::Unmet);
        }
        if before == Some(order) && self.has_value(&keys.by_score, value)? {
            return Ok(Scored::Same(score));
        }
        write_key(order, member, &mut keys.next);
        self.read_leaf_of(&keys.next)?;
        *begun = true;
        let is_new = self.put_key(&keys.next, value)?;
        if is_new != (before != Some(order)) {
            return Err(Halt::Damaged(self.root.node));
        }
        if before == Some(order) {
            return Ok(Scored::Same(score));
        }
        if before.is_some() {
            self.remove_half(&keys.by_score)?;
        }
        let is_new = self.put_key(&keys.by_member, &order.to_be_bytes())?;
        if is_new != before.is_none() {
            return Err(Halt::Damaged(self.root.node));
        }
        Ok(match before {
            None => Scored::Added(score),
            Some(_) => Scored::Changed(score),
        })
    }

    /// Answers how many members were added, changed and removed, how many changes were made, how
    /// many members there are then, what became of the last one and its score.
    pub(super) fn score(
        &mut self,
        changes: TreeScores<'_>,
        rule: TreeScoreRule,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        self.refrain();
        let (mut added, mut changed, mut removed, mut done) = (0u64, 0u64, 0u64, 0u64);
        let mut last = (0u64, 0f64);
        let made = self.with_keys(|work, keys| {
            let all = changes.for_each(|change| {
                let is_enough = work.is_spent(limits) || done >= limits.elements;
                if is_enough && done >= TREE_CHANGES_WHOLE as u64 {
                    return Ok(false);
                }
                let mut begun = false;
                let scored = match work.put_score(change, rule, keys, &mut begun) {
                    Ok(scored) => scored,
                    Err(halt) if !begun && work.ends_between(halt, done) => return Ok(false),
                    Err(halt) => return Err(halt),
                };
                last = match scored {
                    Scored::Unmet | Scored::Absent | Scored::Removed => (0, 0.0),
                    Scored::NoNumber => (2, 0.0),
                    Scored::Added(score) | Scored::Changed(score) | Scored::Same(score) => {
                        (1, score)
                    }
                };
                match scored {
                    Scored::Added(_) => added += 1,
                    Scored::Changed(_) => changed += 1,
                    Scored::Removed => removed += 1,
                    _ => {}
                }
                done += 1;
                Ok(true)
            });
            debug_assert!(all.is_some(), "it was decoded");
            all.unwrap_or(Ok(()))
        });
        made?;
        let (made, score) = last;
        let members = self.members();
        for number in [
            added,
            changed,
            removed,
            done,
            members,
            made,
            score.to_bits(),
        ] {
            out.extend(number.to_le_bytes());
        }
        Ok(TreeAnswer::Value)
    }

    /// True if an operation that may be done in part ends between two members.
    fn ends_between(&self, halt: Halt, done: u64) -> bool {
        let edits = self.scratch.edits().len();
        done >= TREE_CHANGES_WHOLE as u64 && self.ends_before(halt, edits)
    }

    /// Answers the scores of members, as the values of keys are answered.
    pub(super) fn scores_of(
        &mut self,
        members: TreeValues<'_>,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let mut done = 0u64;
        let all = self.with_keys(|work, keys| {
            let all = members.for_each(|member| {
                // `Err` ends the walk; the halt, if there is one, is in it.
                write_key(place_of(member), member, &mut keys.by_member);
                match work.order_at(&keys.by_member) {
                    Ok(order) => {
                        let score = order.map(|order| score_of(order).to_le_bytes());
                        put_found(out, score.as_ref().map(|score| &score[..]));
                    }
                    Err(halt) if done > 0 && work.ends_before(halt, 0) => return Err(None),
                    Err(halt) => return Err(Some(halt)),
                }
                done += 1;
                let goes_on = done < limits.elements && out.len() < limits.page_bytes;
                if goes_on { Ok(()) } else { Err(None) }
            });
            match all {
                Some(Err(Some(halt))) => Err(halt),
                _ => Ok(()),
            }
        });
        all.map(|()| TreeAnswer::Value)
    }

    /// Answers the score of a member, and its value behind it.
    pub(super) fn scored_value(
        &mut self,
        member: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        self.with_keys(|work, keys| {
            write_key(place_of(member), member, &mut keys.by_member);
            let Some(order) = work.order_at(&keys.by_member)? else {
                return Ok(TreeAnswer::Absent);
            };
            out.extend(score_of(order).to_le_bytes());
            write_key(order, member, &mut keys.by_score);
            work.with_path(|work, path| {
                let place = work.find(path, Sought::Key(&keys.by_score))?;
                let (_, value) = work.element_of(&place, place.entry)?;
                let value = work.value_bytes(value)?;
                let is_there = place.is_found;
                is_there
                    .then(|| out.extend_from_slice(value))
                    .ok_or(Halt::Damaged(place.leaf))
            })?;
            Ok(TreeAnswer::Value)
        })
    }

    /// Answers how many members are before one, or behind it, and its score.
    pub(super) fn score_rank(
        &mut self,
        member: &[u8],
        reverse: bool,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let found = self.with_keys(|work, keys| {
            write_key(place_of(member), member, &mut keys.by_member);
            let Some(order) = work.order_at(&keys.by_member)? else {
                return Ok(None);
            };
            write_key(order, member, &mut keys.by_score);
            let rank = work.with_path(|work, path| {
                let place = work.find(path, Sought::RankOf(&keys.by_score))?;
                let rank = place.before + place.entry as u64;
                let is_there = place.is_found && rank >= work.first_rank();
                is_there.then_some(rank).ok_or(Halt::Damaged(place.leaf))
            })?;
            Ok(Some((rank, order)))
        })?;
        let Some((rank, order)) = found else {
            return Ok(TreeAnswer::Absent);
        };
        let rank = match reverse {
            false => rank - self.first_rank(),
            true => self.root.count - 1 - rank,
        };
        out.extend(rank.to_le_bytes());
        out.extend(score_of(order).to_le_bytes());
        Ok(TreeAnswer::Value)
    }

    /// The ranks of a range, counted in the whole map, the end not included.
    fn ranks_in(&mut self, range: TreeScoreRange<'_>) -> Result<std::ops::Range<u64>, Halt> {
        let first = self.first_rank();
        let ranks = match range {
            TreeScoreRange::Ranks { first: from, last } => {
                let ranks = slice_of(from, last, self.members());
                first + ranks.start..first + ranks.end
            }
            TreeScoreRange::Scores { from, to } => {
                let after = |order: u64| order.saturating_add(1).to_be_bytes();
                let (from, from_beyond) = from.score();
                let (to, to_beyond) = to.score();
                let (from, to) = (order_of(from), order_of(to));
                let start = if from_beyond {
                    after(from)
                } else {
                    from.to_be_bytes()
                };
                let end = if to_beyond {
                    to.to_be_bytes()
                } else {
                    after(to)
                };
                self.count_before(&start, false)?..self.count_before(&end, false)?
            }
            TreeScoreRange::Members { from, to } => self.ranks_of_members(from, to)?,
        };
        Ok(ranks.start.max(first)..ranks.end.max(first).max(ranks.start))
    }

    /// The ranks of members from one to another, where all have one score.
    fn ranks_of_members(
        &mut self,
        from: TreeBound<'_>,
        to: TreeBound<'_>,
    ) -> Result<std::ops::Range<u64>, Halt> {
        let first = self.first_rank();
        if self.root.height == 0 {
            return Ok(0..0);
        }
        self.with_keys(|work, keys| {
            let order = work.with_path(|work, path| {
                let place = work.find(path, Sought::Rank(first))?;
                let (key, _) = work.element_of(&place, place.entry)?;
                order_in(key).ok_or(Halt::Damaged(place.leaf))
            })?;
            let mut before = |bound: TreeBound<'_>, unbounded: u64, is_end: bool| {
                let (member, or_equal) = match bound {
                    TreeBound::Unbounded => return Ok(unbounded),
                    TreeBound::Included(member) => (member, is_end),
                    TreeBound::Excluded(member) => (member, !is_end),
                };
                write_key(order, member, &mut keys.by_score);
                work.count_before(&keys.by_score, or_equal)
            };
            let count = first * 2;
            Ok(before(from, first, false)?..before(to, count, true)?)
        })
    }

    /// Answers how many members are in a range.
    pub(super) fn score_count(
        &mut self,
        range: TreeScoreRange<'_>,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let ranks = self.ranks_in(range)?;
        out.extend((ranks.end - ranks.start).to_le_bytes());
        Ok(TreeAnswer::Value)
    }

    /// Answers a page of the members of a range, without some of them in the direction of the page.
    pub(super) fn score_range(
        &mut self,
        range: TreeScoreRange<'_>,
        (reverse, skip): (bool, u64),
        (limit, limits): (u32, TreeLimits),
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let ranks = self.ranks_in(range)?;
        let wanted = match reverse {
            false => ranks.start.saturating_add(skip).min(ranks.end)..ranks.end,
            true => ranks.start..ranks.end.saturating_sub(skip).max(ranks.start),
        };
        self.page_of_ranks(wanted, reverse, (limit, limits), out)
    }

    /// Answers a page of the members from a place on, in the order of places.
    pub(super) fn score_scan(
        &mut self,
        from: u64,
        (limit, limits): (u32, TreeLimits),
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        out.push(0);
        let end = 1u64 << PLACE_BITS;
        let start = from.min(end).to_be_bytes();
        let mut page = Page {
            out,
            bytes_max: limits.page_bytes,
            left: limit,
        };
        let mut is_full = false;
        let walked = self.with_path(|work, path| {
            let work = &*work;
            let is_wanted = |key: &[u8]| order_in(key).is_some_and(|place| place < end);
            let bounds = (false, limits.leaves);
            work.walk(path, Start::From(&start), bounds, is_wanted, |element| {
                let Element { key, value } = element;
                if !page.has_room(key, value.len()) {
                    is_full = true;
                    return Ok(Walk::Before);
                }
                page.add(key, work.value_bytes(value)?);
                Ok(Walk::On)
            })
        })?;
        out[0] = u8::from(limit > 0 && (is_full || walked == Walked::More));
        Ok(TreeAnswer::Value)
    }

    /// Removes the member at a rank, counted in the whole map. False if a page has no room for it.
    fn take_rank(
        &mut self,
        rank: u64,
        page: Option<&mut Page<'_>>,
        begun: &mut bool,
    ) -> Result<bool, Halt> {
        self.with_keys(|work, keys| {
            let ScoredKeys {
                by_member,
                by_score,
                ..
            } = keys;
            let is_taken = work.with_path(|work, path| {
                let place = work.find(path, Sought::Rank(rank))?;
                let (key, value) = work.element_of(&place, place.entry)?;
                let (member, _) = scored_member(key).ok_or(Halt::Damaged(place.leaf))?;
                write_key(place_of(member), member, by_member);
                by_score.clear();
                by_score.extend_from_slice(key);
                let Some(page) = page else {
                    return Ok(true);
                };
                if !page.has_room(key, value.len()) {
                    return Ok(false);
                }
                // All that may stop comes before the page has it.
                let value = work.value_bytes(value)?;
                if !work.find(path, Sought::Key(by_member))?.is_found {
                    return Err(Halt::Damaged(place.leaf));
                }
                page.add(key, value);
                Ok(true)
            })?;
            if is_taken {
                work.read_leaf_of(by_member)?;
                *begun = true;
                work.remove_half(by_score)?;
                work.remove_half(by_member)?;
            }
            Ok(is_taken)
        })
    }

    /// Removes members at an end and answers them as a page.
    pub(super) fn pop_scored(
        &mut self,
        last: bool,
        (limit, limits): (u32, TreeLimits),
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        self.refrain();
        out.push(0);
        let mut page = Page {
            out,
            bytes_max: limits.page_bytes,
            left: limit,
        };
        let mut done = 0u64;
        while page.left > 0 && self.root.height > 0 && !(done > 0 && self.is_spent(limits)) {
            let rank = if last {
                self.root.count - 1
            } else {
                self.first_rank()
            };
            let mut begun = false;
            match self.take_rank(rank, Some(&mut page), &mut begun) {
                Ok(true) => done += 1,
                Ok(false) => break,
                Err(halt) if !begun && done > 0 && self.may_end(halt) => break,
                Err(halt) => return Err(halt),
            }
        }
        out[0] = u8::from(self.root.height > 0);
        Ok(TreeAnswer::Value)
    }

    fn may_end(&self, halt: Halt) -> bool {
        self.ends_before(halt, self.scratch.edits().len())
    }

    /// Removes members from one rank to before another, counted among members, as many as one step
    /// can, the last ones first if it is said so; returns how many.
    pub(super) fn remove_scored(
        &mut self,
        ranks: std::ops::Range<u64>,
        from_end: bool,
        limits: TreeLimits,
    ) -> Result<u64, Halt> {
        self.refrain();
        let end = ranks.end.min(self.members());
        let wanted = end.saturating_sub(ranks.start);
        let mut done = 0;
        while done < wanted && !(done > 0 && self.is_spent(limits)) {
            let mut begun = false;
            let rank = if from_end {
                end - 1 - done
            } else {
                ranks.start
            };
            match self.take_rank(self.first_rank() + rank, None, &mut begun) {
                Ok(_) => done += 1,
                Err(halt) if !begun && done > 0 && self.may_end(halt) => break,
                Err(halt) => return Err(halt),
            }
        }
        Ok(done)
    }

    /// Answers how many members of a range were removed, and whether there are more to remove.
    pub(super) fn score_remove(
        &mut self,
        range: TreeScoreRange<'_>,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let first = self.first_rank();
        let ranks = self.ranks_in(range)?;
        let wanted = ranks.end - ranks.start;
        let removed = self.remove_scored(ranks.start - first..ranks.end - first, false, limits)?;
        out.extend(removed.to_le_bytes());
        out.push(u8::from(removed < wanted));
        Ok(TreeAnswer::Value)
    }

    /// Removes the member of a rank, and answers it as a page, which says whether there are others.
    pub(super) fn take_scored(&mut self, rank: u64, out: &mut Vec<u8>) -> Result<TreeAnswer, Halt> {
        self.refrain();
        out.push(0);
        let mut page = Page {
            out,
            bytes_max: 0,
            left: 1,
        };
        self.take_rank(self.first_rank() + rank, Some(&mut page), &mut false)?;
        out[0] = u8::from(self.root.count > 0);
        Ok(TreeAnswer::Value)
    }
}

/// The elements of a page of a scored map that is in the order of scores: member, score and value.
pub(crate) fn scored_elements(page: &[u8]) -> impl Iterator<Item = (&[u8], f64, &[u8])> {
    page_elements(page).filter_map(|(key, value)| {
        let (member, score) = scored_member(key)?;
        Some((member, score, value))
    })
}

/// The elements of a page of a scored map that is in the order of places: member, place and score.
pub(crate) fn placed_elements(page: &[u8]) -> impl Iterator<Item = (&[u8], u64, f64)> {
    page_elements(page).filter_map(|(key, value)| placed_member(key, value))
}
