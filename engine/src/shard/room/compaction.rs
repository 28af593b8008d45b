//! Compaction: moving what is alive out of pages that are mostly dead, and freeing their extents.
//!
//! One victim at a time, in bounded slices between requests. Its directory says what may be alive,
//! the index says what is. Far records are read in runs of neighbours, so a sparse page costs a
//! READ a record and a dense one a READ per 8 KiB. Everything goes to the cold tail, and a slot is
//! swung only after its record lies there.

#![allow(unsafe_code)] // reads directories in landing buffers

mod living;
mod runs;

use std::ops::Range;

use farcore_rdma::{Endpoint, Status};

use self::living::{EntryState, Living};
use crate::constants::UNIT_BYTES;
use crate::index::Slot;
use crate::log::page::{self, DIRECTORY_ENTRY_BYTES, DirectoryEntry};
use crate::log::record::{LocalRecord, RecordView};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::shard::Shard;
use crate::shard::far::{Avoided, Posted, Purpose};
use crate::shard::local::account_bytes;
use crate::shard::local::open_pages::{HEADER_UNITS, TailKind};
use crate::shard::local::page_table::{Page, PageKind, PageState};
use crate::shard::local::victims::live_percent;
use crate::shard::room::compactor::{Directory, Fate, Fault, Victim};
use crate::shard::room::flusher::Shortfall;
use crate::shard::room::pick::Pick;

/// A run of neighbours, in units, at most: one landing buffer of the largest small class.
const RUN_UNITS: u32 = 512;
/// Dead units that a run reads over rather than being cut.
const GAP_UNITS: u32 = 8;
/// Records looked at in one slice.
const RECORDS_A_SLICE: u32 = 64;
/// The errand number of the READ of a directory.
const DIRECTORY: u32 = u32::MAX;
/// Far bytes in use, in percent of those alive by size class, above which far memory counts as
/// short though there is plenty.
const SPARSE_PERCENT: u64 = 126;
/// Live share, in percent, below which a page is worth compacting: while far memory is ample,
/// short, and nearly gone.
const LIVE_PERCENT: [u64; 3] = [50, 75, 95];
/// Live share, in percent, below which `compact()` compacts a page.
pub(in crate::shard) const LIVE_PERCENT_REQUESTED: u64 = 90;
/// Live share, in percent, below which a page is compacted when nothing else makes room.
const LIVE_PERCENT_URGENT: u64 = 97;
/// The share of an evicted page that is moved at most, as a fraction.
const KEPT_SHARE: [u32; 2] = [3, 4];

impl<E: Endpoint> Shard<E> {
    /// Compacts every page that is worth it now; [`Shard::compaction_done`] reports when. What dies
    /// meanwhile does not put it off. Cost: a look at every page.
    pub(crate) fn start_compaction(&mut self) {
        self.seal_tail(TailKind::Log);
        let mut worth: Vec<(u64, u32)> = (self.local.pages.iter())
            .filter(|(_, page)| {
                page.kind() == PageKind::Log && page.state() != PageState::Open && !page.damaged
            })
            .map(|(number, page)| (live_percent(page), number))
            .filter(|&(percent, _)| percent < LIVE_PERCENT_REQUESTED)
            .collect();
        worth.sort_unstable_by(|one, other| other.cmp(one));
        self.compactor.trims = false;
        self.compactor.requested = true;
        self.compact_pages(worth.into_iter().map(|(_, number)| number).collect());
        self.compactor.shortfall = None;
        self.far.pages.retry_reads();
    }

    /// Compacts these pages, the last one first.
    pub(in crate::shard) fn compact_pages(&mut self, pages: Vec<u32>) {
        for &number in &pages {
            self.local.request_compaction(number);
        }
        self.compactor.requested |= !pages.is_empty();
        self.compactor.due = true;
        self.compactor.requested_pages = pages;
    }

    /// True while pages are compacted that a caller has requested.
    pub(in crate::shard) fn is_compacting_requested(&self) -> bool {
        self.compactor.requested
    }

