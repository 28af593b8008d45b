//! `cargo xtask redis longest`: how long a client waits beside every command at its longest.
//!
//! One server on one core, and on another core a client that sends `PING` and a `GET` of a short
//! value by turns, at a pace. Beside it each command of the server's table is sent in each of its
//! longest forms, again and again; then many clients at once send long ones. Only calls that a
//! measured command overlaps count: what it needs is stored anew before it, and that does not.
//!
//! ```text
//! requests  the commands and what they need, which the tests of the server walk too
//! loads     the rows: forms of commands, and crowds of clients
//! sender    sends a load, again and again; `connection` waits for each reply
//! probe     the client beside it
//! report    the table
//! ```
//!
//! - I1: a command of the server's table without a load is an error.
//! - I2: with `--judge` the run fails if beside one load the slowest of a hundred calls takes over
//!   20 ms.

mod connection;
mod loads;
mod probe;
mod report;
#[path = "../../../../server/tests/support/longest.rs"]
mod requests;
mod sender;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::connection::Connection;
use self::loads::Load;
use self::probe::Probe;
use self::report::Row;
use self::sender::Sender;
use super::memory;
use super::memory::cores::{Cores, pin};
use super::memory::words::Reply;
use super::place::Place;
use super::process::Process;
use super::server::Server;
use super::touched::await_touched;

/// Memory of the server, in which a record of 1 MiB is one, and many clients have theirs.
const FLAGS: &str = "--no-huge-pages --monitor --local 256MiB --far 2GiB --client-memory 256MiB";

#[derive(Debug, Args)]
pub(crate) struct Longest {
    /// The program `farcore` [default: one of the profile published, which is built]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// How long each load lasts; longer if too few calls of the client beside it overlap with it
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Only these commands, and crowds of them; separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    commands: Vec<String>,
    /// Only list the loads
    #[arg(long)]
    list: bool,
    /// Write a row of each load to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail if beside one load the slowest of a hundred calls takes over 20 ms; needs a
    /// build of the profile published and a core that has no other load
    #[arg(long)]
    judge: bool,
}

impl Longest {
    fn selects(&self, load: &Load) -> bool {
        let is_named = |name: &String| name.eq_ignore_ascii_case(&load.command);
        self.commands.is_empty() || self.commands.iter().any(is_named)
    }
}

/// The loads of commands, and those of many clients.
fn loads_of(commands: &BTreeSet<String>) -> Result<Vec<Load>> {
    let mut all = Vec::new();
    for name in commands {
        let of_name = loads::of_command(name)
            .with_context(|| format!("the server has {name}, of which no longest form is known"))?;
        ensure!(
            !of_name.is_empty() || name == loads::ENDS_THE_SERVER,
            "{name} of the server is never sent"
        );
        all.extend(of_name);
    }
    all.extend(loads::crowds());
    Ok(all)
}

/// The names of the server's table.
fn commands_of(control: &mut Connection) -> Result<BTreeSet<String>> {
    let Reply::Many(names) = control.call(&requests::words("COMMAND LIST"))? else {
        bail!("COMMAND LIST replies no list");
    };
    let names = names.into_iter().map(|name| match name {
        Reply::Bytes(name) => Ok(String::from_utf8(name)?),
        other => bail!("COMMAND LIST has {other:?}"),
    });
    names.collect()
}

/// Runs the loads one after the other beside one client.
fn run_all(server: &Server, longest: &Longest, core: usize) -> Result<Vec<Row>> {
    pin(core)?;
    let mut control = Connection::open(server)?;
    await_touched(|| control.text(&requests::words("INFO memory")))?;
    let commands = commands_of(&mut control)?;
    let loads = loads_of(&commands)?;
    let loads: Vec<Load> = loads
        .into_iter()
        .filter(|one| longest.selects(one))
        .collect();
    ensure!(!loads.is_empty(), "the server has no such command");
    if longest.list {
        loads.iter().for_each(|load| println!("{}", load.shown()));
        return Ok(Vec::new());
    }
    let probe = Probe::start(server, core)?;
    let mut sender = Sender::new(server, control)?;
    sender.store_all()?;
    let time = Duration::from_secs(longest.seconds);
    let mut rows = vec![Row::of(&Load::nothing(), sender.rest(&probe, time)?)];
    for (place, load) in loads.iter().enumerate() {
        eprintln!("{} of {}: {}", place + 1, loads.len(), load.shown());
        let sent = sender.send(load, &probe, time);
        let sent = sent.with_context(|| load.shown())?;
        let row = Row::of(load, sent);
        eprintln!("    {row}");
        rows.push(row);
    }
    probe.end()?;
    Ok(rows)
}

pub(super) fn perform(place: &Place, longest: &Longest) -> Result<()> {
    let binary = match &longest.binary {
        Some(binary) => binary.clone(),
        None => memory::build()?,
    };
    let binary = binary.canonicalize();
    let binary =
        binary.context("build it with cargo build --profile published -p farcore-tools")?;
    let cores = Cores::here()?;
    ensure!(
        cores.are_apart() || !longest.judge,
        "--judge needs two cores: one for the server, one for its clients"
    );
    let core = cores.list(1);
    let command = format!(
        "'{}' serve --resp 127.0.0.1:{{port}} --cores {core} {FLAGS}",
        binary.display()
    );
    let process = Process::start(&command, Some(&core), &place.log("longest")?)?;
    let rows = run_all(process.server(), longest, cores.load)?;
    if longest.list {
        return Ok(());
    }
    if let Some(file) = &longest.json {
        fs::write(file, serde_json::to_vec_pretty(&rows)?)?;
    }
    println!("{}", report::table(&rows));
    let slow: Vec<String> = (rows.iter().filter(|row| row.is_slow()))
        .map(ToString::to_string)
        .collect();
    ensure!(
        slow.is_empty() || !longest.judge,
        "beside {} of {} loads one of a hundred calls takes over {:?}:\n{}",
        slow.len(),
        rows.len(),
        report::LATENCY_MAX,
        slow.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands of the server's table, as its documentation has them.
    fn documented() -> BTreeSet<String> {
        let text = include_str!("../../../../server/src/commands/documentation.txt");
        let names = text.lines().filter_map(|line| line.split('\t').next());
        let commands = names.filter(|name| !name.contains('|'));
        commands.map(str::to_owned).collect()
    }

    #[test]
    fn every_command_of_the_table_has_a_load() {
        let commands = documented();
        assert!(commands.len() > 100, "{}", commands.len());
        let loads = loads_of(&commands).unwrap();
        for name in &commands {
            let has_one = loads.iter().any(|load| load.command == *name);
            assert!(has_one || loads::ENDS_THE_SERVER == name, "{name}");
        }
    }

    #[test]
    fn a_command_without_a_load_is_an_error() {
        let unknown = BTreeSet::from(["unknown".to_owned()]);
        let error = loads_of(&unknown).unwrap_err().to_string();
        assert!(error.contains("the server has unknown"), "{error}");
    }
}
