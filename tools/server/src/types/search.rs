//! A search in a structured record: what is found makes the reply.

use farcore::Answer;

use crate::resp::Writer;
use crate::types::set::reply::SetMembers;

/// What is searched in a structured record.
#[derive(Debug)]
pub(crate) enum Search {
    /// Members of a set.
    Members(SetMembers),
}

impl Search {
    pub(crate) fn write(&self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        match self {
            Self::Members(members) => members.write(answer, writer),
        }
    }

    /// Bytes of what it writes, at most.
    pub(crate) fn bytes_max(&self, _: &Answer<'_>) -> usize {
        match self {
            Self::Members(members) => members.bytes_max(),
        }
    }
}
