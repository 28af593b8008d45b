//! The read of a long value: open, pieces. A value that is in a record is read as such.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{LongPieces, Routed, WINDOW};
use crate::client::shard_requests::ShardRequests;
use crate::constants::LONG_VALUE_BYTES_MAX;
use crate::error::{Error, Result};
use crate::message::hash::{Hasher128, IndexHash};
use crate::message::long::{long_parts, piece_key, word};
use crate::message::operation::{OperationKind, RequestParts, Version};
use crate::message::outcome::Answer;

/// Times that a value is opened again because it was replaced while it was read.
const TRIES: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    /// The value is in a record.
    Plain,
    Read,
    End,
}

/// Where the bytes of a value go.
pub(crate) enum Sink<'a, F> {
    /// Into a buffer, in any order. It holds all that was read in the end, or nothing.
    Buffer(&'a mut Vec<u8>),
    /// To a visitor, in order, with the length of all that is read.
    Visitor(F),
}

/// The visitor of a read into a buffer, which has none.
pub(crate) type NoVisitor = fn(u64, &[u8]);

impl<F: FnMut(u64, &[u8])> Sink<'_, F> {
    fn is_in_order(&self) -> bool {
        matches!(self, Self::Visitor(_))
    }

    /// A value of this length is read from its beginning: nothing of a version before stays.
    fn begin(&mut self, length: u64) {
        if let Self::Buffer(buffer) = self {
            buffer.clear();
            buffer.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        }
    }

    /// Takes bytes that begin at a place of what is read.
    fn take(&mut self, length: u64, at: u64, bytes: &[u8]) {
        match self {
            Self::Visitor(visit) => visit(length, bytes),
            Self::Buffer(buffer) => {
                let start = usize::try_from(at).unwrap_or(usize::MAX);
                let end = start.saturating_add(bytes.len());
                if let Some(target) = buffer.get_mut(start..end) {
                    target.copy_from_slice(bytes);
                }
            }
        }
    }

    /// Nothing was read.
    fn discard(&mut self) {
        if let Self::Buffer(buffer) = self {
            buffer.clear();
        }
    }
}

/// One read of a value.
pub(crate) struct LongGet<'a, F> {
    routed: Routed<'a>,
    hasher: Hasher128,
    /// Offset and bytes that are wanted.
    wanted: (u64, u64),
    sink: Sink<'a, F>,
    stage: Stage,
    sent: bool,
    tries: u32,
    id: u64,
    version: Version,
    /// What is read of the value, and its pieces.
    range: Range<u64>,
    piece_bytes: u64,
    next: u32,
    end: u32,
    under_way: u32,
    /// The next piece to pass on, and later ones that have arrived.
    due: u32,
    early: BTreeMap<u32, Vec<u8>>,
    /// The value has been replaced.
    gone: bool,
    found: bool,
    error: Option<Error>,
}

impl<'a, F: FnMut(u64, &[u8])> LongGet<'a, F> {
    pub(crate) fn new(
        routed: Routed<'a>,
        hasher: Hasher128,
        wanted: (u64, u64),
        sink: Sink<'a, F>,
    ) -> Self {
        Self {
            routed,
            hasher,
            wanted,
            sink,
            stage: Stage::Open,
            sent: false,
            tries: 0,
            id: 0,
            version: 0,
            range: 0..0,
            piece_bytes: 1,
            next: 0,
            end: 0,
            under_way: 0,
            due: 0,
            early: BTreeMap::new(),
            gone: false,
            found: false,
            error: None,
        }
    }

    /// Reads pieces that are there whatever their key holds.
    pub(crate) fn of_pieces(
        pieces: &LongPieces,
        hasher: Hasher128,
        wanted: (u64, u64),
        sink: Sink<'a, F>,
    ) -> Self {
        let routed = Routed {
            key: &[],
            shard: pieces.shard,
            hash: IndexHash(0),
        };
        let mut get = Self {
            // It cannot be opened again.
            tries: TRIES - 1,
            ..Self::new(routed, hasher, wanted, sink)
        };
        get.begin(0, pieces.length, pieces.id, pieces.piece_bytes);
        get
    }

