//! One run: builds the world of a plan, picks one step after the other, and checks.

#![allow(clippy::mem_forget, reason = "a world that has failed is not dropped")]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use farcore::{Config, Lock, SimulatedEngine};
use farcore_rdma::node::{MemoryOptions, NodeOptions, SimulatedNode, SimulatedNodeGuard};
use farcore_rdma::simulation::{self, Fate, NodeState, Step, StepKind};
use farcore_tuning::simulated;

use crate::client::{self, Asked, Client, MARK, value_of};
use crate::history::{Answered, Call, History};
use crate::plan::Plan;
use crate::random::Random;
use crate::report::Coverage;

/// Steps that are kept for the report of a failure.
const TRACE_STEPS: usize = 60;
/// Steps between two checks of the shards.
const CHECK_STEPS: u64 = 256;
/// Steps within which an engine must open, and within which every request must end once faults
/// have healed.
const PATIENCE_STEPS: u64 = 400_000;
/// Calls that a client has under way, at most.
const IN_FLIGHT_MAX: usize = 24;
/// The groups of the nodes' tasks; those of cores begin with 1.
const NODE_GROUP: u32 = 32;
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
struct Caller {
    client: Client,
    in_flight: usize,
    /// It does not read its answers before this step.
    asleep_until: u64,
}

struct World {
    plan: Plan,
    random: Random,
    hash: u64,
    step: u64,
    trace: VecDeque<String>,
    coverage: Coverage,
    history: History,
    clients: Vec<Caller>,
    nodes: Vec<Option<SimulatedNodeGuard>>,
    /// When what is wrong with a node ends.
    heals_at: Vec<u64>,
    /// Faults happen.
    is_faulty: bool,
    ready: Vec<(u64, u32)>,
    network: Vec<Step>,
    slow_node: Option<u32>,
}

fn address(node: usize) -> SocketAddr {
    let port = 7_000 + u16::try_from(node).unwrap_or(0);
    SocketAddr::from(([10, 0, 0, 1], port))
}

