//! A connected socket. The executor connects it and awaits it; sends and receives do not block.
//!
//! A shard polls in the middle of its work and cannot await, so it moves bytes by plain
//! non-blocking calls. A task that has nothing else to do awaits the executor's socket. One that an
//! endpoint adopts is detached from its executor: any thread may use it.
//!
//! - I1: after [`Closer::close`] and the end of the task that serves the connection, nothing more
//!   is performed for the peer.

#![allow(unsafe_code)] // receives into raw memory

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::executor::TcpStream;
use futures_lite::{AsyncReadExt, AsyncWriteExt};

use super::connection::Connection;

/// The outcome of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    Nothing,
    /// This many bytes.
    Some(usize),
}

/// Bytes of one receive, at most: this much is copied without a turn for other connections.
const RECEIVE_BYTES_MAX: usize = 512 << 10;

/// A socket of an executor, or one that was detached from it.
#[derive(Debug)]
pub(super) struct Socket<S = TcpStream> {
    line: Arc<Line>,
    stream: S,
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the peer closed the connection",
    )
}

impl Socket<TcpStream> {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let line = Line {
            revoked: AtomicBool::new(false),
            descriptor: Mutex::new(Some(stream.as_raw_fd())),
        };
        Ok(Self {
            line: Arc::new(line),
            stream,
        })
    }

    /// Detaches it from its executor. Closers stay valid.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(super) fn detach(self) -> io::Result<Socket<OwnedFd>> {
        // SAFETY: the stream keeps its descriptor open until the end of this function.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.stream.as_raw_fd()) };
        let stream = descriptor.try_clone_to_owned()?;
        let line = Arc::clone(&self.line);
        drop(self);
        *line.descriptor() = Some(stream.as_raw_fd());
        // Closed while it had no descriptor.
        if line.revoked.load(Ordering::Acquire) {
            Closer(Arc::clone(&line)).close();
        }
        Ok(Socket { line, stream })
    }

    /// Waits for bytes, and returns their number; an end of the stream is an error.
    pub(super) async fn fill(&mut self, connection: &mut Connection) -> io::Result<usize> {
        let bytes = self.stream.read(connection.spare_buffer()).await?;
        if bytes == 0 {
            return Err(closed());
        }
        connection.filled(bytes);
        Ok(bytes)
    }

    /// Waits until the socket accepts some of the output, and returns how much.
    pub(super) async fn drain(&mut self, connection: &mut Connection) -> io::Result<usize> {
        let mut piece = [0; 4 << 10];
        let bytes = connection.output.first(&mut piece);
        let sent = self.stream.write(&piece[..bytes]).await?;
        connection.output.advance(sent);
        Ok(sent)
    }

    pub(super) async fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(bytes).await
    }

    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }
}

impl Socket<OwnedFd> {
    /// The other end's address, for the log.
    pub(super) fn peer(&self) -> String {
        let peer = rustix::net::getpeername(self.stream.as_fd());
        let peer = peer.ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        peer.map_or_else(String::new, |peer| peer.to_string())
    }
}

impl<S: AsRawFd> Socket<S> {
    pub(super) fn raw(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Receives available bytes without waiting.
    ///
    /// # Errors
    /// The socket's error; the end of the stream is one.
    pub(super) fn receive(&self, connection: &mut Connection) -> io::Result<Received> {
        let (target, bytes, direct) = connection.spare();
        let bytes = bytes.min(RECEIVE_BYTES_MAX);
        if bytes == 0 {
            return Ok(Received::Nothing);
        }
        // SAFETY: the connection provided a place for this many bytes that it may write to.
        let received = unsafe { libc::recv(self.raw(), target.cast(), bytes, libc::MSG_DONTWAIT) };
        match usize::try_from(received) {
            Ok(0) => Err(closed()),
            Ok(bytes) if direct => {
                connection.filled_direct(bytes);
                Ok(Received::Some(bytes))
            }
            Ok(bytes) => {
                connection.filled(bytes);
                Ok(Received::Some(bytes))
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Received::Nothing),
                    _ => Err(error),
                }
            }
        }
    }

    /// True if the peer has closed or broken the connection, as far as is known without waiting.
    pub(super) fn is_dead(&self) -> bool {
        match self.peek() {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// True if nothing waits to be read, not even the end.
    #[cfg(feature = "verbs")]
    pub(super) fn is_silent(&self) -> bool {
        self.peek()
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// How many bytes wait, of the first; 0 at the end.
    fn peek(&self) -> io::Result<usize> {
        let mut byte = 0u8;
        // SAFETY: peeks one byte into a local variable.
        let peeked = unsafe {
            libc::recv(
                self.raw(),
                (&raw mut byte).cast(),
                1,
                libc::MSG_DONTWAIT | libc::MSG_PEEK,
            )
        };
        usize::try_from(peeked).map_err(|_| io::Error::last_os_error())
    }

    /// Makes a [`Closer`], which takes no descriptor of its own.
    pub(super) fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.line))
    }
}

impl<S> Drop for Socket<S> {
    fn drop(&mut self) {
        // Before the descriptor is closed: its number may soon be another's.
        *self.line.descriptor() = None;
    }
}

#[derive(Debug)]
struct Line {
    revoked: AtomicBool,
    /// The socket's descriptor while the socket is open.
    descriptor: Mutex<Option<RawFd>>,
}

impl Line {
    fn descriptor(&self) -> MutexGuard<'_, Option<RawFd>> {
        self.descriptor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a connection from any thread: nothing more is performed for its peer once the task that
/// serves it has ended.
#[derive(Clone, Debug)]
pub struct Closer(Arc<Line>);

impl Closer {
    /// Closes the connection. May be called again.
    pub fn close(&self) {
        // ORDERING: pairs with the Acquire in `is_closed`.
        self.0.revoked.store(true, Ordering::Release);
        let descriptor = self.0.descriptor();
        if let Some(descriptor) = *descriptor {
            // SAFETY: the socket is open, because it cannot be dropped while the lock is held. A
            // task that waits on it is woken.
            unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) };
        }
    }

    /// True once [`Closer::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.revoked.load(Ordering::Acquire)
    }
}
