//! Keys and values: what is stored, derived from an index, a nonce and a seed, so that nothing has
//! to be remembered.
//!
//! I1: keys are unique, because the first half of a key is a bijection of its index. I2: every
//! value starts with its nonce; the rest is a stream of (key, nonce, seed), so a value read can be
//! checked
//!     in full knowing only its key. A stale, foreign, shortened or damaged value fails.
//!
//! Value: | nonce: 8 B | word 1 | word 2 | ... each word is `stream ^ TABLE[n]`; little-endian. A
//! nonce with bit 63 clear names a [`Generation`]; with bit 63 set it is drawn by the hot mix,
//! which also fixes the length. Cost: one xor for each eight bytes, which the compiler vectorises.
//!
//! Nothing predicts the length of a value, and a branch that is guessed wrong costs as much as a
//! hundred bytes: what is done for the usual lengths is the same for each.

use serde::{Deserialize, Serialize};

/// Bytes of every key.
pub const KEY_BYTES: usize = 16;
/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 1024;
/// Mean bytes of a value as first written.
pub const VALUE_BYTES_MEAN: u64 = 178;
/// Values are multiples of this many bytes.
pub const VALUE_GRAIN_BYTES: usize = 16;

const GRAINS_MAX: usize = VALUE_BYTES_MAX / VALUE_GRAIN_BYTES;
/// Grains of nine values in ten, at most.
const USUAL: usize = 2 * SHORT;
/// Grains of seven in ten, and of all that the hot mix writes, at most.
const SHORT: usize = 8;
const HOT_BIT: u64 = 1 << 63;

/// A piece of a value as two words.
type Grain = [u64; 2];

static TABLE: [Grain; GRAINS_MAX] = table();

const fn table() -> [Grain; GRAINS_MAX] {
    let mut grains = [[0; 2]; GRAINS_MAX];
    let mut word = 0;
    while word < 2 * GRAINS_MAX {
        grains[word / 2][word % 2] = mix((word as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        word += 1;
    }
    grains
}

#[inline]
fn words_of(bytes: &[u8; VALUE_GRAIN_BYTES]) -> Grain {
    let (words, _) = bytes.as_chunks();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

/// Writes some grains of a stream.
#[inline]
fn write_grains(place: &mut [[u8; VALUE_GRAIN_BYTES]], table: &[Grain], stream: u64) {
    for (bytes, [one, other]) in place.iter_mut().zip(table) {
        let (words, _) = bytes.as_chunks_mut();
        words[0] = (one ^ stream).to_le_bytes();
        words[1] = (other ^ stream).to_le_bytes();
    }
}

/// The bits in which the second grain of a value and those after it differ from a stream's, by word
/// of a grain.
#[inline(always)]
fn differing(grains: &[[u8; VALUE_GRAIN_BYTES]], stream: u64) -> Grain {
    let mut sum = [0; 2];
    let mut look = |place: usize| {
        let [one, other] = words_of(&grains[place]);
        sum[0] |= one ^ TABLE[place][0] ^ stream;
        sum[1] |= other ^ TABLE[place][1] ^ stream;
    };
    let count = grains.len();
    if count <= SHORT {
        // The last one more than once, if there are fewer.
        (1..SHORT).for_each(|place| look(place.min(count - 1)));
    } else if count <= USUAL {
        // Some in the middle twice, if there are fewer.
        (1..SHORT).for_each(&mut look);
        (count - SHORT..count).for_each(look);
    } else {
        (1..count).for_each(look);
    }
    sum
}

/// A bijection of 64-bit words whose output looks random (the finaliser of SplitMix64).
#[inline]
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// A number below `limit`, from a random word.
#[inline]
#[must_use]
pub const fn below(word: u64, limit: u64) -> u64 {
    ((word as u128 * limit as u128) >> 64) as u64
}

/// Which contents a key has between the phases that write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generation {
    /// As first written.
    Written = 1,
    /// Rewritten with the same size.
    Rewritten = 2,
    /// Updated with another size.
    Updated = 3,
    /// Deleted and written again.
    Reinserted = 4,
}

/// What a value must be: its nonce and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The first eight bytes.
    pub nonce: u64,
    /// Bytes in all.
    pub bytes: usize,
}

/// Room for one key and one value, reused for every request.
#[derive(Debug)]
#[repr(align(64))]
pub struct Scratch {
    /// The value; only the first bytes are in use.
    pub value: [u8; VALUE_BYTES_MAX],
    /// The key.
    pub key: [u8; KEY_BYTES],
    /// Keys of other lengths.
    pub long_key: Vec<u8>,
    /// Values of any length; only the first bytes are in use.
    pub long_value: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            value: [0; VALUE_BYTES_MAX],
            key: [0; KEY_BYTES],
            long_key: Vec::new(),
            long_value: Vec::new(),
        }
    }
}

