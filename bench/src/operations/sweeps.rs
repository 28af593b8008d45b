//! The parts of `operations` that go over all keys: scans and exports. Each round measures all
//! figures of its part, one after the other.
//!
//! I1: the keys that a scan or an export returns are counted, and so is each record that is not one
//!     of the run's. A record that an export cannot read is an error, neither wrong nor missing.

use anyhow::Context;
use farcore::{
    Answer, Config, Core, Cursor, Engine, Entry, ExportOptions, LinkModel, Operation, ScanOptions,
};
use farcore_tuning::Clock;

use super::report::{Row, Run, median};
use super::settings::{Part, Settings};
use crate::engines::Farcore;
use crate::phase::ROUNDS;
use crate::plan::{Plan, Scenario};
use crate::record::{Generator, KEY_BYTES, Scratch, Shape};
use crate::stop;

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

/// Keys that a scan returned, how long it took, and records that were foreign.
type Scanned = (u64, f64, u64);

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
    let (mut keys, mut foreign) = (0, 0);
    let mut next = Some(from);
    while let Some(cursor) = next {
        let page = core.scan(cursor, ScanOptions::default()).await?;
        for entry in page.entries() {
            keys += 1;
            foreign += u64::from(!is_record(&generator, bytes, &entry));
        }
        let is_same = |next: &Cursor| !is_shard || shard_of(*next) == shard_of(from);
        next = page.next().filter(is_same);
    }
    Ok((keys, (clock.now_ns() - start_ns) as f64 / 1e9, foreign))
}

/// The part `scan`.
pub(super) fn scan(plan: &Plan) -> anyhow::Result<Run> {
    let engine = open(plan, |_| {})?;
    let bytes = value_bytes(plan);
    load(&engine, plan, bytes)?;
    let generator = Generator::new(plan.seed);
    let one = ScanOptions {
        entries: 1,
        ..ScanOptions::default()
    };
    let any = on_core(&engine, 0, move |mut core| async move {
        Ok(core.scan(Cursor::START, one).await?.next())
    })?;
    let any = any.context("there are too few keys for a scan: raise --scan-keys")?;
    let mut run = Run::of(Part::Scan);
    let (mut own, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        if stop::is_requested() {
            run.partial = true;
            break;
        }
        let mut tasks = Vec::new();
        for (position, shard) in (0..plan.cores.len()).zip(0..) {
            let from = start_of(any, shard);
            tasks.push(engine.run_on_core(position, move |core| {
                scan_keys(core, from, true, generator, bytes)
            })?);
        }
        let mut rate = 0.0;
        let cores = tasks.len() as f64;
        for task in tasks {
            let (keys, seconds, foreign) = task.join()??;
            rate += keys as f64 / seconds / 1e6 / cores;
            run.wrong_values += foreign;
        }
        own.push(rate);
        let all = on_core(&engine, 0, move |core| {
            scan_keys(core, Cursor::START, false, generator, bytes)
        })?;
        let (keys, seconds, foreign) = all;
        whole.push(keys as f64 / seconds / 1e6);
        run.wrong_values += foreign + keys.abs_diff(plan.keys());
    }
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
    run.rows.extend(row(each, own, Some(SCAN_MKEYS_MIN)));
    run.rows.extend(row(all, whole, None));
    Ok(run)
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
    let generator = Generator::new(plan.seed);
    let mut run = Run::of(Part::Export);
    let (mut payloads, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        if stop::is_requested() {
            run.partial = true;
            break;
        }
        let before = engine.stats().total.far_read_bytes;
        let clock = Clock::new();
        let start_ns = clock.now_ns();
        let (summary, payload, foreign) = on_core(&engine, 0, move |mut core| async move {
            let (mut payload, mut foreign) = (0, 0);
            let summary = core.export(ExportOptions::default(), |entry| {
                payload += (entry.key.len() + entry.value.map_or(0, <[u8]>::len)) as u64;
                foreign += u64::from(!is_record(&generator, bytes, &entry));
            });
            let summary = summary.await?;
            Ok((summary, payload, foreign))
        })?;
        let seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
        let read = engine.stats().total.far_read_bytes - before;
        // A record that is lost in far memory is an error, and not missing.
        let entries = summary.entries + summary.unreadable;
        run.wrong_values += foreign + entries.abs_diff(plan.keys());
        if summary.unreadable > 0 {
            *run.errors.entry(UNREADABLE.to_owned()).or_default() += summary.unreadable;
        }
        // What was local did not cross the link.
        payloads.push(payload.min(read) as f64 / seconds / 1e6);
        reads.push(read as f64 / seconds / 1e6);
    }
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
    let payload = row("export, keys and values", payloads, Some(EXPORT_RATIO_MIN));
    let read = row("export, all that is read", reads, None);
    run.rows = payload.into_iter().chain(read).collect();
    Ok(run)
}
