//! Which logs of a data directory go on where those before end, as their super blocks say.
//!
//! - I1: logs are of a store only if each generation of them goes on where the one before ends. One
//!   that is missing between them is an error.

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
    /// The process of these logs, and whether they were finished.
    before: Option<([u8; 8], bool)>,
}

impl LogSequence {
    /// True if the logs of a generation go on where those before end. Those of a snapshot that was
    /// not completed, without a log before it, do not.
    ///
    /// # Errors
    /// One of them is missing, damaged, or not the one that its name says.
    pub(super) fn goes_on(
        &self,
        (directory, key): Files<'_>,
        base: u64,
        (generation, shards): (u64, &[u16]),
    ) -> Result<bool, StorageError> {
        for &shard in shards {
            let path = directory.path_of(FileKind::Log, generation, shard);
            match FileReader::open(&path, key) {
                Ok(reader) => {
                    check_name(&reader, (FileKind::Log, generation, shard), &path)?;
                    let of = reader.super_block();
                    if of.shards as usize != shards.len() {
                        return Err(StorageError::Missing { path });
                    }
                    let follows = Follows::of(of);
                    if let Follows::Generation(before) = follows
                        && generation > base
                        && !directory.path_of(FileKind::Log, before, 0).exists()
                    {
                        let path = directory.path_of(FileKind::Log, before, 0);
                        return Err(StorageError::Missing { path });
                    }
                    return Ok(match follows {
                        _ if generation == base => true,
                        Follows::Unknown => false,
                        Follows::Nothing => base == 0 && self.last.is_none(),
                        // In the logs of one process none is missing before another.
                        Follows::Generation(before) => {
                            let is_whole = self
                                .before
                                .is_none_or(|(run, is_whole)| is_whole || run != of.free[RUN]);
                            self.last == Some(before) && is_whole
                        }
                    });
                }
                Err(StorageError::NotBegun { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // None of them holds anything.
        Ok(false)
    }

    /// Adds the logs of a generation; whether all that were begun were finished.
    pub(super) fn add(
        &mut self,
        (directory, key): Files<'_>,
        (generation, shards): (u64, &[u16]),
        is_finished: bool,
    ) {
        let (mut run, mut is_whole) = ([0; 8], is_finished);
        for &shard in shards {
            match FileReader::open(&directory.path_of(FileKind::Log, generation, shard), key) {
                Ok(reader) => run.copy_from_slice(&reader.super_block().free[RUN]),
                Err(_) => is_whole = false,
            }
        }
        self.last = Some(generation);
        self.before = Some((run, is_whole));
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
