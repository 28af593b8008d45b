//! A server on a small engine, served over sockets of this machine.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod device;
pub(crate) mod peer;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farcore::{Config, Engine};
use farcore_client::{Client, ClientOptions, FabricAddress, Transfer};
use farcore_server::{NativeFigures, NativeOptions, Options, Server};

/// Time limit of everything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server that ends before its engine.
#[derive(Debug)]
pub(crate) struct Served {
    server: Option<Server>,
    engine: Engine,
    pub(crate) address: FabricAddress,
}

impl Served {
    pub(crate) fn start(cores: usize) -> Self {
        Self::with(cores, |_| {})
    }

    /// Starts a server on TCP at a free port, with options of the native protocol changed.
    pub(crate) fn with(cores: usize, change: impl FnOnce(&mut NativeOptions)) -> Self {
        Self::at("tcp://127.0.0.1:0", cores, change)
    }

    /// Starts a server at an address of any fabric, with options of the native protocol changed.
    pub(crate) fn at(address: &str, cores: usize, change: impl FnOnce(&mut NativeOptions)) -> Self {
        let engine = Engine::open(Config {
            cores: Config::default().cores.into_iter().take(cores).collect(),
            local_bytes: 64 << 20,
            far_bytes: 256 << 20,
            page_bytes: Some(256 << 10),
            keys_expected: 20_000,
            spin_ns: 0,
            prefault: false,
            huge_pages: false,
            ..Config::default()
        });
        let engine = engine.expect("an engine");
        let mut options = Options::new(([127, 0, 0, 1], 0).into());
        options.native.listen = vec![address.parse().expect("an address")];
        options.native.timeout = PATIENCE;
        change(&mut options.native);
        let server = Server::start(&engine, options).expect("a server");
        let address = server.native_addresses().first().expect("an address");
        Self {
            address: address.parse().expect("an address"),
            server: Some(server),
            engine,
        }
    }

    /// Where clients connect: one address for each that it listens at.
    pub(crate) fn addresses(&self) -> Vec<FabricAddress> {
        let server = self.server.as_ref().expect("it runs");
        let addresses = server.native_addresses().iter();
        addresses
            .map(|address| address.parse().expect("an address"))
            .collect()
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(|_| {})
    }

    pub(crate) fn client_with(&self, change: impl FnOnce(&mut ClientOptions)) -> Client {
        let mut options = options(Transfer::Read);
        change(&mut options);
        Client::connect(&self.address, options).expect("a client")
    }

    /// Where clients of the other protocol connect.
    pub(crate) fn resp_address(&self) -> SocketAddr {
        self.server.as_ref().expect("it runs").address()
    }

    /// How many sections were held, and how many for too long.
    pub(crate) fn section_figures(&self) -> (u64, u64) {
        let figures = self.engine.stats().total;
        (figures.sections, figures.sections_lost)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The server's figures of native connections.
    pub(crate) fn figures(&self) -> NativeFigures {
        let server = self.server.as_ref().expect("it runs");
        server.reporter().figures().total().native
    }

    /// Stops the server and starts another at its address; the engine goes on.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let mut options = Options::new(([127, 0, 0, 1], 0).into());
        options.native.listen = vec![self.address.clone()];
        let server = Server::start(&self.engine, options).expect("a server");
        self.server = Some(server);
    }

    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().expect("it ran");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.server.take());
    }
}

/// Options with time for a busy machine.
pub(crate) fn options(transfer: Transfer) -> ClientOptions {
    ClientOptions {
        timeout: PATIENCE,
        transfer,
        ..ClientOptions::default()
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that tell their place.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

/// Random numbers from a seed, which a failure prints.
#[derive(Debug)]
pub(crate) struct Random(u64);

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
        Self(seed)
    }

    /// Those of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number; splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("a small number")
    }
}
