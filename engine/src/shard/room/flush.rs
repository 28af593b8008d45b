//! Flush: writes a sealed page to its extents in pieces; checksums or ciphertext are made on the
//! way.
//!
//! One page at a time, with several WRITEs in flight. With a cipher, pieces go through landing
//! buffers and the frame keeps its plaintext; without one, the fabric reads the frame. A piece is
//! enciphered once and posted to each copy. The page is immutable and pinned meanwhile. A copy that
//! fails is given up, and made again later from another one (`copy.rs`). A flush of which too few
//! copies are left fails: the page stays sealed, to be flushed again under a new sequence number.

#![allow(unsafe_code)] // enciphers into landing buffers

use farcore_rdma::{Endpoint, Landing, LocalSlice, Status};

use crate::cipher::PageCipher;
use crate::constants::UNIT_BYTES;
use crate::log::page::HEADER_BYTES;
use crate::log::sealing::{PageSealer, SealProgress};
use crate::shard::Shard;
use crate::shard::far::{COPIES_MAX, Posted, Purpose};
use crate::shard::local::arena::Frame;
use crate::shard::local::open_pages::TailKind;
use crate::shard::room::flusher::{Flush, Part, Shortfall};

/// Pieces prepared in one slice.
const PIECES_A_SLICE: usize = 2;

impl<E: Endpoint> Shard<E> {
    /// Seals the open pages and flushes all pages that are sealed now, but none that are sealed
    /// later. [`Shard::flush_done`] reports the end.
    pub(crate) fn start_flush(&mut self) {
        self.seal_tail(TailKind::Log);
        self.seal_tail(TailKind::Cold);
        self.far.pages.retry_writes();
        self.flusher.shortfall = None;
        self.flusher.flush_all = true;
        self.flusher.flush_until = self.local.seals();
        self.flusher.moves = self.compactor.victim_page().is_some();
        self.background_due = true;
    }

    /// The outcome of [`Shard::start_flush`]; `None` while it is in progress.
    pub(crate) fn flush_done(&self) -> Option<Result<(), Shortfall>> {
        let done = !self.flusher.flush_all;
        done.then(|| self.flusher.shortfall.map_or(Ok(()), Err))
    }

    /// True once every page that [`Shard::start_flush`] covers is in far memory, or has no live
    /// record.
    fn is_flushed(&mut self) -> bool {
        if self.flusher.moves {
            if self.compactor.victim_page().is_some() {
                return false;
            }
            self.flusher.moves = false;
            self.seal_tail(TailKind::Cold);
            self.flusher.flush_until = self.local.seals();
        }
        let until = self.flusher.flush_until;
        let mut local = self.local.sealed.iter().copied().chain(self.flusher.page());
        !local.any(|page| self.local.pages.get(page).sealed_at <= until)
    }

    /// Continues what [`Shard::start_flush`] began.
    pub(in crate::shard) fn flush_on(&mut self) {
        let is_flushing = self.start_next_flush() || !self.flusher.is_idle();
        if self.is_flushed() {
            self.flusher.flush_all = false;
        } else if is_flushing {
            // The oldest pages go first.
        } else if self.far.pages.is_silent() {
            self.give_up_flush(Shortfall::Unavailable);
        } else if self.far.pages.room_count() == 0 && !self.evicts_for_flush() {
            self.give_up_flush(Shortfall::FarFull);
        }
        // Else the remaining pages are pinned for a moment.
    }

    fn give_up_flush(&mut self, shortfall: Shortfall) {
        if self.flusher.flush_all {
            self.flusher.flush_all = false;
            self.flusher.shortfall = Some(shortfall);
        }
    }

    /// Starts to flush the oldest sealed page that has no pins; false if there is none.
    pub(in crate::shard) fn start_next_flush(&mut self) -> bool {
        if !self.flusher.is_idle() {
            return true;
        }
        let Some(place) = self
            .local
            .sealed
            .iter()
            .position(|&page| self.local.pages.get(page).pins == 0)
        else {
            return false;
        };
        let number = self.local.sealed[place];
        if !self.far.claim(number, self.now_ns) {
            return false;
        }
        if !farcore_tuning::mutated!("sequence-not-raised") || self.sequence == 0 {
            self.sequence += 1;
        }
        self.local.begin_flush(place, self.sequence);
        let entry = self.local.page(number);
        let (units, records) = (entry.units as usize, entry.records);
        let bytes = units * UNIT_BYTES + self.directory_far_bytes(records);
        self.write_header(number);
        let copies = self.far.pages.copy_count(number);
        let least = self.far.pages.plan().least();
        self.flusher.flush = Some(Flush::new(number, bytes, (copies, least)));
        true
    }

