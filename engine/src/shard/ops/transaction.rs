//! Transactions: checks and writes of several keys, all in one step of the shard.
//!
//! ```text
//! look at each key -> one is not known: request facts, blocked
//!                  -> a record cannot be read: failed
//!                  -> a version is another: conflict
//! room for all new records -> slots for all new keys -> write all -> answer
//! ```
//!
//! A transaction is never parked. While it lacks something it is blocked: it stays the first
//! request of its lane and is tried again each turn, so the client's operations on each key keep
//! their order. What it lacks is read by requests of the shard's own ([`Facts`]).
//!
//! - I1: nothing changes before all versions are known and right, all new records have room in the
//!   open page, and all new keys have a slot. Then nothing can fail.
//! - I2: no slot is followed between the insertion of the new keys' slots and the writing of their
//!   records.
//! - I3: the writes of a transaction have consecutive versions, in the order of its keys.
//!
//! [`Facts`]: crate::shard::pending::facts::Facts

#![allow(unsafe_code)] // makes requests of keys that lie in another request

use std::ptr::NonNull;

use farcore_rdma::Endpoint;

use crate::constants::EXPIRY_BYTES;
use crate::error::Error;
use crate::log::record::{self, RecordHeader, RecordView};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::message::operation::{OperationKind, RequestParts, Version};
use crate::message::outcome::{Answer, Conflict};
use crate::message::request::{AnswerSink, Origin, ReplyTo, Request, RequestFlags, RequestShape};
use crate::message::transaction::{Absence, TransactionStep, TransactionView, TransactionWrite};
use crate::shard::Shard;
use crate::shard::local::open_pages::TailKind;
use crate::shard::ops::scratch::{Effect, Planned, TransactionScratch};
use crate::shard::pending::facts::Fact;
use crate::shard::pending::park::Source;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::{Confirmed, Evidence, Found, Hint, Step};
use crate::tree::{TreeHead, TreeNode};

/// A key, as a transaction finds it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Its version; 0 if it is absent or has expired.
    version: Version,
    /// When it expires, if it has not.
    expiry_ms: Option<u64>,
    has_expired: bool,
    /// The record that its slot leads to, and whether its value can be overwritten.
    record: Option<(RecordHeader, bool)>,
}

/// What a look at a key shows.
enum Look {
    Known(Seen),
    /// Its record must be read first.
    Missing,
    Failed(Error),
}

/// Why a transaction does not happen now.
enum Obstacle {
    Missing,
    Conflict(Conflict),
    Failed(Error),
}

/// The value of the head of an inline collection; `None` if the record is none.
fn inline_value_of(record: &[u8]) -> Option<Box<[u8]>> {
    let value = RecordView::parse(record)?.value();
    let TreeHead::Inline { kind, leaf, .. } = TreeHead::parse(value)? else {
        return None;
    };
    let leaf = TreeNode::parse_as(leaf, kind, true)?;
    let is_one = leaf.len() > 0 && leaf.adds_up() && !leaf.has_apart();
    is_one.then(|| value.into())
}

impl<E: Endpoint> Shard<E> {
    /// Tries a transaction.
    #[inline(never)]
    pub(in crate::shard) fn transaction(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        let Some(view) = TransactionView::parse(request.key(), request.value()) else {
            debug_assert!(false, "a client encoded it");
            return self.fail(lane, request, Error::Closed, answers);
        };
        if self.facts.are_awaited(lane, request) {
            return Step::Blocked;
        }
        let mut scratch = std::mem::take(&mut self.transaction_scratch);
        let planned = self.plan(lane, request, &view, &mut scratch.plan, answers);
        let step = match planned {
            Ok(()) => self.commit(lane, request, &view, &mut scratch, answers),
            Err(Obstacle::Missing) => {
                self.facts.note_try(lane);
                Step::Blocked
            }
            Err(Obstacle::Failed(error)) => self.fail(lane, request, error, answers),
            Err(Obstacle::Conflict(conflict)) => {
                self.metrics.counters.transactions.add(1);
                self.metrics.counters.transactions_conflicted.add(1);
                answers.answer(lane, request.token, Answer::Conflict(conflict));
                Step::Done
            }
        };
        self.transaction_scratch = scratch;
        if step == Step::Done {
            self.facts.end(lane);
        }
        step
    }

