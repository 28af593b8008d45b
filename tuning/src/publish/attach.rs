//! Reads a statistics socket, and finds the sockets of this user's engines.
//!
//! Owns the rules for a socket's default path. Touches the sockets' folder and the connections that
//! it opens.
//!
//! - I1: what a socket sends is not trusted: its length, the time it takes and the memory that the
//!   reader allocates for it are bounded.

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

/// Limit on a report, in bytes: 1024 cores with full histograms need a tenth of it.
const REPORT_BYTES_MAX: usize = 32 << 20;
/// Time limit for one report.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// Bytes per read call.
const PIECE_BYTES: usize = 64 << 10;

/// Why a report could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No engine serves the path.
    #[error("no engine serves statistics at {}", path.display())]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// The connection failed.
    #[error("cannot read {}: {source}", path.display())]
    Unreachable {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The time limit passed.
    #[error("{} did not answer within {} s", path.display(), limit.as_secs_f64())]
    Silent {
        /// The path.
        path: PathBuf,
        /// The time limit.
        limit: Duration,
    },
    /// The sender exceeds the length limit.
    #[error("{} sends more than {limit_bytes} bytes: it is not a statistics socket", path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
        /// The limit on a report, in bytes.
        limit_bytes: usize,
    },
    /// The text is not a report.
    #[error("{} does not serve an engine's statistics: {source}", path.display())]
    NotAReport {
        /// The path.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The report has another format version.
    #[error(
        "{} serves statistics in format {found}, and this program reads format {known}: use the program of the engine's version",
        path.display()
    )]
    Format {
        /// The path.
        path: PathBuf,
        /// The report's format.
        found: u32,
        /// This program's format.
        known: u32,
    },
}

/// Requests the report of the engine behind a statistics socket. Takes about a millisecond on an
/// idle machine, and at most some seconds.
///
/// # Errors
/// No process listens, the peer is not an engine or has another format, or the time limit passes.
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
        // A timeout of zero would mean no timeout.
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

/// Connects. If a stopped process does not accept, waits as long as for one that does not write.
pub(crate) fn open(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// The default folder for the sockets of this user's engines: `$XDG_RUNTIME_DIR/farcore`, or else
/// `/tmp/farcore-UID`.
#[must_use]
pub fn sockets_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if Path::new(&folder).is_absolute() => Path::new(&folder).join("farcore"),
        _ => PathBuf::from(format!("/tmp/farcore-{}", geteuid().as_raw())),
    }
}

/// The default path for a socket of this process, `NAME-PID.sock` in [`sockets_folder`]. Creates
/// the folder with mode 0700.
///
/// # Errors
/// The folder cannot be created, or other users can write it.
pub fn default_socket(name: &str) -> io::Result<PathBuf> {
    let folder = sockets_folder();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    ensure_own(&folder)?;
    Ok(folder.join(format!("{name}-{}.sock", std::process::id())))
}

/// Checks that only this user can write a folder: in `/tmp`, any user may have created it.
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

/// The sockets in [`sockets_folder`], newest first. An engine need not be listening behind each.
///
/// # Errors
/// The folder cannot be read, or other users can write it. A missing folder is no error.
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
        // The file may have been removed since.
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

    /// Reads what a peer sends that need not be an engine.
    fn read(name: &str, text: &[u8], limit: Duration) -> Result<Report, ReadError> {
        let path = path(name);
        let listener = UnixListener::bind(&path).expect("a socket");
        let read = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a reader");
                // A reader that has refused the text closes the connection.
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
    fn peers_that_are_not_engines_are_refused() {
        let long = Duration::from_secs(600);
        let seen = read("short", br#"{"format":1,"cores":[{"core":2}]}"#, long);
        assert_eq!(seen.unwrap().cores[0].core, 2);
        let seen = read("text", b"HTTP/1.1 400 Bad Request\r\n\r\n", long);
        assert!(
            matches!(seen, Err(ReadError::NotAReport { .. })),
            "{seen:?}"
        );
        let seen = read("endless", &[b' '; 1 << 20], long);
        let error = seen.unwrap_err().to_string();
        assert!(error.contains("more than 4096 bytes"), "{error}");
        let seen = read("future", br#"{"format":7}"#, long);
        let error = seen.unwrap_err().to_string();
        assert!(error.contains("format 7"), "{error}");
        let crowd = format!(r#"{{"format":1,"cores":[{}{{}}]}}"#, "{},".repeat(1024));
        let seen = read("crowd", crowd.as_bytes(), long);
        let error = seen.unwrap_err().to_string();
        assert!(error.contains("1024"), "{error}");
        let seen = read("silent", b"", Duration::from_millis(30));
        assert!(matches!(seen, Err(ReadError::Silent { .. })), "{seen:?}");
    }

    #[test]
    fn sockets_are_found_only_in_the_users_folder() {
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
