//! Bytes that are sent to many clients from one buffer, and how many of them there are.
//!
//! - I1: [`Fanout::bytes`] counts each buffer once, from before it is made until its last reader
//!   drops it.
//! - I2: no buffer is made that would be above the limit.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::ClientMemory;

/// What a buffer takes beside its bytes, about.
pub(crate) const BESIDE_BYTES: usize = 64;

/// The shared bytes of a server, a part of the memory of clients.
#[derive(Clone, Debug)]
pub(crate) struct Fanout {
    memory: Arc<ClientMemory>,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl Fanout {
    /// None, of `bytes_max` at most.
    pub(crate) fn new(memory: &Arc<ClientMemory>, bytes_max: usize) -> Self {
        Self {
            memory: Arc::clone(memory),
            bytes: Arc::default(),
            bytes_max,
        }
    }

    /// Bytes at most.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes now.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        // ORDERING: relaxed, here and below; it is a count, which orders nothing.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes until what is returned is dropped; `None` if they are above the limit.
    pub(crate) fn charge(&self, bytes: usize) -> Option<FanoutCharge> {
        let add = |now: usize| now.checked_add(bytes).filter(|&all| all <= self.bytes_max);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.bytes.fetch_update(set, fetch, add).ok()?;
        self.memory.take(bytes);
        Some(FanoutCharge {
            memory: Arc::clone(&self.memory),
            all: Arc::clone(&self.bytes),
            bytes,
        })
    }

    /// Copies bytes to a shared buffer; `None` if they are above the limit.
    pub(crate) fn share(&self, bytes: &[u8]) -> Option<SharedBytes> {
        let charge = self.charge(bytes.len() + BESIDE_BYTES)?;
        Some(SharedBytes(Arc::new(Buffer {
            bytes: bytes.into(),
            _charge: charge,
        })))
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct FanoutCharge {
    memory: Arc<ClientMemory>,
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for FanoutCharge {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
        self.memory.give(self.bytes);
    }
}

#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    _charge: FanoutCharge,
}

/// A buffer with many readers.
#[derive(Clone, Debug)]
pub(crate) struct SharedBytes(Arc<Buffer>);

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}
