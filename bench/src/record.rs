//! Keys and values, derived from an index, a nonce and a seed. Nothing has to be remembered.
//!
//! I1: keys are unique, because the first half of a key is a bijection of its index.
//! I2: every value starts with its nonce; the rest is a stream of (key, nonce, seed). So a value
//!     can be verified in full knowing only its key. A stale, foreign, shortened or damaged value
//!     fails.
//!
//! Value, little-endian, each word being `stream ^ TABLE[n]`:
//!
//! | nonce: 8 B | word 1 | word 2 | ... |
//!
//! A nonce with bit 63 clear names a [`Generation`]. With bit 63 set it is drawn by the hot mix,
//! which also fixes the length. Cost: one xor for each eight bytes, which the compiler vectorises.
//!
//! The length of a value is unpredictable, and a mispredicted branch costs as much as a hundred
//! bytes. So the code for the usual lengths is free of branches on the length.

use serde::{Deserialize, Serialize};

/// Most keys of all threads together: streams of the hot mix hold 32-bit indexes.
pub const KEYS_MAX: u64 = 1 << 32;
/// Bytes of every key.
pub const KEY_BYTES: usize = 16;
/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 1024;
/// Mean bytes of a value as first written.
pub const VALUE_BYTES_MEAN: u64 = 178;
/// Mean bytes of a value of [`Lengths::Bounded`] at most, in every generation: 30 GB of 192 M.
pub const VALUE_BYTES_MEAN_BOUNDED: u64 = 156;
/// Values are multiples of this many bytes.
pub const VALUE_GRAIN_BYTES: usize = 16;

const GRAINS_MAX: usize = VALUE_BYTES_MAX / VALUE_GRAIN_BYTES;
/// Nine values in ten have at most this many grains.
const USUAL: usize = 2 * SHORT;
/// Seven values in ten, and all of the hot mix, have at most this many grains.
const SHORT: usize = 8;
const HOT_BIT: u64 = 1 << 63;
/// Of 16 bounded values that are written again, how many have 128 bytes at most in any case.
const BOUNDED_SHORT: u64 = 3;

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

/// Fills grains with a stream.
#[inline]
fn write_grains(place: &mut [[u8; VALUE_GRAIN_BYTES]], table: &[Grain], stream: u64) {
    for (bytes, [one, other]) in place.iter_mut().zip(table) {
        let (words, _) = bytes.as_chunks_mut();
        words[0] = (one ^ stream).to_le_bytes();
        words[1] = (other ^ stream).to_le_bytes();
    }
}

