//! Where the lab keeps its kernel and its running guests, and who may touch what.
//!
//! ```text
//! lock          shared by those who run a guest, exclusive for who builds
//! kernel/       what kernel.rs unpacked, whole or not there
//! kernel.part/  one that is being unpacked, or the remains of one that was not finished
//! jobs/PID/     a running guest's files, by the process that runs it
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

/// Nobody takes anything away while this lives.
#[derive(Debug)]
pub(super) struct Shared {
    _lock: File,
}

/// Nobody else uses the cache while this lives.
#[derive(Debug)]
pub(super) struct Exclusive {
    _lock: File,
}

/// A running guest's directory; goes away with this.
#[derive(Debug)]
pub(super) struct Job {
    path: PathBuf,
}

/// Where the cache is, by the environment.
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
    /// Makes the directory where that is needed.
    pub(super) fn open() -> Result<Self> {
        let Some(root) = place(|name| std::env::var_os(name)) else {
            bail!("no place for a cache: set FARCORE_LAB_CACHE, XDG_CACHE_HOME or HOME");
        };
        fs::create_dir_all(&root).with_context(|| {
            format!(
                "cannot make the cache {}: set FARCORE_LAB_CACHE",
                root.display()
            )
        })?;
        let root = root.canonicalize()?;
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// What kernel.rs unpacked.
    pub(super) fn kernel(&self) -> PathBuf {
        self.root.join("kernel")
    }

    /// Where it unpacks; becomes [`Self::kernel`] by renaming.
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

    /// For who runs a guest. Waits for who builds.
    pub(super) fn shared(&self) -> Result<Shared> {
        let lock = self.lock_file()?;
        lock.lock_shared()?;
        Ok(Shared { _lock: lock })
    }

    /// For who builds. Waits for everybody.
    pub(super) fn exclusive(&self) -> Result<Exclusive> {
        let lock = self.lock_file()?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("lab: waiting for those who use {}", self.root.display());
                lock.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        Ok(Exclusive { _lock: lock })
    }

    /// A directory for a guest; sweeps those whose process is gone.
    pub(super) fn job(&self) -> Result<Job> {
        let jobs = self.root.join("jobs");
        fs::create_dir_all(&jobs)?;
        for entry in fs::read_dir(&jobs)? {
            let entry = entry?;
            if !Path::new("/proc").join(entry.file_name()).exists() {
                // Another one may sweep it as well.
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
        // What is left is swept by the next one.
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
    fn the_nearest_setting_decides() {
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
