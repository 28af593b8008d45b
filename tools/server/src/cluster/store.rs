//! Where the map of a server is kept: nowhere, in a file, or in etcd. A change is made on a map
//! that was read; another change in between is noticed in etcd, not in a file.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farcore_etcd::{Condition, Entries, Etcd, EtcdError};

use super::map::{ClusterMap, MAP_BYTES_MAX};
use super::map_error::MapError;
use super::view::View;
use crate::replaced_file;

/// Rights of a file that is new, less those that the process leaves out.
const NEW_FILE_MODE: u32 = 0o666;
/// The name of the map's key under the prefix.
const MAP_NAME: &str = "map";
/// How often a map is written back that others change meanwhile.
const SETTLE_TRIES: u32 = 5;

/// How a file is recognised that has not changed: its number, its length, and when it was written.
type Seen = (u64, u64, i64, i64);

/// Where a map is kept.
#[derive(Debug)]
pub(crate) enum Store {
    Nowhere,
    File(FileStore),
    Etcd(EtcdStore),
}

/// A file, which operators and other programs may replace.
#[derive(Debug)]
pub(crate) struct FileStore {
    path: PathBuf,
    /// What it was when it was read last.
    seen: Option<Seen>,
}

/// A key of etcd, which changes only from the map that was read.
#[derive(Debug)]
pub(crate) struct EtcdStore {
    pub(super) etcd: Arc<Etcd>,
    /// The map that was read or stored last; the unknown one if there was none.
    known: ClusterMap,
    /// The revision of its key; 0 if there was none.
    revision: i64,
    /// The revision of all of etcd then.
    seen: i64,
    /// The key of this server that its lease has stored, and its revision.
    pub(super) registration: Option<Condition>,
    /// A change was sent, and it is not known whether it was made.
    is_unsure: bool,
}

/// A map that is to be stored.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub(super) map: &'a ClusterMap,
    /// What this server goes by until then.
    pub(super) present: &'a View,
    /// It may take the place of any map.
    pub(super) is_forced: bool,
    /// The IDs of servers whose leases must have ended, since the map takes slots from them.
    pub(super) gone: Vec<String>,
}

impl Store {
    /// A file.
    pub(crate) fn file(path: PathBuf) -> Self {
        Self::File(FileStore { path, seen: None })
    }

    /// A key of etcd.
    pub(crate) fn etcd(etcd: Arc<Etcd>) -> Self {
        Self::Etcd(EtcdStore {
            etcd,
            known: ClusterMap::unknown(),
            revision: 0,
            seen: 0,
            registration: None,
            is_unsure: false,
        })
    }

    /// The map that is there at the start; `None` if there is none, or it is read later.
    pub(super) fn first(&mut self) -> Result<Option<ClusterMap>, MapError> {
        match self {
            Self::Nowhere | Self::Etcd(_) => Ok(None),
            Self::File(file) => file.read(),
        }
    }

    /// Stores a map in the place of the present one.
    pub(super) fn store(&mut self, change: &Change<'_>) -> Result<(), MapError> {
        match self {
            Self::Nowhere => Ok(()),
            Self::File(file) => file.store(change.map),
            Self::Etcd(etcd) => etcd.store(change),
        }
    }

    /// Stores a map that another server has given; in etcd it has stored it itself.
    pub(super) fn store_given(&mut self, map: &ClusterMap) -> Result<(), MapError> {
        match self {
            Self::Nowhere | Self::Etcd(_) => Ok(()),
            Self::File(file) => file.store(map),
        }
    }

    /// True if it is not known whether the last change was made.
    pub(super) fn is_unsure(&self) -> bool {
        matches!(self, Self::Etcd(etcd) if etcd.is_unsure)
    }
}

impl FileStore {
    fn read(&mut self) -> Result<Option<ClusterMap>, MapError> {
        let Some((text, seen)) = read_file(&self.path)? else {
            return Ok(None);
        };
        self.seen = Some(seen);
        let map = ClusterMap::parse(&text).map_err(MapError::Malformed)?;
        Ok(Some(map))
    }