    /// Looks at each key and plans what is written. Facts are requested of all keys that are
    /// missing; a conflict or a failure counts only if no key before it is missing.
    fn plan(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        view: &TransactionView<'_>,
        plan: &mut Vec<Planned>,
        answers: &mut impl AnswerSink,
    ) -> Result<(), Obstacle> {
        plan.clear();
        for step in view.steps() {
            let hash = self.key_hasher.hash(step.key);
            self.index.prefetch_burst(hash);
            plan.push(Planned {
                hash,
                expiry_ms: None,
                units: 0,
                meets_expired: false,
                effect: Effect::None,
            });
        }
        let (mut missing, mut may_request) = (false, true);
        for (place, (step, planned)) in view.steps().zip(plan).enumerate() {
            let key = (planned.hash, step.key);
            let mut look = self.look(lane, request, place, key);
            if matches!(look, Look::Missing)
                && may_request
                && self.must_request_fact(lane, request, place, key)
            {
                may_request = self.request_fact(lane, request, (place, view.len()), key, answers);
                // It may have been read ahead.
                look = self.look(lane, request, place, key);
            }
            match look {
                Look::Missing => missing = true,
                _ if missing => {}
                Look::Failed(error) => return Err(Obstacle::Failed(error)),
                Look::Known(seen) => {
                    if let Some(expected) = step.expected
                        && let Some(conflict) =
                            self.conflict(place, (planned.hash, expected), &seen)
                    {
                        return Err(Obstacle::Conflict(conflict));
                    }
                    *planned = self.planned(planned.hash, &step, &seen);
                }
            }
            if missing && !may_request {
                break;
            }
        }
        if missing {
            Err(Obstacle::Missing)
        } else {
            Ok(())
        }
    }

    /// Why a key that was found so is not what a step expects.
    #[inline]
    fn conflict(
        &mut self,
        place: usize,
        (hash, expected): (IndexHash, Version),
        seen: &Seen,
    ) -> Option<Conflict> {
        match Absence::version_of(expected) {
            Some(since) => self.absence_conflict(place, (hash, since), seen),
            None if expected == seen.version => None,
            None if farcore_tuning::mutated!("expected-of-far-ignored")
                && seen.record.is_some_and(|(_, is_mutable)| !is_mutable) =>
            {
                None
            }
            None => Some(Conflict::new(place, seen.version)),
        }
    }

    /// Why a key has not been absent since a version, as a step expects; `None` if it has.
    #[cold]
    fn absence_conflict(
        &mut self,
        place: usize,
        (hash, since): (IndexHash, Version),
        seen: &Seen,
    ) -> Option<Conflict> {
        if seen.version != 0 {
            return Some(Conflict::new(place, seen.version));
        }
        // One that has expired was there until then.
        let stored = seen.record.map_or(0, |(header, _)| header.version());
        if since <= self.version && stored <= since && self.absences.hold(hash, since) {
            return None;
        }
        self.absences.begin();
        Some(Conflict::absent(place, self.version))
    }

    /// What a step does to a key that was found so.
    fn planned(&self, hash: IndexHash, step: &TransactionStep<'_>, seen: &Seen) -> Planned {
        let nothing = Planned {
            hash,
            expiry_ms: None,
            units: 0,
            meets_expired: seen.has_expired,
            effect: Effect::None,
        };
        let delete = Planned {
            effect: if seen.record.is_some() {
                Effect::Delete
            } else {
                Effect::None
            },
            ..nothing
        };
        let (value, expiry) = match step.write {
            TransactionWrite::None => return nothing,
            TransactionWrite::Delete => return delete,
            TransactionWrite::Put { value, expiry, .. } => (value, expiry),
        };
        let expiry_ms = expiry.resolve(seen.expiry_ms, self.unix_ms);
        if self.is_past(expiry_ms) {
            return delete;
        }
        let stored = value.len() + expiry_ms.map_or(0, |_| EXPIRY_BYTES);
        let units = record::units_for(step.key.len(), stored) + self.tag_units;
        Planned {
            hash,
            expiry_ms,
            units,
            meets_expired: seen.has_expired,
            effect: match seen.record {
                None => Effect::Insert,
                Some((header, true)) if units <= header.units() => Effect::Overwrite,
                Some(_) => Effect::Append,
            },
        }
    }

