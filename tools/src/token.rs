//! The file of `--token-file` and of flags like it.

use std::path::Path;

use anyhow::{Result, anyhow};
use farcore_rdma::control::{Token, TokenError};

/// Reads the token of `--token-file`. Logs a warning if other users can read the file too.
///
/// # Errors
/// The file cannot be read, or holds no token.
pub(crate) fn read(file: &Path) -> Result<Token> {
    Token::read(file).map_err(|error| {
        let file = file.display();
        match error {
            TokenError::Read { source, .. } => anyhow!("--token-file {file}: {source}"),
            other @ TokenError::Length { .. } => anyhow!("--token-file {file}: {other}"),
        }
    })
}
