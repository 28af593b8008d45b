//! What clients call and what is answered, as the simulation keeps it.

use farcore::{
    Answer, Change, Condition, Error, Expiry, ExpiryCondition, Operation, Transaction, TreeBound,
    TreeChange, TreeChanges, TreeCondition, TreeGuard, TreeKind, TreeOp, TreeScore, TreeValues,
};
use farcore_tuning::simulated;

use crate::random::Random;
use crate::scored::{ScoredCall, ScoredFound, score_of_order, scored_key, whole};

/// What every value repeats, and what must not be read in far memory.
pub(crate) const MARK: &[u8; 8] = b"plaintxt";
/// A bit of a value's number: the value is a long one.
const LONG: u64 = 1 << 63;
/// From this bit on, a value's number has its place among those of its call.
const PLACE_SHIFT: u32 = 40;

/// What is expected of and written to one key of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) key: u64,
    pub(crate) expected: Option<u64>,
    pub(crate) write: PartWrite,
}

/// What a transaction does to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartWrite {
    Nothing,
    Put,
    Delete,
}

/// What is read of or done to a collection. Elements of maps have numbers for keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TreeCall {
    Len,
    Get(u64),
    Rank(u64),
    Insert(u64, TreeCondition),
    Remove(u64),
    Range(u64, u64, bool, u32),
    Count(u64, u64),
    Ranks(u64, u64, bool, u32),
    Pop(bool, u32),
    RemoveRanks(u64, u64),
    Push {
        front: bool,
        count: u64,
        exists: bool,
    },
    InsertAt(u64),
    SetAt(i64),
    /// Changes elements from the first on, see [`updated`].
    Update {
        first: u64,
        count: u64,
        removes: u64,
        replaces: bool,
    },
    GetMany {
        first: u64,
        count: u64,
    },
    /// An element, the number of the value that it must have, and whether it gets another one.
    CompareAndSet(u64, Option<u64>, bool),
    Slice(i64, i64, u32),
    Trim(i64, i64),
    TakeAt(i64),
    Rotate(bool),
    /// With a random number; whether the element is removed.
    Draw(u64, bool),
    Scored(ScoredCall),
}

/// Elements that maps may have.
pub(crate) const ELEMENTS: u64 = 60;

/// The element at a place among those that a call names; there are fewer than 8.
pub(crate) fn nth_element(first: u64, place: u64) -> u64 {
    (first + 7 * place) % ELEMENTS
}

/// What an update makes of elements: the number of the new value of each, or none if it is removed.
/// That is one in `removes`.
pub(crate) fn updated(
    number: u64,
    (first, count, removes): (u64, u64, u64),
) -> impl Iterator<Item = (u64, Option<u64>)> {
    (0..count).map(move |place| {
        let is_removed = removes > 0 && (place + 1).is_multiple_of(removes);
        let value = (!is_removed).then_some(nth(number, place));
        (nth_element(first, place), value)
    })
}

/// What a client calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Get {
        key: u64,
        is_long: bool,
    },
    /// Stores the value of the call's own number.
    Put {
        key: u64,
        is_long: bool,
        expires_ms: Option<u64>,
    },
    Delete {
        key: u64,
    },
    Swap {
        key: u64,
        expected: u64,
    },
    SetExpiry {
        key: u64,
        expires_ms: Option<u64>,
    },
    Transaction(Vec<Part>),
    Tree {
        tree: u64,
        call: TreeCall,
        guard: TreeGuard,
    },
    DeleteTree {
        tree: u64,
    },
    /// Reads the key of a collection as if it held a value.
    GetTree {
        tree: u64,
    },
    /// Stores the value of the call's own number in the key of a collection.
    PutTree {
        tree: u64,
    },
    /// Sets when a collection expires.
    ExpireTree {
        tree: u64,
        expires_ms: Option<u64>,
    },
    /// Lists all keys, in pages of about this number of entries.
    Scan {
        entries: usize,
    },
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Answered {
    /// A version, and the number of the value.
    Value(u64, u64),
    Absent,
    Stored(u64),
    /// The version that the delete drew.
    Deleted(u64),
    Mismatch(u64),
    /// The place of a key and its version.
    Conflict(usize, u64),
    /// The version of a collection, and what was found.
    Tree(u64, Found),
    /// The key holds another collection than was expected, or none.
    Refused(Refusal),
    /// The keys that were listed, and how many could not be read.
    Scanned(Vec<Listed>, u64),
    /// The name of an error.
    Failed(String),
}

