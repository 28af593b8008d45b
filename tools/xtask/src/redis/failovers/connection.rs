//! A connection to a server or a Sentinel, with a time limit on each step.

use std::io::{self, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::redis::memory::words::{Reply, command};

/// A connection to a port of 127.0.0.1.
#[derive(Debug)]
pub(super) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects; each step from here on takes `limit` at most.
    pub(super) fn open(port: u16, limit: Duration) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, limit)?;
        if stream.local_addr()? == address {
            // Nothing listens there, and the system has chosen this very port for us.
            return Err(ErrorKind::ConnectionRefused.into());
        }
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Reads a reply.
    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.0)
    }

    /// Sends a command, and reads its reply, which is no error.
    pub(super) fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        self.send(&encoded(words))?;
        match self.reply()? {
            Reply::Error(error) => bail!("{}: {error}", words.join(" ")),
            reply => Ok(reply),
        }
    }

    /// What `INFO replication` says.
    pub(super) fn info(&mut self) -> Result<Info> {
        match self.ask(&["INFO", "replication"])? {
            Reply::Bytes(text) => Ok(Info(String::from_utf8_lossy(&text).into_owned())),
            reply => bail!("INFO replies {reply:?}"),
        }
    }
}

/// Bytes of a command as it is sent.
pub(super) fn encoded(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    command(&mut bytes, &words);
    bytes
}

/// Lines `NAME:VALUE`.
#[derive(Debug)]
pub(super) struct Info(String);

impl Info {
    /// The value of a line; nothing if there is no such line.
    pub(super) fn of(&self, name: &str) -> &str {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_default()
    }

    /// The number in a line; 0 if there is none.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.of(name).parse().unwrap_or(0)
    }

    /// How many replicas are connected, and have loaded.
    pub(super) fn online(&self) -> usize {
        self.0.matches(",state=online,").count()
    }
}
