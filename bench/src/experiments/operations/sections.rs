//! The part `sections` of `operations`: 16 clients that add to two counters of two shards under
//! sections, a given number of times a second together, while others read near keys. Each round
//! measures all rates, one after the other.
//!
//! I1: both counters are equal at each look, under a section, and in the end they say how many
//!     sections there were. What differs is counted as wrong.
//! I2: a request that ends with an error ends the run: what follows would measure something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farcore::{Answer, Core, Engine, Operation};
use farcore_command::stop;
use farcore_tuning::{Clock, Histogram, HistogramSnapshot};

use super::report::{Row, Run, median};
use super::settings::Part;
use super::sweeps::open;
use crate::plan::Plan;

/// Rounds; the first one does not count.
const ROUNDS: usize = 4;
/// Clients that take sections.
const CLIENTS: u64 = 16;
/// Sections a second, all clients together; none first, and as many as they can last.
const RATES: [Option<u64>; 4] = [Some(0), Some(1_000), Some(10_000), None];
/// Reads that are sent together, and timed.
const TOGETHER: usize = 16;
/// Times that each key is read.
const READS_A_KEY: u64 = 8;

/// What one rate showed in one round.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Reads of others, in millions a second.
    mops: f64,
    /// Time of a batch of reads, in nanoseconds.
    batches: HistogramSnapshot,
    sections_per_second: f64,
    /// Time from the call of a section to its end, in nanoseconds.
    sections: HistogramSnapshot,
    wrong: u64,
}

/// What the clients of one rate share.
#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    sections: AtomicU64,
    wrong: AtomicU64,
    took: Histogram,
    batches: Histogram,
}

