//! A channel of messages, the transport of the control protocol.
//!
//! Each message is its length as a 32-bit little-endian word, then that many bytes, at most
//! [`MESSAGE_BYTES_MAX`]. Owns the socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::connect::{ConnectError, connect_control};
use super::socket::Socket;

/// The longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// What carries the messages.
#[derive(Debug)]
enum Transport {
    Socket(Socket),
    #[cfg(feature = "simulation")]
    Pipe(crate::simulation::Pipe),
}

/// Sends and receives messages in order. Dropping a call in progress leaves the channel unusable.
#[derive(Debug)]
pub struct MessageChannel {
    transport: Transport,
    /// Where this side connected to, and the limit on the time for that.
    connected: Option<(SocketAddr, Duration)>,
}

impl MessageChannel {
    /// A channel that a peer connected.
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            transport: Transport::Socket(socket),
            connected: None,
        }
    }

    /// A channel that this side connected.
    pub(super) fn connected(socket: Socket, address: SocketAddr, limit: Duration) -> Self {
        Self {
            transport: Transport::Socket(socket),
            connected: Some((address, limit)),
        }
    }

    /// A channel of a simulated world.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(
        pipe: crate::simulation::Pipe,
        connected: Option<(SocketAddr, Duration)>,
    ) -> Self {
        Self {
            transport: Transport::Pipe(pipe),
            connected,
        }
    }

    /// Another channel to the same peer; `None` if the peer connected this one.
    pub(crate) async fn reconnected(&self) -> Option<Result<Self, ConnectError>> {
        let (address, limit) = self.connected?;
        Some(connect_control(address, limit).await)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The system's error, or that the message is too long.
    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).ok();
        let Some(length) = length.filter(|_| message.len() <= MESSAGE_BYTES_MAX) else {
            let what = format!(
                "a message of {} bytes: the limit is {MESSAGE_BYTES_MAX}",
                message.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        match &mut self.transport {
            Transport::Socket(socket) => {
                let mut bytes = Vec::with_capacity(4 + message.len());
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.extend_from_slice(message);
                socket.write_all(&bytes).await
            }
            #[cfg(feature = "simulation")]
            Transport::Pipe(pipe) => pipe.send(message),
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// The system's error, the end of the stream, or a length beyond the limit.
    pub async fn receive(&mut self) -> io::Result<Vec<u8>> {
        #[cfg_attr(
            not(feature = "simulation"),
            expect(
                clippy::infallible_destructuring_match,
                reason = "a simulation has a second kind"
            )
        )]
        let socket = match &mut self.transport {
            Transport::Socket(socket) => socket,
            #[cfg(feature = "simulation")]
            Transport::Pipe(pipe) => return pipe.receive().await,
        };
        let mut length = [0; 4];
        socket.read_exact(&mut length).await?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            let what = format!("a message of {length} bytes: the limit is {MESSAGE_BYTES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut message = vec![0; length];
        socket.read_exact(&mut message).await?;
        Ok(message)
    }
}
