//! Clients that write and read under load, and judge each answer.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use super::keys::{Ages, Keys, Written};
use super::support::PATIENCE;

/// Keys of one client.
const KEYS: u64 = 500;
const VALUE_BYTES: (usize, usize) = (4 << 10, 24 << 10);

/// Random numbers of a seed (xorshift).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % limit
    }
}

/// A reply of the Redis protocol, as far as these clients read them.
#[derive(Debug)]
pub(crate) enum Reply {
    Value(Option<Vec<u8>>),
    Line(String),
    Error(String),
}

/// A connection of one client.
#[derive(Debug)]
pub(crate) struct Line(BufReader<TcpStream>);

impl Line {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&request)?;
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        Ok(match kind {
            "-" => Reply::Error(rest.to_owned()),
            "$" if rest == "-1" => Reply::Value(None),
            "$" => {
                let length: usize = rest.parse().map_err(|_| io::ErrorKind::InvalidData)?;
                let mut value = vec![0; length + 2];
                self.0.read_exact(&mut value)?;
                value.truncate(length);
                Reply::Value(Some(value))
            }
            _ => Reply::Line(rest.to_owned()),
        })
    }
}

/// What the clients and the one who kills know in common.
#[derive(Debug)]
pub(crate) struct World {
    /// The life of the server, from 1 on; 0 while it is down.
    pub(crate) life: AtomicU64,
    pub(crate) address: Mutex<SocketAddr>,
    /// The age of far memory: odd while it is not whole.
    pub(crate) age: AtomicU64,
    /// Lost keys of earlier ages were made absent.
    pub(crate) forgotten: AtomicU64,
    /// Answers so far, and those clients that have written all their keys in this life.
    pub(crate) answers: AtomicU64,
    pub(crate) filled: AtomicU64,
    pub(crate) ends: AtomicBool,
    pub(crate) outcomes: Mutex<BTreeMap<String, u64>>,
}

impl World {
    pub(crate) fn count(&self, outcome: &str) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        *outcomes.entry(outcome.to_owned()).or_default() += 1;
    }

    fn ages(&self, before: u64) -> Ages {
        Ages {
            before,
            after: self.age.load(SeqCst),
            forgotten: self.forgotten.load(SeqCst),
        }
    }

    /// Waits for a condition.
    pub(crate) fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while !holds() && !self.ends.load(SeqCst) {
            assert!(start.elapsed() < PATIENCE, "{what}");
            thread::yield_now();
        }
    }
}

/// One client in one life of the server.
struct Client<'a> {
    world: &'a World,
    number: u64,
    life: u64,
    line: Line,
    keys: Keys,
    writes: u64,
}

impl Client<'_> {
    /// Writes a key.
    fn write(&mut self, key: u64, length: usize) -> io::Result<()> {
        self.writes += 1;
        let written = Written {
            life: self.life,
            client: self.number,
            key,
            number: self.writes,
        };
        let before = self.world.age.load(SeqCst);
        let name = format!("{}-{key}", self.number);
        let value = written.bytes(length);
        let reply = self.line.call(&[b"SET", name.as_bytes(), &value])?;
        let ages = self.world.ages(before);
        match reply {
            Reply::Line(_) => {
                self.world.count("writes");
                self.keys.acknowledge(key, Some(written), ages);
            }
            Reply::Error(error) => {
                self.note_error("writes", &error);
                self.keys.doubt(key, Some(written), ages);
                Keys::judge_refusal(ages, &error).unwrap();
            }
            Reply::Value(_) => panic!("a value for a SET"),
        }
        Ok(())
    }

    fn remove(&mut self, key: u64) -> io::Result<()> {
        let before = self.world.age.load(SeqCst);
        let name = format!("{}-{key}", self.number);
        let reply = self.line.call(&[b"DEL", name.as_bytes()])?;
        let ages = self.world.ages(before);
        match reply {
            Reply::Line(_) => {
                self.world.count("removals");
                self.keys.acknowledge(key, None, ages);
            }
            Reply::Error(error) => {
                self.note_error("removals", &error);
                self.keys.doubt(key, None, ages);
                Keys::judge_refusal(ages, &error).unwrap();
            }
            Reply::Value(_) => panic!("a value for a DEL"),
        }
        Ok(())
    }

    fn read(&mut self, key: u64) -> io::Result<()> {
        let before = self.world.age.load(SeqCst);
        let name = format!("{}-{key}", self.number);
        let reply = self.line.call(&[b"GET", name.as_bytes()])?;
        let ages = self.world.ages(before);
        let judged = match reply {
            Reply::Value(found) => {
                self.world.count(if found.is_some() {
                    "reads"
                } else {
                    "reads of none"
                });
                self.keys.judge(key, found.as_deref(), ages)
            }
            Reply::Error(error) => {
                self.note_error("reads", &error);
                self.keys.judge_unavailable(key, ages)
            }
            Reply::Line(line) => panic!("{line} for a GET"),
        };
        judged.unwrap_or_else(|why| panic!("client {}: {why}", self.number));
        Ok(())
    }

    /// Errors have a type that a client can act by.
    fn note_error(&self, of: &str, error: &str) {
        let (kind, _) = error.split_once(' ').unwrap_or((error, ""));
        assert!(["UNAVAILABLE", "OOM"].contains(&kind), "{error}");
        self.world.count(&format!("{of} answered {kind}"));
    }

    /// Works until the server is killed, or the test ends.
    fn work(&mut self, random: &mut Random) -> io::Result<()> {
        let length = |random: &mut Random| {
            let (least, most) = VALUE_BYTES;
            least + usize::try_from(random.below((most - least) as u64)).unwrap()
        };
        for key in 0..KEYS {
            // Nothing of an earlier life is there.
            self.read(key)?;
            self.write(key, length(random))?;
        }
        self.world.filled.fetch_add(1, SeqCst);
        while !self.world.ends.load(SeqCst) {
            let key = random.below(KEYS);
            match random.below(8) {
                0..3 => self.write(key, length(random))?,
                3 => self.remove(key)?,
                _ => self.read(key)?,
            }
            self.world.answers.fetch_add(1, SeqCst);
        }
        Ok(())
    }
}

/// A client through all lives of the server.
pub(crate) fn run(world: &World, number: u64, seed: u64) {
    let mut random = Random(seed ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut last = 0;
    loop {
        world.wait("the server is not started again", || {
            world.life.load(SeqCst) > last
        });
        if world.ends.load(SeqCst) {
            return;
        }
        let life = world.life.load(SeqCst);
        last = life;
        let address = *world.address.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(line) = Line::open(address) else {
            continue;
        };
        let mut client = Client {
            world,
            number,
            life,
            line,
            keys: Keys::of_life(life),
            writes: 0,
        };
        match client.work(&mut random) {
            Ok(()) => return,
            // Its answer did not come: the server must be the one that was killed.
            Err(error) => {
                world.count("connections that ended");
                world.wait(
                    &format!("a connection of a living server ended: {error}"),
                    || world.life.load(SeqCst) != life,
                );
            }
        }
    }
}
