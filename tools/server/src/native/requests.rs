//! Messages of a client, and the begin of its requests.

use farcore::{Core, Operation, Refused};
use farcore_protocol::batch::{ANSWER_BYTES, Operations};
use farcore_protocol::scan::{CURSOR_BYTES, ENTRIES_MAX};
use farcore_protocol::{
    CreditError, Flags, HEADER_BYTES, Header, Kind, Status, TRANSFER_SLOT_BYTES,
    TRANSFER_SLOT_BYTES_MAX, VALUE_BYTES_MAX, WireError,
};

use super::answers::Part;
use super::connection::{NativeConnection, Request, Stage};
use super::events::NativeEvents;
use super::long_put::long_bytes;
use super::operations::{operation, put_options, status_of, text_of};
use super::pages::charge_page;
use super::slots::SlotState;
use super::tasks::{LongPutTask, Place, Tasks};
use crate::durability::READ_ONLY;
use crate::figures::native_counters::NativeCounters;
use crate::memory::ClientMemory;
use crate::options::NativeOptions;

/// The longest upload slot that a client can request, at least as long as the first ones.
const SLOT_BYTES: std::ops::RangeInclusive<usize> = TRANSFER_SLOT_BYTES..=TRANSFER_SLOT_BYTES_MAX;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Violation {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Credits(#[from] CreditError),
    #[error("it names upload slot {0}, which it does not have")]
    Upload(u32),
    #[error("it returns lend slot {0}, which it does not have")]
    Done(u16),
    #[error("it sent a message that is no request")]
    Kind,
}

/// What a turn works with, for one connection.
pub(super) struct Turn<'a> {
    pub(super) core: &'a mut Core,
    pub(super) number: usize,
    pub(super) options: &'a NativeOptions,
    pub(super) counters: &'a NativeCounters,
    pub(super) memory: &'a ClientMemory,
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) tasks: &'a mut Tasks,
    pub(super) events: &'a mut NativeEvents,
    /// Bytes of a value that any put stores in a record.
    pub(super) record_bytes: usize,
    pub(super) now_ms: u64,
    /// The server follows another one, whose data clients may not change.
    pub(super) is_read_only: bool,
    /// The figures that a client reads.
    pub(super) statistics: &'a dyn Fn() -> String,
}

/// Whether a request could begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Begun,
    /// The engine has no room now.
    Full,
}

/// The token of an operation of a request.
pub(super) fn token(connection: usize, receive: u16, part: usize) -> u64 {
    (connection as u64) << 32 | u64::from(receive) << 16 | part as u64
}

/// Connection, receive and part of a token.
pub(super) fn of_token(token: u64) -> (usize, u16, u16) {
    let short = |word: u64| u16::try_from(word & 0xFFFF).unwrap_or(0);
    let connection = usize::try_from(token >> 32).unwrap_or(usize::MAX);
    (connection, short(token >> 16), short(token))
}

impl NativeConnection {
    /// Takes a message: a request begins as soon as it can be answered.
    pub(super) fn receive(
        &mut self,
        turn: &mut Turn<'_>,
        receive: u16,
        bytes: usize,
        immediate: Option<u32>,
    ) -> Result<(), Violation> {
        turn.counters.received_messages.add(1);
        let upload = match immediate {
            Some(word) => {
                turn.counters.uploads.add(1);
                Some(self.take_upload(word)?)
            }
            None => None,
        };
        let mut request = Request {
            stage: Stage::Waiting,
            upload,
            ..Request::default()
        };
        let mut head = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES {
            return Err(WireError::Short(bytes).into());
        }
        self.read(&request, receive, 0, &mut head);
        let header = Header::decode(&head)?;
        let body = usize::from(header.key_bytes) + value_bytes(&header);
        if HEADER_BYTES + body != bytes {
            return Err(WireError::Long(bytes).into());
        }
        let slot = upload.and_then(|upload| self.uploads.get(upload));
        if slot.is_some_and(|slot| bytes > slot.bytes) {
            return Err(WireError::Long(bytes).into());
        }
        self.credits.received(header.credits)?;
        if header.done > 0 {
            self.take_back(header.done - 1)?;
        }
        if header.is_answer {
            return Err(Violation::Kind);
        }
        match header.kind {
            Kind::Noop | Kind::Done => {
                let mut slots = vec![0; body];
                self.read(&request, receive, HEADER_BYTES, &mut slots);
                for slot in slots.as_chunks().0 {
                    self.take_back(u16::from_le_bytes(*slot))?;
                }
                if let Some(upload) = upload {
                    self.uploads.set(upload, SlotState::Free);
                }
                self.repost(receive);
            }
            Kind::Hello | Kind::Challenge | Kind::Prove | Kind::Welcome | Kind::Refused => {
                return Err(Violation::Kind);
            }
            _ => {
                turn.counters.requests.add(1);
                request.header = Some(header);
                self.requests[usize::from(receive)] = request;
                self.waiting.push_back(receive);
            }
        }
        Ok(())
    }

