//! A simulated disk with one directory, on which the files of a whole store lie.
//!
//! ```text
//! create, rename, link, remove -> names -> sync_names -> durable names
//!                                      \-> crash: some of the changes since, or all before one
//! files: as `SimulatedDisk` has them
//! ```
//!
//! - I1: after a crash a name is there, or gone, as it was when names were synced last, or as one
//!   of the changes since has left it. A rename happens whole or not.
//! - I2: what belongs to a life that has ended does nothing any more.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcore::SimulatedMedium;
use farcore::disk::{Disk, DiskCompletion, DiskRefused, DiskRequest};

use super::{DiskFaults, EIO, SimulatedDisk};
use crate::random::Random;

/// The number of the system's error of a disk that is full.
const ENOSPC: i32 = 28;
/// The most bytes of a file.
const CAPACITY: u64 = 1 << 40;

/// A change of names that is not durable.
#[derive(Clone, Debug)]
enum NameChange {
    Made(String, u64),
    Removed(String),
    Renamed(String, String, u64),
}

type Names = BTreeMap<String, u64>;

impl NameChange {
    fn make(&self, names: &mut Names) {
        match self {
            Self::Made(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Removed(name) => drop(names.remove(name)),
            Self::Renamed(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }
}

#[derive(Debug)]
struct Inner {
    random: Random,
    faults: DiskFaults,
    /// How often a call fails that is no request to a file.
    call_fails: u64,
    is_full: bool,
    /// The power fails at the call behind this many; it has failed.
    ends_after: Option<u64>,
    is_off: bool,
    /// Counts crashes.
    life: u64,
    files: BTreeMap<u64, SimulatedDisk>,
    last_file: u64,
    names: Names,
    durable_names: Names,
    loose_names: Vec<NameChange>,
    /// Files that are open in this life.
    open: Vec<u64>,
    failures: u64,
}

/// A simulated disk with a directory.
#[derive(Clone)]
pub(crate) struct SimulatedStore(Arc<Mutex<Inner>>);

impl fmt::Debug for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedStore").finish_non_exhaustive()
    }
}

/// A file of it, as a core writes it.
#[derive(Debug)]
struct StoredDisk {
    store: SimulatedStore,
    file: u64,
    life: u64,
}

impl SimulatedStore {
    /// An empty one.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            random: Random::new(seed ^ 0x57_08ED),
            faults: DiskFaults::default(),
            call_fails: 0,
            is_full: false,
            ends_after: None,
            is_off: false,
            life: 0,
            files: BTreeMap::new(),
            last_file: 0,
            names: Names::new(),
            durable_names: Names::new(),
            loose_names: Vec::new(),
            open: Vec::new(),
            failures: 0,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes wrong from now on: with requests to files, and with other calls.
    pub(crate) fn set_faults(&self, faults: DiskFaults, call_fails: u64) {
        let mut inner = self.inner();
        (inner.faults, inner.call_fails) = (faults, call_fails);
    }

    /// Whether writes find the disk full.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.inner().is_full = is_full;
    }

    /// The power fails, unless it has.
    pub(crate) fn crash(&self) {
        self.inner().crash();
    }

    /// The power fails in the middle of what is done, at the call behind this many that is no
    /// request to a file.
    pub(crate) fn crash_after(&self, calls: u64) {
        self.inner().ends_after = Some(calls);
    }

    /// Whether the power has failed in this life.
    pub(crate) fn is_off(&self) -> bool {
        self.inner().is_off
    }

    /// The next life begins.
    pub(crate) fn begin_life(&self) {
        let mut inner = self.inner();
        (inner.is_off, inner.ends_after) = (false, None);
    }

    /// The process ends: the kernel keeps what it was given.
    pub(crate) fn end_process(&self) {
        let mut inner = self.inner();
        if inner.is_off {
            return;
        }
        inner.life += 1;
        inner.open.clear();
        inner.files.values_mut().for_each(SimulatedDisk::leave);
    }

    /// Bytes that came to lie elsewhere, or were read otherwise than they were written, so far.
    pub(crate) fn damages(&self) -> u64 {
        self.inner()
            .files
            .values()
            .map(SimulatedDisk::damages)
            .sum()
    }

