//! The part `long` of `operations`: long values beside plain ones of as many bytes. Each round
//! measures all figures, one after the other.
//!
//! I1: every value is compared as a whole, outside of what is timed.
//! I2: a request that ends with an error counts by its kind. Its round has no figures, and what it
//!     wrote or was to read is not compared: its contents are not known.
//! I3: an engine that ends takes no figures and no wrong values of earlier rounds along.

use anyhow::anyhow;
use farcore::{Answer, Core, Engine, Error, Operation};
use farcore_command::stop;
use farcore_tuning::Clock;

use super::report::{Row, Run, median};
use super::settings::{PLAIN_BYTES, Part, Settings};
use super::sweeps::{on_core, open};
use crate::failures::{self, ErrorCounts, Failures};
use crate::phase::ROUNDS;
use crate::plan::Plan;
use crate::record::Generator;

/// Least speed of long values, as a share of that of plain ones.
const LONG_RATIO_MIN: f64 = 0.8;
/// The key of the long value.
const LONG: &[u8] = b"long";

/// The seconds that each way takes in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Seconds {
    put: f64,
    get: f64,
    put_long: f64,
    get_long: f64,
}

/// One round.
#[derive(Debug, Default)]
struct Round {
    /// The figures, unless a request ended with an error.
    seconds: Option<Seconds>,
    /// Wrong values.
    wrong: u64,
    /// Requests that ended with an error, by kind.
    errors: ErrorCounts,
    /// A description of the first of them.
    failure: Option<String>,
    /// Why the round ended early.
    ended: Option<Error>,
}

/// The client of one round.
struct Client {
    core: Core,
    clock: Clock,
    keys: Vec<String>,
    plain_bytes: usize,
    value: Vec<u8>,
    found: Vec<u8>,
    /// Plain values whose contents are not known.
    is_unknown: Vec<bool>,
    seconds: Seconds,
    wrong: u64,
    failures: Failures,
}

impl Client {
    fn since(&self, start_ns: u64) -> f64 {
        (self.clock.now_ns() - start_ns) as f64 / 1e9
    }

    /// Puts the plain values in one call.
    async fn put(&mut self) -> farcore::Result<()> {
        let start_ns = self.clock.now_ns();
        let parts = self.keys.iter().zip(self.value.chunks(self.plain_bytes));
        let puts = parts.map(|(key, value)| Operation::Put {
            key: key.as_bytes(),
            value,
        });
        let (keys, failures) = (&self.keys, &mut self.failures);
        let (wrong, is_unknown) = (&mut self.wrong, &mut self.is_unknown);
        let judge = |place: usize, answer: Answer<'_>| match answer {
            Answer::Stored { .. } => {}
            Answer::Failed(error) => {
                failures.count(error, || format!("a put of {}", keys[place]));
                is_unknown[place] = true;
            }
            _ => *wrong += 1,
        };
        self.core.many(puts, judge).await?;
        self.seconds.put = self.since(start_ns);
        Ok(())
    }

    /// Gets the plain values in one call, and compares them.
    async fn get(&mut self) -> farcore::Result<()> {
        let bytes = self.plain_bytes;
        let start_ns = self.clock.now_ns();
        let gets = self.keys.iter().map(|key| Operation::Get {
            key: key.as_bytes(),
        });
        let (keys, failures, found) = (&self.keys, &mut self.failures, &mut self.found);
        let is_unknown = &mut self.is_unknown;
        let judge = |place: usize, answer: Answer<'_>| match answer {
            Answer::Value { value, .. } if value.len() == bytes => {
                found[place * bytes..(place + 1) * bytes].copy_from_slice(value);
            }
            Answer::Failed(error) => {
                failures.count(error, || format!("a get of {}", keys[place]));
                is_unknown[place] = true;
            }
            // What is not found differs from the value.
            _ => {}
        };
        self.core.many(gets, judge).await?;
        self.seconds.get = self.since(start_ns);
        let parts = self.found.chunks(bytes).zip(self.value.chunks(bytes));
        let wrong = parts
            .zip(&self.is_unknown)
            .filter(|((found, value), is_unknown)| !**is_unknown && found != value);
        self.wrong += wrong.count() as u64;
        Ok(())
    }

    /// Puts and gets the long value, and compares it.
    async fn long(&mut self) {
        let start_ns = self.clock.now_ns();
        if let Err(error) = self.core.put_long(LONG, &self.value).await {
            self.failures.count(&error, || "put_long".to_owned());
            return;
        }
        self.seconds.put_long = self.since(start_ns);
        self.found.fill(0);
        let start_ns = self.clock.now_ns();
        if let Err(error) = self.core.get_long(LONG, &mut self.found).await {
            self.failures.count(&error, || "get_long".to_owned());
            return;
        }
        self.seconds.get_long = self.since(start_ns);
        self.wrong += u64::from(self.found != self.value);
    }

    /// All requests of a round.
    async fn serve(&mut self) -> farcore::Result<()> {
        self.put().await?;
        self.get().await?;
        self.long().await;
        Ok(())
    }

    fn end(mut self, ended: Option<Error>) -> Round {
        let is_sound = ended.is_none() && self.failures.total() == 0;
        Round {
            seconds: is_sound.then_some(self.seconds),
            wrong: self.wrong,
            errors: self.failures.counts(),
            failure: self.failures.take_first(),
            ended,
        }
    }
}

