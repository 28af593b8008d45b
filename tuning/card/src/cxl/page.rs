//! A page of packed tokens: 4 KiB for up to 128 tokens.
//!
//! ```text
//! byte 0     header: used slots:8 | heap end:16 | base word 0:64 | base word 1:64       24 bytes
//! byte 24    bitmap of used slots: 128 bits                                             16 bytes
//! byte 40    directory: 256 cells of 1 byte, slot + 1, open addressing                 256 bytes
//! byte 296   slots: offset:12 | length:4, 16 bits each                                 256 bytes
//! byte 552   heap: packed records                                                     3544 bytes
//! ```
//!
//! A record is packed as the differences (exclusive-or) from the page's base token, the first that
//! was put into it. There are six parts: header, rest of word 0, upper half of word 1, its lower
//! two half-words combined (a queue pair's two completion queues are mostly one), the lowest
//! half-word, and the relaxed fields. A byte says which parts are not zero; these follow, seven
//! bits a byte. A record that would be longer than 15 bytes has the length 0 and takes all 24
//! bytes.
//!
//! The directory maps a token's handle to its slot. A deletion moves later cells back, so that no
//! tombstones are needed.
//!
//! - I1: a slot is in the bitmap if and only if one cell of the directory leads to it.
//! - I2: packed records do not overlap; holes are closed when the heap is full.

use std::fmt;

use crate::card_table::HotFields;
use crate::handle::Handle;
use crate::record::Record;
use crate::token::Token;

/// The length of a page.
pub const BYTES: usize = 4096;
/// Most tokens of a page.
pub const SLOTS: usize = 128;
const CELLS: usize = 2 * SLOTS;
const HEAP: usize = BYTES - 24 - SLOTS / 8 - CELLS - 2 * SLOTS;
/// The longest packed record.
const PACKED_MAX: usize = 15;
const RAW: usize = 24;

/// A page. The fields are those of the drawing.
#[derive(Clone)]
#[repr(C)]
pub struct Page {
    base: [u64; 2],
    heap_end: u16,
    used: u8,
    reserved: [u8; 5],
    bitmap: [u8; SLOTS / 8],
    cells: [u8; CELLS],
    /// Offset and length of each slot.
    slots: [u16; SLOTS],
    heap: [u8; HEAP],
}

const _: () = assert!(size_of::<Page>() == BYTES);
// A home is a byte.
const _: () = assert!(CELLS == 256);

impl Default for Page {
    fn default() -> Self {
        Self {
            base: [0; 2],
            heap_end: 0,
            used: 0,
            reserved: [0; 5],
            bitmap: [0; SLOTS / 8],
            cells: [0; CELLS],
            slots: [0; SLOTS],
            heap: [0; HEAP],
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, bytes) = (self.len(), self.heap_end);
        write!(f, "Page({used} tokens, {bytes} bytes)")
    }
}

/// A packed record.
struct Packed {
    bytes: [u8; RAW],
    len: usize,
    is_raw: bool,
}

/// Appends a number of seven bits a byte; the caller knows that it fits into 10 bytes.
fn put(bytes: &mut [u8], at: usize, mut number: u64) -> usize {
    let mut len = 0;
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        let more = number != 0;
        bytes[at + len] = (low & 0x7f) | if more { 0x80 } else { 0 };
        len += 1;
        if !more {
            return at + len;
        }
    }
}

/// Reads such a number; returns the place after it.
fn take(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(at)?;
        at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((number, at));
        }
    }
    None
}

const HALF: u64 = u32::MAX as u64;
const QUARTER: u64 = u16::MAX as u64;
const PARTS: usize = 6;

/// The parts of a record as differences from the base.
fn parts(base: [u64; 2], record: &Record) -> [u64; PARTS] {
    let [first, second] = record.token.words();
    let [first, second] = [first ^ base[0], second ^ base[1]];
    let (upper, lower) = (second >> 16 & QUARTER, second & QUARTER);
    [
        first >> 32,
        first & HALF,
        second >> 32,
        upper ^ lower,
        lower,
        record.fields.bits(),
    ]
}

