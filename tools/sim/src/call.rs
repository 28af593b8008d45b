//! What clients call and what is answered, as the simulation keeps it.

use farcore::{
    Answer, Change, Condition, Error, Expiry, ExpiryCondition, Operation, Transaction, TreeBound,
    TreeCondition, TreeGuard, TreeOp, TreeValues,
};
use farcore_tuning::simulated;

use crate::random::Random;

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
    Push(bool, u64),
    InsertAt(u64),
    SetAt(u64),
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
    },
    DeleteTree {
        tree: u64,
    },
    /// Lists all keys, in pages of about this number of entries.
    Scan {
        entries: usize,
    },
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// For each key that was listed its name, its version and, if it was read, its value's number;
    /// then how many could not be read.
    Scanned(Vec<(String, u64, Option<u64>)>, u64),
    /// The name of an error.
    Failed(String),
}

/// What was found in a collection.
#[derive(Clone, PartialEq, Eq, Debug)]
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
            Answer::Failed(error) => Answered::Failed(name_of(error)),
        })
    }

    pub(crate) fn failed(error: &Error) -> Self {
        Self::Plain(Answered::Failed(name_of(error)))
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

/// The bytes of a value: its number, then the mark, to a length that the number decides.
fn bytes_of(value: u64, bytes_max: u64) -> Vec<u8> {
    let bytes = Random::new(value).below(bytes_max.max(1));
    let mut all = value.to_le_bytes().to_vec();
    all.extend(
        MARK.iter()
            .cycle()
            .take(usize::try_from(bytes).unwrap_or(0)),
    );
    all
}

impl Lengths {
    /// The bytes of a key's value.
    pub(crate) fn value(&self, value: u64) -> Vec<u8> {
        let is_long = value & LONG != 0;
        bytes_of(
            value,
            if is_long {
                self.long_max
            } else {
                self.value_max
            },
        )
    }

    fn element(&self, value: u64) -> Vec<u8> {
        bytes_of(value, self.element_max)
    }

    /// The number of a value that was read.
    ///
    /// # Errors
    /// The bytes are none that were stored.
    pub(crate) fn number_of(&self, bytes: &[u8]) -> Result<u64, String> {
        Self::checked(bytes, |value| self.value(value))
    }

    fn number_of_element(&self, bytes: &[u8]) -> Result<u64, String> {
        Self::checked(bytes, |value| self.element(value))
    }

    fn checked(bytes: &[u8], stored: impl FnOnce(u64) -> Vec<u8>) -> Result<u64, String> {
        let first = bytes.first_chunk().ok_or("a short value was read")?;
        let value = u64::from_le_bytes(*first);
        if stored(value) != bytes {
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
            Call::Get { .. } => Operation::Get { key },
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
            Call::SetExpiry { expires_ms, .. } => {
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
            Call::Tree { call, .. } => return Some(self.change_tree(*call, send)),
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

    fn change_tree<R>(&self, call: TreeCall, send: impl FnOnce(Operation<'_>) -> R) -> R {
        let bytes = self.tree_bytes(call);
        let values = bytes.values();
        let op = bytes.op(call, &values);
        send(Operation::Tree {
            key: self.name(),
            op,
            guard: TreeGuard::default(),
        })
    }

    /// The bytes that an operation on a collection names.
    pub(crate) fn tree_bytes(&self, call: TreeCall) -> TreeBytes {
        let (one, other) = match call {
            TreeCall::Get(element)
            | TreeCall::Rank(element)
            | TreeCall::Insert(element, _)
            | TreeCall::Remove(element) => (element, 0),
            TreeCall::Range(from, to, ..) | TreeCall::Count(from, to) => (from, to),
            _ => (0, 0),
        };
        let count = match call {
            TreeCall::Push(_, count) => count,
            _ => 1,
        };
        let values = (0..count).map(|place| self.lengths.element(nth(self.number, place)));
        TreeBytes {
            one: one.to_be_bytes(),
            other: other.to_be_bytes(),
            values: values.collect(),
        }
    }
}

/// Keys and values of an operation on a collection.
#[derive(Debug)]
pub(crate) struct TreeBytes {
    one: [u8; 8],
    other: [u8; 8],
    values: Vec<Vec<u8>>,
}

impl TreeBytes {
    pub(crate) fn values(&self) -> Vec<&[u8]> {
        self.values.iter().map(Vec::as_slice).collect()
    }

    /// The operation, of [`TreeBytes::values`].
    pub(crate) fn op<'a>(&'a self, call: TreeCall, values: &'a [&'a [u8]]) -> TreeOp<'a> {
        let (key, value): (&[u8], &[u8]) = (&self.one, values.first().copied().unwrap_or(&[]));
        let (from, to) = (TreeBound::Included(key), TreeBound::Excluded(&self.other));
        match call {
            TreeCall::Len => TreeOp::Len,
            TreeCall::Get(_) => TreeOp::Get { key },
            TreeCall::Rank(_) => TreeOp::Rank { key },
            TreeCall::Insert(_, condition) => TreeOp::Insert {
                key,
                value,
                condition,
            },
            TreeCall::Remove(_) => TreeOp::Remove { key },
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
            TreeCall::Push(front, _) => TreeOp::Push {
                front,
                exists: false,
                replaces: false,
                values: TreeValues::Slices(values),
            },
            TreeCall::InsertAt(rank) => TreeOp::InsertAt { rank, value },
            TreeCall::SetAt(rank) => TreeOp::SetAt {
                rank: i64::try_from(rank).unwrap_or(i64::MAX),
                value,
            },
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
        (Call::Get { .. }, Raw::Value(version, value)) => {
            Ok(Answered::Value(version, lengths.number_of(&value)?))
        }
        (Call::Tree { call, .. }, Raw::Value(version, bytes)) => {
            Ok(Answered::Tree(version, found(*call, &bytes, lengths)?))
        }
        (Call::Delete { .. } | Call::DeleteTree { .. } | Call::Put { .. }, Raw::Deleted(drawn))
        | (Call::SetExpiry { .. }, Raw::Deleted(drawn)) => {
            Ok(Answered::Deleted(drawn.ok_or("a delete drew no version")?))
        }
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
        TreeCall::Len
        | TreeCall::Rank(_)
        | TreeCall::Count(..)
        | TreeCall::Push(..)
        | TreeCall::InsertAt(_) => Found::Number(word(bytes, 0)?),
        TreeCall::RemoveRanks(..) => {
            Found::Removed(word(bytes, 0)?, bytes.get(8).is_some_and(|&more| more != 0))
        }
        TreeCall::Range(..) | TreeCall::Ranks(..) | TreeCall::Pop(..) => {
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
                let element = here[..key]
                    .first_chunk()
                    .map_or(0, |key| u64::from_be_bytes(*key));
                elements.push((element, lengths.number_of_element(&here[key..])?));
                rest = after;
            }
            Found::Page(*more != 0, elements)
        }
    })
}
