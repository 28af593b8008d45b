//! Serving requests: find the record, change or answer it, or say what must be fetched first.

use std::mem::MaybeUninit;

use farcore_rdma::Endpoint;
use farcore_tuning::COUNTED;

use super::Shard;
use super::find::{Evidence, Found, Hint};
use super::pages::PageKind;
use super::request::{Answers, LaneId, Request};
use super::room::NoRoom;
use super::stream::ChunkId;
use super::tail::TailKind;
use super::wait::Source;
use crate::constants::BATCH_MAX;
use crate::error::Error;
use crate::index::{Position, Slot};
use crate::log::record;
use crate::log::{Address, SizeClass};
use crate::operation::{Answer, Operation, Version};
use crate::routing::IndexHash;

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

impl<E: Endpoint> Shard<E> {
    /// Serves requests of one lane in order, for which [`Shard::prefetch`] may have been called already; returns how many were consumed (answered or parked). Fewer than given
    /// means back-pressure: the rest is to be offered again later.
    pub(crate) fn serve(
        &mut self,
        lane: LaneId,
        requests: &[Request<'_>],
        prefetched: bool,
        answers: &mut impl Answers,
    ) -> usize {
        let mut consumed = 0;
        let mut hints = [const { MaybeUninit::uninit() }; BATCH_MAX];
        for batch in requests.chunks(self.knobs.batch) {
            let insertions = self.index.insertions();
            let overlapped = batch.len() > 1;
            if overlapped {
                if !prefetched {
                    for request in batch {
                        self.index.prefetch(request.hash);
                    }
                }
                let mut probes = 0;
                for (request, hint) in batch.iter().zip(&mut hints) {
                    hint.write(self.look_ahead(request.hash, &mut probes));
                }
                self.figures.counters.index_probes.add(probes);
            }
            let mut served = 0;
            for (request, hint) in batch.iter().zip(&hints) {
                // An insertion since then may have been of this key, or have moved its slot.
                let hint = if overlapped && self.index.insertions() == insertions {
                    // SAFETY: each request of this batch had its hint written above.
                    unsafe { hint.assume_init() }
                } else {
                    Hint::None
                };
                if !self.serve_one(lane, request, hint, answers) {
                    self.figures.counters.back_pressure.add(1);
                    break;
                }
                served += 1;
            }
            self.note_batch(&batch[..served]);
            consumed += served;
            if served < batch.len() {
                break;
            }
        }
        consumed
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
            self.hot_keys.note(request.hash.0, request.operation.key());
        }
    }