/// A key of a scan: its name, its version and, if it was read, the number of its value.
pub(crate) type Listed = (String, u64, Option<u64>);

/// Why a collection is not the one that was expected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refusal {
    NoCollection,
    /// It is one, and no value.
    Collection,
    /// It is of this kind.
    Kind(TreeKind),
    Tag(u8),
    Version(u64),
}

impl Refusal {
    fn of(error: &Error) -> Option<Self> {
        Some(match *error {
            Error::NoCollection => Self::NoCollection,
            Error::Collection => Self::Collection,
            Error::CollectionKind { kind } => Self::Kind(kind),
            Error::CollectionTag { tag } => Self::Tag(tag),
            Error::CollectionVersion { current } => Self::Version(current),
            _ => return None,
        })
    }

    /// The name of its error.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoCollection => "NoCollection",
            Self::Collection => "Collection",
            Self::Kind(_) => "CollectionKind",
            Self::Tag(_) => "CollectionTag",
            Self::Version(_) => "CollectionVersion",
        }
    }
}

/// What was found in a collection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Found {
    /// The number of a value.
    Value(u64),
    /// The number of the value that was there before.
    Before(Option<u64>),
    Number(u64),
    /// Whether there is more, and for each element its key and its value's number.
    Page(bool, Vec<(u64, u64)>),
    /// How many were removed, and whether there are more.
    Removed(u64, bool),
    /// Elements; the number of its kind, and its tag.
    Len(u64, u8, u8),
    /// How many were added, removed and changed, and how many there are.
    Updated([u64; 4]),
    /// The numbers of the values of the first ones.
    Many(Vec<Option<u64>>),
    /// The first rank that stays and the one behind the last, whether there is more to remove, and
    /// how many there are.
    Trimmed {
        removed: u64,
        kept: (u64, u64),
        more: bool,
        left: u64,
    },
    /// It was as expected.
    Set,
    Scored(ScoredFound),
}

/// An answer as it came.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    Value(u64, Vec<u8>),
    Deleted(Option<u64>),
    /// One that has no bytes, or was read by its client.
    Plain(Answered),
}

impl Raw {
    /// A copy of an answer to a request with this token.
    pub(crate) fn of(token: u64, answer: Answer<'_>) -> Self {
        Self::Plain(match answer {
            Answer::Value { version, value } => return Self::Value(version, value.to_vec()),
            Answer::Deleted => return Self::Deleted(simulated::take_version(token)),
            Answer::Absent => Answered::Absent,
            Answer::Stored { version } => Answered::Stored(version),
            Answer::Mismatch { current } => Answered::Mismatch(current),
            Answer::Conflict(conflict) => Answered::Conflict(conflict.place(), conflict.current()),
            Answer::Failed(error) => return Self::failed(error),
        })
    }

    pub(crate) fn failed(error: &Error) -> Self {
        Self::Plain(match Refusal::of(error) {
            Some(refusal) => Answered::Refused(refusal),
            None => Answered::Failed(name_of(error)),
        })
    }
}

