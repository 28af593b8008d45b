//! A client that uses the server as it should be used, beside the load: short reads and writes, one
//! every few milliseconds, and now and then ten long values at once. It counts what goes wrong.
//!
//! Each kind of call has a connection and a thread of its own; both run before the load, with which
//! they share a core.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farcore_client::{Client, ClientOptions, FabricAddress, Token};

use super::caller::Caller;
use super::cores::{hurry, pin};
use super::data::value_key;
use super::load::Door;
use super::words::Reply;

/// Between two short calls of a connection.
const PACE: Duration = Duration::from_millis(4);
/// Between two reads of long values.
const LONG_PACE: Duration = Duration::from_millis(500);
/// Before it connects again.
const AGAIN: Duration = Duration::from_millis(50);
/// Bytes of a short value.
const SHORT_BYTES: usize = 100;
/// Bytes of a long value, and how many are read at once.
pub(super) const LONG_BYTES: usize = 1_000_000;
pub(super) const LONG_COUNT: u64 = 10;

/// What happened to the client.
#[derive(Clone, Debug, Default)]
pub(super) struct Behaved {
    /// Of each short call, in microseconds.
    latencies_us: Vec<u32>,
    pub(super) long_reads: u64,
    /// Connections that ended, were refused or did not answer in time.
    pub(super) disconnects: u64,
    /// Replies that are errors or wrong.
    pub(super) errors: u64,
    /// The first that went wrong.
    pub(super) first: Option<String>,
}

impl Behaved {
    /// Short calls that were answered.
    pub(super) fn calls(&self) -> usize {
        self.latencies_us.len()
    }

    /// A percentile of the latencies; none without calls.
    pub(super) fn latency(&self, percent: usize) -> Option<Duration> {
        let mut all = self.latencies_us.clone();
        all.sort_unstable();
        let last = all.len().checked_sub(1)?;
        let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
        let latency = all[place.min(last)];
        Some(Duration::from_micros(latency.into()))
    }
}

/// How a step ended, if not well.
enum Fault {
    /// The connection has ended.
    Ended(String),
    /// It goes on.
    Wrong(String),
}

/// One kind of call, on a connection of its own.
trait Habit: Send {
    fn connect(&mut self) -> Result<()>;
    fn call(&mut self, number: u64) -> Result<(), Fault>;
}

fn ended(error: &std::io::Error) -> Fault {
    Fault::Ended(error.to_string())
}

/// Writes and reads short values by turns.
struct Short {
    door: Door,
    caller: Option<Caller>,
}

impl Habit for Short {
    fn connect(&mut self) -> Result<()> {
        self.caller = Some(Caller::connect(&self.door)?);
        Ok(())
    }

    fn call(&mut self, number: u64) -> Result<(), Fault> {
        let Some(caller) = &mut self.caller else {
            return Err(Fault::Ended("no connection".to_owned()));
        };
        let value = vec![b'a' + (number / 2 % 26) as u8; SHORT_BYTES];
        let (words, wanted): (&[&[u8]], _) = if number.is_multiple_of(2) {
            (&[b"SET", b"well", &value], Reply::Line("OK".to_owned()))
        } else {
            (&[b"GET", b"well"], Reply::Bytes(value.clone()))
        };
        match caller.call(words).map_err(|error| ended(&error))? {
            reply if reply == wanted => Ok(()),
            reply => Err(Fault::Wrong(format!("{reply:?}"))),
        }
    }
}

/// Reads ten long values at once.
struct Long {
    door: Door,
    caller: Option<Caller>,
}

impl Habit for Long {
    fn connect(&mut self) -> Result<()> {
        self.caller = Some(Caller::connect(&self.door)?);
        Ok(())
    }

    fn call(&mut self, _: u64) -> Result<(), Fault> {
        let Some(caller) = &mut self.caller else {
            return Err(Fault::Ended("no connection".to_owned()));
        };
        let keys: Vec<Vec<u8>> = (0..LONG_COUNT)
            .map(|key| value_key(LONG_BYTES, key))
            .collect();
        let mut words: Vec<&[u8]> = vec![b"MGET"];
        words.extend(keys.iter().map(Vec::as_slice));
        let reply = caller.call(&words).map_err(|error| ended(&error))?;
        let is_long =
            |value: &Reply| matches!(value, Reply::Bytes(value) if value.len() == LONG_BYTES);
        match reply {
            Reply::Many(values) if values.iter().all(is_long) => Ok(()),
            Reply::Error(text) => Err(Fault::Wrong(format!("MGET: {text}"))),
            _ => Err(Fault::Wrong("MGET has other values".to_owned())),
        }
    }
}

/// Writes and reads short values over the native protocol.
struct Native {
    address: FabricAddress,
    token: Option<Token>,
    client: Option<Client>,
    /// Connections that the client had made: it connects again by itself.
    connections: u64,
}

impl Habit for Native {
    fn connect(&mut self) -> Result<()> {
        let options = ClientOptions {
            token: self.token.clone(),
            name: "well-behaved".to_owned(),
            ..ClientOptions::default()
        };
        let client = Client::connect(&self.address, options)?;
        self.connections = client.figures().connections;
        self.client = Some(client);
        Ok(())
    }

