//! Makes a damaged data directory one that an engine opens, with as much as can be had, and says
//! what is lost.
//!
//! ```text
//! snapshot:  the newest one whose manifest and files are whole
//! logs since: whole | first damage: cut there, to the last moment of all its files | set aside
//! ```
//!
//! What follows a damage is left out although it can be read: a delete that is missing would bring
//! a key back, and a step of a tree is a change of the nodes before it.
//!
//! - I1: nothing is destroyed: what is changed or left out lies in a folder of its own.
//! - I2: an engine opens with what all shards held at one moment, before the damage.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::log_ends::{Ends, Until, common_end};
use super::log_sequence::{Files, LogSequence, check_name};
use super::steps::{Steps, entries};
use crate::cipher::{EncryptionKey, random_salt};
use crate::error::{Result, StorageError};
use crate::journal::EntryBody;
use crate::storage::{Directory, FileKind, Manifest};

/// Lost keys that are named, at most.
const NAMED_KEYS_MAX: usize = 1_000_000;
/// The file in the folder of what was set aside that names lost keys.
const LOST: &str = "LOST";

/// What was done to a damaged data directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Salvage {
    /// What was found damaged or missing, in the order of the files. Nothing was done if it is
    /// empty.
    pub damage: Vec<StorageError>,
    /// When the snapshot was completed that the directory begins with now, in milliseconds since
    /// 1970; 0 if there is none.
    pub snapshot_unix_ms: u64,
    /// The folder with all that was changed or left out, as it was. Its file `LOST` names the keys
    /// whose last changes are lost, one a line, as far as they can be read.
    pub set_aside: Option<PathBuf>,
    /// Keys that it names.
    pub lost_keys: u64,
    /// Bytes that cannot be read: which keys they were of is not known, and neither is it of files
    /// that are missing or shorter than they were.
    pub unreadable_bytes: u64,
}

/// A log that is cut.
#[derive(Debug)]
struct Cut {
    generation: u64,
    shard: u16,
    /// Bytes that stay.
    at: u64,
}

/// What is to be done.
#[derive(Debug, Default)]
struct Work {
    cuts: Vec<Cut>,
    /// Files that are set aside.
    left: Vec<PathBuf>,
    /// The last generation of logs that stays, and the shards of it.
    last: Option<(u64, Vec<u16>)>,
}

/// What a log has, as far as it can be read.
struct ReadLog {
    damage: Option<StorageError>,
    /// Where the last whole block ends.
    at: u64,
    /// Where it ends, `None` if it was finished; nothing if it was not begun.
    end: Option<Option<u64>>,
}

impl Salvage {
    /// Mends a directory that no engine has open; `key` is that of the engine that wrote it.
    /// Blocks. Cost: the files are read once, the last of them three times.
    ///
    /// # Errors
    /// It is no directory, another process has it, its files cannot be written, or no snapshot is
    /// whole: then nothing is changed.
    pub fn run(directory: &Path, key: Option<&EncryptionKey>) -> Result<Self> {
        let path = directory;
        let directory = Directory::open_to_read(path)?;
        let mut salvage = Self::default();
        let manifest = salvage.choose(&directory, key)?;
        let mut work = Work::default();
        salvage.survey(&directory, key, &manifest, &mut work)?;
        if manifest.base > 0 {
            salvage.snapshot_unix_ms = manifest.unix_ms;
        }
        let is_there = matches!(directory.manifest(), Ok(Some(_)));
        if salvage.damage.is_empty() && !is_there && manifest != Manifest::default() {
            let path = directory.manifest_path();
            salvage.damage.push(StorageError::Missing { path });
        }
        if salvage.damage.is_empty() {
            return Ok(salvage);
        }
        // Only now is anything written in it.
        drop(directory);
        let directory = Directory::open(path)?;
        salvage.carry_out(&directory, key, manifest, &work)?;
        Ok(salvage)
    }

