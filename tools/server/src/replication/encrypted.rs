//! An encrypted connection to a server, for a program that waits for each reply.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::wire::Wire;
use crate::conn::tls::{self, TlsSession};
use crate::options::TlsClientOptions;

/// A connection to a server whose bytes are encrypted.
#[derive(Debug)]
pub struct EncryptedStream(Wire);

impl EncryptedStream {
    /// Encrypts a connection to a host, for which the certificate of the other end must be. The
    /// socket blocks, or has limits on time.
    ///
    /// # Errors
    /// A file cannot be used, both ends do not agree, or the connection ends.
    pub fn to(host: &str, socket: TcpStream, options: &TlsClientOptions) -> io::Result<Self> {
        let config = tls::load_client(options).map_err(io::Error::other)?;
        let session = TlsSession::to(host, &config)?;
        let mut wire = Wire::new(socket, Some(Box::new(session)));
        wire.establish()?;
        Ok(Self(wire))
    }
}

impl Read for EncryptedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for EncryptedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