    fn call(&mut self, number: u64) -> Result<(), Fault> {
        let Some(client) = &self.client else {
            return Err(Fault::Ended("no connection".to_owned()));
        };
        let value = [b'a' + (number / 2 % 26) as u8; SHORT_BYTES];
        let outcome = if number.is_multiple_of(2) {
            client.put(b"native", &value).wait().map(|_| true)
        } else {
            let found = client.get(b"native").wait();
            found.map(|found| found.is_some_and(|found| found.bytes == value))
        };
        let connections = client.figures().connections;
        if std::mem::replace(&mut self.connections, connections) != connections {
            return Err(Fault::Ended("the native connection was lost".to_owned()));
        }
        match outcome {
            Ok(true) => Ok(()),
            Ok(false) => Err(Fault::Wrong("another value".to_owned())),
            Err(error) => Err(Fault::Ended(error.to_string())),
        }
    }
}

/// What all habits share.
#[derive(Debug, Default)]
struct Shared {
    behaved: Mutex<Behaved>,
    is_over: AtomicBool,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn note(&self, note: impl FnOnce(&mut Behaved)) {
        note(&mut self.behaved.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn note_fault(&self, fault: Fault) {
        // What ends when all ends is no fault.
        if self.is_over() {
            return;
        }
        self.note(|behaved| {
            let text = match fault {
                Fault::Ended(text) => {
                    behaved.disconnects += 1;
                    text
                }
                Fault::Wrong(text) => {
                    behaved.errors += 1;
                    text
                }
            };
            let text = text.chars().take(120).collect();
            behaved.first.get_or_insert(text);
        });
    }
}

/// Calls until the end, and connects again whenever it must.
fn live(habit: &mut dyn Habit, shared: &Shared, pace: Duration, is_short: bool) {
    let mut number = 0;
    while !shared.is_over() {
        let start = Instant::now();
        match habit.call(number) {
            Ok(()) => {
                let took = u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX);
                shared.note(|behaved| match is_short {
                    true => behaved.latencies_us.push(took),
                    false => behaved.long_reads += 1,
                });
                number += 1;
            }
            Err(Fault::Wrong(text)) => {
                shared.note_fault(Fault::Wrong(text));
                number += 1;
            }
            Err(fault) => {
                shared.note_fault(fault);
                // What was under way may have happened or not: begin with a write.
                number = number.next_multiple_of(2);
                thread::sleep(AGAIN);
                if let Err(error) = habit.connect() {
                    shared.note_fault(Fault::Ended(format!("{error:#}")));
                }
            }
        }
        thread::sleep(pace.saturating_sub(start.elapsed()));
    }
}

/// The running client.
#[derive(Debug)]
pub(super) struct WellBehaved {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl WellBehaved {
    /// Connects, makes a first call on each connection, and goes on in threads on a core.
    ///
    /// # Errors
    /// A connection is refused, before there is any load.
    pub(super) fn start(
        door: &Door,
        native: Option<(FabricAddress, Option<Token>)>,
        core: usize,
    ) -> Result<Self> {
        let short = Short {
            door: door.clone(),
            caller: None,
        };
        let long = Long {
            door: door.clone(),
            caller: None,
        };
        let mut habits: Vec<(Box<dyn Habit>, Duration)> =
            vec![(Box::new(short), PACE), (Box::new(long), LONG_PACE)];
        if let Some((address, token)) = native {
            let native = Native {
                address,
                token,
                client: None,
                connections: 0,
            };
            habits.push((Box::new(native), PACE));
        }
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for (mut habit, pace) in habits {
            let shared = Arc::clone(&shared);
            let (begun, has_begun) = std::sync::mpsc::channel();
            let thread = thread::Builder::new().name("well-behaved".to_owned());
            let thread = thread.spawn(move || {
                hurry();
                let connected = pin(core).and_then(|()| habit.connect());
                let is_connected = connected.is_ok();
                // The receiver is gone only if another habit has failed.
                let _ = begun.send(connected);
                if is_connected {
                    live(&mut *habit, &shared, pace, pace == PACE);
                }
            });
            threads.push(thread.context("cannot start a thread")?);
            let connected = has_begun.recv().context("a thread was lost")?;
            connected.context("the well-behaved client cannot connect before there is a load")?;
        }
        Ok(Self { shared, threads })
    }

    /// What has happened so far.
    pub(super) fn so_far(&self) -> Behaved {
        let behaved = self.shared.behaved.lock();
        behaved.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it; returns what has happened.
    ///
    /// # Errors
    /// A thread panicked.
    pub(super) fn end(mut self) -> Result<Behaved> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            if thread.join().is_err() {
                bail!("the well-behaved client panicked");
            }
        }
        let behaved = self.so_far();
        ensure!(
            behaved.calls() > 0,
            "the well-behaved client had no reply at all"
        );
        Ok(behaved)
    }
}

impl Drop for WellBehaved {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_one_that_was_seen() {
        let mut behaved = Behaved::default();
        assert_eq!(behaved.latency(99), None);
        behaved.latencies_us = (1..=200).rev().collect();
        assert_eq!(behaved.latency(99), Some(Duration::from_micros(198)));
        assert_eq!(behaved.latency(100), Some(Duration::from_micros(200)));
        behaved.latencies_us = vec![7];
        assert_eq!(behaved.latency(99), Some(Duration::from_micros(7)));
    }
}
