//! A connection that sends requests and waits for their replies.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::requests::{Request, replies};
use crate::redis::memory::words::{Reply, command};
use crate::redis::server::Server;

/// Time limit of each step.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of requests that a system takes though no reply is read. The server may wait until those
/// to longer ones are.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes of a request as it is sent.
pub(super) fn encoded(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
    command(&mut bytes, &words);
    bytes
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn open(server: &Server) -> Result<Self> {
        let stream = server.connect()?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends bytes, and reads `count` replies; returns the first error among them, if there is one,
    /// and the last reply.
    pub(super) fn exchange(
        &mut self,
        bytes: &[u8],
        count: usize,
    ) -> Result<(Option<String>, Option<Reply>)> {
        if bytes.len() <= AHEAD_BYTES_MAX {
            self.stream.get_mut().write_all(bytes)?;
            return self.read(count);
        }
        let mut writer = self.stream.get_ref().try_clone()?;
        thread::scope(|scope| {
            let written = scope.spawn(move || writer.write_all(bytes));
            let replies = self.read(count);
            written.join().ok().context("a writer panicked")??;
            replies
        })
    }

    fn read(&mut self, count: usize) -> Result<(Option<String>, Option<Reply>)> {
        let (mut error, mut last) = (None, None);
        for _ in 0..count {
            let reply = Reply::read(&mut self.stream)?;
            if let Reply::Error(text) = &reply {
                error.get_or_insert_with(|| text.clone());
            }
            last = Some(reply);
        }
        Ok((error, last))
    }

    /// Sends a request that replies no error; returns its last reply.
    pub(super) fn call(&mut self, request: &Request) -> Result<Reply> {
        let name = || String::from_utf8_lossy(&request[0]).into_owned();
        let exchanged = self.exchange(&encoded(request), replies(request));
        match exchanged.with_context(name)? {
            (None, Some(reply)) => Ok(reply),
            (Some(error), _) => bail!("{}: {error}", name()),
            (None, None) => bail!("{}: no reply", name()),
        }
    }

    /// Sends a request that replies a text and no error; returns the text.
    pub(super) fn text(&mut self, request: &Request) -> Result<String> {
        match self.call(request)? {
            Reply::Bytes(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            reply => bail!("{reply:?} is no text"),
        }
    }
}
