//! Scored maps: members with a score each, found by either.
//!
//! ```text
//! by member: | 0:13 | place:51 | member |       value: | order:64 |
//! by score:  | order:64 | member |              value: | value |
//! ```
//!
//! A scored map is one map with two elements a member. Its first half is in the order of the
//! members' places, which are hash values; so a scan of it meets each member once, whatever is
//! added meanwhile. Its second half is in the order of scores, and of members where scores are
//! equal. The *order* of a score is a number that compares as the score does; that of the least
//! score is greater than any place.
//!
//! - S1: a member has one element in each half, and both have one order.
//! - S2: an operation reads the leaves of all elements that it changes for a member before it
//!   changes one of them. So it may end between two members, where an operation can be done in
//!   part.

use super::op::{
    TreeBound, TreeCondition, TreeScore, TreeScoreOnly, TreeScoreRange, TreeScoreRule, TreeScores,
    TreeValues, page_elements, put_element, put_found, slice_of,
};
use super::read::Start;
use super::run::{Page, TreeAnswer, TreeLimits};
use super::scored_keys::{
    Half, PLACE_BITS, ScoredHalf, ScoredKeys, member_key, order_in, order_of, place_of,
    placed_member, score_of, scored_member, write_key,
};
use super::work::{Halt, LeafPlace, Nodes, Sought, TreeTouch, TreeWork};
use crate::collection::TreeKind;
use crate::constants::{NOTED_BYTES, TREE_CHANGES_WHOLE};

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

/// The score that a change gives a member which had this order, or none; `Err` if it gives none.
fn score_after(before: Option<u64>, score: f64, rule: TreeScoreRule) -> Result<f64, Scored> {
    let is_unmet = match rule.condition {
        TreeCondition::Always => false,
        TreeCondition::IfAbsent => before.is_some(),
        TreeCondition::IfPresent => before.is_none(),
    };
    if is_unmet {
        return Err(Scored::Unmet);
    }
    let score = match before {
        Some(order) if rule.adds => score_of(order) + score,
        _ => score,
    };
    if score.is_nan() {
        return Err(Scored::NoNumber);
    }
    let order = order_of(score);
    let is_unmet = before.is_some_and(|before| match rule.only {
        TreeScoreOnly::Any => false,
        TreeScoreOnly::Greater => order <= before,
        TreeScoreOnly::Less => order >= before,
    });
    if is_unmet {
        return Err(Scored::Unmet);
    }
    Ok(score)
}

impl<'s, N: Nodes> TreeWork<'s, N> {
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

    /// Finds where the element of a member is or would be, if the map has a leaf, and notes the
    /// way; and the order that the member has.
    fn find_member(
        &mut self,
        member: &[u8],
        half: &mut Half,
    ) -> Result<(Option<LeafPlace<'s>>, Option<u64>), Halt> {
        let key = member_key(member, &mut half.key);
        if self.root.height == 0 {
            return Ok((None, None));
        }
        let place = self.find_first(&mut half.way, key)?;
        if !place.is_found {
            return Ok((Some(place), None));
        }
        let (_, value) = self.element_of(&place, place.entry)?;
        let order = order_in(self.value_bytes(value)?);
        let order = order.ok_or(Halt::Damaged(place.leaf))?;
        Ok((Some(place), Some(order)))
    }

    /// The order that a member has.
    fn order_at(&mut self, member: &[u8], half: &mut Half) -> Result<Option<u64>, Halt> {
        self.find_member(member, half).map(|(_, order)| order)
    }

