//! When a key expires, and under which condition an expiry is set.

/// When a key expires: from that millisecond on it is absent.
///
/// The engine's clock follows the system's clock forwards and never goes back, so a key that has
/// expired stays absent when the system's clock is set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// When the key would have expired before; never if it was absent.
    Keep,
    /// At a time, in milliseconds since 1970. A time in the past deletes the key.
    At(u64),
    /// This many milliseconds from now. 0 deletes the key.
    In(u64),
}

impl Expiry {
    /// As it is sent: its kind, and the time or the milliseconds.
    pub(super) fn encode(self) -> (u8, u64) {
        match self {
            Self::Never => (0, 0),
            Self::Keep => (1, 0),
            Self::At(at_ms) => (2, at_ms),
            Self::In(milliseconds) => (3, milliseconds),
        }
    }

    /// What [`Expiry::encode`] has encoded; `None` if there is no such kind.
    pub(super) fn decode(kind: u8, milliseconds: u64) -> Option<Self> {
        Some(match kind {
            0 => Self::Never,
            1 => Self::Keep,
            2 => Self::At(milliseconds),
            3 => Self::In(milliseconds),
            _ => return None,
        })
    }

    /// The time, in milliseconds since 1970.
    pub(crate) fn resolve(self, before_ms: Option<u64>, now_ms: u64) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Keep => before_ms,
            // The greatest number stands for no expiry where metadata is encoded.
            Self::At(at_ms) => Some(at_ms.min(u64::MAX - 1)),
            Self::In(milliseconds) => Some(now_ms.saturating_add(milliseconds).min(u64::MAX - 1)),
        }
    }
}

/// What a key's expiry must be for another to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ExpiryCondition {
    /// Anything.
    #[default]
    Always = 0,
    /// The key does not expire.
    Unset = 1,
    /// The key expires.
    Set = 2,
    /// The new expiry is later; a key that does not expire counts as latest.
    Later = 3,
    /// The new expiry is earlier.
    Earlier = 4,
    /// The key expires, and the new expiry is earlier.
    EarlierIfSet = 5,
}

impl ExpiryCondition {
    pub(super) fn holds(self, before_ms: Option<u64>, after_ms: Option<u64>) -> bool {
        let (before, after) = (before_ms.unwrap_or(u64::MAX), after_ms.unwrap_or(u64::MAX));
        match self {
            Self::Always => true,
            Self::Unset => before_ms.is_none(),
            Self::Set => before_ms.is_some(),
            Self::Later => after > before,
            Self::Earlier => after < before,
            Self::EarlierIfSet => before_ms.is_some() && after < before,
        }
    }

    pub(super) fn of(code: u8) -> Option<Self> {
        let all = [
            Self::Always,
            Self::Unset,
            Self::Set,
            Self::Later,
            Self::Earlier,
            Self::EarlierIfSet,
        ];
        all.get(usize::from(code)).copied()
    }
}
