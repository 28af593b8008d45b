//! One run: builds the world of a plan, picks one step after the other, and checks.

#![allow(clippy::mem_forget, reason = "a world that has failed is not dropped")]

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use farcore::{Config, FabricAddress, Lock, LogPolicy, SimulatedEngine};
use farcore_rdma::node::{MemoryOptions, NodeOptions, SimulatedNode, SimulatedNodeGuard};
use farcore_rdma::simulation::{self, Options, Step};
use farcore_tuning::simulated;

use crate::call::{Answered, Call, MARK, understand};
use crate::client::{self, Client};
use crate::disk::store::SimulatedStore;
use crate::faults::{self, Linger, Nap};
use crate::history::{Entry, History, Moment, Rules, Twins};
use crate::memory::{self, ENGINE};
use crate::plan::{Moving, Plan};
use crate::random::Random;
use crate::report::Coverage;
use crate::sections;
use crate::times::Times;

/// Steps between two checks of the shards.
const CHECK_STEPS: u64 = 256;
/// Steps within which an engine must open, and within which every request must end once faults
/// have healed.
const PATIENCE_STEPS: u64 = 400_000;
/// How often what cannot be read is read again once faults have healed, and the steps between:
/// longer than a node keeps the session of a client that is silent.
const READ_ROUNDS: u32 = 150;
const ROUND_STEPS: u64 = 2_000;
/// Calls that a client makes at once, at most.
const BURST: u64 = 16;
/// Steps with faults of a round of a soak.
const SOAK_STEPS: u64 = 100_000;
/// How the names of faults that damage records begin.
const DAMAGE: &str = "bytes damaged";
/// How much time a step takes where time flows.
const FLOWING_PACE: u64 = 100;
/// The port of the first node.
const FIRST_PORT: u16 = 7_000;
/// The groups of the nodes' tasks; those of cores begin with 1.
const NODE_GROUP: u32 = 32;
/// The group of the task that keeps a data directory.
const KEEPER_GROUP: u32 = 31;
/// The system's clock when a world begins, in nanoseconds since 1970.
pub(crate) const BEGINS_NS: u64 = 1_700_000_000_000_000_000;

/// What the data directory is called in messages.
pub(crate) const DATA_DIR: &str = "/simulated";

/// Mixes what is hashed, everywhere alike.
struct Digest(u64);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What a run has shown.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// A digest of every step.
    pub(crate) hash: u64,
    pub(crate) steps: u64,
    pub(crate) calls: usize,
    pub(crate) coverage: Coverage,
    pub(crate) failure: Option<String>,
    /// The latest steps.
    pub(crate) trace: Vec<String>,
}

/// A client with its state in the world.
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) in_flight: usize,
    /// It does not read its answers before this step.
    pub(crate) asleep_until: u64,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    hash: u64,
    pub(crate) step: u64,
    trace: VecDeque<String>,
    pub(crate) coverage: Coverage,
    pub(crate) history: History,
    /// The names of the keys.
    pub(crate) names: Vec<String>,
    /// Keys that the index tells from others only by reading them.
    pub(crate) twins: Twins,
    pub(crate) clients: Vec<Caller>,
    pub(crate) nodes: Vec<Option<SimulatedNodeGuard>>,
    /// Nodes with which all cores had a session when that was looked at last.
    pub(crate) members: Vec<bool>,
    /// When what is wrong with a node ends.
    pub(crate) heals_at: Vec<u64>,
    pub(crate) times: Times,
    /// Faults happen.
    pub(crate) is_faulty: bool,
    /// Clients make calls.
    pub(crate) is_busy: bool,
    /// Time passes although something else could happen.
    time_flows: bool,
    pub(crate) nap: Option<Nap>,
    pub(crate) linger: Option<Linger>,
    pub(crate) ready: Vec<(u64, u32)>,
    pub(crate) network: Vec<Step>,
    pub(crate) slow_node: Option<u32>,
    /// What was counted before the engine opened, and what it may allocate.
    room: (i64, i64),
    /// Calls of histories that were checked and forgotten.
    calls: usize,
    /// The times of the shards when they were last looked at.
    unix_ms: Vec<u64>,
    /// Nodes that have ended, of those whose loss must lose nothing, and whether the next may.
    pub(crate) ended: u64,
    pub(crate) may_end: bool,
    /// The disk of an engine with a data directory.
    pub(crate) store: Option<SimulatedStore>,
}

/// What a round of a soak has shown.
#[derive(Debug)]
pub(crate) struct Round {
    /// What the engine has allocated beside its arenas, at the end of the round.
    pub(crate) held_bytes: i64,
    /// The most so far, and the most that it may be.
    pub(crate) most_bytes: i64,
    pub(crate) room_bytes: i64,
    /// How long calls took, sorted.
    pub(crate) latencies_ns: Vec<u64>,
}

