//! Collections: a key that holds an ordered map or a list, as handles and core clients use it.
//!
//! Each call is one step of the key's shard. Reads that may be long return a page, which says
//! whether there is more and carries the version of the collection: pages of one version are of one
//! moment.

use super::call::{Call, FromAnswer, Value};
use super::core::Core;
use super::handle::Handle;
use super::pool::{Client, ClientCall, OwnedValue};
use crate::error::{Error, Result};
use crate::message::operation::{Operation, Version};
use crate::message::outcome::{Answer, OwnedAnswer};
use crate::tree::{
    TreeBound, TreeChange, TreeChanges, TreeCondition, TreeGuard, TreeKind, TreeOp, TreeOutcome,
    TreeProgramMode, TreeScore, TreeScoreRange, TreeScoreRule, TreeScores, TreeValues,
    found_values, page_elements, page_has_more, placed_elements, scored_elements,
};

/// Elements of a collection, in its order or against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePage {
    bytes: Vec<u8>,
    version: Version,
}

impl TreePage {
    /// Key and value of each element; a list's elements have no key.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        page_elements(&self.bytes)
    }

    /// Of a scored map in the order of scores: member, score and value of each element.
    pub fn scored(&self) -> impl Iterator<Item = (&[u8], f64, &[u8])> {
        scored_elements(&self.bytes)
    }

    /// Of a scored map in the order of places: member, place and score of each element.
    pub fn placed(&self) -> impl Iterator<Item = (&[u8], u64, f64)> {
        placed_elements(&self.bytes)
    }

    /// The first element.
    #[must_use]
    pub fn first(&self) -> Option<(&[u8], &[u8])> {
        self.iter().next()
    }

    /// The last element: where the next page begins, if there is more.
    #[must_use]
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        self.iter().last()
    }

    /// True if there is more of what was wanted.
    #[must_use]
    pub fn has_more(&self) -> bool {
        page_has_more(&self.bytes)
    }

    /// The version of the collection; `0` if there was none, and that of its end if it has ended.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }
}

/// How long a collection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeLength {
    /// Elements.
    pub elements: u64,
    /// Bytes of all keys and values.
    pub bytes: u64,
    /// What it is; a map if it is absent.
    pub kind: TreeKind,
    /// What the application said of it; see [`Tree::tagged`].
    pub tag: u8,
    /// The version of the collection; `0` if there was none, and that of its end if it has ended.
    pub version: Version,
}

/// The outcome of storing an element.
#[must_use = "a condition may not hold"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeStored {
    /// The element is new.
    Added,
    /// The element had this value.
    Replaced(Vec<u8>),
    /// The condition does not hold, and nothing changed.
    Unmet,
}

/// The outcome of removing a range of ranks.
#[must_use = "there may be more to remove"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeRemoved {
    /// Elements that were removed, from the start of the range on.
    pub elements: u64,
    /// There are more: call again with what is left of the range.
    pub has_more: bool,
}

/// The outcome of several changes of a map.
#[must_use = "there may be more to change"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeUpdated {
    /// Elements that are new.
    pub added: u64,
    /// Elements that were removed.
    pub removed: u64,
    /// Changes that were made, from the first on: call again with the others.
    pub done: u64,
    /// Elements that there are then.
    pub elements: u64,
}

/// The values of several elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFound {
    bytes: Vec<u8>,
    version: Version,
}

impl TreeFound {
    /// The value of each element, from the first on, `None` if it is absent. There may be fewer
    /// values than elements were wanted.
    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        found_values(&self.bytes)
    }

    /// The version of the collection; `0` if there was none, and that of its end if it has ended.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }
}

/// The outcome of several changes of a scored map.
#[must_use = "there may be more to change"]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeScored {
    /// Members that are new.
    pub added: u64,
    /// Members that have another score than before.
    pub changed: u64,
    /// Members that were removed.
    pub removed: u64,
    /// Changes that were made or whose rule did not hold, from the first on: call again with the
    /// others.
    pub done: u64,
    /// Members that there are then.
    pub members: u64,
    /// What became of the last of them.
    pub last: TreeScoreMade,
}

