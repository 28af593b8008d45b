//! A client that waits for each reply.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use super::{PATIENCE, Reply};

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

/// A request as clients send it.
pub(crate) fn request<T: AsRef<[u8]>>(arguments: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a server");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Where this client is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().expect("a socket")
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).expect("a connection");
    }

    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// The next reply; `None` once the server has closed the connection.
    pub(crate) fn read(&mut self) -> Option<Reply> {
        match Reply::read(&mut self.stream) {
            Ok(reply) => reply,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// Waits for the first bytes of what comes next, and leaves them there. A socket with a time
    /// limit is also woken by what the kernel does for the process's rings.
    pub(crate) fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.get_ref().peek(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Sends a request without waiting.
    pub(crate) fn send<T: AsRef<[u8]>>(&mut self, arguments: &[T]) {
        self.write(&request(arguments));
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask<T: AsRef<[u8]>>(&mut self, arguments: &[T]) -> Reply {
        self.send(arguments);
        self.read().expect("a reply before the end")
    }

    /// As [`Client::ask`]; `None` if the server closes the connection before it replies.
    pub(crate) fn try_ask<T: AsRef<[u8]>>(&mut self, arguments: &[T]) -> Option<Reply> {
        let request = request(arguments);
        self.stream.get_mut().write_all(&request).ok()?;
        self.read()
    }

    /// Sends words, which the reply is shown for.
    pub(crate) fn say(&mut self, words: &str) -> String {
        let words: Vec<_> = words.split(' ').collect();
        self.ask(&words).to_string()
    }

    /// Carries a whole scan out, from its command with its key, and its options. Returns what each
    /// page lists.
    pub(crate) fn scan(&mut self, command: &str, options: &str) -> Vec<Vec<String>> {
        self.scan_keeping(command, options, |cursor| cursor)
    }

    /// Scans as a client does that keeps cursors in its own way.
    pub(crate) fn scan_keeping(
        &mut self,
        command: &str,
        options: &str,
        keep: impl Fn(String) -> String,
    ) -> Vec<Vec<String>> {
        let (mut cursor, mut pages) = ("0".to_owned(), Vec::new());
        loop {
            let words = format!("{command} {cursor} {options}");
            let page = self.ask(&words.split_whitespace().collect::<Vec<_>>());
            let listed = page.elements()[1].elements();
            pages.push(listed.iter().map(Reply::text).collect());
            cursor = keep(page.elements()[0].text());
            if cursor == "0" {
                return pages;
            }
        }
    }

    /// Sends a line of an inline command.
    pub(crate) fn line(&mut self, line: &str) -> Option<Reply> {
        self.write(format!("{line}\r\n").as_bytes());
        self.read()
    }
}
