//! Access to what lies in frames: records, homes of copies, directories and page headers.
//!
//! With [`LocalLog::commit`] and [`LocalLog::seal`] these are the only functions that turn the
//! address of a frame into a reference. A [`LocalRecord`] that they return reads and changes its
//! record.
//!
//! ```text
//! page with a frame:  | header, 4 units | record | home:64, 0 | record | .. | directory |
//!                                                  ^ one unit, before a cached copy only
//! ```
//!
//! - I1: a slot's address names a whole record. The record stays where it is while its page has a
//!   frame, so a [`Framed`] place that was made from a slot's address and is not far leads to it.
//!   A place that is kept holds only until pages move: its user compares `PageTable::moves`.
//! - I2: the directory of a sealed page lies behind its records and has one entry for each.
//!   The compiler does not check this: addresses and places are plain values. `crate::shard` makes
//!   them from slots only, and no function here is visible outside it.
//! - I3: only the shard's own thread reads and writes frames, but for the fabric, which reads those
//!   of pages that are being flushed.

#![allow(unsafe_code)] // turns places in frames into references

use super::log::LocalLog;
use super::page_table::Framed;
use crate::constants::UNIT_BYTES;
use crate::log::Address;
use crate::log::page::{self, DIRECTORY_ENTRY_BYTES, DirectoryEntry, HEADER_BYTES};
use crate::log::record::{self, LocalRecord};

impl LocalLog {
    /// The record at a place that was made from a slot's address and is not far.
    #[inline]
    pub(in crate::shard) fn record(&self, framed: Framed) -> LocalRecord {
        debug_assert!(!framed.is_far(), "a far record has no place");
        // SAFETY: by I1 and I3.
        unsafe { LocalRecord::at(framed.pointer()) }
    }

    /// The record that a slot's address names; `None` if it is far.
    #[inline]
    pub(in crate::shard) fn record_at(&self, address: Address) -> Option<LocalRecord> {
        let framed = self.framed_of(address);
        (!framed.is_far()).then(|| self.record(framed))
    }

    /// The home of the cached copy that a slot's address names.
    pub(in crate::shard) fn home_of(&self, address: Address) -> Address {
        // SAFETY: as in `home_place`.
        Address::from_raw(u64::from_le(unsafe { self.home_place(address).read() }))
    }

    /// Sets the home of the cached copy that a slot's address names.
    pub(in crate::shard) fn set_home(&mut self, address: Address, home: Address) {
        // SAFETY: as in `home_place`.
        unsafe { self.home_place(address).write(home.raw().to_le()) };
    }

    /// A copy is local as long as a slot holds its address, and the unit before it holds its home.
    fn home_place(&self, address: Address) -> *mut u64 {
        let framed = self.framed_of(address);
        assert!(framed.is_cached(), "only cached copies have a home");
        framed.pointer().wrapping_sub(UNIT_BYTES).cast()
    }

    /// An entry of a sealed page's directory.
    #[inline]
    pub(in crate::shard) fn entry(&self, number: u32, entry: u32) -> DirectoryEntry {
        let page = self.pages.get(number);
        let frame = self.pages.pointer(number);
        assert!(entry < page.records && !frame.is_null());
        let place = page.units as usize * UNIT_BYTES + entry as usize * DIRECTORY_ENTRY_BYTES;
        // SAFETY: by I2.
        unsafe { page::entry_at(frame.add(place)) }
    }

    /// The frame of a page that is being flushed: nothing writes to it.
    pub(in crate::shard) fn frame(&self, number: u32) -> &[u8] {
        let frame = self.pages.pointer(number);
        assert!(!frame.is_null(), "the page is far");
        // SAFETY: a frame is as long as a page.
        unsafe { std::slice::from_raw_parts(frame, self.page_bytes()) }
    }

    /// Writes the header of a page.
    pub(in crate::shard) fn write_header(&mut self, number: u32, header: &[u8; HEADER_BYTES]) {
        let frame = self.pages.pointer(number);
        assert!(!frame.is_null(), "the page is far");
        // SAFETY: the first units of a page are kept for its header.
        unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), frame, header.len()) };
    }

    /// Fills in the checksums of a sealed page's records, from the record of a directory entry up
    /// to the byte `end`. Returns the entry to go on with.
    pub(in crate::shard) fn fill_checks(&mut self, number: u32, first: u32, end: usize) -> u32 {
        let page = self.pages.get(number);
        let frame = self.pages.pointer(number);
        assert!(!frame.is_null(), "the page is far");
        let directory = page.units as usize * UNIT_BYTES;
        let mut next = first;
        while next < page.records {
            let place = directory + next as usize * DIRECTORY_ENTRY_BYTES;
            // SAFETY: by I2; the page is not yet written.
            unsafe {
                let offset = page::entry_at(frame.add(place)).unit as usize * UNIT_BYTES;
                if offset >= end {
                    break;
                }
                record::fill_check(frame.add(offset));
            }
            next += 1;
        }
        next
    }
}