    /// The version of the value, if there is one, after its requests ended so.
    pub(crate) fn result(mut self, ended: Result<()>) -> Result<Option<Version>> {
        let result = match self.error {
            Some(error) => Err(error),
            None => ended.map(|()| self.found.then_some(self.version)),
        };
        if !matches!(result, Ok(Some(_))) {
            self.sink.discard();
        }
        result
    }

    fn go_to(&mut self, stage: Stage) {
        (self.stage, self.sent) = (stage, false);
    }

    /// The key is absent, or cannot be read.
    fn end_without(&mut self, error: Option<Error>) {
        (self.found, self.error) = (false, error);
        self.go_to(Stage::End);
    }

    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.end = self.next;
        self.end_if_read();
    }

    /// The wanted part of a value of this length.
    fn part_of(&self, length: u64) -> Range<u64> {
        let (offset, bytes) = self.wanted;
        offset.min(length)..offset.saturating_add(bytes).min(length)
    }

    fn opened(&mut self, version: Version, value: &[u8]) {
        let [length, id, piece_bytes] = [0, 1, 2].map(|place| word(value, place));
        // No head says more. Room is made for what it says, so it is not believed beyond that.
        let length = length.min(LONG_VALUE_BYTES_MAX);
        self.begin(version, length, id, piece_bytes);
    }

    /// Begins to read the pieces of a value.
    fn begin(&mut self, version: Version, length: u64, id: u64, piece_bytes: u64) {
        (self.id, self.version, self.piece_bytes) = (id, version, piece_bytes.max(1));
        self.range = self.part_of(length);
        let piece = |at: u64| u32::try_from(at / self.piece_bytes).unwrap_or(u32::MAX);
        (self.next, self.end) = (piece(self.range.start), piece(self.range.start));
        if !self.range.is_empty() {
            self.end = piece(self.range.end - 1) + 1;
        }
        self.due = self.next;
        self.found = true;
        self.sink.begin(self.range.end - self.range.start);
        self.go_to(Stage::Read);
        self.end_if_read();
    }

    /// The part of a piece that is wanted: offset in the piece, and bytes.
    fn part_of_piece(&self, place: u32) -> (u64, u64) {
        let start = u64::from(place) * self.piece_bytes;
        let from = self.range.start.max(start);
        let until = self.range.end.min(start + self.piece_bytes);
        (from - start, until - from)
    }

    fn pass_on(&mut self, place: u32, bytes: &[u8]) {
        let at = u64::from(place) * self.piece_bytes + self.part_of_piece(place).0;
        let length = self.range.end - self.range.start;
        self.sink.take(length, at - self.range.start, bytes);
    }

    fn take_piece(&mut self, place: u32, bytes: &[u8]) {
        if bytes.len() as u64 != self.part_of_piece(place).1 {
            return self.fail(Error::Closed);
        }
        if !self.sink.is_in_order() {
            return self.pass_on(place, bytes);
        }
        if place != self.due {
            self.early.insert(place, bytes.to_vec());
            return;
        }
        self.pass_on(place, bytes);
        self.due += 1;
        while let Some(bytes) = self.early.remove(&self.due) {
            self.pass_on(self.due, &bytes);
            self.due += 1;
        }
    }

    /// Ends a read whose last answer has come, or begins it again.
    fn end_if_read(&mut self) {
        if self.under_way > 0 || self.next < self.end {
            return;
        }
        if !std::mem::take(&mut self.gone) || self.error.is_some() {
            return self.go_to(Stage::End);
        }
        self.tries += 1;
        self.early.clear();
        let is_seen = self.sink.is_in_order() && self.due > 0;
        if is_seen || self.tries == TRIES {
            self.error = Some(Error::LongValueGone);
            self.go_to(Stage::End);
        } else {
            self.go_to(Stage::Open);
        }
    }
}

/// Numbers of requests; those of pieces are above.
const OPEN: u32 = 0;
const PLAIN: u32 = 1;
const PIECES: u32 = 2;

