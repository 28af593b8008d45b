//! A temporary folder for stores that keep files, removed at the end: on a memory file system if
//! there is one, or where `FARCORE_BENCH_DIR` names.

use std::path::{Path, PathBuf};

use anyhow::Context;
use farcore_command::stop;
use tempfile::TempDir;

/// The memory file system of Linux.
const MEMORY: &str = "/dev/shm";
/// Environment variable that names another parent folder.
const VARIABLE: &str = "FARCORE_BENCH_DIR";

/// The folder.
#[derive(Debug)]
pub(super) struct Folder(TempDir);

impl Folder {
    /// Creates a folder in that of `FARCORE_BENCH_DIR`, else on the memory file system.
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let place = match std::env::var_os(VARIABLE) {
            Some(place) => PathBuf::from(place),
            None if Path::new(MEMORY).is_dir() => PathBuf::from(MEMORY),
            None => std::env::temp_dir(),
        };
        let folder = tempfile::Builder::new()
            .prefix(&format!("farcore-bench-{name}-"))
            .tempdir_in(&place)
            .with_context(|| {
                format!(
                    "cannot create a folder in {}: name another in {VARIABLE}",
                    place.display()
                )
            })?;
        stop::remove_if_hung(folder.path());
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}
