//! Keys that clients cache (`CLIENT TRACKING`): which client has read what, on its own core.
//!
//! ```text
//! a command that reads -> the table of its client's core
//! events of changes -- end of a turn --> each core with such clients -> its table -> pushes
//!                                                       `-> the core of another client
//! ```
//!
//! What a core does about them stands in `turn/tracking.rs`.
//!
//! - I1: a key is in the table before its read is given to the engine, so a change that the read
//!   has not seen finds it there. The push stands behind the replies that were under way then: a
//!   client that caches a value after the push has read it after the change.
//!   One that its read has seen, because the change was told before the key was noted, makes none.
//! - I2: what is not sent because a core is slow, or was not listed by the engine, becomes one push
//!   that all keys are invalid.
//! - I3: the tables of all cores have [`Tracking::keys_max`] keys at most, and take a part of the
//!   memory for clients; of more, some become invalid.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::steps;

/// Keys in the tables of all cores, at most, by default; as Redis.
const KEYS_MAX: usize = 1_000_000;
/// Bytes that a key takes in the table beside its own, and a client of it.
const KEY_BYTES: usize = 96;
const READER_BYTES: usize = size_of::<Reader>();
/// By how much the clocks of two cores may differ, in nanoseconds.
const CLOCKS_NS: u64 = 1_000;

/// What all cores know of tracking.
#[derive(Debug)]
pub(crate) struct Tracking {
    pub(crate) clients: AtomicUsize,
    pub(crate) keys: AtomicUsize,
    pub(crate) items: AtomicUsize,
    pub(crate) prefixes: AtomicUsize,
    pub(crate) keys_max: AtomicUsize,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            clients: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            prefixes: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(KEYS_MAX),
        }
    }
}

impl Tracking {
    /// True if there are more keys than may be; 0 is no limit.
    fn has_too_many(&self) -> bool {
        // ORDERING: relaxed; they are counts.
        let keys_max = self.keys_max.load(Ordering::Relaxed);
        keys_max > 0 && self.keys.load(Ordering::Relaxed) > keys_max
    }
}

/// A key that was changed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ChangedKey {
    /// As clients type it.
    pub(crate) key: Vec<u8>,
    /// The client that has changed it; 0 if none has, or it is not known.
    pub(crate) client: u64,
}

/// How a client wants to cache keys once the client is found that it redirects to.
#[derive(Debug)]
pub(crate) struct Redirecting {
    pub(crate) tracker: Tracker,
    pub(crate) prefixes: Vec<Arc<[u8]>>,
    pub(crate) found: Rc<Cell<Option<Redirection>>>,
}

/// Where pushes for a client go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Redirection {
    pub(crate) client: u64,
    /// The place of its core.
    pub(crate) core: usize,
}

/// A client that caches keys.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the options of a command")]
pub(crate) struct Tracker {
    pub(crate) is_broadcast: bool,
    pub(crate) opts_in: bool,
    pub(crate) opts_out: bool,
    /// It learns of no change that it makes itself.
    pub(crate) skips_own: bool,
    /// `CLIENT CACHING` was given for the command that comes next.
    pub(crate) is_caching_said: bool,
    /// That command has run.
    pub(crate) is_caching_spent: bool,
    pub(crate) redirection: Option<Redirection>,
    /// The client that is redirected to is gone.
    pub(crate) is_broken: bool,
    pub(crate) prefixes: BTreeSet<Arc<[u8]>>,
    /// The keys of the script that runs.
    pub(crate) script_keys: Vec<Vec<u8>>,
}

impl Tracker {
    /// True if the keys of the next command that reads are noted.
    pub(crate) fn notes(&self) -> bool {
        let is_left_out = self.opts_in && !self.is_caching_said;
        let is_excluded = self.opts_out && self.is_caching_said;
        !self.is_broadcast && !is_left_out && !is_excluded
    }

    /// Bytes that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        let prefixes = self.prefixes.iter();
        let keys = self.script_keys.iter();
        size_of::<Self>()
            + prefixes.map(|one| one.len() + KEY_BYTES).sum::<usize>()
            + keys.map(|one| one.capacity() + 24).sum::<usize>()
    }
}

/// A client that has read a key: the number of its connection, and its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Reader {
    pub(crate) number: usize,
    pub(crate) client: u64,
    /// When it read the key first, in nanoseconds since the server started.
    pub(crate) since_ns: u64,
}

