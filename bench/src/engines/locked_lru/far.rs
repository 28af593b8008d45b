//! Far memory of the baseline: counted heap buffers behind a lock, one for each page.
//!
//! A page may be encrypted in counter mode, with a fresh nonce for each write. A latency is spent
//! spinning, on the caller's thread.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};

use aes::Aes128;
use anyhow::Context;
use ctr::Ctr64BE;
use ctr::cipher::{KeyIvInit, StreamCipher};
use farcore::Error;
use farcore_tuning::Clock;
use parking_lot::Mutex;

use crate::plan::Plan;
use crate::store::Usage;

#[derive(Debug, Default)]
struct Buffers {
    pages: Vec<Box<[u8]>>,
    free: Vec<u32>,
    used_bytes: u64,
    nonce: u64,
}

/// The far tier, shared by all entities.
pub(super) struct Far {
    buffers: Mutex<Buffers>,
    limit_bytes: u64,
    latency_ns: u64,
    key: Option<[u8; 16]>,
    clock: Clock,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    used_bytes: AtomicU64,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Far")
            .field("limit_bytes", &self.limit_bytes)
            .finish_non_exhaustive()
    }
}

/// The buffer of a page, and the nonce that it was encrypted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    buffer: u32,
    nonce: u64,
}

impl Far {
    pub(super) fn new(plan: &Plan) -> anyhow::Result<Self> {
        let key = if plan.encrypt.is_on() {
            let mut key = [0; 16];
            getrandom::fill(&mut key)
                .ok()
                .context("no random bytes for the encryption key")?;
            Some(key)
        } else {
            None
        };
        Ok(Self {
            buffers: Mutex::default(),
            limit_bytes: plan.far_bytes,
            latency_ns: plan.far_latency_ns,
            key,
            clock: Clock::new(),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
        })
    }

    /// Writes a page, over its old copy or to a new buffer.
    pub(super) fn write(&self, old: Option<Place>, mut page: Vec<u8>) -> Result<Place, Error> {
        let nonce = {
            let mut buffers = self.buffers.lock();
            buffers.nonce += 1;
            buffers.nonce
        };
        self.encrypt(nonce, &mut page);
        self.wait();
        let bytes = page.len() as u64;
        let mut buffers = self.buffers.lock();
        let freed = old.map_or(0, |old| buffers.pages[old.buffer as usize].len() as u64);
        let used = buffers.used_bytes - freed + bytes;
        if used > self.limit_bytes {
            return Err(Error::FarFull {
                shard: None,
                used: buffers.used_bytes,
                limit: self.limit_bytes,
            });
        }
        buffers.used_bytes = used;
        let page = page.into_boxed_slice();
        let reused = old.map(|old| old.buffer).or_else(|| buffers.free.pop());
        let buffer = match reused {
            Some(buffer) => {
                buffers.pages[buffer as usize] = page;
                buffer
            }
            None => {
                buffers.pages.push(page);
                u32::try_from(buffers.pages.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.used_bytes.store(used, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Place { buffer, nonce })
    }

    /// Fetches a page. Without its entity's lock the page may be written meanwhile: then the bytes
    /// are worthless, and the page has another place.
    pub(super) fn read(&self, place: Place) -> Vec<u8> {
        let mut page = self.buffers.lock().pages[place.buffer as usize].to_vec();
        self.wait();
        self.encrypt(place.nonce, &mut page);
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes
            .fetch_add(page.len() as u64, Ordering::Relaxed);
        page
    }

    /// Frees the buffer of a page.
    pub(super) fn free(&self, place: Place) {
        let mut buffers = self.buffers.lock();
        let page = std::mem::take(&mut buffers.pages[place.buffer as usize]);
        buffers.used_bytes -= page.len() as u64;
        buffers.free.push(place.buffer);
        self.used_bytes.store(buffers.used_bytes, Ordering::Relaxed);
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn usage(&self) -> Usage {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Usage {
            far_reads: load(&self.reads),
            far_read_bytes: load(&self.read_bytes),
            far_writes: load(&self.writes),
            far_write_bytes: load(&self.write_bytes),
            far_used_bytes: self.used_bytes(),
            ..Usage::default()
        }
    }

    /// Encrypts or decrypts in counter mode. A nonce is used for one write.
    fn encrypt(&self, nonce: u64, page: &mut [u8]) {
        let Some(key) = self.key else { return };
        let mut start = [0; 16];
        start[..8].copy_from_slice(&nonce.to_be_bytes());
        Ctr64BE::<Aes128>::new(&key.into(), &start.into()).apply_keystream(page);
    }

    fn wait(&self) {
        if self.latency_ns == 0 {
            return;
        }
        let start_ns = self.clock.now_ns();
        while self.clock.now_ns() - start_ns < self.latency_ns {
            hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::plan::{Encryption, Scenario};

    #[test]
    fn pages_are_read_back_and_far_memory_holds_ciphertext() {
        let scenario = Scenario::Contest {
            hot_ops: 1,
            skew: crate::skew::Skew::default(),
        };
        let plan = Plan {
            far_bytes: 100,
            far_latency_ns: 10,
            encrypt: Encryption::SecrecyOnly,
            ..Plan::new(scenario)
        };
        let far = Far::new(&plan).unwrap();
        let text = vec![7; 60];
        let first = far.write(None, text.clone()).unwrap();
        assert_eq!(far.read(first), text);
        assert_ne!(far.buffers.lock().pages[0][..], text[..]);
        let once = far.buffers.lock().pages[0].clone();
        let again = far.write(Some(first), text.clone()).unwrap();
        assert_ne!(far.buffers.lock().pages[0], once, "a nonce was used twice");
        assert_eq!((far.read(again), far.used_bytes()), (text.clone(), 60));
        assert_eq!(
            far.write(None, text).unwrap_err(),
            Error::FarFull {
                shard: None,
                used: 60,
                limit: 100
            }
        );
        far.free(again);
        assert_eq!(far.used_bytes(), 0);
    }
}
