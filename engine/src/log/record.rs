//! A record: header, key and value, padded to a unit, and a unit for its tag, if any.
//!
//! ```text
//! bit 127      96 95       80 79           59 58        48 47             0
//! |   check:32   |  flags:16 | stored bytes:21 | key bytes:11 |  version:48  |
//!
//! after the header: | key | value | expiry:64, if its flag is set | padding |
//! stored bytes: those of the value and of the expiry, which is in milliseconds since 1970
//!
//! flags: 0 hot (a cached copy that was hit) · 1 expiry · 2 head of a tree · 3 keyed tag
//!        4 unused
//!        5..14 loss mark: the generation of the lost slot that the record took over; 0 is none
//!        15 head of a long value
//! ```
//!
//! `check` is filled in at flush and covers everything but itself and the hot flag. In the
//! authenticated mode it is 0 and the record's last unit is for the tag, which only its ciphertext
//! holds.

#![allow(unsafe_code)] // reads and writes records in frames, where only the shard knows the bounds

use std::fmt;
use std::ptr;
use std::slice;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::copy_to;
use crate::constants::{EXPIRY_BYTES, KEY_BYTES_MAX, UNIT_BYTES, VALUE_BYTES_MAX};
use crate::message::operation::Version;

const VERSION_BITS: u32 = 48;
const KEY_BITS: u32 = 11;
const VALUE_BITS: u32 = 21;
const FLAGS_SHIFT: u32 = VERSION_BITS + KEY_BITS + VALUE_BITS;
const CHECK_SHIFT: u32 = 96;
/// Set in a cached copy when it is hit.
const HOT: u16 = 1;
const EXPIRY_BIT: u32 = 1;
/// The record ends with the time at which it expires.
pub(crate) const EXPIRY: u16 = 1 << EXPIRY_BIT;
/// The record is the head of a long value.
pub(crate) const LONG: u16 = 1 << 15;
/// The record is the head of a tree.
pub(crate) const TREE: u16 = 1 << 2;
const KEYED_TAG_BIT: u32 = 3;
/// The record's last unit is for its tag.
pub(crate) const KEYED_TAG: u16 = 1 << KEYED_TAG_BIT;
const LOSS_MARK_SHIFT: u32 = 5;
/// The highest loss mark.
pub(crate) const LOSS_MARK_MAX: u16 = (LONG - 1) >> LOSS_MARK_SHIFT;
const LOSS_FLAGS: u16 = LOSS_MARK_MAX << LOSS_MARK_SHIFT;

/// The flags for a loss mark.
pub(crate) const fn loss_flags(mark: u16) -> u16 {
    mark << LOSS_MARK_SHIFT
}

const _: () = assert!(FLAGS_SHIFT + 16 == CHECK_SHIFT);
const _: () = assert!(KEY_BYTES_MAX < 1 << KEY_BITS && VALUE_BYTES_MAX < 1 << VALUE_BITS);

/// Units of a record without a tag, whose value has these bytes, its expiry included.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "key and value lengths are limited"
)]
pub(crate) fn units_for(key_bytes: usize, value_bytes: usize) -> u32 {
    (1 + (key_bytes + value_bytes).div_ceil(UNIT_BYTES)) as u32
}

/// Gives the copy of a record another version. Its checksum is not made anew.
pub(crate) fn set_version(copy: &mut [u8], version: Version) {
    const BYTES: usize = VERSION_BITS as usize / 8;
    if let Some(bytes) = copy.first_chunk_mut::<BYTES>() {
        bytes.copy_from_slice(&version.to_le_bytes()[..BYTES]);
    }
}

/// A record's header: its first unit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader(u128);

