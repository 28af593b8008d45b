//! Keys of the elements of scored maps, as `scored` draws them, and buffers for them.

use xxhash_rust::xxh3::xxh3_64;

use super::path::PathStep;

/// Bytes before a member in the keys of its elements.
pub(crate) const ORDER_BYTES: usize = 8;
/// Bits of a member's place.
pub(super) const PLACE_BITS: u32 = 51;
const SIGN: u64 = 1 << 63;

/// A number that compares as a score does. The two zeros are equal.
pub(super) fn order_of(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The score of an order.
pub(super) fn score_of(order: u64) -> f64 {
    f64::from_bits(if order & SIGN == 0 {
        !order
    } else {
        order ^ SIGN
    })
}

/// Where a member stands in the order of scans: never 0, which begins one.
pub(super) fn place_of(member: &[u8]) -> u64 {
    (xxh3_64(member) >> (u64::BITS - PLACE_BITS)).max(1)
}

pub(super) fn write_key(order: u64, member: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&order.to_be_bytes());
    into.extend_from_slice(member);
}

/// The key of the element that is by member.
pub(super) fn member_key<'b>(member: &[u8], buffer: &'b mut Vec<u8>) -> &'b [u8] {
    write_key(place_of(member), member, buffer);
    buffer
}

pub(super) fn order_in(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|order| u64::from_be_bytes(*order))
}

/// Member and score of an element that is by score, from its key.
pub(crate) fn scored_member(key: &[u8]) -> Option<(&[u8], f64)> {
    let (order, member) = key.split_first_chunk()?;
    Some((member, score_of(u64::from_be_bytes(*order))))
}

/// Member, place and score of an element that is by member.
pub(crate) fn placed_member<'a>(key: &'a [u8], value: &[u8]) -> Option<(&'a [u8], u64, f64)> {
    let (place, member) = key.split_first_chunk()?;
    let place = u64::from_be_bytes(*place);
    Some((member, place, score_of(order_in(value)?)))
}

/// An element of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScoredHalf {
    ByMember,
    /// By the score that the member has.
    ByScore,
    /// By the score that it will have.
    Next,
}

/// The key of an element, and the way to its leaf.
#[derive(Debug, Default)]
pub(super) struct Half {
    pub(super) key: Vec<u8>,
    pub(super) way: Vec<PathStep>,
}

/// Buffers for the elements of a member.
#[derive(Debug, Default)]
pub(super) struct ScoredKeys {
    pub(super) by_member: Half,
    pub(super) by_score: Half,
    pub(super) next: Half,
    /// The value of the element by member, as it will be.
    pub(super) order: [u8; ORDER_BYTES],
}

impl ScoredKeys {
    fn half(&self, half: ScoredHalf) -> &Half {
        match half {
            ScoredHalf::ByMember => &self.by_member,
            ScoredHalf::ByScore => &self.by_score,
            ScoredHalf::Next => &self.next,
        }
    }

    /// Bytes of the key and the value of an element, of a member with a value of this length.
    pub(super) fn sizes(&self, half: ScoredHalf, value_bytes: usize) -> (usize, usize) {
        let value_bytes = match half {
            ScoredHalf::ByMember => ORDER_BYTES,
            ScoredHalf::ByScore | ScoredHalf::Next => value_bytes,
        };
        (self.half(half).key.len(), value_bytes)
    }

    /// The way to the leaf of an element.
    pub(super) fn way(&self, half: ScoredHalf) -> &[PathStep] {
        &self.half(half).way
    }

    /// Key and value of an element, of a member with this value.
    pub(super) fn element<'k>(&'k self, half: ScoredHalf, value: &'k [u8]) -> (&'k [u8], &'k [u8]) {
        let value = match half {
            ScoredHalf::ByMember => &self.order,
            ScoredHalf::ByScore | ScoredHalf::Next => value,
        };
        (&self.half(half).key, value)
    }
}