    /// Flips a bit of what a file holds; the file's name.
    pub(crate) fn damage(&self) -> Option<String> {
        let mut inner = self.inner();
        let inner = &mut *inner;
        let place = inner.random.place(inner.names.len().max(1));
        let (name, file) = inner.names.iter().nth(place)?;
        let file = inner.files.get_mut(file)?;
        file.damage().then(|| name.clone())
    }

    /// The names that there are, with the lengths of their files, and whether each is durable.
    pub(crate) fn list(&self) -> Vec<(String, u64, bool)> {
        let inner = self.inner();
        let each = inner.names.iter().map(|(name, file)| {
            let length = inner.files.get(file).map_or(0, SimulatedDisk::length);
            let is_durable = inner.durable_names.get(name) == Some(file);
            (name.clone(), length, is_durable)
        });
        each.collect()
    }

    /// Requests and calls that have failed so far.
    pub(crate) fn failures(&self) -> u64 {
        let inner = self.inner();
        let failed = inner.files.values().map(SimulatedDisk::failures);
        inner.failures + failed.sum::<u64>()
    }
}

fn failed<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

fn missing<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotFound.into())
}

impl Inner {
    fn file(&mut self, name: &str) -> io::Result<&mut SimulatedDisk> {
        let file = self
            .names
            .get(name)
            .and_then(|file| self.files.get_mut(file));
        file.map_or_else(missing, Ok)
    }

    fn id(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).map_or_else(missing, |&file| Ok(file))
    }

    fn crash(&mut self) {
        if self.is_off {
            return;
        }
        self.life += 1;
        self.is_off = true;
        self.open.clear();
        self.files.values_mut().for_each(SimulatedDisk::crash);
        let mut names = std::mem::take(&mut self.durable_names);
        let changes = std::mem::take(&mut self.loose_names);
        if self.random.one_in(2) {
            // As a journal of the file system keeps them.
            let count = self.random.place(changes.len() + 1);
            let kept = changes.iter().take(count);
            kept.for_each(|one| one.make(&mut names));
        } else {
            let often = self.random.of(&[1, 2, 4]);
            for change in &changes {
                if self.random.one_in(often) {
                    change.make(&mut names);
                }
            }
        }
        self.durable_names.clone_from(&names);
        self.names = names;
        self.drop_unnamed();
    }

    /// Fails now and then, and once the power has.
    fn call(&mut self) -> io::Result<()> {
        match &mut self.ends_after {
            Some(0) => self.crash(),
            Some(calls) => *calls -= 1,
            None => {}
        }
        if self.is_off {
            return failed(EIO);
        }
        if self.call_fails > 0 && self.random.one_in(self.call_fails) {
            self.failures += 1;
            return failed(EIO);
        }
        Ok(())
    }

    /// Makes an empty file, and gives it a name.
    fn make(&mut self, name: &str) -> io::Result<u64> {
        if self.is_full {
            self.failures += 1;
            return failed(ENOSPC);
        }
        self.last_file += 1;
        let seed = self.random.next();
        let disk = SimulatedDisk::new(seed, DiskFaults::default(), CAPACITY, usize::MAX);
        self.files.insert(self.last_file, disk);
        self.change(NameChange::Made(name.to_owned(), self.last_file));
        Ok(self.last_file)
    }

    fn change(&mut self, change: NameChange) {
        change.make(&mut self.names);
        self.loose_names.push(change);
    }

    /// Drops files that are not open, and that no name leads to, now or after a crash.
    fn drop_unnamed(&mut self) {
        let (names, durable, loose) = (&self.names, &self.durable_names, &self.loose_names);
        let is_made = |file: &u64| {
            loose.iter().any(|change| match change {
                NameChange::Made(_, made) | NameChange::Renamed(_, _, made) => made == file,
                NameChange::Removed(_) => false,
            })
        };
        let kept = |file: &u64| {
            let mut kept = names.values().chain(durable.values()).chain(&self.open);
            kept.any(|one| one == file) || is_made(file)
        };
        self.files.retain(|file, _| kept(file));
    }
}

