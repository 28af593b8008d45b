//! What users write and read: sizes, errors in a line, the log.

use std::io::{self, IsTerminal};

use anyhow::{Result, anyhow};
use bytesize::ByteSize;
use tracing_subscriber::EnvFilter;

/// Reads the size that a flag gives.
pub(crate) fn size(flag: &str, text: &str, like: &str) -> Result<u64> {
    let size = text.parse::<ByteSize>();
    let size = size.map_err(|_| anyhow!("{flag} `{text}` is not a size; write it as {like}"))?;
    Ok(size.as_u64())
}

/// The error with its causes, save those that it tells itself.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Has the log written to stderr, from a level on unless `RUST_LOG` says otherwise.
pub(crate) fn log_to_stderr(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
