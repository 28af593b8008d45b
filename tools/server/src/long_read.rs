//! The read of a value of several pieces, for a reply.
//!
//! The pieces are read as the client takes them. If the value is replaced meanwhile, the connection
//! is closed: the reply has begun and cannot be finished.

use farcore::{Core, Error, Result, Version};

use crate::replies::{ReplyKind, error_text, range};
use crate::resp::{Protocol, Writer};
use crate::tasks::TaskOutput;

/// Bytes that are read at once.
const CHUNK_BYTES: u64 = 64 << 10;

/// A value to read.
#[derive(Clone, Debug)]
pub(crate) struct LongRead {
    pub(crate) key: Vec<u8>,
    pub(crate) kind: ReplyKind,
}

impl LongRead {
    /// The bytes of a value of this length that the reply has.
    fn wanted(&self, length: u64) -> (u64, u64) {
        let whole = usize::try_from(length).unwrap_or(usize::MAX);
        let wanted = match self.kind {
            ReplyKind::Range { start, end } => range(start, end, whole),
            ReplyKind::Part { offset, bytes } => {
                let start = whole.min(offset as usize);
                start..whole.min(start.saturating_add(bytes as usize))
            }
            _ => 0..whole,
        };
        (wanted.start as u64, wanted.end as u64)
    }

    /// Reads the value and writes the reply.
    pub(crate) async fn run(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        match self.begin(core, output, protocol).await {
            Ok(Some((version, start, end))) => {
                if self
                    .go_on(core, output, version, (start, end))
                    .await
                    .is_none()
                {
                    output.break_off();
                }
            }
            Ok(None) => output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                match self.kind {
                    ReplyKind::Value => writer.null(),
                    _ => writer.bulk(b""),
                }
            }),
            Err(error) => {
                output.write(|bytes| Writer::new(bytes, protocol).error(&error_text(&error)));
            }
        }
    }

    /// Writes the length. Returns the version, and the bytes from the first to the last; `None` if
    /// the key is absent.
    async fn begin(
        &self,
        core: &mut Core,
        output: &TaskOutput,
        protocol: Protocol,
    ) -> Result<Option<(Version, u64, u64)>> {
        let Some(metadata) = core.inspect(&self.key).await? else {
            return Ok(None);
        };
        let (start, end) = self.wanted(metadata.length);
        output.write(|bytes| {
            Writer::new(bytes, protocol).bulk_head(usize::try_from(end - start).unwrap_or(0));
        });
        Ok(Some((metadata.version, start, end)))
    }

    /// Writes the bytes; `None` if they are not those of the version.
    async fn go_on(
        &self,
        core: &mut Core,
        output: &TaskOutput,
        version: Version,
        (mut at, end): (u64, u64),
    ) -> Option<()> {
        let mut piece = Vec::new();
        while at < end {
            output.room(core).await;
            let bytes = CHUNK_BYTES.min(end - at);
            let read = core.get_long_range(&self.key, at, bytes, &mut piece).await;
            let is_same = matches!(read, Ok(Some(read)) if read == version);
            if !is_same || piece.len() as u64 != bytes {
                return None;
            }
            output.write(|output| output.extend_from_slice(&piece));
            at += bytes;
        }
        output.write(|output| output.extend_from_slice(b"\r\n"));
        Some(())
    }

    /// The value that an answer's error is about, if it must be read in pieces.
    pub(crate) fn of(kind: ReplyKind, error: &Error) -> Option<Self> {
        let Error::LongValue { key, .. } = error else {
            return None;
        };
        let is_read = matches!(
            kind,
            ReplyKind::Value | ReplyKind::Range { .. } | ReplyKind::Part { .. }
        );
        is_read.then(|| Self {
            key: key.to_vec(),
            kind,
        })
    }
}
