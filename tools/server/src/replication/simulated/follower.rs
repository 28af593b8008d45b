//! The link of a simulated server to its source: what `link.rs` does in a thread, step by step.

use std::collections::{HashSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::node::{Node, NodeGround};
use crate::random::Numbers;
use crate::replication::error::LinkError;
use crate::replication::handshake::{Begin, begin_of};
use crate::replication::history::{Position, StreamId};
use crate::replication::inlet::Inlet;
use crate::replication::input::Input;
use crate::replication::load::{End, Load};
use crate::replication::replicas::ground::Ground as _;
use crate::replication::replicas::port::Order;
use crate::replication::source::{take_line, write_command};
use crate::replication::state::{Phase, State};
use crate::replication::stream::Stream;

/// How often the source hears the position.
const ACKNOWLEDGE: Duration = Duration::from_secs(1);
/// Commands that are passed on at once, at most.
const COMMANDS_MAX: usize = 16;
/// The commands that a simulated source may send.
const NAMES: [&str; 13] = [
    "set",
    "unlink",
    "del",
    "persist",
    "pexpireat",
    "rpush",
    "lpush",
    "ltrim",
    "lmove",
    "lset",
    "restore",
    "flushall",
    "publish",
];

/// The bytes on their way between a replica and its source.
#[derive(Debug)]
struct Pipe {
    /// The socket whose other end the source has.
    wire: UnixStream,
    coming: VecDeque<u8>,
    going: VecDeque<u8>,
    is_ended: bool,
}

/// How far a link is.
#[derive(Debug)]
enum Stage {
    Down,
    /// The source was told where this server is.
    Asked,
    /// It sends all data, soon.
    Announced(StreamId, u64),
    Loading(Box<Load>, Inlet, (StreamId, u64)),
    /// All data are passed on.
    Loaded(Inlet, (StreamId, Position)),
    /// The stream of this server has not ended yet.
    Entering(Inlet, Position),
    Applying(Box<Stream>, Inlet),
}

/// A link.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) source: usize,
    stage: Stage,
    pipe: Option<Pipe>,
    input: Input,
    retry_at: Instant,
    heard: Instant,
    said: Option<Instant>,
    is_paused: bool,
    /// How often all data were loaded, and the stream went on.
    pub(super) loads: u64,
    pub(super) lineages: u64,
    /// How many servers were promoted before the one whose stream the data are a state of.
    pub(super) lineage: Option<u64>,
}

/// What a link has to do with, beside itself.
pub(super) type Around<'a> = (&'a mut Node, &'a mut Numbers);

impl Follower {
    pub(super) fn new(source: usize, now: Instant) -> Self {
        Self {
            source,
            stage: Stage::Down,
            pipe: None,
            input: Input::default(),
            retry_at: now,
            heard: now,
            said: None,
            is_paused: false,
            loads: 0,
            lineages: 0,
            lineage: None,
        }
    }