/// Keys that were changed in a turn.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    pub(crate) keys: Arc<[ChangedKey]>,
    /// When they were told, in nanoseconds since the server started: before the replies to the
    /// commands that made them were sent.
    pub(crate) at_ns: u64,
    /// Bytes that are counted as under way.
    pub(crate) bytes: usize,
}

/// What waits to be pushed.
#[derive(Debug)]
pub(crate) enum Due {
    /// Keys, those before a place of which are done.
    Keys(Changes, usize),
    /// All keys, because this client has removed them or some were lost.
    All,
}

/// The clients of a core that cache keys, and what they have read.
#[derive(Debug, Default)]
pub(crate) struct CoreTracking {
    keys: BTreeMap<Box<[u8]>, Vec<Reader>>,
    bytes: usize,
    /// Keys up to this one had their turn when there were too many.
    hand: Box<[u8]>,
    /// Connections that cache keys.
    pub(crate) trackers: BTreeSet<usize>,
    /// Connections that learn of all keys that begin so.
    pub(crate) prefixes: BTreeMap<Arc<[u8]>, BTreeSet<usize>>,
    /// Numbers of connections that others redirect to, by client.
    pub(crate) targets: HashMap<u64, usize>,
    pub(crate) due: VecDeque<Due>,
}

impl CoreTracking {
    /// True if there is nothing to do.
    #[inline]
    pub(crate) fn is_quiet(&self, all: &Tracking) -> bool {
        self.due.is_empty() && (self.keys.is_empty() || !all.has_too_many())
    }

