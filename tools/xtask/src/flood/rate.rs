//! `flood rate`: an engine's rate beside silent connections to its memory node, in parts of its
//! rate alone.
//!
//! One engine runs against one node throughout. Windows of load alternate with and without the
//! attacker, and each pair of neighbours gives a ratio. Every answer is compared with what was
//! written, in all windows, and every key is read once more at the end.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use farcore::{Answer, Config, Core, Engine, Operation, Refused};
use farcore_rdma::Lock;
use farcore_tuning::RatioEstimate;

use super::attack::AttackProcess;
use super::node::Node;
use super::places::{Places, pin};

/// Keys of the engine.
const KEYS: u32 = 100_000;
/// Bytes of a value, so that far memory holds nearly all of the data.
const VALUE_BYTES: usize = 1_000;
/// Local memory of the engine, in bytes.
const LOCAL_BYTES: u64 = 24 << 20;
const FAR_BYTES: u64 = 256 << 20;
/// Requests in flight.
const WINDOW: usize = 64;
/// Requests of which one is a put.
const PUT_EVERY: u64 = 10;
/// Answers between two looks at the clock.
const BATCH: usize = 256;
/// Time for the attacker to fill the node's places, and for the node to be rid of it.
const WARM_UP: Duration = Duration::from_secs(1);
/// Confidence of the interval.
const CONFIDENCE: f64 = 0.95;
/// The rate beside the attacker, in parts of that alone, at least.
const RATIO_MIN: f64 = 0.8;
/// An attacker that opens less than this share of its rate proves nothing.
const REACHED: f64 = 0.9;

