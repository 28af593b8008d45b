//! Which stream of changes the data are a state of, and up to where.

use std::fmt::{self, Write as _};

/// Digits of an identity.
pub(crate) const ID_BYTES: usize = 40;

/// The identity of a stream of changes: 40 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamId([u8; ID_BYTES]);

impl StreamId {
    /// Of no stream.
    pub(crate) const NONE: Self = Self([b'0'; ID_BYTES]);

    /// A new one.
    pub(crate) fn random() -> Self {
        let mut bytes = [0; ID_BYTES / 2];
        // Without entropy it is none, by which no source goes on.
        let _ = farcore_tuning::entropy(&mut bytes);
        let mut text = String::with_capacity(ID_BYTES);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Self::parse(&text).unwrap_or(Self::NONE)
    }

    /// That of a text, if it is one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; ID_BYTES] = text.as_bytes().try_into().ok()?;
        let is_id = bytes.iter().all(u8::is_ascii_alphanumeric);
        is_id.then_some(Self(bytes))
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A place in a stream, between two commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Position {
    /// Bytes of the stream before it.
    pub(crate) offset: u64,
    /// The database that the commands after it are about.
    pub(crate) database: u64,
}

/// Which stream the data are a state of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct History {
    pub(crate) id: StreamId,
    pub(crate) position: Position,
    /// The stream before, which this one went on from, and up to which offset both are the same.
    pub(crate) before: Option<(StreamId, u64)>,
    /// The data are the state at the position: a source may go on from there.
    pub(crate) is_resumable: bool,
}

impl History {
    /// That of data that no source has sent.
    pub(crate) fn own() -> Self {
        Self {
            id: StreamId::random(),
            position: Position::default(),
            before: None,
            is_resumable: false,
        }
    }

    /// The stream that a source is to go on with, and its next byte, counted from 1; `None` if all
    /// data are wanted.
    pub(crate) fn wish(&self) -> Option<(StreamId, u64)> {
        (self.is_resumable).then_some((self.id, self.position.offset + 1))
    }

    /// Goes on by another identity, as the data leave their source, or their source says.
    pub(crate) fn rename(&mut self, id: StreamId) {
        if self.id != id {
            // As Redis: the first offset that only the new stream has.
            self.before = Some((self.id, self.position.offset + 1));
            self.id = id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_forty_digits_and_a_renamed_history_keeps_the_one_before() {
        let id = StreamId::random();
        assert_eq!(StreamId::parse(&id.to_string()), Some(id));
        assert_ne!(id, StreamId::random());
        for text in ["", "abc", &"x".repeat(41), &" ".repeat(40)] {
            assert_eq!(StreamId::parse(text), None, "{text}");
        }
        let mut history = History::own();
        let first = history.id;
        history.position.offset = 9;
        history.rename(first);
        assert_eq!(history.before, None);
        history.rename(id);
        assert_eq!((history.id, history.before), (id, Some((first, 10))));
    }
}
