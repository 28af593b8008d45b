//! What can be wrong with the files of a data directory, each with its path and a remedy.

use std::path::PathBuf;

/// Why the files of a data directory cannot be written or read. The store stays as it is on the
/// disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The system has refused or failed a call.
    #[error("{}: {call} failed ({reason})", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        call: &'static str,
        /// What the system said.
        reason: String,
    },
    /// Another process uses the directory.
    #[error(
        "the data directory {} is in use{}: end that process, or choose another directory",
        directory.display(),
        pid.map_or(String::new(), |pid| format!(" by process {pid}"))
    )]
    Locked {
        /// The directory.
        directory: PathBuf,
        /// The process, if the lock names it.
        pid: Option<u32>,
    },
    /// A file is not one of a store.
    #[error("{} is no file of a store: move it out of the data directory", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A file has another format.
    #[error(
        "{} has format {format} and this version reads {known}: use the version that wrote it",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The file's format.
        format: u32,
        /// The format that is read.
        known: u32,
    },
    /// A file is encrypted, and there is no key.
    #[error("{} is encrypted: open the store with its encryption key", path.display())]
    KeyNeeded {
        /// The file.
        path: PathBuf,
    },
    /// A file is not encrypted, and there is a key.
    #[error(
        "{} is not encrypted: open the store without an encryption key, or choose another directory",
        path.display()
    )]
    KeyNotNeeded {
        /// The file.
        path: PathBuf,
    },
    /// A file was encrypted with another key.
    #[error("{} was encrypted with another key: open the store with that one", path.display())]
    WrongKey {
        /// The file.
        path: PathBuf,
    },
    /// A file was created and nothing was written into it before the end of its process. It holds
    /// nothing that was promised to last.
    #[error("{} was never begun: it can be removed", path.display())]
    NotBegun {
        /// The file.
        path: PathBuf,
    },
    /// A file is damaged at a place where it was whole once.
    #[error(
        "{} is damaged at byte {at} ({reason}): restore the data directory from a copy",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The place, in bytes.
        at: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// A file is missing.
    #[error("{} is missing: restore the data directory from a copy", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Logs that were loaded once are shorter than they were then: their ends are damaged.
    #[error(
        "{} and the logs before it do not end where they did when they were loaded last: restore the data directory from a copy",
        path.display()
    )]
    Shorter {
        /// A log of the last generation of them.
        path: PathBuf,
    },
    /// The manifest is damaged.
    #[error(
        "{} is damaged ({reason}): restore the data directory from a copy; MANIFEST.old beside it is the manifest before",
        path.display()
    )]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There are files of a store without a manifest.
    #[error(
        "{} holds {file} and no MANIFEST: restore it, or choose an empty directory",
        directory.display()
    )]
    NoManifest {
        /// The directory.
        directory: PathBuf,
        /// One of the files.
        file: String,
    },
}

impl StorageError {
    /// What a call of the system has failed with.
    pub(crate) fn io(path: &std::path::Path, call: &'static str, error: &std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            call,
            reason: error.to_string(),
        }
    }
}
