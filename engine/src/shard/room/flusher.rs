//! The flush in progress: which page is written, and how far.

use farcore_rdma::{Landing, LocalSlice};

use crate::log::sealing::SealProgress;
use crate::shard::far::COPIES_MAX;

/// Pieces of one flush in flight at once, each with a WRITE a copy.
const WRITES_MAX: usize = 16;
/// A piece without a cipher, in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// A piece with a cipher: one slab.
const CIPHER_PIECE_BYTES: usize = 8 << 10;

/// Why a command could not be done in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortfall {
    /// Far memory holds no free extent.
    FarFull = 1,
    /// No memory node takes anything.
    Unavailable = 2,
}

/// How far the flush of a page is.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) page: u32,
    /// Bytes of the page to be written.
    pub(super) bytes: usize,
    /// Bytes posted.
    pub(super) posted: usize,
    /// Directory entries whose record has its checksum.
    pub(super) checked: u32,
    /// How far the page is sealed.
    pub(super) sealed: SealProgress,
    /// Copies that are written.
    pub(super) copies: usize,
    /// Copies with which the page counts as flushed.
    pub(super) copies_min: usize,
    /// A bit for each copy that failed.
    failed: u8,
    /// The piece that was not posted to all copies yet.
    pub(super) part: Option<Part>,
}

const _: () = assert!(COPIES_MAX <= u8::BITS as usize);

impl Flush {
    pub(super) fn new(page: u32, bytes: usize, (copies, copies_min): (usize, usize)) -> Self {
        Self {
            page,
            bytes,
            posted: 0,
            checked: 0,
            sealed: SealProgress::default(),
            copies,
            copies_min,
            failed: 0,
            part: None,
        }
    }

    /// Notes that a copy is not written as the others are.
    pub(super) fn fail(&mut self, copy: usize) {
        self.failed |= 1 << copy;
    }

    pub(super) fn has_failed(&self, copy: usize) -> bool {
        self.failed >> copy & 1 == 1
    }

    /// Too few copies can still be written in full.
    pub(super) fn is_failed(&self) -> bool {
        self.copies - (self.failed.count_ones() as usize) < self.copies_min
    }
}

/// A piece that was posted to the copies before `copy`.
#[derive(Debug)]
pub(super) struct Part {
    /// Its place among the pieces in flight.
    pub(super) slot: usize,
    pub(super) local: LocalSlice,
    pub(super) landing: Option<Landing>,
    pub(super) start: usize,
    pub(super) end: usize,
    /// How far the page is sealed after it, of sealed records.
    pub(super) sealed: Option<SealProgress>,
    pub(super) copy: usize,
    /// It was posted to a copy.
    pub(super) is_posted: bool,
}

/// State of the flush in progress.
#[derive(Debug)]
pub(in crate::shard) struct Flusher {
    pub(super) flush: Option<Flush>,
    pub(super) buffers: [Option<Landing>; WRITES_MAX],
    /// WRITEs of each piece, one a copy, that have not completed.
    pub(super) outstanding: [u8; WRITES_MAX],
    pub(super) piece_bytes: usize,
    pub(super) shortfall: Option<Shortfall>,
    /// Set by `start_flush` until every page that was sealed then is in far memory.
    pub(in crate::shard) flush_all: bool,
    /// The last of those pages, by their order of sealing.
    pub(super) flush_until: u64,
    /// Compaction was moving records when the flush was requested. The pages they move to are
    /// flushed as well, once it is done with its victim.
    pub(in crate::shard) moves: bool,
}

impl Flusher {
    pub(in crate::shard) fn new(encrypts: bool) -> Self {
        Self {
            flush: None,
            buffers: [const { None }; WRITES_MAX],
            outstanding: [0; WRITES_MAX],
            piece_bytes: if encrypts {
                CIPHER_PIECE_BYTES
            } else {
                PIECE_BYTES
            },
            shortfall: None,
            flush_all: false,
            flush_until: 0,
            moves: false,
        }
    }

    pub(in crate::shard) fn is_idle(&self) -> bool {
        self.flush.is_none()
    }

    /// The page that is being flushed.
    pub(in crate::shard) fn page(&self) -> Option<u32> {
        self.flush.as_ref().map(|flush| flush.page)
    }

    /// Bytes of the buffers that hold ciphertext.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn landing_bytes(&self) -> u64 {
        let part = self.flush.as_ref().and_then(|flush| flush.part.as_ref());
        let held = part.and_then(|part| part.landing.as_ref());
        let buffers = self.buffers.iter().flatten().chain(held);
        buffers.map(|landing| u64::from(landing.bytes())).sum()
    }

    pub(in crate::shard) fn in_flight(&self) -> bool {
        let has_part = self
            .flush
            .as_ref()
            .is_some_and(|flush| flush.part.is_some());
        has_part || self.outstanding.iter().any(|&out| out > 0)
    }
}
