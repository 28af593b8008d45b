//! The register of an element, and the number that it raises that to, by its hash: MurmurHash64A.
//!
//! Source: Austin Appleby's MurmurHash2 for 64-bit machines, which is in the public domain.

use crate::types::hyperloglog::layout::{REGISTER_BITS, REGISTERS};

const SEED: u64 = 0xadc8_3b19;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;
const WORD_BYTES: usize = 8;

/// MurmurHash64A.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut words = bytes.chunks_exact(WORD_BYTES);
    for word in &mut words {
        let mut mixed = number(word).wrapping_mul(FACTOR);
        mixed ^= mixed >> SHIFT;
        hash = (hash ^ mixed.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash = (hash ^ number(rest)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> SHIFT)).wrapping_mul(FACTOR);
    hash ^ (hash >> SHIFT)
}

/// Up to eight bytes as a number, the lowest first.
fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The register of an element, and one more than the zeros that the rest of its hash ends with.
pub(super) fn place(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let register = usize::try_from(hash % REGISTERS as u64).unwrap_or(0);
    let bits = u64::BITS - REGISTER_BITS;
    let rest = hash >> REGISTER_BITS | 1 << bits;
    let number = rest.trailing_zeros() + 1;
    (register, number.to_le_bytes()[0])
}
