//! Publishes the metrics of the running engine: a statistics socket for `farcore top`, HTTP for
//! Prometheus.
//!
//! The flags become a [`Watch`], which travels in the plan to the process of the run. What it opens
//! stays open for as long as the engine runs. Addresses beyond loopback need `--insecure`.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use farcore::EngineReporter;
use farcore::statistics::{
    Exposition, HttpServer, Reporter, StatisticsSocket, default_socket, is_loopback,
};
use farcore_tuning::Exposed;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::range::RangeError;
use crate::stop;

/// Stands for the default path.
const DEFAULT: &str = "default";
/// The target of the log, which users see.
const TARGET: &str = "farcore";

fn is_default(path: &Path) -> bool {
    path == Path::new(DEFAULT)
}

/// Connects to a socket and closes the connection. A listener that accepts none, and whose queue is
/// full, is not waited for.
fn knock(path: &Path) -> Result<(), Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Err(Errno::AGAIN) => Ok(()),
        connected => connected,
    }
}

fn taken(address: SocketAddr) -> String {
    format!("cannot listen on {address}; give --http another address")
}

/// Flags of the metrics.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct WatchArgs {
    /// Publish metrics on this socket for `farcore top`; without a path, or with `default`, where
    /// `farcore top` searches
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = DEFAULT)]
    pub stats_socket: Option<PathBuf>,
    /// Serve /metrics and /healthz on this address, e.g. 127.0.0.1:9401
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,
    /// Allow --http on an address beyond loopback
    #[arg(long, requires = "http")]
    pub insecure: bool,
}

/// Where the engine of a run publishes its metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The command, with which the name of a default socket begins.
    pub command: String,
    /// Its statistics socket, or `default`.
    pub stats_socket: Option<PathBuf>,
    /// The address for Prometheus.
    pub http: Option<SocketAddr>,
}

/// Open endpoints; they close on drop, which must precede the end of the engine.
#[derive(Debug)]
pub struct Watched {
    _socket: Option<StatisticsSocket>,
    _http: Option<HttpServer>,
}

impl WatchArgs {
    /// The endpoints that the flags of a command name.
    ///
    /// # Errors
    /// The address is reachable from other hosts and `--insecure` is not given.
    pub fn watch(&self, command: &str) -> Result<Watch, RangeError> {
        if let Some(http) = self.http
            && !self.insecure
            && !is_loopback(http)
        {
            let limit = "other hosts could read the metrics; use a loopback address such as 127.0.0.1, \
                         or give --insecure on a trusted network";
            return Err(RangeError::new("--http", http, limit));
        }
        Ok(Watch {
            command: command.to_owned(),
            stats_socket: self.stats_socket.clone(),
            http: self.http,
        })
    }
}

