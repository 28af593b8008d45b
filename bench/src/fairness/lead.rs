//! One run: opens the engine, starts the clients, leads them through the phases, adds up what they
//! noted.
//!
//! The leader and the clients speak through channels: an order to a client, an event back when it
//! is carried out. What a client waits for is read from its notes, so a client that hangs needs to
//! say nothing.
//!
//! An answer that stays away longer than the limit ends its phase: the flooders stop, the sleepers
//! take their answers, and everybody has the limit once more to end. If that does not help, the run
//! ends with what it has; its threads and its engine are left behind, for the process ends next.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use core_affinity::CoreId;
use farcore::Engine;
use farcore_tuning::Clock;
use tracing::{info, warn};

use super::client::{self, Client, ClientOptions, Event, Order};
use super::keys::Keys;
use super::notes::{Latencies, Notes};
use super::report::{FlooderFigures, Hang, PhaseFigures, RequestFigures, Run};
use super::{Phase, Request, Settings};
use crate::engines::Farcore;
use crate::plan::{Plan, Scenario};
use crate::progress::PhaseBar;
use crate::watch::Watched;

/// How often the leader looks at the clients.
const TICK: Duration = Duration::from_millis(20);
/// The other clients run for so long before anything is measured.
const WARM_UP: Duration = Duration::from_millis(100);

/// Runs a plan in this process. If [`Run::is_stuck`], threads of it are still there, and the
/// process should end.
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
    let engine = Engine::open(Farcore::config(plan)?).context("farcore could not be opened")?;
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
    /// To its thread, and its place there; gone once there is nothing more to do.
    orders: Option<(usize, Sender<(usize, Order)>)>,
    notes: Arc<Notes>,
    /// It has an order that is not carried out.
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
    /// The first key of those that no sleeper has read.
    next_sleeper_key: u64,
}

