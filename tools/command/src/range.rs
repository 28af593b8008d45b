//! The error of a setting that is out of its range.
//!
//! Every check of a flag ends in this error, so all of them read alike: the flag, its value, what
//! it must be.

/// A setting that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flag} is {value}: {limit}")]
pub struct RangeError {
    /// The flag, or what the setting is called where no flag sets it.
    pub flag: &'static str,
    /// The value given.
    pub value: String,
    /// What it must be, and the remedy where that is not obvious.
    pub limit: String,
}

impl RangeError {
    /// The error of a flag with a value, which names what the value must be.
    #[must_use]
    pub fn new(flag: &'static str, value: impl ToString, limit: impl Into<String>) -> Self {
        Self {
            flag,
            value: value.to_string(),
            limit: limit.into(),
        }
    }
}