    /// The next page of those that a caller named. Those that cannot be read now are set aside.
    fn next_requested(&mut self) -> Pick {
        for _ in 0..self.compactor.requested_pages.len() {
            let Some(number) = self.compactor.requested_pages.pop() else {
                break;
            };
            let page = self.local.page(number);
            if !page.requested || page.damaged {
                // It was freed meanwhile, and its number may be another page's.
                continue;
            }
            if page.pins > 0 && self.compactor.trims {
                self.local.take_requested(number);
                self.local.victims.list(&mut self.local.pages, number);
                continue;
            }
            if page.pins > 0 {
                self.compactor.requested_pages.insert(0, number);
                continue;
            }
            self.local.take_requested(number);
            if self.can_be_read(number) {
                return Pick::Page(number);
            }
        }
        if self.compactor.requested_pages.is_empty() {
            Pick::None
        } else {
            Pick::Later
        }
    }

    /// The result of [`Shard::start_compaction`], once no page is left to compact.
    pub(crate) fn compaction_done(&self) -> Option<Result<(), Shortfall>> {
        let compactor = &self.compactor;
        if compactor.stuck && self.pressure.is_exhausted() {
            return Some(Err(if self.far.pages.is_silent() {
                Shortfall::Unavailable
            } else {
                Shortfall::FarFull
            }));
        }
        let done = !compactor.requested;
        done.then(|| compactor.shortfall.map_or(Ok(()), Err))
    }

    /// Starts on any page with something dead in it, because nothing else makes room. False if
    /// there is none.
    pub(in crate::shard) fn start_compaction_urgently(&mut self) -> bool {
        if self.compactor.victim.is_some() {
            return true;
        }
        match self.pick_victim(LIVE_PERCENT_URGENT, true) {
            Pick::Page(page) => {
                self.start_victim(page, Fate::Stays);
                true
            }
            Pick::Later => true,
            Pick::None => false,
        }
    }

    /// Compacts pages of which something is dead, however little, for removals that lack room:
    /// those first in which the most is dead, until that is as much as two pages hold. False if
    /// there are none. Cost: a look at every page.
    pub(in crate::shard) fn start_compaction_for_removals(&mut self) -> bool {
        if self.compactor.requested || self.compactor.stuck {
            return false;
        }
        let dead_bytes = |page: &Page| page.record_bytes.saturating_sub(page.live_bytes);
        let is_idle = |page: &Page| {
            let state = page.state();
            let stays = matches!(state, PageState::Sealed | PageState::Clean | PageState::Far);
            stays && page.kind() == PageKind::Log && page.pins == 0 && !page.damaged
        };
        let pages = self.local.pages.iter().filter(|(_, page)| is_idle(page));
        let mut worth: Vec<(u64, u32)> = pages
            .map(|(number, page)| (dead_bytes(page), number))
            .filter(|&(dead, number)| dead > 0 && self.may_be_read(number))
            .collect();
        worth.sort_unstable_by(|one, other| other.cmp(one));
        let mut wanted = 2 * self.compactor.page_bytes;
        worth.retain(|&(dead, _)| {
            let is_wanted = wanted > 0;
            wanted = wanted.saturating_sub(dead);
            is_wanted
        });
        worth.reverse();
        self.compact_pages(worth.into_iter().map(|(_, number)| number).collect());
        self.compactor.requested
    }

