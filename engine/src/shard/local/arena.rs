//! The arena: the registered local memory of one shard, cut into landing space and frames.
//!
//! Index segments are carved out of frames, so index, log and cache share one budget and the cap on
//! local memory holds by construction. When the index grows it takes a frame, and a page must
//! leave.
//!
//! ```text
//! | landing space | frame 0 | frame 1 | ... | frame n-1 |
//! ```

#![allow(unsafe_code)] // hands out raw pieces of the region

use std::ptr::NonNull;
use std::sync::Arc;

use farcore_rdma::{LocalKey, LocalSlice, Region};

use crate::constants::{FRAMES_MIN, SEGMENT_BYTES};
use crate::index::SegmentSource;

/// A page-sized piece of local registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Frame(u32);

/// Frames and index segments of one region.
#[derive(Debug)]
pub(crate) struct Arena {
    region: Arc<Region>,
    key: LocalKey,
    frames_offset: usize,
    page_bytes: usize,
    free: Vec<u32>,
    total: usize,
    index_frames: usize,
    /// The frame that segments are carved from, and how many it has given.
    carving: Option<(u32, usize)>,
    /// Frames that only urgent callers (compaction) may take.
    reserve: usize,
}

impl Arena {
    /// Cuts `region` into frames behind its first `landing_bytes`.
    pub(crate) fn new(
        region: Arc<Region>,
        key: LocalKey,
        landing_bytes: usize,
        page_bytes: usize,
        reserve: usize,
    ) -> Self {
        let frames_offset = landing_bytes.next_multiple_of(page_bytes);
        let total = region.len().saturating_sub(frames_offset) / page_bytes;
        let count = u32::try_from(total).unwrap_or(u32::MAX);
        Self {
            region,
            key,
            frames_offset,
            page_bytes,
            free: (0..count).rev().collect(),
            total,
            index_frames: 0,
            carving: None,
            reserve,
        }
    }

    fn offset(&self, frame: u32) -> usize {
        self.frames_offset + frame as usize * self.page_bytes
    }

    /// The address of a frame's first byte.
    pub(crate) fn pointer(&self, frame: Frame) -> NonNull<u8> {
        // SAFETY: frame numbers come from `free`, all of which lie inside the region.
        unsafe { self.region.as_ptr().add(self.offset(frame.0)) }
    }

    /// A part of a frame as the fabric names it.
    pub(crate) fn slice(&self, frame: Frame, offset: usize, bytes: u32) -> LocalSlice {
        debug_assert!(offset + bytes as usize <= self.page_bytes);
        LocalSlice {
            key: self.key,
            offset: (self.offset(frame.0) + offset) as u64,
            bytes,
        }
    }

    /// A part of the landing space as the fabric names it.
    pub(crate) fn landing_slice(&self, offset: u64, bytes: u32) -> LocalSlice {
        LocalSlice {
            key: self.key,
            offset,
            bytes,
        }
    }

    /// The address of a byte of the landing space.
    #[inline]
    pub(crate) fn landing_pointer(&self, offset: u64) -> *mut u8 {
        #[expect(clippy::cast_possible_truncation, reason = "inside a mapped region")]
        let offset = offset as usize;
        debug_assert!(offset < self.frames_offset);
        self.region.as_ptr().as_ptr().wrapping_add(offset)
    }

    /// Takes a frame for a page; urgent callers may take the reserve.
    pub(crate) fn take(&mut self, urgent: bool) -> Option<Frame> {
        if !urgent && self.free.len() <= self.reserve {
            return None;
        }
        self.free.pop().map(Frame)
    }

    /// Returns a frame.
    pub(crate) fn give(&mut self, frame: Frame) {
        debug_assert!(!self.free.contains(&frame.0), "a frame was freed twice");
        self.free.push(frame.0);
    }

    /// Free frames.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Frames that only urgent callers may take.
    pub(crate) fn reserve(&self) -> usize {
        self.reserve
    }

    /// Sets how many frames only urgent callers may take.
    pub(crate) fn set_reserve(&mut self, frames: usize) {
        self.reserve = frames;
    }

    /// All frames, those of the index included.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Checks that each frame is free, the index's, or of one page, given those of pages.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn check(&self, of_pages: impl Iterator<Item = Frame>) {
        let mut known = vec![false; self.total];
        let mut count = self.index_frames;
        for number in of_pages
            .map(|frame| frame.0)
            .chain(self.free.iter().copied())
        {
            let before = std::mem::replace(&mut known[number as usize], true);
            assert!(!before, "shard I2: frame {number} has two uses");
            count += 1;
        }
        assert_eq!(count, self.total, "shard I2: frames without a use");
    }

    /// Frames that are not the index's.
    pub(crate) fn page_frames(&self) -> usize {
        self.total - self.index_frames
    }
}

impl SegmentSource for Arena {
    fn allocate(&mut self) -> Option<NonNull<u8>> {
        let per_frame = self.page_bytes / SEGMENT_BYTES;
        let (frame, used) = match self.carving {
            Some((frame, used)) if used < per_frame => (frame, used),
            _ => {
                // The log keeps the frames that it cannot work without.
                if self.free.len() <= self.reserve || self.page_frames() <= FRAMES_MIN {
                    return None;
                }
                self.index_frames += 1;
                (self.free.pop()?, 0)
            }
        };
        self.carving = Some((frame, used + 1));
        // SAFETY: the frame lies inside the region and `used` segments before this one fit in it.
        Some(unsafe {
            self.region
                .as_ptr()
                .add(self.offset(frame) + used * SEGMENT_BYTES)
        })
    }
}