impl SimulatedMedium for SimulatedStore {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.inner().names.keys().cloned().collect())
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(self.inner().file(name)?.length())
    }

    fn create(&self, name: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        if inner.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        inner.make(name).map(drop)
    }

    fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.is_off {
            return failed(EIO);
        }
        let file = inner.make(name)?;
        inner.call()?;
        if let Some(file) = inner.files.get_mut(&file) {
            file.fill(bytes);
        }
        Ok(())
    }

    fn read_at(&self, name: &str, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut inner = self.inner();
        let faults = inner.faults;
        let file = inner.file(name)?;
        file.set_faults(faults);
        Ok(file.read(into, at))
    }

    fn disk(&self, name: &str, _: u16) -> io::Result<Box<dyn Disk + Send>> {
        let mut inner = self.inner();
        let (file, life) = (inner.id(name)?, inner.life);
        inner.open.push(file);
        drop(inner);
        let store = self.clone();
        Ok(Box::new(StoredDisk { store, file, life }))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        inner.file(name)?.settle();
        Ok(())
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        let file = inner.id(from)?;
        if inner.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        inner.change(NameChange::Made(to.to_owned(), file));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        let file = inner.id(from)?;
        inner.change(NameChange::Renamed(from.to_owned(), to.to_owned(), file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        inner.id(name)?;
        inner.change(NameChange::Removed(name.to_owned()));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        let inner = &mut *inner;
        inner.durable_names.clone_from(&inner.names);
        inner.loose_names.clear();
        inner.drop_unnamed();
        Ok(())
    }
}

impl StoredDisk {
    fn with<T>(&self, or: T, work: impl FnOnce(&mut SimulatedDisk) -> T) -> T {
        let mut inner = self.store.inner();
        if inner.life != self.life {
            return or;
        }
        let (faults, is_full) = (inner.faults, inner.is_full);
        match inner.files.get_mut(&self.file) {
            Some(disk) => {
                disk.set_faults(faults);
                disk.set_capacity(if is_full { 0 } else { CAPACITY });
                work(disk)
            }
            None => or,
        }
    }
}

impl Drop for StoredDisk {
    fn drop(&mut self) {
        let mut inner = self.store.inner();
        if inner.life == self.life
            && let Some(place) = inner.open.iter().position(|&file| file == self.file)
        {
            inner.open.swap_remove(place);
        }
    }
}

impl Disk for StoredDisk {
    fn capacity(&self) -> u64 {
        CAPACITY
    }

    fn room(&self) -> usize {
        self.with(0, |disk| disk.room())
    }

    fn submit(&mut self, request: DiskRequest) -> Result<(), DiskRefused> {
        let mut request = Some(request);
        let sent = self.with(None, |disk| {
            request.take().map(|request| disk.submit(request))
        });
        match (sent, request) {
            (Some(sent), _) => sent,
            (None, Some(request)) => Err(DiskRefused::Busy(request)),
            (None, None) => Ok(()),
        }
    }

    fn poll(&mut self, each: &mut dyn FnMut(DiskCompletion)) -> usize {
        self.with(0, |disk| disk.poll(each))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_once_they_are_synced_and_renames_are_whole() {
        let (mut lost, mut kept) = (0, 0);
        for seed in 0..200 {
            let store = SimulatedStore::new(seed);
            store.write_whole("a", b"first").unwrap();
            store.sync_names().unwrap();
            store.write_whole("b", b"second").unwrap();
            store.rename("b", "a").unwrap();
            store.create("c").unwrap();
            store.crash();
            let mut read = [0; 8];
            let length = store.read_at("a", &mut read, 0).unwrap();
            match &read[..length] {
                b"first" => assert!(store.length("b").is_err() || kept < 200),
                bytes => assert_eq!((bytes, store.length("b").is_err()), (&b"second"[..], true)),
            }
            match store.length("c") {
                Ok(_) => kept += 1,
                Err(_) => lost += 1,
            }
        }
        assert!(lost > 20 && kept > 20, "{lost} {kept}");
    }
}
