//! Runs of one seed or many, and what they print.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail, ensure};

use crate::mutations::{self, DURABLE, FOUND, GAPS, QUICK, RARE};
use crate::plan::Plan;
use crate::report::Coverage;
use crate::shrink;
use crate::world::{self, Outcome};

/// How long a planted fault may go unfound, of a processor's time.
const MUTATION_LIMIT: Duration = Duration::from_mins(2);

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The first seed.
    pub first: u64,
    /// How many seeds; `None` for as many as the time allows.
    pub count: Option<u64>,
    /// The longest time for all.
    pub limit: Duration,
    /// Some nodes never come back, and every request must end all the same.
    pub liveness: bool,
    /// The engine has a data directory, and several lives.
    pub durable: bool,
    /// Pages have two copies, nodes end one after the other, and nothing may be lost.
    pub copies: bool,
    /// Print each plan and its trace hash.
    pub verbose: bool,
    /// Parts that are taken away from each plan; see [`crate::shrink::parts`].
    pub without: Vec<String>,
    /// Another run of the same plan.
    pub variant: u64,
    /// Steps with faults, if not those of the plan.
    pub steps: Option<u64>,
    /// Lines of a failing run's trace, if not the usual number.
    pub trace: Option<usize>,
    /// A run that fails is made smaller.
    pub shrinks: bool,
    /// Print the trace hash of each seed.
    pub hashes: bool,
    /// Threads, each with a world of its own; 0 counts as 1.
    pub jobs: usize,
}

/// Lines of the trace of a run that fails.
const TRACE_LINES: usize = 60;
/// Bytes of the stack of a thread that runs worlds.
const STACK_BYTES: usize = 16 << 20;

impl Request {
    /// Behind the last seed.
    fn end(&self) -> u64 {
        self.count
            .map_or(u64::MAX, |count| self.first.saturating_add(count))
    }

    fn plan(&self, seed: u64) -> Result<Plan> {
        let mode = match (self.durable, self.liveness) {
            _ if self.copies => Mode::Copies,
            (true, _) => Mode::Durable,
            (false, true) => Mode::Liveness,
            (false, false) => Mode::Safety,
        };
        let mut plan = mode.plan(seed);
        shrink::without(&mut plan, &self.without).map_err(Error::msg)?;
        shrink::vary(&mut plan, self.variant);
        plan.steps = self.steps.unwrap_or(plan.steps);
        Ok(plan)
    }

    /// The flags that choose the plan of a seed.
    fn flags(&self) -> &'static str {
        match (self.durable, self.liveness) {
            _ if self.copies => " --copies",
            (true, _) => " --durable",
            (false, true) => " --liveness",
            (false, false) => "",
        }
    }
}

/// What kind of runs a seed is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Faults all the time.
    Safety,
    /// Some nodes never come back.
    Liveness,
    /// An engine with a data directory, and several lives.
    Durable,
    /// Two copies of each page, and nodes that end one after the other.
    Copies,
}

impl Mode {
    /// The mode of a name, as `seeds.txt` has them.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "safety" => Some(Self::Safety),
            "liveness" => Some(Self::Liveness),
            "durable" => Some(Self::Durable),
            "copies" => Some(Self::Copies),
            _ => None,
        }
    }

    fn plan(self, seed: u64) -> Plan {
        match self {
            Self::Durable => Plan::draw_durable(seed),
            Self::Copies => Plan::draw_copies(seed),
            _ => Plan::draw(seed, self == Self::Liveness),
        }
    }
}

/// The digest of every step of a seed's run.
///
/// # Errors
/// What the run found.
pub fn hash_of(seed: u64, mode: Mode) -> Result<u64> {
    let outcome = world::run(&mode.plan(seed));
    match outcome.failure {
        None => Ok(outcome.hash),
        Some(failure) => bail!("seed {seed}: {failure}"),
    }
}

/// Prints what a run found: it is run again, with a trace.
fn replay(request: &Request, plan: &Plan) {
    let traced = Plan {
        trace_lines: request.trace.unwrap_or(TRACE_LINES),
        ..plan.clone()
    };
    print(plan, &world::run(&traced));
}

