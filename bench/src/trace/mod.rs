//! Replays real cache traces: a file becomes a script for each thread, before anything is timed.
//!
//! - [`entry`] one request as a file states it, and what can be wrong with it
//! - [`csv`] and [`oracle`] the two formats · [`source`] a file of either, plain or compressed, as
//!   a stream
//! - [`loader`] makes scripts of it · [`script`] what each thread asks and what must be answered ·
//!   [`summary`] what a file holds
//! - [`replay`] the script as a load · [`args`] the command line
//!
//! A key belongs to one thread, by its hash, and an engine keeps the order on a key. So what a
//! request finds is known beforehand: hits, misses and every byte of every value are the same for
//! each engine, and all are verified.
//!
//! Operations, as the engines know them:
//!
//! | trace | asked |
//! |---|---|
//! | `get`, `gets`, every oracleGeneral record | a get; of an absent key, with [`OnMiss::Fill`], a put of the stated size right behind it, unless that is 0 |
//! | `set`, `add`, `replace`, `cas` | a put of the stated size: a trace does not tell whether the condition held |
//! | `append`, `prepend` | a get; of a key that is there, a put of its length and the stated one together |
//! | `incr`, `decr` | a get; of a key that is there, a put of the same length |
//! | `delete` | a delete |
//!
//! Not applied: times (requests follow each other as fast as they are answered) and the time to
//! live.
//!
//! Sources: <https://github.com/twitter/cache-trace> (README),
//! <https://github.com/cacheMon/libCacheSim> (`oracleGeneralBin.h`).

pub mod args;
pub mod csv;
pub mod entry;
pub mod loader;
pub mod oracle;
pub mod replay;
pub mod script;
pub mod source;
pub mod summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use farcore::constants::VALUE_BYTES_MAX;
use serde::{Deserialize, Serialize};

pub use self::loader::OnMiss;
pub use self::script::Script;
pub use self::source::Format;
pub use self::summary::Summary;
use crate::plan::{Plan, Scenario};
use loader::Loader;
use source::Source;

/// Which part of which trace is to be replayed, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The file.
    pub file: PathBuf,
    /// Its format; `None`: as its name or its contents say.
    pub format: Option<Format>,
    /// Most requests taken from it; `None`: all.
    pub limit: Option<u64>,
    /// Longer values are cut to this many bytes.
    pub value_bytes_max: u32,
    /// What follows a get of an absent key.
    pub on_miss: OnMiss,
    /// Memory for the scripts of all threads, in bytes; reading ends where it is used up, to within
    /// an eighth.
    pub memory_bytes_max: u64,
}

impl Wish {
    /// All of a file, in at most so much memory, with values as long as any engine takes and misses
    /// filled.
    #[must_use]
    pub fn new(file: &Path, memory_bytes_max: u64) -> Self {
        Self {
            file: file.to_owned(),
            format: None,
            limit: None,
            value_bytes_max: u32::try_from(VALUE_BYTES_MAX).unwrap_or(u32::MAX),
            on_miss: OnMiss::Fill,
            memory_bytes_max,
        }
    }
}

/// A wish with what its file was found to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The wish.
    pub wish: Wish,
    /// What it comes to, for the plan's threads and seed.
    pub summary: Summary,
}

/// Reads a trace once and makes the scenario of a plan with so many threads and this seed. Cost:
/// one pass over the file, and the wish's memory while it lasts.
///
/// The plan's `keys_per_core` should be [`keys_per_core`] of the same summary; its values must fit
/// the engine (see `Config::value_bytes_max` of `farcore`).
///
/// # Errors
/// The file cannot be read, or holds no request that can be used.
pub fn scenario(wish: Wish, threads: u64, seed: u64) -> anyhow::Result<Scenario> {
    let (summary, _) = read(&wish, threads, seed)?;
    Ok(Scenario::Trace(Box::new(Choice { wish, summary })))
}

/// Keys of each thread, as plans count them: an even share, rounded up.
#[must_use]
pub fn keys_per_core(summary: &Summary, threads: u64) -> u64 {
    summary.keys.div_ceil(threads.max(1))
}

/// The scripts of a plan's threads; empty ones for other scenarios.
///
/// # Errors
/// As [`scenario`]; or the file holds something else than when the plan was made.
pub fn load(plan: &Plan) -> anyhow::Result<Vec<Arc<Script>>> {
    let Scenario::Trace(choice) = &plan.scenario else {
        return Ok((0..plan.threads()).map(|_| Arc::default()).collect());
    };
    let (summary, scripts) = read(&choice.wish, plan.threads(), plan.seed)?;
    if summary != choice.summary {
        let file = choice.wish.file.display();
        bail!("{file} changed while it was being replayed: run it again");
    }
    Ok(scripts)
}

fn read(wish: &Wish, threads: u64, seed: u64) -> anyhow::Result<(Summary, Vec<Arc<Script>>)> {
    let name = || format!("the trace {}", wish.file.display());
    let mut source = Source::open(&wish.file, wish.format).with_context(name)?;
    let mut loader = Loader::new(wish, threads, seed, source.format());
    while let Some(found) = source.read().with_context(name)? {
        match found {
            Ok(entry) => {
                if !loader.take(&entry) {
                    break;
                }
            }
            Err(flaw) => loader.skip(flaw, source.number()),
        }
    }
    let (summary, scripts) = loader.finish();
    if summary.entries == 0 {
        let notes = summary.notes().join("; ");
        let format = summary.format.name();
        bail!(
            "{} holds nothing that can be replayed, read as {format}{}{notes}; --format forces another",
            name(),
            if notes.is_empty() { "" } else { ": " }
        );
    }
    Ok((summary, scripts))
}
