//! The load of a scenario: its crowds, driven by one thread that waits for none of them.
//!
//! - I1: it keeps little: of each connection what the server has not taken of one turn.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::certificate::Certificate;
use super::channel::Channel;
use super::cores::pin;
use super::crowd::{Crowd, Entrance, Reading, Turn};
use super::words::command;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes that one connection sends and reads before others have their turn.
const TURN_BYTES: usize = 256 << 10;
/// Connections that are begun before others have their turn.
const BEGUN: usize = 64;
/// How long a place waits after the server has ended its connection.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a poll waits, at most.
const POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Where crowds connect and how they greet.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) plain: SocketAddr,
    pub(super) encrypted: Option<SocketAddr>,
    pub(super) native: Option<SocketAddr>,
    pub(super) certificate: Certificate,
    pub(super) password: Option<&'static str>,
    /// Greet for the third version of the protocol.
    pub(super) is_third: bool,
}

impl Door {
    /// What a connection sends first.
    pub(super) fn greeting(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(password) = self.password {
            command(&mut out, &[b"AUTH", password.as_bytes()]);
        }
        if self.is_third {
            command(&mut out, &[b"HELLO", b"3"]);
        }
        out
    }

    fn connect(&self, crowd: &Crowd) -> Result<Channel> {
        let tls = || self.certificate.connection();
        let (address, tls) = match (crowd.entrance, self.encrypted) {
            (Entrance::AtNative, _) => (self.native.context("no native address")?, None),
            (Entrance::Unencrypted, Some(address)) => (address, None),
            (Entrance::Member | Entrance::Stranger, Some(address)) => (address, Some(tls()?)),
            (_, None) => (self.plain, None),
        };
        let reads_all = crowd.reading == Reading::All;
        Ok(Channel::begin(address, tls, reads_all)?)
    }
}

/// What the crowds have done.
#[derive(Debug, Default)]
pub(super) struct Counts {
    begun: AtomicU64,
    ended: AtomicU64,
    killed: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        write!(
            f,
            "{} connections, {} ended by the server, {} killed, {} KiB sent, {} KiB received",
            get(&self.begun),
            get(&self.ended),
            get(&self.killed),
            get(&self.sent_bytes) >> 10,
            get(&self.received_bytes) >> 10
        )
    }
}

/// A connection of a crowd, or the place for one.
struct Place {
    crowd: usize,
    who: u64,
    turns: u64,
    channel: Option<Channel>,
    out: Vec<u8>,
    sent: usize,
    has_said_all: bool,
    /// When a connection is begun, or killed.
    due: Option<Instant>,
    reads_at: Instant,
}

impl Place {
    fn new(crowd: usize, who: u64, now: Instant) -> Self {
        Self {
            crowd,
            who,
            turns: 0,
            channel: None,
            out: Vec::new(),
            sent: 0,
            has_said_all: false,
            due: Some(now),
            reads_at: now,
        }
    }

    fn begin(&mut self, door: &Door, crowd: &Crowd, now: Instant) -> Result<()> {
        self.channel = Some(door.connect(crowd)?);
        self.turns = 0;
        self.sent = 0;
        self.has_said_all = false;
        self.out = match crowd.entrance {
            Entrance::Member => door.greeting(),
            _ => Vec::new(),
        };
        // Not all at once: spread over a half of it by place.
        let early = |life: Duration| life.mul_f64((self.who % 16) as f64 / 32.0);
        self.due = crowd.life.map(|life| now + life - early(life));
        Ok(())
    }

    /// Has the talk go on if all was sent.
    fn think(&mut self, crowd: &Crowd) {
        if self.sent < self.out.len() || self.has_said_all {
            return;
        }
        self.out.clear();
        self.sent = 0;
        let turn = Turn {
            who: self.who,
            number: self.turns,
        };
        (crowd.talk)(turn, &mut self.out);
        self.turns += 1;
        self.has_said_all = self.out.is_empty();
        if self.has_said_all {
            // Of a thousand connections, each buffer counts.
            self.out = Vec::new();
        }
    }

    fn wanted(&self, crowd: &Crowd, now: Instant) -> PollFlags {
        let mut wanted = PollFlags::RDHUP;
        let Some(channel) = &self.channel else {
            return wanted;
        };
        let reads = crowd.reading != Reading::Never && self.reads_at <= now;
        if reads || channel.is_shaking_hands() {
            wanted |= PollFlags::IN;
        }
        let says = self.sent < self.out.len() || !self.has_said_all;
        if says && !channel.is_shaking_hands() || channel.has_output() {
            wanted |= PollFlags::OUT;
        }
        wanted
    }

