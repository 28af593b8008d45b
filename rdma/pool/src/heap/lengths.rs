//! The lengths of pieces: multiples of 16 up to 128 bytes, then four to each doubling. So no more
//! than a fifth of a piece is unused beyond 128 bytes.

/// The length of a page, in bytes.
pub(crate) const PAGE_BYTES: u64 = 4 << 10;
/// The longest piece; what is longer is given out in pages.
pub(super) const PIECE_BYTES_MAX: u64 = 16 << 10;
/// The greatest alignment that is given.
pub(crate) const ALIGN_MAX: u64 = PAGE_BYTES;
/// A slab is at least this long, and has at least [`PIECES_MIN`] pieces.
const SLAB_BYTES_MIN: u64 = 16 << 10;
const PIECES_MIN: u64 = 8;
/// The lengths.
pub(super) const COUNT: usize = 8 + 4 * 7;

/// The length of pieces with an index, in bytes.
pub(super) fn bytes_of(index: usize) -> u64 {
    let index = index as u64;
    if index < 8 {
        return (index + 1) * 16;
    }
    let (doubling, quarter) = ((index - 8) / 4, (index - 8) % 4);
    (128 << doubling) + (quarter + 1) * (32 << doubling)
}

/// The index of the shortest pieces for `bytes` at an alignment; `None` if there are none.
pub(super) fn index_for(bytes: u64, align: u64) -> Option<usize> {
    let bytes = bytes.max(1);
    // A slab begins at a page, so pieces whose length is a multiple of the alignment are aligned.
    let bytes = if align > 16 {
        bytes.max(align).next_power_of_two()
    } else {
        bytes
    };
    if bytes > PIECE_BYTES_MAX {
        return None;
    }
    if bytes <= 128 {
        return usize::try_from(bytes.div_ceil(16) - 1).ok();
    }
    let doubling = u64::from((bytes - 1).ilog2() - 7);
    let quarter = (bytes - (128 << doubling)).div_ceil(32 << doubling) - 1;
    usize::try_from(8 + 4 * doubling + quarter).ok()
}

/// The length of a slab of such pieces, in bytes, within extents of `extent_bytes`.
pub(super) fn slab_bytes(index: usize, extent_bytes: u64) -> u64 {
    let bytes = (bytes_of(index) * PIECES_MIN).max(SLAB_BYTES_MIN);
    bytes.next_multiple_of(PAGE_BYTES).min(extent_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_the_shortest_pieces_that_hold_it() {
        assert_eq!(bytes_of(COUNT - 1), PIECE_BYTES_MAX);
        for bytes in 0..=PIECE_BYTES_MAX {
            let index = index_for(bytes, 1).expect("short enough");
            assert!(bytes_of(index) >= bytes, "{bytes}");
            assert!(index == 0 || bytes_of(index - 1) < bytes.max(1), "{bytes}");
        }
        assert_eq!(index_for(PIECE_BYTES_MAX + 1, 1), None);
    }

    #[test]
    fn pieces_are_aligned_as_their_slab_is() {
        for shift in 0..=12 {
            let align = 1 << shift;
            for bytes in [1, 15, 17, 100, 1000, 4000] {
                let index = index_for(bytes, align).expect("short enough");
                assert!(bytes_of(index) >= bytes);
                assert_eq!(bytes_of(index) % align, 0, "{bytes} at {align}");
            }
        }
        for index in 0..COUNT {
            let slab = slab_bytes(index, 64 << 10);
            assert!(slab.is_multiple_of(PAGE_BYTES) && slab / bytes_of(index) >= 4);
        }
    }
}
