//! Parses a record of libCacheSim's oracleGeneral: a request for an object of a size.
//!
//! Record, packed and little-endian, 24 bytes:
//!
//! | time: u32 | object: u64 | size: u32 | next access: i64 |
//!
//! Time and next access are not used.

use farcore::Expiry;

use super::entry::{Entry, Verb};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 24;

const OBJECT: std::ops::Range<usize> = 4..12;
const SIZE: std::ops::Range<usize> = 12..16;

/// Parses a record. The key is the eight bytes of the object's number, as stored.
#[must_use]
pub fn parse(record: &[u8; RECORD_BYTES]) -> Entry<'_> {
    let size = record[SIZE]
        .first_chunk()
        .map_or(0, |size| u32::from_le_bytes(*size));
    Entry {
        key: &record[OBJECT],
        verb: Verb::Get,
        value_bytes: u64::from(size),
        expiry: Expiry::Never,
    }
}

/// The number of whole records in the first bytes of a file, if they have the shape of records:
/// next accesses are none or ordinals, times seldom fall, and some size is stated. Text, compressed
/// bytes and padding have not.
#[must_use]
pub fn records(sample: &[u8]) -> Option<usize> {
    /// Of requests, in any trace that fits a disk.
    const ORDINALS: std::ops::Range<i64> = 0..1 << 48;
    /// What states that there is no next access.
    const NONE: [i64; 3] = [-1, -2, i64::MAX];
    /// One record in this many may have a time below the one before.
    const FALLS: usize = 8;
    let (mut count, mut falls, mut has_size, mut before) = (0, 0, false, 0);
    for record in sample.as_chunks::<RECORD_BYTES>().0 {
        let next = record
            .last_chunk()
            .map_or(0, |next| i64::from_le_bytes(*next));
        if !ORDINALS.contains(&next) && !NONE.contains(&next) {
            return None;
        }
        let time = record
            .first_chunk()
            .map_or(0, |time| u32::from_le_bytes(*time));
        count += 1;
        falls += usize::from(time < before);
        before = time;
        has_size |= parse(record).value_bytes > 0;
    }
    (has_size && falls <= count / FALLS).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_distinguished_from_other_bytes() {
        let record = |time: u32, size: u32, next: i64| {
            let mut record = time.to_le_bytes().to_vec();
            record.extend(5_u64.to_le_bytes());
            record.extend(size.to_le_bytes());
            record.extend(next.to_le_bytes());
            record
        };
        let of = |parts: &[(u32, u32, i64)]| {
            let parts: Vec<_> = parts.iter().map(|&(t, s, n)| record(t, s, n)).collect();
            records(&parts.concat())
        };
        assert_eq!(of(&[(0, 1, -1)]), Some(1));
        assert_eq!(of(&[(7, 1, 90), (7, 0, i64::MAX), (8, 2, -2)]), Some(3));
        // A cut record behind whole ones is no matter.
        assert_eq!(records(&[record(1, 1, -1), vec![9; 23]].concat()), Some(1));
        for (other, why) in [
            (of(&[(0, 0, -1), (1, 0, 4)]), "without a size"),
            (of(&[(2, 1, -1), (1, 1, -1)]), "times that fall"),
            (
                of(&[(0, 1, -1), (1, 1, 1 << 48)]),
                "an ordinal beyond reason",
            ),
            (of(&[(0, 1, -3)]), "a negative ordinal"),
            (records(&[0; 4096]), "padding"),
            (records(&b"0,a,1,5,1,get,0\n".repeat(9)), "text"),
            (records(b"short"), "less than a record"),
        ] {
            assert_eq!(other, None, "{why}");
        }
    }

    #[test]
    fn a_record_of_libcachesim_is_parsed() {
        // struct.pack("<IQIq", 0x01020304, 0x1112131415161718, 0x21222324, -1)
        let mut record = [0xff; RECORD_BYTES];
        record[..16].copy_from_slice(&[
            4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21,
        ]);
        let entry = parse(&record);
        assert_eq!(entry.key, 0x1112_1314_1516_1718_u64.to_le_bytes());
        assert_eq!((entry.verb, entry.value_bytes), (Verb::Get, 0x2122_2324));
    }
}
