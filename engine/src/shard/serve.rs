//! Serving requests: find the record, change or answer it, or say what must be fetched first.

use std::mem::MaybeUninit;

use farcore_rdma::Endpoint;
use farcore_tuning::COUNTED;

use super::Shard;
use super::find::{Evidence, Found, Hint, Hinted, Inserted, Local, Seen};
use super::pages::Framed;
use super::request::{Answers, LaneId, Request};
use super::room::NoRoom;
use super::stream::ChunkId;
use super::tail::TailKind;
use super::wait::Source;
use crate::error::Error;
use crate::index::{Position, Slot};
use crate::log::record;
use crate::log::{Address, SizeClass};
use crate::operation::{Answer, Kind, Version};
use crate::routing::IndexHash;

/// Requests that are looked ahead of the one that is served. Source: measured; with 8 deletes are slower, and 16 are no better.
const LOOK_AHEAD: usize = 12;

/// Places for what was found so, in turn.
const HINTS: usize = 16;

const _: () = assert!(LOOK_AHEAD < HINTS);

/// As many are looked at once more whose first two buckets did not tell.
const LOOK_FURTHER: usize = LOOK_AHEAD / 2;

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Answered.
    Done,
    /// Nothing was changed; it must be offered again later.
    Blocked,
    /// The far record at this address must be read first.
    Fetch { address: Address, class: SizeClass },
    /// A chunk that is on its way holds the far record.
    Await { address: Address, chunk: ChunkId },
}

impl Step {
    /// The record of a slot must be read first.
    fn fetch(slot: Slot) -> Self {
        Self::Fetch {
            address: slot.address(),
            class: slot.class(),
        }
    }
}

