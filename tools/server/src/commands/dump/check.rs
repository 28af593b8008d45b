//! The check of a payload's value, in slices, before anything is stored.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use farcore::constants::LONG_VALUE_BYTES_MAX;
use farcore_rdb::{Decoder, Item, Problem, Step as Decoded, ValueKind, Window};

use crate::commands::trees::Step;
use crate::memory::Charge;
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::element::stored_bytes;
use crate::types::stream::stored::NAME_BYTES_MAX;

pub(super) const BAD: &str = "ERR Bad data format";
/// Bytes of a step that unpacks.
const UNPACKED_BYTES: usize = 64 << 10;
/// Bytes that are taken to store a collection, and a long string.
const PAGE_BYTES: usize = 64 << 10;
const COPY_BYTES: usize = 256 << 10;
/// Bytes of an element of a set of hashes: it is at most 7 of 8 full, and a power of 2 long.
const SEEN_BYTES: usize = (size_of::<u128>() + 1) * 8 / 7 * 2;
/// Bytes that an element takes of a record beside its value.
const BESIDE_ELEMENT: usize = 2 << 10;
/// Bytes of a text of an entry beside its own.
const BESIDE_TEXT: usize = size_of::<u32>();

/// What a check has found out.
#[derive(Debug)]
pub(super) struct Checked {
    /// Bytes of a string, or of the longest element.
    longest: usize,
    is_string: bool,
    /// What strings are unpacked to.
    unpacked: usize,
}

impl Checked {
    /// Bytes that are taken while it is stored.
    pub(super) fn stored_bytes(&self, output: &TaskOutput) -> usize {
        let record = output.value_bytes_max();
        let copies = match (self.is_string, self.longest > record) {
            (true, true) => COPY_BYTES + record / 2,
            (true, false) => 2 * self.longest,
            (false, _) => PAGE_BYTES + 3 * self.longest,
        };
        2 * self.unpacked + copies
    }

    /// Strings may be unpacked to this many bytes.
    pub(super) fn unpacked(&self) -> usize {
        self.unpacked
    }
}

/// A hash is its own.
#[derive(Clone, Copy, Debug, Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(size_of::<u64>()) {
            let mut word = [0; size_of::<u64>()];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
}

/// Finds elements that occur twice, by hashes of 128 bits with random keys.
struct Seen {
    keys: (RandomState, RandomState),
    hashes: HashSet<u128, BuildHasherDefault<Same>>,
    _held: Charge,
}

impl Seen {
    /// For this many elements.
    async fn new((core, output): Step<'_>, most: usize) -> Result<Self, TaskFailure> {
        let held = output
            .hold_when_free(core, most.saturating_mul(SEEN_BYTES))
            .await?;
        let keys = (RandomState::new(), RandomState::new());
        // A set that grew would move all at once.
        let hashes = HashSet::with_capacity_and_hasher(most, BuildHasherDefault::default());
        steps::count(most / 64);
        Ok(Self {
            keys,
            hashes,
            _held: held,
        })
    }

    fn add(&mut self, element: &[u8]) -> Result<(), TaskFailure> {
        let (high, low) = (self.keys.0.hash_one(element), self.keys.1.hash_one(element));
        let hash = (u128::from(high) << 64) | u128::from(low);
        if self.hashes.insert(hash) {
            Ok(())
        } else {
            Err(BAD.into())
        }
    }
}

/// What a key cannot hold.
fn too_large(what: &str, bytes: usize, max: usize) -> TaskFailure {
    TaskFailure::Refused(format!(
        "ERR the {what} is too large: it takes {bytes} bytes, the limit is {max} bytes"
    ))
}

/// Checks a value of a type.
pub(super) async fn check(
    (core, output): Step<'_>,
    (value_type, value): (u8, &[u8]),
) -> Result<Checked, TaskFailure> {
    let mut decoder = Decoder::new(value_type, 0).map_err(|_| BAD)?;
    let window = Window::whole(value);
    let element_max = output.value_bytes_max() - BESIDE_ELEMENT;
    let string_max = usize::try_from(LONG_VALUE_BYTES_MAX).unwrap_or(usize::MAX);
    let mut checked = Checked {
        longest: 0,
        is_string: decoder.kind() == ValueKind::String,
        unpacked: 0,
    };
    // Each has bytes beside its text.
    decoder.limit_fields((element_max / (2 * BESIDE_TEXT)) as u64);
    let mut unpacked = output.hold(0);
    let mut seen = None::<Seen>;
    loop {
        let mut room = None;
        let mut count = None;
        let step = decoder.next(window).map_err(|error| match error.problem {
            Problem::Fields(pairs) => {
                let pairs = usize::try_from(pairs).unwrap_or(usize::MAX);
                let bytes = pairs.saturating_mul(2 * BESIDE_TEXT);
                too_large("element", bytes, element_max)
            }
            _ => BAD.into(),
        })?;
        match step {
            Decoded::End => break,
            Decoded::More => return Err(BAD.into()),
            Decoded::Room(bytes) => room = Some(bytes),
            Decoded::Busy => steps::count_copied(UNPACKED_BYTES),
            Decoded::Item(item) => {
                if let Item::Count(most) = item {
                    count = Some(usize::try_from(most).unwrap_or(usize::MAX));
                }
                let bytes = bytes_of(&item, seen.as_mut())?;
                steps::count(1);
                steps::count_walked(bytes);
                let (what, max) = match checked.is_string {
                    true => ("value", string_max),
                    false => ("element", element_max),
                };
                if bytes > max {
                    return Err(too_large(what, bytes, max));
                }
                checked.longest = checked.longest.max(bytes);
            }
        }
        if let Some(bytes) = room {
            if checked.is_string && bytes > string_max {
                return Err(too_large("value", bytes, string_max));
            }
            // Two strings may be unpacked at a time.
            drop(unpacked);
            unpacked = output.hold_when_free(core, bytes.saturating_mul(2)).await?;
            decoder.allow(bytes);
            checked.unpacked = bytes;
        }
        if let Some(most) = count {
            seen = Some(Seen::new((&mut *core, output), most).await?);
        }
        steps::end_slice(core).await;
    }
    if decoder.at() != value.len() as u64 {
        return Err(BAD.into());
    }
    Ok(checked)
}

/// Bytes that are stored of a part of a value; refuses an element that was seen before.
fn bytes_of(item: &Item<'_>, seen: Option<&mut Seen>) -> Result<usize, TaskFailure> {
    let once = |element: &[u8]| seen.map_or(Ok(()), |seen| seen.add(element));
    Ok(match item {
        Item::Count(_) | Item::Stream(_) | Item::Pending { .. } | Item::Owned(_) => 0,
        Item::String(text) => text.len(),
        Item::Element(element) => {
            once(element)?;
            stored_bytes(element, &[]).max(element.len())
        }
        Item::Pair(field, value) => {
            once(field)?;
            stored_bytes(field, value)
        }
        Item::Scored(member, _) => {
            once(member)?;
            stored_bytes(member, &[])
        }
        Item::Entry(_, fields) => {
            let texts = fields.map(|(field, value)| field.len() + value.len() + 2 * BESIDE_TEXT);
            texts.sum::<usize>() + BESIDE_TEXT
        }
        Item::Group { name, .. } | Item::Consumer { name, .. } => {
            if name.len() > NAME_BYTES_MAX {
                return Err(too_large("name", name.len(), NAME_BYTES_MAX));
            }
            name.len()
        }
    })
}