fn print(plan: &Plan, outcome: &Outcome) {
    println!("{plan:#?}");
    print!("{}", outcome.coverage);
    for line in &outcome.trace {
        println!("{line}");
    }
}

/// What a run that fails shows, and how to replay it.
fn report(request: &Request, seed: u64, plan: &Plan, outcome: &Outcome) -> Error {
    replay(request, plan);
    let failure = outcome.failure.as_deref().unwrap_or_default();
    let (steps, mode) = (outcome.steps, request.flags());
    let mut flags = String::new();
    if request.shrinks
        && let Some(shrunk) = shrink::shrink(plan)
    {
        replay(request, &shrunk.plan);
        println!("made smaller by {} runs", shrunk.runs);
        flags = shrunk.flags();
    }
    Error::msg(format!(
        "seed {seed}, after {steps} steps: {failure}\nreplay: cargo xtask sim --seed {seed}{mode}{flags}"
    ))
}

/// The bytes of this process that are in memory, in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.unwrap_or(0) / 1024
}

/// Figures of many runs, by minute.
#[derive(Debug)]
struct Figures {
    began: Instant,
    minutes: u64,
    runs: u64,
    jobs: usize,
    resident_mib: Vec<u64>,
}

impl Figures {
    fn new(jobs: usize) -> Self {
        Self {
            began: Instant::now(),
            minutes: 0,
            runs: 0,
            jobs,
            resident_mib: Vec::new(),
        }
    }

    /// A run has ended.
    fn note(&mut self) {
        self.runs += 1;
        let minutes = self.began.elapsed().as_secs() / 60;
        if minutes > self.minutes {
            self.minutes = minutes;
            let mib = resident_mib();
            let runs = self.runs;
            println!("minute {minutes}: {runs} runs without a failure, {mib} MiB resident");
            self.resident_mib.push(mib);
        }
    }

    fn print(&self) {
        let seconds = self.began.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let a_minute = self.runs as f64 / self.jobs as f64 / seconds * 60.0;
        println!(
            "{a_minute:.0} seeds a minute a thread, {} threads",
            self.jobs
        );
        if let (Some(first), Some(last)) = (self.resident_mib.first(), self.resident_mib.last()) {
            println!("resident after the first minute {first} MiB, after the last {last} MiB");
        }
    }
}

/// A run that has ended.
type Ended = (u64, Result<(Plan, Outcome)>);

/// Runs seeds, each the next that no other thread has taken, until they or the time end.
fn take_seeds(
    request: &Request,
    (next, stops, began): (&AtomicU64, &AtomicBool, Instant),
    ended: &mpsc::SyncSender<Ended>,
) {
    while began.elapsed() < request.limit && !stops.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= request.end() {
            return;
        }
        let run = request.plan(seed).map(|plan| {
            let outcome = world::run(&plan);
            (plan, outcome)
        });
        if ended.send((seed, run)).is_err() {
            return;
        }
    }
}

/// What many runs have shown together.
#[derive(Debug, Default)]
struct Sum {
    steps: u64,
    calls: usize,
    coverage: Coverage,
    last: (u64, u64),
}

impl Sum {
    fn add(&mut self, request: &Request, seed: u64, (plan, outcome): &(Plan, Outcome)) {
        self.steps += outcome.steps;
        self.calls += outcome.calls;
        self.coverage.add(&outcome.coverage);
        self.last = self.last.max((seed, outcome.hash));
        let hash = outcome.hash;
        if request.hashes {
            println!("trace hash of seed {seed}: {hash:016x}");
        }
        if request.verbose {
            println!("{plan:?}: {} steps, trace hash {hash:016x}", outcome.steps);
        }
    }
}

