//! Programs: what an application does with a map in one step of its shard.

use std::fmt;

use super::op::{TreeBound, TreeOp};
use super::read::{Element, Start, Walk, Walked};
use super::run::{TreeAnswer, TreeLimits};
use super::work::{Halt, Nodes, TREE_KEY_BYTES_MAX, TreeWork};

/// What a program comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeOutcome {
    /// The bytes that it has written are the answer, and its changes are made.
    Answer,
    /// It answers [`Answer::Absent`](crate::Answer::Absent), and changes nothing.
    Absent,
    /// It answers [`Answer::Mismatch`](crate::Answer::Mismatch), and changes nothing.
    Refused,
}

/// Why a program must stop now: it passes this on. It may be run anew, from its beginning, once
/// what it lacks is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeStop(pub(super) Halt);

/// What a program is: it gets its input and the map of a key, and writes what it answers.
pub type TreeProgramRun =
    fn(&[u8], &mut TreeMap<'_>, &mut Vec<u8>) -> Result<TreeOutcome, TreeStop>;

/// What an application does with the map of a key in one step of the key's shard: other clients see
/// all of its changes, or none.
///
/// It is run at the shard, between the requests of others, so it must end soon. It may be run
/// several times for one request, until each node that it looks at is here. So it keeps nothing
/// from one run to the next, and looks at no clock: what it needs is in its input.
#[derive(Clone, Copy)]
pub struct TreeProgram {
    /// What it is called where engines are described.
    pub name: &'static str,
    /// What it does.
    pub run: TreeProgramRun,
}

impl fmt::Debug for TreeProgram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// The map of a key, for a program. Keys are in the order of their bytes.
///
/// Each function costs a walk from the root to a leaf, and returns a [`TreeStop`] if a node on its
/// way cannot be read now.
pub struct TreeMap<'m> {
    work: &'m mut dyn MapWork,
    value: Vec<u8>,
}

impl fmt::Debug for TreeMap<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("TreeMap");
        shown.field("len", &self.work.len()).finish()
    }
}

impl TreeMap<'_> {
    /// How many elements there are. Cost: constant.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.work.len()
    }

    /// True if there is no element: also where there is no such key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`TreeStop`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, TreeStop> {
        self.value.clear();
        let is_there = self.work.get(key, &mut self.value).map_err(TreeStop)?;
        Ok(is_there.then_some(&self.value[..]))
    }

    /// Stores the value of a key; true if the key is new.
    ///
    /// # Errors
    /// [`TreeStop`], also if key or value are longer than an element's may be.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, TreeStop> {
        self.work.put(key, value).map_err(TreeStop)
    }

    /// Removes a key; true if it was there.
    ///
    /// # Errors
    /// [`TreeStop`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, TreeStop> {
        self.work.remove(key).map_err(TreeStop)
    }

    /// Removes keys of a range, those at its lower end first: at most `most` of them, and
    /// no more than one step can. Returns how many were removed.
    ///
    /// # Errors
    /// [`TreeStop`].
    pub fn remove_range(
        &mut self,
        (from, to): (TreeBound<'_>, TreeBound<'_>),
        most: u64,
    ) -> Result<u64, TreeStop> {
        let removed = self.work.remove_range((from, to), most);
        removed.map_err(TreeStop)
    }

    /// How many keys are in a range.
    ///
    /// # Errors
    /// [`TreeStop`].
    pub fn count(&mut self, from: TreeBound<'_>, to: TreeBound<'_>) -> Result<u64, TreeStop> {
        self.work.count(from, to).map_err(TreeStop)
    }

    /// Visits the elements of a range, from its lower end or from its upper one, until the visitor
    /// returns false. True if the range has more elements, in more leaves than one step reads.
    ///
    /// # Errors
    /// [`TreeStop`].
    pub fn walk(
        &mut self,
        (from, to): (TreeBound<'_>, TreeBound<'_>),
        reverse: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, TreeStop> {
        let walked = self.work.walk((from, to), reverse, &mut visit);
        walked.map_err(TreeStop)
    }

    /// True once as many nodes are changed as one step should change: what can be done in part ends
    /// here.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.work.is_spent()
    }

    /// Says that several changes follow. Without it the first one may be tried in place, in vain.
    pub fn will_change_several(&mut self) {
        self.work.will_change_several();
    }
}

