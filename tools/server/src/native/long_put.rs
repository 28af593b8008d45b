//! Values that are longer than a record: they come in parts, each in an upload slot or a message,
//! and go on to the task that stores them.
//!
//! The first part has the key, the options, and in `offset` the whole length. All but the last have
//! the flag MORE. A value that a record holds is gathered first. A part is answered when its bytes
//! are taken; the last when the value is stored.
//!
//! - I1: parts of one value are taken in the order in which they came.

use std::collections::VecDeque;

use farcore_protocol::{Flags, HEADER_BYTES, Header, Kind, Status};

use crate::long::input::LongInput;

use super::connection::NativeConnection;
use super::requests::value_bytes;
use crate::figures::native_counters::NativeCounters;
use crate::memory::{Account, Charge};

/// Long values that a connection writes at once, at most.
const LONG_PUTS_MAX: usize = 4;
/// Bytes of a value that wait for its task, at most.
const WAITING_BYTES: usize = 192 << 10;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 64 << 10;

/// A part of which some bytes may be taken.
#[derive(Clone, Copy, Debug)]
struct Part {
    receive: u16,
    /// Where its bytes begin in its message, and how many are taken.
    start: usize,
    bytes: usize,
    taken: usize,
    is_last: bool,
}

/// A value whose parts come.
#[derive(Debug)]
struct LongPut {
    id: u32,
    input: LongInput,
    parts: VecDeque<Part>,
    /// Bytes that the value was said to have, and those of the parts that have come.
    said: usize,
    given: usize,
    /// The parts do not add up: nothing is stored, and their bytes are dropped.
    is_broken: bool,
    /// The last part has come: nothing more is taken for this value.
    has_last: bool,
    /// How it ended.
    ended: Option<(Header, Vec<u8>)>,
    /// The memory that it takes; none if it was refused.
    held: Option<Charge>,
}

impl LongPut {
    /// A value of which no part has come.
    fn new(header: &Header, held: Option<Charge>, now_ms: u64) -> Self {
        let said = long_bytes(header);
        Self {
            id: header.id,
            input: LongInput::upload(said, now_ms),
            parts: VecDeque::new(),
            said,
            given: 0,
            is_broken: false,
            has_last: false,
            ended: None,
            held,
        }
    }

    /// For how long it has made no progress, in milliseconds; 0 if that is not the client's fault.
    fn stalled_ms(&self, now_ms: u64) -> u64 {
        if self.parts.is_empty() {
            self.input.stalled_ms(0, now_ms)
        } else {
            0
        }
    }

    /// Adds a part. Only the last may complete the value: one that adds up earlier, or never, is
    /// not stored.
    fn add(&mut self, part: Part) {
        self.given = self.given.saturating_add(part.bytes);
        self.has_last = part.is_last;
        let adds_up = if part.is_last {
            self.given == self.said
        } else {
            self.given < self.said
        };
        if !adds_up {
            self.is_broken = true;
            self.input.cut();
        }
        self.parts.push_back(part);
    }
}

/// The long values that a connection writes.
#[derive(Debug, Default)]
pub(super) struct LongPuts(Vec<LongPut>);

fn part(receive: u16, header: &Header) -> Part {
    Part {
        receive,
        start: HEADER_BYTES + usize::from(header.key_bytes),
        bytes: value_bytes(header),
        taken: 0,
        is_last: !header.flags.has(Flags::MORE),
    }
}

impl LongPuts {
    /// Whether a request is a further part of a value.
    pub(super) fn takes(&self, header: &Header) -> bool {
        let stores = matches!(header.kind, Kind::Put | Kind::CompareAndSwap);
        let is_open = |put: &LongPut| put.id == header.id && !put.has_last;
        stores && header.key_bytes == 0 && self.0.iter().any(is_open)
    }

    /// Begins a value, which is gathered if it is to lie in a record; `None` if there are too many.
    pub(super) fn begin(
        &mut self,
        (receive, header): (u16, &Header),
        (is_record, piece_bytes): (bool, usize),
        account: &Account,
        now_ms: u64,
    ) -> Option<LongInput> {
        let is_written = |put: &&LongPut| put.held.is_some();
        let written = self.0.iter().filter(is_written).count();
        if written == LONG_PUTS_MAX || self.0.iter().any(|put| put.id == header.id) {
            return None;
        }
        // A task that writes pieces gathers one at a time.
        let gathered = long_bytes(header).min(if is_record { usize::MAX } else { piece_bytes });
        let held = account.try_charge_first(gathered + WAITING_BYTES)?;
        let mut put = LongPut::new(header, Some(held), now_ms);
        let input = put.input.clone();
        put.add(part(receive, header));
        self.0.push(put);
        Some(input)
    }

    /// Refuses a value: its parts are taken and dropped, and the last is answered with the reason.
    pub(super) fn refuse(&mut self, receive: u16, header: &Header, ended: (Header, Vec<u8>)) {
        let mut put = LongPut::new(header, None, u64::MAX);
        put.input.end();
        put.ended = Some(ended);
        put.add(part(receive, header));
        self.0.push(put);
    }

