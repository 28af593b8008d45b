//! Runs one scenario: server, data, the well-behaved client, load, and what comes after it.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::super::touched::await_touched;
use super::caller::Caller;
use super::data::Data;
use super::load::Load;
use super::native::NativeLoad;
use super::report::Outcome;
use super::scenarios::Scenario;
use super::served::{Served, Setting};
use super::well_behaved::{LONG_BYTES, LONG_COUNT, WellBehaved};
use super::words::Reply;

/// How often resident memory is read.
const SAMPLE: Duration = Duration::from_millis(50);
/// Resident memory at which a server is killed, or it would take that of the machine.
const KILLED_BYTES: u64 = 4 << 30;
/// Between the start of the well-behaved client and the measurement of memory at rest.
const SETTLE: Duration = Duration::from_millis(500);
/// Resident memory is back if it exceeds that at rest by less than this.
const BACK_BYTES: u64 = 4 << 20;
/// Within this time after the load.
const BACK_LIMIT: Duration = Duration::from_secs(5);

fn store(scenario: &Scenario, served: &Served) -> Result<()> {
    let mut door = served.door.clone();
    door.encrypted = None;
    door.is_third = false;
    let mut caller = Caller::connect(&door)?;
    let of_all = Data::Values {
        count: LONG_COUNT,
        bytes: LONG_BYTES,
    };
    // A server serves before it has touched all of its memory, which would count as growth.
    await_touched(|| match caller.call(&[b"INFO", b"memory"])? {
        Reply::Bytes(info) => Ok(String::from_utf8(info)?),
        _ => bail!("INFO replies no text"),
    })?;
    for data in std::iter::once(of_all).chain(scenario.data.iter().copied()) {
        data.store(&mut caller)
            .with_context(|| format!("cannot store {data:?}"))?;
    }
    for words in &scenario.settings {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        caller.expect(&words)?;
    }
    Ok(())
}

/// The loads of a scenario.
struct Loads {
    plain: Option<Load>,
    native: Option<NativeLoad>,
}

impl Loads {
    fn start(scenario: &Scenario, served: &Served, core: usize) -> Result<Self> {
        let plain = match scenario.crowds.is_empty() {
            true => None,
            false => Some(Load::start(
                scenario.crowds.clone(),
                served.door.clone(),
                core,
            )?),
        };
        let native = match &served.native {
            Some(to) if !scenario.natives.is_empty() => Some(NativeLoad::start(
                scenario.natives.clone(),
                to.clone(),
                core,
            )?),
            _ => None,
        };
        Ok(Self { plain, native })
    }

    /// Ends them; returns what they have done, for people.
    fn end(self) -> Result<String> {
        let mut done = Vec::new();
        if let Some(load) = self.plain {
            done.push(load.end()?.to_string());
        }
        if let Some(load) = self.native {
            done.push(load.end()?.to_string());
        }
        Ok(done.join("; "))
    }
}

/// Watches resident memory under load; false if the server had to be killed, or has ended.
fn watch(served: &mut Served, outcome: &mut Outcome, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        let Ok(resident) = served.resident() else {
            outcome.fault = Some("the server has ended".to_owned());
            return false;
        };
        outcome.peak = outcome.peak.max(resident.peak);
        if resident.now > KILLED_BYTES {
            outcome.is_killed = true;
            served.kill();
            return false;
        }
        thread::sleep(SAMPLE.min(time));
    }
    true
}

/// The least resident memory for a while: a long read takes some now and then.
fn at_rest(served: &Served) -> Result<u64> {
    let start = Instant::now();
    let mut least = served.resident()?.now;
    while start.elapsed() < SETTLE {
        thread::sleep(SAMPLE);
        least = least.min(served.resident()?.now);
    }
    Ok(least)
}

/// Waits until resident memory is back; returns what it is then, and whether it is.
fn wait_back(served: &Served, before: u64) -> Result<(u64, bool)> {
    let start = Instant::now();
    loop {
        let now = served.resident()?.now;
        let is_back = now < before + BACK_BYTES;
        if is_back || start.elapsed() > BACK_LIMIT {
            return Ok((now, is_back));
        }
        thread::sleep(SAMPLE);
    }
}

fn run_into(
    setting: &Setting,
    scenario: &Scenario,
    time: Duration,
    outcome: &mut Outcome,
) -> Result<()> {
    let core = setting.cores.load;
    let mut served = Served::start(setting, scenario)?;
    outcome.allowed = served.allowed_bytes;
    outcome.beside = served.beside_bytes;
    store(scenario, &served)?;
    let well_behaved = WellBehaved::start(&served.door, served.native.clone(), core)?;
    outcome.before = at_rest(&served)?;
    let loads = Loads::start(scenario, &served, core)?;
    let goes_on = watch(&mut served, outcome, time);
    if goes_on {
        outcome.under_load = served.resident()?.now;
    }
    outcome.load = loads.end()?;
    if !goes_on {
        // What the client says of a server that is gone is of no use.
        outcome.behaved = well_behaved.so_far();
        return Ok(());
    }
    (outcome.after, outcome.is_back) = wait_back(&served, outcome.before)?;
    outcome.peak = outcome.peak.max(served.resident()?.peak);
    outcome.behaved = well_behaved.end()?;
    if !served.is_running() {
        outcome.fault = Some("the server has ended".to_owned());
    } else if !served.stop() {
        outcome.fault = Some("the server did not end within 20 s of SIGTERM".to_owned());
    }
    Ok(())
}

/// Runs a scenario. What goes wrong is in the outcome, so that the next one can run.
pub(super) fn run(setting: &Setting, scenario: &Scenario, time: Duration) -> Outcome {
    let mut outcome = Outcome::new(scenario);
    let start = Instant::now();
    if let Err(error) = run_into(setting, scenario, time, &mut outcome) {
        outcome.fault = Some(format!("{error:#}"));
    }
    outcome.took = start.elapsed();
    outcome
}
