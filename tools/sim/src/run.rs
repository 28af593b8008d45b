//! Runs of one seed or many, and what they print.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::mutations::{self, FOUND, GAPS};
use crate::plan::Plan;
use crate::report::Coverage;
use crate::world::{self, Outcome};

/// How long a planted fault may go unfound.
const MUTATION_LIMIT: Duration = Duration::from_mins(2);

/// What to run.
#[derive(Clone, Copy, Debug)]
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
}

impl Request {
    fn seeds(&self) -> impl Iterator<Item = u64> {
        let last = self
            .count
            .map_or(u64::MAX, |count| self.first.saturating_add(count));
        self.first..last
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

/// Runs seeds until one fails, and prints what they reached.
///
/// # Errors
/// What a run found, and how to replay it.
pub fn run(request: &Request) -> Result<()> {
    let began = Instant::now();
    let (mut runs, mut steps, mut calls) = (0, 0, 0);
    let (mut coverage, mut hash) = (Coverage::default(), 0);
    for seed in request.seeds() {
        if began.elapsed() >= request.limit {
            break;
        }
        let plan = Plan::draw(seed, request.liveness);
        let outcome = world::run(&plan);
        runs += 1;
        steps += outcome.steps;
        calls += outcome.calls;
        coverage.add(&outcome.coverage);
        hash = outcome.hash;
        if request.verbose {
            println!("{plan:?}: {} steps, trace hash {hash:016x}", outcome.steps);
        }
        if let Some(failure) = &outcome.failure {
            print(&plan, &outcome);
            let flag = if request.liveness { " --liveness" } else { "" };
            bail!(
                "seed {seed}, after {} steps: {failure}\nreplay: cargo xtask sim --seed {seed}{flag}",
                outcome.steps
            );
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{runs} runs, {steps} steps and {calls} calls in {seconds:.1} s");
    println!("trace hash of the last: {hash:016x}");
    print!("{coverage}");
    Ok(())
}

/// Plants a fault, or each after the other, and runs seeds until it is found.
///
/// # Errors
/// A fault that was not found in two minutes, or that this build does not have.
pub fn find(name: &str, request: &Request) -> Result<()> {
    let all = name == "all";
    // `all` are those that are known to be found.
    let names: Vec<_> = if all {
        FOUND.to_vec()
    } else {
        let known = FOUND.into_iter().chain(GAPS);
        known.filter(|&known| known == name).collect()
    };
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
            let plan = Plan::draw(seed, request.liveness);
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