    /// Adds a part.
    pub(super) fn go_on(&mut self, receive: u16, header: &Header, now_ms: u64) {
        let open = |put: &&mut LongPut| put.id == header.id && !put.has_last;
        if let Some(put) = self.0.iter_mut().find(open) {
            put.input.note_sent(value_bytes(header), now_ms);
            put.add(part(receive, header));
        }
    }

    /// Notes how a value ended.
    pub(super) fn end(&mut self, id: u32, header: Header, text: Vec<u8>) {
        if let Some(put) = self.0.iter_mut().find(|put| put.id == id) {
            put.input.end();
            put.ended = Some((header, text));
        }
    }

    /// Notes that nothing more comes.
    pub(super) fn cut(&self) {
        for put in &self.0 {
            put.input.cut();
        }
    }

    /// Ends values of which too little has come for too long: their tasks would wait for ever.
    pub(super) fn cut_silent(&self, now_ms: u64, limit_ms: u64) {
        for put in &self.0 {
            if put.stalled_ms(now_ms) > limit_ms {
                put.input.cut();
            }
        }
    }

    /// The upload that has stalled for longest among those whose end helps, and for how long, in
    /// milliseconds.
    pub(super) fn stalled(
        &self,
        now_ms: u64,
        helps: impl Fn(&LongInput) -> bool,
    ) -> Option<(u64, LongInput)> {
        let all = self.0.iter().filter(|put| helps(&put.input));
        let longest = all.max_by_key(|put| put.stalled_ms(now_ms))?;
        Some((longest.stalled_ms(now_ms), longest.input.clone()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Bytes of the whole value.
pub(super) fn long_bytes(header: &Header) -> usize {
    if header.flags.has(Flags::MORE) {
        usize::try_from(header.offset).unwrap_or(usize::MAX)
    } else {
        value_bytes(header)
    }
}

impl NativeConnection {
    /// Passes bytes of parts on, and answers those of which all are taken. True if any were.
    pub(super) fn pass_on(&mut self, scratch: &mut Vec<u8>, counters: &NativeCounters) -> bool {
        if self.long_puts.is_empty() {
            return false;
        }
        let mut is_busy = false;
        let mut puts = std::mem::take(&mut self.long_puts.0);
        puts.retain_mut(|put| {
            let mut is_open = true;
            while let Some(part) = put.parts.front_mut() {
                if put.is_broken {
                    part.taken = part.bytes;
                }
                is_busy |= self.pass_part(&put.input, part, scratch);
                if part.taken < part.bytes {
                    break;
                }
                let part = *part;
                let Some(asked) = self.requests[usize::from(part.receive)].header else {
                    put.parts.pop_front();
                    continue;
                };
                if !part.is_last {
                    let header = Header {
                        flags: Flags::MORE,
                        ..asked.answer(Status::Ok)
                    };
                    self.finish(counters, part.receive, header, &[]);
                } else if let Some((header, text)) = put.ended.take() {
                    self.finish(counters, part.receive, header, &text);
                    is_open = false;
                } else {
                    break;
                }
                is_busy = true;
                put.parts.pop_front();
            }
            is_open
        });
        puts.append(&mut self.long_puts.0);
        self.long_puts.0 = puts;
        is_busy
    }

    /// Passes bytes of a part on. True if there were any.
    fn pass_part(&self, input: &LongInput, part: &mut Part, scratch: &mut Vec<u8>) -> bool {
        if scratch.len() < COPY_BYTES {
            scratch.resize(COPY_BYTES, 0);
        }
        let request = self.requests[usize::from(part.receive)].clone();
        let before = part.taken;
        while part.taken < part.bytes && !input.is_full(usize::MAX) {
            let bytes = (part.bytes - part.taken).min(COPY_BYTES);
            let piece = &mut scratch[..bytes];
            self.read(&request, part.receive, part.start + part.taken, piece);
            input.push(piece);
            part.taken += bytes;
        }
        part.taken > before
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::memory::{ClientMemory, CoreMemory};

    use super::*;

    #[test]
    fn a_value_is_charged_before_its_parts_are_taken() {
        const PIECE_BYTES: usize = 500_000;
        let limit = 2 * (PIECE_BYTES + WAITING_BYTES);
        let account = Account::new(&CoreMemory::new(Arc::new(ClientMemory::new(limit, 1))));
        let mut puts = LongPuts::default();
        let mut begin = |id, bytes, is_record| {
            let header = Header {
                flags: Flags::MORE,
                offset: bytes,
                ..Header::new(Kind::Put, id)
            };
            let held_as = (is_record, PIECE_BYTES);
            let begun = puts.begin((0, &header), held_as, &account, 1);
            (begun.is_some(), account.held())
        };
        // One that a record holds is gathered as a whole, another piece by piece.
        let whole = 100_000 + WAITING_BYTES;
        assert_eq!(begin(1, 100_000, true), (true, whole));
        let all = whole + PIECE_BYTES + WAITING_BYTES;
        assert_eq!(begin(2, 50_000_000, false), (true, all));
        assert_eq!(begin(3, 50_000_000, false), (false, all));
    }
}