/// What became of a member of a scored map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TreeScoreMade {
    /// It has this score.
    Score(f64),
    /// The rule did not hold, or it was removed.
    Unmet,
    /// Its score would not be a number, and nothing changed.
    NoNumber,
}

impl TreeScored {
    fn of(answer: &[u8]) -> Self {
        let number = |place| number_at(answer, place);
        Self {
            added: number(0),
            changed: number(1),
            removed: number(2),
            done: number(3),
            members: number(4),
            last: match number(5) {
                0 => TreeScoreMade::Unmet,
                1 => TreeScoreMade::Score(f64::from_bits(number(6))),
                _ => TreeScoreMade::NoNumber,
            },
        }
    }
}

/// Where a member of a scored map is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeScoreRank {
    /// How many members are before it, or behind it.
    pub rank: u64,
    /// Its score.
    pub score: f64,
}

/// The scores of several members.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeScoresFound {
    bytes: Vec<u8>,
    version: Version,
}

impl TreeScoresFound {
    /// The score of each member, from the first on, `None` if it is absent. There may be fewer
    /// scores than members were named.
    pub fn iter(&self) -> impl Iterator<Item = Option<f64>> {
        found_values(&self.bytes).map(score_in)
    }

    /// The version of the collection; `0` if there was none, and that of its end if it has ended.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }
}

fn score_in(value: Option<&[u8]>) -> Option<f64> {
    value?.first_chunk().map(|score| f64::from_le_bytes(*score))
}

/// The outcome of removing what lies outside of a slice.
#[must_use = "there may be more to remove"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeTrimmed {
    /// Elements that were removed.
    pub removed: u64,
    /// The first rank that stays, as the elements are counted then.
    pub first: u64,
    /// The rank behind the last that stays.
    pub end: u64,
    /// There are more: call again with what `first` and `end` say.
    pub has_more: bool,
    /// Elements that there are then.
    pub elements: u64,
}

/// What a program has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRan {
    /// What it said.
    pub outcome: TreeOutcome,
    /// The version of the collection then; 0 if there is none.
    pub version: u64,
    /// What it has written.
    pub bytes: Vec<u8>,
}

impl<'a> FromAnswer<'a> for TreeUpdated {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { value, .. } => Ok(Self {
                added: number_at(value, 0),
                removed: number_at(value, 1),
                done: number_at(value, 2),
                elements: number_at(value, 3),
            }),
            Answer::Failed(error) => Err(error.clone()),
            _ => Err(Error::Closed),
        }
    }
}

impl<'a> FromAnswer<'a> for TreeScored {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { value, .. } => Ok(Self::of(value)),
            Answer::Failed(error) => Err(error.clone()),
            _ => Err(Error::Closed),
        }
    }
}

impl<'a> FromAnswer<'a> for TreeScoresFound {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { version, .. } => Ok(Self {
                version,
                bytes: answer.into_value(),
            }),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(Self {
                version: 0,
                bytes: Vec::new(),
            }),
        }
    }
}

impl<'a> FromAnswer<'a> for Option<TreeScoreRank> {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Failed(error) => Err(error.clone()),
            answer => Ok(TreeView::of(&answer).score_rank()),
        }
    }
}

impl<'a> FromAnswer<'a> for TreeTrimmed {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { value, .. } => Ok(Self {
                removed: number_at(value, 0),
                first: number_at(value, 1),
                end: number_at(value, 2),
                has_more: number_at(value, 3) != 0,
                elements: number_at(value, 4),
            }),
            Answer::Failed(error) => Err(error.clone()),
            _ => Err(Error::Closed),
        }
    }
}

impl<'a> FromAnswer<'a> for TreeFound {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { version, .. } => Ok(Self {
                version,
                bytes: answer.into_value(),
            }),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(Self {
                version: 0,
                bytes: Vec::new(),
            }),
        }
    }
}

impl<'a> FromAnswer<'a> for TreeRan {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        let (outcome, version) = match answer.answer() {
            Answer::Value { version, .. } => (TreeOutcome::Answer, version),
            Answer::Absent => (TreeOutcome::Absent, 0),
            Answer::Mismatch { current } => (TreeOutcome::Refused, current),
            Answer::Failed(error) => return Err(error.clone()),
            _ => return Err(Error::Closed),
        };
        let bytes = match outcome {
            TreeOutcome::Answer => answer.into_value(),
            _ => Vec::new(),
        };
        Ok(Self {
            outcome,
            version,
            bytes,
        })
    }
}