    /// Finds the newest manifest whose snapshot is whole.
    fn choose(&mut self, directory: &Directory, key: Option<&EncryptionKey>) -> Result<Manifest> {
        let mut failed = None;
        for manifest in directory.manifests()? {
            let whole = manifest.and_then(|manifest| {
                check_base(directory, key, &manifest)?;
                Ok(manifest)
            });
            match whole {
                Ok(manifest) => {
                    self.damage.extend(failed);
                    return Ok(manifest);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error.into()),
            // Logs of a first generation alone are a store too.
            None => {
                directory.check_first(&directory.files()?)?;
                Ok(Manifest::default())
            }
        }
    }

    /// Reads the logs since the snapshot.
    fn survey(
        &mut self,
        directory: &Directory,
        key: Option<&EncryptionKey>,
        manifest: &Manifest,
        work: &mut Work,
    ) -> Result<()> {
        let files = directory.files()?;
        let base = manifest.base;
        for (&generation, shards) in &files.bases {
            if generation > base {
                let path = |&shard| directory.path_of(FileKind::Base, generation, shard);
                work.left.extend(shards.iter().map(path));
            }
        }
        let (mut sequence, mut is_over) = (LogSequence::default(), false);
        // Behind where the logs end that were read last.
        let mut behind_bytes = 0;
        if base > 0 {
            let first = directory.path_of(FileKind::Base, base, 0);
            sequence.begin(directory.reader(&first, key)?.super_block());
        }
        let of_base: Vec<u16> = (0..).take(manifest.files.len()).collect();
        if base > 0 && files.logs.get(&base) != Some(&of_base) {
            let path = directory.path_of(FileKind::Log, base, 0);
            self.damage.push(StorageError::Missing { path });
            is_over = true;
        }
        for (&generation, shards) in files.logs.range(base..) {
            let path = |&shard: &u16| directory.path_of(FileKind::Log, generation, shard);
            if is_over {
                work.left.extend(shards.iter().map(path));
                continue;
            }
            match sequence.goes_on((directory, key), base, (generation, shards)) {
                Ok(true) => {}
                // Of a snapshot that was not completed, or behind what is damaged: an engine passes
                // it over, and its next snapshot would remove it.
                Ok(false) => {
                    work.left.extend(shards.iter().map(path));
                    continue;
                }
                Err(error @ (StorageError::Missing { .. } | StorageError::Shorter { .. })) => {
                    if matches!(error, StorageError::Shorter { .. }) {
                        self.unreadable_bytes += behind_bytes;
                    }
                    self.damage.push(error);
                    is_over = true;
                    work.left.extend(shards.iter().map(path));
                    continue;
                }
                // A file of it cannot be opened, which is found again below.
                Err(_) => {}
            }
            let unbroken = sequence.unbroken(shards);
            let of = (generation, &shards[..], &unbroken[..]);
            let ends;
            (ends, behind_bytes) = self.survey_logs((directory, key), of, work);
            is_over = !work.cuts.is_empty();
            // How far damaged ones are loaded is known once they are cut; nothing follows them.
            let until = match is_over {
                true => Until::Start,
                false => common_end(directory, key, (generation, &unbroken))?,
            };
            sequence.add((directory, key), (generation, shards), (until, &ends));
            work.last = Some((generation, unbroken));
        }
        if manifest.log > work.last.as_ref().map_or(0, |last| last.0) && !is_over {
            let path = directory.path_of(FileKind::Log, manifest.log, 0);
            if !path.exists() {
                self.damage.push(StorageError::Missing { path });
            }
        }
        Ok(())
    }

    /// Reads the logs of a generation. Where those end that are loaded, and the bytes behind.
    fn survey_logs(
        &mut self,
        (directory, key): Files<'_>,
        (generation, shards, unbroken): (u64, &[u16], &[u16]),
        work: &mut Work,
    ) -> (Ends, u64) {
        let (mut ends, mut behind_bytes) = (Ends::new(), 0);
        for &shard in shards {
            let read = read_log(directory, key, (generation, shard));
            if let Some(end) = read.end.filter(|_| unbroken.contains(&shard)) {
                ends.insert(shard, end);
            }
            let path = directory.path_of(FileKind::Log, generation, shard);
            let behind = directory.length(&path).unwrap_or(0).saturating_sub(read.at);
            if read.end.flatten().is_some() {
                behind_bytes += behind;
            }
            if let Some(error) = read.damage {
                self.unreadable_bytes += behind;
                self.damage.push(error);
                let at = read.at;
                work.cuts.push(Cut {
                    generation,
                    shard,
                    at,
                });
            }
        }
        (ends, behind_bytes)
    }

    fn carry_out(
        &mut self,
        directory: &Directory,
        key: Option<&EncryptionKey>,
        mut manifest: Manifest,
        work: &Work,
    ) -> Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ms = since.map_or(0, |since| since.as_millis());
        let folder = directory.make_folder(&format!("set-aside-{unix_ms}"))?;
        let mut lost = LostKeys::default();
        for cut in &work.cuts {
            let path = directory.path_of(FileKind::Log, cut.generation, cut.shard);
            directory.copy_into(&path, &folder)?;
            directory.cut(&path, cut.at)?;
        }
        if let (false, Some((generation, shards))) = (work.cuts.is_empty(), &work.last) {
            let until = common_end(directory, key, (*generation, shards))?;
            for &shard in shards {
                lost.add_behind(directory, key, (*generation, shard), until);
            }
        }
        for path in &work.left {
            lost.add_all(directory, path, key);
            directory.move_into(path, &folder)?;
        }
        if manifest.base > 0 && work.last.is_none() {
            let shards = (0..).take(manifest.files.len());
            directory.create(FileKind::Log, manifest.base, shards)?;
        }
        manifest.log = work.last.as_ref().map_or(manifest.base, |last| last.0);
        if manifest.engine == Manifest::default().engine {
            manifest.engine = random_salt()?;
        }
        directory.write_text(&folder.join(LOST), &lost.text())?;
        directory.write_manifest(&manifest)?;
        self.lost_keys = lost.0.len() as u64;
        self.set_aside = Some(folder);
        Ok(())
    }
}

