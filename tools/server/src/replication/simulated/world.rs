//! Servers, clients, time and faults: a seed picks one step after the other.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::follower::Follower;
use super::ledger::Ledger;
use super::node::Node;
use super::plan::Plan;
use super::service::shown;
use super::store::{Change, State};
use crate::cores::answers::CoreAnswers;
use crate::databases::Databases;
use crate::options::SourceAddress;
use crate::random::Numbers;
use crate::replication::error::LinkError;
use crate::replication::history::StreamId;
use crate::replication::replicas::ground::Ground as _;
use crate::replication::replicas::port::{NewReplica, Order, Said, Whom, Wish};
use crate::replication::state::{Link, Phase};
use crate::replication::stop::Stop;
use crate::replication::wire::Wire;

/// When a world begins, in nanoseconds since 1970.
const BEGINNING_NS: u64 = 1_800_000_000_000_000_000;
/// Rounds in which all servers must agree once clients and faults have ended.
const ROUNDS_MAX: usize = 6000;
/// Port of the first server.
const PORT: u16 = 7000;

/// What a run has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Of all events: equal seeds have equal ones.
    pub hash: u64,
    /// Changes that clients have made at the server that leads.
    pub writes: u64,
    /// `WAIT`s that were answered that a replica has what was written.
    pub promised: u64,
    /// Servers that were promoted.
    pub promotions: u64,
    /// Loads of all data, and links that went on.
    pub full_syncs: u64,
    /// See `full_syncs`.
    pub partial_syncs: u64,
    /// Times that all keys of a replica were looked at.
    pub looks: u64,
}

/// A `WAIT` that is not answered.
struct Wait {
    answers: CoreAnswers<usize>,
    /// What was written before it.
    written: Vec<(Vec<u8>, usize)>,
}

struct World {
    plan: Plan,
    numbers: Numbers,
    epoch: Instant,
    /// `None`: the server is down.
    nodes: Vec<Option<Node>>,
    leader: usize,
    /// Pairs of servers that do not reach each other.
    cut: BTreeSet<(usize, usize)>,
    ledger: Ledger,
    waits: Vec<Wait>,
    /// Pairs of keys that differ since a server was promoted amid a load.
    doubtful: BTreeSet<usize>,
    /// The number of the next value.
    next: u64,
    outcome: Outcome,
    events: VecDeque<String>,
    /// Events that a failure shows.
    shown: usize,
}

/// Runs the world of a seed. A failure shows its last events, up to this many.
///
/// # Errors
/// A promise was broken: which one, and what happened before.
pub fn run(seed: u64, shown: usize) -> Result<Outcome, String> {
    let _inside = farcore_tuning::simulated::enter(seed, BEGINNING_NS);
    let mut numbers = Numbers::of_seed(seed);
    let plan = Plan::of(&mut numbers);
    let mut world = World {
        epoch: Instant::now(),
        nodes: Vec::new(),
        leader: 0,
        cut: BTreeSet::new(),
        ledger: Ledger::default(),
        waits: Vec::new(),
        doubtful: BTreeSet::new(),
        next: 1,
        outcome: Outcome::default(),
        events: VecDeque::new(),
        shown,
        numbers,
        plan,
    };
    let done = world.live().and_then(|()| world.rest());
    done.map_err(|error| {
        let mut text = format!("seed {seed}: {error}\n  {:?}\n", world.plan);
        for event in &world.events {
            let _ = writeln!(text, "  {event}");
        }
        text
    })?;
    world.note_syncs();
    Ok(world.outcome)
}

/// The stored key of a number; a third each are strings, lists, and pairs of strings.
fn key(kind: char, number: usize) -> Vec<u8> {
    let database = Databases::default().of(u8::try_from(number % 2).unwrap_or(0));
    let name = format!("{kind}{number}");
    database.stored(name.as_bytes()).into_owned()
}

impl World {
    fn live(&mut self) -> Result<(), String> {
        for name in 0..self.plan.servers {
            let node = self.new_node();
            self.nodes.push(Some(node));
            if name > 0 {
                self.follow(name, 0)?;
            }
        }
        for _ in 0..self.plan.steps {
            self.step()?;
            if self.plan.fault_every > 0 && self.numbers.below(self.plan.fault_every) == 0 {
                self.fault()?;
            }
        }
        Ok(())
    }