impl<'a> FromAnswer<'a> for TreePage {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { version, .. } => Ok(Self {
                version,
                bytes: answer.into_value(),
            }),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(Self {
                version: 0,
                bytes: Vec::new(),
            }),
        }
    }
}

/// What an operation on a collection has answered, where it lies in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeView<'a> {
    bytes: &'a [u8],
    version: Version,
}

impl<'a> TreeView<'a> {
    /// The view of an answer; empty, with the version 0, of one without a value.
    #[must_use]
    pub fn of(answer: &Answer<'a>) -> Self {
        match *answer {
            Answer::Value { version, value } => Self {
                bytes: value,
                version,
            },
            _ => Self {
                bytes: &[],
                version: 0,
            },
        }
    }

    /// The version of the collection; `0` if there was none, and that of its end if it has ended.
    #[must_use]
    pub fn version(self) -> Version {
        self.version
    }

    /// Of an answer that is a page: key and value of each element; a list's elements have no key.
    pub fn elements(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        page_elements(self.bytes)
    }

    /// Of an answer that is a page of a scored map in the order of scores: member, score and value
    /// of each element.
    pub fn scored(self) -> impl Iterator<Item = (&'a [u8], f64, &'a [u8])> {
        scored_elements(self.bytes)
    }

    /// Of an answer that is a page of a scored map in the order of places: member, place and score
    /// of each element.
    pub fn placed(self) -> impl Iterator<Item = (&'a [u8], u64, f64)> {
        placed_elements(self.bytes)
    }

    /// Of the answer to [`TreeOp::Score`]: what its changes have come to.
    pub fn scores(self) -> TreeScored {
        TreeScored::of(self.bytes)
    }

    /// Of the answer to [`TreeOp::ScoreOf`]: the score of each member, `None` if it is absent.
    pub fn score_values(self) -> impl Iterator<Item = Option<f64>> {
        found_values(self.bytes).map(score_in)
    }

    /// Of the answer to [`TreeOp::ScoredValue`]: the score of the member, and its value.
    #[must_use]
    pub fn scored_value(self) -> Option<(f64, &'a [u8])> {
        let (score, value) = self.bytes.split_first_chunk()?;
        Some((f64::from_le_bytes(*score), value))
    }

    /// Of the answer to [`TreeOp::ScoreRank`]: the rank of the member, and its score.
    #[must_use]
    pub fn score_rank(self) -> Option<TreeScoreRank> {
        let (rank, score) = self.bytes.split_first_chunk()?;
        Some(TreeScoreRank {
            rank: u64::from_le_bytes(*rank),
            score: f64::from_le_bytes(*score.first_chunk()?),
        })
    }

    /// Of an answer that is a page: there is more of what was wanted.
    #[must_use]
    pub fn has_more(self) -> bool {
        page_has_more(self.bytes)
    }

    /// Of the answer to [`TreeOp::GetMany`]: the value of each key, `None` if it is absent.
    pub fn values(self) -> impl Iterator<Item = Option<&'a [u8]>> {
        found_values(self.bytes)
    }

    /// Of an answer that is numbers: the one at a place, 0 if it has none there. [`TreeOp::Update`]
    /// answers the fields of [`TreeUpdated`], [`TreeOp::Trim`] those of [`TreeTrimmed`], in their
    /// order, and others their only number.
    #[must_use]
    pub fn number(self, place: usize) -> u64 {
        number_at(self.bytes, place)
    }

    /// Of the answer to [`TreeOp::Len`]: how long the collection is.
    #[must_use]
    pub fn length(self) -> TreeLength {
        TreeLength {
            elements: self.number(0),
            bytes: self.number(1),
            kind: (self.bytes.get(16))
                .and_then(|&kind| TreeKind::of(kind))
                .unwrap_or_default(),
            tag: self.bytes.get(17).copied().unwrap_or(0),
            version: self.version,
        }
    }
}

