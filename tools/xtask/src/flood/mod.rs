//! `cargo xtask flood`: what a hostile network costs a memory node.
//!
//! `newcomers` opens connections that stop at some stage of the handshake, at given rates, while
//! honest clients open sessions, and counts how many get in. `unread` opens memory connections that
//! request answers and never read them, and shows the node's memory before, during and after.
//! `rate` compares an engine's rate beside silent connections with its rate alone. Each ends by
//! itself and fails if less holds than must.
//!
//! The node is a child process on the first core, the attacker runs on the last; a third core, if
//! there is one, is for the honest side. All parts are built as for published figures.

mod attack;
mod newcomers;
mod node;
mod places;
mod rate;
mod unread;

use std::process::Command;

use anyhow::{Result, ensure};
use clap::Subcommand;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors of the attacker.
const DESCRIPTORS: u64 = 20_000;

#[derive(Debug, Subcommand)]
pub(crate) enum Flood {
    /// Count the clients that get in beside connections that stop in the handshake.
    Newcomers(newcomers::Newcomers),
    /// Show the node's memory before, during and after READs whose answers are not read.
    Unread(unread::Unread),
    /// Compare an engine's rate beside silent connections with its rate alone.
    Rate(rate::Rate),
    /// Open silent connections to an address until this is killed, beside another measurement.
    Silent(attack::Silent),
}

/// Raises the limit on descriptors.
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

/// Builds this program as for published figures and runs it with the same arguments: a slow engine
/// or attacker would flatter the node.
fn run_optimised() -> Result<()> {
    let program = super::build_published("xtask", "xtask")?;
    let arguments = std::env::args_os().skip(1);
    super::run(Command::new(program).args(arguments))
}

pub(crate) fn run(flood: &Flood) -> Result<()> {
    if cfg!(debug_assertions) {
        return run_optimised();
    }
    raise_limit()?;
    match flood {
        Flood::Newcomers(flood) => newcomers::run(flood),
        Flood::Unread(flood) => unread::run(flood),
        Flood::Rate(flood) => rate::run(flood),
        Flood::Silent(flood) => flood.run(),
    }
}
