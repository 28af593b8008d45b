//! Finding the record that a request means: among the slots of its hash, in frames, in what was read ahead, or with
//! what an earlier READ has shown.

use farcore_rdma::Endpoint;

use super::Shard;
use super::pages::Framed;
use super::request::Request;
use super::serve::Step;
use super::stream::{Located, Place};
use crate::bytes::equal;
use crate::constants::{LINE_BYTES, UNIT_BYTES};
use crate::index::{Position, Slot};
use crate::log::Address;
use crate::log::record::{self, LocalRecord, RecordHeader};
use crate::operation::Operation;
use crate::routing::IndexHash;

/// Units of a record that are asked for ahead, at most: the processor fetches the rest of a long one by itself.
const UNITS_AHEAD: u32 = 12;
/// Cache lines that they lie in, at most.
const LINES_AHEAD: usize = UNITS_AHEAD as usize * UNIT_BYTES / LINE_BYTES + 1;

/// What looking ahead has found, while the record's cache lines were asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hint {
    /// Nobody has looked.
    None,
    /// No slot may stand for the key.
    Absent,
    /// The first slot that may.
    Slot(Position, Slot),
}

/// What a hint comes to when its request is served.
pub(super) enum Hinted {
    /// Nothing certain.
    Unknown,
    /// There is no such key.
    Absent,
    /// The record of the key.
    Local(Local),
}

/// A record in a frame, and the slot that leads to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    pub(super) position: Position,
    pub(super) slot: Slot,
    /// The frame.
    pub(super) framed: Framed,
    pub(super) record: LocalRecord,
}

/// What is known about the far records that a request may mean.
#[derive(Clone, Copy, Default)]
pub(super) struct Evidence<'a> {
    /// The one that holds the request's key.
    pub(super) confirmed: Option<Confirmed<'a>>,
    /// Those that do not.
    pub(super) cleared: &'a [Address],
}

impl Evidence<'_> {
    /// Nothing was read yet.
    pub(super) const NONE: Self = Self {
        confirmed: None,
        cleared: &[],
    };
}

/// The keys inserted while one batch is served, as far as their hashes tell: a key that was absent when the batch was
/// looked ahead is absent still unless it is one of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inserted(u64);

impl Inserted {
    #[inline]
    fn bit(hash: IndexHash) -> u64 {
        1 << (hash.0 >> 26 & 63)
    }

    #[inline]
    pub(super) fn note(&mut self, hash: IndexHash) {
        self.0 |= Self::bit(hash);
    }

    #[inline]
    fn may_hold(self, hash: IndexHash) -> bool {
        self.0 & Self::bit(hash) != 0
    }
}

/// A far record, read and found to hold the request's key.
#[derive(Clone, Copy)]
pub(super) struct Confirmed<'a> {
    pub(super) address: Address,
    pub(super) header: RecordHeader,
    /// The whole record, checked, if it was all read.
    pub(super) record: Option<&'a [u8]>,
    /// Bytes of the record that the request needed.
    pub(super) wanted_bytes: usize,
    /// It had been read ahead.
    pub(super) streamed: bool,
}

/// Where the record of a key is.
pub(super) enum Found<'a> {
    Absent,
    Local(Local),
    Confirmed {
        position: Position,
        slot: Slot,
        far: Confirmed<'a>,
    },
    Unknown {
        slot: Slot,
    },
}

impl<E: Endpoint> Shard<E> {
    /// Finds the first slot that may stand for a request's key, and asks for what the request needs of its record; adds the
    /// buckets it looked at.
    #[inline]
    pub(super) fn look_ahead(&self, request: &Request<'_>, probes: &mut u64) -> Hint {
        let (first, buckets) = self.index.first(request.hash);
        *probes += buckets;
        let Some((position, slot)) = first else {
            return Hint::Absent;
        };
        let framed = self.framed_of(slot.address());
        if !framed.is_far() {
            let pointer = self.pointer_in(framed, slot.address());
            let units = match request.operation {
                Operation::Delete { .. } => 2,
                _ => slot.class().units().unwrap_or(u32::MAX).min(UNITS_AHEAD),
            };
            let last = pointer.wrapping_add(units as usize * UNIT_BYTES - 1);
            // Without a branch on the length, which nothing can predict: a line asked for twice costs nothing.
            for line in 0..LINES_AHEAD {
                record::prefetch(pointer.wrapping_add(line * LINE_BYTES).min(last));
            }
        }
        Hint::Slot(position, slot)
    }