    /// One bounded slice of compaction. True if it did any work.
    pub(in crate::shard) fn compact_slice(&mut self) -> bool {
        if self.compactor.victim.is_none() {
            self.list_returned();
            // What it would move would be only local again, until the next flush.
            if !self.compactor.due || self.flusher.flush_all {
                return false;
            }
            if self.compactor.has_dead() {
                self.pressure.relieve();
            }
            if !self.pressure.is_exhausted() {
                self.compactor.dead_bytes_due = self.compactor.page_bytes;
            }
            self.compactor.due = false;
            self.compactor.dead_bytes = 0;
            let short = self.local.arena.free_count() < 8;
            if self.compactor.requested {
                match self.next_requested() {
                    Pick::Page(page) => {
                        self.start_victim(page, Fate::Stays);
                        return self.work_on_victim();
                    }
                    Pick::Later => {
                        self.compactor.due = true;
                        // Requests that wait for room may hold these pages: others make it.
                        if !self.wants_room() {
                            return true;
                        }
                    }
                    Pick::None => {
                        self.compactor.requested = false;
                        if std::mem::take(&mut self.compactor.trims) {
                            self.publish_gauges();
                        }
                        if self.local.victims.aside_count() > 0 && self.far.pages.is_unreadable() {
                            self.compactor.shortfall = Some(Shortfall::Unavailable);
                        }
                    }
                }
            }
            match self.pick_compaction(short) {
                Pick::Page(page) => self.start_victim(page, Fate::Stays),
                Pick::Later => {
                    self.compactor.due = true;
                    return true;
                }
                Pick::None if self.start_eviction() => {}
                Pick::None => return false,
            }
        }
        let mut busy = false;
        for _ in 0..self.slices_at_once() {
            if !self.work_on_victim() {
                break;
            }
            busy = true;
        }
        busy
    }

    /// The page to compact next: one that has mostly expired, else one that is worth it.
    fn pick_compaction(&mut self, sealed_too: bool) -> Pick {
        let percent = match self.far.pages.free_percent() {
            _ if self.is_pressed() => LIVE_PERCENT[0],
            0..6 if !self.evictor.is_on() => LIVE_PERCENT[2],
            0..15 => LIVE_PERCENT[1],
            _ if self.is_sparse() => LIVE_PERCENT[1],
            _ => LIVE_PERCENT[0],
        };
        match self.next_expired_page() {
            Some(page) => Pick::Page(page),
            None => self.pick_victim(percent, sealed_too),
        }
    }

    /// True if far memory holds more than its share of dead bytes.
    fn is_sparse(&self) -> bool {
        let used = self.local.victims.pages * self.shape.page_bytes() as u64;
        used * 100 > self.local.victims.live_bytes * SPARSE_PERCENT
    }

    pub(in crate::shard) fn start_victim(&mut self, page: u32, fate: Fate) {
        self.flusher.moves |= self.flusher.flush_all && fate != Fate::Goes;
        self.pin(page);
        let local = !self.local.pages.pointer(page).is_null();
        self.compactor.victim = Some(Victim {
            page,
            fate,
            kept_units: 0,
            records: self.local.pages.get(page).records,
            next: 0,
            directory: if local {
                Directory::Local
            } else {
                Directory::Unposted
            },
            fault: Fault::None,
            reads_again: false,
            avoided: self.far.one_copy(page, Avoided::NONE),
            tried: Avoided::NONE,
            live_bytes: self.local.pages.get(page).live_bytes,
        });
    }

    fn work_on_victim(&mut self) -> bool {
        let Some(mut victim) = self.compactor.victim.take() else {
            return false;
        };
        let mut busy = self.move_landed(&mut victim);
        match victim.directory {
            Directory::Unposted if victim.fault == Fault::None => {
                busy |= self.read_directory(&mut victim);
            }
            Directory::Unposted | Directory::Posted(_) => {}
            Directory::Local | Directory::Landed(_) => busy |= self.look_on(&mut victim),
        }
        let reading = self.compactor.runs.iter().any(Option::is_some)
            || matches!(victim.directory, Directory::Posted(_));
        if (victim.next == victim.records || victim.fault != Fault::None) && !reading {
            self.finish_victim(victim);
            return true;
        }
        self.compactor.victim = Some(victim);
        self.compactor.stuck = !busy && !self.compactor.is_reading();
        busy
    }

