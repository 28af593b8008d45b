//! Arguments that a reply needs: fields of a hash, members of a set.

use std::ops::Range;

use crate::steps;

/// Bytes of the longest text that a reply's kind carries itself.
const SHORT_BYTES_MAX: usize = 21;

/// A text that needs no memory of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShortText {
    length: u8,
    bytes: [u8; SHORT_BYTES_MAX],
}

impl ShortText {
    /// The text, if it is short enough.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        let length = u8::try_from(text.len()).ok()?;
        Some(Self { length, bytes })
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Several texts in one buffer.
#[derive(Debug)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Texts {
    /// Copies of them.
    pub(crate) fn of<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for text in texts {
            bytes.extend_from_slice(text);
            ends.push(bytes.len());
        }
        steps::count_copied(bytes.len() + ends.len() * size_of::<usize>());
        Self { bytes, ends }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Those at some places.
    pub(crate) fn some(&self, places: Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        let before = places.start.checked_sub(1);
        let mut start = before.map_or(0, |before| self.ends[before]);
        self.ends[places].iter().map(move |&end| {
            let text = &self.bytes[start..end];
            start = end;
            text
        })
    }

    /// Each, in their order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.some(0..self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_as_they_are() {
        let long = [7; SHORT_BYTES_MAX + 1];
        let all = [&b"a"[..], b"", &long, b"b"];
        let texts = Texts::of(all.into_iter());
        assert_eq!(texts.iter().collect::<Vec<_>>(), all);
        assert_eq!(texts.len(), all.len());
        assert_eq!(texts.some(1..3).collect::<Vec<_>>(), all[1..3]);
        assert_eq!(ShortText::of(&long), None);
        for text in [b"", &long[1..]] {
            let short = ShortText::of(text).expect("it is short");
            assert_eq!(short.bytes(), text);
        }
    }
}
