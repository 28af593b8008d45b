//! The keys of a run and their values.
//!
//! Indexes, in the order in which they are written:
//!
//! | sleepers' keys | old half of the flooded keys | young half | the measured client's own |
//!
//! The first three are loaded. Gets of flooders and far gets go to the old half, puts of flooders
//! to the young one. The measured client writes its own keys again before each phase.
//!
//! Value: | nonce: 8 B, little-endian | a stream of key and nonce |
//!
//! A reader can verify a whole value although other clients write the key. The key determines the
//! length.

use farcore::Operation;

use super::settings::Settings;
use crate::record::{Generator, KEY_BYTES, Scratch, below, mix, nonce_of};

/// The shortest value: a nonce.
pub const VALUE_BYTES_MIN: u64 = 8;
/// Bytes of a record beside its value: its key and its header.
pub const RECORD_BYTES_BESIDE: u64 = KEY_BYTES as u64 + 16;
/// Most keys of the measured client's own.
const OWN_KEYS_MAX: u64 = 64;
/// Most bytes of their values, unless one key takes more: they must stay in local memory.
const OWN_BYTES_MAX: u64 = 256 << 10;

/// Keys and values of one run.
#[derive(Clone, Debug)]
pub struct Keys {
    generator: Generator,
    sleepers: u64,
    flooded: u64,
    own: u64,
    value_bytes: Vec<u64>,
    sleeper_value_bytes: Vec<u64>,
}

impl Keys {
    /// The keys of a run with `flooded` keys for the flooders.
    #[must_use]
    pub fn new(settings: &Settings, flooded: u64, seed: u64) -> Self {
        let first = settings.value_bytes.first().copied().unwrap_or(0);
        Self {
            generator: Generator::new(seed),
            sleepers: settings.sleeper_keys(),
            flooded,
            own: (OWN_BYTES_MAX / first.max(1)).clamp(1, OWN_KEYS_MAX),
            value_bytes: settings.value_bytes.clone(),
            sleeper_value_bytes: settings.sleeper_value_bytes.clone(),
        }
    }

    /// Keys that are loaded: the first indexes.
    #[must_use]
    pub fn loaded(&self) -> u64 {
        self.sleepers.saturating_add(self.flooded)
    }

    /// The number of all keys.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.loaded().saturating_add(self.own)
    }

    /// The key of the old half that a random word selects.
    #[must_use]
    pub fn old(&self, word: u64) -> u64 {
        self.sleepers + below(word, self.flooded.div_ceil(2))
    }

    /// The key of the young half that a random word selects.
    #[must_use]
    pub fn young(&self, word: u64) -> u64 {
        let old = self.flooded.div_ceil(2);
        self.sleepers + old.min(self.flooded - 1) + below(word, (self.flooded - old).max(1))
    }

    /// Keys that only the measured client writes.
    #[must_use]
    pub fn own(&self) -> std::ops::Range<u64> {
        self.loaded()..self.count()
    }

    /// The length of a key's value, in bytes.
    #[must_use]
    pub fn bytes(&self, index: u64) -> usize {
        let (sizes, place) = match index.checked_sub(self.sleepers) {
            None => (&self.sleeper_value_bytes, index),
            // Own keys have one size, so that their latencies are comparable.
            Some(place) if place >= self.flooded => (&self.value_bytes, 0),
            Some(place) => (&self.value_bytes, place),
        };
        let place = place % (sizes.len() as u64).max(1);
        let place = usize::try_from(place).unwrap_or(0);
        let bytes = sizes.get(place).copied().unwrap_or(VALUE_BYTES_MIN);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// A get of a key.
    pub fn get<'a>(&self, index: u64, scratch: &'a mut Scratch) -> Operation<'a> {
        self.generator.key(index, &mut scratch.key);
        Operation::Get { key: &scratch.key }
    }

    /// A put of a key with the value of a nonce.
    pub fn put<'a>(&self, index: u64, nonce: u64, scratch: &'a mut Scratch) -> Operation<'a> {
        let word = self.generator.key(index, &mut scratch.key);
        let bytes = self.bytes(index);
        scratch.long_value.resize(bytes, 0);
        if let Some((head, rest)) = scratch.long_value.split_first_chunk_mut() {
            *head = nonce.to_le_bytes();
            self.generator.fill_long(word, nonce, rest);
        }
        Operation::Put {
            key: &scratch.key,
            value: &scratch.long_value,
        }
    }

    /// Whether a value is intact and belongs to this key and, if a nonce is given, was put with it.
    #[must_use]
    pub fn is_value(&self, index: u64, nonce: Option<u64>, value: &[u8]) -> bool {
        let Some(found) = nonce_of(value) else {
            return false;
        };
        let word = self.generator.key_word(index);
        value.len() == self.bytes(index)
            && nonce.is_none_or(|nonce| nonce == found)
            && self.generator.is_long(word, found, &value[8..])
    }
}