fn pack(base: [u64; 2], record: &Record) -> Packed {
    // A flag byte and, at most, 5 + 5 + 5 + 3 + 3 + 7 bytes.
    let mut bytes = [0; 32];
    let mut end = 1;
    for (part, number) in parts(base, record).into_iter().enumerate() {
        if number != 0 {
            bytes[0] |= 1 << part;
            end = put(&mut bytes, end, number);
        }
    }
    if end <= PACKED_MAX {
        let mut short = [0; RAW];
        short[..end].copy_from_slice(&bytes[..end]);
        return Packed {
            bytes: short,
            len: end,
            is_raw: false,
        };
    }
    let mut raw = [0; RAW];
    let [first, second] = record.token.words();
    let words = [first, second, record.fields.bits()];
    for (part, word) in raw.chunks_exact_mut(8).zip(words) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    Packed {
        bytes: raw,
        len: RAW,
        is_raw: true,
    }
}

fn unpack(base: [u64; 2], bytes: &[u8]) -> Option<Record> {
    let flags = *bytes.first()?;
    let mut at = 1;
    let mut parts = [0; PARTS];
    for (part, number) in parts.iter_mut().enumerate() {
        if flags >> part & 1 != 0 {
            (*number, at) = take(bytes, at)?;
        }
    }
    let [header, rest, high, combined, lower, fields] = parts;
    let upper = (combined ^ lower) & QUARTER;
    let first = (header & HALF) << 32 | rest & HALF;
    let second = (high & HALF) << 32 | upper << 16 | lower & QUARTER;
    Some(Record {
        token: Token::from_words([base[0] ^ first, base[1] ^ second]),
        fields: HotFields::new(fields),
    })
}

