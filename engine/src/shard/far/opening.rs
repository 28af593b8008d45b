//! Opening: makes bytes from far memory trustworthy before they are used.
//!
//! | encryption     | when it arrives                         | when it is used                               |
//! |----------------|-----------------------------------------|-----------------------------------------------|
//! | none           |                                         | a record's checksum                           |
//! | secrecy only   | decrypted                               | a record's checksum                           |
//! | authenticated  | a record or a directory READ alone      | a record of a chunk or a run: opened, once it |
//! |                | is opened: its tag, then decrypted      | is needed; until then it stays ciphertext     |
//!
//! - I1: where tags are used, no byte of a record or directory decides anything before its tag is
//!   verified, except how much of its page is read next.
//! - I2: a tag is verified with the sequence number of the local page table. So older contents of
//!   the same place fail.

#![allow(unsafe_code)] // deciphers records in landing buffers

use farcore_rdma::Endpoint;

use crate::cipher::PageCipher;
use crate::log::page;
use crate::log::record::RecordView;
use crate::log::record::sealed_bytes;
use crate::shard::Shard;

impl<E: Endpoint> Shard<E> {
    /// True if far records carry tags.
    #[inline]
    pub(in crate::shard) fn authenticates(&self) -> bool {
        self.tag_units > 0
    }

    /// Bytes of a page's directory in far memory.
    pub(in crate::shard) fn directory_far_bytes(&self, records: u32) -> usize {
        page::far_directory_bytes(records, self.authenticates())
    }

    /// Decrypts bytes read from a page whose records carry no tags.
    pub(in crate::shard) fn decrypt(&mut self, page: u32, unit: u32, offset: u64, bytes: u32) {
        if let Some(PageCipher::SecrecyOnly(cipher)) = &self.far.cipher {
            let sequence = self.local.pages.get(page).sequence;
            // SAFETY: the READ into this range has completed and its owner is the caller.
            let data = unsafe {
                let start = self.local.arena.landing_pointer(offset);
                std::slice::from_raw_parts_mut(start, bytes as usize)
            };
            cipher.apply(sequence, unit, data);
        }
    }

    /// Makes the bytes of a flight's READ readable: a whole record or its head. True if its tag
    /// proves the record.
    pub(in crate::shard) fn open_landed(
        &mut self,
        (page, unit): (u32, u32),
        offset: u64,
        bytes: u32,
        whole: bool,
    ) -> bool {
        if !self.authenticates() {
            self.decrypt(page, unit, offset, bytes);
            return false;
        }
        let sequence = self.local.pages.get(page).sequence;
        // SAFETY: the READ into this range has completed and its owner is the caller.
        let data = unsafe { self.landed_mut(offset, bytes) };
        let Some(cipher) = self.far.cipher.as_ref().and_then(PageCipher::authenticated) else {
            return false;
        };
        if whole {
            cipher
                .open_record(sequence, unit, data.into(), sealed_bytes)
                .is_some()
        } else {
            if let Some(header) = data.first_chunk_mut() {
                cipher.peek(sequence, unit, header);
            }
            false
        }
    }

    /// Makes a directory readable; false if it is not what was written.
    pub(in crate::shard) fn open_directory(&mut self, page: u32, offset: u64, bytes: u32) -> bool {
        let entry = self.local.pages.get(page);
        let (sequence, unit) = (entry.sequence, entry.units);
        if !self.authenticates() {
            self.decrypt(page, unit, offset, bytes);
            return true;
        }
        // SAFETY: the READ into this range has completed and its owner is the caller.
        let data = unsafe { self.landed_mut(offset, bytes) };
        let cipher = self.far.cipher.as_ref().and_then(PageCipher::authenticated);
        cipher.is_some_and(|cipher| cipher.open_directory(sequence, unit, data))
    }

    /// The record at the start of some bytes of a chunk, if it is what was written.
    ///
    /// # Safety
    /// `read` is valid and no other record is opened this way while the view is used.
    pub(in crate::shard) unsafe fn record_ahead<'a>(
        &mut self,
        (page, unit): (u32, u32),
        read: &'a [u8],
    ) -> Option<RecordView<'a>> {
        if !self.authenticates() {
            return RecordView::parse(read).filter(RecordView::verify);
        }
        let sequence = self.local.pages.get(page).sequence;
        let cipher = self
            .far
            .cipher
            .as_ref()
            .and_then(PageCipher::authenticated)?;
        let target = self.opened.0.get_mut(..read.len())?;
        let both = cipher::InOutBuf::new(read, &mut *target).ok()?;
        let bytes = cipher.open_record(sequence, unit, both, sealed_bytes)?;
        // SAFETY: `bytes` of it were just written. By this function's contract they stay unchanged
        // while the view is used, and the buffer lives as long as the shard.
        let opened = unsafe { std::slice::from_raw_parts(target.as_ptr(), bytes) };
        RecordView::parse(opened)
    }

    /// Opens in place the record that begins `skip` bytes into a run; false if it is not what was
    /// written. `opened` says that it was opened before.
    pub(in crate::shard) fn prove_in_run(
        &mut self,
        (page, unit): (u32, u32),
        (offset, bytes): (u64, u32),
        skip: u32,
        opened: bool,
    ) -> bool {
        let sequence = self.local.pages.get(page).sequence;
        // SAFETY: the READ into this range has completed and its owner is the caller.
        let read = unsafe { self.landed_mut(offset, bytes) };
        let Some(record) = read.get_mut(skip as usize..) else {
            return false;
        };
        match self.far.cipher.as_ref().and_then(PageCipher::authenticated) {
            _ if opened => true,
            Some(cipher) => cipher
                .open_record(sequence, unit, record.into(), sealed_bytes)
                .is_some(),
            None => RecordView::parse(record).is_some_and(|view| view.verify()),
        }
    }
}
