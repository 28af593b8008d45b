//! What a feed passes on: the changes of a shard as operations, not as bytes of nodes.
//!
//! ```text
//! effect:  | kind:8 | tag:8 | begins:8 | 0:8 | op bytes:32 | before:64 | after:64 |
//!          | answer bytes:32 | op | answer | removed |
//! section: | number:64 | shards:16 |
//! ```
//!
//! A feed has the entries of a journal, but for trees: there it has one *effect* an operation, with
//! the operation as its client has sent it and what it has come to. Both together say what was
//! done, also by an operation that ended midway or drew at random. What a section does on a shard
//! is between a *section* and an *end*. Unlike a journal it has the keys that a shard has removed
//! by itself, as deletes.

use super::{Entry, EntryBody, EntryKind};
use crate::collection::TreeKind;
use crate::log::record;
use crate::message::operation::Version;
#[cfg(feature = "simulation")]
use crate::tree::TreeGuard;
use crate::tree::{TreeChange, TreeChanges, TreeOp, page_elements, scored_elements};

/// What an operation has done to the collection of a key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeEffect<'a> {
    /// The kind of the collection.
    pub kind: TreeKind,
    /// What the application says of it.
    pub tag: u8,
    /// The operation has made it, in place of whatever the key held.
    pub begins: bool,
    /// Elements before, and after: without any the key is absent.
    pub before: u64,
    /// See `before`.
    pub after: u64,
    /// The operation.
    pub op: TreeOp<'a>,
    /// What was answered, but of these: [`TreeOp::Run`]: the changes that its program has made,
    /// see [`TreeEffect::changes`]. [`TreeOp::InsertAt`]: behind the count the element that had the
    /// rank until then, if there was one. [`TreeOp::ScoreRemove`]: at the end the rank of the first
    /// member that was removed.
    pub answer: &'a [u8],
    /// Elements that were removed by their keys and whose values are long, as a page; see
    /// [`TreeEffect::removed`].
    pub removed: &'a [u8],
}

impl<'a> TreeEffect<'a> {
    /// The number at a place of the answer, if it has numbers; 0 behind its end.
    #[must_use]
    pub fn number(&self, place: usize) -> u64 {
        let bytes = self.answer.get(8 * place..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Key and value of the elements of an answered page.
    pub fn elements(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        page_elements(self.answer)
    }

    /// Member, score and value of the elements of an answered page of a scored map.
    pub fn scored(&self) -> impl Iterator<Item = (&'a [u8], f64, &'a [u8])> {
        scored_elements(self.answer)
    }

    /// Key and value of elements that [`TreeOp::Update`], [`TreeOp::Remove`],
    /// [`TreeOp::CompareAndSet`], [`TreeOp::Score`] or, by rank, an operation on a scored map has
    /// removed, in their order, as far as the values are longer than 900 bytes. The key of a
    /// member of a scored map is the member.
    pub fn removed(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        page_elements(self.removed)
    }

    /// What a program has changed, in its order.
    pub fn changes(&self) -> impl Iterator<Item = TreeChange<'a>> {
        TreeChanges::Encoded(self.answer).iter()
    }

    pub(crate) fn put(&self, op: &[u8], into: &mut Vec<u8>) {
        into.extend([self.kind as u8, self.tag, u8::from(self.begins), 0]);
        into.extend(u32::try_from(op.len()).unwrap_or(u32::MAX).to_le_bytes());
        into.extend(self.before.to_le_bytes());
        into.extend(self.after.to_le_bytes());
        let answer_bytes = u32::try_from(self.answer.len()).unwrap_or(u32::MAX);
        into.extend(answer_bytes.to_le_bytes());
        for part in [op, self.answer, self.removed] {
            into.extend_from_slice(part);
        }
    }

    /// The effect in the body of an entry; `None` if it is none.
    pub(super) fn decode(body: &'a [u8]) -> Option<Self> {
        let (head, rest) = body.split_first_chunk::<28>()?;
        let word = |at: usize| Some(u64::from_le_bytes(*head[at..].first_chunk()?));
        let op_bytes = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let answer_bytes = u32::from_le_bytes([head[24], head[25], head[26], head[27]]) as usize;
        let (op, rest) = rest.split_at_checked(op_bytes)?;
        let (answer, removed) = rest.split_at_checked(answer_bytes)?;
        let (_, op) = TreeOp::decode(op)?;
        Some(Self {
            kind: TreeKind::of(head[0])?,
            tag: head[1],
            begins: match (head[2], head[3]) {
                (0, 0) => false,
                (1, 0) => true,
                _ => return None,
            },
            before: word(8)?,
            after: word(16)?,
            op,
            answer,
            removed,
        })
    }
}

/// What an entry of a feed says.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum FedBody<'a> {
    /// A key has this value.
    Put {
        /// The value.
        value: &'a [u8],
        /// When it expires, in milliseconds since 1970.
        expiry_ms: Option<u64>,
    },
    /// A key is absent.
    Delete,
    /// A key expires at another time, or not any more.
    Expire {
        /// When, in milliseconds since 1970.
        expiry_ms: Option<u64>,
    },
    /// All keys of the shard are absent.
    Clear,
    /// An operation has changed the collection of a key.
    Tree(TreeEffect<'a>),
    /// A key holds a long value, which is read anew: the feed does not have it.
    Long,
    /// What follows up to [`FedBody::SectionEnds`] is done under a section.
    SectionBegins {
        /// All shards of the section have this one, and no other section has it.
        number: u64,
        /// How many shards it is of.
        shards: u16,
    },
    /// The section is over.
    SectionEnds,
}

/// An entry of a feed: one change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fed<'a> {
    /// The version that the change has drawn. Those of a shard only grow.
    pub version: Version,
    /// The key, if the change is of one.
    pub key: &'a [u8],
    /// The next entry belongs to the same step: both are seen at once, or neither.
    pub has_more: bool,
    /// What is so since then.
    pub body: FedBody<'a>,
}