fn key_of(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Two counters, of two shards where there are two.
fn counters(engine: &Engine) -> [Vec<u8>; 2] {
    [0, 1].map(|place| {
        let mut names = (0..).map(|number: u64| format!("counter:{number}").into_bytes());
        let shard = place % engine.shards();
        let is_other = |name: &Vec<u8>| place < engine.shards() || name.ends_with(b"9");
        let name = names.find(|name| engine.shard_of(name) == shard && is_other(name));
        name.unwrap_or_default()
    })
}

fn decimal(answer: Answer<'_>) -> u64 {
    let text = std::str::from_utf8(answer.value()).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Adds to both counters until the others have ended, at times that are `pause_ns` apart; never
/// with `None`.
async fn add(
    mut core: Core,
    shared: Arc<Shared>,
    names: [Vec<u8>; 2],
    (first_ns, pause_ns): (u64, Option<u64>),
) -> farcore::Result<()> {
    let clock = Clock::new();
    let start_ns = clock.now_ns();
    let mut due_ns = first_ns;
    // ORDERING: relaxed; it ends the run soon.
    while !shared.ends.load(Ordering::Relaxed) {
        let is_due = pause_ns.is_some() && clock.now_ns() - start_ns >= due_ns;
        if !is_due {
            core.yield_now().await;
            continue;
        }
        due_ns += pause_ns.unwrap_or(0);
        let began_ns = clock.now_ns();
        let sums: farcore::Result<[u64; 2]> = core
            .section(&[&names[0], &names[1]], async |core| {
                let adds = [0, 1].map(|place| Operation::increment(&names[place], 1));
                let mut sums = [0; 2];
                core.many(adds, |place, answer| sums[place] = decimal(answer))
                    .await?;
                Ok(sums)
            })
            .await?;
        let [one, other] = sums?;
        shared.took.record(clock.now_ns() - began_ns);
        // ORDERING: relaxed; read once all have ended.
        shared.sections.fetch_add(1, Ordering::Relaxed);
        shared
            .wrong
            .fetch_add(u64::from(one != other), Ordering::Relaxed);
        core.yield_now().await;
    }
    Ok(())
}

/// Reads keys of all shards; how long all took, in nanoseconds.
async fn read(mut core: Core, shared: Arc<Shared>, keys: u64) -> farcore::Result<u64> {
    let clock = Clock::new();
    let start_ns = clock.now_ns();
    let mut number = 0;
    while number < keys * READS_A_KEY {
        let names: Vec<_> = (number..)
            .take(TOGETHER)
            .map(|it| key_of(it % keys))
            .collect();
        let gets = names.iter().map(|key| Operation::Get { key });
        let mut wrong = 0;
        let began_ns = clock.now_ns();
        core.many(gets, |place, answer| {
            wrong += u64::from(answer.value() != names[place]);
        })
        .await?;
        shared.batches.record(clock.now_ns() - began_ns);
        // ORDERING: relaxed; read once all have ended.
        shared.wrong.fetch_add(wrong, Ordering::Relaxed);
        number += TOGETHER as u64;
        core.yield_now().await;
    }
    Ok(clock.now_ns() - start_ns)
}

/// Writes the keys that are read.
async fn load(mut core: Core, keys: u64) -> farcore::Result<()> {
    for number in 0..keys {
        core.put(&key_of(number), &key_of(number)).await?;
    }
    Ok(())
}

/// One rate in one round.
fn measure(engine: &Engine, keys: u64, rate: Option<u64>) -> anyhow::Result<Seen> {
    let (shared, names) = (Arc::new(Shared::default()), counters(engine));
    let before = engine.stats().total.sections;
    let clock = Clock::new();
    let start_ns = clock.now_ns();
    let pause_ns = match rate {
        None => Some(0),
        Some(0) => None,
        Some(rate) => Some(CLIENTS * 1_000_000_000 / rate),
    };
    let mut adding = Vec::new();
    for client in 0..CLIENTS {
        let (shared, names) = (Arc::clone(&shared), names.clone());
        let times = (pause_ns.unwrap_or(0) / CLIENTS * client, pause_ns);
        let position = usize::try_from(client)? % engine.shards();
        let job = move |core: Core| add(core, shared, names, times);
        adding.push(engine.run_on_core(position, job)?);
    }
    let mut reading = Vec::new();
    for position in 0..engine.shards() {
        let shared = Arc::clone(&shared);
        let job = move |core: Core| read(core, shared, keys);
        reading.push(engine.run_on_core(position, job)?);
    }
    let (mut mops, mut failed) = (0.0, None);
    for job in reading {
        match job.join()? {
            Ok(took_ns) => mops += (keys * READS_A_KEY) as f64 * 1e3 / took_ns.max(1) as f64,
            Err(error) => failed = Some(error),
        }
    }
    // ORDERING: relaxed; the jobs see it soon, and joining them orders what they have counted.
    shared.ends.store(true, Ordering::Relaxed);
    for job in adding {
        if let Err(error) = job.join()? {
            failed = Some(error);
        }
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    let took_s = (clock.now_ns() - start_ns) as f64 / 1e9;
    let sections = shared.sections.load(Ordering::Relaxed);
    let mut wrong = shared.wrong.load(Ordering::Relaxed);
    let shards = engine.shards().min(2) as u64;
    let given = engine.stats().total.sections - before;
    wrong += u64::from(given != sections * shards);
    Ok(Seen {
        mops,
        batches: shared.batches.snapshot(),
        sections_per_second: sections as f64 / took_s,
        sections: shared.took.snapshot(),
        wrong,
    })
}

/// The part `sections`.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Run> {
    let engine = open(plan, |_| {})?;
    let mut run = Run::of(Part::Sections);
    let mut rounds = Vec::new();
    let end = all_rounds(&engine, plan.keys(), &mut run, &mut rounds);
    engine.close();
    run.rows = rows(&rounds);
    run.faults.end(end);
    Ok(run)
}

fn all_rounds(
    engine: &Engine,
    keys: u64,
    run: &mut Run,
    rounds: &mut Vec<Vec<Seen>>,
) -> anyhow::Result<()> {
    super::sweeps::on_core(engine, 0, move |core| load(core, keys))?;
    for number in 0..ROUNDS {
        let mut seen = Vec::new();
        for rate in RATES {
            if stop::is_requested() {
                run.faults.partial = true;
                return Ok(());
            }
            let one = measure(engine, keys, rate)?;
            run.faults.wrong_values += one.wrong;
            seen.push(one);
        }
        if number > 0 {
            rounds.push(seen);
        }
    }
    Ok(())
}

/// The figures of each rate.
fn rows(rounds: &[Vec<Seen>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, rate) in RATES.into_iter().enumerate() {
        let name = match rate {
            Some(0) => "no sections".to_owned(),
            Some(rate) => format!("{rate} sections/s"),
            None => "all sections that 16 clients can".to_owned(),
        };
        let mut row = |name: String, unit: &str, of: &dyn Fn(&Seen) -> f64, is_compared: bool| {
            let figures = rounds.iter().map(|round| of(&round[place]));
            let Some(figure) = median(figures.collect()) else {
                return;
            };
            let ratios = rounds.iter().map(|round| of(&round[place]) / of(&round[0]));
            let is_compared = is_compared && place > 0;
            rows.push(Row {
                name,
                figure,
                unit: unit.to_owned(),
                beside: is_compared.then(|| "no sections".to_owned()),
                ratio: median(ratios.collect()).filter(|_| is_compared),
                ..Row::default()
            });
        };
        let us = |ns: u64| ns as f64 / 1e3;
        row(format!("reads, {name}"), "Mops/s", &|seen| seen.mops, true);
        let of_batch = |seen: &Seen| us(seen.batches.quantile(0.99));
        row(
            format!("p99 of {TOGETHER} reads, {name}"),
            "us",
            &of_batch,
            true,
        );
        if place > 0 {
            let reached = |seen: &Seen| seen.sections_per_second;
            row(format!("reached, {name}"), "1/s", &reached, false);
            let median_of = |seen: &Seen| us(seen.sections.quantile(0.5));
            row(format!("p50 of a section, {name}"), "us", &median_of, false);
            let late = |seen: &Seen| us(seen.sections.quantile(0.99));
            row(format!("p99 of a section, {name}"), "us", &late, false);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::operations::sweeps::tests::plan;

    #[test]
    fn every_rate_has_figures_and_the_counters_are_equal() {
        let mut plan = plan(Part::Sections);
        plan.keys_per_core = 2_000;
        let run = run(&plan).unwrap();
        assert_eq!(run.faults.wrong_values, 0);
        assert_eq!(run.rows.len(), 2 + 5 * (RATES.len() - 1), "{run:?}");
        let last = run
            .rows
            .iter()
            .find(|row| row.name.starts_with("reached, all"));
        assert!(last.unwrap().figure > 0.0, "{run:?}");
    }
}
