//! Requests whose keys have a Zipf distribution, which `redis-benchmark` cannot draw.
//!
//! One thread sends a pipeline on each connection, then takes the connections in turn: it reads a
//! pipeline's replies and sends the next one. So the server always has the pipelines of all other
//! connections to work on.
//!
//! 2 Mi keys are drawn before the measurement, and repeated if it has more requests: of a great
//! many keys, those that are seldom drawn are not requested at all.
//!
//! - I1: every key is stored before the first request, and every value begins with its key: a
//!   missing, short or foreign value ends the measurement.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use core_affinity::CoreId;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use super::super::server::Server;

/// Draws that are made beforehand, so that drawing costs the client nothing; they are repeated.
const DRAWS: usize = 1 << 21;
/// Seed of the draws: all servers get the same requests.
const SEED: u64 = 7;
/// A prime beyond any number of keys, of which `--keys` takes 10^9 at most. It scatters popular
/// keys over all of them.
const SCATTER: u64 = 2_654_435_761;
/// Bytes of a key: as `redis-benchmark` writes it.
const KEY_BYTES: usize = "key:000000000000".len();
const DIGITS: &[u8; 10] = b"0123456789";
/// Bytes that a connection buffers.
const BUFFER_BYTES: usize = 64 << 10;

/// What is requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skewed {
    pub(super) zipf: f64,
    pub(super) keys: u32,
    pub(super) value_bytes: usize,
    pub(super) connections: usize,
}

/// A command of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Set,
    Get,
}

impl Test {
    /// As `redis-benchmark` names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
        }
    }
}

/// The client on its core.
#[derive(Debug)]
pub(super) struct Client {
    draws: Vec<u32>,
    connections: Vec<Connection>,
    value_bytes: usize,
}

/// A connection, and the keys whose replies are due.
#[derive(Debug)]
struct Connection {
    stream: BufReader<TcpStream>,
    due: Vec<u32>,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// A key as text.
fn key_of(index: u32) -> [u8; KEY_BYTES] {
    let mut key = *b"key:000000000000";
    let mut rest = index;
    for digit in key[4..].iter_mut().rev() {
        *digit = DIGITS[rest as usize % 10];
        rest /= 10;
    }
    key
}

/// Indexes of keys, popular ones scattered.
fn draws(skewed: Skewed) -> Result<Vec<u32>> {
    let keys = f64::from(skewed.keys);
    let zipf =
        Zipf::new(keys, skewed.zipf).map_err(|error| anyhow!("--zipf {}: {error}", skewed.zipf))?;
    let mut random = SmallRng::seed_from_u64(SEED);
    #[allow(clippy::cast_possible_truncation)] // A rank is a whole number, and no more than `keys`.
    let draw = |_| {
        let rank = zipf.sample(&mut random) as u64;
        (rank * SCATTER % u64::from(skewed.keys)) as u32
    };
    Ok((0..DRAWS).map(draw).collect())
}

impl Client {
    /// Connects, and stores every key.
    pub(super) fn filled(server: &Server, skewed: Skewed) -> Result<Self> {
        ensure!(
            skewed.value_bytes >= KEY_BYTES,
            "--value-bytes {}: with --zipf, a value begins with its key of {KEY_BYTES} bytes",
            skewed.value_bytes
        );
        let connections = (0..skewed.connections).map(|_| Connection::open(server));
        let mut client = Self {
            draws: draws(skewed)?,
            connections: connections.collect::<Result<_>>()?,
            value_bytes: skewed.value_bytes,
        };
        let every = 0..skewed.keys;
        client
            .run(Test::Set, every, 32)
            .context("cannot store the keys")?;
        Ok(client)
    }

    /// Sends requests of drawn keys; returns how many were answered in a second.
    pub(super) fn measure(&mut self, test: Test, requests: u32, pipeline: usize) -> Result<f64> {
        let draws = std::mem::take(&mut self.draws);
        let drawn = draws.iter().copied().cycle();
        let start = Instant::now();
        let run = self.run(test, drawn.take(requests as usize), pipeline);
        let seconds = start.elapsed().as_secs_f64();
        self.draws = draws;
        run.map(|()| f64::from(requests) / seconds)
    }

