//! The keys that a shard removes by itself, because they have expired or to make room, for a reader
//! that wants them.
//!
//! ```text
//! shard: note -> list of the core --wakes--> reader: take
//! entry: | removal:8 | key bytes:16 | version:64 | key |
//! ```
//!
//! - I1: a list is empty unless a reader wants its keys. A shard then pays a load for each key that
//!   it removes by itself, and nothing anywhere else.
//! - I2: a list has at most [`LIST_BYTES_MAX`]. Keys beyond that are counted and not listed, until
//!   it is taken.
//! - I3: the waker is woken when a list that was empty gets an entry.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::metrics::EngineReporter;
use crate::message::operation::Version;

/// Bytes of a core's list.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Bytes of an entry before its version, and beside its key.
const LENGTH_BYTES: usize = 3;
const HEAD_BYTES: usize = LENGTH_BYTES + size_of::<Version>();

/// Why a shard has removed a key by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// It has expired.
    Expired,
    /// To make room, in an engine that is a cache.
    Evicted,
}

impl Removal {
    const fn code(self) -> u8 {
        match self {
            Self::Expired => 1,
            Self::Evicted => 2,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Expired, Self::Evicted]
            .into_iter()
            .find(|removal| removal.code() == code)
    }
}

/// Keys that a shard has removed by itself, the first one first.
#[derive(Debug, Default)]
pub struct RemovedKeys {
    entries: Vec<u8>,
    unlisted: u64,
}

impl RemovedKeys {
    /// The keys, and why each was removed.
    pub fn iter(&self) -> impl Iterator<Item = (Removal, &[u8])> {
        self.with_versions().map(|(removal, key, _)| (removal, key))
    }

    /// The keys, why each was removed, and the version under which its record was stored.
    pub fn with_versions(&self) -> impl Iterator<Item = (Removal, &[u8], Version)> {
        let mut rest = &self.entries[..];
        std::iter::from_fn(move || {
            let (&[code, low, high], behind) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let (version, behind) = behind.split_first_chunk()?;
            let (key, behind) =
                behind.split_at_checked(usize::from(low) | usize::from(high) << 8)?;
            rest = behind;
            Some((Removal::of(code)?, key, Version::from_le_bytes(*version)))
        })
    }

    /// How many keys are not listed: those beyond 1 MiB a shard, 11 bytes of it beside each key,
    /// that came before the list was taken, and those of which nothing but their place was known.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }

    fn add(&mut self, removal: Removal, (key, version): (&[u8], Version)) {
        let bytes = HEAD_BYTES + key.len();
        let Ok(length) = u16::try_from(key.len()) else {
            return self.unlisted += 1;
        };
        if self.entries.len() + bytes > LIST_BYTES_MAX {
            return self.unlisted += 1;
        }
        self.entries.push(removal.code());
        self.entries.extend(length.to_le_bytes());
        self.entries.extend(version.to_le_bytes());
        self.entries.extend_from_slice(key);
    }
}

#[derive(Debug, Default)]
struct List {
    keys: RemovedKeys,
    waker: Option<Waker>,
}

/// A core's list.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    /// Codes of the removals that are wanted.
    wanted: AtomicU8,
    is_any: AtomicBool,
    list: Mutex<List>,
}

impl Removals {
    /// True if such removals are wanted. Cost: one load.
    #[inline]
    pub(crate) fn wants(&self, removal: Removal) -> bool {
        // ORDERING: relaxed; the list has a lock.
        self.wanted.load(Ordering::Relaxed) & removal.code() != 0
    }

    /// Notes that a key's record of a version was removed, if that is wanted; `None` if only its
    /// place is known.
    #[inline]
    pub(crate) fn note(&self, removal: Removal, key: Option<(&[u8], Version)>) {
        if self.wants(removal) {
            self.note_wanted(removal, key);
        }
    }

    #[cold]
    fn note_wanted(&self, removal: Removal, key: Option<(&[u8], Version)>) {
        let mut list = self.lock();
        // It may not be wanted any more.
        if !self.wants(removal) {
            return;
        }
        match key {
            Some(key) => list.keys.add(removal, key),
            None => list.keys.unlisted += 1,
        }
        // ORDERING: relaxed; who sees it takes the lock.
        let was_any = self.is_any.swap(true, Ordering::Relaxed);
        let waker = list.waker.clone().filter(|_| !was_any);
        drop(list);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch(&self, wanted: &[Removal], waker: Option<Waker>) {
        let mut list = self.lock();
        let codes = wanted.iter().fold(0, |codes, one| codes | one.code());
        // ORDERING: relaxed; under the lock.
        self.wanted.store(codes, Ordering::Relaxed);
        list.waker = waker;
        if codes == 0 {
            list.keys = RemovedKeys::default();
            self.is_any.store(false, Ordering::Relaxed);
        }
    }

    /// True if the list has an entry. Cost: one load.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        // ORDERING: relaxed; what is noted later wakes the reader again.
        self.is_any.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, into: &mut RemovedKeys) -> bool {
        into.entries.clear();
        into.unlisted = 0;
        if !self.has_any() {
            return false;
        }
        let mut list = self.lock();
        mem::swap(&mut list.keys, into);
        self.is_any.store(false, Ordering::Relaxed);
        true
    }
}

