//! What each operation on a tree does.

use super::op::{
    PAGE_ELEMENT, PAGE_HEAD, TreeBound, TreeChanges, TreeCondition, TreeOp, TreeValues,
    page_elements, put_element, put_found, slice_of,
};
use super::path::PathStep;
use super::read::{Element, Start, Walk, Walked};
use super::work::{Edited, Halt, LeafPlace, Nodes, Sought, TreeTouch, TreeWork};
use crate::collection::TreeKind;
use crate::constants::{NOTED_BYTES, TREE_CHANGES_WHOLE};

/// What an operation answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TreeAnswer {
    /// The bytes that were written.
    Value,
    /// The element is not there.
    Absent,
    /// The element is not as it must be, and nothing changes.
    Refused,
}

/// Bounds of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeLimits {
    /// Bytes of a page, unless its first element alone is longer.
    pub(crate) page_bytes: usize,
    /// Leaves that a read visits, at most.
    pub(crate) leaves: usize,
    /// Nodes that are changed, at most, where an operation may be done in part.
    pub(crate) edits: usize,
    /// Elements that are changed or looked up, at most, where an operation may be done in part.
    pub(crate) elements: u64,
    /// Bytes of a value, at most.
    pub(crate) value_bytes: usize,
}

/// A page under construction.
pub(super) struct Page<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) bytes_max: usize,
    pub(super) left: u32,
}

impl Page<'_> {
    /// True if another element has its place here.
    pub(super) fn has_room(&self, key: &[u8], value_bytes: usize) -> bool {
        let bytes = self.out.len() + PAGE_ELEMENT + key.len() + value_bytes;
        self.left > 0 && (bytes <= self.bytes_max || self.out.len() == PAGE_HEAD)
    }

    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.out.extend(length(key).to_le_bytes());
        self.out.extend(length(value).to_le_bytes());
        self.out.extend_from_slice(key);
        self.out.extend_from_slice(value);
        self.left -= 1;
    }
}

