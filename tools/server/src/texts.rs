//! Arguments that a command keeps, or elements that it reads.

use std::ops::Range;

use crate::steps;

/// Several texts in one buffer.
#[derive(Default, Debug)]
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

    /// Adds one.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// The one at a place; empty if there is none.
    pub(crate) fn get(&self, place: usize) -> &[u8] {
        let before = place.checked_sub(1);
        let start = before.map_or(Some(0), |before| self.ends.get(before).copied());
        let end = self.ends.get(place).copied();
        let text = start
            .zip(end)
            .and_then(|(start, end)| self.bytes.get(start..end));
        text.unwrap_or_default()
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_as_they_are() {
        let all = [&b"a"[..], b"", &[7; 22], b"b"];
        let texts = Texts::of(all.into_iter());
        assert_eq!(texts.len(), all.len());
        for places in [0..4, 1..3, 2..2] {
            let some = texts.some(places.clone()).collect::<Vec<_>>();
            assert_eq!(some, all[places]);
        }
        let mut pushed = Texts::default();
        all.iter().for_each(|text| pushed.push(text));
        for (place, text) in all.into_iter().enumerate() {
            assert_eq!(pushed.get(place), text);
        }
        assert_eq!((pushed.get(4), pushed.bytes()), (&[][..], 24));
    }
}
