//! Runs Farcore in a simulated world: see the library.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farcore_sim::run::{Seeds, run};

#[derive(Debug, Parser)]
#[command(about = "Run Farcore in a simulated world")]
struct Arguments {
    /// The seed of the only run, or of the first.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs, of one seed after the other.
    #[arg(long)]
    count: Option<u64>,
    /// The longest time, in minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Faults heal in all runs, and every request must end.
    #[arg(long)]
    liveness: bool,
    /// Print each plan.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let count = match (arguments.count, arguments.minutes) {
        (Some(count), _) => Some(count),
        (None, Some(_)) => None,
        (None, None) => Some(1),
    };
    let seeds = Seeds {
        first: arguments.seed.unwrap_or(1),
        count,
        limit: Duration::from_secs(60 * arguments.minutes.unwrap_or(600)),
    };
    match run(seeds, arguments.liveness, arguments.verbose) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
