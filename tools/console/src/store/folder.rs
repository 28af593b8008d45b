//! The folder: its permissions, its lock and its places.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::StoreError;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Permissions of group and others.
const OTHERS: u32 = 0o077;

/// The folder of a console, locked while this lives.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { path, source }
}

/// Makes a folder, if it is absent, that no other user can enter.
fn make(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(FOLDER_MODE).create(path)
}

/// Opens a file of the folder, and makes it if it is absent.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(FILE_MODE).open(path)
}

impl Folder {
    /// Makes or opens a folder and locks it.
    ///
    /// # Errors
    /// It cannot be used, another console uses it, or others may enter it.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        make(path).map_err(failed(path))?;
        Self::close_to_others(path)?;
        let name = path.join("lock");
        let lock = open(&name).map_err(failed(&name))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Locked {
                path: path.to_owned(),
            },
            TryLockError::Error(source) => failed(&name)(source),
        })?;
        let folder = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        let uploads = folder.uploads();
        // What an earlier process left half written.
        if uploads.exists() {
            fs::remove_dir_all(&uploads).map_err(failed(&uploads))?;
        }
        for inner in [uploads, folder.path.join("traces")] {
            make(&inner).map_err(failed(&inner))?;
        }
        for file in [folder.console_database(), folder.data_database()] {
            // SQLite gives its other files the permissions of the database.
            open(&file).map_err(failed(&file))?;
        }
        Ok(folder)
    }

    /// Whether a folder has been used by a console, without changing anything.
    pub(crate) fn is_used(path: &Path) -> bool {
        path.join("console.db").exists()
    }

    fn close_to_others(path: &Path) -> Result<(), StoreError> {
        let facts = fs::metadata(path).map_err(failed(path))?;
        if facts.permissions().mode() & OTHERS == 0 {
            return Ok(());
        }
        let is_empty = fs::read_dir(path).map_err(failed(path))?.next().is_none();
        if !is_empty && !Self::is_used(path) {
            return Err(StoreError::Exposed {
                path: path.to_owned(),
            });
        }
        fs::set_permissions(path, fs::Permissions::from_mode(FOLDER_MODE)).map_err(failed(path))
    }

    /// The database of everything but datasets.
    pub(crate) fn console_database(&self) -> PathBuf {
        self.path.join("console.db")
    }

    /// The database of datasets.
    pub(crate) fn data_database(&self) -> PathBuf {
        self.path.join("data.db")
    }

    /// The text of a dataset of format `trace`.
    pub(crate) fn trace(&self, dataset: i64) -> PathBuf {
        self.path.join("traces").join(dataset.to_string())
    }

    /// A folder for files on their way in.
    pub(crate) fn uploads(&self) -> PathBuf {
        self.path.join("uploads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn one_console_uses_a_folder_that_others_cannot_enter() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/console");
        let folder = Folder::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&folder.console_database()), 0o600);
        let error = Folder::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        drop(folder);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Folder::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn an_open_folder_of_others_is_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(place.path().join("letter"), "dear").unwrap();
        let error = Folder::open(place.path()).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
        assert_eq!(mode(place.path()), 0o755);
    }

    #[test]
    fn half_written_uploads_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("console");
        let folder = Folder::open(&path).unwrap();
        let half = folder.uploads().join("half");
        fs::write(&half, "x").unwrap();
        drop(folder);
        Folder::open(&path).unwrap();
        assert!(!half.exists());
    }
}
