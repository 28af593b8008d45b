//! Calls that work with the pieces of a long value whatever its key holds meanwhile: a value that
//! is kept stays readable though its key is deleted or overwritten, and a value that is written is
//! stored later, under a condition that may be tried several times.
//!
//! They are for clients that pass long values on in parts: a reply that returns what a change
//! replaces, or a new value that is made of an old one.
//!
//! - I1: a value that is kept or written and not used for a minute ends: its pieces are removed if
//!   no key has it. So does one whose client was dropped.

use super::{LongGet, LongPut, NoVisitor, Routed, Sink};
use crate::client::call::PutOutcome;
use crate::client::core::Core;
use crate::client::long::calls::routed;
use crate::client::shard_requests::{RunShardRequests, ShardRequests};
use crate::constants::{LONG_PINS_MAX, LONG_READER_PINS_MAX};
use crate::error::{Error, Result};
use crate::message::change::PutOptions;
use crate::message::hash::IndexHash;
use crate::message::long::{KEEP, KEEP_IF_FEW, long_parts, piece_key, word};
use crate::message::operation::{OperationKind, RequestParts, Version};
use crate::message::outcome::Answer;

/// The pieces of a long value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongPieces {
    pub(super) shard: u16,
    pub(super) id: u64,
    pub(super) length: u64,
    pub(super) piece_bytes: u64,
}

impl LongPieces {
    /// Those of a value of the only shard.
    #[cfg(test)]
    pub(crate) fn of(id: u64, length: u64, piece_bytes: u64) -> Self {
        Self {
            shard: 0,
            id,
            length,
            piece_bytes,
        }
    }

    /// The pieces that the answer of a shard describes.
    fn opened(shard: u16, answer: &[u8]) -> Self {
        let [length, id, piece_bytes] = [0, 1, 2].map(|place| word(answer, place));
        Self {
            shard,
            id,
            length,
            piece_bytes: piece_bytes.max(1),
        }
    }

    /// The number of the value in its shard.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Bytes of the value.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// A long value that stays readable until it is released. Dropped without [`Core::release_long`],
/// it takes one of the shard's places until the value was not read for 60 s.
#[derive(Debug)]
pub struct PinnedValue {
    /// Its pieces.
    pub pieces: LongPieces,
    /// The version under which the key had it.
    pub version: Version,
    pin: u64,
}

/// What a client keeps a value for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinKind {
    /// It could read the value without keeping it, so it is refused while many are kept.
    Reading,
    /// It changes the key, and needs what that held.
    Changing,
}

/// What a key holds, for a client that would keep it.
#[derive(Debug)]
pub enum PinOutcome {
    /// Nothing.
    Absent,
    /// A value that is in a record.
    Short,
    /// A long value, which is kept now.
    Long(PinnedValue),
}

/// A long value that is written and that no key has yet. Dropped without [`Core::discard_long`], it
/// takes one of the shard's places, and its room, until it was not used for 60 s.
#[derive(Debug)]
pub struct LongDraft {
    /// Its pieces.
    pub pieces: LongPieces,
    key: Vec<u8>,
}

/// The version and the value of an answer; `None` if it is another.
type Answered = Option<(Version, Vec<u8>)>;

/// One request to a shard, and its answer.
struct One<'a> {
    shard: u16,
    hash: IndexHash,
    parts: RequestParts<'a>,
    is_sent: bool,
    answer: Option<Result<Answered>>,
    is_short: bool,
}

impl<'a> One<'a> {
    fn new(shard: u16, hash: IndexHash, parts: RequestParts<'a>) -> Self {
        Self {
            shard,
            hash,
            parts,
            is_sent: false,
            answer: None,
            is_short: false,
        }
    }
}

impl ShardRequests for One<'_> {
    fn next<T>(
        &mut self,
        send: impl FnOnce(u16, IndexHash, u32, &RequestParts<'_>) -> (bool, T),
    ) -> Option<T> {
        if self.is_sent {
            return None;
        }
        let (is_sent, result) = send(self.shard, self.hash, 0, &self.parts);
        self.is_sent = is_sent;
        Some(result)
    }

    fn take(&mut self, _number: u32, answer: Answer<'_>) {
        self.answer = Some(match answer {
            Answer::Value { version, value } => Ok(Some((version, value.to_vec()))),
            Answer::Failed(error) => Err(error.clone()),
            answer => {
                self.is_short = matches!(answer, Answer::Mismatch { .. });
                Ok(None)
            }
        });
    }

    fn is_done(&self) -> bool {
        self.answer.is_some()
    }
}