    /// The record of a key where looking ahead has found it, if it is still there.
    #[inline(always)]
    pub(super) fn hinted(&self, hash: IndexHash, key: &[u8], hint: Hint) -> Hinted {
        match hint {
            Hint::Absent if !self.inserted.may_hold(hash) => Hinted::Absent,
            Hint::Slot(position, slot) if self.index.slot(position) == slot => {
                let framed = self.framed_of(slot.address());
                if framed.is_far() {
                    return Hinted::Unknown;
                }
                // SAFETY: a slot's address names a whole record in its page's frame.
                let record = unsafe { LocalRecord::at(self.pointer_in(framed, slot.address())) };
                if equal(record.key(), key) {
                    Hinted::Local(Local {
                        position,
                        slot,
                        framed,
                        record,
                    })
                } else {
                    Hinted::Unknown
                }
            }
            _ => Hinted::Unknown,
        }
    }

    /// Looks at every slot that may stand for a key.
    fn find<'a>(&self, hash: IndexHash, key: &[u8], evidence: &Evidence<'a>) -> Found<'a> {
        let (mut found, mut lost) = (Found::Absent, None);
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
                if self.is_lost(address.page(self.shape)) {
                    lost = Some(slot);
                } else if matches!(found, Found::Absent) && !evidence.cleared.contains(&address) {
                    found = Found::Unknown { slot };
                }
                continue;
            }
            // SAFETY: a slot's address names a whole record in its page's frame.
            let record = unsafe { LocalRecord::at(self.pointer_in(framed, address)) };
            if record.key() == key {
                found = Found::Local(Local {
                    position,
                    slot,
                    framed,
                    record,
                });
                break;
            }
            self.figures.counters.tag_false_matches.add(1);
        }
        self.figures.counters.index_probes.add(candidates.buckets());
        // A record that is lost comes last: a newer one of the same key may stand beside it.
        match (found, lost) {
            (Found::Absent, Some(slot)) => Found::Unknown { slot },
            (found, _) => found,
        }
    }

    /// Counts what a request needed of far memory.
    #[inline]
    pub(super) fn note_served(&self, far: &Confirmed<'_>) {
        self.figures
            .counters
            .far_wanted_bytes
            .add(far.wanted_bytes as u64);
        self.figures
            .counters
            .stream_hits
            .add(u64::from(far.streamed));
    }

    /// Finds the record, taking what a stream has read ahead as evidence.
    pub(super) fn find_or_step<'a>(
        &mut self,
        hash: IndexHash,
        key: &[u8],
        evidence: &Evidence<'a>,
    ) -> Result<Found<'a>, Step> {
        match self.find(hash, key, evidence) {
            Found::Unknown { slot } if !self.is_lost(slot.address().page(self.shape)) => {
                self.find_far(hash, key, slot, evidence)
            }
            found => Ok(found),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_far<'a>(
        &mut self,
        hash: IndexHash,
        key: &[u8],
        slot: Slot,
        evidence: &Evidence<'a>,
    ) -> Result<Found<'a>, Step> {
        let (address, class) = (slot.address(), slot.class());
        let fetch = Step::Fetch { address, class };
        let Some(units) = class.units() else {
            return Err(fetch);
        };
        let (page, unit) = (address.page(self.shape), address.unit(self.shape));
        let units = units.min(self.pages.get(page).units.saturating_sub(unit));
        let place = Place { page, unit, units };
        match self.locate(place) {
            Located::Ready { id, offset, bytes } => {
                // SAFETY: the chunk is ready, reading on spares its buffer, and nothing else is read before this request
                // is answered.
                let read = unsafe { self.landed(offset, bytes) };
                self.stream_touched(id, place);
                let Some(record) =
                    record::RecordView::parse(read).filter(record::RecordView::verify)
                else {
                    return Err(fetch);
                };
                if record.key() != key {
                    return Err(fetch);
                }
                let wanted_bytes = record.units() as usize * UNIT_BYTES;
                let far = Confirmed {
                    address,
                    header: record.header(),
                    record: Some(&read[..wanted_bytes]),
                    wanted_bytes,
                    streamed: true,
                };
                let known = Evidence {
                    confirmed: Some(far),
                    ..*evidence
                };
                match self.find(hash, key, &known) {
                    Found::Unknown { .. } => Err(fetch),
                    found => Ok(found),
                }
            }
            Located::Reading(chunk) => {
                self.stream_touched(chunk, place);
                Err(Step::Await { address, chunk })
            }
            Located::Miss => match self.stream_missed(place) {
                Some(chunk) => Err(Step::Await { address, chunk }),
                None => Err(fetch),
            },
        }
    }
}
