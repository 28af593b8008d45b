//! How the allocator of glibc is to treat the buffers of clients.
//!
//! Left alone it raises its threshold with each long buffer that is freed, so that later ones lie in
//! heaps, between other memory, and are not returned to the system: the process stays as large as it
//! was at its peaks, several times what clients may take. With fixed thresholds a long buffer is a
//! mapping of its own, and goes back when it is freed.

#![allow(unsafe_code)] // calls the allocator

/// Buffers from this length on are mappings of their own; glibc's value at the start.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 128 << 10;
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
