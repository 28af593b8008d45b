//! Which logs of a data directory go on where those before end, as their super blocks say.
//!
//! Where answers wait for the disk, the logs of a process are rows of their own, one a shard: what
//! one shard has answered is in its log, however far another one's is. Else all of them are loaded
//! as far as the first one goes.
//!
//! - I1: logs are of a store only if each generation of them goes on where the one before ends. One
//!   that is missing between them is an error.
//! - I2: a log that was not finished may end anywhere, so damage of its end looks like its end. The
//!   first logs of a process have a digest of where all those before ended as it loaded them, and
//!   are loaded only behind the same ends.

use std::collections::BTreeSet;
use std::path::Path;

use super::log_ends::{Ends, Until, digest_of, keeps_all};
use crate::cipher::EncryptionKey;
use crate::error::StorageError;
use crate::storage::{Directory, FileKind, FileReader, SuperBlock};

/// A directory, and the key of its files.
pub(super) type Files<'a> = (&'a Directory, Option<&'a EncryptionKey>);

/// Where a super block's free area names the process that wrote the log.
pub(super) const RUN: std::ops::Range<usize> = 24..32;

/// Where it has which base's logs were loaded before the log was begun, and the digest of their
/// ends; zeros if none were.
pub(super) const ENDS: std::ops::Range<usize> = 32..48;

/// The process that wrote a file.
fn run_of(of: &SuperBlock) -> [u8; 8] {
    of.free[RUN].first_chunk().copied().unwrap_or_default()
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
    /// The digest of the ends of all logs since the base; zero if there are none, or this process
    /// has added some.
    ends: u64,
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
                    let goes_on = match follows {
                        _ if generation == base => true,
                        Follows::Unknown => false,
                        Follows::Nothing => base == 0 && self.last.is_none(),
                        // In the logs of one process none is missing before another.
                        Follows::Generation(before) => {
                            let is_one_row = farcore_tuning::mutated!("rows-end-together");
                            let is_whole = self.broken.is_empty() || keeps_all(of) && !is_one_row;
                            self.last == Some(before) && is_whole
                        }
                    };
                    // One before that seems not to have been begun is missed here too.
                    if let Follows::Generation(before) = follows
                        && self.are_shorter(of, base)
                    {
                        let path = directory.path_of(FileKind::Log, before, shard);
                        return Err(StorageError::Shorter { path });
                    }
                    return Ok(goes_on);
                }
                Err(StorageError::NotBegun { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // None of them holds anything. What follows the base's own log goes on from the base.
        Ok(generation == base && base > 0)
    }

    /// True if the logs so far do not end where they did when a log was begun.
    fn are_shorter(&self, of: &SuperBlock, base: u64) -> bool {
        let noted = &of.free[ENDS];
        let word = |at: usize| {
            noted[at..]
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word))
        };
        let (of_base, ends) = (word(0), word(8));
        let is_noted = ends != 0 && of_base == base;
        is_noted && ends != self.ends
    }

    /// What the next log notes of the ends of those before. Only the first of a process does: the
    /// others go on where this process ends the one before.
    pub(super) fn noted_ends(&self, base: u64) -> [u8; 16] {
        let mut noted = [0; 16];
        if self.ends != 0 {
            noted[..8].copy_from_slice(&base.to_le_bytes());
            noted[8..].copy_from_slice(&self.ends.to_le_bytes());
        }
        noted
    }

    /// This process has begun logs; those of a snapshot alone are none that others go on from.
    pub(super) fn go_on(&mut self, generation: Option<u64>) {
        (self.last, self.ends) = (generation, 0);
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

    /// Adds the logs of a generation, how far they are loaded, and where they end.
    pub(super) fn add(
        &mut self,
        (directory, key): Files<'_>,
        (generation, shards): (u64, &[u16]),
        (until, ends): (Until, &Ends),
    ) {
        let mut run = self.run;
        let unfinished = ends.iter().filter(|(_, at)| at.is_some());
        self.broken.extend(unfinished.map(|(shard, _)| shard));
        self.ends = digest_of(self.ends, generation, (until, ends));
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