    /// Asks for the index bucket of a request that will be served soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: IndexHash) {
        self.index.prefetch(hash);
    }

    #[inline]
    fn serve_one(
        &mut self,
        lane: LaneId,
        request: &Request<'_>,
        hint: Hint,
        answers: &mut impl Answers,
    ) -> bool {
        if let Some(flight) = self.flights.of_hash(request.hash) {
            return self.park_behind(flight, lane, request);
        }
        match self.execute(
            lane,
            request.token,
            request.hash,
            &request.operation,
            Evidence {
                hint,
                ..Evidence::default()
            },
            answers,
        ) {
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
        token: u64,
        hash: IndexHash,
        operation: &Operation<'_>,
        evidence: Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        match *operation {
            Operation::Get { key } => self.get(lane, token, hash, key, evidence, answers),
            Operation::Put { key, value } => {
                self.put(lane, token, hash, key, value, None, evidence, answers)
            }
            Operation::CompareAndSwap {
                key,
                expected,
                value,
            } => self.put(
                lane,
                token,
                hash,
                key,
                value,
                Some(expected),
                evidence,
                answers,
            ),
            Operation::Delete { key } => self.delete(lane, token, hash, key, evidence, answers),
        }
    }

    #[inline]
    fn get(
        &mut self,
        lane: LaneId,
        token: u64,
        hash: IndexHash,
        key: &[u8],
        evidence: Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        let found = match self.find_or_step(hash, key, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        match found {
            Found::Local { slot, record, .. } => {
                let header = record.header();
                if !answers.has_room(lane, header.value_bytes() as usize) {
                    return Step::Blocked;
                }
                let page = slot.address().page(self.shape);
                if self.pages.get(page).kind == PageKind::Cache {
                    record.mark_hot();
                    self.cache.note_hit(true);
                    self.figures.counters.cache_hits.add(1);
                } else {
                    self.cache.note_hit(false);
                    self.figures.counters.local_hits.add(1);
                }
                self.figures.counters.gets.add(1);
                answers.answer(
                    lane,
                    token,
                    Answer::Value {
                        version: header.version(),
                        value: record.value(),
                    },
                );
            }
            Found::Confirmed {
                position,
                slot,
                far,
            } => {
                let Some(bytes) = far.record else {
                    return Step::Fetch {
                        address: far.address,
                        class: slot.class(),
                    };
                };
                let Some(view) = record::RecordView::parse(bytes) else {
                    return Step::Blocked;
                };
                if !answers.has_room(lane, view.value().len()) {
                    return Step::Blocked;
                }
                self.figures.counters.gets.add(1);
                self.figures.counters.far_hits.add(1);
                self.note_served(&far);
                answers.answer(
                    lane,
                    token,
                    Answer::Value {
                        version: view.version(),
                        value: view.value(),
                    },
                );
                if evidence
                    .confirmed
                    .is_some_and(|known| known.record.is_some())
                {
                    self.keep_copy(hash, position, slot, bytes);
                }
            }
            Found::Unknown { slot } => {
                return Step::Fetch {
                    address: slot.address(),
                    class: slot.class(),
                };
            }
            Found::Absent => {
                if !answers.has_room(lane, 0) {
                    return Step::Blocked;
                }
                self.figures.counters.gets.add(1);
                self.figures.counters.gets_absent.add(1);
                answers.answer(lane, token, Answer::Absent);
            }
        }
        Step::Done
    }

    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn put(
        &mut self,
        lane: LaneId,
        token: u64,
        hash: IndexHash,
        key: &[u8],
        value: &[u8],
        expected: Option<Version>,
        evidence: Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::Blocked;
        }
        let found = match self.find_or_step(hash, key, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        if let Some(expected) = expected {
            let current = match &found {
                Found::Absent => 0,
                Found::Local { record, .. } => record.header().version(),
                Found::Confirmed { far, .. } => far.header.version(),
                Found::Unknown { slot } => {
                    return Step::Fetch {
                        address: slot.address(),
                        class: slot.class(),
                    };
                }
            };
            if current != expected {
                self.figures.counters.swaps.add(1);
                self.figures.counters.swaps_mismatched.add(1);
                answers.answer(lane, token, Answer::Mismatch { current });
                return Step::Done;
            }
        }
        let units = record::units_for(key.len(), value.len());
        let class = SizeClass::for_units(units);
        let version = self.version + 1;
        let read = match &found {
            Found::Confirmed { far, .. } => Some(*far),
            _ => None,
        };
        let stored = match found {
            Found::Local {
                position,
                slot,
                record,
            } => {
                let old_units = record.header().units();
                let page = slot.address().page(self.shape);
                if self.pages.get(page).is_mutable() && units <= old_units {
                    record.overwrite(version, value);
                    self.figures.counters.puts_in_place.add(1);
                    if class != slot.class() || class.units().is_none() {
                        let old = Self::account_bytes(slot.class(), old_units);
                        let new = Self::account_bytes(class, units);
                        let entry = self.pages.get_mut(page);
                        entry.live_bytes = entry.live_bytes - old + new;
                        self.index.replace(position, class, slot.address());
                    }
                    Ok(())
                } else {
                    self.replace(hash, position, slot, old_units, version, key, value)
                }
            }
            Found::Confirmed {
                position,
                slot,
                far,
            } => self.replace(
                hash,
                position,
                slot,
                far.header.units(),
                version,
                key,
                value,
            ),
            Found::Unknown { slot } if !self.is_lost(slot.address().page(self.shape)) => {
                return Step::Fetch {
                    address: slot.address(),
                    class: slot.class(),
                };
            }
            // Nobody can tell any more whose record that was; the new one is found before it.
            Found::Absent | Found::Unknown { .. } => {
                self.insert(hash, class, units, version, key, value)
            }
        };
        match stored {
            Ok(()) => {
                self.version = version;
                if let Some(far) = &read {
                    self.note_served(far);
                }
                if expected.is_some() {
                    self.figures.counters.swaps.add(1);
                } else {
                    self.figures.counters.puts.add(1);
                }
                answers.answer(lane, token, Answer::Stored { version });
                Step::Done
            }
            Err(NoRoom::Wait) => Step::Blocked,
            Err(NoRoom::Never(error)) => {
                let counters = &self.figures.counters;
                match expected {
                    Some(_) => counters.swaps_failed.add(1),
                    None => counters.puts_failed.add(1),
                }
                answers.answer(lane, token, Answer::Failed(error));
                Step::Done
            }
        }
    }

    /// Appends a new record for a key whose slot is known, and lets the old record die.
    #[allow(clippy::too_many_arguments)]
    fn replace(
        &mut self,
        hash: IndexHash,
        position: Position,
        slot: Slot,
        old_units: u32,
        version: Version,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), NoRoom> {
        let units = record::units_for(key.len(), value.len());
        let class = SizeClass::for_units(units);
        let (address, pointer) = self.reserve(TailKind::Log, units)?;
        // SAFETY: `reserve` made room for `units` at `pointer`.
        unsafe { record::write_at(pointer, version, 0, key, value) };
        self.commit(TailKind::Log, hash, address, class, units);
        self.index.replace(position, class, address);
        self.retire_slot(slot, old_units);
        Ok(())
    }

    fn insert(
        &mut self,
        hash: IndexHash,
        class: SizeClass,
        units: u32,
        version: Version,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), NoRoom> {
        let (address, pointer) = self.reserve(TailKind::Log, units)?;
        if self
            .index
            .insert(hash, class, address, &mut self.arena)
            .is_err()
        {
            return Err(self.no_segment(hash));
        }
        // SAFETY: `reserve` made room for `units` at `pointer`.
        unsafe { record::write_at(pointer, version, 0, key, value) };
        self.commit(TailKind::Log, hash, address, class, units);
        Ok(())
    }

    /// Counts the record of a slot dead, and its home if it is a cached copy.
    pub(super) fn retire_slot(&mut self, slot: Slot, units: u32) {
        let address = slot.address();
        let bytes = Self::account_bytes(slot.class(), units);
        if self.pages.get(address.page(self.shape)).kind == PageKind::Cache {
            let home = self.home_of(address);
            self.retire(home, bytes);
        }
        self.retire(address, bytes);
    }

    fn delete(
        &mut self,
        lane: LaneId,
        token: u64,
        hash: IndexHash,
        key: &[u8],
        evidence: Evidence<'_>,
        answers: &mut impl Answers,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::Blocked;
        }
        let found = match self.find_or_step(hash, key, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        let (position, slot, units) = match found {
            Found::Absent => {
                self.figures.counters.deletes.add(1);
                self.figures.counters.deletes_absent.add(1);
                answers.answer(lane, token, Answer::Absent);
                return Step::Done;
            }
            Found::Local {
                position,
                slot,
                record,
            } => (position, slot, record.header().units()),
            Found::Confirmed {
                position,
                slot,
                far,
            } => {
                self.note_served(&far);
                (position, slot, far.header.units())
            }
            Found::Unknown { slot } => {
                return Step::Fetch {
                    address: slot.address(),
                    class: slot.class(),
                };
            }
        };
        self.index.remove(position);
        self.retire_slot(slot, units);
        self.figures.counters.deletes.add(1);
        answers.answer(lane, token, Answer::Deleted);
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
