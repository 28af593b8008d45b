//! Files with secrets: reads the token of one, and warns if others can read it too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, anyhow};
use farcore_rdma::control::{Token, TokenError};
use tracing::warn;

/// The permission of group and others to read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// Reads the token in the file of a flag.
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

/// Warns if other users can read `secret` in the file of a flag.
pub(crate) fn warn_if_exposed(flag: &str, file: &Path, secret: &str) {
    if let Some(mode) = exposed_mode(file) {
        let file = file.display();
        warn!(
            "{flag} {file}: mode {mode:04o} lets other users read the {secret}; run `chmod 600 {file}`"
        );
    }
}

/// The mode of a file that group or others may read.
fn exposed_mode(file: &Path) -> Option<u32> {
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