/// A stream of random words.
#[derive(Clone, Copy, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The stream of a client in a phase.
    #[must_use]
    pub fn new(seed: u64, client: u64, phase: u64) -> Self {
        Self(mix(seed ^ mix(client << 32 | phase)))
    }

    /// The next word.
    pub fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{Form, Request};
    use super::*;

    fn keys(flooded: u64, first: u64) -> Keys {
        let settings = Settings {
            flooders: 1,
            flooder_puts_percent: 0,
            sleepers: 2,
            sleeper_window: 5,
            value_bytes: vec![first, 3000],
            sleeper_value_bytes: vec![100, 9000],
            measured: Request::ALL.to_vec(),
            form: Form::Wait,
            seconds: 1.0,
            give_up_seconds: 1.0,
            one_thread: false,
            client_cores: Vec::new(),
            machine_cores: 2,
        };
        Keys::new(&settings, flooded, 7)
    }

    #[test]
    fn each_client_has_its_part_of_the_keys() {
        for flooded in [1, 2, 3, 1000] {
            let keys = keys(flooded, 200);
            let own = keys.own();
            assert_eq!((keys.loaded(), own.start), (20 + flooded, 20 + flooded));
            let mut draws = Draws::new(1, 2, 3);
            for _ in 0..1000 {
                let (old, young) = (keys.old(draws.next_word()), keys.young(draws.next_word()));
                assert!((20..own.start).contains(&old) && (20..own.start).contains(&young));
                assert!(flooded < 2 || old < young, "{flooded}: {old} {young}");
            }
        }
    }

    #[test]
    fn the_length_of_a_value_follows_from_its_key() {
        let keys = keys(10, 200);
        let bytes = |index| keys.bytes(index);
        assert_eq!(
            [0, 1, 2, 19, 20, 21, 29].map(bytes),
            [100, 9000, 100, 9000, 200, 3000, 3000]
        );
        assert!(keys.own().all(|index| bytes(index) == 200));
        assert_eq!(keys.own().count(), 64);
        assert_eq!(self::keys(10, 1 << 20).own().count(), 1);
    }

    #[test]
    fn every_changed_byte_of_a_value_is_detected() {
        let keys = keys(10, 200);
        let mut scratch = Scratch::default();
        for index in [0, 1, 20, 21] {
            let value = keys.put(index, 5, &mut scratch).value().to_vec();
            assert!(keys.is_value(index, None, &value) && keys.is_value(index, Some(5), &value));
            assert!(!keys.is_value(index, Some(4), &value), "stale");
            assert!(
                !keys.is_value(index + 2, None, &value),
                "another key's value"
            );
            assert!(!keys.is_value(index, None, &value[..value.len() - 1]));
            let mut changed = value.clone();
            for at in 0..value.len() {
                changed[at] ^= 0x10;
                assert!(!keys.is_value(index, None, &changed), "byte {at}");
                changed[at] ^= 0x10;
            }
        }
        assert!(!keys.is_value(0, None, b"short"));
    }
}
