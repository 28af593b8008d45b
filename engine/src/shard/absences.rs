//! Whether a key has been absent since a version of its shard, though it is absent now.
//!
//! A key that was stored and removed again leaves no record. So, of the records that are removed,
//! the latest version is kept, for all keys of a place together. A key that is absent has been so
//! since a version if no record of its place with a later one was removed.
//!
//! ```text
//! place = hash bits 11..0      latest[place] = version of a removed record
//! ```
//!
//! - I1: "yes" is true. "No" may be said of a key when another one of its place was stored and
//!   removed meanwhile.
//! - I2: until an absence is first reported, a removal costs a branch, and the table no memory.

use crate::message::hash::IndexHash;
use crate::message::operation::Version;

/// Places of the table: 32 KiB. Each record of another key that is removed between the read of an
/// absence and its check denies that absence with a chance of one in this many.
const PLACES: usize = 1 << 12;

/// The latest versions of removed records.
#[derive(Debug, Default)]
pub(super) struct Absences {
    latest: Option<Box<[Version]>>,
    /// The latest version of a removal that may concern any key.
    latest_of_all: Version,
}

impl Absences {
    /// Notes removals from now on.
    #[cold]
    pub(super) fn begin(&mut self) {
        self.latest
            .get_or_insert_with(|| vec![0; PLACES].into_boxed_slice());
    }

    /// True if removals are noted.
    pub(super) fn are_noted(&self) -> bool {
        self.latest.is_some()
    }

    /// Notes that a record of a key, of this version or an earlier one, is removed.
    #[inline]
    pub(super) fn note(&mut self, hash: IndexHash, version: Version) {
        if let Some(latest) = &mut self.latest {
            let latest = &mut latest[place_of(hash)];
            *latest = version.max(*latest);
        }
    }

    /// Notes that records of any keys, up to this version, are removed.
    pub(super) fn note_all(&mut self, version: Version) {
        self.latest_of_all = version.max(self.latest_of_all);
    }

    /// True if an absent key has been absent since a version.
    pub(super) fn hold(&self, hash: IndexHash, since: Version) -> bool {
        let latest = self.latest.as_deref();
        latest.is_some_and(|latest| latest[place_of(hash)].max(self.latest_of_all) <= since)
    }
}

fn place_of(hash: IndexHash) -> usize {
    usize::try_from(hash.0 % PLACES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_holds_until_a_later_record_of_its_place_is_removed() {
        let (key, other) = (IndexHash(5 << 32 | 7), IndexHash(8));
        let mut absences = Absences::default();
        absences.note(key, 3);
        assert!(!absences.hold(key, 9));
        absences.begin();
        assert!(absences.hold(key, 9));
        // What was stored before.
        absences.note(key, 9);
        assert!(absences.hold(key, 9));
        absences.note(key, 10);
        absences.note(key, 2);
        assert!(!absences.hold(key, 9) && absences.hold(key, 10));
        assert!(absences.hold(other, 9));
        absences.note_all(12);
        assert!(!absences.hold(other, 11) && absences.hold(other, 12));
    }
}
