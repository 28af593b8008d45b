//! One entry of a journal or a base.
//!
//! ```text
//! entry: | kind:8 | flags:8 | key bytes:16 | body bytes:32 | version:64 | key | body |
//!
//! put:        | record flags:16 | value | expiry:64, if its flag is set |
//! expire:     | expiry:64 |, or nothing: the key does not expire
//! tree begin: | kind:8 | tag:8 | expiry:64, if it expires |
//! tree step:  see `patch`
//! long begin: | id:64 | length:64 |             its pieces follow, in their order
//! long piece: | id:64 | bytes |                 no key
//! long put:   | id:64 | expiry:64, if it expires |
//! mark:       | number:64 |                      no key
//! long end:   | id:64 |                          no key
//! delete, clear, end: nothing; the last two have no key
//! effect, section: see `fed`; no file has them
//! ```
//!
//! No bytes panic: files are what others may have written.

use crate::constants::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::message::operation::Version;

/// Bytes of an entry before its key.
pub(crate) const ENTRY_HEAD_BYTES: usize = 16;
/// The next entry belongs to the same step.
pub(crate) const MORE: u8 = 1;
/// Bytes of a body, at most: the nodes that one step of a shard can change.
const BODY_BYTES_MAX: usize = 64 * (VALUE_BYTES_MAX + KEY_BYTES_MAX);

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum EntryKind {
    /// A key has this value, or holds this collection in its record.
    Put = 1,
    /// A key is absent.
    Delete = 2,
    /// A key whose long value or tree stays expires at another time.
    Expire = 3,
    /// All keys of the shard are absent.
    Clear = 4,
    /// A key holds a tree, which has no nodes yet.
    TreeBegin = 5,
    /// Nodes of a key's tree have changed.
    TreeStep = 6,
    /// A long value is written.
    LongBegin = 7,
    /// Its next bytes.
    LongPiece = 8,
    /// A key holds it.
    LongPut = 9,
    /// All shards were at rest here, at one moment.
    Mark = 10,
    /// The step ends here.
    End = 11,
    /// A long value has ended.
    LongEnd = 12,
    /// An operation has changed the tree of a key.
    Effect = 13,
    /// A section begins.
    Section = 14,
}