fn number_at(bytes: &[u8], place: usize) -> u64 {
    let number = bytes.get(8 * place..).and_then(|rest| rest.first_chunk());
    number.map_or(0, |number| u64::from_le_bytes(*number))
}

impl<'a> FromAnswer<'a> for TreeLength {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Failed(error) => Err(error.clone()),
            answer => Ok(TreeView::of(&answer).length()),
        }
    }
}

impl<'a> FromAnswer<'a> for TreeStored {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { value, .. } => Ok(match value.split_first() {
                Some((1, before)) => Self::Replaced(before.to_vec()),
                _ => Self::Added,
            }),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(Self::Unmet),
        }
    }
}

impl<'a> FromAnswer<'a> for TreeRemoved {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { value, .. } => Ok(Self {
                elements: number_at(value, 0),
                has_more: value.get(8).is_some_and(|&more| more != 0),
            }),
            Answer::Failed(error) => Err(error.clone()),
            _ => Err(Error::Closed),
        }
    }
}

impl<'a> FromAnswer<'a> for Option<u64> {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { value, .. } => Ok(Some(number_at(value, 0))),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(None),
        }
    }
}

impl Handle {
    /// The collection of a key, to read and change it. An absent key is one without elements: the
    /// first insertion makes it a map, the first push a list, and a collection that becomes empty
    /// is gone.
    ///
    /// ```
    /// use farcore::{Config, Engine};
    ///
    /// # let sizes = Config { local_bytes: 64 << 20, far_bytes: 64 << 20, keys_expected: 10_000, ..Config::default() };
    /// let engine = Engine::open(sizes)?;
    /// let mut handle = engine.handle()?;
    /// let mut ages = handle.tree(b"ages");
    /// ages.insert(b"ada", b"36").wait()?;
    /// ages.insert(b"alan", b"41").wait()?;
    /// assert_eq!(ages.rank(b"alan").wait()?, Some(1));
    /// assert_eq!(ages.first().wait()?.first(), Some((&b"ada"[..], &b"36"[..])));
    /// # Ok::<(), farcore::Error>(())
    /// ```
    pub fn tree<'h, 'k>(&'h mut self, key: &'k [u8]) -> Tree<'h, 'k> {
        Tree {
            handle: self,
            key,
            guard: TreeGuard::default(),
        }
    }
}

impl Core {
    /// The collection of a key, as [`Handle::tree`].
    pub fn tree<'c, 'k>(&'c mut self, key: &'k [u8]) -> CoreTree<'c, 'k> {
        CoreTree {
            core: self,
            key,
            guard: TreeGuard::default(),
        }
    }
}

impl Client {
    /// The collection of a key, as [`Handle::tree`].
    pub fn tree<'c, 'k>(&'c self, key: &'k [u8]) -> ClientTree<'c, 'k> {
        ClientTree {
            client: self,
            key,
            guard: TreeGuard::default(),
        }
    }
}

/// The collection of a key, through a handle.
#[derive(Debug)]
pub struct Tree<'h, 'k> {
    handle: &'h mut Handle,
    key: &'k [u8],
    guard: TreeGuard,
}

/// The collection of a key, through a core client.
#[derive(Debug)]
pub struct CoreTree<'c, 'k> {
    core: &'c mut Core,
    key: &'k [u8],
    guard: TreeGuard,
}

/// The collection of a key, through a client that threads and tasks share.
#[derive(Debug)]
pub struct ClientTree<'c, 'k> {
    client: &'c Client,
    key: &'k [u8],
    guard: TreeGuard,
}

/// How a client names the collection that its calls are about, beside the key.
macro_rules! guarded {
    ($($collection:ident),+) => {
        $(impl $collection<'_, '_> {
            /// This collection, to be read and changed only if it has this tag. It gets the tag
            /// from the operation that makes it. Collections have the tag 0 unless another one is
            /// given.
            #[must_use]
            pub fn tagged(mut self, tag: u8) -> Self {
                self.guard.tag = tag;
                self
            }

            /// This collection, to be read and changed only while it has this version, `0` while it
            /// is absent. Else calls fail as [`Error::CollectionVersion`].
            #[must_use]
            pub fn at_version(mut self, version: Version) -> Self {
                self.guard.version = Some(version);
                self
            }
        })+
    };
}

