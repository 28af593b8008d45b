//! The socket between a source and a replica, whose bytes are encrypted or not.
//!
//! - I1: what was sealed is sent before more is sealed, so a session holds one piece at most.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::PollFlags;

use crate::conn::tls::{SEALED_BYTES_MAX, TlsSession};

/// Encrypted bytes that are received at once.
const RECEIVE_BYTES: usize = 64 << 10;

/// A socket, and its session if it is encrypted.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: TcpStream,
    session: Option<Box<Session>>,
}

#[derive(Debug)]
struct Session {
    tls: Box<TlsSession>,
    received: Vec<u8>,
    /// Plain bytes, and how many of them are read.
    opened: Vec<u8>,
    read: usize,
}

impl Wire {
    /// A socket that does not block.
    pub(crate) fn new(socket: TcpStream, tls: Option<Box<TlsSession>>) -> Self {
        let session = tls.map(|tls| {
            Box::new(Session {
                tls,
                received: vec![0; RECEIVE_BYTES],
                opened: Vec::new(),
                read: 0,
            })
        });
        Self { socket, session }
    }

    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.session.is_some()
    }

    /// True while both ends of an encrypted connection agree on keys.
    pub(super) fn is_opening(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| !session.tls.is_established())
    }

    /// What is waited for at the socket, if more is to be received or sent.
    pub(super) fn interest(&self, receives: bool, sends: bool) -> (BorrowedFd<'_>, PollFlags) {
        let session = self.session.as_ref();
        let is_sealed = session.is_some_and(|session| session.tls.waiting_bytes() > 0);
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, receives || self.is_opening());
        flags.set(PollFlags::OUT, is_sealed || sends && !self.is_opening());
        (self.socket.as_fd(), flags)
    }

    /// Sends what was sealed, as far as the socket takes it. True if nothing of it waits.
    pub(super) fn send_sealed(&mut self) -> io::Result<bool> {
        match self.flush() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until both ends of an encrypted connection have agreed on keys. The socket blocks.
    ///
    /// # Errors
    /// They do not, or the connection ends.
    pub(super) fn establish(&mut self) -> io::Result<()> {
        while self.is_opening() {
            self.flush()?;
            if !self.receive()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        self.flush()
    }

    /// Receives and opens encrypted bytes. False at the end of the connection.
    fn receive(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.session else {
            return Ok(false);
        };
        let received = self.socket.read(&mut session.received)?;
        if received == 0 {
            return Ok(false);
        }
        let bytes = &session.received[..received];
        let opened = session.tls.open(bytes, &mut session.opened);
        // Messages of the handshake, or why it fails.
        self.send_sealed()?;
        opened?;
        Ok(true)
    }

    /// Ends the connection, and says so to the other end if it takes that at once.
    pub(super) fn close(&mut self) {
        if let Some(session) = &mut self.session
            && session.tls.waiting_bytes() == 0
        {
            session.tls.end();
            // The other end may be gone.
            let _ = self.flush();
        }
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Session {
    /// Moves opened bytes; 0 if there are none.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let rest = &self.opened[self.read..];
        let bytes = rest.len().min(into.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.read += bytes;
        if self.read == self.opened.len() {
            self.opened.clear();
            self.read = 0;
        }
        bytes
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(session) = &mut self.session else {
                return self.socket.read(into);
            };
            let bytes = session.take(into);
            if bytes > 0 || session.tls.is_ended() {
                return Ok(bytes);
            }
            if !self.receive()? {
                return Ok(0);
            }
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let Some(session) = &mut self.session else {
            return self.socket.write(bytes);
        };
        let sealed = session.tls.seal(&[IoSlice::new(bytes)], SEALED_BYTES_MAX)?;
        if sealed == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.send_sealed()?;
        Ok(sealed)
    }

    /// Sends what was sealed.
    fn flush(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        while session.tls.waiting_bytes() > 0 {
            match self.socket.write(session.tls.outgoing()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => session.tls.sent(sent),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
