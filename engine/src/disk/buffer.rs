//! Memory that a disk reads and writes directly.

#![allow(unsafe_code)] // allocates with an alignment

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::slice;

use super::DISK_BLOCK_BYTES;

/// A buffer of whole blocks, which begins at the address of one.
#[derive(Debug)]
pub struct DiskBuffer {
    start: NonNull<u8>,
    layout: Layout,
    /// Those of its bytes that are in use, from the first one on.
    used: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for DiskBuffer {}

impl DiskBuffer {
    /// A buffer of zeros, of one block at least.
    ///
    /// # Panics
    /// It is longer than the address space.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        let bytes = blocks.max(1).checked_mul(DISK_BLOCK_BYTES);
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, DISK_BLOCK_BYTES).ok());
        let layout = layout.expect("a buffer fits the address space");
        // SAFETY: the length is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self {
                start,
                layout,
                used: layout.size(),
            },
            None => handle_alloc_error(layout),
        }
    }

    /// From now on its first blocks are its bytes: at least one, and at most as many as it was made
    /// with. The others keep what they hold.
    pub fn set_blocks(&mut self, blocks: usize) {
        let bytes = blocks.max(1).saturating_mul(DISK_BLOCK_BYTES);
        self.used = bytes.min(self.layout.size());
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it owns as many bytes at least, which are initialized.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.used) }
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: it owns as many bytes at least, which are initialized, and it is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.used) }
    }
}

impl Drop for DiskBuffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
