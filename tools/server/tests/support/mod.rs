//! A server on a small engine, and a client that waits for each reply.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod client;
pub(crate) mod clusters;
pub(crate) mod compared;
pub(crate) mod followers;
pub(crate) mod history;
pub(crate) mod long_values;
pub(crate) mod random;
pub(crate) mod redis;
pub(crate) mod reply;
pub(crate) mod words;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farcore::{Config, Engine, ShardSnapshot, WhenFull};
use farcore_server::{CoreFigures, Options, SECTION_NS, Server, TREE_PROGRAMS};

pub(crate) use self::client::Client;
pub(crate) use self::random::Random;
pub(crate) use self::reply::Reply;
pub(crate) use self::words::WordClient;

/// Time limit of everything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that ends before its engine.
#[derive(Debug)]
pub(crate) struct Served {
    server: Option<Server>,
    engine: Engine,
    pub(crate) address: SocketAddr,
}

impl Served {
    /// Starts a server.
    pub(crate) fn start(cores: usize) -> Self {
        Self::with(cores, |_| {})
    }

    /// Starts a server with memory for all clients of a test: none is disconnected for another's.
    pub(crate) fn roomy(cores: usize) -> Self {
        Self::with(cores, |options| options.client_bytes = 256 << 20)
    }

    /// Starts a server with changed options.
    pub(crate) fn with(cores: usize, change: impl FnOnce(&mut Options)) -> Self {
        Self::on(small_engine(cores), change)
    }

    /// A cache with little far memory, on one core.
    pub(crate) fn cache() -> Self {
        let engine = Engine::open(Config {
            when_full: WhenFull::Evict,
            ..config(1, 8 << 20)
        });
        Self::on(engine.expect("an engine"), |options| {
            options.evicts = true;
            options.client_bytes = 256 << 20;
        })
    }

    /// A server with room for several of the longest values.
    pub(crate) fn vast(cores: usize) -> Self {
        Self::on(engine(cores, 768 << 20), |options| {
            options.client_bytes = 64 << 20;
        })
    }

    /// A server of the longest records, of 1 MiB, with much room.
    pub(crate) fn of_long_records(cores: usize) -> Self {
        let engine = Engine::open(Config {
            local_bytes: 192 << 20,
            page_bytes: Some(2 << 20),
            keys_expected: 300_000,
            ..config(cores, 768 << 20)
        });
        Self::on(engine.expect("an engine"), |options| {
            options.client_bytes = 512 << 20;
        })
    }

    pub(crate) fn on(engine: Engine, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new(([127, 0, 0, 1], 0).into());
        change(&mut options);
        let server = Server::start(&engine, options).expect("a server");
        Self {
            address: server.address(),
            server: Some(server),
            engine,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs until it is stopped")
    }

    /// Has the server follow its source, if its options name one.
    pub(crate) fn begin(&mut self) {
        let server = self.server.as_mut().expect("it runs until it is stopped");
        server.begin(&self.engine).expect("nothing is loaded");
    }

    /// The figures of all cores together.
    pub(crate) fn figures(&self) -> CoreFigures {
        self.server().reporter().figures().total()
    }

    /// What the engine says of all its shards: how many sections it has given, and so on.
    pub(crate) fn section_figures(&self) -> ShardSnapshot {
        self.engine.stats().total
    }

    pub(crate) fn shards(&self) -> usize {
        self.engine.shards()
    }

    pub(crate) fn shard_of(&self, key: &[u8]) -> usize {
        self.engine.shard_of(key)
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn word_client(&self) -> WordClient {
        WordClient(self.client())
    }

    /// Stops the server; the engine goes on.
    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().expect("it ran");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Its jobs end before the engine closes.
        drop(self.server.take());
    }
}

/// Runs a test against servers on one core and on two.
pub(crate) fn on_servers(test: impl Fn(&Served)) {
    for cores in [1, 2] {
        let mut server = Served::roomy(cores);
        test(&server);
        server.stop();
    }
}

/// An engine with little far memory.
pub(crate) fn small_engine(cores: usize) -> Engine {
    engine(cores, 64 << 20)
}

fn engine(cores: usize, far_bytes: u64) -> Engine {
    Engine::open(config(cores, far_bytes)).expect("an engine")
}

fn config(cores: usize, far_bytes: u64) -> Config {
    Config {
        cores: available().into_iter().take(cores).collect(),
        local_bytes: 32 << 20,
        far_bytes,
        page_bytes: Some(128 << 10),
        keys_expected: 20_000,
        spin_ns: 0,
        prefault: false,
        huge_pages: false,
        hash_tags: true,
        section_ns: SECTION_NS,
        tree_programs: TREE_PROGRAMS,
        ..Config::default()
    }
}

/// The cores that this process may use.
fn available() -> Vec<usize> {
    Config::default().cores
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it never came to this: {what}");
        std::thread::yield_now();
    }
}

impl Random {
    /// From `FARCORE_SEED`, or another one each time.
    pub(crate) fn new() -> Self {
        let given = std::env::var("FARCORE_SEED").ok();
        let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).expect("random bytes");
            u64::from_le_bytes(bytes)
        });
        println!("FARCORE_SEED={seed}");
        Self::of(seed)
    }
}
