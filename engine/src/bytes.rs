//! Copies and compares keys. Most are 8 to 16 bytes long: two words, and no call.
//!
//! Both functions are on the path of every request. They read and write nothing beyond the slices.

#![allow(unsafe_code)] // copies to raw places

use std::ptr;

/// Copies bytes to a place that may be uninitialised.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for all bytes of `from`.
#[inline]
pub(crate) unsafe fn copy_to(to: *mut u8, from: &[u8]) {
    let far_end = from.len().wrapping_sub(8);
    // SAFETY: by this function's contract; with 8 to 16 bytes, both words are within the slice.
    unsafe {
        if far_end <= 8 {
            let first = from.as_ptr().cast::<u64>().read_unaligned();
            let last = from.as_ptr().add(far_end).cast::<u64>().read_unaligned();
            to.cast::<u64>().write_unaligned(first);
            to.add(far_end).cast::<u64>().write_unaligned(last);
        } else if !from.is_empty() {
            ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
        }
    }
}

/// True if two slices hold the same bytes.
#[inline]
pub(crate) fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    if one.len().wrapping_sub(8) <= 8 {
        // Both words are within the slices, and overlap or touch.
        one.first_chunk::<8>() == other.first_chunk::<8>()
            && one.last_chunk::<8>() == other.last_chunk::<8>()
    } else {
        one == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_compared() {
        for length in 0..40 {
            let from: Vec<u8> = (1..=length).collect();
            let mut room = vec![0xEE; from.len() + 1];
            // SAFETY: there is room for one byte more.
            unsafe { copy_to(room.as_mut_ptr(), &from) };
            assert!(room.pop() == Some(0xEE) && equal(&room, &from));
            let mut to = room;
            for place in 0..to.len() {
                to[place] ^= 0x80;
                assert!(!equal(&to, &from), "{length}: {place}");
                to[place] ^= 0x80;
            }
            to.push(0);
            assert!(!equal(&to, &from));
        }
    }
}