    fn new_node(&self) -> Node {
        let node = Node::new(self.plan.shards, self.plan.backlog_bytes, self.epoch);
        let settings = &node.ground.port().settings;
        let behind = self.plan.behind_bytes;
        settings.behind_bytes.store(behind, Ordering::Relaxed);
        settings.waits.store(self.plan.waits, Ordering::Relaxed);
        node
    }

    fn event(&mut self, text: String) {
        self.outcome.hash = xxh3_64_with_seed(text.as_bytes(), self.outcome.hash);
        if self.events.len() >= self.shown {
            self.events.pop_front();
        }
        self.events.push_back(text);
    }

    fn step(&mut self) -> Result<(), String> {
        let name = self.numbers.below(self.nodes.len());
        match self.numbers.below(100) {
            0..20 => self.write(),
            20..22 => self.wait(),
            22..40 => {
                if let Some(node) = &mut self.nodes[name] {
                    node.turn(&mut self.numbers);
                }
                Ok(())
            }
            40..60 => {
                self.carry(name);
                Ok(())
            }
            60..80 => self.step_link(name),
            80..92 => match &mut self.nodes[name] {
                Some(node) => node.serve(Some(&mut self.numbers)),
                None => Ok(()),
            },
            92..97 => {
                let ms = [1, 20, 150, 1100][self.numbers.below(4)];
                self.pass_time(ms);
                Ok(())
            }
            97 if self.numbers.below(40) == 0 => {
                self.pass_time(25_000);
                Ok(())
            }
            _ => self.look(name),
        }?;
        self.take_answers()
    }

    fn pass_time(&mut self, ms: u64) {
        farcore_tuning::simulated::advance(ms * 1_000_000);
    }

    fn value(&mut self) -> Vec<u8> {
        let number = self.next;
        self.next += 1;
        let mut value = number.to_string().into_bytes();
        let more = self.numbers.below(2 * self.plan.value_bytes);
        value.resize(value.len() + more, b'.');
        value
    }

    /// A client changes keys of the server that leads, or of one that has led and does not know
    /// better.
    fn write(&mut self) -> Result<(), String> {
        let name = match self.numbers.below(8) {
            0 => self.numbers.below(self.nodes.len()),
            _ => self.leader,
        };
        let leads = name == self.leader;
        let number = self.numbers.below(self.plan.keys);
        let clear_every = self.plan.clear_every;
        let clears = clear_every > 0 && self.numbers.below(clear_every) == 0;
        let changes = self.changes(number);
        let together = (self.numbers.below(2) == 0, self.numbers.below(4) == 0);
        let Some(node) = self.nodes[name]
            .as_mut()
            .filter(|one| one.follower.is_none())
        else {
            return Ok(());
        };
        if clears {
            node.store.clear();
        } else if let [(key, change)] = &changes[..] {
            node.store.change(key, change, false)?;
        } else {
            node.store.together(&changes, together)?;
        }
        if leads {
            self.outcome.writes += 1;
            let keys: Vec<_> = match clears {
                true => self.ledger.keys().map(<[u8]>::to_vec).collect(),
                false => changes.iter().map(|(key, _)| key.clone()).collect(),
            };
            for key in keys {
                let state = node.store.state(&key);
                self.ledger.note(&key, state);
            }
        }
        let what = match (clears, &changes[..]) {
            (true, _) => "FLUSHALL".to_owned(),
            (_, [(key, change), ..]) => format!("{} {change}", String::from_utf8_lossy(key)),
            _ => String::new(),
        };
        self.event(format!("{name}: {}", what.trim_start_matches('\0')));
        Ok(())
    }

