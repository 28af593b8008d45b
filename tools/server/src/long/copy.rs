//! What a key held before a change, and new values that are made of it, both of any length.
//!
//! A value that is stored in pieces is kept while it is used, so that it stays readable though the
//! key changes. A new value is written as the parts of it are read, a few hundred KiB at a time.
//!
//! - I1: what was opened is released, whatever the change comes to.

use std::ops::Range;

use farcore::constants::LONG_VALUE_BYTES_MAX;
use farcore::{
    Core, Error, LongPieces, PinKind, PinOutcome, PinnedValue, PutOptions, PutOutcome, Result,
    Version,
};
use futures_lite::future::zip;

use crate::long::input::LongInput;
use crate::memory::{Charge, Shortage};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::bit_operation::BitOperation;

/// Bytes that are read at once.
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;
/// Bytes that a copy takes beside a piece: what was read, and what waits to be written.
const COPY_BYTES: usize = 256 << 10;
/// Copies of a value that is no longer than a record: its client's, and its command's.
const COPIES: usize = 2;
/// Chunks of a value in pieces that are read at once: its client's, and its command's.
const CHUNKS: usize = 2;

/// What a key held.
#[derive(Debug)]
pub(crate) enum Old {
    Absent,
    Short(Vec<u8>, Version),
    Long(PinnedValue),
}

impl Old {
    /// Opens what a key holds.
    ///
    /// # Errors
    /// Those of a get, and that too many long values are kept.
    pub(crate) async fn open(core: &mut Core, key: &[u8]) -> Result<Self> {
        loop {
            match core.get(key).await {
                Ok(None) => return Ok(Self::Absent),
                Ok(Some(value)) => return Ok(Self::Short(value.to_vec(), value.version())),
                Err(Error::LongValue { .. }) => {}
                Err(error) => return Err(error),
            }
            if let PinOutcome::Long(kept) = core.keep_long(key, PinKind::Changing).await? {
                return Ok(Self::Long(kept));
            }
        }
    }

    /// The version under which the key had it; 0 if it was absent.
    pub(crate) fn version(&self) -> Version {
        match self {
            Self::Absent => 0,
            Self::Short(_, version) => *version,
            Self::Long(kept) => kept.version,
        }
    }

    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Short(value, _) => value.len() as u64,
            Self::Long(kept) => kept.pieces.length(),
        }
    }

    /// A part of it.
    pub(crate) fn segment(&self, range: Range<u64>) -> Segment<'_> {
        match self {
            Self::Absent => Segment::Bytes(&[]),
            Self::Short(value, _) => {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(value.len());
                Segment::Bytes(&value[place(range.start)..place(range.end)])
            }
            Self::Long(kept) => Segment::Pieces(&kept.pieces, range),
        }
    }

    /// True if it is these bytes.
    ///
    /// # Errors
    /// It could not be read.
    pub(crate) async fn equals(&self, core: &mut Core, bytes: &[u8]) -> Result<bool> {
        match self {
            Self::Absent => Ok(false),
            Self::Short(value, _) => Ok(value == bytes),
            Self::Long(kept) if kept.pieces.length() != bytes.len() as u64 => Ok(false),
            Self::Long(kept) => {
                let (mut part, mut at) = (Vec::new(), 0);
                for compared in bytes.chunks(usize::try_from(CHUNK_BYTES).unwrap_or(1)) {
                    steps::end_slice(core).await;
                    steps::count_copied(compared.len());
                    core.read_pieces(&kept.pieces, at, compared.len() as u64, &mut part)
                        .await?;
                    if part != compared {
                        return Ok(false);
                    }
                    at += compared.len() as u64;
                }
                Ok(true)
            }
        }
    }

    /// Lets it go.
    pub(crate) async fn release(self, core: &mut Core) {
        if let Self::Long(kept) = self {
            // If it fails the engine closes, and the value ends with it.
            let _ = core.release_long(kept).await;
        }
    }
}

/// A part of a new value.
#[derive(Clone, Debug)]
pub(crate) enum Segment<'a> {
    Bytes(&'a [u8]),
    Zeros(u64),
    Pieces(&'a LongPieces, Range<u64>),
    Combined(&'a Combined<'a>),
}

/// The bits of several values, of which each is opened.
#[derive(Debug)]
pub(crate) struct Combined<'a> {
    pub(crate) values: &'a [Old],
    pub(crate) operation: BitOperation,
    /// Bytes of the longest.
    pub(crate) length: u64,
}