impl Core {
    /// Sends one request to the shard of a key; version and value of its answer, or none if that
    /// has no value.
    pub(crate) async fn ask(
        &mut self,
        routed: Routed<'_>,
        parts: RequestParts<'_>,
    ) -> Result<Option<(Version, Vec<u8>)>> {
        let mut one = One::new(routed.shard, routed.hash, parts);
        RunShardRequests::run(self, &mut one).await?;
        one.answer.unwrap_or(Err(Error::Closed))
    }

    /// As [`Core::ask`], for a request that is carried out or meets a mismatch: true if it is.
    pub(crate) async fn ask_whether(
        &mut self,
        routed: Routed<'_>,
        parts: RequestParts<'_>,
    ) -> Result<bool> {
        let mut one = One::new(routed.shard, routed.hash, parts);
        RunShardRequests::run(self, &mut one).await?;
        one.answer.unwrap_or(Err(Error::Closed))?;
        Ok(!one.is_short)
    }

    /// Keeps the long value that a key holds: its pieces stay readable, whatever becomes of the
    /// key, until [`Core::release_long`], or until nothing of the value was read for 60 s. A shard
    /// keeps 64 at once, and with [`PinKind::Reading`] one more only while fewer than 48 are kept.
    /// Cost: as [`Core::inspect`].
    ///
    /// # Errors
    /// Those of [`Core::get`]; [`Error::LongValuesKept`] if too many are kept.
    pub async fn keep_long(&mut self, key: &[u8], keep_for: PinKind) -> Result<PinOutcome> {
        let (hasher, shards) = self.hasher_and_shards();
        let Routed { shard, hash, .. } = routed(key, hasher, shards)?;
        let keep = match keep_for {
            PinKind::Reading => KEEP_IF_FEW,
            PinKind::Changing => KEEP,
        };
        let parts = long_parts(OperationKind::LongOpen, key, keep);
        let mut open = One::new(shard, hash, parts);
        RunShardRequests::run(self, &mut open).await?;
        let Some((version, value)) = open.answer.unwrap_or(Err(Error::Closed))? else {
            return Ok(if open.is_short {
                PinOutcome::Short
            } else {
                PinOutcome::Absent
            });
        };
        let pin = word(&value, 3);
        if pin == 0 {
            let max = match keep_for {
                PinKind::Reading => LONG_READER_PINS_MAX,
                PinKind::Changing => LONG_PINS_MAX,
            };
            return Err(Error::LongValuesKept { max });
        }
        Ok(PinOutcome::Long(PinnedValue {
            pieces: LongPieces::opened(shard, &value),
            version,
            pin,
        }))
    }

    /// The pieces of the long value that a key holds, with the version under which it has them;
    /// `None` if it holds none. They are not kept: they show whether a value is the one that is
    /// kept already. Cost: as [`Core::inspect`].
    ///
    /// # Errors
    /// Those of [`Core::get`].
    pub async fn long_pieces(&mut self, key: &[u8]) -> Result<Option<(Version, LongPieces)>> {
        let (hasher, shards) = self.hasher_and_shards();
        let Routed { shard, hash, .. } = routed(key, hasher, shards)?;
        let parts = long_parts(OperationKind::LongOpen, key, &[]);
        let mut open = One::new(shard, hash, parts);
        RunShardRequests::run(self, &mut open).await?;
        let opened = open.answer.unwrap_or(Err(Error::Closed))?;
        Ok(opened.map(|(version, value)| (version, LongPieces::opened(shard, &value))))
    }