impl Page {
    /// The number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.used)
    }

    /// True if it holds no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Bytes of header, bitmap and packed records: what a transfer of the whole page moves.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (24 + SLOTS / 8) as u64 + u64::from(self.heap_end)
    }

    /// The cell where probing begins: the upper bits of a product (Knuth's multiplicative hash).
    fn home(handle: Handle) -> usize {
        let [home, ..] = handle.bits().wrapping_mul(0x9e37_79b1).to_be_bytes();
        usize::from(home)
    }

    fn handle(&self, slot: usize) -> Handle {
        self.record(slot)
            .map_or_else(Handle::default, |record| record.token.handle())
    }

    /// The cell that leads to a token's slot, or the free cell where it would stand.
    fn cell(&self, handle: Handle) -> (usize, Option<usize>) {
        let mut cell = Self::home(handle);
        loop {
            match self.cells[cell] {
                0 => return (cell, None),
                found => {
                    let slot = usize::from(found) - 1;
                    if self.handle(slot) == handle {
                        return (cell, Some(slot));
                    }
                }
            }
            cell = (cell + 1) % CELLS;
        }
    }

    /// The slot of a token.
    #[must_use]
    pub fn find(&self, handle: Handle) -> Option<usize> {
        self.cell(handle).1
    }

    fn has(&self, slot: usize) -> bool {
        self.bitmap[slot / 8] >> (slot % 8) & 1 != 0
    }

    /// The slots in use.
    pub fn used(&self) -> impl Iterator<Item = usize> {
        (0..SLOTS).filter(|&slot| self.has(slot))
    }

    fn range(&self, slot: usize) -> (usize, usize, bool) {
        let word = self.slots[slot];
        let (offset, len) = (usize::from(word >> 4), usize::from(word & 0xf));
        match len {
            0 => (offset, RAW, true),
            len => (offset, len, false),
        }
    }

    /// The bytes that a record takes.
    #[must_use]
    pub fn packed_bytes(&self, slot: usize) -> u64 {
        self.range(slot).1 as u64
    }

    /// Unpacks the record of a slot.
    #[must_use]
    pub fn record(&self, slot: usize) -> Option<Record> {
        if slot >= SLOTS || !self.has(slot) {
            return None;
        }
        let (offset, len, is_raw) = self.range(slot);
        let bytes = self.heap.get(offset..offset + len)?;
        if !is_raw {
            return unpack(self.base, bytes);
        }
        let mut words = bytes.chunks_exact(8).map(|part| {
            part.iter()
                .rev()
                .fold(0, |word, &byte| word << 8 | u64::from(byte))
        });
        Some(Record {
            token: Token::from_words([words.next()?, words.next()?]),
            fields: HotFields::new(words.next()?),
        })
    }

    /// Room for a packed record at the end of the heap, after closing its holes if it is full.
    fn room(&mut self, len: usize) -> Option<usize> {
        if usize::from(self.heap_end) + len > HEAP {
            self.close_holes();
        }
        let at = usize::from(self.heap_end);
        (at + len <= HEAP).then_some(at)
    }

    fn close_holes(&mut self) {
        let mut order: Vec<usize> = self.used().collect();
        order.sort_unstable_by_key(|&slot| self.range(slot).0);
        let mut end = 0;
        for slot in order {
            let (offset, len, _) = self.range(slot);
            self.heap.copy_within(offset..offset + len, end);
            self.slots[slot] = word(end, self.slots[slot] & 0xf);
            end += len;
        }
        self.heap_end = u16::try_from(end).unwrap_or(0);
    }

    fn write(&mut self, slot: usize, packed: &Packed) -> bool {
        let Some(at) = self.room(packed.len) else {
            return false;
        };
        self.heap[at..at + packed.len].copy_from_slice(&packed.bytes[..packed.len]);
        let len = if packed.is_raw { 0 } else { packed.len };
        self.slots[slot] = word(at, u16::try_from(len).unwrap_or(0));
        self.heap_end = u16::try_from(at + packed.len).unwrap_or(0);
        true
    }

    /// Puts a record into the page; `None` if there is no room.
    ///
    /// # Panics
    /// The token is there already.
    pub fn insert(&mut self, record: &Record) -> Option<usize> {
        let handle = record.token.handle();
        if self.is_empty() {
            *self = Self {
                base: record.token.words(),
                ..Self::default()
            };
        }
        let (cell, found) = self.cell(handle);
        assert!(found.is_none(), "{handle:?} is there already");
        let slot = (0..SLOTS).find(|&slot| !self.has(slot))?;
        if !self.write(slot, &pack(self.base, record)) {
            return None;
        }
        self.bitmap[slot / 8] |= 1 << (slot % 8);
        self.cells[cell] = u8::try_from(slot + 1).unwrap_or(0);
        self.used += 1;
        Some(slot)
    }

    /// Changes the record of a slot; false if the longer one finds no room, and nothing changed.
    pub fn update(&mut self, slot: usize, record: &Record) -> bool {
        let packed = pack(self.base, record);
        let (offset, len, _) = self.range(slot);
        if packed.len <= len {
            self.heap[offset..offset + packed.len].copy_from_slice(&packed.bytes[..packed.len]);
            let len = if packed.is_raw { 0 } else { packed.len };
            self.slots[slot] = word(offset, u16::try_from(len).unwrap_or(0));
            return true;
        }
        self.write(slot, &packed)
    }

    /// Takes a record out.
    pub fn remove(&mut self, slot: usize) -> Option<Record> {
        let record = self.record(slot)?;
        let (mut hole, _) = self.cell(record.token.handle());
        self.cells[hole] = 0;
        // Moves back what probing found behind the hole.
        let mut cell = (hole + 1) % CELLS;
        while self.cells[cell] != 0 {
            let home = Self::home(self.handle(usize::from(self.cells[cell]) - 1));
            let distance = (cell + CELLS - home) % CELLS;
            if distance >= (cell + CELLS - hole) % CELLS {
                self.cells[hole] = std::mem::take(&mut self.cells[cell]);
                hole = cell;
            }
            cell = (cell + 1) % CELLS;
        }
        self.bitmap[slot / 8] &= !(1 << (slot % 8));
        self.used -= 1;
        Some(record)
    }
}

