//! The open pages, or tails, that records are appended to.
//!
//! A shard has three: the log's, compaction's cold tail and the read cache's. An open page fills
//! from both ends: records grow up, directory entries grow down.

use crate::log::page::DIRECTORY_ENTRY_BYTES;

/// Units of the page header.
pub(crate) const HEADER_UNITS: u32 = 4;

/// The open page of a tail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenPage {
    pub(crate) page: u32,
    /// The next free unit.
    pub(crate) unit: u32,
    /// Directory entries so far; they grow down from the page's end.
    pub(crate) records: u32,
}

impl OpenPage {
    /// A page without records.
    pub(crate) fn new(page: u32) -> Self {
        Self {
            page,
            unit: HEADER_UNITS,
            records: 0,
        }
    }

    /// True if a record of this many units and its directory entry still fit in `append_bytes`.
    #[inline]
    pub(crate) fn fits(&self, units: u32, append_bytes: usize) -> bool {
        self.fits_all(units, 1, append_bytes)
    }

    /// True if several records of this many units together, and their directory entries, still fit.
    #[inline]
    pub(crate) fn fits_all(&self, units: u32, records: u32, append_bytes: usize) -> bool {
        let records_end = (self.unit + units) as usize * crate::constants::UNIT_BYTES;
        records_end + (self.records + records) as usize * DIRECTORY_ENTRY_BYTES <= append_bytes
    }
}

/// Which tail a record goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TailKind {
    /// Records that clients store.
    Log,
    /// Records that compaction moves.
    Cold,
    /// Copies of far records.
    Cache,
}

/// The three tails.
#[derive(Debug, Default)]
pub(crate) struct OpenPages {
    log: Option<OpenPage>,
    cold: Option<OpenPage>,
    cache: Option<OpenPage>,
}

impl OpenPages {
    /// The open page of a tail.
    #[inline]
    pub(crate) fn get(&mut self, kind: TailKind) -> &mut Option<OpenPage> {
        match kind {
            TailKind::Log => &mut self.log,
            TailKind::Cold => &mut self.cold,
            TailKind::Cache => &mut self.cache,
        }
    }
}
