//! What a scan takes and returns: cursors, options, pages of entries.

use std::ops::Range;

use crate::constants::UNIT_BYTES;
use crate::error::{Error, Result};
use crate::index::scan::ORDER_BITS;
use crate::log::record::{self, RecordHeader, RecordView};
use crate::message::long::word;
use crate::message::operation::Version;
use crate::transport::lane::LANES_MAX;

/// Where a scan goes on: 16 bytes that stay valid while the engine is open, whatever is written,
/// removed or moved meanwhile. A cursor of another engine is refused, unless both were opened with
/// the same [`Config::seed`](crate::Config::seed): then it means another place.
///
/// ```text
/// | engine:32 | shard:16 | 0:16 | order:64 |     little endian; all zero is the start
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cursor {
    engine: u32,
    shard: u16,
    order: u64,
}

impl Cursor {
    /// Where a scan begins.
    pub const START: Self = Self {
        engine: 0,
        shard: 0,
        order: 0,
    };

    pub(super) fn new(engine: u32, shard: u16, order: u64) -> Self {
        Self {
            engine,
            shard,
            order,
        }
    }

    /// The cursor as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.engine.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.shard.to_le_bytes());
        bytes[8..].copy_from_slice(&self.order.to_le_bytes());
        bytes
    }

    /// A cursor from bytes. A scan refuses those of another engine.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let word = u128::from_le_bytes(bytes);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "takes fields out of a word"
        )]
        Self {
            engine: word as u32,
            shard: (word >> 32) as u16,
            order: (word >> 64) as u64,
        }
    }

    /// The cursor as a word, for protocols that have no room for 16 bytes. It does not say which
    /// engine it is of. `0` is the start. It has 53 bits, so that programs whose numbers are
    /// doubles or signed words keep it.
    ///
    /// ```text
    /// bit 63   53 52      8 7      0
    /// |    0:11  | order:45 | shard:8 |
    /// ```
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.order << SHARD_BITS | u64::from(self.shard)
    }

    /// A cursor of the engine of this number from [`Cursor::to_word`]. Longer words are of no
    /// engine.
    pub(super) fn from_word(engine: u32, word: u64) -> Self {
        if word == 0 {
            return Self::START;
        }
        let shard = if word >> WORD_BITS == 0 {
            (word & ((1 << SHARD_BITS) - 1)) as u16
        } else {
            u16::MAX
        };
        Self {
            engine,
            shard,
            order: word >> SHARD_BITS,
        }
    }

    /// Shard and order where a scan of this engine begins.
    pub(super) fn place(self, engine: u32, shards: u16) -> Result<(u16, u64)> {
        if self == Self::START {
            return Ok((0, 0));
        }
        if self.engine != engine || self.shard >= shards {
            return Err(Error::Cursor { shards });
        }
        Ok((self.shard, self.order))
    }
}

/// Bits of a cursor's word: those of a double's integers.
const WORD_BITS: u32 = f64::MANTISSA_DIGITS;
/// Bits of the shard in it.
const SHARD_BITS: u32 = 8;

const _: () = assert!(LANES_MAX <= 1 << SHARD_BITS);
const _: () = assert!(SHARD_BITS + ORDER_BITS <= WORD_BITS);

/// What a scan returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanOptions {
    /// Values, and when they expire, beside keys, versions and lengths. Default: no. Far records
    /// are read whole all the same, because only the whole says that it is what was written.
    pub values: bool,
    /// Entries of a page, about: records that go while they are read are missing. Default 1024.
    pub entries: usize,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            values: false,
            entries: 1024,
        }
    }
}

/// What an export visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportOptions {
    /// Visit values too. Default: yes.
    pub values: bool,
    /// Far records of one shard that are gathered before they are read in the order of the log, at
    /// 40 bytes each: 1 to 8,388,606. With as many as the shard has, its pages are read once and in
    /// order; with a part of them, once for each part. Default 4,194,304.
    pub batch: usize,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            values: true,
            batch: super::EXPORT_BATCH,
        }
    }
}

/// What an export has visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExportSummary {
    /// Records visited.
    pub entries: u64,
    /// Records that were lost or are damaged.
    pub unreadable: u64,
}

