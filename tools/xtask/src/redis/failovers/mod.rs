//! `cargo xtask redis failovers`: three servers, one the source of the others, which three of
//! Debian's Sentinels watch. Round by round one fault is drawn while clients write and wait for
//! replicas (`WAIT`). Then one server must be the source, both others must follow it, all three
//! must hold the same, and what was acknowledged must be there.
//!
//! ```text
//! connection  a connection with time limits
//! fleet       the processes: servers and Sentinels
//! fault       what goes wrong, and how
//! told        what a client was told, and the judgement of what is stored
//! writer      a client
//! stored      what servers have stored
//! settled     waits until all follow one source
//! ```
//!
//! A write is acknowledged if it was answered without an error and `WAIT 1` on its connection
//! replied 1 or more. What docs/replication.md promises of it holds if a replica that has
//! acknowledged it is promoted. That is so for each of the faults:
//!
//! - **The source is killed.** A replica says to Sentinel up to where it has applied the stream,
//!   and Sentinel promotes the one that is furthest. A replica that acknowledged a write before
//!   the death is past it when Sentinel asks, and so is the promoted one. Sentinel must have asked
//!   after the death: it asks each 0.3 s here, and does not hold the source to be down before half
//!   a second. Links are often cut just before, so that one replica is ahead of the other, or both
//!   have not got all: replicas keep their data, and their offsets.
//! - **The source is stopped until the third server follows the promoted one.** Then the old source
//!   carries out what clients had sent before, and takes more until a Sentinel has it follow. No
//!   replica follows it any more, so `WAIT` there counts only what a replica had acknowledged
//!   before the promotion, and as above the promoted one has that.
//! - **The source is held**: stopped for a time that may be over amid the failover. The third
//!   server may still follow it then, and acknowledge a write that the promoted one never gets.
//!   `WAIT 1` promises nothing for that, so clients use `WAIT 2` in these rounds: a promoted server
//!   follows none any more, so whichever it is has acknowledged the write as a replica.
//! - **A replica is killed, or links are cut.** The source stays, and its writes with it.
//!
//! What was answered with a smaller reply of `WAIT` may be lost or not. With `--without-wait` it
//! counts as acknowledged: then some must be lost, which shows that loss is seen.

mod connection;
mod fault;
mod fleet;
mod settled;
mod stored;
mod told;
mod writer;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use self::fault::{Death, Fault, KINDS};
use self::fleet::Fleet;
use self::settled::Offsets;
use self::told::Told;
use self::writer::{Common, Writer};
use super::ci;
use super::place::Place;

/// Clients that write at once.
const CLIENTS: usize = 6;
/// Elements of a list, above which it is removed between two rounds.
const LIST_MAX: usize = 1000;
/// Lines about one round that are printed, at most.
const LINES_MAX: usize = 10;
/// Rounds between two lines.
const LINE_EVERY: u32 = 10;

#[derive(Debug, Args)]
pub(crate) struct Failovers {
    /// The program `farcore` [default: it is built]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Rounds, each with one fault
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Chooses faults, writes and moments [default: drawn, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Count writes as acknowledged without WAIT: some must be lost
    #[arg(long)]
    without_wait: bool,
}

/// What was seen in all rounds so far.
#[derive(Debug, Default)]
struct Counts {
    lost: usize,
    wrong: usize,
    diverged: usize,
    /// By the fault, how long each round took.
    rounds: [Vec<Duration>; KINDS],
    /// Of sources that died until another one was promoted.
    deaths: Vec<Death>,
}

/// The least, the middle one and the largest of some times, in seconds.
fn spread(times: &[Duration]) -> String {
    let mut times: Vec<_> = times.iter().map(Duration::as_secs_f64).collect();
    times.sort_by(f64::total_cmp);
    match (times.first(), times.get(times.len() / 2), times.last()) {
        (Some(least), Some(middle), Some(most)) => {
            format!("{least:.1} to {most:.1} s, median {middle:.1} s")
        }
        _ => "none".to_owned(),
    }
}

impl Counts {
    fn print(&self) {
        for (fault, rounds) in Fault::ALL.iter().zip(&self.rounds) {
            println!("{fault}: {} rounds, {}", rounds.len(), spread(rounds));
        }
        let times: Vec<_> = self.deaths.iter().map(|death| death.took).collect();
        let apart = self.deaths.iter().filter(|death| death.apart > 0).count();
        println!("promotions: {}, {}", times.len(), spread(&times));
        println!("one replica was ahead of the other in {apart} of them");
    }
}

/// A run.
#[derive(Debug)]
struct Run {
    fleet: Fleet,
    random: SmallRng,
    source: usize,
    told: Vec<Told>,
    counts: Counts,
}

impl Run {
    /// A round: writes, a fault, and what became of both.
    fn round(&mut self, round: u32, without_wait: bool) -> Result<()> {
        let began = Instant::now();
        let fault = Fault::draw(&mut self.random);
        let needed = if without_wait { 0 } else { fault.needed() };
        self.write_beside(fault, needed)
            .with_context(|| format!("round {round}, {fault}"))?;
        self.source = settled::settle(&mut self.fleet, Offsets::Equal)
            .with_context(|| format!("round {round}, {fault}, without writes"))?;
        let found = self.judge()?;
        for line in found.iter().take(LINES_MAX) {
            println!("round {round}, {fault}: {line}");
        }
        if found.len() > LINES_MAX {
            println!(
                "round {round}, {fault}: and {} more",
                found.len() - LINES_MAX
            );
        }
        let place = Fault::ALL.iter().position(|one| *one == fault);
        self.counts.rounds[place.unwrap_or_default()].push(began.elapsed());
        Ok(())
    }