impl<'a> Fed<'a> {
    /// The entry that bytes begin with, and its length; `None` if it is not whole, or is none.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (entry, length) = Entry::parse(bytes).ok().flatten()?;
        let fed = Self {
            version: entry.version,
            key: entry.key,
            has_more: entry.has_more,
            body: FedBody::of(&entry)?,
        };
        Some((fed, length))
    }
}

#[cfg(feature = "simulation")]
impl Fed<'_> {
    /// Appends the entry, as a shard notes it.
    pub fn append(&self, into: &mut Vec<u8>) {
        let kind = match self.body {
            FedBody::Put { .. } => EntryKind::Put,
            FedBody::Delete => EntryKind::Delete,
            FedBody::Expire { .. } => EntryKind::Expire,
            FedBody::Clear => EntryKind::Clear,
            FedBody::Tree(_) => EntryKind::Effect,
            FedBody::Long => EntryKind::LongPut,
            FedBody::SectionBegins { .. } => EntryKind::Section,
            FedBody::SectionEnds => EntryKind::End,
        };
        let start = into.len();
        Entry::append(into, (kind, self.key, self.version), |into| {
            match self.body {
                FedBody::Put { value, expiry_ms } => {
                    let flags = expiry_ms.map_or(0, |_| record::EXPIRY);
                    into.extend(flags.to_le_bytes());
                    into.extend_from_slice(value);
                    into.extend(expiry_ms.map(u64::to_le_bytes).into_iter().flatten());
                }
                FedBody::Expire { expiry_ms } => {
                    into.extend(expiry_ms.map(u64::to_le_bytes).into_iter().flatten());
                }
                FedBody::Tree(effect) => {
                    let mut op = Vec::new();
                    effect.op.encode(TreeGuard::default(), &mut op);
                    effect.put(&op, into);
                }
                // The number of a long value, which no feed has.
                FedBody::Long => into.extend([0; 8]),
                FedBody::SectionBegins { number, shards } => {
                    into.extend(number.to_le_bytes());
                    into.extend(shards.to_le_bytes());
                }
                FedBody::Delete | FedBody::Clear | FedBody::SectionEnds => {}
            }
        });
        if self.has_more {
            Entry::mark_more(&mut into[start..]);
        }
    }
}

