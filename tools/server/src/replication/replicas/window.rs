//! What a replica must not be told again: changes that the data which it got have already.
//!
//! ```text
//! full synchronisation: keys are read one after the other, while the stream goes on
//! replica: data, then the stream from where it was when the data were begun; a change of a key
//!          that is not newer than the key's data is replaced by as many bytes that do nothing
//! ```
//!
//! - W1: with the data and the stream up to the end of the window, a replica has the state of the
//!   stream's end there. In between keys are of different moments.
//! - W2: what is replaced is as long as what replaces it, so offsets are those of the stream.

use std::collections::HashMap;

use farcore::Version;
use farcore_tuning::mutated;
use xxhash_rust::xxh3::xxh3_128;

use super::super::source::write_command;

/// The shortest stretch that is replaced: the shortest command of a key has more bytes.
const FILLER_BYTES_MIN: usize = 20;
/// The longest stretch that is replaced as one.
const FILLER_BYTES_MAX: u64 = 32 << 10;

/// A change in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// The number of its first byte, and how many it has.
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) version: Version,
    /// What the key held before does not matter.
    pub(super) resets: bool,
}

/// The changes since the data of a synchronisation were begun, and what these have of them.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// By hashes of keys of 128 bits: no two keys share one.
    changes: Vec<(u128, Change)>,
    /// The version of each key's data, if it has changed before they were read; else 0.
    keys: HashMap<u128, Version>,
}

/// Stretches of a stream that a replica gets replaced, in their order.
#[derive(Debug, Default)]
pub(super) struct Fills {
    stretches: Vec<(u64, u64)>,
    /// Before the first one, and behind the second one, nothing is replaced.
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Window {
    /// Notes a change of a key.
    pub(super) fn note(&mut self, key: &[u8], change: Change) {
        let key = xxh3_128(key);
        self.keys.entry(key).or_default();
        self.changes.push((key, change));
    }

    /// Notes that the data have a key at a version. `may_miss`: changes up to that version may come
    /// that were not noted yet.
    pub(super) fn note_data(&mut self, key: &[u8], version: Version, may_miss: bool) {
        let key = xxh3_128(key);
        if may_miss {
            self.keys.insert(key, version);
        } else if let Some(known) = self.keys.get_mut(&key) {
            *known = version;
        }
    }

    /// Bytes that it takes, about.
    pub(super) fn held_bytes(&self) -> usize {
        self.changes.len() * size_of::<(u128, Change)>()
            + self.keys.capacity() * 2 * size_of::<u128>()
    }

    /// What is replaced of the stream, from where the data were begun to its end.
    pub(super) fn fills(mut self, (start, end): (u64, u64)) -> Fills {
        // What came before a change that needs nothing of it is not needed either. A key that was
        // gone when its data would have been read has such a change.
        for (key, change) in &self.changes {
            if change.resets
                && !mutated!("resets-ignored")
                && let Some(known) = self.keys.get_mut(key)
            {
                *known = (*known).max(change.version - 1);
            }
        }
        let changes = self.changes.iter();
        let known = changes.filter(|(key, change)| {
            let version = self.keys.get(key).copied().unwrap_or(0);
            change.version <= version && !mutated!("window-ignored")
        });
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (_, change) in known {
            let (mut at, mut left) = (change.at, change.bytes);
            // Each stretch has enough bytes for a filler.
            while left > FILLER_BYTES_MAX {
                let part = FILLER_BYTES_MAX - 100;
                stretches.push((at, part));
                (at, left) = (at + part, left - part);
            }
            stretches.push((at, left));
        }
        Fills {
            stretches,
            start,
            end,
        }
    }
}

impl Fills {
    /// The window without its stretches, for a stream that is past them.
    pub(super) fn emptied(&self) -> Self {
        Self {
            stretches: Vec::new(),
            start: self.start,
            end: self.end,
        }
    }

    /// True if something is replaced.
    pub(super) fn has_some(&self) -> bool {
        !self.stretches.is_empty()
    }