/// How often a node has lost what a core had there.
fn lost_extents() -> u64 {
    simulated::count_reached("a node's extents lost")
}

fn address(node: usize) -> SocketAddr {
    let port = FIRST_PORT + u16::try_from(node).unwrap_or(0);
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// The address by which an engine names a node.
pub(crate) fn node_address(node: usize) -> FabricAddress {
    let address = format!("tcp://{}", address(node));
    address.parse().expect("an address")
}

/// The node of an address.
pub(crate) fn node_at(address: &FabricAddress) -> usize {
    usize::from(address.port() - FIRST_PORT)
}

impl World {
    pub(crate) fn note(&mut self, kind: u64, detail: u64, text: impl FnOnce() -> String) {
        for word in [kind, detail, self.step] {
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x100_0000_01B3)
                .rotate_left(23);
        }
        if self.plan.trace_lines == 0 {
            return;
        }
        while self.trace.len() >= self.plan.trace_lines {
            self.trace.pop_front();
        }
        let now_ns = simulated::now_ns().unwrap_or(0);
        self.trace
            .push_back(format!("{:>8} {now_ns:>14} ns  {}", self.step, text()));
    }

    pub(crate) fn start_node(&mut self, node: usize) -> Result<(), String> {
        let memory = MemoryOptions {
            region_bytes: self.plan.node_bytes,
            extent_bytes: 64 << 10,
            huge_pages: false,
            lock: Lock::Off,
            ..MemoryOptions::new(self.plan.node_bytes)
        };
        // A session that lapses at one node while another one ends is a second loss.
        let lease = if self.plan.spares { 600 } else { 1 };
        let options = NodeOptions {
            lease: Duration::from_secs(lease),
            keep: Duration::from_millis(self.plan.keep_ms),
            isolate: self.plan.isolate,
            mend_pace: Duration::from_millis(500),
            ..NodeOptions::new(address(node), memory)
        };
        let group = NODE_GROUP + u32::try_from(node).unwrap_or(0);
        let started = SimulatedNode::start(options, group).map_err(|error| error.to_string())?;
        self.nodes[node] = Some(started);
        Ok(())
    }

    /// The settings, with as little local memory as they may have, and a little more.
    ///
    /// # Errors
    /// What is too little is not refused as such, or what is named as the least is refused.
    pub(crate) fn config(&mut self) -> Result<Config, String> {
        let mut config = self.config_without_memory();
        for step in 8.. {
            config.local_bytes = step * self.plan.cores as u64 * (256 << 10);
            match config.validate() {
                Ok(()) => break,
                Err(farcore::Error::LocalMemory { least, .. }) => {
                    self.coverage.error("LocalMemory");
                    let enough = Config {
                        local_bytes: least,
                        ..config.clone()
                    };
                    enough
                        .validate()
                        .map_err(|error| format!("{least} bytes were to be enough: {error}"))?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        config.local_bytes += self.plan.cores as u64 * self.plan.spare_bytes;
        Ok(config)
    }

    fn config_without_memory(&self) -> Config {
        let plan = &self.plan;
        let cores = plan.cores;
        let nodes = (0..plan.nodes).map(node_address);
        let nodes_max = |moving: Moving| plan.nodes + moving.positions;
        Config {
            cores: (0..cores).collect(),
            far_bytes: plan.far_bytes * cores as u64,
            when_full: plan.when_full(),
            page_bytes: Some(64 << 10),
            inline_collection_bytes: plan.inline_collection_bytes,
            keys_expected: 1_000,
            nodes: nodes.collect(),
            nodes_max: plan.moving.map(nodes_max),
            far_silence_ns: plan.far_silence_ns,
            replicas: plan.copies.0,
            replicas_min: plan.copies.1,
            encryption: plan.key(),
            encryption_mode: plan.encryption.unwrap_or_default(),
            prefault: false,
            huge_pages: false,
            lock: Lock::Off,
            handles_max: plan.handles + if plan.shared > 0 { 2 } else { 0 },
            hash_tags: true,
            batch: plan.batch,
            cache_percent: plan.cache_percent,
            read_ahead_chunks: if plan.read_ahead { 12 } else { 0 },
            seed: Some(plan.seed),
            data_dir: plan.durable.map(|_| PathBuf::from(DATA_DIR)),
            log: plan.durable.map_or(LogPolicy::Off, |durable| durable.log),
            ..Config::default()
        }
    }

    /// Picks what happens next, and has it happen.
    pub(crate) fn take_step(&mut self) -> Result<(), String> {
        self.step += 1;
        let weights = self.plan.weights;
        simulation::ready(&mut self.ready);
        simulation::steps(&mut self.network);
        self.rest();
        let busy = !self.ready.is_empty() || !self.network.is_empty();
        let all = [
            if self.ready.is_empty() {
                0
            } else {
                weights.task * 4
            },
            if self.network.is_empty() {
                0
            } else {
                weights.network * 4
            },
            if self.clients.is_empty() {
                0
            } else {
                weights.client * 4
            },
            if busy {
                weights.time
            } else {
                weights.time * 16
            },
        ];
        let mut pick = self.random.below(all.iter().sum());
        let mut kind = 0;
        while pick >= all[kind] {
            pick -= all[kind];
            kind += 1;
        }
        let pace = match (self.is_faulty, self.time_flows) {
            (true, _) => self.plan.pace,
            (false, true) if self.store.is_some() => 10 * FLOWING_PACE,
            (false, true) => FLOWING_PACE,
            (false, false) => 1,
        };
        let by_ns = (20 + self.random.below(400)) * pace;
        self.advance(by_ns);
        match kind {
            0 => {
                let (id, group) = self.ready[self.random.place(self.ready.len())];
                self.note(0, id, || format!("task {id} of group {group}"));
                let is_core = group < KEEPER_GROUP;
                let _own = is_core.then(|| simulated::own(ENGINE));
                simulation::poll(id);
            }
            1 => self.move_network()?,
            2 => self.move_client()?,
            _ => self.pass_time(),
        }
        simulation::wake_timers();
        self.check_cap()?;
        if self.is_faulty {
            self.fault()?;
        }
        Ok(())
    }

    /// What an engine has allocated and mapped is at most what it may take.
    fn check_cap(&self) -> Result<(), String> {
        let taken = memory::most() - self.room.0;
        if taken <= self.room.1 {
            return Ok(());
        }
        Err(format!(
            "the engine has allocated {taken} bytes beside what it has mapped: at most {} are left",
            self.room.1
        ))
    }

    fn pass_time(&mut self) {
        let now_ns = simulated::now_ns().unwrap_or(0);
        let next_ns = simulation::next_timer_ns().unwrap_or(now_ns);
        let busy = !self.ready.is_empty() || !self.network.is_empty();
        let by_ns = match self.random.below(3) {
            0 => self.random.below(50_000),
            // Without faults no request waits for longer than it may.
            _ if busy && !self.is_faulty && !self.time_flows => 0,
            _ => next_ns.saturating_sub(now_ns),
        };
        self.note(9, by_ns, || format!("{by_ns} ns pass"));
        self.advance(by_ns);
    }

    fn advance(&mut self, by_ns: u64) {
        simulated::advance(by_ns);
        self.times.pass(simulated::now_ns().unwrap_or(0));
    }

    /// What is known of time now.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            step: self.step,
            ns: simulated::now_ns().unwrap_or(0),
            floor_ms: self.times.floor_ms(),
            ceiling_ms: self.times.ceiling_ms(),
        }
    }

    fn move_client(&mut self) -> Result<(), String> {
        let place = self.random.place(self.clients.len());
        let is_sleeper = self.plan.sleeper && place == 0;
        if self.is_busy && self.random.below(3) > 0 {
            // Some clients send much before the core has its turn.
            let calls = match self.plan.bursts && self.random.one_in(8) {
                true => BURST,
                false => 1,
            };
            (0..calls).for_each(|_| self.call(place));
            return Ok(());
        }
        let caller = &mut self.clients[place];
        if caller.asleep_until > self.step && self.is_faulty {
            return Ok(());
        }
        caller.client.set_asleep(false);
        if is_sleeper && self.is_faulty && self.random.one_in(20) {
            caller.asleep_until = self.step + self.random.below(20_000);
            caller.client.set_asleep(true);
            self.coverage.fault(faults::ASLEEP);
        }
        self.receive(place)
    }

    /// Has a client read its answers.
    pub(crate) fn receive(&mut self, place: usize) -> Result<(), String> {
        let caller = &mut self.clients[place];
        let arrived = caller.client.receive(&mut self.random);
        caller.in_flight -= arrived.len().min(caller.in_flight);
        let count = arrived.len() as u64;
        self.note(10, count << 8 | place as u64, || {
            format!("client {place} reads {count} answers")
        });
        let lengths = self.plan.lengths();
        for (number, raw) in arrived {
            let answered = understand(self.history.call(number)?, raw, &lengths)
                .map_err(|error| format!("call {number}: {error}"))?;
            match &answered {
                Answered::Failed(error) => self.coverage.error(error),
                Answered::Refused(refusal) => self.coverage.error(refusal.name()),
                _ => {}
            }
            let mut digest = Digest(number);
            answered.hash(&mut digest);
            self.note(11, digest.finish(), || {
                format!("  call {number}: {answered:?}")
            });
            self.history.end(number, answered, self.moment())?;
        }
        Ok(())
    }

    /// Starts a job on a core, as a client in a place.
    fn start_job(&mut self, engine: &SimulatedEngine, place: usize) -> Result<(), String> {
        let port = client::port();
        let core = place % self.plan.cores;
        let job = engine
            .engine()
            .run_on_core(core, move |core| client::work(core, port));
        drop(job.map_err(|error| error.to_string())?);
        let caller = Caller {
            client: Client::Job(port),
            in_flight: 0,
            asleep_until: 0,
        };
        if place < self.clients.len() {
            self.clients[place] = caller;
        } else {
            self.clients.push(caller);
        }
        Ok(())
    }

    /// A job ends although it has calls under way, and another one comes in its place; or a shared
    /// client gives a call up.
    fn stop_client(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        let place = self.random.place(self.clients.len());
        let moment = self.moment();
        let Caller {
            client, in_flight, ..
        } = &mut self.clients[place];
        if let Some(number) = client.give_up(&mut self.random) {
            *in_flight = in_flight.saturating_sub(1);
            self.note(32, number, || {
                format!("client {place} gives call {number} up")
            });
            self.coverage.fault(faults::GIVEN_UP);
            self.history
                .end(number, Answered::Failed("Closed".into()), moment)?;
        } else if let Client::Job(port) = *client {
            self.note(31, place as u64, || format!("client {place} stops"));
            self.coverage.fault(faults::STOPPED);
            client::stop(port);
            self.history.abandon(place, moment);
            self.start_job(engine, place)?;
        }
        Ok(())
    }

    pub(crate) fn end_jobs(&mut self) {
        for caller in &mut self.clients {
            caller.client.set_asleep(false);
            if let Client::Job(port) = caller.client {
                client::end(port);
            }
        }
    }

    pub(crate) fn until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        for _ in 0..PATIENCE_STEPS {
            if done(self)? {
                return Ok(());
            }
            self.take_step()?;
        }
        Err(format!(
            "after {PATIENCE_STEPS} steps without faults, {what}"
        ))
    }

    /// Counts what the engine has done.
    pub(crate) fn note_figures(&mut self, engine: &SimulatedEngine) {
        let total = engine.engine().stats().total;
        self.coverage.reached(BTreeMap::from([
            ("pages flushed", total.pages_flushed),
            ("pages evicted", total.pages_evicted),
            ("pages compacted", total.compaction_pages),
            ("far reads", total.far_reads),
            ("requests served on loan", total.requests_lent),
            ("keys lost", total.lost_keys),
            ("pages copied again", total.pages_copied),
            ("pages moved to emptier nodes", total.pages_balanced),
            ("pieces of copies mended", total.copies_mended),
            ("reads of another copy", total.far_reads_elsewhere),
            ("sections", total.sections),
            ("sections lost", total.sections_lost),
            ("sections refused", total.sections_refused),
        ]));
        // How much of what it may take was taken, in percent.
        let (before, room) = self.room;
        let used = (memory::most() - before).max(0).saturating_mul(100) / room.max(1);
        self.coverage.most(
            "percent of the memory beside the arenas",
            used.unsigned_abs(),
        );
    }

    fn check_far_memory(&self) -> Result<(), String> {
        if self.plan.encryption.is_none() {
            return Ok(());
        }
        // A repeated mark shows at a multiple of its length, if not as it is then rotated.
        let rotated: [u64; MARK.len()] = std::array::from_fn(|by| {
            let mut mark = *MARK;
            mark.rotate_left(by);
            u64::from_le_bytes(mark)
        });
        let mut found = false;
        for node in self.nodes.iter().flatten() {
            node.each_region(|bytes| {
                let (words, _) = bytes.as_chunks();
                let words = words.iter().map(|word| u64::from_le_bytes(*word));
                let mut before = 0;
                for word in words {
                    found |= word == before && rotated.contains(&word);
                    before = word;
                }
            });
        }
        if found {
            return Err("plaintext lies in far memory".into());
        }
        Ok(())
    }

    /// Everything that a shard counts as its own belongs at its node to one session. The session
    /// may have more: claims whose outcome it does not know end with it.
    fn agrees_with_nodes(&self, engine: &SimulatedEngine) -> Result<(), String> {
        let mut owners = BTreeMap::new();
        for (core, node, place) in engine.owned_places() {
            let node = node_at(&node);
            let Some(guard) = &self.nodes[node] else {
                continue;
            };
            let owner = guard.owner_at(place);
            let owner = owner.ok_or_else(|| {
                format!("core {core} counts {place:?} of node {node} as its own: it is free there")
            })?;
            let before = owners.insert((core, node), owner);
            if before.is_some_and(|before| before != owner) {
                return Err(format!("{place:?} of node {node} is not core {core}'s"));
            }
        }
        Ok(())
    }

    fn open(&mut self, engine: &mut SimulatedEngine) -> Result<(), String> {
        self.until("the engine is not open", |_| {
            engine.is_open().map_err(|error| error.to_string())
        })?;
        self.begin_clients(engine)?;
        sections::begin(engine, &self.plan)
    }

    /// Sets an engine that is open as the plan says, and begins its clients.
    pub(crate) fn begin_clients(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        engine.limit_tree_nodes(self.plan.tree_entries);
        if let Some(tight) = self.plan.tight {
            engine.limit_tables(tight.keys, tight.tree_bytes, tight.pieces);
        }
        self.name_keys(engine);
        for _ in 0..self.plan.handles {
            let handle = engine
                .engine()
                .handle()
                .map_err(|error| error.to_string())?;
            self.add(Client::Handle(Box::new(handle)));
        }
        for _ in 0..self.plan.shared {
            let client = engine
                .engine()
                .client()
                .map_err(|error| error.to_string())?;
            self.add(Client::Shared(client, Vec::new()));
        }
        for _ in 0..self.plan.jobs {
            self.start_job(engine, self.clients.len())?;
        }
        Ok(())
    }

    fn add(&mut self, client: Client) {
        self.clients.push(Caller {
            client,
            in_flight: 0,
            asleep_until: 0,
        });
    }

    /// Starts all nodes.
    pub(crate) fn start_nodes(&mut self) -> Result<(), String> {
        (self.nodes, self.heals_at) = (Vec::new(), Vec::new());
        self.members = vec![false; self.plan.all_nodes()];
        for node in 0..self.plan.all_nodes() {
            self.nodes.push(None);
            self.heals_at.push(0);
            self.start_node(node)?;
        }
        Ok(())
    }

    /// Starts all nodes and an engine, and has `work` done with it.
    fn run(
        &mut self,
        work: impl FnOnce(&mut Self, &SimulatedEngine) -> Result<(), String>,
    ) -> Result<(), String> {
        self.start_nodes()?;
        let config = self.config()?;
        let before = memory::begin();
        let begun = {
            let _own = simulated::own(ENGINE);
            SimulatedEngine::begin(&config).map_err(|error| error.to_string())
        };
        let mut engine = begun?;
        let room = config.local_bytes.saturating_sub(engine.mapped_bytes());
        self.room = (before, i64::try_from(room).unwrap_or(i64::MAX));
        let done = self
            .open(&mut engine)
            .and_then(|()| work(self, &engine))
            .and_then(|()| self.close(&engine));
        if done.is_err() {
            std::mem::forget(engine);
        }
        done
    }

    /// Clients make calls, and faults happen, for some steps. If the engine is to be closed, then
    /// in the last quarter of them.
    fn be_busy(&mut self, engine: &SimulatedEngine, steps: u64) -> Result<(), String> {
        (self.is_faulty, self.is_busy) = (true, true);
        self.slow_node = (self.plan.faults.slow > 0).then_some(0);
        let end = self.step + steps;
        let closes_at = self.plan.closes.then(|| end - steps / 4);
        while self.step < end {
            self.take_step()?;
            if self.step.is_multiple_of(CHECK_STEPS) {
                engine.check();
                self.check_time(engine)?;
                self.look_at_copies(engine);
            }
            self.move_nodes(engine)?;
            let stops = self.plan.faults.stop;
            let is_open = closes_at.is_none_or(|closes_at| self.step < closes_at);
            if stops > 0 && is_open && self.random.one_in(stops) {
                self.stop_client(engine)?;
            }
            if closes_at == Some(self.step) {
                self.coverage.fault(faults::CLOSING);
                self.note(30, 0, || "the engine closes".into());
                self.end_jobs();
                sections::end();
                engine.close();
            }
        }
        Ok(())
    }

    /// The time for keys that expire never runs back, whatever the system's clock does.
    pub(crate) fn check_time(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        let times = engine.unix_ms();
        let before = std::mem::replace(&mut self.unix_ms, times);
        if before.len() != self.unix_ms.len() {
            // Some cores have ended.
            return Ok(());
        }
        let mut pairs = before.iter().zip(&self.unix_ms);
        match pairs.find(|(before, now)| before > now) {
            Some((before, now)) => Err(format!(
                "the time of a shard ran back from {before} to {now}"
            )),
            None => Ok(()),
        }
    }

    /// Ends all faults, but for some nodes that stay away in the liveness mode, and waits until
    /// every call is answered. True if all nodes are well.
    fn calm(&mut self) -> Result<bool, String> {
        (self.is_faulty, self.is_busy) = (false, false);
        self.slow_node = None;
        let mut are_all_well = true;
        for node in 0..self.nodes.len() {
            let stays = self.plan.liveness && self.random.one_in(2);
            if self.heals_at[node] != 0 && !stays {
                self.heal(node)?;
            }
            are_all_well &= self.heals_at[node] == 0;
        }
        self.let_time_flow(false);
        self.until_answered()?;
        self.end_sections()?;
        Ok(are_all_well)
    }

    fn check_history(&self) -> Result<(), String> {
        sections::check()?;
        let loses = lost_extents() > 0 && !self.plan.spares;
        let is_lost = loses || self.coverage.faults_of(DAMAGE) > 0;
        self.history.check(
            &self.names,
            Rules {
                vanishes: self.plan.evicts,
                mistakes: is_lost.then_some(&self.twins),
            },
        )
    }

    /// One run with all of its checks.
    fn work(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        self.be_busy(engine, self.plan.steps)?;
        let are_all_well = self.calm()?;
        engine.check();
        if !self.plan.closes {
            if are_all_well {
                self.settle(engine)?;
                self.end_moves(engine)?;
                engine.check();
            }
            self.read_all(are_all_well)?;
            sections::read_all(engine, &self.plan, are_all_well)?;
            self.end_deletes()?;
            engine.check();
            if are_all_well {
                self.end_trees(engine)?;
                engine.check();
            }
        }
        self.note_figures(engine);
        self.check_history()?;
        self.check_copies(engine)?;
        self.check_far_memory()
    }

    /// Whether a node may end: all cores know of the last one, and each page has its copies.
    fn look_at_copies(&mut self, engine: &SimulatedEngine) {
        if self.plan.spares {
            self.note_members(engine);
            let total = engine.engine().stats().total;
            let are_well = self.heals_at.iter().all(|&at| at == 0);
            // A core may lose a session twice for one end, so that losses do not say that all know.
            let are_known = total.nodes_lost >= self.ended * self.plan.cores as u64
                && self.agrees_with_nodes(engine).is_ok();
            self.may_end = are_well && are_known && total.copying == 0;
        }
    }

    /// Where nodes end one after the other, no key is lost. Calls may fail: one node alone may have
    /// no room.
    fn check_copies(&self, engine: &SimulatedEngine) -> Result<(), String> {
        let total = engine.engine().stats().total;
        let (lost, damaged) = (total.lost_keys, total.records_damaged);
        if self.plan.spares && lost + damaged > 0 {
            return Err(format!(
                "with two copies {lost} keys were lost, {damaged} records damaged"
            ));
        }
        Ok(())
    }

    /// Closes the engine: it ends, and leaves nothing at its nodes.
    pub(crate) fn close(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        self.end_jobs();
        self.clients.clear();
        engine.close();
        self.until("the engine is not closed", |_| Ok(engine.is_closed()))?;
        engine.close();
        if self.heals_at.iter().all(|&at| at == 0) {
            self.until("a closed engine owns extents", |world| {
                let mut nodes = world.nodes.iter().flatten();
                Ok(nodes.all(|node| node.owners().is_empty()))
            })?;
        }
        Ok(())
    }

    fn end_sections(&mut self) -> Result<(), String> {
        sections::end();
        self.until("sections have not ended", |_| Ok(sections::have_ended()))
    }

    /// As [`World::end_sections`], of jobs that delete collections, and rest while a node is
    /// connected again.
    fn end_deletes(&mut self) -> Result<(), String> {
        self.let_time_flow(true);
        let ended = self.end_sections();
        self.let_time_flow(false);
        ended
    }

    /// Makes calls and waits for their answers. Returns where in the history the first one is.
    fn call_all(&mut self, calls: Vec<Call>) -> Result<usize, String> {
        self.call_all_by(0, calls)
    }

    /// As [`World::call_all`], by a client in a place.
    pub(crate) fn call_all_by(&mut self, by: usize, calls: Vec<Call>) -> Result<usize, String> {
        let first = self.history.len();
        for call in calls {
            while !self.send(by, call.clone()) {
                self.take_step()?;
            }
        }
        self.until_answered()?;
        Ok(first)
    }

    /// Deletes every key, again where that fails, and forgets the history.
    fn begin_anew(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        let mut calls: Vec<_> = (0..self.plan.keys)
            .map(|key| Call::Delete { key })
            .chain((0..self.plan.trees).map(|tree| Call::DeleteTree { tree }))
            .collect();
        for _ in 0..READ_ROUNDS {
            let first = self.call_all(calls)?;
            let failed = self.history.since(first).iter().filter(|entry| {
                let answered = entry.ended.as_ref().map(|ended| &ended.1);
                matches!(answered, Some(Answered::Failed(_)))
            });
            calls = failed.map(|entry| entry.call.clone()).collect();
            if calls.is_empty() {
                self.end_trees(engine)?;
                self.history = History::default();
                return Ok(());
            }
            self.let_time_flow(true);
            for _ in 0..ROUND_STEPS {
                self.take_step()?;
            }
            self.let_time_flow(false);
        }
        Err(format!("{calls:?} fail although all nodes are well"))
    }

    /// Rounds of calls and faults in one engine until it is enough. After each one all that was
    /// answered is checked, and all keys are deleted, so that rounds can be compared.
    fn soak(
        &mut self,
        engine: &SimulatedEngine,
        mut is_enough: impl FnMut(Round) -> bool,
    ) -> Result<(), String> {
        loop {
            self.be_busy(engine, SOAK_STEPS)?;
            let mut latencies_ns: Vec<_> = self.history.latencies().collect();
            self.calm()?;
            engine.check();
            self.check_history()?;
            sections::delete_all(engine, &self.plan)?;
            self.end_deletes()?;
            self.calls += self.history.len();
            self.begin_anew(engine)?;
            engine.check();
            self.check_far_memory()?;
            latencies_ns.sort_unstable();
            let round = Round {
                held_bytes: memory::held() - self.room.0,
                most_bytes: memory::most() - self.room.0,
                room_bytes: self.room.1,
                latencies_ns,
            };
            if is_enough(round) {
                self.note_figures(engine);
                return Ok(());
            }
        }
    }

    /// Deletes every collection, and waits until none has left a node behind. What a fault of the
    /// run has damaged may stay.
    fn end_trees(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        let first = self.history.len();
        for tree in 0..self.plan.trees {
            while !self.send(0, Call::DeleteTree { tree }) {
                self.take_step()?;
            }
        }
        self.until_answered()?;
        let is_kept = |entry: &&Entry| {
            let answered = entry.ended.as_ref().map(|ended| &ended.1);
            matches!(answered, Some(Answered::Failed(_)))
        };
        let kept = self.history.since(first).iter().filter(is_kept).count();
        let mut last = (0, 0);
        self.let_time_flow(true);
        let ended = self.until("collections have left nodes behind", |_| {
            last = engine.census_of_trees();
            Ok(last.0 <= kept && (kept > 0 || last.1 == 0))
        });
        self.let_time_flow(false);
        ended.map_err(|error| format!("{error}: {last:?} of collections and nodes, {kept} kept"))
    }

    pub(crate) fn until_answered(&mut self) -> Result<(), String> {
        let ended = self.until("requests have no answer", |world| {
            Ok(world.history.is_answered())
        });
        ended.map_err(|error| {
            let open: Vec<_> = self.history.open().take(5).cloned().collect();
            let count = self.history.open().count();
            format!("{error}: {count}, of which {open:?}")
        })
    }

    /// Has time pass although something else could happen, or not. It does while nodes are away:
    /// requests to them end with their time.
    pub(crate) fn let_time_flow(&mut self, flows: bool) {
        self.time_flows = flows || self.heals_at.iter().any(|&at| at != 0);
    }

    /// Waits until shards and nodes agree on who owns what.
    fn settle(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        let mut last = String::new();
        self.let_time_flow(true);
        let ended = self.until("", |world| {
            if !world.step.is_multiple_of(64) {
                return Ok(false);
            }
            let agrees = world.agrees_with_nodes(engine);
            last = agrees.clone().err().unwrap_or_default();
            Ok(agrees.is_ok())
        });
        self.let_time_flow(false);
        ended.map_err(|error| format!("{error}{last}"))
    }

    /// Reads every key and every collection once faults have healed. Without damage none is
    /// damaged, and unless a node has lost its memory all can be read, some of them when nodes are
    /// connected again.
    fn read_all(&mut self, are_all_well: bool) -> Result<(), String> {
        let mut calls = self.final_calls();
        for _ in 0..READ_ROUNDS {
            let first = self.call_all(calls)?;
            calls = self.unexcused(first, are_all_well);
            if calls.is_empty() {
                return Ok(());
            }
            self.let_time_flow(true);
            for _ in 0..ROUND_STEPS {
                self.take_step()?;
            }
            self.let_time_flow(false);
        }
        Err(format!(
            "{calls:?} fail although nothing of it was lost: {:?}",
            self.history.since(self.history.len() - 1)
        ))
    }

    /// The calls from a number on that have failed without a reason.
    fn unexcused(&self, first: usize, are_all_well: bool) -> Vec<Call> {
        let lost = lost_extents() > 0;
        let damages = self.coverage.faults_of(DAMAGE);
        // A flipped bit damages one record.
        let is_damage = |entry: &&Entry| {
            let error = entry.ended.as_ref().map(|ended| &ended.1);
            let is_key = matches!(entry.call, Call::Get { .. });
            is_key && error == Some(&Answered::Failed("Damaged".into()))
        };
        let damaged = self.history.since(first).iter().filter(is_damage).count();
        let damaged = damages > 0 && damaged as u64 <= damages;
        let failed = self.history.since(first).iter().filter(|entry| {
            let Some((_, Answered::Failed(error))) = &entry.ended else {
                return false;
            };
            !match error.as_str() {
                "Damaged" => damaged,
                "Unavailable" => lost || damaged || !are_all_well,
                // A value in pieces.
                "LongValue" => matches!(entry.call, Call::Get { .. }),
                _ => false,
            }
        });
        failed.map(|entry| entry.call.clone()).collect()
    }
}