/// One record of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, if the scan wants values and it is in a record:
    /// [`get_long`](crate::Handle::get_long) reads those in pieces.
    pub value: Option<&'a [u8]>,
    /// The version.
    pub version: Version,
    /// The length of the value, in bytes.
    pub length: usize,
    /// When the key expires, in milliseconds since 1970. `None` if it does not, or if the scan does
    /// not want values.
    pub expiry_ms: Option<u64>,
    /// The key holds a collection: it has no value, and a length of 0.
    pub collection: bool,
    /// The record.
    pub(super) bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The record.
    pub(crate) fn record(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Iterates over the entries of a page.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    parts: std::slice::Iter<'a, Part>,
    bytes: &'a [u8],
    rest: &'a [u8],
    values: bool,
}

impl<'a> Entries<'a> {
    /// The entries of records that follow each other.
    pub(crate) fn new(records: &'a [u8], values: bool) -> Self {
        Self {
            parts: [].iter(),
            bytes: &[],
            rest: records,
            values,
        }
    }
}

/// The first of the records that follow each other in `bytes`, and its length.
fn first_entry(bytes: &[u8], values: bool) -> Option<(Entry<'_>, usize)> {
    let header = RecordHeader::decode_from(bytes)?;
    let key_bytes = header.key_bytes() as usize;
    let mut entry = Entry {
        key: bytes.get(UNIT_BYTES..UNIT_BYTES + key_bytes)?,
        value: None,
        version: header.version(),
        length: header.value_bytes() as usize,
        expiry_ms: None,
        collection: header.is_tree(),
        bytes,
    };
    let length = if header.is_long() {
        // The head of a long value says how long it is.
        let view = RecordView::parse(bytes)?;
        entry.length = usize::try_from(word(view.value(), 0)).unwrap_or(usize::MAX);
        entry.expiry_ms = view.expiry_ms().filter(|_| values);
        view.bytes().len()
    } else if values {
        let view = RecordView::parse(bytes)?;
        entry.value = Some(view.value()).filter(|_| !entry.collection);
        entry.expiry_ms = view.expiry_ms();
        view.bytes().len()
    } else {
        record::units_for(key_bytes, 0) as usize * UNIT_BYTES
    };
    if entry.collection {
        entry.length = 0;
    }
    entry.bytes = bytes.get(..length)?;
    Some((entry, length))
}

/// Bytes of the records at the start of `bytes` that follow each other, and their count.
pub(super) fn run_of_records(bytes: &[u8], values: bool) -> (usize, u32) {
    let (mut run, mut count) = (0, 0);
    while let Some((_, length)) = bytes.get(run..).and_then(|rest| first_entry(rest, values)) {
        run += length;
        count += 1;
    }
    (run, count)
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        while self.rest.is_empty() {
            let part = self.parts.next()?;
            self.rest = &self.bytes[part.range.clone()];
        }
        let (entry, length) = first_entry(self.rest, self.values)?;
        self.rest = &self.rest[length..];
        Some(entry)
    }
}

/// Records that follow each other in a page's bytes.
#[derive(Clone, Debug)]
struct Part {
    sequence: u32,
    range: Range<usize>,
}

/// Entries of a scan, in its order, and where it goes on.
#[derive(Clone, Debug)]
pub struct ScanPage {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    /// Parts of the batches that have ended. They are in the order of the scan, so the last of them
    /// need not be the one whose bytes came last, and none of them grows.
    ended: usize,
    values: bool,
    unreadable: u64,
    next: Option<Cursor>,
}

impl ScanPage {
    pub(crate) fn new(values: bool) -> Self {
        Self {
            bytes: Vec::new(),
            parts: Vec::new(),
            ended: 0,
            values,
            unreadable: 0,
            next: None,
        }
    }

    /// Adds records of a batch.
    pub(crate) fn add(&mut self, sequence: u32, records: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(records);
        let range = start..self.bytes.len();
        match self.parts[self.ended..].last_mut() {
            Some(last) if last.sequence == sequence => last.range.end = range.end,
            _ => self.parts.push(Part { sequence, range }),
        }
    }

    /// Ends a batch: its parts are put in order.
    pub(crate) fn end_batch(&mut self) {
        self.parts[self.ended..].sort_by_key(|part| part.sequence);
        self.ended = self.parts.len();
    }