/// Makes keys and values, and checks them.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    key_seed: u64,
    value_seed: u64,
}

impl Generator {
    /// A generator for one seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            key_seed: mix(seed ^ 0x6B65_7973),
            value_seed: mix(seed ^ 0x7661_6C75_6573),
        }
    }

    /// The first half of a key; it stands for the key in all other calls.
    #[inline]
    #[must_use]
    pub const fn key_word(&self, index: u64) -> u64 {
        mix(index ^ self.key_seed)
    }

    /// Writes the key of an index; returns its key word.
    #[inline]
    pub fn key(&self, index: u64, key: &mut [u8; KEY_BYTES]) -> u64 {
        let word = self.key_word(index);
        key[..8].copy_from_slice(&word.to_le_bytes());
        key[8..].copy_from_slice(&mix(word ^ 0x5DEE_CE66_D1CE_4E5B).to_le_bytes());
        word
    }

    /// What a key's value is in a generation.
    #[inline]
    #[must_use]
    pub fn shape(&self, key_word: u64, generation: Generation) -> Shape {
        let first = draw_bytes(key_word);
        let bytes = match generation {
            Generation::Written | Generation::Rewritten => first,
            Generation::Updated => {
                let other = draw_bytes(mix(key_word));
                if other != first {
                    other
                } else if first < VALUE_BYTES_MAX {
                    first + VALUE_GRAIN_BYTES
                } else {
                    80
                }
            }
            Generation::Reinserted => grains(5, mix(key_word ^ 0x7265), 12),
        };
        Shape {
            nonce: generation as u64,
            bytes,
        }
    }

    /// What the hot mix writes with a draw: at most 128 bytes.
    #[inline]
    #[must_use]
    pub fn hot_shape(&self, draw: u64) -> Shape {
        let nonce = draw | HOT_BIT;
        Shape {
            nonce,
            bytes: grains(1, mix(nonce), 8),
        }
    }

    /// Writes a value and returns the bytes in use, whole grains.
    #[inline]
    pub fn fill<'a>(
        &self,
        key_word: u64,
        shape: Shape,
        value: &'a mut [u8; VALUE_BYTES_MAX],
    ) -> &'a [u8] {
        debug_assert!(shape.bytes > 0 && shape.bytes.is_multiple_of(VALUE_GRAIN_BYTES));
        let stream = self.stream(key_word, shape.nonce);
        let grains = shape.bytes / VALUE_GRAIN_BYTES;
        let (places, _) = value.as_chunks_mut();
        // Where fewer are asked for, the room behind them is written for nothing.
        let (usual, rest) = places.split_at_mut(USUAL);
        write_grains(usual, &TABLE, stream);
        if grains > USUAL {
            write_grains(&mut rest[..grains - USUAL], &TABLE[USUAL..], stream);
        }
        value[..8].copy_from_slice(&shape.nonce.to_le_bytes());
        &value[..shape.bytes]
    }

    /// Whether a value is exactly the one of this shape: every byte is compared.
    #[inline]
    #[must_use]
    pub fn is(&self, key_word: u64, shape: Shape, value: &[u8]) -> bool {
        if value.len() != shape.bytes {
            return false;
        }
        let stream = self.stream(key_word, shape.nonce);
        let (grains, rest) = value.as_chunks();
        let Some(first) = grains.first() else {
            return false;
        };
        let [nonce, second] = words_of(first);
        let [ones, others] = differing(grains, stream);
        // The only grain is looked at as the last one: its nonce is no word of the stream.
        let ones = if grains.len() == 1 { 0 } else { ones };
        let differing = ones | others | second ^ TABLE[0][1] ^ stream;
        rest.is_empty() && nonce == shape.nonce && differing == 0
    }

    /// Whether a value is intact and was written to this key by the hot mix, by whichever thread.
    #[inline]
    #[must_use]
    pub fn is_hot(&self, key_word: u64, value: &[u8]) -> bool {
        let Some(nonce) = nonce_of(value) else {
            return false;
        };
        nonce & HOT_BIT != 0 && self.is(key_word, self.hot_shape(nonce), value)
    }

    /// Whether a value of a fixed length is intact and belongs to this key, whatever its nonce.
    #[inline]
    #[must_use]
    pub fn is_any(&self, key_word: u64, bytes: usize, value: &[u8]) -> bool {
        nonce_of(value).is_some_and(|nonce| self.is(key_word, Shape { nonce, bytes }, value))
    }

    /// Writes a value of any length, all of it a stream of key and nonce: who checks it must know
    /// the nonce and the length. Of the shortest values, some of different keys are the same.
    #[inline]
    pub fn fill_long(&self, key_word: u64, nonce: u64, value: &mut [u8]) {
        for (block, bytes) in (0..).zip(value.chunks_mut(VALUE_BYTES_MAX)) {
            let stream = self.block_stream(key_word, nonce, block);
            let mut words = bytes.chunks_exact_mut(8);
            for (bytes, word) in (&mut words).zip(TABLE.as_flattened()) {
                bytes.copy_from_slice(&(word ^ stream).to_le_bytes());
            }
            let rest = words.into_remainder();
            rest.copy_from_slice(&mix(stream).to_le_bytes()[..rest.len()]);
        }
    }

    /// Whether a value is exactly what [`Generator::fill_long`] writes: every byte is compared.
    #[inline]
    #[must_use]
    pub fn is_long(&self, key_word: u64, nonce: u64, value: &[u8]) -> bool {
        (0..)
            .zip(value.chunks(VALUE_BYTES_MAX))
            .all(|(block, bytes)| {
                let stream = self.block_stream(key_word, nonce, block);
                let words = bytes.chunks_exact(8);
                let rest = words.remainder();
                let differing = words
                    .zip(TABLE.as_flattened())
                    .fold(0, |sum, (bytes, word)| sum | (load(bytes) ^ word ^ stream));
                differing == 0 && *rest == mix(stream).to_le_bytes()[..rest.len()]
            })
    }

    #[inline]
    fn block_stream(&self, key_word: u64, nonce: u64, block: u64) -> u64 {
        self.stream(mix(key_word.wrapping_add(block)), nonce)
    }

    #[inline]
    fn stream(&self, key_word: u64, nonce: u64) -> u64 {
        mix(key_word ^ self.value_seed ^ nonce.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }
}