/// Runs the world of a plan.
pub(crate) fn run(plan: &Plan) -> Outcome {
    if plan.durable.is_some() {
        return crate::lives::run(plan);
    }
    inside(plan, |world| world.run(World::work))
}

/// Runs the world of a plan, in rounds, until it is enough.
pub(crate) fn soak(plan: &Plan, is_enough: impl FnMut(Round) -> bool) -> Outcome {
    inside(plan, |world| {
        world.run(|world, engine| world.soak(engine, is_enough))
    })
}

impl World {
    /// One in which nothing has happened.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            random: Random::new(plan.seed),
            hash: 0xCBF2_9CE4_8422_2325,
            step: 0,
            trace: VecDeque::new(),
            coverage: Coverage::default(),
            history: History::default(),
            clients: Vec::new(),
            nodes: Vec::new(),
            members: Vec::new(),
            heals_at: Vec::new(),
            names: Vec::new(),
            twins: Twins::new(),
            times: Times::new(BEGINS_NS),
            is_faulty: false,
            is_busy: false,
            time_flows: false,
            nap: None,
            linger: None,
            ready: Vec::new(),
            network: Vec::new(),
            slow_node: None,
            room: (0, i64::MAX),
            calls: 0,
            unix_ms: Vec::new(),
            ended: 0,
            may_end: false,
            store: None,
        }
    }

    /// Forgets what belongs to a world that has ended; its history was checked.
    pub(crate) fn begin_life(&mut self, system_ns: u64) {
        self.times = Times::new(system_ns);
        (self.is_faulty, self.is_busy, self.time_flows) = (false, false, false);
        (self.nap, self.linger, self.slow_node) = (None, None, None);
        self.unix_ms.clear();
        self.twins.clear();
        self.room = (memory::begin(), i64::MAX);
    }

    /// Counts calls that were checked and are forgotten.
    pub(crate) fn count_calls(&mut self) {
        self.calls += self.history.len();
    }

    /// Runs something, and says how it has failed.
    pub(crate) fn caught(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Option<String> {
        let run = std::panic::AssertUnwindSafe(|| run(self));
        match std::panic::catch_unwind(run) {
            Ok(done) => done.err(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text =
                    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
                Some(format!("panic: {}", text.unwrap_or_default()))
            }
        }
    }

    /// What the run has shown.
    pub(crate) fn outcome(&mut self, failure: Option<String>) -> Outcome {
        let mut coverage = std::mem::take(&mut self.coverage);
        coverage.reached(simulated::take_reached());
        Outcome {
            hash: self.hash,
            steps: self.step,
            calls: self.calls + self.history.len(),
            coverage,
            failure,
            trace: std::mem::take(&mut self.trace).into(),
        }
    }
}

fn inside(plan: &Plan, run: impl FnOnce(&mut World) -> Result<(), String>) -> Outcome {
    let options = options(plan);
    let inside = simulation::enter(plan.seed, BEGINS_NS, options);
    simulated::take_reached();
    client::begin();
    let mut world = World::new(plan);
    let failure = world.caught(run);
    let outcome = world.outcome(failure);
    if outcome.failure.is_some() {
        // What is left is in an unknown state.
        std::mem::forget(world);
        inside.abandon();
    } else {
        drop(world);
        drop(inside);
    }
    outcome
}

/// How the network of a plan is.
pub(crate) fn options(plan: &Plan) -> Options {
    Options {
        movable: plan.movable,
        depth_max: plan.depth,
    }
}
