//! What a key would hold after operations that a client carries out in its own memory, by the rules
//! of a shard, before a [`Transaction`] commits the result.
//!
//! - I1: a draft is written to a transaction only if an operation has changed it, or has put a
//!   value whose time is past.

use crate::constants::VALUE_BYTES_MAX;
use crate::message::change::{Change, Circumstances, Condition, Current, Effect, Metadata, Reply};
use crate::message::expiry::Expiry;
use crate::message::operation::{Operation, Version};
use crate::message::outcome::Answer;
use crate::message::transaction::Transaction;

/// A value with its version and expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    version: Version,
    value: Vec<u8>,
    expiry_ms: Option<u64>,
}

/// What a key would hold after operations that a client carries out in its own memory.
///
/// Read the key's value, version and expiry, apply operations, and commit the result as a
/// [`Transaction`] that expects the version.
///
/// ```
/// use farcore::{Change, Draft, Operation, Transaction};
///
/// let mut draft = Draft::of(7, b"41".to_vec(), None);
/// let increment = Operation::Change { key: b"n", change: Change::Increment { by: 1 } };
/// let sum = draft.apply(&increment, 0, |answer| answer.value().to_vec());
/// assert_eq!(sum.as_deref(), Some(&b"42"[..]));
/// let transaction = draft.write_to(b"n", Transaction::new().expect(b"n", 7));
/// assert_eq!(transaction.keys().count(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    held: Option<Held>,
    is_changed: bool,
}

impl Draft {
    /// An absent key.
    #[must_use]
    pub fn absent() -> Self {
        Self::default()
    }

    /// A key that was read: its version, its value, and when it expires, in milliseconds since
    /// 1970.
    #[must_use]
    pub fn of(version: Version, value: Vec<u8>, expiry_ms: Option<u64>) -> Self {
        let held = Held {
            version,
            value,
            expiry_ms,
        };
        Self {
            held: Some(held),
            is_changed: false,
        }
    }

    /// The version that the key has now in the client's memory; `0` if it is absent there. Before
    /// an operation was applied it is the version that was read.
    #[must_use]
    pub fn version(&self) -> Version {
        self.held.as_ref().map_or(0, |held| held.version)
    }

    /// Carries an operation out at a time in milliseconds since 1970, and visits its answer, whose
    /// version is the one that was read. `None`, and nothing changes, for an operation that is not
    /// of a single plain value; its key is not examined.
    pub fn apply<T>(
        &mut self,
        operation: &Operation<'_>,
        now_ms: u64,
        visit: impl FnOnce(&Answer<'_>) -> T,
    ) -> Option<T> {
        let is_past = |held: &mut Held| held.expiry_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if self.held.as_mut().is_some_and(is_past) {
            self.held = None;
        }
        let change = match *operation {
            Operation::Get { .. } | Operation::Inspect { .. } | Operation::GetRange { .. } => {
                return Some(self.read(operation, visit));
            }
            Operation::Put { value, .. } => Change::Put {
                value,
                expiry: Expiry::Never,
                condition: Condition::Always,
                previous: false,
            },
            Operation::Delete { .. } => Change::Delete {
                condition: Condition::Always,
                previous: false,
            },
            Operation::Change { change, .. } => change,
            _ => return None,
        };
        Some(self.change(&change, now_ms, visit))
    }

    fn read<T>(&self, operation: &Operation<'_>, visit: impl FnOnce(&Answer<'_>) -> T) -> T {
        let Some(held) = &self.held else {
            return visit(&Answer::Absent);
        };
        let (version, value) = (held.version, &held.value[..]);
        let place = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
        match *operation {
            Operation::Inspect { .. } => {
                let metadata = Metadata::encode(value.len(), held.expiry_ms);
                visit(&Answer::Value {
                    version,
                    value: &metadata,
                })
            }
            Operation::GetRange { offset, bytes, .. } => {
                let start = place(offset).min(value.len());
                let end = start.saturating_add(place(bytes)).min(value.len());
                let value = &value[start..end];
                visit(&Answer::Value { version, value })
            }
            _ => visit(&Answer::Value { version, value }),
        }
    }

