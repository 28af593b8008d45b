//! The phases: which keys each one visits, what it does to them, and what must be stored
//! afterwards.
//!
//! Pure functions of the key's index; nothing is remembered between phases. Sets are regular, so
//! that the n-th key of each is computed without a search:
//! - *all*: 0, 1, 2, ...
//! - *updated*: one key in each block of ten, at a place that depends on the block
//! - *deleted*: the first ten keys of each block of twelve

use serde::{Deserialize, Serialize};

use crate::record::{Generation, Generator, Shape, below, mix};

const UPDATE_BLOCK: u64 = 10;
const DELETE_BLOCK: u64 = 12;
const DELETE_COUNT: u64 = 10;

/// One phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Write all keys.
    Write,
    /// Read and verify all in insertion order.
    Verify,
    /// Write all again: new contents, same sizes.
    Rewrite,
    /// Verify all.
    Verify2,
    /// Write a tenth with other sizes.
    Update,
    /// Verify all.
    Verify3,
    /// Delete ten keys of twelve.
    Delete,
    /// Read those: all absent.
    Absent,
    /// Write those again, 80 to 256 bytes.
    Reinsert,
    /// Verify all.
    Verify4,
    /// Three reads to one write over the keys of all threads, skewed as the plan states.
    Hot,
    /// YCSB: write the records.
    Load,
    /// YCSB: the transactions.
    Transactions,
    /// Replay of a trace.
    Replay,
    /// `operations`: one kind of request to every key.
    Single(Single),
}

/// A kind of request that a phase of `operations` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Single {
    /// A put of a value of the same length.
    Put,
    /// A put of a value of the same length, if the key exists.
    PutIf,
    /// A put of a value of the same length, if the key has the version that the client knows.
    CompareAndSwap,
    /// A get of the value.
    Get,
    /// A get of its first 16 bytes.
    GetRange,
    /// A put of a number of 8 digits.
    PutNumber,
    /// An increment of that.
    Increment,
    /// An append of 16 bytes to a value that gets longer.
    Append,
    /// A put of a key that is absent.
    Insert,
    /// A delete of that.
    Delete,
}

/// The kinds of requests, in the order of a round.
pub const SINGLES: [Single; 10] = [
    Single::Put,
    Single::PutIf,
    Single::CompareAndSwap,
    Single::Get,
    Single::GetRange,
    Single::PutNumber,
    Single::Increment,
    Single::Append,
    Single::Insert,
    Single::Delete,
];

/// Rounds of `operations` that count; one before them writes the keys.
pub const ROUNDS: usize = 5;

/// The phases of `operations`: round after round, so that a slow spell of the machine affects all
/// kinds of requests alike.
pub const OPERATIONS: [Phase; (ROUNDS + 1) * SINGLES.len()] = {
    let mut phases = [Phase::Single(Single::Put); (ROUNDS + 1) * SINGLES.len()];
    let mut place = 0;
    while place < phases.len() {
        phases[place] = Phase::Single(SINGLES[place % SINGLES.len()]);
        place += 1;
    }
    phases
};

impl Single {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::PutIf => "put_if",
            Self::CompareAndSwap => "compare_and_swap",
            Self::Get => "get",
            Self::GetRange => "get_range",
            Self::PutNumber => "put of 8 bytes",
            Self::Increment => "increment",
            Self::Append => "append",
            Self::Insert => "insert",
            Self::Delete => "delete",
        }
    }

    /// What its speed is compared with.
    #[must_use]
    pub const fn base(self) -> Option<Self> {
        match self {
            Self::Put | Self::Get => None,
            Self::GetRange => Some(Self::Get),
            Self::Increment => Some(Self::PutNumber),
            _ => Some(Self::Put),
        }
    }

    /// Whether it changes its key.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::GetRange)
    }

    /// Whether it carries a value that is made for each request.
    #[inline]
    #[must_use]
    pub const fn has_value(self) -> bool {
        matches!(
            self,
            Self::Put | Self::PutIf | Self::CompareAndSwap | Self::Append | Self::Insert
        )
    }

    /// The number of the set of keys that it requests.
    #[inline]
    #[must_use]
    pub const fn set(self) -> u64 {
        match self {
            Self::Put | Self::PutIf | Self::CompareAndSwap | Self::Get | Self::GetRange => 0,
            Self::PutNumber | Self::Increment => 1,
            Self::Append => 2,
            Self::Insert | Self::Delete => 3,
        }
    }
}

/// The phases of the contest, in order.
pub const CONTEST: [Phase; 11] = [
    Phase::Write,
    Phase::Verify,
    Phase::Rewrite,
    Phase::Verify2,
    Phase::Update,
    Phase::Verify3,
    Phase::Delete,
    Phase::Absent,
    Phase::Reinsert,
    Phase::Verify4,
    Phase::Hot,
];

/// The phases of a YCSB run, in order.
pub const YCSB: [Phase; 2] = [Phase::Load, Phase::Transactions];

