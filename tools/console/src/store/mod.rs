//! Where the console keeps its state: a folder with two databases and the uploaded traces.
//!
//! ```text
//! DIR/            0700
//!   lock          held while a console uses the folder
//!   console.db    users, sessions, devices, runs, points, events, catalogue of datasets
//!   data.db       one table a dataset: d_<id>, columns c0..cN; both are SQLite in WAL mode
//!   traces/<id>   the text of datasets of format `trace`, for runs
//!   uploads/      files on their way in; emptied at every start
//! ```
//!
//! - I1: one console uses a folder at a time.
//! - I2: no other user of the machine reads the folder.
//! - I3: a folder of a newer version is refused, and not changed.

mod database;
mod folder;
mod migrations;

pub(crate) use self::database::Database;
pub(crate) use self::folder::Folder;
pub(crate) use self::migrations::{CONSOLE, DATA};
use std::path::PathBuf;

use thiserror::Error;

/// A folder that cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("{path}: {source}")]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// Another console uses the folder.
    #[error("{path} is used by another console: stop that, or give another folder with --data")]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// Others may read the folder, and it has other files.
    #[error(
        "{path} has other files and lets other users in: give a folder of its own with --data, or run `chmod 700 {path}`"
    )]
    Exposed {
        /// The folder.
        path: PathBuf,
    },
    /// A newer version has used the database.
    #[error(
        "{path} has version {found}, and this program knows versions up to {known}: use the newer farcore"
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
}