impl<'s, N: Nodes> TreeWork<'s, N> {
    /// Carries an operation out on copies, and writes its answer. [`TreeScratch::edits`] has what
    /// changes.
    ///
    /// # Errors
    /// [`Halt`]; then nothing is to be changed.
    ///
    /// [`TreeScratch::edits`]: super::TreeScratch::edits
    #[expect(clippy::too_many_lines, reason = "one arm per operation")]
    pub(crate) fn run(
        &mut self,
        op: &TreeOp<'_>,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        out.clear();
        match *op {
            TreeOp::Len => {
                out.extend(self.members().to_le_bytes());
                out.extend(self.root.bytes.to_le_bytes());
                Ok(TreeAnswer::Value)
            }
            TreeOp::RangeByRank {
                start,
                end,
                reverse,
                limit,
            } => self.range_by_rank(start..end, reverse, (limit, limits), out),
            TreeOp::Pop { last, limit } if self.shape.kind == TreeKind::Scored => {
                self.pop_scored(last, (limit, limits), out)
            }
            TreeOp::Pop { last, limit } => self.pop(last, (limit, limits), out),
            TreeOp::RemoveByRank { start, end } => self.remove_ranks(start, end, limits, out),
            TreeOp::Get { key } => self.get(key, out),
            TreeOp::Insert {
                key,
                value,
                condition,
            } => self.insert(key, value, condition, out),
            TreeOp::Remove { key } => self.remove(key, out),
            TreeOp::CompareAndSet {
                key,
                expected,
                value,
            } => self.compare_and_set(key, expected, value, out),
            TreeOp::Rank { key } => self.rank(key, out),
            TreeOp::Count { from, to } => self.count(from, to, out),
            TreeOp::Range {
                from,
                to,
                reverse,
                limit,
            } => self.range((from, to), reverse, (limit, limits), out),
            TreeOp::Push { exists: true, .. } if self.root.count == 0 => Ok(TreeAnswer::Absent),
            TreeOp::Push { front, values, .. } => self.push(front, values, out),
            TreeOp::InsertAt { rank, value } => self.insert_at_rank(rank, value, out),
            TreeOp::SetAt { rank, value } => match self.rank_of(rank) {
                Some(rank) => self.set_at_rank(rank, value, out),
                None => Ok(TreeAnswer::Absent),
            },
            TreeOp::Update { changes, .. } => self.update(changes, limits, out),
            TreeOp::GetMany { keys } => self.get_many(keys, limits, out),
            TreeOp::TakeAt { rank } => match self.rank_of(rank) {
                Some(rank) => self.take_at(rank, true, out),
                None => Ok(TreeAnswer::Absent),
            },
            TreeOp::Rotate { .. } if self.root.count == 0 => Ok(TreeAnswer::Absent),
            TreeOp::Rotate { last } => self.rotate(last, limits, out),
            TreeOp::Draw { random, removes } => {
                let rank = (u128::from(random) * u128::from(self.members())) >> u64::BITS;
                match u64::try_from(rank) {
                    Ok(rank) if self.root.count > 0 => self.take_at(rank, removes, out),
                    _ => Ok(TreeAnswer::Absent),
                }
            }
            TreeOp::Slice { first, last, limit } => {
                let ranks = slice_of(first, last, self.members());
                self.range_by_rank(ranks, false, (limit, limits), out)
            }
            TreeOp::Trim { first, last } => self.trim(first, last, limits, out),
            TreeOp::Score { changes, rule, .. } => self.score(changes, rule, limits, out),
            TreeOp::ScoreOf { members } => self.scores_of(members, limits, out),
            TreeOp::ScoredValue { member } => self.scored_value(member, out),
            TreeOp::ScoreRank { member, reverse } => self.score_rank(member, reverse, out),
            TreeOp::ScoreCount { range } => self.score_count(range, out),
            TreeOp::ScoreRange {
                range,
                reverse,
                skip,
                limit,
            } => self.score_range(range, (reverse, skip), (limit, limits), out),
            TreeOp::ScoreScan { from, limit } => self.score_scan(from, (limit, limits), out),
            TreeOp::ScoreRemove { range } => self.score_remove(range, limits, out),
            // `TreeWork::run_with` runs programs.
            TreeOp::Run { .. } => Ok(TreeAnswer::Refused),
        }
    }

    pub(super) fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<TreeAnswer, Halt> {
        self.with_path(|work, path| {
            let Some(place) = work.find_key(path, Sought::Key(key))? else {
                return Ok(TreeAnswer::Absent);
            };
            let (_, value) = work.element_of(&place, place.entry)?;
            out.extend_from_slice(work.value_bytes(value)?);
            Ok(TreeAnswer::Value)
        })
    }

    /// Answers whether there was a value before, and which.
    fn insert(
        &mut self,
        key: &[u8],
        value: &[u8],
        condition: TreeCondition,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        self.with_path(|work, path| {
            if work.root.height == 0 {
                if condition == TreeCondition::IfPresent {
                    return Ok(TreeAnswer::Refused);
                }
                out.push(0);
                return work.plant(key, value).map(|()| TreeAnswer::Value);
            }
            let place = work.find(path, Sought::Key(key))?;
            let is_refused = match condition {
                TreeCondition::Always => false,
                TreeCondition::IfAbsent => place.is_found,
                TreeCondition::IfPresent => !place.is_found,
            };
            if is_refused {
                return Ok(TreeAnswer::Refused);
            }
            out.push(u8::from(place.is_found));
            if place.is_found {
                let (_, old) = work.element_of(&place, place.entry)?;
                out.extend_from_slice(work.value_bytes(old)?);
            }
            work.put_at(path, place, key, value)?;
            Ok(TreeAnswer::Value)
        })
    }

