//! The slots near a hash's home: those whose removal makes room for a slot of that hash.

use std::iter;

use super::segment::{BUCKETS, SLOTS_A_BUCKET};
use super::{Index, Position, Slot};
use crate::message::hash::IndexHash;

impl Index {
    /// The slots of a hash's home bucket and of the buckets behind it, nearest first, `buckets` in
    /// all. They are of the segment of that hash, but for the most part of other hashes.
    pub(crate) fn near(
        &self,
        hash: IndexHash,
        buckets: usize,
    ) -> impl Iterator<Item = (Position, Slot)> {
        let (segment, home) = (*self.segment_of(hash), Self::home_of(hash));
        let mut places = (home..home + buckets.min(BUCKETS))
            .flat_map(|bucket| (0..SLOTS_A_BUCKET).map(move |slot| (bucket, slot)));
        iter::from_fn(move || {
            let (bucket, slot) = places.next()?;
            let place = bucket % BUCKETS * SLOTS_A_BUCKET + slot;
            Some((
                Position(segment.position(place)),
                segment.slot(place).unmarked(),
            ))
        })
        .filter(|(_, slot)| !slot.is_empty())
    }
}
