//! A slab: pages divided into pieces of one length.

use farcore_rdma::RemoteSlice;

use super::bits::Bits;
use super::lengths;

/// Pages divided into pieces.
#[derive(Debug)]
pub(super) struct Slab {
    /// The extent's number in the part.
    pub(super) extent: u32,
    pub(super) first_page: u32,
    pub(super) pages: u32,
    /// The index of the pieces' length.
    pub(super) length: usize,
    slice: RemoteSlice,
    used: Bits,
    /// Its place in the list of slabs that have room.
    pub(super) listed: Option<usize>,
}

impl Slab {
    pub(super) fn new(
        (extent, first_page, pages): (u32, u32, u32),
        slice: RemoteSlice,
        bytes: u64,
        length: usize,
    ) -> Self {
        let pieces = bytes / lengths::bytes_of(length);
        Self {
            extent,
            first_page,
            pages,
            length,
            slice,
            used: Bits::new(u32::try_from(pieces).unwrap_or(u32::MAX)),
            listed: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used.count() == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.used.count() == self.used.limit()
    }

    /// Takes a piece: its number, and where it begins.
    pub(super) fn take(&mut self) -> Option<(u32, RemoteSlice)> {
        let piece = self.used.insert_first()?;
        let offset = u64::from(piece) * lengths::bytes_of(self.length);
        let slice = RemoteSlice {
            offset: self.slice.offset + offset,
            ..self.slice
        };
        Some((piece, slice))
    }

    /// Gives a piece back; false if it is not taken.
    pub(super) fn give(&mut self, piece: u32) -> bool {
        self.used.remove(piece)
    }
}