    /// The map of the file if it has changed.
    pub(super) fn changed(&mut self) -> Result<Option<ClusterMap>, MapError> {
        // One that is away for a moment is being replaced.
        let now = fs::metadata(&self.path).ok().as_ref().map(seen_of);
        if now.is_none() || now == self.seen {
            return Ok(None);
        }
        self.seen = now;
        self.read()
    }

    fn store(&mut self, map: &ClusterMap) -> Result<(), MapError> {
        let failed = |error| file_error(&self.path, error);
        write_file(&self.path, &map.to_string()).map_err(failed)?;
        self.seen = fs::metadata(&self.path).ok().as_ref().map(seen_of);
        Ok(())
    }
}

impl EtcdStore {
    fn map_key(&self) -> String {
        self.etcd.key(MAP_NAME)
    }

    /// What wakes one that waits for a change of the map, and since which revision.
    pub(super) fn watched(&self) -> (String, i64) {
        (self.map_key(), self.seen)
    }

    /// The map that is there now; the unknown one if there is none.
    pub(super) fn read(&mut self) -> Result<ClusterMap, MapError> {
        if self.is_unsure {
            return self.settle();
        }
        let key = self.map_key();
        // Each server asks each second, and a map may have 1 MiB.
        if self.known.version > 0 {
            let found = self.etcd.look(&key)?;
            let revision = found.entries.first().map(|entry| entry.revision);
            if revision == Some(self.revision) {
                self.seen = found.revision;
                return Ok(self.known.clone());
            }
        }
        let found = self.etcd.get(&key)?;
        self.take(found)
    }

    fn take(&mut self, found: Entries) -> Result<ClusterMap, MapError> {
        self.seen = found.revision;
        self.known = ClusterMap::unknown();
        let Some(entry) = found.entries.into_iter().next() else {
            self.revision = 0;
            return Ok(ClusterMap::unknown());
        };
        self.revision = entry.revision;
        let text = String::from_utf8(entry.value);
        let text = text.map_err(|_| MapError::Malformed("it is not UTF-8".to_owned()))?;
        let map = ClusterMap::parse(&text).map_err(MapError::Malformed)?;
        self.known = map.clone();
        Ok(map)
    }

    /// The map that is there, once no change that was sent before can be made any more: it is
    /// written back, so that they do not find what they replace.
    pub(super) fn settle(&mut self) -> Result<ClusterMap, MapError> {
        let key = self.map_key();
        for _ in 0..SETTLE_TRIES {
            let found = self.etcd.get(&key)?;
            let Some(entry) = found.entries.first() else {
                self.is_unsure = false;
                return self.take(found);
            };
            let revision = entry.revision;
            let same = Condition {
                key: key.clone(),
                revision,
            };
            let written = self.etcd.put_if(&[same], (&key, &entry.value), 0)?;
            if let Some(written) = written {
                self.is_unsure = false;
                let map = self.take(found);
                self.revision = written;
                return map;
            }
        }
        let text = "others change the map all the time".to_owned();
        Err(MapError::NotHeld(text))
    }