    /// Notes that a client reads a key.
    pub(crate) fn note(&mut self, key: &[u8], reader: Reader, all: &Tracking) {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.into(), Vec::new());
            self.bytes += key.len() + KEY_BYTES;
            all.keys.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(readers) = self.keys.get_mut(key)
            && let Err(place) = readers
                .binary_search_by_key(&(reader.number, reader.client), |one| {
                    (one.number, one.client)
                })
        {
            readers.insert(place, reader);
            self.bytes += READER_BYTES;
            all.items.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes those that have read a key and may not have seen a change that was told at a time.
    pub(crate) fn take(&mut self, key: &[u8], at_ns: u64, all: &Tracking) -> Vec<Reader> {
        let Some(readers) = self.keys.get_mut(key) else {
            return Vec::new();
        };
        let told_ns = at_ns.saturating_add(CLOCKS_NS);
        let taken: Vec<_> = readers
            .extract_if(.., |one| one.since_ns <= told_ns)
            .collect();
        self.bytes -= taken.len() * READER_BYTES;
        all.items.fetch_sub(taken.len(), Ordering::Relaxed);
        if readers.is_empty() {
            self.keys.remove(key);
            self.bytes -= key.len() + KEY_BYTES;
            all.keys.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// Removes all keys.
    pub(crate) fn clear(&mut self, all: &Tracking) {
        let items = self.keys.values().map(Vec::len).sum();
        all.keys.fetch_sub(self.keys.len(), Ordering::Relaxed);
        all.items.fetch_sub(items, Ordering::Relaxed);
        self.keys = BTreeMap::new();
        self.bytes = 0;
    }

    /// A key that must go because there are too many, or they take too much; none while there are
    /// not.
    pub(crate) fn surplus(&mut self, all: &Tracking, bytes_max: usize) -> Option<Box<[u8]>> {
        if self.keys.is_empty() || !all.has_too_many() && self.bytes <= bytes_max {
            return None;
        }
        let behind = (Bound::Excluded(&self.hand[..]), Bound::Unbounded);
        let next = self.keys.range::<[u8], _>(behind).next();
        let next = next.or_else(|| self.keys.first_key_value());
        let key = next.map(|(key, _)| key.clone())?;
        self.hand = key.clone();
        Some(key)
    }

    /// The prefixes of which one or more connections learn that a key has.
    pub(crate) fn prefixes_of(&self, key: &[u8]) -> Vec<Arc<[u8]>> {
        // All prefixes of the key come before it. The last that comes before what is left of it is
        // one, or tells how much the next one has of it at most.
        let (mut found, mut left) = (Vec::new(), Some(key));
        while let Some(begin) = left {
            steps::count(1);
            steps::count_walked(begin.len());
            let before = (Bound::Unbounded, Bound::Included(begin));
            let Some((prefix, _)) = self.prefixes.range::<[u8], _>(before).next_back() else {
                break;
            };
            let shared = (prefix.iter().zip(begin)).take_while(|(one, other)| one == other);
            let shared = shared.count();
            left = if shared == prefix.len() {
                found.push(Arc::clone(prefix));
                shared.checked_sub(1).map(|end| &key[..end])
            } else {
                Some(&key[..shared])
            };
        }
        found
    }
}

/// The client that a client redirects to, as it is shown.
pub(crate) fn shown_redirection(tracker: Option<&Tracker>) -> i64 {
    let Some(tracker) = tracker else {
        return -1;
    };
    let client = tracker.redirection.map_or(0, |to| to.client);
    i64::try_from(client).unwrap_or(i64::MAX)
}

/// Why prefixes are refused; as Redis.
pub(crate) fn overlap(known: &BTreeSet<Arc<[u8]>>, new: &[&[u8]]) -> Option<String> {
    let collide = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    for (place, prefix) in new.iter().enumerate() {
        if let Some(other) = known.iter().find(|other| collide(prefix, other)) {
            return Some(format!(
                "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client must not overlap.",
                shown(prefix),
                shown(other)
            ));
        }
        let mut others = new[place + 1..].iter();
        if let Some(other) = others.find(|other| collide(prefix, other)) {
            return Some(format!(
                "ERR Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a single client must not overlap.",
                shown(prefix),
                shown(other)
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(number: usize) -> Reader {
        let client = number as u64 + 1;
        Reader {
            number,
            client,
            since_ns: 5_000 * client,
        }
    }

    #[test]
    fn a_key_is_there_until_it_changes_or_there_are_too_many() {
        let (mut table, all) = (CoreTracking::default(), Tracking::default());
        for key in [b"a", b"b", b"c"] {
            table.note(key, reader(1), &all);
            table.note(key, reader(0), &all);
            table.note(key, reader(1), &all);
        }
        let counts = || {
            (
                all.keys.load(Ordering::Relaxed),
                all.items.load(Ordering::Relaxed),
            )
        };
        assert_eq!(counts(), (3, 6));
        // The second client has read it after the change.
        assert_eq!(table.take(b"b", 5_000, &all), [reader(0)]);
        assert_eq!(counts(), (3, 5));
        assert_eq!(table.take(b"b", 9_999, &all), [reader(1)]);
        assert!(table.take(b"b", u64::MAX, &all).is_empty());
        assert_eq!(table.surplus(&all, usize::MAX), None);
        all.keys_max.store(1, Ordering::Relaxed);
        assert!(!table.is_quiet(&all));
        let key = table.surplus(&all, usize::MAX).expect("one");
        table.take(&key, u64::MAX, &all);
        assert_eq!((counts(), table.is_quiet(&all)), ((1, 2), true));
        assert!(table.surplus(&all, 0).is_some());
        table.clear(&all);
        assert_eq!((counts(), table.bytes), ((0, 0), 0));
    }

    #[test]
    fn prefixes_of_a_key_are_found_by_little_work() {
        let mut table = CoreTracking::default();
        let texts = ["", "a", "aab", "ab", "abc", "abd", "b", "abcdefgh", "abcx"];
        for text in texts {
            let prefix = Arc::<[u8]>::from(text.as_bytes());
            table.prefixes.insert(prefix, BTreeSet::new());
        }
        for key in [
            "", "a", "abcdef", "abcdefgh", "ab", "aa", "zz", "abd", "b\0",
        ] {
            let mut found = table.prefixes_of(key.as_bytes());
            found.sort();
            let mut all: Vec<_> = texts
                .iter()
                .filter(|text| key.starts_with(**text))
                .collect();
            all.sort();
            assert!(
                found
                    .iter()
                    .map(|one| &one[..])
                    .eq(all.iter().map(|one| one.as_bytes()))
            );
        }
        // Of many prefixes of many lengths it looks at few.
        for length in 1..1000 {
            let prefix = Arc::<[u8]>::from(("c".repeat(length) + "d").as_bytes());
            table.prefixes.insert(prefix, BTreeSet::new());
        }
        steps::take();
        assert_eq!(table.prefixes_of(b"abc:1").len(), 4);
        assert_eq!(table.prefixes_of(b"zebra").len(), 1);
        assert!(steps::take() < 20);
    }

    #[test]
    fn prefixes_of_one_client_do_not_overlap() {
        let known = BTreeSet::from([Arc::<[u8]>::from(&b"FOO"[..])]);
        assert!(overlap(&known, &[b"FO"]).is_some());
        assert!(overlap(&known, &[b"FOOBAR"]).is_some());
        assert!(overlap(&known, &[b"BAR", b"BARB"]).is_some());
        assert!(overlap(&known, &[b"BAR", b"BAZ"]).is_none());
        assert!(overlap(&known, &[b""]).is_some());
    }
}
