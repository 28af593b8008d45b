//! A connection that waits for each reply.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::StreamOwned;

use super::load::Door;
use super::words::{Reply, command};

/// Time limit of each step.
const LIMIT: Duration = Duration::from_secs(5);

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A connection that sends a command and waits for its reply.
pub(super) struct Caller {
    stream: BufReader<Box<dyn Stream>>,
    said: Vec<u8>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

impl Caller {
    /// Connects and greets as the door wants it.
    pub(super) fn connect(door: &Door) -> Result<Self> {
        let address = door.encrypted.unwrap_or(door.plain);
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match door.encrypted {
            Some(_) => Box::new(StreamOwned::new(door.certificate.connection()?, stream)),
            None => Box::new(stream),
        };
        let mut caller = Self {
            stream: BufReader::new(stream),
            said: Vec::new(),
        };
        let greeting = door.greeting();
        caller.send(&greeting)?;
        let greetings = usize::from(door.password.is_some()) + usize::from(door.is_third);
        for _ in 0..greetings {
            if let Reply::Error(text) = caller.reply()? {
                bail!("the greeting is refused: {text}");
            }
        }
        Ok(caller)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes)?;
        stream.flush()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.stream)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// The connection has ended, or the server does not answer.
    pub(super) fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut said = std::mem::take(&mut self.said);
        said.clear();
        command(&mut said, words);
        let sent = self.send(&said);
        self.said = said;
        sent?;
        self.reply()
    }

    /// Sends a command and waits for its reply, which must be no error.
    pub(super) fn expect(&mut self, words: &[&[u8]]) -> Result<Reply> {
        let name = String::from_utf8_lossy(words[0]).into_owned();
        match self.call(words).with_context(|| name.clone())? {
            Reply::Error(text) => bail!("{name}: {text}"),
            reply => Ok(reply),
        }
    }
}