/// The nonce that a value starts with.
#[inline]
#[must_use]
pub fn nonce_of(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[inline]
fn load(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// 70 % of 80 to 128 bytes, 20 % of 129 to 256, 10 % of 257 to 1024.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a tenth is below ten")]
fn draw_bytes(word: u64) -> usize {
    /// Least grains and how many choices, by tenth.
    const SIZES: [(u64, u64); 10] = {
        let (short, middle, long) = ((5, 4), (9, 8), (17, 48));
        [
            short, short, short, short, short, short, short, middle, middle, long,
        ]
    };
    let (least, choices) = SIZES[below(word.rotate_left(32), 10) as usize];
    grains(least, mix(word ^ 0x7369_7A65), choices)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "at most 64 grains")]
const fn grains(least: u64, word: u64, choices: u64) -> usize {
    (least + below(word, choices)) as usize * VALUE_GRAIN_BYTES
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_unique_and_depend_on_the_seed() {
        let (one, other) = (Generator::new(1), Generator::new(2));
        let mut seen = HashSet::new();
        for index in 0..50_000 {
            for generator in [one, other] {
                let mut key = [0; KEY_BYTES];
                generator.key(index, &mut key);
                assert!(seen.insert(key), "index {index}");
            }
        }
    }

    #[test]
    fn sizes_follow_the_contest() {
        let generator = Generator::new(7);
        let (mut counts, mut total) = ([0_u32; 3], 0);
        for index in 0..100_000 {
            let word = generator.key_word(index);
            let written = generator.shape(word, Generation::Written).bytes;
            let updated = generator.shape(word, Generation::Updated).bytes;
            let again = generator.shape(word, Generation::Reinserted).bytes;
            let hot = generator.hot_shape(word).bytes;
            assert_ne!(written, updated);
            assert_eq!(written, generator.shape(word, Generation::Rewritten).bytes);
            assert!((80..=256).contains(&again) && (16..=128).contains(&hot));
            for bytes in [written, updated, again, hot] {
                assert!(bytes % VALUE_GRAIN_BYTES == 0 && bytes <= VALUE_BYTES_MAX);
            }
            counts[usize::from(written > 128) + usize::from(written > 256)] += 1;
            total += written as u64;
        }
        let near = |count: u32, share: u32| count.abs_diff(share * 1000) < 1000;
        assert!(
            near(counts[0], 70) && near(counts[1], 20) && near(counts[2], 10),
            "{counts:?}"
        );
        assert!(
            (total / 100_000).abs_diff(VALUE_BYTES_MEAN) <= 2,
            "mean {}",
            total / 100_000
        );
    }

    #[test]
    fn long_values_differ_in_key_version_and_place() {
        let generator = Generator::new(3);
        for bytes in [0, 1, 7, 8, 9, 1023, 1024, 1025, 2048, 5003] {
            let mut value = vec![0; bytes];
            generator.fill_long(5, 2, &mut value);
            assert!(generator.is_long(5, 2, &value));
            assert!(bytes < 8 || !generator.is_long(6, 2, &value), "another key");
            assert!(bytes < 8 || !generator.is_long(5, 3, &value), "stale");
            for at in 0..bytes {
                value[at] ^= 0x10;
                assert!(!generator.is_long(5, 2, &value), "byte {at} of {bytes}");
                value[at] ^= 0x10;
            }
            if bytes > 1024 {
                value.rotate_left(1024);
                assert!(!generator.is_long(5, 2, &value), "blocks in another order");
            }
        }
    }

    /// What a value must be, word by word.
    fn expected(generator: &Generator, word: u64, shape: Shape) -> Vec<u8> {
        let stream = generator.stream(word, shape.nonce);
        let table =
            (1..=shape.bytes as u64 / 8).map(|n| mix(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let mut value: Vec<u8> = table.flat_map(|one| (one ^ stream).to_le_bytes()).collect();
        value[..8].copy_from_slice(&shape.nonce.to_le_bytes());
        value
    }

    #[test]
    fn values_of_every_length_are_exact() {
        let generator = Generator::new(11);
        let mut room = [0xAA; VALUE_BYTES_MAX];
        for grains in (1..=GRAINS_MAX).rev() {
            let (word, bytes) = (
                generator.key_word(grains as u64),
                grains * VALUE_GRAIN_BYTES,
            );
            let shape = Shape { nonce: 77, bytes };
            let mut value = generator.fill(word, shape, &mut room).to_vec();
            assert_eq!(value, expected(&generator, word, shape));
            assert!(generator.is(word, shape, &value));
            for at in 0..bytes {
                value[at] ^= 1;
                assert!(!generator.is(word, shape, &value), "byte {at} of {bytes}");
                value[at] ^= 1;
            }
            for other in [
                bytes - 16,
                bytes - 8,
                bytes - 1,
                bytes + 1,
                bytes + 8,
                bytes + 16,
            ] {
                let mut longer = value.clone();
                longer.resize(other, 0);
                assert!(!generator.is(word, shape, &longer), "{other} for {bytes}");
                let wrong = Shape {
                    bytes: other,
                    ..shape
                };
                assert!(!generator.is(word, wrong, &value), "{bytes} for {other}");
                if other % VALUE_GRAIN_BYTES != 0 {
                    assert!(
                        !generator.is(word, wrong, &longer),
                        "{other} is no length of a value"
                    );
                }
            }
        }
    }

    #[test]
    fn sizes_and_values_are_those_of_earlier_runs() {
        let generator = Generator::new(5);
        let (mut room, mut digest) = ([0; VALUE_BYTES_MAX], 0_u64);
        for index in 0..2000 {
            let word = generator.key_word(index);
            for shape in [
                generator.shape(word, Generation::Written),
                generator.shape(word, Generation::Updated),
                generator.shape(word, Generation::Reinserted),
                generator.hot_shape(word),
            ] {
                for bytes in generator.fill(word, shape, &mut room).chunks_exact(8) {
                    digest = mix(digest ^ load(bytes));
                }
            }
        }
        assert_eq!(digest, 17_243_192_160_106_649_703);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let generator = Generator::new(3);
        let mut room = [0; VALUE_BYTES_MAX];
        for index in 0..40 {
            let word = generator.key_word(index);
            for shape in [
                generator.shape(word, Generation::Updated),
                generator.hot_shape(index),
            ] {
                let mut value = generator.fill(word, shape, &mut room).to_vec();
                assert!(generator.is(word, shape, &value));
                assert!(!generator.is(word ^ 1, shape, &value), "another key");
                assert!(
                    !generator.is(word, shape, &value[..shape.bytes - 8]),
                    "shortened"
                );
                assert_eq!(generator.is_hot(word, &value), shape.nonce & HOT_BIT != 0);
                assert!(generator.is_any(word, shape.bytes, &value));
                for at in 0..value.len() {
                    value[at] ^= 0x10;
                    assert!(!generator.is(word, shape, &value), "byte {at}");
                    assert!(!generator.is_hot(word, &value), "byte {at}");
                    value[at] ^= 0x10;
                }
            }
        }
        assert!(!generator.is_hot(1, b"") && !generator.is_any(1, 16, b"short"));
    }
}
