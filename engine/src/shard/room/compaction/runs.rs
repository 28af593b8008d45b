//! The READs of compaction: runs of neighbouring records, and the records that have arrived.

#![allow(unsafe_code)] // reads records in landing buffers

use farcore_rdma::Endpoint;

use super::living::{EntryState, Living};
use super::{GAP_UNITS, RUN_UNITS};
use crate::constants::UNIT;
use crate::log::Address;
use crate::log::page::DirectoryEntry;
use crate::log::record::RecordView;
use crate::shard::Shard;
use crate::shard::far::Posted;
use crate::shard::far::Purpose;
use crate::shard::room::compactor::{Fault, READS_MAX, Run, Victim};

impl<E: Endpoint> Shard<E> {
    /// Posts one READ for the record at `victim.next` and its living neighbours, and steps over
    /// them.
    pub(super) fn read_run(&mut self, victim: &mut Victim, living: &Living) -> bool {
        let Some(slot) = self.compactor.runs.iter().position(Option::is_none) else {
            return false;
        };
        let first = victim.next;
        let start = living.address.unit(self.shape);
        let (end, last) = self.run_end(victim, living);
        if end <= start {
            victim.fault = Fault::Damage;
            return false;
        }
        let bytes = (end - start) * UNIT;
        let Some(landing) = self.far.buffers.compaction.allocate(bytes) else {
            return false;
        };
        let tag = Purpose::Compaction(u32::try_from(slot).unwrap_or(u32::MAX));
        let place = (victim.page, start);
        match self.post_read(tag, place, landing.offset(), bytes, victim.avoided) {
            Posted::Yes => {
                let run = Run {
                    landing,
                    landed: false,
                    start,
                    bytes,
                    next: first,
                    last,
                    proven: false,
                };
                self.compactor.runs[slot] = Some(run);
                victim.next = last;
                victim.kept_units += end - start;
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

    /// Where a run ends that begins with the victim's next record: its unit, and the number of the
    /// first record that is not part of it. A run goes on over short gaps and up to a length.
    fn run_end(&self, victim: &Victim, living: &Living) -> (u32, u32) {
        let used = self.local.pages.get(victim.page).units;
        let first = victim.next;
        let start = living.address.unit(self.shape);
        // A record too long for a class ends where the next one of the page starts, if the
        // directory is right about that.
        let longest = self.local.pages.get(victim.page).longest_units;
        let length = living.class.units().unwrap_or_else(|| {
            if victim.reads_again {
                return longest;
            }
            let after = first + 1;
            let end = if after == victim.records {
                Some(used)
            } else {
                self.entry_in_order(victim, after).map(|entry| entry.unit)
            };
            // Nothing: no record of the page was as long, or the directory is not in order.
            let length = end.map(|end| end.saturating_sub(start));
            length.filter(|&length| length <= longest).unwrap_or(0)
        });
        let mut end = (start + length).min(used);
        let mut last = first + 1;
        while last < victim.records {
            let Some(entry) = self.entry_in_order(victim, last) else {
                break;
            };
            if entry.unit > end + GAP_UNITS {
                break;
            }
            let address = Address::new(self.shape, victim.page, entry.unit);
            if let EntryState::Direct(living) = self.life_of(&entry, address) {
                let Some(units) = living.class.units() else {
                    break;
                };
                // It is removed without being read.
                if !self.lost.is_any() && !self.is_kept(victim, living.hash) {
                    break;
                }
                let reach = (entry.unit + units).min(used).max(end);
                if reach - start > RUN_UNITS {
                    break;
                }
                end = reach;
            } else {
                break;
            }
            last += 1;
        }
        (end, last)
    }

    /// Moves the records of READs that have arrived.
    pub(super) fn move_landed(&mut self, victim: &mut Victim) -> bool {
        let mut busy = false;
        for place in 0..READS_MAX {
            let Some(mut run) = self.compactor.runs[place].take_if(|run| run.landed) else {
                continue;
            };
            self.prefetch_entries(victim, run.next..run.last);
            while run.next < run.last {
                let entry = self.directory_entry(victim, run.next);
                let address = Address::new(self.shape, victim.page, entry.unit);
                let is_done = match self.life_of(&entry, address) {
                    EntryState::Dead => true,
                    EntryState::Cached(slot) => self.pass_copy(victim, &entry, address, slot),
                    EntryState::Dying(node) => {
                        self.free_dying_node(node);
                        true
                    }
                    EntryState::Direct(living) => {
                        self.pass_landed(victim, &mut run, &entry, &living)
                    }
                };
                if !is_done {
                    break;
                }
                run.next += 1;
                run.proven = false;
                busy = true;
            }
            if run.next < run.last {
                self.compactor.runs[place] = Some(run);
                // The others need a frame of the same kind.
                break;
            }
            self.far.buffers.compaction.free(run.landing);
        }
        busy
    }

    /// Moves or removes a record that has arrived; false while there is no frame for it.
    fn pass_landed(
        &mut self,
        victim: &mut Victim,
        run: &mut Run,
        entry: &DirectoryEntry,
        living: &Living,
    ) -> bool {
        let skip = entry.unit.saturating_sub(run.start) * UNIT;
        let (place, buffer) = ((victim.page, entry.unit), (run.landing.offset(), run.bytes));
        run.proven = self.prove_in_run(place, buffer, skip, run.proven);
        // SAFETY: the READ has completed; the buffer is freed when the run is done.
        let read = unsafe { self.landed(run.landing.offset(), run.bytes) };
        let view = read.get(skip as usize..).and_then(RecordView::parse);
        let view = view.filter(|view| run.proven && self.is_of_living(view.key(), living));
        let Some(view) = view else {
            if victim.reads_again && !self.has_untried_copy(victim) {
                self.give_up_living(living);
                // Of the next one, another copy may be good.
                victim.reads_again = self.far.pages.plan().most() == 1;
            } else {
                victim.fault = Fault::Damage;
            }
            return true;
        };
        // What the directory says of it is not handed on.
        let hash = match living.node {
            Some(node) => node.as_hash(),
            None => self.key_hasher.hash(view.key()),
        };
        if self.is_past(view.expiry_ms())
            && let Some((_, slot)) = living.slot
        {
            self.remove_expired_slot((hash, view.key()), slot, view.header());
            return true;
        }
        let kept_by = living.slot.map_or(living.hash, |_| hash);
        if !self.is_kept_after_read(victim, kept_by) {
            if living.slot.is_some() {
                self.evict_record((hash, view.key()), living.address, view.header());
                return true;
            }
            if self.evict_around(living) {
                return true;
            }
        }
        let entry = DirectoryEntry { hash, ..*entry };
        let Some(moved) = self.move_record(&entry, living.class, view.bytes()) else {
            return false;
        };
        self.redirect(living, moved, view.units());
        self.note_kept(victim, kept_by);
        true
    }
}
