//! Reads of a tree: one element, the place of a key, and walks from element to element.

use super::node::{NodeNumber, StoredValue};
use super::op::TreeBound;
use super::path::PathStep;
use super::work::{Halt, LeafPlace, Nodes, Sought, TreeWork};

/// Where a walk begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start<'a> {
    /// At the first element in the direction of the walk.
    End,
    /// At the element of a key, or at the next one in the direction of the walk.
    From(&'a [u8]),
    /// At the first element in the direction of the walk that is not of this key.
    Beyond(&'a [u8]),
    /// At the element of a rank.
    Rank(u64),
}

impl<'a> Start<'a> {
    /// At the end of a range.
    pub(super) fn of(bound: TreeBound<'a>) -> Self {
        match bound {
            TreeBound::Unbounded => Self::End,
            TreeBound::Included(key) => Self::From(key),
            TreeBound::Excluded(key) => Self::Beyond(key),
        }
    }
}

/// A place of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WalkPlace {
    leaf: NodeNumber,
    entry: usize,
}

/// What a walk has seen of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: StoredValue<'a>,
}

/// Whether a walk goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Walk {
    On,
    /// It ends before this element.
    Before,
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Walked {
    /// At the end of what is wanted, or where it was stopped.
    Done,
    /// It has visited as many leaves as it may, and another element is wanted.
    More,
}

