//! Copying and comparing keys, most of which are 8 to 16 bytes long: two words, and no call.

#![allow(unsafe_code)] // copies to raw places

use std::ptr;

/// Copies one slice over another of the same length.
///
/// # Panics
/// If their lengths differ.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    // Not `assert_eq`, which stores both on the way.
    assert!(to.len() == from.len(), "the lengths differ");
    // SAFETY: both are as long, and a slice that may be changed overlaps no other.
    unsafe { copy_to(to.as_mut_ptr(), from) };
}

/// Copies bytes to a place that may be uninitialised.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for all of them.
#[inline]
pub(crate) unsafe fn copy_to(to: *mut u8, from: &[u8]) {
    let far_end = from.len().wrapping_sub(8);
    // SAFETY: by this function's contract; of 8 to 16 bytes, both ends are there.
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
        // Both ends are there, and overlap or touch.
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
            let mut to = vec![0; from.len()];
            copy(&mut to, &from);
            assert_eq!(to, from);
            assert!(equal(&to, &from));
            let mut room = vec![0xEE; from.len() + 1];
            // SAFETY: there is room for one byte more.
            unsafe { copy_to(room.as_mut_ptr(), &from) };
            assert!(room.pop() == Some(0xEE) && room == from);
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
