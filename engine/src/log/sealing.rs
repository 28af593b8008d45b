//! Sealing: encrypts a page of the authenticated mode for far memory, piece by piece.
//!
//! ```text
//! | header, in the clear | record | tag | record | tag | gap | ... | record | tag | directory | tag |
//!                          ^ message      ^ message      ^ message                  ^ message
//! ```
//!
//! A record without its tag's unit is one message, and so is the directory. A gap is left where a
//! shorter value was stored over a record. It is a message of zeros without a tag, so that it looks
//! like the rest.
//!
//! - I1: the ciphertext depends only on the page and its sequence number, not on how it is cut into
//!   pieces.
//! - I2: progress is a value: a piece that could not be posted is sealed again from the progress
//!   before it.

use super::page::{self, DIRECTORY_ENTRY_BYTES, HEADER_BYTES};
use super::record::RecordHeader;
use crate::cipher::RecordCipher;
use crate::cipher::gcm::{Sealing, TAG_BYTES};
use crate::constants::UNIT_BYTES;

/// How far a page is sealed.
#[derive(Clone, Debug, Default)]
pub(crate) struct SealProgress {
    /// The message in progress, by its place in the directory; the directory itself comes last.
    message: u32,
    /// The state of that message, if earlier pieces hold its beginning.
    begun: Option<Sealing>,
}

/// A page that is being sealed.
#[derive(Clone, Copy)]
pub(crate) struct PageSealer<'a> {
    pub(crate) cipher: &'a RecordCipher,
    pub(crate) sequence: u64,
    /// The page's frame.
    pub(crate) page: &'a [u8],
    /// Units in use, directory not included.
    pub(crate) units: u32,
    pub(crate) records: u32,
}

/// The bytes of a message in its page.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    /// The end of the body and start of the tag.
    body_end: usize,
    /// The end of the tag and start of the gap, if any.
    tag_end: usize,
    end: usize,
}

/// The unit of a byte of a page.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a page has 2^17 units at most"
)]
fn unit_of(at: usize) -> u32 {
    (at / UNIT_BYTES) as u32
}

impl PageSealer<'_> {
    /// The offset of a record.
    fn record_at(&self, record: u32) -> usize {
        let directory = self.units as usize * UNIT_BYTES;
        if record == self.records {
            return directory;
        }
        let place = directory + record as usize * DIRECTORY_ENTRY_BYTES;
        let entry = self.page[place..]
            .first_chunk()
            .map(page::DirectoryEntry::decode);
        entry.map_or(directory, |entry| entry.unit as usize * UNIT_BYTES)
    }

    fn span(&self, message: u32) -> Span {
        let start = self.record_at(message);
        let (tag_end, end) = if message == self.records {
            let end = start + page::far_directory_bytes(self.records, true);
            (end, end)
        } else {
            let header = RecordHeader::decode_from(&self.page[start..]);
            let header = header.expect("a sealed page's directory names its records");
            let tag_end = start + header.units() as usize * UNIT_BYTES;
            (tag_end, self.record_at(message + 1))
        };
        Span {
            start,
            body_end: tag_end - TAG_BYTES,
            tag_end,
            end,
        }
    }

    /// Seals the page from `start` on, as much as `target` holds; returns how far the page is
    /// sealed then. Pieces begin and end at units and follow each other.
    pub(crate) fn seal_piece(
        &self,
        progress: &SealProgress,
        start: usize,
        target: &mut [u8],
    ) -> SealProgress {
        let gcm = self.cipher.gcm();
        let nonce = |at: usize| RecordCipher::nonce(self.sequence, unit_of(at));
        let mut progress = progress.clone();
        let end = start + target.len();
        let clear = HEADER_BYTES.clamp(start, end);
        target[..clear - start].copy_from_slice(&self.page[start..clear]);
        let mut at = clear;
        while at < end {
            let span = self.span(progress.message);
            let place = at - start;
            if at == span.start && span.tag_end <= end {
                let (body, tag) =
                    target[place..][..span.tag_end - at].split_at_mut(span.body_end - at);
                tag.copy_from_slice(&gcm.seal(&nonce(at), &self.page[at..span.body_end], body));
                at = span.tag_end;
            } else if at < span.body_end {
                let until = span.body_end.min(end);
                let begun = &mut progress.begun;
                let sealing = begun.get_or_insert_with(|| gcm.begin_pieces(nonce(span.start)));
                let target = &mut target[place..][..until - at];
                gcm.seal_piece(sealing, &self.page[at..until], target);
                at = until;
            } else if at < span.tag_end {
                let sealing = progress.begun.take();
                let sealing = sealing.expect("a message's body is sealed before its tag");
                target[place..][..TAG_BYTES].copy_from_slice(&gcm.finish(sealing));
                at = span.tag_end;
            } else if at < span.end {
                let until = span.end.min(end);
                let unit = unit_of(at - span.tag_end);
                gcm.fill(
                    &nonce(span.tag_end),
                    unit,
                    &mut target[place..][..until - at],
                );
                at = until;
            }
            if at == span.end {
                progress.message += 1;
            }
        }
        progress
    }
}