    /// Prepares and posts some pieces of the flush in progress. True if there were any.
    pub(in crate::shard) fn continue_flush(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..PIECES_A_SLICE {
            let Some(flush) = &self.flusher.flush else {
                return busy;
            };
            if flush.is_failed() {
                self.drop_part();
                break;
            }
            if flush.posted == flush.bytes {
                break;
            }
            if !self.post_piece() {
                break;
            }
            busy = true;
        }
        self.finish_flush();
        busy
    }

    /// Posts the next piece, or the rest of the one before. True if anything was posted.
    fn post_piece(&mut self) -> bool {
        let begun = self
            .flusher
            .flush
            .as_mut()
            .and_then(|flush| flush.part.take());
        match begun.or_else(|| self.begin_piece()) {
            Some(part) => self.post_part(part),
            None => false,
        }
    }

    /// Prepares the next piece; `None` if it has no place or no buffer now.
    fn begin_piece(&mut self) -> Option<Part> {
        let slot = self.flusher.outstanding.iter().position(|&out| out == 0)?;
        let flush = self.flusher.flush.as_ref()?;
        let (number, start) = (flush.page, flush.posted);
        let end = (start + self.flusher.piece_bytes).min(flush.bytes);
        let bytes = u32::try_from(end - start).ok()?;
        let frame = self.local.pages.get(number).frame()?;
        let landing = if self.far.cipher.is_some() {
            Some(self.far.buffers.flush.allocate(bytes)?)
        } else {
            None
        };
        if !self.authenticates() {
            self.fill_checks(end);
        }
        let (local, sealed) = self.prepare_piece(number, frame, start, bytes, landing.as_ref());
        Some(Part {
            slot,
            local,
            landing,
            start,
            end,
            sealed,
            copy: 0,
            is_posted: false,
        })
    }

    /// Posts a piece to the copies that it was not posted to. What finds no room in a queue is kept
    /// for later. True if it was posted to any.
    fn post_part(&mut self, mut part: Part) -> bool {
        let Some(flush) = &mut self.flusher.flush else {
            return false;
        };
        let (before, start) = (part.is_posted, part.start as u64);
        let mut any = false;
        while part.copy < flush.copies {
            let copy = part.copy;
            if flush.has_failed(copy) {
                part.copy += 1;
                continue;
            }
            let purpose = Purpose::Flush(
                u32::try_from(part.slot).unwrap_or(u32::MAX),
                u8::try_from(copy).unwrap_or(u8::MAX),
            );
            let place = (flush.page, copy);
            match self
                .far
                .write(place, start, part.local, purpose, self.now_ns)
            {
                Posted::Yes => {
                    self.flusher.outstanding[part.slot] += 1;
                    (any, part.is_posted) = (true, true);
                }
                // Also if the node took the extent back.
                Posted::Down => flush.fail(copy),
                Posted::Full => break,
            }
            part.copy += 1;
        }
        let is_through = part.copy == flush.copies;
        if !part.is_posted {
            // A piece that was not posted is sealed again.
            if farcore_tuning::mutated!("seal-kept-though-not-posted") {
                flush.sealed = part.sealed.take().unwrap_or_default();
            }
            self.free_piece(part.landing);
        } else if is_through {
            flush.posted = part.end;
            flush.sealed = part.sealed.take().unwrap_or_default();
            self.hold_piece(part);
        } else {
            flush.part = Some(part);
        }
        any || before && is_through
    }

    /// Keeps the buffer of a piece until its WRITEs have completed.
    fn hold_piece(&mut self, part: Part) {
        let is_done = self.flusher.outstanding[part.slot] == 0;
        if is_done || farcore_tuning::mutated!("landing-freed-at-post") {
            self.free_piece(part.landing);
        } else {
            self.flusher.buffers[part.slot] = part.landing;
        }
    }

    fn free_piece(&mut self, landing: Option<Landing>) {
        if let Some(landing) = landing {
            self.far.buffers.flush.free(landing);
        }
    }

    /// Gives up the piece that was posted to some copies only.
    fn drop_part(&mut self) {
        let part = self
            .flusher
            .flush
            .as_mut()
            .and_then(|flush| flush.part.take());
        if let Some(part) = part {
            self.hold_piece(part);
        }
    }