    fn changes(&mut self, number: usize) -> Vec<(Vec<u8>, Change)> {
        let far = Some(2_000_000_000_000 + self.numbers.below(1000) as u64);
        let change = match (number % 3, self.numbers.below(8)) {
            (0, roll) if roll < self.plan.long => Change::Long(self.value()),
            (0, 4) => Change::Delete,
            (0, 5) => Change::Expire([None, far][self.numbers.below(2)]),
            (0, 6) => Change::Put(self.value(), far),
            (0, _) => Change::Put(self.value(), None),
            (1, 0..4) => {
                let count = 1 + self.numbers.below(3);
                let values = (0..count).map(|_| self.value()).collect();
                Change::Push(self.numbers.below(2) == 0, values)
            }
            (1, 4) => Change::Drop(1 + self.numbers.below(4)),
            (1, 5) => Change::Rotate,
            (1, 6) => Change::Set(self.numbers.below(4), self.value()),
            (1, _) => match self.numbers.below(3) {
                0 => Change::Delete,
                _ => Change::Expire([None, far][self.numbers.below(2)]),
            },
            _ => {
                let value = self.value();
                let change = match self.numbers.below(6) {
                    0 => Change::Delete,
                    _ => Change::Put(value, None),
                };
                return vec![
                    (key('p', number), change.clone()),
                    (key('q', number), change),
                ];
            }
        };
        let kind = if number.is_multiple_of(3) { 't' } else { 'l' };
        vec![(key(kind, number), change)]
    }

    /// A client waits for a replica.
    fn wait(&mut self) -> Result<(), String> {
        let Some(node) = &mut self.nodes[self.leader] else {
            return Ok(());
        };
        node.start_publisher()?;
        let until = node.ground.now() + Duration::from_secs(30);
        let mut answers = CoreAnswers::new();
        node.ground.port().give(Order::Wait {
            whom: Whom::Replicas(1),
            until: Some(until),
            answer: answers.expect(),
        });
        let keys: Vec<_> = self.ledger.keys().map(<[u8]>::to_vec).collect();
        let states = keys.into_iter().map(|key| {
            let place = self.ledger.last(&key);
            (key, place)
        });
        let written = states.collect();
        self.waits.push(Wait { answers, written });
        self.event("wait".to_owned());
        Ok(())
    }

