//! Answers of the engine as messages of the protocol.
//!
//! ```text
//! value below the threshold          SEND: header, value
//! longer, the request has a landing  lend slot: header, value -> WRITE with immediate
//! longer                             lend slot: header, value; SEND: header that names the place
//! longer than any slot               the first part of it, either way; the header has the length
//! ```

use farcore::{Answer, Error, Metadata};
use farcore_protocol::batch::{ANSWER_BYTES, BatchAnswer, push_answer};
use farcore_protocol::{ConditionKind, Flags, HEADER_BYTES, Header, Kind, Status};

use super::connection::{NativeConnection, OwnedAnswer, Stage};
use super::operations::{status_of, text_of, unmet};
use super::requests::Turn;
use super::slots::{Lend, SlotState};
use crate::figures::native_counters::NativeCounters;

/// What delivering an answer works with.
#[derive(Clone, Copy)]
pub(super) struct Delivery<'a> {
    pub(super) counters: &'a NativeCounters,
    pub(super) small_bytes: usize,
}

/// What remains to be done for an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    Nothing,
    /// The value is stored in pieces, and has this many bytes.
    LongRead(u64),
}

/// Why an answer that cannot be cut is not sent.
const NO_SLOT: &str = "no memory is left for a slot that is long enough for the answer";
/// What the text of an error may take.
const ERROR_BYTES: usize = 400;

impl NativeConnection {
    /// Answers a request with what the engine says.
    pub(super) fn deliver(
        &mut self,
        delivery: Delivery<'_>,
        receive: u16,
        part: u16,
        answer: &Answer<'_>,
    ) -> Rest {
        let Some(header) = self.requests[usize::from(receive)].header else {
            return Rest::Nothing;
        };
        if header.kind == Kind::Batch {
            self.deliver_part(delivery.counters, receive, part, answer);
            return Rest::Nothing;
        }
        match (header.kind, answer) {
            (Kind::Get, &Answer::Value { version, value }) => {
                let found = Header {
                    version,
                    ..header.answer(Status::Ok)
                };
                let total = if header.offset == 0 { value.len() } else { 0 };
                self.deliver_value(delivery, receive, &header, (found, total as u64), value);
            }
            // Of a part that was not kept it is not known how long the whole is.
            (Kind::Get, Answer::Failed(Error::LongValue { bytes, key })) => {
                let is_part = key.is_empty() && header.offset > 0;
                return Rest::LongRead(if is_part { 0 } else { *bytes });
            }
            (_, Answer::Failed(error)) => {
                let status = status_of(error);
                self.fail(delivery.counters, receive, status, &text_of(error));
            }
            _ => {
                let found = answer_header(&header, answer);
                self.finish(delivery.counters, receive, found, &[]);
            }
        }
        Rest::Nothing
    }

    /// Answers a get with a value, or a part of it, of which the whole has `total` bytes.
    fn deliver_value(
        &mut self,
        delivery: Delivery<'_>,
        receive: u16,
        asked: &Header,
        (found, total): (Header, u64),
        value: &[u8],
    ) {
        if asked.version != 0 && asked.version != found.version {
            let changed = Header {
                status: Status::VersionMismatch,
                ..found
            };
            return self.finish(delivery.counters, receive, changed, &[]);
        }
        let wanted = match asked.value_bytes {
            0 => usize::MAX,
            bytes => bytes as usize,
        };
        let value = &value[..value.len().min(wanted)];
        let found = Header {
            argument: total,
            ..found
        };
        if !self.transfer(delivery, receive, found, value) {
            // The value is read again when there is a slot.
            self.requests[usize::from(receive)].stage = Stage::Waiting;
            self.waiting_for_slot.push((receive, None));
        }
    }

    /// Sends an answer whose value, which is short, is kept until there is a slot.
    pub(super) fn finish_owned(
        &mut self,
        turn: &Turn<'_>,
        receive: u16,
        header: Header,
        value: Vec<u8>,
    ) {
        let answer = OwnedAnswer {
            header,
            held: Some(self.account.charge(value.capacity())),
            value,
        };
        let delivery = Delivery {
            counters: turn.counters,
            small_bytes: turn.options.small_bytes,
        };
        self.deliver_owned(delivery, receive, answer);
    }

    pub(super) fn deliver_owned(
        &mut self,
        delivery: Delivery<'_>,
        receive: u16,
        mut answer: OwnedAnswer,
    ) {
        let header = answer.header;
        if header.status != Status::Ok && header.status != Status::NotFound {
            delivery.counters.failed.add(1);
        }
        if !self.transfer(delivery, receive, header, &answer.value) {
            if let Some(held) = &mut answer.held {
                held.shrink_to(answer.value.capacity());
            }
            self.waiting_for_slot.push((receive, Some(answer)));
        }
    }

