//! One run: opens the engine, starts the clients, leads them through the phases, collects their
//! figures.
//!
//! Leader and clients communicate through channels: an order to a client, an event back when it is
//! complete. The leader reads waits from the clients' shared counters, so it sees a client that
//! hangs.
//!
//! A wait longer than the limit ends the phase: the flooders stop, the sleepers read their answers,
//! and all clients have the limit once more to become idle. If one does not, the run ends with the
//! figures so far. Its threads and its engine stay behind until the process ends.

mod start;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use farcore::Engine;
use farcore_command::stop;
use farcore_command::watch::Watched;
use farcore_tuning::Clock;
use tracing::info;

use self::start::{open_clients, start_threads};
use super::client::{Event, Order};
use super::keys::Keys;
use super::notes::{Latencies, Notes};
use super::report::{FlooderFigures, Hang, PhaseFigures, RequestFigures, Run};
use super::settings::{Phase, Request, Settings};
use crate::engines::Farcore;
use crate::failures;
use crate::plan::{Plan, Scenario};
use crate::progress::PhaseBar;

/// How often the leader checks the clients.
const TICK: Duration = Duration::from_millis(20);
/// Time that the other clients run before measuring starts.
const WARM_UP: Duration = Duration::from_millis(100);

/// Runs a plan in this process. If [`Run::is_stuck`], threads of it still hang, and the process
/// should end.
///
/// # Errors
/// The engine could not be opened, a thread could not be started, or a client was lost.
pub fn run(plan: &Plan) -> anyhow::Result<Run> {
    let Scenario::Fairness(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    Farcore::check(plan)?;
    let clock = Clock::new();
    let start_ns = clock.now_ns();
    let engine = Engine::open(Farcore::config(plan)?).context("the engine could not be opened")?;
    let mut run = Run {
        startup_seconds: seconds(clock.now_ns() - start_ns),
        ..Run::default()
    };
    info!(seconds = run.startup_seconds, "opened");
    let watched = plan.watch.open(engine.reporter())?;
    let mut lead = Lead::start(plan, settings, &engine, clock)?;
    lead.go(&engine, &mut run)?;
    lead.end(engine, watched, &mut run);
    Ok(run)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Flooder,
    Sleeper,
    Measured,
}

/// A client as the leader sees it.
#[derive(Debug)]
struct Member {
    role: Role,
    /// Its name in reports.
    name: String,
    /// Its place in its thread, and the channel to it; `None` after the last order.
    orders: Option<(usize, Sender<(usize, Order)>)>,
    notes: Arc<Notes>,
    /// It executes an order.
    busy: bool,
    left: bool,
    unread: usize,
}

#[derive(Debug)]
struct Lead {
    settings: Settings,
    keys: Keys,
    clock: Clock,
    limit_ns: u64,
    /// Flooders, sleepers, and the measured client last.
    members: Vec<Member>,
    inbox: Receiver<Event>,
    /// The first key that no sleeper has read.
    next_sleeper_key: u64,
}

/// A client that has waited longer than the limit.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    member: usize,
    wait_ns: u64,
}

impl Lead {
    fn start(
        plan: &Plan,
        settings: &Settings,
        engine: &Engine,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let keys = Keys::new(settings, plan.keys(), plan.seed);
        let (mut members, clients) = open_clients(plan, settings, engine, &keys, &clock)?;
        let inbox = start_threads(settings, &mut members, clients)?;
        let limit = Duration::from_secs_f64(settings.give_up_seconds);
        Ok(Self {
            settings: settings.clone(),
            keys,
            clock,
            limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            members,
            inbox,
            next_sleeper_key: 0,
        })
    }

    /// Loads the keys and runs the phases, until a phase leaves clients that hang.
    fn go(&mut self, engine: &Engine, run: &mut Run) -> anyhow::Result<()> {
        let measured = self.members.len() - 1;
        let count = self.keys.loaded();
        let bar = PhaseBar::new("farcore", "load", count);
        info!(farcore.operations = count, "load starts");
        let start_ns = self.clock.now_ns();
        self.order(measured, Order::Load(0..count))?;
        let stuck = self.until_idle(Some(&bar))?;
        bar.finish();
        run.load_seconds = seconds(self.clock.now_ns() - start_ns);
        info!(seconds = run.load_seconds, "load ends");
        if let Some(stuck) = stuck {
            run.stuck = Some(self.hang("load", stuck));
            return Ok(());
        }
        for (number, phase) in (0..).zip(self.settings.phases()) {
            if stop::is_requested() {
                run.partial = true;
                break;
            }
            info!(phase = phase.name(), "phase starts");
            let figures = self.phase(number, phase, engine)?;
            for request in &figures.requests {
                let name = request.request.name();
                info!(
                    request = name,
                    answers = request.answers,
                    p50_ns = request.p50_ns,
                    p99_ns = request.p99_ns,
                    max_ns = request.max_ns,
                    "measured"
                );
            }
            info!(phase = phase.name(), "phase ends");
            let ended = figures
                .hangs
                .iter()
                .all(|hang| hang.ended_after_seconds.is_some());
            run.phases.push(figures);
            run.partial = stop::is_requested();
            if !ended {
                break;
            }
        }
        Ok(())
    }

