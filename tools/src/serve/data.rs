//! The flags of the data directory.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use farcore::LogPolicy;
use farcore_server::{DataOptions, SavePoint, parse_save_points};

/// The rules without a log; those of Redis.
const SAVE: &str = "3600 1 300 100 60 10000";

/// Which changes are logged; Redis's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Log {
    No,
    Everysec,
    Always,
}

#[derive(Debug, Args)]
pub(super) struct DataArguments {
    /// Directory that keeps the data: it is loaded at the start, and made if it is not there
    /// [default: none, and the data end with the server]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// When changes are safe on the disk: `always` before their replies, `everysec` within a
    /// second, `no` with the next snapshot; without `no`, snapshots are made as the log grows
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t = Log::Everysec,
        requires = "data"
    )]
    log: Log,
    /// Rules that have snapshots made: pairs of a time in seconds and the changes after which one
    /// is made that is older; "" for none [default with --log no: "3600 1 300 100 60 10000"]
    #[arg(long, value_name = "RULES", requires = "data")]
    save: Option<String>,
    /// Snapshots that stay in the directory, with the logs since the oldest: `farcore data repair`
    /// goes back to one where the newest is damaged; each takes as much room as the data
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        default_value_t = 1,
        requires = "data"
    )]
    snapshots: u16,
}

impl DataArguments {
    /// The directory.
    pub(super) fn dir(&self) -> Option<PathBuf> {
        self.data.clone()
    }

    /// Snapshots that stay.
    pub(super) fn snapshots_kept(&self) -> usize {
        usize::from(self.snapshots)
    }

    /// Which changes are logged.
    pub(super) fn policy(&self) -> LogPolicy {
        match self.log {
            Log::No => LogPolicy::Off,
            Log::Everysec => LogPolicy::EverySecond,
            Log::Always => LogPolicy::Always,
        }
    }

    fn save_points(&self) -> Result<Vec<SavePoint>> {
        let default = if self.log == Log::No { SAVE } else { "" };
        let text = self.save.as_deref().unwrap_or(default);
        parse_save_points(text).ok_or_else(|| {
            anyhow!(
                "--save \"{text}\": give pairs of a time in seconds, 1 or more, and a number of changes, e.g. \"3600 1 300 100\""
            )
        })
    }

    /// What the server needs to know.
    pub(super) fn options(&self) -> Result<Option<DataOptions>> {
        let save_points = self.save_points()?;
        Ok(self.dir().map(|dir| DataOptions {
            // As `CONFIG GET dir` shows it.
            dir: std::path::absolute(&dir).unwrap_or(dir),
            log: self.policy(),
            save_points,
        }))
    }
}
