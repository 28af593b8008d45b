//! Files with passwords.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use zeroize::Zeroizing;

/// Reads the password of a flag: the file's first line.
///
/// # Errors
/// The file cannot be read or its first line is empty.
pub(crate) fn read(flag: &str, file: &Path) -> Result<Zeroizing<String>> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("{flag} {name}"))?;
    let text = Zeroizing::new(text);
    let line = text.lines().next().unwrap_or_default();
    ensure!(
        !line.is_empty(),
        "{flag} {name}: its first line is empty; write the password there"
    );
    Ok(Zeroizing::new(line.to_owned()))
}