#[derive(Debug, Args)]
pub(crate) struct Rate {
    /// A `farcore` binary; without it, one is built.
    #[arg(long)]
    node: Option<PathBuf>,
    /// Silent connections a second.
    #[arg(long, default_value_t = 4000)]
    rate: u64,
    /// Pairs of windows.
    #[arg(long, default_value_t = 9)]
    pairs: u32,
    /// Length of a window, in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

/// A number that follows from the last, in no order that a cache could use.
fn next(seed: &mut u64) -> u64 {
    // SplitMix64.
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Writes the value that a key has after some number of puts.
fn fill(value: &mut [u8; VALUE_BYTES], key: u32, puts: u32) {
    let mut seed = u64::from(key) << 32 | u64::from(puts);
    for piece in value.chunks_mut(8) {
        piece.copy_from_slice(&next(&mut seed).to_le_bytes()[..piece.len()]);
    }
}

/// A request's token: a key, and its puts before.
fn token(key: u32, puts: u32) -> u64 {
    u64::from(key) << 32 | u64::from(puts)
}

fn parts(token: u64) -> (u32, u32) {
    let half = |half| u32::try_from(half).unwrap_or(u32::MAX);
    (half(token >> 32), half(token & u64::from(u32::MAX)))
}

/// What the engine must hold, and how to go on.
#[derive(Debug)]
struct Load {
    /// Puts of each key.
    puts: Vec<u32>,
    seed: u64,
}

/// How some requests were answered.
#[derive(Clone, Debug, Default)]
struct Outcome {
    right: u64,
    /// Answers that differ from what was written.
    wrong: u64,
    /// The first error, and how many there were.
    error: Option<String>,
    errors: u64,
}

impl Outcome {
    fn count(&mut self, token: u64, answer: &Answer<'_>) {
        let (key, puts) = parts(token);
        match answer {
            Answer::Stored { .. } => self.right += 1,
            Answer::Value { value, .. } => {
                let mut expected = [0; VALUE_BYTES];
                fill(&mut expected, key, puts);
                let is_right = **value == expected;
                self.right += u64::from(is_right);
                self.wrong += u64::from(!is_right);
            }
            Answer::Failed(error) => {
                self.errors += 1;
                self.error.get_or_insert_with(|| error.to_string());
            }
            _ => self.wrong += 1,
        }
    }

    fn check(&self) -> Result<u64> {
        ensure!(self.wrong == 0, "{} answers were wrong", self.wrong);
        if let Some(error) = &self.error {
            bail!("{} requests failed, the first with: {error}", self.errors);
        }
        Ok(self.right)
    }
}

/// Sends one request if there is room: a put of a key, or a get. False if there is none.
fn send(core: &mut Core, load: &mut Load, key: u32, is_put: bool) -> Result<bool, farcore::Error> {
    let puts = &mut load.puts[key as usize];
    let number = key.to_be_bytes();
    let mut value = [0; VALUE_BYTES];
    let operation = if is_put {
        fill(&mut value, key, *puts + 1);
        Operation::Put {
            key: &number,
            value: &value,
        }
    } else {
        Operation::Get { key: &number }
    };
    // Operations on one key keep their order: a get finds what was put before it was sent.
    let token = token(key, *puts);
    match core.submit(operation, token) {
        Ok(()) => {
            *puts += u32::from(is_put);
            Ok(true)
        }
        Err(Refused::Full) => Ok(false),
        Err(Refused::Error(error)) => Err(error),
    }
}

/// Sends requests until the time is over or all keys had their turn.
async fn requests(
    core: &mut Core,
    load: &mut Load,
    mut choose: impl FnMut(&mut u64) -> Option<(u32, bool)>,
) -> Result<Outcome, farcore::Error> {
    let mut outcome = Outcome::default();
    let (mut chosen, mut answered) = (None, 0);
    let mut is_over = false;
    loop {
        while !is_over && core.in_flight() < WINDOW {
            let Some((key, is_put)) = chosen.take().or_else(|| choose(&mut load.seed)) else {
                is_over = true;
                break;
            };
            if !send(core, load, key, is_put)? {
                chosen = Some((key, is_put));
                break;
            }
        }
        if is_over && core.in_flight() == 0 {
            return Ok(outcome);
        }
        let before = answered / BATCH;
        answered += core.poll(|token, answer| outcome.count(token, &answer));
        if answered / BATCH > before {
            core.yield_now().await;
        }
    }
}

/// Runs requests of all keys in turn on the engine's core, puts or gets.
fn each_key(engine: &Engine, mut load: Load, is_put: bool) -> Result<Load> {
    let job = async move |mut core: Core| {
        let mut keys = 0..KEYS;
        let choose = |_: &mut u64| keys.next().map(|key| (key, is_put));
        let outcome = requests(&mut core, &mut load, choose).await;
        (outcome, load)
    };
    let (outcome, load) = engine.run_on_core(0, job)?.join()?;
    let right = outcome?.check()?;
    ensure!(right == u64::from(KEYS), "{right} of {KEYS} answers");
    Ok(load)
}

/// A window of load; returns requests a second.
fn window(engine: &Engine, mut load: Load, seconds: u64) -> Result<(f64, Load)> {
    let job = async move |mut core: Core| {
        let start = Instant::now();
        let end = start + Duration::from_secs(seconds);
        let mut left = 0;
        let choose = |seed: &mut u64| {
            if left == 0 {
                left = BATCH;
                if Instant::now() >= end {
                    return None;
                }
            }
            left -= 1;
            let drawn = next(seed);
            let key = u32::try_from(drawn % u64::from(KEYS)).unwrap_or(0);
            Some((key, (drawn >> 40).is_multiple_of(PUT_EVERY)))
        };
        let outcome = requests(&mut core, &mut load, choose).await;
        (outcome, load, start.elapsed())
    };
    let (outcome, load, took) = engine.run_on_core(0, job)?.join()?;
    Ok((outcome?.check()? as f64 / took.as_secs_f64(), load))
}

fn open(node: &Node, core: usize) -> Result<Engine> {
    let engine = Engine::open(Config {
        cores: vec![core],
        local_bytes: LOCAL_BYTES,
        far_bytes: FAR_BYTES,
        page_bytes: Some(256 << 10),
        keys_expected: u64::from(KEYS),
        nodes: vec![format!("tcp://{}", node.address).parse()?],
        huge_pages: false,
        lock: Lock::Off,
        handles_max: 1,
        ..Config::default()
    });
    engine.context("cannot open an engine at the node")
}

pub(super) fn run(flood: &Rate) -> Result<()> {
    let places = Places::here()?;
    ensure!(
        places.are_apart(),
        "this machine has one core: the attacker needs one of its own"
    );
    let core = places.third.unwrap_or(places.node);
    let node = Node::start(flood.node.as_deref(), places.node, "512MiB")?;
    // The engine pins its own thread; the rest only waits.
    pin(core)?;
    let engine = open(&node, core)?;
    println!(
        "node on core {}, engine on core {core}, attacker alone on core {}: {} silent connections a second",
        places.node, places.attacker, flood.rate
    );
    let load = Load {
        puts: vec![0; KEYS as usize],
        seed: 1,
    };
    let mut load = each_key(&engine, load, true)?;
    engine.flush()?;
    // Once more than is counted, so that caches and buffers are what they will be.
    (_, load) = window(&engine, load, flood.seconds)?;
    println!(
        "{:>6}{:>14}{:>14}{:>9}{:>12}",
        "pair", "alone/s", "beside/s", "ratio", "opened/s"
    );
    let mut ratios = Vec::new();
    let mut slowest = f64::INFINITY;
    for pair in 0..flood.pairs {
        // Each comes first in every second pair: what drifts favours neither.
        let (mut alone, mut beside, mut opened) = (0.0, 0.0, 0.0);
        for is_alone in [pair % 2 == 0, pair % 2 == 1] {
            if is_alone {
                (alone, load) = window(&engine, load, flood.seconds)?;
                continue;
            }
            let attack = AttackProcess::start(node.address, flood.rate, places.attacker)?;
            thread::sleep(WARM_UP);
            (beside, load) = window(&engine, load, flood.seconds)?;
            opened = attack.end()?;
            thread::sleep(WARM_UP);
        }
        slowest = slowest.min(opened);
        ratios.push(beside / alone);
        println!(
            "{:>6}{alone:>14.0}{beside:>14.0}{:>9.3}{opened:>12.0}",
            pair + 1,
            beside / alone
        );
    }
    each_key(&engine, load, false)?;
    println!("every answer was right, and so was every key at the end");
    engine.close();
    judge(flood, places, &ratios, slowest)
}

/// Prints the ratio, and fails if it is less than it must be and the machine can show that.
fn judge(flood: &Rate, places: Places, ratios: &[f64], slowest: f64) -> Result<()> {
    let ratio = RatioEstimate::of(ratios, CONFIDENCE).context("no pairs")?;
    println!(
        "beside/alone: {:.3} ({:.3} to {:.3} with a confidence of {:.2})",
        ratio.median, ratio.low, ratio.high, ratio.confidence
    );
    if slowest < REACHED * flood.rate as f64 {
        bail!(
            "the attacker opened only {slowest:.0} connections a second: the ratio shows less than it must"
        );
    }
    if places.third.is_none() {
        println!(
            "not judged: with two cores, the engine shares core {} with the node, so that what the node spends on strangers is taken from the engine too; three cores give each its own",
            places.node
        );
        return Ok(());
    }
    if ratio.median < RATIO_MIN {
        return Err(anyhow!(
            "the rate beside the attacker is {:.3} of that alone, at least {RATIO_MIN} is right",
            ratio.median
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_right_if_it_is_what_was_put_last() {
        let mut value = [0; VALUE_BYTES];
        fill(&mut value, 7, 3);
        let answer = |value| Answer::Value { version: 1, value };
        let mut outcome = Outcome::default();
        outcome.count(token(7, 3), &answer(&value));
        outcome.count(token(7, 3), &Answer::Stored { version: 2 });
        assert_eq!(outcome.check().unwrap(), 2);
        for (key, puts) in [(7, 2), (7, 4), (8, 3)] {
            let mut outcome = outcome.clone();
            outcome.count(token(key, puts), &answer(&value));
            assert!(outcome.check().is_err(), "{key} {puts}");
        }
        outcome.count(token(7, 3), &Answer::Absent);
        assert!(outcome.check().is_err());
    }

    #[test]
    fn a_ratio_is_judged_where_each_has_a_core() {
        let flood = Rate {
            node: None,
            rate: 4_000,
            pairs: 3,
            seconds: 1,
        };
        let places = |third| Places {
            node: 0,
            attacker: 2,
            third,
        };
        let (good, bad) = ([0.9, 0.8, 0.95], [0.7, 0.75, 0.9]);
        assert!(judge(&flood, places(Some(1)), &good, 3_900.0).is_ok());
        assert!(judge(&flood, places(Some(1)), &bad, 3_900.0).is_err());
        assert!(judge(&flood, places(None), &bad, 3_900.0).is_ok());
        // An attacker that is too slow shows nothing.
        assert!(judge(&flood, places(Some(1)), &good, 2_000.0).is_err());
    }
}
