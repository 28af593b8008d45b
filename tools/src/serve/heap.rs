//! How the allocator of glibc is to treat the buffers of clients.
//!
//! Left alone it raises its threshold with each long buffer that is freed, so that later ones lie
//! in heaps, between other memory, and are not returned to the system: the process stays as large
//! as it was at its peaks, several times what clients may take. With fixed thresholds a long buffer
//! is a mapping of its own, and goes back when it is freed. What is free between shorter buffers
//! goes back once a second while clients take much.

#![allow(unsafe_code)] // calls the allocator

use std::time::{Duration, Instant};

use farcore_server::ServerReporter;

/// Buffers from this length on are mappings of their own.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 64 << 10;
/// Free bytes at the end of a heap from which they are returned.
#[cfg(target_env = "gnu")]
const TRIMMED_BYTES: libc::c_int = 128 << 10;

/// Fixes the thresholds. Call it before the engine opens.
#[cfg(target_env = "gnu")]
pub(super) fn return_buffers() {
    // SAFETY: sets numbers of the allocator, which locks itself.
    let are_set = unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, TRIMMED_BYTES) == 1
    };
    if !are_set {
        tracing::warn!("the allocator refuses its thresholds: buffers of clients may take more");
    }
}

/// Other allocators return long buffers by themselves.
#[cfg(not(target_env = "gnu"))]
pub(super) fn return_buffers() {}

/// Bytes that clients have freed since memory was returned last, from which it is again.
const FREED_BYTES: u64 = 256 << 10;
/// How often free memory is returned.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns free memory while clients take more than a half of what they may, and when they have
/// freed some.
#[derive(Debug)]
pub(super) struct Returned {
    reporter: ServerReporter,
    client_bytes: u64,
    last: Instant,
    /// The most that clients took since memory was returned last.
    peak_bytes: u64,
}

impl Returned {
    pub(super) fn new(reporter: ServerReporter, client_bytes: u64) -> Self {
        Self {
            reporter,
            client_bytes,
            last: Instant::now(),
            peak_bytes: 0,
        }
    }

    /// Returns free memory if it is due. Cost then: a pass over the heaps, each locked meanwhile.
    pub(super) fn look(&mut self) {
        if self.last.elapsed() < INTERVAL {
            return;
        }
        self.last = Instant::now();
        let figures = self.reporter.figures().total();
        let taken = figures.connection_bytes + figures.native.slot_bytes;
        self.peak_bytes = self.peak_bytes.max(taken);
        if taken > self.client_bytes / 2 || self.peak_bytes - taken > FREED_BYTES {
            self.peak_bytes = taken;
            trim();
        }
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: may be called on any thread at any time; frees nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}
