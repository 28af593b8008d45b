//! Memory of this process in the role of a memory node.
//!
//! Owns the lent region and the link model. Tests use it to lose, inspect and damage far memory.

#![allow(unsafe_code)] // looks into the region, for tests

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::link::LinkModel;
use crate::region::Region;
use crate::work::RemoteKey;

/// Memory in the role of a memory node. Any number of endpoints share it.
#[derive(Debug)]
pub struct EmbeddedNode {
    pub(super) region: Arc<Region>,
    pub(super) link: LinkModel,
    lost: AtomicBool,
}

impl EmbeddedNode {
    /// A node that lends `region`.
    #[must_use]
    pub fn new(region: Arc<Region>, link: LinkModel) -> Self {
        Self {
            region,
            link,
            lost: AtomicBool::new(false),
        }
    }

    /// The key of the node's region.
    #[must_use]
    pub fn remote_key(&self) -> RemoteKey {
        RemoteKey(0x52)
    }

    /// The bytes that the node lends.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.region.len() as u64
    }

    /// The lent bytes that are present in memory.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.region.resident_bytes()
    }

    /// Makes the node stop answering, as if its host had died.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Makes the node answer again.
    pub fn restore(&self) {
        self.lost.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_lost(&self, now_ns: u64) -> bool {
        self.lost.load(Ordering::Relaxed)
            || self
                .link
                .faults
                .lost_at_ns
                .is_some_and(|lost| now_ns >= lost)
    }

    /// A copy of all far memory, for tests that search it for plaintext.
    ///
    /// # Safety
    /// No request that writes is in flight.
    #[must_use]
    pub unsafe fn copy_for_inspection(&self) -> Vec<u8> {
        let mut copy = vec![0; self.region.len()];
        // SAFETY: the region is that long, and by this function's contract no request writes to it.
        unsafe {
            ptr::copy_nonoverlapping(self.region.as_ptr().as_ptr(), copy.as_mut_ptr(), copy.len());
        }
        copy
    }

    /// Flips one bit of far memory, for tests of damage.
    ///
    /// # Safety
    /// No request is in flight.
    pub unsafe fn damage(&self, offset: usize) {
        assert!(offset < self.region.len(), "outside the node's memory");
        // SAFETY: inside the region, and by this function's contract nothing else accesses it.
        unsafe {
            let byte = self.region.as_ptr().add(offset);
            byte.write(byte.read() ^ 1);
        }
    }

    /// Overwrites bytes of far memory, as another client of the node could, for tests of forgery.
    ///
    /// # Safety
    /// No request is in flight.
    ///
    /// # Panics
    /// If the bytes do not lie within the node's memory.
    pub unsafe fn overwrite(&self, offset: usize, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len());
        let inside = end.is_some_and(|end| end <= self.region.len());
        assert!(inside, "outside the node's memory");
        // SAFETY: inside the region, and by this function's contract nothing else accesses it.
        unsafe {
            let target = self.region.as_ptr().as_ptr().add(offset);
            ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }
}
