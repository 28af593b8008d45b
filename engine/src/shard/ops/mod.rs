//! Puts, compare-and-swaps and deletes; `change` has what depends on what a key
//! holds, `inspect` reads of less than a value, `list` scans, `long` values in pieces,
//! `transaction` what changes several keys, `tree` operations on collections, and `whole`
//! operations on all keys.
//!
//! A change is made in place if the record's page is mutable and the value fits. Otherwise a new
//! record is appended and the slot is redirected; the old record is counted dead in its page. Room
//! is reserved before anything changes, so a refused operation leaves no trace.

pub(in crate::shard) mod change;
pub(in crate::shard) mod expiry;
pub(in crate::shard) mod inspect;
mod journaling;
pub(in crate::shard) mod list;
pub(in crate::shard) mod long;
pub(in crate::shard) mod repair;
pub(in crate::shard) mod restore;
pub(in crate::shard) mod scratch;
pub(in crate::shard) mod transaction;
pub(in crate::shard) mod tree;
mod tree_ahead;
pub(in crate::shard) mod tree_buffers;
pub(in crate::shard) mod tree_dump;
pub(in crate::shard) mod tree_findings;
mod tree_head;
pub(in crate::shard) mod tree_patch;
pub(in crate::shard) mod whole;

use farcore_rdma::Endpoint;

use crate::constants::FRAMES_MIN;
use crate::error::Error;
use crate::index::{Position, Slot};
use crate::log::record::{self, RecordHeader};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::message::operation::{OperationKind, Version};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::local::account_bytes;
use crate::shard::local::open_pages::TailKind;
use crate::shard::local::page_table::Framed;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::{Evidence, Found, Hint, HintOutcome, LocalHint, Step};

impl<E: Endpoint> Shard<E> {
    /// Stores a value; with an expected version, as a compare-and-swap.
    #[inline(always)]
    pub(in crate::shard) fn put(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let (kind, key, value) = (request.kind(), request.key(), request.value());
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        if kind == OperationKind::CompareAndSwap {
            return self.put_anywhere(lane, request, hint, evidence, answers);
        }
        let stored = match self.hinted(request, hint) {
            HintOutcome::Local(local) if local.record.header().has_expiry() => {
                return self.put_anywhere(lane, request, hint, evidence, answers);
            }
            HintOutcome::Local(local) => self.put_over(request.hash, &local, key, value),
            HintOutcome::Absent => self.insert(request.hash, key, value),
            HintOutcome::Unknown => {
                return self.put_anywhere(lane, request, hint, evidence, answers);
            }
        };
        self.answer_put(lane, request, stored, false, answers)
    }

