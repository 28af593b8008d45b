//! The keys of a connection's requests under way that may turn out to be about long values.
//!
//! The engine refuses a request that would need a long value in one buffer, and a task carries it
//! out when its reply's turn comes (`long::task`). Commands that the client has sent after it may
//! have been carried out by then. So a command waits for the replies before it if it changes a key
//! that one of these reads, or touches one that one of these changes.
//!
//! A key is known by its hash alone, so a command may wait without need.
//!
//! - I1: every key that was noted is found, until all replies before are made.
//! - I2: requests are noted once a large value may exist (`Shared::has_large_values`), and changes
//!   that may make one always. Of the first large value, requests that other connections have
//!   under way in that moment are not noted.

use xxhash_rust::xxh3::xxh3_64;

/// Words of a set of keys, of 64 bits each.
const WORDS: usize = 16;

/// A set of keys.
#[derive(Clone, Copy, Debug, Default)]
struct Keys([u64; WORDS]);

impl Keys {
    fn add(&mut self, (word, bit): (usize, u64)) {
        self.0[word] |= bit;
    }

    fn has(&self, (word, bit): (usize, u64)) -> bool {
        self.0[word] & bit != 0
    }
}

/// Where a key is in a set.
fn place(key: &[u8]) -> (usize, u64) {
    // A client that sends keys of one hash has its commands wait, and no other's.
    let hash = xxh3_64(key);
    let word = (hash >> 6) % WORDS as u64;
    (usize::try_from(word).unwrap_or(0), 1 << (hash % 64))
}

/// The keys that requests under way read, and those that they change.
#[derive(Debug, Default)]
pub(crate) struct KeysUnderWay {
    read: Keys,
    changed: Keys,
}

impl KeysUnderWay {
    /// True if a command of this key must wait for them.
    pub(crate) fn hold(&self, key: &[u8], changes: bool) -> bool {
        let place = place(key);
        self.changed.has(place) || changes && self.read.has(place)
    }

    /// Notes a request of more keys than are noted singly: it counts as one of every key.
    pub(crate) fn note_all(&mut self, changes: bool) {
        let keys = if changes {
            &mut self.changed
        } else {
            &mut self.read
        };
        *keys = Keys([u64::MAX; WORDS]);
    }

    /// Notes a request.
    pub(crate) fn note(&mut self, key: &[u8], changes: bool) {
        let keys = if changes {
            &mut self.changed
        } else {
            &mut self.read
        };
        keys.add(place(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_wait_for_reads_and_everything_for_changes() {
        let mut keys = KeysUnderWay::default();
        keys.note(b"read", false);
        keys.note(b"changed", true);
        assert!(!keys.hold(b"read", false) && keys.hold(b"read", true));
        assert!(keys.hold(b"changed", false) && keys.hold(b"changed", true));
        // Of a thousand others nearly none is taken for one of the two.
        let others = (0..1000).map(|other| format!("other{other}"));
        let held = others.filter(|other| keys.hold(other.as_bytes(), true));
        assert!(held.count() < 20);
    }

    #[test]
    fn a_request_of_very_many_keys_has_every_key() {
        let mut keys = KeysUnderWay::default();
        keys.note_all(false);
        assert!(!keys.hold(b"any", false) && keys.hold(b"any", true));
        keys.note_all(true);
        assert!(keys.hold(b"any", false));
    }

    #[test]
    fn every_noted_key_is_found() {
        let mut keys = KeysUnderWay::default();
        for key in 0..500_u32 {
            keys.note(&key.to_le_bytes(), true);
            assert!((0..=key).all(|key| keys.hold(&key.to_le_bytes(), false)));
        }
    }
}
