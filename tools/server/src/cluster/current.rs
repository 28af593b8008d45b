//! The map that a server goes by now: where it comes from, and when another takes its place.
//!
//! - I1: a map takes the place of another only if its version is greater, unless it is forced.
//! - I2: a map that clients have pushed is in the file, if there is one, before it counts.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::map::{ClusterMap, MAP_BYTES_MAX};
use super::view::View;
use crate::replaced_file;

/// Rights of a file that is new, less those that the process leaves out.
const NEW_FILE_MODE: u32 = 0o666;

/// How a file is recognised that has not changed: its number, its length, and when it was written.
type Seen = (u64, u64, i64, i64);

/// The map of a server, which its cores share.
#[derive(Debug)]
pub(crate) struct CurrentMap {
    /// Rises with each map, and each ID of this server.
    generation: AtomicU64,
    view: Mutex<Arc<View>>,
    /// What the file was when it was read last. It is locked while a map is stored or read.
    seen: Mutex<Option<Seen>>,
    file: Option<PathBuf>,
    /// Where clients reach this server, as a map has it.
    host: String,
    port: u16,
}

/// Why a map was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// It is malformed.
    #[error("{0}")]
    Malformed(String),
    /// Its version is not greater than that of the present one.
    #[error("version {version} is not greater than {present}")]
    Older { version: u64, present: u64 },
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
}

impl CurrentMap {
    /// That of a file, or an unknown one if there is no such file yet.
    ///
    /// # Errors
    /// The file cannot be read, or is malformed.
    pub(crate) fn open(
        file: Option<PathBuf>,
        id: Option<String>,
        (host, port): (String, u16),
    ) -> Result<Self, MapError> {
        let (map, seen) = match file.as_deref().map(read_file).transpose()?.flatten() {
            Some((text, seen)) => {
                let map = ClusterMap::parse(&text).map_err(MapError::Malformed)?;
                (map, Some(seen))
            }
            None => (ClusterMap::unknown(), None),
        };
        let view = View::new(map, id, (&host, port));
        Ok(Self {
            generation: AtomicU64::new(1),
            view: Mutex::new(Arc::new(view)),
            seen: Mutex::new(seen),
            file,
            host,
            port,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Arc<View>> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present view, and its generation.
    pub(crate) fn now(&self) -> (u64, Arc<View>) {
        let view = self.lock();
        // ORDERING: relaxed; it changes under the lock alone.
        (self.generation.load(Ordering::Relaxed), Arc::clone(&view))
    }

    /// Has a view be made of the present one.
    fn replace(&self, change: impl FnOnce(&View) -> (ClusterMap, Option<String>)) {
        let mut view = self.lock();
        let (map, id) = change(&view);
        *view = Arc::new(View::new(map, id, (&self.host, self.port)));
        // ORDERING: release; pairs with the acquire in `CoreView::renewed`.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Has this server be the member of an ID.
    pub(crate) fn set_id(&self, id: &str) {
        self.replace(|view| (view.map.clone(), Some(id.to_ascii_lowercase())));
    }

    /// Takes a map that a client has pushed, and stores it. It may take as long as the disk does.
    ///
    /// # Errors
    /// The map is no newer than the present one, and is not forced, or cannot be stored.
    pub(crate) fn push(&self, map: ClusterMap, is_forced: bool) -> Result<(), MapError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, present) = self.now();
        if !is_forced && map.version <= present.map.version {
            // The client repeats what it has sent before, as its answer may be lost.
            if map == present.map {
                return Ok(());
            }
            return Err(MapError::Older {
                version: map.version,
                present: present.map.version,
            });
        }
        if let Some(path) = &self.file {
            let failed = |error| file_error(path, error);
            write_file(path, &map.to_string()).map_err(failed)?;
            *seen = fs::metadata(path).ok().as_ref().map(seen_of);
        }
        let version = map.version;
        self.replace(|view| (map, view.id.clone()));
        drop(seen);
        tracing::info!(version, "the map of the cluster was pushed");
        Ok(())
    }

    /// Takes the map of the file if it has changed and is newer. What is wrong with a file is
    /// returned once. `Some` of a version that was taken.
    ///
    /// # Errors
    /// The file cannot be read, or its map is malformed or no newer than the present one.
    pub(crate) fn look(&self) -> Result<Option<u64>, MapError> {
        let Some(path) = &self.file else {
            return Ok(None);
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is away for a moment is being replaced.
        let now = fs::metadata(path).ok().as_ref().map(seen_of);
        if now.is_none() || now == *seen {
            return Ok(None);
        }
        *seen = now;
        let Some((text, read)) = read_file(path)? else {
            return Ok(None);
        };
        *seen = Some(read);
        let map = ClusterMap::parse(&text).map_err(MapError::Malformed)?;
        let (_, present) = self.now();
        let (version, present) = (map.version, &present.map);
        if map == *present {
            return Ok(None);
        }
        if version <= present.version {
            let present = present.version;
            return Err(MapError::Older { version, present });
        }
        self.replace(|view| (map, view.id.clone()));
        Ok(Some(version))
    }
}

/// The view that a core has looked up last.
#[derive(Debug)]
pub(crate) struct CoreView {
    generation: u64,
    view: Arc<View>,
}

impl CoreView {
    /// That of now.
    pub(crate) fn new(current: &CurrentMap) -> Self {
        let (generation, view) = current.now();
        Self { generation, view }
    }

    /// The view of now. Cost while it stays: a read of a word that all cores share.
    #[inline]
    pub(crate) fn renewed(&mut self, current: &CurrentMap) -> &Arc<View> {
        // ORDERING: acquire; pairs with the release in `CurrentMap::replace`, so a command that is
        // parsed after the reply to a new map sees that map.
        if current.generation.load(Ordering::Acquire) != self.generation {
            *self = Self::new(current);
        }
        &self.view
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