    fn change<T>(
        &mut self,
        change: &Change<'_>,
        now_ms: u64,
        visit: impl FnOnce(&Answer<'_>) -> T,
    ) -> T {
        let before = self.held.take();
        let current = before.as_ref().map(|held| Current {
            version: held.version,
            value: &held.value,
            expiry_ms: held.expiry_ms,
        });
        let version = current.map_or(0, |current| current.version);
        let circumstances = Circumstances {
            value_bytes_max: VALUE_BYTES_MAX,
            now_ms,
        };
        let mut scratch = Vec::new();
        let decision = match change.decide(current.as_ref(), circumstances, &mut scratch) {
            Ok(decision) => decision,
            Err(error) => {
                self.held = before;
                return visit(&Answer::Failed(&error));
            }
        };
        let length = Metadata::encode(decision.value.len(), decision.expiry_ms);
        let value_of = |value| Answer::Value { version, value };
        let result = visit(&match decision.reply {
            Reply::Stored => Answer::Stored { version },
            Reply::Deleted => Answer::Deleted,
            Reply::Absent => Answer::Absent,
            Reply::Mismatch => Answer::Mismatch { current: version },
            Reply::Previous => current.map_or(Answer::Absent, |current| value_of(current.value)),
            Reply::New => value_of(decision.value),
            Reply::Length => value_of(&length),
        });
        let is_put = matches!(change, Change::Put { .. }) && decision.reply != Reply::Mismatch;
        self.is_changed |= is_put || decision.effect != Effect::None;
        self.held = match decision.effect {
            Effect::None => before,
            Effect::Delete => None,
            Effect::Store => Some(Held {
                version,
                value: decision.value.to_vec(),
                expiry_ms: decision.expiry_ms,
            }),
        };
        result
    }

    /// Adds what the operations have changed to a transaction: nothing, a put or a delete.
    pub fn write_to<'a>(&'a self, key: &'a [u8], transaction: Transaction<'a>) -> Transaction<'a> {
        if !self.is_changed {
            return transaction;
        }
        match &self.held {
            None => transaction.delete(key),
            Some(held) => {
                let expiry = held.expiry_ms.map_or(Expiry::Never, Expiry::At);
                transaction.put_until(key, &held.value, expiry)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"k";

    /// Applies a change and returns the answer as text.
    fn change(draft: &mut Draft, change: Change<'_>, now_ms: u64) -> String {
        let operation = Operation::Change { key: KEY, change };
        let answer = draft.apply(&operation, now_ms, |answer| match answer {
            Answer::Value { value, .. } => String::from_utf8_lossy(value).into_owned(),
            other => format!("{other:?}"),
        });
        answer.expect("a change has a rule")
    }

    fn written(draft: &Draft) -> Transaction<'_> {
        draft.write_to(KEY, Transaction::new())
    }

    #[test]
    fn reads_change_nothing() {
        let mut draft = Draft::of(3, b"Hello".to_vec(), Some(100));
        let range = Operation::GetRange {
            key: KEY,
            offset: 1,
            bytes: 9,
        };
        let value = draft.apply(&range, 5, |answer| answer.value().to_vec());
        assert_eq!(value.as_deref(), Some(&b"ello"[..]));
        let inspect = Operation::Inspect { key: KEY };
        let metadata = draft.apply(&inspect, 5, |answer| match *answer {
            Answer::Value { version, value } => Metadata::decode(version, value),
            _ => None,
        });
        let expected = Metadata {
            version: 3,
            length: 5,
            expiry_ms: Some(100),
            collection: None,
        };
        assert_eq!(metadata, Some(Some(expected)));
        assert_eq!(written(&draft), Transaction::new());
    }

    #[test]
    fn an_expired_key_is_absent_and_is_not_written() {
        let mut draft = Draft::of(3, b"x".to_vec(), Some(100));
        let get = Operation::Get { key: KEY };
        let is_absent = |answer: &Answer<'_>| *answer == Answer::Absent;
        assert_eq!(draft.apply(&get, 99, is_absent), Some(false));
        assert_eq!(draft.apply(&get, 100, is_absent), Some(true));
        assert_eq!(written(&draft), Transaction::new());
    }

    #[test]
    fn changes_see_those_before_and_keep_the_expiry() {
        let mut draft = Draft::of(3, b"41".to_vec(), Some(100));
        let increment = Change::Increment { by: 1 };
        assert_eq!(change(&mut draft, increment, 5), "42");
        assert_eq!(change(&mut draft, increment, 5), "43");
        assert_eq!(
            written(&draft),
            Transaction::new().put_until(KEY, b"43", Expiry::At(100))
        );
        let delete = Operation::Delete { key: KEY };
        assert_eq!(draft.apply(&delete, 5, |_| ()), Some(()));
        assert_eq!(written(&draft), Transaction::new().delete(KEY));
        assert_eq!(change(&mut draft, increment, 5), "1");
        assert_eq!(written(&draft), Transaction::new().put(KEY, b"1"));
    }

    #[test]
    fn a_failed_change_leaves_the_value() {
        let mut draft = Draft::of(3, b"text".to_vec(), None);
        let failed = change(&mut draft, Change::Increment { by: 1 }, 5);
        assert!(failed.starts_with("Failed"), "{failed}");
        assert_eq!(written(&draft), Transaction::new());
        let append = Change::Append { tail: b"s" };
        change(&mut draft, append, 5);
        assert_eq!(written(&draft), Transaction::new().put(KEY, b"texts"));
    }

    #[test]
    fn operations_of_several_keys_have_no_rule() {
        let transaction = Transaction::new().put(KEY, b"1");
        let operation = Operation::Transaction {
            transaction: &transaction,
        };
        assert_eq!(Draft::absent().apply(&operation, 0, |_| ()), None);
    }
}
