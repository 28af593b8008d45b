//! A set of slots, and its text: `0-99 200`, with spaces or commas.

use std::fmt;

use super::slot::{SLOTS, parse_range};

const WORDS: usize = SLOTS / u64::BITS as usize;

/// Slots of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet {
    /// A bit a slot.
    words: Box<[u64; WORDS]>,
}

impl SlotSet {
    /// No slots.
    #[must_use]
    pub fn new() -> Self {
        Self {
            words: Box::new([0; WORDS]),
        }
    }

    /// Reads slots and ranges of them.
    ///
    /// # Errors
    /// What is wrong with a part of the text, or that it names none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut slots = Self::new();
        let parts = text.split([' ', ',']).filter(|part| !part.is_empty());
        for part in parts {
            let (first, last) = parse_range(part)?;
            for slot in first..=last {
                slots.insert(slot);
            }
        }
        match slots.is_empty() {
            true => Err("there must be a slot".to_owned()),
            false => Ok(slots),
        }
    }

    /// Adds a slot below [`SLOTS`].
    pub fn insert(&mut self, slot: u16) {
        let (word, bit) = place(slot);
        self.words[word] |= bit;
    }

    /// True if a slot is in it.
    #[must_use]
    #[inline]
    pub fn contains(&self, slot: u16) -> bool {
        let (word, bit) = place(slot);
        self.words[word] & bit != 0
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// The slots, in their order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (0..).take(SLOTS).filter(|slot| self.contains(*slot))
    }
}

fn place(slot: u16) -> (usize, u64) {
    let slot = usize::from(slot) % SLOTS;
    let bits = u64::BITS as usize;
    (slot / bits, 1 << (slot % bits))
}

impl Default for SlotSet {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slots = self.iter().peekable();
        let mut before = "";
        while let Some(first) = slots.next() {
            let mut last = first;
            while let Some(next) = slots.next_if(|slot| *slot == last + 1) {
                last = next;
            }
            write!(f, "{before}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            before = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_and_written_alike() {
        for (text, shown, count) in [
            ("0", "0", 1),
            ("0-16383", "0-16383", SLOTS),
            ("5,3 4", "3-5", 3),
            ("63-64 127,128 16383", "63-64,127-128,16383", 5),
            ("7-7", "7", 1),
        ] {
            let slots = SlotSet::parse(text).expect("slots");
            assert_eq!(slots.to_string(), shown);
            assert_eq!(slots.len(), count);
            assert_eq!(SlotSet::parse(shown).as_ref(), Ok(&slots));
        }
        let of = |text: &str| SlotSet::parse(text).expect("slots");
        assert!(!of("64").contains(0) && of("64").contains(64) && SlotSet::new().is_empty());
        for wrong in ["", " ", "16384", "5-3", "a", "1-", "-1", "1-2-3", "65536"] {
            assert!(SlotSet::parse(wrong).is_err(), "{wrong}");
        }
    }
}
