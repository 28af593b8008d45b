//! What answers about a stream look like to a Redis client.

use farcore::Answer;

use super::input::Answered;
use crate::resp::Writer;

/// What is replied of a stream, where its program has not written it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamReply {
    /// The ID of an entry that was added, or null.
    Added,
    /// A number, 0 if there is no stream.
    Number,
}

impl StreamReply {
    /// Writes the reply, which an answer has.
    pub(crate) fn write(self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        match answer {
            Answer::Value { value, .. } => writer.raw(Answered::of(value).reply()),
            _ => self.write_absent(writer),
        }
    }

    /// Writes the reply where there is no stream.
    pub(crate) fn write_absent(self, writer: &mut Writer<'_>) {
        match self {
            Self::Added => writer.null(),
            Self::Number => writer.integer(0),
        }
    }
}
