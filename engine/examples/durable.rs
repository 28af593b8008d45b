//! An engine that keeps what it stores: it is closed, opened again and finds its keys.
//!
//! `cargo run --release -p farcore --example durable -- KEYS off|second|always CORES DIRECTORY`
//! prints how fast that is; each of them may be left out with those behind. A directory that holds
//! that many keys already is only loaded.

use std::path::PathBuf;
use std::time::Instant;

use farcore::{Config, Core, Engine, Error, LogPolicy, Operation};

/// Operations of a batch.
const BATCH: usize = 512;

async fn put_all(mut core: Core, keys: u64, round: u64) -> Result<(), Error> {
    for first in (0..keys).step_by(BATCH) {
        let pairs: Vec<_> = (first..keys.min(first + BATCH as u64))
            .map(|number| (number.to_le_bytes(), [(number + round).to_le_bytes(); 8]))
            .collect();
        let operations = pairs.iter().map(|(key, value)| Operation::Put {
            key,
            value: value.as_flattened(),
        });
        core.many(operations, |_, _| {}).await?;
    }
    Ok(())
}

/// Opens the engine again, and looks whether all keys are there.
fn look_again(config: Config, keys: u64) -> Result<(), Error> {
    let began = Instant::now();
    let engine = Engine::open(config)?;
    let seconds = began.elapsed().as_secs_f64();
    let rate = keys as f64 / seconds / 1e6;
    println!("loaded: {rate:.2} million keys a second");
    let mut handle = engine.handle()?;
    assert_eq!(handle.len()?, keys);
    let last = (keys - 1).to_le_bytes();
    let value = handle.get(&last).wait()?.map(|value| value.to_vec());
    assert!(value.is_some_and(|value| value[..8] == keys.to_le_bytes()));
    println!("all keys are there again");
    drop(handle);
    engine.close();
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let keys = arguments
        .next()
        .and_then(|keys| keys.parse().ok())
        .unwrap_or(20_000);
    let log = match arguments.next().as_deref() {
        Some("off") => LogPolicy::Off,
        Some("always") => LogPolicy::Always,
        _ => LogPolicy::EverySecond,
    };
    let cores = arguments.next().and_then(|cores| cores.parse().ok());
    let directory = arguments.next().map(PathBuf::from);
    let temporary = std::env::temp_dir().join(format!("farcore-{}", std::process::id()));
    let directory = directory.unwrap_or_else(|| temporary.clone());
    let config = Config {
        cores: Config::default()
            .cores
            .into_iter()
            .take(cores.unwrap_or(1))
            .collect(),
        local_bytes: (64 << 20) + keys * 32,
        far_bytes: (64 << 20) + keys * 256,
        keys_expected: keys,
        data_dir: Some(directory),
        log,
        ..Config::default()
    };
    if config.data_dir.as_ref().is_some_and(|dir| dir.exists()) {
        return look_again(config, keys);
    }
    let engine = Engine::open(config.clone())?;
    let rate = |what: &str, began: Instant| {
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{what}: {:.2} million keys a second",
            keys as f64 / seconds / 1e6
        );
    };
    for round in 0..2 {
        let began = Instant::now();
        engine
            .run_on_core(0, move |core| put_all(core, keys, round))?
            .join()??;
        rate("put", began);
    }
    let saved = std::thread::scope(|scope| {
        let snapshot = scope.spawn(|| engine.snapshot());
        let (began, mut rounds) = (Instant::now(), 0);
        while !snapshot.is_finished() {
            engine
                .run_on_core(0, move |core| put_all(core, keys, 1))?
                .join()??;
            rounds += 1;
        }
        let seconds = began.elapsed().as_secs_f64() / f64::from(rounds);
        println!(
            "put while saving: {:.2} million keys a second",
            keys as f64 / seconds / 1e6
        );
        snapshot.join().unwrap_or(Err(Error::Closed))
    })?;
    println!(
        "saved {} keys, {} bytes in {} ms",
        saved.keys, saved.bytes, saved.took_ms
    );
    // What was logged meanwhile is in this one too.
    engine.snapshot()?;
    engine.close();
    look_again(config, keys)?;
    let _ = std::fs::remove_dir_all(temporary);
    Ok(())
}
