//! Appends records to the tails: finds room in an open page, opens pages when needed, and seals
//! those that are full.

use farcore_rdma::{Endpoint, prefetch_to_write};

use crate::cipher::PageCipher;
use crate::constants::{LINE_BYTES, UNIT_BYTES};
use crate::log::page::PageHeader;
use crate::shard::Shard;
use crate::shard::local::open_pages::{OpenPage, TailKind};
use crate::shard::local::page_table::PageKind;
use crate::shard::local::reserved::Reserved;
use crate::shard::room::pressure::NoRoom;

/// Bytes from a written record to the lines that are prefetched for later ones.
const PREFETCH_AHEAD: usize = 768;
/// Lines prefetched for every record: most records are that long.
const PREFETCH_LINES: usize = 4;
/// Lines prefetched at once, at most; the rest of a long record is written without a prefetch.
const PREFETCH_LINES_MAX: usize = 6;

/// Prefetches for write as many lines as a record is long, some records ahead of where it is
/// written, so that later records do not wait for them. Beyond the page's end this is useless but
/// harmless.
#[inline]
fn prefetch_for_write(place: *const u8, units: u32) {
    let ahead = place.wrapping_add(PREFETCH_AHEAD);
    let last = (units as usize * UNIT_BYTES).saturating_sub(1);
    let take = |line: usize| prefetch_to_write(ahead.wrapping_add((line * LINE_BYTES).min(last)));
    // No branch on the usual lengths, which are unpredictable: prefetching a line twice costs
    // nothing.
    (0..PREFETCH_LINES).for_each(take);
    if last >= PREFETCH_LINES * LINE_BYTES {
        (PREFETCH_LINES..PREFETCH_LINES_MAX).for_each(take);
    }
}

impl<E: Endpoint> Shard<E> {
    /// Makes sure that a tail's open page can take a record; returns the room for it.
    #[inline]
    pub(in crate::shard) fn reserve(
        &mut self,
        kind: TailKind,
        units: u32,
    ) -> Result<Reserved, NoRoom> {
        loop {
            if let Some(room) = self.local.reserve(kind, units) {
                prefetch_for_write(room.place(), units);
                return Ok(room);
            }
            self.open_page(kind)?;
        }
    }

    /// Makes sure that a tail's open page can take several records of this many units together.
    /// They fit an empty page. What the page before has left stays unused.
    pub(in crate::shard) fn reserve_all(
        &mut self,
        kind: TailKind,
        units: u32,
        records: u32,
    ) -> Result<(), NoRoom> {
        if records > 0 && !self.local.has_room_for_all(kind, units, records) {
            self.open_page(kind)?;
            assert!(self.local.has_room_for_all(kind, units, records));
        }
        Ok(())
    }

    #[cold]
    fn open_page(&mut self, kind: TailKind) -> Result<(), NoRoom> {
        match self.local.open_page(kind) {
            Ok(Some(previous)) => self.seal(previous),
            Ok(None) => {}
            Err(()) => return Err(self.no_frame()),
        }
        Ok(())
    }

    /// Ends a page's appends.
    fn seal(&mut self, open: OpenPage) {
        match self.local.seal(open) {
            PageKind::Cache => self.cache.sealed(open.page),
            PageKind::Log => self.metrics.counters.pages_sealed.add(1),
        }
        self.compactor.note_sealed();
        self.free_if_dead(open.page);
    }

    /// Seals a tail's open page if it holds records.
    pub(in crate::shard) fn seal_tail(&mut self, kind: TailKind) {
        if let Some(open) = self.local.take_open(kind) {
            self.seal(open);
        }
    }

    /// Writes the header of a page that is about to be flushed.
    pub(in crate::shard) fn write_header(&mut self, number: u32) {
        let entry = self.local.pages.get(number);
        let header = PageHeader {
            epoch: self.epoch,
            shard: self.id,
            sequence: entry.sequence,
            units: entry.units,
            records: entry.records,
            directory_unit: entry.units,
        };
        let cipher = self.far.cipher.as_ref().and_then(PageCipher::authenticated);
        let header = match cipher {
            Some(cipher) => {
                header.encode_with_tag(|fields| cipher.header_tag(header.sequence, fields))
            }
            None => header.encode(),
        };
        self.local.write_header(number, &header);
    }
}
