//! A folder for stores that keep files: on a memory file system where there is one, removed at the
//! end.

use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::TempDir;

/// Where Linux keeps one.
const MEMORY: &str = "/dev/shm";
/// Names another.
const VARIABLE: &str = "FARCORE_BENCH_DIR";

/// Such a folder.
#[derive(Debug)]
pub(super) struct Folder(TempDir);

impl Folder {
    /// A new one in the folder that `FARCORE_BENCH_DIR` names, else on a memory file system.
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
                    "no folder in {}: name another in {VARIABLE}",
                    place.display()
                )
            })?;
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}