    /// What READs have shown about the key at a place of a transaction, as far as it still holds:
    /// its record and that record's expiry, and addresses of other keys' records.
    pub(super) fn shown(
        &self,
        lane: ReplyTo,
        request: &Request<'_>,
        place: usize,
    ) -> (Option<(Confirmed<'static>, Option<u64>)>, Vec<Address>) {
        let holds = |address: Address, sequence: u64| {
            let page = self.local.page(address.page(self.shape));
            self.framed_of(address).is_far() && page.sequence == sequence
        };
        match self.facts.get(lane, request, place) {
            &Fact::Found {
                address,
                sequence,
                header,
                expiry_ms,
                ..
            } if holds(address, sequence) => {
                let far = Confirmed {
                    address,
                    header,
                    record: None,
                    // Counted when they were read.
                    wanted_bytes: 0,
                    streamed: false,
                };
                (Some((far, expiry_ms)), Vec::new())
            }
            Fact::Others(others) => {
                let hold = others.iter().filter(|other| holds(other.0, other.1));
                (None, hold.map(|other| other.0).collect())
            }
            _ => (None, Vec::new()),
        }
    }

    /// Looks at one key.
    fn look(
        &self,
        lane: ReplyTo,
        request: &Request<'_>,
        place: usize,
        (hash, key): (IndexHash, &[u8]),
    ) -> Look {
        if self.flights.hold_of_lane(hash, lane) {
            // The lane's earlier requests for the key come first.
            return Look::Missing;
        }
        let (shown, cleared) = self.shown(lane, request, place);
        let evidence = Evidence {
            confirmed: shown.map(|shown| shown.0),
            cleared: &cleared,
            ..Evidence::NONE
        };
        let (header, address, expiry_ms, mutable) = match self.find(hash, key, &evidence) {
            Found::Absent => {
                return Look::Known(Seen {
                    version: 0,
                    expiry_ms: None,
                    has_expired: false,
                    record: None,
                });
            }
            Found::Local(local) => {
                let record = local.record;
                (
                    record.header(),
                    local.slot.address(),
                    record.expiry_ms(),
                    // A head is replaced, so that what it stands for ends.
                    local.framed.is_mutable() && !record.header().is_head(),
                )
            }
            Found::Confirmed { far, .. } => {
                let expiry_ms = shown.and_then(|shown| shown.1);
                (far.header, far.address, expiry_ms, false)
            }
            Found::Unknown { .. } => {
                return match self.facts.get(lane, request, place) {
                    Fact::Failed { error, .. } => Look::Failed((**error).clone()),
                    _ => Look::Missing,
                };
            }
            Found::Lost { damaged } => return Look::Failed(self.lost_error(damaged)),
        };
        let past = self.is_past(expiry_ms);
        Look::Known(Seen {
            version: if past {
                0
            } else {
                self.version_of(header, address)
            },
            expiry_ms: expiry_ms.filter(|_| !past),
            has_expired: past,
            record: Some((header, mutable)),
        })
    }

    /// True if a fact about a missing key must be requested: no request for it is parked, and none
    /// of the lane's own.
    fn must_request_fact(
        &self,
        lane: ReplyTo,
        request: &Request<'_>,
        place: usize,
        (hash, _): (IndexHash, &[u8]),
    ) -> bool {
        let requested = matches!(self.facts.get(lane, request, place), Fact::Requested { .. });
        !requested && !self.flights.hold_of_lane(hash, lane)
    }

    /// Parks a request that learns a fact about a key. False if there is no room for it now.
    pub(super) fn request_fact(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (place, keys): (usize, usize),
        (hash, key): (IndexHash, &[u8]),
        answers: &mut impl AnswerSink,
    ) -> bool {
        let token = self.facts.request(lane, request, (place, keys));
        let parts = RequestParts {
            kind: match request.kind() {
                OperationKind::Tree
                | OperationKind::TreePatch
                | OperationKind::RepairNodes
                | OperationKind::TreeDump => OperationKind::TreeHead,
                _ => OperationKind::Inspect,
            },
            key,
            value: &[],
            expected: 0,
        };
        let origin = Origin::new(0, RequestFlags::FACT);
        // SAFETY: an inspection has no part but its key, which lies in the transaction's request
        // for as long as that is borrowed.
        let inspection = unsafe {
            let start = NonNull::from(key).cast();
            Request::at(start, RequestShape::of(&parts), hash, token, origin)
        };
        #[expect(clippy::cast_possible_truncation, reason = "the number of a lane")]
        let lane = ReplyTo::new(lane.number() as u8).of(origin);
        let parked = if let Some(flight) = self.flights.of_hash(hash) {
            self.park_behind(flight, lane, &inspection, answers)
        } else {
            match self.learn(lane, &inspection, &Evidence::NONE) {
                Step::Fetch { address, class } => {
                    let record = (address, class);
                    self.launch(lane, &inspection, record, Source::Read, answers)
                }
                Step::Await {
                    address,
                    class,
                    chunk,
                } => {
                    let from = Source::Chunk(chunk);
                    self.launch(lane, &inspection, (address, class), from, answers)
                }
                Step::Done | Step::Blocked | Step::NoRoom { .. } => return true,
            }
        };
        if !parked {
            self.facts.learn(lane, token, Fact::Unknown);
        }
        parked
    }

    /// Learns the fact that a request of [`Shard::request_fact`] is for, or says what must be read
    /// first.
    pub(in crate::shard) fn learn(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        evidence: &Evidence<'_>,
    ) -> Step {
        let found = match self.find_or_step(request, &Hint::None, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        let sequence = |address: Address| self.local.page(address.page(self.shape)).sequence;
        let fact = match &found {
            Found::Unknown { slot, .. } => return Step::fetch(*slot),
            // A head that was read for an earlier request of the flight: no checksum says that it
            // is right.
            Found::Confirmed { slot, far, .. } if far.record.is_none() => {
                return Step::fetch(*slot);
            }
            Found::Confirmed {
                position,
                slot,
                far,
            } => {
                let is_head = request.kind() == OperationKind::TreeHead;
                let is_inline =
                    is_head && far.header.is_tree() && self.trees.at_head(far.address).is_none();
                let value = match far.record {
                    Some(record) if is_inline => inline_value_of(record),
                    _ => Some(Box::default()),
                };
                let (position, slot, far) = (*position, *slot, *far);
                self.note_served(&far);
                let fact = match value {
                    Some(value) => Fact::Found {
                        address: far.address,
                        sequence: sequence(far.address),
                        header: far.header,
                        expiry_ms: Self::expiry_of(&found),
                        value,
                    },
                    None => self.damaged_fact(far.address),
                };
                // As a get does.
                if is_inline
                    && evidence.confirmed.is_some()
                    && let Some(bytes) = far.record
                {
                    self.keep_copy(request.hash, position, slot, bytes);
                }
                fact
            }
            Found::Lost { damaged: None } => Fact::failed(self.lost_error(None)),
            Found::Lost {
                damaged: Some(address),
            } => self.damaged_fact(*address),
            Found::Absent if !evidence.cleared.is_empty() => {
                let others = evidence.cleared.iter();
                Fact::Others(others.map(|&other| (other, sequence(other))).collect())
            }
            Found::Absent | Found::Local(_) => Fact::Unknown,
        };
        self.facts.learn(lane, request.token, fact);
        Step::Done
    }

    /// The fact of a key whose record at this address is damaged.
    #[cold]
    fn damaged_fact(&self, address: Address) -> Fact {
        Fact::Failed {
            error: Box::new(self.lost_error(Some(address))),
            at: Some((address, self.local.page(address.page(self.shape)).sequence)),
        }
    }

    /// Makes room for all that is planned, writes it and answers. Or changes nothing.
    fn commit(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        view: &TransactionView<'_>,
        scratch: &mut TransactionScratch,
        answers: &mut impl AnswerSink,
    ) -> Step {
        match self.make_room_for(&scratch.plan) {
            Ok(()) => {}
            Err(NoRoom::Wait) => {
                self.background_due = true;
                return Step::Blocked;
            }
            Err(NoRoom::Never(error)) => return self.fail(lane, request, error, answers),
        }
        let before = self.version;
        self.begin_journal_step();
        // The new keys first (I2).
        let mut version = before;
        for (step, planned) in view.steps().zip(&scratch.plan) {
            version += u64::from(step.write != TransactionWrite::None);
            if planned.effect == Effect::Insert {
                self.write_new(version, &step, planned, &mut scratch.stored);
            }
        }
        let last = version;
        version = before;
        for (place, (step, planned)) in view.steps().zip(&scratch.plan).enumerate() {
            // Puts and deletes draw the next version.
            self.version = version;
            version += u64::from(step.write != TransactionWrite::None);
            if planned.effect == Effect::None && step.write != TransactionWrite::None {
                // It may have been stored and removed before it is written here.
                self.absences.note(planned.hash, version);
                if self.notes_absences() {
                    self.version = version;
                    self.note_deleted(step.key);
                }
            }
            let is_left_out = farcore_tuning::mutated!("transaction-in-part")
                && place > 0
                && planned.effect == Effect::Append;
            if !matches!(planned.effect, Effect::None | Effect::Insert) && !is_left_out {
                let (shown, _) = self.shown(lane, request, place);
                let evidence = Evidence {
                    confirmed: shown.map(|shown| shown.0),
                    ..Evidence::NONE
                };
                self.write_over(&step, planned, &evidence, &mut scratch.stored);
            }
        }
        self.version = last;
        self.end_journal_step();
        self.metrics.counters.transactions.add(1);
        let version = if last > before { last } else { 0 };
        answers.answer(lane, request.token, Answer::Stored { version });
        Step::Done
    }

    /// Makes room for all new records in the open page, and slots for all new keys, which lead to
    /// where their records will be. Or inserts no slot.
    fn make_room_for(&mut self, plan: &[Planned]) -> Result<(), NoRoom> {
        let is_new = |planned: &&Planned| matches!(planned.effect, Effect::Append | Effect::Insert);
        let (mut units, mut records) = (0, 0);
        for planned in plan.iter().filter(is_new) {
            units += planned.units;
            records += 1;
        }
        self.reserve_all(TailKind::Log, units, records)?;
        let inserts = || {
            plan.iter()
                .filter(|planned| planned.effect == Effect::Insert)
        };
        let Some(first) = inserts().next() else {
            return Ok(());
        };
        let start = self.reserve(TailKind::Log, first.units)?.address();
        let (page, mut unit) = (start.page(self.shape), start.unit(self.shape));
        for (count, planned) in inserts().enumerate() {
            let address = Address::new(self.shape, page, unit);
            let class = SizeClass::for_units(planned.units);
            let arena = &mut self.local.arena;
            let inserted = self.index.insert(planned.hash, class, address, arena);
            if inserted.is_err() {
                self.take_slots_back(inserts().take(count), start);
                return Err(self.no_segment(planned.hash));
            }
            unit += planned.units;
        }
        Ok(())
    }

    /// Removes the slots of new keys, whose records were to lie one after the other.
    #[cold]
    fn take_slots_back<'p>(&mut self, inserted: impl Iterator<Item = &'p Planned>, start: Address) {
        let (page, mut unit) = (start.page(self.shape), start.unit(self.shape));
        for planned in inserted {
            let address = Address::new(self.shape, page, unit);
            if let Some(position) = self.index.find_address(planned.hash, address) {
                self.index.remove(planned.hash, position);
            }
            unit += planned.units;
        }
    }

    /// Writes the record of a new key where its slot leads to.
    fn write_new(
        &mut self,
        version: Version,
        step: &TransactionStep<'_>,
        planned: &Planned,
        stored: &mut Vec<u8>,
    ) {
        let (hash, units) = (planned.hash, planned.units);
        let room = self.local.reserve(TailKind::Log, units);
        let room = room.expect("room for all records was reserved");
        let address = room.address();
        debug_assert!(self.index.find_address(hash, address).is_some());
        let mut flags = self.record_flags;
        if let Some(expiry_ms) = planned.expiry_ms {
            flags |= record::EXPIRY;
            self.expiring.any = true;
            self.note_expiry(address, expiry_ms, units);
        }
        let value = with_expiry(step.write.value(), planned.expiry_ms, stored);
        room.write(version, flags, step.key, value);
        let class = SizeClass::for_units(units);
        self.local
            .commit(TailKind::Log, hash, address, class, units);
        self.seen.inserted.note(hash);
        let before = std::mem::replace(&mut self.record_flags, flags);
        self.note_stored(step.key, value, version);
        self.record_flags = before;
    }

    /// Writes to a key that has a slot, or removes it.
    fn write_over(
        &mut self,
        step: &TransactionStep<'_>,
        planned: &Planned,
        evidence: &Evidence<'_>,
        stored: &mut Vec<u8>,
    ) {
        let key = (planned.hash, step.key);
        let found = self.find(planned.hash, step.key, evidence);
        assert!(
            matches!(found, Found::Local(_) | Found::Confirmed { .. }),
            "the key was found before"
        );
        if planned.meets_expired {
            self.note_expired(step.key, self.found_version(&found));
        }
        if planned.effect == Effect::Delete {
            self.take_away(planned.hash, &found);
            return self.note_deleted(step.key);
        }
        let value = with_expiry(step.write.value(), planned.expiry_ms, stored);
        let stored = self.with_flags(key, planned.expiry_ms, |shard| {
            shard.store_found(key, found, &[], value)
        });
        assert!(stored.is_ok(), "room for all records was reserved");
    }
}

/// A value as it is stored: with its expiry, if it has one.
fn with_expiry<'a>(value: &'a [u8], expiry_ms: Option<u64>, stored: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(expiry_ms) = expiry_ms else {
        return value;
    };
    stored.clear();
    stored.extend_from_slice(value);
    stored.extend(expiry_ms.to_le_bytes());
    stored
}