/// What a program asks of an operation under way.
trait MapWork {
    fn len(&self) -> u64;
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, Halt>;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Halt>;
    fn remove(&mut self, key: &[u8]) -> Result<bool, Halt>;
    fn remove_range(
        &mut self,
        range: (TreeBound<'_>, TreeBound<'_>),
        most: u64,
    ) -> Result<u64, Halt>;
    fn count(&mut self, from: TreeBound<'_>, to: TreeBound<'_>) -> Result<u64, Halt>;
    fn walk(
        &mut self,
        range: (TreeBound<'_>, TreeBound<'_>),
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, Halt>;
    fn is_spent(&self) -> bool;
    fn will_change_several(&mut self);
}

/// An operation under way that a program decides on.
struct Programmed<'w, 's, N> {
    work: &'w mut TreeWork<'s, N>,
    limits: TreeLimits,
}

impl<N: Nodes> Programmed<'_, '_, N> {
    /// A change that is to be made in place is seen by no other one: then all are made by edits.
    fn check_touched(&self) -> Result<(), Halt> {
        match self.work.scratch.touches() {
            [] => Ok(()),
            _ => Err(Halt::Several),
        }
    }
}

impl<N: Nodes> MapWork for Programmed<'_, '_, N> {
    fn len(&self) -> u64 {
        self.work.root.count
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, Halt> {
        self.check_touched()?;
        let answer = self.work.get(key, into)?;
        Ok(answer == TreeAnswer::Value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Halt> {
        self.check_touched()?;
        if key.len() > TREE_KEY_BYTES_MAX {
            return Err(Halt::TooLong(key.len()));
        }
        if value.len() > self.limits.value_bytes {
            return Err(Halt::TooLong(value.len()));
        }
        let is_new = self.work.put_key(key, value)?;
        self.work.scratch.notes.change(key, Some(value));
        if !self.work.scratch.touches().is_empty() {
            self.work.scratch.keep_element(key, value);
        }
        Ok(is_new)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, Halt> {
        self.check_touched()?;
        let was_there = self.work.remove_key(key)?;
        if was_there {
            self.work.scratch.notes.change(key, None);
        }
        Ok(was_there)
    }

    fn remove_range(
        &mut self,
        (from, to): (TreeBound<'_>, TreeBound<'_>),
        most: u64,
    ) -> Result<u64, Halt> {
        self.check_touched()?;
        self.work.refrain();
        let (below, up_to) = self.work.ranks_of(from, to)?;
        let end = up_to.min(below.saturating_add(most));
        self.work.scratch.notes.notes_keys = self.work.scratch.notes.is_on;
        let removed = self.work.remove_from(below, end, self.limits);
        self.work.scratch.notes.notes_keys = false;
        removed
    }

    fn count(&mut self, from: TreeBound<'_>, to: TreeBound<'_>) -> Result<u64, Halt> {
        self.check_touched()?;
        let (below, up_to) = self.work.ranks_of(from, to)?;
        Ok(up_to.saturating_sub(below))
    }

    fn walk(
        &mut self,
        (from, to): (TreeBound<'_>, TreeBound<'_>),
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, Halt> {
        self.check_touched()?;
        let start = Start::of(if reverse { to } else { from });
        let is_within = |key: &[u8]| match reverse {
            true => from.is_below(key),
            false => to.is_above(key),
        };
        let leaves = self.limits.leaves;
        let walked = self.work.with_path(|work, path| {
            let work = &*work;
            work.walk(path, start, (reverse, leaves), is_within, |element| {
                let Element { key, value } = element;
                match visit(key, work.value_bytes(value)?) {
                    true => Ok(Walk::On),
                    false => Ok(Walk::Before),
                }
            })
        })?;
        Ok(walked == Walked::More)
    }

    fn is_spent(&self) -> bool {
        self.work.is_spent(self.limits)
    }

    fn will_change_several(&mut self) {
        self.work.refrain();
    }
}

impl<N: Nodes> TreeWork<'_, N> {
    /// Carries an operation out as [`TreeWork::run`] does, also one that runs a program.
    ///
    /// # Errors
    /// [`Halt`]; then nothing is to be changed.
    pub(crate) fn run_with(
        &mut self,
        programs: &[TreeProgram],
        op: &TreeOp<'_>,
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let TreeOp::Run { program, input, .. } = *op else {
            return self.run(op, limits, out);
        };
        out.clear();
        match programs.get(usize::from(program)) {
            Some(program) => self.run_program(program.run, input, limits, out),
            None => Ok(TreeAnswer::Refused),
        }
    }

    /// Runs a program. What it has changed is forgotten if it answers that it has not.
    fn run_program(
        &mut self,
        program: TreeProgramRun,
        input: &[u8],
        limits: TreeLimits,
        out: &mut Vec<u8>,
    ) -> Result<TreeAnswer, Halt> {
        let before = self.root;
        let work = &mut Programmed { work: self, limits };
        let mut map = TreeMap {
            work,
            value: Vec::new(),
        };
        let outcome = program(input, &mut map, out).map_err(|TreeStop(halt)| halt)?;
        let answer = match outcome {
            TreeOutcome::Answer => return Ok(TreeAnswer::Value),
            TreeOutcome::Absent => TreeAnswer::Absent,
            TreeOutcome::Refused => TreeAnswer::Refused,
        };
        self.scratch.clear();
        self.root = before;
        Ok(answer)
    }
}
