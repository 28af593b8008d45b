//! An engine as a cache: puts never fail for lack of memory, and what is read stays longer.
//!
//! `cargo run -p farcore --example cache`

use farcore::{Config, Engine, Error, WhenFull};

/// What an application computes or fetches when its cache does not have it.
fn compute(number: u64) -> Vec<u8> {
    number.to_string().repeat(100).into_bytes()
}

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 16 << 20,
        far_bytes: 4 << 20,
        keys_expected: 10_000,
        when_full: WhenFull::Evict,
        prefault: false,
        ..Config::default()
    })?;
    let mut handle = engine.handle()?;
    // More than all memory holds. A few numbers are wanted again and again.
    let mut misses = [0u64; 2];
    for number in 0..100_000u64 {
        let popular = number % 50;
        for (kind, wanted) in [number, popular].into_iter().enumerate() {
            let key = wanted.to_le_bytes();
            if let Some(value) = handle.get(&key).wait()? {
                assert_eq!(*value, *compute(wanted));
            } else {
                misses[kind] += 1;
                handle.put(&key, &compute(wanted)).wait()?;
            }
        }
    }
    let stats = engine.stats().total;
    println!(
        "{} keys are there, {} were evicted; popular ones missed {} times",
        stats.keys, stats.evicted, misses[1]
    );
    assert!(stats.evicted > 0 && stats.puts_failed == 0);
    assert!(misses[1] < 1_000 && misses[0] > 90_000);
    Ok(())
}