/// Runs seeds until one fails, and prints what they reached.
///
/// # Errors
/// What a run found, and how to replay it.
pub fn run(request: &Request) -> Result<()> {
    let jobs = request.jobs.max(1);
    let mut figures = Figures::new(jobs);
    let (next, stops) = (AtomicU64::new(request.first), AtomicBool::new(false));
    let shared = (&next, &stops, figures.began);
    let (mut sum, mut failed) = (Sum::default(), None);
    thread::scope(|scope| -> Result<()> {
        let (sender, ended) = mpsc::sync_channel(jobs);
        for _ in 0..jobs {
            let sender = sender.clone();
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, move || take_seeds(request, shared, &sender))?;
        }
        drop(sender);
        for (seed, run) in ended {
            let run = run?;
            sum.add(request, seed, &run);
            if run.1.failure.is_none() {
                figures.note();
            } else if failed.is_none() {
                stops.store(true, Ordering::Relaxed);
                failed = Some((seed, run));
            }
        }
        Ok(())
    })?;
    if let Some((seed, (plan, outcome))) = failed {
        return Err(report(request, seed, &plan, &outcome));
    }
    let seconds = figures.began.elapsed().as_secs_f64();
    let (runs, steps, calls) = (figures.runs, sum.steps, sum.calls);
    println!("{runs} runs, {steps} steps and {calls} calls in {seconds:.1} s");
    figures.print();
    println!("trace hash of the last: {:016x}", sum.last.1);
    print!("{}", sum.coverage);
    Ok(())
}

/// What a soak has shown in a minute.
#[derive(Clone, Copy, Debug, Default)]
struct Minute {
    held_bytes: i64,
    calls: usize,
    p50_ns: u64,
    p99_ns: u64,
}

/// The value below which a share of sorted ones lies, in percent.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let place = sorted.len() * percent / 100;
    sorted.get(place).copied().unwrap_or(0)
}

/// Runs one engine for as long as the time allows: its memory must stay as it is, and its calls
/// must not become slower.
///
/// # Errors
/// What was found, or what has drifted.
pub fn soak(request: &Request) -> Result<()> {
    let mut plan = request.plan(request.first)?;
    plan.endure();
    plan.trace_lines = request.trace.unwrap_or(TRACE_LINES);
    let began = Instant::now();
    let mut minutes: Vec<Minute> = Vec::new();
    let (mut latencies, mut rounds) = (Vec::new(), 0);
    let outcome = world::soak(&plan, |round| {
        rounds += 1;
        latencies.extend_from_slice(&round.latencies_ns);
        let elapsed = began.elapsed();
        let is_over = elapsed >= request.limit;
        if elapsed.as_secs() / 60 > minutes.len() as u64 || is_over {
            latencies.sort_unstable();
            let minute = Minute {
                held_bytes: round.held_bytes,
                calls: latencies.len(),
                p50_ns: percentile(&latencies, 50),
                p99_ns: percentile(&latencies, 99),
            };
            println!(
                "minute {}: {rounds} rounds, {} calls, p50 {} us, p99 {} us simulated; the engine \
                 holds {} KiB, at most {} of {} KiB beside its arenas; {} MiB resident",
                minutes.len() + 1,
                minute.calls,
                minute.p50_ns / 1_000,
                minute.p99_ns / 1_000,
                minute.held_bytes >> 10,
                round.most_bytes >> 10,
                round.room_bytes >> 10,
                resident_mib()
            );
            minutes.push(minute);
            latencies.clear();
        }
        is_over
    });
    if let Some(failure) = &outcome.failure {
        print(&plan, &outcome);
        let (seed, steps) = (request.first, outcome.steps);
        bail!("soak of seed {seed}, after {steps} steps and {rounds} rounds: {failure}");
    }
    println!(
        "one engine, {rounds} rounds, {} steps and {} calls in {:.1} s",
        outcome.steps,
        outcome.calls,
        began.elapsed().as_secs_f64()
    );
    print!("{}", outcome.coverage);
    match drift(&minutes) {
        None => Ok(()),
        Some(what) => bail!("{what}"),
    }
}

