//! Writes the traces on which miss counts are compared with libCacheSim, or measures how fast
//! replays are: `cargo run --release -p farcore-card --example card_replay -- traces FOLDER`, or
//! `-- speed`.

use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use farcore_card::policy::{HybridWeights, PolicyName};
use farcore_card::replay::replay;
use farcore_card::settings::SettingError;
use farcore_card::simulator::{CardSettings, Simulation, SimulationSettings};
use farcore_card::trace::Recording;

#[path = "../oracle/traces.rs"]
mod traces;

use self::traces::{ACCESSES, TRACES, population, workload};

/// Accesses of a measured replay.
const MEASURED: usize = 20_000_000;
const PLACES: u32 = 2_000;

fn write_traces(folder: &Path) -> io::Result<()> {
    for (name, pattern) in TRACES {
        let mut workload = workload(pattern);
        let messages = (0..ACCESSES).filter_map(|_| workload.next_message());
        let recording = Recording::of(&population().tokens(), messages);
        let file = File::create(folder.join(format!("{name}.card")))?;
        recording.write(BufWriter::new(file))?;
    }
    Ok(())
}

fn measure() {
    let accesses = workload(TRACES[0].1).accesses(MEASURED);
    let keys = population().keys();
    for policy in PolicyName::ALL {
        let start = Instant::now();
        let counts = replay(policy, PLACES, keys, &accesses, HybridWeights::default());
        let rate = MEASURED as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{policy},{rate:.1},{}", counts.misses);
    }
}

/// Accesses to tokens that the simulator serves in a second, with everything counted.
fn measure_simulator() -> Result<(), SettingError> {
    for (name, card) in [
        ("tiers", CardSettings::default()),
        ("plain", CardSettings::plain()),
    ] {
        let card = CardSettings {
            policy: PolicyName::Hybrid,
            ..card
        };
        let settings = SimulationSettings {
            card,
            messages: MEASURED as u64 / 3,
            ..SimulationSettings::default()
        };
        let start = Instant::now();
        let outcome = Simulation::new(settings)?.run(|_| ControlFlow::Continue(()));
        let accesses = outcome.statistics.served.total() as f64;
        let rate = accesses / start.elapsed().as_secs_f64() / 1e6;
        println!("{name},{rate:.1},{:.4}", outcome.hit_ratio);
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [word, folder] if word == "traces" => write_traces(Path::new(folder)),
        [word] if word == "speed" => {
            measure();
            measure_simulator().map_err(io::Error::other)
        }
        _ => Err(io::Error::other("write `traces FOLDER` or `speed`")),
    }
}
