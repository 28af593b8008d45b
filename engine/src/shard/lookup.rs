//! Finding the record that a request means: among the slots of its hash, in frames, in what was
//! read ahead, or with what an earlier READ has shown.

use farcore_rdma::{Endpoint, prefetch, prefetch_burst};

use crate::bytes::equal;
use crate::constants::{LINE_BYTES, UNIT_BYTES};
use crate::index::{FirstCandidate, Position, Slot};
use crate::log::record::{LocalRecord, RecordHeader};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::message::operation::OperationKind;
use crate::message::request::Request;
use crate::shard::Shard;
use crate::shard::far::read_ahead::{Located, Place};
use crate::shard::local::page_table::Framed;
use crate::shard::serve::Step;

/// Units of a record that are asked for ahead, at most: the processor fetches the rest of a long
/// one by itself.
const UNITS_AHEAD: u32 = 12;
/// The same of a record that is to be deleted: its header and its key.
const UNITS_AHEAD_OF_DELETE: u32 = 2;
/// Cache lines that they lie in, at most.
const LINES_AHEAD: usize = UNITS_AHEAD as usize * UNIT_BYTES / LINE_BYTES + 1;

/// From a record's first byte to the last that is asked for ahead, by class, for those who need the
/// value and for those who do not.
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

/// What looking ahead has found, while the record's cache lines were asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) enum Hint {
    /// Nobody has looked.
    None,
    /// No slot may stand for the key.
    Absent,
    /// None in its home or the next bucket may, but some may lie past its home: the third was asked
    /// for.
    Further,
    /// The first slot that may, and where its record is.
    Slot(Position, Slot, Framed),
}

/// What a hint comes to when its request is served.
pub(in crate::shard) enum HintOutcome {
    /// Nothing certain.
    Unknown,
    /// There is no such key.
    Absent,
    /// The record of the key.
    Local(LocalHint),
}

/// A record in a frame, and the slot that leads to it.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct LocalHint {
    pub(in crate::shard) position: Position,
    pub(in crate::shard) slot: Slot,
    /// Where the record is.
    pub(in crate::shard) framed: Framed,
    pub(in crate::shard) record: LocalRecord,
}

impl LocalHint {
    /// The slot, where it leads to, and the header of the record.
    #[inline]
    pub(in crate::shard) fn place(&self) -> (Position, Slot, Framed, RecordHeader) {
        (self.position, self.slot, self.framed, self.record.header())
    }

    /// The record that a slot leads to.
    ///
    /// # Safety
    /// As [`LocalRecord::at`], for the place in a frame that the slot's address names.
    #[inline]
    unsafe fn new(position: Position, slot: Slot, framed: Framed) -> Self {
        Self {
            position,
            slot,
            framed,
            // SAFETY: by this function's contract.
            record: unsafe { LocalRecord::at(framed.pointer()) },
        }
    }
}

/// What is known about the far records that a request may mean.
#[derive(Clone, Copy, Default)]
pub(in crate::shard) struct Evidence<'a> {
    /// The one that holds the request's key.
    pub(in crate::shard) confirmed: Option<Confirmed<'a>>,
    /// Those that do not.
    pub(in crate::shard) cleared: &'a [Address],
    /// Those that were not what was written, twice.
    pub(in crate::shard) damaged: &'a [Address],
    /// One of those cleared took over a slot that stands for lost records as well.
    pub(in crate::shard) hides_lost: bool,
}

impl Evidence<'_> {
    /// Nothing was read yet.
    pub(in crate::shard) const NONE: Self = Self {
        confirmed: None,
        cleared: &[],
        damaged: &[],
        hides_lost: false,
    };
}

/// The keys inserted while one batch is served, as far as their hashes tell: a key that was absent
/// when the batch was looked ahead is absent still unless it is one of them.
///
/// A bit for each of 512 values of some of a hash's bits: a batch of 64 has one in seventeen looked
/// at again for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct NewKeys([u64; 8]);

impl NewKeys {
    /// The word of a hash, and its bit there.
    #[inline]
    fn place(hash: IndexHash) -> (usize, u64) {
        let word = (hash.0 >> 32) as usize % 8;
        (word, 1 << (hash.0 >> 26 & 63))
    }

    #[inline]
    pub(in crate::shard) fn note(&mut self, hash: IndexHash) {
        let (word, bit) = Self::place(hash);
        self.0[word] |= bit;
    }

    #[inline]
    fn may_hold(&self, hash: IndexHash) -> bool {
        let (word, bit) = Self::place(hash);
        self.0[word] & bit != 0
    }
}