    fn finish_victim(&mut self, mut victim: Victim) {
        let was_read = !matches!(victim.directory, Directory::Local);
        if let Directory::Landed(landing) =
            std::mem::replace(&mut victim.directory, Directory::Unposted)
        {
            self.far.buffers.compaction.free(landing);
        }
        if was_read && !self.is_lost(victim.page) {
            self.check_for_rest(&mut victim);
            if victim.fault == Fault::Damage && self.reads_victim_again(&mut victim) {
                (victim.next, victim.fault) = (0, Fault::None);
                self.compactor.victim = Some(victim);
                return;
            }
        }
        let counters = &self.metrics.counters;
        match victim.fate {
            Fate::Stays => counters.compaction_pages.add(1),
            Fate::StaysIfRead | Fate::Goes => counters.eviction_pages.add(1),
        }
        self.compactor.due = true;
        self.compactor.stuck = false;
        // One whose node took it back while it was read would fail again at once, and for ever.
        let spoilt = victim.fault == Fault::Damage || self.is_lost(victim.page);
        if spoilt {
            self.local.note_damaged(victim.page);
        }
        if victim.fault == Fault::Fabric {
            let silent = self.far.pages.unreadable_node(victim.page);
            match silent.or_else(|| self.far.silent_untried(victim.page, victim.tried)) {
                Some(node) => {
                    self.local
                        .victims
                        .set_aside(&mut self.local.pages, victim.page, node);
                }
                None => self.local.victims.list(&mut self.local.pages, victim.page),
            }
        }
        self.unpin(victim.page);
    }

    /// True if a victim has a copy that was not read since all were to be tried.
    fn has_untried_copy(&self, victim: &Victim) -> bool {
        let mut tried = victim.tried;
        tried.add_rest(victim.avoided);
        self.far.has_other_copy(victim.page, tried)
    }

    /// Something of a victim is not what was written. True if it is read from another copy, or,
    /// once all were tried, from each once more. With several copies, that is as long as it brings
    /// any record: each may have others that are damaged.
    #[cold]
    fn reads_victim_again(&self, victim: &mut Victim) -> bool {
        victim.tried.add_rest(victim.avoided);
        if !self.far.has_other_copy(victim.page, victim.tried) {
            victim.tried = Avoided::NONE;
            let live_bytes = self.local.pages.get(victim.page).live_bytes;
            let before = std::mem::replace(&mut victim.live_bytes, live_bytes);
            if live_bytes < before && self.far.pages.plan().most() > 1 {
                victim.reads_again = false;
            } else if std::mem::replace(&mut victim.reads_again, true) {
                return false;
            }
        }
        victim.avoided = self.far.one_copy(victim.page, victim.tried);
        true
    }

    /// A page whose records were all looked at holds none that is alive, unless its directory left
    /// some out.
    fn check_for_rest(&mut self, victim: &mut Victim) {
        let page = self.local.pages.get(victim.page);
        if victim.fault != Fault::None || page.live_bytes == 0 {
            return;
        }
        if page.gave_up_long && !self.has_slots(victim.page) {
            let rest = page.live_bytes;
            let address = Address::new(self.shape, victim.page, 0);
            self.retire(address, rest);
        } else {
            victim.fault = Fault::Damage;
        }
    }

    fn read_directory(&mut self, victim: &mut Victim) -> bool {
        let entry = self.local.pages.get(victim.page);
        let unit = entry.units;
        let bytes = self.directory_far_bytes(entry.records);
        let Ok(bytes) = u32::try_from(bytes) else {
            return false;
        };
        let Some(landing) = self.far.buffers.compaction.allocate(bytes) else {
            return false;
        };
        let tag = Purpose::Compaction(DIRECTORY);
        let place = (victim.page, unit);
        match self.post_read(tag, place, landing.offset(), bytes, victim.avoided) {
            Posted::Yes => {
                victim.directory = Directory::Posted(landing);
                true
            }
            posted => {
                self.far.buffers.compaction.free(landing);
                if posted == Posted::Down {
                    victim.fault = Fault::Fabric;
                }
                false
            }
        }
    }