    /// Sends an answer with a value of any length, at least a part of it. False if there is no slot
    /// for it now.
    fn transfer(
        &mut self,
        delivery: Delivery<'_>,
        receive: u16,
        header: Header,
        value: &[u8],
    ) -> bool {
        let Delivery {
            counters,
            small_bytes,
        } = delivery;
        let room = self.message_bytes() - HEADER_BYTES;
        if value.len() < small_bytes.min(room + 1) {
            self.finish(counters, receive, header, value);
            return true;
        }
        let asked = self.requests[usize::from(receive)].header;
        let is_get = asked.is_some_and(|asked| asked.kind == Kind::Get);
        let lend = self.lends.lend(
            &mut self.endpoint,
            &self.account,
            HEADER_BYTES + value.len(),
        );
        let (number, slot) = match lend {
            Lend::Slot(number) => match self.lends.get(number) {
                Some(slot) => (number, slot),
                None => return false,
            },
            Lend::Later => return false,
            Lend::None if !is_get => {
                counters.slots_refused.add(1);
                self.fail(counters, receive, Status::Busy, NO_SLOT);
                return true;
            }
            Lend::None => {
                counters.slots_refused.add(1);
                self.finish(counters, receive, header, &value[..room.min(value.len())]);
                return true;
            }
        };
        if value.len() > slot.bytes - HEADER_BYTES && !is_get {
            counters.slots_refused.add(1);
            self.fail(counters, receive, Status::Busy, NO_SLOT);
            return true;
        }
        let value = &value[..value.len().min(slot.bytes - HEADER_BYTES)];
        self.lends.write(slot, HEADER_BYTES, value);
        let (_, memory_key) = self.lends.keys(slot);
        let header = Header {
            value_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
            ..header
        };
        counters.sent_messages.add(1);
        let lands = asked.is_some_and(|asked| {
            asked.flags.has(Flags::LANDING) && asked.landing_bytes() >= HEADER_BYTES + value.len()
        });
        if lands {
            counters.landings.add(1);
            self.land(receive, header, value.len(), number);
        } else {
            counters.lends.add(1);
            self.lends.set(number, SlotState::Lent);
            let header = Header {
                flags: header.flags.with(Flags::LENT),
                slot: number,
                memory_key,
                offset: slot.offset + HEADER_BYTES as u64,
                ..header
            };
            self.send_answer(receive, header, 0);
        }
        true
    }

    /// Goes on with the answers that wait for slots, if one has become free. True if any may.
    pub(super) fn retry_slots(&mut self, delivery: Delivery<'_>) -> bool {
        if self.waiting_for_slot.is_empty() || !self.lends.take_freed() {
            return false;
        }
        for (receive, answer) in std::mem::take(&mut self.waiting_for_slot) {
            match answer {
                Some(answer) => self.deliver_owned(delivery, receive, answer),
                None => self.waiting.push_back(receive),
            }
        }
        true
    }

    /// Sends an answer that fits a message.
    pub(super) fn finish(
        &mut self,
        counters: &NativeCounters,
        receive: u16,
        header: Header,
        value: &[u8],
    ) {
        let header = Header {
            value_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
            ..header
        };
        self.write_answer(receive, HEADER_BYTES, value);
        counters.sent_messages.add(1);
        self.send_answer(receive, header, value.len());
    }

    /// Answers a request with an error and its text.
    pub(super) fn fail(
        &mut self,
        counters: &NativeCounters,
        receive: u16,
        status: Status,
        reason: &str,
    ) {
        let Some(header) = self.requests[usize::from(receive)].header else {
            return;
        };
        counters.failed.add(1);
        let mut end = reason.len().min(ERROR_BYTES);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let reason = &reason.as_bytes()[..end];
        self.finish(counters, receive, header.answer(status), reason);
    }

    fn deliver_part(
        &mut self,
        counters: &NativeCounters,
        receive: u16,
        part: u16,
        answer: &Answer<'_>,
    ) {
        let request = &mut self.requests[usize::from(receive)];
        request.parts = request.parts.saturating_sub(1);
        let Some(header) = request.header else {
            return;
        };
        let part = Part(part);
        let outcome = match answer {
            Answer::Value { version, value } => (Status::Ok, *version, Some(*value)),
            Answer::Failed(Error::LongValue { .. }) => (Status::Ok, 0, None),
            Answer::Failed(error) => (status_of(error), 0, Some(&[][..])),
            Answer::Mismatch { current } => (part.unmet(*current), *current, Some(&[][..])),
            Answer::Stored { version } => (Status::Ok, *version, Some(&[][..])),
            Answer::Absent => (part.absent(), 0, Some(&[][..])),
            Answer::Deleted => (Status::Ok, 0, Some(&[][..])),
            Answer::Conflict(_) => (Status::Internal, 0, Some(&[][..])),
        };
        self.answer_part(receive, part.place(), outcome);
        self.end_batch(counters, receive, &header);
    }

