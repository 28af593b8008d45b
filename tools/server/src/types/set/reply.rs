//! What answers about a set look like to a Redis client.

use farcore::{Answer, TreeView};

use crate::resp::Writer;
use crate::types::element;

/// What is replied of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetReply {
    /// Its members.
    Members,
    /// 1 for each member that it has, else 0.
    ContainsAll { count: u32 },
    /// 1 if it has a member, else 0; what the member's key in the tree has is the answer.
    Contains,
    /// 1 if it has a member, else 0, of one that was looked up as the only one of several: the
    /// answer tells whether the key is there.
    Found,
    /// The member that was drawn, or null.
    Drawn,
}

impl SetReply {
    /// True if the answer may have only a part of what is replied.
    pub(crate) fn may_be_part(self) -> bool {
        matches!(self, Self::Members | Self::ContainsAll { .. })
    }

    /// True if the answer has only a part of what is replied.
    pub(crate) fn is_part(self, answer: &Answer<'_>) -> bool {
        let view = TreeView::of(answer);
        match self {
            Self::Members => view.has_more(),
            Self::ContainsAll { count } => {
                view.version() > 0 && view.values().count() < count as usize
            }
            Self::Contains | Self::Found | Self::Drawn => false,
        }
    }

    /// Writes what comes before the elements of which a reply has this many.
    pub(crate) fn write_head(self, count: usize, writer: &mut Writer<'_>) {
        match self {
            Self::Members => writer.set(count),
            _ => writer.array(count),
        }
    }

    /// Writes whether a member is there.
    pub(crate) fn write_value(self, value: Option<&[u8]>, writer: &mut Writer<'_>) {
        writer.integer(i64::from(value.is_some()));
    }

    /// Writes the members of a page.
    pub(crate) fn write_elements<'a>(
        self,
        page: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        writer: &mut Writer<'_>,
    ) {
        for stored in page {
            let (member, _) = element::entry_of(stored).unwrap_or(stored);
            writer.bulk(member);
        }
    }

    /// Writes what an answer says.
    pub(crate) fn write(self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let view = TreeView::of(answer);
        match self {
            Self::Members => {
                self.write_head(view.elements().count(), writer);
                self.write_elements(view.elements(), writer);
            }
            Self::ContainsAll { count } => {
                self.write_head(count as usize, writer);
                let absent = std::iter::repeat(None);
                for value in view.values().chain(absent).take(count as usize) {
                    self.write_value(value, writer);
                }
            }
            Self::Contains => {
                let is_there = matches!(answer, Answer::Value { .. });
                writer.integer(i64::from(is_there));
            }
            Self::Found => self.write_value(view.values().next().flatten(), writer),
            Self::Drawn => match view.elements().next().and_then(element::entry_of) {
                Some((member, _)) => writer.bulk(member),
                None => writer.null(),
            },
        }
    }
}