impl<'a> FedBody<'a> {
    fn of(entry: &Entry<'a>) -> Option<Self> {
        match entry.kind {
            EntryKind::Effect => return TreeEffect::decode(entry.body).map(Self::Tree),
            EntryKind::Section => {
                let (number, shards) = entry.body.split_first_chunk()?;
                return Some(Self::SectionBegins {
                    number: u64::from_le_bytes(*number),
                    shards: u16::from_le_bytes(*shards.as_array()?),
                });
            }
            _ => {}
        }
        Some(match entry.body().ok()? {
            EntryBody::Put { flags, .. } if flags & record::TREE != 0 => return None,
            EntryBody::Put { flags, stored } => {
                let (value, expiry) = match flags & record::EXPIRY {
                    0 => (stored, None),
                    _ => stored
                        .split_last_chunk()
                        .map(|(value, at)| (value, Some(at)))?,
                };
                let expiry_ms = expiry.map(|at| u64::from_le_bytes(*at));
                Self::Put { value, expiry_ms }
            }
            EntryBody::Delete => Self::Delete,
            EntryBody::Expire { expiry_ms } => Self::Expire { expiry_ms },
            EntryBody::Clear => Self::Clear,
            EntryBody::LongPut { .. } => Self::Long,
            EntryBody::End => Self::SectionEnds,
            EntryBody::TreeBegin { .. }
            | EntryBody::TreeStep { .. }
            | EntryBody::Mark { .. }
            | EntryBody::LongBegin { .. }
            | EntryBody::LongPiece { .. }
            | EntryBody::LongEnd { .. } => return None,
        })
    }
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use super::*;
    use crate::tree::TreeValues;

    #[test]
    fn an_effect_that_is_appended_is_parsed() {
        let values: [&[u8]; 2] = [b"one", b""];
        let op = TreeOp::Push {
            front: true,
            exists: false,
            replaces: false,
            values: TreeValues::Slices(&values),
        };
        let effect = TreeEffect {
            kind: TreeKind::List,
            tag: 7,
            begins: true,
            before: 0,
            after: 2,
            op,
            answer: b"answer",
            removed: b"",
        };
        let fed = Fed {
            version: 12,
            key: b"k",
            has_more: false,
            body: FedBody::Tree(effect),
        };
        let mut bytes = Vec::new();
        fed.append(&mut bytes);
        let (parsed, length) = Fed::parse(&bytes).expect("an entry");
        let FedBody::Tree(found) = parsed.body else {
            panic!("{parsed:?}");
        };
        assert_eq!((length, found.after, found.tag), (bytes.len(), 2, 7));
        assert_eq!((found.answer, found.begins), (&b"answer"[..], true));
        let TreeOp::Push { values: found, .. } = found.op else {
            panic!("{found:?}");
        };
        assert!(found.iter().eq(values));
    }

    #[test]
    fn what_is_appended_is_parsed() {
        let put = |value, expiry_ms| FedBody::Put { value, expiry_ms };
        let of_key: [(&[u8], FedBody<'_>); 6] = [
            (b"k", FedBody::Delete),
            (b"k", FedBody::Long),
            (b"k", FedBody::Expire { expiry_ms: Some(9) }),
            (b"k", FedBody::Expire { expiry_ms: None }),
            (b"k", put(b"value", Some(u64::MAX))),
            (b"k", put(b"", None)),
        ];
        let begins = FedBody::SectionBegins {
            number: 5,
            shards: 3,
        };
        let of_none: [(&[u8], FedBody<'_>); 3] = [
            (b"", FedBody::Clear),
            (b"", begins),
            (b"", FedBody::SectionEnds),
        ];
        for (key, body) in of_key.into_iter().chain(of_none) {
            for has_more in [false, true] {
                let fed = Fed {
                    version: 11,
                    key,
                    has_more,
                    body,
                };
                let mut bytes = Vec::new();
                fed.append(&mut bytes);
                let length = bytes.len();
                bytes.push(1);
                assert_eq!(Fed::parse(&bytes), Some((fed, length)));
            }
        }
    }
}