impl Combined<'_> {
    /// Makes some bytes of them in a buffer, which it replaces.
    async fn read(
        &self,
        core: &mut Core,
        (at, bytes): (u64, u64),
        part: &mut Vec<u8>,
    ) -> Result<()> {
        let mut other = Vec::new();
        for (place, value) in self.values.iter().enumerate() {
            let end = value.length().min(at + bytes);
            let into = if place == 0 { &mut *part } else { &mut other };
            into.clear();
            if at < end {
                value
                    .segment(at..end)
                    .read_plain(core, (0, end - at), into)
                    .await?;
            }
            steps::count_copied(piece_bytes(bytes));
            if place == 0 {
                part.resize(piece_bytes(bytes), 0);
                self.operation.begin(part);
            } else {
                self.operation.take(part, &other);
            }
            steps::end_slice(core).await;
        }
        Ok(())
    }
}

impl Segment<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(bytes) => *bytes,
            Self::Pieces(_, range) => range.end.saturating_sub(range.start),
            Self::Combined(combined) => combined.length,
        }
    }

    /// Reads some bytes of it into a buffer, which it replaces.
    pub(crate) async fn read(&self, core: &mut Core, at: u64, part: &mut Vec<u8>) -> Result<()> {
        let bytes = CHUNK_BYTES.min(self.bytes() - at);
        steps::end_slice(core).await;
        steps::count_copied(piece_bytes(bytes));
        match self {
            Self::Combined(combined) => combined.read(core, (at, bytes), part).await,
            plain => plain.read_plain(core, (at, bytes), part).await,
        }
    }

    /// Reads bytes of what is not combined of others.
    async fn read_plain(
        &self,
        core: &mut Core,
        (at, bytes): (u64, u64),
        part: &mut Vec<u8>,
    ) -> Result<()> {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        match self {
            Self::Pieces(pieces, range) => {
                core.read_pieces(pieces, range.start + at, bytes, part)
                    .await?;
            }
            Self::Bytes(all) => {
                part.clear();
                part.extend_from_slice(&all[place(at)..place(at + bytes)]);
            }
            Self::Zeros(_) | Self::Combined(_) => {
                part.clear();
                part.resize(place(bytes), 0);
            }
        }
        if part.len() as u64 == bytes {
            Ok(())
        } else {
            Err(Error::LongValueGone)
        }
    }
}

/// What a command does with a value that it holds memory for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueUse {
    /// It reads it.
    Read,
    /// It stores it anew, with this many bytes more.
    Rewrite { added: usize },
}

/// Charges what a key's value takes while it is used: one in pieces is read and written in chunks,
/// any other is copied as a whole.
///
/// # Errors
/// The client may not have so much.
pub(crate) async fn hold_value(
    core: &mut Core,
    output: &TaskOutput,
    key: &[u8],
    used: ValueUse,
) -> std::result::Result<Charge, Shortage> {
    let record = output.value_bytes_max();
    let (length, read) = read_needs(core, output, key).await;
    let written = match used {
        ValueUse::Read => 0,
        ValueUse::Rewrite { added } if length.saturating_add(added) > record => {
            COPY_BYTES + record / 2
        }
        ValueUse::Rewrite { added } => COPIES * (length + added),
    };
    let held = output.hold_when_free(core, read + written).await;
    wait_for_turn(core, output, length).await;
    held
}

/// As [`hold_value`], to read the next of several values of a reply. What is held for the one
/// before is kept: its client takes the reply, and need not wait for memory at each value anew.
///
/// # Errors
/// The client may not have so much.
pub(crate) async fn hold_next(
    core: &mut Core,
    output: &TaskOutput,
    key: &[u8],
    held: &mut Option<Charge>,
) -> std::result::Result<(), Shortage> {
    let (length, bytes) = read_needs(core, output, key).await;
    if held.as_ref().is_none_or(|held| held.bytes() < bytes) {
        // Not in addition: two that hold a part could wait for each other.
        *held = None;
        *held = Some(output.hold_when_free(core, bytes).await?);
    }
    wait_for_turn(core, output, length).await;
    Ok(())
}

/// Waits for the turn in which a value is copied whole. One in pieces is copied in steps, each in
/// its turn.
async fn wait_for_turn(core: &Core, output: &TaskOutput, length: usize) {
    if length <= output.value_bytes_max() {
        output.turn(core, COPIES * length).await;
    }
}

/// The length of a key's value, and the bytes that it takes to read it.
async fn read_needs(core: &mut Core, output: &TaskOutput, key: &[u8]) -> (usize, usize) {
    let length = match core.inspect(key).await {
        Ok(Some(metadata)) => usize::try_from(metadata.length).unwrap_or(usize::MAX),
        // Whatever it is, the command finds it too.
        _ => 0,
    };
    let is_in_pieces = length > output.value_bytes_max();
    let bytes = if is_in_pieces {
        CHUNKS * piece_bytes(CHUNK_BYTES)
    } else {
        COPIES * length
    };
    (length, bytes)
}

