//! Where commands write: stdout, stderr, and the files that flags name.
//!
//! - I1: a closed stdout or stderr, as behind `| head -1`, is neither a panic nor an error: what is
//!   printed after that is lost, and files are written still.
//! - I2: a file is tried before the work that fills it, so that a wrong path costs no work. Until
//!   the work is done an old file keeps its contents, and a new one does not exist, however the
//!   process ends.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

fn write_line(mut stream: impl Write, text: impl Display) -> io::Result<()> {
    let written = writeln!(stream, "{text}").and_then(|()| stream.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints text and a line feed to stdout.
///
/// # Errors
/// stdout cannot be written, for example because a disk is full.
pub(crate) fn print(text: impl Display) -> Result<()> {
    write_line(io::stdout().lock(), text).context("stdout cannot be written")
}

/// Prints a message to stderr, the last resort: there is no place for an error of its own.
pub(crate) fn complain(text: impl Display) {
    let _ = write_line(io::stderr().lock(), text);
}

/// A file that a flag names, tried before the work.
#[derive(Debug)]
pub(crate) struct OutputFile {
    flag: &'static str,
    path: PathBuf,
    /// The file, if there was one: a pipe must not be opened twice.
    file: Option<File>,
}

impl OutputFile {
    /// Tries the file of a flag.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn open(flag: &'static str, path: &Path) -> Result<Self> {
        let found = OpenOptions::new().write(true).open(path);
        let file = match found {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(path)
                .and_then(|_| fs::remove_file(path))
                .map(|()| None),
            Err(error) => Err(error),
        };
        Ok(Self {
            flag,
            path: path.to_owned(),
            file: file.with_context(|| format!("{flag} {} cannot be written", path.display()))?,
        })
    }

    /// Tries the file of a flag that may be absent.
    ///
    /// # Errors
    /// As [`OutputFile::open`].
    pub(crate) fn open_if(flag: &'static str, path: Option<&Path>) -> Result<Option<Self>> {
        path.map(|path| Self::open(flag, path)).transpose()
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn write(self, text: &str) -> Result<()> {
        let Self { flag, path, file } = self;
        let file = match file {
            Some(mut file) => {
                // A pipe or a terminal has no contents to remove.
                let _ = file.set_len(0).and_then(|()| file.rewind());
                Ok(file)
            }
            None => File::create(&path),
        };
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("{flag} {} cannot be written", path.display()))
    }

    /// Replaces the contents with JSON.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn write_json(self, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        self.write(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_until_they_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.json");
        drop(OutputFile::open("--json", &path).unwrap());
        assert!(!path.exists(), "nothing was written");
        fs::write(&path, "the old and longer contents").unwrap();
        drop(OutputFile::open("--json", &path).unwrap());
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "the old and longer contents"
        );
        let file = OutputFile::open("--json", &path).unwrap();
        file.write_json(&[1, 2]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
        let file = OutputFile::open("--json", Path::new("/dev/null")).unwrap();
        file.write("lost").unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_opened_names_its_flag_and_path() {
        let error = OutputFile::open("--json", Path::new("/nonexistent/x")).unwrap_err();
        let error = crate::text::line(&error);
        assert!(error.contains("--json /nonexistent/x"), "{error}");
        assert_eq!(error.matches("os error").count(), 1, "{error}");
        assert!(OutputFile::open_if("--json", None).unwrap().is_none());
    }
}