    /// Has clients write, and a fault happen; returns once all is settled.
    fn write_beside(&mut self, fault: Fault, needed: u64) -> Result<()> {
        let sentinels = self.fleet.sentinels.iter();
        let common = Common {
            sentinels: sentinels.map(|sentinel| sentinel.port).collect(),
            needed,
            ends: AtomicBool::new(false),
        };
        let told = std::mem::take(&mut self.told);
        let (told, happened) = thread::scope(|scope| {
            let mut writers = Vec::new();
            for (client, told) in told.into_iter().enumerate() {
                let writer = Writer::new(&common, client, told, self.random.random());
                writers.push(scope.spawn(move || writer.run()));
            }
            let happened = fault
                .perform(&mut self.fleet, self.source, &mut self.random)
                .and_then(|death| settled::settle(&mut self.fleet, Offsets::Any).map(|_| death));
            common.ends.store(true, Ordering::Relaxed);
            let told = writers.into_iter().map(|writer| writer.join().ok());
            (told.collect::<Option<Vec<_>>>(), happened)
        });
        self.told = told.context("a client panicked")?;
        self.counts.deaths.extend(happened?);
        Ok(())
    }

    /// Compares servers with what clients were told and with each other; returns what does not
    /// hold, a line each.
    fn judge(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut source = self.fleet.servers[self.source].connect()?;
        let stored = stored::read_all(&mut source)?;
        let mut differing = 0;
        for (place, server) in self.fleet.servers.iter().enumerate() {
            let differences =
                stored::differences(&stored, &stored::read_all(&mut server.connect()?)?);
            differing += differences.len();
            let name = |line: String| format!("servers {} and {place} differ: {line}", self.source);
            lines.extend(differences.into_iter().map(name));
        }
        self.counts.diverged += usize::from(differing > 0);
        for (client, told) in self.told.iter_mut().enumerate() {
            let seen = stored::see(&mut source, client)?;
            let faults = told.judge(&seen);
            self.counts.lost += faults.lost.len();
            self.counts.wrong += faults.wrong.len();
            let all = faults.lost.into_iter().chain(faults.wrong);
            lines.extend(all.map(|line| format!("client {client}: {line}")));
            told.adopt(&seen);
            if seen.list.len() > LIST_MAX {
                source.ask(&["DEL", &writer::key(client, "list")])?;
                told.forget_list();
            }
        }
        Ok(lines)
    }

    fn acknowledged(&self) -> u64 {
        self.told.iter().map(|told| told.acknowledged).sum()
    }
}

pub(super) fn perform(place: &Place, failovers: &Failovers) -> Result<()> {
    let binary = ci::binary(failovers.binary.as_deref())?;
    let seed = failovers
        .seed
        .unwrap_or_else(|| rand::random::<u32>().into());
    let folder = place.at(&format!("failovers-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    println!("--seed {seed}; logs in {}", folder.display());
    let mut run = Run {
        fleet: Fleet::start(&binary, &folder)?,
        random: SmallRng::seed_from_u64(seed),
        source: 0,
        told: vec![Told::new(); CLIENTS],
        counts: Counts::default(),
    };
    let at = || format!("--seed {seed}; logs are in {}", folder.display());
    let outcome = run_all(&mut run, failovers);
    run.counts.print();
    let (acknowledged, counts) = (run.acknowledged(), &run.counts);
    println!(
        "{acknowledged} acknowledged writes: {} lost, {} wrong; servers differed after {} rounds",
        counts.lost, counts.wrong, counts.diverged
    );
    outcome.with_context(at)?;
    if counts.lost + counts.wrong + counts.diverged > 0 {
        bail!("writes are lost, or servers differ: {}", at());
    }
    drop(run);
    fs::remove_dir_all(&folder)?;
    ensure!(
        !failovers.without_wait,
        "without WAIT nothing is lost: this proves nothing"
    );
    Ok(())
}

/// All rounds.
fn run_all(run: &mut Run, failovers: &Failovers) -> Result<()> {
    stored::fill(&mut run.fleet.servers[0].connect()?)?;
    run.source = settled::settle(&mut run.fleet, Offsets::Equal)?;
    for round in 1..=failovers.rounds {
        run.round(round, failovers.without_wait)?;
        if round % LINE_EVERY == 0 {
            let (acknowledged, counts) = (run.acknowledged(), &run.counts);
            println!(
                "round {round}: {acknowledged} acknowledged, {} lost, {} wrong, {} differed",
                counts.lost, counts.wrong, counts.diverged
            );
        }
    }
    Ok(())
}
