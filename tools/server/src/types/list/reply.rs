//! What the answer to an operation on a list looks like to a Redis client, and what is left to do
//! where it does not tell all.

use farcore::{Answer, Error, TreeView};

use crate::resp::Writer;
use crate::types::kind::Kind;
use crate::types::list::side::Side;
use crate::types::replies::{WRONG_TYPE, error_text};

/// What is replied of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListReply {
    /// How many elements there are.
    Length,
    /// The element at an index, or null.
    Element(i32),
    /// The elements from one index to another, both included.
    Range(i32, i32),
    /// How many elements there are, some of which were added.
    Pushed,
    /// The element that was taken off an end, or null.
    Popped,
    /// The elements that were taken off an end, at most this many, or null.
    PoppedSome(Side, u32),
    /// `OK`, if there was such an element.
    Set,
    /// `OK`; what is not within these indices is removed.
    Trimmed(i32, i32),
}

/// What is left of a command that its answer does not end.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ListRest {
    /// The elements from one index to another are to be read.
    Range(i64, i64),
    /// More elements are to be taken off an end; some were.
    Pop(Side, u64, TakenElements),
    /// It is not known why no element was set.
    Unset,
    /// What is not within these indices is to be removed.
    Trim(i64, i64),
}

/// An index as a reply's kind has it, if it fits.
pub(crate) fn short_index(index: i64) -> Option<i32> {
    i32::try_from(index).ok()
}

/// Why an operation on a list failed, as the client reads it.
pub(crate) fn list_error_text(error: &Error) -> String {
    match error {
        Error::ValueTooLong { bytes, max } => format!(
            "ERR an element of a list has at most {max} bytes, this one takes {bytes}: divide it"
        ),
        error => error_text(error),
    }
}

/// What a client reads where there is no list to set an element of.
pub(crate) const NO_SUCH_KEY: &str = "ERR no such key";

/// Elements that were taken off a list, as they are replied.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TakenElements {
    pub(crate) replies: Vec<u8>,
    pub(crate) count: u64,
}

impl TakenElements {
    /// Adds those of a page.
    pub(crate) fn add<'a>(&mut self, elements: impl Iterator<Item = &'a [u8]>) {
        // A bulk string looks the same in every protocol.
        let mut writer = Writer::new(&mut self.replies, crate::resp::Protocol::Resp2);
        for element in elements {
            writer.bulk(element);
            self.count += 1;
        }
    }
}

/// What the indices of a trim are once it has removed some elements at the ends, and others are to
/// be removed. `start` is the rank of the slice now, and the list has `elements` left.
pub(crate) fn after_trim(
    (first, last): (i64, i64),
    (removed, start, elements): (u64, u64, u64),
) -> (i64, i64) {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let before = signed(elements.saturating_add(removed));
    let from_head = |index: i64| match index {
        0.. => index,
        _ => before.saturating_add(index),
    };
    let slice_start = from_head(first).clamp(0, before);
    if from_head(last).min(before - 1) < slice_start {
        return NOTHING;
    }
    let at_head = slice_start.saturating_sub(signed(start));
    let at_tail = signed(removed).saturating_sub(at_head);
    // An index counts from one end, and changes by what was removed there.
    let moved = |index: i64| match index {
        0.. => index.saturating_sub(at_head),
        _ => index.saturating_add(at_tail),
    };
    (moved(first), moved(last))
}

/// Indices between which there is no element of any list.
const NOTHING: (i64, i64) = (1, 0);

impl ListReply {
    /// What is left to do after an answer.
    pub(crate) fn rest(self, answer: &Answer<'_>) -> Option<ListRest> {
        let view = TreeView::of(answer);
        match (self, answer) {
            (Self::Set, Answer::Absent) => Some(ListRest::Unset),
            (Self::Range(first, last), Answer::Value { .. }) if view.has_more() => {
                Some(ListRest::Range(first.into(), last.into()))
            }
            (Self::PoppedSome(side, wanted), Answer::Value { .. }) if view.has_more() => {
                let mut taken = TakenElements::default();
                taken.add(view.elements().map(|(_, element)| element));
                let left = u64::from(wanted).saturating_sub(taken.count);
                (left > 0).then_some(ListRest::Pop(side, left, taken))
            }
            (Self::Trimmed(first, last), Answer::Value { .. }) if view.number(3) != 0 => {
                let removed = (view.number(0), view.number(1), view.number(4));
                let (first, last) = after_trim((first.into(), last.into()), removed);
                Some(ListRest::Trim(first, last))
            }
            _ => None,
        }
    }

    /// Writes what an answer says that leaves nothing to do.
    pub(crate) fn write(self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let view = TreeView::of(answer);
        let mut elements = view.elements().map(|(_, element)| element);
        match self {
            Self::Length => {
                let length = view.length();
                if length.elements > 0 && length.tag != Kind::List.tag() {
                    return writer.error(WRONG_TYPE);
                }
                writer.integer(i64::try_from(length.elements).unwrap_or(i64::MAX));
            }
            Self::Element(_) | Self::Popped => match elements.next() {
                Some(element) => writer.bulk(element),
                None => writer.null(),
            },
            // A list that is there has a version.
            Self::PoppedSome(..) if view.version() == 0 => writer.null_array(),
            Self::Range(..) | Self::PoppedSome(..) => {
                let count = view.elements().count();
                writer.array(count);
                elements.for_each(|element| writer.bulk(element));
            }
            Self::Pushed => writer.integer(i64::try_from(view.number(0)).unwrap_or(i64::MAX)),
            Self::Set if *answer == Answer::Absent => writer.error(NO_SUCH_KEY),
            Self::Set | Self::Trimmed(..) => writer.simple("OK"),
        }
    }
}

