//! A chunk: a run of a page's units that is read ahead, and its buffer.
//!
//! A buffer is reused only when no READ into it is in flight and no parked request waits for it.

/// Names one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkId(pub(crate) u8);

/// The state of a chunk's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ChunkState {
    #[default]
    Empty,
    Reading,
    Ready,
}

/// A run of units of one page in a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chunk {
    pub(super) state: ChunkState,
    /// The stream that reads it.
    pub(super) owner: usize,
    pub(crate) page: u32,
    pub(super) start: u32,
    pub(super) end: u32,
    /// Position of `start` in the stream's count of units.
    pub(super) at: u64,
    /// Offset of its buffer in the arena's region, in bytes.
    pub(super) offset: u64,
    /// Parked requests that need it.
    pub(crate) waiters: u32,
    /// Its units that were requested.
    pub(super) served: u32,
    /// The walk reached it before it had arrived.
    pub(super) stalled: bool,
    /// Time of its last use.
    pub(super) stamp: u64,
}

impl Chunk {
    pub(super) fn covers(&self, place: Place) -> bool {
        self.state != ChunkState::Empty
            && self.page == place.page
            && self.start <= place.unit
            && place.end() <= self.end
    }

    pub(super) fn units(&self) -> u32 {
        self.end - self.start
    }

    pub(super) fn end_at(&self) -> u64 {
        self.at + u64::from(self.units())
    }

    /// True if its buffer may be reused.
    pub(super) fn is_free(&self) -> bool {
        self.state != ChunkState::Reading && self.waiters == 0
    }
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) page: u32,
    pub(crate) unit: u32,
    pub(crate) units: u32,
}

impl Place {
    pub(super) fn end(self) -> u32 {
        self.unit + self.units
    }
}