/// The bits in which a value differs from a stream, by word of a grain; the first grain is left
/// out.
#[inline(always)]
fn differing(grains: &[[u8; VALUE_GRAIN_BYTES]], stream: u64) -> Grain {
    let mut sum = [0; 2];
    let mut check = |place: usize| {
        let [one, other] = words_of(&grains[place]);
        sum[0] |= one ^ TABLE[place][0] ^ stream;
        sum[1] |= other ^ TABLE[place][1] ^ stream;
    };
    let count = grains.len();
    if count <= SHORT {
        // With fewer grains, the last one is checked more than once.
        (1..SHORT).for_each(|place| check(place.min(count - 1)));
    } else if count <= USUAL {
        // With fewer grains, some in the middle are checked twice.
        (1..SHORT).for_each(&mut check);
        (count - SHORT..count).for_each(check);
    } else {
        (1..count).for_each(check);
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

/// The contents of a key after a phase that writes.
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

/// The nonce and the length that a value must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The first eight bytes.
    pub nonce: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// Buffers for one key and one value, reused for every request.
#[derive(Debug)]
#[repr(align(64))]
pub struct Scratch {
    /// The value; only a prefix is in use.
    pub value: [u8; VALUE_BYTES_MAX],
    /// The key.
    pub key: [u8; KEY_BYTES],
    /// Keys of other lengths.
    pub long_key: Vec<u8>,
    /// Values of any length; only a prefix is in use.
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

/// How long values of each class are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lengths {
    /// All lengths of a class are as likely: 178 bytes at the mean.
    #[default]
    Even,
    /// Short lengths of a class are likelier, so that the mean is at most
    /// [`VALUE_BYTES_MEAN_BOUNDED`].
    Bounded,
}

/// Generates keys and values, and verifies them.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    key_seed: u64,
    value_seed: u64,
    lengths: Lengths,
}

impl Generator {
    /// A generator for one seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            key_seed: mix(seed ^ 0x6B65_7973),
            value_seed: mix(seed ^ 0x7661_6C75_6573),
            lengths: Lengths::Even,
        }
    }

    /// This generator with other lengths of values.
    #[must_use]
    pub const fn with_lengths(self, lengths: Lengths) -> Self {
        Self { lengths, ..self }
    }

    /// The first half of a key; all other calls take it in place of the key.
    #[inline]
    #[must_use]
    pub const fn key_word(&self, index: u64) -> u64 {
        mix(index ^ self.key_seed)
    }

    /// Writes the key of an index and returns its key word.
    #[inline]
    pub fn key(&self, index: u64, key: &mut [u8; KEY_BYTES]) -> u64 {
        let word = self.key_word(index);
        Self::fill_key(word, key);
        word
    }

    /// Writes the key of a key word.
    #[inline]
    pub fn fill_key(word: u64, key: &mut [u8; KEY_BYTES]) {
        key[..8].copy_from_slice(&word.to_le_bytes());
        key[8..].copy_from_slice(&mix(word ^ 0x5DEE_CE66_D1CE_4E5B).to_le_bytes());
    }

    /// The shape of a key's value in a generation.
    #[inline]
    #[must_use]
    pub fn shape(&self, key_word: u64, generation: Generation) -> Shape {
        let first = draw_bytes(key_word, self.lengths);
        let bytes = match generation {
            Generation::Written | Generation::Rewritten => first,
            Generation::Updated => {
                let other = draw_bytes(mix(key_word), self.lengths);
                if other != first {
                    other
                } else if first < VALUE_BYTES_MAX {
                    first + VALUE_GRAIN_BYTES
                } else {
                    80
                }
            }
            Generation::Reinserted => {
                let word = mix(key_word ^ 0x7265);
                let is_short = self.lengths == Lengths::Bounded && word & 15 < BOUNDED_SHORT;
                grains(5, word, if is_short { 4 } else { 12 })
            }
        };
        Shape {
            nonce: generation as u64,
            bytes,
        }
    }

    /// The shape that the hot mix writes for a draw: at most 128 bytes.
    #[inline]
    #[must_use]
    pub fn hot_shape(&self, draw: u64) -> Shape {
        let nonce = draw | HOT_BIT;
        Shape {
            nonce,
            bytes: grains(1, mix(nonce), 8),
        }
    }

    /// Writes a value and returns it. Its length must be a multiple of a grain.
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
        // A shorter value leaves unused grains behind it, which are written too.
        let (usual, rest) = places.split_at_mut(USUAL);
        write_grains(usual, &TABLE, stream);
        if grains > USUAL {
            write_grains(&mut rest[..grains - USUAL], &TABLE[USUAL..], stream);
        }
        value[..8].copy_from_slice(&shape.nonce.to_le_bytes());
        &value[..shape.bytes]
    }

    /// Whether a value is exactly that of this shape; every byte is compared.
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
        // A single grain is checked as the last one, but its nonce is no word of the stream.
        let ones = if grains.len() == 1 { 0 } else { ones };
        let differing = ones | others | second ^ TABLE[0][1] ^ stream;
        rest.is_empty() && nonce == shape.nonce && differing == 0
    }

    /// Whether a value is intact and was written to this key by the hot mix of any thread.
    #[inline]
    #[must_use]
    pub fn is_hot(&self, key_word: u64, value: &[u8]) -> bool {
        let Some(nonce) = nonce_of(value) else {
            return false;
        };
        nonce & HOT_BIT != 0 && self.is(key_word, self.hot_shape(nonce), value)
    }

    /// Whether a value of a fixed length is intact and belongs to this key, with any nonce.
    #[inline]
    #[must_use]
    pub fn is_any(&self, key_word: u64, bytes: usize, value: &[u8]) -> bool {
        nonce_of(value).is_some_and(|nonce| self.is(key_word, Shape { nonce, bytes }, value))
    }

    /// Writes a value of any length, all of it a stream of key and nonce. Verifying it takes the
    /// nonce and the length. The shortest values of different keys may be equal.
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

    /// Whether a value is exactly that of [`Generator::fill_long`]; every byte is compared.
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

/// 70 % of 80 to 128 bytes, 20 % of 129 to 256, 10 % of 257 to 1024, or in most cases of 257 to 384
/// where lengths are bounded.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a tenth is below ten")]
fn draw_bytes(word: u64, lengths: Lengths) -> usize {
    const LONG: (u64, u64) = (17, 48);
    /// Least grains and the number of choices, by tenth.
    const SIZES: [(u64, u64); 10] = {
        let (short, middle) = ((5, 4), (9, 8));
        [
            short, short, short, short, short, short, short, middle, middle, LONG,
        ]
    };
    let (least, choices) = SIZES[below(word.rotate_left(32), 10) as usize];
    let draw = mix(word ^ 0x7369_7A65);
    let is_bounded = lengths == Lengths::Bounded && draw & 3 != 0;
    let choices = if is_bounded { choices.min(8) } else { choices };
    grains(least, draw, choices)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "at most 64 grains")]
const fn grains(least: u64, word: u64, choices: u64) -> usize {
    (least + below(word, choices)) as usize * VALUE_GRAIN_BYTES
}

#[cfg(test)]
mod tests;