    fn take_upload(&mut self, word: u32) -> Result<u16, Violation> {
        let number = u16::try_from(word).map_err(|_| Violation::Upload(word))?;
        match self.uploads.get(number) {
            Some(slot) if slot.state == SlotState::Free => {
                self.uploads.set(number, SlotState::Used);
                Ok(number)
            }
            _ => Err(Violation::Upload(word)),
        }
    }

    /// Takes a lend slot back.
    fn take_back(&mut self, number: u16) -> Result<(), Violation> {
        match self.lends.get(number) {
            Some(slot) if slot.state == SlotState::Lent => {
                self.lends.set(number, SlotState::Free);
                Ok(())
            }
            _ => Err(Violation::Done(number)),
        }
    }

    /// Begins the requests that wait, in order, as far as they can be answered. True if any began.
    pub(super) fn serve_waiting(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut is_busy = false;
        self.is_blocked = false;
        while let Some(&receive) = self.waiting.front() {
            if self.is_gone || !self.keep_answer(receive) {
                break;
            }
            match self.begin(turn, receive) {
                Flow::Begun => {}
                Flow::Full => {
                    self.is_blocked = true;
                    break;
                }
            }
            self.waiting.pop_front();
            is_busy = true;
        }
        is_busy
    }

    fn begin(&mut self, turn: &mut Turn<'_>, receive: u16) -> Flow {
        let request = self.requests[usize::from(receive)].clone();
        let Some(header) = request.header else {
            return Flow::Begun;
        };
        self.requests[usize::from(receive)].stage = Stage::Running;
        let key_bytes = usize::from(header.key_bytes);
        let bytes = key_bytes + value_bytes(&header);
        if self.long_puts.takes(&header) || is_long(&header, turn.record_bytes) {
            self.begin_long(turn, receive, &header);
            return Flow::Begun;
        }
        let mut scratch = std::mem::take(turn.scratch);
        if scratch.len() < bytes {
            scratch.resize(bytes, 0);
        }
        self.read(&request, receive, HEADER_BYTES, &mut scratch[..bytes]);
        let (key, value) = scratch[..bytes].split_at(key_bytes);
        let flow = match header.kind {
            Kind::Batch => self.begin_batch(turn, receive, &header, value),
            Kind::Ping => {
                self.finish(turn.counters, receive, header.answer(Status::Ok), &[]);
                Flow::Begun
            }
            Kind::Grow => {
                self.grow(turn, receive, &header);
                Flow::Begun
            }
            Kind::Statistics => {
                let text = (turn.statistics)();
                self.finish_owned(turn, receive, header.answer(Status::Ok), text.into_bytes());
                Flow::Begun
            }
            Kind::ForgetLost => {
                let place = Place::Request(receive);
                turn.tasks
                    .forget_lost(turn.core, (turn.number, place), header);
                self.outstanding += 1;
                Flow::Begun
            }
            Kind::Scan => self.begin_scan(turn, receive, &header, value),
            _ => self.begin_operation(turn, receive, &header, (key, value)),
        };
        *turn.scratch = scratch;
        if flow == Flow::Full {
            self.requests[usize::from(receive)].stage = Stage::Waiting;
        }
        flow
    }

