//! The parts of `operations` that are no single requests: scans and exports of all keys, and long
//! values. Each round measures all figures of its part, one after the other.
//!
//! I1: the keys that a scan or an export returns are counted, and so is each record that is not one
//!     of the run's. Long values are compared as a whole, outside of what is timed.

use anyhow::{Context, anyhow};
use farcore::{
    Answer, Config, Core, Cursor, Engine, Entry, ExportOptions, LinkModel, Operation, ScanOptions,
};
use farcore_tuning::Clock;

use super::report::{Row, Run, median};
use super::settings::{PLAIN_BYTES, Part, Settings};
use crate::engines::Farcore;
use crate::phase::ROUNDS;
use crate::plan::{Plan, Scenario};
use crate::record::{Generator, KEY_BYTES, Scratch, Shape};
use crate::stop;

/// Least speed of a scan of local keys without values, in million keys a second and core.
const SCAN_MKEYS_MIN: f64 = 10.0;
/// Least share of the link that an export takes.
const EXPORT_RATIO_MIN: f64 = 0.6;
/// Least speed of long values, as a share of that of plain ones.
const LONG_RATIO_MIN: f64 = 0.8;
/// Puts of one call while keys are loaded.
const LOAD_BATCH: u64 = 256;

fn open(plan: &Plan, change: impl FnOnce(&mut Config)) -> anyhow::Result<Engine> {
    let mut config = Farcore::config(plan)?;
    change(&mut config);
    Engine::open(config).context("the engine could not be opened")
}

/// Runs a job on the core at a position to its end.
fn on_core<T: Send + 'static, F: Future<Output = farcore::Result<T>> + 'static>(
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
    let any = any.context("there are too few keys for a scan")?;
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
    let row = |name: &str, figures, figure_min| Row {
        name: name.to_owned(),
        figure: median(figures),
        unit: "Mkeys/s".to_owned(),
        figure_min,
        ..Row::default()
    };
    let each = "scan without values, each core its shard, per core";
    run.rows.push(row(each, own, Some(SCAN_MKEYS_MIN)));
    run.rows.push(row(
        "scan without values, one client, all shards",
        whole,
        None,
    ));
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
    engine.flush().context("flush")?;
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
        let (entries, payload, foreign) = on_core(&engine, 0, move |mut core| async move {
            let (mut payload, mut foreign) = (0, 0);
            let summary = core.export(ExportOptions::default(), |entry| {
                payload += (entry.key.len() + entry.value.map_or(0, <[u8]>::len)) as u64;
                foreign += u64::from(!is_record(&generator, bytes, &entry));
            });
            let summary = summary.await?;
            Ok((summary.entries, payload, foreign + summary.unreadable))
        })?;
        let seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
        let read = engine.stats().total.far_read_bytes - before;
        run.wrong_values += foreign + entries.abs_diff(plan.keys());
        // What was local did not cross the link.
        payloads.push(payload.min(read) as f64 / seconds / 1e6);
        reads.push(read as f64 / seconds / 1e6);
    }
    engine.close();
    let row = |name: &str, figures: Vec<f64>, ratio_min| {
        let figure = median(figures);
        Row {
            name: name.to_owned(),
            figure,
            unit: "MB/s".to_owned(),
            beside: Some(format!("link of {} Gb/s", link as f64 * 8.0 / 1e9)),
            ratio: Some(figure * 1e6 / link as f64),
            ratio_min,
            figure_min: None,
        }
    };
    let read = row("export, all that is read", reads, None);
    run.rows = vec![
        row("export, keys and values", payloads, Some(EXPORT_RATIO_MIN)),
        read,
    ];
    Ok(run)
}

/// The seconds that each way takes in one round, and wrong values.
#[derive(Clone, Copy, Debug, Default)]
struct LongRound {
    put: f64,
    get: f64,
    put_long: f64,
    get_long: f64,
    wrong: u64,
}

