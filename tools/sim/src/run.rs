//! Runs of one seed or many, and what they print.

use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail, ensure};

use crate::mutations::{self, FOUND, GAPS, QUICK};
use crate::plan::Plan;
use crate::report::Coverage;
use crate::shrink;
use crate::world::{self, Outcome};

/// How long a planted fault may go unfound.
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
}

impl Request {
    fn seeds(&self) -> impl Iterator<Item = u64> {
        let last = self
            .count
            .map_or(u64::MAX, |count| self.first.saturating_add(count));
        self.first..last
    }

    fn plan(&self, seed: u64) -> Result<Plan> {
        let mut plan = Plan::draw(seed, self.liveness);
        shrink::without(&mut plan, &self.without).map_err(Error::msg)?;
        shrink::vary(&mut plan, self.variant);
        plan.steps = self.steps.unwrap_or(plan.steps);
        plan.trace_lines = self.trace.unwrap_or(plan.trace_lines);
        Ok(plan)
    }

    /// The flags that choose the plan of a seed.
    fn flags(&self) -> &'static str {
        if self.liveness { " --liveness" } else { "" }
    }
}

/// The digest of every step of a seed's run.
///
/// # Errors
/// What the run found.
pub fn hash_of(seed: u64, liveness: bool) -> Result<u64> {
    let outcome = world::run(&Plan::draw(seed, liveness));
    match outcome.failure {
        None => Ok(outcome.hash),
        Some(failure) => bail!("seed {seed}: {failure}"),
    }
}

/// Prints what a run found.
fn print(plan: &Plan, outcome: &Outcome) {
    println!("{plan:#?}");
    for line in &outcome.trace {
        println!("{line}");
    }
}

/// What a run that fails shows, and how to replay it.
fn report(request: &Request, seed: u64, plan: &Plan, outcome: &Outcome) -> Error {
    print(plan, outcome);
    let failure = outcome.failure.as_deref().unwrap_or_default();
    let (steps, mode) = (outcome.steps, request.flags());
    let mut flags = String::new();
    if request.shrinks
        && let Some(shrunk) = shrink::shrink(plan)
    {
        print(&shrunk.plan, &world::run(&shrunk.plan));
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

/// Figures of a soak, by minute.
#[derive(Debug)]
struct Soak {
    began: Instant,
    minutes: u64,
    runs: u64,
    resident_mib: Vec<u64>,
}

impl Soak {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            minutes: 0,
            runs: 0,
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
            println!("minute {minutes}: {} runs, {mib} MiB resident", self.runs);
            self.resident_mib.push(mib);
        }
    }

    fn print(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let a_minute = self.runs as f64 / self.began.elapsed().as_secs_f64() * 60.0;
        println!("{a_minute:.0} seeds a minute on one core");
        if let (Some(first), Some(last)) = (self.resident_mib.first(), self.resident_mib.last()) {
            println!("resident after the first minute {first} MiB, after the last {last} MiB");
        }
    }
}

/// Runs seeds until one fails, and prints what they reached.
///
/// # Errors
/// What a run found, and how to replay it.
pub fn run(request: &Request) -> Result<()> {
    let mut soak = Soak::new();
    let (mut steps, mut calls) = (0, 0);
    let (mut coverage, mut hash) = (Coverage::default(), 0);
    for seed in request.seeds() {
        if soak.began.elapsed() >= request.limit {
            break;
        }
        let plan = request.plan(seed)?;
        let outcome = world::run(&plan);
        soak.note();
        steps += outcome.steps;
        calls += outcome.calls;
        coverage.add(&outcome.coverage);
        hash = outcome.hash;
        if request.verbose {
            println!("{plan:?}: {} steps, trace hash {hash:016x}", outcome.steps);
        }
        if outcome.failure.is_some() {
            return Err(report(request, seed, &plan, &outcome));
        }
    }
    let seconds = soak.began.elapsed().as_secs_f64();
    let runs = soak.runs;
    println!("{runs} runs, {steps} steps and {calls} calls in {seconds:.1} s");
    soak.print();
    println!("trace hash of the last: {hash:016x}");
    print!("{coverage}");
    Ok(())
}

/// Plants a fault, or each after the other, and runs seeds until it is found.
///
/// # Errors
/// A fault that was not found in two minutes, or that this build does not have.
pub fn find(name: &str, request: &Request) -> Result<()> {
    let known = FOUND.into_iter().chain(GAPS);
    let names: Vec<_> = match name {
        "quick" => QUICK.to_vec(),
        "all" => FOUND.to_vec(),
        "gaps" => GAPS.to_vec(),
        _ => known.filter(|&known| known == name).collect(),
    };
    let all = names.len() > 1;
    ensure!(
        !names.is_empty(),
        "no such fault: there are {} and, not found yet, {}",
        FOUND.join(", "),
        GAPS.join(", ")
    );
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for name in names {
        ensure!(
            mutations::plant(name),
            "this build has no planted faults: build it with `--features mutations`"
        );
        let began = Instant::now();
        let mut found = None;
        for seed in request.seeds() {
            if began.elapsed() >= MUTATION_LIMIT.min(request.limit) {
                break;
            }
            let plan = request.plan(seed)?;
            let outcome = world::run(&plan);
            if let Some(failure) = &outcome.failure {
                if !all {
                    print(&plan, &outcome);
                }
                let short: String = failure.chars().take(160).collect();
                found = Some((seed, short));
                break;
            }
        }
        let seconds = began.elapsed().as_secs_f64();
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
