//! What goes wrong in a round.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::fleet::{self, DOWN_AFTER, Fleet, Server};
use super::settled::wait_for;

/// Time in which what was sent to a replica is applied there.
const ARRIVAL: Duration = Duration::from_millis(100);
/// How many kinds of faults there are.
pub(super) const KINDS: usize = 5;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Links of replicas are cut, some times one after the other.
    Cut,
    /// A replica is killed and started again, and perhaps cut off while it loads.
    ReplicaKilled,
    /// The source is killed, and started again once another server was promoted.
    SourceKilled,
    /// The source is stopped until another server was promoted and the third follows that.
    SourceStopped,
    /// The source is stopped, and goes on at any moment of a failover, or before.
    SourceHeld,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "links cut",
            Self::ReplicaKilled => "replica killed",
            Self::SourceKilled => "source killed",
            Self::SourceStopped => "source stopped",
            Self::SourceHeld => "source held",
        })
    }
}

impl Fault {
    /// All of them.
    pub(super) const ALL: [Self; KINDS] = [
        Self::Cut,
        Self::ReplicaKilled,
        Self::SourceKilled,
        Self::SourceStopped,
        Self::SourceHeld,
    ];

    /// Draws one; the death of a source comes most often.
    pub(super) fn draw(random: &mut SmallRng) -> Self {
        match random.random_range(0..20) {
            0..4 => Self::Cut,
            4..8 => Self::ReplicaKilled,
            8..15 => Self::SourceKilled,
            15..18 => Self::SourceStopped,
            _ => Self::SourceHeld,
        }
    }

    /// Replicas that must acknowledge a write so that the fault does not lose it.
    pub(super) fn needed(self) -> u64 {
        match self {
            // The third server may follow the old source when that goes on, and acknowledge what
            // the promoted server does not get.
            Self::SourceHeld => 2,
            _ => 1,
        }
    }

    /// Has it happen while clients write. Returns what was seen of the death of a source.
    pub(super) fn perform(
        self,
        fleet: &mut Fleet,
        source: usize,
        random: &mut SmallRng,
    ) -> Result<Option<Death>> {
        pause(random, 100, 500);
        match self {
            Self::Cut => {
                for _ in 0..random.random_range(1..=4) {
                    cut(fleet, source, random)?;
                    pause(random, 0, 400);
                }
            }
            Self::ReplicaKilled => kill_replica(fleet, source, random)?,
            Self::SourceKilled => return kill_source(fleet, source, random).map(Some),
            Self::SourceStopped => return stop_source(fleet, source, random).map(Some),
            Self::SourceHeld => {
                cut_before_death(fleet, source, random)?;
                fleet.servers[source].stop()?;
                // From well before the Sentinels see it to well after the failover.
                let most = 3 * u64::try_from(DOWN_AFTER.as_millis())?;
                pause(random, 300, most);
                fleet.servers[source].resume()?;
            }
        }
        Ok(None)
    }
}

/// What was seen of the death of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    /// Time until all Sentinels named another source.
    pub(super) took: Duration,
    /// Bytes of the stream that one replica had and the other one had not.
    pub(super) apart: u64,
}

/// Sleeps for a time between two numbers of milliseconds.
fn pause(random: &mut SmallRng, least: u64, most: u64) {
    thread::sleep(Duration::from_millis(random.random_range(least..=most)));
}

/// The `--cores` that a server is started with.
fn cores(random: &mut SmallRng) -> &'static str {
    ["0", "1", "0-1"][random.random_range(0..3)]
}

/// Cuts the links at the source, or that of one replica from its side.
fn cut(fleet: &Fleet, source: usize, random: &mut SmallRng) -> Result<()> {
    let (place, kind) = match random.random_range(0..3) {
        0 => (other(source, random), "master"),
        _ => (source, "replica"),
    };
    fleet.servers[place]
        .connect()?
        .ask(&["CLIENT", "KILL", "TYPE", kind])?;
    Ok(())
}

/// One of the servers that are not the source.
fn other(source: usize, random: &mut SmallRng) -> usize {
    (source + random.random_range(1..3)) % 3
}

fn kill_replica(fleet: &mut Fleet, source: usize, random: &mut SmallRng) -> Result<()> {
    let victim = other(source, random);
    // At times once more, amid the load.
    for _ in 0..random.random_range(1..=2) {
        fleet.servers[victim].kill();
        pause(random, 0, 600);
        fleet.servers[victim].start(cores(random))?;
        pause(random, 0, 400);
    }
    if random.random_range(0..2) == 0 {
        cut(fleet, source, random)?;
    }
    Ok(())
}

/// Often cuts links a moment before the source dies, so that replicas have not got all, or one has
/// got more than the other: then that one must be promoted.
fn cut_before_death(fleet: &Fleet, source: usize, random: &mut SmallRng) -> Result<()> {
    if random.random_range(0..4) > 0 {
        cut(fleet, source, random)?;
        pause(random, 0, 250);
    }
    Ok(())
}

fn kill_source(fleet: &mut Fleet, source: usize, random: &mut SmallRng) -> Result<Death> {
    cut_before_death(fleet, source, random)?;
    fleet.servers[source].kill();
    let death = await_promotion(fleet, source)?;
    pause(random, 0, 600);
    fleet.servers[source].start(cores(random))?;
    Ok(death)
}

fn stop_source(fleet: &mut Fleet, source: usize, random: &mut SmallRng) -> Result<Death> {
    cut_before_death(fleet, source, random)?;
    fleet.servers[source].stop()?;
    let death = await_promotion(fleet, source)?;
    let promoted = fleet::source_port(&mut fleet.sentinels[0].connect()?)?;
    for server in others(fleet, source).filter(|server| server.port != promoted) {
        wait_for("the third server follows the promoted one", || {
            let follows = server.connect()?.info()?.number("master_port");
            ensure!(follows == u64::from(promoted), "it follows port {follows}");
            Ok(())
        })?;
    }
    pause(random, 0, 600);
    fleet.servers[source].resume()?;
    Ok(death)
}

/// The servers that are not the source.
fn others(fleet: &Fleet, source: usize) -> impl Iterator<Item = &Server> {
    let servers = fleet.servers.iter().enumerate();
    servers.filter_map(move |(place, server)| (place != source).then_some(server))
}

/// Waits until all Sentinels name another source.
fn await_promotion(fleet: &Fleet, source: usize) -> Result<Death> {
    let (began, old) = (Instant::now(), fleet.servers[source].port);
    // What is on its way to replicas arrives; none is promoted as soon.
    thread::sleep(ARRIVAL);
    let mut offsets = Vec::new();
    for server in others(fleet, source) {
        offsets.push(server.connect()?.info()?.number("slave_repl_offset"));
    }
    wait_for("a promotion", || {
        for sentinel in &fleet.sentinels {
            let port = fleet::source_port(&mut sentinel.connect()?)?;
            ensure!(port != old, "a Sentinel names the old source, port {old}");
        }
        Ok(())
    })?;
    Ok(Death {
        took: began.elapsed(),
        apart: offsets[0].abs_diff(offsets[1]),
    })
}
