//! Why a map was not taken.

use std::io;

use farcore_etcd::EtcdError;

/// Why a map was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// It is malformed.
    #[error("{0}")]
    Malformed(String),
    /// Its version is not greater than that of the present one.
    #[error("version {version} is not greater than {present}")]
    Older { version: u64, present: u64 },
    /// Slots are not given away, or are no more.
    #[error("{0}")]
    NotHeld(String),
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
    /// It is not known whether it is stored.
    #[error("it is not known whether it is stored: {0}")]
    Unsure(String),
    /// etcd does not do it.
    #[error("etcd: {0}")]
    Etcd(#[from] EtcdError),
}
