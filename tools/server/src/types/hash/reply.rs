//! What the answer to the read of a hash looks like to a Redis client.

use farcore::Answer;

use crate::resp::Writer;
use crate::texts::{ShortText, Texts};
use crate::types::hash::value::HashValue;
use crate::types::kind;

/// Bytes of a reply beside the value, at most: type, length, line ends.
const BESIDE_BYTES: usize = 16;

/// What is replied of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldReply {
    /// Its value, or null.
    Value,
    /// 1 if there is such a field, else 0.
    Exists,
    /// Length of its value.
    Length,
}

impl FieldReply {
    fn write(self, value: Option<&[u8]>, writer: &mut Writer<'_>) {
        match (self, value) {
            (Self::Value, Some(value)) => writer.bulk(value),
            (Self::Value, None) => writer.null(),
            (Self::Exists, value) => writer.integer(i64::from(value.is_some())),
            (Self::Length, value) => writer.count(value.map_or(0, <[u8]>::len)),
        }
    }
}

/// What is replied of a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HashReply {
    /// Its fields with their values.
    All,
    /// Its fields.
    Names,
    /// Their values.
    Values,
    /// How many there are.
    Length,
    /// One field.
    Field(FieldReply, ShortText),
}

impl HashReply {
    /// Writes what an answer says.
    pub(crate) fn write(self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let hash = match kind::read_answer::<HashValue<'_>>(answer) {
            Ok(hash) => hash,
            Err(text) => return writer.error(text),
        };
        let (count, entries) = (
            hash.map_or(0, |hash| hash.len()),
            hash.iter().flat_map(HashValue::iter),
        );
        match self {
            Self::All => {
                writer.map(count);
                entries.for_each(|(field, value)| {
                    writer.bulk(field);
                    writer.bulk(value);
                });
            }
            Self::Names => {
                writer.array(count);
                entries.for_each(|(field, _)| writer.bulk(field));
            }
            Self::Values => {
                writer.array(count);
                entries.for_each(|(_, value)| writer.bulk(value));
            }
            Self::Length => writer.count(count),
            Self::Field(reply, field) => {
                let value = hash.and_then(|hash| hash.get(field.bytes()));
                reply.write(value, writer);
            }
        }
    }
}

/// Fields of a hash that a reply is about: one that is long, or several.
#[derive(Debug)]
pub(crate) struct HashFields {
    fields: Texts,
    /// What is replied of a single one; else an array of values is.
    single: Option<FieldReply>,
}

impl HashFields {
    /// One field.
    pub(crate) fn one(reply: FieldReply, field: &[u8]) -> Self {
        Self {
            single: Some(reply),
            ..Self::all(std::iter::once(field))
        }
    }

    /// Several.
    pub(crate) fn all<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Self {
        Self {
            fields: Texts::of(fields),
            single: None,
        }
    }

    /// Bytes of what is written of an answer, at most.
    pub(crate) fn bytes_max(&self, answer: &Answer<'_>) -> usize {
        let Ok(Some(hash)) = kind::read_answer::<HashValue<'_>>(answer) else {
            return (1 + self.fields.len()) * BESIDE_BYTES;
        };
        let values = hash.get_all(self.fields.iter()).into_iter().flatten();
        let values: usize = values.map(<[u8]>::len).sum();
        values + (1 + self.fields.len()) * BESIDE_BYTES
    }

    /// Writes what an answer says of them.
    pub(crate) fn write(&self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let hash = match kind::read_answer::<HashValue<'_>>(answer) {
            Ok(hash) => hash,
            Err(text) => return writer.error(text),
        };
        let values = match hash {
            Some(hash) => hash.get_all(self.fields.iter()),
            None => vec![None; self.fields.len()],
        };
        let reply = self.single.unwrap_or_else(|| {
            writer.array(values.len());
            FieldReply::Value
        });
        for value in values {
            reply.write(value, writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Protocol;
    use crate::types::hash::value::with_fields;

    fn written(write: impl FnOnce(&Answer<'_>, &mut Writer<'_>), answer: &Answer<'_>) -> String {
        let mut bytes = Vec::new();
        write(answer, &mut Writer::new(&mut bytes, Protocol::Resp3));
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn short_and_long_fields_are_found_alike() {
        let long = "f".repeat(22);
        let short = &long[1..];
        let (bytes, _) = with_fields(None, &[(short.as_bytes(), b"1"), (long.as_bytes(), b"23")]);
        let answer = Answer::Value {
            version: 1,
            value: &bytes,
        };
        let field = ShortText::of(short.as_bytes()).expect("it is short");
        assert_eq!(ShortText::of(long.as_bytes()), None);
        for (reply, of_short, of_long, of_none) in [
            (FieldReply::Value, "$1\r\n1\r\n", "$2\r\n23\r\n", "_\r\n"),
            (FieldReply::Exists, ":1\r\n", ":1\r\n", ":0\r\n"),
            (FieldReply::Length, ":1\r\n", ":2\r\n", ":0\r\n"),
        ] {
            let kind = HashReply::Field(reply, field);
            let seen = written(|answer, writer| kind.write(answer, writer), &answer);
            assert_eq!(seen, of_short);
            let absent = written(|answer, writer| kind.write(answer, writer), &Answer::Absent);
            assert_eq!(absent, of_none);
            for (field, expected) in [(&long[..], of_long), (short, of_short), ("x", of_none)] {
                let fields = HashFields::one(reply, field.as_bytes());
                let seen = written(|answer, writer| fields.write(answer, writer), &answer);
                assert_eq!(seen, expected, "{field}");
            }
        }
    }

    #[test]
    fn a_record_that_is_no_hash_is_an_error() {
        let answer = Answer::Value {
            version: 1,
            value: b"\x00",
        };
        let error = format!("-{}\r\n", kind::DAMAGED);
        let all = written(
            |answer, writer| HashReply::All.write(answer, writer),
            &answer,
        );
        assert_eq!(all, error);
        let fields = HashFields::all([&b"a"[..], b"b"].into_iter());
        let several = written(|answer, writer| fields.write(answer, writer), &answer);
        assert_eq!(several, error);
        let absent = written(
            |answer, writer| fields.write(answer, writer),
            &Answer::Absent,
        );
        assert_eq!(absent, "*2\r\n_\r\n_\r\n");
    }
}