    fn store(&mut self, change: &Change<'_>) -> Result<(), MapError> {
        let not_held = |text: &str| Err(MapError::NotHeld(text.to_owned()));
        if !change.is_forced && !self.known.is_like(&change.present.map) {
            return not_held(
                "etcd has another map than this server goes by: `CLUSTERX SETNODES .. FORCE` replaces it",
            );
        }
        // One whose lease has ended may not know who owns its slots.
        if change.present.own.is_some() && self.registration.is_none() {
            return not_held("this server has no lease in etcd");
        }
        if self.is_unsure {
            return not_held("it is not known whether the last change of the map was made");
        }
        let key = self.map_key();
        let present = Condition {
            key: key.clone(),
            revision: self.revision,
        };
        let gone = change.gone.iter().map(|id| Condition {
            key: ClusterMap::etcd_key_of(&self.etcd, id),
            revision: 0,
        });
        let conditions: Vec<_> = [present]
            .into_iter()
            .chain(self.registration.clone())
            .chain(gone)
            .collect();
        let text = change.map.to_string();
        match self.etcd.put_if(&conditions, (&key, text.as_bytes()), 0) {
            Ok(Some(revision)) => {
                (self.revision, self.seen) = (revision, revision);
                self.known = change.map.clone();
                Ok(())
            }
            Ok(None) => not_held(
                "etcd has another map by now, or the lease of this server has ended, or a server that would lose slots has its lease: use `farcore cluster move-slots`, or `failover` for one that is gone",
            ),
            Err(error) => {
                self.is_unsure |= !matches!(error, EtcdError::Refused { .. });
                Err(error.into())
            }
        }
    }
}

impl ClusterMap {
    /// The map in a file; `None` if there is no file.
    ///
    /// # Errors
    /// It cannot be read, or is malformed.
    pub fn read(path: &Path) -> Result<Option<Self>, String> {
        let text = read_file(path).map_err(|error| error.to_string())?;
        let map = text.map(|(text, _)| Self::parse(&text)).transpose();
        map.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes the map into a file, which is replaced as a whole.
    ///
    /// # Errors
    /// Of the system.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_file(path, &self.to_string())
    }

    /// The map in etcd, and the condition that it is still there; `None` if there is none.
    ///
    /// # Errors
    /// etcd is not reached, or the map is malformed.
    pub fn read_etcd(etcd: &Etcd) -> Result<(Option<Self>, Condition), String> {
        let key = etcd.key(MAP_NAME);
        let found = etcd.get(&key).map_err(|error| error.to_string())?;
        let Some(entry) = found.entries.into_iter().next() else {
            return Ok((None, Condition { key, revision: 0 }));
        };
        let revision = entry.revision;
        let map = String::from_utf8(entry.value).map_err(|_| "it is not UTF-8".to_owned());
        let map = map.and_then(|text| Self::parse(&text));
        let map = map.map_err(|error| format!("{key}: {error}"))?;
        Ok((Some(map), Condition { key, revision }))
    }

    /// Writes the map into etcd, if conditions hold; false if not.
    ///
    /// # Errors
    /// etcd is not reached.
    pub fn write_etcd(&self, etcd: &Etcd, conditions: &[Condition]) -> Result<bool, EtcdError> {
        let (key, text) = (etcd.key(MAP_NAME), self.to_string());
        let stored = etcd.put_if(conditions, (&key, text.as_bytes()), 0)?;
        Ok(stored.is_some())
    }

    /// The key that a server of an ID has in etcd while its lease holds.
    #[must_use]
    pub fn etcd_key_of(etcd: &Etcd, id: &str) -> String {
        etcd.key(&format!("servers/{}", id.to_ascii_lowercase()))
    }
}

fn seen_of(metadata: &fs::Metadata) -> Seen {
    (
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

fn file_error(path: &Path, error: io::Error) -> MapError {
    let path = path.display().to_string();
    MapError::File { path, error }
}

/// The text of a file; `None` if there is none.
fn read_file(path: &Path) -> Result<Option<(String, Seen)>, MapError> {
    let failed = |error| file_error(path, error);
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let seen = seen_of(&file.metadata().map_err(failed)?);
    let mut text = String::new();
    // A byte more, so that one that is too long is noticed.
    let mut limited = file.take(MAP_BYTES_MAX as u64 + 1);
    limited.read_to_string(&mut text).map_err(failed)?;
    Ok(Some((text, seen)))
}

/// Replaces the file of a map, so that another server that shares it reads one map or the other.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    replaced_file::replace(path, text.as_bytes(), NEW_FILE_MODE)
}