impl<E: Endpoint> Shard<E> {
    /// Serves requests of one lane in order; their buckets were asked for. A core offers one batch at a time; more are served as
    /// several. Returns how many were consumed (answered or parked). Fewer than given means back-pressure: the rest is to be offered
    /// again later. All answers that come of it are this lane's.
    pub(crate) fn serve(
        &mut self,
        lane: LaneId,
        requests: &[Request<'_>],
        answers: &mut impl Answers,
    ) -> usize {
        let mut consumed = 0;
        let mut hints = [const { MaybeUninit::uninit() }; HINTS];
        for batch in requests.chunks(self.knobs.batch) {
            let mut probes = 0;
            self.seen = Seen {
                inserted: Inserted::default(),
                moves: self.pages.moves(),
            };
            for (request, hint) in batch.iter().zip(&mut hints).take(LOOK_AHEAD) {
                hint.write(self.look_ahead::<true>(request, &mut probes));
            }
            for (request, hint) in batch.iter().zip(&mut hints).take(LOOK_FURTHER) {
                // SAFETY: it was written just now.
                self.look_further(request, unsafe { hint.assume_init_mut() }, &mut probes);
            }
            let mut served = 0;
            for (place, request) in batch.iter().enumerate() {
                if let Some(coming) = batch.get(place + LOOK_AHEAD) {
                    hints[(place + LOOK_AHEAD) % HINTS]
                        .write(self.look_ahead::<false>(coming, &mut probes));
                }
                if let Some(coming) = batch.get(place + LOOK_FURTHER) {
                    let hint = &mut hints[(place + LOOK_FURTHER) % HINTS];
                    // SAFETY: it was written `LOOK_AHEAD` requests ahead, which is before this.
                    self.look_further(coming, unsafe { hint.assume_init_mut() }, &mut probes);
                }
                // SAFETY: it was written above, now or `LOOK_AHEAD` requests ago.
                let hint = unsafe { hints[place % HINTS].assume_init_ref() };
                if !self.serve_one(lane, request, hint, answers) {
                    self.figures.counters.back_pressure.add(1);
                    break;
                }
                served += 1;
            }
            self.figures.counters.index_probes.add(probes);
            self.tell();
            self.note_batch(&batch[..served]);
            consumed += served;
            if served < batch.len() {
                break;
            }
        }
        consumed
    }

    /// Tells what requests came to since the last time.
    pub(super) fn tell(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        self.cache.note_hits(tally.cache_hits, tally.local_hits);
        tally.tell(&self.figures.counters);
    }

    /// Counts a batch that was served, and the key of one request in so many.
    #[inline]
    fn note_batch(&mut self, batch: &[Request<'_>]) {
        if !COUNTED || batch.is_empty() {
            return;
        }
        self.figures.batches.record(batch.len() as u64);
        if let Some(place) = self.hot_keys.sample(batch.len()) {
            let request = &batch[place];
            self.hot_keys.note(request.hash.0, request.key());
        }
    }

    /// Asks for the index buckets of a request that will be served soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: IndexHash) {
        self.index.prefetch(hash);
    }

    /// The same for one of many requests at once.
    #[inline]
    pub(crate) fn prefetch_burst(&self, hash: IndexHash) {
        self.index.prefetch_burst(hash);
    }

    /// The same if `own`, which is no branch.
    #[inline]
    pub(crate) fn prefetch_if(&self, own: bool, hash: IndexHash) {
        self.index.prefetch_if(own, hash);
    }

    #[inline]
    fn serve_one(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: &Hint,
        answers: &mut impl Answers,
    ) -> bool {
        let lane = lane.of(request.origin);
        if let Some(flight) = self.flights.of_hash(request.hash) {
            return self.park_behind(flight, lane, request);
        }
        match self.execute(lane, request, hint, &Evidence::NONE, answers) {
            Step::Done => true,
            Step::Blocked => false,
            Step::Fetch { address, class } => {
                self.launch(lane, request, address, Source::Read(class))
            }
            Step::Await { address, chunk } => {
                self.launch(lane, request, address, Source::Chunk(chunk))
            }
        }
    }

    /// Runs an operation as far as it goes.
    #[inline]
    pub(super) fn execute(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        match request.kind() {
            Kind::Get => self.get(lane, request, hint, evidence, answers),
            Kind::Put | Kind::Swap => self.put(lane, request, hint, evidence, answers),
            Kind::Delete => self.delete(lane, request, hint, evidence, answers),
        }
    }

    #[inline(always)]
    fn get(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        match self.hinted(request, hint) {
            Hinted::Local(local) => self.get_local(lane, request, &local, answers),
            Hinted::Absent => self.get_absent(lane, request, answers),
            Hinted::Unknown => self.get_anywhere(lane, request, hint, evidence, answers),
        }
    }

    #[inline(always)]
    fn get_local(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        local: &Local,
        answers: &mut impl Answers,
    ) -> Step {
        let answer = Answer::Value {
            version: local.record.header().version(),
            value: local.record.value(),
        };
        if !answers.try_answer(lane, request.token, answer) {
            return Step::Blocked;
        }
        if local.framed.is_cached() {
            local.record.mark_hot();
            self.tally.cache_hits += 1;
        } else {
            self.tally.local_hits += 1;
        }
        self.tally.gets += 1;
        Step::Done
    }

    #[inline(always)]
    fn get_absent(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        if !answers.try_answer(lane, request.token, Answer::Absent) {
            return Step::Blocked;
        }
        self.tally.gets += 1;
        self.tally.gets_absent += 1;
        Step::Done
    }

    #[inline(never)]
    fn get_anywhere(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        let found = match self.find_or_step(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        let (position, slot, far) = match found {
            Found::Local(local) => return self.get_local(lane, request, &local, answers),
            Found::Absent => return self.get_absent(lane, request, answers),
            Found::Unknown { slot, .. } => return Step::fetch(slot),
            Found::Confirmed {
                position,
                slot,
                far,
            } => (position, slot, far),
        };
        let Some(bytes) = far.record else {
            return Step::fetch(slot);
        };
        let Some(view) = record::RecordView::parse(bytes) else {
            return Step::Blocked;
        };
        let answer = Answer::Value {
            version: view.version(),
            value: view.value(),
        };
        if !answers.try_answer(lane, request.token, answer) {
            return Step::Blocked;
        }
        self.tally.gets += 1;
        self.figures.counters.far_hits.add(1);
        self.note_served(&far);
        if evidence
            .confirmed
            .is_some_and(|known| known.record.is_some())
        {
            self.keep_copy(request.hash, position, slot, bytes);
        }
        Step::Done
    }

    /// Stores a value; as a compare-and-swap if a version is expected.
    #[inline]
    fn put(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        let (kind, key, value) = (request.kind(), request.key(), request.value());
        if !answers.has_room(lane, 0) {
            return Step::Blocked;
        }
        if kind == Kind::Swap {
            return self.put_anywhere(lane, request, hint, evidence, answers);
        }
        let stored = match self.hinted(request, hint) {
            Hinted::Local(local) => self.put_over(request.hash, &local, key, value),
            Hinted::Absent => self.insert(request.hash, key, value),
            Hinted::Unknown => return self.put_anywhere(lane, request, hint, evidence, answers),
        };
        self.answer_put(lane, request, stored, false, answers)
    }

    #[inline(never)]
    fn put_anywhere(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        let (kind, key, value) = (request.kind(), request.key(), request.value());
        let (hash, swap) = (request.hash, kind == Kind::Swap);
        let found = match self.find_or_step(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        if swap {
            let current = match &found {
                Found::Absent => 0,
                Found::Local(local) => local.record.header().version(),
                Found::Confirmed { far, .. } => far.header.version(),
                Found::Unknown { slot, .. } => return Step::fetch(*slot),
            };
            if current != request.expected() {
                self.figures.counters.swaps.add(1);
                self.figures.counters.swaps_mismatched.add(1);
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
                let stored = self.replace(hash, position, slot, far.header.units(), key, value);
                if stored.is_ok() {
                    self.note_served(&far);
                }
                stored
            }
            Found::Unknown { slot, .. } if !self.is_lost(slot.address().page(self.shape)) => {
                return Step::fetch(slot);
            }
            // Nobody can tell any more whose record that was; the new one is found before it.
            Found::Absent | Found::Unknown { .. } => self.insert(hash, key, value),
        };
        self.answer_put(lane, request, stored, swap, answers)
    }

    #[inline]
    fn answer_put(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        stored: Result<Version, NoRoom>,
        swap: bool,
        answers: &mut impl Answers,
    ) -> Step {
        let version = match stored {
            Ok(version) => version,
            Err(refusal) => return self.refuse_put(lane, request, refusal, swap, answers),
        };
        self.version = version;
        if swap {
            self.figures.counters.swaps.add(1);
        } else {
            self.tally.puts += 1;
        }
        answers.answer(lane, request.token, Answer::Stored { version });
        Step::Done
    }

    #[cold]
    fn refuse_put(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        refusal: NoRoom,
        swap: bool,
        answers: &mut impl Answers,
    ) -> Step {
        match refusal {
            NoRoom::Wait => {
                self.stirred = true;
                Step::Blocked
            }
            NoRoom::Never(error) => {
                let counters = &self.figures.counters;
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

    /// Stores a value over a local record: in place where that may be changed and is long enough.
    #[inline]
    fn put_over(
        &mut self,
        hash: IndexHash,
        local: &Local,
        key: &[u8],
        value: &[u8],
    ) -> Result<Version, NoRoom> {
        let Local {
            position,
            slot,
            framed,
            record,
        } = *local;
        let units = record::units_for(key.len(), value.len());
        let old_units = record.header().units();
        if units > old_units || !framed.is_mutable() {
            return self.replace(hash, position, slot, old_units, key, value);
        }
        let version = self.version + 1;
        record.overwrite(version, value);
        self.tally.puts_in_place += 1;
        let class = SizeClass::for_units(units);
        if class != slot.class() || class.units().is_none() {
            let old = Self::account_bytes(slot.class(), old_units);
            let new = Self::account_bytes(class, units);
            let entry = self.pages.get_mut(slot.address().page(self.shape));
            entry.live_bytes = entry.live_bytes - old + new;
            self.index.replace(position, class, slot.address());
        }
        Ok(version)
    }

    /// Appends a new record for a key whose slot is known, and lets the old record die.
    fn replace(
        &mut self,
        hash: IndexHash,
        position: Position,
        slot: Slot,
        old_units: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<Version, NoRoom> {
        let version = self.version + 1;
        let units = record::units_for(key.len(), value.len());
        let class = SizeClass::for_units(units);
        let (address, pointer) = self.reserve(TailKind::Log, units)?;
        // SAFETY: `reserve` made room for `units` at `pointer`.
        unsafe { record::write_at(pointer, version, 0, key, value) };
        self.commit(TailKind::Log, hash, address, class, units);
        self.index.replace(position, class, address);
        self.retire_slot(slot, self.framed_of(slot.address()), old_units);
        Ok(version)
    }

    fn insert(&mut self, hash: IndexHash, key: &[u8], value: &[u8]) -> Result<Version, NoRoom> {
        let version = self.version + 1;
        let units = record::units_for(key.len(), value.len());
        let class = SizeClass::for_units(units);
        let (address, pointer) = self.reserve(TailKind::Log, units)?;
        if self
            .index
            .insert(hash, class, address, &mut self.arena)
            .is_err()
        {
            return Err(self.no_segment(hash));
        }
        self.seen.inserted.note(hash);
        // SAFETY: `reserve` made room for `units` at `pointer`.
        unsafe { record::write_at(pointer, version, 0, key, value) };
        self.commit(TailKind::Log, hash, address, class, units);
        Ok(version)
    }

    /// Counts the record of a slot, which is there, dead.
    #[inline]
    fn retire_slot(&mut self, slot: Slot, framed: Framed, units: u32) {
        let address = slot.address();
        let bytes = Self::account_bytes(slot.class(), units);
        if !framed.is_mutable() {
            return self.retire_immutable(address, framed, bytes);
        }
        // No copy, and no victim.
        if self.pages.lose(address.page(self.shape), bytes) {
            self.free_if_dead(address.page(self.shape));
        }
        self.compactor.note_dead(bytes);
    }

    /// The same where the record may not be changed: its home dies with it if it is a cached copy.
    #[inline(never)]
    fn retire_immutable(&mut self, address: Address, framed: Framed, bytes: u64) {
        if framed.is_cached() {
            let home = self.home_of(address);
            self.retire(home, bytes);
        }
        self.retire(address, bytes);
    }

    #[inline]
    fn delete(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::Blocked;
        }
        match self.hinted(request, hint) {
            Hinted::Local(local) => self.remove(lane, request, local.place(), answers),
            Hinted::Absent => self.delete_absent(lane, request, answers),
            Hinted::Unknown => self.delete_anywhere(lane, request, hint, evidence, answers),
        }
    }

    #[inline(never)]
    fn delete_anywhere(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        let found = match self.find_or_step(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        match found {
            Found::Absent => self.delete_absent(lane, request, answers),
            Found::Unknown { slot, .. } => Step::fetch(slot),
            Found::Local(local) => self.remove(lane, request, local.place(), answers),
            Found::Confirmed {
                position,
                slot,
                far,
            } => {
                self.note_served(&far);
                let framed = self.framed_of(slot.address());
                let place = (position, slot, framed, far.header.units());
                self.remove(lane, request, place, answers)
            }
        }
    }

    fn delete_absent(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        self.tally.deletes += 1;
        self.tally.deletes_absent += 1;
        answers.answer(lane, request.token, Answer::Absent);
        Step::Done
    }

    #[inline]
    fn remove(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        (position, slot, framed, units): (Position, Slot, Framed, u32),
        answers: &mut impl Answers,
    ) -> Step {
        self.index.remove(request.hash, position);
        self.retire_slot(slot, framed, units);
        self.tally.deletes += 1;
        answers.answer(lane, request.token, Answer::Deleted);
        Step::Done
    }

    /// Why the index could not grow.
    fn no_segment(&mut self, hash: IndexHash) -> NoRoom {
        if self.index.is_at_its_limit(hash) || self.arena.page_frames() <= super::FRAMES_MIN {
            return NoRoom::Never(Error::IndexFull {
                shard: self.id,
                keys: self.index.len() as u64,
            });
        }
        self.no_frame()
    }
}