    /// Takes the completion of a READ that compaction posted.
    pub(in crate::shard) fn compaction_landed(&mut self, slot: u32, status: Status) {
        let Some(mut victim) = self.compactor.victim.take() else {
            return;
        };
        if slot == DIRECTORY {
            let before = std::mem::replace(&mut victim.directory, Directory::Unposted);
            if let Directory::Posted(landing) = before {
                let bytes = self.directory_far_bytes(victim.records);
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                if status != Status::Success {
                    self.far.buffers.compaction.free(landing);
                    victim.fault = Fault::Fabric;
                } else if self.open_directory(victim.page, landing.offset(), bytes) {
                    victim.directory = Directory::Landed(landing);
                } else {
                    self.far.buffers.compaction.free(landing);
                    victim.fault = Fault::Damage;
                }
            }
        } else if let Some(run) = &mut self.compactor.runs[slot as usize] {
            if status == Status::Success {
                run.landed = true;
                let (start, offset, bytes) = (run.start, run.landing.offset(), run.bytes);
                self.decrypt(victim.page, start, offset, bytes);
            } else {
                victim.fault = Fault::Fabric;
                if let Some(run) = self.compactor.runs[slot as usize].take() {
                    self.far.buffers.compaction.free(run.landing);
                }
            }
        }
        self.compactor.victim = Some(victim);
    }

    fn directory_entry(&self, victim: &Victim, entry: u32) -> DirectoryEntry {
        let Directory::Landed(landing) = &victim.directory else {
            return self.local.entry(victim.page, entry);
        };
        let place = entry as usize * DIRECTORY_ENTRY_BYTES;
        // SAFETY: the directory of `records` entries was read into the landing buffer.
        unsafe {
            let start = self.local.arena.landing_pointer(landing.offset());
            page::entry_at(start.add(place))
        }
    }

    /// The next entry of the directory, if it is one that the page can have: units rise, within the
    /// records.
    ///
    /// Far memory is not to be trusted. Records are found by how far they lie from the first of
    /// their run.
    fn entry_in_order(&self, victim: &Victim, place: u32) -> Option<DirectoryEntry> {
        let entry = self.directory_entry(victim, place);
        let least = match place.checked_sub(1) {
            Some(before) => self.directory_entry(victim, before).unit + 1,
            None => HEADER_UNITS,
        };
        let units = least..self.local.pages.get(victim.page).units;
        units.contains(&entry.unit).then_some(entry)
    }

    /// Prefetches the buckets of some of a victim's records before they are looked up.
    fn prefetch_entries(&self, victim: &Victim, entries: Range<u32>) {
        for entry in entries.start..entries.end.min(victim.records) {
            self.prefetch_burst(self.directory_entry(victim, entry).hash);
        }
    }

    /// Looks at the next records of the victim: moves those that are local, posts READs for the
    /// others.
    fn look_on(&mut self, victim: &mut Victim) -> bool {
        let limit = (victim.next + RECORDS_A_SLICE).min(victim.records);
        let before = victim.next;
        while victim.next < limit && victim.fault == Fault::None {
            let Some(entry) = self.entry_in_order(victim, victim.next) else {
                victim.fault = Fault::Damage;
                break;
            };
            let address = Address::new(self.shape, victim.page, entry.unit);
            let is_done = match self.life_of(&entry, address) {
                EntryState::Dead => true,
                EntryState::Cached(slot) => self.pass_copy(victim, &entry, address, slot),
                EntryState::Dying(node) => {
                    self.free_dying_node(node);
                    true
                }
                EntryState::Direct(living) => match self.local.record_at(address) {
                    Some(record) => self.pass_local(victim, &entry, &living, record),
                    None if !self.is_kept(victim, living.hash) && self.evict_living(&living) => {
                        true
                    }
                    None if self.read_run(victim, &living) => continue,
                    None => false,
                },
            };
            if !is_done {
                break;
            }
            victim.next += 1;
        }
        if victim.next >= limit {
            self.prefetch_entries(victim, victim.next..victim.next + RECORDS_A_SLICE);
        }
        victim.next != before
    }

    /// True if a record of the victim is to be moved.
    fn is_kept(&self, victim: &Victim, hash: IndexHash) -> bool {
        match victim.fate {
            Fate::Stays => true,
            Fate::StaysIfRead => {
                let units = self.local.pages.get(victim.page).units;
                victim.kept_units < units / KEPT_SHARE[1] * KEPT_SHARE[0] && self.stays(hash)
            }
            Fate::Goes => false,
        }
    }

