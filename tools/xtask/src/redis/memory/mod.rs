//! `cargo xtask redis memory`: resident memory stays within what the server prints, whatever its
//! clients do, and a well-behaved client beside them does not notice.
//!
//! Each scenario has a memory node and a server of its own, so that far memory is not in the
//! server's process, data, a load of some seconds, and a client that uses the server as it should
//! be used. A scenario that fails does not end the run.
//!
//! ```text
//! scenarios     all of them: data, flags, crowds
//! crowd         connections that do the same, and what they say
//! channel       a connection that never waits; `load` drives all crowds by one thread
//! native        crowds of native clients
//! well_behaved  the client beside the load; `caller` is its connection
//! data          what is stored before
//! served        server and memory node; `announced` a process, `certificate` what encrypts
//! resident      resident memory; `cores` who runs where
//! runner        runs a scenario; `report` judges it
//! ```
//!
//! - I1: the run fails if resident memory exceeds `--local` by more than the server says it takes
//!   beside, if that is over 40 MiB (and the memory of native clients), or if memory is not back
//!   within 5 s of the load's end.
//! - I2: it fails if the well-behaved client is disconnected or gets an error; with
//!   `--judge-latency` also if one of a hundred of its short calls takes over 20 ms.
//! - I3: a server that takes 4 GiB is killed, and has failed.

mod announced;
mod caller;
mod certificate;
mod channel;
pub(super) mod cores;
mod crowd;
mod data;
mod load;
mod native;
mod report;
mod resident;
mod runner;
mod scenarios;
mod served;
mod well_behaved;
pub(super) mod words;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::process::{Resource, getrlimit, setrlimit};

use self::report::Outcome;
use self::scenarios::{Scale, Scenario};
use self::served::Setting;
use super::place::Place;

/// Keys of scenarios that list them, and from how many seconds on there are as many.
const KEYS: u64 = 2_000_000;
const KEYS_SECONDS: u64 = 20;
/// In shorter runs.
const FEWER_KEYS: u64 = 500_000;
/// Descriptors of this program.
const DESCRIPTORS: u64 = 12_000;

#[derive(Debug, Args)]
pub(crate) struct Memory {
    /// The program `farcore` [default: one of the profile published, which is built]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// How long each load lasts
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Only scenarios whose name contains one of these; separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Only the tenth that runs before each change lands
    #[arg(long)]
    tenth: bool,
    /// Only list the scenarios
    #[arg(long)]
    list: bool,
    /// Fail if one of a hundred short calls of the well-behaved client takes over 20 ms; needs a
    /// build of the profile published and a core that has no other load
    #[arg(long)]
    judge_latency: bool,
}

impl Memory {
    fn scale(&self) -> Scale {
        let keys = match self.seconds {
            KEYS_SECONDS.. => KEYS,
            _ => FEWER_KEYS,
        };
        Scale { keys }
    }

    fn selects(&self, scenario: &Scenario) -> bool {
        let is_named = |part: &String| scenario.name.contains(part.as_str());
        (self.scenarios.is_empty() || self.scenarios.iter().any(is_named))
            && (!self.tenth || scenario.is_of_tenth)
    }
}

/// Builds `farcore` as for published figures.
pub(super) fn build() -> Result<PathBuf> {
    crate::build_published("farcore-tools", "farcore")
}

/// Raises the limit on open files, which the server inherits.
fn raise_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum.or(limit.current);
    setrlimit(Resource::Nofile, limit)?;
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(
        most >= DESCRIPTORS,
        "the limit on open files is {most}: {DESCRIPTORS} are needed, raise it with `ulimit -n`"
    );
    Ok(())
}

fn run_all(place: &Place, memory: &Memory, selected: &[Scenario]) -> Result<Vec<Outcome>> {
    let binary = match &memory.binary {
        Some(binary) => binary.clone(),
        None => build()?,
    };
    raise_limit()?;
    let setting = Setting::create(&binary, place)?;
    ensure!(
        setting.cores.are_apart() || !memory.judge_latency,
        "--judge-latency needs two cores: one for the server, one for its clients"
    );
    let time = Duration::from_secs(memory.seconds);
    println!(
        "memory in MiB, {} s each\n{}",
        memory.seconds,
        Outcome::heading()
    );
    let mut outcomes = Vec::new();
    for scenario in selected {
        let outcome = runner::run(&setting, scenario, time);
        println!("{}", outcome.row(memory.judge_latency));
        println!("    {}; {:.1} s", outcome.load, outcome.took.as_secs_f64());
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

pub(super) fn perform(place: &Place, memory: &Memory) -> Result<()> {
    let all = scenarios::all(memory.scale());
    let selected: Vec<Scenario> = all.into_iter().filter(|one| memory.selects(one)).collect();
    selected.first().context("no scenario has such a name")?;
    if memory.list {
        selected.iter().for_each(|one| println!("{}", one.name));
        return Ok(());
    }
    let outcomes = run_all(place, memory, &selected)?;
    let judges = memory.judge_latency;
    let failed = outcomes.iter().filter(|one| !one.faults(judges).is_empty());
    let failed: Vec<String> = failed.map(|one| one.row(judges)).collect();
    if failed.is_empty() {
        println!("all {} scenarios hold", outcomes.len());
        return Ok(());
    }
    let (count, all) = (failed.len(), outcomes.len());
    bail!("{count} of {all} scenarios failed:\n{}", failed.join("\n"));
}