    fn begin_operation(
        &mut self,
        turn: &mut Turn<'_>,
        receive: u16,
        header: &Header,
        (key, value): (&[u8], &[u8]),
    ) -> Flow {
        let operation = match operation(header, key, value) {
            Ok(Some(operation)) => operation,
            Ok(None) => {
                self.fail(turn.counters, receive, Status::Protocol, "no such request");
                return Flow::Begun;
            }
            Err(error) => {
                self.fail(turn.counters, receive, Status::Protocol, &error.to_string());
                return Flow::Begun;
            }
        };
        if turn.is_read_only && !is_read(&operation) {
            self.fail(turn.counters, receive, Status::Protocol, READ_ONLY);
            return Flow::Begun;
        }
        let token = token(turn.number, receive, 0);
        match turn.events.submit(turn.core, operation, token) {
            Ok(()) => self.outstanding += 1,
            Err(Refused::Full) => return Flow::Full,
            Err(Refused::Error(error)) => {
                let status = status_of(&error);
                self.fail(turn.counters, receive, status, &text_of(&error));
            }
        }
        Flow::Begun
    }

    /// Begins the operations of a batch that have not begun.
    fn begin_batch(
        &mut self,
        turn: &mut Turn<'_>,
        receive: u16,
        header: &Header,
        body: &[u8],
    ) -> Flow {
        let room = self.message_bytes() - HEADER_BYTES;
        let count = match count_operations(body) {
            Ok(count) if count * ANSWER_BYTES <= room => count,
            Ok(count) => {
                let reason = format!("the answers to {count} operations do not fit a message");
                self.fail(turn.counters, receive, Status::Protocol, &reason);
                return Flow::Begun;
            }
            Err(error) => {
                self.fail(turn.counters, receive, Status::Protocol, &error.to_string());
                return Flow::Begun;
            }
        };
        let place = usize::from(receive);
        let begun = self.requests[place].begun;
        for (part, read) in Operations::of(body).enumerate().skip(begun) {
            self.requests[place].missing = count - part - 1;
            self.requests[place].begun = part + 1;
            // All were checked.
            let Ok((one, key, value)) = read else {
                continue;
            };
            let Ok(Some(operation)) = operation(&one, key, value) else {
                continue;
            };
            if turn.is_read_only && !is_read(&operation) {
                self.answer_part(receive, part, (Status::Protocol, 0, Some(&[])));
                continue;
            }
            let token = token(turn.number, receive, Part::new(part, &one).word());
            match turn.events.submit(turn.core, operation, token) {
                Ok(()) => {
                    self.outstanding += 1;
                    self.requests[place].parts += 1;
                }
                Err(Refused::Full) => {
                    self.requests[place].missing = count - part;
                    self.requests[place].begun = part;
                    return Flow::Full;
                }
                Err(Refused::Error(error)) => {
                    self.answer_part(receive, part, (status_of(&error), 0, Some(&[])));
                }
            }
        }
        self.end_batch(turn.counters, receive, header);
        Flow::Begun
    }

    /// Adds upload slots: their number is in `slot`, the bytes of each in `argument`.
    fn grow(&mut self, turn: &mut Turn<'_>, receive: u16, header: &Header) {
        let bytes = usize::try_from(header.argument).unwrap_or(usize::MAX);
        if !SLOT_BYTES.contains(&bytes) || header.slot == 0 {
            let reason = format!("an upload slot has {SLOT_BYTES:?} bytes");
            return self.fail(turn.counters, receive, Status::Protocol, &reason);
        }
        let bytes = bytes.next_multiple_of(4096);
        let added = self
            .uploads
            .add(&mut self.endpoint, &self.account, header.slot, bytes);
        match added {
            Some(facts) => {
                self.finish(
                    turn.counters,
                    receive,
                    header.answer(Status::Ok),
                    &facts.encode(),
                );
            }
            None => {
                turn.counters.slots_refused.add(1);
                let reason = "no memory is left for longer slots";
                self.fail(turn.counters, receive, Status::Busy, reason);
            }
        }
    }

    fn begin_scan(
        &mut self,
        turn: &mut Turn<'_>,
        receive: u16,
        header: &Header,
        value: &[u8],
    ) -> Flow {
        let cursor = match value.len() {
            0 => Some(None),
            CURSOR_BYTES => value.first_chunk().map(|cursor| Some(*cursor)),
            _ => None,
        };
        let entries = u32::try_from(header.argument).ok();
        let entries = entries.filter(|entries| (1..=ENTRIES_MAX).contains(entries));
        let (Some(cursor), Some(entries)) = (cursor, entries) else {
            let reason = format!("a scan has a cursor, and 1 to {ENTRIES_MAX} entries a page");
            self.fail(turn.counters, receive, Status::Protocol, &reason);
            return Flow::Begun;
        };
        let Some(memory) = charge_page(&self.account) else {
            turn.memory.want(turn.now_ms);
            return Flow::Full;
        };
        let values = header.flags.has(Flags::VALUES);
        let place = Place::Request(receive);
        turn.tasks.scan(
            turn.core,
            (turn.number, place),
            (*header, cursor),
            (entries, values),
            memory,
        );
        self.outstanding += 1;
        Flow::Begun
    }

