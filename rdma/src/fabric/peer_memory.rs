//! Memory of one connection, which this side copies from and to.
//!
//! - I1: this side has no reference into the memory: the peer, or a device, may write to it at any
//!   time. What was copied out does not change any more.

#![allow(unsafe_code)] // copies to and from a region

use std::marker::PhantomData;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::memory::pointer;
use crate::region::{Lock, Region, RegionError, RegionOptions};

/// A region of one thread.
#[derive(Debug)]
pub struct PeerMemory {
    region: Arc<Region>,
    /// Stays on its thread: no two threads copy at once.
    thread: PhantomData<Rc<()>>,
}

impl PeerMemory {
    /// Maps memory, all zero. Pages take memory when they are first used, or registered with a
    /// device.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn map(bytes: usize) -> Result<Self, RegionError> {
        let options = RegionOptions {
            bytes,
            huge_pages: false,
            lock: Lock::Off,
            prefault: false,
        };
        Ok(Self {
            region: Arc::new(Region::map(&options)?),
            thread: PhantomData,
        })
    }

    /// The region, to be registered with one connection.
    #[must_use]
    pub fn region(&self) -> Arc<Region> {
        Arc::clone(&self.region)
    }

    /// Bytes that it has.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it has at least one page")]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they are not all inside.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let source = self.place(offset, bytes.len());
        // SAFETY: inside the mapping, which this keeps; the target is a slice of the caller's and
        // not part of the mapping (I1). A device may write meanwhile: any bytes are valid.
        unsafe { ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Appends bytes of it to a vector.
    ///
    /// # Panics
    /// If they are not all inside.
    pub fn read_to(&self, offset: u64, bytes: usize, target: &mut Vec<u8>) {
        let source = self.place(offset, bytes);
        target.reserve(bytes);
        // SAFETY: as in `read`; the vector has room for that many more bytes, which are written.
        unsafe {
            ptr::copy_nonoverlapping(source, target.as_mut_ptr().add(target.len()), bytes);
            target.set_len(target.len() + bytes);
        }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they do not all fit.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let target = self.place(offset, bytes.len());
        // SAFETY: as in `read`, the other way.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    #[allow(clippy::expect_used, reason = "the owner knows its layout")]
    fn place(&self, offset: u64, bytes: usize) -> *mut u8 {
        let bytes = u32::try_from(bytes).ok();
        bytes
            .and_then(|bytes| pointer(&self.region, offset, bytes))
            .expect("bytes inside the memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_in_and_out() {
        let mut memory = PeerMemory::map(8192).unwrap();
        memory.write(100, b"hello");
        let mut bytes = [0; 7];
        memory.read(99, &mut bytes);
        assert_eq!(&bytes, b"\0hello\0");
        let mut vector = b"a ".to_vec();
        memory.read_to(100, 5, &mut vector);
        assert_eq!(vector, b"a hello");
        assert_eq!(memory.len(), 8192);
    }

    #[test]
    #[should_panic(expected = "inside")]
    fn what_is_not_all_inside_is_refused() {
        PeerMemory::map(4096).unwrap().read(4090, &mut [0; 7]);
    }
}
