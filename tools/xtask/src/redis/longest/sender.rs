//! Sends a load again and again, for a while, and stores before each time what it needs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::connection::{Connection, encoded};
use super::loads::{Crowd, Load, Sent};
use super::probe::Probe;
use super::requests::{Request, command, replies, stored, words};
use crate::redis::memory::words::Reply;
use crate::redis::server::Server;

/// Calls of the client beside a load of which one in a hundred says something.
const CALLS_MIN: usize = 300;
/// A load is sent longer to have [`CALLS_MIN`] calls, up to its time times this factor.
const TIMES_MAX: u32 = 5;
/// Bytes of a key, at most.
const KEY_BYTES_MAX: usize = 1024;
/// Commands after which a connection is another one, or none.
const CHANGES_CONNECTION: [&str; 8] = [
    "auth", "hello", "monitor", "multi", "quit", "reset", "watch", "exec",
];
/// Between two connections: a system has some ten thousand ports.
const CONNECTION_PAUSE: Duration = Duration::from_millis(2);

/// What became of a load.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Of each call of the client beside it, in microseconds.
    pub(super) latencies_us: Vec<u32>,
    /// How often it was sent.
    pub(super) times: u64,
    /// The first error that was replied.
    pub(super) error: Option<String>,
}

/// Sends loads to a server.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    server: &'a Server,
    control: Connection,
    stored: Vec<(&'static str, Request)>,
    /// Commands that change what is stored.
    writes: BTreeSet<String>,
}