guarded!(Tree, CoreTree, ClientTree);

/// The calls of all clients: name, arguments, result, result that outlives its call, operation.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $owned:ty = $op:expr;)+) => {
        impl<'k> Tree<'_, 'k> {
            $($(#[$doc])*
            pub fn $name<'a, 'b>(&'a mut self, $($argument: $kind),*) -> Call<'a, 'b, $result>
            where
                'k: 'b,
            {
                Call::new(self.handle, Operation::Tree { key: self.key, op: $op, guard: self.guard })
            })+
        }

        #[allow(
            clippy::extra_unused_lifetimes,
            clippy::needless_lifetimes,
            reason = "the types of some calls name them"
        )]
        impl CoreTree<'_, '_> {
            $($(#[$doc])*
            pub async fn $name<'a, 'b>(&'a mut self, $($argument: $kind),*) -> Result<$result> {
                self.core.call(Operation::Tree { key: self.key, op: $op, guard: self.guard }).await
            })+
        }

        impl<'k> ClientTree<'_, 'k> {
            $($(#[$doc])*
            pub fn $name<'a, 'b>(&'a self, $($argument: $kind),*) -> ClientCall<'a, 'b, $owned>
            where
                'k: 'b,
            {
                self.client.call(Operation::Tree { key: self.key, op: $op, guard: self.guard })
            })+
        }
    };
}

