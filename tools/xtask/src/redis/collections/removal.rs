//! How long another client waits while a long collection is removed.
//!
//! The other client reads a short key, one request at a time. Its latencies while a collection is
//! removed are compared with those just before, for as long a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::super::place::Place;
use super::super::process::Process;
use super::super::server::Server;
use super::super::speed::figures::median;
use super::super::speed::skewed::on_core;
use super::super::speed::{CLIENT_CORE, Contender};
use super::super::touched::await_touched;
use super::fill::{COLLECTIONS, Connection};

/// How long others are watched before and from the removal on.
const WATCHED: Duration = Duration::from_secs(2);

/// How a collection ends.
#[derive(Clone, Copy, Debug)]
enum Way {
    Deleted,
    Overwritten,
    Expired,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Deleted, "DEL"),
    (Way::Overwritten, "SET"),
    (Way::Expired, "PEXPIRE"),
];

/// The phases of a reader.
const BEFORE: u64 = 0;
const DURING: u64 = 1;
const END: u64 = 2;

/// Latencies of the two phases, in nanoseconds.
type Latencies = [Vec<u64>; 2];

pub(super) fn perform(
    place: &Place,
    contenders: &[Contender],
    (elements, rounds): (u32, u32),
) -> Result<()> {
    println!("p99 and longest wait of another client's GET, in us, before and during");
    for contender in contenders {
        let log = place.log(&format!("removal-{}", contender.name))?;
        let process = Process::start(&contender.command, Some(&contender.cores), &log)?;
        for (way, name) in WAYS {
            for (key, add) in COLLECTIONS {
                let mut seen = Vec::new();
                for _ in 0..rounds {
                    let mut connection = Connection::open(process.server())?;
                    await_touched(|| connection.memory_info())?;
                    connection.add((key, add), elements)?;
                    seen.push(watch(process.server(), &mut connection, (way, key))?);
                }
                print_seen((contender.name, name, key), &mut seen);
            }
        }
    }
    Ok(())
}

fn print_seen((server, way, key): (&str, &str, &str), seen: &mut [Latencies]) {
    for latencies in seen.iter_mut().flatten() {
        latencies.sort_unstable();
    }
    let at = |phase: usize, share: f64| {
        median(
            seen.iter()
                .map(|latencies| share_of(&latencies[phase], share) / 1e3),
        )
    };
    println!(
        "{server:<8} {way:<8} {key:<5} p99 {:.0} -> {:.0}, ratio {:.2}; longest {:.0} -> {:.0}",
        at(0, 0.99),
        at(1, 0.99),
        at(1, 0.99) / at(0, 0.99),
        at(0, 1.0),
        at(1, 1.0)
    );
}

/// The latency that a share of sorted ones are no longer than.
fn share_of(sorted: &[u64], share: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It is below the length.
    let place = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted
        .get(place)
        .map_or(f64::NAN, |&nanoseconds| nanoseconds as f64)
}

/// Removes a collection while another client reads.
fn watch(
    server: &Server,
    connection: &mut Connection,
    (way, key): (Way, &str),
) -> Result<Latencies> {
    let phase = AtomicU64::new(BEFORE);
    thread::scope(|scope| {
        let reader = scope.spawn(|| on_core(CLIENT_CORE, || read(server, &phase)));
        thread::sleep(WATCHED);
        phase.store(DURING, Ordering::Relaxed);
        let removed = remove(connection, (way, key));
        thread::sleep(WATCHED);
        phase.store(END, Ordering::Relaxed);
        let latencies = reader.join().map_err(|_| anyhow!("the reader panicked"))?;
        if matches!(way, Way::Overwritten) {
            connection.call(&[b"DEL", key.as_bytes()])?;
        }
        removed?;
        latencies
    })
}

fn remove(connection: &mut Connection, (way, key): (Way, &str)) -> Result<()> {
    let key = key.as_bytes();
    match way {
        Way::Deleted => connection.call(&[b"DEL", key])?,
        Way::Overwritten => connection.call(&[b"SET", key, b"short"])?,
        Way::Expired => connection.call(&[b"PEXPIRE", key, b"10"])?,
    };
    Ok(())
}

fn read(server: &Server, phase: &AtomicU64) -> Result<Latencies> {
    let mut connection = Connection::open(server)?;
    connection.call(&[b"SET", b"other", b"value"])?;
    let mut latencies = [Vec::new(), Vec::new()];
    loop {
        let start = Instant::now();
        let now = phase.load(Ordering::Relaxed);
        connection.call(&[b"GET", b"other"])?;
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match now {
            BEFORE => latencies[0].push(nanoseconds),
            DURING => latencies[1].push(nanoseconds),
            _ => return Ok(latencies),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_latencies_is_found() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert!((share_of(&sorted, 0.99) - 100.0).abs() < 1e-9);
        assert!((share_of(&sorted, 0.5) - 51.0).abs() < 1e-9);
        assert!((share_of(&sorted, 1.0) - 100.0).abs() < 1e-9);
        assert!(share_of(&[], 0.5).is_nan());
    }
}
