//! One run: opens the engine and requests a trace, or puts ever new keys.
//!
//! I1: every value is checked, byte by byte: a get answers what was put under its key, or that the
//!     key is absent.
//! I2: a request that ends with an error counts by its kind, as neither a hit nor a miss. A rate
//!     counts answered requests only.
//! I3: a run that ends early keeps what it had found.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail};
use farcore::{Answer, Config, Core, Engine, Handle, Operation, Refused, WhenFull};
use farcore_command::stop;

use super::report::{Puts, Replay, Run};
use super::settings::{Part, Settings, WINDOW};
use crate::engines::Farcore;
use crate::failures::Failures;
use crate::plan::{Plan, Scenario};
use crate::progress::PhaseBar;
use crate::record::mix;
use crate::trace::made::{Made, Shape};

/// Batches, or puts, between two looks for a signal.
const SLICE: u64 = 1024;

/// Runs a plan in this process.
///
/// # Errors
/// The engine could not be opened. A run that ended later has the reason.
pub fn run(plan: &Plan) -> anyhow::Result<Run> {
    let Scenario::Cache(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    match settings.part {
        Part::Trace(shape) => replay(plan, settings, shape),
        Part::Puts {
            round,
            fitting_bytes,
        } => puts(plan, settings, round, fitting_bytes),
    }
}

/// The engine's configuration for a plan, with this far memory.
///
/// # Errors
/// As [`Farcore::config`].
pub(super) fn config(plan: &Plan, far_bytes: u64) -> anyhow::Result<Config> {
    Ok(Config {
        far_bytes,
        when_full: WhenFull::Evict,
        seed: Some(plan.seed),
        ..Farcore::config(plan)?
    })
}

fn open(plan: &Plan, far_bytes: u64) -> anyhow::Result<Engine> {
    Engine::open(config(plan, far_bytes)?).context("the engine could not be opened")
}

/// A value that names its key, so that a wrong one is noticed.
fn fill(value: &mut [u8], key: u64) {
    for (place, bytes) in value.chunks_mut(8).enumerate() {
        let word = mix(key ^ (place as u64) << 48).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// What a client has found so far.
#[derive(Debug, Default)]
struct Found {
    replay: Replay,
    wrong: u64,
    complaint: Option<String>,
    failures: Failures,
    missed: Vec<u64>,
}

impl Found {
    fn judge_get(&mut self, key: u64, answer: &Answer<'_>, expected: &mut [u8]) {
        match answer {
            Answer::Failed(error) => {
                self.failures.count(error, || format!("a get of key {key}"));
                return;
            }
            Answer::Value { value, .. } => {
                fill(expected, key);
                if *value != expected {
                    self.wrong("a get", key);
                }
            }
            Answer::Absent => {
                self.replay.misses += 1;
                self.missed.push(key);
            }
            _ => self.wrong("a get", key),
        }
        self.replay.gets += 1;
    }

    fn judge_put(&mut self, key: u64, answer: &Answer<'_>) {
        match answer {
            Answer::Stored { .. } => {}
            Answer::Failed(error) => self.failures.count(error, || format!("a put of key {key}")),
            _ => self.wrong("a put", key),
        }
    }

    #[cold]
    fn wrong(&mut self, what: &str, key: u64) {
        self.wrong += 1;
        self.complaint
            .get_or_insert_with(|| format!("{what} of key {key} was answered with a wrong value"));
    }

    fn end(mut self, run: &mut Run) {
        run.faults.wrong_values += self.wrong;
        run.faults.errors = self.failures.counts();
        run.faults.complaint = self.complaint.or_else(|| self.failures.take_first());
    }
}

/// Requests a trace of one client, a batch at a time: the gets of its keys, then the puts of those
/// that missed. Of a key that missed twice in a batch, the second request would be a hit if they
/// were sent one after the other, so it is put once and counts as one miss.
fn replay(plan: &Plan, settings: &Settings, shape: Shape) -> anyhow::Result<Run> {
    let mut run = Run::of(settings.part);
    let made = Made {
        shape,
        keys: settings.keys,
        requests: settings.requests,
        seed: plan.seed,
    };
    let engine = open(plan, plan.far_bytes)?;
    let mut handle = engine.handle()?;
    let mut found = Found::default();
    let keys = made.keys()?;
    let bar = PhaseBar::new("farcore", shape.name(), settings.requests);
    let started = Instant::now();
    let end = replay_keys(&mut handle, keys, settings.value_bytes, &mut found, &bar);
    let seconds = started.elapsed().as_secs_f64();
    bar.finish();
    let stats = engine.stats().total;
    run.replay = Some(Replay {
        seconds,
        records: stats.keys,
        evicted: stats.evicted,
        moved: stats.compaction_records_moved,
        ..found.replay
    });
    found.end(&mut run);
    run.faults.partial = matches!(end, Ok(false));
    run.faults.end(end.map(drop));
    Ok(run)
}

/// The requests of a replay. False: a signal came before the last one.
fn replay_keys(
    handle: &mut Handle,
    mut keys: impl Iterator<Item = u64>,
    value_bytes: u64,
    found: &mut Found,
    bar: &PhaseBar,
) -> anyhow::Result<bool> {
    let value_bytes = usize::try_from(value_bytes)?;
    let mut expected = vec![0; value_bytes];
    let mut values = vec![vec![0; value_bytes]; WINDOW];
    for number in 0_u64.. {
        let batch: Vec<u64> = keys.by_ref().take(WINDOW).collect();
        if batch.is_empty() {
            return Ok(true);
        }
        if number.is_multiple_of(SLICE) {
            bar.set(number * WINDOW as u64);
            if stop::is_requested() {
                return Ok(false);
            }
        }
        let names: Vec<_> = batch.iter().map(|key| key.to_le_bytes()).collect();
        let gets = names.iter().map(|key| Operation::Get { key });
        found.missed.clear();
        handle.many(gets, |place, answer| {
            found.judge_get(batch[place], &answer, &mut expected);
        })?;
        let all = found.missed.len();
        found.missed.sort_unstable();
        found.missed.dedup();
        found.replay.misses -= (all - found.missed.len()) as u64;
        put_missed(handle, found, &mut values)?;
    }
    Ok(true)
}

fn put_missed(
    handle: &mut Handle,
    found: &mut Found,
    values: &mut [Vec<u8>],
) -> farcore::Result<()> {
    let keys = std::mem::take(&mut found.missed);
    let names: Vec<_> = keys.iter().map(|key| key.to_le_bytes()).collect();
    for (value, &key) in values.iter_mut().zip(&keys) {
        fill(value, key);
    }
    let puts = names
        .iter()
        .zip(&*values)
        .map(|(key, value)| Operation::Put { key, value });
    handle.many(puts, |place, answer| found.judge_put(keys[place], &answer))?;
    found.missed = keys;
    Ok(())
}

/// Puts a second with and without eviction, in turn. A rate that a signal cut short is none.
fn puts(plan: &Plan, settings: &Settings, round: u32, fitting: u64) -> anyhow::Result<Run> {
    let mut run = Run::of(settings.part);
    let found = Arc::default();
    let measured = put_rates(plan, settings, round, fitting, &found);
    let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    found.end(&mut run);
    run.puts = measured.as_ref().ok().copied().flatten();
    run.faults.partial = matches!(measured, Ok(None));
    run.faults.end(measured.map(drop));
    Ok(run)
}

/// The rates of a round; `None` after a signal.
fn put_rates(
    plan: &Plan,
    settings: &Settings,
    round: u32,
    fitting: u64,
    found: &Arc<Mutex<Found>>,
) -> anyhow::Result<Option<Puts>> {
    let mut rates = [0.0; 2];
    // The other one first in every second round.
    let first = usize::from(!round.is_multiple_of(2));
    for place in [first, 1 - first] {
        let far = [fitting, plan.far_bytes][place];
        let (rate, evicted) = put_rate(&open(plan, far)?, plan, settings, found)?;
        let Some(rate) = rate else {
            return Ok(None);
        };
        if place == 0 && evicted > 0 {
            bail!("{evicted} records were evicted although far memory holds all of them");
        }
        if place == 1 && evicted == 0 {
            bail!("nothing was evicted: raise --requests, or lower --local or --far");
        }
        rates[place] = rate;
    }
    let [fitting_per_second, evicting_per_second] = rates;
    Ok(Some(Puts {
        fitting_per_second,
        evicting_per_second,
    }))
}

/// Puts after which local and far memory are full; the clock starts then.
pub(crate) fn puts_before(local_bytes: u64, far_bytes: u64, value_bytes: u64) -> u64 {
    let records = local_bytes.saturating_add(far_bytes) / value_bytes.max(1);
    records.saturating_mul(3) / 2
}

/// Puts a second of a job on the engine's core, which does all other work of the shard as well; and
/// the records that were evicted. A signal leaves no rate.
fn put_rate(
    engine: &Engine,
    plan: &Plan,
    settings: &Settings,
    found: &Arc<Mutex<Found>>,
) -> anyhow::Result<(Option<f64>, u64)> {
    let before = puts_before(plan.local_bytes, plan.far_bytes, settings.value_bytes);
    let requests = settings.requests;
    let value = vec![7; usize::try_from(settings.value_bytes)?];
    // Held by the job while it runs; what it has found outlives a panic there.
    let found = Arc::clone(found);
    let job = engine.run_on_core(0, async move |mut core| {
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        put_range(&mut core, 0..before, &value, &mut found)?;
        let failed_before = found.failures.total();
        let started = Instant::now();
        put_range(&mut core, before..before + requests, &value, &mut found)?;
        let seconds = started.elapsed().as_secs_f64();
        let failed = found.failures.total() - failed_before;
        farcore::Result::Ok(answered_rate(requests, failed, seconds))
    })?;
    let rate = job.join()??;
    let rate = (!stop::is_requested()).then_some(rate);
    Ok((rate, engine.stats().total.evicted))
}

/// Requests a second that were answered.
fn answered_rate(requests: u64, failed: u64, seconds: f64) -> f64 {
    requests.saturating_sub(failed) as f64 / seconds
}

/// Puts one value under each key, with a window in flight, until a signal comes.
fn put_range(
    core: &mut Core,
    keys: Range<u64>,
    value: &[u8],
    found: &mut Found,
) -> farcore::Result<()> {
    let mut next = keys.start;
    loop {
        let is_over = next >= keys.end || next % SLICE < WINDOW as u64 && stop::is_requested();
        if is_over && core.in_flight() == 0 {
            return Ok(());
        }
        while !is_over && next < keys.end && core.in_flight() < WINDOW {
            let key = next.to_le_bytes();
            match core.submit(Operation::Put { key: &key, value }, next) {
                Ok(()) => next += 1,
                Err(Refused::Full) => break,
                Err(Refused::Error(error)) => return Err(error),
            }
        }
        core.poll(|key, answer| found.judge_put(key, &answer));
    }
}

#[cfg(test)]
mod tests {
    use farcore::Error;

    use super::*;
    use crate::plan::tests::plan_of;

    #[test]
    fn a_rate_counts_answered_requests_only() {
        assert_eq!(answered_rate(10, 4, 2.0).to_bits(), 3.0_f64.to_bits());
        assert_eq!(answered_rate(10, 10, 2.0).to_bits(), 0.0_f64.to_bits());
    }

    fn with_wrong() -> Found {
        let mut found = Found::default();
        found.judge_put(5, &Answer::Absent);
        found
    }

    #[test]
    fn an_engine_that_ends_takes_no_wrong_value_along() {
        let settings = Settings {
            part: Part::Puts {
                round: 0,
                fitting_bytes: 64 << 20,
            },
            keys: 10,
            requests: 100,
            value_bytes: 1024,
        };
        let mut plan = plan_of(Scenario::Cache(Box::new(settings.clone())));
        plan.cores.truncate(1);
        plan.prefault = false;
        plan.local_bytes = 16 << 20;
        let engine = open(&plan, 64 << 20).unwrap();
        let mut handle = engine.handle().unwrap();
        engine.close();
        let bar = PhaseBar::new("farcore", "scan", 1);
        let mut found = with_wrong();
        let end = replay_keys(&mut handle, 0..100, 1024, &mut found, &bar);
        assert!(end.is_err() || found.failures.total() > 0, "{end:?}");
        assert_eq!(found.wrong, 1);

        // The second engine of a round cannot be opened.
        let found = Arc::new(Mutex::new(with_wrong()));
        let (fitting, far) = (plan.far_bytes, 0);
        plan.far_bytes = far;
        let measured = put_rates(&plan, &settings, 0, fitting, &found);
        assert!(measured.is_err(), "{measured:?}");
        let mut run = Run::of(settings.part);
        std::mem::take(&mut *found.lock().unwrap()).end(&mut run);
        run.faults.end(measured.map(drop));
        assert_eq!(run.faults.wrong_values, 1);
        let why = run.faults.lost.unwrap();
        assert!(
            run.faults.partial && why.starts_with("the engine could not be opened"),
            "{why}"
        );
    }

    #[test]
    fn an_error_is_neither_a_hit_nor_a_miss_nor_a_wrong_value() {
        let mut found = Found::default();
        let mut expected = [0; 20];
        let mut value = [0; 20];
        fill(&mut value, 3);
        let full = Error::FarFull {
            shard: None,
            used: 1,
            limit: 1,
        };
        let of = |value| Answer::Value { version: 0, value };
        found.judge_get(3, &of(&value[..]), &mut expected);
        found.judge_get(4, &of(&value[..]), &mut expected);
        found.judge_get(3, &of(&value[..19]), &mut expected);
        found.judge_get(5, &Answer::Absent, &mut expected);
        found.judge_get(6, &Answer::Failed(&full), &mut expected);
        found.judge_put(5, &Answer::Stored { version: 1 });
        found.judge_put(7, &Answer::Failed(&Error::Closed));
        assert_eq!((found.replay.gets, found.replay.misses), (4, 1));
        assert_eq!((found.wrong, &found.missed), (2, &vec![5]));
        let mut run = Run::of(Part::Trace(Shape::Scan));
        found.end(&mut run);
        let faults = run.faults;
        assert_eq!(faults.wrong_values, 2);
        assert_eq!((faults.errors["FarFull"], faults.errors["Closed"]), (1, 1));
        let said = faults.complaint.unwrap();
        assert!(said.starts_with("a get of key 4 was answered"), "{said}");
    }
}
