//! How far the logs of a generation are loaded, and where they end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::steps::{Steps, entries};
use super::waits::Beside;
use crate::cipher::EncryptionKey;
use crate::error::{Error, Result, StorageError};
use crate::journal::EntryBody;
use crate::storage::{Directory, FileKind, FileReader, SuperBlock};

/// Where a super block's free area says that each answer that was given is in the log.
pub(super) const KEEPS_ALL_AT: usize = 16;

/// Where the logs of a generation end that are loaded, by their shards: `None` if one was finished.
pub(super) type Ends = BTreeMap<u16, Option<u64>>;

/// True if a log has all that was answered.
pub(super) fn keeps_all(of: &SuperBlock) -> bool {
    of.free[KEEPS_ALL_AT] != 0
}

/// How far a file is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// Nothing of it.
    Start,
    /// Until a mark.
    Mark(u64),
    /// All of it.
    End,
}

impl Until {
    /// How far the logs of a generation can be loaded, so that all end at one moment: to their ends
    /// if all were finished, else to the last mark that all of them have.
    pub(super) fn common(logs: &[LogMarks]) -> Self {
        if logs.iter().all(|log| log.is_finished) {
            return Self::End;
        }
        let Some((first, others)) = logs.split_first() else {
            return Self::End;
        };
        let mut marks = first.marks.iter().rev();
        let common = marks.find(|number| others.iter().all(|log| log.marks.contains(number)));
        common.map_or(Self::Start, |&number| Self::Mark(number))
    }
}

/// The marks of a log. A shard leaves one out if it was not at rest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LogMarks {
    marks: BTreeSet<u64>,
    /// It was read to its end, and that was written as such.
    is_finished: bool,
}

/// Reads a log to its end: its marks.
///
/// # Errors
/// It cannot be read, or is damaged.
fn marks_of(reader: FileReader, path: &Path) -> Result<LogMarks> {
    let (mut steps, mut log) = (Steps::new(reader, path), LogMarks::default());
    while let Some((_, bytes)) = steps.next()? {
        for (_, body) in entries(bytes) {
            if let EntryBody::Mark { number } = body {
                log.marks.insert(number);
            }
        }
    }
    log.is_finished = steps.is_finished();
    Ok(log)
}

/// How far the logs of a generation are loaded: to where all of them were at one moment, unless
/// each answer that was given must be found in them.
///
/// # Errors
/// One cannot be read, or is damaged.
pub(super) fn common_end(
    directory: &Directory,
    key: Option<&EncryptionKey>,
    (generation, shards): (u64, &[u16]),
) -> Result<Until> {
    if shards.len() == 1 {
        return Ok(Until::End);
    }
    let mut ends = Vec::new();
    for &shard in shards {
        let path = directory.path_of(FileKind::Log, generation, shard);
        match directory.reader(&path, key) {
            Ok(reader)
                if keeps_all(reader.super_block()) || farcore_tuning::mutated!("marks-ignored") =>
            {
                return Ok(Until::End);
            }
            Ok(reader) => ends.push(Beside::start(move || marks_of(reader, &path))),
            Err(StorageError::NotBegun { .. }) => {
                ends.push(Beside::start(|| Ok(LogMarks::default())));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let ends = ends
        .into_iter()
        .map(|end| end.join().unwrap_or(Err(Error::Closed)));
    Ok(Until::common(&ends.collect::<Result<Vec<_>>>()?))
}

/// The digest of ends, with those of a generation more.
pub(super) fn digest_of(before: u64, generation: u64, (until, ends): (Until, &Ends)) -> u64 {
    let mut digest = Xxh3::new();
    let mut add = |word: u64| digest.update(&word.to_le_bytes());
    add(before);
    add(generation);
    match until {
        Until::Start => add(0),
        Until::Mark(number) => [1, number].into_iter().for_each(add),
        Until::End => {
            add(2);
            for (&shard, &at) in ends {
                let words = [u64::from(shard), at.map_or(0, |at| at + 1)];
                words.into_iter().for_each(&mut add);
            }
        }
    }
    digest.digest().max(1)
}