    /// Runs one phase. Its figures name the clients that hung.
    fn phase(
        &mut self,
        number: u64,
        phase: Phase,
        engine: &Engine,
    ) -> anyhow::Result<PhaseFigures> {
        let stop_flooders = Arc::new(AtomicBool::new(false));
        let mut figures = PhaseFigures::of(phase);
        let mut stuck = self.prepare(number, &mut figures, &stop_flooders)?;

        let latencies = Arc::new(Latencies::default());
        let far_reads = engine.stats().total.far_reads;
        let answers: Vec<u64> = self.members.iter().map(|one| one.notes.answers()).collect();
        for member in &self.members {
            member.notes.forget_waits();
        }
        let start_ns = self.clock.now_ns();
        if stuck.is_none() {
            stuck = self.measure(phase, &latencies)?;
        }

        let end_ns = self.clock.now_ns();
        figures.seconds = seconds(end_ns - start_ns);
        figures.far_reads = engine.stats().total.far_reads - far_reads;
        self.read(&mut figures, &latencies, &answers, stuck.is_some(), end_ns);
        if stuck.is_some() {
            let waiting = self.waiting(0, self.limit_ns / 2).into_iter();
            figures.hangs = waiting
                .map(|stuck| self.hang(phase.name(), stuck))
                .collect();
        }

        stop_flooders.store(true, Ordering::Relaxed);
        self.finish(&mut figures, end_ns)?;
        Ok(figures)
    }

    /// Writes the measured client's own keys and starts the sleepers and the flooders.
    fn prepare(
        &mut self,
        number: u64,
        figures: &mut PhaseFigures,
        stop_flooders: &Arc<AtomicBool>,
    ) -> anyhow::Result<Option<Stuck>> {
        let phase = figures.phase;
        self.order(self.members.len() - 1, Order::WriteOwn)?;
        let mut stuck = self.until_idle(None)?;
        if stuck.is_none() && phase.has_sleepers() {
            for member in self.of(Role::Sleeper) {
                let keys = self.sleeper_keys();
                self.order(member, Order::Submit(keys))?;
            }
            stuck = self.until_idle(None)?;
            figures.unread = self.members.iter().map(|one| one.unread as u64).sum();
        }
        if stuck.is_none() && phase.has_flooders() {
            for member in self.of(Role::Flooder) {
                let stop = stop_flooders.clone();
                let phase = number;
                self.order(member, Order::Flood { phase, stop })?;
            }
        }
        if stuck.is_none() && phase != Phase::Alone {
            stuck = self.until(WARM_UP, None)?;
        }
        Ok(stuck)
    }

    /// Measures for the length of a phase.
    fn measure(
        &mut self,
        phase: Phase,
        latencies: &Arc<Latencies>,
    ) -> anyhow::Result<Option<Stuck>> {
        let measured = self.members.len() - 1;
        let stop_measured = Arc::new(AtomicBool::new(false));
        let bar = PhaseBar::timed("farcore", phase.name(), self.settings.seconds);
        let (latencies, stop) = (latencies.clone(), stop_measured.clone());
        self.order(measured, Order::Measure { latencies, stop })?;
        let mut stuck = self.until(Duration::from_secs_f64(self.settings.seconds), Some(&bar))?;
        stop_measured.store(true, Ordering::Relaxed);
        // The other clients go on while its last request waits.
        while stuck.is_none() && self.members[measured].busy {
            stuck = self.until(TICK, None)?;
        }
        bar.finish();
        Ok(stuck)
    }

