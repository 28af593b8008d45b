//! The reading side of a statistics socket, and where sockets are looked for.
//!
//! - I1: what comes from a socket is not trusted: its length, the time that it takes and what it
//!   may make the reader allocate are bounded.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use crate::publish::report::Report;

/// Bytes of the longest report: 1024 cores with full histograms are a tenth of it.
const REPORT_BYTES_MAX: usize = 32 << 20;
/// How long one may take.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// What is read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No engine has the path.
    #[error("no engine shows its figures at {}", path.display())]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be asked.
    #[error("{} cannot be read: {source}", path.display())]
    Unreachable {
        /// The path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It did not answer in time.
    #[error("{} did not answer within {} s", path.display(), limit.as_secs_f64())]
    Silent {
        /// The path.
        path: PathBuf,
        /// How long it had.
        limit: Duration,
    },
    /// It does not end.
    #[error("{} sends more than {limit_bytes} bytes: this is no statistics socket", path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
        /// What a report may have.
        limit_bytes: usize,
    },
    /// Something else is there.
    #[error("{} does not tell an engine's figures: {source}", path.display())]
    NotAReport {
        /// The path.
        path: PathBuf,
        /// What is wrong with the text.
        source: serde_json::Error,
    },
    /// A report of another time.
    #[error(
        "{} tells its figures in format {found}, and this program knows {known}: use the program of the engine's version",
        path.display()
    )]
    Format {
        /// The path.
        path: PathBuf,
        /// The report's.
        found: u32,
        /// This program's.
        known: u32,
    },
}

/// Asks the engine behind a statistics socket for its figures. Takes about a millisecond on an idle
/// machine, and at most some seconds.
///
/// # Errors
/// Nobody is there, what is there is no engine or one of another format, or it takes too long.
pub fn read_report(path: &Path) -> Result<Report, ReadError> {
    read_within(path, REPORT_BYTES_MAX, READ_LIMIT)
}

fn read_within(path: &Path, limit_bytes: usize, limit: Duration) -> Result<Report, ReadError> {
    let fails = |source: io::Error| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ReadError::Absent { path }
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ReadError::Silent { path, limit }
            }
            _ => ReadError::Unreachable { path, source },
        }
    };
    let deadline = Instant::now() + limit;
    let mut stream = open(path, limit).map_err(fails)?;
    let mut text = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A time-out of zero would be none.
        let left = left.max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).map_err(fails)?;
        let read = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(fails(error)),
        };
        if Instant::now() > deadline {
            return Err(fails(io::ErrorKind::TimedOut.into()));
        }
        if text.len() + read > limit_bytes {
            let path = path.to_owned();
            return Err(ReadError::TooLong { path, limit_bytes });
        }
        text.extend_from_slice(&piece[..read]);
    }
    let report: Report = serde_json::from_slice(&text).map_err(|source| ReadError::NotAReport {
        path: path.to_owned(),
        source,
    })?;
    if report.format != Report::FORMAT {
        return Err(ReadError::Format {
            path: path.to_owned(),
            found: report.format,
            known: Report::FORMAT,
        });
    }
    Ok(report)
}

/// Connects; a process that stands still and accepts nobody is waited for as long as for one that
/// does not write.
pub(crate) fn open(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// Where the sockets of this user's engines are by custom: `$XDG_RUNTIME_DIR/farcore`, or else
/// `/tmp/farcore-UID`.
#[must_use]
pub fn sockets_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if Path::new(&folder).is_absolute() => Path::new(&folder).join("farcore"),
        _ => PathBuf::from(format!("/tmp/farcore-{}", geteuid().as_raw())),
    }
}

/// The path for a socket of this process in the folder by custom, `NAME-PID.sock`. Makes the folder
/// (mode 0700).
///
/// # Errors
/// The folder cannot be made, or belongs to somebody else.
pub fn default_socket(name: &str) -> io::Result<PathBuf> {
    let folder = sockets_folder();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    ensure_own(&folder)?;
    Ok(folder.join(format!("{name}-{}.sock", std::process::id())))
}

/// A folder in `/tmp` may have been made by anybody.
fn ensure_own(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let own = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    if own {
        return Ok(());
    }
    let message = format!(
        "{} is not a folder that only this user can write: remove it, or name a socket's path",
        folder.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// The sockets in the folder by custom, the newest first. Whether an engine is behind them is known
/// when they are asked.
///
/// # Errors
/// The folder cannot be read, or belongs to somebody else. That there is none is no error.
pub fn find_sockets() -> io::Result<Vec<PathBuf>> {
    find_in(&sockets_folder())
}

fn find_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    ensure_own(folder)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // It may be gone by now.
        let Ok(file) = entry.metadata() else { continue };
        if file.file_type().is_socket() {
            found.push((file.modified()?, entry.path()));
        }
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("farcore-attach-{name}-{}", std::process::id()))
    }

    /// Reads what a stranger sends.
    fn read(name: &str, text: &[u8], limit: Duration) -> Result<Report, ReadError> {
        let path = path(name);
        let listener = UnixListener::bind(&path).expect("a socket");
        let read = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a reader");
                // A reader that had enough goes.
                let _ = stream.write_all(text);
                if text.is_empty() {
                    let _ = stream.read(&mut [0]);
                }
            });
            read_within(&path, 4096, limit)
        });
        fs::remove_file(&path).expect("it is there");
        read
    }

    #[test]
    fn strangers_are_told_from_engines() {
        let long = Duration::from_secs(600);
        let seen = read("short", br#"{"format":1,"cores":[{"core":2}]}"#, long);
        assert_eq!(seen.unwrap().cores[0].core, 2);
        let seen = read("text", b"HTTP/1.1 400 Bad Request\r\n\r\n", long);
        assert!(
            matches!(seen, Err(ReadError::NotAReport { .. })),
            "{seen:?}"
        );
        let seen = read("endless", &[b' '; 1 << 20], long);
        let told = seen.unwrap_err().to_string();
        assert!(told.contains("more than 4096 bytes"), "{told}");
        let seen = read("future", br#"{"format":7}"#, long);
        let told = seen.unwrap_err().to_string();
        assert!(told.contains("format 7"), "{told}");
        let crowd = format!(r#"{{"format":1,"cores":[{}{{}}]}}"#, "{},".repeat(1024));
        let seen = read("crowd", crowd.as_bytes(), long);
        let told = seen.unwrap_err().to_string();
        assert!(told.contains("1024"), "{told}");
        let seen = read("silent", b"", Duration::from_millis(30));
        assert!(matches!(seen, Err(ReadError::Silent { .. })), "{seen:?}");
    }

    #[test]
    fn sockets_are_found_in_a_folder_of_ones_own() {
        let folder = path("folder");
        assert!(find_in(&folder).unwrap().is_empty());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("note"), "").unwrap();
        let _one = UnixListener::bind(folder.join("one.sock")).unwrap();
        assert_eq!(find_in(&folder).unwrap(), [folder.join("one.sock")]);
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(find_in(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
