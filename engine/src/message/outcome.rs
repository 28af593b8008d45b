//! An answer that outlives the place it came from.

use crate::error::Error;
use crate::message::operation::Answer;

/// An answer that outlives the place it came from.
#[derive(Debug)]
pub(crate) enum OwnedAnswer {
    Value(u64, Vec<u8>),
    Absent,
    Stored(u64),
    Deleted,
    Mismatch(u64),
    Failed(Error),
}

impl OwnedAnswer {
    // Inlined, so that an answer that is not kept need not lie in memory.
    #[inline(always)]
    pub(crate) fn of(answer: &Answer<'_>) -> Self {
        match answer {
            Answer::Value { version, value } => Self::Value(*version, value.to_vec()),
            Answer::Absent => Self::Absent,
            Answer::Stored { version } => Self::Stored(*version),
            Answer::Deleted => Self::Deleted,
            Answer::Mismatch { current } => Self::Mismatch(*current),
            Answer::Failed(error) => Self::Failed((*error).clone()),
        }
    }

    #[inline]
    pub(crate) fn answer(&self) -> Answer<'_> {
        match self {
            Self::Value(version, value) => Answer::Value {
                version: *version,
                value,
            },
            Self::Absent => Answer::Absent,
            Self::Stored(version) => Answer::Stored { version: *version },
            Self::Deleted => Answer::Deleted,
            Self::Mismatch(current) => Answer::Mismatch { current: *current },
            Self::Failed(error) => Answer::Failed(error),
        }
    }
}