/// The names in the server's table that have the flag of writes.
fn writes_of(control: &mut Connection) -> Result<BTreeSet<String>> {
    let Reply::Many(commands) = control.call(&words("COMMAND"))? else {
        bail!("COMMAND replies no list");
    };
    let mut writes = BTreeSet::new();
    for command in commands {
        let Reply::Many(parts) = command else {
            bail!("COMMAND has an entry that is no list");
        };
        let [Reply::Bytes(name), _, Reply::Many(flags), ..] = &parts[..] else {
            bail!("COMMAND has an entry without flags");
        };
        if flags.contains(&Reply::Line("write".to_owned())) {
            writes.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(writes)
}

fn name_of(request: &Request) -> String {
    String::from_utf8_lossy(&request[0]).to_lowercase()
}

/// True of the keys `m0000000` and so on.
fn is_of_many(word: &[u8]) -> bool {
    word.len() == 8 && word[0] == b'm' && word[1..].iter().all(u8::is_ascii_digit)
}

impl<'a> Sender<'a> {
    pub(super) fn new(server: &'a Server, mut control: Connection) -> Result<Self> {
        let writes = writes_of(&mut control)?;
        if writes.is_empty() {
            bail!("no command of the server writes");
        }
        Ok(Self {
            server,
            control,
            stored: stored(),
            writes,
        })
    }

    /// Stores all that loads need, and nothing else.
    pub(super) fn store_all(&mut self) -> Result<()> {
        self.control.call(&words("FLUSHALL"))?;
        for (_, request) in &self.stored {
            self.control.call(request)?;
        }
        Ok(())
    }

    /// Stores what requests need that were sent before.
    fn restore(&mut self, requests: &[Request]) -> Result<()> {
        if requests.iter().any(|one| name_of(one).starts_with("flush")) {
            return self.store_all();
        }
        let words = requests.iter().flat_map(|one| one.iter().skip(1));
        let keys: BTreeSet<&[u8]> = words
            .map(Vec::as_slice)
            .filter(|word| !word.is_empty() && word.len() <= KEY_BYTES_MAX)
            .collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.control.call(&command("DEL", keys.iter().copied()))?;
        let has_many = keys.iter().any(|key| is_of_many(key));
        for (key, request) in &self.stored {
            if keys.contains(key.as_bytes()) || *key == "m" && has_many {
                self.control.call(request)?;
            }
        }
        Ok(())
    }

    /// Sends nothing for a while.
    pub(super) fn rest(&mut self, probe: &Probe, time: Duration) -> Result<Outcome> {
        probe.begin();
        thread::sleep(time);
        Ok(Outcome {
            latencies_us: probe.take()?,
            ..Outcome::default()
        })
    }

    /// Sends a load for a while beside the client.
    pub(super) fn send(&mut self, load: &Load, probe: &Probe, time: Duration) -> Result<Outcome> {
        match &load.sent {
            Sent::Nothing => self.rest(probe, time),
            Sent::Requests(requests) => self.send_requests(requests, probe, time),
            Sent::Crowd(crowd) => self.send_crowd(crowd, probe, time),
        }
    }

    fn send_requests(
        &mut self,
        requests: &[Request],
        probe: &Probe,
        time: Duration,
    ) -> Result<Outcome> {
        let bytes: Vec<u8> = requests.iter().flat_map(encoded).collect();
        let count = requests.iter().map(replies).sum();
        let names: BTreeSet<String> = requests.iter().map(name_of).collect();
        let writes = names.iter().any(|name| self.writes.contains(name));
        let is_last = names
            .iter()
            .any(|name| CHANGES_CONNECTION.contains(&&**name) || name.ends_with("subscribe"));
        let mut outcome = Outcome::default();
        let mut connection = None;
        let start = Instant::now();
        while start.elapsed() < time
            || probe.calls() < CALLS_MIN && start.elapsed() < time * TIMES_MAX
        {
            if writes {
                probe.pause();
                self.restore(requests)?;
            }
            let mut open = match connection.take() {
                Some(open) => open,
                None => Connection::open(self.server)?,
            };
            probe.begin();
            let (is_last, error) = match open.exchange(&bytes, count) {
                Ok((error, _)) => (is_last, error),
                // A server that is gone takes no other one.
                Err(error) => (true, Some(format!("{error:#}"))),
            };
            outcome.times += 1;
            outcome.error = outcome.error.or(error);
            if is_last {
                drop(open);
                thread::sleep(CONNECTION_PAUSE);
            } else {
                connection = Some(open);
            }
        }
        probe.pause();
        if writes {
            self.restore(requests)?;
        }
        outcome.latencies_us = probe.take()?;
        Ok(outcome)
    }

    fn send_crowd(&mut self, crowd: &Crowd, probe: &Probe, time: Duration) -> Result<Outcome> {
        self.store_all()?;
        for who in 0..crowd.count {
            for request in (crowd.stored)(who) {
                self.control.call(&request)?;
            }
        }
        let connections = (0..crowd.count).map(|_| Connection::open(self.server));
        let connections = connections.collect::<Result<Vec<_>>>()?;
        let (is_over, times) = (AtomicBool::new(false), AtomicU64::new(0));
        let error = Mutex::new(None);
        thread::scope(|scope| {
            let clients = connections.into_iter().enumerate().map(|(who, mut open)| {
                let requests = (crowd.sent)(who);
                let (is_over, times, error) = (&is_over, &times, &error);
                scope.spawn(move || {
                    let bytes: Vec<u8> = requests.iter().flat_map(encoded).collect();
                    let count = requests.iter().map(replies).sum();
                    while !is_over.load(Ordering::Relaxed) {
                        let (replied, _) = open.exchange(&bytes, count)?;
                        times.fetch_add(1, Ordering::Relaxed);
                        if let Some(replied) = replied {
                            let mut error = error.lock().unwrap_or_else(PoisonError::into_inner);
                            error.get_or_insert(replied);
                        }
                    }
                    anyhow::Ok(())
                })
            });
            let clients: Vec<_> = clients.collect();
            probe.begin();
            thread::sleep(time);
            probe.pause();
            is_over.store(true, Ordering::Relaxed);
            for client in clients {
                match client.join() {
                    Ok(sent) => sent?,
                    Err(_) => bail!("a client panicked"),
                }
            }
            Ok(())
        })?;
        let error = error.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Outcome {
            latencies_us: probe.take()?,
            times: times.into_inner(),
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_many_are_told_from_other_words() {
        assert!(is_of_many(b"m0000001"));
        for word in [&b"m000001"[..], b"n0000001", b"metadata", b""] {
            assert!(!is_of_many(word));
        }
    }
}
