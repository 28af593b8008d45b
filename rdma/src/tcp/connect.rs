//! The connecting side: resolves names, connects, and sends the connect request.
//!
//! Owns nothing after it returned: a connection goes to a [`MessageChannel`] or, as [`Connected`],
//! to an endpoint.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::executor::{TcpStream, Timer, spawn_blocking};

use super::message::MessageChannel;
use super::socket::Socket;
use super::wire::{self, CONNECT_REPLY_BYTES, ConnectRequest, Purpose, Refusal};

/// An established connection, to be adopted by an endpoint.
#[derive(Debug)]
pub struct Connected(pub(super) Socket);

impl Connected {
    /// True if the peer has closed it, as far as is known without waiting.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.0.is_dead()
    }

    /// For bytes exchanged before both sides are a queue pair, or instead of it.
    #[cfg(feature = "verbs")]
    pub(crate) async fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(bytes).await
    }

    /// Waits until either side closes it. A peer that sends anything more violates the protocol,
    /// which ends it too.
    #[cfg(feature = "verbs")]
    pub(crate) async fn ended(&mut self) {
        let _ = self.0.read_exact(&mut [0]).await;
    }

    #[cfg(feature = "verbs")]
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
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

async fn connect(
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Socket, ConnectError> {
    let io = |source| ConnectError::Io { address, source };
    let work = async {
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
    };
    futures_lite::future::or(work, async {
        Timer::new(limit).await;
        Err(ConnectError::TimedOut { address, limit })
    })
    .await
}

/// Connects for messages of the control protocol.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect_control(
    address: SocketAddr,
    limit: Duration,
) -> Result<MessageChannel, ConnectError> {
    let request = ConnectRequest::new(Purpose::Control);
    Ok(MessageChannel::new(
        connect(address, &request, limit).await?,
    ))
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
    connect(address, request, limit).await.map(Connected)
}
