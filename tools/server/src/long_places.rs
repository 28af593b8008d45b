//! How a command waits for one of the places that a shard has for long values that are written at
//! once. Meanwhile uploads that have stalled give theirs up ([`crate::evicting`]).

use farcore::{Core, Error, Result};

use crate::shared::Shared;

/// How long a command waits for a place, in milliseconds.
const WAIT_MS: u64 = 5000;
/// How long it waits before it tries again, in milliseconds.
const RETRY_MS: u64 = 5;

/// A command that writes a long value, which may have to wait for a place.
#[derive(Debug, Default)]
pub(crate) struct PlaceWait {
    /// Until when it waits, in milliseconds since 1970; 0 before it was refused.
    until_ms: u64,
}

impl PlaceWait {
    /// True, after a while, if the writing is to be begun again: it had no place, others are being
    /// written, and it has not waited for [`WAIT_MS`].
    pub(crate) async fn again<T>(
        &mut self,
        core: &Core,
        shared: &Shared,
        result: &Result<T>,
    ) -> bool {
        let Err(Error::LongValues { unfinished, .. }) = result else {
            return false;
        };
        let now_ms = farcore_tuning::system_ms();
        if self.until_ms == 0 {
            self.until_ms = now_ms + WAIT_MS;
        }
        if *unfinished == 0 || now_ms >= self.until_ms {
            return false;
        }
        let retry_ms = now_ms + RETRY_MS;
        loop {
            let now_ms = farcore_tuning::system_ms();
            if now_ms >= retry_ms {
                return true;
            }
            shared.long_places.note(now_ms);
            core.yield_now().await;
        }
    }
}
