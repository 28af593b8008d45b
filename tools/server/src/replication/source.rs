//! The connection to a source: bytes in and out, with a limit on its silence.

use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::error::LinkError;
use super::input::Input;
use super::stop::Stop;
use super::unsent::Unsent;
use super::wire::Wire;
use crate::conn::tls::{TlsClientConfig, TlsSession};

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// Silence that ends an encrypted link before both ends have agreed on keys: what accepts no
/// encrypted connections may wait for more.
const OPENING_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a line of the handshake, at most.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Adds a command as it is sent.
pub(super) fn write_command(words: &[&[u8]], into: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    let mut head = |kind, count: usize, into: &mut Vec<u8>| {
        into.push(kind);
        into.extend_from_slice(digits.format(count).as_bytes());
        into.extend_from_slice(b"\r\n");
    };
    head(b'*', words.len(), into);
    for word in words {
        head(b'$', word.len(), into);
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

/// The connection to a source.
#[derive(Debug)]
pub(super) struct Source {
    wire: Wire,
    stop: Arc<Stop>,
    /// How long it may be silent.
    limit: Duration,
    heard: Instant,
    unsent: Unsent,
    buffer: Box<[u8]>,
    pub(super) input: Input,
}

impl Source {
    /// Connects to a host, encrypted if `tls` says how.
    pub(super) fn connect(
        (host, port): (&str, u16),
        tls: Option<&TlsClientConfig>,
        limit: Duration,
        stop: &Arc<Stop>,
    ) -> Result<Self, LinkError> {
        let mut failed = None;
        for address in (host, port).to_socket_addrs()? {
            match connect_to(address, limit, stop) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    let session = tls.map(|config| TlsSession::to(host, config).map(Box::new));
                    let session = session.transpose().map_err(LinkError::Tls)?;
                    return Ok(Self::new(Wire::new(socket, session), limit, stop));
                }
                Err(_) if stop.is_set() => return Err(LinkError::Stopped),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into()))?
    }

    fn new(wire: Wire, limit: Duration, stop: &Arc<Stop>) -> Self {
        Self {
            wire,
            stop: Arc::clone(stop),
            limit,
            heard: Instant::now(),
            unsent: Unsent::default(),
            buffer: vec![0; RECEIVE_BYTES].into(),
            input: Input::default(),
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.wire.is_encrypted()
    }

    /// How long it may be silent now.
    fn limit(&self) -> Duration {
        match self.wire.is_opening() {
            true => self.limit.min(OPENING_LIMIT),
            false => self.limit,
        }
    }

    /// Where the source is.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.wire.peer()
    }

    /// Adds a command to what is sent.
    pub(super) fn send(&mut self, words: &[&[u8]]) {
        write_command(words, self.unsent.end());
    }

    /// Adds a byte that means nothing, and shows that this end is there.
    pub(super) fn send_nothing(&mut self) {
        self.unsent.end().push(b'\n');
    }

    /// Sends what the socket takes now.
    pub(super) fn flush(&mut self) -> Result<(), LinkError> {
        self.wire.send_sealed()?;
        self.unsent.send(&mut self.wire)?;
        Ok(())
    }

    /// Receives what is there, up to a limit; returns how many bytes came.
    pub(super) fn receive(&mut self) -> Result<usize, LinkError> {
        let was_opening = self.wire.is_opening();
        match self.wire.read(&mut self.buffer) {
            Ok(0) => Err(LinkError::Closed),
            Ok(bytes) => {
                self.heard = Instant::now();
                self.input.add(&self.buffer[..bytes]);
                Ok(bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let (waited, limit) = (self.heard.elapsed(), self.limit());
                match waited >= limit {
                    true if was_opening => Err(LinkError::Tls(ErrorKind::TimedOut.into())),
                    true => Err(LinkError::Silent { waited, limit }),
                    false => Ok(0),
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) if was_opening => Err(LinkError::Tls(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that nothing is received for now, so that the source's silence says nothing.
    pub(super) fn rest(&mut self) {
        self.heard = Instant::now();
    }

    /// What is waited for at its socket.
    pub(super) fn interest(&self, receives: bool) -> (BorrowedFd<'_>, PollFlags) {
        self.wire.interest(receives, !self.unsent.is_empty())
    }

    /// The next line that is not empty: a source sends empty ones to show that it is there.
    pub(super) fn line(&mut self) -> Result<String, LinkError> {
        loop {
            if let Some(line) = take_line(&mut self.input)? {
                return Ok(line);
            }
            self.flush()?;
            if self.receive()? == 0 {
                let wait = self.limit().saturating_sub(self.heard.elapsed());
                self.stop.wait(&[self.interest(true)], wait);
            }
            if self.stop.is_set() {
                return Err(LinkError::Stopped);
            }
        }
    }

    /// Sends a command of the handshake, and waits for its reply.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<String, LinkError> {
        self.send(words);
        self.line()
    }
}

/// Takes the next line that is not empty, if it is there.
pub(super) fn take_line(input: &mut Input) -> Result<Option<String>, LinkError> {
    while let Some(end) = input.rest().iter().position(|byte| *byte == b'\n') {
        if end > LINE_BYTES_MAX {
            break;
        }
        let line = input.rest()[..end].trim_ascii_end();
        let text = String::from_utf8_lossy(line).into_owned();
        input.pass(end + 1);
        if !text.is_empty() {
            return Ok(Some(text));
        }
    }
    if input.rest().len() > LINE_BYTES_MAX {
        return Err(LinkError::TooLong {
            what: "a line",
            bytes: input.rest().len() as u64,
            most: LINE_BYTES_MAX as u64,
            remedy: "name a Redis or a Valkey",
        });
    }
    Ok(None)
}

/// Connects to an address, for as long as `limit`, unless it is to stop.
fn connect_to(address: SocketAddr, limit: Duration, stop: &Stop) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(rustix::io::Errno::INPROGRESS) => {
            stop.wait(&[(socket.as_fd(), PollFlags::OUT)], limit);
        }
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    // One that is not connected has no peer: the time is over, or it is to stop.
    match socket.peer_addr() {
        Ok(_) => Ok(socket),
        Err(_) => Err(ErrorKind::TimedOut.into()),
    }
}
