//! Parsing of sizes in flags, and errors as one line. Shared by all commands.

use anyhow::{Result, anyhow};
use bytesize::ByteSize;

/// Parses the size in a flag; `like` is an example for the error.
pub(crate) fn size(flag: &str, text: &str, like: &str) -> Result<u64> {
    let size = text.parse::<ByteSize>();
    let size = size.map_err(|_| anyhow!("{flag} `{text}` is not a size; write it as {like}"))?;
    Ok(size.as_u64())
}

/// The error with its causes, without those that its text already contains.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}