/// Which occurrences of an element are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Occurrences {
    /// The first one that counts, from 1 on; from the tail if it is negative.
    pub(crate) rank: i64,
    /// How many, at most.
    pub(crate) count: u64,
    /// Elements that are compared, at most.
    pub(crate) compared: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Protocol;

    fn page(has_more: bool, elements: &[&[u8]]) -> Vec<u8> {
        let mut page = vec![u8::from(has_more)];
        for element in elements {
            page.extend(0_u32.to_le_bytes());
            page.extend(u32::try_from(element.len()).expect("short").to_le_bytes());
            page.extend_from_slice(element);
        }
        page
    }

    fn numbers(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|one| one.to_le_bytes()).collect()
    }

    fn written(reply: ListReply, value: Option<&[u8]>) -> String {
        let answer = value.map_or(Answer::Absent, |value| Answer::Value { version: 1, value });
        let mut bytes = Vec::new();
        reply.write(&answer, &mut Writer::new(&mut bytes, Protocol::Resp3));
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn answers_are_replied_as_redis_does() {
        let both = page(true, &[b"a", b""]);
        let none = page(false, &[]);
        let length = |tag| [numbers(&[3, 9]), vec![1, tag]].concat();
        for (reply, value, expected) in [
            (ListReply::Length, Some(length(3)), ":3\r\n"),
            (
                ListReply::Length,
                Some(length(1)),
                "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
            ),
            (ListReply::Length, None, ":0\r\n"),
            (ListReply::Element(0), Some(both.clone()), "$1\r\na\r\n"),
            (ListReply::Element(0), Some(none.clone()), "_\r\n"),
            (ListReply::Element(0), None, "_\r\n"),
            (
                ListReply::Range(0, 1),
                Some(both.clone()),
                "*2\r\n$1\r\na\r\n$0\r\n\r\n",
            ),
            (ListReply::Range(0, 1), None, "*0\r\n"),
            (ListReply::Pushed, Some(numbers(&[7])), ":7\r\n"),
            (ListReply::Pushed, None, ":0\r\n"),
            (ListReply::Popped, Some(both.clone()), "$1\r\na\r\n"),
            (ListReply::Popped, None, "_\r\n"),
            (
                ListReply::PoppedSome(Side::Left, 0),
                Some(none.clone()),
                "*0\r\n",
            ),
            (ListReply::PoppedSome(Side::Left, 1), None, "_\r\n"),
            (ListReply::Set, Some(b"old".to_vec()), "+OK\r\n"),
            (ListReply::Set, None, "-ERR no such key\r\n"),
            (ListReply::Trimmed(0, 1), None, "+OK\r\n"),
        ] {
            assert_eq!(written(reply, value.as_deref()), expected, "{reply:?}");
        }
    }

    #[test]
    fn an_answer_tells_what_is_left_to_do() {
        let page = page(true, &[b"a", b"b"]);
        let rest =
            |reply: ListReply, value: &[u8]| reply.rest(&Answer::Value { version: 1, value });
        let range = rest(ListReply::Range(0, -1), &page);
        assert_eq!(range, Some(ListRest::Range(0, -1)));
        let taken = TakenElements {
            replies: b"$1\r\na\r\n$1\r\nb\r\n".to_vec(),
            count: 2,
        };
        let pop = rest(ListReply::PoppedSome(Side::Right, 5), &page);
        assert_eq!(pop, Some(ListRest::Pop(Side::Right, 3, taken)));
        assert_eq!(rest(ListReply::PoppedSome(Side::Left, 2), &page), None);
        // Whether an element is left.
        assert_eq!(rest(ListReply::Popped, &page), None);
        assert_eq!(ListReply::Set.rest(&Answer::Absent), Some(ListRest::Unset));
        let trimmed = numbers(&[20, 3, 6, 1, 80]);
        let trim = rest(ListReply::Trimmed(8, 10), &trimmed);
        assert_eq!(trim, Some(ListRest::Trim(3, 5)));
        let trimmed = numbers(&[20, 3, 6, 0, 80]);
        assert_eq!(rest(ListReply::Trimmed(8, 10), &trimmed), None);
    }

    /// A trim in parts keeps what one step would, also if elements are added at the ends between.
    #[test]
    fn the_indices_of_a_trim_keep_their_meaning() {
        let slice = |(first, last): (i64, i64), count: i64| {
            let from_head = |index: i64| if index < 0 { index + count } else { index };
            let start = from_head(first).clamp(0, count);
            start..(from_head(last) + 1).clamp(start, count)
        };
        let indices = [
            (2, 5),
            (-6, -3),
            (2, -3),
            (-6, 5),
            (0, -1),
            (30, 40),
            (-3, -9),
            (5, 2),
            (-30, 2),
            (0, -20),
        ];
        for indices in indices {
            let kept = slice(indices, 10);
            let all =
                (0..=kept.start).flat_map(|head| (0..=10 - kept.end).map(move |tail| (head, tail)));
            for (head, tail) in all {
                let [removed, start, left] = [head + tail, kept.start - head, 10 - head - tail]
                    .map(|one| u64::try_from(one).expect("some"));
                let found = slice(
                    after_trim(indices, (removed, start, left)),
                    10 - head - tail,
                );
                if kept.is_empty() {
                    assert!(found.is_empty(), "{indices:?}");
                } else {
                    let expected = kept.start - head..kept.end - head;
                    assert_eq!(found, expected, "{indices:?} without {head} and {tail}");
                }
            }
        }
    }
}
