//! The connecting side: resolves names, connects, and sends the connect request.
//!
//! Owns nothing after it returned: a connection goes to a [`MessageChannel`] or, as [`Connected`],
//! to an endpoint.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use farcore_tuning::entropy_u32;

use crate::executor::{TcpStream, Timer, spawn_blocking};

use super::message::MessageChannel;
use super::socket::Socket;
use super::wire::{self, CONNECT_REPLY_BYTES, ConnectRequest, Purpose, Refusal};

/// Attempts to connect to a peer that drops connections.
const ATTEMPTS: u32 = 8;
/// The pause after the first attempt; it doubles with each further one: about 2 s in all.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// An established connection, to be adopted by an endpoint on any thread.
#[derive(Debug)]
pub struct Connected(pub(super) Socket<OwnedFd>);

impl Connected {
    /// True if the peer has closed it, as far as is known without waiting.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.0.is_dead()
    }

    /// True if the peer has neither closed it nor sent anything that was not read.
    #[cfg(feature = "verbs")]
    pub(crate) fn is_silent(&self) -> bool {
        self.0.is_silent()
    }

    /// The socket.
    #[cfg(feature = "verbs")]
    pub(crate) fn raw(&self) -> std::os::fd::RawFd {
        self.0.raw()
    }
}

/// An established connection on its executor, for bytes exchanged before both sides are a queue
/// pair, or beside it.
#[cfg(feature = "verbs")]
#[derive(Debug)]
pub(crate) struct Exchange(pub(super) Socket);

#[cfg(feature = "verbs")]
impl Exchange {
    pub(crate) async fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(bytes).await
    }

    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Waits until either side closes it. A peer that sends anything more violates the protocol,
    /// which ends it too.
    pub(crate) async fn ended(&mut self) {
        let _ = self.0.read_exact(&mut [0]).await;
    }

    /// The connection, once all bytes are exchanged.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn connected(self) -> io::Result<Connected> {
        self.0.detach().map(Connected)
    }
}

/// Why a connection could not be established.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name cannot be resolved.
    #[error("{address}: {source}")]
    Resolve {
        /// The host and port.
        address: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The network or the peer's kernel refused, or the connection broke.
    #[error("{address}: {source}")]
    Io {
        /// The peer's address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The peer did not answer in time.
    #[error("{address}: no answer within {} ms", limit.as_millis())]
    TimedOut {
        /// The peer's address.
        address: SocketAddr,
        /// The time limit.
        limit: Duration,
    },
    /// The peer refused and gave a reason.
    #[error("{address}: {refusal}")]
    Refused {
        /// The peer's address.
        address: SocketAddr,
        /// The reason.
        refusal: Refusal,
    },
}

/// Resolves `host:port` without blocking the executor.
///
/// # Errors
/// [`ConnectError::Resolve`].
pub async fn resolve(host: &str, port: u16) -> Result<SocketAddr, ConnectError> {
    if let Ok(address) = host.parse() {
        return Ok(SocketAddr::new(address, port));
    }
    let name = host.to_owned();
    let found = spawn_blocking(move || {
        (name.as_str(), port)
            .to_socket_addrs()
            .map(|mut all| all.next())
    })
    .await;
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    found
        .and_then(|address| address.ok_or_else(none))
        .map_err(|source| ConnectError::Resolve {
            address: format!("{host}:{port}"),
            source,
        })
}

/// Whether the peer closed the connection without a word, as a node does that has no place for a
/// connection that has proved nothing. A later attempt may find one.
pub(crate) fn is_dropped(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}

/// The pauses between the attempts to reach a peer that drops connections.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
    (1..ATTEMPTS).map(|attempt| spread(PAUSE_MIN * 2u32.pow(attempt - 1)))
}

/// A pause of up to twice as long, drawn so that clients that failed together do not return
/// together.
fn spread(pause: Duration) -> Duration {
    // Without random numbers, clients only return together.
    let part = entropy_u32().map_or(0.5, |drawn| f64::from(drawn) / f64::from(u32::MAX));
    pause.mul_f64(1.0 + part)
}