/// Reads the files of a snapshot.
fn check_base(
    directory: &Directory,
    key: Option<&EncryptionKey>,
    manifest: &Manifest,
) -> std::result::Result<(), StorageError> {
    for (shard, file) in (0..).zip(&manifest.files) {
        let path = directory.path_of(FileKind::Base, manifest.base, shard);
        let reader = directory.reader(&path, key)?;
        check_name(&reader, (FileKind::Base, manifest.base, shard), &path)?;
        let mut steps = Steps::new(reader, &path);
        while steps.next()?.is_some() {}
        if steps.reader().chain() != file.chain {
            let reason = "it is not the file that the manifest names";
            return Err(StorageError::Corrupt {
                path,
                at: 0,
                reason,
            });
        }
    }
    Ok(())
}

/// Reads a log as far as it is whole.
fn read_log(
    directory: &Directory,
    key: Option<&EncryptionKey>,
    (generation, shard): (u64, u16),
) -> ReadLog {
    let path = directory.path_of(FileKind::Log, generation, shard);
    let opened = directory.reader(&path, key).and_then(|reader| {
        check_name(&reader, (FileKind::Log, generation, shard), &path)?;
        Ok(reader)
    });
    let reader = match opened {
        Ok(reader) => reader,
        Err(error) => {
            let is_new = matches!(error, StorageError::NotBegun { .. });
            return ReadLog {
                damage: Some(error).filter(|_| !is_new),
                at: 0,
                end: None,
            };
        }
    };
    let mut steps = Steps::new(reader, &path);
    let damage = loop {
        match steps.next() {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    ReadLog {
        end: match damage {
            None => Some(steps.torn_at()),
            Some(_) => Some(Some(steps.block_at())),
        },
        damage,
        at: steps.block_at(),
    }
}

/// Keys whose last changes are lost.
#[derive(Default)]
struct LostKeys(HashSet<Vec<u8>>);

impl LostKeys {
    fn add(&mut self, key: &[u8]) {
        if !key.is_empty() && self.0.len() < NAMED_KEYS_MAX {
            self.0.insert(key.to_vec());
        }
    }

    /// Adds those of a file that is left out, as far as it can be read. A snapshot is none: the one
    /// before, with its logs, has the same keys.
    fn add_all(&mut self, directory: &Directory, path: &Path, key: Option<&EncryptionKey>) {
        let Ok(reader) = directory.reader(path, key) else {
            return;
        };
        if reader.super_block().kind == FileKind::Base {
            return;
        }
        let mut steps = Steps::new(reader, path);
        while let Ok(Some((_, bytes))) = steps.next() {
            entries(bytes).for_each(|(entry, _)| self.add(entry.key));
        }
    }

    /// Adds those of a log behind a moment.
    fn add_behind(
        &mut self,
        directory: &Directory,
        key: Option<&EncryptionKey>,
        (generation, shard): (u64, u16),
        until: Until,
    ) {
        let path = directory.path_of(FileKind::Log, generation, shard);
        let Ok(reader) = directory.reader(&path, key) else {
            return;
        };
        let (mut steps, mut is_behind) = (Steps::new(reader, &path), until == Until::Start);
        while let Ok(Some((_, bytes))) = steps.next() {
            for (entry, body) in entries(bytes) {
                if is_behind {
                    self.add(entry.key);
                } else if let EntryBody::Mark { number } = body {
                    is_behind = until == Until::Mark(number);
                }
            }
        }
    }

    /// One key a line, with bytes that are no text escaped.
    fn text(&self) -> String {
        let mut keys: Vec<_> = self.0.iter().collect();
        keys.sort_unstable();
        let mut text = String::new();
        for key in keys {
            // Text takes whatever is written.
            let _ = writeln!(text, "{}", key.escape_ascii());
        }
        text
    }
}