    /// Sends and reads what it can; an error means that the connection has ended.
    fn go_on(&mut self, crowd: &Crowd, now: Instant, run: &mut Run<'_>) -> std::io::Result<()> {
        let Some(mut channel) = self.channel.take() else {
            return Ok(());
        };
        let mut sent = 0;
        loop {
            let taken = channel.write(&self.out[self.sent..])?;
            self.sent += taken;
            sent += taken;
            if self.sent < self.out.len() || sent >= TURN_BYTES || channel.is_shaking_hands() {
                break;
            }
            self.think(crowd);
            if self.has_said_all {
                break;
            }
        }
        run.counts
            .sent_bytes
            .fetch_add(sent as u64, Ordering::Relaxed);
        let (most, again) = match crowd.reading {
            Reading::Never => (0, now),
            Reading::All => (TURN_BYTES, now),
            Reading::Slowly(bytes, pause) => (bytes, now + pause),
        };
        if self.reads_at <= now && !channel.is_shaking_hands() {
            let mut received = 0;
            while received < most {
                let room = (most - received).min(run.buffer.len());
                match channel.read(&mut run.buffer[..room])? {
                    0 => break,
                    bytes => received += bytes,
                }
            }
            if received > 0 {
                self.reads_at = again;
            }
            let counts = run.counts;
            counts
                .received_bytes
                .fetch_add(received as u64, Ordering::Relaxed);
        }
        self.channel = Some(channel);
        Ok(())
    }
}

/// What a pass over the places uses.
struct Run<'a> {
    counts: &'a Counts,
    buffer: Vec<u8>,
}

/// Begins and kills the connections that are due.
fn keep_up(places: &mut [Place], crowds: &[Crowd], door: &Door, counts: &Counts) {
    let now = Instant::now();
    let mut begun = 0;
    for place in places.iter_mut() {
        if place.due.is_none_or(|due| due > now) {
            continue;
        }
        if let Some(channel) = place.channel.take() {
            channel.reset();
            counts.killed.fetch_add(1, Ordering::Relaxed);
        }
        if begun == BEGUN {
            continue;
        }
        begun += 1;
        match place.begin(door, &crowds[place.crowd], now) {
            Ok(()) => {
                counts.begun.fetch_add(1, Ordering::Relaxed);
                place.think(&crowds[place.crowd]);
            }
            Err(_) => place.due = Some(now + PAUSE),
        }
    }
}

fn drive(crowds: &[Crowd], door: &Door, counts: &Counts, is_over: &AtomicBool) -> Result<()> {
    let now = Instant::now();
    let numbered = crowds.iter().enumerate();
    let mut places: Vec<Place> = numbered
        .flat_map(|(crowd, of)| (0..of.count as u64).map(move |who| Place::new(crowd, who, now)))
        .collect();
    let mut run = Run {
        counts,
        buffer: vec![0; READ_BYTES],
    };
    let mut ready: Vec<(usize, PollFlags)> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        keep_up(&mut places, crowds, door, counts);
        let now = Instant::now();
        let open = places.iter().enumerate().filter_map(|(index, place)| {
            let socket = place.channel.as_ref()?.socket();
            let wanted = place.wanted(&crowds[place.crowd], now);
            Some((index, PollFd::new(socket, wanted)))
        });
        let (indices, mut polled): (Vec<usize>, Vec<PollFd<'_>>) = open.unzip();
        poll(&mut polled, Some(&POLL)).context("cannot poll")?;
        let found = indices.into_iter().zip(polled.iter().map(PollFd::revents));
        ready.clear();
        ready.extend(found.filter(|(_, found)| !found.is_empty()));
        drop(polled);
        for &(index, found) in &ready {
            let place = &mut places[index];
            let crowd = &crowds[place.crowd];
            let has_ended = found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::RDHUP)
                || place.go_on(crowd, now, &mut run).is_err();
            if has_ended {
                place.channel = None;
                place.due = Some(now + PAUSE);
                counts.ended.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Crowds that are driven until this is ended.
#[derive(Debug)]
pub(super) struct Load {
    counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Load {
    /// Starts the crowds, on a core.
    pub(super) fn start(crowds: Vec<Crowd>, door: Door, core: usize) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let (counted, ended) = (Arc::clone(&counts), Arc::clone(&is_over));
        let thread = thread::Builder::new().name("load".to_owned());
        let thread = thread.spawn(move || {
            pin(core)?;
            drive(&crowds, &door, &counted, &ended)
        });
        Ok(Self {
            counts,
            is_over,
            thread: thread.context("cannot start a thread")?,
        })
    }

    /// Ends all connections; returns what they have done.
    pub(super) fn end(self) -> Result<Arc<Counts>> {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.ok().context("the load panicked")??;
        Ok(self.counts)
    }
}
