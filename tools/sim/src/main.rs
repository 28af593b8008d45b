//! Runs Farcore in a simulated world: see the library.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farcore_sim::replication;
use farcore_sim::run::{Request, find, run, soak};

#[derive(Debug, Parser)]
#[command(
    name = "farcore-sim",
    about = "Run Farcore in a simulated world, from a seed"
)]
struct Arguments {
    /// The seed of the only run, or of the first.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs, of one seed after the other. Default: one, or as many as `--minutes` allows.
    #[arg(long)]
    count: Option<u64>,
    /// The longest time, in minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// The longest time, in seconds; for each planted fault by itself.
    #[arg(long, conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// Some nodes never come back; every request must end all the same.
    #[arg(long)]
    liveness: bool,
    /// The engine has a data directory, on a simulated disk: it crashes, and what comes back must
    /// be what it promised.
    #[arg(long, conflicts_with_all = ["liveness", "soak"])]
    durable: bool,
    /// Pages of far memory have two copies, and nodes end one after the other: nothing may be
    /// lost.
    #[arg(long, conflicts_with_all = ["liveness", "durable", "soak"])]
    copies: bool,
    /// Servers that follow each other: links and servers break, replicas are promoted, and what a
    /// client has waited for must be there.
    #[arg(long, conflicts_with_all = ["liveness", "durable", "soak", "shrink", "without", "variant", "steps", "hashes", "jobs"])]
    replication: bool,
    /// Plant a fault in the engine, which must be found in two minutes. `all` for each that can be
    /// found after the other, `quick` for those that are found at once, `gaps` for the others.
    #[arg(long)]
    mutation: Option<String>,
    /// Print each plan and its trace hash.
    #[arg(long)]
    verbose: bool,
    /// Lines of the trace, or events, of a run that fails.
    #[arg(long)]
    trace: Option<usize>,
    /// Make a run that fails smaller: take away what its failure does not need.
    #[arg(long)]
    shrink: bool,
    /// Take these parts away from each plan, as a run that was made smaller names them.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Another run of the same plan.
    #[arg(long, default_value_t = 0)]
    variant: u64,
    /// Steps with faults, if not those of the plan.
    #[arg(long)]
    steps: Option<u64>,
    /// Print the trace hash of each seed.
    #[arg(long)]
    hashes: bool,
    /// Threads, each with a world of its own.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Run one engine for long, with figures every minute: memory must stay flat and calls fast.
    /// 20 minutes, if not `--minutes` or `--seconds`.
    #[arg(long, conflicts_with_all = ["mutation", "count", "jobs"])]
    soak: bool,
}

/// Events of a run of replication that a failure shows.
const EVENTS: usize = 60;
/// How long a planted fault of replication is looked for.
const MUTATION_LIMIT: Duration = Duration::from_mins(2);
/// How long a soak takes.
const SOAK: Duration = Duration::from_mins(20);

fn main() -> ExitCode {
    let Arguments {
        seed,
        count,
        minutes,
        seconds,
        liveness,
        durable,
        copies,
        replication: replicates,
        mutation,
        verbose,
        trace,
        shrink,
        without,
        variant,
        steps,
        hashes,
        jobs,
        soak: soaks,
    } = Arguments::parse();
    let limit = seconds.map(Duration::from_secs);
    let limit = limit.or(minutes.map(Duration::from_mins));
    let is_single = limit.is_none() && mutation.is_none();
    if replicates {
        let request = replication::Request {
            first: seed,
            count: count.or(is_single.then_some(1)),
            limit: limit.unwrap_or(match mutation {
                Some(_) => MUTATION_LIMIT,
                None => Duration::from_hours(24),
            }),
            trace: trace.unwrap_or(EVENTS),
            verbose,
        };
        return ended(match mutation {
            Some(name) => replication::find(&name, &request),
            None => replication::run(&request),
        });
    }
    let request = Request {
        first: seed,
        count: count.or(is_single.then_some(1)),
        limit: limit.unwrap_or(if soaks {
            SOAK
        } else {
            Duration::from_hours(24)
        }),
        liveness,
        durable,
        copies,
        verbose,
        without,
        variant,
        steps,
        trace,
        shrinks: shrink,
        hashes,
        jobs,
    };
    ended(match mutation {
        Some(name) => find(&name, &request),
        None if soaks => soak(&request),
        None => run(&request),
    })
}

fn ended(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
