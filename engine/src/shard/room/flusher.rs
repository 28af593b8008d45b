//! The flush in progress: which page is written, and how far.

use farcore_rdma::Landing;

use crate::log::sealing::SealProgress;

/// WRITEs of one flush in flight at once.
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
    pub(super) failed: bool,
}

/// State of the flush in progress.
#[derive(Debug)]
pub(in crate::shard) struct Flusher {
    pub(super) flush: Option<Flush>,
    pub(super) buffers: [Option<Landing>; WRITES_MAX],
    pub(super) outstanding: [bool; WRITES_MAX],
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
            outstanding: [false; WRITES_MAX],
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
        let buffers = self.buffers.iter().flatten();
        buffers.map(|landing| u64::from(landing.bytes())).sum()
    }

    pub(in crate::shard) fn in_flight(&self) -> bool {
        self.outstanding.iter().any(|&out| out)
    }
}
