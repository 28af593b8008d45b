//! What a program has changed in a stream, as those read it who have the changed elements and the
//! program's input, and not the stream.
//!
//! - G1: no bytes cause a panic: what is not as `layout` draws it is nothing.

use farcore::TreeChange;

use super::id::StreamId;
use super::layout::{Group, Header, Key, Pending, consumer_name, group_key, group_name, named_key};
use super::programs::StreamProgram;

/// Bytes of the keys and the values of elements.
const NUMBER_BYTES: usize = size_of::<u32>();
const TIME_BYTES: usize = size_of::<u64>();

/// A change of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Changed<'c> {
    /// What the stream is beside its entries is this.
    Header {
        last_id: StreamId,
        max_deleted: StreamId,
    },
    /// A group is this, or gone.
    Group {
        name: &'c [u8],
        is: Option<ChangedGroup>,
    },
    /// An ID is pending, or no more. Which consumer has it is not said: it is the one of the input.
    Pending { id: StreamId, is: Option<Delivery> },
    /// A consumer is new, or gone.
    Consumer { name: &'c [u8], is_there: bool },
    /// An entry was added, of fields and values, or removed.
    Entry {
        id: StreamId,
        texts: Option<Vec<&'c [u8]>>,
    },
    /// What follows from another change, and when a consumer was seen.
    Beside,
}

/// What a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedGroup {
    pub(crate) last_id: StreamId,
    pub(crate) entries_read: Option<u64>,
}

/// When and how often an entry was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) delivered_ms: u64,
    pub(crate) deliveries: u64,
}

impl<'c> Changed<'c> {
    /// What a change is; `None` if the element is none of a stream.
    pub(crate) fn of(change: TreeChange<'c>) -> Option<Self> {
        let TreeChange { key, value } = change;
        let none = StreamId::FIRST;
        let [header, pending, owned, consumer, entry] = [
            Key::header(),
            Key::pending(0, none),
            Key::owned(0, 0, none),
            Key::consumer(0, 0),
            Key::entry(none),
        ];
        let is_like = |other: &Key| {
            let other = other.bytes();
            key.len() == other.len() && key.first() == other.first()
        };
        let begins = |other: &[u8]| key.len() >= other.len() && key.first() == other.first();
        let id = || key.last_chunk().map(|bytes| StreamId::of_bytes(*bytes));
        if is_like(&header) {
            let header = value.filter(|value| value.len() == Header::default().stored().len());
            let header = Header::of(header?);
            return Some(Self::Header {
                last_id: header.last_id,
                max_deleted: header.max_deleted,
            });
        }
        if is_like(&entry) {
            let texts = match value {
                Some(stored) => Some(pairs(stored)?),
                None => None,
            };
            return Some(Self::Entry { id: id()?, texts });
        }
        if is_like(&pending) {
            return Some(Self::Pending {
                id: id()?,
                is: match value {
                    Some(stored) => Some(delivery(stored)?),
                    None => None,
                },
            });
        }
        if begins(&group_key(&[])) {
            return Some(Self::Group {
                name: group_name(key),
                is: match value {
                    Some(stored) => Some(group(stored)?),
                    None => None,
                },
            });
        }
        if begins(&named_key(0, &[])) {
            return Some(Self::Consumer {
                name: consumer_name(key),
                is_there: value.is_some(),
            });
        }
        (is_like(&owned) || is_like(&consumer)).then_some(Self::Beside)
    }
}

fn group(stored: &[u8]) -> Option<ChangedGroup> {
    let is_whole = stored.len() == NUMBER_BYTES + size_of::<StreamId>() + TIME_BYTES + NUMBER_BYTES;
    is_whole
        .then(|| Group::of(stored))
        .map(|group| ChangedGroup {
            last_id: group.last_id,
            entries_read: group.entries_read,
        })
}

fn delivery(stored: &[u8]) -> Option<Delivery> {
    let is_whole = stored.len() == NUMBER_BYTES + 2 * TIME_BYTES;
    is_whole
        .then(|| Pending::of(stored))
        .map(|pending| Delivery {
            delivered_ms: pending.delivered_ms,
            deliveries: pending.deliveries,
        })
}

