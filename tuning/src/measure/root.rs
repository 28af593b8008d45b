//! Read access to a machine's `/proc` and `/sys`, under `/` or under a test's folder.
//!
//! Owns nothing but the path. Every read is bounded, and no path leaves the root.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Limit on the bytes read from a file; `/proc/cpuinfo` of 1024 processors is smaller.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Limit on the names read from a folder.
const NAMES_MAX: usize = 16_384;

/// The folder that holds `/proc` and `/sys`.
#[derive(Debug)]
pub struct Root(PathBuf);

impl Root {
    /// The machine whose files are under this path: `/` for this one.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path of a file of the machine.
    ///
    /// `..` components are dropped: some paths come out of files.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        let mut whole = self.0.clone();
        let parts = Path::new(path).components();
        whole.extend(parts.filter(|part| matches!(part, Component::Normal(_))));
        whole
    }

    /// A file's text, trimmed; `None` if it cannot be read.
    #[must_use]
    pub fn read(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that a file holds; `None` if it cannot be read or parsed.
    #[must_use]
    pub fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    /// The names in a folder, sorted; empty if it cannot be read.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(NAMES_MAX).collect();
        names.sort_unstable();
        names
    }

    /// The word in brackets, as in `always [madvise] never`; `None` if there is none.
    #[must_use]
    pub fn chosen(&self, path: &str) -> Option<String> {
        let text = self.read(path)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// The value of a name in a file of `Name: value` lines.
    #[must_use]
    pub fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.read(path)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
        Some(value.trim().to_owned())
    }
}