    /// True if a record of the victim is to be moved, once it, or its header, was read.
    fn is_kept_after_read(&self, victim: &Victim, hash: IndexHash) -> bool {
        match victim.fate {
            Fate::Stays => true,
            Fate::StaysIfRead => self.stays(hash),
            Fate::Goes => false,
        }
    }

    /// Notes that a record of the victim was moved.
    fn note_kept(&mut self, victim: &Victim, hash: IndexHash) {
        if victim.fate == Fate::StaysIfRead {
            let is_first = !self.local.pages.get(victim.page).moved;
            self.evictor.note_moved(hash, is_first);
        }
    }

    /// Moves or evicts a record that is local; false while there is no frame for it.
    fn pass_local(
        &mut self,
        victim: &mut Victim,
        entry: &DirectoryEntry,
        living: &Living,
        record: LocalRecord,
    ) -> bool {
        let address = living.address;
        if self.is_past(record.expiry_ms()) {
            self.remove_expired(entry.hash, address);
            return true;
        }
        if !self.is_kept(victim, living.hash) {
            if living.slot.is_some() {
                self.evict_record((entry.hash, record.key()), address, record.header());
                return true;
            }
            if self.evict_around(living) {
                return true;
            }
        }
        let units = record.header().units();
        let Some(moved) = self.move_record(entry, living.class, record.bytes()) else {
            return false;
        };
        self.redirect(living, moved, units);
        victim.kept_units += units;
        self.note_kept(victim, living.hash);
        true
    }

    /// Moves or evicts a record that has a cached copy; false while there is no frame for it.
    fn pass_copy(
        &mut self,
        victim: &mut Victim,
        entry: &DirectoryEntry,
        address: Address,
        slot: Slot,
    ) -> bool {
        let record = self.local.record(self.framed_of(slot.address()));
        let hash = self.key_hasher.hash(record.key());
        if !self.is_kept(victim, hash) && !self.is_past(record.expiry_ms()) {
            self.evict_record((hash, record.key()), slot.address(), record.header());
            return true;
        }
        let units = record.header().units();
        let moved = self.move_home(entry, address, slot);
        if moved {
            victim.kept_units += units;
            self.note_kept(victim, hash);
        }
        moved
    }

    /// Moves the home of a cached copy to the cold tail, from the copy; false while there is no
    /// frame for it.
    fn move_home(&mut self, entry: &DirectoryEntry, address: Address, slot: Slot) -> bool {
        let record = self.local.record(self.framed_of(slot.address()));
        let hash = self.key_hasher.hash(record.key());
        if self.is_past(record.expiry_ms()) {
            self.remove_expired(hash, slot.address());
            return true;
        }
        let entry = DirectoryEntry { hash, ..*entry };
        let Some(home) = self.move_record(&entry, slot.class(), record.bytes()) else {
            return false;
        };
        if !farcore_tuning::mutated!("home-not-moved") {
            self.local.set_home(slot.address(), home);
        }
        self.retire(
            address,
            account_bytes(slot.class(), record.header().units()),
        );
        true
    }

    /// Copies a record to the cold tail; `None` while there is no frame for it.
    fn move_record(
        &mut self,
        entry: &DirectoryEntry,
        class: SizeClass,
        record: &[u8],
    ) -> Option<Address> {
        let units = u32::try_from(record.len() / UNIT_BYTES).ok()?;
        let room = self.reserve(TailKind::Cold, units).ok()?;
        let address = room.address();
        room.copy(record);
        self.local
            .commit(TailKind::Cold, entry.hash, address, class, units);
        if let Some(expiry_ms) = RecordView::parse(record).and_then(|view| view.expiry_ms()) {
            self.note_expiry(address, expiry_ms, units);
        }
        self.metrics.counters.compaction_records_moved.add(1);
        self.metrics
            .counters
            .compaction_bytes_moved
            .add(record.len() as u64);
        Some(address)
    }
}
