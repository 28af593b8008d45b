//! Bounds-checked pointers into registered memory, shared by the backends.
//!
//! Owns nothing: a caller keeps the region alive for as long as it uses a pointer.

#![allow(unsafe_code)] // makes references to words of a region

use std::sync::atomic::AtomicU64;

use crate::region::Region;

/// The first byte of a range of a region; `None` if any of it lies outside.
pub(crate) fn pointer(region: &Region, offset: u64, bytes: u32) -> Option<*mut u8> {
    let end = offset.checked_add(u64::from(bytes))?;
    let offset = usize::try_from(offset).ok()?;
    (end <= region.len() as u64).then(|| region.as_ptr().as_ptr().wrapping_add(offset))
}

/// The word at `place` as an atomic; `None` if it is not aligned.
///
/// # Safety
/// Eight bytes at `place` are readable and writable for as long as the reference is used.
pub(crate) unsafe fn atomic_word<'a>(place: *mut u8) -> Option<&'a AtomicU64> {
    let word = place.cast::<u64>();
    // SAFETY: by this function's contract, and aligned as just checked.
    word.is_aligned()
        .then(|| unsafe { AtomicU64::from_ptr(word) })
}
