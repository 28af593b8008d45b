//! Shared by the tests of a whole server: a small engine with a server on its cores, and a client
//! that waits for each reply.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use farcore::{Config, Engine};
use farcore_server::{Options, Server};

/// How long a client waits for a reply, far beyond need.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A server and its engine, which end together.
#[derive(Debug)]
pub(crate) struct TestServer {
    server: Option<Server>,
    engine: Option<Engine>,
}

impl TestServer {
    /// A server on so many cores. Clients are served by them in turn.
    pub(crate) fn start(cores: usize) -> Self {
        let available = Config::default().cores;
        let config = Config {
            // A core may be used twice where there are too few.
            cores: available.iter().copied().take(cores).collect(),
            local_bytes: 32 << 20,
            far_bytes: 64 << 20,
            keys_expected: 10_000,
            prefault: false,
            huge_pages: false,
            hash_tags: true,
            spin_ns: 0,
            ..Config::default()
        };
        let engine = Engine::open(config).unwrap();
        let options = Options {
            // So that no client is disconnected for another's sake.
            client_bytes: 256 << 20,
            ..Options::new("127.0.0.1:0".parse().unwrap())
        };
        let server = Server::start(&engine, options).unwrap();
        Self {
            server: Some(server),
            engine: Some(engine),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().address()
    }

    /// A new client.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Stops the server and the engine.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(server) = self.server.take() {
            let stopped = server.stop();
            assert!(thread::panicking() || stopped.is_ok(), "{stopped:?}");
        }
        if let Some(engine) = self.engine.take() {
            engine.close();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// A client that waits for each reply, and shows it as text:
///
/// ```text
/// OK   (error) ERR text   7   "bulk"   nil   [1, "array"]   {"key", "of a map"}   >["push"]
/// ```
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(REPLY_LIMIT)).unwrap();
        stream.set_write_timeout(Some(REPLY_LIMIT)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a command without waiting for its reply.
    pub(crate) fn send(&mut self, arguments: &[&[u8]]) {
        let mut bytes = Vec::new();
        write!(bytes, "*{}\r\n", arguments.len()).unwrap();
        for argument in arguments {
            write!(bytes, "${}\r\n", argument.len()).unwrap();
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        self.send_bytes(&bytes);
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a command of words without waiting for its reply.
    pub(crate) fn send_words(&mut self, words: &str) {
        let words: Vec<_> = words.split_whitespace().map(str::as_bytes).collect();
        self.send(&words);
    }

    /// Sends a command of words, and waits for its reply.
    pub(crate) fn call(&mut self, words: &str) -> String {
        self.send_words(words);
        self.reply()
    }

    /// Sends commands of words at once, and waits for all replies.
    pub(crate) fn call_all(&mut self, commands: &[&str]) -> Vec<String> {
        let mut bytes = String::new();
        for command in commands {
            let words: Vec<_> = command.split_whitespace().collect();
            write!(bytes, "*{}\r\n", words.len()).unwrap();
            for word in words {
                write!(bytes, "${}\r\n{word}\r\n", word.len()).unwrap();
            }
        }
        self.send_bytes(bytes.as_bytes());
        commands.iter().map(|_| self.reply()).collect()
    }

    /// The next reply.
    pub(crate) fn reply(&mut self) -> String {
        self.next().expect("the server has closed the connection")
    }

    /// True once the server has closed the connection; drops what it has sent before.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }

    fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        let all = |client: &mut Self, count: i64| {
            let all: Option<Vec<_>> = (0..count).map(|_| client.next()).collect();
            Some(all?.join(", "))
        };
        Some(match kind {
            "+" | ":" | "," | "#" => rest.to_owned(),
            "-" => format!("(error) {rest}"),
            "_" => "nil".to_owned(),
            "$" | "*" if count() < 0 => "nil".to_owned(),
            "$" | "=" => {
                let mut bytes = vec![0; usize::try_from(count()).unwrap() + 2];
                self.stream.read_exact(&mut bytes).ok()?;
                bytes.truncate(bytes.len() - 2);
                format!("\"{}\"", bytes.escape_ascii())
            }
            "*" | "~" => format!("[{}]", all(self, count())?),
            ">" => format!(">[{}]", all(self, count())?),
            "%" => format!("{{{}}}", all(self, 2 * count())?),
            other => panic!("a reply begins with {other:?}"),
        })
    }
}

/// Numbers that look random and are the same each time.
#[derive(Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    /// Those of a seed, which `FARCORE_SEED` replaces.
    pub(crate) fn new() -> Self {
        let given = std::env::var("FARCORE_SEED").ok();
        let seed = given.map_or_else(
            || {
                let now = std::time::SystemTime::now();
                let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
                u64::try_from(since.as_micros()).unwrap()
            },
            |seed| seed.parse().unwrap(),
        );
        println!("FARCORE_SEED={seed}");
        Self(seed)
    }

    /// A number below another.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}