/// A client whose answer has stayed away too long.
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
        let roles = std::iter::repeat_n(Role::Flooder, settings.flooders)
            .chain(std::iter::repeat_n(Role::Sleeper, settings.sleepers))
            .chain([Role::Measured]);
        let (events, inbox) = mpsc::channel();
        let mut members: Vec<Member> = Vec::new();
        let mut flooders = Vec::new();
        let mut clients = Vec::new();
        for (number, role) in roles.enumerate() {
            let notes = Arc::new(Notes::default());
            if role == Role::Flooder {
                flooders.push(notes.clone());
            }
            let options = ClientOptions {
                number,
                window: plan.window,
                puts_percent: settings.flooder_puts_percent,
                measured: settings.measured.clone(),
                form: settings.form,
                // Complete by then: the measured client is the last one.
                flooders: match role {
                    Role::Measured => std::mem::take(&mut flooders),
                    Role::Flooder | Role::Sleeper => Vec::new(),
                },
                seed: plan.seed,
            };
            let handle = engine.handle()?;
            let (keys, clock) = (keys.clone(), clock.clone());
            clients.push(Client::new(options, handle, keys, clock, notes.clone()));
            members.push(Member {
                role,
                name: match role {
                    Role::Flooder => format!("flooder {}", number + 1),
                    Role::Sleeper => format!("sleeper {}", number + 1 - settings.flooders),
                    Role::Measured => "the measured client".to_owned(),
                },
                orders: None,
                notes,
                busy: false,
                left: false,
                unread: 0,
            });
        }
        let at_once = clients.len().div_ceil(settings.threads());
        let mut first = 0;
        for number in 0..settings.threads() {
            let group: Vec<Client> = clients.drain(..at_once).collect();
            let (orders, received) = mpsc::channel();
            for (place, member) in members[first..first + at_once].iter_mut().enumerate() {
                member.orders = Some((place, orders.clone()));
            }
            first += at_once;
            let cores = &settings.client_cores;
            let core = (!cores.is_empty()).then(|| cores[number % cores.len()]);
            let events = events.clone();
            let body = move || {
                if let Some(core) = core
                    && !core_affinity::set_for_current(CoreId { id: core })
                {
                    warn!(core, "the thread could not be pinned");
                }
                client::run(group, received, events);
            };
            thread::Builder::new()
                .name(format!("client-{number}"))
                .spawn(body)
                .context("a thread could not be started")?;
        }
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

    /// Loads and runs the phases, until one leaves clients that hang.
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
            if !ended {
                break;
            }
        }
        Ok(())
    }

    fn phase(
        &mut self,
        number: u64,
        phase: Phase,
        engine: &Engine,
    ) -> anyhow::Result<PhaseFigures> {
        let measured = self.members.len() - 1;
        let stop = Arc::new(AtomicBool::new(false));
        let stop_measured = Arc::new(AtomicBool::new(false));
        let mut figures = PhaseFigures::of(phase);

        self.order(measured, Order::WriteOwn)?;
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
                let stop = stop.clone();
                let phase = number;
                self.order(member, Order::Flood { phase, stop })?;
            }
        }
        if stuck.is_none() && phase != Phase::Alone {
            stuck = self.until(WARM_UP, None)?;
        }

        let latencies = Arc::new(Latencies::default());
        let far_reads = engine.stats().total.far_reads;
        let answers: Vec<u64> = self.members.iter().map(|one| one.notes.answers()).collect();
        for member in &self.members {
            member.notes.forget_waits();
        }
        let start_ns = self.clock.now_ns();
        if stuck.is_none() {
            let bar = PhaseBar::timed("farcore", phase.name(), self.settings.seconds);
            let (latencies, stop) = (latencies.clone(), stop_measured.clone());
            self.order(measured, Order::Measure { latencies, stop })?;
            stuck = self.until(Duration::from_secs_f64(self.settings.seconds), Some(&bar))?;
            stop_measured.store(true, Ordering::Relaxed);
            // Its latest request waits beside the others, too.
            while stuck.is_none() && self.members[measured].busy {
                stuck = self.until(TICK, None)?;
            }
            bar.finish();
        }
        stop_measured.store(true, Ordering::Relaxed);

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

        stop.store(true, Ordering::Relaxed);
        if phase.has_sleepers() {
            for member in self.of(Role::Sleeper) {
                // One that hangs in its submission takes no further order.
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
                figures.hangs.push(self.hang(phase.name(), stuck));
            }
            Some(_) => {}
        }
        Ok(figures)
    }

    /// Reads the notes of a phase, which has been given up if a client was stuck.
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
        // Its latest request may lack an answer, whoever has waited longest.
        let unanswered_ns = notes
            .waiting_since_ns()
            .filter(|_| given_up && self.members[measured].busy)
            .map(|since_ns| end_ns.saturating_sub(since_ns));
        for &request in &self.settings.measured {
            let asked = notes.asked() == Some(request);
            let wait_ns = unanswered_ns.filter(|_| asked);
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

    /// Keys that no sleeper has read.
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

    /// Notes what clients say until a tick is over or one has said something.
    fn listen(&mut self, limit: Duration) -> anyhow::Result<()> {
        match self.inbox.recv_timeout(limit) {
            Ok(Event::Done { client, unread }) => {
                self.members[client].busy = false;
                self.members[client].unread = unread;
            }
            Ok(Event::Left { client }) => {
                let member = &mut self.members[client];
                (member.busy, member.left) = (false, true);
                // It leaves by itself only once there are no more orders.
                if member.orders.is_some() {
                    bail!("{} was lost", member.name);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(limit),
        }
        Ok(())
    }

    /// The clients that have waited longer than a limit for an answer; waits before `from_ns` do
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

    /// The client that has waited longest, if that is too long.
    fn stuck(&self, from_ns: u64) -> Option<Stuck> {
        let waiting = self.waiting(from_ns, self.limit_ns).into_iter();
        waiting.max_by_key(|stuck| stuck.wait_ns)
    }

    /// Waits for some time, or until a client is stuck.
    fn until(&mut self, length: Duration, bar: Option<&PhaseBar>) -> anyhow::Result<Option<Stuck>> {
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let start_ns = self.clock.now_ns();
        loop {
            let passed_ns = self.clock.now_ns() - start_ns;
            if let Some(bar) = bar {
                bar.set(passed_ns / 1_000_000);
            }
            let left_ns = length_ns.saturating_sub(passed_ns);
            if left_ns == 0 {
                return Ok(None);
            }
            if let Some(stuck) = self.stuck(0) {
                return Ok(Some(stuck));
            }
            self.listen(TICK.min(Duration::from_nanos(left_ns)))?;
        }
    }

    /// Waits until every order is carried out, or a client is stuck for as long as the limit from
    /// now on.
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
            .asked()
            .filter(|_| member.role == Role::Measured);
        Hang {
            phase: phase.to_owned(),
            client: member.name.clone(),
            request: request.map(|request| request.name().to_owned()),
            waited_seconds: seconds(stuck.wait_ns),
            ended_after_seconds: None,
        }
    }

    /// Sends the clients home, adds up their faults and closes the engine; each for no longer than
    /// the limit.
    fn end(mut self, engine: Engine, watched: Watched, run: &mut Run) {
        for member in &mut self.members {
            member.orders = None;
        }
        let limit_ns = self.clock.now_ns().saturating_add(self.limit_ns);
        let is_over = |clock: &Clock| clock.now_ns() > limit_ns;
        while self.members.iter().any(|one| !one.left) && !is_over(&self.clock) && !run.is_stuck() {
            // Nobody is lost who has no more orders.
            let _ = self.listen(TICK);
        }
        for member in &self.members {
            let (wrong, failed) = member.notes.faults();
            run.wrong_values += wrong;
            run.failed_requests += failed;
            let complaint = member.notes.complaint();
            run.complaints
                .extend(complaint.map(|complaint| format!("{}: {complaint}", member.name)));
        }
        let stayed = self.members.iter().find(|one| !one.left);
        if let Some(stayed) = stayed
            && !run.is_stuck()
        {
            run.stuck = Some(Hang {
                phase: "end".to_owned(),
                client: stayed.name.clone(),
                request: Some("the drop of its handle".to_owned()),
                waited_seconds: self.settings.give_up_seconds,
                ended_after_seconds: None,
            });
        }
        // Its drop may hang as well as its close: a thread of its own has both.
        let (closed, hear) = mpsc::channel();
        let start_ns = self.clock.now_ns();
        let closing = thread::Builder::new()
            .name("close".to_owned())
            .spawn(move || {
                drop(watched);
                engine.close();
                drop(engine);
                let _ = closed.send(());
            });
        let ended = closing.is_ok()
            && hear
                .recv_timeout(Duration::from_nanos(self.limit_ns))
                .is_ok();
        if ended {
            run.close_seconds = Some(seconds(self.clock.now_ns() - start_ns));
        } else if !run.is_stuck() {
            run.stuck = Some(Hang {
                phase: "end".to_owned(),
                client: "the leader".to_owned(),
                request: Some("Engine::close".to_owned()),
                waited_seconds: self.settings.give_up_seconds,
                ended_after_seconds: None,
            });
        }
    }
}