fn piece_bytes(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Stores a value that segments make. The caller holds memory for it ([`hold_value`]).
///
/// # Errors
/// A segment cannot be read, or the value cannot be stored; the key is as before.
pub(crate) async fn put_segments(
    core: &mut Core,
    key: &[u8],
    segments: &[Segment<'_>],
    options: PutOptions<'_>,
    output: &TaskOutput,
) -> Result<PutOutcome> {
    let total: u64 = segments.iter().map(Segment::bytes).sum();
    let (bytes, max) = (total, LONG_VALUE_BYTES_MAX);
    if bytes > max {
        return Err(Error::LongValueTooLong { bytes, max });
    }
    let whole = usize::try_from(total).unwrap_or(usize::MAX);
    output.note_value(whole);
    if whole <= output.value_bytes_max() {
        let (mut value, mut part) = (Vec::with_capacity(whole), Vec::new());
        for segment in segments {
            let mut at = 0;
            while at < segment.bytes() {
                segment.read(core, at, &mut part).await?;
                value.extend_from_slice(&part);
                at += part.len() as u64;
            }
        }
        output.turn(core, whole).await;
        return core.put_long_with(key, total, [value], options).await;
    }
    let put = put_pieces(core, (key, total), segments, options, output).await;
    // It may hold what others wait for, so it does not wait itself: its client may try again.
    output.shared().long_places.note(&put);
    put
}

/// Stores a value that segments make in pieces.
async fn put_pieces(
    core: &mut Core,
    (key, total): (&[u8], u64),
    segments: &[Segment<'_>],
    options: PutOptions<'_>,
    output: &TaskOutput,
) -> Result<PutOutcome> {
    let input = LongInput::new(piece_bytes(total));
    let mut writer = core.beside().await?;
    let write = async {
        let put = writer
            .put_long_with(key, total, input.parts(), options)
            .await;
        input.end();
        put
    };
    let read = async {
        let passed = pass(core, segments, &input, output).await;
        if passed.is_err() {
            input.cut();
        }
        passed
    };
    let (put, passed) = zip(write, read).await;
    passed?;
    put
}

/// Passes segments on to the writer, until it has ended.
async fn pass(
    core: &mut Core,
    segments: &[Segment<'_>],
    input: &LongInput,
    output: &TaskOutput,
) -> Result<()> {
    let mut part = Vec::new();
    for segment in segments {
        let mut at = 0;
        while at < segment.bytes() {
            if !input.room(core).await {
                return Ok(());
            }
            let left = piece_bytes(segment.bytes() - at);
            // It is read, passed on and written.
            output.turn(core, left.min(piece_bytes(CHUNK_BYTES))).await;
            segment.read(core, at, &mut part).await?;
            at += part.len() as u64;
            input.push(&part);
        }
    }
    Ok(())
}

/// Writes the bytes of a value as the client takes them, after its head, and the end of a bulk
/// string.
pub(crate) async fn send_bytes(core: &Core, output: &TaskOutput, value: &[u8]) {
    send_chunks(core, output, value).await;
    output.write(|output| output.extend_from_slice(b"\r\n"));
}

/// Writes bytes as the client takes them.
pub(crate) async fn send_chunks(core: &Core, output: &TaskOutput, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() && !output.is_gone() {
        output.room(core).await;
        steps::end_slice(core).await;
        let (chunk, after) = rest.split_at(output.chunk_bytes().min(rest.len()));
        steps::count_copied(chunk.len());
        output.write(|output| output.extend_from_slice(chunk));
        rest = after;
    }
}

/// Writes a part of a value as the client takes it, after its head, and the end of a bulk string.
/// The connection is closed if it cannot be read to its end.
pub(crate) async fn send_pieces(
    core: &mut Core,
    output: &TaskOutput,
    pieces: &LongPieces,
    range: Range<u64>,
) {
    let (mut at, mut part) = (range.start, Vec::new());
    while at < range.end && !output.is_gone() {
        output.room(core).await;
        let bytes = (output.chunk_bytes() as u64).min(range.end - at);
        steps::end_slice(core).await;
        steps::count_copied(piece_bytes(bytes));
        output.turn(core, piece_bytes(bytes)).await;
        let read = core.read_pieces(pieces, at, bytes, &mut part).await;
        if read.is_err() || part.len() as u64 != bytes {
            return output.break_off();
        }
        output.write(|output| output.extend_from_slice(&part));
        at += bytes;
    }
    output.write(|output| output.extend_from_slice(b"\r\n"));
}