/// What a batch that is being served was looked ahead with.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct LookAheadState {
    pub(in crate::shard) inserted: NewKeys,
    /// How often pages had come or gone when it began.
    pub(in crate::shard) moves: u64,
}

/// A far record, read and found to hold the request's key.
#[derive(Clone, Copy)]
pub(in crate::shard) struct Confirmed<'a> {
    pub(in crate::shard) address: Address,
    pub(in crate::shard) header: RecordHeader,
    /// The whole record, checked, if it was all read.
    pub(in crate::shard) record: Option<&'a [u8]>,
    /// Bytes of the record that the request needed.
    pub(in crate::shard) wanted_bytes: usize,
    /// It had been read ahead.
    pub(in crate::shard) streamed: bool,
}

/// Where the record of a key is.
pub(in crate::shard) enum Found<'a> {
    Absent,
    Local(LocalHint),
    Confirmed {
        position: Position,
        slot: Slot,
        far: Confirmed<'a>,
    },
    Unknown {
        position: Position,
        slot: Slot,
    },
    /// The key may have been lost: a slot stands for it, or a record of another key took that over.
    Lost {
        /// Where a record lies that may be the key's and cannot be read.
        damaged: Option<Address>,
    },
}

impl<E: Endpoint> Shard<E> {
    /// Finds the first slot that may stand for a request's key, and asks for what the request needs
    /// of its record; adds the buckets it looked at.
    #[inline(always)]
    pub(in crate::shard) fn look_ahead<const BURST: bool>(
        &self,
        request: &Request<'_>,
        probes: &mut u64,
    ) -> Hint {
        match self.index.first(request.hash, probes) {
            FirstCandidate::At(position, slot) => self.ask_for::<BURST>(request, position, slot),
            FirstCandidate::Nowhere => Hint::Absent,
            FirstCandidate::Further => Hint::Further,
        }
    }

    /// Looks once more for a request whose first two buckets did not tell, now that the third has
    /// come. What is found holds as what the first look finds does.
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
            FirstCandidate::At(position, slot) => self.ask_for::<false>(request, position, slot),
            FirstCandidate::Nowhere => Hint::Absent,
            FirstCandidate::Further => Hint::Further,
        };
    }

    /// Asks for what a request needs of the record that a slot leads to, in a burst with others or
    /// by itself.
    #[inline(always)]
    fn ask_for<const BURST: bool>(
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
            // Without a branch on the length, which nothing can predict: a line asked for twice
            // costs nothing.
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

    /// The record of a key where looking ahead has found it, if it is still there.
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
                // SAFETY: a slot's address names a whole record in its page's frame, and that is
                // where the frame is now.
                let local = unsafe { LocalHint::new(position, slot, framed) };
                if equal(local.record.key(), request.key()) {
                    HintOutcome::Local(local)
                } else {
                    HintOutcome::Unknown
                }
            }
            _ => HintOutcome::Unknown,
        }
    }

    /// Looks at every slot that may stand for a key.
    fn find<'a>(&self, hash: IndexHash, key: &[u8], evidence: &Evidence<'a>) -> Found<'a> {
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
            // SAFETY: a slot's address names a whole record in its page's frame.
            let local = unsafe { LocalHint::new(position, slot, framed) };
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

    /// The far record that a hint names, if it is to be read without a look at other buckets. Slots
    /// there that stand for the same hash are looked at only if this record turns out to be
    /// another's, or cannot be read.
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

    /// Counts what a request needed of far memory.
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

    /// Finds the record, taking what a stream has read ahead as evidence.
    pub(in crate::shard) fn find_or_step<'a>(
        &mut self,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'a>,
    ) -> Result<Found<'a>, Step> {
        // What is far is returned directly: handed on through an option it would be copied out of
        // parts just stored.
        let key = request.key();
        if let Some(far) = evidence.confirmed {
            // All that changes this key's slot waits behind the request, or has moved the record.
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
                // SAFETY: the chunk is ready, reading on spares its buffer, and nothing else is
                // read before this request is answered.
                let read = unsafe { self.landed(offset, bytes) };
                self.stream_touched(id, place);
                // SAFETY: the same; one record is confirmed at a time.
                let Some(record) = (unsafe { self.record_ahead((page, unit), read) }) else {
                    return Err(fetch);
                };
                if record.key() != key {
                    return Err(fetch);
                }
                let wanted_bytes = record.units() as usize * UNIT_BYTES;
                let far = Confirmed {
                    address,
                    header: record.header(),
                    record: Some(record.bytes()),
                    wanted_bytes,
                    streamed: true,
                };
                Ok(Found::Confirmed {
                    position,
                    slot,
                    far,
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
