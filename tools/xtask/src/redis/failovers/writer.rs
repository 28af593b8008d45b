//! A client that writes numbers to keys of its own, and waits for replicas.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::connection::{Connection, encoded};
use super::fleet;
use super::told::{PLACES, SLOTS, Target, Told, Write};
use crate::redis::memory::words::Reply;

/// Time after which a client gives a connection up.
const PATIENCE: Duration = Duration::from_millis(700);
/// Time that `WAIT` has.
const WAIT_MS: &str = "300";
/// Writes before one `WAIT`, at most.
const BATCH_MAX: usize = 6;
/// Bytes beside the number in a string, at most.
const PADDING_MAX: usize = 400;
/// Batches that no replica acknowledged, after which a client looks for the source again.
const UNHEARD_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// The key of a string.
pub(super) fn key_of_string(client: usize, place: usize) -> String {
    format!("c{client}:s{place}")
}

/// Other keys of a client: `hash`, `scores`, `list`, `one`, `other`. They are in one shard, so
/// that a transaction of two is seen at once.
pub(super) fn key(client: usize, name: &str) -> String {
    format!("{{c{client}}}{name}")
}

/// What all clients of a round have in common.
#[derive(Debug)]
pub(super) struct Common {
    /// Ports of the Sentinels.
    pub(super) sentinels: Vec<u16>,
    /// Replicas that must acknowledge a write; with 0 its reply is enough.
    pub(super) needed: u64,
    pub(super) ends: AtomicBool,
}

/// A client in a round.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    common: &'a Common,
    client: usize,
    told: Told,
    random: SmallRng,
}

impl<'a> Writer<'a> {
    pub(super) fn new(common: &'a Common, client: usize, told: Told, seed: u64) -> Self {
        Self {
            common,
            client,
            told,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// Writes until the round ends; returns what it was told.
    pub(super) fn run(mut self) -> Told {
        while !self.ends() {
            // Errors are what a client meets while servers die: it looks for the source again.
            let _: Result<()> = self.find().and_then(|port| self.write_at(port));
            thread::sleep(PAUSE);
        }
        self.told
    }

    fn ends(&self) -> bool {
        self.common.ends.load(Ordering::Relaxed)
    }

    /// Asks a Sentinel for the source.
    fn find(&mut self) -> Result<u16> {
        let sentinels = &self.common.sentinels;
        let port = sentinels[self.random.random_range(0..sentinels.len())];
        fleet::source_port(&mut Connection::open(port, PATIENCE)?)
    }

    /// Writes until the connection fails, or none follows.
    fn write_at(&mut self, port: u16) -> Result<()> {
        let mut connection = Connection::open(port, PATIENCE)?;
        let mut unheard = 0;
        while !self.ends() && unheard < UNHEARD_MAX {
            let writes = self.draw();
            match self.exchange(&mut connection, &writes) {
                Ok(replicas) if replicas >= self.common.needed => {
                    self.told.acknowledge(&writes, replicas);
                    unheard = 0;
                }
                Ok(_) => unheard += 1,
                Err(error) => {
                    self.told.give_up(&writes);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn draw(&mut self) -> Vec<Write> {
        let count = self.random.random_range(1..=BATCH_MAX);
        let draw = |_| {
            self.told.sent += 1;
            // The list and the pair come as often as one of the other kinds.
            let target = match self.random.random_range(0..5) {
                0 => Target::List,
                1 => Target::Slot(SLOTS - 1),
                _ => Target::Slot(self.random.random_range(0..3 * PLACES)),
            };
            Write {
                target,
                number: self.told.sent,
            }
        };
        (0..count).map(draw).collect()
    }

    /// Sends writes, and waits; returns how many replicas have them.
    fn exchange(&mut self, connection: &mut Connection, writes: &[Write]) -> Result<u64> {
        let mut bytes = Vec::new();
        let mut replies = Vec::new();
        for &write in writes {
            self.encode(write, &mut bytes, &mut replies);
        }
        let needed = self.common.needed;
        if needed > 0 {
            bytes.extend(encoded(&["WAIT", &needed.to_string(), WAIT_MS]));
        }
        connection.send(&bytes)?;
        for expected in replies {
            let reply = connection.reply()?;
            let holds = match (&reply, expected) {
                (Reply::Line(text), Expected::Text(expected)) => text == expected,
                (Reply::Line(text), Expected::Number) => text.parse::<u64>().is_ok(),
                (Reply::Many(all), Expected::Both) => {
                    let is_ok = |reply: &Reply| *reply == Reply::Line("OK".to_owned());
                    all.len() == 2 && all.iter().all(is_ok)
                }
                _ => false,
            };
            ensure!(holds, "{reply:?} in place of {expected:?}");
        }
        if needed == 0 {
            return Ok(0);
        }
        match connection.reply()? {
            Reply::Line(count) => Ok(count.parse()?),
            reply => bail!("WAIT replies {reply:?}"),
        }
    }

    /// Appends the commands of a write, and what they reply.
    fn encode(&mut self, write: Write, bytes: &mut Vec<u8>, replies: &mut Vec<Expected>) {
        let (client, number) = (self.client, write.number.to_string());
        let mut one = |words: &[&str], reply| {
            bytes.extend(encoded(words));
            replies.push(reply);
        };
        let slot = match write.target {
            Target::List => {
                one(&["RPUSH", &key(client, "list"), &number], Expected::Number);
                return;
            }
            Target::Slot(slot) => slot,
        };
        let (kind, place) = (slot / PLACES, slot % PLACES);
        match kind {
            0 => {
                let padding = ".".repeat(self.random.random_range(0..PADDING_MAX));
                let value = format!("{number}:{padding}");
                let words = ["SET", &key_of_string(client, place), &value];
                one(&words, Expected::Text("OK"));
            }
            1 => {
                let words = ["HSET", &key(client, "hash"), &place.to_string(), &number];
                one(&words, Expected::Number);
            }
            2 => {
                let words = ["ZADD", &key(client, "scores"), &number, &place.to_string()];
                one(&words, Expected::Number);
            }
            _ => {
                one(&["MULTI"], Expected::Text("OK"));
                for name in ["one", "other"] {
                    let words = ["SET", &key(client, name), &number];
                    one(&words, Expected::Text("QUEUED"));
                }
                one(&["EXEC"], Expected::Both);
            }
        }
    }
}

/// What a command replies if it was carried out.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Text(&'static str),
    Number,
    /// Of a transaction of two writes.
    Both,
}
