//! The listening side: accepts connections, reads connect requests, and serves one-sided requests.
//!
//! Owns the listening socket and each served connection. The caller decides whom to accept.

#![allow(unsafe_code)] // hands a listening descriptor to the executor

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_lite::future::poll_once;

use crate::executor::{AcceptedTcpStream, BusyTask, TcpListener, TcpStream, Timer};

use super::connection::{Connection, HELD_BYTES_MAX, Retry, Served};
use super::exposed::Exposed;
use super::message::MessageChannel;
use super::output::Sent;
use super::socket::{Closer, Received, Socket};
use super::wire::{
    self, CONNECT_REQUEST_BYTES, ConnectRequest, PROTOCOL_VERSION, Purpose, Refusal,
};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 4096;
/// Memory of waiting output of all connections, in bytes, above which each has its least.
const HELD_BYTES_ALL: u64 = 64 << 20;
/// Waiting output that each connection may have in any case, in bytes.
const HELD_BYTES_LEAST: usize = 4 << 10;
/// Pause before a request that must be retried.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Retries of one request before the connection is closed.
const RETRIES_MAX: u32 = 5_000;
/// Rounds of a busy connection before it yields to others of its thread.
const ROUNDS: u32 = 16;
/// Bytes that it sends and receives before it yields: some 100 us.
const TURN_BYTES: usize = 512 << 10;

/// A listening address, bound on any thread.
#[derive(Debug)]
pub struct TcpAddress(std::net::TcpListener);

impl TcpAddress {
    /// Binds an address. The port is exclusive to this process: a port in use is an error, and 0
    /// means any free port.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        // Longer than the standard library's, for a crowd that arrives at once. The kernel shortens
        // it to `net.core.somaxconn`.
        // SAFETY: changes a listening socket that this owns.
        let changed = unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
        if changed < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(listener))
    }

    /// The bound address.
    ///
    /// # Errors
    /// The system's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The listening socket, for a thread that accepts.
    pub(crate) fn into_listener(self) -> std::net::TcpListener {
        self.0
    }

    /// Its only acceptor, for the calling executor.
    #[must_use]
    pub fn acceptor(self) -> TcpAcceptor {
        let socket = self.0.into_raw_fd();
        // SAFETY: a listening socket that nothing else owns.
        TcpAcceptor(unsafe { TcpListener::from_raw_fd(socket) })
    }
}

/// Accepts connections on one executor, which may pass them to others. There is one per listening
/// socket: the executor makes the socket blocking again after each accept, which would block
/// another acceptor that polls at that moment.
#[derive(Debug)]
pub struct TcpAcceptor(TcpListener);

impl TcpAcceptor {
    /// Waits for the next connection, whose request has not been read.
    ///
    /// # Errors
    /// The system's error; later connections may still be accepted.
    pub async fn accept(&self) -> io::Result<Accepted> {
        Ok(Accepted(Stream::ByExecutor(self.0.shared_accept().await?)))
    }
}

/// An accepted connection, to be moved to the executor that serves it.
#[derive(Debug)]
pub struct Accepted(Stream);

#[derive(Debug)]
enum Stream {
    ByExecutor(AcceptedTcpStream),
    ByThread(std::net::TcpStream),
}

impl From<std::net::TcpStream> for Accepted {
    fn from(stream: std::net::TcpStream) -> Self {
        Self(Stream::ByThread(stream))
    }
}

impl Accepted {
    /// Binds the connection to the calling executor.
    ///
    /// # Errors
    /// The system's error, for example because the peer has gone already.
    pub fn arrive(self) -> io::Result<Arrival> {
        let stream = match self.0 {
            Stream::ByExecutor(stream) => stream.bind_to_executor(),
            // SAFETY: a connected socket that nothing else owns.
            Stream::ByThread(stream) => unsafe { TcpStream::from_raw_fd(stream.into_raw_fd()) },
        };
        let peer = stream.peer_addr()?;
        Ok(Arrival {
            socket: Socket::new(stream)?,
            peer,
        })
    }
}

/// A connection that has sent nothing yet.
#[derive(Debug)]
pub struct Arrival {
    socket: Socket,
    peer: SocketAddr,
}

impl Arrival {
    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection with its request, which another has read.
    pub(crate) fn requested(self, request: ConnectRequest) -> Incoming {
        Incoming {
            socket: self.socket,
            peer: self.peer,
            request,
        }
    }

    /// The connection as a channel of messages; another has accepted its request.
    pub(crate) fn into_channel(self) -> MessageChannel {
        MessageChannel::new(self.socket)
    }