#[expect(
    clippy::cast_possible_truncation,
    reason = "takes fields out of the packed word"
)]
impl RecordHeader {
    /// Packs a header without a checksum.
    #[inline]
    pub(crate) fn new(version: Version, flags: u16, key_bytes: usize, stored_bytes: usize) -> Self {
        debug_assert!(key_bytes <= KEY_BYTES_MAX && stored_bytes <= VALUE_BYTES_MAX);
        let low = version & ((1 << VERSION_BITS) - 1) | (key_bytes as u64) << VERSION_BITS;
        let value = (stored_bytes as u128) << (VERSION_BITS + KEY_BITS);
        Self(u128::from(low) | value | u128::from(flags) << FLAGS_SHIFT)
    }

    /// The header as it is stored.
    #[cfg(test)]
    pub(crate) fn to_bytes(self) -> [u8; UNIT_BYTES] {
        self.0.to_le_bytes()
    }

    /// The header at the start of some bytes; `None` if it is impossible.
    pub(crate) fn decode_from(bytes: &[u8]) -> Option<Self> {
        let header = Self(u128::from_le_bytes(*bytes.first_chunk()?));
        let keys = 1..=KEY_BYTES_MAX as u32;
        let least = if header.has_expiry() { EXPIRY_BYTES } else { 0 };
        let fits = (least..=VALUE_BYTES_MAX).contains(&(header.stored_bytes() as usize));
        (keys.contains(&header.key_bytes()) && fits).then_some(header)
    }

    #[inline]
    pub(crate) fn version(self) -> Version {
        self.0 as u64 & ((1 << VERSION_BITS) - 1)
    }
    #[inline]
    pub(crate) fn key_bytes(self) -> u32 {
        (self.0 >> VERSION_BITS) as u32 & ((1 << KEY_BITS) - 1)
    }
    /// Bytes of the value and of the expiry.
    #[inline]
    fn stored_bytes(self) -> u32 {
        (self.0 >> (VERSION_BITS + KEY_BITS)) as u32 & ((1 << VALUE_BITS) - 1)
    }
    /// Bytes of the value.
    #[inline]
    pub(crate) fn value_bytes(self) -> u32 {
        let expiry = if self.has_expiry() { EXPIRY_BYTES } else { 0 };
        self.stored_bytes() - expiry as u32
    }
    /// True if the record ends with the time at which it expires.
    #[inline]
    pub(crate) fn has_expiry(self) -> bool {
        self.flags() & EXPIRY != 0
    }
    /// True if the record is the head of a long value.
    #[inline]
    pub(crate) fn is_long(self) -> bool {
        self.flags() & LONG != 0
    }
    /// True if the record is the head of a tree.
    #[inline]
    pub(crate) fn is_tree(self) -> bool {
        self.flags() & TREE != 0
    }
    /// True if more ends with the record: a long value, or a tree.
    #[inline]
    pub(crate) fn is_head(self) -> bool {
        self.flags() & (LONG | TREE) != 0
    }
    /// True if a get must look at more than the value: it may expire, be long or stand for a
    /// tree.
    #[inline]
    pub(crate) fn is_special(self) -> bool {
        self.flags() & (EXPIRY | LONG | TREE) != 0
    }
    /// Units of the whole record, tag included.
    #[inline]
    pub(crate) fn units(self) -> u32 {
        let tag_units = (self.0 >> (FLAGS_SHIFT + KEYED_TAG_BIT)) as u32 & 1;
        units_for(self.key_bytes() as usize, self.stored_bytes() as usize) + tag_units
    }
    /// True if the record's last unit is for its tag.
    pub(crate) fn has_tag(self) -> bool {
        self.flags() & KEYED_TAG != 0
    }
    fn flags(self) -> u16 {
        (self.0 >> FLAGS_SHIFT) as u16
    }
    /// The generation of the lost slot that the record took over; 0 is none.
    #[inline]
    pub(crate) fn loss_mark(self) -> u16 {
        (self.flags() & LOSS_FLAGS) >> LOSS_MARK_SHIFT
    }
    /// The flag bits of the loss mark.
    #[inline]
    pub(crate) fn loss_flags(self) -> u16 {
        self.flags() & LOSS_FLAGS
    }
    fn check(self) -> u32 {
        (self.0 >> CHECK_SHIFT) as u32
    }
    fn with_check(self, check: u32) -> Self {
        Self(self.0 & ((1 << CHECK_SHIFT) - 1) | u128::from(check) << CHECK_SHIFT)
    }
    fn with_hot(self, hot: bool) -> Self {
        let bit = u128::from(HOT) << FLAGS_SHIFT;
        Self(if hot { self.0 | bit } else { self.0 & !bit })
    }