    fn run(
        &mut self,
        test: Test,
        mut keys: impl Iterator<Item = u32>,
        pipeline: usize,
    ) -> Result<()> {
        let mut active = 0;
        for connection in &mut self.connections {
            connection.send(test, &mut keys, pipeline, self.value_bytes)?;
            active += usize::from(!connection.due.is_empty());
        }
        while active > 0 {
            for connection in &mut self.connections {
                if connection.due.is_empty() {
                    continue;
                }
                connection.receive(test, self.value_bytes)?;
                connection.send(test, &mut keys, pipeline, self.value_bytes)?;
                active -= usize::from(connection.due.is_empty());
            }
        }
        Ok(())
    }
}

impl Connection {
    fn open(server: &Server) -> Result<Self> {
        let stream = server.connect()?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(BUFFER_BYTES, stream),
            due: Vec::new(),
            request: Vec::new(),
            reply: Vec::new(),
        })
    }

    /// Sends the next pipeline, if there are keys left.
    fn send(
        &mut self,
        test: Test,
        keys: &mut impl Iterator<Item = u32>,
        pipeline: usize,
        value_bytes: usize,
    ) -> Result<()> {
        self.request.clear();
        self.due.extend(keys.take(pipeline));
        for &index in &self.due {
            let key = key_of(index);
            match test {
                Test::Get => self
                    .request
                    .extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n"),
                Test::Set => self
                    .request
                    .extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n"),
            }
            self.request.extend_from_slice(&key);
            self.request.extend_from_slice(b"\r\n");
            if test == Test::Set {
                write!(self.request, "${value_bytes}\r\n")?;
                self.request.extend_from_slice(&key);
                let end = self.request.len() + value_bytes - KEY_BYTES;
                self.request.resize(end, b'x');
                self.request.extend_from_slice(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&self.request)?;
        Ok(())
    }

    /// Reads the replies that are due.
    fn receive(&mut self, test: Test, value_bytes: usize) -> Result<()> {
        for index in self.due.drain(..) {
            self.reply.clear();
            self.stream.read_until(b'\n', &mut self.reply)?;
            let is_expected = match (test, &self.reply[..]) {
                (Test::Set, b"+OK\r\n") => continue,
                (Test::Get, [b'$', length @ .., b'\r', b'\n']) => {
                    length == value_bytes.to_string().as_bytes()
                }
                _ => false,
            };
            if !is_expected {
                let reply = String::from_utf8_lossy(&self.reply);
                bail!("key {index}: the server replied {:?}", reply.trim_end());
            }
            self.reply.resize(value_bytes + 2, 0);
            self.stream.read_exact(&mut self.reply)?;
            ensure!(
                self.reply.starts_with(&key_of(index)),
                "key {index}: the server replied the value of another key"
            );
        }
        Ok(())
    }
}

/// Runs what a client does in a thread on one core.
pub(in crate::redis) fn on_core<T: Send>(
    core: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            ensure!(
                core_affinity::set_for_current(CoreId { id: core }),
                "the client cannot run on core {core}"
            );
            work()
        });
        thread.join().map_err(|_| anyhow!("the client panicked"))?
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::TcpListener;

    use super::*;

    const SKEWED: Skewed = Skewed {
        zipf: 0.99,
        keys: 1000,
        value_bytes: 20,
        connections: 3,
    };

    #[test]
    fn keys_are_text_of_one_length() {
        assert_eq!(&key_of(0), b"key:000000000000");
        assert_eq!(&key_of(4_294_967_295), b"key:004294967295");
    }

    #[test]
    fn popular_keys_are_scattered_and_frequent() {
        let mut counts = HashMap::new();
        for index in draws(SKEWED).unwrap() {
            *counts.entry(index).or_insert(0_usize) += 1;
        }
        let mut sorted: Vec<_> = counts.values().copied().collect();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        // The first of 1000 ranks has 1 / sum(1 / rank^0.99), 13 %.
        let share = sorted[0] as f64 / DRAWS as f64;
        assert!((0.12..0.14).contains(&share), "{share}");
        assert!(counts.len() > 990 && counts.keys().all(|&index| index < 1000));
    }

    /// Replies to everything from a map, or as if one key were gone.
    fn serve(stream: TcpStream, lost: Option<u32>) {
        let mut map = HashMap::new();
        let mut writer = stream.try_clone().unwrap();
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        while let Some(head) = lines.next() {
            let words: usize = head[1..].parse().unwrap();
            let words: Vec<String> = (0..words).map(|_| lines.nth(1).unwrap()).collect();
            let key = words[1].clone();
            let reply = if words[0] == "SET" {
                map.insert(key, words[2].clone());
                "+OK\r\n".to_owned()
            } else if lost.is_some_and(|lost| key.as_bytes() == key_of(lost)) {
                "$-1\r\n".to_owned()
            } else {
                // Each connection stores a part of the keys, and reads all.
                let value = map.get(&key).cloned().unwrap_or(format!("{key}xxxx"));
                format!("${}\r\n{value}\r\n", value.len())
            };
            writer.write_all(reply.as_bytes()).unwrap();
        }
    }

    fn server(lost: Option<u32>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string().parse().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                thread::spawn(move || serve(stream, lost));
            }
        });
        server
    }

    #[test]
    fn requests_are_answered_and_checked() {
        let mut client = Client::filled(&server(None), SKEWED).unwrap();
        for (test, requests, pipeline) in [(Test::Set, 500, 32), (Test::Get, 1001, 7)] {
            assert!(client.measure(test, requests, pipeline).unwrap() > 0.0);
        }
        let popular = client.draws[0];
        let mut client = Client::filled(&server(Some(popular)), SKEWED).unwrap();
        let error = client.measure(Test::Get, 1000, 32).unwrap_err();
        assert!(error.to_string().contains("replied \"$-1\""), "{error}");
    }
}