calls! {
    /// Reads the value of a map's element.
    ///
    /// # Errors
    /// Those of [`Handle::get`]; [`Error::NoCollection`], [`Error::CollectionKind`].
    get(element: &'b [u8]) -> Option<Value<'a>>, Option<OwnedValue> = TreeOp::Get { key: element };
    /// Stores the value of a map's element. The key of an element has 1 KiB at most, key and value
    /// together somewhat less than a value may have.
    ///
    /// # Errors
    /// Those of [`Handle::put`]; [`Error::NoCollection`], [`Error::CollectionKind`],
    /// [`Error::Collections`].
    insert(element: &'b [u8], value: &'b [u8]) -> TreeStored, TreeStored = TreeOp::Insert {
        key: element,
        value,
        condition: TreeCondition::Always,
    };
    /// Stores the value of a map's element if that is absent, or present.
    ///
    /// # Errors
    /// Those of `insert`.
    insert_if(element: &'b [u8], value: &'b [u8], condition: TreeCondition) -> TreeStored, TreeStored =
        TreeOp::Insert { key: element, value, condition };
    /// Removes a map's element; returns its value.
    ///
    /// # Errors
    /// Those of `insert`.
    remove(element: &'b [u8]) -> Option<Value<'a>>, Option<OwnedValue> = TreeOp::Remove { key: element };
    /// Stores the value of a map's element, or removes it with `None`, if it has the value that is
    /// expected; `expected` is `None` if the element must be absent. Returns whether it had.
    ///
    /// # Errors
    /// Those of `insert`.
    compare_and_set(element: &'b [u8], expected: Option<&'b [u8]>, value: Option<&'b [u8]>)
        -> bool, bool = TreeOp::CompareAndSet { key: element, expected, value };
    /// Runs a program of [`Config::tree_programs`](crate::Config::tree_programs) on a map, in one
    /// step of its shard.
    ///
    /// # Errors
    /// Those of `insert`.
    run(program: u8, mode: TreeProgramMode, input: &'b [u8])
        -> TreeRan, TreeRan = TreeOp::Run { program, mode, input };
    /// How many elements of a map are from one key to another.
    ///
    /// # Errors
    /// Those of `get`.
    count(from: TreeBound<'b>, to: TreeBound<'b>) -> Option<u64>, Option<u64> = TreeOp::Count { from, to };
    /// How many elements are before a map's element; `None` if it is absent.
    ///
    /// # Errors
    /// Those of `get`.
    rank(element: &'b [u8]) -> Option<u64>, Option<u64> = TreeOp::Rank { key: element };
    /// How many elements there are, and their bytes.
    ///
    /// # Errors
    /// Those of `get`.
    len() -> TreeLength, TreeLength = TreeOp::Len;
    /// Elements of a map from one key to another, at most `limit`, or as many as a page holds.
    /// `reverse` begins at the upper end.
    ///
    /// # Errors
    /// Those of `get`.
    range(from: TreeBound<'b>, to: TreeBound<'b>, reverse: bool, limit: u32) -> TreePage, TreePage =
        TreeOp::Range { from, to, reverse, limit };
    /// Elements from one rank to before another, at most `limit`, or as many as a page holds.
    /// `reverse` begins at the upper end.
    ///
    /// # Errors
    /// Those of `get`.
    range_by_rank(start: u64, end: u64, reverse: bool, limit: u32) -> TreePage, TreePage =
        TreeOp::RangeByRank { start, end, reverse, limit };
    /// The first element.
    ///
    /// # Errors
    /// Those of `get`.
    first() -> TreePage, TreePage = TreeOp::RangeByRank {
        start: 0,
        end: u64::MAX,
        reverse: false,
        limit: 1,
    };
    /// The last element.
    ///
    /// # Errors
    /// Those of `get`.
    last() -> TreePage, TreePage = TreeOp::RangeByRank {
        start: 0,
        end: u64::MAX,
        reverse: true,
        limit: 1,
    };
    /// Removes elements at the beginning and returns them, at most `limit`, or as many as one step
    /// can.
    ///
    /// # Errors
    /// Those of `insert`.
    pop_first(limit: u32) -> TreePage, TreePage = TreeOp::Pop { last: false, limit };
    /// Removes elements at the end and returns them, the last one first.
    ///
    /// # Errors
    /// Those of `insert`.
    pop_last(limit: u32) -> TreePage, TreePage = TreeOp::Pop { last: true, limit };
    /// Removes elements from one rank to before another: all, or as many as one step can.
    ///
    /// # Errors
    /// Those of `insert`.
    remove_by_rank(start: u64, end: u64) -> TreeRemoved, TreeRemoved = TreeOp::RemoveByRank { start, end };
    /// Adds values at the end of a list, 1024 at most; returns how long it is.
    ///
    /// # Errors
    /// Those of `insert`, [`Error::TooManyElements`].
    push_last(values: &'b [&'b [u8]]) -> Option<u64>, Option<u64> = TreeOp::Push {
        front: false,
        exists: false,
        replaces: false,
        values: TreeValues::Slices(values),
    };
    /// Adds values at the beginning of a list, one after the other, 1024 at most; returns how long
    /// it is.
    ///
    /// # Errors
    /// Those of `insert`, [`Error::TooManyElements`].
    push_first(values: &'b [&'b [u8]]) -> Option<u64>, Option<u64> = TreeOp::Push {
        front: true,
        exists: false,
        replaces: false,
        values: TreeValues::Slices(values),
    };
    /// Adds a value to a list, so that it has this rank; returns how long the list is, or `None` if
    /// it is shorter than that.
    ///
    /// # Errors
    /// Those of `insert`.
    insert_at(rank: u64, value: &'b [u8]) -> Option<u64>, Option<u64> = TreeOp::InsertAt { rank, value };
    /// Gives the element of a list another value; returns the one before, or `None` if there is no
    /// such element. A negative rank counts from the end.
    ///
    /// # Errors
    /// Those of `insert`.
    set_at(rank: i64, value: &'b [u8]) -> Option<Value<'a>>, Option<OwnedValue> = TreeOp::SetAt { rank, value };
    /// Stores and removes elements of a map, in their order: all, or as many as one step can.
    ///
    /// # Errors
    /// Those of `insert`.
    update(changes: &'b [TreeChange<'b>]) -> TreeUpdated, TreeUpdated = TreeOp::Update {
        changes: TreeChanges::Slices(changes),
        replaces: false,
    };
    /// Gives the key a map of these elements instead of what it holds, or of as many as one step
    /// can; the key does not expire then.
    ///
    /// # Errors
    /// Those of `insert`.
    replace(changes: &'b [TreeChange<'b>]) -> TreeUpdated, TreeUpdated = TreeOp::Update {
        changes: TreeChanges::Slices(changes),
        replaces: true,
    };
    /// The values of several elements of a map: of all, or of as many as one answer holds.
    ///
    /// # Errors
    /// Those of `get`.
    get_many(elements: &'b [&'b [u8]]) -> TreeFound, TreeFound = TreeOp::GetMany {
        keys: TreeValues::Slices(elements),
    };
    /// Elements from one rank to another, which is the last, at most `limit`, or as many as a page
    /// holds. Negative ranks count from the end, and -1 is the last element.
    ///
    /// # Errors
    /// Those of `get`.
    slice(first: i64, last: i64, limit: u32) -> TreePage, TreePage = TreeOp::Slice { first, last, limit };
    /// Removes the element of a rank and returns it; nothing if there is none. A negative rank
    /// counts from the end.
    ///
    /// # Errors
    /// Those of `insert`.
    take_at(rank: i64) -> TreePage, TreePage = TreeOp::TakeAt { rank };
    /// Moves the last element of a list to its beginning, or the first to its end, and returns it;
    /// nothing if there is none.
    ///
    /// # Errors
    /// Those of `insert`.
    rotate(last: bool) -> TreePage, TreePage = TreeOp::Rotate { last };
    /// An element, each with the same chance if `random` is a random number; nothing if there is
    /// none. It may be removed.
    ///
    /// # Errors
    /// Those of `insert`.
    draw(random: u64, removes: bool) -> TreePage, TreePage = TreeOp::Draw { random, removes };
    /// Removes what lies outside of a slice, from the ends inward: all, or as much as one step can.
    /// Negative ranks count from the end.
    ///
    /// # Errors
    /// Those of `insert`.
    trim(first: i64, last: i64) -> TreeTrimmed, TreeTrimmed = TreeOp::Trim { first, last };
    /// Gives members of a scored map scores, or removes them, in their order, as far as the rule
    /// holds: all, or as many as one step can. A member has 1016 bytes at most. A score that is not
    /// a number is left out.
    ///
    /// # Errors
    /// Those of `insert`.
    score(changes: &'b [TreeScore<'b>], rule: TreeScoreRule) -> TreeScored, TreeScored = TreeOp::Score {
        changes: TreeScores::Slices(changes),
        rule,
        replaces: false,
    };
    /// The scores of several members: of all, or of as many as one answer holds.
    ///
    /// # Errors
    /// Those of `get`.
    scores_of(members: &'b [&'b [u8]]) -> TreeScoresFound, TreeScoresFound = TreeOp::ScoreOf {
        members: TreeValues::Slices(members),
    };
    /// How many members have a lesser score than one, or are before it with an equal one; with
    /// `reverse` how many are behind it. `None` if it is absent.
    ///
    /// # Errors
    /// Those of `get`.
    score_rank(member: &'b [u8], reverse: bool) -> Option<TreeScoreRank>, Option<TreeScoreRank> =
        TreeOp::ScoreRank { member, reverse };
    /// How many members are in a range.
    ///
    /// # Errors
    /// Those of `get`.
    score_count(range: TreeScoreRange<'b>) -> Option<u64>, Option<u64> = TreeOp::ScoreCount { range };
    /// Members of a range in the order of their scores, without the first `skip`, at most `limit`,
    /// or as many as a page holds: read them with [`TreePage::scored`]. `reverse` begins at the
    /// upper end.
    ///
    /// # Errors
    /// Those of `get`.
    score_range(range: TreeScoreRange<'b>, reverse: bool, skip: u64, limit: u32) -> TreePage, TreePage =
        TreeOp::ScoreRange { range, reverse, skip, limit };
    /// Members from a place on, in an order that scores do not change: read them with
    /// [`TreePage::placed`], and begin again one behind the last place. A member that stays is met
    /// once, whatever is added or removed meanwhile.
    ///
    /// # Errors
    /// Those of `get`.
    score_scan(from: u64, limit: u32) -> TreePage, TreePage = TreeOp::ScoreScan { from, limit };
    /// Removes the members of a range: all, or as many as one step can.
    ///
    /// # Errors
    /// Those of `insert`.
    score_remove(range: TreeScoreRange<'b>) -> TreeRemoved, TreeRemoved = TreeOp::ScoreRemove { range };
}
