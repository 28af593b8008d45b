//! Files with secrets, as flags name them: tokens, and what is said of those that others can read.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};
use farcore_rdma::control::{Token, TokenError, exposed_mode};
use tracing::warn;

/// Reads the token in the file of a flag. Logs a warning if other users can read it too.
///
/// # Errors
/// The file cannot be read, or holds no token.
pub(crate) fn read(flag: &str, file: &Path) -> Result<Token> {
    Token::read(file).map_err(|error| {
        let file = file.display();
        match error {
            TokenError::Read { source, .. } => anyhow!("{flag} {file}: {source}"),
            other @ TokenError::Length { .. } => anyhow!("{flag} {file}: {other}"),
        }
    })
}

/// Warns if other users can read a secret that is no token.
pub(crate) fn warn_if_exposed(flag: &str, file: &Path, secret: &str) {
    if let Some(mode) = fs::metadata(file).ok().as_ref().and_then(exposed_mode) {
        let file = file.display();
        warn!(
            "{flag} {file}: mode {mode:04o} lets other users read the {secret}; run `chmod 600 {file}`"
        );
    }
}