    /// Begins a long put, or goes on with it.
    fn begin_long(&mut self, turn: &mut Turn<'_>, receive: u16, header: &Header) {
        if self.long_puts.takes(header) {
            self.long_puts.go_on(receive, header, turn.now_ms);
            return;
        }
        if turn.is_read_only {
            return self.refuse_long(turn, receive, (Status::Protocol, READ_ONLY));
        }
        let options = match put_options(header) {
            Ok(options) => options,
            Err(error) => {
                return self.refuse_long(turn, receive, (Status::Protocol, &error.to_string()));
            }
        };
        let bytes = long_bytes(header) as u64;
        if bytes > VALUE_BYTES_MAX {
            // At once: what is refused at its last part would be sent until then.
            let reason = format!("a value of {bytes} bytes: the limit is {VALUE_BYTES_MAX}");
            return self.fail(turn.counters, receive, Status::ValueTooLong, &reason);
        }
        if bytes == 0 {
            let reason = "a value without bytes has no parts";
            return self.refuse_long(turn, receive, (Status::Protocol, reason));
        }
        let mut key = vec![0; header.key_bytes.into()];
        let request = self.requests[usize::from(receive)].clone();
        self.read(&request, receive, HEADER_BYTES, &mut key);
        let is_record = long_bytes(header) <= turn.record_bytes;
        let held_as = (is_record, turn.record_bytes / 2);
        let begun = self
            .long_puts
            .begin((receive, header), held_as, &self.account, turn.now_ms);
        let Some(input) = begun else {
            turn.counters.slots_refused.add(1);
            turn.memory.want(turn.now_ms);
            let reason = if self.long_puts.is_empty() {
                let reason =
                    "no memory is left for a value in parts: raise the server's slot memory";
                (Status::NoMemory, reason)
            } else {
                let reason = "too many long values are being written: wait for one";
                (Status::Busy, reason)
            };
            return self.refuse_long(turn, receive, reason);
        };
        let put = LongPutTask {
            header: *header,
            key,
            input,
            options,
            is_record,
            events: turn.events.sink(),
        };
        turn.tasks.put(turn.core, turn.number, put);
        self.outstanding += 1;
    }
}

impl NativeConnection {
    /// Refuses a long put, of which parts may be under way.
    fn refuse_long(&mut self, turn: &mut Turn<'_>, receive: u16, reason: (Status, &str)) {
        let Some(header) = self.requests[usize::from(receive)].header else {
            return;
        };
        if !header.flags.has(Flags::MORE) {
            return self.fail(turn.counters, receive, reason.0, reason.1);
        }
        turn.counters.failed.add(1);
        let answer = (header.answer(reason.0), reason.1.as_bytes().to_vec());
        self.long_puts.refuse(receive, &header, answer);
    }
}

/// True if an operation changes nothing.
fn is_read(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Get { .. } | Operation::GetRange { .. } | Operation::Inspect { .. }
    )
}

/// Operations of a batch, all of them valid.
fn count_operations(body: &[u8]) -> Result<usize, WireError> {
    let mut count = 0;
    for read in Operations::of(body) {
        let (header, key, value) = read?;
        operation(&header, key, value)?;
        count += 1;
    }
    Ok(count)
}

/// Bytes of the value that a request carries.
pub(super) fn value_bytes(header: &Header) -> usize {
    if header.kind == Kind::Get {
        return 0;
    }
    header.value_bytes as usize
}

/// Whether a put comes in parts, or has more than a record holds beside options.
fn is_long(header: &Header, record_bytes: usize) -> bool {
    let stores = matches!(header.kind, Kind::Put | Kind::CompareAndSwap);
    stores && (header.flags.has(Flags::MORE) || value_bytes(header) > record_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_were_written() {
        for connection in [0, 1, (1 << 16) - 1] {
            for receive in [0, 1, u16::MAX] {
                for part in [0, 63] {
                    let read = of_token(token(connection, receive, part));
                    assert_eq!(
                        read,
                        (connection, receive, u16::try_from(part).expect("short"))
                    );
                }
            }
        }
    }
}
