//! Replays cache traces. A file is compiled into one script a thread before anything is timed.
//!
//! - [`entry`]: one request as a file states it, and why a line is skipped
//! - [`csv`], [`oracle`]: the two formats; [`source`]: a file of either, plain or compressed;
//!   [`input`]: a file or standard input; `packing`: the compressions; `foreign`: what is no trace
//! - [`loader`]: compiles scripts; [`script`]: one thread's requests and their outcomes;
//!   [`summary`]: what a file holds
//! - [`replay`]: a script as a load; `puts`: what a key may hold after an error; `lives`: when a
//!   key may have expired
//! - [`made`]: traces that are made rather than recorded
//!
//! A key belongs to one thread, by its hash, and an engine keeps the order of requests on a key. So
//! the outcome of every request is known beforehand: hits, misses and every byte of every value are
//! the same for each engine, and all are verified.
//!
//! How operations of a trace map to requests:
//!
//! | trace | requests |
//! |---|---|
//! | `get`, `gets`, every oracleGeneral record | a get; after a miss, with [`OnMiss::Fill`], a put of the stated size unless that is 0 |
//! | `set`, `add`, `replace`, `cas` | a put of the stated size: a trace does not say whether the condition held |
//! | `append`, `prepend` | a get; after a hit, a put of the old length plus the stated one |
//! | `incr`, `decr` | a get; after a hit, a put of the same length |
//! | `delete` | a delete |
//! | `touch` | sets the expiry of a key that exists; a get of another, or if times to live are not applied |
//! | `gat`, `gats` | the same, and reads the value |
//!
//! Times are not applied: requests follow each other as fast as they are answered. Times to live
//! are applied on request, and count from the moment of the replayed request.
//!
//! Sources: <https://github.com/twitter/cache-trace> (README),
//! <https://github.com/cacheMon/libCacheSim> (`oracleGeneralBin.h`).

pub mod csv;
pub mod entry;
mod foreign;
pub mod input;
mod lives;
pub mod loader;
pub mod made;
pub mod oracle;
mod packing;
mod puts;
pub mod replay;
pub mod script;
pub mod source;
pub mod summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use farcore::constants::VALUE_BYTES_MAX;
use serde::{Deserialize, Serialize};

pub use self::input::Input;
pub use self::loader::OnMiss;
pub use self::script::Script;
pub use self::source::Format;
pub use self::summary::Summary;
use loader::Loader;
use source::Source;

/// Which part of which trace is replayed, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceOptions {
    /// The file.
    pub file: PathBuf,
    /// Whether the file is a copy of standard input.
    #[serde(default)]
    pub is_stdin: bool,
    /// Its format; `None` to detect it from the contents.
    pub format: Option<Format>,
    /// Most requests read from it; `None` for all.
    pub limit: Option<u64>,
    /// Longer values are cut to this length, in bytes.
    pub value_bytes_max: u32,
    /// What follows a get that misses.
    pub on_miss: OnMiss,
    /// The share of each time to live that is applied, in thousandths; `None` if none is applied.
    #[serde(default)]
    pub lifetimes_per_mille: Option<u64>,
    /// Memory for the scripts of all threads, in bytes. Reading ends when it is used up, give or
    /// take an eighth.
    pub memory_bytes_max: u64,
}

impl TraceOptions {
    /// All of a file within a memory limit, with values up to the longest allowed and misses
    /// filled.
    #[must_use]
    pub fn new(file: &Path, memory_bytes_max: u64) -> Self {
        Self {
            file: file.to_owned(),
            is_stdin: false,
            format: None,
            limit: None,
            value_bytes_max: u32::try_from(VALUE_BYTES_MAX).unwrap_or(u32::MAX),
            on_miss: OnMiss::Fill,
            lifetimes_per_mille: None,
            memory_bytes_max,
        }
    }

    /// The trace as people know it.
    #[must_use]
    pub fn name(&self) -> String {
        if self.is_stdin {
            return "standard input".to_owned();
        }
        self.file.display().to_string()
    }
}

/// A trace to replay, and what its file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Which part of it, and how.
    #[serde(rename = "wish")]
    pub options: TraceOptions,
    /// What it holds, for the plan's threads and seed.
    pub summary: Summary,
}

/// Reads a trace once and summarises it for a number of threads and a seed. Cost: one pass over the
/// file, and memory up to the limit of the options.
///
/// The plan's `keys_per_core` should be [`keys_per_core`] of the summary; its values must fit the
/// engine (see `Config::value_bytes_max` of `farcore`).
///
/// # Errors
/// The file cannot be read, or holds no request that can be replayed.
pub fn choose(options: TraceOptions, threads: u64, seed: u64) -> anyhow::Result<Choice> {
    let (summary, _) = read(&options, threads, seed)?;
    Ok(Choice { options, summary })
}

/// Keys of each thread: an even share, rounded up.
#[must_use]
pub fn keys_per_core(summary: &Summary, threads: u64) -> u64 {
    summary.keys.div_ceil(threads.max(1))
}

/// The scripts of a trace, one a thread. `threads` and `seed` must be those of [`choose`].
///
/// # Errors
/// As [`choose`]; or the file has changed since.
pub fn load(choice: &Choice, threads: u64, seed: u64) -> anyhow::Result<Vec<Arc<Script>>> {
    let (summary, scripts) = read(&choice.options, threads, seed)?;
    if summary != choice.summary {
        let file = choice.options.name();
        bail!("{file} changed while it was being replayed: run it again");
    }
    Ok(scripts)
}

fn read(
    options: &TraceOptions,
    threads: u64,
    seed: u64,
) -> anyhow::Result<(Summary, Vec<Arc<Script>>)> {
    let name = || format!("the trace {}", options.name());
    let mut source = Source::open(&options.file, options.format).with_context(name)?;
    let mut loader = Loader::new(options, threads, seed, source.format());
    while let Some(found) = source.read().with_context(name)? {
        match found {
            Ok(entry) => {
                if !loader.push(&entry) {
                    break;
                }
            }
            Err(flaw) => loader.skip(flaw, source.number()),
        }
    }
    let (summary, scripts) = loader.finish();
    if summary.entries == 0 {
        let notes = summary.notes(true).join("; ");
        let format = summary.format.name();
        bail!(
            "{} holds nothing that can be replayed, read as {format}{}{notes}; --format forces another",
            name(),
            if notes.is_empty() { "" } else { ": " }
        );
    }
    Ok((summary, scripts))
}
