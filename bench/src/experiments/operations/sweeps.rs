//! The parts of `operations` that go over all keys: scans and exports. Each round measures all
//! figures of its part, one after the other.
//!
//! I1: the keys that a scan or an export returns are counted, and so is each record that is not one
//!     of the run's. A record that an export cannot read is an error, neither wrong nor missing.
//! I2: an engine that ends takes no figures and no foreign records of earlier scans along.

use anyhow::Context;
use farcore::{
    Answer, Config, Core, Cursor, Engine, Entry, Error, ExportOptions, LinkModel, Operation,
    ScanOptions,
};
use farcore_command::stop;
use farcore_tuning::Clock;

use super::report::{Row, Run, median};
use super::settings::{Part, Settings};
use crate::engines::Farcore;
use crate::phase::ROUNDS;
use crate::plan::{Plan, Scenario};
use crate::record::{Generator, KEY_BYTES, Scratch, Shape};

/// Least speed of a scan of local keys without values, in million keys a second and core.
const SCAN_MKEYS_MIN: f64 = 10.0;
/// Least share of the link that an export takes.
const EXPORT_RATIO_MIN: f64 = 0.6;
/// The kind of a record that an export could not read.
const UNREADABLE: &str = "Unreadable";
/// Puts of one call while keys are loaded.
const LOAD_BATCH: u64 = 256;

pub(super) fn open(plan: &Plan, change: impl FnOnce(&mut Config)) -> anyhow::Result<Engine> {
    let mut config = Farcore::config(plan)?;
    change(&mut config);
    Engine::open(config).context("the engine could not be opened")
}

/// Runs a job on the core at a position to its end.
pub(super) fn on_core<T: Send + 'static, F: Future<Output = farcore::Result<T>> + 'static>(
    engine: &Engine,
    position: usize,
    job: impl FnOnce(Core) -> F + Send + 'static,
) -> anyhow::Result<T> {
    Ok(engine.run_on_core(position, job)?.join()??)
}

/// Writes all keys, each core its part.
fn load(engine: &Engine, plan: &Plan, value_bytes: usize) -> anyhow::Result<()> {
    let (keys, seed) = (plan.keys_per_core, plan.seed);
    let mut tasks = Vec::new();
    for (position, thread) in (0..plan.cores.len()).zip(0_u64..) {
        let job = move |core: Core| load_part(core, thread * keys, keys, (seed, value_bytes));
        tasks.push(engine.run_on_core(position, job)?);
    }
    for task in tasks {
        task.join()??;
    }
    Ok(())
}

async fn load_part(
    mut core: Core,
    first: u64,
    keys: u64,
    (seed, bytes): (u64, usize),
) -> farcore::Result<()> {
    let generator = Generator::new(seed);
    let mut scratch = Scratch::default();
    let mut from = 0;
    while from < keys {
        let until = keys.min(from + LOAD_BATCH);
        let mut records = Vec::new();
        for own in from..until {
            let word = generator.key(first + own, &mut scratch.key);
            let shape = Shape { nonce: own, bytes };
            let value = generator.fill(word, shape, &mut scratch.value);
            records.push((scratch.key, value.to_vec()));
        }
        let puts = records
            .iter()
            .map(|(key, value)| Operation::Put { key, value });
        let mut failed = None;
        core.many(puts, |_, answer| {
            if let Answer::Failed(error) = answer {
                failed = Some(error.clone());
            }
        })
        .await?;
        if let Some(error) = failed {
            return Err(error);
        }
        core.yield_now().await;
        from = until;
    }
    Ok(())
}

/// Whether the key of an entry is one of a run's, and its value too if the entry has one.
fn is_record(generator: &Generator, bytes: usize, entry: &Entry<'_>) -> bool {
    let Some(first) = entry.key.first_chunk() else {
        return false;
    };
    let word = u64::from_le_bytes(*first);
    let mut key = [0; KEY_BYTES];
    Generator::fill_key(word, &mut key);
    let is_value = |value| generator.is_any(word, bytes, value);
    entry.key == key && entry.length == bytes && entry.value.is_none_or(is_value)
}

fn value_bytes(plan: &Plan) -> usize {
    match &plan.scenario {
        Scenario::Operations(settings) => settings.value_bytes,
        _ => 0,
    }
}

/// The shard in which a cursor is.
fn shard_of(cursor: Cursor) -> u16 {
    let [_, _, _, _, low, high, ..] = cursor.to_bytes();
    u16::from_le_bytes([low, high])
}

/// Where the scan of a shard begins, from any cursor of the engine.
fn start_of(cursor: Cursor, shard: u16) -> Cursor {
    let mut bytes = cursor.to_bytes();
    bytes[4..6].copy_from_slice(&shard.to_le_bytes());
    bytes[8..].fill(0);
    Cursor::from_bytes(bytes)
}