/// The fields and values of an entry, at least one of each; `None` if it has others.
fn pairs(stored: &[u8]) -> Option<Vec<&[u8]>> {
    let mut reader = Reader(stored);
    let count = reader.short()?;
    let mut texts = Vec::new();
    while !reader.0.is_empty() {
        texts.push(reader.bytes()?);
    }
    let is_whole = usize::try_from(count) == Ok(texts.len());
    (is_whole && count > 0 && count % 2 == 0).then_some(texts)
}

/// What the input of a program names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named<'i> {
    pub(crate) group: &'i [u8],
    /// None of [`StreamProgram::Acknowledge`], which has none.
    pub(crate) consumer: &'i [u8],
}

impl<'i> Named<'i> {
    /// The group and the consumer of which an input is; `None` if the program has none.
    pub(crate) fn of(program: StreamProgram, input: &'i [u8]) -> Option<Self> {
        let mut reader = Reader::of_input(input)?;
        Some(match program {
            StreamProgram::Read
            | StreamProgram::ReadAgain
            | StreamProgram::Claim
            | StreamProgram::ClaimDue => {
                let _key = reader.bytes()?;
                Self {
                    group: reader.bytes()?,
                    consumer: reader.bytes()?,
                }
            }
            StreamProgram::ConsumerCreate | StreamProgram::ConsumerDelete => {
                let group = reader.bytes()?;
                let _key = reader.bytes()?;
                Self {
                    group,
                    consumer: reader.bytes()?,
                }
            }
            StreamProgram::Acknowledge => Self {
                group: reader.bytes()?,
                consumer: &[],
            },
            _ => return None,
        })
    }
}

/// What the input of [`StreamProgram::SetId`] sets beside the last ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetBeside {
    /// The greatest deleted ID.
    pub(crate) max_deleted: Option<StreamId>,
    /// Entries that were ever added.
    pub(crate) added: Option<u64>,
}

impl SetBeside {
    pub(crate) fn of(input: &[u8]) -> Option<Self> {
        let mut reader = Reader::of_input(input)?;
        let (_last, max_deleted) = (reader.id()?, reader.id()?);
        let (is_given, added) = (reader.long()? != 0, reader.long()?);
        Some(Self {
            max_deleted: Some(max_deleted).filter(|id| *id != StreamId::FIRST),
            added: is_given.then_some(added),
        })
    }
}

/// Reads bytes that may be any.
struct Reader<'r>(&'r [u8]);

