//! A client for threads and for tasks of a runtime: clones share a few lanes, and every call is a
//! future that can also block.
//!
//! Twenty threads store, a thousand tasks of a tokio runtime read and count, one of them with a
//! time limit.
//!
//! `cargo run -p farcore --example client`

use std::thread;
use std::time::Duration;

use farcore::{Client, Config, Engine, Error};

const THREADS: u64 = 20;
const KEYS: u64 = 200;
const TASKS: u64 = 1_000;

fn key(thread: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&thread.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Stores the keys of a thread, in one batch.
fn store(client: &Client, thread: u64) -> Result<(), Error> {
    let keys: Vec<_> = (0..KEYS).map(|number| key(thread, number)).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (&key[..], &key[8..])).collect();
    client.put_many(&pairs).wait()?;
    Ok(())
}

/// Reads a key and counts what it has seen.
async fn read(client: Client, task: u64) -> Result<bool, Error> {
    let key = key(task % THREADS, task % KEYS);
    let found = client.get(&key).await?;
    client.increment(b"reads", 1).await?;
    Ok(found.is_some_and(|value| value[..] == key[8..]))
}

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 16 << 20,
        far_bytes: 32 << 20,
        keys_expected: 10_000,
        prefault: false,
        ..Config::default()
    })?;
    let client = engine.client()?;

    thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || store(client, thread)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"))
    })?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let right = runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(read(client.clone(), task)))
            .collect();
        let mut right = 0;
        for task in tasks {
            right += u64::from(task.await.expect("no panic")?);
        }
        // The runtime's own time limit: a call that is dropped is forgotten.
        let limit = Duration::from_secs(5);
        let counted = tokio::time::timeout(limit, client.increment(b"reads", 0)).await;
        assert_eq!(counted, Ok(Ok(1_000)));
        Ok::<_, Error>(right)
    })?;
    assert_eq!(right, TASKS);
    println!("{THREADS} threads stored and {TASKS} tasks read, each the right value");
    Ok(())
}
