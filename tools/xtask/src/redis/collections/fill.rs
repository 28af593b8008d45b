//! Collections of many elements, and what they take.

use std::io::{BufReader, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};

use super::super::memory::words::{Reply, argument, begin, command};
use super::super::server::Server;
use super::super::touched::await_touched;

/// The key of each collection, and the command that fills it.
pub(super) const COLLECTIONS: [(&str, &str); 4] = [
    ("hash", "HSET"),
    ("set", "SADD"),
    ("list", "RPUSH"),
    ("zset", "ZADD"),
];
/// Elements that a command adds.
const TOGETHER: u32 = 50;
/// A prime by which scores are scattered over [`SCORES`] numbers.
const SCATTER: u32 = 2_654_435_761;
const SCORES: u32 = 1_000_000;
/// Commands that are sent before their replies are read.
const AHEAD: usize = 16;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn open(server: &Server) -> Result<Self> {
        let stream = server.connect()?;
        stream.set_nodelay(true)?;
        // An old server may take long to remove a collection.
        stream.set_read_timeout(None)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a command, and returns its reply.
    pub(super) fn call(&mut self, words: &[&[u8]]) -> Result<Reply> {
        let mut request = Vec::new();
        command(&mut request, words);
        self.send(&request)?;
        self.receive()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    fn receive(&mut self) -> Result<Reply> {
        match Reply::read(&mut self.stream)? {
            Reply::Error(error) => bail!("the server replied {error:?}"),
            reply => Ok(reply),
        }
    }

    /// Reads `INFO memory`.
    pub(super) fn memory_info(&mut self) -> Result<String> {
        let Reply::Bytes(text) = self.call(&[b"INFO", b"memory"])? else {
            bail!("INFO replies no text");
        };
        Ok(String::from_utf8(text)?)
    }

    /// `used_memory` of `INFO`.
    fn used_memory(&mut self) -> Result<u64> {
        let text = self.memory_info()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        let bytes = line.and_then(|bytes| bytes.trim().parse().ok());
        bytes.context("INFO has no used_memory")
    }

    /// Adds elements `0..elements` to a collection, which `redis-benchmark` names alike.
    pub(super) fn add(&mut self, (key, add): (&str, &str), elements: u32) -> Result<()> {
        let mut request = Vec::new();
        let mut first = 0;
        while first < elements {
            request.clear();
            let mut sent = 0;
            while sent < AHEAD && first < elements {
                let end = (first + TOGETHER).min(elements);
                let words: Vec<_> = (first..end)
                    .flat_map(|number| words_of(add, number))
                    .collect();
                begin(&mut request, 2 + words.len());
                argument(&mut request, add.as_bytes());
                argument(&mut request, key.as_bytes());
                for word in words {
                    argument(&mut request, word.as_bytes());
                }
                (first, sent) = (end, sent + 1);
            }
            self.send(&request)?;
            for _ in 0..sent {
                self.receive()?;
            }
        }
        Ok(())
    }
}

/// An element as `redis-benchmark` writes it, with its value or score. Scores are in another order
/// than members.
fn words_of(add: &str, number: u32) -> Vec<String> {
    let (value, member) = (
        format!("value:{number:012}"),
        format!("member:{number:012}"),
    );
    match add {
        "HSET" => vec![format!("field:{number:012}"), value],
        "SADD" => vec![member],
        "ZADD" => vec![(number.wrapping_mul(SCATTER) % SCORES).to_string(), member],
        _ => vec![value],
    }
}

/// Fills each collection that is wanted; returns its name and the bytes that an element takes.
pub(super) fn fill(
    server: &Server,
    elements: u32,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(&'static str, f64)>> {
    let mut connection = Connection::open(server)?;
    await_touched(|| connection.memory_info())?;
    let mut all = Vec::new();
    for (key, add) in COLLECTIONS.into_iter().filter(|one| is_wanted(one.0)) {
        let before = connection.used_memory()?;
        connection
            .add((key, add), elements)
            .with_context(|| format!("cannot fill the {key}"))?;
        let grown = connection.used_memory()?.saturating_sub(before);
        all.push((key, grown as f64 / f64::from(elements)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_those_that_the_load_asks_for() {
        assert_eq!(
            words_of("HSET", 7),
            ["field:000000000007", "value:000000000007"]
        );
        assert_eq!(words_of("SADD", 7), ["member:000000000007"]);
        assert_eq!(words_of("ZADD", 7)[1..], ["member:000000000007"]);
        assert_eq!(words_of("RPUSH", 7), ["value:000000000007"]);
    }
}
