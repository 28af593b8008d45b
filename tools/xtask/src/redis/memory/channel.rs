//! A connection that never waits, plain or encrypted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustls::ClientConnection;

/// The receive buffer of a connection that does not read all: what it does not take is to lie at
/// the server, not in the system.
const RECEIVE_BYTES: usize = 8 << 10;

/// A connection, perhaps still under way.
pub(super) struct Channel {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

fn would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Channel {
    /// Begins to connect.
    pub(super) fn begin(
        address: SocketAddr,
        tls: Option<ClientConnection>,
        reads_all: bool,
    ) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if !reads_all {
            set_socket_recv_buffer_size(&socket, RECEIVE_BYTES)?;
        }
        match connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self {
            stream: socket.into(),
            tls: tls.map(Box::new),
        })
    }

    /// The socket, to be polled.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// True while bytes of the peer are needed to go on.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// True if bytes wait for room in the socket.
    pub(super) fn has_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what fits; returns how many bytes were taken.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return Ok(would_block(self.stream.write(bytes))?.unwrap_or(0));
        };
        if tls.is_handshaking() && tls.wants_read() {
            while would_block(tls.read_tls(&mut self.stream))?.is_some_and(|read| read > 0) {
                tls.process_new_packets().map_err(io::Error::other)?;
            }
        }
        let mut taken = 0;
        loop {
            while tls.wants_write() {
                if would_block(tls.write_tls(&mut self.stream))?.is_none() {
                    return Ok(taken);
                }
            }
            if tls.is_handshaking() || taken == bytes.len() {
                return Ok(taken);
            }
            taken += tls.writer().write(&bytes[taken..])?;
        }
    }

    /// Reads into a buffer; returns how many bytes, 0 if none have come.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ended = || io::Error::from(ErrorKind::UnexpectedEof);
        let Some(tls) = &mut self.tls else {
            return match would_block(self.stream.read(buffer))? {
                Some(0) => Err(ended()),
                read => Ok(read.unwrap_or(0)),
            };
        };
        if let Some(read @ 1..) = would_block(tls.reader().read(buffer))? {
            return Ok(read);
        }
        match would_block(tls.read_tls(&mut self.stream))? {
            None => return Ok(0),
            Some(0) => return Err(ended()),
            Some(_) => {}
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        Ok(would_block(tls.reader().read(buffer))?.unwrap_or(0))
    }

    /// Ends the connection by a reset.
    pub(super) fn reset(self) {
        // It may have ended already.
        let _ = set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}