    /// The checksum over key, value and the rest of the header.
    fn compute_check(self, body: &[u8]) -> u32 {
        let plain = self.with_hot(false).with_check(0).0;
        let mixed = xxh3_64(body)
            ^ (plain as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ ((plain >> 64) as u64).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        (mixed ^ (mixed >> 32)) as u32
    }
}

/// Bytes of a sealed record with its tag, by its header; `None` if it has no tag.
#[inline]
pub(crate) fn sealed_bytes(header: &[u8; UNIT_BYTES]) -> Option<usize> {
    let header = RecordHeader::decode_from(header)?;
    let bytes = header.units() as usize * UNIT_BYTES;
    header.has_tag().then_some(bytes)
}

impl fmt::Debug for RecordHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordHeader")
            .field("version", &self.version())
            .field("key_bytes", &self.key_bytes())
            .field("value_bytes", &self.value_bytes())
            .field("flags", &self.flags())
            .field("check", &self.check())
            .finish()
    }
}

/// A record in untrusted bytes: every length is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordView<'a> {
    header: RecordHeader,
    /// The whole record, padding and tag included.
    bytes: &'a [u8],
    body: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Parses the record at the start of `bytes`; `None` if none can be there.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = RecordHeader::decode_from(bytes)?;
        let length = (header.key_bytes() + header.stored_bytes()) as usize;
        // The padding must be there too, so that a record can be copied unit by unit.
        let whole = bytes.get(..header.units() as usize * UNIT_BYTES)?;
        Some(Self {
            header,
            bytes: whole,
            body: &whole[UNIT_BYTES..UNIT_BYTES + length],
        })
    }
    pub(crate) fn header(&self) -> RecordHeader {
        self.header
    }
    pub(crate) fn version(&self) -> Version {
        self.header.version()
    }
    pub(crate) fn units(&self) -> u32 {
        self.header.units()
    }
    /// The whole record, padding and tag included.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
    pub(crate) fn key(&self) -> &'a [u8] {
        &self.body[..self.header.key_bytes() as usize]
    }
    pub(crate) fn value(&self) -> &'a [u8] {
        let start = self.header.key_bytes() as usize;
        &self.body[start..start + self.header.value_bytes() as usize]
    }
    /// When the record expires, in milliseconds since 1970; `None` if it does not.
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        let expiry = self
            .body
            .last_chunk()
            .filter(|_| self.header.has_expiry())?;
        Some(u64::from_le_bytes(*expiry))
    }
    /// True if the checksum is right.
    pub(crate) fn verify(&self) -> bool {
        self.header.check() == self.header.compute_check(self.body)
    }
}

/// Writes a record without a checksum or a tag. With the flag of an expiry, `value` ends with it.
///
/// # Safety
/// `pointer` is aligned to a unit and starts as many writable units as a record with these flags
/// takes; nothing refers to them.
#[inline]
pub(crate) unsafe fn write_at(
    pointer: *mut u8,
    version: Version,
    flags: u16,
    key: &[u8],
    value: &[u8],
) {
    let header = RecordHeader::new(version, flags, key.len(), value.len());
    // SAFETY: by this function's contract there is room; the value's last unit is zeroed first so
    // that padding is defined.
    unsafe {
        let last = (units_for(key.len(), value.len()) - 1) as usize * UNIT_BYTES;
        ptr::write_bytes(pointer.add(last), 0, UNIT_BYTES);
        pointer.cast::<u128>().write(header.0.to_le());
        let body = pointer.add(UNIT_BYTES);
        copy_to(body, key);
        ptr::copy_nonoverlapping(value.as_ptr(), body.add(key.len()), value.len());
    }
}