    /// Has the sleepers read their answers, and waits until all clients are idle or one is stuck.
    fn finish(&mut self, figures: &mut PhaseFigures, end_ns: u64) -> anyhow::Result<()> {
        if figures.phase.has_sleepers() {
            for member in self.of(Role::Sleeper) {
                // A client that hangs in its submission reads no further order.
                if !self.members[member].busy {
                    self.order(member, Order::Drain)?;
                }
            }
        }
        let still_stuck = self.until_idle(None)?;
        let took = seconds(self.clock.now_ns() - end_ns);
        match still_stuck {
            None => {
                for hang in &mut figures.hangs {
                    hang.ended_after_seconds = Some(took);
                }
            }
            Some(stuck) if figures.hangs.is_empty() => {
                figures.hangs.push(self.hang(figures.phase.name(), stuck));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Reads the clients' counters at the end of a phase, or when it is given up.
    fn read(
        &self,
        figures: &mut PhaseFigures,
        latencies: &Latencies,
        answers: &[u64],
        given_up: bool,
        end_ns: u64,
    ) {
        let measured = self.members.len() - 1;
        let notes = &self.members[measured].notes;
        // Its latest request may be unanswered even if another client waited longest.
        let unanswered_ns = notes
            .waiting_since_ns()
            .filter(|_| given_up && self.members[measured].busy)
            .map(|since_ns| end_ns.saturating_sub(since_ns));
        for &request in &self.settings.measured {
            let is_latest = notes.latest_request() == Some(request);
            let wait_ns = unanswered_ns.filter(|_| is_latest);
            let waits = latencies.snapshot(request, wait_ns);
            if figures.requests.iter().all(|one| one.request != request) {
                let passed_by = latencies.passed_by(request);
                figures.requests.push(RequestFigures::of(
                    request,
                    &waits,
                    &passed_by,
                    wait_ns.is_some(),
                ));
            }
        }
        figures
            .requests
            .sort_by_key(|one| Request::ALL.iter().position(|other| *other == one.request));
        let per_second = |member: usize| {
            let count = self.members[member].notes.answers() - answers[member];
            if figures.seconds > 0.0 {
                count as f64 / figures.seconds
            } else {
                0.0
            }
        };
        figures.per_second = per_second(measured);
        figures.longest_wait_ns = notes.longest_wait_ns(end_ns);
        if figures.phase.has_flooders() {
            let flooder = |member| FlooderFigures {
                per_second: per_second(member),
                longest_wait_ns: self.members[member].notes.longest_wait_ns(end_ns),
            };
            figures.flooders = self.of(Role::Flooder).into_iter().map(flooder).collect();
        }
    }

    /// The members of a role, by number.
    fn of(&self, role: Role) -> Vec<usize> {
        let members = self.members.iter().enumerate();
        members
            .filter(|(_, one)| one.role == role)
            .map(|(number, _)| number)
            .collect()
    }

    /// Keys for one sleeper that no sleeper has read.
    fn sleeper_keys(&mut self) -> Range<u64> {
        let start = self.next_sleeper_key;
        self.next_sleeper_key += self.settings.sleeper_window as u64;
        start..self.next_sleeper_key
    }

    fn order(&mut self, member: usize, order: Order) -> anyhow::Result<()> {
        let member = &mut self.members[member];
        let lost = || anyhow!("{} was lost", member.name);
        let (place, orders) = member.orders.as_ref().ok_or_else(lost)?;
        orders.send((*place, order)).map_err(|_| lost())?;
        member.busy = true;
        Ok(())
    }

    /// Handles one event, or returns when the limit is over.
    fn listen(&mut self, limit: Duration) -> anyhow::Result<()> {
        match self.inbox.recv_timeout(limit) {
            Ok(Event::Done { client, unread }) => {
                self.members[client].busy = false;
                self.members[client].unread = unread;
            }
            Ok(Event::Left { client }) => {
                let member = &mut self.members[client];
                (member.busy, member.left) = (false, true);
                // A client leaves of its own accord only after its last order.
                if member.orders.is_some() {
                    bail!("{} was lost", member.name);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(limit),
        }
        Ok(())
    }

    /// The clients that have waited longer than a limit for an answer. Time before `from_ns` does
    /// not count.
    fn waiting(&self, from_ns: u64, limit_ns: u64) -> Vec<Stuck> {
        let now_ns = self.clock.now_ns();
        let waits = self.members.iter().enumerate().filter_map(|(member, one)| {
            let since_ns = one.notes.waiting_since_ns().filter(|_| one.busy)?;
            let counted_ns = now_ns.saturating_sub(since_ns.max(from_ns));
            let wait_ns = now_ns.saturating_sub(since_ns);
            (counted_ns > limit_ns).then_some(Stuck { member, wait_ns })
        });
        waits.collect()
    }

    /// The client that has waited longest, if longer than the limit.
    fn stuck(&self, from_ns: u64) -> Option<Stuck> {
        let waiting = self.waiting(from_ns, self.limit_ns).into_iter();
        waiting.max_by_key(|stuck| stuck.wait_ns)
    }

    /// Waits for some time, or until a client is stuck; with a bar, also until a signal.
    fn until(&mut self, length: Duration, bar: Option<&PhaseBar>) -> anyhow::Result<Option<Stuck>> {
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let start_ns = self.clock.now_ns();
        loop {
            let passed_ns = self.clock.now_ns() - start_ns;
            if let Some(bar) = bar {
                bar.set(passed_ns / 1_000_000);
            }
            let left_ns = length_ns.saturating_sub(passed_ns);
            let ends = bar.is_some() && stop::is_requested();
            if left_ns == 0 || ends {
                return Ok(None);
            }
            if let Some(stuck) = self.stuck(0) {
                return Ok(Some(stuck));
            }
            self.listen(TICK.min(Duration::from_nanos(left_ns)))?;
        }
    }

    /// Waits until every order is complete, or a client is stuck for the limit from now on.
    fn until_idle(&mut self, bar: Option<&PhaseBar>) -> anyhow::Result<Option<Stuck>> {
        let from_ns = self.clock.now_ns();
        let before: u64 = self.members.iter().map(|one| one.notes.answers()).sum();
        while self.members.iter().any(|one| one.busy) {
            if let Some(bar) = bar {
                let now: u64 = self.members.iter().map(|one| one.notes.answers()).sum();
                bar.set(now - before);
            }
            if let Some(stuck) = self.stuck(from_ns) {
                return Ok(Some(stuck));
            }
            self.listen(TICK)?;
        }
        Ok(None)
    }

    fn hang(&self, phase: &str, stuck: Stuck) -> Hang {
        let member = &self.members[stuck.member];
        let request = member
            .notes
            .latest_request()
            .filter(|_| member.role == Role::Measured);
        Hang {
            phase: phase.to_owned(),
            client: member.name.clone(),
            request: request.map(|request| request.name().to_owned()),
            waited_seconds: seconds(stuck.wait_ns),
            ended_after_seconds: None,
        }
    }

    /// Ends the clients, adds up their faults and closes the engine; each step takes at most the
    /// limit.
    fn end(mut self, engine: Engine, watched: Watched, run: &mut Run) {
        self.end_clients(run);
        for member in &self.members {
            let (wrong, failed) = member.notes.faults();
            run.wrong_values += wrong;
            run.failed_requests += failed;
            run.unverified_values += member.notes.unverified();
            failures::add(&mut run.errors, &member.notes.errors());
            let complaint = member.notes.complaint();
            run.complaints
                .extend(complaint.map(|complaint| format!("{}: {complaint}", member.name)));
        }
        self.close(engine, watched, run);
    }

    fn end_clients(&mut self, run: &mut Run) {
        for member in &mut self.members {
            member.orders = None;
        }
        let limit_ns = self.clock.now_ns().saturating_add(self.limit_ns);
        let is_over = |clock: &Clock| clock.now_ns() > limit_ns;
        while self.members.iter().any(|one| !one.left) && !is_over(&self.clock) && !run.is_stuck() {
            // A client without orders may leave, so this is no error.
            let _ = self.listen(TICK);
        }
        let stayed = self.members.iter().find(|one| !one.left);
        if let Some(stayed) = stayed
            && !run.is_stuck()
        {
            run.stuck = Some(self.hang_at_end(&stayed.name, "the drop of its handle"));
        }
    }

    fn close(&self, engine: Engine, watched: Watched, run: &mut Run) {
        // Both its close and its drop may hang, so a separate thread does both.
        let (closed, is_closed) = mpsc::channel();
        let start_ns = self.clock.now_ns();
        let closing = thread::Builder::new()
            .name("close".to_owned())
            .spawn(move || {
                drop(watched);
                engine.close();
                drop(engine);
                let _ = closed.send(());
            });
        let limit = Duration::from_nanos(self.limit_ns);
        if closing.is_ok() && is_closed.recv_timeout(limit).is_ok() {
            run.close_seconds = Some(seconds(self.clock.now_ns() - start_ns));
        } else if !run.is_stuck() {
            run.stuck = Some(self.hang_at_end("the leader", "Engine::close"));
        }
    }

    fn hang_at_end(&self, client: &str, call: &str) -> Hang {
        Hang {
            phase: "end".to_owned(),
            client: client.to_owned(),
            request: Some(call.to_owned()),
            waited_seconds: self.settings.give_up_seconds,
            ended_after_seconds: None,
        }
    }
}