/// Connects, and retries with growing pauses if the peer drops the connection.
async fn connect(
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Socket, ConnectError> {
    let work = async {
        for pause in pauses() {
            match connect_once(address, request).await {
                Err(ConnectError::Io { source, .. }) if is_dropped(&source) => {
                    Timer::new(pause).await;
                }
                done => return done,
            }
        }
        connect_once(address, request).await
    };
    futures_lite::future::or(work, async {
        Timer::new(limit).await;
        Err(ConnectError::TimedOut { address, limit })
    })
    .await
}

async fn connect_once(
    address: SocketAddr,
    request: &ConnectRequest,
) -> Result<Socket, ConnectError> {
    let io = |source| ConnectError::Io { address, source };
    let stream = TcpStream::connect(address)
        .await
        .map_err(|e| io(e.into()))?;
    let mut socket = Socket::new(stream).map_err(io)?;
    socket
        .write_all(&wire::encode_request(request))
        .await
        .map_err(io)?;
    let mut reply = [0; CONNECT_REPLY_BYTES];
    socket.read_exact(&mut reply).await.map_err(io)?;
    let invalid = |error| io(io::Error::new(io::ErrorKind::InvalidData, error));
    match wire::decode_reply(&reply).map_err(invalid)? {
        None => Ok(socket),
        Some(refusal) => Err(ConnectError::Refused { address, refusal }),
    }
}

/// Connects for messages of the control protocol.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect_control(
    address: SocketAddr,
    limit: Duration,
) -> Result<MessageChannel, ConnectError> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_inside() {
        return crate::simulation::connect_control(address, limit).await;
    }
    let request = ConnectRequest::new(Purpose::Control);
    let socket = connect(address, &request, limit).await?;
    Ok(MessageChannel::connected(socket, address, limit))
}

/// Connects a queue pair: for one-sided requests at a memory node, or with an equal peer.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect_queue(
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Connected, ConnectError> {
    let socket = connect(address, request, limit).await?;
    let detached = socket.detach();
    detached
        .map(Connected)
        .map_err(|source| ConnectError::Io { address, source })
}

/// Connects for an exchange of facts.
///
/// # Errors
/// [`ConnectError`].
#[cfg(feature = "verbs")]
pub(crate) async fn connect_exchange(
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Exchange, ConnectError> {
    connect(address, request, limit).await.map(Exchange)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A peer that drops `drops` connections before it answers.
    fn peer(drops: u32) -> (SocketAddr, thread::JoinHandle<u32>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let mut dropped = 0;
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if dropped == drops {
                    let mut request = [0; wire::CONNECT_REQUEST_BYTES];
                    stream.read_exact(&mut request).unwrap();
                    stream.write_all(&wire::encode_reply(None)).unwrap();
                    break;
                }
                dropped += 1;
                if dropped == ATTEMPTS {
                    break;
                }
            }
            dropped
        };
        (address, thread::spawn(serve))
    }

    #[test]
    fn a_dropped_connection_is_retried_and_not_for_ever() {
        let limit = Duration::from_secs(60);
        crate::run_local(async {
            let (address, peer_ends) = peer(3);
            connect_control(address, limit)
                .await
                .expect("a later attempt");
            assert_eq!(peer_ends.join().unwrap(), 3);
            let (address, peer_ends) = peer(u32::MAX);
            let dropped = |error| match error {
                ConnectError::Io { source, .. } => is_dropped(&source),
                _ => false,
            };
            let error = connect_control(address, limit).await.unwrap_err();
            assert!(dropped(error));
            assert_eq!(peer_ends.join().unwrap(), ATTEMPTS);
            // A port where nothing listens is no dropped connection.
            let error = connect_control(address, limit).await.unwrap_err();
            assert!(!dropped(error));
        })
        .expect("an executor");
    }
}
