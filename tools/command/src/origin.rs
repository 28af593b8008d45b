//! Where figures come from: the command line, the program and the date. Part of what `--json`
//! writes, so that a figure can be traced and measured again.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::{stop, words};

/// The origin of the figures of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The command line, one entry an argument.
    pub command: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// Commit that the program was built from; empty if that is unknown.
    pub commit: String,
    /// Start of the command, in UTC (RFC 3339).
    pub date: String,
    /// Whether a signal or a failed run ended the command before all runs were complete.
    pub partial: bool,
    /// Why a run failed; left out if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Origin {
    /// That of this process.
    #[must_use]
    pub fn here() -> Self {
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let arguments = std::env::args_os();
        Self {
            command: arguments
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("FARCORE_COMMIT").to_owned(),
            date: now.to_string(),
            partial: false,
            failure: None,
        }
    }

    /// Notes that the command ended early, because of a signal or a failed run, if it did.
    pub fn end(&mut self, failed: Option<&anyhow::Error>) {
        self.partial = stop::is_requested() || failed.is_some();
        self.failure = failed.map(words::describe);
    }

    /// A line about figures that are partial.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let why = match &self.failure {
            Some(failure) => failure,
            None if self.partial => "a signal ended the command before all runs were complete",
            None => return None,
        };
        Some(format!("partial: {why}"))
    }
}
