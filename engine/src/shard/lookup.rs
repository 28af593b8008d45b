//! Finds the record that a request means: among the slots of its hash, in frames, in chunks that
//! were read ahead, or by the evidence of an earlier READ.
//!
//! Look-ahead finds a *hint* for each later request of a batch and prefetches its record. A hint is
//! checked again when its request is served, because requests before it may have moved pages and
//! slots. What is not local becomes a `Step`: the far record to fetch, or the chunk to wait for.
//! Nothing here changes a record or a slot.

#![allow(unsafe_code)] // reads records in landing buffers

use farcore_rdma::{Endpoint, prefetch, prefetch_burst};

use crate::bytes::equal;
use crate::constants::{LINE_BYTES, UNIT_BYTES};
use crate::index::{FirstCandidate, Position, Slot};
use crate::log::SizeClass;
use crate::log::record::RecordView;
use crate::message::hash::IndexHash;
use crate::message::operation::OperationKind;
use crate::message::request::Request;
use crate::shard::Shard;
use crate::shard::far::read_ahead::{Located, Place};
use crate::shard::step::{Confirmed, Evidence, Found, Hint, HintOutcome, LocalHint, Step};

/// Units of a record that are prefetched, at most: the processor's own prefetcher brings the rest
/// of a long record.
const UNITS_AHEAD: u32 = 12;
/// Units of a record to be deleted that are prefetched, at most: only header and key are needed.
const UNITS_AHEAD_OF_DELETE: u32 = 2;
/// Cache lines that these units span, at most.
const LINES_AHEAD: usize = UNITS_AHEAD as usize * UNIT_BYTES / LINE_BYTES + 1;

/// Offset of the last prefetched byte of a record, by class: for requests that need the value, and
/// for those that do not.
static BYTES_AHEAD: [[u8; SizeClass::COUNT]; 2] =
    [bytes_ahead(UNITS_AHEAD), bytes_ahead(UNITS_AHEAD_OF_DELETE)];

#[expect(
    clippy::cast_possible_truncation,
    reason = "the last of 12 units ends before 192"
)]
const fn bytes_ahead(most: u32) -> [u8; SizeClass::COUNT] {
    let mut bytes = [0; SizeClass::COUNT];
    let mut class = 0;
    while class < SizeClass::COUNT {
        let units = match SizeClass::from_raw(class as u64).units() {
            Some(units) if units < most => units,
            _ => most,
        };
        bytes[class] = (units as usize * UNIT_BYTES - 1) as u8;
        class += 1;
    }
    bytes
}

impl<E: Endpoint> Shard<E> {
    /// Finds the first slot that may stand for a request's key, and prefetches what the request
    /// needs of its record. Adds the buckets it examined to `probes`.
    #[inline(always)]
    pub(in crate::shard) fn look_ahead<const BURST: bool>(
        &self,
        request: &Request<'_>,
        probes: &mut u64,
    ) -> Hint {
        match self.index.first(request.hash, probes) {
            FirstCandidate::At(position, slot) => {
                self.prefetch_record::<BURST>(request, position, slot)
            }
            FirstCandidate::Nowhere => Hint::Absent,
            FirstCandidate::Further => Hint::Further,
        }
    }

    /// Looks again for a request whose first two buckets did not decide, now that the third has
    /// arrived. The result is as good as that of the first look.
    #[inline]
    pub(in crate::shard) fn look_further(
        &self,
        request: &Request<'_>,
        hint: &mut Hint,
        probes: &mut u64,
    ) {
        if !matches!(hint, Hint::Further) {
            return;
        }
        let (first, buckets) = self.index.first_anywhere(request.hash);
        *probes += buckets;
        *hint = match first {
            FirstCandidate::At(position, slot) => {
                self.prefetch_record::<false>(request, position, slot)
            }
            FirstCandidate::Nowhere => Hint::Absent,
            FirstCandidate::Further => Hint::Further,
        };
    }

    /// Prefetches what a request needs of the record that a slot leads to, in a burst with others
    /// or alone.
    #[inline(always)]
    fn prefetch_record<const BURST: bool>(
        &self,
        request: &Request<'_>,
        position: Position,
        slot: Slot,
    ) -> Hint {
        let framed = self.framed_of(slot.address());
        if !framed.is_far() {
            let pointer = framed.pointer();
            // A delete needs header and key only.
            let ahead = &BYTES_AHEAD[usize::from(request.kind() == OperationKind::Delete)];
            let last = pointer.wrapping_add(usize::from(ahead[slot.class().place()]));
            // No branch on the length, which is unpredictable: prefetching a line twice costs
            // nothing.
            for line in 0..LINES_AHEAD {
                let line = pointer.wrapping_add(line * LINE_BYTES).min(last);
                if BURST {
                    prefetch_burst(line);
                } else {
                    prefetch(line);
                }
            }
        }
        Hint::Slot(position, slot, framed)
    }