/// What a scan returned.
#[derive(Debug, Default)]
struct Scanned {
    keys: u64,
    seconds: f64,
    /// Records that are not of the run.
    foreign: u64,
    /// Why it ended early.
    ended: Option<Error>,
}

impl Scanned {
    /// Adds the foreign records to a run; returns keys and seconds of a scan that came to its end.
    fn judge(self, run: &mut Run) -> farcore::Result<(u64, f64)> {
        run.faults.wrong_values += self.foreign;
        match self.ended {
            None => Ok((self.keys, self.seconds)),
            Some(error) => Err(error),
        }
    }
}

/// Scans from a cursor on, to the end or to that of the cursor's shard.
async fn scan_keys(
    mut core: Core,
    from: Cursor,
    is_shard: bool,
    generator: Generator,
    bytes: usize,
) -> farcore::Result<Scanned> {
    let clock = Clock::new();
    let start_ns = clock.now_ns();
    let mut scanned = Scanned::default();
    let mut next = Some(from);
    while let Some(cursor) = next {
        let page = match core.scan(cursor, ScanOptions::default()).await {
            Ok(page) => page,
            Err(error) => {
                scanned.ended = Some(error);
                break;
            }
        };
        for entry in page.entries() {
            scanned.keys += 1;
            scanned.foreign += u64::from(!is_record(&generator, bytes, &entry));
        }
        let is_same = |next: &Cursor| !is_shard || shard_of(*next) == shard_of(from);
        next = page.next().filter(is_same);
    }
    scanned.seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
    Ok(scanned)
}

/// The part `scan`.
pub(super) fn scan(plan: &Plan) -> anyhow::Result<Run> {
    let engine = open(plan, |_| {})?;
    let bytes = value_bytes(plan);
    load(&engine, plan, bytes)?;
    let one = ScanOptions {
        entries: 1,
        ..ScanOptions::default()
    };
    let any = on_core(&engine, 0, move |mut core| async move {
        Ok(core.scan(Cursor::START, one).await?.next())
    })?;
    let any = any.context("there are too few keys for a scan: raise --scan-keys")?;
    let mut run = Run::of(Part::Scan);
    let mut rates = Rates::default();
    let end = scan_rounds(&engine, plan, any, &mut run, &mut rates);
    engine.close();
    let row = |name: &str, figures, figure_min| {
        Some(Row {
            name: name.to_owned(),
            figure: median(figures)?,
            unit: "Mkeys/s".to_owned(),
            figure_min,
            ..Row::default()
        })
    };
    let each = "scan without values, each core its shard, per core";
    let all = "scan without values, one client, all shards";
    run.rows.extend(row(each, rates.own, Some(SCAN_MKEYS_MIN)));
    run.rows.extend(row(all, rates.whole, None));
    run.faults.end(end);
    Ok(run)
}

/// Million keys a second of each round.
#[derive(Debug, Default)]
struct Rates {
    /// Each core its shard, per core.
    own: Vec<f64>,
    /// One client, all shards.
    whole: Vec<f64>,
}

/// All rounds of scans. `any` is a cursor of the engine.
fn scan_rounds(
    engine: &Engine,
    plan: &Plan,
    any: Cursor,
    run: &mut Run,
    rates: &mut Rates,
) -> anyhow::Result<()> {
    let bytes = value_bytes(plan);
    let generator = Generator::new(plan.seed);
    for _ in 0..ROUNDS {
        if stop::is_requested() {
            run.faults.partial = true;
            break;
        }
        let mut tasks = Vec::new();
        for (position, shard) in (0..plan.cores.len()).zip(0..) {
            let from = start_of(any, shard);
            tasks.push(engine.run_on_core(position, move |core| {
                scan_keys(core, from, true, generator, bytes)
            })?);
        }
        let cores = tasks.len() as f64;
        // All are judged before the first error ends the rounds.
        let judged: Vec<anyhow::Result<(u64, f64)>> = tasks
            .into_iter()
            .map(|task| Ok(task.join()??.judge(run)?))
            .collect();
        let mut rate = 0.0;
        for scanned in judged {
            let (keys, seconds) = scanned?;
            rate += keys as f64 / seconds / 1e6 / cores;
        }
        rates.own.push(rate);
        let all = on_core(engine, 0, move |core| {
            scan_keys(core, Cursor::START, false, generator, bytes)
        })?;
        let (keys, seconds) = all.judge(run)?;
        rates.whole.push(keys as f64 / seconds / 1e6);
        run.faults.wrong_values += keys.abs_diff(plan.keys());
    }
    Ok(())
}

