//! The directory of a store: one process at a time has it, and a manifest says which files count.
//!
//! ```text
//! LOCK            held while the store is open, with the number of the process
//! MANIFEST        the base and its files; MANIFEST.old is the one before
//! MANIFEST-GENERATION   of a snapshot that is kept beside newer ones
//! base-GENERATION-SHARD, log-GENERATION-SHARD         20 and 5 decimal digits
//! ```
//!
//! A store writes its first manifest, without a base, before the logs of its second generation.
//! Files without a manifest are those of a process that ended before, or a manifest has gone
//! missing: then the store is not opened, rather than opened without its keys.
//!
//! - I1: there is a whole manifest at every moment from the first one on.
//! - I2: no file that the manifest names is removed, and no log from its base's generation on.
//! - I3: the manifest names the last logs as soon as they are made, and each log the one before.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::manifest::{MANIFEST_BYTES_MAX, Manifest};
use super::medium::Medium;
use super::reader::FileReader;
use super::super_block::FileKind;
use crate::cipher::EncryptionKey;
use crate::disk::Disk;
use crate::error::StorageError;

/// The generation of a store's first logs.
pub(crate) const FIRST_GENERATION: u64 = 1;

const LOCK: &str = "LOCK";
const MANIFEST: &str = "MANIFEST";
const MANIFEST_OLD: &str = "MANIFEST.old";
const TEMPORARY: &str = ".tmp";
const GENERATION_DIGITS: usize = 20;
const SHARD_DIGITS: usize = 5;

type Result<T> = std::result::Result<T, StorageError>;

/// A data directory that this process has alone.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    medium: Medium,
    /// Locked until it is closed; `None` if it was not there for a reader.
    _lock: Option<File>,
}

/// The files of a directory by generation: their shards, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Files {
    pub(crate) bases: BTreeMap<u64, Vec<u16>>,
    pub(crate) logs: BTreeMap<u64, Vec<u16>>,
}

/// What a directory holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    /// `None` if it is a new store, or one whose process ended before the first manifest.
    pub(crate) manifest: Option<Manifest>,
    pub(crate) files: Files,
}

impl Stored {
    /// Whether nothing was stored.
    #[cfg(test)]
    pub(crate) fn is_new(&self) -> bool {
        self.manifest.is_none() && self.files == Files::default()
    }
}

impl FileKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Log => "log",
        }
    }
}

/// The name of a file.
fn name_of(kind: FileKind, generation: u64, shard: u16) -> String {
    let kind = kind.prefix();
    format!("{kind}-{generation:0GENERATION_DIGITS$}-{shard:0SHARD_DIGITS$}")
}

/// The name of the manifest of a snapshot that is kept.
fn kept_name(generation: u64) -> String {
    format!("{MANIFEST}-{generation:0GENERATION_DIGITS$}")
}

/// What a name says, if it is one of [`name_of`].
fn named(name: &str) -> Option<(FileKind, u64, u16)> {
    let mut parts = name.split('-');
    let prefix = parts.next()?;
    let kinds = [FileKind::Base, FileKind::Log];
    let kind = kinds.into_iter().find(|kind| kind.prefix() == prefix)?;
    let generation = parts.next()?.parse().ok()?;
    let shard = parts.next()?.parse().ok()?;
    (name_of(kind, generation, shard) == name).then_some((kind, generation, shard))
}

impl Directory {
    /// Makes a directory if there is none, and takes it for this process.
    ///
    /// # Errors
    /// It cannot be made or read, or another process has it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |call| move |error| StorageError::io(path, call, &error);
        if !path.is_dir() {
            let missing = path.ancestors().take_while(|path| !path.exists());
            let missing: Vec<_> = missing.collect();
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(path);
            made.map_err(failed("mkdir"))?;
            for parent in missing.into_iter().filter_map(Path::parent) {
                Medium::System.sync_names(parent)?;
            }
        }
        let path = path.canonicalize().map_err(failed("realpath"))?;
        let name = path.join(LOCK);
        let failed = |call| {
            let name = &name;
            move |error| StorageError::io(name, call, &error)
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let lock = options.mode(0o600).open(&name).map_err(failed("open"))?;
        let mut lock = locked(lock, &path)?;
        lock.set_len(0).map_err(failed("truncate"))?;
        let text = format!("{}\n", std::process::id());
        lock.write_all(text.as_bytes()).map_err(failed("write"))?;
        Ok(Self {
            path,
            medium: Medium::System,
            _lock: Some(lock),
        })
    }

