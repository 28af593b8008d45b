//! When the keys of a replay may have expired, so that an absent key is judged.
//!
//! A time to live counts from the moment at which the engine carries a write out. The replay knows
//! when it sent the write, which is earlier, by its own clock. So a key is absent rightly from the
//! time to live after the write was sent on, less [`SLACK_MS`]: a core may be kept off its
//! processor between a reading of its clock and the write.
//!
//! I1: an absent key of which no write with a time to live was sent is judged wrong. I2: after a
//! touch, the earlier of both times counts, since the key may have expired before. After
//!     a put, only what was sent before it may be judged leniently.

use farcore::Expiry;

/// How much earlier than expected a key may expire, in milliseconds.
pub(super) const SLACK_MS: u64 = 1_000;
/// In place of a time: the key does not expire.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Life {
    /// The version that the latest put stored.
    version: u32,
    /// A write with a time to live was sent.
    expires: bool,
    /// When it may expire first, in milliseconds of the replay's clock.
    earliest_ms: u64,
}

/// The keys of a script, by number. 16 bytes for each.
#[derive(Debug)]
pub(super) struct Lives(Box<[Life]>);

impl Lives {
    pub(super) fn new(keys: usize) -> Self {
        let unwritten = Life {
            version: 0,
            expires: false,
            earliest_ms: NEVER,
        };
        Self(vec![unwritten; keys].into())
    }

    /// Notes that a put is about to be sent.
    pub(super) fn put(&mut self, key: u32, version: u32, expiry: Expiry, now_ms: u64) {
        let life = &mut self.0[key as usize];
        life.version = version;
        life.expires |= matches!(expiry, Expiry::In(_));
        life.earliest_ms = match expiry {
            Expiry::Keep => life.earliest_ms,
            other => end_ms(other, now_ms),
        };
    }

    /// Notes that a touch is about to be sent.
    pub(super) fn touch(&mut self, key: u32, expiry: Expiry, now_ms: u64) {
        let life = &mut self.0[key as usize];
        life.expires |= matches!(expiry, Expiry::In(_));
        life.earliest_ms = life.earliest_ms.min(end_ms(expiry, now_ms));
    }

    /// Whether the key may be absent to a request that was to find a version.
    pub(super) fn may_be_over(&self, key: u32, version: u32, now_ms: u64) -> bool {
        let life = self.0[key as usize];
        // The time of the version that a later put has replaced is not kept.
        let is_later = life.version != version;
        let is_past =
            life.earliest_ms != NEVER && now_ms.saturating_add(SLACK_MS) >= life.earliest_ms;
        life.expires && (is_later || is_past)
    }
}

/// When an expiry that is sent now is reached first.
fn end_ms(expiry: Expiry, now_ms: u64) -> u64 {
    match expiry {
        Expiry::In(milliseconds) => now_ms.saturating_add(milliseconds),
        Expiry::Never | Expiry::Keep | Expiry::At(_) => NEVER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_be_absent_from_its_time_on_less_the_slack() {
        let mut lives = Lives::new(2);
        lives.put(1, 1, Expiry::In(5_000), 100);
        assert!(!lives.may_be_over(1, 1, 4_099));
        assert!(lives.may_be_over(1, 1, 4_100));
        lives.put(1, 2, Expiry::Keep, 200);
        assert!(!lives.may_be_over(1, 2, 4_099) && lives.may_be_over(1, 2, 4_100));
        lives.put(1, 3, Expiry::Never, 300);
        assert!(!lives.may_be_over(1, 3, u64::MAX));
        // An answer to a request that was sent before that put.
        assert!(lives.may_be_over(1, 2, 300));
        assert!(!lives.may_be_over(0, 0, u64::MAX));
        lives.put(0, 1, Expiry::Never, 300);
        assert!(!lives.may_be_over(0, 0, u64::MAX));
    }

    #[test]
    fn a_touch_never_makes_a_key_outlive_its_time_for_certain() {
        let mut lives = Lives::new(1);
        lives.put(0, 1, Expiry::In(5_000), 0);
        lives.touch(0, Expiry::In(60_000), 0);
        assert!(!lives.may_be_over(0, 1, 3_999) && lives.may_be_over(0, 1, 4_000));
        lives.touch(0, Expiry::In(2_000), 0);
        assert!(!lives.may_be_over(0, 1, 999) && lives.may_be_over(0, 1, 1_000));
    }
}