impl EngineReporter {
    /// Selects which removals a shard lists that it does by itself; none at first. `shard` is its
    /// position, from 0 to one less than [`Engine::shards`]. One reader a shard: a later call
    /// replaces an earlier one. With none selected the list is dropped.
    ///
    /// `waker` is woken when the list gets an entry and was empty, on the thread that removes the
    /// key: the shard's core, or a caller that serves itself. It must not block.
    ///
    /// Keys that clients remove are not listed, and neither are those that [`Engine::close`]
    /// drops. An expired key is listed when it is removed or replaced: when a request of any kind
    /// but a scan meets it, before that is answered; or by the shard's next pass over its keys, of
    /// which one begins each second; one in far memory when its page is compacted. An evicted key
    /// is listed only if its record was read: a shard that lists them reads records in far memory
    /// before it evicts them.
    ///
    /// Cost: a lock. From then on each key that the shard removes by itself costs a load, and one
    /// of a selected kind a lock and a copy of the key.
    ///
    /// [`Engine::close`]: crate::Engine::close
    /// [`Engine::shards`]: crate::Engine::shards
    ///
    /// # Panics
    /// The engine has no such shard.
    pub fn watch_removals(&self, shard: usize, wanted: &[Removal], waker: Option<Waker>) {
        self.0.cores[shard].removals.watch(wanted, waker);
    }

    /// True if a shard's list has an entry. Cost: a load.
    ///
    /// # Panics
    /// The engine has no such shard.
    #[must_use]
    pub fn has_removals(&self, shard: usize) -> bool {
        self.0.cores[shard].removals.has_any()
    }

    /// Takes a shard's list, in place of what `into` had; false if it is empty. Cost: a load if it
    /// is, else a lock, and no copy.
    ///
    /// # Panics
    /// The engine has no such shard.
    pub fn take_removals(&self, shard: usize, into: &mut RemovedKeys) -> bool {
        self.0.cores[shard].removals.take(into)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn listed(keys: &RemovedKeys) -> Vec<(Removal, Vec<u8>)> {
        keys.iter()
            .map(|(removal, key)| (removal, key.to_vec()))
            .collect()
    }

    #[test]
    fn only_what_is_wanted_is_listed_and_the_first_entry_wakes() {
        let (removals, wakes) = (Removals::default(), Arc::new(Wakes::default()));
        let mut keys = RemovedKeys::default();
        removals.note(Removal::Expired, Some((b"early", 1)));
        assert!(!removals.take(&mut keys));
        let waker = Waker::from(Arc::clone(&wakes));
        removals.watch(&[Removal::Expired], Some(waker.clone()));
        removals.note(Removal::Expired, Some((b"a", 1 << 40)));
        removals.note(Removal::Evicted, Some((b"b", 2)));
        removals.note(Removal::Expired, Some((b"", 3)));
        assert!(removals.take(&mut keys));
        let expected = [
            (Removal::Expired, b"a".to_vec()),
            (Removal::Expired, Vec::new()),
        ];
        assert_eq!(listed(&keys), expected);
        let versions: Vec<_> = keys
            .with_versions()
            .map(|(_, _, version)| version)
            .collect();
        assert_eq!(versions, [1 << 40, 3]);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(!removals.take(&mut keys) && listed(&keys).is_empty());
        removals.watch(&[Removal::Evicted, Removal::Expired], Some(waker));
        removals.note(Removal::Evicted, Some((&[b'k'; 1024], 4)));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
        assert!(removals.take(&mut keys));
        assert_eq!(listed(&keys), [(Removal::Evicted, vec![b'k'; 1024])]);
        removals.note(Removal::Evicted, Some((b"c", 5)));
        removals.watch(&[], None);
        assert!(!removals.take(&mut keys));
    }

    #[test]
    fn a_list_is_bounded_and_counts_what_it_leaves_out() {
        let (removals, mut keys) = (Removals::default(), RemovedKeys::default());
        removals.watch(&[Removal::Expired], None);
        let fits = LIST_BYTES_MAX / (HEAD_BYTES + 1000);
        for _ in 0..fits + 5 {
            removals.note(Removal::Expired, Some((&[b'k'; 1000], 6)));
        }
        removals.note(Removal::Expired, None);
        assert!(removals.take(&mut keys));
        assert_eq!((keys.iter().count(), keys.unlisted()), (fits, 6));
        removals.note(Removal::Expired, Some((b"k", 7)));
        assert!(removals.take(&mut keys));
        assert_eq!((keys.iter().count(), keys.unlisted()), (1, 0));
    }
}