/// The name of an error.
pub(crate) fn name_of(error: &Error) -> String {
    let text = format!("{error:?}");
    let end = text.find(|c: char| !c.is_ascii_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

/// How long values are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub(crate) value_max: u64,
    pub(crate) long_max: u64,
    pub(crate) element_max: u64,
}

/// The number of the value that a call stores.
pub(crate) fn stored_by(number: u64, call: &Call) -> u64 {
    match call {
        Call::Put { is_long: true, .. } => number | LONG,
        _ => number,
    }
}

/// The number of a value at a place among those of a call.
fn nth(number: u64, place: u64) -> u64 {
    number | place << PLACE_SHIFT
}

/// The call that has stored the value of a number.
pub(crate) fn call_of(value: u64) -> u64 {
    value & ((1 << PLACE_SHIFT) - 1)
}

/// Bytes of a value behind its number, which decides how many there are.
fn marked_bytes(value: u64, bytes_max: u64) -> usize {
    let bytes = Random::new(value).below(bytes_max.max(1));
    usize::try_from(bytes).unwrap_or(0)
}

/// The bytes of a value: its number, then the mark, to a length that the number decides.
fn bytes_of(value: u64, bytes_max: u64) -> Vec<u8> {
    let marked = marked_bytes(value, bytes_max);
    let mut all = MARK.repeat(1 + marked.div_ceil(MARK.len()));
    all.truncate(size_of::<u64>() + marked);
    all[..size_of::<u64>()].copy_from_slice(&value.to_le_bytes());
    all
}

/// True if bytes are those of a value.
fn are_bytes_of(bytes: &[u8], value: u64, bytes_max: u64) -> bool {
    let Some((number, marked)) = bytes.split_first_chunk() else {
        return false;
    };
    let (marks, rest) = marked.as_chunks();
    u64::from_le_bytes(*number) == value
        && marked.len() == marked_bytes(value, bytes_max)
        && marks.iter().all(|mark| mark == MARK)
        && MARK.starts_with(rest)
}

impl Lengths {
    /// The most bytes of a key's value behind its number.
    fn marked_max(&self, value: u64) -> u64 {
        let is_long = value & LONG != 0;
        if is_long {
            self.long_max
        } else {
            self.value_max
        }
    }

    /// The bytes of a key's value.
    pub(crate) fn value(&self, value: u64) -> Vec<u8> {
        bytes_of(value, self.marked_max(value))
    }

    fn element(&self, value: u64) -> Vec<u8> {
        bytes_of(value, self.element_max)
    }

    /// The number of a value that was read.
    ///
    /// # Errors
    /// The bytes are none that were stored.
    pub(crate) fn number_of(&self, bytes: &[u8]) -> Result<u64, String> {
        Self::checked(bytes, |value| self.marked_max(value))
    }

    fn number_of_element(&self, bytes: &[u8]) -> Result<u64, String> {
        Self::checked(bytes, |_| self.element_max)
    }

    fn checked(bytes: &[u8], marked_max: impl FnOnce(u64) -> u64) -> Result<u64, String> {
        let first = bytes.first_chunk().ok_or("a short value was read")?;
        let value = u64::from_le_bytes(*first);
        if !are_bytes_of(bytes, value, marked_max(value)) {
            return Err(format!("what was read was never stored: {value:x}"));
        }
        Ok(value)
    }
}

/// A call on its way to a client.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) call: Call,
    /// The names of its keys.
    pub(crate) names: Vec<String>,
    pub(crate) lengths: Lengths,
}

impl Asked {
    pub(crate) fn name(&self) -> &[u8] {
        self.names.first().map_or(&[], |name| name.as_bytes())
    }

    /// The bytes that it stores in a key.
    pub(crate) fn value(&self) -> Vec<u8> {
        self.lengths.value(stored_by(self.number, &self.call))
    }