    /// Stores the value of a key at the place where it was looked for.
    fn put_at(
        &mut self,
        path: &[PathStep],
        place: LeafPlace<'s>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Halt> {
        if !place.is_found {
            if !self.touch(path, place, TreeTouch::Insert, (key, value))? {
                self.insert_at(path, place, key, value)?;
            }
        } else if !self.touch(path, place, TreeTouch::Replace, (key, value))? {
            self.replace_at(path, place, value)?;
        }
        Ok(())
    }

    /// Stores the value of a key; true if the key is new.
    pub(super) fn put_key(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Halt> {
        self.with_path(|work, path| {
            if work.root.height == 0 {
                return work.plant(key, value).map(|()| true);
            }
            let place = work.find(path, Sought::Key(key))?;
            // A member of a set that is there already: it is no change, so the version stays.
            let is_same = place.is_found
                && value.is_empty()
                && work.element_of(&place, place.entry)?.1.len() == 0;
            if !is_same {
                work.put_at(path, place, key, value)?;
            }
            Ok(!place.is_found)
        })
    }

    /// Notes, for a feed, an element that is about to be removed, if its value is long.
    pub(super) fn note_removed(&mut self, place: &LeafPlace<'s>, key: &[u8]) -> Result<(), Halt> {
        if !self.scratch.notes.is_on {
            return Ok(());
        }
        let (_, value) = self.element_of(place, place.entry)?;
        if value.len() > NOTED_BYTES {
            let value = self.value_bytes(value)?.to_vec();
            put_element(&mut self.scratch.notes.removed, (key, &value));
        }
        Ok(())
    }

    /// As [`TreeWork::remove_key`], and notes it.
    fn remove_noted(&mut self, key: &[u8]) -> Result<bool, Halt> {
        if self.scratch.notes.is_on {
            self.with_path(|work, path| match work.find_key(path, Sought::Key(key))? {
                Some(place) => work.note_removed(&place, key),
                None => Ok(()),
            })?;
        }
        self.remove_key(key)
    }

    /// Removes a key; true if it was there.
    pub(super) fn remove_key(&mut self, key: &[u8]) -> Result<bool, Halt> {
        self.with_path(|work, path| {
            let Some(place) = work.find_key(path, Sought::Key(key))? else {
                return Ok(false);
            };
            if !work.touch(path, place, TreeTouch::Remove, (key, &[]))? {
                work.remove_at(path, place, 1)?;
            }
            Ok(true)
        })
    }

    /// Answers how many keys were added, how many removed, how many changes were made, and how
    /// many elements there are then.
    fn update(
        &mut self,
        changes: TreeChanges<'_>,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        if changes.single().is_none() {
            self.refrain();
        }
        let (mut added, mut removed, mut done) = (0u64, 0u64, 0u64);
        let all = changes.for_each(|change| {
            let is_enough = self.is_spent(limits) || done >= limits.elements;
            if is_enough && done >= TREE_CHANGES_WHOLE as u64 {
                return Ok(false);
            }
            let edits = self.scratch.edits().len();
            let made = match change.value {
                Some(value) => self.put_key(change.key, value),
                None => self.remove_noted(change.key),
            };
            let counted = match made {
                Ok(counted) => u64::from(counted),
                Err(halt) if done >= TREE_CHANGES_WHOLE as u64 && self.ends_before(halt, edits) => {
                    return Ok(false);
                }
                Err(halt) => return Err(halt),
            };
            match change.value {
                Some(_) => added += counted,
                None => removed += counted,
            }
            done += 1;
            Ok(true)
        });
        debug_assert!(all.is_some(), "it was decoded");
        all.unwrap_or(Ok(()))?;
        for number in [added, removed, done, self.root.count] {
            out.extend(number.to_le_bytes());
        }
        Ok(TreeAnswer::Value)
    }