    /// Finds where an element is or would be, if the map has a leaf, and notes the way. S1 says
    /// whether it is there.
    fn find_half(&self, half: &mut Half, is_there: bool) -> Result<Option<LeafPlace<'s>>, Halt> {
        if self.root.height == 0 {
            return Ok(None);
        }
        let place = self.find(&mut half.way, Sought::Key(&half.key))?;
        let is_so = place.is_found == is_there;
        is_so
            .then_some(Some(place))
            .ok_or(Halt::Damaged(place.leaf))
    }

    /// Removes one of a member's elements, which S1 says is there.
    fn remove_half(&mut self, key: &[u8]) -> Result<(), Halt> {
        if self.remove_key(key)? {
            Ok(())
        } else {
            Err(Halt::Damaged(self.root.node))
        }
    }

    /// Gives the element of a member that is by score another value, if it has not this one.
    fn put_value(
        &mut self,
        keys: &ScoredKeys,
        place: LeafPlace<'s>,
        value: &[u8],
        begun: &mut bool,
    ) -> Result<(), Halt> {
        let (_, stored) = self.element_of(&place, place.entry)?;
        if stored.len() == value.len() && self.value_bytes(stored)? == value {
            return Ok(());
        }
        let touch = (ScoredHalf::ByScore, Some(place), TreeTouch::Replace);
        if !self.touch_halves(keys, [touch], value.len())? {
            self.refrain();
            *begun = true;
            self.put_key(&keys.by_score.key, value)?;
        }
        Ok(())
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
        let (place, before) = self.find_member(member, &mut keys.by_member)?;
        let score = match score.map(|score| score_after(before, score, rule)) {
            None if before.is_none() => return Ok(Scored::Absent),
            None => None,
            Some(Err(unmet)) => return Ok(unmet),
            Some(Ok(score)) => Some(score),
        };
        let order = score.map(order_of);
        // S2.
        let mut old = None;
        if let Some(before) = before {
            write_key(before, member, &mut keys.by_score.key);
            old = self.find_half(&mut keys.by_score, true)?;
        }
        if let (None, Some(old)) = (score, &old) {
            self.note_removed(old, member)?;
        }
        if let (Some(score), Some(old), true) = (score, old, before == order) {
            self.put_value(keys, old, value, begun)?;
            return Ok(Scored::Same(score));
        }
        let mut new = None;
        if let Some(order) = order {
            write_key(order, member, &mut keys.next.key);
            new = self.find_half(&mut keys.next, false)?;
            keys.order = order.to_be_bytes();
        }
        let (touch, scored) = match (before, score) {
            (None, Some(score)) => (TreeTouch::Insert, Scored::Added(score)),
            (_, Some(score)) => (TreeTouch::Replace, Scored::Changed(score)),
            (_, None) => (TreeTouch::Remove, Scored::Removed),
        };
        let touches = [
            (ScoredHalf::ByMember, place, touch),
            (ScoredHalf::ByScore, old, TreeTouch::Remove),
            (ScoredHalf::Next, new, TreeTouch::Insert),
        ];
        if !self.touch_halves(keys, touches, value.len())? {
            *begun = true;
            self.put_halves(keys, (before, order), value)?;
        }
        Ok(scored)
    }

    /// Changes all elements of a member that had an order, or none, and has another one then, or
    /// none.
    fn put_halves(
        &mut self,
        keys: &ScoredKeys,
        (before, order): (Option<u64>, Option<u64>),
        value: &[u8],
    ) -> Result<(), Halt> {
        self.refrain();
        let mut is_so = true;
        if order.is_some() {
            is_so &= self.put_key(&keys.next.key, value)?;
        }
        if before.is_some() {
            self.remove_half(&keys.by_score.key)?;
        }
        if order.is_some() {
            is_so &= self.put_key(&keys.by_member.key, &keys.order)? == before.is_none();
        } else {
            self.remove_half(&keys.by_member.key)?;
        }
        is_so.then_some(()).ok_or(Halt::Damaged(self.root.node))
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
        if changes.single().is_none() {
            self.refrain();
        }
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
                match work.order_at(member, &mut keys.by_member) {
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
            let Some(order) = work.order_at(member, &mut keys.by_member)? else {
                return Ok(TreeAnswer::Absent);
            };
            out.extend(score_of(order).to_le_bytes());
            write_key(order, member, &mut keys.by_score.key);
            if let Some(place) = work.find_half(&mut keys.by_score, true)? {
                let (_, value) = work.element_of(&place, place.entry)?;
                out.extend_from_slice(work.value_bytes(value)?);
            }
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
            let Some(order) = work.order_at(member, &mut keys.by_member)? else {
                return Ok(None);
            };
            let ScoredKeys { by_score, .. } = keys;
            write_key(order, member, &mut by_score.key);
            let place = work.find(&mut by_score.way, Sought::RankOf(&by_score.key))?;
            let rank = place.before + place.entry as u64;
            let is_there = place.is_found && rank >= work.first_rank();
            let rank = is_there.then_some(rank).ok_or(Halt::Damaged(place.leaf))?;
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
                write_key(order, member, &mut keys.by_score.key);
                work.count_before(&keys.by_score.key, or_equal)
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
        let end = 1u64 << PLACE_BITS;
        let start = from.min(end).to_be_bytes();
        let is_placed = |key: &[u8]| order_in(key).is_some_and(|place| place < end);
        self.page(Start::From(&start), false, (limit, limits), is_placed, out)
    }

    /// Removes the member at a rank, counted in the whole map. False if a page has no room for it.
    fn take_rank(
        &mut self,
        rank: u64,
        page: Option<&mut Page<'_>>,
        begun: &mut bool,
    ) -> Result<bool, Halt> {
        self.with_keys(|work, keys| {
            let by_score = &mut keys.by_score;
            let old = work.find(&mut by_score.way, Sought::Rank(rank))?;
            let (key, value) = work.element_of(&old, old.entry)?;
            by_score.key.clear();
            by_score.key.extend_from_slice(key);
            let (member, _) = scored_member(key).ok_or(Halt::Damaged(old.leaf))?;
            write_key(place_of(member), member, &mut keys.by_member.key);
            if page
                .as_ref()
                .is_some_and(|page| !page.has_room(key, value.len()))
            {
                return Ok(false);
            }
            // All that may stop comes before the page has it.
            let value = work.value_bytes(value)?;
            let place = work.find_half(&mut keys.by_member, true)?;
            match page {
                Some(page) => page.add(key, value),
                None if work.scratch.notes.is_on && value.len() > NOTED_BYTES => {
                    let (member, value) = (member.to_vec(), value.to_vec());
                    put_element(&mut work.scratch.notes.removed, (&member, &value));
                }
                None => {}
            }
            let touches = [
                (ScoredHalf::ByMember, place, TreeTouch::Remove),
                (ScoredHalf::ByScore, Some(old), TreeTouch::Remove),
            ];
            if !work.touch_halves(keys, touches, 0)? {
                work.refrain();
                *begun = true;
                work.remove_half(&keys.by_score.key)?;
                work.remove_half(&keys.by_member.key)?;
            }
            Ok(true)
        })
    }

    /// Removes members at an end and answers them as a page.
    pub(super) fn pop_scored(
        &mut self,
        last: bool,
        (limit, limits): (u32, TreeLimits),
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        if limit > 1 {
            self.refrain();
        }
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
        let end = ranks.end.min(self.members());
        let wanted = end.saturating_sub(ranks.start);
        if wanted > 1 {
            self.refrain();
        }
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
        let rank = ranks.start - first;
        self.scratch.notes.beside.extend(rank.to_le_bytes());
        Ok(TreeAnswer::Value)
    }

    /// Removes the member of a rank, and answers it as a page, which says whether there are others.
    pub(super) fn take_scored(&mut self, rank: u64, out: &mut Vec<u8>) -> Result<TreeAnswer, Halt> {
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