impl Watch {
    /// Checks before anything runs that the endpoints can be opened.
    ///
    /// # Errors
    /// They cannot; the error names the flag.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(path) = self
            .stats_socket
            .as_deref()
            .filter(|path| !is_default(path))
        {
            let folder = path.parent().filter(|folder| folder != &Path::new(""));
            let folder = folder.unwrap_or(Path::new("."));
            let refusal = || format!("--stats-socket {} cannot be opened", path.display());
            match fs::symlink_metadata(path) {
                Ok(found) if found.file_type().is_socket() => match knock(path) {
                    Ok(()) => bail!(
                        "{}: another process listens there: stop it or choose another path",
                        refusal()
                    ),
                    // Nothing listens: it is replaced.
                    Err(Errno::CONNREFUSED | Errno::NOENT) => {}
                    Err(error) => return Err(io::Error::from(error)).with_context(refusal),
                },
                Ok(_) => bail!(
                    "{}: the file is not a socket: remove it or choose another path",
                    refusal()
                ),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    access(folder, Access::WRITE_OK | Access::EXEC_OK).with_context(refusal)?;
                }
                Err(error) => return Err(error).with_context(refusal),
            }
        }
        if let Some(address) = self.http {
            let listener = TcpListener::bind(address);
            listener.map(drop).with_context(|| taken(address))?;
        }
        Ok(())
    }

    /// Removes the socket of a process that was killed, unless another engine listens there.
    pub fn remove_left(&self, process: u32) {
        let Some(path) = &self.stats_socket else {
            return;
        };
        let path = if is_default(path) {
            let Ok(own) = default_socket(&self.command) else {
                return;
            };
            own.with_file_name(format!("{}-{process}.sock", self.command))
        } else {
            path.clone()
        };
        // A connection to any other file is refused, too.
        let found = fs::symlink_metadata(&path);
        if !found.is_ok_and(|found| found.file_type().is_socket()) {
            return;
        }
        if knock(&path) == Err(Errno::CONNREFUSED) {
            // What cannot be removed is replaced by the next socket at this path.
            let _ = fs::remove_file(&path);
        }
    }

    /// Opens the endpoints.
    ///
    /// # Errors
    /// The path or the address is not available.
    pub fn open(&self, reporter: EngineReporter) -> anyhow::Result<Watched> {
        self.open_with(Arc::new(reporter), |engine| Arc::new(engine))
    }

    /// Opens the endpoints; HTTP serves what `exposed` makes of the engine's metrics.
    ///
    /// # Errors
    /// The path or the address is not available.
    pub fn open_with(
        &self,
        reporter: Arc<dyn Reporter>,
        exposed: impl FnOnce(Exposition) -> Arc<dyn Exposed>,
    ) -> anyhow::Result<Watched> {
        let socket = match &self.stats_socket {
            Some(path) => {
                let path = if is_default(path) {
                    default_socket(&self.command).context("--stats-socket")?
                } else {
                    path.clone()
                };
                let socket = StatisticsSocket::bind(path, reporter.clone());
                let socket = socket.context("--stats-socket")?;
                stop::remove_if_hung(socket.path());
                info!(target: TARGET, socket = %socket.path().display(), "farcore top can attach");
                Some(socket)
            }
            None => None,
        };
        let http = match self.http {
            Some(address) => {
                let exposed = exposed(Exposition::new(reporter));
                let server = HttpServer::bind(address, exposed);
                let server = server.with_context(|| taken(address))?;
                info!(target: TARGET, address = %server.address(), "metrics over HTTP");
                Some(server)
            }
            None => None,
        };
        Ok(Watched {
            _socket: socket,
            _http: http,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustix::net::{bind, listen};

    use super::*;
    use crate::words::describe;

    fn socket(path: &Path) -> Watch {
        Watch {
            stats_socket: Some(path.to_owned()),
            ..Watch::default()
        }
    }

    #[test]
    fn endpoints_are_checked_before_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        socket(&path).check().unwrap();
        socket(Path::new("socket")).check().unwrap();
        assert!(!path.exists(), "nothing was opened");
        fs::write(&path, "").unwrap();
        for (path, why) in [
            (path.clone(), "the file is not a socket: remove it"),
            (folder.path().join("none/socket"), "No such file"),
            (path.join("socket"), "Not a directory"),
        ] {
            let error = describe(&socket(&path).check().unwrap_err());
            let start = format!("--stats-socket {} cannot be opened: {why}", path.display());
            assert!(error.starts_with(&start), "{error}");
        }
        let path = folder.path().join("live");
        let listener = UnixListener::bind(&path).unwrap();
        let error = describe(&socket(&path).check().unwrap_err());
        let why = "another process listens there: stop it or choose another path";
        let said = format!("--stats-socket {} cannot be opened: {why}", path.display());
        assert_eq!(error, said);
        drop(listener);
        socket(&path).check().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watch = Watch {
            http: listener.local_addr().ok(),
            ..Watch::default()
        };
        let error = describe(&watch.check().unwrap_err());
        assert!(error.contains("; give --http another address: "), "{error}");
        drop(listener);
        watch.check().unwrap();
    }

    #[test]
    fn a_listener_with_a_full_queue_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let _queued = UnixStream::connect(&path).unwrap();
        assert!(socket(&path).check().is_err());
        socket(&path).remove_left(1);
        assert!(path.exists());
    }

    #[test]
    fn only_a_socket_that_nothing_listens_on_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let watch = socket(&path);
        watch.remove_left(1);
        let listener = UnixListener::bind(&path).unwrap();
        watch.remove_left(1);
        assert!(path.exists(), "another engine listens");
        drop(listener);
        watch.remove_left(1);
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        watch.remove_left(1);
        assert!(path.exists(), "a file is no socket");
    }
}