    /// Answers values, of as many keys as a page holds and as lie in as many leaves as a step
    /// reads.
    fn get_many(
        &mut self,
        keys: TreeValues<'_>,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let (mut done, mut leaves, mut last) = (0u64, 0, None);
        let all = keys.for_each(|key| {
            // `Err` ends the walk; the halt, if there is one, is in it.
            let stop = |halt: Option<Halt>| Err(halt);
            let found = self.with_path(|work, path| {
                let Some(place) = work.find_key(path, Sought::Key(key))? else {
                    return Ok(Ok(None));
                };
                let (_, value) = work.element_of(&place, place.entry)?;
                let is_full = out.len() + 4 + value.len() > limits.page_bytes;
                if done > 0 && is_full {
                    return Ok(Err(()));
                }
                put_found(out, Some(work.value_bytes(value)?));
                Ok(Ok(Some(place.leaf)))
            });
            match found {
                Err(halt) if done > 0 && self.ends_before(halt, 0) => return stop(None),
                Err(halt) => return stop(Some(halt)),
                Ok(Err(())) => return stop(None),
                Ok(Ok(None)) => put_found(out, None),
                Ok(Ok(Some(leaf))) => {
                    leaves += usize::from(last != Some(leaf));
                    last = Some(leaf);
                }
            }
            done += 1;
            let goes_on = leaves < limits.edits && done < limits.elements;
            if goes_on && out.len() < limits.page_bytes {
                Ok(())
            } else {
                stop(None)
            }
        });
        match all {
            Some(Err(Some(halt))) => Err(halt),
            _ => Ok(TreeAnswer::Value),
        }
    }

    /// Counts a negative rank from the end; `None` if there is no such element.
    fn rank_of(&self, rank: i64) -> Option<u64> {
        let count = self.members();
        let rank = match u64::try_from(rank) {
            Ok(rank) => rank,
            Err(_) => count.checked_sub(rank.unsigned_abs())?,
        };
        (rank < count).then_some(rank)
    }

    /// Answers the element of a rank as a page, which says whether there are others, and may
    /// remove it.
    fn take_at(&mut self, rank: u64, removes: bool, out: &mut Vec<u8>) -> Result<TreeAnswer, Halt> {
        if self.shape.kind == TreeKind::Scored && removes {
            return self.take_scored(rank, out);
        }
        out.push(0);
        self.with_path(|work, path| {
            let place = work.find(path, Sought::Rank(work.first_rank() + rank))?;
            let (key, value) = work.element_of(&place, place.entry)?;
            let key_bytes = key.len();
            let mut page = Page {
                out,
                bytes_max: 0,
                left: 1,
            };
            page.add(key, work.value_bytes(value)?);
            if removes && !work.touch_removal(path, place, key_bytes)? {
                work.remove_at(path, place, 1)?;
            }
            Ok(())
        })?;
        out[0] = u8::from(self.members() > u64::from(!removes));
        Ok(TreeAnswer::Value)
    }

    /// Moves the element at one end to the other, and answers it as a page, which says whether
    /// there are others.
    fn rotate(
        &mut self,
        last: bool,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        self.refrain();
        let end = self.root.count.saturating_sub(1);
        let (from, to) = if last { (end, 0) } else { (0, end) };
        let answer = self.take_at(from, false, out)?;
        // The only element is at both ends.
        if end > 0 {
            self.remove_from(from, from + 1, limits)?;
            if let Some((_, value)) = page_elements(out).next() {
                self.add_at(to, value)?;
            }
        }
        Ok(answer)
    }

