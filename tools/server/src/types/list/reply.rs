//! What the answer to the read of a list looks like to a Redis client.

use farcore::Answer;

use crate::resp::Writer;
use crate::types::kind;
use crate::types::list::value::{ListValue, Occurrences};

/// What is replied of a list. No list is so long that its indices do not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListReply {
    /// How many elements there are.
    Length,
    /// The element at an index, or null.
    Element(i32),
    /// The elements from one index to another, both included.
    Range(i32, i32),
}

/// An index that means the same for every list.
pub(crate) fn index(index: i64) -> i32 {
    let (min, max) = (i64::from(i32::MIN), i64::from(i32::MAX));
    i32::try_from(index.clamp(min, max)).unwrap_or(i32::MAX)
}

impl ListReply {
    /// Writes what an answer says.
    pub(crate) fn write(self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let list = match kind::read_answer::<ListValue<'_>>(answer) {
            Ok(list) => list,
            Err(text) => return writer.error(text),
        };
        match self {
            Self::Length => writer.count(list.map_or(0, |list| list.len())),
            Self::Element(index) => {
                let element = list.and_then(|list| list.element(i64::from(index)));
                match element {
                    Some(element) => writer.bulk(element),
                    None => writer.null(),
                }
            }
            Self::Range(start, end) => {
                let elements = list.map(|list| {
                    let places = list.places(i64::from(start), i64::from(end));
                    list.elements(places)
                });
                writer.array(elements.as_ref().map_or(0, ExactSizeIterator::len));
                let elements = elements.into_iter().flatten();
                elements.for_each(|element| writer.bulk(element));
            }
        }
    }
}

/// Occurrences of an element that a reply is about.
#[derive(Debug)]
pub(crate) struct ListPlaces {
    pub(crate) element: Vec<u8>,
    pub(crate) occurrences: Occurrences,
    /// An array of places is replied; else one place, or null.
    pub(crate) is_array: bool,
}

impl ListPlaces {
    /// Writes what an answer says of them.
    pub(crate) fn write(&self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let list = match kind::read_answer::<ListValue<'_>>(answer) {
            Ok(list) => list,
            Err(text) => return writer.error(text),
        };
        let found = list.map(|list| list.find(&self.element, self.occurrences));
        let found = found.unwrap_or_default();
        if self.is_array {
            writer.array(found.len());
            found.into_iter().for_each(|place| writer.count(place));
        } else {
            match found.first() {
                Some(&place) => writer.count(place),
                None => writer.null(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Protocol;
    use crate::types::list::value::{Side, with_added};

    fn written(write: impl FnOnce(&Answer<'_>, &mut Writer<'_>), value: Option<&[u8]>) -> String {
        let answer = value.map_or(Answer::Absent, |value| Answer::Value { version: 1, value });
        let mut bytes = Vec::new();
        write(&answer, &mut Writer::new(&mut bytes, Protocol::Resp3));
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_list_is_replied_as_far_as_it_goes() {
        let elements = [&b"a"[..], b"b", b"a"].into_iter();
        let list = with_added(None, Side::Right, elements).expect("elements");
        for (reply, of_list, of_none) in [
            (ListReply::Length, ":3\r\n", ":0\r\n"),
            (ListReply::Element(-2), "$1\r\nb\r\n", "_\r\n"),
            (ListReply::Element(3), "_\r\n", "_\r\n"),
            (
                ListReply::Range(-2, i32::MAX),
                "*2\r\n$1\r\nb\r\n$1\r\na\r\n",
                "*0\r\n",
            ),
        ] {
            let write = |answer: &Answer<'_>, writer: &mut Writer<'_>| reply.write(answer, writer);
            assert_eq!(written(write, Some(&list)), of_list, "{reply:?}");
            assert_eq!(written(write, None), of_none, "{reply:?}");
            let error = format!("-{}\r\n", kind::DAMAGED);
            assert_eq!(written(write, Some(&list[1..])), error, "{reply:?}");
        }
    }

    #[test]
    fn places_are_replied_alone_or_as_an_array() {
        let elements = [&b"a"[..], b"b", b"a"].into_iter();
        let list = with_added(None, Side::Right, elements).expect("elements");
        for (element, is_array, of_list, of_none) in [
            ("a", true, "*2\r\n:2\r\n:0\r\n", "*0\r\n"),
            ("a", false, ":2\r\n", "_\r\n"),
            ("x", true, "*0\r\n", "*0\r\n"),
            ("x", false, "_\r\n", "_\r\n"),
        ] {
            let places = ListPlaces {
                element: element.into(),
                occurrences: Occurrences {
                    rank: -1,
                    count: usize::MAX,
                    compared: usize::MAX,
                },
                is_array,
            };
            let write = |answer: &Answer<'_>, writer: &mut Writer<'_>| places.write(answer, writer);
            assert_eq!(written(write, Some(&list)), of_list);
            assert_eq!(written(write, None), of_none);
        }
    }

    #[test]
    fn indices_beyond_any_list_stay_beyond() {
        assert_eq!(index(i64::MIN), i32::MIN);
        assert_eq!(index(-7), -7);
        assert_eq!(index(i64::MAX), i32::MAX);
    }
}