    #[inline(never)]
    fn put_anywhere(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let (kind, key, value) = (request.kind(), request.key(), request.value());
        let (hash, swap) = (request.hash, kind == OperationKind::CompareAndSwap);
        let mut found = match self.find_by_hint(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        if self.has_expired(&found) {
            self.remove_expired_found(request, &found);
            found = Found::Absent;
        }
        if swap {
            let current = match &found {
                Found::Absent => 0,
                Found::Local(local) => self.version_of(local.record.header(), local.slot.address()),
                Found::Confirmed { far, .. } => self.version_of(far.header, far.address),
                Found::Unknown { slot, .. } => return Step::fetch(*slot),
                Found::Lost { damaged } => {
                    return self.fail(lane, request, self.lost_error(*damaged), answers);
                }
            };
            let is_ignored = farcore_tuning::mutated!("swap-of-absent-ignored") && current == 0;
            if current != request.expected() && !is_ignored {
                self.metrics.counters.swaps.add(1);
                self.metrics.counters.swaps_mismatched.add(1);
                answers.answer(lane, request.token, Answer::Mismatch { current });
                return Step::Done;
            }
        }
        let stored = match found {
            Found::Local(local) => self.put_over(hash, &local, key, value),
            Found::Confirmed {
                position,
                slot,
                far,
            } => {
                let stored = self.replace(hash, position, slot, far.header, key, value);
                if stored.is_ok() {
                    self.note_served(&far);
                }
                stored
            }
            Found::Unknown { slot, .. } => return Step::fetch(slot),
            Found::Lost { .. } => self.put_over_lost(hash, evidence.damaged, key, value),
            Found::Absent => self.insert(hash, key, value),
        };
        self.answer_put(lane, request, stored, swap, answers)
    }

    #[inline]
    fn answer_put(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        stored: Result<Version, NoRoom>,
        swap: bool,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let version = match stored {
            Ok(version) => version,
            Err(refusal) => return self.refuse_put(lane, request, refusal, swap, answers),
        };
        self.version = version;
        if swap {
            self.metrics.counters.swaps.add(1);
        } else {
            self.batch_counters.puts += 1;
        }
        answers.answer(lane, request.token, Answer::Stored { version });
        Step::Done
    }

    #[cold]
    fn refuse_put(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        refusal: NoRoom,
        swap: bool,
        answers: &mut impl AnswerSink,
    ) -> Step {
        match refusal {
            NoRoom::Wait => {
                self.background_due = true;
                Step::Blocked
            }
            NoRoom::Never(error) => {
                let counters = &self.metrics.counters;
                let count = if swap {
                    &counters.swaps_failed
                } else {
                    &counters.puts_failed
                };
                count.add(1);
                answers.answer(lane, request.token, Answer::Failed(&error));
                Step::Done
            }
        }
    }

    /// Stores a value over a local record: in place if the record is mutable and long enough.
    #[inline]
    fn put_over(
        &mut self,
        hash: IndexHash,
        local: &LocalHint,
        key: &[u8],
        value: &[u8],
    ) -> Result<Version, NoRoom> {
        let LocalHint {
            position,
            slot,
            framed,
            record,
        } = *local;
        let units = record::units_for(key.len(), value.len()) + self.tag_units;
        let header = record.header();
        let old_units = header.units();
        // A head is replaced, so that its long value or tree ends.
        let is_fixed = !framed.is_mutable() && !farcore_tuning::mutated!("immutable-overwritten");
        if units > old_units || is_fixed || header.is_head() {
            return self.replace(hash, position, slot, header, key, value);
        }
        let version = self.version + 1;
        record.overwrite(version, self.record_flags, value);
        self.note_stored(key, value, version);
        self.batch_counters.puts_in_place += 1;
        let class = SizeClass::for_units(units);
        if class != slot.class() || class.units().is_none() {
            let old = account_bytes(slot.class(), old_units);
            let new = account_bytes(class, units);
            self.local.resize(slot.address(), old, new);
            self.compactor.note_dead(old.saturating_sub(new));
            self.index.replace(position, class, slot.address());
        }
        Ok(version)
    }

    /// Appends a new record for a key whose slot is known, and retires the old one.
    fn replace(
        &mut self,
        hash: IndexHash,
        position: Position,
        slot: Slot,
        old: RecordHeader,
        key: &[u8],
        value: &[u8],
    ) -> Result<Version, NoRoom> {
        let version = self.version + 1;
        let units = record::units_for(key.len(), value.len()) + self.tag_units;
        let class = SizeClass::for_units(units);
        let room = self.reserve(TailKind::Log, units)?;
        let mut flags = self.record_flags | old.loss_flags();
        if farcore_tuning::mutated!("loss-mark-dropped") {
            flags = self.record_flags;
        }
        let address = room.address();
        room.write(version, flags, key, value);
        self.local
            .commit(TailKind::Log, hash, address, class, units);
        self.index.replace(position, class, address);
        self.retire_slot(slot, self.framed_of(slot.address()), old.units());
        self.note_stored(key, value, version);
        Ok(version)
    }

    /// Stores a value for a key that may be lost. A record that cannot be read may have been the
    /// key's: it is given up.
    #[cold]
    fn put_over_lost(
        &mut self,
        hash: IndexHash,
        damaged: &[Address],
        key: &[u8],
        value: &[u8],
    ) -> Result<Version, NoRoom> {
        let units = record::units_for(key.len(), value.len()) + self.tag_units;
        // Reserve first: a refused put changes nothing.
        self.reserve(TailKind::Log, units)?;
        self.give_up_damaged(hash, damaged);
        match self.lost_slot(hash) {
            Some(position) => self.take_over(hash, position, key, value),
            None => self.insert(hash, key, value),
        }
    }

    /// Appends a record for a key that may be lost, and lets it take over the lost slot that stands
    /// for the key. The slot may stand for other keys too; the record's loss mark says so.
    #[cold]
    fn take_over(
        &mut self,
        hash: IndexHash,
        position: Position,
        key: &[u8],
        value: &[u8],
    ) -> Result<Version, NoRoom> {
        let version = self.version + 1;
        let units = record::units_for(key.len(), value.len()) + self.tag_units;
        let class = SizeClass::for_units(units);
        let room = self.reserve(TailKind::Log, units)?;
        let flags = self.record_flags | record::loss_flags(self.lost.mark());
        let address = room.address();
        room.write(version, flags, key, value);
        self.local
            .commit(TailKind::Log, hash, address, class, units);
        let excepts = self.excepts(position);
        self.index.replace(position, class, address);
        self.lost.note_taken_over(hash, excepts);
        self.note_stored(key, value, version);
        Ok(version)
    }

    fn insert(&mut self, hash: IndexHash, key: &[u8], value: &[u8]) -> Result<Version, NoRoom> {
        let version = self.version + 1;
        let units = record::units_for(key.len(), value.len()) + self.tag_units;
        let class = SizeClass::for_units(units);
        let room = self.reserve(TailKind::Log, units)?;
        let address = room.address();
        let arena = &mut self.local.arena;
        if self.index.insert(hash, class, address, arena).is_err()
            && !self.insert_in_place_of_others(hash, class, address)
        {
            return Err(self.no_segment(hash));
        }
        if !farcore_tuning::mutated!("insertion-not-noted") {
            self.seen.inserted.note(hash);
        }
        room.write(version, self.record_flags, key, value);
        self.local
            .commit(TailKind::Log, hash, address, class, units);
        self.note_stored(key, value, version);
        Ok(version)
    }

    /// Retires the record of a slot, which has a frame.
    #[inline]
    pub(in crate::shard) fn retire_slot(&mut self, slot: Slot, framed: Framed, units: u32) {
        let address = slot.address();
        let bytes = account_bytes(slot.class(), units);
        if !framed.is_mutable() {
            return self.retire_immutable(address, framed, bytes);
        }
        // In a mutable page: no cached copy, and no victim.
        if self.local.retire_mutable(address.page(self.shape), bytes) {
            self.free_if_dead(address.page(self.shape));
        }
        self.compactor.note_dead(bytes);
        self.note_dead(address);
    }

    /// Retires an immutable record that has a frame. If it is a cached copy, its home dies with it.
    #[inline(never)]
    fn retire_immutable(&mut self, address: Address, framed: Framed, bytes: u64) {
        if framed.is_cached() {
            let home = self.local.home_of(address);
            self.retire(home, bytes);
        }
        self.retire(address, bytes);
    }

    #[inline]
    pub(in crate::shard) fn delete(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        match self.hinted(request, hint) {
            HintOutcome::Local(local) => {
                let found = Found::Local(local);
                if local.record.header().has_expiry() && self.has_expired(&found) {
                    return self.delete_expired(lane, request, &found, answers);
                }
                self.remove(lane, request, local.place(), answers)
            }
            HintOutcome::Absent => self.delete_absent(lane, request, answers),
            HintOutcome::Unknown => self.delete_anywhere(lane, request, hint, evidence, answers),
        }
    }

    #[inline(never)]
    fn delete_anywhere(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let found = match self.find_or_step(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        if self.has_expired(&found) {
            return self.delete_expired(lane, request, &found, answers);
        }
        match found {
            Found::Absent => self.delete_absent(lane, request, answers),
            Found::Unknown { slot, .. } => Step::fetch(slot),
            Found::Lost { .. } => self.delete_lost(lane, request, evidence.damaged, answers),
            Found::Local(local) => self.remove(lane, request, local.place(), answers),
            Found::Confirmed {
                position,
                slot,
                far,
            } => {
                self.note_served(&far);
                let framed = self.framed_of(slot.address());
                let place = (position, slot, framed, far.header);
                self.remove(lane, request, place, answers)
            }
        }
    }

    /// Deletes a key whose record has expired: it is absent.
    #[cold]
    fn delete_expired(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        found: &Found<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        self.remove_expired_found(request, found);
        self.note_deleted(request.key());
        self.delete_absent(lane, request, answers)
    }

    fn delete_absent(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        self.note_absent(request.key());
        self.batch_counters.deletes += 1;
        self.batch_counters.deletes_absent += 1;
        answers.answer(lane, request.token, Answer::Absent);
        Step::Done
    }

    /// Deletes a key whose record is lost or damaged. The answer is that of a key that existed,
    /// which is almost sure: the slot is of the same tag and home bucket.
    #[cold]
    pub(in crate::shard) fn delete_lost(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        damaged: &[Address],
        answers: &mut impl AnswerSink,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        self.end_lost((request.hash, request.key()), damaged);
        self.batch_counters.deletes += 1;
        #[cfg(feature = "simulation")]
        farcore_tuning::simulated::note_version(request.token, self.version);
        answers.answer(lane, request.token, Answer::Deleted);
        Step::Done
    }

    /// Removes a key whose record is lost or damaged, as a delete of a key that has one does.
    fn end_lost(&mut self, (hash, key): (IndexHash, &[u8]), damaged: &[Address]) {
        self.version += 1;
        self.note_deleted(key);
        self.give_up_damaged(hash, damaged);
        self.except_from_lost(hash);
        self.note_removed(hash);
        self.absences.note(hash, self.version);
    }

    #[inline]
    fn remove(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        place: (Position, Slot, Framed, RecordHeader),
        answers: &mut impl AnswerSink,
    ) -> Step {
        self.remove_record(request.hash, place);
        self.note_deleted(request.key());
        self.batch_counters.deletes += 1;
        #[cfg(feature = "simulation")]
        farcore_tuning::simulated::note_version(request.token, self.version);
        answers.answer(lane, request.token, Answer::Deleted);
        Step::Done
    }

    /// Removes a key's slot and retires its record.
    #[inline]
    pub(in crate::shard) fn remove_record(
        &mut self,
        hash: IndexHash,
        (position, slot, framed, header): (Position, Slot, Framed, RecordHeader),
    ) {
        // A delete draws a version too, so that versions order all changes of a shard.
        self.version += u64::from(!farcore_tuning::mutated!("delete-draws-no-version"));
        self.absences.note(hash, header.version());
        if self.lost.is_any() {
            self.remove_beside_lost(hash, position, header);
        } else {
            self.index.remove(hash, position);
        }
        self.retire_slot(slot, framed, header.units());
    }

    /// True if the index cannot grow for a slot of this hash, whatever memory becomes free.
    pub(in crate::shard) fn is_index_at_limit(&self, hash: IndexHash) -> bool {
        self.index.is_at_its_limit(hash) || self.local.arena.page_frames() <= FRAMES_MIN
    }

    /// Why the index could not grow.
    fn no_segment(&mut self, hash: IndexHash) -> NoRoom {
        if self.is_index_at_limit(hash) {
            return NoRoom::Never(Error::IndexFull {
                shard: self.id,
                keys: self.index.len() as u64,
            });
        }
        self.no_frame()
    }
}