/// One round: plain values one after the other in one call, then a long one of as many bytes.
async fn round(
    core: Core,
    generator: Generator,
    plain_bytes: usize,
    count: usize,
    nonce: u64,
) -> farcore::Result<Round> {
    let mut value = vec![0; plain_bytes * count];
    generator.fill_long(nonce, nonce, &mut value);
    let mut client = Client {
        core,
        clock: Clock::new(),
        keys: (0..count).map(|number| format!("plain:{number}")).collect(),
        plain_bytes,
        found: vec![0; value.len()],
        value,
        is_unknown: vec![false; count],
        seconds: Seconds::default(),
        wrong: 0,
        failures: Failures::default(),
    };
    let ended = client.serve().await.err();
    Ok(client.end(ended))
}

/// The part `long`.
pub(super) fn run(plan: &Plan, settings: &Settings) -> anyhow::Result<Run> {
    let engine = open(plan, |_| {})?;
    let plain = engine.value_bytes_max().min(usize::try_from(PLAIN_BYTES)?);
    let count = usize::try_from(settings.long_bytes)? / plain;
    if count < 2 {
        return Err(anyhow!(
            "--long-value is {} bytes: it must be at least {}, two plain values",
            settings.long_bytes,
            2 * plain
        ));
    }
    let mut run = Run::of(Part::Long);
    let mut figures = Vec::new();
    let end = rounds(&engine, plan.seed, (plain, count), &mut run, &mut figures);
    engine.close();
    run.rows = rows(
        &figures,
        (plain * count) as f64 / 1e6,
        settings.long_bytes >> 20,
    );
    run.faults.end(end);
    Ok(run)
}

/// All rounds: faults are added to the run, figures to `figures`. There are `count` plain values of
/// `plain` bytes.
fn rounds(
    engine: &Engine,
    seed: u64,
    (plain, count): (usize, usize),
    run: &mut Run,
    figures: &mut Vec<Seconds>,
) -> anyhow::Result<()> {
    let generator = Generator::new(seed);
    // The first round finds no keys, and its memory untouched.
    for number in 0..=ROUNDS as u64 {
        if stop::is_requested() {
            run.faults.partial = true;
            break;
        }
        let round = on_core(engine, 0, move |core| {
            round(core, generator, plain, count, number + 1)
        })?;
        run.faults.wrong_values += round.wrong;
        failures::add(&mut run.faults.errors, &round.errors);
        run.faults.complaint = run.faults.complaint.take().or(round.failure);
        figures.extend(round.seconds.filter(|_| number > 0));
        if let Some(error) = round.ended {
            return Err(error.into());
        }
    }
    Ok(())
}

/// The figures of all rounds; none without a round.
fn rows(rounds: &[Seconds], megabytes: f64, long_mib: u64) -> Vec<Row> {
    let row = |name: String, of: &dyn Fn(&Seconds) -> f64| {
        let figures = rounds.iter().map(|round| megabytes / of(round));
        Some(Row {
            name,
            figure: median(figures.collect())?,
            unit: "MB/s".to_owned(),
            ..Row::default()
        })
    };
    let (put, get) = ("put, plain values", "get, plain values");
    let long =
        |name: &str, base: &str, of: &dyn Fn(&Seconds) -> f64, plain: &dyn Fn(&Seconds) -> f64| {
            let ratios = rounds.iter().map(|round| plain(round) / of(round));
            Some(Row {
                beside: Some(base.to_owned()),
                ratio: median(ratios.collect()),
                ratio_min: Some(LONG_RATIO_MIN),
                ..row(format!("{name} of {long_mib} MiB"), of)?
            })
        };
    let all = [
        row(put.to_owned(), &|round| round.put),
        row(get.to_owned(), &|round| round.get),
        long("put_long", put, &|round| round.put_long, &|round| round.put),
        long("get_long", get, &|round| round.get_long, &|round| round.get),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::operations::sweeps::tests::plan;

    #[test]
    fn an_engine_that_ends_takes_no_wrong_value_along() {
        let engine = open(&plan(Part::Long), |_| {}).unwrap();
        engine.close();
        let mut run = Run::of(Part::Long);
        run.faults.wrong_values = 3;
        let second = Seconds {
            put: 1.0,
            get: 1.0,
            put_long: 1.0,
            get_long: 1.0,
        };
        let mut figures = vec![second];
        let end = rounds(&engine, 1, (8, 2), &mut run, &mut figures);
        run.rows = rows(&figures, 1.0, 1);
        run.faults.end(end);
        assert_eq!((run.faults.wrong_values, run.rows.len()), (3, 4));
        assert!(run.faults.partial && run.faults.lost.is_some(), "{run:?}");
    }
}