/// The part `export`.
pub(super) fn export(plan: &Plan, settings: &Settings) -> anyhow::Result<Run> {
    let link = settings.link_bytes_per_second;
    let engine = open(plan, |config| {
        config.link = LinkModel {
            latency_ns: plan.far_latency_ns,
            bandwidth_bytes_per_second: Some(link),
            ..LinkModel::default()
        };
    })?;
    let bytes = settings.value_bytes;
    load(&engine, plan, bytes)?;
    let flushed = engine.flush();
    flushed.context("the keys could not be written to far memory")?;
    let mut run = Run::of(Part::Export);
    let mut figures = Exports::default();
    let end = export_rounds(&engine, plan, bytes, &mut run, &mut figures);
    engine.close();
    let row = |name: &str, figures: Vec<f64>, ratio_min| {
        let figure = median(figures)?;
        Some(Row {
            name: name.to_owned(),
            figure,
            unit: "MB/s".to_owned(),
            beside: Some(format!("link of {} Gb/s", link as f64 * 8.0 / 1e9)),
            ratio: Some(figure * 1e6 / link as f64),
            ratio_min,
            figure_min: None,
        })
    };
    let payload = row(
        "export, keys and values",
        figures.payloads,
        Some(EXPORT_RATIO_MIN),
    );
    let read = row("export, all that is read", figures.reads, None);
    run.rows = payload.into_iter().chain(read).collect();
    run.faults.end(end);
    Ok(run)
}

/// Megabytes a second of each round.
#[derive(Debug, Default)]
struct Exports {
    /// Keys and values that crossed the link.
    payloads: Vec<f64>,
    /// All that did.
    reads: Vec<f64>,
}

/// All rounds of exports.
fn export_rounds(
    engine: &Engine,
    plan: &Plan,
    bytes: usize,
    run: &mut Run,
    figures: &mut Exports,
) -> anyhow::Result<()> {
    let generator = Generator::new(plan.seed);
    for _ in 0..ROUNDS {
        if stop::is_requested() {
            run.faults.partial = true;
            break;
        }
        let before = engine.stats().total.far_read_bytes;
        let clock = Clock::new();
        let start_ns = clock.now_ns();
        let (summary, payload, foreign) = on_core(engine, 0, move |mut core| async move {
            let (mut payload, mut foreign) = (0, 0);
            let summary = core.export(ExportOptions::default(), |entry| {
                payload += (entry.key.len() + entry.value.map_or(0, <[u8]>::len)) as u64;
                foreign += u64::from(!is_record(&generator, bytes, &entry));
            });
            let summary = summary.await;
            Ok((summary, payload, foreign))
        })?;
        let seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
        let read = engine.stats().total.far_read_bytes - before;
        run.faults.wrong_values += foreign;
        let summary = summary?;
        // A record that is lost in far memory is an error, and not missing.
        let entries = summary.entries + summary.unreadable;
        run.faults.wrong_values += entries.abs_diff(plan.keys());
        if summary.unreadable > 0 {
            *run.faults.errors.entry(UNREADABLE.to_owned()).or_default() += summary.unreadable;
        }
        // What was local did not cross the link.
        figures
            .payloads
            .push(payload.min(read) as f64 / seconds / 1e6);
        figures.reads.push(read as f64 / seconds / 1e6);
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::plan::tests::plan_of;

    /// A small plan of a part, for one core.
    pub(in crate::experiments::operations) fn plan(part: Part) -> Plan {
        let settings = Settings {
            part,
            value_bytes: 8,
            link_bytes_per_second: 1 << 30,
            long_bytes: 1 << 20,
        };
        let mut plan = plan_of(Scenario::Operations(Box::new(settings)));
        plan.cores.truncate(1);
        plan.prefault = false;
        plan
    }

    #[test]
    fn an_engine_that_ends_takes_no_wrong_value_along() {
        let plan = plan(Part::Scan);
        let engine = open(&plan, |_| {}).unwrap();
        engine.close();
        let wrong = |part| {
            let mut run = Run::of(part);
            run.faults.wrong_values = 3;
            run
        };
        let (mut scan, mut rates) = (wrong(Part::Scan), Rates::default());
        let end = scan_rounds(&engine, &plan, Cursor::START, &mut scan, &mut rates);
        scan.faults.end(end);
        let (mut export, mut figures) = (wrong(Part::Export), Exports::default());
        let end = export_rounds(&engine, &plan, 8, &mut export, &mut figures);
        export.faults.end(end);
        for Run { faults, .. } in [scan, export] {
            assert_eq!(faults.wrong_values, 3);
            assert!(faults.partial && faults.lost.is_some(), "{faults:?}");
        }
    }

    #[test]
    fn foreign_records_of_a_scan_that_fails_count() {
        let mut run = Run::of(Part::Scan);
        let scanned = |ended| Scanned {
            keys: 5,
            seconds: 1.0,
            foreign: 2,
            ended,
        };
        assert_eq!(scanned(None).judge(&mut run), Ok((5, 1.0)));
        assert!(scanned(Some(Error::Closed)).judge(&mut run).is_err());
        assert_eq!(run.faults.wrong_values, 4);
    }
}