impl<'s, N: Nodes> TreeWork<'s, N> {
    /// Finds the element of a key; `None` if there is none.
    pub(super) fn find_key(
        &self,
        path: &mut Vec<PathStep>,
        sought: Sought<'_>,
    ) -> Result<Option<LeafPlace<'s>>, Halt> {
        if self.root.height == 0 {
            return Ok(None);
        }
        let place = self.find(path, sought)?;
        Ok(place.is_found.then_some(place))
    }

    /// Elements whose key is less than this one, or also equal to it.
    pub(super) fn count_before(&self, key: &[u8], or_equal: bool) -> Result<u64, Halt> {
        if self.root.height == 0 {
            return Ok(0);
        }
        let place = self.find(&mut Vec::new(), Sought::RankOf(key))?;
        let equal = usize::from(or_equal && place.is_found);
        Ok(place.before + (place.entry + equal) as u64)
    }

    /// How many elements are below a range, and how many up to its end.
    pub(super) fn ranks_of(
        &self,
        from: TreeBound<'_>,
        to: TreeBound<'_>,
    ) -> Result<(u64, u64), Halt> {
        let below = match from {
            TreeBound::Unbounded => 0,
            TreeBound::Included(key) => self.count_before(key, false)?,
            TreeBound::Excluded(key) => self.count_before(key, true)?,
        };
        let up_to = match to {
            TreeBound::Unbounded => self.root.count,
            TreeBound::Included(key) => self.count_before(key, true)?,
            TreeBound::Excluded(key) => self.count_before(key, false)?,
        };
        Ok((below, up_to))
    }

    /// An element of the leaf that was found.
    #[inline]
    pub(super) fn element_of(
        &self,
        place: &LeafPlace<'s>,
        entry: usize,
    ) -> Result<(&[u8], StoredValue<'_>), Halt> {
        let element = self.leaf_of(place)?.key_and_value(entry);
        element.ok_or(Halt::Damaged(place.leaf))
    }

    /// The element at a place.
    pub(super) fn element_at(
        &self,
        leaf: NodeNumber,
        entry: usize,
    ) -> Result<(&[u8], StoredValue<'_>), Halt> {
        let view = self.node(leaf, true)?;
        let element = view.key_and_value(entry);
        element.ok_or(Halt::Damaged(leaf))
    }

    /// Visits elements from a place on, of at most `leaves` leaves, up to the first whose key is
    /// not wanted.
    pub(super) fn walk(
        &self,
        path: &mut Vec<PathStep>,
        start: Start<'_>,
        (reverse, mut leaves): (bool, usize),
        is_wanted: impl Fn(&[u8]) -> bool,
        mut visit: impl FnMut(Element<'_>) -> Result<Walk, Halt>,
    ) -> Result<Walked, Halt> {
        let mut next = self.first_of(path, start, reverse)?;
        let mut leaf = None;
        while let Some(place) = next {
            let (key, value) = self.element_at(place.leaf, place.entry)?;
            if !is_wanted(key) {
                return Ok(Walked::Done);
            }
            if leaf != Some(place.leaf) {
                if leaves == 0 {
                    return Ok(Walked::More);
                }
                leaves -= 1;
                leaf = Some(place.leaf);
            }
            if visit(Element { key, value })? == Walk::Before {
                return Ok(Walked::Done);
            }
            next = self.after(path, place, reverse)?;
        }
        Ok(Walked::Done)
    }

    fn first_of(
        &self,
        path: &mut Vec<PathStep>,
        start: Start<'_>,
        reverse: bool,
    ) -> Result<Option<WalkPlace>, Halt> {
        if self.root.height == 0 {
            return Ok(None);
        }
        let sought = match start {
            Start::End if reverse => Sought::Rank(self.root.count.saturating_sub(1)),
            Start::End => Sought::Rank(0),
            Start::Rank(rank) if rank >= self.root.count => return Ok(None),
            Start::Rank(rank) => Sought::Rank(rank),
            Start::From(key) | Start::Beyond(key) => Sought::Key(key),
        };
        let found = self.find(path, sought)?;
        let place = WalkPlace {
            leaf: found.leaf,
            entry: found.entry,
        };
        let is_there = found.is_found && !matches!(start, Start::Beyond(_));
        if is_there {
            return Ok(Some(place));
        }
        if reverse {
            return self.after(path, place, true);
        }
        // Where a key would be, the next element is already.
        let skips = usize::from(found.is_found);
        if found.entry + skips < found.len {
            let entry = found.entry + skips;
            return Ok(Some(WalkPlace { entry, ..place }));
        }
        self.next_leaf(path, false)
    }

    /// The place after another one in the direction of a walk.
    fn after(
        &self,
        path: &mut Vec<PathStep>,
        place: WalkPlace,
        reverse: bool,
    ) -> Result<Option<WalkPlace>, Halt> {
        let entry = if reverse {
            place.entry.checked_sub(1)
        } else {
            let len = self.node(place.leaf, true)?.len();
            Some(place.entry + 1).filter(|&entry| entry < len)
        };
        match entry {
            Some(entry) => Ok(Some(WalkPlace { entry, ..place })),
            None => self.next_leaf(path, reverse),
        }
    }

    /// The first place of the next leaf in the direction of a walk.
    fn next_leaf(
        &self,
        path: &mut Vec<PathStep>,
        reverse: bool,
    ) -> Result<Option<WalkPlace>, Halt> {
        let levels = path.len();
        let beside = |step: &PathStep| {
            if reverse {
                step.entry.checked_sub(1)
            } else {
                Some(step.entry + 1).filter(|&entry| entry < step.len)
            }
        };
        loop {
            let Some(step) = path.pop() else {
                return Ok(None);
            };
            if let Some(entry) = beside(&step) {
                path.push(PathStep { entry, ..step });
                break;
            }
        }
        loop {
            let Some(&step) = path.last() else {
                return Ok(None);
            };
            let branch = self.node(step.node, false)?;
            let child = branch.child(step.entry).ok_or(Halt::Damaged(step.node))?;
            let is_leaf = path.len() == levels;
            let len = self.node(child.node, is_leaf)?.len();
            let last = len.checked_sub(1).ok_or(Halt::Damaged(child.node))?;
            let entry = if reverse { last } else { 0 };
            if is_leaf {
                let leaf = child.node;
                return Ok(Some(WalkPlace { leaf, entry }));
            }
            path.push(PathStep {
                node: child.node,
                entry,
                len,
            });
        }
    }
}
