//! Time as the databases and answers have it.

use std::time::Duration;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    i64::try_from(farcore_tuning::system_ms()).unwrap_or(i64::MAX)
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