/// The phases of a replay.
pub const TRACE: [Phase; 1] = [Phase::Replay];

/// What a phase does to each of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write what must be stored after the phase.
    Put,
    /// Read and compare.
    Get,
    /// Delete.
    Delete,
}

impl Phase {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Verify => "verify",
            Self::Rewrite => "rewrite",
            Self::Verify2 => "verify2",
            Self::Update => "update",
            Self::Verify3 => "verify3",
            Self::Delete => "delete",
            Self::Absent => "absent",
            Self::Reinsert => "reinsert",
            Self::Verify4 => "verify4",
            Self::Hot => "hot",
            Self::Load => "load",
            Self::Transactions => "transactions",
            Self::Replay => "replay",
            Self::Single(single) => single.name(),
        }
    }

    /// What the phase does to each key; the mixed phases decide for each request.
    #[must_use]
    pub const fn action(self) -> Action {
        match self {
            Self::Write | Self::Rewrite | Self::Update | Self::Reinsert | Self::Load => Action::Put,
            Self::Delete => Action::Delete,
            _ => Action::Get,
        }
    }

    /// The number of a thread's `keys` that the phase visits.
    #[must_use]
    pub fn steps(self, keys: u64) -> u64 {
        match self {
            Self::Update => {
                let tail = keys % UPDATE_BLOCK;
                keys / UPDATE_BLOCK + u64::from(update_place(keys / UPDATE_BLOCK) < tail)
            }
            Self::Delete | Self::Absent | Self::Reinsert => {
                keys / DELETE_BLOCK * DELETE_COUNT + (keys % DELETE_BLOCK).min(DELETE_COUNT)
            }
            _ => keys,
        }
    }

    /// The key that the phase visits at a step.
    #[inline]
    #[must_use]
    pub fn key_at(self, step: u64) -> u64 {
        match self {
            Self::Update => step * UPDATE_BLOCK + update_place(step),
            Self::Delete | Self::Absent | Self::Reinsert => {
                step / DELETE_COUNT * DELETE_BLOCK + step % DELETE_COUNT
            }
            _ => step,
        }
    }

    /// The value that must be stored for a thread's key after the phase; `None` if absent.
    #[inline]
    #[must_use]
    pub fn stored(self, generator: &Generator, key_word: u64, key: u64) -> Option<Shape> {
        let generation = match self {
            Self::Write
            | Self::Verify
            | Self::Load
            | Self::Transactions
            | Self::Replay
            | Self::Single(_) => Generation::Written,
            Self::Rewrite | Self::Verify2 => Generation::Rewritten,
            Self::Update | Self::Verify3 => updated(key),
            Self::Delete | Self::Absent if is_deleted(key) => return None,
            Self::Delete | Self::Absent => updated(key),
            Self::Reinsert | Self::Verify4 | Self::Hot if is_deleted(key) => Generation::Reinserted,
            Self::Reinsert | Self::Verify4 | Self::Hot => updated(key),
        };
        Some(generator.shape(key_word, generation))
    }
}

#[inline]
fn updated(key: u64) -> Generation {
    if key % UPDATE_BLOCK == update_place(key / UPDATE_BLOCK) {
        Generation::Updated
    } else {
        Generation::Rewritten
    }
}

#[inline]
fn update_place(block: u64) -> u64 {
    below(mix(block ^ 0x7570_6461_7465), UPDATE_BLOCK)
}

#[inline]
const fn is_deleted(key: u64) -> bool {
    key % DELETE_BLOCK < DELETE_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_visit_exactly_the_keys_of_the_set() {
        for keys in [1, 9, 10, 11, 12, 13, 119, 120, 1001] {
            let visited = |phase: Phase| -> Vec<u64> {
                (0..phase.steps(keys))
                    .map(|step| phase.key_at(step))
                    .collect()
            };
            let all: Vec<u64> = (0..keys).collect();
            assert_eq!(visited(Phase::Verify2), all);
            let deleted: Vec<u64> = all.iter().copied().filter(|&key| is_deleted(key)).collect();
            assert_eq!(visited(Phase::Absent), deleted);
            let changed: Vec<u64> = all
                .iter()
                .copied()
                .filter(|&key| updated(key) == Generation::Updated)
                .collect();
            assert_eq!(visited(Phase::Update), changed);
        }
    }

    #[test]
    fn a_deleted_key_is_absent_until_it_is_written_again() {
        let generator = Generator::new(1);
        let stored = |phase: Phase, key| phase.stored(&generator, generator.key_word(key), key);
        assert_eq!(stored(Phase::Absent, 0), None);
        assert!(stored(Phase::Absent, 11).is_some());
        assert_eq!(stored(Phase::Verify4, 0).map(|shape| shape.nonce), Some(4));
        assert_eq!(stored(Phase::Verify4, 11), stored(Phase::Verify3, 11));
        assert_ne!(stored(Phase::Verify, 5), stored(Phase::Verify2, 5));
    }
}
