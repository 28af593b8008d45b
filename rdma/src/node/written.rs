//! Marks of the pieces of extents that may hold anything but zeros.
//!
//! Memory that was never written, or was cleared since, needs no clearing. So what a client can
//! make the node clear is at most what its WRITEs have named, rounded up to pieces.
//!
//! ```text
//! data of all regions: | piece | piece | piece | ...    a bit each, in the order of the extents
//! ```
//!
//! - I1: a piece without a mark holds zeros.
//! - I2: an extent's marks are set while the extent is pinned, and removed only while it cannot be
//!   pinned, or has no owner with a connection.
//!
//! Cost: a bit for each 16 KiB.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of a piece, in bytes. It divides every extent.
pub(super) const PIECE_BYTES: u64 = 16 << 10;
const BITS: u64 = u64::BITS as u64;

/// Marks by place: the offset in all data, counted over the extents.
#[derive(Debug)]
pub(super) struct Written {
    words: Box<[AtomicU64]>,
}

/// The words of a range of pieces, each with the bits in that range.
fn words(pieces: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let first = pieces.start / BITS;
    let last = pieces.end.div_ceil(BITS);
    (first..last).map(move |word| {
        let base = word * BITS;
        let low = pieces.start.saturating_sub(base);
        let high = (pieces.end - base).min(BITS);
        (word, (u64::MAX >> (BITS - (high - low))) << low)
    })
}

impl Written {
    pub(super) fn new(data_bytes: u64) -> Self {
        let count = data_bytes.div_ceil(PIECE_BYTES).div_ceil(BITS);
        Self {
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn word(&self, word: u64) -> Option<&AtomicU64> {
        self.words.get(usize::try_from(word).ok()?)
    }

    /// Marks a range of places that is about to be written.
    pub(super) fn mark(&self, places: Range<u64>) {
        if places.is_empty() {
            return;
        }
        let pieces = places.start / PIECE_BYTES..places.end.div_ceil(PIECE_BYTES);
        for (word, bits) in words(pieces) {
            // ORDERING: relaxed; the pins of the extent order it against the clearing. Most pieces
            // are marked already, which costs no write.
            if let Some(word) = self.word(word)
                && word.load(Ordering::Relaxed) & bits != bits
            {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    /// Clears the first marked pieces of a range of places, and their marks, until `budget` bytes
    /// are used up. True if none is left. No peer writes there meanwhile.
    pub(super) fn clear(
        &self,
        places: Range<u64>,
        budget: &mut u64,
        mut clear: impl FnMut(Range<u64>),
    ) -> bool {
        let pieces = places.start / PIECE_BYTES..places.end.div_ceil(PIECE_BYTES);
        for (index, bits) in words(pieces) {
            let Some(word) = self.word(index) else {
                break;
            };
            loop {
                let marked = word.load(Ordering::Relaxed) & bits;
                if marked == 0 {
                    break;
                }
                if *budget < PIECE_BYTES {
                    return false;
                }
                *budget -= PIECE_BYTES;
                let bit = u64::from(marked.trailing_zeros());
                let start = (index * BITS + bit) * PIECE_BYTES;
                clear(start..start + PIECE_BYTES);
                word.fetch_and(!(1 << bit), Ordering::Relaxed);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_written_piece_is_cleared_once_and_no_other(
            writes in prop::collection::vec((0u64..200 * PIECE_BYTES, 0u64..3 * PIECE_BYTES), 0..20),
            within in (0u64..100, 1u64..100),
            budget in 1u64..8,
        ) {
            let written = Written::new(256 * PIECE_BYTES);
            let mut marked = BTreeSet::new();
            for (start, bytes) in writes {
                written.mark(start..start + bytes);
                marked.extend((start..start + bytes).step_by(1000).map(|at| at / PIECE_BYTES));
                marked.extend((bytes > 0).then(|| (start + bytes - 1) / PIECE_BYTES));
            }
            let (first, count) = within;
            let places = first * PIECE_BYTES..(first + count) * PIECE_BYTES;
            let mut cleared = Vec::new();
            loop {
                let (mut left, before) = (budget * PIECE_BYTES, cleared.len());
                let done = written.clear(places.clone(), &mut left, |piece| {
                    cleared.push(piece.start / PIECE_BYTES);
                });
                prop_assert!((cleared.len() - before) as u64 <= budget);
                if done {
                    break;
                }
            }
            let (inside, outside): (Vec<u64>, Vec<u64>) =
                marked.into_iter().partition(|piece| (first..first + count).contains(piece));
            prop_assert_eq!(cleared, inside);
            // What lies outside has kept its marks.
            let mut others = Vec::new();
            written.clear(0..256 * PIECE_BYTES, &mut u64::MAX.clone(), |piece| {
                others.push(piece.start / PIECE_BYTES);
            });
            prop_assert_eq!(others, outside);
        }
    }
}
