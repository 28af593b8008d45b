//! What a command writes: files, which are checked before anything runs, and lines on standard
//! output. A reader of standard output that has gone is no error: the files count.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

/// Checks that a file can be written. It is not changed, and none stays behind.
///
/// # Errors
/// It cannot; the error names the flag.
pub fn check_file(flag: &str, file: &Path) -> anyhow::Result<()> {
    let create = File::create_new(file);
    let checked = match create {
        Ok(_) => fs::remove_file(file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(file).map(drop)
        }
        Err(error) => Err(error),
    };
    checked.with_context(|| format!("{flag} {} cannot be written", file.display()))
}

/// Creates a folder and checks that files can be written into it.
///
/// # Errors
/// They cannot; the error names the flag.
pub fn check_folder(flag: &str, folder: &Path) -> anyhow::Result<()> {
    let probe = || tempfile::tempfile_in(folder);
    fs::create_dir_all(folder)
        .and_then(|()| probe())
        .map(drop)
        .with_context(|| format!("{flag} {}: no file can be written there", folder.display()))
}

/// Writes a file.
///
/// # Errors
/// It cannot be written; the error names the flag.
pub fn write(flag: &str, file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(file, bytes)
        .with_context(|| format!("{flag} {} could not be written", file.display()))
}

/// Prints a line on standard output, unless its reader has gone.
///
/// # Errors
/// It cannot be written for another reason.
pub fn say(line: impl Display) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match writeln!(output, "{line}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_leaves_files_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "figures").unwrap();
        check_file("--json", &old).unwrap();
        check_file("--json", &new).unwrap();
        assert_eq!(fs::read(&old).unwrap(), b"figures");
        assert!(!new.exists());
        let lost = folder.path().join("nowhere/file");
        let error = format!("{:#}", check_file("--json", &lost).unwrap_err());
        assert!(
            error.starts_with("--json ") && error.contains("cannot be written: "),
            "{error}"
        );
        let error = check_folder("--plot", &old.join("x")).unwrap_err();
        assert!(error.to_string().starts_with("--plot "), "{error}");
    }
}
