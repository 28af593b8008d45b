//! What the parts that serve a request report to each other: how a try ended, what look-ahead
//! found, and what READs have shown.
//!
//! It lies below `lookup`, `ops`, `pending` and `serve`, so that none of them needs another for it.

use crate::index::{Position, Slot};
use crate::log::record::{LocalRecord, RecordHeader};
use crate::log::{Address, SizeClass};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::far::read_ahead::ChunkId;
use crate::shard::local::page_table::Framed;

/// How one try of a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum Step {
    /// Answered.
    Done,
    /// Nothing was changed; retry later.
    Blocked,
    /// The far record at this address must be read first.
    Fetch { address: Address, class: SizeClass },
    /// The far record lies in a chunk that is on its way.
    Await {
        address: Address,
        class: SizeClass,
        chunk: ChunkId,
    },
    /// Nothing was changed: the lane has no room for an answer with a value of this many bytes.
    NoRoom { value_bytes: usize },
}

impl Step {
    /// The step that reads a slot's record.
    pub(in crate::shard) fn fetch(slot: Slot) -> Self {
        Self::Fetch {
            address: slot.address(),
            class: slot.class(),
        }
    }
}

/// Answers a request, or says what room its answer needs.
#[inline]
pub(in crate::shard) fn answer_or_wait(
    lane: ReplyTo,
    request: &Request<'_>,
    answer: Answer<'_>,
    answers: &mut impl AnswerSink,
) -> Step {
    if answers.try_answer(lane, request.token, answer) {
        Step::Done
    } else {
        Step::NoRoom {
            value_bytes: answer.value().len(),
        }
    }
}

/// What look-ahead found for a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) enum Hint {
    /// No look-ahead was done.
    None,
    /// No slot may stand for the key.
    Absent,
    /// No slot in the home bucket or the next may stand for the key, but one may lie further; the
    /// third bucket is prefetched.
    Further,
    /// The first slot that may stand for the key, and where its record is.
    Slot(Position, Slot, Framed),
}

/// What a hint says when its request is served.
pub(in crate::shard) enum HintOutcome {
    /// Nothing: all slots must be examined.
    Unknown,
    /// The key is absent.
    Absent,
    /// The key's record.
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
    /// The slot, its position, where its record is, and the record's header.
    #[inline]
    pub(in crate::shard) fn place(&self) -> (Position, Slot, Framed, RecordHeader) {
        (self.position, self.slot, self.framed, self.record.header())
    }
}

/// What READs have shown about the far records that a request may mean.
#[derive(Clone, Copy, Default)]
pub(in crate::shard) struct Evidence<'a> {
    /// The record that holds the request's key.
    pub(in crate::shard) confirmed: Option<Confirmed<'a>>,
    /// Addresses of records of other keys.
    pub(in crate::shard) cleared: &'a [Address],
    /// Addresses whose bytes twice were not what was written.
    pub(in crate::shard) damaged: &'a [Address],
    /// A cleared record took over a slot that also stands for lost records.
    pub(in crate::shard) hides_lost: bool,
}

impl Evidence<'_> {
    /// No READ yet.
    pub(in crate::shard) const NONE: Self = Self {
        confirmed: None,
        cleared: &[],
        damaged: &[],
        hides_lost: false,
    };
}

/// A far record, read and found to hold the request's key.
#[derive(Clone, Copy)]
pub(in crate::shard) struct Confirmed<'a> {
    pub(in crate::shard) address: Address,
    pub(in crate::shard) header: RecordHeader,
    /// The whole record, verified; `None` if only its head was read.
    pub(in crate::shard) record: Option<&'a [u8]>,
    /// Bytes of the record that the request needs.
    pub(in crate::shard) wanted_bytes: usize,
    /// It was found in a chunk of a stream.
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
    /// The key may be lost: a slot stands for it, or a record of another key took that slot over.
    Lost {
        /// Address of a record that may be the key's and cannot be read.
        damaged: Option<Address>,
    },
}
