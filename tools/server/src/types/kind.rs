//! The kinds of structured records: hashes, sets and lists.
//!
//! The engine knows only that a record is structured. The first byte of its value says of which
//! kind it is, and in which version of that kind's encoding.
//!
//! - I1: each kind has first bytes of its own, so no record is read as one of another kind.

use farcore::{Answer, Operation, TreeGuard, TreeOp};

use crate::types::encoding_limits::EncodingLimits;
use crate::types::replies::WRONG_TYPE;
use crate::types::set::value::SetValue;

/// What a client reads if a structured record is none that this server writes.
pub(crate) const DAMAGED: &str = "DAMAGED the structured record of the key is not whole";

/// The kind of a structured record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Hash = 1,
    Set = 2,
    List = 3,
}

impl Kind {
    /// All kinds.
    const ALL: [Self; 3] = [Self::Hash, Self::Set, Self::List];

    /// The first byte of its records.
    pub(crate) const fn byte(self) -> u8 {
        self as u8
    }

    /// The tag of its trees.
    pub(crate) const fn tag(self) -> u8 {
        self as u8
    }

    /// The kind of a tree with a tag.
    pub(crate) fn of_tag(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }

    /// The name of the type of a key that holds a tree with a tag.
    pub(crate) fn name_of_tag(tag: u8) -> &'static str {
        Self::of_tag(tag).map_or("unknown", Self::name)
    }

    /// An operation on the tree of a key, which is of this kind.
    pub(crate) fn operation<'a>(self, key: &'a [u8], op: TreeOp<'a>) -> Operation<'a> {
        let guard = TreeGuard {
            tag: self.tag(),
            version: None,
        };
        Operation::Tree { key, op, guard }
    }

    /// The kind that the first byte of a structured record says.
    pub(crate) fn of(record: &[u8]) -> Option<Self> {
        let first = *record.first()?;
        Self::ALL.into_iter().find(|kind| kind.byte() == first)
    }

    /// As `TYPE` says it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Set => "set",
            Self::List => "list",
        }
    }
}

/// What a record of one kind holds.
pub(crate) trait Structured<'a>: Sized {
    /// The kind.
    const KIND: Kind;

    /// What the record holds; `None` if it is not whole or of another kind.
    fn of(record: &'a [u8]) -> Option<Self>;
}

/// What a structured record holds for a command of one kind, or what the client reads instead.
pub(crate) fn read<'a, V: Structured<'a>>(record: &'a [u8]) -> Result<V, &'static str> {
    V::of(record).ok_or_else(|| match Kind::of(record) {
        Some(kind) if kind != V::KIND => WRONG_TYPE,
        _ => DAMAGED,
    })
}

/// Reads a value of this kind from the answer to a read: none if the key is absent.
pub(crate) fn read_answer<'a, V: Structured<'a>>(
    answer: &Answer<'a>,
) -> Result<Option<V>, &'static str> {
    match *answer {
        Answer::Value { value, .. } => read(value).map(Some),
        _ => Ok(None),
    }
}

/// The type of a key whose value is structured, and begins so, or is not.
pub(crate) fn type_name(structured: bool, value: &[u8]) -> &'static str {
    if structured {
        Kind::of(value).map_or("unknown", Kind::name)
    } else {
        "string"
    }
}

/// The encoding that Redis would choose for a structured record; `None` if it is not whole.
pub(crate) fn encoding(record: &[u8], limits: &EncodingLimits) -> Option<&'static str> {
    match Kind::of(record)? {
        // It is no record.
        Kind::Hash => None,
        Kind::Set => SetValue::of(record).map(|set| set.encoding(limits.set())),
        // It is no record.
        Kind::List => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::set::value::with_members;

    #[test]
    fn a_record_is_of_the_kind_that_its_first_byte_says() {
        let (set, _) = with_members(None, [&b"member"[..]].into_iter());
        let set = set.expect("it has a member");
        assert_eq!(type_name(true, &set), "set");
        assert!(read::<SetValue<'_>>(&set).is_ok());
        for (kind, error) in [
            (Kind::Hash, Some(WRONG_TYPE)),
            (Kind::Set, None),
            (Kind::List, Some(WRONG_TYPE)),
        ] {
            let mut other = set.clone();
            other[0] = kind.byte();
            assert_eq!(type_name(true, &other), kind.name());
            assert_eq!(read::<SetValue<'_>>(&other).err(), error, "{kind:?}");
            assert_eq!(Kind::of_tag(kind.tag()), Some(kind));
        }
        for none in [&[][..], &[0], &[77, 1, 0, 0, 0]] {
            assert_eq!(type_name(true, none), "unknown");
            assert_eq!(read::<SetValue<'_>>(none), Err(DAMAGED));
        }
        assert_eq!(type_name(false, &set), "string");
        assert_eq!(Kind::of_tag(0), None);
    }

    #[test]
    fn an_absent_key_holds_nothing_of_any_kind() {
        assert_eq!(read_answer::<SetValue<'_>>(&Answer::Absent), Ok(None));
        let answer = Answer::Value {
            version: 1,
            value: b"\x03",
        };
        assert_eq!(read_answer::<SetValue<'_>>(&answer), Err(WRONG_TYPE));
    }
}