/// Fills in a record's checksum.
///
/// # Safety
/// A whole record is at `pointer`, in writable memory that nothing refers to.
pub(crate) unsafe fn fill_check(pointer: *mut u8) {
    // SAFETY: by this function's contract.
    let record = unsafe { LocalRecord::at(pointer) };
    let header = record.header();
    let check = header.compute_check(record.body());
    record.set_header(header.with_check(check));
}

/// A record in a frame, known to be whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalRecord {
    pointer: *mut u8,
}

impl LocalRecord {
    /// The record at `pointer`.
    ///
    /// # Safety
    /// A whole record is there, only this thread uses it, and it is neither moved nor freed while
    /// this value or a slice from it is used. No slice is used across a write to the record.
    #[inline]
    pub(crate) unsafe fn at(pointer: *mut u8) -> Self {
        Self { pointer }
    }

    #[inline]
    pub(crate) fn header(&self) -> RecordHeader {
        // SAFETY: the caller of `at` promised a whole record; records are aligned to a unit.
        RecordHeader(u128::from_le(unsafe { self.pointer.cast::<u128>().read() }))
    }

    #[inline]
    fn set_header(&self, header: RecordHeader) {
        // SAFETY: as in `header`.
        unsafe { self.pointer.cast::<u128>().write(header.0.to_le()) };
    }

    #[inline]
    pub(crate) fn key<'a>(&self) -> &'a [u8] {
        // SAFETY: the caller of `at` promised a whole record that outlives the slice.
        unsafe {
            slice::from_raw_parts(
                self.pointer.add(UNIT_BYTES),
                self.header().key_bytes() as usize,
            )
        }
    }

    #[inline]
    pub(crate) fn value<'a>(&self) -> &'a [u8] {
        let header = self.header();
        &self.stored()[..header.value_bytes() as usize]
    }

    /// The value of a record without an expiry: fewer steps than [`LocalRecord::value`].
    #[inline]
    pub(crate) fn plain_value<'a>(&self) -> &'a [u8] {
        debug_assert!(!self.header().has_expiry());
        self.stored()
    }

