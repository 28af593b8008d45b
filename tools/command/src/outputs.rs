//! Where commands write: standard output, standard error, and the files that flags name. `farcore`
//! uses it, too.
//!
//! - I1: a closed standard output or error, as behind `| head -1`, is neither a panic nor an error:
//!   what is printed after that is lost, and files are written still.
//! - I2: a file is tried before the work that fills it, so that a wrong path costs no work. Until
//!   the work is done an old file keeps its contents, and a new one does not exist, however the
//!   process ends.
//! - I3: a pipe is opened once: its reader would take the end of a first opening for the end of the
//!   output.
//! - I4: `-` names no file: standard output has what people read.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::Errno;
use serde::Serialize;

fn write_line(mut stream: impl Write, text: impl Display) -> io::Result<()> {
    let written = writeln!(stream, "{text}").and_then(|()| stream.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints text and a line feed to standard output.
///
/// # Errors
/// It cannot be written, for example because a disk is full.
pub fn print(text: impl Display) -> anyhow::Result<()> {
    write_line(io::stdout().lock(), text).context("standard output cannot be written")
}

/// Prints a message to standard error, the last resort: there is no place for an error of its own.
pub fn complain(text: impl Display) {
    let _ = write_line(io::stderr().lock(), text);
}

/// A file that a flag names, tried before the work.
#[derive(Debug)]
pub struct OutputFile {
    flag: &'static str,
    path: PathBuf,
    /// The file, if there was one.
    file: Option<File>,
}

impl OutputFile {
    /// Tries the file of a flag. A pipe waits for its reader here.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(flag: &'static str, path: &Path) -> anyhow::Result<Self> {
        check_name(flag, path)?;
        let found = OpenOptions::new().write(true).open(path);
        let file = match found {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                try_to_create(path).map(|()| None)
            }
            Err(error) => Err(error),
        };
        Ok(Self {
            flag,
            path: path.to_owned(),
            file: file.with_context(|| refusal(flag, path))?,
        })
    }

    /// Tries the file of a flag that may be absent.
    ///
    /// # Errors
    /// As [`OutputFile::open`].
    pub fn open_if(flag: &'static str, path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        path.map(|path| Self::open(flag, path)).transpose()
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let Self { flag, path, file } = self;
        let file = match file {
            Some(mut file) => {
                // A pipe or a terminal has no contents to remove.
                let _ = file.set_len(0).and_then(|()| file.rewind());
                Ok(file)
            }
            None => File::create(&path),
        };
        file.and_then(|mut file| file.write_all(bytes.as_ref()))
            .with_context(|| refusal(flag, &path))
    }

    /// Replaces the contents with JSON.
    ///
    /// # Errors
    /// The system's error.
    pub fn write_json(self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        self.write(text)
    }
}

fn refusal(flag: &str, path: &Path) -> String {
    format!("{flag} {} cannot be written", path.display())
}

/// Refuses `-`, which other commands take for standard output.
fn check_name(flag: &str, path: &Path) -> anyhow::Result<()> {
    ensure!(
        path != "-",
        "{flag} - names no file: name a file, or /dev/stdout where standard output is a pipe or a terminal"
    );
    Ok(())
}

/// Refuses a file whose name promises another format than the flag writes: no program opens it.
/// A name without an extension promises nothing, nor do those of devices and pipes.
///
/// # Errors
/// It does; the error names the flag and a better name.
pub fn check_extension(flag: &str, path: Option<&Path>, extension: &str) -> anyhow::Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file());
    let named = path.extension().filter(|_| !is_special);
    ensure!(
        named.is_none_or(|named| named.eq_ignore_ascii_case(extension)),
        "{flag} {}: it writes {}: name the file {}",
        path.display(),
        extension.to_ascii_uppercase(),
        path.with_extension(extension).display()
    );
    Ok(())
}