    /// # Errors
    /// A client is answered that a replica has what was written, and none has it.
    fn take_answers(&mut self) -> Result<(), String> {
        let waits = std::mem::take(&mut self.waits);
        for wait in waits {
            match wait.answers.take_one() {
                None => self.waits.push(wait),
                Some(Some(count)) if count > 0 => {
                    self.outcome.promised += 1;
                    self.event(format!("waited: {count}"));
                    self.promise(count, &wait.written)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn promise(&mut self, count: usize, written: &[(Vec<u8>, usize)]) -> Result<(), String> {
        let has = |name: &usize| {
            let node = self.nodes[*name].as_ref();
            node.is_some_and(|node| {
                let mut all = written.iter();
                all.all(|(key, place)| self.ledger.has(key, *place, &node.store.state(key)))
            })
        };
        let replicas = (0..self.nodes.len()).filter(|name| *name != self.leader);
        let mut holders: Vec<_> = replicas.filter(has).collect();
        if holders.len() < count {
            let mut text = format!(
                "a client was answered that {count} replicas have what it has written, and only \
                 {holders:?} have it"
            );
            let nodes = self.nodes.iter().enumerate();
            for (name, node) in nodes.filter_map(|(name, node)| Some((name, node.as_ref()?))) {
                for (key, place) in written {
                    let state = node.store.state(key);
                    if name != self.leader && !self.ledger.has(key, *place, &state) {
                        let wanted = self.ledger.shown(key, *place);
                        let _ = write!(text, "; {wanted}, and is {} at {name}", shown(&state));
                    }
                }
            }
            return Err(text);
        }
        holders.retain(|name| self.is_of_leader(*name));
        for name in holders {
            for (key, place) in written {
                self.ledger.promise((key, *place), name);
            }
        }
        Ok(())
    }

    fn are_cut(&self, one: usize, other: usize) -> bool {
        self.cut.contains(&(one.min(other), one.max(other)))
    }

    fn carry(&mut self, name: usize) {
        let source = self.nodes[name].as_ref();
        let source = source.and_then(|node| node.follower.as_ref().map(|one| one.source));
        if source.is_some_and(|source| self.are_cut(name, source)) {
            return;
        }
        if let Some(node) = &mut self.nodes[name]
            && let Some(follower) = &mut node.follower
        {
            follower.carry(&mut self.numbers, node.ground.now());
        }
    }

    fn step_link(&mut self, name: usize) -> Result<(), String> {
        let Some(node) = &mut self.nodes[name] else {
            return Ok(());
        };
        let now = node.ground.now();
        let Some(mut follower) = node.follower.take() else {
            return Ok(());
        };
        let (loads, lineages) = (follower.loads, follower.lineages);
        let source = follower.source;
        let mut done = Ok(());
        if follower.wants_to_connect(now) {
            let wish = node.ground.replication.state().history.wish();
            node.follower = Some(follower);
            return self.connect((name, source), wish);
        }
        if done.is_ok() {
            done = follower.step((node, &mut self.numbers));
        }
        let has_loaded = follower.loads > loads;
        let has_entered = follower.lineages > lineages;
        let has_begun = follower.is_loading();
        node.follower = Some(follower);
        if has_begun {
            self.ledger.forget(name);
        }
        if has_entered {
            self.enter(name, source);
        }
        if has_loaded {
            let node = self.nodes[name].as_ref();
            let id = node.map(|node| node.ground.replication.state().history.id);
            let upstream = self.nodes[source].as_ref();
            let own = upstream.and_then(|node| node.publisher.as_ref());
            let own = own
                .zip(id)
                .and_then(|(publisher, id)| publisher.whole_from(id));
            let relayed = upstream.map_or(0, |node| node.whole_from);
            let whole_from = own.unwrap_or(0).max(relayed);
            if let Some(node) = &mut self.nodes[name] {
                node.whole_from = whole_from;
            }
            self.event(format!(
                "{name}: loaded from {source}, whole from {whole_from}"
            ));
        }
        done.map_err(|error| format!("{name}: {error}"))
    }

    /// A replica goes on with the stream of its source.
    fn enter(&mut self, name: usize, source: usize) {
        let upstream = self.nodes[source].as_ref();
        let lineage = match upstream.and_then(|node| node.follower.as_ref()) {
            Some(follower) => follower.lineage,
            None if source == self.leader => Some(self.outcome.promotions),
            None => None,
        };
        let mut text = String::new();
        if let Some(node) = &mut self.nodes[name]
            && let Some(follower) = &mut node.follower
        {
            follower.lineage = lineage;
            let history = node.ground.replication.state().history;
            let offset = history.position.offset;
            text = format!("{name}: applies the stream of {source} from {offset} on");
        }
        self.event(text);
    }

    fn connect(
        &mut self,
        (name, source): (usize, usize),
        wish: Option<(StreamId, u64)>,
    ) -> Result<(), String> {
        if self.are_cut(name, source) || self.nodes[source].is_none() {
            return Ok(());
        }
        let pair = UnixStream::pair().map_err(|error| error.to_string())?;
        let (wire, other) = pair;
        for socket in [&wire, &other] {
            let set = socket.set_nonblocking(true);
            set.map_err(|error| error.to_string())?;
        }
        let next = wish.map_or(-1, |(_, next)| next.cast_signed());
        let octet = u8::try_from(name).unwrap_or(u8::MAX);
        let new = NewReplica {
            wire: Wire::new(TcpStream::from(OwnedFd::from(other)), None),
            peer: SocketAddr::from(([10, 0, 0, octet], 40_000)),
            said: Said {
                port: port_of(name),
                takes_marks: !self.plan.gathers,
                takes_names: self.plan.takes_names,
                ..Said::default()
            },
            wish: Wish::Stream(wish.map(|(id, _)| id), next),
        };
        if let Some(upstream) = &mut self.nodes[source] {
            upstream.start_publisher()?;
            upstream.ground.port().give(Order::Serve(new));
        }
        if let Some(node) = &mut self.nodes[name] {
            let now = node.ground.now();
            if let Some(follower) = &mut node.follower {
                follower.connected(wire, now);
            }
        }
        self.event(format!("{name}: connects to {source}, from {next}"));
        Ok(())
    }

    /// Looks at what a replica holds.
    fn look(&mut self, name: usize) -> Result<(), String> {
        let Some(node) = &self.nodes[name] else {
            return Ok(());
        };
        let Some(follower) = &node.follower else {
            return Ok(());
        };
        if !follower.is_applying() || !self.is_of_leader(name) {
            return Ok(());
        }
        for key in self.ledger.keys() {
            let checked = self.ledger.check(key, &node.store.state(key));
            checked.map_err(|error| format!("at {name}: {error}"))?;
        }
        let applied = node.ground.replication.state().history.position.offset;
        if applied >= node.whole_from {
            for number in (0..self.plan.keys).filter(|number| number % 3 == 2) {
                if !self.doubtful.contains(&number) {
                    let (one, other) = pair_of(node, number);
                    if one != other {
                        return Err(format!(
                            "at {name}: of a transaction, p{number} is {} and q{number} is {}",
                            shown(&one),
                            shown(&other)
                        ));
                    }
                }
            }
        }
        self.outcome.looks += 1;
        Ok(())
    }

    /// True if a server's data are of the stream of the one that leads.
    fn is_of_leader(&self, name: usize) -> bool {
        let node = self.nodes[name].as_ref();
        let follower = node.and_then(|node| node.follower.as_ref());
        follower.is_some_and(|one| one.lineage == Some(self.outcome.promotions))
    }

    fn follow(&mut self, name: usize, source: usize) -> Result<(), String> {
        let node = self.nodes[name].as_ref();
        let follower = node.and_then(|node| node.follower.as_ref());
        if follower.is_some_and(|follower| follower.source == source) {
            return Ok(());
        }
        self.unlink(name)?;
        let stop = Stop::new().map_err(|error| error.to_string())?;
        let Some(node) = &mut self.nodes[name] else {
            return Ok(());
        };
        let now = node.ground.now();
        let link = Link {
            address: SourceAddress {
                host: format!("10.0.0.{source}"),
                port: port_of(source),
            },
            phase: Phase::Down,
            down_since: now,
            error: None,
            stop: Arc::new(stop),
            thread: None,
        };
        let replication = &node.ground.replication;
        replication.change(&node.ground.refusals, |state| state.link = Some(link));
        if node.publisher.is_some() {
            node.ground.port().give(Order::Relay);
        }
        node.follower = Some(Follower::new(source, now));
        self.event(format!("{name}: follows {source}"));
        Ok(())
    }

    /// Ends a link; all that was passed on is carried out.
    fn unlink(&mut self, name: usize) -> Result<(), String> {
        let Some(node) = &mut self.nodes[name] else {
            return Ok(());
        };
        node.ground.replication.cut();
        if let Some(mut follower) = node.follower.take() {
            let ended = follower.end((node, &mut self.numbers), LinkError::Stopped);
            ended.map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }

    fn fault(&mut self) -> Result<(), String> {
        let name = self.numbers.below(self.nodes.len());
        match self.numbers.below(12) {
            0..3 => {
                // What breaks while a replica catches up is most of what can go wrong.
                let amid = (0..self.nodes.len()).find(|name| self.is_amid(*name));
                self.cut_link(amid.unwrap_or(name))
            }
            3 => {
                let other = self.numbers.below(self.nodes.len());
                if name != other {
                    self.cut.insert((name.min(other), name.max(other)));
                    self.event(format!("{name} and {other} are cut off"));
                }
                Ok(())
            }
            4..6 => self.heal(),
            6 if name != self.leader && self.nodes[name].is_some() => {
                self.nodes[name] = None;
                self.ledger.forget(name);
                self.event(format!("{name} is killed"));
                Ok(())
            }
            7 => {
                // Amid whatever it does.
                let leader = self.leader;
                match self.candidate() {
                    Some(next) => {
                        self.nodes[leader] = None;
                        self.event(format!("{leader} leads and is killed"));
                        self.promote(next)
                    }
                    None => Ok(()),
                }
            }
            8 => match self.candidate() {
                Some(next) => {
                    let leader = self.leader;
                    for other in (0..self.nodes.len()).filter(|other| *other != leader) {
                        self.cut.insert((leader.min(other), leader.max(other)));
                    }
                    self.event(format!("{leader} leads and is cut off"));
                    self.promote(next)
                }
                None => Ok(()),
            },
            9 => match self.candidate() {
                Some(next) => self.promote(next),
                None => Ok(()),
            },
            _ if self.plan.chains => self.chain(name),
            _ => Ok(()),
        }
    }

    /// True if a replica has loaded all data, and not the changes of that time.
    fn is_amid(&self, name: usize) -> bool {
        self.nodes[name].as_ref().is_some_and(|node| {
            let offset = node.ground.replication.state().history.position.offset;
            let follower = node.follower.as_ref();
            follower.is_some_and(Follower::is_applying) && offset < node.whole_from
        })
    }

    fn cut_link(&mut self, name: usize) -> Result<(), String> {
        let Some(node) = &mut self.nodes[name] else {
            return Ok(());
        };
        if let Some(mut follower) = node.follower.take() {
            let ended = follower.end((node, &mut self.numbers), LinkError::Closed);
            node.follower = Some(follower);
            ended.map_err(|error| format!("{name}: {error}"))?;
            self.event(format!("{name}: its link is cut"));
        }
        Ok(())
    }

    /// Has a replica follow another one.
    fn chain(&mut self, name: usize) -> Result<(), String> {
        let source = self.numbers.below(self.nodes.len());
        let mut at = source;
        for _ in 0..self.nodes.len() {
            if at == name {
                return Ok(());
            }
            let node = self.nodes[at].as_ref();
            match node.and_then(|node| node.follower.as_ref()) {
                Some(follower) => at = follower.source,
                None => break,
            }
        }
        let follows = self.nodes[name].as_ref();
        if at == self.leader && follows.is_some_and(|node| node.follower.is_some()) {
            return self.follow(name, source);
        }
        Ok(())
    }

    /// All servers run, reach each other, and follow the one that leads.
    fn heal(&mut self) -> Result<(), String> {
        self.cut.clear();
        self.event("all is healed".to_owned());
        for name in 0..self.nodes.len() {
            if self.nodes[name].is_none() {
                let node = self.new_node();
                self.nodes[name] = Some(node);
                self.event(format!("{name} is started"));
            }
            let node = self.nodes[name].as_ref();
            let leads = node.is_some_and(|node| node.follower.is_none());
            if name != self.leader && leads {
                self.follow(name, self.leader)?;
            }
        }
        Ok(())
    }

    /// The replica that is promoted next: of those that follow the leader, the one that has most of
    /// its stream.
    fn candidate(&self) -> Option<usize> {
        let position = |name: usize| {
            let node = self.nodes[name].as_ref()?;
            let follower = node.follower.as_ref()?;
            let state = node.ground.replication.state();
            let is_whole = !state.is_partial && state.history.is_resumable;
            let is_it = follower.source == self.leader && is_whole;
            is_it.then_some(state.history.position.offset)
        };
        let replicas = (0..self.nodes.len()).filter(|name| *name != self.leader);
        let replicas = replicas.filter(|name| self.is_of_leader(*name));
        let replicas = replicas.filter_map(|name| Some((position(name)?, name)));
        replicas.max().map(|(_, name)| name)
    }

    /// Promotes a replica; all that reach it follow it.
    fn promote(&mut self, name: usize) -> Result<(), String> {
        let before = self.leader;
        self.unlink(name)?;
        self.waits.clear();
        let Some(node) = &mut self.nodes[name] else {
            return Ok(());
        };
        let replication = &node.ground.replication;
        replication.rename();
        node.start_publisher()?;
        let mut answers = CoreAnswers::new();
        node.ground.port().give(Order::Lead(answers.expect()));
        node.turn(&mut self.numbers);
        if answers.take_one().is_none() {
            return Err(format!("{name} does not lead"));
        }
        replication_promote(node);
        self.leader = name;
        self.outcome.promotions += 1;
        let node = self.nodes[name].as_ref();
        let promoted = node.map_or(Ok(()), |node| {
            self.ledger.promote(name, |key| node.store.state(key))
        });
        self.event(format!("{name} is promoted"));
        promoted.map_err(|error| format!("{name} instead of {before}: {error}"))?;
        if let Some(node) = &self.nodes[name] {
            let pairs = (0..self.plan.keys).filter(|number| number % 3 == 2);
            let differ = pairs.filter(|number| {
                let (one, other) = pair_of(node, *number);
                one != other
            });
            self.doubtful.extend(differ);
            // Those that go on here have what is whole here.
            let promoted_at = node.ground.replication.state().history.position.offset;
            for other in self.nodes.iter_mut().flatten() {
                other.whole_from = other.whole_from.min(promoted_at);
            }
        }
        for other in 0..self.nodes.len() {
            let is_replica = other != name && other != before;
            if is_replica && self.nodes[other].is_some() {
                self.follow(other, name)?;
            }
        }
        Ok(())
    }

    /// Clients and faults have ended: all servers must come to hold the same.
    fn rest(&mut self) -> Result<(), String> {
        if self.nodes[self.leader].is_none() {
            return Err("no server leads".to_owned());
        }
        self.heal()?;
        self.plan.fault_every = 0;
        for name in 0..self.nodes.len() {
            if let Some(node) = &self.nodes[name] {
                let settings = &node.ground.port().settings;
                settings.behind_bytes.store(256 << 20, Ordering::Relaxed);
            }
        }
        self.come_whole()?;
        let (mut agreed, mut last) = (0, String::new());
        for _ in 0..ROUNDS_MAX {
            self.round()?;
            match self.difference() {
                None => agreed += 1,
                Some(text) => (agreed, last) = (0, text),
            }
            if agreed == 100 {
                return Ok(());
            }
        }
        Err(format!("the servers do not come to hold the same: {last}"))
    }

    /// Writers go on until all replicas follow.
    fn come_whole(&mut self) -> Result<(), String> {
        for round in 0..ROUNDS_MAX {
            if round % 4 == 0 {
                self.write()?;
            }
            self.round()?;
            let others = (0..self.nodes.len()).filter(|name| *name != self.leader);
            let mut others = others.filter(|name| !self.is_of_leader(*name) || self.is_amid(*name));
            if others.next().is_none() {
                return Ok(());
            }
        }
        Err("replicas do not come to follow while clients write".to_owned())
    }

    /// Each server does some of all.
    fn round(&mut self) -> Result<(), String> {
        for name in 0..self.nodes.len() {
            self.carry(name);
            self.step_link(name)?;
            if let Some(node) = &mut self.nodes[name] {
                node.serve(Some(&mut self.numbers))?;
                node.turn(&mut self.numbers);
            }
        }
        self.take_answers()?;
        self.pass_time(40);
        Ok(())
    }

    /// Where a replica differs from the server that leads.
    fn difference(&self) -> Option<String> {
        let leader = self.nodes[self.leader].as_ref()?;
        let wanted = leader.store.all();
        for (name, node) in self.nodes.iter().enumerate() {
            let Some(node) = node.as_ref().filter(|_| name != self.leader) else {
                continue;
            };
            let follower = node.follower.as_ref()?;
            if !follower.is_idle() {
                return Some(format!("{name} has not applied all: {}", follower.shown()));
            }
            let held = node.store.all();
            let keys = wanted.keys().chain(held.keys());
            for key in keys {
                let one = wanted.get(key).unwrap_or(&None);
                let other = held.get(key).unwrap_or(&None);
                if one != other {
                    let offset = |node: &Node| node.ground.replication.offset();
                    return Some(format!(
                        "key {} is {} at {} at {}, which leads, and {} at {name} at {}",
                        String::from_utf8_lossy(key),
                        shown(one),
                        self.leader,
                        offset(leader),
                        shown(other),
                        offset(node),
                    ));
                }
            }
        }
        None
    }

    fn note_syncs(&mut self) {
        for node in self.nodes.iter().flatten() {
            let figures = &node.ground.port().figures;
            self.outcome.full_syncs += figures.full_syncs.load(Ordering::Relaxed);
            self.outcome.partial_syncs += figures.partial_syncs.load(Ordering::Relaxed);
        }
    }
}

fn replication_promote(node: &Node) {
    node.ground.replication.promote(&node.ground.refusals);
}

fn port_of(name: usize) -> u16 {
    PORT + u16::try_from(name).unwrap_or(0)
}

fn pair_of(node: &Node, number: usize) -> (State, State) {
    let state = |kind| node.store.state(&key(kind, number));
    (state('p'), state('q'))
}