    /// Adds the answer of an operation to those of its batch.
    pub(super) fn answer_part(
        &mut self,
        receive: u16,
        part: usize,
        (status, version, value): (Status, u64, Option<&[u8]>),
    ) {
        let request = &self.requests[usize::from(receive)];
        let filled = request.filled;
        let kept = (1 + request.parts + request.missing) * ANSWER_BYTES;
        let room = self.message_bytes() - HEADER_BYTES;
        let value = value.filter(|value| filled + kept + value.len() <= room);
        let mut encoded = Vec::with_capacity(ANSWER_BYTES + value.map_or(0, <[u8]>::len));
        let answer = BatchAnswer {
            place: u16::try_from(part).unwrap_or(u16::MAX),
            status,
            version,
            value,
        };
        push_answer(&mut encoded, &answer);
        self.write_answer(receive, HEADER_BYTES + filled, &encoded);
        self.requests[usize::from(receive)].filled = filled + encoded.len();
    }

    /// Sends the answer of a batch of which all operations are answered.
    pub(super) fn end_batch(&mut self, counters: &NativeCounters, receive: u16, header: &Header) {
        let request = &self.requests[usize::from(receive)];
        if request.missing > 0 || request.parts > 0 {
            return;
        }
        let filled = request.filled;
        let header = Header {
            value_bytes: u32::try_from(filled).unwrap_or(u32::MAX),
            ..header.answer(Status::Ok)
        };
        counters.sent_messages.add(1);
        self.send_answer(receive, header, filled);
    }
}

/// An operation of a batch, as its token names it.
///
/// ```text
/// bit 15   11     10      9      8 7     0
/// | 0 | absent is fine | unmet:2 | place:8 |     unmet: 0 version, 1 exists, 2 absent, 3 a delete's
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part(u16);

impl Part {
    pub(super) fn new(place: usize, header: &Header) -> Self {
        let class = match (header.kind, header.condition()) {
            (Kind::Put | Kind::Delete, Ok(ConditionKind::Absent)) => 1,
            (Kind::Put | Kind::Delete, Ok(ConditionKind::Present)) => 2,
            (Kind::Delete, _) => 3,
            _ => 0,
        };
        let stores = matches!(header.kind, Kind::Put | Kind::CompareAndSwap);
        let place = u16::try_from(place).unwrap_or(0xFF) & 0xFF;
        Self(place | class << 8 | u16::from(stores) << 10)
    }

    pub(super) fn word(self) -> usize {
        self.0.into()
    }

    fn place(self) -> usize {
        (self.0 & 0xFF).into()
    }

    fn unmet(self, current: u64) -> Status {
        match self.0 >> 8 & 3 {
            1 => Status::Exists,
            2 => Status::NotFound,
            3 if current == 0 => Status::NotFound,
            _ => Status::VersionMismatch,
        }
    }

    fn absent(self) -> Status {
        if self.0 >> 10 & 1 == 1 {
            Status::Ok
        } else {
            Status::NotFound
        }
    }
}

/// The header that answers a request without a value of its own.
fn answer_header(header: &Header, answer: &Answer<'_>) -> Header {
    let done = header.answer(Status::Ok);
    match *answer {
        Answer::Value { version, value } => match header.kind {
            Kind::Increment => Header {
                version,
                argument: decimal(value).cast_unsigned(),
                ..done
            },
            Kind::Inspect => match Metadata::decode(version, value) {
                Some(metadata) => Header {
                    version,
                    flags: if metadata.collection.is_some() {
                        Flags::COLLECTION
                    } else {
                        Flags::NONE
                    },
                    offset: metadata.length,
                    argument: metadata.expiry_ms.unwrap_or(u64::MAX),
                    ..done
                },
                None => header.answer(Status::Internal),
            },
            _ => Header { version, ..done },
        },
        Answer::Stored { version } => Header { version, ..done },
        Answer::Deleted => done,
        // A put whose time is past finds no key to remove.
        Answer::Absent => match header.kind {
            Kind::Put | Kind::CompareAndSwap => done,
            _ => header.answer(Status::NotFound),
        },
        Answer::Mismatch { current } => Header {
            version: current,
            ..header.answer(unmet(header, current))
        },
        Answer::Conflict(_) | Answer::Failed(_) => header.answer(Status::Internal),
    }
}

/// A number in decimal, as the engine writes it.
fn decimal(text: &[u8]) -> i64 {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