    /// Passes its operation on; `None` if it takes more than one.
    pub(crate) fn with<R>(&self, send: impl FnOnce(Operation<'_>) -> R) -> Option<R> {
        let key = self.name();
        let operation = match &self.call {
            Call::Get { .. } | Call::GetTree { .. } => Operation::Get { key },
            Call::Put {
                expires_ms: None, ..
            } => {
                let value = &self.value();
                return Some(send(Operation::Put { key, value }));
            }
            Call::Put {
                expires_ms: Some(at_ms),
                ..
            } => {
                let change = Change::Put {
                    value: &self.value(),
                    expiry: Expiry::At(*at_ms),
                    condition: Condition::Always,
                    previous: false,
                };
                return Some(send(Operation::Change { key, change }));
            }
            Call::PutTree { .. } => {
                let value = &self.value();
                return Some(send(Operation::Put { key, value }));
            }
            Call::SetExpiry { expires_ms, .. } | Call::ExpireTree { expires_ms, .. } => {
                let change = Change::SetExpiry {
                    expiry: expires_ms.map_or(Expiry::Never, Expiry::At),
                    condition: ExpiryCondition::Always,
                    value: false,
                };
                Operation::Change { key, change }
            }
            Call::Delete { .. } | Call::DeleteTree { .. } => Operation::Delete { key },
            Call::Swap { expected, .. } => {
                let (value, expected) = (&self.value(), *expected);
                return Some(send(Operation::CompareAndSwap {
                    key,
                    value,
                    expected,
                }));
            }
            Call::Transaction(parts) => return Some(self.transact(parts, send)),
            Call::Tree { call, guard, .. } => {
                return Some(self.change_tree((*call, *guard), send));
            }
            Call::Scan { .. } => return None,
        };
        Some(send(operation))
    }

    fn transact<R>(&self, parts: &[Part], send: impl FnOnce(Operation<'_>) -> R) -> R {
        let value = self.value();
        send(Operation::Transaction {
            transaction: &self.transaction(parts, &value),
        })
    }

    /// The transaction of a call, which stores this value.
    pub(crate) fn transaction<'a>(&'a self, parts: &[Part], value: &'a [u8]) -> Transaction<'a> {
        let mut transaction = Transaction::new();
        for (part, name) in parts.iter().zip(&self.names) {
            let key = name.as_bytes();
            if let Some(version) = part.expected {
                transaction = transaction.expect(key, version);
            }
            transaction = match part.write {
                PartWrite::Nothing => transaction,
                PartWrite::Put => transaction.put(key, value),
                PartWrite::Delete => transaction.delete(key),
            };
        }
        transaction
    }

    fn change_tree<R>(
        &self,
        (call, guard): (TreeCall, TreeGuard),
        send: impl FnOnce(Operation<'_>) -> R,
    ) -> R {
        let bytes = self.tree_bytes(call);
        let parts = bytes.parts();
        let op = bytes.op(call, &parts);
        let key = self.name();
        send(Operation::Tree { key, op, guard })
    }

    /// The bytes that an operation on a collection names.
    pub(crate) fn tree_bytes(&self, call: TreeCall) -> TreeBytes {
        let element = |number: u64| number.to_be_bytes();
        let number = self.number;
        let (mut keys, mut values, mut expected) = (Vec::new(), vec![Some(nth(number, 0))], None);
        let mut scores = Vec::new();
        match call {
            TreeCall::Get(one)
            | TreeCall::Rank(one)
            | TreeCall::Insert(one, _)
            | TreeCall::Remove(one) => keys.push(element(one)),
            TreeCall::CompareAndSet(one, before, sets) => {
                keys.push(element(one));
                values = vec![sets.then(|| nth(number, 0))];
                expected = before;
            }
            TreeCall::Range(from, to, ..) | TreeCall::Count(from, to) => {
                keys.extend([element(from), element(to)]);
            }
            TreeCall::GetMany { first, count } => {
                keys.extend((0..count).map(|place| element(nth_element(first, place))));
            }
            TreeCall::Update {
                first,
                count,
                removes,
                ..
            } => {
                let changes: Vec<_> = updated(number, (first, count, removes)).collect();
                keys.extend(changes.iter().map(|change| element(change.0)));
                values = changes.iter().map(|change| change.1).collect();
            }
            TreeCall::Push { count, .. } => {
                values = (0..count).map(|place| Some(nth(number, place))).collect();
            }
            TreeCall::Scored(call) => {
                keys.extend(call.members().into_iter().map(element));
                let changes = call.changes(number);
                values = changes.iter().map(|change| Some(change.2)).collect();
                scores = changes.iter().map(|change| change.1).collect();
            }
            _ => {}
        }
        let bytes = |value: u64| self.lengths.element(value);
        TreeBytes {
            keys,
            values: values.into_iter().map(|value| value.map(bytes)).collect(),
            expected: expected.map(bytes),
            scores,
        }
    }
}

/// Keys and values of an operation on a collection.
#[derive(Debug)]
pub(crate) struct TreeBytes {
    keys: Vec<[u8; 8]>,
    values: Vec<Option<Vec<u8>>>,
    expected: Option<Vec<u8>>,
    scores: Vec<Option<i64>>,
}

/// Keys and values as an operation takes them.
#[derive(Debug)]
pub(crate) struct TreeParts<'a> {
    keys: Vec<&'a [u8]>,
    values: Vec<&'a [u8]>,
    changes: Vec<TreeChange<'a>>,
    scores: Vec<TreeScore<'a>>,
}

impl TreeBytes {
    pub(crate) fn parts(&self) -> TreeParts<'_> {
        let values = self.values.iter().map(Option::as_deref);
        let changes = self.keys.iter().zip(values.clone());
        let scores = changes.clone().zip(&self.scores);
        TreeParts {
            scores: scores
                .map(|((member, value), score)| TreeScore {
                    member,
                    score: score.map(|score| f64::from(i32::try_from(score).unwrap_or(0))),
                    value: value.unwrap_or(&[]),
                })
                .collect(),
            keys: self.keys.iter().map(<[u8; 8]>::as_slice).collect(),
            values: values.flatten().collect(),
            changes: changes
                .map(|(key, value)| TreeChange { key, value })
                .collect(),
        }
    }

    /// The operation, of [`TreeBytes::parts`].
    pub(crate) fn op<'a>(&'a self, call: TreeCall, parts: &'a TreeParts<'a>) -> TreeOp<'a> {
        let one = |place: usize| parts.keys.get(place).copied().unwrap_or(&[]);
        let (key, value) = (one(0), parts.values.first().copied());
        let some = value.unwrap_or(&[]);
        let (from, to) = (TreeBound::Included(key), TreeBound::Excluded(one(1)));
        match call {
            TreeCall::Len => TreeOp::Len,
            TreeCall::Get(_) => TreeOp::Get { key },
            TreeCall::Rank(_) => TreeOp::Rank { key },
            TreeCall::Insert(_, condition) => TreeOp::Insert {
                key,
                value: some,
                condition,
            },
            TreeCall::Remove(_) => TreeOp::Remove { key },
            TreeCall::CompareAndSet(..) => TreeOp::CompareAndSet {
                key,
                expected: self.expected.as_deref(),
                value,
            },
            TreeCall::Range(_, _, reverse, limit) => TreeOp::Range {
                from,
                to,
                reverse,
                limit,
            },
            TreeCall::Count(..) => TreeOp::Count { from, to },
            TreeCall::Ranks(start, end, reverse, limit) => TreeOp::RangeByRank {
                start,
                end,
                reverse,
                limit,
            },
            TreeCall::Pop(last, limit) => TreeOp::Pop { last, limit },
            TreeCall::RemoveRanks(start, end) => TreeOp::RemoveByRank { start, end },
            TreeCall::Push { front, exists, .. } => TreeOp::Push {
                front,
                exists,
                replaces: false,
                values: TreeValues::Slices(&parts.values),
            },
            TreeCall::InsertAt(rank) => TreeOp::InsertAt { rank, value: some },
            TreeCall::SetAt(rank) => TreeOp::SetAt { rank, value: some },
            TreeCall::Update { replaces, .. } => TreeOp::Update {
                changes: TreeChanges::Slices(&parts.changes),
                replaces,
            },
            TreeCall::GetMany { .. } => TreeOp::GetMany {
                keys: TreeValues::Slices(&parts.keys),
            },
            TreeCall::Slice(first, last, limit) => TreeOp::Slice { first, last, limit },
            TreeCall::Trim(first, last) => TreeOp::Trim { first, last },
            TreeCall::TakeAt(rank) => TreeOp::TakeAt { rank },
            TreeCall::Rotate(last) => TreeOp::Rotate { last },
            TreeCall::Draw(random, removes) => TreeOp::Draw { random, removes },
            TreeCall::Scored(call) => call.op(&parts.keys, &parts.scores),
        }
    }
}

