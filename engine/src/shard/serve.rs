//! Serves requests in batches: look-ahead, dispatch and gets.
//!
//! Each request is looked ahead some requests before it is served, so its cache misses overlap with
//! the work between. `execute` runs one operation. It answers, or returns a [`Step`]: what must be
//! fetched or awaited first, or why nothing could be done. A step other than `Done` has changed
//! nothing.

#![allow(unsafe_code)] // hints that are written before they are read, and the batch's bounds

use std::mem::MaybeUninit;

use farcore_rdma::Endpoint;
use farcore_tuning::COUNTED;

use super::{JournalStop, Shard};
use crate::error::Error;
use crate::log::record;
use crate::message::hash::IndexHash;
use crate::message::operation::OperationKind;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::look_ahead::LookAheadState;
use crate::shard::pending::park::Source;
use crate::shard::step::{Evidence, Found, Hint, HintOutcome, LocalHint, Step};

/// Requests of look-ahead before the one that is served. Source: measured; with 8 deletes are
/// slower, and 16 are no better.
const LOOK_AHEAD: usize = 12;

/// Places for hints, reused in turn.
const HINTS: usize = 16;

const _: () = assert!(LOOK_AHEAD < HINTS);

/// Requests of the second look-ahead, for hints that two buckets did not decide.
const LOOK_FURTHER: usize = LOOK_AHEAD / 2;