    /// Adds bytes of the stream from `at` on, as the replica gets them. They begin and end
    /// outside of stretches, or in the same one.
    pub(super) fn replace(&self, mut at: u64, mut bytes: &[u8], into: &mut Vec<u8>) {
        let first = self
            .stretches
            .partition_point(|(start, bytes)| start + bytes <= at);
        for &(start, length) in &self.stretches[first..] {
            let before = start.saturating_sub(at).min(bytes.len() as u64);
            let (kept, rest) = bytes.split_at(usize::try_from(before).unwrap_or(0));
            into.extend_from_slice(kept);
            at += before;
            bytes = rest;
            if bytes.is_empty() {
                return;
            }
            // Fillers are of the whole stretch, of which this may be a part.
            let mut fill = Vec::new();
            filler(usize::try_from(length).unwrap_or(0), &mut fill);
            let from = usize::try_from(at - start).unwrap_or(0);
            let taken = bytes.len().min(fill.len().saturating_sub(from));
            into.extend_from_slice(&fill[from..from + taken]);
            at += taken as u64;
            bytes = &bytes[taken..];
            if bytes.is_empty() {
                return;
            }
        }
        into.extend_from_slice(bytes);
    }
}

/// Adds commands that do nothing, `bytes` in all.
fn filler(bytes: usize, into: &mut Vec<u8>) {
    debug_assert!(bytes >= FILLER_BYTES_MIN);
    match ping(bytes) {
        Some(argument) => write_command(&[b"PING", &vec![b'.'; argument]], into),
        // Between two lengths of the length none has one byte more.
        None if bytes == 30 => write_command(&[b"PUBLISH", b"", b"."], into),
        None => {
            write_command(&[b"PING", b""], into);
            filler(bytes - FILLER_BYTES_MIN, into);
        }
    }
}

/// Bytes of the argument of a `PING` that has `bytes` in all, if there is one.
fn ping(bytes: usize) -> Option<usize> {
    let of = |argument: usize| 18 + argument.to_string().len() + 1 + argument;
    let about = bytes.checked_sub(20)?;
    (about.saturating_sub(6)..=about).find(|&argument| of(argument) == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filler_has_any_length_and_is_commands() {
        for bytes in
            (FILLER_BYTES_MIN..3000).chain([9_999, 10_023, 10_024, 10_025, 99_999, 1 << 20])
        {
            let mut filled = Vec::new();
            filler(bytes, &mut filled);
            assert_eq!(filled.len(), bytes, "{}", String::from_utf8_lossy(&filled));
            let text = String::from_utf8(filled).expect("text");
            if bytes != 30 {
                for command in text.split("*2\r\n").skip(1) {
                    let words: Vec<_> = command.split("\r\n").collect();
                    assert_eq!(words[1], "PING", "{command:?}");
                    assert_eq!(words[2], format!("${}", words[3].len()));
                    assert_eq!(words[4], "");
                }
            }
        }
    }

    #[test]
    fn what_the_data_have_is_replaced_in_its_length_however_it_is_read() {
        let mut window = Window::default();
        let (mut stream, mut at) = (Vec::new(), 500);
        let mut add = |window: &mut Window, key: &[u8], version, resets, bytes: usize| {
            let change = Change {
                at,
                bytes: bytes as u64,
                version,
                resets,
            };
            at += bytes as u64;
            window.note(key, change);
            stream.resize(stream.len() + bytes, key[0]);
        };
        add(&mut window, b"a", 5, false, 25);
        add(&mut window, b"b", 6, false, 30);
        window.note_data(b"a", 7, false);
        window.note_data(b"unchanged", 3, false);
        add(&mut window, b"a", 7, false, 40);
        add(&mut window, b"a", 8, false, 22);
        // Gone before its data were read, and made anew.
        add(&mut window, b"c", 9, false, 33);
        add(&mut window, b"c", 10, true, 34);
        add(&mut window, b"c", 11, false, 35);
        window.note_data(b"late", 20, true);
        add(&mut window, b"late", 19, false, 50);
        let fills = window.fills((500, at));
        assert_eq!(fills.end, at);
        let whole = |step: usize| {
            let mut filled = Vec::new();
            for (place, part) in stream.chunks(step).enumerate() {
                fills.replace(500 + (place * step) as u64, part, &mut filled);
            }
            filled
        };
        let filled = whole(usize::MAX / 2);
        assert_eq!(filled.len(), stream.len());
        let count = |byte| filled.iter().filter(|one| **one == byte).count();
        assert_eq!((count(b'a'), count(b'b'), count(b'c')), (22, 30, 69));
        assert_eq!(count(b'l'), 0);
        for step in 1..120 {
            assert_eq!(whole(step), filled, "in steps of {step}");
        }
    }
}
