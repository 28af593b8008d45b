//! Where figures come from: the command line, the program and the date. Part of what `--json`
//! writes, so that a figure can be traced and measured again.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

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
    /// Whether a signal ended the command before all runs were complete.
    pub partial: bool,
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
        }
    }
}
