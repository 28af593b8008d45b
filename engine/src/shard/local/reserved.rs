//! Room in an open page for one record: written once, within its bounds.

#![allow(unsafe_code)] // writes records into frames

use crate::constants::UNIT_BYTES;
use crate::log::Address;
use crate::log::record::{self, LocalRecord};
use crate::message::operation::Version;

/// Room in an open page for one record, not yet counted.
#[derive(Debug)]
pub(in crate::shard) struct Reserved {
    address: Address,
    place: *mut u8,
    units: u32,
}

impl Reserved {
    /// # Safety
    /// `place` is where `address` lies in an open page that has this many units left there. The
    /// page is neither sealed nor freed while this value is used.
    #[inline]
    pub(super) unsafe fn new(address: Address, place: *mut u8, units: u32) -> Self {
        Self {
            address,
            place,
            units,
        }
    }

    /// Where the room begins.
    #[inline]
    pub(in crate::shard) fn address(&self) -> Address {
        self.address
    }

    #[inline]
    pub(in crate::shard) fn place(&self) -> *const u8 {
        self.place
    }

    /// Writes a record without a checksum or a tag. Panics if it is longer than the room.
    #[inline]
    pub(in crate::shard) fn write(self, version: Version, flags: u16, key: &[u8], value: &[u8]) {
        assert!(record::units_for(key.len(), value.len()) <= self.units);
        // SAFETY: by the contract of `new` the room is ours, and the record is no longer than it.
        unsafe { record::write_at(self.place, version, flags, key, value) };
    }

    /// Copies a whole record that lies elsewhere, without its hot flag. Panics if it is longer than
    /// the room.
    pub(in crate::shard) fn copy(self, record: &[u8]) {
        self.copy_behind(0, record);
    }

    /// Writes the home of a cached copy, and the copy one unit behind it.
    pub(in crate::shard) fn copy_with_home(self, home: Address, record: &[u8]) {
        self.copy_behind(1, record);
        // SAFETY: by the contract of `new`; the room has more than one unit, as was just checked.
        unsafe { self.place.cast::<u64>().write(home.raw().to_le()) };
    }

    fn copy_behind(&self, units: usize, record: &[u8]) {
        assert!(
            record.len() >= UNIT_BYTES
                && record.len() + units * UNIT_BYTES <= self.units as usize * UNIT_BYTES
        );
        // SAFETY: by the contract of `new` the room is ours, and the record is no longer than it;
        // the source is another page or a landing buffer.
        unsafe {
            let target = self.place.add(units * UNIT_BYTES);
            std::ptr::copy_nonoverlapping(record.as_ptr(), target, record.len());
            LocalRecord::at(target).clear_hot();
        }
    }
}