impl<'r> Reader<'r> {
    /// Behind the protocol of the client.
    fn of_input(input: &'r [u8]) -> Option<Self> {
        input.split_first().map(|(_, rest)| Self(rest))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn short(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn id(&mut self) -> Option<StreamId> {
        self.take().map(StreamId::of_bytes)
    }

    fn bytes(&mut self) -> Option<&'r [u8]> {
        let length = usize::try_from(self.short()?).ok()?;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::super::input::Input;
    use super::super::layout::put_texts;
    use super::*;
    use crate::random::Numbers;
    use crate::resp::Protocol;

    const ID: StreamId = StreamId { ms: 7, number: 9 };

    fn put<'c>(key: &'c [u8], value: &'c [u8]) -> Option<Changed<'c>> {
        let value = Some(value);
        Changed::of(TreeChange { key, value })
    }

    fn removed(key: &[u8]) -> Option<Changed<'_>> {
        Changed::of(TreeChange { key, value: None })
    }

    #[test]
    fn elements_are_read_as_programs_write_them() {
        let header = Header {
            last_id: ID,
            max_deleted: StreamId::LAST,
            removed: 3,
            next_group: 4,
        };
        let changed = Changed::Header {
            last_id: ID,
            max_deleted: StreamId::LAST,
        };
        assert_eq!(put(Key::header().bytes(), &header.stored()), Some(changed));
        assert_eq!(removed(Key::header().bytes()), None);
        for entries_read in [None, Some(5)] {
            let group = Group {
                number: 1,
                last_id: ID,
                entries_read,
                next_consumer: 2,
            };
            let is = Some(ChangedGroup {
                last_id: ID,
                entries_read,
            });
            let changed = Changed::Group { name: b"g", is };
            assert_eq!(put(&group_key(b"g"), &group.stored()), Some(changed));
        }
        let changed = Changed::Group {
            name: b"",
            is: None,
        };
        assert_eq!(removed(&group_key(b"")), Some(changed));
        let pending = Pending {
            consumer: 1,
            delivered_ms: 2,
            deliveries: 3,
        };
        let is = Some(Delivery {
            delivered_ms: 2,
            deliveries: 3,
        });
        let key = Key::pending(8, ID);
        let changed = Changed::Pending { id: ID, is };
        assert_eq!(put(key.bytes(), &pending.stored()), Some(changed));
        let changed = Changed::Pending { id: ID, is: None };
        assert_eq!(removed(key.bytes()), Some(changed));
        let changed = Changed::Consumer {
            name: b"name",
            is_there: true,
        };
        assert_eq!(put(&named_key(1, b"name"), &[0; 4]), Some(changed));
        for key in [Key::owned(1, 2, ID), Key::consumer(1, 2)] {
            assert_eq!(put(key.bytes(), &[]), Some(Changed::Beside));
            assert_eq!(removed(key.bytes()), Some(Changed::Beside));
        }
        let mut stored = Vec::new();
        put_texts([&b"field"[..], b""].into_iter(), &mut stored);
        let key = Key::entry(ID);
        let texts = Some(vec![&b"field"[..], b""]);
        let changed = Changed::Entry { id: ID, texts };
        assert_eq!(put(key.bytes(), &stored), Some(changed));
        let changed = Changed::Entry {
            id: ID,
            texts: None,
        };
        assert_eq!(removed(key.bytes()), Some(changed));
    }

    #[test]
    fn entries_of_other_than_pairs_are_none() {
        for texts in [vec![], vec![&b"field"[..]]] {
            let mut stored = Vec::new();
            put_texts(texts.into_iter(), &mut stored);
            assert_eq!(put(Key::entry(ID).bytes(), &stored), None);
        }
    }

    #[test]
    fn inputs_name_groups_and_consumers() {
        let input = || Input::new(Protocol::Resp2);
        let named = Named {
            group: b"g",
            consumer: b"c",
        };
        let key_first = input().bytes(b"key").bytes(b"g").bytes(b"c").number(1);
        let group_first = input().bytes(b"g").bytes(b"key").bytes(b"c").number(1);
        let of = |program, input: &Input| {
            Named::of(program, input.encoded()).is_some_and(|found| found == named)
        };
        for program in [
            StreamProgram::Read,
            StreamProgram::ReadAgain,
            StreamProgram::Claim,
            StreamProgram::ClaimDue,
        ] {
            assert!(of(program, &key_first), "{program:?}");
        }
        for program in [StreamProgram::ConsumerCreate, StreamProgram::ConsumerDelete] {
            assert!(of(program, &group_first), "{program:?}");
        }
        let acknowledged = input().bytes(b"g").id(ID);
        let found = Named::of(StreamProgram::Acknowledge, acknowledged.encoded());
        assert_eq!(found.map(|named| named.group), Some(&b"g"[..]));
        assert_eq!(Named::of(StreamProgram::Add, key_first.encoded()), None);
        let set = input().id(ID).id(StreamId::FIRST).flag(true).number(6);
        let beside = SetBeside {
            max_deleted: None,
            added: Some(6),
        };
        assert_eq!(SetBeside::of(set.encoded()), Some(beside));
        let set = input().id(ID).id(ID).flag(false).number(0);
        let beside = SetBeside {
            max_deleted: Some(ID),
            added: None,
        };
        assert_eq!(SetBeside::of(set.encoded()), Some(beside));
    }

    #[test]
    fn no_bytes_cause_a_panic() {
        let mut numbers = Numbers::new();
        for _ in 0..20_000 {
            let mut bytes = |most| {
                let length = numbers.below(most);
                let byte = |_| u8::try_from(numbers.below(12)).unwrap_or(0);
                (0..length).map(byte).collect::<Vec<_>>()
            };
            let (key, value, input) = (bytes(30), bytes(50), bytes(60));
            let _ = (put(&key, &value), removed(&key), SetBeside::of(&input));
            let _ = Named::of(StreamProgram::Read, &input);
        }
    }
}
