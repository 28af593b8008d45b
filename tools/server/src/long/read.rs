//! The read of values of several pieces, for a reply.
//!
//! The pieces are read as the client takes them. The value is kept meanwhile, so the reply is that
//! of one moment. If too many are kept, it is read without: then the connection is closed if the
//! value is replaced, for the reply has begun and cannot be finished.

use farcore::{Core, PinKind, PinOutcome, Result, Version};

use crate::long::copy::{CHUNK_BYTES, Old, hold_next, send_pieces};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::{IDLE_BYTES, TaskOutput};
use crate::types::bit_counter::BitCounter;
use crate::types::bit_seeker::BitSeeker;
use crate::types::replies::{ReplyKind, range};

/// A value to read.
#[derive(Clone, Debug)]
pub(crate) struct LongRead {
    pub(crate) key: Vec<u8>,
    pub(crate) kind: ReplyKind,
}

/// An opened value.
#[derive(Debug)]
enum Opened {
    /// It stays as it was.
    Kept(Old),
    /// The key has it, as long as it has this version.
    Key { version: Version, length: u64 },
}

impl Opened {
    fn length(&self) -> u64 {
        match self {
            Self::Kept(old) => old.length(),
            Self::Key { length, .. } => *length,
        }
    }

    /// Reads some bytes, a chunk at most; `None` if they are not those of the value that was
    /// opened.
    async fn read(
        &self,
        core: &mut Core,
        key: &[u8],
        (at, bytes): (u64, u64),
        part: &mut Vec<u8>,
    ) -> Option<()> {
        let is_read = match self {
            Self::Kept(old) => {
                let segment = old.segment(at..at.saturating_add(bytes));
                segment.read(core, 0, part).await.is_ok()
            }
            Self::Key { version, .. } => {
                let read = core.get_long_range(key, at, bytes, part).await;
                matches!(read, Ok(Some(read)) if read == *version)
            }
        };
        (is_read && part.len() as u64 == bytes).then_some(())
    }

    async fn release(self, core: &mut Core) {
        if let Self::Kept(old) = self {
            old.release(core).await;
        }
    }
}

impl LongRead {
    /// The bytes of a value of this length that the reply is about.
    fn wanted(&self, length: u64) -> (u64, u64) {
        let whole = usize::try_from(length).unwrap_or(usize::MAX);
        let wanted = match self.kind {
            ReplyKind::Range { start, end } => range(start, end, whole),
            ReplyKind::Part { offset, bytes } => {
                let start = whole.min(offset as usize);
                start..whole.min(start.saturating_add(bytes as usize))
            }
            ReplyKind::Bit { byte, .. } => {
                let start = whole.min(byte as usize);
                start..whole.min(start + 1)
            }
            _ => 0..whole,
        };
        (wanted.start as u64, wanted.end as u64)
    }

    /// Reads the value and writes the reply, unless its client is gone.
    pub(crate) async fn run(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        if output.is_gone() {
            return;
        }
        match self.open(core).await {
            Ok(Some(opened)) => {
                let replied = match self.kind {
                    ReplyKind::Bit { .. } | ReplyKind::BitCount { .. } => {
                        self.count(core, &opened, output, protocol).await
                    }
                    ReplyKind::BitPlace { start, end, sought } => {
                        let seeker = BitSeeker::new(opened.length(), start, end, sought);
                        self.seek(core, &opened, seeker, (output, protocol)).await
                    }
                    _ => self.send(core, &opened, output, protocol).await,
                };
                if replied.is_none() {
                    output.break_off();
                }
                opened.release(core).await;
            }
            Ok(None) => output.write(|bytes| self.write_absent(&mut Writer::new(bytes, protocol))),
            Err(error) => output.fail(protocol, &error),
        }
    }

    fn write_absent(&self, writer: &mut Writer<'_>) {
        match self.kind {
            ReplyKind::Value => writer.null(),
            ReplyKind::Bit { .. } | ReplyKind::BitCount { .. } | ReplyKind::BitPlace { .. } => {
                writer.integer(self.kind.bits_of_nothing());
            }
            _ => writer.bulk(b""),
        }
    }

    /// Opens the value; `None` if the key is absent.
    async fn open(&self, core: &mut Core) -> Result<Option<Opened>> {
        loop {
            match core.keep_long(&self.key, PinKind::Reading).await {
                Ok(PinOutcome::Long(kept)) => {
                    return Ok(Some(Opened::Kept(Old::Long(kept))));
                }
                Ok(PinOutcome::Absent) => return Ok(None),
                Ok(PinOutcome::Short) => match core.get(&self.key).await {
                    // It was replaced meanwhile.
                    Err(farcore::Error::LongValue { .. }) => {}
                    Err(error) => return Err(error),
                    Ok(read) => {
                        return Ok(read.map(|value| {
                            Opened::Kept(Old::Short(value.to_vec(), value.version()))
                        }));
                    }
                },
                // If it is not kept, for whatever reason, it is read without.
                Err(_) => break,
            }
        }
        let metadata = core.inspect(&self.key).await?;
        if metadata.is_some_and(|metadata| metadata.collection.is_some()) {
            return Err(farcore::Error::Collection);
        }
        Ok(metadata.map(|metadata| Opened::Key {
            version: metadata.version,
            length: metadata.length,
        }))
    }