impl<E: Endpoint> Shard<E> {
    /// Serves requests of one lane in order; their buckets are prefetched. Takes a core's batch; a
    /// longer slice is served as several. Returns how many were consumed (answered or parked).
    /// Fewer than given means back-pressure: the caller offers the rest again later. All answers go
    /// to this lane.
    pub(crate) fn serve(
        &mut self,
        lane: ReplyTo,
        requests: &[Request<'_>],
        answers: &mut impl AnswerSink,
    ) -> usize {
        let mut consumed = 0;
        self.flights.visit(lane);
        if self.flights.needs_room(lane) {
            self.facts.note_stalled(lane);
            return 0;
        }
        if self.journal_stop != JournalStop::No {
            return self.serve_stopped(lane, requests, answers);
        }
        let mut hints = [const { MaybeUninit::uninit() }; HINTS];
        for batch in requests.chunks(self.tuning.batch) {
            let mut probes = 0;
            // SAFETY: the batch is borrowed until the end of this function, which ends it.
            self.seen = unsafe { LookAheadState::of(batch, self.local.pages.moves()) };
            self.begin_trees_ahead();
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
                    // SAFETY: it was written `LOOK_AHEAD` requests ahead of this one, so before.
                    self.look_further(coming, unsafe { hint.assume_init_mut() }, &mut probes);
                }
                // SAFETY: it was written above, now or `LOOK_AHEAD` requests ago.
                let hint = unsafe { hints[place % HINTS].assume_init_ref() };
                if !self.serve_one(lane, request, hint, answers) {
                    self.note_back_pressure();
                    break;
                }
                served += 1;
            }
            self.metrics.counters.index_probes.add(probes);
            self.publish_batch_counters();
            self.note_batch(&batch[..served]);
            consumed += served;
            if served < batch.len() {
                break;
            }
        }
        self.seen.end();
        consumed
    }

    /// Serves requests while the journal takes no changes: those wait, or are refused.
    #[cold]
    #[inline(never)]
    fn serve_stopped(
        &mut self,
        lane: ReplyTo,
        requests: &[Request<'_>],
        answers: &mut impl AnswerSink,
    ) -> usize {
        let mut served = 0;
        for request in requests {
            let is_served = match (request.changes(), self.journal_stop) {
                (true, JournalStop::Wait) => false,
                (true, JournalStop::Refuse) => {
                    let lane = lane.of(request.origin);
                    self.fail(lane, request, Error::JournalFailed, answers) == Step::Done
                }
                _ => self.serve_one(lane, request, &Hint::None, answers),
            };
            if !is_served {
                self.note_back_pressure();
                break;
            }
            served += 1;
        }
        self.publish_batch_counters();
        served
    }

    /// Counts a request that must be offered again. One that a borrower leaves for the core is not
    /// counted.
    #[cold]
    fn note_back_pressure(&self) {
        self.metrics
            .counters
            .back_pressure
            .add(u64::from(!self.is_lent));
    }

    /// Publishes the batch counters.
    pub(super) fn publish_batch_counters(&mut self) {
        let batch_counters = std::mem::take(&mut self.batch_counters);
        self.cache
            .note_hits(batch_counters.cache_hits, batch_counters.local_hits);
        batch_counters.publish(&self.metrics.counters);
    }

    /// Counts a served batch, and samples keys for the hot keys.
    #[inline]
    fn note_batch(&mut self, batch: &[Request<'_>]) {
        if self.evictor.is_on() {
            self.evictor.note_batch(batch);
        }
        if !COUNTED || batch.is_empty() {
            return;
        }
        self.metrics.batches.record(batch.len() as u64);
        if let Some(place) = self.hot_keys.sample(batch.len()) {
            let request = &batch[place];
            if !request.kind().names_a_key() {
                return;
            }
            self.hot_keys.note(request.hash.0, request.key());
        }
    }

    /// Prefetches the index buckets of a request that will be served soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: IndexHash) {
        self.index.prefetch(hash);
    }

    /// As [`Shard::prefetch`], for one of many requests in a burst.
    #[inline]
    pub(crate) fn prefetch_burst(&self, hash: IndexHash) {
        self.index.prefetch_burst(hash);
    }

    /// As [`Shard::prefetch`] if `own`, without a branch.
    #[inline]
    pub(crate) fn prefetch_if(&self, own: bool, hash: IndexHash) {
        self.index.prefetch_if(own, hash);
    }

    #[inline(always)]
    fn serve_one(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        answers: &mut impl AnswerSink,
    ) -> bool {
        let lane = lane.of(request.origin);
        if let Some(flight) = self.flights.of_hash(request.hash)
            && request.kind().may_wait()
            && !farcore_tuning::mutated!("not-parked-behind-a-flight")
        {
            return self.park_behind(flight, lane, request, answers);
        }
        match self.execute(lane, request, hint, &Evidence::NONE, answers) {
            Step::Done => true,
            Step::Blocked => false,
            Step::NoRoom { value_bytes } => self.note_short(value_bytes),
            Step::Fetch { address, class } => {
                self.launch(lane, request, (address, class), Source::Read, answers)
            }
            Step::Await {
                address,
                class,
                chunk,
            } => {
                let from = Source::Chunk(chunk);
                self.launch(lane, request, (address, class), from, answers)
            }
        }
    }

    /// Notes that an answer has no room at its lane. Returns false, for the caller to return.
    #[cold]
    pub(super) fn note_short(&mut self, value_bytes: usize) -> bool {
        self.short = Some(value_bytes);
        self.metrics.counters.answers_without_room.add(1);
        false
    }

    /// Bytes of the value whose answer found no room at its lane, if that ended the last
    /// [`Shard::serve`].
    #[inline]
    pub(crate) fn take_short(&mut self) -> Option<usize> {
        self.short.take()
    }

    /// Runs an operation until it is answered or must wait.
    #[inline(always)]
    pub(super) fn execute(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        match request.kind() {
            OperationKind::Get => self.get(lane, request, hint, evidence, answers),
            OperationKind::Put | OperationKind::CompareAndSwap => {
                self.put(lane, request, hint, evidence, answers)
            }
            OperationKind::Delete => self.delete(lane, request, hint, evidence, answers),
            // One call for all of them, so that the kinds above take two comparisons.
            _ => self.execute_rare(lane, request, hint, evidence, answers),
        }
    }

    #[inline(never)]
    fn execute_rare(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        // Other kinds may read far records, or visit more than one. An operation on a tree reads
        // none of them while the shard is lent.
        let kind = request.kind();
        let visits = kind as u8 >= OperationKind::Transaction as u8 && kind != OperationKind::Tree;
        if self.is_lent && visits {
            return Step::Blocked;
        }
        match request.kind() {
            OperationKind::Inspect => self.inspect(lane, request, hint, evidence, answers),
            OperationKind::GetRange => self.get_range(lane, request, hint, evidence, answers),
            OperationKind::Transaction => self.transaction(lane, request, answers),
            OperationKind::Tree => self.tree(lane, request, answers),
            OperationKind::TreeRead => self.read_tree_node(lane, request, evidence),
            OperationKind::TreeHead => self.learn(lane, request, evidence),
            OperationKind::List => self.list(lane, request, answers),
            OperationKind::ReadAt | OperationKind::ReadHeadAt => {
                self.read_at(lane, request, evidence, answers)
            }
            OperationKind::LongBegin => self.long_begin(lane, request, answers),
            OperationKind::LongWrite => self.long_write(lane, request, answers),
            OperationKind::LongCommit => self.long_commit(lane, request, hint, evidence, answers),
            OperationKind::LongAbort => self.long_abort(lane, request, answers),
            OperationKind::LongOpen => self.long_open(lane, request, hint, evidence, answers),
            OperationKind::LongRead => self.long_read(lane, request, evidence, answers),
            OperationKind::Count => self.count_keys(lane, request, answers),
            OperationKind::Clear => self.clear_keys(lane, request, answers),
            OperationKind::ForgetLost => self.forget_keys(lane, request, answers),
            OperationKind::Restore => self.restore(lane, request, hint, evidence, answers),
            OperationKind::TreePatch | OperationKind::RepairNodes => {
                self.tree_patch(lane, request, answers)
            }
            OperationKind::Repair => self.repair(lane, request, hint, evidence, answers),
            OperationKind::TreeDump => self.tree_dump(lane, request, answers),
            OperationKind::SectionEnter | OperationKind::SectionLeave => {
                unreachable!("the reactor serves them")
            }
            OperationKind::Change
            | OperationKind::Get
            | OperationKind::Put
            | OperationKind::Delete
            | OperationKind::CompareAndSwap => self.change(lane, request, hint, evidence, answers),
        }
    }

    #[inline(always)]
    fn get(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        match self.hinted(request, hint) {
            HintOutcome::Local(local) => self.get_local(lane, request, &local, answers),
            HintOutcome::Absent => self.get_absent(lane, request, answers),
            HintOutcome::Unknown => self.get_anywhere(lane, request, hint, evidence, answers),
        }
    }

    #[inline(always)]
    fn get_local(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        local: &LocalHint,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let header = local.record.header();
        let value = if header.is_special() {
            match self.unexpired_value(local) {
                Some(_) if header.is_long() => {
                    return self.get_long_value(lane, request, local.slot.address(), answers);
                }
                Some(_) if header.is_tree() => {
                    return self.fail(lane, request, Error::Collection, answers);
                }
                Some(value) => value,
                None => return self.get_expired(lane, request, local.slot.address(), answers),
            }
        } else {
            local.record.plain_value()
        };
        let answer = Answer::Value {
            version: header.version(),
            value,
        };
        if !answers.try_answer(lane, request.token, answer) {
            return Step::NoRoom {
                value_bytes: answer.value().len(),
            };
        }
        if local.framed.is_cached() {
            local.record.mark_hot();
            self.batch_counters.cache_hits += 1;
        } else {
            self.batch_counters.local_hits += 1;
        }
        self.batch_counters.gets += 1;
        Step::Done
    }

    #[inline(always)]
    pub(super) fn get_absent(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if !answers.try_answer(lane, request.token, Answer::Absent) {
            return Step::NoRoom { value_bytes: 0 };
        }
        self.batch_counters.gets += 1;
        self.batch_counters.gets_absent += 1;
        Step::Done
    }

    #[inline(never)]
    fn get_anywhere(
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
        let (position, slot, far) = match found {
            Found::Local(local) => return self.get_local(lane, request, &local, answers),
            Found::Absent => return self.get_absent(lane, request, answers),
            Found::Unknown { slot, .. } => return Step::fetch(slot),
            Found::Lost { damaged } => {
                return self.fail(lane, request, self.lost_error(damaged), answers);
            }
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
        if self.is_past(view.expiry_ms()) {
            self.note_served(&far);
            return self.get_far_expired(lane, request, slot, view.header(), answers);
        }
        if view.header().is_long() {
            return self.get_long_value(lane, request, slot.address(), answers);
        }
        if view.header().is_tree() {
            self.note_served(&far);
            let step = self.fail(lane, request, Error::Collection, answers);
            // The look before a section is a get, and its elements may all be here.
            let is_inline = self.trees.at_head(slot.address()).is_none();
            if step == Step::Done && is_inline && evidence.confirmed.is_some() {
                self.keep_copy(request.hash, position, slot, bytes);
            }
            return step;
        }
        let answer = Answer::Value {
            version: view.version(),
            value: view.value(),
        };
        if !answers.try_answer(lane, request.token, answer) {
            return Step::NoRoom {
                value_bytes: view.value().len(),
            };
        }
        self.batch_counters.gets += 1;
        self.metrics.counters.far_hits.add(1);
        self.note_served(&far);
        if evidence
            .confirmed
            .is_some_and(|known| known.record.is_some())
        {
            self.keep_copy(request.hash, position, slot, bytes);
        }
        Step::Done
    }
}
