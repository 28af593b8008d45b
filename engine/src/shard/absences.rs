//! Whether a key has been absent since a version of its shard, though it is absent now.
//!
//! A key that was stored and removed again leaves no record. So, of the records that are removed,
//! the latest version is kept by a tag of their key's hash, a few in each bucket, and of what a
//! bucket had no entry for the latest of all. A key that is absent has been so since a version if
//! its bucket has no later one, of its tag or of what it had no entry for.
//!
//! ```text
//! bucket = hash bits 11..0
//! bucket: | entry | entry | entry | entry | entry | entry | entry | latest of the others |
//! entry:  | version 47..0 | tag 63..48 = hash bits 63..48 |      bit 0 is the least significant
//! ```
//!
//! A zero entry is empty: no record has version 0.
//!
//! - I1: "yes" is true. "No" may be said of a key if another one of its bucket and tag was stored
//!   and removed meanwhile, or more others of its bucket than have entries.
//! - I2: until an absence is first reported, a removal costs a branch, and the table no memory.
//!   From then on it has [`TABLE_BYTES`], and a removal costs a cache line.

use crate::message::hash::IndexHash;
use crate::message::operation::Version;

/// Buckets of the table. Where a thousand other keys are removed between the read of an absence and
/// its check, that absence is denied with a chance of one in 250,000. Where ten thousand are, the
/// chance is one in 250.
const BUCKETS: usize = 1 << 12;
/// Entries of a bucket: those that fill a cache line with what is beside them.
const ENTRIES: usize = 7;
/// Bytes of the table.
const TABLE_BYTES: usize = 256 << 10;
/// Bits of a version.
const VERSION_BITS: u32 = 48;

/// Removed records of one tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Entry(u64);

impl Entry {
    fn new(tag: u64, version: Version) -> Self {
        debug_assert!(version > 0 && version >> VERSION_BITS == 0);
        Self(tag << VERSION_BITS | version)
    }

    fn tag(self) -> u64 {
        self.0 >> VERSION_BITS
    }

    fn version(self) -> Version {
        self.0 & ((1 << VERSION_BITS) - 1)
    }
}

/// A cache line of removed records.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    entries: [Entry; ENTRIES],
    /// The latest version of those that have no entry.
    latest_of_others: Version,
}

const _: () = assert!(size_of::<Bucket>() == 64);
const _: () = assert!(BUCKETS * size_of::<Bucket>() == TABLE_BYTES);

impl Bucket {
    fn note(&mut self, tag: u64, version: Version) {
        let (mut place, mut earliest) = (0, Version::MAX);
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if entry.version() > 0 && entry.tag() == tag {
                *entry = Entry::new(tag, version.max(entry.version()));
                return;
            }
            if entry.version() < earliest {
                (place, earliest) = (at, entry.version());
            }
        }
        let entry = &mut self.entries[place];
        let left_out = version.min(entry.version());
        if version > entry.version() {
            *entry = Entry::new(tag, version);
        }
        self.latest_of_others = left_out.max(self.latest_of_others);
    }

    /// The latest version of a removal that may concern a key of this tag.
    fn latest(&self, tag: u64) -> Version {
        let of_tag = self.entries.iter().filter(|entry| entry.tag() == tag);
        let latest = of_tag.map(|entry| entry.version());
        latest.fold(self.latest_of_others, Version::max)
    }
}

/// The latest versions of removed records.
#[derive(Debug, Default)]
pub(super) struct Absences {
    buckets: Option<Box<[Bucket]>>,
    /// The latest version of a removal that may concern any key.
    latest_of_all: Version,
}

impl Absences {
    /// Notes removals from now on.
    #[cold]
    pub(super) fn begin(&mut self) {
        self.buckets
            .get_or_insert_with(|| vec![Bucket::default(); BUCKETS].into_boxed_slice());
    }

    /// True if removals are noted.
    pub(super) fn are_noted(&self) -> bool {
        self.buckets.is_some()
    }

    /// Notes that a record of a key, of this version or an earlier one, is removed.
    #[inline]
    pub(super) fn note(&mut self, hash: IndexHash, version: Version) {
        if let Some(buckets) = &mut self.buckets {
            buckets[bucket_of(hash)].note(tag_of(hash), version);
        }
    }

    /// Notes that records of any keys, up to this version, are removed.
    pub(super) fn note_all(&mut self, version: Version) {
        self.latest_of_all = version.max(self.latest_of_all);
    }

    /// True if an absent key has been absent since a version.
    pub(super) fn hold(&self, hash: IndexHash, since: Version) -> bool {
        let latest = |buckets: &[Bucket]| buckets[bucket_of(hash)].latest(tag_of(hash));
        let latest = self.buckets.as_deref().map(latest);
        latest.is_some_and(|latest| latest.max(self.latest_of_all) <= since)
    }
}

fn bucket_of(hash: IndexHash) -> usize {
    usize::try_from(hash.0 % BUCKETS as u64).unwrap_or(0)
}

fn tag_of(hash: IndexHash) -> u64 {
    hash.0 >> VERSION_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash of the first bucket.
    fn of_tag(tag: u64) -> IndexHash {
        IndexHash(tag << VERSION_BITS)
    }

    #[test]
    fn an_absence_holds_until_a_later_record_of_its_tag_is_removed() {
        let (key, twin) = (IndexHash(5 << 48 | 7), IndexHash(5 << 48 | 1 << 20 | 7));
        let (neighbour, other) = (IndexHash(6 << 48 | 7), IndexHash(5 << 48 | 8));
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
        assert!(!absences.hold(twin, 9));
        assert!(absences.hold(neighbour, 9) && absences.hold(other, 9));
        absences.note_all(12);
        assert!(!absences.hold(other, 11) && absences.hold(other, 12));
    }

    #[test]
    fn a_bucket_denies_what_it_cannot_tell() {
        let mut absences = Absences::default();
        absences.begin();
        for version in 1..=ENTRIES as u64 {
            absences.note(of_tag(version), version);
        }
        assert!(absences.hold(of_tag(100), 1) && !absences.hold(of_tag(7), 6));
        // The earliest makes room.
        absences.note(of_tag(8), 8);
        assert!(!absences.hold(of_tag(100), 0) && absences.hold(of_tag(100), 1));
        assert!(!absences.hold(of_tag(1), 0) && !absences.hold(of_tag(8), 7));
        // One that is earlier than all has no entry.
        absences.note(of_tag(9), 2);
        assert!(!absences.hold(of_tag(9), 1) && absences.hold(of_tag(9), 2));
        assert!(!absences.hold(of_tag(2), 1));
        // Key without a tag.
        assert!(absences.hold(of_tag(0), 2) && !absences.hold(of_tag(0), 1));
    }

    #[test]
    fn absences_are_seldom_denied_for_others() {
        const REMOVED: u64 = 1000;
        let hash = |number: u64| IndexHash(xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes()));
        let mut absences = Absences::default();
        absences.begin();
        for number in 0..REMOVED {
            absences.note(hash(number), 1 + number);
        }
        let denied = |since| {
            let others = REMOVED..REMOVED + 100_000;
            others
                .filter(|&other| !absences.hold(hash(other), since))
                .count()
        };
        assert_eq!(denied(REMOVED), 0);
        assert!(denied(0) < 20, "{} of 100,000", denied(0));
        assert!((0..REMOVED).all(|number| !absences.hold(hash(number), 0)));
    }
}
