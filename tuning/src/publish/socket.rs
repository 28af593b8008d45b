//! The statistics socket: a client that may open the file receives the current figures.
//!
//! A Unix stream socket, served by its own thread. Each connection receives one [`Report`] as JSON,
//! then the end of the stream; nothing is read from it.
//!
//! - I1: only the owner can open the file (mode 0600) from the moment that it exists.
//! - I2: a connection lives no longer than [`Limits::connection`], and there are at most
//!   [`Limits::connections_max`]. The oldest is dropped for the next one, so that clients that do
//!   not read lock no other client out.
//! - I3: a file is removed only if no process answers behind it, and at the end only if it is still
//!   this socket's.
//!
//! [`Report`]: crate::Report

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen, send,
    socket_with,
};

use crate::publish::attach;
use crate::publish::report::Reporter;

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 16;
/// Time limit for the probe whether a process listens at a path.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits on the socket's connections.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Most connections at a time.
    connections_max: usize,
    /// Longest lifetime of a connection.
    connection: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 16,
            connection: Duration::from_secs(5),
        }
    }
}

/// A socket that serves a [`Reporter`]'s figures; [`read_report`](crate::read_report) is the other
/// end. Dropping it removes its file.
#[derive(Debug)]
pub struct StatisticsSocket {
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// Closing it ends the thread.
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl StatisticsSocket {
    /// Opens a socket at a path, replacing one that a dead process left there. The thread that
    /// serves it inherits the caller's affinity: call this from a thread that is not pinned to an
    /// engine's core. The reporter is called only when a client connects.
    ///
    /// # Errors
    /// A living process listens at the path (`AddrInUse`), the path is not a socket
    /// (`AlreadyExists`), it is too long for a socket (107 bytes; `InvalidInput`), its folder
    /// cannot be written, or the thread cannot be started.
    pub fn bind(path: impl Into<PathBuf>, reporter: Arc<dyn Reporter>) -> io::Result<Self> {
        Self::bind_within(path.into(), reporter, Limits::default())
    }

    fn bind_within(path: PathBuf, reporter: Arc<dyn Reporter>, limits: Limits) -> io::Result<Self> {
        let listener = bind_path(&path)?;
        let file = fs::symlink_metadata(&path)?;
        let (end, ended) = UnixStream::pair()?;
        let thread = thread::Builder::new()
            .name("statistics".to_owned())
            .spawn(move || serve(&listener, &ended, &*reporter, limits));
        let mut socket = Self {
            path,
            identity: (file.dev(), file.ino()),
            end: Some(end),
            thread: None,
        };
        socket.thread = Some(thread?);
        Ok(socket)
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StatisticsSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.identity)
        {
            // A file that cannot be removed is replaced by the next socket at this path.
            let _ = fs::remove_file(&self.path);
        }
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported its panic.
            let _ = thread.join();
        }
    }
}

fn failure(path: &Path, error: &io::Error, what: &str) -> io::Error {
    let path = path.display();
    io::Error::new(error.kind(), format!("{what} {path}: {error}"))
}

