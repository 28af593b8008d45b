//! What answers about a hash look like to a Redis client.

use farcore::{Answer, TreeView};

use crate::resp::Writer;
use crate::types::element::{self, Entry};

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
    /// The values of several fields, none of which lies before its value.
    Fields { count: u32 },
    /// One field, whose value is the answer.
    Field { reply: FieldReply, is_long: bool },
    /// One field, which was looked up as the only one of several: the answer tells whether the key
    /// is there.
    Found { reply: FieldReply, is_long: bool },
    /// The field that was drawn, or null.
    Drawn,
}

impl HashReply {
    /// True if the answer may have only a part of what is replied.
    pub(crate) fn may_be_part(self) -> bool {
        matches!(
            self,
            Self::All | Self::Names | Self::Values | Self::Fields { .. }
        )
    }

    /// True if the answer has only a part of what is replied.
    pub(crate) fn is_part(self, answer: &Answer<'_>) -> bool {
        let view = TreeView::of(answer);
        match self {
            Self::All | Self::Names | Self::Values => view.has_more(),
            Self::Fields { count } => view.version() > 0 && view.values().count() < count as usize,
            Self::Field { .. } | Self::Found { .. } | Self::Drawn => false,
        }
    }

    /// Writes what comes before the elements of which a reply has this many.
    pub(crate) fn write_head(self, count: usize, writer: &mut Writer<'_>) {
        match self {
            Self::All => writer.map(count),
            _ => writer.array(count),
        }
    }

    /// Writes an element.
    fn write_element(self, (field, value): Entry<'_>, writer: &mut Writer<'_>) {
        if self != Self::Values {
            writer.bulk(field);
        }
        if self != Self::Names {
            writer.bulk(value);
        }
    }

    /// Writes the value of a field, of which this is the key in the tree.
    pub(crate) fn write_value(self, key: &[u8], value: Option<&[u8]>, writer: &mut Writer<'_>) {
        let is_long = element::is_long_key(key);
        let value = value.and_then(|stored| element::value_in(stored, is_long));
        FieldReply::Value.write(value, writer);
    }

    /// Writes the elements of a page.
    pub(crate) fn write_elements<'a>(
        self,
        page: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        writer: &mut Writer<'_>,
    ) {
        for stored in page {
            let entry = element::entry_of(stored).unwrap_or(stored);
            self.write_element(entry, writer);
        }
    }

    /// Writes what an answer says.
    pub(crate) fn write(self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let view = TreeView::of(answer);
        let value_of = |stored, is_long| element::value_in(stored, is_long).unwrap_or(stored);
        match self {
            Self::All | Self::Names | Self::Values => {
                self.write_head(view.elements().count(), writer);
                self.write_elements(view.elements(), writer);
            }
            Self::Fields { count } => {
                self.write_head(count as usize, writer);
                let absent = std::iter::repeat(None);
                for value in view.values().chain(absent).take(count as usize) {
                    FieldReply::Value.write(value, writer);
                }
            }
            Self::Field { reply, is_long } => {
                let value = match *answer {
                    Answer::Value { value, .. } => Some(value_of(value, is_long)),
                    _ => None,
                };
                reply.write(value, writer);
            }
            Self::Found { reply, is_long } => {
                let value = view.values().next().flatten();
                reply.write(value.map(|stored| value_of(stored, is_long)), writer);
            }
            Self::Drawn => {
                let drawn = view.elements().next().and_then(element::entry_of);
                FieldReply::Value.write(drawn.map(|(field, _)| field), writer);
            }
        }
    }
}
