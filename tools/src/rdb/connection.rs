//! A connection to a server of the Redis protocol that sends many commands before it reads their
//! replies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use zeroize::Zeroizing;

/// Time limit of a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(120);
/// Bytes of the longest reply; Redis's longest string.
const REPLY_BYTES_MAX: usize = 512 << 20;

/// How a server lets the command in.
#[derive(Debug, Args)]
pub(super) struct Login {
    /// File with the password of the server
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// User of the server [default: the default user]
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
}

/// A reply, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Text(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
}

/// A connection.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
    unsent: Vec<u8>,
}

impl Connection {
    /// Connects, and authenticates if a password is given.
    ///
    /// # Errors
    /// The server does not answer, or refuses the password.
    pub(super) fn open(address: &str, login: &Login) -> Result<Self> {
        let unreachable = || format!("{address} cannot be reached");
        let places = address.to_socket_addrs().with_context(unreachable)?;
        let places: Vec<_> = places.collect();
        let stream = TcpStream::connect(&places[..]).with_context(unreachable)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        let mut connection = Self {
            stream: BufReader::new(stream),
            address: address.to_owned(),
            unsent: Vec::new(),
        };
        if let Some(file) = &login.password_file {
            let text = std::fs::read_to_string(file).map(Zeroizing::new);
            let text = text.with_context(|| format!("--password-file {}", file.display()))?;
            let password = text.lines().next().unwrap_or_default().as_bytes();
            let reply = match &login.user {
                Some(user) => connection.ask(&[b"AUTH", user.as_bytes(), password])?,
                None => connection.ask(&[b"AUTH", password])?,
            };
            if let Reply::Error(text) = reply {
                bail!("{address} refuses the password: {text}");
            }
        }
        Ok(connection)
    }

    /// Adds a command to those that are sent by [`Connection::flush`].
    pub(super) fn add(&mut self, words: &[&[u8]]) {
        self.unsent.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            self.unsent.extend(format!("${}\r\n", word.len()).bytes());
            self.unsent.extend_from_slice(word);
            self.unsent.extend_from_slice(b"\r\n");
        }
    }

    /// Bytes that are not sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.len()
    }

    /// Sends all commands.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn flush(&mut self) -> Result<()> {
        let sent = self.stream.get_mut().write_all(&self.unsent);
        self.unsent.clear();
        sent.with_context(|| format!("the connection to {} is broken", self.address))
    }

    /// Reads the reply to the next command.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn read(&mut self) -> Result<Reply> {
        let reply = read(&mut self.stream);
        reply.with_context(|| format!("the connection to {} is broken", self.address))
    }

    /// Sends a command alone.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply> {
        self.add(words);
        self.flush()?;
        self.read()
    }

    /// Has the commands that follow be about a database; false if there is none of that number.
    ///
    /// # Errors
    /// The connection is broken, or the server refuses for another reason.
    pub(super) fn select(&mut self, database: u64) -> Result<bool> {
        match self.ask(&[b"SELECT", database.to_string().as_bytes()])? {
            Reply::Error(text) if text.contains("out of range") => Ok(false),
            Reply::Error(text) => bail!("{}: SELECT {database}: {text}", self.address),
            _ => Ok(true),
        }
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {what}"))
}

fn read(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = Vec::new();
    if stream.take(64 << 10).read_until(b'\n', &mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    let text = text.strip_suffix("\r\n").ok_or_else(|| malformed(&text))?;
    let (kind, rest) = text.split_at_checked(1).ok_or_else(|| malformed(text))?;
    let number = || rest.parse::<i64>().map_err(|_| malformed(text));
    let count = |number: i64| usize::try_from(number).map_err(|_| malformed(text));
    Ok(match kind {
        "+" => Reply::Text(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Integer(number()?),
        "$" | "*" if rest == "-1" => Reply::Null,
        "$" => {
            let length = count(number()?)?;
            if length > REPLY_BYTES_MAX {
                return Err(malformed(text));
            }
            let mut bytes = Vec::new();
            let wanted = length as u64 + 2;
            stream.take(wanted).read_to_end(&mut bytes)?;
            if bytes.len() as u64 != wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.truncate(length);
            Reply::Bulk(bytes)
        }
        "*" => {
            let replies = (0..count(number()?)?).map(|_| read(stream));
            Reply::Array(replies.collect::<io::Result<_>>()?)
        }
        _ => return Err(malformed(text)),
    })
}

/// A key as an error names it.
pub(super) fn shown(key: &[u8]) -> String {
    const BYTES: usize = 60;
    let short = &key[..key.len().min(BYTES)];
    let dots = if short.len() < key.len() { ".." } else { "" };
    format!("\"{}\"{dots}", short.escape_ascii())
}

/// Checks that a server is named by a host and a port.
///
/// # Errors
/// It is not.
pub(super) fn check_address(flag: &str, address: &str) -> Result<()> {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let parts = address.rsplit_once(':');
    ensure!(
        parts.is_some_and(|(host, port)| !host.is_empty() && is_port(port)),
        "{flag} {address}: give HOST:PORT, e.g. 127.0.0.1:6379"
    );
    Ok(())
}
