//! The lab's cache folder: the kernel, the files of running guests, and the lock on them.
//!
//! ```text
//! lock          shared while a guest runs, exclusive while the kernel is built
//! kernel/       the kernel unpacked by kernel.rs, complete or absent
//! kernel.part/  a kernel being unpacked, or the rest of an unfinished one
//! jobs/PID/     the files of a running guest, by the process that runs it
//! ```

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The cache's directory.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
}

/// While this lives, no process removes files of the cache.
#[derive(Debug)]
pub(super) struct Shared {
    _lock: File,
}

/// While this lives, no other process uses the cache.
#[derive(Debug)]
pub(super) struct Exclusive {
    _lock: File,
}

/// The directory of a running guest; removed on drop.
#[derive(Debug)]
pub(super) struct Job {
    path: PathBuf,
}

/// The path of the cache, from the environment.
fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    given("FARCORE_LAB_CACHE")
        .or_else(|| Some(given("XDG_CACHE_HOME")?.join("farcore-lab")))
        .or_else(|| Some(given("HOME")?.join(".cache/farcore-lab")))
}

impl Cache {
    /// Opens the cache; creates its directory if necessary.
    pub(super) fn open() -> Result<Self> {
        let Some(root) = place(|name| std::env::var_os(name)) else {
            bail!("the cache has no path: set FARCORE_LAB_CACHE, XDG_CACHE_HOME or HOME");
        };
        fs::create_dir_all(&root).with_context(|| {
            format!(
                "cannot create the cache {}: set FARCORE_LAB_CACHE to another path",
                root.display()
            )
        })?;
        let root = root.canonicalize()?;
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The unpacked kernel.
    pub(super) fn kernel(&self) -> PathBuf {
        self.root.join("kernel")
    }

    /// The kernel being unpacked; it becomes [`Self::kernel`] by renaming.
    pub(super) fn kernel_part(&self) -> PathBuf {
        self.root.join("kernel.part")
    }

    fn lock_file(&self) -> Result<File> {
        let path = self.root.join("lock");
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))
    }

    /// The lock for running a guest. Waits for a process that builds.
    pub(super) fn shared(&self) -> Result<Shared> {
        let lock = self.lock_file()?;
        lock.lock_shared()?;
        Ok(Shared { _lock: lock })
    }

    /// The lock for building. Waits for all other processes.
    pub(super) fn exclusive(&self) -> Result<Exclusive> {
        let lock = self.lock_file()?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!(
                    "lab: waiting for other processes that use {}",
                    self.root.display()
                );
                lock.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        Ok(Exclusive { _lock: lock })
    }

    /// Creates a directory for a guest; removes those of ended processes.
    pub(super) fn job(&self) -> Result<Job> {
        let jobs = self.root.join("jobs");
        fs::create_dir_all(&jobs)?;
        for entry in fs::read_dir(&jobs)? {
            let entry = entry?;
            if !Path::new("/proc").join(entry.file_name()).exists() {
                // Another process may remove it at the same time.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = jobs.join(std::process::id().to_string());
        fs::create_dir_all(&path)?;
        Ok(Job { path })
    }
}

impl Job {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The next guest removes what is left.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> Option<PathBuf> {
        place(|name| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(*value))
        })
    }

    #[test]
    fn the_most_specific_variable_is_used() {
        let (own, xdg, home) = (
            ("FARCORE_LAB_CACHE", "/a"),
            ("XDG_CACHE_HOME", "/b"),
            ("HOME", "/c"),
        );
        assert_eq!(with(&[own, xdg, home]), Some("/a".into()));
        assert_eq!(with(&[xdg, home]), Some("/b/farcore-lab".into()));
        assert_eq!(
            with(&[("FARCORE_LAB_CACHE", ""), home]),
            Some("/c/.cache/farcore-lab".into())
        );
        assert_eq!(with(&[]), None);
    }
}
