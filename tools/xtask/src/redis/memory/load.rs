//! Connections that are idle, that send pipelines without end, and that never read.
//!
//! A server may end a connection that takes too much memory: it is counted, and another takes its
//! place.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::server::Server;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Commands that are written at once.
const PIPELINE: usize = 32;
/// The stack of a thread of a connection.
const STACK_BYTES: usize = 128 << 10;
/// Keys of each length.
const KEYS: u64 = 4000;
/// How long a connection that cannot send waits.
const PAUSE: Duration = Duration::from_millis(5);
/// Lengths of values, and how many of a hundred writes have them.
const LENGTHS: [(usize, u64); 6] = [
    (16, 40),
    (128, 30),
    (1 << 10, 18),
    (16 << 10, 9),
    (256 << 10, 2),
    (3 << 20, 1),
];
/// Keys of values from this length on are fewer, or they do not fit the memory.
const LONG_BYTES: usize = 256 << 10;
const LONG_KEYS: u64 = 64;

/// Random numbers; xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// A length, and a key of a value of that length.
    fn key(&mut self) -> (usize, String) {
        let mut draw = self.below(100);
        let mut length = LENGTHS[0].0;
        for (bytes, share) in LENGTHS {
            length = bytes;
            match draw.checked_sub(share) {
                Some(rest) => draw = rest,
                None => break,
            }
        }
        let keys = if length >= LONG_BYTES {
            LONG_KEYS
        } else {
            KEYS
        };
        (length, format!("m:{length}:{}", self.below(keys)))
    }
}

/// Appends a command in the protocol's notation.
fn push(request: &mut Vec<u8>, words: &[&[u8]]) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

/// Some commands: half of them writes, some of hashes.
fn pipeline(random: &mut Random, request: &mut Vec<u8>, value: &[u8]) {
    request.clear();
    for _ in 0..PIPELINE {
        let (length, key) = random.key();
        match random.below(20) {
            0..=8 => push(request, &[b"SET", key.as_bytes(), &value[..length]]),
            9 => push(request, &[b"DEL", key.as_bytes()]),
            10 => {
                let key = format!("h:{}", random.below(KEYS));
                let field = random.below(50).to_string();
                push(
                    request,
                    &[b"HSET", key.as_bytes(), field.as_bytes(), &value[..64]],
                );
            }
            _ => push(request, &[b"GET", key.as_bytes()]),
        }
    }
}

/// Connections that said PING and nothing since.
pub(super) struct Idle(Vec<TcpStream>);

impl Idle {
    pub(super) fn connect(server: &Server, count: usize) -> Result<Self> {
        let connect = |number: usize| {
            let mut stream = server
                .connect()
                .with_context(|| format!("idle connection {number}"))?;
            stream.write_all(b"PING\r\n")?;
            let mut pong = [0; 7];
            stream.read_exact(&mut pong)?;
            ensure!(&pong == b"+PONG\r\n", "PING is not answered by PONG");
            Ok(stream)
        };
        (0..count).map(connect).collect::<Result<_>>().map(Self)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// What connections did.
#[derive(Debug, Default)]
struct Counts {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    ended: AtomicU64,
    deaf_ended: AtomicU64,
    is_over: AtomicBool,
}

impl Counts {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        write!(
            f,
            "{} MiB sent, {} MiB received, {} active and {} deaf connections were ended",
            get(&self.sent_bytes) >> 20,
            get(&self.received_bytes) >> 20,
            get(&self.ended),
            get(&self.deaf_ended)
        )
    }
}

/// Connections in use, each with its threads.
pub(super) struct Load {
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(super) fn start(server: &Server, active: usize, deaf: usize) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let mut threads = Vec::new();
        for number in 0..active {
            let (server, counts) = (server.clone(), Arc::clone(&counts));
            threads.push(spawn(move || be_active(&server, &counts, number as u64))?);
        }
        let (server, of_deaf) = (server.clone(), Arc::clone(&counts));
        threads.push(spawn(move || be_deaf(&server, &of_deaf, deaf))?);
        Ok(Self { counts, threads })
    }

    pub(super) fn figures(&self) -> String {
        self.counts.to_string()
    }

    /// Ends all connections.
    pub(super) fn end(self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    thread.context("cannot start a thread")
}

/// A pipeline without end: one thread writes, another reads. Anew whenever the server ends it.
fn be_active(server: &Server, counts: &Counts, number: u64) {
    let value = vec![b'v'; 3 << 20];
    let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    while !counts.is_over() {
        let Ok(stream) = server.connect() else {
            thread::sleep(PAUSE);
            continue;
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                read_all(&stream, counts);
                // Nothing more is read, so nothing more is to be written.
                let _ = stream.shutdown(Shutdown::Both);
            });
            write_all(&stream, counts, &mut random, &value);
            let _ = stream.shutdown(Shutdown::Both);
        });
        if !counts.is_over() {
            counts.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn read_all(mut stream: &TcpStream, counts: &Counts) {
    let mut buffer = vec![0; READ_BYTES];
    while !counts.is_over() {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => {
                counts
                    .received_bytes
                    .fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(error) if is_pause(&error) => {}
            Err(_) => return,
        }
    }
}

fn write_all(mut stream: &TcpStream, counts: &Counts, random: &mut Random, value: &[u8]) {
    let mut request = Vec::new();
    while !counts.is_over() {
        pipeline(random, &mut request, value);
        let mut rest = &request[..];
        while !rest.is_empty() && !counts.is_over() {
            match stream.write(rest) {
                Ok(bytes) => {
                    counts.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    rest = &rest[bytes..];
                }
                Err(error) if is_pause(&error) => {}
                Err(_) => return,
            }
        }
    }
}

/// A connection that does not wait, and what it has not sent of its requests.
struct Deaf(TcpStream, Vec<u8>);

impl Deaf {
    fn connect(server: &Server) -> Option<Self> {
        let stream = server.connect().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Self(stream, Vec::new()))
    }

    /// Sends what the server takes.
    fn send(&mut self, random: &mut Random) -> io::Result<()> {
        let Self(stream, rest) = self;
        if rest.is_empty() {
            for _ in 0..PIPELINE {
                let key = format!("m:{}:{}", 16 << 10, random.below(KEYS));
                push(rest, &[b"GET", key.as_bytes()]);
            }
        }
        match stream.write(rest) {
            Ok(bytes) => drop(rest.drain(..bytes)),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Connections that request values and never read: each sends as long as the server takes.
fn be_deaf(server: &Server, counts: &Counts, count: usize) {
    let mut all: Vec<Option<Deaf>> = (0..count).map(|_| None).collect();
    let mut random = Random(0x5EED);
    while !counts.is_over() {
        for place in &mut all {
            match place {
                None => *place = Deaf::connect(server),
                Some(deaf) => {
                    if deaf.send(&mut random).is_err() {
                        *place = None;
                        counts.deaf_ended.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
        thread::sleep(PAUSE);
    }
}

/// What the server says of its memory and its clients.
pub(super) fn figures_of(server: &Server) -> Result<String> {
    let mut stream = server.connect()?;
    stream.write_all(b"INFO\r\nQUIT\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let wanted = [
        "used_memory:",
        "connected_clients:",
        "evicted_clients:",
        "mem_clients_normal:",
        "total_commands_processed:",
    ];
    let lines = text.lines();
    let found = lines.filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    Ok(found.collect::<Vec<_>>().join(", "))
}
