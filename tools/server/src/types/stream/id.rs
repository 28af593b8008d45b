//! The ID of an entry: when it was added, and which one of that millisecond it is.

use std::fmt;

/// What is no ID, as Redis says it.
pub(crate) const NO_ID: &str = "ERR Invalid stream ID specified as stream command argument";
/// The longest text that is looked at.
const TEXT_BYTES_MAX: usize = 127;

/// The ID of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct StreamId {
    /// Milliseconds since 1970.
    pub(crate) ms: u64,
    /// Its number among those of the millisecond.
    pub(crate) number: u64,
}

/// What an ID of a command may leave open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NewId {
    /// It is this one.
    Whole(StreamId),
    /// The next one of this millisecond.
    Of(u64),
    /// The next one, at this time or later.
    From(u64),
}

impl StreamId {
    pub(crate) const FIRST: Self = Self { ms: 0, number: 0 };
    pub(crate) const LAST: Self = Self {
        ms: u64::MAX,
        number: u64::MAX,
    };

    /// The ID that follows.
    pub(crate) fn next(self) -> Option<Self> {
        match self.number.checked_add(1) {
            Some(number) => Some(Self { number, ..self }),
            None => Some(Self {
                ms: self.ms.checked_add(1)?,
                number: 0,
            }),
        }
    }

    /// The ID before.
    pub(crate) fn previous(self) -> Option<Self> {
        match self.number.checked_sub(1) {
            Some(number) => Some(Self { number, ..self }),
            None => Some(Self {
                ms: self.ms.checked_sub(1)?,
                number: u64::MAX,
            }),
        }
    }

    /// Its bytes in the order of IDs.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.number)).to_be_bytes()
    }

    /// The ID of bytes.
    pub(crate) fn of_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        let [ms, number] = [both >> 64, both & u128::from(u64::MAX)];
        Self {
            ms: u64::try_from(ms).unwrap_or(u64::MAX),
            number: u64::try_from(number).unwrap_or(u64::MAX),
        }
    }

    /// The ID that a text is: milliseconds, and a number, which is `missing` if there is none.
    pub(crate) fn parse(text: &[u8], missing: u64) -> Option<Self> {
        match parts(text, missing)? {
            (ms, Some(number)) => Some(Self { ms, number }),
            _ => None,
        }
    }

    /// The end of a range that a text is; `(` before it excludes it. `-` and `+` are the first and
    /// the last ID. The end is the next one, or the one before, if it is excluded.
    pub(crate) fn parse_end(text: &[u8], is_upper: bool) -> Result<Self, &'static str> {
        let missing = if is_upper { u64::MAX } else { 0 };
        match text {
            b"-" => Ok(Self::FIRST),
            b"+" => Ok(Self::LAST),
            [b'(', rest @ ..] if !rest.is_empty() => {
                let id = Self::parse(rest, missing).ok_or(NO_ID)?;
                if is_upper {
                    let end = id.previous();
                    return end.ok_or("ERR invalid end ID for the interval");
                }
                id.next().ok_or("ERR invalid start ID for the interval")
            }
            text => Self::parse(text, missing).ok_or(NO_ID),
        }
    }
}

impl NewId {
    /// The ID of a new entry that a text is.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        match parts(text, 0)? {
            (ms, Some(number)) => Some(Self::Whole(StreamId { ms, number })),
            (ms, None) => Some(Self::Of(ms)),
        }
    }
}

/// Milliseconds and number of a text; no number if that is `*`.
fn parts(text: &[u8], missing: u64) -> Option<(u64, Option<u64>)> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    match text.split_once('-') {
        None => Some((number(text)?, Some(missing))),
        Some((ms, "*")) => Some((number(ms)?, None)),
        Some((ms, rest)) => Some((number(ms)?, Some(number(rest)?))),
    }
}

/// A number as Redis takes it: also with a sign or zeros before it.
fn number(text: &str) -> Option<u64> {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for StreamId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.ms, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(ms: u64, number: u64) -> StreamId {
        StreamId { ms, number }
    }

    #[test]
    fn an_id_is_read_as_it_is_shown_and_ordered_as_its_bytes() {
        let ids = [
            id(0, 0),
            id(0, 1),
            id(1, 0),
            id(1, u64::MAX),
            id(2, 7),
            StreamId::LAST,
        ];
        for pair in ids.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].to_bytes() < pair[1].to_bytes());
        }
        for id in ids {
            assert_eq!(StreamId::parse(id.to_string().as_bytes(), 0), Some(id));
            assert_eq!(StreamId::of_bytes(id.to_bytes()), id);
            assert_eq!(id.next().map_or(Some(id), StreamId::previous), Some(id));
        }
    }

    #[test]
    fn texts_that_are_no_ids_are_refused() {
        for text in [
            "",
            "-",
            "+",
            "x",
            "1-",
            "-1",
            "1-x",
            "1-2-3",
            "1 ",
            "18446744073709551616",
        ] {
            assert_eq!(StreamId::parse(text.as_bytes(), 0), None, "{text}");
        }
        assert_eq!(StreamId::parse(b"5", 9), Some(id(5, 9)));
        assert_eq!(StreamId::parse(b"5-*", 9), None);
        assert_eq!(NewId::parse(b"5-*"), Some(NewId::Of(5)));
        assert_eq!(NewId::parse(b"5"), Some(NewId::Whole(id(5, 0))));
    }

    #[test]
    fn ends_of_ranges_may_be_excluded() {
        let end = |text: &str, is_upper| StreamId::parse_end(text.as_bytes(), is_upper);
        assert_eq!(end("-", false), Ok(StreamId::FIRST));
        assert_eq!(end("+", true), Ok(StreamId::LAST));
        assert_eq!(end("5", true), Ok(id(5, u64::MAX)));
        assert_eq!(end("(5-1", false), Ok(id(5, 2)));
        assert_eq!(end("(5-0", true), Ok(id(4, u64::MAX)));
        assert_eq!(
            end("(0-0", true),
            Err("ERR invalid end ID for the interval")
        );
        let last = "(18446744073709551615-18446744073709551615";
        assert_eq!(
            end(last, false),
            Err("ERR invalid start ID for the interval")
        );
        assert_eq!(end("(-", false), Err(NO_ID));
    }

    #[test]
    fn any_text_is_an_id_or_none() {
        farcore_fuzz::Target::new("stream id")
            .seed("1526919030474-55")
            .seed("(5")
            .words(&["-", "+", "(", "*", "0", "18446744073709551615"])
            .longest(60)
            .run(|text| {
                if let Some(id) = StreamId::parse(text, 0) {
                    assert_eq!(StreamId::parse(id.to_string().as_bytes(), 0), Some(id));
                }
                let _ = (NewId::parse(text), StreamId::parse_end(text, true));
                let _ = StreamId::parse_end(text, false);
            });
    }
}
