//! How a command waits for one of the places that a shard has for long values that are written at
//! once. Meanwhile uploads that have stalled give theirs up ([`crate::turn::evicting`]).

use std::time::{Duration, Instant};

use farcore::{Core, Error, Result};

use crate::long::input::LongInput;
use crate::memory::Want;

/// How long a command waits for a place.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// How long it waits before it tries again.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// Which shards' places are wanted.
#[derive(Debug)]
pub(crate) struct LongPlaces {
    of_shards: Box<[Want]>,
    any: Want,
}

impl LongPlaces {
    /// Free places of all shards.
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            of_shards: (0..shards).map(|_| Want::default()).collect(),
            any: Want::default(),
        }
    }

    /// Notes that a value had no place, if that is why it failed. An upload may give one up.
    pub(crate) fn note<T>(&self, result: &Result<T>) {
        let Err(Error::LongValues { shard, .. }) = result else {
            return;
        };
        let now_ms = farcore_tuning::system_ms();
        self.any.note(now_ms);
        if let Some(want) = self.of_shards.get(usize::from(*shard)) {
            want.note(now_ms);
        }
    }

    /// True if a place was wanted a moment ago.
    #[inline]
    pub(crate) fn is_any_wanted(&self, now_ms: u64) -> bool {
        self.any.is_recent(now_ms)
    }

    /// True if it helps that an upload ends: memory is wanted, or a place in its shard.
    pub(crate) fn need(&self, upload: &LongInput, is_memory_wanted: bool, now_ms: u64) -> bool {
        let want = upload.shard().and_then(|shard| self.of_shards.get(shard));
        is_memory_wanted || want.is_some_and(|want| want.is_recent(now_ms))
    }
}

/// A command that writes a long value, which may have to wait for a place.
#[derive(Debug, Default)]
pub(crate) struct PlaceWait {
    /// Since when it waits, once it was refused.
    since: Option<Instant>,
}

impl PlaceWait {
    /// True, after a while, if the writing is to be begun again: it had no place, others are being
    /// written, its bytes still come, and it has not waited for [`WAIT_MAX`]. Under a section none
    /// of the others can end.
    pub(crate) async fn again<T>(
        &mut self,
        core: &Core,
        (places, input): (&LongPlaces, &LongInput),
        result: &Result<T>,
    ) -> bool {
        let Err(Error::LongValues {
            unfinished: 1.., ..
        }) = result
        else {
            return false;
        };
        if core.is_under_section() {
            return false;
        }
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
            places.note(result);
            core.yield_now().await;
        }
    }
}