    /// When the record expires, in milliseconds since 1970; `None` if it does not.
    #[inline]
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        if !self.header().has_expiry() {
            return None;
        }
        self.stored()
            .last_chunk()
            .map(|expiry| u64::from_le_bytes(*expiry))
    }

    /// The value and the expiry.
    #[inline]
    fn stored<'a>(&self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: as in `key`.
        unsafe {
            let start = self.pointer.add(UNIT_BYTES + header.key_bytes() as usize);
            slice::from_raw_parts(start, header.stored_bytes() as usize)
        }
    }

    fn body<'a>(&self) -> &'a [u8] {
        let header = self.header();
        let length = (header.key_bytes() + header.stored_bytes()) as usize;
        // SAFETY: as in `key`.
        unsafe { slice::from_raw_parts(self.pointer.add(UNIT_BYTES), length) }
    }

    /// The whole record, padding included.
    pub(crate) fn bytes<'a>(&self) -> &'a [u8] {
        // SAFETY: as in `key`.
        unsafe { slice::from_raw_parts(self.pointer, self.header().units() as usize * UNIT_BYTES) }
    }

    /// Overwrites the value with one that fits the record's units. `flags` says whether it ends
    /// with an expiry, and whether it is a head.
    #[inline]
    pub(crate) fn overwrite(&self, version: Version, flags: u16, value: &[u8]) {
        let old = self.header();
        let key_bytes = old.key_bytes() as usize;
        let flags = old.flags() & !(HOT | EXPIRY | LONG | TREE) | flags;
        let new = RecordHeader::new(version, flags, key_bytes, value.len());
        debug_assert!(new.units() <= old.units());
        self.set_header(new);
        // SAFETY: the new record takes no more units than the old one.
        unsafe {
            let start = self.pointer.add(UNIT_BYTES + key_bytes);
            ptr::copy_nonoverlapping(value.as_ptr(), start, value.len());
        }
    }

    /// The value, to be changed in place.
    ///
    /// # Safety
    /// The record lies in a mutable page, and nothing refers to its value.
    #[inline]
    pub(crate) unsafe fn value_mut<'a>(&self, version: Version) -> &'a mut [u8] {
        let old = self.header();
        let (key_bytes, value_bytes) = (old.key_bytes() as usize, old.value_bytes() as usize);
        let stored_bytes = old.stored_bytes() as usize;
        self.set_header(RecordHeader::new(
            version,
            old.flags(),
            key_bytes,
            stored_bytes,
        ));
        // SAFETY: as in `key`; by this function's contract nothing else refers to these bytes.
        unsafe { slice::from_raw_parts_mut(self.pointer.add(UNIT_BYTES + key_bytes), value_bytes) }
    }

    /// True if the cached copy was hit since it was made or last cleared.
    pub(crate) fn is_hot(&self) -> bool {
        self.header().flags() & HOT != 0
    }

    /// Notes a hit; writes only the first time.
    #[inline]
    pub(crate) fn mark_hot(&self) {
        let header = self.header();
        if header.flags() & HOT == 0 {
            self.set_header(header.with_hot(true));
        }
    }

    /// Clears the hot flag.
    pub(crate) fn clear_hot(&self) {
        self.set_header(self.header().with_hot(false));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[repr(align(16))]
    struct Aligned([u8; 4096]);

    fn stored(version: u64, key: &[u8], value: &[u8]) -> (Box<Aligned>, usize) {
        let mut memory = Box::new(Aligned([0xAA; 4096]));
        let units = units_for(key.len(), value.len());
        // SAFETY: 4096 bytes hold every record that these tests write.
        unsafe {
            write_at(memory.0.as_mut_ptr(), version, 0, key, value);
            fill_check(memory.0.as_mut_ptr());
        }
        (memory, units as usize * UNIT_BYTES)
    }

    proptest! {
        #[test]
        fn a_record_reads_back(version in 0u64..1 << 48, key in prop::collection::vec(any::<u8>(), 1..1024), value in prop::collection::vec(any::<u8>(), 0..2000)) {
            let (memory, length) = stored(version, &key, &value);
            let view = RecordView::parse(&memory.0[..length]).unwrap();
            prop_assert_eq!((view.version(), view.key(), view.value()), (version, &key[..], &value[..]));
            prop_assert!(view.verify());
            prop_assert!(RecordView::parse(&memory.0[..length - 1]).is_none());
        }

        #[test]
        fn a_changed_bit_is_noticed(key in prop::collection::vec(any::<u8>(), 1..40), value in prop::collection::vec(any::<u8>(), 0..90), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let (mut memory, _) = stored(77, &key, &value);
            let place = at.index(UNIT_BYTES + key.len() + value.len());
            // The hot flag is not covered.
            prop_assume!(!(place == 10 && bit == 0));
            memory.0[place] ^= 1 << bit;
            prop_assert!(RecordView::parse(&memory.0).is_none_or(|view| !view.verify()));
        }
    }

    #[test]
    fn any_bytes_are_one_record_or_none() {
        let record = |flags, value: &[u8]| {
            let (mut memory, length) = stored(77, b"key", value);
            // SAFETY: as in `stored`; the flags add at most one unit.
            unsafe {
                write_at(memory.0.as_mut_ptr(), 77, flags, b"key", value);
                fill_check(memory.0.as_mut_ptr());
            }
            memory.0[..length + UNIT_BYTES].to_vec()
        };
        let flags = [0, EXPIRY, LONG | loss_flags(7), TREE, KEYED_TAG];
        farcore_fuzz::Target::new("record")
            .seeds(flags.map(|flags| record(flags, &[1; 40])))
            .run(|bytes| {
                let Some(view) = RecordView::parse(bytes) else {
                    return;
                };
                let header = view.header();
                assert_eq!(view.bytes().len(), header.units() as usize * UNIT_BYTES);
                assert!(bytes.starts_with(view.bytes()));
                assert_eq!(view.key().len(), header.key_bytes() as usize);
                assert_eq!(view.value().len(), header.value_bytes() as usize);
                assert_eq!(view.expiry_ms().is_some(), header.has_expiry());
                let sealed = sealed_bytes(bytes.first_chunk().unwrap());
                assert_eq!(sealed, header.has_tag().then_some(view.bytes().len()));
                // What is written by its fields is the same record, with the right checksum.
                let (key, stored) = view.body.split_at(view.key().len());
                let mut memory = vec![0u128; header.units() as usize];
                // SAFETY: it has the units of the record.
                unsafe {
                    let pointer = memory.as_mut_ptr().cast();
                    write_at(pointer, view.version(), header.flags(), key, stored);
                    fill_check(pointer);
                    let again = LocalRecord::at(pointer);
                    let check = again.header().check();
                    assert_eq!(again.header().with_check(0), header.with_check(0));
                    assert_eq!(again.body(), view.body);
                    assert_eq!(view.verify(), header.check() == check);
                }
            });
    }

    proptest! {
        #[test]
        fn an_expiry_lies_behind_the_value(key in prop::collection::vec(any::<u8>(), 1..40), value in prop::collection::vec(any::<u8>(), 0..90), at: u64) {
            let stored = [&value[..], &at.to_le_bytes()].concat();
            let mut memory = Box::new(Aligned([0xAA; 4096]));
            // SAFETY: 4096 bytes hold every record that this test writes.
            let record = unsafe {
                write_at(memory.0.as_mut_ptr(), 9, EXPIRY, &key, &stored);
                fill_check(memory.0.as_mut_ptr());
                LocalRecord::at(memory.0.as_mut_ptr())
            };
            prop_assert_eq!((record.key(), record.value(), record.expiry_ms()), (&key[..], &value[..], Some(at)));
            let view = RecordView::parse(&memory.0).unwrap();
            prop_assert!(view.verify());
            prop_assert_eq!((view.value(), view.expiry_ms()), (&value[..], Some(at)));
            // Without the flag it would be 8 bytes of the value.
            prop_assert_eq!(view.header().value_bytes() as usize, value.len());
            record.overwrite(10, 0, &value);
            prop_assert_eq!((record.value(), record.expiry_ms()), (&value[..], None));
        }
    }

    #[test]
    fn a_record_that_is_too_short_for_its_expiry_is_impossible() {
        let header = RecordHeader::new(1, EXPIRY, 3, EXPIRY_BYTES - 1);
        assert_eq!(RecordHeader::decode_from(&header.0.to_le_bytes()), None);
        let header = RecordHeader::new(1, EXPIRY, 3, EXPIRY_BYTES);
        assert_eq!(
            RecordHeader::decode_from(&header.0.to_le_bytes()),
            Some(header)
        );
    }

    #[test]
    fn the_hot_flag_is_outside_the_checksum() {
        let (mut memory, length) = stored(5, b"key", b"value");
        // SAFETY: a whole record was just written there.
        let record = unsafe { LocalRecord::at(memory.0.as_mut_ptr()) };
        record.mark_hot();
        assert!(record.is_hot());
        assert!(RecordView::parse(&memory.0[..length]).unwrap().verify());
    }
}
