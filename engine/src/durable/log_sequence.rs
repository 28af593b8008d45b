//! Which logs of a data directory go on where those before end, as their super blocks say.
//!
//! Where answers wait for the disk, the logs of a process are rows of their own, one a shard: what
//! one shard has answered is in its log, however far another one's is. Else all of them are loaded
//! as far as the first one goes.
//!
//! - I1: logs are of a store only if each generation of them goes on where the one before ends. One
//!   that is missing between them is an error.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cipher::EncryptionKey;
use crate::error::StorageError;
use crate::storage::{Directory, FileKind, FileReader, SuperBlock};

/// A directory, and the key of its files.
pub(super) type Files<'a> = (&'a Directory, Option<&'a EncryptionKey>);

/// Where a super block's free area says that each answer that was given is in the log.
pub(super) const KEEPS_ALL_AT: usize = 16;

/// Where it names the process that wrote the log.
pub(super) const RUN: std::ops::Range<usize> = 24..32;

/// The process that wrote a file.
fn run_of(of: &SuperBlock) -> [u8; 8] {
    of.free[RUN].first_chunk().copied().unwrap_or_default()
}

/// True if a log has all that was answered.
pub(super) fn keeps_all(of: &SuperBlock) -> bool {
    of.free[KEEPS_ALL_AT] != 0
}

/// What a log goes on from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Follows {
    /// What was not logged: without its base it says nothing.
    Unknown,
    /// A store without keys.
    Nothing,
    /// The logs of a generation.
    Generation(u64),
}

impl Follows {
    /// Where a super block's free area has it.
    pub(super) const AT: std::ops::Range<usize> = 8..16;

    fn of(of: &SuperBlock) -> Self {
        let code = of.free[Self::AT].first_chunk();
        match code.map_or(0, |code| u64::from_le_bytes(*code)) {
            0 => Self::Unknown,
            1 => Self::Nothing,
            code => Self::Generation(code - 2),
        }
    }

    pub(super) fn code(self) -> [u8; 8] {
        let code = match self {
            Self::Unknown => 0,
            Self::Nothing => 1,
            Self::Generation(before) => before + 2,
        };
        code.to_le_bytes()
    }
}

/// The logs of a store so far.
#[derive(Debug, Default)]
pub(super) struct LogSequence {
    /// The generation whose logs end where the next one's begin, if there is one.
    pub(super) last: Option<u64>,
    /// The process of these logs.
    run: Option<[u8; 8]>,
    /// Its shards of which a log was not finished: what follows of them holds nothing that counts.
    broken: BTreeSet<u16>,
}

impl LogSequence {
    /// True if the logs of a generation go on where those before end. Those of a snapshot that was
    /// not completed, without a log before it, do not.
    ///
    /// # Errors
    /// One of them is missing, damaged, or not the one that its name says.
    pub(super) fn goes_on(
        &mut self,
        (directory, key): Files<'_>,
        base: u64,
        (generation, shards): (u64, &[u16]),
    ) -> Result<bool, StorageError> {
        for &shard in shards {
            let path = directory.path_of(FileKind::Log, generation, shard);
            match directory.reader(&path, key) {
                Ok(reader) => {
                    check_name(&reader, (FileKind::Log, generation, shard), &path)?;
                    let of = reader.super_block();
                    if of.shards as usize != shards.len() {
                        return Err(StorageError::Missing { path });
                    }
                    let follows = Follows::of(of);
                    if let Follows::Generation(before) = follows
                        && generation > base
                        && !directory.has(FileKind::Log, before, 0)
                    {
                        let path = directory.path_of(FileKind::Log, before, 0);
                        return Err(StorageError::Missing { path });
                    }
                    if self.run.is_none_or(|run| run != of.free[RUN]) {
                        self.broken.clear();
                    }
                    return Ok(match follows {
                        _ if generation == base => true,
                        Follows::Unknown => false,
                        Follows::Nothing => base == 0 && self.last.is_none(),
                        // In the logs of one process none is missing before another.
                        Follows::Generation(before) => {
                            let is_one_row = farcore_tuning::mutated!("rows-end-together");
                            let is_whole = self.broken.is_empty() || keeps_all(of) && !is_one_row;
                            self.last == Some(before) && is_whole
                        }
                    });
                }
                Err(StorageError::NotBegun { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // None of them holds anything. What follows the base's own log goes on from the base.
        Ok(generation == base && base > 0)
    }

    /// Begins with a base: the process that wrote it.
    pub(super) fn begin(&mut self, base: &SuperBlock) {
        self.run = Some(run_of(base));
    }

    /// The shards of a generation that goes on whose own logs go on.
    pub(super) fn unbroken(&self, shards: &[u16]) -> Vec<u16> {
        let is_broken = |shard: &u16| self.broken.contains(shard);
        let unbroken = shards.iter().filter(|shard| !is_broken(shard));
        unbroken.copied().collect()
    }

    /// Adds the logs of a generation; those of them that were not finished.
    pub(super) fn add(
        &mut self,
        (directory, key): Files<'_>,
        (generation, shards): (u64, &[u16]),
        unfinished: &BTreeSet<u16>,
    ) {
        let mut run = self.run;
        self.broken.extend(unfinished);
        for &shard in shards {
            match directory.reader(&directory.path_of(FileKind::Log, generation, shard), key) {
                Ok(reader) => run = Some(run_of(reader.super_block())),
                Err(_) => drop(self.broken.insert(shard)),
            }
        }
        self.last = Some(generation);
        self.run = run;
    }
}

/// Checks that a file is the one that its name says.
///
/// # Errors
/// It is another one.
pub(super) fn check_name(
    reader: &FileReader,
    named: (FileKind, u64, u16),
    path: &Path,
) -> Result<(), StorageError> {
    let of = reader.super_block();
    if (of.kind, of.generation, of.shard) == named {
        return Ok(());
    }
    Err(StorageError::Corrupt {
        path: path.to_owned(),
        at: 0,
        reason: "it is another file than its name says",
    })
}