    /// Waits for the connect request; has no time limit of its own. Refuses a client of another
    /// version.
    ///
    /// # Errors
    /// The system's error, or that the bytes are not a connect request.
    pub async fn request(mut self) -> io::Result<Incoming> {
        let mut bytes = [0; CONNECT_REQUEST_BYTES];
        self.socket.read_exact(&mut bytes).await?;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let request = wire::decode_request(&bytes).map_err(invalid)?;
        let incoming = Incoming {
            socket: self.socket,
            peer: self.peer,
            request,
        };
        if request.version != PROTOCOL_VERSION {
            incoming.reject(Refusal::Version(PROTOCOL_VERSION)).await;
            let what = format!(
                "the client speaks version {} of the wire format, and this side version {PROTOCOL_VERSION}",
                request.version
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(incoming)
    }
}

/// A connection whose request was read.
#[derive(Debug)]
pub struct Incoming {
    socket: Socket,
    peer: SocketAddr,
    request: ConnectRequest,
}

impl Incoming {
    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &ConnectRequest {
        &self.request
    }

    /// Refuses the connection and sends the reason.
    pub async fn reject(mut self, refusal: Refusal) {
        // A peer that has gone misses the reason.
        let _ = self
            .socket
            .write_all(&wire::encode_reply(Some(refusal)))
            .await;
    }

    async fn accept(mut self) -> io::Result<Socket> {
        self.socket.write_all(&wire::encode_reply(None)).await?;
        Ok(self.socket)
    }

    /// Accepts it as a queue pair whose peer may access `exposed`.
    ///
    /// # Errors
    /// The system's error.
    pub async fn accept_memory(
        self,
        exposed: Exposed,
        metrics: Arc<ServedMetrics>,
    ) -> io::Result<ServedQueue> {
        let closer = self.socket.closer();
        Ok(ServedQueue {
            socket: self.accept().await?,
            connection: Connection::new(0, exposed),
            closer,
            metrics,
            held_bytes: 0,
            turn: Turn::WHOLE,
            task: BusyTask::new(),
        })
    }

    /// Accepts it as the line beside a queue pair. Also returns a [`Closer`] for it.
    ///
    /// # Errors
    /// The system's error.
    #[cfg(feature = "verbs")]
    pub(crate) async fn accept_line(self) -> io::Result<(super::Exchange, Closer)> {
        let closer = self.socket.closer();
        Ok((super::connect::Exchange(self.accept().await?), closer))
    }

    /// Accepts it as an equal peer, to be adopted by an endpoint.
    ///
    /// # Errors
    /// The system's error, or that its purpose is not [`Purpose::Peer`].
    pub async fn accept_peer(self) -> io::Result<super::Connected> {
        let socket = self.accept_for_peer().await?;
        Ok(super::Connected(socket.detach()?))
    }

    /// Accepts it as an equal peer, to exchange facts over it.
    ///
    /// # Errors
    /// As [`Incoming::accept_peer`].
    #[cfg(feature = "verbs")]
    pub(crate) async fn accept_exchange(self) -> io::Result<super::Exchange> {
        Ok(super::connect::Exchange(self.accept_for_peer().await?))
    }

    async fn accept_for_peer(self) -> io::Result<Socket> {
        if self.request.purpose != Purpose::Peer {
            self.reject(Refusal::Purpose).await;
            return Err(io::Error::other(
                "the connection was not requested for a peer",
            ));
        }
        self.accept().await
    }
}

/// Requests performed for peers, over any number of queue pairs, and the memory that their waiting
/// output takes. Relaxed counters: any thread reads them.
#[derive(Debug, Default)]
pub struct ServedMetrics {
    held_bytes: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    atomics: AtomicU64,
    refused: AtomicU64,
}

impl ServedMetrics {
    fn add(&self, served: Served) {
        for (figure, more) in [
            (&self.reads, served.reads),
            (&self.read_bytes, served.read_bytes),
            (&self.writes, served.writes),
            (&self.write_bytes, served.write_bytes),
            (&self.atomics, served.atomics),
            (&self.refused, served.refused),
        ] {
            if more > 0 {
                figure.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// Memory that waiting output takes now, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The limit on waiting output of a connection: less if all connections together have used
    /// their budget.
    fn held_max(&self) -> usize {
        if self.held_bytes() > HELD_BYTES_ALL {
            HELD_BYTES_LEAST
        } else {
            HELD_BYTES_MAX
        }
    }

    /// The sums so far.
    #[must_use]
    pub fn sum(&self) -> Served {
        Served {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
            atomics: self.atomics.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// What a connection may still do before it yields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Turn {
    rounds: u32,
    bytes: usize,
}

impl Turn {
    const WHOLE: Self = Self {
        rounds: ROUNDS,
        bytes: TURN_BYTES,
    };

    fn round(&mut self) {
        self.rounds -= 1;
    }

    fn moved(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_over(self) -> bool {
        self.rounds == 0 || self.bytes == 0
    }
}

/// A queue pair whose peer's one-sided requests are performed by this process.
#[derive(Debug)]
pub struct ServedQueue {
    socket: Socket,
    connection: Connection,
    closer: Closer,
    metrics: Arc<ServedMetrics>,
    /// Its share of the held bytes in the metrics.
    held_bytes: u64,
    turn: Turn,
    task: BusyTask,
}

impl ServedQueue {
    /// Closes it from any thread.
    #[must_use]
    pub fn closer(&self) -> Closer {
        self.closer.clone()
    }

    /// Performs the peer's requests until either side ends it. Nothing is performed after this
    /// returned.
    ///
    /// # Errors
    /// Why it ended, unless the peer closed it cleanly or [`Closer::close`] did.
    pub async fn serve(mut self) -> io::Result<()> {
        let mut retries = 0;
        loop {
            if self.closer.is_closed() {
                return Ok(());
            }
            let understood = self.connection.process_within(self.metrics.held_max());
            self.count();
            understood.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if !self.send().await? || self.connection.is_over() {
                return Ok(());
            }
            self.turn.round();
            if self.turn.is_over() {
                self.yield_now().await;
            }
            match self.connection.retry() {
                Some(Retry::Later) => {
                    retries += 1;
                    if retries == RETRIES_MAX {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    Timer::new(RETRY_PAUSE).await;
                    continue;
                }
                Some(Retry::NextTurn) => {
                    retries = 0;
                    self.yield_now().await;
                    continue;
                }
                None => retries = 0,
            }
            if self.connection.is_held() {
                continue;
            }
            // A long payload is received in place, as far as it has arrived.
            let direct = self.connection.spare().2;
            let received = match direct {
                true => self.socket.receive(&mut self.connection)?,
                false => Received::Nothing,
            };
            let bytes = match received {
                Received::Some(bytes) => bytes,
                Received::Nothing => {
                    self.connection.shrink();
                    match self.fill().await {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                        filled => filled?,
                    }
                }
            };
            self.turn.moved(bytes);
        }
    }

    /// Receives bytes, and returns their number. Others had their turn if it waited.
    async fn fill(&mut self) -> io::Result<usize> {
        let mut fill = pin!(self.socket.fill(&mut self.connection));
        if let Some(filled) = poll_once(fill.as_mut()).await {
            return filled;
        }
        let filled = fill.await;
        self.turn = Turn::WHOLE;
        self.task.has_waited();
        filled
    }

    /// Lets the other connections of this thread have their turn. Awaiting the socket does not: one
    /// that is ready is used at once.
    async fn yield_now(&mut self) {
        self.task.yield_now().await;
        self.turn = Turn::WHOLE;
    }

    /// Sends all output; false if the connection was closed meanwhile.
    async fn send(&mut self) -> io::Result<bool> {
        loop {
            let (socket, budget) = (self.socket.raw(), &mut self.turn.bytes);
            let sent = self.connection.output.send_within(socket, budget)?;
            self.count();
            match sent {
                Sent::All => return Ok(true),
                Sent::Budget => self.yield_now().await,
                Sent::Blocked => {
                    let bytes = self.socket.drain(&mut self.connection).await?;
                    self.turn.moved(bytes);
                }
            }
            if self.closer.is_closed() {
                return Ok(false);
            }
        }
    }

    /// Adds what was performed since the last call to the metrics.
    fn count(&mut self) {
        self.metrics.add(self.connection.take_served());
        let held_bytes = self.connection.held_bytes() as u64;
        let before = std::mem::replace(&mut self.held_bytes, held_bytes);
        if held_bytes != before {
            // Wraps around for less: the sum is right.
            let more = held_bytes.wrapping_sub(before);
            self.metrics.held_bytes.fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl Drop for ServedQueue {
    fn drop(&mut self) {
        self.count();
        let held = &self.metrics.held_bytes;
        held.fetch_sub(self.held_bytes, Ordering::Relaxed);
    }
}
