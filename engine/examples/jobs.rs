//! Jobs on the engine's cores: a client there reaches its own shard by a plain call.
//!
//! One job a core keeps a window of requests in flight and polls, so that cache misses and far
//! reads overlap. This is the fastest way to use the engine.
//!
//! `cargo run -p farcore --example jobs`

use farcore::{Answer, Config, Core, Engine, Error, Operation, Refused};

const KEYS: u64 = 20_000;
const WINDOW: usize = 64;

fn value(number: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..].copy_from_slice(&(!number).to_le_bytes());
    value
}

/// Runs an operation on each key with up to [`WINDOW`] in flight; returns how many answers `check`
/// accepted.
async fn run(
    core: &mut Core,
    numbers: &[u64],
    operation: impl for<'a> Fn(&'a [u8], &'a [u8]) -> Operation<'a>,
    check: impl Fn(u64, Answer<'_>) -> bool,
) -> Result<usize, Error> {
    let (mut sent, mut answered, mut accepted) = (0, 0, 0);
    while answered < numbers.len() {
        while sent < numbers.len() && core.in_flight() < WINDOW {
            let number = numbers[sent];
            // The token comes back with the answer. Key and value are copied.
            match core.submit(operation(&number.to_be_bytes(), &value(number)), number) {
                Ok(()) => sent += 1,
                Err(Refused::Full) => break, // poll first
                Err(Refused::Error(error)) => return Err(error),
            }
        }
        // Serves the core's shard and visits what was answered. A visitor must not panic.
        answered += core.poll(|number, answer| accepted += usize::from(check(number, answer)));
        if answered.is_multiple_of(1024) {
            core.yield_now().await; // other jobs of this core run
        }
    }
    Ok(accepted)
}

async fn store_and_verify(mut core: Core, numbers: Vec<u64>) -> Result<[usize; 2], Error> {
    let stored = run(
        &mut core,
        &numbers,
        |key, value| Operation::Put { key, value },
        |_, answer| matches!(answer, Answer::Stored { .. }),
    );
    let stored = stored.await?;
    let found = run(
        &mut core,
        &numbers,
        |key, _| Operation::Get { key },
        |number, answer| answer.value() == value(number),
    );
    Ok([stored, found.await?])
}

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(2).collect(),
        local_bytes: 32 << 20,
        far_bytes: 64 << 20,
        keys_expected: KEYS,
        prefault: false,
        ..Config::default()
    })?;
    // Each key goes to the job on its own core. Any job reaches any key, but others over a lane.
    let mut of_core = vec![Vec::new(); engine.shards()];
    for number in 0..KEYS {
        of_core[engine.shard_of(&number.to_be_bytes())].push(number);
    }
    let mut tasks = Vec::new();
    for (position, numbers) in of_core.into_iter().enumerate() {
        let expected = numbers.len();
        let job = move |core| store_and_verify(core, numbers);
        tasks.push((engine.run_on_core(position, job)?, expected));
    }
    for (position, (task, expected)) in tasks.into_iter().enumerate() {
        // The first error is the job's (it panicked), the second its result.
        assert_eq!(task.join()??, [expected; 2]);
        println!("position {position}: {expected} values verified");
    }
    engine.close();
    Ok(())
}