/// The values that a push adds, in their order.
pub(crate) fn pushed(number: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |place| nth(number, place))
}

/// What an answer says to a call.
///
/// # Errors
/// It is none that this call may have.
pub(crate) fn understand(call: &Call, raw: Raw, lengths: &Lengths) -> Result<Answered, String> {
    let wrong = |raw: &Raw| format!("{call:?} was answered {raw:?}");
    match (call, raw) {
        (_, Raw::Plain(answered)) => Ok(answered),
        (Call::Get { .. } | Call::GetTree { .. }, Raw::Value(version, value)) => {
            Ok(Answered::Value(version, lengths.number_of(&value)?))
        }
        (Call::Tree { call, .. }, Raw::Value(version, bytes)) => {
            Ok(Answered::Tree(version, found(*call, &bytes, lengths)?))
        }
        (
            Call::Delete { .. }
            | Call::DeleteTree { .. }
            | Call::Put { .. }
            | Call::SetExpiry { .. }
            | Call::ExpireTree { .. },
            Raw::Deleted(drawn),
        ) => Ok(Answered::Deleted(drawn.ok_or("a delete drew no version")?)),
        (_, raw) => Err(wrong(&raw)),
    }
}

fn word(bytes: &[u8], place: usize) -> Result<u64, String> {
    let chunk = bytes.get(8 * place..).and_then(|rest| rest.first_chunk());
    chunk
        .map(|chunk| u64::from_le_bytes(*chunk))
        .ok_or_else(|| "a short answer".to_owned())
}

