//! Why a request is refused before it is sent, and the limits of keys and values.

use crate::constants::KEY_BYTES_MAX;
use crate::error::{Error, Result};
use crate::message::change::CHANGE_BYTES;
use crate::message::operation::{OperationKind, RequestParts};

/// Why a submission was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No room now: poll, then retry.
    Full,
    /// The request is invalid; a retry fails as well.
    Error(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Checks the limits of keys and values.
#[inline]
pub(crate) fn check(parts: &RequestParts<'_>, value_bytes_max: usize) -> Result<()> {
    let key_fits = parts.key.len().wrapping_sub(1) < KEY_BYTES_MAX;
    if key_fits && parts.value.len() <= value_bytes_max {
        return Ok(());
    }
    Err(refusal(parts, value_bytes_max))
}

#[cold]
fn refusal(parts: &RequestParts<'_>, value_bytes_max: usize) -> Error {
    match parts.key.len() {
        0 => Error::KeyEmpty { max: KEY_BYTES_MAX },
        1..=KEY_BYTES_MAX => {
            // A change takes some bytes beside its value.
            let beside = match parts.kind {
                OperationKind::Change => CHANGE_BYTES,
                _ => 0,
            };
            Error::ValueTooLong {
                bytes: parts.value.len() - beside,
                max: value_bytes_max - beside,
            }
        }
        bytes => Error::KeyTooLong {
            bytes,
            max: KEY_BYTES_MAX,
        },
    }
}
