//! Where a trace is read from: a file, or standard input.
//!
//! A trace is read several times: once or twice for the plan, once in the process of each run.
//! Standard input is read once, into a file without a name, which all of them open through `/proc`.
//! It vanishes with this process, however that ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The file argument that stands for standard input.
const STDIN: &str = "-";

/// The trace; a copy of standard input lasts as long as this.
#[derive(Debug)]
pub struct Input {
    file: PathBuf,
    copy: Option<File>,
}

impl Input {
    /// The trace of a file argument. Cost: reads all of standard input for `-`.
    ///
    /// # Errors
    /// Standard input cannot be read, or its copy cannot be written.
    pub fn open(argument: &Path) -> anyhow::Result<Self> {
        if argument == Path::new(STDIN) {
            return Self::copy(&mut io::stdin().lock());
        }
        Ok(Self {
            file: argument.to_owned(),
            copy: None,
        })
    }

    fn copy(from: &mut impl io::Read) -> anyhow::Result<Self> {
        let place = std::env::temp_dir();
        let copied = tempfile::tempfile_in(&place).and_then(|mut copy| {
            io::copy(from, &mut copy)?;
            Ok(copy)
        });
        let copy = copied.with_context(|| {
            let place = place.display();
            format!("standard input cannot be copied to {place}; name another folder in TMPDIR")
        })?;
        let (process, number) = (std::process::id(), copy.as_raw_fd());
        Ok(Self {
            file: PathBuf::from(format!("/proc/{process}/fd/{number}")),
            copy: Some(copy),
        })
    }

    /// The file to open.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether this is a copy of standard input.
    #[must_use]
    pub fn is_stdin(&self) -> bool {
        self.copy.is_some()
    }
}

impl From<&Path> for Input {
    fn from(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            copy: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_standard_input_can_be_read_several_times() {
        let input = Input::copy(&mut &b"0,a,1,5,1,get,0\n"[..]).unwrap();
        assert!(input.is_stdin());
        for _ in 0..2 {
            assert_eq!(std::fs::read(input.file()).unwrap(), b"0,a,1,5,1,get,0\n");
        }
        let file = input.file().to_owned();
        drop(input);
        assert!(!file.exists() || std::fs::read(file).unwrap() != b"0,a,1,5,1,get,0\n");
    }
}