    /// As [`Core::long_pieces`], with when the key expires.
    pub(crate) async fn long_opened(
        &mut self,
        key: &[u8],
    ) -> Result<Option<(Version, LongPieces, Option<u64>)>> {
        let (hasher, shards) = self.hasher_and_shards();
        let routed = routed(key, hasher, shards)?;
        let parts = long_parts(OperationKind::LongOpen, key, &[]);
        let opened = self.ask(routed, parts).await?;
        Ok(opened.map(|(version, value)| {
            let pieces = LongPieces::opened(routed.shard, &value);
            let expiry_ms = Some(word(&value, 4)).filter(|&at_ms| at_ms > 0);
            (version, pieces, expiry_ms)
        }))
    }

    /// Reads a part of a value's pieces into a buffer, which it replaces. The part is shorter where
    /// the value ends, and empty from an offset at its end or beyond. The buffer is empty after an
    /// error. Cost: a request for each piece that holds some of the part, 8 under way at once; one
    /// far READ each where they are far. A piece is nearly a quarter of a page.
    ///
    /// # Errors
    /// [`Error::LongValueGone`] if the value ended, because it was not used for a minute or because
    /// all keys were removed; and those of [`Core::get`].
    pub async fn read_pieces(
        &mut self,
        pieces: &LongPieces,
        offset: u64,
        bytes: u64,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let (hasher, _) = self.hasher_and_shards();
        let sink = Sink::<NoVisitor>::Buffer(value);
        let mut get = LongGet::of_pieces(pieces, hasher, (offset, bytes), sink);
        let ended = RunShardRequests::run(self, &mut get).await;
        get.result(ended).map(|_| ())
    }

    /// Lets a value go that was kept. It ends now if no key has it and no other client keeps it.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn release_long(&mut self, kept: PinnedValue) -> Result<()> {
        self.abort_long(&kept.pieces, &kept.pin.to_le_bytes()).await
    }

    /// Writes a value of `length` bytes, at least one, in pieces. No key has it until
    /// [`Core::commit_long`]. An empty part says that no bytes are there yet.
    ///
    /// Cost: a request to begin and one for each piece, of nearly a quarter of a page, 8 under way
    /// at once. Limits: 64 MiB a value, and 64 values of a shard that are begun and not committed.
    ///
    /// # Errors
    /// Those of [`Core::put_long_with`]. Nothing of the value is left.
    pub async fn write_long(
        &mut self,
        key: &[u8],
        length: u64,
        parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<LongDraft> {
        let (hasher, shards) = self.hasher_and_shards();
        let routed = routed(key, hasher, shards)?;
        let mut put = LongPut::uncommitted(routed, hasher, length, parts.into_iter());
        RunShardRequests::run(self, &mut put).await?;
        Ok(LongDraft {
            pieces: put.written()?,
            key: key.to_vec(),
        })
    }

    /// Stores a value that was written under its key, if a condition holds. If it does not, or if
    /// the call fails, the value is still only written. One that would expire at once is not stored
    /// either. Cost: one request, as [`Core::put_with`] of 16 bytes; no piece is read or moved.
    ///
    /// # Errors
    /// Those of [`Core::put_with`]; [`Error::LongValueGone`] if the value ended meanwhile.
    pub async fn commit_long(
        &mut self,
        written: &LongDraft,
        options: PutOptions<'_>,
    ) -> Result<PutOutcome> {
        let (hasher, shards) = self.hasher_and_shards();
        let routed = routed(&written.key, hasher, shards)?;
        let none = std::iter::empty::<&[u8]>();
        let mut put = LongPut::commit_of(routed, hasher, &written.pieces, none, options);
        RunShardRequests::run(self, &mut put).await?;
        put.result()
    }

    /// Removes a value that was written and not stored.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn discard_long(&mut self, written: LongDraft) -> Result<()> {
        self.abort_long(&written.pieces, &[]).await
    }

    async fn abort_long(&mut self, pieces: &LongPieces, value: &[u8]) -> Result<()> {
        let name = piece_key(pieces.id, 0);
        let parts = long_parts(OperationKind::LongAbort, &name, value);
        let mut abort = One::new(pieces.shard, IndexHash(0), parts);
        RunShardRequests::run(self, &mut abort).await?;
        abort.answer.unwrap_or(Err(Error::Closed)).map(|_| ())
    }
}