    pub(super) fn note_unreadable(&mut self, count: u64) {
        self.unreadable += count;
    }

    pub(super) fn set_next(&mut self, next: Option<Cursor>) {
        self.next = next;
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            parts: self.parts.iter(),
            bytes: &self.bytes,
            rest: &[],
            values: self.values,
        }
    }

    /// Where the scan goes on; `None` at its end.
    #[must_use]
    pub fn next(&self) -> Option<Cursor> {
        self.next
    }

    /// Records that were lost or are damaged, whose keys are unknown.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back(engine: u32, shard: u16, order: u64) {
            let cursor = Cursor::new(engine, shard, order);
            prop_assert_eq!(Cursor::from_bytes(cursor.to_bytes()), cursor);
        }

        #[test]
        fn a_word_passes_doubles_and_signed_words(
            shard in 0..u16::try_from(LANES_MAX).unwrap(),
            order in 0u64..1 << ORDER_BITS,
        ) {
            let cursor = Cursor::new(7, shard, order);
            let word = cursor.to_word();
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as a client with doubles does")]
            let passed = (word as f64) as u64;
            prop_assert_eq!(passed, word);
            prop_assert!(i64::try_from(word).is_ok());
            let expected = if word == 0 { Cursor::START } else { cursor };
            prop_assert_eq!(Cursor::from_word(7, word), expected);
        }

        #[test]
        fn a_longer_word_is_refused(word in 1u64 << WORD_BITS..) {
            let place = Cursor::from_word(7, word).place(7, u16::try_from(LANES_MAX).unwrap());
            prop_assert!(place.is_err());
        }
    }

    #[test]
    fn any_bytes_are_entries_that_lie_in_them() {
        farcore_fuzz::Target::new("scan page")
            .seed([record_of(b"key"), record_of(&[b'k'; 40])].concat())
            .run(|bytes| {
                for values in [false, true] {
                    let (run, count) = run_of_records(bytes, values);
                    let entries: Vec<_> = Entries::new(bytes, values).collect();
                    assert_eq!(entries.len(), count as usize);
                    let held: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
                    assert!(held == run && run <= bytes.len());
                }
                let cursors = bytes.as_chunks().0;
                for cursor in cursors {
                    assert_eq!(Cursor::from_bytes(*cursor).to_bytes()[8..], cursor[8..]);
                }
            });
    }

    /// The record of a key, as a list without values has it.
    fn record_of(key: &[u8]) -> Vec<u8> {
        let mut bytes = RecordHeader::new(1, 0, key.len(), 9).to_bytes().to_vec();
        bytes.extend_from_slice(key);
        bytes.resize(record::units_for(key.len(), 0) as usize * UNIT_BYTES, 0);
        bytes
    }

    proptest! {
        #[test]
        fn a_page_holds_each_record_of_each_batch_once_in_order(
            batches in prop::collection::vec(prop::collection::vec(0u32..4, 0..6), 0..5),
        ) {
            let mut page = ScanPage::new(false);
            let mut expected = Vec::new();
            for (number, sequences) in batches.iter().enumerate() {
                // As they arrive: in any order, and several of one sequence.
                let mut batch = Vec::new();
                for (place, &sequence) in sequences.iter().enumerate() {
                    let key = format!("{number} {sequence} {place}").into_bytes();
                    page.add(sequence, &record_of(&key));
                    batch.push((sequence, key));
                }
                page.end_batch();
                batch.sort_by_key(|&(sequence, _)| sequence);
                expected.extend(batch.into_iter().map(|(_, key)| key));
            }
            let keys: Vec<_> = page.entries().map(|entry| entry.key.to_vec()).collect();
            prop_assert_eq!(keys, expected);
        }
    }

    #[test]
    fn a_cursor_of_another_engine_is_refused() {
        assert_eq!(Cursor::START.place(5, 2), Ok((0, 0)));
        assert_eq!(Cursor::from_bytes([0; 16]), Cursor::START);
        assert_eq!(Cursor::new(5, 1, 9).place(5, 2), Ok((1, 9)));
        for cursor in [
            Cursor::new(4, 1, 9),
            Cursor::new(5, 2, 9),
            Cursor::new(0, 0, 1),
        ] {
            assert_eq!(cursor.place(5, 2), Err(Error::Cursor { shards: 2 }));
        }
    }
}