impl World {
    fn note(&mut self, kind: u64, detail: u64, text: impl FnOnce() -> String) {
        for word in [kind, detail, self.step] {
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x100_0000_01B3)
                .rotate_left(23);
        }
        if self.trace.len() == TRACE_STEPS {
            self.trace.pop_front();
        }
        let now_ns = simulated::now_ns().unwrap_or(0);
        self.trace
            .push_back(format!("{:>8} {now_ns:>14} ns  {}", self.step, text()));
    }

    fn start_node(&mut self, node: usize) -> Result<(), String> {
        let memory = MemoryOptions {
            region_bytes: self.plan.node_bytes,
            extent_bytes: 64 << 10,
            huge_pages: false,
            lock: Lock::Off,
            ..MemoryOptions::new(self.plan.node_bytes)
        };
        let options = NodeOptions {
            lease: Duration::from_secs(1),
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
    fn config(&self) -> Config {
        let sizes = (8..).map(|step| step * self.plan.cores as u64 * (256 << 10));
        let mut configs = sizes.map(|local_bytes| self.config_of(local_bytes));
        let least =
            configs.find(|config| config.validate().is_ok() || config.local_bytes > 1 << 30);
        let least = least.map_or(0, |config| config.local_bytes);
        self.config_of(least + self.plan.cores as u64 * self.plan.spare_bytes)
    }

    fn config_of(&self, local_bytes: u64) -> Config {
        let plan = &self.plan;
        let cores = plan.cores;
        let nodes = (0..plan.nodes).map(|node| format!("tcp://{}", address(node)));
        Config {
            cores: (0..cores).collect(),
            local_bytes,
            far_bytes: plan.far_bytes * cores as u64,
            when_full: plan.when_full(),
            page_bytes: Some(64 << 10),
            keys_expected: 1_000,
            nodes: nodes
                .map(|node| node.parse().expect("an address"))
                .collect(),
            far_silence_ns: plan.far_silence_ns,
            encryption: plan.key(),
            encryption_mode: plan.encryption.unwrap_or_default(),
            prefault: false,
            huge_pages: false,
            lock: Lock::Off,
            handles_max: plan.handles,
            batch: plan.batch,
            cache_percent: plan.cache_percent,
            read_ahead_chunks: if plan.read_ahead { 12 } else { 0 },
            seed: Some(plan.seed),
            ..Config::default()
        }
    }

    /// Picks what happens next, and has it happen.
    fn take_step(&mut self) -> Result<(), String> {
        self.step += 1;
        let weights = self.plan.weights;
        simulation::ready(&mut self.ready);
        simulation::steps(&mut self.network);
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
        simulated::advance(20 + self.random.below(400));
        match kind {
            0 => {
                let (id, group) = self.ready[self.random.place(self.ready.len())];
                self.note(0, id, || format!("task {id} of group {group}"));
                simulation::poll(id);
            }
            1 => self.move_network(),
            2 => self.move_client()?,
            _ => self.pass_time(),
        }
        simulation::wake_timers();
        if self.is_faulty {
            self.fault()?;
        }
        Ok(())
    }

    fn move_network(&mut self) {
        let mut step = self.network[self.random.place(self.network.len())];
        if self.slow_node == Some(step.node) && self.random.below(8) > 0 {
            step = self.network[self.random.place(self.network.len())];
        }
        let mut fate = Fate::Well;
        if self.is_faulty && step.kind == StepKind::Perform {
            let faults = self.plan.faults;
            let draws = [
                (faults.fail, Fate::Fails, "requests that fail"),
                (
                    faults.done_but_fails,
                    Fate::DoneButFails,
                    "requests that fail though performed",
                ),
                (faults.late, Fate::LateAndFails, "requests performed late"),
                (
                    faults.damage_on_the_way,
                    Fate::Damaged,
                    "bytes damaged on the way",
                ),
            ];
            for (often, one, name) in draws {
                if often > 0 && self.random.one_in(often) {
                    fate = one;
                    self.coverage.fault(name);
                }
            }
        }
        let pick = self.random.next();
        let detail = u64::from(step.place) << 8 | u64::from(step.part);
        self.note(1 + step.kind as u64, detail, || {
            format!(
                "{:?} at node {}: place {}, part {}, {fate:?}",
                step.kind, step.node, step.place, step.part
            )
        });
        simulation::take(&step, fate, pick);
    }

    fn pass_time(&mut self) {
        let now_ns = simulated::now_ns().unwrap_or(0);
        let next_ns = simulation::next_timer_ns().unwrap_or(now_ns);
        let busy = !self.ready.is_empty() || !self.network.is_empty();
        let by_ns = match self.random.below(3) {
            0 => self.random.below(50_000),
            // Without faults no request waits for longer than it may.
            _ if busy && !self.is_faulty => 0,
            _ => next_ns.saturating_sub(now_ns),
        };
        self.note(9, by_ns, || format!("{by_ns} ns pass"));
        simulated::advance(by_ns);
    }

    fn move_client(&mut self) -> Result<(), String> {
        let place = self.random.place(self.clients.len());
        let is_sleeper = self.plan.sleeper && place == 0;
        let caller = &mut self.clients[place];
        let may_send = caller.in_flight < IN_FLIGHT_MAX && self.is_faulty;
        if may_send && self.random.below(3) > 0 {
            self.submit(place);
            return Ok(());
        }
        if caller.asleep_until > self.step && self.is_faulty {
            return Ok(());
        }
        caller.client.set_asleep(false);
        if is_sleeper && self.is_faulty && self.random.one_in(20) {
            caller.asleep_until = self.step + self.random.below(20_000);
            caller.client.set_asleep(true);
            self.coverage.fault("clients that do not read");
        }
        let arrived = caller.client.receive(self.plan.value_bytes_max);
        caller.in_flight -= arrived.len().min(caller.in_flight);
        let count = arrived.len() as u64;
        self.note(10, count << 8 | place as u64, || {
            format!("client {place} reads {count} answers")
        });
        for (number, answered) in arrived {
            let answered = answered?;
            if let Answered::Failed(error) = &answered {
                self.coverage.error(error);
            }
            let text = format!("{answered:?}");
            let digest = text.bytes().fold(number, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
            });
            self.note(11, digest, || format!("  call {number}: {text}"));
            self.history.end(number, answered, self.step)?;
        }
        Ok(())
    }

    fn submit(&mut self, place: usize) {
        let key = match self.random.below(3) {
            // Some keys are used much more than others.
            0 => self.random.below(self.plan.keys.min(8)),
            _ => self.random.below(self.plan.keys),
        };
        let call = match self.random.below(20) {
            0..8 => Call::Get,
            8..15 => Call::Put,
            15..17 => Call::Delete,
            _ => Call::Swap(self.version_to_expect(key)),
        };
        let number = self.history.begin(place, key, call, self.step);
        let asked = Asked {
            number,
            call,
            key: format!("key-{key}"),
            value: value_of(number, self.plan.value_bytes_max),
        };
        let caller = &mut self.clients[place];
        match caller.client.send(asked) {
            Ok(()) => {
                caller.in_flight += 1;
                self.note(12, number, || {
                    format!("client {place} calls {number}: {call:?} of key {key}")
                });
            }
            Err(error) => {
                self.history.refuse();
                if let Some(error) = error {
                    self.coverage.error(&error);
                }
            }
        }
    }

    /// Starts a job on a core, as a client in a place.
    fn start_job(&mut self, engine: &SimulatedEngine, place: usize) -> Result<(), String> {
        let (port, bytes_max) = (client::port(), self.plan.value_bytes_max);
        let core = place % self.plan.cores;
        let job = engine
            .engine()
            .run_on_core(core, move |core| client::work(core, port, bytes_max));
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

    /// A job ends although it has calls under way, and another one comes in its place.
    fn replace_job(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        let place = self.random.place(self.clients.len());
        if let Client::Job(port) = self.clients[place].client {
            self.note(31, place as u64, || format!("client {place} stops"));
            self.coverage
                .fault("clients that stop with calls under way");
            client::stop(port);
            self.history.abandon(place, self.step);
            self.start_job(engine, place)?;
        }
        Ok(())
    }

    fn end_jobs(&mut self) {
        for caller in &mut self.clients {
            caller.client.set_asleep(false);
            if let Client::Job(port) = caller.client {
                client::end(port);
            }
        }
    }

    /// A version that a key had lately, or may have.
    fn version_to_expect(&mut self, key: u64) -> u64 {
        if self.random.one_in(4) {
            return 0;
        }
        self.history.latest_version(key)
    }

    /// Something goes wrong, or ends to be wrong.
    fn fault(&mut self) -> Result<(), String> {
        let faults = self.plan.faults;
        for node in 0..self.nodes.len() {
            if self.heals_at[node] != 0 && self.step >= self.heals_at[node] {
                self.heal(node)?;
            }
        }
        let node = self.random.place(self.nodes.len());
        let is_well = self.heals_at[node] == 0;
        if faults.partition > 0 && self.random.one_in(faults.partition) && is_well {
            let groups = if self.random.one_in(2) {
                u64::MAX
            } else {
                self.random.next()
            };
            let detail = groups;
            self.note(20, detail, || {
                format!("node {node} is cut off from {groups:x}")
            });
            self.coverage.fault("partitions");
            simulation::set_node(node, NodeState::Cut(groups));
            self.heals_at[node] = self.step + 1 + self.random.below(12_000);
        } else if faults.restart > 0 && self.random.one_in(faults.restart) && is_well {
            self.note(21, node as u64, || format!("node {node} ends"));
            self.coverage.fault("nodes that end, and come back empty");
            simulation::set_node(node, NodeState::Down);
            self.nodes[node] = None;
            self.heals_at[node] = self.step + 1 + self.random.below(12_000);
        }
        if faults.damage > 0 && self.random.one_in(faults.damage) {
            let bit = self.random.next();
            if let Some(node) = &self.nodes[node] {
                node.damage(bit);
                self.coverage.fault("bytes damaged in far memory");
            }
        }
        if faults.clock > 0 && self.random.one_in(faults.clock) {
            let by_ns = i64::try_from(self.random.below(20_000_000_000)).unwrap_or(0);
            let by_ns = by_ns - 10_000_000_000;
            simulated::step_system_clock(by_ns);
            self.coverage.fault("steps of the system's clock");
        }
        Ok(())
    }

    fn heal(&mut self, node: usize) -> Result<(), String> {
        self.note(22, node as u64, || format!("node {node} is well again"));
        if self.nodes[node].is_none() {
            self.start_node(node)?;
        }
        simulation::set_node(node, NodeState::Up);
        self.heals_at[node] = 0;
        Ok(())
    }

    fn until(
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
    fn note_figures(&mut self, engine: &SimulatedEngine) {
        let total = engine.engine().stats().total;
        self.coverage.reached(BTreeMap::from([
            ("pages flushed", total.pages_flushed),
            ("pages evicted", total.pages_evicted),
            ("pages compacted", total.compaction_pages),
            ("far reads", total.far_reads),
            ("requests served on loan", total.requests_lent),
            ("keys lost", total.lost_keys),
        ]));
    }

    fn check_far_memory(&self) -> Result<(), String> {
        if self.plan.encryption.is_none() {
            return Ok(());
        }
        let mark = MARK.repeat(2);
        let mut found = false;
        for node in self.nodes.iter().flatten() {
            node.each_region(|bytes| {
                found |= bytes
                    .windows(mark.len())
                    .step_by(1)
                    .any(|part| part == mark);
            });
        }
        if found {
            return Err("plaintext lies in far memory".into());
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        for node in 0..self.plan.nodes {
            self.nodes.push(None);
            self.heals_at.push(0);
            self.start_node(node)?;
        }
        let begun = SimulatedEngine::begin(&self.config()).map_err(|error| error.to_string());
        let mut engine = begun?;
        self.until("the engine is not open", |_| {
            engine.is_open().map_err(|error| error.to_string())
        })?;
        for _ in 0..self.plan.handles {
            let handle = engine
                .engine()
                .handle()
                .map_err(|error| error.to_string())?;
            self.clients.push(Caller {
                client: Client::Handle(Box::new(handle)),
                in_flight: 0,
                asleep_until: 0,
            });
        }
        for _ in 0..self.plan.jobs {
            self.start_job(&engine, self.clients.len())?;
        }
        let done = self.work(&engine);
        if done.is_err() {
            std::mem::forget(engine);
        }
        done
    }

    fn work(&mut self, engine: &SimulatedEngine) -> Result<(), String> {
        self.is_faulty = true;
        self.slow_node = (self.plan.faults.slow > 0).then_some(0);
        let end = self.step + self.plan.steps;
        let closes_at = self.plan.closes.then(|| end - self.plan.steps / 4);
        while self.step < end {
            self.take_step()?;
            if self.step.is_multiple_of(CHECK_STEPS) {
                engine.check();
            }
            let stops = self.plan.faults.stop;
            let is_open = closes_at.is_none_or(|closes_at| self.step < closes_at);
            if stops > 0 && is_open && self.random.one_in(stops) {
                self.replace_job(engine)?;
            }
            if closes_at == Some(self.step) {
                self.coverage.fault("an engine that closes under load");
                self.note(30, 0, || "the engine closes".into());
                self.end_jobs();
                engine.close();
            }
        }
        self.is_faulty = false;
        self.slow_node = None;
        for node in 0..self.nodes.len() {
            // In the liveness mode some nodes never come back.
            let stays = self.plan.liveness && self.random.one_in(2);
            if self.heals_at[node] != 0 && !stays {
                self.heal(node)?;
            }
        }
        let ended = self.until("requests have no answer", |world| {
            Ok(world.history.is_answered())
        });
        if let Err(error) = ended {
            let open: Vec<_> = self.history.open().take(5).cloned().collect();
            let count = self.history.open().count();
            return Err(format!("{error}: {count}, of which {open:?}"));
        }
        engine.check();
        self.note_figures(engine);
        self.history.check(self.plan.evicts)?;
        self.check_far_memory()?;
        self.end_jobs();
        self.clients.clear();
        engine.close();
        self.until("the engine is not closed", |_| Ok(engine.is_closed()))?;
        engine.close();
        Ok(())
    }
}

/// Runs the world of a plan.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let inside = simulation::enter(plan.seed, 1_700_000_000_000_000_000, plan.movable);
    client::begin();
    let mut world = World {
        plan: plan.clone(),
        random: Random::new(plan.seed),
        hash: 0xCBF2_9CE4_8422_2325,
        step: 0,
        trace: VecDeque::new(),
        coverage: Coverage::default(),
        history: History::default(),
        clients: Vec::new(),
        nodes: Vec::new(),
        heals_at: Vec::new(),
        is_faulty: false,
        ready: Vec::new(),
        network: Vec::new(),
        slow_node: None,
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    let failure = match caught {
        Ok(done) => done.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    };
    let (hash, steps, calls) = (world.hash, world.step, world.history.len());
    let mut coverage = std::mem::take(&mut world.coverage);
    coverage.reached(simulated::take_reached());
    let trace = std::mem::take(&mut world.trace).into();
    if failure.is_some() {
        // What is left is in an unknown state.
        std::mem::forget(world);
        inside.abandon();
    } else {
        drop(world);
        drop(inside);
    }
    Outcome {
        hash,
        steps,
        calls,
        coverage,
        failure,
        trace,
    }
}