    /// The key's record by its hint, if that still holds.
    #[inline(always)]
    pub(in crate::shard) fn hinted(&self, request: &Request<'_>, hint: &Hint) -> HintOutcome {
        match *hint {
            Hint::Absent if !self.seen.inserted.may_hold(request.hash) => HintOutcome::Absent,
            Hint::Slot(position, slot, framed) if self.index.slot(position) == slot => {
                let framed = if self.local.pages.moves() == self.seen.moves {
                    debug_assert_eq!(framed, self.framed_of(slot.address()));
                    framed
                } else {
                    self.framed_of(slot.address())
                };
                if framed.is_far() {
                    return HintOutcome::Unknown;
                }
                let local = LocalHint {
                    position,
                    slot,
                    framed,
                    record: self.local.record(framed),
                };
                if equal(local.record.key(), request.key()) {
                    HintOutcome::Local(local)
                } else {
                    HintOutcome::Unknown
                }
            }
            _ => HintOutcome::Unknown,
        }
    }

    /// Examines every slot that may stand for a key.
    pub(in crate::shard) fn find<'a>(
        &self,
        hash: IndexHash,
        key: &[u8],
        evidence: &Evidence<'a>,
    ) -> Found<'a> {
        let mut found = Found::Absent;
        let (mut may_be_lost, mut damaged) = (evidence.hides_lost, None);
        let mut candidates = self.index.candidates(hash);
        for (position, slot) in candidates.by_ref() {
            let address = slot.address();
            let framed = self.framed_of(address);
            if framed.is_far() {
                if let Some(far) = evidence.confirmed.filter(|far| far.address == address) {
                    found = Found::Confirmed {
                        position,
                        slot,
                        far,
                    };
                    break;
                }
                if self.local.pages.is_lost_page(address.page(self.shape)) {
                    may_be_lost |= self.stands_for(slot, hash);
                } else if evidence.damaged.contains(&address) {
                    may_be_lost = true;
                    damaged = Some(address);
                } else if matches!(found, Found::Absent) && !evidence.cleared.contains(&address) {
                    found = Found::Unknown { position, slot };
                }
                continue;
            }
            let local = LocalHint {
                position,
                slot,
                framed,
                record: self.local.record(framed),
            };
            if local.record.key() == key {
                found = Found::Local(local);
                break;
            }
            may_be_lost |= self.lost.is_marked(local.record.header());
            self.metrics.counters.tag_false_matches.add(1);
        }
        self.metrics.counters.index_probes.add(candidates.buckets());
        // A key that has a record is not lost.
        if may_be_lost && matches!(found, Found::Absent) {
            found = Found::Lost { damaged };
        }
        found
    }

    /// True if the record of a key is in a frame.
    pub(in crate::shard) fn is_local(&self, hash: IndexHash, key: &[u8]) -> bool {
        matches!(self.find(hash, key, &Evidence::NONE), Found::Local(_))
    }

    /// The far record that a hint names, if it may be read before other buckets are examined. Other
    /// slots of the hash are examined only if this record turns out to be another key's, or cannot
    /// be read.
    #[inline]
    fn far_at_once(&self, request: &Request<'_>, hint: &Hint) -> Option<(Position, Slot)> {
        let Hint::Slot(position, slot, _) = *hint else {
            return None;
        };
        let address = slot.address();
        let unread = self.index.slot(position) == slot
            && self.framed_of(address).is_far()
            && self.index.is_alone(request.hash, slot)
            && !self.collisions.hold(request.hash)
            && !self.is_lost(address.page(self.shape));
        unread.then_some((position, slot))
    }

    /// Counts the bytes that a request needed from far memory.
    #[inline]
    pub(in crate::shard) fn note_served(&self, far: &Confirmed<'_>) {
        self.metrics
            .counters
            .far_wanted_bytes
            .add(far.wanted_bytes as u64);
        self.metrics
            .counters
            .stream_hits
            .add(u64::from(far.streamed));
    }

    /// Finds the record by the hint, else as [`Shard::find_or_step`] does.
    #[inline]
    pub(in crate::shard) fn find_by_hint<'a>(
        &mut self,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'a>,
    ) -> Result<Found<'a>, Step> {
        match self.hinted(request, hint) {
            HintOutcome::Local(local) => Ok(Found::Local(local)),
            HintOutcome::Absent => Ok(Found::Absent),
            HintOutcome::Unknown => self.find_or_step(request, hint, evidence),
        }
    }

    /// Finds the record; a record that a stream has read ahead counts as evidence.
    #[inline(never)]
    pub(in crate::shard) fn find_or_step<'a>(
        &mut self,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'a>,
    ) -> Result<Found<'a>, Step> {
        // A far record is returned directly: passed through an option it would be copied out of
        // parts that were just stored.
        let key = request.key();
        if let Some(far) = evidence.confirmed {
            // Whatever changes this key's slot is queued behind the request, or has moved the
            // record.
            if let Some(position) = self.index.find_address(request.hash, far.address) {
                return Ok(Found::Confirmed {
                    position,
                    slot: self.index.slot(position),
                    far,
                });
            }
        } else if let Some((position, slot)) = self.far_at_once(request, hint) {
            return self.find_far(key, position, slot);
        }
        match self.find(request.hash, key, evidence) {
            Found::Unknown { position, slot } => self.find_far(key, position, slot),
            found => Ok(found),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_far<'a>(
        &mut self,
        key: &[u8],
        position: Position,
        slot: Slot,
    ) -> Result<Found<'a>, Step> {
        let far = self.find_far_by(|_, record| record.key() == key, slot)?;
        Ok(Found::Confirmed {
            position,
            slot,
            far,
        })
    }

    /// A far record that a stream has read ahead, if it has arrived and is the one meant.
    pub(in crate::shard) fn at_hand<'a>(
        &mut self,
        is_meant: impl Fn(&Self, &RecordView<'_>) -> bool,
        slot: Slot,
    ) -> Option<Confirmed<'a>> {
        let (page, unit) = (
            slot.address().page(self.shape),
            slot.address().unit(self.shape),
        );
        let units = slot.class().units()?;
        let units = units.min(self.local.pages.get(page).units.saturating_sub(unit));
        match self.locate(Place { page, unit, units }) {
            Located::Ready { .. } => self.find_far_by(is_meant, slot).ok(),
            Located::Reading(_) | Located::Miss => None,
        }
    }

    /// A far record that a stream has read ahead, if it is the one meant; else how to get it.
    #[inline]
    pub(in crate::shard) fn find_far_by<'a>(
        &mut self,
        is_meant: impl Fn(&Self, &RecordView<'_>) -> bool,
        slot: Slot,
    ) -> Result<Confirmed<'a>, Step> {
        if self.is_lent {
            return Err(Step::Blocked);
        }
        let (address, class) = (slot.address(), slot.class());
        let fetch = Step::Fetch { address, class };
        let Some(units) = class.units() else {
            return Err(fetch);
        };
        let (page, unit) = (address.page(self.shape), address.unit(self.shape));
        let units = units.min(self.local.pages.get(page).units.saturating_sub(unit));
        let place = Place { page, unit, units };
        match self.locate(place) {
            Located::Ready { id, offset, bytes } => {
                // SAFETY: the chunk is ready, reading ahead spares its buffer, and nothing else is
                // read into it before this request is answered.
                let read = unsafe { self.landed(offset, bytes) };
                self.stream_touched(id, place);
                // SAFETY: the same; one record is confirmed at a time.
                let Some(record) = (unsafe { self.record_ahead((page, unit), read) }) else {
                    return Err(fetch);
                };
                if !is_meant(self, &record) {
                    return Err(fetch);
                }
                let wanted_bytes = record.units() as usize * UNIT_BYTES;
                Ok(Confirmed {
                    address,
                    header: record.header(),
                    record: Some(record.bytes()),
                    wanted_bytes,
                    streamed: true,
                })
            }
            Located::Reading(chunk) => {
                self.stream_touched(chunk, place);
                Err(Step::Await {
                    address,
                    class,
                    chunk,
                })
            }
            Located::Miss => match self.stream_missed(place) {
                Some(chunk) => Err(Step::Await {
                    address,
                    class,
                    chunk,
                }),
                None => Err(fetch),
            },
        }
    }
}