    /// True if it is time to connect.
    pub(super) fn wants_to_connect(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Down) && now >= self.retry_at
    }

    /// Goes on with a connection.
    pub(super) fn connected(&mut self, wire: UnixStream, now: Instant) {
        self.pipe = Some(Pipe {
            wire,
            coming: VecDeque::new(),
            going: VecDeque::new(),
            is_ended: false,
        });
        self.input = Input::default();
        self.heard = now;
        self.said = None;
        self.stage = Stage::Asked;
    }

    pub(super) fn is_applying(&self) -> bool {
        matches!(self.stage, Stage::Applying(..))
    }

    /// True if the data before have gone, and others have not come yet.
    pub(super) fn is_loading(&self) -> bool {
        matches!(self.stage, Stage::Loading(..) | Stage::Loaded(..))
    }

    /// True if nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        let Stage::Applying(stream, inlet) = &self.stage else {
            return false;
        };
        let pipe = self.pipe.as_ref();
        let is_empty = pipe.is_some_and(|pipe| pipe.coming.is_empty());
        is_empty && inlet.is_idle() && stream.read() == stream.applied().offset
    }

    /// How far it is, for a message.
    pub(super) fn shown(&self) -> String {
        let stage = match &self.stage {
            Stage::Down => "down".to_owned(),
            Stage::Asked => "asked".to_owned(),
            Stage::Announced(..) => "announced".to_owned(),
            Stage::Loading(load, ..) => format!("loading, {} bytes read", load.read_bytes()),
            Stage::Loaded(..) => "loaded".to_owned(),
            Stage::Entering(..) => "entering".to_owned(),
            Stage::Applying(stream, _) => {
                format!(
                    "applying, {} read, {:?} applied",
                    stream.read(),
                    stream.applied()
                )
            }
        };
        let coming = self.pipe.as_ref().map(|pipe| pipe.coming.len());
        format!(
            "{stage}, from {}, {coming:?} bytes coming, paused {}",
            self.source, self.is_paused
        )
    }

    /// Moves some bytes between both ends.
    pub(super) fn carry(&mut self, numbers: &mut Numbers, now: Instant) {
        let Some(pipe) = &mut self.pipe else {
            return;
        };
        let mut amount = || match numbers.below(4) {
            0 => 0,
            1 => numbers.below(60),
            2 => numbers.below(4000),
            _ => 100_000,
        };
        let mut buffer = vec![0; amount()];
        if !buffer.is_empty() {
            match pipe.wire.read(&mut buffer) {
                Ok(0) => pipe.is_ended = true,
                Ok(bytes) => pipe.coming.extend(&buffer[..bytes]),
                Err(error) => pipe.is_ended |= error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
        let delivered = amount().min(pipe.coming.len());
        if delivered > 0 {
            let bytes: Vec<u8> = pipe.coming.drain(..delivered).collect();
            self.input.add(&bytes);
            self.heard = now;
        }
        let sent = amount().min(pipe.going.len());
        let (bytes, _) = pipe.going.as_slices();
        if let Ok(sent) = pipe.wire.write(&bytes[..sent.min(bytes.len())]) {
            pipe.going.drain(..sent);
        }
    }

    /// Does some of what there is to do; a link that ends begins again later.
    pub(super) fn step(&mut self, (node, numbers): Around<'_>) -> Result<(), String> {
        let now = node.ground.now();
        let limit = Duration::from_secs(60);
        let is_over = self
            .pipe
            .as_ref()
            .is_some_and(|pipe| pipe.is_ended && pipe.coming.is_empty());
        let done = self.go_on((node, numbers));
        self.show(now);
        let ended = match done {
            Err(error) => Some(error),
            Ok(()) if self.is_paused => None,
            Ok(()) if is_over => Some(LinkError::Closed),
            Ok(()) if now.saturating_duration_since(self.heard) >= limit => {
                Some(LinkError::Silent {
                    waited: limit,
                    limit,
                })
            }
            Ok(()) => None,
        };
        match ended {
            Some(error) if !matches!(self.stage, Stage::Down) => self.end((node, numbers), error),
            _ => Ok(()),
        }
    }

    /// Shows the source that this end is there, while it says nothing else.
    fn show(&mut self, now: Instant) {
        let is_due = self
            .said
            .is_none_or(|said| now.saturating_duration_since(said) >= ACKNOWLEDGE);
        if is_due
            && !matches!(self.stage, Stage::Applying(..))
            && let Some(pipe) = &mut self.pipe
        {
            self.said = Some(now);
            pipe.going.push_back(b'\n');
        }
    }

    fn go_on(&mut self, (node, numbers): Around<'_>) -> Result<(), LinkError> {
        let ground = std::sync::Arc::clone(&node.ground);
        match std::mem::replace(&mut self.stage, Stage::Down) {
            Stage::Down => {}
            Stage::Asked => {
                self.stage = Stage::Asked;
                let Some(line) = take_line(&mut self.input)? else {
                    return Ok(());
                };
                let own = ground.replication.state().history.id;
                match begin_of(&line)? {
                    Begin::Full { id, offset } => self.stage = Stage::Announced(id, offset),
                    Begin::Partial { id } => {
                        if let Some(id) = id.filter(|id| *id != own) {
                            change(&ground, |state| state.history.rename(id));
                            if node.publisher.is_some() {
                                ground.port().give(Order::Renamed);
                            }
                        }
                        let position = ground.replication.state().history.position;
                        self.stage = Stage::Entering(Inlet::new(ground.connect()?), position);
                    }
                }
            }
            Stage::Announced(id, offset) => {
                self.stage = Stage::Announced(id, offset);
                let Some(end) = End::take(&mut self.input)? else {
                    return Ok(());
                };
                let mut inlet = Inlet::new(ground.connect()?);
                change(&ground, State::begin_load);
                if node.publisher.is_some() {
                    ground.port().give(Order::Relay);
                }
                ground
                    .replication
                    .figures
                    .applied
                    .store(0, Ordering::Relaxed);
                inlet.out.add(&[b"FLUSHALL"]);
                self.stage = Stage::Loading(Box::new(Load::new(end)), inlet, (id, offset));
            }
            Stage::Loading(load, inlet, place) => {
                self.stage = Stage::Loading(load, inlet, place);
                self.load(numbers)?;
            }
            Stage::Loaded(inlet, place) => {
                self.stage = Stage::Loaded(inlet, place);
                self.enter(&ground)?;
            }
            Stage::Entering(mut inlet, position) => {
                if ground.port().is_on() {
                    self.stage = Stage::Entering(inlet, position);
                    return Ok(());
                }
                ground.port().begin_relay(position.offset);
                let names: HashSet<_> = NAMES.into_iter().collect();
                let mut stream = Box::new(Stream::new(position, names, &mut inlet.out));
                note_applied(&ground, &mut stream);
                note_phase(&ground, Phase::Connected);
                self.lineages += 1;
                self.stage = Stage::Applying(stream, inlet);
            }
            Stage::Applying(stream, inlet) => {
                self.stage = Stage::Applying(stream, inlet);
                self.apply((node, numbers))?;
            }
        }
        Ok(())
    }

    fn load(&mut self, numbers: &mut Numbers) -> Result<(), LinkError> {
        let Stage::Loading(load, inlet, (id, offset)) = &mut self.stage else {
            return Ok(());
        };
        inlet.exchange()?;
        if let Some((_, reply)) = inlet.take_failed().into_iter().next() {
            return Err(LinkError::NotStored(reply));
        }
        let mut is_whole = false;
        for _ in 0..numbers.below(COMMANDS_MAX) {
            is_whole = load.step(&mut self.input, &mut inlet.out)?;
            if is_whole {
                break;
            }
        }
        if !is_whole {
            return Ok(());
        }
        let position = Position {
            offset: *offset,
            database: load.database(),
        };
        let place = (*id, position);
        if let Stage::Loading(_, inlet, _) = std::mem::replace(&mut self.stage, Stage::Down) {
            self.stage = Stage::Loaded(inlet, place);
        }
        Ok(())
    }

    /// Notes that all data are here, once they are.
    fn enter(&mut self, ground: &NodeGround) -> Result<(), LinkError> {
        if let Stage::Loaded(inlet, _) = &mut self.stage {
            inlet.exchange()?;
            if let Some((_, reply)) = inlet.take_failed().into_iter().next() {
                return Err(LinkError::NotStored(reply));
            }
            if !inlet.is_idle() {
                return Ok(());
            }
        }
        if let Stage::Loaded(inlet, (id, position)) =
            std::mem::replace(&mut self.stage, Stage::Down)
        {
            change(ground, |state| state.end_load(id, position));
            self.loads += 1;
            self.stage = Stage::Entering(inlet, position);
        }
        Ok(())
    }

    fn apply(&mut self, (node, numbers): Around<'_>) -> Result<(), LinkError> {
        let ground = std::sync::Arc::clone(&node.ground);
        if ground.port().wants_pause() {
            if !self.is_paused {
                self.drain(node);
                self.settle(&ground)?;
                self.is_paused = true;
                ground.port().note_paused(true);
            }
        } else if self.is_paused {
            self.is_paused = false;
            self.heard = ground.now();
            ground.port().note_paused(false);
        }
        self.settle(&ground)?;
        let Stage::Applying(stream, inlet) = &mut self.stage else {
            return Ok(());
        };
        inlet.exchange()?;
        if !self.is_paused {
            for _ in 0..numbers.below(COMMANDS_MAX) {
                if !stream.step(&mut self.input, &mut inlet.out)? {
                    break;
                }
            }
        }
        inlet.exchange()?;
        let now = ground.now();
        let is_due = self
            .said
            .is_none_or(|said| now.saturating_duration_since(said) >= ACKNOWLEDGE);
        if is_due || stream.take_question() {
            self.said = Some(now);
            let offset = stream.applied().offset.to_string();
            let mut bytes = Vec::new();
            write_command(&[b"REPLCONF", b"ACK", offset.as_bytes()], &mut bytes);
            if let Some(pipe) = &mut self.pipe {
                pipe.going.extend(bytes);
            }
        }
        Ok(())
    }

    /// Notes what was carried out.
    fn settle(&mut self, ground: &NodeGround) -> Result<(), LinkError> {
        let Stage::Applying(stream, inlet) = &mut self.stage else {
            return Ok(());
        };
        inlet.exchange()?;
        let faults = stream.settle(inlet.answered(), inlet.take_failed())?;
        if let Some(fault) = faults.into_iter().next() {
            return Err(LinkError::NotApplied {
                command: fault.command,
                reply: fault.reply,
            });
        }
        note_applied(ground, stream);
        Ok(())
    }

    /// Has all be carried out that was passed on.
    fn drain(&mut self, node: &mut Node) {
        while let Stage::Loading(_, inlet, _) | Stage::Loaded(inlet, _) | Stage::Applying(_, inlet) =
            &mut self.stage
            && !inlet.is_idle()
            && inlet.exchange().is_ok()
            && node.serve(None).is_ok()
        {}
    }

    /// Ends the link.
    ///
    /// # Errors
    /// The source has sent what cannot be: a fault of the server.
    pub(super) fn end(
        &mut self,
        (node, numbers): Around<'_>,
        error: LinkError,
    ) -> Result<(), String> {
        let ground = std::sync::Arc::clone(&node.ground);
        if let Stage::Loading(_, inlet, _) | Stage::Loaded(inlet, _) = &mut self.stage {
            inlet.out.add(&[b"FLUSHALL"]);
        }
        self.drain(node);
        let settled = self.settle(&ground);
        if self.is_paused {
            self.is_paused = false;
            ground.port().note_paused(false);
        }
        self.stage = Stage::Down;
        self.pipe = None;
        note_phase(&ground, Phase::Down);
        let pause = Duration::from_millis(100 + numbers.below(200) as u64);
        self.retry_at = ground.now() + pause;
        match settled.err().unwrap_or(error) {
            LinkError::Closed | LinkError::Stopped | LinkError::Silent { .. } => Ok(()),
            // The source follows none, or has no data.
            LinkError::Refused { .. } => Ok(()),
            error => Err(format!("the link has ended: {error}")),
        }
    }
}

fn change(ground: &NodeGround, change: impl FnOnce(&mut State)) {
    ground.replication.change(&ground.refusals, change);
}

fn note_phase(ground: &NodeGround, phase: Phase) {
    change(ground, |state| {
        if let Some(link) = &mut state.link {
            link.phase = phase;
        }
    });
}

/// Notes how far the stream was applied, and passes it on.
fn note_applied(ground: &NodeGround, stream: &mut Stream) {
    stream.take_applied(|bytes| ground.port().relay(bytes));
    let applied = stream.applied();
    let figures = &ground.replication.figures;
    figures.applied.store(applied.offset, Ordering::Relaxed);
    ground.replication.state().history.position = applied;
}
