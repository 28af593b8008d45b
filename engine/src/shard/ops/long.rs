//! Long values: begin, write piece by piece, commit; open, read pieces.
//!
//! A put of a long value is a put of its head. Pieces that were written before it have no head yet,
//! so no client sees them; the commit stores the head as any put does, and with it the whole value.
//! A value that ends takes its pieces along, so a reader finds either the pieces of the value that
//! it opened or none. A reader that has opened the value to keep it finds them until it releases
//! them, whatever becomes of the key.
//!
//! - I1: the pieces of a value with a head are all of its bytes, in order.
//! - I2: a record with the flag [`record::LONG`] is a head, and the table names its value.

use farcore_rdma::Endpoint;

use crate::constants::{
    FRAMES_MIN, LONG_PAUSE_NS, LONG_PINS_MAX, LONG_READER_PINS_MAX, LONG_ROOM_WAIT_NS,
    LONG_VALUE_BYTES_MAX, UNFINISHED_LONG_VALUES_MAX,
};
use crate::error::Error;
use crate::log::record::{self, RecordView};
use crate::log::{Address, SizeClass};
use crate::message::long::{COMMIT_HEAD_BYTES, KEEP, KEEP_IF_FEW, OPENED_BYTES, piece_of, word};
use crate::message::operation::decode_range;
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::local::long_values::{LongRecord, PIECES_A_PAGE, Piece, piece_bytes};
use crate::shard::local::open_pages::TailKind;
use crate::shard::room::pressure::NoRoom;
use crate::shard::step::{Evidence, Found, Hint, Step, answer_or_wait};

