//! Runs of one seed or many, and what they print.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::plan::Plan;
use crate::report::Coverage;
use crate::world;

/// Which seeds to run.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// How many; `None` for as many as the time allows.
    pub count: Option<u64>,
    /// The longest time for all.
    pub limit: Duration,
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

/// Runs seeds until one fails, and prints what they reached.
///
/// # Errors
/// What a run found, with its last steps and how to replay it.
pub fn run(seeds: Seeds, liveness: bool, verbose: bool) -> Result<()> {
    let began = Instant::now();
    let (mut runs, mut steps, mut calls) = (0, 0, 0);
    let mut coverage = Coverage::default();
    let mut hash = 0;
    let seeds_of = (seeds.first..)
        .take(usize::try_from(seeds.count.unwrap_or(u64::MAX)).unwrap_or(usize::MAX));
    for seed in seeds_of {
        if began.elapsed() >= seeds.limit {
            break;
        }
        let plan = Plan::draw(seed, liveness);
        if verbose {
            println!("{plan:?}");
        }
        let outcome = world::run(&plan);
        runs += 1;
        steps += outcome.steps;
        calls += outcome.calls;
        coverage.add(&outcome.coverage);
        hash = outcome.hash;
        if let Some(failure) = outcome.failure {
            println!("{plan:#?}");
            for line in &outcome.trace {
                println!("{line}");
            }
            let flag = if liveness { " --liveness" } else { "" };
            bail!(
                "seed {seed}, after {} steps: {failure}\nreplay: cargo xtask sim --seed {seed}{flag}",
                outcome.steps
            );
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!("{runs} runs, {steps} steps and {calls} calls in {took:.1} s; trace hash {hash:016x}");
    print!("{coverage}");
    Ok(())
}
