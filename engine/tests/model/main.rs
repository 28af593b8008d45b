//! The whole engine against `HashMap`s: two handles and a job on a core at once, while the main
//! thread flushes and compacts.
//!
//! Each client has its own keys and so an exact model, although many requests are in flight:
//! operations on one key keep their order, so answers are checked in that order once they have
//! arrived. The counters that all clients share are changed only by compare-and-swap and checked at
//! the end. `FARCORE_SEED=n` replays a seed. The calls of each client repeat; the interleaving of
//! threads does not.

#![expect(clippy::cast_possible_truncation, reason = "test data wraps")]

mod call;
mod client;
mod drive;
mod random;

use std::sync::mpsc::channel;
use std::thread;

use farcore::{Config, EncryptionKey, EncryptionMode, Engine, Error, FaultPlan, Handle, LinkModel};

use crate::client::Client;
use crate::drive::{ROUNDS, drive_core, drive_handle, read_back, read_counters};

fn tiny() -> Config {
    Config {
        cores: Config::default().cores.into_iter().take(2).collect(),
        local_bytes: 16 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 1_000,
        prefault: false,
        huge_pages: false,
        handles_max: 4,
        handle_lane_bytes: 16 << 10,
        lane_bytes: Some(16 << 10),
        hash_tags: true,
        ..Config::default()
    }
}

/// The seed of the environment, else the default.
fn seed(default: u64) -> u64 {
    match std::env::var("FARCORE_SEED") {
        Ok(text) => text.parse().expect("FARCORE_SEED is a number"),
        Err(_) => default,
    }
}

fn run(seed: u64, steps: u64, config: Config) {
    let faulty = config.link.faults.failed_completions_per_million > 0;
    let (engine, clients) = work(seed, steps, config);
    check_end(seed, &engine, &clients);

    // The paths that the test is for were taken.
    let stats = engine.stats().total;
    let failures: u64 = clients.iter().map(|client| client.failures).sum();
    assert!(
        stats.far_reads > 100
            && stats.reads_shared > 100
            && stats.pages_evicted > 10
            && stats.compaction_records_moved > 100
            && stats.index_growth_steps > 0,
        "FARCORE_SEED={seed} step {steps}: {stats:?}"
    );
    assert_eq!(
        failures > 0,
        faulty,
        "FARCORE_SEED={seed} step {steps}: {failures}"
    );
}

/// Runs all clients on a new engine until they are done.
fn work(seed: u64, steps: u64, config: Config) -> (Engine, Vec<Client>) {
    let faulty = config.link.faults.failed_completions_per_million > 0;
    let mut config = Config {
        seed: Some(seed),
        ..config
    };
    config.link.faults.seed = seed;
    let engine =
        Engine::open(config).unwrap_or_else(|error| panic!("FARCORE_SEED={seed} step 0: {error}"));
    let (progress, rounds) = channel();
    let client = Client::new(seed, 0, faulty);
    let on_core = progress.clone();
    let task = engine
        .run_on_core(0, move |core| drive_core(client, core, steps, on_core))
        .unwrap_or_else(|error| panic!("FARCORE_SEED={seed} step 0: {error}"));
    let mut clients: Vec<Client> = thread::scope(|scope| {
        let threads: Vec<_> = (1..3)
            .map(|number| {
                let client = Client::new(seed, number, faulty);
                let (handle, progress) = (handle(&engine, seed), progress.clone());
                scope.spawn(move || drive_handle(client, handle, steps, &progress))
            })
            .collect();
        drop(progress);
        for round in 0..2 * ROUNDS {
            if rounds.recv().is_err() {
                break;
            }
            let done = if round % 2 == 0 {
                engine.flush()
            } else {
                engine.compact()
            };
            let allowed = faulty && matches!(done, Err(Error::Unavailable { .. }));
            assert!(
                done.is_ok() || allowed,
                "FARCORE_SEED={seed} step {round} of the main thread: {done:?}"
            );
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Client>| {
            thread
                .join()
                .unwrap_or_else(|reason| std::panic::resume_unwind(reason))
        };
        threads.into_iter().map(join).collect()
    });
    let on_core = task.join();
    let on_core = on_core.unwrap_or_else(|error| panic!("FARCORE_SEED={seed} client 0: {error}"));
    clients.push(on_core);
    (engine, clients)
}

/// All keys read as the models say, before and after all records are moved.
fn check_end(seed: u64, engine: &Engine, clients: &[Client]) {
    let mut handle = handle(engine, seed);
    for client in clients {
        read_back(client, &mut handle, "at the end");
    }
    read_counters(clients, &mut handle);
    let done = engine.flush().and_then(|()| engine.compact());
    let faulty = clients.iter().any(|client| client.faulty);
    let allowed = faulty && matches!(done, Err(Error::Unavailable { .. }));
    assert!(
        done.is_ok() || allowed,
        "FARCORE_SEED={seed} at the end: {done:?}"
    );
    for client in clients {
        read_back(client, &mut handle, "after a flush and a compaction");
    }
    read_counters(clients, &mut handle);
}

fn handle(engine: &Engine, seed: u64) -> Handle {
    let handle = engine.handle();
    handle.unwrap_or_else(|error| panic!("FARCORE_SEED={seed}: {error}"))
}

#[test]
fn many_clients_see_what_maps_would() {
    run(seed(1), 40_000, tiny());
}

#[test]
fn many_clients_see_what_maps_would_when_encrypted_and_far() {
    let link = LinkModel {
        latency_ns: 2_000,
        jitter_ns: 3_000,
        ..LinkModel::default()
    };
    for encryption_mode in [EncryptionMode::Authenticated, EncryptionMode::SecrecyOnly] {
        let config = Config {
            link: link.clone(),
            encryption: Some(EncryptionKey::Aes128([3; 16])),
            encryption_mode,
            ..tiny()
        };
        run(seed(2), 40_000, config);
    }
}

#[test]
fn many_clients_see_what_maps_would_when_requests_fail() {
    let faults = FaultPlan {
        failed_completions_per_million: 5_000,
        ..FaultPlan::default()
    };
    let link = LinkModel {
        faults,
        ..LinkModel::default()
    };
    run(seed(3), 40_000, Config { link, ..tiny() });
}

#[test]
#[should_panic(expected = "(at the end): key 7 reads Value")]
fn a_foreign_change_is_detected() {
    let (engine, clients) = work(4, 300, tiny());
    let name = clients[1].key(7);
    let put = handle(&engine, 4).put(&name, b"by no client").wait();
    put.expect("the canary is stored");
    check_end(4, &engine, &clients);
}