    /// Writes the bytes; `None` if they are not to be had any more.
    async fn send(
        &self,
        core: &mut Core,
        opened: &Opened,
        output: &TaskOutput,
        protocol: Protocol,
    ) -> Option<()> {
        let (start, end) = self.wanted(opened.length());
        output.write(|bytes| {
            Writer::new(bytes, protocol).bulk_head(usize::try_from(end - start).unwrap_or(0));
        });
        if let Opened::Kept(Old::Long(kept)) = opened {
            send_pieces(core, output, &kept.pieces, start..end).await;
            return Some(());
        }
        let (mut at, mut part) = (start, Vec::new());
        while at < end && !output.is_gone() {
            output.room(core).await;
            let bytes = (output.chunk_bytes() as u64).min(end - at);
            opened.read(core, &self.key, (at, bytes), &mut part).await?;
            output.write(|output| output.extend_from_slice(&part));
            at += bytes;
        }
        output.write(|output| output.extend_from_slice(b"\r\n"));
        Some(())
    }

    /// Counts bits and writes how many there are.
    async fn count(
        &self,
        core: &mut Core,
        opened: &Opened,
        output: &TaskOutput,
        protocol: Protocol,
    ) -> Option<()> {
        let mut counter = BitCounter::of(self.kind, opened.length());
        let bytes = counter.bytes();
        let (mut at, mut part) = (bytes.start, Vec::new());
        while at < bytes.end {
            let bytes = CHUNK_BYTES.min(bytes.end - at);
            steps::end_slice(core).await;
            steps::count_copied(usize::try_from(bytes).unwrap_or(usize::MAX));
            opened.read(core, &self.key, (at, bytes), &mut part).await?;
            counter.take(at, &part);
            at += bytes;
        }
        let count = i64::try_from(counter.count()).unwrap_or(i64::MAX);
        output.write(|bytes| Writer::new(bytes, protocol).integer(count));
        Some(())
    }
}

impl LongRead {
    /// Seeks a bit and writes where it is.
    async fn seek(
        &self,
        core: &mut Core,
        opened: &Opened,
        mut seeker: BitSeeker,
        (output, protocol): (&TaskOutput, Protocol),
    ) -> Option<()> {
        let bytes = seeker.bytes();
        let (mut at, mut part) = (bytes.start, Vec::new());
        while at < bytes.end {
            let bytes = CHUNK_BYTES.min(bytes.end - at);
            steps::end_slice(core).await;
            steps::count_copied(usize::try_from(bytes).unwrap_or(usize::MAX));
            opened.read(core, &self.key, (at, bytes), &mut part).await?;
            if seeker.take(at, &part) {
                break;
            }
            at += bytes;
        }
        output.write(|bytes| Writer::new(bytes, protocol).integer(seeker.place()));
        Some(())
    }
}

/// The reply of `MGET` with values of several pieces among others.
#[derive(Debug)]
pub(crate) struct LongReplies {
    /// The replies, by part; those of long values are empty.
    pub(crate) replies: Vec<Vec<u8>>,
    /// Places and keys of the long values, in order.
    pub(crate) long: Vec<(usize, Vec<u8>)>,
    /// Bytes of the replies.
    pub(crate) held_bytes: usize,
}

impl LongReplies {
    /// Writes the replies in order, as the client takes them.
    pub(crate) async fn run(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        output.write(|bytes| Writer::new(bytes, protocol).array(self.replies.len()));
        let (mut long, mut held) = (self.long.into_iter().peekable(), None);
        for (place, reply) in self.replies.iter().enumerate() {
            output.room(core).await;
            if let Some((_, key)) = long.next_if(|&(other, _)| other == place) {
                let read = LongRead {
                    key,
                    kind: ReplyKind::Value,
                };
                match hold_next(core, output, &read.key, &mut held).await {
                    Ok(()) => read.run_among(core, output, protocol).await,
                    Err(shortage) => output.refuse(protocol, &shortage),
                }
            } else {
                output.write(|bytes| bytes.extend_from_slice(reply));
            }
        }
    }
}

impl LongRead {
    /// Replies with an element of an array: what is no string counts as absent.
    pub(crate) async fn run_among(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        match core.inspect(&self.key).await {
            Ok(Some(metadata)) if metadata.collection.is_some() => {
                output.write(|bytes| Writer::new(bytes, protocol).null());
            }
            _ => self.run(core, output, protocol).await,
        }
        // What the next element waits for may take long, and the copy in the core's client is
        // charged with this one.
        core.shrink_buffers(IDLE_BYTES);
    }
}