/// One round: plain values one after the other in one call, then a long one of as many bytes.
async fn long_round(
    mut core: Core,
    generator: Generator,
    plain_bytes: usize,
    count: usize,
    nonce: u64,
) -> farcore::Result<LongRound> {
    let clock = Clock::new();
    let mut round = LongRound::default();
    let mut value = vec![0; plain_bytes * count];
    generator.fill_long(nonce, nonce, &mut value);
    let keys: Vec<String> = (0..count).map(|number| format!("plain:{number}")).collect();
    let mut found = vec![0; value.len()];

    let start_ns = clock.now_ns();
    let parts = keys.iter().zip(value.chunks(plain_bytes));
    let puts = parts.map(|(key, value)| Operation::Put {
        key: key.as_bytes(),
        value,
    });
    let wrong = &mut round.wrong;
    core.many(puts, |_, answer| {
        *wrong += u64::from(!matches!(answer, Answer::Stored { .. }));
    })
    .await?;
    round.put = (clock.now_ns() - start_ns) as f64 / 1e9;

    let start_ns = clock.now_ns();
    let gets = keys.iter().map(|key| Operation::Get {
        key: key.as_bytes(),
    });
    let parts = &mut found;
    core.many(gets, |place, answer| {
        if let Answer::Value { value, .. } = answer
            && let Some(part) = parts.get_mut(place * plain_bytes..(place + 1) * plain_bytes)
            && value.len() == plain_bytes
        {
            part.copy_from_slice(value);
        }
    })
    .await?;
    round.get = (clock.now_ns() - start_ns) as f64 / 1e9;
    round.wrong += u64::from(found != value);

    let start_ns = clock.now_ns();
    core.put_long(b"long", &value).await?;
    round.put_long = (clock.now_ns() - start_ns) as f64 / 1e9;
    found.fill(0);
    let start_ns = clock.now_ns();
    core.get_long(b"long", &mut found).await?;
    round.get_long = (clock.now_ns() - start_ns) as f64 / 1e9;
    round.wrong += u64::from(found != value);
    Ok(round)
}

/// The part `long`.
pub(super) fn long(plan: &Plan, settings: &Settings) -> anyhow::Result<Run> {
    let engine = open(plan, |_| {})?;
    let generator = Generator::new(plan.seed);
    let plain = engine.value_bytes_max().min(usize::try_from(PLAIN_BYTES)?);
    let count = usize::try_from(settings.long_bytes)? / plain;
    if count < 2 {
        return Err(anyhow!(
            "--long-value must be at least two plain values of {plain} bytes"
        ));
    }
    let mut run = Run::of(Part::Long);
    let mut rounds = Vec::new();
    // The first round finds no keys, and its memory untouched.
    for round in 0..=ROUNDS as u64 {
        if stop::is_requested() {
            run.partial = true;
            break;
        }
        let figures = on_core(&engine, 0, move |core| {
            long_round(core, generator, plain, count, round + 1)
        })?;
        run.wrong_values += figures.wrong;
        rounds.extend((round > 0).then_some(figures));
    }
    engine.close();
    let megabytes = (plain * count) as f64 / 1e6;
    let row = |name: String, of: &dyn Fn(&LongRound) -> f64, base: Option<&str>| Row {
        name,
        figure: median(rounds.iter().map(|round| megabytes / of(round)).collect()),
        unit: "MB/s".to_owned(),
        beside: base.map(str::to_owned),
        ..Row::default()
    };
    let beside = |row: Row, ratio: &dyn Fn(&LongRound) -> f64| Row {
        ratio: Some(median(rounds.iter().map(ratio).collect())),
        ratio_min: Some(LONG_RATIO_MIN),
        ..row
    };
    let (put, get) = ("put, plain values", "get, plain values");
    let long = |name: &str| format!("{name} of {} MiB", settings.long_bytes >> 20);
    let put_long = row(long("put_long"), &|round| round.put_long, Some(put));
    let get_long = row(long("get_long"), &|round| round.get_long, Some(get));
    run.rows = vec![
        row(put.to_owned(), &|round| round.put, None),
        row(get.to_owned(), &|round| round.get, None),
        beside(put_long, &|round| round.put / round.put_long),
        beside(get_long, &|round| round.get / round.get_long),
    ];
    Ok(run)
}
