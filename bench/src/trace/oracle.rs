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

#[cfg(test)]
mod tests {
    use super::*;

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