/// What the bytes of an answer say of a collection.
fn found(call: TreeCall, bytes: &[u8], lengths: &Lengths) -> Result<Found, String> {
    Ok(match call {
        TreeCall::Get(_) | TreeCall::Remove(_) | TreeCall::SetAt(_) => {
            Found::Value(lengths.number_of_element(bytes)?)
        }
        TreeCall::Insert(..) => Found::Before(match bytes.split_first() {
            Some((1, before)) => Some(lengths.number_of_element(before)?),
            _ => None,
        }),
        TreeCall::Len => {
            let ends = bytes.get(16..18).ok_or("a short answer")?;
            Found::Len(word(bytes, 0)?, ends[0], ends[1])
        }
        TreeCall::Rank(_) | TreeCall::Count(..) | TreeCall::Push { .. } | TreeCall::InsertAt(_) => {
            Found::Number(word(bytes, 0)?)
        }
        TreeCall::RemoveRanks(..) => {
            Found::Removed(word(bytes, 0)?, bytes.get(8).is_some_and(|&more| more != 0))
        }
        TreeCall::Update { .. } => Found::Updated([
            word(bytes, 0)?,
            word(bytes, 1)?,
            word(bytes, 2)?,
            word(bytes, 3)?,
        ]),
        TreeCall::Trim(..) => Found::Trimmed {
            removed: word(bytes, 0)?,
            kept: (word(bytes, 1)?, word(bytes, 2)?),
            more: word(bytes, 3)? != 0,
            left: word(bytes, 4)?,
        },
        TreeCall::CompareAndSet(..) => Found::Set,
        TreeCall::GetMany { .. } => Found::Many(many(bytes, lengths)?),
        TreeCall::Range(..)
        | TreeCall::Ranks(..)
        | TreeCall::Pop(..)
        | TreeCall::Slice(..)
        | TreeCall::TakeAt(_)
        | TreeCall::Rotate(_)
        | TreeCall::Draw(..) => {
            let (more, elements) = page(bytes, lengths)?;
            Found::Page(more, elements)
        }
        TreeCall::Scored(call) => found_of_scored(call, bytes, lengths)?,
    })
}

fn score(bytes: &[u8], place: usize) -> Result<i64, String> {
    word(bytes, place).map(|bits| whole(f64::from_bits(bits)))
}