#[cfg(test)]
#[allow(unsafe_code)] // writes records into a page
#[expect(clippy::cast_possible_truncation, reason = "test data is small")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cipher::{EncryptionKey, EncryptionMode, PageCipher};
    use crate::log::SizeClass;
    use crate::log::page::{DirectoryEntry, directory_bytes, far_directory_bytes};
    use crate::log::record::{self, KEYED_TAG, LocalRecord, RecordView, sealed_bytes};
    use crate::message::hash::IndexHash;

    const SEQUENCE: u64 = 77;

    #[repr(align(16))]
    struct Aligned([u8; 1 << 16]);

    /// A page of records, of which some values may have been overwritten by shorter ones.
    struct Made {
        page: Box<Aligned>,
        units: u32,
        values: Vec<(u32, Vec<u8>, Vec<u8>)>,
    }

    fn made(records: &[(usize, usize, Option<usize>)]) -> Made {
        let mut page = Box::new(Aligned([0x5A; 1 << 16]));
        let (mut unit, mut values) = (4, Vec::new());
        let mut entries = Vec::new();
        for (number, &(key_bytes, value_bytes, shorter)) in records.iter().enumerate() {
            let fill = number as u8;
            let (key, mut value) = (vec![fill; key_bytes], vec![fill ^ 0x80; value_bytes]);
            let place = unit as usize * UNIT_BYTES;
            // SAFETY: the page is long enough for the records of these tests.
            unsafe {
                let pointer = page.0.as_mut_ptr().add(place);
                record::write_at(pointer, 9, KEYED_TAG, &key, &value);
                if let Some(shorter) = shorter {
                    value.truncate(shorter);
                    LocalRecord::at(pointer).overwrite(10, 0, &value);
                }
            }
            let class = SizeClass::for_units(1);
            let hash = IndexHash(number as u64);
            entries.push(DirectoryEntry { hash, unit, class }.encode());
            values.push((unit, key, value));
            unit += record::units_for(key_bytes, value_bytes) + 1;
        }
        for (entry, bytes) in entries.iter().enumerate() {
            let place = unit as usize * UNIT_BYTES + entry * DIRECTORY_ENTRY_BYTES;
            page.0[place..place + bytes.len()].copy_from_slice(bytes);
        }
        Made {
            page,
            units: unit,
            values,
        }
    }

    fn cipher() -> PageCipher {
        let key = EncryptionKey::Aes256([3; 32]);
        PageCipher::new(&key, EncryptionMode::Authenticated, &[4; 16], 5, 6)
    }

    fn sealed(made: &Made, cuts: &[usize]) -> Vec<u8> {
        let cipher = cipher();
        let sealer = PageSealer {
            cipher: cipher.authenticated().unwrap(),
            sequence: SEQUENCE,
            page: &made.page.0,
            units: made.units,
            records: made.values.len() as u32,
        };
        let records = made.values.len() as u32;
        let all = made.units as usize * UNIT_BYTES + far_directory_bytes(records, true);
        let mut far = vec![0xEE; all];
        let mut progress = SealProgress::default();
        let mut at = 0;
        let mut cuts = cuts.iter().cycle();
        while at < all {
            let bytes = (cuts.next().unwrap() * UNIT_BYTES).min(all - at);
            // A piece that was not posted is sealed again.
            sealer.seal_piece(&progress, at, &mut far[at..at + bytes]);
            far[at..at + bytes].fill(0xEE);
            progress = sealer.seal_piece(&progress, at, &mut far[at..at + bytes]);
            at += bytes;
        }
        far
    }

    fn records() -> impl Strategy<Value = Vec<(usize, usize, Option<usize>)>> {
        let record = (
            1usize..60,
            0usize..600,
            any::<bool>(),
            any::<prop::sample::Index>(),
        );
        let record = record.prop_map(|(key, value, over, shorter)| {
            (key, value, over.then(|| shorter.index(value + 1)))
        });
        prop::collection::vec(record, 1..40)
    }

    proptest! {
        #[test]
        fn pages_are_sealed_alike_however_they_are_cut(records in records(), cuts in prop::collection::vec(1usize..90, 1..9)) {
            let made = made(&records);
            let far = sealed(&made, &cuts);
            prop_assert_eq!(&far, &sealed(&made, &[1 << 12]));
            prop_assert_eq!(&far[..HEADER_BYTES], &made.page.0[..HEADER_BYTES]);
            let cipher = cipher();
            let cipher = cipher.authenticated().unwrap();
            for (unit, key, value) in &made.values {
                let mut read = far[*unit as usize * UNIT_BYTES..].to_vec();
                let bytes = cipher.open_record(SEQUENCE, *unit, read.as_mut_slice().into(), sealed_bytes);
                let view = RecordView::parse(&read[..bytes.unwrap()]).unwrap();
                prop_assert_eq!((view.key(), view.value()), (&key[..], &value[..]));
            }
            let directory = made.units as usize * UNIT_BYTES;
            let mut read = far[directory..].to_vec();
            prop_assert!(cipher.open_directory(SEQUENCE, made.units, &mut read));
            let bytes = directory_bytes(made.values.len() as u32);
            prop_assert_eq!(&read[..bytes], &made.page.0[directory..directory + bytes]);
        }

        #[test]
        fn a_changed_bit_is_noticed_by_who_reads_it(records in records(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let made = made(&records);
            let mut far = sealed(&made, &[512]);
            let place = HEADER_BYTES + at.index(far.len() - HEADER_BYTES);
            far[place] ^= 1 << bit;
            let cipher = cipher();
            let cipher = cipher.authenticated().unwrap();
            let mut noticed = 0;
            let mut in_gap = true;
            for (unit, key, value) in &made.values {
                let start = *unit as usize * UNIT_BYTES;
                let end = start + (record::units_for(key.len(), value.len()) as usize + 1) * UNIT_BYTES;
                in_gap &= !(start..end).contains(&place);
                let mut read = far[start..].to_vec();
                let before = read.clone();
                if cipher.open_record(SEQUENCE, *unit, read.as_mut_slice().into(), sealed_bytes).is_none() {
                    // Nothing was decrypted.
                    prop_assert_eq!(read, before);
                    noticed += 1;
                }
            }
            let directory = made.units as usize * UNIT_BYTES;
            in_gap &= place < directory;
            noticed += usize::from(!cipher.open_directory(SEQUENCE, made.units, &mut far[directory..]));
            prop_assert_eq!(noticed, usize::from(!in_gap));
        }
    }

    /// Far memory that returns other bytes than were written there is noticed, and not decrypted.
    #[test]
    fn nothing_but_a_sealed_record_or_directory_is_opened() {
        let made = made(&[(8, 40, None), (3, 300, Some(10))]);
        let far = sealed(&made, &[512]);
        let places: Vec<_> = made.values.iter().map(|value| value.0).collect();
        let directory = made.units;
        let from = |unit: u32| &far[unit as usize * UNIT_BYTES..];
        let marked = |place: u8, unit| [&[place], from(unit)].concat();
        let cipher = cipher();
        let cipher = cipher.authenticated().unwrap();
        farcore_fuzz::Target::new("sealed records")
            .seed(marked(0, places[0]))
            .seed(marked(1, places[1]))
            .seed(marked(2, directory))
            .run(|bytes| {
                let Some((&place, read)) = bytes.split_first() else {
                    return;
                };
                // What is read is whole units.
                let read = &read[..read.len() & !(UNIT_BYTES - 1)];
                let mut opened = read.to_vec();
                if place % 3 == 2 {
                    let is_open = cipher.open_directory(SEQUENCE, directory, &mut opened);
                    assert_eq!(is_open, read == from(directory));
                    assert!(is_open || opened == read);
                    return;
                }
                let unit = places[usize::from(place % 3)];
                let data = opened.as_mut_slice().into();
                match cipher.open_record(SEQUENCE, unit, data, sealed_bytes) {
                    Some(length) => assert_eq!(read[..length], from(unit)[..length]),
                    None => assert_eq!(opened, read),
                }
            });
    }

    #[test]
    fn a_gap_holds_nothing_of_what_was_there() {
        let made = made(&[(8, 4_000, Some(10)), (8, 100, None)]);
        let far = sealed(&made, &[7]);
        let old = [0x80; 16];
        let gap = 4 * UNIT_BYTES + 64..4 * UNIT_BYTES + 4_000;
        assert!(
            made.page.0[gap.clone()]
                .windows(16)
                .any(|window| window == old)
        );
        let plain = [0; 16];
        assert!(!far[gap].chunks(16).any(|unit| unit == old || unit == plain));
    }
}
