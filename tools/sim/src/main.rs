//! Runs Farcore in a simulated world: see the library.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farcore_sim::run::{Request, find, run};

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
    /// Some nodes never come back; every request must end all the same.
    #[arg(long)]
    liveness: bool,
    /// Plant a fault in the engine, which must be found in two minutes; `all` for each after the
    /// other.
    #[arg(long)]
    mutation: Option<String>,
    /// Print each plan and its trace hash.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let Arguments {
        seed,
        count,
        minutes,
        liveness,
        mutation,
        verbose,
    } = Arguments::parse();
    let is_single = minutes.is_none() && mutation.is_none();
    let request = Request {
        first: seed,
        count: count.or(is_single.then_some(1)),
        limit: Duration::from_mins(minutes.unwrap_or(24 * 60)),
        liveness,
        verbose,
    };
    let done = match mutation {
        Some(name) => find(&name, &request),
        None => run(&request),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