/// Whether a new file could be created at the path. The file of the attempt has no name, where the
/// file system can do so: a process killed here leaves nothing.
fn try_to_create(path: &Path) -> io::Result<()> {
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // A link to a file that does not exist.
    if fs::symlink_metadata(path).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    match open(folder, OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            File::create_new(path).and_then(|_| fs::remove_file(path))
        }
        tried => Ok(tried.map(drop)?),
    }
}

/// Checks that the file of a flag, which another process opens, can be written.
///
/// # Errors
/// It cannot; the error names the flag.
pub fn check_file(flag: &str, path: &Path) -> anyhow::Result<()> {
    check_name(flag, path)?;
    let checked = match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => access(path, Access::WRITE_OK).map_err(Into::into),
        Err(error) if error.kind() == io::ErrorKind::NotFound => try_to_create(path),
        Err(error) => Err(error),
    };
    checked.with_context(|| refusal(flag, path))
}

/// Creates a folder and checks that files can be written into it.
///
/// # Errors
/// They cannot; the error names the flag.
pub fn check_folder(flag: &str, folder: &Path) -> anyhow::Result<()> {
    check_name(flag, folder)?;
    let probe = || tempfile::tempfile_in(folder);
    fs::create_dir_all(folder)
        .and_then(|()| probe())
        .map(drop)
        .with_context(|| format!("{flag} {}: no file can be written there", folder.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::thread;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn names_of_other_formats_are_refused() {
        let checked = |name: &str| {
            let checked = check_extension("--plot", Some(Path::new(name)), "svg");
            checked.map_err(|error| error.to_string())
        };
        for name in [
            "card.svg",
            "card.SVG",
            "card",
            "/dev/null",
            "/dev/stdout",
            "a.b/card",
        ] {
            assert_eq!(checked(name), Ok(()), "{name}");
        }
        for (name, better) in [("card.txt", "card.svg"), ("a/card.v2.png", "a/card.v2.svg")] {
            let error = format!("--plot {name}: it writes SVG: name the file {better}");
            assert_eq!(checked(name), Err(error));
        }
    }
    use crate::words::describe;

    #[test]
    fn a_dash_names_no_file() {
        let path = Path::new("-");
        for error in [
            OutputFile::open("--json", path).err(),
            check_file("--json", path).err(),
        ] {
            let said = describe(&error.expect("it is refused"));
            assert!(
                said.starts_with("--json - names no file: name a file, or /dev/stdout where"),
                "{said}"
            );
        }
        assert!(!path.exists());
    }

    #[test]
    fn contents_stay_until_they_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.json");
        drop(OutputFile::open("--json", &path).unwrap());
        check_file("--json", &path).unwrap();
        assert!(!path.exists(), "nothing was written");
        fs::write(&path, "the old and longer contents").unwrap();
        drop(OutputFile::open("--json", &path).unwrap());
        check_file("--json", &path).unwrap();
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
    fn a_reader_of_a_pipe_gets_all_that_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Another process opens the pipe later: this must not wait for a reader.
        check_file("--record", &path).unwrap();
        let reader = thread::spawn({
            let path = path.clone();
            move || {
                let mut text = String::new();
                File::open(path).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        });
        let file = OutputFile::open("--json", &path).unwrap();
        file.write("figures").unwrap();
        assert_eq!(reader.join().unwrap(), "figures");
    }

    #[test]
    fn a_file_that_cannot_be_written_names_its_flag_and_path() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("nothing", &link).unwrap();
        let slash = folder.path().join("new/");
        for path in [Path::new("/nonexistent/x"), folder.path(), &link, &slash] {
            for error in [
                OutputFile::open("--json", path).map(drop).unwrap_err(),
                check_file("--json", path).unwrap_err(),
            ] {
                let error = describe(&error);
                let start = format!("--json {} cannot be written: ", path.display());
                assert!(error.starts_with(&start), "{error}");
            }
        }
        assert!(OutputFile::open_if("--json", None).unwrap().is_none());
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = check_folder("--plot", &file.join("x")).unwrap_err();
        assert!(error.to_string().starts_with("--plot "), "{error}");
    }
}