/// What the bytes of an answer say of a scored map.
fn found_of_scored(call: ScoredCall, bytes: &[u8], lengths: &Lengths) -> Result<Found, String> {
    Ok(Found::Scored(match call {
        ScoredCall::Score { .. } | ScoredCall::ScoreOne { .. } => {
            let mut counts = [0; 6];
            for (place, count) in counts.iter_mut().enumerate() {
                *count = word(bytes, place)?;
            }
            ScoredFound::Made(counts, score(bytes, 6)?)
        }
        ScoredCall::ScoreOf { .. } => ScoredFound::Scores(each(bytes, |bytes| score(bytes, 0))?),
        ScoredCall::Value(_) => {
            let value = bytes.get(8..).ok_or("a short answer")?;
            ScoredFound::Value(score(bytes, 0)?, lengths.number_of_element(value)?)
        }
        ScoredCall::Rank(..) => ScoredFound::Rank(word(bytes, 0)?, score(bytes, 1)?),
        ScoredCall::Count(..) => return Ok(Found::Number(word(bytes, 0)?)),
        ScoredCall::Range { .. } => {
            let (more, elements) = page(bytes, lengths)?;
            return Ok(Found::Page(more, elements));
        }
        ScoredCall::Remove(..) => return found(TreeCall::RemoveRanks(0, 0), bytes, lengths),
        ScoredCall::Scan(_) => {
            let (more, members) = page_of(bytes, |key, value| {
                let order = value.first_chunk().ok_or("a short order")?;
                let score = score_of_order(u64::from_be_bytes(*order));
                let key = |place: usize| {
                    let word = key.get(place..).and_then(|rest| rest.first_chunk());
                    word.map(|word| u64::from_be_bytes(*word))
                };
                let (place, member) = key(0).zip(key(8)).ok_or("a short key")?;
                Ok((place, member, score))
            })?;
            ScoredFound::Placed(more, members)
        }
    }))
}

/// The numbers of values, where keys have one.
fn many(bytes: &[u8], lengths: &Lengths) -> Result<Vec<Option<u64>>, String> {
    each(bytes, |value| lengths.number_of_element(value))
}

/// What each value says, where there is one.
fn each<T>(
    bytes: &[u8],
    of: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<Vec<Option<T>>, String> {
    let mut values = Vec::new();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        if length == u32::MAX {
            values.push(None);
            rest = after;
            continue;
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (value, after) = after.split_at_checked(length).ok_or("a short answer")?;
        values.push(Some(of(value)?));
        rest = after;
    }
    Ok(values)
}

/// Whether a page says that there is more, and for each element its key and its value's number. A
/// key of a scored map is what [`scored_key`] says.
fn page(bytes: &[u8], lengths: &Lengths) -> Result<(bool, Vec<(u64, u64)>), String> {
    page_of(bytes, |key, value| {
        let first = |key: &[u8]| {
            let first = key.first_chunk();
            first.map_or(0, |first| u64::from_be_bytes(*first))
        };
        let key = match key.get(8..) {
            Some(member) if !member.is_empty() => {
                scored_key(score_of_order(first(key)), first(member))
            }
            _ => first(key),
        };
        Ok((key, lengths.number_of_element(value)?))
    })
}

/// Whether a page says that there is more, and what key and value of each element say.
fn page_of<T>(
    bytes: &[u8],
    of: impl Fn(&[u8], &[u8]) -> Result<T, String>,
) -> Result<(bool, Vec<T>), String> {
    let mut elements = Vec::new();
    let (more, mut rest) = bytes.split_first().ok_or("an empty page")?;
    while !rest.is_empty() {
        let lengths_here = word(rest, 0)?;
        let (key, value) = (lengths_here & 0xFFFF_FFFF, lengths_here >> 32);
        let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (key, value) = (length(key), length(value));
        let (here, after) = rest[8..]
            .split_at_checked(key + value)
            .ok_or("a short page")?;
        elements.push(of(&here[..key], &here[key..])?);
        rest = after;
    }
    Ok((*more != 0, elements))
}
