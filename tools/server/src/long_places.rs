//! How a command waits for one of the places that a shard has for long values that are written at
//! once. Meanwhile uploads that have stalled give theirs up ([`crate::evicting`]).

use std::time::{Duration, Instant};

use farcore::{Core, Error, Result};

use crate::long_input::LongInput;
use crate::shared::Shared;

/// How long a command waits for a place.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long it waits before it tries again.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// A command that writes a long value, which may have to wait for a place.
#[derive(Debug, Default)]
pub(crate) struct PlaceWait {
    /// Since when it waits, once it was refused.
    since: Option<Instant>,
}

impl PlaceWait {
    /// True, after a while, if the writing is to be begun again: it had no place, others are being
    /// written, its bytes still come, and it has not waited for [`WAIT_MAX`].
    pub(crate) async fn again<T>(
        &mut self,
        core: &Core,
        (shared, input): (&Shared, &LongInput),
        result: &Result<T>,
    ) -> bool {
        let Err(Error::LongValues {
            unfinished: 1.., ..
        }) = result
        else {
            return false;
        };
        let tried = Instant::now();
        let since = *self.since.get_or_insert(tried);
        loop {
            let now = Instant::now();
            if input.is_cut() || now - since >= WAIT_MAX {
                return false;
            }
            if now - tried >= RETRY_AFTER {
                return true;
            }
            shared.long_places.note(farcore_tuning::system_ms());
            core.yield_now().await;
        }
    }
}
