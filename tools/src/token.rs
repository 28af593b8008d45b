//! The file of `--token-file`: reads it, and warns if others can read it too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, anyhow};
use farcore_rdma::control::{Token, TokenError};
use tracing::warn;

/// The permission of group and others to read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// Reads the token of `--token-file`.
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

/// Warns if other users can read the token's file.
pub(crate) fn warn_if_exposed(file: &Path) {
    if let Some(mode) = exposed_mode(file) {
        warn!(
            "--token-file {}: mode {mode:04o} lets other users read the token; run `chmod 600 {}`",
            file.display(),
            file.display()
        );
    }
}

/// The mode of a file that group or others may read.
pub(crate) fn exposed_mode(file: &Path) -> Option<u32> {
    // A pipe, as from `<(command)`, is no file that stays readable.
    let facts = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    let mode = facts.permissions().mode() & 0o777;
    (mode & READABLE_BY_OTHERS != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_others_can_read_is_exposed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        fs::write(&file, "sixteen bytes at least").expect("a file");
        for (mode, exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
            assert_eq!(exposed_mode(&file).is_some(), exposed, "{mode:o}");
        }
        assert_eq!(exposed_mode(Path::new("/dev/null")), None);
    }
}