    /// The only directory of a simulated disk, by a name for messages.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(path: &Path, medium: Medium) -> Self {
        let path = path.to_owned();
        let _lock = None;
        Self {
            path,
            medium,
            _lock,
        }
    }

    /// Takes a directory for this process to read, and changes nothing in it.
    ///
    /// # Errors
    /// It is none, or another process has it.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self> {
        let failed = |call| move |error| StorageError::io(path, call, &error);
        fs::read_dir(path).map_err(failed("readdir"))?;
        let path = path.canonicalize().map_err(failed("realpath"))?;
        let name = path.join(LOCK);
        let _lock = match File::open(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(StorageError::io(&name, "open", &error)),
            Ok(lock) => Some(locked(lock, &path)?),
        };
        let medium = Medium::System;
        Ok(Self {
            path,
            medium,
            _lock,
        })
    }

    /// The path of a file, whether it is there or not.
    pub(crate) fn path_of(&self, kind: FileKind, generation: u64, shard: u16) -> PathBuf {
        self.path.join(name_of(kind, generation, shard))
    }

    /// True if a file is there.
    pub(crate) fn has(&self, kind: FileKind, generation: u64, shard: u16) -> bool {
        let path = self.path_of(kind, generation, shard);
        self.medium.exists(&path)
    }

    /// Bytes that a file has.
    ///
    /// # Errors
    /// It is not there, or the directory cannot be read.
    pub(crate) fn length(&self, path: &Path) -> Result<u64> {
        self.medium.length(path)
    }

    /// Opens a file to read it from its beginning.
    ///
    /// # Errors
    /// Those of [`FileReader::open`].
    pub(crate) fn reader(&self, path: &Path, key: Option<&EncryptionKey>) -> Result<FileReader> {
        FileReader::open_on(&self.medium, path, key)
    }

    /// Opens a file that was made to write it, with this many requests at once.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn disk(&self, path: &Path, depth: u16) -> Result<Box<dyn Disk + Send>> {
        self.medium.disk(path, depth)
    }

    /// Makes what a file holds survive a crash.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn sync_file(&self, path: &Path) -> Result<()> {
        self.medium.sync_file(path)
    }

    /// Makes files of one generation that are not there yet, empty ones, which are in the directory
    /// after a crash too. Their paths, in the order of the shards.
    ///
    /// # Errors
    /// One is there, or cannot be made.
    pub(crate) fn create(
        &self,
        kind: FileKind,
        generation: u64,
        shards: impl IntoIterator<Item = u16>,
    ) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for shard in shards {
            let path = self.path_of(kind, generation, shard);
            self.medium.create(&path)?;
            paths.push(path);
        }
        if !farcore_tuning::mutated!("created-not-synced") {
            self.medium.sync_names(&self.path)?;
        }
        Ok(paths)
    }

    /// The files that there are.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn files(&self) -> Result<Files> {
        let mut files = Files::default();
        for name in self.medium.names(&self.path)? {
            let Some((kind, generation, shard)) = named(&name) else {
                continue;
            };
            let of_kind = match kind {
                FileKind::Base => &mut files.bases,
                FileKind::Log => &mut files.logs,
            };
            of_kind.entry(generation).or_default().push(shard);
        }
        let shards = files.bases.values_mut().chain(files.logs.values_mut());
        shards.for_each(|shards| shards.sort_unstable());
        Ok(files)
    }

    /// What it holds: the manifest, and all files.
    ///
    /// # Errors
    /// The manifest cannot be read or is damaged, names a file that is missing or of another
    /// length, or is missing itself although there are files that come after it.
    pub(crate) fn stored(&self) -> Result<Stored> {
        let files = self.files()?;
        let manifest = self.manifest()?;
        let Some(manifest) = manifest else {
            self.check_first(&files)?;
            let manifest = None;
            return Ok(Stored { manifest, files });
        };
        self.check_logs(&manifest, &files)?;
        for (shard, file) in (0..).zip(&manifest.files) {
            let path = self.path_of(FileKind::Base, manifest.base, shard);
            let found = self.medium.length(&path)?;
            if found != file.bytes {
                let at = found.min(file.bytes);
                let reason = "it has another length than the manifest says";
                return Err(StorageError::Corrupt { path, at, reason });
            }
        }
        let manifest = Some(manifest);
        Ok(Stored { manifest, files })
    }

    /// Checks that the logs are there that a manifest names: those that its base goes on in, and
    /// the last ones.
    ///
    /// # Errors
    /// One is missing.
    pub(crate) fn check_logs(&self, manifest: &Manifest, files: &Files) -> Result<()> {
        let of_base: Vec<u16> = (0..).take(manifest.files.len()).collect();
        let has_base = manifest.base == 0 || files.logs.get(&manifest.base) == Some(&of_base);
        let has_last = manifest.log == 0 || files.logs.contains_key(&manifest.log);
        let missing = match (has_base, has_last) {
            (true, true) => return Ok(()),
            (false, _) => manifest.base,
            (true, false) => manifest.log,
        };
        let path = self.path_of(FileKind::Log, missing, 0);
        Err(StorageError::Missing { path })
    }

    /// Checks that without a manifest there are only logs of the first generation.
    ///
    /// # Errors
    /// There are others, so the manifest is missing.
    pub(crate) fn check_first(&self, files: &Files) -> Result<()> {
        let later = files.logs.iter().filter(|log| *log.0 != FIRST_GENERATION);
        let named = |kind, (generation, shards): (&u64, &Vec<u16>)| {
            let shard = shards.first().copied().unwrap_or_default();
            name_of(kind, *generation, shard)
        };
        let mut bases = files.bases.iter().map(|base| named(FileKind::Base, base));
        let mut logs = later.map(|log| named(FileKind::Log, log));
        let is_there = self.medium.exists(&self.path.join(MANIFEST_OLD));
        let old = is_there.then(|| MANIFEST_OLD.to_owned());
        let file = bases.next().or_else(|| logs.next()).or(old);
        let directory = self.path.clone();
        file.map_or(Ok(()), |file| {
            Err(StorageError::NoManifest { directory, file })
        })
    }

    /// The path of the manifest.
    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.path.join(MANIFEST)
    }

    /// The manifest, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(crate) fn manifest(&self) -> Result<Option<Manifest>> {
        self.manifest_at(MANIFEST)
    }

    /// All manifests that there are, the newest first: the one that counts, those of snapshots that
    /// are kept, and the one before.
    ///
    /// # Errors
    /// The directory cannot be read. A manifest that cannot be is an error in its place.
    pub(crate) fn manifests(&self) -> Result<Vec<Result<Manifest>>> {
        let mut kept = self.kept()?;
        kept.reverse();
        let kept = kept.into_iter().map(kept_name);
        let names = [MANIFEST.to_owned()].into_iter().chain(kept);
        let names = names.chain([MANIFEST_OLD.to_owned()]);
        let read = names.map(|name| self.manifest_at(&name));
        Ok(read.filter_map(Result::transpose).collect())
    }

    /// The generations of snapshots whose manifests are kept beside the one that counts, rising.
    fn kept(&self) -> Result<Vec<u64>> {
        let names = self.medium.names(&self.path)?;
        let generation = |name: &String| {
            let digits = name.strip_prefix(MANIFEST)?.strip_prefix('-')?;
            let generation = digits.parse().ok()?;
            (kept_name(generation) == *name).then_some(generation)
        };
        let mut kept: Vec<u64> = names.iter().filter_map(generation).collect();
        kept.sort_unstable();
        Ok(kept)
    }

    /// Keeps the manifest of a snapshot, with those of the `count - 1` snapshots before, and
    /// removes what only older ones need; returns how many files that were.
    ///
    /// # Errors
    /// A file cannot be written, or not removed.
    pub(crate) fn keep(&self, manifest: &Manifest, count: usize) -> Result<usize> {
        let name = self.path.join(kept_name(manifest.base));
        if count > 1 {
            self.write_text(&name, &manifest.text())?;
        }
        let kept = self.kept()?;
        let older = kept.len().saturating_sub(count.max(1));
        let first = if count > 1 { older } else { kept.len() };
        for &generation in &kept[..first] {
            self.medium.remove(&self.path.join(kept_name(generation)))?;
        }
        let oldest = kept.get(first).copied().unwrap_or(manifest.base);
        self.remove_before(oldest.min(manifest.base))
    }

    fn manifest_at(&self, name: &str) -> Result<Option<Manifest>> {
        let path = self.path.join(name);
        let Some(bytes) = self.medium.read_first(&path, MANIFEST_BYTES_MAX)? else {
            return Ok(None);
        };
        let damaged = |reason| StorageError::Manifest {
            path: path.clone(),
            reason,
        };
        let text = String::from_utf8(bytes).map_err(|_| damaged("it is no text".to_owned()))?;
        Manifest::parse(&text).map(Some).map_err(damaged)
    }

    /// Replaces the manifest, which is kept as the one before. The files that it names must be
    /// durable.
    ///
    /// # Errors
    /// It cannot be written. Then the manifest is the one before or this one, and whole.
    pub(crate) fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let path = self.path.join(MANIFEST);
        let old = self.path.join(MANIFEST_OLD);
        let temporary = self.path.join(format!("{MANIFEST}{TEMPORARY}"));
        self.write_text(&temporary, &manifest.text())?;
        if self.medium.exists(&path) {
            // A second name for the one that is, or a copy, so that it is there until the rename.
            self.medium.remove(&old)?;
            self.medium.link(&path, &old)?;
        }
        self.medium.rename(&temporary, &path)?;
        self.medium.sync_names(&self.path)
    }

    /// Writes a file that is whole, and has its name, once this returns.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write_text(&self, path: &Path, text: &str) -> Result<()> {
        self.medium.write_whole(path, text.as_bytes())?;
        self.medium.sync_names(path.parent().unwrap_or(&self.path))
    }

    /// Makes a folder in it, which is of the file system.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn make_folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| StorageError::io(&path, "mkdir", &error))?;
        self.medium.sync_names(&self.path)?;
        Ok(path)
    }

    /// Copies a file into a folder.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(crate) fn copy_into(&self, path: &Path, folder: &Path) -> Result<()> {
        let to = folder.join(path.file_name().unwrap_or_default());
        let copied = fs::copy(path, &to).and_then(|_| File::open(&to)?.sync_all());
        copied.map_err(|error| StorageError::io(&to, "copy", &error))?;
        self.medium.sync_names(folder)
    }

    /// Moves a file into a folder.
    ///
    /// # Errors
    /// It cannot be moved.
    pub(crate) fn move_into(&self, path: &Path, folder: &Path) -> Result<()> {
        let to = folder.join(path.file_name().unwrap_or_default());
        self.medium.rename(path, &to)?;
        self.medium.sync_names(folder)?;
        self.medium.sync_names(&self.path)
    }

    /// Cuts the end of a file off.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn cut(&self, path: &Path, bytes: u64) -> Result<()> {
        let file = OpenOptions::new().write(true).open(path);
        let cut = file.and_then(|file| {
            file.set_len(bytes)?;
            file.sync_all()
        });
        cut.map_err(|error| StorageError::io(path, "truncate", &error))
    }

    /// Removes what only generations before this one need, but nothing that the manifest does;
    /// returns how many files that were.
    ///
    /// # Errors
    /// The manifest cannot be read, or a file not removed.
    pub(crate) fn remove_before(&self, generation: u64) -> Result<usize> {
        let base = self.manifest()?.map_or(0, |manifest| manifest.base);
        let generation = match farcore_tuning::mutated!("removed-before-manifest") {
            true => generation,
            false => generation.min(base),
        };
        self.remove(|_, of| of < generation)
    }

    /// Removes what a process left that ended early: temporary files, and files of bases that the
    /// manifest has never named. Returns how many files that were.
    ///
    /// # Errors
    /// The manifest cannot be read, or a file not removed.
    pub(crate) fn remove_leftovers(&self) -> Result<usize> {
        let Some(Manifest { base, .. }) = self.manifest()? else {
            return Ok(0);
        };
        let mut count = 0;
        for name in self.medium.names(&self.path)? {
            if name == format!("{MANIFEST}{TEMPORARY}") {
                self.medium.remove(&self.path.join(name))?;
                count += 1;
            }
        }
        let removed = self.remove(|kind, of| kind == FileKind::Base && of > base)?;
        Ok(count + removed)
    }

    fn remove(&self, is_old: impl Fn(FileKind, u64) -> bool) -> Result<usize> {
        let mut count = 0;
        for name in self.medium.names(&self.path)? {
            if named(&name).is_some_and(|(kind, generation, _)| is_old(kind, generation)) {
                self.medium.remove(&self.path.join(name))?;
                count += 1;
            }
        }
        if count > 0 {
            self.medium.sync_names(&self.path)?;
        }
        Ok(count)
    }
}

/// Locks a directory's file.
fn locked(mut lock: File, directory: &Path) -> Result<File> {
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            let read = Read::by_ref(&mut lock).take(32).read_to_string(&mut text);
            let pid = read.ok().and_then(|_| text.trim().parse().ok());
            let directory = directory.to_owned();
            Err(StorageError::Locked { directory, pid })
        }
        Err(fs::TryLockError::Error(error)) => {
            Err(StorageError::io(&directory.join(LOCK), "flock", &error))
        }
    }
}