    /// What is written of a piece: ciphertext in a landing buffer, or the frame itself; and for
    /// sealed records, how far the page is sealed after it.
    fn prepare_piece(
        &mut self,
        number: u32,
        frame: Frame,
        start: usize,
        bytes: u32,
        landing: Option<&Landing>,
    ) -> (LocalSlice, Option<SealProgress>) {
        let Some(landing) = landing else {
            return (self.local.arena.slice(frame, start, bytes), None);
        };
        let offset = landing.offset();
        // SAFETY: the landing buffer is ours.
        let target = unsafe { self.landed_mut(offset, bytes) };
        let source = self.local.frame(number);
        let sealed = self.encipher(number, start, source, target);
        (self.local.arena.landing_slice(offset, bytes), sealed)
    }

    /// Writes the ciphertext of the piece at `start` of the page that is being flushed. Returns how
    /// far the page is sealed after it.
    fn encipher(
        &self,
        number: u32,
        start: usize,
        page: &[u8],
        target: &mut [u8],
    ) -> Option<SealProgress> {
        let entry = self.local.pages.get(number);
        #[cfg(feature = "simulation")]
        farcore_tuning::simulated::note_keystream(
            (self.id, entry.sequence, start),
            &page[start..page.len().min(start + target.len())],
        );
        match self.far.cipher.as_ref()? {
            PageCipher::Authenticated(cipher) => {
                let sealer = PageSealer {
                    cipher,
                    sequence: entry.sequence,
                    page,
                    units: entry.units,
                    records: entry.records,
                };
                let flush = self.flusher.flush.as_ref()?;
                Some(sealer.seal_piece(&flush.sealed, start, target))
            }
            PageCipher::SecrecyOnly(cipher) => {
                let source = &page[start..start + target.len()];
                // The page header stays in the clear.
                let clear = HEADER_BYTES.saturating_sub(start).min(target.len());
                target[..clear].copy_from_slice(&source[..clear]);
                let first = u32::try_from((start + clear) / UNIT_BYTES).unwrap_or(u32::MAX);
                cipher.apply_to(
                    entry.sequence,
                    first,
                    &source[clear..],
                    &mut target[clear..],
                );
                None
            }
        }
    }

    /// Gives every record that starts before `end` its checksum.
    fn fill_checks(&mut self, end: usize) {
        let Some(flush) = &mut self.flusher.flush else {
            return;
        };
        flush.checked = self.local.fill_checks(flush.page, flush.checked, end);
    }

    /// Handles the completion of one piece at one copy.
    pub(in crate::shard) fn flush_written(&mut self, slot: u32, copy: u8, status: Status) {
        let slot = slot as usize;
        self.flusher.outstanding[slot] -= 1;
        if self.flusher.outstanding[slot] == 0 {
            let landing = self.flusher.buffers[slot].take();
            self.free_piece(landing);
        }
        if status != Status::Success
            && !farcore_tuning::mutated!("failed-piece-not-noted")
            && let Some(flush) = &mut self.flusher.flush
        {
            flush.fail(usize::from(copy));
        }
        self.finish_flush();
    }

    fn finish_flush(&mut self) {
        if self.flusher.in_flight() {
            return;
        }
        let Some(flush) = &self.flusher.flush else {
            return;
        };
        if !flush.is_failed() && flush.posted < flush.bytes {
            return;
        }
        let Some(flush) = self.flusher.flush.take() else {
            return;
        };
        // Successful WRITEs do not count if the node took the extent back before the last
        // completion.
        let counts_lost = !farcore_tuning::mutated!("flush-to-a-lost-extent");
        let is_good = |copy: usize| {
            let is_lost = counts_lost && self.far.pages.is_copy_lost(flush.page, copy);
            !flush.has_failed(copy) && !is_lost
        };
        let good = (0..flush.copies).filter(|&copy| is_good(copy)).count();
        let spoilt: [bool; COPIES_MAX] =
            std::array::from_fn(|copy| copy < flush.copies && !is_good(copy));
        if flush.posted < flush.bytes || good < flush.copies_min {
            // The page is as before: sealed and local. It is flushed again under a new sequence
            // number, to other nodes if some answer.
            self.local.flush_failed(flush.page);
            self.far.release(flush.page);
        } else {
            if good < flush.copies {
                self.far.release_copies(flush.page, |copy| spoilt[copy]);
            }
            self.local.flushed(flush.page);
            self.evictor.note_far(flush.page, &self.local.pages);
            self.compactor.due |= self.evictor.is_on();
            self.pressure.relieve();
            self.metrics.counters.pages_flushed.add(1);
        }
        self.unpin(flush.page);
    }
}
