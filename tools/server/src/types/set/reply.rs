//! What the answer to the read of a set looks like to a Redis client.

use farcore::Answer;

use crate::resp::Writer;
use crate::steps;
use crate::texts::{ShortText, Texts};
use crate::types::kind;
use crate::types::set::value::{SetLookup, SetValue};

/// What is replied of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetReply {
    /// Its members.
    Members,
    /// How many there are.
    Count,
    /// 1 if it has this member, else 0.
    Contains(ShortText),
}

impl SetReply {
    /// Writes what an answer says.
    pub(crate) fn write(self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let written = match self {
            Self::Members => write_members(answer, writer),
            Self::Count => kind::read_answer::<SetLookup<'_>>(answer)
                .map(|set| writer.count(set.map_or(0, |set| set.len()))),
            Self::Contains(member) => kind::read_answer::<SetLookup<'_>>(answer)
                .map(|set| write_contains(set, member.bytes(), writer)),
        };
        if let Err(text) = written {
            writer.error(text);
        }
    }
}

fn write_members(answer: &Answer<'_>, writer: &mut Writer<'_>) -> Result<(), &'static str> {
    let set: Option<SetValue<'_>> = kind::read_answer(answer)?;
    writer.set(set.map_or(0, |set| set.len()));
    for member in set.iter().flat_map(SetValue::iter) {
        writer.bulk(member);
    }
    Ok(())
}

fn write_contains(set: Option<SetLookup<'_>>, member: &[u8], writer: &mut Writer<'_>) {
    writer.integer(i64::from(set.is_some_and(|set| set.contains(member))));
}

/// Members of a set that a reply is about: one that is long, or several.
#[derive(Debug)]
pub(crate) struct SetMembers {
    members: Texts,
    /// The reply is not in an array.
    is_single: bool,
}

impl SetMembers {
    /// One member.
    pub(crate) fn one(member: &[u8]) -> Self {
        Self {
            members: Texts::of(std::iter::once(member)),
            is_single: true,
        }
    }

    /// Several.
    pub(crate) fn all<'a>(members: impl Iterator<Item = &'a [u8]>) -> Self {
        Self {
            members: Texts::of(members),
            is_single: false,
        }
    }

    /// Bytes of what is written, at most.
    pub(crate) fn bytes_max(&self) -> usize {
        // A number of one digit each, and how many there are.
        16 + 4 * self.members.len()
    }

    /// Writes what an answer says of them.
    pub(crate) fn write(&self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let set = match kind::read_answer::<SetLookup<'_>>(answer) {
            Ok(set) => set,
            Err(text) => return writer.error(text),
        };
        if !self.is_single {
            writer.array(self.members.len());
        }
        steps::count(self.members.len());
        for member in self.members.iter() {
            write_contains(set, member, writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Protocol;
    use crate::types::kind::DAMAGED;
    use crate::types::replies::WRONG_TYPE;
    use crate::types::set::value::with_members;

    fn written(
        write: impl FnOnce(&Answer<'_>, &mut Writer<'_>),
        value: Option<&[u8]>,
        protocol: Protocol,
    ) -> String {
        let answer = value.map_or(Answer::Absent, |value| Answer::Value { version: 1, value });
        let mut bytes = Vec::new();
        write(&answer, &mut Writer::new(&mut bytes, protocol));
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_set_is_replied_as_a_whole_by_its_size_and_by_its_members() {
        let long = "x".repeat(30);
        let members = ["a", "b", &long];
        let (record, _) = with_members(None, members.iter().map(|member| member.as_bytes()));
        let record = record.as_deref();
        let reply = |reply: SetReply, value, protocol| {
            written(
                |answer, writer| reply.write(answer, writer),
                value,
                protocol,
            )
        };
        let bulks = format!("1\r\na\r\n$1\r\nb\r\n$30\r\n{long}\r\n");
        let all = reply(SetReply::Members, record, Protocol::Resp3);
        assert_eq!(all, format!("~3\r\n${bulks}"));
        let all = reply(SetReply::Members, record, Protocol::Resp2);
        assert_eq!(all, format!("*3\r\n${bulks}"));
        assert_eq!(reply(SetReply::Members, None, Protocol::Resp3), "~0\r\n");
        assert_eq!(reply(SetReply::Count, record, Protocol::Resp2), ":3\r\n");
        assert_eq!(reply(SetReply::Count, None, Protocol::Resp2), ":0\r\n");
        for (member, expected) in [("b", ":1\r\n"), ("c", ":0\r\n")] {
            let kind = SetReply::Contains(ShortText::of(member.as_bytes()).expect("short"));
            assert_eq!(reply(kind, record, Protocol::Resp2), expected);
            assert_eq!(reply(kind, None, Protocol::Resp2), ":0\r\n");
        }
        let one = SetMembers::one(long.as_bytes());
        let seen = written(
            |answer, writer| one.write(answer, writer),
            record,
            Protocol::Resp2,
        );
        assert_eq!(seen, ":1\r\n");
        let several = SetMembers::all([&b"a"[..], b"x", b"a"].into_iter());
        let seen = written(
            |answer, writer| several.write(answer, writer),
            record,
            Protocol::Resp2,
        );
        assert_eq!(seen, "*3\r\n:1\r\n:0\r\n:1\r\n");
    }

    #[test]
    fn a_record_that_is_no_set_is_an_error() {
        let short = ShortText::of(b"a").expect("short");
        for (record, error) in [
            (&[1, 1, 0, 0, 0, 1, b'f', 1, b'v'][..], WRONG_TYPE),
            (&[2, 0, 0, 0, 0], DAMAGED),
            (&[], DAMAGED),
        ] {
            let error = format!("-{error}\r\n");
            for reply in [
                SetReply::Members,
                SetReply::Count,
                SetReply::Contains(short),
            ] {
                let seen = written(
                    |answer, writer| reply.write(answer, writer),
                    Some(record),
                    Protocol::Resp2,
                );
                assert_eq!(seen, error);
            }
            let several = SetMembers::all([&b"a"[..], b"x"].into_iter());
            let seen = written(
                |answer, writer| several.write(answer, writer),
                Some(record),
                Protocol::Resp2,
            );
            assert_eq!(seen, error);
        }
    }
}
