//! A search in a structured record: what is found makes the reply.

use farcore::Answer;

use crate::resp::Writer;
use crate::types::list::reply::ListPlaces;
use crate::types::set::reply::SetMembers;

/// What is searched in a structured record.
#[derive(Debug)]
pub(crate) enum Search {
    /// Occurrences of an element of a list.
    Places(ListPlaces),
    /// Members of a set.
    Members(SetMembers),
}

impl Search {
    pub(crate) fn write(&self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        match self {
            Self::Places(places) => places.write(answer, writer),
            Self::Members(members) => members.write(answer, writer),
        }
    }

    /// Bytes of what it writes, at most.
    pub(crate) fn bytes_max(&self, answer: &Answer<'_>) -> usize {
        match self {
            // An element takes two bytes of the record at least, and its place ten of the reply.
            Self::Places(_) => 64 + 5 * answer.value().len(),
            Self::Members(members) => members.bytes_max(),
        }
    }
}