/// What has grown from the first third of the minutes to the last.
fn drift(minutes: &[Minute]) -> Option<String> {
    let third = minutes.len() / 3;
    let (first, last) = (&minutes[..third], &minutes[minutes.len() - third..]);
    let held = |part: &[Minute]| part.iter().map(|one| one.held_bytes).max().unwrap_or(0);
    let (before, after) = (held(first), held(last));
    if after > before + before / 10 + (256 << 10) {
        return Some(format!("the engine held {before} bytes, and {after} later"));
    }
    let p99 = |part: &[Minute]| {
        let mut all: Vec<_> = part.iter().map(|one| one.p99_ns).collect();
        all.sort_unstable();
        percentile(&all, 50)
    };
    let (before, after) = (p99(first), p99(last));
    (after > 2 * before).then(|| format!("a p99 of {before} ns became one of {after} ns"))
}

/// How long this thread has run, so that a busy machine finds as much as an idle one; since `began`
/// where the system does not say.
fn worked(began: Instant) -> Duration {
    let file = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = file.split(' ').next().and_then(|ns| ns.parse().ok());
    ns.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

/// Plants a fault, or each after the other, and runs seeds until it is found.
///
/// # Errors
/// A fault that was not found in two minutes, or that this build does not have.
pub fn find(name: &str, request: &Request) -> Result<()> {
    let known = FOUND.into_iter().chain(GAPS).chain(DURABLE).chain(RARE);
    let names: Vec<_> = match name {
        "quick" => QUICK.to_vec(),
        "all" => FOUND.into_iter().chain(DURABLE).collect(),
        "durable" => DURABLE.to_vec(),
        "rare" => RARE.to_vec(),
        "gaps" => GAPS.to_vec(),
        _ => known.filter(|&known| known == name).collect(),
    };
    let all = names.len() > 1;
    ensure!(
        !names.is_empty(),
        "no such fault: there are {}, {} and, not found yet, {}",
        FOUND.join(", "),
        DURABLE.join(", "),
        GAPS.join(", ")
    );
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for name in names {
        let request = &Request {
            durable: DURABLE.contains(&name) || RARE.contains(&name),
            ..request.clone()
        };
        ensure!(
            mutations::plant(name),
            "this build has no planted faults: build it with `--features mutations`"
        );
        let began = Instant::now();
        let worked_before = worked(began);
        let spent = || worked(began).saturating_sub(worked_before);
        let mut found = None;
        for seed in request.first..request.end() {
            if spent() >= MUTATION_LIMIT.min(request.limit) {
                break;
            }
            let plan = request.plan(seed)?;
            let outcome = world::run(&plan);
            if let Some(failure) = &outcome.failure {
                if !all {
                    replay(request, &plan);
                }
                let short: String = failure.chars().take(160).collect();
                found = Some((seed, short));
                break;
            }
        }
        let seconds = spent().as_secs_f64();
        match found {
            Some((seed, failure)) => println!("{name}: seed {seed}, {seconds:.1} s: {failure}"),
            None => {
                println!("{name}: NOT FOUND in {seconds:.1} s");
                missed.push(name);
            }
        }
    }
    let _ = mutations::plant("");
    ensure!(missed.is_empty(), "not found: {}", missed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(of: impl Fn(u64) -> (i64, u64)) -> Vec<Minute> {
        let minute = |(held_bytes, p99_ns)| Minute {
            held_bytes,
            p99_ns,
            ..Minute::default()
        };
        (0..9).map(|number| minute(of(number))).collect()
    }

    #[test]
    fn what_grows_in_a_soak_is_found() {
        let steady = minutes(|number| (5 << 20, 900 + number % 3 * 100));
        assert_eq!(drift(&steady), None);
        let leaks = minutes(|number| (5 << 20 << (number / 6), 900));
        assert!(drift(&leaks).unwrap().contains("held"));
        let slower = minutes(|number| (5 << 20, 900 + number * 300));
        assert!(drift(&slower).unwrap().contains("p99"));
        assert_eq!(drift(&steady[..2]), None);
        assert_eq!(percentile(&[1, 2, 3, 4], 50), 3);
        assert_eq!(percentile(&[], 99), 0);
    }
}
