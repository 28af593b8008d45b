//! What the files of a directory lie on: the file system, or what a simulated world has in its
//! place.
//!
//! - I1: a name that was made, replaced or removed is so after a crash once
//!   [`Medium::sync_names`] has returned. Until then it may be or not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
#[cfg(feature = "simulation")]
use std::sync::Arc;

#[cfg(feature = "simulation")]
use super::simulated::SimulatedMedium;
use crate::disk::{Disk, RingDisk};
use crate::error::StorageError;

type Result<T> = std::result::Result<T, StorageError>;

/// What files lie on.
#[derive(Clone, Debug)]
pub(crate) enum Medium {
    /// The file system.
    System,
    /// A disk of a simulated world, which has one directory.
    #[cfg(feature = "simulation")]
    Simulated(Arc<dyn SimulatedMedium>),
}

/// A file that is open for reading.
#[derive(Debug)]
pub(super) enum Source {
    System(File),
    #[cfg(feature = "simulation")]
    Simulated(Arc<dyn SimulatedMedium>, String),
}

impl Source {
    /// Reads bytes from a place on; how many, which is 0 at the end.
    pub(super) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Self::System(file) => file.read_at(into, at),
            #[cfg(feature = "simulation")]
            Self::Simulated(medium, name) => medium.read_at(name, into, at),
        }
    }
}

/// The name of a file in the only directory of a simulated disk.
#[cfg(feature = "simulation")]
fn name_of(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default()
}

fn failed<'p>(path: &'p Path, call: &'static str) -> impl FnOnce(io::Error) -> StorageError + 'p {
    move |error| StorageError::io(path, call, &error)
}

impl Medium {
    /// The names in a directory. One that is no text is left out.
    pub(super) fn names(&self, directory: &Path) -> Result<Vec<String>> {
        match self {
            Self::System => {
                let mut names = Vec::new();
                for entry in fs::read_dir(directory).map_err(failed(directory, "readdir"))? {
                    let name = entry.map_err(failed(directory, "readdir"))?.file_name();
                    names.extend(name.into_string().ok());
                }
                Ok(names)
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.names().map_err(failed(directory, "readdir")),
        }
    }

    /// Whether there is a file of a name.
    pub(super) fn exists(&self, path: &Path) -> bool {
        match self {
            Self::System => path.exists(),
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.length(name_of(path)).is_ok(),
        }
    }

    /// Bytes that a file has.
    pub(super) fn length(&self, path: &Path) -> Result<u64> {
        let length = match self {
            Self::System => fs::metadata(path).map(|found| found.len()),
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.length(name_of(path)),
        };
        length.map_err(failed(path, "stat"))
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// It is there.
    pub(super) fn create(&self, path: &Path) -> Result<()> {
        let made = match self {
            Self::System => {
                let mut options = OpenOptions::new();
                let made = options.write(true).create_new(true).mode(0o600).open(path);
                made.map(drop)
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.create(name_of(path)),
        };
        made.map_err(failed(path, "create"))
    }

    /// Makes a file, or one anew, that has these bytes, which are durable then. Its name is not.
    pub(super) fn write_whole(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        match self {
            Self::System => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                let mut file = options.open(path).map_err(failed(path, "create"))?;
                file.write_all(bytes).map_err(failed(path, "write"))?;
                file.sync_all().map_err(failed(path, "fsync"))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => {
                let written = medium.write_whole(name_of(path), bytes);
                written.map_err(failed(path, "write"))
            }
        }
    }

    /// The first bytes of a file, if there is one.
    pub(super) fn read_first(&self, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        let source = match self.source(path) {
            Ok((source, _)) => source,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(path, "open")(error)),
        };
        let mut bytes = Vec::new();
        match source {
            Source::System(file) => file.take(bytes_max).read_to_end(&mut bytes).map(drop),
            #[cfg(feature = "simulation")]
            source @ Source::Simulated(..) => {
                bytes.resize(usize::try_from(bytes_max).unwrap_or(0), 0);
                let read = source.read_at(&mut bytes, 0);
                read.map(|read| bytes.truncate(read))
            }
        }
        .map_err(failed(path, "read"))?;
        Ok(Some(bytes))
    }

    /// Opens a file for reading; it, and its length.
    pub(super) fn source(&self, path: &Path) -> io::Result<(Source, u64)> {
        match self {
            Self::System => {
                let file = File::open(path)?;
                let length = file.metadata()?.len();
                Ok((Source::System(file), length))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => {
                let name = name_of(path).to_owned();
                let length = medium.length(&name)?;
                Ok((Source::Simulated(Arc::clone(medium), name), length))
            }
        }
    }

    /// Opens a file as a core writes it.
    pub(super) fn disk(&self, path: &Path, depth: u16) -> Result<Box<dyn Disk + Send>> {
        let disk = match self {
            Self::System => RingDisk::open(path, u64::MAX, depth)
                .map(|disk| -> Box<dyn Disk + Send> { Box::new(disk) }),
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.disk(name_of(path), depth),
        };
        disk.map_err(failed(path, "open"))
    }

    /// Makes what a file holds survive a crash.
    pub(super) fn sync_file(&self, path: &Path) -> Result<()> {
        match self {
            Self::System => {
                let file = File::open(path).map_err(failed(path, "open"))?;
                file.sync_all().map_err(failed(path, "fsync"))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.sync(name_of(path)).map_err(failed(path, "fsync")),
        }
    }

    /// Gives a file a second name, or another file with what it holds that name.
    pub(super) fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let linked = match self {
            Self::System => fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop)),
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.link(name_of(from), name_of(to)),
        };
        linked.map_err(failed(to, "link"))
    }

    /// Gives a file another name, which another file loses if it has it.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let renamed = match self {
            Self::System => fs::rename(from, to),
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.rename(name_of(from), name_of(to)),
        };
        renamed.map_err(failed(from, "rename"))
    }

    /// Removes a file if it is there.
    pub(super) fn remove(&self, path: &Path) -> Result<()> {
        let removed = match self {
            Self::System => fs::remove_file(path),
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.remove(name_of(path)),
        };
        match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(failed(path, "unlink")),
        }
    }

    /// Makes the names in a directory survive a crash.
    pub(super) fn sync_names(&self, directory: &Path) -> Result<()> {
        let synced = match self {
            Self::System => {
                let directory = match directory.as_os_str().is_empty() {
                    true => Path::new("."),
                    false => directory,
                };
                File::open(directory).and_then(|file| file.sync_all())
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(medium) => medium.sync_names(),
        };
        synced.map_err(failed(directory, "fsync"))
    }
}
