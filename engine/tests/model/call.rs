//! The messages of the model test: keys, values, calls and answers.

use farcore::{Answer, CasOutcome, Error, Operation, Transaction, TransactionOutcome, Version};

use crate::random::Random;

/// The content of a value, in two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) seed: u64,
    pub(crate) bytes: usize,
}

impl Content {
    pub(crate) fn random(random: &mut Random) -> Self {
        let bytes = match random.below(50) {
            0 => 20_000 + random.below(10_000),
            1 => 0,
            _ => random.below(1_501),
        };
        Self {
            seed: random.next(),
            bytes: bytes as usize,
        }
    }

    pub(crate) fn make(self) -> Vec<u8> {
        let mut random = Random(self.seed);
        let words = (0..self.bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes());
        words.take(self.bytes).collect()
    }
}

/// The client number of the counters' keys.
pub(crate) const SHARED: u8 = 255;

/// The key of a number: 1 to 200 bytes, all different. Counters have a common hash tag.
pub(crate) fn key_of(client: u8, number: u16) -> Vec<u8> {
    if client == SHARED {
        return format!("{{counters}}{number}").into_bytes();
    }
    let [low, high] = number.to_le_bytes();
    let mut key = vec![client];
    match number {
        0 => {}
        1..10 => key.push(low),
        _ => {
            key.extend([low, high]);
            let mut random = Random(u64::from(number));
            let padding = random.below(198);
            key.extend((0..padding).map(|_| random.next() as u8));
        }
    }
    key
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Get,
    Put(Content),
    Delete,
    Swap(Version, Content),
    /// A transaction that does the same.
    Transact(Version, Content),
}

impl Call {
    pub(crate) fn value(self) -> Vec<u8> {
        match self {
            Self::Put(content) | Self::Swap(_, content) | Self::Transact(_, content) => {
                content.make()
            }
            Self::Get | Self::Delete => Vec::new(),
        }
    }

    /// The transaction, if it is one.
    pub(crate) fn transaction<'a>(self, key: &'a [u8], value: &'a [u8]) -> Transaction<'a> {
        match self {
            Self::Transact(expected, _) => Transaction::new().expect(key, expected).put(key, value),
            _ => Transaction::new(),
        }
    }

    pub(crate) fn operation<'a>(
        self,
        key: &'a [u8],
        value: &'a [u8],
        transaction: &'a Transaction<'a>,
    ) -> Operation<'a> {
        match self {
            Self::Transact(..) => Operation::Transaction { transaction },
            Self::Get => Operation::Get { key },
            Self::Put(_) => Operation::Put { key, value },
            Self::Delete => Operation::Delete { key },
            Self::Swap(expected, _) => Operation::CompareAndSwap {
                key,
                expected,
                value,
            },
        }
    }
}

/// An answer, owned.
#[derive(Debug)]
pub(crate) enum Given {
    Value(Version, Vec<u8>),
    Absent,
    Stored(Version),
    Deleted,
    Mismatch(Version),
    Conflict(usize, Version),
    Failed(Error),
}

impl Given {
    pub(crate) fn of(answer: &Answer<'_>) -> Self {
        match answer {
            Answer::Value { version, value } => Self::Value(*version, value.to_vec()),
            Answer::Absent => Self::Absent,
            Answer::Stored { version } => Self::Stored(*version),
            Answer::Deleted => Self::Deleted,
            Answer::Mismatch { current } => Self::Mismatch(*current),
            Answer::Conflict(conflict) => Self::Conflict(conflict.place(), conflict.current()),
            Answer::Failed(error) => Self::Failed((*error).clone()),
        }
    }

    pub(crate) fn deleted(found: bool) -> Self {
        if found { Self::Deleted } else { Self::Absent }
    }

    pub(crate) fn swapped(swap: CasOutcome) -> Self {
        match swap {
            CasOutcome::Stored(version) => Self::Stored(version),
            CasOutcome::Mismatch(current) => Self::Mismatch(current),
        }
    }

    pub(crate) fn transacted(outcome: TransactionOutcome) -> Self {
        match outcome {
            TransactionOutcome::Committed { last } => Self::Stored(last),
            TransactionOutcome::Conflict { place, current } => Self::Conflict(place, current),
        }
    }

    pub(crate) fn short(&self) -> String {
        match self {
            Self::Value(version, bytes) => format!(
                "Value({version}, {} bytes {:?}..)",
                bytes.len(),
                &bytes[..bytes.len().min(8)]
            ),
            other => format!("{other:?}"),
        }
    }
}