/// The length of a value as a size; it is limited.
fn whole_bytes(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

impl<E: Endpoint> Shard<E> {
    /// Bytes of a piece of a long value; the last one may be shorter.
    fn piece_bytes(&self) -> usize {
        piece_bytes(self.shape.page_bytes())
    }

    /// Bytes of a long value that the shard's memory can hold, at most. While a value is written,
    /// none of its pieces may be evicted: a cache keeps an eighth of its far memory for others.
    fn long_bytes_max(&self) -> u64 {
        let extents = self.far.pages.count_max() as u64;
        let pages = if self.evictor.is_on() {
            extents - extents.div_ceil(8)
        } else {
            extents + (self.local.arena.page_frames() as u64).saturating_sub(FRAMES_MIN as u64)
        };
        pages * PIECES_A_PAGE * self.piece_bytes() as u64
    }

    /// True if far memory is full, and a piece of a value has waited so long for room that none
    /// will come.
    fn waits_in_vain(&mut self, id: u64) -> bool {
        let waited_ns = self.long.note_waiting(id, self.now_ns);
        waited_ns > LONG_ROOM_WAIT_NS && self.far.pages.free_count() == 0
    }

    /// Starts a long value and answers its id.
    #[cold]
    pub(in crate::shard) fn long_begin(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let bytes = word(request.value(), 0);
        let max = LONG_VALUE_BYTES_MAX.min(self.long_bytes_max());
        if bytes > max {
            let error = Error::LongValueTooLong { bytes, max };
            return self.fail(lane, request, error, answers);
        }
        let piece_bytes = (self.piece_bytes() as u64).to_le_bytes();
        if !answers.has_room(lane, piece_bytes.len()) {
            return Step::NoRoom {
                value_bytes: piece_bytes.len(),
            };
        }
        let pieces = whole_bytes(bytes).div_ceil(self.piece_bytes());
        let Some(id) = self.long.begin(bytes, pieces, self.now_ns) else {
            let error = Error::LongValues {
                shard: self.id,
                writing: UNFINISHED_LONG_VALUES_MAX,
                pieces: self.long.pieces_max(),
                unfinished: self.long.unfinished_in_the_way(pieces),
            };
            return self.fail(lane, request, error, answers);
        };
        self.has_heads = true;
        self.note_long_begun(request.key(), id, bytes);
        let answer = Answer::Value {
            version: id,
            value: &piece_bytes,
        };
        answers.answer(lane, request.token, answer);
        Step::Done
    }

    /// Appends the next piece of a value.
    #[inline(never)]
    pub(in crate::shard) fn long_write(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let (key, value) = (request.key(), request.value());
        let named = piece_of(key);
        let written = named.and_then(|(id, _)| self.long.written(id));
        let is_next = written.is_some_and(|(pieces, length)| {
            let before = pieces.len() * self.piece_bytes();
            let left = whole_bytes(length).saturating_sub(before);
            named.is_some_and(|(_, place)| place as usize == pieces.len())
                && value.len() == left.min(self.piece_bytes())
                && !value.is_empty()
        });
        let Some((id, _)) = named.filter(|_| is_next) else {
            return answer_or_wait(lane, request, Answer::Absent, answers);
        };
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        let units = record::units_for(key.len(), value.len()) + self.tag_units;
        let room = match self.reserve(TailKind::Log, units) {
            Ok(room) => room,
            Err(NoRoom::Wait) if self.waits_in_vain(id) => {
                let error = self.far.pages.full(self.id);
                return self.fail(lane, request, error, answers);
            }
            Err(NoRoom::Wait) => {
                self.background_due = true;
                return Step::Blocked;
            }
            Err(NoRoom::Never(error)) => return self.fail(lane, request, error, answers),
        };
        self.version += 1;
        let (address, class) = (room.address(), SizeClass::for_units(units));
        room.write(self.version, self.record_flags, key, value);
        self.local
            .commit(TailKind::Log, request.hash, address, class, units);
        self.long.add(id, address, units, self.now_ns);
        self.note_long_piece(id, value);
        self.metrics.counters.long_pieces_written.add(1);
        let version = self.version;
        answers.answer(lane, request.token, Answer::Stored { version });
        Step::Done
    }

    /// Stores the head of a value whose pieces are all written.
    #[cold]
    pub(in crate::shard) fn long_commit(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let id = word(request.value(), 0);
        let put = request.value().get(COMMIT_HEAD_BYTES..).unwrap_or_default();
        let Some((pieces, length)) = self.long.written(id) else {
            return self.fail(lane, request, Error::LongValueGone, answers);
        };
        if pieces.len() != whole_bytes(length).div_ceil(self.piece_bytes()) {
            let given = (pieces.len() * self.piece_bytes()) as u64;
            let error = Error::LongValueLength {
                said: length,
                given,
            };
            return self.fail(lane, request, error, answers);
        }
        if pieces.iter().any(|piece| piece.address.is_none()) {
            return self.fail(lane, request, self.lost_error(None), answers);
        }
        self.head_of = Some(id);
        let step = self.change_with(lane, request, put, (hint, evidence), answers);
        self.head_of = None;
        step
    }

    /// Ends a value that is being written, or releases one that is kept.
    #[cold]
    pub(in crate::shard) fn long_abort(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        if !answers.has_room(lane, 0) {
            return Step::NoRoom { value_bytes: 0 };
        }
        let id = piece_of(request.key()).map(|(id, _)| id);
        let ends = id.and_then(|id| match word(request.value(), 0) {
            0 => self.long.written(id).map(|_| true),
            pin => self.long.unpin(id, pin),
        });
        let (Some(id), Some(ends)) = (id, ends) else {
            return answer_or_wait(lane, request, Answer::Absent, answers);
        };
        if ends {
            self.end_long(id);
        }
        answers.answer(lane, request.token, Answer::Deleted);
        Step::Done
    }

    /// Answers length and id of a key's long value, and keeps it if the request says so; a mismatch
    /// if its value is in a record.
    #[cold]
    pub(in crate::shard) fn long_open(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        hint: &Hint,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let mut found = match self.find_or_step(request, hint, evidence) {
            Ok(found) => found,
            Err(step) => return step,
        };
        if self.has_expired(&found) {
            self.remove_expired_found(request, &found);
            found = Found::Absent;
        }
        let expiry_ms = Self::expiry_of(&found).unwrap_or(0);
        let (header, address) = match &found {
            Found::Absent => return answer_or_wait(lane, request, Answer::Absent, answers),
            Found::Local(local) => (local.record.header(), local.slot.address()),
            Found::Confirmed { slot, far, .. } => (far.header, slot.address()),
            Found::Unknown { slot, .. } => return Step::fetch(*slot),
            Found::Lost { damaged } => {
                return self.fail(lane, request, self.lost_error(*damaged), answers);
            }
        };
        let version = header.version();
        let mut value = [0; OPENED_BYTES];
        let opened = self.long.at_head(address).filter(|_| header.is_long());
        let mut kept = None;
        let answer = match opened {
            None => Answer::Mismatch { current: version },
            Some((length, id)) => {
                let pins_max = match request.value() {
                    KEEP => LONG_PINS_MAX,
                    KEEP_IF_FEW => LONG_READER_PINS_MAX,
                    _ => 0,
                };
                let pin = self.long.pin(id, pins_max, self.now_ns);
                kept = pin.map(|pin| (id, pin));
                let pin = kept.map_or(0, |(_, pin)| pin);
                let words = [length, id, self.piece_bytes() as u64, pin, expiry_ms];
                for (place, word) in value.chunks_exact_mut(8).zip(words) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                Answer::Value {
                    version,
                    value: &value,
                }
            }
        };
        let step = answer_or_wait(lane, request, answer, answers);
        if let (Step::Done, Found::Confirmed { far, .. }) = (step, &found) {
            self.note_served(far);
        }
        // It will be opened again. The value has its head, so it does not end.
        if let Some((id, pin)) = kept.filter(|_| step != Step::Done) {
            self.long.unpin(id, pin);
        }
        step
    }

    /// Answers a part of a piece.
    #[inline(never)]
    pub(in crate::shard) fn long_read(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let named = piece_of(request.key());
        let Some(piece) = named.and_then(|(id, place)| self.long.piece(id, place)) else {
            return answer_or_wait(lane, request, Answer::Absent, answers);
        };
        let Some(address) = piece.address else {
            return self.fail(lane, request, self.lost_error(None), answers);
        };
        if evidence.damaged.contains(&address) {
            return self.fail(lane, request, self.lost_error(Some(address)), answers);
        }
        let confirmed = evidence.confirmed.filter(|far| far.address == address);
        let value = match (self.local.record_at(address), confirmed) {
            (Some(record), _) => record.value(),
            (None, Some(far)) => match far.record.and_then(RecordView::parse) {
                Some(view) => view.value(),
                None => return Step::Blocked,
            },
            (None, None) => {
                let class = piece.class();
                return Step::Fetch { address, class };
            }
        };
        let (offset, bytes) = decode_range(request.value());
        let start = offset.min(value.len());
        let end = start.saturating_add(bytes).min(value.len());
        let answer = Answer::Value {
            version: 0,
            value: &value[start..end],
        };
        let step = answer_or_wait(lane, request, answer, answers);
        if step == Step::Done {
            if let Some((id, _)) = named {
                self.long.note_used(id, self.now_ns);
            }
            self.metrics.counters.long_pieces_read.add(1);
            confirmed.iter().for_each(|far| self.note_served(far));
        }
        step
    }

    /// True if the piece of a key lies at an address.
    #[cold]
    pub(in crate::shard) fn is_piece_at(&self, key: &[u8], address: Address) -> bool {
        let piece = piece_of(key).and_then(|(id, place)| self.long.piece(id, place));
        piece.is_some_and(|piece| piece.address == Some(address))
    }

    /// The units of the piece at an address.
    pub(in crate::shard) fn piece_units_at(&self, address: Address) -> Option<u32> {
        match self.long.owner(address)? {
            LongRecord::Piece(id, place) => Some(self.long.piece(id, place)?.units),
            LongRecord::Head(_) => None,
        }
    }

    /// Ends a value: its pieces are dead.
    #[cold]
    pub(super) fn end_long(&mut self, id: u64) {
        self.note_long_ended(id);
        let pieces = self.long.end(id);
        let lists = self.local.take_lists();
        for piece in pieces {
            self.retire_piece(piece);
        }
        self.local.put_lists(lists);
    }

    fn retire_piece(&mut self, piece: Piece) {
        if let Some(address) = piece.address {
            self.retire(address, piece.account_bytes());
        }
    }

    /// A record is dead. If it is a head, its tree dies, or its value ends, unless a client keeps
    /// it.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn end_at(&mut self, address: Address) {
        if self.trees.bury_at(address) {
            self.background_due = true;
            return;
        }
        if let Some(LongRecord::Head(id)) = self.long.owner(address)
            && !self.long.orphan(id)
        {
            self.end_long(id);
        }
    }

    /// Records of pages are gone: values whose head was there end, pieces there cannot be read.
    #[cold]
    pub(in crate::shard) fn lose_long_values(&mut self, gone: &[bool]) {
        let shape = self.shape;
        let is_gone = |address: Address| gone[address.page(shape) as usize];
        for address in self.long.lying(is_gone) {
            match self.long.owner(address) {
                Some(LongRecord::Piece(..)) => self.long.lose_piece(address),
                Some(LongRecord::Head(id)) => {
                    let pieces = self.long.end(id).into_iter();
                    // What lies in pages that are gone is no longer counted.
                    for piece in pieces.filter(|piece| !piece.address.is_some_and(is_gone)) {
                        self.retire_piece(piece);
                    }
                }
                None => {}
            }
        }
    }

    /// Ends values whose writers or keepers have paused for too long.
    #[cold]
    pub(in crate::shard) fn end_abandoned(&mut self) {
        let since_ns = self.now_ns.saturating_sub(LONG_PAUSE_NS);
        for id in self.long.abandoned(since_ns) {
            self.end_long(id);
        }
    }

    /// Answers a get of a key that holds a long value: an error that says how to read it.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn get_long_value(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        address: Address,
        answers: &mut impl AnswerSink,
    ) -> Step {
        self.fail(
            lane,
            request,
            self.long_error(request.key(), address),
            answers,
        )
    }

    /// The error for a request that does not read or change long values.
    #[cold]
    pub(in crate::shard) fn long_error(&self, key: &[u8], address: Address) -> Error {
        let bytes = self.long.at_head(address).map_or(0, |(length, _)| length);
        Error::LongValue {
            bytes,
            key: key.into(),
        }
    }
}