/// Binds the path, replacing a socket that no process listens on.
fn bind_path(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path).map_err(|_| {
        let (path, length) = (path.display(), path.as_os_str().len());
        let message = format!(
            "{path}: a socket's path is at most 107 bytes long, this one is {length}: choose a shorter path"
        );
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // Linux creates the file with the mode that the socket has before it is bound.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let mut bound = bind(&socket, &address);
    if bound == Err(rustix::io::Errno::ADDRINUSE) {
        remove_stale(path)?;
        bound = bind(&socket, &address);
    }
    bound.map_err(|error| failure(path, &error.into(), "cannot open a socket at"))?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let shown = path.display();
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        let message =
            format!("{shown} exists and is not a socket: remove it or choose another path");
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match attach::open(path, PROBE_LIMIT) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| failure(path, &error, "cannot replace"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failure(
            path,
            &error,
            "cannot tell which process listens at",
        )),
        Ok(_) => {
            let message = format!(
                "another process serves statistics at {shown}: stop it or choose another path"
            );
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
    }
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    text: Vec<u8>,
    sent: usize,
    deadline: Instant,
}

impl Client {
    /// Sends what the kernel accepts. False once the text is sent or the reader has gone.
    fn goes_on(&mut self) -> bool {
        while self.sent < self.text.len() {
            match send(&self.stream, &self.text[self.sent..], SendFlags::NOSIGNAL) {
                Ok(0) => return false,
                Ok(sent) => self.sent += sent,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return error == rustix::io::Errno::AGAIN,
            }
        }
        false
    }
}

/// Waits for an event: the end, a connection, room in a reader's buffer, or a deadline. False at
/// the end.
fn wait(listener: &UnixListener, ended: &UnixStream, clients: &VecDeque<Client>) -> bool {
    let mut waits = vec![
        PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
    ];
    waits.extend(
        clients
            .iter()
            .map(|client| PollFd::from_borrowed_fd(client.stream.as_fd(), PollFlags::OUT)),
    );
    // The oldest client has the first deadline.
    let left = clients.front().map(|oldest| {
        let left = oldest.deadline.saturating_duration_since(Instant::now());
        Timespec::try_from(left + Duration::from_millis(1)).unwrap_or_default()
    });
    // An interrupted wait counts as one without an event.
    let _ = poll(&mut waits, left.as_ref());
    waits[0].revents().is_empty()
}

fn serve(listener: &UnixListener, ended: &UnixStream, reporter: &dyn Reporter, limits: Limits) {
    let mut clients: VecDeque<Client> = VecDeque::new();
    while wait(listener, ended, &clients) {
        let now = Instant::now();
        clients.retain_mut(|client| client.deadline > now && client.goes_on());
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => {
                // For example out of descriptors. Open connections go on.
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let (Ok(()), Ok(text)) = (
            stream.set_nonblocking(true),
            serde_json::to_vec(&reporter.report()),
        ) else {
            continue;
        };
        let mut client = Client {
            stream,
            text,
            sent: 0,
            deadline: now + limits.connection,
        };
        if client.goes_on() {
            if clients.len() >= limits.connections_max {
                clients.pop_front();
            }
            clients.push_back(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::publish::attach::{ReadError, read_report};
    use crate::publish::report::{CoreReport, Report};

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(1 << 20);

    /// A report longer than any socket buffer.
    #[derive(Debug)]
    struct Long;

    impl Reporter for Long {
        fn report(&self) -> Report {
            Report {
                format: Report::FORMAT,
                cores: vec![CoreReport::default(); 1000],
                ..Report::default()
            }
        }
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("farcore-socket-{name}-{}", std::process::id()))
    }

    fn open(path: &Path, limits: Limits) -> StatisticsSocket {
        StatisticsSocket::bind_within(path.to_owned(), Arc::new(Long), limits).expect("a socket")
    }

    #[test]
    fn every_reader_receives_the_figures_until_the_socket_is_dropped() {
        let path = path("asks");
        let socket = open(&path, Limits::default());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for _ in 0..3 {
            assert_eq!(read_report(&path).unwrap().cores.len(), 1000);
        }
        drop(socket);
        assert!(matches!(read_report(&path), Err(ReadError::Absent { .. })));
    }

    #[test]
    fn a_dead_process_is_replaced_and_a_living_one_is_not() {
        let path = path("dead");
        // A listener's file outlives it.
        drop(UnixListener::bind(&path).unwrap());
        let socket = open(&path, Limits::default());
        let refused = StatisticsSocket::bind(&path, Arc::new(Long)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
        assert!(refused.to_string().contains("another path"), "{refused}");
        assert!(read_report(&path).is_ok(), "the first one goes on");
        drop(socket);

        fs::write(&path, "precious").unwrap();
        let refused = StatisticsSocket::bind(&path, Arc::new(Long)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();

        let long = path.with_file_name("x".repeat(200));
        let refused = StatisticsSocket::bind(long, Arc::new(Long)).unwrap_err();
        assert!(refused.to_string().contains("107"), "{refused}");
    }

    #[test]
    fn a_file_of_another_process_stays() {
        let path = path("stays");
        let socket = open(&path, Limits::default());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(socket);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }

    /// Whether the whole report arrived.
    fn whole(mut stream: UnixStream) -> bool {
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text);
        read.is_ok() && serde_json::from_slice::<Report>(&text).is_ok()
    }

    #[test]
    fn clients_that_do_not_read_are_dropped() {
        let path = path("silent");
        let limits = Limits {
            connection: Duration::from_millis(50),
            ..Limits::default()
        };
        let socket = open(&path, limits);
        let silent = UnixStream::connect(&path).unwrap();
        // The kernel reports the peer's end; bytes in the buffer can still be read.
        let mut gone = [PollFd::from_borrowed_fd(silent.as_fd(), PollFlags::RDHUP)];
        poll(&mut gone, None).unwrap();
        assert!(!whole(silent));
        drop(socket);
    }

    #[test]
    fn clients_that_do_not_read_lock_no_other_out() {
        let path = path("crowd");
        let limits = Limits {
            connections_max: 4,
            connection: LONG,
        };
        let socket = open(&path, limits);
        let mut crowd = Vec::new();
        for _ in 0..8 {
            crowd.extend((0..3).map(|_| UnixStream::connect(&path).unwrap()));
            assert!(read_report(&path).is_ok());
        }
        // All but the last few were dropped, and the end waits for none.
        crowd.truncate(crowd.len() - 4);
        assert!(crowd.into_iter().all(|one| !whole(one)));
        drop(socket);
    }
}