impl EntryKind {
    /// The one that a number stands for.
    pub(super) fn of(number: u8) -> Option<Self> {
        let all = [
            Self::Put,
            Self::Delete,
            Self::Expire,
            Self::Clear,
            Self::TreeBegin,
            Self::TreeStep,
            Self::LongBegin,
            Self::LongPiece,
            Self::LongPut,
            Self::Mark,
            Self::End,
            Self::LongEnd,
            Self::Effect,
            Self::Section,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The body of an entry, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryBody<'a> {
    Put {
        /// The record's flags.
        flags: u16,
        /// As the record has it: with the expiry, if its flag is set.
        stored: &'a [u8],
    },
    Delete,
    Expire {
        expiry_ms: Option<u64>,
    },
    Clear,
    TreeBegin {
        kind: u8,
        tag: u8,
        expiry_ms: Option<u64>,
    },
    TreeStep {
        patches: &'a [u8],
    },
    LongBegin {
        id: u64,
        length: u64,
    },
    LongPiece {
        id: u64,
        bytes: &'a [u8],
    },
    LongPut {
        id: u64,
        expiry_ms: Option<u64>,
    },
    Mark {
        number: u64,
    },
    End,
    LongEnd {
        id: u64,
    },
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) kind: EntryKind,
    /// The next entry belongs to the same step.
    pub(crate) has_more: bool,
    pub(crate) version: Version,
    pub(crate) key: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// Bytes that are no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoEntry;

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// An expiry at the end of a body, or none.
fn expiry(rest: &[u8]) -> Option<Option<u64>> {
    match rest.len() {
        0 => Some(None),
        8 => Some(word(rest, 0)),
        _ => None,
    }
}

impl<'a> Entry<'a> {
    /// Appends an entry to bytes, whose body `fill` writes.
    pub(crate) fn append(
        into: &mut Vec<u8>,
        (kind, key, version): (EntryKind, &[u8], Version),
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = into.len();
        into.push(kind as u8);
        into.push(0);
        into.extend(u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
        into.extend([0; 4]);
        into.extend(version.to_le_bytes());
        into.extend_from_slice(key);
        let body = into.len();
        fill(into);
        let bytes = u32::try_from(into.len() - body).unwrap_or(u32::MAX);
        into[start + 4..start + 8].copy_from_slice(&bytes.to_le_bytes());
    }

    /// Notes that another entry of the same step follows the one that `bytes` begin with.
    pub(crate) fn mark_more(bytes: &mut [u8]) {
        bytes[1] |= MORE;
    }

    /// The entry that bytes begin with, and its length; `None` if more bytes are needed.
    ///
    /// # Errors
    /// No entry begins so.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, NoEntry> {
        let Some(head) = bytes.first_chunk::<ENTRY_HEAD_BYTES>() else {
            return Ok(None);
        };
        let kind = EntryKind::of(head[0]).ok_or(NoEntry)?;
        let key_bytes = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let body_bytes = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if head[1] & !MORE != 0 || key_bytes > KEY_BYTES_MAX || body_bytes > BODY_BYTES_MAX {
            return Err(NoEntry);
        }
        let body = ENTRY_HEAD_BYTES + key_bytes;
        let end = body + body_bytes;
        if bytes.len() < end {
            return Ok(None);
        }
        let entry = Self {
            kind,
            has_more: head[1] & MORE != 0,
            version: word(head, 8).unwrap_or(0),
            key: &bytes[ENTRY_HEAD_BYTES..body],
            body: &bytes[body..end],
        };
        let is_keyless = matches!(
            kind,
            EntryKind::Clear
                | EntryKind::LongPiece
                | EntryKind::LongEnd
                | EntryKind::Mark
                | EntryKind::End
                | EntryKind::Section
        );
        if is_keyless != entry.key.is_empty() {
            return Err(NoEntry);
        }
        Ok(Some((entry, end)))
    }

    /// The body, taken apart.
    ///
    /// # Errors
    /// It is none of this kind.
    pub(crate) fn body(&self) -> Result<EntryBody<'a>, NoEntry> {
        self.try_body().ok_or(NoEntry)
    }

    fn try_body(&self) -> Option<EntryBody<'a>> {
        let body = self.body;
        Some(match self.kind {
            EntryKind::Put => {
                let (flags, stored) = body.split_first_chunk()?;
                let flags = u16::from_le_bytes(*flags);
                EntryBody::Put { flags, stored }
            }
            EntryKind::Delete => body.is_empty().then_some(EntryBody::Delete)?,
            EntryKind::Clear => body.is_empty().then_some(EntryBody::Clear)?,
            EntryKind::Expire => EntryBody::Expire {
                expiry_ms: expiry(body)?,
            },
            EntryKind::TreeBegin => {
                let (&[kind, tag], rest) = body.split_first_chunk()?;
                EntryBody::TreeBegin {
                    kind,
                    tag,
                    expiry_ms: expiry(rest)?,
                }
            }
            EntryKind::TreeStep => EntryBody::TreeStep { patches: body },
            EntryKind::LongBegin if body.len() == 16 => EntryBody::LongBegin {
                id: word(body, 0)?,
                length: word(body, 8)?,
            },
            EntryKind::LongBegin => return None,
            EntryKind::Mark if body.len() == 8 => EntryBody::Mark {
                number: word(body, 0)?,
            },
            EntryKind::Mark => return None,
            EntryKind::End => body.is_empty().then_some(EntryBody::End)?,
            EntryKind::LongEnd if body.len() == 8 => EntryBody::LongEnd { id: word(body, 0)? },
            EntryKind::LongEnd => return None,
            EntryKind::LongPiece => EntryBody::LongPiece {
                id: word(body, 0)?,
                bytes: body.get(8..)?,
            },
            EntryKind::LongPut => EntryBody::LongPut {
                id: word(body, 0)?,
                expiry_ms: expiry(body.get(8..)?)?,
            },
            EntryKind::Effect | EntryKind::Section => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_an_entry_or_none() {
        let mut seeds = Vec::new();
        for (kind, key, body) in [
            (EntryKind::Put, &b"key"[..], &b"\x02\0value12345678"[..]),
            (EntryKind::Delete, b"key", b""),
            (EntryKind::Expire, b"key", b"12345678"),
            (EntryKind::TreeBegin, b"key", b"\0\x01"),
            (EntryKind::LongPiece, b"", b"12345678bytes"),
            (EntryKind::LongPut, b"key", b"12345678"),
        ] {
            let mut bytes = Vec::new();
            Entry::append(&mut bytes, (kind, key, 7), |into| into.extend(body));
            seeds.push(bytes);
        }
        let mut target = farcore_fuzz::Target::new("journal entry");
        for seed in seeds {
            target = target.seed(seed);
        }
        target.run(|bytes| {
            let Ok(Some((entry, length))) = Entry::parse(bytes) else {
                return;
            };
            let mut again = Vec::new();
            let parts = (entry.kind, entry.key, entry.version);
            Entry::append(&mut again, parts, |into| into.extend(entry.body));
            if entry.has_more {
                Entry::mark_more(&mut again);
            }
            assert_eq!(again, bytes[..length]);
            let _ = entry.body();
        });
    }
}