    /// Answers how many elements were removed, the first rank and the last that stay by the ranks
    /// that are left, whether there is more to remove, and how many elements there are then.
    fn trim(
        &mut self,
        first: i64,
        last: i64,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let kept = slice_of(first, last, self.members());
        let kept_count = kept.end - kept.start;
        if self.members() - kept_count > 1 {
            self.refrain();
        }
        // Behind the slice first, so that its ranks stay while there is more. From the ends inward:
        // what is left then is what taking elements off the ends would leave.
        let behind = if kept_count == 0 { 0 } else { kept.end };
        let mut removed = self.remove_behind(behind, limits)?;
        let mut left = kept.start;
        if kept_count > 0 && self.members() == kept.end {
            let before = self.remove_from(0, kept.start, limits)?;
            (removed, left) = (removed + before, kept.start - before);
        }
        let more = self.members() > kept_count;
        // A slice of no element is named so that it does not reach the last one.
        let (start, end) = match kept_count {
            0 => (1, 1),
            _ => (left, left + kept_count),
        };
        for number in [removed, start, end, u64::from(more), self.members()] {
            out.extend(number.to_le_bytes());
        }
        Ok(TreeAnswer::Value)
    }

    fn remove(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<TreeAnswer, Halt> {
        self.with_path(|work, path| {
            let Some(place) = work.find_key(path, Sought::Key(key))? else {
                return Ok(TreeAnswer::Absent);
            };
            let (_, value) = work.element_of(&place, place.entry)?;
            out.extend_from_slice(work.value_bytes(value)?);
            work.note_removed(&place, key)?;
            if !work.touch(path, place, TreeTouch::Remove, (key, &[]))? {
                work.remove_at(path, place, 1)?;
            }
            Ok(TreeAnswer::Value)
        })
    }

    fn compare_and_set(
        &mut self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let found = self.get(key, out)?;
        let current = (found == TreeAnswer::Value).then_some(&out[..]);
        if current != expected {
            return Ok(TreeAnswer::Refused);
        }
        let mut before = Vec::new();
        match value {
            Some(value) => self.insert(key, value, TreeCondition::Always, &mut before)?,
            None => self.remove(key, &mut before)?,
        };
        out.clear();
        Ok(TreeAnswer::Value)
    }

    fn rank(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<TreeAnswer, Halt> {
        self.with_path(|work, path| {
            let Some(place) = work.find_key(path, Sought::RankOf(key))? else {
                return Ok(TreeAnswer::Absent);
            };
            out.extend((place.before + place.entry as u64).to_le_bytes());
            Ok(TreeAnswer::Value)
        })
    }

    fn count(
        &mut self,
        from: TreeBound<'_>,
        to: TreeBound<'_>,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let (below, up_to) = self.ranks_of(from, to)?;
        out.extend(up_to.saturating_sub(below).to_le_bytes());
        Ok(TreeAnswer::Value)
    }

    fn range(
        &mut self,
        (from, to): (TreeBound<'_>, TreeBound<'_>),
        reverse: bool,
        (limit, limits): (u32, TreeLimits),
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let (near, far) = if reverse { (to, from) } else { (from, to) };
        let is_within = |key: &[u8]| match reverse {
            true => far.is_below(key),
            false => far.is_above(key),
        };
        let start = Start::of(near);
        self.page(start, reverse, (limit, limits), is_within, out)
    }

    fn range_by_rank(
        &mut self,
        ranks: std::ops::Range<u64>,
        reverse: bool,
        (limit, limits): (u32, TreeLimits),
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let first = self.first_rank();
        let end = ranks.end.min(self.members());
        let ranks = first + ranks.start.min(end)..first + end;
        self.page_of_ranks(ranks, reverse, (limit, limits), out)
    }

    /// Answers elements from one rank to before another, counted in the whole tree.
    pub(super) fn page_of_ranks(
        &mut self,
        ranks: std::ops::Range<u64>,
        reverse: bool,
        (limit, limits): (u32, TreeLimits),
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let end = ranks.end;
        let wanted = end.saturating_sub(ranks.start);
        let all = u32::try_from(wanted).unwrap_or(u32::MAX);
        if all == 0 {
            out.push(0);
            return Ok(TreeAnswer::Value);
        }
        let start = Start::Rank(if reverse { end - 1 } else { ranks.start });
        let answer = self.page(start, reverse, (limit.min(all), limits), |_| true, out)?;
        // Behind the last rank there may be elements, but none that are wanted.
        let taken = page_elements(out).count() as u64;
        out[0] &= u8::from(taken < wanted);
        Ok(answer)
    }

    /// Writes a page of elements.
    pub(super) fn page(
        &mut self,
        start: Start<'_>,
        reverse: bool,
        (limit, limits): (u32, TreeLimits),
        is_within: impl Fn(&[u8]) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        out.push(0);
        let mut page = Page {
            out,
            bytes_max: limits.page_bytes,
            left: limit,
        };
        let mut is_full = false;
        let walked = self.with_path(|work, path| {
            let bounds = (reverse, limits.leaves);
            let work = &*work;
            work.walk(path, start, bounds, is_within, |element| {
                let Element { key, value } = element;
                // A value that does not go into the page need not be read.
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

    /// True if an operation that may be done in part has changed as many nodes as it may.
    pub(super) fn is_spent(&self, limits: TreeLimits) -> bool {
        self.scratch.edits().len() >= limits.edits
    }

    fn pop(
        &mut self,
        last: bool,
        (limit, limits): (u32, TreeLimits),
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        out.push(0);
        let mut page = Page {
            out,
            bytes_max: limits.page_bytes,
            left: limit,
        };
        let mut is_full = page.left == 0;
        while self.root.height > 0 && !is_full {
            if self.is_spent(limits) {
                break;
            }
            let rank = if last {
                self.root.count.saturating_sub(1)
            } else {
                0
            };
            self.with_path(|work, path| {
                let place = work.find(path, Sought::Rank(rank))?;
                if place.len == 0 {
                    return Err(Halt::Damaged(place.leaf));
                }
                let mut taken = 0;
                while taken < place.len {
                    let entry = if last { place.len - 1 - taken } else { taken };
                    let (key, value) = work.element_of(&place, entry)?;
                    if !page.has_room(key, value.len()) {
                        is_full = true;
                        break;
                    }
                    page.add(key, work.value_bytes(value)?);
                    taken += 1;
                }
                if taken == 0 {
                    return Ok(());
                }
                let entry = if last { place.len - taken } else { 0 };
                if limit == 1 {
                    let (key, _) = work.element_of(&place, entry)?;
                    let key_bytes = key.len();
                    if work.touch_removal(path, LeafPlace { entry, ..place }, key_bytes)? {
                        return Ok(());
                    }
                }
                work.remove_at(path, LeafPlace { entry, ..place }, taken)
            })?;
            is_full |= page.left == 0;
        }
        out[0] = u8::from(self.root.height > 0);
        Ok(TreeAnswer::Value)
    }

    /// Answers how many were removed, and whether there are more to remove.
    fn remove_ranks(
        &mut self,
        start: u64,
        end: u64,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let wanted = end.min(self.members()).saturating_sub(start);
        let removed = self.remove_from(start, end, limits)?;
        out.extend(removed.to_le_bytes());
        out.push(u8::from(removed < wanted));
        Ok(TreeAnswer::Value)
    }

    /// Removes elements from one rank to before another, as many as one step can; returns how
    /// many.
    pub(super) fn remove_from(
        &mut self,
        start: u64,
        end: u64,
        limits: TreeLimits,
    ) -> Result<u64, Halt> {
        if self.shape.kind == TreeKind::Scored {
            return self.remove_scored(start..end, false, limits);
        }
        let mut left = end.min(self.root.count).saturating_sub(start);
        let mut removed = 0;
        while left > 0 && !self.is_spent(limits) {
            removed += self.with_path(|work, path| {
                let place = work.find(path, Sought::Rank(start))?;
                let here = (place.len - place.entry) as u64;
                let elements = here.min(left);
                let is_single = left == 1 && removed == 0;
                let count = usize::try_from(elements).map_err(|_| Halt::Damaged(place.leaf))?;
                if work.scratch.notes.notes_keys {
                    for entry in place.entry..place.entry + count {
                        let key = work.element_of(&place, entry)?.0.to_vec();
                        work.scratch.notes.change(&key, None);
                    }
                }
                if is_single {
                    let (key, _) = work.element_of(&place, place.entry)?;
                    let key_bytes = key.len();
                    if work.touch_removal(path, place, key_bytes)? {
                        left = 0;
                        return Ok(1);
                    }
                }
                work.remove_at(path, place, count)?;
                left -= elements;
                Ok(elements)
            })?;
        }
        Ok(removed)
    }

    /// Removes elements from a rank on, the last ones first, as many as one step can; returns how
    /// many.
    fn remove_behind(&mut self, rank: u64, limits: TreeLimits) -> Result<u64, Halt> {
        let before = self.root.count;
        if self.shape.kind == TreeKind::Scored {
            return self.remove_scored(rank..self.members(), true, limits);
        }
        if before.saturating_sub(rank) == 1 {
            return self.remove_from(rank, before, limits);
        }
        while self.root.count > rank && !self.is_spent(limits) {
            self.with_path(|work, path| {
                let count = work.root.count;
                let place = work.find(path, Sought::Rank(count - 1))?;
                let here = (place.len as u64).min(count - rank);
                let here = usize::try_from(here).map_err(|_| Halt::Damaged(place.leaf))?;
                let entry = place.len - here;
                work.remove_at(path, LeafPlace { entry, ..place }, here)
            })?;
        }
        Ok(before - self.root.count)
    }

    /// Answers how long the list is.
    fn push(
        &mut self,
        front: bool,
        values: TreeValues<'_>,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        if !values.is_single() {
            self.refrain();
        }
        let pushed = values.for_each(|value| {
            let rank = if front { 0 } else { self.root.count };
            self.add_at(rank, value)
        });
        debug_assert!(pushed.is_some(), "it was decoded");
        pushed.unwrap_or(Ok(()))?;
        out.extend(self.root.count.to_le_bytes());
        Ok(TreeAnswer::Value)
    }

    /// Adds an element of a list, with this many before it.
    fn add_at(&mut self, rank: u64, value: &[u8]) -> Result<(), Halt> {
        self.with_path(|work, path| {
            if work.root.height == 0 {
                return work.plant(&[], value);
            }
            let place = work.find(path, Sought::Gap(rank))?;
            if work.touch(path, place, TreeTouch::Insert, (&[], value))? {
                return Ok(());
            }
            work.insert_at(path, place, &[], value)
        })
    }

    fn insert_at_rank(
        &mut self,
        rank: u64,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        if rank > self.root.count {
            return Ok(TreeAnswer::Absent);
        }
        if self.scratch.notes.is_on && rank < self.root.count {
            self.with_path(|work, path| {
                let place = work.find(path, Sought::Rank(rank))?;
                let (_, old) = work.element_of(&place, place.entry)?;
                let old = work.value_bytes(old)?.to_vec();
                work.scratch.notes.beside = old;
                Ok(())
            })?;
        }
        self.add_at(rank, value)?;
        out.extend(self.root.count.to_le_bytes());
        Ok(TreeAnswer::Value)
    }

    fn set_at_rank(
        &mut self,
        rank: u64,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        if rank >= self.root.count {
            return Ok(TreeAnswer::Absent);
        }
        self.with_path(|work, path| {
            let place = work.find(path, Sought::Rank(rank))?;
            let (_, old) = work.element_of(&place, place.entry)?;
            out.extend_from_slice(work.value_bytes(old)?);
            if !work.touch(path, place, TreeTouch::Replace, (&[], value))? {
                work.replace_at(path, place, value)?;
            }
            Ok(TreeAnswer::Value)
        })
    }

    /// True if the operation changes the tree.
    pub(crate) fn has_changed(&self) -> bool {
        let edits = self.scratch.edits().iter();
        !self.scratch.touches().is_empty() || edits.clone().any(|edit| edit.what != Edited::Passing)
    }
}