/// A slot's word.
fn word(offset: usize, len: u16) -> u16 {
    u16::try_from(offset).unwrap_or(0) << 4 | len
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::handle::Kind;
    use crate::workload::Population;

    fn handle(index: u16) -> Handle {
        Handle::new(Kind::QueuePair, 0, index)
    }

    fn record(index: u16, fields: u64) -> Record {
        let token = Population::default().token(handle(index));
        Record {
            token,
            fields: HotFields::new(fields),
        }
    }

    #[test]
    fn neighbours_are_packed_well() {
        let mut page = Page::default();
        for index in 0..128 {
            page.insert(&record(1_000 + index, 100)).unwrap();
        }
        assert!(page.insert(&record(1, 0)).is_none());
        // Less than half of the 24 bytes.
        let bytes = page.bytes() / 128;
        assert!(bytes <= 10, "{bytes} bytes a token");
    }

    #[test]
    fn a_record_that_grows_moves_within_the_page() {
        let mut page = Page::default();
        let slots: Vec<usize> = (0..128)
            .map(|index| page.insert(&record(index, 0)).unwrap())
            .collect();
        for (index, &slot) in (0..).zip(&slots) {
            assert!(page.update(slot, &record(index, u64::MAX)), "{page:?}");
        }
        for (index, &slot) in (0..).zip(&slots) {
            assert_eq!(page.record(slot), Some(record(index, u64::MAX)));
            assert_eq!(page.find(handle(index)), Some(slot));
        }
    }

    #[test]
    fn any_bytes_are_a_packed_record_or_none() {
        let packed = pack([1, 2], &record(1_000, 100));
        farcore_fuzz::Target::new("card page")
            .seed(&packed.bytes[..packed.len])
            .run(|bytes| {
                if let Some(record) = unpack([1, 2], bytes) {
                    let again = pack([1, 2], &record);
                    if !again.is_raw {
                        assert_eq!(unpack([1, 2], &again.bytes[..again.len]), Some(record));
                    }
                }
            });
    }

    proptest! {
        #[test]
        fn every_record_comes_back(base in any::<[u64; 2]>(), words in any::<[u64; 2]>(), shift in 0..64_u32, fields in any::<u64>()) {
            let words = [base[0] ^ words[0] >> shift, base[1] ^ words[1] << shift];
            let record = Record { token: Token::from_words(words), fields: HotFields::new(fields >> shift) };
            let packed = pack(base, &record);
            if !packed.is_raw {
                prop_assert_eq!(unpack(base, &packed.bytes[..packed.len]), Some(record));
            }
        }

        #[test]
        fn a_page_behaves_like_a_map(steps in proptest::collection::vec((0..4_u8, 0..300_u16, any::<u64>(), any::<bool>()), 1..400)) {
            let mut page = Page::default();
            let mut model: HashMap<u16, (usize, Record)> = HashMap::new();
            for (step, index, bits, odd) in steps {
                let mut record = record(index, bits >> (index % 48));
                if odd {
                    // Nothing like the base: stored as it is.
                    let [first, _] = record.token.words();
                    record.token = Token::from_words([first ^ (bits & 0xffff_ffff), bits]);
                }
                match (step, model.get(&index).copied()) {
                    (0 | 1, None) => {
                        if let Some(slot) = page.insert(&record) {
                            model.insert(index, (slot, record));
                        }
                    }
                    (0..=2, Some((slot, _))) if page.update(slot, &record) => {
                        model.insert(index, (slot, record));
                    }
                    (3, Some((slot, held))) => {
                        prop_assert_eq!(page.remove(slot), Some(held));
                        model.remove(&index);
                    }
                    _ => {}
                }
                prop_assert_eq!(page.len(), model.len());
                prop_assert_eq!(page.used().count(), model.len());
            }
            for (index, (slot, held)) in model {
                prop_assert_eq!(page.find(handle(index)), Some(slot));
                prop_assert_eq!(page.record(slot), Some(held));
            }
        }

        #[test]
        fn arbitrary_numbers_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            let _ = unpack([0; 2], &bytes);
        }
    }
}
