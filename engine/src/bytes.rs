//! Copying and comparing keys, most of which are 8 to 16 bytes long: two words, and no call.

/// Copies one slice over another of the same length.
///
/// # Panics
/// If their lengths differ.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len());
    let far_end = from.len().wrapping_sub(8);
    if far_end <= 8
        && let (Some(first), Some(last)) = (from.first_chunk::<8>(), from.last_chunk::<8>())
    {
        let (first, last) = (*first, *last);
        to[..8].copy_from_slice(&first);
        to[far_end..].copy_from_slice(&last);
    } else {
        to.copy_from_slice(from);
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