impl<F: FnMut(u64, &[u8])> ShardRequests for LongGet<'_, F> {
    fn next<T>(
        &mut self,
        send: impl FnOnce(u16, IndexHash, u32, &RequestParts<'_>) -> (bool, T),
    ) -> Option<T> {
        let Routed { key, shard, hash } = self.routed;
        if self.stage == Stage::Read {
            if self.next >= self.end || self.under_way == WINDOW {
                return None;
            }
            let place = self.next;
            let name = piece_key(self.id, place);
            let (offset, bytes) = self.part_of_piece(place);
            let mut range = [0; 8];
            let short = |word: u64| u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes();
            range[..4].copy_from_slice(&short(offset));
            range[4..].copy_from_slice(&short(bytes));
            let parts = long_parts(OperationKind::LongRead, &name, &range);
            let hash = self.hasher.hash(&name).index;
            let (is_sent, result) = send(shard, hash, PIECES + place, &parts);
            if is_sent {
                self.next += 1;
                self.under_way += 1;
            }
            return Some(result);
        }
        let (kind, number) = match self.stage {
            Stage::Open if !self.sent => (OperationKind::LongOpen, OPEN),
            Stage::Plain if !self.sent => (OperationKind::Get, PLAIN),
            _ => return None,
        };
        let (is_sent, result) = send(shard, hash, number, &long_parts(kind, key, &[]));
        self.sent = is_sent;
        Some(result)
    }

    fn take(&mut self, number: u32, answer: Answer<'_>) {
        match (number, answer) {
            (OPEN, Answer::Value { version, value }) => self.opened(version, value),
            (OPEN, Answer::Mismatch { .. }) => self.go_to(Stage::Plain),
            (PLAIN, Answer::Value { version, value }) => {
                let range = self.part_of(value.len() as u64);
                let bounds = usize::try_from(range.start)
                    .ok()
                    .zip(usize::try_from(range.end).ok());
                let part = bounds.and_then(|(start, end)| value.get(start..end));
                let part = part.unwrap_or_default();
                (self.version, self.found) = (version, true);
                self.sink.begin(part.len() as u64);
                self.sink.take(part.len() as u64, 0, part);
                self.go_to(Stage::End);
            }
            // It was replaced meanwhile.
            (PLAIN, Answer::Failed(Error::LongValue { .. })) => self.go_to(Stage::Open),
            (OPEN | PLAIN, Answer::Absent) => self.end_without(None),
            (OPEN | PLAIN, Answer::Failed(error)) => self.end_without(Some(error.clone())),
            (OPEN | PLAIN, _) => self.end_without(Some(Error::Closed)),
            (piece, answer) => {
                self.under_way -= 1;
                match answer {
                    Answer::Value { value, .. } => self.take_piece(piece - PIECES, value),
                    Answer::Failed(error) => return self.fail(error.clone()),
                    _ => {
                        self.gone = true;
                        self.end = self.next;
                    }
                }
                self.end_if_read();
            }
        }
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::End
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_past_the_end_of_the_new_version_is_empty() {
        let hasher = Hasher128::new(1);
        let mut value = Vec::new();
        let routed = Routed::new(b"k", hasher, 1);
        let mut get = LongGet::new(
            routed,
            hasher,
            (100_000, u64::MAX),
            Sink::<NoVisitor>::Buffer(&mut value),
        );
        let opened = |length: u64, id: u64| -> Vec<u8> {
            [length, id, 50_000]
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect()
        };
        let sent = |get: &mut LongGet<'_, NoVisitor>| {
            let mut numbers = Vec::new();
            while let Some(number) = get.next(|_, _, number, _| (true, number)) {
                numbers.push(number);
            }
            numbers
        };
        assert_eq!(sent(&mut get), [0]);
        get.take(
            0,
            Answer::Value {
                version: 1,
                value: &opened(200_000, 1),
            },
        );
        let pieces = sent(&mut get);
        assert_eq!(pieces.len(), 2);
        get.take(
            pieces[0],
            Answer::Value {
                version: 0,
                value: &[1; 50_000],
            },
        );
        // The value is replaced by a shorter one.
        get.take(pieces[1], Answer::Absent);
        assert_eq!(sent(&mut get), [0]);
        get.take(
            0,
            Answer::Value {
                version: 2,
                value: &opened(90_000, 2),
            },
        );
        assert!(get.is_done());
        assert_eq!(get.result(Ok(())), Ok(Some(2)));
        assert!(value.is_empty(), "{} bytes of version 1", value.len());
    }
}
