//! The kinds of structured records: hashes, sets and lists.
//!
//! The engine knows only that a record is structured. The first byte of its value says of which
//! kind it is, and in which version of that kind's encoding.
//!
//! - I1: each kind has first bytes of its own, so no record is read as one of another kind.

use farcore::Answer;

use crate::types::encoding_limits::EncodingLimits;
use crate::types::hash::value::HashValue;
use crate::types::list::value::ListValue;
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
        Kind::Hash => HashValue::of(record).map(|hash| hash.encoding(limits.hash())),
        Kind::Set => SetValue::of(record).map(|set| set.encoding(limits.set())),
        Kind::List => ListValue::of(record).map(|list| list.encoding(limits.list())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::hash::value::with_fields;

    #[test]
    fn a_record_is_of_the_kind_that_its_first_byte_says() {
        let (hash, _) = with_fields(None, &[(b"field", b"value")]);
        assert_eq!(type_name(true, &hash), "hash");
        assert!(read::<HashValue<'_>>(&hash).is_ok());
        for (kind, error) in [
            (Kind::Hash, None),
            (Kind::Set, Some(WRONG_TYPE)),
            (Kind::List, Some(WRONG_TYPE)),
        ] {
            let mut other = hash.clone();
            other[0] = kind.byte();
            assert_eq!(type_name(true, &other), kind.name());
            assert_eq!(read::<HashValue<'_>>(&other).err(), error, "{kind:?}");
        }
        for none in [&[][..], &[0], &[77, 1, 0, 0, 0]] {
            assert_eq!(type_name(true, none), "unknown");
            assert_eq!(read::<HashValue<'_>>(none), Err(DAMAGED));
        }
        assert_eq!(type_name(false, &hash), "string");
    }

    #[test]
    fn an_absent_key_holds_nothing_of_any_kind() {
        assert_eq!(read_answer::<HashValue<'_>>(&Answer::Absent), Ok(None));
        let answer = Answer::Value {
            version: 1,
            value: b"\x02",
        };
        assert_eq!(read_answer::<HashValue<'_>>(&answer), Err(WRONG_TYPE));
    }
}
