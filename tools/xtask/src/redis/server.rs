//! The address of the server that is proved.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

/// Time limit of a connection and of its first answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The server, as an option.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The server, e.g. 127.0.0.1:6379; its data are deleted.
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) server: Server,
}

/// Host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(':');
        let parsed = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parsed {
            Some((host, port)) if !host.is_empty() && !host.contains([':', '/']) => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            _ => Err("write HOST:PORT, e.g. 127.0.0.1:6379".to_owned()),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Server {
    /// The server's URL in the notation of Redis's clients.
    pub(super) fn url(&self) -> String {
        format!("redis://{self}/0")
    }

    /// A connection with time limits.
    pub(super) fn connect(&self) -> Result<TcpStream> {
        let mut addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        let address = addresses.next().context("the host has no address")?;
        let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(stream)
    }

    /// Fails unless the server answers PING.
    pub(super) fn expect_alive(&self) -> Result<()> {
        let answer = self.ping().with_context(|| {
            format!("no server answers at {self}; start one: farcore serve --resp {self}")
        })?;
        if answer.trim_end() != "+PONG" {
            bail!("{self} answers PING by {answer:?}: it is no server for these tests");
        }
        Ok(())
    }

    fn ping(&self) -> Result<String> {
        let mut stream = self.connect()?;
        stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let server: Server = "localhost:6379".parse().unwrap();
        assert_eq!(server.url(), "redis://localhost:6379/0");
        for text in [
            "",
            "6379",
            ":6379",
            "host",
            "host:",
            "host:70000",
            "redis://h:1",
            "::1:6379",
        ] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }
}
