//! What the prompt remembers: a file of commands without the values that were typed.
//!
//! - I1: only its user can read the file and its folder.
//! - I2: a line is appended by one write, so several prompts can share the file.
//! - I3: the file holds no value, and no line that is no command.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::words::{Said, quoted, said};

/// Lines that are remembered.
const LINES_MAX: usize = 1000;
/// Bytes of the file that are read, at most.
const BYTES_MAX: u64 = 1 << 20;
/// The file is its user's.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// The file, open to append.
#[derive(Debug)]
pub(super) struct History(File);

/// `$XDG_STATE_HOME/farcore/history`, or below `~/.local/state`.
pub(super) fn path(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state.and_then(absolute);
    let state = state.or_else(|| Some(home.and_then(absolute)?.join(".local/state")));
    Some(state?.join("farcore/history"))
}

impl History {
    /// Opens the file and returns its lines, the last [`LINES_MAX`].
    ///
    /// # Errors
    /// It cannot be made, read or kept from others.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<String>)> {
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(folder)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(FILE_MODE)
            .open(path)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        if facts.permissions().mode() & 0o777 != FILE_MODE {
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        }
        let skipped = facts.len().saturating_sub(BYTES_MAX);
        file.seek(io::SeekFrom::Start(skipped))?;
        let mut bytes = Vec::new();
        (&file).take(BYTES_MAX).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // The first one may be a part of a line.
        let lines: Vec<&str> = text.lines().skip(usize::from(skipped > 0)).collect();
        let kept = &lines[lines.len().saturating_sub(LINES_MAX)..];
        if skipped > 0 || lines.len() > 2 * LINES_MAX {
            file = shortened(path, kept)?;
        }
        Ok((Self(file), kept.iter().map(ToString::to_string).collect()))
    }

    /// Appends a line as it may be kept.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn append(&mut self, line: &str) -> io::Result<()> {
        let Some(kept) = kept(line) else {
            return Ok(());
        };
        self.0.write_all(format!("{kept}\n").as_bytes())
    }
}

/// Replaces the file by one with the last lines.
fn shortened(path: &Path, lines: &[&str]) -> io::Result<File> {
    let new = path.with_extension(format!("{}", std::process::id()));
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&new)?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    file.write_all(text.as_bytes())?;
    fs::rename(&new, path)?;
    Ok(file)
}

/// A line without the value that it stores; `None` if it is not kept.
fn kept(line: &str) -> Option<String> {
    match said(line.as_bytes()).ok()? {
        Said::Nothing | Said::Quit => None,
        Said::Help(_) => Some(line.trim().to_owned()),
        Said::Command(one) => match one.command.without_value() {
            Some(words) => quoted(&words).filter(|words| !words.contains('\n')),
            None => Some(line.trim().to_owned()).filter(|line| !line.contains('\n')),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_what_is_no_command_are_not_kept() {
        for (line, expected) in [
            ("get 'a b' --json", Some("get 'a b' --json")),
            (" put k secret --ttl 5", Some("put k --ttl 5")),
            ("put k secret # secret", Some("put k")),
            ("cas k 3 secret", Some("cas k 3")),
            ("putt k secret", None),
            ("put k 'secret", None),
            ("put k secret too", None),
            ("help put", Some("help put")),
            ("quit", None),
            ("", None),
        ] {
            assert_eq!(kept(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn the_place_follows_the_environment() {
        let of = |state: Option<&str>, home: Option<&str>| {
            path(state.map(Into::into), home.map(Into::into))
        };
        let expected = |text: &str| Some(PathBuf::from(text));
        assert_eq!(of(Some("/s"), Some("/h")), expected("/s/farcore/history"));
        let home = expected("/h/.local/state/farcore/history");
        assert_eq!(of(None, Some("/h")), home);
        assert_eq!(of(Some("relative"), Some("/h")), home);
        assert_eq!(of(Some(""), None), None);
    }

    #[test]
    fn the_file_is_private_and_stays_short() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state/farcore/history");
        let mode = |path: &Path| {
            let facts = fs::metadata(path).expect("it exists");
            facts.permissions().mode() & 0o777
        };
        let (mut history, lines) = History::open(&path).expect("a file");
        assert!(lines.is_empty());
        history.append("put k secret").expect("a line");
        history.append("get k").expect("a line");
        assert_eq!(mode(&path), FILE_MODE);
        assert_eq!(mode(path.parent().expect("a folder")), FOLDER_MODE);
        // Others may not read it any more.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("a mode");
        let (_, lines) = History::open(&path).expect("a file");
        assert_eq!(lines, ["put k", "get k"]);
        assert_eq!(mode(&path), FILE_MODE);
        let many: String = (0..=3 * LINES_MAX).map(|n| format!("get {n}\n")).collect();
        fs::write(&path, many).expect("a file");
        let (mut history, lines) = History::open(&path).expect("a file");
        assert_eq!(lines.len(), LINES_MAX);
        history.append("get last").expect("a line");
        let text = fs::read_to_string(&path).expect("a file");
        assert_eq!(text.lines().count(), LINES_MAX + 1);
        assert_eq!(text.lines().next_back(), Some("get last"));
        assert_eq!(mode(&path), FILE_MODE);
    }
}
