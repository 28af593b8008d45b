//! A page of variable-length strings: pairs while it is resident, bytes while it is far.
//!
//! A pair as bytes, little-endian:
//!
//! | key length: u16 | value length: u32 | key | value |

use super::far::Place;

/// Length of a page as bytes.
pub(super) const PAGE_BYTES: usize = 60 << 10;

const PAIR_HEADER_BYTES: usize = 6;

/// A key and a value in separate allocations, as in the contest entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) key: Box<[u8]>,
    pub(super) value: Box<[u8]>,
}

/// A page, resident or far or both.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The pairs, while the page is resident.
    pub(super) pairs: Option<Vec<Pair>>,
    /// The far copy, if there is one.
    pub(super) place: Option<Place>,
    /// Whether the far copy is out of date.
    pub(super) dirty: bool,
    /// Length as bytes.
    pub(super) bytes: usize,
    /// Neighbours in the LRU list.
    pub(super) newer: Option<u32>,
    pub(super) older: Option<u32>,
}

/// Length of a pair as bytes.
pub(super) const fn pair_bytes(key: &[u8], value: &[u8]) -> usize {
    PAIR_HEADER_BYTES + key.len() + value.len()
}

/// Encodes the pairs of a page.
pub(super) fn to_bytes(pairs: &[Pair], bytes: usize) -> Vec<u8> {
    let mut page = Vec::with_capacity(bytes);
    for pair in pairs {
        let key_len = u16::try_from(pair.key.len()).unwrap_or(u16::MAX);
        let value_len = u32::try_from(pair.value.len()).unwrap_or(u32::MAX);
        page.extend_from_slice(&key_len.to_le_bytes());
        page.extend_from_slice(&value_len.to_le_bytes());
        page.extend_from_slice(&pair.key);
        page.extend_from_slice(&pair.value);
    }
    page
}

/// Decodes the pairs of a page. Decoding ends at the first pair that is cut short.
pub(super) fn to_pairs(mut bytes: &[u8]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    while let Some((&[k0, k1, v0, v1, v2, v3], rest)) = bytes.split_first_chunk() {
        let key_len = usize::from(u16::from_le_bytes([k0, k1]));
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let Some((key, rest)) = rest.split_at_checked(key_len) else {
            break;
        };
        let Some((value, rest)) = rest.split_at_checked(value_len) else {
            break;
        };
        pairs.push(Pair {
            key: key.into(),
            value: value.into(),
        });
        bytes = rest;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_survive_the_round_trip() {
        let pair = |key: &[u8], value: &[u8]| Pair {
            key: key.into(),
            value: value.into(),
        };
        let pairs = vec![
            pair(b"a", b""),
            pair(b"key", &[3; 1000]),
            pair(b"", b"value"),
        ];
        let bytes: usize = pairs
            .iter()
            .map(|pair| pair_bytes(&pair.key, &pair.value))
            .sum();
        let page = to_bytes(&pairs, bytes);
        assert_eq!((page.len(), to_pairs(&page)), (bytes, pairs));
        assert_eq!(to_pairs(&page[..bytes - 1]).len(), 2);
    }
}
